/* Floats and integers that differ from call to call, and the sizes of tensors.
 * In: reads of numbers and tensors that guards have seen change. Out: objects that stand for them, number inputs and
 * symbols of the graph, guards over the symbols in the graph's shape environment. Invariant: every use that depends on
 * the value of such a number leaves a guard. Tests: tests/python/capture/test_sizes.py, fuzz.py. */
#include "dynamo/capture/numbers.h"

#include <opcode.h>
#include <stdio.h>

#include "dynamo/capture/record_parts.h"
#include "dynamo/cpython/objects.h"

/* Sizes 0 and 1 stay numbers, as in PyTorch: rules treat them in ways of their own. */
enum { LEAST = 2, LARGEST = 1 << 30 };

static uint64_t key_of(const void *p) { return (uint64_t)(uintptr_t)p; }
static bool can_be_symbol(int64_t value) { return value >= LEAST && value <= LARGEST; }

/* ============================================== what becomes a symbol ============================================ */

/* A class with a __torch_function__ of its own sees who asks for sizes. */
static bool asks_its_class(const wk__binding *b, PyTypeObject *type) {
  PyObject *name = PyUnicode_InternFromString("__torch_function__");
  bool own = !name || wk__type_attribute(type, name) != wk__type_attribute(b->tensor_type, name);
  Py_XDECREF(name);
  if (PyErr_Occurred()) PyErr_Clear();
  return own;
}

uint64_t wk__dynamic_dims(const wk__recording *r, const wk__binding *b, wk__reg reg, PyObject *tensor) {
  const wk__register *g = &r->registers[reg];
  if (!r->tracer || g->kind != WK__REG_READ || g->fixed) return 0;
  bool parameter = *b->parameter_type && PyObject_TypeCheck(tensor, *b->parameter_type);
  if (!parameter && Py_TYPE(tensor) != b->tensor_type && asks_its_class(b, Py_TYPE(tensor))) return 0;
  uint64_t dims = r->changing ? (uint64_t)(uintptr_t)wk__map_get(r->changing, g->path) >> 1 : 0;
  if (r->dynamic > 0 && !parameter) dims = UINT64_MAX;
  if (r->dynamic == 0) dims = 0;
  if (r->dynamic != 0) dims |= wk__marked_dims(tensor, "_dynamo_weak_dynamic_indices");
  return (dims & ~wk__marked_dims(tensor, "_dynamo_static_indices")) |
         wk__marked_dims(tensor, "_dynamo_dynamic_indices");
}

static wk_int new_symbol(wk__recording *r, wk__symbol symbol, int64_t value, int64_t lo, int64_t hi) {
  wk__shape_env *env = wk__tracer_env(r->tracer);
  if (!env || wk__grow(&r->symbols, &r->symbol_capacity, r->symbol_count + 1, sizeof *r->symbols) != WK_OK)
    return WK_INT_POISONED;
  r->symbols[r->symbol_count++] = symbol;
  return wk__shape_env_symbol(env, NULL, value, lo < LEAST ? LEAST : lo, hi > LARGEST ? LARGEST : hi);
}

wk_int wk__counted_rows(wk__recording *r, int64_t now) {
  char name[24];
  wk__shape_env *env = wk__tracer_env(r->tracer);
  if (!env || now > LARGEST) return WK_INT_POISONED;
  if (wk__grow(&r->symbols, &r->symbol_capacity, r->symbol_count + 1, sizeof *r->symbols) != WK_OK)
    return WK_INT_POISONED;
  snprintf(name, sizeof name, "u%lld", (long long)r->counted);
  wk_int symbol = wk__shape_env_symbol(env, name, now, 0, LARGEST);
  if (wk_int_is_poisoned(symbol)) return symbol;
  r->symbols[r->symbol_count++] = (wk__symbol){.reg = -1, .dim = -1, .counted = true};
  r->counted++;
  return symbol;
}

bool wk__is_counted(const wk__recording *r, wk_int x) {
  if (!r->counted) return false;
  if (wk__sym_kind_of(x) == WK__SYM_SYMBOL) return r->symbols[wk__sym_index(x)].counted;
  bool counted = false;
  for (int i = 0; i < wk__sym_count(x) && !counted; i++) counted = wk__is_counted(r, wk__sym_operand(x, i));
  return counted;
}

/* ---- strides ---- */

