/* From a recording to a segment: what is needed at the end, the graph that computes it, the steps that somebody can
 * see. In: a session whose recording ends here. Out: every tensor real, a segment that later calls replay, or none when
 * something alive cannot be made again. Tests: tests/python/capture/. */
#include "dynamo/capture/history.h"
#include "dynamo/capture/numbers.h"
#include "dynamo/capture/record_parts.h"
#include "dynamo/explain.h"

#include <stdio.h>

/* ================================================== the frames =================================================== */

static wk__segment *segment_create(wk__session *s, wk__end_kind end) {
  wk__segment *g = wk__alloc_zeroed(sizeof *g);
  if (!g) return NULL;
  static _Atomic int64_t last_number;
  atomic_init(&g->references, 1);
  g->number = 1 + atomic_fetch_add_explicit(&last_number, 1, memory_order_relaxed);
  g->recording = s->recording;
  s->recording = NULL;
  g->end = end;
  g->value = -1;
  g->grad_after = g->autocast_after = -1;
  g->codes = s->start_codes;
  g->offsets = s->start_offsets;
  g->frame_count = s->start_count;
  s->start_codes = NULL;
  s->start_offsets = NULL;
  for (int i = 0; i < g->frame_count; i++) Py_INCREF(g->codes[i]);
  g->grad_enabled = s->grad_at_start;
  g->inference = wk__thread.mode.inference;
  g->overrides = s->overrides_at_start;
  g->default_dtype = (uint8_t)wk__default_dtype();
  g->autocast = s->autocast_at_start;
  g->default_device = wk__thread.default_device;
  snprintf(g->reason, sizeof g->reason, "%s", s->reason);
  if (s->innermost) {
    g->file = PyUnicode_AsUTF8(s->innermost->frame.code->co_filename);
    g->line = wk__frame_line(&s->innermost->frame);
    PyErr_Clear();
  }
  return g;
}

/* ---- their state ---- */

static int register_of(wk__session *s, wk__recording *r, PyObject *o, wk__reg *out) {
  *out = o ? wk__reg_of(r, s->binding, o) : -1;
  return o && *out < 0 ? -1 : 0;
}

/* returned_into: the call that it stood in at the start is over; unwinding leaves something else on its stack. */
static int frame_state(wk__session *s, wk__recording *r, wk__activation *a, bool common, bool returned_into,
                       wk__end_frame *out) {
  int slots = wk__frame_slot_count(&a->frame), depth = wk__frame_depth(&a->frame);
  *out = (wk__end_frame){.code = a->frame.code, .offset = a->frame.offset, .slot_count = slots, .depth = depth};
  out->values = wk__arena_alloc(&r->arena, (size_t)(slots + depth + 1) * sizeof *out->values);
  if (!out->values) return -1;
  for (int i = 0; i < slots + depth; i++) {
    PyObject *o = i < slots ? wk__frame_slot(&a->frame, i) : wk__frame_stack(&a->frame, i - slots);
    bool in_place =
        (i < slots && a->stored && !a->stored[i]) || (i >= slots && !returned_into && i - slots < a->stack_at_start);
    bool was_there = common && a->at_start && in_place && a->at_start[i] == o;
    out->values[i] = WK__KEEP;
    if (was_there) continue;
    if (register_of(s, r, o, &out->values[i]) < 0) return -1;
  }
  return 0;
}

static int end_state(wk__session *s, wk__segment *g) {
  wk__recording *r = g->recording;
  g->end_count = s->innermost->depth + 1;
  g->common = s->low < g->end_count ? s->low : g->end_count;
  g->end_frames = wk__arena_alloc(&r->arena, (size_t)g->end_count * sizeof *g->end_frames);
  if (!g->end_frames) return -1;
  for (wk__activation *a = s->innermost; a; a = a->outer) {
    bool returned_into = a->depth == s->low - 1 && s->low < g->frame_count;
    if (frame_state(s, r, a, a->depth < g->common, returned_into, &g->end_frames[a->depth]) < 0) return -1;
  }
  return 0;
}

/* The root returns, and its variables die in the order of its slots: what it had at the start, on its stack too, lies
 * where the program has put it. What the region made was never there. */
