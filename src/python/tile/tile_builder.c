/* wick._C._TileBuilder and _TileValue: the tile IR for wick/tiles/, whose walk over a function's syntax calls
 * a method here for every operation.
 *
 * In: values of the same builder, and Python's numbers. Out: values, of the class that the builder was made with. Rules
 * of dtypes and shapes are the builder's of the core (tile/tile.h); so are the errors. Ownership: a value holds its
 * builder, a builder its kernel until `finish` hands it over. Tests: tests/python/test_tiles.py. */
#include "dynamo/cpython/gil.h"
#include "python/data/interop.h"
#include "python/tile/tiles.h"

typedef struct value {
  PyObject_HEAD wk__tile_building *builder; /* owned */
  wk__tile id;
} value;

/* ---- values ---- */

static PyObject *wrap(wk__tile_building *b, wk__tile id) {  // -> new
  if (b->b.status != WK_OK) return wk__raise(b->state);
  value *v = (value *)b->value_type->tp_alloc(b->value_type, 0);
  if (!v) return NULL;
  v->builder = (wk__tile_building *)Py_NewRef((PyObject *)b);
  v->id = id;
  return (PyObject *)v;
}

static void value_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  Py_XDECREF((PyObject *)((value *)self)->builder);
  type->tp_free(self);
  Py_DECREF(type);
}

static const wk__tile_type *type_of_value(PyObject *self) {
  const value *v = (const value *)self;
  if (!v->builder || !v->builder->kernel) {
    PyErr_SetString(PyExc_RuntimeError, "a value of a kernel that is finished");
    return NULL;
  }
  return &v->builder->kernel->instrs[v->id].type;
}

static PyObject *value_dtype(PyObject *self, void *unused) {  // -> new
  (void)unused;
  const wk__tile_type *t = type_of_value(self);
  return t ? PyUnicode_FromString(wk_dtype_name((wk_dtype)t->dtype)) : NULL;
}
static PyObject *value_is_pointer(PyObject *self, void *unused) {  // -> new
  (void)unused;
  const wk__tile_type *t = type_of_value(self);
  return t ? PyBool_FromLong(t->pointer) : NULL;
}
static PyObject *value_shape(PyObject *self, void *unused) {  // -> new
  (void)unused;
  const wk__tile_type *t = type_of_value(self);
  PyObject *shape = t ? PyTuple_New(t->ndim) : NULL;
  for (int d = 0; shape && d < t->ndim; d++) {
    PyObject *size = PyLong_FromLong(t->shape[d]);
    if (size)
      PyTuple_SET_ITEM(shape, d, size);
    else
      Py_CLEAR(shape);
  }
  return shape;
}
static PyObject *value_builder(PyObject *self, void *unused) {  // -> new
  (void)unused;
  const value *v = (const value *)self;
  return Py_NewRef(v->builder ? (PyObject *)v->builder : Py_None);
}

static PyGetSetDef value_getset[] = {
    {"_dtype", value_dtype, NULL, "The name of its dtype; of pointers: of what they point to.", NULL},
    {"_is_pointer", value_is_pointer, NULL, NULL, NULL},
    {"_shape", value_shape, NULL, NULL, NULL},
    {"_builder", value_builder, NULL, NULL, NULL},
    {0}};
static PyType_Slot value_slots[] = {{Py_tp_dealloc, value_dealloc}, {Py_tp_getset, value_getset}, {0, NULL}};
static PyType_Spec value_spec = {.name = "wick._C._TileValue",
                                 .basicsize = sizeof(value),
                                 .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                 .slots = value_slots};

/* ---- arguments ---- */

wk__tile_building *wk__tiles_ready(PyObject *self) {
  wk__tile_building *b = (wk__tile_building *)self;
  if (b->kernel && b->b.status == WK_OK) return b;
  PyErr_SetString(PyExc_RuntimeError, "the kernel is finished, or an error has ended it");
  return NULL;
}

