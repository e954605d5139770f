/* Where reads look: one hop from a frame or object to the next, without running Python code.
 * Used by guards.c, which does all reads of a segment, and lookup.c, which tells segments apart by few of them. */
#ifndef WICK_DYNAMO_READS_H
#define WICK_DYNAMO_READS_H

#include "dynamo/cpython/objects.h"
#include "dynamo/session.h"

PyObject *wk__from_dict_by_identity(PyObject *dict,
                                    PyObject *key);  // -> borrowed, NULL: it has no key that is this one
bool wk__hashes_by_python(PyObject *key);

static inline PyObject *wk__from_dict(PyObject *dict, PyObject *key) {  // -> borrowed
  if (!dict || !PyDict_Check(dict)) return NULL;
  if (!PyUnicode_CheckExact(key) && WK_UNLIKELY(wk__hashes_by_python(key))) {
    PyObject *same = wk__from_dict_by_identity(dict, key);
    if (same) return same;
  }
  PyObject *found = PyDict_GetItemWithError(dict, key);
  if (!found && PyErr_Occurred()) PyErr_Clear();
  return found;
}

static inline PyObject *wk__instance_dict_of(PyObject *o) {  // -> borrowed, NULL when there is none
  PyObject **place = wk__instance_dict_place(o);
  return place ? *place : NULL;
}

/* What o.__dict__ gives: a function or tensor that never had an attribute gets a dictionary then. */
static inline PyObject *wk__instance_dict_now(PyObject *o) {  // -> borrowed, NULL when there is none
  PyObject *dict = wk__instance_dict_of(o);
  if (dict || !wk__instance_dict_place(o)) return dict;
  Py_XDECREF(PyObject_GenericGetDict(o, NULL));
  PyErr_Clear();
  return wk__instance_dict_of(o);
}

static inline PyObject *wk__from_sequence(PyObject *o, int64_t i) {  // -> borrowed
  if (PyTuple_Check(o)) return i < PyTuple_GET_SIZE(o) ? PyTuple_GET_ITEM(o, i) : NULL;
  if (PyList_Check(o)) return i < PyList_GET_SIZE(o) ? PyList_GET_ITEM(o, i) : NULL;
  return wk__is_deque(o) ? wk__from_deque(o, i) : NULL;
}

static inline Py_ssize_t wk__length_of(PyObject *o) {
  if (PyTuple_Check(o)) return PyTuple_GET_SIZE(o);
  if (PyList_Check(o)) return PyList_GET_SIZE(o);
  if (PyDict_Check(o)) return PyDict_GET_SIZE(o);
  if (PyAnySet_Check(o)) return PySet_GET_SIZE(o);
  return wk__is_deque(o) ? Py_SIZE(o) : -1;
}

/* iterators.c: what it gives as this number from now on, and whether it ends there or before; neither takes. */
PyObject *wk__upcoming(PyObject *iterator, int64_t number);  // -> new, NULL: it cannot be said, or ends
bool wk__ends_at(PyObject *iterator, int64_t number);

static inline PyObject *wk__from_function(PyObject *o, wk__read_kind kind, int64_t i) {  // -> borrowed
  if (!PyFunction_Check(o)) return NULL;
  PyFunctionObject *f = (PyFunctionObject *)o;
  if (kind == WK__READ_DEFAULTS) return i ? f->func_kwdefaults : f->func_defaults;
  return f->func_closure && i < PyTuple_GET_SIZE(f->func_closure) ? PyTuple_GET_ITEM(f->func_closure, i) : NULL;
}

/* What such a read finds, of `a` if it is none of a frame; NULL: nothing. A dictionary's key is read->object. */
static inline PyObject *wk__from_frame_or_object(wk__activation *const *frames, const wk__read *read,
                                                 PyObject *a) {  // -> borrowed
  switch (read->kind) {
    case WK__READ_SLOT:
      return wk__frame_slot(&frames[read->a]->frame, (int)read->b);
    case WK__READ_STACK:
      return wk__frame_stack(&frames[read->a]->frame, (int)read->b);
    case WK__READ_FUNCTION:
      return wk__frame_function(&frames[read->a]->frame);
    case WK__READ_CELL:
      return PyCell_Check(a) ? PyCell_GET(a) : NULL;
    case WK__READ_DICT:
      return wk__from_dict(a, read->object);
    case WK__READ_ITEM:
      return wk__from_sequence(a, read->b);
    case WK__READ_INSTANCE:
      return wk__instance_dict_now(a);
    case WK__READ_CLOSURE:
    case WK__READ_DEFAULTS:
      return wk__from_function(a, (wk__read_kind)read->kind, read->b);
    default:
      return NULL;
  }
}

#endif
