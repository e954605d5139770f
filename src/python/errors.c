/* wick's errors as Python exceptions: the one place where categories map to types.
 * Tests: tests/python/test_errors.py. */
#include "python/python.h"

/* An exception of torch.cuda, which `kept` owns from the first time on; before there is a module RuntimeError. */
static PyObject *cuda_error(PyObject **kept, const char *name) {  // -> borrowed
  if (!*kept) {
    PyObject *module = PyImport_ImportModule("wick.cuda");
    *kept = module ? PyObject_GetAttrString(module, name) : NULL;
    Py_XDECREF(module);
    PyErr_Clear();
  }
  return *kept ? *kept : PyExc_RuntimeError;
}

/* torch.OutOfMemoryError, which is raised for a device's memory: for the host's PyTorch raises a RuntimeError. */
static PyObject *device_memory_error(wk__state *state) {  // -> borrowed
  bool of_device = state && strncmp(wk_error_message(), "CUDA", 4) == 0;
  return of_device ? cuda_error(&state->exception_out_of_memory, "OutOfMemoryError") : PyExc_RuntimeError;
}

/* torch.AcceleratorError, which is raised for what the device's driver refuses. */
static PyObject *runtime_error(wk__state *state) {  // -> borrowed
  bool of_device = state && strncmp(wk_error_message(), "CUDA error: ", 12) == 0;
  return of_device ? cuda_error(&state->exception_accelerator, "AcceleratorError") : PyExc_RuntimeError;
}

/* torch.linalg.LinAlgError */
static PyObject *linalg_error(void) {  // -> borrowed
  PyObject *module = PyImport_ImportModule("wick.linalg");
  PyObject *type = module ? PyObject_GetAttrString(module, "LinAlgError") : NULL;
  Py_XDECREF(module);
  PyErr_Clear();
  Py_XDECREF(type); /* the module keeps it */
  return type ? type : PyExc_RuntimeError;
}

static PyObject *type_of(wk__state *state, wk_status category) {  // -> borrowed
  switch (category) {
    case WK_VALUE_ERROR:
      return PyExc_ValueError;
    case WK_TYPE_ERROR:
      return PyExc_TypeError;
    case WK_INDEX_ERROR:
      return PyExc_IndexError;
    case WK_KEY_ERROR:
      return PyExc_KeyError;
    case WK_LINALG_ERROR:
      return linalg_error();
    case WK_IO_ERROR:
      return PyExc_OSError;
    case WK_NOT_IMPLEMENTED:
      return PyExc_NotImplementedError;
    case WK_OUT_OF_MEMORY:
      return device_memory_error(state);
    case WK_RUNTIME_ERROR:
      return runtime_error(state);
    default:
      return PyExc_RuntimeError;
  }
}

PyObject *wk__raise(wk__state *state) {
  wk_status category = wk_error_category();
  if (category == WK_INTERRUPTED && PyErr_Occurred()) {
    wk_error_clear();
    return NULL;
  }
  if (category == WK_INTERNAL_ERROR)
    PyErr_Format(PyExc_RuntimeError, "wick internal error at %s: %s", wk_error_origin(), wk_error_message());
  else
    PyErr_SetString(type_of(state, category), wk_error_message());
  wk_error_clear();
  return NULL;
}

wk_status wk__status_from_python(void) { return wk_fail(WK_INTERRUPTED, "a Python exception is set"); }
