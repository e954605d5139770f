/* Building and changing graphs: nodes in a list, their names, their arguments in the arena, their use counts.
 *
 * In: operators, arguments, descriptions of values. Out: a graph that keeps the invariants of graph.h as long as only
 * these functions change it: use counts and names are right after each call; inputs and constants stand first; the
 * items of a list stand right behind it. Arguments given are copied. A function that fails has changed nothing that
 * shows. Tests: tests/c/test_graph.c. */
#include <assert.h>
#include <ctype.h>
#include <stdio.h>

#include "graph/internal.h"

/* ==================================================== names ===================================================== */

/* Names and stems share the map: their keys differ in the lowest bit. */
static uint64_t key_of_name(const char *name) {
  uint64_t key = wk__hash_bytes(name, strlen(name), 0) & ~UINT64_C(1);
  return key ? key : 2;
}
static uint64_t key_of_stem(const char *stem) { return wk__hash_bytes(stem, strlen(stem), 1) | 1; }

wk__graph_node *wk__graph_find(const wk__graph *graph, const char *name) {
  wk__graph_node *node = wk__map_get(&graph->names, key_of_name(name));
  return node && strcmp(node->name, name) == 0 ? node : NULL;
}

static bool is_free(const wk__graph *graph, const char *name) { return !wk__map_get(&graph->names, key_of_name(name)); }

enum { NAME_ROOM = 24 }; /* for "_<number>" */

/* A copy in which each character that is no letter, digit, '_' or '.' is a '_', with room for a number at its end. */
static char *copy_name(wk__graph *graph, const char *name, size_t *out_length) {
  size_t length = strlen(name);
  char *copy = wk__arena_alloc(&graph->arena, length + NAME_ROOM + 1);
  if (!copy) return NULL;
  for (size_t i = 0; i < length; i++) {
    bool fits = isalnum((unsigned char)name[i]) || name[i] == '_' || name[i] == '.';
    copy[i] = fits ? name[i] : '_';
  }
  if (length == 0) copy[length++] = '_';
  *out_length = length;
  return copy;
}

/* `name`, or `name` with the first number behind it that makes it unique; in the arena. */
static const char *unique_name(wk__graph *graph, const char *name) {
  size_t length;
  char *copy = copy_name(graph, name, &length);
  if (!copy || is_free(graph, copy)) return copy;
  uint64_t stem = key_of_stem(copy);
  uintptr_t number = (uintptr_t)wk__map_get(&graph->names, stem);
  do snprintf(copy + length, NAME_ROOM, "_%llu", (unsigned long long)++number);
  while (!is_free(graph, copy));
  return wk__map_set(&graph->names, stem, (void *)number) == WK_OK ? copy : NULL;
}

/* The map does not grow, so this cannot fail. */
void wk__graph_swap_names(wk__graph *graph, wk__graph_node *a, wk__graph_node *b) {
  const char *name = a->name;
  wk__map_remove(&graph->names, key_of_name(a->name));
  wk__map_remove(&graph->names, key_of_name(b->name));
  a->name = b->name;
  b->name = name;
  (void)!wk__map_set(&graph->names, key_of_name(a->name), a);
  (void)!wk__map_set(&graph->names, key_of_name(b->name), b);
}

/* ================================================ nodes in the list ============================================= */

static wk_status refuse_frozen(void) { return wk_fail(WK_INTERNAL_ERROR, "a frozen graph cannot be changed"); }

static wk__graph_node *create_node(wk__graph *graph, wk__graph_kind kind, const char *name) {
  if (graph->frozen) {
    (void)refuse_frozen();
    return NULL;
  }
  wk__graph_node *node = wk__arena_alloc(&graph->arena, sizeof *node);
  if (!node) return NULL;
  node->kind = (uint8_t)kind;
  node->name = unique_name(graph, name);
  return node->name ? node : NULL;
}

