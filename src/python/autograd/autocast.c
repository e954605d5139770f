/* is_autocast_enabled, set_autocast_enabled and their kin: what of the thread ops/autocast.c looks at, by device.
 * Settings of devices that wick has no code for are kept and read back. The `with` of autocast is
 * wick/amp/autocast_mode.py. Tests: tests/python/test_autocast.py. */
#include "python/autograd/autograd.h"

#include "ops/ops.h"

/* Of a device type that wick has no code for. */
static struct {
  const char *type;
  bool enabled;
  uint8_t dtype;
} others[] = {{"xpu", false, WK_FLOAT16}, {"mps", false, WK_FLOAT16}};

enum { CUDA = -2, CPU = -1, WRONG = -3 }; /* where it is none of those */

static int other_of(const char *type) {
  for (int i = 0; i < (int)(sizeof others / sizeof *others); i++)
    if (strcmp(type, others[i].type) == 0) return i;
  return -1;
}

/* Its number among the others, or CPU, CUDA, or WRONG with the error set. */
static int device_of(PyObject *o) {
  const char *type = PyUnicode_AsUTF8(o);
  if (!type) return WRONG;
  if (strcmp(type, "cpu") == 0) return CPU;
  if (strcmp(type, "cuda") == 0) return CUDA;
  int other = other_of(type);
  if (other >= 0) return other;
  PyErr_Format(PyExc_RuntimeError, "unknown device type for autocast in get_autocast_dispatch_key_from_device_type");
  return WRONG;
}

static int bit_of(int device) { return device == CPU ? WK__AUTOCAST_ON_CPU : WK__AUTOCAST_ON_CUDA; }
static bool enabled_on(int device) {
  return device < 0 ? wk__thread.mode.autocast_on & bit_of(device) : others[device].enabled;
}

/* Without a device: CUDA's, as in PyTorch. */
static PyObject *is_enabled(PyObject *module, PyObject *const *args, Py_ssize_t n) {  // -> new
  (void)module;
  int device = n ? device_of(args[0]) : CUDA;
  return device == WRONG ? NULL : PyBool_FromLong(enabled_on(device));
}
static PyObject *is_cpu_enabled(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  return PyBool_FromLong(enabled_on(CPU));
}

static PyObject *set_on(int device, PyObject *flag) {  // -> new
  int enabled = PyObject_IsTrue(flag);
  if (device == WRONG || enabled < 0) return NULL;
  if (device >= 0)
    others[device].enabled = enabled;
  else
    wk__set_autocast_on(enabled ? wk__thread.mode.autocast_on | bit_of(device)
                                : wk__thread.mode.autocast_on & ~bit_of(device));
  Py_RETURN_NONE;
}
static PyObject *set_enabled(PyObject *module, PyObject *const *args, Py_ssize_t n) {  // -> new
  (void)module;
  if (n < 1 || n > 2) return PyErr_Format(PyExc_TypeError, "set_autocast_enabled() takes a device type and a bool");
  return set_on(n == 2 ? device_of(args[0]) : CUDA, args[n - 1]);
}
static PyObject *set_cpu_enabled(PyObject *module, PyObject *flag) {  // -> new
  (void)module;
  return set_on(CPU, flag);
}

static PyObject *dtype_of(PyObject *module, int device) {  // -> new
  if (device == WRONG) return NULL;
  const wk__thread_mode *m = &wk__thread.mode;
  int dtype = device == CPU ? m->autocast_dtype : device == CUDA ? m->autocast_cuda_dtype : others[device].dtype;
  return wk__dtype_object(wk__state_of_module(module), (wk_dtype)dtype);
}
static PyObject *get_dtype(PyObject *module, PyObject *type) { return dtype_of(module, device_of(type)); }  // -> new
static PyObject *get_cpu_dtype(PyObject *module, PyObject *unused) {                                        // -> new
  (void)unused;
  return dtype_of(module, CPU);
}
static PyObject *get_gpu_dtype(PyObject *module, PyObject *unused) {  // -> new
  (void)unused;
  return dtype_of(module, CUDA);
}

static PyObject *set_dtype_on(PyObject *module, int device, PyObject *o) {  // -> new
  wk_dtype dtype;
  if (device == WRONG || wk__dtype_from_python(wk__state_of_module(module), o, &dtype) < 0) return NULL;
  if (device == CPU) wk__thread.mode.autocast_dtype = (uint8_t)dtype;
  if (device == CUDA) wk__thread.mode.autocast_cuda_dtype = (uint8_t)dtype;
  if (device >= 0) others[device].dtype = (uint8_t)dtype;
  Py_RETURN_NONE;
}
static PyObject *set_dtype(PyObject *module, PyObject *const *args, Py_ssize_t n) {  // -> new
  if (n != 2) return PyErr_Format(PyExc_TypeError, "set_autocast_dtype() takes a device type and a dtype");
  return set_dtype_on(module, device_of(args[0]), args[1]);
}
static PyObject *set_cpu_dtype(PyObject *module, PyObject *o) { return set_dtype_on(module, CPU, o); }   // -> new
static PyObject *set_gpu_dtype(PyObject *module, PyObject *o) { return set_dtype_on(module, CUDA, o); }  // -> new

static PyObject *is_cache_enabled(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  return PyBool_FromLong(wk__thread.mode.autocast_caches);
}
static PyObject *set_cache_enabled(PyObject *module, PyObject *flag) {  // -> new
  (void)module;
  int enabled = PyObject_IsTrue(flag);
  if (enabled < 0) return NULL;
  wk__thread.mode.autocast_caches = enabled;
  Py_RETURN_NONE;
}
static PyObject *clear_cache(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"is_autocast_enabled", (PyCFunction)(void (*)(void))is_enabled, METH_FASTCALL,
     "is_autocast_enabled(device_type): whether calls on such devices are converted."},
    {"is_autocast_cpu_enabled", is_cpu_enabled, METH_NOARGS, "The same of the CPU."},
    {"set_autocast_enabled", (PyCFunction)(void (*)(void))set_enabled, METH_FASTCALL,
     "set_autocast_enabled(device_type, enabled)"},
    {"set_autocast_cpu_enabled", set_cpu_enabled, METH_O, "The same of the CPU."},
    {"get_autocast_dtype", get_dtype, METH_O, "get_autocast_dtype(device_type): the dtype of products."},
    {"get_autocast_cpu_dtype", get_cpu_dtype, METH_NOARGS, "The same of the CPU."},
    {"get_autocast_gpu_dtype", get_gpu_dtype, METH_NOARGS, "The same of CUDA."},
    {"set_autocast_dtype", (PyCFunction)(void (*)(void))set_dtype, METH_FASTCALL,
     "set_autocast_dtype(device_type, dtype)"},
    {"set_autocast_cpu_dtype", set_cpu_dtype, METH_O, "The same of the CPU."},
    {"set_autocast_gpu_dtype", set_gpu_dtype, METH_O, "The same of CUDA."},
    {"is_autocast_cache_enabled", is_cache_enabled, METH_NOARGS, "What set_autocast_cache_enabled was given."},
    {"set_autocast_cache_enabled", set_cache_enabled, METH_O, "Kept and read back: nothing is cached."},
    {"clear_autocast_cache", clear_cache, METH_NOARGS, "Nothing to clear."},
    {0}};

int wk__add_autocast(PyObject *module, wk__state *state) {
  (void)state;
  return PyModule_AddFunctions(module, functions);
}
