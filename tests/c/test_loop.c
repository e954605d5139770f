/* loop/: recorded bodies survive print and parse field by field, the verifier finds each kind of broken nest, and the
 * parser refuses mutated texts with an error. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "loop/loop.h"

static wk__shape_env *env;
static wk__recorder recorder;
static wk__loop_handler *h;
static wk__nest *nest;
static int64_t live_before;

static int set_up(void **state) {
  (void)state;
  wk_error_clear();
  live_before = wk__live_allocations();
  env = wk__shape_env_create();
  wk__shape_env_set_current(env);
  nest = wk__nest_create();
  wk__recorder_init(&recorder, nest);
  h = &recorder.handler;
  return env && nest ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  wk__nest_release(nest);
  wk__shape_env_release(env);
  return wk__live_allocations() == live_before ? 0 : -1;
}

/* ---- Bodies ---- */

static void set_dims(int pointwise, int reduction, const wk_int *sizes) {
  nest->pointwise_dims = (uint8_t)pointwise;
  nest->reduction_dims = (uint8_t)reduction;
  memcpy(nest->sizes, sizes, (size_t)(pointwise + reduction) * sizeof *sizes);
}

static void add_buffer(wk_dtype dtype, int ndim) {
  nest->buffers[nest->buffer_count++] = (wk__nest_buffer){.dtype = (uint8_t)dtype, .ndim = (uint8_t)ndim};
}

static wk__access at(int buffer, int ndim, wk_int a, wk_int b) {
  return (wk__access){.buffer = (uint8_t)buffer, .ndim = (uint8_t)ndim, .index = {a, b}};
}

static wk__access at_row_element(int buffer) { return at(buffer, 2, wk__loop_i(0), wk__loop_r(0)); }

/* (s0_0, s0_1) -> same, over rows. */
static void begin_rows(wk_dtype dtype) {
  set_dims(1, 1, (wk_int[]){wk_int_buffer_size(0, 0), wk_int_buffer_size(0, 1)});
  add_buffer(dtype, 2);
  add_buffer(dtype, 2);
}

static void record_softmax(void) {
  begin_rows(WK_FLOAT32);
  wk__access in = at_row_element(0), out = at_row_element(1);
  wk__var x = wk__k_load(h, &in), e = wk__k_exp(h, wk__k_sub(h, x, wk__k_reduce_max(h, x)));
  wk__k_store(h, &out, wk__k_div(h, e, wk__k_reduce_sum(h, e)));
}

static void record_layer_norm(void) {
  begin_rows(WK_BFLOAT16);
  add_buffer(WK_FLOAT64, 1); /* weight, wider than the rest */
  wk__access in = at_row_element(0), out = at_row_element(1), weight = at(2, 1, wk__loop_r(0), wk_int_of(0));
  wk__var n = wk__k_cast(h, wk__k_index(h, wk_int_buffer_size(0, 1)), WK_FLOAT32), x = wk__k_load(h, &in);
  wk__var d = wk__k_sub(h, x, wk__k_div(h, wk__k_reduce_sum(h, x), n));
  wk__var variance = wk__k_div(h, wk__k_reduce_sum(h, wk__k_mul(h, d, d)), n);
  wk__var scale = wk__k_rsqrt(h, wk__k_add(h, variance, wk__k_constant(h, 1e-5, WK_FLOAT32)));
  wk__var y = wk__k_cast(h, wk__k_mul(h, d, scale), WK_FLOAT64);
  wk__k_store(h, &out, wk__k_round_to(h, wk__k_mul(h, y, wk__k_load(h, &weight)), WK_BFLOAT16));
}

/* out[i0, i1] = where(row is odd, table[row, i1 + 3] + param, -inf), row = index[i0]; counts[row] += True. C leaves the
 * order of arguments open, so that what is compared as text names each value. */
