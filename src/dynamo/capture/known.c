/* Attributes of objects from outside, and what C code may look at.
 * In: an object and a name. Out: the attribute, with a read or check for everything that decided which one it is.
 * Tests: tests/python/capture/test_guards.py. */
#include "dynamo/capture/known.h"
#include "autograd/autograd.h"
#include "dynamo/capture/classes.h"
#include "dynamo/capture/known_calls.h"
#include "dynamo/capture/record_parts.h"
#include "dynamo/cpython/objects.h"

#define TEXT(name) PyUnicode_AsUTF8(name)

/* ================================================== kinds ======================================================== */

bool wk__is_foreign(const wk__recording *r, PyObject *o) {
  wk__reg reg = wk__reg_find(r, o);
  return reg >= 0 && (r->registers[reg].kind == WK__REG_READ || r->registers[reg].kind == WK__REG_CONSTANT);
}
bool wk__is_tensor_object(const wk__frame *f, PyObject *o) {
  return PyObject_TypeCheck(o, f->session->binding->tensor_type);
}

bool wk__is_own_context(const wk__frame *f, PyObject *o) {
  const wk__session *s = f->session;
  return PyObject_TypeCheck(o, *s->binding->function_type) && wk__reg_find(s->recording, o) < 0;
}

/* A class that C code made: it has a module of its own, or hands its constructor out as a C function. */
bool wk__is_class_of_c(PyTypeObject *t) {
  if (!(t->tp_flags & Py_TPFLAGS_HEAPTYPE)) return true;
  if (((PyHeapTypeObject *)t)->ht_module) return true;
  PyObject *maker = PyDict_GetItemString(wk__type_dict(t), "__new__");
  return maker && PyCFunction_Check(maker);
}

/* Its memory is a dictionary and slots, all of its bases were written in Python. */
bool wk__is_python_class(PyTypeObject *t) {
  for (; t && t->tp_flags & Py_TPFLAGS_HEAPTYPE; t = t->tp_base)
    if (wk__is_class_of_c(t)) return false;
  return t == &PyBaseObject_Type || t == (PyTypeObject *)PyExc_Exception || t == (PyTypeObject *)PyExc_BaseException ||
         t == &PyTuple_Type || t == &PyDict_Type || t == &PyList_Type || t == &PyType_Type || t == &PyLong_Type ||
         t == &PyUnicode_Type || t == &PyFloat_Type || t == &PySet_Type || t == &PyODict_Type;
}
bool wk__is_python_instance(PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  return t->tp_flags & Py_TPFLAGS_HEAPTYPE && wk__is_python_class(t);
}

bool wk__is_partial(PyTypeObject *t) { return strcmp(t->tp_name, "functools.partial") == 0; }

bool wk__is_itertool(PyTypeObject *t) { return wk__type_is_fixed(t) && strncmp(t->tp_name, "itertools.", 10) == 0; }

bool wk__is_default_dict(PyTypeObject *t) {
  return wk__type_is_fixed(t) && strcmp(t->tp_name, "collections.defaultdict") == 0;
}

/* types.MappingProxyType over a dictionary, made in the region; not the one that shows what a class holds. */
bool wk__is_own_proxy(const wk__recording *r, PyObject *o) {
  return Py_TYPE(o) == &PyDictProxy_Type && wk__reg_find(r, o) < 0 && wk__was_made(r, o);
}

/* A node of the tape that the region has written. */
bool wk__is_own_node(const wk__recording *r, PyObject *o) {
  const PyTypeObject *base = Py_TYPE(o)->tp_base;
  return base && strcmp(base->tp_name, "wick._C.Node") == 0 && wk__reg_find(r, o) < 0;
}

bool wk__is_own_object(const wk__recording *r, PyObject *o) {
  return wk__reg_find(r, o) < 0 && wk__known_class(Py_TYPE(o)) == WK__CLASS_OWN;
}

static bool holds_tensor(const wk__frame *f, PyObject *o, int depth) {
  enum { MAX_NESTING = 64 };
  if (wk__is_tensor_object(f, o) || depth > MAX_NESTING) return true;
  PyObject *key, *value;
  for (Py_ssize_t at = 0; PyDict_Check(o) && PyDict_Next(o, &at, &key, &value);)
    if (holds_tensor(f, value, depth + 1)) return true;
  bool sequence = PyList_Check(o) || PyTuple_Check(o);
  for (Py_ssize_t i = 0; sequence && i < PySequence_Fast_GET_SIZE(o); i++)
    if (holds_tensor(f, PySequence_Fast_GET_ITEM(o, i), depth + 1)) return true;
  return false;
}
bool wk__holds_tensor(const wk__frame *f, PyObject *o) { return holds_tensor(f, o, 0); }

static bool is_view_of_values(const PyTypeObject *t) {
  return t == &PyDictValues_Type || t == &PyDictItems_Type || t == &PyODictValues_Type || t == &PyODictItems_Type;
}
static bool is_view_of_dict(const PyTypeObject *t) {
  return is_view_of_values(t) || t == &PyDictKeys_Type || t == &PyODictKeys_Type;
}

static bool is_builtin_iterator(PyTypeObject *t) {
  return t == &PyListIter_Type || t == &PyTupleIter_Type || t == &PyRangeIter_Type || t == &PyEnum_Type ||
         t == &PyReversed_Type || t == &PyZip_Type || t == &PyMap_Type || t == &PyFilter_Type ||
         t == &PyUnicodeIter_Type || t == &PyListRevIter_Type || t == &PyDictIterKey_Type ||
         t == &PyDictIterValue_Type || t == &PyDictIterItem_Type || t == &PyDictRevIterKey_Type ||
         t == &PySetIter_Type || t == &PyGen_Type || t == &PyBytesIter_Type || t == &PyCallIter_Type ||
         t == &PyLongRangeIter_Type || t == &PySeqIter_Type || t == &PyODictIter_Type || wk__is_itertool(t) ||
         wk__is_ascii_iterator_type(t);
}

/* int | str, for isinstance(). */
static bool is_union(PyTypeObject *t) { return wk__type_is_fixed(t) && strcmp(t->tp_name, "types.UnionType") == 0; }

/* Nothing about it can change, and nothing is reached through it that would have to be known. */
static bool is_harmless(const wk__frame *f, PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  const wk__binding *b = f->session->binding;
  return t == &PyRange_Type || t == &PySlice_Type || t == &PyFrozenSet_Type || t == b->size_type || PyType_Check(o) ||
         PyFunction_Check(o) || PyCFunction_Check(o) || PyMethod_Check(o) || PyModule_Check(o) || PyCode_Check(o) ||
         PyCell_Check(o) || t == &PySuper_Type || t == &PyProperty_Type || t == &PyStaticMethod_Type ||
         t == &PyClassMethod_Type || t == b->operator_type || t == *b->overload_type || b->is_own_mode(t) ||
         t == &PyMethodDescr_Type || t == &PyWrapperDescr_Type || wk__is_partial(t) || PyExceptionInstance_Check(o) ||
         t == &PyTraceBack_Type || is_union(t) || is_view_of_dict(t) || t == &PyBaseObject_Type;
}

