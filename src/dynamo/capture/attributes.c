/* Attributes of objects as a region sees them. In: an object and a name. Out: the attribute, with a read or check for
 * everything that decided which one it is. Tests: tests/python/capture/test_guards.py. */
#include "autograd/autograd.h"
#include "compile/control/control.h"
#include "dynamo/capture/class_attributes.h"
#include "dynamo/capture/classes.h"
#include "dynamo/capture/known.h"
#include "dynamo/capture/known_calls.h"
#include "dynamo/capture/record_parts.h"
#include "dynamo/cpython/objects.h"
#include "dynamo/reads.h"

#define TEXT(name) PyUnicode_AsUTF8(name)

static PyObject *failed(wk__frame *f, wk__recording *r) { return wk__refuse(f, "%s", r->failed); }

/* Finding an attribute may have run Python code, which may have ended the recording. */
static bool was_given_up(const wk__frame *f, const wk__recording *r) {
  return f->session->mode != WK__MODE_CAPTURE || f->session->recording != r;
}

/* An object found in a class: the same as long as the class's version is. */
static void note_class_value(wk__recording *r, PyObject *found) {
  bool known = wk__reg_find(r, found) >= 0,
       container = PyList_Check(found) || PyDict_Check(found) || PyAnySet_Check(found);
  wk__reg reg = wk__reg_constant(r, found);
  if (reg >= 0 && !known && container) r->registers[reg].of_class = true;
}

