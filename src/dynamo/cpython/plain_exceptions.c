/* What instructions of with, match and exception handling do when nothing is recorded. Tests:
 * tests/python/capture/test_evaluator.py. */
#include "dynamo/cpython/objects.h"
#include "dynamo/cpython/plain.h"

/* ---- with ---- */

/* A special method, looked up on the type and bound. -> new */
static PyObject *special(PyObject *owner, const char *name, const char *missing) {
  PyObject *method = wk__get_special(owner, name);
  if (!method && !PyErr_Occurred()) PyErr_Format(PyExc_TypeError, missing, Py_TYPE(owner)->tp_name);
  return method;
}

PyObject *wk__plain_enter(wk__frame *f, PyObject *manager, PyObject **out_exit) {
  (void)f;
  *out_exit = NULL;
  PyObject *enter = special(manager, "__enter__", "'%.200s' object does not support the context manager protocol");
  if (!enter) return NULL;
  PyObject *exit = special(manager, "__exit__",
                           "'%.200s' object does not support the context manager protocol (missed __exit__ method)");
  PyObject *entered = exit ? PyObject_CallNoArgs(enter) : NULL;
  Py_DECREF(enter);
  if (entered)
    *out_exit = exit;
  else
    Py_XDECREF(exit);
  return entered;
}

PyObject *wk__plain_exit(wk__frame *f, PyObject *exit, PyObject *type, PyObject *value, PyObject *traceback) {
  (void)f;
  PyObject *args[] = {NULL, type, value, traceback};
  return PyObject_Vectorcall(exit, args + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
}

/* ---- match ---- */

Py_ssize_t wk__plain_length(wk__frame *f, PyObject *a) {
  (void)f;
  return PyObject_Length(a);
}

int wk__plain_match_kind(wk__frame *f, wk__pattern kind, PyObject *subject) {
  (void)f;
  return PyType_HasFeature(Py_TYPE(subject), kind == WK__PATTERN_MAPPING ? Py_TPFLAGS_MAPPING : Py_TPFLAGS_SEQUENCE);
}

/* Adds to what has been seen; `twice` is the error when it was there. */
static int see(PyObject *seen, PyObject *name, PyObject *type, const char *twice) {
  int there = PySet_Contains(seen, name);
  if (there == 0) return PySet_Add(seen, name);
  if (there < 0) return -1;
  if (type)
    PyErr_Format(PyExc_TypeError, twice, ((PyTypeObject *)type)->tp_name, name);
  else
    PyErr_Format(PyExc_ValueError, twice, name);
  return -1;
}

/* Appends an attribute of the subject; 0: it has none. */
static int match_attribute(PyObject *subject, PyObject *type, PyObject *name, PyObject *seen, PyObject *attributes) {
  if (see(seen, name, type, "%s() got multiple sub-patterns for attribute %R") < 0) return -1;
  PyObject *value = PyObject_GetAttr(subject, name);
  if (!value) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
    PyErr_Clear();
    return 0;
  }
  int status = PyList_Append(attributes, value);
  Py_DECREF(value);
  return status < 0 ? -1 : 1;
}

/* The names of positional patterns; *out_self: the one pattern is for the subject itself. -> new */
static PyObject *positional_names(PyObject *type, bool *out_self) {
  *out_self = false;
  const char *type_name = ((PyTypeObject *)type)->tp_name;
  PyObject *names = PyObject_GetAttrString(type, "__match_args__");
  if (names && !PyTuple_CheckExact(names)) {
    PyErr_Format(PyExc_TypeError, "%s.__match_args__ must be a tuple (got %s)", type_name, Py_TYPE(names)->tp_name);
    Py_CLEAR(names);
  } else if (!names && PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Clear();
    names = PyTuple_New(0);
    *out_self = wk__type_matches_itself((PyTypeObject *)type);
  }
  return names;
}

