/* The engine: runs nodes from the results back to the leaves, each once, when all its gradients have arrived, latest
 * recorded first. No recursion: a chain of any length works. A backward inside a hook is a run of its own.
 * In: tensors and their gradients. Out: accumulated leaves, or gradients of the inputs asked for.
 * Tests: tests/c/test_autograd.c, tests/python/test_autograd.py. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "autograd/autograd.h"
#include "ops/internal.h"

typedef struct task {   /* one node of one run */
  wk_node *node;        /* borrowed: the roots hold the graph */
  wk_tensor **grads;    /* (result_count) owned */
  int32_t dependencies; /* nodes that still have a gradient to send */
  bool needed;          /* has to run: leads to an input that was asked for */
  bool captured;        /* is an input that was asked for: its gradient has to arrive */
} task;

typedef struct run {
  const wk__backward *request;
  wk__map index; /* node -> task + 1 */
  task *tasks;
  int64_t count, capacity;
  int64_t *heap; /* tasks that are ready, latest sequence on top */
  int64_t heap_count, heap_capacity;
  wk__edge *root_edges;   /* (count) owned: they hold the graph while it runs */
  wk_tensor **root_grads; /* (count) owned, until they are sent; in the same memory */
  wk__edge *input_edges;  /* (input_count) owned */
} run;

static bool is_accumulator(const wk_node *n) { return n->sequence == UINT64_MAX; }

/* ---- discovery ---- */

static int64_t find(const run *r, const wk_node *n) {
  return (int64_t)(intptr_t)wk__map_get(&r->index, (uint64_t)(uintptr_t)n) - 1;
}

static wk_status add_task(run *r, wk_node *n, int64_t *out) {
  *out = find(r, n);
  if (*out >= 0) return WK_OK;
  WK_TRY(wk__grow(&r->tasks, &r->capacity, r->count + 1, sizeof *r->tasks));
  r->tasks[r->count] = (task){.node = n};
  *out = r->count++;
  return wk__map_set(&r->index, (uint64_t)(uintptr_t)n, (void *)(intptr_t)(*out + 1));
}

/* Tasks double as the work list: every node found is looked at once, in order of discovery. */
static wk_status discover(run *r) {
  for (int64_t t = 0; t < r->count; t++) {
    wk_node *n = r->tasks[t].node;
    for (int i = 0; i < n->input_count; i++) {
      int64_t next;
      if (!n->edges[i].node) continue;
      WK_TRY(add_task(r, n->edges[i].node, &next));
      r->tasks[next].dependencies++;
    }
  }
  return WK_OK;
}

static bool expected(const task *t) { return t->needed || t->captured; }

/* Marks the inputs' own nodes, and whatever has one of those behind it, which has to run. Sequence numbers give the
 * topological order that this takes, since a node is recorded after those behind it. */
static int by_sequence(const void *a, const void *b, void *context) {
  const task *tasks = context;
  uint64_t x = tasks[*(const int64_t *)a].node->sequence, y = tasks[*(const int64_t *)b].node->sequence;
  return x < y ? -1 : x > y;
}
static wk_status mark_needed(run *r) {
  const wk__backward *q = r->request;
  if (!q->inputs) {
    for (int64_t t = 0; t < r->count; t++) r->tasks[t].needed = true;
    return WK_OK;
  }
  for (int k = 0; k < q->input_count; k++) {
    int64_t t = r->input_edges[k].node ? find(r, r->input_edges[k].node) : -1;
    if (t < 0) continue;
    r->tasks[t].captured = true;
    r->tasks[t].needed = q->accumulate_inputs && is_accumulator(r->tasks[t].node);
  }
  int64_t *order = wk__alloc((size_t)(r->count + 1) * sizeof *order);
  if (!order) return WK_OUT_OF_MEMORY;
  for (int64_t t = 0; t < r->count; t++) order[t] = t;
  qsort_r(order, (size_t)r->count, sizeof *order, by_sequence, r->tasks);
  for (int64_t k = 0; k < r->count; k++) {
    task *t = &r->tasks[order[k]];
    for (int i = 0; i < t->node->input_count; i++)
      if (t->node->edges[i].node) t->needed |= expected(&r->tasks[find(r, t->node->edges[i].node)]);
  }
  wk__free(order);
  return WK_OK;
}

