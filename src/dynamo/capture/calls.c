/* What happens at a call while something is captured. Python functions are evaluated, operators record themselves, C
 * functions that only look at their arguments run; methods that change a container run and are noted; everything else
 * is refused and ends the segment. Which C function does what: known_calls.def.
 * Tests: tests/python/capture/test_corpus.py, test_known_calls.py. */
#include <opcode.h>

#include "autograd/autograd.h"
#include "compile/control/control.h"
#include "dynamo/capture/call_parts.h"
#include "dynamo/capture/classes.h"
#include "dynamo/capture/known.h"
#include "dynamo/capture/known_calls.h"
#include "dynamo/capture/record_parts.h"
#include "dynamo/cpython/objects.h"

#define BINDING (f->session->binding)

/* ================================================== arguments ==================================================== */

bool wk__arguments_usable(wk__frame *f, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  Py_ssize_t all = count + (names ? PyTuple_GET_SIZE(names) : 0);
  for (Py_ssize_t i = 0; i < all; i++)
    if (!wk__usable(f, args[i])) return false;
  return true;
}

/* Python code goes on in a frame of its own; the instruction does nothing else, unless this is a call within one. */
static PyObject *enter(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  wk__session *s = f->session;
  s->entering = !f->within;
  PyObject *result = wk__plain_call(f, callable, args, count, names);
  s->entering = false;
  return result;
}

/* An operator takes a changing number as it is: it becomes an input of the graph, or one of its symbols. */
static PyObject *call_operator(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                               PyObject *names) {
  Py_ssize_t all = count + (names ? PyTuple_GET_SIZE(names) : 0);
  for (Py_ssize_t i = 0; i < all; i++)
    if (!PyFloat_CheckExact(args[i]) && !wk__operand_usable(f, args[i])) return NULL;
  return wk__plain_call(f, callable, args, count, names);
}

PyObject *wk__call_looking(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  return wk__arguments_usable(f, args, count, names) ? wk__plain_call(f, callable, args, count, names) : NULL;
}

/* The same, but a size that was marked stays one: the call is a break, and looks at it behind that. */
PyObject *wk__call_at_values(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                             PyObject *names) {
  for (Py_ssize_t i = 0; i < count + (names ? PyTuple_GET_SIZE(names) : 0); i++)
    if (wk__holds_marked_int(f->session->recording, args[i]))
      return wk__refuse(f, "C code looks at a size that was marked");
  return wk__call_looking(f, callable, args, count, names);
}

/* For C code that only hands references on. */
PyObject *wk__call_passing(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  bool hands = true;
  for (Py_ssize_t i = 0; i < count + (names ? PyTuple_GET_SIZE(names) : 0); i++) {
    if (!wk__passed_on(f, args[i])) return NULL;
    hands &= PyFunction_Check(args[i]) || wk__hands_on(f, args[i]);
    if (i && callable == (PyObject *)&PyEnum_Type) wk__specialize(f->session->recording, args[i]); /* its start */
  }
  const wk__frame *before = f->session->handing;
  f->session->handing = hands ? f : NULL;
  PyObject *result = wk__plain_call(f, callable, args, count, names);
  f->session->handing = before;
  return result;
}

/* map() of a function that is C code: each item is done as a call of its own, at once, where nothing else is known to
 * happen. */
static bool maps_by_calls(const wk__frame *f, PyObject *const *args, Py_ssize_t count) {
  bool list = count == 2 && (PyTuple_Check(args[1]) || PyList_CheckExact(args[1]));
  PyObject *function = args[0], *self = PyCFunction_Check(function) ? PyCFunction_GET_SELF(function) : NULL;
  (void)f;
  if (!list || !self || !PyModule_Check(self)) return list && function == (PyObject *)&PyLong_Type;
  const char *name = ((PyCFunctionObject *)function)->m_ml->ml_name, *module = PyModule_GetName(self);
  PyErr_Clear();
  return module && strcmp(module, "builtins") == 0 && (strcmp(name, "id") == 0 || strcmp(name, "hash") == 0);
}

static PyObject *map_by_calls(wk__frame *f, wk__recording *r, PyObject *function, PyObject *items) {
  if (!wk__passed_on(f, items)) return NULL;
  Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
  PyObject *results = PyList_New(0);
  for (Py_ssize_t i = 0; results && i < count; i++) {
    PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(items, i));
    PyObject *made = wk__recorded_call(f, r, function, &item, 1, NULL);
    if (!made || wk__recording_of(f) != r || PyList_Append(results, made) < 0) Py_CLEAR(results);
    Py_XDECREF(made);
    Py_DECREF(item);
  }
  PyObject *iterator = results ? PyObject_GetIter(results) : NULL;
  Py_XDECREF(results);
  return iterator;
}

/* ================================================ functions of C ================================================= */

static PyObject *get_attribute_call(wk__frame *f, PyObject *const *args, Py_ssize_t count, bool only_has) {
  PyObject *found = wk__op_attr(f, args[0], args[1]);
  if (found && !only_has) return found;
  if (found) {
    Py_DECREF(found);
    Py_RETURN_TRUE;
  }
  if (!PyErr_Occurred() || !PyErr_ExceptionMatches(PyExc_AttributeError)) return NULL;
  if (!only_has && count < 3) return NULL;
  PyErr_Clear();
  return Py_NewRef(only_has ? Py_False : args[2]);
}

static bool quotient_and_rest(wk__recording *r, PyObject *const *args, PyObject **out) {
  PyObject *quotient = NULL, *rest = NULL;
  bool symbolic = wk__symbolic_binary(r, NB_FLOOR_DIVIDE, args[0], args[1], &quotient) &&
                  wk__symbolic_binary(r, NB_REMAINDER, args[0], args[1], &rest);
  if (symbolic) *out = quotient && rest ? PyTuple_Pack(2, quotient, rest) : NULL;
  Py_XDECREF(quotient);
  Py_XDECREF(rest);
  return symbolic;
}