static int check_positional_count(PyObject *type, Py_ssize_t allowed, Py_ssize_t given) {
  if (given <= allowed) return 0;
  PyErr_Format(PyExc_TypeError, "%s() accepts %d positional sub-pattern%s (%d given)", ((PyTypeObject *)type)->tp_name,
               (int)allowed, allowed == 1 ? "" : "s", (int)given);
  return -1;
}

/* 1: all are there; 0; -1. */
static int match_positional(PyObject *subject, PyObject *type, Py_ssize_t count, PyObject *seen, PyObject *attributes) {
  if (count == 0) return 1;
  bool itself;
  PyObject *names = positional_names(type, &itself);
  if (!names) return -1;
  int status = check_positional_count(type, itself ? 1 : PyTuple_GET_SIZE(names), count) < 0 ? -1 : 1;
  if (status > 0 && itself) status = PyList_Append(attributes, subject) < 0 ? -1 : 1;
  for (Py_ssize_t i = 0; status > 0 && !itself && i < count; i++) {
    PyObject *name = PyTuple_GET_ITEM(names, i);
    if (PyUnicode_CheckExact(name)) {
      status = match_attribute(subject, type, name, seen, attributes);
    } else {
      PyErr_Format(PyExc_TypeError, "__match_args__ elements must be strings (got %s)", Py_TYPE(name)->tp_name);
      status = -1;
    }
  }
  Py_DECREF(names);
  return status;
}

PyObject *wk__plain_match_class(wk__frame *f, PyObject *subject, PyObject *type, Py_ssize_t positional,
                                PyObject *keyword_names) {
  (void)f;
  if (!PyType_Check(type)) {
    PyErr_SetString(PyExc_TypeError, WK__CLASS_PATTERN_ERROR);
    return NULL;
  }
  int status = PyObject_IsInstance(subject, type);
  if (status <= 0) return status < 0 ? NULL : Py_NewRef(Py_None);
  PyObject *seen = PySet_New(NULL), *attributes = PyList_New(0), *result = NULL;
  status = seen && attributes ? match_positional(subject, type, positional, seen, attributes) : -1;
  for (Py_ssize_t i = 0; status > 0 && i < PyTuple_GET_SIZE(keyword_names); i++) {
    status = match_attribute(subject, type, PyTuple_GET_ITEM(keyword_names, i), seen, attributes);
  }
  if (status == 0) result = Py_NewRef(Py_None);
  if (status > 0) result = PyList_AsTuple(attributes);
  Py_XDECREF(seen);
  Py_XDECREF(attributes);
  return result;
}

/* Values of the mapping by its `get` with a default, which neither raises for a missing key nor makes one. */
static PyObject *values_of_keys(PyObject *get, PyObject *keys, PyObject *absent) {  // -> new; a tuple or None
  PyObject *seen = PySet_New(NULL), *values = PyTuple_New(PyTuple_GET_SIZE(keys));
  for (Py_ssize_t i = 0; seen && values && i < PyTuple_GET_SIZE(keys); i++) {
    PyObject *key = PyTuple_GET_ITEM(keys, i), *value = NULL;
    if (see(seen, key, NULL, "mapping pattern checks duplicate key (%R)") == 0) {
      value = PyObject_CallFunctionObjArgs(get, key, absent, NULL);
    }
    if (!value) {
      Py_CLEAR(values);
    } else if (value == absent) {
      Py_DECREF(value);
      Py_SETREF(values, Py_NewRef(Py_None));
      break;
    } else {
      PyTuple_SET_ITEM(values, i, value);
    }
  }
  if (!seen) Py_CLEAR(values);
  Py_XDECREF(seen);
  return values;
}

PyObject *wk__plain_match_keys(wk__frame *f, PyObject *subject, PyObject *keys) {
  (void)f;
  if (PyTuple_GET_SIZE(keys) == 0) return PyTuple_New(0);
  PyObject *get = PyObject_GetAttrString(subject, "get");
  PyObject *absent = get ? PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type) : NULL;
  PyObject *values = absent ? values_of_keys(get, keys, absent) : NULL;
  Py_XDECREF(absent);
  Py_XDECREF(get);
  return values;
}

