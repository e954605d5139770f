/* Objects that the region made get their registers when they are first needed, from what they are then.
 * In: an object without a register. Out: steps that make it again. What cannot be described fails the recording.
 * Tests: tests/python/capture/corpus_objects.py. */
#include "autograd/autograd.h"
#include "dynamo/capture/known.h"
#include "dynamo/capture/known_calls.h"
#include "dynamo/capture/record_parts.h"
#include "dynamo/cpython/objects.h"
#include "levels/levels.h"

static wk__reg made_of(wk__recording *r, const wk__binding *b, PyObject *o, wk__step_kind kind, PyObject *const *items,
                       Py_ssize_t count) {
  return wk__did(r, b, kind, o, items, (int)count, NULL) < 0 ? -1 : wk__reg_find(r, o);
}

static wk__reg made_dict(wk__recording *r, const wk__binding *b, PyObject *o) {
  Py_ssize_t count = 2 * PyDict_GET_SIZE(o), i = 0;
  PyObject **items = wk__alloc((size_t)(count + 1) * sizeof *items), *key, *value;
  if (!items) return wk__record_no_memory(r);
  for (Py_ssize_t at = 0; PyDict_Next(o, &at, &key, &value);) {
    items[i++] = key;
    items[i++] = value;
  }
  wk__reg reg = made_of(r, b, o, WK__DO_MAP, items, count);
  wk__free(items);
  return reg;
}

/* Empty, and then what is in it in its order. */
static wk__reg made_dict_of_kind(wk__recording *r, const wk__binding *b, PyObject *o) {
  PyObject *type = (PyObject *)Py_TYPE(o), *keys = wk__held_by(o);
  PyObject *factory = wk__is_default_dict(Py_TYPE(o)) ? PyObject_GetAttrString(o, "default_factory") : NULL;
  PyObject *made[] = {type, factory};
  PyObject **dict = wk__instance_dict_place(o);
  bool plain = keys && !PyErr_Occurred() && !(dict && *dict && PyDict_GET_SIZE(*dict));
  plain = plain && wk__reg_constant(r, type) >= 0 && made_of(r, b, o, WK__DO_CALL, made, factory ? 2 : 1) >= 0;
  for (Py_ssize_t i = 0; plain && i < PyTuple_GET_SIZE(keys); i++) {
    PyObject *key = PyTuple_GET_ITEM(keys, i), *item[] = {o, key, PyDict_GetItemWithError(o, key)};
    plain = wk__did(r, b, WK__DO_SET_ITEM, NULL, item, 3, NULL) == 0;
  }
  Py_XDECREF(keys);
  Py_XDECREF(factory);
  if (!plain) wk__record_failed(r, "a %s that cannot be described", Py_TYPE(o)->tp_name);
  return plain ? wk__reg_find(r, o) : -1;
}

/* collections.deque: (items, maxlen). */
static wk__reg made_deque(wk__recording *r, const wk__binding *b, PyObject *o) {
  PyObject *items = PySequence_List(o), *most = PyObject_GetAttrString(o, "maxlen");
  PyObject *args[] = {(PyObject *)Py_TYPE(o), items, most};
  wk__reg reg = items && most && wk__reg_constant(r, args[0]) >= 0 ? made_of(r, b, o, WK__DO_CALL, args, 3) : -1;
  Py_XDECREF(items);
  Py_XDECREF(most);
  return reg;
}

static wk__reg made_weak_reference(wk__recording *r, const wk__binding *b, PyObject *o) {
  PyObject *referent = wk__weak_referent(o), *callback = ((PyWeakReference *)o)->wr_callback;
  PyObject *args[] = {(PyObject *)Py_TYPE(o), referent, callback};
  bool alive = referent != Py_None && wk__reg_constant(r, args[0]) >= 0;
  if (wk__map_get(&r->hook_dicts, (uintptr_t)referent)) {
    wk__record_failed(r, "the handle of a hook of what the region computes is still alive");
    Py_DECREF(referent);
    return -1;
  }
  wk__reg reg = alive ? made_of(r, b, o, WK__DO_CALL, args, callback ? 3 : 2) : -1;
  if (!alive) wk__record_failed(r, "a weak reference to what has died");
  Py_DECREF(referent);
  return reg;
}

