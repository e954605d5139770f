/* What instructions do to objects while something is captured: the real thing, and a note of it.
 * In: an instruction's operands. Out: its result; in the recording, the reads that it depended on and the steps that it
 * did to objects that others can see. Objects of the region's own need no notes: what they are is looked at when they
 * are needed. Tests: tests/python/capture/. */
#include "dynamo/capture/operations.h"

#include <opcode.h>

#include "autograd/autograd.h"
#include "dynamo/capture/known.h"
#include "dynamo/capture/record_parts.h"
#include "dynamo/cpython/objects.h"

#define RECORDING(plain)                  \
  wk__recording *r = wk__recording_of(f); \
  if (!r) return plain
#define BINDING (f->session->binding)
/* What replaces or removes objects, and runs no Python code but that of what dies of it: replaying the step does that
 * again, so it is not recorded. */
#define LETTING_GO(status, call) \
  do {                           \
    f->dropping++;               \
    (status) = (call);           \
    f->dropping--;               \
  } while (0)

static PyObject *failed(wk__frame *f, const wk__recording *r) { return wk__refuse(f, "%s", r->failed); }
static int failed_int(wk__frame *f, const wk__recording *r) {
  wk__refuse(f, "%s", r->failed);
  return -1;
}
static int refused(wk__frame *f, const char *why) {
  wk__refuse(f, "%s", why);
  return -1;
}

/* ==================================================== names ====================================================== */

int wk__op_local(wk__frame *f, int slot) {
  RECORDING(wk__plain_local(f, slot));
  wk__activation *a = wk__activation_of(f);
  if (!a->at_start || slot >= a->slots_at_start || a->seen[slot]) return 0;
  PyObject *value = wk__frame_slot(f, slot);
  if (value != a->at_start[slot]) return 0;
  a->seen[slot] = true;
  if (!value) {
    wk__check(r, WK__CHECK_UNBOUND, a->depth, slot, NULL);
    return 0;
  }
  if (wk__observe(r, BINDING, value, WK__READ_SLOT, a->depth, slot, NULL) < 0) return failed_int(f, r);
  PyObject *object = wk__as_read(r, value);
  if (object != value) wk__frame_put(f, slot, object);
  Py_DECREF(object);
  return 0;
}

void wk__op_stored(wk__frame *f, int slot) {
  wk__activation *a = wk__activation_of(f);
  if (a->at_start && slot < a->slots_at_start) a->stored[slot] = a->seen[slot] = true;
}

PyObject *wk__op_constant(wk__frame *f, PyObject *constant) {
  RECORDING(wk__plain_constant(f, constant));
  if (!wk__is_plain_value(BINDING, constant)) wk__reg_constant(r, constant);
  return Py_NewRef(constant);
}

static wk__reg globals_register(wk__recording *r, PyObject *dict) {
  wk__reg reg = wk__reg_constant(r, dict);
  if (reg >= 0) r->registers[reg].is_globals = true;
  return reg;
}

PyObject *wk__op_global(wk__frame *f, PyObject *name) {
  RECORDING(wk__plain_global(f, name));
  PyObject *globals = wk__frame_globals(f), *builtins = wk__frame_builtins(f);
  if (!PyDict_CheckExact(globals) || !PyDict_CheckExact(builtins)) return wk__refuse(f, "globals that are no dict");
  wk__reg reg = globals_register(r, globals);
  PyObject *found = reg >= 0 ? PyDict_GetItemWithError(globals, name) : NULL;
  if (!found && reg >= 0 && !PyErr_Occurred()) {
    if (!wk__was_written(r, reg, name)) wk__check_once(r, WK__CHECK_ABSENT, reg, 0, name);
    reg = globals_register(r, builtins);
    found = reg >= 0 ? PyDict_GetItemWithError(builtins, name) : NULL;
  }
  if (!found) return wk__plain_global(f, name);
  r->last_fresh = NULL;
  if (!wk__was_written(r, reg, name) && wk__observe(r, BINDING, found, WK__READ_DICT, reg, -1, name) < 0)
    return failed(f, r);
  return wk__as_read(r, found);
}

/* What is replaced may die of it, and its end run code, which the program's next instructions may see the effect of: a
 * break, and at replay another segment. `owner`: a dictionary or list that the region has not made. */
static int note_replaced(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *key) {
  wk__reg reg = wk__reg_find(r, owner);
  bool dict = PyDict_Check(owner);
  Py_ssize_t at = !dict && PyLong_CheckExact(key) ? PyLong_AsSsize_t(key) : -1;
  if (at < 0 && PyErr_Occurred()) PyErr_Clear();
  if (!dict && at < 0 && PyLong_CheckExact(key)) at += PyList_GET_SIZE(owner);
  if (!dict && (at < 0 || at >= PyList_GET_SIZE(owner))) return 0;
  PyObject *old = dict ? PyDict_GetItemWithError(owner, key) : PyList_GET_ITEM(owner, at);
  if (!old && PyErr_Occurred()) return -1;
  if (old && wk__replaced_ends_aloud(f->session, old)) return refused(f, "the end of what is replaced runs code");
  if (reg >= 0 && !wk__was_written(r, reg, dict ? key : NULL))
    wk__check_once(r, WK__CHECK_MUTE, reg, dict ? 0 : at, dict ? key : NULL);
  return 0;
}

/* A name of a module, here or there: in its dictionary. */
static int set_in_module(wk__frame *f, wk__recording *r, PyObject *dict, PyObject *name, PyObject *value) {
  PyObject *items[] = {dict, name, value};
  wk__reg reg = globals_register(r, dict);
  if (reg < 0 || (!value && wk__note_presence(f, r, dict, name) < 0)) return failed_int(f, r);
  if (note_replaced(f, r, dict, name) < 0) return -1;
  if (wk__did(r, BINDING, WK__DO_SET_ITEM, NULL, items, 3, NULL) < 0) return failed_int(f, r);
  int64_t step = r->step_count - 1;
  int status;
  LETTING_GO(status, wk__plain_set_item(f, dict, name, value));
  wk__tried(f, r, step, status == 0, true);
  if (status == 0) wk__mark_written(r, reg, name);
  return status;
}

