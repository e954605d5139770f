/* ops/: schemas of every row, the calling convention, in-place and out= forms, scopes, the plan cache, device meta,
 * shape rules on symbolic sizes, and calls in which each allocation fails once. Values of operators: tests/ops/. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cpu/memory.h"
#include "ops/internal.h"
#include "ops/plan.h"
#include "symbolic_sizes.h"
#include "wick/wick.h"

static wk_int k(int64_t value) { return wk_int_of(value); }
static wk_value tensor(wk_tensor *t) { return wk__v_tensor(t); }
static wk_value number(double d) { return wk__v_double(d); }
static wk_value integer(int64_t i) { return wk__v_int(i); }

static void assert_error(wk_status category, const char *text) {
  assert_int_equal(wk_error_category(), category);
  if (!strstr(wk_error_message(), text)) fail_msg("'%s' does not say '%s'", wk_error_message(), text);
  wk_error_clear();
}

static const wk_op *find(const char *name) {
  const wk_op *op = wk_op_find(name);
  if (!op) fail_msg("no operator %s", name);
  return op;
}

/* 0, 1, 2, ... as floats. */
static wk_tensor *counting(int ndim, const int64_t *sizes) {
  wk_tensor *t = wk_tensor_create(WK_FLOAT32, ndim, sizes);
  for (int64_t i = 0; i < wk_tensor_numel(t); i++) ((float *)wk_tensor_data(t))[i] = (float)i;
  return t;
}
static wk_tensor *line(int64_t n) { return counting(1, &n); }
static wk_tensor *matrix(int64_t rows, int64_t columns) { return counting(2, (int64_t[]){rows, columns}); }
static float at(const wk_tensor *t, int64_t i) { return ((const float *)wk_tensor_data(t))[i]; }

static wk_tensor *integers_of(int64_t n) {
  wk_tensor *t = wk_tensor_create(WK_INT64, 1, &n);
  for (int64_t i = 0; i < n; i++) ((int64_t *)wk_tensor_data(t))[i] = i;
  return t;
}

/* The single result of a call, owned; NULL on failure. */
static wk_tensor *call(const char *name, const wk_value *args, wk_tensor *destination) {
  wk_value result = {0};
  wk_tensor *destinations[WK__MAX_RESULTS] = {destination};
  if (wk_call(find(name), args, destination ? destinations : NULL, &result) != WK_OK) {
    assert_int_equal(result.tag, WK_VALUE_NONE); /* written only on success */
    return NULL;
  }
  assert_int_equal(result.tag, WK_VALUE_TENSOR);
  return result.tensor;
}

/* ---- schemas ---- */

/* Commas at depth 0 of what stands between the outer parentheses say how many parameters there are. */
static void count_parameters(const char *text, int *out_count, int *out_positional) {
  const char *p = strchr(text, '(') + 1;
  int depth = 0, count = 0;
  bool star = false, in_word = false;
  *out_positional = 0;
  for (; depth > 0 || *p != ')'; p++) {
    if (*p == '(' || *p == '[') depth++;
    if (*p == ')' || *p == ']') depth--;
    if (depth == 0 && *p == '*') {
      star = true;
      in_word = true;
      count--;
    }
    if (*p == ',' && depth == 0) {
      in_word = false;
    } else if (*p != ' ' && !in_word) {
      in_word = true;
      count++;
    }
    if (!star) *out_positional = count;
  }
  *out_count = count + star;
}

static int count_results(const char *text) {
  int count = 0;
  for (const char *p = strstr(text, ") -> "); (p = strstr(p, "Tensor")); p += 6) count++;
  for (const char *p = strstr(text, ") -> "); (p = strpbrk(p, "S")); p++) count += strncmp(p, "Scalar", 6) == 0;
  return count;
}

static void every_row_has_a_schema(void **state) {
  (void)state;
  assert_true(wk_op_count() > 200);
  for (int i = 0; i < wk_op_count(); i++) {
    const wk_op *op = wk_op_at(i);
    const char *text = wk_op_schema(op);
    int count, positional;
    if (wk_op_find(wk_op_name(op)) != op) fail_msg("two rows are named %s", wk_op_name(op));
    assert_int_equal(strncmp(text, wk_op_name(op), strlen(wk_op_name(op))), 0);
    assert_int_equal(text[strlen(wk_op_name(op))], '(');
    count_parameters(text, &count, &positional);
    if (op->schema.parameter_count != count) fail_msg("%s: %d parameters", text, op->schema.parameter_count);
    for (int p = 0; p < count; p++) {
      const wk__parameter *parameter = &op->schema.parameters[p];
      if (!strstr(text, parameter->name)) fail_msg("%s: parameter %s", text, parameter->name);
      if (parameter->keyword_only != (p >= op->schema.positional_count)) fail_msg("%s: positions", text);
      if (parameter->fixed_count && wk__types[parameter->type].item == parameter->type)
        fail_msg("%s: %s has a length", text, parameter->name);
    }
    if (op->schema.result_count != count_results(text)) fail_msg("%s: %d results", text, op->schema.result_count);
    for (int r = 0; r < op->schema.result_count; r++)
      if ((op->tags & WK__TAG_VIEW) && op->schema.result_alias[r] != 1 && strcmp(op->name, "_unsafe_view") != 0)
        fail_msg("%s: a view of its first argument", text);
    bool writes = false;
    for (int p = 0; p < count; p++) writes |= op->schema.parameters[p].written;
    if (op->tags & WK__TAG_MUTATES) assert_true(writes);
    for (int r = 1; op->tags & WK__TAG_MUTATES && r < op->schema.result_count; r++)
      if (!op->schema.result_alias[r] != !op->schema.result_alias[0]) fail_msg("%s: makes some results", text);
    if (op->lower) assert_true(op->meta);
    if (!op->lower && !op->view && !op->compose) assert_true(op->routine || op->has_kernel);
  }
  assert_null(wk_op_find("no_such_operator"));
}