int wk__tile_scalar_from(PyObject *o, wk__scalar *out) {
  if (PyBool_Check(o)) {
    *out = (wk__scalar){.category = WK__BOOL_KIND, .i = o == Py_True};
  } else if (PyFloat_Check(o)) {
    *out = (wk__scalar){.category = WK__FLOAT_KIND, .d = PyFloat_AS_DOUBLE(o)};
  } else if (PyLong_Check(o)) {
    int overflow;
    *out = (wk__scalar){.category = WK__INTEGER_KIND, .i = PyLong_AsLongLongAndOverflow(o, &overflow)};
    if (overflow > 0) {
      out->i = (int64_t)PyLong_AsUnsignedLongLong(o), out->is_unsigned = true;
      if (PyErr_Occurred()) return -1;
    }
    if (overflow < 0) return PyErr_Format(PyExc_ValueError, "Nonrepresentable integer %R.", o), -1;
  } else {
    PyErr_Format(PyExc_TypeError, "cannot convert %R of type %s to tensor", o, Py_TYPE(o)->tp_name);
    return -1;
  }
  return 0;
}

static wk__tile id_of(wk__tile_building *b, PyObject *o) { /* 0: it is none of the builder's values */
  if (!PyObject_TypeCheck(o, b->value_type)) return 0;
  value *v = (value *)o;
  if (v->builder == b) return v->id;
  return 0;
}

/* None gives 0. */
static int operand(wk__tile_building *b, PyObject *o, wk__tile *out, bool *out_number) {
  wk__scalar number;
  *out = 0;
  if (out_number) *out_number = false;
  if (o == Py_None || (*out = id_of(b, o))) return 0;
  if (PyObject_TypeCheck(o, b->value_type)) return PyErr_Format(PyExc_ValueError, "a value of another kernel"), -1;
  if (wk__tile_scalar_from(o, &number) < 0) return -1;
  *out = wk__tile_number(&b->b, number);
  if (out_number) *out_number = true;
  return 0;
}

int wk__tiles_needed(wk__tile_building *b, PyObject *o, wk__tile *out) {
  if (operand(b, o, out, NULL) < 0) return -1;
  if (o != Py_None) return 0;
  PyErr_SetString(PyExc_TypeError, "cannot convert None of type NoneType to tensor");
  return -1;
}

/* A number beside a double is a double, as it is written. */
static int pair(wk__tile_building *b, PyObject *first, PyObject *second, wk__tile *x, wk__tile *y, int *out_weak) {
  bool x_number, y_number;
  wk__scalar number;
  if (first == Py_None || second == Py_None) return wk__tiles_needed(b, Py_None, x);
  if (operand(b, first, x, &x_number) < 0 || operand(b, second, y, &y_number) < 0) return -1;
  *out_weak = x_number + 2 * y_number;
  for (int turn = 0; turn < 2 && b->b.status == WK_OK; turn++) {
    PyObject *o = turn ? second : first;
    wk__tile other = turn ? *x : *y;
    if (!PyFloat_Check(o) || b->kernel->instrs[other].type.dtype != WK_FLOAT64) continue;
    if (wk__tile_scalar_from(o, &number) < 0) return -1;
    *(turn ? y : x) = wk__tile_constant(&b->b, number, WK_FLOAT64);
  }
  return 0;
}

static int dtype_from(PyObject *o, wk_dtype *out) {
  const char *name = PyUnicode_Check(o) ? PyUnicode_AsUTF8(o) : NULL;
  for (int d = 0; name && d < WK_DTYPE_COUNT; d++) {
    if (strcmp(wk_dtype_name((wk_dtype)d), name) != 0 || wk_dtype_is_complex((wk_dtype)d)) continue;
    *out = (wk_dtype)d;
    return 0;
  }
  if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "%R is no dtype of tile kernels", o);
  return -1;
}

/* At most WK__TILE_DIMS + 1 of them, so that the builder says what is wrong with more. */
static int sizes_from(PyObject *o, int64_t *out) {
  PyObject *items = PySequence_Fast(o, "a shape is a list or tuple of integers");
  if (!items) return -1;
  Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
  if (n > WK__TILE_DIMS)
    PyErr_Format(PyExc_ValueError, "blocks have at most %d dims, and this has %zd", WK__TILE_DIMS, n);
  for (Py_ssize_t d = 0; d < n && !PyErr_Occurred(); d++)
    out[d] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(items, d));
  Py_DECREF(items);
  return PyErr_Occurred() ? -1 : (int)n;
}

