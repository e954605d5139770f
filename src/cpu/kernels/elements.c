/* Pointwise rows whose functions are plain C: arguments are converted to float64 and broadcast, the function is called
 * for each element, the result converted back. Tests: tests/ops/, tests/python/test_special.py. */
#include "cpu/kernels/elements.h"

#include <float.h>
#include <math.h>

#include "cpu/kernels.h"
#include "ops/internal.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})
enum { GRAIN = 256 };

typedef struct job {
  wk__element_fn *fn;
  wk_dtype dtype;
  const double *a, *b; /* elements, or one number each */
  int64_t a_step, b_step;
  double *out;
} job;

static void run(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  for (int64_t i = begin; i < end; i++) j->out[i] = j->fn(j->a[i * j->a_step], j->b[i * j->b_step], j->dtype);
}

/* The argument's elements for all of out's, in the caller's scope, or a number. */
static wk_status operand(const wk_value *v, const wk_tensor *out, double *number, const double **at, int64_t *step) {
  *at = number;
  *step = 0;
  if (v->tag != WK_VALUE_TENSOR) {
    *number = wk__scalar_double(wk__value_scalar(v));
    return WK_OK;
  }
  wk_tensor *wide = wk__call_tensor(WK__OP(_to_copy), (wk_value[]){*v, wk__v_dtype(WK_FLOAT64), NONE});
  wk_tensor *whole = wide ? wk_contiguous(wk_expand(wide, out->sizes, out->ndim, false), NULL) : NULL;
  if (!whole) return wk_error_category();
  *at = (const double *)wk__data(whole);
  *step = 1;
  return WK_OK;
}

wk_status wk__elements_of_two(wk__call *c, int first, int second, wk__element_fn *fn) {
  wk_tensor *out = c->outputs[0];
  wk_scope scope;
  wk_scope_begin(&scope);
  double numbers[2];
  job j = {.fn = fn, .dtype = out->dtype}; /* a replay has no compute_dtype */
  wk_status status = operand(&c->args[first], out, &numbers[0], &j.a, &j.a_step);
  if (status == WK_OK) status = operand(&c->args[second], out, &numbers[1], &j.b, &j.b_step);
  wk_tensor *made = status == WK_OK ? wk_new_empty(out, out->sizes, out->ndim, WK_FLOAT64, NONE) : NULL;
  if (status == WK_OK && !made) status = wk_error_category();
  if (status == WK_OK) {
    j.out = (double *)wk__data(made);
    wk__parallel_for(wk__numel(made), GRAIN, run, &j);
    status = wk__copy_into(out, made);
  }
  wk_scope_end(&scope);
  return status;
}

/* ---- the next float ---- */

/* Significant bits, and the exponent of the least normal number as frexp has it. */
static void precision(wk_dtype dtype, int *bits, int *least) {
  *bits = dtype == WK_FLOAT16 ? 11 : dtype == WK_BFLOAT16 ? 8 : dtype == WK_FLOAT32 ? FLT_MANT_DIG : DBL_MANT_DIG;
  *least = dtype == WK_FLOAT16 ? -13 : dtype == WK_FLOAT64 ? DBL_MIN_EXP : FLT_MIN_EXP;
}

static double next_of(double a, double b, wk_dtype dtype) {
  int bits, least, exponent;
  if (dtype == WK_FLOAT64) return nextafter(a, b);
  if (dtype == WK_FLOAT32) return nextafterf((float)a, (float)b);
  if (isnan(a) || isnan(b)) return NAN;
  if (a == b) return b;
  precision(dtype, &bits, &least);
  if (a == 0) return copysign(ldexp(1, least - bits), b);
  if (isinf(a)) return copysign(dtype == WK_FLOAT16 ? 65504 : 0x1.fep127, a);
  double fraction = frexp(fabs(a), &exponent);
  bool outwards = (b > a) == (a > 0);
  if (!outwards && fraction == 0.5) exponent--; /* below a power of two they lie closer */
  double step = ldexp(1, (exponent < least ? least : exponent) - bits);
  return outwards ? a + copysign(step, a) : copysign(fabs(a) - step, a);
}
wk_status wk__cpu_nextafter(wk__call *c) {
  WK__ARGS(nextafter);
  return wk__elements_of_two(c, A_self, A_other, next_of);
}
