/* Fourier transforms on the device, a dim at a time, of any length. Rows that a block holds are one launch
 * (fourier_plan.c, on_device/fourier.c); longer ones are matrices, whose columns are transformed, turned by roots, and
 * then their rows; lengths with a large prime factor are convolutions with a chirp (L. Bluestein, 1970), whose length
 * is a power of two. An even number of reals is half as many pairs. Tests: tests/cuda/test_fourier.py, tests/device/.
 */
#include <math.h>
#include <stdlib.h>

#include "cuda/fourier_plan.h"
#include "cuda/kernels.h"
#include "cuda/units.h"
#include "ops/internal.h"
#include "wick/operators.h"

typedef wk__fourier_place place;

static int dim_of(const wk_tensor *t, wk_int dim) {
  int64_t d = wk_int_guard_value(dim);
  return (int)(d < 0 ? d + t->ndim : d);
}

/* ---- rows ---- */

static wk__cuda_rows rows_of(const wk_tensor *t, int dim) {
  int64_t item = (int64_t)wk__itemsize(t);
  int n = 0;
  wk__cuda_rows r = {
      .step = wk__stride(t, dim) * item, .second = wk__part_count(t) == 2 ? item / 2 : 0, .count = wk__size(t, dim)};
  for (int d = 0; d < t->ndim; d++)
    if (d != dim) r.jump[n++] = wk__stride(t, d) * item;
  return r;
}

/* Rows of n pairs, one behind the other. */
static wk__cuda_rows packed_rows(const place *p, const wk__cuda_fourier *f, int64_t n) {
  int64_t pair = p->wide ? 16 : 8, jump = n * pair;
  wk__cuda_rows r = {.step = pair, .second = pair / 2, .count = n};
  for (int d = f->dims - 1; d >= 0; jump *= f->sizes[d--]) r.jump[d] = jump;
  return r;
}

/* The dim along which rows lie nearest to each other comes last, so that neighbouring threads may take it. */
static void sort_dims(wk__cuda_fourier *f) {
  int last = f->dims - 1, nearest = last;
  for (int d = last; d >= 0; d--)
    if (f->sizes[d] > 1 && (f->sizes[nearest] == 1 || llabs(f->out.jump[d]) < llabs(f->out.jump[nearest]))) nearest = d;
  if (nearest == last) return;
  int64_t size = f->sizes[last], in = f->in.jump[last], out = f->out.jump[last];
  f->sizes[last] = f->sizes[nearest], f->in.jump[last] = f->in.jump[nearest], f->out.jump[last] = f->out.jump[nearest];
  f->sizes[nearest] = size, f->in.jump[nearest] = in, f->out.jump[nearest] = out;
}

/* ---- long rows ---- */

/* The launch as two, with rows of pairs between them; false with the error set. What the numbers in memory are is the
 * first one's, what they become the second one's. */
static bool parted(const place *p, const wk__cuda_fourier *f, wk__cuda_fourier *first, wk__cuda_fourier *second) {
  wk_tensor *between = wk__fourier_pairs(p, f->rows * f->n);
  if (!between) return false;
  *first = *second = *f;
  first->to = second->from = wk__cuda_at(between), first->out = second->in = packed_rows(p, f, f->n);
  first->scale = 1;
  return true;
}

static wk_status run(const place *p, wk__cuda_fourier f);

static void add_dim(wk__cuda_fourier *f, int64_t size, int64_t in, int64_t out) {
  f->sizes[f->dims] = size, f->in.jump[f->dims] = in, f->out.jump[f->dims++] = out;
  f->rows *= size;
}

/* Number j n2 + i is that of row j and column i; of result k + n1 l is k the columns' and l the rows'. */
static wk_status run_in_passes(const place *p, wk__cuda_fourier f) {
  int64_t n1 = wk__fourier_columns(p, f.n), n2 = f.n / n1;
  wk__cuda_fourier columns, rows;
  if (!parted(p, &f, &columns, &rows)) return wk_error_category();
  int64_t pair = columns.out.step;
  columns.n = columns.out.count = n1;
  columns.in.count = n1, columns.in.step *= n2, columns.out.step *= n2;
  columns.to_how = WK__FOURIER_TURNED, columns.order = f.n;
  columns.swaps_to = 0;
  add_dim(&columns, n2, f.in.step, pair);
  rows.n = rows.in.count = rows.out.count = n2;
  rows.out.step *= n1;
  rows.swaps_from = 0;
  add_dim(&rows, n1, n2 * pair, f.out.step);
  WK_TRY(wk__fourier_run_rows(p, columns));
  return run(p, rows);
}