/* ---- exceptions ---- */

/* Calls check on a class, or on each of a tuple of classes, until it gives something but 0. */
static int for_each_class(PyObject *type, int (*check)(PyObject *class)) {
  if (!PyTuple_Check(type)) return check(type);
  int status = 0;
  for (Py_ssize_t i = 0; status == 0 && i < PyTuple_GET_SIZE(type); i++) status = check(PyTuple_GET_ITEM(type, i));
  return status;
}

static int check_can_catch(PyObject *class) {
  if (PyExceptionClass_Check(class)) return 0;
  PyErr_SetString(PyExc_TypeError, "catching classes that do not inherit from BaseException is not allowed");
  return -1;
}
static int is_group_class(PyObject *class) { return PyObject_IsSubclass(class, PyExc_BaseExceptionGroup); }

int wk__plain_exception_matches(wk__frame *f, PyObject *exception, PyObject *type) {
  (void)f;
  if (for_each_class(type, check_can_catch) < 0) return -1;
  return PyErr_GivenExceptionMatches(exception, type);
}

static int reraise(void) {
  PyObject *value = PyErr_GetHandledException();
  if (!value) {
    PyErr_SetString(PyExc_RuntimeError, "No active exception to reraise");
    return -1;
  }
  PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(value)), value, PyException_GetTraceback(value));
  return -1;
}

/* What `raise x` raises, made if x is a class. -> new */
static PyObject *instance_to_raise(PyObject *exception) {
  if (PyExceptionInstance_Check(exception)) return Py_NewRef(exception);
  if (!PyExceptionClass_Check(exception)) {
    PyErr_SetString(PyExc_TypeError, "exceptions must derive from BaseException");
    return NULL;
  }
  PyObject *value = PyObject_CallNoArgs(exception);
  if (value && !PyExceptionInstance_Check(value)) {
    PyErr_Format(PyExc_TypeError, "calling %R should have returned an instance of BaseException, not %R", exception,
                 Py_TYPE(value));
    Py_CLEAR(value);
  }
  return value;
}

static int set_cause(PyObject *value, PyObject *cause) {
  PyObject *fixed = NULL;
  if (PyExceptionClass_Check(cause)) {
    if (!(fixed = PyObject_CallNoArgs(cause))) return -1;
  } else if (PyExceptionInstance_Check(cause)) {
    fixed = Py_NewRef(cause);
  } else if (cause != Py_None) {
    PyErr_SetString(PyExc_TypeError, "exception causes must derive from BaseException");
    return -1;
  }
  PyException_SetCause(value, fixed);
  return 0;
}

int wk__plain_raise(wk__frame *f, PyObject *exception, PyObject *cause) {
  (void)f;
  if (!exception) return reraise();
  PyObject *value = instance_to_raise(exception);
  if (!value) return -1;
  PyObject *type = PyExceptionClass_Check(exception) ? exception : (PyObject *)Py_TYPE(value);
  if (!cause || set_cause(value, cause) == 0) PyErr_SetObject(type, value);
  Py_DECREF(value);
  return -1;
}

PyObject *wk__plain_stop_iteration_error(wk__frame *f, PyObject *exception) {
  bool of_async = f->code->co_flags & CO_ASYNC_GENERATOR;
  const char *raised = PyErr_GivenExceptionMatches(exception, PyExc_StopIteration) ? "StopIteration"
                       : of_async && PyErr_GivenExceptionMatches(exception, PyExc_StopAsyncIteration)
                           ? "StopAsyncIteration"
                           : NULL;
  if (!raised) return Py_NewRef(exception);
  const char *kind = of_async ? "async generator" : f->code->co_flags & CO_COROUTINE ? "coroutine" : "generator";
  PyObject *text = PyUnicode_FromFormat("%s raised %s", kind, raised);
  PyObject *error = text ? PyObject_CallOneArg(PyExc_RuntimeError, text) : NULL;
  Py_XDECREF(text);
  if (!error) return NULL;
  PyException_SetCause(error, Py_NewRef(exception));
  PyException_SetContext(error, Py_NewRef(exception));
  return error;
}