/* len, min, max, sum, divmod and pow where they need not know the numbers. */
static bool of_symbols(wk__frame *f, const char *name, PyObject *const *args, Py_ssize_t count, PyObject **out) {
  wk__recording *r = f->session->recording;
  if (!r->symbol_count || !count) return false;
  if (strcmp(name, "len") == 0 && count == 1 &&
      (PyTuple_CheckExact(args[0]) || PyList_CheckExact(args[0]) || Py_TYPE(args[0]) == BINDING->size_type)) {
    if (wk__passed_on(f, args[0])) *out = PyLong_FromSsize_t(PySequence_Fast_GET_SIZE(args[0]));
    return true;
  }
  if (strcmp(name, "len") == 0 && count == 1 && wk__is_tensor_object(f, args[0]))
    return (*out = wk__symbolic_size(f, args[0], "__len__", args + 1, 0)) != NULL;
  bool largest = strcmp(name, "max") == 0;
  if (count > 1 && (largest || strcmp(name, "min") == 0)) return wk__symbolic_extremum(r, largest, args, count, out);
  if (count == 2 && strcmp(name, "divmod") == 0) return quotient_and_rest(r, args, out);
  if (count == 2 && strcmp(name, "pow") == 0) return wk__symbolic_binary(r, NB_POWER, args[0], args[1], out);
  return count == 1 && strcmp(name, "sum") == 0 && wk__fold_symbols(r, NB_ADD, args[0], out);
}

/* abs, round, pow, min and max of floats that differ from call to call. */
static bool of_floats(wk__frame *f, const char *name, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                      PyObject **out) {
  wk__recording *r = f->session->recording;
  bool computes = strcmp(name, "abs") == 0 || strcmp(name, "round") == 0 || strcmp(name, "pow") == 0;
  if (computes) return wk__float_call(r, callable, args, count, out);
  bool largest = strcmp(name, "max") == 0;
  return (largest || strcmp(name, "min") == 0) && wk__float_extremum(r, largest, args, count, out);
}

static const char *function_name(PyObject *function) { return ((PyCFunctionObject *)function)->m_ml->ml_name; }

/* id(), and hash() of what has no other one: of an object from outside a constant, as long as the same one is there. A
 * number or text is no certain object. An argument may be another object in each call: from then on it is a break. */
static PyObject *identity(wk__frame *f, wk__recording *r, PyObject *function, PyObject *o) {
  wk__reg reg = wk__is_foreign(r, o) ? wk__reg_find(r, o) : -1;
  if (wk__is_plain_value(BINDING, o)) return wk__refuse(f, "%s() of a value", function_name(function));
  if (reg < 0) return wk__identity_call(f, r, function, o);
  bool another = r->changing && wk__map_get(r->changing, wk__identity_path(r->registers[reg].path));
  if (another && !f->session->compiled->options.fullgraph)
    return wk__refuse(f, "%s() of an object that is another one in each call", function_name(function));
  if (r->registers[reg].kind == WK__REG_READ) wk__check_once(r, WK__CHECK_ADDRESS, reg, (int64_t)(intptr_t)o, NULL);
  return PyObject_CallOneArg(function, o);
}

/* Text that is the same whenever it is made: of values and tuples of them. */
bool wk__has_constant_text(const wk__frame *f, PyObject *o) {
  if (!PyTuple_CheckExact(o) && Py_TYPE(o) != BINDING->size_type) return wk__is_plain_value(BINDING, o);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++)
    if (!wk__has_constant_text(f, PyTuple_GET_ITEM(o, i))) return false;
  return true;
}

/* print(): done in the region, and again by each replay, behind the graph and in the order of the other effects. Sizes
 * stay symbols. What it is written to may be Python code, which is no part of what is captured. */
static PyObject *print_call(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                            PyObject *names) {
  Py_ssize_t all = count + (names ? PyTuple_GET_SIZE(names) : 0);
  for (Py_ssize_t i = 0; i < all; i++) {
    bool file = i >= count && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, i - count), "file") == 0;
    bool plain = file ? wk__is_foreign(r, args[i]) || args[i] == Py_None : wk__has_constant_text(f, args[i]);
    if (!plain) return wk__refuse(f, "print() of other things than values");
    if (!file && !wk__passed_on(f, args[i])) return NULL;
  }
  return wk__effect(f, r, callable, args, count, names);
}

static bool has_python_hash(PyObject *o) {
  PyObject *name = PyUnicode_InternFromString("__hash__");
  PyObject *method = name && wk__is_python_instance(o) ? wk__type_attribute(Py_TYPE(o), name) : NULL;
  Py_XDECREF(name);
  return method && PyFunction_Check(method);
}

/* Values, objects whose class says it in Python, and tuples, named ones too, and frozen sets of them. */
bool wk__has_constant_hash(const wk__frame *f, PyObject *o) {
  if (PyFrozenSet_CheckExact(o)) {
    PyObject *items = PySequence_Tuple(o);
    bool constant = items && wk__has_constant_hash(f, items);
    Py_XDECREF(items);
    return constant;
  }
  bool tuple = PyTuple_Check(o) && Py_TYPE(o)->tp_hash == PyTuple_Type.tp_hash;
  if (!tuple) return wk__is_plain_value(BINDING, o) || has_python_hash(o);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++)
    if (!wk__has_constant_hash(f, PyTuple_GET_ITEM(o, i))) return false;
  return true;
}

bool wk__hashes_its_address(const wk__frame *f, PyObject *o) {
  hashfunc hash = Py_TYPE(o)->tp_hash;
  return hash == PyBaseObject_Type.tp_hash || (hash == BINDING->tensor_type->tp_hash && wk__is_tensor_object(f, o));
}

static PyObject *globals_of_frame(wk__frame *f, wk__recording *r) {
  PyObject *globals = wk__frame_globals(f);
  wk__reg reg = wk__reg_constant(r, globals);
  if (reg < 0) return wk__refuse(f, "%s", r->failed);
  r->registers[reg].is_globals = true;
  return Py_NewRef(globals);
}

/* locals(): the frame's variables, which become known. */
static PyObject *variables_of_frame(wk__frame *f, bool only_names) {
  if (wk__frame_locals(f)) return wk__refuse(f, "locals() of a module or class body");
  PyObject *all = PyDict_New();
  for (int i = 0; all && i < wk__frame_slot_count(f); i++) {
    if (!wk__frame_shows_slot(f, i) || !wk__frame_slot(f, i)) continue;
    bool cell = PyCell_Check(wk__frame_slot(f, i)), empty = cell && !PyCell_GET(wk__frame_slot(f, i));
    if (empty || (!cell && wk__op_local(f, i) < 0)) {
      if (!empty) Py_CLEAR(all);
      continue;
    }
    PyObject *value = wk__frame_slot(f, i); /* a number that changes has got an object of its own */
    value = cell ? wk__op_cell(f, value, i) : Py_NewRef(value);
    if (!value || PyDict_SetItem(all, PyTuple_GET_ITEM(f->code->co_localsplusnames, i), value) < 0) Py_CLEAR(all);
    Py_XDECREF(value);
  }
  if (!all || !only_names) return all;
  PyObject *names = PyDict_Keys(all);
  if (names && PyList_Sort(names) < 0) Py_CLEAR(names);
  Py_DECREF(all);
  return names;
}

