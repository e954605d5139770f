/* tensor/: dtype rules and roundings against PyTorch's (tensor_vectors.h), element access, the allocator, lifetime,
 * shape arithmetic on known and symbolic sizes, and the errors' wording. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cpu/memory.h"
#include "symbolic_sizes.h"
#include "tensor/tensor.h"
#include "tensor_vectors.h"

static wk_int k(int64_t value) { return wk_int_of(value); }

static void assert_error(wk_status category, const char *text) {
  assert_int_equal(wk_error_category(), category);
  if (!strstr(wk_error_message(), text)) fail_msg("'%s' does not say '%s'", wk_error_message(), text);
  wk_error_clear();
}

/* ---- dtypes ---- */

static void promotion_is_pytorchs(void **state) {
  (void)state;
  for (int a = 0; a < WK_DTYPE_COUNT; a++)
    for (int b = 0; b < WK_DTYPE_COUNT; b++)
      if (promotions[a][b] >= 0 && wk__promote((wk_dtype)a, (wk_dtype)b) != (wk_dtype)promotions[a][b])
        fail_msg("%s and %s give %s", wk_dtype_name((wk_dtype)a), wk_dtype_name((wk_dtype)b),
                 wk_dtype_name(wk__promote((wk_dtype)a, (wk_dtype)b)));
}

static void casting_is_pytorchs(void **state) {
  (void)state;
  for (int from = 0; from < WK_DTYPE_COUNT; from++)
    for (int to = 0; to < WK_DTYPE_COUNT; to++)
      assert_int_equal(wk__can_cast((wk_dtype)from, (wk_dtype)to), casts[from][to] == '1');
}

static const wk_dtype small_floats[] = {WK_FLOAT8_E4M3, WK_FLOAT8_E5M2, WK_FLOAT16, WK_BFLOAT16};

static uint16_t encode(float f, wk_dtype format) {
  return format == WK_FLOAT16    ? wk__f32_to_f16(f)
         : format == WK_BFLOAT16 ? wk__f32_to_bf16(f)
                                 : wk__f32_to_f8(f, format);
}
static float decode(uint16_t v, wk_dtype format) {
  return format == WK_FLOAT16    ? wk__f16_to_f32(v)
         : format == WK_BFLOAT16 ? wk__bf16_to_f32(v)
                                 : wk__f8_to_f32((uint8_t)v, format);
}

/* Sign, exponent and fraction spelled out: IEEE 754, but for e4m3, which has no infinity and one NaN a sign. */
static double meaning(uint16_t v, int exponent_bits, int fraction_bits, bool has_infinity) {
  int exponent = v >> fraction_bits & ((1 << exponent_bits) - 1), fraction = v & ((1 << fraction_bits) - 1);
  int most = (1 << exponent_bits) - 1, bias = most / 2;
  double sign = v >> (exponent_bits + fraction_bits) & 1 ? -1 : 1, unit = ldexp(1, -fraction_bits);
  if (exponent == most && has_infinity) return fraction ? NAN : sign * INFINITY;
  if (exponent == most && fraction == (1 << fraction_bits) - 1) return NAN;
  if (exponent == 0) return sign * ldexp(fraction * unit, 1 - bias);
  return sign * ldexp(1 + fraction * unit, exponent - bias);
}

static void every_small_float_is_read_right_and_comes_back(void **state) {
  (void)state;
  static const int layout[][2] = {{4, 3}, {5, 2}, {5, 10}, {8, 7}};
  for (size_t i = 0; i < WK_COUNT(small_floats); i++)
    for (int v = 0; v < 1 << (1 + layout[i][0] + layout[i][1]); v++) {
      float value = decode((uint16_t)v, small_floats[i]);
      double expected = meaning((uint16_t)v, layout[i][0], layout[i][1], i > 0);
      if (isnan(expected) != isnan(value) || (!isnan(value) && (double)value != expected) ||
          signbit(value) != signbit(value))
        fail_msg("%s %#x reads as %g", wk_dtype_name(small_floats[i]), v, value);
      if (!isnan(value)) assert_int_equal(encode(value, small_floats[i]), v);
      if (isnan(value)) assert_true(isnan(decode(encode(value, small_floats[i]), small_floats[i])));
    }
}

