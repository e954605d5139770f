/* The operators of control flow: how they are made, and what holds them.
 * In: graphs. Out: an operator with shares. Tests: tests/python/capture/test_branches.py, test_scans.py. */
#include <stdio.h>

#include "compile/control/internal.h"

/* ==================================================== lifetime =================================================== */

static void hold(const wk_op *op, int by) {
  wk__control *c = wk__control_of(op);
  if (atomic_fetch_add_explicit(&c->references, by, memory_order_acq_rel) + by) return;
  wk__control_release_derivatives(c);
  if (c->keeping) wk__op_hold(c->keeping, -1);
  for (int i = 0; i < WK__CONTROL_PARTS; i++) {
    wk__compiled_graph_release(c->parts[i].plain);
    wk__compiled_graph_release(c->parts[i].compiled);
    wk__graph_release(c->parts[i].graph);
  }
  pthread_mutex_destroy(&c->lock);
  wk__free(c->wanted);
  wk__free(c);
}

int wk__control_results(const wk__control *c) {
  int count = 0;
  if (c->kind == WK__SCAN) return (int)wk__control_body(c)->output_count + (c->keeps ? c->carried : 0);
  if (c->kind != WK__LOOP_BACKWARD) return (int)wk__control_body(c)->output_count;
  for (int i = 0; i < wk__control_operands(c); i++) count += c->wanted[i];
  return count;
}

/* ===================================================== making ==================================================== */

static const char *const names[] = {
    [WK__BRANCH] = "branch", [WK__LOOP] = "loop", [WK__LOOP_BACKWARD] = "loop_backward", [WK__SCAN] = "scan"};
static const char *const grad_fn_names[] = {[WK__BRANCH] = "CondBackward",
                                            [WK__LOOP] = "WhileLoopBackward",
                                            [WK__LOOP_BACKWARD] = "WhileLoopBackward",
                                            [WK__SCAN] = "ScanBackward"};

static bool saves_results(const wk__control *c) {
  return c->keeps && c->carried && wk__control_results(c) <= WK__MAX_RESULTS;
}

/* Where the tape keeps results they are told apart. */
static void write_schema(wk__control *c) {
  wk__string s = {0};
  wk__string_printf(&s, "%s(%sTensor[] operands) -> ", c->name, c->kind == WK__BRANCH ? "Tensor pred, " : "");
  wk__string_append(&s, saves_results(c) ? "(Tensor" : "Tensor[]");
  for (int r = 1; saves_results(c) && r < wk__control_results(c); r++) wk__string_append(&s, ", Tensor");
  if (saves_results(c)) wk__string_append(&s, ")");
  snprintf(c->schema, sizeof c->schema, "%s", s.text ? s.text : "");
  wk__string_release(&s);
}

static void name_it(wk__control *c, const char *name) {
  static _Atomic unsigned long long made;
  if (name)
    snprintf(c->name, sizeof c->name, "%s", name);
  else
    snprintf(c->name, sizeof c->name, "%s_%llu", names[c->kind], atomic_fetch_add(&made, 1) + 1);
  const char *node = c->kind == WK__SCAN && !c->carried ? "MapBackward" : grad_fn_names[c->kind];
  snprintf(c->grad_fn_name, sizeof c->grad_fn_name, "%s", node);
  write_schema(c);
}

static void choose_what_is_saved(wk__control *c) {
  for (int i = 0; i < 2; i++) c->saves[i].args = c->kind == WK__BRANCH ? 3 : 1;
  for (int r = 0; saves_results(c) && r < c->carried; r++)
    c->saves[0].results |= 1u << (wk__control_body(c)->output_count + r);
}

static wk_status fill(wk__control *c, const char *name) {
  static wk__vjp_fn *const rules[] = {[WK__BRANCH] = wk__control_differentiate,
                                      [WK__LOOP] = wk__control_differentiate,
                                      [WK__LOOP_BACKWARD] = wk__control_refuse_second,
                                      [WK__SCAN] = wk__control_differentiate_scan};
  name_it(c, name);
  choose_what_is_saved(c);
  c->op = (wk_op){.name = c->name,
                  .base_name = c->name,
                  .schema_text = c->schema,
                  .grad_fn_name = c->grad_fn_name,
                  .compose = wk__control_run,
                  .vjp = rules[c->kind],
                  .saves = c->saves,
                  .print = wk__control_print,
                  .hold = hold,
                  .number = WK__OP_COUNT};
  return wk__schema_parse(c->schema, c->parameters, WK_COUNT(c->parameters), &c->op.schema);
}

