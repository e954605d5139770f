/* Composites: products, differences, moments, indexing of whole slices.
 * In: a call. Out: calls of other rows, whose derivatives hold. Tests: tests/ops/. */
#include "ops/rules.h"
#include "ops/rules/composite.h"
#include "ops/rules/product.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

static wk_tensor *tensor_at(const wk__call *c, int i) { return c->args[i].tensor; }

wk_status wk__compose_type_as(wk__call *c) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *self = tensor_at(c, 0), *other = tensor_at(c, 1);
  if (self->dtype == other->dtype && wk__device_equal(self->device, other->device)) return wk__give(c, &scope, self);
  wk_value device = {.tag = WK_VALUE_DEVICE, .device = other->device};
  return wk__give(c, &scope, wk__to_copy(self, (wk_dtype)other->dtype, device));
}

wk_status wk__compose_as_it_is(wk__call *c) {
  wk_scope scope;
  wk_scope_begin(&scope);
  return wk__give(c, &scope, tensor_at(c, 0));
}
wk_status wk__compose_positive(wk__call *c) {
  if (tensor_at(c, 0)->dtype == WK_BOOL)
    return wk_fail(WK_RUNTIME_ERROR, "The `+` operator, on a bool tensor is not supported.");
  return wk__compose_as_it_is(c);
}

wk_status wk__compose_isreal(wk__call *c) {
  wk_tensor *t = tensor_at(c, 0);
  wk_scope scope;
  wk_scope_begin(&scope);
  if (wk_dtype_is_complex((wk_dtype)t->dtype)) return wk__give(c, &scope, wk_eq_Scalar(wk_imag(t), wk__v_int(0)));
  return wk__give(c, &scope, wk_ones_like(t, WK_BOOL, (wk_value){0}, NULL));
}

wk_status wk__compose_ravel(wk__call *c) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_int flat = wk_int_of(-1);
  wk_tensor *t = wk_contiguous(tensor_at(c, 0), NULL);
  return wk__give(c, &scope, t ? wk_reshape(t, &flat, 1) : NULL);
}

/* repeat, with ones before too few counts */
wk_status wk__compose_tile(wk__call *c) {
  wk_tensor *t = tensor_at(c, 0);
  const wk_value *dims = &c->args[WK__ARG(tile, dims)];
  wk_int counts[WK_MAX_DIMS];
  int given = (int)dims->count, lead = t->ndim > given ? t->ndim - given : 0;
  if (given > WK_MAX_DIMS) return wk_fail(WK_RUNTIME_ERROR, "a tensor has at most %d dimensions", WK_MAX_DIMS);
  for (int d = 0; d < lead; d++) counts[d] = wk_int_of(1);
  for (int d = 0; d < given; d++) counts[lead + d] = dims->integers[d];
  wk_scope scope;
  wk_scope_begin(&scope);
  return wk__give(c, &scope, wk_repeat(t, counts, lead + given));
}

/* ---- differences ---- */