/* numpy.ndarray of numbers: a copy of what it is now. */
static wk__reg made_array(wk__recording *r, const wk__binding *b, PyObject *o) {
  PyObject *dtype = PyObject_GetAttrString(o, "dtype"), *holds = NULL, *now = NULL, *copy = NULL;
  if (dtype) holds = PyObject_GetAttrString(dtype, "hasobject");
  if (holds == Py_False) now = PyObject_CallMethod(o, "copy", NULL);
  if (now) copy = PyObject_GetAttrString((PyObject *)Py_TYPE(o), "copy");
  bool known = copy && wk__reg_constant(r, copy) >= 0 && wk__reg_constant(r, now) >= 0;
  wk__reg reg = known ? made_of(r, b, o, WK__DO_CALL, (PyObject *[]){copy, now}, 2) : -1;
  if (!known) wk__record_failed(r, "an array that cannot be copied");
  Py_XDECREF(dtype);
  Py_XDECREF(holds);
  Py_XDECREF(now);
  Py_XDECREF(copy);
  PyErr_Clear();
  return reg;
}

static wk__reg made_set(wk__recording *r, const wk__binding *b, PyObject *o) {
  PyObject *items = wk__held_by(o);
  if (!items) return -1;
  wk__reg reg = made_of(r, b, o, WK__DO_SET, &PyTuple_GET_ITEM(items, 0), PyTuple_GET_SIZE(items));
  Py_DECREF(items);
  return reg;
}

static wk__reg made_call(wk__recording *r, const wk__binding *b, PyObject *o, PyObject *callable, PyObject *args) {
  Py_ssize_t count = PyTuple_GET_SIZE(args);
  PyObject *items[8] = {callable};
  if (count > 7) {
    wk__record_failed(r, "a %s of many arguments", Py_TYPE(o)->tp_name);
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; i++) items[i + 1] = PyTuple_GET_ITEM(args, i);
  return made_of(r, b, o, WK__DO_CALL, items, count + 1);
}

/* The values of __slots__, in classes that are written in Python. */
static bool with_slots(wk__recording *r, const wk__binding *b, PyObject *o) {
  bool set = true;
  for (PyTypeObject *t = Py_TYPE(o); set && t && t->tp_flags & Py_TPFLAGS_HEAPTYPE; t = t->tp_base) {
    PyObject *names = ((PyHeapTypeObject *)t)->ht_slots;
    for (Py_ssize_t i = 0; set && names && i < PyTuple_GET_SIZE(names); i++) {
      PyObject *name = PyTuple_GET_ITEM(names, i), *value = PyObject_GenericGetAttr(o, name);
      if (value)
        set = wk__did(r, b, WK__DO_SET_ATTR, NULL, (PyObject *[]){o, value}, 2, name) == 0;
      else
        PyErr_Clear();
      Py_XDECREF(value);
    }
  }
  return set;
}

/* Those that stand in its dictionary, and in slots, set again. */
static bool with_attributes(wk__recording *r, const wk__binding *b, PyObject *o) {
  PyObject **place = wk__instance_dict_place(o), *dict = place && *place ? PyDict_Copy(*place) : NULL, *key, *value;
  bool set = with_slots(r, b, o);
  for (Py_ssize_t at = 0; dict && set && PyDict_Next(dict, &at, &key, &value);) {
    PyObject *in_class = wk__type_attribute(Py_TYPE(o), key);
    bool hidden = in_class && Py_TYPE(in_class)->tp_descr_set && wk__is_python_class(Py_TYPE(o));
    if (hidden) wk__record_failed(r, "an attribute that is hidden by one of its class");
    set = !hidden && wk__did(r, b, WK__DO_SET_ATTR, NULL, (PyObject *[]){o, value}, 2, key) == 0;
  }
  Py_XDECREF(dict);
  return set && !PyErr_Occurred();
}

/* Of a class of C code, such as torch.return_types.max, which takes one sequence; or of one written in Python, past
 * what its __new__ does: it has been done. */