static void link_behind(wk__graph *graph, wk__graph_node *node, wk__graph_node *previous) {
  node->previous = previous;
  node->next = previous ? previous->next : graph->first;
  *(node->previous ? &node->previous->next : &graph->first) = node;
  *(node->next ? &node->next->previous : &graph->last) = node;
}

static void unlink_node(wk__graph *graph, wk__graph_node *node) {
  *(node->previous ? &node->previous->next : &graph->first) = node->next;
  *(node->next ? &node->next->previous : &graph->last) = node->previous;
}

/* The last step of making a node, the only one that happens after all allocations. */
static wk__graph_node *add_node(wk__graph *graph, wk__graph_node *node, wk__graph_node *previous) {
  if (wk__map_set(&graph->names, key_of_name(node->name), node) != WK_OK) return NULL;
  link_behind(graph, node, previous);
  graph->node_count++;
  return node;
}

static wk__graph_node *end_of(const wk__graph *graph) {
  return graph->insert_point ? graph->insert_point->previous : graph->last;
}

static void release_contents(wk__graph_node *node) {
  if (node->op) wk__op_hold(node->op, -1);
  wk__release(node->value);
  wk__release(node->constant);
  for (int i = 0; i < node->item_count; i++) wk__release(node->items[i]);
  node->value = node->constant = NULL;
  node->item_count = 0;
}

wk__graph_node **wk__graph_next_arg(const wk__graph_node *node, wk__arg_cursor *cursor) {
  for (int count = wk__graph_arg_count(node); cursor->arg < count; cursor->arg++, cursor->item = 0) {
    wk__node_span nodes = wk__graph_arg_nodes(&node->args[cursor->arg]);
    while (cursor->item < nodes.count) {
      wk__graph_node **use = nodes.items + cursor->item++;
      if (*use) return use;
    }
  }
  return NULL;
}

void wk__graph_each_arg(const wk__graph_node *node, void (*visit)(void *context, wk__graph_node *arg), void *context) {
  wk__arg_cursor cursor = {0};
  for (wk__graph_node **use; (use = wk__graph_next_arg(node, &cursor));) visit(context, *use);
}

static void count_args(const wk__graph_node *node, uint32_t change) {
  wk__arg_cursor cursor = {0};
  for (wk__graph_node **use; (use = wk__graph_next_arg(node, &cursor));) (*use)->use_count += change;
}

/* ==================================================== lifetime ================================================== */

wk__graph *wk__graph_create(void) {
  wk__graph *graph = wk__alloc_zeroed(sizeof *graph);
  if (graph) atomic_init(&graph->references, 1);
  return graph;
}

wk__graph *wk__graph_retain(wk__graph *graph) {
  if (graph) atomic_fetch_add_explicit(&graph->references, 1, memory_order_relaxed);
  return graph;
}

void wk__graph_release(wk__graph *graph) {
  if (!graph || !wk__last_reference(&graph->references)) return;
  for (wk__graph_node *node = graph->first; node; node = node->next) release_contents(node);
  wk__map_release(&graph->names);
  wk__shape_env_release(graph->env);
  wk__arena_release(&graph->arena);
  wk__free(graph->inputs);
  wk__free(graph->outputs);
  wk__free(graph->mutations);
  wk__free(graph);
}

wk__shape_env *wk__graph_env(wk__graph *graph) {
  if (!graph->env) graph->env = wk__shape_env_create();
  return graph->env;
}

wk_tensor *wk__graph_describe(const wk__spec *spec) {
  wk_tensor *shape = wk__tensor_shape_only(spec);
  if (shape && wk_int_check(shape->numel) == WK_OK) return shape;
  wk__release(shape);
  return NULL;
}

static wk_tensor *shape_of(const wk_tensor *t) {
  wk__spec spec;
  wk__spec_of(&spec, t);
  return wk__graph_describe(&spec);
}

/* =============================================== inputs and constants =========================================== */

