/* Sizes that the program marked: torch._dynamo.mark_dynamic() and its kind leave sets in attributes of tensors.
 * In: such a tensor; a graph that has been traced. Out: which dims become symbols, and of which values; a
 * ConstraintViolationError for a size that the program fixes, or allows less of than was said. Tests:
 * tests/python/capture/test_sizes.py. */
#include <stdio.h>

#include "dynamo/capture/numbers.h"
#include "dynamo/cpython/objects.h"
#include "dynamo/explain.h"
#include "dynamo/session.h"

/* ==================================================== the marks ================================================== */

static PyObject *iterate_mark(PyObject *tensor, const char *attribute) {  // -> new, NULL when there is none
  PyObject **place = wk__instance_dict_place(tensor), *dict = place ? *place : NULL;
  PyObject *set = dict ? PyDict_GetItemString(dict, attribute) : NULL;
  return set ? PyObject_GetIter(set) : NULL;
}

uint64_t wk__marked_dims(PyObject *tensor, const char *attribute) {
  PyObject *iterator = iterate_mark(tensor, attribute), *item;
  uint64_t bits = 0;
  while (iterator && (item = PyIter_Next(iterator))) {
    long d = PyLong_Check(item) ? PyLong_AsLong(item) : -1;
    if (d >= 0 && d < WK_MAX_DIMS) bits |= wk__dim_bit((int)d);
    Py_DECREF(item);
  }
  Py_XDECREF(iterator);
  PyErr_Clear();
  return bits;
}

/* A bound that is given: an int. */
static bool bound_of(PyObject *range, Py_ssize_t field, int64_t *out) {
  PyObject *bound = PyTuple_Check(range) && PyTuple_GET_SIZE(range) == 3 ? PyTuple_GET_ITEM(range, field) : Py_None;
  int overflow;
  if (!PyLong_Check(bound)) return false;
  *out = PyLong_AsLongLongAndOverflow(bound, &overflow);
  return !overflow;
}

bool wk__marked_range(PyObject *tensor, int dim, int64_t *lo, int64_t *hi) {
  PyObject *iterator = iterate_mark(tensor, "_dynamo_dynamic_range"), *range;
  bool found = false;
  while (iterator && (range = PyIter_Next(iterator))) {
    int64_t of, bound;
    bool mine = bound_of(range, 0, &of) && of == dim;
    if (mine && bound_of(range, 1, &bound)) {
      found = true;
      if (bound > *lo) *lo = bound;
    }
    if (mine && bound_of(range, 2, &bound)) {
      found = true;
      if (bound < *hi) *hi = bound;
    }
    Py_DECREF(range);
  }
  Py_XDECREF(iterator);
  PyErr_Clear();
  return found;
}

/* For as long as none is found. */
static wk_status note_marked(void *context, wk_int leaf, int64_t *out) {
  const wk__recording **r = context;
  if (*r && (*r)->symbols[wk__sym_index(leaf)].marked) *r = NULL;
  *out = 1;
  return WK_OK;
}

static bool is_marked_int(const wk__recording *r, PyObject *o) {
  wk_int x;
  int64_t value;
  if (!wk__symbolic_int(r, o, &x)) return false;
  const wk__recording *left = r;
  if (wk__sym_eval(x, note_marked, &left, &value) != WK_OK) wk_error_clear();
  return !left;
}

static bool holds_marked(const wk__recording *r, PyObject *o, int depth) {
  enum { MAX_NESTING = 4 };
  if (is_marked_int(r, o)) return true;
  bool list = depth < MAX_NESTING && (PyTuple_Check(o) || PyList_CheckExact(o));
  for (Py_ssize_t i = 0; list && i < PySequence_Fast_GET_SIZE(o); i++)
    if (holds_marked(r, PySequence_Fast_GET_ITEM(o, i), depth + 1)) return true;
  return false;
}

bool wk__holds_marked_int(const wk__recording *r, PyObject *o) { return r->symbol_count && holds_marked(r, o, 0); }

/* =========================================== what the guards leave of a size ===================================== */

/* Another value of one symbol, tried in a guard. */
typedef struct other_value {
  wk_int symbol;
  int64_t value;
  bool alone; /* the guard has no other symbol */
} other_value;

static wk_status value_of_leaf(void *context, wk_int leaf, int64_t *out) {
  other_value *o = context;
  *out = o->value;
  o->alone &= wk_int_same(leaf, o->symbol);
  return WK_OK;
}

static bool allows(wk__sym_guard guard, other_value *o, int64_t value) {
  int64_t left, right;
  o->value = value;
  if (wk__sym_eval(guard.left, value_of_leaf, o, &left) == WK_OK &&
      wk__sym_eval(guard.right, value_of_leaf, o, &right) == WK_OK)
    return wk__guard_compare(guard.kind, left, right);
  wk_error_clear();
  return false;
}

/* It is about this symbol and no other. */
static bool is_about(wk__sym_guard guard, other_value *o, int64_t hint) {
  o->alone = true;
  return allows(guard, o, hint) && o->alone;
}

