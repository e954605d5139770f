/* Pinned memory of the host, for Python. The methods of Tensor that are made of these functions are in
 * python/wick/functions/methods.py. Tests: tests/cuda/test_pinned.py. */
#include "cuda/cuda.h"
#include "python/data/interop.h"

/* A tensor on the CPU, with memory; else an exception. */
static wk_tensor *pinnable(wk__state *state, PyObject *o) {
  if (!wk__is_tensor(state, o)) return (void *)PyErr_Format(PyExc_TypeError, "a tensor is wanted");
  wk_tensor *t = wk__tensor_of(o);
  if (t->device.type != WK_CPU)
    return (void *)PyErr_Format(PyExc_RuntimeError, "cannot pin '%s' only dense CPU tensors can be pinned",
                                wk__device_type_name(t->device.type));
  if (wk__realize(t, "memory is pinned for it") != WK_OK) return (void *)wk__raise(state);
  return t;
}

/* A tensor of the same sizes and strides in pinned memory, its values whatever is there. */
static PyObject *pinned_like(PyObject *module, PyObject *o) {  // -> new
  wk__state *state = wk__state_of_module(module);
  int64_t sizes[WK_MAX_DIMS], strides[WK_MAX_DIMS], elements = 1;
  const wk_tensor *t = pinnable(state, o);
  if (!t) return NULL;
  for (int d = 0; d < t->ndim; d++) {
    sizes[d] = wk__size(t, d);
    strides[d] = wk__stride(t, d);
    elements = sizes[d] && elements ? elements + (sizes[d] - 1) * strides[d] : 0;
  }
  void *memory = wk__cuda_pinned_allocate(elements * (int64_t)wk__itemsize(t));
  if (!memory) return wk__raise(state);
  wk_tensor *made =
      wk__tensor_over_memory(memory, (wk_dtype)t->dtype, t->ndim, sizes, strides, wk__cuda_pinned_release, memory);
  if (made) return wk__wrap(state, made);
  wk__cuda_pinned_release(memory);
  return wk__raise(state);
}

PyObject *wk__pinned(PyObject *tensor) {  // -> new
  if (wk__cuda_device_type.count(false)) return PyObject_CallMethod(tensor, "pin_memory", NULL);
  return PyErr_Format(PyExc_RuntimeError,
                      "pin_memory=True requires a CUDA or other accelerator backend; no pinned "
                      "memory allocator is available on this system.");
}

static PyObject *is_pinned(PyObject *module, PyObject *o) {  // -> new
  wk__state *state = wk__state_of_module(module);
  if (!wk__is_tensor(state, o)) return PyErr_Format(PyExc_TypeError, "a tensor is wanted");
  const wk_tensor *t = wk__tensor_of(o);
  return PyBool_FromLong(t->device.type == WK_CPU && t->storage && t->storage->data &&
                         wk__cuda_is_pinned(t->storage->data));
}

static PyObject *pinned_usage(PyObject *module, PyObject *unused) {  // -> new
  wk__cuda_pinned_usage u;
  (void)module, (void)unused;
  wk__cuda_pinned_usage_get(&u);
  return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L}", "allocated", (long long)u.allocated,
                       "peak_allocated", (long long)u.peak_allocated, "reserved", (long long)u.reserved,
                       "peak_reserved", (long long)u.peak_reserved, "allocations", (long long)u.allocations, "frees",
                       (long long)u.frees, "segments", (long long)u.segments, "segment_frees",
                       (long long)u.segment_frees, "active", (long long)u.active, "owned", (long long)u.owned);
}

static PyObject *reset_pinned_peaks(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  wk__cuda_pinned_usage_reset_peaks();
  Py_RETURN_NONE;
}

static PyObject *reset_pinned_totals(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  wk__cuda_pinned_usage_reset_totals();
  Py_RETURN_NONE;
}

static PyObject *empty_pinned(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  wk__cuda_pinned_empty_cache();
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_cuda_pinned_like", pinned_like, METH_O, "An empty tensor like another in pinned memory."},
    {"_cuda_is_pinned", is_pinned, METH_O, "Whether a tensor's memory is pinned."},
    {"_cuda_pinned_usage", pinned_usage, METH_NOARGS, "Bytes of pinned memory, as a dict."},
    {"_cuda_reset_pinned_peaks", reset_pinned_peaks, METH_NOARGS, "Peaks of pinned memory start at what is used now."},
    {"_cuda_reset_pinned_totals", reset_pinned_totals, METH_NOARGS, "Counts of pinned memory since the start are 0."},
    {"_host_emptyCache", empty_pinned, METH_NOARGS, "Unpins memory of the host that no tensor has."},
    {0}};

int wk__add_device_memory(PyObject *module) { return PyModule_AddFunctions(module, functions); }
