/* base/: errors, heap and fault injection, arenas, maps, strings, CPU levels, the thread pool. */
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "wick/ops.h"

/* ---- Errors ---- */

static wk_status fail_with(const char *what) { return wk_fail(WK_VALUE_ERROR, "bad %s", what); }

static wk_status pass_on(void) {
  WK_TRY(fail_with("thing"));
  return WK_OK;
}

static void error_keeps_category_message_origin(void **state) {
  (void)state;
  assert_int_equal(pass_on(), WK_VALUE_ERROR);
  assert_int_equal(wk_error_category(), WK_VALUE_ERROR);
  assert_string_equal(wk_error_message(), "bad thing");
  assert_non_null(strstr(wk_error_origin(), "test_base.c:"));
  wk_error_clear();
  assert_int_equal(wk_error_category(), WK_OK);
  assert_string_equal(wk_error_message(), "");
}

static void error_message_may_quote_the_last_one(void **state) {
  (void)state;
  (void)wk_fail(WK_KEY_ERROR, "inner");
  (void)wk_fail(WK_RUNTIME_ERROR, "outer: %s", wk_error_message());
  assert_string_equal(wk_error_message(), "outer: inner");
}

static void error_message_too_long_is_cut(void **state) {
  (void)state;
  char text[5000];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = 0;
  (void)wk_fail(WK_RUNTIME_ERROR, "%s", text);
  size_t length = strlen(wk_error_message());
  assert_true(length > 1000 && length < 5000);
  assert_string_equal(wk_error_message() + length - 3, "...");
}

static void *read_error(void *unused) {
  (void)unused;
  return (void *)(intptr_t)wk_error_category();
}

static void error_belongs_to_its_thread(void **state) {
  (void)state;
  pthread_t thread;
  void *seen;
  (void)wk_fail(WK_IO_ERROR, "mine");
  pthread_create(&thread, NULL, read_error, NULL);
  pthread_join(thread, &seen);
  assert_int_equal((intptr_t)seen, WK_OK);
  assert_int_equal(wk_error_category(), WK_IO_ERROR);
}

/* ---- Memory ---- */

static void memory_blocks_are_usable_and_counted(void **state) {
  (void)state;
  int64_t before = wk__live_allocations();
  void *blocks[] = {wk__alloc(0), wk__alloc(100), wk__alloc_zeroed(100), wk__alloc_aligned(100, 64), wk__strdup("abc")};
  for (size_t i = 0; i < WK_COUNT(blocks); i++) assert_non_null(blocks[i]);
  assert_ptr_not_equal(blocks[0], blocks[1]);
  for (int i = 0; i < 100; i++) assert_int_equal(((char *)blocks[2])[i], 0);
  assert_int_equal((uintptr_t)blocks[3] % 64, 0);
  assert_string_equal(blocks[4], "abc");
  blocks[4] = wk__realloc(blocks[4], 1000);
  assert_string_equal(blocks[4], "abc");
#ifdef WICK_DEBUG
  assert_int_equal(wk__live_allocations() - before, 5);
#endif
  for (size_t i = 0; i < WK_COUNT(blocks); i++) wk__free(blocks[i]);
  wk__free(NULL);
  assert_int_equal(wk__live_allocations(), before);
}

static void memory_impossible_size_is_an_error(void **state) {
  (void)state;
  void *array = NULL;
  int64_t capacity = 0;
  volatile size_t huge = SIZE_MAX / 2;
  assert_null(wk__alloc(huge));
  assert_int_equal(wk_error_category(), WK_OUT_OF_MEMORY);
  assert_int_equal(wk__grow(&array, &capacity, INT64_MAX / 2, 64), WK_OUT_OF_MEMORY);
  assert_null(array);
  assert_int_equal(capacity, 0);
}

