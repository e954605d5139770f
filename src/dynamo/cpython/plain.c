/* What instructions do to objects when nothing is recorded: attributes, items, operators, calls, displays, iteration.
 * Names and imports are in plain_names.c, with, match and exceptions in plain_exceptions.c. Tests:
 * tests/python/capture/test_evaluator.py. */
#include "dynamo/cpython/plain.h"

#include <opcode.h>

#include "dynamo/cpython/objects.h"

/* The `f` of an operation that needs nothing of the frame. */
#define UNUSED_FRAME (void)f

/* ---- attributes, items ---- */

PyObject *wk__plain_attr(wk__frame *f, PyObject *owner, PyObject *name) {
  UNUSED_FRAME;
  return PyObject_GetAttr(owner, name);
}

PyObject *wk__plain_method(wk__frame *f, PyObject *owner, PyObject *name, PyObject **out_self) {
  UNUSED_FRAME;
  PyObject *callable = NULL;
  bool unbound = wk__get_method(owner, name, &callable);
  *out_self = callable && unbound ? Py_NewRef(owner) : NULL;
  return callable;
}

int wk__plain_set_attr(wk__frame *f, PyObject *owner, PyObject *name, PyObject *value) {
  UNUSED_FRAME;
  return PyObject_SetAttr(owner, name, value);
}

PyObject *wk__plain_item(wk__frame *f, PyObject *owner, PyObject *key) {
  UNUSED_FRAME;
  return PyObject_GetItem(owner, key);
}

int wk__plain_set_item(wk__frame *f, PyObject *owner, PyObject *key, PyObject *value) {
  UNUSED_FRAME;
  return value ? PyObject_SetItem(owner, key, value) : PyObject_DelItem(owner, key);
}

/* ---- operators ---- */

PyObject *wk__plain_unary(wk__frame *f, wk__unary kind, PyObject *a) {
  UNUSED_FRAME;
  if (kind == WK__UNARY_POSITIVE) return PyNumber_Positive(a);
  return kind == WK__UNARY_NEGATIVE ? PyNumber_Negative(a) : PyNumber_Invert(a);
}

static PyObject *power(PyObject *a, PyObject *b) { return PyNumber_Power(a, b, Py_None); }
static PyObject *inplace_power(PyObject *a, PyObject *b) { return PyNumber_InPlacePower(a, b, Py_None); }

PyObject *wk__plain_binary(wk__frame *f, int nb_kind, PyObject *a, PyObject *b) {
  static const binaryfunc functions[] = {
      [NB_ADD] = PyNumber_Add,
      [NB_AND] = PyNumber_And,
      [NB_FLOOR_DIVIDE] = PyNumber_FloorDivide,
      [NB_LSHIFT] = PyNumber_Lshift,
      [NB_MATRIX_MULTIPLY] = PyNumber_MatrixMultiply,
      [NB_MULTIPLY] = PyNumber_Multiply,
      [NB_REMAINDER] = PyNumber_Remainder,
      [NB_OR] = PyNumber_Or,
      [NB_POWER] = power,
      [NB_RSHIFT] = PyNumber_Rshift,
      [NB_SUBTRACT] = PyNumber_Subtract,
      [NB_TRUE_DIVIDE] = PyNumber_TrueDivide,
      [NB_XOR] = PyNumber_Xor,
      [NB_INPLACE_ADD] = PyNumber_InPlaceAdd,
      [NB_INPLACE_AND] = PyNumber_InPlaceAnd,
      [NB_INPLACE_FLOOR_DIVIDE] = PyNumber_InPlaceFloorDivide,
      [NB_INPLACE_LSHIFT] = PyNumber_InPlaceLshift,
      [NB_INPLACE_MATRIX_MULTIPLY] = PyNumber_InPlaceMatrixMultiply,
      [NB_INPLACE_MULTIPLY] = PyNumber_InPlaceMultiply,
      [NB_INPLACE_REMAINDER] = PyNumber_InPlaceRemainder,
      [NB_INPLACE_OR] = PyNumber_InPlaceOr,
      [NB_INPLACE_POWER] = inplace_power,
      [NB_INPLACE_RSHIFT] = PyNumber_InPlaceRshift,
      [NB_INPLACE_SUBTRACT] = PyNumber_InPlaceSubtract,
      [NB_INPLACE_TRUE_DIVIDE] = PyNumber_InPlaceTrueDivide,
      [NB_INPLACE_XOR] = PyNumber_InPlaceXor,
  };
  UNUSED_FRAME;
  return functions[nb_kind](a, b);
}

PyObject *wk__plain_compare(wk__frame *f, int py_kind, PyObject *a, PyObject *b) {
  UNUSED_FRAME;
  return PyObject_RichCompare(a, b, py_kind);
}

