/* Values with nodes in them: nested tuples, lists, dicts and slices, mapped as a whole; and what a target is called.
 * In: any Python object. Out: a new value of the same form. Tests: tests/python/test_fx.py. */
#include "python/fx/graph_parts.h"

typedef struct mapper {
  wk__state *state;
  wk__fx_leaf_fn *fn;
  void *context;
  bool immutable;
} mapper;

static PyObject *map(const mapper *m, PyObject *value);  // -> new

/* ============================================== objects of other modules ======================================== */

PyObject *wk__fx_object(wk__state *state, const char *module, const char *name) {  // -> borrowed
  PyObject *key = PyUnicode_FromFormat("%s.%s", module, name);
  PyObject *known = key ? PyDict_GetItemWithError(state->graph_objects, key) : NULL;
  if (key && !known && !PyErr_Occurred()) {
    PyObject *imported = PyImport_ImportModule(module);
    known = imported ? PyObject_GetAttrString(imported, name) : NULL;
    if (known && PyDict_SetItem(state->graph_objects, key, known) < 0) Py_CLEAR(known);
    Py_XDECREF(known); /* the dict keeps it */
    Py_XDECREF(imported);
  }
  Py_XDECREF(key);
  return known;
}

PyObject *wk__fx_list_of_keys(PyObject *dict) { return dict ? PyDict_Keys(dict) : PyList_New(0); }  // -> new

/* ==================================================== mapping =================================================== */

/* A list or dict as wick.fx's class that cannot be changed. Takes the plain one, which may be NULL. */
static PyObject *as_immutable(const mapper *m, const char *name, PyObject *steal_plain) {  // -> new
  if (!m->immutable || !steal_plain) return steal_plain;
  PyObject *type = wk__fx_object(m->state, "wick.fx.immutable_collections", name);
  PyObject *result = type ? PyObject_CallOneArg(type, steal_plain) : NULL;
  Py_DECREF(steal_plain);
  return result;
}

static PyObject *map_items(const mapper *m, PyObject *sequence) {  // -> new, a tuple
  Py_ssize_t n = PySequence_Fast_GET_SIZE(sequence);
  PyObject *tuple = PyTuple_New(n);
  for (Py_ssize_t i = 0; tuple && i < n; i++) {
    PyObject *item = map(m, PySequence_Fast_GET_ITEM(sequence, i));
    if (item)
      PyTuple_SET_ITEM(tuple, i, item);
    else
      Py_CLEAR(tuple);
  }
  return tuple;
}

/* A named tuple stays one; every other kind of tuple becomes a plain one. */
static PyObject *map_tuple(const mapper *m, PyObject *value) {  // -> new
  PyObject *items = map_items(m, value);
  if (!items || PyTuple_CheckExact(value) || !PyObject_HasAttrString(value, "_fields")) return items;
  PyObject *named = PyObject_CallObject((PyObject *)Py_TYPE(value), items);
  Py_DECREF(items);
  return named;
}

static PyObject *map_list(const mapper *m, PyObject *value) {  // -> new
  PyObject *items = map_items(m, value), *list = items ? PySequence_List(items) : NULL;
  Py_XDECREF(items);
  return as_immutable(m, "immutable_list", list);
}

static PyObject *map_dict(const mapper *m, PyObject *value) {  // -> new
  PyObject *dict = PyDict_New(), *key, *item;
  Py_ssize_t at = 0;
  while (dict && PyDict_Next(value, &at, &key, &item)) {
    PyObject *mapped = map(m, item);
    if (!mapped || PyDict_SetItem(dict, key, mapped) < 0) Py_CLEAR(dict);
    Py_XDECREF(mapped);
  }
  return as_immutable(m, "immutable_dict", dict);
}

static PyObject *map_slice(const mapper *m, PyObject *value) {  // -> new
  PySliceObject *slice = (PySliceObject *)value;
  PyObject *start = map(m, slice->start), *stop = start ? map(m, slice->stop) : NULL;
  PyObject *step = stop ? map(m, slice->step) : NULL, *result = step ? PySlice_New(start, stop, step) : NULL;
  Py_XDECREF(start);
  Py_XDECREF(stop);
  Py_XDECREF(step);
  return result;
}