static bool same_parameter(const wk__parameter *a, const wk__parameter *b) {
  return strcmp(a->name, b->name) == 0 && a->type == b->type && a->optional == b->optional &&
         a->keyword_only == b->keyword_only && a->has_default == b->has_default && a->written == b->written &&
         a->optional_items == b->optional_items && a->symbolic == b->symbolic && a->fixed_count == b->fixed_count &&
         wk__value_same(&a->default_value, &b->default_value);
}

/* What the build wrote is what the reader of schemas at run time makes of the text. */
static void records_hold_what_their_schemas_say(void **state) {
  (void)state;
  for (int i = 0; i < wk_op_count(); i++) {
    const wk_op *op = wk_op_at(i);
    const wk__schema *written = &op->schema;
    wk__parameter parameters[WK__MAX_ARGS];
    wk__schema read;
    assert_int_equal(wk__schema_parse(op->schema_text, parameters, WK__MAX_ARGS, &read), WK_OK);
    assert_int_equal(read.parameter_count, written->parameter_count);
    assert_int_equal(read.positional_count, written->positional_count);
    assert_int_equal(read.result_count, written->result_count);
    assert_int_equal(read.result_is_list, written->result_is_list);
    assert_memory_equal(read.result_alias, written->result_alias, sizeof read.result_alias);
    for (int p = 0; p < read.parameter_count; p++)
      if (!same_parameter(&read.parameters[p], &written->parameters[p]))
        fail_msg("%s: %s", op->schema_text, read.parameters[p].name);
    assert_int_equal(op->number, i);
    assert_ptr_equal(wk_op_find(op->name), op);
    assert_true(strncmp(op->base_name, op->name, strlen(op->base_name)) == 0);
  }
}

static void a_schema_is_read(void **state) {
  (void)state;
  wk__schema s;
  wk__parameter parameters[WK__MAX_ARGS];
  assert_int_equal(
      wk__schema_parse("f.over(Tensor(a!) self, Tensor?[] list, int[2] size=1, SymInt[] rest=[], *, str mode='x y', "
                       "float eps=1e-05, Scalar? n=None, bool b=True) -> (Tensor(a!), Tensor second)",
                       parameters, WK__MAX_ARGS, &s),
      WK_OK);
  assert_int_equal(s.parameter_count, 8);
  assert_int_equal(s.positional_count, 4);
  assert_int_equal(s.result_count, 2);
  assert_int_equal(s.result_alias[0], 1);
  assert_int_equal(s.result_alias[1], 0);
  const wk__parameter *p = s.parameters;
  assert_true(p[0].written && !p[0].has_default && !p[0].optional);
  assert_true(p[1].type == WK__TYPE_TENSORS && p[1].optional_items && !p[1].optional);
  assert_true(p[2].type == WK__TYPE_INTS && p[2].fixed_count == 2 && p[2].default_value.count == 2);
  assert_true(p[2].default_value.integers[0].bits == 1 && p[2].default_value.integers[1].bits == 1);
  assert_true(p[3].default_value.tag == WK_VALUE_INTS && p[3].default_value.count == 0);
  assert_true(p[4].keyword_only && strcmp(p[4].default_value.string, "x y") == 0);
  assert_true(p[5].default_value.tag == WK_VALUE_DOUBLE && p[5].default_value.number == 1e-05);
  assert_true(p[6].optional && p[6].has_default && p[6].default_value.tag == WK_VALUE_NONE);
  assert_true(p[7].default_value.tag == WK_VALUE_BOOL && p[7].default_value.boolean);
}

static void wrong_schemas_are_refused(void **state) {
  (void)state;
  static const char *const texts[] = {"f",
                                      "f(Blob x) -> Tensor",
                                      "f(Tensor) -> Tensor",
                                      "f(Tensor x) Tensor",
                                      "f(Tensor x=) -> Tensor",
                                      "f(Tensor x, Tensor y",
                                      "f(int[ x) -> Tensor",
                                      "f(Tensor x, Tensor y, Tensor z) -> Tensor"};
  for (size_t i = 0; i < WK_COUNT(texts); i++) {
    wk__schema s;
    wk__parameter parameters[2];
    if (wk__schema_parse(texts[i], parameters, 2, &s) != WK_INTERNAL_ERROR) fail_msg("%s was taken", texts[i]);
    wk_error_clear();
  }
}

/* ---- calls ---- */

static void absent_arguments_take_their_defaults(void **state) {
  (void)state;
  wk_tensor *x = line(4);
  wk_tensor *sum = call("add.Tensor", (wk_value[3]){tensor(x), tensor(x)}, NULL);
  for (int i = 0; i < 4; i++) assert_true(at(sum, i) == 2.0f * (float)i);
  wk_tensor_release(sum);
  sum = call("add.Tensor", (wk_value[3]){tensor(x), tensor(x), integer(3)}, NULL);
  assert_true(at(sum, 3) == 12);
  wk_tensor_release(sum);
  assert_null(call("add.Tensor", (wk_value[3]){tensor(x)}, NULL));
  assert_error(WK_TYPE_ERROR, "add() missing 1 required positional arguments: \"other\"");
  assert_null(call("cat", (wk_value[2]){{0}}, NULL));
  assert_error(WK_TYPE_ERROR, "cat() missing 1 required positional arguments: \"tensors\"");
  wk_tensor_release(x);
}