/* x[1:] - x[:-1] along dim; of bools whether they differ */
static wk_tensor *difference(wk_tensor *t, int dim) {
  if (!t) return NULL;
  wk_int one = wk_int_of(1), last = wk_int_sub(t->sizes[dim], one);
  wk_tensor *later = wk_slice(t, dim, wk__v_int(1), NONE, one),
            *earlier = wk_slice(t, dim, NONE, wk__v_size(last), one);
  return t->dtype == WK_BOOL ? wk_logical_xor(later, earlier) : wk_sub(later, earlier, wk__v_int(1));
}
wk_status wk__compose_diff(wk__call *c) {
  wk_tensor *t = tensor_at(c, 0), *before = wk__arg_tensor(c, WK__ARG(diff, prepend)),
            *behind = wk__arg_tensor(c, WK__ARG(diff, append));
  int64_t n = wk__arg_int(c, WK__ARG(diff, n));
  int dim;
  if (t->ndim == 0) return wk_fail(WK_RUNTIME_ERROR, "diff expects input to be at least one-dimensional");
  if ((before && before->ndim != t->ndim) || (behind && behind->ndim != t->ndim))
    return wk_fail(WK_RUNTIME_ERROR, "diff expects prepend or append to be the same dimension as input");
  if (n < 0) return wk_fail(WK_RUNTIME_ERROR, "order must be non-negative but got %lld", (long long)n);
  WK_TRY(wk__wrap_dim(wk__arg_int(c, WK__ARG(diff, dim)), t->ndim, &dim));
  wk_scope scope;
  wk_scope_begin(&scope);
  if (n == 0) return wk__give(c, &scope, wk_clone(t, NULL)); /* without what would stand around it */
  wk_tensor *parts[] = {before ? before : t, before ? t : behind, behind};
  if (before || behind) t = wk_cat(parts, 1 + (before != NULL) + (behind != NULL), dim);
  for (int64_t k = 0; k < n && t && wk_int_gt(t->sizes[dim], wk_int_of(0)); k++) t = difference(t, dim);
  return wk__give(c, &scope, t);
}

/* ---- products ---- */

static bool is_one(const wk_value *v) {
  return wk__value_is_number(v) && !(v->tag == WK_VALUE_DOUBLE && v->count) &&
         wk__scalar_double(wk__value_scalar(v)) == 1;
}
static bool is_zero(const wk_value *v) { return wk__scalar_double(wk__value_scalar(v)) == 0; }
/* Of bools whether one of the two is true; a factor only says whether its part counts. */
static wk_tensor *blend_bools(wk_tensor *self, wk_tensor *product, bool of_self, bool of_product) {
  if (!of_product) product = wk_zeros_like(product, WK_DTYPE_NONE, NONE, NULL);
  return of_self ? wk_logical_or(self, product) : product;
}
/* beta self + alpha product; with beta 0 self is not looked at. The first operand decides how the result lies: of addr
 * self, as in PyTorch's loop, of the others the product */
