/* torch.return_types: results with names, as x.max(dim).values. One type, a tuple with fields, for each operator whose
 * schema names its two results; the operators' calls make them. Tests: tests/python/test_return_types.py. */
#include "python/python.h"

#include <structmember.h>
#include <structseq.h>

static bool has_names(const wk_op *op) {
  bool seen = op->forms & (WK__FORM_FUNCTION | WK__FORM_METHOD);
  return seen && op->schema.result_count == 2 && op->schema.result_names;
}

/* PyTorch prints each field on a line of its own. */
static PyObject *print(PyObject *self) {  // -> new
  const PyMemberDef *fields = Py_TYPE(self)->tp_members;
  PyObject *name = PyType_GetName(Py_TYPE(self)), *text = NULL;
  if (name)
    text = PyUnicode_FromFormat("torch.return_types.%U(\n%s=%R,\n%s=%R)", name, fields[0].name,
                                PyStructSequence_GET_ITEM(self, 0), fields[1].name, PyStructSequence_GET_ITEM(self, 1));
  Py_XDECREF(name);
  return text;
}

static PyTypeObject *new_type(const wk_op *op) {  // -> new
  char name[96];
  PyStructSequence_Field fields[] = {
      {op->schema.result_names[0], NULL}, {op->schema.result_names[1], NULL}, {NULL, NULL}};
  snprintf(name, sizeof name, "wick.return_types.%s", op->base_name);
  PyStructSequence_Desc description = {.name = name, .fields = fields, .n_in_sequence = 2};
  PyTypeObject *type = PyStructSequence_NewType(&description);
  if (type) type->tp_repr = print;
  return type;
}

PyObject *wk__named_results(const wk__state *state, const wk_op *op, PyObject *steal_first,
                            PyObject *steal_second) {  // -> new
  PyTypeObject *type = op->number < wk_op_count() ? state->return_types[op->number] : NULL;
  PyObject *results = type ? PyStructSequence_New(type) : PyTuple_New(2);
  if (!results) {
    Py_DECREF(steal_first);
    Py_DECREF(steal_second);
    return NULL;
  }
  PyTuple_SET_ITEM(results, 0, steal_first); /* of a structure's fields too: it is a tuple with names */
  PyTuple_SET_ITEM(results, 1, steal_second);
  return results;
}

int wk__add_return_types(PyObject *module, wk__state *state) {
  PyObject *types = PyDict_New();
  state->return_types = PyMem_Calloc((size_t)wk_op_count(), sizeof *state->return_types);
  bool made = types && state->return_types;
  for (int i = 0; made && i < wk_op_count(); i++) {
    const wk_op *op = wk_op_at(i);
    if (!has_names(op)) continue;
    PyObject *known = PyDict_GetItemString(types, op->base_name), *fresh = known ? NULL : (PyObject *)new_type(op);
    made = known || (fresh && PyDict_SetItemString(types, op->base_name, fresh) == 0);
    state->return_types[op->number] = (PyTypeObject *)(known ? known : fresh); /* owned by the dict */
    Py_XDECREF(fresh);
  }
  int status = made ? PyModule_AddObjectRef(module, "_return_types", types) : -1;
  state->return_type_objects = types;
  return status;
}