/* Every high half with low halves around the ties of each format; the sums were recorded. */
static void roundings_are_pytorchs(void **state) {
  (void)state;
  static const wk_dtype formats[] = {WK_FLOAT8_E4M3, WK_FLOAT8_E5M2, WK_FLOAT8_E4M3_FNUZ, WK_FLOAT8_E5M2_FNUZ,
                                     WK_FLOAT8_E8M0, WK_FLOAT16,     WK_BFLOAT16};
  static const uint32_t low[] = {0,      1,      0xfff,  0x1000, 0x1001, 0x2000, 0x2fff,
                                 0x3000, 0x3001, 0x7fff, 0x8000, 0x8001, 0xffff};
  for (size_t i = 0; i < WK_COUNT(formats); i++) {
    uint64_t sum = 0, number = 1;
    for (uint32_t high = 0; high < 1 << 16; high++)
      for (size_t l = 0; l < WK_COUNT(low); l++) {
        uint32_t bits = high << 16 | low[l];
        float f;
        memcpy(&f, &bits, sizeof f);
        if (isnan(f)) continue;
        uint64_t stored = encode(f, formats[i]);
        sum += stored * (number++ * UINT64_C(0x9e3779b97f4a7c15) | 1);
      }
    if (sum != roundings[i]) fail_msg("%s", wk_dtype_name(formats[i]));
  }
}

static void nan_stays_nan(void **state) {
  (void)state;
  for (size_t i = 0; i < WK_COUNT(small_floats); i++) {
    assert_true(isnan(decode(encode(NAN, small_floats[i]), small_floats[i])));
    assert_true(isnan(decode(encode(-NAN, small_floats[i]), small_floats[i])));
  }
}

static void elements_are_set_and_got(void **state) {
  (void)state;
  static const double values[] = {0, 1, -1, 3, 100, -100, 127.5, 1e300};
  for (wk_dtype dtype = 0; dtype < WK_DTYPE_COUNT; dtype++)
    for (size_t i = 0; i < WK_COUNT(values); i++) {
      char element[17];
      element[wk_dtype_size(dtype)] = 77;
      wk__element_set(element, dtype, (wk__scalar){WK__FLOAT_KIND, .d = values[i]});
      assert_int_equal(element[wk_dtype_size(dtype)], 77); /* nothing behind it */
      double got = wk__scalar_double(wk__element_get(element, dtype));
      if (dtype == WK_BOOL) assert_true(got == (values[i] != 0));
      if (wk_dtype_is_integral(dtype, false) && (!wk__dtype_is_unsigned(dtype) || values[i] >= 0) &&
          fabs(values[i]) <= 100)
        assert_true(got == values[i]);
      if (dtype == WK_FLOAT64 || dtype == WK_COMPLEX128) assert_true(got == values[i]);
      if (dtype == WK_FLOAT32 || dtype == WK_COMPLEX64) assert_true(got == (double)(float)values[i]);
    }
  uint8_t byte;
  wk__element_set(&byte, WK_UINT8, (wk__scalar){WK__INTEGER_KIND, .i = -1});
  assert_int_equal(byte, 255);
  int64_t integer;
  wk__element_set(&integer, WK_INT64, (wk__scalar){WK__INTEGER_KIND, .i = INT64_MAX});
  assert_true(wk__element_get(&integer, WK_INT64).i == INT64_MAX);
  wk__element_set(&integer, WK_INT64, (wk__scalar){WK__FLOAT_KIND, .d = NAN}); /* as a CPU's conversion */
  assert_true(integer == INT64_MIN);
}

/* ---- memory ---- */

static wk_tensor *make(wk_dtype dtype, int ndim, const int64_t *sizes) {
  wk_tensor *t = wk_tensor_create(dtype, ndim, sizes);
  if (!t) fail_msg("%s", wk_error_message());
  return t;
}
static wk_tensor *bytes_of(int64_t bytes) { return make(WK_UINT8, 1, &bytes); }

static void blocks_are_aligned_and_not_much_too_large(void **state) {
  (void)state;
  int64_t before = wk__allocator_live_bytes();
  for (int64_t bytes = 1; bytes < INT64_C(1) << 26; bytes += 1 + bytes / 3) {
    wk_tensor *t = bytes_of(bytes);
    int64_t capacity = t->storage->capacity;
    assert_true(((uintptr_t)t->storage->data & 63) == 0);
    assert_true(capacity >= bytes && capacity <= wk__max(bytes + 64, bytes + bytes / 8));
    assert_true(wk__allocator_live_bytes() == before + capacity);
    ((char *)t->storage->data)[0] = ((char *)t->storage->data)[bytes - 1] = 1;
    wk_tensor_release(t);
    assert_true(wk__allocator_live_bytes() == before);
  }
}

