/* Runs of the operators of control flow, and their shapes.
 * In: operands. Out: results, new contiguous memory of the same sizes whichever graph has run; of operands without
 * memory descriptions of them. Tests: tests/python/capture/test_branches.py, test_scans.py. */
#include "compile/control/internal.h"
#include "graph/internal.h"

/* ===================================================== shapes ==================================================== */

/* Sizes of the graph in those of the operands. */
typedef struct sizes {
  const wk__graph *graph;
  wk_tensor *const *operands;
} sizes;

static wk_int size_of_symbol(void *context, wk_int leaf) {
  const sizes *s = context;
  for (int64_t i = 0; i < s->graph->input_count; i++) {
    const wk_tensor *described = s->graph->inputs[i]->value;
    int behind = s->operands[i]->ndim - described->ndim; /* 1: it is a slice */
    for (int d = 0; d < described->ndim; d++)
      if (wk_int_same(described->sizes[d], leaf)) return s->operands[i]->sizes[d + behind];
  }
  return leaf;
}

static wk_int in_operands(const sizes *s, wk_int x) {
  return wk_int_is_known(x) ? x : wk__sym_substitute(x, size_of_symbol, (void *)s);
}

static void describe(const sizes *s, const wk_tensor *value, wk__spec *spec) {
  wk__spec_of(spec, value);
  for (int d = 0; d < spec->ndim; d++) {
    spec->sizes[d] = in_operands(s, spec->sizes[d]);
    spec->strides[d] = in_operands(s, spec->strides[d]);
  }
}

static wk_status give_shape(const wk__spec *spec, wk_tensor **out) {
  *out = wk__graph_describe(spec);
  if (!*out) return wk_error_category();
  (*out)->device = (wk_device){WK_META, -1};
  return WK_OK;
}

static wk_status give_stack(wk_int slices, const wk__spec *slice, wk_tensor **out) {
  wk__spec spec;
  wk__control_stack(slices, slice, &spec);
  return give_shape(&spec, out);
}

static wk_status give_scan_shapes(const wk__control *c, const sizes *s, wk_tensor **out) {
  wk_int slices = s->operands[c->carried]->sizes[0];
  wk__spec spec;
  for (int64_t k = 0; k < s->graph->output_count; k++) {
    describe(s, s->graph->outputs[k]->value, &spec);
    WK_TRY(k < c->carried ? give_shape(&spec, out++) : give_stack(slices, &spec, out++));
  }
  for (int i = 0; c->keeps && i < c->carried; i++) {
    describe(s, s->graph->inputs[i]->value, &spec);
    WK_TRY(give_stack(slices, &spec, out++));
  }
  return WK_OK;
}

/* What a call on tensors without memory gives. */
static wk_status give_shapes(const wk__control *c, wk_tensor *const *operands, wk_tensor **out) {
  const sizes s = {wk__control_body(c), operands};
  wk__spec spec;
  if (c->kind == WK__SCAN) return give_scan_shapes(c, &s, out);
  if (c->kind != WK__LOOP_BACKWARD) {
    for (int64_t k = 0; k < s.graph->output_count; k++) {
      describe(&s, s.graph->outputs[k]->value, &spec);
      WK_TRY(give_shape(&spec, &out[k]));
    }
    return WK_OK;
  }
  for (int i = 0; i < wk__control_operands(c); i++) {
    if (!c->wanted[i]) continue;
    const wk_tensor *t = operands[i];
    wk__spec_contiguous(&spec, (wk_dtype)t->dtype, t->device, t->ndim, t->sizes);
    WK_TRY(give_shape(&spec, out++));
  }
  return WK_OK;
}

/* ==================================================== running ==================================================== */

/* The graph without its tape, which is what runs below one. */
static wk_status without_tape(const wk__graph *graph, wk__graph **out) {
  *out = wk__graph_copy(graph);
  if (!*out) return wk_error_category();
  for (wk__graph_node *n = (*out)->first; n; n = n->next) n->flags &= (uint8_t)~WK__GRAPH_TAPED;
  return wk__graph_freeze(*out);
}

