/* From the graph IR to Graph objects: nodes for the IR's nodes, with ATen targets and PyTorch's names.
 * In: a frozen graph. Out: placeholders, get_attr nodes for constants and captured tensors, calls, `copy_` calls for
 * the inputs that the graph writes, the output; modules for the graphs of branches and loops. Tests:
 * tests/python/test_fx.py. */
#include "compile/control/control.h"
#include "python/fx/graph_parts.h"
#include "random/generator.h"

typedef struct builder {
  wk__fx_graph *graph;
  PyObject **nodes;   /* by number: the Node of an IR node, borrowed from the list */
  PyObject *symbols;  /* dict: bits of a symbolic size -> the node that is it */
  PyObject **numbers; /* the placeholders of numbers, borrowed likewise; NULL: not made yet */
  int controls;       /* operators of control flow so far */
} builder;

/* ================================================ arguments ====================================================== */

static PyObject *generator_of(wk__state *state, void *generator) {  // -> new
  PyObject *o = state->generator_type->tp_alloc(state->generator_type, 0);
  if (!o) return NULL;
  wk__generator_retain(generator);
  ((wk__python_generator *)o)->generator = generator;
  return o;
}

static PyObject *node_of(const builder *b, const wk__graph_node *node) {  // -> new
  return Py_NewRef(node && b->nodes ? b->nodes[node->number] : Py_None);
}

static PyObject *int_object(const builder *b, wk_int x) {  // -> new
  return wk__fx_symbol_value(b->graph, b->nodes, b->symbols, x);
}

static PyObject *arg_object(const builder *b, const wk__parameter *p, const wk__graph_arg *arg);  // -> new

static PyObject *list_object(const builder *b, const wk__parameter *p, const wk__graph_arg *arg) {  // -> new
  PyObject *list = PyList_New((Py_ssize_t)arg->count);
  for (uint32_t i = 0; list && i < arg->count; i++) {
    PyObject *item = arg_object(b, p, &(wk__graph_arg){.value = wk__value_item(&arg->value, i)});
    if (item)
      PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    else
      Py_CLEAR(list);
  }
  return list;
}

static PyObject *string_object(wk__state *state, const wk__parameter *p, const char *text) {  // -> new
  bool format = strcmp(p->name, "memory_format") == 0;
  return format ? PyObject_GetAttrString(state->module, text) : PyUnicode_FromString(text);
}

static PyObject *arg_object(const builder *b, const wk__parameter *p, const wk__graph_arg *arg) {  // -> new
  wk__state *state = b->graph->state;
  switch (arg->tag) {
    case WK_VALUE_TENSOR:
      return node_of(b, arg->node);
    case WK_VALUE_INT:
      return int_object(b, arg->integer);
    case WK_VALUE_INPUT:
      return b->numbers ? Py_NewRef(b->numbers[arg->count]) : PyFloat_FromDouble(arg->number);
    case WK_VALUE_DOUBLE:
      return PyFloat_FromDouble(arg->number);
    case WK_VALUE_COMPLEX:
      return PyComplex_FromDoubles(arg->numbers[0], arg->numbers[1]);
    case WK_VALUE_BOOL:
      return PyBool_FromLong(arg->boolean);
    case WK_VALUE_DTYPE:
      return wk__dtype_object(state, (wk_dtype)arg->dtype);
    case WK_VALUE_DEVICE:
      return wk__device_object(state, arg->device);
    case WK_VALUE_STRING:
      return string_object(state, p, arg->string);
    case WK_VALUE_GENERATOR:
      return generator_of(state, arg->generator);
    case WK_VALUE_NONE:
      Py_RETURN_NONE;
    default:
      return list_object(b, p, arg);
  }
}

/* A default has no tensors, so that the two kinds of value agree in what counts. */
static PyObject *default_object(const builder *b, const wk__parameter *p) {  // -> new
  return arg_object(b, p, &(wk__graph_arg){.value = p->default_value});
}

