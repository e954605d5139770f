/* Floats that are computed of floats and integers that differ from call to call.
 * In: operators and pure functions of C, and what they are given. Out: reads, which do the same in front of the guards
 * of a later call: what they give is an input of the graph, as any float that changes, or the answer of a comparison
 * that is guarded. Tests: tests/python/capture/test_sizes.py, fuzz.py. */
#include <opcode.h>

#include "dynamo/capture/numbers.h"
#include "dynamo/capture/record_parts.h"

static bool changes(const wk__recording *r, PyObject *o) {
  wk_int x;
  return wk__float_register(r, o) >= 0 || wk__symbolic_int(r, o, &x);
}
/* What the graph tells is not known in front of the guards. */
static bool comes_late(const wk__recording *r, PyObject *o) {
  wk_int x;
  return o && r->counted && wk__symbolic_int(r, o, &x) && wk__is_counted(r, x);
}

/* The guards know the sizes that have been read. */
static wk__reg register_of_expression(wk__recording *r, wk_int x) {
  wk__reg reg = wk__new_register(r, WK__REG_READ, NULL, false);
  wk__read *read = reg >= 0 ? wk__add_read(r, WK__READ_SYMBOLIC, -1, (int64_t)x.bits, NULL) : NULL;
  if (!read) return -1;
  return read->dest = reg;
}

/* Of a number; -1: something else. */
static wk__reg register_of_operand(wk__recording *r, PyObject *o) {
  wk_int x;
  wk__reg reg = wk__float_register(r, o);
  if (reg >= 0) return reg;
  if (wk__symbolic_int(r, o, &x)) return register_of_expression(r, x);
  if (!wk__is_number(o)) return -1;
  reg = wk__new_register(r, WK__REG_CONSTANT, NULL, true);
  if (reg >= 0) r->registers[reg].object = Py_NewRef(o); /* not found by it */
  return reg;
}

/* b NULL: the function has one argument. False: nothing of the kind, or it raises. */
static bool call_computed(wk__recording *r, PyObject *function, PyObject *a, PyObject *b, wk__reg *out_reg,
                          PyObject **out) {
  if (!changes(r, a) && !(b && changes(r, b))) return false;
  if (!wk__is_number(a) || (b && !wk__is_number(b))) return false;
  if (comes_late(r, a) || comes_late(r, b)) return false;
  PyObject *result = PyObject_CallFunctionObjArgs(function, a, b, (PyObject *)NULL);
  bool rounded = result && PyLong_CheckExact(result) && wk__float_register(r, a) >= 0;
  bool number = result && (PyFloat_CheckExact(result) || PyBool_Check(result) || rounded);
  wk__reg x = number ? register_of_operand(r, a) : -1, y = number && b ? register_of_operand(r, b) : -1;
  number = x >= 0 && (!b || y >= 0);
  wk__reg reg = number ? wk__new_register(r, WK__REG_READ, PyFloat_CheckExact(result) ? result : NULL, false) : -1;
  wk__read *read = reg >= 0 ? wk__add_read(r, WK__READ_COMPUTED, x, y, function) : NULL;
  if (!read) {
    Py_XDECREF(result);
    PyErr_Clear();
    return false;
  }
  read->dest = *out_reg = reg;
  *out = result;
  return true;
}

bool wk__float_call(wk__recording *r, PyObject *function, PyObject *const *args, Py_ssize_t count, PyObject **out) {
  wk__reg reg;
  if (count < 1 || count > 2 || !call_computed(r, function, args[0], count > 1 ? args[1] : NULL, &reg, out))
    return false;
  if (PyFloat_CheckExact(*out)) {
    wk__check(r, WK__CHECK_TYPE, reg, 0, (PyObject *)&PyFloat_Type);
    return true;
  }
  if (PyLong_CheckExact(*out)) { /* math.floor() and its kind: a constant for all floats that it is so for */
    wk__check(r, WK__CHECK_EQUAL, reg, 0, *out);
    return true;
  }
  wk__check(r, WK__CHECK_IS, reg, 0, *out);
  return true;
}

