/* tensor/print.c: about 800 tensors and 700 numbers print as PyTorch and Python print them, in any locale. Recorded by
 * tools/record_printing.py. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tensor/tensor.h"

typedef struct tensor_case {
  wk_dtype dtype;
  wk_device_type device;
  int ndim;
  int64_t sizes[8], strides[8], offset;
  int64_t storage_count; /* elements */
  const char *storage;   /* hexadecimal; NULL: the ramp */
  wk__print_options settings;
  wk_dtype default_dtype;
  const char *suffix, *prefix, *expected;
} tensor_case;

#define LIST(...) \
  { __VA_ARGS__ }
#define DEFAULTS LIST(4, 1000, 3, 80, -1)

#define TENSOR(...) {__VA_ARGS__},
#define NUMBER(bits, text)
static const tensor_case tensor_cases[] = {
#include "print_vectors.h"
};
#undef TENSOR
#undef NUMBER

#define TENSOR(...)
#define NUMBER(bits, text) {bits, text},
static const struct {
  uint64_t bits;
  const char *text;
} numbers[] = {
#include "print_vectors.h"
};

static const wk__print_options defaults = DEFAULTS;

static int64_t live_before;

static int set_up(void **state) {
  (void)state;
  live_before = wk__live_allocations();
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  wk__thread.print = defaults;
  wk__default_dtype_set(WK_FLOAT32);
  wk__print_module_name = "torch";
  return 0;
}

/* ---- The recorded tensors ---- */

static int hex_digit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

static void fill_hex(uint8_t *data, const char *hex) {
  for (; *hex; hex += 2) *data++ = (uint8_t)(hex_digit(hex[0]) << 4 | hex_digit(hex[1]));
}

static void fill_ramp(char *data, wk_dtype dtype, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    int64_t v = i * 7919 % 2003 - 1000;
    wk__scalar value = wk_dtype_is_floating(dtype) ? (wk__scalar){WK__FLOAT_KIND, .d = (double)v / 64}
                                                   : (wk__scalar){WK__INTEGER_KIND, .i = v};
    wk__element_set(data + i * (int64_t)wk_dtype_size(dtype), dtype, value);
  }
}

static wk_tensor *tensor_of(const tensor_case *c) {
  wk__spec spec = {.dtype = (uint8_t)c->dtype, .ndim = (uint8_t)c->ndim, .device = {(uint8_t)c->device, -1}};
  spec.offset = wk_int_of(c->offset);
  for (int d = 0; d < c->ndim; d++) {
    spec.sizes[d] = wk_int_of(c->sizes[d]);
    spec.strides[d] = wk_int_of(c->strides[d]);
  }
  if (c->device == WK_META) return wk__tensor_shape_only(&spec);
  wk_storage *storage = wk__storage_create(spec.device, c->storage_count * (int64_t)wk_dtype_size(c->dtype));
  assert_non_null(storage);
  if (c->storage) {
    fill_hex(storage->data, c->storage);
  } else {
    fill_ramp(storage->data, c->dtype, c->storage_count);
  }
  return wk__tensor_over(storage, &spec);
}

static void recorded_tensors_print_alike(void **state) {
  (void)state;
  for (size_t i = 0; i < WK_COUNT(tensor_cases); i++) {
    const tensor_case *c = &tensor_cases[i];
    wk_tensor *t = tensor_of(c);
    wk__string text = {0};
    wk__thread.print = c->settings;
    wk__default_dtype_set(c->default_dtype);
    assert_int_equal(wk__tensor_print(&text, t, c->prefix, c->suffix), WK_OK);
    if (strcmp(text.text, c->expected) != 0) fail_msg("case %zu:\n%s\nexpected\n%s", i, text.text, c->expected);
    wk__string_release(&text);
    wk_tensor_release(t);
  }
}

static void assert_number_prints(double value, const char *expected) {
  wk__string text = {0};
  assert_int_equal(wk__scalar_print(&text, (wk__scalar){WK__FLOAT_KIND, .d = value}), WK_OK);
  assert_string_equal(text.text, expected);
  wk__string_release(&text);
}

static void recorded_numbers_print_alike(void **state) {
  (void)state;
  for (size_t i = 0; i < WK_COUNT(numbers); i++) {
    double value;
    memcpy(&value, &numbers[i].bits, sizeof value);
    assert_number_prints(value, numbers[i].text);
    const char *end;
    double back = wk__double_parse(numbers[i].text, &end);
    assert_true(*end == 0 && (back == value || value != value));
  }
}

/* ---- What PyTorch has no text for ---- */

static wk_tensor *two_floats(void) { return wk_tensor_from_data((float[]){0.5f, 1.0f}, WK_FLOAT32, 1, (int64_t[]){2}); }

static void assert_prints(const wk_tensor *t, const char *prefix, const char *expected) {
  wk__string text = {0};
  assert_int_equal(wk__tensor_print(&text, t, prefix, NULL), WK_OK);
  assert_string_equal(text.text, expected);
  wk__string_release(&text);
}

static void public_text_is_owned_by_the_caller(void **state) {
  (void)state;
  WK__OWNED t = two_floats();
  char *text = wk_tensor_text(t);
  assert_string_equal(text, "tensor([0.5000, 1.0000])");
  wk_text_free(text);
  wk_text_free(NULL);
}

static void text_before_the_tensor_does_not_count(void **state) {
  (void)state;
  WK__OWNED t = two_floats();
  wk__string text = {0};
  wk__string_append(&text, "a long line of text that stands before the tensor and has no newline: ");
  int64_t before = text.length;
  assert_int_equal(wk__tensor_print(&text, t, "tensor(", "requires_grad=True"), WK_OK);
  assert_string_equal(text.text + before, "tensor([0.5000, 1.0000], requires_grad=True)");
  wk__string_release(&text);
}

