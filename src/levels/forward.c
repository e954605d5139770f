/* Forward mode: the tangent of a call's results from those of its arguments.
 *
 * In: a call at a level of forward mode. Out: its results with their tangents, computed one level below. A tangent is
 * what the derivative, a linear map, gives for the arguments' tangents; it follows from the row:
 *   linear in some arguments (field `linear`; views): the row itself, called with their tangents;
 *   pointwise: its derivative is a product with one number an element, so that the rule of the tape, given a tangent in
 *     the place of the gradient, gives the tangent (of complex numbers between two conjugations);
 *   composites without a rule: by their parts;
 *   others: the rule of the tape is a linear function of the gradient. It is recorded for ones, and its own gradient
 * for the tangents is what is looked for (J. Townsend, "A new trick for calculating Jacobian vector products", 2017).
 * Tests: tests/ops/test_levels.py (all rows, against finite differences), tests/python/test_func.py. */
#include "autograd/autograd.h"
#include "levels/internal.h"
#include "ops/rules/phases.h"
#include "wick/operators.h"

/* In action: one level below, inside of a scope. */
typedef struct forward {
  const wk_op *op;
  const wk_value *args;    /* as called */
  const wk_value *values;  /* inner values */
  const wk_value *results; /* borrowed: inner values */
  uint32_t number;         /* of the level */
  wk_tensor **tangents;    /* out: one a result, of a list one an item; in the scope; NULL: zero */
  int count;               /* of results */
} forward;

static bool is_differentiable(const wk_tensor *t) {
  return wk_dtype_is_floating((wk_dtype)t->dtype) || wk_dtype_is_complex((wk_dtype)t->dtype);
}

static wk_tensor *tangent_in(uint32_t number, const wk_tensor *t) {
  return t && t->inner && t->inner->level == number ? t->inner->tangent : NULL;
}

static bool any_tangent(uint32_t number, const wk_value *args, int count) {
  WK__EACH_TENSOR(tensor, args, count)
  if (tangent_in(number, tensor)) return true;
  return false;
}

static wk_tensor *result_of(const forward *f, int r) {
  return f->op->schema.result_is_list ? f->results[0].tensors[r] : f->results[r].tensor;
}

static wk_tensor *zeros_of(wk_tensor *t) { return wk_zeros_like(t, WK_DTYPE_NONE, (wk_value){0}, NULL); }

static wk_tensor *sum_of(wk_tensor *a, wk_tensor *b) { return !a ? b : !b ? a : wk_add(a, b, wk__v_int(1)); }

/* ==================================================== linear rows =============================================== */

/* The tangent takes the place of the value; zero where there is none, and where an earlier group had it. */
static wk_status put_tangents(const forward *f, wk__recast *r, int i, bool had) {
  wk__tensor_span given = wk__value_tensors(&f->args[i]), to = wk__value_tensors(&r->args[i]);
  for (uint32_t k = 0; k < given.count; k++) {
    wk_tensor *tangent = given.items[k] && !had ? tangent_in(f->number, given.items[k]) : NULL;
    if (!given.items[k]) continue;
    to.items[k] = tangent ? tangent : zeros_of(to.items[k]);
    if (!to.items[k]) return wk_error_category();
  }
  if ((had || !any_tangent(f->number, &f->args[i], 1)) && f->op->schema.parameters[i].optional)
    r->args[i] = (wk_value){0};
  return WK_OK;
}

static bool group_has_tangent(const forward *f, uint32_t group) {
  bool found = false;
  for (int i = 0; i < f->op->schema.parameter_count; i++)
    found |= group >> i & 1 && any_tangent(f->number, &f->args[i], 1);
  return found;
}