static void record_gather(void) {
  set_dims(2, 0, (wk_int[]){wk_int_buffer_size(1, 0), wk_int_sub(wk_int_buffer_size(0, 1), wk_int_of(3))});
  add_buffer(WK_FLOAT32, 2);
  add_buffer(WK_INT64, 1);
  add_buffer(WK_FLOAT32, 2);
  add_buffer(WK_INT64, 1);
  wk__access in = at(1, 1, wk__loop_i(0), wk_int_of(0)), counts = at(3, 1, wk_int_of(0), wk_int_of(0));
  wk__access table = at(0, 2, wk_int_of(0), wk_int_add(wk__loop_i(1), wk_int_of(3)));
  wk__access out = at(2, 2, wk__loop_i(0), wk__loop_i(1));
  wk__var row = wk__k_check_index(h, wk__k_load(h, &in), wk_int_buffer_size(0, 0));
  table.indirect[0] = counts.indirect[0] = row;
  wk__var value = wk__k_load(h, &table), bias = wk__k_param(h, 1, WK_FLOAT32);
  wk__var sum = wk__k_add(h, value, bias);
  table.index[0] = wk_int_mod(wk__loop_i(0), wk_int_of(2));
  wk__var other = wk__k_load(h, &table), nothing = wk__k_constant(h, NAN, WK_FLOAT32);
  wk__var product = wk__k_fma(h, sum, other, nothing), two = wk__k_constant(h, 2, WK_INT64);
  wk__var rest = wk__k_mod(h, row, two), zero = wk__k_constant(h, 0, WK_INT64);
  wk__var odd = wk__k_logical_not(h, wk__k_eq(h, rest, zero)), least = wk__k_constant(h, -INFINITY, WK_FLOAT32);
  wk__k_store(h, &out, wk__k_where(h, odd, product, least));
  wk__k_store_add(h, &counts, wk__k_cast(h, wk__k_constant(h, 1, WK_BOOL), WK_INT64));
}

static void record_cumsum(void) {
  begin_rows(WK_INT32);
  wk__access in = at_row_element(0), out = at_row_element(1);
  wk__k_store(h, &out, wk__k_scan_sum(h, wk__k_load(h, &in)));
}

/* A 0-dim tensor is a row of one element: per element, though no coordinate says so. */
static void record_row_of_one(void) {
  set_dims(0, 1, (wk_int[]){wk_int_of(1)});
  add_buffer(WK_FLOAT64, 0);
  add_buffer(WK_INT64, 0);
  wk__access in = {.buffer = 0, .per_element = true}, out = {.buffer = 1};
  wk__k_store(h, &out, wk__k_reduce_argmax(h, wk__k_load(h, &in)));
}

static void record_free(void) {
  set_dims(1, 0, (wk_int[]){wk_int_buffer_size(1, 0)});
  nest->geometry_free = true;
  add_buffer(WK_FLOAT16, 1);
  add_buffer(WK_BOOL, 1);
  wk__access in = at(0, 1, wk__loop_i(0), wk_int_of(0)), out = at(1, 1, wk__loop_i(0), wk_int_of(0));
  wk__var x = wk__k_load(h, &in), limit = wk__k_constant(h, 0.1, WK_FLOAT32);
  wk__k_store(h, &out, wk__k_gt(h, x, limit));
}

/* ---- Text ---- */

static void assert_same_access(const wk__access *a, const wk__access *b) {
  assert_int_equal(a->buffer, b->buffer);
  assert_int_equal(a->ndim, b->ndim);
  assert_int_equal(a->per_element, b->per_element);
  assert_int_equal(a->has_indirect, b->has_indirect);
  for (int d = 0; d < a->ndim; d++) {
    assert_true(wk_int_same(a->index[d], b->index[d]));
    assert_int_equal(a->indirect[d], b->indirect[d]);
  }
  assert_int_equal(a->may_leave, b->may_leave);
}

