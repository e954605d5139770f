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
