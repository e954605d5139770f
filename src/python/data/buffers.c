/* Memory shared with Python's other libraries: NumPy arrays and buffers as tensors, tensors as buffers and arrays.
 *
 * NumPy is neither compiled against nor imported unless a program asks for an array: arrays are read through
 * __array_struct__, its stable C struct, and made with numpy.asarray over our buffer. Nothing is copied here.
 * Invariant: a tensor over foreign memory holds the object that owns it, and a buffer that we gave away holds the
 * storage, not the tensor, which may be given other memory. Tests: tests/python/test_interop.py. */
#include <stdatomic.h>

#include "autograd/autograd.h"
#include "dynamo/cpython/gil.h"
#include "python/data/interop.h"

/* ============================================ memory that objects own =========================================== */

typedef struct owner {
  PyObject *object; /* owned; NULL when the view holds it */
  Py_buffer view;   /* when has_view */
  bool has_view;
} owner;

static owner *owner_create(void) {
  owner *o = PyMem_RawCalloc(1, sizeof *o);
  if (!o) PyErr_NoMemory();
  return o;
}

static void owner_clear(owner *o) {
  if (o->has_view) PyBuffer_Release(&o->view);
  Py_XDECREF(o->object);
  PyMem_RawFree(o);
}

/* A storage ends on any thread. After the interpreter's end its objects are gone: then the memory stays. */
static void owner_release(void *context) {
  wk__gil gil = wk__gil_hold();
  if (gil.alive) owner_clear(context);
  wk__gil_drop(gil);
}

wk_tensor *wk__tensor_over_memory(void *data, wk_dtype dtype, int ndim, const int64_t *sizes, const int64_t *strides,
                                  void (*release)(void *), void *context) {
  wk_tensor *t = wk_tensor_from_memory(data, dtype, ndim, sizes, strides, NULL, NULL);
  if (!t) return NULL;
  t->storage->release = release;
  t->storage->context = context;
  return t;
}

static int warn_once(atomic_flag *warned, const char *text) {
  return atomic_flag_test_and_set(warned) ? 0 : PyErr_WarnEx(PyExc_UserWarning, text, 1);
}

/* ================================================= NumPy arrays ================================================= */

/* NumPy's PyArrayInterface, version 2: what an __array_struct__ capsule points to. */
typedef struct array_struct {
  int two, ndim;
  char kind; /* 'f', 'i', 'u', 'b', 'c', ... */
  int itemsize;
  int flags;
  Py_ssize_t *shape, *strides; /* (ndim), strides in bytes */
  void *data;
  PyObject *description;
} array_struct;
enum { ARRAY_NATIVE_ORDER = 0x200, ARRAY_WRITEABLE = 0x400 };

static PyObject *loaded_numpy(void) {  // -> new, NULL without an exception when NumPy is not loaded
  PyObject *name = PyUnicode_InternFromString("numpy"), *numpy = name ? PyImport_GetModule(name) : NULL;
  Py_XDECREF(name);
  PyErr_Clear();
  return numpy;
}

/* Whether o is an instance of a class of NumPy, without importing it. Most objects show by their type that they are
 * not. */
static bool is_numpy(PyObject *o, const char *class) {
  if (strncmp(Py_TYPE(o)->tp_name, "numpy.", 6) != 0 && !PyObject_CheckBuffer(o)) return false;
  PyObject *numpy = loaded_numpy(), *type = numpy ? PyObject_GetAttrString(numpy, class) : NULL;
  int result = type ? PyObject_IsInstance(o, type) : 0;
  Py_XDECREF(type);
  Py_XDECREF(numpy);
  PyErr_Clear();
  return result > 0;
}
bool wk__is_array(PyObject *o) {
  PyTypeObject *type = Py_TYPE(o);
  if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) && strcmp(type->tp_name, "numpy.ndarray") == 0) return true;
  return is_numpy(o, "ndarray");
}
bool wk__is_array_scalar(PyObject *o) { return is_numpy(o, "generic"); }

/* The array's description; valid while *out_capsule, owned by the caller, lives. */
static const array_struct *describe(PyObject *array, PyObject **out_capsule) {
  *out_capsule = PyObject_GetAttrString(array, "__array_struct__");
  const array_struct *a = *out_capsule ? PyCapsule_GetPointer(*out_capsule, NULL) : NULL;
  if (a && a->two == 2) return a;
  Py_CLEAR(*out_capsule);
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "invalid __array_struct__");
  return NULL;
}

