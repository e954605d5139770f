/* What instructions do to objects while something is captured: the real thing, and a note of it.
 * In: an instruction's operands. Out: its result; in the recording, the reads that it depended on and the steps that it
 * did to objects that others can see. Objects of the region's own need no notes: what they are is looked at when they
 * are needed. Tests: tests/python/capture/. */
#include "dynamo/capture/operations.h"

#include <opcode.h>

#include "compile/control/control.h"
#include "dynamo/capture/ends.h"
#include "dynamo/capture/known_calls.h"
#include "dynamo/capture/operation_parts.h"
#include "dynamo/cpython/objects.h"

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
  if (wk__observe(r, BINDING, value, WK__READ_SLOT, a->depth, slot, NULL) < 0) return wk__failed_int(f, r);
  PyObject *object = wk__as_read(r, value);
  if (object != value) wk__frame_put(f, slot, object);
  Py_DECREF(object);
  return 0;
}

void wk__op_stored(wk__frame *f, int slot) {
  wk__activation *a = wk__activation_of(f);
  if (a->at_start && slot < a->slots_at_start) a->stored[slot] = a->seen[slot] = true;
}

void wk__op_dropped(wk__frame *f, PyObject *const *values, int count) {
  wk__recording *r = wk__recording_of(f);
  if (r) wk__note_dropped(f, r, values, count);
}

PyObject *wk__op_constant(wk__frame *f, PyObject *constant) {
  RECORDING(wk__plain_constant(f, constant));
  if (!wk__is_plain_value(BINDING, constant)) wk__reg_constant(r, constant);
  return Py_NewRef(constant);
}

wk__reg wk__globals_register(wk__recording *r, PyObject *dict) {
  wk__reg reg = wk__reg_constant(r, dict);
  if (reg >= 0) r->registers[reg].is_globals = true;
  return reg;
}

PyObject *wk__op_global(wk__frame *f, PyObject *name) {
  RECORDING(wk__plain_global(f, name));
  PyObject *globals = wk__frame_globals(f), *builtins = wk__frame_builtins(f);
  if (!PyDict_CheckExact(globals) || !PyDict_CheckExact(builtins)) return wk__refuse(f, "globals that are no dict");
  wk__reg reg = wk__globals_register(r, globals);
  PyObject *found = reg >= 0 ? PyDict_GetItemWithError(globals, name) : NULL;
  if (!found && reg >= 0 && !PyErr_Occurred()) {
    if (!wk__was_written(r, reg, name)) wk__check_once(r, WK__CHECK_ABSENT, reg, 0, name);
    reg = wk__globals_register(r, builtins);
    found = reg >= 0 ? PyDict_GetItemWithError(builtins, name) : NULL;
  }
  if (!found) return wk__plain_global(f, name);
  r->last_fresh = NULL;
  if (!wk__was_written(r, reg, name) && wk__observe(r, BINDING, found, WK__READ_DICT, reg, -1, name) < 0)
    return wk__failed(f, r);
  return wk__as_read(r, found);
}

int wk__op_set_global(wk__frame *f, PyObject *name, PyObject *value) {
  RECORDING(wk__plain_set_global(f, name, value));
  PyObject *globals = wk__frame_globals(f);
  if (value || PyDict_Contains(globals, name)) return wk__set_in_module(f, r, globals, name, value);
  if (wk__globals_register(r, globals) < 0 || wk__note_presence(f, r, globals, name) < 0) return wk__failed_int(f, r);
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
  return has_own_names(f, r) ? wk__plain_set_name(f, name, value) : wk__refused(f, "a name of a class body");
}
int wk__op_setup_annotations(wk__frame *f) {
  RECORDING(wk__plain_setup_annotations(f));
  bool own = !is_of_module(f) && has_own_names(f, r);
  return own ? wk__plain_setup_annotations(f) : wk__refused(f, "annotations of a module");
}
int wk__op_print(wk__frame *f, PyObject *value) {
  RECORDING(wk__plain_print(f, value));
  (void)r;
  return wk__refused(f, "an interactive prompt's output");
}

/* ---- cells ---- */

/* A parameter that an inner function uses: from here on it is read through the cell, which is the region's own. */
PyObject *wk__op_make_cell(wk__frame *f, int slot) {
  RECORDING(wk__plain_make_cell(f, slot));
  if (wk__frame_slot(f, slot) && wk__op_local(f, slot) < 0) return wk__failed(f, r);
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
  return find_cell(f, r, cell, slot) < 0 ? wk__failed_int(f, r) : 0;
}