int wk__op_set_global(wk__frame *f, PyObject *name, PyObject *value) {
  RECORDING(wk__plain_set_global(f, name, value));
  PyObject *globals = wk__frame_globals(f);
  if (value || PyDict_Contains(globals, name)) return set_in_module(f, r, globals, name, value);
  if (globals_register(r, globals) < 0 || wk__note_presence(f, r, globals, name) < 0) return failed_int(f, r);
  return wk__plain_set_global(f, name, value); /* a NameError */
}

/* The names of a module's code are those of its dictionary. */
static bool is_of_module(const wk__frame *f) { return wk__frame_locals(f) == wk__frame_globals(f); }

/* Those of a class body are its namespace's, which the region has made. */
static bool has_own_names(const wk__frame *f, const wk__recording *r) {
  PyObject *names = wk__frame_locals(f);
  return names && PyDict_CheckExact(names) && wk__reg_find(r, names) < 0;
}

PyObject *wk__op_name(wk__frame *f, PyObject *name) {
  RECORDING(wk__plain_name(f, name));
  if (is_of_module(f)) return wk__op_global(f, name);
  if (!has_own_names(f, r)) return wk__refuse(f, "a name of a class body");
  PyObject *found = PyDict_GetItemWithError(wk__frame_locals(f), name);
  return found || PyErr_Occurred() ? Py_XNewRef(found) : wk__op_global(f, name);
}
int wk__op_set_name(wk__frame *f, PyObject *name, PyObject *value) {
  RECORDING(wk__plain_set_name(f, name, value));
  if (is_of_module(f)) return wk__op_set_global(f, name, value);
  return has_own_names(f, r) ? wk__plain_set_name(f, name, value) : refused(f, "a name of a class body");
}
int wk__op_setup_annotations(wk__frame *f) {
  RECORDING(wk__plain_setup_annotations(f));
  bool own = !is_of_module(f) && has_own_names(f, r);
  return own ? wk__plain_setup_annotations(f) : refused(f, "annotations of a module");
}
int wk__op_print(wk__frame *f, PyObject *value) {
  RECORDING(wk__plain_print(f, value));
  (void)r;
  return refused(f, "an interactive prompt's output");
}

/* ---- cells ---- */

/* A parameter that an inner function uses: from here on it is read through the cell, which is the region's own. */
PyObject *wk__op_make_cell(wk__frame *f, int slot) {
  RECORDING(wk__plain_make_cell(f, slot));
  if (wk__frame_slot(f, slot) && wk__op_local(f, slot) < 0) return failed(f, r);
  return wk__plain_make_cell(f, slot);
}

/* A cell that was there before the region began becomes known. */
static int find_cell(wk__frame *f, wk__recording *r, PyObject *cell, int slot) {
  if (wk__reg_find(r, cell) >= 0) return 0;
  wk__activation *a = wk__activation_of(f);
  int first_free = f->code->co_nlocalsplus - f->code->co_nfreevars;
  if (a->at_start && slot < a->slots_at_start && a->at_start[slot] == cell)
    return wk__observe(r, BINDING, cell, WK__READ_SLOT, a->depth, slot, NULL);
  if (slot < first_free) return 0; /* made by this frame */
  PyObject *function = wk__frame_function(f);
  if (!a->depth && wk__observe(r, BINDING, function, WK__READ_FUNCTION, 0, 0, NULL) < 0) return -1;
  wk__reg reg = wk__is_foreign(r, function) ? wk__reg_find(r, function) : -1;
  return reg < 0 ? 0 : wk__observe(r, BINDING, cell, WK__READ_CLOSURE, reg, slot - first_free, NULL);
}

static int read_cell(wk__frame *f, wk__recording *r, PyObject *cell) {
  wk__reg reg = wk__is_foreign(r, cell) ? wk__reg_find(r, cell) : -1;
  if (reg < 0 || r->registers[reg].written) return 0;
  PyObject *content = PyCell_GET(cell);
  if (content) return wk__observe(r, BINDING, content, WK__READ_CELL, reg, 0, NULL);
  wk__check_once(r, WK__CHECK_UNBOUND, reg, -1, NULL);
  return 0;
}

/* A cell that comes from outside is that one, also where nothing is read from it before the region ends. */
int wk__op_closure(wk__frame *f, PyObject *cell, int slot) {
  RECORDING(0);
  return find_cell(f, r, cell, slot) < 0 ? failed_int(f, r) : 0;
}

PyObject *wk__op_cell(wk__frame *f, PyObject *cell, int slot) {
  RECORDING(wk__plain_cell(f, cell, slot));
  if (find_cell(f, r, cell, slot) < 0 || read_cell(f, r, cell) < 0) return failed(f, r);
  PyObject *value = wk__plain_cell(f, cell, slot), *object = value ? wk__as_read(r, value) : NULL;
  Py_XDECREF(value);
  return object;
}

int wk__op_set_cell(wk__frame *f, PyObject *cell, PyObject *value) {
  RECORDING(wk__plain_set_cell(f, cell, value));
  int slot = 0;
  while (slot < wk__frame_slot_count(f) && wk__frame_slot(f, slot) != cell) slot++;
  if (find_cell(f, r, cell, slot) < 0) return failed_int(f, r);
  wk__reg reg = wk__reg_find(r, cell);
  if (reg >= 0) {
    PyObject *items[] = {cell, value};
    if (wk__did(r, BINDING, WK__DO_SET_CELL, NULL, items, 2, NULL) < 0) return failed_int(f, r);
    wk__mark_written(r, reg, NULL);
  }
  int status;
  LETTING_GO(status, wk__plain_set_cell(f, cell, value));
  return status;
}

