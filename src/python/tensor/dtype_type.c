/* wick.dtype and what programs ask about dtypes: finfo and iinfo, promotion, the default.
 * Invariant: one object a dtype and interpreter, made with the module and kept in its state, so that `is` compares
 * dtypes; pickles hold the name, so that loading and copying give that object again. Tests:
 * tests/python/test_small_types.py. */
#include <float.h>

#include "python/data/interop.h"

/* ==================================================== dtype ===================================================== */

static wk_dtype dtype_of(PyObject *self) { return (wk_dtype)((wk__python_dtype *)self)->dtype; }

static PyObject *dtype_repr(PyObject *self) {  // -> new
  return PyUnicode_FromFormat("%s.%s", wk__print_module_name, wk_dtype_name(dtype_of(self)));
}
static PyObject *dtype_reduce(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return PyUnicode_FromString(wk_dtype_name(dtype_of(self)));
}
static PyObject *dtype_is_floating_point(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyBool_FromLong(wk_dtype_is_floating(dtype_of(self)));
}
static PyObject *dtype_is_complex(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyBool_FromLong(wk_dtype_is_complex(dtype_of(self)));
}
static PyObject *dtype_is_signed(PyObject *self, void *unused) {  // -> new
  (void)unused;
  wk_dtype dtype = dtype_of(self);
  return PyBool_FromLong(dtype != WK_BOOL && dtype != WK_FLOAT8_E8M0 && !wk__dtype_is_unsigned(dtype));
}
static PyObject *dtype_itemsize(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyLong_FromSize_t(wk_dtype_size(dtype_of(self)));
}

static wk_dtype complex_of(wk_dtype dtype) {
  switch (dtype) {
    case WK_BFLOAT16:
    case WK_FLOAT32:
    case WK_COMPLEX64:
      return WK_COMPLEX64;
    case WK_FLOAT64:
    case WK_COMPLEX128:
      return WK_COMPLEX128;
    default:
      return WK_DTYPE_NONE;
  }
}
static wk_dtype real_of(wk_dtype dtype) {
  return dtype == WK_COMPLEX64 ? WK_FLOAT32 : dtype == WK_COMPLEX128 ? WK_FLOAT64 : dtype;
}

static PyObject *dtype_to_complex(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  wk_dtype result = complex_of(dtype_of(self));
  if (result != WK_DTYPE_NONE) return wk__dtype_object(wk__state_of_type(Py_TYPE(self)), result);
  return PyErr_Format(PyExc_RuntimeError, "Unknown Complex ScalarType for %s", wk__dtype_legacy(dtype_of(self)));
}
static PyObject *dtype_to_real(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return wk__dtype_object(wk__state_of_type(Py_TYPE(self)), real_of(dtype_of(self)));
}

static void plain_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

static PyMethodDef dtype_methods[] = {
    {"__reduce__", dtype_reduce, METH_NOARGS, NULL},
    {"to_complex", dtype_to_complex, METH_NOARGS, "The complex dtype whose parts have this dtype."},
    {"to_real", dtype_to_real, METH_NOARGS, "The dtype of a complex dtype's parts; any other dtype itself."},
    {0}};
static PyGetSetDef dtype_getset[] = {{"is_floating_point", dtype_is_floating_point, NULL, NULL, NULL},
                                     {"is_complex", dtype_is_complex, NULL, NULL, NULL},
                                     {"is_signed", dtype_is_signed, NULL, NULL, NULL},
                                     {"itemsize", dtype_itemsize, NULL, "Bytes an element.", NULL},
                                     {0}};
static PyType_Slot dtype_slots[] = {{Py_tp_doc, "The type of a tensor's elements: wick.float32, wick.int64, ..."},
                                    {Py_tp_dealloc, plain_dealloc},
                                    {Py_tp_repr, dtype_repr},
                                    {Py_tp_methods, dtype_methods},
                                    {Py_tp_getset, dtype_getset},
                                    {0, NULL}};
