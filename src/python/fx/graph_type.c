/* Graph: a list of nodes that programs build and change, as torch.fx.Graph.
 * In: calls that make, move and erase nodes. Out: the list, checked by lint(), as text (graph_code.c), run
 * (graph_run.c). Invariant: names are unique; the nodes between root->next and root are the graph's, none is erased.
 * Tests: tests/python/test_fx.py. */
#include "dynamo/cpython/objects.h"
#include "python/fx/graph_parts.h"

#include <structmember.h>

static wk__fx_graph *of(PyObject *o) { return (wk__fx_graph *)o; }

/* ================================================= making nodes ================================================= */

wk__fx_node *wk__fx_graph_add(wk__fx_graph *graph, wk__fx_op op, PyObject *target, PyObject *args, PyObject *kwargs,
                              PyObject *name, PyObject *type) {  // -> new
  PyObject *candidate = name && name != Py_None ? Py_NewRef(name) : wk__fx_name_for_target(target);
  PyObject *own_name = candidate ? wk__fx_graph_new_name(graph, candidate) : NULL;
  Py_XDECREF(candidate);
  wk__fx_node *node = wk__fx_node_create(graph, op, own_name, target, args, kwargs, type);
  if (!node) return NULL;
  wk__fx_node_link(node, graph->insert_at, graph->insert_behind);
  graph->count++;
  return node;
}

static PyObject *or_null(PyObject *o) { return o == Py_None ? NULL : o; }  // -> borrowed

static PyObject *create_node(PyObject *self, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"op", "target", "args", "kwargs", "name", "type_expr", NULL};
  PyObject *op, *target, *given = Py_None, *given_keywords = Py_None, *name = Py_None, *type = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "UO|OOOO:create_node", names, &op, &target, &given, &given_keywords,
                                   &name, &type) ||
      wk__fx_graph_load(of(self)) < 0)
    return NULL;
  for (int i = 1; i < WK__FX_OP_COUNT; i++)
    if (PyUnicode_CompareWithASCIIString(op, wk__fx_op_names[i]) == 0)
      return (PyObject *)wk__fx_graph_add(of(self), (wk__fx_op)i, target, or_null(given), or_null(given_keywords), name,
                                          type);
  return PyErr_Format(PyExc_AssertionError, "op '%U' is not in _legal_ops", op);
}

/* call_function(target, args, kwargs, type_expr) and its like. */
static PyObject *call_of(PyObject *self, wk__fx_op op, PyObject *args, PyObject *keywords) {  // -> new
  static char *function_names[] = {"the_function", "args", "kwargs", "type_expr", NULL};
  static char *method_names[] = {"method_name", "args", "kwargs", "type_expr", NULL};
  static char *module_names[] = {"module_name", "args", "kwargs", "type_expr", NULL};
  char **names = op == WK__FX_CALL_FUNCTION ? function_names : op == WK__FX_CALL_METHOD ? method_names : module_names;
  PyObject *target, *given = Py_None, *given_keywords = Py_None, *type = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|OOO", names, &target, &given, &given_keywords, &type) ||
      wk__fx_graph_load(of(self)) < 0)
    return NULL;
  return (PyObject *)wk__fx_graph_add(of(self), op, target, or_null(given), or_null(given_keywords), NULL, type);
}
static PyObject *call_function(PyObject *self, PyObject *args, PyObject *keywords) {  // -> new
  return call_of(self, WK__FX_CALL_FUNCTION, args, keywords);
}
static PyObject *call_method(PyObject *self, PyObject *args, PyObject *keywords) {  // -> new
  return call_of(self, WK__FX_CALL_METHOD, args, keywords);
}
static PyObject *call_module(PyObject *self, PyObject *args, PyObject *keywords) {  // -> new
  return call_of(self, WK__FX_CALL_MODULE, args, keywords);
}

