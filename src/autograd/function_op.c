/* The operator of an autograd.Function: the backward part is cut out of the recorded graph, and its calls are made when
 * the derivative is taken.
 * In: nodes that stand for results, inputs, gradients and what `backward` gave. Out: an operator with shares.
 * Invariant: the calls of the backward graph are those of `backward`, in their order, so the bits are eager's. Tests:
 * tests/python/capture/test_functions.py. */
#include <ctype.h>
#include <stdio.h>

#include "autograd/autograd.h"
#include "autograd/function_op.h"
#include "graph/internal.h"

typedef enum leaf_kind { LEAF_GRADIENT, LEAF_ARGUMENT, LEAF_RESULT } leaf_kind;

/* Where an input of the backward graph comes from when the derivative is taken. */
typedef struct leaf {
  uint8_t kind; /* leaf_kind */
  uint8_t index;
} leaf;

typedef struct function {
  wk_op op; /* first */
  _Atomic int32_t references;
  wk__graph *backward; /* owned: inputs as the leaves, no mutations */
  int result_count, input_count, kept_count, size_count;
  bool once, hands_on;
  leaf leaves[WK__MAX_ARGS + WK__MAX_RESULTS];
  int16_t gives[WK__MAX_ARGS]; /* by input: the output of the backward graph; -1: no gradient */
  wk__saves saves[WK__MAX_ARGS];
  wk__parameter parameters[WK__MAX_ARGS];
  char name[64], grad_fn_name[80], schema[1024];
} function;

static function *function_of(const wk_op *op) { return (function *)op; }

static void hold(const wk_op *op, int by) {
  function *f = function_of(op);
  if (atomic_fetch_add_explicit(&f->references, by, memory_order_acq_rel) + by) return;
  wk__graph_release(f->backward);
  wk__free(f);
}

/* ================================================== where it runs ================================================ */

static wk_status shapes(wk__call *c) {
  for (int r = 0; r < c->op->schema.result_count; r++) wk__spec_of(&c->specs[r], c->args[r].tensor);
  return WK_OK;
}

/* Who traces knows a view of an input by a call alone. */
static wk_tensor *alias_of(wk_tensor *tensor) {
  wk__spec spec;
  wk__spec_of(&spec, tensor);
  if (!(tensor->keys & wk__thread.mode.keys_on & WK__KEY_TRACE)) return wk__tensor_alias(tensor, &spec);
  wk_value args[] = {wk__v_tensor(tensor), {0}}, alias = {0};
  return wk_call(WK__OP(detach), args, NULL, &alias) == WK_OK ? alias.tensor : NULL;
}

static wk_status give_aliases(wk__call *c) {
  for (int r = 0; r < c->op->schema.result_count; r++) {
    wk_tensor *alias = alias_of(c->args[r].tensor);
    if (!alias) {
      while (r--) wk_value_release(&c->results[r]);
      return wk_error_category();
    }
    c->results[r] = wk__v_tensor(alias);
  }
  return WK_OK;
}

/* ================================================ the derivative ================================================= */

/* Tensors of the backward graph's nodes while its calls are made. */
typedef struct run {
  const wk__vjp *v;
  const function *f;
  wk_tensor **values; /* by the nodes' numbers; borrowed, of the scope */
} run;

/* Every result has a gradient: zeros where none arrived, as Python's backward would get. */
static wk_tensor *gradient(const wk__vjp *v, int r) {
  wk_value zeros[] = {v->args[r], {0}, {0}, {0}};
  return v->grads[r] ? v->grads[r] : wk__call_tensor(WK__OP(zeros_like), zeros);
}

static wk_tensor *leaf_value(const wk__vjp *v, leaf l) {
  if (l.kind == LEAF_GRADIENT) return function_of(v->op)->hands_on ? v->grads[l.index] : gradient(v, l.index);
  return l.kind == LEAF_RESULT ? v->results[l.index] : v->args[l.index].tensor;
}

static wk_tensor *value_of(const run *r, const wk__graph_node *n) { return n ? r->values[n->number] : NULL; }

/* Its symbols are the operator's last arguments. */
static wk_int size_of(const run *r, wk_int x) {
  const function *f = r->f;
  if (wk_int_is_known(x)) return x;
  return r->v->args[f->result_count + f->input_count + f->kept_count + wk__sym_index(x)].integer;
}

