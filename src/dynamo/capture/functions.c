/* A program's own derivatives in a graph: `apply` of an autograd.Function has made a node of the tape, or a tensor has
 * got a hook, and the graph gets an operator that makes it again.
 *
 * `backward` is called at once, with zeros for the gradients, while everything is recorded as it is when a tape is run
 * in the region; its part of the graph becomes the operator's derivative (autograd/function_op.h), and nothing else of
 * it stays. What it does beside computing (an effect, a break, another grad mode, random numbers, a tensor from outside
 * that forward did not use) cannot be had so: then a history that goes on outside is none that a graph can make again,
 * and the next capture breaks in front of `apply`.
 *
 * In: the node, while `apply` has not returned. Out: the tensors' values are the operator's results, or nothing has
 * changed. Tests: tests/python/capture/test_functions.py. */
#include "autograd/function_op.h"
#include "dynamo/capture/history.h"
#include "dynamo/capture/own_state.h"
#include "dynamo/capture/record_parts.h"
#include "ops/internal.h"

typedef struct trial trial;
struct trial {
  wk__session *session;
  wk__recording *recording; /* at the start: it may be given up meanwhile */
  wk_status (*run)(trial *t);
  const char *name;                    /* of the node on the tape */
  uint64_t sequence;                   /* its */
  bool once;                           /* it cannot be differentiated itself */
  const wk__applied *applied;          /* of a Function */
  PyObject *hooks;                     /* of a tensor: its dictionary, borrowed */
  wk_tensor *results[WK__MAX_RESULTS]; /* borrowed: those with a gradient */
  wk_tensor *grads[WK__MAX_RESULTS];   /* owned */
  wk__graph_node *result_nodes[WK__MAX_RESULTS], *grad_nodes[WK__MAX_RESULTS];
  wk__graph_node *input_nodes[WK__MAX_ARGS], *out_nodes[WK__MAX_ARGS];
  int result_count, input_count;
  PyObject *code;      /* borrowed: what is run, with all that it can reach of the region's own */
  wk__own_state *held; /* owned: as it was before */
  int64_t steps_before;
  int inputs_before;
  const wk__graph_node *before;
};

static wk_status refuse(const char *why) { return wk_fail(WK_UNSUPPORTED, "%s", why); }

static wk_status node_of(const trial *t, wk_tensor *tensor, wk__graph_node **out) {
  *out = wk__tracer_node(t->session->tracer, tensor);
  return *out ? WK_OK : wk_error_category();
}

/* ---- what goes in ---- */

static wk_status find_results(trial *t) {
  const wk__applied *a = t->applied;
  for (int r = 0; r < a->node->result_count; r++) {
    wk_tensor *y = a->results[r];
    if (!y || !y->autograd || y->autograd->grad_fn != a->node) continue;
    for (int k = 0; k < t->result_count; k++)
      if (t->results[k] == y) return refuse("one result twice");
    if (t->result_count == WK__MAX_RESULTS) return refuse("many results");
    WK_TRY(node_of(t, y, &t->result_nodes[t->result_count]));
    t->results[t->result_count++] = y;
  }
  return t->result_count ? WK_OK : refuse("no result has a gradient");
}

static wk_status find_inputs(trial *t) {
  const wk__applied *a = t->applied;
  for (int i = 0; i < a->node->input_count; i++) {
    if (!a->node->edges[i].node) continue;
    if (t->input_count == WK__MAX_ARGS) return refuse("many inputs");
    WK_TRY(node_of(t, a->inputs[i], &t->input_nodes[t->input_count++]));
  }
  return WK_OK;
}

static wk_status make_grads(trial *t) {
  for (int r = 0; r < t->result_count; r++) {
    wk_value args[] = {wk__v_tensor(t->results[r]), {0}, {0}, {0}}, zeros = {0};
    WK_TRY(wk_call(WK__OP(zeros_like), args, NULL, &zeros));
    t->grads[r] = zeros.tensor;
    WK_TRY(node_of(t, zeros.tensor, &t->grad_nodes[r]));
  }
  return WK_OK;
}

/* ---- running ---- */

