/* DLPack: memory shared with other array libraries, both ways, in the old capsules and in those of version 1.
 *
 * In: capsules, or objects with __dlpack__. Out: tensors over their memory; capsules over ours. Invariant: a capsule is
 * used up by the consumer that takes its memory, and frees it otherwise; our exports hold the storage and need no
 * interpreter to be freed, so a consumer may do that on any thread. Tests: tests/python/test_interop.py. */
#include "cuda/cuda.h"
#include "python/data/interop.h"
#include "wick/autograd.h"

/* ---- the ABI: dlpack.h of DLPack 1.1 ---- */

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3 };
enum {
  DL_INT,
  DL_UINT,
  DL_FLOAT,
  DL_BFLOAT = 4,
  DL_COMPLEX,
  DL_BOOL,
  DL_FLOAT8_E4M3FN = 10,
  DL_FLOAT8_E4M3FNUZ,
  DL_FLOAT8_E5M2,
  DL_FLOAT8_E5M2FNUZ,
  DL_FLOAT8_E8M0
};
enum { DL_FLAG_READ_ONLY = 1, DL_FLAG_COPIED = 2, DL_MAJOR = 1, DL_MINOR = 1 };

typedef struct dl_device {
  int32_t type, index;
} dl_device;
typedef struct dl_dtype {
  uint8_t code, bits;
  uint16_t lanes;
} dl_dtype;
typedef struct dl_tensor {
  void *data;
  dl_device device;
  int32_t ndim;
  dl_dtype dtype;
  int64_t *shape;
  int64_t *strides; /* in elements; NULL: row-major */
  uint64_t byte_offset;
} dl_tensor;
typedef struct dl_managed {
  dl_tensor tensor;
  void *context;
  void (*deleter)(struct dl_managed *self);
} dl_managed;
typedef struct dl_versioned {
  uint32_t major, minor;
  void *context;
  void (*deleter)(struct dl_versioned *self);
  uint64_t flags;
  dl_tensor tensor;
} dl_versioned;

static const dl_dtype dl_dtypes[WK_DTYPE_COUNT] = {
    [WK_BOOL] = {DL_BOOL, 8, 1},
    [WK_UINT8] = {DL_UINT, 8, 1},
    [WK_INT8] = {DL_INT, 8, 1},
    [WK_INT16] = {DL_INT, 16, 1},
    [WK_INT32] = {DL_INT, 32, 1},
    [WK_INT64] = {DL_INT, 64, 1},
    [WK_UINT16] = {DL_UINT, 16, 1},
    [WK_UINT32] = {DL_UINT, 32, 1},
    [WK_UINT64] = {DL_UINT, 64, 1},
    [WK_FLOAT8_E4M3] = {DL_FLOAT8_E4M3FN, 8, 1},
    [WK_FLOAT8_E5M2] = {DL_FLOAT8_E5M2, 8, 1},
    [WK_FLOAT8_E4M3_FNUZ] = {DL_FLOAT8_E4M3FNUZ, 8, 1},
    [WK_FLOAT8_E5M2_FNUZ] = {DL_FLOAT8_E5M2FNUZ, 8, 1},
    [WK_FLOAT8_E8M0] = {DL_FLOAT8_E8M0, 8, 1},
    [WK_FLOAT16] = {DL_FLOAT, 16, 1},
    [WK_BFLOAT16] = {DL_BFLOAT, 16, 1},
    [WK_FLOAT32] = {DL_FLOAT, 32, 1},
    [WK_FLOAT64] = {DL_FLOAT, 64, 1},
    [WK_COMPLEX64] = {DL_COMPLEX, 64, 1},
    [WK_COMPLEX128] = {DL_COMPLEX, 128, 1},
};

static wk_dtype dtype_from_dl(dl_dtype dtype) {
  for (int d = 0; d < WK_DTYPE_COUNT; d++)
    if (memcmp(&dl_dtypes[d], &dtype, sizeof dtype) == 0) return (wk_dtype)d;
  PyErr_Format(PyExc_BufferError, "Unsupported DLPack dtype: code %d, %d bits, %d lanes", dtype.code, dtype.bits,
               dtype.lanes);
  return WK_DTYPE_NONE;
}

/* ==================================================== exporting ================================================= */

