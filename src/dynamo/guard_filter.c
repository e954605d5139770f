/* options={"guard_filter_fn": ...}: the program says which guards of a segment are checked.
 * In: a segment that is kept, its checks, and the function behind the option. Out: checks that are left out. Invariant:
 * what a graph's memory depends on is checked in any case: tensors, and numbers that the graph gets; so is which module
 * it is, whose parameters the graph has. Tests: tests/python/capture/test_guard_filters.py. */
#include "dynamo/capture/known.h"
#include "dynamo/cpython/objects.h"
#include "dynamo/explain.h"

typedef struct entry_kind {
  const char *type, *derived; /* in PyTorch's words; derived NULL: none */
} entry_kind;

static entry_kind kind_of_constant(PyObject *o) {
  const char *derived = o == Py_None ? "NONE_MATCH" : PyBool_Check(o) ? "BOOL_MATCH" : "EQUALS_MATCH";
  return (entry_kind){"CONSTANT_MATCH", derived};
}

static entry_kind kind_of_identity(const wk__binding *b, PyObject *o) {
  if (PyObject_TypeCheck(o, b->module_type)) return (entry_kind){"TYPE_MATCH", "TYPE_MATCH"};
  if (PyModule_Check(o)) return (entry_kind){"MODULE_MATCH", "ID_MATCH"};
  if (PyType_Check(o)) return (entry_kind){"CLASS_MATCH", "ID_MATCH"};
  if (PyFunction_Check(o)) return (entry_kind){"CLOSURE_MATCH", NULL};
  return PyCFunction_Check(o) ? (entry_kind){"BUILTIN_MATCH", "ID_MATCH"} : (entry_kind){"ID_MATCH", "ID_MATCH"};
}

/* type NULL: no guard that a program is asked about. */
static entry_kind kind_of(const wk__binding *b, const wk__read *check, PyObject *o) {
  switch (check->kind) {
    case WK__CHECK_EQUAL:
      return kind_of_constant(o);
    case WK__CHECK_IS:
      return kind_of_identity(b, o);
    case WK__CHECK_CODE:
      return (entry_kind){"CLOSURE_MATCH", NULL};
    case WK__CHECK_TYPE:
      return PyCell_Check(o) ? (entry_kind){NULL, NULL} : (entry_kind){"TYPE_MATCH", "TYPE_MATCH"};
    case WK__CHECK_LENGTH:
      return (entry_kind){"SEQUENCE_LENGTH", "SEQUENCE_LENGTH"};
    case WK__CHECK_KEYS:
      return (entry_kind){"DICT_KEYS_MATCH", "DICT_KEYS_MATCH"};
    case WK__CHECK_PRESENT:
      return (entry_kind){"DICT_CONTAINS", "DICT_CONTAINS"};
    case WK__CHECK_ABSENT:
      return (entry_kind){"DICT_NOT_CONTAINS", "DICT_NOT_CONTAINS"};
    case WK__CHECK_NO_DICT:
    case WK__CHECK_NO_SLOT:
      return (entry_kind){"HASATTR", "HASATTR"};
    case WK__CHECK_TENSOR:
      return (entry_kind){"TENSOR_MATCH", "TENSOR_MATCH"};
    default:
      return (entry_kind){NULL, NULL};
  }
}

static bool can_be_skipped(const wk__session *s, const wk__recording *r, const wk__read *check) {
  const wk__register *g = &r->registers[check->a];
  bool of_graph = g->input >= 0 || g->symbolic || g->kind == WK__REG_NUMBER || g->spec >= 0;
  return !of_graph && !(check->kind == WK__CHECK_IS && PyObject_TypeCheck(g->object, s->binding->module_type));
}

static const wk__read *read_of(const wk__recording *r, wk__reg reg) {
  for (int64_t i = 0; i < r->read_count; i++)
    if (r->reads[i].dest == reg) return &r->reads[i];
  return NULL;
}

/* The module that it was found in, or is; NULL: none. */
static PyObject *module_around(const wk__session *s, const wk__recording *r, wk__reg reg) {  // -> borrowed
  for (int hops = 0; reg >= 0 && hops < 100; hops++) {
    PyObject *o = r->registers[reg].object;
    if (o && PyObject_TypeCheck(o, s->binding->module_type)) return o;
    const wk__read *read = read_of(r, reg);
    bool of_frame = !read || read->kind == WK__READ_SLOT || read->kind == WK__READ_STACK;
    reg = of_frame ? -1 : read->a;
  }
  return NULL;
}

/* (name, value, type, derived types, module or None) */
static PyObject *entry_of(const wk__session *s, const wk__segment *g, const wk__read *check) {  // -> new
  const wk__recording *r = g->recording;
  PyObject *o = r->registers[check->a].object, *module = module_around(s, r, check->a);
  entry_kind kind = kind_of(s->binding, check, o);
  wk__string name = {0};
  wk__source_print(&name, g, check->a);
  PyObject *entry = kind.derived
                        ? Py_BuildValue("sOs(s)O", name.text, o, kind.type, kind.derived, module ? module : Py_None)
                        : Py_BuildValue("sOs()O", name.text, o, kind.type, module ? module : Py_None);
  wk__string_release(&name);
  return entry;
}

static bool is_asked(const wk__session *s, const wk__recording *r, const wk__read *check) {
  PyObject *o = check->dest < 0 && check->kind != WK__CHECK_UNBOUND && check->kind != WK__CHECK_MUTE_SLOT
                    ? r->registers[check->a].object
                    : NULL;
  return o && kind_of(s->binding, check, o).type;
}

/* A read of what is a constant now compares it as well. */
static void skip(wk__recording *r, wk__read *check) {
  check->skipped = true;
  if (check->kind != WK__CHECK_EQUAL && check->kind != WK__CHECK_IS) return;
  for (int64_t i = 0; i < r->read_count; i++)
    if (r->reads[i].dest == check->a && r->reads[i].fixed && r->registers[check->a].fixed) r->reads[i].skipped = true;
}

static int ask(wk__session *s, wk__segment *g, PyObject *filter) {
  wk__recording *r = g->recording;
  PyObject *entries = PyList_New(0);
  for (int64_t i = 0; entries && i < r->read_count; i++) {
    if (!is_asked(s, r, &r->reads[i])) continue;
    PyObject *entry = entry_of(s, g, &r->reads[i]);
    if (!entry || PyList_Append(entries, entry) < 0) Py_CLEAR(entries);
    Py_XDECREF(entry);
  }
  PyObject *kept = entries ? PyObject_CallOneArg(filter, entries) : NULL;
  Py_ssize_t at = 0;
  for (int64_t i = 0; kept && i < r->read_count; i++)
    if (is_asked(s, r, &r->reads[i]) && PyList_GET_ITEM(kept, at++) == Py_False && can_be_skipped(s, r, &r->reads[i]))
      skip(r, &r->reads[i]);
  Py_XDECREF(entries);
  Py_XDECREF(kept);
  return kept ? 0 : -1;
}

int wk__filter_guards(wk__session *s, wk__segment *g) {
  PyObject *filter = s->compiled->options.guard_filter;
  if (!filter) return 0;
  wk__mode_kind before = s->mode;
  s->mode = WK__MODE_OFF; /* it is no part of what is captured */
  int status = ask(s, g, filter);
  s->mode = before;
  return status;
}