static PyType_Spec dtype_spec = {.name = "wick.dtype",
                                 .basicsize = sizeof(wk__python_dtype),
                                 .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 .slots = dtype_slots};

static const struct {
  const char *name;
  uint8_t dtype;
} aliases[] = {{"float", WK_FLOAT32}, {"double", WK_FLOAT64}, {"half", WK_FLOAT16},     {"short", WK_INT16},
               {"int", WK_INT32},     {"long", WK_INT64},     {"cfloat", WK_COMPLEX64}, {"cdouble", WK_COMPLEX128}};

static int add_singletons(PyObject *module, wk__state *state) {
  for (int d = 0; d < WK_DTYPE_COUNT; d++) {
    wk__python_dtype *o = (wk__python_dtype *)state->dtype_type->tp_alloc(state->dtype_type, 0);
    if (!o) return -1;
    o->dtype = (uint8_t)d;
    state->dtypes[d] = (PyObject *)o;
    if (PyModule_AddObjectRef(module, wk_dtype_name((wk_dtype)d), state->dtypes[d]) < 0) return -1;
  }
  for (size_t i = 0; i < WK_COUNT(aliases); i++)
    if (PyModule_AddObjectRef(module, aliases[i].name, state->dtypes[aliases[i].dtype]) < 0) return -1;
  return 0;
}

PyObject *wk__dtype_object(wk__state *state, wk_dtype dtype) { return Py_NewRef(state->dtypes[dtype]); }  // -> new

int wk__dtype_from_python(wk__state *state, PyObject *o, wk_dtype *out) {
  if (Py_IS_TYPE(o, state->dtype_type))
    *out = dtype_of(o);
  else if (o == (PyObject *)&PyFloat_Type)
    *out = WK_FLOAT64;
  else if (o == (PyObject *)&PyLong_Type)
    *out = WK_INT64;
  else if (o == (PyObject *)&PyBool_Type)
    *out = WK_BOOL;
  else if (o == (PyObject *)&PyComplex_Type)
    *out = WK_COMPLEX128;
  else {
    PyErr_Format(PyExc_TypeError, "argument 'dtype' must be torch.dtype, not %s", Py_TYPE(o)->tp_name);
    return -1;
  }
  return 0;
}

/* ================================================ finfo and iinfo =============================================== */

typedef struct limits {
  double eps, max, smallest_normal, resolution;
} limits;

static const limits float_limits[WK_DTYPE_COUNT] = {
    [WK_FLOAT8_E4M3] = {0.125, 448, 0x1p-6, 1},
    [WK_FLOAT8_E5M2] = {0.25, 57344, 0x1p-14, 1},
    [WK_FLOAT8_E4M3_FNUZ] = {0.125, 240, 0x1p-7, 1},
    [WK_FLOAT8_E5M2_FNUZ] = {0.125, 57344, 0x1p-15, 1},
    [WK_FLOAT8_E8M0] = {1, 0x1p127, 0x1p-127, 1},
    [WK_FLOAT16] = {0x1p-10, 65504, 0x1p-14, 1e-3},
    [WK_BFLOAT16] = {0x1p-7, 0x1.fep127, 0x1p-126, 1e-2},
    [WK_FLOAT32] = {FLT_EPSILON, FLT_MAX, FLT_MIN, 1e-6},
    [WK_FLOAT64] = {DBL_EPSILON, DBL_MAX, DBL_MIN, 1e-15},
};

/* finfo and iinfo objects are laid out like a dtype: what they say follows from it. */
static PyObject *info_new(PyTypeObject *type, wk_dtype dtype) {  // -> new
  PyObject *self = type->tp_alloc(type, 0);
  if (self) ((wk__python_dtype *)self)->dtype = (uint8_t)dtype;
  return self;
}