/* 1: what the call would get anyway. -1 with an exception. */
static int is_default(const builder *b, const wk__parameter *p, const wk__graph_arg *arg, PyObject *value) {
  if (!p->has_default) return p->optional && p->keyword_only && value == Py_None;
  if (arg->tag == WK_VALUE_TENSOR || arg->tag == WK_VALUE_TENSORS) return 0;
  PyObject *given = default_object(b, p);
  int equal = given ? PyObject_RichCompareBool(given, value, Py_EQ) : -1;
  if (equal == 1 && Py_TYPE(given) != Py_TYPE(value)) equal = 0; /* 1 is not 1.0 here */
  Py_XDECREF(given);
  return equal;
}

/* Positional arguments up to the last that is no default, keyword-only ones by name. */
static int call_arguments(const builder *b, const wk__graph_node *node, PyObject *args, PyObject *kwargs) {
  const wk__schema *schema = &node->op->schema;
  Py_ssize_t needed = 0;
  for (int i = 0; i < schema->parameter_count; i++) {
    const wk__parameter *p = &schema->parameters[i];
    PyObject *value = arg_object(b, p, &node->args[i]);
    int omitted = value ? is_default(b, p, &node->args[i], value) : -1, status = omitted < 0 ? -1 : 0;
    if (status == 0 && p->keyword_only && !omitted) status = PyDict_SetItemString(kwargs, p->name, value);
    if (status == 0 && !p->keyword_only) status = PyList_Append(args, value);
    if (!p->keyword_only && !omitted) needed = PyList_GET_SIZE(args);
    Py_XDECREF(value);
    if (status < 0) return -1;
  }
  return PyList_SetSlice(args, needed, PyList_GET_SIZE(args), NULL);
}

/* ==================================================== nodes ====================================================== */

/* Takes target and args, which may be NULL with an exception. */
static int add(builder *b, const wk__graph_node *source, wk__fx_op op, PyObject *steal_target, PyObject *steal_args,
               PyObject *kwargs, const char *name) {
  PyObject *text = name ? PyUnicode_FromString(name) : NULL;
  wk__fx_node *node = NULL;
  if (steal_target && steal_args && (text || !name))
    node = wk__fx_graph_add(b->graph, op, steal_target, steal_args, kwargs, text, NULL);
  Py_XDECREF(steal_target);
  Py_XDECREF(steal_args);
  Py_XDECREF(text);
  if (!node) return -1;
  if (source) {
    node->source = source;
    node->taped = source->flags & WK__GRAPH_TAPED;
    b->nodes[source->number] = (PyObject *)node;
  }
  Py_DECREF(node); /* the list keeps it */
  return 0;
}

/* The name is made unique first: it is a placeholder's parameter, or an attribute that is there already. */
static bool is_argument(const wk__fx_graph *graph, const wk__graph_node *node) {
  bool all = graph->arguments != NULL;
  return node->kind == WK__GRAPH_INPUT && (all || node->index < graph->argument_count - graph->number_count);
}

static int add_input(builder *b, const wk__graph_node *node) {
  bool argument = is_argument(b->graph, node);
  PyObject *name = PyList_GET_ITEM(b->graph->input_names, node->index);
  if (add(b, node, argument ? WK__FX_PLACEHOLDER : WK__FX_GET_ATTR, Py_NewRef(name), PyTuple_New(0), NULL, NULL) < 0)
    return -1;
  wk__fx_node *made = (wk__fx_node *)b->nodes[node->number];
  if (argument) Py_SETREF(made->target, Py_NewRef(made->name));
  return 0;
}