static int next_by_stride(const wk_tensor *t, uint64_t done) {
  int next = -1;
  for (int d = t->ndim - 1; d >= 0; d--)
    if (!(done >> d & 1) && (next < 0 || t->strides[d].bits < t->strides[next].bits)) next = d;
  return next;
}

/* The dim whose reach is this one's stride, as in a contiguous tensor or a permuted one; -1: the stride is a number. */
static int stride_over(const wk_tensor *t, const wk__spec *s, uint64_t done, int d) {
  for (int k = t->ndim - 1; k >= 0 && t->strides[d].bits > 1; k--) {
    bool reaches = done >> k & 1 && t->strides[k].bits * t->sizes[k].bits == t->strides[d].bits;
    if (reaches && !(wk_int_is_known(s->sizes[k]) && wk_int_is_known(s->strides[k]))) return k;
  }
  return -1;
}

static void describe_strides(const wk_tensor *t, wk__tensor_spec *spec, wk__spec *s) {
  uint64_t done = 0;
  for (int n = 0; n < t->ndim; n++) {
    int d = next_by_stride(t, done), k = stride_over(t, s, done, d);
    spec->dims[d].over = k;
    if (k >= 0) s->strides[d] = wk_int_mul(s->strides[k], s->sizes[k]);
    done |= wk__dim_bit(d);
  }
}

wk_status wk__describe_tensor(wk__recording *r, wk__reg reg, const wk_tensor *t, wk__tensor_spec *spec,
                              wk_tensor **out) {
  wk__spec s;
  wk__spec_of(&s, t);
  uint64_t wanted = spec->dynamic, marked = t->wrapper ? wk__marked_dims(t->wrapper, "_dynamo_dynamic_indices") : 0;
  spec->dynamic = 0;
  for (int d = 0; d < t->ndim; d++) {
    wk__symbol symbol = {.reg = reg, .dim = d, .marked = marked >> d & 1};
    int64_t lo = LEAST, hi = LARGEST, size = t->sizes[d].bits;
    symbol.ranged = symbol.marked && wk__marked_range(t->wrapper, d, &lo, &hi);
    bool possible = can_be_symbol(size) && size >= lo && size <= hi;
    if (symbol.ranged && !possible && !r->misfit.ranged) r->misfit = symbol, r->misfit_size = size;
    if (!(wanted >> d & 1) || !possible) continue;
    s.sizes[d] = new_symbol(r, symbol, size, lo, hi);
    WK_TRY(wk_int_check(s.sizes[d]));
    spec->dynamic |= wk__dim_bit(d);
  }
  if (!spec->dynamic) return WK_OK;
  describe_strides(t, spec, &s);
  *out = wk__tensor_shape_only(&s);
  return *out ? WK_OK : wk_error_category();
}

/* ================================================ symbolic integers ============================================== */

bool wk__symbolic_int(const wk__recording *r, PyObject *o, wk_int *out) {
  if (!r->symbol_count || !PyLong_CheckExact(o)) return false;
  wk__reg reg = wk__reg_find(r, o);
  if (reg < 0 || !r->registers[reg].symbolic) return false;
  *out = r->registers[reg].number;
  return true;
}

/* Small integers are one object each; this one has to be told from them. */
static PyObject *uncached_int(int64_t value) {  // -> new
  return value < -256 || value > 256 ? PyLong_FromLongLong(value) : wk__uncached_int((int)value);
}

/* One object an expression; equal expressions are one. */
static PyObject *object_of_expression(wk__recording *r, wk_int x, int64_t value) {  // -> new
  uint64_t key = (uint64_t)x.bits;
  PyObject *known = wk__map_get(&r->expressions, key);
  if (known) return Py_NewRef(known);
  PyObject *made = uncached_int(value);
  wk__reg reg = made ? wk__new_register(r, WK__REG_NUMBER, made, false) : -1;
  if (reg < 0) return made;
  r->registers[reg].symbolic = true;
  r->registers[reg].number = x;
  if (wk__map_set(&r->expressions, key, made) != WK_OK) wk__record_no_memory(r);
  return made;
}

PyObject *wk__int_object(wk__recording *r, wk_int x) {
  wk_int value = wk__symbolic_value(x);
  if (wk_int_is_poisoned(value)) return PyErr_Format(PyExc_RuntimeError, "a size that cannot be computed");
  return wk_int_is_known(x) ? PyLong_FromLongLong(value.bits) : object_of_expression(r, x, value.bits);
}

