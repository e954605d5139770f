/* device/: the registry, and what each table that is there has to do: memory, copies, streams, events, code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "loop/launch.h"
#include "ops/internal.h"
#include "wick/operators.h"

/* Runs a check on the first device of each type that has one. */
static void on_each(void (*check)(const wk__device_type *type, wk_device device)) {
  int checked = 0;
  for (int t = 0; t < WK_DEVICE_TYPE_COUNT; t++) {
    const wk__device_type *type = wk__device_types[t];
    if (!type || !type->count(false)) continue;
    wk_device device = {(uint8_t)t, -1};
    assert_int_equal(wk__device_resolve(&device), WK_OK);
    assert_int_equal(device.index, type->has_index ? 0 : -1);
    check(type, device);
    checked++;
  }
  assert_true(checked >= 1);
}

static void names_and_indices(void **state) {
  (void)state;
  wk_device d;
  assert_int_equal(wk__device_parse("cuda:3", &d), WK_OK);
  assert_true(d.type == WK_CUDA && d.index == 3);
  assert_int_equal(wk__device_parse("cpu", &d), WK_OK);
  assert_true(wk__device_equal(d, WK__CPU_DEVICE));
  assert_int_equal(wk__device_parse("moon", &d), WK_RUNTIME_ERROR);
  wk_error_clear();
  assert_null(wk__device_type_of((wk_device){WK_META, -1}));
  assert_non_null(strstr(wk_error_message(), "without storage"));
  wk_error_clear();
}

static void copy_there_and_back(const wk__device_type *type, wk_device device) {
  char there[300], back[300];
  wk__stream *stream = wk__stream_of(device);
  int64_t capacity = 0;
  char *memory = type->allocate(stream, sizeof there, NULL, &capacity);
  assert_non_null(memory);
  assert_true(capacity >= (int64_t)sizeof there && (uintptr_t)memory % 64 == 0);
  for (size_t i = 0; i < sizeof there; i++) there[i] = (char)i;
  assert_int_equal(type->copy(stream, memory, there, sizeof there, WK__FROM_HOST), WK_OK);
  assert_int_equal(type->fill(stream, memory + 10, 7, 5), WK_OK);
  assert_int_equal(type->copy(stream, back, memory, sizeof back, WK__TO_HOST), WK_OK);
  memset(there + 10, 7, 5);
  assert_memory_equal(there, back, sizeof there);
  type->release(stream, memory, capacity);
}
static void memory(void **state) {
  (void)state;
  on_each(copy_there_and_back);
}

static void keep_order(const wk__device_type *type, wk_device device) {
  int index = device.index < 0 ? 0 : device.index;
  wk__stream *a = type->default_stream(index), *b = type->create_stream(index);
  wk__event *begin = type->create_event(index), *end = type->create_event(index);
  assert_true(a && b && begin && end);
  assert_true(a->type == type && wk__device_equal(b->device, device));
  assert_int_equal(type->record(begin, a), WK_OK);
  assert_int_equal(type->wait(b, begin), WK_OK);
  assert_int_equal(type->record(end, b), WK_OK);
  assert_int_equal(type->finish(end), WK_OK);
  assert_true(type->is_done(end) && type->elapsed(begin, end) >= 0);
  assert_int_equal(type->synchronize(a), WK_OK);
  type->release_event(begin);
  type->release_event(end);
}
static void streams_and_events(void **state) {
  (void)state;
  on_each(keep_order);
}

static void add_ones(const wk__device_type *type, wk_device device) {
  wk_value where = {.tag = WK_VALUE_DEVICE, .device = device};
  wk_int sizes[] = {wk_int_of(3), wk_int_of(2)};
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *x = wk_ones(sizes, 2, WK_FLOAT32, where), *y = wk_add(wk_t(x), wk_t(x), wk__v_int(1));
  assert_non_null(y);
  assert_true(wk__device_equal(y->device, device));
  wk__host_view view;
  assert_int_equal(wk__to_host(y, &view), WK_OK);
  assert_true((view.copy == NULL) == type->host_reads && (wk__host_data(y) != NULL) == type->host_reads);
  for (int i = 0; i < 6; i++) assert_true(((const float *)view.data)[i] == 2);
  wk__host_view_release(&view);
  wk__scalar element;
  assert_int_equal(wk__write_element(y, (wk__scalar){WK__FLOAT_KIND, .d = 5}), WK_OK);
  assert_int_equal(wk__read_element(y, &element), WK_OK);
  assert_true(element.d == 5);
  wk_scope_end(&scope);
}
static void code_and_values(void **state) {
  (void)state;
  on_each(add_ones);
}

/* A view whose elements are far apart and in the middle of the storage is copied with what lies between them. */
static void views_on_the_host(const wk__device_type *type, wk_device device) {
  (void)type;
  wk_value where = {.tag = WK_VALUE_DEVICE, .device = device};
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *x = wk_arange(wk__v_int(20), WK_INT64, where);
  wk_tensor *y = wk_as_strided(x, (wk_int[]){wk_int_of(2), wk_int_of(3)}, 2, (wk_int[]){wk_int_of(8), wk_int_of(2)}, 2,
                               wk__v_int(3));
  assert_non_null(y);
  wk__host_view view;
  assert_int_equal(wk__to_host(y, &view), WK_OK);
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 3; j++) assert_int_equal(((const int64_t *)view.data)[8 * i + 2 * j], 3 + 8 * i + 2 * j);
  wk__host_view_release(&view);
  wk_scope_end(&scope);
}
static void strided_values(void **state) {
  (void)state;
  on_each(views_on_the_host);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_and_indices), cmocka_unit_test(memory),         cmocka_unit_test(streams_and_events),
      cmocka_unit_test(code_and_values),   cmocka_unit_test(strided_values),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