static void released_blocks_are_used_again(void **state) {
  (void)state;
  static const int64_t sizes[] = {1, 64, 65, 1000, 4096, 70000, 3000000};
  wk__allocator_release_cached(); /* there is room for all of them */
  for (size_t i = 0; i < WK_COUNT(sizes); i++) {
    wk_tensor *t = bytes_of(sizes[i]);
    void *data = t->storage->data;
    wk_tensor_release(t);
    t = bytes_of(sizes[i]);
    assert_ptr_equal(t->storage->data, data);
    wk_tensor_release(t);
  }
}

static void what_waits_is_bounded(void **state) {
  (void)state;
  enum { BLOCKS = 60 };
  wk_tensor *tensors[BLOCKS];
  wk__allocator_release_cached();
  assert_true(wk__allocator_cached_bytes() == 0);
  for (int i = 0; i < BLOCKS; i++) tensors[i] = bytes_of(4 << 20);
  for (int i = 0; i < BLOCKS; i++) wk_tensor_release(tensors[i]);
  /* What was live together may wait together, and an eighth more: a block of another size takes the place of some. */
  int64_t most = BLOCKS * (INT64_C(4) << 20);
  assert_true(wk__allocator_cached_bytes() > 0 && wk__allocator_cached_bytes() <= most);
  wk_tensor *other = bytes_of(200 << 20);
  assert_in_range(wk__allocator_cached_bytes(), 0, most + most / 8 - (INT64_C(200) << 20) + (1 << 20));
  wk_tensor_release(other);
  wk__allocator_release_cached();
  assert_true(wk__allocator_cached_bytes() == 0);
}

/* Eager steps, then compiled ones, whose values share one block: it waits for the next step. */
static void what_is_left_behind_makes_room(void **state) {
  (void)state;
  enum { BLOCKS = 30 };
  wk_tensor *tensors[BLOCKS];
  wk__allocator_release_cached();
  for (int i = 0; i < BLOCKS; i++) tensors[i] = bytes_of(5 << 20);
  for (int i = 0; i < BLOCKS; i++) wk_tensor_release(tensors[i]);
  void *data = NULL;
  for (int step = 0; step < 2; step++) {
    wk_tensor *block = bytes_of(144 << 20);
    if (step) assert_ptr_equal(block->storage->data, data);
    data = block->storage->data;
    wk_tensor_release(block);
    assert_true(wk__allocator_cached_bytes() >= INT64_C(144) << 20);
  }
  wk__allocator_release_cached();
}

static void peak_is_the_most_that_lived(void **state) {
  (void)state;
  wk__allocator_reset_peak();
  int64_t before = wk__allocator_peak_bytes();
  wk_tensor *a = bytes_of(1 << 20), *b = bytes_of(1 << 20);
  wk_tensor_release(a);
  wk_tensor_release(b);
  assert_true(wk__allocator_peak_bytes() == before + (2 << 20));
  wk__allocator_reset_peak();
  assert_true(wk__allocator_peak_bytes() == before);
}

static void *thread_body(void *argument) {
  wk_tensor **tensors = argument;
  wk_tensor_release(tensors[0]); /* of another thread */
  for (int i = 0; i < 40; i++) wk_tensor_release(bytes_of(100 * i));
  tensors[1] = bytes_of(1000);
  return NULL;
}

static void tensors_move_between_threads(void **state) {
  (void)state;
  int64_t before = wk__allocator_live_bytes();
  for (int round = 0; round < 10; round++) {
    wk_tensor *tensors[2] = {bytes_of(1000), NULL};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, thread_body, tensors), 0);
    pthread_join(thread, NULL);
    wk_tensor_release(tensors[1]);
  }
  assert_true(wk__allocator_live_bytes() == before);
}

