/* Passes over graphs: dead code, common subexpressions, constants.
 *
 * In: a graph that is not frozen. Out: one that gives the same results, with the same random calls
 * in the same order and the same mutations. Two outputs stay two tensors, and an output never becomes a constant: the
 * program may write what it got. Tests: tests/ir/, tests/c/test_graph.c. */
#include "graph/internal.h"

static void report(bool *out_changed, bool changed) {
  if (out_changed) *out_changed = changed;
}

/* =================================================== dead code ================================================== */

static bool must_stay(const wk__graph_node *node) {
  if (node->kind != WK__GRAPH_CALL) return node->kind == WK__GRAPH_INPUT;
  bool draws = node->op->tags & WK__TAG_RANDOM && !(node->flags & WK__GRAPH_UNDONE);
  return draws || wk__graph_counts(node->op); /* sizes may be told by it */
}

/* From the end: a node's users are gone before it is looked at. */
static bool erase_unused(wk__graph *graph) {
  bool changed = false;
  for (wk__graph_node *node = graph->last, *previous; node; node = previous) {
    previous = node->previous;
    if (node->use_count || must_stay(node)) continue;
    wk__graph_erase(graph, node);
    changed = true;
  }
  return changed;
}

static wk_status check_changeable(const wk__graph *graph) {
  return graph->frozen ? wk_fail(WK_INTERNAL_ERROR, "a frozen graph cannot be changed") : WK_OK;
}

wk_status wk__graph_remove_dead(wk__graph *graph, bool *out_changed) {
  WK_TRY(check_changeable(graph));
  report(out_changed, erase_unused(graph));
  return WK_OK;
}

/* ================================================== what gets out =============================================== */

/* Marks, by number, the values whose memory the caller may get: outputs, what they look at. */
static void mark_escaping(const wk__graph *graph, bool *escapes) {
  for (int64_t i = 0; i < graph->output_count; i++) escapes[graph->outputs[i]->number] = true;
  for (const wk__graph_node *node = graph->last; node; node = node->previous) {
    wk__arg_cursor cursor = {0};
    if (!escapes[node->number]) continue;
    for (wk__graph_node **use; (use = wk__graph_next_arg(node, &cursor));) {
      bool alias = node->kind == WK__GRAPH_ITEM || wk__graph_may_alias(node->op, cursor.arg);
      if (alias) escapes[(*use)->number] = true;
    }
  }
}

/* ============================================== common subexpressions =========================================== */

typedef struct merger {
  wk__graph *graph;
  wk__map first;            /* hash of a node -> the newest kept one with it */
  wk__graph_node **replace; /* by number: the node to use instead, NULL: itself */
  wk__graph_node **older;   /* by number: another kept node with the same hash */
  bool *escapes;
  bool changed;
} merger;

static bool may_merge(const wk__graph_node *node) {
  if (node->kind == WK__GRAPH_INPUT || node->flags & WK__GRAPH_TAPED)
    return false; /* taped: gradients add up in order */
  return node->kind != WK__GRAPH_CALL || !(node->op->tags & (WK__TAG_RANDOM | WK__TAG_MUTATES));
}

static uint64_t number_of(const void *node) { return ((const wk__graph_node *)node)->number + UINT64_C(1); }

static uint64_t hash_of(const wk__graph_node *node) {
  uint64_t h = wk__hash_mix(node->kind, node->kind == WK__GRAPH_ITEM ? (uint64_t)node->index : 0);
  if (node->kind == WK__GRAPH_CONSTANT) h = wk__hash_mix(h, (uintptr_t)node->constant);
  if (node->op) h = wk__hash_mix(h, node->op->number);
  h = wk__graph_hash_args(node, h, number_of);
  return h ? h : 1;
}

static bool same_args(const wk__graph_node *a, const wk__graph_node *b) {
  for (int i = 0; i < wk__graph_arg_count(a); i++)
    if (!wk__graph_same_arg(&a->args[i], &b->args[i])) return false;
  return true;
}

static bool same_node(const wk__graph_node *a, const wk__graph_node *b) {
  if (a->kind != b->kind || a->op != b->op || a->constant != b->constant) return false;
  if (a->kind == WK__GRAPH_ITEM && a->index != b->index) return false;
  return same_args(a, b);
}

static wk__graph_node *find_equal(const merger *m, const wk__graph_node *node, uint64_t hash) {
  for (wk__graph_node *kept = wk__map_get(&m->first, hash); kept; kept = m->older[kept->number]) {
    bool both_escape = m->escapes[kept->number] && m->escapes[node->number];
    if (!both_escape && same_node(kept, node)) return kept;
  }
  return NULL;
}