/* A symbol is a placeholder of its own, by its name. */
static int add_size(builder *b, wk_int symbol) {
  wk__string text = {0};
  wk_int_print(&text, symbol);
  int status = add(b, NULL, WK__FX_PLACEHOLDER, PyUnicode_FromString(text.text ? text.text : "size"), PyTuple_New(0),
                   NULL, NULL);
  wk__string_release(&text);
  if (status < 0) return -1;
  wk__fx_node *made = b->graph->root->previous;
  Py_SETREF(made->target, Py_NewRef(made->name));
  PyObject *key = PyLong_FromLongLong(symbol.bits);
  status = key ? PyDict_SetItem(b->symbols, key, (PyObject *)made) : -1;
  Py_XDECREF(key);
  return status;
}

/* The placeholders of one input: sizes that are seen for the first time, and the tensor. */
static int add_input_with_sizes(builder *b, const wk__graph_node *node) {
  const wk__fx_graph *graph = b->graph;
  for (Py_ssize_t i = 0; i < graph->argument_count - graph->number_count; i++) {
    wk__fx_argument a = graph->arguments[i];
    if (a.input != node->index) continue;
    if ((a.dim >= 0 ? add_size(b, node->value->sizes[a.dim]) : add_input(b, node)) < 0) return -1;
  }
  return 0;
}

static int add_call(builder *b, const wk__graph_node *node) {
  bool mutates = node->op->tags & WK__TAG_MUTATES;
  PyObject *list = PyList_New(0), *kwargs = PyDict_New(), *target = NULL, *args = NULL;
  if (list && kwargs && call_arguments(b, node, list, kwargs) == 0) args = PyList_AsTuple(list);
  if (args) target = wk__overload_of(b->graph->state, node->op, mutates ? WK__OVERLOAD_FUNCTIONAL : WK__OVERLOAD_PLAIN);
  int status = add(b, node, WK__FX_CALL_FUNCTION, target, args, kwargs, node->op->base_name);
  Py_XDECREF(list);
  Py_XDECREF(kwargs);
  return status;
}

/* ---- control flow: torch.ops.higher_order.cond(pred, true_graph_0, false_graph_0, operands) ---- */

typedef enum control_kind { BRANCH, LOOP, SCAN, MAP } control_kind;
static control_kind kind_of(const wk__control_graphs *c) {
  if (c->slices) return c->carried ? SCAN : MAP;
  return c->carried < 0 ? BRANCH : LOOP;
}
static const char *const control_names[] = {
    [BRANCH] = "cond", [LOOP] = "while_loop", [SCAN] = "scan", [MAP] = "map_impl"};

/* Of the k-th one of a graph. */
static PyObject *name_of_graph(const wk__control_graphs *c, int k, bool second) {  // -> new
  static const char *const forms[][2] = {[BRANCH] = {"true_graph_%d", "false_graph_%d"},
                                         [LOOP] = {"while_loop_cond_graph_%d", "while_loop_body_graph_%d"},
                                         [SCAN] = {"scan_combine_graph_%d"},
                                         [MAP] = {"body_graph_%d"}};
  return PyUnicode_FromFormat(forms[kind_of(c)][second], k);
}

static PyObject *add_graph_attribute(builder *b, const wk__control_graphs *c, bool second) {  // -> new
  if (add(b, NULL, WK__FX_GET_ATTR, name_of_graph(c, b->controls, second), PyTuple_New(0), NULL, NULL) < 0) return NULL;
  return Py_NewRef(b->graph->root->previous);
}

/* A tuple. */
static PyObject *operands_between(const builder *b, const wk__graph_arg *list, int64_t begin, int64_t end) {  // -> new
  PyObject *tuple = PyTuple_New(end - begin);
  for (int64_t i = begin; tuple && i < end; i++) PyTuple_SET_ITEM(tuple, i - begin, node_of(b, list->nodes[i]));
  return tuple;
}

static PyObject *list_between(const builder *b, const wk__graph_arg *list, int64_t begin, int64_t end) {  // -> new
  PyObject *tuple = operands_between(b, list, begin, end), *made = tuple ? PySequence_List(tuple) : NULL;
  Py_XDECREF(tuple);
  return made;
}