/* An equation of the symbol alone that no value near by satisfies: s0 == 10, not s0 % 2 == 0. */
static bool is_fixed_by(wk__sym_guard guard, wk__symbol_info symbol) {
  enum { NEAR_BY = 128 };
  other_value o = {.symbol = symbol.value};
  if (guard.kind != WK__GUARD_EQ || !is_about(guard, &o, symbol.hint)) return false;
  for (int64_t k = 1; k <= NEAR_BY; k++)
    if (allows(guard, &o, symbol.hint + k) || (symbol.hint - k > 1 && allows(guard, &o, symbol.hint - k))) return false;
  return true;
}

static bool is_fixed(const wk__shape_env *env, wk__symbol_info symbol) {
  for (int64_t i = 0; i < wk__shape_env_guard_count(env); i++)
    if (is_fixed_by(wk__shape_env_guard(env, i), symbol)) return true;
  return false;
}

/* A bound of the symbol itself: s0 < 10. */
static bool is_bound(wk__sym_guard guard, wk__symbol_info symbol) {
  bool order = guard.kind == WK__GUARD_LT || guard.kind == WK__GUARD_GE;
  bool left = wk_int_same(guard.left, symbol.value) && wk_int_is_known(guard.right);
  return order && (left || (wk_int_same(guard.right, symbol.value) && wk_int_is_known(guard.left)));
}

/* The last value from `from`, which is allowed, towards `to` that is. */
static int64_t last_allowed(wk__sym_guard guard, other_value *o, int64_t from, int64_t to) {
  if (allows(guard, o, to)) return to;
  while (from - to > 1 || to - from > 1) {
    int64_t middle = from + (to - from) / 2;
    if (allows(guard, o, middle))
      from = middle;
    else
      to = middle;
  }
  return from;
}

/* Both ends, and what is not far from the lower one and from the present value. */
static bool allows_all(wk__sym_guard guard, other_value *o, wk__symbol_info symbol) {
  enum { SOME = 1024 };
  if (!allows(guard, o, symbol.hi)) return false;
  for (int64_t k = 0; k < SOME; k++)
    if ((symbol.lo + k <= symbol.hi && !allows(guard, o, symbol.lo + k)) ||
        (symbol.hint + k <= symbol.hi && !allows(guard, o, symbol.hint + k)))
      return false;
  return true;
}

/* ==================================================== violations ================================================= */

typedef struct violations {
  const wk__segment *segment;
  PyObject *names, *lines; /* owned lists; NULL: there are none */
} violations;

static PyObject *name_of_size(const wk__segment *g, wk__symbol symbol) {  // -> new
  wk__string text = {0};
  wk__source_print(&text, g, symbol.reg);
  PyObject *name = PyUnicode_FromFormat("%s.size()[%d]", text.text ? text.text : "?", symbol.dim);
  wk__string_release(&text);
  return name;
}

static int add(violations *v, PyObject *name, PyObject *steal_line) {
  if (!v->names && (!(v->names = PyList_New(0)) || !(v->lines = PyList_New(0)))) Py_CLEAR(steal_line);
  int known = v->names ? PySequence_Contains(v->names, name) : -1;
  int status = known < 0 || !steal_line ? -1 : PyList_Append(v->lines, steal_line);
  if (status == 0 && !known) status = PyList_Append(v->names, name);
  Py_XDECREF(steal_line);
  return status;
}

static int add_constant(violations *v, PyObject *name, int64_t value) {
  return add(v, name,
             PyUnicode_FromFormat("  - You marked %U as dynamic but your code specialized it to be a constant (%lld). "
                                  "If you're using mark_dynamic, either remove it or use maybe_mark_dynamic. If you're "
                                  "using Dim.DYNAMIC, replace it with either Dim.STATIC or Dim.AUTO.",
                                  name, (long long)value));
}

/* "5 <= NAME <= 20", without bounds that every symbol has; with `and` NAME stands beside each. */
static PyObject *interval(PyObject *name, int64_t lo, int64_t hi, bool with_and) {  // -> new
  enum { NO_BOUND = 1 << 30 };
  bool low = lo > 2 || with_and, high = hi < NO_BOUND;
  if (low && high && with_and)
    return PyUnicode_FromFormat("%lld <= %U and %U <= %lld", (long long)lo, name, name, (long long)hi);
  if (low && high) return PyUnicode_FromFormat("%lld <= %U <= %lld", (long long)lo, name, (long long)hi);
  if (low) return PyUnicode_FromFormat("%lld <= %U", (long long)lo, name);
  return PyUnicode_FromFormat("%U <= %lld", name, (long long)hi);
}

