/* Tensors from Python data and back: tensor, as_tensor, asarray; item, tolist, data_ptr; the table of Tensor's methods
 * for data exchange. Nested sequences, arrays and buffers, DLPack and storages have files of their own. In: any data
 * that PyTorch takes. Out: a copy (tensor), or shared memory where there can be (as_tensor, asarray). Tests:
 * tests/python/test_interop.py. */
#include "python/data/interop.h"
#include "autograd/autograd.h"
#include "python/calls/override.h"

/* ==================================================== copies ==================================================== */

/* A conversion by operator: recorded, traced and refused like any other. WK_DTYPE_NONE keeps the dtype. */
static PyObject *converted(wk__state *state, wk_tensor *t, wk_dtype dtype, wk_device device) {  // -> new
  wk_value args[] = {{.tag = WK_VALUE_TENSOR, .tensor = t},
                     {.tag = dtype == WK_DTYPE_NONE ? WK_VALUE_NONE : WK_VALUE_DTYPE, .dtype = (uint8_t)dtype},
                     {.tag = WK_VALUE_DEVICE, .device = device}};
  return wk__call_to_python(state, WK__OP(_to_copy), args, NULL);
}

/* The bytes can be copied as they are. */
static bool is_plain_copy(const wk_tensor *t, wk_dtype dtype, wk_device device) {
  bool same = (dtype == WK_DTYPE_NONE || t->dtype == dtype) && wk__device_equal(t->device, device);
  return same && device.type == WK_CPU && t->storage && !((t->keys | wk__thread.mode.keys_on) & WK__KEY_TRACE) &&
         wk__is_contiguous(t);
}

static wk_tensor *plain_copy(wk__state *state, const wk_tensor *t) {
  wk__spec spec;
  wk__spec_contiguous(&spec, (wk_dtype)t->dtype, t->device, t->ndim, t->sizes);
  wk_tensor *copy = wk__tensor_from_spec(&spec);
  if (!copy) wk__raise(state);
  if (copy && wk__numel(t)) memcpy(wk__host_data(copy), wk__host_data(t), (size_t)wk__numel(t) * wk__itemsize(t));
  return copy;
}

wk_tensor *wk__copied(wk__state *state, wk_tensor *steal_tensor, wk_dtype dtype, wk_device device) {
  WK__OWNED t = steal_tensor;
  if (!t) return NULL;
  if (is_plain_copy(t, dtype, device)) return plain_copy(state, t);
  bool before = wk_set_grad_enabled(false);
  PyObject *copy = converted(state, t, dtype, device);
  wk_set_grad_enabled(before);
  wk_tensor *result = copy ? wk__retain(wk__tensor_of(copy)) : NULL;
  Py_XDECREF(copy);
  return result;
}

/* -1 with an exception, 1 when there is the attribute. Numbers and lists, which have none, are not asked. */
static int has_attribute(PyObject *o, const char *name) {
  if (PyList_CheckExact(o) || PyTuple_CheckExact(o) || PyFloat_Check(o) || PyLong_Check(o)) return 0;
  return PyObject_HasAttrString(o, name);
}

/* An object that is no sequence but can be made an array of, such as an image. */
static wk_tensor *from_array_interface(wk__state *state, PyObject *data, wk_dtype dtype) {
  PyObject *numpy = PyImport_ImportModule("numpy");
  PyObject *array = numpy ? PyObject_CallMethod(numpy, "asarray", "O", data) : NULL;
  wk_tensor *t = array ? wk__copied(state, wk__tensor_over_array(array, false), dtype, WK__CPU_DEVICE) : NULL;
  Py_XDECREF(array);
  Py_XDECREF(numpy);
  return t;
}

