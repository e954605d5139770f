/* Planning a graph's execution: the order of steps, where each value lives, what is written in place.
 *
 * In: a graph that verifies. Out: the steps of an executor. Plain calls keep their order. A call that writes inputs and
 * whose values only the graph's mutations use is put off to the end, so that inputs change only when nothing
 * else can fail; there it writes directly, unless something behind it reads the old value. Values that share memory
 * form a class: views are in the class of what they look at, and a class counts as read as long as one of its values
 * is. Outputs and copies that look at an input that is going to change are cloned before the first write.
 * Tests: tests/c/test_graph.c, execute_*. */
#include "execute/internal.h"

enum { NONE = -1, CONSTANT = -2, MIXED = -3 }; /* whose memory it is, besides the number of an input */
enum { NO_SLOT = -1, WANTED = -2 };

/* A tensor of the graph: of a node, or one of a list's. Classes are trees; `parent` of a root is itself. */
typedef struct value {
  int32_t parent;
  int32_t slot;
  int32_t end_slot;  /* for outputs and copies when the value itself may be gone by then; NO_SLOT: `slot` */
  int32_t last_read; /* position of the last step that reads it; of a root: of the whole class */
  int32_t owner;     /* of a root: NONE, CONSTANT, MIXED or an input */
  int32_t count;     /* of a root: how often the call that is looked at uses the class */
  bool escapes;      /* of a root: something is read behind all steps */
  bool taped;        /* of a root: a tape may have kept it */
  bool is_view;
} value;

typedef struct planner {
  wk__graph_executor *e;
  const wk__graph *graph;
  value *values;          /* nodes by number, then items */
  int32_t *items;         /* by number of a list: its first item among the values */
  int32_t *position;      /* by number: place in the order of steps */
  bool *put_off;          /* by number: runs at the end */
  bool *plainly_used;     /* by number: by a call that is not put off */
  wk__graph_node **final; /* by input: the value that it is to have, NULL: unchanged */
  bool *written;          /* by input: a step has written it */
  int64_t value_count;
  bool taped; /* of the step that is being made */
} planner;

/* ==================================================== values ==================================================== */

static int32_t id_of(const planner *p, const wk__graph_node *node) {
  if (node->kind != WK__GRAPH_ITEM) return (int32_t)node->number;
  return p->items[node->args[0].node->number] + node->index;
}

static value *root_of(const planner *p, int32_t id) {
  while (p->values[id].parent != id) {
    p->values[id].parent = p->values[p->values[id].parent].parent;
    id = p->values[id].parent;
  }
  return &p->values[id];
}
static value *class_of(const planner *p, const wk__graph_node *node) { return root_of(p, id_of(p, node)); }

static void unite(const planner *p, int32_t id, int32_t with) {
  value *a = root_of(p, id), *b = root_of(p, with);
  if (a == b) return;
  a->parent = b->parent;
  b->last_read = a->last_read > b->last_read ? a->last_read : b->last_read;
  b->escapes |= a->escapes;
  b->taped |= a->taped;
  if (a->owner != b->owner) b->owner = b->owner == NONE ? a->owner : a->owner == NONE ? b->owner : MIXED;
}

/* The values of a call: its own, or one for each item. */
static int32_t first_value(const planner *p, const wk__graph_node *call) {
  return wk__graph_is_list(call) ? p->items[call->number] : (int32_t)call->number;
}
static int value_count_of(const wk__graph_node *call) { return call->value ? 1 : call->item_count; }

/* ============================================ which calls are put off =========================================== */

/* The input that has this value in the end and is the only one to want it, or -1. */
static int only_for_input(const planner *p, const wk__graph_node *value_node) {
  if (!value_node || value_node->use_count != 1) return -1;
  for (int64_t i = 0; i < p->graph->mutation_count; i++)
    if (p->graph->mutations[i].node == value_node) return p->graph->mutations[i].input;
  return -1;
}

bool wk__graph_same_sizes(const wk_tensor *a, const wk_tensor *b) {
  if (a->dtype != b->dtype || a->ndim != b->ndim || !wk__device_equal(a->device, b->device)) return false;
  for (int d = 0; d < a->ndim; d++)
    if (!wk_int_same(a->sizes[d], b->sizes[d])) return false;
  return true;
}

bool wk__graph_same_layout(const wk_tensor *a, const wk_tensor *b) {
  if (!wk__graph_same_sizes(a, b)) return false;
  for (int d = 0; d < a->ndim; d++)
    if (!wk_int_same(a->strides[d], b->strides[d])) return false;
  return true;
}

/* A fused kernel knows its result's strides beforehand. */
static int destination_of_fused(const planner *p, const wk__graph_node *node) {
  int input = node->value && node->op->tags & WK__TAG_POINTWISE ? only_for_input(p, node) : -1;
  if (input < 0) return -1;
  const wk_tensor *target = p->graph->inputs[input]->value;
  return wk__graph_same_layout(node->value, target) ? input : -1;
}