/* Objects that stand for others, which would have to be known. */
static bool is_view_of_others(PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  return is_view_of_dict(t) || t == &PySuper_Type || PyCell_Check(o) || PyExceptionInstance_Check(o);
}

static bool know_part(wk__frame *f, wk__recording *r, PyObject *o, const char *text) {
  PyObject *name = PyUnicode_InternFromString(text), *part = name ? PyObject_GetAttr(o, name) : NULL;
  int status = part ? wk__observe(r, f->session->binding, part, WK__READ_ATTRIBUTE, wk__reg_find(r, o), 0, name) : -1;
  Py_XDECREF(part);
  Py_XDECREF(name);
  if (status == 0) return true;
  return wk__refuse(f, "%s", r->failed), false;
}

bool wk__know_bound(wk__frame *f, wk__recording *r, PyObject *o) {
  wk__reg reg = wk__reg_find(r, o);
  if (reg < 0 || r->registers[reg].kind != WK__REG_READ) return true;
  if (PyMethod_Check(o)) return know_part(f, r, o, "__func__") && know_part(f, r, o, "__self__");
  if (wk__is_partial(Py_TYPE(o)))
    return know_part(f, r, o, "func") && know_part(f, r, o, "args") && know_part(f, r, o, "keywords");
  PyObject *self = PyCFunction_Check(o) ? PyCFunction_GET_SELF(o) : NULL;
  return !self || PyModule_Check(self) || know_part(f, r, o, "__self__");
}

static bool is_own_iterator(wk__frame *f, const wk__recording *r, PyObject *o) {
  if (wk__reg_find(r, o) < 0) return true;
  const char *where = wk__is_foreign(r, o) ? "was made outside of the region" : "others can see";
  wk__refuse_as(f, wk__is_foreign(r, o) ? WK__REFUSED_LEFT_OVER : WK__REFUSED_BREAK, "an iterator that %s (%s)", where,
                Py_TYPE(o)->tp_name);
  return false;
}

/* An immutable object from outside: what it is is known as long as it is the same one. */
static bool is_that_one(wk__recording *r, PyObject *o) {
  wk__reg reg = wk__is_foreign(r, o) ? wk__reg_find(r, o) : -1;
  if (reg >= 0 && !r->registers[reg].fixed) wk__check_once(r, WK__CHECK_IS, reg, 0, o);
  return true;
}

/* One question about an object and what can be reached from it. */
typedef struct inspection {
  wk__frame *f;
  bool looks; /* C code may look at numbers and compare what it finds; else it only hands references on */
  bool keys;  /* of numbers it asks nothing but whether they are equal */
  int depth;
} inspection;

static bool usable(inspection i, PyObject *o);

static bool items_usable(inspection i, PyObject *const *items, Py_ssize_t count) {
  i.depth++;
  for (Py_ssize_t k = 0; k < count; k++)
    if (items[k] && !usable(i, items[k])) return false;
  return true;
}

static bool values_usable(inspection i, PyObject *dict) {
  PyObject *key, *value;
  i.depth++;
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value);)
    if (!usable(i, value)) return false;
  return true;
}

static int visit(PyObject *o, void *context) {
  inspection i = *(inspection *)context;
  i.depth++;
  return !usable(i, o);
}

/* Iterators and views of dicts: what they hold says what they give. A generator's values are seen when it gives them.
 */
static bool held_usable(inspection i, PyObject *o) {
  bool opaque = !i.looks || PyGen_CheckExact(o) || !Py_TYPE(o)->tp_traverse;
  return opaque || Py_TYPE(o)->tp_traverse(o, visit, &i) == 0;
}

static bool container_usable(inspection i, PyObject *o) {
  wk__recording *r = i.f->session->recording;
  if (PyTuple_Check(o)) return items_usable(i, &PyTuple_GET_ITEM(o, 0), PyTuple_GET_SIZE(o));
  if (PyList_CheckExact(o)) return items_usable(i, ((PyListObject *)o)->ob_item, PyList_GET_SIZE(o));
  if (i.looks && PyDict_Check(o) && !values_usable(i, o)) return false;
  return wk__know_bound(i.f, r, o);
}

wk__refusal wk__refusal_of(const wk__frame *f, PyObject *o) {
  wk__class_kind kind = wk__known_class(Py_TYPE(o));
  if (kind == WK__CLASS_STATE) return WK__REFUSED_VALUE;
  bool left_over = wk__is_foreign(f->session->recording, o) && kind != WK__CLASS_UNKNOWN;
  return left_over ? WK__REFUSED_LEFT_OVER : WK__REFUSED_BREAK;
}

static bool is_builtin_id(PyObject *o) {
  return PyCFunction_Check(o) && PyCFunction_GET_SELF(o) && PyModule_Check(PyCFunction_GET_SELF(o)) &&
         strcmp(((PyCFunctionObject *)o)->m_ml->ml_name, "id") == 0;
}

static bool usable(inspection i, PyObject *o) {
  enum { MAX_NESTING = 8 };
  wk__frame *f = i.f;
  wk__recording *r = f->session->recording;
  PyTypeObject *t = Py_TYPE(o);
  const wk__binding *b = f->session->binding;
  if (i.looks && !i.keys && wk__is_identity(r, o)) return wk__refuse(f, "an id() of what the region has made"), false;
  if (i.looks && (PyFloat_CheckExact(o) || PyLong_CheckExact(o))) wk__specialize(r, o);
  if (wk__is_plain_value(b, o) || wk__is_tensor_object(f, o) || PyObject_TypeCheck(o, b->module_type)) return true;
  if (wk__is_own_context(f, o)) return true;
  if (wk__touch(r, b, o) < 0) return wk__refuse(f, "%s", r->failed), false;
  if (i.depth > MAX_NESTING) {
    if (i.looks) wk__settle_all(r);
    return true;
  }
  if (PyTuple_Check(o) || t == &PyList_Type || PyDict_Check(o) || PyAnySet_Check(o)) return container_usable(i, o);
  if (is_view_of_others(o) && wk__is_foreign(r, o))
    return wk__refuse_as(f, WK__REFUSED_LEFT_OVER, "a %s that was made outside of the region", t->tp_name), false;
  if (i.looks && PySlice_Check(o)) wk__settle(r, o);
  if (is_view_of_values(t)) return held_usable(i, o);
  if (i.looks && is_builtin_id(o)) return wk__refuse(f, "C code calls id()"), false;
  if (is_harmless(f, o)) return wk__know_bound(f, r, o);
  if (wk__known_class(t) == WK__CLASS_VALUE) return is_that_one(r, o);
  if (wk__is_own_object(r, o)) return held_usable(i, o);
  if (wk__is_own_node(r, o)) return true;
  if (wk__compiled_function(b, o)) return is_that_one(r, o);
  if (wk__is_own_proxy(r, o)) return held_usable(i, o);
  if (is_builtin_iterator(t)) return is_own_iterator(f, r, o) && held_usable(i, o);
  if (wk__is_python_instance(o)) return wk__depend_on_type(r, t) == 0;
  return wk__refuse_as(f, wk__refusal_of(f, o), "C code looks at a %s", t->tp_name), false;
}