/* A list of values and numbers; -1 with an exception. *out is for PyMem_Free. */
Py_ssize_t wk__tiles_values_from(wk__tile_building *b, PyObject *list, wk__tile **out) {
  *out = NULL;
  if (!PyList_Check(list)) return PyErr_Format(PyExc_TypeError, "a list of values"), -1;
  Py_ssize_t n = PyList_GET_SIZE(list);
  *out = PyMem_Calloc((size_t)n + 1, sizeof **out);
  if (!*out) return PyErr_NoMemory(), -1;
  for (Py_ssize_t i = 0; i < n; i++)
    if (wk__tiles_needed(b, PyList_GET_ITEM(list, i), &(*out)[i]) < 0) return -1;
  return n;
}

PyObject *wk__tiles_list_of(wk__tile_building *b, const wk__tile *ids, Py_ssize_t n) {  // -> new
  if (b->b.status != WK_OK) return wk__raise(b->state);
  PyObject *list = PyList_New(n);
  for (Py_ssize_t i = 0; list && i < n; i++) {
    PyObject *v = wrap(b, ids[i]);
    if (v)
      PyList_SET_ITEM(list, i, v);
    else
      Py_CLEAR(list);
  }
  return list;
}

PyObject *wk__tiles_none_or_raise(wk__tile_building *b) {  // -> new
  return b->b.status == WK_OK ? Py_NewRef(Py_None) : wk__raise(b->state);
}

/* ---- methods: values ---- */

static PyObject *make_parameter(PyObject *self, PyObject *args) {  // -> new
  READY(self);
  PyObject *name;
  int pointer;
  wk_dtype dtype;
  if (!PyArg_ParseTuple(args, "Op:parameter", &name, &pointer) || dtype_from(name, &dtype) < 0) return NULL;
  return wrap(b, wk__tile_parameter(&b->b, dtype, pointer));
}

/* constant(number, dtype or None, shape) */
static PyObject *make_constant(PyObject *self, PyObject *args) {  // -> new
  READY(self);
  PyObject *number, *name, *sizes;
  wk__tile_type t = {.shape = {1, 1, 1}};
  wk__scalar scalar;
  int64_t shape[WK__TILE_DIMS];
  wk_dtype dtype;
  if (!PyArg_ParseTuple(args, "OOO:constant", &number, &name, &sizes) || wk__tile_scalar_from(number, &scalar) < 0)
    return NULL;
  int ndim = sizes_from(sizes, shape);
  if (ndim < 0) return NULL;
  wk__tile v;
  if (name == Py_None) {
    v = wk__tile_number(&b->b, scalar);
  } else {
    if (dtype_from(name, &dtype) < 0) return NULL;
    t.dtype = (uint8_t)dtype;
    v = wk__tile_filled(&b->b, scalar, &t);
  }
  return wrap(b, ndim ? wk__tile_broadcast(&b->b, v, ndim, shape) : v);
}