/* The input that the call can compute its value into, or -1. Kernels go through a temporary anyway. */
static int destination_of(const planner *p, const wk__graph_node *node) {
  const wk_op *op = node->op;
  if (op->tags & WK__TAG_FUSED) return destination_of_fused(p, node);
  if (!node->value || !op->meta || !op->lower || op->compose || op->tags & WK__TAG_RANDOM) return -1;
  int input = only_for_input(p, node);
  if (input < 0 || !wk__graph_same_sizes(node->value, p->graph->inputs[input]->value)) return -1;
  if (!(node->flags & WK__GRAPH_TAPED)) return input;
  bool in_place = node->args[0].tag == WK_VALUE_TENSOR && node->args[0].node == p->graph->inputs[input];
  return in_place && wk__writes_in_place(op) ? input : -1;
}

/* The tensors that a mutating call writes, in the order of its values, which come behind those of what it makes. */
typedef struct written_cursor {
  wk__arg_cursor at;
  int index; /* among the call's values */
} written_cursor;
static written_cursor before_written(const wk__graph_node *call) {
  return (written_cursor){.index = wk__made_beside_writes(call->op) - 1};
}
static wk__graph_node **next_written(const wk__graph_node *node, written_cursor *c) {
  for (wk__graph_node **use; (use = wk__graph_next_arg(node, &c->at));) {
    if (!wk__graph_is_written(node->op, c->at.arg)) continue;
    c->index++;
    return use;
  }
  return NULL;
}

static wk__graph_node *value_node_of(const wk__graph_node *call, int index) {
  return (wk__graph_node *)(call->value ? call : call->item_nodes[index]);
}

/* The input that written argument `index` is and that gets its new value, or -1. */
static int written_input(const planner *p, const wk__graph_node *call, const wk__graph_node *arg, int index) {
  if (arg->kind != WK__GRAPH_INPUT || p->final[arg->index] == NULL) return -1;
  return only_for_input(p, value_node_of(call, index)) == arg->index ? arg->index : -1;
}

static bool writes_inputs(const planner *p, const wk__graph_node *node) {
  if (!(node->op->tags & WK__TAG_MUTATES)) return destination_of(p, node) >= 0;
  written_cursor c = before_written(node);
  for (wk__graph_node **use; (use = next_written(node, &c));)
    if (written_input(p, node, *use, c.index) >= 0) return true;
  return false;
}

static void mark_args(const planner *p, const wk__graph_node *node) {
  wk__arg_cursor cursor = {0};
  for (wk__graph_node **use; (use = wk__graph_next_arg(node, &cursor));) p->plainly_used[(*use)->number] = true;
}

/* From the end, so that all users are known. Random calls keep their order. */
static void choose_put_off(const planner *p) {
  bool random_behind = false;
  for (const wk__graph_node *node = p->graph->last; node; node = node->previous) {
    if (node->kind == WK__GRAPH_ITEM && p->plainly_used[node->number])
      p->plainly_used[node->args[0].node->number] = true;
    if (node->kind != WK__GRAPH_CALL) continue;
    bool random = node->op->tags & WK__TAG_RANDOM;
    p->put_off[node->number] = !p->plainly_used[node->number] && !(random && random_behind) && writes_inputs(p, node);
    if (p->put_off[node->number]) continue;
    random_behind |= random;
    mark_args(p, node);
  }
}

/* ==================================================== reading =================================================== */

/* Positions: plain calls, then one for the clones, then the calls put off. */
static void choose_positions(const planner *p) {
  int32_t next = 0;
  for (int late = 0; late < 2; late++) {
    for (const wk__graph_node *node = p->graph->first; node; node = node->next)
      if (node->kind == WK__GRAPH_CALL && p->put_off[node->number] == (late == 1)) p->position[node->number] = next++;
    next++;
  }
}

static void note_reads(const planner *p) {
  for (const wk__graph_node *node = p->graph->first; node; node = node->next) {
    if (node->kind == WK__GRAPH_ITEM) p->values[id_of(p, node)].slot = WANTED;
    if (node->kind != WK__GRAPH_CALL) continue;
    wk__arg_cursor cursor = {0};
    for (wk__graph_node **use; (use = wk__graph_next_arg(node, &cursor));) {
      value *v = &p->values[id_of(p, *use)];
      if (v->last_read < p->position[node->number]) v->last_read = p->position[node->number];
    }
  }
}

static const wk__graph_node *maker_of(const wk__graph_node *node) {
  return node->kind == WK__GRAPH_ITEM ? node->args[0].node : node;
}

static void note_ends(const planner *p) {
  for (int64_t i = 0; i < p->graph->output_count; i++) p->values[id_of(p, p->graph->outputs[i])].escapes = true;
  for (int64_t i = 0; i < p->graph->mutation_count; i++) {
    const wk__graph_mutation *m = &p->graph->mutations[i];
    const wk__graph_node *maker = maker_of(m->node);
    bool put_off = maker->kind == WK__GRAPH_CALL && p->put_off[maker->number];
    if (m->node != p->graph->inputs[m->input] && !put_off) p->values[id_of(p, m->node)].escapes = true;
  }
}