PyObject *wk__ints_tuple(wk__recording *r, const wk_int *list, int count) {
  PyObject *tuple = PyTuple_New(count);
  for (int i = 0; tuple && i < count; i++) {
    PyObject *item = wk__int_object(r, list[i]);
    if (!item) Py_CLEAR(tuple);
    if (tuple) PyTuple_SET_ITEM(tuple, i, item);
  }
  return tuple;
}

PyObject *wk__sizes_object(wk__recording *r, const wk__binding *b, const wk_tensor *t) {
  PyObject *tuple = wk__ints_tuple(r, t->sizes, t->ndim);
  PyObject *size = tuple ? PyObject_CallOneArg((PyObject *)b->size_type, tuple) : NULL;
  Py_XDECREF(tuple);
  return size;
}

/* ---- arithmetic ---- */

/* An exact int as an expression; larger than any size: no. */
static bool as_expression(const wk__recording *r, PyObject *o, wk_int *out) {
  if (wk__symbolic_int(r, o, out)) return true;
  int overflow;
  int64_t value = PyLong_CheckExact(o) ? PyLong_AsLongLongAndOverflow(o, &overflow) : 0;
  if (!PyLong_CheckExact(o) || overflow || value < -LARGEST || value > LARGEST) return false;
  *out = wk_int_of(value);
  return true;
}

/* Two ints, at least one of them symbolic. */
static bool operands(const wk__recording *r, PyObject *a, PyObject *b, wk_int *x, wk_int *y) {
  if (!r->symbol_count || !as_expression(r, a, x) || !as_expression(r, b, y)) return false;
  return !wk_int_is_known(*x) || !wk_int_is_known(*y);
}

/* Whether a divisor is 0 now. Where it is not, but may be, that it is not is guarded: an expression simplifies as if no
 * divisor ever were, so nothing of the division may be left to fail. */
static bool is_zero(wk_int x) { return wk__symbolic_value(x).bits == 0 || wk_int_eq(x, wk_int_of(0)); }

static wk_int power(wk_int x, wk_int exponent) {
  enum { MOST = 8 };
  if (!wk_int_is_known(exponent) || exponent.bits < 1 || exponent.bits > MOST) return WK_INT_POISONED;
  wk_int result = x;
  for (int64_t k = 1; k < exponent.bits; k++) result = wk_int_mul(result, x);
  return result;
}

static wk_int combined(int nb_kind, wk_int x, wk_int y) {
  switch (nb_kind) {
    case NB_ADD:
    case NB_INPLACE_ADD:
      return wk_int_add(x, y);
    case NB_SUBTRACT:
    case NB_INPLACE_SUBTRACT:
      return wk_int_sub(x, y);
    case NB_MULTIPLY:
    case NB_INPLACE_MULTIPLY:
      return wk_int_mul(x, y);
    case NB_FLOOR_DIVIDE:
    case NB_INPLACE_FLOOR_DIVIDE:
      return is_zero(y) ? WK_INT_POISONED : wk_int_floordiv(x, y);
    case NB_REMAINDER:
    case NB_INPLACE_REMAINDER:
      return is_zero(y) ? WK_INT_POISONED : wk_int_mod(x, y);
    case NB_POWER:
    case NB_INPLACE_POWER:
      return power(x, y);
    default:
      return WK_INT_POISONED;
  }
}

/* False when the expression could not be made: then the numbers are needed. */
static bool give(wk__recording *r, wk_int x, PyObject **out) {
  if (wk_int_is_poisoned(x) || wk_int_is_poisoned(wk__symbolic_value(x))) {
    wk_error_clear();
    return false;
  }
  *out = wk__int_object(r, x);
  return true;
}

bool wk__symbolic_binary(wk__recording *r, int nb_kind, PyObject *a, PyObject *b, PyObject **out) {
  wk_int x, y;
  return operands(r, a, b, &x, &y) && give(r, combined(nb_kind, x, y), out);
}

bool wk__symbolic_unary(wk__recording *r, int negative, PyObject *a, PyObject **out) {
  wk_int x;
  return wk__symbolic_int(r, a, &x) && give(r, negative ? wk_int_neg(x) : x, out);
}

bool wk__symbolic_extremum(wk__recording *r, bool largest, PyObject *const *args, Py_ssize_t count, PyObject **out) {
  wk_int all = WK_INT_POISONED, x;
  bool symbolic = false;
  for (Py_ssize_t i = 0; i < count; i++) {
    if (!as_expression(r, args[i], &x)) return false;
    symbolic |= !wk_int_is_known(x);
    all = i == 0 ? x : largest ? wk_int_max(all, x) : wk_int_min(all, x);
  }
  return symbolic && give(r, all, out);
}