static PyObject *placeholder(PyObject *self, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"name", "type_expr", "default_value", NULL};
  PyObject *name, *type = Py_None, *value = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "U|OO:placeholder", names, &name, &type, &value) ||
      wk__fx_graph_load(of(self)) < 0)
    return NULL;
  PyObject *node_args = value ? PyTuple_Pack(1, value) : PyTuple_New(0), *candidate = NULL;
  Py_ssize_t stars = 0;
  while (stars < PyUnicode_GET_LENGTH(name) && PyUnicode_READ_CHAR(name, stars) == '*') stars++;
  if (node_args) candidate = PyUnicode_Substring(name, stars, PyUnicode_GET_LENGTH(name));
  wk__fx_node *node =
      candidate ? wk__fx_graph_add(of(self), WK__FX_PLACEHOLDER, name, node_args, NULL, candidate, type) : NULL;
  Py_XDECREF(node_args);
  Py_XDECREF(candidate);
  return (PyObject *)node;
}

static PyObject *output(PyObject *self, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"result", "type_expr", NULL};
  PyObject *result, *type = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O:output", names, &result, &type) ||
      wk__fx_graph_load(of(self)) < 0)
    return NULL;
  PyObject *target = PyUnicode_InternFromString("output"), *node_args = PyTuple_Pack(1, result), *node = NULL;
  if (target && node_args)
    node = (PyObject *)wk__fx_graph_add(of(self), WK__FX_OUTPUT, target, node_args, NULL, NULL, type);
  Py_XDECREF(target);
  Py_XDECREF(node_args);
  return node;
}

/* ---- attributes of the owner ---- */

static PyObject *owner_of(const wk__fx_graph *graph) {  // -> borrowed, NULL without an exception
  PyObject *owner = graph->owner ? wk__weak_referent(graph->owner) : NULL;
  Py_XDECREF(owner); /* who calls holds it */
  return owner == Py_None ? NULL : owner;
}

PyObject *wk__fx_attribute(PyObject *module, PyObject *path) {  // -> new
  PyObject *dot = PyUnicode_FromString("."), *names = dot ? PyUnicode_Split(path, dot, -1) : NULL;
  PyObject *value = names ? Py_NewRef(module) : NULL;
  for (Py_ssize_t i = 0; value && i < PyList_GET_SIZE(names); i++)
    Py_SETREF(value, PyObject_GetAttr(value, PyList_GET_ITEM(names, i)));
  Py_XDECREF(dot);
  Py_XDECREF(names);
  return value;
}

static bool owner_lacks(const wk__fx_graph *graph, PyObject *path) {
  PyObject *owner = owner_of(graph), *value = owner && PyUnicode_Check(path) ? wk__fx_attribute(owner, path) : NULL;
  PyErr_Clear();
  Py_XDECREF(value);
  return owner && !value;
}

static PyObject *get_attr(PyObject *self, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"qualified_name", "type_expr", NULL};
  PyObject *path, *type = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "U|O:get_attr", names, &path, &type) ||
      wk__fx_graph_load(of(self)) < 0)
    return NULL;
  if (owner_lacks(of(self), path) &&
      PyErr_WarnFormat(PyExc_UserWarning, 1, "a get_attr node for '%U', which the graph's GraphModule does not have",
                       path) < 0)
    return NULL;
  return (PyObject *)wk__fx_graph_add(of(self), WK__FX_GET_ATTR, path, NULL, NULL, NULL, type);
}

/* ============================================ moving and erasing nodes ========================================== */

static wk__fx_node *node_argument(wk__fx_graph *graph, PyObject *o) {  // -> borrowed
  if (wk__is_fx_node(graph->state, o)) return (wk__fx_node *)o;
  PyErr_Format(PyExc_TypeError, "a Node is expected, not %R", (PyObject *)Py_TYPE(o));
  return NULL;
}

