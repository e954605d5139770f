/* Running a Graph node by node: what every graph can be, whatever its targets are.
 * In: values of the placeholders, the GraphModule for get_attr and call_module. Out: what the output node says. Values
 * die with their last use. Tests: tests/python/test_fx.py. */
#include "python/fx/graph_parts.h"

typedef struct run {
  wk__fx_graph *graph;
  PyObject *module;
  PyObject *const *values; /* of the placeholders */
  Py_ssize_t next_value;
  PyObject *env;        /* dict: node -> value */
  PyObject *last_uses;  /* dict */
  PyObject *attributes; /* dict; NULL: not wanted */
} run;

/* Backwards: the first time that a node is met is its last use. */
static int note_last_uses(wk__fx_node *node, PyObject *seen, PyObject *last) {
  PyObject *list = PyList_New(0), *input, *none;
  Py_ssize_t at = 0;
  int status = list ? PyDict_SetItem(last, (PyObject *)node, list) : -1;
  Py_XDECREF(list);
  while (status == 0 && PyDict_Next(node->inputs, &at, &input, &none)) {
    if (PyDict_Contains(seen, input)) continue;
    status = PyDict_SetItem(seen, input, Py_None);
    if (status == 0) status = PyList_Append(list, input);
  }
  return status;
}

PyObject *wk__fx_last_uses(wk__fx_graph *graph) {  // -> new
  PyObject *seen = PyDict_New(), *last = seen ? PyDict_New() : NULL;
  for (wk__fx_node *n = graph->root->previous; last && n->op != WK__FX_ROOT; n = n->previous)
    if (note_last_uses(n, seen, last) < 0) Py_CLEAR(last);
  Py_XDECREF(seen);
  return last;
}

/* ==================================================== one node ================================================== */

static PyObject *value_of(void *context, PyObject *leaf) {  // -> new
  const run *r = context;
  if (!wk__is_fx_node(r->graph->state, leaf)) return Py_NewRef(leaf);
  PyObject *value = PyDict_GetItemWithError(r->env, leaf);
  if (value) return Py_NewRef(value);
  return PyErr_Occurred()
             ? NULL
             : PyErr_Format(PyExc_RuntimeError, "node %U is used before it has a value", ((wk__fx_node *)leaf)->name);
}

static PyObject *attribute_of(const run *r, const wk__fx_node *node) {  // -> new
  PyObject *value = wk__fx_attribute(r->module, node->target);
  if (value && r->attributes && PyDict_SetItem(r->attributes, node->target, value) < 0) Py_CLEAR(value);
  return value;
}

/* The callable and the arguments in front of which it stands. Takes args. */
static PyObject *call(const run *r, const wk__fx_node *node, PyObject *steal_args, PyObject *kwargs) {  // -> new
  PyObject *callee = NULL, *args = steal_args;
  if (node->op == WK__FX_CALL_FUNCTION) {
    callee = Py_NewRef(node->target);
  } else if (node->op == WK__FX_CALL_MODULE) {
    callee = wk__fx_attribute(r->module, node->target);
  } else if (PyTuple_GET_SIZE(args)) {
    callee = PyObject_GetAttr(PyTuple_GET_ITEM(args, 0), node->target);
    Py_SETREF(args, PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args)));
  } else {
    PyErr_SetString(PyExc_RuntimeError, "a method is called on nothing");
  }
  PyObject *result = callee && args ? PyObject_Call(callee, args, kwargs) : NULL;
  Py_XDECREF(callee);
  Py_XDECREF(args);
  return result;
}

/* Where the graph says which nodes the tape sees, the others run without. */
static PyObject *call_in_mode(const run *r, const wk__fx_node *node, PyObject *steal_args,
                              PyObject *kwargs) {  // -> new
  bool quiet = r->graph->captured && !node->taped, before = wk__thread.mode.grad_enabled;
  if (quiet) wk__thread.mode.grad_enabled = false;
  PyObject *result = call(r, node, steal_args, kwargs);
  if (quiet) wk__thread.mode.grad_enabled = before;
  return result;
}

static PyObject *result_of(run *r, const wk__fx_node *node) {  // -> new
  if (node->op == WK__FX_PLACEHOLDER) return Py_NewRef(r->values[r->next_value++]);
  if (node->op == WK__FX_GET_ATTR) return attribute_of(r, node);
  if (node->op == WK__FX_OUTPUT)
    return wk__fx_map(r->graph->state, PyTuple_GET_ITEM(node->args, 0), false, value_of, r);
  PyObject *args = wk__fx_map(r->graph->state, node->args, false, value_of, r);
  PyObject *kwargs = args ? wk__fx_map(r->graph->state, node->kwargs, false, value_of, r) : NULL;
  if (!kwargs) {
    Py_XDECREF(args);
    return NULL;
  }
  PyObject *result = call_in_mode(r, node, args, kwargs);
  Py_DECREF(kwargs);
  return result;
}

static int forget_dead(const run *r, wk__fx_node *node) {
  PyObject *dead = PyDict_GetItemWithError(r->last_uses, (PyObject *)node);
  for (Py_ssize_t i = 0; dead && i < PyList_GET_SIZE(dead); i++)
    if (PyDict_DelItem(r->env, PyList_GET_ITEM(dead, i)) < 0) return -1;
  return 0;
}

/* ==================================================== all of them =============================================== */

static PyObject *run_all(run *r) {  // -> new
  wk__fx_node *n = (wk__fx_node *)Py_NewRef(r->graph->root->next);
  PyObject *result = NULL;
  while (n->op != WK__FX_ROOT && (result = result_of(r, n)) && n->op != WK__FX_OUTPUT) {
    int status = PyDict_GET_SIZE(n->users) ? PyDict_SetItem(r->env, (PyObject *)n, result) : 0;
    Py_CLEAR(result);
    if (status < 0 || forget_dead(r, n) < 0) break;
    Py_SETREF(n, (wk__fx_node *)Py_NewRef(n->next)); /* what was called may have changed the list */
  }
  if (n->op == WK__FX_ROOT) result = Py_NewRef(Py_None); /* no output node */
  Py_DECREF(n);
  return result;
}

PyObject *wk__fx_run_nodes(wk__fx_graph *graph, PyObject *module, PyObject *const *values,
                           PyObject *attributes) {  // -> new
  if (wk__fx_graph_load(graph) < 0) return NULL;
  run r = {.graph = graph, .module = module, .values = values, .attributes = attributes};
  r.env = PyDict_New();
  r.last_uses = r.env ? wk__fx_last_uses(graph) : NULL;
  PyObject *result = r.last_uses ? run_all(&r) : NULL;
  Py_XDECREF(r.env);
  Py_XDECREF(r.last_uses);
  return result;
}
