/* Arguments from Python as the values of one overload: each parameter takes the kinds of its type (wk__types),
 * positions first, then keywords and defaults. What does not fit is noted, and the caller tries the next overload; what
 * is wrong whatever the overload is an exception at once. Everything borrows from the Python arguments. Tests:
 * tests/python/test_errors.py, tests/python/test_odd_arguments.py. */

#include "autograd/autograd.h"
#include "dynamo/dynamo.h"
#include "python/calls/operators.h"

#include <math.h>

/* ================================================= one argument ================================================= */

/* Memory for a list until the call is over; NULL with an exception. */
static void *list_room(wk__match *m, size_t bytes) {
  size_t rounded = (bytes + sizeof(wk_int)) / sizeof(wk_int) * sizeof(wk_int);
  m->used += rounded;
  if (m->used <= sizeof m->space) return m->space + m->used - rounded;
  m->used -= rounded;
  wk__list_block *block = PyMem_Malloc(sizeof *block + rounded);
  if (!block) return PyErr_NoMemory();
  block->next = m->blocks;
  m->blocks = block;
  return block->items;
}

/* A list with something else in it is an error at once, as in PyTorch, and not tried as another overload's. */
static bool all_tensors(const wk__state *state, const wk__match *m, const wk__parameter *p, PyObject *sequence) {
  Py_ssize_t n = PySequence_Fast_GET_SIZE(sequence);
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *item = PySequence_Fast_GET_ITEM(sequence, i);
    if (wk__is_tensor(state, item) || (p->optional_items && item == Py_None)) continue;
    PyErr_Format(PyExc_TypeError, "expected Tensor as element %zd in argument %d, but got %s", i,
                 (int)(p - m->op->schema.parameters), Py_TYPE(item)->tp_name);
    return false;
  }
  return true;
}

/* 1: fits, 0: does not, -1: an exception is set. */
static int match_tensors(wk__state *state, wk__match *m, const wk__parameter *p, PyObject *o, wk_value *v) {
  if (!(PyTuple_Check(o) || PyList_Check(o))) return 0;
  if (!all_tensors(state, m, p, o)) return -1;
  Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
  wk_tensor **list = list_room(m, (size_t)n * sizeof *list);
  if (!list) return -1;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *item = PySequence_Fast_GET_ITEM(o, i);
    list[i] = item == Py_None ? NULL : wk__tensor_of(item);
  }
  *v = (wk_value){.tag = WK_VALUE_TENSORS, .count = (uint32_t)n, .tensors = list};
  return 1;
}

/* PyTorch looks at the first item to tell lists of ints; what follows must then be ints. */
static int bad_int(const wk__match *m, const wk__parameter *p, PyObject *item, Py_ssize_t at) {
  PyErr_Format(PyExc_TypeError,
               "%s(): argument '%s' failed to unpack the object at pos %zd with error \"type must be tuple of ints,but "
               "got %s\"",
               m->op->base_name, p->name, at + 1, Py_TYPE(item)->tp_name);
  return -1;
}

/* Of other lists PyTorch looks at the first item as well; positions of what follows are counted from one. */
static int bad_listed(const wk__match *m, const wk__parameter *p, PyObject *item, Py_ssize_t at) {
  PyErr_Format(PyExc_TypeError, "%s(): argument '%s' must be %s, but found element of type %s at pos %zd",
               m->op->base_name, p->name, wk__types[p->type].shown, Py_TYPE(item)->tp_name, at + 1);
  return -1;
}

bool wk__is_size(const wk__state *state, PyObject *o) {
  if (PyLong_CheckExact(o)) return true;
  if (PyBool_Check(o) || !PyIndex_Check(o)) return false;
  if (!wk__is_tensor(state, o)) return true;
  const wk_tensor *t = wk__tensor_of(o);
  return wk_dtype_is_integral((wk_dtype)t->dtype, true) && wk_int_eq(t->numel, wk_int_of(1));
}

