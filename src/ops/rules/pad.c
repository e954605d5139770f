/* Padding: by a constant, and by the tensor's own elements (reflected, repeated at the edge, in a circle).
 *
 * In: a tensor, lists of (before, after) from the last dim on, as PyTorch has them; negative numbers take away. Out:
 * the constant is one loop of masked loads. The other ways give an index along each dim, from which elements are
 * selected and to which gradients are added: a dim after the other, the last one first. Tests: tests/ops/,
 * tests/python/test_pad.py. */
#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

static wk_int zero(void) { return wk_int_of(0); }
static wk_int one(void) { return wk_int_of(1); }
static bool is_negative(wk_int i) { return wk_int_lt(i, zero()); }
static wk_int positive_part(wk_int i) { return wk_int_max(i, zero()); }
static wk_int negative_part(wk_int i) { return wk_int_min(i, zero()); }

static wk_int before(const wk_value *pad, int from_last) { return pad->integers[2 * from_last]; }
static wk_int after(const wk_value *pad, int from_last) { return pad->integers[2 * from_last + 1]; }
static wk_int padded(const wk_value *pad, int from_last, wk_int size) {
  return wk_int_add(size, wk_int_add(before(pad, from_last), after(pad, from_last)));
}

/* ================================================== a constant ================================================== */

/* Adds elements, or may: a symbol does not say. */
static bool takes_in(wk_int pad) { return !wk_int_is_known(pad) || wk_int_value(pad) > 0; }

static wk_status check_constant_pad(const wk_tensor *t, const wk_value *pad) {
  if (pad->count % 2)
    return wk_fail(WK_RUNTIME_ERROR, "Length of pad must be even but instead it equals %u", pad->count);
  if ((int)pad->count > 2 * t->ndim)
    return wk_fail(WK_RUNTIME_ERROR,
                   "Length of pad should be no more than twice the number of dimensions of the input. Pad length is "
                   "%uwhile the input has %ddimensions.",
                   pad->count, t->ndim);
  for (int k = 0; k < (int)pad->count / 2; k++) {
    wk_int rest = wk_int_add(t->sizes[t->ndim - 1 - k], negative_part(before(pad, k)));
    if (is_negative(rest) || is_negative(wk_int_add(rest, negative_part(after(pad, k)))))
      return wk_fail(WK_RUNTIME_ERROR, "narrow(): length must be non-negative.");
    if (WK_UNLIKELY(wk_int_is_poisoned(padded(pad, k, t->sizes[t->ndim - 1 - k]))))
      return wk_fail(WK_RUNTIME_ERROR,
                     "The input size %lld, plus negative padding %lld and %lld resulted in a negative output size, "
                     "which is invalid. Check dimension %d of your input.",
                     wk__shown(t->sizes[t->ndim - 1 - k]), wk__shown(before(pad, k)), wk__shown(after(pad, k)),
                     t->ndim - 1 - k);
  }
  return WK_OK;
}

wk_status wk__meta_constant_pad(wk__call *c) {
  const wk_tensor *t = c->args[WK__ARG(constant_pad_nd, self)].tensor;
  const wk_value *pad = &c->args[WK__ARG(constant_pad_nd, pad)];
  wk_int sizes[WK_MAX_DIMS];
  WK_TRY(check_constant_pad(t, pad));
  memcpy(sizes, t->sizes, t->ndim * sizeof *sizes);
  for (int k = 0; k < (int)pad->count / 2; k++) sizes[t->ndim - 1 - k] = padded(pad, k, sizes[t->ndim - 1 - k]);
  wk__spec_contiguous(&c->specs[0], (wk_dtype)t->dtype, t->device, t->ndim, sizes);
  c->compute_dtype = t->dtype;
  WK_TRY(wk__check_element(&c->args[WK__ARG(constant_pad_nd, value)], (wk_dtype)t->dtype));
  return wk__spec_lay_out_as(&c->specs[0], t);
}

