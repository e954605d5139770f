/* Pointwise rows whose functions are plain C, the host's text (on_device/elements.c): in double, or as int64s. What is
 * made of +, -, * and / alone has the CPU's bits; logarithms and the like are the device's own. Tests:
 * tests/cuda/test_elements.py. */
#include "cuda/elements.h"

#include "cpu/kernels/elements.h"
#include "cuda/kernels.h"
#include "cuda/units.h"
#include "ops/internal.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})
enum { THREADS = 128, MOST_BLOCKS = 1 << 16 };

/* The argument's elements for all of out's, or a number. Floats are widened as they are read. */
static wk_status take_operand(wk__cuda_elements *f, int at, const wk_value *v, const wk_tensor *out, wk_dtype dtype) {
  if (v->tag != WK_VALUE_TENSOR) {
    f->numbers[at] = wk__scalar_double(wk__value_scalar(v));
    return WK_OK;
  }
  wk_tensor *t = v->tensor;
  bool single = t->dtype == WK_FLOAT32 && dtype == WK_FLOAT64;
  if (single) dtype = WK_FLOAT32, f->singles |= 1 << at;
  if (t->device.type != WK_CUDA) { /* one number may be the host's */
    wk_value to = {.tag = WK_VALUE_DEVICE, .device = out->device};
    t = wk__call_tensor(WK__OP(_to_copy), (wk_value[]){*v, wk__v_dtype(dtype), to});
  }
  if (t) t = wk__in_dtype(t, dtype);
  if (t) t = wk_contiguous(wk_expand(t, out->sizes, out->ndim, false), NULL);
  f->in[at] = wk__cuda_at(t);
  return t ? WK_OK : wk_error_category();
}

static wk_status compute(wk__call *c, wk__element element, int operands, wk_dtype dtype) {
  wk_tensor *out = c->outputs[0];
  wk__cuda_elements f = {.n = wk__numel(out), .element = (int32_t)element, .dtype = out->dtype};
  for (int i = 0; i < operands; i++) WK_TRY(take_operand(&f, i, &c->args[i], out, dtype));
  f.single = out->dtype == WK_FLOAT32;
  bool direct = wk__is_contiguous(out) && (f.single || out->dtype == dtype);
  wk_tensor *made = direct ? out : wk_new_empty(out, out->sizes, out->ndim, f.single ? WK_FLOAT32 : dtype, NONE);
  if (!made) return wk_error_category();
  f.out = wk__cuda_at(made);
  WK_TRY(wk__cuda_call_unit(out, &(wk__cuda_unit_call){.module = WK__CUDA_ELEMENTS,
                                                       .kernel = dtype == WK_INT64 ? "kernel_integers" : "kernel_reals",
                                                       .blocks = wk__min(wk__ceil_div(f.n, THREADS), MOST_BLOCKS),
                                                       .threads = THREADS,
                                                       .words = &f,
                                                       .word_count = (int)(sizeof f / 8),
                                                       .address_count = 1 + WK__ELEMENT_OPERANDS}));
  return direct ? WK_OK : wk__copy_into(out, made);
}

#define ROW(name, operands, dtype)                                                                          \
  static wk_status name##_elements(wk__call *c) { return compute(c, WK__ELEMENT_##name, operands, dtype); } \
  wk_status wk__cuda_##name(wk__call *c) { return wk__cuda_in_scope(c, name##_elements); }

#define ELEMENT(kernel, function) ROW(kernel, 2, WK_FLOAT64)
#include "cpu/kernels/elements.def"
#undef ELEMENT
ROW(dirichlet_grad, 3, WK_FLOAT64)
ROW(gcd, 2, WK_INT64)
ROW(lcm, 2, WK_INT64)