/* What a capsule points to, in either form, and what it holds. */
typedef struct exported {
  union {
    dl_managed plain;
    dl_versioned versioned;
  };
  wk_storage *storage; /* owned, pinned */
  int64_t dims[];      /* (2 ndim) sizes, then strides */
} exported;

static void exported_free(exported *e) {
  wk__storage_unpin(e->storage);
  wk__storage_release(e->storage);
  wk__free(e);
}
static void delete_plain(dl_managed *self) { exported_free(self->context); }
static void delete_versioned(dl_versioned *self) { exported_free(self->context); }

/* A capsule whose memory no consumer has taken. */
static void destroy_plain(PyObject *capsule) {
  dl_managed *m = PyCapsule_IsValid(capsule, "dltensor") ? PyCapsule_GetPointer(capsule, "dltensor") : NULL;
  if (m) m->deleter(m);
}
static void destroy_versioned(PyObject *capsule) {
  const char *name = "dltensor_versioned";
  dl_versioned *m = PyCapsule_IsValid(capsule, name) ? PyCapsule_GetPointer(capsule, name) : NULL;
  if (m) m->deleter(m);
}

static dl_device dl_device_of(const wk_tensor *t) {
  return t->device.type == WK_CUDA ? (dl_device){DL_CUDA, t->device.index} : (dl_device){DL_CPU, 0};
}

/* Strides of dims with at most one element do not matter; 1 is what consumers expect there. */
static dl_tensor describe(const wk_tensor *t, int64_t *dims) {
  for (int d = 0; d < t->ndim; d++) {
    dims[d] = wk__size(t, d);
    dims[t->ndim + d] = dims[d] <= 1 ? 1 : wk__stride(t, d);
  }
  return (dl_tensor){.data = wk__numel(t) ? wk__address(t) : NULL,
                     .device = dl_device_of(t),
                     .ndim = t->ndim,
                     .dtype = dl_dtypes[t->dtype],
                     .shape = dims,
                     .strides = dims + t->ndim};
}

static PyObject *export(const wk_tensor *t, bool versioned, bool copied) {  // -> new
  exported *e = wk__alloc_zeroed(sizeof *e + 2 * t->ndim * sizeof *e->dims);
  if (!e || wk__realize((wk_tensor *)t, "a tensor's memory is given out") != WK_OK) {
    wk__free(e);
    return wk__raise(NULL);
  }
  e->storage = wk__storage_retain(t->storage);
  wk__storage_pin(e->storage);
  dl_tensor tensor = describe(t, e->dims);
  PyObject *capsule;
  if (versioned) {
    e->versioned = (dl_versioned){DL_MAJOR, DL_MINOR, e, delete_versioned, copied ? DL_FLAG_COPIED : 0, tensor};
    capsule = PyCapsule_New(e, "dltensor_versioned", destroy_versioned);
  } else {
    e->plain = (dl_managed){tensor, e, delete_plain};
    capsule = PyCapsule_New(e, "dltensor", destroy_plain);
  }
  if (!capsule) exported_free(e);
  return capsule;
}

static const char *not_exportable(const wk_tensor *t) {
  if (wk_requires_grad(t)) return "Can't export tensors that require gradient, use tensor.detach()";
  return t->storage && (t->device.type == WK_CPU || t->device.type == WK_CUDA) ? NULL : "Cannot pack tensors on meta";
}

/* Whether `version`, a tuple or None, allows capsules of version 1. -1 with an exception. */
static int accepts_versioned(PyObject *version) {
  if (!version || version == Py_None) return 0;
  PyObject *major = PySequence_GetItem(version, 0);
  long value = major ? PyLong_AsLong(major) : -1;
  Py_XDECREF(major);
  return value == -1 && PyErr_Occurred() ? -1 : value >= DL_MAJOR;
}