/* (body, [carried], [stacks], (closed over)); of map (body, [stacks], [closed over]). */
static PyObject *scan_arguments(builder *b, const wk__graph_arg *operands, const wk__control_graphs *c) {  // -> new
  int64_t closed = (int64_t)c->carried + c->slices;
  PyObject *body = add_graph_attribute(b, c, false);
  if (!body) return NULL;
  PyObject *stacks = list_between(b, operands, c->carried, closed);
  if (!c->carried) return Py_BuildValue("NNN", body, stacks, list_between(b, operands, closed, operands->count));
  return Py_BuildValue("NNNN", body, list_between(b, operands, 0, c->carried), stacks,
                       operands_between(b, operands, closed, operands->count));
}

static PyObject *control_arguments(builder *b, const wk__graph_node *node, const wk__control_graphs *c) {  // -> new
  const wk__graph_arg *operands = &node->args[node->op->schema.parameter_count - 1];
  bool loop = c->carried >= 0;
  if (c->slices) return scan_arguments(b, operands, c);
  PyObject *first = add_graph_attribute(b, c, false), *second = first ? add_graph_attribute(b, c, true) : NULL;
  PyObject *args = NULL;
  if (second && loop)
    args = Py_BuildValue("OONN", first, second, operands_between(b, operands, 0, c->carried),
                         operands_between(b, operands, c->carried, operands->count));
  else if (second)
    args = Py_BuildValue("NOON", node_of(b, node->args[0].node), first, second,
                         operands_between(b, operands, 0, operands->count));
  Py_XDECREF(first);
  Py_XDECREF(second);
  return args;
}

static int add_control(builder *b, const wk__graph_node *node, const wk__control_graphs *c) {
  const char *name = control_names[kind_of(c)];
  PyObject *target = wk__fx_object(b->graph->state, "wick._higher_order_ops.operators", name);
  PyObject *args = target ? control_arguments(b, node, c) : NULL;
  PyObject *kwargs = args && c->reversed ? Py_BuildValue("{sO}", "reverse", Py_True) : NULL;
  b->controls++;
  return add(b, node, WK__FX_CALL_FUNCTION, Py_XNewRef(target), args, kwargs, name);
}

static int add_item(builder *b, const wk__graph_node *node) {
  PyObject *getitem = wk__fx_object(b->graph->state, "operator", "getitem");
  PyObject *args = getitem ? Py_BuildValue("Oi", b->nodes[node->args[0].node->number], (int)node->index) : NULL;
  return add(b, node, WK__FX_CALL_FUNCTION, Py_XNewRef(getitem), args, NULL, "getitem");
}

static int add_constant(builder *b, const wk__graph_node *node) {
  PyObject *name = PyList_GET_ITEM(b->graph->constant_names, node->index);
  return add(b, node, WK__FX_GET_ATTR, Py_NewRef(name), PyTuple_New(0), NULL, NULL);
}

static int add_node(builder *b, const wk__graph_node *node) {
  wk__control_graphs graphs;
  switch ((wk__graph_kind)node->kind) {
    case WK__GRAPH_INPUT:
      return b->graph->arguments ? add_input_with_sizes(b, node) : add_input(b, node);
    case WK__GRAPH_CONSTANT:
      return add_constant(b, node);
    case WK__GRAPH_CALL:
      return wk__control_graphs_of(node->op, &graphs) ? add_control(b, node, &graphs) : add_call(b, node);
    default:
      return add_item(b, node);
  }
}

/* Numbers are arguments behind the tensors. */
static int add_numbers(builder *b) {
  Py_ssize_t count = b->graph->number_count;
  if (!(b->numbers = PyMem_Calloc((size_t)count + 1, sizeof *b->numbers))) return -1;
  for (Py_ssize_t i = 0; i < count; i++) {
    if (add(b, NULL, WK__FX_PLACEHOLDER, PyUnicode_FromString("number"), PyTuple_New(0), NULL, NULL) < 0) return -1;
    wk__fx_node *made = b->graph->root->previous;
    Py_SETREF(made->target, Py_NewRef(made->name));
    b->numbers[i] = (PyObject *)made;
  }
  return 0;
}

