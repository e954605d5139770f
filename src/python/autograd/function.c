/* `ctx` of autograd.Function: what forward leaves for backward. The object is also grad_fn of the results.
 * Who owns whom: result -> node -> context -> saved inputs. The context does not own its node, and saved results are
 * aliases that get their history back when they are read, so nothing here makes a cycle; one that a program makes by
 * storing a result on ctx is found by the collector. Tests: tests/python/test_function.py. */
#include "dynamo/cpython/objects.h"
#include "python/autograd/autograd.h"

#include <structmember.h>

static wk__python_function *context_of(PyObject *o) { return (wk__python_function *)o; }

/* ================================================ saved tensors ================================================= */

static void release_list(wk__python_function *c) {
  wk__saved_tensor *saved = c->saved;
  int count = c->saved_count;
  c->saved = NULL; /* releasing may run Python code that looks here */
  c->saved_count = 0;
  for (int i = 0; i < count; i++) {
    wk__release(saved[i].tensor);
    wk__packed_release(saved[i].packed);
    wk__node_release(saved[i].edge.node);
  }
  PyMem_Free(saved);
}

void wk__function_release_saved(wk__python_function *c) {
  c->freed = true;
  release_list(c);
}

static wk_status save_packed(wk__saved_tensor *out, wk_tensor *t) {
  if (out->result < 0) WK_TRY(wk__edge_of(t, &out->edge));
  return wk__pack(t, &out->packed);
}

static wk_status save_one(wk__python_function *c, PyObject *o, wk__saved_tensor *out) {
  wk_tensor *t = o == Py_None ? NULL : wk__tensor_of(o);
  *out = (wk__saved_tensor){.result = -1};
  if (!t) return WK_OK;
  WK_TRY(wk__check_saved(t));
  out->version = wk__version(t);
  bool is_result = t->autograd && t->autograd->grad_fn == &c->node->node;
  if (is_result) out->result = (int32_t)t->autograd->result;
  if (wk__saver_active()) return save_packed(out, t);
  if (is_result) {
    wk__spec spec;
    wk__spec_of(&spec, t);
    out->tensor = wk__tensor_alias(t, &spec);
    return out->tensor ? WK_OK : wk_error_category();
  }
  out->tensor = wk__retain(t);
  return WK_OK;
}

/* Runs after the results have their history, so that results among the saved tensors are known as such. */
wk_status wk__function_save(wk__python_function *c) {
  if (c->to_save && !PyTuple_Check(c->to_save)) {
    PyErr_Format(PyExc_TypeError, "saved tensors argument is expected to be a tuple, but is a %s",
                 wk__type_name(Py_TYPE(c->to_save)));
    return wk__status_from_python();
  }
  Py_ssize_t count = c->to_save ? PyTuple_GET_SIZE(c->to_save) : 0;
  c->saved = PyMem_Calloc((size_t)count + 1, sizeof *c->saved);
  if (!c->saved) return PyErr_NoMemory(), wk__status_from_python();
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *o = PyTuple_GET_ITEM(c->to_save, i);
    if (o != Py_None && !wk__is_tensor(c->state, o)) {
      PyErr_Format(PyExc_TypeError, "save_for_backward can only save variables, but argument %zd is of type %s", i,
                   wk__type_name(Py_TYPE(o)));
      return wk__status_from_python();
    }
    c->saved_count = (int)i + 1;
    WK_TRY(save_one(c, o, &c->saved[i]));
  }
  return WK_OK;
}

/* An owned tensor. A result gets its history back, for derivatives of the derivative. */
static wk_tensor *read_saved(const wk__python_function *c, const wk__saved_tensor *saved) {
  wk_tensor *t = saved->tensor;
  wk_node *node = c->node ? &c->node->node : NULL;
  if (saved->packed) {
    bool own = saved->result >= 0;
    wk_status status =
        wk__unpack(saved->packed, own ? node : saved->edge.node, own ? (uint32_t)saved->result : saved->edge.input, &t);
    return status == WK_OK ? t : NULL;
  }
  if (wk__version(t) != saved->version) {
    const wk_node *grad_fn = saved->result >= 0 ? node : wk__grad_fn(t);
    uint32_t result = saved->result >= 0 ? (uint32_t)saved->result : grad_fn ? t->autograd->result : 0;
    (void)wk__saved_tensor_modified(t, grad_fn, result, saved->version);
    return NULL;
  }
  if (saved->result < 0 || !node) return wk__retain(t);
  wk__spec spec;
  wk__spec_of(&spec, t);
  wk_tensor *alias = wk__tensor_alias(t, &spec);
  if (alias && wk__set_history(alias, node, (uint32_t)saved->result) == WK_OK) return alias;
  wk__release(alias);
  return NULL;
}