/* Where the consumer wants the memory: where it is. -1 with an exception. */
static int check_target(const wk_tensor *t, PyObject *device) {
  dl_device is = dl_device_of(t);
  if (!device || device == Py_None) return 0;
  PyObject *type = PySequence_GetItem(device, 0), *number = type ? PySequence_GetItem(device, 1) : NULL;
  long value = type ? PyLong_AsLong(type) : -1, index = number ? PyLong_AsLong(number) : -1;
  Py_XDECREF(type);
  Py_XDECREF(number);
  if (PyErr_Occurred()) return -1;
  if (value == is.type && (value == DL_CPU || index == is.index)) return 0;
  PyErr_Format(PyExc_BufferError, "cannot export a tensor in the %s memory to DLPack device type %ld",
               is.type == DL_CPU ? "CPU's" : "CUDA device's", value);
  return -1;
}

/* The consumer's stream: what it does is behind what our current stream has. The numbers are the protocol's: none and 1
 * mean the default stream, -1 asks for nothing. -1 with an exception. */
static int let_stream_wait(const wk_tensor *t, PyObject *stream) {
  bool given = stream && stream != Py_None;
  if (given && !PyLong_CheckExact(stream)) {
    PyErr_SetString(PyExc_TypeError, "stream must be ``int`` or ``none``");
    return -1;
  }
  long long number = given ? PyLong_AsLongLong(stream) : stream ? 1 : -1;
  if (given && number == -1 && PyErr_Occurred()) return -1;
  if (t->device.type == WK_CPU) {
    if (given && number != -1) PyErr_SetString(PyExc_AssertionError, "stream should be None on cpu.");
    return PyErr_Occurred() ? -1 : 0;
  }
  int current = wk__device_current(WK_CUDA);
  if (t->device.index != current)
    PyErr_Format(PyExc_BufferError,
                 "Can't export tensors on a different CUDA device index. Expected: %d. Current device: %d.",
                 t->device.index, current);
  else if (number == 2)
    PyErr_SetString(PyExc_BufferError, "per-thread default stream is not supported.");
  else if (number == 0)
    PyErr_SetString(PyExc_AssertionError, "unsupported stream on CUDA: 0.");
  if (PyErr_Occurred()) return -1;
  if (number == -1) return 0;
  wk__stream *ours = wk__stream_of(t->device);
  void *theirs = number == 1 ? NULL : (void *)(uintptr_t)number; /* NULL: the driver's default stream */
  if (ours && wk__cuda_let_wait(ours, theirs) == WK_OK) return 0;
  wk__raise(NULL);
  return -1;
}

static PyObject *export_copy(wk__state *state, wk_tensor *t, bool versioned) {  // -> new
  wk_value args[] = {{.tag = WK_VALUE_TENSOR, .tensor = t}, {0}}, result = {0};
  if (wk_call(WK__OP(clone), args, NULL, &result) != WK_OK) return wk__raise(state);
  PyObject *capsule = export(result.tensor, versioned, true);
  wk_value_release(&result);
  return capsule;
}

PyObject *wk__tensor_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  static const wk__signature signature = {"__dlpack__", 0, 0, {"stream", "max_version", "dl_device", "copy"}};
  enum { STREAM, MAX_VERSION, DEVICE, COPY, COUNT };
  PyObject *given[COUNT];
  if (wk__bind(&signature, args, n, keywords, given) < 0) return NULL;
  wk_tensor *t = wk__tensor_of(self);
  const char *problem = not_exportable(t);
  if (problem) return PyErr_Format(PyExc_BufferError, "%s", problem);
  if (let_stream_wait(t, given[STREAM]) < 0) return NULL;
  int versioned = accepts_versioned(given[MAX_VERSION]);
  if (versioned < 0 || check_target(t, given[DEVICE]) < 0) return NULL;
  if (given[COPY] == Py_True) return export_copy(((wk__python_tensor *)self)->state, t, versioned);
  return export(t, versioned, false);
}

PyObject *wk__tensor_dlpack_device(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  const wk_tensor *t = wk__tensor_of(self);
  bool pinned = t->device.type == WK_CPU && t->storage && t->storage->data && wk__cuda_is_pinned(t->storage->data);
  if (pinned) return Py_BuildValue("(ii)", DL_CUDA_HOST, 0);
  if (t->device.type == WK_CPU || t->device.type == WK_CUDA)
    return Py_BuildValue("(ii)", (int)dl_device_of(t).type, (int)dl_device_of(t).index);
  return PyErr_Format(PyExc_ValueError, "Unknown device type meta for Dlpack");
}

/* ==================================================== importing ================================================= */

