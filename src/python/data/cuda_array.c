/* Tensors over arrays on CUDA devices that other libraries have, by __cuda_array_interface__ (versions 2 and 3): a dict
 * of shape, typestr, data, strides and stream.
 *
 * The tensor holds the object. What the dict says is checked but for the memory's length, which it does not say.
 * Arrays that have __dlpack__ too come by that. Tests: tests/cuda/test_sharing.py. */
#include "cuda/cuda.h"
#include "dynamo/cpython/gil.h"
#include "python/data/interop.h"

typedef struct cuda_array {
  wk_dtype dtype;
  int ndim;
  int64_t sizes[WK_MAX_DIMS], strides[WK_MAX_DIMS]; /* strides in elements */
  void *data;                                       /* NULL: there are no elements */
  bool has_strides, has_elements, waits;            /* waits: another stream may still be writing it */
} cuda_array;

static int bad(PyObject *type, const char *text) {
  PyErr_SetString(type, text);
  return -1;
}

static wk_dtype dtype_of(const char *text) {
  static const struct {
    char text[4];
    wk_dtype dtype;
  } known[] = {{"b1", WK_BOOL},      {"u1", WK_UINT8},       {"i1", WK_INT8},    {"i2", WK_INT16},
               {"i4", WK_INT32},     {"i8", WK_INT64},       {"u2", WK_UINT16},  {"u4", WK_UINT32},
               {"u8", WK_UINT64},    {"f2", WK_FLOAT16},     {"f4", WK_FLOAT32}, {"f8", WK_FLOAT64},
               {"c8", WK_COMPLEX64}, {"c16", WK_COMPLEX128}, {"V2", WK_BFLOAT16}};
  if (*text && strchr("<|=", *text))
    for (size_t i = 0; i < WK_COUNT(known); i++)
      if (!strcmp(known[i].text, text + 1)) return known[i].dtype;
  return WK_DTYPE_NONE;
}

static int read_type(PyObject *given, cuda_array *a) {
  if (!given) return bad(PyExc_TypeError, "attribute `typestr` must exist");
  const char *text = PyUnicode_Check(given) ? PyUnicode_AsUTF8(given) : NULL;
  if (!text) return PyErr_Occurred() ? -1 : bad(PyExc_TypeError, "`typestr` must be a string");
  a->dtype = dtype_of(text);
  if (a->dtype != WK_DTYPE_NONE) return 0;
  if (*text == '>')
    return bad(PyExc_ValueError, "given array has a byte order other than the machine's, which is not supported");
  PyErr_Format(PyExc_TypeError, "arrays of type '%s' are not supported", text);
  return -1;
}

/* -1 with an exception; else how many. */
static int read_numbers(PyObject *given, const char *problem, int64_t *out) {
  if (!PySequence_Check(given) || PyUnicode_Check(given)) return bad(PyExc_TypeError, problem);
  Py_ssize_t count = PySequence_Size(given);
  if (count < 0) return -1;
  if (count > WK_MAX_DIMS) {
    PyErr_Format(PyExc_ValueError, "only tensors with up to %d dims are supported", WK_MAX_DIMS);
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *item = PySequence_GetItem(given, i), *number = item ? PyNumber_Index(item) : NULL;
    out[i] = number ? PyLong_AsLongLong(number) : -1;
    Py_XDECREF(number);
    Py_XDECREF(item);
    if (PyErr_Occurred()) return PyErr_ExceptionMatches(PyExc_TypeError) ? bad(PyExc_TypeError, problem) : -1;
  }
  return (int)count;
}

static int read_shape(PyObject *given, cuda_array *a) {
  if (!given) return bad(PyExc_TypeError, "attribute `shape` must exist");
  a->ndim = read_numbers(given, "`shape` must be a sequence of ints", a->sizes);
  a->has_elements = true;
  for (int d = 0; d < a->ndim; d++) {
    if (a->sizes[d] < 0) return bad(PyExc_ValueError, "`shape` must not have negative sizes");
    a->has_elements &= a->sizes[d] != 0;
  }
  return a->ndim < 0 ? -1 : 0;
}

