/* ops/value.h: the table of kinds against the struct of the public header, items, copies, comparisons and hashes of
 * every kind; and calls of the test operators (tests/ops/rows/) as C programs make them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "autograd/autograd.h"
#include "fault_walk.h"
#include "graph/graph.h"
#include "ops/internal.h"
#include "wick/operators.h"

static const wk_int few_ints[] = {{3}, {-4}, {5}};
static const double few_numbers[] = {0.5, -0.0, 2};
static const bool few_bools[] = {true, false, true};
static const wk_value few_scalars[] = {{.tag = WK_VALUE_INT, .integer = {2}},
                                       {.tag = WK_VALUE_COMPLEX, .numbers = few_numbers},
                                       {.tag = WK_VALUE_BOOL, .boolean = true},
                                       {.tag = WK_VALUE_DOUBLE, .number = -0.5}};

/* One value of each kind, and another that differs from it in what counts alone. */
typedef struct pair {
  wk_value one, other;
} pair;
static pair pair_of(int kind, wk_tensor *const *tensors) {
  switch (kind) {
    case WK_VALUE_NONE:
      return (pair){{0}, wk__v_int(0)};
    case WK_VALUE_TENSOR:
      return (pair){wk__v_tensor(tensors[0]), wk__v_tensor(tensors[1])};
    case WK_VALUE_INT:
      return (pair){wk__v_int(7), wk__v_int(8)};
    case WK_VALUE_DOUBLE:
      return (pair){wk__v_double(0.0), wk__v_double(-0.0)};
    case WK_VALUE_BOOL:
      return (pair){{.tag = WK_VALUE_BOOL, .boolean = true}, {.tag = WK_VALUE_BOOL}};
    case WK_VALUE_DTYPE:
      return (pair){wk__v_dtype(WK_INT64), wk__v_dtype(WK_FLOAT32)};
    case WK_VALUE_DEVICE:
      return (pair){{.tag = WK_VALUE_DEVICE, .device = {WK_CPU, 0}}, {.tag = WK_VALUE_DEVICE, .device = {WK_META, 0}}};
    case WK_VALUE_STRING:
      return (pair){{.tag = WK_VALUE_STRING, .string = "mean"}, {.tag = WK_VALUE_STRING, .string = "meant"}};
    case WK_VALUE_GENERATOR:
      return (pair){{.tag = WK_VALUE_GENERATOR, .generator = (void *)tensors}, {.tag = WK_VALUE_GENERATOR}};
    case WK_VALUE_INTS:
      return (pair){{.tag = WK_VALUE_INTS, .count = 3, .integers = few_ints},
                    {.tag = WK_VALUE_INTS, .count = 2, .integers = few_ints}};
    case WK_VALUE_DOUBLES:
      return (pair){{.tag = WK_VALUE_DOUBLES, .count = 2, .numbers = few_numbers},
                    {.tag = WK_VALUE_DOUBLES, .count = 2, .numbers = few_numbers + 1}};
    case WK_VALUE_TENSORS:
      return (pair){{.tag = WK_VALUE_TENSORS, .count = 2, .tensors = (wk_tensor **)tensors},
                    {.tag = WK_VALUE_TENSORS, .count = 2, .tensors = (wk_tensor **)tensors + 1}};
    case WK_VALUE_WIDE:
      return (pair){{.tag = WK_VALUE_WIDE, .wide = INT64_MIN}, {.tag = WK_VALUE_WIDE, .count = 1, .wide = INT64_MIN}};
    case WK_VALUE_BOOLS:
      return (pair){{.tag = WK_VALUE_BOOLS, .count = 2, .booleans = few_bools},
                    {.tag = WK_VALUE_BOOLS, .count = 2, .booleans = few_bools + 1}};
    case WK_VALUE_INPUT:
      return (pair){{.tag = WK_VALUE_INPUT, .number = 2}, {.tag = WK_VALUE_INPUT, .count = 1, .number = 2}};
    case WK_VALUE_SCALARS:
      return (pair){{.tag = WK_VALUE_SCALARS, .count = 3, .scalars = few_scalars},
                    {.tag = WK_VALUE_SCALARS, .count = 3, .scalars = few_scalars + 1}};
    case WK_VALUE_COMPLEX:
      return (pair){{.tag = WK_VALUE_COMPLEX, .numbers = few_numbers},
                    {.tag = WK_VALUE_COMPLEX, .numbers = few_numbers + 1}};
    default:
      fail_msg("kind %d has no values in this test", kind);
      return (pair){{0}, {0}};
  }
}

