/* Tensor.to(), type(), float() and its kind: other dtypes, devices and orders of dims.
 * In: a tensor and what it is to be. Out: itself where it is that already, else a copy. Tests:
 * tests/python/test_memory_formats.py, test_odd_arguments.py. */
#include "python/calls/override.h"
#include "python/data/interop.h"
#include "python/python.h"

static wk__state *state_of(PyObject *self) { return ((wk__python_tensor *)self)->state; }

const char *wk__memory_format_name(wk__state *state, PyObject *o, const char *function) {
  bool known = Py_IS_TYPE(o, state->memory_format_type);
  const char *name = known ? wk__named_constant(state, o) : NULL;
  if (!name)
    PyErr_Format(PyExc_TypeError, "%s(): argument 'memory_format' must be torch.memory_format, not %s", function,
                 Py_TYPE(o)->tp_name);
  return name;
}

static PyObject *converted(PyObject *self, wk_dtype dtype, wk_device device, bool copy) {  // -> new
  wk_tensor *t = wk__tensor_of(self);
  bool same = t->dtype == dtype && wk__device_equal(t->device, device);
  if (same && !copy) return Py_NewRef(self);
  wk_value args[] = {{.tag = WK_VALUE_TENSOR, .tensor = t},
                     {.tag = WK_VALUE_DTYPE, .dtype = (uint8_t)dtype},
                     {.tag = WK_VALUE_DEVICE, .device = device}};
  return wk__call_to_python(state_of(self), WK__OP(_to_copy), args, NULL);
}

/* later: between pinned memory and a device the copy may be done when the stream gets there. */
static PyObject *converted_later(PyObject *self, wk_dtype dtype, wk_device device, bool copy) {  // -> new
  wk__thread.copies_later = true;
  PyObject *result = converted(self, dtype, device, copy);
  wk__thread.copies_later = false;
  return result;
}

/* What a conversion gave in the order of dims that was asked for. A copy gets the order; what is the same tensor still
 * only changes from or to channels last. */
static PyObject *in_format(PyObject *self, PyObject *steal_result, const char *format) {  // -> new
  const wk_tensor *t = steal_result ? wk__tensor_of(steal_result) : NULL;
  bool contiguous = format && strcmp(format, "contiguous_format") == 0, same = steal_result == self;
  if (!t || !format || strcmp(format, "preserve_format") == 0) return steal_result;
  if (contiguous && same && !wk__is_contiguous_in(t, "channels_last") && !wk__is_contiguous_in(t, "channels_last_3d"))
    return steal_result;
  if (wk__is_contiguous_in(t, format) && (contiguous || !wk__is_contiguous(t))) return steal_result;
  wk_value args[] = {{.tag = WK_VALUE_TENSOR, .tensor = wk__tensor_of(steal_result)},
                     {.tag = WK_VALUE_STRING, .string = format}};
  PyObject *result = wk__call_to_python(state_of(self), WK__OP(clone), args, NULL);
  Py_DECREF(steal_result);
  return result;
}

/* 1: understood, 0: not, -1: exception */
static int conversion_argument(wk__state *state, PyObject *o, wk_dtype *dtype, wk_device *device, bool *copy,
                               bool *later, int *bools) {
  if (o == Py_None) return 1;
  if (Py_IS_TYPE(o, state->dtype_type) || o == (PyObject *)&PyFloat_Type || o == (PyObject *)&PyLong_Type ||
      o == (PyObject *)&PyBool_Type)
    return wk__dtype_from_python(state, o, dtype) < 0 ? -1 : 1;
  if (PyUnicode_Check(o) || Py_IS_TYPE(o, state->device_type))
    return wk__device_from_python(state, o, device) < 0 ? -1 : 1;
  if (wk__is_tensor(state, o)) {
    *dtype = (wk_dtype)wk__tensor_of(o)->dtype;
    *device = wk__tensor_of(o)->device;
    return 1;
  }
  if (PyBool_Check(o)) { /* non_blocking, copy */
    *((*bools)++ == 1 ? copy : later) = o == Py_True;
    return 1;
  }
  return 0;
}

static PyObject *bad_conversion(wk__state *state, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  wk__string given = {0};
  Py_ssize_t named = keywords ? PyTuple_GET_SIZE(keywords) : 0;
  for (Py_ssize_t i = 0; i < n + named; i++) {
    if (i) wk__string_append(&given, ", ");
    if (i >= n) wk__string_printf(&given, "%s=", PyUnicode_AsUTF8(PyTuple_GET_ITEM(keywords, i - n)));
    wk__string_append(&given, wk__given_type(state, args[i]));
  }
  PyErr_Format(
      PyExc_TypeError,
      "to() received an invalid combination of arguments - got (%s), but expected one of:\n"
      " * (torch.device device = None, torch.dtype dtype = None, bool non_blocking = False, bool copy = False, "
      "*, torch.memory_format memory_format = None)\n"
      " * (torch.dtype dtype, bool non_blocking = False, bool copy = False, *, torch.memory_format "
      "memory_format = None)\n"
      " * (Tensor tensor, bool non_blocking = False, bool copy = False, *, torch.memory_format memory_format "
      "= None)\n",
      given.text ? given.text : "");
  wk__string_release(&given);
  return NULL;
}