wk__graph_node *wk__graph_input(wk__graph *graph, const wk_tensor *value, const char *name) {
  wk__graph_node *node = create_node(graph, WK__GRAPH_INPUT, name ? name : "input");
  if (!node || wk__grow(&graph->inputs, &graph->input_capacity, graph->input_count + 1, sizeof *graph->inputs))
    return NULL;
  node->index = (int32_t)graph->input_count;
  node->value = shape_of(value);
  wk__graph_node *before = graph->input_count ? graph->inputs[graph->input_count - 1] : NULL;
  if (!node->value || !add_node(graph, node, before)) {
    release_contents(node);
    return NULL;
  }
  if (graph->last_leaf == before) graph->last_leaf = node;
  return graph->inputs[graph->input_count++] = node;
}

wk__graph_node *wk__graph_constant(wk__graph *graph, wk_tensor *tensor, const char *name) {
  wk__graph_node *node = create_node(graph, WK__GRAPH_CONSTANT, name ? name : "constant");
  if (!node) return NULL;
  node->index = (int32_t)graph->constant_count;
  node->constant = wk__retain(tensor);
  node->value = shape_of(tensor);
  if (!node->value || !add_node(graph, node, graph->last_leaf)) {
    release_contents(node);
    return NULL;
  }
  graph->constant_count++;
  return graph->last_leaf = node;
}

/* ===================================================== calls ==================================================== */

static wk_status copy_arg(wk__graph *graph, wk__graph_arg *out, const wk__graph_arg *from) {
  bool nothing = from->tag == WK_VALUE_TENSOR && !from->node;
  *out = (wk__graph_arg){0};
  return nothing ? WK_OK : wk__value_copy(&out->value, &from->value, wk__value_in_arena, &graph->arena);
}

static wk_status copy_args(wk__graph *graph, wk__graph_node *node, const wk__graph_arg *args) {
  const wk__schema *schema = &node->op->schema;
  node->args = wk__arena_alloc(&graph->arena, schema->parameter_count * sizeof *node->args);
  if (!node->args) return WK_OUT_OF_MEMORY;
  for (int i = 0; i < schema->parameter_count; i++) {
    const wk__parameter *p = &schema->parameters[i];
    if (args[i].tag == WK_VALUE_NONE && p->has_default)
      node->args[i].value = p->default_value; /* holds no tensors */
    else
      WK_TRY(copy_arg(graph, &node->args[i], &args[i]));
  }
  return WK_OK;
}

bool wk__graph_is_written(const wk_op *op, int arg) {
  return op->tags & WK__TAG_MUTATES && op->schema.parameters[arg].written;
}

int wk__graph_value_count(const wk_op *op, const wk__graph_arg *args) {
  int count = wk__made_beside_writes(op);
  if (!(op->tags & WK__TAG_MUTATES)) return op->schema.result_is_list ? -1 : op->schema.result_count;
  for (int i = 0; i < op->schema.parameter_count; i++)
    if (wk__graph_is_written(op, i)) count += (int)wk__graph_arg_nodes(&args[i]).count;
  return count;
}

bool wk__graph_counts(const wk_op *op) {
  bool without_rule = op->has_kernel && !op->meta && !op->view && !op->compose && op->number < WK__OP_COUNT;
  return (without_rule && !(op->tags & WK__TAG_MUTATES)) || op == WK__OP(_told_rows);
}

bool wk__graph_has_effects(const wk__graph *graph) {
  const wk__graph_node *n = graph->first;
  while (n && !(n->kind == WK__GRAPH_CALL && n->op->tags & WK__TAG_RANDOM)) n = n->next;
  return n != NULL;
}

bool wk__graph_may_alias(const wk_op *op, int arg) {
  const wk__schema *schema = &op->schema;
  uint8_t type = schema->parameters[arg].type;
  if ((type != WK__TYPE_TENSOR && type != WK__TYPE_TENSORS) || op->tags & WK__TAG_MUTATES) return false;
  if (op->tags & WK__TAG_VIEW) return arg == 0;
  for (int r = 0; r < schema->result_count; r++)
    if (schema->result_alias[r] == arg + 1) return true;
  /* Kernels make what they return, and so do composites with a derivative that are no views. Others may give an
   * argument back. */
  return op->compose && !op->vjp;
}