static void results_belong_to_the_caller(void **state) {
  (void)state;
  int64_t live = wk__allocator_live_bytes();
  wk_tensor *x = matrix(3, 4);
  wk_value results[2] = {{0}};
  assert_int_equal(wk_call(find("max.dim"), (wk_value[3]){tensor(x), integer(1)}, NULL, results), WK_OK);
  assert_true(at(results[0].tensor, 2) == 11);
  assert_int_equal(wk_tensor_dtype(results[1].tensor), WK_INT64);
  assert_int_equal(results[1].tensor->references, 1);
  wk_value_release(&results[0]);
  wk_value_release(&results[1]);
  assert_int_equal(results[0].tag, WK_VALUE_NONE);
  wk_value list = {0};
  assert_int_equal(wk_call(find("unbind.int"), (wk_value[2]){tensor(x)}, NULL, &list), WK_OK);
  assert_int_equal(list.tag, WK_VALUE_TENSORS);
  assert_int_equal(list.count, 3);
  wk_tensor_release(x);
  assert_true(at(list.tensors[2], 0) == 8); /* views keep the storage */
  wk_value_release(&list);
  assert_true(wk__allocator_live_bytes() == live);
}

static void a_failing_call_makes_nothing(void **state) {
  (void)state;
  int64_t live = wk__allocator_live_bytes();
  wk_tensor *x = line(3), *y = line(4);
  assert_null(call("add.Tensor", (wk_value[3]){tensor(x), tensor(y)}, NULL));
  assert_error(WK_RUNTIME_ERROR,
               "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 0");
  assert_null(call("sum.dim_IntList", (wk_value[4]){tensor(x), wk__v_ints((wk_int[]){k(1)}, 1)}, NULL));
  assert_error(WK_INDEX_ERROR, "Dimension out of range (expected to be in range of [-1, 0], but got 1)");
  wk_tensor *index = integers_of(4);
  assert_null(call("index_select", (wk_value[3]){tensor(x), integer(0), tensor(index)}, NULL));
  assert_int_equal(wk_error_category(), WK_INDEX_ERROR);
  wk_error_clear();
  wk_tensor_release(index);
  wk_tensor_release(x);
  wk_tensor_release(y);
  assert_true(wk__allocator_live_bytes() == live);
}

/* ---- in-place and out= ---- */

static void in_place_writes_where_it_reads(void **state) {
  (void)state;
  wk_tensor *x = line(4), *y = line(4);
  uint32_t version = wk__version(x);
  wk_tensor *result = call("add.Tensor", (wk_value[3]){tensor(x), tensor(y)}, x);
  assert_ptr_equal(result, x);
  assert_int_equal(x->references, 2);
  assert_true(at(x, 3) == 6);
  assert_int_equal(wk__version(x), version + 1);
  wk_tensor_release(result);
  wk_tensor *wide = matrix(3, 4);
  assert_null(call("add.Tensor", (wk_value[3]){tensor(x), tensor(wide)}, x));
  assert_error(WK_RUNTIME_ERROR, "output with shape [4] doesn't match the broadcast shape [3, 4]");
  assert_true(at(x, 3) == 6);
  wk_tensor_release(wide);
  wk_tensor_release(x);
  wk_tensor_release(y);
}

static void results_must_fit_the_dtype(void **state) {
  (void)state;
  wk_tensor *x = integers_of(3);
  assert_null(call("add.Scalar", (wk_value[3]){tensor(x), number(1.5)}, x));
  assert_error(WK_RUNTIME_ERROR, "result type Float can't be cast to the desired output type Long");
  wk_tensor *result = call("add.Scalar", (wk_value[3]){tensor(x), integer(2)}, x);
  assert_ptr_equal(result, x);
  assert_true(((int64_t *)wk_tensor_data(x))[2] == 4);
  wk_tensor_release(result);
  wk_tensor *f = line(3);
  result = call("mul.Tensor", (wk_value[2]){tensor(f), tensor(x)}, f); /* integers into floats */
  assert_true(at(f, 2) == 8);
  wk_tensor_release(result);
  int64_t n = 3;
  wk_tensor *half = wk_tensor_create(WK_FLOAT16, 1, &n);
  result = call("add.Scalar", (wk_value[3]){tensor(f), number(0.25)}, half); /* a narrower float is no other category */
  assert_true(wk__f16_to_f32(((uint16_t *)wk_tensor_data(half))[2]) == 8.25f);
  wk_tensor_release(result);
  wk_tensor *mask = wk_tensor_create(WK_BOOL, 1, &n);
  assert_null(call("add.Tensor", (wk_value[3]){tensor(f), tensor(f)}, mask));
  assert_error(WK_RUNTIME_ERROR, "result type Float can't be cast to the desired output type Bool");
  wk_tensor_release(mask);
  wk_tensor_release(half);
  wk_tensor_release(f);
  wk_tensor_release(x);
}

static void out_is_resized(void **state) {
  (void)state;
  static const char *const names[] = {"add.Tensor", "mm"};
  for (size_t i = 0; i < WK_COUNT(names); i++) {
    wk_tensor *x = matrix(3, 3), *out = line(0);
    wk_tensor *result = call(names[i], (wk_value[3]){tensor(x), tensor(x)}, out);
    assert_ptr_equal(result, out);
    assert_int_equal(wk_tensor_ndim(out), 2);
    assert_int_equal(wk_tensor_size(out, 1), 3);
    assert_true(at(out, 8) == (i ? 111 : 16));
    wk_tensor_release(result);
    wk_tensor_release(out);
    wk_tensor_release(x);
  }
  wk_tensor *x = matrix(3, 4), *out = line(0);
  wk_tensor *result = call("sum.dim_IntList", (wk_value[4]){tensor(x), wk__v_ints((wk_int[]){k(1)}, 1)}, out);
  assert_int_equal(wk_tensor_numel(out), 3);
  assert_true(at(out, 1) == 22);
  wk_tensor_release(result);
  wk_tensor_release(out);
  wk_tensor_release(x);
}