static void memory_grow_keeps_contents(void **state) {
  (void)state;
  int *numbers = NULL;
  int64_t capacity = 0;
  for (int i = 0; i < 1000; i++) {
    assert_int_equal(wk__grow(&numbers, &capacity, i + 1, sizeof *numbers), WK_OK);
    assert_true(capacity > i);
    numbers[i] = i;
  }
  for (int i = 0; i < 1000; i++) assert_int_equal(numbers[i], i);
  wk__free(numbers);
}

/* ---- Arenas ---- */

static void arena_pieces_are_apart_aligned_and_zero(void **state) {
  (void)state;
  int64_t before = wk__live_allocations();
  wk__arena arena = {0};
  unsigned char *pieces[300];
  for (int round = 0; round < 2; round++) { /* the second time on the released arena */
    for (int i = 0; i < 300; i++) {
      size_t size = i % 50 == 49 ? 20000 : (size_t)i;
      pieces[i] = wk__arena_alloc(&arena, size);
      assert_int_equal((uintptr_t)pieces[i] % 16, 0);
      for (size_t k = 0; k < size; k++) assert_int_equal(pieces[i][k], 0);
      memset(pieces[i], i & 255, size);
    }
    for (int i = 0; i < 300; i++) {
      size_t size = i % 50 == 49 ? 20000 : (size_t)i;
      for (size_t k = 0; k < size; k++) assert_int_equal(pieces[i][k], i & 255);
    }
    assert_string_equal(wk__arena_strdup(&arena, "text"), "text");
    wk__arena_release(&arena);
  }
  assert_int_equal(wk__live_allocations(), before);
}

static void arena_impossible_size_is_an_error(void **state) {
  (void)state;
  wk__arena arena = {0};
  assert_null(wk__arena_alloc(&arena, SIZE_MAX - 3));
  assert_int_equal(wk_error_category(), WK_OUT_OF_MEMORY);
  wk__arena_release(&arena);
}

/* ---- Maps ---- */

/* Random sets and removals, against a plain array. */
static void map_agrees_with_an_array(void **state) {
  (void)state;
  enum { KEYS = 500 };
  wk__map map = {0};
  void *expected[KEYS] = {0};
  uint32_t count = 0;
  srand(1);
  for (int step = 0; step < 50000; step++) {
    int k = rand() % KEYS;
    uint64_t key = (uint64_t)(k + 1) << (k % 3 * 20); /* some keys differ in high bits only */
    if (rand() % 2) {
      void *value = &expected[rand() % KEYS];
      assert_int_equal(wk__map_set(&map, key, value), WK_OK);
      count += expected[k] == NULL;
      expected[k] = value;
    } else {
      wk__map_remove(&map, key);
      count -= expected[k] != NULL;
      expected[k] = NULL;
    }
    assert_ptr_equal(wk__map_get(&map, key), expected[k]);
    assert_int_equal(map.count, count);
  }
  for (int k = 0; k < KEYS; k++) {
    assert_ptr_equal(wk__map_get(&map, (uint64_t)(k + 1) << (k % 3 * 20)), expected[k]);
  }
  wk__map_release(&map);
  assert_null(wk__map_get(&map, 1));
}

static void map_hash_depends_on_bytes_size_and_seed(void **state) {
  (void)state;
  const char text[] = "abcdefghijklmnop\0\0";
  assert_int_equal(wk__hash_bytes(text, 16, 7), wk__hash_bytes("abcdefghijklmnop", 16, 7));
  assert_int_not_equal(wk__hash_bytes(text, 16, 7), wk__hash_bytes(text, 16, 8));
  assert_int_not_equal(wk__hash_bytes(text, 16, 7), wk__hash_bytes(text, 17, 7));
  assert_int_not_equal(wk__hash_bytes(text, 17, 7), wk__hash_bytes(text, 18, 7));
  assert_int_not_equal(wk__hash_bytes("a", 1, 7), wk__hash_bytes("b", 1, 7));
}