static wk_status copy_values(wk__graph *graph, wk__graph_node *node, const wk_tensor *const *values, int count) {
  const wk__schema *schema = &node->op->schema;
  if (count == 1 && values[0] && schema->result_count == 1 && !schema->result_is_list) {
    node->value = shape_of(values[0]);
    return node->value ? WK_OK : wk_error_category();
  }
  if (count > UINT16_MAX) return wk_fail(WK_INTERNAL_ERROR, "%s has too many results for a graph", node->op->name);
  node->items = wk__arena_alloc(&graph->arena, (size_t)count * sizeof *node->items);
  node->item_nodes = wk__arena_alloc(&graph->arena, (size_t)count * sizeof *node->item_nodes);
  if (!node->items || !node->item_nodes) return WK_OUT_OF_MEMORY;
  node->item_count = (uint16_t)count;
  for (int i = 0; i < count; i++)
    if (values[i] && !(node->items[i] = shape_of(values[i]))) return wk_error_category();
  return WK_OK;
}

wk__graph_node *wk__graph_call(wk__graph *graph, const wk_op *op, const wk__graph_arg *args,
                               const wk_tensor *const *values, int value_count, const char *name) {
  wk__graph_node *node = create_node(graph, WK__GRAPH_CALL, name ? name : op->base_name);
  if (!node) return NULL;
  node->op = op;
  wk__op_hold(op, 1);
  wk_status status = copy_args(graph, node, args);
  if (status == WK_OK) status = copy_values(graph, node, values, value_count);
  if (status != WK_OK || !add_node(graph, node, end_of(graph))) {
    release_contents(node);
    return NULL;
  }
  count_args(node, 1);
  return node;
}

/* ===================================================== items ==================================================== */

static wk__graph_node *create_item(wk__graph *graph, wk__graph_node *list, int index, const char *name) {
  char own_name[96];
  if (!wk__graph_is_list(list) || index < 0 || index >= list->item_count || !list->items[index]) {
    (void)wk_fail(WK_INTERNAL_ERROR, "%%%s has no item %d", list->name, index);
    return NULL;
  }
  snprintf(own_name, sizeof own_name, "%.64s_%d", list->name, index);
  wk__graph_node *node = create_node(graph, WK__GRAPH_ITEM, name ? name : own_name);
  if (!node) return NULL;
  node->index = index;
  node->args = wk__arena_alloc(&graph->arena, sizeof *node->args);
  node->value = wk__retain(list->items[index]);
  if (node->args) node->args[0] = (wk__graph_arg){.tag = WK_VALUE_TENSOR, .node = list};
  if (node->args) return node;
  release_contents(node);
  return NULL;
}

static wk__graph_node *finish_item(wk__graph *graph, wk__graph_node *node, wk__graph_node *previous) {
  if (!node) return NULL;
  if (!add_node(graph, node, previous)) {
    release_contents(node);
    return NULL;
  }
  wk__graph_node *list = node->args[0].node;
  list->use_count++;
  if (!list->item_nodes[node->index]) list->item_nodes[node->index] = node;
  return node;
}

wk__graph_node *wk__graph_append_item(wk__graph *graph, wk__graph_node *list, int index, const char *name) {
  return finish_item(graph, create_item(graph, list, index, name), end_of(graph));
}

static bool is_item_of(const wk__graph_node *node, const wk__graph_node *list) {
  return node->kind == WK__GRAPH_ITEM && node->args[0].node == list;
}

/* Behind the list and those of its items that stand there and come before this one. */
static wk__graph_node *place_for_item(wk__graph_node *list, int index) {
  for (int i = index - 1; i >= 0; i--) {
    wk__graph_node *other = list->item_nodes[i];
    if (other && (other->previous == list || is_item_of(other->previous, list))) return other;
  }
  return list;
}

