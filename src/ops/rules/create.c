/* Creation, copies, concatenation. copy_ is the one place that writes a tensor from another; clone, conversion and cat
 * go through it. Tests: tests/ops/, tests/python/test_out_forms.py. */
#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

/* =================================================== creation =================================================== */

/* zeros says only that much; the others name the size. */
static wk_status negative_dimension(const wk__call *c, const wk_value *size, int d) {
  if (c->op == WK__OP(zeros))
    return wk_fail(WK_RUNTIME_ERROR, "%s: Dimension size must be non-negative.", c->op->base_name);
  wk__string text = {0};
  wk__print_sizes(&text, size->integers, (int)size->count);
  wk_status status = wk_fail(WK_RUNTIME_ERROR, "Trying to create tensor with negative dimension %lld: %s",
                             wk__shown(size->integers[d]), text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

static wk_status sized(wk__call *c, const wk_value *size, wk_dtype dtype, wk_device device) {
  WK_TRY(wk__check_ndim(size->count));
  for (uint32_t d = 0; d < size->count; d++)
    if (wk_int_is_known(size->integers[d]) && size->integers[d].bits < 0) return negative_dimension(c, size, (int)d);
  wk__spec_contiguous(&c->specs[0], dtype, device, (int)size->count, size->integers);
  c->compute_dtype = (uint8_t)dtype;
  return WK_OK;
}

wk_status wk__meta_create(wk__call *c) {
  return sized(c, &c->args[0], wk__arg_dtype(c, WK__ARG(ones, dtype), wk__default_dtype()),
               wk__arg_device(c, WK__ARG(ones, device), WK__CPU_DEVICE));
}

static wk_dtype dtype_of_number(const wk_value *v) {
  if (v->tag == WK_VALUE_COMPLEX) return wk__default_dtype() == WK_FLOAT64 ? WK_COMPLEX128 : WK_COMPLEX64;
  return v->tag == WK_VALUE_BOOL ? WK_BOOL : wk__value_is_integer(v) ? WK_INT64 : wk__default_dtype();
}
/* On a device without memory nothing is converted. */
static wk_status check_filling(const wk__call *c, int arg) {
  const wk__spec *spec = &c->specs[0];
  return spec->device.type == WK_CPU ? wk__check_number(&c->args[arg], (wk_dtype)spec->dtype) : WK_OK;
}
wk_status wk__meta_full(wk__call *c) {
  WK__ARGS(full);
  wk_dtype dtype = wk__arg_dtype(c, A_dtype, dtype_of_number(&c->args[A_fill_value]));
  WK_TRY(sized(c, &c->args[A_size], dtype, wk__arg_device(c, A_device, WK__CPU_DEVICE)));
  return check_filling(c, 1);
}

/* ---- orders of dims in memory ---- */

/* The rank that a format with the channels last is for; 0: another format. */
static int channels_last_rank(const char *format) {
  return strcmp(format, "channels_last") == 0 ? 4 : strcmp(format, "channels_last_3d") == 0 ? 5 : 0;
}
/* Dim k from the innermost: (N, C, H, W) lies as N, H, W, C. */
static int channels_last_dim(int k, int ndim) { return k == 0 ? 1 : k == ndim - 1 ? 0 : ndim - k; }

bool wk__is_contiguous_in(const wk_tensor *t, const char *format) {
  int rank = channels_last_rank(format);
  wk_int expected = wk_int_of(1), one = wk_int_of(1);
  if (rank == 0) return wk__is_contiguous(t);
  if (rank != t->ndim) return false;
  for (int k = 0; k < rank; k++) {
    int d = channels_last_dim(k, rank);
    if (wk_int_eq(t->sizes[d], one)) continue;
    if (!wk_int_eq(t->strides[d], expected)) return false;
    expected = wk_int_mul(expected, t->sizes[d]);
  }
  return true;
}

/* The strides are in the order of a format with the channels last, with gaps or without. Those that could mean either
 * (all but one dim have one element) mean the plain order, as in PyTorch. */
bool wk__has_channels_last(const wk_tensor *t) {
  wk_int least = wk_int_of(0), one = wk_int_of(1);
  if ((t->ndim != 4 && t->ndim != 5) || wk_int_eq(t->strides[1], least)) return false;
  for (int k = 0; k < t->ndim; k++) {
    int d = channels_last_dim(k, t->ndim);
    if (wk_int_eq(t->sizes[d], wk_int_of(0)) || wk_int_lt(t->strides[d], least)) return false;
    if (d == 0 && wk_int_eq(least, t->strides[1])) return false;
    least = wk_int_eq(t->sizes[d], one) ? t->strides[d] : wk_int_mul(t->strides[d], t->sizes[d]);
  }
  return true;
}

/* A description with strides in a format that names an order of dims. */
static wk_status lay_out(wk__spec *spec, const char *name) {
  int rank = channels_last_rank(name);
  if (rank && rank != spec->ndim)
    return wk_fail(WK_RUNTIME_ERROR, "required rank %d tensor to use %s format", rank, name);
  wk_int stride = wk_int_of(1);
  for (int k = 0; k < rank; k++) {
    int d = channels_last_dim(k, rank);
    spec->strides[d] = stride;
    stride = wk_int_mul(stride, wk_int_max(spec->sizes[d], wk_int_of(1)));
  }
  return WK_OK;
}

wk_status wk__spec_lay_out_as(wk__spec *spec, const wk_tensor *t) {
  if (!wk__has_channels_last(t)) return WK_OK;
  return lay_out(spec, t->ndim == 4 ? "channels_last" : "channels_last_3d");
}

/* A new tensor of t's sizes in a format; none given: t's own strides, without gaps. */
static wk_status spec_in_format(wk__spec *spec, const wk_tensor *t, const wk_value *format) {
  const char *name = format->tag == WK_VALUE_STRING ? format->string : "preserve_format";
  bool ordered = channels_last_rank(name) || strcmp(name, "contiguous_format") == 0;
  if (!ordered && wk__non_overlapping_and_dense(t)) {
    wk__spec_of(spec, t);
    spec->offset = wk_int_of(0);
    return WK_OK;
  }
  wk__spec_contiguous(spec, (wk_dtype)t->dtype, t->device, t->ndim, t->sizes);
  if (!ordered && !wk__is_contiguous(t)) wk__dense_strides(spec, t);
  return lay_out(spec, name);
}

static const wk_value *format_argument(const wk__call *c) {
  static const wk_value none;
  for (int i = 0; i < c->op->schema.parameter_count; i++)
    if (c->op->schema.parameters[i].type == WK__TYPE_MEMORY_FORMAT) return &c->args[i];
  return &none;
}

/* ---- like another tensor ---- */

static wk_status like_as(wk__call *c, wk_dtype dtype, wk_device device) {
  WK_TRY(spec_in_format(&c->specs[0], c->args[0].tensor, format_argument(c)));
  c->specs[0].dtype = c->compute_dtype = (uint8_t)dtype;
  c->specs[0].device = device;
  return WK_OK;
}
static wk_status like(wk__call *c, int dtype_arg) {
  const wk_tensor *t = c->args[0].tensor;
  return like_as(c, wk__arg_dtype(c, dtype_arg, (wk_dtype)t->dtype), wk__arg_device(c, dtype_arg + 1, t->device));
}
wk_status wk__meta_create_like(wk__call *c) { return like(c, 1); }
wk_status wk__meta_full_like(wk__call *c) {
  WK_TRY(like(c, 2));
  return check_filling(c, 1);
}
wk_status wk__meta_to_copy(wk__call *c) { return like(c, 1); }
wk_status wk__meta_clone(wk__call *c) {
  const wk_tensor *t = c->args[WK__ARG(clone, self)].tensor;
  return like_as(c, (wk_dtype)t->dtype, t->device);
}
wk_status wk__meta_empty(wk__call *c) {
  const wk_value *format = format_argument(c);
  WK_TRY(wk__meta_create(c));
  if (format->tag != WK_VALUE_STRING) return WK_OK;
  if (strcmp(format->string, "preserve_format") == 0)
    return wk_fail(WK_RUNTIME_ERROR, "unsupported memory format Preserve");
  return lay_out(&c->specs[0], format->string);
}

wk_status wk__meta_new(wk__call *c) {
  const wk_tensor *t = c->args[0].tensor;
  int dtype_arg = c->op == WK__OP(new_full) ? 3 : 2;
  WK_TRY(sized(c, &c->args[WK__ARG(new_full, size)], wk__arg_dtype(c, dtype_arg, (wk_dtype)t->dtype),
               wk__arg_device(c, dtype_arg + 1, t->device)));
  return c->op == WK__OP(new_full) ? check_filling(c, 2) : WK_OK;
}

wk_status wk__meta_scalar_tensor(wk__call *c) {
  WK__ARGS(scalar_tensor);
  wk__spec_contiguous(&c->specs[0], wk__arg_dtype(c, A_dtype, wk__default_dtype()),
                      wk__arg_device(c, A_device, WK__CPU_DEVICE), 0, NULL);
  c->compute_dtype = c->specs[0].dtype;
  return c->specs[0].device.type == WK_CPU ? wk__check_element(&c->args[A_s], (wk_dtype)c->specs[0].dtype) : WK_OK;
}

wk_status wk__routine_empty(wk__call *c) {
  (void)c;
  return WK_OK;
}

wk_status wk__routine_zeros(wk__call *c) { return wk__fill_bytes(c->outputs[0], 0); }

wk_status wk__routine_scalar_tensor(wk__call *c) {
  const wk_value *s = &c->args[WK__ARG(scalar_tensor, s)];
  wk_tensor *out = c->outputs[0];
  if (s->tag != WK_VALUE_COMPLEX) return wk__write_element(out, wk__value_scalar(s));
  float small[] = {(float)s->numbers[0], (float)s->numbers[1]};
  bool wide = out->dtype == WK_COMPLEX128;
  return wk__write_from_host(out, wide ? (const void *)s->numbers : small, (int64_t)wk__itemsize(out));
}

/* The same number in every element of the result. */
static void store_everywhere(wk__lower *l, wk__var value) {
  wk_int sizes[WK_MAX_DIMS], index[WK_MAX_DIMS];
  int rank = wk__result_rank(l, 0);
  for (int d = 0; d < rank; d++) {
    sizes[d] = wk__size_of_result(l, 0, d);
    index[d] = wk__loop_i(d);
  }
  wk__loop_over(l, rank, 0, sizes);
  wk__access a = wk__access_result(l, 0, index);
  wk__k_store(l->h, &a, value);
}
void wk__lower_ones(wk__lower *l) { store_everywhere(l, wk__k_constant(l->h, 1, l->compute)); }
void wk__lower_full(wk__lower *l) {
  int value_arg = l->call->op == WK__OP(new_full) ? 2 : 1;
  store_everywhere(l, wk__in_as(l, value_arg, l->compute));
}

/* ==================================================== copies ==================================================== */

wk_status wk__meta_fill(wk__call *c) {
  WK__ARGS(fill_Scalar);
  if (c->args[A_value].tag == WK_VALUE_TENSOR && c->args[A_value].tensor->ndim != 0)
    return wk_fail(WK_RUNTIME_ERROR, "fill_ only supports 0-dimension value tensor but got tensor with %d dimensions.",
                   c->args[A_value].tensor->ndim);
  WK_TRY(like_as(c, (wk_dtype)c->args[0].tensor->dtype, c->args[0].tensor->device));
  return c->args[A_value].tag == WK_VALUE_TENSOR ? WK_OK : check_filling(c, 1);
}

wk_status wk__check_copy_sizes(const wk_tensor *self, const wk_tensor *src) {
  wk__spec spec;
  wk_int sizes[WK_MAX_DIMS];
  int ndim;
  WK_TRY(wk__broadcast(self->sizes, self->ndim, src->sizes, src->ndim, sizes, &ndim));
  bool fits = ndim == self->ndim;
  for (int d = 0; fits && d < ndim; d++) fits = wk_int_eq(sizes[d], self->sizes[d]);
  if (fits) return WK_OK;
  wk__spec_contiguous(&spec, (wk_dtype)self->dtype, self->device, ndim, sizes);
  return wk__shape_mismatch(self, &spec);
}

/* ---- from one device to another: bytes are copied, all else is done on either side ---- */

/* In a dtype, contiguous; itself when it is that. In the caller's scope. */
static wk_tensor *as_bytes_to_copy(wk_tensor *t, wk_dtype dtype) {
  if (t->dtype != dtype) t = wk__call_tensor(WK__OP(_to_copy), (wk_value[]){wk__v_tensor(t), wk__v_dtype(dtype), NONE});
  return t ? wk_contiguous(t, NULL) : NULL;
}

static wk_tensor *empty_on(const wk_tensor *like, wk_device device) {
  wk__spec spec;
  wk__spec_contiguous(&spec, (wk_dtype)like->dtype, device, like->ndim, like->sizes);
  wk_tensor *t = wk__tensor_from_spec(&spec);
  if (t) wk__scope_add(t);
  return t;
}

/* later: pinned memory of the host may be read or written when the call has returned. */
static wk_status copy_across(wk_tensor *to, wk_tensor *from, bool later) {
  wk__keys before = wk__thread.mode.keys_off;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk__thread.mode.keys_off |= WK__KEY_AUTOGRAD | WK__KEY_TRACE;
  wk_tensor *bytes = as_bytes_to_copy(from, (wk_dtype)to->dtype);
  bool direct = bytes && wk__is_contiguous(to) && wk__same_sizes(to, bytes);
  wk_tensor *arrived = bytes && !direct ? empty_on(bytes, to->device) : to;
  wk_status status = bytes && arrived ? wk__copy_elements(arrived, bytes, later) : wk_error_category();
  if (status == WK_OK && !direct) status = wk__copy_into(to, arrived);
  wk__thread.mode.keys_off = before;
  wk_scope_end(&scope);
  return status;
}

/* self takes src's values: broadcast, converted. Overlapping views copy through a temporary. */
wk_status wk__routine_copy(wk__call *c) {
  WK__ARGS(copy_);
  wk_tensor *self = c->args[A_self].tensor, *src = c->args[A_other].tensor, *out;
  wk_value source = c->args[A_other], temporary = {0};
  wk__spec specs[1];
  WK_TRY(wk__check_copy_sizes(self, src));
  WK_TRY(wk__check_overlap(self));
  WK_TRY(wk__check_apart(WK__OP(copy_), c->args, self));
  if (self->storage && src->storage && !wk__device_equal(self->device, src->device)) {
    if (wk__numel(self)) WK_TRY(copy_across(self, src, wk__thread.copies_later || c->args[A_non_blocking].boolean));
    wk__version_bump(self);
    c->results[0] = wk__v_tensor(wk__retain(self));
    return WK_OK;
  }
  bool shared = src->storage && src->storage == self->storage;
  if (shared) WK_TRY(wk__compute(WK__OP(clone), (wk_value[]){source, NONE}, NULL, &temporary));
  if (shared) source = temporary;
  wk__spec_of(&specs[0], self);
  out = self;
  wk__call inner = {
      .op = WK__OP(_copy), .args = &source, .specs = specs, .outputs = &out, .compute_dtype = source.tensor->dtype};
  wk_status status =
      self->storage && source.tensor->storage && wk__numel(self) ? wk__run_lowered(&inner, inner.outputs) : WK_OK;
  wk_value_release(&temporary);
  if (status) return status;
  wk__version_bump(self);
  c->results[0] = wk__v_tensor(wk__retain(self));
  return WK_OK;
}
/* A gradient goes back to the device that its tensor is on; NONE: it is there. */
static wk_value device_for(const wk_tensor *grad, const wk_tensor *of) {
  if (!of || wk__device_equal(grad->device, of->device)) return NONE;
  return (wk_value){.tag = WK_VALUE_DEVICE, .device = of->device};
}

wk_status wk__vjp_copy(wk__vjp *v) {
  WK__ARGS(copy_);
  if (wk__needs(v, A_self)) WK_TRY(wk__vjp_set(v, A_self, wk_zero(G)));
  if (!wk__needs(v, A_other)) return WK_OK;
  wk_value device = device_for(G, ARG(A_other));
  wk_tensor *grad = device.tag == WK_VALUE_DEVICE ? wk__to_copy(G, WK_DTYPE_NONE, device) : G;
  return wk__vjp_set(v, A_other, grad); /* the tape sums and converts it to src's own shape and dtype */
}

wk_status wk__vjp_laid_out(wk__vjp *v) {
  const wk_tensor *self = ARG(WK__ARG(_laid_out, self));
  const char *format = wk__has_channels_last(self) ? "channels_last" : "contiguous_format";
  return wk__vjp_set(v, WK__ARG(_laid_out, self), wk_contiguous(G, format));
}

/* clone and conversion: outputs[0] has the geometry already. */
wk_status wk__routine_clone(wk__call *c) {
  wk_value source = c->args[0];
  if (source.tensor->storage && !wk__device_equal(source.tensor->device, c->outputs[0]->device))
    return copy_across(c->outputs[0], source.tensor, wk__thread.copies_later);
  wk__call inner = {.op = WK__OP(_copy),
                    .args = &source,
                    .specs = c->specs,
                    .outputs = c->outputs,
                    .compute_dtype = source.tensor->dtype};
  return source.tensor->storage ? wk__run_lowered(&inner, c->outputs) : WK_OK;
}
wk_status wk__vjp_to_copy(wk__vjp *v) {
  const wk_tensor *self = ARG(WK__ARG(_to_copy, self));
  wk_value args[] = {wk__v_tensor(G), wk__v_dtype((wk_dtype)self->dtype), device_for(G, self)};
  return wk__vjp_set(v, WK__ARG(_to_copy, self), wk__call_tensor(WK__OP(_to_copy), args));
}

wk_status wk__compose_contiguous(wk__call *c) {
  WK__ARGS(contiguous);
  const char *format =
      c->args[A_memory_format].tag == WK_VALUE_STRING ? c->args[A_memory_format].string : "contiguous_format";
  if (wk__is_contiguous_in(c->args[A_self].tensor, format)) {
    c->results[0] = wk__v_tensor(wk__retain(c->args[A_self].tensor));
    return WK_OK;
  }
  if (strcmp(format, "preserve_format") == 0)
    return wk_fail(WK_RUNTIME_ERROR, "preserve memory format is unsupported by the contiguous operator");
  wk_value wanted = {.tag = WK_VALUE_STRING, .string = format};
  return wk_call(WK__OP(clone), (wk_value[]){c->args[A_self], wanted}, NULL, c->results);
}

/* ================================================= concatenation ================================================ */

/* PyTorch lets 1-dim empty tensors stand anywhere. */
static bool is_skipped(const wk_tensor *t) { return t->ndim == 1 && wk_int_eq(t->sizes[0], wk_int_of(0)); }

static bool all_have_channels_last(const wk_value *list) {
  bool all = true;
  for (uint32_t k = 0; all && k < list->count; k++) all = wk__has_channels_last(list->tensors[k]);
  return all;
}

wk_status wk__meta_cat(wk__call *c) {
  const wk_value *list = &c->args[WK__ARG(cat, tensors)];
  int dim, first = 0;
  if (list->count == 0) return wk_fail(WK_VALUE_ERROR, "torch.cat(): expected a non-empty list of Tensors");
  while (first < (int)list->count - 1 && is_skipped(list->tensors[first])) first++;
  const wk_tensor *model = list->tensors[first];
  for (uint32_t k = 0; k < list->count; k++)
    if (list->tensors[k]->ndim == 0)
      return wk_fail(WK_RUNTIME_ERROR, "zero-dimensional tensor (at position %u) cannot be concatenated", k);
  WK_TRY(wk__wrap_dim(wk__arg_int(c, WK__ARG(cat, dim)), model->ndim, &dim));
  wk_int sizes[WK_MAX_DIMS], length = wk_int_of(0);
  memcpy(sizes, model->sizes, model->ndim * sizeof *sizes);
  for (uint32_t k = 0; k < list->count; k++) {
    const wk_tensor *t = list->tensors[k];
    if (is_skipped(t)) continue;
    if (t->ndim != model->ndim)
      return wk_fail(WK_RUNTIME_ERROR, "Tensors must have same number of dimensions: got %d and %d", model->ndim,
                     t->ndim);
    for (int d = 0; d < t->ndim; d++)
      if (d != dim && !wk_int_eq(t->sizes[d], sizes[d]))
        return wk_fail(WK_RUNTIME_ERROR,
                       "Sizes of tensors must match except in dimension %d. Expected size %lld but got size %lld for "
                       "tensor number %u in the list.",
                       dim, wk__shown(sizes[d]), wk__shown(t->sizes[d]), k);
    length = wk_int_add(length, t->sizes[dim]);
  }
  if (!is_skipped(model)) sizes[dim] = length;
  WK_TRY(wk__check_promotes(c));
  wk__spec_contiguous(&c->specs[0], wk__result_type(c), model->device, model->ndim, sizes);
  c->compute_dtype = c->specs[0].dtype;
  return all_have_channels_last(list) ? wk__spec_lay_out_as(&c->specs[0], list->tensors[0]) : WK_OK;
}

wk_status wk__routine_cat(wk__call *c) {
  WK__ARGS(cat);
  wk_tensor *out = c->outputs[0];
  int dim;
  int64_t at = 0;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), out->ndim, &dim));
  for (uint32_t k = 0; k < c->args[A_tensors].count; k++) {
    wk_tensor *t = c->args[A_tensors].tensors[k];
    if (is_skipped(t)) continue;
    wk_value place = {0}, args[] = {wk__v_tensor(out), wk__v_int(dim), wk__v_int(at), wk__v_int(at + wk__size(t, dim)),
                                    wk__v_int(1)};
    WK_TRY(wk__compute(WK__OP(slice_Tensor), args, NULL, &place));
    wk_status status = wk__copy_into(place.tensor, t);
    wk_value_release(&place);
    WK_TRY(status);
    at += wk__size(t, dim);
  }
  return WK_OK;
}

