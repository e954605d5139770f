/* The derivative of a scan, as a scan: for each slice the gradients of what its body was given, the other way round.
 *
 * In: a body f(carried, slices, closed-over) -> carried', others, and which of its results have gradients. Out: a body
 *
 *     g(t, sums | carried, slices, gradients of others, of joined ones | closed-over) -> t', sums' | gradients of
 * slices
 *
 * with t the gradients of what is carried, and sums those of what is closed over. Gradients of one tensor are added use
 * by use, which is the order of the engine where the slices' calls stand behind each other. A stack of what is carried
 * is a use behind all of them: its gradient comes first, of the slice before, in what t' is a sum of.
 * Tests: tests/python/capture/test_scans.py. */
#include "aot/aot.h"
#include "aot/build.h"
#include "compile/control/internal.h"
#include "graph/internal.h"

int wk__control_joined_with(const wk__control *c, int result) {
  const wk__graph *body = wk__control_body(c);
  if (result < c->carried || result >= body->output_count) return -1;
  int i = c->carried - 1;
  while (i >= 0 && body->outputs[i] != body->outputs[result]) i--;
  return i;
}

/* ---- the body's gradients, use by use ---- */

/* Of the results with gradients as outputs that are memory of their own. What is kept is a copy of an input. */
static wk_status copy_body(const wk__control *c, const uint8_t *defined, wk__builder *b) {
  const wk__graph *body = wk__control_body(c);
  int64_t given = body->output_count;
  WK_TRY(wk__builder_begin(b, body->env));
  for (int64_t i = 0; i < body->input_count; i++) WK_TRY(wk__builder_input(b, body->inputs[i]));
  for (const wk__graph_node *n = body->first; n; n = n->next)
    if (n->kind != WK__GRAPH_INPUT) WK_TRY(wk__builder_copy(b, n, n->flags & WK__GRAPH_TAPED));
  for (int r = 0; r < wk__control_results(c); r++) {
    if (defined[r] != WK__GRAD_GIVEN) continue;
    const wk__graph_node *result = r < given ? body->outputs[r] : body->inputs[r - given];
    WK_TRY(wk__builder_own_output(b, wk__builder_node(b, result)));
  }
  return WK_OK;
}

static wk_status derive_body(const wk__control *c, const wk__control_derivative *d, wk__graph **out) {
  int count = wk__control_operands(c);
  wk__builder b = {0};
  wk__graph *some = NULL;
  bool *flows = wk__alloc((size_t)count + 1);
  wk_status status = flows ? copy_body(c, d->defined, &b) : WK_OUT_OF_MEMORY;
  if (status == WK_OK) status = wk__builder_take(&b, &some);
  for (int i = 0; status == WK_OK && i < count; i++)
    flows[i] = i < c->carried ? wk__control_is_floating(wk__control_body(c)->inputs[i]->value) : d->wanted[i];
  if (status == WK_OK) status = wk__aot_derive_uses(some, flows, d->uses, out);
  wk__builder_release(&b);
  wk__graph_release(some);
  wk__free(flows);
  return status;
}

/* ---- the derivative's body ---- */

typedef struct making {
  const wk__control *c;
  const wk__control_derivative *d;
  const wk__graph *uses; /* the body's inputs and gradients of results -> gradients of each use */
  wk__builder b;
  wk__graph_node **sums; /* owned, (operands): what a sum begins with, an input; NULL: nothing */
  wk__control_form form;
} making;

static bool is_closed_over(const wk__control *c, int i) { return i >= c->carried + c->slices; }
static bool is_slice(const wk__control *c, int i) { return i >= c->carried && !is_closed_over(c, i); }

static wk_status add_contiguous_input(wk__builder *b, const wk__graph_node *like, wk__graph_node **out) {
  WK__OWNED described = wk__builder_described(b, like->value);
  if (!described) return wk_error_category();
  wk__spec spec;
  wk__spec_contiguous(&spec, (wk_dtype)described->dtype, described->device, described->ndim, described->sizes);
  WK__OWNED value = wk__graph_describe(&spec);
  *out = value ? wk__graph_input(b->graph, value, like->name) : NULL;
  return *out ? WK_OK : wk_error_category();
}

/* Gradients of results `begin` to `end`, which are the last inputs of `uses`; one that is given later is not used. */
static wk_status add_gradients(making *m, int begin, int end) {
  int input = wk__control_operands(m->c);
  for (int r = 0; r < end; r++) {
    bool given = m->d->defined[r] == WK__GRAD_GIVEN;
    wk__graph_node *unused;
    if (r >= begin && given) WK_TRY(wk__builder_input(&m->b, m->uses->inputs[input]));
    if (r >= begin && m->d->defined[r] == WK__GRAD_LATER)
      WK_TRY(add_contiguous_input(&m->b, wk__control_body(m->c)->inputs[r], &unused));
    input += given;
  }
  return WK_OK;
}