/* ================================================== making steps ================================================ */

#define GROW(list) WK_TRY(wk__grow(&e->list##s, &e->list##_capacity, e->list##_count + 1, sizeof *e->list##s))

static wk_status add_value(const planner *p, const wk_value *v, int64_t list) {
  wk__graph_executor *e = p->e;
  WK_TRY(wk__grow(&e->value_lists, &e->value_list_capacity, e->value_count + 1, sizeof *e->value_lists));
  GROW(value);
  e->value_lists[e->value_count] = (int32_t)list;
  e->values[e->value_count++] = *v;
  return WK_OK;
}

/* Places are noted by kind and index first: the layout is known when all steps are. */
enum { IN_VALUES, IN_TENSORS, IN_INTEGERS };
static uint32_t place(int kind, int64_t index) { return (uint32_t)index << 2 | (uint32_t)kind; }

static wk_status add_patch(const planner *p, uint32_t where, int32_t slot) {
  wk__graph_executor *e = p->e;
  wk__graph_patch patch = {where, slot};
  bool constant = slot >= e->input_count && slot < e->input_count + e->constant_count;
  if (constant) {
    WK_TRY(wk__grow(&e->constant_patches, &e->constant_patch_capacity, e->constant_patch_count + 1, sizeof patch));
    e->constant_patches[e->constant_patch_count++] = patch;
    return WK_OK;
  }
  WK_TRY(wk__grow(&e->patches, &e->patch_capacity, e->patch_count + 1, sizeof patch));
  e->patches[e->patch_count++] = patch;
  return WK_OK;
}

static wk_status add_tensor(const planner *p, int32_t slot) {
  WK_TRY(add_patch(p, place(IN_VALUES, p->e->value_count), slot));
  return add_value(p, &(wk_value){.tag = WK_VALUE_TENSOR}, -1);
}

static wk_status add_number(const planner *p, uint32_t where, wk_int expression) {
  wk__graph_executor *e = p->e;
  if (wk_int_is_known(expression)) return WK_OK;
  GROW(number);
  e->numbers[e->number_count++] = (wk__graph_number_patch){where, expression};
  return WK_OK;
}

static wk_status add_integers(const planner *p, const wk__graph_arg *arg) {
  wk__graph_executor *e = p->e;
  int64_t first = e->integer_count;
  WK_TRY(wk__grow(&e->integers, &e->integer_capacity, first + arg->count, sizeof *e->integers));
  for (uint32_t k = 0; k < arg->count; k++) {
    WK_TRY(add_number(p, place(IN_INTEGERS, e->integer_count), arg->integers[k]));
    e->integers[e->integer_count++] = arg->integers[k];
  }
  return add_value(p, &(wk_value){.tag = WK_VALUE_INTS, .count = arg->count}, first);
}

/* The slot that argument node `arg` is read from; written arguments may have been given another one. */
static int32_t slot_to_read(const planner *p, const wk__graph_node *call, int arg, const wk__graph_node *node,
                            int *written) {
  if (!wk__graph_is_written(call->op, arg)) return p->values[id_of(p, node)].slot;
  return p->values[first_value(p, call) + (*written)++].slot;
}

static wk_status add_tensors(const planner *p, const wk__graph_node *call, int arg, int *written) {
  wk__graph_executor *e = p->e;
  const wk__graph_arg *a = &call->args[arg];
  int64_t first = e->tensor_count;
  for (uint32_t k = 0; k < a->count; k++, e->tensor_count++) {
    if (!a->nodes[k]) continue;
    int32_t slot = slot_to_read(p, call, arg, a->nodes[k], written);
    WK_TRY(add_patch(p, place(IN_TENSORS, e->tensor_count), slot));
  }
  return add_value(p, &(wk_value){.tag = WK_VALUE_TENSORS, .count = a->count}, first);
}

static wk_status add_argument(const planner *p, const wk__graph_node *call, int arg, int *written) {
  const wk__graph_arg *a = &call->args[arg];
  bool symbolic = false;
  if (a->tag == WK_VALUE_TENSOR) return add_tensor(p, slot_to_read(p, call, arg, a->node, written));
  if (a->tag == WK_VALUE_TENSORS) return add_tensors(p, call, arg, written);
  for (uint32_t k = 0; a->tag == WK_VALUE_INTS && k < a->count; k++) symbolic |= !wk_int_is_known(a->integers[k]);
  if (symbolic) return add_integers(p, a);
  wk_value v = a->value;
  if (a->tag == WK_VALUE_INPUT) {
    wk__graph_executor *e = p->e;
    GROW(input_number);
    e->input_numbers[e->input_number_count++] =
        (wk__graph_input_number){place(IN_VALUES, e->value_count), a->count, a->number};
    v = wk__v_double(a->number);
  }
  if (a->tag == WK_VALUE_INT) WK_TRY(add_number(p, place(IN_VALUES, p->e->value_count), a->integer));
  return add_value(p, &v, -1);
}