/* The dtype argument of finfo() and iinfo(), after *out as the default. */
static int info_argument(PyTypeObject *type, const char *function, PyObject *args, PyObject *keywords, wk_dtype *out) {
  static char *names[] = {"type", NULL};
  PyObject *given = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O", names, &given)) return -1;
  wk__state *state = wk__state_of_type(type);
  if (!state) return -1;
  if (given && !Py_IS_TYPE(given, state->dtype_type)) {
    PyErr_Format(PyExc_TypeError, "%s(): argument 'type' (position 1) must be torch.dtype, not %s", function,
                 Py_TYPE(given)->tp_name);
    return -1;
  }
  if (given) *out = dtype_of(given);
  return 0;
}

static PyObject *finfo_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {  // -> new
  wk_dtype dtype = wk__default_dtype();
  if (info_argument(type, "finfo", args, keywords, &dtype) < 0) return NULL;
  dtype = real_of(dtype);
  if (wk_dtype_is_floating(dtype)) return info_new(type, dtype);
  return PyErr_Format(PyExc_TypeError,
                      "torch.finfo() requires a floating point input type. Use torch.iinfo to handle "
                      "'torch.finfo'");
}

static PyObject *iinfo_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {  // -> new
  wk_dtype dtype = WK_DTYPE_NONE;
  if (info_argument(type, "iinfo", args, keywords, &dtype) < 0) return NULL;
  if (wk_dtype_is_integral(dtype, false)) return info_new(type, dtype);
  if (dtype == WK_DTYPE_NONE)
    return PyErr_Format(PyExc_TypeError, "iinfo() missing 1 required positional arguments: \"type\"");
  if (dtype == WK_BOOL) return PyErr_Format(PyExc_TypeError, "torch.bool is not supported by torch.iinfo");
  return PyErr_Format(PyExc_TypeError,
                      "torch.iinfo() requires an integer input type. Use torch.finfo to handle "
                      "'torch.iinfo'");
}

static PyObject *info_bits(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyLong_FromSize_t(8 * wk_dtype_size(dtype_of(self)));
}
static PyObject *info_dtype(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyUnicode_FromString(wk_dtype_name(dtype_of(self)));
}
static PyObject *info_compare(PyObject *a, PyObject *b, int comparison) {  // -> new
  if ((comparison != Py_EQ && comparison != Py_NE) || !Py_IS_TYPE(b, Py_TYPE(a))) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((dtype_of(a) == dtype_of(b)) == (comparison == Py_EQ));
}
static Py_hash_t info_hash(PyObject *self) { return (Py_hash_t)dtype_of(self) + 1; }

/* `field`: the limit's offset. */
static PyObject *finfo_limit(PyObject *self, void *field) {  // -> new
  return PyFloat_FromDouble(*(const double *)((const char *)&float_limits[dtype_of(self)] + (uintptr_t)field));
}
static double least_float(wk_dtype dtype) {
  const limits *l = &float_limits[dtype];
  return dtype == WK_FLOAT8_E8M0 ? l->smallest_normal : -l->max;
}
static PyObject *finfo_min(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyFloat_FromDouble(least_float(dtype_of(self)));
}

static uint64_t integer_max(wk_dtype dtype) {
  int value_bits = (int)(8 * wk_dtype_size(dtype)) - !wk__dtype_is_unsigned(dtype);
  return UINT64_MAX >> (64 - value_bits);
}
static int64_t integer_min(wk_dtype dtype) {
  return wk__dtype_is_unsigned(dtype) ? 0 : -(int64_t)integer_max(dtype) - 1;
}

static PyObject *iinfo_max(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyLong_FromUnsignedLongLong(integer_max(dtype_of(self)));
}
static PyObject *iinfo_min(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyLong_FromLongLong(integer_min(dtype_of(self)));
}

/* ", name=1.17549e-38" */
static void append_number(wk__string *s, const char *name, double value) {
  char *text = PyOS_double_to_string(value, 'g', 6, 0, NULL);
  if (text)
    wk__string_printf(s, "%s%s=%s", s->length && s->text[s->length - 1] != '(' ? ", " : "", name, text);
  else
    s->failed = true;
  PyMem_Free(text);
}

