/* What the files of cpu/conv share among themselves. */
#ifndef WICK_CPU_CONV_CONV_INTERNAL_H
#define WICK_CPU_CONV_CONV_INTERNAL_H

#include "cpu/conv/conv.h"
#include "cpu/workspace.h"

/* A convolution and its operands. Of the weight's gradient `weight` is the input. */
typedef struct wk__conv_job {
  const wk__conv *c;
  const void *in, *weight, *bias; /* bias: or NULL */
  void *out;
  const wk__conv_after *after; /* or NULL */
  bool weight_turned;          /* of a plain forward one: the weight is (C, O) */
} wk__conv_job;

static inline void wk__conv_finish(const wk__conv_job *job, wk__conv_piece piece) {
  if (job->after) job->after->run(job->after->context, &piece);
}

/* Sizes that everything asks for. */
typedef struct wk__conv_sizes {
  int64_t taps, places, pixels; /* of the kernel, of the result, of the input */
  int64_t depth;                /* products of an element of the result: C T */
  int64_t in_image, out_image;  /* elements of an image, all groups */
  int64_t element;              /* bytes */
} wk__conv_sizes;

static inline wk__conv_sizes wk__conv_sizes_of(const wk__conv *c) {
  wk__conv_sizes s = {
      .taps = wk__conv_count(c->kernel), .places = wk__conv_count(c->out), .pixels = wk__conv_count(c->in)};
  s.depth = c->in_channels * s.taps;
  s.in_image = c->groups * c->in_channels * s.pixels;
  s.out_image = c->groups * c->out_channels * s.places;
  s.element = wk__conv_element(c);
  return s;
}

/* Where a group's part of an operand begins: planes come one group after the other, and so do channels of a pixel. */
static inline char *wk__conv_part(const wk__conv *c, const void *images, int64_t group, int64_t channels,
                                  int64_t plane) {
  return (char *)images + group * channels * (c->channels_last ? 1 : plane) * wk__conv_element(c);
}

/* conv.c: forward, with the bits that conv.h states. */
WK_MUST_USE wk_status wk__conv_forward_as_usual(const wk__conv_job *job);
/* depthwise.c: the same as those of conv.h, where wk__conv_is_depthwise. */
WK_MUST_USE wk_status wk__depthwise_forward(const wk__conv_job *job);
WK_MUST_USE wk_status wk__depthwise_input_gradient(const wk__conv_job *job);
WK_MUST_USE wk_status wk__depthwise_weight_gradient(const wk__conv_job *job);
/* small_planes.c: of depthwise ones. */
bool wk__small_planes_takes(const wk__conv *c);
WK_MUST_USE wk_status wk__small_planes_forward(const wk__conv_job *job);
WK_MUST_USE wk_status wk__small_planes_weight_gradient(const wk__conv_job *job);

#endif
