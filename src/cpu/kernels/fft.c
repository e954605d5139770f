/* Fourier transforms over dims on the CPU: along each dim rows are gathered into scratch memory, several side by side,
 * transformed (cpu/fft/fft.h) and scattered. Threads share groups of rows.
 * In: tensors of any strides. Out: the spectrum or signal, scaled. Tests: tests/python/test_fft.py, tests/parity/. */
#include "cpu/fft/fft.h"

#include <math.h>

#include "cpu/kernels.h"
#include "cpu/workspace.h"
#include "ops/internal.h"

enum {
  MOST_LANES = 16,
  LANE_BYTES = 1 << 20, /* of scratch memory: about what a core's own caches hold */
  LINE = 8,             /* numbers of a row's cache line */
};

/* One end of a pass: rows along a dim of a tensor of parts or of real numbers. */
typedef struct end {
  char *at;
  int64_t step;        /* along the row, in bytes */
  int64_t count;       /* of numbers that are there; the rest of a row is 0 */
  const int64_t *jump; /* (dims) strides of the other dims, in bytes */
  bool complex;
} end;

typedef struct pass {
  const wk__fft_plan *plan;
  int64_t n, rows;
  int lanes, dims;
  bool inverse, wide, half; /* half: of a real signal's spectrum only the first n / 2 + 1 numbers are there */
  double scale;
  const int64_t *sizes; /* of the other dims */
  end from, to;
  wk__slots *slots;
} pass;

static void starts_of(const pass *p, const end *e, int64_t row, int lanes, char **out) {
  for (int k = 0; k < lanes; k++) {
    int64_t rest = row + k;
    out[k] = e->at;
    for (int d = p->dims - 1; d >= 0; d--) {
      out[k] += rest % p->sizes[d] * e->jump[d];
      rest /= p->sizes[d];
    }
  }
}

/* One row without gaps, of numbers with two parts. */
#define COPY(type)                                                                                                     \
  static void part_##type(const type *restrict x, int64_t n, type *restrict re, type *restrict im) {                   \
    for (int64_t j = 0; j < n; j++) re[j] = x[2 * j], im[j] = x[2 * j + 1];                                            \
  }                                                                                                                    \
  static void join_##type(const type *restrict re, const type *restrict im, int64_t n, type scale, type *restrict y) { \
    for (int64_t j = 0; j < n; j++) y[2 * j] = re[j] * scale, y[2 * j + 1] = im[j] * scale;                            \
  }
COPY(float)
COPY(double)

static bool is_plain_row(const pass *p, const end *e) {
  return p->lanes == 1 && e->complex && e->step == (p->wide ? 16 : 8);
}

/* The loops over elements, for both kinds of numbers. A cache line of a row is read, and written, at once: rows may lie
 * such that all their lines want the same few places of a cache. */
#define LOAD(type)                                                                                                    \
  static void load_##type(const pass *p, char *const *rows, int lanes, type *re, type *im) {                          \
    int64_t done = is_plain_row(p, &p->from) ? p->from.count : 0;                                                     \
    if (done) part_##type((const type *)rows[0], done, re, im);                                                       \
    for (int64_t begin = done, end; begin < p->from.count; begin = end) {                                             \
      end = wk__min(begin + LINE, p->from.count);                                                                     \
      for (int k = 0; k < lanes; k++)                                                                                 \
        for (int64_t j = begin; j < end; j++) {                                                                       \
          const type *element = (const type *)(rows[k] + j * p->from.step);                                           \
          re[j * p->lanes + k] = element[0];                                                                          \
          im[j * p->lanes + k] = p->from.complex ? element[1] : 0;                                                    \
        }                                                                                                             \
    }                                                                                                                 \
    for (int64_t j = p->from.count; j < p->n; j++) /* a real signal's spectrum is its own conjugate, turned around */ \
      for (int k = 0; k < lanes; k++) {                                                                               \
        re[j * p->lanes + k] = re[(p->n - j) * p->lanes + k];                                                         \
        im[j * p->lanes + k] = -im[(p->n - j) * p->lanes + k];                                                        \
      }                                                                                                               \
    for (int k = 0; k < lanes && p->half; k++) {                                                                      \
      im[k] = 0;                                                                                                      \
      if (p->n % 2 == 0) im[p->n / 2 * p->lanes + k] = 0;                                                             \
    }                                                                                                                 \
  }                                                                                                                   \
  static void store_##type(const pass *p, char *const *rows, int lanes, const type *re, const type *im) {             \
    type scale = (type)p->scale;                                                                                      \
    int64_t done = is_plain_row(p, &p->to) ? p->to.count : 0;                                                         \
    if (done) join_##type(re, im, done, scale, (type *)rows[0]);                                                      \
    for (int64_t begin = done, end; begin < p->to.count; begin = end) {                                               \
      end = wk__min(begin + LINE, p->to.count);                                                                       \
      for (int k = 0; k < lanes; k++)                                                                                 \
        for (int64_t j = begin; j < end; j++) {                                                                       \
          type *element = (type *)(rows[k] + j * p->to.step);                                                         \
          element[0] = re[j * p->lanes + k] * scale;                                                                  \
          if (p->to.complex) element[1] = im[j * p->lanes + k] * scale;                                               \
        }                                                                                                             \
    }                                                                                                                 \
  }
LOAD(float)
LOAD(double)