/* Lists are written to `arena`. */
static wk_status argument(const run *r, const wk__graph_arg *arg, wk__arena *arena, wk_value *out) {
  *out = arg->value;
  if (arg->tag == WK_VALUE_INT) out->integer = size_of(r, arg->integer);
  if (arg->tag == WK_VALUE_TENSOR) out->tensor = value_of(r, arg->node);
  if (arg->tag == WK_VALUE_INTS) {
    wk_int *list = wk__arena_alloc(arena, (arg->count + 1) * sizeof *list);
    if (!list) return WK_OUT_OF_MEMORY;
    for (uint32_t k = 0; k < arg->count; k++) list[k] = size_of(r, arg->integers[k]);
    out->integers = list;
  }
  if (arg->tag == WK_VALUE_TENSORS) {
    wk_tensor **list = wk__arena_alloc(arena, (arg->count + 1) * sizeof *list);
    if (!list) return WK_OUT_OF_MEMORY;
    for (uint32_t k = 0; k < arg->count; k++) list[k] = value_of(r, arg->nodes[k]);
    out->tensors = list;
  }
  return WK_OK;
}

static wk_status make_call(run *r, const wk__graph_node *n) {
  wk_value args[WK__MAX_ARGS], results[WK__MAX_RESULTS] = {{0}};
  wk__arena arena = {0};
  wk_status status = WK_OK;
  for (int i = 0; i < n->op->schema.parameter_count && status == WK_OK; i++)
    status = argument(r, &n->args[i], &arena, &args[i]);
  if (status == WK_OK) status = wk_call(n->op, args, NULL, results);
  wk__arena_release(&arena);
  WK_TRY(status);
  if (n->value) {
    wk__scope_add(r->values[n->number] = results[0].tensor);
    return WK_OK;
  }
  bool list = n->op->schema.result_is_list;
  for (wk__graph_node *item = n->next; item && item->kind == WK__GRAPH_ITEM; item = item->next) {
    wk_value *v = list ? &results[0] : &results[item->index];
    r->values[item->number] = wk__retain(list ? v->tensors[item->index] : v->tensor);
    wk__scope_add(r->values[item->number]);
  }
  for (int k = 0; k < n->op->schema.result_count; k++) wk_value_release(&results[k]);
  return WK_OK;
}

static wk_status make_calls(run *r) {
  const wk__graph *graph = r->f->backward;
  for (const wk__graph_node *n = graph->first; n; n = n->next) {
    if (n->kind == WK__GRAPH_CALL) WK_TRY(make_call(r, n));
    if (n->kind != WK__GRAPH_INPUT) continue;
    r->values[n->number] = leaf_value(r->v, r->f->leaves[n->index]);
    if (!r->values[n->number] && !r->f->hands_on) return wk_error_category();
  }
  return WK_OK;
}

static wk_status set_gradients(wk__vjp *v, const run *r) {
  const function *f = r->f;
  for (int i = 0; i < f->input_count; i++) {
    if (f->gives[i] < 0 || !wk__needs(v, f->result_count + i)) continue;
    wk_tensor *grad = r->values[f->backward->outputs[f->gives[i]]->number];
    if (grad) WK_TRY(wk__vjp_set(v, f->result_count + i, grad));
  }
  return WK_OK;
}

/* What was marked with @once_differentiable: the gradients have a history that refuses to be run. */
static wk_status refuse_second(wk__vjp *v) {
  wk_node *node =
      wk__node_spent("torch::autograd::DelayedError",
                     "trying to differentiate twice a function that was marked with @once_differentiable", NULL, 0);
  wk_status status = node ? WK_OK : wk_error_category();
  const function *f = function_of(v->op);
  for (int i = 0; i < f->input_count && status == WK_OK; i++) {
    wk_tensor *grad = v->out_grads[f->result_count + i];
    if (grad) status = wk__set_history(grad, node, 0);
  }
  wk__node_release(node);
  return status;
}

static bool any_requires_grad(const wk__vjp *v) {
  bool any = false;
  for (int r = 0; r < v->result_count; r++) any |= v->grads[r] && wk_requires_grad(v->grads[r]);
  return any;
}