/* A function of the module behind `operator`, which is loaded already: loading it here would run Python code. */
static bool call_operator(wk__recording *r, const char *name, PyObject *const *args, Py_ssize_t count, PyObject **out) {
  if (!name || !wk__has_numbers(r)) return false;
  PyObject *text = PyUnicode_FromString("_operator"), *module = text ? PyImport_GetModule(text) : NULL;
  PyObject *function = module ? PyObject_GetAttrString(module, name) : NULL;
  bool called = function && wk__float_call(r, function, args, count, out);
  Py_XDECREF(text);
  Py_XDECREF(module);
  Py_XDECREF(function);
  PyErr_Clear();
  return called;
}

static const char *name_of_operator(int nb_kind) {
  switch (nb_kind) {
    case NB_ADD:
    case NB_INPLACE_ADD:
      return "add";
    case NB_SUBTRACT:
    case NB_INPLACE_SUBTRACT:
      return "sub";
    case NB_MULTIPLY:
    case NB_INPLACE_MULTIPLY:
      return "mul";
    case NB_TRUE_DIVIDE:
    case NB_INPLACE_TRUE_DIVIDE:
      return "truediv";
    case NB_FLOOR_DIVIDE:
    case NB_INPLACE_FLOOR_DIVIDE:
      return "floordiv";
    case NB_REMAINDER:
    case NB_INPLACE_REMAINDER:
      return "mod";
    case NB_POWER:
    case NB_INPLACE_POWER:
      return "pow";
    default:
      return NULL;
  }
}

bool wk__float_binary(wk__recording *r, int nb_kind, PyObject *a, PyObject *b, PyObject **out) {
  if (!call_operator(r, name_of_operator(nb_kind), (PyObject *[]){a, b}, 2, out)) return false;
  wk__note_quotient(r, nb_kind, a, b, *out);
  return true;
}

bool wk__float_negative(wk__recording *r, PyObject *a, PyObject **out) { return call_operator(r, "neg", &a, 1, out); }

/* What a function that gives a bool gives. */
static int truth_of_call(wk__recording *r, const char *name, PyObject *const *args, Py_ssize_t count) {
  PyObject *result = NULL;
  if (!call_operator(r, name, args, count, &result)) return -1;
  int truth = result == Py_True;
  Py_DECREF(result);
  return truth;
}

int wk__float_compare(wk__recording *r, int py_kind, PyObject *a, PyObject *b) {
  static const char *const names[] = {
      [Py_LT] = "lt", [Py_LE] = "le", [Py_EQ] = "eq", [Py_NE] = "ne", [Py_GT] = "gt", [Py_GE] = "ge"};
  return truth_of_call(r, names[py_kind], (PyObject *[]){a, b}, 2);
}

int wk__float_truth(wk__recording *r, PyObject *a) { return truth_of_call(r, "truth", &a, 1); }

bool wk__float_extremum(wk__recording *r, bool largest, PyObject *const *args, Py_ssize_t count, PyObject **out) {
  if (count != 2) return false;
  int second = wk__float_compare(r, largest ? Py_GT : Py_LT, args[1], args[0]);
  if (second >= 0) *out = Py_NewRef(args[second]);
  return second >= 0;
}

bool wk__float_avoids(wk__recording *r, PyObject *a, const double *values, int count) {
  for (int i = 0; i < count; i++)
    if (PyFloat_AS_DOUBLE(a) == values[i]) return false;
  for (int i = 0; i < count; i++) {
    PyObject *value = PyFloat_FromDouble(values[i]);
    int differs = value ? wk__float_compare(r, Py_NE, a, value) : -1;
    Py_XDECREF(value);
    if (differs == 1) continue;
    PyErr_Clear();
    return false;
  }
  return true;
}