/* A dim that no wk_int holds is refused with all that are out of range; a size has no such check. */
static int check_sizes(const wk__match *m, const wk__parameter *p, const wk_int *sizes, int n) {
  for (int i = 0; p->symbolic && i < n; i++) {
    if (WK_LIKELY(!wk_int_is_poisoned(sizes[i]))) continue;
    PyErr_Format(PyExc_RuntimeError, "%s(): argument '%s' must not be below %lld (at position %d)", m->op->base_name,
                 p->name, (long long)WK_INT_LEAST, i + 1);
    return -1;
  }
  return 0;
}

static int match_ints(wk__state *state, wk__match *m, const wk__parameter *p, PyObject *o, wk_value *v) {
  bool sequence = PyTuple_Check(o) || PyList_Check(o);
  if (!sequence && !(p->fixed_count && wk__is_size(state, o))) return 0;
  for (Py_ssize_t i = 0; sequence && i < PySequence_Fast_GET_SIZE(o); i++)
    if (!wk__is_size(state, PySequence_Fast_GET_ITEM(o, i)))
      return i ? bad_int(m, p, PySequence_Fast_GET_ITEM(o, i), i) : 0;
  Py_ssize_t most = WK_MAX_DIMS;
  if (WK_UNLIKELY(p->long_list) && sequence) most = wk__max(most, PySequence_Fast_GET_SIZE(o));
  wk_int *list = list_room(m, (size_t)most * sizeof *list);
  int n = list ? wk__ints_up_to(state, o, list, !sequence, most) : -1;
  if (n < 0 || check_sizes(m, p, list, n) < 0) return -1;
  while (!sequence && n < p->fixed_count) list[n++] = list[0];
  *v = (wk_value){.tag = WK_VALUE_INTS, .count = (uint32_t)n, .integers = list};
  return 1;
}

/* A tensor stands for a number only without dims and without history. */
static bool is_plain_element(const wk_tensor *t) { return t->ndim == 0 && !wk_requires_grad(t); }

static int match_float(wk__state *state, PyObject *o, wk_value *v) {
  if (!wk__stands_for_number(o) || PyComplex_Check(o)) return 0;
  if (wk__is_tensor(state, o) && !is_plain_element(wk__tensor_of(o))) return 0;
  if (PyLong_Check(o) && !PyBool_Check(o)) {
    double exact = PyLong_AsDouble(o);
    if (exact == -1 && PyErr_Occurred()) return -1;
    if (fabs(exact) > (double)INT64_MAX / 2) {
      *v = (wk_value){.tag = WK_VALUE_DOUBLE, .number = exact};
      return 1;
    }
  }
  if (wk__scalar_from_python(state, o, v) < 0) return -1;
  wk__scalar s = wk__value_scalar(v);
  *v = (wk_value){.tag = WK_VALUE_DOUBLE, .number = wk__scalar_double(s)};
  if (WK_UNLIKELY(wk__thread.mode.keys_on & WK__KEY_TRACE)) wk__dynamo_number(o, v);
  return 1;
}

/* Of tensors, one integer without dims; where it may be symbolic, dims of size one do no harm. */
static bool is_int(const wk__state *state, PyObject *o, bool symbolic) {
  if (PyFloat_Check(o) || !wk__is_size(state, o)) return false;
  if (PyLong_Check(o) || !wk__is_tensor(state, o)) return true;
  const wk_tensor *t = wk__tensor_of(o);
  return t->dtype != WK_BOOL && !wk_requires_grad(t) && (symbolic || t->ndim == 0);
}

static int match_int(wk__state *state, PyObject *o, bool symbolic, wk_value *v) {
  if (!is_int(state, o, symbolic)) return 0;
  v->tag = WK_VALUE_INT;
  return wk__int_from_python(state, o, &v->integer) < 0 ? -1 : 1;
}

/* Sizes, places, and which diagonal: those far below are all alike, so what a wk_int cannot hold is the least one. The
 * bounds of random numbers, which are sizes for PyTorch too, are not alike. */
static int match_size(wk__state *state, PyObject *o, wk_value *v) {
  int overflow, fits = match_int(state, o, true, v);
  if (fits == 1 && wk_int_is_poisoned(v->integer) && PyLong_Check(o) &&
      PyLong_AsLongLongAndOverflow(o, &overflow) < WK_INT_LEAST && !overflow)
    v->integer = wk_int_of(WK_INT_LEAST);
  return fits;
}
static bool is_size_like(const wk__match *m, const wk__parameter *p) {
  return p->clamps || (p->symbolic && !(m->op->tags & WK__TAG_RANDOM));
}

