/* The switch of the thread's decomposing layer, and what the table says of operators, for wick._decomp.
 * In: names of operators. Out: kinds. Tests: tests/ops/test_decompositions.py. */
#include "decompose/decompose.h"
#include "python/data/interop.h"
#include "python/fx/graph_type.h"

static PyObject *set_decomposing(PyObject *module, PyObject *what) {  // -> new
  long value = PyLong_AsLong(what);
  (void)module;
  if (value == -1 && PyErr_Occurred()) return NULL;
  if (value < WK__DECOMPOSING_NOTHING || value > WK__DECOMPOSING_ALL)
    return PyErr_Format(PyExc_ValueError, "0: nothing, 1: each call once, 2: down to primitives");
  return PyLong_FromLong(wk__set_decomposing((wk__decomposing)value));
}

static PyObject *decompositions(PyObject *module, PyObject *unused) {  // -> new
  static const char *const kinds[] = {
      [WK__DECOMPOSITION_PRIM] = "primitive",
      [WK__DECOMPOSITION_PARTS] = "parts",
      [WK__DECOMPOSITION_RULE] = "rule",
  };
  PyObject *dict = PyDict_New();
  (void)module, (void)unused;
  for (int i = 0; dict && i < WK__OP_COUNT; i++) {
    const wk_op *op = wk_op_at(i);
    PyObject *kind = PyUnicode_FromString(kinds[wk__decomposition_of(op)]);
    if (!kind || PyDict_SetItemString(dict, op->name, kind) < 0) Py_CLEAR(dict);
    Py_XDECREF(kind);
  }
  return dict;
}

static PyMethodDef functions[] = {
    {"_set_decomposing", set_decomposing, METH_O,
     "0: calls of this thread are whole, 1: each is decomposed once, 2: down to primitives. Gives what it was."},
    {"_decompositions", decompositions, METH_NOARGS, "{operator: 'primitive', 'rule' or 'parts'}"},
    {0}};
int wk__add_decompositions(PyObject *module) { return PyModule_AddFunctions(module, functions); }