static wk_status differentiate(wk__vjp *v) {
  const function *f = function_of(v->op);
  run r = {.v = v, .f = f, .values = wk__alloc_zeroed((size_t)f->backward->node_count * sizeof *r.values + 1)};
  if (!r.values) return WK_OUT_OF_MEMORY;
  bool before = wk_grad_enabled();
  if (f->once) wk_set_grad_enabled(false);
  wk_status status = make_calls(&r);
  if (status == WK_OK) status = set_gradients(v, &r);
  wk_set_grad_enabled(before);
  wk__free(r.values);
  return status == WK_OK && f->once && before && any_requires_grad(v) ? refuse_second(v) : status;
}

int wk__function_inputs(const wk_op *op, int *out_first) {
  *out_first = function_of(op)->result_count;
  return function_of(op)->input_count;
}

/* ==================================================== its text =================================================== */

static const char *const leaf_names[] = {"grad", "argument", "result"};

static void print(const wk_op *op, wk__string *out, bool with_sources) {
  const function *f = function_of(op);
  wk__string_printf(out, "function {\nof %s%s%s, %d results, %d inputs, %d kept, %d sizes:", f->grad_fn_name,
                    f->once ? ", once" : "", f->hands_on ? ", hands on" : "", f->result_count, f->input_count,
                    f->kept_count, f->size_count);
  for (int64_t i = 0; i < f->backward->input_count; i++)
    wk__string_printf(out, " %s %d", leaf_names[f->leaves[i].kind], f->leaves[i].index);
  wk__string_append(out, " ->");
  for (int i = 0; i < f->input_count; i++) wk__string_printf(out, " %d", f->gives[i]);
  wk__string_append(out, "\n");
  if (wk__graph_print(out, f->backward, with_sources) != WK_OK) out->failed = true;
  wk__string_append(out, "}");
}

/* ==================================================== making it ================================================== */

typedef struct cutter {
  const wk__function_parts *parts;
  function *f;
  wk__graph_arg *args;
  wk_int sizes[WK__MAX_ARGS]; /* (size_count) expressions that the calls have among their integers */
  wk__map needed;             /* nodes behind `before` */
  wk__map copies;             /* node -> node of the backward graph */
} cutter;

static wk_status check_call(const wk__graph_node *n) {
  if (n->kind != WK__GRAPH_CALL) return WK_OK;
  if (n->op->tags & (WK__TAG_RANDOM | WK__TAG_MUTATES))
    return wk_fail(WK_UNSUPPORTED, "%s in a backward function", n->op->name);
  for (int i = 0; i < n->op->schema.parameter_count; i++) {
    if (n->args[i].tag == WK_VALUE_INPUT) return wk_fail(WK_UNSUPPORTED, "a changing number in a backward function");
  }
  return WK_OK;
}

static int place_among(const wk__graph_node *n, wk__graph_node *const *list, int count) {
  int i = 0;
  while (i < count && list[i] != n) i++;
  return i < count ? i : -1;
}

/* An argument of the operator, besides results and inputs. */
static wk_status add_kept(cutter *c, wk__graph_node *n, leaf *out) {
  function *f = c->f;
  int at = f->result_count + f->input_count + f->kept_count;
  if (at == WK__MAX_ARGS || !n->value) return wk_fail(WK_UNSUPPORTED, "a backward function that uses many tensors");
  f->kept_count++;
  c->args[at] = (wk__graph_arg){.tag = WK_VALUE_TENSOR, .node = n};
  *out = (leaf){LEAF_ARGUMENT, (uint8_t)at};
  return WK_OK;
}

static wk_status leaf_of(cutter *c, wk__graph_node *n, leaf *out) {
  const wk__function_parts *p = c->parts;
  int grad = place_among(n, p->grads, p->result_count), input = place_among(n, p->inputs, p->input_count);
  int result = place_among(n, p->results, p->result_count);
  *out = (leaf){LEAF_GRADIENT, (uint8_t)grad};
  if (grad >= 0) return WK_OK;
  if (input >= 0)
    *out = (leaf){LEAF_ARGUMENT, (uint8_t)(p->result_count + input)};
  else if (result >= 0)
    *out = (leaf){LEAF_RESULT, (uint8_t)result};
  else
    return add_kept(c, n, out);
  return WK_OK;
}