/* An element of the result is the input's, `before` back from it, or the number where there is none. */
void wk__lower_constant_pad(wk__lower *l) {
  const wk_value *pad = &l->call->args[WK__ARG(constant_pad_nd, pad)];
  wk_int sizes[WK_MAX_DIMS], index[WK_MAX_DIMS], from[WK_MAX_DIMS];
  int rank = wk__result_rank(l, 0);
  unsigned may_leave = 0;
  for (int d = 0; d < rank; d++) {
    sizes[d] = wk__size_of_result(l, 0, d);
    from[d] = index[d] = wk__loop_i(d);
  }
  for (int k = 0; k < (int)pad->count / 2; k++) {
    int d = rank - 1 - k;
    from[d] = wk_int_sub(index[d], before(pad, k));
    if (takes_in(before(pad, k)) || takes_in(after(pad, k))) may_leave |= 1u << d;
  }
  wk__loop_over(l, rank, 0, sizes);
  wk__access load = wk__access_arg(l, WK__ARG(constant_pad_nd, self), from), store = wk__access_result(l, 0, index);
  load.may_leave = (uint16_t)may_leave;
  wk__var value = wk__in_as(l, WK__ARG(constant_pad_nd, value), l->compute);
  wk__k_store(l->h, &store, may_leave ? wk__k_masked_load(l->h, &load, value) : wk__k_load(l->h, &load));
}

wk_status wk__vjp_constant_pad(wk__vjp *v) {
  WK__ARGS(constant_pad_nd);
  wk_int back[2 * WK_MAX_DIMS];
  int count = (int)v->args[A_pad].count;
  for (int k = 0; k < count; k++) back[k] = wk_int_neg(v->args[A_pad].integers[k]);
  return wk__vjp_set(v, A_self, wk_constant_pad_nd(G, back, count, wk__v_int(0)));
}

/* =============================================== the tensor's own =============================================== */

typedef enum border { REFLECT, REPLICATE, CIRCLE } border;

/* Which elements of `size` come at places [begin, end) around them. Reflection: at -2 -1 | 0 1 2 3 | 4 5 stand
 * 2 1 | 0 1 2 3 | 2 1. */
static wk_tensor *places(border how, wk_int size, wk_int begin, wk_int end, wk_device where) {
  wk_value device = {.tag = WK_VALUE_DEVICE, .device = where}, unit = wk__v_int(1);
  wk_int last = wk_int_sub(size, one());
  wk_tensor *i = wk_arange_start(wk__v_size(begin), wk__v_size(end), WK_INT64, device);
  if (how == CIRCLE) return wk_remainder_Scalar(i, wk__v_size(size));
  if (how == REPLICATE) return wk_clamp(i, wk__v_int(0), wk__v_size(last));
  wk_tensor *from_end = wk_abs(wk_rsub_Scalar(wk_abs(i), wk__v_size(last), unit));
  return wk_rsub_Scalar(from_end, wk__v_size(last), unit);
}

/* A padded dim: what stands before the elements, the elements that stay, what stands behind them. Only the elements
 * are many, so that they are copied and the others selected. */
typedef struct line {
  int dim;
  wk_int size, front, back; /* of the input; as in `pad` */
  wk_int stays_from, stays_to;
} line;

static line line_of(const wk_tensor *t, const wk_value *pad, int from_last) {
  line l = {.dim = t->ndim - 1 - from_last, .front = before(pad, from_last), .back = after(pad, from_last)};
  l.size = t->sizes[l.dim];
  l.stays_from = wk_int_neg(negative_part(l.front));
  l.stays_to = wk_int_max(l.stays_from, wk_int_add(l.size, negative_part(l.back)));
  return l;
}

static bool has_front(const line *l) { return wk_int_lt(zero(), l->front); }
static bool has_back(const line *l) { return wk_int_lt(zero(), l->back); }

static wk_tensor *front_places(const wk_tensor *t, border how, const line *l) {
  return places(how, l->size, wk_int_neg(l->front), wk_int_min(zero(), wk_int_add(l->size, l->back)), t->device);
}
static wk_tensor *back_places(const wk_tensor *t, border how, const line *l) {
  return places(how, l->size, wk_int_max(l->size, wk_int_neg(l->front)), wk_int_add(l->size, l->back), t->device);
}

static wk_tensor *part(wk_tensor *t, int dim, wk_int begin, wk_int end) {
  return wk_slice(t, dim, wk__v_size(begin), wk__v_size(end), one());
}