static wk_status begin_step(const planner *p, const wk_op *op, const wk__graph_node *node, wk__graph_step **out) {
  wk__graph_executor *e = p->e;
  GROW(step);
  bool composite = op->compose && !op->vjp && !(op->tags & WK__TAG_MUTATES);
  *out = &e->steps[e->step_count++];
  **out = (wk__graph_step){.op = op,
                           .node = node,
                           .taped = p->taped,
                           .composite = composite,
                           .destination = NO_SLOT,
                           .slot = NO_SLOT,
                           .first_value = (int32_t)e->value_count,
                           .first_patch = (int32_t)e->patch_count};
  return WK_OK;
}

static void end_step(const planner *p, wk__graph_step *step) {
  step->patch_count = (int32_t)p->e->patch_count - step->first_patch;
}

static int32_t new_slot(const planner *p) { return (int32_t)p->e->slot_count++; }

static wk_status add_clone(const planner *p, int32_t from, int32_t to) {
  wk__graph_step *step;
  WK_TRY(begin_step(p, WK__OP(clone), NULL, &step));
  WK_TRY(add_tensor(p, from));
  WK_TRY(add_value(p, &(wk_value){0}, -1));
  step->result = WK__RESULT_ONE;
  step->slot = to;
  end_step(p, step);
  return WK_OK;
}

static wk_status add_copy(const planner *p, int32_t to, int32_t from) {
  wk__graph_step *step;
  WK_TRY(begin_step(p, WK__OP(copy_), NULL, &step));
  WK_TRY(add_tensor(p, to));
  WK_TRY(add_tensor(p, from));
  WK_TRY(add_value(p, &(wk_value){.tag = WK_VALUE_BOOL}, -1));
  step->result = WK__RESULT_DROP;
  end_step(p, step);
  return WK_OK;
}

/* ==================================================== results =================================================== */

static wk_status slots_of_items(const planner *p, const wk__graph_node *call, int count, wk__graph_step *step) {
  wk__graph_executor *e = p->e;
  int64_t first = e->result_slot_count;
  WK_TRY(wk__grow(&e->result_slots, &e->result_slot_capacity, first + count, sizeof *e->result_slots));
  for (int k = 0; k < count; k++) {
    value *v = &p->values[p->items[call->number] + k];
    v->slot = v->slot == WANTED ? new_slot(p) : NO_SLOT;
    e->result_slots[e->result_slot_count++] = v->slot;
  }
  step->result = call->op->schema.result_is_list ? WK__RESULT_LIST : WK__RESULT_MANY;
  step->slot = (int32_t)first;
  step->result_count = count;
  return WK_OK;
}

static void slot_of_value(const planner *p, const wk__graph_node *call, wk__graph_step *step) {
  step->result = WK__RESULT_ONE;
  step->slot = p->values[call->number].slot = new_slot(p);
}

/* Of a call that writes: the first of its values, or its only one, are what it makes. */
static wk_status slots_of_made(const planner *p, const wk__graph_node *call, int made, wk__graph_step *step) {
  if (!call->value) return slots_of_items(p, call, made, step);
  slot_of_value(p, call, step);
  return WK_OK;
}

/* Results join the classes of what they may look at. */
static void join_classes(const planner *p, const wk__graph_node *call) {
  wk__arg_cursor cursor = {0};
  int32_t first = first_value(p, call);
  for (wk__graph_node **use; (use = wk__graph_next_arg(call, &cursor));) {
    if (p->taped) class_of(p, *use)->taped = true;
    if (!wk__graph_may_alias(call->op, cursor.arg)) continue;
    for (int k = 0; k < value_count_of(call); k++) {
      unite(p, first + k, id_of(p, *use));
      p->values[first + k].is_view = true;
    }
  }
  for (int k = 0; k < value_count_of(call); k++) root_of(p, first + k)->taped |= p->taped;
}

/* ============================================ calls that write arguments ======================================== */

static void count_classes(const planner *p, const wk__graph_node *call, int change) {
  wk__arg_cursor cursor = {0};
  for (wk__graph_node **use; (use = wk__graph_next_arg(call, &cursor));) class_of(p, *use)->count += change;
}

/* Only this argument of this call still needs the memory as it is. */
static bool may_write(const planner *p, const wk__graph_node *call, const wk__graph_node *arg, int index) {
  const value *v = &p->values[id_of(p, arg)], *c = class_of(p, arg);
  if (c->count > 1 || c->last_read > p->position[call->number]) return false;
  if (arg->kind == WK__GRAPH_INPUT) {
    bool wanted_once = written_input(p, call, arg, index) >= 0 && !p->values[first_value(p, call) + index].escapes;
    return p->put_off[call->number] && c->owner == arg->index && wanted_once;
  }
  return c->owner == NONE && !v->is_view && !c->escapes && !c->taped && !p->taped;
}

