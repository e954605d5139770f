/* Derivatives of the operators of control flow: operators themselves, made when first wanted.
 * In: which operands want a gradient, and which results have one. Out: an operator of the derivatives of the graphs.
 * Tests: tests/python/capture/test_branches.py. */
#include "aot/aot.h"
#include "compile/control/internal.h"
#include "graph/internal.h"

typedef wk__control_derivative derivative;

void wk__control_release_derivatives(wk__control *c) {
  for (derivative *d = c->derivatives, *next; d; d = next) {
    next = d->next;
    wk__op_hold(d->op, -1);
    wk__free(d->wanted);
    wk__free(d->uses);
    wk__free(d);
  }
}

/* ================================================== making one =================================================== */

/* A copy with those outputs alone that have a gradient. */
static wk_status outputs_with_gradients(const wk__graph *graph, const uint8_t *defined, wk__graph **out) {
  *out = wk__graph_copy(graph);
  if (!*out) return wk_error_category();
  wk__graph_clear_outputs(*out);
  for (int64_t k = 0; k < graph->output_count; k++) {
    if (!defined[k]) continue;
    wk__graph_node *node = wk__graph_find(*out, graph->outputs[k]->name);
    if (!node) return wk_fail(WK_INTERNAL_ERROR, "an output is not in the copy");
    WK_TRY(wk__graph_output(*out, node));
  }
  return wk__graph_freeze(*out);
}

static wk_status derive(const wk__graph *graph, const bool *wanted, const uint8_t *defined, wk__graph **out) {
  wk__graph *some = NULL;
  wk_status status = outputs_with_gradients(graph, defined, &some);
  if (status == WK_OK) status = wk__aot_derive(some, wanted, out);
  wk__graph_release(some);
  return status;
}

static wk_status derive_branch(const wk__control *c, derivative *d) {
  wk__graph *graphs[2] = {NULL};
  wk_status status = derive(c->parts[0].graph, d->wanted, d->defined, &graphs[0]);
  if (status == WK_OK) status = derive(c->parts[1].graph, d->wanted, d->defined, &graphs[1]);
  if (status == WK_OK)
    return wk__control_create(&(wk__control_form){.kind = WK__BRANCH}, NULL, graphs[0], graphs[1], &d->op);
  wk__graph_release(graphs[0]);
  return status;
}

bool wk__control_is_floating(const wk_tensor *t) {
  return wk_dtype_is_floating((wk_dtype)t->dtype) || wk_dtype_is_complex((wk_dtype)t->dtype);
}

/* Through a round flows what it carries, and what leads to a wanted operand. */
static wk_status derive_body(const wk__control *c, wk__control *made) {
  int count = wk__control_operands(c);
  uint8_t *all = wk__alloc((size_t)c->carried + 1);
  if (!all) return WK_OUT_OF_MEMORY;
  memset(all, WK__GRAD_GIVEN, (size_t)c->carried);
  for (int i = 0; i < count; i++)
    made->flows[i] = i < c->carried ? wk__control_is_floating(wk__control_body(c)->inputs[i]->value) : made->wanted[i];
  wk_status status = derive(c->parts[1].graph, made->flows, all, &made->parts[2].graph);
  wk__free(all);
  return status;
}

static wk_status derive_loop(const wk__control *c, derivative *d) {
  size_t count = (size_t)wk__control_operands(c);
  WK_TRY(wk__control_create(&(wk__control_form){.kind = WK__LOOP_BACKWARD}, NULL, wk__graph_retain(c->parts[0].graph),
                            wk__graph_retain(c->parts[1].graph), &d->op));
  wk__control *made = wk__control_of(d->op);
  made->wanted = wk__alloc_zeroed(2 * count + 1);
  if (!made->wanted) return WK_OUT_OF_MEMORY;
  made->flows = made->wanted + count;
  memcpy(made->wanted, d->wanted, count);
  return derive_body(c, made);
}

static derivative *find(wk__control *c, const bool *wanted, const uint8_t *defined) {
  size_t operands = (size_t)wk__control_operands(c), results = (size_t)wk__control_results(c);
  derivative *d = c->derivatives;
  while (d && (memcmp(d->wanted, wanted, operands) != 0 || memcmp(d->defined, defined, results) != 0)) d = d->next;
  return d;
}