/* Symbols belong to the graph that is being recorded, which this one may outlive. */
static wk_tensor *known_shape(const wk_tensor *value) {
  wk__spec spec;
  wk__spec_of(&spec, value);
  wk__spec_make_known(&spec);
  return wk__tensor_shape_only(&spec);
}

static wk_status add_leaf(cutter *c, wk__graph_node *n) {
  wk__graph *graph = c->f->backward;
  leaf l;
  if (graph->input_count == (int64_t)WK_COUNT(c->f->leaves))
    return wk_fail(WK_UNSUPPORTED, "a backward function that uses many tensors");
  WK_TRY(leaf_of(c, n, &l));
  c->f->leaves[graph->input_count] = l;
  WK__OWNED shape = known_shape(n->value);
  wk__graph_node *copy = shape ? wk__graph_input(graph, shape, n->name) : NULL;
  return copy ? wk__map_set(&c->copies, (uintptr_t)n, copy) : wk_error_category();
}

/* The node in the backward graph, a leaf of it where it is no part of what was recorded for `backward`. */
static wk_status copy_of(cutter *c, wk__graph_node *n, wk__graph_node **out) {
  *out = n ? wk__map_get(&c->copies, (uintptr_t)n) : NULL;
  if (*out || !n) return WK_OK;
  WK_TRY(add_leaf(c, n));
  *out = wk__map_get(&c->copies, (uintptr_t)n);
  return WK_OK;
}

/* The symbol of the backward graph that stands for an expression. */
static wk_status add_size(cutter *c, wk_int x, wk_int *out) {
  function *f = c->f;
  int k = 0;
  while (k < f->size_count && !wk_int_same(c->sizes[k], x)) k++;
  if (k == WK__MAX_ARGS) return wk_fail(WK_UNSUPPORTED, "a backward function that uses many sizes");
  if (!f->backward->env && !(f->backward->env = wk__shape_env_create())) return WK_OUT_OF_MEMORY;
  wk__shape_env *env = f->backward->env;
  if (k == f->size_count) {
    WK_TRY(wk_int_check(wk__shape_env_symbol(env, NULL, wk__symbolic_value(x).bits, INT64_MIN, INT64_MAX)));
    c->sizes[f->size_count++] = x;
  }
  *out = wk__shape_env_symbol_at(env, k).value;
  return WK_OK;
}

/* Among a call's own integers. */
static wk_status replace_sizes(cutter *c, wk__graph_node *copy) {
  for (int i = 0; i < copy->op->schema.parameter_count; i++) {
    wk__integer_span integers = wk__graph_arg_integers(&copy->args[i]);
    for (uint32_t k = 0; k < integers.count; k++)
      if (!wk_int_is_known(integers.items[k])) WK_TRY(add_size(c, integers.items[k], &integers.items[k]));
  }
  return WK_OK;
}

static wk_status append_call(cutter *c, const wk__graph_node *n, const wk__graph_arg *args, wk__graph_node **out) {
  int count = n->value ? 1 : n->item_count;
  wk_tensor **shapes = wk__alloc_zeroed((size_t)count * sizeof *shapes + 1);
  wk_status status = shapes ? WK_OK : WK_OUT_OF_MEMORY;
  for (int k = 0; k < count && status == WK_OK; k++) {
    const wk_tensor *value = n->value ? n->value : n->items[k];
    if (value && !(shapes[k] = known_shape(value))) status = wk_error_category();
  }
  *out = NULL;
  if (status == WK_OK)
    *out = wk__graph_call(c->f->backward, n->op, args, (const wk_tensor *const *)shapes, count, n->name);
  for (int k = 0; k < count && shapes; k++) wk__release(shapes[k]);
  wk__free(shapes);
  return *out ? WK_OK : status == WK_OK ? wk_error_category() : status;
}