int wk__plain_assertion(wk__frame *f, PyObject **out_type) {
  (void)f;
  *out_type = Py_NewRef(PyExc_AssertionError);
  return 0;
}

/* ---- exception groups ---- */

static bool is_group(PyObject *exception) {
  return PyObject_TypeCheck(exception, (PyTypeObject *)PyExc_BaseExceptionGroup);
}
/* Borrowed: a tuple. */
static PyObject *group_members(PyObject *group) { return ((PyBaseExceptionGroupObject *)group)->excs; }

static PyObject *make_group(PyObject *members) {  // -> new
  return PyObject_CallFunction(PyExc_BaseExceptionGroup, "sO", "", members);
}

int wk__plain_match_group(wk__frame *f, PyObject *exception, PyObject *type, PyObject **out_match,
                          PyObject **out_rest) {
  (void)f;
  *out_match = *out_rest = NULL;
  if (for_each_class(type, check_can_catch) < 0) return -1;
  int groups = for_each_class(type, is_group_class);
  if (groups > 0) {
    PyErr_SetString(PyExc_TypeError, "catching ExceptionGroup with except* is not allowed. Use except instead.");
  }
  if (groups != 0) return -1;
  bool whole = exception != Py_None && PyErr_GivenExceptionMatches(exception, type);
  if (!whole && exception != Py_None && is_group(exception)) {
    PyObject *pair = PyObject_CallMethod(exception, "split", "(O)", type);
    if (!pair) return -1;
    *out_match = Py_NewRef(PyTuple_GET_ITEM(pair, 0));
    *out_rest = Py_NewRef(PyTuple_GET_ITEM(pair, 1));
    Py_DECREF(pair);
    return 0;
  }
  if (!whole)
    *out_match = Py_NewRef(Py_None);
  else if (is_group(exception))
    *out_match = Py_NewRef(exception);
  else {
    PyObject *members = PyTuple_Pack(1, exception);
    *out_match = members ? make_group(members) : NULL;
    Py_XDECREF(members);
    if (!*out_match) return -1;
  }
  *out_rest = Py_NewRef(Py_None);
  return 0;
}

/* Clauses that raise the caught group again leave these alone. */
static bool same_origin(PyObject *a, PyObject *b) {
  PyBaseExceptionObject *x = (PyBaseExceptionObject *)a, *y = (PyBaseExceptionObject *)b;
  return x->notes == y->notes && x->traceback == y->traceback && x->cause == y->cause && x->context == y->context;
}

static int add_leaves(PyObject *exception, PyObject *leaves) {
  if (!is_group(exception)) {
    PyObject *address = PyLong_FromVoidPtr(exception);
    int status = address ? PySet_Add(leaves, address) : -1;
    Py_XDECREF(address);
    return status;
  }
  if (Py_EnterRecursiveCall(" in collect_exception_group_leaf_ids")) return -1;
  PyObject *members = group_members(exception);
  int status = 0;
  for (Py_ssize_t i = 0; status == 0 && i < PyTuple_GET_SIZE(members); i++) {
    status = add_leaves(PyTuple_GET_ITEM(members, i), leaves);
  }
  Py_LeaveRecursiveCall();
  return status;
}

static int copy_notes(PyObject *from, PyObject *to) {
  PyObject *notes = NULL, *name = PyUnicode_InternFromString("__notes__");
  int found = name ? wk__get_optional_attribute(from, name, &notes) : -1;
  Py_XDECREF(name);
  if (found <= 0) return found;
  PyObject *copy = PySequence_Check(notes) ? PySequence_List(notes) : Py_NewRef(Py_None);
  Py_DECREF(notes);
  int status = copy ? 0 : -1;
  if (copy && copy != Py_None) status = PyObject_SetAttrString(to, "__notes__", copy);
  Py_XDECREF(copy);
  return status;
}