static wk__reg made_tuple(wk__recording *r, const wk__binding *b, PyObject *o) {
  if (PyTuple_CheckExact(o)) return made_of(r, b, o, WK__DO_TUPLE, &PyTuple_GET_ITEM(o, 0), PyTuple_GET_SIZE(o));
  PyObject *type = (PyObject *)Py_TYPE(o), *plain = PyTuple_GetSlice(o, 0, PyTuple_GET_SIZE(o));
  bool by_python = wk__is_python_class(Py_TYPE(o));
  PyObject *make = by_python ? PyObject_GetAttrString((PyObject *)&PyTuple_Type, "__new__") : Py_NewRef(type);
  bool known = plain && make && wk__reg_constant(r, type) >= 0 && wk__reg_constant(r, make) >= 0;
  PyObject *items[] = {make, type, plain}, *const short_items[] = {make, plain};
  wk__reg reg = !known      ? -1
                : by_python ? made_of(r, b, o, WK__DO_CALL, items, 3)
                            : made_of(r, b, o, WK__DO_CALL, short_items, 2);
  Py_XDECREF(make);
  Py_XDECREF(plain);
  return reg < 0 || !with_attributes(r, b, o) ? -1 : reg;
}

/* Iterators over known things say themselves how they can be made again: (iter, (list,), position). */
static wk__reg made_iterator(wk__recording *r, const wk__binding *b, PyObject *o) {
  PyObject *how = PyObject_CallMethod(o, "__reduce__", NULL), *none[2] = {o, NULL};
  if (!how || !PyTuple_Check(how) || PyTuple_GET_SIZE(how) < 2) {
    PyErr_Clear();
    Py_XDECREF(how);
    wk__record_failed(r, "a live %s", Py_TYPE(o)->tp_name);
    return -1;
  }
  PyObject *callable = PyTuple_GET_ITEM(how, 0);
  wk__reg reg = wk__reg_constant(r, callable) < 0 ? -1 : made_call(r, b, o, callable, PyTuple_GET_ITEM(how, 1));
  if (reg >= 0 && PyTuple_GET_SIZE(how) > 2 && PyTuple_GET_ITEM(how, 2) != Py_None) {
    PyObject *set_state = PyObject_GetAttrString((PyObject *)Py_TYPE(o), "__setstate__");
    none[0] = PyTuple_GET_ITEM(how, 2);
    PyObject *items[3] = {set_state, o, none[0]};
    if (!set_state || wk__reg_constant(r, set_state) < 0 || wk__did(r, b, WK__DO_IMPURE_CALL, NULL, items, 3, NULL) < 0)
      reg = -1;
    Py_XDECREF(set_state);
  }
  Py_DECREF(how);
  return reg;
}

/* ---- views of dictionaries, and their iterators, which do not say which dictionary it is ---- */

static int keep_first(PyObject *o, void *place) {
  *(PyObject **)place = o;
  return 1;
}
static PyObject *first_held(PyObject *o) {  // -> borrowed
  PyObject *first = NULL;
  Py_TYPE(o)->tp_traverse(o, keep_first, &first);
  return first;
}

/* The method of a dictionary that gives such a view, or one over which such an iterator goes; NULL: none does. */
static const char *viewing_method(const PyTypeObject *t) {
  if (t == &PyDictKeys_Type || t == &PyDictIterKey_Type) return "keys";
  if (t == &PyDictValues_Type || t == &PyDictIterValue_Type) return "values";
  return t == &PyDictItems_Type || t == &PyDictIterItem_Type ? "items" : NULL;
}

/* view = dict.values(dictionary) */
static wk__reg made_view(wk__recording *r, const wk__binding *b, PyObject *view, PyObject *dict) {
  PyObject *method = PyObject_GetAttrString((PyObject *)&PyDict_Type, viewing_method(Py_TYPE(view)));
  bool known = method && wk__reg_constant(r, method) >= 0;
  wk__reg reg = known ? made_of(r, b, view, WK__DO_CALL, (PyObject *[]){method, dict}, 2) : -1;
  Py_XDECREF(method);
  return reg;
}

