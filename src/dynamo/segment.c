/* The beginning of a recording, what the tracer and the tape ask while it lasts, and the life of a segment.
 * In: a session at a position. Out: a recording, which segment_end.c makes a segment of. Tests:
 * tests/python/capture/. */
#include "dynamo/capture/known.h"
#include "dynamo/capture/numbers.h"
#include "dynamo/explain.h"

#include <stdio.h>

#include "autograd/autograd.h"

/* ============================================ what the tracer asks =============================================== */

/* A real tensor is about to become an input: it must be known where it comes from. */
static wk_status find_input(void *context, wk_tensor *tensor, const char **out_name, wk_tensor **out_description) {
  wk__session *s = context;
  wk__recording *r = s->recording ? s->recording : s->ending;
  (void)out_name;
  wk__reg reg = tensor->wrapper ? wk__reg_find(r, tensor->wrapper) : -1;
  if (reg < 0 || r->registers[reg].kind == WK__REG_TENSOR)
    return wk_fail(WK_UNSUPPORTED, "a tensor that came from unknown code is used");
  if (wk__grow(&r->inputs, &r->input_capacity, r->input_count + 1, sizeof *r->inputs) != WK_OK) return WK_OUT_OF_MEMORY;
  wk__tensor_spec *spec = r->registers[reg].spec >= 0 ? r->specs[r->registers[reg].spec] : NULL;
  if (spec && spec->dynamic) WK_TRY(wk__describe_tensor(r, reg, tensor, spec, out_description));
  r->registers[reg].input = (int)r->input_count;
  r->inputs[r->input_count++] = reg;
  return WK_OK;
}

/* The line of a frame, with the lines that called it behind it: one object for all nodes of one line. */
static const wk__source_line *source_of(wk__graph *graph, wk__activation *a) {
  if (!a) return NULL;
  const wk__source_line *caller = source_of(graph, a->outer);
  int line = wk__frame_line(&a->frame);
  if (a->source && a->source->line == line && a->source->caller == caller) return a->source;
  const char *file = PyUnicode_AsUTF8(a->frame.code->co_filename), *name = PyUnicode_AsUTF8(a->frame.code->co_name);
  return a->source = wk__source_line_add(graph, caller, file ? file : "?", name ? name : "?", line);
}

static const wk__source_line *source(void *context, wk__graph *graph) {
  const wk__session *s = context;
  const wk__source_line *line = source_of(graph, s->innermost);
  PyErr_Clear();
  return line;
}

static void trace_ended(void *context, const char *reason) { wk__session_give_up(context, reason); }

static void number_fits(void *context, int number, wk_dtype dtype) {
  wk__recording *r = ((wk__session *)context)->recording;
  if (!r || number >= r->number_count) return;
  wk__check_once(r, WK__CHECK_FITS, r->numbers[number], dtype, NULL);
}

/* A result has as many rows as values say. One graph was asked for, or they were asked for. */
static wk_int rows(void *context, int64_t now) {
  wk__session *s = context;
  bool wanted = s->recording && wk__takes_counted(s, s->recording->takes_item);
  if (now < 0) return wanted ? wk_int_of(0) : WK_INT_POISONED;
  return wanted ? wk__counted_rows(s->recording, now) : WK_INT_POISONED;
}

/* ---- what the tape does to leaves ---- */

static void grad_read(void *context, wk_tensor *leaf) {
  wk__session *s = context;
  wk__recording *r = s->recording;
  wk__reg reg = leaf->wrapper && r ? wk__reg_find(r, leaf->wrapper) : -1;
  if (reg < 0 || !wk__is_foreign(r, leaf->wrapper) || wk__was_written(r, reg, s->binding->grad_name)) return;
  PyObject *grad = s->binding->grad_of(leaf->wrapper);
  if (grad)
    (void)!wk__observe(r, s->binding, grad, WK__READ_GRAD, reg, 0, NULL);
  else
    wk__check_once(r, WK__CHECK_NO_GRAD, reg, 0, NULL);
  Py_XDECREF(grad);
}

static void grad_written(void *context, wk_tensor *leaf) {
  wk__session *s = context;
  if (!s->recording || !leaf->wrapper) return;
  wk__reg reg = wk__reg_find(s->recording, leaf->wrapper);
  if (reg < 0) return; /* made in the region, and not needed so far */
  PyObject *grad = s->binding->grad_of(leaf->wrapper), *items[] = {leaf->wrapper, grad};
  wk__reg known = grad ? wk__reg_find(s->recording, grad) : -1;
  bool same = known >= 0 && s->recording->registers[known].kind == WK__REG_READ;
  if (!same) (void)!wk__did(s->recording, s->binding, WK__DO_SET_GRAD, NULL, items, 2, NULL);
  wk__mark_written(s->recording, reg, s->binding->grad_name);
  Py_XDECREF(grad);
}

