/* C functions about objects and their classes: what a class's own __getattribute__ and __setattr__ end in, ABCMeta's
 * checks, weak references, deep copies.
 * In: such a call. Out: its result, with a read or check for everything that it depends on. Tests:
 * tests/python/capture/test_guards.py. */
#include "dynamo/capture/class_attributes.h"
#include "dynamo/capture/ends.h"
#include "dynamo/capture/known.h"
#include "dynamo/capture/known_calls.h"
#include "dynamo/capture/record_parts.h"
#include "dynamo/cpython/objects.h"

#define BINDING (f->session->binding)

/* The class that a method of C code is of. */
static PyTypeObject *class_of_method(PyObject *callable) {  // -> borrowed, NULL: it is no such thing
  PyObject *where = PyObject_GetAttrString(callable, "__objclass__");
  bool class = where && PyType_Check(where);
  Py_XDECREF(where); /* its class has it */
  PyErr_Clear();
  return class ? (PyTypeObject *)where : NULL;
}

bool wk__usual_attribute_call(wk__frame *f, wk__recording *r, PyObject *self, const char *name, PyObject *callable,
                              PyObject *const *args, Py_ssize_t count, PyObject **out) {
  bool gets = strcmp(name, "__getattribute__") == 0 && count == 1,
       sets = strcmp(name, "__setattr__") == 0 && count == 2, deletes = strcmp(name, "__delattr__") == 0 && count == 1;
  if (!(gets || sets || deletes) || !PyUnicode_Check(args[0]) || PyObject_TypeCheck(self, BINDING->module_type))
    return false;
  if (gets && !wk__is_python_instance(self) && Py_TYPE(self)->tp_getattro == PyObject_GenericGetAttr) {
    *out = wk__get_attribute(f, r, self, args[0]); /* whoever has this method, its class has no other way */
    return true;
  }
  bool of_class = PyType_Check(self) && !wk__is_made_class(r, self) && class_of_method(callable) == &PyType_Type;
  if (of_class && gets) *out = wk__get_usual_attribute_of_class(f, r, self, args[0]);
  if (of_class && !gets) {
    int status = wk__set_usual_attribute_of_class(f, r, self, args[0], sets ? args[1] : NULL);
    *out = status < 0 ? NULL : Py_NewRef(Py_None);
  }
  if (of_class) return true;
  const PyTypeObject *class = wk__is_python_instance(self) ? class_of_method(callable) : NULL;
  bool usual = class && class->tp_getattro == PyObject_GenericGetAttr && class->tp_setattro == PyObject_GenericSetAttr;
  if (!usual) return false;
  if (gets)
    *out = wk__get_usual_attribute(f, r, self, args[0]);
  else
    *out = wk__set_usual_attribute(f, r, self, args[0], sets ? args[1] : NULL) < 0 ? NULL : Py_NewRef(Py_None);
  return true;
}

/* The class is told once which slots it has, by Python code that C code calls: it stays there, and is no part of the
 * region. */
static void know_slots(wk__frame *f, PyTypeObject *type) {
  wk__suspension suspension;
  wk__session_suspend(f->session, false, &suspension);
  PyObject *module = PyImport_ImportModule("copyreg");
  PyObject *names = module ? PyObject_CallMethod(module, "_slotnames", "O", type) : NULL;
  wk__session_resume(f->session, &suspension);
  PyErr_Clear(); /* asked again by whoever needs it */
  Py_XDECREF(names);
  Py_XDECREF(module);
}

