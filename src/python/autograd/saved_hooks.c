/* saved_tensors_hooks(pack, unpack): inside the block, what operations save for backward goes through two callables.
 * In: pack(tensor) -> anything, when it is saved. Out: unpack(anything) -> tensor, each time backward reads it.
 * The packed form keeps unpack alive; it does not keep the context manager. Tests:
 * tests/python/test_saved_tensors_hooks.py. */
#include "dynamo/cpython/objects.h"
#include "python/autograd/autograd.h"

/* While the saver is active, the object holds a reference to itself. */
typedef struct saved_hooks {
  PyObject_HEAD PyObject *pack, *unpack; /* owned */
  wk__state *state;
  wk__saver saver;
  bool active;
} saved_hooks;

typedef struct packed_object {
  wk__packed packed;
  PyObject *value, *unpack; /* owned */
  wk__state *state;
} packed_object;

/* =============================================== packing, unpacking ============================================= */

static void release_packed(wk__packed *packed) {
  packed_object *p = (packed_object *)packed;
  wk__gil gil = wk__gil_hold();
  if (gil.alive) {
    Py_DECREF(p->value);
    Py_DECREF(p->unpack);
  }
  wk__gil_drop(gil);
  wk__free(p);
}

static wk_status unpack_with_gil(const packed_object *p, wk_tensor **out_tensor) {
  PyObject *unpack = Py_NewRef(p->unpack), *value = Py_NewRef(p->value);
  PyObject *tensor = PyObject_CallOneArg(unpack, value);
  Py_DECREF(value);
  Py_DECREF(unpack);
  if (tensor && wk__is_tensor(p->state, tensor)) {
    *out_tensor = wk__retain(wk__tensor_of(tensor));
    Py_DECREF(tensor);
    return WK_OK;
  }
  if (tensor)
    PyErr_Format(PyExc_TypeError,
                 "Output of saved tensor unpack_hook expected to be a Tensor but got result of type %s",
                 wk__type_name(Py_TYPE(tensor)));
  Py_XDECREF(tensor);
  return wk__status_from_python();
}
static wk_status unpack(wk__packed *packed, wk_tensor **out_tensor) {
  wk__gil gil = wk__gil_hold();
  wk_status status = unpack_with_gil((packed_object *)packed, out_tensor);
  wk__gil_drop(gil);
  return status;
}

static wk_status pack_with_gil(const saved_hooks *hooks, wk_tensor *t, wk__packed **out_packed) {
  PyObject *tensor = wk__wrap(hooks->state, wk__retain(t));
  PyObject *value = tensor ? PyObject_CallOneArg(hooks->pack, tensor) : NULL;
  Py_XDECREF(tensor);
  if (!value) return wk__status_from_python();
  packed_object *p = wk__alloc(sizeof *p);
  if (!p) {
    Py_DECREF(value);
    return WK_OUT_OF_MEMORY;
  }
  *p = (packed_object){{unpack, release_packed}, value, Py_NewRef(hooks->unpack), hooks->state};
  *out_packed = &p->packed;
  return WK_OK;
}
static wk_status pack(wk__saver *saver, wk_tensor *t, wk__packed **out_packed) {
  wk__gil gil = wk__gil_hold();
  const saved_hooks *hooks = (const saved_hooks *)((char *)saver - offsetof(saved_hooks, saver));
  wk_status status = pack_with_gil(hooks, t, out_packed);
  wk__gil_drop(gil);
  return status;
}

/* ============================================== the context manager ============================================= */

static PyObject *hooks_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"pack_hook", "unpack_hook", NULL};
  PyObject *pack_hook, *unpack_hook;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO:saved_tensors_hooks", names, &pack_hook, &unpack_hook))
    return NULL;
  saved_hooks *self = (saved_hooks *)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->pack = Py_NewRef(pack_hook);
  self->unpack = Py_NewRef(unpack_hook);
  self->state = wk__state_of_type(type);
  return (PyObject *)self;
}

/* A message in the dict of Python's thread refuses savers. */
#define REFUSED "wick.saved_tensors_hooks are refused"