static int match_memory_format(wk__state *state, PyObject *o, wk_value *v) {
  if (!Py_IS_TYPE(o, state->memory_format_type)) return 0;
  *v = (wk_value){.tag = WK_VALUE_STRING, .string = wk__named_constant(state, o)};
  return 1;
}

static int match_string(PyObject *o, wk_value *v) {
  if (!PyUnicode_Check(o)) return 0;
  v->tag = WK_VALUE_STRING;
  v->string = PyUnicode_AsUTF8(o);
  return v->string ? 1 : -1;
}

static int match_dtype(wk__state *state, PyObject *o, wk_value *v) {
  bool python_type = o == (PyObject *)&PyFloat_Type || o == (PyObject *)&PyLong_Type || o == (PyObject *)&PyBool_Type;
  if (!Py_IS_TYPE(o, state->dtype_type) && !python_type) return 0;
  wk_dtype dtype;
  if (wk__dtype_from_python(state, o, &dtype) < 0) return -1;
  *v = (wk_value){.tag = WK_VALUE_DTYPE, .dtype = (uint8_t)dtype};
  return 1;
}

static int match_device(wk__state *state, PyObject *o, wk_value *v) {
  if (!PyUnicode_Check(o) && !Py_IS_TYPE(o, state->device_type) && !PyLong_Check(o)) return 0;
  v->tag = WK_VALUE_DEVICE;
  return wk__device_from_python(state, o, &v->device) < 0 ? -1 : 1;
}

/* Where only a real number can be kept. 1: taken, 0: it is no complex number, -1: an exception is set. */
static int match_complex(wk__state *state, const wk__match *m, PyObject *o, wk_value *v) {
  Py_complex number;
  if (WK_LIKELY(PyFloat_CheckExact(o) || PyLong_CheckExact(o)) || !wk__complex_from_python(state, o, &number)) return 0;
  bool own = m->op->tags & WK__TAG_OWN_DTYPE && m->values[0].tag == WK_VALUE_TENSOR;
  wk_dtype dtype = own ? (wk_dtype)m->values[0].tensor->dtype : WK_FLOAT64;
  if (PyComplex_Check(o) && !own) return 0; /* as any object that is no real number */
  *v = (wk_value){.tag = WK_VALUE_DOUBLE, .number = number.real};
  if (number.imag == 0) return 1;
  if (dtype == WK_BOOL) {
    *v = (wk_value){.tag = WK_VALUE_BOOL, .boolean = true};
    return 1;
  }
  (void)!wk__refuse_complex(dtype);
  wk__raise(state);
  return -1;
}

/* Where a complex number can be kept. 1: taken, 0: it is no complex number, -1: an exception is set. */
static int keep_complex(wk__state *state, wk__match *m, PyObject *o, wk_value *v) {
  Py_complex number;
  if (!wk__complex_from_python(state, o, &number)) return 0;
  double *parts = list_room(m, 2 * sizeof *parts);
  if (!parts) return -1;
  parts[0] = number.real, parts[1] = number.imag;
  *v = (wk_value){.tag = WK_VALUE_COMPLEX, .numbers = parts};
  return 1;
}

/* The number becomes an element of a tensor that has no imaginary parts. */
static bool into_real_tensor(const wk__match *m) {
  bool own = m->op->tags & WK__TAG_OWN_DTYPE && m->values[0].tag == WK_VALUE_TENSOR;
  return own && !wk_dtype_is_complex((wk_dtype)m->values[0].tensor->dtype);
}

static int match_scalar(wk__state *state, wk__match *m, const wk__parameter *p, PyObject *o, wk_value *v) {
  if (wk__is_tensor(state, o)) {
    if (!is_plain_element(wk__tensor_of(o))) return 0;
  } else if (!wk__stands_for_number(o)) {
    return 0;
  }
  bool kept = WK_UNLIKELY(p->complex) && !into_real_tensor(m);
  int complex = kept ? keep_complex(state, m, o, v) : match_complex(state, m, o, v);
  return complex ? complex : wk__scalar_from_python(state, o, v) < 0 ? -1 : 1;
}