bool wk__reduce_call(wk__frame *f, wk__recording *r, PyObject *self, PyObject *callable, PyObject *const *args,
                     Py_ssize_t count, PyObject **out) {
  PyTypeObject *t = Py_TYPE(self);
  bool module = PyObject_TypeCheck(self, BINDING->module_type);
  if (t == &PySet_Type || t == &PyFrozenSet_Type || t == &PyODict_Type || wk__is_default_dict(t)) {
    if (!wk__usable(f, self)) return true;
    wk__suspension suspension; /* Python code is asked for slots, which such classes have not */
    wk__session_suspend(f->session, false, &suspension);
    *out = PyObject_Vectorcall(callable, args, (size_t)count, NULL);
    wk__session_resume(f->session, &suspension);
    return true;
  }
  if (!module && !wk__is_python_instance(self)) return false;
  PyObject *name = PyUnicode_InternFromString("__reduce_ex__");
  bool usual = name && wk__type_attribute(Py_TYPE(self), name) == wk__type_attribute(&PyBaseObject_Type, name);
  Py_XDECREF(name);
  PyObject **dict = wk__instance_dict_place(self);
  bool whole = usual && dict && *dict && !PyTuple_Check(self) && !PyList_Check(self) && !PyDict_Check(self);
  if (!whole || Py_TYPE(self)->tp_itemsize) return false;
  know_slots(f, Py_TYPE(self));
  wk__reg reg = wk__is_foreign(r, self) ? wk__reg_find(r, self) : -1;
  bool known = wk__depend_on_type(r, Py_TYPE(self)) == 0 && (reg < 0 || wk__instance_dict(f, r, reg, self) >= 0);
  *out = known ? wk__plain_call(f, callable, args, count, NULL) : wk__refuse(f, "%s", r->failed);
  return true;
}

/* ABCMeta's isinstance() and issubclass(). A class that derives is one for as long as the classes stay what they are;
 * every other answer may change with register(), and is asked for again in front of each replay. */
PyObject *wk__abstract_check(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args,
                             bool of_instance) {
  PyTypeObject *class = (PyTypeObject *)args[0];
  PyTypeObject *asked = of_instance ? Py_TYPE(args[1]) : (PyTypeObject *)args[1];
  PyObject *same = of_instance ? PyObject_GetAttrString(args[1], "__class__") : Py_NewRef(args[1]);
  bool plain = PyType_Check(args[0]) && PyType_Check(same) && same == (PyObject *)asked;
  Py_XDECREF(same); /* its instance has it */
  PyErr_Clear();
  if (!plain) return wk__refuse(f, "an object that says that it is of another class");
  if (wk__depend_on_type(r, class) < 0 || wk__depend_on_type(r, asked) < 0) return wk__refuse(f, "%s", r->failed);
  wk__suspension suspension;
  wk__session_suspend(f->session, false, &suspension); /* __subclasshook__ is asked about classes alone */
  PyObject *answer = wk__plain_call(f, callable, args, 2, NULL);
  wk__session_resume(f->session, &suspension);
  if (!answer || (answer == Py_True && PyType_IsSubtype(asked, class))) return answer;
  if (wk__is_made_class(r, args[0])) return answer; /* what the region registers there is all */
  if (wk__is_made_class(r, (PyObject *)asked)) {
    Py_DECREF(answer);
    return wk__refuse(f, "whether a class of the region is one of an abstract class from outside");
  }
  PyObject *module = PyImport_ImportModule("_abc");
  PyObject *ask = module ? PyObject_GetAttrString(module, "_abc_subclasscheck") : NULL;
  wk__reg a = ask ? wk__reg_constant(r, args[0]) : -1, b = a >= 0 ? wk__reg_constant(r, (PyObject *)asked) : -1;
  if (b < 0 || wk__observe(r, BINDING, answer, WK__READ_COMPUTED, a, b, ask) < 0) Py_CLEAR(answer);
  Py_XDECREF(ask);
  Py_XDECREF(module);
  return answer || PyErr_Occurred() ? answer : wk__refuse(f, "%s", r->failed);
}