static PyObject *refusal(void) {  // -> borrowed, NULL: none
  PyObject *dict = PyThreadState_GetDict();
  return dict ? PyDict_GetItemString(dict, REFUSED) : NULL;
}

static int check_refused(void) {
  PyObject *message = refusal();
  if (message) PyErr_SetObject(PyExc_RuntimeError, message);
  return message ? -1 : 0;
}

static PyObject *refused_hooks(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  PyObject *message = refusal();
  return Py_NewRef(message ? message : Py_None);
}

static PyObject *refuse_hooks(PyObject *module, PyObject *message) {  // -> new
  (void)module;
  PyObject *dict = PyThreadState_GetDict();
  int status = 0;
  if (message != Py_None && wk__saver_active()) {
    PyErr_SetObject(PyExc_RuntimeError, message);
    status = -1;
  } else if (dict && message != Py_None) {
    status = PyDict_SetItemString(dict, REFUSED, message);
  } else if (refusal()) {
    status = PyDict_DelItemString(dict, REFUSED);
  }
  if (status < 0) return NULL;
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_refuse_saved_tensors_hooks", refuse_hooks, METH_O,
     "Savers of this thread are an error with this text from now on; None: no more."},
    {"_refused_saved_tensors_hooks", refused_hooks, METH_NOARGS, "The text with which they are, or None."},
    {0}};

static PyObject *hooks_enter(PyObject *o, PyObject *unused) {  // -> new
  (void)unused;
  saved_hooks *self = (saved_hooks *)o;
  if (self->active) {
    PyErr_SetString(PyExc_RuntimeError, "saved_tensors_hooks is active already: make a new one for each block");
    return NULL;
  }
  if (check_refused() < 0) return NULL;
  self->active = true;
  self->saver.pack = pack;
  Py_INCREF(o);
  wk__saver_push(&self->saver);
  Py_RETURN_NONE;
}

static PyObject *hooks_exit(PyObject *o, PyObject *args) {  // -> new
  (void)args;
  saved_hooks *self = (saved_hooks *)o;
  if (self->active) {
    self->active = false;
    wk__saver_remove(&self->saver);
    Py_DECREF(o);
  }
  Py_RETURN_NONE;
}

static int hooks_traverse(PyObject *o, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(((saved_hooks *)o)->pack);
  Py_VISIT(((saved_hooks *)o)->unpack);
  return 0;
}
static int hooks_clear(PyObject *o) {
  Py_CLEAR(((saved_hooks *)o)->pack);
  Py_CLEAR(((saved_hooks *)o)->unpack);
  return 0;
}
static void hooks_dealloc(PyObject *o) {
  PyTypeObject *type = Py_TYPE(o);
  PyObject_GC_UnTrack(o);
  hooks_clear(o);
  type->tp_free(o);
  Py_DECREF(type);
}

static PyMethodDef hooks_methods[] = {
    {"__enter__", hooks_enter, METH_NOARGS, NULL}, {"__exit__", hooks_exit, METH_VARARGS, NULL}, {0}};
static PyType_Slot hooks_slots[] = {
    {Py_tp_new, hooks_new},
    {Py_tp_dealloc, hooks_dealloc},
    {Py_tp_traverse, hooks_traverse},
    {Py_tp_clear, hooks_clear},
    {Py_tp_methods, hooks_methods},
    {Py_tp_doc,
     "What is saved for backward inside goes through two functions.\n\n"
     "with saved_tensors_hooks(lambda t: t.numpy(), wick.from_numpy):\n    y = model(x)"},
    {0, NULL}};
static PyType_Spec hooks_spec = {
    .name = "wick._C.saved_tensors_hooks",
    .basicsize = sizeof(saved_hooks),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = hooks_slots,
};

int wk__add_saved_tensors_hooks(PyObject *module, wk__state *state) {
  (void)state;
  PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &hooks_spec, NULL);
  int status = type ? PyModule_AddType(module, type) : -1;
  Py_XDECREF(type);
  return status < 0 ? status : PyModule_AddFunctions(module, functions);
}