bool wk__usable(wk__frame *f, PyObject *o) { return usable((inspection){.f = f, .looks = true}, o); }
bool wk__keys_usable(wk__frame *f, PyObject *o) { return usable((inspection){.f = f, .looks = true, .keys = true}, o); }
bool wk__passed_on(wk__frame *f, PyObject *o) { return usable((inspection){.f = f}, o); }

typedef struct handing {
  const wk__frame *f;
  int depth;
} handing;

static bool hands_on(handing h, PyObject *o);
static int visit_handing(PyObject *o, void *context) {
  handing h = *(handing *)context;
  h.depth++;
  for (Py_ssize_t i = 0; PyTuple_CheckExact(o) && i < PyTuple_GET_SIZE(o); i++)
    if (visit_handing(PyTuple_GET_ITEM(o, i), &h)) return 1;
  bool function = PyFunction_Check(PyMethod_Check(o) ? PyMethod_GET_FUNCTION(o) : o);
  return !function && !PyLong_CheckExact(o) && o != Py_None && !hands_on(h, o);
}

static bool hands_on(handing h, PyObject *o) {
  enum { DEEPEST = 8 };
  PyTypeObject *t = Py_TYPE(o);
  bool sequence = PyTuple_CheckExact(o) || PyList_CheckExact(o) || PyDict_CheckExact(o) || PyRange_Check(o);
  bool items = is_view_of_dict(t) || t == &PyListIter_Type || t == &PyTupleIter_Type || t == &PyRangeIter_Type ||
               t == &PyDictIterKey_Type || t == &PyDictIterValue_Type || t == &PyDictIterItem_Type ||
               t == &PyListRevIter_Type || t == &PyReversed_Type || t == &PySeqIter_Type ||
               t == h.f->session->binding->size_type;
  if (sequence || items || PyGen_CheckExact(o)) return true;
  bool combines = t == &PyMap_Type || t == &PyZip_Type || t == &PyEnum_Type;
  return combines && h.depth < DEEPEST && t->tp_traverse(o, visit_handing, &h) == 0;
}

bool wk__hands_on(const wk__frame *f, PyObject *o) { return hands_on((handing){.f = f}, o); }

static bool touched(wk__frame *f, PyObject *o) {
  wk__recording *r = f->session->recording;
  if (wk__touch(r, f->session->binding, o) == 0) return true;
  return wk__refuse(f, "%s", r->failed), false;
}

bool wk__operand_usable(wk__frame *f, PyObject *o) {
  if (PyLong_CheckExact(o) && !wk__is_identity(f->session->recording, o)) return true;
  if (!PyTuple_Check(o) && !PyList_CheckExact(o)) return wk__usable(f, o);
  if (!touched(f, o)) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++)
    if (!wk__operand_usable(f, PySequence_Fast_GET_ITEM(o, i))) return false;
  return true;
}

static bool index_part_usable(wk__frame *f, PyObject *key) {
  if (PyLong_CheckExact(key)) return true;
  if (!PySlice_Check(key)) return wk__usable(f, key);
  const PySliceObject *slice = (const PySliceObject *)key;
  if (wk__reg_find(f->session->recording, key) >= 0) return wk__usable(f, key);
  return wk__operand_usable(f, slice->start) && wk__operand_usable(f, slice->stop) && wk__usable(f, slice->step);
}

bool wk__index_usable(wk__frame *f, PyObject *key) {
  if (!PyTuple_CheckExact(key)) return index_part_usable(f, key);
  if (!touched(f, key)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++)
    if (!index_part_usable(f, PyTuple_GET_ITEM(key, i))) return false;
  return true;
}

int wk__note_identity(wk__frame *f, wk__recording *r, PyObject *a, PyObject *b) {
  (void)f;
  wk__reg x = wk__reg_find(r, a), y = wk__reg_find(r, b);
  if (x < 0 || y < 0 || x == y) return 0;
  const wk__register *gx = &r->registers[x], *gy = &r->registers[y];
  bool outside = wk__is_foreign(r, a) && wk__is_foreign(r, b);
  if ((gx->fixed && gy->fixed) || !outside) return 0;
  if (Py_TYPE(a) != Py_TYPE(b)) return 0; /* their types are checked */
  wk__check_once(r, WK__CHECK_DIFFERENT, x, y, NULL);
  return 0;
}

void wk__note_search(wk__frame *f, wk__recording *r, PyObject *container, PyObject *value) {
  wk__reg reg = wk__reg_find(r, value);
  if (reg < 0 || wk__is_plain_value(f->session->binding, value) || !wk__is_foreign(r, value)) return;
  if (PyDict_Check(container) || PyAnySet_Check(container)) {
    if (!r->registers[reg].fixed) wk__check_once(r, WK__CHECK_IS, reg, 0, value);
    return;
  }
  bool tuple = PyTuple_Check(container);
  for (Py_ssize_t i = 0; (tuple || PyList_Check(container)) && i < PySequence_Fast_GET_SIZE(container); i++)
    wk__note_identity(f, r, PySequence_Fast_GET_ITEM(container, i), value);
}

void wk__tried(wk__frame *f, wk__recording *r, int64_t step, bool worked, bool whole) {
  if (worked || wk__recording_of(f) != r) return;
  if (whole) {
    r->steps[step].undone = true;
    return;
  }
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  wk__session_give_up(f->session, "a call that changed something and raised");
  PyErr_Restore(type, value, traceback);
}

/* ================================================ attributes ===================================================== */

static PyObject *failed(wk__frame *f, wk__recording *r) { return wk__refuse(f, "%s", r->failed); }

/* Finding an attribute may have run Python code, which may have ended the recording. */
static bool was_given_up(const wk__frame *f, const wk__recording *r) {
  return f->session->mode != WK__MODE_CAPTURE || f->session->recording != r;
}