static PyObject *get_saved_tensors(PyObject *o, void *unused) {  // -> new
  (void)unused;
  const wk__python_function *c = context_of(o);
  if (c->freed) {
    (void)wk__saved_tensors_freed();
    return wk__raise(c->state);
  }
  PyObject *tuple = PyTuple_New(c->saved_count);
  for (int i = 0; tuple && i < c->saved_count; i++) {
    const wk__saved_tensor *saved = &c->saved[i];
    bool none = !saved->tensor && !saved->packed;
    PyObject *item = none ? Py_NewRef(Py_None) : wk__wrap(c->state, read_saved(c, saved));
    if (!item)
      Py_CLEAR(tuple);
    else
      PyTuple_SET_ITEM(tuple, i, item);
  }
  return tuple;
}

/* ================================================ the ctx object ================================================ */

static PyObject *function_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {  // -> new
  (void)args, (void)keywords;
  wk__python_function *c = (wk__python_function *)type->tp_alloc(type, 0);
  if (!c) return NULL;
  c->state = wk__state_of_type(type);
  c->materialize_grads = true;
  return (PyObject *)c;
}

#define OWNED_OBJECTS(DO) \
  DO(dict) DO(to_save) DO(non_differentiable) DO(dirty_tensors) DO(saved_for_forward) DO(needs_input_grad) DO(metadata)

static int function_traverse(PyObject *o, visitproc visit, void *arg) {
  wk__python_function *c = context_of(o);
  Py_VISIT(Py_TYPE(o));
#define VISIT(field) Py_VISIT(c->field);
  OWNED_OBJECTS(VISIT)
#undef VISIT
  return 0;
}
static int function_clear(PyObject *o) {
  wk__python_function *c = context_of(o);
#define CLEAR(field) Py_CLEAR(c->field);
  OWNED_OBJECTS(CLEAR)
#undef CLEAR
  return 0;
}
static void function_dealloc(PyObject *o) {
  wk__python_function *c = context_of(o);
  PyTypeObject *type = Py_TYPE(o);
  PyObject_GC_UnTrack(o);
  if (c->weak_references) PyObject_ClearWeakRefs(o);
  release_list(c);
  function_clear(o);
  type->tp_free(o);
  Py_DECREF(type);
}
static PyObject *function_repr(PyObject *o) {  // -> new
  return PyUnicode_FromFormat("<torch.autograd.function.%s object at %p>", wk__type_name(Py_TYPE(o)), o);
}

/* ---- what forward asks for ---- */

static PyObject *keep_tuple(PyObject **field, PyObject *args) {  // -> new
  Py_XSETREF(*field, Py_NewRef(args));
  Py_RETURN_NONE;
}
static PyObject *save_for_backward(PyObject *o, PyObject *args) {  // -> new
  return keep_tuple(&context_of(o)->to_save, args);
}
static PyObject *save_for_forward(PyObject *o, PyObject *args) {  // -> new
  return keep_tuple(&context_of(o)->saved_for_forward, args);
}
static PyObject *mark_dirty(PyObject *o, PyObject *args) {  // -> new
  return keep_tuple(&context_of(o)->dirty_tensors, args);
}
static PyObject *mark_non_differentiable(PyObject *o, PyObject *args) {  // -> new
  return keep_tuple(&context_of(o)->non_differentiable, args);
}
static PyObject *set_materialize_grads(PyObject *o, PyObject *value) {  // -> new
  int on = PyObject_IsTrue(value);
  if (on < 0) return NULL;
  context_of(o)->materialize_grads = on;
  Py_RETURN_NONE;
}

/* ---- as grad_fn ---- */

