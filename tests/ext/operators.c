/* The rules of the operators that only tests call (tests/ops/rows/). As plain as their kinds of values allow: what is
 * tested is how values come here, through every way that a call can take. */
#include "wick/operators.h"
#include "ops/internal.h"
#include "ops/rules.h"

/* ---- lists of bools ---- */

static wk__var signed_by(wk__lower *l, wk__var x, bool negative) { return negative ? wk__k_neg(l->h, x) : x; }

void wk__lower_test_choose(wk__lower *l) {
  const bool *taken = l->call->args[WK__ARG(_test_choose, taken)].booleans;
  const bool *negative = l->call->args[WK__ARG(_test_choose, negative)].booleans;
  wk__var sum = wk__k_constant(l->h, 0, l->compute);
  for (int i = 0; i < 2; i++)
    if (taken[i]) sum = wk__k_add(l->h, sum, signed_by(l, wk__in(l, i), negative[i]));
  wk__out(l, 0, sum);
}
wk_status wk__vjp_test_choose(wk__vjp *v) {
  const bool *taken = v->args[WK__ARG(_test_choose, taken)].booleans;
  const bool *negative = v->args[WK__ARG(_test_choose, negative)].booleans;
  for (int i = 0; i < 2; i++) {
    if (!wk__needs(v, i)) continue;
    double factor = !taken[i] ? 0 : negative[i] ? -1 : 1;
    WK_TRY(wk__vjp_set(v, i, wk_mul_Scalar(v->grads[0], wk__v_double(factor))));
  }
  return WK_OK;
}

wk_status wk__compose_test_multiples(wk__call *c) {
  const bool *wanted = c->args[WK__ARG(_test_multiples, wanted)].booleans;
  wk_status status = WK_OK;
  for (int r = 0; r < 2 && status == WK_OK; r++) {
    wk_value args[] = {c->args[WK__ARG(_test_multiples, self)], wk__v_int(2 + r)};
    if (wanted[r]) status = wk_call(WK__OP(mul_Scalar), args, NULL, &c->results[r]);
  }
  if (status != WK_OK) wk_value_release(&c->results[0]);
  return status;
}
wk_status wk__vjp_test_multiples(wk__vjp *v) {
  wk_tensor *sum = NULL;
  for (int r = 0; r < 2; r++) {
    if (!v->grads[r]) continue;
    wk_tensor *part = wk_mul_Scalar(v->grads[r], wk__v_int(2 + r));
    sum = sum ? wk_add(sum, part, wk__v_int(1)) : part;
  }
  return wk__vjp_set(v, WK__ARG(_test_multiples, self), sum);
}

/* ---- lists of numbers and tensors ---- */

static wk_tensor *times(wk_tensor *t, wk_value factor) { return wk_mul_Scalar(t, factor); }
static wk_tensor *plus(wk_tensor *a, wk_tensor *b) { return a ? wk_add(a, b, wk__v_int(1)) : b; }

#define COMBINE(name) WK__ARG(_test_combine, name)
static bool is_taken(const wk_value *args, uint32_t term) {
  const wk_value *which = &args[COMBINE(which)];
  bool taken = which->tag == WK_VALUE_NONE;
  for (uint32_t k = 0; which->tag == WK_VALUE_INTS && k < which->count; k++)
    taken |= which->integers[k].bits == (int64_t)term;
  return taken;
}
static wk_tensor *combined(const wk_value *args) {
  const wk_value *factors = &args[COMBINE(factors)], *shifts = &args[COMBINE(shifts)];
  wk_tensor *sum = NULL;
  for (uint32_t k = 0; k < args[COMBINE(terms)].count; k++) {
    wk_value factor = k < factors->count ? factors->scalars[k] : wk__v_int(1);
    double shift = k < shifts->count ? shifts->numbers[k] : 0;
    wk_tensor *term = wk_add_Scalar(times(args[COMBINE(terms)].tensors[k], factor), wk__v_double(shift), wk__v_int(1));
    if (is_taken(args, k)) sum = plus(sum, term);
  }
  WK__EACH_TENSOR(bias, &args[COMBINE(biases)], 1) sum = plus(sum, bias);
  return times(sum, args[COMBINE(scale)]);
}
static wk_status give_one(wk__call *c, wk_tensor *(*make)(const wk_value *args)) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *made = make(c->args);
  c->results[0] = wk__v_tensor(wk_scope_keep(made));
  wk_scope_end(&scope);
  return made ? WK_OK : wk_error_category();
}
wk_status wk__compose_test_combine(wk__call *c) { return give_one(c, combined); }
wk_status wk__vjp_test_combine(wk__vjp *v) {
  const wk_value *factors = &v->args[COMBINE(factors)];
  wk_tensor *g = times(v->grads[0], v->args[COMBINE(scale)]);
  for (uint32_t k = 0; k < v->args[COMBINE(terms)].count; k++) {
    int input = wk__list_input(v, COMBINE(terms), (int)k);
    wk_value factor = !is_taken(v->args, k) ? wk__v_int(0) : k < factors->count ? factors->scalars[k] : wk__v_int(1);
    if (wk__needs(v, input)) WK_TRY(wk__vjp_set(v, input, times(g, factor)));
  }
  for (uint32_t k = 0; k < v->args[COMBINE(biases)].count; k++) {
    int input = wk__list_input(v, COMBINE(biases), (int)k);
    if (wk__needs(v, input)) WK_TRY(wk__vjp_set(v, input, g));
  }
  return WK_OK;
}

