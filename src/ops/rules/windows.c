/* Windows of spectra: weights of n places that fade in and out, with PyTorch's steps, so that small floats round as
 * there. In: the length, whether the window is one period of a longer one, its numbers. Out: a composition.
 * Tests: tests/ops/, tests/python/test_windows.py. */
#include <math.h>

#include "ops/internal.h"
#include "ops/rules.h"
#include "wick/operators.h"

typedef struct window {
  int64_t length, places; /* places: of the longer one where it is periodic */
  wk_dtype dtype;
  wk_value device;
} window;

/* The overloads of a window have one order: its length, whether it is periodic, numbers, then dtype and device. Those
 * behind the length are there or not. */
enum { PERIODIC = 1, FIRST_NUMBER = 2 };
static int positional(const wk__call *c) { return c->op->schema.positional_count; }
static double number(const wk__call *c, int k, double otherwise) {
  int at = FIRST_NUMBER + k;
  return at < positional(c) ? wk__scalar_double(wk__value_scalar(&c->args[at])) : otherwise;
}

static wk_status read_window(const wk__call *c, window *w) {
  const char *name = c->op->base_name;
  int dtype = positional(c);
  w->length = wk_int_guard_value(c->args[0].integer);
  w->places = w->length + (PERIODIC >= dtype || c->args[PERIODIC].boolean);
  w->dtype = wk__arg_dtype(c, dtype, wk__default_dtype());
  w->device = c->args[dtype + 1];
  if (!wk_dtype_is_floating(w->dtype))
    return wk_fail(
        WK_RUNTIME_ERROR,
        "%s expects floating point dtypes, got: TensorOptions(dtype=%s, device=cpu, layout=Strided (default), "
        "requires_grad=false (default), pinned_memory=false, memory_format=(nullopt))",
        name, wk__dtype_c_name(w->dtype));
  if (w->length >= 0) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "%s requires non-negative window_length, got window_length=%lld", name,
                 (long long)w->length);
}

static wk_tensor *steps(const window *w, double step) {
  wk_tensor *line = wk_arange(wk__v_int(w->places), w->dtype, w->device);
  return step == 1 ? line : wk_mul_Scalar(line, wk__v_double(step));
}
static wk_tensor *scaled(wk_tensor *t, double factor) { return wk_mul_Scalar(t, wk__v_double(factor)); }
static wk_tensor *raised(wk_tensor *t, double by) { return wk_add_Scalar(t, wk__v_double(by), wk__v_int(1)); }

/* alpha - beta cos(2 pi k / (n - 1)) */
static wk_tensor *hamming(const window *w, double alpha, double beta) {
  return raised(scaled(wk_cos(steps(w, M_PI * 2 / (double)(w->places - 1))), -beta), alpha);
}
/* 0.42 - 0.5 cos(2 x) + 0.08 cos(4 x), x = pi k / (n - 1) */
static wk_tensor *blackman(const window *w) {
  wk_tensor *line = steps(w, M_PI / (double)(w->places - 1));
  wk_tensor *fast = scaled(wk_cos(scaled(line, 4)), 0.08), *slow = scaled(wk_cos(scaled(line, 2)), 0.5);
  return raised(wk_sub(fast, slow, wk__v_int(1)), 0.42);
}
/* Up to 1 in the middle and down again. */
static wk_tensor *bartlett(const window *w) {
  wk_tensor *up = steps(w, 2.0 / (double)(w->places - 1)), *down = raised(wk_neg(up), 2);
  wk_tensor *place = wk_arange(wk__v_int(w->places), WK_INT64, w->device);
  return up ? wk_where_self(wk_le_Scalar(place, wk__v_int((w->places - 1) / 2)), up, down) : NULL;
}
/* I0(beta sqrt(1 - x^2)) / I0(beta), x from -1 to 1 */
static wk_tensor *kaiser(const window *w, double beta) {
  window wide = *w;
  bool small = w->dtype != WK_FLOAT32 && w->dtype != WK_FLOAT64;
  if (small) wide.dtype = WK_FLOAT32;
  double middle = (double)(w->places - 1) / 2;
  wk_tensor *x = wk_div_Scalar(raised(steps(&wide, 1), -middle), wk__v_double(middle));
  wk_tensor *inside = wk_rsub_Scalar(wk_mul(x, x), wk__v_int(1), wk__v_int(1));
  wk_tensor *y = wk_i0(scaled(wk_sqrt(inside), beta)),
            *all = x ? wk_full_like(x, wk__v_double(beta), WK_DTYPE_NONE, w->device, NULL) : NULL;
  y = all ? wk_div(y, wk_i0(all)) : NULL;
  return y && small ? wk__in_dtype(y, w->dtype) : y;
}

typedef wk_tensor *maker(const wk__call *c, const window *w);
static wk_tensor *make_hann(const wk__call *c, const window *w) { return (void)c, hamming(w, 0.5, 0.5); }
static wk_tensor *make_hamming(const wk__call *c, const window *w) {
  return hamming(w, number(c, 0, 0.54), number(c, 1, 0.46));
}
static wk_tensor *make_blackman(const wk__call *c, const window *w) { return (void)c, blackman(w); }
static wk_tensor *make_bartlett(const wk__call *c, const window *w) { return (void)c, bartlett(w); }
static wk_tensor *make_kaiser(const wk__call *c, const window *w) { return kaiser(w, number(c, 0, 12)); }

static wk_status compose(wk__call *c, maker *make) {
  window w;
  wk_scope scope;
  WK_TRY(read_window(c, &w));
  wk_scope_begin(&scope);
  wk_int length = wk_int_of(w.length);
  wk_tensor *y = w.length < 2 ? wk_ones(&length, 1, w.dtype, w.device) : make(c, &w);
  if (y && w.length >= 2 && w.places != w.length) y = wk_slice(y, 0, wk__v_int(0), wk__v_int(w.length), wk_int_of(1));
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(&scope);
  return y ? WK_OK : wk_error_category();
}
wk_status wk__compose_hann_window(wk__call *c) { return compose(c, make_hann); }
wk_status wk__compose_hamming_window(wk__call *c) { return compose(c, make_hamming); }
wk_status wk__compose_blackman_window(wk__call *c) { return compose(c, make_blackman); }
wk_status wk__compose_bartlett_window(wk__call *c) { return compose(c, make_bartlett); }
wk_status wk__compose_kaiser_window(wk__call *c) { return compose(c, make_kaiser); }