static int add_nodes(builder *b, const wk__graph *source) {
  for (const wk__graph_node *n = source->first; n; n = n->next) {
    if (!b->numbers && !is_argument(b->graph, n) && add_numbers(b) < 0) return -1;
    if (add_node(b, n) < 0) return -1;
  }
  return b->numbers ? 0 : add_numbers(b);
}

/* ---- the end ---- */

static int add_mutations(builder *b, const wk__graph *source) {
  for (int64_t i = 0; i < source->mutation_count; i++) {
    const wk__graph_mutation *m = &source->mutations[i];
    PyObject *args = PyTuple_Pack(2, b->nodes[source->inputs[m->input]->number], b->nodes[m->node->number]);
    PyObject *copy = wk__overload_of(b->graph->state, WK__OP(copy_), WK__OVERLOAD_PLAIN);
    if (add(b, NULL, WK__FX_CALL_FUNCTION, copy, args, NULL, "copy_") < 0) return -1;
  }
  return 0;
}

PyObject *wk__fx_output_mark(Py_ssize_t index) {  // -> new
  return PyCapsule_New((void *)(uintptr_t)(index + 1), "wick.output", NULL);
}
Py_ssize_t wk__fx_output_of_mark(PyObject *mark) {
  if (!PyCapsule_IsValid(mark, "wick.output")) return -1;
  return (Py_ssize_t)(uintptr_t)PyCapsule_GetPointer(mark, "wick.output") - 1;
}

static PyObject *node_for_mark(void *context, PyObject *leaf) {  // -> new
  const builder *b = context;
  Py_ssize_t index = wk__fx_output_of_mark(leaf);
  return index < 0 ? Py_NewRef(leaf) : node_of(b, b->graph->source->outputs[index]);
}

static PyObject *output_value(builder *b, const wk__graph *source) {  // -> new
  if (b->graph->structure) return wk__fx_map(b->graph->state, b->graph->structure, false, node_for_mark, b);
  PyObject *tuple = PyTuple_New(source->output_count);
  for (int64_t i = 0; tuple && i < source->output_count; i++)
    PyTuple_SET_ITEM(tuple, i, node_of(b, source->outputs[i]));
  return tuple;
}

static int add_output(builder *b, const wk__graph *source) {
  PyObject *value = output_value(b, source), *args = value ? PyTuple_Pack(1, value) : NULL;
  Py_XDECREF(value);
  return add(b, NULL, WK__FX_OUTPUT, PyUnicode_InternFromString("output"), args, NULL, NULL);
}

int wk__fx_make_nodes(wk__fx_graph *graph) {
  const wk__graph *source = graph->source;
  builder b = {
      .graph = graph, .nodes = PyMem_Calloc((size_t)source->node_count + 1, sizeof *b.nodes), .symbols = PyDict_New()};
  int status = b.nodes && b.symbols ? add_nodes(&b, source) : -1;
  if (status == 0) status = add_mutations(&b, source);
  if (status == 0) status = add_output(&b, source);
  PyMem_Free(b.nodes);
  PyMem_Free(b.numbers);
  Py_XDECREF(b.symbols);
  return status;
}

/* =================================================== metadata ==================================================== */

static bool is_known(const wk_tensor *t) {
  for (int d = 0; d < t->ndim; d++)
    if (!wk_int_is_known(t->sizes[d]) || !wk_int_is_known(t->strides[d])) return false;
  return true;
}

