/* Fourier transforms: shape rules, derivatives, and torch.fft's functions as compositions of the three transforms.
 * The transform F has the transpose conj(F), the inverse without its factor, so that the gradient of a transform is a
 * transform in the other direction with the same normalization. Tests: tests/python/test_fft.py,
 * tests/parity/test_fft_parity.py. */
#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

enum { BY_NOTHING, BY_ROOT, BY_LENGTH };

static bool is_complex(const wk_tensor *t) { return wk_dtype_is_complex((wk_dtype)t->dtype); }
static wk_int one(void) { return wk_int_of(1); }
/* n / 2 + 1: a real signal's spectrum is its own conjugate, turned around. */
static wk_int half_of(wk_int n) { return wk_int_add(wk_int_floordiv(n, wk_int_of(2)), one()); }

/* ---- shape rules ---- */

static int dim_at(const wk_value *dims, uint32_t k, int ndim) {
  int64_t d = wk_int_guard_value(dims->integers[k]);
  return (int)(d < 0 ? d + ndim : d);
}

static void by_stride(const wk_tensor *t, int *order, int count) {
  for (int k = 1; k < count; k++)
    for (int j = k; j > 0 && wk_int_lt(t->strides[order[j - 1]], t->strides[order[j]]); j--) {
      int swap = order[j];
      order[j] = order[j - 1];
      order[j - 1] = swap;
    }
}

/* PyTorch's order in memory: the other dims by their strides, then those that are transformed; `last` fixed: those but
 * the last by theirs. */
static void lay_out(wk__spec *spec, const wk_tensor *t, const wk_value *dims, bool last_is_fixed) {
  int order[WK_MAX_DIMS], n = 0, others;
  uint64_t mask = 0;
  for (uint32_t k = 0; k < dims->count; k++) mask |= wk__dim_bit(dim_at(dims, k, t->ndim));
  for (int d = 0; d < t->ndim; d++)
    if (!(mask >> d & 1)) order[n++] = d;
  by_stride(t, order, others = n);
  for (uint32_t k = 0; k < dims->count; k++) order[n++] = dim_at(dims, k, t->ndim);
  by_stride(t, order + others, n - others - last_is_fixed);
  wk_int stride = one();
  for (int k = n - 1; k >= 0; k--) {
    spec->strides[order[k]] = stride;
    stride = wk_int_mul(stride, wk_int_max(spec->sizes[order[k]], one()));
  }
}

static wk_status start(wk__call *c, wk_dtype dtype) {
  const wk_tensor *t = c->args[0].tensor;
  if (dtype == WK_DTYPE_NONE || t->dtype == WK_FLOAT16)
    return wk_fail(WK_RUNTIME_ERROR, "Unsupported dtype %s", wk__dtype_legacy((wk_dtype)t->dtype));
  wk__spec_contiguous(&c->specs[0], dtype, t->device, t->ndim, t->sizes);
  c->compute_dtype = (uint8_t)dtype;
  return WK_OK;
}

wk_status wk__meta_fft_c2c(wk__call *c) {
  WK__ARGS(_fft_c2c);
  const wk_tensor *t = c->args[A_self].tensor;
  WK_TRY(start(c, is_complex(t) ? (wk_dtype)t->dtype : WK_DTYPE_NONE));
  lay_out(&c->specs[0], t, &c->args[A_dim], false);
  return WK_OK;
}
wk_status wk__meta_fft_r2c(wk__call *c) {
  WK__ARGS(_fft_r2c);
  const wk_tensor *t = c->args[A_self].tensor;
  const wk_value *dims = &c->args[A_dim];
  WK_TRY(start(c, is_complex(t) ? WK_DTYPE_NONE : wk__complex_dtype((wk_dtype)t->dtype)));
  int last = dim_at(dims, dims->count - 1, t->ndim);
  if (wk__arg_bool(c, A_onesided)) c->specs[0].sizes[last] = half_of(t->sizes[last]);
  lay_out(&c->specs[0], t, dims, true);
  return WK_OK;
}
wk_status wk__meta_fft_c2r(wk__call *c) {
  WK__ARGS(_fft_c2r);
  const wk_tensor *t = c->args[A_self].tensor;
  const wk_value *dims = &c->args[A_dim];
  wk_int n = c->args[A_last_dim_size].integer;
  WK_TRY(start(c, is_complex(t) ? wk__real_dtype((wk_dtype)t->dtype) : WK_DTYPE_NONE));
  int last = dim_at(dims, dims->count - 1, t->ndim);
  if (dims->count != 1 || !wk_int_eq(t->sizes[last], half_of(n)))
    return wk_fail(WK_RUNTIME_ERROR, "_fft_c2r: expected one dim with half of the spectrum");
  c->specs[0].sizes[last] = n;
  lay_out(&c->specs[0], t, dims, true);
  return WK_OK;
}

