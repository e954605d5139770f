/* Attributes of classes from outside that a program changes: counters, registries, switches.
 *
 * A segment takes a class to be what it was as long as its version is the same, so what is found in it needs no guard.
 * Any change gives another version, be it of an attribute that the segment never asked for. Therefore a class that has
 * been seen to change, or that the region itself changes, has a *picture*: what its dictionary held when it was first
 * looked at. Where the version is another one the dictionary is compared with the picture. Functions, descriptors and
 * names with two underscores have to be the same. Data may differ where no look-up has asked for it, or where it is
 * read by a guard of its own, as a global is; that happens to what was found to differ when the function is captured
 * again.
 *
 * In: look-ups in classes, `class.name = value`. Out: reads and checks, steps; whether a type is as it was.
 * Tests: tests/python/capture/test_class_attributes.py. */
#include "dynamo/capture/class_attributes.h"

#include "dynamo/capture/classes.h"
#include "dynamo/capture/ends.h"
#include "dynamo/capture/operation_parts.h"
#include "dynamo/cpython/objects.h"

static uint64_t key_of(const void *p) { return (uint64_t)(uintptr_t)p; }

/* ==================================================== pictures =================================================== */

static bool is_special(PyObject *name) {
  if (!PyUnicode_Check(name)) return true;
  return PyUnicode_GET_LENGTH(name) > 1 && PyUnicode_READ_CHAR(name, 0) == '_' && PyUnicode_READ_CHAR(name, 1) == '_';
}
/* It is found as it stands there, and hides no attribute of an instance. */
static bool is_data(PyObject *value) { return !Py_TYPE(value)->tp_descr_get && !Py_TYPE(value)->tp_descr_set; }

static bool is_number_or_text(PyObject *o) {
  return PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyUnicode_CheckExact(o) || PyBool_Check(o) || o == Py_None;
}

/* Other data is known by its address, so that a picture keeps nothing alive: where the region has looked at it the
 * recording has it. */
static bool is_held(PyObject *name, PyObject *value) {
  return is_special(name) || !is_data(value) || is_number_or_text(value);
}
static PyObject *pictured(PyObject *name, PyObject *value) {  // -> new
  return is_held(name, value) ? Py_NewRef(value) : PyLong_FromVoidPtr(value);
}

static bool is_as_pictured(PyObject *name, PyObject *was, PyObject *now) {
  if (was == now) return true;
  if (!is_held(name, now)) return PyLong_CheckExact(was) && PyLong_AsVoidPtr(was) == now;
  if (!is_number_or_text(now) || Py_TYPE(was) != Py_TYPE(now)) return false;
  if (PyFloat_CheckExact(now)) {
    double x = PyFloat_AS_DOUBLE(was), y = PyFloat_AS_DOUBLE(now);
    return memcmp(&x, &y, sizeof x) == 0;
  }
  return PyObject_RichCompareBool(was, now, Py_EQ) == 1;
}

static wk__class_picture *picture_of(const wk__recording *r, PyTypeObject *class) {
  for (int64_t i = 0; i < r->picture_count; i++)
    if (r->pictures[i].class == (PyObject *)class) return &r->pictures[i];
  return NULL;
}

PyObject *wk__class_of_dictionary(const wk__recording *r, PyObject *dict) {
  for (int64_t i = 0; i < r->picture_count; i++)
    if (wk__type_dict((PyTypeObject *)r->pictures[i].class) == dict) return r->pictures[i].class;
  return NULL;
}

static int take_picture(wk__recording *r, PyTypeObject *class) {
  if (picture_of(r, class)) return 0;
  PyObject *dict = wk__type_dict(class), *held = PyDict_New(), *name, *value;
  int status =
      held && wk__grow(&r->pictures, &r->picture_capacity, r->picture_count + 1, sizeof *r->pictures) == WK_OK ? 0 : -1;
  for (Py_ssize_t at = 0; status == 0 && PyDict_Next(dict, &at, &name, &value);) {
    PyObject *kept = pictured(name, value);
    status = kept ? PyDict_SetItem(held, name, kept) : -1;
    Py_XDECREF(kept);
  }
  if (status < 0) {
    PyErr_Clear();
    Py_XDECREF(held);
    return wk__record_no_memory(r);
  }
  r->pictures[r->picture_count++] = (wk__class_picture){.class = Py_NewRef((PyObject *)class),
                                                        .mro = Py_XNewRef(class->tp_mro),
                                                        .held = held,
                                                        .version = wk__dict_version(dict)};
  return 0;
}

static int take_pictures(wk__recording *r, PyTypeObject *type) {
  for (Py_ssize_t i = 0; type->tp_mro && i < PyTuple_GET_SIZE(type->tp_mro); i++) {
    PyTypeObject *class = (PyTypeObject *)PyTuple_GET_ITEM(type->tp_mro, i);
    if (!wk__type_is_fixed(class) && take_picture(r, class) < 0) return -1;
  }
  return 0;
}