/* One that the region has raised is its own; that no caller handles one is asked again in front of each replay. */
PyObject *wk__exception_state(wk__frame *f, wk__recording *r, PyObject *function) {
  PyObject *handled = PyErr_GetHandledException(), *ask = PySys_GetObject("exception");
  Py_XDECREF(handled); /* the thread has it */
  if (handled && handled != f->session->handled_at_start && wk__reg_find(r, handled) < 0)
    return PyObject_CallNoArgs(function);
  if (handled || !ask) return wk__refuse(f, "the exception that is handled is asked for");
  if (wk__observe(r, BINDING, Py_None, WK__READ_COMPUTED, -1, -1, ask) < 0) return wk__refuse(f, "%s", r->failed);
  return PyObject_CallNoArgs(function);
}

PyObject *wk__made_proxy(wk__frame *f, wk__recording *r, PyObject *dict) {
  (void)f;
  PyObject *proxy = PyDictProxy_New(dict);
  if (proxy) wk__note_made(r, proxy);
  return proxy;
}

/* A proxy from outside is asked what its dictionary would be. */
PyObject *wk__behind_proxy(wk__frame *f, wk__recording *r, PyObject *o) {
  if (Py_TYPE(o) != &PyDictProxy_Type || wk__is_own_proxy(r, o)) return o;
  PyObject *dict = wk__shown_by_proxy(o);
  wk__reg reg = PyDict_Check(dict) ? wk__reg_find(r, o) : -1;
  if (reg < 0) return o;
  return wk__observe(r, BINDING, dict, WK__READ_REFERENT, reg, 0, NULL) < 0 ? o : dict;
}

/* ================================================= weak references ================================================ */

/* A variable had it when the segment began and has it no more: the recording may be all that keeps it alive. */
static bool was_let_go(const wk__session *s, PyObject *o) {
  for (const wk__activation *a = s->innermost; a; a = a->outer)
    for (int i = 0; a->at_start && i < a->slots_at_start; i++)
      if (a->at_start[i] == o && a->stored[i]) return true;
  return false;
}

PyObject *wk__referent_of(wk__frame *f, wk__recording *r, PyObject *reference) {  // -> new
  PyObject *referent = wk__weak_referent(reference);
  wk__reg reg = wk__reg_find(r, reference); /* one of the region's own has one where it can be seen outside */
  bool own = wk__is_own_object(r, reference) || (reg >= 0 && !wk__is_foreign(r, reference));
  if (referent != Py_None && (r->ended_watched || was_let_go(f->session, referent))) {
    Py_DECREF(referent);
    return wk__refuse(f, "a weak reference to what was let go of");
  }
  if (own) return referent;
  r->asks_referents = true;
  if (wk__observe(r, BINDING, referent, WK__READ_REFERENT, reg, 0, NULL) == 0) return referent;
  Py_DECREF(referent);
  return wk__refuse(f, "%s", r->failed);
}

bool wk__is_weak_reference(const PyTypeObject *type) {
  return PyType_IsSubtype((PyTypeObject *)type, wk__weak_reference_type()) &&
         type->tp_call == wk__weak_reference_type()->tp_call;
}

/* The callback is no part of the region: what comes from outside and is held there does not end in it. What the region
 * has made might. */
PyObject *wk__new_weak_reference(wk__frame *f, wk__recording *r, PyObject *type, PyObject *const *args,
                                 Py_ssize_t count, PyObject *names) {
  bool calls = count == 2 && args[1] != Py_None;
  if (names || count > 2 || (calls && !wk__note_stays(f, r, args[0])))
    return wk__refuse(f, "a weak reference with a callback");
  return wk__arguments_usable(f, args, count, NULL) ? wk__plain_call(f, type, args, count, NULL) : NULL;
}

PyObject *wk__behind_weak_proxy(wk__frame *f, wk__recording *r, PyObject *o) {
  wk__reg reg = PyWeakref_CheckProxy(o) && wk__is_foreign(r, o) ? wk__reg_find(r, o) : -1;
  if (reg < 0) return o;
  PyObject *referent = wk__weak_referent(o);
  Py_DECREF(referent); /* somebody has it, or it is None */
  if (referent == Py_None || r->ended_watched || was_let_go(f->session, referent))
    return wk__refuse(f, "a weakref.proxy() of what is gone");
  r->asks_referents = true;
  if (wk__observe(r, BINDING, referent, WK__READ_REFERENT, reg, 0, NULL) < 0) return wk__refuse(f, "%s", r->failed);
  return referent;
}