static int return_state(wk__session *s, wk__segment *g) {
  const wk__activation *root = s->innermost;
  if (!root->at_start || !g->offsets[0]) return 0;
  wk__recording *r = g->recording;
  int slots = wk__frame_slot_count(&root->frame);
  wk__end_frame *end = wk__arena_alloc(&r->arena, sizeof *end);
  if (!end) return -1;
  *end = (wk__end_frame){.code = root->frame.code, .offset = root->frame.offset, .slot_count = slots};
  if (!(end->values = wk__arena_alloc(&r->arena, (size_t)(slots + 1) * sizeof *end->values))) return -1;
  for (int i = 0; i < slots; i++) {
    PyObject *o = wk__frame_slot(&root->frame, i);
    wk__reg reg = o ? wk__reg_find(r, o) : -1;
    bool was_there = o == root->at_start[i];
    end->values[i] = was_there ? WK__KEEP : reg >= 0 && r->registers[reg].kind == WK__REG_READ ? reg : -1;
  }
  g->end_frames = end;
  g->end_count = g->common = 1;
  return 0;
}

/* ---- which registers and steps are needed ---- */

static wk__reg target_of(const wk__do *step) {
  return step->dest >= 0 ? step->dest : step->kind == WK__DO_IMPURE_CALL ? step->items[1] : step->items[0];
}

static void need(bool *needed, wk__reg reg) {
  if (reg >= 0) needed[reg] = true;
}

static void mark_needed(wk__segment *g, bool *needed) {
  wk__recording *r = g->recording;
  need(needed, g->value);
  for (int f = 0; f < g->end_count; f++)
    for (int i = 0; i < g->end_frames[f].slot_count + g->end_frames[f].depth; i++)
      need(needed, g->end_frames[f].values[i]);
  for (bool more = true; more;) { /* again for changes of what an earlier step turns out to give away */
    more = false;
    for (int64_t i = r->step_count - 1; i >= 0; i--) {
      wk__do *step = &r->steps[i];
      if (step->needed || step->undone || !(wk__is_effect(r, step->kind, step->items) || needed[target_of(step)]))
        continue;
      step->needed = more = true;
      for (int k = 0; k < step->count; k++) need(needed, step->items[k]);
    }
  }
}

/* ---- the graph ---- */

static bool has_history(const wk_tensor *t) { return t && t->autograd && t->autograd->grad_fn; }

/* What the program wrote into a real tensor has no tape when the graph writes it again. A view's own history is not
 * asked for: it would be made now, by an operator that the tracer sees. Its base has it. */
static wk_status check_written(wk__session *s) {
  const wk__graph *graph = wk__tracer_graph(s->tracer);
  for (int64_t i = 0; i < graph->mutation_count; i++) {
    const wk_tensor *t = wk__tracer_input(s->tracer, graph->mutations[i].input);
    if (!t->autograd) t = wk__tracer_given(s->tracer, graph->mutations[i].input);
    if (has_history(t) || has_history(t->base))
      return wk_fail(WK_UNSUPPORTED, "an input is written with something that requires grad");
  }
  return WK_OK;
}

/* It shows what the graph has written, or has to be a view for the tape, which sees what is written through it later.
 */
static bool is_input_view(const wk__session *s, wk_tensor *t) {
  if (wk__tracer_written_under(s->tracer, t)) return true;
  bool history = t->keys & WK__KEY_AUTOGRAD || wk__grad_fn(t);
  return t->base && !history && wk__tracer_input_under(s->tracer, t) >= 0;
}

static wk_status note_input_view(wk__session *s, wk__segment *g, wk__reg reg, const wk_tensor *t) {
  wk__recording *r = g->recording;
  int input = wk__tracer_input_under(s->tracer, t);
  const wk_tensor *under = wk__tracer_input(s->tracer, input);
  if (t->keys & WK__KEY_AUTOGRAD || wk__grad_fn((wk_tensor *)t) || t->dtype != under->dtype)
    return wk_fail(WK_UNSUPPORTED, "a view of memory that was written, with a history");
  if (!g->views) g->views = wk__arena_alloc(&r->arena, (size_t)r->register_count * sizeof *g->views);
  if (!g->views) return WK_OUT_OF_MEMORY;
  wk__input_view *view = &g->views[g->view_count++];
  *view = (wk__input_view){
      .reg = reg, .input = input, .has_base = t->base, .is_data = t->own_version != under->own_version};
  wk__spec_of(&view->spec, t);
  view->spec.offset = wk_int_sub(t->offset, under->offset);
  return wk_int_check(view->spec.offset);
}

