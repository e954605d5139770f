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
#include "cpu/conv/onednn.h"
#include "cpu/conv/patches.h"
#include "cpu/conv/winograd.h"
#include "cpu/gemm/gemm_ways.h"

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

/* ---- forward, planes ---- */

/* What is left to do with a part of the product: the bias of its rows, moving it where images' places are folded into
 * columns, and else what comes after. */
typedef struct finish {
  const wk__conv *c;
  const wk__conv_job *job;
  int64_t first_row; /* of the group */
  const char *bias;  /* of the group, or NULL */
  char *out;         /* of the group, or NULL: it is in place */
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
  wk__conv_sizes s = wk__conv_sizes_of(f->c);
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
  for (int64_t i = 0; i < t->rows && (f->bias || f->out); i++)
    finish_row(f, (const char *)t->c + i * step, t->row + i, t->column, t->columns);
  if (!f->out)
    wk__conv_finish(f->job, (wk__conv_piece){t->batch, f->first_row + t->row, t->column, t->rows, t->columns});
}

/* Of a group whose images were folded, image by image. */
static void finish_images(void *context, int64_t begin, int64_t end) {
  const finish *f = context;
  for (int64_t i = begin; i < end; i++)
    wk__conv_finish(f->job, (wk__conv_piece){i, f->first_row, 0, f->c->out_channels, wk__conv_count(f->c->out)});
}

/* Few places fill no panel, and each image would go past all of a large weight: images side by side do. */
static bool folds_images(const wk__conv *c) {
  return c->batch > 1 && wk__conv_count(c->out) <= FOLD_MOST_PLACES && c->out_channels >= FOLD_LEAST_CHANNELS;
}

static wk_status forward_planes(const wk__conv_job *job, int64_t group) {
  const wk__conv *c = job->c;
  wk__conv_sizes s = wk__conv_sizes_of(c);
  wk__patches patches = {c, wk__conv_part(c, job->in, group, c->in_channels, s.pixels)};
  wk__gemm_maker maker = {wk__patches_by_tap, &patches, .batch_rows = s.depth};
  finish f = {.c = c, .job = job, .first_row = group * c->out_channels};
  if (job->bias) f.bias = (const char *)job->bias + group * c->out_channels * s.element;
  wk__gemm g = {.type = c->type, .m = c->out_channels, .n = s.places, .k = s.depth, .alpha = 1, .batch = c->batch};
  g.a = (const char *)job->weight + group * c->out_channels * s.depth * s.element;
  g.a_row = job->weight_turned ? 1 : s.depth, g.a_column = job->weight_turned ? c->out_channels : 1;
  g.c = wk__conv_part(c, job->out, group, c->out_channels, s.places);
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
  if (f.bias || f.out || job->after) g.epilogue = finish_tile, g.epilogue_context = &f;
  wk_status status = wk__gemm_run(&g);
  wk__free(folded);
  if (status == WK_OK && folded && job->after) wk__parallel_for(c->batch, 1, finish_images, &f);
  return status;
}

/* ---- forward, channels last ---- */

static void finish_pixels(void *context, const wk__gemm_tile *t) {
  const finish *f = context;
  wk__conv_finish(f->job, (wk__conv_piece){0, t->row, f->first_row + t->column, t->rows, t->columns});
}

static wk_status forward_pixels(const wk__conv_job *job, int64_t group) {
  const wk__conv *c = job->c;
  wk__conv_sizes s = wk__conv_sizes_of(c);
  wk__patches patches = {c, wk__conv_part(c, job->in, group, c->in_channels, s.pixels)};
  wk__gemm_maker maker = {.make = wk__patches_by_place, .context = &patches};
  wk__gemm g = {.type = c->type, .m = c->batch * s.places, .n = c->out_channels, .k = s.depth, .alpha = 1, .batch = 1};
  g.b = (const char *)job->weight + group * c->out_channels * s.depth * s.element;
  g.b_row = job->weight_turned ? c->out_channels : 1, g.b_column = job->weight_turned ? 1 : s.depth;
  g.c = wk__conv_part(c, job->out, group, c->out_channels, s.places), g.c_row = c->groups * c->out_channels;
  if (job->bias) g.row = (const char *)job->bias + group * c->out_channels * s.element;
  finish f = {.c = c, .job = job, .first_row = group * c->out_channels};
  if (job->after) g.epilogue = finish_pixels, g.epilogue_context = &f;
  if (wk__conv_is_plain(c)) {
    g.a = patches.image, g.a_row = c->groups * c->in_channels, g.a_column = 1;
  } else {
    g.make_a = &maker;
  }
  return wk__gemm_run(&g);
}

/* ---- forward ---- */

/* An image of one pixel has its channels side by side either way: as rows of a matrix they fill vectors. */
static wk_status forward_rows(const wk__conv_job *job) {
  wk__conv c = *job->c;
  wk__conv_job rows = *job;
  c.channels_last = true;
  rows.c = &c;
  return for_each_group(&rows, forward_pixels);
}

wk_status wk__conv_forward_as_usual(const wk__conv_job *job) {
  const wk__conv *c = job->c;
  if (wk__conv_is_depthwise(c)) return wk__depthwise_forward(job);
  if (wk__conv_is_plain(c) && wk__conv_count(c->in) == 1 && !job->after) return forward_rows(job);
  return for_each_group(job, c->channels_last ? forward_pixels : forward_planes);
}

/* ---- other ways ---- */

enum { WINOGRAD_CHANNELS = 8, MOST_WAYS = 3 }; /* of fewer channels the transforms cost more than they save */