static wk_tensor *blend(const wk__call *c, wk_tensor *self, wk_tensor *product) {
  const wk_value *beta = &c->args[WK__ARG(addr, beta)], *alpha = &c->args[WK__ARG(addr, alpha)];
  if (product && product->dtype == WK_BOOL && self && self->dtype == WK_BOOL)
    return blend_bools(self, product, !is_zero(beta), !is_zero(alpha));
  if (!is_one(alpha)) product = wk_mul_Scalar(product, *alpha);
  if (is_zero(beta)) return product ? wk_expand(product, product->sizes, product->ndim, false) : NULL;
  if (!is_one(beta)) self = wk_mul_Scalar(self, *beta);
  return c->op == WK__OP(addr) ? wk_add(self, product, wk__v_int(1)) : wk_add(product, self, wk__v_int(1));
}
/* Integers take whole factors. */
static wk_tensor *blend_whole(const wk__call *c, wk_tensor *product) {
  enum { ARGS = 5 };
  wk_value args[ARGS];
  wk__call whole = *c;
  memcpy(args, c->args, sizeof args);
  whole.args = args;
  bool integral = wk_dtype_is_integral((wk_dtype)tensor_at(c, 0)->dtype, false);
  for (int i = WK__ARG(addr, beta); i <= WK__ARG(addr, alpha) && integral; i++)
    args[i] = wk__v_int(wk__scalar_int(wk__value_scalar(&args[i])));
  return blend(&whole, tensor_at(c, 0), product);
}
wk_status wk__compose_addmv(wk__call *c) {
  if (tensor_at(c, 0)->ndim > 1 || tensor_at(c, 1)->ndim != 2 || tensor_at(c, 2)->ndim != 1)
    return wk_fail(WK_RUNTIME_ERROR, "vector + matrix @ vector expected, got %d, %d, %d", tensor_at(c, 0)->ndim,
                   tensor_at(c, 1)->ndim, tensor_at(c, 2)->ndim);
  WK_TRY(wk__check_addmv(tensor_at(c, 0), tensor_at(c, 1), tensor_at(c, 2)));
  wk_scope scope;
  wk_scope_begin(&scope);
  return wk__give(c, &scope, blend_whole(c, wk_mv(tensor_at(c, 1), tensor_at(c, 2))));
}
/* Of all three, as if self had two dims. */
static wk_dtype dtype_of_addr(const wk__call *c) {
  wk_dtype vectors = wk__promote((wk_dtype)tensor_at(c, 1)->dtype, (wk_dtype)tensor_at(c, 2)->dtype);
  return wk__promote((wk_dtype)tensor_at(c, 0)->dtype, vectors);
}
static wk_status check_addr_factor(const wk_value *v, const char *name, wk_dtype dtype) {
  if (v->tag == WK_VALUE_BOOL && dtype != WK_BOOL)
    return wk_fail(WK_RUNTIME_ERROR, "Boolean %s only supported for Boolean results.", name);
  if (!wk_dtype_is_integral(dtype, true) || !wk__value_is_real(v)) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "For integral input tensors, argument %s must not be a floating point number.",
                 name);
}
wk_status wk__compose_addr(wk__call *c) {
  if (tensor_at(c, 1)->ndim != 1 || tensor_at(c, 2)->ndim != 1)
    return wk_fail(WK_RUNTIME_ERROR, "addr: Expected 1-D argument vec%d, but got %d-D",
                   tensor_at(c, 1)->ndim == 1 ? 2 : 1, tensor_at(c, tensor_at(c, 1)->ndim == 1 ? 2 : 1)->ndim);
  wk_tensor *a = tensor_at(c, 1), *b = tensor_at(c, 2);
  wk_dtype dtype = dtype_of_addr(c);
  WK_TRY(wk__check_expand(tensor_at(c, 0), (wk_int[]){a->sizes[0], b->sizes[0]}, 2));
  WK_TRY(check_addr_factor(&c->args[WK__ARG(addr, beta)], "beta", dtype));
  WK_TRY(check_addr_factor(&c->args[WK__ARG(addr, alpha)], "alpha", dtype));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *product = wk_outer(wk__in_dtype(a, dtype), wk__in_dtype(b, dtype));
  return wk__give(c, &scope, blend(c, wk__in_dtype(tensor_at(c, 0), dtype), product));
}
wk_status wk__compose_addbmm(wk__call *c) {
  if (tensor_at(c, 0)->dtype != tensor_at(c, 1)->dtype)
    return wk_fail(WK_RUNTIME_ERROR, "self and mat2 must have the same dtype, but got %s and %s",
                   wk__dtype_legacy((wk_dtype)tensor_at(c, 0)->dtype),
                   wk__dtype_legacy((wk_dtype)tensor_at(c, 1)->dtype));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_int batch = wk_int_of(0);
  wk_tensor *self = tensor_at(c, 0), *product = wk_bmm(tensor_at(c, 1), tensor_at(c, 2));
  wk_tensor *sum = wk_sum_dim_IntList(product, &batch, 1, false, (wk_dtype)self->dtype);
  if (sum && !wk_expand(self, sum->sizes, sum->ndim, false)) sum = NULL; /* even where beta is 0 */
  return wk__give(c, &scope, blend_whole(c, sum));
}