/* The outputs before this one are known, so of several views the first stands for the base that they share. */
static void note_base(wk__session *s, wk__segment *g, const wk_tensor *t, int64_t output) {
  const wk__recording *r = g->recording;
  wk__output_base *own = &g->bases[output];
  *own = (wk__output_base){.output = output};
  if (!t->base || t->keys & WK__KEY_AUTOGRAD || g->output_taped[output]) return;
  own->tensor = t->base;
  g->has_bases = true;
  wk__spec_of(&own->spec, t->base);
  for (int64_t i = 0; i < output; i++)
    if (own->output == output && g->bases[i].tensor == t->base) own->output = i;
  for (int64_t i = 0; i < output; i++) {
    if (s->binding->tensor_of(r->registers[g->outputs[i]].object) != t->base) continue;
    own->output = i;
    own->is_output = true;
  }
}

/* The base itself may come after its views. */
static void find_later_bases(wk__session *s, wk__segment *g, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    for (int64_t k = i + 1; k < count && g->bases[i].tensor && !g->bases[i].is_output; k++) {
      if (s->binding->tensor_of(g->recording->registers[g->outputs[k]].object) != g->bases[i].tensor) continue;
      g->bases[i].output = k;
      g->bases[i].is_output = true;
    }
}

/* Not that of an input from which it has it. */
static bool has_own_count(const wk__session *s, const wk_tensor *t) {
  int input = t->own_version ? wk__tracer_input_under(s->tracer, t) : -1;
  return t->own_version && (input < 0 || wk__tracer_input(s->tracer, input)->own_version != t->own_version);
}

/* An input that is written twice counts two writes, and the graph does one. Where a tape leaves the region, which may
 * have kept the input as the graph left it, it stays at that. */
static wk_status note_writes(const wk__session *s, wk__segment *g, int64_t outputs) {
  const int count = wk__tracer_input_count(s->tracer);
  for (int64_t i = 0; i < outputs; i++)
    if (g->output_taped[i]) return WK_OK;
  for (int i = 0; i < count; i++) {
    uint32_t writes = wk__tracer_input_writes(s->tracer, i);
    if (writes <= 1) continue;
    if (!g->input_writes) {
      g->input_writes = wk__arena_alloc(&g->recording->arena, (size_t)count * sizeof *g->input_writes);
      if (!g->input_writes) return WK_OUT_OF_MEMORY;
    }
    g->input_writes[i] = writes;
  }
  return WK_OK;
}

/* The nodes of needed tensors, while the tracer still knows them; their tape as it is now. */
static wk_status collect_outputs(wk__session *s, wk__segment *g, const bool *needed, wk__graph_node **nodes,
                                 wk__tape_walk *w) {
  wk__recording *r = g->recording;
  int64_t count = 0;
  if (r->input_count != wk__tracer_input_count(s->tracer)) /* one of them failed for want of memory */
    return wk_fail(WK_OUT_OF_MEMORY, "an input that is not in the graph");
  for (int i = 0; i < r->input_count; i++)
    g->requires_grad[i] = wk__tracer_given(s->tracer, i)->keys & WK__KEY_AUTOGRAD;
  for (wk__reg reg = 0; reg < r->register_count; reg++) {
    if (r->registers[reg].kind != WK__REG_TENSOR || !needed[reg]) continue;
    wk_tensor *t = s->binding->tensor_of(r->registers[reg].object);
    if (wk__tracer_shares_count(s->tracer, t)) return wk_fail(WK_UNSUPPORTED, "a view of a tensor whose data were set");
    if (is_input_view(s, t)) {
      WK_TRY(note_input_view(s, g, reg, t));
      continue;
    }
    nodes[count] = wk__tracer_node(s->tracer, t);
    if (!nodes[count]) return wk_error_category();
    if (t->autograd && t->autograd->requires_grad && !t->autograd->grad_fn)
      return wk_fail(WK_UNSUPPORTED, "a leaf that requires grad is made");
    WK_TRY(wk__tape_note(s, g, w, t, count));
    g->outputs[count] = reg;
    const wk_node *tape = wk__grad_fn(t);
    if (r->packs && tape && !tape->released && !g->spent[count].name)
      return wk_fail(WK_UNSUPPORTED, "a history that leaves the region, with tensors that saved_tensors_hooks packed");
    g->output_taped[count] = tape && !tape->released; /* after backward() it cannot be followed */
    g->output_is_data[count] = has_own_count(s, t);
    note_base(s, g, t, count);
    r->registers[reg].output = (int)count++;
  }
  find_later_bases(s, g, count);
  WK_TRY(note_writes(s, g, count));
  return check_written(s);
}