/* Whether what is left in the iterator is what a new one over the view gives behind the first `taken`: it is not where
 * the dictionary has been changed since, which the real one takes as an error, or goes over in the order that it was.
 */
static bool goes_on_behind(PyObject *o, PyObject *view, Py_ssize_t taken) {
  PyObject *how = PyObject_CallMethod(o, "__reduce__", NULL), *all = PySequence_List(view);
  PyObject *args = how ? PyTuple_GET_ITEM(how, 1) : NULL, *left = args ? PyTuple_GET_ITEM(args, 0) : NULL;
  bool same = all && left && PyList_Check(left) && PyList_GET_SIZE(all) == PyList_GET_SIZE(left) + taken;
  bool pairs = Py_TYPE(o) == &PyDictIterItem_Type;
  for (Py_ssize_t i = 0; same && i < PyList_GET_SIZE(left); i++) {
    PyObject *a = PyList_GET_ITEM(left, i), *b = PyList_GET_ITEM(all, taken + i);
    same = pairs ? PyTuple_GET_ITEM(a, 0) == PyTuple_GET_ITEM(b, 0) : a == b;
  }
  PyErr_Clear();
  Py_XDECREF(how);
  Py_XDECREF(all);
  return same;
}

/* o = iter(view), of which some have been taken. */
static wk__reg made_view_iterator(wk__recording *r, const wk__binding *b, PyObject *o, PyObject *dict) {
  PyObject *builtins = PyEval_GetBuiltins(), *iter = PyDict_GetItemString(builtins, "iter");
  PyObject *next = PyDict_GetItemString(builtins, "next");
  Py_ssize_t taken = PyDict_GET_SIZE(dict) - PyObject_LengthHint(o, 0);
  PyObject *view = PyObject_CallMethod(dict, viewing_method(Py_TYPE(o)), NULL);
  bool known = view && iter && next && wk__reg_constant(r, iter) >= 0 && wk__reg_constant(r, next) >= 0;
  if (known && !goes_on_behind(o, view, taken)) {
    wk__record_failed(r, "an iterator of a dictionary that has been changed since");
    known = false;
  }
  wk__reg reg =
      known && made_view(r, b, view, dict) >= 0 ? made_of(r, b, o, WK__DO_CALL, (PyObject *[]){iter, view}, 2) : -1;
  for (Py_ssize_t i = 0; reg >= 0 && i < taken; i++)
    if (wk__did(r, b, WK__DO_IMPURE_CALL, NULL, (PyObject *[]){next, o, Py_None}, 3, NULL) < 0) reg = -1;
  Py_XDECREF(view);
  return reg;
}

static wk__reg made_of_dict(wk__recording *r, const wk__binding *b, PyObject *o) {
  PyObject *dict = first_held(o);
  bool iterates = PyIter_Check(o);
  if (dict && PyDict_CheckExact(dict)) return iterates ? made_view_iterator(r, b, o, dict) : made_view(r, b, o, dict);
  wk__record_failed(r, "a %s that was made in the region is still alive", Py_TYPE(o)->tp_name);
  return -1;
}

static wk__reg made_function(wk__recording *r, const wk__binding *b, PyObject *o) {
  PyFunctionObject *f = (PyFunctionObject *)o;
  if (!wk__was_made(r, o)) {
    wk__record_failed(r, "a function that came from unknown code");
    return -1;
  }
  PyObject *items[] = {f->func_code,       f->func_globals,     f->func_defaults,
                       f->func_kwdefaults, f->func_annotations, f->func_closure};
  if (wk__reg_constant(r, f->func_code) < 0 || wk__reg_constant(r, f->func_globals) < 0) return -1;
  if (f->func_annotations && wk__reg_constant(r, f->func_annotations) < 0) return -1;
  return made_of(r, b, o, WK__DO_FUNCTION, items, WK_COUNT(items));
}