static void release_plain(void *managed) {
  dl_managed *m = managed;
  if (m->deleter) m->deleter(m);
}
static void release_versioned(void *managed) {
  dl_versioned *m = managed;
  if (m->deleter) m->deleter(m);
}

/* The geometry is what another library says: nothing of it is believed. */
static int check_foreign(const dl_tensor *t) {
  bool empty = false;
  if (t->device.type != DL_CPU && t->device.type != DL_CUDA && t->device.type != DL_CUDA_HOST)
    PyErr_Format(PyExc_BufferError, "Unsupported DLPack device type: %d", (int)t->device.type);
  else if (t->ndim < 0 || t->ndim > WK_MAX_DIMS)
    PyErr_Format(PyExc_BufferError, "only tensors with up to %d dims are supported", WK_MAX_DIMS);
  else if (t->ndim && !t->shape)
    PyErr_SetString(PyExc_BufferError, "the DLPack tensor has no shape");
  for (int d = 0; !PyErr_Occurred() && d < t->ndim; d++) {
    if (t->shape[d] < 0) PyErr_SetString(PyExc_BufferError, "the DLPack tensor has a negative size");
    if (t->strides && t->strides[d] < 0 && t->shape[d] > 1)
      PyErr_SetString(PyExc_BufferError, "tensors with negative strides are not supported; copy the array first");
    empty |= t->shape[d] == 0;
  }
  if (!PyErr_Occurred() && !t->data && !empty)
    PyErr_SetString(PyExc_BufferError, "the DLPack tensor has elements but no memory");
  return PyErr_Occurred() ? -1 : 0;
}

wk_tensor *wk__tensor_on_cuda(wk_tensor *steal_tensor, int index) {
  wk_tensor *t = steal_tensor;
  wk_device device = {WK_CUDA, (int8_t)index};
  if (index < 0 || index >= WK__MOST_DEVICES || wk__device_resolve(&device) != WK_OK ||
      !(t->storage->stream = wk__stream_of(device))) {
    if (!PyErr_Occurred() && wk_error_category() != WK_OK)
      wk__raise(NULL);
    else
      PyErr_Format(PyExc_BufferError, "there is no CUDA device %d", index);
    t->storage->release = NULL;
    wk__release(t);
    return NULL;
  }
  t->device = t->storage->device = device;
  return t;
}

static wk_tensor *over_foreign(const dl_tensor *t, void (*release)(void *), void *managed) {
  wk_dtype dtype = dtype_from_dl(t->dtype);
  if (dtype == WK_DTYPE_NONE || check_foreign(t) < 0) return NULL;
  int64_t strides[WK_MAX_DIMS];
  for (int d = 0; t->strides && d < t->ndim; d++) strides[d] = t->strides[d] < 0 ? 1 : t->strides[d];
  char *data = t->data ? (char *)t->data + t->byte_offset : NULL;
  wk_tensor *tensor =
      wk__tensor_over_memory(data, dtype, t->ndim, t->shape, t->strides ? strides : NULL, release, managed);
  if (!tensor) wk__raise(NULL);
  return tensor && t->device.type == DL_CUDA ? wk__tensor_on_cuda(tensor, t->device.index) : tensor;
}

static wk_tensor *over_capsule(PyObject *capsule, bool *out_read_only) {
  wk_tensor *t = NULL;
  *out_read_only = false;
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    dl_versioned *m = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (m->major == DL_MAJOR)
      *out_read_only = m->flags & DL_FLAG_READ_ONLY, t = over_foreign(&m->tensor, release_versioned, m);
    else
      PyErr_Format(PyExc_BufferError, "Unsupported DLPack version: %u.%u", (unsigned)m->major, (unsigned)m->minor);
    if (t) PyCapsule_SetName(capsule, "used_dltensor_versioned");
  } else if (PyCapsule_IsValid(capsule, "dltensor")) {
    dl_managed *m = PyCapsule_GetPointer(capsule, "dltensor");
    t = over_foreign(&m->tensor, release_plain, m);
    if (t) PyCapsule_SetName(capsule, "used_dltensor");
  } else {
    PyErr_SetString(PyExc_RuntimeError,
                    "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed "
                    "only once, so you might have already constructed a tensor from it once.");
  }
  return t;
}