/* In lists an int stands for a bool, as it does where PyTorch takes such lists. */
static int match_listed_bool(PyObject *o, wk_value *v) {
  if (!PyLong_Check(o)) return 0;
  int truth = PyObject_IsTrue(o);
  *v = (wk_value){.tag = WK_VALUE_BOOL, .boolean = truth > 0};
  return truth < 0 ? -1 : 1;
}

/* In lists numbers are constants of a graph that is captured. */
static void settle_item(wk_value *v) {
  if (v->tag == WK_VALUE_INPUT) wk__dynamo_specialize(v);
  if (v->tag == WK_VALUE_INT) v->integer = wk_int_of(wk_int_guard_value(v->integer));
}

static int match_item(wk__state *state, wk__match *m, const wk__parameter *p, PyObject *o, wk_value *v) {
  uint8_t type = wk__types[p->type].item;
  if (type == WK__TYPE_BOOL) return match_listed_bool(o, v);
  int fits = type == WK__TYPE_SCALAR ? match_scalar(state, m, p, o, v) : match_float(state, o, v);
  settle_item(v);
  return fits;
}

/* Lists of what is no tensor and no int. Of numbers PyTorch looks at all before it takes the overload. */
static int match_list(wk__state *state, wk__match *m, const wk__parameter *p, PyObject *o, wk_value *v) {
  if (!(PyTuple_Check(o) || PyList_Check(o))) return 0;
  uint8_t kind = wk__list_kind(p->type);
  Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
  void *list = list_room(m, (size_t)n * wk__value_kinds[kind].item_size);
  if (!list) return -1;
  for (Py_ssize_t i = 0; i < n; i++) {
    wk_value item = {0};
    PyObject *object = PySequence_Fast_GET_ITEM(o, i);
    int fits = match_item(state, m, p, object, &item);
    if (fits == 0 && i > 0 && p->type != WK__TYPE_SCALARS) return bad_listed(m, p, object, i);
    if (fits != 1) return fits;
    wk__value_put_item(kind, list, (uint32_t)i, &item);
  }
  *v = (wk_value){.tag = kind, .count = (uint32_t)n, .string = list};
  return 1;
}

int wk__match_argument(wk__state *state, wk__match *m, const wk__parameter *p, PyObject *o, wk_value *v) {
  *v = (wk_value){0};
  if (o == Py_None) /* a list that is empty by default may be absent */
    return p->optional || (p->has_default && p->type == WK__TYPE_INTS && !p->default_value.count);
  switch ((wk__type)p->type) {
    case WK__TYPE_TENSOR:
      if (!wk__is_tensor(state, o)) return 0;
      v->tag = WK_VALUE_TENSOR;
      v->tensor = wk__tensor_of(o);
      return 1;
    case WK__TYPE_SCALAR:
      return match_scalar(state, m, p, o, v);
    case WK__TYPE_INT:
      return is_size_like(m, p) ? match_size(state, o, v) : match_int(state, o, p->symbolic, v);
    case WK__TYPE_FLOAT:
      return match_float(state, o, v);
    case WK__TYPE_BOOL:
      if (!PyBool_Check(o)) return 0;
      *v = (wk_value){.tag = WK_VALUE_BOOL, .boolean = o == Py_True};
      return 1;
    case WK__TYPE_STRING:
      return match_string(o, v);
    case WK__TYPE_MEMORY_FORMAT:
      return match_memory_format(state, o, v);
    case WK__TYPE_DTYPE:
      return match_dtype(state, o, v);
    case WK__TYPE_DEVICE:
      return match_device(state, o, v);
    case WK__TYPE_GENERATOR:
      if (!Py_IS_TYPE(o, state->generator_type)) return 0;
      *v = (wk_value){.tag = WK_VALUE_GENERATOR, .generator = ((wk__python_generator *)o)->generator};
      return 1;
    case WK__TYPE_TENSORS:
      return match_tensors(state, m, p, o, v);
    case WK__TYPE_INTS:
      return match_ints(state, m, p, o, v);
    case WK__TYPE_FLOATS:
    case WK__TYPE_BOOLS:
    case WK__TYPE_SCALARS:
      return match_list(state, m, p, o, v);
    default:
      return 0;
  }
}