wk_tensor *wk__tensor_from_python(wk__state *state, PyObject *data, wk_dtype dtype) {
  if (PyList_CheckExact(data) || PyFloat_CheckExact(data) || PyLong_CheckExact(data) || PyTuple_CheckExact(data))
    return wk__tensor_from_sequence(state, data, dtype);
  if (wk__is_tensor(state, data)) {
    wk_tensor *t = wk__tensor_of(data);
    return wk__copied(state, wk__retain(t), dtype, t->device);
  }
  if (wk__is_array(data)) return wk__copied(state, wk__tensor_over_array(data, false), dtype, WK__CPU_DEVICE);
  if (has_attribute(data, "__dlpack__"))
    return wk__copied(state, wk__tensor_over_dlpack(state, data), dtype, WK__CPU_DEVICE);
  if (has_attribute(data, "__cuda_array_interface__")) {
    wk_tensor *t = wk__tensor_over_cuda_array(data);
    return t ? wk__copied(state, t, dtype, t->device) : NULL;
  }
  if (!PySequence_Check(data) && !wk__is_array_scalar(data) && has_attribute(data, "__array_interface__"))
    return from_array_interface(state, data, dtype);
  return wk__tensor_from_sequence(state, data, dtype);
}

/* ============================================ tensor, as_tensor, asarray ======================================== */

static bool may_require_grad(wk_dtype dtype) { return wk_dtype_is_floating(dtype) || wk_dtype_is_complex(dtype); }

/* A new leaf as its creator wants it; takes the tensor, which may be NULL with an exception. */
static PyObject *finish(wk__state *state, wk_tensor *steal_tensor, wk_device device, bool requires_grad) {  // -> new
  wk_tensor *t = steal_tensor;
  wk__mark_if_inference(t);
  if (t && !wk__device_equal(device, t->device)) t = wk__copied(state, t, WK_DTYPE_NONE, device);
  if (!t || !requires_grad) return t ? wk__wrap(state, t) : NULL;
  if (!may_require_grad((wk_dtype)t->dtype))
    PyErr_SetString(PyExc_RuntimeError, "Only Tensors of floating point and complex dtype can require gradients");
  else if (wk_set_requires_grad(t, true) == WK_OK)
    return wk__wrap(state, t);
  else
    wk__raise(state);
  wk__release(t);
  return NULL;
}

/* The same for a tensor that Python has. */
static PyObject *finish_grad(wk__state *state, PyObject *steal_tensor, bool requires_grad) {  // -> new
  wk_tensor *t = wk__retain(wk__tensor_of(steal_tensor));
  Py_DECREF(steal_tensor);
  return finish(state, t, t->device, requires_grad);
}

#define COPY_WARNING                                                                            \
  "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or " \
  "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor)."

static PyObject *tensor(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  static const wk__signature signature = {
      "tensor", 1, 1, {"data", "dtype", "device", "requires_grad", "pin_memory", "names"}};
  enum { DATA, DTYPE, DEVICE, REQUIRES_GRAD, PIN_MEMORY, NAMES, COUNT };
  PyObject *given[COUNT];
  wk__state *state = wk__state_of_module(module);
  PyObject *handed;
  if (WK_UNLIKELY(state->overrides) && wk__overridden_function(state, "tensor", args, n, keywords, &handed))
    return handed;
  wk_dtype dtype = WK_DTYPE_NONE;
  bool requires_grad = false;
  if (wk__bind(&signature, args, n, keywords, given) < 0) return NULL;
  bool from_tensor = wk__is_tensor(state, given[DATA]);
  wk_device device = from_tensor ? wk__tensor_of(given[DATA])->device : wk__thread.default_device;
  if (wk__dtype_argument(state, "tensor", "dtype", given[DTYPE], &dtype) < 0 ||
      wk__device_argument(state, given[DEVICE], &device) < 0 ||
      wk__bool_argument("tensor", "requires_grad", given[REQUIRES_GRAD], &requires_grad) < 0)
    return NULL;
  if (from_tensor && PyErr_WarnEx(PyExc_UserWarning, COPY_WARNING, 1) < 0) return NULL;
  bool pins = false;
  if (wk__bool_argument("tensor", "pin_memory", given[PIN_MEMORY], &pins) < 0) return NULL;
  PyObject *made = finish(state, wk__tensor_from_python(state, given[DATA], dtype), device, requires_grad && !pins);
  if (!pins || !made) return made;
  Py_SETREF(made, wk__pinned(made));
  return made ? finish_grad(state, made, requires_grad) : NULL;
}

/* A tensor over the data's own memory: of a tensor, an array, a DLPack exporter or, when asked for, a buffer. NULL
 * without an exception: the data has no memory to share. */