static int add_narrowed(violations *v, PyObject *name, wk__symbol_info symbol, PyObject *steal_guard, const char *end) {
  PyObject *range = interval(name, symbol.lo, symbol.hi, false);
  PyObject *line = range && steal_guard ? PyUnicode_FromFormat(
                                              "  - Not all values of %U = %U in the specified range %U satisfy the "
                                              "generated guard %U%s",
                                              name, name, range, steal_guard, end)
                                        : NULL;
  Py_XDECREF(range);
  Py_XDECREF(steal_guard);
  return add(v, name, line);
}

/* The guard with the size's name in place of the symbol's. */
static PyObject *guard_of_size(wk__sym_guard guard, PyObject *name, const char *symbol) {  // -> new
  wk__string text = {0};
  wk__sym_guard_print(&text, guard);
  PyObject *printed = PyUnicode_FromString(text.text ? text.text : "?"), *short_name = PyUnicode_FromString(symbol);
  PyObject *guard_text = printed && short_name ? PyUnicode_Replace(printed, short_name, name, -1) : NULL;
  wk__string_release(&text);
  Py_XDECREF(printed);
  Py_XDECREF(short_name);
  return guard_text;
}

/* Of a size with a range: guards of it alone that leave out some of it. */
static int add_narrowing(violations *v, const wk__shape_env *env, wk__symbol_info symbol, PyObject *name) {
  other_value o = {.symbol = symbol.value};
  int64_t lo = symbol.lo, hi = symbol.hi;
  int status = 0;
  for (int64_t i = 0; i < wk__shape_env_guard_count(env) && status == 0; i++) {
    wk__sym_guard guard = wk__shape_env_guard(env, i);
    if (!is_about(guard, &o, symbol.hint)) continue;
    if (is_bound(guard, symbol)) {
      lo = last_allowed(guard, &o, symbol.hint, lo);
      hi = last_allowed(guard, &o, symbol.hint, hi);
    } else if (!allows_all(guard, &o, symbol)) {
      status = add_narrowed(v, name, symbol, guard_of_size(guard, name, symbol.name), ".");
    }
  }
  if (status == 0 && (lo != symbol.lo || hi != symbol.hi))
    status = add_narrowed(v, name, symbol, interval(name, lo, hi, true), "");
  return status;
}

static int check_symbol(violations *v, const wk__shape_env *env, int64_t index) {
  const wk__symbol symbol = v->segment->recording->symbols[index];
  wk__symbol_info info = wk__shape_env_symbol_at(env, index);
  bool fixed = is_fixed(env, info);
  if (!symbol.marked || !(fixed || symbol.ranged)) return 0;
  PyObject *name = name_of_size(v->segment, symbol);
  int status = !name ? -1 : fixed ? add_constant(v, name, info.hint) : add_narrowing(v, env, info, name);
  Py_XDECREF(name);
  return status;
}

/* A size that is no symbol: outside of its range, or one that never is. */
static int check_misfit(violations *v, const wk__session *s) {
  const wk__recording *r = v->segment->recording;
  int64_t lo = INT64_MIN, hi = INT64_MAX;
  char low[24] = "0", high[24] = "int_oo";
  if (!r->misfit.ranged) return 0;
  PyObject *tensor = r->registers[r->misfit.reg].object;
  (void)wk__marked_range(tensor, r->misfit.dim, &lo, &hi);
  if (r->misfit_size >= lo && r->misfit_size <= hi) {
    PyObject *name = name_of_size(v->segment, r->misfit);
    int status = name ? add_constant(v, name, r->misfit_size) : -1;
    Py_XDECREF(name);
    return status;
  }
  if (lo != INT64_MIN) snprintf(low, sizeof low, "%lld", (long long)lo);
  if (hi != INT64_MAX) snprintf(high, sizeof high, "%lld", (long long)hi);
  PyErr_Format(s->binding->constraint_violation, "%lld not in range [%s, %s]", (long long)r->misfit_size, low, high);
  return -1;
}

static void raise(const wk__session *s, const violations *v) {
  PyObject *comma = PyUnicode_FromString(", "), *newline = PyUnicode_FromString("\n");
  PyObject *shown = comma && PyList_Sort(v->names) == 0 ? PyUnicode_Join(comma, v->names) : NULL;
  PyObject *text = newline && shown ? PyUnicode_Join(newline, v->lines) : NULL;
  if (text)
    PyErr_Format(s->binding->constraint_violation,
                 "Constraints violated (%U)! For more information, run with TORCH_LOGS=\"+dynamic\".\n%U", shown, text);
  Py_XDECREF(comma);
  Py_XDECREF(newline);
  Py_XDECREF(shown);
  Py_XDECREF(text);
}

int wk__check_marks(const wk__session *s, const wk__segment *g, const wk__graph *graph) {
  violations v = {.segment = g};
  int status = check_misfit(&v, s);
  for (int64_t i = 0; graph && graph->env && i < g->recording->symbol_count && status == 0; i++)
    status = check_symbol(&v, graph->env, i);
  if (status == 0 && v.names) {
    raise(s, &v);
    status = -1;
  }
  Py_XDECREF(v.names);
  Py_XDECREF(v.lines);
  return status;
}
