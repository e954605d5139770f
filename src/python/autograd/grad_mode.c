/* no_grad, enable_grad, set_grad_enabled, inference_mode: the thread's grad mode for a block or for a function's calls.
 * Each object remembers the mode that it replaced, so leaving restores it. Entering and leaving are C; decorating,
 * which knows about generators, is wick/autograd/grad_mode.py. Tests: tests/python/test_autograd.py. */
#include "dynamo/cpython/objects.h"
#include "dynamo/dynamo.h"
#include "python/autograd/autograd.h"

#include <structmember.h>

typedef struct grad_mode {
  PyObject ob_base;
  bool grad;        /* the mode inside */
  int8_t inference; /* likewise; LEAVE: as outside */
  bool grad_before, inference_before;
} grad_mode;
enum { LEAVE = -1 };

/* Inference mode is a layer around the thread's calls. */
static void set_inference(bool inference) {
  wk__thread.mode.inference = inference;
  wk__thread.mode.keys_on = (wk__keys)(inference ? wk__thread.mode.keys_on | WK__KEY_INFERENCE
                                                 : wk__thread.mode.keys_on & ~WK__KEY_INFERENCE);
}

static PyObject *mode_enter(PyObject *o, PyObject *unused) {  // -> new
  (void)unused;
  grad_mode *self = (grad_mode *)o;
  wk__thread_mode *mode = &wk__thread.mode;
  wk__dynamo_noticed_mode();
  self->grad_before = mode->grad_enabled;
  self->inference_before = mode->inference;
  mode->grad_enabled = self->grad;
  if (self->inference != LEAVE) set_inference(self->inference);
  Py_RETURN_NONE;
}

static PyObject *mode_exit(PyObject *o, PyObject *const *args, Py_ssize_t n) {  // -> new
  (void)args, (void)n;
  const grad_mode *self = (const grad_mode *)o;
  wk__thread.mode.grad_enabled = self->grad_before;
  if (self->inference != LEAVE) set_inference(self->inference_before);
  Py_RETURN_NONE;
}

/* The function with every call inside a new object of this kind. */
static PyObject *decorate(PyObject *self, PyObject *function) {  // -> new
  PyObject *module = PyImport_ImportModule("wick.autograd.grad_mode");
  PyObject *result = module ? PyObject_CallMethod(module, "decorate", "OO", self, function) : NULL;
  Py_XDECREF(module);
  return result;
}
static PyObject *mode_call(PyObject *self, PyObject *args, PyObject *keywords) {  // -> new
  PyObject *function;
  static char *names[] = {"orig_func", NULL};
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O", names, &function)) return NULL;
  return decorate(self, function);
}

static void mode_dealloc(PyObject *o) {
  PyTypeObject *type = Py_TYPE(o);
  type->tp_free(o);
  Py_DECREF(type);
}

static grad_mode *new_mode(PyTypeObject *type, bool grad, int8_t inference) {
  grad_mode *self = (grad_mode *)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->grad = grad;
  self->inference = inference;
  self->grad_before = wk__thread.mode.grad_enabled;
  return self;
}

/* ---- no_grad, enable_grad: as `with no_grad():`, `@no_grad()` and `@no_grad` ---- */

/* Takes the object. */
static PyObject *maybe_decorate(grad_mode *steal_self, PyObject *function) {  // -> new
  if (!steal_self || !function || function == Py_None) return (PyObject *)steal_self;
  PyObject *result = decorate((PyObject *)steal_self, function);
  Py_DECREF(steal_self);
  return result;
}
static PyObject *new_plain(PyTypeObject *type, PyObject *args, PyObject *keywords, bool grad) {  // -> new
  PyObject *function = NULL;
  static char *names[] = {"orig_func", NULL};
  if ((PyTuple_GET_SIZE(args) || keywords) && !PyArg_ParseTupleAndKeywords(args, keywords, "|O", names, &function))
    return NULL;
  return maybe_decorate(new_mode(type, grad, LEAVE), function);
}
static PyObject *no_grad_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {  // -> new
  return new_plain(type, args, keywords, false);
}
static PyObject *enable_grad_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {  // -> new
  return new_plain(type, args, keywords, true);
}