/* ---- derivatives ---- */

static const wk_int *ints(const wk_value *v) { return v->integers; }

wk_status wk__vjp_fft_c2c(wk__vjp *v) {
  WK__ARGS(_fft_c2c);
  const wk_value *dims = &v->args[A_dim];
  int64_t how = wk_int_guard_value(v->args[A_normalization].integer);
  return wk__vjp_set(v, A_self, wk__fft_c2c(G, ints(dims), (int)dims->count, how, !v->args[A_forward].boolean));
}
/* The half that was left out has no gradient. */
wk_status wk__vjp_fft_r2c(wk__vjp *v) {
  WK__ARGS(_fft_r2c);
  const wk_value *dims = &v->args[A_dim];
  const wk_tensor *self = ARG(A_self);
  int64_t how = wk_int_guard_value(v->args[A_normalization].integer);
  int last = dim_at(dims, dims->count - 1, self->ndim);
  wk_tensor *g = G;
  if (v->args[A_onesided].boolean) {
    wk_int end = G->sizes[last];
    wk_int sizes[WK_MAX_DIMS];
    memcpy(sizes, G->sizes, G->ndim * sizeof *sizes);
    sizes[last] = self->sizes[last];
    g = wk_slice_backward(G, sizes, G->ndim, last, wk__v_int(0), wk__v_size(end), one());
  }
  g = g ? wk__fft_c2c(g, ints(dims), (int)dims->count, how, false) : NULL;
  return wk__vjp_set(v, A_self, g ? wk_real(g) : NULL);
}
/* Numbers that stand for their mirrored ones as well count twice. */
wk_status wk__vjp_fft_c2r(wk__vjp *v) {
  WK__ARGS(_fft_c2r);
  const wk_value *dims = &v->args[A_dim];
  const wk_tensor *self = ARG(A_self);
  int64_t how = wk_int_guard_value(v->args[A_normalization].integer);
  int last = dim_at(dims, 0, self->ndim);
  wk_tensor *g = wk__fft_r2c(G, ints(dims), 1, how, true);
  if (!g) return wk_error_category();
  wk_int twice = wk_int_sub(G->sizes[last], g->sizes[last]), behind = wk_int_add(twice, one());
  if (wk_int_lt(wk_int_of(0), twice)) {
    wk_tensor *parts[] = {wk_narrow(g, last, wk_int_of(0), one()),
                          wk_mul_Scalar(wk_narrow(g, last, one(), twice), wk__v_int(2)),
                          wk_narrow(g, last, behind, wk_int_sub(g->sizes[last], behind))};
    g = parts[0] && parts[1] && parts[2] ? wk_cat(parts, 3, last) : NULL;
  }
  return wk__vjp_set(v, A_self, g);
}

/* ---- torch.fft ---- */

static wk_status normalization_of(const wk_value *norm, bool forward, int64_t *out) {
  const char *name = norm->tag == WK_VALUE_STRING ? norm->string : "backward";
  if (strcmp(name, "backward") == 0)
    *out = forward ? BY_NOTHING : BY_LENGTH;
  else if (strcmp(name, "forward") == 0)
    *out = forward ? BY_LENGTH : BY_NOTHING;
  else if (strcmp(name, "ortho") == 0)
    *out = BY_ROOT;
  else
    return wk_fail(WK_RUNTIME_ERROR, "Invalid normalization mode: \"%s\"", name);
  return WK_OK;
}

/* What a transform takes, and how: filled from the arguments of either kind of function. */
typedef struct plan {
  wk_tensor *t;
  int count;
  int dims[WK_MAX_DIMS];
  wk_int sizes[WK_MAX_DIMS]; /* by dims; -1: as it is */
  const wk_value *norm;
} plan;

