/* Depthwise convolutions of planes whose lines are much shorter than a vector: as many channels as a vector has lanes
 * are turned so that they lie side by side in each pixel, and back.
 *
 * In: a job where wk__small_planes_takes. Out: its result, with the bits of depthwise.c: an element is the same chain
 * over the same taps, padding included. A task is a block of channels of one image; a block's
 * images come one after the other, so that a thread keeps the weights that it has turned.
 * Tests: tests/c/test_conv.c. */
#include <stdatomic.h>

#include "cpu/conv/conv_internal.h"
#include "cpu/conv/conv_kernels.h"
#include "cpu/gemm/gemm_kernels.h"

enum { MOST_PLANE_BYTES = 128 << 10, MOST_TAPS = 128 };

typedef struct small_planes {
  const wk__conv_job *job;
  const wk__conv *c;
  const wk__conv_kernels *kernels;
  const wk__gemm_kernels *gemm; /* packing, which transposes */
  wk__conv_sizes s;
  int64_t lanes, blocks, height, width; /* of a plane with its padding */
  int64_t at[MOST_TAPS];                /* where a tap begins, in elements */
  _Atomic bool failed;
} small_planes;

/* A thread's memory; (pixels, lanes) but for the last. */
typedef struct turned {
  char *plane;  /* with zeros around */
  char *pixels; /* of the image */
  char *weight, *bias, *result;
  char *planes; /* (lanes, places) */
} turned;

static int64_t padded(const wk__conv *c, int dim) {
  return (c->out[dim] - 1) * c->stride[dim] + (c->kernel[dim] - 1) * c->dilation[dim] + 1;
}

bool wk__small_planes_takes(const wk__conv *c) {
  int64_t lanes = wk__gemm_kernels_get(c->type)->lanes;
  if (c->channels_last || 2 * c->out[2] > lanes || c->groups < lanes || wk__conv_count(c->kernel) > MOST_TAPS)
    return false;
  int64_t bytes = lanes * wk__conv_element(c);
  return padded(c, 1) * padded(c, 2) * bytes <= MOST_PLANE_BYTES && wk__conv_count(c->in) * bytes <= MOST_PLANE_BYTES;
}

/* ---- a block of channels ---- */

static int64_t plane_bytes(const small_planes *p) { return p->height * p->width * p->lanes * p->s.element; }

static bool get_memory(small_planes *p, turned *t) {
  int64_t lane_bytes = p->lanes * p->s.element, places = p->s.places * lane_bytes + WK__GEMM_PACK_SLACK;
  int64_t pixels = p->s.pixels * lane_bytes + WK__GEMM_PACK_SLACK, taps = p->s.taps * lane_bytes + WK__GEMM_PACK_SLACK;
  t->plane = wk__workspace_get(WK__WORKSPACE_CONV, (size_t)(plane_bytes(p) + pixels + taps + lane_bytes + 2 * places));
  if (!t->plane) {
    atomic_store(&p->failed, true);
    return false;
  }
  memset(t->plane, 0, (size_t)plane_bytes(p));
  t->pixels = t->plane + plane_bytes(p);
  t->weight = t->pixels + pixels;
  t->bias = t->weight + taps;
  t->result = t->bias + lane_bytes;
  t->planes = t->result + places;
  return true;
}

static void turn_weight(const small_planes *p, int64_t channel, int64_t channels, const turned *t) {
  const char *weight = (const char *)p->job->weight + channel * p->s.taps * p->s.element;
  p->gemm->pack(channels, p->lanes, p->s.taps, weight, p->s.taps, 1, t->weight);
  memset(t->bias, 0, (size_t)(p->lanes * p->s.element));
  if (p->job->bias)
    memcpy(t->bias, (const char *)p->job->bias + channel * p->s.element, (size_t)(channels * p->s.element));
}

static void turn_image(const small_planes *p, const char *image, int64_t channels, const turned *t) {
  const wk__conv *c = p->c;
  int64_t pixel = p->lanes * p->s.element, first = wk__max(0, -c->padding[2]);
  int64_t count = wk__min(c->in[2], p->width - c->padding[2]) - first;
  p->gemm->pack(channels, p->lanes, p->s.pixels, image, p->s.pixels, 1, t->pixels);
  for (int64_t h = wk__max(0, -c->padding[1]); h < wk__min(c->in[1], p->height - c->padding[1]) && count > 0; h++)
    memcpy(t->plane + ((h + c->padding[1]) * p->width + first + c->padding[2]) * pixel,
           t->pixels + (h * c->in[2] + first) * pixel, (size_t)(count * pixel));
}

static void weigh(const small_planes *p, const turned *t) {
  const wk__conv *c = p->c;
  int64_t pixel = p->lanes * p->s.element;
  for (int64_t h = 0; h < c->out[1]; h++)
    p->kernels->weigh_run(c->out[2], t->plane + h * c->stride[1] * p->width * pixel, c->stride[2] * p->lanes,
                          (int)p->s.taps, p->at, t->weight, p->lanes, p->job->bias ? t->bias : NULL,
                          t->result + h * c->out[2] * pixel);
}

static void run_tasks(void *context, int64_t begin, int64_t end) {
  small_planes *p = context;
  const wk__conv *c = p->c;
  int64_t ready = -1;
  turned t;
  if (!get_memory(p, &t)) return;
  for (int64_t task = begin; task < end; task++) {
    int64_t image = task % c->batch, channel = task / c->batch * p->lanes;
    int64_t channels = wk__min(p->lanes, c->groups - channel), first = image * c->groups + channel;
    if (ready != channel) turn_weight(p, channel, channels, &t);
    ready = channel;
    turn_image(p, (const char *)p->job->in + first * p->s.pixels * p->s.element, channels, &t);
    weigh(p, &t);
    p->gemm->pack(p->s.places, p->s.places, channels, t.result, p->lanes, 1, t.planes);
    memcpy((char *)p->job->out + first * p->s.places * p->s.element, t.planes,
           (size_t)(channels * p->s.places * p->s.element));
    wk__conv_finish(p->job, (wk__conv_piece){image, channel, 0, channels, p->s.places});
  }
}

wk_status wk__small_planes_forward(const wk__conv_job *job) {
  const wk__conv *c = job->c;
  small_planes p = {.job = job, .c = c, .kernels = wk__conv_kernels_get(c->type), .s = wk__conv_sizes_of(c)};
  p.gemm = wk__gemm_kernels_get(c->type);
  p.lanes = p.gemm->lanes, p.blocks = wk__ceil_div(c->groups, p.lanes);
  p.height = padded(c, 1), p.width = padded(c, 2);
  for (int64_t k = 0; k < p.s.taps; k++)
    p.at[k] = (k / c->kernel[2] * c->dilation[1] * p.width + k % c->kernel[2] * c->dilation[2]) * p.lanes;
  wk__parallel_for(p.blocks * c->batch, 1, run_tasks, &p);
  return atomic_load(&p.failed) ? wk_fail(WK_OUT_OF_MEMORY, "convolution: out of memory") : WK_OK;
}
