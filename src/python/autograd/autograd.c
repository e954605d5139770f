/* Nodes of the tape as Python objects, and backward() for Python.
 * In: tensors and gradients as Python passes them. Out: accumulated or returned gradients, PyTorch's exceptions.
 * A node's object has a type of its own named after the node, as programs print and compare type names.
 * Tests: tests/python/test_autograd.py, tests/parity/test_autograd_parity.py. */
#include "python/autograd/autograd.h"
#include "dynamo/cpython/objects.h"
#include "levels/levels.h"

#include <structmember.h>

/* ================================================== nodes ======================================================= */

typedef struct python_node {
  PyObject_HEAD wk_node *node; /* owned */
  wk__state *state;
  PyObject *weak_references;
} python_node;

static wk_node *node_of(PyObject *self) { return ((python_node *)self)->node; }

static void node_dealloc(PyObject *o) {
  python_node *self = (python_node *)o;
  PyTypeObject *type = Py_TYPE(o);
  PyObject_GC_UnTrack(o);
  if (self->weak_references) PyObject_ClearWeakRefs(o);
  if (self->node) {
    self->node->wrapper = NULL;
    wk__node_release(self->node);
  }
  type->tp_free(o);
  Py_DECREF(type);
}
static int node_traverse(PyObject *o, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(o));
  const wk_node *n = node_of(o);
  if (n && atomic_load(&n->references) == 1) Py_VISIT((PyObject *)n->notes);
  return 0;
}
static int node_clear(PyObject *o) {
  wk_node *n = node_of(o);
  if (!n || atomic_load(&n->references) != 1) return 0;
  PyObject *notes = n->notes;
  n->notes = NULL;
  Py_XDECREF(notes);
  return 0;
}

static PyObject *text_of(void (*print)(wk__string *, const wk_node *), const wk_node *n) {  // -> new
  wk__string name = {0};
  print(&name, n);
  PyObject *text = PyUnicode_FromString(name.text ? name.text : "?");
  wk__string_release(&name);
  return text;
}

/* The subtype of Node with that name, kept in the dict Node._types. */
static PyTypeObject *named_type(wk__state *state, PyObject *name) {  // -> new
  PyObject *base = (PyObject *)state->node_type, *types = PyObject_GetAttrString(base, "_types");
  PyObject *type = types ? Py_XNewRef(PyDict_GetItemWithError(types, name)) : NULL;
  if (types && !type && !PyErr_Occurred()) {
    type = PyObject_CallFunction((PyObject *)&PyType_Type, "O(O){s()ss}", name, base, "__slots__", "__module__",
                                 "builtins");
    if (type && PyDict_SetItem(types, name, type) < 0) Py_CLEAR(type);
  }
  Py_XDECREF(types);
  return (PyTypeObject *)type;
}

static PyObject *new_node_object(wk__state *state, wk_node *steal_node) {  // -> new
  PyObject *name = text_of(wk__node_print_name, steal_node);
  PyTypeObject *type = name ? named_type(state, name) : NULL;
  python_node *self = type ? (python_node *)type->tp_alloc(type, 0) : NULL;
  Py_XDECREF(name);
  Py_XDECREF(type);
  if (!self) {
    wk__node_release(steal_node);
    return NULL;
  }
  self->node = steal_node;
  self->state = state;
  steal_node->wrapper = self;
  return (PyObject *)self;
}

PyObject *wk__wrap_node(wk__state *state, wk_node *steal_node) {  // -> new
  if (!steal_node) Py_RETURN_NONE;
  if (!steal_node->wrapper) return new_node_object(state, steal_node);
  PyObject *known = Py_NewRef((PyObject *)steal_node->wrapper);
  wk__node_release(steal_node);
  return known;
}

/* An operator has an edge for each argument; those of numbers are not shown. */
static bool is_shown(const wk_node *n, int edge) {
  if (!n->op || edge >= n->op->schema.parameter_count) return true;
  return n->op->schema.parameters[edge].type == WK__TYPE_TENSOR;
}

PyObject *wk__node_next_functions(wk__state *state, const wk_node *n) {  // -> new
  int shown = 0;
  for (int i = 0; i < n->input_count; i++) shown += is_shown(n, i);
  PyObject *tuple = PyTuple_New(shown);
  for (int i = 0, at = 0; tuple && i < n->input_count; i++) {
    if (!is_shown(n, i)) continue;
    PyObject *next = wk__wrap_node(state, wk__node_retain(n->edges[i].node));
    PyObject *pair = next ? Py_BuildValue("(NI)", next, (unsigned)n->edges[i].input) : NULL;
    if (!pair)
      Py_CLEAR(tuple);
    else
      PyTuple_SET_ITEM(tuple, at++, pair);
  }
  return tuple;
}

