/* __torch_function__: a call with an argument whose class overrides it goes to that class with (func, types, args,
 * kwargs); under a mode every call goes to the mode first. Tensor's own __torch_function__, which subclasses inherit,
 * calls the function and gives tensors among the results the subclass.
 *
 * In: the callable and its arguments, before they are parsed. Out: what the override gave, or that there is no
 * override. Within DisableTorchFunctionSubclass only modes are asked, within DisableTorchFunction neither are; a mode
 * is not asked about the calls that it makes itself. Modes belong to a thread. Tests:
 * tests/python/test_torch_function.py. */
#include "python/calls/override.h"

#include "dynamo/cpython/objects.h"
#include "dynamo/dynamo.h"

/* ================================================= who overrides ================================================ */

enum { MAX_OVERLOADED = 24 };
typedef struct overloaded {
  PyObject *objects[MAX_OVERLOADED]; /* borrowed, one of each class; subclasses before their bases */
  int count;
} overloaded;

/* The class's __torch_function__, borrowed; NULL when it has none or the one that says so. */
static PyObject *override_of(wk__state *state, PyTypeObject *type) {  // -> borrowed
  if (type == state->tensor_type || type == state->parameter_type) return NULL;
  if (type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type || type == &PyUnicode_Type ||
      type == Py_TYPE(Py_None) || type == &PyTuple_Type || type == &PyList_Type || type == &PyDict_Type)
    return NULL;
  PyObject *found = wk__type_attribute(type, state->name___torch_function__);
  return found == state->disabled_override ? NULL : found;
}

static void add_object(wk__state *state, overloaded *o, PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  if (!override_of(state, type)) return;
  int at = o->count;
  for (int i = 0; i < o->count; i++) {
    PyTypeObject *other = Py_TYPE(o->objects[i]);
    if (other == type) return;
    if (at == o->count && PyType_IsSubtype(type, other)) at = i;
  }
  if (o->count == MAX_OVERLOADED) return;
  memmove(&o->objects[at + 1], &o->objects[at], (size_t)(o->count - at) * sizeof *o->objects);
  o->objects[at] = object;
  o->count++;
}

static void add_argument(wk__state *state, overloaded *o, PyObject *argument) {
  if (!PyTuple_CheckExact(argument) && !PyList_CheckExact(argument)) {
    add_object(state, o, argument);
    return;
  }
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(argument); i++)
    add_object(state, o, PySequence_Fast_GET_ITEM(argument, i));
}

static PyObject *types_of(const overloaded *o) {  // -> new
  PyObject *types = PyTuple_New(o->count);
  for (int i = 0; types && i < o->count; i++) PyTuple_SET_ITEM(types, i, Py_NewRef((PyObject *)Py_TYPE(o->objects[i])));
  return types;
}

/* ===================================================== modes ==================================================== */

#define MODES_KEY "wick.torch_function_modes"

/* The thread's stack of modes, innermost last; NULL when it has none, or with an exception. */
static PyObject *mode_stack(bool make) {  // -> borrowed
  PyObject *dict = PyThreadState_GetDict(), *stack = dict ? PyDict_GetItemString(dict, MODES_KEY) : NULL;
  if (stack || !make || !dict) return stack;
  stack = PyList_New(0);
  if (stack && PyDict_SetItemString(dict, MODES_KEY, stack) < 0) Py_CLEAR(stack);
  Py_XDECREF(stack);
  return stack;
}

static bool mode_is_on(const wk__state *state) {
  if (!state->modes || wk__thread.overrides_off) return false;
  PyObject *stack = mode_stack(false);
  return stack && PyList_GET_SIZE(stack) > 0;
}

int wk__override_state(const wk__state *state) {
  int by_mode = mode_is_on(state) ? WK__OVERRIDE_BY_MODE : 0;
  return by_mode | (wk__thread.subclass_overrides_off ? WK__OVERRIDE_NO_SUBCLASS : 0) |
         (wk__thread.overrides_off ? WK__OVERRIDE_NOTHING : 0);
}