/* list.append of a certain list: getattr(list, "append"). */
static wk__reg made_builtin_method(wk__recording *r, const wk__binding *b, PyObject *o, PyObject *self,
                                   const char *text) {
  PyObject *builtins = PyEval_GetBuiltins(), *getter = PyDict_GetItemString(builtins, "getattr");
  PyObject *name = PyUnicode_InternFromString(text);
  PyObject *items[] = {getter, self, name};
  wk__reg reg = getter && name && wk__reg_constant(r, getter) >= 0 ? made_of(r, b, o, WK__DO_CALL, items, 3) : -1;
  Py_XDECREF(name);
  return reg;
}

/* tensor.__rand__, a slot of C code that is bound: the same. */
static wk__reg made_method_wrapper(wk__recording *r, const wk__binding *b, PyObject *o) {
  PyObject *self = PyObject_GetAttrString(o, "__self__"), *name = PyObject_GetAttrString(o, "__name__");
  const char *text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
  bool tensor = self && PyObject_TypeCheck(self, b->tensor_type); /* others may have found it by way of super() */
  wk__reg reg = text && tensor ? made_builtin_method(r, b, o, self, text) : -1;
  if (reg < 0) wk__record_failed(r, "a method-wrapper that was made in the region is still alive");
  Py_XDECREF(self);
  Py_XDECREF(name);
  return reg;
}

static wk__reg made_partial(wk__recording *r, const wk__binding *b, PyObject *o) {
  enum { MOST = 32 };
  PyObject *function = PyObject_GetAttrString(o, "func"), *args = PyObject_GetAttrString(o, "args");
  PyObject *keywords = PyObject_GetAttrString(o, "keywords"), *names = keywords ? PySequence_Tuple(keywords) : NULL;
  PyObject *items[MOST] = {(PyObject *)Py_TYPE(o), function};
  Py_ssize_t count = 2, all = names ? 2 + PyTuple_GET_SIZE(args) + PyTuple_GET_SIZE(names) : MOST + 1;
  bool made = all <= MOST && wk__reg_constant(r, items[0]) >= 0;
  if (!made) wk__record_failed(r, "a partial call of many arguments");
  for (Py_ssize_t i = 0; made && i < PyTuple_GET_SIZE(args); i++) items[count++] = PyTuple_GET_ITEM(args, i);
  for (Py_ssize_t i = 0; made && i < PyTuple_GET_SIZE(names); i++)
    items[count++] = PyDict_GetItemWithError(keywords, PyTuple_GET_ITEM(names, i));
  PyObject *given = names && PyTuple_GET_SIZE(names) ? names : NULL;
  if (made) made = wk__did(r, b, WK__DO_CALL, o, items, (int)count, given) == 0;
  Py_XDECREF(function);
  Py_XDECREF(args);
  Py_XDECREF(keywords);
  Py_XDECREF(names);
  return made && with_attributes(r, b, o) ? wk__reg_find(r, o) : -1;
}

static bool is_iterator_type(PyTypeObject *t) {
  return t == &PyListIter_Type || t == &PyTupleIter_Type || t == &PyRangeIter_Type || t == &PyEnum_Type ||
         t == &PyReversed_Type || t == &PyZip_Type || t == &PyMap_Type || t == &PyUnicodeIter_Type ||
         t == &PyListRevIter_Type || t == &PySeqIter_Type;
}

/* An instance of a class written in Python, whose state is its dictionary. */
static wk__reg made_instance(wk__recording *r, const wk__binding *b, PyObject *o) {
  PyTypeObject *type = Py_TYPE(o);
  PyObject *items[] = {(PyObject *)type};
  if (wk__reg_constant(r, (PyObject *)type) < 0 || made_of(r, b, o, WK__DO_INSTANCE, items, 1) < 0) return -1;
  return with_attributes(r, b, o) ? wk__reg_find(r, o) : -1;
}

static bool has_python_bases(const PyTypeObject *t) {
  while (t->tp_base && t->tp_base->tp_flags & Py_TPFLAGS_HEAPTYPE) t = t->tp_base;
  return t->tp_base == &PyBaseObject_Type;
}