/* Notes of captures are found by such a hash alone: of a kind, two places, and an address or none. */
static void mixed_numbers_do_not_meet(void **state) {
  (void)state;
  enum { KINDS = 50, FIRST = 200, SECOND = 8 };
  const uint64_t addresses[] = {0, 0x7f0000001230, 0x7f0000001240};
  wk__map seen = {0};
  for (uint64_t kind = 1; kind <= KINDS; kind++)
    for (uint64_t a = 0; a < FIRST; a++)
      for (uint64_t b = 0; b < SECOND; b++)
        for (size_t k = 0; k < WK_COUNT(addresses); k++) {
          uint64_t h = wk__hash_mix(wk__hash_mix(wk__hash_mix(kind, a), b), addresses[k]);
          assert_null(wk__map_get(&seen, h));
          assert_int_equal(wk__map_set(&seen, h, &seen), WK_OK);
        }
  wk__map_release(&seen);
}

/* ---- Strings ---- */

static void string_grows_by_pieces(void **state) {
  (void)state;
  wk__string s = {0};
  char expected[8000] = "";
  for (int i = 0; i < 100; i++) {
    char piece[200];
    snprintf(piece, sizeof piece, "%d:%*s;", i, i, "");
    strcat(expected, piece);
    strcat(expected, "xyab");
    wk__string_printf(&s, "%d:%*s;", i, i, "");
    wk__string_append(&s, "xy");
    wk__string_append_n(&s, "abcd", 2);
  }
  assert_int_equal(s.length, strlen(expected));
  char *text = wk__string_take(&s);
  assert_string_equal(text, expected);
  assert_null(s.text);
  wk__free(text);
  text = wk__string_take(&s);
  assert_string_equal(text, "");
  wk__free(text);
}

static void string_writes_integers(void **state) {
  (void)state;
  const int64_t numbers[] = {0, 7, -7, 10, 1234567890123, INT64_MAX, INT64_MIN};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    wk__string s = {0};
    char expected[32];
    snprintf(expected, sizeof expected, "%" PRId64, numbers[i]);
    wk__string_append_integer(&s, numbers[i]);
    char *text = wk__string_take(&s);
    assert_string_equal(text, expected);
    wk__free(text);
  }
}

/* ---- Faults: the n-th event fails, for every n, and nothing leaks. ---- */

static wk_status use_everything(void) {
  wk__arena arena = {0};
  wk__map map = {0};
  wk__string s = {0};
  wk_status status = WK_OK;
  for (uint64_t i = 1; i <= 40 && status == WK_OK; i++) {
    char *piece = wk__arena_alloc(&arena, i * 100);
    status = piece ? wk__map_set(&map, i, piece) : WK_OUT_OF_MEMORY;
    wk__string_printf(&s, "%0100d", (int)i);
  }
  char *text = wk__string_take(&s);
  if (!text) status = WK_OUT_OF_MEMORY;
  wk__free(text);
  wk__map_release(&map);
  wk__arena_release(&arena);
  return status;
}

static void faults_surface_and_leak_nothing(void **state) {
  (void)state;
#ifndef WICK_DEBUG
  skip();
#endif
  int64_t before = wk__live_allocations();
  int64_t n = 0;
  wk_status status;
  do {
    wk_error_clear();
    wk__fault_arm(++n);
    status = use_everything();
    assert_int_equal(status, wk_error_category());
    assert_int_equal(wk__live_allocations(), before);
  } while (status == WK_OUT_OF_MEMORY);
  wk__fault_arm(0);
  assert_int_equal(status, WK_OK);
  assert_true(n > 10);
}

/* ---- Log ---- */

static void log_channels_are_off_until_asked_for(void **state) {
  (void)state;
  uint32_t before = wk__log_mask;
  wk__log_mask = 1u << WK__LOG_LOOP;
  assert_true(wk__log_on(WK__LOG_LOOP));
  assert_false(wk__log_on(WK__LOG_OPS));
  wk__log_mask = before;
}

/* ---- CPU ---- */

