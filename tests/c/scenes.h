/* What the tests of the tiers share: arrays with any layout, scenes (a nest, its program, its arrays), the nests that
 * several tests run, and random bodies. Included by one file of a program. */
#ifndef WICK_TESTS_SCENES_H
#define WICK_TESTS_SCENES_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cpu/tier0/program.h"

#define UNUSED __attribute__((unused))

/* ---- random numbers ---- */

UNUSED static uint64_t seed = 88172645463325252u;

UNUSED static uint64_t next_random(void) { /* xorshift64 */
  seed ^= seed << 13;
  seed ^= seed >> 7;
  return seed ^= seed << 17;
}
UNUSED static int64_t below(int64_t n) { return (int64_t)(next_random() % (uint64_t)n); }

/* ---- arrays ---- */

typedef struct array {
  wk_dtype dtype;
  int ndim;
  int64_t sizes[WK_MAX_DIMS], strides[WK_MAX_DIMS];
  int64_t bytes; /* allocated */
  char *data;
} array;

UNUSED static int64_t item(const array *a) { return wk__dtypes[a->dtype].size; }

/* Random elements, all of them valid ones; equal values and zeros of both signs; NaN and infinity in one array of
 * eight, because they hide everything that they are added to. */
UNUSED static void fill(array *a) {
  bool wild = below(8) == 0;
  for (int64_t i = 0; i < a->bytes / item(a); i++) {
    int64_t r = below(1000);
    wk__scalar s = {WK__FLOAT_KIND, .d = ((double)below(20001) - 10000) / 3000}; /* sums round */
    if (r == 0 && wild) s.d = NAN;
    if (r == 1 && wild) s.d = INFINITY;
    if (r < 20 && r > 1) s.d = (double)(r % 3) - 1;
    if (r == 20) s.d = -0.0;
    if (wk__dtype_category(a->dtype) != WK__FLOAT_KIND) s = (wk__scalar){WK__INTEGER_KIND, .i = below(7) - 3};
    wk__element_set(a->data + i * item(a), a->dtype, s);
  }
}

/* Dims laid out with `order[0]` outermost, `gap` elements more than needed along each. */
UNUSED static array make_array(wk_dtype dtype, int ndim, const int64_t *sizes, const int *order, int64_t gap) {
  array a = {.dtype = dtype, .ndim = ndim};
  int64_t reach = 1;
  memcpy(a.sizes, sizes, (size_t)ndim * sizeof *sizes);
  for (int k = ndim - 1; k >= 0; k--) {
    int d = order ? order[k] : k;
    a.strides[d] = reach;
    reach *= wk__max(sizes[d], 1) + gap;
  }
  a.bytes = reach * item(&a);
  a.data = malloc((size_t)a.bytes);
  fill(&a);
  return a;
}

UNUSED static array plain(wk_dtype dtype, int ndim, const int64_t *sizes) {
  return make_array(dtype, ndim, sizes, NULL, 0);
}
UNUSED static array vector(wk_dtype dtype, int64_t n) { return plain(dtype, 1, &n); }

UNUSED static bool same_element(const char *a, const char *b, wk_dtype dtype) {
  if (memcmp(a, b, wk__dtypes[dtype].size) == 0) return true;
  return wk_dtype_is_floating(dtype) && isnan(wk__element_get(a, dtype).d) && isnan(wk__element_get(b, dtype).d);
}

/* ---- running a nest and its reference ---- */

enum { MAX_ARRAYS = 12 };

typedef struct scene {
  wk__nest *nest;
  wk__program *program;
  array arrays[MAX_ARRAYS]; /* one a buffer */
  int alias[MAX_ARRAYS];    /* 1 + the earlier buffer whose memory this one has; 0: its own */
  wk__scalar params[4];
  const int64_t *sizes; /* of a geometry-free nest */
  int ndim;
} scene;

UNUSED static wk__launch launch_of(const scene *s) {
  wk__launch l = {.params = s->params, .ndim = s->ndim, .sizes = s->sizes};
  for (int b = 0; b < s->nest->buffer_count; b++)
    l.buffers[b] = (wk__launch_buffer){s->arrays[b].data, s->ndim ? NULL : s->arrays[b].sizes, s->arrays[b].strides};
  return l;
}

UNUSED static void start_scene(scene *s, const char *text) {
  *s = (scene){.nest = wk__nest_parse(text)};
  if (!s->nest) fail_msg("%s\n%s", wk_error_message(), text);
  s->program = wk__program_create(s->nest);
  if (!s->program) fail_msg("%s\n%s", wk_error_message(), text);
}