static PyObject *tensor_to(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  wk_tensor *t = wk__tensor_of(self);
  wk_dtype dtype = (wk_dtype)t->dtype;
  wk_device device = t->device;
  bool copy = false, later = false;
  const char *format = NULL;
  int bools = 0;
  Py_ssize_t named = keywords ? PyTuple_GET_SIZE(keywords) : 0;
  for (Py_ssize_t i = 0; i < n + named; i++) {
    PyObject *name = i >= n ? PyTuple_GET_ITEM(keywords, i - n) : NULL;
    if (name && PyUnicode_CompareWithASCIIString(name, "copy") == 0) {
      copy = args[i] == Py_True;
      continue;
    }
    if (name && PyUnicode_CompareWithASCIIString(name, "memory_format") == 0 && args[i] != Py_None) {
      bool known = Py_IS_TYPE(args[i], state_of(self)->memory_format_type);
      if (!known) return bad_conversion(state_of(self), args, n, keywords);
      format = wk__named_constant(state_of(self), args[i]);
      continue;
    }
    if (name && PyUnicode_CompareWithASCIIString(name, "non_blocking") == 0) {
      later = args[i] == Py_True;
      continue;
    }
    int known = conversion_argument(state_of(self), args[i], &dtype, &device, &copy, &later, &bools);
    if (known < 0) return NULL;
    if (!known) return bad_conversion(state_of(self), args, n, keywords);
  }
  PyObject *result = (later ? converted_later : converted)(self, dtype, device, copy);
  return in_format(self, result, format);
}

/* x.float() and its kind: a keyword may name the order of dims. */
static PyObject *converted_to(PyObject *self, wk_dtype dtype, wk_device device, const char *function,
                              PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  const char *format = NULL;
  if (n)
    return PyErr_Format(PyExc_TypeError, "%s() takes 0 positional arguments but %zd %s given", function, n,
                        n == 1 ? "was" : "were");
  for (Py_ssize_t i = 0; keywords && i < PyTuple_GET_SIZE(keywords); i++) {
    PyObject *name = PyTuple_GET_ITEM(keywords, i);
    if (PyUnicode_CompareWithASCIIString(name, "memory_format") != 0)
      return PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", function, name);
    if (args[i] != Py_None && !(format = wk__memory_format_name(state_of(self), args[i], function))) return NULL;
  }
  return in_format(self, converted(self, dtype, device, false), format);
}

#define CONVERSION(name, target)                                                              \
  static PyObject *tensor_##name(PyObject *self, PyObject *const *args, Py_ssize_t n,         \
                                 PyObject *keywords) { /* -> new */                           \
    return converted_to(self, target, wk__tensor_of(self)->device, #name, args, n, keywords); \
  }
CONVERSION(float, WK_FLOAT32)
CONVERSION(double, WK_FLOAT64)
CONVERSION(half, WK_FLOAT16)
CONVERSION(bfloat16, WK_BFLOAT16)
CONVERSION(long, WK_INT64)
CONVERSION(int, WK_INT32)
CONVERSION(short, WK_INT16)
CONVERSION(char, WK_INT8)
CONVERSION(byte, WK_UINT8)
CONVERSION(bool, WK_BOOL)
CONVERSION(cfloat, WK_COMPLEX64)
CONVERSION(cdouble, WK_COMPLEX128)
static PyObject *tensor_cpu(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  return converted_to(self, (wk_dtype)wk__tensor_of(self)->dtype, WK__CPU_DEVICE, "cpu", args, n, keywords);
}

/* cuda(device=None, non_blocking=False): a number is an index. */
static PyObject *tensor_cuda(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  static const wk__signature signature = {"cuda", 0, 2, {"device", "non_blocking", "memory_format"}};
  PyObject *given[3];
  wk_device device = {WK_CUDA, -1};
  if (wk__bind(&signature, args, n, keywords, given) < 0) return NULL;
  if (wk__device_argument(state_of(self), given[0], &device) < 0) return NULL;
  if (device.type != WK_CUDA) return PyErr_Format(PyExc_RuntimeError, "Invalid device, must be cuda device");
  if (wk__device_resolve(&device) != WK_OK) return wk__raise(state_of(self));
  bool later = given[1] == Py_True;
  return (later ? converted_later : converted)(self, (wk_dtype)wk__tensor_of(self)->dtype, device, false);
}

/* The dtype of "torch.LongTensor" or "torch.cuda.LongTensor", and the type of its device; WK_DTYPE_NONE with the error
 * set. */
static wk_dtype dtype_of_type_name(PyObject *text, wk_device *out_device) {
  static const char missing[] = "type %U not available. Torch not compiled with CUDA enabled.", cuda[] = "torch.cuda.";
  const char *name = PyUnicode_AsUTF8(text);
  *out_device = WK__CPU_DEVICE;
  if (name && strncmp(name, cuda, strlen(cuda)) == 0) {
    *out_device = (wk_device){WK_CUDA, -1};
    if (!wk__device_types[WK_CUDA]->count(false)) PyErr_Format(PyExc_TypeError, missing, text);
  }
  for (int d = 0; name && !PyErr_Occurred() && d < WK_DTYPE_COUNT; d++) {
    char known[64];
    wk__print_type(known, sizeof known, (wk_dtype)d, *out_device);
    if (strcmp(name, known) == 0) return (wk_dtype)d;
  }
  if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "invalid type: %R", text);
  return WK_DTYPE_NONE;
}