/* One for each carried result. */
static wk_status add_joined(making *m) {
  for (int i = 0; i < m->c->carried; i++) {
    bool joined = false;
    for (int r = m->c->carried; r < wk__control_results(m->c); r++)
      joined |= m->d->defined[r] == WK__GRAD_JOINED && wk__control_joined_with(m->c, r) == i;
    if (joined) WK_TRY(add_contiguous_input(&m->b, wk__control_body(m->c)->outputs[i], &m->sums[i]));
  }
  return WK_OK;
}

static wk_status add_inputs(making *m) {
  const wk__control *c = m->c;
  int count = wk__control_operands(c);
  WK_TRY(add_gradients(m, 0, c->carried));
  for (int i = c->carried + c->slices; i < count; i++)
    if (m->d->wanted[i]) WK_TRY(add_contiguous_input(&m->b, m->uses->inputs[i], &m->sums[i]));
  m->form.carried = (int)m->b.graph->input_count;
  for (int i = 0; i < c->carried + c->slices; i++) WK_TRY(wk__builder_input(&m->b, m->uses->inputs[i]));
  WK_TRY(add_gradients(m, c->carried, wk__control_results(c)));
  WK_TRY(add_joined(m));
  m->form.slices = (int)m->b.graph->input_count - m->form.carried;
  for (int i = c->carried + c->slices; i < count; i++) WK_TRY(wk__builder_input(&m->b, m->uses->inputs[i]));
  return WK_OK;
}

static int uses_before(const making *m, int operand) {
  int before = 0;
  for (int i = 0; i < operand; i++) before += m->d->uses[i];
  return before;
}

/* Of one operand, behind what there is already; zeros where nothing flows. */
static wk__graph_node *sum_of(making *m, int operand) {
  wk__graph_node *sum = m->sums[operand];
  int first = uses_before(m, operand);
  for (int u = 0; u < m->d->uses[operand]; u++) {
    wk__graph_node *grad = wk__builder_node(&m->b, m->uses->outputs[first + u]);
    sum = sum && grad ? wk__aot_sum(m->b.graph, sum, grad) : grad;
    if (!sum) return NULL;
  }
  wk__graph_node *like = wk__builder_node(&m->b, m->uses->inputs[operand]);
  return sum ? sum : wk__aot_zeros(m->b.graph, like);
}

static wk_status add_outputs(making *m) {
  const wk__control *c = m->c;
  int count = wk__control_operands(c);
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < count; i++) {
      bool carried = i < c->carried ? m->d->defined[i] != WK__GRAD_NONE : is_closed_over(c, i) && m->d->wanted[i];
      if (pass == 0 ? !carried : !(is_slice(c, i) && m->d->wanted[i])) continue;
      wk__graph_node *sum = sum_of(m, i);
      if (!sum) return wk_error_category();
      WK_TRY(pass == 0 ? wk__builder_own_output(&m->b, sum) : wk__graph_output(m->b.graph, sum));
    }
  return WK_OK;
}

static wk_status build(making *m, wk__graph **out) {
  WK_TRY(wk__builder_begin(&m->b, m->uses->env));
  WK_TRY(add_inputs(m));
  for (const wk__graph_node *n = m->uses->first; n; n = n->next)
    if (n->kind != WK__GRAPH_INPUT) WK_TRY(wk__builder_copy(&m->b, n, n->flags & WK__GRAPH_TAPED));
  WK_TRY(add_outputs(m));
  return wk__builder_take(&m->b, out);
}

wk_status wk__control_derive_scan(const wk__control *c, wk__control_derivative *d) {
  size_t count = (size_t)wk__control_operands(c);
  wk__graph *uses = NULL, *body = NULL;
  making m = {.c = c, .d = d, .form = {.kind = WK__SCAN, .reversed = !c->reversed}};
  m.sums = wk__alloc_zeroed((count + 1) * sizeof(wk__graph_node *));
  d->uses = wk__alloc_zeroed((count + 1) * sizeof *d->uses);
  wk_status status = m.sums && d->uses ? derive_body(c, d, &uses) : WK_OUT_OF_MEMORY;
  m.uses = uses;
  if (status == WK_OK) status = build(&m, &body);
  if (status == WK_OK) status = wk__control_create(&m.form, NULL, body, NULL, &d->op);
  wk__builder_release(&m.b);
  wk__graph_release(uses);
  wk__free(m.sums);
  return status;
}