static void assert_same_instr(const wk__instr *a, const wk__instr *b) {
  assert_int_equal(a->op, b->op);
  assert_int_equal(a->dtype, b->dtype);
  assert_int_equal(a->per_element, b->per_element);
  assert_int_equal(a->stage, b->stage);
  assert_int_equal(a->extra, b->extra);
  assert_memory_equal(a->operands, b->operands, sizeof a->operands);
  if (a->op == WK__LOOP_constant) {
    assert_int_equal(a->number.category, b->number.category);
    assert_true(a->number.i == b->number.i);
  }
  if (a->op == WK__LOOP_index || a->op == WK__LOOP_check_index) assert_true(wk_int_same(a->expression, b->expression));
}

static void assert_same_nest(const wk__nest *a, const wk__nest *b) {
  assert_int_equal(a->pointwise_dims, b->pointwise_dims);
  assert_int_equal(a->reduction_dims, b->reduction_dims);
  assert_int_equal(a->geometry_free, b->geometry_free);
  assert_int_equal(a->param_count, b->param_count);
  for (int d = 0; d < a->pointwise_dims + a->reduction_dims; d++) assert_true(wk_int_same(a->sizes[d], b->sizes[d]));
  assert_int_equal(a->buffer_count, b->buffer_count);
  for (int i = 0; i < a->buffer_count; i++) {
    assert_int_equal(a->buffers[i].dtype, b->buffers[i].dtype);
    assert_int_equal(a->buffers[i].ndim, b->buffers[i].ndim);
    assert_int_equal(a->buffers[i].written, b->buffers[i].written);
  }
  assert_int_equal(a->access_count, b->access_count);
  for (int64_t i = 0; i < a->access_count; i++) assert_same_access(&a->accesses[i], &b->accesses[i]);
  assert_int_equal(a->instr_count, b->instr_count);
  for (int64_t v = 1; v < a->instr_count; v++) assert_same_instr(&a->instrs[v], &b->instrs[v]);
}

static char *print(const wk__nest *n) {
  wk__string s = {0};
  wk__nest_print(&s, n);
  char *text = wk__string_take(&s);
  assert_non_null(text);
  return text;
}

static wk__nest *parse(const char *text) {
  wk__nest *n = wk__nest_parse(text);
  if (!n) fail_msg("%s\n%s", wk_error_message(), text);
  return n;
}

static void assert_round_trip(const wk__nest *n) {
  char *text = print(n);
  wk__nest *back = parse(text);
  assert_same_nest(n, back);
  wk__nest_release(back);
  wk__free(text);
}

/* The body in `nest` was recorded without an error, is well formed, and survives. */
static void assert_recorded(void) {
  assert_int_equal(h->status, WK_OK);
  if (wk__nest_verify(nest) != WK_OK) fail_msg("%s", wk_error_message());
  assert_round_trip(nest);
}

static void assert_prints(const char *expected) {
  char *text = print(nest);
  assert_string_equal(text, expected);
  wk__free(text);
}

static const char softmax_text[] =
    "nest (i0 < s0_0; r0 < s0_1)\n"
    "buffer 0: float32[2]\n"
    "buffer 1: float32[2] written\n"
    "%1 = load float32 0[i0, r0]\n"
    "%2 = reduce_max float32 %1\n"
    "%3 = sub float32 %1 %2\n"
    "%4 = exp float32 %3\n"
    "%5 = reduce_sum float32 %4\n"
    "%6 = div float32 %4 %5\n"
    "store 1[i0, r0] %6\n";

static const char gather_text[] =
    "nest (i0 < s1_0, i1 < s0_1 - 3)\n"
    "buffer 0: float32[2]\n"
    "buffer 1: int64[1]\n"
    "buffer 2: float32[2] written\n"
    "buffer 3: int64[1] written\n"
    "params 2\n"
    "%1 = load int64 1[i0]\n"
    "%2 = check_index int64 %1 < s0_0\n"
    "%3 = load float32 0[%2, i1 + 3]\n"
    "%4 = param float32 1\n"
    "%5 = add float32 %3 %4\n"
    "%6 = load float32 0[i0%2 + %2, i1 + 3]\n"
    "%7 = constant float32 nan\n"
    "%8 = fma float32 %5 %6 %7\n"
    "%9 = constant int64 2\n"
    "%10 = mod int64 %2 %9\n"
    "%11 = constant int64 0\n"
    "%12 = eq bool %10 %11\n"
    "%13 = logical_not bool %12\n"
    "%14 = constant float32 -inf\n"
    "%15 = where float32 %13 %8 %14\n"
    "store 2[i0, i1] %15\n"
    "%17 = constant bool True\n"
    "%18 = cast int64 %17\n"
    "store_add 3[%2] %18\n";

