/* x[...] and x[...] = y: integers, slices, None, Ellipsis, bools and tensors, as PyTorch takes them.
 * What selects by position becomes views, one step after the other; what selects by tensor is collected for one `index`
 * (or `index_put_`) at the end. Tests: tests/python/test_index_forms.py. */
#include "levels/levels.h"
#include "python/calls/override.h"
#include "python/tensor/tensor_parts.h"

/* The view so far and the index tensors that are still to be applied. */
typedef struct indexing {
  wk__state *state;
  wk_tensor *view;                 /* owned */
  wk_tensor *indices[WK_MAX_DIMS]; /* owned; NULL where a dim is taken whole; a mask stands for all dims it covers */
  int original_ndim;               /* of the tensor that is indexed */
  int dim;                         /* of the view, next to be looked at */
  int entry;                       /* of indices, next to be filled */
  int index_count;                 /* up to the last index tensor */
} indexing;

static wk_value tensor_value(wk_tensor *t) { return (wk_value){.tag = WK_VALUE_TENSOR, .tensor = t}; }
static wk_value int_value(int64_t i) { return (wk_value){.tag = WK_VALUE_INT, .integer = wk_int_of(i)}; }

/* Not `= {0}`: most of the indices are never looked at. */
static void start_indexing(indexing *x) {
  x->view = NULL;
  x->dim = x->entry = x->index_count = 0;
}

static void release_indexing(indexing *x) {
  wk__release(x->view);
  for (int d = 0; d < x->entry; d++) wk__release(x->indices[d]);
}

/* Replaces the view by what the operator makes of it. */
static int step(indexing *x, const wk_op *op, const wk_value *args) {
  wk_value result = {0};
  if (wk_call(op, args, NULL, &result) != WK_OK) {
    wk__raise(x->state);
    return -1;
  }
  wk__release(x->view);
  x->view = result.tensor;
  return 0;
}

static int too_many(const indexing *x) {
  PyErr_Format(PyExc_IndexError, "too many indices for tensor of dimension %d", x->original_ndim);
  return -1;
}

/* Dims that are taken whole; back over one, if negative. */
static void skip_dims(indexing *x, int count) {
  for (int k = 0; k < count; k++) x->indices[x->entry + k] = NULL;
  x->dim += count;
  x->entry += count;
}

static int take_integer(indexing *x, PyObject *key) {
  wk_int i;
  if (wk__int_from_python(x->state, key, &i) < 0) return -1;
  if (x->dim >= x->view->ndim) {
    if (x->original_ndim == 0) {
      PyErr_SetString(PyExc_IndexError,
                      "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to "
                      "convert a 0-dim tensor to a number");
      return -1;
    }
    return too_many(x);
  }
  wk_int size = x->view->sizes[x->dim];
  if (wk_int_lt(i, wk_int_neg(size)) || !wk_int_lt(i, size)) {
    PyErr_Format(PyExc_IndexError, "index %lld is out of bounds for dimension %d with size %lld",
                 (long long)wk_int_guard_value(i), x->dim, (long long)wk_int_guard_value(size));
    return -1;
  }
  return step(x, WK__OP(select_int),
              (wk_value[]){tensor_value(x->view), int_value(x->dim), {.tag = WK_VALUE_INT, .integer = i}});
}

/* A bound or step far beyond any size says the same as FAR, with which sizes can be counted without overflow. */
static const int64_t FAR = (int64_t)1 << 62;

static int slice_bound(wk__state *state, PyObject *o, wk_value *out) {
  *out = (wk_value){0};
  if (o == Py_None) return 0;
  out->tag = WK_VALUE_INT;
  if (!PyLong_CheckExact(o)) return wk__int_from_python(state, o, &out->integer);
  int overflow;
  int64_t bound = PyLong_AsLongLongAndOverflow(o, &overflow);
  if (!overflow && bound >= -FAR && bound <= FAR) return wk__int_from_python(state, o, &out->integer);
  out->integer = wk_int_of(overflow > 0 || bound > FAR ? FAR : -FAR);
  return 0;
}