/* ================================================== all arguments =============================================== */

void wk__match_release(wk__match *m) {
  while (m->blocks) {
    wk__list_block *next = m->blocks->next;
    PyMem_Free(m->blocks);
    m->blocks = next;
  }
  m->used = 0;
}

/* PyTorch's Python names for schema names, and NumPy's, which PyTorch takes as well. */
bool wk__names_parameter(PyObject *keyword, const char *name) {
  static const char *const others[][2] = {{"self", "input"}, {"self", "x"},           {"self", "a"},  {"self", "x1"},
                                          {"dim", "axis"},   {"keepdim", "keepdims"}, {"other", "x2"}};
  if (PyUnicode_CompareWithASCIIString(keyword, name) == 0) return true;
  for (size_t i = 0; i < WK_COUNT(others); i++)
    if (strcmp(name, others[i][0]) == 0 && PyUnicode_CompareWithASCIIString(keyword, others[i][1]) == 0) return true;
  return false;
}

int wk__parameter_named(const wk__schema *s, PyObject *keyword) {
  for (int i = 0; i < s->parameter_count; i++)
    if (PyUnicode_CompareWithASCIIString(keyword, s->parameters[i].name) == 0) return i;
  int i = 0;
  while (i < s->parameter_count && !wk__names_parameter(keyword, s->parameters[i].name)) i++;
  return i;
}

int wk__match_out(const wk__state *state, wk__match *m, PyObject *value) {
  int count = m->op->schema.result_count;
  m->out = value == Py_None ? NULL : value;
  if (!m->out || (count == 1 && wk__is_tensor(state, value))) return 1;
  if (count == 1 || !(PyTuple_Check(value) || PyList_Check(value))) return 0;
  if (PySequence_Fast_GET_SIZE(value) != count) {
    PyErr_Format(PyExc_TypeError, "expected tuple of %d elements but got %zd", count, PySequence_Fast_GET_SIZE(value));
    return -1;
  }
  for (int r = 0; r < count; r++) {
    PyObject *item = PySequence_Fast_GET_ITEM(value, r);
    if (wk__is_tensor(state, item)) continue;
    PyErr_Format(PyExc_TypeError, "expected Tensor as element %d in argument %d, but got %s", r,
                 m->op->schema.parameter_count, Py_TYPE(item)->tp_name);
    return -1;
  }
  return 1;
}

static int bad_extra(const wk__match *m, PyObject *keyword, const char *wanted, PyObject *value) {
  PyErr_Format(PyExc_TypeError, "%s(): argument '%U' must be %s, not %s", m->op->base_name, keyword, wanted,
               Py_TYPE(value)->tp_name);
  return -1;
}

int wk__match_creation_keyword(const wk__state *state, wk__match *m, PyObject *keyword, PyObject *value) {
  if (!wk__creates(m->op)) return 0;
  if (PyUnicode_CompareWithASCIIString(keyword, "requires_grad") == 0) {
    m->requires_grad = value;
    return PyBool_Check(value) || value == Py_None ? 1 : bad_extra(m, keyword, "bool", value);
  }
  if (PyUnicode_CompareWithASCIIString(keyword, "pin_memory") == 0) {
    m->pin_memory = value;
    return PyBool_Check(value) || value == Py_None ? 1 : bad_extra(m, keyword, "bool", value);
  }
  if (PyUnicode_CompareWithASCIIString(keyword, "names") == 0) return value == Py_None;
  if (PyUnicode_CompareWithASCIIString(keyword, "layout") != 0) return 0;
  if (value == Py_None) return 1;
  if (!Py_IS_TYPE(value, state->layout_type)) return bad_extra(m, keyword, "torch.layout", value);
  const char *layout = wk__named_constant((wk__state *)state, value);
  if (strcmp(layout, "strided") == 0) return 1;
  PyErr_Format(PyExc_NotImplementedError,
               "tensors of layout torch.%s exist in PyTorch 2.13 but wick does not have them yet", layout);
  return -1;
}

static int misfit(wk__match *m, const wk__parameter *p, PyObject *o, int position) {
  m->problem = p->name;
  m->offender = o;
  m->position = position;
  return 0;
}