static wk_tensor *slice(wk_tensor *t, int64_t start, int64_t end) {
  return call("slice.Tensor", (wk_value[5]){tensor(t), integer(0), integer(start), integer(end), integer(1)}, NULL);
}

static wk_tensor *flipped(wk_tensor *t, wk_tensor *out) {
  return call("flip", (wk_value[2]){tensor(t), wk__v_ints((wk_int[]){k(0)}, 1)}, out);
}

/* What is read stays as it was before the call, however the memory of source and destination meet. */
static void overlap_goes_through_a_temporary(void **state) {
  (void)state;
  wk_tensor *x = line(5000);
  wk_tensor *low = slice(x, 0, 4999), *high = slice(x, 1, 5000);
  wk_tensor *result = flipped(low, high);
  assert_ptr_equal(result, high);
  for (int i = 1; i < 5000; i++) assert_true(at(x, i) == (float)(4999 - i));
  wk_tensor_release(result);
  wk_tensor_release(low);
  wk_tensor_release(high);
  wk_tensor_release(x);
  wk_tensor *m = matrix(40, 40);
  result = call("mm", (wk_value[2]){tensor(m), tensor(m)}, m);
  assert_true(fabsf(at(m, 0) - 40.0f * (39 * 40 * 79 / 6)) < 50);
  wk_tensor_release(result);
  wk_tensor_release(m);
}

/* Pointwise operators refuse what they would read after it was written. */
static void overlap_in_part_is_refused(void **state) {
  (void)state;
  wk_tensor *x = line(5000), *m = matrix(40, 40), *t = call("t", (wk_value[1]){tensor(m)}, NULL);
  wk_tensor *low = slice(x, 0, 4999), *high = slice(x, 1, 5000);
  assert_null(call("add.Scalar", (wk_value[3]){tensor(low), integer(1)}, high));
  assert_null(call("mul.Scalar", (wk_value[2]){tensor(high), integer(2)}, low));
  assert_null(call("add.Tensor", (wk_value[3]){tensor(m), tensor(t)}, m)); /* m += m.t() */
  assert_null(call("copy_", (wk_value[3]){tensor(m), tensor(t)}, NULL));
  assert_error(WK_RUNTIME_ERROR,
               "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
               "memory location. Please clone() the tensor before performing the operation.");
  wk_tensor *result = call("add.Tensor", (wk_value[3]){tensor(m), tensor(m)}, m);
  assert_ptr_equal(result, m);
  for (int i = 0; i < 5000; i++) assert_true(at(x, i) == (float)i);
  wk_tensor *all[] = {x, m, t, low, high, result};
  for (size_t i = 0; i < WK_COUNT(all); i++) wk_tensor_release(all[i]);
}

static void a_destination_may_not_overlap_itself(void **state) {
  (void)state;
  wk_tensor *x = line(3);
  wk_tensor *wide = call("expand", (wk_value[3]){tensor(x), wk__v_ints((wk_int[]){k(4), k(3)}, 2)}, NULL);
  assert_null(call("add.Scalar", (wk_value[3]){tensor(wide), integer(1)}, wide));
  assert_error(
      WK_RUNTIME_ERROR,
      "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
      "Please clone() the tensor before performing the operation.");
  assert_true(at(x, 2) == 2);
  wk_tensor_release(wide);
  wk_tensor_release(x);
}

static void several_results_go_to_their_destinations(void **state) {
  (void)state;
  wk_tensor *x = matrix(3, 4), *values = line(0), *destinations[2] = {values, NULL};
  wk_value results[2] = {{0}};
  assert_int_equal(wk_call(find("max.dim"), (wk_value[3]){tensor(x), integer(1)}, destinations, results), WK_OK);
  assert_ptr_equal(results[0].tensor, values);
  assert_true(at(values, 1) == 7);
  assert_true(((int64_t *)wk_tensor_data(results[1].tensor))[1] == 3);
  wk_value_release(&results[0]);
  wk_value_release(&results[1]);
  wk_tensor_release(values);
  wk_tensor_release(x);
}

/* ---- scopes ---- */

static void scopes_own_what_is_made_inside(void **state) {
  (void)state;
  int64_t live = wk__allocator_live_bytes();
  wk_tensor *x = line(100), *kept;
  wk_scope outer, inner;
  wk_scope_begin(&outer);
  wk_tensor *first = wk_relu(wk_neg(x));
  assert_non_null(first);
  wk_scope_begin(&inner);
  kept = wk_scope_keep(wk_add(x, wk_mul(x, x), integer(1)));
  assert_int_equal(inner.count, 2);
  wk_scope_end(&inner);
  assert_int_equal(outer.count, 2);
  assert_true(at(first, 5) == 0);
  wk_scope_end(&outer);
  assert_int_equal(kept->references, 1);
  assert_true(at(kept, 9) == 90);
  wk_tensor_release(kept);
  wk_tensor *own = wk_neg(x); /* no scope: the caller's */
  assert_int_equal(own->references, 1);
  wk_tensor_release(own);
  wk_tensor_release(x);
  assert_true(wk__allocator_live_bytes() == live);
}

/* A failed call gives NULL; the calls around it keep its error and fail too. */
static void failures_pass_through_nested_calls(void **state) {
  (void)state;
  wk_tensor *x = line(3), *y = line(4);
  wk_scope scope;
  wk_scope_begin(&scope);
  assert_null(wk_relu(wk_exp(wk_add(x, y, integer(1)))));
  assert_error(WK_RUNTIME_ERROR, "The size of tensor a (3) must match");
  wk_tensor *list[2] = {x, wk_add(x, y, integer(1))};
  assert_null(wk_cat(list, 2, 0));
  assert_error(WK_RUNTIME_ERROR, "The size of tensor a (3) must match");
  assert_null(wk_scope_keep(NULL));
  wk_scope_end(&scope);
  wk_tensor_release(x);
  wk_tensor_release(y);
}