static wk_status make_runner(const wk__control_part *p, bool compiles, wk__compiled_graph **out) {
  wk__graph *graph = NULL;
  wk_status status = without_tape(p->graph, &graph);
  if (status == WK_OK) status = wk__compile_graph(graph, NULL, compiles ? WK__COMPILE_LATER : WK__COMPILE_NOTHING, out);
  wk__graph_release(graph);
  return status;
}

static wk_status runner_of(wk__control *c, wk__control_part *p, const wk__compiled_graph **out) {
  bool compiles = atomic_load_explicit(&c->compiles, memory_order_relaxed);
  wk__compiled_graph **place = compiles ? &p->compiled : &p->plain;
  wk_status status = WK_OK;
  pthread_mutex_lock(&c->lock);
  if (!*place) status = make_runner(p, compiles, place);
  *out = *place;
  pthread_mutex_unlock(&c->lock);
  return status;
}

wk_status wk__control_run_part(wk__control *c, wk__control_part *p, wk_tensor *const *inputs, wk_tensor **outputs) {
  const wk__compiled_graph *runner;
  WK_TRY(runner_of(c, p, &runner));
  wk__thread_mode before = wk__thread.mode;
  wk__thread.mode.grad_enabled = false;
  wk__thread.mode.keys_off = (wk__keys)~0;
  wk_status status = wk__compiled_graph_run(runner, inputs, NULL, outputs);
  wk__thread.mode = before;
  return status;
}

static wk_status truth(const wk_tensor *t, bool *out) {
  double value;
  WK_TRY(wk_tensor_item(t, &value));
  *out = value != 0;
  return WK_OK;
}

void wk__control_release_all(wk_tensor **tensors, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    wk__release(tensors[i]);
    tensors[i] = NULL;
  }
}

/* ---- loops ---- */

static wk_status goes_on(wk__control *c, wk_tensor *const *operands, bool *out) {
  wk_tensor *value = NULL;
  WK_TRY(wk__control_run_part(c, &c->parts[0], operands, &value));
  wk_status status = truth(value, out);
  wk__release(value);
  return status;
}

/* operands: the carried ones are owned, and replaced by the next round's. */
static wk_status run_body(wk__control *c, wk_tensor **operands, wk_tensor **next) {
  WK_TRY(wk__control_run_part(c, &c->parts[1], operands, next));
  for (int i = 0; i < c->carried; i++) {
    wk__release(operands[i]);
    operands[i] = next[i];
    next[i] = NULL;
  }
  return WK_OK;
}

static void take_carried(const wk__control *c, wk_tensor *const *given, wk_tensor **operands) {
  memcpy(operands, given, (size_t)wk__control_operands(c) * sizeof *operands);
  for (int i = 0; i < c->carried; i++) wk__retain(operands[i]);
}

/* A result is memory of its own, also where no round was run. */
static wk_status copy_if_given(wk_tensor *given, wk_tensor **result) {
  if (*result != given) return WK_OK;
  wk_value args[] = {wk__v_tensor(given), {0}}, copy = {0};
  WK_TRY(wk_call(WK__OP(clone), args, NULL, &copy));
  wk__release(*result);
  *result = copy.tensor;
  return WK_OK;
}

static wk_status run_loop(wk__control *c, wk_tensor *const *given, wk_tensor **out) {
  int count = wk__control_operands(c);
  wk_tensor **operands = wk__alloc_zeroed((size_t)(count + c->carried) * sizeof *operands + 1);
  if (!operands) return WK_OUT_OF_MEMORY;
  take_carried(c, given, operands);
  bool on = false;
  wk_status status = goes_on(c, operands, &on);
  while (status == WK_OK && on) {
    status = run_body(c, operands, operands + count);
    if (status == WK_OK) status = goes_on(c, operands, &on);
  }
  for (int i = 0; i < c->carried && status == WK_OK; i++) status = copy_if_given(given[i], &operands[i]);
  if (status == WK_OK)
    memcpy(out, operands, (size_t)c->carried * sizeof *out);
  else
    wk__control_release_all(operands, c->carried);
  wk__free(operands);
  return status;
}

/* ---- loops backwards ---- */