/* ---- the queue ---- */

static bool later(const run *r, int64_t a, int64_t b) {
  return r->tasks[r->heap[a]].node->sequence > r->tasks[r->heap[b]].node->sequence;
}
static void swap(run *r, int64_t a, int64_t b) {
  int64_t t = r->heap[a];
  r->heap[a] = r->heap[b];
  r->heap[b] = t;
}
static wk_status push(run *r, int64_t t) {
  WK_TRY(wk__grow(&r->heap, &r->heap_capacity, r->heap_count + 1, sizeof *r->heap));
  int64_t at = r->heap_count++;
  r->heap[at] = t;
  for (; at && later(r, at, (at - 1) / 2); at = (at - 1) / 2) swap(r, at, (at - 1) / 2);
  return WK_OK;
}
static int64_t pop(run *r) {
  int64_t top = r->heap[0];
  r->heap[0] = r->heap[--r->heap_count];
  for (int64_t at = 0;;) {
    int64_t best = at, left = 2 * at + 1, right = left + 1;
    if (left < r->heap_count && later(r, left, best)) best = left;
    if (right < r->heap_count && later(r, right, best)) best = right;
    if (best == at) return top;
    swap(r, at, best);
    at = best;
  }
}

/* ---- gradients on their way ---- */

/* Which of the request's inputs it is, -1: none. */
static int input_at(const run *r, const wk_node *n, uint32_t result) {
  for (int k = 0; k < r->request->input_count; k++)
    if (r->input_edges[k].node == n && r->input_edges[k].input == result) return k;
  return -1;
}

/* Takes the reference. A second gradient is added to the first, in place when the engine holds the only reference and
 * it is no value of a score body, which nothing is written to. */
static wk_status receive(run *r, int64_t t, uint32_t result, wk_tensor *steal_grad) {
  task *task = &r->tasks[t];
  int input = WK_UNLIKELY(r->request->take) ? input_at(r, task->node, result) : -1;
  if (input >= 0) return r->request->take(r->request->take_context, input, steal_grad);
  if (!task->grads) {
    task->grads = wk__alloc_zeroed(task->node->result_count * sizeof *task->grads);
    if (!task->grads) {
      wk__release(steal_grad);
      return WK_OUT_OF_MEMORY;
    }
  }
  wk_tensor **slot = &task->grads[result];
  if (!*slot) {
    *slot = steal_grad;
    return WK_OK;
  }
  bool own = !r->request->create_graph && !wk__thread.body && atomic_load(&(*slot)->references) == 1 &&
             (*slot)->storage && atomic_load(&(*slot)->storage->references) == 1 &&
             wk__non_overlapping_and_dense(*slot);
  bool turned = (*slot)->sparse && !steal_grad->sparse; /* a strided one comes first: the sum is strided */
  wk_value sum = {0}, args[] = {wk__v_tensor(turned ? steal_grad : *slot), wk__v_tensor(turned ? *slot : steal_grad),
                                wk__v_int(1)};
  wk_status status = wk_call(WK__OP(add_Tensor), args, own ? slot : NULL, &sum);
  wk__release(steal_grad);
  if (status) return status;
  wk__release(*slot);
  *slot = sum.tensor;
  return WK_OK;
}

static wk_status run_result_hooks(task *t, bool create_graph) {
  wk_node *n = t->node;
  for (int k = 0; n->result_hooks && k < n->result_count; k++)
    if (t->grads[k]) WK_TRY(wk__run_grad_hooks(n->result_hooks[k], &t->grads[k]));
  for (int k = 0; n->retained && k < n->result_count; k++)
    if (n->retained[k] && t->grads[k]) WK_TRY(wk__keep_grad(n->retained[k], t->grads[k], create_graph));
  return WK_OK;
}