/* A number, or a SymInt for a symbol or expression of them. */
static PyObject *size_object(wk__state *state, wk_int x) {  // -> new
  int64_t hint = 0;
  if (wk_int_is_known(x)) return PyLong_FromLongLong(x.bits);
  (void)wk__sym_hint(x, &hint);
  wk__string text = {0};
  wk_int_print(&text, x);
  PyObject *type = wk__fx_object(state, "wick._symint", "SymInt");
  PyObject *size = type ? PyObject_CallFunction(type, "Ls", (long long)hint, text.text ? text.text : "?") : NULL;
  wk__string_release(&text);
  return size;
}

static PyObject *sizes_tuple(wk__state *state, const wk_int *sizes, int ndim) {  // -> new
  PyObject *tuple = PyTuple_New(ndim);
  for (int d = 0; tuple && d < ndim; d++) {
    PyObject *size = size_object(state, sizes[d]);
    if (size)
      PyTuple_SET_ITEM(tuple, d, size);
    else
      Py_CLEAR(tuple);
  }
  return tuple;
}

static PyObject *symbolic(wk__state *state, const wk_tensor *value) {  // -> new
  PyObject *type = wk__fx_object(state, "wick._symint", "SymbolicTensor");
  PyObject *sizes = type ? sizes_tuple(state, value->sizes, value->ndim) : NULL;
  PyObject *strides = sizes ? sizes_tuple(state, value->strides, value->ndim) : NULL;
  PyObject *dtype = strides ? wk__dtype_object(state, value->dtype) : NULL;
  PyObject *made = dtype ? PyObject_CallFunctionObjArgs(type, sizes, strides, dtype, NULL) : NULL;
  Py_XDECREF(sizes);
  Py_XDECREF(strides);
  Py_XDECREF(dtype);
  return made;
}

/* A tensor of device meta; a SymbolicTensor where its sizes are symbols. */
static PyObject *described(wk__state *state, const wk_tensor *value) {  // -> new
  if (!value) Py_RETURN_NONE;
  if (!is_known(value)) return symbolic(state, value);
  wk__spec spec;
  wk__spec_of(&spec, value);
  spec.device = (wk_device){WK_META, -1};
  wk_tensor *t = wk__tensor_from_spec(&spec);
  return t ? wk__wrap(state, t) : wk__raise(state);
}

static PyObject *described_list(wk__state *state, const wk__graph_node *node) {  // -> new
  PyObject *tuple = PyTuple_New(node->item_count);
  for (int i = 0; tuple && i < node->item_count; i++) {
    PyObject *item = described(state, node->items[i]);
    if (item)
      PyTuple_SET_ITEM(tuple, i, item);
    else
      Py_CLEAR(tuple);
  }
  return tuple;
}

static int set_item(PyObject *dict, const char *key, PyObject *steal_value) {
  int status = steal_value ? PyDict_SetItemString(dict, key, steal_value) : -1;
  Py_XDECREF(steal_value);
  return status;
}

/* As Python prints a traceback, the innermost line last. */
static PyObject *stack_text(wk__state *state, const wk__source_line *source) {  // -> new
  PyObject *format = wk__fx_object(state, "wick.fx._places", "stack_trace"), *list = PyList_New(0);
  for (; format && list && source; source = source->caller) {
    PyObject *line = Py_BuildValue("ssi", source->file, source->function, source->line);
    if (!line || PyList_Insert(list, 0, line) < 0) Py_CLEAR(list);
    Py_XDECREF(line);
  }
  PyObject *text = format && list ? PyObject_CallOneArg(format, list) : NULL;
  Py_XDECREF(list);
  return text;
}