PyObject *wk__op_cell(wk__frame *f, PyObject *cell, int slot) {
  RECORDING(wk__plain_cell(f, cell, slot));
  if (find_cell(f, r, cell, slot) < 0 || read_cell(f, r, cell) < 0) return wk__failed(f, r);
  PyObject *value = wk__plain_cell(f, cell, slot), *object = value ? wk__as_read(r, value) : NULL;
  Py_XDECREF(value);
  return object;
}

int wk__op_set_cell(wk__frame *f, PyObject *cell, PyObject *value) {
  RECORDING(wk__plain_set_cell(f, cell, value));
  int slot = 0;
  while (slot < wk__frame_slot_count(f) && wk__frame_slot(f, slot) != cell) slot++;
  if (find_cell(f, r, cell, slot) < 0) return wk__failed_int(f, r);
  wk__reg reg = wk__reg_find(r, cell);
  if (wk__note_emptied(f, r, cell) < 0) return -1;
  if (reg >= 0) {
    PyObject *items[] = {cell, value};
    if (wk__did(r, BINDING, WK__DO_SET_CELL, NULL, items, 2, NULL) < 0) return wk__failed_int(f, r);
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
  wk__reg reg = wk__globals_register(r, modules);
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
  return wk__refused(f, "import *");
}

/* =================================================== operators =================================================== */

PyObject *wk__op_unary(wk__frame *f, wk__unary kind, PyObject *a) {
  RECORDING(wk__plain_unary(f, kind, a));
  PyObject *number;
  if (kind != WK__UNARY_INVERT && wk__symbolic_unary(r, kind == WK__UNARY_NEGATIVE, a, &number)) return number;
  if (kind == WK__UNARY_NEGATIVE && wk__float_negative(r, a, &number)) return number;
  return wk__usable(f, a) ? wk__plain_unary(f, kind, a) : NULL;
}

/* What `list += x` and its like do, which change the object itself: the method of C code. NULL: there is none, or the
 * object's class has one of its own, which is evaluated. */
static PyObject *in_place_method(int kind, PyObject *a) {  // -> new
  static const struct {
    PyTypeObject *type;
    int kind;
    const char *name;
  } methods[] = {{&PyList_Type, NB_INPLACE_ADD, "__iadd__"},     {&PyList_Type, NB_INPLACE_MULTIPLY, "__imul__"},
                 {&PyODict_Type, NB_INPLACE_OR, "__ior__"},      {&PyDict_Type, NB_INPLACE_OR, "__ior__"},
                 {&PySet_Type, NB_INPLACE_OR, "__ior__"},        {&PySet_Type, NB_INPLACE_AND, "__iand__"},
                 {&PySet_Type, NB_INPLACE_SUBTRACT, "__isub__"}, {&PySet_Type, NB_INPLACE_XOR, "__ixor__"}};
  for (size_t i = 0; i < WK_COUNT(methods); i++) {
    if (methods[i].kind != kind || !PyObject_TypeCheck(a, methods[i].type)) continue;
    PyObject *name = PyUnicode_InternFromString(methods[i].name);
    PyObject *method = name ? wk__type_attribute(methods[i].type, name) : NULL;
    bool inherited = method && wk__type_attribute(Py_TYPE(a), name) == method;
    Py_XDECREF(name);
    if (inherited) return Py_NewRef(method);
  }
  return NULL;
}

static int did_method(wk__frame *f, wk__recording *r, PyObject *self, PyObject *method, PyObject *arg) {
  PyObject *items[] = {method, self, arg};
  int status = wk__reg_constant(r, method) < 0 ? -1 : wk__did(r, BINDING, WK__DO_IMPURE_CALL, NULL, items, 3, NULL);
  return status < 0 ? wk__failed_int(f, r) : 0;
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

/* Of a container that others can see. What is added to a list does not depend on what is there. */
static PyObject *change_in_place(wk__frame *f, wk__recording *r, int nb_kind, PyObject *a, PyObject *b,
                                 PyObject *method) {
  bool blind = Py_TYPE(a) == &PyList_Type && nb_kind == NB_INPLACE_ADD;
  if (blind ? !wk__passed_on(f, b) : !operands_usable(f, nb_kind, a, b)) return NULL;
  if (blind && wk__keep_before(r, wk__reg_find(r, a)) < 0) return NULL;
  wk__note_joined(f, r, a, b);
  const wk__known_call *known = wk__known_method(Py_TYPE(a), PyUnicode_AsUTF8(PyDescr_NAME(method)));
  if (wk__note_losses(f, r, known, a, &b, 1, NULL) < 0 || did_method(f, r, a, method, b) < 0) return NULL;
  int64_t step = r->step_count - 1;
  PyObject *result = wk__plain_binary(f, nb_kind, a, b);
  if (result && result != a && wk__recording_of(f) == r) r->steps[step].undone = true; /* the other operand did it */
  if (!result || result == a) method_tried(f, r, step, a, result);
  return result;
}

PyObject *wk__op_binary(wk__frame *f, int nb_kind, PyObject *a, PyObject *b) {
  RECORDING(wk__plain_binary(f, nb_kind, a, b));
  PyObject *number;
  if (wk__symbolic_binary(r, nb_kind, a, b, &number) || wk__float_binary(r, nb_kind, a, b, &number)) return number;
  if (PyUnicode_Check(a) && wk__holds_marked_int(r, b)) return wk__refuse(f, "the text of a size that was marked");
  if (PyUnicode_Check(a) && nb_kind == NB_REMAINDER) wk__text_shows(r, b);
  PyObject *method = wk__reg_find(r, a) >= 0 ? in_place_method(nb_kind, a) : NULL;
  PyObject *result = method ? change_in_place(f, r, nb_kind, a, b, method) : NULL;
  Py_XDECREF(method);
  if (method) return result;
  if (!operands_usable(f, nb_kind, a, b)) return NULL;
  wk__note_joined(f, r, a, b);
  return wk__plain_binary(f, nb_kind, a, b);
}

PyObject *wk__op_compare(wk__frame *f, int py_kind, PyObject *a, PyObject *b) {
  RECORDING(wk__plain_compare(f, py_kind, a, b));
  int known = wk__symbolic_compare(r, py_kind, a, b);
  if (known < 0) known = wk__float_compare(r, py_kind, a, b);
  if (known >= 0) return Py_NewRef(known ? Py_True : Py_False);
  bool equal = py_kind == Py_EQ || py_kind == Py_NE;
  bool keys = equal && (wk__is_identity(r, a) || wk__is_identity(r, b) || (PyAnySet_Check(a) && PyAnySet_Check(b)));
  bool usable = keys ? wk__keys_usable(f, a) && wk__keys_usable(f, b) : operands_usable(f, -1, a, b);
  if (!usable) return NULL;
  wk__note_equality(f, r, a, b);
  return wk__plain_compare(f, py_kind, a, b);
}

int wk__op_contains(wk__frame *f, PyObject *container, PyObject *value) {
  RECORDING(wk__plain_contains(f, container, value));
  container = wk__behind_proxy(f, r, container);
  wk__settle(r, value);
  wk__reg reg = wk__is_foreign(r, container) ? wk__reg_find(r, container) : -1;
  wk__reg key = wk__reg_find(r, value);
  bool plain = wk__is_plain_value(BINDING, value), again = !plain && wk__is_asked_again(f, r, value, key);
  bool known = plain || again || (key >= 0 && r->registers[key].fixed);
  if (reg >= 0 && PyDict_Check(container) && known) { /* only that key matters */
    int found = wk__plain_contains(f, container, value);
    if (found >= 0 && again) wk__note_written_keys(r, reg, value);
    if (found < 0 || wk__was_written(r, reg, value)) return found;
    wk__reg by = again ? key : -1;
    PyObject *constant = again ? NULL : value;
    if (!found) wk__check_once(r, WK__CHECK_ABSENT, reg, by, constant);
    if (found &&
        wk__observe(r, BINDING, PyDict_GetItemWithError(container, value), WK__READ_DICT, reg, by, constant) < 0)
      return wk__failed_int(f, r);
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
  if (r->tries && a != b && wk__is_tensor_object(f, a) && wk__is_tensor_object(f, b))
    wk__control_asks(WK__ASKS_IDENTITY);
  wk__note_identity(r, a, b);
  return wk__plain_is(f, a, b);
}

/* Nothing about it but its class says whether it is true: a lock, say. */
static bool is_always_true(PyTypeObject *t) {
  bool asked = (t->tp_as_number && t->tp_as_number->nb_bool) || (t->tp_as_mapping && t->tp_as_mapping->mp_length) ||
               (t->tp_as_sequence && t->tp_as_sequence->sq_length);
  return wk__type_is_fixed(t) && !asked;
}

bool wk__note_length(wk__recording *r, PyObject *container) {
  wk__reg reg = wk__is_foreign(r, container) ? wk__reg_find(r, container) : -1;
  bool changed = reg >= 0 && (r->registers[reg].written || r->registers[reg].names || r->registers[reg].before);
  if (reg >= 0 && !changed) wk__check_once(r, WK__CHECK_LENGTH, reg, PyObject_Size(container), NULL);
  return reg >= 0 && !changed;
}

int wk__op_true(wk__frame *f, PyObject *a) {
  RECORDING(wk__plain_true(f, a));
  if (is_always_true(Py_TYPE(a))) return 1;
  if (wk__is_tensor_object(f, a)) return wk__branch_on_tensor(f, r, a);
  int known = wk__symbolic_truth(r, a);
  if (known < 0) known = wk__float_truth(r, a);
  if (known >= 0) return known;
  bool counted = PyDict_Check(a) || PyList_Check(a) || PyAnySet_Check(a) || wk__is_deque(a);
  if (counted && wk__is_foreign(r, a)) {
    if (!wk__note_length(r, a) && wk__touch(r, BINDING, a) < 0) return wk__failed_int(f, r);
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

PyObject *wk__op_spread_tuple(wk__frame *f, PyObject *args) {
  RECORDING(Py_NewRef(args));
  if (PyTuple_CheckExact(args) || !(Py_TYPE(args)->tp_iter || PySequence_Check(args))) return Py_NewRef(args);
  if (!wk__passed_on(f, args)) return NULL;
  const wk__frame *before = f->session->handing;
  f->session->handing = wk__hands_on(f, args) ? f : NULL;
  PyObject *tuple = PySequence_Tuple(args);
  f->session->handing = before;
  return tuple;
}

PyObject *wk__op_call_spread(wk__frame *f, PyObject *callable, PyObject *args, PyObject *keywords) {
  RECORDING(wk__plain_call_spread(f, callable, args, keywords));
  if (!PyTuple_CheckExact(args)) return wk__plain_call_spread(f, callable, args, keywords); /* it is an error */
  if (!wk__passed_on(f, args) || (keywords && !wk__passed_on(f, keywords))) return NULL;
  if (keywords && !PyDict_Check(keywords)) return wk__refuse(f, "keywords of a mapping");
  return call_spread(f, r, callable, args, keywords);
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
/* Of the arguments of a call with *: an earlier segment may have begun the list. */
PyObject *wk__op_list_to_tuple(wk__frame *f, PyObject *list) {
  RECORDING(wk__plain_list_to_tuple(f, list));
  (void)r;
  return wk__passed_on(f, list) ? wk__plain_list_to_tuple(f, list) : NULL;
}

/* A container that another segment began to fill is known, and what is added has to be added again. */
static int did_fill(wk__frame *f, wk__recording *r, wk__fill kind, PyObject *container, PyObject *a) {
  PyObject *pair[] = {container, a};
  switch (kind) {
    case WK__FILL_LIST_APPEND:
      return wk__did(r, BINDING, WK__DO_APPEND, NULL, pair, 2, NULL) < 0 ? wk__failed_int(f, r) : 0;
    case WK__FILL_SET_ADD:
      return wk__did(r, BINDING, WK__DO_ADD, NULL, pair, 2, NULL) < 0 ? wk__failed_int(f, r) : 0;
    default:
      break;
  }
  const char *name = kind == WK__FILL_LIST_EXTEND ? "extend" : "update";
  PyObject *method = PyObject_GetAttrString((PyObject *)Py_TYPE(container), name);
  int status = method ? did_method(f, r, container, method, a) : -1;
  Py_XDECREF(method);
  return status;
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
  if (kind == WK__FILL_MAP_ADD) return wk__did_set_item(f, r, container, a, b);
  if (looks && wk__keep_before(r, wk__reg_find(r, container)) < 0) return -1; /* what it has can still be asked for */
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
    if (slot < wk__frame_slot_count(f) && find_cell(f, r, cell, slot) < 0) return wk__failed(f, r);
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