/* An object found in a class: the same as long as the class's version is. */
static PyObject *class_value(wk__frame *f, wk__recording *r, PyObject *found) {
  if (!wk__is_plain_value(f->session->binding, found) && !PyMethod_Check(found) && !PyCFunction_Check(found) &&
      Py_TYPE(found) != &PySuper_Type && Py_TYPE(found) != wk__method_wrapper_type())
    wk__reg_constant(r, found);
  return found;
}

/* Parts of our own package are loaded when they are first asked for, and stand in the module's dictionary afterwards:
 * loading is no part of the region. */
static void load_part(wk__frame *f, PyObject *module, PyObject *name) {
  wk__session *s = f->session;
  const char *package = PyModule_GetName(module);
  bool ours = package && (strncmp(package, "wick", 4) == 0 || strncmp(package, "torch", 5) == 0);
  PyErr_Clear();
  if (!ours) return;
  s->mode = WK__MODE_PLAIN;
  wk__tracer_pause(s->tracer);
  PyObject *loaded = PyObject_GetAttr(module, name);
  wk__tracer_resume(s->tracer);
  s->mode = WK__MODE_CAPTURE;
  if (!loaded) PyErr_Clear(); /* asked again by whoever needs the error */
  Py_XDECREF(loaded);
}

/* What a module's dictionary has not: its class or itself may have a __getattr__, which is evaluated. */
static PyObject *computed_by_module(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name, wk__reg dict_reg) {
  PyObject *hook = PyUnicode_InternFromString("__getattr__");
  PyObject *of_class = hook ? wk__type_attribute(Py_TYPE(owner), hook) : NULL;
  PyObject *of_module = hook ? PyDict_GetItemWithError(PyModule_GetDict(owner), hook) : NULL;
  bool known = of_class ? PyFunction_Check(of_class) && wk__depend_on_type(r, Py_TYPE(owner)) == 0 : !of_module;
  Py_XDECREF(hook);
  if (!known) return wk__refuse(f, "module attribute %s that is computed", TEXT(name));
  wk__check_once(r, WK__CHECK_ABSENT, dict_reg, 0, name);
  return PyObject_GetAttr(owner, name);
}

static PyObject *attribute_of_module(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name) {
  PyObject *dict = PyModule_GetDict(owner), *found = PyDict_GetItemWithError(dict, name);
  if (!found && !PyErr_Occurred()) {
    load_part(f, owner, name);
    found = PyDict_GetItemWithError(dict, name);
  }
  if (!found && PyErr_Occurred()) return NULL;
  wk__reg reg = wk__reg_constant(r, dict);
  if (reg < 0) return failed(f, r);
  r->registers[reg].is_globals = true;
  if (!found) return computed_by_module(f, r, owner, name, reg);
  if (!wk__was_written(r, reg, name) && wk__observe(r, f->session->binding, found, WK__READ_DICT, reg, -1, name) < 0)
    return failed(f, r);
  return wk__as_read(r, found);
}

static const char *const tensor_facts[] = {
    "dtype",     "device",       "ndim",   "itemsize",  "nbytes",        "layout",  "is_cpu", "is_meta", "is_cuda",
    "is_sparse", "is_quantized", "is_mps", "is_nested", "requires_grad", "shape",   "names",  "T",       "mT",
    "H",         "mH",           "real",   "is_xpu",    "__class__",     "__doc__", "data"};

static bool is_in(PyObject *name, const char *const *list, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (PyUnicode_CompareWithASCIIString(name, list[i]) == 0) return true;
  return false;
}

static bool is_shape(PyObject *name) { return PyUnicode_CompareWithASCIIString(name, "shape") == 0; }

static wk__reg dict_of_instance(wk__frame *f, wk__recording *r, wk__reg reg, PyObject *owner, PyObject **out_dict) {
  PyObject **place = wk__instance_dict_place(owner);
  *out_dict = place ? *place : NULL;
  if (!*out_dict) return -1;
  if (wk__observe(r, f->session->binding, *out_dict, WK__READ_INSTANCE, reg, 0, NULL) < 0) return -1;
  return wk__reg_find(r, *out_dict);
}

/* One that the program has given to a tensor, or has not. */
static PyObject *own_attribute(wk__frame *f, wk__recording *r, wk__reg reg, PyObject *owner, PyObject *name) {
  PyObject *dict = NULL;
  if (!wk__is_foreign(r, owner) || wk__was_written(r, reg, name)) return PyObject_GetAttr(owner, name);
  wk__reg dict_reg = dict_of_instance(f, r, reg, owner, &dict);
  if (dict && dict_reg < 0) return failed(f, r);
  PyObject *found = dict ? PyDict_GetItemWithError(dict, name) : NULL;
  if (!found && PyErr_Occurred()) return NULL;
  if (!found) wk__check_once(r, dict ? WK__CHECK_ABSENT : WK__CHECK_NO_DICT, dict ? dict_reg : reg, 0, name);
  if (!found) return PyObject_GetAttr(owner, name);
  if (wk__observe(r, f->session->binding, found, WK__READ_DICT, dict_reg, -1, name) < 0) return failed(f, r);
  return wk__as_read(r, found);
}

/* An attribute of the instance, which stands before what its class has of that name, but for data descriptors. */
static bool hides_class(PyObject *owner, PyObject *name, PyObject *in_class) {
  PyObject **dict = wk__instance_dict_place(owner);
  return !Py_TYPE(in_class)->tp_descr_set && dict && *dict && PyDict_Contains(*dict, name) == 1;
}

static bool is_of_tape(PyObject *name) {
  static const char *const names[] = {"is_leaf", "grad_fn", "output_nr"};
  return is_in(name, names, WK_COUNT(names));
}

/* is_leaf, grad_fn and output_nr: whether there is a history is guarded. Which one a tensor from outside has is not. */
static PyObject *attribute_of_tape(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name) {
  wk_tensor *t = f->session->binding->tensor_of(owner);
  bool leaf = wk_is_leaf(t), foreign = wk__is_foreign(r, owner);
  if (foreign && !leaf && PyUnicode_CompareWithASCIIString(name, "is_leaf") != 0)
    return wk__refuse(f, "attribute %s of a tensor", TEXT(name));
  if (foreign && t->keys & WK__KEY_AUTOGRAD && !wk__was_written(r, wk__reg_find(r, owner), name))
    wk__check_once(r, WK__CHECK_LEAF, wk__reg_find(r, owner), leaf, NULL);
  return PyObject_GetAttr(owner, name);
}

/* How often a tensor of the region's own has been written, and what it is a view of: the same in each call. */
static PyObject *history_of_made(wk__frame *f, const wk__recording *r, PyObject *owner, PyObject *name) {
  const wk__binding *b = f->session->binding;
  PyObject *found = PyObject_GetAttr(owner, name);
  bool known = found && (!wk__is_tensor_object(f, found) || wk__reg_find(r, found) >= 0 ||
                         wk__is_computed_here(b->tensor_of(found)));
  if (found && !known) Py_SETREF(found, wk__refuse(f, "attribute %s that is a tensor from outside", TEXT(name)));
  return found;
}

