/* What the out= forms of PyTorch's operators make of an out of another dtype than the result's.
 * In: an operator and the two dtypes. Out: PyTorch's error, or nothing where it converts. Forms that are not listed
 * convert where promotion allows it. Tests: tests/python/test_out_forms.py, test_errors.py. */
#include "ops/internal.h"

/* ---- the dtype that is computed in ---- */

/* Their result has out='s dtype unless the call names one. */
static bool out_gives_dtype(const wk_op *op) {
  static const char *const names[] = {"arange",   "cumprod",  "cumsum",   "empty", "eye",  "full",
                                      "linspace", "logspace", "normal",   "ones",  "prod", "rand",
                                      "randint",  "randn",    "randperm", "sum",   "zeros"};
  for (size_t i = 0; i < WK_COUNT(names); i++)
    if (strcmp(op->base_name, names[i]) == 0) return true;
  return false;
}

static int dtype_parameter(const wk_op *op) {
  for (int i = 0; i < op->schema.parameter_count; i++)
    if (op->schema.parameters[i].type == WK__TYPE_DTYPE) return i;
  return -1;
}

/* Reductions say it as most kernels do, what makes tensors names the parameter. */
static wk_status refuse_named(const wk_op *op, wk_dtype named, wk_dtype out) {
  if (op->schema.parameters[0].type == WK__TYPE_TENSOR)
    return wk_fail(WK_RUNTIME_ERROR, "Expected out tensor to have dtype %s, but got %s instead",
                   wk__dtype_c_name(named), wk__dtype_c_name(out));
  return wk_fail(WK_RUNTIME_ERROR, "dtype %s does not match dtype of out parameter (%s)", wk__dtype_legacy(named),
                 wk__dtype_legacy(out));
}

wk_status wk__take_dtype_of_out(const wk_op *op, wk_value *args, const wk_tensor *out) {
  int at = out_gives_dtype(op) ? dtype_parameter(op) : -1;
  if (at < 0) return WK_OK;
  if (args[at].tag == WK_VALUE_DTYPE && args[at].dtype != out->dtype)
    return refuse_named(op, (wk_dtype)args[at].dtype, (wk_dtype)out->dtype);
  args[at] = wk__v_dtype((wk_dtype)out->dtype);
  return WK_OK;
}

/* ---- the dtype that is written ---- */

enum {
  RULE_CAST,    /* whatever the result can be converted to */
  RULE_EXACT,   /* kernels of their own */
  RULE_ALIKE,   /* loops whose operands all have one dtype */
  RULE_TRUTH,   /* bool, or bytes */
  RULE_EXTREME, /* the rest: words of their own */
  RULE_SAME,
  RULE_PLACES,
  RULE_WHERE,
  RULE_DOT,
  RULE_FLOAT,
  RULE_CAT,
  RULE_SAMPLES,
  RULE_TYPED,
};

typedef struct out_rule {
  const char *name; /* of the overload, or, behind its overloads, of all of its kin */
  uint8_t rule;
} out_rule;

static const out_rule rules[] = {
    {"abs", RULE_ALIKE},
    {"all", RULE_TRUTH},
    {"amax", RULE_EXTREME},
    {"amin", RULE_EXTREME},
    {"any", RULE_TRUTH},
    {"argmax", RULE_EXACT},
    {"argmin", RULE_EXACT},
    {"argsort", RULE_EXACT},
    {"baddbmm", RULE_EXACT},
    {"bitwise_not", RULE_ALIKE},
    {"cat", RULE_CAT},
    {"ceil", RULE_ALIKE},
    {"clamp.Tensor", RULE_CAST},
    {"clamp_max.Tensor", RULE_CAST},
    {"clamp_min.Tensor", RULE_CAST},
    {"clip.Tensor", RULE_CAST},
    {"clamp", RULE_ALIKE},
    {"clamp_max", RULE_ALIKE},
    {"clamp_min", RULE_ALIKE},
    {"clip", RULE_ALIKE},
    {"dot", RULE_DOT},
    {"floor", RULE_ALIKE},
    {"gather", RULE_EXACT},
    {"gelu", RULE_ALIKE},
    {"hardshrink", RULE_ALIKE},
    {"index_add", RULE_EXACT},
    {"index_select", RULE_SAME},
    {"lerp.Tensor", RULE_ALIKE},
    {"addmm", RULE_EXACT},
    {"bmm", RULE_EXACT},
    {"mm", RULE_EXACT},
    {"linalg_vector_norm", RULE_EXACT},
    {"log_sigmoid", RULE_TYPED},
    {"log_softmax", RULE_EXACT},
    {"logsumexp", RULE_FLOAT},
    {"masked_select", RULE_SAME},
    {"matmul", RULE_EXACT},
    {"max.dim", RULE_EXACT},
    {"min.dim", RULE_EXACT},
    {"msort", RULE_EXACT},
    {"multinomial", RULE_SAMPLES},
    {"mv", RULE_EXACT},
    {"neg", RULE_ALIKE},
    {"nonzero", RULE_PLACES},
    {"round", RULE_ALIKE},
    {"scatter", RULE_EXACT},
    {"scatter_add", RULE_EXACT},
    {"scatter_reduce", RULE_EXACT},
    {"sign", RULE_ALIKE},
    {"slice_scatter", RULE_EXACT},
    {"softmax", RULE_EXACT},
    {"softplus", RULE_ALIKE},
    {"softshrink", RULE_ALIKE},
    {"sort", RULE_EXACT},
    {"stack", RULE_CAT},
    {"take_along_dim", RULE_EXACT},
    {"topk", RULE_EXACT},
    {"tril", RULE_EXACT},
    {"triu", RULE_EXACT},
    {"trunc", RULE_ALIKE},
    {"where", RULE_WHERE},
};