/* ---- comparisons ---- */

static bool holds(int py_kind, wk_int x, wk_int y) {
  switch (py_kind) {
    case Py_LT:
      return wk_int_lt(x, y);
    case Py_LE:
      return wk_int_le(x, y);
    case Py_GT:
      return wk_int_gt(x, y);
    case Py_GE:
      return wk_int_ge(x, y);
    case Py_EQ:
      return wk_int_eq(x, y);
    default:
      return wk_int_ne(x, y);
  }
}

static bool all_expressions(const wk__recording *r, PyObject *tuple, bool *symbolic) {
  wk_int x;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
    if (!as_expression(r, PyTuple_GET_ITEM(tuple, i), &x)) return false;
    *symbolic |= !wk_int_is_known(x);
  }
  return true;
}

/* x.shape == y.shape: item by item, up to the first that differs. */
static int compare_tuples(wk__recording *r, int py_kind, PyObject *a, PyObject *b) {
  bool symbolic = false, equal = PyTuple_GET_SIZE(a) == PyTuple_GET_SIZE(b);
  wk_int x, y;
  if (!all_expressions(r, a, &symbolic) || !all_expressions(r, b, &symbolic) || !symbolic) return -1;
  for (Py_ssize_t i = 0; equal && i < PyTuple_GET_SIZE(a); i++) {
    (void)as_expression(r, PyTuple_GET_ITEM(a, i), &x);
    (void)as_expression(r, PyTuple_GET_ITEM(b, i), &y);
    equal = wk_int_eq(x, y);
  }
  return equal == (py_kind == Py_EQ);
}

int wk__symbolic_compare(wk__recording *r, int py_kind, PyObject *a, PyObject *b) {
  wk_int x, y;
  if (!r->symbol_count) return -1;
  if (operands(r, a, b, &x, &y)) return holds(py_kind, x, y);
  bool equality = py_kind == Py_EQ || py_kind == Py_NE;
  return equality && PyTuple_Check(a) && PyTuple_Check(b) ? compare_tuples(r, py_kind, a, b) : -1;
}

int wk__symbolic_truth(wk__recording *r, PyObject *a) {
  wk_int x;
  return wk__symbolic_int(r, a, &x) ? wk_int_ne(x, wk_int_of(0)) : -1;
}

/* =============================================== numbers from outside ============================================ */

bool wk__number_changes(const wk__recording *r, PyObject *o, wk__read_kind kind, uint64_t path) {
  bool drawn = kind == WK__READ_DRAWN || kind == WK__READ_CLOCK;
  bool taken = drawn || kind == WK__READ_DICT || kind == WK__READ_ITEM || kind == WK__READ_SLOT ||
               kind == WK__READ_STACK || kind == WK__READ_CELL;
  bool integer = PyLong_CheckExact(o);
  if (!taken || r->keep_numbers || !(integer || PyFloat_CheckExact(o))) return false;
  if (integer) {
    int overflow;
    int64_t value = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (overflow || !r->tracer || !r->dynamic || !can_be_symbol(value)) return false;
    if (r->dynamic > 0 && kind == WK__READ_SLOT) return true;
  }
  return (drawn && !integer) || (r->changing && wk__map_get(r->changing, path));
}

/* A graph learns its symbols from sizes of inputs: the integer is one of an input without values. */
static int add_symbol_of_int(wk__recording *r, wk__reg reg, PyObject *number) {
  wk_int x = new_symbol(r, (wk__symbol){.reg = reg, .dim = -1}, PyLong_AsLongLong(number), LEAST, LARGEST);
  if (wk_int_is_poisoned(x) || wk__tracer_size_input(r->tracer, x) != WK_OK ||
      wk__grow(&r->inputs, &r->input_capacity, r->input_count + 1, sizeof *r->inputs) != WK_OK) {
    wk_error_clear();
    return wk__record_no_memory(r);
  }
  r->registers[reg].input = (int)r->input_count;
  r->inputs[r->input_count++] = reg;
  r->registers[reg].symbolic = true;
  r->registers[reg].number = x;
  return 0;
}