/* ==================================================== effects ==================================================== */

bool wk__note_effect(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t all,
                     PyObject *names) {
  enum { MOST = 24 };
  PyObject *items[1 + MOST] = {callable};
  if (all > MOST) return wk__refuse(f, "an effect of many arguments"), false;
  for (Py_ssize_t i = 0; i < all; i++) items[1 + i] = args[i];
  bool noted =
      wk__reg_constant(r, callable) >= 0 && wk__did(r, BINDING, WK__DO_EFFECT, NULL, items, (int)(1 + all), names) == 0;
  if (!noted) wk__refuse(f, "%s", r->failed);
  return noted;
}

bool wk__is_lock(const wk__recording *r, PyObject *o) {
  return wk__is_foreign(r, o) && wk__known_method(Py_TYPE(o), "__enter__")->what == WK__KNOWN_EFFECT;
}

bool wk__note_lock(wk__frame *f, wk__recording *r, PyObject *lock, const char *name, int count) {
  PyObject *method = PyObject_GetAttrString((PyObject *)Py_TYPE(lock), name);
  PyObject *args[] = {lock, Py_None, Py_None, Py_None};
  bool noted = method && count < (int)WK_COUNT(args) && wk__note_effect(f, r, method, args, 1 + count, NULL);
  if (!noted && !f->session->reason[0]) wk__refuse(f, "a lock's %s()", name);
  Py_XDECREF(method);
  return noted;
}

/* ==================================================== getters ==================================================== */

/* "a.b" of o. */
static PyObject *get_path(wk__frame *f, PyObject *o, PyObject *path) {  // -> new
  PyObject *names = PyObject_CallMethod(path, "split", "s", "."), *found = names ? Py_NewRef(o) : NULL;
  for (Py_ssize_t i = 0; found && i < PyList_GET_SIZE(names); i++) {
    PyObject *name = PyList_GET_ITEM(names, i);
    PyUnicode_InternInPlace(&name);
    PyList_SET_ITEM(names, i, name);
    Py_SETREF(found, wk__op_attr(f, found, name));
  }
  Py_XDECREF(names);
  return found;
}

static PyObject *call_method(wk__frame *f, PyObject *o, PyObject *how) {  // -> new
  PyObject *name = Py_NewRef(PyTuple_GET_ITEM(how, 0));
  PyUnicode_InternInPlace(&name);
  PyObject *method = wk__op_attr(f, o, name), *result = NULL;
  if (method) result = wk__op_call(f, method, &PyTuple_GET_ITEM(how, 0) + 1, PyTuple_GET_SIZE(how) - 1, NULL);
  Py_DECREF(name);
  Py_XDECREF(method);
  return result;
}

PyObject *wk__getter_call(wk__frame *f, wk__recording *r, PyObject *getter, PyObject *o) {
  wk__reg reg = wk__is_foreign(r, getter) ? wk__reg_find(r, getter) : -1;
  if (reg >= 0) wk__check_once(r, WK__CHECK_IS, reg, 0, getter); /* it is immutable */
  const char *kind = strchr(Py_TYPE(getter)->tp_name, '.') + 1;
  PyObject *made = PyObject_CallMethod(getter, "__reduce__", NULL);
  PyObject *how = made && PyTuple_Check(made) ? PyTuple_GET_ITEM(made, 1) : NULL, *result = NULL;
  bool simple =
      how && PyTuple_Check(how) && PyTuple_GET_SIZE(how) && PyTuple_GET_ITEM(made, 0) == (PyObject *)Py_TYPE(getter);
  if (!simple) {
    Py_XDECREF(made);
    return wk__refuse(f, "operator.%s with keywords", kind);
  }
  if (strcmp(kind, "methodcaller") == 0) {
    result = call_method(f, o, how);
  } else {
    bool items = strcmp(kind, "itemgetter") == 0;
    Py_ssize_t count = PyTuple_GET_SIZE(how);
    PyObject *all = PyTuple_New(count);
    for (Py_ssize_t i = 0; all && i < count; i++) {
      PyObject *key = PyTuple_GET_ITEM(how, i), *found = items ? wk__op_item(f, o, key) : get_path(f, o, key);
      if (!found) Py_CLEAR(all);
      if (found) PyTuple_SET_ITEM(all, i, found);
    }
    result = all && count == 1 ? Py_NewRef(PyTuple_GET_ITEM(all, 0)) : Py_XNewRef(all);
    Py_XDECREF(all);
  }
  Py_DECREF(made);
  return result;
}