static wk_tensor *number(float x) { return wk_tensor_from_data(&x, WK_FLOAT32, 0, NULL); }

static uint64_t position_of(const void *tensor) { return ((const wk_tensor *)tensor)->dtype + UINT64_C(1); }
static uint64_t bits_of(uint64_t h, wk_int x) { return wk__hash_mix(h, (uint64_t)x.bits); }
static uint64_t hash(const wk_value *v) { return wk__value_hash(1, v, &(wk__value_hasher){position_of, bits_of}); }

static void each_kind(void (*check)(int kind, const wk_value *one, const wk_value *other)) {
  wk_tensor *tensors[] = {number(1), wk_tensor_create(WK_INT64, 0, NULL), number(3)};
  for (int kind = 0; kind < WK_VALUE_KIND_COUNT; kind++) {
    pair p = pair_of(kind, tensors);
    check(kind, &p.one, &p.other);
  }
  for (int i = 0; i < 3; i++) wk_tensor_release(tensors[i]);
}

/* Bits around the value, which nothing promises, do not count. */
static wk_value with_garbage(const wk_value *v) {
  wk_value w = *v;
  w.integer.bits = (int64_t)(0xa5a5a5a5a5a5a5a5u & ~wk__value_kinds[v->tag].mask) | (int64_t)wk__value_bits(v);
  return w;
}

static void check_comparison(int kind, const wk_value *one, const wk_value *other) {
  wk_value same = with_garbage(one);
  if (kind != one->tag) fail_msg("the value of kind %d has kind %d", kind, one->tag);
  if (!wk__value_same(one, &same) || wk__value_same(one, other)) fail_msg("kind %d", kind);
  if (hash(one) != hash(&same)) fail_msg("kind %d: the hash sees more than the value", kind);
  bool nameless = kind == WK_VALUE_GENERATOR; /* by its address alone */
  if (!nameless && hash(one) == hash(other)) fail_msg("kind %d: the hash misses what differs", kind);
}
static void values_compare_by_what_counts(void **state) {
  (void)state;
  each_kind(check_comparison);
}

static void check_copy(int kind, const wk_value *one, const wk_value *other) {
  wk_value copy;
  (void)other;
  assert_int_equal(wk__value_copy(&copy, one, wk__value_on_heap, NULL), WK_OK);
  if (!wk__value_same(&copy, one)) fail_msg("kind %d", kind);
  if (wk__value_points(one) && copy.string == one->string) fail_msg("kind %d: the copy shares memory", kind);
  WK__EACH_TENSOR(tensor, &copy, 1) wk__retain(tensor); /* as an owner does */
  wk_value_release(&copy);
  assert_int_equal(copy.tag, WK_VALUE_NONE);
}
static void copies_have_memory_of_their_own(void **state) {
  (void)state;
  int64_t before = wk__live_allocations();
  each_kind(check_copy);
  assert_int_equal(wk__live_allocations(), before);
}

/* A list that is put together from its items is the list. */
static void check_items(int kind, const wk_value *one, const wk_value *other) {
  wk_value room[4], again = *one;
  (void)other;
  if (!wk__value_has_items(one)) return;
  again.string = (const char *)room;
  for (uint32_t k = 0; k < one->count; k++) {
    wk_value item = wk__value_item(one, k);
    if (kind != WK_VALUE_SCALARS) assert_int_equal(item.tag, wk__value_kinds[kind].item_tag);
    wk__value_put_item((uint8_t)kind, room, k, &item);
  }
  if (!wk__value_same(&again, one)) fail_msg("kind %d", kind);
}
static void lists_are_their_items(void **state) {
  (void)state;
  each_kind(check_items);
}

/* Of every type of list the kind is known, and its items are of the item's type. */
static void types_agree_with_kinds(void **state) {
  (void)state;
  for (uint8_t type = 0; type < WK__TYPE_COUNT; type++) {
    const wk__type_row *row = &wk__types[type];
    assert_non_null(row->shown);
    assert_true(row->kinds != 0);
    if (row->item == type || wk__list_kind(type) == WK_VALUE_SCALARS) continue;
    wk_value item = {.tag = wk__value_kinds[wk__list_kind(type)].item_tag};
    if (!wk__type_fits(row->item, &item)) fail_msg("items of %s", row->shown);
  }
}

/* ---- calls ---- */

static float element(const wk_tensor *t) { return *(const float *)wk_tensor_data(t); }

