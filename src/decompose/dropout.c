/* Decompositions of dropout: its mask is drawn by an operator of its own. Tests: tests/ops/test_decompositions.py. */
#include "decompose/decompose.h"
#include "wick/operators.h"

#define ARG(i) wk__d_arg(c, i)
#define VALUE(i) (c->args[i])

static double number(const wk_value *v) { return wk__scalar_double(wk__value_scalar(v)); }

/* The device, where it is not the CPU. */
static wk_value elsewhere(const wk_tensor *x) { return x->device.type == WK_CPU ? WK__NO_VALUE : wk__d_device(x); }

wk_status wk__decompose_dropout(wk__call *c, wk_tensor **out) {
  double p = number(&VALUE(1));
  bool train = c->op == WK__OP(_dropout) || VALUE(2).tag != WK_VALUE_BOOL || VALUE(2).boolean;
  const wk__spec *spec = &c->specs[1];
  wk_tensor *x = ARG(0);
  out[1] =
      train ? wk__dropout_mask(spec->sizes, spec->ndim, spec->strides, spec->ndim, p, elsewhere(x), (wk_dtype)x->dtype)
            : wk_full(spec->sizes, spec->ndim, wk__v_bool(true), WK_BOOL, wk__d_device(x));
  double scale = train ? wk__dropout_scale(c->op, p, x) : 1;
  out[0] = wk_native_dropout_backward(x, out[1], scale);
  return out[0] ? WK_OK : wk_error_category();
}