static wk_status run_by_chirp(const place *p, const wk__cuda_fourier *f) {
  int64_t all = 1;
  while (all < 2 * f->n - 1) all *= 2;
  wk_tensor *numbers = wk__fourier_pairs(p, f->rows * all), *chirp = wk__fourier_pairs(p, all);
  if (!numbers || !chirp) return wk_error_category();
  wk__cuda_fourier in = *f, out = *f, own = {.n = f->n, .order = 2 * f->n, .rows = 1, .scale = 1};
  in.order = out.order = 2 * f->n, in.to_how = out.to_how = WK__FOURIER_CHIRPED;
  in.to = out.from = wk__cuda_at(numbers);
  in.out = out.in = packed_rows(p, f, all);
  in.scale = 1, in.swaps_to = 0;
  out.in.count = f->n, out.swaps_from = 0;
  own.to = wk__cuda_at(chirp), own.to_how = WK__FOURIER_CHIRP, own.out = packed_rows(p, &own, all);
  WK_TRY(wk__fourier_run_numbers(p, in));
  WK_TRY(wk__fourier_run_numbers(p, own));

  wk__cuda_fourier there = in, spectrum = own;
  there.from = in.to, there.in = in.out, there.n = all, there.to_how = WK__FOURIER_PLAIN, there.order = 0;
  there.swaps_from = 0;
  spectrum.from = own.to, spectrum.in = own.out, spectrum.n = all, spectrum.to_how = WK__FOURIER_PLAIN;
  spectrum.order = 0;
  wk__cuda_fourier product = there, back = there;
  product.to_how = WK__FOURIER_TIMES, product.turns = own.to;
  back.swaps_from = back.swaps_to = 1, back.scale = 1 / (double)all;
  WK_TRY(run(p, there));
  WK_TRY(run(p, spectrum));
  WK_TRY(wk__fourier_run_numbers(p, product));
  WK_TRY(run(p, back));
  return wk__fourier_run_numbers(p, out);
}

/* Rows of plain numbers. */
static wk_status run(const place *p, wk__cuda_fourier f) {
  if (wk__fourier_is_chirp(f.n)) return run_by_chirp(p, &f);
  return wk__fourier_is_short(p, f.n) ? wk__fourier_run_rows(p, f) : run_in_passes(p, f);
}

/* ---- rows of reals ---- */

/* Rows of pairs that lie among the reals of r. */
static void take_pairs(wk__cuda_rows *r) { r->second = r->step, r->step *= 2, r->count /= 2; }

static bool is_one_launch(const place *p, const wk__cuda_fourier *f) {
  return !wk__fourier_is_chirp(f->n) && wk__fourier_is_short(p, f->n);
}

/* What is made of the numbers in front of the transform, or behind it, is done by its launch, where that is one. */
static wk_status run_before(const place *p, wk__cuda_fourier f) {
  wk__cuda_fourier before, after;
  if (is_one_launch(p, &f)) return wk__fourier_run_rows(p, f);
  if (!parted(p, &f, &before, &after)) return wk_error_category();
  before.swaps_from = before.swaps_to = 0;
  after.from_how = WK__FOURIER_PLAIN, after.order = 0;
  WK_TRY(wk__fourier_run_numbers(p, before));
  return run(p, after);
}

static wk_status run_behind(const place *p, wk__cuda_fourier f) {
  wk__cuda_fourier before, after;
  if (is_one_launch(p, &f)) return wk__fourier_run_rows(p, f);
  if (!parted(p, &f, &before, &after)) return wk_error_category();
  before.to_how = WK__FOURIER_PLAIN, before.order = 0;
  after.swaps_from = after.swaps_to = 0;
  WK_TRY(run(p, before));
  return wk__fourier_run_numbers(p, after);
}