static wk_status add_results(forward *f, wk_value *made) {
  wk_status status = WK_OK;
  for (int r = 0; r < f->op->schema.result_count; r++) {
    wk__tensor_span span = wk__value_tensors(&made[r]);
    for (uint32_t k = 0; k < span.count; k++) {
      wk_tensor **sum = &f->tangents[f->op->schema.result_is_list ? (int)k : r];
      wk__scope_add(span.items[k]);
      *sum = sum_of(*sum, span.items[k]);
      if (!*sum) status = wk_error_category();
    }
    if (made[r].tag == WK_VALUE_TENSORS) wk__free(made[r].tensors);
  }
  return status;
}

static wk_status call_group(forward *f, uint32_t group, uint32_t had) {
  wk__recast r;
  wk_value made[WK__MAX_RESULTS] = {{0}};
  wk_status status = wk__recast_begin(&r, f->op, f->values, NULL);
  for (int i = 0; i < f->op->schema.parameter_count && status == WK_OK; i++)
    if (group >> i & 1) status = put_tangents(f, &r, i, had >> i & 1);
  if (status == WK_OK) status = wk__batch_call(f->op, r.args, NULL, made);
  wk__recast_end(&r);
  return status == WK_OK ? add_results(f, made) : status;
}

/* False: some argument with a tangent is in no group. */
static bool is_linear(const forward *f) {
  const uint32_t *groups = wk__level_row_of(f->op)->linear;
  uint32_t all = 0;
  for (int g = 0; g < WK__MAX_LINEAR; g++) all |= groups[g];
  for (int i = 0; i < f->op->schema.parameter_count; i++)
    if (!(all >> i & 1) && any_tangent(f->number, &f->args[i], 1)) return false;
  return all;
}

static wk_status linear(forward *f) {
  const uint32_t *groups = wk__level_row_of(f->op)->linear;
  uint32_t had = 0;
  for (int g = 0; g < WK__MAX_LINEAR && groups[g]; g++) {
    if (!group_has_tangent(f, groups[g] & ~had)) continue;
    WK_TRY(call_group(f, groups[g], had));
    had |= groups[g];
  }
  return WK_OK;
}

/* ================================================= by the tape's rule =========================================== */

enum { MOST_INPUTS = 64 };

typedef struct rule_run {
  wk_tensor *results[WK__MAX_RESULTS];
  bool *wanted;
  wk_tensor **grads; /* (inputs) what the rule gives; in the scope */
  int inputs;
} rule_run;

static int input_count(const forward *f) { return wk__list_start(f->op, f->values, f->op->schema.parameter_count); }

/* The tensor that an input stands for, as called. */
static wk_tensor *input_of(const forward *f, int input) {
  int start = f->op->schema.parameter_count;
  if (input < start) return wk__tensor_or_null(&f->args[input]);
  for (int i = 0; i < f->op->schema.parameter_count; i++) {
    if (f->args[i].tag != WK_VALUE_TENSORS) continue;
    if (input < start + (int)f->args[i].count) return f->args[i].tensors[input - start];
    start += (int)f->args[i].count;
  }
  return NULL;
}

static wk_status run_rule(forward *f, rule_run *run, wk_tensor *const *gradients) {
  for (int r = 0; r < f->op->schema.result_count; r++)
    run->results[r] = f->op->schema.result_is_list ? NULL : f->results[r].tensor;
  wk__vjp v = {.op = f->op,
               .args = f->values,
               .results = run->results,
               .grads = gradients,
               .result_count = f->count,
               .wanted = run->wanted,
               .out_grads = run->grads};
  return f->op->vjp(&v);
}

static wk_status begin_rule(const forward *f, rule_run *run) {
  run->inputs = input_count(f);
  run->grads = wk__alloc_zeroed((size_t)run->inputs * (sizeof *run->grads + sizeof *run->wanted));
  if (!run->grads) return WK_OUT_OF_MEMORY;
  run->wanted = (bool *)(run->grads + run->inputs);
  return WK_OK;
}

/* ---- pointwise: the derivative is a number an element ---- */

