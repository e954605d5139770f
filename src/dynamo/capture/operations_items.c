/* Attributes and items while something is captured, read, set and deleted: the real thing, and a note of it. What is
 * said in operations.c holds here, too. Tests: tests/python/capture/. */
#include "dynamo/capture/operations.h"

#include "autograd/autograd.h"
#include "dynamo/capture/class_attributes.h"
#include "dynamo/capture/ends.h"
#include "dynamo/capture/operation_parts.h"
#include "dynamo/reads.h"

/* A name of a module, here or there: in its dictionary. */
int wk__set_in_module(wk__frame *f, wk__recording *r, PyObject *dict, PyObject *name, PyObject *value) {
  PyObject *items[] = {dict, name, value};
  wk__reg reg = wk__globals_register(r, dict);
  if (reg < 0 || (!value && wk__note_presence(f, r, dict, name) < 0)) return wk__failed_int(f, r);
  if (wk__note_replaced(f, r, dict, name) < 0) return -1;
  if (wk__did(r, BINDING, WK__DO_SET_ITEM, NULL, items, 3, NULL) < 0) return wk__failed_int(f, r);
  int64_t step = r->step_count - 1;
  int status;
  LETTING_GO(status, wk__plain_set_item(f, dict, name, value));
  wk__tried(f, r, step, status == 0, true);
  if (status == 0) wk__mark_written(r, reg, name);
  return status;
}

/* ============================================ attributes and items =============================================== */

/* Methods of a proxy are those of what it shows. */
static PyObject *owner_of_method(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name) {
  if (WK_UNLIKELY(PyWeakref_CheckProxy(owner))) return wk__behind_weak_proxy(f, r, owner);
  if (WK_LIKELY(Py_TYPE(owner) != &PyDictProxy_Type)) return owner;
  PyObject *in_class = wk__type_attribute(&PyDictProxy_Type, name);
  return in_class && Py_TYPE(in_class) == &PyMethodDescr_Type ? wk__behind_proxy(f, r, owner) : owner;
}

PyObject *wk__op_attr(wk__frame *f, PyObject *owner, PyObject *name) {
  RECORDING(wk__plain_attr(f, owner, name));
  owner = owner_of_method(f, r, owner, name);
  return owner ? wk__get_attribute(f, r, owner, name) : NULL;
}

PyObject *wk__op_method(wk__frame *f, PyObject *owner, PyObject *name, PyObject **out_self) {
  RECORDING(wk__plain_method(f, owner, name, out_self));
  *out_self = NULL;
  owner = owner_of_method(f, r, owner, name);
  if (!owner) return NULL;
  PyObject *found = wk__get_attribute(f, r, owner, name);
  PyObject *in_class = found && PyCFunction_Check(found) ? wk__type_attribute(Py_TYPE(owner), name) : NULL;
  if (in_class && Py_TYPE(in_class) == &PyMethodDescr_Type && PyCFunction_GET_SELF(found) == owner) {
    *out_self = Py_NewRef(owner); /* the function and self instead of an object that binds them */
    Py_DECREF(found);
    return Py_NewRef(in_class);
  }
  if (!found || !PyMethod_Check(found)) return found;
  PyObject *function = Py_NewRef(PyMethod_GET_FUNCTION(found));
  *out_self = Py_NewRef(PyMethod_GET_SELF(found));
  Py_DECREF(found);
  return function;
}

/* One that stands in the tensor's dictionary: a region's own tensor gets it again when somebody can see it. */
static int set_own_attribute(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name, PyObject *value) {
  PyTypeObject *type = Py_TYPE(owner);
  PyObject *in_class = wk__type_attribute(type, name), *items[] = {owner, value};
  bool by_code =
      (in_class && Py_TYPE(in_class)->tp_descr_set) || type->tp_setattro != BINDING->tensor_type->tp_setattro;
  if (by_code || !value) return wk__refused(f, "an attribute of a tensor is set by code of its class, or deleted");
  wk__reg reg = wk__reg_find(r, owner);
  if (reg < 0) return wk__plain_set_attr(f, owner, name, value);
  if (wk__did(r, BINDING, WK__DO_SET_ATTR, NULL, items, 2, name) < 0) return wk__failed_int(f, r);
  int64_t step = r->step_count - 1;
  int status;
  LETTING_GO(status, wk__plain_set_attr(f, owner, name, value));
  wk__tried(f, r, step, status == 0, true);
  if (status == 0 && wk__recording_of(f) == r) wk__mark_written(r, reg, name);
  return status;
}