/* In the places of the node's results; the others get none, as in a run of the tape. */
static void place_grads(const trial *t, wk_tensor **out) {
  for (int r = 0, k = 0; r < t->applied->node->result_count && k < t->result_count; r++)
    if (t->applied->results[r] == t->results[k]) out[r] = t->grads[k++];
}

static wk_status still_recorded(const trial *t) {
  const wk__session *s = t->session;
  if (s->mode != WK__MODE_CAPTURE || s->recording != t->recording || s->capture_ended)
    return refuse("recording was given up");
  if (s->recording->tries_modes && !t->once) return refuse("it asks for or sets the grad mode");
  if (s->recording->tries_in_vain) return refuse("it does more than to compute");
  if (wk__tracer_input_count(s->tracer) != t->inputs_before) return refuse("it uses what the graph does not");
  return WK_OK;
}

static wk_status take_out_grads(trial *t, wk_tensor *const *out_grads) {
  const wk_node *n = t->applied->node;
  for (int i = 0, k = 0; i < n->input_count; i++) {
    if (!n->edges[i].node) continue;
    if (out_grads[i]) WK_TRY(node_of(t, out_grads[i], &t->out_nodes[k]));
    k++;
  }
  return WK_OK;
}

static wk_status call_backward(trial *t) {
  wk_node *n = t->applied->node;
  size_t inputs = n->input_count, results = n->result_count;
  wk_tensor **grads = wk__alloc_zeroed((inputs + results) * sizeof *grads + inputs);
  if (!grads) return WK_OUT_OF_MEMORY;
  wk_tensor **out = grads + results;
  bool *wanted = (bool *)(out + inputs);
  for (size_t i = 0; i < inputs; i++) wanted[i] = n->edges[i].node;
  place_grads(t, grads);
  uint64_t outer = wk__thread.mode.running_sequence;
  wk__thread.mode.running_sequence = n->sequence; /* its calls have the source lines of a derivative */
  wk_status status = n->class->run(n, grads, wanted, false, out);
  wk__thread.mode.running_sequence = outer;
  if (status == WK_OK) status = still_recorded(t);
  if (status == WK_OK) status = take_out_grads(t, out);
  for (size_t i = 0; i < inputs; i++) wk__release(out[i]);
  wk__free(grads);
  return status;
}

/* Changes of the region's own objects were none of the program. */
static wk_status undo_changes(const trial *t) {
  PyErr_Clear();
  wk__recording *r = t->recording;
  for (int64_t i = t->steps_before; t->session->recording == r && i < r->step_count; i++)
    r->steps[i].undone |= r->steps[i].dest < 0;
  if (wk__own_state_is_same(t->held)) return WK_OK;
  if (wk__own_state_put_back(t->held) < 0) wk__record_failed(r, "what was only tried cannot be undone");
  PyErr_Clear();
  return refuse("it changes what the region has made");
}

/* While it lasts nothing of it may be noticed; see wk__recording.tries and after_step. */
static wk_status try_run(trial *t) {
  wk__session *s = t->session;
  wk__recording *r = t->recording;
  if (!(t->held = wk__own_state_keep(s, t->code, true))) return refuse("what it may change cannot be compared");
  t->inputs_before = wk__tracer_input_count(s->tracer);
  t->steps_before = r->step_count;
  t->before = wk__tracer_graph(s->tracer)->last;
  WK_TRY(wk__tracer_try_begin(s->tracer));
  struct wk__kept_trial *around = r->kept_trial;
  bool in_vain_around = r->tries_in_vain;
  r->kept_trial = NULL;
  wk__tracer_try_draws(s->tracer, false);
  r->tries = true;
  r->tries_in_vain = r->tries_modes = false;
  bool before = wk_set_grad_enabled(false);
  wk_status status = make_grads(t);
  if (status == WK_OK) status = t->run(t);
  wk_set_grad_enabled(before);
  if (s->recording == r) {
    bool well = wk__tracer_try_end(s->tracer);
    if (status == WK_OK && !well) status = refuse("it does what cannot be tried");
    r->kept_trial = around;
    r->tries = around;
    r->tries_in_vain = in_vain_around;
    r->tries_modes = false;
    wk__tracer_try_draws(s->tracer, around);
  }
  wk_status undone = undo_changes(t);
  return status == WK_OK ? undone : status;
}

