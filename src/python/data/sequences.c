/* torch.tensor of nested sequences: sizes from the first items, dtype from all of them, then one store a number.
 *
 * In: lists, tuples and whatever else is a sequence, of numbers, one-element tensors and NumPy scalars. Out: a
 * contiguous tensor on the CPU. Invariant: a sequence may run Python code while it is read (__len__, __index__, ...),
 * so lengths are looked at again at every step and items are held while they are used. Tests:
 * tests/python/test_interop.py. */
#include "python/data/interop.h"

#include <math.h>

typedef struct reader {
  wk__state *state;
  wk_dtype dtype; /* what is inferred or stored */
  int ndim;
  int64_t sizes[WK_MAX_DIMS];
} reader;

static wk_dtype default_complex(void) { return wk__default_dtype() == WK_FLOAT64 ? WK_COMPLEX128 : WK_COMPLEX64; }

/* ==================================================== elements ================================================== */

PyObject *wk__element_to_python(const void *element, wk_dtype dtype) {  // -> new
  if (dtype == WK_COMPLEX64) return PyComplex_FromDoubles(((const float *)element)[0], ((const float *)element)[1]);
  if (dtype == WK_COMPLEX128) return PyComplex_FromDoubles(((const double *)element)[0], ((const double *)element)[1]);
  wk__scalar s = wk__element_get(element, dtype);
  if (s.category == WK__BOOL_KIND) return PyBool_FromLong(s.i != 0);
  if (s.is_unsigned) return PyLong_FromUnsignedLongLong((uint64_t)s.i);
  return s.category == WK__INTEGER_KIND ? PyLong_FromLongLong(s.i) : PyFloat_FromDouble(s.d);
}

PyObject *wk__item_to_python(wk__state *state, const wk_tensor *t) {  // -> new
  char element[16];
  if (wk__read_other(t, element) != WK_OK) return wk__raise(state);
  return wk__element_to_python(element, (wk_dtype)t->dtype);
}

static int overflow(wk_dtype dtype) {
  PyErr_Format(PyExc_RuntimeError, "value cannot be converted to type %s without overflow", wk_dtype_name(dtype));
  return -1;
}

static int integer_bits(wk_dtype dtype) { return (int)(8 * wk_dtype_size(dtype)); }

/* Unsigned dtypes also take the negatives of what they hold, which wrap around: PyTorch's rule. */
static bool integer_fits(int64_t value, wk_dtype dtype) {
  int64_t end = dtype == WK_INT64 ? 0 : INT64_C(1) << integer_bits(dtype); /* of as many bits */
  if (wk__dtype_is_unsigned(dtype)) return value > -end && value < end;
  return !end || (value >= -end / 2 && value < end / 2);
}

static bool float_fits(double value, wk_dtype dtype) {
  bool is_unsigned = wk__dtype_is_unsigned(dtype);
  double end = ldexp(1, integer_bits(dtype) - !is_unsigned); /* the first integer that is too large */
  double most = dtype == WK_INT64 ? nextafter(end, 0) : end - 1;
  return value >= (is_unsigned ? 0 : -end) && value <= most;
}

static int store_uint64(char *at, PyObject *number) {
  uint64_t value = PyLong_AsUnsignedLongLong(number);
  if (value == UINT64_MAX && PyErr_Occurred()) return -1;
  memcpy(at, &value, sizeof value);
  return 0;
}

static int store_integer(char *at, wk_dtype dtype, PyObject *number) {
  if (dtype == WK_UINT64) return store_uint64(at, number);
  if (PyFloat_Check(number)) {
    double value = PyFloat_AS_DOUBLE(number);
    if (!float_fits(value, dtype)) return overflow(dtype);
    wk__element_set(at, dtype, (wk__scalar){WK__INTEGER_KIND, .i = (int64_t)value});
    return 0;
  }
  int too_large;
  int64_t value = PyLong_AsLongLongAndOverflow(number, &too_large);
  if (value == -1 && PyErr_Occurred()) return -1;
  if (too_large) {
    PyErr_SetString(PyExc_ValueError, "Overflow when unpacking long long");
    return -1;
  }
  if (!integer_fits(value, dtype)) return overflow(dtype);
  wk__element_set(at, dtype, (wk__scalar){WK__INTEGER_KIND, .i = value});
  return 0;
}

static int store_float(char *at, wk_dtype dtype, PyObject *number) {
  double value = PyFloat_AsDouble(number);
  if (value == -1 && PyErr_Occurred()) return -1;
  wk__element_set(at, dtype, (wk__scalar){WK__FLOAT_KIND, .d = value});
  return 0;
}

static int store_complex(char *at, wk_dtype dtype, PyObject *number) {
  Py_complex value = PyComplex_AsCComplex(number);
  if (value.real == -1 && PyErr_Occurred()) return -1;
  if (dtype == WK_COMPLEX64)
    memcpy(at, (float[]){(float)value.real, (float)value.imag}, 2 * sizeof(float));
  else
    memcpy(at, (double[]){value.real, value.imag}, 2 * sizeof(double));
  return 0;
}