static void softmax_is_text(void **state) {
  (void)state;
  record_softmax();
  assert_recorded();
  assert_prints(softmax_text);
}

static const char pad_text[] =
    "nest (i0 < s0_0, i1 < s0_1 + 3)\n"
    "buffer 0: uint8[2]\n"
    "buffer 1: uint8[2] written\n"
    "params 1\n"
    "%1 = param int64 0\n"
    "%2 = masked_load int64 0[i0, i1 - 1 ?] %1\n"
    "store 1[i0, i1] %2\n";

static void record_pad(void) {
  set_dims(2, 0, (wk_int[]){wk_int_buffer_size(0, 0), wk_int_add(wk_int_buffer_size(0, 1), wk_int_of(3))});
  add_buffer(WK_UINT8, 2);
  add_buffer(WK_UINT8, 2);
  wk__access in = at(0, 2, wk__loop_i(0), wk_int_sub(wk__loop_i(1), wk_int_of(1)));
  wk__access out = at(1, 2, wk__loop_i(0), wk__loop_i(1));
  in.may_leave = 2;
  wk__k_store(h, &out, wk__k_masked_load(h, &in, wk__k_param(h, 0, WK_INT64)));
}

static void pad_is_text(void **state) {
  (void)state;
  record_pad();
  assert_recorded();
  assert_prints(pad_text);
}

static void gather_is_text(void **state) {
  (void)state;
  record_gather();
  assert_recorded();
  assert_prints(gather_text);
}

static void layer_norm_is_text(void **state) {
  (void)state;
  record_layer_norm();
  assert_recorded();
}

static void cumsum_is_text(void **state) {
  (void)state;
  record_cumsum();
  assert_recorded();
}

static void row_of_one_is_text(void **state) {
  (void)state;
  record_row_of_one();
  assert_recorded();
  assert_prints(
      "nest (; r0 < 1)\nbuffer 0: float64[0]\nbuffer 1: int64[0] written\n"
      "%1 = load float64 0[] per_element\n%2 = reduce_argmax int64 %1\nstore 1[] %2\n");
}

static void free_nest_is_text(void **state) {
  (void)state;
  record_free();
  assert_recorded();
  assert_prints(
      "nest free (i0 < s1_0)\nbuffer 0: float16[1]\nbuffer 1: bool[1] written\n"
      "%1 = load float32 0[i0]\n%2 = constant float32 0.1\n%3 = gt bool %1 %2\nstore 1[i0] %3\n");
}

static void every_constant_survives(void **state) {
  (void)state;
  static const double values[] = {0.0, -0.0, 0.1, 1e300, 5e-324, INFINITY, -INFINITY, NAN, 0x1.fffffep+127};
  for (size_t i = 0; i < WK_COUNT(values); i++) wk__k_constant(h, values[i], WK_FLOAT64);
  wk__k_constant(h, -0x1p63, WK_INT64);
  wk__var odd_nan = wk__k_constant(h, -1, WK_FLOAT32);
  nest->instrs[odd_nan].number.i = -1;
  assert_recorded();
}

/* What a pass may leave, though a recorder merges it. */
static void equal_instructions_stay_apart(void **state) {
  (void)state;
  wk__nest *n =
      parse("nest ()\n\n  # a comment\n%1 = constant bool False # and one more\r\n%2 = constant bool False\n");
  assert_int_equal(n->instr_count, 3);
  assert_round_trip(n);
  wk__nest_release(n);
}

/* ---- Refused texts ---- */