UNUSED static void clear_arrays(scene *s) {
  for (int b = 0; b < MAX_ARRAYS; b++)
    if (!s->alias[b]) free(s->arrays[b].data);
  memset(s->arrays, 0, sizeof s->arrays);
  memset(s->alias, 0, sizeof s->alias);
}

UNUSED static void end_scene(scene *s) {
  clear_arrays(s);
  wk__program_release(s->program);
  wk__nest_release(s->nest);
}

UNUSED static void save(const scene *s, char **copies) {
  for (int b = 0; b < s->nest->buffer_count; b++) {
    copies[b] = malloc((size_t)s->arrays[b].bytes);
    memcpy(copies[b], s->arrays[b].data, (size_t)s->arrays[b].bytes);
  }
}
UNUSED static void restore(scene *s, char *const *copies) {
  for (int b = 0; b < s->nest->buffer_count; b++) memcpy(s->arrays[b].data, copies[b], (size_t)s->arrays[b].bytes);
}
UNUSED static void drop(const scene *s, char **copies) {
  for (int b = 0; b < s->nest->buffer_count; b++) free(copies[b]);
}

/* Products of many numbers end in 0 or infinity at once, which hides their order: these stay near one. */
UNUSED static void fill_near_one(array *a) {
  for (int64_t i = 0; i < a->bytes / item(a); i++)
    wk__element_set(
        a->data + i * item(a), a->dtype,
        wk_dtype_is_floating(a->dtype)
            ? (wk__scalar){WK__FLOAT_KIND, .d = (below(2) ? 1 : -1) * (1 + ((double)below(2001) - 1000) / 65536)}
            : (wk__scalar){WK__INTEGER_KIND, .i = 2 * below(5) - 3});
}

UNUSED static void fill_indices(array *a, int64_t size) {
  for (int64_t i = 0; i < a->bytes / 8; i++) ((int64_t *)a->data)[i] = below(2 * size) - size;
}

/* ---- nests that several tests run ---- */

UNUSED static const char softmax_text[] =
    "nest (i0 < s0_0; r0 < s0_1)\nbuffer 0: float32[2]\nbuffer 1: float32[2] written\n"
    "%1 = load float32 0[i0, r0]\n%2 = reduce_max float32 %1\n%3 = sub float32 %1 %2\n%4 = exp float32 %3\n"
    "%5 = reduce_sum float32 %4\n%6 = div float32 %4 %5\nstore 1[i0, r0] %6\n";

/* bf16 rows, weight and bias along the row, mean and 1/std a row, all stored. */
UNUSED static const char layer_norm_text[] =
    "nest (i0 < s0_0; r0 < s0_1)\nbuffer 0: bfloat16[2]\nbuffer 1: float32[1]\nbuffer 2: float32[1]\n"
    "buffer 3: bfloat16[2] written\nbuffer 4: float32[1] written\nbuffer 5: float32[1] written\nparams 1\n"
    "%1 = load float32 0[i0, r0]\n%2 = index int64 s0_1\n%3 = cast float32 %2\n%4 = reduce_sum float32 %1\n"
    "%5 = div float32 %4 %3\n%6 = sub float32 %1 %5\n%7 = mul float32 %6 %6\n%8 = reduce_sum float32 %7\n"
    "%9 = div float32 %8 %3\n%10 = param float32 0\n%11 = add float32 %9 %10\n%12 = rsqrt float32 %11\n"
    "%13 = mul float32 %6 %12\n%14 = load float32 1[r0]\n%15 = mul float32 %13 %14\n%16 = load float32 2[r0]\n"
    "%17 = add float32 %15 %16\nstore 3[i0, r0] %17\nstore 4[i0] %5\nstore 5[i0] %12\n";

/* Around one block, one chunk, and the longest row whose values are kept. */
static const int64_t phase_shapes[][2] = {{1, 1},    {50, 3},   {7, 64},   {3, 1000},  {2, 1024},  {2, 1025},
                                          {3, 2000}, {2, 4097}, {1, 9000}, {1, 65536}, {1, 65537}, {1, 150000}};

UNUSED static const char add_text[] =
    "nest free (i0 < s2_0)\nbuffer 0: float32[1]\nbuffer 1: float32[1]\nbuffer 2: float32[1] written\nparams 1\n"
    "%1 = load float32 0[i0]\n%2 = load float32 1[i0]\n%3 = param float32 0\n%4 = mul float32 %2 %3\n"
    "%5 = add float32 %1 %4\nstore 2[i0] %5\n";

UNUSED static void shuffle(int *order, int n) {
  for (int k = 0; k < n; k++) order[k] = k;
  for (int k = n - 1; k > 0; k--) {
    int j = (int)below(k + 1), swap = order[k];
    order[k] = order[j];
    order[j] = swap;
  }
}

