/* Native code as bytes, for compiler.save_cache_artifacts() and load_cache_artifacts().
 * Tests: tests/python/test_native_cache.py. */
#include "device/device.h"
#include "python/python.h"

static PyObject *save_native(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  size_t size;
  char *data = wk__device_types[WK_CPU]->bundle_code(&size);
  PyObject *bytes = data ? PyBytes_FromStringAndSize(data, (Py_ssize_t)size) : Py_NewRef(Py_None);
  wk__free(data);
  return bytes;
}
static PyObject *load_native(PyObject *module, PyObject *data) {  // -> new
  (void)module;
  char *bytes;
  Py_ssize_t size;
  if (PyBytes_AsStringAndSize(data, &bytes, &size) < 0) return NULL;
  return PyLong_FromLongLong(wk__device_types[WK_CPU]->unbundle_code(bytes, (size_t)size));
}

static PyMethodDef functions[] = {
    {"_save_native", save_native, METH_NOARGS, "Native code that this process has used, as bytes; None: none."},
    {"_load_native", load_native, METH_O, "Puts it into the cache: how many entries; -1: it is something else."},
    {0}};

int wk__add_artifacts(PyObject *module) { return PyModule_AddFunctions(module, functions); }