static void unsupported_array(PyObject *array) {
  PyObject *dtype = PyObject_GetAttrString(array, "dtype"),
           *type = dtype ? PyObject_GetAttrString(dtype, "type") : NULL;
  if (type)
    PyErr_Format(PyExc_TypeError,
                 "can't convert np.ndarray of type %s. The only supported types are: float64, float32, float16, "
                 "complex64, complex128, int64, int32, int16, int8, uint8, and bool.",
                 PyType_Check(type) ? ((PyTypeObject *)type)->tp_name : "object");
  Py_XDECREF(dtype);
  Py_XDECREF(type);
}

static wk_dtype dtype_of_struct(PyObject *array, const array_struct *a) {
  for (int d = 0; d < WK_DTYPE_COUNT; d++) {
    const char *numpy = wk__dtypes[d].numpy;
    if (numpy && numpy[0] == a->kind && atoi(numpy + 1) == a->itemsize) return (wk_dtype)d;
  }
  unsupported_array(array);
  return WK_DTYPE_NONE;
}

wk_dtype wk__array_dtype(PyObject *array) {
  PyObject *capsule;
  const array_struct *a = describe(array, &capsule);
  wk_dtype dtype = a ? dtype_of_struct(array, a) : WK_DTYPE_NONE;
  Py_XDECREF(capsule);
  return dtype;
}

typedef struct geometry {
  int64_t sizes[WK_MAX_DIMS], strides[WK_MAX_DIMS];
} geometry;

/* Strides in elements. PyTorch has no negative ones. */
static int array_geometry(const array_struct *a, geometry *g) {
  if (!(a->flags & ARRAY_NATIVE_ORDER) && a->itemsize > 1)
    PyErr_SetString(PyExc_ValueError,
                    "given numpy array has byte order different from the native byte order. Conversion between byte "
                    "orders is currently not supported.");
  else if (a->ndim > WK_MAX_DIMS)
    PyErr_Format(PyExc_ValueError, "only tensors with up to %d dims are supported", WK_MAX_DIMS);
  for (int d = 0; d < a->ndim && !PyErr_Occurred(); d++) {
    g->sizes[d] = a->shape[d];
    g->strides[d] = a->strides[d] / a->itemsize;
    if (a->strides[d] % a->itemsize)
      PyErr_SetString(PyExc_ValueError,
                      "given numpy array strides not a multiple of the element byte size. Copy the "
                      "numpy array to reallocate the memory.");
  }
  for (int d = 0; d < a->ndim && !PyErr_Occurred(); d++)
    if (g->strides[d] < 0)
      PyErr_SetString(PyExc_ValueError,
                      "At least one stride in the given numpy array is negative, and tensors with negative strides "
                      "are not currently supported. (You can probably work around this by making a copy of your array "
                      " with array.copy().) ");
  return PyErr_Occurred() ? -1 : 0;
}

/* Takes the owner, which may be NULL: then no owner is held. */
static wk_tensor *over_struct(PyObject *array, const array_struct *a, owner *steal_owner) {
  geometry g;
  wk_dtype dtype = dtype_of_struct(array, a);
  wk_tensor *t = NULL;
  if (dtype != WK_DTYPE_NONE && array_geometry(a, &g) == 0) {
    t = wk__tensor_over_memory(a->data, dtype, a->ndim, g.sizes, g.strides, steal_owner ? owner_release : NULL,
                               steal_owner);
    if (!t) wk__raise(NULL);
  }
  if (!t && steal_owner) owner_clear(steal_owner);
  return t;
}

int wk__warn_read_only_array(void) {
  static atomic_flag warned = ATOMIC_FLAG_INIT;
  return warn_once(
      &warned,
      "The given NumPy array is not writable, and PyTorch does not support non-writable tensors. This means "
      "writing to this tensor will result in undefined behavior. You may want to copy the array to protect "
      "its data or make it writable before converting it to a tensor. This type of warning will be "
      "suppressed for the rest of this program.");
}

wk_tensor *wk__tensor_over_array(PyObject *array, bool keep) {
  PyObject *capsule;
  const array_struct *a = describe(array, &capsule);
  if (!a) return NULL;
  wk_tensor *t = NULL;
  owner *holder = NULL;
  if (keep && !(a->flags & ARRAY_WRITEABLE) && wk__warn_read_only_array() < 0) goto done;
  if (keep) {
    if (!(holder = owner_create())) goto done;
    holder->object = Py_NewRef(array);
  }
  t = over_struct(array, a, holder);
done:
  Py_DECREF(capsule);
  return t;
}

PyObject *wk__from_numpy(PyObject *module, PyObject *array) {  // -> new
  if (!wk__is_array(array))
    return PyErr_Format(PyExc_TypeError, "expected np.ndarray (got %s)", Py_TYPE(array)->tp_name);
  wk_tensor *t = wk__tensor_over_array(array, true);
  wk__mark_if_inference(t);
  return t ? wk__wrap(wk__state_of_module(module), t) : NULL;
}