static wk_status unsupported(const wk_tensor *t) {
  wk_dtype dtype = (wk_dtype)t->dtype;
  bool known =
      wk_dtype_is_complex(dtype) || wk_dtype_is_integral(dtype, true) || dtype == WK_FLOAT32 || dtype == WK_FLOAT64;
  return known ? WK_OK : wk_fail(WK_RUNTIME_ERROR, "Unsupported dtype %s", wk__dtype_legacy(dtype));
}

static wk_status no_dims(int64_t dim) {
  return wk_fail(WK_INDEX_ERROR, "Dimension specified as %lld but tensor has no dimensions", (long long)dim);
}

static wk_status plan_one(const wk__call *c, plan *p) {
  WK__ARGS(fft_fft);
  *p = (plan){.t = c->args[A_self].tensor, .count = 1, .norm = &c->args[A_norm]};
  if (!p->t->ndim) return no_dims(wk__arg_int(c, A_dim));
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), p->t->ndim, &p->dims[0]));
  p->sizes[0] = wk__arg_is_none(c, A_n) ? wk_int_of(-1) : c->args[A_n].integer;
  if (!wk__arg_is_none(c, A_n) && wk_int_lt(p->sizes[0], one()))
    return wk_fail(WK_RUNTIME_ERROR, "Invalid number of data points (%lld) specified", wk__shown(p->sizes[0]));
  return unsupported(p->t);
}

static wk_status plan_many(const wk__call *c, plan *p) {
  WK__ARGS(fft_fftn);
  const wk_value *s = &c->args[A_s], *dims = &c->args[A_dim];
  bool has_s = s->tag == WK_VALUE_INTS, has_dims = dims->tag == WK_VALUE_INTS;
  uint64_t mask = 0;
  *p = (plan){.t = c->args[A_self].tensor, .norm = &c->args[A_norm]};
  p->count = has_dims ? (int)dims->count : has_s ? (int)s->count : p->t->ndim;
  if (has_dims && p->count && !p->t->ndim) return no_dims(wk_int_guard_value(dims->integers[0]));
  for (int k = 0; has_dims && k < p->count; k++) {
    WK_TRY(wk__wrap_dim(wk_int_guard_value(dims->integers[k]), p->t->ndim, &p->dims[k]));
    if (mask >> p->dims[k] & 1) return wk_fail(WK_RUNTIME_ERROR, "FFT dims must be unique");
    mask |= wk__dim_bit(p->dims[k]);
  }
  if (has_s && has_dims && s->count != dims->count)
    return wk_fail(WK_RUNTIME_ERROR, "When given, dim and shape arguments must have the same length");
  if (p->count > p->t->ndim)
    return wk_fail(WK_RUNTIME_ERROR, "Got shape with %d values but input tensor only has %d dimensions.", p->count,
                   p->t->ndim);
  for (int k = 0; k < p->count; k++) {
    if (!has_dims) p->dims[k] = p->t->ndim - p->count + k;
    p->sizes[k] = has_s ? s->integers[k] : wk_int_of(-1);
  }
  return unsupported(p->t);
}

/* Sizes are one at least. */
static wk_status check_points(wk_int n) {
  if (!wk_int_lt(n, one())) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "Invalid number of data points (%lld) specified", wk__shown(n));
}

static wk_tensor *resized(wk_tensor *t, int dim, wk_int n) {
  if (!t || wk_int_eq(t->sizes[dim], n)) return t;
  if (wk_int_lt(n, t->sizes[dim])) return wk_slice(t, dim, wk__v_int(0), wk__v_size(n), one());
  wk_int pad[2 * WK_MAX_DIMS];
  int count = 2 * (t->ndim - dim);
  for (int k = 0; k < count; k++) pad[k] = wk_int_of(0);
  pad[count - 1] = wk_int_sub(n, t->sizes[dim]);
  return wk_constant_pad_nd(t, pad, count, wk__v_int(0));
}

/* The input in the sizes that were asked for, of the kind that is wanted; `last`: the last dim's size is another
 * matter. */
