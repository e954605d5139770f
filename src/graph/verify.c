/* Checking graphs, comparing and hashing their parts.
 *
 * In: any graph whose memory is sound, one made from hostile text included. Out: the first broken invariant, named by
 * its node; a hash that does not depend on names or addresses. A graph that passes can be run: every argument has the
 * kind that its operator's schema wants. Tests: tests/c/test_graph.c, verify_*, hash_*. */
#include "graph/internal.h"

static wk_status broken(const wk__graph_node *node, const char *what) {
  return wk_fail(WK_INTERNAL_ERROR, "graph node %%%s: %s", node->name ? node->name : "?", what);
}

/* ================================================ one node's arguments ========================================== */

static wk_status bad_argument(const wk__graph_node *node, const wk__parameter *p, const char *what) {
  return wk_fail(WK_INTERNAL_ERROR, "graph node %%%s: argument %s of %s %s", node->name, p->name, node->op->name, what);
}

static wk_status verify_numbers(const wk__graph_node *node, const wk__parameter *p, const wk__graph_arg *arg) {
  if (arg->tag == WK_VALUE_DTYPE && arg->dtype >= WK_DTYPE_COUNT) return bad_argument(node, p, "is no dtype");
  if (arg->tag == WK_VALUE_STRING && !arg->string) return bad_argument(node, p, "is no string");
  wk__integer_span integers = wk__graph_arg_integers(arg);
  for (uint32_t k = 0; k < integers.count; k++)
    if (wk_int_is_poisoned(integers.items[k])) return bad_argument(node, p, "has a number without value");
  return WK_OK;
}

/* The numbers of a list are the same in every run. */
static wk_status verify_number_list(const wk__graph_node *node, const wk__parameter *p, const wk_value *list) {
  for (uint32_t k = 0; k < list->count; k++) {
    const wk_value *item = &list->scalars[k];
    bool known = item->tag != WK_VALUE_INPUT && (item->tag != WK_VALUE_INT || wk_int_is_known(item->integer));
    bool fits = item->tag < WK_VALUE_KIND_COUNT && wk__type_fits(WK__TYPE_SCALAR, item) && known;
    if (!fits || (item->tag == WK_VALUE_COMPLEX && !p->complex))
      return bad_argument(node, p, "has an item that cannot be");
  }
  return WK_OK;
}

static wk_status verify_node_list(const wk__graph_node *node, const wk__parameter *p, const wk__graph_arg *arg) {
  for (uint32_t k = 0; k < arg->count; k++) {
    if (!arg->nodes[k] && !p->optional_items) return bad_argument(node, p, "has an empty place");
    if (arg->nodes[k] && wk__graph_is_list(arg->nodes[k])) return bad_argument(node, p, "has a list in it");
  }
  return WK_OK;
}

static wk_status verify_argument(const wk__graph_node *node, const wk__parameter *p, const wk__graph_arg *arg) {
  if (arg->tag == WK_VALUE_NONE) {
    bool may_be_none = p->optional || (p->has_default && p->default_value.tag == WK_VALUE_NONE);
    return may_be_none ? WK_OK : bad_argument(node, p, "is missing");
  }
  if (arg->tag >= WK_VALUE_KIND_COUNT || !wk__type_fits(p->type, &arg->value))
    return bad_argument(node, p, "has a value of another kind than the schema says");
  if (arg->tag == WK_VALUE_TENSOR && wk__graph_is_list(arg->node)) return bad_argument(node, p, "is a list");
  if (arg->tag == WK_VALUE_TENSORS) return verify_node_list(node, p, arg);
  if (arg->tag == WK_VALUE_SCALARS) return verify_number_list(node, p, &arg->value);
  if (arg->tag == WK_VALUE_COMPLEX && !p->complex) return bad_argument(node, p, "is complex");
  return verify_numbers(node, p, arg);
}

/* =================================================== one node's value =========================================== */

