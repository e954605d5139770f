/* Special methods of classes written in Python that are functions of C code: `__setattr__ = dict.__setitem__`,
 * `__call__ = list.append`. CPython calls them from within an operator, an item's or an attribute's instruction, where
 * no frame is entered and nothing is noted. In: an instruction's owner. Out: the call, noted as any other; or that C
 * code may change the owner, so that the instruction is a break. Tests: tests/python/capture/test_special_methods.py.
 */
#include "dynamo/capture/known.h"
#include "dynamo/capture/known_calls.h"
#include "dynamo/capture/record_parts.h"
#include "dynamo/cpython/objects.h"

static bool is_descriptor_of_c(PyObject *o) {
  return Py_TYPE(o) == &PyMethodDescr_Type || Py_TYPE(o) == &PyWrapperDescr_Type;
}

/* Under a name that is not its own: what C code has under its own name is known for the base class. */
static bool is_c_code_named(PyObject *o, const char *name) {
  const char *own = NULL;
  if (is_descriptor_of_c(o)) own = PyUnicode_AsUTF8(PyDescr_NAME(o));
  if (PyCFunction_Check(o)) own = ((PyCFunctionObject *)o)->m_ml->ml_name;
  return own && strcmp(own, name) != 0;
}

PyObject *wk__special_of_c(PyObject *owner, const char *name) {
  if (!wk__is_python_instance(owner)) return NULL;
  PyObject *text = PyUnicode_InternFromString(name), *found = text ? wk__type_attribute(Py_TYPE(owner), text) : NULL;
  Py_XDECREF(text);
  PyErr_Clear();
  return found && is_c_code_named(found, name) ? found : NULL;
}

PyObject *wk__call_special(wk__frame *f, wk__recording *r, PyObject *special, PyObject *owner, PyObject *const *args,
                           Py_ssize_t count, PyObject *names) {
  Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0, binds = is_descriptor_of_c(special);
  PyObject *self = PyCFunction_Check(special) ? PyCFunction_GET_SELF(special) : NULL;
  if (self && !PyModule_Check(self)) return wk__refuse(f, "a special method that is bound to another object");
  if (wk__depend_on_look_ups(r, Py_TYPE(owner)) < 0) return wk__refuse(f, "%s", r->failed);
  PyObject **all = PyMem_Malloc((size_t)(count + named + 1) * sizeof *all);
  if (!all) return PyErr_NoMemory();
  all[0] = owner;
  for (Py_ssize_t i = 0; i < count + named; i++) all[i + 1] = args[i];
  PyObject *result = wk__recorded_call(f, r, special, all + !binds, count + binds, names);
  PyMem_Free(all);
  return result;
}

int wk__set_by_special(wk__frame *f, wk__recording *r, PyObject *special, PyObject *owner, PyObject *key,
                       PyObject *value) {
  PyObject *args[] = {key, value}, *result = wk__call_special(f, r, special, owner, args, value ? 2 : 1, NULL);
  Py_XDECREF(result);
  return result ? 0 : -1;
}

/* Those whose instructions call them as above, and those that no instruction asks for. */
static bool is_called_noted(const char *name) {
  static const char *const names[] = {"__getattr__", "__setattr__", "__delattr__", "__setitem__",
                                      "__delitem__", "__getitem__", "__call__",    "__class_getitem__"};
  for (size_t i = 0; i < WK_COUNT(names); i++)
    if (strcmp(names[i], name) == 0) return true;
  return strncmp(name, "__", 2) != 0;
}

static bool may_change(PyObject *function) {
  PyTypeObject *of = is_descriptor_of_c(function) ? PyDescr_TYPE(function) : NULL;
  if (!of) return true; /* a function, which is given what the operator is given */
  bool changes = of == &PyList_Type || of == &PyDict_Type || of == &PySet_Type || of == &PyODict_Type;
  const wk__known_call *known = wk__known_method(of, PyUnicode_AsUTF8(PyDescr_NAME(function)));
  return changes && (known->what == WK__KNOWN_CHANGES || known->what == WK__KNOWN_NOTHING);
}

static bool class_changes_by_c_code(PyTypeObject *type) {
  PyObject *name, *value;
  for (; type && type->tp_flags & Py_TPFLAGS_HEAPTYPE; type = type->tp_base)
    for (Py_ssize_t at = 0; PyDict_Next(wk__type_dict(type), &at, &name, &value);) {
      const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
      if (text && !is_called_noted(text) && is_c_code_named(value, text) && may_change(value)) return true;
    }
  return false;
}

bool wk__operators_are_noted(wk__recording *r, PyObject *owner) {
  if (!wk__is_python_instance(owner)) return true;
  uintptr_t key = (uintptr_t)Py_TYPE(owner), known = (uintptr_t)wk__map_get(&r->special_classes, key);
  enum { NOTED = 1, UNNOTED };
  if (!known) known = class_changes_by_c_code(Py_TYPE(owner)) ? UNNOTED : NOTED;
  if (wk__map_set(&r->special_classes, key, (void *)known) != WK_OK) wk_error_clear();
  return known == NOTED;
}