/* x.data = y: x looks at y's memory from now on, also at replay, where y is what the graph made or found. */
static int set_data(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name, PyObject *value) {
  PyObject *items[] = {owner, value};
  bool plain = Py_TYPE(owner)->tp_setattro == BINDING->tensor_type->tp_setattro && value &&
               wk__is_tensor_object(f, value) && !f->session->compiled->options.backend;
  if (!plain || !wk__is_foreign(r, owner) || owner == value)
    return wk__refused(f, "the data of a tensor that the region has made are set, or deleted");
  if (wk__did(r, BINDING, WK__DO_SET_ATTR, NULL, items, 2, name) < 0) return wk__failed_int(f, r);
  int64_t step = r->step_count - 1;
  wk__tracer_let_become(f->session->tracer, BINDING->tensor_of(owner));
  int status = wk__plain_set_attr(f, owner, name, value);
  wk__tracer_let_become(f->session->tracer, NULL);
  wk__tried(f, r, step, status == 0, true);
  if (status == 0 && wk__recording_of(f) == r) wk__mark_written(r, wk__reg_find(r, owner), name);
  return status;
}

bool wk__set_requires_grad(const wk__frame *f, PyObject *tensor, bool requires_grad) {
  wk_tensor *t = BINDING->tensor_of(tensor);
  bool does = t->keys & WK__KEY_AUTOGRAD;
  if (does == requires_grad) return requires_grad || !wk__grad_fn(t);
  bool own = t->trace && !wk__is_foreign(wk__recording_of(f), tensor);
  bool unused = own && wk_is_leaf(t) && !(t->autograd && t->autograd->accumulator); /* no tape leads to it */
  if (does && unused) return wk_set_requires_grad(t, false) == WK_OK;
  bool made_here =
      !does && t->trace && !wk__is_foreign(wk__recording_of(f), tensor) && wk_dtype_is_floating((wk_dtype)t->dtype);
  if (!made_here || wk_set_requires_grad(t, true) != WK_OK) return false;
  wk__trace_made_leaf(t);
  return true;
}

static int set_attribute_of_tensor(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name, PyObject *value) {
  bool flag = PyUnicode_CompareWithASCIIString(name, "requires_grad") == 0 && value && PyBool_Check(value);
  bool plain = Py_TYPE(owner)->tp_setattro == BINDING->tensor_type->tp_setattro;
  if (flag && plain && wk__set_requires_grad(f, owner, value == Py_True)) return 0;
  if (PyUnicode_CompareWithASCIIString(name, "data") == 0) return set_data(f, r, owner, name, value);
  if (name != BINDING->grad_name) return set_own_attribute(f, r, owner, name, value);
  if (!value || (value != Py_None && !wk__is_tensor_object(f, value)))
    return wk__refused(f, "the gradient of a tensor is deleted, or set to something else");
  PyObject *items[] = {owner, value == Py_None ? NULL : value};
  if (wk__did(r, BINDING, WK__DO_SET_GRAD, NULL, items, 2, NULL) < 0) return wk__failed_int(f, r);
  int64_t step = r->step_count - 1;
  int status = wk__plain_set_attr(f, owner, name, value);
  wk__tried(f, r, step, status == 0, true);
  if (status == 0) wk__mark_written(r, wk__reg_find(r, owner), name);
  return status;
}

/* Of the class itself, or one of its own. */
static bool registers_as_usual(const wk__frame *f, PyTypeObject *type) {
  PyObject *name = PyUnicode_InternFromString("register_parameter");
  PyTypeObject *module = type;
  while (module && module->tp_base != f->session->binding->module_type) module = module->tp_base;
  bool usual = name && module && wk__type_attribute(type, name) == wk__type_attribute(module, name);
  Py_XDECREF(name);
  return usual;
}

/* Which of a module's dictionaries gets the value is decided by what the value is and by where the name stands: that
 * becomes known. A part is taken out of the others. `out_written`: (WK__MODULE_PARTS) the registers of dictionaries
 * that change, -1. 0, or -1: refused. */