/* Our current stream of the device that the object's memory is on, as the protocol numbers it. New; NULL: the memory
 * is the host's, or with an exception. */
static PyObject *stream_for(PyObject *o) {  // -> new
  int type = 0, index = 0;
  PyObject *device = PyObject_CallMethod(o, "__dlpack_device__", NULL);
  PyObject *kind = device ? PySequence_GetItem(device, 0) : NULL, *number = kind ? PySequence_GetItem(device, 1) : NULL;
  if (number) type = (int)PyLong_AsLong(kind), index = (int)PyLong_AsLong(number);
  Py_XDECREF(kind);
  Py_XDECREF(number);
  Py_XDECREF(device);
  if (PyErr_Occurred() && !device) PyErr_Clear(); /* an old exporter: of the host */
  if (PyErr_Occurred() || type != DL_CUDA) return NULL;
  wk_device ours = {WK_CUDA, (int8_t)index};
  wk__stream *stream = wk__device_resolve(&ours) == WK_OK ? wk__stream_of(ours) : NULL;
  if (!stream) return wk__raise(NULL);
  void *handle = wk__cuda_stream_handle(stream);
  return handle ? PyLong_FromVoidPtr(handle) : PyLong_FromLong(1);
}

/* The object's capsule, of version 1 if it knows of versions. */
static PyObject *ask_for_capsule(PyObject *o, PyObject *method) {  // -> new
  PyObject *stream = stream_for(o), *capsule = NULL;
  if (PyErr_Occurred()) return NULL;
  PyObject *none = PyTuple_New(0), *keywords = Py_BuildValue("{s(ii)}", "max_version", DL_MAJOR, DL_MINOR);
  if (none && keywords && (!stream || PyDict_SetItemString(keywords, "stream", stream) == 0))
    capsule = PyObject_Call(method, none, keywords);
  if (!capsule && none && keywords && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    if (PyDict_DelItemString(keywords, "max_version") == 0)
      capsule = PyObject_Call(method, none, stream ? keywords : NULL);
  }
  Py_XDECREF(stream);
  Py_XDECREF(keywords);
  Py_XDECREF(none);
  return capsule;
}

static wk_tensor *over_object(PyObject *o, bool *out_read_only) {
  if (PyCapsule_CheckExact(o)) return over_capsule(o, out_read_only);
  PyObject *method = PyObject_GetAttrString(o, "__dlpack__");
  if (!method) {
    PyErr_Clear();
    return over_capsule(o, out_read_only); /* its error: not a capsule */
  }
  PyObject *capsule = ask_for_capsule(o, method);
  wk_tensor *t = capsule ? over_capsule(capsule, out_read_only) : NULL;
  Py_XDECREF(capsule);
  Py_DECREF(method);
  return t;
}

/* Every tensor can be written to, so memory that may not be written is copied. */
wk_tensor *wk__tensor_over_dlpack(wk__state *state, PyObject *o) {
  bool read_only;
  wk_tensor *t = over_object(o, &read_only);
  return t && read_only ? wk__copied(state, t, WK_DTYPE_NONE, t->device) : t;
}

/* copy=True copies here rather than in the exporter, which may not know how. */
PyObject *wk__from_dlpack(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  static const wk__signature signature = {"from_dlpack", 1, 1, {"ext_tensor", "device", "copy"}};
  PyObject *given[3];
  wk__state *state = wk__state_of_module(module);
  wk_device device = {WK_CPU, -1};
  if (wk__bind(&signature, args, n, keywords, given) < 0 || wk__device_argument(state, given[1], &device) < 0)
    return NULL;
  bool read_only;
  wk_tensor *t = over_object(given[0], &read_only);
  if (t && read_only && given[2] == Py_False) {
    wk__release(t);
    return PyErr_Format(PyExc_BufferError, "from_dlpack cannot share memory that is read-only; copy=True copies it");
  }
  bool there = t && (!given[1] || given[1] == Py_None || wk__device_equal(t->device, device));
  if (t && there) device = t->device;
  if (!t || (given[2] != Py_True && !read_only && there)) return t ? wk__wrap(state, t) : NULL;
  t = wk__copied(state, t, WK_DTYPE_NONE, device);
  return t ? wk__wrap(state, t) : NULL;
}