int wk__plain_contains(wk__frame *f, PyObject *container, PyObject *value) {
  UNUSED_FRAME;
  return PySequence_Contains(container, value);
}

int wk__plain_is(wk__frame *f, PyObject *a, PyObject *b) {
  UNUSED_FRAME;
  return a == b;
}

int wk__plain_true(wk__frame *f, PyObject *a) {
  UNUSED_FRAME;
  return PyObject_IsTrue(a);
}

PyObject *wk__plain_convert(wk__frame *f, PyObject *value, int conversion) {
  UNUSED_FRAME;
  switch (conversion) {
    case 's':
      return PyObject_Str(value);
    case 'r':
      return PyObject_Repr(value);
    case 'a':
      return PyObject_ASCII(value);
    default:
      return Py_NewRef(value);
  }
}

PyObject *wk__plain_format(wk__frame *f, PyObject *value, int conversion, PyObject *spec) {
  PyObject *converted = wk__plain_convert(f, value, conversion);
  if (!converted || (PyUnicode_CheckExact(converted) && !spec)) return converted;
  PyObject *result = PyObject_Format(converted, spec);
  Py_DECREF(converted);
  return result;
}

/* ---- calls ---- */

/* The callee may lend itself args[-1]. In the stack of a running generator the garbage collector would see what it puts
 * there as owned by the generator; in that of a compiled region, a segment that ends in the callee would keep it. */
PyObject *wk__plain_call(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                         PyObject *keyword_names) {
  bool lends = !f->session && !(f->code->co_flags & CO_GENERATOR);
  size_t lend = lends ? PY_VECTORCALL_ARGUMENTS_OFFSET : 0;
  return PyObject_Vectorcall(callable, args, (size_t)count | lend, keyword_names);
}

/* "f() " before what is wrong with its arguments. */
static void raise_about_call(PyObject *callable, const char *format, PyObject *detail, const char *detail_text) {
  PyErr_Clear();
  PyObject *name = wk__text_of_call(callable);
  if (name && detail) PyErr_Format(PyExc_TypeError, format, name, detail);
  if (name && !detail) PyErr_Format(PyExc_TypeError, format, name, detail_text);
  Py_XDECREF(name);
}

/* Makes the TypeError of a call of the error of merging `keywords` into a dictionary. */
static void explain_keywords(PyObject *callable, PyObject *keywords) {
  if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
    raise_about_call(callable, "%U argument after ** must be a mapping, not %.200s", NULL, Py_TYPE(keywords)->tp_name);
    return;
  }
  if (!PyErr_ExceptionMatches(PyExc_KeyError)) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyObject *args = ((PyBaseExceptionObject *)value)->args;
  if (PyTuple_GET_SIZE(args) != 1) {
    PyErr_Restore(type, value, traceback);
    return;
  }
  raise_about_call(callable, "%U got multiple values for keyword argument '%S'", PyTuple_GET_ITEM(args, 0), NULL);
  Py_XDECREF(type);
  Py_DECREF(value);
  Py_XDECREF(traceback);
}

static int merge_keywords(PyObject *dict, PyObject *keywords, PyObject *callable) {
  if (wk__dict_merge_new(dict, keywords) == 0) return 0;
  explain_keywords(callable, keywords);
  return -1;
}

static PyObject *positional_tuple(PyObject *callable, PyObject *args) {  // -> new
  if (PyTuple_CheckExact(args)) return Py_NewRef(args);
  if (Py_TYPE(args)->tp_iter || PySequence_Check(args)) return PySequence_Tuple(args);
  raise_about_call(callable, "%U argument after * must be an iterable, not %.200s", NULL, Py_TYPE(args)->tp_name);
  return NULL;
}

PyObject *wk__plain_call_spread(wk__frame *f, PyObject *callable, PyObject *args, PyObject *keywords) {
  UNUSED_FRAME;
  PyObject *dict = keywords && !PyDict_CheckExact(keywords) ? PyDict_New() : Py_XNewRef(keywords);
  if (keywords && !dict) return NULL;
  bool merged = dict == keywords || merge_keywords(dict, keywords, callable) == 0;
  PyObject *positional = merged ? positional_tuple(callable, args) : NULL;
  PyObject *result = positional ? PyObject_Call(callable, positional, dict) : NULL;
  Py_XDECREF(positional);
  Py_XDECREF(dict);
  return result;
}

/* ---- making things ---- */