wk_status wk__compose_inner(wk__call *c) {
  wk_tensor *a = tensor_at(c, 0), *b = tensor_at(c, 1);
  wk_scope scope;
  wk_scope_begin(&scope);
  if (!a->ndim || !b->ndim) return wk__give(c, &scope, wk_mul(a, b));
  if (!wk_int_eq(a->sizes[a->ndim - 1], b->sizes[b->ndim - 1])) {
    wk_scope_end(&scope);
    return wk_fail(WK_RUNTIME_ERROR,
                   "inner() the last dimension must match on both input tensors but got shapes %lld and %lld",
                   wk__shown(a->sizes[a->ndim - 1]), wk__shown(b->sizes[b->ndim - 1]));
  }
  wk_int sizes[2 * WK_MAX_DIMS], length = a->sizes[a->ndim - 1];
  wk_int rows_of_a[] = {wk__sizes_numel(a->sizes, a->ndim - 1), length},
         rows_of_b[] = {wk__sizes_numel(b->sizes, b->ndim - 1), length};
  int n = 0;
  for (int d = 0; d < a->ndim - 1; d++) sizes[n++] = a->sizes[d];
  for (int d = 0; d < b->ndim - 1; d++) sizes[n++] = b->sizes[d];
  wk_tensor *flat = wk_mm(wk_reshape(a, rows_of_a, 2), wk_transpose_int(wk_reshape(b, rows_of_b, 2), 0, 1));
  return wk__give(c, &scope, n > WK_MAX_DIMS ? NULL : wk_reshape(flat, sizes, n));
}
wk_status wk__compose_vdot(wk__call *c) {
  wk_scope scope;
  wk_scope_begin(&scope);
  return wk__give(c, &scope, wk_dot(wk__conj(tensor_at(c, 0)), tensor_at(c, 1)));
}

/* (a0, 1, a1, 1) (1, b0, 1, b1), its pairs of dims joined */
wk_status wk__compose_kron(wk__call *c) {
  wk_tensor *a = tensor_at(c, 0), *b = tensor_at(c, 1);
  int rank = a->ndim > b->ndim ? a->ndim : b->ndim;
  wk_int left[WK_MAX_DIMS], right[WK_MAX_DIMS], joined[WK_MAX_DIMS], one = wk_int_of(1);
  if (2 * rank > WK_MAX_DIMS) return wk_fail(WK_NOT_IMPLEMENTED, "kron of tensors with this many dimensions");
  for (int d = 0; d < rank; d++) {
    wk_int x = d < rank - a->ndim ? one : a->sizes[d - (rank - a->ndim)];
    wk_int y = d < rank - b->ndim ? one : b->sizes[d - (rank - b->ndim)];
    left[2 * d] = x, left[2 * d + 1] = one, right[2 * d] = one, right[2 * d + 1] = y;
    joined[d] = wk_int_mul(x, y);
  }
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *product = wk_mul(wk_reshape(a, left, 2 * rank), wk_reshape(b, right, 2 * rank));
  return wk__give(c, &scope, wk_reshape(product, joined, rank));
}

/* a x b: a[1, 2, 0] b[2, 0, 1] - a[2, 0, 1] b[1, 2, 0] */
static wk_tensor *rolled_by(wk_tensor *t, int shift, int dim) {
  wk_int by = wk_int_of(-shift), along = wk_int_of(dim);
  return wk_roll(t, &by, 1, &along, 1);
}
wk_status wk__compose_cross(wk__call *c) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *a = tensor_at(c, 0), *b = tensor_at(c, 1), *sum = wk_add(a, b, wk__v_int(1));
  wk_status status = sum ? WK_OK : wk_error_category();
  if (!status && a->ndim != b->ndim)
    status = wk_fail(WK_RUNTIME_ERROR, "linalg.cross: inputs must have the same number of dimensions.");
  int dim = -1;
  if (!status && !wk__arg_is_none(c, WK__ARG(cross, dim)))
    status = wk__wrap_dim(wk__arg_int(c, WK__ARG(cross, dim)), sum->ndim, &dim);
  for (int d = 0; !status && dim < 0 && d < sum->ndim; d++)
    if (wk_int_eq(sum->sizes[d], wk_int_of(3))) dim = d;
  if (!status && dim < 0) status = wk_fail(WK_RUNTIME_ERROR, "no dimension of size 3 in input");
  if (!status && !wk_int_eq(sum->sizes[dim], wk_int_of(3)))
    status = wk_fail(WK_RUNTIME_ERROR, "linalg.cross: inputs dimension %d must have length 3. Got %lld and %lld", dim,
                     wk__shown(sum->sizes[dim]), wk__shown(sum->sizes[dim]));
  if (!status && a->dtype != b->dtype)
    status = wk_fail(WK_RUNTIME_ERROR, "expected scalar type %s but found %s", wk__dtype_legacy((wk_dtype)a->dtype),
                     wk__dtype_legacy((wk_dtype)b->dtype));
  if (status) {
    wk_scope_end(&scope);
    return status;
  }
  a = wk_expand(a, sum->sizes, sum->ndim, false);
  b = wk_expand(b, sum->sizes, sum->ndim, false);
  wk_tensor *first = wk_mul(rolled_by(a, 1, dim), rolled_by(b, 2, dim));
  wk_tensor *second = wk_mul(rolled_by(a, 2, dim), rolled_by(b, 1, dim));
  return wk__give(c, &scope, wk_sub(first, second, wk__v_int(1)));
}