/* ---- what was found out by it, until the region's end ---- */

/* Of hooks without their dictionary: others may come and go, which the nodes are counted for. */
static wk_status keep_tried(trial *t) {
  wk__recording *r = t->recording;
  PyObject *code = t->hooks ? PyDict_Values(t->hooks) : Py_NewRef(t->code);
  wk__own_state_release(t->held);
  t->held = code ? wk__own_state_keep(t->session, code, false) : NULL;
  wk__bury(code);
  if (!t->held) return refuse("what it may change cannot be compared");
  WK_TRY(wk__grow(&r->tried, &r->tried_capacity, r->tried_count + 1, sizeof *r->tried));
  r->tried[r->tried_count++] = (struct wk__tried_call){.sequence = t->sequence, .held = t->held};
  t->held = NULL;
  return WK_OK;
}

void wk__forget_tried(wk__recording *r) {
  for (int64_t i = 0; i < r->tried_count; i++) wk__own_state_release(r->tried[i].held);
  r->tried_count = 0;
}

/* A later call of the hook, or of `backward`, would find something else than the trial has. */
void wk__check_tried(wk__session *s, wk__recording *r) {
  for (int64_t i = 0; i < r->tried_count; i++) {
    const struct wk__tried_call *call = &r->tried[i];
    if (wk__own_state_is_same(call->held)) continue;
    wk__map_remove(&r->functions, call->sequence);
    wk__map_remove(&r->hooks, call->sequence);
    r->has_functions = true;
    if (call->key && wk__map_set(&s->compiled->functions_in_vain, call->key, s->compiled) != WK_OK) wk_error_clear();
  }
}

/* ---- what comes out ---- */

static wk_status make_operator(trial *t) {
  wk__graph_arg args[WK__MAX_ARGS];
  const wk_op *op;
  const wk__function_parts parts = {.name = t->name,
                                    .results = t->result_nodes,
                                    .inputs = t->input_nodes,
                                    .grads = t->grad_nodes,
                                    .out_grads = t->out_nodes,
                                    .result_count = t->result_count,
                                    .input_count = t->input_count,
                                    .before = t->before,
                                    .once = t->once,
                                    .hands_on = t->applied && t->applied->hands_on};
  WK_TRY(wk__function_create(&parts, &op, args));
  wk_status status = wk__tracer_stand_for(t->session->tracer, op, args, t->results, t->sequence);
  wk__op_hold(op, -1);
  return status;
}

static wk_status record_function(trial *t) {
  const wk__applied *a = t->applied;
  if (a->writes) return refuse("it writes its inputs");
  WK_TRY(find_results(t));
  if (!a->materializes && !a->hands_on && t->result_count > 1)
    return refuse("several results, and no zeros for their gradients");
  WK_TRY(find_inputs(t));
  WK_TRY(try_run(t));
  WK_TRY(make_operator(t));
  WK_TRY(keep_tried(t));
  return wk__map_set(&t->recording->functions, t->sequence, t->session);
}

static bool can_record(const wk__session *s) {
  return s && s->mode == WK__MODE_CAPTURE && !s->recording->failed[0] && !wk__is_thrown_away(s->recording);
}

/* What cannot be recorded is done as the program says, and its history is none of the graph's. */
static bool finish(trial *t, wk_status status) {
  for (int k = 0; k < t->result_count; k++) wk__release(t->grads[k]);
  wk__own_state_release(t->held);
  if (status == WK_OK) return true;
  if (wk__log_on(WK__LOG_BREAKS))
    wk__log_print(WK__LOG_BREAKS, "%s is not made by the graph: %s", t->name, wk_error_message());
  wk_error_clear();
  PyErr_Clear();
  return false;
}