/* dtype, device: values; none is the gradient's. */
static wk_status convert(wk_tensor **grad, wk_value dtype, wk_value device) {
  wk_value converted = {0};
  WK_TRY(wk_call(WK__OP(_to_copy), (wk_value[]){wk__v_tensor(*grad), dtype, device}, NULL, &converted));
  wk__release(*grad);
  *grad = converted.tensor;
  return WK_OK;
}

/* Of a leaf that asks for another dtype than its own */
static wk_status to_grad_dtype(const wk_tensor *leaf, wk_tensor **grad) {
  wk_dtype wanted = wk_get_grad_dtype(leaf);
  if (wanted == WK_DTYPE_NONE || (wk_dtype)(*grad)->dtype == wanted) return WK_OK;
  return convert(grad, wk__v_dtype(wanted), (wk_value){0});
}

/* Of a number of one device that was computed with on another. */
static wk_status to_device(const wk_tensor *leaf, wk_tensor **grad) {
  if ((*grad)->ndim > 0 || wk__device_equal((*grad)->device, leaf->device)) return WK_OK;
  return convert(grad, (wk_value){0}, (wk_value){.tag = WK_VALUE_DEVICE, .device = leaf->device});
}

/* A leaf's own hooks see its gradient before it is accumulated or given out. */
static wk_status run_leaf_hooks(task *t, wk_tensor *leaf) {
  if (!leaf || !leaf->autograd || !t->grads[0]) return WK_OK;
  wk__grad_watcher *watcher = wk__thread.mode.grad_watcher;
  if (WK_UNLIKELY(watcher != NULL)) watcher->leaf_reached(watcher->context, leaf);
  WK_TRY(to_device(leaf, &t->grads[0]));
  if (WK_UNLIKELY(leaf->autograd->grad_dtype)) WK_TRY(to_grad_dtype(leaf, &t->grads[0]));
  return wk__run_grad_hooks(leaf->autograd->hooks, &t->grads[0]);
}

static wk_status give_out(run *r, task *t) {
  const wk__backward *q = r->request;
  for (int k = 0; q->inputs && k < q->input_count; k++) {
    if (r->input_edges[k].node != t->node || !t->grads[r->input_edges[k].input]) continue;
    if (!q->accumulate_inputs)
      q->out_grads[k] = wk__retain(t->grads[r->input_edges[k].input]);
    else if (!is_accumulator(t->node) && !q->inputs[k]->autograd->retains_grad) /* else it was or will be accumulated */
      WK_TRY(wk__keep_grad(q->inputs[k], t->grads[r->input_edges[k].input], q->create_graph));
  }
  return WK_OK;
}

static wk_status send(run *r, const wk_node *n, wk_tensor **grads) {
  wk_status status = WK_OK;
  for (int i = 0; i < n->input_count; i++) {
    if (!n->edges[i].node) {
      wk__release(grads[i]);
      continue;
    }
    int64_t next = find(r, n->edges[i].node);
    if (grads[i]) {
      if (status == WK_OK && expected(&r->tasks[next]))
        status = receive(r, next, n->edges[i].input, grads[i]);
      else
        wk__release(grads[i]);
    }
    if (--r->tasks[next].dependencies == 0 && status == WK_OK) status = push(r, next);
  }
  return status;
}

static wk_status run_node_hooks(const wk_node *n, bool post, wk_tensor **inputs, wk_tensor **results) {
  for (const wk__node_hook *h = n->hooks; h; h = h->next)
    if (h->post == post) WK_TRY(h->call(h->context, inputs, post ? n->input_count : 0, results, n->result_count));
  return WK_OK;
}

wk_status wk__saved_tensors_freed(void) {
  return wk_fail(
      WK_RUNTIME_ERROR,
      "Trying to backward through the graph a second time (or directly access saved tensors after they have "
      "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
      "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or "
      "if you need to access saved tensors after calling backward.");
}

/* ---- anomaly detection ---- */

atomic_bool wk__anomaly_on, wk__anomaly_finds_nan;
void (*wk__anomaly_made)(wk_node *node);
wk_status (*wk__anomaly_found)(const wk_node *node, wk_status status);