static int find_part(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name, PyObject *value,
                     wk__reg *out_written) {
  bool tensor = wk__is_tensor_object(f, value), parameter = Py_TYPE(value) == *BINDING->parameter_type;
  bool part = parameter || PyObject_TypeCheck(value, BINDING->module_type);
  if (tensor && !parameter && Py_TYPE(value) != BINDING->tensor_type)
    return wk__refused(f, "a tensor of a class of its own is set in a module");
  wk__reg parts[WK__MODULE_PARTS];
  int found;
  if (wk__module_parts(f, r, owner, name, parts, &found) < 0) return wk__failed_int(f, r);
  if ((part || found == WK__PART_PARAMETERS) && !registers_as_usual(f, Py_TYPE(owner)))
    return wk__refused(f, "a module that registers its parameters itself");
  for (int k = 0; k < WK__MODULE_PARTS; k++) out_written[k] = part || k == found ? parts[k] : -1;
  return 0;
}

/* An attribute that lands in the owner's dictionary or slots, and is set there again at replay. `written`: a module's
 * parts that change, (WK__MODULE_PARTS) -1: not this one. */
static int set_and_note(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name, PyObject *value,
                        const wk__reg *written, setattrofunc set) {
  if (!wk__is_foreign(r, owner) && wk__reg_find(r, owner) < 0)
    return wk__note_attribute_replaced(f, r, owner, name) < 0 ? -1 : set(owner, name, value);
  PyObject *items[] = {owner, value};
  wk__reg reg = wk__reg_find(r, owner);
  if (wk__is_foreign(r, owner) && wk__instance_dict(f, r, reg, owner) < 0 && r->failed[0]) return wk__failed_int(f, r);
  if (!value && wk__note_presence(f, r, owner, name) < 0) return r->failed[0] ? wk__failed_int(f, r) : -1;
  PyObject **dict = wk__instance_dict_place(owner);
  if (wk__note_attribute_replaced(f, r, owner, name) < 0) return -1;
  if (wk__did(r, BINDING, WK__DO_SET_ATTR, NULL, items, 2, name) < 0) return wk__failed_int(f, r);
  int64_t step = r->step_count - 1;
  wk__reg dict_reg = dict && *dict ? wk__reg_find(r, *dict) : -1;
  if (dict_reg >= 0 && wk__keep_before(r, dict_reg) < 0) return -1;
  for (int k = 0; k < WK__MODULE_PARTS; k++)
    if (written[k] >= 0 && wk__keep_before(r, written[k]) < 0) return -1;
  int status;
  LETTING_GO(status, set(owner, name, value));
  wk__tried(f, r, step, status == 0, true);
  if (status < 0 || wk__recording_of(f) != r) return status;
  wk__mark_written(r, wk__reg_find(r, owner), name);
  if (dict_reg >= 0) wk__mark_written(r, dict_reg, name);
  for (int k = 0; k < WK__MODULE_PARTS; k++)
    if (written[k] >= 0) wk__mark_written(r, written[k], name);
  return 0;
}

static bool has_setter_of_python(PyTypeObject *type, PyObject *name) {
  PyObject *in_class = wk__type_attribute(type, name);
  return in_class && Py_TYPE(in_class)->tp_descr_set && Py_TYPE(in_class) != &PyMemberDescr_Type;
}

int wk__set_usual_attribute(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name, PyObject *value) {
  static const wk__reg none[WK__MODULE_PARTS] = {-1, -1, -1};
  if (wk__depend_on_look_ups(r, Py_TYPE(owner)) < 0) return wk__failed_int(f, r);
  if (has_setter_of_python(Py_TYPE(owner), name)) return PyObject_GenericSetAttr(owner, name, value);
  return set_and_note(f, r, owner, name, value, none, PyObject_GenericSetAttr);
}

static int set_attribute_of_context(wk__frame *f, wk__recording *r, PyObject *context, PyObject *name,
                                    PyObject *value) {
  bool refused = wk__is_thrown_away(r);
  r->tries_in_vain |= refused;
  return refused ? wk__refused(f, "an attribute of ctx is set by what is only tried")
                 : wk__plain_set_attr(f, context, name, value);
}