static void impossible_sizes_fail(void **state) {
  (void)state;
  int64_t before = wk__live_allocations();
  assert_null(wk_tensor_create(WK_FLOAT32, 1, (int64_t[]){INT64_C(1) << 50}));
  assert_error(WK_OUT_OF_MEMORY,
               "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4503599627370496 bytes.");
  assert_null(wk_tensor_create(WK_FLOAT32, 2, (int64_t[]){INT64_C(1) << 40, INT64_C(1) << 40}));
  assert_error(WK_RUNTIME_ERROR, "Storage size calculation overflowed with sizes=[1099511627776, 1099511627776]");
  assert_null(wk_tensor_create(WK_FLOAT64, 1, (int64_t[]){INT64_C(1) << 61}));
  assert_error(WK_RUNTIME_ERROR, "Storage size calculation overflowed");
  assert_null(wk_tensor_create(WK_FLOAT32, 2, (int64_t[]){3, -1}));
  assert_error(WK_RUNTIME_ERROR, "Trying to create tensor with negative dimension -1: [3, -1]");
  assert_null(wk_tensor_create(WK_FLOAT32, WK_MAX_DIMS + 1, (int64_t[WK_MAX_DIMS + 1]){0}));
  assert_error(WK_RUNTIME_ERROR, "only tensors with up to 64 dims are supported");
  assert_null(wk_tensor_create((wk_dtype)99, 0, NULL));
  assert_error(WK_TYPE_ERROR, "invalid dtype");
  assert_int_equal(wk__live_allocations(), before);
}

static void note_release(void *context) { ++*(int *)context; }

static void memory_from_outside_is_handed_back_once(void **state) {
  (void)state;
  float data[] = {1, 2, 3, 4, 5, 6};
  int released = 0;
  wk_tensor *t =
      wk_tensor_from_memory(data, WK_FLOAT32, 2, (int64_t[]){2, 2}, (int64_t[]){1, 3}, note_release, &released);
  assert_non_null(t);
  assert_ptr_equal(wk_tensor_data(t), data);
  assert_false(wk_tensor_is_contiguous(t));
  assert_int_equal(t->storage->bytes, 5 * sizeof(float));
  wk__spec spec;
  wk__spec_contiguous(&spec, WK_FLOAT32, WK__CPU_DEVICE, 1, (wk_int[]){k(2)});
  spec.offset = k(3);
  wk_tensor *view = wk__tensor_alias(t, &spec);
  assert_true(((float *)wk_tensor_data(view))[0] == 4);
  wk_tensor_release(t);
  assert_int_equal(released, 0);
  assert_int_equal(wk__storage_resize(view->storage, 1000), WK_RUNTIME_ERROR);
  assert_error(WK_RUNTIME_ERROR, "not resizable");
  wk_tensor_release(view);
  assert_int_equal(released, 1);
  assert_null(wk_tensor_from_memory(data, WK_FLOAT32, 1, (int64_t[]){-1}, NULL, note_release, &released));
  assert_int_equal(released, 1); /* what failed took nothing */
  wk_error_clear();
}

#ifdef WICK_DEBUG
static void failed_allocations_leave_nothing(void **state) {
  (void)state;
  float data[4] = {0};
  int released = 0;
  static const int64_t sizes[WK_MAX_DIMS] = {2, 2, 1, 1, 1, 1, 1, 1};
  wk_tensor_release(make(WK_FLOAT32, 8, sizes));
  int64_t before = wk__live_allocations(), live = wk__allocator_live_bytes();
  int failures = 0;
  for (int n = 1;; n++) {
    wk__fault_arm(n);
    wk_tensor *t = wk_tensor_create(WK_FLOAT32, 8, sizes);
    wk_tensor *u = t ? wk_tensor_from_memory(data, WK_FLOAT32, 8, sizes, NULL, note_release, &released) : NULL;
    wk__fault_arm(0);
    bool done = t && u;
    if (!done) assert_error(WK_OUT_OF_MEMORY, "");
    failures += !done;
    assert_int_equal(released, 0);
    wk_tensor_release(u);
    wk_tensor_release(t);
    released = 0;
    assert_true(wk__allocator_live_bytes() == live);
    if (done) break;
  }
  assert_true(failures >= 4);
  assert_true(wk__live_allocations() <= before + 1); /* a struct may wait in the free list */
}
#endif

/* ---- lifetime and facts ---- */