wk__graph_node *wk__graph_item(wk__graph *graph, wk__graph_node *list, int index) {
  wk__graph_node *made = list->item_nodes && index >= 0 && index < list->item_count ? list->item_nodes[index] : NULL;
  if (!made) {
    wk__graph_node *node = create_item(graph, list, index, NULL);
    return finish_item(graph, node, place_for_item(list, index));
  }
  if (!graph->frozen && made->previous != list && !is_item_of(made->previous, list)) {
    if (graph->insert_point == made) graph->insert_point = made->next;
    unlink_node(graph, made); /* from text: it has to stand before whatever is made from now on */
    link_behind(graph, made, place_for_item(list, index));
  }
  return made;
}

/* =============================================== outputs and mutations ========================================== */

wk_status wk__graph_output(wk__graph *graph, wk__graph_node *node) {
  if (graph->frozen) return refuse_frozen();
  WK_TRY(wk__grow(&graph->outputs, &graph->output_capacity, graph->output_count + 1, sizeof *graph->outputs));
  graph->outputs[graph->output_count++] = node;
  node->use_count++;
  return WK_OK;
}

void wk__graph_clear_outputs(wk__graph *graph) {
  assert(!graph->frozen);
  for (int64_t i = 0; i < graph->output_count; i++) graph->outputs[i]->use_count--;
  graph->output_count = 0;
}

wk_status wk__graph_mutate(wk__graph *graph, int input, wk__graph_node *node) {
  if (graph->frozen) return refuse_frozen();
  wk__graph_mutation *found = NULL;
  for (int64_t i = 0; i < graph->mutation_count && !found; i++)
    if (graph->mutations[i].input == input) found = &graph->mutations[i];
  if (!found) {
    WK_TRY(wk__grow(&graph->mutations, &graph->mutation_capacity, graph->mutation_count + 1, sizeof *found));
    found = &graph->mutations[graph->mutation_count++];
  } else {
    found->node->use_count--;
  }
  *found = (wk__graph_mutation){input, node};
  node->use_count++;
  return WK_OK;
}

const wk__source_line *wk__source_line_add(wk__graph *graph, const wk__source_line *caller, const char *file,
                                           const char *function, int line) {
  wk__source_line *source = wk__arena_alloc(&graph->arena, sizeof *source);
  if (!source) return NULL;
  *source = (wk__source_line){caller, wk__arena_strdup(&graph->arena, file ? file : ""), NULL, line};
  source->function = wk__arena_strdup(&graph->arena, function ? function : "");
  return source->file && source->function ? source : NULL;
}

void wk__graph_set_insert_point(wk__graph *graph, wk__graph_node *before) { graph->insert_point = before; }

/* ============================================ arguments as descriptions ========================================= */

int64_t wk__graph_listed(const wk_op *op, const wk__graph_arg *args) {
  int64_t n = 0;
  for (int i = 0; i < op->schema.parameter_count; i++) n += args[i].tag == WK_VALUE_TENSORS ? args[i].count : 0;
  return n;
}

static wk_tensor *description_of(const wk__graph_node *node) { return node ? node->value : NULL; }

void wk__graph_place_args(const wk_op *op, const wk__graph_arg *args, wk__graph_tensor_fn *tensor_of, wk_value *out,
                          wk_tensor **space) {
  for (int i = 0; i < op->schema.parameter_count; i++) {
    out[i] = args[i].value;
    if (args[i].tag == WK_VALUE_TENSOR) out[i].tensor = tensor_of(args[i].node);
    if (args[i].tag != WK_VALUE_TENSORS) continue;
    out[i].tensors = space;
    for (uint32_t k = 0; k < args[i].count; k++) *space++ = tensor_of(args[i].nodes[k]);
  }
}