static PyObject *inserting(PyObject *self, PyObject *args, bool behind) {  // -> new
  PyObject *given = Py_None;
  if (!PyArg_ParseTuple(args, "|O", &given) || wk__fx_graph_load(of(self)) < 0) return NULL;
  if (given == Py_None) return wk__fx_insert_point(of(self), of(self)->root, !behind);
  wk__fx_node *node = node_argument(of(self), given);
  if (!node) return NULL;
  if (node->graph != of(self))
    return PyErr_Format(PyExc_AssertionError, "Node to insert %s is not in graph.", behind ? "after" : "before");
  return wk__fx_insert_point(of(self), node, behind);
}
static PyObject *inserting_before(PyObject *self, PyObject *args) { return inserting(self, args, false); }  // -> new
static PyObject *inserting_after(PyObject *self, PyObject *args) { return inserting(self, args, true); }    // -> new

static PyObject *nothing(void *context, PyObject *leaf) {  // -> new
  wk__state *state = context;
  return Py_NewRef(wk__is_fx_node(state, leaf) ? Py_None : leaf);
}

static int erase(wk__fx_graph *graph, wk__fx_node *node) {
  PyObject *args = wk__fx_map(graph->state, node->args, false, nothing, graph->state);
  PyObject *kwargs = args ? wk__fx_map(graph->state, node->kwargs, false, nothing, graph->state) : NULL;
  int status = kwargs ? wk__fx_node_set_args(node, args, kwargs) : -1;
  Py_XDECREF(args);
  Py_XDECREF(kwargs);
  if (status < 0) return -1;
  Py_INCREF(node); /* the list's references go */
  if (graph->insert_at == node)
    Py_SETREF(graph->insert_at, (wk__fx_node *)Py_NewRef(graph->insert_behind ? node->previous : node->next));
  wk__fx_node_unlink(node);
  node->erased = true;
  graph->count--;
  Py_DECREF(node);
  return 0; /* its name is not given out again */
}

static PyObject *erase_node(PyObject *self, PyObject *o) {  // -> new
  wk__fx_node *node = node_argument(of(self), o);
  if (!node) return NULL;
  if (PyDict_GET_SIZE(node->users))
    return PyErr_Format(PyExc_RuntimeError, "Tried to erase Node %U but it still had %zd users in the graph: %R!",
                        node->name, PyDict_GET_SIZE(node->users), node->users);
  if (node->graph != of(self))
    return PyErr_Format(PyExc_RuntimeError, "Attempting to remove %U from wrong graph!", node->name);
  if (node->erased) {
    if (PyErr_WarnFormat(PyExc_UserWarning, 1, "erase_node(%U) on an already erased node", node->name) < 0) return NULL;
    Py_RETURN_NONE;
  }
  if (erase(of(self), node) < 0) return NULL;
  Py_RETURN_NONE;
}

/* The node has users, or it is impure: by the answer of is_impure_node(node), or by the node's own. */
static int must_stay(wk__fx_node *node, PyObject *is_impure) {
  if (PyDict_GET_SIZE(node->users)) return 1;
  if (!is_impure || is_impure == Py_None) return wk__fx_node_is_impure(node, true);
  PyObject *answer = PyObject_CallOneArg(is_impure, (PyObject *)node);
  int truth = answer ? PyObject_IsTrue(answer) : -1;
  Py_XDECREF(answer);
  return truth;
}

static PyObject *lint(PyObject *self, PyObject *unused);  // -> new

static PyObject *eliminate_dead_code(PyObject *self, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"is_impure_node", NULL};
  PyObject *is_impure = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:eliminate_dead_code", names, &is_impure)) return NULL;
  PyObject *checked = lint(self, NULL);
  if (!checked) return NULL;
  Py_DECREF(checked);
  bool changed = false;
  for (wk__fx_node *n = of(self)->root->previous, *previous; n->op != WK__FX_ROOT; n = previous) {
    previous = n->previous;
    int stays = must_stay(n, is_impure);
    if (stays < 0 || (!stays && erase(of(self), n) < 0)) return NULL;
    changed |= !stays;
  }
  return PyBool_FromLong(changed);
}

/* ==================================================== copying =================================================== */

typedef struct transform {
  wk__state *state;
  PyObject *function; /* node -> value; or NULL */
  PyObject *map;      /* dict; or NULL */
} transform;