/* What each round began with, and the gradients on the way back. */
typedef struct rounds {
  wk__control *c;
  wk_tensor *const *given; /* the operands, then a gradient of each carried one */
  wk_tensor **carried;     /* owned, (count x carried) */
  int64_t count, capacity;
  wk_tensor **inputs; /* borrowed: of one call of the body's derivative */
  wk_tensor **grads;  /* owned, (operands): so far */
  wk_tensor **made;   /* owned: what one call gives */
} rounds;

static wk_status run_forward(rounds *r) {
  wk__control *c = r->c;
  for (;; r->count++) {
    bool on;
    size_t row = (size_t)c->carried;
    WK_TRY(wk__grow(&r->carried, &r->capacity, (r->count + 2) * c->carried, sizeof *r->carried));
    wk_tensor **now = r->carried + r->count * c->carried, **next = now + row;
    memset(next, 0, row * sizeof *next);
    for (size_t i = 0; r->count == 0 && i < row; i++) now[i] = wk__retain(r->given[i]);
    memcpy(r->inputs, r->given, (size_t)wk__control_operands(c) * sizeof *r->inputs);
    memcpy(r->inputs, now, row * sizeof *now);
    WK_TRY(goes_on(c, r->inputs, &on));
    if (!on) return WK_OK;
    WK_TRY(wk__control_run_part(c, &c->parts[1], r->inputs, next));
  }
}

static wk_status accumulate(wk_tensor **sum, wk_tensor **steal_term) {
  wk_tensor *term = *steal_term;
  *steal_term = NULL;
  if (!*sum) {
    *sum = term;
    return WK_OK;
  }
  wk_value args[] = {wk__v_tensor(*sum), wk__v_tensor(term), wk__v_int(1)}, total = {0};
  wk_status status = wk_call(WK__OP(add_Tensor), args, NULL, &total);
  wk__release(term);
  WK_TRY(status);
  wk__release(*sum);
  *sum = total.tensor;
  return WK_OK;
}

/* Gradients of what a round began with, of those of what it made. */
static wk_status run_backward(rounds *r, int64_t round) {
  wk__control *c = r->c;
  int count = wk__control_operands(c);
  memcpy(r->inputs, r->given, (size_t)count * sizeof *r->inputs);
  memcpy(r->inputs, r->carried + round * c->carried, (size_t)c->carried * sizeof *r->inputs);
  memcpy(r->inputs + count, r->grads, (size_t)c->carried * sizeof *r->inputs);
  WK_TRY(wk__control_run_part(c, &c->parts[2], r->inputs, r->made));
  for (int i = 0, k = 0; i < count; i++) {
    if (!c->flows[i]) continue;
    if (i < c->carried) {
      wk__release(r->grads[i]);
      r->grads[i] = r->made[k];
      r->made[k] = NULL;
    } else {
      WK_TRY(accumulate(&r->grads[i], &r->made[k]));
    }
    k++;
  }
  return WK_OK;
}

/* A carried operand's gradient begins as the result's; where nothing is given that is zero. */
static wk_status give_gradients(rounds *r, wk_tensor **out) {
  const wk__control *c = r->c;
  for (int i = 0; i < wk__control_operands(c); i++) {
    if (!c->wanted[i]) continue;
    if (!r->grads[i]) {
      wk_value args[] = {wk__v_tensor(r->given[i]), {0}, {0}, {0}}, zeros = {0};
      WK_TRY(wk_call(WK__OP(zeros_like), args, NULL, &zeros));
      r->grads[i] = zeros.tensor;
    } else if (i < c->carried) {
      WK_TRY(copy_if_given(r->given[wk__control_operands(c) + i], &r->grads[i]));
    }
    *out++ = r->grads[i];
    r->grads[i] = NULL;
  }
  return WK_OK;
}

