/* Means and largest elements of the bins of regions, and their gradients, a thread a bin of a channel. Forward has the
 * host's bits; gradients are added in whatever order the threads come. In: a wk__regions. Tests:
 * tests/cuda/test_vision.py. */
#include <math.h>

#include "cuda/on_device/device.h"
#include "cuda/on_device/faults.h"

static double ceil(double x) { return __builtin_ceil(x); }
static double round(double x) { return __builtin_round(x); }
static double fmin(double a, double b) { return a < b ? a : b; }
static double fmax(double a, double b) { return a > b ? a : b; }
#include "cpu/kernels/regions_body.h"

/* One thread's: bin (row, column) of channel c of region k, and the plane of the image that it lies in. */
typedef struct bin {
  int64_t at, k, row, column;
  int64_t plane; /* its first pixel */
} bin;

/* False: the region is of an image that is not there, which is noted. */
INLINE bool find(const wk__regions *r, int64_t i, bin *b) {
  int64_t bins = r->rows * r->columns, channel = i / bins % r->channels;
  *b = (bin){.at = i, .k = i / bins / r->channels, .row = i % bins / r->columns, .column = i % r->columns};
  double image = element(r->rois, r->wide, 5 * b->k);
  b->plane = ((int64_t)image * r->channels + channel) * r->height * r->width;
  if (image >= 0 && image < (double)r->image_count) return true;
  note_index((faults *)r->faults, image >= -9e18 && image <= 9e18 ? (int64_t)image : -1, r->image_count, 0);
  return false;
}

#define EACH_BIN(r, b)                                                        \
  for (int64_t i_ = (int64_t)block_index() * thread_count() + thread_index(), \
               n_ = (r)->count * (r)->channels * (r)->rows * (r)->columns;    \
       i_ < n_; i_ += (int64_t)block_count() * thread_count())                \
    if (find(r, i_, b))

/* ---- means ---- */

/* The places of the bin; none where there are too many, which is noted. */
INLINE bool find_sides(const wk__regions *r, const bin *b, side *down, side *across) {
  if (find_side(r, b->k, 2, r->rows, down) && find_side(r, b->k, 1, r->columns, across)) return true;
  note_index((faults *)r->faults, b->k, r->count, 0);
  return false;
}

INLINE place place_of(const wk__regions *r, const bin *b, const side *down, const side *across, int64_t y, int64_t x) {
  return place_at(r, coordinate(r->wide, down, b->row, y), coordinate(r->wide, across, b->column, x));
}

#define MEAN(T)                                                                                                      \
  INLINE void mean_##T(const wk__regions *r, const bin *b, const side *down, const side *across) {                   \
    const T *plane = (const T *)r->images + b->plane;                                                                \
    int64_t each = down->places * across->places;                                                                    \
    T sum = 0;                                                                                                       \
    for (int64_t y = 0; y < down->places; y++)                                                                       \
      for (int64_t x = 0; x < across->places; x++) {                                                                 \
        place p = place_of(r, b, down, across, y, x);                                                                \
        sum += (T)p.weight[0] * plane[p.at[0]] + (T)p.weight[1] * plane[p.at[1]] + (T)p.weight[2] * plane[p.at[2]] + \
               (T)p.weight[3] * plane[p.at[3]];                                                                      \
      }                                                                                                              \
    ((T *)r->bins)[b->at] = sum / (T)(each > 0 ? each : 1);                                                          \
  }                                                                                                                  \
  INLINE void add_mean_##T(const wk__regions *r, const bin *b, const side *down, const side *across) {               \
    T *plane = (T *)r->images + b->plane, grad = ((const T *)r->bins)[b->at];                                        \
    int64_t each = down->places * across->places;                                                                    \
    for (int64_t y = 0; y < down->places; y++)                                                                       \
      for (int64_t x = 0; x < across->places; x++) {                                                                 \
        place p = place_of(r, b, down, across, y, x);                                                                \
        for (int c = 0; c < 4; c++) add_##T(plane + p.at[c], grad * (T)p.weight[c] / (T)each);                       \
      }                                                                                                              \
  }

INLINE void add_float(float *to, float x) { __nvvm_atom_add_gen_f(to, x); }
INLINE void add_double(double *to, double x) {
  volatile uint64_t *bits = (volatile uint64_t *)to;
  uint64_t seen = *bits, before;
  do {
    before = seen;
    double sum = __builtin_bit_cast(double, before) + x;
    seen = (uint64_t)__nvvm_atom_cas_gen_ll((long long *)to, (long long)before, __builtin_bit_cast(long long, sum));
  } while (seen != before);
}

MEAN(float)
MEAN(double)

INLINE void align(const wk__regions *r, bool backward) {
  bin b;
  side down, across;
  EACH_BIN(r, &b) {
    if (!find_sides(r, &b, &down, &across)) continue;
    if (r->wide)
      backward ? add_mean_double(r, &b, &down, &across) : mean_double(r, &b, &down, &across);
    else
      backward ? add_mean_float(r, &b, &down, &across) : mean_float(r, &b, &down, &across);
  }
}
KERNEL(align_regions)(wk__regions given) { align(&given, false); }
KERNEL(align_regions_backward)(wk__regions given) { align(&given, true); }

/* ---- largest elements ---- */

#define LEAST_float 0x1.fffffep+127f
#define LEAST_double 0x1.fffffffffffffp+1023
#define LARGEST(T)                                                                                               \
  INLINE void largest_##T(const wk__regions *r, const bin *b, const int64_t *rows, const int64_t *columns) {     \
    const T *plane = (const T *)r->images + b->plane;                                                            \
    bool empty = rows[1] <= rows[0] || columns[1] <= columns[0];                                                 \
    T best = empty ? 0 : -LEAST_##T;                                                                             \
    int32_t found = -1;                                                                                          \
    for (int64_t y = rows[0]; !empty && y < rows[1]; y++)                                                        \
      for (int64_t x = columns[0]; x < columns[1]; x++)                                                          \
        if (plane[y * r->width + x] > best) best = plane[y * r->width + x], found = (int32_t)(y * r->width + x); \
    ((T *)r->bins)[b->at] = best, r->argmax[b->at] = found;                                                      \
  }

LARGEST(float)
LARGEST(double)

KERNEL(pool_regions)(wk__regions given) {
  const wk__regions *r = &given;
  bin b;
  EACH_BIN(r, &b) {
    int64_t rows[2], columns[2];
    find_bin(r, b.k, 2, b.row, r->rows, r->height, &rows[0], &rows[1]);
    find_bin(r, b.k, 1, b.column, r->columns, r->width, &columns[0], &columns[1]);
    if (r->wide)
      largest_double(r, &b, rows, columns);
    else
      largest_float(r, &b, rows, columns);
  }
}

KERNEL(pool_regions_backward)(wk__regions given) {
  const wk__regions *r = &given;
  bin b;
  EACH_BIN(r, &b) {
    int64_t place = r->argmax[b.at];
    if (place < 0 || place >= r->height * r->width) continue;
    if (r->wide)
      add_double((double *)r->images + b.plane + place, ((const double *)r->bins)[b.at]);
    else
      add_float((float *)r->images + b.plane + place, ((const float *)r->bins)[b.at]);
  }
}