void wk__graph_describe_args(const wk_op *op, const wk__graph_arg *args, wk_value *out, wk_tensor **space) {
  wk__graph_place_args(op, args, description_of, out, space);
}

/* =================================================== rewriting ================================================== */

/* An item's list has become another one, which stands earlier than the old one's users. */
static void move_item(wk__graph_node *item, wk__graph_node *from, wk__graph_node *to) {
  if (from->item_nodes && from->item_nodes[item->index] == item) from->item_nodes[item->index] = NULL;
  if (to->item_nodes && item->index < to->item_count && !to->item_nodes[item->index])
    to->item_nodes[item->index] = item;
}

static uint32_t replace_in(wk__graph_node *user, wk__graph_node *old, wk__graph_node *by) {
  wk__arg_cursor cursor = {0};
  uint32_t count = 0;
  for (wk__graph_node **use; (use = wk__graph_next_arg(user, &cursor));) {
    if (*use != old) continue;
    *use = by;
    count++;
  }
  if (count && user->kind == WK__GRAPH_ITEM) move_item(user, old, by);
  old->use_count -= count;
  by->use_count += count;
  return count;
}

static void replace_behind(wk__graph_node *first, wk__graph_node *old, wk__graph_node *by) {
  for (wk__graph_node *user = first; user && old->use_count; user = user->next)
    if (user != by) (void)replace_in(user, old, by);
}

/* Users stand behind what they use, mostly close to it, so the search begins there and ends with the last use. */
void wk__graph_replace_uses(wk__graph *graph, wk__graph_node *old, wk__graph_node *by) {
  assert(!graph->frozen);
  for (int64_t i = 0; i < graph->output_count; i++) {
    if (graph->outputs[i] != old) continue;
    graph->outputs[i] = by;
    old->use_count--, by->use_count++;
  }
  for (int64_t i = 0; i < graph->mutation_count; i++) {
    if (graph->mutations[i].node != old) continue;
    graph->mutations[i].node = by;
    old->use_count--, by->use_count++;
  }
  replace_behind(old->next, old, by);
  replace_behind(graph->first, old, by); /* while a graph is rewritten its nodes may be in no order */
}

/* What stands in a place now, with the counts of both. */
static wk__graph_node *moved_use(wk__graph_node *old, wk__graph_node *const *was, wk__graph_node *const *now,
                                 int64_t count) {
  if (old->number >= count || was[old->number] != old || now[old->number] == old) return old;
  old->use_count--;
  now[old->number]->use_count++;
  return now[old->number];
}

void wk__graph_replace_numbered(wk__graph *graph, wk__graph_node *const *was, wk__graph_node *const *now,
                                int64_t count) {
  assert(!graph->frozen);
  for (wk__graph_node *user = graph->first; user; user = user->next) {
    wk__arg_cursor cursor = {0};
    if (user->kind == WK__GRAPH_ITEM) continue; /* lists are not replaced */
    for (wk__graph_node **use; (use = wk__graph_next_arg(user, &cursor));) *use = moved_use(*use, was, now, count);
  }
  for (int64_t i = 0; i < graph->output_count; i++) graph->outputs[i] = moved_use(graph->outputs[i], was, now, count);
  for (int64_t i = 0; i < graph->mutation_count; i++)
    graph->mutations[i].node = moved_use(graph->mutations[i].node, was, now, count);
}

wk_status wk__graph_replace_arg(wk__graph *graph, wk__graph_node *user, wk__graph_node *old, wk__graph_node *by) {
  if (graph->frozen) return refuse_frozen();
  if (wk__graph_is_list(old) != wk__graph_is_list(by))
    return wk_fail(WK_INTERNAL_ERROR, "%%%s and %%%s are not both tensors or both lists", old->name, by->name);
  if (!replace_in(user, old, by)) return wk_fail(WK_INTERNAL_ERROR, "%%%s does not use %%%s", user->name, old->name);
  return WK_OK;
}