static int read_strides(PyObject *given, cuda_array *a) {
  if (!given || given == Py_None) return 0;
  a->has_strides = true;
  int count = read_numbers(given, "`strides` must be a sequence of ints", a->strides);
  if (count < 0) return -1;
  if (count != a->ndim) return bad(PyExc_TypeError, "strides must be a sequence of the same length as shape");
  int64_t bytes = (int64_t)wk_dtype_size(a->dtype);
  for (int d = 0; d < count; d++) {
    if (a->strides[d] % bytes)
      return bad(PyExc_ValueError,
                 "given array strides not a multiple of the element byte size. Make a copy of the array to reallocate "
                 "the memory.");
    if (a->strides[d] < 0)
      return bad(PyExc_ValueError, "tensors with negative strides are not supported; copy the array first");
    a->strides[d] /= bytes;
  }
  return 0;
}

static int read_data(PyObject *given, cuda_array *a) {
  if (!given) return bad(PyExc_TypeError, "attribute `data` must exist");
  if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) != 2)
    return bad(PyExc_TypeError, "`data` must be a 2-tuple of (int, bool)");
  int is_read_only = PyObject_IsTrue(PyTuple_GET_ITEM(given, 1));
  if (is_read_only)
    return is_read_only < 0 ? -1 : bad(PyExc_TypeError, "the read only flag is not supported, should always be False");
  a->data = PyLong_AsVoidPtr(PyTuple_GET_ITEM(given, 0));
  if (PyErr_Occurred()) return bad(PyExc_TypeError, "`data` must be a 2-tuple of (int, bool)");
  if (!a->data && a->has_elements) return bad(PyExc_ValueError, "the array has elements but no memory");
  return 0;
}

static int read_all(PyObject *given, cuda_array *a) {
  if (!PyDict_Check(given)) return bad(PyExc_TypeError, "`__cuda_array_interface__` must be a dict");
  PyObject *stream = PyDict_GetItemString(given, "stream");
  a->waits = stream && stream != Py_None;
  if (read_type(PyDict_GetItemString(given, "typestr"), a) < 0) return -1;
  if (read_shape(PyDict_GetItemString(given, "shape"), a) < 0) return -1;
  if (read_strides(PyDict_GetItemString(given, "strides"), a) < 0) return -1;
  return read_data(PyDict_GetItemString(given, "data"), a);
}

/* On any thread. After the interpreter's end the object is gone. */
static void let_go(void *object) {
  wk__gil gil = wk__gil_hold();
  if (gil.alive) Py_DECREF((PyObject *)object);
  wk__gil_drop(gil);
}

/* The index of the device; what another stream writes is there when this returns. -1 with an exception. */
static int device_of(const cuda_array *a) {
  int index = a->data ? wk__cuda_device_at(a->data) : wk__device_current(WK_CUDA);
  wk_status status = WK_OK;
  if (index >= 0 && a->waits) {
    Py_BEGIN_ALLOW_THREADS status = wk__cuda_synchronize_all(index);
    Py_END_ALLOW_THREADS
  }
  if (index >= 0 && status == WK_OK) return index;
  wk__raise(NULL);
  return -1;
}

wk_tensor *wk__tensor_over_cuda_array(PyObject *o) {
  cuda_array a = {0};
  PyObject *given = PyObject_GetAttrString(o, "__cuda_array_interface__");
  int index = given && read_all(given, &a) == 0 ? device_of(&a) : -1;
  Py_XDECREF(given);
  if (index < 0) return NULL;
  wk_tensor *t = wk__tensor_over_memory(a.data, a.dtype, a.ndim, a.sizes, a.has_strides ? a.strides : NULL, let_go, o);
  if (!t) wk__raise(NULL);
  if (!t || !(t = wk__tensor_on_cuda(t, index))) return NULL;
  Py_INCREF(o);
  return t;
}