/* ---- the plan cache ---- */

static int plans_of(const char *name) { return (int)wk__plan_count(find(name)); }

static void assert_sum(const wk_tensor *x, wk_value alpha, double factor) {
  wk_tensor *sum = call("add.Tensor", (wk_value[3]){tensor((wk_tensor *)x), tensor((wk_tensor *)x), alpha}, NULL);
  for (int64_t i = 0; i < wk_tensor_numel(x); i++)
    if (at(sum, i) != (float)(at(x, i) + factor * at(x, i))) fail_msg("element %lld", (long long)i);
  wk_tensor_release(sum);
}

/* alpha == 1 leaves the multiplication out, so it has a plan of its own; other numbers come at launch. */
static void plans_serve_all_sizes_and_numbers(void **state) {
  (void)state;
  wk_tensor *x = line(7);
  assert_sum(x, integer(1), 1);
  int plans = plans_of("add.Tensor");
  wk_tensor *others[] = {line(70), line(0), matrix(3, 5), matrix(1, 1), counting(0, NULL)};
  for (size_t i = 0; i < WK_COUNT(others); i++) assert_sum(others[i], integer(1), 1);
  assert_int_equal(plans_of("add.Tensor"), plans);
  assert_sum(x, integer(2), 2);
  plans = plans_of("add.Tensor");
  assert_sum(x, integer(3), 3);
  assert_sum(others[2], integer(-5), -5);
  assert_sum(x, integer(0), 0);
  assert_int_equal(plans_of("add.Tensor"), plans);
  assert_sum(x, number(0.5), 0.5);
  plans = plans_of("add.Tensor");
  assert_sum(x, number(2.5), 2.5);
  assert_sum(x, integer(1), 1);
  assert_sum(x, integer(2), 2);
  assert_int_equal(plans_of("add.Tensor"), plans);
  for (size_t i = 0; i < WK_COUNT(others); i++) wk_tensor_release(others[i]);
  wk_tensor_release(x);
}

static void plans_know_what_the_body_depends_on(void **state) {
  (void)state;
  wk_tensor *x = matrix(4, 5);
  for (int dim = 0; dim < 2; dim++)
    for (int keep = 0; keep < 2; keep++) {
      wk_tensor *sum =
          call("sum.dim_IntList", (wk_value[4]){tensor(x), wk__v_ints((wk_int[]){k(dim)}, 1), wk__v_bool(keep)}, NULL);
      assert_int_equal(wk_tensor_ndim(sum), 1 + keep);
      assert_true(at(sum, 1) == (dim ? 35 : 34));
      wk_tensor_release(sum);
    }
  static const char *const forms[] = {"none", "tanh", "none"};
  static const float expected[] = {0.841344746f, 0.841191991f, 0.841344746f};
  for (size_t i = 0; i < WK_COUNT(forms); i++) {
    wk_tensor *y = call("gelu", (wk_value[2]){tensor(x), {.tag = WK_VALUE_STRING, .string = forms[i]}}, NULL);
    assert_true(fabsf(at(y, 1) - expected[i]) < 1e-6f);
    wk_tensor_release(y);
  }
  static const double exponents[] = {2, 3, 0.5, 2};
  for (size_t i = 0; i < WK_COUNT(exponents); i++) { /* numbers that are part of the body */
    wk_tensor *y = call("pow.Tensor_Scalar", (wk_value[2]){tensor(x), number(exponents[i])}, NULL);
    assert_true(at(y, 4) == (float)pow(4, exponents[i]));
    wk_tensor_release(y);
  }
  wk_tensor_release(x);
}

/* ---- device meta ---- */

static wk_tensor *meta(wk_dtype dtype, const wk_int *sizes, int ndim) {
  wk__spec spec;
  wk__spec_contiguous(&spec, dtype, (wk_device){WK_META, -1}, ndim, sizes);
  return wk__tensor_from_spec(&spec);
}

/* Sizes, and integers that are numbers to the body, are in no key. */
static void creation_has_one_plan_for_all_sizes(void **state) {
  (void)state;
  for (int64_t n = 1; n <= 200; n++) {
    wk_int size = k(n), sizes[] = {k(n), k(2)};
    wk_tensor *made[] = {call("ones", (wk_value[5]){wk__v_ints(&size, 1)}, NULL),
                         call("full", (wk_value[5]){wk__v_ints(sizes, 2), number((double)n)}, NULL),
                         call("linspace", (wk_value[5]){number(0), number(1), integer(n)}, NULL),
                         call("eye", (wk_value[4]){integer(n)}, NULL), matrix(3, 3)};
    wk_tensor *lower = call("tril", (wk_value[2]){tensor(made[4]), integer(n - 100)}, NULL);
    assert_true(at(lower, 6) == (n >= 98 ? 6 : 0));
    for (size_t i = 0; i < WK_COUNT(made); i++) wk_tensor_release(made[i]);
    wk_tensor_release(lower);
  }
  static const char *const names[] = {"ones", "full", "linspace", "eye", "tril"};
  for (size_t i = 0; i < WK_COUNT(names); i++)
    if (plans_of(names[i]) > 3) fail_msg("%s: %d plans", names[i], plans_of(names[i])); /* is one, is not one */
}