static PyObject *build_tuple(PyObject *const *items, Py_ssize_t count) {  // -> new
  PyObject *tuple = PyTuple_New(count);
  for (Py_ssize_t i = 0; tuple && i < count; i++) PyTuple_SET_ITEM(tuple, i, Py_NewRef(items[i]));
  return tuple;
}
static PyObject *build_list(PyObject *const *items, Py_ssize_t count) {  // -> new
  PyObject *list = PyList_New(count);
  for (Py_ssize_t i = 0; list && i < count; i++) PyList_SET_ITEM(list, i, Py_NewRef(items[i]));
  return list;
}
static PyObject *build_set(PyObject *const *items, Py_ssize_t count) {  // -> new
  PyObject *set = PySet_New(NULL);
  for (Py_ssize_t i = 0; set && i < count; i++) {
    if (PySet_Add(set, items[i]) < 0) Py_CLEAR(set);
  }
  return set;
}
static PyObject *build_string(PyObject *const *items, Py_ssize_t count) {  // -> new
  PyObject *empty = PyUnicode_New(0, 0);
  PyObject *string = empty ? wk__join_strings(empty, items, count) : NULL;
  Py_XDECREF(empty);
  return string;
}
/* The i-th pair: keys[i * stride], values[i * stride]. */
static PyObject *build_map(PyObject *const *keys, PyObject *const *values, Py_ssize_t count,
                           Py_ssize_t stride) {  // -> new
  PyObject *map = PyDict_New();
  for (Py_ssize_t i = 0; map && i < count; i++) {
    if (PyDict_SetItem(map, keys[i * stride], values[i * stride]) < 0) Py_CLEAR(map);
  }
  return map;
}

PyObject *wk__plain_build(wk__frame *f, wk__build kind, PyObject *const *items, Py_ssize_t count) {
  UNUSED_FRAME;
  switch (kind) {
    case WK__BUILD_TUPLE:
      return build_tuple(items, count);
    case WK__BUILD_LIST:
      return build_list(items, count);
    case WK__BUILD_SET:
      return build_set(items, count);
    case WK__BUILD_STRING:
      return build_string(items, count);
    case WK__BUILD_SLICE:
      return PySlice_New(items[0], items[1], count == 3 ? items[2] : NULL);
    case WK__BUILD_MAP:
      return build_map(items, items + 1, count / 2, 2);
  }
  return NULL;
}

PyObject *wk__plain_build_const_map(wk__frame *f, PyObject *keys, PyObject *const *values, Py_ssize_t count) {
  UNUSED_FRAME;
  return build_map(((PyTupleObject *)keys)->ob_item, values, count, 1);
}

PyObject *wk__plain_list_to_tuple(wk__frame *f, PyObject *list) {
  UNUSED_FRAME;
  return PyList_AsTuple(list);
}

static int extend_list(PyObject *list, PyObject *iterable) {
  if (wk__list_extend(list, iterable) == 0) return 0;
  if (PyErr_ExceptionMatches(PyExc_TypeError) && !Py_TYPE(iterable)->tp_iter && !PySequence_Check(iterable)) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "Value after * must be an iterable, not %.200s", Py_TYPE(iterable)->tp_name);
  }
  return -1;
}
static int update_dict(PyObject *dict, PyObject *mapping) {
  if (PyDict_Update(dict, mapping) == 0) return 0;
  if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Format(PyExc_TypeError, "'%.200s' object is not a mapping", Py_TYPE(mapping)->tp_name);
  }
  return -1;
}

int wk__plain_fill(wk__frame *f, wk__fill kind, PyObject *container, PyObject *a, PyObject *b, PyObject *callable) {
  UNUSED_FRAME;
  switch (kind) {
    case WK__FILL_LIST_APPEND:
      return PyList_Append(container, a);
    case WK__FILL_LIST_EXTEND:
      return extend_list(container, a);
    case WK__FILL_SET_ADD:
      return PySet_Add(container, a);
    case WK__FILL_SET_UPDATE:
      return wk__set_update(container, a);
    case WK__FILL_MAP_ADD:
      return PyDict_SetItem(container, a, b);
    case WK__FILL_DICT_UPDATE:
      return update_dict(container, a);
    case WK__FILL_DICT_MERGE:
      return merge_keywords(container, a, callable);
  }
  return -1;
}

/* Straight into the fields: the setters of the API want a dictionary where the bytecode has a tuple of annotations. */
PyObject *wk__plain_make_function(wk__frame *f, PyObject *code, PyObject *defaults, PyObject *keyword_defaults,
                                  PyObject *annotations, PyObject *closure) {
  PyFunctionObject *function = (PyFunctionObject *)PyFunction_New(code, wk__frame_globals(f));
  if (!function) return NULL;
  function->func_closure = Py_XNewRef(closure);
  function->func_kwdefaults = Py_XNewRef(keyword_defaults);
  function->func_defaults = Py_XNewRef(defaults);
  if (annotations) Py_XSETREF(function->func_annotations, Py_NewRef(annotations));
  return (PyObject *)function;
}

/* ---- iteration ---- */