static bool has_nan(wk_tensor *grad) {
  if (!grad || !grad->storage || !wk_dtype_is_floating((wk_dtype)grad->dtype)) return false;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *nan = wk__call_tensor(WK__OP(isnan), (wk_value[]){wk__v_tensor(grad)});
  wk_tensor *any = wk__call_tensor(WK__OP(any), (wk_value[]){wk__v_tensor(nan)});
  wk__scalar found = {0};
  bool read = any && wk__read_element(any, &found) == WK_OK;
  wk_scope_end(&scope);
  return read && found.i;
}

/* While a graph is traced there are no values to look at. */
static wk_status refuse_nan(const wk_node *n, wk_tensor *const *grads) {
  if (wk__thread.mode.keys_on & WK__KEY_TRACE) return WK_OK;
  for (int i = 0; i < n->input_count; i++) {
    if (!has_nan(grads[i])) continue;
    wk__string name = {0};
    wk__node_print_name(&name, n);
    wk_status status = wk_fail(WK_RUNTIME_ERROR, "Function '%s' returned nan values in its %dth output.",
                               name.text ? name.text : "?", i);
    wk__string_release(&name);
    return status;
  }
  return WK_OK;
}

enum { INLINE_INPUTS = 24 };

static wk_status run_inner(run *r, task *t) {
  wk_node *n = t->node;
  const wk__backward *q = r->request;
  wk_tensor *space[INLINE_INPUTS] = {NULL}, **grads = space;
  bool wanted_space[INLINE_INPUTS], *wanted = wanted_space;
  if (n->released) return wk__saved_tensors_freed();
  const wk__grad_watcher *watcher = wk__thread.mode.grad_watcher;
  if (WK_UNLIKELY(watcher && n->sequence < watcher->first)) watcher->old_node_runs(watcher->context);
  if (n->input_count > INLINE_INPUTS) {
    grads = wk__alloc_zeroed(n->input_count * (sizeof *grads + sizeof *wanted));
    if (!grads) return WK_OUT_OF_MEMORY;
    wanted = (bool *)(grads + n->input_count);
  }
  for (int i = 0; i < n->input_count; i++)
    wanted[i] = n->edges[i].node && expected(&r->tasks[find(r, n->edges[i].node)]);
  wk_status status = run_node_hooks(n, false, NULL, t->grads);
  uint64_t outer_sequence = wk__thread.mode.running_sequence;
  wk__thread.mode.running_sequence = n->sequence;
  if (status == WK_OK) status = n->class->run(n, t->grads, wanted, q->create_graph, grads);
  wk__thread.mode.running_sequence = outer_sequence;
  if (WK_UNLIKELY(atomic_load_explicit(&wk__anomaly_finds_nan, memory_order_relaxed)) && status == WK_OK)
    status = refuse_nan(n, grads);
  if (WK_UNLIKELY(status != WK_OK) && atomic_load(&wk__anomaly_on)) status = wk__anomaly_found(n, status);
  if (status == WK_OK) status = run_node_hooks(n, true, grads, t->grads);
  if (!q->retain_graph && n->class->release_saved) n->class->release_saved(n);
  if (status == WK_OK) {
    status = send(r, n, grads);
  } else {
    for (int i = 0; i < n->input_count; i++) wk__release(grads[i]);
  }
  if (grads != space) wk__free(grads);
  return status;
}

/* A node that no gradient reached passes that on. */
static wk_status pass_nothing(run *r, const wk_node *n) {
  wk_tensor *none[INLINE_INPUTS] = {NULL};
  if (n->input_count <= INLINE_INPUTS) return send(r, n, none);
  wk_tensor **many = wk__alloc_zeroed(n->input_count * sizeof *many);
  if (!many) return WK_OUT_OF_MEMORY;
  wk_status status = send(r, n, many);
  wk__free(many);
  return status;
}

/* Hooks see the gradients first, then the caller that asked for them, then the node. */
static wk_status run_with_gradients(run *r, task *t) {
  bool leaf = is_accumulator(t->node);
  WK_TRY(leaf ? run_leaf_hooks(t, wk__accumulator_leaf(t->node)) : run_result_hooks(t, r->request->create_graph));
  WK_TRY(give_out(r, t));
  return t->needed ? run_inner(r, t) : pass_nothing(r, t->node);
}

