/* wick._C._TileBuilder: loops, branches and returns. In: the values of names that a region changes. Out: what the names
 * are inside of it, and behind. Tests: tests/python/test_tiles.py. */
#include "python/tile/tiles.h"

static const char **names_from(PyObject *list, Py_ssize_t n) { /* for PyMem_Free; NULL with an exception */
  if (!PyList_Check(list) || PyList_GET_SIZE(list) != n)
    return PyErr_Format(PyExc_TypeError, "a name for each value"), NULL;
  const char **names = PyMem_Calloc((size_t)n + 1, sizeof *names);
  for (Py_ssize_t i = 0; names && i < n; i++)
    if (!(names[i] = PyUnicode_AsUTF8(PyList_GET_ITEM(list, i)))) {
      PyMem_Free((void *)names);
      return NULL;
    }
  return names;
}

/* wk__tiles_for_begin(from, to, step, values) -> [index, *what the names are inside] */
PyObject *wk__tiles_for_begin(PyObject *self, PyObject *args) {  // -> new
  READY(self);
  PyObject *from, *to, *list, *result = NULL;
  long long step;
  wk__tile first, last, *values;
  if (!PyArg_ParseTuple(args, "OOLO:for_begin", &from, &to, &step, &list)) return NULL;
  if (wk__tiles_needed(b, from, &first) < 0 || wk__tiles_needed(b, to, &last) < 0) return NULL;
  Py_ssize_t n = wk__tiles_values_from(b, list, &values);
  wk__tile *out = n < 0 ? NULL : PyMem_Calloc((size_t)n + 1, sizeof *out);
  if (out) {
    out[0] = wk__tile_for_begin(&b->b, first, last, step, (int)n, values, out + 1);
    result = wk__tiles_list_of(b, out, n + 1);
  }
  PyMem_Free(values);
  PyMem_Free(out);
  return result;
}
PyObject *wk__tiles_while_begin(PyObject *self, PyObject *list) {  // -> new
  READY(self);
  PyObject *result = NULL;
  wk__tile *values;
  Py_ssize_t n = wk__tiles_values_from(b, list, &values);
  wk__tile *out = n < 0 ? NULL : PyMem_Calloc((size_t)n + 1, sizeof *out);
  if (out) {
    wk__tile_while_begin(&b->b, (int)n, values, out);
    result = wk__tiles_list_of(b, out, n);
  }
  PyMem_Free(values);
  PyMem_Free(out);
  return result;
}
PyObject *wk__tiles_while_test(PyObject *self, PyObject *o) {  // -> new
  READY(self);
  wk__tile condition;
  if (wk__tiles_needed(b, o, &condition) < 0) return NULL;
  wk__tile_while_test(&b->b, condition);
  return wk__tiles_none_or_raise(b);
}
PyObject *wk__tiles_loop_end(PyObject *self, PyObject *args) {  // -> new
  READY(self);
  PyObject *list, *names;
  wk__tile *values;
  if (!PyArg_ParseTuple(args, "OO:loop_end", &list, &names)) return NULL;
  Py_ssize_t n = wk__tiles_values_from(b, list, &values);
  const char **words = n < 0 ? NULL : names_from(names, n);
  bool fits = words && b->b.depth && b->b.regions[b->b.depth - 1].count == n;
  if (words && !fits) PyErr_SetString(PyExc_ValueError, "wk__tiles_loop_end(): values of another loop");
  if (fits) wk__tile_loop_end(&b->b, values, words);
  PyMem_Free(values);
  PyMem_Free((void *)words);
  return fits ? wk__tiles_none_or_raise(b) : NULL;
}
PyObject *wk__tiles_if_begin(PyObject *self, PyObject *o) {  // -> new
  READY(self);
  wk__tile condition;
  if (wk__tiles_needed(b, o, &condition) < 0) return NULL;
  wk__tile_if_begin(&b->b, condition);
  return wk__tiles_none_or_raise(b);
}
PyObject *wk__tiles_if_else(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  READY(self);
  wk__tile_if_else(&b->b);
  return wk__tiles_none_or_raise(b);
}
/* constants_in(values): numbers as values, made here: for a branch that gives a name a number */
PyObject *wk__tiles_make_values(PyObject *self, PyObject *list) {  // -> new
  READY(self);
  wk__tile *values;
  Py_ssize_t n = wk__tiles_values_from(b, list, &values);
  PyObject *result = n < 0 ? NULL : wk__tiles_list_of(b, values, n);
  PyMem_Free(values);
  return result;
}
/* wk__tiles_if_end(at the end of then, of else, names) -> what they are behind */
PyObject *wk__tiles_if_end(PyObject *self, PyObject *args) {  // -> new
  READY(self);
  PyObject *then_list, *else_list, *names, *result = NULL;
  wk__tile *first = NULL, *second = NULL, *out = NULL;
  const char **words = NULL;
  if (!PyArg_ParseTuple(args, "OOO:if_end", &then_list, &else_list, &names)) return NULL;
  Py_ssize_t n = wk__tiles_values_from(b, then_list, &first),
             m = n < 0 ? -1 : wk__tiles_values_from(b, else_list, &second);
  if (m >= 0 && n == m) words = names_from(names, n);
  if (words && (out = PyMem_Calloc((size_t)n + 1, sizeof *out))) {
    wk__tile_if_end(&b->b, (int)n, first, second, words, out);
    result = wk__tiles_list_of(b, out, n);
  }
  if (!result && !PyErr_Occurred())
    PyErr_SetString(PyExc_ValueError, "wk__tiles_if_end(): as many values in both branches");
  PyMem_Free(first);
  PyMem_Free(second);
  PyMem_Free(out);
  PyMem_Free((void *)words);
  return result;
}
PyObject *wk__tiles_make_return(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  READY(self);
  wk__tile_return(&b->b);
  return wk__tiles_none_or_raise(b);
}