static PyObject *attribute_named(wk__frame *f, PyObject *o, const char *text) {
  PyObject *name = PyUnicode_InternFromString(text), *found = name ? wk__op_attr(f, o, name) : NULL;
  Py_XDECREF(name);
  return found;
}

/* What a generator returns is in the exception. */
static PyObject *next_call(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  PyObject *item = NULL;
  if (!wk__can_look_ahead(f->session->recording, args[0]) || names || count > 2)
    return wk__passed_on(f, args[0]) ? wk__plain_call(f, callable, args, count, names) : NULL;
  int status = wk__take_upcoming(f, f->session->recording, args[0], &item);
  if (status == 0 && count == 2) return Py_NewRef(args[1]);
  if (status == 0) PyErr_SetNone(PyExc_StopIteration);
  return item;
}

/* Those that are instructions under another name. */
static PyObject *builtin_by_code(wk__frame *f, const char *name, PyObject *callable, PyObject *const *args,
                                 Py_ssize_t count, PyObject *names) {
  bool text_second = count >= 2 && !names && PyUnicode_Check(args[1]);
  if (strcmp(name, "len") == 0) {
    bool counted = count == 1 && !names && wk__is_deque(args[0]) && wk__note_length(f->session->recording, args[0]);
    if (counted) return PyLong_FromSsize_t(Py_SIZE(args[0]));
    bool counts = count == 1 && !names && wk__is_container(args[0]);
    return (counts ? wk__call_passing : wk__call_at_values)(f, callable, args, count, names);
  }
  if (strcmp(name, "getattr") == 0 && text_second) return get_attribute_call(f, args, count, false);
  if (strcmp(name, "hasattr") == 0 && text_second) return get_attribute_call(f, args, count, true);
  if (strcmp(name, "setattr") == 0 && text_second && count == 3)
    return wk__op_set_attr(f, args[0], args[1], args[2]) < 0 ? NULL : Py_NewRef(Py_None);
  if (strcmp(name, "delattr") == 0 && text_second && count == 2)
    return wk__op_set_attr(f, args[0], args[1], NULL) < 0 ? NULL : Py_NewRef(Py_None);
  if (strcmp(name, "hash") == 0 && count == 1 && wk__has_constant_hash(f, args[0]))
    return wk__call_looking(f, callable, args, count, names);
  bool of_address =
      strcmp(name, "id") == 0 || (strcmp(name, "hash") == 0 && count && wk__hashes_its_address(f, args[0]));
  if (of_address && f->session->recording->tries) wk__control_asks(WK__ASKS_IDENTITY);
  if (of_address && count == 1 && !names) return identity(f, f->session->recording, callable, args[0]);
  if (strcmp(name, "print") == 0) return print_call(f, f->session->recording, callable, args, count, names);
  if (strcmp(name, "globals") == 0 && !count && !names) return globals_of_frame(f, f->session->recording);
  bool of_frame = strcmp(name, "locals") == 0 || strcmp(name, "vars") == 0 || strcmp(name, "dir") == 0;
  if (of_frame && !count && !names) return variables_of_frame(f, strcmp(name, "dir") == 0);
  if (strcmp(name, "vars") == 0 && count == 1 && !names) return attribute_named(f, args[0], "__dict__");
  if (strcmp(name, "__build_class__") == 0)
    return wk__build_class_call(f, f->session->recording, callable, args, count, names);
  if (strcmp(name, "iter") == 0 && count == 1) return wk__op_iter(f, args[0]);
  if (strcmp(name, "iter") == 0 && count == 2) return wk__call_looking(f, callable, args, count, names);
  if (strcmp(name, "next") == 0 && count >= 1) return next_call(f, callable, args, count, names);
  return wk__refuse(f, "a call of %s()", name);
}

static PyObject *builtin(wk__frame *f, const char *name, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                         PyObject *names) {
  wk__knowledge what = wk__known_function("builtins", name)->what;
  if (what == WK__KNOWN_PASSES && !names) return wk__call_passing(f, callable, args, count, names);
  PyObject *computed = NULL;
  bool counts = strcmp(name, "len") == 0 && count == 1 && wk__is_container(args[0]);
  if (!names && !counts &&
      (of_symbols(f, name, args, count, &computed) || of_floats(f, name, callable, args, count, &computed)))
    return computed;
  if (what == WK__KNOWN_BY_CODE) return builtin_by_code(f, name, callable, args, count, names);
  if (what != WK__KNOWN_VALUES && what != WK__KNOWN_PASSES) return wk__refuse(f, "a call of %s()", name);
  bool prints = strcmp(name, "repr") == 0 || strcmp(name, "format") == 0 || strcmp(name, "ascii") == 0;
  if (prints && count && wk__is_tensor_object(f, args[0])) return wk__refuse(f, "a tensor's values are printed");
  if (prints && count) wk__text_shows(f->session->recording, args[0]);
  return wk__call_at_values(f, callable, args, count, names);
}

/* operator.add() and its kind, which make something new: the instruction, -1. */
static int kind_of_operator(const char *name) {
  static const struct {
    const char *name;
    int kind;
  } kinds[] = {{"add", NB_ADD},
               {"sub", NB_SUBTRACT},
               {"mul", NB_MULTIPLY},
               {"truediv", NB_TRUE_DIVIDE},
               {"floordiv", NB_FLOOR_DIVIDE},
               {"mod", NB_REMAINDER},
               {"pow", NB_POWER}};
  for (size_t i = 0; i < WK_COUNT(kinds); i++)
    if (strcmp(name, kinds[i].name) == 0) return kinds[i].kind;
  return -1;
}

