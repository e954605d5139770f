/* im2col and col2im: the patches of images as columns, and columns added up to images.
 *
 * In: images (N, C, H, W) or one of them. Out: (N, C kernel, places); back again. Patches are views of the padded
 * images, copied once. Tests: tests/ops/, tests/python/test_convolution.py. */
#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "wick/operators.h"

#define A(name) WK__ARG(im2col, name)
#define B(name) WK__ARG(col2im, name)

#define NONE ((wk_value){0})

enum { DIMS = 2 };

static wk_int one(void) { return wk_int_of(1); }
static wk_int zero(void) { return wk_int_of(0); }

/* The numbers of a call, (height, width) of each. */
typedef struct windows {
  wk_int kernel[DIMS], dilation[DIMS], padding[DIMS], stride[DIMS];
} windows;

/* ---- what is refused ---- */

static wk_status read_pair(const wk_value *v, const char *name, wk_int *out) {
  if (v->count != DIMS)
    return wk_fail(WK_RUNTIME_ERROR, "It is expected %s equals to 2, but got size %u", name, v->count);
  memcpy(out, v->integers, DIMS * sizeof *out);
  return WK_OK;
}

static wk_status check_least(const wk_int *pair, int64_t least, const char *what, const char *name) {
  if (!wk_int_lt(pair[0], wk_int_of(least)) && !wk_int_lt(pair[1], wk_int_of(least))) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "%s should be %s, but got %s_height: %lld %s_width: %lld", what,
                 least ? "greater than zero" : "non-negative", name, wk__shown(pair[0]), name, wk__shown(pair[1]));
}

/* `first`: the argument that the four lists begin at. */
static wk_status read_windows(const wk_value *first, windows *w) {
  WK_TRY(read_pair(&first[0], "kernel_size", w->kernel));
  WK_TRY(read_pair(&first[1], "dilation", w->dilation));
  WK_TRY(read_pair(&first[2], "padding", w->padding));
  WK_TRY(read_pair(&first[3], "stride", w->stride));
  WK_TRY(check_least(w->kernel, 1, "kernel size", "kernel"));
  WK_TRY(check_least(w->dilation, 1, "dilation", "dilation"));
  WK_TRY(check_least(w->padding, 0, "padding", "pad"));
  return check_least(w->stride, 1, "stride", "stride");
}

/* Floats and, in PyTorch's kernels, bool. */
static wk_status check_dtype(const wk__call *c, const wk_tensor *t) {
  if (wk__dtype_category((wk_dtype)t->dtype) == WK__FLOAT_KIND || t->dtype == WK_BOOL) return WK_OK;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", c->op->kernel_name,
                 wk__dtype_legacy((wk_dtype)t->dtype));
}