static bool runs_without_grads(const wk_node *n) {
  return n->class->runs_without_grads || (n->op && wk__is_function(n->op));
}

static wk_status run_task(run *r, int64_t number) {
  task t = r->tasks[number]; /* the array may move */
  r->tasks[number].grads = NULL;
  if (!t.grads && t.needed && runs_without_grads(t.node)) {
    t.grads = wk__alloc_zeroed(t.node->result_count * sizeof *t.grads);
    if (!t.grads) return WK_OUT_OF_MEMORY;
  }
  wk_status status = t.grads && expected(&t) ? run_with_gradients(r, &t) : pass_nothing(r, t.node);
  for (int k = 0; t.grads && k < t.node->result_count; k++) wk__release(t.grads[k]);
  wk__free(t.grads);
  return status;
}

/* ---- a run ---- */

static wk_status wrong_shape(const wk_tensor *t, const wk_tensor *given, int k) {
  wk__string text = {0};
  wk__string_printf(&text, "Mismatch in shape: grad_output[%d] has a shape of torch.Size(", k);
  wk__print_sizes(&text, given->sizes, given->ndim);
  wk__string_printf(&text, ") and output[%d] has a shape of torch.Size(", k);
  wk__print_sizes(&text, t->sizes, t->ndim);
  wk__string_append(&text, ").");
  if (!text.failed) (void)wk_fail(WK_RUNTIME_ERROR, "%s", text.text);
  wk__string_release(&text);
  return wk_error_category();
}

void wk__print_devices_of_gradient(wk__string *text, wk_device wanted, wk_device got) {
  wk__string_append(text, "expected device ");
  wk__device_print(text, wanted);
  wk__string_append(text, " but got ");
  wk__device_print(text, got);
}

static wk_status wrong_device(const wk_tensor *t, const wk_tensor *given, int k) {
  wk__string text = {0};
  wk__string_printf(&text, "invalid gradient at index %d - ", k);
  wk__print_devices_of_gradient(&text, t->device, given->device);
  if (!text.failed) (void)wk_fail(WK_RUNTIME_ERROR, "%s", text.text);
  wk__string_release(&text);
  return wk_error_category();
}

/* The gradient given for result k, in the result's dtype and, where it has no dims, on its device; a one for a tensor
 * with one element when none is given. */
static wk_status first_gradient(wk_tensor *t, wk_tensor *given, int k, wk_tensor **out) {
  wk_value result = {0}, none = {0};
  wk_dtype dtype = (wk_dtype)t->dtype;
  *out = NULL;
  if (given) {
    if (!wk__same_sizes(t, given)) return wrong_shape(t, given, k);
    bool moves = !wk__device_equal(t->device, given->device);
    if (moves && given->ndim != 0) return wrong_device(t, given, k);
    if (given->dtype == t->dtype && !moves) {
      *out = wk__retain(given);
      return WK_OK;
    }
    wk_value args[] = {wk__v_tensor(given), wk__v_dtype(dtype), {.tag = WK_VALUE_DEVICE, .device = t->device}};
    WK_TRY(wk_call(WK__OP(_to_copy), args, NULL, &result));
  } else {
    if (!wk_int_eq(t->numel, wk_int_of(1)))
      return wk_fail(WK_RUNTIME_ERROR, "grad can be implicitly created only for scalar outputs");
    if (!wk_dtype_is_floating(dtype))
      return wk_fail(WK_RUNTIME_ERROR, "grad can be implicitly created only for real scalar outputs but got torch.%s",
                     wk_dtype_name(dtype));
    WK_TRY(wk_call(WK__OP(ones_like), (wk_value[]){wk__v_tensor(t), none, none, none}, NULL, &result));
  }
  *out = result.tensor;
  return WK_OK;
}

