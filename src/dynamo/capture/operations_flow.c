/* Iteration, with, match and exceptions while something is captured: the real thing, and a note of it. What is said in
 * operations.c holds here, too. Tests: tests/python/capture/. */
#include "dynamo/capture/ends.h"
#include "dynamo/capture/operation_parts.h"
#include "dynamo/cpython/objects.h"

/* What the iterator's own Python code gives comes to this instruction, and to no C code that looks at it. */
#define HANDING_ON(iterator, call)                            \
  const wk__frame *handing_ = f->session->handing;            \
  f->session->handing = wk__hands_on(f, iterator) ? f : NULL; \
  int status_ = (call);                                       \
  f->session->handing = handing_;                             \
  return status_

/* =================================================== iteration =================================================== */

PyObject *wk__op_iter(wk__frame *f, PyObject *iterable) {
  RECORDING(wk__plain_iter(f, iterable));
  if (wk__can_look_ahead(r, iterable)) return Py_NewRef(iterable); /* it is its own iterator */
  bool one_by_one = !PyDict_CheckExact(iterable) && wk__holds_changing(r, iterable);
  return one_by_one || wk__passed_on(f, iterable) ? wk__plain_iter(f, iterable) : NULL;
}
PyObject *wk__op_yield_from_iter(wk__frame *f, PyObject *iterable) {
  RECORDING(wk__plain_yield_from_iter(f, iterable));
  (void)r;
  return wk__passed_on(f, iterable) ? wk__plain_yield_from_iter(f, iterable) : NULL;
}
int wk__op_next(wk__frame *f, PyObject *iterator, PyObject **out_item) {
  RECORDING(wk__plain_next(f, iterator, out_item));
  if (wk__can_look_ahead(r, iterator)) return wk__take_upcoming(f, r, iterator, out_item);
  wk__note_exhausted(f, r, iterator);
  if (wk__recording_of(f) != r) return wk__plain_next(f, iterator, out_item);
  if (WK_UNLIKELY(wk__goes_over_changing(r, iterator))) return wk__next_of_changing(f, r, iterator, out_item);
  if (!wk__passed_on(f, iterator)) return -1;
  HANDING_ON(iterator, wk__plain_next(f, iterator, out_item));
}
int wk__op_send(wk__frame *f, PyObject *receiver, PyObject *value, PyObject **out_item) {
  RECORDING(wk__plain_send(f, receiver, value, out_item));
  (void)r;
  if (!wk__passed_on(f, receiver)) return -1;
  HANDING_ON(receiver, wk__plain_send(f, receiver, value, out_item));
}
int wk__op_unpack(wk__frame *f, PyObject *sequence, int count, int after, PyObject **out_items) {
  RECORDING(wk__plain_unpack(f, sequence, count, after, out_items));
  bool all = after < 0 && (PyList_CheckExact(sequence) || PyTuple_CheckExact(sequence)) &&
             PySequence_Fast_GET_SIZE(sequence) == count;
  if (WK_UNLIKELY(all && wk__holds_changing(r, sequence))) return wk__unpack_changing(f, r, sequence, out_items);
  if (!wk__passed_on(f, sequence)) return -1;
  HANDING_ON(sequence, wk__plain_unpack(f, sequence, count, after, out_items));
}

/* ========================================== with, match, exceptions ============================================== */

