/* Calls on complex tensors. An element is a pair of real numbers; memory is that of the real parts and, one number
 * further, that of the imaginary parts, both with strides twice as large. What moves elements or adds them up does so
 * with either: such a row is flagged `halves` and called twice on real tensors over that memory. Rows with arithmetic
 * of their own have a body on pairs (pairs.h, plan.c) or call other operators (of_complex). Tests:
 * tests/python/test_complex.py, tests/parity/test_complex_parity.py. */
#include "ops/complex_calls.h"

#include "ops/internal.h"

bool wk__call_is_complex(const wk__call *c) {
  bool complex = wk_dtype_is_complex((wk_dtype)c->compute_dtype), looks = !(c->op->tags & WK__TAG_SHAPES_ONLY);
  if (looks)
    WK__EACH_TENSOR(t, c->args, c->op->schema.parameter_count) complex |= wk_dtype_is_complex((wk_dtype)t->dtype);
  for (int i = 0; i < c->op->schema.parameter_count; i++) complex |= c->args[i].tag == WK_VALUE_COMPLEX;
  for (int r = 0; c->outputs && r < c->op->schema.result_count; r++)
    complex |= c->outputs[r] && wk_dtype_is_complex((wk_dtype)c->outputs[r]->dtype);
  return complex;
}

/* A tensor over the real or the imaginary parts of a complex one. */
static wk_tensor *half_of(const wk_tensor *t, int part) {
  wk__spec spec;
  wk__spec_of(&spec, t);
  spec.dtype = (uint8_t)wk__real_dtype((wk_dtype)t->dtype);
  spec.offset = wk_int_of(2 * t->offset.bits + part);
  for (int d = 0; d < t->ndim; d++) spec.strides[d] = wk_int_of(2 * wk__stride(t, d));
  return wk__tensor_alias(t, &spec);
}

typedef struct halves {
  const wk__call *call;
  int part;
  wk_value args[WK__MAX_ARGS];
  wk_tensor *owned[WK__MAX_ARGS + WK__MAX_RESULTS];
  int count;
} halves;

/* The half of a tensor, the same for the same tensor; others are indices, masks and the like. */
static wk_tensor *half(halves *h, wk_tensor *t) {
  if (!wk_dtype_is_complex((wk_dtype)t->dtype)) return t;
  for (int i = 0; i < h->call->op->schema.parameter_count; i++)
    if (h->call->args[i].tag == WK_VALUE_TENSOR && h->call->args[i].tensor == t && h->args[i].tag == WK_VALUE_TENSOR)
      return h->args[i].tensor;
  wk_tensor *made = half_of(t, h->part);
  if (made) h->owned[h->count++] = made;
  return made;
}

static wk_status half_argument(halves *h, int i) {
  const wk_value *v = &h->call->args[i];
  bool number =
      h->call->op->schema.parameters[i].type == WK__TYPE_SCALAR && !h->call->op->schema.parameters[i].keyword_only;
  wk_value own = *v;
  if (v->tag == WK_VALUE_TENSOR) {
    own.tensor = half(h, v->tensor);
    if (!own.tensor) return wk_error_category();
  }
  if (v->tag == WK_VALUE_DTYPE) own.dtype = (uint8_t)wk__real_dtype((wk_dtype)v->dtype);
  if (v->tag == WK_VALUE_COMPLEX || (number && wk__value_is_number(v))) own = wk__v_double(wk__value_part(v, h->part));
  h->args[i] = own;
  return WK_OK;
}

static wk_status run_half(const wk__call *c, int part) {
  halves h = {.call = c, .part = part};
  wk_value results[WK__MAX_RESULTS] = {{0}};
  wk_tensor *destinations[WK__MAX_RESULTS] = {NULL};
  int parameters = c->op->schema.parameter_count, count = c->op->schema.result_count;
  wk_status status = WK_OK;
  for (int i = 0; i < parameters && status == WK_OK; i++) status = half_argument(&h, i);
  for (int r = 0; r < count && status == WK_OK; r++) {
    destinations[r] = half(&h, c->outputs[r]);
    if (!destinations[r]) status = wk_error_category();
  }
  if (status == WK_OK) status = wk__compute(c->op, h.args, destinations, results);
  for (int r = 0; r < count; r++) wk_value_release(&results[r]);
  for (int k = 0; k < h.count; k++) wk__release(h.owned[k]);
  return status;
}

/* The first argument has the halves that the result gets: a real one's imaginary parts are 0. */
static wk_status run_halves(wk__call *c) {
  wk_value args[WK__MAX_ARGS], complex = {0};
  const wk_value *given = c->args;
  wk_tensor *first = wk__tensor_or_null(&given[0]);
  bool converts = first && first != c->outputs[0] && !wk_dtype_is_complex((wk_dtype)first->dtype) &&
                  !(c->op->tags & WK__TAG_SHAPES_ONLY);
  if (converts) {
    wk_value wide[] = {given[0], {.tag = WK_VALUE_DTYPE, .dtype = c->outputs[0]->dtype}, {0}};
    memcpy(args, given, c->op->schema.parameter_count * sizeof *args);
    WK_TRY(wk__compute(WK__OP(_to_copy), wide, NULL, &complex));
    args[0] = complex;
    c->args = args;
  }
  wk_status status = run_half(c, 0);
  if (status == WK_OK) status = run_half(c, 1);
  c->args = given;
  wk_value_release(&complex);
  return status;
}

static wk_status run_by_others(wk__call *c) {
  wk_scope scope;
  wk__keys before = wk__thread.mode.keys_off;
  wk_scope_begin(&scope);
  wk__thread.mode.keys_off = (wk__keys)((1 << WK__KEY_COUNT) - 1);
  wk_status status = c->op->of_complex(c);
  wk__thread.mode.keys_off = before;
  wk_scope_end(&scope);
  return status;
}

wk_status wk__refuse_complex_tensors(const wk_op *op, wk_dtype dtype) {
  static const char runtime[] = "RuntimeError: ";
  const char *words = op->no_complex ? op->no_complex : op->kernel_name, *kind = wk__dtype_legacy(dtype);
  if (!words)
    return wk_fail(WK_NOT_IMPLEMENTED, "\"%s_cpu\" not implemented for '%s'", op->base_name + (*op->base_name == '_'),
                   kind);
  if (strncmp(words, runtime, strlen(runtime)) == 0) return wk_fail(WK_RUNTIME_ERROR, "%s", words + strlen(runtime));
  if (strchr(words, ' ')) return wk_fail(WK_NOT_IMPLEMENTED, "%s", words);
  return wk_fail(WK_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", words, kind);
}

wk_status wk__run_complex(wk__call *c) {
  if (c->op->of_complex) return run_by_others(c);
  if (c->op->halves) return run_halves(c);
  wk_dtype dtype = WK_COMPLEX64;
  WK__EACH_TENSOR(t, c->args, c->op->schema.parameter_count)
  if (wk_dtype_is_complex((wk_dtype)t->dtype)) dtype = (wk_dtype)t->dtype;
  return wk__refuse_complex_tensors(c->op, dtype);
}