/* A thread local, a generator of Python's random numbers. */
static int set_of_c_object(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name, PyObject *value) {
  if (wk__did(r, BINDING, WK__DO_SET_ATTR, NULL, (PyObject *[]){owner, value}, 2, name) < 0)
    return wk__failed_int(f, r);
  int64_t step = r->step_count - 1;
  int status;
  LETTING_GO(status, wk__plain_set_attr(f, owner, name, value));
  wk__tried(f, r, step, status == 0, true);
  if (status == 0 && wk__recording_of(f) == r) wk__mark_written(r, wk__reg_find(r, owner), name);
  return status;
}

static int set_by_property(wk__frame *f, wk__recording *r, PyObject *steal_setter, PyObject *owner, PyObject *value) {
  PyObject *args[] = {owner, value}, *result = NULL;
  if (wk__depend_on_look_ups(r, Py_TYPE(owner)) < 0) return wk__failed_int(f, r);
  result = wk__call_of_property(f, r, steal_setter, args, value ? 2 : 1);
  Py_XDECREF(result);
  return result ? 0 : -1;
}

int wk__op_set_attr(wk__frame *f, PyObject *owner, PyObject *name, PyObject *value) {
  RECORDING(wk__plain_set_attr(f, owner, name, value));
  if (!(owner = wk__behind_weak_proxy(f, r, owner))) return -1;
  PyTypeObject *type = Py_TYPE(owner);
  if (wk__is_tensor_object(f, owner)) return set_attribute_of_tensor(f, r, owner, name, value);
  bool module = PyObject_TypeCheck(owner, BINDING->module_type);
  if (wk__is_own_context(f, owner)) return set_attribute_of_context(f, r, owner, name, value);
  if (wk__is_own_object(r, owner)) return wk__plain_set_attr(f, owner, name, value);
  if (wk__is_made_class(r, owner)) return wk__plain_set_attr(f, owner, name, value);
  if (PyType_Check(owner)) return wk__set_attribute_of_class(f, r, owner, name, value);
  if (PyModule_CheckExact(owner) && value) return wk__set_in_module(f, r, PyModule_GetDict(owner), name, value);
  bool of_c = wk__is_thread_local(r, owner) || (wk__is_foreign(r, owner) && wk__is_random(owner));
  if (of_c && value) return set_of_c_object(f, r, owner, name, value);
  if (!module && !wk__is_python_instance(owner) && !PyFunction_Check(owner))
    return wk__refused(f, "an attribute of an object that C code owns is set");
  if (module && wk__reg_find(r, owner) < 0) return wk__plain_set_attr(f, owner, name, value);
  PyObject *special = wk__special_of_c(owner, value ? "__setattr__" : "__delattr__");
  if (special) return wk__set_by_special(f, r, special, owner, name, value);
  wk__reg written[WK__MODULE_PARTS] = {-1, -1, -1};
  if (module && value && find_part(f, r, owner, name, value, written) < 0) return -1;
  PyObject *in_class = wk__type_attribute(type, name), *setter = NULL;
  if (in_class && Py_TYPE(in_class) == &PyProperty_Type)
    setter = wk__c_part_of_property(in_class, value ? "fset" : "fdel");
  if (setter) return set_by_property(f, r, setter, owner, value);
  if (has_setter_of_python(type, name) || (type->tp_setattro != PyObject_GenericSetAttr && !module))
    return wk__plain_set_attr(f, owner, name, value); /* what it does is recorded where it does it */
  return set_and_note(f, r, owner, name, value, written, PyObject_SetAttr);
}

/* What a dictionary does about a key that it has not: guarded to be missing. A defaultdict puts in what its factory
 * gives; a class with __missing__, or an error, is found by C code. reg: -1: the region has made it. */
static PyObject *missing_item(wk__frame *f, wk__recording *r, wk__reg reg, PyObject *owner, PyObject *key) {
  PyObject *hook = PyUnicode_InternFromString("__missing__");
  PyObject *missing = hook ? wk__type_attribute(Py_TYPE(owner), hook) : NULL;
  Py_XDECREF(hook);
  if (!missing || PyFunction_Check(missing)) return PyObject_GetItem(owner, key);
  bool by_factory = Py_TYPE(missing) == &PyMethodDescr_Type && wk__is_default_dict(PyDescr_TYPE(missing));
  if (!by_factory) return wk__refuse(f, "a missing key of a %s", Py_TYPE(owner)->tp_name);
  PyObject *name = PyUnicode_InternFromString("default_factory"), *item = NULL;
  PyObject *factory = name ? PyObject_GetAttr(owner, name) : NULL;
  if (factory && reg >= 0 && wk__observe(r, BINDING, factory, WK__READ_ATTRIBUTE, reg, 0, name) < 0)
    item = wk__failed(f, r);
  else if (factory)
    item = factory == Py_None ? PyObject_GetItem(owner, key) : wk__called_within(f, r, factory);
  Py_XDECREF(name);
  Py_XDECREF(factory);
  int status = item && factory != Py_None ? wk__op_set_item(f, owner, key, item) : 0;
  if (status < 0 && !PyErr_Occurred()) { /* the factory has been called, so the instruction cannot be done again */
    wk__session_give_up(f->session, f->session->reason);
    status = wk__plain_set_item(f, owner, key, item);
  }
  if (status < 0) Py_CLEAR(item);
  return item;
}