/* One list parameter may be spread over the positions: view(2, 3), zeros(2, 3). */
static int match_spread(wk__state *state, wk__match *m, const wk__parameter *p, PyObject *const *args, Py_ssize_t n,
                        wk_value *v) {
  if (WK_UNLIKELY(n > WK_MAX_DIMS)) return wk__is_size(state, args[0]) ? wk__too_many_dims() : 0;
  wk_int *list = list_room(m, (size_t)n * sizeof *list);
  if (!list) return -1;
  for (Py_ssize_t k = 0; k < n; k++) {
    if (!wk__is_size(state, args[k])) return k ? bad_int(m, p, args[k], k) : 0;
    if (wk__int_from_python(state, args[k], &list[k]) < 0) return -1;
  }
  if (check_sizes(m, p, list, (int)n) < 0) return -1;
  *v = (wk_value){.tag = WK_VALUE_INTS, .count = (uint32_t)n, .integers = list};
  return 1;
}

static int match_positional(wk__state *state, wk__match *m, const wk_op *op, bool is_method, PyObject *const *args,
                            Py_ssize_t n) {
  const wk__schema *s = &op->schema;
  for (int i = 0; i < n; i++) {
    if (i >= s->positional_count) {
      m->problem = "";
      return 0;
    }
    const wk__parameter *p = &s->parameters[i];
    if (p->type == WK__TYPE_INTS && i == (is_method ? 1 : 0) && s->positional_count == i + 1 &&
        wk__is_size(state, args[i])) {
      int fits = match_spread(state, m, p, args + i, n - i, &m->values[i]);
      return fits ? fits : misfit(m, p, args[i], i);
    }
    int fits = wk__match_argument(state, m, p, args[i], &m->values[i]);
    if (fits < 0) return -1;
    if (!fits) return misfit(m, p, args[i], i);
  }
  return 1;
}

static int match_keyword(wk__state *state, wk__match *m, const wk_op *op, PyObject *keyword, PyObject *value,
                         uint32_t *given) {
  const wk__schema *s = &op->schema;
  int i = wk__parameter_named(s, keyword);
  if (i < s->parameter_count) {
    if (*given >> i & 1) return misfit(m, &s->parameters[i], value, -1); /* arange(0, end=3) means another overload */
    *given |= 1u << i;
    int fits = wk__match_argument(state, m, &s->parameters[i], value, &m->values[i]);
    return fits ? fits : misfit(m, &s->parameters[i], value, -1);
  }
  if (wk__is_out_keyword(keyword) && m->in_place && value == Py_None) return 1; /* as NumPy calls methods */
  bool out = wk__is_out_keyword(keyword) && op->out && !m->in_place;
  int taken = out ? wk__match_out(state, m, value) : wk__match_creation_keyword(state, m, keyword, value);
  if (taken) return taken;
  m->problem = NULL;
  m->offender = keyword;
  return 0;
}

/* Bits of the first `n` arguments, which may be all that there are bits for. */
static uint32_t first_arguments(int64_t n) { return (uint32_t)((UINT64_C(1) << n) - 1); }

int wk__match_overload(wk__python_operator *o, wk__match *m, const wk_op *op, PyObject *const *args, Py_ssize_t n,
                       PyObject *keywords) {
  const wk__schema *s = &op->schema;
  memset(m->values, 0, s->parameter_count * sizeof *m->values);
  wk__match_release(m);
  m->op = op;
  m->in_place = o->in_place || o->is_method;
  m->out = m->requires_grad = m->pin_memory = m->offender = NULL;
  m->problem = "";
  m->position = -1;
  int fits = match_positional(o->state, m, op, o->is_method, args, n);
  if (fits != 1) return fits;
  uint32_t given = first_arguments(wk__min(n, s->positional_count));
  for (Py_ssize_t k = 0; keywords && k < PyTuple_GET_SIZE(keywords); k++) {
    fits = match_keyword(o->state, m, op, PyTuple_GET_ITEM(keywords, k), args[n + k], &given);
    if (fits != 1) return fits;
  }
  for (int i = 0; i < s->parameter_count; i++)
    if (!(given >> i & 1) && !s->parameters[i].has_default) {
      m->problem = s->parameters[i].name;
      m->offender = NULL;
      return 0;
    }
  return 1;
}