static wk_status verify_shape(const wk__graph_node *node, const wk_tensor *value) {
  if (value->dtype >= WK_DTYPE_COUNT) return broken(node, "its value has no dtype");
  for (int d = 0; d < value->ndim; d++) {
    if (wk_int_is_poisoned(value->sizes[d]) || wk_int_is_poisoned(value->strides[d]))
      return broken(node, "its value has a size or stride without value");
    if (wk_int_is_known(value->sizes[d]) && value->sizes[d].bits < 0)
      return broken(node, "its value has a negative size");
  }
  return wk_int_is_poisoned(value->numel) ? broken(node, "its value is too large") : WK_OK;
}

static wk_status verify_value(const wk__graph_node *node) {
  const wk__schema *schema = &node->op->schema;
  int expected = wk__graph_value_count(node->op, node->args);
  if (node->value) {
    bool one = schema->result_count == 1 && !schema->result_is_list && expected == 1;
    return one ? verify_shape(node, node->value) : broken(node, "its value should be a list");
  }
  if (expected >= 0 && node->item_count != expected) return broken(node, "its value has another number of tensors");
  if (schema->result_count == 1 && !schema->result_is_list && expected == 1)
    return broken(node, "its value should be one tensor");
  for (int i = 0; i < node->item_count; i++)
    if (node->items[i]) WK_TRY(verify_shape(node, node->items[i]));
  return WK_OK;
}

static wk_status verify_call(const wk__graph_node *node) {
  if (!node->op || !node->args) return broken(node, "it has no operator or no arguments");
  const wk__schema *schema = &node->op->schema;
  for (int i = 0; i < schema->parameter_count; i++)
    WK_TRY(verify_argument(node, &schema->parameters[i], &node->args[i]));
  return verify_value(node);
}

static wk_status verify_item(const wk__graph_node *node) {
  if (!node->args || node->args[0].tag != WK_VALUE_TENSOR || !node->value) return broken(node, "it is no proper item");
  const wk__graph_node *list = node->args[0].node;
  if (!wk__graph_is_list(list)) return broken(node, "it is an item of something that is no list");
  if (node->index < 0 || node->index >= list->item_count || !list->items[node->index])
    return broken(node, "its list has no such item");
  return verify_shape(node, node->value);
}

static wk_status verify_leaf(const wk__graph *graph, const wk__graph_node *node) {
  if (!node->value) return broken(node, "it has no value");
  if (node->kind == WK__GRAPH_CONSTANT && !node->constant) return broken(node, "it has no tensor");
  if (node->kind == WK__GRAPH_INPUT) {
    bool listed = node->index >= 0 && node->index < graph->input_count && graph->inputs[node->index] == node;
    if (!listed) return broken(node, "it is not the input that it says");
  }
  return verify_shape(node, node->value);
}

static wk_status verify_node(const wk__graph *graph, const wk__graph_node *node) {
  switch (node->kind) {
    case WK__GRAPH_CALL:
      return verify_call(node);
    case WK__GRAPH_ITEM:
      return verify_item(node);
    case WK__GRAPH_INPUT:
    case WK__GRAPH_CONSTANT:
      return verify_leaf(graph, node);
    default:
      return broken(node, "it is of no kind");
  }
}

/* ==================================================== whole graphs ============================================== */

/* What the walk knows: uses counted so far, by node; a node is there once it has been passed. */
typedef struct walk {
  wk__map seen;   /* node -> 1 + its position */
  uint32_t *uses; /* by position */
} walk;

static uint32_t *uses_of(const walk *w, const wk__graph_node *node) {
  uintptr_t place = (uintptr_t)wk__map_get(&w->seen, (uintptr_t)node);
  return place ? &w->uses[place - 1] : NULL;
}

static wk_status verify_order(walk *w, const wk__graph_node *node) {
  wk__arg_cursor cursor = {0};
  for (wk__graph_node **use; (use = wk__graph_next_arg(node, &cursor));) {
    uint32_t *uses = uses_of(w, *use);
    if (!uses) return broken(node, "it uses something that does not come before it");
    ++*uses;
  }
  return WK_OK;
}