/* `with no_grad():` without an argument tuple; a subclass takes the long way. */
static PyObject *plain_vectorcall(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *names,
                                  bool grad) {  // -> new
  Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  if (n > 1 || names)
    return PyErr_Format(PyExc_TypeError, "%s() takes at most one argument", wk__type_name((PyTypeObject *)type));
  return maybe_decorate(new_mode((PyTypeObject *)type, grad, LEAVE), n ? args[0] : NULL);
}
static PyObject *no_grad_vectorcall(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *names) {  // -> new
  return plain_vectorcall(type, args, nargsf, names, false);
}
static PyObject *enable_grad_vectorcall(PyObject *type, PyObject *const *args, size_t nargsf,
                                        PyObject *names) {  // -> new
  return plain_vectorcall(type, args, nargsf, names, true);
}

/* ---- set_grad_enabled(mode): at once, and until the block ends ---- */

static PyObject *set_grad_enabled_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"mode", NULL};
  PyObject *mode;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O:set_grad_enabled", names, &mode)) return NULL;
  if (!PyBool_Check(mode))
    return PyErr_Format(PyExc_TypeError, "set_grad_enabled(): argument 'enabled' (position 1) must be bool, not %s",
                        wk__type_name(Py_TYPE(mode)));
  grad_mode *self = new_mode(type, mode == Py_True, LEAVE);
  if (self) wk__thread.mode.grad_enabled = self->grad;
  return (PyObject *)self;
}

/* As a decorator it changes nothing outside the function. Entering once more must not forget what was before. */
static PyObject *set_grad_enabled_call(PyObject *o, PyObject *args, PyObject *keywords) {  // -> new
  wk__thread.mode.grad_enabled = ((grad_mode *)o)->grad_before;
  return mode_call(o, args, keywords);
}
static PyObject *set_grad_enabled_enter(PyObject *o, PyObject *unused) {  // -> new
  (void)o, (void)unused;
  wk__thread.mode.grad_enabled = ((grad_mode *)o)->grad;
  Py_RETURN_NONE;
}

/* ---- inference_mode(mode=True) ---- */

static PyObject *inference_mode_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"mode", NULL};
  PyObject *mode = Py_True;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:inference_mode", names, &mode)) return NULL;
  bool inference = !PyBool_Check(mode) || mode == Py_True;
  return maybe_decorate(new_mode(type, !inference, inference), PyBool_Check(mode) ? NULL : mode);
}

/* ---- for wick/autograd/grad_mode.py ---- */

/* A fresh object of the same kind: one object cannot be inside itself. */
static PyObject *mode_clone(PyObject *o, PyObject *unused) {  // -> new
  (void)unused;
  const grad_mode *self = (const grad_mode *)o;
  return (PyObject *)new_mode(Py_TYPE(o), self->grad, self->inference);
}

static PyMethodDef mode_methods[] = {{"__enter__", mode_enter, METH_NOARGS, NULL},
                                     {"__exit__", (PyCFunction)(void (*)(void))mode_exit, METH_FASTCALL, NULL},
                                     {"clone", mode_clone, METH_NOARGS, "A new object with the same mode."},
                                     {0}};
static PyMethodDef set_grad_enabled_methods[] = {
    {"__enter__", set_grad_enabled_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))mode_exit, METH_FASTCALL, NULL},
    {"clone", mode_clone, METH_NOARGS, "A new object with the same mode."},
    {0}};
static PyMemberDef mode_members[] = {{"mode", T_BOOL, offsetof(grad_mode, grad), READONLY, NULL},
                                     {"prev", T_BOOL, offsetof(grad_mode, grad_before), READONLY, NULL},
                                     {0}};