static PyObject *make_program_id(PyObject *self, PyObject *axis) {  // -> new
  READY(self);
  int which = (int)PyLong_AsLong(axis);
  return PyErr_Occurred() ? NULL : wrap(b, wk__tile_program_id(&b->b, which));
}
static PyObject *make_num_programs(PyObject *self, PyObject *axis) {  // -> new
  READY(self);
  int which = (int)PyLong_AsLong(axis);
  return PyErr_Occurred() ? NULL : wrap(b, wk__tile_num_programs(&b->b, which));
}
static PyObject *make_range(PyObject *self, PyObject *args) {  // -> new
  READY(self);
  long long start, end;
  if (!PyArg_ParseTuple(args, "LL:arange", &start, &end)) return NULL;
  return wrap(b, wk__tile_range(&b->b, start, end));
}
static PyObject *make_unary(PyObject *self, PyObject *args) {  // -> new
  READY(self);
  const char *name;
  PyObject *o;
  wk__tile x;
  if (!PyArg_ParseTuple(args, "sO:unary", &name, &o) || wk__tiles_needed(b, o, &x) < 0) return NULL;
  return wrap(b, wk__tile_unary(&b->b, name, x));
}
static PyObject *make_binary(PyObject *self, PyObject *args) {  // -> new
  READY(self);
  const char *name;
  PyObject *first, *second;
  wk__tile x, y;
  int weak;
  if (!PyArg_ParseTuple(args, "sOO:binary", &name, &first, &second)) return NULL;
  if (pair(b, first, second, &x, &y, &weak) < 0) return NULL;
  return wrap(b, wk__tile_binary(&b->b, name, x, y, weak));
}
static PyObject *make_where(PyObject *self, PyObject *args) {  // -> new
  READY(self);
  PyObject *condition, *first, *second;
  wk__tile c, x, y;
  int weak;
  if (!PyArg_ParseTuple(args, "OOO:where", &condition, &first, &second)) return NULL;
  if (wk__tiles_needed(b, condition, &c) < 0 || pair(b, first, second, &x, &y, &weak) < 0) return NULL;
  return wrap(b, wk__tile_where(&b->b, c, x, y, weak));
}
static PyObject *make_fma(PyObject *self, PyObject *args) {  // -> new
  READY(self);
  PyObject *o[3];
  wk__tile x, y, z;
  if (!PyArg_ParseTuple(args, "OOO:fma", &o[0], &o[1], &o[2])) return NULL;
  if (wk__tiles_needed(b, o[0], &x) < 0 || wk__tiles_needed(b, o[1], &y) < 0 || wk__tiles_needed(b, o[2], &z) < 0)
    return NULL;
  return wrap(b, wk__tile_fma(&b->b, x, y, z));
}
/* cast(x, dtype, how): how is "value", "bits" or "pointer" */
static PyObject *make_cast(PyObject *self, PyObject *args) {  // -> new
  READY(self);
  PyObject *o, *name;
  const char *how;
  wk__tile x;
  wk_dtype dtype;
  if (!PyArg_ParseTuple(args, "OOs:cast", &o, &name, &how) || dtype_from(name, &dtype) < 0 ||
      wk__tiles_needed(b, o, &x) < 0)
    return NULL;
  return wrap(b, how[0] == 'p'   ? wk__tile_cast_pointer(&b->b, x, dtype)
                 : how[0] == 'b' ? wk__tile_bits(&b->b, x, dtype)
                                 : wk__tile_cast(&b->b, x, dtype));
}
static PyObject *make_shaped(PyObject *self, PyObject *args, bool view) {  // -> new
  READY(self);
  PyObject *o, *sizes;
  wk__tile x;
  int64_t shape[WK__TILE_DIMS];
  if (!PyArg_ParseTuple(args, "OO", &o, &sizes) || wk__tiles_needed(b, o, &x) < 0) return NULL;
  int ndim = sizes_from(sizes, shape);
  if (ndim < 0) return NULL;
  return wrap(b, view ? wk__tile_view(&b->b, x, ndim, shape) : wk__tile_broadcast(&b->b, x, ndim, shape));
}
static PyObject *make_view(PyObject *self, PyObject *args) { return make_shaped(self, args, true); }        // -> new
static PyObject *make_broadcast(PyObject *self, PyObject *args) { return make_shaped(self, args, false); }  // -> new
static PyObject *make_broadcast_pair(PyObject *self, PyObject *args) {                                      // -> new
  READY(self);
  PyObject *first, *second;
  wk__tile ids[2];
  int weak;
  if (!PyArg_ParseTuple(args, "OO:broadcast_pair", &first, &second)) return NULL;
  if (pair(b, first, second, &ids[0], &ids[1], &weak) < 0) return NULL;
  (void)wk__tile_broadcast_pair(&b->b, &ids[0], &ids[1]);
  return wk__tiles_list_of(b, ids, 2);
}
static PyObject *make_expand_dims(PyObject *self, PyObject *args) {  // -> new
  READY(self);
  PyObject *o;
  int axis;
  wk__tile x;
  if (!PyArg_ParseTuple(args, "Oi:expand_dims", &o, &axis) || wk__tiles_needed(b, o, &x) < 0) return NULL;
  return wrap(b, wk__tile_expand_dims(&b->b, x, axis));
}
static PyObject *make_permute(PyObject *self, PyObject *args) {  // -> new
  READY(self);
  PyObject *o, *list;
  wk__tile x;
  int64_t given[WK__TILE_DIMS];
  int dims[WK__TILE_DIMS];
  if (!PyArg_ParseTuple(args, "OO:permute", &o, &list) || wk__tiles_needed(b, o, &x) < 0) return NULL;
  int ndim = sizes_from(list, given);
  for (int d = 0; d < ndim; d++) dims[d] = given[d] < 0 || given[d] > 9 ? -1 : (int)given[d];
  return ndim < 0 ? NULL : wrap(b, wk__tile_permute(&b->b, x, ndim, dims));
}
static PyObject *make_reduce(PyObject *self, PyObject *args) {  // -> new
  READY(self);
  const char *name;
  PyObject *o;
  int axis, keep;
  wk__tile x;
  if (!PyArg_ParseTuple(args, "sOip:reduce", &name, &o, &axis, &keep) || wk__tiles_needed(b, o, &x) < 0) return NULL;
  return wrap(b, wk__tile_reduce(&b->b, name, x, axis, keep));
}
static PyObject *make_scan(PyObject *self, PyObject *args) {  // -> new
  READY(self);
  const char *name;
  PyObject *o;
  int axis, reverse;
  wk__tile x;
  if (!PyArg_ParseTuple(args, "sOip:scan", &name, &o, &axis, &reverse) || wk__tiles_needed(b, o, &x) < 0) return NULL;
  return wrap(b, wk__tile_scan(&b->b, name, x, axis, reverse));
}
/* dot(a, b, sum or None, dtype or None) */
static PyObject *make_dot(PyObject *self, PyObject *args) {  // -> new
  READY(self);
  PyObject *o[3], *name;
  wk__tile x, y, sum;
  wk_dtype dtype = WK_DTYPE_NONE;
  if (!PyArg_ParseTuple(args, "OOOO:dot", &o[0], &o[1], &o[2], &name)) return NULL;
  if (wk__tiles_needed(b, o[0], &x) < 0 || wk__tiles_needed(b, o[1], &y) < 0 || operand(b, o[2], &sum, NULL) < 0)
    return NULL;
  if (name != Py_None && dtype_from(name, &dtype) < 0) return NULL;
  return wrap(b, wk__tile_dot(&b->b, x, y, sum, dtype));
}
static PyObject *make_philox(PyObject *self, PyObject *args) {  // -> new
  READY(self);
  PyObject *first, *second;
  int word;
  wk__tile seed, offset;
  if (!PyArg_ParseTuple(args, "OOi:philox", &first, &second, &word)) return NULL;
  if (wk__tiles_needed(b, first, &seed) < 0 || wk__tiles_needed(b, second, &offset) < 0) return NULL;
  return wrap(b, wk__tile_philox(&b->b, seed, offset, word));
}