static void assert_refused(const char *text, const char *reason) {
  wk_error_clear();
  assert_null(wk__nest_parse(text));
  assert_int_equal(wk_error_category(), WK_VALUE_ERROR);
  if (!strstr(wk_error_message(), reason)) fail_msg("'%s' does not say '%s'", wk_error_message(), reason);
}

#define ROWS "nest (i0 < 4; r0 < 5)\nbuffer 0: float32[1]\nbuffer 1: float32[1] written\n%1 = load float32 0[r0]\n"

static void wrong_texts_are_refused(void **state) {
  (void)state;
  assert_refused("", "empty");
  assert_refused("buffer 0: float32[1]\n", "line 1, at 'buffer");
  assert_refused("nest (i1 < 4)\n", "numbered from 0");
  assert_refused("nest (i0 < i0)\n", "loop dim 0: not a size");
  assert_refused("nest (i0 < 4; r0 < 5; r1 < 6)\n", "expected ')'");
  assert_refused("nest (i0 < 4//0)\n", "line 1: ");
  assert_refused("nest (i0 < nothing)\n", "the name of a symbol");
  assert_refused("nest ()\nbuffer 1: float32[1]\n", "buffers numbered");
  assert_refused("nest ()\nbuffer 0: float31[1]\n", "a dtype");
  assert_refused("nest ()\nbuffer 0: complex64[1]\n", "do not compute");
  assert_refused("nest ()\nbuffer 0: float32[17]\n", "a rank");
  assert_refused("nest ()\n%1 = param float32 0\n", "the number of a parameter");
  assert_refused("nest ()\n%1 = constant int64 9223372036854775808\n", "64-bit");
  assert_refused("nest ()\n%1 = constant float32 nan(0x1)\n", "bits of a NaN");
  assert_refused("nest ()\n%1 = index int64 i0\n", "what the nest does not have");
  assert_refused(ROWS "%3 = exp float32 %1\n", "numbered from 1");
  assert_refused(ROWS "%2 = exp float32 %2\n", "a value above");
  assert_refused(ROWS "%2 = exp float32 %1 %1\n", "the end of the line");
  assert_refused(ROWS "%2 = explode float32 %1\n", "an operation");
  assert_refused(ROWS "%2 = store float32 1[r0] %1\n", "an operation that has a result");
  assert_refused(ROWS "%2 = exp float64 %1\n", "the result is not float64");
  assert_refused(ROWS "%2 = bit_not float32 %1\n", "line 5: loop operation bit_not does not take");
  assert_refused(ROWS "%2 = cast float32 %1\n", "another dtype");
  assert_refused(ROWS "%2 = load float32 0[i0 + %1]\n", "not an integer");
  assert_refused(ROWS "%2 = load float32 2[i0]\n", "the number of a buffer");
  assert_refused(ROWS "%2 = load float32 0[i0, r0]\n", "the rank");
  assert_refused(ROWS "store 0[r0] %1\n", "not marked as written");
  assert_refused(ROWS "%2 = reduce_argmax int64 %1\nstore 1[i0] %2\n", "the dtype that the buffer computes in");
}

/* ---- Broken nests: each case spoils one field of a good nest ---- */

enum { X = 1, MAXIMUM, DIFFERENCE, EXP, SUM, QUOTIENT, STORE }; /* of softmax */

static void assert_broken(const char *reason) {
  wk_error_clear();
  assert_int_equal(wk__nest_verify(nest), WK_INTERNAL_ERROR);
  if (!strstr(wk_error_message(), reason)) fail_msg("'%s' does not say '%s'", wk_error_message(), reason);
}

#define ASSERT_BROKEN(lvalue, value, reason)    \
  do {                                          \
    __typeof__(lvalue) good_ = (lvalue);        \
    (lvalue) = (value);                         \
    assert_broken(reason);                      \
    (lvalue) = good_;                           \
    assert_int_equal(wk__nest_verify(nest), 0); \
  } while (0)