static wk_status copy_call(cutter *c, const wk__graph_node *n, wk__graph_node **out) {
  wk__graph_arg args[WK__MAX_ARGS];
  wk_status status = WK_OK;
  wk__graph_node **space = wk__alloc((size_t)wk__graph_listed(n->op, n->args) * sizeof *space + 1), **at = space;
  if (!space) return WK_OUT_OF_MEMORY;
  for (int i = 0; i < n->op->schema.parameter_count && status == WK_OK; i++) {
    args[i] = n->args[i];
    if (args[i].tag == WK_VALUE_TENSOR) status = copy_of(c, n->args[i].node, &args[i].node);
    if (args[i].tag != WK_VALUE_TENSORS) continue;
    args[i].nodes = at;
    for (uint32_t k = 0; k < args[i].count && status == WK_OK; k++) status = copy_of(c, n->args[i].nodes[k], at++);
  }
  if (status == WK_OK) status = append_call(c, n, args, out);
  if (status == WK_OK) status = replace_sizes(c, *out);
  wk__free(space);
  return status;
}

static wk_status copy_node(cutter *c, wk__graph_node *n) {
  wk__graph_node *copy = NULL;
  WK_TRY(check_call(n));
  if (n->kind == WK__GRAPH_CALL) {
    WK_TRY(copy_call(c, n, &copy));
  } else {
    WK_TRY(copy_of(c, n->args[0].node, &copy));
    copy = wk__graph_item(c->f->backward, copy, n->index);
  }
  return copy ? wk__map_set(&c->copies, (uintptr_t)n, copy) : wk_error_category();
}

static bool is_needed(const cutter *c, const wk__graph_node *n) { return wk__map_get(&c->needed, (uintptr_t)n); }

/* A gradient is where a leaf is; what leads to it from the results' shapes is not looked at. */
static wk_status mark(cutter *c, wk__graph_node *last) {
  const wk__function_parts *p = c->parts;
  for (int i = 0; i < p->input_count; i++)
    if (p->out_grads[i]) WK_TRY(wk__map_set(&c->needed, (uintptr_t)p->out_grads[i], p->out_grads[i]));
  for (wk__graph_node *n = last; n != p->before; n = n->previous) {
    if (!is_needed(c, n) || place_among(n, p->grads, p->result_count) >= 0) continue;
    wk__arg_cursor cursor = {0};
    for (wk__graph_node **use; (use = wk__graph_next_arg(n, &cursor));)
      WK_TRY(wk__map_set(&c->needed, (uintptr_t)*use, *use));
  }
  return WK_OK;
}

static wk_status cut(cutter *c) {
  const wk__function_parts *p = c->parts;
  wk__graph_node *last = (wk__graph_node *)p->before;
  while (last->next) last = last->next;
  WK_TRY(mark(c, last));
  for (wk__graph_node *n = p->before->next; n; n = n->next) {
    bool is_leaf = place_among(n, p->grads, p->result_count) >= 0 || n->kind == WK__GRAPH_INPUT;
    if (is_needed(c, n) && !is_leaf && n->kind != WK__GRAPH_CONSTANT) WK_TRY(copy_node(c, n));
  }
  for (int i = 0; i < p->input_count; i++) {
    wk__graph_node *copy;
    c->f->gives[i] = -1;
    if (!p->out_grads[i]) continue;
    WK_TRY(copy_of(c, p->out_grads[i], &copy));
    c->f->gives[i] = (int16_t)c->f->backward->output_count;
    WK_TRY(wk__graph_output(c->f->backward, copy));
  }
  wk__graph_number(c->f->backward);
  return WK_OK;
}

/* Kept is what `backward` reads; of the results' values only those, else their shapes, for zeros. */
static void note_saves(function *f) {
  wk__saves saves = {0};
  for (int r = 0; r < f->result_count; r++) saves.shapes |= 1u << r;
  for (int64_t i = 0; i < f->backward->input_count; i++) {
    if (f->leaves[i].kind == LEAF_ARGUMENT) saves.args |= 1u << f->leaves[i].index;
    if (f->leaves[i].kind == LEAF_RESULT) saves.results |= 1u << f->leaves[i].index;
  }
  for (int i = 0; i < WK__MAX_ARGS; i++) f->saves[i] = saves;
}