/* Of values, and classes and functions from outside: equal to another one in each call. */
static bool is_tuple_of_constants(wk__frame *f, wk__recording *r, PyObject *key) {
  if (!PyTuple_CheckExact(key) || wk__reg_find(r, key) >= 0) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++) {
    PyObject *item = PyTuple_GET_ITEM(key, i);
    if (wk__is_plain_value(BINDING, item) && !wk__is_identity(r, item)) continue;
    bool constant = (PyType_Check(item) && !wk__is_made_class(r, item)) || PyFunction_Check(item);
    if (!constant || (PyFunction_Check(item) && !wk__is_foreign(r, item)) || wk__reg_constant(r, item) < 0)
      return false;
  }
  return true;
}

static bool is_own_frozen_set(wk__frame *f, const wk__recording *r, PyObject *key) {
  bool own = PyFrozenSet_CheckExact(key) && wk__reg_find(r, key) < 0;
  return own && wk__has_constant_hash(f, key) && wk__keys_usable(f, key);
}

static bool asks_python(wk__frame *f, PyObject *weak) {
  PyObject *referent = wk__weak_referent(weak);
  bool asks = !wk__hashes_its_address(f, referent);
  Py_DECREF(referent);
  return asks;
}

/* weakref.ref(o) as key: each call makes its own of what it has found. */
static wk__reg weak_key(wk__frame *f, wk__recording *r, PyObject *key) {
  if (Py_TYPE(key) != wk__weak_reference_type() || !wk__is_own_object(r, key)) return -1;
  PyObject *referent = wk__weak_referent(key);
  wk__reg reg = wk__is_foreign(r, referent) && wk__hashes_its_address(f, referent) ? wk__reg_find(r, referent) : -1;
  Py_DECREF(referent);
  bool plain = reg >= 0 && !((PyWeakReference *)key)->wr_callback;
  if (!plain || wk__reg_constant(r, (PyObject *)Py_TYPE(key)) < 0) return -1;
  if (wk__observe(r, BINDING, key, WK__READ_COMPUTED, reg, -1, (PyObject *)Py_TYPE(key)) < 0) return -1;
  return wk__reg_find(r, key);
}

static bool is_fixed_key(const wk__recording *r, PyObject *key) {
  wk__reg reg = wk__reg_find(r, key);
  return reg >= 0 && r->registers[reg].fixed;
}

/* The look-up asks a __hash__ of Python, which is evaluated once: nothing else may ask it, nor be refused behind that.
 * Guards find the key by its identity. */
static bool is_found_as_itself(wk__recording *r, wk__reg dict, PyObject *owner, PyObject *key) {
  bool known = wk__is_foreign(r, key) && wk__reg_find(r, key) >= 0 && dict >= 0;
  const wk__register *g = known ? &r->registers[dict] : NULL;
  return g && !g->written && !g->names && wk__from_dict_by_identity(owner, key) && wk__reg_constant(r, key) >= 0;
}