static wk_status use_replacements(merger *m, wk__graph_node *node) {
  wk__arg_cursor cursor = {0};
  for (wk__graph_node **use; (use = wk__graph_next_arg(node, &cursor));) {
    wk__graph_node *by = m->replace[(*use)->number];
    if (by) WK_TRY(wk__graph_replace_arg(m->graph, node, *use, by));
  }
  return WK_OK;
}

static wk_status merge_node(merger *m, wk__graph_node *node) {
  WK_TRY(use_replacements(m, node));
  if (!may_merge(node)) return WK_OK;
  uint64_t hash = hash_of(node);
  wk__graph_node *equal = find_equal(m, node, hash);
  if (!equal) {
    m->older[node->number] = wk__map_get(&m->first, hash);
    return wk__map_set(&m->first, hash, node);
  }
  m->escapes[equal->number] |= m->escapes[node->number];
  m->replace[node->number] = equal;
  m->changed = true;
  return WK_OK;
}

static void replace_end(const merger *m, wk__graph_node **end) {
  wk__graph_node *by = m->replace[(*end)->number];
  if (!by) return;
  (*end)->use_count--;
  by->use_count++;
  *end = by;
}

static void erase_replaced(const merger *m) {
  for (wk__graph_node *node = m->graph->last, *previous; node; node = previous) {
    previous = node->previous;
    if (m->replace[node->number]) wk__graph_erase(m->graph, node);
  }
}

static wk_status merge_nodes(merger *m) {
  wk_status status = WK_OK;
  mark_escaping(m->graph, m->escapes);
  for (wk__graph_node *node = m->graph->first; node && status == WK_OK; node = node->next) status = merge_node(m, node);
  WK_TRY(status); /* what has been replaced so far is right by itself */
  for (int64_t i = 0; i < m->graph->output_count; i++) replace_end(m, &m->graph->outputs[i]);
  for (int64_t i = 0; i < m->graph->mutation_count; i++) replace_end(m, &m->graph->mutations[i].node);
  erase_replaced(m);
  return WK_OK;
}

wk_status wk__graph_merge_common(wk__graph *graph, bool *out_changed) {
  report(out_changed, false);
  WK_TRY(check_changeable(graph));
  wk__graph_number(graph);
  size_t count = (size_t)graph->node_count;
  char *memory = wk__alloc_zeroed(count * (2 * sizeof(void *) + 1));
  if (!memory) return WK_OUT_OF_MEMORY;
  merger m = {.graph = graph, .replace = (wk__graph_node **)memory};
  m.older = m.replace + count;
  m.escapes = (bool *)(m.older + count);
  wk_status status = merge_nodes(&m);
  wk__map_release(&m.first);
  wk__free(memory);
  report(out_changed, m.changed);
  return status;
}

/* =================================================== constants ================================================== */

typedef struct folder {
  wk__graph *graph;
  int64_t max_elements;
  bool *escapes;
  bool changed;
} folder;

static bool is_foldable_shape(const folder *f, const wk_tensor *t) {
  return !t || (wk_int_is_known(t->numel) && t->numel.bits <= f->max_elements);
}

static bool is_readable_constant(const wk__graph_node *node) {
  return node->kind == WK__GRAPH_CONSTANT && node->constant->storage && !node->constant->keys;
}

/* Numbers that the graph is given are as little known as symbols. */
static bool has_known_numbers(const wk__graph_node *node) {
  for (int i = 0; i < wk__graph_arg_count(node); i++) {
    wk__integer_span integers = wk__graph_arg_integers(&node->args[i]);
    if (node->args[i].tag == WK_VALUE_INPUT) return false;
    for (uint32_t k = 0; k < integers.count; k++)
      if (!wk_int_is_known(integers.items[k])) return false;
  }
  return true;
}

/* Something of constants alone. What is made of numbers (zeros, arange) is better made again than kept. */
static bool may_fold(const folder *f, const wk__graph_node *node, uint32_t known_nodes) {
  if (node->kind != WK__GRAPH_CALL || node->flags & WK__GRAPH_TAPED) return false;
  if (node->op->tags & (WK__TAG_RANDOM | WK__TAG_MUTATES)) return false;
  if (node->number < known_nodes && f->escapes[node->number]) return false;
  if (node->value && !is_foldable_shape(f, node->value)) return false;
  for (int i = 0; i < node->item_count; i++)
    if (!is_foldable_shape(f, node->items[i])) return false;
  wk__arg_cursor cursor = {0};
  int constants = 0;
  for (wk__graph_node **use; (use = wk__graph_next_arg(node, &cursor)); constants++)
    if (!is_readable_constant(*use)) return false;
  return constants && has_known_numbers(node);
}

static wk_tensor *constant_of(const wk__graph_node *node) { return node ? node->constant : NULL; }