static void cpu_level_can_be_lowered_but_not_raised(void **state) {
  (void)state;
  wk__cpu_level max = wk__cpu_level_max(), before = wk__cpu_level_get();
  assert_true(before <= max);
  assert_int_equal(wk__cpu_level_set(WK__CPU_PORTABLE), WK_OK);
  assert_int_equal(wk__cpu_level_get(), WK__CPU_PORTABLE);
  assert_int_equal(wk__cpu_level_set((wk__cpu_level)(max + 1)), WK_VALUE_ERROR);
  assert_int_equal(wk__cpu_level_get(), WK__CPU_PORTABLE);
  assert_int_equal(wk__cpu_level_set(before), WK_OK);
  assert_string_equal(wk__cpu_level_name(WK__CPU_AVX2), "avx2");
}

/* ---- Threads ---- */

enum { COUNT = 10007, GRAIN = 10 };

typedef struct {
  atomic_int visits[COUNT];
  atomic_bool misaligned, wrong_index;
} visits;

static void visit(void *context, int64_t begin, int64_t end) {
  visits *v = context;
  if (begin % GRAIN || (end % GRAIN && end != COUNT) || begin >= end) v->misaligned = true;
  if (wk__thread_index() < 0 || wk__thread_index() >= wk_get_num_threads()) v->wrong_index = true;
  for (int64_t i = begin; i < end; i++) v->visits[i]++;
}

static bool covers_once(void) {
  visits *v = calloc(1, sizeof *v);
  wk__parallel_for(COUNT, GRAIN, visit, v);
  bool ok = !v->misaligned && !v->wrong_index;
  for (int i = 0; i < COUNT; i++) ok = ok && v->visits[i] == 1;
  free(v);
  return ok;
}

static void *start_state(void *unused) {
  (void)unused;
  static wk__thread_state seen;
  seen = wk__thread;
  return &seen;
}

/* What one thread sets is not another's; a new one starts with the defaults. */
static void threads_have_a_state_of_their_own(void **state) {
  (void)state;
  wk_scope scope = {0};
  wk__thread_state before = wk__thread;
  wk__thread.mode.grad_enabled = false;
  wk__thread.default_dtype = WK_FLOAT64;
  wk__thread.scope = &scope;
  pthread_t thread;
  void *result;
  pthread_create(&thread, NULL, start_state, NULL);
  pthread_join(thread, &result);
  const wk__thread_state *seen = result;
  assert_true(seen->mode.grad_enabled);
  assert_int_equal(seen->mode.keys_on, 0);
  assert_int_equal(seen->mode.keys_off, 0);
  assert_int_equal(seen->default_dtype, WK_FLOAT32);
  assert_int_equal(seen->print.precision, 4);
  assert_null(seen->tracer);
  assert_null(seen->session);
  assert_null(seen->scope);
  assert_ptr_equal(wk__thread.scope, &scope);
  wk__thread = before;
}

static void threads_cover_the_range_once(void **state) {
  (void)state;
  assert_int_equal(wk_set_num_threads(4), WK_OK);
  for (int i = 0; i < 2000; i++) {
    if (i % 500 == 499) usleep(2000); /* long enough for the workers to go to sleep */
    assert_true(covers_once());
  }
}

static void fail_if_called(void *context, int64_t begin, int64_t end) {
  (void)begin, (void)end;
  *(bool *)context = true;
}

static void threads_empty_range_calls_nothing(void **state) {
  (void)state;
  bool called = false;
  wk__parallel_for(0, 1, fail_if_called, &called);
  wk__parallel_for(-5, 1, fail_if_called, &called);
  assert_false(called);
}

static void threads_number_can_change(void **state) {
  (void)state;
  int sizes[] = {1, 3, 8, 2, 5, 1, 4};
  for (size_t i = 0; i < WK_COUNT(sizes); i++) {
    assert_int_equal(wk_set_num_threads(sizes[i]), WK_OK);
    assert_int_equal(wk_get_num_threads(), sizes[i]);
    for (int k = 0; k < 20; k++) assert_true(covers_once());
  }
  assert_int_equal(wk_set_num_threads(0), WK_RUNTIME_ERROR);
  assert_int_equal(wk_get_num_threads(), 4);
}

