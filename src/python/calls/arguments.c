/* Between Python objects and the values of an operator call: numbers, sizes, results.
 * In: objects, borrowed. Out: values that borrow from them. Tests: tests/python/test_odd_arguments.py. */
#include "dynamo/cpython/gil.h"
#include "dynamo/dynamo.h"
#include "python/python.h"
#include "wick/operators.h"

/* PyTorch's error for an int of more than 64 bits. */
static int too_long(void) {
  if (PyErr_ExceptionMatches(PyExc_OverflowError))
    PyErr_SetString(PyExc_ValueError, "Overflow when unpacking long long");
  return -1;
}

int wk__int_from_python(wk__state *state, PyObject *o, wk_int *out) {
  if (WK_UNLIKELY(wk__thread.mode.keys_on & WK__KEY_TRACE) && wk__dynamo_int(o, out)) return 0;
  if (PyLong_CheckExact(o)) {
    int64_t v = PyLong_AsLongLong(o);
    if (v == -1 && PyErr_Occurred()) return too_long();
    *out = wk_int_of(v);
    return 0;
  }
  if (PyFloat_Check(o)) {
    PyErr_SetString(PyExc_TypeError, "'float' object cannot be interpreted as an integer");
    return -1;
  }
  (void)state;
  PyObject *index = PyNumber_Index(o);
  if (!index) return -1;
  int64_t v = PyLong_AsLongLong(index);
  Py_DECREF(index);
  if (v == -1 && PyErr_Occurred()) return too_long();
  *out = wk_int_of(v);
  return 0;
}

int wk__too_many_dims(void) {
  PyErr_Format(PyExc_RuntimeError, "only tensors with up to %d dims are supported", WK_MAX_DIMS);
  return -1;
}

int wk__ints_from_python(wk__state *state, PyObject *o, wk_int *out_list, bool single) {
  return wk__ints_up_to(state, o, out_list, single, WK_MAX_DIMS);
}

int wk__ints_up_to(wk__state *state, PyObject *o, wk_int *out_list, bool single, Py_ssize_t most) {
  if (single && !PyTuple_Check(o) && !PyList_Check(o)) return wk__int_from_python(state, o, out_list) < 0 ? -1 : 1;
  PyObject *fast = PySequence_Fast(o, "expected a sequence of integers");
  if (!fast) return -1;
  Py_ssize_t n = PySequence_Fast_GET_SIZE(fast);
  if (n > most) {
    Py_DECREF(fast);
    return wk__too_many_dims();
  }
  for (Py_ssize_t i = 0; i < n; i++)
    if (wk__int_from_python(state, PySequence_Fast_GET_ITEM(fast, i), &out_list[i]) < 0) {
      Py_DECREF(fast);
      return -1;
    }
  Py_DECREF(fast);
  return (int)n;
}

/* The element of a tensor as a number, for arguments that take numbers. */
static int scalar_from_tensor(wk__state *state, PyObject *o, wk_value *out) {
  const wk_tensor *t = wk__tensor_of(o);
  if (!t->storage || !wk_int_eq(t->numel, wk_int_of(1))) {
    PyErr_Format(PyExc_RuntimeError, "a Tensor with %lld elements cannot be converted to Scalar",
                 (long long)wk_int_guard_value(t->numel));
    return -1;
  }
  if (wk__realize((wk_tensor *)t, "a tensor's value is used as a number") != WK_OK) {
    wk__raise(state);
    return -1;
  }
  Py_complex number;
  if (wk__complex_from_python(state, o, &number) && number.imag != 0) {
    PyErr_SetString(PyExc_RuntimeError, "value cannot be converted to type double without overflow");
    return -1;
  }
  wk__scalar s;
  if (wk__read_element(t, &s) != WK_OK) {
    wk__raise(state);
    return -1;
  }
  if (s.category == WK__FLOAT_KIND)
    *out = (wk_value){.tag = WK_VALUE_DOUBLE, .number = s.d};
  else if (s.category == WK__BOOL_KIND)
    *out = (wk_value){.tag = WK_VALUE_BOOL, .boolean = s.i != 0};
  else
    *out = wk__value_of_int(s.i);
  return 0;
}

/* Beyond int64 a number is a uint64, as in PyTorch. */
static int unsigned_from_python(PyObject *o, bool negative, wk_value *out) {
  uint64_t bits = negative ? UINT64_MAX : PyLong_AsUnsignedLongLong(o);
  if (negative || (bits == UINT64_MAX && PyErr_Occurred())) {
    PyErr_SetString(PyExc_OverflowError,
                    negative ? "can't convert negative int to unsigned" : "int too big to convert");
    return -1;
  }
  *out = (wk_value){.tag = WK_VALUE_WIDE, .count = 1, .wide = (int64_t)bits};
  return 0;
}

