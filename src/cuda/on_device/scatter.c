/* Products and extremes at places, in whatever order the threads come, and columns added up to images, a thread a
 * pixel.
 *
 * In: a wk__cuda_folds, a wk__cuda_columns. Tests: tests/cuda/test_scatter.py. */
#include "cuda/scatter.h"

#include "cuda/on_device/faults.h"
#include "cuda/on_device/values.h"

/* ---- folds ---- */

/* Where element i goes, in elements of out; -1: nowhere, and its index is noted. */
INLINE int64_t place_of(const wk__cuda_folds *j, int64_t i) {
  int64_t rest = i, place = 0, along = ((const int64_t *)j->index)[i];
  if (along < 0 || along >= j->limit) {
    note_index((faults *)j->faults, along, j->limit, j->dim);
    return -1;
  }
  for (int d = j->dims - 1; d >= 0; d--) {
    int64_t at = rest % j->sizes[d];
    rest /= j->sizes[d];
    place += (d == j->dim ? along : at) * j->strides[d];
  }
  return place;
}

INLINE value folded(const wk__cuda_folds *j, value before, value x) {
  int op = j->how == WK__SCATTER_PROD  ? LOOP_reduce_prod
           : j->how == WK__SCATTER_MAX ? LOOP_reduce_max
                                       : LOOP_reduce_min;
  return combine_values(op, j->lane, before, x);
}

INLINE void fold_4(const wk__cuda_folds *j, uint32_t *to, value x) {
  uint32_t seen = *(volatile uint32_t *)to, before, after;
  do {
    before = seen;
    after = (uint32_t)folded(j, of_bits(before), x).bits;
    if (after == before) return;
    seen = (uint32_t)__nvvm_atom_cas_gen_i((int *)to, (int)before, (int)after);
  } while (seen != before);
}

INLINE void fold_8(const wk__cuda_folds *j, uint64_t *to, value x) {
  uint64_t seen = *(volatile uint64_t *)to, before, after;
  do {
    before = seen;
    after = folded(j, of_bits(before), x).bits;
    if (after == before) return;
    seen = (uint64_t)__nvvm_atom_cas_gen_ll((long long *)to, (long long)before, (long long)after);
  } while (seen != before);
}

KERNEL(fold)(wk__cuda_folds given) {
  const wk__cuda_folds *j = &given;
  int64_t step = (int64_t)block_count() * thread_count();
  for (int64_t i = (int64_t)block_index() * thread_count() + thread_index(); i < j->n; i += step) {
    int64_t place = place_of(j, i);
    if (place < 0) continue;
    if (j->lane == LANE_F32)
      fold_4(j, (uint32_t *)j->out + place, of_bits(((const uint32_t *)j->src)[i]));
    else
      fold_8(j, (uint64_t *)j->out + place, of_bits(((const uint64_t *)j->src)[i]));
  }
}

/* ---- columns ---- */

/* The place whose tap k lies over pixel p along a dim; -1: none does. */
INLINE int64_t place_over(const wk__cuda_columns *j, int d, int64_t p, int64_t k) {
  int64_t from = p + j->padding[d] - k * j->dilation[d];
  if (from < 0 || from % j->stride[d]) return -1;
  from /= j->stride[d];
  return from < j->places[d] ? from : -1;
}

#define PIXEL(T)                                                                                      \
  INLINE void add_pixel_##T(const wk__cuda_columns *j, int64_t i, int64_t plane, const int64_t *at) { \
    const T *columns = (const T *)j->columns;                                                         \
    int64_t places = j->places[0] * j->places[1];                                                     \
    T sum = 0;                                                                                        \
    for (int64_t y = 0; y < j->kernel[0]; y++) {                                                      \
      int64_t row = place_over(j, 0, at[0], y);                                                       \
      for (int64_t x = 0; row >= 0 && x < j->kernel[1]; x++) {                                        \
        int64_t column = place_over(j, 1, at[1], x);                                                  \
        int64_t tap = (plane * j->kernel[0] + y) * j->kernel[1] + x;                                  \
        if (column >= 0) sum += columns[tap * places + row * j->places[1] + column];                  \
      }                                                                                               \
    }                                                                                                 \
    ((T *)j->out)[i] = sum;                                                                           \
  }
PIXEL(float)
PIXEL(double)

KERNEL(add_columns)(wk__cuda_columns given) {
  const wk__cuda_columns *j = &given;
  int64_t pixels = j->pixels[0] * j->pixels[1], all = j->planes * pixels,
          step = (int64_t)block_count() * thread_count();
  for (int64_t i = (int64_t)block_index() * thread_count() + thread_index(); i < all; i += step) {
    int64_t plane = i / pixels, at[] = {i % pixels / j->pixels[1], i % j->pixels[1]};
    if (j->is_double)
      add_pixel_double(j, i, plane, at);
    else
      add_pixel_float(j, i, plane, at);
  }
}