static PyObject *node_next_functions(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return wk__node_next_functions(((python_node *)self)->state, node_of(self));
}
/* A dict, which lasts as long as the node, and not as its object here. */
static void release_notes(void *notes) {
  wk__gil gil = wk__gil_hold();
  if (gil.alive) Py_DECREF((PyObject *)notes);
  wk__gil_drop(gil);
}
static PyObject *node_metadata(PyObject *self, void *unused) {  // -> new
  (void)unused;
  wk_node *n = node_of(self);
  wk__node_release_notes = release_notes;
  if (!n->notes) n->notes = PyDict_New();
  return Py_XNewRef((PyObject *)n->notes);
}
static PyObject *node_variable(PyObject *self, void *unused) {  // -> new
  (void)unused;
  if (node_of(self)->sequence != UINT64_MAX)
    return PyErr_Format(PyExc_AttributeError, "'%s' object has no attribute 'variable'", wk__type_name(Py_TYPE(self)));
  return wk__wrap(((python_node *)self)->state, wk__retain(wk__accumulator_leaf(node_of(self))));
}
static PyObject *node_true(PyObject *self, void *unused) {  // -> new
  (void)self, (void)unused;
  Py_RETURN_TRUE;
}
static PyObject *node_name(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return text_of(wk__node_print_full_name, node_of(self));
}
static PyObject *node_sequence(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return PyLong_FromUnsignedLongLong(node_of(self)->sequence);
}
static PyObject *node_register_hook(PyObject *self, PyObject *hook) {  // -> new
  return wk__node_add_python_hook(((python_node *)self)->state, node_of(self), hook, true);
}
static PyObject *node_register_prehook(PyObject *self, PyObject *hook) {  // -> new
  return wk__node_add_python_hook(((python_node *)self)->state, node_of(self), hook, false);
}
static PyObject *node_repr(PyObject *self) {  // -> new
  return PyUnicode_FromFormat("<%s object at %p>", wk__type_name(Py_TYPE(self)), self);
}

static PyMethodDef node_methods[] = {
    {"name", node_name, METH_NOARGS, "name() -> str: the operator's name and \"Backward0\"."},
    {"_sequence_nr", node_sequence, METH_NOARGS, "The order of recording: later nodes run first."},
    {"register_hook", node_register_hook, METH_O,
     "register_hook(hook) -> RemovableHandle\n\nhook(grad_inputs, grad_outputs) runs after the node; a tuple replaces "
     "grad_inputs."},
    {"register_prehook", node_register_prehook, METH_O,
     "register_prehook(hook) -> RemovableHandle\n\nhook(grad_outputs) runs before the node; a tuple replaces "
     "grad_outputs."},
    {0}};
static PyGetSetDef node_getset[] = {
    {"next_functions", node_next_functions, NULL, "The nodes behind this one: a tuple of (node, index).", NULL},
    {"metadata", node_metadata, NULL, "A dict for programs.", NULL},
    {"variable", node_variable, NULL, "The leaf whose gradient an AccumulateGrad adds to.", NULL},
    {"requires_grad", node_true, NULL, NULL, NULL},
    {0}};
static PyMemberDef node_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(python_node, weak_references), READONLY, NULL}, {0}};
static PyType_Slot node_slots[] = {
    {Py_tp_dealloc, node_dealloc}, {Py_tp_traverse, node_traverse},    {Py_tp_clear, node_clear},
    {Py_tp_repr, node_repr},       {Py_tp_methods, node_methods},      {Py_tp_getset, node_getset},
    {Py_tp_members, node_members}, {Py_tp_doc, "A step of the tape."}, {0, NULL}};
static PyType_Spec node_spec = {
    .name = "wick._C.Node",
    .basicsize = sizeof(python_node),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = node_slots,
};

/* ================================================= backward ===================================================== */

/* The arrays of one request; tensors are borrowed from sequences that are kept. */
typedef struct request {
  PyObject *sequences[3]; /* owned: tensors, grads, inputs as tuples; NULL where not given */
  wk_tensor **arrays[3];  /* owned */
  wk_tensor **out_grads;  /* (inputs) owned */
} request;
enum { TENSORS, GRADS, INPUTS };

static void request_release(request *r) {
  Py_ssize_t inputs = r->sequences[INPUTS] ? PyTuple_GET_SIZE(r->sequences[INPUTS]) : 0;
  for (Py_ssize_t i = 0; r->out_grads && i < inputs; i++) wk__release(r->out_grads[i]);
  PyMem_Free(r->out_grads);
  for (int k = 0; k < 3; k++) {
    Py_XDECREF(r->sequences[k]);
    PyMem_Free(r->arrays[k]);
  }
}