/* ============================================= calls that are remembered ========================================== */

/* Done plainly, in between: what it does is not repeated. */
static PyObject *call_in_between(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                                 PyObject *names) {  // -> new
  wk__suspension suspension;
  wk__session_suspend(f->session, true, &suspension);
  PyObject *result = PyObject_Vectorcall(callable, args, (size_t)count, names);
  wk__session_resume(f->session, &suspension);
  return result;
}

bool wk__is_cached_function(PyObject *callable) {
  return strcmp(Py_TYPE(callable)->tp_name, "functools._lru_cache_wrapper") == 0;
}

bool wk__is_marked_constant(PyObject *callable) {
  PyObject **dict = wk__instance_dict_place(callable);
  return dict && *dict && PyDict_GetItemString(*dict, "_dynamo_marked_constant") == Py_True;
}

PyObject *wk__constant_call(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                            PyObject *names) {
  for (Py_ssize_t i = 0; i < count + (names ? PyTuple_GET_SIZE(names) : 0); i++)
    if (!wk__usable(f, args[i])) return NULL;
  PyObject *result = call_in_between(f, callable, args, count, names);
  if (result && wk__recording_of(f) == r && !wk__is_plain_value(BINDING, result)) wk__reg_constant(r, result);
  return result;
}

bool wk__is_array_function(PyObject *callable) {
  if (strcmp(Py_TYPE(callable)->tp_name, "numpy._ArrayFunctionDispatcher") != 0) return false;
  PyObject *name = PyObject_GetAttrString(callable, "__name__");
  PyObject *module = PyObject_GetAttrString(callable, "__module__");
  bool texts = name && module && PyUnicode_Check(name) && PyUnicode_Check(module);
  bool known = texts && wk__known_function(PyUnicode_AsUTF8(module), PyUnicode_AsUTF8(name))->what == WK__KNOWN_FRESH;
  Py_XDECREF(name);
  Py_XDECREF(module);
  PyErr_Clear();
  return known;
}

/* What is called in between has no effects that a replay would repeat: so it gets nothing to call. */
static bool runs_python(PyObject *o) {
  return PyFunction_Check(o) || PyMethod_Check(o) || (PyType_Check(o) && !wk__type_is_fixed((PyTypeObject *)o));
}

PyObject *wk__fresh_call(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  for (Py_ssize_t i = 0; i < count + (names ? PyTuple_GET_SIZE(names) : 0); i++) {
    if (!wk__usable(f, args[i])) return NULL;
    if (wk__holds_tensor(f, args[i])) return wk__refuse(f, "a Python function that is not evaluated gets a tensor");
    if (runs_python(args[i])) return wk__refuse(f, "a Python function that is not evaluated gets another one to call");
  }
  return call_in_between(f, callable, args, count, names);
}

/* The register of something that a guard can be called with. What a symbol stands for is checked behind all of those.
 */