/* Small graphs are over before another thread would have begun; what is taped may call hooks written in Python. */
static bool lets_others_run(const wk__graph *graph) {
  enum { WORTH_RELEASING = 1 << 16 };
  int64_t elements = 0;
  for (const wk__graph_node *n = graph->first; n; n = n->next) {
    if (n->flags & WK__GRAPH_TAPED) return false;
    wk_int count = n->value ? wk__symbolic_value(n->value->numel) : wk_int_of(0); /* as it was when captured */
    if (wk_int_is_known(count)) elements += count.bits;
  }
  return elements >= WORTH_RELEASING;
}

static bool draws(const wk__graph *graph) {
  const wk__graph_node *n = graph->first;
  while (n && !(n->kind == WK__GRAPH_CALL && n->op->tags & WK__TAG_RANDOM)) n = n->next;
  return n != NULL;
}

/* The CPU's generator and those of all devices that the graph is on: some of them may not be drawn from. */
static wk_status note_generators(wk__segment *g, const wk__graph *graph) {
  enum { MOST_DEVICES = 64 };
  if (!draws(graph)) return WK_OK;
  wk_device found[MOST_DEVICES] = {WK__CPU_DEVICE};
  int count = 1;
  for (const wk__graph_node *n = graph->first; n && count < MOST_DEVICES; n = n->next) {
    int at = 0;
    if (!n->value || n->value->device.type == WK_META) continue;
    while (at < count && !wk__device_equal(found[at], n->value->device)) at++;
    if (at == count) found[count++] = n->value->device;
  }
  g->drawn_on = wk__arena_alloc(&g->recording->arena, (size_t)count * sizeof *found);
  if (!g->drawn_on) return WK_OUT_OF_MEMORY;
  memcpy(g->drawn_on, found, (size_t)count * sizeof *found);
  g->drawn_count = count;
  return WK_OK;
}

/* A tensor whose sizes are symbols is an input, whether or not something is computed with it. */
static bool computes(const wk__graph *graph) {
  const wk__graph_node *n = graph->first;
  while (n && n->kind == WK__GRAPH_INPUT) n = n->next;
  return n || graph->output_count || graph->mutation_count;
}

static wk_status finish_graph(wk__session *s, wk__segment *g, wk__graph *graph, wk__graph_node **nodes, int64_t count,
                              const wk__tape_walk *w) {
  for (int64_t i = 0; i < count; i++) WK_TRY(wk__graph_output(graph, nodes[i]));
  g->graph = wk__graph_retain(graph);
  WK_TRY(wk__graph_run_pass(graph, "remove_dead", wk__graph_remove_dead));
  wk__tape_mark(graph, w);
  for (int64_t i = 0; i < graph->mutation_count; i++)
    if (graph->mutations[i].node->flags & WK__GRAPH_TAPED)
      return wk_fail(WK_UNSUPPORTED, "an input is written with something that requires grad");
  WK_TRY(wk__tape_check(s, g, graph, nodes, count));
  WK_TRY(wk__graph_freeze(graph));
  g->lets_others_run = lets_others_run(graph);
  if (!computes(graph)) return WK_OK;
  WK_TRY(note_generators(g, graph));
  bool node_by_node = g->recording->keeps_tape || s->compiled->options.keeps_tape;
  const bool *differentiated = node_by_node ? NULL : g->requires_grad; /* as one node */
  WK_TRY(wk__compile_graph(graph, differentiated, s->compiled->options.mode, &g->executor));
  return wk__hook_interrupted() ? wk_fail(WK_UNSUPPORTED, "Ctrl-C while it was compiled") : WK_OK;
}