/* What it knows stands in its dictionary. Storing there goes by way of its __setattr__, which registers these. */
static wk__reg made_module(wk__recording *r, const wk__binding *b, PyObject *o) {
  PyObject **place = wk__instance_dict_place(o), *key, *value;
  for (Py_ssize_t at = 0; place && *place && PyDict_Next(*place, &at, &key, &value);)
    if (PyObject_TypeCheck(value, b->module_type) || PyObject_TypeCheck(value, *b->parameter_type)) {
      wk__record_failed(r, "a module that holds others beside its parts");
      return -1;
    }
  if (Py_TYPE(o)->tp_new == b->module_type->tp_new) return made_instance(r, b, o);
  wk__record_failed(r, "a %s that was made in the region is still alive", Py_TYPE(o)->tp_name);
  return -1;
}

static bool is_simple_instance(PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  return t->tp_flags & Py_TPFLAGS_HEAPTYPE && has_python_bases(t) && wk__is_python_class(t);
}

/* Of a class written in Python that derives from dict or OrderedDict. */
static bool is_dict_instance(PyObject *o) {
  PyTypeObject *t = Py_TYPE(o), *base = t;
  while (base->tp_flags & Py_TPFLAGS_HEAPTYPE) base = base->tp_base;
  return base != t && (base == &PyDict_Type || base == &PyODict_Type) && wk__is_python_class(t);
}

/* Empty, then its items and attributes, past what its class does when they are set. */
static wk__reg made_dict_instance(wk__recording *r, const wk__binding *b, PyObject *o) {
  PyTypeObject *type = Py_TYPE(o), *base = PyObject_TypeCheck(o, &PyODict_Type) ? &PyODict_Type : &PyDict_Type;
  PyObject *set = PyObject_GetAttrString((PyObject *)base, "__setitem__");
  PyObject *keys = PyObject_CallMethod((PyObject *)base, "keys", "O", o);
  if (keys) Py_SETREF(keys, PySequence_Tuple(keys));
  bool made = set && keys && wk__reg_constant(r, set) >= 0 && wk__reg_constant(r, (PyObject *)type) >= 0 &&
              made_of(r, b, o, WK__DO_INSTANCE, (PyObject *[]){(PyObject *)type}, 1) >= 0;
  for (Py_ssize_t i = 0; made && i < PyTuple_GET_SIZE(keys); i++) {
    PyObject *key = PyTuple_GET_ITEM(keys, i), *items[] = {set, o, key, PyDict_GetItemWithError(o, key)};
    made = items[3] && wk__did(r, b, WK__DO_IMPURE_CALL, NULL, items, 4, NULL) == 0;
  }
  Py_XDECREF(keys);
  Py_XDECREF(set);
  return made && with_attributes(r, b, o) ? wk__reg_find(r, o) : -1;
}

/* The value alone, which the graph makes. */
static PyObject *detached(const wk__binding *b, PyObject *o) {  // -> new
  wk_value args[] = {{.tag = WK_VALUE_TENSOR, .tensor = b->tensor_of(o)}}, result = {0};
  bool before = wk__thread.mode.grad_enabled;
  wk__thread.mode.grad_enabled = false;
  wk_status status = wk_call(WK__OP(detach), args, NULL, &result);
  wk__thread.mode.grad_enabled = before;
  return status == WK_OK ? b->wrap(b->state, result.tensor) : b->raise(b->state);
}

/* A leaf of the region's own is no value of the graph, which would have no gradient: it is made of one. */
static wk__reg made_parameter(wk__recording *r, const wk__binding *b, PyObject *o) {
  const wk__autograd *a = b->tensor_of(o)->autograd;
  if (a && (a->hooks || a->accumulate_hooks)) {
    wk__record_failed(r, "a parameter that the region has made, with hooks");
    return -1;
  }
  PyObject *make = PyObject_GetAttrString((PyObject *)b->tensor_type, "_make_subclass"), *data = detached(b, o);
  PyObject *flag = PyBool_FromLong(b->tensor_of(o)->keys & WK__KEY_AUTOGRAD), *grad = b->grad_of(o);
  PyObject *items[] = {make, (PyObject *)Py_TYPE(o), data, flag};
  bool made = make && data && flag && wk__reg_constant(r, make) >= 0 && wk__reg_constant(r, items[1]) >= 0 &&
              made_of(r, b, o, WK__DO_CALL, items, 4) >= 0;
  if (made && grad) made = wk__did(r, b, WK__DO_SET_GRAD, NULL, (PyObject *[]){o, grad}, 2, NULL) == 0;
  Py_XDECREF(make);
  Py_XDECREF(data);
  Py_XDECREF(flag);
  Py_XDECREF(grad);
  return made && with_attributes(r, b, o) ? wk__reg_find(r, o) : -1;
}

