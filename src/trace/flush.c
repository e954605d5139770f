/* Making traced tensors real: runs the graph, moves the results' bytes into the storages that wait for them.
 * In: a tracer with a graph. Out: no lazy storage is left, real tensors have their pending values, the graph belongs to
 * the caller. Tests: tests/c/test_trace.c. */
#include <stdio.h>

#include "execute/execute.h"
#include "graph/internal.h"
#include "trace/internal.h"

/* ---- one storage ---- */

static void move_bytes(wk_storage *to, wk_storage *from) {
  to->data = from->data;
  to->bytes = from->bytes;
  to->capacity = from->capacity;
  to->release = from->release;
  to->context = from->context;
  to->stream = from->stream;
  from->data = NULL;
  from->capacity = 0;
  from->bytes = 0;
  from->release = NULL;
}

static bool laid_out_alike(const wk_tensor *made, const wk_tensor *whole) {
  if (made->offset.bits != 0 || made->ndim != whole->ndim) return false;
  for (int d = 0; d < whole->ndim; d++)
    if (made->sizes[d].bits != whole->sizes[d].bits ||
        (made->strides[d].bits != whole->strides[d].bits && whole->sizes[d].bits > 1))
      return false;
  return true;
}

/* Tensors on such a device have no storage at all. */
static bool has_no_bytes(const wk__trace_cell *c) { return c->whole->device.type == WK_META; }

/* The value's bytes become the storage's: moved when there is no other reference to them, else copied. */
static wk_status adopt(wk__trace_cell *c, wk_tensor *made) {
  if (has_no_bytes(c)) return WK_OK;
  bool alone = atomic_load_explicit(&made->storage->references, memory_order_acquire) == 1 &&
               atomic_load_explicit(&made->references, memory_order_acquire) == 1;
  if (alone && laid_out_alike(made, c->whole)) {
    move_bytes(c->storage, made->storage);
    return WK_OK;
  }
  wk__spec spec;
  wk__spec_of(&spec, c->whole);
  wk_tensor *copy = wk__tensor_from_spec(&spec);
  wk_status status = copy ? wk__copy_into(copy, made) : wk_error_category();
  if (status == WK_OK) move_bytes(c->storage, copy->storage);
  wk__release(copy);
  return status;
}

/* After a failure: the storage gets bytes that show it (NaN, -1). When even that fails there is nothing left to do. */
static void poison(wk__trace_cell *c) {
  wk__spec spec;
  wk__spec_of(&spec, c->whole);
  wk_tensor *filler = wk__tensor_from_spec(&spec);
  if (!filler) return;
  (void)!wk__fill_bytes(filler, 0xff);
  move_bytes(c->storage, filler->storage);
  wk__release(filler);
}

/* ---- all of them ---- */

static wk_status add_outputs(wk__tracer *t) {
  for (wk__trace_cell *c = t->lazy; c; c = c->next) WK_TRY(wk__graph_output(t->graph, c->node));
  return WK_OK;
}

/* Writes were counted when they were traced. */
static uint32_t *versions_of(const wk__tracer *t) {
  uint32_t *versions = wk__alloc((size_t)(t->input_count + 1) * sizeof *versions);
  for (int64_t i = 0; versions && i < t->input_count; i++) versions[i] = wk__version(t->inputs[i]);
  return versions;
}
static void restore_versions(const wk__tracer *t, const uint32_t *versions) {
  for (int64_t i = 0; i < t->input_count; i++) {
    const wk_tensor *input = t->inputs[i];
    if (!input->storage) continue;
    atomic_store_explicit(input->own_version ? &input->own_version->version : &input->storage->version, versions[i],
                          memory_order_relaxed);
  }
}

static wk_status run(wk__tracer *t, wk_tensor **outputs) {
  wk__graph_executor *executor = NULL;
  uint32_t *versions = versions_of(t);
  wk_status status = versions ? wk__graph_executor_create_once(t->graph, &executor) : WK_OUT_OF_MEMORY;
  if (status == WK_OK && t->owner.between_steps)
    wk__graph_executor_ask(executor, t->owner.between_steps, t->owner.context);
  if (status == WK_OK) status = wk__graph_execute(executor, t->inputs, NULL, outputs);
  if (versions) restore_versions(t, versions);
  wk__graph_executor_release(executor);
  wk__free(versions);
  return status;
}

static wk_status fill(wk__tracer *t, wk_tensor **outputs) {
  wk_status status = WK_OK;
  int64_t i = 0;
  for (wk__trace_cell *c = t->lazy; c; c = c->next, i++) {
    if (status == WK_OK) status = adopt(c, outputs[i]);
    wk__release(outputs[i]);
    outputs[i] = NULL;
  }
  return status;
}

static void poison_rest(wk__tracer *t) {
  wk_status category = wk_error_category();
  char text[1024];
  snprintf(text, sizeof text, "%s", wk_error_message());
  for (wk__trace_cell *c = t->lazy; c; c = c->next)
    if (!c->storage->data && !has_no_bytes(c)) poison(c);
  (void)wk_fail(category, "%s", text);
}

/* What was traced on a device without bytes has waited in a lazy storage like everything else: from now on it has none,
 * as such tensors have in eager mode. The cells' notes are gone behind this. */
static void drop_empty_storages(wk__tracer *t) {
  for (wk__trace_record *r = t->records; r; r = r->next) {
    wk_storage *storage = r->tensor->storage;
    if (!storage || !storage->trace || !has_no_bytes(storage->trace)) continue;
    r->tensor->storage = NULL;
    wk__storage_release(storage);
  }
}

static wk_status compute_values(wk__tracer *t) {
  WK_TRY(add_outputs(t));
  if (t->undone) WK_TRY(wk__graph_remove_dead(t->graph, NULL));
  t->undone = false;
  int64_t count = t->graph->output_count;
  /* random operators advance the generator, whether or not their values are used */
  if (!count && !t->graph->mutation_count && !wk__graph_has_effects(t->graph)) return WK_OK;
  wk_tensor **outputs = wk__alloc_zeroed((size_t)(count + 1) * sizeof *outputs);
  if (!outputs) return WK_OUT_OF_MEMORY;
  wk_status status = run(t, outputs);
  if (status == WK_OK) status = fill(t, outputs);
  for (int64_t i = 0; i < count; i++) wk__release(outputs[i]);
  wk__free(outputs);
  return status;
}

wk_status wk__tracer_flush(wk__tracer *t, wk__graph **out_graph) {
  *out_graph = NULL;
  wk__graph *next = wk__graph_create();
  wk_status status = next ? WK_OK : WK_OUT_OF_MEMORY;
  t->running = true;
  wk__trace_make_known(t); /* storages and kernels want numbers */
  if (status == WK_OK) status = compute_values(t);
  if (status != WK_OK) poison_rest(t);
  t->running = false;
  drop_empty_storages(t);
  wk__trace_forget(t);
  if (!next) return status;
  wk__graph_clear_outputs(t->graph);
  *out_graph = t->graph;
  t->graph = next;
  return status;
}