static void run_groups(void *context, int64_t begin, int64_t stop) {
  const pass *p = context;
  char *scratch = wk__slots_take(p->slots), *rows[MOST_LANES];
  void *re, *im;
  wk__fft_rows(p->plan, scratch, p->lanes, &re, &im);
  for (int64_t g = begin; g < stop; g++) {
    int64_t row = g * p->lanes;
    int lanes = (int)wk__min((int64_t)p->lanes, p->rows - row);
    if (lanes < p->lanes) memset(re, 0, (size_t)((char *)im - (char *)re) * 2); /* lanes without a row */
    starts_of(p, &p->from, row, lanes, rows);
    p->wide ? load_double(p, rows, lanes, re, im) : load_float(p, rows, lanes, re, im);
    wk__fft_transform(p->plan, scratch, p->lanes, p->inverse);
    starts_of(p, &p->to, row, lanes, rows);
    p->wide ? store_double(p, rows, lanes, re, im) : store_float(p, rows, lanes, re, im);
  }
  wk__slots_give(p->slots, scratch);
}

static wk_status run_pass(pass *p) {
  wk__slots slots;
  p->plan = wk__fft_plan_get(p->n, p->wide);
  if (!p->plan) return wk_error_category() ? wk_error_category() : WK_OUT_OF_MEMORY;
  size_t one = wk__fft_scratch(p->plan, 1);
  p->lanes = (int)wk__max(1, wk__min((int64_t)(LANE_BYTES / one), wk__min(p->rows, MOST_LANES)));
  int64_t groups = (p->rows + p->lanes - 1) / p->lanes;
  wk_status status = wk__slots_init(&slots, WK__WORKSPACE_KERNEL, 0, one * (size_t)p->lanes, groups > 1);
  p->slots = &slots;
  int64_t grain = wk__max(1, 16384 / (p->n * p->lanes));
  if (status == WK_OK) wk__parallel_for(groups, grain, run_groups, p);
  p->slots = NULL;
  wk__fft_plan_release(p->plan);
  return status;
}

static double scale_of(int64_t normalization, int64_t n) {
  return normalization == 0 ? 1 : normalization == 1 ? 1 / sqrt((double)n) : 1 / (double)n;
}

typedef struct ends {
  int64_t sizes[WK_MAX_DIMS], from[WK_MAX_DIMS], to[WK_MAX_DIMS];
} ends;

static end end_of(const wk_tensor *t, int dim, int64_t *jump) {
  int64_t item = (int64_t)wk__itemsize(t);
  int n = 0;
  for (int d = 0; d < t->ndim; d++)
    if (d != dim) jump[n++] = wk__stride(t, d) * item;
  return (end){wk__data(t), wk__stride(t, dim) * item, wk__size(t, dim), jump, wk__part_count(t) == 2};
}

/* Along one dim, whose length is n, from a tensor to another or itself. */
static wk_status transform(const wk_tensor *from, const wk_tensor *to, int dim, int64_t n, bool inverse, int64_t how) {
  ends e;
  pass p = {.n = n, .rows = 1, .inverse = inverse, .scale = scale_of(how, n), .sizes = e.sizes};
  p.from = end_of(from, dim, e.from);
  p.to = end_of(to, dim, e.to);
  p.wide = to->dtype == WK_COMPLEX128 || to->dtype == WK_FLOAT64;
  p.half = p.from.complex && !p.to.complex;
  for (int d = 0; d < to->ndim; d++)
    if (d != dim) p.rows *= e.sizes[p.dims++] = wk__size(to, d);
  return p.rows && n ? run_pass(&p) : WK_OK;
}

static int dim_of(const wk_tensor *t, wk_int dim) {
  int64_t d = wk_int_guard_value(dim);
  return (int)(d < 0 ? d + t->ndim : d);
}

wk_status wk__cpu_fft_c2c(wk__call *c) {
  WK__ARGS(_fft_c2c);
  const wk_tensor *from = c->args[A_self].tensor, *out = c->outputs[0];
  const wk_value *dims = &c->args[A_dim];
  for (int k = (int)dims->count - 1; k >= 0; k--) {
    int dim = dim_of(out, dims->integers[k]);
    WK_TRY(transform(from, out, dim, wk__size(out, dim), !wk__arg_bool(c, A_forward), wk__arg_int(c, A_normalization)));
    from = out;
  }
  return dims->count ? WK_OK : wk__copy_into(c->outputs[0], from);
}

wk_status wk__cpu_fft_r2c(wk__call *c) {
  WK__ARGS(_fft_r2c);
  const wk_tensor *from = c->args[A_self].tensor, *out = c->outputs[0];
  const wk_value *dims = &c->args[A_dim];
  int64_t how = wk__arg_int(c, A_normalization);
  for (int k = (int)dims->count - 1; k >= 0; k--) {
    int dim = dim_of(out, dims->integers[k]);
    WK_TRY(transform(from, out, dim, wk__size(from, dim), false, how));
    from = out;
  }
  return WK_OK;
}

wk_status wk__cpu_fft_c2r(wk__call *c) {
  WK__ARGS(_fft_c2r);
  const wk_tensor *out = c->outputs[0];
  int dim = dim_of(out, c->args[A_dim].integers[c->args[A_dim].count - 1]);
  return transform(c->args[A_self].tensor, out, dim, wk__size(out, dim), true, wk__arg_int(c, A_normalization));
}