/* A dict's item, or that it has none. */
static PyObject *item_of_dict(wk__frame *f, wk__recording *r, wk__reg reg, PyObject *owner, PyObject *key) {
  if (Py_TYPE(key) == wk__weak_reference_type() && asks_python(f, key))
    return wk__refuse(f, "a weak reference as key, whose object is compared by Python code");
  bool by_python = !wk__is_plain_value(BINDING, key) && !is_fixed_key(r, key) && wk__hashes_by_python(key);
  if (by_python && !is_found_as_itself(r, reg, owner, key))
    return wk__refuse(f, "a dict's key whose hash Python code gives");
  PyObject *found = PyDict_GetItemWithError(owner, key);
  if (!found && PyErr_Occurred()) return NULL;
  bool plain =
      by_python || wk__is_plain_value(BINDING, key) || is_tuple_of_constants(f, r, key) || is_own_frozen_set(f, r, key);
  wk__reg key_reg = plain ? -1 : wk__reg_find(r, key);
  bool written = wk__was_written(r, reg, key);
  wk__reg weak = found && !written && key_reg < 0 && !plain ? weak_key(f, r, key) : -1;
  if (weak >= 0) key_reg = weak;
  bool again = !plain && (weak >= 0 || wk__is_asked_again(f, r, key, key_reg));
  if (found && written && Py_TYPE(key) == wk__weak_reference_type() && wk__usable(f, key)) return Py_NewRef(found);
  if (!plain && !again && (key_reg < 0 || !r->registers[key_reg].fixed))
    return wk__refuse(f, "a dict's key that is no plain value");
  if (again) wk__note_written_keys(r, reg, key);
  wk__reg by = again ? key_reg : -1;
  PyObject *constant = again ? NULL : key;
  if (!found && !written) wk__check_once(r, WK__CHECK_ABSENT, reg, by, constant);
  if (!found) return missing_item(f, r, reg, owner, key);
  if (!written && wk__is_identity(r, key)) return wk__refuse(f, "an id() that is a key of something from outside");
  r->last_fresh = NULL;
  int noted = written ? 0 : wk__observe(r, BINDING, found, WK__READ_DICT, reg, by, constant);
  return noted < 0 ? wk__failed(f, r) : wk__as_read(r, found);
}

/* The method is that of a dictionary or list, be it inherited: a class written in Python may have one of its own, which
 * is evaluated. */
static bool has_builtin_method(PyObject *o, const char *text) {
  PyTypeObject *const kinds[] = {&PyDict_Type, &PyODict_Type, &PyList_Type};
  if (wk__is_deque(o)) return true;
  PyObject *name = PyUnicode_InternFromString(text), *method = name ? wk__type_attribute(Py_TYPE(o), name) : NULL;
  bool found = false;
  for (size_t i = 0; method && i < WK_COUNT(kinds); i++)
    found |= PyObject_TypeCheck(o, kinds[i]) && method == wk__type_attribute(kinds[i], name);
  Py_XDECREF(name);
  return found;
}
static bool has_dict_items(PyObject *o) {
  return PyDict_CheckExact(o) || (PyDict_Check(o) && has_builtin_method(o, "__getitem__"));
}

/* Its items are taken out by C code that looks at none of them. */
static bool takes_references(const wk__frame *f, PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  return t == &PyList_Type || t == &PyDict_Type || t == BINDING->size_type || wk__is_deque(o) ||
         (PyTuple_Check(o) && t->tp_as_mapping->mp_subscript == PyTuple_Type.tp_as_mapping->mp_subscript);
}

/* The place of an item of a list or tuple from outside that is not written, of which nothing else has been looked
 * at; -1: it is no such item. A place from the end depends on the length. */
static Py_ssize_t place_of_item(const wk__frame *f, wk__recording *r, wk__reg reg, PyObject *owner, PyObject *key) {
  const wk__register *g = &r->registers[reg];
  wk_int symbolic;
  bool sequence =
      PyList_CheckExact(owner) || wk__is_deque(owner) || (PyTuple_Check(owner) && takes_references(f, owner));
  bool as_found = g->kind == WK__REG_READ && !g->written && !g->before && !g->touched;
  if (!sequence || !as_found || Py_TYPE(owner) == BINDING->size_type) return -1;
  if (!PyLong_CheckExact(key) || wk__symbolic_int(r, key, &symbolic)) return -1;
  Py_ssize_t count = Py_SIZE(owner), i = PyLong_AsSsize_t(key);
  if (i == -1 && PyErr_Occurred()) PyErr_Clear();
  if (i >= count || i < -count) return -1;
  if (i < 0) wk__check(r, WK__CHECK_LENGTH, reg, count, NULL);
  return i < 0 ? i + count : i;
}

