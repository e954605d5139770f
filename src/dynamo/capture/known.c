/* What kind of object one is, and whether C code may look at it. In: an object. Out: yes, with what was looked at
 * known; or no, with the reason. Tests: tests/python/capture/test_guards.py. */
#include "dynamo/capture/known.h"
#include "autograd/autograd.h"
#include "dynamo/capture/classes.h"
#include "dynamo/capture/ends.h"
#include "dynamo/capture/known_calls.h"
#include "dynamo/capture/record_parts.h"
#include "dynamo/cpython/objects.h"

#define TEXT(name) PyUnicode_AsUTF8(name)

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
bool wk__is_view_of_dict(const PyTypeObject *t) {
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
         t == &PyMethodDescr_Type || t == &PyWrapperDescr_Type || t == &PyClassMethodDescr_Type ||
         t == &PyGetSetDescr_Type || t == &PyMemberDescr_Type || wk__is_partial(t) || PyExceptionInstance_Check(o) ||
         t == &PyTraceBack_Type || is_union(t) || wk__is_view_of_dict(t) || t == &PyBaseObject_Type;
}

/* Objects that stand for others, which would have to be known. */
bool wk__is_view_of_others(PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  return wk__is_view_of_dict(t) || t == &PySuper_Type || PyCell_Check(o) || PyExceptionInstance_Check(o);
}

bool wk__know_part(wk__frame *f, wk__recording *r, PyObject *o, const char *text) {
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
  if (PyMethod_Check(o)) return wk__know_part(f, r, o, "__func__") && wk__know_part(f, r, o, "__self__");
  if (wk__is_partial(Py_TYPE(o)))
    return wk__know_part(f, r, o, "func") && wk__know_part(f, r, o, "args") && wk__know_part(f, r, o, "keywords");
  PyObject *self = PyCFunction_Check(o) ? PyCFunction_GET_SELF(o) : NULL;
  return !self || PyModule_Check(self) || wk__know_part(f, r, o, "__self__");
}

static bool is_own_iterator(wk__frame *f, const wk__recording *r, PyObject *o) {
  if (wk__reg_find(r, o) < 0) return true;
  const char *where = wk__is_foreign(r, o) ? "was made outside of the region" : "others can see";
  wk__refuse_as(f, wk__is_foreign(r, o) ? WK__REFUSED_LEFT_OVER : WK__REFUSED_BREAK, "an iterator that %s (%s)", where,
                Py_TYPE(o)->tp_name);
  return false;
}

/* An immutable object from outside: what it is is known as long as it is the same one. */
bool wk__is_that_one(wk__recording *r, PyObject *o) {
  wk__reg reg = wk__is_foreign(r, o) ? wk__reg_find(r, o) : -1;
  if (reg >= 0 && !r->registers[reg].fixed) wk__check_once(r, WK__CHECK_IS, reg, 0, o);
  return true;
}

static void shows(wk__recording *r, PyObject *o, int depth);
static void show_items(wk__recording *r, PyObject *const *items, Py_ssize_t count, int depth) {
  for (Py_ssize_t i = 0; i < count; i++) shows(r, items[i], depth);
}

/* The text of a function, and of an object whose class does not say it, tells the address. */
static void shows(wk__recording *r, PyObject *o, int depth) {
  enum { DEEPEST = 8 };
  wk__reg reg = wk__is_foreign(r, o) ? wk__reg_find(r, o) : -1;
  if (depth > DEEPEST) return;
  if (PyFunction_Check(o)) (void)wk__is_that_one(r, o);
  if (PyMethod_Check(o)) shows(r, PyMethod_GET_SELF(o), depth + 1);
  if (PyTuple_Check(o)) show_items(r, &PyTuple_GET_ITEM(o, 0), PyTuple_GET_SIZE(o), depth + 1);
  if (PyList_Check(o)) show_items(r, ((PyListObject *)o)->ob_item, PyList_GET_SIZE(o), depth + 1);
  PyObject *function = wk__is_partial(Py_TYPE(o)) ? PyObject_GetAttrString(o, "func") : NULL;
  if (function) shows(r, function, depth + 1);
  Py_XDECREF(function);
  bool of_address = Py_TYPE(o)->tp_repr == PyBaseObject_Type.tp_repr && wk__is_python_instance(o);
  if (of_address && reg >= 0 && !r->registers[reg].fixed)
    wk__check_once(r, WK__CHECK_ADDRESS, reg, (int64_t)(intptr_t)o, NULL);
  PyObject *key, *value;
  for (Py_ssize_t at = 0; PyDict_Check(o) && PyDict_Next(o, &at, &key, &value);) {
    shows(r, key, depth + 1);
    shows(r, value, depth + 1);
  }
}
void wk__text_shows(wk__recording *r, PyObject *o) { shows(r, o, 0); }

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