static PyObject *finish_repr(wk__string *s, wk_dtype dtype) {  // -> new
  wk__string_printf(s, ", dtype=%s)", wk_dtype_name(dtype));
  PyObject *text = s->failed ? PyErr_NoMemory() : PyUnicode_FromStringAndSize(s->text, (Py_ssize_t)s->length);
  wk__string_release(s);
  return text;
}

static PyObject *finfo_repr(PyObject *self) {  // -> new
  const limits *l = &float_limits[dtype_of(self)];
  wk__string s = {0};
  wk__string_append(&s, "finfo(");
  append_number(&s, "resolution", l->resolution);
  append_number(&s, "min", least_float(dtype_of(self)));
  append_number(&s, "max", l->max);
  append_number(&s, "eps", l->eps);
  append_number(&s, "smallest_normal", l->smallest_normal);
  append_number(&s, "tiny", l->smallest_normal);
  return finish_repr(&s, dtype_of(self));
}

static PyObject *iinfo_repr(PyObject *self) {  // -> new
  wk__string s = {0};
  wk__string_append(&s, "iinfo(");
  append_number(&s, "min", (double)integer_min(dtype_of(self)));
  append_number(&s, "max", (double)integer_max(dtype_of(self)));
  return finish_repr(&s, dtype_of(self));
}

#define LIMIT(name, field) \
  { name, finfo_limit, NULL, NULL, (void *)offsetof(limits, field) }
static PyGetSetDef finfo_getset[] = {{"bits", info_bits, NULL, NULL, NULL},
                                     {"dtype", info_dtype, NULL, "The dtype's name.", NULL},
                                     {"min", finfo_min, NULL, NULL, NULL},
                                     LIMIT("max", max),
                                     LIMIT("eps", eps),
                                     LIMIT("tiny", smallest_normal),
                                     LIMIT("smallest_normal", smallest_normal),
                                     LIMIT("resolution", resolution),
                                     {0}};
static PyGetSetDef iinfo_getset[] = {{"bits", info_bits, NULL, NULL, NULL},
                                     {"dtype", info_dtype, NULL, "The dtype's name.", NULL},
                                     {"min", iinfo_min, NULL, NULL, NULL},
                                     {"max", iinfo_max, NULL, NULL, NULL},
                                     {0}};