PyObject *wk__plain_iter(wk__frame *f, PyObject *iterable) {
  UNUSED_FRAME;
  return PyObject_GetIter(iterable);
}

PyObject *wk__plain_yield_from_iter(wk__frame *f, PyObject *iterable) {
  if (PyGen_CheckExact(iterable)) return Py_NewRef(iterable);
  if (!PyCoro_CheckExact(iterable)) return PyObject_GetIter(iterable);
  if (f->code->co_flags & (CO_COROUTINE | CO_ITERABLE_COROUTINE)) return Py_NewRef(iterable);
  PyErr_SetString(PyExc_TypeError, "cannot 'yield from' a coroutine object in a non-coroutine generator");
  return NULL;
}

int wk__plain_next(wk__frame *f, PyObject *iterator, PyObject **out_item) {
  UNUSED_FRAME;
  *out_item = Py_TYPE(iterator)->tp_iternext(iterator);
  if (*out_item) return 1;
  if (!PyErr_Occurred()) return 0;
  if (!PyErr_ExceptionMatches(PyExc_StopIteration)) return -1;
  PyErr_Clear();
  return 0;
}

int wk__plain_send(wk__frame *f, PyObject *receiver, PyObject *value, PyObject **out_item) {
  UNUSED_FRAME;
  *out_item = NULL;
  PySendResult result = PyIter_Send(receiver, value, out_item);
  if (result == PYGEN_ERROR) return -1;
  return result == PYGEN_NEXT;
}

/* ---- unpacking ---- */

static PyObject *iter_to_unpack(PyObject *sequence) {  // -> new
  PyObject *iterator = PyObject_GetIter(sequence);
  if (iterator) return iterator;
  PyTypeObject *type = Py_TYPE(sequence);
  if (PyErr_ExceptionMatches(PyExc_TypeError) && !type->tp_iter && !PySequence_Check(sequence)) {
    PyErr_Format(PyExc_TypeError, "cannot unpack non-iterable %.200s object", type->tp_name);
  }
  return NULL;
}

/* The first `count` items; how many there were (with an exception when fewer). */
static int take_items(PyObject *iterator, int count, int after, PyObject **out_items) {
  for (int i = 0; i < count; i++) {
    if ((out_items[i] = PyIter_Next(iterator))) continue;
    if (!PyErr_Occurred()) {
      PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected %s%d, got %d)",
                   after < 0 ? "" : "at least ", after < 0 ? count : count + after, i);
    }
    return i;
  }
  return count;
}

static int expect_end(PyObject *iterator, int count) {
  PyObject *more = PyIter_Next(iterator);
  if (!more) return PyErr_Occurred() ? -1 : 0;
  Py_DECREF(more);
  PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d)", count);
  return -1;
}

/* A list of the rest, and its last `after` items behind it. */
static int take_rest(PyObject *iterator, int count, int after, PyObject **out_items) {
  PyObject *list = PySequence_List(iterator);
  if (!list) return -1;
  Py_ssize_t size = PyList_GET_SIZE(list);
  if (size < after) {
    PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected at least %d, got %zd)", count + after,
                 count + size);
    Py_DECREF(list);
    return -1;
  }
  for (int i = 0; i < after; i++) out_items[1 + i] = Py_NewRef(PyList_GET_ITEM(list, size - after + i));
  if (after > 0 && PyList_SetSlice(list, size - after, size, NULL) < 0) {
    for (int i = 0; i < after; i++) Py_DECREF(out_items[1 + i]);
    Py_DECREF(list);
    return -1;
  }
  out_items[0] = list;
  return 0;
}

static bool unpack_exact(PyObject *sequence, int count, PyObject **out_items) {
  bool tuple = PyTuple_CheckExact(sequence);
  if (!tuple && !PyList_CheckExact(sequence)) return false;
  if (Py_SIZE(sequence) != count) return false;
  PyObject **items = tuple ? ((PyTupleObject *)sequence)->ob_item : ((PyListObject *)sequence)->ob_item;
  for (int i = 0; i < count; i++) out_items[i] = Py_NewRef(items[i]);
  return true;
}

int wk__plain_unpack(wk__frame *f, PyObject *sequence, int count, int after, PyObject **out_items) {
  UNUSED_FRAME;
  if (after < 0 && unpack_exact(sequence, count, out_items)) return 0;
  PyObject *iterator = iter_to_unpack(sequence);
  if (!iterator) return -1;
  int taken = take_items(iterator, count, after, out_items), status = -1;
  if (taken == count) {
    status = after < 0 ? expect_end(iterator, count) : take_rest(iterator, count, after, out_items + count);
  }
  for (int i = 0; status < 0 && i < taken; i++) Py_DECREF(out_items[i]);
  Py_DECREF(iterator);
  return status;
}
