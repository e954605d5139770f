/* Recording the operators of control flow: the program's functions are called once each while the tracer only tries,
 * and what each of them did becomes a graph.
 *
 * In: the nodes between two places of the graph that is being recorded, and the values that a function gave. Out: a
 * call of the operator, on the tensors from before that the functions used. Invariant: nothing of the parts is left but
 * nodes without users. Tests: tests/python/capture/test_branches.py, test_scans.py. */
#include "compile/control/recording.h"

bool wk__control_records(void) { return wk__thread.control; }

void wk__control_asks(wk__control_question what) {
  for (wk__control_recording *r = wk__thread.control; r; r = r->outer) r->asked |= (uint8_t)what;
}

static const wk__graph_node *last_of(const wk__graph *graph) { return graph->last; }

wk_status wk__control_begin(bool *out_begun) {
  wk__tracer *tracer = wk__tracer_current();
  *out_begun = false;
  if (!tracer) return WK_OK;
  wk__control_recording *r = wk__alloc_zeroed(sizeof *r);
  if (!r) return WK_OUT_OF_MEMORY;
  wk_status status = wk__tracer_try_begin(tracer);
  if (status != WK_OK) {
    wk__free(r);
    return status;
  }
  *r = (wk__control_recording){.outer = wk__thread.control, .tracer = tracer, .graph = wk__tracer_graph(tracer)};
  r->tries = wk__tracer_tries(tracer);
  r->parts[0].before = last_of(r->graph);
  wk__thread.control = r;
  *out_begun = true;
  return WK_OK;
}

bool wk__control_still_records(const wk__control_recording *r) {
  return wk__tracer_current() == r->tracer && wk__tracer_graph(r->tracer) == r->graph &&
         wk__tracer_tries(r->tracer) == r->tries;
}

wk_status wk__control_next(wk_tensor *const *results, int count) {
  wk__control_recording *r = wk__thread.control;
  if (!r || !wk__control_still_records(r)) return wk_fail(WK_UNSUPPORTED, "recording was given up");
  if (r->functions == WK__CONTROL_FUNCTIONS) return wk_fail(WK_UNSUPPORTED, "more functions than there are");
  wk__recorded_function *p = &r->parts[r->functions];
  p->results = wk__alloc_zeroed((size_t)(count + 1) * sizeof(wk__graph_node *));
  if (!p->results) return WK_OUT_OF_MEMORY;
  p->count = count;
  for (int k = 0; k < count; k++)
    if (!(p->results[k] = wk__tracer_use(r->tracer, results[k]))) return wk_error_category();
  p->last = last_of(r->graph);
  if (++r->functions < WK__CONTROL_FUNCTIONS) r->parts[r->functions].before = p->last;
  return WK_OK;
}

static bool finish(wk__control_recording *r) {
  bool well = wk__control_still_records(r) && wk__tracer_try_end(r->tracer);
  wk__thread.control = r->outer;
  for (int i = 0; i < WK__CONTROL_FUNCTIONS; i++) wk__free(r->parts[i].results);
  wk__free(r);
  return well;
}

/* ==================================================== the call =================================================== */

/* The tensors of the operands, held for the call: the tracer forgets what was used. */
static wk_status hold_operands(const wk__cutter *c, wk_tensor **out) {
  int given = c->given->carried + c->given->slices;
  for (int i = 0; i < given; i++) out[i] = wk__retain(c->given->operands[i]);
  for (int64_t i = given; i < c->count; i++) {
    wk_tensor *used = wk__tracer_used(c->r->tracer, c->operands[i]);
    for (int k = 0; !used && k < wk__tracer_input_count(c->r->tracer); k++)
      if (c->r->graph->inputs[k] == c->operands[i]) used = wk__tracer_input(c->r->tracer, k);
    if (!used) return wk_fail(WK_UNSUPPORTED, "a tensor that a function of control flow uses is not known");
    /* An integer from outside, which is an input without memory: no operand, so its value is a constant. */
    if (!used->storage && wk_int_guard_value(c->operands[i]->value->sizes[0]) == INT64_MIN)
      return wk_fail(WK_UNSUPPORTED, "an integer in a function of control flow that cannot be known");
    out[i] = wk__retain(used);
  }
  return WK_OK;
}

/* Will a derivative of the scan be asked for? */
static bool keeps(const wk__cutter *c, wk_tensor *const *operands) {
  if (c->kind != WK__SCAN || !c->given->carried || !wk__thread.mode.grad_enabled) return false;
  if (c->r->parts[0].count + c->given->carried > WK__MAX_RESULTS) return false;
  int64_t i = 0;
  while (i < c->count && !wk__has_history(operands[i])) i++;
  return i < c->count;
}

static wk_status list_of(const wk_value *results, int count, wk_value *out) {
  wk_tensor **tensors = wk__alloc_zeroed((size_t)(count + 1) * sizeof *tensors);
  if (!tensors) return WK_OUT_OF_MEMORY;
  for (int k = 0; k < count; k++) tensors[k] = wk__retain(results[k].tensor);
  *out = (wk_value){.tag = WK_VALUE_TENSORS, .count = (uint32_t)count, .tensors = tensors};
  return WK_OK;
}