static void leaf_reached(void *context, wk_tensor *leaf) {
  wk__session *s = context;
  if (s->recording && leaf->wrapper) wk__observe_leaf_hooks(s, s->recording, leaf);
}

/* Running it spends it, and nothing that is checked tells which operators it stands for. */
static void old_node_runs(void *context) { wk__session_give_up(context, "backward() of what was recorded before"); }

/* ================================================= beginning ===================================================== */

void wk__activation_forget_start(wk__activation *a) {
  for (int i = 0; a->at_start && i < a->slots_at_start + a->stack_at_start; i++) wk__bury(a->at_start[i]);
  PyMem_Free(a->at_start);
  PyMem_Free(a->seen);
  PyMem_Free(a->stored);
  a->at_start = NULL;
  a->seen = a->stored = NULL;
}

static int note_start(wk__activation *a) {
  wk__activation_forget_start(a);
  a->source = NULL;
  int slots = wk__frame_slot_count(&a->frame), depth = wk__frame_depth(&a->frame);
  a->at_start = PyMem_Calloc((size_t)(slots + depth + 1), sizeof *a->at_start);
  a->seen = PyMem_Calloc((size_t)slots + 1, sizeof *a->seen);
  a->stored = PyMem_Calloc((size_t)slots + 1, sizeof *a->stored);
  if (!a->at_start || !a->seen || !a->stored) {
    PyErr_NoMemory();
    return -1;
  }
  a->slots_at_start = slots;
  a->stack_at_start = depth;
  for (int i = 0; i < slots; i++) a->at_start[i] = Py_XNewRef(wk__frame_slot(&a->frame, i));
  for (int i = 0; i < depth; i++) a->at_start[slots + i] = Py_XNewRef(wk__frame_stack(&a->frame, i));
  return 0;
}

/* What lies on the stacks is used without anybody asking for it. */
static int observe_stack(wk__session *s, wk__activation *a) {
  for (int i = 0; i < a->stack_at_start; i++) {
    PyObject *o = a->at_start[a->slots_at_start + i];
    if (!o) { /* a variable that waits there for the end of an inlined comprehension may be bound or not */
      wk__check(s->recording, WK__CHECK_UNBOUND, a->depth, a->slots_at_start + i, NULL);
      continue;
    }
    if (wk__observe(s->recording, s->binding, o, WK__READ_STACK, a->depth, i, NULL) < 0) return -1;
    PyObject *object = wk__as_read(s->recording, o);
    if (object != o) { /* an equal number that the program puts there is not the one that was there */
      wk__frame_put(&a->frame, a->slots_at_start + i, object);
      Py_SETREF(a->at_start[a->slots_at_start + i], Py_NewRef(object));
    }
    Py_DECREF(object);
  }
  return 0;
}

static int note_position(wk__session *s) {
  int count = s->innermost->depth + 1;
  PyMem_Free(s->start_codes);
  PyMem_Free(s->start_offsets);
  s->start_codes = PyMem_Malloc((size_t)count * sizeof *s->start_codes);
  s->start_offsets = PyMem_Malloc((size_t)count * sizeof *s->start_offsets);
  if (!s->start_codes || !s->start_offsets) {
    PyErr_NoMemory();
    return -1;
  }
  s->start_count = count;
  for (wk__activation *a = s->innermost; a; a = a->outer) {
    s->start_codes[a->depth] = a->frame.code;
    s->start_offsets[a->depth] = a == s->innermost ? a->frame.next : a->frame.offset;
  }
  return 0;
}

static void prepare_recording(const wk__session *s, wk__recording *r) {
  const wk__compile_options *options = &s->compiled->options;
  r->changing = &s->compiled->changing;
  r->codes = s->start_codes;
  r->dynamic = options->dynamic;
  r->tracer = s->tracer;
}