PyObject *wk__op_class_cell(wk__frame *f, PyObject *cell, int slot) {
  RECORDING(wk__plain_class_cell(f, cell, slot));
  if (!has_own_names(f, r)) return wk__refuse(f, "a name of a class body");
  PyObject *name = PyTuple_GET_ITEM(f->code->co_localsplusnames, slot);
  PyObject *found = PyDict_GetItemWithError(wk__frame_locals(f), name);
  return found || PyErr_Occurred() ? Py_XNewRef(found) : wk__op_cell(f, cell, slot);
}

/* ---- imports ---- */

/* That a module is not there may change: once somebody has loaded it. */
static void note_missing_module(wk__recording *r, PyObject *name) {
  PyObject *type, *value, *traceback, *modules = PyImport_GetModuleDict();
  PyErr_Fetch(&type, &value, &traceback);
  wk__reg reg = globals_register(r, modules);
  if (reg < 0 || PyDict_Contains(modules, name)) /* it is, and could not be loaded */
    wk__record_failed(r, "an import that fails");
  else
    wk__check_once(r, WK__CHECK_ABSENT, reg, 0, name);
  PyErr_Restore(type, value, traceback);
}

PyObject *wk__op_import(wk__frame *f, PyObject *name, PyObject *from_list, PyObject *level) {
  RECORDING(wk__plain_import(f, name, from_list, level));
  PyObject *there = PyImport_GetModule(name), *module;
  bool loaded = there && PyLong_Check(level) && PyLong_AsLong(level) == 0;
  Py_XDECREF(there);
  if (loaded) {
    module = wk__plain_import(f, name, from_list, level);
    if (module && wk__recording_of(f) == r) wk__reg_constant(r, module); /* finding names may have run Python code */
    return module;
  }
  wk__suspension suspension; /* what is loaded once stays: later calls find it */
  wk__session_suspend(f->session, true, &suspension);
  module = wk__plain_import(f, name, from_list, level);
  wk__session_resume(f->session, &suspension);
  if (wk__recording_of(f) != r) return module;
  if (module)
    wk__reg_constant(r, module);
  else
    note_missing_module(r, name);
  return module;
}

PyObject *wk__op_import_from(wk__frame *f, PyObject *module, PyObject *name) {
  RECORDING(wk__plain_import_from(f, module, name));
  if (!PyModule_Check(module)) return wk__refuse(f, "a name that is imported from something else than a module");
  if (!PyDict_Contains(PyModule_GetDict(module), name)) { /* a module of a package, loaded when it is asked for */
    wk__suspension suspension;
    wk__session_suspend(f->session, true, &suspension);
    PyObject *found = wk__plain_import_from(f, module, name);
    wk__session_resume(f->session, &suspension);
    if (!found || wk__recording_of(f) != r) return found;
    Py_DECREF(found);
    if (!PyDict_Contains(PyModule_GetDict(module), name)) return wk__refuse(f, "a name that a module computes");
  }
  return wk__get_attribute(f, r, module, name);
}
int wk__op_import_star(wk__frame *f, PyObject *module) {
  RECORDING(wk__plain_import_star(f, module));
  (void)r;
  return refused(f, "import *");
}

/* ============================================ attributes and items =============================================== */

/* Methods of a proxy are those of what it shows. */
static PyObject *owner_of_method(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name) {
  if (WK_LIKELY(Py_TYPE(owner) != &PyDictProxy_Type)) return owner;
  PyObject *in_class = wk__type_attribute(&PyDictProxy_Type, name);
  return in_class && Py_TYPE(in_class) == &PyMethodDescr_Type ? wk__behind_proxy(f, r, owner) : owner;
}

PyObject *wk__op_attr(wk__frame *f, PyObject *owner, PyObject *name) {
  RECORDING(wk__plain_attr(f, owner, name));
  owner = owner_of_method(f, r, owner, name);
  return wk__get_attribute(f, r, owner, name);
}

PyObject *wk__op_method(wk__frame *f, PyObject *owner, PyObject *name, PyObject **out_self) {
  RECORDING(wk__plain_method(f, owner, name, out_self));
  *out_self = NULL;
  owner = owner_of_method(f, r, owner, name);
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
  if (by_code || !value) return refused(f, "an attribute of a tensor is set by code of its class, or deleted");
  wk__reg reg = wk__reg_find(r, owner);
  if (reg < 0) return wk__plain_set_attr(f, owner, name, value);
  if (wk__did(r, BINDING, WK__DO_SET_ATTR, NULL, items, 2, name) < 0) return failed_int(f, r);
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
    return refused(f, "the data of a tensor that the region has made are set, or deleted");
  if (wk__did(r, BINDING, WK__DO_SET_ATTR, NULL, items, 2, name) < 0) return failed_int(f, r);
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
    return refused(f, "the gradient of a tensor is deleted, or set to something else");
  PyObject *items[] = {owner, value == Py_None ? NULL : value};
  if (wk__did(r, BINDING, WK__DO_SET_GRAD, NULL, items, 2, NULL) < 0) return failed_int(f, r);
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
    return refused(f, "a tensor of a class of its own is set in a module");
  wk__reg parts[WK__MODULE_PARTS];
  int found;
  if (wk__module_parts(f, r, owner, name, parts, &found) < 0) return failed_int(f, r);
  if ((part || found == WK__PART_PARAMETERS) && !registers_as_usual(f, Py_TYPE(owner)))
    return refused(f, "a module that registers its parameters itself");
  for (int k = 0; k < WK__MODULE_PARTS; k++) out_written[k] = part || k == found ? parts[k] : -1;
  return 0;
}

/* An attribute that lands in the owner's dictionary or slots, and is set there again at replay. `written`: a module's
 * parts that change, (WK__MODULE_PARTS) -1: not this one. */