static PyMemberDef inference_members[] = {{"mode", T_BOOL, offsetof(grad_mode, inference), READONLY, NULL}, {0}};

#define MODE_TYPE(mode, new_function, call, methods, members, text)                    \
  static PyType_Slot mode##_slots[] = {{Py_tp_new, new_function},                      \
                                       {Py_tp_call, call},                             \
                                       {Py_tp_dealloc, mode_dealloc},                  \
                                       {Py_tp_methods, methods},                       \
                                       {Py_tp_members, members},                       \
                                       {Py_tp_doc, text},                              \
                                       {0, NULL}};                                     \
  static PyType_Spec mode##_spec = {.name = "wick._C." #mode,                          \
                                    .basicsize = sizeof(grad_mode),                    \
                                    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, \
                                    .slots = mode##_slots};
MODE_TYPE(
    no_grad, no_grad_new, mode_call, mode_methods, mode_members,
    "Nothing is recorded inside.\n\nwith no_grad():\n    y = x * 2   # y.requires_grad is False\n\nAlso a decorator.")
MODE_TYPE(enable_grad, enable_grad_new, mode_call, mode_methods, mode_members,
          "Recording inside, also within no_grad().\n\nwith enable_grad():\n    y = x * 2\n\nAlso a decorator.")
MODE_TYPE(
    set_grad_enabled, set_grad_enabled_new, set_grad_enabled_call, set_grad_enabled_methods, mode_members,
    "Recording on or off from here, or inside a block.\n\nset_grad_enabled(False)\nwith set_grad_enabled(train): ...")
MODE_TYPE(inference_mode, inference_mode_new, mode_call, mode_methods, inference_members,
          "no_grad() for tensors that will never take part in recording.\n\nwith inference_mode():\n    y = model(x)")

/* ---- the mode by function ---- */

static PyObject *set_enabled(PyObject *module, PyObject *enabled) {  // -> new
  (void)module;
  if (!PyBool_Check(enabled))
    return PyErr_Format(PyExc_TypeError, "set_grad_enabled(): argument 'enabled' (position 1) must be bool, not %s",
                        wk__type_name(Py_TYPE(enabled)));
  wk__dynamo_noticed_mode();
  wk_set_grad_enabled(enabled == Py_True);
  Py_RETURN_NONE;
}
static PyObject *is_grad_enabled(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  wk__dynamo_noticed_mode();
  return PyBool_FromLong(wk_grad_enabled());
}
static PyObject *is_inference_mode(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  return PyBool_FromLong(wk__thread.mode.inference);
}
static PyMethodDef functions[] = {
    {"_set_grad_enabled", set_enabled, METH_O, "_set_grad_enabled(enabled): the thread's grad mode."},
    {"is_grad_enabled", is_grad_enabled, METH_NOARGS, "is_grad_enabled() -> bool: whether operations are recorded."},
    {"is_inference_mode_enabled", is_inference_mode, METH_NOARGS, "is_inference_mode_enabled() -> bool"},
    {0}};

static int add_mode(PyObject *module, PyType_Spec *spec, vectorcallfunc vectorcall) {
  PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
  if (!type) return -1;
  type->tp_vectorcall = vectorcall;
  int status = PyModule_AddType(module, type);
  Py_DECREF(type);
  return status;
}

int wk__add_grad_modes(PyObject *module, wk__state *state) {
  (void)state;
  if (add_mode(module, &no_grad_spec, no_grad_vectorcall) < 0 ||
      add_mode(module, &enable_grad_spec, enable_grad_vectorcall) < 0)
    return -1;
  if (add_mode(module, &set_grad_enabled_spec, NULL) < 0 || add_mode(module, &inference_mode_spec, NULL) < 0) return -1;
  return PyModule_AddFunctions(module, functions);
}