/* ---- methods: memory ---- */

static PyObject *make_load(PyObject *self, PyObject *args) {  // -> new
  READY(self);
  PyObject *o[3];
  wk__tile pointer, mask, other;
  if (!PyArg_ParseTuple(args, "OOO:load", &o[0], &o[1], &o[2])) return NULL;
  if (wk__tiles_needed(b, o[0], &pointer) < 0 || operand(b, o[1], &mask, NULL) < 0 ||
      operand(b, o[2], &other, NULL) < 0)
    return NULL;
  return wrap(b, wk__tile_load(&b->b, pointer, mask, other));
}
static PyObject *make_store(PyObject *self, PyObject *args) {  // -> new
  READY(self);
  PyObject *o[3];
  wk__tile pointer, stored, mask;
  if (!PyArg_ParseTuple(args, "OOO:store", &o[0], &o[1], &o[2])) return NULL;
  if (wk__tiles_needed(b, o[0], &pointer) < 0 || wk__tiles_needed(b, o[1], &stored) < 0 ||
      operand(b, o[2], &mask, NULL) < 0)
    return NULL;
  wk__tile_store(&b->b, pointer, stored, mask);
  return wk__tiles_none_or_raise(b);
}
/* atomic(name, pointer, value, mask or None, compared or None) */
static PyObject *make_atomic(PyObject *self, PyObject *args) {  // -> new
  READY(self);
  const char *name;
  PyObject *o[4];
  wk__tile x[4];
  int how = 0;
  if (!PyArg_ParseTuple(args, "sOOOO:atomic", &name, &o[0], &o[1], &o[2], &o[3])) return NULL;
  while (how < WK__TILE_ATOMICS && strcmp(wk__tile_atomics[how], name) != 0) how++;
  if (how == WK__TILE_ATOMICS) return PyErr_Format(PyExc_ValueError, "there is no atomic '%s'", name);
  if (wk__tiles_needed(b, o[0], &x[0]) < 0 || wk__tiles_needed(b, o[1], &x[1]) < 0) return NULL;
  if (operand(b, o[2], &x[2], NULL) < 0 || operand(b, o[3], &x[3], NULL) < 0) return NULL;
  return wrap(b, wk__tile_atomic_op(&b->b, (wk__tile_atomic)how, x[0], x[1], x[2], x[3]));
}
static PyObject *make_barrier(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  READY(self);
  wk__tile_barrier(&b->b);
  return wk__tiles_none_or_raise(b);
}