/* Chooses the slot that the new value of a written argument has, and where the call therefore writes. */
static wk_status place_written(const planner *p, const wk__graph_node *call, const wk__graph_node *arg, int index) {
  value *made = &p->values[first_value(p, call) + index];
  int32_t old_slot = p->values[id_of(p, arg)].slot;
  if (may_write(p, call, arg, index)) {
    made->slot = old_slot;
    if (arg->kind != WK__GRAPH_INPUT) return WK_OK;
    made->owner = arg->index;
    p->written[arg->index] = true;
    return WK_OK;
  }
  made->slot = new_slot(p);
  return add_clone(p, old_slot, made->slot);
}

static wk_status plan_mutating(const planner *p, const wk__graph_node *call) {
  written_cursor c = before_written(call);
  wk_status status = WK_OK;
  count_classes(p, call, 1);
  for (wk__graph_node **use; status == WK_OK && (use = next_written(call, &c));)
    status = place_written(p, call, *use, c.index);
  count_classes(p, call, -1);
  WK_TRY(status);
  wk__graph_step *step;
  int made = wk__made_beside_writes(call->op), written = made;
  WK_TRY(begin_step(p, call->op, call, &step));
  for (int i = 0; i < call->op->schema.parameter_count; i++) WK_TRY(add_argument(p, call, i, &written));
  step->result = WK__RESULT_DROP;
  if (made) WK_TRY(slots_of_made(p, call, made, step));
  end_step(p, step);
  return WK_OK;
}

/* ================================================== all other calls ============================================= */

/* Its results may be allocated before it runs: the graph knows what the shape rule will say. */
static bool runs_into(const planner *p, const wk__graph_node *call) {
  const wk_op *op = call->op;
  if (op->tags & WK__TAG_FUSED) return true;
  for (int k = 0; k < call->item_count; k++)
    if (!call->items[k]) return false;
  bool has_rule = op->meta && !op->compose && !op->view && (op->lower || op->routine || op->has_kernel);
  return has_rule && !p->taped && !op->schema.result_is_list && value_count_of(call) <= WK__MAX_RESULTS;
}

static wk_status add_made(const planner *p, const wk__graph_node *call, wk__graph_step *step) {
  wk__graph_executor *e = p->e;
  int count = value_count_of(call);
  WK_TRY(wk__grow(&e->made, &e->made_capacity, e->made_count + count, sizeof *e->made));
  step->into = true;
  step->first_made = (int32_t)e->made_count;
  for (int k = 0; k < count; k++)
    e->made[e->made_count++] = (wk__prepared){.shape = call->value ? call->value : call->items[k]};
  return WK_OK;
}

static wk_status plan_functional(const planner *p, const wk__graph_node *call) {
  wk__graph_step *step;
  int written = 0, input = p->put_off[call->number] ? destination_of(p, call) : -1;
  if (input >= 0) {
    const value *c = class_of(p, p->graph->inputs[input]);
    if (c->owner != input || c->last_read > p->position[call->number]) input = -1;
  }
  WK_TRY(begin_step(p, call->op, call, &step));
  for (int i = 0; i < call->op->schema.parameter_count; i++) WK_TRY(add_argument(p, call, i, &written));
  if (input >= 0) {
    step->result = WK__RESULT_DROP;
    step->destination = input;
    p->values[call->number].slot = input;
    p->written[input] = true;
  } else if (call->value) {
    slot_of_value(p, call, step);
  } else {
    WK_TRY(slots_of_items(p, call, call->item_count, step));
  }
  end_step(p, step);
  return input < 0 && runs_into(p, call) ? add_made(p, call, step) : WK_OK;
}

static wk_status plan_call(planner *p, const wk__graph_node *call) {
  p->taped = call->flags & WK__GRAPH_TAPED;
  WK_TRY(call->op->tags & WK__TAG_MUTATES ? plan_mutating(p, call) : plan_functional(p, call));
  join_classes(p, call);
  p->taped = false;
  return WK_OK;
}

/* ====================================================== ends ==================================================== */

static bool looks_at_written_input(const planner *p, const wk__graph_node *node) {
  const value *c = class_of(p, node);
  return c->owner == MIXED || (c->owner >= 0 && p->final[c->owner]);
}

/* Has to be read before the first write. */
static wk_status clone_old(planner *p, const wk__graph_node *node) {
  const wk__graph_node *maker = maker_of(node);
  value *v = &p->values[id_of(p, node)];
  bool late = maker->kind == WK__GRAPH_CALL && p->put_off[maker->number];
  if (late || v->end_slot != NO_SLOT || !looks_at_written_input(p, node)) return WK_OK;
  v->end_slot = new_slot(p);
  p->taped = maker->flags & WK__GRAPH_TAPED;
  wk_status status = add_clone(p, v->slot, v->end_slot);
  p->taped = false;
  return status;
}