typedef struct {
  pthread_t thread;
  atomic_int *total;
  bool same_thread;
} inner_call;

static void inner(void *context, int64_t begin, int64_t end) {
  inner_call *call = context;
  if (!pthread_equal(call->thread, pthread_self())) call->same_thread = false;
  atomic_fetch_add(call->total, (int)(end - begin));
}

static void outer(void *context, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) {
    int index = wk__thread_index();
    inner_call call = {pthread_self(), context, true};
    wk__parallel_for(100, 1, inner, &call);
    if (!call.same_thread || wk__thread_index() != index) atomic_fetch_add((atomic_int *)context, 1000000);
  }
}

static void threads_nested_call_runs_inline(void **state) {
  (void)state;
  atomic_int total = 0;
  wk__parallel_for(50, 1, outer, &total);
  assert_int_equal(total, 5000);
}

static void *cover_often(void *unused) {
  (void)unused;
  bool ok = true;
  for (int i = 0; i < 500; i++) ok = covers_once() && ok;
  return (void *)(intptr_t)ok;
}

static void threads_several_callers_at_once(void **state) {
  (void)state;
  pthread_t callers[3];
  for (int i = 0; i < 3; i++) pthread_create(&callers[i], NULL, cover_often, NULL);
  bool ok = cover_often(NULL);
  for (int i = 0; i < 3; i++) {
    void *result;
    pthread_join(callers[i], &result);
    ok = ok && result;
  }
  assert_true(ok);
}

static void threads_work_in_a_forked_child(void **state) {
  (void)state;
  assert_true(covers_once()); /* the parent's pool runs */
  for (int i = 0; i < 10; i++) {
    pid_t child = fork();
    if (child == 0) {
      bool ok = true;
      for (int k = 0; k < 20; k++) ok = covers_once() && ok;
      _exit(ok ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(covers_once());
  }
}

static void threads_that_cannot_start_are_done_without(void **state) {
  (void)state;
#ifndef WICK_DEBUG
  skip();
#endif
  assert_int_equal(wk_set_num_threads(1), WK_OK);
  assert_true(covers_once());
  assert_int_equal(wk_set_num_threads(6), WK_OK);
  wk__fault_arm(3);
  assert_true(covers_once());
  wk__fault_arm(0);
  assert_true(covers_once());
  assert_int_equal(wk_set_num_threads(4), WK_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(error_keeps_category_message_origin),
      cmocka_unit_test(error_message_may_quote_the_last_one),
      cmocka_unit_test(error_message_too_long_is_cut),
      cmocka_unit_test(error_belongs_to_its_thread),
      cmocka_unit_test(memory_blocks_are_usable_and_counted),
      cmocka_unit_test(memory_impossible_size_is_an_error),
      cmocka_unit_test(memory_grow_keeps_contents),
      cmocka_unit_test(arena_pieces_are_apart_aligned_and_zero),
      cmocka_unit_test(arena_impossible_size_is_an_error),
      cmocka_unit_test(map_agrees_with_an_array),
      cmocka_unit_test(map_hash_depends_on_bytes_size_and_seed),
      cmocka_unit_test(mixed_numbers_do_not_meet),
      cmocka_unit_test(string_grows_by_pieces),
      cmocka_unit_test(string_writes_integers),
      cmocka_unit_test(faults_surface_and_leak_nothing),
      cmocka_unit_test(log_channels_are_off_until_asked_for),
      cmocka_unit_test(cpu_level_can_be_lowered_but_not_raised),
      cmocka_unit_test(threads_have_a_state_of_their_own),
      cmocka_unit_test(threads_cover_the_range_once),
      cmocka_unit_test(threads_empty_range_calls_nothing),
      cmocka_unit_test(threads_number_can_change),
      cmocka_unit_test(threads_nested_call_runs_inline),
      cmocka_unit_test(threads_several_callers_at_once),
      cmocka_unit_test(threads_work_in_a_forked_child),
      cmocka_unit_test(threads_that_cannot_start_are_done_without),
  };
  return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
