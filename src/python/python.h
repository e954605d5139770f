/* What the files of the extension module share: the per-module state (nothing Python is static, so that several
 * interpreters can load wick), error translation, and the conversion between tensors and their Python objects. */
#ifndef WICK_PYTHON_PYTHON_H
#define WICK_PYTHON_PYTHON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "ops/ops.h"

/* Interned names, one field each: STATE_NAME(identifier). */
// clang-format off
#define WK__PYTHON_NAMES(NAME) \
  NAME(__dict__) NAME(__class__) NAME(__name__) NAME(__torch_function__) NAME(_parameters) NAME(_buffers) \
  NAME(_modules) NAME(_non_persistent_buffers_set) NAME(_backward_hooks) NAME(_backward_pre_hooks) \
  NAME(_forward_hooks) NAME(_forward_pre_hooks) NAME(_forward_hooks_with_kwargs) \
  NAME(_forward_pre_hooks_with_kwargs) NAME(_forward_hooks_always_called) NAME(forward) NAME(training) \
  NAME(__getattr__) NAME(register_parameter) NAME(_call_impl) NAME(grad) NAME(data) NAME(requires_grad) \
  NAME(backward) NAME(stride) NAME(device) NAME(dtype) NAME(out) NAME(__array__) NAME(_compiled_call_impl) \
  NAME(apply) NAME(_backward_cls) NAME(_has_setup_context)
// clang-format on

typedef struct wk__state {
  PyObject *module;             /* borrowed: the extension module itself */
  PyTypeObject *tensor_type;    /* wick.Tensor */
  PyTypeObject *parameter_type; /* wick.nn.Parameter, a Python subclass of Tensor; set by the package at import */
  PyTypeObject *module_type;    /* wick._C.Module: nn.Module's attribute and call path */
  PyTypeObject *dtype_type, *device_type, *size_type, *generator_type, *storage_type, *node_type, *function_type;
  PyTypeObject *memory_format_type, *layout_type;             /* of torch.contiguous_format, torch.strided, ... */
  PyTypeObject *graph_type, *graph_node_type, *overload_type; /* of fx: graph_parts.h */
  PyObject *graph_objects;                                    /* dict: what fx has looked up or made once */
  PyTypeObject *operator_type; /* wick.add and Tensor.add: one callable per name, all overloads behind it */
  PyTypeObject **return_types; /* by an operator's number: the tuple with names of its results, or NULL; owned array */
  PyObject *return_type_objects;              /* dict: those types */
  PyObject *dtypes[32];                       /* the dtype singletons, by wk_dtype */
  struct wk__python_tensor *free_tensors[64]; /* objects of dead tensors, to be used again */
  int free_tensor_count;
  bool overrides;              /* some class or mode overrides calls: see override.h */
  int modes;                   /* torch function modes that are on, of all threads */
  PyObject *disabled_override; /* the __torch_function__ of classes that override nothing */
  PyObject *exception_out_of_memory, *exception_accelerator; /* of torch.cuda; NULL: not asked for yet */
  struct wk__binding *binding;                               /* what dynamo knows of this module; owned */
  struct wk__nn_state *nn;                                   /* nn_module.c's names, caches and global hooks */
#define NAME(x) PyObject *name_##x;
  WK__PYTHON_NAMES(NAME)
#undef NAME
} wk__state;

extern struct PyModuleDef wk__python_module;
wk__state *wk__state_of_module(PyObject *module);
wk__state *wk__state_of_type(PyTypeObject *type); /* any heap type of ours, or a subclass of one */

/* ---- tensor_type.c ---- */
typedef struct wk__python_tensor {
  PyObject_HEAD wk_tensor *tensor; /* owned; never NULL after __new__ */
  wk__state *state;                /* lives as long as the type does */
  PyObject *dict;                  /* attributes a program set, or NULL */
  PyObject *weak_references;
} wk__python_tensor;
static inline bool wk__is_tensor(const wk__state *state, PyObject *o) {
  return Py_IS_TYPE(o, state->tensor_type) || PyObject_TypeCheck(o, state->tensor_type);
}
static inline wk_tensor *wk__tensor_of(PyObject *o) { return ((wk__python_tensor *)o)->tensor; } /* borrowed */
/* Takes the reference. The same tensor gives the same object while that object lives. NULL gives NULL. */
PyObject *wk__wrap(wk__state *state, wk_tensor *steal_tensor);  // -> new