static PyObject *map_any(const mapper *m, PyObject *value) {  // -> new
  if (PyTuple_Check(value)) return map_tuple(m, value);
  if (PyList_Check(value)) return map_list(m, value);
  if (PyDict_Check(value)) return map_dict(m, value);
  if (PySlice_Check(value)) return map_slice(m, value);
  return m->fn(m->context, value);
}

static PyObject *map(const mapper *m, PyObject *value) {  // -> new
  if (Py_EnterRecursiveCall(" in a graph's argument")) return NULL;
  PyObject *result = map_any(m, value);
  Py_LeaveRecursiveCall();
  return result;
}

PyObject *wk__fx_map(wk__state *state, PyObject *value, bool immutable, wk__fx_leaf_fn *fn, void *context) {  // -> new
  mapper m = {state, fn, context, immutable};
  return map(&m, value);
}

static PyObject *call_on_leaf(void *function, PyObject *leaf) {  // -> new
  return PyObject_CallOneArg(function, leaf);
}

/* _fx_map(value, function) */
static PyObject *map_values(PyObject *module, PyObject *args) {  // -> new
  PyObject *value, *function;
  if (!PyArg_ParseTuple(args, "OO:map_aggregate", &value, &function)) return NULL;
  return wk__fx_map(wk__state_of_module(module), value, true, call_on_leaf, function);
}

static PyMethodDef functions[] = {{"_fx_map", map_values, METH_VARARGS,
                                   "The value with function(leaf) for all that is no tuple, list, dict or slice."},
                                  {0}};
int wk__add_graph_values(PyObject *module) { return PyModule_AddFunctions(module, functions); }

/* ==================================================== names ===================================================== */

static PyObject *attribute(PyObject *o, const char *name) {  // -> new; NULL without an exception
  PyObject *value = PyObject_GetAttrString(o, name);
  if (!value) PyErr_Clear();
  return value;
}

/* wick's modules under the names that programs know them by. */
static PyObject *public_module(PyObject *module) {  // -> new
  const char *text = module && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : NULL;
  if (!text || strcmp(text, "wick._C") == 0) return PyUnicode_FromString("torch");
  if (strcmp(text, "_operator") == 0) return PyUnicode_FromString("operator");
  if (strncmp(text, "wick.", 5) == 0) return PyUnicode_FromFormat("torch.%s", text + 5);
  return strcmp(text, "wick") == 0 ? PyUnicode_FromString("torch") : Py_NewRef(module);
}

static PyObject *name_in_module(PyObject *target) {  // -> new
  PyObject *module = attribute(target, "__module__"), *name = attribute(target, "__name__");
  PyObject *shown = public_module(module);
  PyObject *result = NULL;
  if (shown) result = name ? PyUnicode_FromFormat("%U.%U", shown, name) : PyObject_Repr(target);
  Py_XDECREF(module);
  Py_XDECREF(name);
  Py_XDECREF(shown);
  return result;
}

PyObject *wk__fx_qualified_name(wk__state *state, PyObject *target) {  // -> new
  PyObject *packet_type = wk__fx_object(state, "wick._ops", "OpOverloadPacket");
  if (!packet_type) return NULL;
  if (wk__is_overload(state, target) || Py_IS_TYPE(target, (PyTypeObject *)packet_type))
    return PyUnicode_FromFormat("torch.ops.%S", target);
  if (!Py_IS_TYPE(target, state->operator_type)) return name_in_module(target);
  bool in_place, is_method;
  (void)wk__operator_first(target, &in_place, &is_method);
  PyObject *name = PyObject_GetAttrString(target, "__name__");
  PyObject *result = name ? PyUnicode_FromFormat(is_method ? "torch.Tensor.%U" : "torch.%U", name) : NULL;
  Py_XDECREF(name);
  return result;
}