/* What was promoted for the result goes back. */
static wk_tensor *in_dtype_of(wk_tensor *g, const wk_tensor *t) {
  if (!g || g->dtype == t->dtype) return g;
  return wk__call_tensor(WK__OP(_to_copy), (wk_value[]){wk__v_tensor(g), wk__v_dtype((wk_dtype)t->dtype), NONE});
}

wk_status wk__vjp_cat(wk__vjp *v) {
  const wk_value *list = &v->args[WK__ARG(cat, tensors)];
  wk_int at = wk_int_of(0);
  int dim;
  WK_TRY(wk__wrap_dim(wk_int_guard_value(v->args[WK__ARG(cat, dim)].integer), G->ndim, &dim));
  for (int k = 0; k < (int)list->count; k++) {
    const wk_tensor *shape = list->tensors[k];
    bool skipped = shape && is_skipped(shape);
    wk_int end = shape && !skipped ? wk_int_add(at, shape->sizes[dim]) : at;
    if (wk__needs(v, wk__list_input(v, WK__ARG(cat, tensors), k))) {
      wk_tensor *g = skipped ? wk_new_zeros(G, shape->sizes, 1, WK_DTYPE_NONE, NONE)
                             : wk_slice(G, dim, wk__v_size(at), wk__v_size(end), wk_int_of(1));
      WK_TRY(wk__vjp_set(v, wk__list_input(v, WK__ARG(cat, tensors), k), in_dtype_of(g, shape)));
    }
    at = end;
  }
  return WK_OK;
}