static int set_and_note(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name, PyObject *value,
                        const wk__reg *written, setattrofunc set) {
  if (!wk__is_foreign(r, owner) && wk__reg_find(r, owner) < 0) return set(owner, name, value);
  PyObject *items[] = {owner, value};
  wk__reg reg = wk__reg_find(r, owner);
  if (wk__is_foreign(r, owner) && wk__instance_dict(f, r, reg, owner) < 0 && r->failed[0]) return failed_int(f, r);
  if (!value && wk__note_presence(f, r, owner, name) < 0) return r->failed[0] ? failed_int(f, r) : -1;
  PyObject **dict = wk__instance_dict_place(owner);
  if (wk__is_foreign(r, owner) && dict && *dict && note_replaced(f, r, *dict, name) < 0) return -1;
  if (wk__did(r, BINDING, WK__DO_SET_ATTR, NULL, items, 2, name) < 0) return failed_int(f, r);
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
  if (wk__depend_on_type(r, Py_TYPE(owner)) < 0) return failed_int(f, r);
  if (has_setter_of_python(Py_TYPE(owner), name)) return PyObject_GenericSetAttr(owner, name, value);
  return set_and_note(f, r, owner, name, value, none, PyObject_GenericSetAttr);
}

static int set_attribute_of_context(wk__frame *f, wk__recording *r, PyObject *context, PyObject *name,
                                    PyObject *value) {
  r->tries_in_vain |= r->tries;
  return r->tries ? refused(f, "an attribute of ctx is set by what is only tried")
                  : wk__plain_set_attr(f, context, name, value);
}

/* A thread local, a generator of Python's random numbers. */
static int set_of_c_object(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name, PyObject *value) {
  if (wk__did(r, BINDING, WK__DO_SET_ATTR, NULL, (PyObject *[]){owner, value}, 2, name) < 0) return failed_int(f, r);
  int64_t step = r->step_count - 1;
  int status;
  LETTING_GO(status, wk__plain_set_attr(f, owner, name, value));
  wk__tried(f, r, step, status == 0, true);
  if (status == 0 && wk__recording_of(f) == r) wk__mark_written(r, wk__reg_find(r, owner), name);
  return status;
}

int wk__op_set_attr(wk__frame *f, PyObject *owner, PyObject *name, PyObject *value) {
  RECORDING(wk__plain_set_attr(f, owner, name, value));
  PyTypeObject *type = Py_TYPE(owner);
  if (wk__is_tensor_object(f, owner)) return set_attribute_of_tensor(f, r, owner, name, value);
  bool module = PyObject_TypeCheck(owner, BINDING->module_type);
  if (wk__is_own_context(f, owner)) return set_attribute_of_context(f, r, owner, name, value);
  if (wk__is_own_object(r, owner)) return wk__plain_set_attr(f, owner, name, value);
  if (wk__is_made_class(r, owner)) return wk__plain_set_attr(f, owner, name, value);
  if (PyModule_CheckExact(owner) && value) return set_in_module(f, r, PyModule_GetDict(owner), name, value);
  bool of_c = wk__is_thread_local(r, owner) || (wk__is_foreign(r, owner) && wk__is_random(owner));
  if (of_c && value) return set_of_c_object(f, r, owner, name, value);
  if (!module && !wk__is_python_instance(owner) && !PyFunction_Check(owner))
    return refused(f, "an attribute of an object that C code owns is set");
  if (module && wk__reg_find(r, owner) < 0) return wk__plain_set_attr(f, owner, name, value);
  wk__reg written[WK__MODULE_PARTS] = {-1, -1, -1};
  if (module && value && find_part(f, r, owner, name, value, written) < 0) return -1;
  if (has_setter_of_python(type, name) || (type->tp_setattro != PyObject_GenericSetAttr && !module))
    return wk__plain_set_attr(f, owner, name, value); /* what it does is recorded where it does it */
  return set_and_note(f, r, owner, name, value, written, PyObject_SetAttr);
}

/* What a dictionary does about a key that it has not: guarded to be missing. A defaultdict puts in what its factory
 * gives; a class with __missing__, or an error, is found by C code. */