static bool appends(const wk__recording *r, const wk__do *step) {
  if (step->kind == WK__DO_APPEND) return true;
  PyObject *method = step->kind == WK__DO_IMPURE_CALL ? r->registers[step->items[0]].object : NULL;
  PyObject *name = method ? PyUnicode_InternFromString("append") : NULL;
  bool same = name && method == wk__type_attribute(&PyList_Type, name);
  Py_XDECREF(name);
  return same;
}

/* The item that a step sets, in *out; false: it does something else. */
static bool sets_place(const wk__recording *r, const wk__do *step, Py_ssize_t *out) {
  PyObject *key = step->kind == WK__DO_SET_ITEM && step->items[2] >= 0 ? r->registers[step->items[1]].object : NULL;
  if (!key || !PyLong_CheckExact(key)) return false;
  *out = PyLong_AsSsize_t(key);
  return *out != -1 || !PyErr_Occurred();
}

/* Whether the region itself has put the item there, whatever was in the list before: an item that was set, or, from the
 * end, one that was appended. */
static bool was_put(const wk__recording *r, wk__reg reg, Py_ssize_t place) {
  Py_ssize_t appended = 0, set;
  for (int64_t i = r->step_count - 1; i >= 0; i--) {
    const wk__do *step = &r->steps[i];
    bool own = step->count > 1 && step->items[step->kind == WK__DO_IMPURE_CALL ? 1 : 0] == reg;
    if (!own || step->undone || !wk__is_effect(r, step->kind, step->items)) continue;
    if (appends(r, step)) {
      if (place < 0 && -place <= ++appended) return true;
    } else if (!sets_place(r, step, &set) || (set < 0) != (place < 0) || (set < 0 && appended)) {
      PyErr_Clear();
      return false;
    } else if (set == place) {
      return true;
    }
  }
  return false;
}

/* -> borrowed, or NULL: it has to be asked for. */
static PyObject *item_that_was_put(wk__recording *r, wk__reg reg, PyObject *owner, PyObject *key) {
  wk_int symbolic;
  bool plain = PyList_CheckExact(owner) && PyLong_CheckExact(key) && !wk__symbolic_int(r, key, &symbolic);
  if (!plain || !r->registers[reg].written) return NULL;
  Py_ssize_t place = PyLong_AsSsize_t(key), count = PyList_GET_SIZE(owner);
  if (place == -1 && PyErr_Occurred()) PyErr_Clear();
  if (place >= count || place < -count || !was_put(r, reg, place)) return NULL;
  return PyList_GET_ITEM(owner, place < 0 ? place + count : place);
}

static PyObject *item_of_sequence(wk__frame *f, wk__recording *r, wk__reg reg, PyObject *owner, Py_ssize_t place) {
  PyObject *found = wk__from_sequence(owner, place);
  r->last_fresh = NULL;
  if (wk__observe(r, BINDING, found, WK__READ_ITEM, reg, place, NULL) < 0) return wk__failed(f, r);
  /* Whoever gets it may look at what it holds. */
  bool given = r->last_fresh || wk__holds_changing(r, found) || wk__passed_on(f, found);
  return given ? wk__as_read(r, found) : NULL;
}

/* The region has made the dictionary, others can see it, and it has no such key: what it puts there is noted. */
static bool is_missing_of_seen(const wk__recording *r, PyObject *owner, PyObject *key) {
  if (!PyDict_Check(owner) || PyDict_CheckExact(owner) || wk__reg_find(r, owner) < 0) return false;
  bool missing = has_dict_items(owner) && !PyDict_GetItemWithError(owner, key);
  PyErr_Clear(); /* it comes again */
  return missing;
}