static PyObject *module_for_backend(const wk__session *s, const wk__segment *g) {  // -> new
  const wk__recording *r = g->recording;
  bool *integers = wk__arena_alloc(&g->recording->arena, (size_t)r->input_count + 1);
  if (!integers) return PyErr_NoMemory();
  for (int64_t i = 0; i < r->input_count; i++) integers[i] = PyLong_Check(r->registers[r->inputs[i]].object);
  return s->binding->graph_module(s->binding->state, g->graph, integers);
}

static PyObject *example_inputs(const wk__session *s, const wk__segment *g) {  // -> new
  PyObject **args;
  Py_ssize_t count = wk__backend_arguments(g, s->binding, NULL, &args);
  PyObject *list = count < 0 ? NULL : PyList_New(count);
  for (Py_ssize_t i = 0; i < count; i++) {
    if (list)
      PyList_SET_ITEM(list, i, args[i]);
    else
      Py_DECREF(args[i]);
  }
  if (count >= 0) PyMem_Free(args);
  return list;
}

/* The backend of compile(): it gets the graph and the tensors of this call, and gives what later calls call. */
static int call_backend(wk__session *s, wk__segment *g) {
  PyObject *backend = s->compiled->options.backend;
  if (!backend || !g->executor || !s->binding->graph_module) return 0;
  wk__mode_kind before = s->mode;
  s->mode = WK__MODE_OFF; /* the backend is no part of what is captured */
  PyObject *module = module_for_backend(s, g), *inputs = module ? example_inputs(s, g) : NULL;
  if (inputs) g->backend_call = PyObject_CallFunctionObjArgs(backend, module, inputs, NULL);
  s->mode = before;
  Py_XDECREF(module);
  Py_XDECREF(inputs);
  if (g->backend_call && !PyCallable_Check(g->backend_call)) {
    PyErr_Format(PyExc_TypeError, "a backend gives a callable, not %R", g->backend_call);
    return -1;
  }
  return g->backend_call ? 0 : -1;
}

/* ---- guards in the order of replay ---- */

static int split_reads(wk__segment *g) {
  wk__recording *r = g->recording;
  g->reads = wk__alloc((size_t)(r->read_count + 1) * sizeof *g->reads);
  g->fixed = wk__alloc((size_t)(r->read_count + 1) * sizeof *g->fixed);
  g->versions = wk__alloc_zeroed((size_t)(r->versioned_count + 1) * sizeof *g->versions);
  if (!g->reads || !g->fixed || !g->versions) return -1;
  for (int64_t i = 0; i < r->read_count; i++) {
    if (r->reads[i].skipped) continue;
    if (r->reads[i].fixed)
      g->fixed[g->fixed_count++] = r->reads[i];
    else
      g->reads[g->read_count++] = r->reads[i];
  }
  wk__segment_note_versions(g, r->versions);
  return 0;
}

/* What replay wants to know of registers and inputs without going through all of them. */
static int note_registers(wk__segment *g) {
  wk__recording *r = g->recording;
  g->loose = wk__arena_alloc(&r->arena, (size_t)(r->register_count + 1) * sizeof *g->loose);
  if (!g->loose) return -1;
  for (wk__reg reg = 0; reg < r->register_count; reg++)
    if (!r->registers[reg].fixed) g->loose[g->loose_count++] = reg;
  g->input_written = wk__arena_alloc(&r->arena, (size_t)r->input_count + 1);
  if (!g->input_written) return -1;
  g->inputs_fixed = true;
  for (int64_t i = 0; i < r->input_count; i++) g->inputs_fixed &= r->registers[r->inputs[i]].fixed;
  for (int64_t i = 0; g->graph && i < g->graph->mutation_count; i++)
    g->input_written[g->graph->mutations[i].input] = true;
  return 0;
}

