/* Classes that a region makes: class statements, type(), namedtuple() and dataclasses inside a captured function.
 *
 * The body is evaluated as any code, with the names of its namespace, which is the region's own. The class lives as
 * long as the segment: a replay makes none. So neither the class nor an instance may be seen outside; where one is, the
 * segment is not kept.
 *
 * In: a call that makes a class. Out: the class, known to be the region's own, with what its bases are as guards.
 * Tests: tests/python/capture/test_classes.py. */
#include "dynamo/capture/classes.h"

#include "dynamo/capture/call_parts.h"
#include "dynamo/capture/record_parts.h"
#include "dynamo/cpython/objects.h"

#define BINDING (f->session->binding)

static uint64_t key_of(const void *p) { return (uint64_t)(uintptr_t)p; }

bool wk__is_made_class(const wk__recording *r, PyObject *o) {
  return r->made_classes.count && wk__map_get(&r->made_classes, key_of(o));
}

/* It is not looked at by its version: what is found in it is the region's own, or its bases'. */
static bool note(wk__frame *f, wk__recording *r, PyObject *class) {
  PyObject *mro = ((PyTypeObject *)class)->tp_mro;
  for (Py_ssize_t i = 1; mro && i < PyTuple_GET_SIZE(mro); i++) {
    PyObject *base = PyTuple_GET_ITEM(mro, i);
    if (!wk__is_made_class(r, base) && wk__depend_on_look_ups(r, (PyTypeObject *)base) < 0) return false;
  }
  if (wk__map_set(&r->made_classes, key_of(class), class) != WK_OK) return wk__refuse(f, "out of memory"), false;
  wk__note_made(r, class);
  wk__keep_alive(r, class);
  return true;
}

static PyObject *noted(wk__frame *f, wk__recording *r, PyObject *made) {
  bool class = made && wk__recording_of(f) == r && PyType_Check(made) && !wk__is_made_class(r, made);
  if (class && !note(f, r, made)) wk__record_failed(r, "a class that cannot be noted");
  return made;
}

/* A class is given to __init_subclass__ and __set_name__ before the call that makes it is over: it is noted when they
 * are entered. */
void wk__note_shown_class(wk__frame *f, wk__recording *r) {
  PyObject *code_name = f->code->co_name;
  int slot = PyUnicode_CompareWithASCIIString(code_name, "__init_subclass__") == 0 ? 0
             : PyUnicode_CompareWithASCIIString(code_name, "__set_name__") == 0    ? 1
                                                                                   : -1;
  PyObject *class = slot >= 0 && f->code->co_argcount > slot ? wk__frame_slot(f, slot) : NULL;
  bool fresh = class && PyType_Check(class) && wk__reg_find(r, class) < 0 && !wk__is_made_class(r, class);
  if (!fresh) return;
  if (!r->shown_class) r->shown_class = class;
  if (r->shown_class != class || !note(f, r, class)) wk__record_failed(r, "a class that cannot be noted");
}

/* What has been noted so is the class that comes out. */
static PyObject *make(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                      PyObject *names) {
  PyObject *outer = r->shown_class;
  r->shown_class = NULL;
  r->classes_open++;
  PyObject *made = wk__plain_call(f, callable, args, count, names);
  if (wk__recording_of(f) != r) return made;
  r->classes_open--;
  if (r->shown_class && r->shown_class != made) wk__record_failed(r, "a class is shown to code, and is not made");
  r->shown_class = outer;
  return noted(f, r, made);
}

/* C code's, which does something. */
static bool has_code_for_subclasses(PyObject *base) {
  PyObject *name = PyUnicode_InternFromString("__init_subclass__");
  PyObject *found = name ? wk__type_attribute((PyTypeObject *)base, name) : NULL;
  Py_XDECREF(name);
  return !found || (Py_TYPE(found) != &PyClassMethodDescr_Type && /* C code's: object's, a module's */
                    Py_TYPE(found) != &PyClassMethod_Type);       /* Python's, which is evaluated */
}

/* What classes with names for their items are derived from: its metaclass ends in namedtuple(). */
static bool is_named_tuple_base(PyObject *o) {
  if (!PyFunction_Check(o)) return false;
  PyObject *module = ((PyFunctionObject *)o)->func_module;
  return module && PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, "typing") == 0 &&
         PyUnicode_CompareWithASCIIString(((PyFunctionObject *)o)->func_name, "NamedTuple") == 0;
}

/* One written in Python ends in type.__new__, which notes the class. */
static bool metaclass_allowed(wk__frame *f, PyObject *metaclass) {
  wk__recording *r = f->session->recording;
  if (metaclass == (PyObject *)&PyType_Type) return true;
  bool python = PyType_Check(metaclass) && PyType_IsSubtype((PyTypeObject *)metaclass, &PyType_Type) &&
                wk__is_python_class((PyTypeObject *)metaclass);
  if (!python) return wk__refuse(f, "a class with a metaclass of C code is made"), false;
  if (wk__is_made_class(r, metaclass) || wk__depend_on_type(r, (PyTypeObject *)metaclass) == 0) return true;
  return wk__refuse(f, "%s", r->failed), false;
}