static wk__reg guard_argument(wk__frame *f, wk__recording *r, PyObject *o) {
  wk_int symbol;
  if (wk__symbolic_int(r, o, &symbol) || wk__float_register(r, o) >= 0 || wk__is_identity(r, o)) return -1;
  if (wk__is_plain_value(BINDING, o)) {
    wk__reg reg = wk__new_register(r, WK__REG_CONSTANT, NULL, true);
    if (reg >= 0) r->registers[reg].object = Py_NewRef(o); /* not found by it */
    return reg;
  }
  if (PyType_Check(o)) return wk__reg_constant(r, o);
  return wk__is_foreign(r, o) && !wk__is_tensor_object(f, o) ? wk__reg_find(r, o) : -1;
}

/* A class has one such object, wherever it is asked for. */
static bool is_weak_reference_to_class(wk__recording *r, PyObject *o) {
  if (Py_TYPE(o) != wk__weak_reference_type() || ((PyWeakReference *)o)->wr_callback) return false;
  PyObject *type = wk__weak_referent(o);
  bool known = type && PyType_Check(type) && !wk__is_made_class(r, type) && wk__reg_constant(r, type) >= 0;
  Py_XDECREF(type);
  return known;
}

/* A value whatever it is asked for: one without identity, or a tuple of those. What a tuple from outside holds is
 * guarded; sizes in it that are symbols become numbers. */
static bool is_constant(wk__frame *f, wk__recording *r, PyObject *o, int depth) {
  enum { DEEPEST = 8 };
  if (depth > DEEPEST) return false;
  wk_int symbol;
  if (wk__is_identity(r, o)) return false;
  bool changes = wk__symbolic_int(r, o, &symbol) || wk__float_register(r, o) >= 0;
  if (changes && depth == 0 && !f->session->compiled->options.fullgraph) return false;
  if (wk__is_plain_value(BINDING, o)) {
    if (changes) wk__settle(r, o);
    return true;
  }
  if (is_weak_reference_to_class(r, o)) return true;
  if (Py_TYPE(o) != &PyTuple_Type && Py_TYPE(o) != BINDING->size_type) return false;
  if (wk__is_foreign(r, o) && wk__touch(r, BINDING, o) < 0) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++)
    if (!is_constant(f, r, PyTuple_GET_ITEM(o, i), depth + 1)) return false;
  return true;
}

/* A call whose arguments behind the first are constants: (callable, arguments, names). */
static PyObject *call_again(PyObject *self, PyObject *const *args, Py_ssize_t count) {  // -> new
  PyObject *rest = PyTuple_GET_ITEM(self, 1), *names = PyTuple_GET_ITEM(self, 2), *result = NULL;
  Py_ssize_t given = PyTuple_GET_SIZE(rest), named = names == Py_None ? 0 : PyTuple_GET_SIZE(names);
  PyObject **all = PyMem_Malloc((size_t)(count + given + 1) * sizeof *all);
  if (!all) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; i++) all[i] = args[i];
  for (Py_ssize_t i = 0; i < given; i++) all[count + i] = PyTuple_GET_ITEM(rest, i);
  result = PyObject_Vectorcall(PyTuple_GET_ITEM(self, 0), all, (size_t)(count + given - named), named ? names : NULL);
  PyMem_Free(all);
  return result;
}
static PyMethodDef call_again_definition = {"cached", (PyCFunction)(void (*)(void))call_again, METH_FASTCALL, NULL};

bool wk__counts_calls(PyObject *function) {
  bool with = PyCFunction_Check(function) && ((PyCFunctionObject *)function)->m_ml == &call_again_definition;
  return wk__is_cached_function(with ? PyTuple_GET_ITEM(PyCFunction_GET_SELF(function), 0) : function);
}

bool wk__is_same_call(PyObject *function, PyObject *other) {
  if (function == other) return true;
  for (int k = 0; k < 2; k++) {
    PyObject *one = k ? other : function;
    if (!PyCFunction_Check(one) || ((PyCFunctionObject *)one)->m_ml != &call_again_definition) return false;
  }
  PyObject *x = PyCFunction_GET_SELF(function), *y = PyCFunction_GET_SELF(other);
  bool same = PyTuple_GET_ITEM(x, 0) == PyTuple_GET_ITEM(y, 0) && PyObject_RichCompareBool(x, y, Py_EQ) == 1;
  PyErr_Clear();
  return same;
}

