/* Resampling along a dim on the CPU: each result is a weighted sum of neighbours, so a mode is a table of first
 * neighbour, count and weights for each result, a sparse matrix; the backward is its transpose.
 *
 * In: a tensor as (outer, size, inner), contiguous; out the same with another size. Rows of `inner` elements are added
 * up at a time; where inner is 1, the last dim is gathered. A result is computed by one thread in the order of its
 * neighbours, so any number of threads gives the same bits. Positions are computed in the tensor's dtype, as PyTorch
 * does: which neighbour is the nearest may depend on it. Filters: linear is a triangle, cubic Keys' (1981) with a =
 * -0.75, -0.5 with antialias, where they are as wide as the results are apart. Tests: tests/ops/,
 * tests/python/test_resample.py. */
#include <math.h>

#include "cpu/kernels.h"
#include "ops/internal.h"
#include "wick/operators.h"

typedef struct taps {
  int64_t *first;  /* (size): the first neighbour of each result */
  int64_t *count;  /* (size): how many, at most `width` */
  double *weights; /* (size, width) */
  int64_t width;
} taps;

typedef struct filter {
  const char *mode;
  bool align_corners, narrow; /* narrow: positions are f32 */
  bool antialias;
  int reach;       /* antialias: of the filter, in results */
  double scale;    /* results to inputs: a step of one result is that many inputs */
  int64_t in, out; /* sizes */
} filter;

static double in_dtype(const filter *f, double x) { return f->narrow ? (float)x : x; }

static double scale_of(const filter *f, double given, bool nearest) {
  bool narrow = f->narrow || nearest;
  double scale;
  if (f->align_corners)
    scale = f->out > 1 ? (double)(f->in - 1) / (double)(f->out - 1) : 0;
  else
    scale = given > 0 ? 1 / given : (double)f->in / (double)f->out;
  return narrow ? (float)scale : scale;
}

/* Where a result's centre is among the inputs. */
static double position(const filter *f, int64_t o) {
  if (f->align_corners) return in_dtype(f, f->scale * (double)o);
  return in_dtype(f, in_dtype(f, f->scale * ((double)o + 0.5)) - 0.5);
}
static int64_t clamped(int64_t i, int64_t size) { return i < 0 ? 0 : i >= size ? size - 1 : i; }

/* A weight for the input at i, which is moved inside: neighbours at the edge are counted again. */
static void add_tap(const filter *f, taps *t, int64_t o, int64_t i, double weight) {
  i = clamped(i, f->in);
  if (t->count[o] && i == t->first[o] + t->count[o] - 1)
    t->weights[o * t->width + t->count[o] - 1] += weight;
  else if (!t->count[o])
    t->first[o] = i, t->weights[o * t->width] = weight, t->count[o] = 1;
  else
    t->weights[o * t->width + t->count[o]++] = weight;
}

static double cubic_near(double x, double a) { return ((a + 2) * x - (a + 3)) * x * x + 1; }
static double cubic_far(double x, double a) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; }

static void nearest_taps(const filter *f, taps *t, int64_t o) {
  double at = strcmp(f->mode, "nearest-exact") == 0 ? (double)o + 0.5 : (double)o;
  add_tap(f, t, o, (int64_t)floorf((float)at * (float)f->scale), 1);
}
static void linear_taps(const filter *f, taps *t, int64_t o) {
  double at = position(f, o);
  if (at < 0) at = 0;
  int64_t i = clamped((int64_t)at, f->in);
  double rest = in_dtype(f, at - (double)i);
  rest = rest < 0 ? 0 : rest > 1 ? 1 : rest;
  add_tap(f, t, o, i, in_dtype(f, 1 - rest));
  add_tap(f, t, o, i + 1, rest);
}
static void cubic_taps(const filter *f, taps *t, int64_t o) {
  double at = position(f, o), a = -0.75;
  int64_t i = (int64_t)floor(at);
  double x = in_dtype(f, at - (double)i);
  double weights[] = {cubic_far(x + 1, a), cubic_near(x, a), cubic_near(1 - x, a), cubic_far(2 - x, a)};
  for (int k = 0; k < 4; k++) add_tap(f, t, o, i - 1 + k, weights[k]);
}
/* The mean of what lies between a result's edges. */
static void area_taps(const filter *f, taps *t, int64_t o) {
  int64_t begin = o * f->in / f->out, end = ((o + 1) * f->in + f->out - 1) / f->out;
  for (int64_t i = begin; i < end; i++) add_tap(f, t, o, i, 1 / (double)(end - begin));
}