PyObject *wk__fx_source_meta(const wk__fx_node *node) {  // -> new
  wk__state *state = node->graph->state;
  const wk__graph_node *source = node->source;
  PyObject *meta = PyDict_New(), *value = NULL;
  int status = -1;
  if (meta) value = wk__graph_is_list(source) ? described_list(state, source) : described(state, source->value);
  if (value) status = PyDict_SetItemString(meta, "val", value);
  if (status == 0 && wk__is_tensor(state, value) && node->op != WK__FX_GET_ATTR) {
    PyObject *describe = wk__fx_object(state, "wick.fx.passes.shape_prop", "_extract_tensor_metadata");
    status = set_item(meta, "tensor_meta", describe ? PyObject_CallOneArg(describe, value) : NULL);
  }
  if (status == 0 && source->source) status = set_item(meta, "stack_trace", stack_text(state, source->source));
  Py_XDECREF(value);
  if (status < 0) Py_CLEAR(meta);
  return meta;
}

/* ================================================= GraphModules ================================================= */

static PyObject *names_of_inputs(const wk__graph *source) {  // -> new
  PyObject *list = PyList_New(0);
  for (int64_t i = 0; list && i < source->input_count; i++) {
    PyObject *name = PyUnicode_FromString(source->inputs[i]->name);
    if (!name || PyList_Append(list, name) < 0) Py_CLEAR(list);
    Py_XDECREF(name);
  }
  return list;
}

static PyObject *names_of_constants(const wk__graph *source) {  // -> new
  PyObject *list = PyList_New(0);
  for (int64_t i = 0; list && i < source->constant_count; i++) {
    PyObject *name = PyUnicode_FromFormat("_tensor_constant%lld", (long long)i);
    if (!name || PyList_Append(list, name) < 0) Py_CLEAR(list);
    Py_XDECREF(name);
  }
  return list;
}

static Py_ssize_t count_numbers(const wk__graph *source) {
  Py_ssize_t count = 0;
  for (const wk__graph_node *n = source->first; n; n = n->next)
    for (int i = 0; n->kind == WK__GRAPH_CALL && i < n->op->schema.parameter_count; i++)
      if (n->args[i].tag == WK_VALUE_INPUT) count = wk__max(count, (int64_t)n->args[i].count + 1);
  return count;
}

wk__fx_graph *wk__fx_graph_over(wk__state *state, wk__graph *source, Py_ssize_t tensor_count,
                                PyObject *steal_input_names) {  // -> new
  wk__graph *own = source->frozen ? wk__graph_retain(source) : wk__graph_copy(source);
  wk__fx_graph *graph = own && wk__graph_freeze(own) == WK_OK ? wk__fx_graph_create(state) : NULL;
  if (!graph) {
    wk__graph_release(own);
    Py_XDECREF(steal_input_names);
    if (!PyErr_Occurred()) (void)wk__raise(state);
    return NULL;
  }
  graph->source = own;
  graph->number_count = count_numbers(own);
  graph->argument_count = tensor_count + graph->number_count;
  graph->input_names = steal_input_names ? steal_input_names : names_of_inputs(own);
  graph->constant_names = names_of_constants(own);
  if (!graph->input_names || !graph->constant_names) Py_CLEAR(graph);
  return graph;
}

static int add_constants(const wk__fx_graph *graph, PyObject *module) {
  for (const wk__graph_node *n = graph->source->first; n; n = n->next) {
    if (n->kind != WK__GRAPH_CONSTANT) continue;
    PyObject *tensor = wk__wrap(graph->state, wk__retain(n->constant));
    PyObject *done = tensor ? PyObject_CallMethod(module, "_add_tensor", "OO",
                                                  PyList_GET_ITEM(graph->constant_names, n->index), tensor)
                            : NULL;
    Py_XDECREF(tensor);
    Py_XDECREF(done);
    if (!done) return -1;
  }
  return 0;
}

static PyObject *captured_module(wk__state *state, wk__graph *source, PyObject *class_name) {  // -> new
  wk__fx_graph *graph = wk__fx_graph_over(state, source, source->input_count, NULL);
  if (!graph) return NULL;
  graph->captured = true;
  PyObject *module = wk__fx_module_over(graph, NULL, class_name);
  Py_DECREF(graph);
  return module;
}

