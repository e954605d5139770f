/* Functions of the normal distribution and of entropy: bodies, and their derivatives. In: operands of any real dtype.
 * Computed in float64 and rounded once. Source of the figures: Cephes (ndtri). Tests: tests/ops/ (values, finite
 * differences), tests/python/test_special.py (ends of ranges). */
#include <math.h>

#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/special.h"
#include "wick/operators.h"

/* ---- parts of the distribution ---- */

static wk__var ndtr_of(handler h, wk__var x) {
  wk__var t = times(h, x, M_SQRT1_2), below = wk__erfc_body(h, wk__k_abs(h, t));
  return times(h, wk__k_where(h, less(h, x, 0), below, from(h, 2, below)), 0.5);
}
/* e^(x^2) erfc(x); from 2 on without a product of a large and a small number */
static wk__var erfcx_right(handler h, wk__var x) {
  wk__var near = wk__k_mul(h, wk__k_exp(h, square(h, x)), wk__erfc_body(h, x)), two = number(h, 2);
  wk__var far = under(h, M_2_SQRTPI / 2, wk__erfc_fraction(h, wk__k_max(h, x, two)));
  return wk__k_where(h, wk__k_ge(h, x, two), far, near);
}
static wk__var erfcx_of(handler h, wk__var x) {
  wk__var right = erfcx_right(h, wk__k_abs(h, x));
  wk__var mirrored = wk__k_sub(h, times(h, wk__k_exp(h, square(h, x)), 2), right);
  return wk__k_where(h, less(h, x, 0), mirrored, right);
}
static wk__var log_ndtr_of(handler h, wk__var x) {
  wk__var t = times(h, x, M_SQRT1_2), left = erfcx_right(h, wk__k_abs(h, t));
  wk__var low = wk__k_sub(h, wk__k_log(h, times(h, left, 0.5)), square(h, t));
  wk__var high = wk__k_log1p(h, times(h, wk__erfc_body(h, t), -0.5));
  return wk__k_where(h, less(h, x, -1), low, high);
}
LOWER_SPECIAL(ndtr, ndtr_of)
LOWER_SPECIAL(erfcx, erfcx_of)
LOWER_SPECIAL(log_ndtr, log_ndtr_of)

static wk_tensor *scaled(wk_tensor *t, double factor) { return wk_mul_Scalar(t, wk__v_double(factor)); }
/* e^(-x^2 / 2) / sqrt(2 pi) */
wk_status wk__vjp_ndtr(wk__vjp *v) {
  WK__ARGS(special_ndtr);
  wk_tensor *x = ARG(A_self), *bell = wk_exp(scaled(wk_mul(x, x), -0.5));
  return wk__vjp_set(v, A_self, wk_mul(G, scaled(bell, M_SQRT1_2 * M_2_SQRTPI / 2)));
}
/* sqrt(2 / pi) / erfcx(-x / sqrt(2)) */
wk_status wk__vjp_log_ndtr(wk__vjp *v) {
  WK__ARGS(special_log_ndtr);
  wk_tensor *below = wk_special_erfcx(scaled(ARG(A_self), -M_SQRT1_2));
  return wk__vjp_set(v, A_self, wk_mul(G, scaled(wk_reciprocal(below), M_SQRT1_2 * M_2_SQRTPI)));
}
/* 2 x result - 2 / sqrt(pi) */
wk_status wk__vjp_erfcx(wk__vjp *v) {
  WK__ARGS(special_erfcx);
  wk_tensor *slope = scaled(wk_mul(ARG(A_self), RESULT), 2);
  return wk__vjp_set(v, A_self, wk_mul(G, wk_add_Scalar(slope, wk__v_double(-M_2_SQRTPI), wk__v_int(1))));
}

/* ---- its inverse ---- */

static const double ndtri_p0[] = {-5.99633501014107895267e1, 9.80010754185999661536e1, -5.66762857469070293439e1,
                                  1.39312609387279679503e1, -1.23916583867381258016};
