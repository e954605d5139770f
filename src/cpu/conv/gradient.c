/* The gradient of a convolution's input, which is what a transposed convolution computes.
 *
 * With a stride of 1 it is the convolution of the gradient by the weight turned round, which of a single tap is the
 * weight read in the other order. Else it is a product, columns
 * (C T, P) = weight' (C T, O) grad (O, P), whose rows are added up where the taps saw the input; made some channels, or
 * some lines of places, at a time, so that they stay in the cache.
 * Tests: tests/c/test_conv.c. */
#include <stdatomic.h>

#include "cpu/conv/conv_internal.h"
#include "cpu/conv/conv_kernels.h"
#include "cpu/conv/onednn.h"

/* ---- the input's gradient, stride 1: a convolution of the gradient ---- */

static wk__conv turned_round(const wk__conv *c) {
  wk__conv t = *c;
  t.in_channels = c->out_channels, t.out_channels = c->in_channels;
  for (int d = 0; d < WK__CONV_DIMS; d++) {
    t.in[d] = c->out[d], t.out[d] = c->in[d];
    t.padding[d] = c->dilation[d] * (c->kernel[d] - 1) - c->padding[d];
  }
  return t;
}

enum { TURNED_CHANNELS = 16 }; /* at a time: read side by side, written to as many places */

typedef struct turning {
  const wk__conv *c;
  const char *weight;
  char *out;
} turning;

/* (G O, C, taps) as (G C, O, taps), last tap first; channels last alike, with channels behind taps. A task is a block
 * of a group's channels. */
#define DEFINE_TURN(T)                                                                                    \
  static void turn_planes_##T(int64_t o_count, int64_t c_count, int64_t taps, int64_t first, int64_t end, \
                              const T *weight, T *out) {                                                  \
    for (int64_t o = 0; o < o_count; o++)                                                                 \
      for (int64_t i = first; i < end; i++) {                                                             \
        const T *from = weight + (o * c_count + i) * taps;                                                \
        T *to = out + (i * o_count + o) * taps;                                                           \
        for (int64_t t = 0; t < taps; t++) to[t] = from[taps - 1 - t];                                    \
      }                                                                                                   \
  }                                                                                                       \
  static void turn_pixels_##T(int64_t o_count, int64_t c_count, int64_t taps, int64_t first, int64_t end, \
                              const T *weight, T *out) {                                                  \
    for (int64_t t = 0; t < taps; t++)                                                                    \
      for (int64_t o = 0; o < o_count; o++) {                                                             \
        const T *from = weight + (o * taps + taps - 1 - t) * c_count;                                     \
        T *to = out + t * o_count + o;                                                                    \
        for (int64_t i = first; i < end; i++) to[i * taps * o_count] = from[i];                           \
      }                                                                                                   \
  }
DEFINE_TURN(float)
DEFINE_TURN(double)

static void turn_channels(void *context, int64_t begin, int64_t end) {
  const turning *t = context;
  const wk__conv *c = t->c;
  wk__conv_sizes s = wk__conv_sizes_of(c);
  int64_t blocks = wk__ceil_div(c->in_channels, TURNED_CHANNELS), group = c->out_channels * s.depth * s.element;
  for (int64_t b = begin; b < end; b++) {
    int64_t first = b % blocks * TURNED_CHANNELS, last = wk__min(first + TURNED_CHANNELS, c->in_channels);
    const void *from = t->weight + b / blocks * group;
    void *to = t->out + b / blocks * group;
    if (c->type == WK__GEMM_F64) {
      (c->channels_last ? turn_pixels_double : turn_planes_double)(c->out_channels, c->in_channels, s.taps, first, last,
                                                                   from, to);
    } else {
      (c->channels_last ? turn_pixels_float : turn_planes_float)(c->out_channels, c->in_channels, s.taps, first, last,
                                                                 from, to);
    }
  }
}