/* Behind the recording, whose parts are graphs now. results: how many the program gets. */
static wk_status call(const wk_op *op, wk_tensor *pred, wk_tensor **operands, int64_t count, int results,
                      wk_value *out) {
  wk_value list = {.tag = WK_VALUE_TENSORS, .count = (uint32_t)count, .tensors = operands};
  wk_value args[] = {pred ? wk__v_tensor(pred) : list, list}, made[WK__MAX_RESULTS] = {0};
  if (op->schema.result_is_list) return wk_call(op, args, NULL, out);
  WK_TRY(wk_call(op, args, NULL, made));
  wk_status status = list_of(made, results, out);
  for (int r = 0; r < op->schema.result_count; r++) wk_value_release(&made[r]);
  return status;
}

/* The operator's results have a history together; what has none in the program gets none. */
static wk_status detach_others(const bool *histories, wk_value *list) {
  for (uint32_t k = 0; k < list->count; k++) {
    if (histories[k] || !wk__has_history(list->tensors[k])) continue;
    wk_value args[] = {wk__v_tensor(list->tensors[k])}, alias = {0};
    WK_TRY(wk_call(WK__OP(detach), args, NULL, &alias));
    wk__release(list->tensors[k]);
    list->tensors[k] = alias.tensor;
  }
  return WK_OK;
}

/* What the end of a recording is made of. */
typedef struct ending {
  wk__cutter cutter;
  wk__graph *graphs[WK__CONTROL_FUNCTIONS]; /* owned until the operator is made */
  wk_tensor **operands;                     /* owned, (cutter.count) */
  bool *histories;                          /* owned, (results): which have one */
  wk__control_form form;
} ending;

static void release_ending(ending *e) {
  for (int64_t i = 0; e->operands && i < e->cutter.count; i++) wk__release(e->operands[i]);
  for (int i = 0; i < WK__CONTROL_FUNCTIONS; i++) wk__graph_release(e->graphs[i]);
  wk__free(e->operands);
  wk__free(e->histories);
  wk__cutter_release(&e->cutter);
}

static wk_status prepare(ending *e, wk_tensor *const *results, int count, uint64_t *out_again) {
  wk__cutter *c = &e->cutter;
  WK_TRY(results ? wk__control_next(results, count) : wk_fail(WK_UNSUPPORTED, "a function has failed"));
  WK_TRY(wk__control_cut(c, e->graphs));
  WK_TRY(wk__control_check_parts(c, results, out_again));
  e->operands = wk__alloc_zeroed((size_t)(c->count + 1) * sizeof *e->operands);
  e->histories = wk__alloc_zeroed((size_t)count + 1);
  if (!e->operands || !e->histories) return WK_OUT_OF_MEMORY;
  for (int k = 0; k < count; k++) e->histories[k] = c->kind != WK__SCAN || wk__has_history(results[k]);
  WK_TRY(hold_operands(c, e->operands));
  e->form = (wk__control_form){.kind = c->kind,
                               .carried = c->given->carried,
                               .slices = c->given->slices,
                               .reversed = c->given->reversed,
                               .keeps = keeps(c, e->operands)};
  return WK_OK;
}

static wk_status make_call(ending *e, wk_tensor *pred, int results, wk_value *out) {
  const wk_op *op = NULL;
  wk_status status = wk__control_create(&e->form, NULL, e->graphs[0], e->graphs[1], &op);
  e->graphs[0] = e->graphs[1] = NULL;
  if (status == WK_OK) status = call(op, pred, e->operands, e->cutter.count, results, out);
  if (op) wk__op_hold(op, -1);
  if (status != WK_OK) return status;
  status = detach_others(e->histories, out);
  if (status != WK_OK) wk_value_release(out);
  return status;
}

static wk_status end(wk__control_kind kind, wk_tensor *pred, const wk__control_given *given, wk_tensor *const *results,
                     int count, uint64_t *out_again, wk_value *out) {
  wk__control_recording *r = wk__thread.control;
  *out_again = 0;
  if (!r) return wk_fail(WK_RUNTIME_ERROR, "no control flow is being recorded");
  ending e = {.cutter = {.r = r, .kind = kind, .given = given}};
  wk_status status = prepare(&e, results, count, out_again);
  bool well = finish(r);
  if (status == WK_OK && !well) status = wk_fail(WK_UNSUPPORTED, "a function does what cannot be in a graph");
  if (status == WK_OK) status = make_call(&e, pred, count, out);
  release_ending(&e);
  return status;
}

wk_status wk__control_end_branch(wk_tensor *pred, wk_tensor *const *results, int count, wk_value *out_results) {
  uint64_t again;
  return end(WK__BRANCH, pred, &(wk__control_given){0}, results, count, &again, out_results);
}
wk_status wk__control_end_loop(const wk__control_given *given, wk_tensor *const *results, int count,
                               uint64_t *out_again, wk_value *out_results) {
  return end(WK__LOOP, NULL, given, results, count, out_again, out_results);
}
wk_status wk__control_end_scan(const wk__control_given *given, wk_tensor *const *results, int count,
                               uint64_t *out_again, wk_value *out_results) {
  return end(WK__SCAN, NULL, given, results, count, out_again, out_results);
}