static bool run_way(void *context, wk__gemm_way way) {
  const wk__conv_job *j = context;
  if (way.library) return wk__conv_onednn_forward(j->c, j->in, j->weight, j->bias, j->out);
  if (way.winograd) return wk__conv_winograd_forward(j->c, way.winograd, j->in, j->weight, j->bias, j->out) == WK_OK;
  return wk__conv_forward_as_usual(j) == WK_OK;
}

static int list_ways(const wk__conv *c, wk__gemm_way *ways) {
  int count = 0;
  if (wk__conv_winograd_takes(c) && wk__min(c->in_channels, c->out_channels) >= WINOGRAD_CHANNELS) {
    ways[count++] = (wk__gemm_way){.winograd = 4};
    ways[count++] = (wk__gemm_way){.winograd = 2};
  }
  if (wk__conv_onednn_takes(c)) ways[count++] = (wk__gemm_way){.library = true};
  return count;
}

/* The result is written several times where it is timed. */
static wk__gemm_way choose_way(const wk__conv_job *job) {
  const wk__conv *c = job->c;
  wk__gemm_way ways[MOST_WAYS];
  wk__conv_job alone = *job;
  uint64_t hash = wk__hash_mix(c->groups > 1 ? (uint64_t)c->groups : 0, (uint64_t)c->channels_last);
  int count = list_ways(c, ways);
  for (int d = 0; d < WK__CONV_DIMS; d++) {
    hash = wk__hash_mix(wk__hash_mix(hash, (uint64_t)c->in[d]), (uint64_t)c->kernel[d]);
    hash = wk__hash_mix(wk__hash_mix(hash, (uint64_t)c->stride[d]), (uint64_t)c->dilation[d]);
    hash = wk__hash_mix(hash, (uint64_t)c->padding[d]);
  }
  alone.after = NULL;
  wk__gemm_known sizes = {.m = c->out_channels, .n = wk__conv_count(c->out), .k = wk__conv_sizes_of(c).depth};
  sizes.batch = c->batch * c->groups, sizes.type = (uint8_t)c->type, sizes.convolution = (uint32_t)hash | 1;
  return wk__gemm_choose_convolution(&sizes, ways, count, run_way, &alone);
}

static void finish_image(void *context, int64_t begin, int64_t end) {
  const wk__conv_job *j = context;
  int64_t channels = j->c->groups * j->c->out_channels, places = wk__conv_count(j->c->out);
  for (int64_t i = begin; i < end; i++)
    wk__conv_finish(j, j->c->channels_last ? (wk__conv_piece){0, i * places, 0, places, channels}
                                           : (wk__conv_piece){i, 0, 0, channels, places});
}

/* False: as usual, and also where there is too little memory for it. */
static bool run_otherwise(wk__conv_job *job) {
  wk__gemm_way way = choose_way(job);
  if (!wk__gemm_sums_otherwise(way)) return false;
  if (!run_way(job, way)) {
    wk_error_clear();
    return false;
  }
  if (job->after) wk__parallel_for(job->c->batch, 1, finish_image, job);
  return true;
}

wk_status wk__conv_forward(const wk__conv *c, const void *input, const void *weight, const void *bias, void *output,
                           const wk__conv_after *after_or_null) {
  wk__conv_job job = {c, input, weight, bias, output, after_or_null, false};
  if (WK_UNLIKELY(wk__thread.gemm_other_sums) && run_otherwise(&job)) return WK_OK;
  return wk__conv_forward_as_usual(&job);
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
  wk__conv_sizes s = wk__conv_sizes_of(c);
  wk__conv grad = planes_of_result(c);
  wk__patches by_place = {&grad, wk__conv_part(c, job->in, group, c->out_channels, s.places)};
  wk__patches patches = {c, wk__conv_part(c, job->weight, group, c->in_channels, s.pixels)};
  wk__gemm_maker make_grad = {.make = wk__patches_by_tap, .context = &by_place};
  wk__gemm_maker make_patches = {wk__patches_by_tap, &patches, .transposed = true};
  wk__gemm g = {.type = c->type, .m = c->out_channels, .n = s.depth, .k = c->batch * s.places, .alpha = 1, .batch = 1};
  g.make_a = &make_grad, g.make_b = &make_patches;
  g.c = (char *)job->out + group * c->out_channels * s.depth * s.element, g.c_row = s.depth;
  return wk__gemm_run(&g);
}

static wk_status weight_pixels(const wk__conv_job *job, int64_t group) {
  const wk__conv *c = job->c;
  wk__conv_sizes s = wk__conv_sizes_of(c);
  wk__patches patches = {c, wk__conv_part(c, job->weight, group, c->in_channels, s.pixels)};
  wk__gemm_maker make_patches = {.make = wk__patches_by_place, .context = &patches};
  wk__gemm g = {.type = c->type, .m = c->out_channels, .n = s.depth, .k = c->batch * s.places, .alpha = 1, .batch = 1};
  g.a = wk__conv_part(c, job->in, group, c->out_channels, s.places), g.a_row = 1,
  g.a_column = c->groups * c->out_channels;
  if (wk__conv_is_plain(c)) {
    g.b = patches.image, g.b_row = c->groups * c->in_channels, g.b_column = 1;
  } else {
    g.make_b = &make_patches;
  }
  g.c = (char *)job->out + group * c->out_channels * s.depth * s.element, g.c_row = s.depth;
  return wk__gemm_run_in(&g, (wk__gemm_way){.packs = WK__GEMM_PACKS_A}); /* its rows are pixels apart */
}

wk_status wk__conv_weight_gradient(const wk__conv *c, const void *grad, const void *input, void *grad_weight) {
  wk__conv_job job = {c, grad, input, NULL, grad_weight, NULL, false};
  if (wk__conv_is_depthwise(c)) return wk__depthwise_weight_gradient(&job);
  return for_each_group(&job, c->channels_last ? weight_pixels : weight_planes);
}