static void facts_of_a_tensor(void **state) {
  (void)state;
  static const float values[] = {1, 2, 3, 4, 5, 6};
  wk_tensor *t = wk_tensor_from_data(values, WK_FLOAT32, 2, (int64_t[]){2, 3});
  assert_int_equal(wk_tensor_dtype(t), WK_FLOAT32);
  assert_int_equal(wk_tensor_ndim(t), 2);
  assert_int_equal(wk_tensor_size(t, -1), 3);
  assert_int_equal(wk_tensor_stride(t, 0), 3);
  assert_int_equal(wk_tensor_numel(t), 6);
  assert_true(wk_tensor_is_contiguous(t));
  assert_int_equal(wk_tensor_device(t).type, WK_CPU);
  char *text = wk_tensor_text(t);
  assert_string_equal(text, "tensor([[1., 2., 3.],\n        [4., 5., 6.]])");
  wk_text_free(text);
  double item;
  assert_int_equal(wk_tensor_item(t, &item), WK_RUNTIME_ERROR);
  assert_error(WK_RUNTIME_ERROR, "a Tensor with 6 elements cannot be converted to Scalar");
  assert_ptr_equal(wk_tensor_retain(t), t);
  wk_tensor_release(t);
  wk_tensor_release(t);
  wk_tensor_release(NULL);
  bool yes = true;
  t = wk_tensor_from_data(&yes, WK_BOOL, 3, (int64_t[]){1, 1, 1});
  assert_int_equal(wk_tensor_item(t, &item), WK_OK);
  assert_true(item == 1);
  wk_tensor_release(t);
}

static void views_share_storage_and_version(void **state) {
  (void)state;
  wk_tensor *t = make(WK_FLOAT32, 2, (int64_t[]){3, 4});
  wk__spec spec;
  wk__spec_of(&spec, t);
  spec.sizes[0] = k(4), spec.sizes[1] = k(3);
  spec.strides[0] = k(1), spec.strides[1] = k(4);
  wk_tensor *view = wk__tensor_alias(t, &spec);
  assert_ptr_equal(view->storage, t->storage);
  assert_false(wk__is_contiguous(view));
  wk__version_bump(view);
  assert_int_equal(wk__version(t), 1);
  wk_tensor *apart = wk__tensor_alias(t, &spec);
  assert_int_equal(wk__version_detach(apart, 7), WK_OK);
  wk_tensor *its_view = wk__tensor_alias(apart, &spec);
  wk__version_bump(its_view);
  assert_int_equal(wk__version(t), 1);
  assert_int_equal(wk__version(apart), 8);
  wk_tensor_release(apart);
  assert_int_equal(wk__version(its_view), 8);
  wk_tensor_release(its_view);
  wk_tensor_release(t);
  ((float *)wk_tensor_data(view))[11] = 5; /* the storage lives on */
  assert_int_equal(wk__storage_resize(view->storage, 1 << 20), WK_OK);
  assert_true(((float *)wk_tensor_data(view))[11] == 5);
  wk_tensor_release(view);
}

/* Beyond the dims that a tensor holds inline, and back. */
static void geometry_of_many_dims(void **state) {
  (void)state;
  int64_t before = wk__live_allocations(), sizes[WK_MAX_DIMS];
  for (int d = 0; d < WK_MAX_DIMS; d++) sizes[d] = d % 8 == 7 ? 2 : 1;
  wk_tensor *t = make(WK_INT16, WK_MAX_DIMS, sizes);
  assert_int_equal(wk_tensor_numel(t), 256);
  assert_int_equal(wk_tensor_stride(t, 0), 256);
  wk__spec spec;
  for (int round = 0; round < 2; round++) {
    wk__spec_contiguous(&spec, WK_INT16, WK__CPU_DEVICE, 1, (wk_int[]){k(256)});
    assert_int_equal(wk__tensor_set_geometry(t, &spec), WK_OK);
    assert_int_equal(wk_tensor_size(t, 0), 256);
    wk_int many[9] = {k(4), k(4), k(4), k(4), k(1), k(1), k(1), k(1), k(1)};
    wk__spec_contiguous(&spec, WK_INT16, WK__CPU_DEVICE, 9, many);
    assert_int_equal(wk__tensor_set_geometry(t, &spec), WK_OK);
    assert_int_equal(wk_tensor_size(t, 3), 4);
  }
  wk_tensor_release(t);
  assert_true(wk__live_allocations() <= before + 1);
}

/* ---- shape arithmetic on known sizes ---- */

static wk_tensor *shaped(int ndim, const int64_t *sizes, const int64_t *strides) {
  wk__spec spec = {.dtype = WK_FLOAT32, .ndim = (uint8_t)ndim};
  for (int d = 0; d < ndim; d++) spec.sizes[d] = k(sizes[d]), spec.strides[d] = k(strides[d]);
  return wk__tensor_shape_only(&spec);
}