/* Symbols need the graph, whose environment they live in. */
static int note_symbols(wk__segment *g, const bool *needed) {
  wk__recording *r = g->recording;
  r->tracer = NULL;
  r->codes = NULL;
  if (!r->symbol_count) return 0;
  g->symbol_values = wk__arena_alloc(&r->arena, (size_t)r->symbol_count * sizeof *g->symbol_values);
  g->integers = wk__arena_alloc(&r->arena, (size_t)(r->register_count + 1) * sizeof *g->integers);
  if (!g->symbol_values || !g->integers || !g->graph || !g->graph->env) return -1;
  for (wk__reg reg = 0; reg < r->register_count; reg++)
    if (r->registers[reg].kind == WK__REG_NUMBER && needed[reg]) g->integers[g->integer_count++] = reg;
  return 0;
}

static int keep_steps(wk__segment *g) {
  wk__recording *r = g->recording;
  g->steps = wk__arena_alloc(&r->arena, (size_t)(r->step_count + 1) * sizeof *g->steps);
  if (!g->steps) return -1;
  for (int64_t i = 0; i < r->step_count; i++)
    if (r->steps[i].needed) g->steps[g->step_count++] = r->steps[i];
  return 0;
}

/* ---- gradients that are replaced ---- */

static void mark_used(const wk__segment *g, bool *used) {
  const wk__recording *r = g->recording;
  for (int64_t i = 0; i < g->step_count; i++)
    for (int k = 0; k < g->steps[i].count; k++)
      if (g->steps[i].items[k] >= 0) used[g->steps[i].items[k]] = true;
  for (int64_t i = 0; i < r->input_count; i++) used[r->inputs[i]] = true;
  for (int d = 0; d < g->end_count; d++)
    for (int k = 0; k < g->end_frames[d].slot_count + g->end_frames[d].depth; k++)
      if (g->end_frames[d].values[k] >= 0) used[g->end_frames[d].values[k]] = true;
  if (g->end == WK__END_RETURN && g->value >= 0) used[g->value] = true;
}

static wk__reg grad_register(const wk__recording *r, wk__reg tensor) {
  for (int64_t i = 0; i < r->read_count; i++)
    if (r->reads[i].kind == WK__READ_GRAD && r->reads[i].a == tensor) return r->reads[i].dest;
  return -1;
}

static bool is_stale_already(const wk__segment *g, wk__reg tensor) {
  for (int64_t i = 0; i < g->stale_grad_count; i++)
    if (g->stale_grads[i].tensor == tensor) return true;
  return false;
}

/* Nothing between the start of the segment and the new gradient looks at the old one: what looks is a register's use.
 */
static int find_stale_grads(wk__segment *g) {
  wk__recording *r = g->recording;
  bool *used = wk__alloc_zeroed((size_t)r->register_count + 1);
  g->stale_grads = wk__arena_alloc(&r->arena, (size_t)(g->step_count + 1) * sizeof *g->stale_grads);
  if (!used || !g->stale_grads) {
    wk__free(used);
    return -1;
  }
  mark_used(g, used);
  for (int64_t i = 0; i < g->step_count; i++) {
    if (g->steps[i].kind != WK__DO_SET_GRAD || is_stale_already(g, g->steps[i].items[0])) continue;
    wk__stale_grad stale = {g->steps[i].items[0], grad_register(r, g->steps[i].items[0])};
    if (stale.grad >= 0 && !used[stale.grad]) g->stale_grads[g->stale_grad_count++] = stale;
  }
  wk__free(used);
  return 0;
}

/* Objects stay only where replay takes them from. */
static void drop_objects(wk__segment *g) {
  wk__recording *r = g->recording;
  for (int64_t i = 0; i < r->register_count; i++) {
    if (!r->registers[i].fixed) WK__BURY(r->registers[i].object);
    WK__BURY(r->registers[i].before);
    WK__BURY(r->registers[i].names);
  }
  wk__forget_identities(r);
  wk__forget_tried(r);
  wk__forget_left_hooks(r);
  wk__let_kept_go(r);
  wk__map_release(&r->by_object);
  wk__map_release(&r->read_before);
  wk__map_release(&r->fresh);
  wk__map_release(&r->expressions);
  wk__map_release(&r->functions);
  wk__map_release(&r->hooks);
  wk__map_release(&r->hook_dicts);
  wk__map_release(&r->hooked_nodes);
  wk__map_release(&r->node_tensors);
  wk__map_release(&r->hooked_leaves);
}