static int take_slice(indexing *x, PyObject *key) {
  PySliceObject *slice = (PySliceObject *)key;
  wk_value args[5] = {tensor_value(x->view), int_value(x->dim)};
  if (x->dim >= x->view->ndim) return too_many(x);
  if (slice_bound(x->state, slice->start, &args[2]) < 0 || slice_bound(x->state, slice->stop, &args[3]) < 0 ||
      slice_bound(x->state, slice->step, &args[4]) < 0)
    return -1;
  if (args[4].tag == WK_VALUE_INT && args[4].integer.bits <= 0) {
    PyErr_SetString(PyExc_ValueError,
                    args[4].integer.bits ? "step must be greater than zero" : "slice step cannot be zero");
    return -1;
  }
  bool whole = args[2].tag == WK_VALUE_NONE && args[3].tag == WK_VALUE_NONE && args[4].tag == WK_VALUE_NONE;
  if (!whole && step(x, WK__OP(slice_Tensor), args) < 0) return -1;
  skip_dims(x, 1);
  return 0;
}

static int take_none(indexing *x) {
  if (step(x, WK__OP(unsqueeze), (wk_value[]){tensor_value(x->view), int_value(x->dim)}) < 0) return -1;
  skip_dims(x, 1);
  return 0;
}

/* Takes the reference. A bool mask covers as many dims as it has. */
static int take_tensor(indexing *x, wk_tensor *steal_index) {
  int covers = steal_index->dtype == WK_BOOL || steal_index->dtype == WK_UINT8 ? steal_index->ndim : 1;
  if (x->dim + covers > x->view->ndim) {
    wk__release(steal_index);
    return too_many(x);
  }
  if (x->entry == WK_MAX_DIMS) { /* masks without dims */
    wk__release(steal_index);
    return wk__too_many_dims();
  }
  x->indices[x->entry++] = steal_index;
  x->dim += covers;
  x->index_count = x->entry;
  return 0;
}

/* True and False add a dim of size 1 or 0. */
static int take_bool(indexing *x, bool value) {
  if (take_none(x) < 0) return -1;
  skip_dims(x, -1);
  int64_t size = value;
  wk_tensor *index = wk_tensor_create(WK_INT64, 1, &size);
  if (!index) {
    wk__raise(x->state);
    return -1;
  }
  if (value) *(int64_t *)wk__host_data(index) = 0;
  if (wk__trace_constant(index) != WK_OK) {
    wk__release(index);
    wk__raise(x->state);
    return -1;
  }
  return take_tensor(x, index);
}

/* Dims that a key uses up: all but None, bools and Ellipsis, masks as many as they have. */
static int dims_used(wk__state *state, PyObject *key) {
  if (key == Py_None || key == Py_Ellipsis || PyBool_Check(key)) return 0;
  if (wk__is_tensor(state, key)) {
    const wk_tensor *t = wk__tensor_of(key);
    return t->dtype == WK_BOOL || t->dtype == WK_UINT8 ? t->ndim : 1;
  }
  return 1;
}

static int take_key(indexing *x, PyObject *key) {
  if (PyBool_Check(key)) return take_bool(x, key == Py_True);
  if (PyLong_CheckExact(key)) return take_integer(x, key);
  if (PySlice_Check(key)) return take_slice(x, key);
  if (key == Py_None) return take_none(x);
  if (wk__is_tensor(x->state, key)) {
    wk_tensor *t = wk__tensor_of(key);
    if (WK_UNLIKELY(t->inner != NULL) && wk__is_batched(t)) return take_tensor(x, wk__retain(t)); /* of each example */
    if (t->ndim == 0 && t->dtype == WK_BOOL && wk__realize(t, "a tensor's value decides what is indexed") != WK_OK) {
      wk__raise(x->state);
      return -1;
    }
    wk__scalar truth;
    if (t->ndim == 0 && t->dtype == WK_BOOL)
      return wk__read_element(t, &truth) == WK_OK ? take_bool(x, truth.i != 0) : (wk__raise(x->state), -1);
    if (t->ndim == 0 && wk_dtype_is_integral((wk_dtype)t->dtype, false) && t->storage) return take_integer(x, key);
    return take_tensor(x, wk__retain(t));
  }
  bool text = PyUnicode_Check(key) || PyBytes_Check(key);
  if (!text && (PyList_Check(key) || PyTuple_Check(key) || PyObject_CheckBuffer(key) ||
                PyObject_HasAttr(key, x->state->name___array__))) {
    wk_tensor *t = wk__tensor_from_python(
        x->state, key, PySequence_Check(key) && PySequence_Size(key) == 0 ? WK_INT64 : WK_DTYPE_NONE);
    return t ? take_tensor(x, t) : -1;
  }
  if (PyIndex_Check(key)) return take_integer(x, key);
  if (text) {
    PyErr_Format(PyExc_TypeError, "new(): invalid data type '%s'", Py_TYPE(key)->tp_name);
    return -1;
  }
  if (PySequence_Check(key)) { /* a range, or a sequence of the program's own */
    PyObject *list = PySequence_List(key);
    int status = list ? take_key(x, list) : -1;
    Py_XDECREF(list);
    return status;
  }
  PyErr_Format(
      PyExc_IndexError,
      "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got %s)",
      Py_TYPE(key)->tp_name);
  return -1;
}

