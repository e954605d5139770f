/* The part of objects.h that is asked for once. */
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