/* The exponent is part of the body: each has a plan of its own. */
static float power(const wk_tensor *x, int exponent) {
  wk_tensor *y = call("pow.Tensor_Scalar", (wk_value[2]){tensor((wk_tensor *)x), number(1 + exponent / 65536.0)}, NULL);
  float value = at(y, 2);
  wk_tensor_release(y);
  return value;
}

static void plans_are_bounded(void **state) {
  (void)state;
  wk_tensor *x = line(4);
  float first = power(x, 1), second = power(x, 2);
  int64_t most = 0;
  for (int round = 0; round < 3; round++) {
    for (int e = 1; e <= 5000; e++) (void)power(x, e);
    if (round == 0) most = wk__plan_count(NULL);
    assert_int_equal(wk__plan_count(NULL), most);
    assert_true(power(x, 1) == first && power(x, 2) == second);
  }
  assert_true(most < 5000);
  wk_tensor_release(x);
}

static void *powers_of_a_thread(void *x) {
  static const float expected = 2.8284271f; /* 2^1.5 */
  for (int e = 1; e <= 3000; e++) (void)power(x, e);
  return power(x, 32768) == expected ? x : NULL;
}

static void threads_share_plans(void **state) {
  (void)state;
  pthread_t threads[4];
  wk_tensor *x = line(4);
  for (int t = 0; t < 4; t++) assert_int_equal(pthread_create(&threads[t], NULL, powers_of_a_thread, x), 0);
  for (int t = 0; t < 4; t++) {
    void *result = NULL;
    pthread_join(threads[t], &result);
    assert_non_null(result);
  }
  wk_tensor_release(x);
}

static void meta_tensors_have_shapes_only(void **state) {
  (void)state;
  int64_t live = wk__allocator_live_bytes();
  wk_tensor *x = meta(WK_FLOAT32, (wk_int[]){k(1 << 20), k(1 << 20)}, 2),
            *row = meta(WK_FLOAT32, (wk_int[]){k(1 << 20)}, 1);
  static const char *const names[] = {"add.Tensor", "mm", "gt.Tensor"};
  for (size_t i = 0; i < WK_COUNT(names); i++) {
    wk_tensor *y = call(names[i], (wk_value[3]){tensor(x), tensor(x)}, NULL);
    if (!y) fail_msg("%s: %s", names[i], wk_error_message());
    assert_null(wk_tensor_data(y));
    assert_int_equal(wk_tensor_size(y, 1), 1 << 20);
    assert_int_equal(wk_tensor_device(y).type, WK_META);
    assert_int_equal(wk_tensor_dtype(y), i == 2 ? WK_BOOL : WK_FLOAT32);
    wk_tensor_release(y);
  }
  wk_tensor *y = call("sum.dim_IntList", (wk_value[4]){tensor(x), wk__v_ints((wk_int[]){k(0)}, 1)}, NULL);
  assert_int_equal(wk_tensor_ndim(y), 1);
  wk_tensor_release(y);
  y = call("add.Tensor", (wk_value[3]){tensor(x), tensor(row)}, x);
  assert_ptr_equal(y, x);
  wk_tensor_release(y);
  y = call("view", (wk_value[2]){tensor(x), wk__v_ints((wk_int[]){k(-1), k(4)}, 2)}, NULL);
  assert_int_equal(wk_tensor_size(y, 0), INT64_C(1) << 38);
  wk_tensor_release(y);
  double item;
  assert_int_equal(wk_tensor_item(x, &item), WK_RUNTIME_ERROR);
  wk_error_clear();
  wk_tensor *real = line(1 << 10);
  assert_null(call("add.Tensor", (wk_value[3]){tensor(real), tensor(row)}, NULL));
  assert_error(WK_RUNTIME_ERROR, "Tensor on device meta is not on the expected device cpu!");
  wk_tensor_release(real);
  wk_tensor_release(row);
  wk_tensor_release(x);
  assert_true(wk__allocator_live_bytes() == live);
}

/* ---- shape rules on symbolic sizes ---- */

static wk__shape_env *env;
static wk_int s0, s1;

static int set_up_symbols(void **state) {
  (void)state;
  env = wk__shape_env_create();
  wk__shape_env_set_current(env);
  s0 = wk__shape_env_symbol(env, NULL, 8, 2, INT64_MAX);
  s1 = wk__shape_env_symbol(env, NULL, 5, 2, INT64_MAX);
  return 0;
}
static int tear_down_symbols(void **state) {
  (void)state;
  wk__shape_env_set_current(NULL);
  wk__shape_env_release(env);
  return 0;
}

static wk_tensor *symbolic(wk_dtype dtype, const wk_int *sizes, int ndim) {
  wk__spec spec;
  wk__spec_contiguous(&spec, dtype, (wk_device){WK_META, -1}, ndim, sizes);
  return wk__tensor_shape_only(&spec);
}
#define SIZES(...) (wk_int[]){__VA_ARGS__}, (int)(sizeof((wk_int[]){__VA_ARGS__}) / sizeof(wk_int))

/* Sizes of all results, then the guards of this call: "[s0, 4] [4] if s0 == 8". */
static void assert_shapes(const char *name, const wk_value *args, const char *expected) {
  const wk_op *op = find(name);
  wk_value results[WK__MAX_RESULTS] = {{0}};
  wk__string text = {0};
  int64_t guards = wk__shape_env_guard_count(env);
  if (wk_call(op, args, NULL, results) != WK_OK) fail_msg("%s: %s", name, wk_error_message());
  for (int r = 0; r < op->schema.result_count; r++) {
    wk__string_append(&text, r ? " " : "");
    print_symbolic_sizes(&text, results[r].tensor->sizes, results[r].tensor->ndim);
    wk_value_release(&results[r]);
  }
  for (int64_t g = guards; g < wk__shape_env_guard_count(env); g++) {
    wk__string_append(&text, g == guards ? " if " : " and ");
    wk__sym_guard_print(&text, wk__shape_env_guard(env, g));
  }
  assert_int_equal(wk__shape_env_status(env), WK_OK);
  if (strcmp(text.text, expected) != 0) fail_msg("%s gives %s, not %s", name, text.text, expected);
  wk__string_release(&text);
}

