/* Fourier transforms on the device, a dim at a time (on_device/fourier.c). Rows of a few thousand numbers stay in
 * shared memory; longer ones go through memory once a factor of their length. Lengths with a prime factor in the
 * thousands are the host's. Tests: tests/cuda/test_fourier.py, tests/device/. */
#include "cuda/fourier.h"

#include <math.h>

#include "cuda/kernels.h"
#include "cuda/units.h"
#include "ops/internal.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})
enum { MOST_FACTOR = 1024, SHORT = 256, BLOCKS_OF_LONG = 256, MOST_BLOCKS = 1 << 16 };

/* ---- lengths ---- */

/* Fours, then primes; false: one is too large. */
static bool factor(int64_t n, wk__cuda_fourier *f) {
  f->factor_count = 0;
  for (; n % 4 == 0; n /= 4) f->factors[f->factor_count++] = 4;
  for (int64_t p = 2; n > 1 && p <= MOST_FACTOR; p++)
    for (; n % p == 0; n /= p) f->factors[f->factor_count++] = (int32_t)p;
  return n <= 1;
}

static int dim_of(const wk_tensor *t, wk_int dim) {
  int64_t d = wk_int_guard_value(dim);
  return (int)(d < 0 ? d + t->ndim : d);
}

/* ---- a pass ---- */

static wk__cuda_rows rows_of(const wk_tensor *t, int dim) {
  int64_t item = (int64_t)wk__itemsize(t);
  int n = 0;
  wk__cuda_rows r = {wk__stride(t, dim) * item, wk__size(t, dim), {0}, wk__part_count(t) == 2};
  for (int d = 0; d < t->ndim; d++)
    if (d != dim) r.jump[n++] = wk__stride(t, d) * item;
  return r;
}

static double scale_of(int64_t normalization, int64_t n) {
  return normalization == 0 ? 1 : normalization == 1 ? 1 / sqrt((double)n) : 1 / (double)n;
}

static wk_tensor *pairs(const wk_tensor *like, int64_t count, bool wide) {
  wk_int size = wk_int_of(2 * count);
  return wk_new_empty((wk_tensor *)like, &size, 1, wide ? WK_FLOAT64 : WK_FLOAT32, NONE);
}

static wk_status launch(const wk_tensor *on, wk__cuda_fourier *f, const char *kernel, int64_t blocks) {
  return wk__cuda_call_unit(on, &(wk__cuda_unit_call){.module = WK__CUDA_FOURIER,
                                                      .kernel = kernel,
                                                      .blocks = blocks,
                                                      .threads = WK__FOURIER_THREADS,
                                                      .words = f,
                                                      .word_count = (int)(sizeof *f / 8),
                                                      .address_count = WK__FOURIER_ADDRESSES});
}

/* Rows, blocks, and the memory that they need. */
static wk_status run(const wk_tensor *on, wk__cuda_fourier *f) {
  bool wide = f->is_double;
  int64_t fits = WK__FOURIER_SHARED * (wide ? 1 : 2), blocks;
  wk_tensor *roots = pairs(on, f->n, wide), *scratch = NULL;
  if (!roots) return wk_error_category();
  f->roots = wk__cuda_at(roots);
  f->lanes = (int32_t)wk__max(1, SHORT / f->n);
  blocks = wk__min(wk__ceil_div(f->rows, f->lanes), MOST_BLOCKS);
  if (f->n > fits) {
    blocks = wk__min(blocks, BLOCKS_OF_LONG);
    if (!(scratch = pairs(on, 2 * f->n * blocks, wide))) return wk_error_category();
    f->scratch = wk__cuda_at(scratch);
  }
  WK_TRY(launch(on, f, "kernel_roots", wk__min(wk__ceil_div(f->n, WK__FOURIER_THREADS), MOST_BLOCKS)));
  return launch(on, f, "kernel_fourier", blocks);
}

/* Along one dim, whose length is n, from a tensor to another or itself. */
static wk_status transform(const wk_tensor *from, const wk_tensor *to, int dim, int64_t n, bool inverse, int64_t how) {
  wk__cuda_fourier f = {.from = wk__cuda_at(from),
                        .to = wk__cuda_at(to),
                        .n = n,
                        .rows = 1,
                        .in = rows_of(from, dim),
                        .out = rows_of(to, dim),
                        .scale = scale_of(how, n),
                        .inverse = inverse,
                        .is_double = to->dtype == WK_COMPLEX128 || to->dtype == WK_FLOAT64};
  f.half = f.in.is_complex && !f.out.is_complex;
  for (int d = 0; d < to->ndim; d++)
    if (d != dim) f.rows *= f.sizes[f.dims++] = wk__size(to, d);
  if (!f.rows || !n) return WK_OK;
  if (!factor(n, &f)) return wk_fail(WK_INTERNAL_ERROR, "a transform of length %lld", (long long)n);
  return run(to, &f);
}

/* ---- the rows ---- */

/* `lengths`: the tensor whose sizes the transforms have. */
static bool is_ours(const wk__call *c, const wk_value *dims, const wk_tensor *lengths) {
  wk__cuda_fourier f;
  const wk_tensor *out = c->outputs[0];
  bool fits = out->ndim <= WK__FOURIER_DIMS + 1;
  for (uint32_t k = 0; k < dims->count && fits; k++) {
    int64_t n = wk__size(lengths, dim_of(lengths, dims->integers[k]));
    fits = n == 0 || factor(n, &f);
  }
  return fits;
}

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

static wk_status ours(wk__call *c, wk__kernel_fn *kernel, const wk_tensor *lengths) {
  return is_ours(c, &c->args[1], lengths) ? wk__cuda_in_scope(c, kernel) : wk__cuda_run_kernel_on_host(c);
}
wk_status wk__cuda_fft_c2c(wk__call *c) { return ours(c, c2c, c->outputs[0]); }
wk_status wk__cuda_fft_r2c(wk__call *c) { return ours(c, r2c, c->args[0].tensor); }
wk_status wk__cuda_fft_c2r(wk__call *c) { return ours(c, c2r, c->outputs[0]); }