static PyObject *transformed(void *context, PyObject *leaf) {  // -> new
  const transform *t = context;
  if (!wk__is_fx_node(t->state, leaf)) return Py_NewRef(leaf);
  if (t->function) return PyObject_CallOneArg(t->function, leaf);
  return t->map ? PyObject_GetItem(t->map, leaf) : Py_NewRef(leaf);
}

static wk__fx_node *copy_node(wk__fx_graph *graph, wk__fx_node *node, transform *t) {  // -> new
  PyObject *args = wk__fx_map(graph->state, node->args, false, transformed, t);
  PyObject *kwargs = args ? wk__fx_map(graph->state, node->kwargs, false, transformed, t) : NULL;
  wk__fx_node *copy = NULL;
  if (kwargs) copy = wk__fx_graph_add(graph, (wk__fx_op)node->op, node->target, args, kwargs, node->name, node->type);
  Py_XDECREF(args);
  Py_XDECREF(kwargs);
  PyObject *meta = copy ? wk__fx_node_meta(node) : NULL, *own = meta ? PyDict_Copy(meta) : NULL;
  if (!own) {
    Py_XDECREF(copy);
    return NULL;
  }
  Py_XSETREF(copy->meta, own);
  copy->taped = node->taped;
  return copy;
}

static PyObject *node_copy(PyObject *self, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"node", "arg_transform", NULL};
  PyObject *node, *function = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!|O:node_copy", names, of(self)->state->graph_node_type, &node,
                                   &function) ||
      wk__fx_graph_load(of(self)) < 0)
    return NULL;
  transform t = {of(self)->state, function, NULL};
  return (PyObject *)copy_node(of(self), (wk__fx_node *)node, &t);
}

/* Copies the nodes in front of the output, those in `map` excepted. *out_output: borrowed, NULL: there is none. */
static int copy_nodes(wk__fx_graph *graph, wk__fx_graph *from, PyObject *map, wk__fx_node **out_output) {
  transform t = {graph->state, NULL, map};
  *out_output = NULL;
  WK__FX_EACH_NODE(n, from) {
    int known = PySequence_Contains(map, (PyObject *)n);
    if (known < 0) return -1;
    if (known) continue;
    *out_output = n->op == WK__FX_OUTPUT ? n : NULL;
    if (*out_output) return 0;
    wk__fx_node *copy = copy_node(graph, n, &t);
    int status = copy ? PyObject_SetItem(map, (PyObject *)n, (PyObject *)copy) : -1;
    Py_XDECREF(copy);
    if (status < 0) return -1;
  }
  return 0;
}

static PyObject *graph_copy(PyObject *self, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"g", "val_map", "return_output_node", NULL};
  PyObject *from, *map;
  int with_node = 0;
  wk__state *state = of(self)->state;
  wk__fx_node *output_node;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!O|p:graph_copy", names, state->graph_type, &from, &map,
                                   &with_node) ||
      wk__fx_graph_load(of(self)) < 0 || wk__fx_graph_load(of(from)) < 0 ||
      copy_nodes(of(self), of(from), map, &output_node) < 0)
    return NULL;
  if (!output_node) Py_RETURN_NONE;
  transform t = {state, NULL, map};
  PyObject *value = wk__fx_map(state, PyTuple_GET_ITEM(output_node->args, 0), false, transformed, &t);
  return with_node && value ? Py_BuildValue("NO", value, output_node) : value;
}

static int copy_with_output(wk__fx_graph *copy, wk__fx_graph *from, PyObject *map) {
  wk__fx_node *output_node;
  if (copy_nodes(copy, from, map, &output_node) < 0) return -1;
  if (!output_node) return 0;
  transform t = {copy->state, NULL, map};
  wk__fx_node *node = copy_node(copy, output_node, &t);
  Py_XDECREF(node);
  return node ? 0 : -1;
}