static wk_status find_roots(run *r) {
  const wk__backward *q = r->request;
  r->root_edges = wk__alloc_zeroed((size_t)(q->count + 1) * (sizeof *r->root_edges + sizeof *r->root_grads));
  if (!r->root_edges) return WK_OUT_OF_MEMORY;
  r->root_grads = (wk_tensor **)(r->root_edges + q->count + 1);
  for (int k = 0; k < q->count; k++) {
    WK_TRY(wk__edge_of(q->tensors[k], &r->root_edges[k]));
    if (!r->root_edges[k].node)
      return wk_fail(WK_RUNTIME_ERROR, "element %d of tensors does not require grad and does not have a grad_fn", k);
    WK_TRY(first_gradient(q->tensors[k], q->grads ? q->grads[k] : NULL, k, &r->root_grads[k]));
  }
  return WK_OK;
}

static wk_status start(run *r) {
  for (int k = 0; k < r->request->count; k++) {
    wk_tensor *grad = r->root_grads[k];
    int64_t t;
    WK_TRY(add_task(r, r->root_edges[k].node, &t));
    r->root_grads[k] = NULL;
    WK_TRY(receive(r, t, r->root_edges[k].input, grad));
  }
  return WK_OK;
}

static wk_status find_inputs(run *r) {
  const wk__backward *q = r->request;
  if (!q->inputs) return WK_OK;
  r->input_edges = wk__alloc_zeroed((size_t)(q->input_count + 1) * sizeof *r->input_edges);
  if (!r->input_edges) return WK_OUT_OF_MEMORY;
  for (int k = 0; k < q->input_count; k++) {
    if (!wk_requires_grad(q->inputs[k]))
      return wk_fail(WK_RUNTIME_ERROR, "One of the differentiated Tensors does not require grad");
    WK_TRY(wk__edge_of(q->inputs[k], &r->input_edges[k]));
  }
  return WK_OK;
}

static wk_status check_used(const wk__backward *q) {
  for (int k = 0; q->inputs && !q->accumulate_inputs && !q->allow_unused && k < q->input_count; k++)
    if (!q->out_grads[k])
      return wk_fail(WK_RUNTIME_ERROR,
                     "The differentiated Tensor at index %d appears to not have been used in the graph. Set "
                     "allow_unused=True if this is the desired behavior.",
                     k);
  return WK_OK;
}

static void finish(run *r) {
  for (int64_t t = 0; t < r->count; t++) {
    for (int k = 0; r->tasks[t].grads && k < r->tasks[t].node->result_count; k++) wk__release(r->tasks[t].grads[k]);
    wk__free(r->tasks[t].grads);
  }
  for (int k = 0; r->input_edges && k < r->request->input_count; k++) wk__node_release(r->input_edges[k].node);
  for (int k = 0; r->root_edges && k < r->request->count; k++) {
    wk__node_release(r->root_edges[k].node);
    wk__release(r->root_grads[k]);
  }
  wk__free(r->root_edges);
  wk__free(r->input_edges);
  wk__free(r->tasks);
  wk__free(r->heap);
  wk__map_release(&r->index);
}

static wk_status run_all(run *r) {
  WK_TRY(find_roots(r));
  WK_TRY(find_inputs(r));
  WK_TRY(start(r));
  int64_t roots = r->count;
  WK_TRY(discover(r));
  WK_TRY(mark_needed(r));
  for (int64_t t = 0; t < roots; t++)
    if (r->tasks[t].dependencies == 0) WK_TRY(push(r, t));
  while (r->heap_count) WK_TRY(run_task(r, pop(r)));
  return check_used(r->request);
}

wk_status (*wk__backward_ended)(void);

wk_status wk__run_backward(const wk__backward *request) {
  run r = {.request = request};
  bool before = wk_set_grad_enabled(request->create_graph);
  wk__thread.backward_depth++;
  wk_status status = run_all(&r);
  if (WK_UNLIKELY(wk__backward_ended != NULL) && status == WK_OK && wk__thread.backward_depth == 1)
    status = wk__backward_ended();
  wk__thread.backward_depth--;
  wk_set_grad_enabled(before);
  finish(&r);
  return status;
}

wk_status wk_backward(wk_tensor *tensor, wk_tensor *gradient) {
  wk__backward request = {.tensors = &tensor, .grads = gradient ? &gradient : NULL, .count = 1};
  return wk__run_backward(&request);
}