void wk__dynamo_applied(const wk__applied *applied) {
  wk__session *s = wk__thread.session;
  if (!can_record(s)) return;
  trial t = {.session = s,
             .recording = s->recording,
             .run = call_backward,
             .name = applied->node->name,
             .sequence = applied->node->sequence,
             .once = applied->once,
             .code = applied->context,
             .applied = applied};
  if (!finish(&t, record_function(&t)) && s->recording == t.recording) t.recording->has_functions = true;
}

/* ---- hooks of a tensor ---- */

/* All of them in their order, on what stands for the gradient. */
static wk_status call_hooks(trial *t) {
  const wk__binding *b = t->session->binding;
  PyObject *all = PyDict_Values(t->hooks), *grad = all ? b->wrap(b->state, wk__retain(t->grads[0])) : NULL;
  for (Py_ssize_t i = 0; grad && i < PyList_GET_SIZE(all); i++) {
    PyObject *made = b->call_hook(PyList_GET_ITEM(all, i), &grad, 1);
    if (made == Py_None)
      Py_DECREF(made);
    else
      Py_SETREF(grad, made);
  }
  Py_XDECREF(all);
  wk_status status = grad ? still_recorded(t) : refuse("a hook raises");
  const wk_tensor *made = status == WK_OK && PyObject_TypeCheck(grad, b->tensor_type) ? b->tensor_of(grad) : NULL;
  if (status == WK_OK && (!made || made->dtype != t->grads[0]->dtype || !wk__same_sizes(made, t->grads[0])))
    status = refuse("a hook gives something else than a gradient");
  if (status == WK_OK) status = node_of(t, (wk_tensor *)made, &t->out_nodes[0]);
  Py_XDECREF(grad);
  return status;
}

typedef struct search {
  const wk__graph_node *node;
  bool found;
} search;
static void compare(void *context, wk__graph_node *arg) {
  search *s = context;
  s->found |= arg == s->node;
}
/* Calls of the tape that have taken the tensor in front of the hook would not see it. */
static bool is_used_behind(const wk__graph_node *node) {
  search s = {node, false};
  for (wk__graph_node *n = node->next; n && !s.found; n = n->next)
    if (n->tape_sequence) wk__graph_each_arg(n, compare, &s);
  return s.found;
}

/* The operator stands behind the tensor's value, and, where there were hooks before, in the place of theirs. */
static wk_status record_hooks(trial *t, wk_tensor *tensor) {
  wk__graph_node *now, *value;
  WK_TRY(node_of(t, tensor, &now));
  if (is_used_behind(now)) return refuse("the tensor was used before");
  value = wk__map_get(&t->recording->hooked_nodes, (uintptr_t)now);
  t->result_nodes[0] = t->input_nodes[0] = value ? value : now;
  t->results[0] = tensor;
  t->result_count = t->input_count = 1;
  WK_TRY(try_run(t));
  WK_TRY(make_operator(t));
  WK_TRY(node_of(t, tensor, &now));
  WK_TRY(keep_tried(t));
  WK_TRY(wk__map_set(&t->recording->hooked_nodes, (uintptr_t)now, t->input_nodes[0]));
  return wk__map_set(&t->recording->hooks, t->sequence, (void *)PyDict_GET_SIZE(t->hooks));
}

bool wk__dynamo_hooked(wk_tensor *tensor) {
  wk__session *s = wk__thread.session;
  if (!can_record(s)) return false;
  const wk_node *grad_fn = wk__grad_fn(tensor);
  wk__string name = {0};
  wk__node_print_name(&name, grad_fn);
  trial t = {.session = s,
             .recording = s->recording,
             .run = call_hooks,
             .name = name.text ? name.text : "",
             .sequence = grad_fn->sequence,
             .code = s->binding->tensor_hooks(tensor),
             .hooks = s->binding->tensor_hooks(tensor)};
  bool made = finish(&t, grad_fn->result_count == 1 ? record_hooks(&t, tensor) : refuse("one of several results"));
  wk__string_release(&name);
  return made;
}

bool wk__dynamo_captures(void) { return wk__thread.session && wk__thread.session->mode == WK__MODE_CAPTURE; }

void wk__dynamo_noticed_mode(void) {
  wk__session *s = wk__thread.session;
  if (s && s->recording && s->recording->tries) s->recording->tries_modes = true;
}