/* operator.iadd() and its kind, and what gets and sets items: as the instructions. */
static PyObject *operator_by_code(wk__frame *f, const char *name, PyObject *callable, PyObject *const *args,
                                  Py_ssize_t count, PyObject *names) {
  static const struct {
    const char *name;
    int kind;
  } in_place[] = {{"iadd", NB_INPLACE_ADD},
                  {"iconcat", NB_INPLACE_ADD},
                  {"isub", NB_INPLACE_SUBTRACT},
                  {"imul", NB_INPLACE_MULTIPLY},
                  {"itruediv", NB_INPLACE_TRUE_DIVIDE},
                  {"ifloordiv", NB_INPLACE_FLOOR_DIVIDE},
                  {"imod", NB_INPLACE_REMAINDER},
                  {"ipow", NB_INPLACE_POWER},
                  {"imatmul", NB_INPLACE_MATRIX_MULTIPLY},
                  {"ilshift", NB_INPLACE_LSHIFT},
                  {"irshift", NB_INPLACE_RSHIFT},
                  {"iand", NB_INPLACE_AND},
                  {"ior", NB_INPLACE_OR},
                  {"ixor", NB_INPLACE_XOR}};
  bool sets = strcmp(name, "setitem") == 0 && count == 3, deletes = strcmp(name, "delitem") == 0 && count == 2;
  if (sets || deletes)
    return wk__op_set_item(f, args[0], args[1], sets ? args[2] : NULL) < 0 ? NULL : Py_NewRef(Py_None);
  if (count != 2) return wk__call_looking(f, callable, args, count, names); /* an error */
  if (strcmp(name, "getitem") == 0) return wk__op_item(f, args[0], args[1]);
  bool negated = strcmp(name, "is_not") == 0;
  if (negated || strcmp(name, "is_") == 0) {
    int same = wk__op_is(f, args[0], args[1]);
    return same < 0 ? NULL : PyBool_FromLong(same != negated);
  }
  if (strcmp(name, "contains") == 0) {
    int found = wk__op_contains(f, args[0], args[1]);
    return found < 0 ? NULL : PyBool_FromLong(found);
  }
  for (size_t i = 0; i < WK_COUNT(in_place); i++)
    if (strcmp(name, in_place[i].name) == 0) return wk__op_binary(f, in_place[i].kind, args[0], args[1]);
  return wk__refuse(f, "a call of operator.%s()", name);
}

/* math.floor and its kind: of integers and their quotients. */
static bool rounded(wk__recording *r, const char *name, PyObject *a, PyObject **out) {
  static const char *const names[] = {
      [WK__ROUND_DOWN] = "floor", [WK__ROUND_UP] = "ceil", [WK__ROUND_TO_ZERO] = "trunc"};
  wk_int x;
  for (int k = 0; k < (int)WK_COUNT(names); k++) {
    if (strcmp(name, names[k]) != 0) continue;
    if (!wk__symbolic_int(r, a, &x)) return wk__rounded_quotient(r, (wk__rounding)k, a, out);
    *out = Py_NewRef(a);
    return true;
  }
  return false;
}

/* Of the module operator. */
static bool is_operator_function(PyObject *o) {
  PyObject *self = PyCFunction_Check(o) ? PyCFunction_GET_SELF(o) : NULL;
  const char *module = self && PyModule_Check(self) ? PyModule_GetName(self) : NULL;
  PyErr_Clear();
  return module && strcmp(module, "_operator") == 0;
}

/* functools.reduce() of what changes nothing: each call is one of its own. */
static PyObject *reduce_by_calls(wk__frame *f, wk__recording *r, PyObject *function, PyObject *items, PyObject *first) {
  if (!wk__passed_on(f, items)) return NULL;
  Py_ssize_t at = first ? 0 : 1, count = PySequence_Fast_GET_SIZE(items);
  if (!first && !count) return PyErr_Format(PyExc_TypeError, "reduce() of empty iterable with no initial value");
  PyObject *all = Py_NewRef(first ? first : PySequence_Fast_GET_ITEM(items, 0));
  for (; all && at < count && wk__recording_of(f) == r; at++) {
    PyObject *pair[] = {all, PySequence_Fast_GET_ITEM(items, at)};
    PyObject *next = wk__recorded_call(f, r, function, pair, 2, NULL);
    Py_SETREF(all, next);
  }
  for (; all && at < count; at++)
    Py_SETREF(all, PyObject_CallFunctionObjArgs(function, all, PySequence_Fast_GET_ITEM(items, at), NULL));
  return all;
}

/* A Python function, whose frame the hook will find. */
static bool is_evaluated(PyObject *o) {
  PyObject *function = PyMethod_Check(o) ? PyMethod_GET_FUNCTION(o) : o;
  return PyFunction_Check(function) && wk__known_python_function(function)->what == WK__KNOWN_NOTHING;
}

/* sys._getframemodulename(depth): the module of a function of the chain, which typing asks for. */
static PyObject *module_of_frame(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *depth) {
  long n = PyLong_CheckExact(depth) ? PyLong_AsLong(depth) : -1;
  if (n < 0) PyErr_Clear();
  const wk__activation *at = wk__activation_of(f);
  while (at && n > 0) at = at->outer, n--;
  PyObject *function = n == 0 && at ? wk__frame_function(&at->frame) : NULL;
  if (!function || !PyFunction_Check(function)) return wk__refuse(f, "a frame outside of the region");
  if (wk__is_foreign(r, function) && wk__reg_constant(r, function) < 0) return wk__refuse(f, "%s", r->failed);
  PyObject *name = PyUnicode_InternFromString("__module__"), *shown = wk__plain_call(f, callable, &depth, 1, NULL);
  PyObject *module = name && shown ? wk__get_attribute(f, r, function, name) : NULL;
  int same = module ? PyObject_RichCompareBool(module, shown, Py_EQ) : 1;
  if (!same) Py_SETREF(module, wk__refuse(f, "a frame that is not evaluated")); /* lies between */
  if (same < 0) Py_CLEAR(module);
  Py_XDECREF(shown);
  Py_XDECREF(name);
  return module;
}