static void broken_frames_are_found(void **state) {
  (void)state;
  record_softmax();
  ASSERT_BROKEN(nest->pointwise_dims, 16, "17 dims");
  ASSERT_BROKEN(nest->sizes[1], wk__loop_i(0), "not a size");
  ASSERT_BROKEN(nest->sizes[1], wk_int_of(-1), "not a size");
  ASSERT_BROKEN(nest->sizes[1], WK_INT_POISONED, "not a size");
  ASSERT_BROKEN(nest->sizes[1], wk_int_buffer_size(2, 0), "not a size");
  ASSERT_BROKEN(nest->sizes[1], wk_int_buffer_size(1, 2), "not a size");
  ASSERT_BROKEN(nest->geometry_free, true, "one pointwise dim");
  ASSERT_BROKEN(nest->buffer_count, 25, "25 buffers");
  ASSERT_BROKEN(nest->buffers[0].dtype, WK_COMPLEX64, "do not compute");
  ASSERT_BROKEN(nest->buffers[0].dtype, WK_DTYPE_NONE, "do not compute");
  ASSERT_BROKEN(nest->buffers[0].ndim, 17, "17 dims");
}

static void masks_are_checked(void **state) {
  (void)state;
  record_pad();
  wk__access *load = &nest->accesses[0], *store = &nest->accesses[1];
  ASSERT_BROKEN(load->may_leave, 0, "no coordinate is marked");
  ASSERT_BROKEN(load->may_leave, 6, "no coordinate is marked");
  ASSERT_BROKEN(store->may_leave, 1, "only a masked_load");
  ASSERT_BROKEN(nest->instrs[1].op, WK__LOOP_index, "not a number");
  ASSERT_BROKEN(nest->instrs[2].dtype, WK_FLOAT32, "the dtypes do not agree");
  assert_refused("nest (i0 < 4)\nbuffer 0: float32[1]\n%1 = load float32 0[i0 ?]\n", "only a masked_load");
  assert_refused("nest (i0 < 4)\nbuffer 0: float32[1]\n%1 = masked_load float32 0[i0 ?]\n", "expected '%'");
}

static void broken_instructions_are_found(void **state) {
  (void)state;
  record_softmax();
  wk__instr *instrs = nest->instrs;
  ASSERT_BROKEN(instrs[EXP].op, WK__LOOP_NONE, "no operation");
  ASSERT_BROKEN(instrs[EXP].op, WK__LOOP_COUNT, "no operation");
  ASSERT_BROKEN(instrs[EXP].operands[0], EXP, "not defined");
  ASSERT_BROKEN(instrs[EXP].operands[0], SUM, "not defined");
  ASSERT_BROKEN(instrs[EXP].operands[0], 0, "not defined");
  ASSERT_BROKEN(instrs[EXP].operands[1], X, "too many operands");
  ASSERT_BROKEN(instrs[EXP].dtype, WK_FLOAT64, "dtypes do not agree");
  ASSERT_BROKEN(instrs[EXP].dtype, WK_FLOAT16, "do not compute");
  ASSERT_BROKEN(instrs[EXP].per_element, false, "per_element does not follow");
  ASSERT_BROKEN(instrs[MAXIMUM].per_element, true, "per_element does not follow");
  ASSERT_BROKEN(instrs[EXP].stage, 0, "stage does not follow");
  ASSERT_BROKEN(instrs[SUM].stage, 1, "stage does not follow");
  ASSERT_BROKEN(instrs[EXP].op, WK__LOOP_bit_not, "dtypes do not agree");
  ASSERT_BROKEN(instrs[EXP].op, WK__LOOP_isnan, "dtypes do not agree");
  ASSERT_BROKEN(instrs[MAXIMUM].op, WK__LOOP_reduce_argmin, "dtypes do not agree");
  ASSERT_BROKEN(instrs[QUOTIENT].op, WK__LOOP_lt, "dtypes do not agree");
  ASSERT_BROKEN(instrs[EXP].op, WK__LOOP_cast, "dtypes do not agree");
}

