/* What the files of the extension module share: the per-module state (nothing Python is static, so that several
 * interpreters can load wick), error translation, and the conversion between tensors and their Python objects. */
#ifndef WICK_PYTHON_PYTHON_H
#define WICK_PYTHON_PYTHON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "ops/ops.h"

/* Interned names, one field each: STATE_NAME(identifier). */
#define WK__PYTHON_NAMES(NAME)                                                                                        \
  NAME(__dict__) NAME(__class__) NAME(__name__) NAME(__torch_function__) NAME(_parameters) NAME(_buffers)             \
  NAME(_modules) NAME(_non_persistent_buffers_set) NAME(_backward_hooks) NAME(_backward_pre_hooks)                    \
  NAME(_forward_hooks) NAME(_forward_pre_hooks) NAME(_forward_hooks_with_kwargs)                                      \
  NAME(_forward_pre_hooks_with_kwargs) NAME(_forward_hooks_always_called) NAME(forward) NAME(training)                \
  NAME(__getattr__) NAME(register_parameter) NAME(_call_impl) NAME(grad) NAME(data) NAME(requires_grad)               \
  NAME(backward) NAME(stride) NAME(device) NAME(dtype) NAME(out) NAME(__array__) NAME(_compiled_call_impl)

typedef struct wk__state {
  PyObject *module;             /* borrowed: the extension module itself */
  PyTypeObject *tensor_type;    /* wick.Tensor */
  PyTypeObject *parameter_type; /* wick.nn.Parameter, a Python subclass of Tensor; set by the package at import */
  PyTypeObject *module_type;    /* wick._C.Module: nn.Module's attribute and call path */
  PyTypeObject *dtype_type, *device_type, *size_type, *generator_type, *storage_type, *node_type, *function_type;
  PyTypeObject *operator_type; /* wick.add and Tensor.add: one callable per name, all overloads behind it */
  PyObject *dtypes[32];        /* the dtype singletons, by wk_dtype */
  PyObject *exception_out_of_memory;
  struct wk__nn_state *nn; /* nn_module.c's names, caches and global hooks */
#define NAME(x) PyObject *name_##x;
  WK__PYTHON_NAMES(NAME)
#undef NAME
} wk__state;

extern struct PyModuleDef wk__python_module;
wk__state *wk__state_of_module(PyObject *module);
wk__state *wk__state_of_type(PyTypeObject *type); /* any heap type of ours, or a subclass of one */

/* ---- tensor_type.c ---- */
typedef struct wk__python_tensor {
  PyObject_HEAD
  wk_tensor *tensor; /* owned; never NULL after __new__ */
  wk__state *state;  /* lives as long as the type does */
  PyObject *dict;    /* attributes a program set, or NULL */
  PyObject *weak_references;
} wk__python_tensor;
static inline bool wk__is_tensor(const wk__state *state, PyObject *o) {
  return Py_IS_TYPE(o, state->tensor_type) || PyObject_TypeCheck(o, state->tensor_type);
}
static inline wk_tensor *wk__tensor_of(PyObject *o) { return ((wk__python_tensor *)o)->tensor; } /* borrowed */
/* Takes the reference. The same tensor gives the same object while that object lives. NULL gives NULL. */
PyObject *wk__wrap(wk__state *state, wk_tensor *steal_tensor); // -> new

/* ---- errors.c ---- */
PyObject *wk__raise(wk__state *state);           /* turns the thread's wick error into a Python exception; returns NULL */
wk_status wk__status_from_python(void);          /* a Python exception is set: WK_INTERRUPTED, so that C code unwinds */

/* ---- each file adds its types and functions when the module is made; 0 or -1 ---- */
int wk__add_tensor_type(PyObject *module, wk__state *state);
int wk__add_operators(PyObject *module, wk__state *state);
int wk__add_small_types(PyObject *module, wk__state *state);
int wk__add_autograd(PyObject *module, wk__state *state);
int wk__add_nn_module(PyObject *module, wk__state *state);
void wk__free_nn_module(wk__state *state); /* for the module's m_free */
int wk__add_storage(PyObject *module, wk__state *state);

#endif