static void shape_rules_take_symbols(void **state) {
  (void)state;
  wk_tensor *x = symbolic(WK_FLOAT32, SIZES(s0, s1)), *row = symbolic(WK_FLOAT32, SIZES(s1));
  wk_tensor *column = symbolic(WK_FLOAT32, SIZES(s0, k(1))), *w = symbolic(WK_FLOAT32, SIZES(s1, k(64)));
  wk_tensor *four = symbolic(WK_FLOAT32, SIZES(s0, s1, k(4)));
  wk_tensor *index = symbolic(WK_INT64, SIZES(s0)), *table = symbolic(WK_FLOAT32, SIZES(k(1000), k(16)));
  wk_value one = wk__v_ints((wk_int[]){k(1)}, 1);
  assert_shapes("add.Tensor", (wk_value[3]){tensor(x), tensor(row)}, "[s0, s1]");
  assert_shapes("mul.Tensor", (wk_value[2]){tensor(column), tensor(row)}, "[s0, s1]");
  assert_shapes("gt.Scalar", (wk_value[2]){tensor(four), number(0)}, "[s0, s1, 4]");
  assert_shapes("sum.dim_IntList", (wk_value[4]){tensor(four), one}, "[s0, 4]");
  assert_shapes("mean.dim", (wk_value[4]){tensor(four), one, wk__v_bool(true)}, "[s0, 1, 4]");
  assert_shapes("max.dim", (wk_value[3]){tensor(x), integer(0)}, "[s1] [s1]");
  assert_shapes("_softmax", (wk_value[3]){tensor(x), integer(-1), wk__v_bool(false)}, "[s0, s1]");
  assert_shapes("mm", (wk_value[2]){tensor(x), tensor(w)}, "[s0, 64]");
  assert_shapes("embedding", (wk_value[5]){tensor(table), tensor(index)}, "[s0, 16]");
  assert_shapes("index_select", (wk_value[3]){tensor(table), integer(0), tensor(index)}, "[s0, 16]");
  assert_shapes("native_layer_norm",
                (wk_value[5]){tensor(x), wk__v_ints((wk_int[]){s1}, 1), tensor(row), {0}, number(1e-5)},
                "[s0, s1] [s0, 1] [s0, 1]");
  assert_shapes("permute", (wk_value[2]){tensor(four), wk__v_ints((wk_int[]){k(2), k(0), k(1)}, 3)}, "[4, s0, s1]");
  assert_shapes("transpose.int", (wk_value[3]){tensor(x), integer(0), integer(1)}, "[s1, s0]");
  assert_shapes("view", (wk_value[2]){tensor(four), wk__v_ints((wk_int[]){k(-1), k(4)}, 2)}, "[s0*s1, 4]");
  assert_shapes("unsqueeze", (wk_value[2]){tensor(x), integer(1)}, "[s0, 1, s1]");
  assert_shapes("expand", (wk_value[3]){tensor(column), wk__v_ints((wk_int[]){s0, s1}, 2)}, "[s0, s1]");
  wk_tensor *pair[2] = {x, x};
  assert_shapes("cat", (wk_value[2]){{.tag = WK_VALUE_TENSORS, .count = 2, .tensors = pair}, integer(1)}, "[s0, 2*s1]");
  wk_tensor *all[] = {x, row, column, w, four, index, table};
  for (size_t i = 0; i < WK_COUNT(all); i++) wk_tensor_release(all[i]);
}

/* Where the result depends on the symbol's value, that value is assumed and the assumption recorded. */
static void decisions_become_guards(void **state) {
  (void)state;
  wk_tensor *x = symbolic(WK_FLOAT32, SIZES(s0, s1)), *eight = symbolic(WK_FLOAT32, SIZES(k(8), k(1)));
  wk_tensor *w = symbolic(WK_FLOAT32, SIZES(k(5), k(3)));
  assert_shapes("add.Tensor", (wk_value[3]){tensor(x), tensor(eight)}, "[8, s1] if s0 == 8");
  assert_shapes("mm", (wk_value[2]){tensor(x), tensor(w)}, "[s0, 3] if s1 == 5");
  assert_shapes("mm", (wk_value[2]){tensor(x), tensor(w)}, "[s0, 3]"); /* known by now */
  wk_value ignored = {0};
  wk_tensor *seven = symbolic(WK_FLOAT32, SIZES(k(7)));
  assert_int_equal(wk_call(find("add.Tensor"), (wk_value[3]){tensor(x), tensor(seven)}, NULL, &ignored),
                   WK_RUNTIME_ERROR);
  assert_error(WK_RUNTIME_ERROR,
               "The size of tensor a (s1) must match the size of tensor b (7) at non-singleton dimension 1");
  wk_tensor_release(seven);
  wk_tensor_release(x);
  wk_tensor_release(eight);
  wk_tensor_release(w);
}

/* ---- memory that runs out ---- */

#ifdef WICK_DEBUG
typedef wk_status walked(wk_tensor *x, wk_tensor *m);