/* An unedited graph's copy stands for the same source. */
static int share_source(wk__fx_graph *copy, const wk__fx_graph *from) {
  copy->source = wk__graph_retain(from->source);
  copy->structure = Py_XNewRef(from->structure);
  copy->input_names = Py_XNewRef(from->input_names);
  copy->constant_names = Py_XNewRef(from->constant_names);
  copy->argument_count = from->argument_count;
  copy->number_count = from->number_count;
  copy->loaded = false;
  if (!from->arguments) return 0;
  size_t bytes = (size_t)(from->argument_count - from->number_count) * sizeof *copy->arguments;
  if (!(copy->arguments = PyMem_Malloc(bytes + 1))) {
    PyErr_NoMemory();
    return -1;
  }
  memcpy(copy->arguments, from->arguments, bytes);
  return 0;
}

static PyObject *deep_copy(PyObject *self, PyObject *memo) {  // -> new
  wk__fx_graph *from = of(self), *copy = wk__fx_graph_create(from->state);
  if (!copy) return NULL;
  copy->captured = from->captured;
  copy->tracer = Py_XNewRef(from->tracer);
  int status = 0;
  if (from->source && !from->version) {
    status = share_source(copy, from);
  } else {
    PyObject *map = PyDict_New();
    status = map ? copy_with_output(copy, from, map) : -1;
    Py_XDECREF(map);
  }
  PyObject *key = status == 0 && PyDict_Check(memo) ? PyLong_FromVoidPtr(self) : NULL;
  if (key && PyDict_SetItem(memo, key, (PyObject *)copy) < 0) status = -1;
  Py_XDECREF(key);
  if (status < 0) Py_CLEAR(copy);
  return (PyObject *)copy;
}

/* ===================================================== checks =================================================== */

static PyObject *fail_with_graph(wk__fx_graph *graph, PyObject *steal_message) {  // -> always NULL
  PyObject *text = steal_message ? wk__fx_graph_text(graph) : NULL;
  if (text) PyErr_Format(PyExc_RuntimeError, "%U\n%U", steal_message, text);
  Py_XDECREF(text);
  Py_XDECREF(steal_message);
  return NULL;
}

static int check_inputs(wk__fx_graph *graph, const wk__fx_node *node, PyObject *seen) {
  PyObject *input, *none, *problem = NULL;
  Py_ssize_t at = 0;
  while (!problem && PyDict_Next(node->inputs, &at, &input, &none)) {
    const wk__fx_node *n = (wk__fx_node *)input;
    if (n->graph != graph)
      problem = PyUnicode_FromFormat(
          "Argument '%U' of Node '%U' does not belong to this Graph, but was used as an argument! If you are copying "
          "nodes from another graph, make sure to use ``arg_transform`` on node_copy() to remap values",
          n->name, node->name);
    else if (PyDict_Contains(seen, input) == 0)
      problem = PyUnicode_FromFormat(
          "Argument '%U' of Node '%U' was used before it has been defined! Please check that Nodes in the graph are "
          "topologically ordered",
          n->name, node->name);
  }
  if (problem) (void)fail_with_graph(graph, problem);
  return PyErr_Occurred() ? -1 : 0;
}

static int check_target(wk__fx_graph *graph, const wk__fx_node *node) {
  bool attribute = node->op == WK__FX_GET_ATTR || node->op == WK__FX_CALL_MODULE;
  if (!attribute || !owner_lacks(graph, node->target)) return 0;
  PyErr_Format(PyExc_RuntimeError, "Node %U target %S references nonexistent attribute %S", node->name, node->target,
               node->target);
  return -1;
}