int wk__read_changing(wk__recording *r, uint64_t hash, uint64_t path, PyObject *number, wk__read_kind kind, wk__reg a,
                      int64_t b, PyObject *key) {
  bool integer = PyLong_CheckExact(number);
  PyObject *fresh = integer ? uncached_int(PyLong_AsLongLong(number)) : PyFloat_FromDouble(PyFloat_AS_DOUBLE(number));
  wk__reg reg = fresh ? wk__new_register(r, WK__REG_READ, fresh, false) : -1;
  Py_XDECREF(fresh); /* the register has it */
  wk__read *read = reg >= 0 ? wk__add_read(r, kind, a, b, key) : NULL;
  if (!read || wk__map_set(&r->fresh, hash, fresh) != WK_OK) return wk__record_no_memory(r);
  read->dest = reg;
  r->registers[reg].path = path;
  r->last_fresh = fresh;
  wk__check(r, WK__CHECK_TYPE, reg, 0, (PyObject *)Py_TYPE(number));
  return integer ? add_symbol_of_int(r, reg, fresh) : 0;
}

PyObject *wk__as_read(wk__recording *r, PyObject *found) {
  PyObject *object = r->last_fresh && found == r->last_found ? r->last_fresh : found;
  r->last_fresh = NULL;
  return Py_NewRef(object);
}

/* ---- floats that are inputs of the graph ---- */

wk__reg wk__float_register(const wk__recording *r, PyObject *number) {
  if (!wk__has_numbers(r) || !PyFloat_CheckExact(number)) return -1;
  wk__reg reg = wk__reg_find(r, number);
  return reg >= 0 && r->registers[reg].kind == WK__REG_READ ? reg : -1;
}

int wk__number_input(wk__recording *r, PyObject *number) {
  wk__reg reg = wk__float_register(r, number);
  if (reg < 0 || r->registers[reg].input >= 0) return reg < 0 ? -1 : r->registers[reg].input;
  if (wk__grow(&r->numbers, &r->number_capacity, r->number_count + 1, sizeof *r->numbers) != WK_OK) return -1;
  r->numbers[r->number_count] = reg;
  return r->registers[reg].input = (int)r->number_count++;
}

/* ==================================================== settling =================================================== */

void wk__specialize(wk__recording *r, PyObject *number) {
  wk_int x;
  if (wk__symbolic_int(r, number, &x)) {
    if (wk_int_guard_value(x) == INT64_MIN) wk__record_failed(r, "an integer that cannot be known");
    return;
  }
  wk__reg reg = wk__float_register(r, number);
  if (reg < 0) return;
  wk__check_once(r, WK__CHECK_EQUAL, reg, 0, number);
  wk__map_remove(&r->by_object, key_of(number));
}

enum { MAX_NESTING = 16 };
static void settle(wk__recording *r, PyObject *o, int depth) {
  if (wk__is_number(o)) {
    wk__specialize(r, o);
    return;
  }
  bool sequence = PyTuple_Check(o) || PyList_CheckExact(o);
  if (depth > MAX_NESTING && (sequence || PyDict_Check(o))) {
    wk__settle_all(r);
    return;
  }
  for (Py_ssize_t i = 0; sequence && i < PySequence_Fast_GET_SIZE(o); i++)
    if (PySequence_Fast_GET_ITEM(o, i)) settle(r, PySequence_Fast_GET_ITEM(o, i), depth + 1);
  PyObject *key, *value;
  for (Py_ssize_t at = 0; PyDict_Check(o) && PyDict_Next(o, &at, &key, &value);) settle(r, value, depth + 1);
  if (PySlice_Check(o)) {
    const PySliceObject *slice = (const PySliceObject *)o;
    PyObject *parts[] = {slice->start, slice->stop, slice->step};
    for (int i = 0; i < 3; i++) settle(r, parts[i], depth + 1);
  }
}

void wk__settle(wk__recording *r, PyObject *o) {
  if (wk__has_numbers(r)) settle(r, o, 0);
}

void wk__settle_symbols(wk__recording *r) {
  const wk__shape_env *env = r->symbol_count ? wk__tracer_env(r->tracer) : NULL;
  for (int64_t i = 0; env && i < r->symbol_count; i++)
    (void)wk_int_guard_value(wk__shape_env_symbol_at(env, i).value); /* a symbol has its value */
}

void wk__settle_all(wk__recording *r) {
  if (!wk__has_numbers(r)) return;
  for (int64_t i = 0; i < r->register_count; i++) {
    PyObject *o = r->registers[i].object;
    if (o && wk__is_number(o) && wk__reg_find(r, o) == i) wk__specialize(r, o);
  }
}