int wk__scalar_from_python(wk__state *state, PyObject *o, wk_value *out) {
  if (PyFloat_Check(o)) {
    *out = (wk_value){.tag = WK_VALUE_DOUBLE, .number = PyFloat_AS_DOUBLE(o)};
    if (WK_UNLIKELY(wk__thread.mode.keys_on & WK__KEY_TRACE)) wk__dynamo_number(o, out);
    return 0;
  }
  if (PyBool_Check(o)) {
    *out = (wk_value){.tag = WK_VALUE_BOOL, .boolean = o == Py_True};
    return 0;
  }
  if (PyLong_Check(o)) {
    *out = (wk_value){.tag = WK_VALUE_INT};
    if (WK_UNLIKELY(wk__thread.mode.keys_on & WK__KEY_TRACE) && wk__dynamo_int(o, &out->integer)) return 0;
    int overflow;
    int64_t v = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (WK_UNLIKELY(overflow)) return unsigned_from_python(o, overflow < 0, out);
    *out = wk__value_of_int(v);
    return 0;
  }
  if (wk__is_tensor(state, o)) return scalar_from_tensor(state, o, out);
  if (PyIndex_Check(o)) {
    *out = (wk_value){.tag = WK_VALUE_INT};
    return wk__int_from_python(state, o, &out->integer);
  }
  double d = PyFloat_AsDouble(o); /* NumPy scalars and whatever has __float__ */
  if (d == -1 && PyErr_Occurred()) return -1;
  *out = (wk_value){.tag = WK_VALUE_DOUBLE, .number = d};
  return 0;
}

bool wk__complex_from_python(const wk__state *state, PyObject *o, Py_complex *out) {
  if (PyComplex_Check(o)) {
    *out = PyComplex_AsCComplex(o);
    return true;
  }
  const wk_tensor *t = wk__is_tensor(state, o) ? wk__tensor_of(o) : NULL;
  if (!t || !wk_dtype_is_complex((wk_dtype)t->dtype) || !t->storage) return false;
  char element[16];
  if (wk__realize((wk_tensor *)t, "a tensor's value is used as a number") != WK_OK) return false;
  if (wk__read_other(t, element) != WK_OK) return false;
  if (t->dtype == WK_COMPLEX128)
    *out = (Py_complex){((const double *)element)[0], ((const double *)element)[1]};
  else
    *out = (Py_complex){((const float *)element)[0], ((const float *)element)[1]};
  return true;
}

wk_tensor *wk__number_as_tensor(wk__state *state, const wk_value *number, const wk_tensor *beside) {
  if (number->tag == WK_VALUE_COMPLEX) {
    wk_tensor *made = wk_scalar_tensor(*number, wk__complex_dtype(wk__default_dtype()), (wk_value){0});
    if (!made) wk__raise(state);
    return made;
  }
  wk__scalar s = wk__value_scalar(number);
  wk_dtype own = s.category == WK__FLOAT_KIND ? wk__default_dtype() : s.category == WK__BOOL_KIND ? WK_BOOL : WK_INT64;
  wk_dtype dtype = !beside || wk__dtype_category((wk_dtype)beside->dtype) < s.category ? own : (wk_dtype)beside->dtype;
  bool changes = number->tag == WK_VALUE_INPUT; /* an input of the graph being captured */
  wk_tensor *t = changes ? wk_scalar_tensor(*number, dtype, (wk_value){0}) : wk_tensor_create(dtype, 0, NULL);
  if (!t) {
    wk__raise(state);
    return NULL;
  }
  if (changes) return t;
  wk__element_set(wk__host_data(t), dtype, s);
  if (wk__trace_constant(t) == WK_OK) return t;
  wk__release(t);
  wk__raise(state);
  return NULL;
}

static PyObject *tensors_to_tuple(wk__state *state, wk_value *list) {  // -> new
  PyObject *tuple = PyTuple_New((Py_ssize_t)list->count);
  for (uint32_t i = 0; tuple && i < list->count; i++) {
    PyObject *item = wk__wrap(state, list->tensors[i]);
    list->tensors[i] = NULL;
    if (!item) {
      Py_CLEAR(tuple);
      break;
    }
    PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, item);
  }
  wk_value_release(list);
  return tuple;
}