/* ---- the builder ---- */

/* finish(name, warps, stages) -> _TileKernel */
static PyObject *finish(PyObject *self, PyObject *args) {  // -> new
  READY(self);
  const char *name;
  int warps, stages;
  if (!PyArg_ParseTuple(args, "sii:finish", &name, &warps, &stages)) return NULL;
  if (wk__tile_finish(&b->b, name, warps, stages) != WK_OK) return wk__raise(b->state);
  PyObject *type = PyObject_GetAttrString(b->state->module, "_TileKernel");
  if (!type) return NULL;
  wk__tile_kernel_object *k = (wk__tile_kernel_object *)((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 0);
  Py_DECREF(type);
  if (!k) return NULL;
  k->state = b->state, k->kernel = b->kernel;
  b->kernel = NULL;
  return (PyObject *)k;
}

static int set_line(PyObject *self, PyObject *line, void *unused) {
  (void)unused;
  long number = line ? PyLong_AsLong(line) : 0;
  if (number == -1 && PyErr_Occurred()) return -1;
  ((wk__tile_building *)self)->b.line = (int32_t)number;
  return 0;
}

static PyObject *builder_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {  // -> new
  PyObject *value_type, *base;
  wk__state *state = wk__state_of_type(type);
  (void)keywords;
  if (!state || !PyArg_ParseTuple(args, "O!:_TileBuilder", &PyType_Type, &value_type)) return NULL;
  if (!(base = PyObject_GetAttrString(state->module, "_TileValue"))) return NULL;
  int fits = PyObject_IsSubclass(value_type, base);
  Py_DECREF(base);
  if (fits <= 0) return fits < 0 ? NULL : PyErr_Format(PyExc_TypeError, "a subclass of _TileValue");
  wk__tile_building *b = (wk__tile_building *)type->tp_alloc(type, 0);
  if (!b) return NULL;
  b->state = state;
  b->value_type = (PyTypeObject *)Py_NewRef(value_type);
  b->kernel = wk__tile_create();
  if (!b->kernel) {
    Py_DECREF((PyObject *)b);
    return wk__raise(state);
  }
  wk__tile_builder_init(&b->b, b->kernel);
  return (PyObject *)b;
}

static void builder_dealloc(PyObject *self) {
  wk__tile_building *b = (wk__tile_building *)self;
  PyTypeObject *type = Py_TYPE(self);
  wk__tile_builder_release(&b->b);
  wk__tile_release(b->kernel);
  Py_XDECREF((PyObject *)b->value_type);
  type->tp_free(self);
  Py_DECREF(type);
}

static PyMethodDef builder_methods[] = {{"parameter", make_parameter, METH_VARARGS, NULL},
                                        {"constant", make_constant, METH_VARARGS, NULL},
                                        {"program_id", make_program_id, METH_O, NULL},
                                        {"num_programs", make_num_programs, METH_O, NULL},
                                        {"arange", make_range, METH_VARARGS, NULL},
                                        {"unary", make_unary, METH_VARARGS, NULL},
                                        {"binary", make_binary, METH_VARARGS, NULL},
                                        {"where", make_where, METH_VARARGS, NULL},
                                        {"fma", make_fma, METH_VARARGS, NULL},
                                        {"cast", make_cast, METH_VARARGS, NULL},
                                        {"view", make_view, METH_VARARGS, NULL},
                                        {"broadcast", make_broadcast, METH_VARARGS, NULL},
                                        {"broadcast_pair", make_broadcast_pair, METH_VARARGS, NULL},
                                        {"expand_dims", make_expand_dims, METH_VARARGS, NULL},
                                        {"permute", make_permute, METH_VARARGS, NULL},
                                        {"reduce", make_reduce, METH_VARARGS, NULL},
                                        {"scan", make_scan, METH_VARARGS, NULL},
                                        {"dot", make_dot, METH_VARARGS, NULL},
                                        {"philox", make_philox, METH_VARARGS, NULL},
                                        {"load", make_load, METH_VARARGS, NULL},
                                        {"store", make_store, METH_VARARGS, NULL},
                                        {"atomic", make_atomic, METH_VARARGS, NULL},
                                        {"barrier", make_barrier, METH_NOARGS, NULL},
                                        {"for_begin", wk__tiles_for_begin, METH_VARARGS, NULL},
                                        {"while_begin", wk__tiles_while_begin, METH_O, NULL},
                                        {"while_test", wk__tiles_while_test, METH_O, NULL},
                                        {"loop_end", wk__tiles_loop_end, METH_VARARGS, NULL},
                                        {"if_begin", wk__tiles_if_begin, METH_O, NULL},
                                        {"if_else", wk__tiles_if_else, METH_NOARGS, NULL},
                                        {"if_end", wk__tiles_if_end, METH_VARARGS, NULL},
                                        {"values", wk__tiles_make_values, METH_O, NULL},
                                        {"ret", wk__tiles_make_return, METH_NOARGS, NULL},
                                        {"finish", finish, METH_VARARGS, NULL},
                                        {0}};
static PyGetSetDef builder_getset[] = {{"line", NULL, set_line, "The source line of what is made next.", NULL}, {0}};
static PyType_Slot builder_slots[] = {{Py_tp_new, builder_new},
                                      {Py_tp_dealloc, builder_dealloc},
                                      {Py_tp_methods, builder_methods},
                                      {Py_tp_getset, builder_getset},
                                      {0, NULL}};
static PyType_Spec builder_spec = {.name = "wick._C._TileBuilder",
                                   .basicsize = sizeof(wk__tile_building),
                                   .flags = Py_TPFLAGS_DEFAULT,
                                   .slots = builder_slots};

static PyMethodDef functions[] = {{"_tiles_are_apart", wk__tiles_are_apart, METH_VARARGS,
                                   "Whether tensors are contiguous, each from the beginning of memory of its own."},
                                  {0}};

int wk__add_tiles(PyObject *module) {
  PyType_Spec *specs[] = {&value_spec, &builder_spec, &wk__tile_kernel_spec};
  for (size_t i = 0; i < WK_COUNT(specs); i++) {
    PyObject *type = PyType_FromModuleAndSpec(module, specs[i], NULL);
    int status = type ? PyModule_AddType(module, (PyTypeObject *)type) : -1;
    Py_XDECREF(type);
    if (status < 0) return -1;
  }
  return PyModule_AddFunctions(module, functions);
}
