/* The one door to what CPython keeps to itself about objects: names with an underscore in front, fields of structs that
 * are no API, API that only some versions have. tools/check_private.py sees that no other file outside of this folder
 * uses any. Frames and threads: version.h.
 *
 * In, out: as the function of CPython behind it. Invariant: the same in every version that is supported. Tests:
 * tests/python/capture/. */
#ifndef WICK_DYNAMO_CPYTHON_OBJECTS_H
#define WICK_DYNAMO_CPYTHON_OBJECTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* ---- what newer versions call otherwise, or keep in headers of their own ---- */
#if PY_VERSION_HEX < 0x030C0000
static inline Py_ssize_t PyUnstable_Eval_RequestCodeExtraIndex(freefunc free_data) {
  return _PyEval_RequestCodeExtraIndex(free_data);
}
static inline int PyUnstable_Code_GetExtra(PyObject *code, Py_ssize_t index, void **out) {
  return _PyCode_GetExtra(code, index, out);
}
static inline int PyUnstable_Code_SetExtra(PyObject *code, Py_ssize_t index, void *data) {
  return _PyCode_SetExtra(code, index, data);
}
#endif
#if PY_VERSION_HEX >= 0x030D0000
PyAPI_FUNC(int) _PyObject_GetMethod(PyObject *owner, PyObject *name, PyObject **out_method);
PyAPI_FUNC(PyObject *) _PyList_Extend(PyListObject *list, PyObject *iterable);
PyAPI_FUNC(int) _PyDict_MergeEx(PyObject *dict, PyObject *other, int override);
PyAPI_FUNC(int) _PySet_Update(PyObject *set, PyObject *iterable);
PyAPI_FUNC(PyObject *) _PyUnicode_JoinArray(PyObject *separator, PyObject *const *items, Py_ssize_t count);
#endif

/* ---- types ---- */

/* Without the module in front. */
static inline const char *wk__type_name(const PyTypeObject *type) {
  const char *dot = strrchr(type->tp_name, '.');
  return dot ? dot + 1 : type->tp_name;
}
/* Through the bases, not bound; NULL without an exception. */
static inline PyObject *wk__type_attribute(PyTypeObject *type, PyObject *name) {  // -> borrowed
  return _PyType_Lookup(type, name);
}
/* Another one after each change of the type or a base; 0: none now. */
static inline unsigned wk__type_version_now(const PyTypeObject *type) {
#if PY_VERSION_HEX < 0x030D0000
  if (!(type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG)) return 0;
#endif
  return type->tp_version_tag;
}
/* Gives the type one if it has none; 0: there are no more, or none for this type. */
static inline unsigned wk__type_version(PyTypeObject *type) {
  if (wk__type_version_now(type)) return wk__type_version_now(type);
#if PY_VERSION_HEX >= 0x030C0000
  (void)PyUnstable_Type_AssignVersionTag(type);
#else
  (void)_PyType_Lookup(type, ((PyHeapTypeObject *)type)->ht_name); /* a look-up gives one */
#endif
  return wk__type_version_now(type);
}
/* No program changes it: it is written in C. Newer versions make many of them as they make Python's classes. */
static inline bool wk__type_is_fixed(const PyTypeObject *type) { return type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE; }
/* What a class itself has, without its bases. */
static inline PyObject *wk__type_dict(PyTypeObject *type) {  // -> borrowed
#if PY_VERSION_HEX >= 0x030C0000
  PyObject *dict = PyType_GetDict(type); /* each interpreter has its own for types that are static */
  Py_XDECREF(dict);                      /* the type keeps it */
  return dict;
#else
  return type->tp_dict;
#endif
}
/* Of `1 .__add__`, which newer versions do not export; of weak references. */
PyTypeObject *wk__method_wrapper_type(void);
/* The keys or items of a dictionary, list, set or deque, as C code finds them, whatever its class has for an __iter__.
 */
PyObject *wk__held_by(PyObject *container);  // -> new
static inline PyTypeObject *wk__weak_reference_type(void) { return &_PyWeakref_RefType; }

/* ---- attributes ---- */

/* Where the instance's dictionary is kept, which is made if the values were kept without; NULL: it cannot have one. */
static inline PyObject **wk__instance_dict_place(PyObject *o) { return _PyObject_GetDictPtr(o); }
/* For a call: 1 with a function that takes the owner first; 0 with anything else, or NULL and an exception. */
static inline int wk__get_method(PyObject *owner, PyObject *name, PyObject **out_new_method) {
  return _PyObject_GetMethod(owner, name, out_new_method);
}
/* 1; 0: there is none, without an exception; -1. */
static inline int wk__get_optional_attribute(PyObject *owner, PyObject *name, PyObject **out_new_value) {
#if PY_VERSION_HEX >= 0x030D0000
  return PyObject_GetOptionalAttr(owner, name, out_new_value);
#else
  return _PyObject_LookupAttr(owner, name, out_new_value);
#endif
}
/* A special method, from the type and bound; NULL without an exception when there is none. */
static inline PyObject *wk__get_special(PyObject *owner, const char *name) {  // -> new
  PyObject *key = PyUnicode_InternFromString(name);
  PyObject *found = key ? _PyType_Lookup(Py_TYPE(owner), key) : NULL;
  Py_XDECREF(key);
  if (!found) return NULL;
  descrgetfunc bind = Py_TYPE(found)->tp_descr_get;
  Py_INCREF(found); /* binding it may run code */
  PyObject *method = bind ? bind(found, owner, (PyObject *)Py_TYPE(owner)) : Py_NewRef(found);
  Py_DECREF(found);
  return method;
}