static const double ndtri_q0[] = {1.00000000000000000000,    1.95448858338141759834,    4.67627912898881538453,
                                  8.63602421390890590575e1,  -2.25462687854119370527e2, 2.00260212380060660359e2,
                                  -8.20372256168333339912e1, 1.59056225126211695515e1,  -1.18331621121330003142};
static const double ndtri_p1[] = {4.05544892305962419923,     3.15251094599893866154e1,   5.71628192246421288162e1,
                                  4.40805073893200834700e1,   1.46849561928858024014e1,   2.18663306850790267539,
                                  -1.40256079171354495875e-1, -3.50424626827848203418e-2, -8.57456785154685413611e-4};
static const double ndtri_q1[] = {1.00000000000000000000,     1.57799883256466749731e1,   4.53907635128879210584e1,
                                  4.13172038254672030440e1,   1.50425385692907503408e1,   2.50464946208309415979,
                                  -1.42182922854787788574e-1, -3.80806407691578277194e-2, -9.33259480895457427372e-4};
static const double ndtri_p2[] = {3.23774891776946035970,    6.91522889068984211695,    3.93881025292474443415,
                                  1.33303460815807542389,    2.01485389549179081538e-1, 1.23716634817820021358e-2,
                                  3.01581553508235416007e-4, 2.65806974686737550832e-6, 6.23974539184983293730e-9};
static const double ndtri_q2[] = {1.00000000000000000000,    6.02427039364742014255,    3.67983563856160859403,
                                  1.37702099489081330271,    2.16236993594496635890e-1, 1.34204006088543189037e-2,
                                  3.28014464682127739104e-4, 2.89247864745380683936e-6, 6.79019408009981274425e-9};
#define RATIO(h, x, p, q) wk__k_div(h, polynomial(h, x, p, COUNT(p)), polynomial(h, x, q, COUNT(q)))
/* Near 1/2 a rational function of (y - 1/2)^2; near the ends of z = 1 / sqrt(-2 log y), where y is the smaller part. */
static wk__var ndtri_of(handler h, wk__var p) {
  const double end = 0.13533528323661269189; /* e^-2 */
  wk__var upper = wk__k_gt(h, p, number(h, 1 - end)), y = wk__k_where(h, upper, from(h, 1, p), p);
  wk__var centre = plus(h, y, -0.5), c2 = square(h, centre);
  wk__var share = wk__k_mul(h, c2, RATIO(h, c2, ndtri_p0, ndtri_q0));
  wk__var middle = times(h, wk__k_fma(h, centre, share, centre), 2.50662827463100050242);
  wk__var x = wk__k_sqrt(h, times(h, wk__k_log(h, y), -2)), z = wk__k_reciprocal(h, x);
  wk__var start = wk__k_sub(h, x, wk__k_div(h, wk__k_log(h, x), x));
  wk__var near = RATIO(h, z, ndtri_p1, ndtri_q1), far = RATIO(h, z, ndtri_p2, ndtri_q2);
  wk__var tail = wk__k_sub(h, start, wk__k_mul(h, z, wk__k_where(h, less(h, x, 8), near, far)));
  tail = wk__k_where(h, upper, tail, wk__k_neg(h, tail));
  wk__var result = wk__k_where(h, wk__k_gt(h, y, number(h, end)), middle, tail);
  result = wk__k_where(h, wk__k_eq(h, p, number(h, 0)), number(h, -INFINITY), result);
  result = wk__k_where(h, wk__k_eq(h, p, number(h, 1)), number(h, INFINITY), result);
  wk__var outside = wk__k_bit_or(h, less(h, p, 0), wk__k_gt(h, p, number(h, 1)));
  return wk__k_where(h, outside, number(h, NAN), result);
}
LOWER_SPECIAL(ndtri, ndtri_of)
/* sqrt(2 pi) e^(result^2 / 2) */
wk_status wk__vjp_ndtri(wk__vjp *v) {
  wk_tensor *grown = wk_exp(scaled(wk_mul(RESULT, RESULT), 0.5));
  return wk__vjp_set(v, WK__ARG(special_ndtri, self), wk_mul(G, scaled(grown, 2 * M_SQRT2 / M_2_SQRTPI)));
}