int wk__segment_begin(wk__session *s) {
  wk__trace_owner owner = {.context = s,
                           .input = find_input,
                           .source = source,
                           .ended = trace_ended,
                           .number_fits = number_fits,
                           .rows = rows,
                           .between_steps = wk__session_between_steps,
                           .has_numbers = true,
                           .follows_tape = s->compiled->follows_tape,
                           .ends_on_reads = true,
                           .checks_values = true};
  if (!s->tracer && !(s->tracer = wk__tracer_create(&owner))) {
    PyErr_NoMemory();
    return -1;
  }
  if (!(s->recording = wk__recording_create())) {
    PyErr_NoMemory();
    return -1;
  }
  if (note_position(s) < 0) return -1;
  prepare_recording(s, s->recording);
  s->mode = WK__MODE_CAPTURE;
  s->capture_ended = false;
  s->began = wk__nanoseconds();
  s->low = s->start_count;
  s->grad_at_start = wk__thread.mode.grad_enabled;
  s->autocast_at_start = wk__autocast_mode();
  s->backward_depth_at_start = (int)wk__thread.backward_depth;
  s->level_at_start = wk__thread.mode.level;
  s->saver_at_start = wk__thread.saver;
  s->overrides_at_start = s->binding->overrides(s->binding->state);
  WK__BURY(s->handled_at_start);
  s->handled_at_start = PyErr_GetHandledException();
  s->reason[0] = 0;
  for (wk__activation *a = s->innermost; a; a = a->outer) {
    if (note_start(a) < 0) return -1;
    if (observe_stack(s, a) < 0 && PyErr_Occurred()) return -1; /* else the recording says why it will not be kept */
  }
  s->watcher = (wk__grad_watcher){.context = s,
                                  .first = wk__node_next_sequence(),
                                  .old_node_runs = old_node_runs,
                                  .grad_read = grad_read,
                                  .grad_written = grad_written,
                                  .leaf_reached = leaf_reached};
  wk__thread.mode.grad_watcher = &s->watcher;
  wk__tracer_resume(s->tracer);
  return 0;
}

void wk__segment_note_left(wk__session *s, const wk__activation *a) {
  wk__recording *r = s->recording;
  if (a->depth < s->low) s->low = a->depth;
  if (!r || !a->at_start || a->depth >= s->start_count) return;
  size_t slots = (size_t)a->slots_at_start + 1, frames = (size_t)s->start_count;
  bool *changed = wk__arena_alloc(&r->arena, slots * sizeof *changed);
  if (changed && !r->left && (r->left = wk__arena_alloc(&r->arena, frames * sizeof *r->left))) {
    for (int d = 0; d < s->start_count; d++) r->left[d] = (struct wk__left){NULL, 0};
    r->left_count = s->start_count;
  }
  if (!changed || !r->left) {
    wk__record_failed(r, "out of memory");
    return;
  }
  for (int i = 0; i < a->slots_at_start; i++) changed[i] = wk__frame_slot(&a->frame, i) != a->at_start[i];
  r->left[a->depth] = (struct wk__left){changed, a->slots_at_start};
}

void wk__segment_stop_recording(wk__session *s) {
  WK__BURY(s->handled_at_start);
  wk__thread.mode.grad_watcher = NULL;
  wk__tracer_pause(s->tracer);
  for (wk__activation *a = s->innermost; a; a = a->outer) wk__activation_forget_start(a);
}

int wk__segment_discard(wk__session *s) {
  if (!s->recording) return 0;
  wk__segment_stop_recording(s);
  wk__graph *graph = NULL;
  bool failed = wk__tracer_flush(s->tracer, &graph) != WK_OK;
  if (failed) s->binding->raise(s->binding->state);
  wk__graph_release(graph);
  wk__recording_empty(s->recording);
  s->recording->retired_before = s->retired;
  s->retired = s->recording;
  s->recording = NULL;
  return failed ? -1 : 0;
}

void wk__session_drop_retired(wk__session *s) {
  while (s->retired) {
    wk__recording *r = s->retired;
    s->retired = r->retired_before;
    wk__recording_release(r);
  }
}

/* ==================================================== the life ==================================================== */

wk__segment *wk__segment_next(wk__compiled *c, wk__segment *g) {
  wk__segment *next = !g ? c->segments : g->owner ? g->next : NULL;
  if (next) atomic_fetch_add(&next->references, 1);
  wk__segment_release(g);
  return next;
}

void wk__segment_release(wk__segment *g) {
  if (!g || atomic_fetch_sub(&g->references, 1) != 1) return;
  if (WK_UNLIKELY(g->notes != NULL)) wk__note_gone(g);
  if (g->life) PyCapsule_SetContext(g->life, NULL); /* what goes below may tell of a model's death */
  wk__bury(g->life);
  wk__bury(g->watchers);
  wk__bury(g->notes);
  for (int i = 0; i < g->frame_count; i++) wk__bury((PyObject *)g->codes[i]);
  PyMem_Free(g->codes);
  PyMem_Free(g->offsets);
  wk__compiled_graph_release(g->executor);
  wk__graph_release(g->graph);
  wk__bury(g->backend_call);
  wk__recording_release(g->recording);
  wk__free(g->reads);
  wk__free(g->fixed);
  wk__free(g->versions);
  PyMem_Free(g->idle_values);
  wk__free(g);
}