UNUSED static array random_layout(wk_dtype dtype, int ndim, const int64_t *sizes, bool may_broadcast) {
  int order[WK_MAX_DIMS] = {0};
  for (int k = 0; k < ndim; k++) order[k] = k;
  if (below(2)) shuffle(order, ndim);
  array a = make_array(dtype, ndim, sizes, order, below(3) == 0 ? 1 + below(2) : 0);
  for (int d = 0; may_broadcast && d < ndim; d++)
    if (below(5) == 0) a.strides[d] = 0;
  return a;
}

/* ---- random bodies over random shapes ---- */

typedef struct generator {
  wk__loop_handler *h;
  wk__var pool[96];
  int count;
  bool rows; /* the nest has reduction dims */
} generator;

UNUSED static wk__var pick(const generator *g, wk_dtype dtype) {
  wk__var candidates[96];
  int n = 0;
  for (int k = 0; k < g->count; k++)
    if (wk__k_dtype(g->h, g->pool[k]) == dtype) candidates[n++] = g->pool[k];
  if (n) return candidates[below(3) ? n - 1 - below(wk__min(n, 4)) : below(n)];
  return wk__k_cast(g->h, g->pool[below(g->count)], dtype);
}

UNUSED static void put(generator *g, wk__var value) {
  if (value && g->count < (int)WK_COUNT(g->pool)) g->pool[g->count++] = value;
}

UNUSED static wk__var random_operation(generator *g) {
  static const wk_dtype computes[] = {WK_FLOAT32, WK_FLOAT32, WK_FLOAT64, WK_INT64, WK_BOOL};
  static const wk__loop_op on_floats[] = {WK__LOOP_neg,  WK__LOOP_abs,   WK__LOOP_sign, WK__LOOP_floor, WK__LOOP_round,
                                          WK__LOOP_sqrt, WK__LOOP_exp,   WK__LOOP_tanh, WK__LOOP_sin,   WK__LOOP_add,
                                          WK__LOOP_sub,  WK__LOOP_mul,   WK__LOOP_div,  WK__LOOP_max,   WK__LOOP_min,
                                          WK__LOOP_fmod, WK__LOOP_mod,   WK__LOOP_pow,  WK__LOOP_lt,    WK__LOOP_eq,
                                          WK__LOOP_ge,   WK__LOOP_isnan, WK__LOOP_fma,  WK__LOOP_where};
  static const wk__loop_op on_integers[] = {
      WK__LOOP_neg, WK__LOOP_abs,   WK__LOOP_bit_not,    WK__LOOP_add,        WK__LOOP_sub, WK__LOOP_mul,
      WK__LOOP_max, WK__LOOP_min,   WK__LOOP_bit_and,    WK__LOOP_bit_xor,    WK__LOOP_lt,  WK__LOOP_eq,
      WK__LOOP_pow, WK__LOOP_where, WK__LOOP_shift_left, WK__LOOP_shift_right};
  static const wk__loop_op on_bools[] = {WK__LOOP_logical_not, WK__LOOP_bit_and,     WK__LOOP_bit_or, WK__LOOP_bit_xor,
                                         WK__LOOP_shift_left,  WK__LOOP_shift_right, WK__LOOP_where};
  static const wk__loop_op along_rows[] = {WK__LOOP_reduce_sum,    WK__LOOP_reduce_max, WK__LOOP_reduce_min,
                                           WK__LOOP_reduce_argmax, WK__LOOP_scan_sum,   WK__LOOP_reduce_prod};
  wk_dtype dtype = computes[below(WK_COUNT(computes))];
  wk__var a = pick(g, dtype);
  if (below(12) == 0 && dtype == WK_FLOAT32) return wk__k_round_to(g->h, a, below(2) ? WK_BFLOAT16 : WK_FLOAT16);
  if (g->rows && below(6) == 0) {
    wk__loop_op op = along_rows[below(WK_COUNT(along_rows))];
    if (dtype == WK_BOOL) op = WK__LOOP_reduce_max;
    return wk__k_op(g->h, op, a, 0, 0);
  }
  wk__loop_op op = dtype == WK_BOOL    ? on_bools[below(WK_COUNT(on_bools))]
                   : dtype == WK_INT64 ? on_integers[below(WK_COUNT(on_integers))]
                                       : on_floats[below(WK_COUNT(on_floats))];
  int arity = wk__loop_ops[op].arity;
  if (op == WK__LOOP_where) return wk__k_op(g->h, op, pick(g, WK_BOOL), a, pick(g, dtype));
  return wk__k_op(g->h, op, a, arity > 1 ? pick(g, dtype) : 0, arity > 2 ? pick(g, dtype) : 0);
}