static PyObject *wrong_item(int which, PyObject *item) {
  static const char *const texts[] = {"all elements of tensors have to be Tensors, but got %s",
                                      "gradients can be either Tensors or None, but got %s",
                                      "all inputs have to be Tensors or GradientEdges, but got %s"};
  PyErr_Format(which == INPUTS ? PyExc_RuntimeError : PyExc_TypeError, texts[which], wk__type_name(Py_TYPE(item)));
  return NULL;
}

/* A tensor, a sequence of them, or a dict's values. 0 or -1; None gives NULLs. */
static int read_tensors(wk__state *state, request *r, int which, PyObject *o) {
  if (!o || o == Py_None) return 0;
  if (wk__is_tensor(state, o))
    r->sequences[which] = PyTuple_Pack(1, o);
  else if (PyDict_Check(o)) {
    PyObject *values = PyDict_Values(o);
    r->sequences[which] = values ? PyList_AsTuple(values) : NULL;
    Py_XDECREF(values);
  } else
    r->sequences[which] = PySequence_Tuple(o);
  if (!r->sequences[which]) return -1;
  Py_ssize_t count = PyTuple_GET_SIZE(r->sequences[which]);
  r->arrays[which] = PyMem_Calloc((size_t)count + 1, sizeof(wk_tensor *));
  if (!r->arrays[which]) return PyErr_NoMemory(), -1;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *item = PyTuple_GET_ITEM(r->sequences[which], i);
    if (item == Py_None && which == GRADS) continue;
    if (!wk__is_tensor(state, item)) return wrong_item(which, item), -1;
    r->arrays[which][i] = wk__tensor_of(item);
  }
  return 0;
}

static int read_request(wk__state *state, request *r, const wk__backward_arguments *a) {
  if (read_tensors(state, r, TENSORS, a->tensors) < 0 || read_tensors(state, r, GRADS, a->grads) < 0 ||
      read_tensors(state, r, INPUTS, a->inputs) < 0)
    return -1;
  if (!r->sequences[TENSORS]) return PyErr_SetString(PyExc_TypeError, "tensors expected, got None"), -1;
  Py_ssize_t count = PyTuple_GET_SIZE(r->sequences[TENSORS]);
  if (r->sequences[GRADS] && PyTuple_GET_SIZE(r->sequences[GRADS]) != count) {
    PyErr_Format(PyExc_RuntimeError, "got %zd tensors and %zd gradients", count, PyTuple_GET_SIZE(r->sequences[GRADS]));
    return -1;
  }
  if (!r->sequences[INPUTS]) return 0;
  if (PyTuple_GET_SIZE(r->sequences[INPUTS]) == 0) {
    PyErr_Format(PyExc_RuntimeError, "`inputs` argument to `%s()` cannot be empty.",
                 a->accumulate ? "backward" : "grad");
    return -1;
  }
  r->out_grads = PyMem_Calloc((size_t)PyTuple_GET_SIZE(r->sequences[INPUTS]), sizeof *r->out_grads);
  return r->out_grads ? 0 : (PyErr_NoMemory(), -1);
}

static PyObject *gradients_to_python(wk__state *state, request *r) {  // -> new
  Py_ssize_t count = PyTuple_GET_SIZE(r->sequences[INPUTS]);
  PyObject *tuple = PyTuple_New(count);
  for (Py_ssize_t i = 0; tuple && i < count; i++) {
    wk_tensor *grad = r->out_grads[i];
    r->out_grads[i] = NULL;
    PyObject *item = grad ? wk__wrap(state, grad) : Py_NewRef(Py_None);
    if (!item)
      Py_CLEAR(tuple);
    else
      PyTuple_SET_ITEM(tuple, i, item);
  }
  return tuple;
}

PyObject *wk__backward_from_python(wk__state *state, const wk__backward_arguments *a) {  // -> new
  request r = {0};
  PyObject *result = NULL;
  if (WK_UNLIKELY(a->accumulate && wk__thread.mode.level && wk__thread.mode.level->kind != WK__LEVEL_FORWARD))
    return PyErr_Format(PyExc_RuntimeError,
                        "backward() called inside a functorch transform. This is not supported, please use "
                        "functorch.grad or functorch.vjp instead or call backward() outside of functorch transforms.");
  if (read_request(state, &r, a) == 0) {
    wk__backward backward = {.tensors = r.arrays[TENSORS],
                             .grads = r.arrays[GRADS],
                             .count = (int)PyTuple_GET_SIZE(r.sequences[TENSORS]),
                             .inputs = r.arrays[INPUTS],
                             .input_count = r.sequences[INPUTS] ? (int)PyTuple_GET_SIZE(r.sequences[INPUTS]) : 0,
                             .accumulate_inputs = a->accumulate,
                             .retain_graph = a->retain_graph,
                             .create_graph = a->create_graph,
                             .allow_unused = a->allow_unused,
                             .out_grads = r.out_grads};
    wk__thread.program_backwards++;
    if (wk__run_backward(&backward) != WK_OK)
      result = wk__raise(state);
    else
      result = a->accumulate || !r.sequences[INPUTS] ? Py_NewRef(Py_None) : gradients_to_python(state, &r);
  }
  request_release(&r);
  return result;
}