static void keep(wk__session *s, wk__segment *g) {
  g->owner = s->compiled;
  g->next = s->compiled->segments;
  s->compiled->segments = g;
  s->compiled->segment_count++;
  s->compiled->capture_count++;
  if (g->end != WK__END_RETURN) s->compiled->break_count++;
  wk__mode_kind before = s->mode;
  s->mode = WK__MODE_OFF; /* showing objects may run Python code, which is no part of what is captured */
  wk__segment_log(g);
  if (WK_UNLIKELY(s->binding->notes != NULL)) wk__note_segment(s, g);
  s->mode = before;
}

/* Nothing alive that is needed can be lost: a segment that cannot say how its state is made again is not kept, and its
 * instruction is not tried again. */
static void report_unkept(wk__session *s, wk__segment *g, const char *why) {
  if (wk__log_on(WK__LOG_BREAKS)) wk__log_print(WK__LOG_BREAKS, "%s:%d: not kept: %s", g->file, g->line, why);
  if (WK_UNLIKELY(s->binding->notes != NULL)) wk__note_unkept(s, g->file, g->line, why);
  wk__compiled *c = s->compiled;
  c->unkept_count++;
  c->functions_break |= g->recording->has_functions;
  struct wk__unkept here = {g->codes[g->frame_count - 1], g->offsets[g->frame_count - 1], 1};
  for (int64_t i = 0; i < c->unkept_size; i++)
    if (c->unkept[i].code == here.code && c->unkept[i].offset == here.offset) {
      c->unkept[i].count++;
      return;
    }
  if (wk__grow(&c->unkept, &c->unkept_capacity, c->unkept_size + 1, sizeof *c->unkept) == WK_OK)
    c->unkept[c->unkept_size++] = here;
}

/* What is worked out between the last instruction and the kept segment. */
typedef struct ending {
  wk__session *session;
  wk__segment *segment;
  bool *needed;           /* (registers) owned */
  wk__graph_node **nodes; /* (output_count) owned array */
  int64_t output_count;
  wk__tape_walk tape;
  bool kept;  /* so far nothing stands against it */
  int result; /* -1: the graph or the backend raised */
} ending;

static void not_kept(ending *e) {
  wk__record_failed(e->segment->recording, "%s", wk_error_message());
  wk_error_clear();
  e->kept = false;
}

static bool make_room(ending *e) {
  wk__segment *g = e->segment;
  wk__arena *arena = &g->recording->arena;
  size_t count = (size_t)g->recording->register_count + 1;
  e->needed = wk__alloc_zeroed(count);
  e->nodes = wk__alloc_zeroed(count * sizeof *e->nodes);
  g->outputs = wk__arena_alloc(arena, count * sizeof *g->outputs);
  g->output_taped = wk__arena_alloc(arena, count);
  g->output_is_data = wk__arena_alloc(arena, count);
  g->spent = wk__arena_alloc(arena, count * sizeof *g->spent);
  g->sliced = wk__arena_alloc(arena, count);
  g->requires_grad = wk__arena_alloc(arena, count);
  g->bases = wk__arena_alloc(arena, count * sizeof *g->bases);
  return g->requires_grad && g->bases && e->needed && e->nodes && g->outputs && g->output_taped && g->output_is_data &&
         g->spent && g->sliced;
}