static PyObject *shared(wk__state *state, PyObject *data, bool buffers, wk_dtype dtype) {  // -> new
  wk_tensor *t;
  if (wk__is_tensor(state, data)) return Py_NewRef(data);
  if (wk__is_array(data))
    t = wk__tensor_over_array(data, true);
  else if (!wk__is_array_scalar(data) && has_attribute(data, "__dlpack__"))
    t = wk__tensor_over_dlpack(state, data);
  else if (buffers && PyObject_CheckBuffer(data) && !wk__is_array_scalar(data))
    t = wk__tensor_over_buffer(data, dtype == WK_DTYPE_NONE ? wk__default_dtype() : dtype, -1, 0);
  else
    return NULL;
  wk__mark_if_inference(t);
  return t ? wk__wrap(state, t) : NULL;
}

static bool fits(const wk_tensor *t, wk_dtype dtype, const wk_device *device) {
  return (dtype == WK_DTYPE_NONE || t->dtype == dtype) && (!device || wk__device_equal(t->device, *device));
}

/* The tensor itself when it is as wanted, else a conversion. Takes the object. device NULL: where it is. */
static PyObject *as_wanted(wk__state *state, PyObject *steal_tensor, wk_dtype dtype,
                           const wk_device *device) {  // -> new
  wk_tensor *t = wk__tensor_of(steal_tensor);
  if (fits(t, dtype, device)) return steal_tensor;
  PyObject *result = converted(state, t, dtype, device ? *device : t->device);
  Py_DECREF(steal_tensor);
  return result;
}

static PyObject *as_tensor(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  static const wk__signature signature = {"as_tensor", 1, 3, {"data", "dtype", "device"}};
  PyObject *given[3];
  wk__state *state = wk__state_of_module(module);
  PyObject *handed;
  if (WK_UNLIKELY(state->overrides) && wk__overridden_function(state, "as_tensor", args, n, keywords, &handed))
    return handed;
  wk_dtype dtype = WK_DTYPE_NONE;
  wk_device device = wk__thread.default_device;
  if (wk__bind(&signature, args, n, keywords, given) < 0 ||
      wk__dtype_argument(state, "as_tensor", "dtype", given[1], &dtype) < 0 ||
      wk__device_argument(state, given[2], &device) < 0)
    return NULL;
  PyObject *same = shared(state, given[0], false, dtype);
  if (same) return as_wanted(state, same, dtype, given[2] && given[2] != Py_None ? &device : NULL);
  if (PyErr_Occurred()) return NULL;
  if (has_attribute(given[0], "__cuda_array_interface__")) { /* goes to the default device, as in PyTorch */
    wk_tensor *t = wk__tensor_over_cuda_array(given[0]);
    wk__mark_if_inference(t);
    PyObject *made = t ? wk__wrap(state, t) : NULL;
    return made ? as_wanted(state, made, dtype, &device) : NULL;
  }
  return finish(state, wk__tensor_from_python(state, given[0], dtype), device, false);
}

/* ---- asarray ---- */

typedef struct asarray_options {
  wk_dtype dtype;
  wk_device device;
  bool device_given, grad_given, requires_grad;
  int copy; /* -1: when needed; 0: never; 1: always */
} asarray_options;

static int refuse_copy(const wk_tensor *t, const asarray_options *o) {
  wk__string to = {0}, from = {0};
  wk__device_print(&to, o->device);
  wk__device_print(&from, t->device);
  if (o->device_given && !wk__device_equal(t->device, o->device))
    PyErr_Format(PyExc_ValueError, "can't alias tensor from device '%s' to '%s'.", from.text, to.text);
  else
    PyErr_Format(PyExc_ValueError, "can't alias tensor with dtype '%s' into dtype '%s'.",
                 wk__dtype_legacy((wk_dtype)t->dtype), wk__dtype_legacy(o->dtype));
  wk__string_release(&to);
  wk__string_release(&from);
  return -1;
}

/* Sets requires_grad on a tensor that may have been the caller's: True makes it a leaf, False takes it off the tape. */
static PyObject *with_grad_option(wk__state *state, PyObject *steal_tensor, const asarray_options *o) {  // -> new
  wk_tensor *t = wk__tensor_of(steal_tensor);
  if (!o->grad_given || wk_requires_grad(t) == o->requires_grad) return steal_tensor;
  PyObject *result = NULL;
  if (o->requires_grad) {
    result = finish(state, wk__retain(t), t->device, true);
  } else {
    wk_value args[] = {{.tag = WK_VALUE_TENSOR, .tensor = t}};
    result = wk__call_to_python(state, WK__OP(detach), args, NULL);
  }
  Py_DECREF(steal_tensor);
  return result;
}