static PyObject *pop_mode(wk__state *state) {  // -> new
  PyObject *stack = mode_stack(false);
  Py_ssize_t n = stack ? PyList_GET_SIZE(stack) : 0;
  if (!n) return PyErr_Format(PyExc_RuntimeError, "no torch function mode to leave");
  PyObject *mode = Py_NewRef(PyList_GET_ITEM(stack, n - 1));
  if (PyList_SetSlice(stack, n - 1, n, NULL) < 0) Py_CLEAR(mode);
  if (mode) state->modes--;
  return mode;
}

static void announce(wk__state *state) {
  if (state->overrides) return;
  state->overrides = true;
  if (PyObject_SetAttrString(state->module, "_overrides", Py_True) < 0) PyErr_Clear();
}

/* A class that overrides calls and is no Tensor cannot be seen when it is defined: who makes objects of it says so. */
static PyObject *announce_overrides(PyObject *module, PyObject *unused) {  // -> new
  (void)unused;
  announce(wk__state_of_module(module));
  Py_RETURN_NONE;
}

static int push_mode(wk__state *state, PyObject *mode) {
  PyObject *stack = mode_stack(true);
  if (!stack || PyList_Append(stack, mode) < 0) return -1;
  state->modes++;
  announce(state);
  return 0;
}

/* ==================================================== handing over ============================================== */

static PyObject *keywords_dict(PyObject *const *values, PyObject *keywords) {  // -> new
  PyObject *dict = PyDict_New();
  for (Py_ssize_t k = 0; dict && k < PyTuple_GET_SIZE(keywords); k++)
    if (PyDict_SetItem(dict, PyTuple_GET_ITEM(keywords, k), values[k]) < 0) Py_CLEAR(dict);
  return dict;
}

static PyObject *ask(wk__state *state, PyObject *who, PyObject *func, PyObject *types, PyObject *args,
                     PyObject *kwargs) {  // -> new
  PyObject *handler = PyObject_GetAttr(who, state->name___torch_function__);
  PyObject *result = handler ? PyObject_CallFunctionObjArgs(handler, func, types, args, kwargs, NULL) : NULL;
  Py_XDECREF(handler);
  return result;
}

static PyObject *ask_mode(wk__state *state, PyObject *func, PyObject *types, PyObject *args,
                          PyObject *kwargs) {  // -> new
  PyObject *mode = pop_mode(state);
  if (!mode) return NULL;
  PyObject *result = ask(state, mode, func, types, args, kwargs);
  PyObject *kind, *value, *trace;
  PyErr_Fetch(&kind, &value, &trace);
  int status = push_mode(state, mode);
  if (status == 0) PyErr_Restore(kind, value, trace);
  Py_DECREF(mode);
  if (status < 0) Py_CLEAR(result);
  return result;
}

static PyObject *nobody_did(PyObject *func, PyObject *types) {  // -> new
  PyObject *name = PyObject_GetAttrString(func, "__name__");
  if (!name) PyErr_Clear();
  PyErr_Format(PyExc_TypeError,
               "Multiple dispatch failed for 'torch.%S'; all __torch_function__ handlers returned NotImplemented:\n\n"
               "  - %R",
               name ? name : func, types);
  Py_XDECREF(name);
  return NULL;
}

static PyObject *dispatch(wk__state *state, const overloaded *o, bool mode, PyObject *func, PyObject *args,
                          PyObject *kwargs) {  // -> new
  PyObject *types = types_of(o), *result = NULL;
  if (!types) return NULL;
  if (mode) result = ask_mode(state, func, types, args, kwargs);
  for (int i = 0; i < o->count && (result ? result == Py_NotImplemented : !PyErr_Occurred()); i++) {
    Py_XDECREF(result);
    result = ask(state, o->objects[i], func, types, args, kwargs);
  }
  if (result == Py_NotImplemented) {
    Py_DECREF(result);
    result = nobody_did(func, types);
  }
  Py_DECREF(types);
  return result;
}