static wk_status gradient_by_turning(const wk__conv_job *job) {
  const wk__conv *c = job->c;
  wk__conv t = turned_round(c);
  if (wk__conv_is_plain(&t) && !wk__conv_is_depthwise(&t) && !(wk__thread.gemm_other_sums && wk__conv_onednn_takes(&t)))
    return wk__conv_forward_as_usual(
        &(wk__conv_job){&t, job->in, job->weight, job->bias, job->out, NULL, .weight_turned = true});
  char *weight = wk__alloc((size_t)(c->groups * c->out_channels * wk__conv_sizes_of(c).depth * wk__conv_element(c)));
  if (!weight) return WK_OUT_OF_MEMORY;
  turning turn = {c, job->weight, weight};
  int64_t blocks = c->groups * wk__ceil_div(c->in_channels, TURNED_CHANNELS);
  wk__parallel_for(blocks, wk__max(1, 4096 / (c->out_channels * TURNED_CHANNELS)), turn_channels, &turn);
  wk_status status = wk__conv_forward(&t, job->in, weight, job->bias, job->out, NULL);
  wk__free(weight);
  return status;
}

/* ---- strided: what each place's taps give, added up. A task is one image of one group. ---- */

enum { COLUMNS_BYTES = 512 << 10 }; /* of what is made at a time: stays in L2 */

typedef struct addition {
  const wk__conv_job *job;
  wk__conv_sizes s;
  int64_t step; /* places (channels last) or channels that are made at a time */
  _Atomic bool failed;
} addition;

#define DEFINE_ADD_LINE(T)                                                                                       \
  static void add_line_##T(const T *from, int64_t from_step, int64_t count, int64_t n, T *to, int64_t to_step) { \
    for (int64_t i = 0; i < count; i++, from += from_step, to += to_step)                                        \
      for (int64_t j = 0; j < n; j++) to[j] += from[j];                                                          \
  }                                                                                                              \
  static void fill_##T(T *out, int64_t count, const T *value) {                                                  \
    for (int64_t i = 0; i < count; i++) out[i] = value ? *value : 0;                                             \
  }
DEFINE_ADD_LINE(float)
DEFINE_ADD_LINE(double)

/* Places [0, count) of a line, n elements of each, onto input pixels that are a stride apart. */
static void add_line(const wk__conv *c, const char *from, int64_t from_step, int64_t count, int64_t n, char *to,
                     int64_t to_step) {
  if (c->type == WK__GEMM_F64) {
    add_line_double((const double *)from, from_step, count, n, (double *)to, to_step);
  } else {
    add_line_float((const float *)from, from_step, count, n, (float *)to, to_step);
  }
}

static void fill(const wk__conv *c, char *out, int64_t count, const char *value) {
  if (c->type == WK__GEMM_F64) {
    fill_double((double *)out, count, (const double *)value);
  } else {
    fill_float((float *)out, count, (const float *)value);
  }
}

/* The place in the input of a tap below a line of places, and which of them are inside; false: none. */
typedef struct below {
  int64_t pixel, first, end;
} below;

static bool find_below(const wk__conv *c, int64_t line, int64_t tap, below *out) {
  int64_t kw = tap % c->kernel[2], kh = tap / c->kernel[2] % c->kernel[1], kd = tap / c->kernel[2] / c->kernel[1];
  int64_t h = line % c->out[1] * c->stride[1] - c->padding[1] + kh * c->dilation[1];
  int64_t d = line / c->out[1] * c->stride[0] - c->padding[0] + kd * c->dilation[0];
  int64_t w = kw * c->dilation[2] - c->padding[2], s = c->stride[2];
  if (h < 0 || h >= c->in[1] || d < 0 || d >= c->in[0]) return false;
  out->first = w < 0 ? (-w + s - 1) / s : 0;
  out->end = c->in[2] > w ? wk__min(c->out[2], (c->in[2] - w + s - 1) / s) : 0;
  out->pixel = (d * c->in[1] + h) * c->in[2] + w;
  return out->first < out->end;
}

