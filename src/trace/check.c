/* Errors that depend on values: calls that index, or divide integers, are computed while they are recorded, so that
 * their errors come from the line that made them and not from the flush.
 *
 * In: a call and its arguments as nodes. Out: whether it can be computed. The integers and bools among its arguments
 * decide that: they are computed, with whatever they are made of; floats are taken for zeros. Most indices are inputs,
 * so that this costs one call. Invariant: nothing is drawn, nothing is written. Tests:
 * tests/python/capture/test_interruptions.py. */
#include "graph/internal.h"
#include "trace/internal.h"

/* ==================================================== which calls ================================================ */

static bool is_integral(const wk_tensor *t) { return !wk_dtype_is_floating((wk_dtype)t->dtype); }

static bool divides_integers(const wk_op *op, const wk__graph_arg *args) {
  if (!(op->tags & WK__TAG_RAISES_DIVISION)) return false;
  for (int i = 0; i < 2; i++)
    if (args[i].tag == WK_VALUE_TENSOR && !is_integral(args[i].node->value)) return false;
  return true;
}

/* ==================================================== computing ================================================== */

/* The values of nodes, as far as they were asked for. */
typedef struct trial {
  wk__tracer *t;
  wk__map values;  /* node -> wk_value, in the arena: owned */
  wk_value **made; /* (count) the same */
  int64_t count, capacity;
  wk__graph_node **stack; /* (depth) that wait for their arguments */
  int64_t depth, stack_capacity;
  wk__arena arena;
} trial;

static uint64_t key_of(const wk__graph_node *node) { return (uint64_t)(uintptr_t)node; }

/* An item has a value of its own when it is taken for zeros. */
static wk_tensor *value_of(const trial *c, const wk__graph_node *node) {
  const wk_value *own = wk__map_get(&c->values, key_of(node));
  if (own || node->kind != WK__GRAPH_ITEM) return own ? own->tensor : NULL;
  const wk__graph_node *list = node->args[0].node;
  const wk_value *v = wk__map_get(&c->values, key_of(list));
  if (!v) return NULL;
  return list->op->schema.result_is_list ? v->tensors[node->index] : v[node->index].tensor;
}

/* Symbols are known by the values that they have now. */
static wk_tensor *with_known_sizes(wk_tensor *t) {
  wk__spec spec;
  if (!(t->flags & WK__TENSOR_SYMBOLIC)) return wk__retain(t);
  wk__spec_of(&spec, t);
  wk__spec_make_known(&spec);
  return wk__tensor_alias(t, &spec);
}

/* One zero, seen everywhere. */
static wk_tensor *zeros_like(const wk_tensor *shape) {
  wk__spec spec;
  wk_int one = wk_int_of(1);
  wk__spec_contiguous(&spec, (wk_dtype)shape->dtype, shape->device, 1, &one);
  WK__OWNED zero = wk__tensor_from_spec(&spec);
  if (!zero || wk__fill_bytes(zero, 0) != WK_OK) return NULL;
  wk__spec_of(&spec, shape);
  spec.offset = wk_int_of(0);
  for (int d = 0; d < spec.ndim; d++) {
    spec.sizes[d] = wk__symbolic_value(spec.sizes[d]);
    spec.strides[d] = wk_int_of(0);
  }
  return wk__tensor_alias(zero, &spec);
}

static wk_status keep(trial *c, const wk__graph_node *node, const wk_value *results, int count) {
  wk_value *kept = wk__arena_alloc(&c->arena, (size_t)count * sizeof *kept);
  wk_status status = kept ? wk__grow(&c->made, &c->capacity, c->count + count, sizeof *c->made) : WK_OUT_OF_MEMORY;
  for (int r = 0; r < count && status == WK_OK; r++) {
    kept[r] = results[r];
    c->made[c->count++] = &kept[r];
  }
  return status == WK_OK ? wk__map_set(&c->values, key_of(node), kept) : status;
}

static wk_status numbers_of(trial *c, const wk__graph_arg *arg, wk_value *out) {
  wk_int *numbers = wk__arena_alloc(&c->arena, (arg->count + 1) * sizeof *numbers);
  if (!numbers) return WK_OUT_OF_MEMORY;
  for (uint32_t k = 0; k < arg->count; k++) numbers[k] = wk__symbolic_value(arg->integers[k]);
  out->integers = numbers;
  return WK_OK;
}

static wk_status tensors_of(trial *c, const wk__graph_arg *arg, wk_value *out) {
  out->tensors = wk__arena_alloc(&c->arena, (arg->count + 1) * sizeof *out->tensors);
  if (!out->tensors) return WK_OUT_OF_MEMORY;
  for (uint32_t k = 0; k < arg->count; k++) out->tensors[k] = arg->nodes[k] ? value_of(c, arg->nodes[k]) : NULL;
  return WK_OK;
}