static wk_tensor *as_result(wk_tensor *tangent, wk_tensor *result) {
  wk_tensor *t = wk__in_dtype(tangent, (wk_dtype)result->dtype);
  return t && !wk__same_sizes(t, result) ? wk_expand_as(t, result) : t;
}

static wk_status add_pointwise(forward *f, int arg) {
  wk_tensor *gradients[WK__MAX_RESULTS] = {NULL}, *tangent = tangent_in(f->number, input_of(f, arg));
  rule_run run;
  if (!tangent) return WK_OK;
  WK_TRY(begin_rule(f, &run));
  run.wanted[arg] = true;
  gradients[0] = wk__conj(as_result(tangent, f->results[0].tensor));
  wk_status status = gradients[0] ? run_rule(f, &run, gradients) : wk_error_category();
  wk_tensor *made = status == WK_OK ? run.grads[arg] : NULL;
  if (made) made = wk__conj(as_result(made, f->results[0].tensor));
  if (made) f->tangents[0] = sum_of(f->tangents[0], made);
  wk__free(run.grads);
  return status;
}

/* An imaginary part that comes or goes is no product with a number: of |z|, for one. */
static bool is_pointwise(const forward *f) {
  if (!(f->op->tags & WK__TAG_POINTWISE) || f->count != 1) return false;
  bool complex = wk_dtype_is_complex((wk_dtype)f->results[0].tensor->dtype), real = !complex;
  WK__EACH_TENSOR(tensor, f->values, f->op->schema.parameter_count)
  if (is_differentiable(tensor)) {
    complex &= wk_dtype_is_complex((wk_dtype)tensor->dtype);
    real &= !wk_dtype_is_complex((wk_dtype)tensor->dtype);
  }
  return real;
}

static wk_status pointwise(forward *f) {
  for (int i = 0; i < f->op->schema.parameter_count; i++) WK_TRY(add_pointwise(f, i));
  return WK_OK;
}

/* ---- others: the gradient of the rule ---- */

typedef struct twice {
  wk_tensor *directions[WK__MAX_RESULTS * 8];            /* ones, of which the rule is recorded; of the tape's level */
  wk_tensor *given[MOST_INPUTS], *tangents[MOST_INPUTS]; /* what the rule gave for inputs with a tangent */
  int count;
} twice;

/* The rule's call, on a tape of its own. */
static wk_status record_rule(forward *f, twice *w, rule_run *run) {
  for (int r = 0; r < f->count; r++) {
    const wk_tensor *result = result_of(f, r);
    if (!result || !is_differentiable(result) || (r > 0 && f->op->tags & WK__TAG_FIRST_ONLY)) continue;
    wk_tensor *ones = wk_ones_like((wk_tensor *)result, WK_DTYPE_NONE, (wk_value){0}, NULL);
    if (!ones) return wk_error_category();
    w->directions[r] = ones;
    WK_TRY(wk_set_requires_grad(ones, true));
  }
  wk__gradients_are_made_up = true;
  wk_status status = run_rule(f, run, w->directions);
  wk__gradients_are_made_up = false;
  WK_TRY(status);
  for (int i = 0; i < run->inputs && w->count < MOST_INPUTS; i++) {
    wk_tensor *gradient = run->wanted[i] ? run->grads[i] : NULL;
    if (!gradient || !wk_requires_grad(gradient)) continue;
    w->given[w->count] = gradient;
    w->tangents[w->count++] = as_result(tangent_in(f->number, input_of(f, i)), gradient);
    if (!w->tangents[w->count - 1]) return wk_error_category();
  }
  return WK_OK;
}

