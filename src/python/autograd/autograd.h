/* What the files of the Python side of autograd/ share: node objects, hooks, custom functions, grad modes. */
#ifndef WICK_PYTHON_AUTOGRAD_AUTOGRAD_H
#define WICK_PYTHON_AUTOGRAD_AUTOGRAD_H

#include "autograd/autograd.h"
#include "dynamo/cpython/gil.h"
#include "python/python.h"

/* ---- autograd.c: nodes as objects ---- */

/* Takes the reference. The same node gives the same object while that object lives. NULL gives None. */
PyObject *wk__wrap_node(wk__state *state, wk_node *steal_node);  // -> new
/* Shared by Node and by the contexts of custom functions; `node` is borrowed. */
PyObject *wk__node_next_functions(wk__state *state, const wk_node *node);  // -> new
/* Backward from Python's arguments; grads, inputs: NULL, None, a tensor or a sequence. The gradients of the inputs as a
 * tuple, or None when they were accumulated. */
typedef struct wk__backward_arguments {
  PyObject *tensors, *grads, *inputs; /* borrowed */
  bool retain_graph, create_graph, allow_unused, accumulate;
} wk__backward_arguments;
PyObject *wk__backward_from_python(wk__state *state, const wk__backward_arguments *arguments);  // -> new

/* A tensor over the same memory, without history and base. While calls are recorded it is one of them. NULL with the
 * error set. (autograd_tensor.c) */
wk_tensor *wk__detached_alias(wk_tensor *tensor);

/* ---- anomaly.c ---- */
void wk__anomaly_detect(bool on, bool finds_nan);

/* ---- autograd_hooks.c: Python callables as hooks ---- */

/* A RemovableHandle of the hook, which now stands in the tensor's (or node's) ordered dict of hooks. */
PyObject *wk__tensor_add_hook(wk__state *state, PyObject *tensor, PyObject *hook, bool accumulate);  // -> new
PyObject *wk__node_add_python_hook(wk__state *state, wk_node *node, PyObject *hook, bool post);      // -> new
Py_ssize_t wk__hook_count(const wk_node *node); /* at the node and at its results */
/* While something is captured code of C is called by way of Python, whose frames are followed. */
PyObject *wk__call_hook(PyObject *hook, PyObject *const *args, Py_ssize_t count);  // -> new
PyObject *wk__tensor_hooks(wk_tensor *tensor, bool accumulate);  // -> borrowed, the dict; NULL when there is none
/* 0 or -1. The dict is kept: hooks added to it later count. */
int wk__tensor_set_hooks(wk__state *state, PyObject *tensor, PyObject *dict);
/* For Tensor's tp_traverse: what a tensor that only its object holds keeps alive (hooks, a custom function). */
int wk__tensor_autograd_traverse(wk_tensor *tensor, visitproc visit, void *arg);

/* ---- function.c, function_apply.c: autograd.Function ---- */

typedef struct wk__saved_tensor {
  wk_tensor *tensor; /* owned; a result without its history; NULL: None was saved */
  int32_t result;    /* which result of the node it is, -1: not one */
  uint32_t version;
  wk__packed *packed; /* owned: it is kept by saved_tensors_hooks, `tensor` is NULL */
  wk__edge edge;      /* owned: of a packed tensor that is no result, its history */
} wk__saved_tensor;

/* A node of the tape that calls Python. It owns its context; the context points back without owning. */
struct wk__python_function;
typedef struct wk__function_node {
  wk_node node;
  struct wk__python_function *context; /* owned */
  int argument_count;                  /* of forward; input k of the node is the k-th tensor among them */
  bool *is_tensor;                     /* (argument_count) */
  wk_tensor **shapes; /* (inputs, then results) owned, shape only; NULL for results that are no tensors */
} wk__function_node;

/* `ctx`, an instance of <Function>Backward. */
typedef struct wk__python_function {
  PyObject_HEAD wk__state *state;
  wk__function_node *node; /* borrowed; NULL before forward has run and after the node is gone */
  PyObject *dict, *weak_references;
  PyObject *to_save, *non_differentiable, *dirty_tensors,
      *saved_for_forward;     /* owned; what forward asked for, or NULL */
  PyObject *needs_input_grad; /* owned: a tuple of bools */
  PyObject *metadata;         /* owned: the node's dict for programs, made when asked for */
  wk__saved_tensor *saved;    /* (saved_count) */
  int saved_count;
  bool freed; /* saved tensors were there and are gone */
  bool materialize_grads;
} wk__python_function;

int wk__add_function_type(PyObject *module, wk__state *state);
PyObject *wk__function_apply(PyObject *class, PyObject *args, PyObject *keywords);       // -> new
PyObject *wk__function_apply_here(PyObject *class, PyObject *args, PyObject *keywords);  // -> new; whatever the level
wk_status wk__function_save(wk__python_function *context);                               /* to_save -> saved */
void wk__function_release_saved(wk__python_function *context);
/* Visits the context of a custom function's node; nothing for other nodes. */
int wk__function_node_traverse(wk_node *node, visitproc visit, void *arg);

/* ---- saved_hooks.c: saved_tensors_hooks ---- */
int wk__add_saved_tensors_hooks(PyObject *module, wk__state *state);

/* ---- grad_mode.c: no_grad, enable_grad, set_grad_enabled, inference_mode ---- */
int wk__add_autocast(PyObject *module, wk__state *state);
int wk__add_grad_modes(PyObject *module, wk__state *state);

#endif