static wk_status drop(wk_tensor *t) {
  if (!t) return wk_error_category();
  wk_tensor_release(t);
  return WK_OK;
}
static wk_status walk_add(wk_tensor *x, wk_tensor *m) {
  return drop(call("add.Tensor", (wk_value[3]){tensor(m), tensor(x), number(0.5)}, NULL));
}
static wk_status walk_overlap(wk_tensor *x, wk_tensor *m) {
  (void)x;
  return drop(call("cumsum", (wk_value[3]){tensor(m), integer(0)}, m));
}
static wk_status walk_reduce(wk_tensor *x, wk_tensor *m) {
  (void)x;
  return drop(call("var.correction", (wk_value[4]){tensor(m), wk__v_ints((wk_int[]){k(1)}, 1)}, NULL));
}
static wk_status walk_mm(wk_tensor *x, wk_tensor *m) {
  (void)x;
  return drop(call("mm", (wk_value[2]){tensor(m), tensor(m)}, NULL));
}
static wk_status walk_list(wk_tensor *x, wk_tensor *m) {
  (void)x;
  wk_value list = {0};
  WK_TRY(wk_call(find("unbind.int"), (wk_value[2]){tensor(m)}, NULL, &list));
  wk_value_release(&list);
  return WK_OK;
}
static wk_status walk_scope(wk_tensor *x, wk_tensor *m) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *y = wk_mean_dim(wk_tanh(wk_add(wk_mul(m, x), x, integer(1))), (wk_int[]){k(0)}, 1, false, WK_DTYPE_NONE);
  wk_status status = y ? WK_OK : wk_error_category();
  wk_scope_end(&scope);
  return status;
}
static wk_status walk_backward(wk_tensor *x, wk_tensor *m) {
  (void)x;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = wk_set_requires_grad(m, true);
  wk_tensor *loss = status == WK_OK ? wk_sum(wk_mul(m, wk_exp(m)), WK_DTYPE_NONE) : NULL;
  if (status == WK_OK) status = loss ? wk_backward(loss, NULL) : wk_error_category();
  wk_scope_end(&scope);
  return status;
}

/* One call in which the n-th allocation fails (0: none); blocks and structs wait for it, so that it asks for few new
 * ones. */
static wk_status call_with_fault(walked *body, int64_t n) {
  wk_tensor *waiting[8];
  for (int i = 0; i < 8; i++) waiting[i] = i % 2 ? line(8) : matrix(8, 8);
  for (int i = 0; i < 8; i++) wk_tensor_release(waiting[i]);
  wk_tensor *x = line(8), *m = matrix(8, 8);
  wk_error_clear();
  wk__fault_arm(n);
  wk_status status = body(x, m);
  wk__fault_arm(0);
  wk_tensor_release(x);
  wk_tensor_release(m);
  return status;
}

/* Fails the n-th allocation, for each n until nothing fails any more; some failures are made up for. The first round
 * makes plans and whatever else stays. After it, rounds leave what was there. */
static int walk_once(walked *body, const char *name) {
  int failures = 0, successes = 0;
  int64_t live = wk__allocator_live_bytes();
  for (int64_t n = 1; successes < 10; n++, successes++) {
    wk_status status = call_with_fault(body, n);
    if (wk__allocator_live_bytes() != live) fail_msg("%s, allocation %d: bytes stay", name, (int)n);
    if (status == WK_OK) continue;
    if (status != WK_OUT_OF_MEMORY || wk_error_category() != status)
      fail_msg("%s, allocation %d: %s", name, (int)n, wk_error_message());
    successes = -1;
    failures++;
  }
  wk_error_clear();
  return failures;
}

static void walk(walked *body, const char *name) {
  int cold = walk_once(body, name);
  if (cold < 2) fail_msg("%s: %d failures", name, cold);
  if (call_with_fault(body, 0) != WK_OK) fail_msg("%s: %s", name, wk_error_message());
  int64_t before = wk__live_allocations();
  (void)walk_once(body, name);
  (void)call_with_fault(body, 0);
  if (wk__live_allocations() != before)
    fail_msg("%s: %lld blocks stay", name, (long long)(wk__live_allocations() - before));
}

static void memory_may_run_out_anywhere(void **state) {
  (void)state;
  walk(walk_add, "add");
  walk(walk_overlap, "overlap");
  walk(walk_reduce, "reduce");
  walk(walk_mm, "mm");
  walk(walk_list, "list");
  walk(walk_scope, "scope");
  walk(walk_backward, "backward");
}
#endif

#define TEST(name) cmocka_unit_test(name)
#define SYMBOLIC(name) cmocka_unit_test_setup_teardown(name, set_up_symbols, tear_down_symbols)

int main(void) {
  const struct CMUnitTest tests[] = {
#ifdef WICK_DEBUG
      TEST(memory_may_run_out_anywhere), /* first, while there are no plans */
#endif
      TEST(every_row_has_a_schema),
      TEST(records_hold_what_their_schemas_say),
      TEST(a_schema_is_read),
      TEST(wrong_schemas_are_refused),
      TEST(absent_arguments_take_their_defaults),
      TEST(results_belong_to_the_caller),
      TEST(a_failing_call_makes_nothing),
      TEST(in_place_writes_where_it_reads),
      TEST(results_must_fit_the_dtype),
      TEST(out_is_resized),
      TEST(overlap_goes_through_a_temporary),
      TEST(overlap_in_part_is_refused),
      TEST(a_destination_may_not_overlap_itself),
      TEST(several_results_go_to_their_destinations),
      TEST(scopes_own_what_is_made_inside),
      TEST(failures_pass_through_nested_calls),
      TEST(plans_serve_all_sizes_and_numbers),
      TEST(plans_know_what_the_body_depends_on),
      TEST(creation_has_one_plan_for_all_sizes),
      TEST(plans_are_bounded),
      TEST(threads_share_plans),
      TEST(meta_tensors_have_shapes_only),
      SYMBOLIC(shape_rules_take_symbols),
      SYMBOLIC(decisions_become_guards),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