static wk_status differentiate_rule(const forward *f, twice *w, wk_tensor **out) {
  wk_tensor *inputs[WK__MAX_RESULTS * 8];
  int which[WK__MAX_RESULTS * 8], count = 0;
  for (int r = 0; r < f->count; r++) {
    if (!w->directions[r]) continue;
    which[count] = r;
    inputs[count++] = w->directions[r];
  }
  wk_tensor *found[WK__MAX_RESULTS * 8] = {NULL};
  wk__backward request = {.tensors = w->given,
                          .grads = w->tangents,
                          .count = w->count,
                          .inputs = inputs,
                          .input_count = count,
                          .allow_unused = true,
                          .out_grads = found};
  wk_status status = wk__run_backward(&request);
  for (int k = 0; k < count; k++) {
    out[which[k]] = wk__retain(wk__level_value(found[k] ? found[k] : inputs[k]));
    if (!found[k]) {
      wk__release(out[which[k]]);
      out[which[k]] = NULL;
    }
    wk__release(found[k]);
  }
  return status;
}

static wk_status on_own_tape(forward *f, wk_tensor **out) {
  twice w = {.count = 0};
  rule_run run;
  WK_TRY(begin_rule(f, &run));
  for (int i = 0; i < run.inputs; i++) run.wanted[i] = tangent_in(f->number, input_of(f, i));
  wk_status status = record_rule(f, &w, &run);
  if (status == WK_OK && w.count) status = differentiate_rule(f, &w, out);
  wk__free(run.grads);
  return status;
}

static wk_status by_rule(forward *f) {
  wk_tensor *out[WK__MAX_RESULTS * 8] = {NULL};
  wk_scope scope;
  if (f->count > (int)(sizeof out / sizeof *out))
    return wk_fail(WK_NOT_IMPLEMENTED, "forward mode of %s with %d results", f->op->base_name, f->count);
  wk__level *level = wk__level_begin(WK__LEVEL_GRAD, wk_int_of(0), WK__RANDOM_ERROR);
  if (!level) return WK_OUT_OF_MEMORY;
  bool enabled = wk_set_grad_enabled(true);
  wk_scope_begin(&scope);
  wk_status status = on_own_tape(f, out);
  wk_scope_end(&scope);
  wk_set_grad_enabled(enabled);
  wk__level_end();
  for (int r = 0; r < f->count; r++) {
    if (out[r]) wk__scope_add(out[r]);
    f->tangents[r] = out[r];
  }
  return status;
}

/* ===================================================== the level ================================================ */

static wk_status no_rule(const wk_op *op) {
  return wk_fail(WK_NOT_IMPLEMENTED,
                 "Trying to use forward AD with %s that does not support it because it has not been implemented yet.\n"
                 "Please file an issue to PyTorch at https://github.com/pytorch/pytorch/issues/new?template="
                 "feature-request.yml so that we can prioritize its implementation.\nNote that forward AD support for "
                 "some operators require PyTorch to be built with TorchScript and for JIT to be enabled. If the "
                 "environment var PYTORCH_JIT=0 is set or if the library is not built with TorchScript, some operators "
                 "may no longer be used with forward AD.",
                 op->base_name);
}

static bool has_differentiable_result(const forward *f) {
  for (int r = 0; r < f->count; r++)
    if (result_of(f, r) && is_differentiable(result_of(f, r))) return true;
  return false;
}

static wk_status find_tangents(forward *f) {
  if (!has_differentiable_result(f) || f->op == WK__OP(detach)) return WK_OK;
  if (is_linear(f)) return linear(f);
  if (!f->op->vjp) return f->op->tags & (WK__TAG_RANDOM | WK__TAG_SHAPES_ONLY) ? WK_OK : no_rule(f->op);
  return is_pointwise(f) ? pointwise(f) : by_rule(f);
}

typedef struct dual_results {
  const wk_op *op;
  const wk_value *args;
  wk_tensor **tangents;
} dual_results;