/* A weak reference is compared by what it points at. Its address is guarded, and not the object
 * itself, which a segment would keep alive; one that is in a container of such references dies out of that. */
static bool know_referent(wk__frame *f, wk__recording *r, PyObject *reference) {
  PyObject *referent = wk__is_foreign(r, reference) ? wk__referent_of(f, r, reference) : wk__weak_referent(reference);
  if (!referent) return false;
  wk__reg reg = wk__is_foreign(r, referent) ? wk__reg_find(r, referent) : -1;
  if (reg >= 0 && !r->registers[reg].fixed)
    wk__check_once(r, WK__CHECK_ADDRESS, reg, (int64_t)(intptr_t)referent, NULL);
  Py_DECREF(referent);
  return true;
}

/* map(len, lists): whatever takes from it, C code looks at what the function is given. */
static int calls_c_code(PyObject *o, void *unused) {
  (void)unused;
  PyTypeObject *t = Py_TYPE(o);
  bool combines = is_builtin_iterator(t) && t != &PyGen_Type;
  return wk__is_c_callback(o) || (combines && t->tp_traverse && t->tp_traverse(o, calls_c_code, NULL));
}

static bool points_at_nothing(PyObject *reference) {
  PyObject *referent = wk__weak_referent(reference);
  Py_DECREF(referent);
  return referent == Py_None;
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
  if (wk__is_foreign(r, o) && wk__keys_end_aloud(f, r, o))
    return wk__refuse(f, "keys of a %s whose end runs code", t->tp_name), false;
  if (!wk__operators_are_noted(r, o))
    return wk__refuse(f, "a %s, which has a special method of C code", t->tp_name), false;
  if (wk__touch(r, b, o) < 0) return wk__refuse(f, "%s", r->failed), false;
  if (i.depth > MAX_NESTING) {
    if (i.looks) wk__settle_all(r);
    return true;
  }
  if (PyTuple_Check(o) || t == &PyList_Type || PyDict_Check(o) || PyAnySet_Check(o)) return container_usable(i, o);
  PyObject *shown = wk__behind_proxy(f, r, o);
  if (shown != o) return usable(i, shown);
  if (wk__is_view_of_others(o) && wk__is_foreign(r, o))
    return wk__refuse_as(f, WK__REFUSED_LEFT_OVER, "a %s that was made outside of the region", t->tp_name), false;
  if (i.looks && PySlice_Check(o)) wk__settle(r, o);
  if (is_view_of_values(t)) return held_usable(i, o);
  if (i.looks && is_builtin_id(o)) return wk__refuse(f, "C code calls id()"), false;
  if (i.looks && wk__is_c_callback(o) && !wk__callback_looks(f, o)) return false;
  if (is_harmless(f, o)) return wk__know_bound(f, r, o);
  if (wk__known_class(t) == WK__CLASS_VALUE) return wk__is_that_one(r, o);
  bool weak = t == wk__weak_reference_type();
  if (weak && i.looks && !points_at_nothing(o)) return know_referent(f, r, o);
  if (weak && !i.looks) return true;
  if (wk__is_deque(o)) return t->tp_traverse(o, visit, &i) == 0;
  if (wk__is_own_object(r, o)) return held_usable(i, o);
  if (wk__is_own_node(r, o)) return true;
  if (wk__compiled_function(b, o)) return wk__is_that_one(r, o);
  if (wk__is_own_proxy(r, o)) return held_usable(i, o);
  if (WK_UNLIKELY(wk__goes_over_changing(r, o))) return t->tp_traverse(o, visit, &i) == 0; /* nothing knows that yet */
  if (is_builtin_iterator(t)) {
    i.looks |= calls_c_code(o, NULL);
    return is_own_iterator(f, r, o) && held_usable(i, o);
  }
  if (wk__is_python_instance(o)) return wk__depend_on_type(r, t) == 0;
  if (t == wk__method_wrapper_type() && !wk__is_foreign(r, o)) return true; /* compared by identity */
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
  bool items = wk__is_view_of_dict(t) || t == &PyListIter_Type || t == &PyTupleIter_Type || t == &PyRangeIter_Type ||
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