static wk_status verify_list(const wk__graph *graph, walk *w) {
  const wk__graph_node *previous = NULL;
  bool calls = false;
  uintptr_t position = 0;
  for (const wk__graph_node *node = graph->first; node; previous = node, node = node->next) {
    bool leaf = node->kind == WK__GRAPH_INPUT || node->kind == WK__GRAPH_CONSTANT;
    if (node->previous != previous) return broken(node, "the list of nodes is broken before it");
    if ((int64_t)position == graph->node_count) return broken(node, "there are more nodes than the graph counts");
    if (leaf && calls) return broken(node, "an input or constant behind a call");
    calls |= !leaf;
    if (!node->name || wk__graph_find(graph, node->name) != node) return broken(node, "its name is not its own");
    WK_TRY(verify_order(w, node));
    WK_TRY(verify_node(graph, node));
    WK_TRY(wk__map_set(&w->seen, (uintptr_t)node, (void *)++position));
  }
  if (graph->last != previous || (int64_t)position != graph->node_count)
    return wk_fail(WK_INTERNAL_ERROR, "graph: the list of nodes has a wrong end or count");
  return WK_OK;
}

static bool same_kind_of_tensor(const wk_tensor *a, const wk_tensor *b) {
  if (a->dtype != b->dtype || a->ndim != b->ndim) return false;
  for (int d = 0; d < a->ndim; d++)
    if (!wk__graph_may_be_equal(a->sizes[d], b->sizes[d])) return false;
  return true;
}

static wk_status verify_end(walk *w, const wk__graph_node *node, const char *what) {
  uint32_t *uses = uses_of(w, node);
  if (!uses) return wk_fail(WK_INTERNAL_ERROR, "graph: %s is no node of the graph", what);
  if (wk__graph_is_list(node)) return broken(node, "a list is an output or a mutation");
  ++*uses;
  return WK_OK;
}

static wk_status verify_ends(const wk__graph *graph, walk *w) {
  for (int64_t i = 0; i < graph->output_count; i++) WK_TRY(verify_end(w, graph->outputs[i], "an output"));
  for (int64_t i = 0; i < graph->mutation_count; i++) {
    const wk__graph_mutation *m = &graph->mutations[i];
    WK_TRY(verify_end(w, m->node, "a mutation's value"));
    if (m->input < 0 || m->input >= graph->input_count) return broken(m->node, "it is to be written to no input");
    if (!same_kind_of_tensor(graph->inputs[m->input]->value, m->node->value))
      return broken(m->node, "the input that it is to be written to is of another dtype or shape");
    for (int64_t k = 0; k < i; k++)
      if (graph->mutations[k].input == m->input) return broken(m->node, "an input has two mutations");
  }
  return WK_OK;
}

static wk_status verify_uses(const wk__graph *graph, const walk *w) {
  for (const wk__graph_node *node = graph->first; node; node = node->next)
    if (*uses_of(w, node) != node->use_count) return broken(node, "its use count is wrong");
  for (int64_t i = 0; i < graph->input_count; i++)
    if (!uses_of(w, graph->inputs[i])) return wk_fail(WK_INTERNAL_ERROR, "graph: an input is no node of the graph");
  return WK_OK;
}

wk_status wk__graph_verify(const wk__graph *graph) {
  walk w = {.uses = wk__alloc_zeroed((size_t)graph->node_count * sizeof *w.uses)};
  wk_status status = w.uses ? verify_list(graph, &w) : WK_OUT_OF_MEMORY;
  if (status == WK_OK) status = verify_ends(graph, &w);
  if (status == WK_OK) status = verify_uses(graph, &w);
  wk__map_release(&w.seen);
  wk__free(w.uses);
  return status;
}

/* ================================================== comparing arguments ========================================= */

bool wk__graph_same_arg(const wk__graph_arg *a, const wk__graph_arg *b) { return wk__value_same(&a->value, &b->value); }

bool wk__graph_is_default(const wk__graph_arg *arg, const wk__parameter *p) {
  return p->has_default && wk__value_same(&arg->value, &p->default_value);
}

/* ====================================================== hashing ================================================= */