static wk_tensor *wrap_dual(void *context, wk_tensor *steal_value, int result, int item) {
  const dual_results *d = context;
  wk_tensor *tangent = d->tangents ? d->tangents[d->op->schema.result_is_list ? item : result] : NULL;
  wk_tensor *t = wk__level_wrap(steal_value, -1, tangent);
  if (t) wk__level_set_base(d->op, d->args, t);
  wk__release(steal_value);
  return t;
}

static wk_status to_values(wk__recast *r) {
  for (int i = 0; i < r->op->schema.parameter_count; i++) {
    wk__tensor_span span = wk__value_tensors(&r->args[i]);
    for (uint32_t k = 0; k < span.count; k++)
      if (span.items[k]) span.items[k] = wk__level_value(span.items[k]);
  }
  for (int d = 0; r->given_destinations && d < r->op->schema.result_count; d++)
    if (r->destinations[d]) r->destinations[d] = wk__level_value(r->destinations[d]);
  return WK_OK;
}

/* The call and, one level below, its tangents. */
static wk_status call_with_tangents(const wk_op *op, const wk_value *args, wk_value *results) {
  wk__recast r;
  wk_value made[WK__MAX_RESULTS] = {{0}};
  wk_scope scope;
  forward f = {.op = op, .args = args, .results = made, .number = wk__thread.mode.level_number};
  WK_TRY(wk__recast_begin(&r, op, args, NULL));
  wk_status status = to_values(&r);
  if (status == WK_OK) status = wk__call_one_below(op, r.args, NULL, made);
  if (status != WK_OK) {
    wk__recast_end(&r);
    return status;
  }
  f.values = r.args;
  f.count = op->schema.result_is_list ? (int)made[0].count : op->schema.result_count;
  f.tangents = wk__alloc_zeroed((size_t)(f.count + 1) * sizeof *f.tangents);
  wk__thread_mode before = wk__level_go_down();
  wk_scope_begin(&scope);
  status = f.tangents ? find_tangents(&f) : WK_OUT_OF_MEMORY;
  wk__level_come_back(&before);
  dual_results dual = {op, args, f.tangents};
  if (status == WK_OK)
    status = wk__give_results(op, args, NULL, made, results, wrap_dual, &dual);
  else
    for (int k = 0; k < op->schema.result_count; k++) wk_value_release(&made[k]);
  wk_scope_end(&scope);
  wk__free(f.tangents);
  wk__recast_end(&r);
  return status;
}

/* No tangents go in, so none come out. */
static wk_status call_without(const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                              wk_value *results) {
  wk__recast r;
  wk_value made[WK__MAX_RESULTS] = {{0}};
  dual_results dual = {op, args, NULL};
  wk_status status = wk__recast_begin(&r, op, args, destinations);
  if (status == WK_OK) status = to_values(&r);
  if (status == WK_OK) status = wk__call_one_below(op, r.args, wk__recast_destinations(&r), made);
  wk__recast_end(&r);
  return status == WK_OK ? wk__give_results(op, args, destinations, made, results, wrap_dual, &dual) : status;
}

/* ---- writes ---- */

/* A view's place in the tangent of what it looks at, zeros until now. */
static wk_status begin_view_tangent(wk_tensor *to) {
  wk_tensor *base = to->base;
  wk__spec spec;
  wk__thread_mode before = wk__level_go_down();
  wk_scope scope;
  wk_scope_begin(&scope);
  if (!base->inner->tangent) base->inner->tangent = wk_scope_keep(zeros_of(base->inner->value));
  wk_tensor *whole = base->inner->tangent, *view = NULL;
  wk__spec_of(&spec, to);
  if (whole && memcmp(whole->strides, base->strides, base->ndim * sizeof *base->strides) == 0)
    view = wk_as_strided(whole, spec.sizes, spec.ndim, spec.strides, spec.ndim,
                         wk__v_size(wk_int_add(whole->offset, wk_int_sub(to->offset, base->offset))));
  to->inner->tangent = wk_scope_keep(view);
  wk_scope_end(&scope);
  wk__level_come_back(&before);
  if (!whole || (!view && wk_error_category() != WK_OK)) return wk_error_category();
  return view ? WK_OK : wk_fail(WK_NOT_IMPLEMENTED, "forward mode: a write to a view of a tensor with gaps");
}