static PyObject *c_function(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                            PyObject *names) {
  const PyCFunctionObject *c = (const PyCFunctionObject *)callable;
  const char *name = c->m_ml->ml_name;
  PyObject *self = PyCFunction_GET_SELF(callable);
  if (!wk__know_bound(f, r, callable)) return NULL;
  if (self && !PyModule_Check(self)) {
    if (self == (PyObject *)&PyType_Type && strcmp(name, "__new__") == 0)
      return wk__type_new_call(f, r, callable, args, count, names);
    if (PyType_Check(self) && strcmp(name, "__new__") == 0) return wk__call_looking(f, callable, args, count, names);
    return wk__method_call(f, r, self, name, callable, args, count, names, false);
  }
  bool makes_parameter = !self && !c->m_module && strcmp(name, "_make_subclass") == 0 && count &&
                         args[0] == (PyObject *)*BINDING->parameter_type;
  if (makes_parameter) return wk__call_looking(f, callable, args, count, names);
  const char *module = c->m_module && PyUnicode_Check(c->m_module) ? PyUnicode_AsUTF8(c->m_module) : "";
  if (!module) return NULL;
  if (strcmp(module, "builtins") == 0) return builtin(f, name, callable, args, count, names);
  if (self == BINDING->module) return wk__core_call(f, name, callable, args, count, names);
  if (strcmp(module, "_warnings") == 0 && strcmp(name, "warn") == 0)
    return wk__warn_call(f, r, callable, args, count, names);
  bool asks_exception = strcmp(name, "exc_info") == 0 || strcmp(name, "exception") == 0;
  if (strcmp(module, "sys") == 0 && asks_exception) return wk__exception_state(f, r, callable);
  bool asks_module = strcmp(module, "sys") == 0 && strcmp(name, "_getframemodulename") == 0;
  if (asks_module && count == 1 && !names) return module_of_frame(f, r, callable, args[0]);
  bool of_abc = strcmp(module, "_abc") == 0 && count == 2 && !names;
  if (of_abc && strcmp(name, "_abc_instancecheck") == 0) return wk__abstract_check(f, r, callable, args, true);
  if (of_abc && strcmp(name, "_abc_subclasscheck") == 0) return wk__abstract_check(f, r, callable, args, false);
  bool of_made = strcmp(module, "_abc") == 0 && count == 1 && !names && wk__is_made_class(r, args[0]);
  if (of_made && strcmp(name, "_abc_init") == 0) return wk__plain_call(f, callable, args, count, names);
  PyObject *product = NULL;
  bool folds = count == 1 && !names && strcmp(module, "math") == 0 && strcmp(name, "prod") == 0;
  if (folds && wk__fold_symbols(r, NB_MULTIPLY, args[0], &product)) return product;
  bool of_math = !names && strcmp(module, "math") == 0;
  if (of_math && count == 1 && rounded(r, name, args[0], &product)) return product;
  if (of_math && wk__float_call(r, callable, args, count, &product)) return product;
  bool reduces = !names && count >= 2 && strcmp(module, "_functools") == 0 && strcmp(name, "reduce") == 0;
  if (reduces && is_evaluated(args[0])) return wk__call_passing(f, callable, args, count, names);
  if (reduces && is_operator_function(args[0]) && (PyTuple_Check(args[1]) || PyList_CheckExact(args[1])))
    return reduce_by_calls(f, r, args[0], args[1], count > 2 ? args[2] : NULL);
  const wk__known_call *known = wk__known_function(module, name);
  int kind = strcmp(module, "_operator") == 0 && count == 2 && !names ? kind_of_operator(name) : -1;
  if (kind >= 0) return wk__op_binary(f, kind, args[0], args[1]);
  if (known->what == WK__KNOWN_VALUES) return wk__call_at_values(f, callable, args, count, names);
  if (known->what == WK__KNOWN_PASSES) return wk__call_passing(f, callable, args, count, names);
  if (known->what == WK__KNOWN_BY_CODE && strcmp(module, "_operator") == 0)
    return operator_by_code(f, name, callable, args, count, names);
  if (known->what == WK__KNOWN_EFFECT) return wk__effect_of_values(f, r, callable, args, count, names);
  if (known->what == WK__KNOWN_ASKED) return wk__cached_call(f, r, callable, args, count, names);
  if (known->what == WK__KNOWN_CLOCK) return wk__clock_call(f, r, callable, args, count, names);
  bool changes = known->what == WK__KNOWN_CHANGES && count &&
                 (PyList_CheckExact(args[0]) || (PyDict_Check(args[0]) && wk__reg_find(r, args[0]) < 0));
  if (changes) return wk__change_container(f, r, known, args[0], callable, args, count, names, true);
  return wk__refuse(f, "a call of %s.%s()", module, name);
}

/* ==================================================== classes ==================================================== */

static bool is_value_class(const wk__binding *b, PyTypeObject *t) {
  return t == &PyLong_Type || t == &PyFloat_Type || t == &PyBool_Type || t == &PyUnicode_Type || t == &PyBytes_Type ||
         t == &PyComplex_Type || t == &PyList_Type || t == &PyTuple_Type || t == &PyDict_Type || t == &PySet_Type ||
         t == &PyFrozenSet_Type || t == &PyRange_Type || t == &PySlice_Type || t == &PyEnum_Type || t == &PyZip_Type ||
         t == &PyMap_Type || t == &PyFilter_Type || t == &PyReversed_Type || t == &PyBaseObject_Type ||
         t == &PySuper_Type || t == &PyProperty_Type || t == &PyClassMethod_Type || t == &PyStaticMethod_Type ||
         t == b->size_type || t == b->device_type || t == b->dtype_type || t == b->finfo_type || t == b->iinfo_type ||
         b->is_own_mode(t) || b->is_saver(t);
}

/* operator.itemgetter and its kind */
static bool is_getter(PyTypeObject *t) { return wk__known_method(t, "__call__")->what == WK__KNOWN_BY_CODE; }

/* super() looks into the frame: at its first variable, which has not been read yet. */
static PyObject *super_of_frame(wk__frame *f, PyObject *callable) {
  PyObject *first = f->code->co_argcount ? wk__frame_slot(f, 0) : NULL, *content = NULL;
  bool cell = first && PyCell_Check(first);
  if (cell && !(content = wk__op_cell(f, first, 0))) return NULL;
  Py_XDECREF(content);
  if (first && !cell && wk__op_local(f, 0) < 0) return NULL;
  return wk__plain_call(f, callable, NULL, 0, NULL);
}

/* One without parameters of its own is as any object that the region makes. */
static PyObject *new_module(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                            PyObject *names) {
  PyTypeObject *t = (PyTypeObject *)callable;
  bool plain = Py_TYPE(callable) == &PyType_Type && !t->tp_finalize && !t->tp_del;
  if (!plain || t->tp_new != BINDING->module_type->tp_new || wk__depend_on_type(r, t) < 0)
    return wk__refuse(f, "a new %s", t->tp_name);
  return wk__plain_call(f, callable, args, count, names);
}

/* super(class, object), which newer versions of CPython make of super(): nothing but the object's class decides. */
static PyObject *super_of_random(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args) {
  if (wk__depend_on_type(r, Py_TYPE(args[1])) < 0) return wk__refuse(f, "%s", r->failed);
  return wk__plain_call(f, callable, args, 2, NULL);
}