static int32_t end_slot_of(const planner *p, const wk__graph_node *node) {
  const value *v = &p->values[id_of(p, node)];
  return v->end_slot != NO_SLOT ? v->end_slot : v->slot;
}

/* Outputs and copies that look at inputs about to change. */
static wk_status clone_ends(planner *p) {
  if (!p->graph->mutation_count) return WK_OK;
  for (int64_t i = 0; i < p->graph->output_count; i++) WK_TRY(clone_old(p, p->graph->outputs[i]));
  for (int64_t i = 0; i < p->graph->mutation_count; i++) {
    const wk__graph_mutation *m = &p->graph->mutations[i];
    if (m->node != p->graph->inputs[m->input]) WK_TRY(clone_old(p, m->node));
  }
  return WK_OK;
}

static wk_status copy_to_inputs(planner *p) {
  for (int64_t i = 0; i < p->graph->mutation_count; i++) {
    const wk__graph_mutation *m = &p->graph->mutations[i];
    if (!p->final[m->input] || p->written[m->input]) continue;
    p->taped = maker_of(m->node)->flags & WK__GRAPH_TAPED;
    WK_TRY(add_copy(p, m->input, end_slot_of(p, m->node)));
  }
  p->taped = false;
  return WK_OK;
}

/* A value that is copied to an input behind all steps may not be overwritten by one of them. */
static void note_copies(const planner *p, const wk__graph_node *call) {
  for (int64_t i = 0; i < p->graph->mutation_count; i++) {
    const wk__graph_mutation *m = &p->graph->mutations[i];
    if (maker_of(m->node) == call && !p->written[m->input]) class_of(p, m->node)->escapes = true;
  }
}

static wk_status plan_steps(planner *p) {
  for (const wk__graph_node *node = p->graph->first; node; node = node->next)
    if (node->kind == WK__GRAPH_CALL && !p->put_off[node->number]) WK_TRY(plan_call(p, node));
  WK_TRY(clone_ends(p));
  for (const wk__graph_node *node = p->graph->first; node; node = node->next) {
    if (node->kind != WK__GRAPH_CALL || !p->put_off[node->number]) continue;
    WK_TRY(plan_call(p, node));
    note_copies(p, node);
  }
  return copy_to_inputs(p);
}

static wk_status plan_outputs(const planner *p) {
  wk__graph_executor *e = p->e;
  e->output_count = p->graph->output_count;
  e->outputs = wk__alloc((size_t)e->output_count * sizeof *e->outputs);
  if (!e->outputs) return WK_OUT_OF_MEMORY;
  for (int64_t i = 0; i < e->output_count; i++) e->outputs[i] = end_slot_of(p, p->graph->outputs[i]);
  return WK_OK;
}

/* ==================================================== memory ==================================================== */

/* A value that was written over another one in its slot is of its class too. */
static void unite_in_slots(const planner *p, int32_t *first) {
  for (int64_t slot = 0; slot < p->e->slot_count; slot++) first[slot] = NO_SLOT;
  for (int32_t id = 0; id < p->value_count; id++) {
    int32_t slot = p->values[id].slot;
    if (slot < 0) continue;
    if (first[slot] >= 0) unite(p, id, first[slot]);
    first[slot] = id;
  }
}

/* Values of one class may look at one memory; which of the classes' memories stay behind the run. */
static void describe_slots(const planner *p, wk__graph_slots *out) {
  unite_in_slots(p, out->class_of);
  for (int32_t id = 0; id < p->value_count; id++) {
    const value *root = root_of(p, id);
    if (p->values[id].slot >= 0) out->class_of[p->values[id].slot] = root->parent;
    out->stays[root->parent] |= root->taped || root->owner != NONE;
  }
  for (int64_t i = 0; i < p->graph->output_count; i++) {
    const value *v = &p->values[id_of(p, p->graph->outputs[i])];
    if (v->end_slot == NO_SLOT) out->stays[class_of(p, p->graph->outputs[i])->parent] = true;
  }
}

static wk_status plan_memory(const planner *p) {
  wk__graph_slots slots = {.class_count = p->value_count};
  slots.class_of = wk__alloc((size_t)p->e->slot_count * sizeof *slots.class_of + 1);
  slots.stays = wk__alloc_zeroed((size_t)p->value_count + 1);
  wk_status status = slots.class_of && slots.stays ? WK_OK : WK_OUT_OF_MEMORY;
  if (status == WK_OK) {
    describe_slots(p, &slots);
    status = wk__graph_plan_memory(p->e, &slots);
  }
  wk__free(slots.class_of);
  wk__free(slots.stays);
  return status;
}

/* ===================================================== symbols ================================================== */