static wk_tensor *padded_line(wk_tensor *t, border how, const line *l) {
  wk_tensor *parts[3];
  int count = 0;
  if (has_front(l)) parts[count++] = wk_index_select(t, l->dim, front_places(t, how, l));
  parts[count++] = part(t, l->dim, l->stays_from, l->stays_to);
  if (has_back(l)) parts[count++] = wk_index_select(t, l->dim, back_places(t, how, l));
  for (int k = 0; k < count; k++)
    if (!parts[k]) return NULL;
  return wk_cat(parts, count, l->dim);
}

/* In a circle goes what is left. */
static wk_tensor *bordered(wk_tensor *t, border how, const wk_value *pad) {
  for (int k = 0; t && k < (int)pad->count / 2; k++) {
    line l = line_of(t, pad, k);
    if (how == CIRCLE) {
      t = part(t, l.dim, l.stays_from, l.stays_to);
      l.size = wk_int_sub(l.stays_to, l.stays_from);
      l.stays_from = zero(), l.stays_to = l.size;
      l.front = positive_part(l.front), l.back = positive_part(l.back);
    }
    t = t ? padded_line(t, how, &l) : NULL;
  }
  return t;
}

static wk_status give(wk__call *c, wk_scope *scope, wk_tensor *y) {
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(scope);
  return y ? WK_OK : wk_error_category();
}