/* A group of some of the members, with where the group came from. -> new */
static PyObject *derive(PyObject *group, PyObject *members) {
  PyObject *derived = PyObject_CallMethod(group, "derive", "(O)", members);
  if (!derived) return NULL;
  if (!is_group(derived)) {
    PyErr_SetString(PyExc_TypeError, "derive must return an instance of BaseExceptionGroup");
    Py_DECREF(derived);
    return NULL;
  }
  PyObject *traceback = PyException_GetTraceback(group);
  int status = traceback ? PyException_SetTraceback(derived, traceback) : 0;
  Py_XDECREF(traceback);
  PyException_SetContext(derived, PyException_GetContext(group));
  PyException_SetCause(derived, PyException_GetCause(group));
  if (status < 0 || copy_notes(group, derived) < 0) Py_CLEAR(derived);
  return derived;
}

/* What of the exception is made of the leaves, with the same nesting; None: nothing. -> new */
static PyObject *project(PyObject *exception, PyObject *leaves) {
  if (!is_group(exception)) {
    PyObject *address = PyLong_FromVoidPtr(exception);
    int there = address ? PySet_Contains(leaves, address) : -1;
    Py_XDECREF(address);
    return there < 0 ? NULL : Py_NewRef(there ? exception : Py_None);
  }
  if (Py_EnterRecursiveCall(" in exceptiongroup_split_recursive")) return NULL;
  PyObject *members = group_members(exception), *kept = PyList_New(0);
  for (Py_ssize_t i = 0; kept && i < PyTuple_GET_SIZE(members); i++) {
    PyObject *part = project(PyTuple_GET_ITEM(members, i), leaves);
    if (!part || (part != Py_None && PyList_Append(kept, part) < 0)) Py_CLEAR(kept);
    Py_XDECREF(part);
  }
  Py_LeaveRecursiveCall();
  if (!kept) return NULL;
  PyObject *result = PyList_GET_SIZE(kept) > 0 ? derive(exception, kept) : Py_NewRef(Py_None);
  Py_DECREF(kept);
  return result;
}

/* Puts the exceptions into two lists: newly raised, and leaves of those raised again. */
static int sort_raised(PyObject *original, PyObject *raised, PyObject *fresh, PyObject *leaves) {
  int status = 0;
  for (Py_ssize_t i = 0; status == 0 && i < PyList_GET_SIZE(raised); i++) {
    PyObject *exception = PyList_GET_ITEM(raised, i);
    if (exception == Py_None) continue;
    status = same_origin(exception, original) ? add_leaves(exception, leaves) : PyList_Append(fresh, exception);
  }
  return status;
}

/* One group of all, unless there is only one; None. -> new */
static PyObject *join(PyObject *fresh, PyObject *again) {
  if (PyList_GET_SIZE(fresh) == 0) return Py_NewRef(again);
  if (again != Py_None && PyList_Append(fresh, again) < 0) return NULL;
  return PyList_GET_SIZE(fresh) > 1 ? make_group(fresh) : Py_NewRef(PyList_GET_ITEM(fresh, 0));
}

PyObject *wk__plain_join_groups(wk__frame *f, PyObject *original, PyObject *raised) {
  (void)f;
  if (PyList_GET_SIZE(raised) == 0) return Py_NewRef(Py_None);
  if (!is_group(original)) return Py_NewRef(PyList_GET_ITEM(raised, 0));  // it was wrapped for one clause
  PyObject *fresh = PyList_New(0), *leaves = PySet_New(NULL), *again = NULL, *result = NULL;
  if (fresh && leaves && sort_raised(original, raised, fresh, leaves) == 0) again = project(original, leaves);
  if (again) result = join(fresh, again);
  Py_XDECREF(again);
  Py_XDECREF(leaves);
  Py_XDECREF(fresh);
  return result;
}