static void module_name_is_ours_to_choose(void **state) {
  (void)state;
  wk__print_module_name = "wick";
  WK__OWNED t = wk_tensor_from_data((int32_t[]){1, 2}, WK_INT32, 1, (int64_t[]){2});
  assert_prints(t, "tensor(", "tensor([1, 2], dtype=wick.int32)");
}

static void shapes_without_values_print_symbols(void **state) {
  (void)state;
  wk__shape_env *env = wk__shape_env_create();
  wk__spec spec;
  wk_int sizes[] = {wk__shape_env_symbol(env, NULL, 7, 2, INT64_MAX), wk_int_of(3)};
  wk__shape_env *before = wk__shape_env_set_current(env);
  wk__spec_contiguous(&spec, WK_FLOAT32, WK__CPU_DEVICE, 2, sizes);
  wk_tensor *t = wk__tensor_shape_only(&spec);
  assert_prints(t, "tensor(", "tensor(..., size=(s0, 3))");
  wk_tensor_release(t);
  wk__shape_env_set_current(before);
  wk__shape_env_release(env);
}

static void integers_and_truth_print_as_in_python(void **state) {
  (void)state;
  wk__string text = {0};
  assert_int_equal(wk__scalar_print(&text, (wk__scalar){WK__INTEGER_KIND, .i = INT64_MIN}), WK_OK);
  assert_int_equal(wk__scalar_print(&text, (wk__scalar){WK__BOOL_KIND, .i = 1}), WK_OK);
  assert_int_equal(wk__scalar_print(&text, (wk__scalar){WK__BOOL_KIND, .i = 0}), WK_OK);
  assert_string_equal(text.text, "-9223372036854775808TrueFalse");
  wk__string_release(&text);
}

static void assert_profile_sets(const char *profile, int precision, int64_t threshold, int edge_items) {
  wk__thread.print = (wk__print_options){9, 9, 9, 9, 1};
  wk__print_profile(profile);
  const wk__print_options *o = &wk__thread.print;
  assert_int_equal(o->precision, precision);
  assert_true(o->threshold == threshold);
  assert_int_equal(o->edge_items, edge_items);
  assert_int_equal(o->scientific, 1); /* profiles leave it alone */
}

static void profiles_set_what_pytorch_sets(void **state) {
  (void)state;
  assert_profile_sets("default", 4, 1000, 3);
  assert_profile_sets("short", 2, 1000, 2);
  assert_profile_sets("full", 4, INT64_MAX, 3);
  assert_profile_sets("no such profile", 9, 9, 9);
}

/* Skipped where the machine has no locale with a comma. */
static void numbers_have_points_in_every_locale(void **state) {
  (void)state;
  if (!setlocale(LC_NUMERIC, "de_DE.UTF-8") && !setlocale(LC_NUMERIC, "fr_FR.UTF-8")) skip();
  WK__OWNED t = two_floats();
  assert_prints(t, "tensor(", "tensor([0.5000, 1.0000])");
  assert_number_prints(0.25, "0.25");
  char text[8];
  snprintf(text, sizeof text, "%.1f", 0.5);
  assert_string_equal(text, "0,5"); /* the program's own choice stands */
  setlocale(LC_NUMERIC, "C");
}

/* ---- Errors ---- */

static void storage_too_small_is_an_error(void **state) {
  (void)state;
  WK__OWNED t = two_floats();
  t->offset = wk_int_of(1);
  assert_null(wk_tensor_text(t));
  assert_int_equal(wk_error_category(), WK_RUNTIME_ERROR);
  t->offset = wk_int_of(0);
}

/* Every allocation of a print fails once: an error each time, and nothing is lost. */
static void failed_allocations_are_errors(void **state) {
  (void)state;
  WK__OWNED t = wk_tensor_from_data((int32_t[]){1, 2}, WK_INT32, 1, (int64_t[]){2});
  int64_t live = wk__live_allocations();
  for (int64_t n = 1; n < 100; n++) {
    wk_error_clear();
    wk__fault_arm(n);
    char *text = wk_tensor_text(t);
    wk__fault_arm(0);
    assert_true(text || wk_error_category() == WK_OUT_OF_MEMORY);
    wk_text_free(text);
    assert_int_equal(wk__live_allocations(), live);
    if (text) return;
  }
  fail_msg("printing never succeeded");
}

static int no_allocation_is_left(void **state) {
  (void)state;
  return wk__live_allocations() <= live_before + 16 ? 0 : -1; /* tensor structs wait in their free list */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(recorded_tensors_print_alike, tear_down),
      cmocka_unit_test(recorded_numbers_print_alike),
      cmocka_unit_test(public_text_is_owned_by_the_caller),
      cmocka_unit_test(text_before_the_tensor_does_not_count),
      cmocka_unit_test_teardown(module_name_is_ours_to_choose, tear_down),
      cmocka_unit_test(shapes_without_values_print_symbols),
      cmocka_unit_test(integers_and_truth_print_as_in_python),
      cmocka_unit_test_teardown(profiles_set_what_pytorch_sets, tear_down),
      cmocka_unit_test(numbers_have_points_in_every_locale),
      cmocka_unit_test(storage_too_small_is_an_error),
      cmocka_unit_test(failed_allocations_are_errors),
  };
  return cmocka_run_group_tests(tests, set_up, no_allocation_is_left);
}
