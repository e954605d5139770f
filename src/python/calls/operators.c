/* Operators as Python callables: wick.add and Tensor.add are one object a name, with all overloads of the table behind
 * it. Arguments are matched against the schemas in order; the first that fits is called. In-place names (`add_`) and
 * out= are the same call with a destination. Errors name the argument as PyTorch does. Tests:
 * tests/python/test_arguments.py. */

#include "autograd/autograd.h"
#include "dynamo/dynamo.h"
#include "python/calls/override.h"

#include <math.h>
#include <structmember.h>

enum { LIST_SPACE = 4 * WK_MAX_DIMS * (int)sizeof(wk_int) }; /* bytes */

typedef struct operator_object {
  PyObject_HEAD vectorcallfunc vectorcall;
  wk__state *state;
  const wk_op **overloads; /* (overload_count), owned */
  char name[64];           /* as Python sees it: "add", "add_" */
  uint8_t overload_count;
  bool in_place;  /* writes its first argument */
  bool is_method; /* bound like a function of the type */
  bool hidden;    /* a function that PyTorch has not: the core's alone */
} operator_object;

typedef struct list_block {
  struct list_block *next;
  wk_int items[];
} list_block;

/* What one attempt at matching made; everything borrows from the Python arguments. */
typedef struct match {
  const wk_op *op; /* the overload that is tried */
  wk_value values[WK__MAX_ARGS];
  _Alignas(wk_int) char space[LIST_SPACE]; /* what lists hold, as long as there is room */
  size_t used;
  list_block *blocks; /* those that found none; freed after the call */
  PyObject *out;      /* borrowed: the out= argument */
  PyObject *requires_grad;
  const char *problem; /* why it does not fit: the parameter's name */
  PyObject *offender;  /* borrowed: the argument that does not fit */
  int position;
  bool in_place; /* the callable writes its first argument, so there is no out= */
} match;

/* ================================================= one argument ================================================= */

static bool is_number(PyObject *o) {
  return PyFloat_Check(o) || PyLong_Check(o) || (PyNumber_Check(o) && !PySequence_Check(o) && !PyUnicode_Check(o));
}

/* Memory for a list until the call is over; NULL with an exception. */
static void *list_room(match *m, size_t bytes) {
  size_t rounded = (bytes + sizeof(wk_int)) / sizeof(wk_int) * sizeof(wk_int);
  m->used += rounded;
  if (m->used <= sizeof m->space) return m->space + m->used - rounded;
  m->used -= rounded;
  list_block *block = PyMem_Malloc(sizeof *block + rounded);
  if (!block) return PyErr_NoMemory();
  block->next = m->blocks;
  m->blocks = block;
  return block->items;
}