static PyObject *with_constants(PyObject *callable, PyObject *const *args, Py_ssize_t count,
                                PyObject *names) {  // -> new
  PyObject *rest = PyTuple_New(count), *self = NULL, *function = NULL;
  for (Py_ssize_t i = 0; rest && i < count; i++) PyTuple_SET_ITEM(rest, i, Py_NewRef(args[i]));
  if (rest) self = PyTuple_Pack(3, callable, rest, names ? names : Py_None);
  if (self) function = PyCFunction_New(&call_again_definition, self);
  Py_XDECREF(rest);
  Py_XDECREF(self);
  return function;
}

/* How a cached function is asked again: two registers, or one and constants. */
typedef struct asked_again {
  wk__reg a, b;
  PyObject *function; /* owned */
} asked_again;

static bool ask_again(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                      PyObject *names, asked_again *out) {
  Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0, constants = 0;
  *out = (asked_again){-1, -1, NULL};
  while (constants < count + named && is_constant(f, r, args[count + named - 1 - constants], 0)) constants++;
  Py_ssize_t others = count + named - constants;
  if (others > 2 || others > count || (others == 2 && constants)) return false;
  if (others > 0 && (out->a = guard_argument(f, r, args[0])) < 0) return false;
  if (others > 1 && (out->b = guard_argument(f, r, args[1])) < 0) return false;
  out->function = constants ? with_constants(callable, args + others, constants, names) : Py_NewRef(callable);
  return out->function != NULL;
}

/* What the cache has: asked for again in front of each replay, by the same call, which the program would have made. */
PyObject *wk__cached_call(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                          PyObject *names) {
  asked_again again;
  if (!ask_again(f, r, callable, args, count, names, &again))
    return wk__refuse(f, "a cached function of what the region has made, or of a number that changes");
  PyObject *result = NULL, *known = NULL;
  PyObject *a = again.a >= 0 ? args[0] : NULL, *b = again.b >= 0 ? args[1] : NULL;
  if (!wk__counts_calls(again.function) || !wk__was_asked(f->session, again.function, a, b, &result))
    result = call_in_between(f, callable, args, count, names);
  bool noted = result && wk__recording_of(f) == r;
  if (result && !noted) known = Py_NewRef(result);
  if (!result && wk__recording_of(f) == r) wk__record_failed(r, "what was asked for has raised");
  if (noted) {
    noted = wk__reg_constant(r, callable) >= 0 && wk__reg_constant(r, again.function) >= 0 &&
            wk__observe(r, BINDING, result, WK__READ_COMPUTED, again.a, again.b, again.function) == 0;
    known = noted ? wk__as_read(r, result) : wk__refuse(f, "%s", r->failed);
  }
  Py_DECREF(again.function);
  Py_XDECREF(result);
  return known;
}

/* ==================================================== protocols ================================================== */

/* The names that a typing.Protocol asks for, which the dictionaries of its classes decide: a new set in each call. */
bool wk__protocol_members(wk__frame *f, wk__recording *r, PyObject *function, PyObject *protocol, PyObject **out) {
  if (!PyType_Check(protocol)) return false;
  bool known = wk__depend_on_type(r, (PyTypeObject *)protocol) == 0;
  *out = known ? call_in_between(f, function, &protocol, 1, NULL) : wk__refuse(f, "%s", r->failed);
  return true;
}

/* ==================================================== deep copies ================================================= */

static bool has_no_method(PyTypeObject *t, const char *text, bool of_object) {
  PyObject *name = PyUnicode_InternFromString(text);
  PyObject *usual = name && of_object ? wk__type_attribute(&PyBaseObject_Type, name) : NULL;
  bool none = name && wk__type_attribute(t, name) == usual;
  Py_XDECREF(name);
  return none;
}