static PyObject *class_value(wk__frame *f, wk__recording *r, PyObject *found) {
  if (!wk__is_plain_value(f->session->binding, found) && !PyMethod_Check(found) && !PyCFunction_Check(found) &&
      Py_TYPE(found) != &PySuper_Type && Py_TYPE(found) != wk__method_wrapper_type())
    note_class_value(r, found);
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

typedef enum tensor_attribute { NOT_KNOWN, FACT, TAPE, HISTORY } tensor_attribute;

static tensor_attribute tensor_attribute_of(PyObject *name) {
  static const struct {
    const char *name;
    tensor_attribute kind;
  } rows[] = {
#define ATTRIBUTE(name, kind) {#name, kind},
#include "dynamo/capture/tensor_attributes.def"
#undef ATTRIBUTE
  };
  for (size_t i = 0; i < WK_COUNT(rows); i++)
    if (PyUnicode_CompareWithASCIIString(name, rows[i].name) == 0) return rows[i].kind;
  return NOT_KNOWN;
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

/* is_leaf, grad_fn and output_nr: whether there is a history is guarded. Which one a tensor from outside has is not. */
static PyObject *attribute_of_tape(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name) {
  wk_tensor *t = f->session->binding->tensor_of(owner);
  bool leaf = wk_is_leaf(t), foreign = wk__is_foreign(r, owner);
  if (foreign && !leaf && PyUnicode_CompareWithASCIIString(name, "is_leaf") != 0)
    return wk__refuse(f, "attribute %s of a tensor", TEXT(name));
  if (foreign && t->keys & WK__KEY_AUTOGRAD && !wk__was_written(r, wk__reg_find(r, owner), name))
    wk__check_once(r, WK__CHECK_LEAF, wk__reg_find(r, owner), leaf, NULL);
  PyObject *found = PyObject_GetAttr(owner, name);
  bool node = found && !foreign && (wk__is_own_node(r, found) || wk__is_own_context(f, found));
  if (node) wk__note_node(r, found, owner);
  return found;
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

/* A value or property that stands in a class that derives from Tensor. */
static PyObject *attribute_of_tensor_class(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name,
                                           PyObject *in_class) {
  if (wk__depend_on_type(r, Py_TYPE(owner)) < 0) return failed(f, r);
  f->session->entering = Py_TYPE(in_class) == &PyProperty_Type; /* its getter is evaluated */
  PyObject *found = PyObject_GetAttr(owner, name);
  f->session->entering = false;
  return found;
}

/* What the program has given to a tensor. */
static PyObject *all_own_attributes(wk__frame *f, wk__recording *r, wk__reg reg, PyObject *owner, PyObject *name) {
  PyObject *dict;
  if (!wk__is_foreign(r, owner)) return PyObject_GetAttr(owner, name);
  if (r->registers[reg].written || r->registers[reg].names)
    return wk__refuse(f, "the dictionary of a tensor that has got attributes");
  if (!wk__instance_dict_now(owner)) return PyObject_GetAttr(owner, name);
  return dict_of_instance(f, r, reg, owner, &dict) < 0 ? failed(f, r) : wk__as_read(r, dict);
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
  bool all = PyUnicode_CompareWithASCIIString(name, "__dict__") == 0;
  if (all) return all_own_attributes(f, r, reg, owner, name);
  bool constant = in_class && (wk__is_plain_value(b, in_class) || PyType_Check(in_class));
  bool of_python = constant || (in_class && Py_TYPE(in_class) == &PyProperty_Type);
  if (of_python) return attribute_of_tensor_class(f, r, owner, name, in_class);
  tensor_attribute kind = in_class ? tensor_attribute_of(name) : NOT_KNOWN;
  bool history = kind == TAPE || kind == HISTORY || PyUnicode_CompareWithASCIIString(name, "requires_grad") == 0;
  if (history && r->tries) wk__control_asks(WK__ASKS_HISTORY);
  if (kind == TAPE) return attribute_of_tape(f, r, owner, name);
  bool method = in_class && (PyFunction_Check(in_class) || Py_TYPE(in_class) == &PyMethodDescr_Type ||
                             Py_TYPE(in_class) == &PyWrapperDescr_Type || Py_TYPE(in_class) == b->operator_type);
  if (method || kind == FACT) {
    if (method && PyFunction_Check(in_class)) wk__reg_constant(r, in_class);
    return PyObject_GetAttr(owner, name);
  }
  if (kind == HISTORY && wk__is_computed_here(b->tensor_of(owner)) && !wk__is_foreign(r, owner))
    return history_of_made(f, r, owner, name);
  if (kind == HISTORY) return wk__refuse_as(f, WK__REFUSED_VALUE, "attribute %s of a tensor from outside", TEXT(name));
  return in_class ? wk__refuse(f, "attribute %s of a tensor", TEXT(name)) : own_attribute(f, r, reg, owner, name);
}

static bool is_data_descriptor(PyObject *d) { return d && Py_TYPE(d)->tp_descr_set; }

static bool has_own_getattribute(const PyTypeObject *meta) {
  PyObject *name = PyUnicode_InternFromString("__getattribute__");
  bool own = !name || wk__type_attribute((PyTypeObject *)meta, name) != wk__type_attribute(&PyType_Type, name);
  Py_XDECREF(name);
  return own;
}

/* A name is looked up in a class and in its metaclass, whose data descriptors stand before it. */
static wk__in_classes look_up_in_class(wk__frame *f, wk__recording *r, PyTypeObject *class, PyObject *name,
                                       PyObject **out_new) {
  PyTypeObject *meta = Py_TYPE(class);
  PyObject *in_meta = wk__type_attribute(meta, name);
  wk__in_classes how = WK__NOT_IN_CLASSES;
  if (!is_data_descriptor(in_meta)) how = wk__look_up_in_classes(f, r, class, NULL, name, out_new);
  if (how != WK__NOT_IN_CLASSES || (in_meta && wk__type_attribute(class, name))) return how;
  return wk__look_up_in_classes(f, r, meta, NULL, name, out_new);
}

/* In a type, or through super(): found in classes alone. `get`: as usual, or type.__getattribute__. */
static PyObject *attribute_of_class(wk__frame *f, wk__recording *r, PyTypeObject *type, PyObject *owner, PyObject *name,
                                    getattrofunc get) {
  bool of_type = PyType_Check(owner);
  if (wk__depend_on_look_ups(r, type) < 0) return failed(f, r);
  if (of_type && wk__depend_on_look_ups(r, Py_TYPE(owner)) < 0) return failed(f, r);
  if (of_type && get == PyObject_GetAttr && has_own_getattribute(Py_TYPE(owner)))
    return get(owner, name); /* evaluated */
  PyObject *behind = of_type ? NULL : PyObject_GetAttrString(owner, "__thisclass__"), *found = NULL;
  Py_XDECREF(behind); /* its owner has it */
  wk__in_classes how =
      of_type ? look_up_in_class(f, r, type, name, &found) : wk__look_up_in_classes(f, r, type, behind, name, &found);
  if (how == WK__CLASSES_FAILED) return failed(f, r);
  if (how == WK__READ_IN_CLASSES) return found;
  PyObject *of_metaclass = of_type ? wk__type_attribute(Py_TYPE(owner), name) : NULL;
  bool by_code =
      of_type && !of_metaclass && !wk__type_attribute(type, name); /* the metaclass's __getattr__, evaluated */
  found = get(owner, name);
  if (!found || by_code || was_given_up(f, r) || how == WK__WRITTEN_IN_CLASSES) return found;
  if (of_metaclass && Py_TYPE(of_metaclass) == &PyProperty_Type) return found; /* its getter has been evaluated */
  if (wk__is_found_in_made_class(r, type, behind, name)) return found;
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

/* What stands in a slot of the class (`__slots__`) becomes known, or that nothing does. NULL: so it is, or r->failed is
 * set. */
static PyObject *know_slot(wk__frame *f, wk__recording *r, wk__reg reg, PyObject *owner, PyObject *name) {  // -> new
  PyObject *found = PyObject_GenericGetAttr(owner, name);
  if (!found) PyErr_Clear();
  if (reg < 0 || wk__was_written(r, reg, name)) return found;
  if (!found) wk__check_once(r, WK__CHECK_NO_SLOT, reg, 0, name);
  if (found && wk__observe(r, f->session->binding, found, WK__READ_ATTRIBUTE, reg, 0, name) < 0) Py_CLEAR(found);
  return found;
}

int wk__note_presence(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name) {
  wk__reg reg = wk__is_foreign(r, owner) ? wk__reg_find(r, owner) : -1;
  PyObject *dict = NULL, *in_class = wk__type_attribute(Py_TYPE(owner), name);
  if (reg < 0) return 0;
  if (PyDict_Check(owner)) return note_key(f, r, reg, owner, name);
  bool slot = in_class && Py_TYPE(in_class) == &PyMemberDescr_Type;
  if (slot) Py_XDECREF(know_slot(f, r, reg, owner, name));
  if (slot) return r->failed[0] ? -1 : 0;
  if (PyObject_TypeCheck(owner, f->session->binding->module_type))
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

PyObject *wk__module_part(wk__frame *f, wk__recording *r, PyObject *module, PyObject *name) {
  PyObject *dict;
  wk__reg reg = wk__is_foreign(r, module) ? wk__reg_find(r, module) : -1;
  wk__reg dict_reg = reg >= 0 ? dict_of_instance(f, r, reg, module, &dict) : -1;
  if (r->failed[0]) return failed(f, r);
  return dict_reg < 0 ? NULL : attribute_of_parts(f, r, dict, dict_reg, name);
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

/* A descriptor that stands before the instance's dictionary. `get`: object.__getattribute__, or what the class has in
 * its place. */
static PyObject *through_descriptor(wk__frame *f, wk__recording *r, wk__reg reg, PyObject *owner, PyObject *name,
                                    PyObject *descriptor, getattrofunc get) {
  PyTypeObject *t = Py_TYPE(descriptor);
  PyObject *getter = t == &PyProperty_Type ? wk__c_part_of_property(descriptor, "fget") : NULL;
  if (getter) return wk__call_of_property(f, r, getter, &owner, 1);
  if (t == &PyProperty_Type || !wk__type_is_fixed(t)) {
    f->session->entering = t == &PyProperty_Type && get == PyObject_GetAttr;
    PyObject *found = get(owner, name);
    f->session->entering = false;
    return found;
  }
  bool field = strcmp(wk__type_name(t), "_tuplegetter") == 0; /* its module differs by version */
  if (field) return wk__usable(f, owner) ? get(owner, name) : NULL;
  if (t == &PyMemberDescr_Type) {
    PyObject *found = know_slot(f, r, reg, owner, name);
    return found ? found : r->failed[0] ? failed(f, r) : get(owner, name); /* an error, or __getattr__ */
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
  wk__in_classes how = wk__look_up_in_classes(f, r, type, NULL, name, &found);
  if (how == WK__CLASSES_FAILED) return failed(f, r);
  bool as_found = how == WK__READ_IN_CLASSES && !(reg < 0 && hides_class(owner, name, in_class));
  if (how == WK__READ_IN_CLASSES && !as_found) Py_CLEAR(found);
  if (as_found) return found;
  if (!in_class && reg >= 0 && !module && get == PyObject_GetAttr && attribute_by_c_code(f, owner, name, &found))
    return found;
  found = get(owner, name);
  if (!found || was_given_up(f, r) || in_own || how == WK__WRITTEN_IN_CLASSES) return found;
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

/* What C code has given for an effect, the handle of a hook, say: it belongs to what that has changed. */
bool wk__is_of_effect(const wk__recording *r, PyObject *o) {
  wk__reg reg = wk__reg_find(r, o);
  if (reg < 0 || r->registers[reg].kind != WK__REG_MADE) return false;
  for (int64_t i = 0; i < r->step_count; i++)
    if (r->steps[i].dest == reg) return r->steps[i].kind == WK__DO_EFFECT;
  return false;
}

static PyObject *attribute_of_instance(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name) {
  PyObject *in_class = wk__is_of_effect(r, owner) ? wk__type_attribute(Py_TYPE(owner), name) : NULL;
  if (wk__is_of_effect(r, owner) && !(in_class && wk__has_mark(in_class, WK__MARK_EFFECT)))
    return wk__refuse(f, "attribute %s of what an effect has given", TEXT(name));
  if (wk__depend_on_look_ups(r, Py_TYPE(owner)) < 0) return failed(f, r);
  if (in_class) return wk__reg_constant(r, in_class) < 0 ? failed(f, r) : PyObject_GetAttr(owner, name);
  bool module = PyObject_TypeCheck(owner, f->session->binding->module_type);
  if (!module && !finds_attributes_as_usual(Py_TYPE(owner))) return attribute_in_its_own_way(f, r, owner, name);
  return attribute_as_usual(f, r, owner, name, PyObject_GetAttr);
}

PyObject *wk__get_usual_attribute_of_class(wk__frame *f, wk__recording *r, PyObject *class, PyObject *name) {
  return attribute_of_class(f, r, (PyTypeObject *)class, class, name, PyType_Type.tp_getattro);
}

PyObject *wk__get_usual_attribute(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name) {
  if (wk__depend_on_look_ups(r, Py_TYPE(owner)) < 0) return failed(f, r);
  return attribute_as_usual(f, r, owner, name, PyObject_GenericGetAttr);
}

/* Of one of which another will do that has the same code: texts and annotations are guarded, and what else is asked for
 * makes it that function. */
static PyObject *attribute_of_code(wk__frame *f, wk__recording *r, wk__reg reg, PyObject *owner, PyObject *name) {
  const wk__binding *b = f->session->binding;
  PyObject *value = PyObject_GetAttr(owner, name);
  if (!value) return NULL;
  bool guarded = wk__is_plain_value(b, value) || PyDict_CheckExact(value) || PyTuple_CheckExact(value);
  r->last_fresh = NULL;
  bool known = guarded ? wk__observe(r, b, value, WK__READ_ATTRIBUTE, reg, 0, name) == 0
                       : wk__reg_constant(r, owner) >= 0 && wk__depend_on_function(r, b, owner) == 0;
  PyObject *found = !known ? failed(f, r) : guarded ? wk__as_read(r, value) : Py_NewRef(value);
  Py_DECREF(value);
  return found;
}

/* Of a function from outside: its own attributes stand in a dictionary, the others change with what it consists of. */
static PyObject *attribute_of_function(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name) {
  const wk__binding *b = f->session->binding;
  wk__reg reg = wk__reg_find(r, owner);
  PyObject *dict = NULL;
  if (wk__type_attribute(Py_TYPE(owner), name)) {
    bool all = PyUnicode_CompareWithASCIIString(name, "__dict__") == 0;
    if (!all && reg >= 0 && r->registers[reg].by_code) return attribute_of_code(f, r, reg, owner, name);
    if (all) (void)wk__instance_dict_now(owner);
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
         wk__is_view_of_dict(t);
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
  if (PyType_Check(owner)) return attribute_of_class(f, r, (PyTypeObject *)owner, owner, name, PyObject_GetAttr);
  if (Py_TYPE(owner) == &PySuper_Type) {
    PyObject *self = PyObject_GetAttrString(owner, "__self__");
    PyObject *found = self ? attribute_of_class(f, r, Py_TYPE(self), owner, name, PyObject_GetAttr) : NULL;
    Py_XDECREF(self);
    return found;
  }
  if (PyFunction_Check(owner) && wk__is_foreign(r, owner)) return attribute_of_function(f, r, owner, name);
  bool exception = PyExceptionInstance_Check(owner) && wk__is_python_instance(owner);
  if (exception && wk__is_foreign(r, owner)) return attribute_of_instance(f, r, owner, name);
  if (wk__is_view_of_others(owner) && wk__is_foreign(r, owner))
    return wk__refuse_as(f, WK__REFUSED_LEFT_OVER, "attribute %s of a %s from outside", TEXT(name),
                         Py_TYPE(owner)->tp_name);
  if (wk__is_own_node(r, owner) && PyUnicode_CompareWithASCIIString(name, "metadata") == 0)
    return wk__node_metadata(f, r, owner, name);
  if (!wk__know_bound(f, r, owner)) return NULL;
  if (wk__is_plain_value(b, owner) || PyFunction_Check(owner) || wk__is_partial(Py_TYPE(owner)) ||
      PyCFunction_Check(owner) || PyMethod_Check(owner) || is_namespace_of_values(owner) ||
      is_known_of_dict(r, owner, name) || Py_TYPE(owner) == b->size_type || wk__is_mode(f, Py_TYPE(owner)) ||
      Py_TYPE(owner) == b->operator_type || Py_TYPE(owner) == *b->overload_type || PyCode_Check(owner) ||
      wk__is_own_proxy(r, owner) || wk__is_own_node(r, owner) ||
      (wk__compiled_function(b, owner) && wk__is_that_one(r, owner)))
    return PyObject_GetAttr(owner, name);
  bool container = Py_TYPE(owner) == &PyODict_Type || wk__is_default_dict(Py_TYPE(owner)) || wk__is_deque(owner);
  bool most = wk__is_deque(owner) && PyUnicode_CompareWithASCIIString(name, "maxlen") == 0;
  if (most && wk__is_foreign(r, owner))
    return wk__know_part(f, r, owner, "maxlen") ? PyObject_GetAttr(owner, name) : NULL;
  if (container && wk__is_foreign(r, owner)) return attribute_as_usual(f, r, owner, name, PyObject_GetAttr);
  if (wk__is_own_object(r, owner) || wk__is_lock(r, owner)) return PyObject_GetAttr(owner, name);
  bool value = is_named_tuple_of_c(owner) || wk__known_class(Py_TYPE(owner)) == WK__CLASS_VALUE;
  if (value) return wk__usable(f, owner) ? PyObject_GetAttr(owner, name) : NULL;
  bool own_slot = Py_TYPE(owner) == wk__method_wrapper_type() && !wk__is_foreign(r, owner);
  if (wk__is_own_context(f, owner) || own_slot) return PyObject_GetAttr(owner, name);
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
    wk__reg reg = wk__reg_find(r, found);
    status = size > 0;
    const wk__register *known = &r->registers[reg];
    if (!known->written && !known->names)
      wk__check_once(r, WK__CHECK_LENGTH, reg, size, NULL);
    else if (!known->touched)
      status = -1; /* what the region has put in is there, and what else it does not know */
  } else if (found != Py_None)
    status = -1;
  Py_DECREF(name);
  return status;
}

/* Hooks of all modules: guarded to be none, or Python code looks which there are. 1, 0; -1: not known. */
static int hooks_of_all(wk__frame *f, wk__recording *r) {
  const wk__binding *b = f->session->binding;
  PyObject *hooks;
  int some = 0;
  for (int k = 0; (hooks = b->module_hooks(b->state, k)); k++) {
    wk__reg reg = wk__reg_find(r, hooks);
    const wk__register *known = reg >= 0 ? &r->registers[reg] : NULL;
    bool changed = known && (known->written || known->names);
    if (changed && known->kind == WK__REG_READ && !known->touched)
      return -1; /* what the region has put in is there, and what else it does not know */
    some |= PyDict_GET_SIZE(hooks) > 0;
    if (changed || PyDict_GET_SIZE(hooks)) continue;
    if ((reg = wk__reg_constant(r, hooks)) < 0) return -1;
    wk__check_once(r, WK__CHECK_LENGTH, reg, 0, NULL);
  }
  return some;
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
  int hooked = hooks_of_all(f, r);
  PyObject *name = PyUnicode_InternFromString(hooked > 0 ? "_call_with_hooks" : "forward");
  PyObject *forward = name ? wk__type_attribute(Py_TYPE(module), name) : NULL;
  Py_XDECREF(name);
  if (!dict || !forward || !PyFunction_Check(forward) || hooked < 0)
    return wk__refuse(f, "a module made in the region whose call does more than its forward");
  bool known = wk__is_made_class(r, (PyObject *)Py_TYPE(module)) && wk__was_made(r, forward);
  if (!known && (wk__depend_on_look_ups(r, Py_TYPE(module)) < 0 || wk__reg_constant(r, forward) < 0))
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
  int of_all = hooks_of_all(f, r);
  hooked |= of_all > 0;
  if (of_all < 0) {
    Py_DECREF(name);
    return wk__refuse(f, "a module call with hooks of all modules");
  }
  if (hooked) Py_SETREF(name, PyUnicode_InternFromString("_call_with_hooks"));
  PyObject *forward = name ? wk__type_attribute(Py_TYPE(module), name) : NULL;
  Py_XDECREF(name);
  if (!forward || !PyFunction_Check(forward)) return wk__refuse(f, "a module whose forward is no Python function");
  if (wk__depend_on_look_ups(r, Py_TYPE(module)) < 0 || wk__reg_constant(r, forward) < 0)
    return wk__refuse(f, "%s", r->failed);
  return forward;
}
