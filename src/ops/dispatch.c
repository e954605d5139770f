/* The call: layers outside, computing inside. A layer is skipped by one bit test when nothing asks for it.
 * In: an operator and borrowed arguments. Out: owned results, or a status with nothing made. Missing arguments take the
 * schema's defaults here, so that no rule has to. Tests: tests/c/test_ops.c. */
#include "ops/internal.h"

wk__scalar wk__value_scalar(const wk_value *v) {
  switch (v->tag) {
    case WK_VALUE_DOUBLE:
    case WK_VALUE_INPUT:
      return (wk__scalar){WK__FLOAT_KIND, .d = v->number};
    case WK_VALUE_BOOL:
      return (wk__scalar){WK__BOOL_KIND, .i = v->boolean};
    case WK_VALUE_WIDE:
      return (wk__scalar){WK__INTEGER_KIND, .is_unsigned = v->count, .i = v->wide};
    default:
      return (wk__scalar){WK__INTEGER_KIND, .i = wk_int_guard_value(v->integer)};
  }
}

wk_value wk__value_of_int(int64_t i) {
  if (i < WK_INT_LEAST) return (wk_value){.tag = WK_VALUE_WIDE, .wide = i};
  return (wk_value){.tag = WK_VALUE_INT, .integer = wk_int_of(i)};
}

/* A view of a base that was written with something that requires grad does so too. */
static int keys_of_tensor(const wk_tensor *t) { return t->base ? t->keys | t->base->keys : t->keys; }

static int keys_of(const wk_value *args, int count) {
  int keys = 0;
  WK__EACH_TENSOR(tensor, args, count) keys |= keys_of_tensor(tensor);
  return keys;
}

static wk_status missing_argument(const wk_op *op, const wk__parameter *p) {
  return wk_fail(WK_TYPE_ERROR, "%s() missing 1 required positional arguments: \"%s\"", op->base_name, p->name);
}

/* Complex numbers are kept and computed with where a row says so. */
static wk_status check_complex(const wk__parameter *p, const wk_value *v) {
  if (p->complex) return WK_OK;
  if (v->tag == WK_VALUE_COMPLEX) return wk__refuse_complex(WK_FLOAT64);
  for (uint32_t k = 0; v->tag == WK_VALUE_SCALARS && k < v->count; k++)
    if (v->scalars[k].tag == WK_VALUE_COMPLEX) return wk__refuse_complex(WK_FLOAT64);
  return WK_OK;
}

/* Kinds of values that cannot be passed on unseen. */
enum { LOOKED_AT = 1 << WK_VALUE_NONE | 1 << WK_VALUE_COMPLEX | 1 << WK_VALUE_SCALARS };
static bool is_plain(const wk_value *v) { return !(LOOKED_AT >> v->tag & 1); }

/* Fills absent arguments from the schema. Returns args itself when nothing is missing. */
static const wk_value *complete(const wk_op *op, const wk_value *args, wk_value *space, wk_status *status) {
  const wk__schema *schema = &op->schema;
  *status = WK_OK;
  int first = 0;
  while (first < schema->parameter_count && is_plain(&args[first])) first++;
  if (WK_LIKELY(first == schema->parameter_count)) return args;
  for (int i = 0; i < schema->parameter_count; i++) {
    const wk__parameter *p = &schema->parameters[i];
    space[i] = args[i];
    if (args[i].tag != WK_VALUE_NONE)
      *status = is_plain(&args[i]) ? WK_OK : check_complex(p, &args[i]);
    else if (p->has_default)
      space[i] = p->default_value;
    else if (!p->optional)
      *status = missing_argument(op, p);
    if (*status != WK_OK) return NULL;
  }
  return space;
}

static int highest_bit(int keys) { return 31 - __builtin_clz((unsigned)keys); }

wk_status wk__call_below(int key, const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                         wk_value *results) {
  int count = op->schema.parameter_count;
  int keys = (keys_of(args, count) | wk__thread.mode.keys_on) & ~wk__thread.mode.keys_off & (key - 1);
  for (int d = 0; destinations && d < op->schema.result_count; d++)
    if (destinations[d]) keys |= destinations[d]->keys & ~wk__thread.mode.keys_off & (key - 1);
  bool casts = (op->autocast[0] | op->autocast[1]) && keys & WK__KEY_AUTOCAST;
  if (op->compose && !op->vjp && !(op->tags & WK__TAG_MUTATES) && !destinations && !casts) {
    /* Replaced by its parts, which go through the layers themselves. */
    WK_TRY(wk__check_composite(op, args));
    wk__call call = {.op = op, .args = args, .results = results};
    return op->compose(&call);
  }
  if (keys) return wk__layers[highest_bit(keys)](op, args, destinations, results);
  return wk__compute(op, args, destinations, results);
}

static bool is_out_form(const wk_value *args, wk_tensor *const *destinations) {
  return destinations && destinations[0] && !(args[0].tag == WK_VALUE_TENSOR && args[0].tensor == destinations[0]);
}