/* A tangent that is a view of another, as its tensor is, is written in place, so that the other has it too. */
static wk_status write_tangent(wk_tensor *to, wk_tensor *tangent) {
  wk__inner *inner = to->inner;
  wk_value written = {0};
  if (!inner->tangent && tangent && to->base && to->base->inner && wk__is_of_this_level(to->base))
    WK_TRY(begin_view_tangent(to));
  if (!inner->tangent) {
    inner->tangent = wk__retain(tangent);
    return WK_OK;
  }
  wk__thread_mode before = wk__level_go_down();
  wk_value zero[] = {wk__v_tensor(inner->tangent)};
  wk_value copy[] = {wk__v_tensor(inner->tangent), wk__v_tensor(tangent), wk__v_bool(false)};
  wk_status status =
      tangent ? wk_call(WK__OP(copy_), copy, NULL, &written) : wk_call(WK__OP(zero), zero, &inner->tangent, &written);
  wk__level_come_back(&before);
  wk_value_release(&written);
  return status;
}

/* The result as a new tensor, and then what it is written to becomes it. */
static wk_status write_result(const wk_op *op, wk_tensor *to, wk_tensor *from, wk_value *result) {
  if (!to->inner || !wk__is_of_this_level(to)) return wk__refuse_captured_write(op);
  wk_tensor *value = wk__level_value(from), *tangent = tangent_in(wk__thread.mode.level_number, from);
  wk_value copy[] = {wk__v_tensor(to->inner->value), wk__v_tensor(value), wk__v_bool(false)}, written = {0};
  WK_TRY(wk__call_one_below(WK__OP(copy_), copy, NULL, &written));
  wk_value_release(&written);
  wk_tensor *fitting = tangent;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk__thread_mode before = wk__level_go_down();
  if (tangent) fitting = as_result(tangent, to->inner->value);
  wk__level_come_back(&before);
  wk_status status = tangent && !fitting ? wk_error_category() : write_tangent(to, fitting);
  wk_scope_end(&scope);
  if (status == WK_OK) *result = wk__v_tensor(wk__retain(to));
  return status;
}

static wk_status make_then_write(const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                                 wk_value *results) {
  wk_value made[WK__MAX_RESULTS] = {{0}};
  WK_TRY(wk__forward_level(op, args, NULL, made));
  wk_status status = WK_OK;
  for (int r = 0; r < op->schema.result_count; r++) {
    if (!destinations[r]) {
      results[r] = made[r];
      continue;
    }
    if (status == WK_OK) status = write_result(op, destinations[r], made[r].tensor, &results[r]);
    wk_value_release(&made[r]);
  }
  return status;
}

/* copy_(self, other), which is what all other writes come down to. */
static wk_status copy_dual(const wk_op *op, const wk_value *args, wk_value *results) {
  return write_result(op, args[0].tensor, args[1].tensor, &results[0]);
}

wk_status wk__forward_level(const wk_op *op, const wk_value *args, wk_tensor *const *destinations, wk_value *results) {
  bool dual = any_tangent(wk__thread.mode.level_number, args, op->schema.parameter_count);
  for (int d = 0; destinations && d < op->schema.result_count; d++)
    dual |= destinations[d] && tangent_in(wk__thread.mode.level_number, destinations[d]);
  if (!dual) return call_without(op, args, destinations, results);
  if (op == WK__OP(copy_)) return copy_dual(op, args, results);
  if (destinations) return make_then_write(op, args, destinations, results);
  if (op->compose && !op->vjp) {
    wk__call call = {.op = op, .args = args, .results = results};
    return op->compose(&call);
  }
  return call_with_tangents(op, args, results);
}
