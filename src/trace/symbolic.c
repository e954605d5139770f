/* Symbolic sizes while tracing: real tensors whose owner describes them by symbols have symbolic geometry until the
 * flush, so that every shape rule, composite and derivative that looks at them computes with symbols.
 *
 * In: a description of an input; tensors and tape nodes that come to hold symbolic integers. Out: at the flush all of
 * them hold the symbols' values again. Invariant: whatever outlives the graph and may hold its symbols is in the
 * tracer's list of holders, because the symbols live in the graph's environment. Tests: tests/ops/test_symbolic.py. */
#include <pthread.h>

#include "graph/internal.h"
#include "trace/internal.h"

struct wk__trace_holder {
  wk__trace_holder *previous, *next; /* of the tracer */
  wk__tracer *tracer;
  void *object;
  wk__make_known *make_known;
};

/* Objects may die in any thread. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wk__map holders; /* object -> its entry */

/* ================================================== who holds symbols ============================================ */

static wk_status add_holder(wk__tracer *t, void *object, wk__make_known *make_known) {
  wk__trace_holder *h = wk__alloc_zeroed(sizeof *h);
  if (!h) return WK_OUT_OF_MEMORY;
  *h = (wk__trace_holder){.next = t->holders, .tracer = t, .object = object, .make_known = make_known};
  if (wk__map_set(&holders, (uint64_t)(uintptr_t)object, h) != WK_OK) {
    wk__free(h);
    return WK_OUT_OF_MEMORY;
  }
  if (h->next) h->next->previous = h;
  t->holders = h;
  return WK_OK;
}

wk_status wk__trace_symbolic_hold(void *object, wk__make_known *make_known) {
  if (!wk__thread.symbols_of)
    return wk_fail(WK_INTERNAL_ERROR, "a tensor with symbolic sizes was made outside of the trace");
  pthread_mutex_lock(&lock);
  bool there = wk__map_get(&holders, (uint64_t)(uintptr_t)object);
  wk_status status = there ? WK_OK : add_holder(wk__thread.symbols_of, object, make_known);
  pthread_mutex_unlock(&lock);
  return status;
}

bool wk__trace_has_symbols(void) { return wk__thread.symbols_of != NULL; }

static void remove_holder(wk__trace_holder *h) {
  if (h->previous) h->previous->next = h->next;
  if (h->next) h->next->previous = h->previous;
  if (h->tracer->holders == h) h->tracer->holders = h->next;
  wk__map_remove(&holders, (uint64_t)(uintptr_t)h->object);
  wk__free(h);
}

void wk__trace_symbolic_drop(void *object) {
  pthread_mutex_lock(&lock);
  wk__trace_holder *h = wk__map_get(&holders, (uint64_t)(uintptr_t)object);
  if (h) remove_holder(h);
  pthread_mutex_unlock(&lock);
}

/* ==================================================== back to values ============================================= */

/* The entries go first: making one object known may drop others. */
void wk__trace_make_known(wk__tracer *t) {
  for (;;) {
    pthread_mutex_lock(&lock);
    wk__trace_holder *h = t->holders, taken = h ? *h : (wk__trace_holder){0};
    if (h) remove_holder(h);
    pthread_mutex_unlock(&lock);
    if (!h) break;
    taken.make_known(taken.object);
  }
  for (int64_t i = 0; i < t->shape_count; i++)
    if (t->shapes[i]->flags & WK__TENSOR_SYMBOLIC) wk__tensor_make_known(t->shapes[i]);
  if (wk__thread.symbols_of == t) wk__thread.symbols_of = NULL;
  if (t->uses_symbols) atomic_fetch_sub(&wk__symbolic_traces, 1);
  t->uses_symbols = false;
}

/* ======================================================= inputs ================================================== */

wk__shape_env *wk__tracer_env(wk__tracer *t) {
  if (!t->uses_symbols) atomic_fetch_add(&wk__symbolic_traces, 1);
  t->uses_symbols = true;
  return wk__graph_env(t->graph);
}

static bool describes(const wk_tensor *description, const wk_tensor *tensor) {
  wk__spec spec;
  if (description->ndim != tensor->ndim || description->dtype != tensor->dtype) return false;
  wk__spec_of(&spec, description);
  wk__spec_make_known(&spec);
  if (!wk_int_same(spec.offset, tensor->offset)) return false;
  for (int d = 0; d < tensor->ndim; d++)
    if (!wk_int_same(spec.sizes[d], tensor->sizes[d]) || !wk_int_same(spec.strides[d], tensor->strides[d]))
      return false;
  return true;
}

wk_status wk__trace_describe(wk__tracer *t, wk_tensor *tensor, const wk_tensor *description) {
  wk__spec spec;
  if (!(description->flags & WK__TENSOR_SYMBOLIC)) return WK_OK;
  if (!describes(description, tensor))
    return wk_fail(WK_INTERNAL_ERROR, "the description of an input does not have the tensor's sizes and strides");
  wk__thread.symbols_of = t;
  WK_TRY(wk__symbolic_hold(tensor, wk__tensor_make_known));
  wk__spec_of(&spec, description);
  spec.device = tensor->device;
  wk_status status = wk__tensor_set_geometry(tensor, &spec);
  if (status != WK_OK) wk__symbolic_drop(tensor); /* it has no symbols, so it will not do that itself */
  return status;
}

wk_status wk__tracer_size_input(wk__tracer *t, wk_int symbol) {
  wk__spec described, now;
  wk_int value = wk__symbolic_value(symbol);
  wk__thread.symbols_of = t;
  wk__spec_contiguous(&described, WK_UINT8, WK__CPU_DEVICE, 1, &symbol);
  wk__spec_contiguous(&now, WK_UINT8, WK__CPU_DEVICE, 1, &value);
  WK_TRY(wk__grow(&t->inputs, &t->input_capacity, t->input_count + 1, sizeof *t->inputs));
  wk_tensor *description = wk__tensor_shape_only(&described), *input = wk__tensor_shape_only(&now);
  bool made = description && input && wk__graph_input(t->graph, description, "size");
  wk__release(description);
  if (!made) {
    wk__release(input);
    return wk_error_category();
  }
  t->inputs[t->input_count++] = input;
  return WK_OK;
}
