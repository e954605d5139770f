/* What the files between Python's data and wick's share: binding of arguments, memory that a Python object owns,
 * arrays, DLPack, storages. */
#ifndef WICK_PYTHON_DATA_INTEROP_H
#define WICK_PYTHON_DATA_INTEROP_H

#include "python/python.h"

/* ---- signatures.c: arguments of functions that are no operators ---- */
enum { WK__MAX_PARAMETERS = 8 };
typedef struct wk__signature {
  const char *function;
  int required;   /* the first so many must be given */
  int positional; /* the first so many may be given by position; the others are keyword-only */
  const char *names[WK__MAX_PARAMETERS + 1]; /* ended by NULL */
} wk__signature;
/* Fills out[] (borrowed, NULL where not given). 0, or -1 with PyTorch's TypeError. */
int wk__bind(const wk__signature *signature, PyObject *const *args, Py_ssize_t n, PyObject *keywords, PyObject **out);
/* Optional arguments: NULL leaves *out, and so does None except for a bool. 0, or -1 with "f(): argument 'x' must be
 * ..." */
int wk__bool_argument(const char *function, const char *name, PyObject *o, bool *out);
int wk__dtype_argument(wk__state *state, const char *function, const char *name, PyObject *o, wk_dtype *out);
int wk__device_argument(wk__state *state, PyObject *o, wk_device *out);

#define WK__FAST_CALL (METH_FASTCALL | METH_KEYWORDS)
#define WK__METHOD(f) ((PyCFunction)(void (*)(void))(f))

/* ---- dtype_type.c, generator_type.c: parts of wk__add_small_types ---- */
int wk__add_dtypes(PyObject *module, wk__state *state);
int wk__add_generators(PyObject *module, wk__state *state);
/* A heap type of the module, listed in it under `name`. */
PyTypeObject *wk__add_type(PyObject *module, PyType_Spec *spec, PyTypeObject *base, const char *name);  // -> new

/* ---- interop.c ---- */
/* An owned copy without history; takes the tensor, which may be NULL with an exception. WK_DTYPE_NONE keeps the dtype.
 */
wk_tensor *wk__copied(wk__state *state, wk_tensor *steal_tensor, wk_dtype dtype, wk_device device);

/* ---- sequences.c ---- */
/* A tensor of the numbers in nested sequences, or of one number. dtype WK_DTYPE_NONE infers. NULL with an exception. */
wk_tensor *wk__tensor_from_sequence(wk__state *state, PyObject *data, wk_dtype dtype);
/* One element as a Python bool, int, float or complex. */
PyObject *wk__element_to_python(const void *element, wk_dtype dtype);  // -> new
PyObject *wk__item_to_python(wk__state *state, const wk_tensor *t);    // -> new: the first element, on any device

/* ---- buffers.c: memory of other objects, and ours for others ---- */
/* A tensor over memory from outside. Only when it succeeds is release(context) the tensor's to call. */
wk_tensor *wk__tensor_over_memory(void *data, wk_dtype dtype, int ndim, const int64_t *sizes, const int64_t *strides,
                                  void (*release)(void *), void *context);
bool wk__is_array(PyObject *o);        /* numpy.ndarray; false, without importing it, when NumPy is not loaded */
bool wk__is_array_scalar(PyObject *o); /* numpy.generic */
/* The dtype of an array or array scalar, WK_DTYPE_NONE with an exception. */
wk_dtype wk__array_dtype(PyObject *array);
/* A tensor over the array's memory. keep: it holds the array; else it may be used only while the caller does. */
wk_tensor *wk__tensor_over_array(PyObject *array, bool keep);
int wk__warn_read_only_array(void); /* once in a process; -1 when the warning became an exception */
/* A flat tensor over an object's buffer: torch.frombuffer. count -1: all. NULL with an exception. */
wk_tensor *wk__tensor_over_buffer(PyObject *o, wk_dtype dtype, int64_t count, int64_t offset);
/* A storage over an object's buffer, which must be writable. NULL with an exception. */
wk_storage *wk__storage_over_buffer(PyObject *o);
PyObject *wk__tensor_numpy(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords);     // -> new
PyObject *wk__tensor_as_array(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords);  // -> new
PyObject *wk__from_numpy(PyObject *module, PyObject *array);                                             // -> new
PyObject *wk__from_buffer(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *keywords);    // -> new
/* The tensor's elements can be read here and now; else an exception: `category`, unless it is being traced. */
int wk__check_readable(wk__state *state, const wk_tensor *t, wk_status category, const char *message_for_meta);

/* ---- dlpack.c ---- */
PyObject *wk__tensor_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords);  // -> new
PyObject *wk__tensor_dlpack_device(PyObject *self, PyObject *unused);                                  // -> new
PyObject *wk__from_dlpack(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *keywords);  // -> new
/* A tensor over the memory of a DLPack capsule, or of an object with __dlpack__. NULL with an exception. */
wk_tensor *wk__tensor_over_dlpack(wk__state *state, PyObject *o);
/* A tensor over memory of the device. NULL with an exception when there is no such device: then it is not released. */
wk_tensor *wk__tensor_on_cuda(wk_tensor *steal_tensor, int index);

/* ---- cuda_array.c ---- */
/* A tensor over the memory that an object's __cuda_array_interface__ says; it holds the object. NULL with an exception.
 */
wk_tensor *wk__tensor_over_cuda_array(PyObject *o);

/* ---- storage_type.c ---- */
PyObject *wk__tensor_untyped_storage(PyObject *self, PyObject *unused);  // -> new
PyObject *wk__tensor_typed_storage(PyObject *self, PyObject *unused);    // -> new
/* A tensor that lies in a copy of the tensor's storage as it lies in that. `memo` of a deep copy knows the storages
 * that have been copied; tensors without bytes are not meant. NULL with an exception. */
wk_tensor *wk__tensor_over_copy(PyObject *self, PyObject *memo);
int wk__add_storage(PyObject *module, wk__state *state);

/* ---- safetensors_file.c ---- */
int wk__add_safetensors(PyObject *module);

#endif