static PyObject *asarray_shared(wk__state *state, PyObject *steal_tensor, const asarray_options *o) {  // -> new
  PyObject *result = steal_tensor;
  wk_tensor *t = wk__tensor_of(result);
  const wk_device *device = o->device_given ? &o->device : NULL;
  if (o->copy == 1)
    Py_SETREF(result, converted(state, t, o->dtype, device ? *device : t->device));
  else if (fits(t, o->dtype, device) || (o->copy < 0 || refuse_copy(t, o) == 0))
    result = as_wanted(state, result, o->dtype, device);
  else
    Py_CLEAR(result);
  return result ? with_grad_option(state, result, o) : NULL;
}

static PyObject *asarray(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  static const wk__signature signature = {"asarray", 1, 1, {"obj", "dtype", "device", "copy", "requires_grad"}};
  enum { DATA, DTYPE, DEVICE, COPY, REQUIRES_GRAD, COUNT };
  PyObject *given[COUNT];
  wk__state *state = wk__state_of_module(module);
  PyObject *handed;
  if (WK_UNLIKELY(state->overrides) && wk__overridden_function(state, "asarray", args, n, keywords, &handed))
    return handed;
  asarray_options o = {.dtype = WK_DTYPE_NONE, .device = WK__CPU_DEVICE, .copy = -1};
  if (wk__bind(&signature, args, n, keywords, given) < 0) return NULL;
  o.device_given = given[DEVICE] && given[DEVICE] != Py_None;
  o.grad_given = given[REQUIRES_GRAD] && given[REQUIRES_GRAD] != Py_None;
  bool copy = false, copy_given = given[COPY] && given[COPY] != Py_None;
  if (wk__dtype_argument(state, "asarray", "dtype", given[DTYPE], &o.dtype) < 0 ||
      wk__device_argument(state, given[DEVICE], &o.device) < 0 ||
      (copy_given && wk__bool_argument("asarray", "copy", given[COPY], &copy) < 0) ||
      (o.grad_given && wk__bool_argument("asarray", "requires_grad", given[REQUIRES_GRAD], &o.requires_grad) < 0))
    return NULL;
  if (copy_given) o.copy = copy;
  PyObject *same = shared(state, given[DATA], true, o.dtype);
  if (same) return asarray_shared(state, same, &o);
  if (PyErr_Occurred()) return NULL;
  if (o.copy == 0) return PyErr_Format(PyExc_ValueError, "can't alias arbitrary sequence into a tensor.");
  return finish(state, wk__tensor_from_python(state, given[DATA], o.dtype), o.device, o.requires_grad);
}

/* ================================================ tensors to Python ============================================= */

static wk__state *state_of(PyObject *self) { return ((wk__python_tensor *)self)->state; }  // borrowed

static PyObject *tensor_item(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  const wk_tensor *t = wk__tensor_of(self);
  if (wk_int_is_known(t->numel) && wk__numel(t) != 1)
    return PyErr_Format(PyExc_RuntimeError, "a Tensor with %lld elements cannot be converted to Scalar",
                        (long long)wk__numel(t));
  if (wk__check_readable(state_of(self), t, WK_RUNTIME_ERROR, "Tensor.item() cannot be called on meta tensors") < 0)
    return NULL;
  wk__thread.warning = NULL;
  return wk__warned(wk__item_to_python(state_of(self), t));
}

/* Lists of what is from `at` on, in dims `dim` and on. */
static PyObject *nested_list(const wk_tensor *t, int dim, const char *at) {  // -> new
  if (dim == t->ndim) return wk__element_to_python(at, (wk_dtype)t->dtype);
  int64_t count = wk__size(t, dim), step = wk__stride(t, dim) * (int64_t)wk__itemsize(t);
  PyObject *list = PyList_New((Py_ssize_t)count);
  for (int64_t i = 0; list && i < count; i++) {
    PyObject *item = nested_list(t, dim + 1, at + i * step);
    if (item)
      PyList_SET_ITEM(list, i, item);
    else
      Py_CLEAR(list);
  }
  return list;
}