/* ==================================================== buffers =================================================== */

static int warn_read_only_buffer(void) {
  static atomic_flag warned = ATOMIC_FLAG_INIT;
  return warn_once(
      &warned,
      "The given buffer is not writable, and PyTorch does not support non-writable tensors. This means you "
      "can write to the underlying (supposedly non-writable) buffer using the tensor. You may want to copy "
      "the buffer to protect its data or make it writable before converting it to a tensor. This type of "
      "warning will be suppressed for the rest of this program.");
}

/* Holds the bytes of an object; a read-only one with a warning, or not at all. NULL with an exception. */
static owner *owner_of_buffer(PyObject *o, bool accept_read_only) {
  if (!PyObject_CheckBuffer(o)) {
    PyErr_SetString(PyExc_ValueError, "object does not implement Python buffer protocol.");
    return NULL;
  }
  owner *result = owner_create();
  if (!result) return NULL;
  int status = PyObject_GetBuffer(o, &result->view, PyBUF_WRITABLE);
  if (status < 0 && accept_read_only) {
    PyErr_Clear();
    status = warn_read_only_buffer() < 0 ? -1 : PyObject_GetBuffer(o, &result->view, PyBUF_SIMPLE);
  }
  result->has_view = status == 0;
  if (status == 0) return result;
  owner_clear(result);
  return NULL;
}

/* Elements from `offset` on, -1 with PyTorch's exceptions. */
static int64_t count_elements(int64_t length, int64_t itemsize, int64_t count, int64_t offset) {
  if (length <= 0 || count == 0)
    PyErr_Format(PyExc_ValueError, "both buffer length (%lld) and count (%lld) must not be 0", (long long)length,
                 (long long)count);
  else if (offset < 0 || offset >= length)
    PyErr_Format(PyExc_ValueError,
                 "offset (%lld bytes) must be non-negative and no greater than buffer length (%lld bytes) minus 1",
                 (long long)offset, (long long)length);
  else if (count < 0 && (length - offset) % itemsize)
    PyErr_Format(PyExc_ValueError,
                 "buffer length (%lld bytes) after offset (%lld bytes) must be a multiple of element size (%lld)",
                 (long long)(length - offset), (long long)offset, (long long)itemsize);
  else if (count < 0)
    return (length - offset) / itemsize;
  else if (count > (length - offset) / itemsize)
    PyErr_Format(
        PyExc_ValueError,
        "requested buffer length (%lld * %lld bytes) after offset (%lld bytes) must not be greater than actual "
        "buffer length (%lld bytes)",
        (long long)count, (long long)itemsize, (long long)offset, (long long)length);
  else
    return count;
  return -1;
}

wk_tensor *wk__tensor_over_buffer(PyObject *o, wk_dtype dtype, int64_t count, int64_t offset) {
  owner *holder = owner_of_buffer(o, true);
  if (!holder) return NULL;
  int64_t elements = count_elements(holder->view.len, (int64_t)wk_dtype_size(dtype), count, offset);
  wk_tensor *t = NULL;
  if (elements >= 0) {
    t = wk__tensor_over_memory((char *)holder->view.buf + offset, dtype, 1, &elements, NULL, owner_release, holder);
    if (!t) wk__raise(NULL);
  }
  if (!t) owner_clear(holder);
  return t;
}

wk_storage *wk__storage_over_buffer(PyObject *o) {
  owner *holder = owner_of_buffer(o, false);
  if (!holder) return NULL;
  wk_storage *storage = wk__storage_from_memory(holder->view.buf, holder->view.len, owner_release, holder);
  if (storage) return storage;
  owner_clear(holder);
  wk__raise(NULL);
  return NULL;
}