bool wk__overridden(wk__state *state, PyObject *func, PyObject *const *args, Py_ssize_t n, PyObject *keywords,
                    PyObject **result) {
  overloaded o = {.count = 0};
  *result = NULL;
  if (wk__thread.overrides_off) return false;
  Py_ssize_t all = n + (keywords ? PyTuple_GET_SIZE(keywords) : 0);
  for (Py_ssize_t i = 0; !wk__thread.subclass_overrides_off && i < all; i++) add_argument(state, &o, args[i]);
  bool mode = mode_is_on(state);
  if (!mode && !o.count) return false;
  PyObject *tuple = PyTuple_New(n), *kwargs = keywords ? keywords_dict(args + n, keywords) : NULL;
  for (Py_ssize_t i = 0; tuple && i < n; i++) PyTuple_SET_ITEM(tuple, i, Py_NewRef(args[i]));
  if (tuple && (kwargs || !keywords)) *result = dispatch(state, &o, mode, func, tuple, kwargs);
  Py_XDECREF(tuple);
  Py_XDECREF(kwargs);
  return true;
}

bool wk__overridden_method(wk__state *state, const char *name, PyObject *const *args, Py_ssize_t n, PyObject *keywords,
                           PyObject **result) {
  *result = NULL;
  PyObject *func = PyObject_GetAttrString((PyObject *)state->tensor_type, name);
  if (!func) return true;
  bool done = wk__overridden(state, func, args, n, keywords, result);
  Py_DECREF(func);
  return done;
}

bool wk__overridden_function(wk__state *state, const char *name, PyObject *const *args, Py_ssize_t n,
                             PyObject *keywords, PyObject **result) {
  *result = NULL;
  PyObject *func = mode_is_on(state) ? PyObject_GetAttrString(state->module, name) : NULL;
  if (!func) return PyErr_Occurred() != NULL;
  bool done = wk__overridden(state, func, args, n, keywords, result);
  Py_DECREF(func);
  return done;
}

bool wk__overridden_tuple(PyObject *self, const char *name, PyObject *args, PyObject *keywords, PyObject **result) {
  wk__state *state = ((wk__python_tensor *)self)->state;
  overloaded o = {.count = 0};
  PyObject *key, *value;
  Py_ssize_t at = 0;
  *result = NULL;
  if (wk__thread.overrides_off) return false;
  if (!wk__thread.subclass_overrides_off) add_argument(state, &o, self);
  for (Py_ssize_t i = 0; !wk__thread.subclass_overrides_off && i < PyTuple_GET_SIZE(args); i++)
    add_argument(state, &o, PyTuple_GET_ITEM(args, i));
  while (!wk__thread.subclass_overrides_off && keywords && PyDict_Next(keywords, &at, &key, &value))
    add_argument(state, &o, value);
  bool mode = mode_is_on(state);
  if (!mode && !o.count) return false;
  PyObject *first = PyTuple_Pack(1, self), *all = first ? PySequence_Concat(first, args) : NULL;
  PyObject *func = all ? PyObject_GetAttrString((PyObject *)state->tensor_type, name) : NULL;
  if (func) *result = dispatch(state, &o, mode, func, all, keywords);
  Py_XDECREF(first);
  Py_XDECREF(all);
  Py_XDECREF(func);
  return true;
}

/* func is Tensor.name.__get__ or __set__. */
bool wk__overridden_attribute(PyObject *self, const char *name, PyObject *value, PyObject **result) {
  wk__state *state = ((wk__python_tensor *)self)->state;
  *result = NULL;
  if (wk__thread.overrides_off ||
      (!mode_is_on(state) && (wk__thread.subclass_overrides_off || !override_of(state, Py_TYPE(self)))))
    return false;
  PyObject *descriptor = PyDict_GetItemString(wk__type_dict(state->tensor_type), name);
  PyObject *func = descriptor ? PyObject_GetAttrString(descriptor, value ? "__set__" : "__get__") : NULL;
  if (!func) return descriptor != NULL;
  PyObject *args[] = {self, value};
  bool done = wk__overridden(state, func, args, value ? 2 : 1, NULL, result);
  Py_DECREF(func);
  return done;
}

int wk__note_subclass(wk__state *state, PyTypeObject *type) {
  if (!state->overrides && override_of(state, type)) announce(state);
  return 0;
}

/* ========================================== Tensor's own __torch_function__ ===================================== */