static int add_graph(const wk__fx_graph *graph, PyObject *module, const wk__control_graphs *c, int k, bool second) {
  const wk__graph *source = second ? c->second : c->first;
  PyObject *name = name_of_graph(c, k, second);
  PyObject *part = name ? captured_module(graph->state, (wk__graph *)source, name) : NULL; /* it is frozen */
  int status = part ? PyObject_SetAttr(module, name, part) : -1;
  Py_XDECREF(name);
  Py_XDECREF(part);
  return status;
}

static int add_graphs(const wk__fx_graph *graph, PyObject *module) {
  wk__control_graphs c;
  int k = 0;
  for (const wk__graph_node *n = graph->source->first; n; n = n->next) {
    if (n->kind != WK__GRAPH_CALL || !wk__control_graphs_of(n->op, &c)) continue;
    if (add_graph(graph, module, &c, k, false) < 0) return -1;
    if (c.second && add_graph(graph, module, &c, k, true) < 0) return -1;
    k++;
  }
  return 0;
}

PyObject *wk__fx_module_over(wk__fx_graph *graph, PyObject *attributes, PyObject *class_name) {  // -> new
  PyObject *over = wk__fx_object(graph->state, "wick.fx.graph_module", "_over");
  PyObject *module = over ? PyObject_CallFunctionObjArgs(over, graph, attributes ? attributes : Py_None,
                                                         class_name ? class_name : Py_None, NULL)
                          : NULL;
  if (module && (add_constants(graph, module) < 0 || add_graphs(graph, module) < 0)) Py_CLEAR(module);
  return module;
}

PyObject *wk__graph_module_create(wk__state *state, wk__graph *source) {  // -> new
  return captured_module(state, source, NULL);
}

/* ---- sizes among the arguments ---- */

static bool is_listed(const wk__graph *source, const wk__fx_argument *list, Py_ssize_t count, wk_int symbol) {
  for (Py_ssize_t i = 0; i < count; i++)
    if (list[i].dim >= 0 && wk_int_same(source->inputs[list[i].input]->value->sizes[list[i].dim], symbol)) return true;
  return false;
}

static Py_ssize_t list_arguments(const wk__graph *source, const bool *integers, wk__fx_argument *list) {
  Py_ssize_t count = 0;
  for (int64_t i = 0; i < source->input_count; i++) {
    const wk_tensor *t = source->inputs[i]->value;
    for (int d = 0; d < t->ndim; d++) {
      bool symbol = !wk_int_is_known(t->sizes[d]) && wk__sym_kind_of(t->sizes[d]) == WK__SYM_SYMBOL;
      if (symbol && !is_listed(source, list, count, t->sizes[d])) list[count++] = (wk__fx_argument){(int32_t)i, d};
    }
    if (!integers[i]) list[count++] = (wk__fx_argument){(int32_t)i, -1};
  }
  return count;
}

static int take_sizes(wk__fx_graph *graph, const bool *integers) {
  const wk__graph *source = graph->source;
  Py_ssize_t room = 1;
  for (int64_t i = 0; i < source->input_count; i++) room += 1 + source->inputs[i]->value->ndim;
  if (!(graph->arguments = PyMem_Malloc((size_t)room * sizeof *graph->arguments))) {
    PyErr_NoMemory();
    return -1;
  }
  graph->argument_count = list_arguments(source, integers, graph->arguments) + graph->number_count;
  return 0;
}

PyObject *wk__graph_module_with_sizes(wk__state *state, wk__graph *source, const bool *integers) {  // -> new
  wk__fx_graph *graph = wk__fx_graph_over(state, source, source->input_count, NULL);
  if (!graph) return NULL;
  graph->captured = true;
  PyObject *module = take_sizes(graph, integers) < 0 ? NULL : wk__fx_module_over(graph, NULL, NULL);
  Py_DECREF(graph);
  return module;
}