static wk_status value_of_arg(trial *c, const wk__graph_arg *arg, wk_value *out) {
  *out = arg->value;
  switch (arg->tag) {
    case WK_VALUE_TENSOR:
      out->tensor = value_of(c, arg->node);
      return WK_OK;
    case WK_VALUE_TENSORS:
      return tensors_of(c, arg, out);
    case WK_VALUE_INTS:
      return numbers_of(c, arg, out);
    case WK_VALUE_INT:
      out->integer = wk__symbolic_value(arg->integer);
      return WK_OK;
    case WK_VALUE_INPUT:
      *out = wk__v_double(arg->number);
      return WK_OK;
    default:
      return WK_OK;
  }
}

static wk_status call(const wk_op *op, const wk_value *args, wk_value *results) {
  wk__thread_mode before = wk__thread.mode;
  wk__thread.mode.keys_off = (wk__keys)~0;
  wk__thread.mode.grad_enabled = false;
  wk_status status = wk__call_below(WK__KEY_AUTOGRAD, op, args, NULL, results);
  wk__thread.mode = before;
  return status;
}

static wk_status compute_call(trial *c, const wk__graph_node *node) {
  wk_value args[WK__MAX_ARGS], results[WK__MAX_RESULTS] = {{0}};
  if (node->op->tags & (WK__TAG_RANDOM | WK__TAG_MUTATES)) return WK_UNSUPPORTED;
  for (int i = 0; i < node->op->schema.parameter_count; i++) WK_TRY(value_of_arg(c, &node->args[i], &args[i]));
  WK_TRY(call(node->op, args, results));
  return keep(c, node, results, node->op->schema.result_count);
}

static wk_status compute(trial *c, const wk__graph_node *node) {
  wk_tensor *tensor = NULL;
  if (node->kind == WK__GRAPH_ITEM) return WK_OK; /* the value is the list's */
  if (node->kind == WK__GRAPH_CALL) return compute_call(c, node);
  tensor = node->kind == WK__GRAPH_INPUT ? c->t->inputs[node->index] : node->constant;
  if (!tensor->storage) return WK_UNSUPPORTED; /* an input that carries a size, not values */
  if (!(tensor = with_known_sizes(tensor))) return wk_error_category();
  return keep(c, node, &(wk_value){.tag = WK_VALUE_TENSOR, .tensor = tensor}, 1);
}

static bool has_value(const trial *c, const wk__graph_node *node) {
  if (wk__map_get(&c->values, key_of(node))) return true;
  return node->kind == WK__GRAPH_ITEM && wk__map_get(&c->values, key_of(node->args[0].node));
}

static wk_status push(trial *c, wk__graph_node *node) {
  WK_TRY(wk__grow(&c->stack, &c->stack_capacity, c->depth + 1, sizeof *c->stack));
  c->stack[c->depth++] = node;
  return WK_OK;
}

/* Of an earlier trial. */
static wk_status remembered(trial *c, const wk__graph_node *node) {
  wk_tensor *tensor = wk__map_get(&c->t->tried, key_of(node));
  return tensor ? keep(c, node, &(wk_value){.tag = WK_VALUE_TENSOR, .tensor = wk__retain(tensor)}, 1) : WK_OK;
}

/* The value is kept, so that a chain of calls, each of which indexes with the result of the one before, is computed
 * once. */
static wk_status remember(const trial *c, const wk__graph_node *node) {
  wk__tracer *t = c->t;
  if (node->kind != WK__GRAPH_CALL || wk__graph_is_list(node) || wk__map_get(&t->tried, key_of(node))) return WK_OK;
  WK_TRY(wk__grow(&t->shapes, &t->shape_capacity, t->shape_count + 1, sizeof *t->shapes));
  wk_tensor *tensor = wk__retain(value_of(c, node));
  t->shapes[t->shape_count++] = tensor;
  return wk__map_set(&t->tried, key_of(node), tensor);
}

/* The node, behind everything that it is made of. */
static wk_status compute_all(trial *c, wk__graph_node *node) {
  WK_TRY(push(c, node));
  while (c->depth) {
    wk__graph_node *top = c->stack[c->depth - 1];
    wk__arg_cursor cursor = {0};
    wk__graph_node *missing = NULL;
    if (!has_value(c, top)) WK_TRY(remembered(c, top));
    if (!has_value(c, top))
      for (wk__graph_node **use; !missing && (use = wk__graph_next_arg(top, &cursor));)
        if (!has_value(c, *use)) missing = *use;
    if (missing) {
      WK_TRY(push(c, missing));
      continue;
    }
    if (!has_value(c, top)) WK_TRY(compute(c, top));
    c->depth--;
  }
  return remember(c, node);
}