void wk__graph_erase(wk__graph *graph, wk__graph_node *node) {
  assert(!graph->frozen && node->use_count == 0 && node->kind != WK__GRAPH_INPUT);
  count_args(node, (uint32_t)-1);
  if (node->kind == WK__GRAPH_ITEM && node->args[0].node->item_nodes[node->index] == node)
    node->args[0].node->item_nodes[node->index] = NULL;
  if (node->kind == WK__GRAPH_CONSTANT) graph->constant_count--;
  if (graph->last_leaf == node) graph->last_leaf = node->previous;
  if (graph->insert_point == node) graph->insert_point = node->next;
  unlink_node(graph, node);
  wk__map_remove(&graph->names, key_of_name(node->name));
  graph->node_count--;
  release_contents(node);
}

void wk__graph_number(wk__graph *graph) {
  uint32_t number = 0;
  int32_t constants = 0;
  if (graph->frozen) return; /* others may be reading it, and it was numbered then */
  for (wk__graph_node *node = graph->first; node; node = node->next) {
    node->number = number++;
    if (node->kind == WK__GRAPH_CONSTANT) node->index = constants++;
  }
}

wk_status wk__graph_freeze(wk__graph *graph) {
  if (graph->frozen) return WK_OK;
  wk__graph_number(graph);
#ifdef WICK_DEBUG
  WK_TRY(wk__graph_verify(graph));
#endif
  graph->frozen = true;
  return WK_OK;
}

/* ===================================================== copies =================================================== */

typedef struct copier {
  wk__graph *graph;
  wk__map nodes, sources; /* old -> new */
} copier;

static wk_int translate(const copier *c, wk_int x) { return c->graph->env ? wk__sym_translate(x, c->graph->env) : x; }

static wk_status copy_shape(const copier *c, const wk_tensor *from, wk_tensor **out) {
  wk__spec spec;
  wk__spec_of(&spec, from);
  spec.offset = translate(c, spec.offset);
  WK_TRY(wk_int_check(spec.offset));
  for (int d = 0; d < spec.ndim; d++) {
    spec.sizes[d] = translate(c, spec.sizes[d]);
    spec.strides[d] = translate(c, spec.strides[d]);
    WK_TRY(wk_int_check(spec.sizes[d]));
    WK_TRY(wk_int_check(spec.strides[d]));
  }
  *out = wk__graph_describe(&spec);
  return *out ? WK_OK : wk_error_category();
}

static const wk__source_line *copy_source(copier *c, const wk__source_line *source) {
  if (!source) return NULL;
  const wk__source_line *known = wk__map_get(&c->sources, (uintptr_t)source);
  if (known) return known;
  const wk__source_line *caller = copy_source(c, source->caller);
  if (source->caller && !caller) return NULL;
  const wk__source_line *copy = wk__source_line_add(c->graph, caller, source->file, source->function, source->line);
  return copy && wk__map_set(&c->sources, (uintptr_t)source, (void *)copy) == WK_OK ? copy : NULL;
}

static wk__graph_node *new_of(const copier *c, const wk__graph_node *old) {
  return old ? wk__map_get(&c->nodes, (uintptr_t)old) : NULL;
}

/* A copied call still has the old graph's nodes and symbols. */
static wk_status translate_args(const copier *c, const wk__graph_node *node) {
  for (int i = 0; i < wk__graph_arg_count(node); i++) {
    wk__node_span nodes = wk__graph_arg_nodes(&node->args[i]);
    wk__integer_span integers = wk__graph_arg_integers(&node->args[i]);
    for (uint32_t k = 0; k < nodes.count; k++) nodes.items[k] = new_of(c, nodes.items[k]);
    for (uint32_t k = 0; k < integers.count; k++) {
      integers.items[k] = translate(c, integers.items[k]);
      WK_TRY(wk_int_check(integers.items[k]));
    }
  }
  return WK_OK;
}