wk_status wk_call(const wk_op *op, const wk_value *args, wk_tensor *const *destinations, wk_value *results) {
  wk_value space[WK__MAX_ARGS];
  wk_status status;
  args = complete(op, args, space, &status);
  if (WK_UNLIKELY(status)) return status;
  if (WK_UNLIKELY(is_out_form(args, destinations))) {
    if (args != space) memcpy(space, args, op->schema.parameter_count * sizeof *args);
    args = space;
    WK_TRY(wk__take_dtype_of_out(op, space, destinations[0]));
    WK_TRY(wk__take_device_of_out(op, space, destinations[0]));
  }
  return wk__call_below(2 * WK__KEY_INFERENCE, op, args, destinations, results);
}

/* ---- scopes: who owns what nested C calls make ---- */

void wk_scope_begin(wk_scope *scope) {
  *scope = (wk_scope){.outer = wk__thread.scope};
  wk__thread.scope = scope;
}

void wk_scope_end(wk_scope *scope) {
  wk__thread.scope = scope->outer;
  for (int64_t i = 0; i < scope->count; i++) wk__release(scope->tensors[i]);
  wk__free(scope->tensors);
  *scope = (wk_scope){0};
}

wk_tensor *wk_scope_keep(wk_tensor *tensor) { return wk__retain(tensor); }

/* Without a scope the caller owns the tensor. */
static wk_tensor *hand_out(wk_tensor *steal_tensor) {
  wk_scope *scope = wk__thread.scope;
  if (!scope) return steal_tensor;
  if (wk__grow(&scope->tensors, &scope->capacity, scope->count + 1, sizeof *scope->tensors) != WK_OK) {
    wk__release(steal_tensor);
    return NULL;
  }
  return scope->tensors[scope->count++] = steal_tensor;
}

void wk__scope_add(wk_tensor *steal_tensor) { (void)!hand_out(steal_tensor); }

/* A NULL tensor where the schema wants one is an inner call that failed. */
static bool inner_call_failed(const wk_op *op, const wk_value *args) {
  for (int i = 0; i < op->schema.parameter_count; i++) {
    const wk__parameter *p = &op->schema.parameters[i];
    if (p->type == WK__TYPE_TENSOR && !p->optional && args[i].tag == WK_VALUE_NONE && wk_error_category() != WK_OK)
      return true;
    if (args[i].tag == WK_VALUE_TENSORS && !p->optional_items)
      for (uint32_t k = 0; k < args[i].count; k++)
        if (!args[i].tensors[k]) return true;
  }
  return false;
}

wk_status wk__call_tensors(const wk_op *op, const wk_value *args, wk_tensor **out_results, int count) {
  wk_value results[WK__MAX_RESULTS] = {{0}};
  for (int i = 0; i < count; i++) out_results[i] = NULL;
  if (inner_call_failed(op, args)) return wk_error_category();
  WK_TRY(wk_call(op, args, NULL, results));
  wk_status status = WK_OK;
  for (int i = 0; i < count; i++) {
    out_results[i] = hand_out(results[i].tensor);
    if (!out_results[i] && results[i].tensor) status = WK_OUT_OF_MEMORY;
  }
  return status;
}

wk_tensor *wk__call_tensor(const wk_op *op, const wk_value *args) {
  wk_tensor *result;
  return wk__call_tensors(op, args, &result, 1) == WK_OK ? result : NULL;
}

wk_tensor *wk__in_dtype(wk_tensor *t, wk_dtype dtype) {
  if (!t || t->dtype == dtype) return t;
  return wk__call_tensor(WK__OP(_to_copy), (wk_value[]){wk__v_tensor(t), wk__v_dtype(dtype), {0}});
}

wk_tensor *wk__conj(wk_tensor *t) {
  if (!t || !wk_dtype_is_complex((wk_dtype)t->dtype)) return t;
  return wk__call_tensor(WK__OP(conj_physical), (wk_value[]){wk__v_tensor(t)});
}

wk_status wk__vjp_set(wk__vjp *v, int input, wk_tensor *grad) {
  if (!grad)
    return wk_error_category() ? wk_error_category() : wk_fail(WK_INTERNAL_ERROR, "derivative rule gave no gradient");
  const wk_tensor *self = input < v->op->schema.parameter_count && v->args[input].tag == WK_VALUE_TENSOR
                              ? v->args[input].tensor
                              : NULL; /* NULL as well where the rule has no use for it */
  bool has_parts = self && (wk_dtype_is_floating((wk_dtype)self->dtype) || wk_dtype_is_complex((wk_dtype)self->dtype));
  if (has_parts && self->dtype != grad->dtype) { /* of a real argument the real part */
    wk_value args[] = {wk__v_tensor(grad), wk__v_dtype((wk_dtype)self->dtype), {0}};
    grad = wk__call_tensor(WK__OP(_to_copy), args);
    if (!grad) return wk_error_category();
  }
  v->out_grads[input] = grad;
  return WK_OK;
}