static wk_status add_derivative(wk__control *c, const bool *wanted, const uint8_t *defined, const derivative **out) {
  size_t operands = (size_t)wk__control_operands(c), results = (size_t)wk__control_results(c);
  derivative *d = wk__alloc_zeroed(sizeof *d);
  bool *flags = wk__alloc(operands + results + 1);
  wk_status status = d && flags ? WK_OK : WK_OUT_OF_MEMORY;
  if (status == WK_OK) {
    *d = (derivative){.wanted = flags, .defined = (uint8_t *)flags + operands};
    memcpy(d->wanted, wanted, operands);
    memcpy(d->defined, defined, results);
    status = c->kind == WK__BRANCH ? derive_branch(c, d)
             : c->kind == WK__LOOP ? derive_loop(c, d)
                                   : wk__control_derive_scan(c, d);
  }
  if (status != WK_OK) {
    if (d && d->op) wk__op_hold(d->op, -1);
    if (d) wk__free(d->uses);
    wk__free(flags);
    wk__free(d);
    return status;
  }
  d->next = c->derivatives;
  c->derivatives = d;
  *out = d;
  return WK_OK;
}

wk_status wk__control_derivative_of(wk__control *c, const bool *wanted, const uint8_t *defined,
                                    const derivative **out) {
  wk_status status = WK_OK;
  pthread_mutex_lock(&c->lock);
  *out = find(c, wanted, defined);
  if (!*out) status = add_derivative(c, wanted, defined, out);
  pthread_mutex_unlock(&c->lock);
  return status;
}

/* ==================================================== the rule =================================================== */

/* Contiguous, as the derivative's graphs want them; zeros for what a loop carries on without a gradient. */
wk_status wk__control_gradient(const wk__vjp *v, int k, wk_tensor **out) {
  wk_value args[] = {wk__v_tensor(v->grads[k]), {.tag = WK_VALUE_STRING, .string = "contiguous_format"}};
  *out = wk__call_tensor(WK__OP(contiguous), args);
  return *out ? WK_OK : wk_error_category();
}
static wk_status zeros_for(const wk_tensor *operand, wk_tensor **out) {
  wk_value args[] = {wk__v_tensor((wk_tensor *)operand), {0}, {0}, {0}};
  *out = wk__call_tensor(WK__OP(zeros_like), args);
  return *out ? WK_OK : wk_error_category();
}

static wk_status set_gradients(wk__vjp *v, const wk__control *c, const bool *wanted, const wk_value *grads) {
  int list = c->op.schema.parameter_count - 1;
  for (int i = 0, k = 0; i < wk__control_operands(c); i++) {
    if (!wanted[i]) continue;
    wk_tensor *grad = wk__retain(grads->tensors[k++]);
    wk__scope_add(grad);
    WK_TRY(wk__vjp_set(v, wk__list_input(v, list, i), grad));
  }
  return WK_OK;
}

static wk_status call_derivative(wk__vjp *v, const wk__control *c, const derivative *d, wk_tensor **list) {
  int last = c->op.schema.parameter_count - 1, count = wk__control_operands(c), given = count;
  memcpy(list, v->args[last].tensors, (size_t)count * sizeof *list);
  for (int k = 0; k < v->result_count; k++) {
    if (v->grads[k])
      WK_TRY(wk__control_gradient(v, k, &list[given++]));
    else if (c->kind == WK__LOOP)
      WK_TRY(zeros_for(list[k], &list[given++]));
  }
  wk_value args[2] = {v->args[0]}, grads = {0};
  args[last] = (wk_value){.tag = WK_VALUE_TENSORS, .count = (uint32_t)given, .tensors = list};
  WK_TRY(wk_call(d->op, args, NULL, &grads));
  wk_status status = set_gradients(v, c, d->wanted, &grads);
  wk_value_release(&grads);
  return status;
}

void wk__control_wants(const wk__vjp *v, const wk__control *c, bool *out) {
  int list = c->op.schema.parameter_count - 1;
  for (int i = 0; i < wk__control_operands(c); i++) out[i] = wk__needs(v, wk__list_input(v, list, i));
}

wk_status wk__control_differentiate(wk__vjp *v) {
  wk__control *c = wk__control_of(v->op);
  size_t operands = (size_t)wk__control_operands(c), results = (size_t)v->result_count;
  bool *flags = wk__alloc_zeroed(operands + results + 1);
  uint8_t *defined = (uint8_t *)flags + operands;
  wk_tensor **list = wk__alloc_zeroed((operands + results + 1) * sizeof *list);
  const derivative *d;
  wk_status status = flags && list ? WK_OK : WK_OUT_OF_MEMORY;
  if (status == WK_OK) {
    wk__control_wants(v, c, flags);
    for (size_t k = 0; k < results; k++) defined[k] = v->grads[k] != NULL;
    status = wk__control_derivative_of(c, flags, defined, &d);
  }
  if (status == WK_OK && atomic_load(&c->compiles)) wk__control_compile(d->op);
  if (status == WK_OK) status = call_derivative(v, c, d, list);
  wk__free(list);
  wk__free(flags);
  return status;
}

wk_status wk__control_refuse_second(wk__vjp *v) {
  (void)v;
  return wk_fail(WK_NOT_IMPLEMENTED, "the derivative of while_loop's derivative is not implemented");
}