/* One behind the other along the dim, which is then taken apart: so the dims keep their order in memory. */
static wk_tensor *stacked_before(const wk_value *list, int dim) {
  const wk_tensor *model = list->tensors[0];
  wk_int sizes[WK_MAX_DIMS];
  int n = 0;
  if (model->ndim == WK_MAX_DIMS) return (void)wk_unsqueeze((wk_tensor *)model, dim), NULL; /* its error */
  for (int d = 0; d < model->ndim; d++) {
    if (d == dim) sizes[n++] = wk_int_of(list->count);
    sizes[n++] = model->sizes[d];
  }
  wk_tensor *y = wk_cat(list->tensors, (int)list->count, dim);
  return y ? wk__unsafe_view(y, sizes, n) : NULL;
}
static wk_tensor *stacked_last(const wk_value *list) {
  wk_tensor **items = wk__alloc(list->count * sizeof *items), *y = NULL;
  if (!items) return NULL;
  bool complete = true;
  for (uint32_t k = 0; k < list->count; k++) complete &= (items[k] = wk_unsqueeze(list->tensors[k], -1)) != NULL;
  if (complete) y = wk_cat(items, (int)list->count, -1);
  wk__free(items);
  return y;
}

wk_status wk__compose_stack(wk__call *c) {
  const wk_value *list = &c->args[WK__ARG(stack, tensors)];
  if (list->count == 0) return wk_fail(WK_RUNTIME_ERROR, "stack expects a non-empty TensorList");
  const wk_tensor *model = list->tensors[0];
  int dim;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, WK__ARG(stack, dim)), model->ndim + 1, &dim));
  for (uint32_t k = 1; k < list->count; k++) {
    if (wk__same_sizes(model, list->tensors[k])) continue;
    wk__string text = {0};
    wk__print_sizes(&text, model->sizes, model->ndim);
    wk__string_append(&text, " at entry 0 and ");
    wk__print_sizes(&text, list->tensors[k]->sizes, list->tensors[k]->ndim);
    wk_status status = wk_fail(WK_RUNTIME_ERROR, "stack expects each tensor to be equal size, but got %s at entry %u",
                               text.text ? text.text : "?", k);
    wk__string_release(&text);
    return status;
  }
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *y = dim < model->ndim ? stacked_before(list, dim) : stacked_last(list);
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(&scope);
  return y ? WK_OK : wk_error_category();
}