PyObject *wk__op_item(wk__frame *f, PyObject *owner, PyObject *key) {
  RECORDING(wk__plain_item(f, owner, key));
  owner = wk__behind_proxy(f, r, owner);
  PyObject *special = wk__special_of_c(owner, "__getitem__");
  if (special) return wk__call_special(f, r, special, owner, &key, 1, NULL);
  if (PyDict_Check(owner)) wk__settle(r, key);
  wk__reg reg = wk__is_foreign(r, owner) ? wk__reg_find(r, owner) : -1;
  if (reg >= 0 && has_dict_items(owner)) return item_of_dict(f, r, reg, owner, key);
  Py_ssize_t place = reg >= 0 ? place_of_item(f, r, reg, owner, key) : -1;
  if (place >= 0) return item_of_sequence(f, r, reg, owner, place);
  PyObject *put = reg >= 0 ? item_that_was_put(r, reg, owner, key) : NULL;
  if (put) return Py_NewRef(put);
  if (reg < 0 && is_missing_of_seen(r, owner, key)) return missing_item(f, r, -1, owner, key);
  if (PyType_Check(owner)) return wk__plain_item(f, owner, key); /* list[int] */
  bool tensor = wk__is_tensor_object(f, owner);
  if (!(takes_references(f, owner) ? wk__passed_on(f, owner) : wk__usable(f, owner))) return NULL;
  bool keyed = PyDict_Check(owner);
  if (!(tensor ? wk__index_usable(f, key) : keyed ? wk__keys_usable(f, key) : wk__usable(f, key))) return NULL;
  if (keyed) wk__note_search(f, r, owner, key);
  return wk__plain_item(f, owner, key);
}

int wk__did_set_item(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *key, PyObject *value) {
  PyObject *items[] = {owner, key, value};
  bool dict = PyDict_Check(owner);
  if (!value && dict && wk__note_presence(f, r, owner, key) < 0) return r->failed[0] ? wk__failed_int(f, r) : -1;
  bool plain = wk__is_plain_value(BINDING, key);
  if (wk__note_replaced(f, r, owner, key) < 0) return -1;
  if (wk__did(r, BINDING, WK__DO_SET_ITEM, NULL, items, 3, NULL) < 0) return wk__failed_int(f, r);
  int64_t step = r->step_count - 1;
  wk__reg reg = wk__reg_find(r, owner);
  bool names = dict && r->registers[reg].is_globals;
  if ((PyList_Check(owner) || wk__is_deque(owner) || (dict && !names)) && wk__keep_before(r, reg) < 0) return -1;
  int status;
  if (plain)
    LETTING_GO(status, wk__plain_set_item(f, owner, key, value));
  else
    status = wk__plain_set_item(f, owner, key, value); /* Python code may compare the key, or give the items */
  wk__tried(f, r, step, status == 0, true);
  if (status == 0 && wk__recording_of(f) == r) wk__mark_written(r, reg, dict ? key : NULL);
  return status;
}

/* A place of a list from outside as it was found: all that matters is how many items there are. */
static bool place_is_there(wk__frame *f, wk__recording *r, PyObject *list, PyObject *key) {
  wk__reg reg = wk__reg_find(r, list);
  if (!wk__is_foreign(r, list)) return false;
  if (item_that_was_put(r, reg, list, key)) return true;
  Py_ssize_t place = place_of_item(f, r, reg, list, key);
  if (place < 0) return false;
  wk__check_once(r, WK__CHECK_LENGTH, reg, Py_SIZE(list), NULL);
  return true;
}

int wk__op_set_item(wk__frame *f, PyObject *owner, PyObject *key, PyObject *value) {
  RECORDING(wk__plain_set_item(f, owner, key, value));
  bool builtin = has_builtin_method(owner, value ? "__setitem__" : "__delitem__");
  if (wk__is_tensor_object(f, owner)) {
    if (!wk__index_usable(f, key) || (value && !wk__usable(f, value))) return -1;
    return wk__plain_set_item(f, owner, key, value);
  }
  PyObject *special = wk__special_of_c(owner, value ? "__setitem__" : "__delitem__");
  if (special) return wk__set_by_special(f, r, special, owner, key, value);
  wk__settle(r, key);
  if (PyDict_Check(owner) && (value || wk__is_own_object(r, owner))) wk__note_key(f, r, owner, key);
  bool by_python = wk__is_python_instance(owner) || PyObject_TypeCheck(owner, BINDING->module_type);
  if (wk__is_own_object(r, owner))
    return value && !wk__usable(f, value) ? -1 : wk__plain_set_item(f, owner, key, value);
  if (!builtin && !by_python) return wk__refused(f, "an item of an object that C code owns is set");
  if (builtin && wk__reg_find(r, owner) >= 0) {
    bool list = PyList_Check(owner) || wk__is_deque(owner);
    if (list && !place_is_there(f, r, owner, key) && !wk__usable(f, owner)) return -1;
    return wk__did_set_item(f, r, owner, key, value);
  }
  if (builtin && wk__note_replaced(f, r, owner, key) < 0) return -1;
  return wk__plain_set_item(f, owner, key, value);
}