static wk_node *live_node(PyObject *o, const char *what) {
  wk__function_node *n = context_of(o)->node;
  if (!n)
    PyErr_Format(
        PyExc_RuntimeError,
        "Attribute '%s' is invalid for this instance of _C._FunctionBase. Accessing this attribute directly on "
        "an instance of autograd.Function is a legacy access pattern that is no longer supported. For examples "
        "on how to use new-style autograd functions, see "
        "https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function ",
        what);
  return n ? &n->node : NULL;
}
static PyObject *get_next_functions(PyObject *o, void *unused) {  // -> new
  (void)unused;
  wk_node *n = live_node(o, "next_functions");
  return n ? wk__node_next_functions(context_of(o)->state, n) : NULL;
}
static PyObject *get_metadata(PyObject *o, void *unused) {  // -> new
  (void)unused;
  PyObject **metadata = &context_of(o)->metadata;
  if (!*metadata) *metadata = PyDict_New();
  return Py_XNewRef(*metadata);
}
static PyObject *get_needs_input_grad(PyObject *o, void *unused) {  // -> new
  (void)unused;
  PyObject *tuple = context_of(o)->needs_input_grad;
  return Py_NewRef(tuple ? tuple : Py_None);
}
static PyObject *function_name(PyObject *o, PyObject *unused) {  // -> new
  (void)unused;
  return PyUnicode_FromString(wk__type_name(Py_TYPE(o)));
}
static PyObject *function_sequence(PyObject *o, PyObject *unused) {  // -> new
  (void)unused;
  wk_node *n = live_node(o, "_sequence_nr");
  return n ? PyLong_FromUnsignedLongLong(n->sequence) : NULL;
}
static PyObject *function_register_hook(PyObject *o, PyObject *hook) {  // -> new
  wk_node *n = live_node(o, "register_hook");
  return n ? wk__node_add_python_hook(context_of(o)->state, n, hook, true) : NULL;
}
static PyObject *function_register_prehook(PyObject *o, PyObject *hook) {  // -> new
  wk_node *n = live_node(o, "register_prehook");
  return n ? wk__node_add_python_hook(context_of(o)->state, n, hook, false) : NULL;
}

static PyMethodDef function_methods[] = {
    {"_apply_here", (PyCFunction)(void (*)(void))wk__function_apply_here, METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     NULL},
    {"apply", (PyCFunction)(void (*)(void))wk__function_apply, METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "apply(*args): runs forward and records backward."},
    {"save_for_backward", save_for_backward, METH_VARARGS, "save_for_backward(*tensors): read by ctx.saved_tensors."},
    {"save_for_forward", save_for_forward, METH_VARARGS, "save_for_forward(*tensors): kept for jvp."},
    {"mark_dirty", mark_dirty, METH_VARARGS, "mark_dirty(*inputs): inputs that forward wrote and returns."},
    {"mark_non_differentiable", mark_non_differentiable, METH_VARARGS, "mark_non_differentiable(*results)"},
    {"set_materialize_grads", set_materialize_grads, METH_O,
     "set_materialize_grads(False): backward gets None, not zeros."},
    {"name", function_name, METH_NOARGS, "name() -> str"},
    {"_sequence_nr", function_sequence, METH_NOARGS, NULL},
    {"register_hook", function_register_hook, METH_O, "register_hook(hook) -> RemovableHandle"},
    {"register_prehook", function_register_prehook, METH_O, "register_prehook(hook) -> RemovableHandle"},
    {0}};
static PyGetSetDef function_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {"saved_tensors", get_saved_tensors, NULL, "What save_for_backward was given; refuses tensors written since.",
     NULL},
    {"saved_variables", get_saved_tensors, NULL, NULL, NULL},
    {"needs_input_grad", get_needs_input_grad, NULL, "A bool for each argument of forward.", NULL},
    {"next_functions", get_next_functions, NULL, "The nodes behind this one: a tuple of (node, index).", NULL},
    {"metadata", get_metadata, NULL, "A dict for programs.", NULL},
    {0}};
static PyMemberDef function_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(wk__python_function, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(wk__python_function, weak_references), READONLY, NULL},
    {"to_save", T_OBJECT, offsetof(wk__python_function, to_save), 0, NULL},
    {"non_differentiable", T_OBJECT, offsetof(wk__python_function, non_differentiable), 0, NULL},
    {"dirty_tensors", T_OBJECT, offsetof(wk__python_function, dirty_tensors), 0, NULL},
    {"saved_for_forward", T_OBJECT, offsetof(wk__python_function, saved_for_forward), 0, NULL},
    {"materialize_grads", T_BOOL, offsetof(wk__python_function, materialize_grads), 0, NULL},
    {0}};
static PyType_Slot function_slots[] = {
    {Py_tp_new, function_new},       {Py_tp_dealloc, function_dealloc}, {Py_tp_traverse, function_traverse},
    {Py_tp_clear, function_clear},   {Py_tp_repr, function_repr},       {Py_tp_methods, function_methods},
    {Py_tp_getset, function_getset}, {Py_tp_members, function_members}, {0, NULL}};
static PyType_Spec function_spec = {
    .name = "wick._C._FunctionBase",
    .basicsize = sizeof(wk__python_function),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = function_slots,
};

int wk__add_function_type(PyObject *module, wk__state *state) {
  state->function_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &function_spec, NULL);
  return state->function_type ? PyModule_AddType(module, state->function_type) : -1;
}