static void view_strides_are_pytorchs(void **state) {
  (void)state;
  for (size_t i = 0; i < WK_COUNT(views); i++) {
    const struct recorded_view *v = &views[i];
    wk_tensor *t = shaped(v->ndim, v->sizes, v->strides);
    wk_int sizes[8], strides[8];
    for (int d = 0; d < v->new_ndim; d++) sizes[d] = k(v->new_sizes[d]);
    bool possible = wk__view_strides(t, sizes, v->new_ndim, strides);
    if (possible != (v->possible != 0)) fail_msg("view %zu: possible is %d", i, possible);
    for (int d = 0; possible && d < v->new_ndim; d++)
      if (strides[d].bits != v->new_strides[d])
        fail_msg("view %zu: stride %d is %lld", i, d, (long long)strides[d].bits);
    wk_tensor_release(t);
  }
}

static void dims_wrap(void **state) {
  (void)state;
  int dim;
  assert_int_equal(wk__wrap_dim(-1, 3, &dim), WK_OK);
  assert_int_equal(dim, 2);
  assert_int_equal(wk__wrap_dim(-1, 0, &dim), WK_OK);
  assert_int_equal(dim, 0);
  assert_int_equal(wk__wrap_dim(2, 2, &dim), WK_INDEX_ERROR);
  assert_error(WK_INDEX_ERROR, "Dimension out of range (expected to be in range of [-2, 1], but got 2)");
  assert_int_equal(wk__wrap_dim(1, 0, &dim), WK_INDEX_ERROR);
  assert_error(WK_INDEX_ERROR, "Dimension out of range (expected to be in range of [-1, 0], but got 1)");
}

static void assert_broadcast(const wk_int *a, int a_ndim, const wk_int *b, int b_ndim, const char *expected) {
  wk_int sizes[WK_MAX_DIMS];
  int ndim;
  if (wk__broadcast(a, a_ndim, b, b_ndim, sizes, &ndim) != WK_OK) fail_msg("%s", wk_error_message());
  wk__string text = {0};
  print_symbolic_sizes(&text, sizes, ndim);
  assert_string_equal(text.text, expected);
  wk__string_release(&text);
}
#define LIST(...) (wk_int[]){__VA_ARGS__}, (int)(sizeof((wk_int[]){__VA_ARGS__}) / sizeof(wk_int))

static void shapes_broadcast(void **state) {
  (void)state;
  wk_int sizes[WK_MAX_DIMS];
  int ndim;
  assert_broadcast(LIST(k(2), k(3)), LIST(k(3)), "[2, 3]");
  assert_broadcast(LIST(k(5), k(1), k(3)), LIST(k(4), k(1)), "[5, 4, 3]");
  assert_broadcast(LIST(k(0), k(1)), LIST(k(1), k(7)), "[0, 7]");
  assert_broadcast(NULL, 0, LIST(k(1)), "[1]");
  assert_broadcast(NULL, 0, NULL, 0, "[]");
  assert_int_equal(wk__broadcast(LIST(k(2), k(3)), LIST(k(2), k(4)), sizes, &ndim), WK_RUNTIME_ERROR);
  assert_error(WK_RUNTIME_ERROR,
               "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1");
  assert_int_equal(wk__broadcast(LIST(k(0)), LIST(k(2)), sizes, &ndim), WK_RUNTIME_ERROR);
  wk_error_clear();
}

static void infer(const wk_int *shape, int ndim, int64_t numel, int64_t expected) {
  wk_int sizes[WK_MAX_DIMS];
  assert_int_equal(wk__infer_size(shape, ndim, k(numel), sizes), WK_OK);
  for (int d = 0; d < ndim; d++)
    if (shape[d].bits == -1) assert_int_equal(sizes[d].bits, expected);
}
static void refuse(const wk_int *shape, int ndim, int64_t numel, const char *text) {
  wk_int sizes[WK_MAX_DIMS];
  assert_int_equal(wk__infer_size(shape, ndim, k(numel), sizes), WK_RUNTIME_ERROR);
  assert_error(WK_RUNTIME_ERROR, text);
}

static void one_size_is_inferred(void **state) {
  (void)state;
  infer(LIST(k(2), k(-1)), 6, 3);
  infer(LIST(k(-1)), 0, 0);
  infer(LIST(k(3), k(-1)), 0, 0);
  infer(NULL, 0, 1, 0);
  refuse(LIST(k(4)), 6, "shape '[4]' is invalid for input of size 6");
  refuse(LIST(k(4), k(-1)), 6, "shape '[4, -1]' is invalid for input of size 6");
  refuse(LIST(k(0), k(-1)), 6, "shape '[0, -1]' is invalid for input of size 6");
  refuse(LIST(k(-1), k(-1)), 6, "only one dimension can be inferred");
  refuse(LIST(k(-2), k(3)), 6, "invalid shape dimension -2 at index 0 of shape [-2, 3]");
  refuse(LIST(k(-1), k(0)), 0,
         "cannot reshape tensor of 0 elements into shape [-1, 0] because the unspecified dimension size "
         "-1 can be any value and is ambiguous");
}