/* An instance of a class written in Python. `callable`: the class, or type.__call__ bound to it. */
PyObject *wk__new_instance(wk__frame *f, wk__recording *r, PyTypeObject *t, PyObject *callable, PyObject *const *args,
                           Py_ssize_t count, PyObject *names) {
  if (t->tp_base != &PyBaseObject_Type && !wk__arguments_usable(f, args, count, names))
    return NULL; /* C code fills it */
  if (t->tp_finalize || t->tp_del) return wk__refuse(f, "a new %s, which has a destructor", t->tp_name);
  if (!wk__is_python_class(t) || wk__depend_on_look_ups(r, t) < 0) return wk__refuse(f, "a new %s", t->tp_name);
  return wk__plain_call(f, callable, args, count, names);
}

/* A class that derives from Tensor, without a constructor of its own: the same tensor, of that class. */
static PyObject *as_subclass(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *tensor) {
  PyObject *method = PyObject_GetAttrString(tensor, "as_subclass");
  PyObject *made = method ? wk__recorded_call(f, r, method, &callable, 1, NULL) : NULL;
  Py_XDECREF(method);
  return made;
}

/* set(items), frozenset(items), dict(pairs). */
static PyObject *make_keys(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *items) {
  PyObject *made = wk__keys_usable(f, items) ? wk__plain_call(f, callable, &items, 1, NULL) : NULL;
  PyObject *keys = made && wk__recording_of(f) == r ? PySequence_Tuple(made) : NULL;
  if (keys) wk__note_keys(f, r, &PyTuple_GET_ITEM(keys, 0), PyTuple_GET_SIZE(keys), 1);
  Py_XDECREF(keys);
  return made;
}

static PyObject *call_class(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                            PyObject *names) {
  PyTypeObject *t = (PyTypeObject *)callable;
  if (t == &PySuper_Type && !count && !names) return super_of_frame(f, callable);
  if (t == &PySuper_Type && count == 2 && !names && wk__is_random(args[1]))
    return super_of_random(f, r, callable, args);
  if (t == &PyType_Type && count == 1 && !names) return Py_NewRef((PyObject *)Py_TYPE(args[0]));
  if (t == &PyType_Type && count == 3 && !names) return wk__new_class(f, r, callable, args, count);
  bool scalar =
      t == &PyLong_Type || t == &PyFloat_Type || t == &PyBool_Type || t == &PyComplex_Type || t == &PyUnicode_Type;
  bool number_of = t == &PyLong_Type || t == &PyFloat_Type || t == &PyComplex_Type;
  bool int_of_tensor = t == &PyLong_Type && count == 1 && !names && wk__is_tensor_object(f, args[0]);
  PyObject *counted = int_of_tensor ? wk__counted_item(f, args[0]) : NULL;
  if (counted || PyErr_Occurred()) return counted;
  if (scalar && count && wk__is_tensor_object(f, args[0]))
    return wk__refuse_as(f, number_of ? WK__REFUSED_VALUE : WK__REFUSED_BREAK, "%s() of a tensor's value", t->tp_name);
  wk_int x;
  if (t == &PyLong_Type && count == 1 && !names && wk__symbolic_int(r, args[0], &x)) return Py_NewRef(args[0]);
  PyObject *number = NULL;
  if (t == &PyFloat_Type && count == 1 && !names && wk__float_register(r, args[0]) >= 0) return Py_NewRef(args[0]);
  if (t == &PyFloat_Type && !names && wk__float_call(r, callable, args, count, &number)) {
    if (count == 1) wk__note_float_of_int(r, args[0], number);
    return number;
  }
  bool to_int = t == &PyLong_Type && count == 1 && !names;
  if (to_int && wk__rounded_quotient(r, WK__ROUND_TO_ZERO, args[0], &number)) return number;
  if (to_int && PyFloat_CheckExact(args[0]) && wk__float_call(r, callable, args, count, &number)) return number;
  int truth = t == &PyBool_Type && count == 1 && !names ? wk__symbolic_truth(r, args[0]) : -1;
  if (truth >= 0) return Py_NewRef(truth ? Py_True : Py_False);
  bool passes = t == &PyList_Type || t == &PyTuple_Type || t == &PyEnum_Type || t == &PyZip_Type ||
                t == &PySlice_Type || t == BINDING->size_type;
  bool maps = t == &PyMap_Type && !names && count > 1;
  if (maps && maps_by_calls(f, args, count)) return map_by_calls(f, r, args[0], args[1]);
  passes |= (maps || (t == &PyFilter_Type && !names && count == 2)) && is_evaluated(args[0]);
  passes |= t == &PyReversed_Type || (t == &PyDict_Type && (!count || (count == 1 && PyDict_CheckExact(args[0]))));
  if (passes) return wk__call_passing(f, callable, args, count, names);
  if (t == &PyUnicode_Type && count) wk__text_shows(r, args[0]);
  if (scalar) return wk__call_at_values(f, callable, args, count, names);
  bool made_of_arguments =
      t == &PyODict_Type || t == &PyMethod_Type || is_getter(t) || wk__is_default_dict(t) || wk__is_itertool(t);
  wk__class_kind kind = wk__known_class(t);
  if (kind == WK__CLASS_STATE) return wk__refuse_as(f, WK__REFUSED_VALUE, "a new %s", t->tp_name);
  bool known = kind != WK__CLASS_UNKNOWN;
  if (t == wk__weak_reference_type() && (count != 1 || names))
    return wk__new_weak_reference(f, r, callable, args, count, names);
  bool makes_keys = (t == &PySet_Type || t == &PyFrozenSet_Type || t == &PyDict_Type) && count == 1 && !names;
  if (makes_keys) return make_keys(f, r, callable, args[0]);
  if (made_of_arguments || known || is_value_class(BINDING, t))
    return wk__call_looking(f, callable, args, count, names);
  bool shows = count == 1 && (PyDict_CheckExact(args[0]) || (PyDict_Check(args[0]) && wk__reg_find(r, args[0]) < 0));
  bool proxy = t == &PyDictProxy_Type && !names && shows;
  if (proxy) return wk__made_proxy(f, r, args[0]);
  if (PyExceptionClass_Check(callable)) return wk__made_exception(f, r, callable, args, count, names);
  if (t == *BINDING->parameter_type)
    return wk__call_looking(f, callable, args, count, names); /* its __new__ is evaluated */
  if (t == BINDING->tensor_type && !names) return wk__new_tensor_call(f, callable, args, count);
  bool tensors = PyType_IsSubtype(t, BINDING->tensor_type),
       inherits = t->tp_new == BINDING->tensor_type->tp_new && t->tp_init == BINDING->tensor_type->tp_init;
  if (tensors && inherits && count == 1 && !names && wk__is_tensor_object(f, args[0]))
    return as_subclass(f, r, callable, args[0]);
  if (wk__is_partial(t)) return wk__call_looking(f, callable, args, count, names);
  bool named_tuple = wk__is_class_of_c(t) && PyType_IsSubtype(t, &PyTuple_Type) && count == 1 && !names;
  if (named_tuple && (PyTuple_CheckExact(args[0]) || PyList_CheckExact(args[0])))
    return wk__call_passing(f, callable, args, count, names); /* of C, such as torch.return_types.max */
  if (tensors || wk__type_is_fixed(t)) return wk__refuse(f, "a new %s", t->tp_name);
  if (PyType_IsSubtype(t, BINDING->module_type)) return new_module(f, r, callable, args, count, names);
  return wk__new_instance(f, r, t, callable, args, count, names);
}

