/* The parts of objects.h that are functions. */
#include "dynamo/cpython/objects.h"

#include <stdatomic.h>

/* The type is static: one for all interpreters. */
PyTypeObject *wk__method_wrapper_type(void) {
  static _Atomic(PyTypeObject *) known;
  PyTypeObject *type = atomic_load_explicit(&known, memory_order_relaxed);
  if (type) return type;
  PyObject *wrapper = PyObject_GetAttrString(Py_None, "__str__");
  type = wrapper ? Py_TYPE(wrapper) : NULL;
  Py_XDECREF(wrapper);
  PyErr_Clear();
  atomic_store_explicit(&known, type, memory_order_relaxed);
  return type;
}

PyObject *wk__held_by(PyObject *container) {
  PyTypeObject *type = Py_TYPE(container);
  while (!wk__type_is_fixed(type)) type = type->tp_base;
  PyObject *iterator = type->tp_iter ? type->tp_iter(container) : PySeqIter_New(container);
  PyObject *items = iterator ? PySequence_Tuple(iterator) : NULL;
  Py_XDECREF(iterator);
  return items;
}