static wk_status prepare(plan *p, bool wants_complex, bool last) {
  wk_dtype dtype = (wk_dtype)p->t->dtype;
  if (wk_dtype_is_integral(dtype, true)) dtype = wk__default_dtype();
  if (wants_complex && !wk_dtype_is_complex(dtype)) dtype = wk__complex_dtype(dtype);
  p->t = wk__in_dtype(p->t, dtype);
  for (int k = 0; k < p->count - !last && p->t; k++) {
    bool given = !wk_int_eq(p->sizes[k], wk_int_of(-1));
    WK_TRY(check_points(given ? p->sizes[k] : p->t->sizes[p->dims[k]]));
    if (given) p->t = resized(p->t, p->dims[k], p->sizes[k]);
  }
  return p->t ? WK_OK : wk_error_category();
}

static wk_tensor *c2c(const plan *p, wk_tensor *t, int count, int64_t how, bool forward) {
  wk_int dims[WK_MAX_DIMS];
  for (int k = 0; k < count; k++) dims[k] = wk_int_of(p->dims[k]);
  return count ? wk__fft_c2c(t, dims, count, how, forward) : t;
}
static wk_tensor *r2c(const plan *p, wk_tensor *t, int64_t how, bool onesided) {
  wk_int dims[WK_MAX_DIMS];
  for (int k = 0; k < p->count; k++) dims[k] = wk_int_of(p->dims[k]);
  return wk__fft_r2c(t, dims, p->count, how, onesided);
}

typedef wk_status read_plan(const wk__call *c, plan *p);
static wk_status finish(wk__call *c, wk_scope *scope, wk_status status, wk_tensor *y) {
  if (status == WK_OK) c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(scope);
  return status != WK_OK ? status : y ? WK_OK : wk_error_category();
}

/* From signals of any kind to signals or spectra. */
static wk_status complex_transform(wk__call *c, read_plan *read, bool forward) {
  plan p;
  int64_t how = 0;
  WK_TRY(read(c, &p));
  wk_scope scope;
  wk_scope_begin(&scope);
  bool real = !is_complex(p.t) && forward && read == plan_one;
  wk_status status = prepare(&p, !real, true);
  if (status == WK_OK) status = normalization_of(p.norm, forward, &how);
  wk_tensor *y = status ? NULL : real ? r2c(&p, p.t, how, false) : c2c(&p, p.t, p.count, how, forward);
  return finish(c, &scope, status, y);
}
wk_status wk__compose_fft_fft(wk__call *c) { return complex_transform(c, plan_one, true); }
wk_status wk__compose_fft_ifft(wk__call *c) { return complex_transform(c, plan_one, false); }
wk_status wk__compose_fft_fftn(wk__call *c) { return complex_transform(c, plan_many, true); }
wk_status wk__compose_fft_ifftn(wk__call *c) { return complex_transform(c, plan_many, false); }

static const char *own_name(const wk__call *c) { return c->op->base_name + strlen("fft_"); }

/* From real signals to the first half of the spectrum; the inverse direction gives its conjugate. */
static wk_status real_transform(wk__call *c, read_plan *read, bool forward) {
  plan p;
  int64_t how = 0;
  WK_TRY(read(c, &p));
  if (is_complex(p.t))
    return wk_fail(WK_RUNTIME_ERROR, "%s expects a real%s input tensor, but got %s", own_name(c),
                   read == plan_many ? "-valued" : "", wk__dtype_legacy((wk_dtype)p.t->dtype));
  if (!p.count) return wk_fail(WK_RUNTIME_ERROR, "%s must transform at least one axis", own_name(c));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = prepare(&p, false, true);
  if (status == WK_OK) status = normalization_of(p.norm, forward, &how);
  plan last = p;
  last.dims[0] = p.dims[p.count - 1];
  last.count = forward ? p.count : 1;
  wk_tensor *y = status ? NULL : r2c(forward ? &p : &last, p.t, how, true);
  if (y && !forward) y = c2c(&p, wk__conj(y), p.count - 1, how, false);
  return finish(c, &scope, status, y);
}
wk_status wk__compose_fft_rfft(wk__call *c) { return real_transform(c, plan_one, true); }
wk_status wk__compose_fft_ihfft(wk__call *c) { return real_transform(c, plan_one, false); }
wk_status wk__compose_fft_rfftn(wk__call *c) { return real_transform(c, plan_many, true); }
wk_status wk__compose_fft_ihfftn(wk__call *c) { return real_transform(c, plan_many, false); }