static int store_bool(char *at, PyObject *number) {
  if (!PyNumber_Check(number)) {
    PyErr_Format(PyExc_TypeError, "'%s' object cannot be interpreted as an integer", Py_TYPE(number)->tp_name);
    return -1;
  }
  int truth = PyObject_IsTrue(number);
  *(uint8_t *)at = truth > 0;
  return truth < 0 ? -1 : 0;
}

static int store_number(char *at, wk_dtype dtype, PyObject *number) {
  switch (wk__dtype_category(dtype)) {
    case WK__BOOL_KIND:
      return store_bool(at, number);
    case WK__INTEGER_KIND:
      return store_integer(at, dtype, number);
    case WK__FLOAT_KIND:
      return store_float(at, dtype, number);
    default:
      return store_complex(at, dtype, number);
  }
}

static bool is_python_number(PyObject *o) { return PyFloat_Check(o) || PyLong_Check(o) || PyComplex_Check(o); }

/* The number that a leaf of the sequences stands for. */
static PyObject *leaf_number(const reader *r, PyObject *leaf) {  // -> new
  if (is_python_number(leaf)) return Py_NewRef(leaf);
  if (wk__is_tensor(r->state, leaf)) {
    const wk_tensor *t = wk__tensor_of(leaf);
    if (!wk_int_is_known(t->numel) || wk__numel(t) != 1)
      return PyErr_Format(PyExc_ValueError, "only one element tensors can be converted to Python scalars");
    if (wk__check_readable(r->state, t, WK_RUNTIME_ERROR, "Tensor.item() cannot be called on meta tensors") < 0)
      return NULL;
    return wk__item_to_python(r->state, t);
  }
  return wk__is_array_scalar(leaf) ? PyObject_CallMethod(leaf, "item", NULL) : Py_NewRef(leaf);
}

static int store_leaf(const reader *r, char *at, PyObject *leaf) {
  PyObject *number = leaf_number(r, leaf);
  int status = number ? store_number(at, r->dtype, number) : -1;
  Py_XDECREF(number);
  return status;
}

/* ==================================================== sequences ================================================= */

/* A tensor is a leaf, whatever its shape. */
static bool is_sequence(const reader *r, PyObject *o) {
  if (PyList_CheckExact(o) || PyTuple_CheckExact(o)) return true;
  return PySequence_Check(o) && !wk__is_tensor(r->state, o);
}

/* The items as a list or tuple. NumPy arrays as Python numbers, which are faster to read than its scalars. */
static PyObject *items_of(PyObject *o) {  // -> new
  if (PyList_CheckExact(o) || PyTuple_CheckExact(o)) return Py_NewRef(o);
  return wk__is_array(o) ? PyObject_CallMethod(o, "tolist", NULL) : PySequence_Fast(o, "not a sequence");
}

/* The sizes that the first items say; a string is its own first item without end. */
static int find_sizes(reader *r, PyObject *data) {
  PyObject *at = Py_NewRef(data);
  while (at && is_sequence(r, at)) {
    Py_ssize_t length = PySequence_Size(at);
    if (length >= 0 && r->ndim == WK_MAX_DIMS)
      PyErr_Format(PyExc_ValueError, "too many dimensions '%s'", Py_TYPE(at)->tp_name);
    if (length < 0 || r->ndim == WK_MAX_DIMS) {
      Py_DECREF(at);
      return -1;
    }
    r->sizes[r->ndim++] = length;
    if (length == 0) break;
    Py_SETREF(at, PySequence_GetItem(at, 0));
  }
  Py_XDECREF(at);
  return at ? 0 : -1;
}

/* ---- dtype ---- */

static void widen(reader *r, wk_dtype dtype) {
  r->dtype = r->dtype == WK_DTYPE_NONE ? dtype : wk__promote(r->dtype, dtype);
}

static wk_dtype quick_dtype(PyObject *o) {
  if (PyFloat_CheckExact(o)) return wk__default_dtype();
  if (PyLong_CheckExact(o)) return WK_INT64;
  return PyBool_Check(o) ? WK_BOOL : WK_DTYPE_NONE;
}

/* NumPy first: its float64 is a float, its complex128 a complex. WK_DTYPE_NONE with an exception. */
static wk_dtype leaf_dtype(const reader *r, PyObject *o) {
  if (quick_dtype(o) != WK_DTYPE_NONE) return quick_dtype(o);
  if (wk__is_tensor(r->state, o)) return (wk_dtype)wk__tensor_of(o)->dtype;
  if (wk__is_array_scalar(o) || wk__is_array(o)) return wk__array_dtype(o);
  if (PyFloat_Check(o)) return wk__default_dtype();
  if (PyLong_Check(o)) return WK_INT64;
  if (PyComplex_Check(o)) return default_complex();
  if (PyUnicode_Check(o) || PyBytes_Check(o))
    PyErr_Format(PyExc_TypeError, "new(): invalid data type '%s'", Py_TYPE(o)->tp_name);
  else
    PyErr_Format(PyExc_RuntimeError, "Could not infer dtype of %s", Py_TYPE(o)->tp_name);
  return WK_DTYPE_NONE;
}