static double sinc(double x) { return x == 0 ? 1 : sin(M_PI * x) / (M_PI * x); }

/* A triangle, Keys' cubic and Lanczos' window, by their reach. */
static double wide_filter(const filter *f, double x) {
  x = fabs(x);
  if (x >= f->reach) return 0;
  if (f->reach == 1) return 1 - x;
  if (f->reach == 3) return sinc(x) * sinc(x / 3);
  return x < 1 ? cubic_near(x, -0.5) : cubic_far(x, -0.5);
}
static double support(const filter *f) { return f->reach * (f->scale >= 1 ? f->scale : 1); }
static void antialias_taps(const filter *f, taps *t, int64_t o) {
  double centre = in_dtype(f, f->scale * ((double)o + 0.5)), reach = support(f), sum = 0;
  double inverse = f->scale >= 1 ? in_dtype(f, 1 / f->scale) : 1;
  int64_t begin = (int64_t)(centre - reach + 0.5), end = (int64_t)(centre + reach + 0.5);
  begin = begin < 0 ? 0 : begin;
  end = end > f->in ? f->in : end;
  double *weights = t->weights + o * t->width;
  for (int64_t i = begin; i < end; i++) {
    weights[i - begin] = wide_filter(f, ((double)i - centre + 0.5) * inverse);
    sum += weights[i - begin];
  }
  t->first[o] = begin;
  t->count[o] = end - begin;
  for (int64_t i = 0; i < end - begin && sum != 0; i++) weights[i] /= sum;
}

typedef void taps_fn(const filter *f, taps *t, int64_t o);

static taps_fn *taps_of(const char *mode) {
  static const struct {
    const char *mode;
    taps_fn *fn;
  } modes[] = {{"nearest", nearest_taps},
               {"nearest-exact", nearest_taps},
               {"linear", linear_taps},
               {"cubic", cubic_taps},
               {"area", area_taps},
               {"linear-antialias", antialias_taps},
               {"cubic-antialias", antialias_taps},
               {"lanczos-antialias", antialias_taps}};
  for (size_t m = 0; m < WK_COUNT(modes); m++)
    if (strcmp(modes[m].mode, mode) == 0) return modes[m].fn;
  return NULL;
}

static void release_taps(taps *t) {
  wk__free(t->first);
  wk__free(t->count);
  wk__free(t->weights);
}

/* The table of a call; `in` is the size that is resampled, whichever way the call goes. */
static wk_status make_taps(const wk__call *c, int64_t in, int64_t out, taps *t) {
  const wk_value *scale = &c->args[WK__ARG(_resample, scale)];
  const char *mode = c->args[WK__ARG(_resample, mode)].string;
  filter f = {.mode = mode, .in = in, .out = out, .reach = mode[0] == 'c' ? 2 : strncmp(mode, "la", 2) == 0 ? 3 : 1};
  taps_fn *fn = taps_of(mode);
  if (!fn) return wk_fail(WK_RUNTIME_ERROR, "_resample(): there is no mode '%s'", mode);
  f.align_corners = wk__arg_bool(c, WK__ARG(_resample, align_corners));
  f.narrow = c->args[0].tensor->dtype != WK_FLOAT64;
  f.antialias = fn == antialias_taps;
  f.scale = scale_of(&f, scale->tag == WK_VALUE_DOUBLE ? scale->number : 0, fn == nearest_taps);
  t->width = f.antialias ? 2 * (int64_t)ceil(support(&f)) + 2 : fn == area_taps ? (in + out - 1) / out + 1 : 4;
  t->first = wk__alloc((size_t)out * sizeof *t->first);
  t->count = wk__alloc_zeroed((size_t)out * sizeof *t->count);
  t->weights = wk__alloc((size_t)(out * t->width) * sizeof *t->weights);
  if (!t->first || !t->count || !t->weights) return WK_OUT_OF_MEMORY;
  for (int64_t o = 0; o < out; o++) fn(&f, t, o);
  return WK_OK;
}