/* ---- moments ---- */

static wk_status moments(wk__call *c, wk_value dim, wk_value correction, bool keepdim, bool root) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *t = tensor_at(c, 0);
  wk_tensor *spread = root ? wk_std_correction(t, dim.integers, (int)dim.count, correction, keepdim)
                           : wk_var_correction(t, dim.integers, (int)dim.count, correction, keepdim),
            *mean = wk_mean_dim(t, dim.integers, (int)dim.count, keepdim, WK_DTYPE_NONE);
  return wk__give_two(c, &scope, spread, mean);
}
static wk_value correction_of(const wk__call *c, int unbiased) { return wk__v_int(wk__arg_bool(c, unbiased)); }
wk_status wk__compose_var_mean(wk__call *c) {
  return moments(c, c->args[WK__ARG(var_mean_correction, dim)], c->args[WK__ARG(var_mean_correction, correction)],
                 wk__arg_bool(c, WK__ARG(var_mean_correction, keepdim)), false);
}
wk_status wk__compose_var_mean_dim(wk__call *c) {
  return moments(c, c->args[WK__ARG(var_mean_dim, dim)], correction_of(c, 2),
                 wk__arg_bool(c, WK__ARG(var_mean_dim, keepdim)), false);
}
wk_status wk__compose_var_mean_all(wk__call *c) { return moments(c, NONE, correction_of(c, 1), false, false); }
wk_status wk__compose_std_mean(wk__call *c) {
  return moments(c, c->args[WK__ARG(std_mean_correction, dim)], c->args[WK__ARG(std_mean_correction, correction)],
                 wk__arg_bool(c, WK__ARG(std_mean_correction, keepdim)), true);
}
wk_status wk__compose_std_mean_dim(wk__call *c) {
  return moments(c, c->args[WK__ARG(std_mean_dim, dim)], correction_of(c, 2),
                 wk__arg_bool(c, WK__ARG(std_mean_dim, keepdim)), true);
}
wk_status wk__compose_std_mean_all(wk__call *c) { return moments(c, NONE, correction_of(c, 1), false, true); }

static wk_status refuse_complex_nans(const wk__call *c) {
  if (!wk_dtype_is_complex((wk_dtype)c->args[0].tensor->dtype)) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "nansum on CPU does not support complex inputs");
}
wk_status wk__compose_nansum(wk__call *c) {
  WK__ARGS(nansum);
  WK_TRY(refuse_complex_nans(c));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *t = tensor_at(c, 0), *clean = wk_where_ScalarSelf(wk_isnan(t), wk__v_int(0), t);
  wk_dtype dtype = wk__arg_dtype(c, WK__ARG(nansum, dtype), WK_DTYPE_NONE);
  return wk__give(
      c, &scope,
      wk_sum_dim_IntList(clean, c->args[A_dim].integers, (int)c->args[A_dim].count, wk__arg_bool(c, A_keepdim), dtype));
}
wk_status wk__compose_nanmean(wk__call *c) {
  WK__ARGS(nanmean);
  wk_dtype given = (wk_dtype)tensor_at(c, 0)->dtype;
  if (!wk_dtype_is_floating(given) && !wk_dtype_is_complex(given))
    return wk_fail(WK_RUNTIME_ERROR, "nanmean(): expected input to have floating point or complex dtype but got %s",
                   wk__dtype_legacy(given));
  WK_TRY(refuse_complex_nans(c));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *t = tensor_at(c, 0), *wrong = wk_isnan(t), *clean = wk_where_ScalarSelf(wrong, wk__v_int(0), t);
  wk_dtype dtype = wk__arg_dtype(c, WK__ARG(nanmean, dtype), WK_DTYPE_NONE);
  wk_tensor *sum =
      wk_sum_dim_IntList(clean, c->args[A_dim].integers, (int)c->args[A_dim].count, wk__arg_bool(c, A_keepdim), dtype);
  wk_tensor *count = wk_sum_dim_IntList(wk_logical_not(wrong), c->args[A_dim].integers, (int)c->args[A_dim].count,
                                        wk__arg_bool(c, A_keepdim), WK_DTYPE_NONE);
  return wk__give(c, &scope, wk_div(sum, count));
}

