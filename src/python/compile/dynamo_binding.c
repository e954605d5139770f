/* What dynamo, which stands below this part, is told of the extension module's objects. */
#include "autograd/autograd.h"
#include "dynamo/dynamo.h"
#include "python/autograd/autograd.h"
#include "python/calls/override.h"
#include "python/fx/graph_type.h"

static PyObject *wrap(void *state, wk_tensor *steal_tensor) { return wk__wrap(state, steal_tensor); }  // -> new
static PyObject *graph_module(void *state, wk__graph *graph, const bool *integers) {                   // -> new
  return graph->env ? wk__graph_module_with_sizes(state, graph, integers) : wk__graph_module_create(state, graph);
}
static PyObject *size_example(int64_t value, const char *symbol) {  // -> new
  PyObject *module = PyImport_ImportModule("wick._symint");
  PyObject *made = module ? PyObject_CallMethod(module, "SymInt", "Ls", (long long)value, symbol) : NULL;
  Py_XDECREF(module);
  return made;
}
static PyObject *raise_error(void *state) { return wk__raise(state); }
static wk_tensor *tensor_of(PyObject *o) { return wk__tensor_of(o); }

static PyObject *grad_of(PyObject *o) {  // -> new
  const wk__autograd *meta = wk__tensor_of(o)->autograd;
  if (!meta || !meta->grad) return NULL;
  PyObject *grad = wk__wrap(((wk__python_tensor *)o)->state, wk__retain(meta->grad));
  if (!grad) PyErr_Clear();
  return grad;
}

static bool is_own_mode(PyTypeObject *type) {
  static const char *const names[] = {"no_grad",        "enable_grad",          "set_grad_enabled",
                                      "inference_mode", "DisableTorchFunction", "DisableTorchFunctionSubclass"};
  if (strncmp(type->tp_name, "wick._C.", 8) != 0) return false;
  for (size_t i = 0; i < WK_COUNT(names); i++)
    if (strcmp(type->tp_name + 8, names[i]) == 0) return true;
  return false;
}

static bool is_saver(PyTypeObject *type) {
  while (type && strcmp(type->tp_name, "wick._C.saved_tensors_hooks") != 0) type = type->tp_base;
  return type;
}

static PyObject *wrap_as(void *state, PyTypeObject *type, wk_tensor *steal_tensor) {  // -> new
  return wk__wrap_as(state, type, steal_tensor);
}
static PyObject *module_hooks(void *state, int k) { return wk__global_call_hooks(state, k); }  // -> borrowed
static PyObject *tensor_hooks(wk_tensor *t) { return wk__tensor_hooks(t, false); }             // -> borrowed
static int overrides(void *state) { return wk__override_state(state); }

static bool is_optimizer(void *state, PyObject *o) {
  (void)state;
  for (PyTypeObject *t = Py_TYPE(o); t && t->tp_flags & Py_TPFLAGS_HEAPTYPE; t = t->tp_base)
    if (strcmp(t->tp_name, "Optimizer") == 0) return true;
  return false;
}

int wk__add_dynamo_binding(PyObject *module, wk__state *state) {
  wk__binding *b = PyMem_Calloc(1, sizeof *b);
  if (!b) {
    PyErr_NoMemory();
    return -1;
  }
  state->binding = b;
  *b = (wk__binding){.state = state,
                     .module = module,
                     .tensor_type = state->tensor_type,
                     .parameter_type = &state->parameter_type,
                     .overload_type = &state->overload_type,
                     .function_type = &state->function_type,
                     .module_type = state->module_type,
                     .operator_type = state->operator_type,
                     .dtype_type = state->dtype_type,
                     .device_type = state->device_type,
                     .size_type = state->size_type,
                     .memory_format_type = state->memory_format_type,
                     .layout_type = state->layout_type,
                     .tensor_of = tensor_of,
                     .wrap = wrap,
                     .wrap_as = wrap_as,
                     .overrides = overrides,
                     .module_hooks = module_hooks,
                     .tensor_hooks = tensor_hooks,
                     .leaf_hooks = wk__tensor_hooks,
                     .call_hook = wk__call_hook,
                     .hook_count = wk__hook_count,
                     .raise = raise_error,
                     .graph_module = graph_module,
                     .size_example = size_example,
                     .grad_of = grad_of,
                     .grad_name = state->name_grad,
                     .new_name = PyUnicode_InternFromString("__new__"),
                     .is_own_mode = is_own_mode,
                     .is_saver = is_saver,
                     .is_optimizer = is_optimizer};
  b->finfo_type = (PyTypeObject *)PyObject_GetAttrString(module, "finfo");
  b->iinfo_type = (PyTypeObject *)PyObject_GetAttrString(module, "iinfo");
  return b->new_name && b->finfo_type && b->iinfo_type ? wk__add_dynamo(module, b) : -1;
}

void wk__free_dynamo_binding(wk__state *state) {
  if (!state->binding) return;
  Py_XDECREF(state->binding->new_name);
  Py_XDECREF(state->binding->finfo_type);
  Py_XDECREF(state->binding->iinfo_type);
  Py_XDECREF(state->binding->compiled_type);
  Py_XDECREF(state->binding->unsupported);
  Py_XDECREF(state->binding->forced);
  Py_XDECREF(state->binding->recompile_error);
  Py_XDECREF(state->binding->notes);
  Py_XDECREF(state->binding->break_errors);
  Py_XDECREF(state->binding->substitutes);
  PyMem_Free(state->binding);
  state->binding = NULL;
}