PyObject *wk__op_enter(wk__frame *f, PyObject *manager, PyObject **out_exit) {
  RECORDING(wk__plain_enter(f, manager, out_exit));
  if (wk__is_lock(r, manager))
    return wk__note_lock(f, r, manager, "__enter__", 0) ? wk__plain_enter(f, manager, out_exit) : NULL;
  if (Py_TYPE(manager) == BINDING->device_type) {
    r->device_blocks++;
    return wk__plain_enter(f, manager, out_exit);
  }
  bool own_mode = wk__is_mode(f, Py_TYPE(manager)) && !wk__is_foreign(r, manager);
  if (!own_mode && !wk__is_python_instance(manager))
    return wk__refuse(f, "a context manager of C code (%s)", Py_TYPE(manager)->tp_name);
  if (!wk__operators_are_noted(r, manager)) return wk__refuse(f, "an __enter__ of C code");
  if (wk__depend_on_look_ups(r, Py_TYPE(manager)) < 0) return wk__failed(f, r);
  PyObject *result = wk__plain_enter(f, manager, out_exit);
  if (own_mode) r->packs |= wk__thread.saver != f->session->saver_at_start;
  bool bound = result && *out_exit && PyMethod_Check(*out_exit) && wk__recording_of(f) == r;
  if (bound) wk__reg_constant(r, PyMethod_GET_FUNCTION(*out_exit)); /* found in the class */
  return result;
}
PyObject *wk__op_exit(wk__frame *f, PyObject *exit, PyObject *type, PyObject *value, PyObject *traceback) {
  RECORDING(wk__plain_exit(f, exit, type, value, traceback));
  bool own_mode =
      PyCFunction_Check(exit) && PyCFunction_GET_SELF(exit) && wk__is_mode(f, Py_TYPE(PyCFunction_GET_SELF(exit)));
  PyObject *lock = PyCFunction_Check(exit) ? PyCFunction_GET_SELF(exit) : NULL;
  if (lock && wk__is_lock(r, lock))
    return wk__note_lock(f, r, lock, "__exit__", 3) ? wk__plain_exit(f, exit, type, value, traceback) : NULL;
  if (lock && Py_TYPE(lock) == BINDING->device_type) {
    r->device_blocks--;
    return wk__plain_exit(f, exit, type, value, traceback);
  }
  if (!own_mode && !PyMethod_Check(exit) && !PyFunction_Check(exit))
    return wk__refuse(f, "a context manager of C code");
  if (!wk__know_bound(f, r, exit)) return NULL;
  return wk__plain_exit(f, exit, type, value, traceback);
}
Py_ssize_t wk__op_length(wk__frame *f, PyObject *a) {
  RECORDING(wk__plain_length(f, a));
  (void)r;
  return wk__passed_on(f, a) ? wk__plain_length(f, a) : -1;
}
/* The attributes that a class pattern asks for. NULL, with nothing set: it is an error, which the instruction raises.
 */
static PyObject *names_of_pattern(PyTypeObject *type, Py_ssize_t positional, PyObject *keyword_names) {  // -> new
  PyObject *text = PyUnicode_InternFromString("__match_args__");
  PyObject *in_order = text ? wk__type_attribute(type, text) : NULL;
  Py_ssize_t named = PyTuple_GET_SIZE(keyword_names);
  bool told = !positional || (in_order && PyTuple_CheckExact(in_order) && PyTuple_GET_SIZE(in_order) >= positional);
  PyObject *names = told ? PyTuple_New(positional + named) : NULL, *different = NULL;
  for (Py_ssize_t i = 0; names && i < positional + named; i++) {
    PyObject *name = PyTuple_GET_ITEM(i < positional ? in_order : keyword_names, i < positional ? i : i - positional);
    PyTuple_SET_ITEM(names, i, Py_NewRef(name));
  }
  different = names ? PyFrozenSet_New(names) : NULL;
  if (!different || PySet_GET_SIZE(different) != PyTuple_GET_SIZE(names)) Py_CLEAR(names);
  Py_XDECREF(different);
  Py_XDECREF(text);
  PyErr_Clear();
  return names;
}

/* No Python code says what it is: it stands in the object's dictionary, a slot, or the class. */
static bool is_plain_attribute(PyTypeObject *type, PyObject *name) {
  PyObject *in_class = PyUnicode_CheckExact(name) ? wk__type_attribute(type, name) : NULL;
  bool plain = !in_class || Py_TYPE(in_class) == &PyMemberDescr_Type || !Py_TYPE(in_class)->tp_descr_get;
  return PyUnicode_CheckExact(name) && plain;
}

static PyObject *attributes_of_pattern(wk__frame *f, PyObject *subject, PyObject *names) {  // -> new
  PyObject *found = PyTuple_New(PyTuple_GET_SIZE(names));
  for (Py_ssize_t i = 0; found && i < PyTuple_GET_SIZE(names); i++) {
    PyObject *value = wk__op_attr(f, subject, PyTuple_GET_ITEM(names, i));
    if (value) {
      PyTuple_SET_ITEM(found, i, value);
      continue;
    }
    Py_CLEAR(found);
    if (!PyErr_Occurred() || !PyErr_ExceptionMatches(PyExc_AttributeError)) break;
    PyErr_Clear();
    return Py_NewRef(Py_None); /* no match */
  }
  return found;
}