static wk_status count_where(wk__call *c, wk_value dims) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *holds = wk_ne_Scalar(tensor_at(c, 0), wk__v_int(0));
  return wk__give(c, &scope, wk_sum_dim_IntList(holds, dims.integers, (int)dims.count, false, WK_DTYPE_NONE));
}
wk_status wk__compose_count_nonzero_dims(wk__call *c) {
  return count_where(c, c->args[WK__ARG(count_nonzero_dim_IntList, dim)]);
}
wk_status wk__compose_count_nonzero(wk__call *c) {
  if (wk__arg_is_none(c, WK__ARG(count_nonzero, dim))) return count_where(c, NONE);
  wk_int dim = c->args[WK__ARG(count_nonzero, dim)].integer;
  return count_where(c, wk__v_ints(&dim, 1));
}

wk_status wk__compose_dist(wk__call *c) {
  wk_scope scope;
  wk_scope_begin(&scope);
  return wk__give(c, &scope,
                  wk_norm_Scalar(wk_sub(tensor_at(c, 0), tensor_at(c, 1), wk__v_int(1)), c->args[WK__ARG(dist, p)]));
}

/* ---- slices by index ---- */

/* The index, as long as dim, with every other dim of `like` beside it. */
static wk_tensor *index_for(wk_tensor *index, const wk_tensor *like, int dim) {
  wk_int view[WK_MAX_DIMS], sizes[WK_MAX_DIMS];
  for (int d = 0; d < like->ndim; d++) {
    view[d] = d == dim ? wk_int_of(-1) : wk_int_of(1);
    sizes[d] = d == dim ? index->numel : like->sizes[d];
  }
  return wk_expand(wk_reshape(index, view, like->ndim), sizes, like->ndim, false);
}
static void print_other_sizes(wk__string *text, const wk_tensor *t, int dim) {
  for (int d = 0, printed = 0; d < t->ndim; d++)
    if (d != dim) wk__string_printf(text, "%s%lld", printed++ ? " " : "", wk__shown(t->sizes[d]));
}
static bool has_same_slices(const wk_tensor *self, const wk_tensor *source, int dim) {
  int n = wk__max(self->ndim, 1), m = wk__max(source->ndim, 1);
  if (n != m) return false;
  for (int d = 0; d < self->ndim; d++)
    if (d != dim && !wk_int_eq(self->sizes[d], source->sizes[d])) return false;
  return true;
}