/* columns (channels, taps, places) onto the channels' planes. */
static void add_planes(const addition *a, const char *columns, int64_t channels, char *planes) {
  const wk__conv *c = a->job->c;
  const wk__conv_sizes *s = &a->s;
  below b;
  for (int64_t k = 0; k < channels * s->taps; k++)
    for (int64_t line = 0; line < c->out[0] * c->out[1]; line++) {
      if (!find_below(c, line, k % s->taps, &b)) continue;
      const char *from = columns + (k * s->places + line * c->out[2] + b.first) * s->element;
      char *to = planes + (k / s->taps * s->pixels + b.pixel + b.first * c->stride[2]) * s->element;
      if (c->stride[2] == 1) {
        add_line(c, from, 0, 1, b.end - b.first, to, 0);
      } else {
        add_line(c, from, 1, b.end - b.first, 1, to, c->stride[2]);
      }
    }
}

static wk_status add_planes_of(const addition *a, int64_t image, int64_t group) {
  const wk__conv *c = a->job->c;
  const wk__conv_sizes *s = &a->s;
  char *columns = wk__workspace_get(WK__WORKSPACE_CONV, (size_t)(a->step * s->taps * s->places * s->element));
  char *planes = wk__conv_part(c, a->job->out, group, c->in_channels, s->pixels) + image * s->in_image * s->element;
  const char *weight = (const char *)a->job->weight + group * c->out_channels * s->depth * s->element;
  const char *bias = a->job->bias ? (const char *)a->job->bias + group * c->in_channels * s->element : NULL;
  wk__gemm g = {.type = c->type, .n = s->places, .k = c->out_channels, .alpha = 1, .batch = 1};
  if (!columns) return WK_OUT_OF_MEMORY;
  g.a_row = 1, g.a_column = s->depth;
  g.b = wk__conv_part(c, a->job->in, group, c->out_channels, s->places) + image * s->out_image * s->element;
  g.b_row = s->places, g.b_column = 1;
  g.c = columns, g.c_row = s->places;
  for (int64_t i = 0; i < c->in_channels; i++)
    fill(c, planes + i * s->pixels * s->element, s->pixels, bias ? bias + i * s->element : NULL);
  for (int64_t i = 0; i < c->in_channels; i += a->step) {
    int64_t channels = wk__min(a->step, c->in_channels - i);
    g.a = weight + i * s->taps * s->element, g.m = channels * s->taps;
    WK_TRY(wk__gemm_run(&g));
    add_planes(a, columns, channels, planes + i * s->pixels * s->element);
  }
  return WK_OK;
}

/* columns (lines of places, taps, channels) onto the image's pixels. */
static void add_pixels(const addition *a, const char *columns, int64_t line, int64_t lines, char *pixels) {
  const wk__conv *c = a->job->c;
  const wk__conv_sizes *s = &a->s;
  int64_t pixel = c->groups * c->in_channels;
  below b;
  for (int64_t l = line; l < line + lines; l++)
    for (int64_t t = 0; t < s->taps; t++) {
      if (!find_below(c, l, t, &b)) continue;
      const char *from = columns + (((l - line) * c->out[2] + b.first) * s->depth + t * c->in_channels) * s->element;
      char *to = pixels + (b.pixel + b.first * c->stride[2]) * pixel * s->element;
      add_line(c, from, s->depth, b.end - b.first, c->in_channels, to, c->stride[2] * pixel);
    }
}