static void assert_overlap(int ndim, const int64_t *sizes, const int64_t *strides, bool dense, bool overlap) {
  wk_tensor *t = shaped(ndim, sizes, strides);
  assert_int_equal(wk__non_overlapping_and_dense(t), dense);
  assert_int_equal(wk__has_internal_overlap(t), overlap);
  wk_tensor_release(t);
}

static void overlap_is_seen(void **state) {
  (void)state;
  assert_overlap(2, (int64_t[]){2, 3}, (int64_t[]){3, 1}, true, false);
  assert_overlap(2, (int64_t[]){2, 3}, (int64_t[]){1, 2}, true, false);
  assert_overlap(3, (int64_t[]){2, 1, 3}, (int64_t[]){1, 100, 2}, true, false);
  assert_overlap(2, (int64_t[]){2, 3}, (int64_t[]){4, 1}, false, false);
  assert_overlap(2, (int64_t[]){2, 3}, (int64_t[]){0, 1}, false, true);
  assert_overlap(2, (int64_t[]){2, 3}, (int64_t[]){1, 1}, false, false); /* too hard to say, as in PyTorch */
  assert_overlap(2, (int64_t[]){1, 3}, (int64_t[]){0, 1}, true, false);
  assert_overlap(1, (int64_t[]){0}, (int64_t[]){0}, true, false);
  assert_overlap(0, NULL, NULL, true, false);
}

static void memory_ranges(void **state) {
  (void)state;
  int64_t begin, end;
  wk_tensor *t = shaped(2, (int64_t[]){2, 3}, (int64_t[]){10, 2});
  t->offset = k(5);
  wk__memory_range(t, &begin, &end);
  assert_int_equal(begin, 20);
  assert_int_equal(end, 20 + 4 * (10 + 4 + 1));
  wk_tensor_release(t);
  t = shaped(2, (int64_t[]){2, 0}, (int64_t[]){1, 1});
  wk__memory_range(t, &begin, &end);
  assert_int_equal(begin, end);
  wk_tensor_release(t);
}

/* ---- the same on symbolic sizes ---- */

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

static void assert_sizes(const wk_int *sizes, int ndim, const char *expected) {
  wk__string text = {0};
  print_symbolic_sizes(&text, sizes, ndim);
  assert_string_equal(text.text, expected);
  wk__string_release(&text);
}

/* All guards, separated by ", ". */
static void assert_guards(const char *expected) {
  wk__string text = {0};
  wk__string_append(&text, "");
  for (int64_t i = 0; i < wk__shape_env_guard_count(env); i++) {
    if (i) wk__string_append(&text, ", ");
    wk__sym_guard_print(&text, wk__shape_env_guard(env, i));
  }
  assert_string_equal(text.text ? text.text : "", expected);
  wk__string_release(&text);
}

static wk_tensor *symbolic(const wk_int *sizes, int ndim) {
  wk__spec spec;
  wk__spec_contiguous(&spec, WK_FLOAT32, WK__CPU_DEVICE, ndim, sizes);
  wk_tensor *t = wk__tensor_shape_only(&spec);
  assert_non_null(t);
  return t;
}

static void symbolic_tensors_have_contiguous_strides(void **state) {
  (void)state;
  wk_tensor *t = symbolic(LIST(s0, s1, k(4)));
  assert_sizes(t->strides, 3, "[4*s1, 4, 1]");
  assert_sizes(&t->numel, 1, "[4*s0*s1]");
  assert_true(wk__is_contiguous(t));
  assert_true(wk__non_overlapping_and_dense(t));
  wk_tensor_release(t);
  assert_guards("");
}

static void symbolic_shapes_broadcast(void **state) {
  (void)state;
  assert_broadcast(LIST(s0, k(1)), LIST(k(1), s1), "[s0, s1]");
  assert_broadcast(LIST(s0, s1), LIST(s1), "[s0, s1]");
  assert_broadcast(LIST(k(1), s1), LIST(s0, s1), "[s0, s1]");
  assert_guards("");
  assert_broadcast(LIST(s0), LIST(k(8)), "[8]");
  assert_guards("s0 == 8");
  wk_int sizes[WK_MAX_DIMS];
  int ndim;
  assert_int_equal(wk__broadcast(LIST(s1), LIST(k(8)), sizes, &ndim), WK_RUNTIME_ERROR);
  assert_error(WK_RUNTIME_ERROR,
               "The size of tensor a (s1) must match the size of tensor b (8) at non-singleton dimension 0");
}