/* Marks the symbols of an expression as needed. */
static void mark_symbols(const wk__graph_executor *e, wk_int x, bool *needed) {
  if (wk__sym_kind_of(x) == WK__SYM_SYMBOL && wk__sym_index(x) < e->symbol_count) needed[wk__sym_index(x)] = true;
  for (int i = 0; i < wk__sym_count(x); i++) mark_symbols(e, wk__sym_operand(x, i), needed);
}

static void bind_input(wk__graph_executor *e, const wk__graph_node *input) {
  for (int d = 0; d < input->value->ndim; d++) {
    wk_int size = input->value->sizes[d];
    if (wk__sym_kind_of(size) != WK__SYM_SYMBOL || wk__sym_index(size) >= e->symbol_count) continue;
    wk__graph_binding *b = &e->bindings[wk__sym_index(size)];
    if (b->input < 0) *b = (wk__graph_binding){input->index, d};
  }
}

/* Of results that are compared with their descriptions. */
static bool mark_described(const wk__graph_executor *e, const wk_tensor *t, bool *needed) {
  bool symbolic = false;
  for (int d = 0; t && d < t->ndim; d++) {
    symbolic |= !wk_int_is_known(t->sizes[d]) || !wk_int_is_known(t->strides[d]);
    if (!needed) continue;
    mark_symbols(e, t->sizes[d], needed);
    mark_symbols(e, t->strides[d], needed);
  }
  return symbolic;
}

/* needed NULL: are there any? */
static bool mark_compared(const wk__graph_executor *e, bool *needed) {
  bool symbolic = false;
  for (const wk__graph_node *n = e->graph->first; n; n = n->next) {
    if (n->kind != WK__GRAPH_CALL || !wk__has_no_rule(n->op)) continue;
    symbolic |= mark_described(e, n->value, needed);
    for (int k = 0; n->items && k < n->item_count; k++) symbolic |= mark_described(e, n->items[k], needed);
  }
  return symbolic;
}

static wk_status check_bindings(const wk__graph_executor *e, bool *needed) {
  (void)mark_compared(e, needed);
  for (int64_t i = 0; i < e->number_count; i++) mark_symbols(e, e->numbers[i].expression, needed);
  for (int64_t k = 0; k < e->made_count; k++)
    for (int d = 0; d < 2 * e->made[k].shape->ndim; d++) mark_symbols(e, e->made[k].shape->sizes[d], needed);
  for (int64_t i = 0; i < e->symbol_count; i++)
    if (needed[i] && e->bindings[i].input < 0 && !e->by_hints)
      return wk_fail(WK_UNSUPPORTED, "no size of an input tells the symbol %s",
                     wk__shape_env_symbol_at(e->graph->env, i).name);
  return WK_OK;
}

static bool has_symbolic_results(const wk__graph_executor *e) {
  for (int64_t k = 0; k < e->made_count; k++)
    for (int d = 0; d < 2 * e->made[k].shape->ndim; d++)
      if (!wk_int_is_known(e->made[k].shape->sizes[d])) return true;
  return false;
}

static wk_status plan_symbols(const planner *p) {
  wk__graph_executor *e = p->e;
  if (!e->number_count && !has_symbolic_results(e) && !mark_compared(e, NULL)) return WK_OK;
  if (!p->graph->env) return wk_fail(WK_INTERNAL_ERROR, "a graph with symbolic numbers has no shape environment");
  e->symbol_count = wk__shape_env_symbol_count(p->graph->env);
  e->bindings = wk__alloc((size_t)e->symbol_count * sizeof *e->bindings);
  bool *needed = wk__alloc_zeroed((size_t)e->symbol_count);
  wk_status status = e->bindings && needed ? WK_OK : WK_OUT_OF_MEMORY;
  for (int64_t i = 0; status == WK_OK && i < e->symbol_count; i++) e->bindings[i] = (wk__graph_binding){-1, 0};
  for (int64_t i = 0; status == WK_OK && i < e->input_count; i++) bind_input(e, p->graph->inputs[i]);
  if (status == WK_OK) status = check_bindings(e, needed);
  wk__free(needed);
  return status;
}

/* ===================================================== layout =================================================== */

static uint32_t byte_of(const wk__graph_executor *e, uint32_t where) {
  uint32_t index = where >> 2;
  switch (where & 3) {
    case IN_VALUES: /* what a value holds begins at the same byte, whatever it is */
      return (uint32_t)(e->values_at + index * sizeof(wk_value) + offsetof(wk_value, tensor));
    case IN_TENSORS:
      return (uint32_t)(e->tensors_at + index * sizeof(wk_tensor *));
    default:
      return (uint32_t)(e->integers_at + index * sizeof(wk_int));
  }
}