#define INFO_SLOTS(doc, name)                                                                                 \
  {                                                                                                           \
    {Py_tp_doc, doc}, {Py_tp_new, name##_new}, {Py_tp_dealloc, plain_dealloc}, {Py_tp_repr, name##_repr},     \
        {Py_tp_richcompare, info_compare}, {Py_tp_hash, info_hash}, {Py_tp_getset, name##_getset}, {0, NULL}, \
  }
static PyType_Slot finfo_slots[] = INFO_SLOTS("The limits of a floating dtype.", finfo);
static PyType_Slot iinfo_slots[] = INFO_SLOTS("The limits of an integer dtype.", iinfo);
static PyType_Spec finfo_spec = {
    .name = "wick.finfo", .basicsize = sizeof(wk__python_dtype), .flags = Py_TPFLAGS_DEFAULT, .slots = finfo_slots};
static PyType_Spec iinfo_spec = {
    .name = "wick.iinfo", .basicsize = sizeof(wk__python_dtype), .flags = Py_TPFLAGS_DEFAULT, .slots = iinfo_slots};

/* ================================================== functions =================================================== */

static PyObject *get_default_dtype(PyObject *module, PyObject *unused) {  // -> new
  (void)unused;
  return wk__dtype_object(wk__state_of_module(module), wk__default_dtype());
}

static PyObject *set_default_dtype(PyObject *module, PyObject *o) {  // -> new
  if (!Py_IS_TYPE(o, wk__state_of_module(module)->dtype_type))
    return PyErr_Format(PyExc_TypeError,
                        "invalid dtype object: only floating-point types are supported as the default type");
  wk_dtype dtype = dtype_of(o);
  if (!wk_dtype_is_floating(dtype))
    return PyErr_Format(PyExc_TypeError, "only floating-point types are supported as the default type");
  if (wk__dtype_is_float8(dtype))
    return PyErr_Format(PyExc_TypeError, "couldn't find storage object %sStorage", wk__dtype_legacy(dtype));
  wk__default_dtype_set(dtype);
  return Py_NewRef(Py_None);
}

/* The two dtype arguments of promote_types and can_cast. */
static int two_dtypes(const wk__signature *s, PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *keywords,
                      wk_dtype out[2]) {
  PyObject *given[2];
  if (wk__bind(s, args, n, keywords, given) < 0) return -1;
  for (int i = 0; i < 2; i++) {
    if (!Py_IS_TYPE(given[i], wk__state_of_module(module)->dtype_type)) {
      PyErr_Format(PyExc_TypeError, "%s(): argument '%s' (position %d) must be torch.dtype, not %s", s->function,
                   s->names[i], i + 1, Py_TYPE(given[i])->tp_name);
      return -1;
    }
    out[i] = dtype_of(given[i]);
  }
  return 0;
}

static PyObject *promote_types(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  static const wk__signature signature = {"promote_types", 2, 2, {"type1", "type2"}};
  wk_dtype d[2];
  if (two_dtypes(&signature, module, args, n, keywords, d) < 0) return NULL;
  if (wk__check_promotion(d[0], d[1]) != WK_OK) return wk__raise(wk__state_of_module(module));
  return wk__dtype_object(wk__state_of_module(module), wk__promote(d[0], d[1]));
}

static PyObject *can_cast(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  static const wk__signature signature = {"can_cast", 2, 2, {"from_", "to"}};
  wk_dtype d[2];
  if (two_dtypes(&signature, module, args, n, keywords, d) < 0) return NULL;
  return PyBool_FromLong(wk__can_cast(d[0], d[1]));
}

/* What takes part in a promotion, by weight: tensors with dims, tensors without, numbers. WK_DTYPE_NONE: none. */
typedef struct operands {
  wk_dtype dims, zero_dim, number;
} operands;

static void join(wk_dtype *into, wk_dtype dtype) { *into = *into == WK_DTYPE_NONE ? dtype : wk__promote(*into, dtype); }

static int add_operand(wk__state *state, operands *all, PyObject *o) {
  if (wk__is_tensor(state, o)) {
    const wk_tensor *t = wk__tensor_of(o);
    wk_dtype before = t->ndim ? all->dims : all->zero_dim;
    if (before != WK_DTYPE_NONE && wk__check_promotion(before, (wk_dtype)t->dtype) != WK_OK) {
      wk__raise(state);
      return -1;
    }
    join(t->ndim ? &all->dims : &all->zero_dim, (wk_dtype)t->dtype);
  } else if (PyBool_Check(o)) {
    join(&all->number, WK_BOOL);
  } else if (PyLong_Check(o)) {
    join(&all->number, WK_INT64);
  } else if (PyFloat_Check(o)) {
    join(&all->number, wk__default_dtype());
  } else if (PyComplex_Check(o)) {
    join(&all->number, wk__default_dtype() == WK_FLOAT64 ? WK_COMPLEX128 : WK_COMPLEX64);
  } else {
    PyErr_Format(PyExc_TypeError, "result_type(): arguments must be Tensors or Numbers, not %s", Py_TYPE(o)->tp_name);
    return -1;
  }
  return 0;
}

/* What weighs less counts only when its category is higher; a complex number then makes a floating dtype complex. */
static wk_dtype combine(wk_dtype higher, wk_dtype lower) {
  if (higher == WK_DTYPE_NONE) return lower;
  if (lower == WK_DTYPE_NONE || wk__dtype_category(lower) <= wk__dtype_category(higher)) return higher;
  if (wk_dtype_is_floating(higher) && complex_of(higher) != WK_DTYPE_NONE) return complex_of(higher);
  return wk__promote(higher, lower);
}

static PyObject *result_type(PyObject *module, PyObject *const *args, Py_ssize_t n) {  // -> new
  wk__state *state = wk__state_of_module(module);
  if (n != 2) return PyErr_Format(PyExc_TypeError, "result_type() takes 2 positional arguments but %zd were given", n);
  operands all = {WK_DTYPE_NONE, WK_DTYPE_NONE, WK_DTYPE_NONE};
  if (add_operand(state, &all, args[0]) < 0 || add_operand(state, &all, args[1]) < 0) return NULL;
  return wk__dtype_object(state, combine(all.dims, combine(all.zero_dim, all.number)));
}

/* The dtype of a function's only argument, a tensor. */
static int input_dtype(const wk__signature *s, PyObject *module, PyObject *const *args, Py_ssize_t n,
                       PyObject *keywords, wk_dtype *out) {
  PyObject *input;
  if (wk__bind(s, args, n, keywords, &input) < 0) return -1;
  if (!wk__is_tensor(wk__state_of_module(module), input)) {
    PyErr_Format(PyExc_TypeError, "%s(): argument 'input' (position 1) must be Tensor, not %s", s->function,
                 Py_TYPE(input)->tp_name);
    return -1;
  }
  *out = (wk_dtype)wk__tensor_of(input)->dtype;
  return 0;
}

static PyObject *is_floating_point(PyObject *module, PyObject *const *args, Py_ssize_t n,
                                   PyObject *keywords) {  // -> new
  static const wk__signature signature = {"is_floating_point", 1, 1, {"input"}};
  wk_dtype dtype;
  if (input_dtype(&signature, module, args, n, keywords, &dtype) < 0) return NULL;
  return PyBool_FromLong(wk_dtype_is_floating(dtype));
}

static PyObject *is_complex(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  static const wk__signature signature = {"is_complex", 1, 1, {"input"}};
  wk_dtype dtype;
  if (input_dtype(&signature, module, args, n, keywords, &dtype) < 0) return NULL;
  return PyBool_FromLong(wk_dtype_is_complex(dtype));
}

static PyMethodDef functions[] = {
    {"get_default_dtype", get_default_dtype, METH_NOARGS, "The dtype of new floating tensors."},
    {"set_default_dtype", set_default_dtype, METH_O, "set_default_dtype(wick.float64)"},
    {"promote_types", WK__METHOD(promote_types), WK__FAST_CALL, "The smallest dtype that holds both."},
    {"can_cast", WK__METHOD(can_cast), WK__FAST_CALL, "Whether promotion rules allow the conversion."},
    {"result_type", WK__METHOD(result_type), METH_FASTCALL, "The dtype of an operation on two tensors or numbers."},
    {"is_floating_point", WK__METHOD(is_floating_point), WK__FAST_CALL, "Whether the tensor's dtype is floating."},
    {"is_complex", WK__METHOD(is_complex), WK__FAST_CALL, "Whether the tensor's dtype is complex."},
    {0}};

int wk__add_dtypes(PyObject *module, wk__state *state) {
  state->dtype_type = wk__add_type(module, &dtype_spec, NULL, "dtype");
  if (!state->dtype_type || add_singletons(module, state) < 0) return -1;
  PyTypeObject *finfo = wk__add_type(module, &finfo_spec, NULL, "finfo");
  PyTypeObject *iinfo = wk__add_type(module, &iinfo_spec, NULL, "iinfo");
  int status = finfo && iinfo ? PyModule_AddFunctions(module, functions) : -1;
  Py_XDECREF(finfo);
  Py_XDECREF(iinfo);
  return status;
}