static PyObject *lint(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  if (wk__fx_graph_load(of(self)) < 0) return NULL;
  PyObject *seen = PyDict_New(), *names = PyDict_New();
  int status = seen && names ? 0 : -1;
  WK__FX_EACH_NODE(n, of(self)) {
    if (status == 0) status = check_inputs(of(self), n, seen);
    if (status == 0) status = check_target(of(self), n);
    if (status == 0) status = PyDict_SetItem(seen, (PyObject *)n, Py_None);
    if (status == 0 && PyDict_Contains(names, n->name) == 1) {
      PyErr_Format(PyExc_RuntimeError, "Node redefined name %U!", n->name);
      status = -1;
    }
    if (status == 0) status = PyDict_SetItem(names, n->name, Py_None);
    if (status < 0) break;
  }
  Py_XDECREF(seen);
  Py_XDECREF(names);
  return status < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *find_nodes(PyObject *self, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"op", "target", "sort", NULL};
  PyObject *op, *target = Py_None;
  int sort;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$UOp:find_nodes", names, &op, &target, &sort) ||
      wk__fx_graph_load(of(self)) < 0)
    return NULL;
  if (target == Py_None && PyUnicode_CompareWithASCIIString(op, "call_function") == 0)
    return PyErr_Format(PyExc_AssertionError, "target must not be None for call_function op");
  PyObject *list = PyList_New(0);
  WK__FX_EACH_NODE(n, of(self)) {
    if (!list) return NULL;
    if (PyUnicode_CompareWithASCIIString(op, wk__fx_op_names[n->op]) != 0) continue;
    int fits = target == Py_None ? 1 : PyObject_RichCompareBool(n->target, target, Py_EQ);
    if (fits < 0 || (fits && PyList_Append(list, (PyObject *)n) < 0)) Py_CLEAR(list);
  }
  return list;
}

static PyObject *output_node(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  if (wk__fx_graph_load(of(self)) < 0) return NULL;
  wk__fx_node *last = of(self)->root->previous;
  if (last->op == WK__FX_OUTPUT) return Py_NewRef((PyObject *)last);
  return PyErr_Format(PyExc_RuntimeError, "the graph has no output node");
}

/* ====================================================== text ==================================================== */

static PyObject *graph_str(PyObject *self) {  // -> new
  return wk__fx_graph_load(of(self)) < 0 ? NULL : wk__fx_graph_text(of(self));
}

static PyObject *print_tabular(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  PyObject *text = wk__fx_graph_load(of(self)) < 0 ? NULL : wk__fx_graph_table(of(self));
  PyObject *print = text ? PyDict_GetItemString(PyEval_GetBuiltins(), "print") : NULL;
  PyObject *result = print ? PyObject_CallOneArg(print, text) : NULL;
  Py_XDECREF(text);
  return result;
}

/* An object with `src` and `globals`. */
static PyObject *python_code(PyObject *self, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"root_module", "verbose", NULL};
  const char *root;
  int readable = 0;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "s|p:python_code", names, &root, &readable) ||
      wk__fx_graph_load(of(self)) < 0)
    return NULL;
  PyObject *globals = PyDict_New(), *type = wk__fx_object(of(self)->state, "types", "SimpleNamespace");
  PyObject *text = globals && type ? wk__fx_graph_code(of(self), root, readable, globals) : NULL;
  PyObject *fields = text ? Py_BuildValue("{s:O,s:O}", "src", text, "globals", globals) : NULL;
  PyObject *none = fields ? PyTuple_New(0) : NULL, *result = none ? PyObject_Call(type, none, fields) : NULL;
  Py_XDECREF(globals);
  Py_XDECREF(text);
  Py_XDECREF(fields);
  Py_XDECREF(none);
  return result;
}

static PyObject *run(PyObject *self, PyObject *args) {  // -> new
  PyObject *module, *given, *keywords;
  if (!PyArg_ParseTuple(args, "OO!O!:_run", &module, &PyTuple_Type, &given, &PyDict_Type, &keywords)) return NULL;
  return wk__fx_graph_run(of(self), module, given, keywords);
}

/* ===================================================== life ===================================================== */

int wk__fx_graph_load(wk__fx_graph *graph) {
  if (graph->loaded) return 0;
  if (!graph->source) {
    graph->loaded = true;
    return 0;
  }
  int status = wk__fx_make_nodes(graph); /* not loaded yet, so that this is no edit */
  graph->loaded = true;
  return status;
}

static int make_root(wk__fx_graph *graph) {
  PyObject *name = PyUnicode_FromString(""), *target = PyUnicode_InternFromString("root");
  wk__fx_node *root = name && target ? wk__fx_node_create(graph, WK__FX_ROOT, name, target, NULL, NULL, NULL) : NULL;
  Py_XDECREF(target);
  if (!root) return -1;
  root->previous = (wk__fx_node *)Py_NewRef(root);
  root->next = (wk__fx_node *)Py_NewRef(root);
  graph->root = root;
  graph->insert_at = (wk__fx_node *)Py_NewRef(root);
  return 0;
}