static wk_status run_kind(const place *p, wk__cuda_fourier f) {
  int64_t all = f.n;
  bool even = all % 2 == 0;
  if (!f.in.second && even && !f.swaps_from) {
    f.n /= 2, f.order = all, f.to_how = WK__FOURIER_UNPACKED;
    take_pairs(&f.in);
    return run_behind(p, f);
  }
  if (f.out.second) return f.out.count < all ? run_behind(p, f) : run(p, f);
  f.from_how = even ? WK__FOURIER_PACKED : WK__FOURIER_MIRRORED;
  if (even) f.n /= 2, f.order = all, take_pairs(&f.out);
  return run_before(p, f);
}

/* ---- tensors ---- */

static double scale_of(int64_t normalization, int64_t n) {
  return normalization == 0 ? 1 : normalization == 1 ? 1 / sqrt((double)n) : 1 / (double)n;
}

/* Along one dim, whose length is n, from a tensor to another or itself. */
static wk_status transform(const wk_tensor *from, const wk_tensor *to, int dim, int64_t n, bool inverse, int64_t how) {
  place p = {to, wk__cuda_device_get(to->device.index), to->dtype == WK_COMPLEX128 || to->dtype == WK_FLOAT64};
  wk__cuda_fourier f = {.from = wk__cuda_at(from),
                        .to = wk__cuda_at(to),
                        .n = n,
                        .rows = 1,
                        .in = rows_of(from, dim),
                        .out = rows_of(to, dim),
                        .scale = scale_of(how, n),
                        .swaps_from = inverse,
                        .swaps_to = inverse};
  if (!p.device) return wk_error_category();
  for (int d = 0; d < to->ndim; d++)
    if (d != dim) f.rows *= f.sizes[f.dims++] = wk__size(to, d);
  if (!f.rows || !n) return WK_OK;
  sort_dims(&f);
  return run_kind(&p, f);
}

/* ---- the operators ---- */

static wk_status c2c(wk__call *c) {
  WK__ARGS(_fft_c2c);
  const wk_tensor *from = c->args[A_self].tensor, *out = c->outputs[0];
  const wk_value *dims = &c->args[A_dim];
  for (int k = (int)dims->count - 1; k >= 0; k--) {
    int dim = dim_of(out, dims->integers[k]);
    WK_TRY(transform(from, out, dim, wk__size(out, dim), !wk__arg_bool(c, A_forward), wk__arg_int(c, A_normalization)));
    from = out;
  }
  return dims->count ? WK_OK : wk__copy_into(c->outputs[0], c->args[A_self].tensor);
}

static wk_status r2c(wk__call *c) {
  WK__ARGS(_fft_r2c);
  const wk_tensor *from = c->args[A_self].tensor, *out = c->outputs[0];
  const wk_value *dims = &c->args[A_dim];
  for (int k = (int)dims->count - 1; k >= 0; k--) {
    int dim = dim_of(out, dims->integers[k]);
    WK_TRY(transform(from, out, dim, wk__size(from, dim), false, wk__arg_int(c, A_normalization)));
    from = out;
  }
  return WK_OK;
}

static wk_status c2r(wk__call *c) {
  WK__ARGS(_fft_c2r);
  const wk_tensor *out = c->outputs[0];
  int dim = dim_of(out, c->args[A_dim].integers[c->args[A_dim].count - 1]);
  return transform(c->args[A_self].tensor, out, dim, wk__size(out, dim), true, wk__arg_int(c, A_normalization));
}

static wk_status ours(wk__call *c, wk__kernel_fn *kernel) {
  enum { MOST_DIMS = 9 };
  bool fits = c->outputs[0]->ndim <= MOST_DIMS;
  return fits ? wk__cuda_in_scope(c, kernel) : wk__cuda_run_kernel_on_host(c);
}
wk_status wk__cuda_fft_c2c(wk__call *c) { return ours(c, c2c); }
wk_status wk__cuda_fft_r2c(wk__call *c) { return ours(c, r2c); }
wk_status wk__cuda_fft_c2r(wk__call *c) { return ours(c, c2r); }