/* While the tracer still knows the tensors: where everything comes from that is alive at the end. */
static void describe_end(ending *e, PyObject *value) {
  wk__session *s = e->session;
  wk__segment *g = e->segment;
  wk__recording *r = g->recording;
  PyObject *handled = PyErr_GetHandledException();
  if (handled != s->handled_at_start) wk__record_failed(r, "an except block is entered or left");
  wk__bury(handled);
  if (s->binding->overrides(s->binding->state) != s->overrides_at_start)
    wk__record_failed(r, "a block without __torch_function__ is entered or left");
  if (r->device_blocks) wk__record_failed(r, "a block of a default device is entered or left");
  if (wk__thread.saver != s->saver_at_start) wk__record_failed(r, "saved_tensors_hooks are entered or left");
  if (wk__thread.mode.level != s->level_at_start)
    wk__record_failed(r, "a level of a function transform is begun or ended");
  if (wk__thread.mode.grad_enabled != s->grad_at_start) g->grad_after = wk__thread.mode.grad_enabled;
  if (wk__autocast_mode() != s->autocast_at_start) g->autocast_after = wk__autocast_mode();
  wk__check_tried(s, r);
  wk__note_left_hooks(s, r);
  wk__note_changed(r, s->binding);
  e->kept = !r->failed[0];
  if (e->kept) e->kept = (value ? register_of(s, r, value, &g->value) : end_state(s, g)) == 0;
  if (e->kept && value) e->kept = return_state(s, g) == 0;
  if (e->kept) e->kept = make_room(e);
  if (e->kept) {
    mark_needed(g, e->needed);
    if (collect_outputs(s, g, e->needed, e->nodes, &e->tape) != WK_OK) not_kept(e);
  }
  PyErr_Clear();
  while (e->kept && e->nodes[e->output_count]) e->output_count++;
}

/* A gradient that nothing behind the start of the region reads: it need not last while the graph is run. */
static void drop_old_grads(const ending *e) {
  wk__recording *r = e->segment->recording;
  for (int64_t i = 0; e->kept && i < r->read_count; i++) {
    wk__reg reg = r->reads[i].kind == WK__READ_GRAD ? r->reads[i].dest : -1;
    if (reg < 0 || e->needed[reg]) continue;
    wk__register *old = &r->registers[reg];
    if (old->fixed || old->input >= 0 || !old->object) continue;
    wk__map_remove(&r->by_object, (uintptr_t)old->object);
    WK__BURY(old->object);
  }
}

/* The graph has been run: what later calls run of it. */
static void take_graph(ending *e, wk__graph *graph) {
  if (!e->kept) return;
  if (wk__check_marks(e->session, e->segment, graph) < 0) {
    e->result = -1;
    e->kept = false;
    return;
  }
  if (graph && finish_graph(e->session, e->segment, graph, e->nodes, e->output_count, &e->tape) != WK_OK) not_kept(e);
  bool well = !e->kept || (call_backend(e->session, e->segment) == 0 && wk__filter_guards(e->session, e->segment) == 0);
  if (well) return;
  e->result = -1;
  e->kept = false;
}

static void keep_or_release(ending *e) {
  wk__session *s = e->session;
  wk__segment *g = e->segment;
  bool complete = e->kept && note_symbols(g, e->needed) == 0 && split_reads(g) == 0 && keep_steps(g) == 0 &&
                  find_stale_grads(g) == 0 && note_registers(g) == 0;
  if (complete) {
    drop_objects(g);
    atomic_fetch_add(&g->references, 1); /* a log shows objects, whose code may forget the segment */
    keep(s, g);
    if (g->owner && wk__segment_watch_models(s, g) < 0) PyErr_Clear(); /* what is not watched is owned */
    wk__segment_release(g);
    return;
  }
  if (!e->result) report_unkept(s, g, g->recording->failed);
  wk__segment_release(g);
}

int wk__segment_end(wk__session *s, wk__end_kind end, PyObject *value) {
  ending e = {.session = s, .segment = segment_create(s, end)};
  if (!e.segment) {
    PyErr_NoMemory();
    return -1;
  }
  s->ending = e.segment->recording;
  describe_end(&e, value);
  wk__segment_stop_recording(s);
  s->ending = NULL;
  drop_old_grads(&e);
  wk__graph *graph = NULL;
  if (wk__tracer_flush(s->tracer, &graph) != WK_OK) {
    s->binding->raise(s->binding->state);
    e.result = -1;
    e.kept = false;
  }
  take_graph(&e, graph);
  keep_or_release(&e);
  wk__graph_release(graph);
  wk__free(e.needed);
  wk__free(e.nodes);
  wk__tape_walk_release(&e.tape);
  return e.result;
}