PyObject *wk__swap_tensors(PyObject *module, PyObject *args);  // -> new, None

/* ---- errors.c ---- */
PyObject *wk__raise(wk__state *state);  /* turns the thread's wick error into a Python exception; returns NULL */
wk_status wk__status_from_python(void); /* a Python exception is set: WK_INTERRUPTED, so that C code unwinds */

/* ---- small_types.c: dtype, device, Size, Generator, finfo, iinfo ---- */
typedef struct wk__python_dtype {
  PyObject_HEAD uint8_t dtype; /* wk_dtype */
} wk__python_dtype;
typedef struct wk__python_device {
  PyObject_HEAD wk_device device;
} wk__python_device;
struct wk__generator;
typedef struct wk__python_generator {
  PyObject_HEAD struct wk__generator *generator; /* owned */
} wk__python_generator;
PyObject *wk__dtype_object(wk__state *state, wk_dtype dtype);                 // -> new
PyObject *wk__device_object(wk__state *state, wk_device device);              // -> new
PyObject *wk__size_object(wk__state *state, const wk_int *sizes, int count);  // -> new, a wick.Size (tuple subclass)
/* 0, or -1 with an exception. A dtype may be given as Python's float, int or bool; a device as string, int or device.
 */
int wk__dtype_from_python(wk__state *state, PyObject *o, wk_dtype *out_dtype);
int wk__device_from_python(wk__state *state, PyObject *o, wk_device *out_device);
int wk__device_as_named(wk__state *state, PyObject *o, wk_device *out_device); /* the same, whose index may be -1 */
/* "channels_last" for torch.channels_last, "strided" for torch.strided: memory formats and layouts. NULL for any other
 * object (no exception is set). */
const char *wk__named_constant(wk__state *state, PyObject *o);

/* ---- arguments.c: between Python objects and wk_value, by schema ---- */
/* A Python number, also a NumPy one or a tensor with one element where `allow_tensor`. 0, or -1 with an exception. */
int wk__scalar_from_python(wk__state *state, PyObject *o, wk_value *out_value);
/* Whether it is a complex number, or a tensor that holds one, and which. */
bool wk__complex_from_python(const wk__state *state, PyObject *o, Py_complex *out);
int wk__int_from_python(wk__state *state, PyObject *o, wk_int *out_value);
/* Ints from a sequence (or from one int when `single`): at most WK_MAX_DIMS of them. Returns the count, or -1. */
int wk__ints_from_python(wk__state *state, PyObject *o, wk_int *out_list, bool single);
int wk__ints_up_to(wk__state *state, PyObject *o, wk_int *out_list, bool single, Py_ssize_t most);
int wk__too_many_dims(void); /* raises what is said of more than WK_MAX_DIMS; -1 */
/* A number as a tensor without dims, of the dtype that it and `beside` (may be NULL) compute in. Owned; NULL with an
 * exception. */
wk_tensor *wk__number_as_tensor(wk__state *state, const wk_value *number, const wk_tensor *beside);
/* Takes the value. A tensor, a list of tensors as a tuple or list. */
PyObject *wk__value_to_python(wk__state *state, wk_value *steal_value);  // -> new
/* Of a call's argument, which it leaves alone: lists of all kinds as lists, devices and strings; a generator as None.
 */
PyObject *wk__value_object(wk__state *state, const wk_value *value);  // -> new
/* Calls an operator from C code of the module; the result as a Python object, errors raised. */
/* What is given, with the warning that the thread's work has left (wk__thread.warning), if any; NULL where that raises.
 */
PyObject *wk__warned(PyObject *steal_result);  // -> new
PyObject *wk__call_to_python(wk__state *state, const wk_op *op, const wk_value *args,
                             wk_tensor *const *destinations);  // -> new