/* ---- the loops ---- */

typedef struct job {
  const taps *taps;
  const char *from;
  char *to;
  int64_t small, large; /* sizes of the dim: of what is read and of what is written (backward: the other way) */
  int64_t inner, width; /* width: bytes of an element */
} job;

/* For f32 and f64: rows of results, and the transposed map of whole matrices. Weights are rounded to T first. */
#define LOOPS(T)                                                                                                     \
  static void forward_row_##T(const job *j, const T *from, T *to, int64_t o) {                                       \
    const double *w = j->taps->weights + o * j->taps->width;                                                         \
    int64_t n = j->taps->count[o], inner = j->inner;                                                                 \
    from += j->taps->first[o] * inner;                                                                               \
    T a = (T)w[0], b = n > 1 ? (T)w[1] : 0;                                                                          \
    for (int64_t i = 0; n == 1 && i < inner; i++) to[i] = a * from[i];                                               \
    for (int64_t i = 0; n > 1 && i < inner; i++) to[i] = a * from[i] + b * from[inner + i];                          \
    for (int64_t k = 2; k < n; k++) {                                                                                \
      T x = (T)w[k];                                                                                                 \
      for (int64_t i = 0; i < inner; i++) to[i] += x * from[k * inner + i];                                          \
    }                                                                                                                \
  }                                                                                                                  \
  static void forward_last_##T(const job *j, const T *from, T *to) {                                                 \
    for (int64_t o = 0; o < j->large; o++) {                                                                         \
      const double *w = j->taps->weights + o * j->taps->width;                                                       \
      const T *x = from + j->taps->first[o];                                                                         \
      T sum = (T)w[0] * x[0];                                                                                        \
      for (int64_t k = 1; k < j->taps->count[o]; k++) sum += (T)w[k] * x[k];                                         \
      to[o] = sum;                                                                                                   \
    }                                                                                                                \
  }                                                                                                                  \
  static void forward_##T(void *context, int64_t begin, int64_t end) {                                               \
    const job *j = context;                                                                                          \
    for (int64_t r = begin; j->inner == 1 && r < end; r++)                                                           \
      forward_last_##T(j, (const T *)j->from + r * j->small, (T *)j->to + r * j->large);                             \
    for (int64_t r = begin; j->inner > 1 && r < end; r++)                                                            \
      for (int64_t o = 0; o < j->large; o++)                                                                         \
        forward_row_##T(j, (const T *)j->from + r * j->small * j->inner, (T *)j->to + (r * j->large + o) * j->inner, \
                        o);                                                                                          \
  }                                                                                                                  \
  static void backward_row_##T(const job *j, const T *from, T *to, int64_t o) {                                      \
    const double *w = j->taps->weights + o * j->taps->width;                                                         \
    to += j->taps->first[o] * j->inner;                                                                              \
    for (int64_t k = 0; k < j->taps->count[o]; k++) {                                                                \
      T x = (T)w[k];                                                                                                 \
      for (int64_t i = 0; i < j->inner; i++) to[k * j->inner + i] += x * from[i];                                    \
    }                                                                                                                \
  }                                                                                                                  \
  static void backward_##T(void *context, int64_t begin, int64_t end) {                                              \
    const job *j = context;                                                                                          \
    for (int64_t r = begin; r < end; r++) {                                                                          \
      T *to = (T *)j->to + r * j->large * j->inner;                                                                  \
      memset(to, 0, (size_t)(j->large * j->inner) * sizeof *to);                                                     \
      for (int64_t o = 0; o < j->small; o++)                                                                         \
        backward_row_##T(j, (const T *)j->from + (r * j->small + o) * j->inner, to, o);                              \
    }                                                                                                                \
  }