/* Dims p + r; each buffer is over some of them, in any order. Coordinates are loop variables or zero. */
UNUSED static wk__access random_access(const wk__nest *nest, int buffer) {
  wk__access a = {.buffer = (uint8_t)buffer, .ndim = (uint8_t)(nest->pointwise_dims + nest->reduction_dims)};
  for (int d = 0; d < a.ndim; d++)
    a.index[d] = d < nest->pointwise_dims ? wk__loop_i(d) : wk__loop_r(d - nest->pointwise_dims);
  return a;
}

/* A load of a window: coordinates that go beside the buffer here and there. */
UNUSED static wk__var random_window(generator *g, const wk__nest *nest, int buffer) {
  static const int64_t steps[] = {1, 1, 2, -1, 0};
  wk__access a = random_access(nest, buffer);
  for (int d = 0; d < a.ndim; d++) {
    if (below(2)) continue;
    wk_int along = wk_int_mul(wk_int_of(steps[below(WK_COUNT(steps))]), a.index[d]);
    if (below(3) == 0) along = wk_int_add(along, random_access(nest, buffer).index[below(a.ndim)]);
    a.index[d] = wk_int_add(along, wk_int_of((int64_t)below(9) - 4));
    a.may_leave |= (uint16_t)(1u << d);
  }
  if (!a.may_leave) return wk__k_load(g->h, &a);
  wk_dtype compute = (wk_dtype)wk__dtypes[nest->buffers[buffer].dtype].compute;
  return wk__k_masked_load(g->h, &a, wk__k_constant(g->h, below(2) ? 0 : (double)below(9) + 1.3, compute));
}

UNUSED static void random_stores(generator *g, wk__nest *nest, int first_output) {
  for (int b = first_output; b < nest->buffer_count; b++) {
    wk__var value = g->pool[g->count - 1 - below(wk__min(g->count, 6))];
    wk__access a = random_access(nest, b);
    /* A row's result, in a buffer whose reduction dims have size one. */
    if (g->rows && !g->h->get(g->h, value)->per_element && below(2))
      for (int d = nest->pointwise_dims; d < a.ndim; d++) a.index[d] = wk_int_of(0);
    wk__k_store(g->h, &a, value);
  }
}

UNUSED static void random_nest(wk__nest *nest, int p, int r, const int64_t *sizes) {
  static const wk_dtype dtypes[] = {WK_FLOAT32, WK_FLOAT32, WK_FLOAT64, WK_BFLOAT16, WK_FLOAT16,
                                    WK_INT64,   WK_INT32,   WK_UINT8,   WK_BOOL};
  wk__recorder recorder;
  generator g = {.rows = r > 0};
  int inputs = 1 + (int)below(3), outputs = 1 + (int)below(3);
  nest->pointwise_dims = (uint8_t)p;
  nest->reduction_dims = (uint8_t)r;
  for (int d = 0; d < p + r; d++) nest->sizes[d] = wk_int_of(sizes[d]);
  for (int b = 0; b < inputs + outputs; b++)
    nest->buffers[nest->buffer_count++] =
        (wk__nest_buffer){.dtype = (uint8_t)dtypes[below(WK_COUNT(dtypes))], .ndim = (uint8_t)(p + r)};
  wk__recorder_init(&recorder, nest);
  g.h = &recorder.handler;
  for (int b = 0; b < inputs; b++) {
    wk__access a = random_access(nest, b);
    for (int d = 0; d < p + r; d++)
      if (!nest->geometry_free && below(6) == 0) a.index[d] = wk_int_of(0); /* broadcast: also makes values per row */
    put(&g, !nest->geometry_free && below(3) == 0 ? random_window(&g, nest, b) : wk__k_load(g.h, &a));
  }
  put(&g, wk__k_constant(g.h, (double)below(5) - 1.5, WK_FLOAT32));
  if (p + r && !nest->geometry_free) put(&g, wk__k_index(g.h, random_access(nest, 0).index[below(p + r)]));
  int operations = 20 + (int)below(11);
  for (int k = 0; k < operations; k++) put(&g, random_operation(&g));
  random_stores(&g, nest, inputs);
  assert_int_equal(recorder.handler.status, WK_OK);
}

/* Few elements in all, with sizes around one block and one chunk among them. */
UNUSED static void random_sizes(int dims, int64_t *sizes) {
  static const int64_t special[] = {1, 1, 0, 2, 127, 129, 1030, 1024, 4100};
  for (int d = 0; d < dims; d++) {
    sizes[d] = 1 + below(9);
    if (below(4) == 0) sizes[d] = special[below(WK_COUNT(special))];
  }
  for (int64_t total = 1, d = 0; d < dims; d++)
    if ((total *= wk__max(sizes[d], 1)) > 20000) sizes[d] = 1, total /= 100;
}

#endif