static wk_status copy_values_of(const copier *c, wk__graph_node *copy, const wk__graph_node *node) {
  if (node->value) return copy_shape(c, node->value, &copy->value);
  copy->items = wk__arena_alloc(&c->graph->arena, node->item_count * sizeof *copy->items);
  copy->item_nodes = wk__arena_alloc(&c->graph->arena, node->item_count * sizeof *copy->item_nodes);
  if (!copy->items || !copy->item_nodes) return WK_OUT_OF_MEMORY;
  copy->item_count = node->item_count;
  for (int i = 0; i < node->item_count; i++)
    if (node->items[i]) WK_TRY(copy_shape(c, node->items[i], &copy->items[i]));
  return WK_OK;
}

static wk_status fill_node(copier *c, wk__graph_node *copy, const wk__graph_node *node) {
  copy->flags = node->flags;
  copy->index = node->index;
  copy->op = node->op;
  if (copy->op) wk__op_hold(copy->op, 1);
  copy->constant = wk__retain(node->constant);
  copy->source = copy_source(c, node->source);
  if (node->source && !copy->source) return wk_error_category();
  WK_TRY(copy_values_of(c, copy, node));
  int count = wk__graph_arg_count(node);
  copy->args = wk__arena_alloc(&c->graph->arena, (size_t)count * sizeof *copy->args);
  if (!copy->args) return WK_OUT_OF_MEMORY;
  for (int i = 0; i < count; i++) WK_TRY(copy_arg(c->graph, &copy->args[i], &node->args[i]));
  return translate_args(c, copy);
}

static wk_status copy_node(copier *c, const wk__graph_node *node) {
  wk__graph_node *copy = create_node(c->graph, (wk__graph_kind)node->kind, node->name);
  if (!copy) return wk_error_category();
  wk_status status = fill_node(c, copy, node);
  if (status == WK_OK) status = wk__map_set(&c->nodes, (uintptr_t)node, copy);
  if (status != WK_OK || !add_node(c->graph, copy, c->graph->last)) {
    release_contents(copy);
    return wk_error_category();
  }
  count_args(copy, 1);
  if (copy->kind != WK__GRAPH_ITEM) return WK_OK;
  wk__graph_node *list = copy->args[0].node;
  if (!list->item_nodes[copy->index]) list->item_nodes[copy->index] = copy;
  return WK_OK;
}

static wk_status copy_ends(const copier *c, const wk__graph *from) {
  for (int64_t i = 0; i < from->output_count; i++) WK_TRY(wk__graph_output(c->graph, new_of(c, from->outputs[i])));
  for (int64_t i = 0; i < from->mutation_count; i++)
    WK_TRY(wk__graph_mutate(c->graph, from->mutations[i].input, new_of(c, from->mutations[i].node)));
  c->graph->last_leaf = new_of(c, from->last_leaf);
  c->graph->constant_count = from->constant_count;
  return WK_OK;
}

static wk_status copy_graph(copier *c, const wk__graph *from) {
  wk__graph *graph = c->graph;
  if (from->env && !(graph->env = wk__shape_env_copy(from->env))) return wk_error_category();
  WK_TRY(wk__grow(&graph->inputs, &graph->input_capacity, from->input_count, sizeof *graph->inputs));
  for (const wk__graph_node *node = from->first; node; node = node->next) WK_TRY(copy_node(c, node));
  for (int64_t i = 0; i < from->input_count; i++) graph->inputs[i] = new_of(c, from->inputs[i]);
  graph->input_count = from->input_count;
  return copy_ends(c, from);
}

wk__graph *wk__graph_copy(const wk__graph *from) {
  copier c = {.graph = wk__graph_create()};
  wk_status status = c.graph ? copy_graph(&c, from) : WK_OUT_OF_MEMORY;
  wk__map_release(&c.nodes);
  wk__map_release(&c.sources);
  if (status == WK_OK) {
    c.graph->from_text = from->from_text;
    return c.graph;
  }
  wk__graph_release(c.graph);
  return NULL;
}