/* "2D or 3D (batch mode)": only the batch may be empty. */
static wk_status check_input(const wk_tensor *t, int dims, const char *words) {
  bool good = t->ndim == dims || t->ndim == dims + 1;
  for (int d = t->ndim == dims + 1; good && d < t->ndim; d++) good = !wk_int_eq(t->sizes[d], zero());
  if (good) return WK_OK;
  wk__string text = {0};
  wk__print_sizes(&text, t->sizes, t->ndim);
  wk_status status = wk_fail(WK_RUNTIME_ERROR, "Expected %dD or %dD (batch mode) tensor %s, but got: %s", dims,
                             dims + 1, words, text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

static void print_pair(wk__string *text, const char *before, const wk_int *pair) {
  wk__string_printf(text, "%s(%lld, %lld)", before, wk__shown(pair[0]), wk__shown(pair[1]));
}

/* "kernel_size=(2, 2), dilation=(1, 1), padding=(0, 0)" */
static void print_windows(wk__string *text, const windows *w) {
  print_pair(text, "kernel_size=", w->kernel);
  print_pair(text, ", dilation=", w->dilation);
  print_pair(text, ", padding=", w->padding);
}

static wk_status fail_with(wk__string *text) {
  wk_status status = wk_fail(WK_RUNTIME_ERROR, "%s", text->text ? text->text : "?");
  wk__string_release(text);
  return status;
}

/* dilation (kernel - 1) + 1 */
static wk_int reach(const windows *w, int d) {
  return wk_int_add(wk_int_mul(w->dilation[d], wk_int_sub(w->kernel[d], one())), one());
}

static wk_int places(const windows *w, int d, wk_int size) {
  wk_int padded = wk_int_add(size, wk_int_add(w->padding[d], w->padding[d]));
  return wk_int_add(wk_int_floordiv(wk_int_sub(padded, reach(w, d)), w->stride[d]), one());
}

/* ================================================ images to columns ============================================= */

static wk_status check_images(const wk__call *c, const wk_tensor *t, const windows *w) {
  const char *words = "with possibly 0 batch size and other non-zero dimensions for input";
  int dim;
  if (t->ndim < 3) WK_TRY(wk__wrap_dim(2, t->ndim, &dim));
  WK_TRY(check_input(t, 3, words));
  const wk_int *size = t->sizes + t->ndim - DIMS;
  wk_int out[] = {places(w, 0, size[0]), places(w, 1, size[1])};
  if (wk_int_lt(out[0], one()) || wk_int_lt(out[1], one())) {
    wk__string text = {0};
    print_pair(&text, "Given input with spatial size ", size);
    wk__string_append(&text, ", ");
    print_windows(&text, w);
    print_pair(&text, ", calculated shape of the array of sliding blocks as ", out);
    wk__string_append(&text, ", but its components must be at least one.");
    return fail_with(&text);
  }
  return check_dtype(c, t);
}

/* (..., size, ...) as (..., places, ..., kernel) */
static wk_tensor *windows_along(wk_tensor *t, int dim, const windows *w, int d) {
  wk_tensor *y = wk_unfold(t, dim, wk_int_guard_value(reach(w, d)), wk_int_guard_value(w->stride[d]));
  return wk_slice(y, -1, NONE, NONE, w->dilation[d]);
}

static wk_tensor *columns_of(wk_tensor *t, const windows *w) { /* (N, C, H, W) */
  const wk_int sides[] = {w->padding[1], w->padding[1], w->padding[0], w->padding[0]};
  const wk_int order[] = {zero(), one(), wk_int_of(4), wk_int_of(5), wk_int_of(2), wk_int_of(3)};
  bool padded = !wk_int_eq(w->padding[0], zero()) || !wk_int_eq(w->padding[1], zero());
  wk_tensor *x = padded ? wk_constant_pad_nd(t, sides, 4, wk__v_int(0)) : t;
  wk_tensor *y = wk_permute(windows_along(windows_along(x, 2, w, 0), 3, w, 1), order, 6);
  if (!y) return NULL;
  const wk_int *n = y->sizes;
  wk_int sizes[] = {n[0], wk_int_mul(n[1], wk_int_mul(n[2], n[3])), wk_int_mul(n[4], n[5])};
  return wk_contiguous(wk_reshape(y, sizes, 3), "contiguous_format");
}

wk_status wk__compose_im2col(wk__call *c) {
  wk_tensor *t = c->args[A(self)].tensor;
  windows w;
  WK_TRY(read_windows(&c->args[A(kernel_size)], &w));
  WK_TRY(check_images(c, t, &w));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *y = columns_of(t->ndim == 3 ? wk_unsqueeze(t, 0) : t, &w);
  if (y && t->ndim == 3) y = wk_squeeze_dim(y, 0);
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(&scope);
  return y ? WK_OK : wk_error_category();
}

wk_status wk__vjp_im2col(wk__vjp *v) {
  const wk_tensor *t = v->args[A(self)].tensor;
  wk_value args[] = {[B(self)] = wk__v_tensor(G),
                     [B(output_size)] = wk__v_ints(t->sizes + t->ndim - DIMS, DIMS),
                     [B(kernel_size)] = v->args[A(kernel_size)],
                     [B(dilation)] = v->args[A(dilation)],
                     [B(padding)] = v->args[A(padding)],
                     [B(stride)] = v->args[A(stride)]};
  return wk__vjp_set(v, A(self), wk__call_tensor(WK__OP(col2im), args));
}

/* ================================================ columns to images ============================================= */

static wk_status check_columns(const wk__call *c, const wk_tensor *t, const wk_int *size, const windows *w) {
  wk_int kernel = wk_int_mul(w->kernel[0], w->kernel[1]), out[] = {places(w, 0, size[0]), places(w, 1, size[1])};
  wk__string text = {0};
  WK_TRY(check_input(t, 2, "for input with possibly 0 batch size and non-zero dimensions for input"));
  wk_int rows = t->sizes[t->ndim - 2], columns = t->sizes[t->ndim - 1];
  if (!wk_int_eq(wk_int_mod(rows, kernel), zero())) {
    wk__string_printf(&text,
                      "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got "
                      "input.size(1)=%lld and ",
                      wk__shown(rows));
    print_pair(&text, "kernel_size=", w->kernel);
    wk__string_append(&text, ".");
    return fail_with(&text);
  }
  if (!wk_int_eq(columns, wk_int_mul(out[0], out[1])) || wk_int_lt(out[0], one()) || wk_int_lt(out[1], one())) {
    print_pair(&text, "Given output_size=", size);
    wk__string_append(&text, ", ");
    print_windows(&text, w);
    print_pair(&text, ", stride=", w->stride);
    wk__string_printf(&text,
                      ", expected size of input's dimension 2 to match the calculated number of sliding blocks %lld * "
                      "%lld = %lld, but got input.size(2)=%lld.",
                      wk__shown(out[0]), wk__shown(out[1]), wk__shown(wk_int_mul(out[0], out[1])), wk__shown(columns));
    return fail_with(&text);
  }
  return check_dtype(c, t);
}

wk_status wk__meta_col2im(wk__call *c) {
  const wk_tensor *t = c->args[B(self)].tensor;
  wk_int size[DIMS];
  windows w;
  WK_TRY(read_pair(&c->args[B(output_size)], "output_size", size));
  WK_TRY(read_windows(&c->args[B(kernel_size)], &w));
  WK_TRY(check_columns(c, t, size, &w));
  wk_int channels = wk_int_floordiv(t->sizes[t->ndim - 2], wk_int_mul(w.kernel[0], w.kernel[1]));
  wk_int sizes[] = {t->sizes[0], channels, size[0], size[1]};
  int batched = t->ndim == 3;
  wk__spec_contiguous(&c->specs[0], (wk_dtype)t->dtype, t->device, 3 + batched, sizes + !batched);
  return WK_OK;
}

wk_status wk__vjp_col2im(wk__vjp *v) {
  wk_value args[] = {[A(self)] = wk__v_tensor(G),
                     [A(kernel_size)] = v->args[B(kernel_size)],
                     [A(dilation)] = v->args[B(dilation)],
                     [A(padding)] = v->args[B(padding)],
                     [A(stride)] = v->args[B(stride)]};
  return wk__vjp_set(v, B(self), wk__call_tensor(WK__OP(im2col), args));
}
