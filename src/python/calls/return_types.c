/* torch.return_types: results with names, as x.max(dim).values. One type, a tuple with fields, for each operator whose
 * schema names its two results; the operators' calls make them. Tests: tests/python/test_return_types.py. */
#include "python/python.h"

#include <structmember.h>
#include <structseq.h>

static const char named_results[] = "-> (Tensor values, Tensor indices)";

/* PyTorch prints each field on a line of its own. */
static PyObject *print(PyObject *self) {  // -> new
  PyObject *name = PyType_GetName(Py_TYPE(self)), *text = NULL;
  if (name)
    text = PyUnicode_FromFormat("torch.return_types.%U(\nvalues=%R,\nindices=%R)", name,
                                PyStructSequence_GET_ITEM(self, 0), PyStructSequence_GET_ITEM(self, 1));
  Py_XDECREF(name);
  return text;
}

static PyTypeObject *new_type(const wk_op *op) {  // -> new
  char name[96];
  PyStructSequence_Field fields[] = {{"values", NULL}, {"indices", NULL}, {NULL, NULL}};
  snprintf(name, sizeof name, "wick.return_types.%s", op->base_name);
  PyStructSequence_Desc description = {.name = name, .fields = fields, .n_in_sequence = 2};
  PyTypeObject *type = PyStructSequence_NewType(&description);
  if (type) type->tp_repr = print;
  return type;
}

PyObject *wk__named_results(const wk__state *state, const wk_op *op, PyObject *steal_values,
                            PyObject *steal_indices) {  // -> new
  PyTypeObject *type = op->number < wk_op_count() ? state->return_types[op->number] : NULL;
  PyObject *results = type ? PyStructSequence_New(type) : PyTuple_New(2);
  if (!results) {
    Py_DECREF(steal_values);
    Py_DECREF(steal_indices);
    return NULL;
  }
  PyTuple_SET_ITEM(results, 0, steal_values); /* of a structure's fields too: it is a tuple with names */
  PyTuple_SET_ITEM(results, 1, steal_indices);
  return results;
}

int wk__add_return_types(PyObject *module, wk__state *state) {
  PyObject *types = PyDict_New();
  state->return_types = PyMem_Calloc((size_t)wk_op_count(), sizeof *state->return_types);
  bool made = types && state->return_types;
  for (int i = 0; made && i < wk_op_count(); i++) {
    const wk_op *op = wk_op_at(i);
    if (!strstr(op->schema_text, named_results)) continue;
    PyObject *known = PyDict_GetItemString(types, op->base_name), *fresh = known ? NULL : (PyObject *)new_type(op);
    made = known || (fresh && PyDict_SetItemString(types, op->base_name, fresh) == 0);
    state->return_types[op->number] = (PyTypeObject *)(known ? known : fresh); /* owned by the dict */
    Py_XDECREF(fresh);
  }
  int status = made ? PyModule_AddObjectRef(module, "_return_types", types) : -1;
  state->return_type_objects = types;
  return status;
}