static bool bases_allowed(wk__frame *f, PyObject *const *bases, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; i++) {
    if (count == 1 && is_named_tuple_base(bases[i])) return true;
    if (!PyType_Check(bases[i])) return wk__refuse(f, "a class of a base that is no class"), false;
    if (!metaclass_allowed(f, (PyObject *)Py_TYPE(bases[i]))) return false;
    if (has_code_for_subclasses(bases[i])) return wk__refuse(f, "a class is made of one with __init_subclass__"), false;
  }
  return true;
}

/* `metaclass` among the keywords; the others are its, or __init_subclass__'s. */
static PyObject *metaclass_given(PyObject *const *args, Py_ssize_t count, PyObject *names) {  // -> borrowed
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); i++)
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, i), "metaclass") == 0) return args[count + i];
  return (PyObject *)&PyType_Type;
}

PyObject *wk__build_class_call(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args,
                               Py_ssize_t count, PyObject *names) {
  if (count < 2 || !PyFunction_Check(args[0])) return wk__refuse(f, "a class is made in another way");
  if (!metaclass_allowed(f, metaclass_given(args, count, names)) || !bases_allowed(f, args + 2, count - 2)) return NULL;
  return make(f, r, callable, args, count, names);
}

/* type.__new__(metaclass, name, bases, namespace), in which a metaclass's own __new__ ends. */
PyObject *wk__type_new_call(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                            PyObject *names) {
  bool plain = count == 4 && PyType_Check(args[0]) && PyTuple_CheckExact(args[2]) && PyDict_Check(args[3]);
  if (!plain) return wk__refuse(f, "a class is made in another way");
  if (!metaclass_allowed(f, args[0]) || !bases_allowed(f, &PyTuple_GET_ITEM(args[2], 0), PyTuple_GET_SIZE(args[2])))
    return NULL;
  return make(f, r, callable, args, count, names);
}

PyObject *wk__new_class(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count) {
  bool plain = count == 3 && PyTuple_CheckExact(args[1]) && PyDict_CheckExact(args[2]) && wk__passed_on(f, args[2]);
  if (!plain || !bases_allowed(f, &PyTuple_GET_ITEM(args[1], 0), PyTuple_GET_SIZE(args[1])))
    return f->session->reason[0] ? NULL : wk__refuse(f, "a new type");
  return make(f, r, callable, args, count, NULL);
}

/* enum.Enum("Color", "RED GREEN") and its kind, of the library's own classes: no code of the program runs in it. */
static bool is_enum_of_values(wk__frame *f, PyObject *class, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  PyObject *module =
      PyType_Check(class) ? PyDict_GetItemString(wk__type_dict((PyTypeObject *)class), "__module__") : NULL;
  if (!module || !PyUnicode_Check(module) || PyUnicode_CompareWithASCIIString(module, "enum") != 0) return false;
  for (Py_ssize_t i = 0; i < count + (names ? PyTuple_GET_SIZE(names) : 0); i++) {
    bool mixed_in = PyType_Check(args[i]) && wk__type_is_fixed((PyTypeObject *)args[i]);
    if (!mixed_in && !wk__holds_values(f, args[i], 0)) return false;
  }
  return true;
}

/* Functions of the library that write code for a class: they look at nothing else. */
bool wk__class_function_call(wk__frame *f, wk__recording *r, PyObject *function, PyObject *callable,
                             PyObject *const *args, Py_ssize_t count, PyObject *names, PyObject **out) {
  PyObject *name = ((PyFunctionObject *)function)->func_name, *self = NULL;
  bool dataclass = PyUnicode_CompareWithASCIIString(name, "_process_class") == 0;
  if (dataclass && (!count || !wk__is_made_class(r, args[0]))) return false;
  if (PyUnicode_CompareWithASCIIString(name, "_create_") == 0) {
    self = PyMethod_Check(callable) ? PyMethod_GET_SELF(callable) : count ? args[0] : NULL;
    bool first = !PyMethod_Check(callable);
    if (!self || !is_enum_of_values(f, self, args + first, count - first, names)) return false;
  }
  for (Py_ssize_t i = dataclass; i < count + (names ? PyTuple_GET_SIZE(names) : 0); i++)
    if (!wk__usable(f, args[i])) return true;
  wk__suspension suspension;
  wk__session_suspend(f->session, true, &suspension);
  *out = PyObject_Vectorcall(callable, args, (size_t)count, names);
  wk__session_resume(f->session, &suspension);
  *out = noted(f, r, *out);
  return true;
}

/* The class that has the name, from `first` on in the order of lookup, is the region's own. */
bool wk__is_found_in_made_class(const wk__recording *r, PyTypeObject *type, PyObject *first, PyObject *name) {
  if (!wk__is_made_class(r, (PyObject *)type) || !type->tp_mro) return false;
  bool behind = first == NULL;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); i++) {
    PyObject *class = PyTuple_GET_ITEM(type->tp_mro, i);
    if (!behind) {
      behind = class == first;
      continue;
    }
    int has = PyDict_Contains(wk__type_dict((PyTypeObject *)class), name);
    if (has < 0) PyErr_Clear();
    if (has > 0) return wk__is_made_class(r, class);
  }
  return false;
}
