/* Convolutions as matrix products: conv.h says what is computed, patches.h what the operand is.
 *
 * With P places of a result, C and O channels of a group and T taps, the products of one group are
 *
 *     planes          out (O, P)          = weight (O, C T) patches (C T, P)             for each image
 *     channels last   out (N P, O)        = patches (N P, T C) weight' (T C, O)
 *     planes          grad_weight (O, C T)  = grad (O, N P) patches' (N P, C T)
 *     channels last   grad_weight (O, T C)  = grad' (O, N P) patches (N P, T C)
 *
 * and the gradient of an input is the convolution of the gradient by the weight turned round, where the stride is 1.
 * Tests: tests/c/test_conv.c. */
#include "cpu/conv/conv.h"

#include <stdatomic.h>

#include "cpu/conv/conv_internal.h"
#include "cpu/conv/conv_kernels.h"
#include "cpu/conv/patches.h"

enum { FOLD_MOST_PLACES = 400, FOLD_LEAST_CHANNELS = 32 };

const wk__conv_kernels *wk__conv_kernels_get(wk__gemm_type type) {
#if defined(__x86_64__)
  switch (wk__cpu_level_get()) {
    case WK__CPU_AVX512:
      return &wk__conv_kernels_avx512[type];
    case WK__CPU_AVX2:
      return &wk__conv_kernels_avx2[type];
    default:
      break;
  }
#endif
  return &wk__conv_kernels_portable[type];
}

bool wk__conv_is_plain(const wk__conv *c) {
  for (int d = 0; d < WK__CONV_DIMS; d++)
    if (c->kernel[d] != 1 || c->stride[d] != 1 || c->padding[d] != 0 || c->in[d] != c->out[d]) return false;
  return true;
}

bool wk__conv_is_depthwise(const wk__conv *c) {
  bool flat = c->in[0] == 1 && c->out[0] == 1 && c->kernel[0] == 1 && c->padding[0] == 0 && c->stride[0] == 1;
  return flat && c->in_channels == 1 && c->out_channels == 1 && c->groups > 1;
}

/* Sizes that everything below asks for. */
typedef struct sizes {
  int64_t taps, places, pixels; /* of the kernel, of the result, of the input */
  int64_t depth;                /* products of an element of the result: C T */
  int64_t in_image, out_image;  /* elements of an image, all groups */
  int64_t element;              /* bytes */
} sizes;

static sizes sizes_of(const wk__conv *c) {
  sizes s = {.taps = wk__conv_count(c->kernel), .places = wk__conv_count(c->out), .pixels = wk__conv_count(c->in)};
  s.depth = c->in_channels * s.taps;
  s.in_image = c->groups * c->in_channels * s.pixels;
  s.out_image = c->groups * c->out_channels * s.places;
  s.element = wk__conv_element(c);
  return s;
}

/* ---- groups ---- */

typedef wk_status group_fn(const wk__conv_job *job, int64_t group);

typedef struct groups {
  const wk__conv_job *job;
  group_fn *run;
  _Atomic bool failed;
} groups;

static void run_groups(void *context, int64_t begin, int64_t end) {
  groups *g = context;
  for (int64_t i = begin; i < end; i++)
    if (g->run(g->job, i) != WK_OK) atomic_store(&g->failed, true);
}

/* Several groups are shared out, one alone is left to the product's own threads. */
static wk_status for_each_group(const wk__conv_job *job, group_fn *run) {
  groups g = {.job = job, .run = run};
  if (job->c->groups == 1) return run(job, 0);
  wk__parallel_for(job->c->groups, 1, run_groups, &g);
  return atomic_load(&g.failed) ? wk_fail(WK_OUT_OF_MEMORY, "convolution: out of memory") : WK_OK;
}

/* Where a group's part of an operand begins: planes come one group after the other, and so do channels of a pixel. */
static char *part_of(const wk__conv *c, const void *images, int64_t group, int64_t channels, int64_t plane) {
  return (char *)images + group * channels * (c->channels_last ? 1 : plane) * wk__conv_element(c);
}

/* ---- forward, planes ---- */

/* What is left to do with a part of the product: the bias of its rows, and moving it where images' places are folded
 * into columns. */