static PyObject *graph_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {  // -> new
  (void)args, (void)keywords;
  wk__fx_graph *graph = (wk__fx_graph *)type->tp_alloc(type, 0);
  if (!graph) return NULL;
  graph->state = wk__state_of_type(type);
  graph->names = PyDict_New();
  graph->name_counts = PyDict_New();
  if (graph->names && graph->name_counts && make_root(graph) == 0) return (PyObject *)graph;
  Py_DECREF(graph);
  return NULL;
}

wk__fx_graph *wk__fx_graph_create(wk__state *state) {  // -> new
  return (wk__fx_graph *)graph_new(state->graph_type, NULL, NULL);
}

static int set_owner(PyObject *self, PyObject *value, void *unused) {
  (void)unused;
  PyObject *reference = value && value != Py_None ? PyWeakref_NewRef(value, NULL) : NULL;
  if (PyErr_Occurred()) return -1;
  Py_XSETREF(of(self)->owner, reference);
  return 0;
}

static PyObject *get_tracer(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return Py_NewRef(of(self)->tracer ? of(self)->tracer : Py_None);
}
static int set_tracer(PyObject *self, PyObject *value, void *unused) {
  (void)unused;
  Py_XSETREF(of(self)->tracer, value && value != Py_None ? Py_NewRef(value) : NULL);
  return 0;
}

static int graph_init(PyObject *self, PyObject *args, PyObject *keywords) {
  static char *names[] = {"owning_module", "tracer_cls", "tracer_extras", NULL};
  PyObject *owner = Py_None, *tracer = Py_None, *unused = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "|OOO:Graph", names, &owner, &tracer, &unused)) return -1;
  return set_tracer(self, tracer, NULL) < 0 ? -1 : set_owner(self, owner, NULL);
}

static int graph_traverse(PyObject *self, visitproc visit, void *arg) {
  wk__fx_graph *g = of(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(g->root);
  Py_VISIT(g->insert_at);
  Py_VISIT(g->names);
  Py_VISIT(g->name_counts);
  Py_VISIT(g->owner);
  Py_VISIT(g->tracer);
  Py_VISIT(g->structure);
  Py_VISIT(g->input_names);
  Py_VISIT(g->constant_names);
  return wk__fx_plan_traverse(g->plan, visit, arg);
}
static int graph_clear(PyObject *self) {
  wk__fx_graph *g = of(self);
  Py_CLEAR(g->root);
  Py_CLEAR(g->insert_at);
  Py_CLEAR(g->names);
  Py_CLEAR(g->name_counts);
  Py_CLEAR(g->owner);
  Py_CLEAR(g->tracer);
  Py_CLEAR(g->structure);
  Py_CLEAR(g->input_names);
  Py_CLEAR(g->constant_names);
  wk__fx_plan *plan = g->plan;
  g->plan = NULL;
  wk__fx_plan_release(plan);
  return 0;
}
static void graph_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (of(self)->weak_references) PyObject_ClearWeakRefs(self);
  (void)graph_clear(self);
  wk__graph_release(of(self)->source);
  PyMem_Free(of(self)->arguments);
  type->tp_free(self);
  Py_DECREF(type);
}

static PyObject *get_nodes(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return wk__fx_node_list(of(self));
}
static PyObject *get_owner(PyObject *self, void *unused) {  // -> new
  (void)unused;
  PyObject *owner = owner_of(of(self));
  return Py_NewRef(owner ? owner : Py_None);
}

static PyObject *edit_count(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return PyLong_FromUnsignedLongLong(of(self)->version);
}
static PyObject *get_edited(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyBool_FromLong(!of(self)->source || of(self)->version);
}