/* "2D or 3D (batch mode) tensor" and so on: only the batch may be empty. */
static wk_status check_input(const wk_tensor *t, int dims) {
  bool good = t->ndim == dims + 1 || t->ndim == dims + 2;
  for (int d = t->ndim == dims + 2; good && d < t->ndim; d++) good = !wk_int_eq(t->sizes[d], zero());
  if (good) return WK_OK;
  wk__string text = {0};
  wk__print_sizes(&text, t->sizes, t->ndim);
  wk_status status = wk_fail(WK_RUNTIME_ERROR,
                             "Expected %dD or %dD (batch mode) tensor with possibly 0 batch size and other non-zero "
                             "dimensions for input, but got: %s",
                             dims + 1, dims + 2, text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

static wk_status check_reflection(const wk_tensor *t, const wk_value *pad) {
  for (int k = 0; k < (int)pad->count / 2; k++) {
    int d = t->ndim - 1 - k;
    if (wk_int_lt(before(pad, k), t->sizes[d]) && wk_int_lt(after(pad, k), t->sizes[d])) continue;
    wk__string text = {0};
    wk__print_sizes(&text, t->sizes, t->ndim);
    wk_status status =
        wk_fail(WK_RUNTIME_ERROR,
                "Argument #%d: Padding size should be less than the corresponding input dimension, but got: padding "
                "(%lld, %lld) at dimension %d of input %s",
                4 + 2 * k, wk__shown(before(pad, k)), wk__shown(after(pad, k)), d, text.text ? text.text : "?");
    wk__string_release(&text);
    return status;
  }
  return WK_OK;
}

/* PyTorch's texts differ in places by a letter. */
static wk_status too_small(const wk_tensor *t, const wk_value *pad, border how) {
  int dims = (int)pad->count / 2;
  long long in[3] = {0}, out[3] = {0};
  for (int k = 0; k < dims; k++) {
    in[k] = wk__shown(t->sizes[t->ndim - 1 - k]);
    out[k] = wk__shown(padded(pad, k, t->sizes[t->ndim - 1 - k]));
  }
  if (dims == 1)
    return wk_fail(WK_RUNTIME_ERROR, "input (W: %lld) is too small. Calculated output W: %lld", in[0], out[0]);
  if (dims == 2)
    return wk_fail(WK_RUNTIME_ERROR, "input (H: %lld, W: %lld%s) is too small. Calculated output H: %lld W: %lld",
                   in[1], in[0], how == REPLICATE ? " " : "", out[1], out[0]);
  return wk_fail(WK_RUNTIME_ERROR,
                 "input (D: %lld H: %lld, W: %lld) is too small. Calculated output D: %lld H: %lld W: %lld", in[2],
                 in[1], in[0], out[2], out[1], out[0]);
}

static wk_status check_no_negative(const wk_tensor *t, const wk_value *pad) {
  wk_int sizes[WK_MAX_DIMS];
  int negative = -1;
  memcpy(sizes, t->sizes, t->ndim * sizeof *sizes);
  for (int k = 0; k < (int)pad->count / 2; k++) {
    int d = t->ndim - 1 - k;
    sizes[d] = padded(pad, k, sizes[d]);
    if (is_negative(sizes[d])) negative = d;
  }
  if (negative < 0) return WK_OK;
  wk__string text = {0};
  wk__print_sizes(&text, sizes, t->ndim);
  wk_status status = wk_fail(WK_RUNTIME_ERROR, "Trying to create tensor with negative dimension %lld: %s",
                             wk__shown(sizes[negative]), text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

static wk_status check_bordered(const wk_op *op, border how, const wk_tensor *t, const wk_value *pad) {
  int dims = op->schema.parameters[WK__ARG(reflection_pad1d, padding)].fixed_count / 2;
  if ((int)pad->count != 2 * dims)
    return wk_fail(WK_RUNTIME_ERROR, "padding size is expected to be %d, but got: %u", 2 * dims, pad->count);
  WK_TRY(check_input(t, dims));
  if (how == REFLECT) WK_TRY(check_reflection(t, pad));
  bool empty = true;
  for (int k = 0; k < dims; k++) empty &= wk_int_lt(padded(pad, k, t->sizes[t->ndim - 1 - k]), one());
  if (empty) return too_small(t, pad, how);
  WK_TRY(check_no_negative(t, pad));
  if (t->dtype == WK_BOOL) return wk_fail(WK_NOT_IMPLEMENTED, "\"%s\" not implemented for 'Bool'", op->base_name);
  return WK_OK;
}

static wk_status pad_bordered(wk__call *c, border how) {
  WK_TRY(check_bordered(c->op, how, c->args[0].tensor, &c->args[WK__ARG(reflection_pad1d, padding)]));
  wk_scope scope;
  wk_scope_begin(&scope);
  return give(c, &scope, bordered(c->args[0].tensor, how, &c->args[WK__ARG(reflection_pad1d, padding)]));
}
wk_status wk__compose_reflection_pad(wk__call *c) { return pad_bordered(c, REFLECT); }
wk_status wk__compose_replication_pad(wk__call *c) { return pad_bordered(c, REPLICATE); }

/* The gradients of a line: those of the elements that stay, and to them the borders'. */
static wk_tensor *gathered_line(wk_tensor *g, border how, const line *l) {
  wk_int stays = wk_int_sub(l->stays_to, l->stays_from), at = positive_part(l->front), end = g->sizes[l->dim];
  wk_tensor *borders[2], *indices[2];
  wk_int sizes[WK_MAX_DIMS];
  int count = 0;
  memcpy(sizes, g->sizes, g->ndim * sizeof *sizes);
  sizes[l->dim] = l->size;
  wk_tensor *y = wk_slice_backward(part(g, l->dim, at, wk_int_add(at, stays)), sizes, g->ndim, l->dim,
                                   wk__v_size(l->stays_from), wk__v_size(l->stays_to), one());
  if (has_front(l)) borders[count] = part(g, l->dim, zero(), at), indices[count++] = front_places(g, how, l);
  if (has_back(l))
    borders[count] = part(g, l->dim, wk_int_add(at, stays), end), indices[count++] = back_places(g, how, l);
  for (int k = 0; k < count; k++)
    if (!borders[k] || !indices[k]) return NULL;
  if (count == 0) return y;
  return wk_index_add(y, l->dim, wk_cat(indices, count, 0), wk_cat(borders, count, l->dim), wk__v_int(1));
}

/* From the first dim on: what was padded last is taken first. */
static wk_status gradient_of_bordered(wk__vjp *v, border how) {
  const wk_tensor *t = v->args[0].tensor;
  const wk_value *pad = &v->args[WK__ARG(reflection_pad1d, padding)];
  wk_tensor *g = G;
  for (int k = (int)pad->count / 2 - 1; g && k >= 0; k--) {
    line l = line_of(t, pad, k);
    g = gathered_line(g, how, &l);
  }
  return wk__vjp_set(v, 0, g);
}
wk_status wk__vjp_reflection_pad(wk__vjp *v) { return gradient_of_bordered(v, REFLECT); }
wk_status wk__vjp_replication_pad(wk__vjp *v) { return gradient_of_bordered(v, REPLICATE); }

/* ================================================== any of them ================================================= */

static wk_status check_circle(const wk_tensor *t, const wk_value *pad) {
  for (int k = (int)pad->count / 2 - 1; k >= 0; k--) {
    wk_int size = t->sizes[t->ndim - 1 - k], whole = padded(pad, k, size);
    wk_int left = wk_int_add(size, wk_int_add(negative_part(before(pad, k)), negative_part(after(pad, k))));
    bool fits = !wk_int_lt(size, before(pad, k)) && !wk_int_lt(size, after(pad, k));
    if (fits && is_negative(whole))
      return wk_fail(WK_RUNTIME_ERROR, "Negative padding value is resulting in an empty dimension");
    bool goes_round = wk_int_lt(zero(), before(pad, k)) || wk_int_lt(zero(), after(pad, k));
    if (!fits || (goes_round && wk_int_lt(left, one())))
      return wk_fail(WK_RUNTIME_ERROR, "Padding value causes wrapping around more than once.");
  }
  return WK_OK;
}

wk_status wk__compose_pad_circular(wk__call *c) {
  WK__ARGS(_pad_circular);
  WK_TRY(check_circle(c->args[A_self].tensor, &c->args[A_pad]));
  wk_scope scope;
  wk_scope_begin(&scope);
  return give(c, &scope, bordered(c->args[A_self].tensor, CIRCLE, &c->args[A_pad]));
}

static wk_status unsupported(const wk_value *pad, int ndim) {
  return wk_fail(WK_NOT_IMPLEMENTED,
                 "Padding size %u is not supported for %dD input tensor.\n"
                 "Supported combinations for non-constant padding:\n"
                 "  - 2D or 3D input: padding size = 2 (pads last dimension)\n"
                 "  - 3D or 4D input: padding size = 4 (pads last 2 dimensions)\n"
                 "  - 4D or 5D input: padding size = 6 (pads last 3 dimensions)",
                 pad->count, ndim);
}

/* The operator of a mode for so many dims; NULL for an unknown mode. */
static const wk_op *pad_operator(const char *mode, int dims) {
  const wk_op *const reflect[] = {WK__OP(reflection_pad1d), WK__OP(reflection_pad2d), WK__OP(reflection_pad3d)};
  const wk_op *const replicate[] = {WK__OP(replication_pad1d), WK__OP(replication_pad2d), WK__OP(replication_pad3d)};
  if (strcmp(mode, "reflect") == 0) return reflect[dims - 1];
  if (strcmp(mode, "replicate") == 0) return replicate[dims - 1];
  return WK__OP(_pad_circular);
}

wk_status wk__compose_pad(wk__call *c) {
  WK__ARGS(pad);
  const wk_tensor *t = c->args[A_self].tensor;
  const wk_value *pad = &c->args[A_pad], *value = &c->args[A_value];
  const char *mode = c->args[A_mode].string;
  bool constant = strcmp(mode, "constant") == 0;
  if (!constant && strcmp(mode, "reflect") && strcmp(mode, "replicate") && strcmp(mode, "circular"))
    return wk_fail(WK_NOT_IMPLEMENTED, "Unrecognised padding mode %s", mode);
  if (pad->count % 2) return wk_fail(WK_RUNTIME_ERROR, "Padding length must be divisible by 2");
  if ((int)pad->count > 2 * t->ndim)
    return wk_fail(
        WK_RUNTIME_ERROR,
        "Padding length should be less than or equal to two times the input dimension but got padding length "
        "%u and input of dimension %d",
        pad->count, t->ndim);
  bool given = value->tag != WK_VALUE_NONE;
  if (constant)
    return wk_call(WK__OP(constant_pad_nd), (wk_value[]){c->args[A_self], *pad, given ? *value : wk__v_double(0)}, NULL,
                   c->results);
  if (given && wk__scalar_double(wk__value_scalar(value)) != 0)
    return wk_fail(WK_RUNTIME_ERROR, "Padding mode \"%s\" doesn't take in value argument", mode);
  int dims = (int)pad->count / 2;
  if (dims < 1 || dims > 3 || (t->ndim != dims + 1 && t->ndim != dims + 2)) return unsupported(pad, t->ndim);
  return wk_call(pad_operator(mode, dims), (wk_value[]){c->args[A_self], *pad}, NULL, c->results);
}