typedef struct finish {
  const wk__conv *c;
  const char *bias; /* of the group, or NULL */
  char *out;        /* of the group, or NULL: it is in place */
} finish;

#define DEFINE_ADD_AND_MOVE(T)                                                       \
  static void add_and_move_##T(const T *from, int64_t count, const T *bias, T *to) { \
    if (bias) {                                                                      \
      T b = *bias;                                                                   \
      for (int64_t i = 0; i < count; i++) to[i] = from[i] + b;                       \
    } else if (from != to) {                                                         \
      memcpy(to, from, (size_t)count * sizeof(T));                                   \
    }                                                                                \
  }
DEFINE_ADD_AND_MOVE(float)
DEFINE_ADD_AND_MOVE(double)

static void add_and_move(const wk__conv *c, const char *from, int64_t count, const char *bias, char *to) {
  if (c->type == WK__GEMM_F64) {
    add_and_move_double((const double *)from, count, (const double *)bias, (double *)to);
  } else {
    add_and_move_float((const float *)from, count, (const float *)bias, (float *)to);
  }
}

static void finish_row(const finish *f, const char *from, int64_t row, int64_t column, int64_t columns) {
  sizes s = sizes_of(f->c);
  const char *bias = f->bias ? f->bias + row * s.element : NULL;
  if (!f->out) {
    add_and_move(f->c, from, columns, bias, (char *)from);
    return;
  }
  while (columns > 0) {
    int64_t place = column % s.places, n = wk__min(columns, s.places - place);
    char *to = f->out + (column / s.places * s.out_image + row * s.places + place) * s.element;
    add_and_move(f->c, from, n, bias, to);
    from += n * s.element, column += n, columns -= n;
  }
}

static void finish_tile(void *context, const wk__gemm_tile *t) {
  const finish *f = context;
  int64_t step = t->c_row * wk__conv_element(f->c);
  for (int64_t i = 0; i < t->rows; i++) finish_row(f, (const char *)t->c + i * step, t->row + i, t->column, t->columns);
}

/* Few places fill no panel, and each image would go past all of a large weight: images side by side do. */
static bool folds_images(const wk__conv *c) {
  return c->batch > 1 && wk__conv_count(c->out) <= FOLD_MOST_PLACES && c->out_channels >= FOLD_LEAST_CHANNELS;
}

static wk_status forward_planes(const wk__conv_job *job, int64_t group) {
  const wk__conv *c = job->c;
  sizes s = sizes_of(c);
  wk__patches patches = {c, part_of(c, job->in, group, c->in_channels, s.pixels)};
  wk__gemm_maker maker = {wk__patches_by_tap, &patches, .batch_rows = s.depth};
  finish f = {.c = c};
  if (job->bias) f.bias = (const char *)job->bias + group * c->out_channels * s.element;
  wk__gemm g = {.type = c->type, .m = c->out_channels, .n = s.places, .k = s.depth, .alpha = 1, .batch = c->batch};
  g.a = (const char *)job->weight + group * c->out_channels * s.depth * s.element;
  g.a_row = s.depth, g.a_column = 1;
  g.c = part_of(c, job->out, group, c->out_channels, s.places);
  g.c_row = s.places, g.c_batch = s.out_image;
  void *folded = NULL;
  if (folds_images(c)) {
    folded = wk__alloc((size_t)(c->out_channels * c->batch * s.places * s.element));
    if (!folded) return WK_OUT_OF_MEMORY;
    f.out = g.c;
    g.c = folded, g.n *= c->batch, g.c_row = g.n, g.batch = 1;
  }
  if (wk__conv_is_plain(c) && !folded) {
    g.b = patches.image, g.b_row = s.places, g.b_column = 1, g.b_batch = s.in_image;
  } else {
    g.make_b = &maker;
  }
  if (f.bias || f.out) g.epilogue = finish_tile, g.epilogue_context = &f;
  wk_status status = wk__gemm_run(&g);
  wk__free(folded);
  return status;
}

/* ---- forward, channels last ---- */