wk_status wk__compose_test_scale_each(wk__call *c) {
  const wk_value *self = &c->args[0], *factors = &c->args[WK__ARG(_test_scale_each, factors)];
  wk_tensor **list = wk__alloc_zeroed((self->count + 1) * sizeof *list);
  if (!list) return WK_OUT_OF_MEMORY;
  wk_value made = {.tag = WK_VALUE_TENSORS, .count = self->count, .tensors = list};
  for (uint32_t k = 0; k < self->count; k++) {
    wk_value args[] = {wk__v_tensor(self->tensors[k]), factors->scalars[k % factors->count]}, result = {0};
    wk_status status = wk_call(WK__OP(mul_Scalar), args, NULL, &result);
    list[k] = result.tensor;
    if (status == WK_OK) continue;
    wk_value_release(&made);
    return status;
  }
  c->results[0] = made;
  return WK_OK;
}
wk_status wk__vjp_test_scale_each(wk__vjp *v) {
  const wk_value *factors = &v->args[WK__ARG(_test_scale_each, factors)];
  for (int k = 0; k < v->result_count; k++) {
    int input = wk__list_input(v, 0, k);
    if (!v->grads[k] || !wk__needs(v, input)) continue;
    WK_TRY(wk__vjp_set(v, input, times(v->grads[k], factors->scalars[(uint32_t)k % factors->count])));
  }
  return WK_OK;
}

/* ---- complex numbers ---- */

#define TURN(name) WK__ARG(_test_turn, name)
static double imaginary(const wk_value *v) { return v->tag == WK_VALUE_COMPLEX ? v->numbers[1] : 0; }
static double real(const wk_value *v) {
  return v->tag == WK_VALUE_COMPLEX ? v->numbers[0] : wk__scalar_double(wk__value_scalar(v));
}
static wk_tensor *turned(const wk_value *args) {
  double sum = imaginary(&args[TURN(factor)]);
  for (uint32_t k = 0; k < args[TURN(others)].count; k++) sum += imaginary(&args[TURN(others)].scalars[k]);
  wk_tensor *turned = times(args[TURN(self)].tensor, wk__v_double(real(&args[TURN(factor)])));
  return wk_add_Scalar(turned, wk__v_double(sum), wk__v_int(1));
}
wk_status wk__compose_test_turn(wk__call *c) { return give_one(c, turned); }
wk_status wk__vjp_test_turn(wk__vjp *v) {
  return wk__vjp_set(v, TURN(self), times(v->grads[0], wk__v_double(real(&v->args[TURN(factor)]))));
}

/* ---- many arguments and results ---- */

#define MANY(name) WK__ARG(_test_many, name)
_Static_assert(MANY(last) == WK__MAX_ARGS - 1, "the row has as many arguments as there may be");
enum { MANY_RESULTS = WK__MAX_RESULTS };
static wk_tensor *one_of_many(const wk_value *args, int r) {
  wk_tensor *twice = times(args[MANY(t0) + r].tensor, args[MANY(factors)].scalars[0]);
  if (r == 0) WK__EACH_TENSOR(last, &args[MANY(last)], 1) twice = plus(twice, last);
  return r < 8 ? twice : plus(twice, args[MANY(t0) + r - 8].tensor);
}
wk_status wk__compose_test_many(wk__call *c) {
  wk_scope scope;
  wk_status status = WK_OK;
  wk_scope_begin(&scope);
  for (int r = 0; r < MANY_RESULTS && status == WK_OK; r++) {
    if (!c->args[MANY(made)].booleans[r]) continue;
    wk_tensor *made = one_of_many(c->args, r);
    if (!made) status = wk_error_category();
    c->results[r] = wk__v_tensor(wk_scope_keep(made));
  }
  for (int r = 0; r < MANY_RESULTS && status != WK_OK; r++) wk_value_release(&c->results[r]);
  wk_scope_end(&scope);
  return status;
}
wk_status wk__vjp_test_many(wk__vjp *v) {
  for (int i = 0; i < MANY_RESULTS; i++) {
    wk_tensor *sum = v->grads[i] ? times(v->grads[i], v->args[MANY(factors)].scalars[0]) : NULL;
    wk_tensor *above = i < 8 ? v->grads[i + 8] : NULL;
    if (above) sum = plus(sum, above);
    if (sum && wk__needs(v, MANY(t0) + i)) WK_TRY(wk__vjp_set(v, MANY(t0) + i, sum));
  }
  for (uint32_t k = 0; v->grads[0] && k < v->args[MANY(last)].count; k++) {
    int input = wk__list_input(v, MANY(last), (int)k);
    if (wk__needs(v, input)) WK_TRY(wk__vjp_set(v, input, v->grads[0]));
  }
  return WK_OK;
}