/* A list with something else in it is an error at once, as in PyTorch, and not tried as another overload's. */
static bool all_tensors(const wk__state *state, const match *m, const wk__parameter *p, PyObject *sequence) {
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
static int match_tensors(wk__state *state, match *m, const wk__parameter *p, PyObject *o, wk_value *v) {
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
static int bad_int(const match *m, const wk__parameter *p, PyObject *item, Py_ssize_t at) {
  PyErr_Format(PyExc_TypeError,
               "%s(): argument '%s' failed to unpack the object at pos %zd with error \"type must be tuple of ints,but "
               "got %s\"",
               m->op->base_name, p->name, at + 1, Py_TYPE(item)->tp_name);
  return -1;
}

/* Of other lists PyTorch looks at the first item as well; positions of what follows are counted from one. */
static int bad_listed(const match *m, const wk__parameter *p, PyObject *item, Py_ssize_t at) {
  PyErr_Format(PyExc_TypeError, "%s(): argument '%s' must be %s, but found element of type %s at pos %zd",
               m->op->base_name, p->name, wk__types[p->type].shown, Py_TYPE(item)->tp_name, at + 1);
  return -1;
}

static bool is_real(PyObject *o) { return PyFloat_Check(o) || PyLong_Check(o); }

/* What stands for an int in a list of them: no bool, and of tensors those with one integer. */
static bool is_size(const wk__state *state, PyObject *o) {
  if (PyLong_CheckExact(o)) return true;
  if (PyBool_Check(o) || !PyIndex_Check(o)) return false;
  if (!wk__is_tensor(state, o)) return true;
  const wk_tensor *t = wk__tensor_of(o);
  return wk_dtype_is_integral((wk_dtype)t->dtype, true) && wk_int_eq(t->numel, wk_int_of(1));
}

/* A dim that no wk_int holds is refused with all that are out of range; a size has no such check. */
static int check_sizes(const match *m, const wk__parameter *p, const wk_int *sizes, int n) {
  for (int i = 0; p->symbolic && i < n; i++) {
    if (WK_LIKELY(!wk_int_is_poisoned(sizes[i]))) continue;
    PyErr_Format(PyExc_RuntimeError, "%s(): argument '%s' must not be below %lld (at position %d)", m->op->base_name,
                 p->name, (long long)WK_INT_LEAST, i + 1);
    return -1;
  }
  return 0;
}

static int match_ints(wk__state *state, match *m, const wk__parameter *p, PyObject *o, wk_value *v) {
  bool sequence = PyTuple_Check(o) || PyList_Check(o);
  if (!sequence && !(p->fixed_count && is_size(state, o))) return 0;
  for (Py_ssize_t i = 0; sequence && i < PySequence_Fast_GET_SIZE(o); i++)
    if (!is_size(state, PySequence_Fast_GET_ITEM(o, i)))
      return i ? bad_int(m, p, PySequence_Fast_GET_ITEM(o, i), i) : 0;
  wk_int *list = list_room(m, WK_MAX_DIMS * sizeof *list);
  int n = list ? wk__ints_from_python(state, o, list, !sequence) : -1;
  if (n < 0 || check_sizes(m, p, list, n) < 0) return -1;
  while (!sequence && n < p->fixed_count) list[n++] = list[0];
  *v = (wk_value){.tag = WK_VALUE_INTS, .count = (uint32_t)n, .integers = list};
  return 1;
}

/* A tensor stands for a number only without dims and without history. */
static bool is_plain_element(const wk_tensor *t) { return t->ndim == 0 && !wk_requires_grad(t); }

static int match_float(wk__state *state, PyObject *o, wk_value *v) {
  if (!is_number(o) || PyComplex_Check(o)) return 0;
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
  if (PyFloat_Check(o) || !is_size(state, o)) return false;
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
static bool is_size_like(const match *m, const wk__parameter *p) {
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
static int match_complex(wk__state *state, const match *m, PyObject *o, wk_value *v) {
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
static int keep_complex(wk__state *state, match *m, PyObject *o, wk_value *v) {
  Py_complex number;
  if (!wk__complex_from_python(state, o, &number)) return 0;
  double *parts = list_room(m, 2 * sizeof *parts);
  if (!parts) return -1;
  parts[0] = number.real, parts[1] = number.imag;
  *v = (wk_value){.tag = WK_VALUE_COMPLEX, .numbers = parts};
  return 1;
}

static int match_scalar(wk__state *state, match *m, const wk__parameter *p, PyObject *o, wk_value *v) {
  if (wk__is_tensor(state, o)) {
    if (!is_plain_element(wk__tensor_of(o))) return 0;
  } else if (!is_number(o)) {
    return 0;
  }
  int complex = WK_UNLIKELY(p->complex) ? keep_complex(state, m, o, v) : match_complex(state, m, o, v);
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

static int match_item(wk__state *state, match *m, const wk__parameter *p, PyObject *o, wk_value *v) {
  uint8_t type = wk__types[p->type].item;
  if (type == WK__TYPE_BOOL) return match_listed_bool(o, v);
  int fits = type == WK__TYPE_SCALAR ? match_scalar(state, m, p, o, v) : match_float(state, o, v);
  settle_item(v);
  return fits;
}

/* Lists of what is no tensor and no int. Of numbers PyTorch looks at all before it takes the overload. */
static int match_list(wk__state *state, match *m, const wk__parameter *p, PyObject *o, wk_value *v) {
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

static int match_argument(wk__state *state, match *m, const wk__parameter *p, PyObject *o, wk_value *v) {
  *v = (wk_value){0};
  if (o == Py_None) return p->optional || (p->has_default && p->type == WK__TYPE_INTS);
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

static void release_lists(match *m) {
  while (m->blocks) {
    list_block *next = m->blocks->next;
    PyMem_Free(m->blocks);
    m->blocks = next;
  }
  m->used = 0;
}

/* PyTorch's Python names for schema names, and NumPy's, which PyTorch takes as well. */
static bool names_parameter(PyObject *keyword, const char *name) {
  static const char *const others[][2] = {{"self", "input"}, {"self", "x"},           {"self", "a"},  {"self", "x1"},
                                          {"dim", "axis"},   {"keepdim", "keepdims"}, {"other", "x2"}};
  if (PyUnicode_CompareWithASCIIString(keyword, name) == 0) return true;
  for (size_t i = 0; i < WK_COUNT(others); i++)
    if (strcmp(name, others[i][0]) == 0 && PyUnicode_CompareWithASCIIString(keyword, others[i][1]) == 0) return true;
  return false;
}

static bool is_out(PyObject *keyword) { return PyUnicode_CompareWithASCIIString(keyword, "out") == 0; }

/* One tensor, or a tuple of as many as there are results. 1: fits, 0: does not, -1: an exception is set. */
static int match_out(const wk__state *state, match *m, PyObject *value) {
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

static int bad_extra(const match *m, PyObject *keyword, const char *wanted, PyObject *value) {
  PyErr_Format(PyExc_TypeError, "%s(): argument '%U' must be %s, not %s", m->op->base_name, keyword, wanted,
               Py_TYPE(value)->tp_name);
  return -1;
}

/* Makes a tensor of a dtype on a device: takes what creation takes besides. */
static bool creates(const wk_op *op) { return op->tags & WK__TAG_NAMES_DTYPE; }

/* Keywords of creation that are not in schemas: requires_grad=, and those that say what is so anyway. 1: taken. */
static int take_extra(const wk__state *state, match *m, PyObject *keyword, PyObject *value) {
  if (!creates(m->op)) return 0;
  if (PyUnicode_CompareWithASCIIString(keyword, "requires_grad") == 0) {
    m->requires_grad = value;
    return PyBool_Check(value) || value == Py_None ? 1 : bad_extra(m, keyword, "bool", value);
  }
  if (PyUnicode_CompareWithASCIIString(keyword, "pin_memory") == 0)
    return PyBool_Check(value) || value == Py_None ? 1 : bad_extra(m, keyword, "bool", value);
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

static int misfit(match *m, const wk__parameter *p, PyObject *o, int position) {
  m->problem = p->name;
  m->offender = o;
  m->position = position;
  return 0;
}

/* One list parameter may be spread over the positions: view(2, 3), zeros(2, 3). */
static int match_spread(wk__state *state, match *m, const wk__parameter *p, PyObject *const *args, Py_ssize_t n,
                        wk_value *v) {
  if (n > WK_MAX_DIMS) return 0;
  wk_int *list = list_room(m, (size_t)n * sizeof *list);
  if (!list) return -1;
  for (Py_ssize_t k = 0; k < n; k++) {
    if (!is_size(state, args[k])) return k ? bad_int(m, p, args[k], k) : 0;
    if (wk__int_from_python(state, args[k], &list[k]) < 0) return -1;
  }
  if (check_sizes(m, p, list, (int)n) < 0) return -1;
  *v = (wk_value){.tag = WK_VALUE_INTS, .count = (uint32_t)n, .integers = list};
  return 1;
}

static int match_positional(wk__state *state, match *m, const wk_op *op, bool is_method, PyObject *const *args,
                            Py_ssize_t n) {
  const wk__schema *s = &op->schema;
  for (int i = 0; i < n; i++) {
    if (i >= s->positional_count) {
      m->problem = "";
      return 0;
    }
    const wk__parameter *p = &s->parameters[i];
    if (p->type == WK__TYPE_INTS && i == (is_method ? 1 : 0) && s->positional_count == i + 1 &&
        is_size(state, args[i])) {
      int fits = match_spread(state, m, p, args + i, n - i, &m->values[i]);
      return fits ? fits : misfit(m, p, args[i], i);
    }
    int fits = match_argument(state, m, p, args[i], &m->values[i]);
    if (fits < 0) return -1;
    if (!fits) return misfit(m, p, args[i], i);
  }
  return 1;
}

static int match_keyword(wk__state *state, match *m, const wk_op *op, PyObject *keyword, PyObject *value,
                         uint32_t *given) {
  const wk__schema *s = &op->schema;
  for (int i = 0; i < s->parameter_count; i++) {
    if (!names_parameter(keyword, s->parameters[i].name)) continue;
    if (*given >> i & 1) return misfit(m, &s->parameters[i], value, -1); /* arange(0, end=3) means another overload */
    *given |= 1u << i;
    int fits = match_argument(state, m, &s->parameters[i], value, &m->values[i]);
    return fits ? fits : misfit(m, &s->parameters[i], value, -1);
  }
  if (is_out(keyword) && m->in_place && value == Py_None) return 1; /* as NumPy calls methods */
  bool out = is_out(keyword) && op->out && !m->in_place;
  int taken = out ? match_out(state, m, value) : take_extra(state, m, keyword, value);
  if (taken) return taken;
  m->problem = NULL;
  m->offender = keyword;
  return 0;
}

/* Bits of the first `n` arguments, which may be all that there are bits for. */
static uint32_t first_arguments(int64_t n) { return (uint32_t)((UINT64_C(1) << n) - 1); }

static int match_overload(operator_object *o, match *m, const wk_op *op, PyObject *const *args, Py_ssize_t n,
                          PyObject *keywords) {
  const wk__schema *s = &op->schema;
  memset(m->values, 0, s->parameter_count * sizeof *m->values);
  release_lists(m);
  m->op = op;
  m->in_place = o->in_place || o->is_method;
  m->out = m->requires_grad = m->offender = NULL;
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

/* ==================================================== errors ==================================================== */

static const char *word_for(const wk__parameter *p) { return wk__types[p->type].shown; }

static const char *shown_name(const wk__parameter *p) { return strcmp(p->name, "self") == 0 ? "input" : p->name; }

/* Parameters that PyTorch's signature has and the schema has not: out=, and what creation takes besides. */
static int extra_parameters(const operator_object *o, const wk_op *op) {
  bool has_out = op->out && !o->is_method && !o->in_place;
  return has_out + (creates(op) ? 4 : 0);
}

static bool has_tag(const operator_object *o, uint32_t tag) { return o->overloads[0]->tags & tag; }

static int required_count(const operator_object *o, const wk_op *op) {
  int count = 0;
  for (int i = o->is_method; i < op->schema.parameter_count; i++) count += !op->schema.parameters[i].has_default;
  return count;
}

static void raise_extra(const operator_object *o, const wk_op *op, Py_ssize_t given) {
  int max = op->schema.positional_count - o->is_method, least = required_count(o, op);
  if (o->is_method && op->schema.parameter_count == 1)
    PyErr_Format(PyExc_TypeError, "TensorBase.%s() takes no arguments (%zd given)", o->name, given);
  else if (least < max)
    PyErr_Format(PyExc_TypeError, "%s() takes from %d to %d positional arguments but %zd were given", o->name, least,
                 max, given);
  else
    PyErr_Format(PyExc_TypeError, "%s() takes %d positional argument%s but %zd %s given", o->name, max,
                 max == 1 ? "" : "s", given, given == 1 ? "was" : "were");
}

static void raise_missing(const operator_object *o, const wk_op *op, int first) {
  wk__string names = {0};
  int count = 0;
  for (int i = first; i < op->schema.parameter_count; i++) {
    const wk__parameter *p = &op->schema.parameters[i];
    if (p->has_default) continue;
    wk__string_printf(&names, "%s\"%s\"", count++ ? ", " : "", shown_name(p));
  }
  PyErr_Format(PyExc_TypeError, "%s() missing %d required positional argument%s: %s", o->name, count,
               count == 1 ? "s" : "", names.text ? names.text : "");
  wk__string_release(&names);
}

/* Of a sequence where ints are wanted, what keeps it from being ints: match_ints looks at the first item. */
static PyObject *bad_first_item(const wk__state *state, const wk__parameter *p,
                                PyObject *offender) {  // -> borrowed, NULL: none
  bool sequence = PyTuple_Check(offender) || PyList_Check(offender);
  if (p->type != WK__TYPE_INTS || !sequence || PySequence_Fast_GET_SIZE(offender) == 0) return NULL;
  PyObject *item = PySequence_Fast_GET_ITEM(offender, 0);
  return is_size(state, item) ? NULL : item;
}

static void raise_misfit(const operator_object *o, const wk__parameter *p, PyObject *offender, int position) {
  PyObject *item = bad_first_item(o->state, p, offender);
  char place[32] = "";
  if (position >= 0) snprintf(place, sizeof place, " (position %d)", position + !o->is_method);
  if (item)
    PyErr_Format(PyExc_TypeError, "%s(): argument '%s'%s must be %s, but found element of type %s at pos 0", o->name,
                 shown_name(p), place, word_for(p), Py_TYPE(item)->tp_name);
  else
    PyErr_Format(PyExc_TypeError, "%s(): argument '%s'%s must be %s, not %s", o->name, shown_name(p), place,
                 word_for(p), Py_TYPE(offender)->tp_name);
}

static PyObject *keyword_value(const wk__parameter *p, PyObject *const *values, PyObject *keywords) {  // -> borrowed
  for (Py_ssize_t k = 0; keywords && k < PyTuple_GET_SIZE(keywords); k++)
    if (names_parameter(PyTuple_GET_ITEM(keywords, k), p->name)) return values[k];
  return NULL;
}

/* What is wrong with out=, if it is given and taken at all. */
static bool raise_out(const operator_object *o, const wk_op *op, PyObject *value) {
  match m = {.op = op};
  if (o->in_place || o->is_method || !op->out) return false;
  if (match_out(o->state, &m, value) == 0)
    PyErr_Format(PyExc_TypeError, "%s(): argument 'out' must be %s, not %s", o->name,
                 op->schema.result_count == 1 ? "Tensor" : "tuple of Tensors", Py_TYPE(value)->tp_name);
  return true;
}

/* A keyword that no parameter has, or one whose parameter was given by position. */
static void raise_keyword(const operator_object *o, const wk_op *op, PyObject *const *values, Py_ssize_t n,
                          PyObject *keywords) {
  match unused = {.op = op};
  for (Py_ssize_t k = 0; keywords && k < PyTuple_GET_SIZE(keywords); k++) {
    PyObject *keyword = PyTuple_GET_ITEM(keywords, k);
    int i = 0;
    while (i < op->schema.parameter_count && !names_parameter(keyword, op->schema.parameters[i].name)) i++;
    if (is_out(keyword) && raise_out(o, op, values[k])) {
      if (PyErr_Occurred()) return;
      continue;
    }
    if (i == op->schema.parameter_count && !take_extra(o->state, &unused, keyword, Py_None)) {
      PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", o->name, keyword);
      return;
    }
    if (i < n && i < op->schema.parameter_count) {
      PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'", o->name, keyword);
      return;
    }
  }
}

/* Why these arguments do not fit this one overload, parameter after parameter as PyTorch looks at them. */
static void raise_parse(const operator_object *o, const wk_op *op, match *m, PyObject *const *args, Py_ssize_t n,
                        PyObject *keywords) {
  const wk__schema *s = &op->schema;
  bool spreads = s->positional_count == o->is_method + 1 && s->parameters[o->is_method].type == WK__TYPE_INTS &&
                 n > o->is_method && is_size(o->state, args[o->is_method]);
  if (n > s->positional_count && !spreads) {
    raise_extra(o, op, n - o->is_method);
    return;
  }
  if (o->is_method && s->parameter_count == 1 && keywords) {
    PyErr_Format(PyExc_TypeError, "TensorBase.%s() takes no keyword arguments", o->name);
    return;
  }
  release_lists(m);
  m->op = op;
  for (int i = 0; i < s->parameter_count; i++) {
    const wk__parameter *p = &s->parameters[i];
    bool by_position = i < n && !p->keyword_only;
    PyObject *value = by_position ? args[i] : keyword_value(p, args + n, keywords);
    if (!value && !p->has_default) {
      raise_missing(o, op, i);
      return;
    }
    if (!value || (spreads && i == o->is_method && by_position && is_size(o->state, value))) continue;
    if (p->type == WK__TYPE_TENSOR && op->tags & WK__TAG_TAKES_NUMBERS && is_number(value)) continue;
    int fits = match_argument(o->state, m, p, value, &m->values[i]);
    if (fits == 0) raise_misfit(o, p, value, by_position ? i : -1);
    if (fits != 1) return;
  }
  raise_keyword(o, op, args + n, n, keywords);
}

static bool is_repeated(const wk_value *list) {
  for (uint32_t k = 1; k < list->count; k++) {
    wk_value item = wk__value_item(list, k), first = wk__value_item(list, 0);
    if (!wk__value_same(&item, &first)) return false;
  }
  return list->count > 0;
}

/* A list of as many alike items is shown as one of them, which is how it is written. */
static void print_default(wk__string *s, const wk_value *v) {
  wk_value item = wk__value_has_items(v) && is_repeated(v) ? wk__value_item(v, 0) : (wk_value){0};
  if (item.tag)
    print_default(s, &item);
  else if (v->tag == WK_VALUE_STRING)
    wk__string_printf(s, " = \"%s\"", v->string);
  else if (v->tag == WK_VALUE_INT)
    wk__string_printf(s, " = %lld", (long long)v->integer.bits);
  else if (v->tag == WK_VALUE_BOOL)
    wk__string_append(s, v->boolean ? " = True" : " = False");
  else if (v->tag == WK_VALUE_NONE)
    wk__string_append(s, " = None");
}

static void print_signature(wk__string *s, const operator_object *o, const wk_op *op) {
  wk__string_append(s, "(");
  bool first = true, keyword = false;
  for (int i = o->is_method; i < op->schema.parameter_count; i++) {
    const wk__parameter *p = &op->schema.parameters[i];
    if (!first) wk__string_append(s, ", ");
    if (p->keyword_only && !keyword) wk__string_append(s, "*, "), keyword = true;
    first = false;
    wk__string_printf(s, "%s %s", word_for(p), shown_name(p));
    if (p->has_default) print_default(s, &p->default_value);
  }
  if (op->out && !o->is_method && !o->in_place)
    wk__string_append(s, keyword ? ", Tensor out = None" : ", *, Tensor out = None");
  wk__string_append(s, ")");
}

/* A type as PyTorch's list of what was given has it: types of ours without the module, but for the small ones. */
const char *wk__given_type(const wk__state *state, PyObject *value) {
  PyTypeObject *type = Py_TYPE(value), *small[] = {state->dtype_type, state->device_type, state->size_type,
                                                   state->memory_format_type, state->layout_type};
  for (size_t i = 0; i < WK_COUNT(small); i++)
    if (type == small[i]) return type->tp_name;
  return value == Py_None ? "NoneType" : _PyType_Name(type);
}

static void raise_no_overload(const operator_object *o, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {
  wk__string s = {0};
  wk__string_printf(&s, "%s() received an invalid combination of arguments - got (", o->name);
  Py_ssize_t all = n + (keywords ? PyTuple_GET_SIZE(keywords) : 0);
  for (Py_ssize_t i = o->is_method; i < all; i++) {
    if (i > o->is_method) wk__string_append(&s, ", ");
    if (i >= n) wk__string_printf(&s, "%s=", PyUnicode_AsUTF8(PyTuple_GET_ITEM(keywords, i - n)));
    wk__string_append(&s, wk__given_type(o->state, args[i]));
  }
  if (n == o->is_method && all > n) wk__string_append(&s, ", "); /* as PyTorch has it with keywords alone */
  int visible = 0;
  for (int k = 0; k < o->overload_count; k++) visible += !(o->overloads[k]->tags & WK__TAG_UNSHOWN);
  visible += has_tag(o, WK__TAG_MORE_OVERLOADS);
  wk__string_append(&s, visible == 1 ? "), but expected " : "), but expected one of:\n");
  for (int k = 0; k < o->overload_count; k++) {
    if (o->overloads[k]->tags & WK__TAG_UNSHOWN) continue;
    if (visible > 1) wk__string_append(&s, " * ");
    print_signature(&s, o, o->overloads[k]);
    if (visible > 1) wk__string_append(&s, "\n");
  }
  PyErr_SetString(PyExc_TypeError, s.text ? s.text : o->name);
  wk__string_release(&s);
}

/* No overload fits. The error is that of the one overload whose number of arguments is right, or tells them all. */
static void raise_mismatch(const operator_object *o, match *m, PyObject *const *args, Py_ssize_t n,
                           PyObject *keywords) {
  Py_ssize_t given = n - o->is_method + (keywords ? PyTuple_GET_SIZE(keywords) : 0);
  const wk_op *plausible = NULL, *only = NULL;
  int plausible_count = 0, visible = 0;
  for (int k = 0; k < o->overload_count; k++) {
    const wk_op *op = o->overloads[k];
    if (op->tags & WK__TAG_UNSHOWN) continue;
    only = op;
    visible++;
    int most = op->schema.parameter_count - o->is_method + extra_parameters(o, op);
    if (given >= required_count(o, op) && given <= most) plausible = op, plausible_count++;
  }
  if (visible == 1 && !has_tag(o, WK__TAG_OLDER_FORM)) plausible = only, plausible_count = 1;
  if (plausible_count == 1 && !has_tag(o, WK__TAG_MORE_OVERLOADS)) raise_parse(o, plausible, m, args, n, keywords);
  if (!PyErr_Occurred()) raise_no_overload(o, args, n, keywords);
}

/* ==================================================== calling =================================================== */

/* Of arguments that match_out has seen. */
static bool destinations_of(const operator_object *o, const wk_op *op, const match *m, wk_tensor **destinations) {
  if (o->in_place) {
    destinations[0] = m->values[0].tensor;
    return true;
  }
  if (!m->out) return false;
  bool tuple = op->schema.result_count > 1;
  for (int r = 0; r < op->schema.result_count; r++)
    destinations[r] = wk__tensor_of(tuple ? PySequence_Fast_GET_ITEM(m->out, r) : m->out);
  return true;
}

static PyObject *set_requires_grad(wk__state *state, PyObject *result, PyObject *flag) {  // -> new, takes result
  if (!result || !flag || !wk__is_tensor(state, result)) return result;
  bool differentiable = wk_dtype_is_floating((wk_dtype)wk__tensor_of(result)->dtype) ||
                        wk_dtype_is_complex((wk_dtype)wk__tensor_of(result)->dtype);
  if (flag == Py_True && !differentiable) {
    Py_DECREF(result);
    return PyErr_Format(PyExc_RuntimeError, "Only Tensors of floating point and complex dtype can require gradients");
  }
  int truth = PyObject_IsTrue(flag);
  if (truth < 0 || (truth && wk_set_requires_grad(wk__tensor_of(result), true) != WK_OK)) {
    Py_DECREF(result);
    return truth < 0 ? NULL : wk__raise(state);
  }
  return result;
}

/* Whether nothing but a launch looks at an operator's numbers. */
static bool takes_numbers_at_launch(const wk_op *op) {
  if (op->tags & WK__TAG_MUTATES) return op->routine || op->has_kernel;
  return op->tags & WK__TAG_LAUNCH_NUMBERS || (op->lower && op->tags & WK__TAG_POINTWISE);
}

static bool can_be_input(const wk_op *op, const wk_value *number) {
  bool fixed = op->tags & WK__TAG_FIXED_NUMBERS;
  return !fixed || wk__dynamo_number_avoids(number, wk__fixed_numbers, WK__FIXED_NUMBER_COUNT);
}

/* Numbers that are inputs of a graph being captured can only go where nothing but a launch looks at them. */
void wk__settle_numbers(const wk_op *op, wk_value *values) {
  bool launch_only = takes_numbers_at_launch(op);
  for (int i = 0; i < op->schema.parameter_count; i++)
    if (values[i].tag == WK_VALUE_TENSOR && wk__thread.mode.grad_enabled && values[i].tensor->keys & WK__KEY_AUTOGRAD)
      launch_only &= !op->vjp || op->tags & WK__TAG_PASSES_NUMBERS; /* else the derivative would compute with it */
  for (int i = 0; i < op->schema.parameter_count; i++) {
    if (values[i].tag != WK_VALUE_INPUT || (launch_only && can_be_input(op, &values[i]))) continue;
    wk__dynamo_specialize(&values[i]);
  }
}

static PyObject *call_matched(operator_object *o, const wk_op *op, match *m) {  // -> new
  if (WK_UNLIKELY(wk__thread.mode.keys_on & WK__KEY_TRACE)) wk__settle_numbers(op, m->values);
  wk_tensor *destinations[WK__MAX_RESULTS] = {NULL};
  bool has = destinations_of(o, op, m, destinations);
  if (WK_UNLIKELY(m->out != NULL)) {
    bool warns = !creates(op) || op->tags & WK__TAG_COUNTS_OUT;
    return set_requires_grad(o->state, wk__call_with_out(o->state, op, m->values, destinations, warns),
                             m->requires_grad);
  }
  return set_requires_grad(o->state, wk__call_to_python(o->state, op, m->values, has ? destinations : NULL),
                           m->requires_grad);
}

/* mul(2, x), remainder(5, x): the number becomes a tensor of the dtype that the result has. New; NULL where no number
 * stands for the first tensor, or with an exception. */
static PyObject *first_number_as_tensor(const operator_object *o, PyObject *const *args, Py_ssize_t n) {  // -> new
  const wk_op *op = o->overloads[0];
  wk__state *state = o->state;
  if (!(op->tags & WK__TAG_NUMBER_FIRST) || o->is_method || o->in_place || n < 2 || !is_real(args[0])) return NULL;
  bool beside = wk__is_tensor(state, args[1]);
  if (!beside && !(op->tags & WK__TAG_TAKES_NUMBERS && is_real(args[1]))) return NULL;
  wk_value number;
  if (wk__scalar_from_python(state, args[0], &number) < 0) return NULL;
  return wk__wrap(state, wk__number_as_tensor(state, &number, beside ? wk__tensor_of(args[1]) : NULL));
}

static PyObject *operator_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *keywords);  // -> new

/* copy_(2): the number as a tensor. New; NULL where it is something else, or with an exception. */
static PyObject *copied_number(const operator_object *o, PyObject *const *args, Py_ssize_t n) {  // -> new
  wk_value number;
  if (!(o->overloads[0]->tags & WK__TAG_NUMBER_COPIED) || n < 2 || !is_real(args[1])) return NULL;
  if (wk__scalar_from_python(o->state, args[1], &number) < 0) return NULL;
  return wk__wrap(o->state, wk__number_as_tensor(o->state, &number, NULL));
}

/* The call with a number among its first arguments as a tensor. False: that is not what it lacks. */
static bool call_with_tensor(operator_object *o, PyObject *const *args, Py_ssize_t n, PyObject *keywords,
                             PyObject **out_result) {
  PyObject *replaced[WK__MAX_ARGS];
  Py_ssize_t all = n + (keywords ? PyTuple_GET_SIZE(keywords) : 0);
  if (all > WK__MAX_ARGS) return false;
  PyObject *first = first_number_as_tensor(o, args, n), *second = first ? NULL : copied_number(o, args, n);
  if (!first && !second) return false;
  memcpy(replaced, args, (size_t)all * sizeof *args);
  replaced[first ? 0 : 1] = first ? first : second;
  *out_result = operator_call((PyObject *)o, replaced, (size_t)n, keywords);
  Py_XDECREF(first);
  Py_XDECREF(second);
  return true;
}

static PyObject *operator_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *keywords) {  // -> new
  operator_object *o = (operator_object *)self;
  Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  match m;
  m.blocks = NULL;
  m.used = 0;
  PyObject *result = NULL;
  if (WK_UNLIKELY(o->state->overrides) && wk__overridden(o->state, self, args, n, keywords, &result)) return result;
  int fits = 0;
  for (int k = 0; k < o->overload_count && fits == 0; k++) {
    fits = match_overload(o, &m, o->overloads[k], args, n, keywords);
    if (fits == 1) result = call_matched(o, o->overloads[k], &m);
  }
  if (fits == 0 && call_with_tensor(o, args, n, keywords, &result)) fits = 1;
  if (fits == 0 && PyErr_Occurred()) fits = -1;
  /* An object that is no tensor may still say what the call means. */
  if (fits == 0 && wk__overridden(o->state, self, args, n, keywords, &result)) fits = 1;
  if (fits == 0) raise_mismatch(o, &m, args, n, keywords);
  release_lists(&m);
  return result;
}

/* ==================================================== the type ================================================== */

static PyObject *operator_repr(PyObject *self) {  // -> new
  const operator_object *o = (operator_object *)self;
  return PyUnicode_FromFormat(
      o->is_method ? "<method '%s' of 'torch._C.TensorBase' objects>" : "<built-in method %s of type object>", o->name);
}
static PyObject *operator_get(PyObject *self, PyObject *instance, PyObject *type) {  // -> new
  (void)type;
  if (!instance || instance == Py_None || !((operator_object *)self)->is_method) return Py_NewRef(self);
  return PyMethod_New(self, instance);
}
static void operator_dealloc(PyObject *self) {
  PyMem_Free(((operator_object *)self)->overloads);
  PyTypeObject *type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}
static PyObject *operator_name(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyUnicode_FromString(((operator_object *)self)->name);
}
static PyObject *operator_doc(PyObject *self, void *unused) {  // -> new
  (void)unused;
  wk__string s = {0};
  const operator_object *o = (operator_object *)self;
  for (int k = 0; k < o->overload_count; k++) wk__string_printf(&s, "%s\n", o->overloads[k]->schema_text);
  PyObject *text = PyUnicode_FromString(s.text ? s.text : "");
  wk__string_release(&s);
  return text;
}
static PyObject *operator_reduce(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return PyUnicode_FromString(((operator_object *)self)->name); /* a name in the module: pickled as a global */
}

static PyMemberDef operator_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(operator_object, vectorcall), READONLY, NULL}, {0}};
static PyGetSetDef operator_getset[] = {{"__name__", operator_name, NULL, NULL, NULL},
                                        {"__qualname__", operator_name, NULL, NULL, NULL},
                                        {"__doc__", operator_doc, NULL, NULL, NULL},
                                        {0}};
static PyMethodDef operator_methods[] = {{"__reduce__", operator_reduce, METH_NOARGS, NULL}, {0}};
static PyType_Slot operator_slots[] = {{Py_tp_dealloc, operator_dealloc}, {Py_tp_repr, operator_repr},
                                       {Py_tp_descr_get, operator_get},   {Py_tp_call, PyVectorcall_Call},
                                       {Py_tp_members, operator_members}, {Py_tp_getset, operator_getset},
                                       {Py_tp_methods, operator_methods}, {0, NULL}};
static PyType_Spec operator_spec = {
    .name = "wick._C.Operator",
    .basicsize = sizeof(operator_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = operator_slots,
};

/* =================================================== the names ================================================== */

static operator_object *new_operator(wk__state *state, const char *name, bool in_place, bool is_method) {  // -> new
  operator_object *o = PyObject_New(operator_object, state->operator_type);
  if (!o) return NULL;
  o->vectorcall = operator_call;
  o->state = state;
  snprintf(o->name, sizeof o->name, "%s", name);
  o->overloads = NULL;
  o->overload_count = 0;
  o->in_place = in_place;
  o->is_method = is_method;
  o->hidden = false;
  return o;
}

static int append_overload(operator_object *o, const wk_op *op) {
  const wk_op **grown = PyMem_Realloc(o->overloads, (o->overload_count + 1u) * sizeof *grown);
  if (!grown) {
    PyErr_NoMemory();
    return -1;
  }
  o->overloads = grown;
  o->overloads[o->overload_count++] = op;
  return 0;
}

PyObject *wk__operator_object(wk__state *state, const wk_op *op, bool in_place) {  // -> new
  char name[64];
  snprintf(name, sizeof name, "%s%s", op->base_name, in_place ? "_" : "");
  operator_object *o = new_operator(state, name, in_place, false);
  if (o && append_overload(o, op) < 0) Py_CLEAR(o);
  return (PyObject *)o;
}

const wk_op *wk__operator_first(PyObject *operator, bool * out_in_place, bool *out_is_method) {
  const operator_object *o = (operator_object *)operator;
  *out_in_place = o->in_place;
  *out_is_method = o->is_method;
  return o->overloads[0];
}

/* Adds an overload to the object of that name in `dict`, making it when it is not there. */
static int add_overload(wk__state *state, PyObject *dict, const char *name, const wk_op *op, bool in_place,
                        bool is_method) {
  PyObject *known = PyDict_GetItemString(dict, name);
  operator_object *o = known && Py_IS_TYPE(known, state->operator_type) ? (operator_object *)known : NULL;
  if (known && !o) return 0; /* a method written by hand stands before the table */
  bool fresh = !o;
  if (fresh && !(o = new_operator(state, name, in_place, is_method))) return -1;
  int status = append_overload(o, op);
  if (status == 0 && fresh) status = PyDict_SetItemString(dict, name, (PyObject *)o);
  if (fresh) Py_DECREF(o);
  return status;
}

static void hide(PyObject *functions, const char *name) {
  ((operator_object *)PyDict_GetItemString(functions, name))->hidden = true;
}

bool wk__is_hidden_operator(const wk__state *state, PyObject *o) {
  return Py_IS_TYPE(o, state->operator_type) && ((operator_object *)o)->hidden;
}

static int add_in_place(wk__state *state, PyObject *functions, PyObject *methods, const wk_op *op) {
  char name[64];
  snprintf(name, sizeof name, "%s_", op->base_name);
  if (add_overload(state, functions, name, op, true, false) < 0) return -1;
  if (!(op->forms & WK__FORM_INPLACE_FUNCTION)) hide(functions, name);
  return op->forms & WK__FORM_INPLACE ? add_overload(state, methods, name, op, true, true) : 0;
}

static int add_op(wk__state *state, PyObject *functions, PyObject *methods, const wk_op *op) {
  const char *name = op->base_name;
  if (op->forms & (WK__FORM_FUNCTION | WK__FORM_HIDDEN | WK__FORM_INTERNAL)) {
    if (add_overload(state, functions, name, op, false, false) < 0) return -1;
    if (!(op->forms & WK__FORM_FUNCTION)) hide(functions, name);
  }
  if (op->forms & WK__FORM_METHOD && add_overload(state, methods, name, op, false, true) < 0) return -1;
  return op->forms & WK__FORM_ANY_INPLACE ? add_in_place(state, functions, methods, op) : 0;
}

/* ---- the table itself ---- */

/* One overload by its qualified name, also an internal one. */
static PyObject *operator_named(PyObject *module, PyObject *name) {  // -> new
  const char *text = PyUnicode_AsUTF8(name);
  const wk_op *op = text ? wk_op_find(text) : NULL;
  if (!op) return text ? PyErr_Format(PyExc_KeyError, "no operator %s", text) : NULL;
  return wk__operator_object(wk__state_of_module(module), op, false);
}

static PyMethodDef module_functions[] = {{"_operator", operator_named, METH_O, "One overload by its qualified name."},
                                         {0}};

int wk__add_operators(PyObject *module, wk__state *state) {
  if (PyModule_AddFunctions(module, module_functions) < 0) return -1;
  state->operator_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &operator_spec, NULL);
  if (!state->operator_type) return -1;
  PyObject *functions = PyModule_GetDict(module), *methods = state->tensor_type->tp_dict;
  for (int i = 0; i < wk_op_count(); i++)
    if (add_op(state, functions, methods, wk_op_at(i)) < 0) return -1;
  PyType_Modified(state->tensor_type);
  return 0;
}