/* In PyTorch's order. */
static wk_status check_copied(const wk_tensor *self, int dim, const wk_tensor *index, const wk_tensor *source) {
  if (index->ndim > 1)
    return wk_fail(WK_INDEX_ERROR, "index_copy_(): Index should have dimension 1 or 0 (got %d)", index->ndim);
  if (!source->ndim && !wk_int_eq(index->numel, wk_int_of(1)))
    return wk_fail(WK_INDEX_ERROR, "index_copy_(): When source is scalar, index should have one element (got %lld)",
                   wk__shown(index->numel));
  if (source->ndim && self->ndim && source->ndim != self->ndim)
    return wk_fail(
        WK_INDEX_ERROR,
        "index_copy_(): When source and destination are not scalars, their dimensionality must match. Source "
        "dimensionality (%d), destination dimensionality (%d)",
        source->ndim, self->ndim);
  if (!has_same_slices(self, source, dim)) {
    wk__string text = {0};
    print_other_sizes(&text, self, dim);
    wk__string_printf(&text, " at dimension %d and source slice shape: ", dim);
    print_other_sizes(&text, source, dim);
    wk_status status =
        wk_fail(WK_RUNTIME_ERROR,
                "index_copy_(): Source/destination tensor must have same slice shapes. Destination slice "
                "shape: %s at dimension 0.",
                text.text ? text.text : "?");
    wk__string_release(&text);
    return status;
  }
  if (source->ndim && !wk_int_eq(index->numel, source->sizes[dim]))
    return wk_fail(WK_INDEX_ERROR, "index_copy_(): Number of indices (%lld) should be equal to source.size(dim) (%lld)",
                   wk__shown(index->numel), wk__shown(source->sizes[dim]));
  return WK_OK;
}

wk_status wk__compose_index_copy(wk__call *c) {
  wk_tensor *self = tensor_at(c, 0), *index = tensor_at(c, 2), *source = tensor_at(c, 3);
  int dim;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, WK__ARG(index_copy, dim)), self->ndim, &dim));
  if (index->dtype != WK_INT64)
    return wk_fail(WK_RUNTIME_ERROR, "index_copy_(): Expected a long tensor for index, but got %s",
                   wk__dtype_legacy((wk_dtype)index->dtype));
  if (self->dtype != source->dtype)
    return wk_fail(WK_RUNTIME_ERROR,
                   "index_copy_(): self and source expected to have the same dtype, but got (self) %s and (source) %s",
                   wk__dtype_legacy((wk_dtype)self->dtype), wk__dtype_legacy((wk_dtype)source->dtype));
  WK_TRY(check_copied(self, dim, index, source));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_int flat = wk_int_of(-1);
  wk_tensor *rows = self->ndim ? self : wk_reshape(self, &flat, 1);
  if (!self->ndim) source = wk_reshape(source, &flat, 1);
  wk_tensor *copied = rows ? wk_scatter_src(rows, dim, index_for(index, rows, dim), source) : NULL;
  return wk__give(c, &scope, self->ndim ? copied : wk_reshape(copied, self->sizes, 0));
}
static wk_status check_filled(const wk_tensor *index) {
  if (index->dtype != WK_INT64) return wk_fail(WK_INDEX_ERROR, "index_fill_(): Expected dtype int64 for index.");
  return index->ndim <= 1 ? WK_OK : wk_fail(WK_RUNTIME_ERROR, "Index has to be a vector/scalar");
}
wk_status wk__compose_index_fill(wk__call *c) {
  WK__ARGS(index_fill_int_Scalar);
  wk_tensor *self = tensor_at(c, A_self), *index = tensor_at(c, A_index);
  int dim;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), self->ndim, &dim));
  WK_TRY(check_filled(index));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_value where = {.tag = WK_VALUE_DEVICE, .device = self->device};
  wk_tensor *value = wk_scalar_tensor(c->args[A_value], (wk_dtype)self->dtype, where);
  wk_tensor *indices[WK_MAX_DIMS] = {NULL};
  wk_int flat = wk_int_of(-1);
  indices[dim] = wk_reshape(index, &flat, 1);
  wk_tensor *filled = wk_index_put(self->ndim ? self : wk_reshape(self, &flat, 1), indices, dim + 1, value, false);
  return wk__give(c, &scope, wk_reshape(filled, self->sizes, self->ndim));
}
/* By a mask: the value's gradient counts each place once, however often it is among the indices. */
wk_status wk__compose_index_fill_tensor(wk__call *c) {
  WK__ARGS(index_fill_int_Tensor);
  wk_tensor *self = tensor_at(c, A_self), *index = tensor_at(c, A_index), *value = tensor_at(c, A_value);
  int dim;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), self->ndim, &dim));
  WK_TRY(check_filled(index));
  if (value->ndim)
    return wk_fail(WK_RUNTIME_ERROR,
                   "index_fill_ only supports a 0-dimensional value tensor, but got tensor with %d dimension(s).",
                   value->ndim);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_int sizes[WK_MAX_DIMS], length = self->ndim ? self->sizes[dim] : wk_int_of(1);
  for (int d = 0; d < self->ndim; d++) sizes[d] = d == dim ? length : wk_int_of(1);
  wk_tensor *mask = wk_new_zeros(self, &length, 1, WK_BOOL, NONE);
  if (mask) mask = wk_index_fill_int_Scalar(mask, 0, index, wk__v_bool(true));
  if (mask) mask = wk_reshape(mask, sizes, self->ndim);
  return wk__give(c, &scope, wk_where_self(mask, wk__in_dtype(value, (wk_dtype)self->dtype), self));
}
wk_status wk__compose_take(wk__call *c) {
  wk_tensor *self = tensor_at(c, 0), *index = tensor_at(c, 1);
  if (index->dtype != WK_INT64)
    return wk_fail(WK_RUNTIME_ERROR, "take(): Expected a long tensor for index, but got %s",
                   wk__dtype_legacy((wk_dtype)index->dtype));
  if (wk_int_eq(self->numel, wk_int_of(0)) && !wk_int_eq(index->numel, wk_int_of(0)))
    return wk_fail(WK_INDEX_ERROR, "take(): tried to take from an empty tensor");
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_int flat = wk_int_of(-1);
  wk_tensor *from_end = wk_add_Scalar(index, wk__v_size(self->numel), wk__v_int(1));
  index = wk_where_self(wk_lt_Scalar(index, wk__v_int(0)), from_end, index);
  if (!index) return wk__give(c, &scope, NULL);
  wk_tensor *rows = wk_index_select(wk_reshape(self, &flat, 1), 0, wk_reshape(index, &flat, 1));
  return wk__give(c, &scope, wk_reshape(rows, index->sizes, index->ndim));
}