/* The results of these stay as they are: a gradient need not be of the tensor's class. */
static bool keeps_class(PyObject *func) {
  PyObject *descriptor = Py_IS_TYPE(func, wk__method_wrapper_type()) ? PyObject_GetAttrString(func, "__self__") : NULL;
  PyObject *name = descriptor ? PyObject_GetAttrString(descriptor, "__name__") : NULL;
  bool keeps =
      name && PyUnicode_Check(name) &&
      (PyUnicode_CompareWithASCIIString(name, "grad") == 0 || PyUnicode_CompareWithASCIIString(name, "_grad") == 0 ||
       PyUnicode_CompareWithASCIIString(name, "_base") == 0);
  Py_XDECREF(descriptor);
  Py_XDECREF(name);
  PyErr_Clear();
  return keeps;
}

static PyObject *converted(wk__state *state, PyObject *steal_result, PyTypeObject *type);  // -> new

static bool holds_tensors(wk__state *state, PyObject *sequence) {
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); i++) {
    PyObject *item = PySequence_Fast_GET_ITEM(sequence, i);
    if (wk__is_tensor(state, item) || PyTuple_Check(item) || PyList_Check(item)) return true;
  }
  return false;
}

static PyObject *converted_sequence(wk__state *state, PyObject *steal_result, PyTypeObject *type) {  // -> new
  PyObject *list = PyList_New(0), *result = NULL;
  for (Py_ssize_t i = 0; list && i < PySequence_Fast_GET_SIZE(steal_result); i++) {
    PyObject *item = converted(state, Py_NewRef(PySequence_Fast_GET_ITEM(steal_result, i)), type);
    if (!item || PyList_Append(list, item) < 0) Py_CLEAR(list);
    Py_XDECREF(item);
  }
  if (list) result = PyObject_CallOneArg((PyObject *)Py_TYPE(steal_result), list);
  Py_XDECREF(list);
  Py_DECREF(steal_result);
  return result;
}

static PyObject *converted(wk__state *state, PyObject *steal_result, PyTypeObject *type) {  // -> new
  if (wk__is_tensor(state, steal_result)) {
    if (PyObject_TypeCheck(steal_result, type)) return steal_result;
    PyObject *result = wk__as_subclass(state, steal_result, type);
    Py_DECREF(steal_result);
    return result;
  }
  bool sequence = PyTuple_Check(steal_result) || PyList_Check(steal_result);
  return sequence && holds_tensors(state, steal_result) ? converted_sequence(state, steal_result, type) : steal_result;
}

static PyObject *call_plainly(PyObject *func, PyObject *args, PyObject *kwargs) {  // -> new
  PyObject *none = args ? NULL : PyTuple_New(0);
  wk__thread.subclass_overrides_off++;
  PyObject *result = args || none ? PyObject_Call(func, args ? args : none, kwargs == Py_None ? NULL : kwargs) : NULL;
  wk__thread.subclass_overrides_off--;
  Py_XDECREF(none);
  return result;
}

static bool parse(PyObject *args, PyObject *keywords, PyObject **out) {
  static char *names[] = {"func", "types", "args", "kwargs", NULL};
  return PyArg_ParseTupleAndKeywords(args, keywords, "OO|OO:__torch_function__", names, &out[0], &out[1], &out[2],
                                     &out[3]);
}

static PyObject *torch_function(PyObject *class, PyObject *args, PyObject *keywords) {  // -> new
  PyObject *given[4] = {NULL};
  wk__state *state = wk__state_of_type((PyTypeObject *)class);
  if (!state || !parse(args, keywords, given)) return NULL;
  PyObject *types = PySequence_Fast(given[1], "__torch_function__: types must be a sequence");
  if (!types) return NULL;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(types); i++) {
    int known = PyObject_IsSubclass(class, PySequence_Fast_GET_ITEM(types, i));
    if (known == 1) continue;
    Py_DECREF(types);
    return known < 0 ? NULL : Py_NewRef(Py_NotImplemented);
  }
  Py_DECREF(types);
  PyObject *result = call_plainly(given[0], given[2], given[3]);
  if (!result || class == (PyObject *)state->tensor_type || keeps_class(given[0])) return result;
  return converted(state, result, (PyTypeObject *)class);
}