static wk_status add_pixels_of(const addition *a, int64_t image, int64_t group) {
  const wk__conv *c = a->job->c;
  const wk__conv_sizes *s = &a->s;
  int64_t lines = c->out[0] * c->out[1], pixel = c->groups * c->in_channels;
  char *columns = wk__workspace_get(WK__WORKSPACE_CONV, (size_t)(a->step * c->out[2] * s->depth * s->element));
  char *pixels = wk__conv_part(c, a->job->out, group, c->in_channels, 0) + image * s->in_image * s->element;
  const char *grad = wk__conv_part(c, a->job->in, group, c->out_channels, 0) + image * s->out_image * s->element;
  const char *bias = a->job->bias ? (const char *)a->job->bias + group * c->in_channels * s->element : NULL;
  wk__gemm g = {.type = c->type, .n = s->depth, .k = c->out_channels, .alpha = 1, .batch = 1};
  if (!columns) return WK_OUT_OF_MEMORY;
  g.a_row = c->groups * c->out_channels, g.a_column = 1;
  g.b = (const char *)a->job->weight + group * c->out_channels * s->depth * s->element;
  g.b_row = s->depth, g.b_column = 1;
  g.c = columns, g.c_row = s->depth;
  for (int64_t p = 0; p < s->pixels; p++) {
    char *to = pixels + p * pixel * s->element;
    if (bias) {
      memcpy(to, bias, (size_t)(c->in_channels * s->element));
    } else {
      memset(to, 0, (size_t)(c->in_channels * s->element));
    }
  }
  for (int64_t l = 0; l < lines; l += a->step) {
    int64_t count = wk__min(a->step, lines - l);
    g.a = grad + l * c->out[2] * g.a_row * s->element, g.m = count * c->out[2];
    WK_TRY(wk__gemm_run(&g));
    add_pixels(a, columns, l, count, pixels);
  }
  return WK_OK;
}

static void add_images(void *context, int64_t begin, int64_t end) {
  addition *a = context;
  const wk__conv *c = a->job->c;
  for (int64_t i = begin; i < end; i++) {
    wk_status status = (c->channels_last ? add_pixels_of : add_planes_of)(a, i / c->groups, i % c->groups);
    if (status != WK_OK) atomic_store(&a->failed, true);
  }
}

static wk_status gradient_by_adding(const wk__conv_job *job) {
  const wk__conv *c = job->c;
  addition a = {.job = job, .s = wk__conv_sizes_of(c)};
  int64_t unit = a.s.taps * a.s.places, line = c->out[2] * a.s.depth; /* of a channel, of a line of places */
  a.step = wk__max(1, COLUMNS_BYTES / ((c->channels_last ? line : unit) * a.s.element));
  a.step = wk__min(a.step, c->channels_last ? c->out[0] * c->out[1] : c->in_channels);
  wk__parallel_for(c->batch * c->groups, 1, add_images, &a);
  return atomic_load(&a.failed) ? wk_fail(WK_OUT_OF_MEMORY, "convolution: out of memory") : WK_OK;
}

wk_status wk__conv_input_gradient(const wk__conv *c, const void *grad, const void *weight, const void *bias,
                                  void *grad_input) {
  wk__conv_job job = {c, grad, weight, bias, grad_input, NULL, false};
  bool steps = c->stride[0] != 1 || c->stride[1] != 1 || c->stride[2] != 1;
  if (steps && wk__conv_is_depthwise(c)) return wk__depthwise_input_gradient(&job);
  return steps ? gradient_by_adding(&job) : gradient_by_turning(&job);
}

/* ---- columns that are given ---- */

typedef struct given {
  addition a;
  const char *columns;
  char *images;
} given;

/* A task is a plane. */
static void add_given(void *context, int64_t begin, int64_t end) {
  const given *g = context;
  const wk__conv_sizes *s = &g->a.s;
  for (int64_t i = begin; i < end; i++) {
    char *plane = g->images + i * s->pixels * s->element;
    fill(g->a.job->c, plane, s->pixels, NULL);
    add_planes(&g->a, g->columns + i * s->taps * s->places * s->element, 1, plane);
  }
}

void wk__conv_add_columns(const wk__conv *c, const void *columns, void *images) {
  wk__conv_job job = {.c = c};
  given g = {.a = {.job = &job, .s = wk__conv_sizes_of(c)}, .columns = columns, .images = images};
  wk__parallel_for(c->batch * c->in_channels, 1, add_given, &g);
}