/* The answer that the classes alone give: it is none of that class, or is of a builtin class whose one pattern is for
 * itself. NULL: the object's attributes are asked. */
static PyObject *match_by_class(wk__frame *f, wk__recording *r, PyObject *subject, PyTypeObject *type,
                                Py_ssize_t positional, Py_ssize_t named) {  // -> new
  bool is = PyType_IsSubtype(Py_TYPE(subject), type), itself = wk__type_matches_itself(type);
  if (Py_TYPE(type) != &PyType_Type || (is && !(itself && positional <= 1 && !named))) return NULL;
  if (wk__depend_on_look_ups(r, Py_TYPE(subject)) < 0) return wk__failed(f, r);
  if (!is) return Py_NewRef(Py_None);
  return positional ? PyTuple_Pack(1, subject) : PyTuple_New(0);
}

/* A class of Python, and an object from outside that says nothing about itself by Python code. */
static PyObject *match_from_outside(wk__frame *f, wk__recording *r, PyObject *subject, PyTypeObject *type,
                                    Py_ssize_t positional, PyObject *keyword_names) {
  PyTypeObject *t = Py_TYPE(subject);
  PyObject *text = PyUnicode_InternFromString("__class__");
  bool usual = text && wk__type_attribute(t, text) == wk__type_attribute(&PyBaseObject_Type, text);
  bool asked = !usual || (!wk__type_is_fixed(t) && t->tp_getattro != PyObject_GenericGetAttr);
  bool simple = usual && wk__is_python_instance(subject) && t->tp_getattro == PyObject_GenericGetAttr &&
                Py_TYPE(type) == &PyType_Type && wk__is_python_class(type);
  Py_XDECREF(text);
  PyObject *by_class = asked ? NULL : match_by_class(f, r, subject, type, positional, PyTuple_GET_SIZE(keyword_names));
  if (by_class || r->failed[0]) return by_class;
  PyObject *names = simple ? names_of_pattern(type, positional, keyword_names) : NULL;
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); i++)
    if (!is_plain_attribute(t, PyTuple_GET_ITEM(names, i))) Py_CLEAR(names);
  if (!names) return wk__refuse(f, "a class pattern on an object from outside");
  PyObject *found = NULL;
  if (wk__depend_on_type(r, t) < 0 || wk__depend_on_type(r, type) < 0)
    wk__failed(f, r);
  else
    found = PyType_IsSubtype(t, type) ? attributes_of_pattern(f, subject, names) : Py_NewRef(Py_None);
  Py_DECREF(names);
  return found;
}

PyObject *wk__op_match_class(wk__frame *f, PyObject *subject, PyObject *type, Py_ssize_t positional,
                             PyObject *keyword_names) {
  RECORDING(wk__plain_match_class(f, subject, type, positional, keyword_names));
  if (wk__is_foreign(r, subject) && !wk__is_tensor_object(f, subject) && !PyTuple_Check(subject))
    return PyType_Check(type) ? match_from_outside(f, r, subject, (PyTypeObject *)type, positional, keyword_names)
                              : wk__refuse(f, "a class pattern that is not one");
  return wk__plain_match_class(f, subject, type, positional, keyword_names);
}
PyObject *wk__op_match_keys(wk__frame *f, PyObject *subject, PyObject *keys) {
  RECORDING(wk__plain_match_keys(f, subject, keys));
  (void)r;
  return wk__usable(f, subject) ? wk__plain_match_keys(f, subject, keys) : NULL;
}
int wk__op_exception_matches(wk__frame *f, PyObject *exception, PyObject *type) {
  return wk__plain_exception_matches(f, exception, type);
}
int wk__op_raise(wk__frame *f, PyObject *exception, PyObject *cause) { return wk__plain_raise(f, exception, cause); }
int wk__op_assertion(wk__frame *f, PyObject **out_type) { return wk__plain_assertion(f, out_type); }
int wk__op_match_group(wk__frame *f, PyObject *exception, PyObject *type, PyObject **out_match, PyObject **out_rest) {
  return wk__plain_match_group(f, exception, type, out_match, out_rest);
}
PyObject *wk__op_join_groups(wk__frame *f, PyObject *original, PyObject *raised) {
  return wk__plain_join_groups(f, original, raised);
}
int wk__op_match_kind(wk__frame *f, wk__pattern kind, PyObject *subject) {
  return wk__plain_match_kind(f, kind, subject);
}