static int take_keys(indexing *x, PyObject *const *keys, Py_ssize_t n) {
  for (Py_ssize_t k = 0; k < n; k++) {
    if (keys[k] == Py_Ellipsis) {
      int rest = 0;
      for (Py_ssize_t j = k + 1; j < n; j++) rest += dims_used(x->state, keys[j]);
      if (x->view->ndim - rest > x->dim) skip_dims(x, x->view->ndim - rest - x->dim);
    } else if (take_key(x, keys[k]) < 0) {
      return -1;
    }
  }
  return 0;
}

/* A list of plain integers and the like is one index; a short list with sequences, tensors, slices or None inside is a
 * tuple (PyTorch's old rule). */
static bool stands_for_tuple(const wk__state *state, PyObject *list) {
  if (PyList_GET_SIZE(list) >= 32) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
    PyObject *item = PyList_GET_ITEM(list, i);
    if (wk__is_tensor(state, item) || PySequence_Check(item) || PySlice_Check(item)) return true;
    if (item == Py_Ellipsis || item == Py_None) return true;
  }
  return false;
}

static int parse(indexing *x, PyObject *self, PyObject *key) {
  x->state = ((wk__python_tensor *)self)->state;
  x->view = wk__retain(wk__tensor_of(self));
  x->original_ndim = x->view->ndim;
  if (PyTuple_Check(key) || (PyList_Check(key) && stands_for_tuple(x->state, key)))
    return take_keys(x, PySequence_Fast_ITEMS(key), PySequence_Fast_GET_SIZE(key));
  return take_keys(x, &key, 1);
}

static wk_value index_list(indexing *x) {
  return (wk_value){.tag = WK_VALUE_TENSORS, .count = (uint32_t)x->index_count, .tensors = x->indices};
}

PyObject *wk__tensor_get_item(PyObject *self, PyObject *key) {  // -> new
  indexing x;
  PyObject *result = NULL;
  if (WK_UNLIKELY(wk__overrides(self)) && wk__overridden_method(((wk__python_tensor *)self)->state, "__getitem__",
                                                                (PyObject *[]){self, key}, 2, NULL, &result))
    return result;
  start_indexing(&x);
  if (parse(&x, self, key) == 0) {
    if (x.index_count) {
      wk_value args[] = {tensor_value(x.view), index_list(&x)};
      result = wk__call_to_python(x.state, WK__OP(index_Tensor), args, NULL);
    } else {
      if (x.view == wk__tensor_of(self) && step(&x, WK__OP(alias), (wk_value[]){tensor_value(x.view)}) < 0) {
        release_indexing(&x);
        return NULL;
      }
      result = wk__wrap(x.state, x.view);
      x.view = NULL;
    }
  }
  release_indexing(&x);
  return result;
}

static int check_value(wk__state *state, wk_dtype dtype, PyObject *value) {
  wk_value number;
  int overflow = 0;
  if (!PyLong_Check(value) && !PyFloat_Check(value)) return 0;
  if (PyLong_Check(value)) (void)PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow) {
    PyErr_SetString(PyExc_ValueError, "Overflow when unpacking long long");
    return -1;
  }
  if (wk__scalar_from_python(state, value, &number) < 0) return -1;
  if (wk__check_element(&number, dtype) == WK_OK) return 0;
  wk__raise(state);
  return -1;
}