static wk_status plan_layout(wk__graph_executor *e) {
  e->values_at = offsetof(wk__run_memory, slots) + (size_t)e->slot_count * sizeof(wk_tensor *);
  e->tensors_at = e->values_at + (size_t)e->value_count * sizeof(wk_value);
  e->made_at = e->tensors_at + (size_t)e->tensor_count * sizeof(wk_tensor *);
  e->places_at = e->made_at + (size_t)e->made_count * sizeof(wk_tensor *);
  e->integers_at = e->places_at + (size_t)e->made_count * sizeof(int64_t);
  e->symbols_at = e->integers_at + (size_t)e->integer_count * sizeof(wk_int);
  e->run_bytes = e->symbols_at + (size_t)(e->symbol_count + 1) * sizeof(int64_t);
  if (e->run_bytes >= UINT32_MAX / 4) return wk_fail(WK_INTERNAL_ERROR, "the graph is too large to run");
  for (int64_t i = 0; i < e->patch_count; i++) e->patches[i].place = byte_of(e, e->patches[i].place);
  for (int64_t i = 0; i < e->constant_patch_count; i++)
    e->constant_patches[i].place = byte_of(e, e->constant_patches[i].place);
  for (int64_t i = 0; i < e->number_count; i++) e->numbers[i].place = byte_of(e, e->numbers[i].place);
  for (int64_t i = 0; i < e->input_number_count; i++) e->input_numbers[i].place = byte_of(e, e->input_numbers[i].place);
  return WK_OK;
}

/* ===================================================== planning ================================================= */

static void begin_value(planner *p, int32_t id) {
  p->values[id] = (value){.parent = id, .slot = NO_SLOT, .end_slot = NO_SLOT, .last_read = -1, .owner = NONE};
}

/* Inputs and constants have the first slots. */
static wk_status begin_leaves(planner *p) {
  wk__graph_executor *e = p->e;
  e->input_count = p->graph->input_count;
  e->constant_count = p->graph->constant_count;
  e->slot_count = e->input_count + e->constant_count;
  e->constants = wk__alloc_zeroed((size_t)e->constant_count * sizeof *e->constants);
  if (!e->constants) return WK_OUT_OF_MEMORY;
  int32_t constant = 0;
  for (const wk__graph_node *node = p->graph->first; node; node = node->next) {
    value *v = &p->values[node->number];
    if (node->kind == WK__GRAPH_INPUT) v->slot = v->owner = node->index;
    if (node->kind != WK__GRAPH_CONSTANT) continue;
    e->constants[constant] = wk__retain(node->constant);
    v->slot = (int32_t)e->input_count + constant++;
    v->owner = CONSTANT;
  }
  return WK_OK;
}

static void begin_ends(planner *p) {
  for (int64_t i = 0; i < p->graph->mutation_count; i++) {
    const wk__graph_mutation *m = &p->graph->mutations[i];
    p->final[m->input] = m->node; /* also its own value: the program counts that as a write */
  }
}

static wk_status plan_graph(planner *p) {
  int32_t next = 0;
  for (const wk__graph_node *node = p->graph->first; node; node = node->next) begin_value(p, next++);
  for (const wk__graph_node *node = p->graph->first; node; node = node->next) {
    p->items[node->number] = next;
    for (int k = 0; k < node->item_count; k++) begin_value(p, next++);
  }
  WK_TRY(begin_leaves(p));
  begin_ends(p);
  choose_put_off(p);
  choose_positions(p);
  note_reads(p);
  note_ends(p);
  WK_TRY(plan_steps(p));
  WK_TRY(plan_outputs(p));
  WK_TRY(plan_memory(p));
  WK_TRY(plan_symbols(p));
  return plan_layout(p->e);
}

static void *take(char **memory, size_t count, size_t size) {
  void *taken = *memory;
  *memory += (count * size + 15) & ~(size_t)15;
  return taken;
}

static wk_status plan_in(planner *p, size_t nodes, size_t inputs) {
  size_t values = (size_t)p->value_count;
  size_t bytes = values * sizeof(value) + nodes * (2 * sizeof(int32_t) + 2) + inputs * (sizeof(void *) + 1) + 7 * 16;
  char *memory = wk__alloc_zeroed(bytes), *at = memory;
  if (!memory) return WK_OUT_OF_MEMORY;
  p->values = take(&at, values, sizeof *p->values);
  p->final = take(&at, inputs, sizeof *p->final);
  p->items = take(&at, nodes, sizeof *p->items);
  p->position = take(&at, nodes, sizeof *p->position);
  p->put_off = take(&at, nodes, 1);
  p->plainly_used = take(&at, nodes, 1);
  p->written = take(&at, inputs, 1);
  wk_status status = plan_graph(p);
  wk__free(memory);
  return status;
}

wk_status wk__graph_plan(wk__graph_executor *executor) {
  planner p = {.e = executor, .graph = executor->graph, .value_count = executor->graph->node_count};
  wk__graph_number(executor->graph);
  for (const wk__graph_node *node = p.graph->first; node; node = node->next) p.value_count += node->item_count;
  if (p.value_count > INT32_MAX / 4) return wk_fail(WK_INTERNAL_ERROR, "the graph is too large to run");
  return plan_in(&p, (size_t)p.graph->node_count, (size_t)p.graph->input_count);
}