/* ---- what waits for the end of a backward pass ---- */

static PyObject *callbacks; /* owned: a list; NULL: there were none yet */

static wk_status call_all(void) {
  wk_status status = WK_OK;
  wk__gil gil = wk__gil_hold();
  while (gil.alive && status == WK_OK && PyList_GET_SIZE(callbacks)) {
    PyObject *first = Py_NewRef(PyList_GET_ITEM(callbacks, 0)), *given = NULL;
    if (PyList_SetSlice(callbacks, 0, 1, NULL) == 0) given = PyObject_CallNoArgs(first);
    if (!given) status = wk__status_from_python();
    Py_XDECREF(given);
    Py_DECREF(first);
  }
  wk__gil_drop(gil);
  return status;
}
/* _queue_callback(function): it is called when the backward pass that runs has ended. */
static PyObject *queue_callback(PyObject *module, PyObject *function) {  // -> new
  (void)module;
  if (!wk__thread.backward_depth)
    return PyErr_Format(PyExc_RuntimeError, "Final callbacks can only be installed during backward pass.");
  if (!callbacks && !(callbacks = PyList_New(0))) return NULL;
  wk__backward_ended = call_all;
  if (PyList_Append(callbacks, function) < 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject *detect_anomaly(PyObject *module, PyObject *args) {  // -> new
  (void)module;
  int on, finds_nan;
  if (!PyArg_ParseTuple(args, "pp:_detect_anomaly", &on, &finds_nan)) return NULL;
  wk__anomaly_detect(on, on && finds_nan);
  Py_RETURN_NONE;
}

/* _run_backward(tensors, grad_tensors, keep_graph, create_graph, inputs, allow_unreachable, accumulate_grad) */
static PyObject *run_backward(PyObject *module, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"tensors", "grad_tensors",      "keep_graph",      "create_graph",
                          "inputs",  "allow_unreachable", "accumulate_grad", NULL};
  PyObject *tensors, *grads, *inputs = Py_None;
  int keep, create, allow_unused = 0, accumulate = 0;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOpp|Opp:_run_backward", names, &tensors, &grads, &keep, &create,
                                   &inputs, &allow_unused, &accumulate))
    return NULL;
  wk__backward_arguments a = {.tensors = tensors,
                              .grads = grads,
                              .inputs = inputs,
                              .retain_graph = keep,
                              .create_graph = create,
                              .allow_unused = allow_unused,
                              .accumulate = accumulate};
  return wk__backward_from_python(wk__state_of_module(module), &a);
}

/* ================================================== module ====================================================== */

static PyMethodDef functions[] = {
    {"_queue_callback", queue_callback, METH_O, "The function is called when the backward pass has ended."},
    {"_detect_anomaly", detect_anomaly, METH_VARARGS,
     "_detect_anomaly(on, finds_nan): nodes keep the stack that made them; a NaN that one gives is an error."},
    {"_run_backward", (PyCFunction)(void (*)(void))run_backward, METH_VARARGS | METH_KEYWORDS,
     "_run_backward(tensors, grad_tensors, keep_graph, create_graph, inputs=None, allow_unreachable=False, "
     "accumulate_grad=False)"},
    {0}};

static int add_node_type(PyObject *module, wk__state *state) {
  state->node_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &node_spec, NULL);
  PyObject *types = state->node_type ? PyDict_New() : NULL;
  int status = types ? PyObject_SetAttrString((PyObject *)state->node_type, "_types", types) : -1;
  Py_XDECREF(types);
  return status < 0 ? -1 : PyModule_AddObjectRef(module, "_Node", (PyObject *)state->node_type);
}

int wk__add_autograd(PyObject *module, wk__state *state) {
  if (add_node_type(module, state) < 0 || wk__add_function_type(module, state) < 0) return -1;
  if (wk__add_autocast(module, state) < 0 || wk__add_grad_modes(module, state) < 0 ||
      wk__add_saved_tensors_hooks(module, state) < 0)
    return -1;
  return PyModule_AddFunctions(module, functions);
}