/* A tensor of a function transform: stored somewhere meanwhile (a module's parameter, say), or left over by one that
 * has ended, it is its inner value to whoever sees it outside. A tape of the transform can not be made again. */
static wk__reg tensor_of_level(wk__recording *r, const wk__binding *b, PyObject *o) {
  wk_tensor *t = b->tensor_of(o);
  if (!wk__level_depth_of(t) && t->keys & WK__KEY_AUTOGRAD) {
    wk__record_failed(r, "the tape of a function transform that has ended is still alive");
    return -1;
  }
  while (t->inner) t = t->inner->value;
  PyObject *value = b->wrap(b->state, wk__retain(t));
  wk__reg reg = value ? wk__reg_of(r, b, value) : -1;
  Py_XDECREF(value);
  return reg;
}

/* tensor.retain_grad(), which each replay calls again. */
bool wk__note_retained(wk__recording *r, const wk__binding *b, PyObject *o) {
  PyObject *method = PyObject_GetAttrString((PyObject *)b->tensor_type, "retain_grad"), *items[] = {method, o};
  bool noted = method && wk__reg_constant(r, method) >= 0 &&
               wk__did(r, b, WK__DO_EFFECT, NULL, items, WK_COUNT(items), NULL) == 0;
  Py_XDECREF(method);
  return noted;
}

/* A tensor that keeps its gradient though it is no leaf, with the one that it has. */
static bool with_retained_grad(wk__recording *r, const wk__binding *b, PyObject *o) {
  const wk_tensor *t = b->tensor_of(o);
  if (!t->autograd || !t->autograd->retains_grad) return true;
  PyObject *grad = b->grad_of(o);
  bool noted = wk__note_retained(r, b, o);
  if (noted && grad) noted = wk__did(r, b, WK__DO_SET_GRAD, NULL, (PyObject *[]){o, grad}, 2, NULL) == 0;
  Py_XDECREF(grad);
  return noted;
}

/* One that the graph makes; its class is not the graph's to know. */
static wk__reg made_tensor(wk__recording *r, const wk__binding *b, PyObject *o) {
  if (b->tensor_of(o)->inner) return tensor_of_level(r, b, o);
  if (!b->tensor_of(o)->trace) {
    wk__record_failed(r, "a tensor that came from unknown code");
    return -1;
  }
  if (Py_TYPE(o) == *b->parameter_type && !wk__grad_fn(b->tensor_of(o))) return made_parameter(r, b, o);
  wk__reg reg = wk__reg_tensor(r, o);
  if (reg >= 0 && Py_TYPE(o) != b->tensor_type) {
    if (wk__reg_constant(r, (PyObject *)Py_TYPE(o)) < 0) return -1;
    r->registers[reg].type = Py_TYPE(o);
  }
  return reg < 0 || !with_attributes(r, b, o) || !with_retained_grad(r, b, o) ? -1 : reg;
}

/* A node of the tape: tensor.grad_fn. */
static wk__reg made_node(wk__recording *r, const wk__binding *b, PyObject *o) {
  r->keeps_tape = true;
  return made_builtin_method(r, b, o, wk__tensor_of_node(r, o), "grad_fn");
}

static bool has_identities(const wk__recording *r, PyObject *set) {
  PyObject *items = r->identity_count ? PySequence_Tuple(set) : NULL;
  bool found = false;
  for (Py_ssize_t i = 0; items && i < PyTuple_GET_SIZE(items); i++)
    found |= wk__is_identity(r, PyTuple_GET_ITEM(items, i));
  Py_XDECREF(items);
  return found;
}