static void c_programs_give_lists_of_bools(void **state) {
  (void)state;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *x = number(3), *y = number(4);
  assert_int_equal(element(wk__test_choose(x, y, few_bools, 2, few_bools, 2)), -3);
  wk_value args[] = {wk__v_tensor(x), wk__v_tensor(y), {0}, {0}}, result = {0};
  assert_int_equal(wk_call(wk_op_find("_test_choose"), args, NULL, &result), WK_OK);
  assert_int_equal(element(result.tensor), -1);
  wk_value_release(&result);
  wk_scope_end(&scope);
  wk_tensor_release(x);
  wk_tensor_release(y);
}

static void complex_numbers_are_taken_where_the_row_says_so(void **state) {
  (void)state;
  static const double i[] = {2, 1};
  const wk_value both[] = {wk__v_int(1), {.tag = WK_VALUE_COMPLEX, .numbers = i}};
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *x = number(3);
  assert_int_equal(element(wk__test_turn(x, both[1], both, 2)), 8); /* 3 * 2 + 1 + 1 */
  wk_tensor *product = wk_mul_Scalar(x, both[1]);
  assert_true(product && product->dtype == WK_COMPLEX64);
  assert_null(wk_fmod_Scalar(x, both[1]));
  assert_non_null(strstr(wk_error_message(), "value cannot be converted to type"));
  wk_error_clear();
  wk_value list[] = {{.tag = WK_VALUE_TENSORS, .count = 1, .tensors = &x},
                     {.tag = WK_VALUE_SCALARS, .count = 2, .scalars = both}};
  wk_value result = {0};
  assert_int_equal(wk_call(wk_op_find("_test_scale_each"), list, NULL, &result), WK_RUNTIME_ERROR);
  wk_error_clear();
  wk_scope_end(&scope);
  wk_tensor_release(x);
}

/* ---- each allocation fails once ---- */

/* A call whose arguments are copied for the tape, and its derivative. */
static wk_status differentiate(void *context) {
  static const double i[] = {2, 1};
  static const wk_value numbers[] = {{.tag = WK_VALUE_INT, .integer = {1}}, {.tag = WK_VALUE_COMPLEX, .numbers = i}};
  wk_tensor *x = context;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *y = wk__test_choose(x, x, few_bools, 2, few_bools + 1, 2);
  wk_tensor *z = y ? wk__test_turn(y, numbers[1], numbers, 2) : NULL;
  wk_status status = z ? wk_backward(z, NULL) : wk_error_category();
  wk_scope_end(&scope);
  (void)!wk_set_grad(x, NULL);
  return status;
}
static void kept_values_are_given_back(void **state) {
  (void)state;
  wk_tensor *x = number(3);
  assert_int_equal(wk_set_requires_grad(x, true), WK_OK);
  walk_faults(differentiate, x, 10, 5);
  wk_tensor_release(x);
}

/* A graph with every kind of list: read, copied, compared by its text. */
static wk_status read_and_copy(void *text) {
  wk__graph *graph = NULL, *copy = NULL;
  wk__string printed = {0};
  wk_status status = wk__graph_parse(text, NULL, 0, &graph);
  if (status == WK_OK && !(copy = wk__graph_copy(graph))) status = wk_error_category();
  if (status == WK_OK) status = wk__graph_print(&printed, copy, false);
  if (status == WK_OK) assert_string_equal(printed.text, text);
  wk__string_release(&printed);
  wk__graph_release(copy);
  wk__graph_release(graph);
  return status;
}
static void graphs_hold_every_kind_of_list(void **state) {
  (void)state;
  walk_faults(read_and_copy,
              "graph(%x: f32[3], %y: f32[3]) {\n"
              "  %a: f32[3] = _test_choose(%x, %y, [False, True], negative=[True, True])\n"
              "  %b: f32[3] = _test_combine([%x, %a], [2, 0.5], [None, %y], which=[1], shifts=[1.5], scale=-2.5)\n"
              "  %c: f32[3] = _test_turn(%b, complex(1.0, -0.0), [True, complex(inf, 2.5), 3])\n"
              "  return (%c)\n"
              "}\n",
              10, 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_compare_by_what_counts),
      cmocka_unit_test(copies_have_memory_of_their_own),
      cmocka_unit_test(lists_are_their_items),
      cmocka_unit_test(types_agree_with_kinds),
      cmocka_unit_test(c_programs_give_lists_of_bools),
      cmocka_unit_test(complex_numbers_are_taken_where_the_row_says_so),
      cmocka_unit_test(kept_values_are_given_back),
      cmocka_unit_test(graphs_hold_every_kind_of_list),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