static PyObject *attribute_of_tensor(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name) {
  const wk__binding *b = f->session->binding;
  wk__reg reg = wk__reg_find(r, owner);
  if (name == b->grad_name) {
    PyObject *grad = b->grad_of(owner);
    if (!wk__is_foreign(r, owner) || wk__was_written(r, reg, name)) return grad ? grad : Py_NewRef(Py_None);
    if (!grad) wk__check_once(r, WK__CHECK_NO_GRAD, reg, 0, NULL);
    if (grad && wk__observe(r, b, grad, WK__READ_GRAD, reg, 0, NULL) < 0) {
      Py_DECREF(grad);
      return failed(f, r);
    }
    return grad ? grad : Py_NewRef(Py_None);
  }
  if (is_shape(name) && b->tensor_of(owner)->flags & WK__TENSOR_SYMBOLIC)
    return wk__sizes_object(r, b, b->tensor_of(owner));
  PyObject *in_class = wk__type_attribute(Py_TYPE(owner), name);
  if (in_class && hides_class(owner, name, in_class)) return own_attribute(f, r, reg, owner, name);
  if (in_class && is_of_tape(name)) return attribute_of_tape(f, r, owner, name);
  bool method = in_class && (PyFunction_Check(in_class) || Py_TYPE(in_class) == &PyMethodDescr_Type ||
                             Py_TYPE(in_class) == &PyWrapperDescr_Type || Py_TYPE(in_class) == b->operator_type);
  if (method || (in_class && is_in(name, tensor_facts, WK_COUNT(tensor_facts)))) {
    if (method && PyFunction_Check(in_class)) wk__reg_constant(r, in_class);
    return PyObject_GetAttr(owner, name);
  }
  static const char *const histories[] = {"_version", "_base"};
  if (in_class && wk__is_computed_here(b->tensor_of(owner)) && !wk__is_foreign(r, owner) &&
      is_in(name, histories, WK_COUNT(histories)))
    return history_of_made(f, r, owner, name);
  return in_class ? wk__refuse(f, "attribute %s of a tensor", TEXT(name)) : own_attribute(f, r, reg, owner, name);
}

/* In a type, or through super(): found in classes alone. */
static PyObject *attribute_of_class(wk__frame *f, wk__recording *r, PyTypeObject *type, PyObject *owner,
                                    PyObject *name) {
  if (wk__depend_on_type(r, type) < 0) return failed(f, r);
  PyObject *found = PyObject_GetAttr(owner, name);
  if (!found || was_given_up(f, r)) return found;
  PyObject *of_metaclass = PyType_Check(owner) ? wk__type_attribute(Py_TYPE(owner), name) : NULL;
  if (of_metaclass && Py_TYPE(of_metaclass) == &PyProperty_Type) return found; /* its getter has been evaluated */
  PyObject *behind = Py_TYPE(owner) == &PySuper_Type ? PyObject_GetAttrString(owner, "__thisclass__") : NULL;
  bool own = wk__is_found_in_made_class(r, type, behind, name);
  Py_XDECREF(behind);
  if (own) return found;
  if (PyMethod_Check(found)) wk__reg_constant(r, PyMethod_GET_FUNCTION(found));
  return class_value(f, r, found);
}

wk__reg wk__instance_dict(wk__frame *f, wk__recording *r, wk__reg reg, PyObject *owner) {
  PyObject *dict;
  return dict_of_instance(f, r, reg, owner, &dict);
}

/* A value that may or may not stand in a dictionary from outside. */
static int note_key(wk__frame *f, wk__recording *r, wk__reg reg, PyObject *dict, PyObject *key) {
  if (wk__was_written(r, reg, key)) return 0;
  PyObject *found = PyDict_GetItemWithError(dict, key);
  if (found) return wk__observe(r, f->session->binding, found, WK__READ_DICT, reg, -1, key);
  if (PyErr_Occurred()) return -1;
  wk__check_once(r, WK__CHECK_ABSENT, reg, 0, key);
  return 0;
}

int wk__note_presence(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name) {
  wk__reg reg = wk__is_foreign(r, owner) ? wk__reg_find(r, owner) : -1;
  PyObject *dict = NULL, *in_class = wk__type_attribute(Py_TYPE(owner), name);
  if (reg < 0) return 0;
  if (PyDict_Check(owner)) return note_key(f, r, reg, owner, name);
  bool slot = in_class && Py_TYPE(in_class) == &PyMemberDescr_Type;
  if (slot || PyObject_TypeCheck(owner, f->session->binding->module_type))
    return wk__refuse(f, "attribute %s of a %s is deleted", TEXT(name), Py_TYPE(owner)->tp_name), -1;
  if (wk__was_written(r, reg, name)) return 0;
  wk__reg dict_reg = dict_of_instance(f, r, reg, owner, &dict);
  if (dict) return dict_reg < 0 ? -1 : note_key(f, r, dict_reg, dict, name);
  wk__check_once(r, WK__CHECK_NO_DICT, reg, 0, name);
  return 0;
}

/* An nn.Module's parameters, buffers and submodules stand in dictionaries of their own. NULL: there is none. */
static PyObject *part_of(wk__frame *f, wk__recording *r, PyObject *dict, wk__reg dict_reg, int which, wk__reg *out) {
  static const char *const parts[] = {"_parameters", "_buffers", "_modules"};
  PyObject *key = PyUnicode_InternFromString(parts[which]), *part = key ? PyDict_GetItemWithError(dict, key) : NULL;
  bool there = part && PyDict_Check(part);
  int seen = there ? wk__observe(r, f->session->binding, part, WK__READ_DICT, dict_reg, -1, key) : 0;
  Py_XDECREF(key);
  *out = there && seen == 0 ? wk__reg_find(r, part) : -1;
  if (there && *out < 0) wk__record_failed(r, "the parts of a module");
  return there ? part : NULL;
}

static PyObject *attribute_of_parts(wk__frame *f, wk__recording *r, PyObject *dict, wk__reg dict_reg, PyObject *name) {
  for (int which = 0; which < WK__MODULE_PARTS; which++) {
    wk__reg reg;
    PyObject *part = part_of(f, r, dict, dict_reg, which, &reg);
    if (part && reg < 0) return failed(f, r);
    PyObject *found = part ? PyDict_GetItemWithError(part, name) : NULL;
    if (!found) {
      if (part && !wk__was_written(r, reg, name)) wk__check_once(r, WK__CHECK_ABSENT, reg, 0, name);
      continue;
    }
    if (!wk__was_written(r, reg, name) && wk__observe(r, f->session->binding, found, WK__READ_DICT, reg, -1, name) < 0)
      return failed(f, r);
    return wk__as_read(r, found);
  }
  return NULL;
}