static wk__reg make_register(wk__recording *r, const wk__binding *b, PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  if (WK_UNLIKELY(wk__is_identity(r, o))) return wk__made_identity(r, b, o);
  if (t == &PyFrozenSet_Type && has_identities(r, o)) {
    wk__record_failed(r, "a frozenset of numbers of id() is still alive");
    return -1;
  }
  if (wk__is_plain_value(b, o) || t == &PyRange_Type || PyType_Check(o) || PyCode_Check(o) || PyModule_Check(o) ||
      t == &PyFrozenSet_Type || t == b->operator_type || t == *b->overload_type || b->is_own_mode(t) ||
      t == &PyMethodDescr_Type || t == &PyWrapperDescr_Type || wk__known_class(t) == WK__CLASS_VALUE)
    return wk__reg_constant(r, o);
  if (PyObject_TypeCheck(o, b->tensor_type)) return made_tensor(r, b, o);
  if (wk__tensor_of_node(r, o)) return made_node(r, b, o);
  wk__reg handle = wk__note_handle(r, b, o);
  if (handle >= 0 || r->failed[0]) return handle;
  if (PyTuple_Check(o)) return made_tuple(r, b, o);
  if (t == &PyList_Type) return made_of(r, b, o, WK__DO_LIST, ((PyListObject *)o)->ob_item, PyList_GET_SIZE(o));
  if (t == &PyDict_Type) return made_dict(r, b, o);
  if (t == &PyODict_Type || wk__is_default_dict(t)) return made_dict_of_kind(r, b, o);
  if (t == &PySet_Type) return made_set(r, b, o);
  if (strcmp(t->tp_name, "collections.deque") == 0 && wk__is_own_object(r, o)) return made_deque(r, b, o);
  if (t == wk__weak_reference_type()) return made_weak_reference(r, b, o);
  if (strcmp(t->tp_name, "numpy.ndarray") == 0 && wk__is_own_object(r, o)) return made_array(r, b, o);
  if (t == &PyBaseObject_Type) return made_of(r, b, o, WK__DO_INSTANCE, (PyObject *[]){(PyObject *)t}, 1);
  if (t == &PySlice_Type) {
    PySliceObject *s = (PySliceObject *)o;
    return made_of(r, b, o, WK__DO_SLICE, (PyObject *[]){s->start, s->stop, s->step}, 3);
  }
  if (PyMethod_Check(o))
    return made_of(r, b, o, WK__DO_METHOD, (PyObject *[]){PyMethod_GET_FUNCTION(o), PyMethod_GET_SELF(o)}, 2);
  if (PyCell_Check(o)) return made_of(r, b, o, WK__DO_CELL, (PyObject *[]){PyCell_GET(o)}, 1);
  if (PyFunction_Check(o)) return made_function(r, b, o);
  if (PyCFunction_Check(o)) {
    PyObject *self = PyCFunction_GET_SELF(o);
    if (!self || PyModule_Check(self) || b->is_own_mode(Py_TYPE(self))) return wk__reg_constant(r, o);
    return made_builtin_method(r, b, o, self, ((PyCFunctionObject *)o)->m_ml->ml_name);
  }
  if (t == wk__method_wrapper_type()) return made_method_wrapper(r, b, o);
  if (is_iterator_type(t)) return made_iterator(r, b, o);
  if (viewing_method(t)) return made_of_dict(r, b, o);
  if (wk__is_partial(t)) return made_partial(r, b, o);
  if (PyObject_TypeCheck(o, b->module_type)) return made_module(r, b, o);
  if (is_simple_instance(o)) return made_instance(r, b, o);
  if (is_dict_instance(o)) return made_dict_instance(r, b, o);
  wk__record_failed(r, "a %s that was made in the region is still alive", t->tp_name);
  return -1;
}

enum { MAX_NESTING = 64 };
wk__reg wk__reg_of(wk__recording *r, const wk__binding *b, PyObject *o) {
  wk__reg known = wk__reg_find(r, o);
  if (known >= 0) return known;
  if (r->depth > MAX_NESTING) {
    wk__record_failed(r, "objects that contain each other");
    return -1;
  }
  r->depth++;
  wk__reg reg = make_register(r, b, o);
  r->depth--;
  return reg;
}