static uint64_t path_of_type(const PyTypeObject *type) { return wk__hash_mix(key_of(type), 0x7c); }

/* The region depends on the type from now on. */
int wk__note_class_as_found(wk__recording *r, PyTypeObject *type) {
  bool wanted = r->changing && wk__map_get(r->changing, path_of_type(type));
  for (Py_ssize_t i = 0; !wanted && r->writes_classes && type->tp_mro && i < PyTuple_GET_SIZE(type->tp_mro); i++)
    wanted = picture_of(r, (PyTypeObject *)PyTuple_GET_ITEM(type->tp_mro, i));
  return wanted ? take_pictures(r, type) : 0;
}

/* What the region depends on and is about to change. */
static int note_before_change(wk__recording *r, PyTypeObject *class) {
  r->writes_classes = true;
  if (take_picture(r, class) < 0) return -1;
  for (int64_t i = 0; i < r->versioned_count; i++) {
    bool derives = PyType_Check(r->versioned[i]) && PyType_IsSubtype((PyTypeObject *)r->versioned[i], class);
    if (derives && take_pictures(r, (PyTypeObject *)r->versioned[i]) < 0) return -1;
  }
  return 0;
}

/* ---- compared ---- */

/* `was`, `now`: NULL: there is none. What differs and matters will be read by a guard of its own. */
static bool may_differ(wk__compiled *c, const wk__recording *r, PyObject *dict, PyObject *name, PyObject *was,
                       PyObject *now) {
  bool data = !is_special(name) && (!now || is_data(now)) && (!was || is_data(was));
  if (!data) return false;
  uint64_t path = wk__path_of_name(dict, name);
  if (!wk__map_get(&r->names_asked, path) || wk__map_get(&r->names_guarded, path)) return true;
  wk__mark_changing(c, path, 0);
  return false;
}

static bool class_is_as_pictured(wk__compiled *c, const wk__recording *r, wk__class_picture *p) {
  PyObject *dict = wk__type_dict((PyTypeObject *)p->class), *name, *value;
  uint64_t version = wk__dict_version(dict);
  if (version == p->version) return true;
  bool same = true;
  Py_ssize_t found = 0;
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &name, &value);) {
    PyObject *was = PyDict_GetItemWithError(p->held, name);
    found += was != NULL;
    if (!was || !is_as_pictured(name, was, value)) same &= may_differ(c, r, dict, name, was, value);
  }
  bool all = found == PyDict_GET_SIZE(p->held);
  for (Py_ssize_t at = 0; !all && PyDict_Next(p->held, &at, &name, &value);)
    if (!PyDict_GetItemWithError(dict, name)) same &= may_differ(c, r, dict, name, value, NULL);
  PyErr_Clear();
  if (same) p->version = version;
  return same;
}

bool wk__type_is_as_pictured(wk__compiled *c, const wk__recording *r, PyTypeObject *type) {
  if (wk__map_get(&r->whole_types, key_of(type))) return false; /* C code may have looked at anything */
  const wk__class_picture *own = picture_of(r, type);
  if (!own) wk__mark_changing(c, path_of_type(type), 0);
  if (!own || own->mro != type->tp_mro) return false;
  bool same = true;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); i++) {
    PyTypeObject *class = (PyTypeObject *)PyTuple_GET_ITEM(type->tp_mro, i);
    if (wk__type_is_fixed(class)) continue;
    wk__class_picture *p = picture_of(r, class);
    same &= p && class_is_as_pictured(c, r, p);
  }
  return same;
}

/* ==================================================== look-ups =================================================== */

static int guard_name(wk__frame *f, wk__recording *r, PyObject *dict, PyObject *name, PyObject *value) {
  wk__reg reg = wk__globals_register(r, dict);
  if (reg < 0 || wk__map_set(&r->names_guarded, wk__path_of_name(dict, name), dict) != WK_OK) return -1;
  if (value) return wk__observe(r, BINDING, value, WK__READ_DICT, reg, -1, name);
  wk__check_once(r, WK__CHECK_ABSENT, reg, 0, name);
  return 0;
}

/* One class of those that a name is looked for in. */
static wk__in_classes look_up(wk__frame *f, wk__recording *r, PyTypeObject *class, PyObject *name, bool *out_there,
                              PyObject **out_new) {
  PyObject *dict = wk__type_dict(class), *value = PyDict_GetItemWithError(dict, name);
  wk__reg reg = wk__reg_find(r, dict);
  *out_there = value;
  if (reg >= 0 && wk__was_written(r, reg, name)) return value ? WK__WRITTEN_IN_CLASSES : WK__NOT_IN_CLASSES;
  uint64_t path = wk__path_of_name(dict, name);
  if (wk__map_set(&r->names_asked, path, dict) != WK_OK) return WK__CLASSES_FAILED;
  bool apart = r->changing && wk__map_get(r->changing, path);
  apart |= value && wk__has_destructor(value); /* which a constant of the segment would put off */
  if (!apart || is_special(name) || (value && !is_data(value))) return WK__NOT_IN_CLASSES;
  r->last_fresh = NULL;
  if (guard_name(f, r, dict, name, value) < 0) return WK__CLASSES_FAILED;
  if (!value) return WK__NOT_IN_CLASSES;
  *out_new = wk__as_read(r, value);
  return WK__READ_IN_CLASSES;
}