LOOPS(float)
LOOPS(double)

/* Nearest neighbours of any dtype. */
static void copy_rows(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  size_t bytes = (size_t)(j->inner * j->width);
  for (int64_t r = begin; r < end; r++)
    for (int64_t o = 0; o < j->large; o++)
      memcpy(j->to + (size_t)(r * j->large + o) * bytes, j->from + (size_t)(r * j->small + j->taps->first[o]) * bytes,
             bytes);
}
/* One element at a time: the last dim. */
#define COPY_ELEMENTS(T)                                                                                    \
  static void copy_elements_##T(void *context, int64_t begin, int64_t end) {                                \
    const job *j = context;                                                                                 \
    const T *from = (const T *)j->from;                                                                     \
    T *to = (T *)j->to;                                                                                     \
    for (int64_t r = begin; r < end; r++)                                                                   \
      for (int64_t o = 0; o < j->large; o++) to[r * j->large + o] = from[r * j->small + j->taps->first[o]]; \
  }

COPY_ELEMENTS(uint8_t)
COPY_ELEMENTS(uint16_t)
COPY_ELEMENTS(uint32_t)
COPY_ELEMENTS(uint64_t)

static wk__range_fn *copying(const job *j) {
  if (j->inner != 1) return copy_rows;
  return j->width == 1   ? copy_elements_uint8_t
         : j->width == 2 ? copy_elements_uint16_t
         : j->width == 4 ? copy_elements_uint32_t
         : j->width == 8 ? copy_elements_uint64_t
                         : copy_rows;
}

enum { GRAIN = 16384 }; /* elements that are worth a thread */

static wk_status run(wk__call *c, bool backward) {
  wk_tensor *out = c->outputs[0], *from = wk_contiguous(c->args[WK__ARG(_resample, self)].tensor, NULL);
  int dim;
  if (!from) return wk_error_category();
  WK_TRY(wk__wrap_dim(wk__arg_int(c, WK__ARG(_resample, dim)), from->ndim, &dim));
  int64_t outer = 1, inner = 1, small = wk__size(from, dim), large = wk__size(out, dim);
  for (int d = 0; d < dim; d++) outer *= wk__size(from, d);
  for (int d = dim + 1; d < from->ndim; d++) inner *= wk__size(from, d);
  if (!outer || !inner) return WK_OK;
  taps t = {0};
  wk_status status = make_taps(c, backward ? large : small, backward ? small : large, &t);
  job j = {&t,
           (const char *)wk__data(from),
           (char *)wk__data(out),
           small,
           large,
           inner,
           (int64_t)wk_dtype_size((wk_dtype)out->dtype)};
  bool wide = out->dtype == WK_FLOAT64;
  wk__range_fn *fn = backward ? (wide ? backward_double : backward_float) : wide ? forward_double : forward_float;
  if (!backward && strncmp(c->args[WK__ARG(_resample, mode)].string, "nearest", 7) == 0) fn = copying(&j);
  int64_t each = (small > large ? small : large) * inner;
  if (status == WK_OK) wk__parallel_for(outer, 1 + GRAIN / each, fn, &j);
  release_taps(&t);
  return status;
}

static wk_status in_scope(wk__call *c, bool backward) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = run(c, backward);
  wk_scope_end(&scope);
  return status;
}
wk_status wk__cpu_resample(wk__call *c) { return in_scope(c, false); }
wk_status wk__cpu_resample_backward(wk__call *c) { return in_scope(c, true); }