static int infer(reader *r, PyObject *o, int dim);

static int infer_items(reader *r, PyObject *items, int dim) {
  if (PySequence_Fast_GET_SIZE(items) == 0) widen(r, wk__default_dtype());
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); i++) {
    PyObject *item = PySequence_Fast_GET_ITEM(items, i);
    wk_dtype quick = quick_dtype(item);
    if (quick != WK_DTYPE_NONE) {
      if (quick != r->dtype) widen(r, quick);
      continue;
    }
    Py_INCREF(item);
    int status = infer(r, item, dim + 1);
    Py_DECREF(item);
    if (status < 0) return -1;
  }
  return 0;
}

/* Does not mind sequences of wrong lengths or depths: the store does. */
static int infer(reader *r, PyObject *o, int dim) {
  bool deeper = is_sequence(r, o) && !PyUnicode_Check(o) && !PyBytes_Check(o);
  if (deeper && dim >= r->ndim) return 0;
  if (!deeper || wk__is_array(o)) {
    wk_dtype dtype = leaf_dtype(r, o);
    if (dtype != WK_DTYPE_NONE) widen(r, dtype);
    return dtype == WK_DTYPE_NONE ? -1 : 0;
  }
  PyObject *items = items_of(o);
  int status = items ? infer_items(r, items, dim) : -1;
  Py_XDECREF(items);
  return status;
}

/* ---- values ---- */

static int store(const reader *r, PyObject *o, int dim, char **at);

/* One number; the pairs that lists usually hold without a call. */
static inline int store_item(const reader *r, PyObject *item, char *at) {
  if (PyFloat_CheckExact(item) && r->dtype == WK_FLOAT32) {
    *(float *)at = (float)PyFloat_AS_DOUBLE(item);
    return 0;
  }
  if (PyFloat_CheckExact(item) && r->dtype == WK_FLOAT64) {
    *(double *)at = PyFloat_AS_DOUBLE(item);
    return 0;
  }
  if (PyLong_CheckExact(item) && r->dtype == WK_INT64) {
    int too_large;
    *(int64_t *)at = PyLong_AsLongLongAndOverflow(item, &too_large);
    if (!too_large) return 0;
  }
  Py_INCREF(item);
  int status = store_leaf(r, at, item);
  Py_DECREF(item);
  return status;
}

static int wrong_length(const reader *r, int dim, Py_ssize_t got) {
  PyErr_Format(PyExc_ValueError, "expected sequence of length %lld at dim %d (got %zd)", (long long)r->sizes[dim], dim,
               got);
  return -1;
}

static int store_items(const reader *r, PyObject *items, int dim, char **at) {
  int64_t count = r->sizes[dim];
  for (int64_t i = 0; i < count; i++) {
    Py_ssize_t length = PySequence_Fast_GET_SIZE(items);
    if (length != count) return wrong_length(r, dim, length);
    PyObject *item = PySequence_Fast_GET_ITEM(items, i);
    if (dim == r->ndim - 1) {
      if (store_item(r, item, *at) < 0) return -1;
      *at += wk_dtype_size(r->dtype);
      continue;
    }
    Py_INCREF(item);
    int status = store(r, item, dim + 1, at);
    Py_DECREF(item);
    if (status < 0) return -1;
  }
  Py_ssize_t length = PySequence_Fast_GET_SIZE(items);
  return length == count ? 0 : wrong_length(r, dim, length);
}

/* Stores what is in `o`, dims `dim` and on, and moves *at behind it. */
static int store(const reader *r, PyObject *o, int dim, char **at) {
  if (dim == r->ndim) return store_leaf(r, *at, o);
  if (!is_sequence(r, o)) {
    PyErr_SetString(PyExc_TypeError, "not a sequence");
    return -1;
  }
  PyObject *items = items_of(o);
  int status = items ? store_items(r, items, dim, at) : -1;
  Py_XDECREF(items);
  return status;
}

wk_tensor *wk__tensor_from_sequence(wk__state *state, PyObject *data, wk_dtype dtype) {
  reader r = {.state = state, .dtype = dtype};
  if (PyUnicode_Check(data)) {
    PyErr_Format(PyExc_TypeError, "new(): invalid data type '%s'", Py_TYPE(data)->tp_name);
    return NULL;
  }
  if (find_sizes(&r, data) < 0 || (dtype == WK_DTYPE_NONE && infer(&r, data, 0) < 0)) return NULL;
  wk_tensor *t = wk_tensor_create(r.dtype, r.ndim, r.sizes);
  if (!t) {
    wk__raise(state);
    return NULL;
  }
  char *at = wk__host_data(t);
  int stored = store(&r, data, 0, &at);
  if (stored == 0 && wk__trace_constant(t) == WK_OK) return t;
  if (stored == 0) wk__raise(state);
  wk__release(t);
  return NULL;
}