wk_status wk__control_create(const wk__control_form *form, const char *name, wk__graph *steal_first,
                             wk__graph *steal_second, const wk_op **out_op) {
  wk__control *c = wk__alloc_zeroed(sizeof *c);
  if (!c) {
    wk__graph_release(steal_first);
    wk__graph_release(steal_second);
    return WK_OUT_OF_MEMORY;
  }
  c->kind = (uint8_t)form->kind;
  c->references = 1;
  c->parts[0].graph = steal_first;
  c->parts[1].graph = steal_second;
  c->carried = form->kind == WK__BRANCH ? 0 : form->kind == WK__SCAN ? form->carried : (int)steal_second->output_count;
  c->slices = form->slices;
  c->reversed = form->reversed;
  c->keeps = form->keeps;
  pthread_mutex_init(&c->lock, NULL);
  wk_status status = fill(c, name);
  if (status == WK_OK)
    *out_op = &c->op;
  else
    hold(&c->op, -1);
  return status;
}

/* ================================================= do they fit? ================================================== */

static bool alike(const wk_tensor *a, const wk_tensor *b) {
  bool same = a->dtype == b->dtype && a->ndim == b->ndim && a->device.type == b->device.type;
  for (int d = 0; same && d < a->ndim; d++)
    same = wk_int_is_known(a->sizes[d]) == wk_int_is_known(b->sizes[d]) &&
           (!wk_int_is_known(a->sizes[d]) || wk_int_same(a->sizes[d], b->sizes[d]));
  return same;
}

static wk_status do_not_fit(const char *what) {
  return wk_fail(WK_VALUE_ERROR, "graphs of control flow that do not belong together: %s", what);
}

static bool results_fit(int kind, const wk__graph *first, const wk__graph *second) {
  bool branch = kind == WK__BRANCH;
  if (branch && first->output_count != second->output_count) return false;
  if (!branch && (first->output_count != 1 || !second->output_count || second->output_count > second->input_count))
    return false;
  bool fit = true;
  for (int64_t k = 0; fit && k < second->output_count; k++)
    fit = alike((branch ? first->outputs[k] : second->inputs[k])->value, second->outputs[k]->value);
  return fit;
}

wk_status wk__control_check(int kind, const wk__graph *first, const wk__graph *second) {
  bool inputs = first->input_count == second->input_count;
  for (int64_t i = 0; inputs && i < first->input_count; i++)
    inputs = alike(first->inputs[i]->value, second->inputs[i]->value);
  if (!inputs) return do_not_fit("their inputs differ");
  return results_fit(kind, first, second) ? WK_OK : do_not_fit("their results differ");
}

wk_status wk__control_check_scan(const wk__control_form *form, const wk__graph *body) {
  bool fit = form->carried >= 0 && form->slices > 0 && form->carried <= body->output_count && body->output_count &&
             (int64_t)form->carried + form->slices <= body->input_count;
  for (int k = 0; fit && k < form->carried; k++) fit = alike(body->inputs[k]->value, body->outputs[k]->value);
  return fit ? WK_OK : do_not_fit("what a scan carries and is given");
}

/* ================================================== for other parts ============================================== */

bool wk__is_control(const wk_op *op) { return op->compose == wk__control_run; }
bool wk__control_graphs_of(const wk_op *op, wk__control_graphs *out) {
  const wk__control *c = wk__control_of(op);
  if (!wk__is_control(op) || c->kind == WK__LOOP_BACKWARD) return false;
  *out = (wk__control_graphs){.first = c->parts[0].graph,
                              .second = c->parts[1].graph,
                              .carried = c->kind == WK__BRANCH ? -1 : c->carried,
                              .slices = c->slices,
                              .reversed = c->reversed};
  return true;
}
void wk__control_compile(const wk_op *op) {
  atomic_store_explicit(&wk__control_of(op)->compiles, true, memory_order_relaxed);
}