int wk__module_parts(wk__frame *f, wk__recording *r, PyObject *module, PyObject *name, wk__reg *out_parts,
                     int *out_found) {
  PyObject *dict;
  wk__reg reg = wk__is_foreign(r, module) ? wk__reg_find(r, module) : -1;
  wk__reg dict_reg = reg >= 0 ? dict_of_instance(f, r, reg, module, &dict) : -1;
  *out_found = -1;
  if (dict_reg < 0) wk__record_failed(r, "a module without a dictionary");
  if (dict_reg < 0) return -1;
  for (int which = 0; which < WK__MODULE_PARTS; which++) {
    PyObject *part = part_of(f, r, dict, dict_reg, which, &out_parts[which]);
    if (part && out_parts[which] < 0) return -1;
    PyObject *found = part ? PyDict_GetItemWithError(part, name) : NULL;
    if (found && *out_found < 0) *out_found = which;
    if (!part || wk__was_written(r, out_parts[which], name)) continue;
    wk__check_once(r, found ? WK__CHECK_PRESENT : WK__CHECK_ABSENT, out_parts[which], 0, name);
  }
  return 0;
}

static bool is_data_descriptor(PyObject *d) { return d && Py_TYPE(d)->tp_descr_set; }

/* A descriptor that stands before the instance's dictionary. `get`: object.__getattribute__, or what the class has in
 * its place. */
static PyObject *through_descriptor(wk__frame *f, wk__recording *r, wk__reg reg, PyObject *owner, PyObject *name,
                                    PyObject *descriptor, getattrofunc get) {
  PyTypeObject *t = Py_TYPE(descriptor);
  if (t == &PyProperty_Type || !wk__type_is_fixed(t)) {
    f->session->entering = t == &PyProperty_Type && get == PyObject_GetAttr;
    PyObject *found = get(owner, name);
    f->session->entering = false;
    return found;
  }
  bool field = strcmp(wk__type_name(t), "_tuplegetter") == 0; /* its module differs by version */
  if (field) return wk__usable(f, owner) ? get(owner, name) : NULL;
  if (t == &PyMemberDescr_Type) {
    PyObject *found = get(owner, name);
    if (found && reg >= 0 && !wk__was_written(r, reg, name) &&
        wk__observe(r, f->session->binding, found, WK__READ_ATTRIBUTE, reg, 0, name) < 0) {
      Py_DECREF(found);
      return failed(f, r);
    }
    return found;
  }
  if (PyUnicode_CompareWithASCIIString(name, "__dict__") == 0) {
    PyObject *dict;
    if (reg >= 0 && dict_of_instance(f, r, reg, owner, &dict) < 0 && dict) return failed(f, r);
    return get(owner, name);
  }
  if (PyUnicode_CompareWithASCIIString(name, "__class__") == 0) return Py_NewRef((PyObject *)Py_TYPE(owner));
  return wk__refuse(f, "attribute %s, computed by C code", TEXT(name));
}

/* In the class and the instance's dictionary; what is in neither a class's own __getattr__ may know, which is
 * evaluated.
 */
static PyObject *found_in_class(PyTypeObject *type, const char *text) {  // -> borrowed
  PyObject *name = PyUnicode_InternFromString(text), *found = name ? wk__type_attribute(type, name) : NULL;
  Py_XDECREF(name);
  return found;
}

/* By object's own __getattribute__, or by that of a class of C which is the same function. */
static bool finds_attributes_as_usual(PyTypeObject *type) {
  if (type->tp_getattro == PyObject_GenericGetAttr) return true;
  PyObject *found = found_in_class(type, "__getattribute__");
  return found && Py_TYPE(found) == &PyWrapperDescr_Type &&
         ((PyWrapperDescrObject *)found)->d_wrapped == (void *)PyObject_GenericGetAttr;
}

/* An attribute that is not there, of a class whose __getattr__ is C code: a dictionary's own __getitem__ or get, which
 * gives its items another way to be named. False: there is no such __getattr__. */
static bool attribute_by_c_code(wk__frame *f, PyObject *owner, PyObject *name, PyObject **out) {
  PyObject *how = found_in_class(Py_TYPE(owner), "__getattr__");
  if (!how || PyFunction_Check(how)) return false;
  if (how == found_in_class(&PyDict_Type, "__getitem__")) {
    *out = wk__op_item(f, owner, name);
  } else if (how == found_in_class(&PyDict_Type, "get")) {
    *out = wk__op_call(f, how, (PyObject *[]){owner, name}, 2, NULL);
  } else {
    *out = wk__refuse(f, "attribute %s of a %s, whose __getattr__ is C code", TEXT(name), Py_TYPE(owner)->tp_name);
  }
  return true;
}

/* Also for objects of the region's own (reg < 0), where only the class has to stay the same. */
static PyObject *attribute_as_usual(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name, getattrofunc get) {
  const wk__binding *b = f->session->binding;
  PyTypeObject *type = Py_TYPE(owner);
  wk__reg reg = wk__is_foreign(r, owner) ? wk__reg_find(r, owner) : -1;
  PyObject *in_class = wk__type_attribute(type, name);
  bool in_own = in_class && wk__is_found_in_made_class(r, type, NULL, name);
  if (in_class && !in_own && wk__is_python_instance(in_class))
    wk__reg_constant(r, in_class); /* its __get__ may read of it */
  if (is_data_descriptor(in_class)) return through_descriptor(f, r, reg, owner, name, in_class, get);
  bool module = PyObject_TypeCheck(owner, b->module_type);
  PyObject *dict = NULL;
  wk__reg dict_reg = reg >= 0 ? dict_of_instance(f, r, reg, owner, &dict) : -1;
  if (r->failed[0]) return failed(f, r);
  PyObject *found = dict ? PyDict_GetItemWithError(dict, name) : NULL;
  bool written = reg >= 0 && wk__was_written(r, reg, name);
  r->last_fresh = NULL;
  if (found) {
    if (!written && !wk__was_written(r, dict_reg, name) &&
        wk__observe(r, b, found, WK__READ_DICT, dict_reg, -1, name) < 0)
      return failed(f, r);
    return wk__as_read(r, found);
  }
  if (reg >= 0 && !written)
    wk__check_once(r, dict ? WK__CHECK_ABSENT : WK__CHECK_NO_DICT, dict ? dict_reg : reg, 0, name);
  if (module && !in_class && dict && reg >= 0) {
    found = attribute_of_parts(f, r, dict, dict_reg, name);
    if (found || f->session->reason[0] || r->failed[0]) return found;
  }
  if (!in_class && reg >= 0 && !module && get == PyObject_GetAttr && attribute_by_c_code(f, owner, name, &found))
    return found;
  found = get(owner, name);
  if (!found || was_given_up(f, r) || in_own) return found;
  if (PyMethod_Check(found)) {
    wk__reg_constant(r, PyMethod_GET_FUNCTION(found));
    return found;
  }
  bool own = !in_class || hides_class(owner, name, in_class); /* of an object of the region's own */
  return own ? found : class_value(f, r, found);
}