/* copy.deepcopy() makes it of its dictionary, by no method of its class. */
static bool is_copied_by_its_dictionary(PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  return wk__is_python_instance(o) && t->tp_new == PyBaseObject_Type.tp_new &&
         has_no_method(t, "__deepcopy__", false) && has_no_method(t, "__setstate__", false) &&
         has_no_method(t, "__getstate__", true) && has_no_method(t, "__reduce__", true) &&
         has_no_method(t, "__reduce_ex__", true) && has_no_method(t, "__slots__", false);
}

/* All of what is copied becomes known; values and containers alone. */
static bool know_all(wk__frame *f, wk__recording *r, PyObject *o, int depth) {
  enum { DEEPEST = 16 };
  PyTypeObject *t = Py_TYPE(o);
  if (wk__is_plain_value(BINDING, o) || PyType_Check(o) || PyFunction_Check(o)) return true;
  if (depth > DEEPEST) return false;
  if (is_copied_by_its_dictionary(o)) {
    wk__reg reg = wk__is_foreign(r, o) ? wk__reg_find(r, o) : -1;
    if (wk__depend_on_type(r, t) < 0 || (reg >= 0 && wk__instance_dict(f, r, reg, o) < 0)) return false;
    PyObject **dict = wk__instance_dict_place(o);
    return dict && *dict && know_all(f, r, *dict, depth + 1);
  }
  bool known = t == &PyDict_Type || t == &PyList_Type || t == &PyTuple_Type;
  if (!known || wk__touch(r, BINDING, o) < 0) return false;
  PyObject *key, *value;
  for (Py_ssize_t at = 0; t == &PyDict_Type && PyDict_Next(o, &at, &key, &value);)
    if (!wk__is_plain_value(BINDING, key) || !know_all(f, r, value, depth + 1)) return false;
  for (Py_ssize_t i = 0; t != &PyDict_Type && i < PySequence_Fast_GET_SIZE(o); i++)
    if (!know_all(f, r, PySequence_Fast_GET_ITEM(o, i), depth + 1)) return false;
  return true;
}

/* Another one with the same attributes, whatever they are. */
static bool can_be_copied(wk__frame *f, wk__recording *r, PyObject *o) {
  wk__reg reg = wk__is_foreign(r, o) ? wk__reg_find(r, o) : -1;
  if (!is_copied_by_its_dictionary(o) || wk__depend_on_type(r, Py_TYPE(o)) < 0) return false;
  if (reg >= 0 && wk__instance_dict(f, r, reg, o) < 0) return false;
  PyObject **dict = wk__instance_dict_place(o);
  return dict && *dict && wk__touch(r, BINDING, *dict) == 0;
}

/* The memo of a deep copy has the addresses of what the region makes, so it cannot be evaluated, and how an instance is
 * taken apart is C code's: of plain data, values and instances of plain classes both are done as they are. */
bool wk__copy_call(wk__frame *f, wk__recording *r, PyObject *function, PyObject *o, PyObject **out) {
  bool deep = PyUnicode_CompareWithASCIIString(((PyFunctionObject *)function)->func_name, "deepcopy") == 0;
  bool container = PyDict_CheckExact(o) || PyList_CheckExact(o) || PyTuple_CheckExact(o);
  if (deep && wk__is_plain_value(BINDING, o)) {
    *out = Py_NewRef(o);
    return true;
  }
  if (deep ? !container && !is_copied_by_its_dictionary(o) : !can_be_copied(f, r, o)) return false;
  if (deep && !know_all(f, r, o, 0)) return false;
  if (deep) wk__settle(r, o);
  wk__suspension suspension;
  wk__session_suspend(f->session, false, &suspension);
  *out = PyObject_CallOneArg(function, o);
  wk__session_resume(f->session, &suspension);
  return true;
}