/* =================================================== every call ================================================== */

static PyObject *mark_of(PyObject *function, const char *mark) {  // -> borrowed; NULL: it has none
  PyObject *dict = ((PyFunctionObject *)function)->func_dict;
  return dict ? PyDict_GetItemString(dict, mark) : NULL;
}

static PyObject *disabled_call(wk__frame *f, PyObject *mark) {
  const char *reason = PyUnicode_Check(mark) ? PyUnicode_AsUTF8(mark) : NULL;
  if (!reason) PyErr_Clear();
  return wk__refuse(f, "a call of a function that compiler.disable() keeps out%s%s", reason ? ": " : "",
                    reason ? reason : "");
}

/* Python functions that calls.c or its neighbours do in their own way. False: it is evaluated after all. */
static bool python_by_code(wk__frame *f, wk__recording *r, PyObject *function, PyObject *callable,
                           PyObject *const *args, Py_ssize_t count, PyObject *names, PyObject **out) {
  PyObject *name = ((PyFunctionObject *)function)->func_name;
  bool of_class = PyUnicode_CompareWithASCIIString(name, "_process_class") == 0 ||
                  PyUnicode_CompareWithASCIIString(name, "namedtuple") == 0 ||
                  PyUnicode_CompareWithASCIIString(name, "_create_") == 0;
  if (of_class) return wk__class_function_call(f, r, function, callable, args, count, names, out);
  bool members = !names && count == 1 && PyUnicode_CompareWithASCIIString(name, "_get_protocol_attrs") == 0;
  if (members) return wk__protocol_members(f, r, function, args[0], out);
  if (PyUnicode_CompareWithASCIIString(name, "_log") != 0)
    return !names && (count == 1 || (count == 2 && wk__is_plain_value(BINDING, args[0]))) &&
           wk__copy_call(f, r, function, args[0], out);
  enum { MOST = 8 };
  PyObject *given[1 + MOST];
  Py_ssize_t all = count + (names ? PyTuple_GET_SIZE(names) : 0), bound = PyMethod_Check(callable);
  if (all > MOST) return false;
  if (bound) given[0] = PyMethod_GET_SELF(callable);
  for (Py_ssize_t i = 0; i < all; i++) given[bound + i] = args[i];
  *out = wk__log_call(f, r, given, bound + count, names);
  return true;
}

/* A method that says so, of what an effect has given. */
static bool is_effect(const wk__frame *f, PyObject *function, PyObject *callable, PyObject *const *args,
                      Py_ssize_t count) {
  if (!wk__has_mark(function, WK__MARK_EFFECT)) return false;
  PyObject *self = PyMethod_Check(callable) ? PyMethod_GET_SELF(callable) : count ? args[0] : NULL;
  return self && wk__is_of_effect(f->session->recording, self);
}

static PyObject *python_function(wk__frame *f, PyObject *function, PyObject *callable, PyObject *const *args,
                                 Py_ssize_t count, PyObject *names) {
  PyObject *disabled = mark_of(function, "_wick_disable");
  if (disabled) return disabled_call(f, disabled);
  if (wk__is_marked_constant(function))
    return wk__constant_call(f, f->session->recording, callable, args, count, names);
  wk__knowledge what = wk__known_python_function(function)->what;
  if (what == WK__KNOWN_CONSTANT) return wk__constant_call(f, f->session->recording, callable, args, count, names);
  if (what == WK__KNOWN_FRESH) return wk__fresh_call(f, callable, args, count, names);
  if (what == WK__KNOWN_ASKED) return wk__cached_call(f, f->session->recording, callable, args, count, names);
  if (what == WK__KNOWN_TAKES)
    return wk__refuse_as(f, WK__REFUSED_VALUE, "a call of %s()",
                         PyUnicode_AsUTF8(((PyFunctionObject *)function)->func_name));
  PyObject *result = NULL;
  bool by_code = what == WK__KNOWN_BY_CODE;
  if (by_code && python_by_code(f, f->session->recording, function, callable, args, count, names, &result))
    return result;
  if (is_effect(f, function, callable, args, count))
    return wk__effect(f, f->session->recording, callable, args, count, names);
  if (mark_of(function, "_wick_whole")) return wk__plain_call(f, callable, args, count, names);
  return enter(f, callable, args, count, names);
}

/* descriptor.__get__(o): the attribute that it is of o's class, as inspect.getattr_static() asks for __mro__. */
static PyObject *value_of_descriptor(wk__frame *f, wk__recording *r, PyObject *descriptor, PyObject *callable,
                                     PyObject *o) {
  PyObject *name = PyDescr_NAME(descriptor);
  if (!PyObject_TypeCheck(o, PyDescr_TYPE(descriptor))) return wk__plain_call(f, callable, &o, 1, NULL); /* it raises */
  if (wk__type_attribute(Py_TYPE(o), name) == descriptor) return wk__get_attribute(f, r, o, name);
  return wk__refuse(f, "a %s of another class", Py_TYPE(descriptor)->tp_name);
}

/* A slot of C code bound to its object: super().__init__ of an exception, say. One that comes from outside is known
 * where its object is a part of a class. */
static PyObject *method_wrapper(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args,
                                Py_ssize_t count, PyObject *names) {
  PyObject *self = PyObject_GetAttrString(callable, "__self__"), *name = PyObject_GetAttrString(callable, "__name__");
  const char *text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
  PyObject *result = NULL;
  bool descriptor = self && (Py_TYPE(self) == &PyGetSetDescr_Type || Py_TYPE(self) == &PyMemberDescr_Type);
  if (!self || !text)
    result = NULL;
  else if (wk__is_foreign(r, callable) && !(descriptor && wk__is_that_one(r, callable)))
    result = wk__refuse_as(f, WK__REFUSED_LEFT_OVER, "a method-wrapper from outside");
  else if (descriptor && count == 1 && !names && strcmp(text, "__get__") == 0)
    result = value_of_descriptor(f, r, self, callable, args[0]);
  else
    result = wk__method_call(f, r, self, text, callable, args, count, names, false);
  Py_XDECREF(self);
  Py_XDECREF(name);
  return result;
}