/* The __torch_function__ of a class that overrides nothing. */
static PyObject *disabled(PyObject *module, PyObject *args, PyObject *keywords) {  // -> new
  PyObject *given[4] = {NULL};
  (void)module;
  return parse(args, keywords, given) ? call_plainly(given[0], given[2], given[3]) : NULL;
}

static PyObject *as_subclass(PyObject *self, PyObject *type) {  // -> new
  wk__state *state = ((wk__python_tensor *)self)->state;
  if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, state->tensor_type))
    return PyErr_Format(PyExc_TypeError, "cls must be a type deriving from Tensor (got %s)", Py_TYPE(type)->tp_name);
  return wk__as_subclass(state, self, (PyTypeObject *)type);
}

static PyMethodDef tensor_methods[] = {
    {"__torch_function__", (PyCFunction)(void (*)(void))torch_function, METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "__torch_function__(func, types, args=(), kwargs=None): calls func; its tensors become the class's."},
    {"as_subclass", as_subclass, METH_O, "as_subclass(cls): the same data and history as an object of the class."},
    {0}};

/* ================================================= for the package ============================================== */

typedef struct guard {
  PyObject ob_base;
} guard;

static PyObject *leave_self(PyObject *self) { return Py_NewRef(self); }
static PyObject *enter_subclasses(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  wk__thread.subclass_overrides_off++;
  return leave_self(self);
}
static PyObject *exit_subclasses(PyObject *self, PyObject *args) {  // -> new
  (void)self, (void)args;
  wk__thread.subclass_overrides_off--;
  Py_RETURN_NONE;
}
static PyObject *enter_all(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  wk__thread.overrides_off++;
  return leave_self(self);
}
static PyObject *exit_all(PyObject *self, PyObject *args) {  // -> new
  (void)self, (void)args;
  wk__thread.overrides_off--;
  Py_RETURN_NONE;
}

static PyMethodDef subclass_guard_methods[] = {
    {"__enter__", enter_subclasses, METH_NOARGS, NULL}, {"__exit__", exit_subclasses, METH_VARARGS, NULL}, {0}};
static PyMethodDef guard_methods[] = {
    {"__enter__", enter_all, METH_NOARGS, NULL}, {"__exit__", exit_all, METH_VARARGS, NULL}, {0}};
static PyType_Slot subclass_guard_slots[] = {
    {Py_tp_methods, subclass_guard_methods},
    {Py_tp_doc, "with DisableTorchFunctionSubclass(): subclasses' __torch_function__ is not called."},
    {0, NULL}};
static PyType_Slot guard_slots[] = {
    {Py_tp_methods, guard_methods},
    {Py_tp_doc, "with DisableTorchFunction(): neither subclasses' nor modes' __torch_function__ is called."},
    {0, NULL}};
static PyType_Spec guard_specs[] = {
    {"wick._C.DisableTorchFunctionSubclass", sizeof(guard), 0, Py_TPFLAGS_DEFAULT, subclass_guard_slots},
    {"wick._C.DisableTorchFunction", sizeof(guard), 0, Py_TPFLAGS_DEFAULT, guard_slots}};

static PyObject *has_override(PyObject *module, PyObject *const *args, Py_ssize_t n) {  // -> new
  wk__state *state = wk__state_of_module(module);
  overloaded o = {.count = 0};
  if (!state->overrides && !n) Py_RETURN_FALSE;
  if (mode_is_on(state)) Py_RETURN_TRUE;
  for (Py_ssize_t i = 0; !wk__thread.subclass_overrides_off && !wk__thread.overrides_off && i < n; i++)
    add_object(state, &o, args[i]);
  return PyBool_FromLong(o.count > 0);
}
static PyObject *has_override_in(PyObject *module, PyObject *objects) {  // -> new
  PyObject *list = PySequence_Fast(objects, "has_torch_function expects a sequence");
  if (!list) return NULL;
  PyObject *result = has_override(module, PySequence_Fast_ITEMS(list), PySequence_Fast_GET_SIZE(list));
  Py_DECREF(list);
  return result;
}