/* A __getattribute__ that is written in Python is evaluated. */
static PyObject *attribute_in_its_own_way(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name) {
  PyTypeObject *type = Py_TYPE(owner);
  PyObject *method = PyUnicode_InternFromString("__getattribute__");
  PyObject *found = method ? wk__type_attribute(type, method) : NULL;
  Py_XDECREF(method);
  bool evaluated = found && PyFunction_Check(found);
  if (!evaluated && !wk__is_foreign(r, owner)) return attribute_as_usual(f, r, owner, name, PyObject_GetAttr);
  if (!evaluated)
    return wk__refuse(f, "attribute %s of a %s, which finds attributes its own way", TEXT(name), type->tp_name);
  wk__reg_constant(r, found);
  return PyObject_GetAttr(owner, name);
}

static PyObject *attribute_of_instance(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name) {
  if (wk__depend_on_type(r, Py_TYPE(owner)) < 0) return failed(f, r);
  bool module = PyObject_TypeCheck(owner, f->session->binding->module_type);
  if (!module && !finds_attributes_as_usual(Py_TYPE(owner))) return attribute_in_its_own_way(f, r, owner, name);
  return attribute_as_usual(f, r, owner, name, PyObject_GetAttr);
}

PyObject *wk__get_usual_attribute(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name) {
  if (wk__depend_on_type(r, Py_TYPE(owner)) < 0) return failed(f, r);
  return attribute_as_usual(f, r, owner, name, PyObject_GenericGetAttr);
}

/* Of a function from outside: its own attributes stand in a dictionary, the others change with what it consists of. */
static PyObject *attribute_of_function(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name) {
  const wk__binding *b = f->session->binding;
  wk__reg reg = wk__reg_find(r, owner);
  PyObject *dict = NULL;
  if (wk__type_attribute(Py_TYPE(owner), name)) {
    bool all = PyUnicode_CompareWithASCIIString(name, "__dict__") == 0;
    if (all ? dict_of_instance(f, r, reg, owner, &dict) < 0 : wk__depend_on_function(r, b, owner) < 0)
      return wk__refuse(f, "attribute %s of a function", TEXT(name));
    return PyObject_GetAttr(owner, name);
  }
  wk__reg dict_reg = dict_of_instance(f, r, reg, owner, &dict);
  if (dict && dict_reg < 0) return failed(f, r);
  PyObject *found = dict ? PyDict_GetItemWithError(dict, name) : NULL;
  bool written = wk__was_written(r, reg, name) || (dict && wk__was_written(r, dict_reg, name));
  if (!found && !written)
    wk__check_once(r, dict ? WK__CHECK_ABSENT : WK__CHECK_NO_DICT, dict ? dict_reg : reg, 0, name);
  if (found && !written && wk__observe(r, b, found, WK__READ_DICT, dict_reg, -1, name) < 0) return failed(f, r);
  return found ? wk__as_read(r, found) : PyObject_GetAttr(owner, name);
}

static bool is_namespace_of_values(PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  return t == &PyList_Type || t == &PyDict_Type || t == &PySet_Type || t == &PyTuple_Type || t == &PyRange_Type ||
         t == &PySlice_Type || t == &PyFrozenSet_Type || t == &PyGen_Type || PyExceptionInstance_Check(o) ||
         is_view_of_dict(t);
}

/* Instances of these dictionaries can have attributes; their methods are C code's. */
static bool is_known_of_dict(const wk__recording *r, PyObject *o, PyObject *name) {
  PyTypeObject *t = Py_TYPE(o);
  if (t != &PyODict_Type && !wk__is_default_dict(t)) return false;
  PyObject *in_class = wk__type_attribute(t, name);
  return !wk__is_foreign(r, o) || (in_class && Py_TYPE(in_class) == &PyMethodDescr_Type);
}

/* A tuple with named fields that C code made, as x.max(dim) gives. */
static bool is_named_tuple_of_c(PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  return PyTuple_Check(o) && t->tp_base == &PyTuple_Type && PyDict_GetItemString(wk__type_dict(t), "n_sequence_fields");
}

/* Of threading.local() itself: what this thread has there. */
static PyObject *attribute_of_thread(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name) {
  PyObject *found = PyObject_GetAttr(owner, name);
  wk__reg reg = wk__reg_find(r, owner);
  if (!found) {
    PyErr_Clear();
    return wk__refuse(f, "an attribute that this thread has not");
  }
  r->last_fresh = NULL;
  bool known = wk__was_written(r, reg, name) ||
               wk__observe(r, f->session->binding, found, WK__READ_ATTRIBUTE, reg, 0, name) == 0;
  PyObject *object = known ? wk__as_read(r, found) : failed(f, r);
  Py_DECREF(found);
  return object;
}

bool wk__is_thread_local(const wk__recording *r, PyObject *o) {
  return wk__is_foreign(r, o) && strcmp(Py_TYPE(o)->tp_name, "_thread._local") == 0;
}