/* ---- entropy ---- */

/* -x log x; 0 at 0, minus infinity below */
static wk__var entr_of(handler h, wk__var x) {
  wk__var y = wk__k_neg(h, wk__k_mul(h, x, wk__k_log(h, x)));
  y = wk__k_where(h, wk__k_eq(h, x, number(h, 0)), number(h, 0), y);
  return wk__k_where(h, less(h, x, 0), number(h, -INFINITY), y);
}
LOWER_SPECIAL(entr, entr_of)
wk_status wk__vjp_entr(wk__vjp *v) {
  WK__ARGS(special_entr);
  wk_tensor *slope = wk_neg(wk_add_Scalar(wk_log(ARG(A_self)), wk__v_int(1), wk__v_int(1)));
  return wk__vjp_set(v, A_self, wk_mul(G, slope));
}

/* x log(1 + y); 0 where x is 0, whatever the logarithm is, but for a NaN */
void wk__lower_xlog1py(wk__lower *l) {
  handler h = l->h;
  wk__var x = wk__in(l, 0), y = wk__in(l, WK__ARG(special_xlog1py, other)), zero = wk__k_constant(h, 0, l->compute);
  wk__var product = wk__k_where(h, wk__k_eq(h, x, zero), zero, wk__k_mul(h, x, wk__k_log1p(h, y)));
  wk__out(l, 0, wk__k_where(h, wk__k_isnan(h, y), y, product));
}
static wk_tensor *one_more(wk_tensor *t) { return wk_add_Scalar(t, wk__v_int(1), wk__v_int(1)); }
wk_status wk__vjp_xlog1py(wk__vjp *v) {
  WK__ARGS(special_xlog1py);
  if (wk__needs(v, A_self)) {
    wk_tensor *low = wk_le_Scalar(ARG(A_other), wk__v_int(-1));
    wk_tensor *flat = wk_logical_and(wk_eq_Scalar(ARG(A_self), wk__v_int(0)), low);
    GIVE(A_self, wk_mul(G, wk_where_ScalarSelf(flat, wk__v_int(0), wk_log1p(ARG(A_other)))));
  }
  GIVE(A_other, wk_div(wk_mul(G, ARG(A_self)), one_more(ARG(A_other))));
  return WK_OK;
}
wk_status wk__vjp_xlog1py_number(wk__vjp *v) {
  WK__ARGS(special_xlog1py_self_scalar);
  return wk__vjp_set(v, A_other, wk_div(wk_mul_Scalar(G, v->args[A_self]), one_more(ARG(A_other))));
}
wk_status wk__vjp_xlog1py_by_number(wk__vjp *v) {
  WK__ARGS(special_xlog1py_other_scalar);
  return wk__vjp_set(v, A_self, scaled(G, log1p(wk__scalar_double(wk__value_scalar(&v->args[A_other])))));
}

/* ---- functions whose code is the device's: shapes and derivatives ---- */

/* PyTorch has no kernel for half precision. */
static wk_status refuse(const wk__call *c, wk_dtype dtype) {
  static const char prefix[] = "special_";
  const char *name = c->op->base_name;
  if (strncmp(name, prefix, sizeof prefix - 1) == 0) name += sizeof prefix - 1;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"%s_cpu\" not implemented for '%s'", name, wk__dtype_legacy(dtype));
}
wk_status wk__meta_special_wide(wk__call *c) {
  WK_TRY(wk__meta_pointwise_float(c));
  wk_dtype dtype = (wk_dtype)c->compute_dtype;
  return dtype == WK_FLOAT16 || dtype == WK_BFLOAT16 ? refuse(c, dtype) : WK_OK;
}
/* Nor for integers. */
wk_status wk__meta_special_floats(wk__call *c) {
  WK_TRY(wk__meta_pointwise(c));
  wk_dtype dtype = (wk_dtype)c->compute_dtype;
  return wk_dtype_is_integral(dtype, true) ? refuse(c, dtype) : WK_OK;
}