static wk_status check_put(const wk_tensor *t, const wk_tensor *index, const wk_tensor *source) {
  if (index->dtype != WK_INT64)
    return wk_fail(WK_RUNTIME_ERROR, "put_(): Expected a long tensor for index, but got %s",
                   wk__dtype_legacy((wk_dtype)index->dtype));
  if (t->dtype != source->dtype)
    return wk_fail(
        WK_RUNTIME_ERROR,
        "put_(): Expected source and self to have the same dtype, but got self.dtype = %s, source.dtype = %s",
        wk__dtype_legacy((wk_dtype)t->dtype), wk__dtype_legacy((wk_dtype)source->dtype));
  if (wk_int_eq(source->numel, index->numel)) return WK_OK;
  return wk_fail(
      WK_INDEX_ERROR,
      "put_(): Expected source and index to have the same number of elements, but got source.numel() = %lld, "
      "index.numel() = %lld",
      wk__shown(source->numel), wk__shown(index->numel));
}
/* The elements in a row, with those at `index` written or added to. */
wk_status wk__compose_put(wk__call *c) {
  WK__ARGS(put);
  wk_tensor *t = tensor_at(c, A_self), *index = tensor_at(c, A_index), *source = tensor_at(c, A_source);
  WK_TRY(check_put(t, index, source));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_int flat = wk_int_of(-1);
  wk_tensor *row = wk_reshape(t, &flat, 1), *at = wk_reshape(index, &flat, 1), *values = wk_reshape(source, &flat, 1);
  wk_tensor *written = row && at && values ? wk_index_put(row, &at, 1, values, wk__arg_bool(c, A_accumulate)) : NULL;
  return wk__give(c, &scope, written ? wk_reshape(written, t->sizes, t->ndim) : NULL);
}