static wk_status run_loop_backward(wk__control *c, wk_tensor *const *given, wk_tensor **out) {
  size_t count = (size_t)wk__control_operands(c);
  wk_tensor **space = wk__alloc_zeroed((4 * count + 1) * sizeof *space);
  if (!space) return WK_OUT_OF_MEMORY;
  rounds r = {.c = c, .given = given, .inputs = space, .grads = space + 2 * count, .made = space + 3 * count};
  for (int i = 0; i < c->carried; i++) r.grads[i] = wk__retain(given[count + i]);
  wk_status status = run_forward(&r);
  for (int64_t k = r.count; k-- > 0 && status == WK_OK;) status = run_backward(&r, k);
  if (status == WK_OK) status = give_gradients(&r, out);
  if (r.carried) wk__control_release_all(r.carried, (r.count + 1) * c->carried);
  wk__control_release_all(r.grads, (int64_t)count);
  wk__control_release_all(r.made, (int64_t)count);
  wk__free(r.carried);
  wk__free(space);
  return status;
}

/* ---- a call ---- */

static wk_status run_branch(wk__control *c, const wk_tensor *pred, wk_tensor *const *operands, wk_tensor **out) {
  bool holds;
  WK_TRY(truth(pred, &holds));
  return wk__control_run_part(c, &c->parts[holds ? 0 : 1], operands, out);
}

static bool has_no_memory(const wk_value *operands) {
  for (uint32_t i = 0; i < operands->count; i++)
    if (operands->tensors[i]->device.type == WK_META) return true;
  return false;
}

static bool is_slice(const wk__control *c, int64_t i) { return i >= c->carried && i < c->carried + c->slices; }

static bool fits(const wk_tensor *given, const wk_tensor *described, int behind) {
  bool fit = given->dtype == described->dtype && given->ndim == described->ndim + behind;
  for (int d = 0; fit && d < described->ndim; d++)
    fit = !wk_int_is_known(described->sizes[d]) || !wk_int_is_known(given->sizes[d + behind]) ||
          wk_int_same(described->sizes[d], given->sizes[d + behind]);
  return fit;
}

static bool has_slices(const wk_tensor *given, wk_int count) {
  wk_int n = given->sizes[0];
  return !wk_int_is_known(n) || (n.bits > 0 && (!wk_int_is_known(count) || wk_int_same(n, count)));
}

/* A graph from text may call with anything. */
static wk_status check_operands(const wk__control *c, const wk_value *operands) {
  const wk__graph *body = wk__control_body(c);
  int64_t gradients = c->kind == WK__LOOP_BACKWARD ? c->carried : 0;
  bool fit = operands->count == body->input_count + gradients;
  for (int64_t i = 0; fit && i < body->input_count; i++)
    fit = fits(operands->tensors[i], body->inputs[i]->value, is_slice(c, i)) &&
          (!is_slice(c, i) || has_slices(operands->tensors[i], operands->tensors[c->carried]->sizes[0]));
  return fit ? WK_OK : wk_fail(WK_VALUE_ERROR, "%s is called with other tensors than its graphs have", c->name);
}

static wk_status run_kind(wk__control *c, const wk_value *args, wk_tensor **out) {
  const wk_value *operands = &args[c->op.schema.parameter_count - 1];
  WK_TRY(check_operands(c, operands));
  bool meta = has_no_memory(operands) || (c->kind == WK__BRANCH && args[0].tensor->device.type == WK_META);
  if (meta) return give_shapes(c, operands->tensors, out);
  if (c->kind == WK__BRANCH) return run_branch(c, args[0].tensor, operands->tensors, out);
  if (c->kind == WK__SCAN) return wk__control_run_scan(c, operands->tensors, out);
  return (c->kind == WK__LOOP ? run_loop : run_loop_backward)(c, operands->tensors, out);
}

wk_status wk__control_run(wk__call *call) {
  wk__control *c = wk__control_of(call->op);
  int count = wk__control_results(c);
  wk_tensor **tensors = wk__alloc_zeroed((size_t)(count + 1) * sizeof *tensors);
  if (!tensors) return WK_OUT_OF_MEMORY;
  wk_status status = run_kind(c, call->args, tensors);
  if (status != WK_OK) {
    wk__control_release_all(tensors, count);
    wk__free(tensors);
    return status;
  }
  if (c->op.schema.result_is_list) {
    call->results[0] = (wk_value){.tag = WK_VALUE_TENSORS, .count = (uint32_t)count, .tensors = tensors};
    return WK_OK;
  }
  for (int r = 0; r < count; r++) call->results[r] = wk__v_tensor(tensors[r]);
  wk__free(tensors);
  return WK_OK;
}