static PyGetSetDef getset[] = {
    {"nodes", get_nodes, NULL, "The nodes in order: iterable, reversible, with a length.", NULL},
    {"owning_module", get_owner, set_owner, "The GraphModule over it, or None.", NULL},
    {"_tracer_cls", get_tracer, set_tracer, "The class that traced it, or None.", NULL},
    {"_edited", get_edited, NULL, "Whether it is not what was captured any more.", NULL},
    {0}};

#define KEYWORDS(f) ((PyCFunction)(void (*)(void))(f)), METH_VARARGS | METH_KEYWORDS
static PyMethodDef methods[] = {
    {"create_node", KEYWORDS(create_node), "create_node('call_function', torch.add, (x, 1))"},
    {"placeholder", KEYWORDS(placeholder), "An input: placeholder('x')"},
    {"get_attr", KEYWORDS(get_attr), "An attribute of the GraphModule: get_attr('layer.weight')"},
    {"call_function", KEYWORDS(call_function), "call_function(torch.add, (x, 1), {'alpha': 2})"},
    {"call_method", KEYWORDS(call_method), "call_method('view', (x, -1))"},
    {"call_module", KEYWORDS(call_module), "call_module('layer', (x,))"},
    {"output", KEYWORDS(output), "What the graph returns: output((y, z))"},
    {"erase_node", erase_node, METH_O, "Removes a node that has no users."},
    {"node_copy", KEYWORDS(node_copy), "Copies a node of another graph; arg_transform(node) gives its arguments here."},
    {"graph_copy", KEYWORDS(graph_copy), "Copies the nodes of a graph into this one; gives what it would return."},
    {"inserting_before", inserting_before, METH_VARARGS, "with graph.inserting_before(node): new nodes stand there."},
    {"inserting_after", inserting_after, METH_VARARGS, "with graph.inserting_after(node): new nodes stand there."},
    {"find_nodes", KEYWORDS(find_nodes), "find_nodes(op='call_function', target=torch.add)"},
    {"output_node", output_node, METH_NOARGS, "The output, which is the last node."},
    {"lint", lint, METH_NOARGS, "Raises a RuntimeError when the graph is not well formed."},
    {"eliminate_dead_code", KEYWORDS(eliminate_dead_code), "Erases nodes without users; whether there were any."},
    {"_edit_count", edit_count, METH_NOARGS, "Another number when the graph has been edited."},
    {"print_tabular", print_tabular, METH_NOARGS, "Prints a line per node."},
    {"python_code", KEYWORDS(python_code), "python_code('self').src is the source text of forward."},
    {"_run", run, METH_VARARGS, "_run(module, args, kwargs): what forward gives."},
    {"__deepcopy__", deep_copy, METH_O, NULL},
    {0}};
static PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(wk__fx_graph, weak_references), READONLY, NULL}, {0}};
static PyType_Slot slots[] = {{Py_tp_doc, "Operations in order: Graph().placeholder('x')"},
                              {Py_tp_new, graph_new},
                              {Py_tp_init, graph_init},
                              {Py_tp_dealloc, graph_dealloc},
                              {Py_tp_traverse, graph_traverse},
                              {Py_tp_clear, graph_clear},
                              {Py_tp_str, graph_str},
                              {Py_tp_getset, getset},
                              {Py_tp_methods, methods},
                              {Py_tp_members, members},
                              {0, NULL}};
static PyType_Spec spec = {.name = "wick._C.Graph",
                           .basicsize = sizeof(wk__fx_graph),
                           .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
                           .slots = slots};

int wk__add_graph_types(PyObject *module, wk__state *state) {
  state->graph_objects = PyDict_New();
  state->graph_type = state->graph_objects ? wk__add_type(module, &spec, NULL, "Graph") : NULL;
  if (!state->graph_type || wk__add_graph_node(module, state) < 0) return -1;
  if (wk__add_graph_lists(module, state) < 0 || wk__add_overloads(module, state) < 0 ||
      wk__add_custom_operators(module) < 0)
    return -1;
  if (wk__add_graph_values(module) < 0) return -1;
  return wk__add_graph_tracing(module);
}