static wk_status not_there(const char *what) {
  return wk_fail(WK_NOT_IMPLEMENTED, "the derivative for '%s' is not implemented.", what);
}
/* PyTorch names the function: zeta, not special_zeta. */
wk_status wk__vjp_refused(wk__vjp *v) {
  const char *name = v->op->base_name, module[] = "special_";
  return not_there(strncmp(name, module, strlen(module)) == 0 ? name + strlen(module) : name);
}
/* e^((a - 1) log x - x - lgamma a) */
static wk_tensor *gamma_density(wk_tensor *a, wk_tensor *x) {
  wk_tensor *power = wk_mul(wk_sub_Scalar(a, wk__v_int(1), wk__v_int(1)), wk_log(x));
  return wk_exp(wk_sub(wk_sub(power, x, wk__v_int(1)), wk_lgamma(a), wk__v_int(1)));
}
wk_status wk__vjp_igamma(wk__vjp *v) {
  WK__ARGS(igamma);
  if (wk__needs(v, A_self)) return not_there("igamma: input");
  return wk__vjp_set(v, A_other, wk_mul(G, gamma_density(ARG(A_self), ARG(A_other))));
}
wk_status wk__vjp_igammac(wk__vjp *v) {
  WK__ARGS(igammac);
  if (wk__needs(v, A_self)) return not_there("igammac: input");
  return wk__vjp_set(v, A_other, wk_neg(wk_mul(G, gamma_density(ARG(A_self), ARG(A_other)))));
}
/* The next float moves with self, unless it is there already. */
wk_status wk__vjp_nextafter(wk__vjp *v) {
  WK__ARGS(nextafter);
  GIVE(A_self, wk_where_ScalarSelf(wk_eq(ARG(A_self), ARG(A_other)), wk__v_int(0), G));
  GIVE(A_other, wk_zero(G));
  return WK_OK;
}
/* by other: -self zeta(self + 1, other) */
wk_status wk__vjp_zeta(wk__vjp *v) {
  WK__ARGS(special_zeta);
  if (wk__needs(v, A_self)) return not_there("zeta");
  wk_tensor *s = ARG(A_self), *slope = wk_special_zeta(one_more(s), ARG(A_other));
  return wk__vjp_set(v, A_other, wk_neg(wk_mul(G, wk_mul(s, slope))));
}
wk_status wk__vjp_zeta_of_number(wk__vjp *v) {
  WK__ARGS(special_zeta_self_scalar);
  double s = wk__scalar_double(wk__value_scalar(&v->args[A_self]));
  wk_tensor *slope = wk_special_zeta_self_scalar(wk__v_double(s + 1), ARG(A_other));
  return wk__vjp_set(v, A_other, scaled(wk_mul(G, slope), -s));
}

/* A row of two tensors with a number for one of them. Its overload for tensors stands before those for numbers. */
wk_status wk__compose_of_number(wk__call *c) {
  const wk_op *op = c->op;
  while (op->schema.parameters[0].type != WK__TYPE_TENSOR || op->schema.parameters[1].type != WK__TYPE_TENSOR) op--;
  bool first = c->args[0].tag != WK_VALUE_TENSOR;
  const wk_tensor *t = c->args[first].tensor;
  wk_dtype dtype = wk__result_type(c);
  if (wk__value_is_integer(&c->args[!first])) dtype = wk_dtype_is_integral(dtype, true) ? WK_INT64 : dtype;
  wk_scope scope;
  wk_scope_begin(&scope);
  const wk_int none[1] = {wk_int_of(0)};
  wk_tensor *number = wk_full(none, 0, c->args[!first], dtype, (wk_value){.tag = WK_VALUE_DEVICE, .device = t->device});
  wk_value args[2];
  args[first] = c->args[first];
  args[!first] = wk__v_tensor(number);
  wk_status status = number ? wk_call(op, args, NULL, c->results) : wk_error_category();
  wk_scope_end(&scope);
  return status;
}