/* What a complex number is in a tensor without imaginary parts. */
static PyObject *real_number(wk__state *state, wk_dtype dtype, PyObject *value) {  // -> new
  Py_complex number = PyComplex_AsCComplex(value);
  if (dtype == WK_BOOL) return PyBool_FromLong(number.real != 0 || number.imag != 0);
  if (number.imag == 0) return PyFloat_FromDouble(number.real);
  (void)!wk__refuse_complex(dtype);
  return wk__raise(state);
}

/* The value as a tensor: itself, or a 0-dim tensor of the destination's dtype. Owned. */
static wk_tensor *value_tensor(wk__state *state, const wk_tensor *destination, PyObject *value) {
  if (wk__is_tensor(state, value)) return wk__retain(wk__tensor_of(value));
  if (!PyNumber_Check(value) || PySequence_Check(value)) {
    PyErr_Format(PyExc_TypeError, "can't assign a %s to a torch.%sTensor", Py_TYPE(value)->tp_name,
                 wk__dtype_legacy((wk_dtype)destination->dtype));
    return NULL;
  }
  wk_dtype dtype = (wk_dtype)destination->dtype;
  bool real = PyComplex_Check(value) && !wk_dtype_is_complex(dtype);
  PyObject *number = real ? real_number(state, dtype, value) : Py_NewRef(value);
  wk_tensor *made = NULL;
  if (number && check_value(state, dtype, number) == 0) made = wk__tensor_from_python(state, number, dtype);
  Py_XDECREF(number);
  return made;
}

/* Leading dims of size 1 that the destination lacks are dropped: x[0] = y with y of shape (1, n). */
static wk_tensor *without_leading_ones(wk_tensor *steal_value, int ndim) {
  while (steal_value && steal_value->ndim > ndim && wk_int_eq(steal_value->sizes[0], wk_int_of(1))) {
    wk_value result = {0};
    wk_status status =
        wk_call(WK__OP(squeeze_dim), (wk_value[]){tensor_value(steal_value), int_value(0)}, NULL, &result);
    wk__release(steal_value);
    steal_value = status ? NULL : result.tensor;
  }
  return steal_value;
}

/* A value that does not fit is refused in the words of expand; any other error stays. */
static wk_status explain_sizes(const wk_tensor *view, wk_tensor *value, wk_status status) {
  wk_value result = {0}, sizes = {.tag = WK_VALUE_INTS, .count = view->ndim, .integers = view->sizes};
  if (!value || wk__same_sizes(view, value)) return status;
  wk_status expanded = wk_call(WK__OP(expand), (wk_value[]){tensor_value(value), sizes, {0}}, NULL, &result);
  wk_value_release(&result);
  return expanded ? expanded : status;
}

static int assign(indexing *x, PyObject *value) {
  wk_tensor *v = value_tensor(x->state, x->view, value);
  if (!v) return -1;
  wk_value result = {0};
  wk_status status;
  if (x->index_count) {
    wk_value args[] = {tensor_value(x->view), index_list(x), tensor_value(v), {.tag = WK_VALUE_BOOL, .boolean = false}};
    status = wk_call(WK__OP(index_put), args, &x->view, &result);
  } else {
    v = without_leading_ones(v, x->view->ndim);
    status = v ? wk_call(WK__OP(copy_), (wk_value[]){tensor_value(x->view), tensor_value(v), {0}}, NULL, &result)
               : wk_error_category();
    if (status == WK_RUNTIME_ERROR) status = explain_sizes(x->view, v, status);
  }
  wk__release(v);
  if (status) {
    wk__raise(x->state);
    return -1;
  }
  wk_value_release(&result);
  return 0;
}

int wk__tensor_set_item(PyObject *self, PyObject *key, PyObject *value) {
  if (!value) {
    PyErr_SetString(PyExc_TypeError, "Tensor does not support deleting items");
    return -1;
  }
  PyObject *result;
  if (WK_UNLIKELY(wk__overrides(self)) && wk__overridden_method(((wk__python_tensor *)self)->state, "__setitem__",
                                                                (PyObject *[]){self, key, value}, 3, NULL, &result)) {
    Py_XDECREF(result);
    return result ? 0 : -1;
  }
  indexing x;
  start_indexing(&x);
  int status = parse(&x, self, key) == 0 ? assign(&x, value) : -1;
  release_indexing(&x);
  return status;
}