PyObject *wk__value_to_python(wk__state *state, wk_value *v) {  // -> new
  switch (v->tag) {
    case WK_VALUE_TENSOR:
      return wk__wrap(state, v->tensor);
    case WK_VALUE_TENSORS:
      return tensors_to_tuple(state, v);
    case WK_VALUE_INT:
      return PyLong_FromLongLong(wk_int_guard_value(v->integer));
    case WK_VALUE_WIDE:
      return v->count ? PyLong_FromUnsignedLongLong((uint64_t)v->wide) : PyLong_FromLongLong(v->wide);
    case WK_VALUE_DOUBLE:
    case WK_VALUE_INPUT:
      return PyFloat_FromDouble(v->number);
    case WK_VALUE_COMPLEX:
      return PyComplex_FromDoubles(v->numbers[0], v->numbers[1]);
    case WK_VALUE_BOOL:
      return PyBool_FromLong(v->boolean);
    case WK_VALUE_DTYPE:
      return wk__dtype_object(state, (wk_dtype)v->dtype);
    default:
      Py_RETURN_NONE;
  }
}

static PyObject *list_of_items(wk__state *state, const wk_value *v) {  // -> new
  PyObject *list = PyList_New((Py_ssize_t)v->count);
  for (uint32_t k = 0; list && k < v->count; k++) {
    wk_value item = wk__value_item(v, k);
    PyObject *object = wk__value_object(state, &item);
    if (object)
      PyList_SET_ITEM(list, (Py_ssize_t)k, object);
    else
      Py_CLEAR(list);
  }
  return list;
}

PyObject *wk__value_object(wk__state *state, const wk_value *v) {  // -> new
  wk_value copy = *v;
  if (v->tag == WK_VALUE_TENSOR) return v->tensor ? wk__wrap(state, wk__retain(v->tensor)) : Py_NewRef(Py_None);
  if (v->tag == WK_VALUE_DEVICE) return wk__device_object(state, v->device);
  if (v->tag == WK_VALUE_STRING) return PyUnicode_FromString(v->string);
  if (v->tag == WK_VALUE_GENERATOR) return Py_NewRef(Py_None);
  return wk__value_has_items(v) ? list_of_items(state, v) : wk__value_to_python(state, &copy);
}

/* ---- calling ---- */

enum { WORTH_RELEASING = 32768 }; /* elements from which other threads get the interpreter while we compute */

/* A tensor that is traced is not computed now. */
static int64_t elements_of(const wk_tensor *t) { return t && wk_int_is_known(t->numel) ? t->numel.bits : 0; }

static bool is_large(const wk_op *op, const wk_value *args) {
  int64_t elements = 0;
  WK__EACH_TENSOR(tensor, args, op->schema.parameter_count) elements += elements_of(tensor);
  return elements >= WORTH_RELEASING;
}

static PyObject *results_to_python(wk__state *state, const wk_op *op, wk_value *results) {  // -> new
  int count = op->schema.result_count;
  if (count == 1) return wk__value_to_python(state, &results[0]);
  if (count == 0) Py_RETURN_NONE;
  if (count == 2) {
    PyObject *first = wk__value_to_python(state, &results[0]);
    PyObject *second = first ? wk__value_to_python(state, &results[1]) : NULL;
    if (second) return wk__named_results(state, op, first, second);
    if (!first) wk_value_release(&results[1]);
    Py_XDECREF(first);
    return NULL;
  }
  PyObject *tuple = PyTuple_New(count);
  for (int r = 0; r < count; r++) {
    PyObject *item = tuple ? wk__value_to_python(state, &results[r]) : NULL;
    if (item)
      PyTuple_SET_ITEM(tuple, r, item);
    else
      Py_CLEAR(tuple);
    if (!tuple && !item) wk_value_release(&results[r]);
  }
  return tuple;
}

PyObject *wk__warned(PyObject *steal_result) {  // -> new
  const char *text = wk__thread.warning;
  wk__thread.warning = NULL;
  if (!text || !steal_result || PyErr_WarnEx(PyExc_UserWarning, text, 1) == 0) return steal_result;
  Py_DECREF(steal_result);
  return NULL;
}

PyObject *wk__call_to_python(wk__state *state, const wk_op *op, const wk_value *args,
                             wk_tensor *const *destinations) {  // -> new
  wk_value results[WK__MAX_RESULTS];
  memset(results, 0, sizeof results);
  wk_status status;
  wk__dynamo_count_call();
  wk__thread.warning = NULL; /* a warning of a call that is not the program's own, such as one in a compiled graph */
  if (WK_UNLIKELY(is_large(op, args)) && !(wk__thread.mode.keys_on & WK__KEY_TRACE)) { /* who traces looks at objects */
    wk__gil_give();
    status = wk_call(op, args, destinations, results);
    wk__gil_take_back();
  } else {
    status = wk_call(op, args, destinations, results);
  }
  if (status) return wk__raise(state);
  PyObject *result = results_to_python(state, op, results);
  return WK_UNLIKELY(wk__thread.warning != NULL) ? wk__warned(result) : result;
}