/* ---- dictionaries ---- */

/* A dictionary's count of its changes, which no other dictionary has; CPython keeps notes of its own in the lower bits,
 * which WK__DICT_VERSION leaves out. 3.14 counts no more. */
#if PY_VERSION_HEX >= 0x030D0000
#define WK__DICT_VERSION_SHIFT 12
#elif PY_VERSION_HEX >= 0x030C0000
#define WK__DICT_VERSION_SHIFT 8
#else
#define WK__DICT_VERSION_SHIFT 0
#endif
#define WK__DICT_VERSION(tag) ((tag) >> WK__DICT_VERSION_SHIFT)
_Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wdeprecated-declarations\"") static inline const
    uint64_t *wk__dict_version_place(PyObject *dict) {
  return &((PyDictObject *)dict)->ma_version_tag;
}
_Pragma("GCC diagnostic pop") static inline uint64_t wk__dict_version(PyObject *dict) {
  return WK__DICT_VERSION(*wk__dict_version_place(dict));
}
/* Keys that are there already: the KeyError of f(**a, **b). */
static inline int wk__dict_merge_new(PyObject *dict, PyObject *mapping) { return _PyDict_MergeEx(dict, mapping, 2); }

/* ---- other containers ---- */
static inline int wk__list_extend(PyObject *list, PyObject *iterable) {
  PyObject *none = _PyList_Extend((PyListObject *)list, iterable);
  Py_XDECREF(none);
  return none ? 0 : -1;
}
static inline int wk__set_update(PyObject *set, PyObject *iterable) { return _PySet_Update(set, iterable); }
static inline PyObject *wk__join_strings(PyObject *separator, PyObject *const *items, Py_ssize_t count) {  // -> new
  return _PyUnicode_JoinArray(separator, items, count);
}

/* ---- numbers, hashes, texts ---- */

/* An int of its own, also where small ones are one object each. |value| has one digit. */
static inline PyObject *wk__uncached_int(int value) {  // -> new
  unsigned size = value < 0 ? 0u - (unsigned)value : (unsigned)value;
  PyLongObject *made = _PyLong_New(size != 0);
  if (!made) return NULL;
#if PY_VERSION_HEX >= 0x030C0000
  enum { SIGN_BITS = 3 }; /* sign (0: positive, 1: zero, 2: negative), with the number of digits above */
  made->long_value.ob_digit[0] = (digit)size;
  made->long_value.lv_tag = size ? (uintptr_t)1 << SIGN_BITS | (value < 0 ? 2 : 0) : 1;
#else
  if (size) made->ob_digit[0] = (digit)size;
  if (value < 0) Py_SET_SIZE(made, -1);
#endif
  return (PyObject *)made;
}
static inline Py_hash_t wk__hash_of_address(const void *address) {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_HashPointer(address);
#else
  return _Py_HashPointer(address);
#endif
}
/* "f()", for errors about its arguments. */
static inline PyObject *wk__text_of_call(PyObject *callable) { return _PyObject_FunctionStr(callable); }  // -> new
/* CPython has no name for the type: iterators of strings that are all ASCII. */
/* A collections.deque itself, whose size is its length. */
static inline bool wk__is_deque(PyObject *o) {
  return Py_TYPE(o)->tp_name[0] == 'c' && strcmp(Py_TYPE(o)->tp_name, "collections.deque") == 0;
}
static inline PyObject *wk__from_deque(PyObject *o, int64_t i) {  // -> borrowed, NULL: it has not so many
  PyObject *item = i < Py_SIZE(o) ? PySequence_GetItem(o, i) : NULL;
  Py_XDECREF(item);
  return item;
}

static inline bool wk__is_ascii_iterator_type(const PyTypeObject *type) {
  return strcmp(type->tp_name, "str_ascii_iterator") == 0;
}

/* ---- weak references ---- */
/* What it refers to, None when that is gone. */
static inline PyObject *wk__weak_referent(PyObject *reference) {  // -> new
#if PY_VERSION_HEX >= 0x030D0000
  PyObject *referent;
  return PyWeakref_GetRef(reference, &referent) > 0 ? referent : Py_NewRef(Py_None);
#else
  return Py_NewRef(PyWeakref_GET_OBJECT(reference));
#endif
}

/* ---- types.MappingProxyType ---- */
/* What it shows. */
static inline PyObject *wk__shown_by_proxy(PyObject *proxy) {  // -> borrowed
  typedef struct proxy_object {
    PyObject_HEAD;
    PyObject *mapping;
  } proxy_object;
  return ((proxy_object *)proxy)->mapping;
}

/* ---- classes in patterns ---- */
/* The one pattern of such a class is for the subject itself. */
static inline bool wk__type_matches_itself(PyTypeObject *type) {
  return PyType_HasFeature(type, _Py_TPFLAGS_MATCH_SELF);
}

#if PY_VERSION_HEX >= 0x030C0000
#define WK__CLASS_PATTERN_ERROR "called match pattern must be a class"
#else
#define WK__CLASS_PATTERN_ERROR "called match pattern must be a type"
#endif

/* One that is its code, its globals and its closure, and nothing else. */
static inline bool wk__is_bare_function(PyObject *o) {
  const PyFunctionObject *f = (PyFunctionObject *)o;
  bool attributes = PyFunction_Check(o) && f->func_dict && PyDict_GET_SIZE(f->func_dict);
  return PyFunction_Check(o) && !attributes && !f->func_defaults && !f->func_kwdefaults;
}

#endif