/* The same of the class torch.LongTensor, which knows its name; torch.Tensor has the default dtype. */
static wk_dtype dtype_of_type(const wk__state *state, PyObject *type, wk_device *out_device) {
  if (type == (PyObject *)state->tensor_type) return (wk_dtype)wk__thread.default_dtype; /* where the tensor is */
  PyObject *module = PyObject_GetAttrString(type, "__module__");
  PyObject *name = module ? PyObject_GetAttrString(type, "__name__") : NULL;
  bool builtin = name && PyUnicode_CompareWithASCIIString(module, "builtins") == 0;
  PyObject *text = !name ? NULL : builtin ? Py_NewRef(name) : PyUnicode_FromFormat("%S.%S", module, name);
  wk_dtype dtype = text ? dtype_of_type_name(text, out_device) : WK_DTYPE_NONE;
  Py_XDECREF(text);
  Py_XDECREF(name);
  Py_XDECREF(module);
  return dtype;
}

/* type(): the name of the tensor's type; type(dtype), also by the name or class of such a type. */
static PyObject *tensor_type(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  wk_tensor *t = wk__tensor_of(self);
  if (n == 0 && !keywords) {
    char name[64];
    wk__print_type(name, sizeof name, (wk_dtype)t->dtype, t->device);
    return PyUnicode_FromString(name);
  }
  wk_dtype dtype;
  wk_device device = t->device;
  if (PyUnicode_Check(args[0]) || PyType_Check(args[0])) {
    dtype = PyUnicode_Check(args[0]) ? dtype_of_type_name(args[0], &device)
                                     : dtype_of_type(state_of(self), args[0], &device);
    if (dtype == WK_DTYPE_NONE) return NULL;
    if (device.type == t->device.type) device = t->device;
    if (wk__device_resolve(&device) != WK_OK) return wk__raise(state_of(self));
  } else if (wk__dtype_from_python(state_of(self), args[0], &dtype) < 0) {
    return NULL;
  }
  return converted(self, dtype, device, false);
}

WK__OVERRIDABLE(tensor_to, "to")
WK__OVERRIDABLE(tensor_type, "type")
WK__OVERRIDABLE(tensor_float, "float")
WK__OVERRIDABLE(tensor_double, "double")
WK__OVERRIDABLE(tensor_half, "half")
WK__OVERRIDABLE(tensor_bfloat16, "bfloat16")
WK__OVERRIDABLE(tensor_long, "long")
WK__OVERRIDABLE(tensor_int, "int")
WK__OVERRIDABLE(tensor_short, "short")
WK__OVERRIDABLE(tensor_char, "char")
WK__OVERRIDABLE(tensor_byte, "byte")
WK__OVERRIDABLE(tensor_bool, "bool")
WK__OVERRIDABLE(tensor_cfloat, "cfloat")
WK__OVERRIDABLE(tensor_cdouble, "cdouble")
WK__OVERRIDABLE(tensor_cpu, "cpu")
WK__OVERRIDABLE(tensor_cuda, "cuda")

PyMethodDef wk__tensor_conversion_methods[] = {
    {"to", WK__METHOD(tensor_to_entry), WK__FAST_CALL, "Converts dtype and device."},
    {"type", WK__METHOD(tensor_type_entry), WK__FAST_CALL, NULL},
    {"float", WK__METHOD(tensor_float_entry), WK__FAST_CALL, NULL},
    {"double", WK__METHOD(tensor_double_entry), WK__FAST_CALL, NULL},
    {"half", WK__METHOD(tensor_half_entry), WK__FAST_CALL, NULL},
    {"bfloat16", WK__METHOD(tensor_bfloat16_entry), WK__FAST_CALL, NULL},
    {"long", WK__METHOD(tensor_long_entry), WK__FAST_CALL, NULL},
    {"int", WK__METHOD(tensor_int_entry), WK__FAST_CALL, NULL},
    {"short", WK__METHOD(tensor_short_entry), WK__FAST_CALL, NULL},
    {"char", WK__METHOD(tensor_char_entry), WK__FAST_CALL, NULL},
    {"byte", WK__METHOD(tensor_byte_entry), WK__FAST_CALL, NULL},
    {"bool", WK__METHOD(tensor_bool_entry), WK__FAST_CALL, NULL},
    {"cfloat", WK__METHOD(tensor_cfloat_entry), WK__FAST_CALL, NULL},
    {"cdouble", WK__METHOD(tensor_cdouble_entry), WK__FAST_CALL, NULL},
    {"cpu", WK__METHOD(tensor_cpu_entry), WK__FAST_CALL, NULL},
    {"cuda", WK__METHOD(tensor_cuda_entry), WK__FAST_CALL, NULL},
    {0}};