/* functools.partial(...)(...): the call that it stands for. */
static PyObject *partial_call(wk__frame *f, wk__recording *r, PyObject *partial, PyObject *const *args,
                              Py_ssize_t count, PyObject *names) {
  if (!wk__know_bound(f, r, partial)) return NULL;
  PyObject *function = PyObject_GetAttrString(partial, "func"), *first = PyObject_GetAttrString(partial, "args");
  PyObject *given = PyObject_GetAttrString(partial, "keywords"), *all = NULL, *keywords = NULL, *result = NULL;
  bool usable = function && first && given && wk__usable(f, first) && wk__usable(f, given);
  if (usable && (all = PyTuple_New(PyTuple_GET_SIZE(first) + count)) && (keywords = PyDict_Copy(given))) {
    Py_ssize_t before = PyTuple_GET_SIZE(first), i;
    for (i = 0; i < before; i++) PyTuple_SET_ITEM(all, i, Py_NewRef(PyTuple_GET_ITEM(first, i)));
    for (i = 0; i < count; i++) PyTuple_SET_ITEM(all, before + i, Py_NewRef(args[i]));
    for (i = 0; names && i < PyTuple_GET_SIZE(names); i++)
      if (PyDict_SetItem(keywords, PyTuple_GET_ITEM(names, i), args[count + i]) < 0) break;
    if (!PyErr_Occurred()) result = wk__op_call_spread(f, function, all, keywords);
  }
  Py_XDECREF(function);
  Py_XDECREF(first);
  Py_XDECREF(given);
  Py_XDECREF(all);
  Py_XDECREF(keywords);
  return result;
}

/* compiler.substitute_in_graph(): what is captured in the place of the function, NULL: itself. */
static PyObject *substitute_of(const wk__frame *f, PyObject *callable) {  // -> borrowed
  bool may = BINDING->substitutes &&
             (PyCFunction_Check(callable) || PyFunction_Check(callable) || Py_TYPE(callable) == &PyMethodDescr_Type);
  PyObject *other = may ? PyDict_GetItemWithError(BINDING->substitutes, callable) : NULL;
  if (!other) PyErr_Clear();
  return other;
}

/* A replay would call the function itself, which enters no frame: there is no going on in the middle. */
static PyObject *call_substitute(wk__frame *f, wk__recording *r, PyObject *other, PyObject *const *args,
                                 Py_ssize_t count, PyObject *names) {
  bool before = f->within;
  f->within = true;
  PyObject *result = wk__recorded_call(f, r, other, args, count, names);
  f->within = before;
  return result;
}

PyObject *wk__recorded_call(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                            PyObject *names) {
  f->session->reason[0] = 0;
  PyTypeObject *t = Py_TYPE(callable);
  PyObject *other = substitute_of(f, callable);
  if (WK_UNLIKELY(other != NULL)) return call_substitute(f, r, other, args, count, names);
  if (PyFunction_Check(callable)) return python_function(f, callable, callable, args, count, names);
  if (PyMethod_Check(callable)) {
    if (!wk__know_bound(f, r, callable)) return NULL;
    PyObject *function = PyMethod_GET_FUNCTION(callable);
    if (PyFunction_Check(function)) return python_function(f, function, callable, args, count, names);
    if (Py_TYPE(function) == BINDING->operator_type) return call_operator(f, callable, args, count, names);
    return wk__refuse(f, "a bound %s", Py_TYPE(function)->tp_name);
  }
  if (t == BINDING->operator_type || t == *BINDING->overload_type)
    return call_operator(f, callable, args, count, names);
  if (t == &PyMethodDescr_Type || t == &PyWrapperDescr_Type) {
    if (!count) return wk__plain_call(f, callable, args, count, names);
    PyObject *name = PyDescr_NAME(callable);
    return wk__method_call(f, r, args[0], PyUnicode_AsUTF8(name), callable, args, count, names, true);
  }
  if (PyCFunction_Check(callable)) return c_function(f, r, callable, args, count, names);
  if (PyType_Check(callable)) return call_class(f, r, callable, args, count, names);
  if (PyObject_TypeCheck(callable, BINDING->module_type)) {
    PyObject *function = wk__module_forward(f, r, callable);
    return function ? enter(f, callable, args, count, names) : NULL;
  }
  if (wk__is_weak_reference(t) && !count && !names) return wk__referent_of(f, r, callable);
  if (wk__is_cached_function(callable))
    return (wk__is_marked_constant(callable) ? wk__constant_call : wk__cached_call)(f, r, callable, args, count, names);
  if (t == wk__method_wrapper_type()) return method_wrapper(f, r, callable, args, count, names);
  if (is_getter(t) && count == 1 && !names) return wk__getter_call(f, r, callable, args[0]);
  if (wk__is_partial(t)) return partial_call(f, r, callable, args, count, names);
  if (BINDING->is_own_mode(t) && !wk__is_foreign(r, callable)) /* as a decorator */
    return wk__call_looking(f, callable, args, count, names);
  PyObject *inner = wk__compiled_function(BINDING, callable);
  if (inner) return wk__recorded_call(f, r, inner, args, count, names);
  if (t->tp_flags & Py_TPFLAGS_HEAPTYPE && wk__is_python_instance(callable)) {
    if (wk__depend_on_look_ups(r, t) < 0) return NULL;
    PyObject *special = wk__special_of_c(callable, "__call__");
    if (special) return wk__call_special(f, r, special, callable, args, count, names);
    return enter(f, callable, args, count, names);
  }
  if (wk__known_method(t, "__call__")->what == WK__KNOWN_VALUES)
    return wk__call_at_values(f, callable, args, count, names);
  if (wk__is_array_function(callable)) return wk__fresh_call(f, callable, args, count, names);
  return wk__refuse(f, "a call of a %s", t->tp_name);
}

PyObject *wk__called_within(wk__frame *f, wk__recording *r, PyObject *callable) {
  bool before = f->within;
  f->within = true;
  PyObject *result = wk__recorded_call(f, r, callable, NULL, 0, NULL);
  f->within = before;
  return result;
}