static void assert_view(const wk_tensor *t, const wk_int *shape, int ndim, const char *sizes_text,
                        const char *strides_text) {
  wk_int sizes[WK_MAX_DIMS], strides[WK_MAX_DIMS];
  if (wk__infer_size(shape, ndim, t->numel, sizes) != WK_OK) fail_msg("%s", wk_error_message());
  assert_sizes(sizes, ndim, sizes_text);
  assert_true(wk__view_strides(t, sizes, ndim, strides));
  assert_sizes(strides, ndim, strides_text);
}

static void symbolic_shapes_are_viewed(void **state) {
  (void)state;
  wk_tensor *t = symbolic(LIST(s0, s1, k(4)));
  assert_view(t, LIST(k(-1)), "[4*s0*s1]", "[1]");
  assert_view(t, LIST(k(-1), k(4)), "[s0*s1, 4]", "[4, 1]");
  assert_view(t, LIST(s0, k(-1)), "[s0, 4*s1]", "[4*s1, 1]");
  assert_view(t, LIST(s0, s1, k(2), k(2)), "[s0, s1, 2, 2]", "[4*s1, 4, 2, 1]");
  assert_guards("");
  wk_tensor_release(t);
}

/* Its dims cannot be joined: that is known without asking for values. */
static void symbolic_transposes_cannot_be_flattened(void **state) {
  (void)state;
  wk__spec spec;
  wk_int strides[WK_MAX_DIMS];
  wk__spec_contiguous(&spec, WK_FLOAT32, WK__CPU_DEVICE, 2, (wk_int[]){s0, s1});
  spec.strides[0] = k(1);
  spec.strides[1] = s0;
  wk_tensor *t = wk__tensor_shape_only(&spec);
  assert_false(wk__is_contiguous(t));
  assert_false(wk__view_strides(t, (wk_int[]){wk_int_mul(s0, s1)}, 1, strides));
  wk_tensor_release(t);
}

static void symbolic_sizes_are_compared(void **state) {
  (void)state;
  wk_tensor *a = symbolic(LIST(s0, s1)), *b = symbolic(LIST(s0, s1)), *c = symbolic(LIST(k(8), s1));
  assert_true(wk__same_sizes(a, b));
  assert_guards("");
  assert_true(wk__same_sizes(a, c));
  assert_guards("s0 == 8");
  wk_tensor_release(a);
  wk_tensor_release(b);
  wk_tensor_release(c);
}

#define TEST(name) cmocka_unit_test(name)
#define SYMBOLIC(name) cmocka_unit_test_setup_teardown(name, set_up_symbols, tear_down_symbols)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(promotion_is_pytorchs),
      TEST(casting_is_pytorchs),
      TEST(every_small_float_is_read_right_and_comes_back),
      TEST(roundings_are_pytorchs),
      TEST(nan_stays_nan),
      TEST(elements_are_set_and_got),
      TEST(blocks_are_aligned_and_not_much_too_large),
      TEST(released_blocks_are_used_again),
      TEST(what_is_left_behind_makes_room), /* before anything larger has lived */
      TEST(what_waits_is_bounded),
      TEST(peak_is_the_most_that_lived),
      TEST(tensors_move_between_threads),
      TEST(impossible_sizes_fail),
      TEST(memory_from_outside_is_handed_back_once),
#ifdef WICK_DEBUG
      TEST(failed_allocations_leave_nothing),
#endif
      TEST(facts_of_a_tensor),
      TEST(views_share_storage_and_version),
      TEST(geometry_of_many_dims),
      TEST(view_strides_are_pytorchs),
      TEST(dims_wrap),
      TEST(shapes_broadcast),
      TEST(one_size_is_inferred),
      TEST(overlap_is_seen),
      TEST(memory_ranges),
      SYMBOLIC(symbolic_tensors_have_contiguous_strides),
      SYMBOLIC(symbolic_shapes_broadcast),
      SYMBOLIC(symbolic_shapes_are_viewed),
      SYMBOLIC(symbolic_transposes_cannot_be_flattened),
      SYMBOLIC(symbolic_sizes_are_compared),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