static void broken_accesses_are_found(void **state) {
  (void)state;
  record_softmax();
  wk__access *in = &nest->accesses[0];
  ASSERT_BROKEN(nest->instrs[STORE].extra, 2, "no such access");
  ASSERT_BROKEN(in->buffer, 2, "no such buffer");
  ASSERT_BROKEN(in->ndim, 1, "the rank is not");
  ASSERT_BROKEN(in->per_element, false, "the access is per element");
  ASSERT_BROKEN(in->has_indirect, true, "has_indirect");
  ASSERT_BROKEN(in->index[0], wk__loop_i(1), "does not have");
  ASSERT_BROKEN(in->index[0], wk_int_add(wk__loop_r(1), wk_int_of(1)), "does not have");
  ASSERT_BROKEN(in->index[0], WK_INT_POISONED, "does not have");
  ASSERT_BROKEN(nest->buffers[1].written, false, "not marked as written");
  ASSERT_BROKEN(nest->buffers[1].dtype, WK_FLOAT64, "dtypes do not agree");
  in->has_indirect = true;
  in->indirect[0] = EXP;
  assert_broken("not defined");
}

static void broken_numbers_are_found(void **state) {
  (void)state;
  record_gather();
  wk__instr *instrs = nest->instrs;
  ASSERT_BROKEN(nest->param_count, 1, "no such parameter");
  ASSERT_BROKEN(instrs[7].number.category, WK__INTEGER_KIND, "dtypes do not agree");
  ASSERT_BROKEN(instrs[9].number.category, WK__FLOAT_KIND, "dtypes do not agree");
  ASSERT_BROKEN(instrs[17].number.i, 2, "dtypes do not agree");
  ASSERT_BROKEN(instrs[2].expression, wk__loop_i(0), "not a size");
  ASSERT_BROKEN(instrs[15].operands[0], 8, "dtypes do not agree");
  ASSERT_BROKEN(instrs[18].operands[0], 16, "not defined"); /* a store has no value */
  nest->accesses[1].index[1] = wk_int_of(0);                /* without i1 */
  ASSERT_BROKEN(nest->accesses[1].indirect[0], 0, "has_indirect");
  ASSERT_BROKEN(nest->accesses[1].per_element, true, "has no rows");
}

static void broken_rows_are_found(void **state) {
  (void)state;
  record_row_of_one();
  ASSERT_BROKEN(nest->reduction_dims, 0, "has no rows");
  nest->accesses[0].per_element = nest->instrs[1].per_element = false;
  ASSERT_BROKEN(nest->reduction_dims, 0, "no reduction dims");
}

static void scans_are_per_element(void **state) {
  (void)state;
  record_cumsum();
  assert_true(nest->instrs[2].op == WK__LOOP_scan_sum && nest->instrs[2].per_element);
  ASSERT_BROKEN(nest->instrs[2].per_element, false, "per_element does not follow");
}

static void broken_free_nests_are_found(void **state) {
  (void)state;
  record_free();
  ASSERT_BROKEN(nest->accesses[0].index[0], wk_int_of(0), "free of geometry");
  wk__k_index(h, wk__loop_i(0));
  assert_broken("free of geometry");
}

static void deep_reductions_are_refused(void **state) {
  (void)state;
  begin_rows(WK_FLOAT32);
  wk__access in = at_row_element(0);
  wk__var x = wk__k_load(h, &in);
  for (int i = 0; i < UINT8_MAX; i++) x = wk__k_reduce_sum(h, x);
  assert_int_equal(wk__nest_verify(nest), WK_OK);
  wk__k_reduce_sum(h, x);
  assert_broken("stage does not follow");
}

/* ---- Mutated texts ---- */

static uint64_t random_state = 88172645463325252u;

static int random_below(int n) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (int)(random_state % (uint64_t)n);
}