wk__in_classes wk__look_up_in_classes(wk__frame *f, wk__recording *r, PyTypeObject *type, PyObject *first,
                                      PyObject *name, PyObject **out_new) {
  bool behind = first == NULL, there = false;
  for (Py_ssize_t i = 0; type->tp_mro && i < PyTuple_GET_SIZE(type->tp_mro) && !there; i++) {
    PyObject *class = PyTuple_GET_ITEM(type->tp_mro, i);
    bool looked_at = behind;
    behind |= class == first;
    if (!looked_at) continue;
    if (wk__type_is_fixed((PyTypeObject *)class) || wk__is_made_class(r, class)) {
      there = PyDict_Contains(wk__type_dict((PyTypeObject *)class), name) == 1;
      continue;
    }
    wk__in_classes how = look_up(f, r, (PyTypeObject *)class, name, &there, out_new);
    if (how == WK__CLASSES_FAILED && !r->failed[0]) wk__record_no_memory(r);
    if (how != WK__NOT_IN_CLASSES) return how;
  }
  return WK__NOT_IN_CLASSES;
}

/* ==================================================== changes ==================================================== */

/* What was found there before the change becomes a guard of its own. What no look-up has come by is none. */
static int guard_before_change(wk__frame *f, wk__recording *r, PyObject *dict, wk__reg reg, PyObject *name,
                               bool deleted) {
  if (wk__was_written(r, reg, name)) return 0;
  PyObject *old = PyDict_GetItemWithError(dict, name);
  uint64_t path = wk__path_of_name(dict, name);
  bool asked = wk__map_get(&r->names_asked, path);
  if (asked) return old && !is_data(old) ? 0 : guard_name(f, r, dict, name, old);
  if (deleted) wk__check_once(r, old ? WK__CHECK_PRESENT : WK__CHECK_ABSENT, reg, 0, name);
  return wk__map_set(&r->names_guarded, path, dict) == WK_OK ? 0 : wk__record_no_memory(r);
}

int wk__set_usual_attribute_of_class(wk__frame *f, wk__recording *r, PyObject *class, PyObject *name, PyObject *value) {
  PyTypeObject *type = (PyTypeObject *)class;
  setattrofunc set = PyType_Type.tp_setattro;
  if (wk__type_is_fixed(type)) return set(class, name, value); /* a TypeError */
  if (is_special(name)) return wk__refused(f, "a special attribute of a class is set");
  PyObject *dict = wk__type_dict(type), *items[] = {class, value};
  wk__reg reg = wk__globals_register(r, dict);
  bool known = reg >= 0 && guard_before_change(f, r, dict, reg, name, !value) == 0 && note_before_change(r, type) == 0;
  if (!known) return wk__failed_int(f, r);
  if (wk__note_replaced(f, r, dict, name) < 0) return -1;
  if (!value && !PyDict_GetItemWithError(dict, name)) return set(class, name, value); /* an AttributeError */
  if (wk__did(r, BINDING, WK__DO_SET_ATTR, NULL, items, 2, name) < 0) return wk__failed_int(f, r);
  int64_t step = r->step_count - 1;
  int status;
  LETTING_GO(status, set(class, name, value));
  wk__tried(f, r, step, status == 0, true);
  if (status == 0 && wk__recording_of(f) == r) wk__mark_written(r, reg, name);
  return status;
}

int wk__set_attribute_of_class(wk__frame *f, wk__recording *r, PyObject *class, PyObject *name, PyObject *value) {
  PyTypeObject *meta = Py_TYPE(class);
  if (wk__depend_on_look_ups(r, meta) < 0) return wk__failed_int(f, r);
  if (wk__type_is_fixed((PyTypeObject *)class)) return wk__plain_set_attr(f, class, name, value); /* a TypeError */
  PyObject *in_meta = wk__type_attribute(meta, name);
  bool set_by_it = in_meta && Py_TYPE(in_meta)->tp_descr_set;
  bool of_python = set_by_it && (Py_TYPE(in_meta) == &PyProperty_Type || wk__is_python_instance(in_meta));
  if (set_by_it && !of_python) return wk__refused(f, "a special attribute of a class is set");
  if (of_python || meta->tp_setattro != PyType_Type.tp_setattro)
    return wk__plain_set_attr(f, class, name, value); /* what it does is recorded where it does it */
  return wk__set_usual_attribute_of_class(f, r, class, name, value);
}