/* ================================================= trying the call =============================================== */

static wk_status prepare(trial *c, wk__graph_node *node) {
  if (!node || has_value(c, node)) return WK_OK;
  if (is_integral(node->value)) return compute_all(c, node);
  wk_tensor *zeros = zeros_like(node->value);
  return zeros ? keep(c, node, &(wk_value){.tag = WK_VALUE_TENSOR, .tensor = zeros}, 1) : wk_error_category();
}

/* Integers first: what they are made of may be floats among the arguments, whose values then count. */
static wk_status prepare_all(trial *c, const wk_op *op, const wk__graph_arg *args) {
  for (int floats = 0; floats < 2; floats++)
    for (int i = 0; i < op->schema.parameter_count; i++) {
      wk__node_span nodes = wk__graph_arg_nodes(&args[i]);
      for (uint32_t k = 0; k < nodes.count; k++)
        if (nodes.items[k] && is_integral(nodes.items[k]->value) == !floats) WK_TRY(prepare(c, nodes.items[k]));
    }
  return WK_OK;
}

/* WK_OK also when it cannot be told: the flush will. */
static wk_status try_call(trial *c, const wk_op *op, const wk__graph_arg *args) {
  wk_value values[WK__MAX_ARGS], results[WK__MAX_RESULTS] = {{0}};
  wk_status status = prepare_all(c, op, args);
  for (int i = 0; i < op->schema.parameter_count && status == WK_OK; i++)
    status = value_of_arg(c, &args[i], &values[i]);
  if (status != WK_OK) {
    wk_error_clear();
    return WK_OK;
  }
  status = call(op, values, results);
  for (int r = 0; r < op->schema.result_count; r++) wk_value_release(&results[r]);
  if (status == WK_OK || status == WK_OUT_OF_MEMORY) return status;
  return wk_fail(WK_UNSUPPORTED, "%s does not work with these values", op->name);
}

static void release_trial(trial *c) {
  for (int64_t i = 0; i < c->count; i++) wk_value_release(c->made[i]);
  wk__map_release(&c->values);
  wk__free(c->made);
  wk__free(c->stack);
  wk__arena_release(&c->arena);
}

wk_status wk__tracer_number(wk__tracer *t, wk_tensor *tensor, double *out) {
  trial c = {.t = t};
  bool outer = t->running;
  wk__graph_node *node = wk__tracer_node(t, tensor);
  if (!node) return wk_error_category();
  t->running = true; /* calls compute */
  *out = 0;
  wk_status status = compute_all(&c, node);
  if (status == WK_OK) status = wk_tensor_item(value_of(&c, node), out);
  t->running = outer;
  release_trial(&c);
  return status;
}

wk_status wk__tracer_truth(wk__tracer *t, wk_tensor *tensor, bool *out) {
  double number = 0;
  wk_status status = wk__tracer_number(t, tensor, &number);
  *out = number != 0;
  return status;
}

static wk_status value_now(trial *c, const wk_op *op, const wk__graph_arg *args, wk_tensor **out) {
  wk_value values[WK__MAX_ARGS], result = {0};
  for (int i = 0; i < op->schema.parameter_count; i++) {
    wk__node_span nodes = wk__graph_arg_nodes(&args[i]);
    for (uint32_t k = 0; k < nodes.count; k++)
      if (nodes.items[k] && !has_value(c, nodes.items[k])) WK_TRY(compute_all(c, nodes.items[k]));
  }
  for (int i = 0; i < op->schema.parameter_count; i++) WK_TRY(value_of_arg(c, &args[i], &values[i]));
  WK_TRY(call(op, values, &result));
  *out = result.tensor;
  return WK_OK;
}

wk_status wk__trace_value_now(wk__tracer *t, const wk_op *op, const wk__graph_arg *args, wk_tensor **out) {
  trial c = {.t = t};
  bool outer = t->running;
  t->running = true; /* calls compute */
  wk_status status = value_now(&c, op, args, out);
  t->running = outer;
  release_trial(&c);
  return status;
}

wk_status wk__trace_check_values(wk__tracer *t, const wk_op *op, const wk__graph_arg *args) {
  if (!t->owner.checks_values || !(op->tags & WK__TAG_RAISES_INDEX || divides_integers(op, args))) return WK_OK;
  trial c = {.t = t};
  bool outer = t->running;
  t->running = true; /* calls compute */
  wk_status status = try_call(&c, op, args);
  t->running = outer;
  release_trial(&c);
  return status;
}