/* _dispatch_torch_function(func, relevant, args, kwargs): as a call of func with the relevant objects would be. */
static PyObject *dispatch_from_python(PyObject *module, PyObject *const *args, Py_ssize_t n) {  // -> new
  wk__state *state = wk__state_of_module(module);
  overloaded o = {.count = 0};
  if (n != 4 || !PyTuple_Check(args[2]) || !PyDict_Check(args[3]))
    return PyErr_Format(PyExc_TypeError, "_dispatch_torch_function(func, relevant, args, kwargs)");
  PyObject *relevant = PySequence_Fast(args[1], "relevant arguments must be a sequence");
  if (!relevant) return NULL;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(relevant); i++)
    add_object(state, &o, PySequence_Fast_GET_ITEM(relevant, i));
  PyObject *result = dispatch(state, &o, mode_is_on(state), args[0], args[2], args[3]);
  Py_DECREF(relevant);
  return result;
}

static PyObject *push(PyObject *module, PyObject *mode) {  // -> new
  if (push_mode(wk__state_of_module(module), mode) < 0) return NULL;
  Py_RETURN_NONE;
}
static PyObject *pop(PyObject *module, PyObject *unused) {  // -> new
  (void)unused;
  return pop_mode(wk__state_of_module(module));
}
static PyObject *stack_length(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  PyObject *stack = mode_stack(false);
  return PyLong_FromSsize_t(stack ? PyList_GET_SIZE(stack) : 0);
}
static PyObject *is_enabled(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  return PyBool_FromLong(!wk__thread.subclass_overrides_off && !wk__thread.overrides_off);
}

static PyMethodDef functions[] = {
    {"_disabled_torch_function_impl", (PyCFunction)(void (*)(void))disabled, METH_VARARGS | METH_KEYWORDS,
     "The __torch_function__ of a class that overrides nothing."},
    {"_announce_overrides", announce_overrides, METH_NOARGS,
     "Objects that override calls and are no Tensors are used."},
    {"_has_torch_function", has_override_in, METH_O, "Whether one of a sequence overrides calls, or a mode is on."},
    {"_has_torch_function_variadic", (PyCFunction)(void (*)(void))has_override, METH_FASTCALL, "The same, spread."},
    {"_dispatch_torch_function", (PyCFunction)(void (*)(void))dispatch_from_python, METH_FASTCALL,
     "_dispatch_torch_function(func, relevant, args, kwargs): asks the mode and the relevant arguments."},
    {"_push_on_torch_function_stack", push, METH_O, "Enters a mode."},
    {"_pop_torch_function_stack", pop, METH_NOARGS, "Leaves the innermost mode and gives it."},
    {"_len_torch_function_stack", stack_length, METH_NOARGS, "How many modes the thread is in."},
    {"_is_torch_function_enabled", is_enabled, METH_NOARGS, "Whether subclasses are asked."},
    {0}};

int wk__add_overrides(PyObject *module, wk__state *state) {
  PyTypeObject *type = state->tensor_type;
  for (PyMethodDef *m = tensor_methods; m->ml_name; m++) {
    PyObject *descriptor = m->ml_flags & METH_CLASS ? PyDescr_NewClassMethod(type, m) : PyDescr_NewMethod(type, m);
    int status = descriptor ? PyDict_SetItemString(wk__type_dict(type), m->ml_name, descriptor) : -1;
    Py_XDECREF(descriptor);
    if (status < 0) return -1;
  }
  PyType_Modified(type);
  if (PyModule_AddFunctions(module, functions) < 0 || PyModule_AddObjectRef(module, "_overrides", Py_False) < 0)
    return -1;
  state->disabled_override = PyObject_GetAttrString(module, "_disabled_torch_function_impl");
  if (!state->disabled_override) return -1;
  for (size_t i = 0; i < WK_COUNT(guard_specs); i++) {
    PyTypeObject *guard_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &guard_specs[i], NULL);
    int status = guard_type ? PyModule_AddType(module, guard_type) : -1;
    Py_XDECREF(guard_type);
    if (status < 0) return -1;
  }
  return 0;
}
