/* Tensors with a sparse layout for wick/sparse/, which says what calls on them become: making one of its parts, the
 * parts of one, and the way from the layer of calls (ops/sparse.c) to Python.
 *
 * In: tensors that hold places and values. Out: a tensor over them, and back. Tests: tests/python/test_sparse.py. */
#include "dynamo/cpython/gil.h"
#include "dynamo/dynamo.h"
#include "ops/internal.h"
#include "python/calls/override.h"

static wk__state *asked; /* whose Python knows about sparse tensors */

/* ---- from a call to Python ---- */

typedef struct asking {
  const wk_op *op;
  const wk_value *args;
  wk_value *results;
  wk_status status;
} asking;

static wk_status take(const wk_op *op, PyObject *given, wk_value *results) {
  int count = op->schema.result_count;
  bool fits = count == 1 || (PyTuple_Check(given) && PyTuple_GET_SIZE(given) == count);
  for (int r = 0; fits && r < count; r++) {
    PyObject *item = count == 1 ? given : PyTuple_GET_ITEM(given, r);
    fits = wk__is_tensor(asked, item);
    if (fits) results[r] = wk__v_tensor(wk__retain(wk__tensor_of(item)));
  }
  if (fits) return WK_OK;
  for (int r = 0; r < count; r++) wk_value_release(&results[r]);
  return wk_fail(WK_INTERNAL_ERROR, "%s of sparse tensors gave no tensor", op->base_name);
}

static void ask(void *context) {
  asking *a = context;
  if (PyErr_Occurred()) { /* a call before has failed, and its caller goes on */
    a->status = wk__status_from_python();
    return;
  }
  PyObject *args = PyTuple_New(a->op->schema.parameter_count);
  for (int i = 0; args && i < a->op->schema.parameter_count; i++) {
    PyObject *object = wk__value_object(asked, &a->args[i]);
    if (object)
      PyTuple_SET_ITEM(args, i, object);
    else
      Py_CLEAR(args);
  }
  PyObject *module = args ? PyImport_ImportModule("wick.sparse._calls") : NULL;
  PyObject *given = module ? PyObject_CallMethod(module, "called", "ssO", a->op->name, a->op->base_name, args) : NULL;
  a->status = given ? take(a->op, given, a->results) : wk__status_from_python();
  Py_XDECREF(given);
  Py_XDECREF(module);
  Py_XDECREF(args);
}
static wk_status sparse_call(const wk_op *op, const wk_value *args, wk_value *results) {
  asking a = {op, args, results, WK_OK};
  wk__gil gil = wk__gil_hold();
  if (!gil.alive) return wk_fail(WK_RUNTIME_ERROR, "%s: Python has ended", op->base_name);
  wk__dynamo_run_plainly(ask, &a);
  wk__gil_drop(gil);
  return a.status;
}

/* ---- making, looking at ---- */

static bool read_size(PyObject *size, wk_int *sizes, int *ndim) {
  Py_ssize_t n = PyTuple_GET_SIZE(size);
  for (Py_ssize_t d = 0; d < n && d < WK_MAX_DIMS; d++) {
    long long value = PyLong_AsLongLong(PyTuple_GET_ITEM(size, d));
    if (value < 0) return false;
    sizes[d] = wk_int_of(value);
  }
  *ndim = (int)n;
  return n <= WK_MAX_DIMS;
}
static wk_tensor *share_of(PyObject *o) { return o == Py_None ? NULL : wk__retain(wk__tensor_of(o)); }

/* _sparse_make(layout, size, places, columns, values, is_coalesced) -> a tensor over these */
static PyObject *sparse_make(PyObject *module, PyObject *args) {  // -> new
  wk__state *state = wk__state_of_module(module);
  PyObject *size, *places, *columns, *values;
  int layout, coalesced, ndim;
  wk_int sizes[WK_MAX_DIMS];
  if (!PyArg_ParseTuple(args, "iO!OOOp:_sparse_make", &layout, &PyTuple_Type, &size, &places, &columns, &values,
                        &coalesced))
    return NULL;
  if (!wk__is_tensor(state, places) || !wk__is_tensor(state, values) || !read_size(size, sizes, &ndim) ||
      (columns != Py_None && !wk__is_tensor(state, columns)))
    return PyErr_Format(PyExc_TypeError, "_sparse_make(): expected sizes and tensors");
  asked = state;
  wk__sparse_call = sparse_call;
  const wk_tensor *v = wk__tensor_of(values);
  wk__spec spec;
  wk__spec_contiguous(&spec, (wk_dtype)v->dtype, v->device, ndim, sizes);
  wk_tensor *t = wk__tensor_shape_only(&spec);
  wk__sparse *s = t ? wk__alloc_zeroed(sizeof *s) : NULL;
  if (!s) {
    wk__release(t);
    return wk__raise(state);
  }
  s->references = 1;
  s->layout = (uint8_t)layout;
  s->coalesced = coalesced;
  s->places = share_of(places);
  s->columns = share_of(columns);
  s->values = share_of(values);
  wk__tensor_set_sparse(t, s);
  return wk__wrap(state, t);
}

static PyObject *part(wk__state *state, wk_tensor *t) {  // -> new
  return t ? wk__wrap(state, wk__retain(t)) : Py_NewRef(Py_None);
}
/* _sparse_parts(tensor) -> (layout, places, columns, values, is_coalesced), or None for a strided one */
static PyObject *sparse_parts(PyObject *module, PyObject *o) {  // -> new
  wk__state *state = wk__state_of_module(module);
  if (!wk__is_tensor(state, o)) return PyErr_Format(PyExc_TypeError, "_sparse_parts(): expected a tensor");
  const wk__sparse *s = wk__tensor_of(o)->sparse;
  if (!s) Py_RETURN_NONE;
  return Py_BuildValue("(iNNNN)", s->layout, part(state, s->places), part(state, s->columns), part(state, s->values),
                       PyBool_FromLong(s->coalesced));
}
/* _sparse_become(tensor, other): its parts are the other one's from now on */
static PyObject *sparse_become(PyObject *module, PyObject *args) {  // -> new
  wk__state *state = wk__state_of_module(module);
  PyObject *one, *other;
  if (!PyArg_ParseTuple(args, "OO:_sparse_become", &one, &other)) return NULL;
  if (!wk__is_tensor(state, one) || !wk__is_tensor(state, other) || !wk__tensor_of(other)->sparse)
    return PyErr_Format(PyExc_TypeError, "_sparse_become(): expected tensors");
  wk_tensor *t = wk__tensor_of(one);
  const wk_tensor *from = wk__tensor_of(other);
  if (t->ndim != from->ndim) return PyErr_Format(PyExc_RuntimeError, "_sparse_become(): other dims");
  memcpy(t->sizes, from->sizes, t->ndim * sizeof *t->sizes);
  t->numel = from->numel;
  atomic_fetch_add_explicit(&from->sparse->references, 1, memory_order_relaxed);
  wk__tensor_set_sparse(t, from->sparse);
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_sparse_become", sparse_become, METH_VARARGS, "A sparse tensor's parts are another one's from now on."},
    {"_sparse_make", sparse_make, METH_VARARGS, "A tensor whose elements are in other tensors."},
    {"_sparse_parts", sparse_parts, METH_O, "What a sparse tensor's elements are in."},
    {0}};

int wk__add_sparse(PyObject *module) { return PyModule_AddFunctions(module, functions); }