static uint64_t hash_int(uint64_t h, wk_int x) {
  h = wk__hash_mix(h, wk__sym_kind_of(x));
  if (wk_int_is_known(x)) return wk__hash_mix(h, (uint64_t)x.bits);
  if (wk__sym_is_leaf(x)) return wk__hash_mix(h, (uint64_t)wk__sym_index(x));
  bool sum = wk__sym_kind_of(x) == WK__SYM_SUM;
  if (sum) h = wk__hash_mix(h, (uint64_t)wk__sym_constant(x));
  for (int i = 0; i < wk__sym_count(x); i++) {
    if (sum) h = wk__hash_mix(h, (uint64_t)wk__sym_coefficient(x, i));
    h = hash_int(h, wk__sym_operand(x, i));
  }
  return h;
}

static uint64_t hash_shape(uint64_t h, const wk_tensor *t) {
  if (!t) return wk__hash_mix(h, 1);
  h = wk__hash_mix(h, t->dtype);
  h = wk__hash_mix(h, (uint64_t)t->device.type << 8 | (uint8_t)t->device.index);
  h = wk__hash_mix(h, t->ndim);
  for (int d = 0; d < t->ndim; d++) h = hash_int(hash_int(h, t->sizes[d]), t->strides[d]);
  return hash_int(h, t->offset);
}

uint64_t wk__graph_hash_args(const wk__graph_node *node, uint64_t h, wk__graph_number_fn *of_node) {
  const wk__value_hasher hasher = {of_node, hash_int};
  for (int i = 0; i < wk__graph_arg_count(node); i++) h = wk__value_hash(h, &node->args[i].value, &hasher);
  return h;
}

/* Elements in the order of their indices, whatever the strides. */
uint64_t wk__graph_hash_elements(const wk_tensor *t) {
  uint64_t h = 0;
  int64_t index[WK_MAX_DIMS] = {0}, count = wk__numel(t);
  const char *data = wk__host_data(t);
  if (!data) return h;
  if (wk__is_contiguous(t)) return wk__hash_bytes(data, (size_t)count * wk__itemsize(t), h);
  for (int64_t n = 0; n < count; n++) {
    int64_t offset = 0;
    for (int d = 0; d < t->ndim; d++) offset += index[d] * wk__stride(t, d);
    h = wk__hash_bytes(data + offset * (int64_t)wk__itemsize(t), wk__itemsize(t), h);
    for (int d = t->ndim - 1; d >= 0 && ++index[d] == wk__size(t, d); d--) index[d] = 0;
  }
  return h;
}

enum { HASHED_ELEMENTS = 64 }; /* larger constants are told apart by shape alone: hashing weights takes too long */

static uint64_t number_of(const void *node) { return ((const wk__graph_node *)node)->number + UINT64_C(1); }

/* An operator that is not in the table is identified by its definition, not by its name. */
static uint64_t hash_op(uint64_t h, const wk_op *op) {
  wk__string text = {0};
  if (op->print)
    op->print(op, &text, false);
  else
    wk__string_append(&text, op->name);
  if (text.text) h = wk__hash_bytes(text.text, strlen(text.text), h);
  wk__string_release(&text);
  return h;
}

static uint64_t hash_node(uint64_t h, const wk__graph_node *node) {
  h = wk__hash_mix(h, (uint64_t)node->kind << 8 | node->flags);
  if (node->op) h = hash_op(h, node->op);
  h = wk__graph_hash_args(node, h, number_of);
  if (node->kind == WK__GRAPH_ITEM) h = wk__hash_mix(h, (uint64_t)node->index);
  h = hash_shape(h, node->value);
  for (int i = 0; i < node->item_count; i++) h = hash_shape(h, node->items[i]);
  if (node->constant && wk__numel(node->constant) <= HASHED_ELEMENTS)
    h = wk__hash_mix(h, wk__graph_hash_elements(node->constant));
  return h;
}

uint64_t wk__graph_hash(const wk__graph *graph) {
  uint64_t h = 0;
  wk__graph_number((wk__graph *)graph);
  for (const wk__graph_node *node = graph->first; node; node = node->next) h = hash_node(h, node);
  for (int64_t i = 0; i < graph->output_count; i++) h = wk__hash_mix(h, number_of(graph->outputs[i]));
  for (int64_t i = 0; i < graph->mutation_count; i++)
    h = wk__hash_mix(h, (uint64_t)graph->mutations[i].input << 32 | number_of(graph->mutations[i].node));
  return h;
}