/* From the first half of a real signal's spectrum to the signal; the forward direction takes its conjugate. */
static wk_status to_real(wk__call *c, read_plan *read, bool forward) {
  plan p;
  int64_t how = 0;
  WK_TRY(read(c, &p));
  if (!p.count) return wk_fail(WK_RUNTIME_ERROR, "%s must transform at least one axis", own_name(c));
  wk_scope scope;
  wk_scope_begin(&scope);
  int last = p.count - 1, dim = p.dims[last];
  wk_int two = wk_int_of(2), own = wk_int_mul(two, wk_int_sub(p.t->sizes[dim], one()));
  wk_int n = wk_int_eq(p.sizes[last], wk_int_of(-1)) ? own : p.sizes[last];
  wk_status status = check_points(n);
  if (status == WK_OK) status = prepare(&p, true, false);
  if (status == WK_OK) status = normalization_of(p.norm, forward, &how);
  wk_tensor *t = status ? NULL : resized(p.t, dim, half_of(n)), *y = NULL;
  if (t && forward) t = wk__conj(t);
  if (t) t = c2c(&p, t, last, how, false);
  wk_int along = wk_int_of(dim);
  if (t) y = wk__fft_c2r(t, &along, 1, how, n);
  return finish(c, &scope, status, y);
}
wk_status wk__compose_fft_irfft(wk__call *c) { return to_real(c, plan_one, false); }
wk_status wk__compose_fft_hfft(wk__call *c) { return to_real(c, plan_one, true); }
wk_status wk__compose_fft_irfftn(wk__call *c) { return to_real(c, plan_many, false); }
wk_status wk__compose_fft_hfftn(wk__call *c) { return to_real(c, plan_many, true); }

/* ---- frequencies ---- */

static wk_tensor *counted(const wk__call *c, int64_t from, int64_t to) {
  WK__ARGS(fft_fftfreq);
  wk_value args[] = {wk__v_int(from), wk__v_int(to), wk__v_dtype(wk__arg_dtype(c, A_dtype, wk__default_dtype())),
                     c->args[A_device]};
  return wk__call_tensor(WK__OP(arange_start), args);
}
static wk_status frequencies(wk__call *c, bool both) {
  WK__ARGS(fft_fftfreq);
  int64_t n = wk__arg_int(c, A_n);
  double factor = 1 / ((double)n * wk__scalar_double(wk__value_scalar(&c->args[A_d])));
  wk_scope scope;
  wk_scope_begin(&scope);
  int64_t middle = !both ? n / 2 + 1 : n > 0 ? (n + 1) / 2 : 0;
  wk_tensor *parts[] = {counted(c, 0, middle), both ? counted(c, -(n / 2), 0) : NULL};
  wk_tensor *y = both && parts[0] && parts[1] ? wk_cat(parts, 2, 0) : parts[0];
  return finish(c, &scope, WK_OK, y ? wk_mul_Scalar(y, wk__v_double(factor)) : NULL);
}
wk_status wk__compose_fft_fftfreq(wk__call *c) { return frequencies(c, true); }
wk_status wk__compose_fft_rfftfreq(wk__call *c) { return frequencies(c, false); }

static wk_status shifted(wk__call *c, bool back) {
  WK__ARGS(fft_fftshift);
  wk_tensor *t = c->args[A_self].tensor;
  uint64_t mask;
  wk_int by[WK_MAX_DIMS], dims[WK_MAX_DIMS], two = wk_int_of(2);
  int n = 0;
  WK_TRY(wk__dims_mask(&c->args[A_dim], t->ndim, false, &mask));
  for (int d = 0; d < t->ndim; d++) {
    if (!(mask >> d & 1)) continue;
    wk_int size = t->sizes[d];
    by[n] = wk_int_floordiv(back ? wk_int_add(size, one()) : size, two);
    dims[n++] = wk_int_of(d);
  }
  wk_scope scope;
  wk_scope_begin(&scope);
  return finish(c, &scope, WK_OK, n ? wk_roll(t, by, n, dims, n) : wk_clone(t, NULL));
}
wk_status wk__compose_fft_fftshift(wk__call *c) { return shifted(c, false); }
wk_status wk__compose_fft_ifftshift(wk__call *c) { return shifted(c, true); }