static wk_status write_schema(function *f) {
  wk__string s = {0};
  wk__string_printf(&s, "%s(", f->name);
  for (int i = 0; i < f->result_count; i++) wk__string_printf(&s, "%sTensor(%c) result%d", i ? ", " : "", 'a' + i, i);
  for (int i = 0; i < f->input_count; i++) wk__string_printf(&s, ", Tensor input%d", i);
  for (int i = 0; i < f->kept_count; i++) wk__string_printf(&s, ", Tensor kept%d", i);
  for (int i = 0; i < f->size_count; i++) wk__string_printf(&s, ", SymInt size%d", i);
  wk__string_append(&s, f->result_count > 1 ? ") -> (" : ") -> ");
  for (int i = 0; i < f->result_count; i++) wk__string_printf(&s, "%sTensor(%c)", i ? ", " : "", 'a' + i);
  if (f->result_count > 1) wk__string_append(&s, ")");
  bool fits = !s.failed && s.length < (int64_t)sizeof f->schema;
  if (fits) memcpy(f->schema, s.text, s.length + 1);
  wk__string_release(&s);
  return fits ? wk__schema_parse(f->schema, f->parameters, WK_COUNT(f->parameters), &f->op.schema) : WK_OUT_OF_MEMORY;
}

/* In the graph's text: letters and a number. */
static void name_function(function *f, const char *class) {
  static _Atomic unsigned long long count;
  char letters[40];
  size_t n = 0;
  for (const char *at = class; *at && n + 1 < sizeof letters; at++)
    if (isalnum((unsigned char)*at) || *at == '_') letters[n++] = *at;
  letters[n] = 0;
  snprintf(f->grad_fn_name, sizeof f->grad_fn_name, "%s", class);
  snprintf(f->name, sizeof f->name, "%s_%llu", letters, atomic_fetch_add(&count, 1) + 1);
}

static wk_status add_size_arguments(cutter *c) {
  int first = c->f->result_count + c->f->input_count + c->f->kept_count;
  if (first + c->f->size_count > WK__MAX_ARGS)
    return wk_fail(WK_UNSUPPORTED, "a backward function that uses many tensors and sizes");
  for (int k = 0; k < c->f->size_count; k++)
    c->args[first + k] = (wk__graph_arg){.tag = WK_VALUE_INT, .integer = c->sizes[k]};
  return WK_OK;
}

static wk_status fill(cutter *c) {
  function *f = c->f;
  const wk__function_parts *p = c->parts;
  if (p->result_count > WK__MAX_RESULTS || p->result_count + p->input_count > WK__MAX_ARGS)
    return wk_fail(WK_UNSUPPORTED, "a function of many tensors");
  f->result_count = p->result_count;
  f->input_count = p->input_count;
  f->once = p->once;
  f->hands_on = p->hands_on;
  for (int i = 0; i < p->result_count + p->input_count; i++)
    c->args[i] = (wk__graph_arg){.tag = WK_VALUE_TENSOR,
                                 .node = i < p->result_count ? p->results[i] : p->inputs[i - p->result_count]};
  WK_TRY(cut(c));
  WK_TRY(add_size_arguments(c));
  note_saves(f);
  name_function(f, p->name);
  f->op = (wk_op){.name = f->name,
                  .base_name = f->name,
                  .schema_text = f->schema,
                  .grad_fn_name = f->grad_fn_name,
                  .meta = shapes,
                  .compose = give_aliases,
                  .vjp = differentiate,
                  .saves = f->saves,
                  .print = print,
                  .hold = hold,
                  .of_function = true,
                  .number = WK__OP_COUNT};
  return write_schema(f);
}

wk_status wk__function_create(const wk__function_parts *parts, const wk_op **out_op, wk__graph_arg *out_args) {
  cutter c = {.parts = parts, .f = wk__alloc_zeroed(sizeof *c.f), .args = out_args};
  if (!c.f) return WK_OUT_OF_MEMORY;
  c.f->references = 1;
  c.f->backward = wk__graph_create();
  wk_status status = c.f->backward ? fill(&c) : WK_OUT_OF_MEMORY;
  wk__map_release(&c.needed);
  wk__map_release(&c.copies);
  if (status == WK_OK)
    *out_op = &c.f->op;
  else
    hold(&c.f->op, -1);
  return status;
}