static int rule_of(const wk_op *op) {
  for (size_t i = 0; i < WK_COUNT(rules); i++)
    if (strcmp(rules[i].name, op->name) == 0 || strcmp(rules[i].name, op->base_name) == 0) return rules[i].rule;
  return RULE_CAST;
}

static wk_status check_cast(wk_dtype result, wk_dtype out) {
  if (wk__can_cast(result, out)) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "result type %s can't be cast to the desired output type %s",
                 wk__dtype_legacy(result), wk__dtype_legacy(out));
}

wk_status wk__check_out_dtype(const wk_op *op, wk_dtype result, wk_dtype out) {
  const char *made = wk__dtype_legacy(result), *given = wk__dtype_legacy(out);
  if (result == out) return WK_OK;
  switch (rule_of(op)) {
    case RULE_EXACT:
      return wk_fail(WK_RUNTIME_ERROR, "Expected out tensor to have dtype %s, but got %s instead",
                     wk__dtype_c_name(result), wk__dtype_c_name(out));
    case RULE_ALIKE:
      return wk_fail(WK_RUNTIME_ERROR, "Found dtype %s but expected %s", given, made);
    case RULE_TRUTH:
      if (out == WK_BOOL || out == WK_UINT8) return WK_OK;
      return wk_fail(WK_RUNTIME_ERROR, "%s only supports bool tensor for result, got: %s", op->base_name, given);
    case RULE_EXTREME:
      return wk_fail(WK_RUNTIME_ERROR,
                     "Expected the dtype for input and out to match, but got %s for input's dtype and %s for out's "
                     "dtype.",
                     made, given);
    case RULE_SAME:
      return wk_fail(WK_RUNTIME_ERROR, "%s(): self and result must have the same scalar type", op->base_name);
    case RULE_PLACES:
      return wk_fail(WK_RUNTIME_ERROR, "nonzero: Expected out tensor to have scalar type Long but got scalar type%s",
                     given);
    case RULE_WHERE:
      return wk_fail(WK_RUNTIME_ERROR, "Expected out type to be %s but got %s", made, given);
    case RULE_DOT:
      return wk_fail(WK_RUNTIME_ERROR, "result dtype %s does not match input dtype %s", given, made);
    case RULE_FLOAT:
      if (wk_dtype_is_floating(out)) return WK_OK;
      return wk_fail(WK_RUNTIME_ERROR, "%s(): Expected floating point type for result tensor, but got: %s",
                     op->base_name, given);
    case RULE_CAT:
      if (wk__can_cast(result, out)) return WK_OK;
      return wk_fail(WK_TYPE_ERROR, "torch.cat(): input types can't be cast to the desired output type %s", given);
    case RULE_TYPED:
      return wk_fail(WK_RUNTIME_ERROR, "expected scalar type %s but found %s", made, given);
    case RULE_SAMPLES:
      return wk_fail(WK_RUNTIME_ERROR, "multinomial expects Long tensor out, got: %s", given);
    default:
      return check_cast(result, out);
  }
}