static wk_status forward_pixels(const wk__conv_job *job, int64_t group) {
  const wk__conv *c = job->c;
  sizes s = sizes_of(c);
  wk__patches patches = {c, part_of(c, job->in, group, c->in_channels, s.pixels)};
  wk__gemm_maker maker = {wk__patches_by_place, &patches};
  wk__gemm g = {.type = c->type, .m = c->batch * s.places, .n = c->out_channels, .k = s.depth, .alpha = 1, .batch = 1};
  g.b = (const char *)job->weight + group * c->out_channels * s.depth * s.element;
  g.b_row = 1, g.b_column = s.depth;
  g.c = part_of(c, job->out, group, c->out_channels, s.places), g.c_row = c->groups * c->out_channels;
  if (job->bias) g.row = (const char *)job->bias + group * c->out_channels * s.element;
  if (wk__conv_is_plain(c)) {
    g.a = patches.image, g.a_row = c->groups * c->in_channels, g.a_column = 1;
  } else {
    g.make_a = &maker;
  }
  return wk__gemm_run(&g);
}

wk_status wk__conv_forward(const wk__conv *c, const void *input, const void *weight, const void *bias, void *output) {
  wk__conv_job job = {c, input, weight, bias, output};
  if (wk__conv_is_depthwise(c)) return wk__depthwise_forward(&job);
  return for_each_group(&job, c->channels_last ? forward_pixels : forward_planes);
}

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

/* (G O, C, taps) as (G C, O, taps), last tap first; channels last alike, with channels behind taps. */
static void turn_weight_round(const wk__conv *c, const char *weight, char *out) {
  sizes s = sizes_of(c);
  int64_t channel_step = c->channels_last ? 1 : s.taps, tap_step = c->channels_last ? c->in_channels : 1;
  for (int64_t g = 0; g < c->groups; g++, weight += c->out_channels * s.depth * s.element)
    for (int64_t i = 0; i < c->in_channels; i++)
      for (int64_t k = 0; k < c->out_channels * s.taps; k++, out += s.element) {
        int64_t o = c->channels_last ? k % c->out_channels : k / s.taps;
        int64_t t = c->channels_last ? k / c->out_channels : k % s.taps;
        const char *from = weight + (o * s.depth + i * channel_step + (s.taps - 1 - t) * tap_step) * s.element;
        memcpy(out, from, (size_t)s.element);
      }
}

static wk_status gradient_by_turning(const wk__conv_job *job) {
  const wk__conv *c = job->c;
  wk__conv t = turned_round(c);
  char *weight = wk__alloc((size_t)(c->groups * c->out_channels * sizes_of(c).depth * wk__conv_element(c)));
  if (!weight) return WK_OUT_OF_MEMORY;
  turn_weight_round(c, job->weight, weight);
  wk_status status = wk__conv_forward(&t, job->in, weight, job->bias, job->out);
  wk__free(weight);
  return status;
}

/* ---- strided: what each place's taps give, added up. A task is one image of one group. ---- */

enum { COLUMNS_BYTES = 512 << 10 }; /* of what is made at a time: stays in L2 */

typedef struct addition {
  const wk__conv_job *job;
  sizes s;
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
  const sizes *s = &a->s;
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
  const sizes *s = &a->s;
  char *columns = wk__workspace_get(WK__WORKSPACE_CONV, (size_t)(a->step * s->taps * s->places * s->element));
  char *planes = part_of(c, a->job->out, group, c->in_channels, s->pixels) + image * s->in_image * s->element;
  const char *weight = (const char *)a->job->weight + group * c->out_channels * s->depth * s->element;
  const char *bias = a->job->bias ? (const char *)a->job->bias + group * c->in_channels * s->element : NULL;
  wk__gemm g = {.type = c->type, .n = s->places, .k = c->out_channels, .alpha = 1, .batch = 1};
  if (!columns) return WK_OUT_OF_MEMORY;
  g.a_row = 1, g.a_column = s->depth;
  g.b = part_of(c, a->job->in, group, c->out_channels, s->places) + image * s->out_image * s->element;
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
  const sizes *s = &a->s;
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
  const sizes *s = &a->s;
  int64_t lines = c->out[0] * c->out[1], pixel = c->groups * c->in_channels;
  char *columns = wk__workspace_get(WK__WORKSPACE_CONV, (size_t)(a->step * c->out[2] * s->depth * s->element));
  char *pixels = part_of(c, a->job->out, group, c->in_channels, 0) + image * s->in_image * s->element;
  const char *grad = part_of(c, a->job->in, group, c->out_channels, 0) + image * s->out_image * s->element;
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
  addition a = {.job = job, .s = sizes_of(c)};
  int64_t unit = a.s.taps * a.s.places, line = c->out[2] * a.s.depth; /* of a channel, of a line of places */
  a.step = wk__max(1, COLUMNS_BYTES / ((c->channels_last ? line : unit) * a.s.element));
  a.step = wk__min(a.step, c->channels_last ? c->out[0] * c->out[1] : c->in_channels);
  wk__parallel_for(c->batch * c->groups, 1, add_images, &a);
  return atomic_load(&a.failed) ? wk_fail(WK_OUT_OF_MEMORY, "convolution: out of memory") : WK_OK;
}