PyObject *wk__get_attribute(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name) {
  const wk__binding *b = f->session->binding;
  f->session->reason[0] = 0;
  if (wk__is_tensor_object(f, owner)) return attribute_of_tensor(f, r, owner, name);
  if (PyModule_Check(owner)) return attribute_of_module(f, r, owner, name);
  if (PyType_Check(owner)) return attribute_of_class(f, r, (PyTypeObject *)owner, owner, name);
  if (Py_TYPE(owner) == &PySuper_Type) {
    PyObject *self = PyObject_GetAttrString(owner, "__self__");
    PyObject *found = self ? attribute_of_class(f, r, Py_TYPE(self), owner, name) : NULL;
    Py_XDECREF(self);
    return found;
  }
  if (PyFunction_Check(owner) && wk__is_foreign(r, owner)) return attribute_of_function(f, r, owner, name);
  bool exception = PyExceptionInstance_Check(owner) && wk__is_python_instance(owner);
  if (exception && wk__is_foreign(r, owner)) return attribute_of_instance(f, r, owner, name);
  if (is_view_of_others(owner) && wk__is_foreign(r, owner))
    return wk__refuse_as(f, WK__REFUSED_LEFT_OVER, "attribute %s of a %s from outside", TEXT(name),
                         Py_TYPE(owner)->tp_name);
  if (!wk__know_bound(f, r, owner)) return NULL;
  if (wk__is_plain_value(b, owner) || PyFunction_Check(owner) || wk__is_partial(Py_TYPE(owner)) ||
      PyCFunction_Check(owner) || PyMethod_Check(owner) || is_namespace_of_values(owner) ||
      is_known_of_dict(r, owner, name) || Py_TYPE(owner) == b->size_type || b->is_own_mode(Py_TYPE(owner)) ||
      Py_TYPE(owner) == b->operator_type || Py_TYPE(owner) == *b->overload_type || PyCode_Check(owner) ||
      wk__is_own_proxy(r, owner) || wk__is_own_node(r, owner) ||
      (wk__compiled_function(b, owner) && is_that_one(r, owner)))
    return PyObject_GetAttr(owner, name);
  bool dict = Py_TYPE(owner) == &PyODict_Type || wk__is_default_dict(Py_TYPE(owner));
  if (dict && wk__is_foreign(r, owner)) return attribute_as_usual(f, r, owner, name, PyObject_GetAttr);
  if (wk__is_own_object(r, owner) || wk__is_lock(r, owner)) return PyObject_GetAttr(owner, name);
  bool value = is_named_tuple_of_c(owner) || wk__known_class(Py_TYPE(owner)) == WK__CLASS_VALUE;
  if (value) return wk__usable(f, owner) ? PyObject_GetAttr(owner, name) : NULL;
  if (wk__is_own_context(f, owner)) return PyObject_GetAttr(owner, name);
  if (wk__is_thread_local(r, owner)) return attribute_of_thread(f, r, owner, name);
  if (PyObject_TypeCheck(owner, b->module_type) || wk__is_python_instance(owner) || wk__is_random(owner))
    return attribute_of_instance(f, r, owner, name);
  return wk__refuse_as(f, wk__refusal_of(f, owner), "attribute %s of a %s", TEXT(name), Py_TYPE(owner)->tp_name);
}

/* ==================================================== modules ==================================================== */

/* Whether an attribute is there, and holds something: guarded. 0, 1: a dictionary of as many things as now; -1: it is
 * something else. */
static int none_or_empty(wk__frame *f, wk__recording *r, PyObject *dict, wk__reg dict_reg, const char *text) {
  PyObject *name = PyUnicode_InternFromString(text), *found = name ? PyDict_GetItemWithError(dict, name) : NULL;
  if (!name) return -1;
  int status = 0;
  if (!found)
    wk__check_once(r, WK__CHECK_ABSENT, dict_reg, 0, name);
  else if (wk__observe(r, f->session->binding, found, WK__READ_DICT, dict_reg, -1, name) < 0)
    status = -1;
  else if (PyDict_Check(found)) {
    Py_ssize_t size = PyDict_GET_SIZE(found);
    wk__check_once(r, WK__CHECK_LENGTH, wk__reg_find(r, found), size, NULL);
    status = size > 0;
  } else if (found != Py_None)
    status = -1;
  Py_DECREF(name);
  return status;
}

/* Hooks of all modules: guarded to be none. */
static bool no_hooks_of_all(wk__frame *f, wk__recording *r) {
  const wk__binding *b = f->session->binding;
  PyObject *hooks;
  for (int k = 0; (hooks = b->module_hooks(b->state, k)); k++) {
    wk__reg reg = wk__reg_constant(r, hooks);
    if (reg < 0 || PyDict_GET_SIZE(hooks)) return false;
    wk__check_once(r, WK__CHECK_LENGTH, reg, 0, NULL);
  }
  return true;
}

/* What may stand in a module's dictionary and change what its call does; Python code runs the first of these. */
enum { HOOKS = 4 };
static const char *const around[] = {
    "_forward_hooks",      "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks",
    "_compiled_call_impl", "_call_impl",         "forward"};

/* Of a module that the region has made: nothing is to be guarded but its class. */
static PyObject *forward_of_made(wk__frame *f, wk__recording *r, PyObject *module) {
  PyObject **place = wk__instance_dict_place(module), *dict = place ? *place : NULL;
  for (size_t i = 0; dict && i < WK_COUNT(around); i++) {
    PyObject *found = PyDict_GetItemString(dict, around[i]);
    bool nothing = !found || found == Py_None || (PyDict_Check(found) && !PyDict_GET_SIZE(found));
    if (!nothing) return wk__refuse(f, "a module made in the region, with %s", around[i]);
  }
  PyObject *name = PyUnicode_InternFromString("forward");
  PyObject *forward = name ? wk__type_attribute(Py_TYPE(module), name) : NULL;
  Py_XDECREF(name);
  if (!dict || !forward || !PyFunction_Check(forward) || !no_hooks_of_all(f, r))
    return wk__refuse(f, "a module made in the region whose call does more than its forward");
  bool known = wk__is_made_class(r, (PyObject *)Py_TYPE(module)) && wk__was_made(r, forward);
  if (!known && (wk__depend_on_type(r, Py_TYPE(module)) < 0 || wk__reg_constant(r, forward) < 0))
    return wk__refuse(f, "%s", r->failed);
  return forward;
}

PyObject *wk__module_forward(wk__frame *f, wk__recording *r, PyObject *module) {
  bool hooked = false;
  wk__reg reg = wk__reg_find(r, module);
  if (!wk__is_foreign(r, module)) return forward_of_made(f, r, module);
  PyObject *dict = NULL, *name = PyUnicode_InternFromString("forward");
  wk__reg dict_reg = reg >= 0 ? dict_of_instance(f, r, reg, module, &dict) : -1;
  if (dict_reg < 0 || !name) {
    Py_XDECREF(name);
    return wk__refuse(f, "a call of a module without a dictionary");
  }
  for (size_t i = 0; i < WK_COUNT(around); i++) {
    int status = none_or_empty(f, r, dict, dict_reg, around[i]);
    hooked |= status == 1;
    if (status == 0 || (status == 1 && i < HOOKS)) continue;
    Py_DECREF(name);
    return wk__refuse(f, r->failed[0] ? "a module with %s: %s" : "a module with %s", around[i], r->failed);
  }
  if (!no_hooks_of_all(f, r)) {
    Py_DECREF(name);
    return wk__refuse(f, "a module call with hooks of all modules");
  }
  if (hooked) Py_SETREF(name, PyUnicode_InternFromString("_call_with_hooks"));
  PyObject *forward = name ? wk__type_attribute(Py_TYPE(module), name) : NULL;
  Py_XDECREF(name);
  if (!forward || !PyFunction_Check(forward)) return wk__refuse(f, "a module whose forward is no Python function");
  if (wk__depend_on_type(r, Py_TYPE(module)) < 0 || wk__reg_constant(r, forward) < 0)
    return wk__refuse(f, "%s", r->failed);
  return forward;
}
