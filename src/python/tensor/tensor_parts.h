/* The slots of wick.Tensor that stand in files of their own. */
#ifndef WICK_PYTHON_TENSOR_TENSOR_PARTS_H
#define WICK_PYTHON_TENSOR_TENSOR_PARTS_H

#include "python/python.h"

/* indexing.c */
PyObject *wk__tensor_get_item(PyObject *self, PyObject *key);  // -> new
int wk__tensor_set_item(PyObject *self, PyObject *key, PyObject *value);

/* tensor_type.c: an object of a class over a tensor that has none. */
PyObject *wk__new_tensor_object(wk__state *state, PyTypeObject *type, wk_tensor *steal_tensor);  // -> new

/* tensor_copy.c */
PyObject *wk__tensor_deepcopy(PyObject *self, PyObject *memo);  // -> new

#endif