wk_status wk__conv_input_gradient(const wk__conv *c, const void *grad, const void *weight, const void *bias,
                                  void *grad_input) {
  wk__conv_job job = {c, grad, weight, bias, grad_input};
  bool steps = c->stride[0] != 1 || c->stride[1] != 1 || c->stride[2] != 1;
  if (steps && wk__conv_is_depthwise(c)) return wk__depthwise_input_gradient(&job);
  return steps ? gradient_by_adding(&job) : gradient_by_turning(&job);
}

/* ---- the weight's gradient ---- */

/* A convolution that sees the gradient's planes as they are: its patches are the planes, images side by side. */
static wk__conv planes_of_result(const wk__conv *c) {
  wk__conv p = {.type = c->type, .batch = c->batch, .groups = c->groups, .in_channels = c->out_channels};
  for (int d = 0; d < WK__CONV_DIMS; d++) p.kernel[d] = p.stride[d] = p.dilation[d] = p.in[d] = p.out[d] = 1;
  p.in[2] = p.out[2] = wk__conv_count(c->out);
  return p;
}

static wk_status weight_planes(const wk__conv_job *job, int64_t group) {
  const wk__conv *c = job->c;
  sizes s = sizes_of(c);
  wk__conv grad = planes_of_result(c);
  wk__patches by_place = {&grad, part_of(c, job->in, group, c->out_channels, s.places)};
  wk__patches patches = {c, part_of(c, job->weight, group, c->in_channels, s.pixels)};
  wk__gemm_maker make_grad = {wk__patches_by_tap, &by_place};
  wk__gemm_maker make_patches = {wk__patches_by_tap, &patches, .transposed = true};
  wk__gemm g = {.type = c->type, .m = c->out_channels, .n = s.depth, .k = c->batch * s.places, .alpha = 1, .batch = 1};
  g.make_a = &make_grad, g.make_b = &make_patches;
  g.c = (char *)job->out + group * c->out_channels * s.depth * s.element, g.c_row = s.depth;
  return wk__gemm_run(&g);
}

static wk_status weight_pixels(const wk__conv_job *job, int64_t group) {
  const wk__conv *c = job->c;
  sizes s = sizes_of(c);
  wk__patches patches = {c, part_of(c, job->weight, group, c->in_channels, s.pixels)};
  wk__gemm_maker make_patches = {wk__patches_by_place, &patches};
  wk__gemm g = {.type = c->type, .m = c->out_channels, .n = s.depth, .k = c->batch * s.places, .alpha = 1, .batch = 1};
  g.a = part_of(c, job->in, group, c->out_channels, s.places), g.a_row = 1, g.a_column = c->groups * c->out_channels;
  g.make_b = &make_patches;
  g.c = (char *)job->out + group * c->out_channels * s.depth * s.element, g.c_row = s.depth;
  return wk__gemm_run(&g);
}

wk_status wk__conv_weight_gradient(const wk__conv *c, const void *grad, const void *input, void *grad_weight) {
  wk__conv_job job = {c, grad, input, NULL, grad_weight};
  if (wk__conv_is_depthwise(c)) return wk__depthwise_weight_gradient(&job);
  return for_each_group(&job, c->channels_last ? weight_pixels : weight_planes);
}