static PyObject *tensor_tolist(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  const wk_tensor *t = wk__tensor_of(self);
  if (wk__check_readable(state_of(self), t, WK_NOT_IMPLEMENTED, "Cannot copy out of meta tensor; no data!") < 0)
    return NULL;
  wk__host_view view;
  wk__thread.warning = NULL;
  if (wk__to_host(t, &view) != WK_OK) return wk__raise(state_of(self));
  PyObject *list = nested_list(t, 0, view.data);
  wk__host_view_release(&view);
  return wk__warned(list);
}

static PyObject *tensor_data_ptr(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  const wk_tensor *t = wk__tensor_of(self);
  if (t->keys & WK__KEY_TRACE && t->storage && wk__check_readable(state_of(self), t, WK_NOT_IMPLEMENTED, "") < 0)
    return NULL;
  return PyLong_FromVoidPtr(t->storage && wk__numel(t) ? wk__address(t) : NULL);
}

WK__OVERRIDABLE_ALONE(tensor_item, "item")
WK__OVERRIDABLE_ALONE(tensor_tolist, "tolist")
WK__OVERRIDABLE_ALONE(tensor_data_ptr, "data_ptr")
WK__OVERRIDABLE(wk__tensor_numpy, "numpy")
WK__OVERRIDABLE(wk__tensor_as_array, "__array__")
WK__OVERRIDABLE(wk__tensor_dlpack, "__dlpack__")
WK__OVERRIDABLE_ALONE(wk__tensor_dlpack_device, "__dlpack_device__")
WK__OVERRIDABLE_ALONE(wk__tensor_untyped_storage, "untyped_storage")
WK__OVERRIDABLE_ALONE(wk__tensor_typed_storage, "storage")

PyMethodDef wk__tensor_interop_methods[] = {
    {"item", tensor_item_entry, METH_NOARGS, "The one element as a Python number: tensor([2]).item() == 2"},
    {"tolist", tensor_tolist_entry, METH_NOARGS, "The elements as nested lists of Python numbers."},
    {"data_ptr", tensor_data_ptr_entry, METH_NOARGS, "The address of the first element; 0 without elements."},
    {"numpy", WK__METHOD(wk__tensor_numpy_entry), WK__FAST_CALL,
     "A NumPy array over the same memory. force=True also for a tensor that requires grad: tensor.numpy(force=True)"},
    {"__array__", WK__METHOD(wk__tensor_as_array_entry), WK__FAST_CALL, NULL},
    {"__dlpack__", WK__METHOD(wk__tensor_dlpack_entry), WK__FAST_CALL, "A DLPack capsule over the same memory."},
    {"__dlpack_device__", wk__tensor_dlpack_device_entry, METH_NOARGS, "The DLPack device type and index."},
    {"untyped_storage", wk__tensor_untyped_storage_entry, METH_NOARGS, "The bytes that the tensor is a view of."},
    {"storage", wk__tensor_typed_storage_entry, METH_NOARGS, "The storage as elements of the tensor's dtype."},
    {0}};

static PyMethodDef functions[] = {
    {"tensor", WK__METHOD(tensor), WK__FAST_CALL, "A copy of data as a tensor: tensor([[1., 2.], [3., 4.]])"},
    {"as_tensor", WK__METHOD(as_tensor), WK__FAST_CALL, "Data as a tensor, over the same memory where possible."},
    {"asarray", WK__METHOD(asarray), WK__FAST_CALL, "Data as a tensor; copy says whether memory is shared."},
    {"from_numpy", wk__from_numpy, METH_O, "A tensor over a NumPy array's memory."},
    {"frombuffer", WK__METHOD(wk__from_buffer), WK__FAST_CALL,
     "A flat tensor over the memory of an object with a buffer."},
    {"from_dlpack", WK__METHOD(wk__from_dlpack), WK__FAST_CALL, "A tensor over another library's memory."},
    {0}};

int wk__add_interop(PyObject *module, wk__state *state) {
  if (PyModule_AddFunctions(module, functions) < 0 || wk__add_storage(module, state) < 0) return -1;
  return wk__add_safetensors(module);
}