/* Puts `count` bytes from somewhere in the text, or made up, in the place of `removed` bytes. */
static void mutate(char *text, int capacity) {
  static const char *const pieces[] = {"%",     "+ %",  "0",           "99999999999", "(",    ")",  "[",
                                       "]",     ",",    ";",           "\n",          "i0",   "r1", "reduce_sum",
                                       "int64", "nan(", "per_element", "//0",         "\xff", "#",  "store"};
  int length = (int)strlen(text), from = random_below(length + 1), at_byte = random_below(length + 1);
  int removed = random_below(4), count = random_below(6);
  char copy[64];
  const char *made_up = pieces[random_below((int)WK_COUNT(pieces))];
  snprintf(copy, sizeof copy, "%.*s", count, random_below(2) ? text + from : made_up);
  if (random_below(8) == 0) snprintf(copy, sizeof copy, "%s", made_up);
  if (at_byte + removed > length) removed = length - at_byte;
  int added = (int)strlen(copy);
  if (length + added >= capacity) return;
  memmove(text + at_byte + added, text + at_byte + removed, (size_t)(length - at_byte - removed) + 1);
  memcpy(text + at_byte, copy, (size_t)added);
}

/* Refused with a reason, or else a good nest that survives. */
static bool check_mutated(const char *text) {
  wk_error_clear();
  wk__nest *n = wk__nest_parse(text);
  if (!n) {
    assert_int_equal(wk_error_category(), WK_VALUE_ERROR);
    assert_int_equal(strncmp(wk_error_message(), "loop nest", 9), 0);
    return false;
  }
  assert_int_equal(wk__nest_verify(n), WK_OK);
  assert_round_trip(n);
  wk__nest_release(n);
  return true;
}

static void mutated_texts_never_crash(void **state) {
  (void)state;
  const char *const texts[] = {softmax_text, gather_text};
  int accepted = 0, refused = 0;
  for (int round = 0; round < 20000; round++) {
    char text[2048];
    snprintf(text, sizeof text, "%s", texts[round % 2]);
    for (int n = 1 + random_below(3); n > 0; n--) mutate(text, sizeof text);
    ++*(check_mutated(text) ? &accepted : &refused);
  }
  if (accepted < 200 || refused < 10000) fail_msg("%d accepted, %d refused: hardly a test", accepted, refused);
}

static void cut_texts_never_crash(void **state) {
  (void)state;
  char text[sizeof gather_text];
  for (size_t n = 0; n < sizeof gather_text; n++) {
    snprintf(text, n + 1, "%s", gather_text);
    check_mutated(text);
  }
}

/* Every allocation of print and parse fails once: an error each time, and nothing is lost. */
static void failed_allocations_are_errors(void **state) {
  (void)state;
  for (int64_t n = 1; n < 200; n++) {
    int64_t live = wk__live_allocations();
    wk_error_clear();
    wk__fault_arm(n);
    wk__nest *back = wk__nest_parse(softmax_text);
    wk__string s = {0};
    if (back) wk__nest_print(&s, back);
    char *text = wk__string_take(&s);
    wk__fault_arm(0);
    bool done = back && text && wk_error_category() == WK_OK;
    assert_true(done || wk_error_category() == WK_OUT_OF_MEMORY);
    wk__nest_release(back);
    wk__free(text);
    assert_int_equal(wk__live_allocations(), live);
    if (done) return;
  }
  fail_msg("parsing never succeeded");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(softmax_is_text),
      TEST(layer_norm_is_text),
      TEST(pad_is_text),
      TEST(masks_are_checked),
      TEST(gather_is_text),
      TEST(cumsum_is_text),
      TEST(row_of_one_is_text),
      TEST(free_nest_is_text),
      TEST(every_constant_survives),
      TEST(equal_instructions_stay_apart),
      TEST(wrong_texts_are_refused),
      TEST(broken_frames_are_found),
      TEST(broken_instructions_are_found),
      TEST(broken_accesses_are_found),
      TEST(broken_numbers_are_found),
      TEST(broken_rows_are_found),
      TEST(scans_are_per_element),
      TEST(broken_free_nests_are_found),
      TEST(deep_reductions_are_refused),
      TEST(mutated_texts_never_crash),
      TEST(cut_texts_never_crash),
      TEST(failed_allocations_are_errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