static PyObject *missing_item(wk__frame *f, wk__recording *r, wk__reg reg, PyObject *owner, PyObject *key) {
  if (!wk__was_written(r, reg, key)) wk__check_once(r, WK__CHECK_ABSENT, reg, 0, key);
  PyObject *hook = PyUnicode_InternFromString("__missing__");
  PyObject *missing = hook ? wk__type_attribute(Py_TYPE(owner), hook) : NULL;
  Py_XDECREF(hook);
  if (!missing || PyFunction_Check(missing)) return PyObject_GetItem(owner, key);
  bool by_factory = Py_TYPE(missing) == &PyMethodDescr_Type && wk__is_default_dict(PyDescr_TYPE(missing));
  if (!by_factory) return wk__refuse(f, "a missing key of a %s", Py_TYPE(owner)->tp_name);
  PyObject *name = PyUnicode_InternFromString("default_factory"), *item = NULL;
  PyObject *factory = name ? PyObject_GetAttr(owner, name) : NULL;
  if (factory && wk__observe(r, BINDING, factory, WK__READ_ATTRIBUTE, reg, 0, name) < 0)
    item = failed(f, r);
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

/* A key that is another object in each call, such as a tensor: each asks the dictionary for its own. */
static bool is_asked_again(const wk__frame *f, const wk__recording *r, PyObject *key, wk__reg reg) {
  const wk__register *g = reg >= 0 ? &r->registers[reg] : NULL;
  return g && g->kind == WK__REG_READ && !g->fixed && wk__hashes_its_address(f, key);
}

/* A dict's item that was there before. */
static PyObject *item_of_dict(wk__frame *f, wk__recording *r, wk__reg reg, PyObject *owner, PyObject *key) {
  PyObject *found = PyDict_GetItemWithError(owner, key);
  if (!found && PyErr_Occurred()) return NULL;
  bool plain = wk__is_plain_value(BINDING, key) || is_tuple_of_constants(f, r, key) || is_own_frozen_set(f, r, key);
  wk__reg key_reg = plain ? -1 : wk__reg_find(r, key);
  bool written = wk__was_written(r, reg, key);
  bool again = found && !written && !plain && is_asked_again(f, r, key, key_reg);
  if (!plain && !again && (key_reg < 0 || !r->registers[key_reg].fixed))
    return wk__refuse(f, "a dict's key that is no plain value");
  if (!found) return missing_item(f, r, reg, owner, key);
  if (!written && wk__is_identity(r, key)) return wk__refuse(f, "an id() that is a key of something from outside");
  r->last_fresh = NULL;
  int noted =
      written ? 0 : wk__observe(r, BINDING, found, WK__READ_DICT, reg, again ? key_reg : -1, again ? NULL : key);
  return noted < 0 ? failed(f, r) : wk__as_read(r, found);
}

/* The method is that of a dictionary or list, be it inherited: a class written in Python may have one of its own, which
 * is evaluated. */
static bool has_builtin_method(PyObject *o, const char *text) {
  PyTypeObject *const kinds[] = {&PyDict_Type, &PyODict_Type, &PyList_Type};
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
  return t == &PyList_Type || t == &PyDict_Type || t == BINDING->size_type ||
         (PyTuple_Check(o) && t->tp_as_mapping->mp_subscript == PyTuple_Type.tp_as_mapping->mp_subscript);
}

/* The place of an item of a list or tuple from outside that is not written, of which nothing else has been looked
 * at; -1: it is no such item. A place from the end depends on the length. */
static Py_ssize_t place_of_item(const wk__frame *f, wk__recording *r, wk__reg reg, PyObject *owner, PyObject *key) {
  const wk__register *g = &r->registers[reg];
  wk_int symbolic;
  bool sequence = PyList_CheckExact(owner) || (PyTuple_Check(owner) && takes_references(f, owner));
  bool as_found = g->kind == WK__REG_READ && !g->written && !g->before && !g->touched;
  if (!sequence || !as_found || Py_TYPE(owner) == BINDING->size_type) return -1;
  if (!PyLong_CheckExact(key) || wk__symbolic_int(r, key, &symbolic)) return -1;
  Py_ssize_t count = Py_SIZE(owner), i = PyLong_AsSsize_t(key);
  if (i == -1 && PyErr_Occurred()) PyErr_Clear();
  if (i >= count || i < -count) return -1;
  if (i < 0) wk__check(r, WK__CHECK_LENGTH, reg, count, NULL);
  return i < 0 ? i + count : i;
}

static PyObject *item_of_sequence(wk__frame *f, wk__recording *r, wk__reg reg, PyObject *owner, Py_ssize_t place) {
  PyObject *found = PyList_Check(owner) ? PyList_GET_ITEM(owner, place) : PyTuple_GET_ITEM(owner, place);
  r->last_fresh = NULL;
  if (wk__observe(r, BINDING, found, WK__READ_ITEM, reg, place, NULL) < 0) return failed(f, r);
  bool given = r->last_fresh || wk__passed_on(f, found); /* whoever gets it may look at what it holds */
  return given ? wk__as_read(r, found) : NULL;
}

PyObject *wk__op_item(wk__frame *f, PyObject *owner, PyObject *key) {
  RECORDING(wk__plain_item(f, owner, key));
  owner = wk__behind_proxy(f, r, owner);
  if (PyDict_Check(owner)) wk__settle(r, key);
  wk__reg reg = wk__is_foreign(r, owner) ? wk__reg_find(r, owner) : -1;
  if (reg >= 0 && has_dict_items(owner)) return item_of_dict(f, r, reg, owner, key);
  Py_ssize_t place = reg >= 0 ? place_of_item(f, r, reg, owner, key) : -1;
  if (place >= 0) return item_of_sequence(f, r, reg, owner, place);
  if (PyType_Check(owner)) return wk__plain_item(f, owner, key); /* list[int] */
  bool tensor = wk__is_tensor_object(f, owner);
  if (!(takes_references(f, owner) ? wk__passed_on(f, owner) : wk__usable(f, owner))) return NULL;
  bool keyed = PyDict_Check(owner);
  if (!(tensor ? wk__index_usable(f, key) : keyed ? wk__keys_usable(f, key) : wk__usable(f, key))) return NULL;
  return wk__plain_item(f, owner, key);
}

static int did_set_item(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *key, PyObject *value) {
  PyObject *items[] = {owner, key, value};
  bool dict = PyDict_Check(owner);
  if (!value && dict && wk__note_presence(f, r, owner, key) < 0) return r->failed[0] ? failed_int(f, r) : -1;
  bool plain = wk__is_plain_value(BINDING, key), list = PyList_Check(owner);
  if (wk__is_foreign(r, owner) && plain && (dict || list) && note_replaced(f, r, owner, key) < 0) return -1;
  if (wk__did(r, BINDING, WK__DO_SET_ITEM, NULL, items, 3, NULL) < 0) return failed_int(f, r);
  int64_t step = r->step_count - 1;
  wk__reg reg = wk__reg_find(r, owner);
  if (dict && !r->registers[reg].is_globals && wk__keep_before(r, reg) < 0) return -1;
  int status;
  if (plain)
    LETTING_GO(status, wk__plain_set_item(f, owner, key, value));
  else
    status = wk__plain_set_item(f, owner, key, value); /* Python code may compare the key, or give the items */
  wk__tried(f, r, step, status == 0, true);
  if (status == 0 && wk__recording_of(f) == r) wk__mark_written(r, reg, dict ? key : NULL);
  return status;
}

int wk__op_set_item(wk__frame *f, PyObject *owner, PyObject *key, PyObject *value) {
  RECORDING(wk__plain_set_item(f, owner, key, value));
  bool builtin = has_builtin_method(owner, value ? "__setitem__" : "__delitem__");
  if (wk__is_tensor_object(f, owner)) {
    if (!wk__index_usable(f, key) || (value && !wk__usable(f, value))) return -1;
    return wk__plain_set_item(f, owner, key, value);
  }
  wk__settle(r, key);
  if (value && PyDict_Check(owner)) wk__note_key(f, r, owner, key);
  bool by_python = wk__is_python_instance(owner) || PyObject_TypeCheck(owner, BINDING->module_type);
  if (wk__is_own_object(r, owner))
    return value && !wk__usable(f, value) ? -1 : wk__plain_set_item(f, owner, key, value);
  if (!builtin && !by_python) return refused(f, "an item of an object that C code owns is set");
  if (builtin && wk__reg_find(r, owner) >= 0) {
    if (PyList_Check(owner) && !wk__usable(f, owner)) return -1;
    return did_set_item(f, r, owner, key, value);
  }
  return wk__plain_set_item(f, owner, key, value);
}

/* =================================================== operators =================================================== */

PyObject *wk__op_unary(wk__frame *f, wk__unary kind, PyObject *a) {
  RECORDING(wk__plain_unary(f, kind, a));
  PyObject *number;
  if (kind != WK__UNARY_INVERT && wk__symbolic_unary(r, kind == WK__UNARY_NEGATIVE, a, &number)) return number;
  if (kind == WK__UNARY_NEGATIVE && wk__float_negative(r, a, &number)) return number;
  return wk__usable(f, a) ? wk__plain_unary(f, kind, a) : NULL;
}

/* `list += x` and its like change the object itself. */
static const char *in_place_method(int kind, PyObject *a) {
  if (Py_TYPE(a) == &PyList_Type) return kind == NB_INPLACE_ADD ? "extend" : NULL;
  if (PyDict_Check(a)) return kind == NB_INPLACE_OR ? "update" : NULL;
  if (Py_TYPE(a) != &PySet_Type) return NULL;
  switch (kind) {
    case NB_INPLACE_OR:
      return "update";
    case NB_INPLACE_AND:
      return "intersection_update";
    case NB_INPLACE_SUBTRACT:
      return "difference_update";
    case NB_INPLACE_XOR:
      return "symmetric_difference_update";
    default:
      return NULL;
  }
}

static int did_method(wk__frame *f, wk__recording *r, PyObject *self, const char *name, PyObject *arg) {
  PyObject *method = PyObject_GetAttrString((PyObject *)Py_TYPE(self), name);
  if (!method) return -1;
  PyObject *items[] = {method, self, arg};
  int status = wk__reg_constant(r, method) < 0 ? -1 : wk__did(r, BINDING, WK__DO_IMPURE_CALL, NULL, items, 3, NULL);
  Py_DECREF(method);
  return status < 0 ? failed_int(f, r) : 0;
}

/* Of a method that did_method() noted as the step: iterables may fail on the way. */
static void method_tried(wk__frame *f, wk__recording *r, int64_t step, PyObject *self, bool worked) {
  wk__tried(f, r, step, worked, false);
  if (worked && wk__recording_of(f) == r) wk__mark_written(r, wk__reg_find(r, self), NULL);
}

/* Operands whose numbers the operation does not look at: of tensors, and of sequences that are joined. */
static bool operands_usable(wk__frame *f, int nb_kind, PyObject *a, PyObject *b) {
  bool joins = nb_kind == NB_ADD || nb_kind == NB_INPLACE_ADD, repeats = nb_kind == NB_MULTIPLY;
  bool tensor = wk__is_tensor_object(f, a) || wk__is_tensor_object(f, b);
  bool lists = Py_TYPE(a) == &PyList_Type && Py_TYPE(b) == &PyList_Type;
  if (PyAnySet_Check(a) && PyAnySet_Check(b)) return wk__keys_usable(f, a) && wk__keys_usable(f, b);
  if (repeats && PyLong_CheckExact(b) && (Py_TYPE(a) == &PyList_Type || PyTuple_CheckExact(a)))
    return wk__usable(f, b) && wk__passed_on(f, a);
  if (joins && (lists || (PyTuple_Check(a) && PyTuple_Check(b)))) return wk__passed_on(f, a) && wk__passed_on(f, b);
  const wk__recording *r = f->session->recording;
  bool number_a = tensor && wk__is_number(a) && !wk__is_identity(r, a);
  bool number_b = tensor && wk__is_number(b) && !wk__is_identity(r, b);
  return (number_a || wk__usable(f, a)) && (number_b || wk__usable(f, b));
}

PyObject *wk__op_binary(wk__frame *f, int nb_kind, PyObject *a, PyObject *b) {
  RECORDING(wk__plain_binary(f, nb_kind, a, b));
  PyObject *number;
  if (wk__symbolic_binary(r, nb_kind, a, b, &number) || wk__float_binary(r, nb_kind, a, b, &number)) return number;
  if (PyUnicode_Check(a) && wk__holds_marked_int(r, b)) return wk__refuse(f, "the text of a size that was marked");
  if (PyUnicode_Check(a) && nb_kind == NB_REMAINDER) wk__text_shows(r, b);
  const char *method = wk__reg_find(r, a) >= 0 ? in_place_method(nb_kind, a) : NULL;
  bool blind = method && Py_TYPE(a) == &PyList_Type; /* what is added does not depend on what is there */
  if (blind ? !wk__passed_on(f, b) : !operands_usable(f, nb_kind, a, b)) return NULL;
  if (blind && wk__keep_before(r, wk__reg_find(r, a)) < 0) return NULL;
  if (method && did_method(f, r, a, method, b) < 0) return NULL;
  int64_t step = r->step_count - 1;
  PyObject *result = wk__plain_binary(f, nb_kind, a, b);
  if (method) method_tried(f, r, step, a, result);
  return result;
}

PyObject *wk__op_compare(wk__frame *f, int py_kind, PyObject *a, PyObject *b) {
  RECORDING(wk__plain_compare(f, py_kind, a, b));
  int known = wk__symbolic_compare(r, py_kind, a, b);
  if (known < 0) known = wk__float_compare(r, py_kind, a, b);
  if (known >= 0) return Py_NewRef(known ? Py_True : Py_False);
  bool equal = py_kind == Py_EQ || py_kind == Py_NE;
  bool keys = equal && (wk__is_identity(r, a) || wk__is_identity(r, b) || (PyAnySet_Check(a) && PyAnySet_Check(b)));
  bool usable = keys ? wk__keys_usable(f, a) && wk__keys_usable(f, b) : operands_usable(f, -1, a, b);
  if (!usable || wk__note_identity(f, r, a, b) < 0) return NULL;
  return wk__plain_compare(f, py_kind, a, b);
}

int wk__op_contains(wk__frame *f, PyObject *container, PyObject *value) {
  RECORDING(wk__plain_contains(f, container, value));
  container = wk__behind_proxy(f, r, container);
  wk__settle(r, value);
  wk__reg reg = wk__is_foreign(r, container) ? wk__reg_find(r, container) : -1;
  wk__reg key = wk__reg_find(r, value);
  bool fixed_key = wk__is_plain_value(BINDING, value) || (key >= 0 && r->registers[key].fixed);
  if (reg >= 0 && PyDict_Check(container) && fixed_key) { /* only that key matters */
    int found = wk__plain_contains(f, container, value);
    if (found < 0 || wk__was_written(r, reg, value)) return found;
    if (!found) wk__check_once(r, WK__CHECK_ABSENT, reg, 0, value);
    if (found && wk__observe(r, BINDING, PyDict_GetItemWithError(container, value), WK__READ_DICT, reg, -1, value) < 0)
      return failed_int(f, r);
    return found;
  }
  bool only_keys = PyDict_CheckExact(container);
  if (!(only_keys ? wk__passed_on(f, container) : wk__keys_usable(f, container)) || !wk__keys_usable(f, value))
    return -1;
  wk__note_search(f, r, container, value);
  return wk__plain_contains(f, container, value);
}

/* Small integers are one object each, but for those that stand for symbols. */
static int is_same_int(wk__recording *r, PyObject *a, PyObject *b) {
  wk__specialize(r, a);
  wk__specialize(r, b);
  enum { FIRST_SMALL = -5, LAST_SMALL = 256 };
  int overflow;
  long x = PyLong_AsLongAndOverflow(a, &overflow);
  bool small = !overflow && x >= FIRST_SMALL && x <= LAST_SMALL;
  return small && PyLong_AsLongAndOverflow(b, &overflow) == x;
}

int wk__op_is(wk__frame *f, PyObject *a, PyObject *b) {
  RECORDING(wk__plain_is(f, a, b));
  if (PyLong_CheckExact(a) && PyLong_CheckExact(b) && a != b) return is_same_int(r, a, b);
  if (wk__note_identity(f, r, a, b) < 0) return -1;
  return wk__plain_is(f, a, b);
}

/* Nothing about it but its class says whether it is true: a lock, say. */
static bool is_always_true(PyTypeObject *t) {
  bool asked = (t->tp_as_number && t->tp_as_number->nb_bool) || (t->tp_as_mapping && t->tp_as_mapping->mp_length) ||
               (t->tp_as_sequence && t->tp_as_sequence->sq_length);
  return wk__type_is_fixed(t) && !asked;
}

int wk__op_true(wk__frame *f, PyObject *a) {
  RECORDING(wk__plain_true(f, a));
  if (is_always_true(Py_TYPE(a))) return 1;
  if (wk__is_tensor_object(f, a)) return wk__branch_on_tensor(f, r, a);
  int known = wk__symbolic_truth(r, a);
  if (known < 0) known = wk__float_truth(r, a);
  if (known >= 0) return known;
  wk__reg reg = wk__is_foreign(r, a) ? wk__reg_find(r, a) : -1;
  bool counted = PyDict_Check(a) || PyList_Check(a) || PyAnySet_Check(a);
  if (reg >= 0 && counted) {
    bool changed = r->registers[reg].written || r->registers[reg].names || r->registers[reg].before;
    if (!changed) wk__check_once(r, WK__CHECK_LENGTH, reg, PyObject_Size(a), NULL);
    if (changed && wk__touch(r, BINDING, a) < 0) return failed_int(f, r);
    return wk__plain_true(f, a);
  }
  if (!wk__usable(f, a)) return -1;
  return wk__plain_true(f, a);
}

static bool may_be_text(wk__frame *f, wk__recording *r, PyObject *value) {
  if (!PyLong_CheckExact(value) && wk__holds_marked_int(r, value))
    return wk__refuse(f, "the text of a size that was marked");
  if (wk__is_tensor_object(f, value)) return wk__refuse(f, "a tensor's values are printed");
  wk__text_shows(r, value);
  return wk__usable(f, value);
}
PyObject *wk__op_format(wk__frame *f, PyObject *value, int conversion, PyObject *spec) {
  RECORDING(wk__plain_format(f, value, conversion, spec));
  return may_be_text(f, r, value) ? wk__plain_format(f, value, conversion, spec) : NULL;
}
PyObject *wk__op_convert(wk__frame *f, PyObject *value, int conversion) {
  RECORDING(wk__plain_convert(f, value, conversion));
  return may_be_text(f, r, value) ? wk__plain_convert(f, value, conversion) : NULL;
}

/* ==================================================== calls ====================================================== */

PyObject *wk__op_call(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                      PyObject *keyword_names) {
  RECORDING(wk__plain_call(f, callable, args, count, keyword_names));
  return wk__recorded_call(f, r, callable, args, count, keyword_names);
}

/* f(*args, **keywords) as a call with an array. */
static PyObject *call_spread(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *args, PyObject *keywords) {
  Py_ssize_t count = PyTuple_GET_SIZE(args), named = keywords ? PyDict_GET_SIZE(keywords) : 0, i = 0;
  PyObject **array = PyMem_Malloc((size_t)(count + named + 1) * sizeof *array), *key, *value;
  PyObject *names = named ? PyTuple_New(named) : NULL;
  if (!array || (named && !names)) {
    PyMem_Free(array);
    return PyErr_NoMemory();
  }
  for (; i < count; i++) array[i + 1] = PyTuple_GET_ITEM(args, i);
  for (Py_ssize_t at = 0; named && PyDict_Next(keywords, &at, &key, &value); i++) {
    array[i + 1] = value;
    PyTuple_SET_ITEM(names, i - count, Py_NewRef(key));
  }
  PyObject *result = wk__recorded_call(f, r, callable, array + 1, count, names);
  PyMem_Free(array);
  Py_XDECREF(names);
  return result;
}

PyObject *wk__op_call_spread(wk__frame *f, PyObject *callable, PyObject *args, PyObject *keywords) {
  RECORDING(wk__plain_call_spread(f, callable, args, keywords));
  if (!wk__passed_on(f, args) || (keywords && !wk__passed_on(f, keywords))) return NULL;
  const wk__frame *before = f->session->handing;
  f->session->handing = wk__hands_on(f, args) ? f : NULL;
  PyObject *tuple = PyTuple_CheckExact(args) ? Py_NewRef(args) : PySequence_Tuple(args);
  f->session->handing = before;
  if (tuple && wk__recording_of(f) != r) { /* an iterable's own code has ended it */
    PyObject *result = wk__plain_call_spread(f, callable, tuple, keywords);
    Py_DECREF(tuple);
    return result;
  }
  if (!tuple || (keywords && !PyDict_Check(keywords))) {
    Py_XDECREF(tuple);
    return PyErr_Occurred() ? NULL : wk__refuse(f, "keywords of a mapping");
  }
  PyObject *result = call_spread(f, r, callable, tuple, keywords);
  Py_DECREF(tuple);
  return result;
}

/* ================================================= making things ================================================= */

PyObject *wk__op_build(wk__frame *f, wk__build kind, PyObject *const *items, Py_ssize_t count) {
  RECORDING(wk__plain_build(f, kind, items, count));
  int step = kind == WK__BUILD_SET ? 1 : kind == WK__BUILD_MAP ? 2 : 0; /* sets and dicts look at items and keys */
  for (Py_ssize_t i = 0; step && i < count; i += step) wk__settle(r, items[i]);
  if (step) wk__note_keys(f, r, items, count, step);
  return wk__plain_build(f, kind, items, count);
}
PyObject *wk__op_build_const_map(wk__frame *f, PyObject *keys, PyObject *const *values, Py_ssize_t count) {
  return wk__plain_build_const_map(f, keys, values, count);
}
PyObject *wk__op_list_to_tuple(wk__frame *f, PyObject *list) { return wk__plain_list_to_tuple(f, list); }

/* A container that another segment began to fill is known, and what is added has to be added again. */
static int did_fill(wk__frame *f, wk__recording *r, wk__fill kind, PyObject *container, PyObject *a) {
  PyObject *pair[] = {container, a};
  switch (kind) {
    case WK__FILL_LIST_APPEND:
      return wk__did(r, BINDING, WK__DO_APPEND, NULL, pair, 2, NULL) < 0 ? failed_int(f, r) : 0;
    case WK__FILL_SET_ADD:
      return wk__did(r, BINDING, WK__DO_ADD, NULL, pair, 2, NULL) < 0 ? failed_int(f, r) : 0;
    default:
      return did_method(f, r, container, kind == WK__FILL_LIST_EXTEND ? "extend" : "update", a);
  }
}

int wk__op_fill(wk__frame *f, wk__fill kind, PyObject *container, PyObject *a, PyObject *b, PyObject *callable) {
  RECORDING(wk__plain_fill(f, kind, container, a, b, callable));
  bool looks = kind == WK__FILL_LIST_EXTEND || kind == WK__FILL_SET_UPDATE || kind == WK__FILL_DICT_UPDATE ||
               kind == WK__FILL_DICT_MERGE;
  if (looks && !(kind == WK__FILL_SET_UPDATE ? wk__usable(f, a) : wk__passed_on(f, a))) return -1;
  if (kind == WK__FILL_SET_ADD || kind == WK__FILL_MAP_ADD) wk__settle(r, a);
  if (kind == WK__FILL_SET_ADD || kind == WK__FILL_MAP_ADD) wk__note_key(f, r, container, a);
  if (wk__reg_find(r, container) < 0) {
    const wk__frame *before = f->session->handing;
    f->session->handing = kind == WK__FILL_LIST_EXTEND && wk__hands_on(f, a) ? f : NULL;
    int filled = wk__plain_fill(f, kind, container, a, b, callable);
    f->session->handing = before;
    return filled;
  }
  if (kind == WK__FILL_MAP_ADD) return did_set_item(f, r, container, a, b);
  if (did_fill(f, r, kind, container, a) < 0) return -1;
  int64_t step = r->step_count - 1;
  int status = wk__plain_fill(f, kind, container, a, b, callable);
  wk__tried(f, r, step, status == 0, !looks);
  if (looks && status == 0 && wk__recording_of(f) == r) wk__mark_written(r, wk__reg_find(r, container), NULL);
  return status;
}

/* The cells of the closure are the frame's: those that were there before the region began become known. */
PyObject *wk__op_make_function(wk__frame *f, PyObject *code, PyObject *defaults, PyObject *keyword_defaults,
                               PyObject *annotations, PyObject *closure) {
  RECORDING(wk__plain_make_function(f, code, defaults, keyword_defaults, annotations, closure));
  for (Py_ssize_t i = 0; closure && i < PyTuple_GET_SIZE(closure); i++) {
    PyObject *cell = PyTuple_GET_ITEM(closure, i);
    int slot = 0;
    while (slot < wk__frame_slot_count(f) && wk__frame_slot(f, slot) != cell) slot++;
    if (slot < wk__frame_slot_count(f) && find_cell(f, r, cell, slot) < 0) return failed(f, r);
  }
  PyObject *made = wk__plain_make_function(f, code, defaults, keyword_defaults, annotations, closure);
  if (made) wk__note_made(r, made);
  return made;
}
PyObject *wk__op_build_class(wk__frame *f) {
  RECORDING(wk__plain_build_class(f));
  (void)r;
  return wk__plain_build_class(f);
}