static int integer_argument(PyObject *o, int64_t *out) {
  if (!o) return 0;
  *out = PyLong_AsLongLong(o);
  return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

PyObject *wk__from_buffer(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  static const wk__signature signature = {"frombuffer", 2, 1, {"buffer", "dtype", "count", "offset", "requires_grad"}};
  enum { BUFFER, DTYPE, COUNT, OFFSET, REQUIRES_GRAD, GIVEN };
  PyObject *given[GIVEN];
  wk__state *state = wk__state_of_module(module);
  wk_dtype dtype = WK_DTYPE_NONE;
  int64_t count = -1, offset = 0;
  bool requires_grad = false;
  if (wk__bind(&signature, args, n, keywords, given) < 0 ||
      wk__dtype_argument(state, "frombuffer", "dtype", given[DTYPE], &dtype) < 0 ||
      integer_argument(given[COUNT], &count) < 0 || integer_argument(given[OFFSET], &offset) < 0 ||
      wk__bool_argument("frombuffer", "requires_grad", given[REQUIRES_GRAD], &requires_grad) < 0)
    return NULL;
  if (dtype == WK_DTYPE_NONE)
    return PyErr_Format(PyExc_TypeError, "frombuffer(): argument 'dtype' must be torch.dtype, not NoneType");
  wk_tensor *t = wk__tensor_over_buffer(given[BUFFER], dtype, count, offset);
  if (!t) return NULL;
  wk__mark_if_inference(t);
  if (!requires_grad || wk_set_requires_grad(t, true) == WK_OK) return wk__wrap(state, t);
  wk__release(t);
  return wk__raise(state);
}

/* ============================================== tensors as buffers ============================================== */

/* What a buffer of ours holds. */
typedef struct exported {
  wk_storage *storage; /* owned, pinned */
  Py_ssize_t dims[];   /* (2 ndim) sizes, then strides in bytes */
} exported;

/* The struct module's codes; 'l' because NumPy's int64 is a long. NULL: no other library has the dtype. */
static const char *const formats[WK_DTYPE_COUNT] = {
    [WK_BOOL] = "?",    [WK_UINT8] = "B",   [WK_INT8] = "b",       [WK_INT16] = "h",      [WK_INT32] = "i",
    [WK_INT64] = "l",   [WK_UINT16] = "H",  [WK_UINT32] = "I",     [WK_UINT64] = "L",     [WK_FLOAT16] = "e",
    [WK_FLOAT32] = "f", [WK_FLOAT64] = "d", [WK_COMPLEX64] = "Zf", [WK_COMPLEX128] = "Zd"};

#define NUMPY_OF_GRAD "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."

static exported *export_create(const wk_tensor *t) {
  exported *e = PyMem_Malloc(sizeof *e + 2 * t->ndim * sizeof *e->dims);
  if (!e) {
    PyErr_NoMemory();
    return NULL;
  }
  e->storage = wk__storage_retain(t->storage);
  wk__storage_pin(e->storage);
  for (int d = 0; d < t->ndim; d++) {
    e->dims[d] = (Py_ssize_t)wk__size(t, d);
    e->dims[t->ndim + d] = (Py_ssize_t)(wk__stride(t, d) * (int64_t)wk__itemsize(t));
  }
  return e;
}

static const char *not_exportable(const wk_tensor *t) {
  if (!t->storage || t->device.type != WK_CPU) return "the tensor has no memory that the CPU can read";
  if (wk_requires_grad(t)) return NUMPY_OF_GRAD;
  return formats[t->dtype] ? NULL : "the tensor's dtype has no code in the buffer protocol";
}

/* The consumer can do with the strides, or asked for a layout that the memory has. */
static bool layout_fits(const Py_buffer *view, int flags) {
  if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS) return PyBuffer_IsContiguous(view, 'F');
  if ((flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS) return PyBuffer_IsContiguous(view, 'C');
  if ((flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS) return PyBuffer_IsContiguous(view, 'A');
  return (flags & PyBUF_STRIDES) == PyBUF_STRIDES || PyBuffer_IsContiguous(view, 'C');
}

int wk__tensor_get_buffer(PyObject *self, Py_buffer *view, int flags) {
  static char nothing[1]; /* an empty tensor's memory */
  const wk_tensor *t = wk__tensor_of(self);
  const char *problem = not_exportable(t);
  view->obj = NULL;
  if (!problem && wk__realize(wk__tensor_of(self), "a tensor's memory is given out") != WK_OK)
    problem = wk_error_message();
  if (problem) {
    PyErr_SetString(PyExc_BufferError, problem);
    return -1;
  }
  exported *e = export_create(t);
  if (!e) return -1;
  *view = (Py_buffer){.buf = wk__numel(t) ? wk__host_data(t) : nothing,
                      .len = (Py_ssize_t)(wk__numel(t) * (int64_t)wk__itemsize(t)),
                      .itemsize = (Py_ssize_t)wk__itemsize(t),
                      .ndim = t->ndim,
                      .format = (char *)(uintptr_t)formats[t->dtype],
                      .shape = e->dims,
                      .strides = e->dims + t->ndim,
                      .internal = e};
  if (!layout_fits(view, flags)) {
    wk__tensor_release_buffer(self, view);
    PyErr_SetString(PyExc_BufferError, "the tensor is not contiguous");
    return -1;
  }
  if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES) view->strides = NULL;
  if ((flags & PyBUF_ND) != PyBUF_ND) view->shape = NULL;
  if ((flags & PyBUF_FORMAT) != PyBUF_FORMAT) view->format = NULL;
  view->obj = Py_NewRef(self);
  return 0;
}

void wk__tensor_release_buffer(PyObject *self, Py_buffer *view) {
  (void)self;
  exported *e = view->internal;
  wk__storage_unpin(e->storage);
  wk__storage_release(e->storage);
  PyMem_Free(e);
}

/* ============================================== tensors as arrays =============================================== */

int wk__check_readable(wk__state *state, const wk_tensor *t, wk_status category, const char *message_for_meta) {
  bool has_values = t->storage != NULL;
  if (has_values && wk__realize((wk_tensor *)t, "a tensor's values are looked at") == WK_OK) return 0;
  if (!has_values) (void)wk_fail(category, "%s", message_for_meta);
  wk__raise(state);
  return -1;
}

static PyObject *detached(PyObject *self) {  // -> new
  wk_value args[] = {{.tag = WK_VALUE_TENSOR, .tensor = wk__tensor_of(self)}};
  return wk__call_to_python(((wk__python_tensor *)self)->state, WK__OP(detach), args, NULL);
}

/* A NumPy array over the tensor's memory, or PyTorch's reason why there is none. */
static PyObject *array_over(PyObject *self) {  // -> new
  const wk_tensor *t = wk__tensor_of(self);
  if (t->device.type != WK_CPU) {
    wk__string device = {0};
    wk__device_print(&device, t->device);
    PyErr_Format(PyExc_TypeError,
                 "can't convert %s device type tensor to numpy. Use Tensor.cpu() to copy the tensor to "
                 "host memory first.",
                 device.text ? device.text : "?");
    wk__string_release(&device);
    return NULL;
  }
  if (wk_requires_grad(t)) return PyErr_Format(PyExc_RuntimeError, NUMPY_OF_GRAD);
  if (!formats[t->dtype])
    return PyErr_Format(PyExc_TypeError, "Got unsupported ScalarType %s", wk__dtype_legacy((wk_dtype)t->dtype));
  if (wk__check_readable(((wk__python_tensor *)self)->state, t, WK_NOT_IMPLEMENTED, "the tensor has no data") < 0)
    return NULL;
  PyObject *view = PyMemoryView_FromObject(self), *numpy = view ? loaded_numpy() : NULL;
  if (view && !numpy) numpy = PyImport_ImportModule("numpy");
  PyObject *array = numpy ? PyObject_CallMethod(numpy, "asarray", "O", view) : NULL;
  Py_XDECREF(numpy);
  Py_XDECREF(view);
  return array;
}

/* force: also for a tensor that requires grad, detached. (All tensors are on the CPU so far.) */
PyObject *wk__tensor_numpy(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  static const wk__signature signature = {"numpy", 0, 0, {"force"}};
  PyObject *given;
  bool force = false;
  if (wk__bind(&signature, args, n, keywords, &given) < 0 || wk__bool_argument("numpy", "force", given, &force) < 0)
    return NULL;
  if (!force || !wk_requires_grad(wk__tensor_of(self))) return array_over(self);
  PyObject *plain = detached(self), *array = plain ? array_over(plain) : NULL;
  Py_XDECREF(plain);
  return array;
}

/* numpy's array.astype(dtype, copy=copy) */
static PyObject *array_astype(PyObject *array, PyObject *dtype, bool copy) {  // -> new
  PyObject *method = PyObject_GetAttrString(array, "astype"), *args = PyTuple_Pack(1, dtype);
  PyObject *keywords = Py_BuildValue("{sO}", "copy", copy ? Py_True : Py_False);
  PyObject *result = method && args && keywords ? PyObject_Call(method, args, keywords) : NULL;
  Py_XDECREF(keywords);
  Py_XDECREF(args);
  Py_XDECREF(method);
  return result;
}

PyObject *wk__tensor_as_array(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  static const wk__signature signature = {"__array__", 0, 1, {"dtype", "copy"}};
  PyObject *given[2];
  if (wk__bind(&signature, args, n, keywords, given) < 0) return NULL;
  int copy = given[1] && given[1] != Py_None ? PyObject_IsTrue(given[1]) : 0;
  PyObject *array = copy < 0 ? NULL : array_over(self);
  if (array && given[0] && given[0] != Py_None)
    Py_SETREF(array, array_astype(array, given[0], copy));
  else if (array && copy)
    Py_SETREF(array, PyObject_CallMethod(array, "copy", NULL));
  return array;
}
