/* Pointwise rows whose functions are plain C (elements_body.h): arguments are converted to float64 or int64 and
 * broadcast, the function is called for each element, the result converted back. Tests: tests/ops/,
 * tests/python/test_special.py. */
#include "cpu/kernels/elements.h"

#include <float.h>
#include <math.h>

#include "cpu/kernels.h"
#include "ops/internal.h"
#include "wick/operators.h"

#include "cpu/kernels/elements_body.h"

#define NONE ((wk_value){0})
enum { GRAIN = 256, MOST_OPERANDS = 3 };

typedef struct job {
  wk__element element;
  wk__element_fn *fn; /* of two float64s */
  wk_dtype dtype;
  double numbers[MOST_OPERANDS];
  const void *in[MOST_OPERANDS]; /* elements, or one number each */
  int64_t steps[MOST_OPERANDS];
  void *out;
} job;

static double real(const job *j, int operand, int64_t i) {
  return ((const double *)j->in[operand])[i * j->steps[operand]];
}
static int64_t integer(const job *j, int operand, int64_t i) {
  return ((const int64_t *)j->in[operand])[i * j->steps[operand]];
}

static void of_two(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  for (int64_t i = begin; i < end; i++) ((double *)j->out)[i] = j->fn(real(j, 0, i), real(j, 1, i), j->dtype);
}
static void of_three(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  for (int64_t i = begin; i < end; i++) ((double *)j->out)[i] = beta_slope(real(j, 0, i), real(j, 1, i), real(j, 2, i));
}
static void of_integers(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  int64_t (*fn)(int64_t, int64_t) = j->element == WK__ELEMENT_gcd ? divisor : multiple;
  for (int64_t i = begin; i < end; i++) ((int64_t *)j->out)[i] = fn(integer(j, 0, i), integer(j, 1, i));
}

/* The argument's elements for all of out's, in the caller's scope, or a number. */
static wk_status take_operand(job *j, int at, const wk_value *v, const wk_tensor *out, wk_dtype dtype) {
  j->in[at] = &j->numbers[at];
  if (v->tag != WK_VALUE_TENSOR) {
    j->numbers[at] = wk__scalar_double(wk__value_scalar(v));
    return WK_OK;
  }
  wk_tensor *wide = wk__in_dtype(v->tensor, dtype);
  wk_tensor *whole = wide ? wk_contiguous(wk_expand(wide, out->sizes, out->ndim, false), NULL) : NULL;
  if (!whole) return wk_error_category();
  j->in[at] = wk__data(whole);
  j->steps[at] = 1;
  return WK_OK;
}

static wk_status compute(const wk__call *c, job *j, int operands, wk_dtype dtype, wk__range_fn *run) {
  wk_tensor *out = c->outputs[0];
  for (int i = 0; i < operands; i++) WK_TRY(take_operand(j, i, &c->args[i], out, dtype));
  wk_tensor *made = wk_new_empty(out, out->sizes, out->ndim, dtype, NONE);
  if (!made) return wk_error_category();
  j->out = wk__data(made);
  wk__parallel_for(wk__numel(made), GRAIN, run, j);
  return wk__copy_into(out, made);
}
static wk_status elements(const wk__call *c, job *j, int operands, wk_dtype dtype, wk__range_fn *run) {
  wk_scope scope;
  j->dtype = c->outputs[0]->dtype; /* a replay has no compute_dtype */
  wk_scope_begin(&scope);
  wk_status status = compute(c, j, operands, dtype, run);
  wk_scope_end(&scope);
  return status;
}

#define ELEMENT(kernel, function)                              \
  wk_status wk__cpu_##kernel(wk__call *c) {                    \
    job j = {.element = WK__ELEMENT_##kernel, .fn = function}; \
    return elements(c, &j, 2, WK_FLOAT64, of_two);             \
  }
#include "cpu/kernels/elements.def"
#undef ELEMENT

wk_status wk__cpu_dirichlet_grad(wk__call *c) {
  job j = {.element = WK__ELEMENT_dirichlet_grad};
  return elements(c, &j, 3, WK_FLOAT64, of_three);
}
wk_status wk__cpu_gcd(wk__call *c) {
  job j = {.element = WK__ELEMENT_gcd};
  return elements(c, &j, 2, WK_INT64, of_integers);
}
wk_status wk__cpu_lcm(wk__call *c) {
  job j = {.element = WK__ELEMENT_lcm};
  return elements(c, &j, 2, WK_INT64, of_integers);
}