/* ---- return_types.c ---- */
/* Two results as a tuple, one with names where the schema has them. Takes both. */
PyObject *wk__named_results(const wk__state *state, const wk_op *op, PyObject *steal_values,
                            PyObject *steal_indices);  // -> new

/* ---- operators.c ---- */
/* While a graph is captured: numbers that its operator `op` cannot have as inputs become constants. */
void wk__settle_numbers(const wk_op *op, wk_value *values);
/* A callable of one overload, which writes its first argument when in place. */
PyObject *wk__operator_object(wk__state *state, const wk_op *op, bool in_place);  // -> new
/* wk__call_to_python for one; where it warns, of outputs with elements that had another size. */
PyObject *wk__call_with_out(wk__state *state, const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                            bool warns);  // -> new
/* The type of an argument as PyTorch lists it where no overload fits. */
const char *wk__given_type(const wk__state *state, PyObject *value);
/* A function of the core that the package does not show. */
bool wk__is_hidden_operator(const wk__state *state, PyObject *o);
/* The first overload behind an operator object. */
const wk_op *wk__operator_first(PyObject *operator, bool * out_in_place, bool *out_is_method);

/* ---- interop.c and its kin: tensors from Python data and from other libraries' memory, storage ---- */
/* torch.tensor(data): nested sequences, numbers, arrays. dtype WK_DTYPE_NONE infers. An owned tensor, NULL with an
 * exception. */
wk_tensor *wk__tensor_from_python(wk__state *state, PyObject *data, wk_dtype dtype);
/* Tensor's buffer slots (buffers.c): writable, strided memory of a CPU tensor that does not require grad. */
int wk__tensor_get_buffer(PyObject *self, Py_buffer *view, int flags);
void wk__tensor_release_buffer(PyObject *self, Py_buffer *view);

/* ---- each file adds its types and functions when the module is made; 0 or -1 ---- */
int wk__add_tensor_type(PyObject *module, wk__state *state);
void wk__free_tensor_objects(wk__state *state);                  /* for the module's m_free */
PyObject *wk__global_call_hooks(const wk__state *state, int k);  // -> borrowed; NULL behind the last dictionary
int wk__add_operators(PyObject *module, wk__state *state);
int wk__add_return_types(PyObject *module, wk__state *state);
int wk__add_inplace_views(wk__state *state);
int wk__add_small_types(PyObject *module, wk__state *state);
int wk__add_interop(PyObject *module, wk__state *state);
int wk__add_autograd(PyObject *module, wk__state *state);
int wk__add_nn_module(PyObject *module, wk__state *state);
int wk__add_control_flow(PyObject *module);
int wk__add_score_bodies(PyObject *module);
int wk__add_levels(PyObject *module);
int wk__add_sparse(PyObject *module);
int wk__add_tiles(PyObject *module);
int wk__add_devices(PyObject *module);
int wk__add_device_memory(PyObject *module);
int wk__add_device_graphs(PyObject *module);
PyObject *wk__pinned(PyObject *tensor);  // -> new: as pin_memory=True of a call gives it
int wk__add_artifacts(PyObject *module);
int wk__add_dynamo_binding(PyObject *module, wk__state *state);
void wk__free_dynamo_binding(wk__state *state); /* for the module's m_free */
void wk__free_nn_module(wk__state *state);      /* for the module's m_free */
/* Methods that files other than tensor_type.c give to Tensor. Ended by an entry with a NULL name. */
extern PyMethodDef wk__tensor_autograd_methods[];
extern PyMethodDef wk__tensor_interop_methods[];
extern PyMethodDef wk__tensor_conversion_methods[];
/* tensor_convert.c: the name of a memory format. NULL with an exception. */
const char *wk__memory_format_name(wk__state *state, PyObject *o, const char *function);
extern PyGetSetDef wk__tensor_autograd_getset[];
extern PyGetSetDef wk__tensor_complex_getset[];
extern PyMethodDef wk__tensor_complex_methods[];

#endif