/* Runs a call on its constants. */
static wk_status compute(const wk__graph_node *node, wk_value *results) {
  wk_value args[WK__MAX_ARGS];
  wk_tensor **lists = wk__alloc((size_t)(wk__graph_listed(node->op, node->args) + 1) * sizeof *lists);
  if (!lists) return WK_OUT_OF_MEMORY;
  wk__graph_place_args(node->op, node->args, constant_of, args, lists);
  wk__thread_mode before = wk__thread.mode;
  wk__thread.mode.grad_enabled = false;
  wk__thread.mode.keys_off = (wk__keys)~0;
  wk_status status = wk_call(node->op, args, NULL, results);
  wk__thread.mode = before;
  wk__free(lists);
  return status;
}

/* A constant in the place of a node; it takes the name over. */
static wk_status replace_by_constant(folder *f, wk__graph_node *node, wk_tensor *tensor) {
  wk__graph_node *constant = wk__graph_constant(f->graph, tensor, node->name);
  if (!constant) return wk_error_category();
  wk__graph_swap_names(f->graph, node, constant);
  constant->number = UINT32_MAX; /* made after the marks */
  constant->source = node->source;
  wk__graph_replace_uses(f->graph, node, constant);
  f->changed = true;
  return WK_OK;
}

static wk_status replace_items(folder *f, wk__graph_node *list, wk_tensor *const *tensors, int64_t count) {
  for (wk__graph_node *node = list->next, *next; node && list->use_count; node = next) {
    next = node->next;
    if (node->kind != WK__GRAPH_ITEM || node->args[0].node != list) continue;
    if (node->index >= count || !tensors[node->index]) return WK_OK;
    WK_TRY(replace_by_constant(f, node, tensors[node->index]));
    wk__graph_erase(f->graph, node);
  }
  return WK_OK;
}

static wk_status replace_by_results(folder *f, wk__graph_node *node, const wk_value *results) {
  wk_tensor *tensors[WK__MAX_RESULTS];
  const wk__schema *schema = &node->op->schema;
  if (node->value) return replace_by_constant(f, node, results[0].tensor);
  if (schema->result_is_list) return replace_items(f, node, results[0].tensors, results[0].count);
  for (int r = 0; r < schema->result_count; r++) tensors[r] = results[r].tensor;
  return replace_items(f, node, tensors, schema->result_count);
}

/* A call that fails now will fail when it is run: it stays. */
static wk_status fold_node(folder *f, wk__graph_node *node) {
  wk_value results[WK__MAX_RESULTS] = {{0}};
  wk_status status = compute(node, results);
  if (status == WK_OUT_OF_MEMORY) return status;
  if (status != WK_OK) {
    wk_error_clear();
    return WK_OK;
  }
  status = replace_by_results(f, node, results);
  for (int r = 0; r < WK__MAX_RESULTS; r++) wk_value_release(&results[r]);
  return status;
}

wk_status wk__graph_fold_constants(wk__graph *graph, int64_t max_elements, bool *out_changed) {
  report(out_changed, false);
  WK_TRY(check_changeable(graph));
  wk__graph_number(graph);
  uint32_t known = (uint32_t)graph->node_count;
  folder f = {.graph = graph, .max_elements = max_elements, .escapes = wk__alloc_zeroed(known)};
  wk_status status = f.escapes ? WK_OK : WK_OUT_OF_MEMORY;
  if (status == WK_OK) mark_escaping(graph, f.escapes);
  for (wk__graph_node *node = graph->first, *next; node && status == WK_OK; node = next) {
    bool fold = may_fold(&f, node, known);
    if (fold) status = fold_node(&f, node);
    next = node->next;
    if (fold && node->use_count == 0) {
      wk__graph_erase(graph, node);
      f.changed = true;
    }
  }
  wk__free(f.escapes);
  report(out_changed, f.changed);
  return status;
}

/* ================================================== running a pass ============================================== */

void wk__graph_log(const wk__graph *graph, const char *name, bool changed) {
  wk__string text = {0};
  if (!wk__log_on(WK__LOG_GRAPH)) return;
  if (wk__graph_print(&text, graph, true) == WK_OK)
    wk__log_print(WK__LOG_GRAPH, "after %s%s:\n%s", name, changed ? "" : " (unchanged)", text.text);
  wk__string_release(&text);
}

wk_status wk__graph_run_pass(wk__graph *graph, const char *name, wk__graph_pass_fn *pass) {
  bool changed = false;
  WK_TRY(pass(graph, &changed));
#ifdef WICK_DEBUG
  WK_TRY(wk__graph_verify(graph));
#endif
  wk__graph_log(graph, name, changed);
  return WK_OK;
}
