/* wick.Tensor: the Python object around a tensor, its attributes and number slots. Methods that are operators come from
 * the table (operators.c), those of autograd and of data exchange from their own files.
 * A tensor that has an object gives the same object again while it lives. Tests: tests/python/test_nn.py. */

#include "levels/levels.h"
#include "python/autograd/autograd.h"
#include "python/python.h"

#include <structmember.h>
#include "dynamo/cpython/objects.h"
#include "python/calls/override.h"
#include "python/data/interop.h"
#include "python/tensor/tensor_parts.h"
#include "trace/trace.h"

static wk__state *state_of(PyObject *self) { return ((wk__python_tensor *)self)->state; }

/* ================================================== objects ===================================================== */

/* An object without attributes holds nothing that the collector must see; it is tracked once it gets a dict. */
PyObject *wk__new_tensor_object(wk__state *state, PyTypeObject *type, wk_tensor *steal_tensor) {  // -> new
  PyObject *o = type->tp_alloc(type, 0);
  if (!o) {
    wk__release(steal_tensor);
    return NULL;
  }
  wk__python_tensor *self = (wk__python_tensor *)o;
  self->tensor = steal_tensor;
  self->state = state;
  steal_tensor->wrapper = o;
  if (type != state->parameter_type) (void)wk__note_subclass(state, type);
  return o;
}

PyObject *wk__as_subclass(wk__state *state, PyObject *tensor, PyTypeObject *type) {  // -> new
  wk_value args[] = {{.tag = WK_VALUE_TENSOR, .tensor = wk__tensor_of(tensor)}}, result = {0};
  return wk_call(WK__OP(alias), args, NULL, &result) ? wk__raise(state)
                                                     : wk__new_tensor_object(state, type, result.tensor);
}

/* An untracked object of the base type, from the list of dead ones where there is one. */
static wk__python_tensor *bare_object(wk__state *state) {  // -> new
  if (!state->free_tensor_count) return PyObject_GC_New(wk__python_tensor, state->tensor_type);
  wk__python_tensor *self = state->free_tensors[--state->free_tensor_count];
  (void)PyObject_Init((PyObject *)self, state->tensor_type);
  return self;
}

static void free_object(wk__python_tensor *self, PyTypeObject *type) {
  wk__state *state = self->state;
  if (type == state->tensor_type && state->free_tensor_count < (int)WK_COUNT(state->free_tensors))
    state->free_tensors[state->free_tensor_count++] = self;
  else
    type->tp_free(self);
}

void wk__free_tensor_objects(wk__state *state) {
  while (state->free_tensor_count) PyObject_GC_Del(state->free_tensors[--state->free_tensor_count]);
}

PyObject *wk__wrap(wk__state *state, wk_tensor *steal_tensor) {  // -> new
  if (!steal_tensor) return wk__raise(state);
  if (steal_tensor->wrapper) {
    PyObject *known = Py_NewRef((PyObject *)steal_tensor->wrapper);
    wk__release(steal_tensor);
    return known;
  }
  wk__python_tensor *self = bare_object(state);
  if (!self) {
    wk__release(steal_tensor);
    return NULL;
  }
  self->tensor = steal_tensor;
  self->state = state;
  self->dict = self->weak_references = NULL;
  steal_tensor->wrapper = self;
  return (PyObject *)self;
}

/* _swap_tensors(a, b): each object is the other's tensor from now on; classes and attributes stay. */
PyObject *wk__swap_tensors(PyObject *module, PyObject *args) {  // -> new
  wk__state *state = wk__state_of_module(module);
  PyObject *a, *b;
  if (!PyArg_ParseTuple(args, "O!O!:_swap_tensors", state->tensor_type, &a, state->tensor_type, &b)) return NULL;
  wk__python_tensor *first = (wk__python_tensor *)a, *second = (wk__python_tensor *)b;
  wk_tensor *tensor = first->tensor;
  first->tensor = second->tensor;
  second->tensor = tensor;
  first->tensor->wrapper = first;
  second->tensor->wrapper = second;
  Py_RETURN_NONE;
}

PyObject *wk__wrap_as(wk__state *state, PyTypeObject *type, wk_tensor *steal_tensor) {  // -> new
  if (!steal_tensor->wrapper) return wk__new_tensor_object(state, type, steal_tensor);
  PyObject *known = wk__wrap(state, steal_tensor);
  if (Py_IS_TYPE(known, type)) return known;
  PyObject *made = wk__as_subclass(state, known, type);
  Py_DECREF(known);
  return made;
}

static void tensor_dealloc(PyObject *o) {
  wk__python_tensor *self = (wk__python_tensor *)o;
  PyTypeObject *type = Py_TYPE(o);
  if (PyObject_GC_IsTracked(o)) PyObject_GC_UnTrack(o);
  if (self->weak_references) PyObject_ClearWeakRefs(o);
  if (self->tensor) {
    if (self->tensor->wrapper == o) self->tensor->wrapper = NULL;
    wk__release(self->tensor);
  }
  Py_CLEAR(self->dict);
  free_object(self, type);
  Py_DECREF(type);
}

static int tensor_traverse(PyObject *o, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(((wk__python_tensor *)o)->dict);
  return wk__tensor_autograd_traverse(wk__tensor_of(o), visit, arg);
}
static int tensor_clear(PyObject *o) {
  Py_CLEAR(((wk__python_tensor *)o)->dict);
  return 0;
}

static int tensor_setattro(PyObject *o, PyObject *name, PyObject *value) {
  int status = PyObject_GenericSetAttr(o, name, value);
  if (((wk__python_tensor *)o)->dict && !PyObject_GC_IsTracked(o)) PyObject_GC_Track(o);
  return status;
}

/* Every array of NumPy's has __index__, but only those without dims are integers. */
static bool is_count(PyObject *o) {
  if (!PyIndex_Check(o)) return false;
  if (!PySequence_Check(o) || PySequence_Size(o) < 0) {
    PyErr_Clear();
    return true;
  }
  return false;
}

/* Tensor(2, 3) is empty memory, Tensor([1, 2]) data in the default dtype, Tensor(tensor) an alias: PyTorch's old way.
 */
static wk_tensor *legacy_new(wk__state *state, PyObject *args) {
  Py_ssize_t n = PyTuple_GET_SIZE(args);
  PyObject *first = n ? PyTuple_GET_ITEM(args, 0) : NULL;
  if (n == 1 && wk__is_tensor(state, first)) {
    wk_value value = {.tag = WK_VALUE_TENSOR, .tensor = wk__tensor_of(first)}, alias = {0};
    if (wk_call(WK__OP(alias), &value, NULL, &alias) != WK_OK) wk__raise(state);
    return alias.tensor;
  }
  bool counts = n == 1 && is_count(first);
  if (n == 1 && !counts && PyNumber_Check(first) && !PySequence_Check(first)) {
    PyErr_Format(PyExc_TypeError, "new(): data must be a sequence (got %s)", Py_TYPE(first)->tp_name);
    return NULL;
  }
  if (n == 1 && !counts && !Py_IS_TYPE(first, state->size_type))
    return wk__tensor_from_python(state, first, wk__default_dtype());
  wk_int sizes[WK_MAX_DIMS];
  bool is_size = n == 1 && Py_IS_TYPE(first, state->size_type);
  int count = n ? wk__ints_from_python(state, is_size ? first : args, sizes, false) : 1;
  if (!n) sizes[0] = wk_int_of(0);
  if (count < 0) return NULL;
  wk__spec spec;
  wk__spec_contiguous(&spec, wk__default_dtype(), WK__CPU_DEVICE, count, sizes);
  wk_tensor *t = wk__tensor_from_spec(&spec);
  if (!t) wk__raise(state);
  return t;
}

static PyObject *tensor_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {  // -> new
  (void)keywords;
  wk__state *state = wk__state_of_type(type);
  wk_tensor *t = state ? legacy_new(state, args) : NULL;
  bool alias = PyTuple_GET_SIZE(args) == 1 && t && wk__is_tensor(state, PyTuple_GET_ITEM(args, 0));
  if (!alias) wk__mark_if_inference(t);
  return t ? wk__new_tensor_object(state, type, t) : NULL;
}

static PyObject *make_subclass(PyObject *unused, PyObject *const *args, Py_ssize_t n) {  // -> new
  (void)unused;
  if (n < 2 || !PyType_Check(args[0]))
    return PyErr_Format(PyExc_TypeError, "_make_subclass(cls, data, require_grad=False)");
  PyTypeObject *type = (PyTypeObject *)args[0];
  wk__state *state = wk__state_of_type(type);
  if (!state || !wk__is_tensor(state, args[1]))
    return PyErr_Format(PyExc_TypeError, "_make_subclass: data must be a Tensor");
  int grad = n > 2 ? PyObject_IsTrue(args[2]) : 0;
  if (grad < 0) return NULL;
  wk_dtype dtype = (wk_dtype)wk__tensor_of(args[1])->dtype;
  if (grad && !wk_dtype_is_floating(dtype) && !wk_dtype_is_complex(dtype))
    return PyErr_Format(PyExc_RuntimeError, "Only Tensors of floating point and complex dtype can require gradients");
  wk_tensor *t = wk__detached_alias(wk__tensor_of(args[1]));
  if (!t || (grad && wk_set_requires_grad(t, true) != WK_OK)) {
    wk__release(t);
    return wk__raise(state);
  }
  if (grad) wk__trace_made_leaf(t);
  return wk__new_tensor_object(state, type, t);
}

/* The package says which subclass prints as a parameter. */
static PyObject *set_parameter_type(PyObject *module, PyObject *type) {  // -> new
  wk__state *state = wk__state_of_module(module);
  if (!PyType_Check(type)) return PyErr_Format(PyExc_TypeError, "_set_parameter_type expects a type");
  Py_XSETREF(state->parameter_type, (PyTypeObject *)Py_NewRef(type));
  Py_RETURN_NONE;
}

/* ================================================== text ======================================================== */

/* "requires_grad=True", "grad_fn=<AddBackward0>" or nothing. */
static void append_suffix(wk__string *s, wk_tensor *t) {
  wk_node *fn = wk__grad_fn(t);
  if (fn) {
    wk__string_append(s, "grad_fn=<");
    wk__node_print_name(s, fn);
    wk__string_append(s, ">");
  } else if (wk_requires_grad(t)) {
    wk__string_append(s, "requires_grad=True");
  }
}

/* A tensor of a level: which, and its inner value, indented. */
static PyObject *level_repr(wk__state *state, const wk_tensor *t, int depth) {  // -> new
  PyObject *value = wk__wrap(state, wk__retain(t->inner->value));
  PyObject *text = value ? PyObject_Repr(value) : NULL;
  PyObject *indented = text ? PyObject_CallMethod(text, "replace", "ss", "\n", "\n    ") : NULL;
  PyObject *result = NULL;
  if (indented && t->inner->batch_dim >= 0)
    result =
        PyUnicode_FromFormat("BatchedTensor(lvl=%d, bdim=%d, value=\n    %U\n)", depth, t->inner->batch_dim, indented);
  else if (indented)
    result = PyUnicode_FromFormat("GradTrackingTensor(lvl=%d, value=\n    %U\n)", depth, indented);
  Py_XDECREF(value);
  Py_XDECREF(text);
  Py_XDECREF(indented);
  return result;
}

static PyObject *tensor_repr(PyObject *self) {  // -> new
  PyObject *result;
  if (WK_UNLIKELY(wk__overrides(self)) && wk__overridden_method(state_of(self), "__repr__", &self, 1, NULL, &result))
    return result;
  wk_tensor *t = wk__level_living(wk__tensor_of(self));
  if (WK_UNLIKELY(t->sparse != NULL)) {
    PyObject *module = PyImport_ImportModule("wick.sparse._printing");
    result = module ? PyObject_CallMethod(module, "text", "O", self) : NULL;
    Py_XDECREF(module);
    return result;
  }
  if (WK_UNLIKELY(t->inner != NULL)) return level_repr(state_of(self), t, wk__level_depth_of(t));
  wk__string text = {0}, suffix = {0}, prefix = {0};
  append_suffix(&suffix, t);
  bool plain = Py_IS_TYPE(self, state_of(self)->tensor_type) || Py_IS_TYPE(self, state_of(self)->parameter_type);
  wk__string_printf(&prefix, "%s(", plain ? "tensor" : wk__type_name(Py_TYPE(self)));
  wk_status status = wk__tensor_print(&text, t, prefix.text ? prefix.text : "tensor(", suffix.text);
  result = status ? wk__raise(state_of(self)) : PyUnicode_FromStringAndSize(text.text, text.length);
  wk__string_release(&text);
  wk__string_release(&suffix);
  wk__string_release(&prefix);
  return result;
}

/* A tensor without dims is its number; subclasses, and tensors without memory, are objects. */
static PyObject *tensor_format(PyObject *self, PyObject *spec) {  // -> new
  const wk_tensor *t = wk__tensor_of(self);
  if (t->ndim != 0 || t->device.type == WK_META || !Py_IS_TYPE(self, state_of(self)->tensor_type))
    return PyObject_CallMethod((PyObject *)&PyBaseObject_Type, "__format__", "OO", self, spec);
  PyObject *item = PyObject_CallMethod(self, "item", NULL);
  PyObject *text = item ? PyObject_Format(item, spec) : NULL;
  Py_XDECREF(item);
  return text;
}

/* ================================================== attributes ================================================== */

static PyObject *get_shape(PyObject *self, void *unused) {  // -> new
  (void)unused;
  wk_tensor *t = wk__tensor_of(self);
  return wk__size_object(state_of(self), t->sizes, t->ndim);
}
static PyObject *get_dtype(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return wk__dtype_object(state_of(self), (wk_dtype)wk__tensor_of(self)->dtype);
}
static PyObject *get_device(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return wk__device_object(state_of(self), wk__tensor_of(self)->device);
}
static PyObject *get_ndim(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyLong_FromLong(wk__tensor_of(self)->ndim);
}
static PyObject *get_itemsize(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyLong_FromSize_t(wk__itemsize(wk__tensor_of(self)));
}
static PyObject *get_nbytes(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyLong_FromLongLong(wk_int_guard_value(wk__tensor_of(self)->numel) *
                             (int64_t)wk__itemsize(wk__tensor_of(self)));
}
static PyObject *get_false(PyObject *self, void *unused) {  // -> new
  (void)self, (void)unused;
  Py_RETURN_FALSE;
}
static PyObject *get_is_cpu(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyBool_FromLong(wk__tensor_of(self)->device.type == WK_CPU);
}
static PyObject *get_is_meta(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyBool_FromLong(wk__tensor_of(self)->device.type == WK_META);
}
static PyObject *get_is_cuda(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyBool_FromLong(wk__tensor_of(self)->device.type == WK_CUDA);
}
static PyObject *get_layout(PyObject *self, void *unused) {  // -> new
  static const char *const names[] = {"strided", "sparse_coo", "sparse_csr", "sparse_csc"};
  const wk__sparse *sparse = wk__tensor_of(self)->sparse;
  (void)unused;
  return PyObject_GetAttrString(state_of(self)->module, names[sparse ? sparse->layout : WK__STRIDED]);
}
static PyObject *get_is_sparse(PyObject *self, void *unused) {  // -> new
  const wk__sparse *sparse = wk__tensor_of(self)->sparse;
  (void)unused;
  return PyBool_FromLong(sparse && sparse->layout == WK__SPARSE_COO);
}
static PyObject *get_is_sparse_csr(PyObject *self, void *unused) {  // -> new
  const wk__sparse *sparse = wk__tensor_of(self)->sparse;
  (void)unused;
  return PyBool_FromLong(sparse && sparse->layout == WK__SPARSE_CSR);
}

static PyObject *transposed(PyObject *self, int first, int second) {  // -> new
  wk_value args[] = {{.tag = WK_VALUE_TENSOR, .tensor = wk__tensor_of(self)},
                     {.tag = WK_VALUE_INT, .integer = wk_int_of(first)},
                     {.tag = WK_VALUE_INT, .integer = wk_int_of(second)}};
  return wk__call_to_python(state_of(self), WK__OP(transpose_int), args, NULL);
}
static PyObject *get_T(PyObject *self, void *unused) {  // -> new
  (void)unused;
  wk_tensor *t = wk__tensor_of(self);
  wk_int order[WK_MAX_DIMS];
  for (int d = 0; d < t->ndim; d++) order[d] = wk_int_of(t->ndim - 1 - d);
  wk_value args[] = {{.tag = WK_VALUE_TENSOR, .tensor = t},
                     {.tag = WK_VALUE_INTS, .count = t->ndim, .integers = order}};
  return wk__call_to_python(state_of(self), WK__OP(permute), args, NULL);
}
static PyObject *get_mT(PyObject *self, void *unused) {  // -> new
  (void)unused;
  if (wk__tensor_of(self)->ndim < 2)
    return PyErr_Format(PyExc_RuntimeError,
                        "tensor.mT is only supported on matrices or batches of matrices. Got %d-D tensor.",
                        wk__tensor_of(self)->ndim);
  return transposed(self, -2, -1);
}

WK__OVERRIDABLE_GET(get_shape, "shape")
WK__OVERRIDABLE_GET(get_dtype, "dtype")
WK__OVERRIDABLE_GET(get_device, "device")
WK__OVERRIDABLE_GET(get_ndim, "ndim")
WK__OVERRIDABLE_GET(get_itemsize, "itemsize")
WK__OVERRIDABLE_GET(get_nbytes, "nbytes")
WK__OVERRIDABLE_GET(get_layout, "layout")
WK__OVERRIDABLE_GET(get_T, "T")
WK__OVERRIDABLE_GET(get_mT, "mT")
WK__OVERRIDABLE_GET(get_is_cpu, "is_cpu")
WK__OVERRIDABLE_GET(get_is_meta, "is_meta")
WK__OVERRIDABLE_GET(get_is_cuda, "is_cuda")
WK__OVERRIDABLE_GET(get_is_sparse, "is_sparse")
WK__OVERRIDABLE_GET(get_is_sparse_csr, "is_sparse_csr")
WK__OVERRIDABLE_GET(get_false, "is_quantized")

static PyGetSetDef tensor_getset[] = {
    {"shape", get_shape_entry, NULL, "The sizes, as a Size.", NULL},
    {"dtype", get_dtype_entry, NULL, "The element type.", NULL},
    {"device", get_device_entry, NULL, "Where the elements are.", NULL},
    {"ndim", get_ndim_entry, NULL, "The number of dimensions.", NULL},
    {"itemsize", get_itemsize_entry, NULL, "Bytes an element.", NULL},
    {"nbytes", get_nbytes_entry, NULL, "Bytes of all elements.", NULL},
    {"layout", get_layout_entry, NULL, "torch.strided, or how a sparse tensor lies.", NULL},
    {"T", get_T_entry, NULL, "All dimensions reversed.", NULL},
    {"mT", get_mT_entry, NULL, "The last two dimensions swapped.", NULL},
    {"is_cpu", get_is_cpu_entry, NULL, NULL, NULL},
    {"is_meta", get_is_meta_entry, NULL, NULL, NULL},
    {"is_cuda", get_is_cuda_entry, NULL, NULL, NULL},
    {"is_sparse", get_is_sparse_entry, NULL, NULL, NULL},
    {"is_sparse_csr", get_is_sparse_csr_entry, NULL, NULL, NULL},
    {"is_quantized", get_false_entry, NULL, NULL, NULL},
    {"is_ipu", get_false_entry, NULL, NULL, NULL},
    {"is_maia", get_false_entry, NULL, NULL, NULL},
    {"is_mkldnn", get_false_entry, NULL, NULL, NULL},
    {"is_mtia", get_false_entry, NULL, NULL, NULL},
    {"is_vulkan", get_false_entry, NULL, NULL, NULL},
    {"is_xla", get_false_entry, NULL, NULL, NULL},
    {"is_xpu", get_false_entry, NULL, NULL, NULL},
    {"is_mps", get_false_entry, NULL, NULL, NULL},
    {"is_nested", get_false_entry, NULL, NULL, NULL},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {0}};

/* ================================================== methods ===================================================== */

static PyObject *one_dim(PyObject *self, PyObject *const *args, Py_ssize_t n, const wk_int *list,
                         const char *what) {  // -> new
  wk_tensor *t = wk__tensor_of(self);
  wk_int dim;
  int d;
  if (n > 1) return PyErr_Format(PyExc_TypeError, "%s() takes at most 1 argument", what);
  if (!PyIndex_Check(args[0]))
    return PyErr_Format(PyExc_TypeError, "%s(): argument 'dim' (position 1) must be int, not %s", what,
                        Py_TYPE(args[0])->tp_name);
  if (wk__int_from_python(state_of(self), args[0], &dim) < 0) return NULL;
  if (t->ndim == 0)
    return PyErr_Format(PyExc_IndexError, "Dimension specified as %lld but tensor has no dimensions",
                        (long long)dim.bits);
  if (wk__wrap_dim(dim.bits, t->ndim, &d) != WK_OK) return wk__raise(state_of(self));
  return PyLong_FromLongLong(wk_int_guard_value(list[d]));
}
static PyObject *tensor_size(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  wk_tensor *t = wk__tensor_of(self);
  if (keywords) n += PyTuple_GET_SIZE(keywords); /* size(dim=0) */
  return n && args[0] != Py_None ? one_dim(self, args, n, t->sizes, "size")
                                 : wk__size_object(state_of(self), t->sizes, t->ndim);
}
static PyObject *tensor_stride(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  wk_tensor *t = wk__tensor_of(self);
  if (keywords) n += PyTuple_GET_SIZE(keywords);
  if (n) return one_dim(self, args, n, t->strides, "stride");
  PyObject *tuple = PyTuple_New(t->ndim);
  for (int d = 0; tuple && d < t->ndim; d++)
    PyTuple_SET_ITEM(tuple, d, PyLong_FromLongLong(wk_int_guard_value(t->strides[d])));
  return tuple;
}
static PyObject *tensor_dim(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return PyLong_FromLong(wk__tensor_of(self)->ndim);
}
static PyObject *tensor_numel(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return PyLong_FromLongLong(wk_int_guard_value(wk__tensor_of(self)->numel));
}
static PyObject *tensor_storage_offset(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return PyLong_FromLongLong(wk_int_guard_value(wk__tensor_of(self)->offset));
}
static PyObject *tensor_is_contiguous(PyObject *self, PyObject *const *args, Py_ssize_t n,
                                      PyObject *keywords) {  // -> new
  const char *format = "contiguous_format";
  if (n) return PyErr_Format(PyExc_TypeError, "is_contiguous() takes 0 positional arguments but %zd was given", n);
  for (Py_ssize_t i = 0; keywords && i < PyTuple_GET_SIZE(keywords); i++) {
    PyObject *name = PyTuple_GET_ITEM(keywords, i);
    if (PyUnicode_CompareWithASCIIString(name, "memory_format") != 0)
      return PyErr_Format(PyExc_TypeError, "is_contiguous() got an unexpected keyword argument '%U'", name);
    if (!(format = wk__memory_format_name(state_of(self), args[i], "is_contiguous"))) return NULL;
  }
  return PyBool_FromLong(wk__is_contiguous_in(wk__tensor_of(self), format));
}
static PyObject *tensor_is_floating_point(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return PyBool_FromLong(wk_dtype_is_floating((wk_dtype)wk__tensor_of(self)->dtype));
}
static PyObject *tensor_is_complex(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return PyBool_FromLong(wk_dtype_is_complex((wk_dtype)wk__tensor_of(self)->dtype));
}
static PyObject *tensor_is_signed(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  uint8_t dtype = wk__tensor_of(self)->dtype;
  return PyBool_FromLong(dtype != WK_BOOL && !wk__dtype_is_unsigned(dtype));
}

static PyObject *tensor_new_tensor(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  wk_dtype dtype = (wk_dtype)wk__tensor_of(self)->dtype;
  if (n < 1) return PyErr_Format(PyExc_TypeError, "new_tensor() missing 1 required positional arguments: \"data\"");
  for (Py_ssize_t k = 0; keywords && k < PyTuple_GET_SIZE(keywords); k++)
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(keywords, k), "dtype") == 0 && args[n + k] != Py_None &&
        wk__dtype_from_python(state_of(self), args[n + k], &dtype) < 0)
      return NULL;
  wk_tensor *t = wk__tensor_from_python(state_of(self), args[0], dtype);
  wk__mark_if_inference(t);
  return t ? wk__wrap(state_of(self), t) : NULL;
}

static PyObject *tensor_reversed(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return PyObject_CallMethod(self, "flip", "i", 0);
}

static PyObject *tensor_element_size(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return PyLong_FromSize_t(wk__itemsize(wk__tensor_of(self)));
}

WK__OVERRIDABLE(tensor_size, "size")
WK__OVERRIDABLE(tensor_stride, "stride")
WK__OVERRIDABLE_ALONE(tensor_dim, "dim")
WK__OVERRIDABLE_ALONE(tensor_numel, "numel")
WK__OVERRIDABLE_ALONE(tensor_storage_offset, "storage_offset")
WK__OVERRIDABLE_ALONE(tensor_element_size, "element_size")
WK__OVERRIDABLE(tensor_is_contiguous, "is_contiguous")
WK__OVERRIDABLE_ALONE(tensor_is_floating_point, "is_floating_point")
WK__OVERRIDABLE_ALONE(tensor_is_complex, "is_complex")
WK__OVERRIDABLE_ALONE(tensor_is_signed, "is_signed")
WK__OVERRIDABLE(tensor_new_tensor, "new_tensor")
WK__OVERRIDABLE_ALONE(tensor_reversed, "__reversed__")
WK__OVERRIDABLE_ONE(tensor_format, "__format__")

static PyMethodDef tensor_methods[] = {
    {"size", WK__METHOD(tensor_size_entry), WK__FAST_CALL, "The sizes, or the size of one dimension."},
    {"stride", WK__METHOD(tensor_stride_entry), WK__FAST_CALL,
     "The strides in elements, or the stride of one dimension."},
    {"dim", tensor_dim_entry, METH_NOARGS, "The number of dimensions."},
    {"ndimension", tensor_dim_entry, METH_NOARGS, "The number of dimensions."},
    {"numel", tensor_numel_entry, METH_NOARGS, "The number of elements."},
    {"nelement", tensor_numel_entry, METH_NOARGS, "The number of elements."},
    {"storage_offset", tensor_storage_offset_entry, METH_NOARGS, "Elements before the first one."},
    {"element_size", tensor_element_size_entry, METH_NOARGS, "Bytes an element."},
    {"is_contiguous", WK__METHOD(tensor_is_contiguous_entry), WK__FAST_CALL,
     "True for row-major elements without gaps."},
    {"is_floating_point", tensor_is_floating_point_entry, METH_NOARGS, NULL},
    {"is_complex", tensor_is_complex_entry, METH_NOARGS, NULL},
    {"is_signed", tensor_is_signed_entry, METH_NOARGS, NULL},
    {"new_tensor", WK__METHOD(tensor_new_tensor_entry), WK__FAST_CALL, NULL},
    {"__deepcopy__", wk__tensor_deepcopy, METH_O, NULL},
    {"__reversed__", tensor_reversed_entry, METH_NOARGS, NULL},
    {"__format__", tensor_format_entry, METH_O, NULL},
    {"_make_subclass", WK__METHOD(make_subclass), METH_FASTCALL | METH_STATIC,
     "A tensor of a subclass over the same data."},
    {0}};

/* ================================================== numbers ===================================================== */

static wk__state *state_of_either(PyObject *a, PyObject *b) {
  /* One of the two is a tensor: number slots are only reached through our type. */
  wk__state *state = wk__state_of_type(Py_TYPE(a));
  if (state) return state;
  PyErr_Clear();
  return wk__state_of_type(Py_TYPE(b));
}

/* parts: room for those of a complex number. */
static bool as_operand(wk__state *state, PyObject *o, wk_value *v, double parts[2]) {
  if (wk__is_tensor(state, o)) {
    *v = (wk_value){.tag = WK_VALUE_TENSOR, .tensor = wk__tensor_of(o)};
    return true;
  }
  if (PyComplex_Check(o)) {
    Py_complex number = PyComplex_AsCComplex(o);
    parts[0] = number.real, parts[1] = number.imag;
    *v = (wk_value){.tag = WK_VALUE_COMPLEX, .numbers = parts};
    return true;
  }
  if (!PyFloat_Check(o) && !PyLong_Check(o) && !wk__is_array_scalar(o)) return false;
  return wk__scalar_from_python(state, o, v) == 0;
}

/* What follows the operands takes its default. */
static PyObject *call_with_defaults(wk__state *state, const wk_op *op, wk_value *args, int given,
                                    wk_tensor *const *destinations) {  // -> new
  for (int i = given; i < op->schema.parameter_count; i++) args[i] = (wk_value){0};
  if (WK_UNLIKELY(wk__thread.mode.keys_on & WK__KEY_TRACE)) wk__settle_numbers(op, args);
  return wk__call_to_python(state, op, args, destinations);
}

/* An operator is the method of that name; with the tensor on the right alone, of the reversed one. */
static bool overridden_operator(wk__state *state, PyObject *a, PyObject *b, const char *name, const char *reversed_name,
                                PyObject **result) {
  if (wk__is_tensor(state, a)) return wk__overridden_method(state, name, (PyObject *[]){a, b}, 2, NULL, result);
  return reversed_name && wk__overridden_method(state, reversed_name, (PyObject *[]){b, a}, 2, NULL, result);
}
static bool overridden_alone(PyObject *self, const char *name, PyObject **result) {
  return wk__overrides(self) && wk__overridden_method(state_of(self), name, &self, 1, NULL, result);
}

/* self <op> other for (Tensor, Tensor) and (Tensor, number). */
static PyObject *binary(PyObject *a, PyObject *b, const wk_op *tensor_op, const wk_op *scalar_op,
                        const wk_op *reversed_op, const char *name, const char *reversed_name) {  // -> new
  wk__state *state = Py_TYPE(a)->tp_dealloc == tensor_dealloc   ? state_of(a)
                     : Py_TYPE(b)->tp_dealloc == tensor_dealloc ? state_of(b)
                                                                : state_of_either(a, b);
  PyObject *result;
  if (state && WK_UNLIKELY(state->overrides) && overridden_operator(state, a, b, name, reversed_name, &result))
    return result;
  wk_value args[WK__MAX_ARGS];
  double parts[2];
  if (!state || !as_operand(state, a, &args[0], parts) || !as_operand(state, b, &args[1], parts)) {
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NOTIMPLEMENTED;
  }
  if (args[0].tag == WK_VALUE_TENSOR) {
    const wk_op *op = args[1].tag == WK_VALUE_TENSOR ? tensor_op : scalar_op;
    return call_with_defaults(state, op, args, 2, NULL);
  }
  if (!reversed_op) { /* 5 // x, 5 % x */
    wk_tensor *number = wk__number_as_tensor(state, &args[0], args[1].tensor);
    if (!number) return NULL;
    args[0] = (wk_value){.tag = WK_VALUE_TENSOR, .tensor = number};
    PyObject *made = call_with_defaults(state, tensor_op, args, 2, NULL);
    wk__release(number);
    return made;
  }
  bool scalar_first = reversed_op->schema.parameters[0].type == WK__TYPE_SCALAR;
  if (!scalar_first) {
    wk_value number = args[0];
    args[0] = args[1];
    args[1] = number;
  }
  return call_with_defaults(state, reversed_op, args, 2, NULL);
}

static PyObject *in_place(PyObject *a, PyObject *b, const wk_op *tensor_op, const wk_op *scalar_op,
                          const char *name) {  // -> new
  wk__state *state = state_of(a);
  PyObject *result;
  if (WK_UNLIKELY(state->overrides) && overridden_operator(state, a, b, name, NULL, &result)) return result;
  wk_value args[WK__MAX_ARGS];
  args[0] = (wk_value){.tag = WK_VALUE_TENSOR, .tensor = wk__tensor_of(a)};
  double parts[2];
  if (!as_operand(state, b, &args[1], parts)) {
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NOTIMPLEMENTED;
  }
  wk_tensor *destination = args[0].tensor;
  return call_with_defaults(state, args[1].tag == WK_VALUE_TENSOR ? tensor_op : scalar_op, args, 2, &destination);
}

#define BINARY(name, tensor_op, scalar_op, reversed_op, method, reversed)                     \
  static PyObject *name(PyObject *a, PyObject *b) { /* -> new */                              \
    return binary(a, b, WK__OP(tensor_op), WK__OP(scalar_op), reversed_op, method, reversed); \
  }
#define IN_PLACE(name, tensor_op, scalar_op, method)                     \
  static PyObject *name(PyObject *a, PyObject *b) { /* -> new */         \
    return in_place(a, b, WK__OP(tensor_op), WK__OP(scalar_op), method); \
  }
BINARY(number_add, add_Tensor, add_Scalar, WK__OP(add_Scalar), "add", "add")
BINARY(number_sub, sub_Tensor, sub_Scalar, WK__OP(rsub_Scalar), "sub", "__rsub__")
BINARY(number_mul, mul_Tensor, mul_Scalar, WK__OP(mul_Scalar), "mul", "mul")
BINARY(number_mod, remainder_Tensor, remainder_Scalar, NULL, "remainder", "__rmod__")
BINARY(number_floordiv, floor_divide, floor_divide_Scalar, NULL, "__floordiv__", "__rfloordiv__")
BINARY(number_and, bitwise_and_Tensor, bitwise_and_Scalar, WK__OP(bitwise_and_Scalar), "__and__", "__rand__")
BINARY(number_or, bitwise_or_Tensor, bitwise_or_Scalar, WK__OP(bitwise_or_Scalar), "__or__", "__ror__")
BINARY(number_xor, bitwise_xor_Tensor, bitwise_xor_Scalar, WK__OP(bitwise_xor_Scalar), "__xor__", "__rxor__")
BINARY(number_lshift, bitwise_left_shift_Tensor, bitwise_left_shift_Tensor_Scalar,
       WK__OP(bitwise_left_shift_Scalar_Tensor), "__lshift__", "__rlshift__")
BINARY(number_rshift, bitwise_right_shift_Tensor, bitwise_right_shift_Tensor_Scalar,
       WK__OP(bitwise_right_shift_Scalar_Tensor), "__rshift__", "__rrshift__")
IN_PLACE(inplace_add, add_Tensor, add_Scalar, "add_")
IN_PLACE(inplace_sub, sub_Tensor, sub_Scalar, "sub_")
IN_PLACE(inplace_mul, mul_Tensor, mul_Scalar, "mul_")
IN_PLACE(inplace_div, div_Tensor, div_Scalar, "div_")
IN_PLACE(inplace_mod, remainder_Tensor, remainder_Scalar, "remainder_")
IN_PLACE(inplace_floordiv, floor_divide, floor_divide_Scalar, "__ifloordiv__")
IN_PLACE(inplace_and, bitwise_and_Tensor, bitwise_and_Scalar, "__iand__")
IN_PLACE(inplace_or, bitwise_or_Tensor, bitwise_or_Scalar, "__ior__")
IN_PLACE(inplace_xor, bitwise_xor_Tensor, bitwise_xor_Scalar, "__ixor__")
IN_PLACE(inplace_lshift, bitwise_left_shift_Tensor, bitwise_left_shift_Tensor_Scalar, "__ilshift__")
IN_PLACE(inplace_rshift, bitwise_right_shift_Tensor, bitwise_right_shift_Tensor_Scalar, "__irshift__")

static PyObject *unary(PyObject *self, const wk_op *op, const char *name) {  // -> new
  PyObject *result;
  if (WK_UNLIKELY(overridden_alone(self, name, &result))) return result;
  wk_value args[WK__MAX_ARGS];
  args[0] = (wk_value){.tag = WK_VALUE_TENSOR, .tensor = wk__tensor_of(self)};
  return call_with_defaults(state_of(self), op, args, 1, NULL);
}
static PyObject *number_neg(PyObject *self) { return unary(self, WK__OP(neg), "neg"); }  // -> new
static PyObject *number_abs(PyObject *self) { return unary(self, WK__OP(abs), "abs"); }  // -> new
static PyObject *number_invert(PyObject *self) {                                         // -> new
  if (!wk_dtype_is_integral((wk_dtype)wk__tensor_of(self)->dtype, true))
    return PyErr_Format(PyExc_TypeError, "~ (operator.invert) is only implemented on integer and Boolean-type tensors");
  return unary(self, WK__OP(bitwise_not), "__invert__");
}
static PyObject *number_pos(PyObject *self) {  // -> new
  PyObject *result;
  return overridden_alone(self, "__pos__", &result) ? result : Py_NewRef(self);
}

/* number / tensor is reciprocal times number, as in PyTorch. */
static PyObject *number_div(PyObject *a, PyObject *b) {  // -> new
  wk__state *state = state_of_either(a, b);
  if (!state) return NULL;
  if (wk__is_tensor(state, a)) return binary(a, b, WK__OP(div_Tensor), WK__OP(div_Scalar), NULL, "div", NULL);
  PyObject *handed;
  if (state->overrides && overridden_operator(state, a, b, "div", "__rtruediv__", &handed)) return handed;
  PyObject *inverse = unary(b, WK__OP(reciprocal), "reciprocal");
  PyObject *result = inverse ? PyNumber_Multiply(inverse, a) : NULL;
  Py_XDECREF(inverse);
  return result;
}
static PyObject *number_pow(PyObject *a, PyObject *b, PyObject *modulus) {  // -> new
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return binary(a, b, WK__OP(pow_Tensor_Tensor), WK__OP(pow_Tensor_Scalar), WK__OP(pow_Scalar), "pow", "__rpow__");
}
static PyObject *inplace_pow(PyObject *a, PyObject *b, PyObject *modulus) {  // -> new
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return in_place(a, b, WK__OP(pow_Tensor_Tensor), WK__OP(pow_Tensor_Scalar), "pow_");
}
static PyObject *number_matmul(PyObject *a, PyObject *b) {  // -> new
  wk__state *state = state_of_either(a, b);
  if (!state) return NULL;
  PyObject *result;
  if (WK_UNLIKELY(state->overrides) && overridden_operator(state, a, b, "matmul", "__rmatmul__", &result))
    return result;
  if (!wk__is_tensor(state, a) || !wk__is_tensor(state, b)) Py_RETURN_NOTIMPLEMENTED;
  wk_value args[] = {{.tag = WK_VALUE_TENSOR, .tensor = wk__tensor_of(a)},
                     {.tag = WK_VALUE_TENSOR, .tensor = wk__tensor_of(b)}};
  return wk__call_to_python(state, WK__OP(matmul), args, NULL);
}

/* An array is compared as the tensor over its memory; only == does that, as in PyTorch. */
static PyObject *equals(PyObject *a, PyObject *b) {  // -> new
  PyObject *result = binary(a, b, WK__OP(eq_Tensor), WK__OP(eq_Scalar), NULL, "__eq__", NULL);
  if (result != Py_NotImplemented || !wk__is_array(b)) return result;
  PyObject *over = wk__from_numpy(state_of(a)->module, b);
  if (!over) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return Py_DECREF(result), NULL;
    PyErr_Clear(); /* of texts, say */
    return result;
  }
  Py_SETREF(result, binary(a, over, WK__OP(eq_Tensor), WK__OP(eq_Scalar), NULL, "__eq__", NULL));
  Py_DECREF(over);
  return result;
}

static PyObject *tensor_compare(PyObject *a, PyObject *b, int operator) {  // -> new
  switch (operator) {
    case Py_LT:
      return binary(a, b, WK__OP(lt_Tensor), WK__OP(lt_Scalar), NULL, "lt", NULL);
    case Py_LE:
      return binary(a, b, WK__OP(le_Tensor), WK__OP(le_Scalar), NULL, "le", NULL);
    case Py_EQ:
      return equals(a, b);
    case Py_NE:
      return binary(a, b, WK__OP(ne_Tensor), WK__OP(ne_Scalar), NULL, "ne", NULL);
    case Py_GT:
      return binary(a, b, WK__OP(gt_Tensor), WK__OP(gt_Scalar), NULL, "gt", NULL);
    default:
      return binary(a, b, WK__OP(ge_Tensor), WK__OP(ge_Scalar), NULL, "ge", NULL);
  }
}
static Py_hash_t tensor_hash(PyObject *self) { return wk__hash_of_address(self); }

/* ---- the one element as a Python number ---- */

/* type: what the number becomes, in the words for a complex one. */
static int the_element(PyObject *self, wk__scalar *out, const char *error, const char *type) {
  const wk_tensor *t = wk__tensor_of(self);
  if (!wk_int_eq(t->numel, wk_int_of(1)) || !t->storage) {
    PyErr_Format(PyExc_RuntimeError, error, (long long)wk_int_guard_value(t->numel));
    return -1;
  }
  if (wk__realize((wk_tensor *)t, "a tensor's value is used as a number") != WK_OK) {
    wk__raise(state_of(self));
    return -1;
  }
  Py_complex number;
  if (wk__complex_from_python(state_of(self), self, &number) && number.imag != 0) {
    PyErr_Format(PyExc_RuntimeError, "value cannot be converted to type %s without overflow", type);
    return -1;
  }
  wk__thread.warning = NULL;
  PyObject *read = wk__read_element(t, out) == WK_OK ? wk__warned(Py_NewRef(Py_None)) : wk__raise(state_of(self));
  Py_XDECREF(read);
  return read ? 0 : -1;
}
#define NO_SCALAR "a Tensor with %lld elements cannot be converted to Scalar"
static int truth_of(PyObject *steal_result) {
  int truth = steal_result ? PyObject_IsTrue(steal_result) : -1;
  Py_XDECREF(steal_result);
  return truth;
}
static int tensor_truth(PyObject *self) {
  const wk_tensor *t = wk__tensor_of(self);
  wk__scalar s;
  PyObject *result;
  if (WK_UNLIKELY(overridden_alone(self, "__bool__", &result))) return truth_of(result);
  if (wk_int_eq(t->numel, wk_int_of(0))) {
    PyErr_SetString(PyExc_RuntimeError, "Boolean value of Tensor with no values is ambiguous");
    return -1;
  }
  if (WK_UNLIKELY(t->inner != NULL) && wk__is_batched(t)) {
    (void)!wk__refuse_batched_choice();
    wk__raise(state_of(self));
    return -1;
  }
  Py_complex number;
  if (wk_int_eq(t->numel, wk_int_of(1)) && wk__complex_from_python(state_of(self), self, &number))
    return number.real != 0 || number.imag != 0;
  if (the_element(self, &s, "Boolean value of Tensor with more than one value is ambiguous", "bool") < 0) return -1;
  return s.category == WK__FLOAT_KIND ? s.d != 0 : s.i != 0;
}
static bool is_one_number(PyObject *self) {
  if (wk_int_eq(wk__tensor_of(self)->numel, wk_int_of(1))) return true;
  PyErr_SetString(PyExc_ValueError, "only one element tensors can be converted to Python scalars");
  return false;
}
static PyObject *number_float(PyObject *self) {  // -> new
  wk__scalar s;
  PyObject *result;
  if (WK_UNLIKELY(overridden_alone(self, "__float__", &result))) return result;
  if (!is_one_number(self)) return NULL;
  return the_element(self, &s, NO_SCALAR, "double") < 0 ? NULL : PyFloat_FromDouble(wk__scalar_double(s));
}
static PyObject *number_int(PyObject *self) {  // -> new
  wk__scalar s;
  PyObject *result;
  if (WK_UNLIKELY(overridden_alone(self, "__int__", &result))) return result;
  if (!is_one_number(self)) return NULL;
  if (the_element(self, &s, NO_SCALAR, "int64_t") < 0) return NULL;
  return s.category == WK__FLOAT_KIND ? PyLong_FromDouble(s.d) : PyLong_FromLongLong(s.i);
}
static PyObject *number_index(PyObject *self) {  // -> new
  wk__scalar s;
  PyObject *result;
  if (WK_UNLIKELY(overridden_alone(self, "__index__", &result))) return result;
  if (wk_dtype_is_floating((wk_dtype)wk__tensor_of(self)->dtype) ||
      !wk_int_eq(wk__tensor_of(self)->numel, wk_int_of(1)))
    return PyErr_Format(PyExc_TypeError, "only integer tensors of a single element can be converted to an index");
  return the_element(self, &s, NO_SCALAR, "int64_t") < 0 ? NULL : PyLong_FromLongLong(s.i);
}

/* ================================================== sequence ==================================================== */

static Py_ssize_t tensor_length(PyObject *self) {
  const wk_tensor *t = wk__tensor_of(self);
  PyObject *result;
  if (WK_UNLIKELY(overridden_alone(self, "__len__", &result))) {
    Py_ssize_t length = result ? PyNumber_AsSsize_t(result, PyExc_OverflowError) : -1;
    Py_XDECREF(result);
    return length;
  }
  if (t->ndim) return (Py_ssize_t)wk_int_guard_value(t->sizes[0]);
  PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor");
  return -1;
}

static PyObject *tensor_iter(PyObject *self) {  // -> new
  if (wk__tensor_of(self)->ndim == 0) return PyErr_Format(PyExc_TypeError, "iteration over a 0-d tensor");
  wk_value args[] = {{.tag = WK_VALUE_TENSOR, .tensor = wk__tensor_of(self)},
                     {.tag = WK_VALUE_INT, .integer = wk_int_of(0)}};
  PyObject *parts = WK_UNLIKELY(wk__overrides(self))
                        ? PyObject_CallMethod(self, "unbind", "i", 0)
                        : wk__call_to_python(state_of(self), WK__OP(unbind_int), args, NULL);
  PyObject *iterator = parts ? PyObject_GetIter(parts) : NULL;
  Py_XDECREF(parts);
  return iterator;
}

static int tensor_contains(PyObject *self, PyObject *element) {
  PyObject *result;
  if (WK_UNLIKELY(wk__overrides(self)) &&
      wk__overridden_method(state_of(self), "__contains__", (PyObject *[]){self, element}, 2, NULL, &result))
    return truth_of(result);
  PyObject *hits = PyObject_RichCompare(self, element, Py_EQ);
  if (hits && PyBool_Check(hits)) { /* Python's own answer, for what the tensor cannot be compared with */
    Py_DECREF(hits);
    PyErr_Format(PyExc_RuntimeError, "Tensor.__contains__ only supports Tensor or scalar, but you passed in a %R.",
                 (PyObject *)Py_TYPE(element));
    return -1;
  }
  PyObject *any = hits ? PyObject_CallMethod(hits, "any", NULL) : NULL;
  int truth = any ? PyObject_IsTrue(any) : -1;
  Py_XDECREF(hits);
  Py_XDECREF(any);
  return truth;
}

/* ================================================== the type ==================================================== */

static PyMemberDef tensor_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(wk__python_tensor, weak_references), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(wk__python_tensor, dict), READONLY, NULL},
    {0}};

static PyType_Slot tensor_slots[] = {
    {Py_tp_doc, "A multi-dimensional array of one dtype, with automatic differentiation."},
    {Py_tp_new, tensor_new},
    {Py_tp_dealloc, tensor_dealloc},
    {Py_tp_traverse, tensor_traverse},
    {Py_tp_clear, tensor_clear},
    {Py_tp_repr, tensor_repr},
    {Py_tp_hash, tensor_hash},
    {Py_tp_richcompare, tensor_compare},
    {Py_tp_setattro, tensor_setattro},
    {Py_tp_iter, tensor_iter},
    {Py_tp_getset, tensor_getset},
    {Py_tp_members, tensor_members},
    {Py_tp_methods, tensor_methods},
    {Py_nb_add, number_add},
    {Py_nb_subtract, number_sub},
    {Py_nb_multiply, number_mul},
    {Py_nb_true_divide, number_div},
    {Py_nb_floor_divide, number_floordiv},
    {Py_nb_remainder, number_mod},
    {Py_nb_power, number_pow},
    {Py_nb_matrix_multiply, number_matmul},
    {Py_nb_negative, number_neg},
    {Py_nb_positive, number_pos},
    {Py_nb_absolute, number_abs},
    {Py_nb_invert, number_invert},
    {Py_nb_and, number_and},
    {Py_nb_or, number_or},
    {Py_nb_xor, number_xor},
    {Py_nb_lshift, number_lshift},
    {Py_nb_rshift, number_rshift},
    {Py_nb_bool, tensor_truth},
    {Py_nb_int, number_int},
    {Py_nb_float, number_float},
    {Py_nb_index, number_index},
    {Py_nb_inplace_add, inplace_add},
    {Py_nb_inplace_subtract, inplace_sub},
    {Py_nb_inplace_multiply, inplace_mul},
    {Py_nb_inplace_true_divide, inplace_div},
    {Py_nb_inplace_floor_divide, inplace_floordiv},
    {Py_nb_inplace_remainder, inplace_mod},
    {Py_nb_inplace_power, inplace_pow},
    {Py_nb_inplace_and, inplace_and},
    {Py_nb_inplace_or, inplace_or},
    {Py_nb_inplace_xor, inplace_xor},
    {Py_nb_inplace_lshift, inplace_lshift},
    {Py_nb_inplace_rshift, inplace_rshift},
    {Py_mp_length, tensor_length},
    {Py_mp_subscript, wk__tensor_get_item},
    {Py_mp_ass_subscript, wk__tensor_set_item},
    {Py_sq_contains, tensor_contains},
    {Py_bf_getbuffer, wk__tensor_get_buffer},
    {Py_bf_releasebuffer, wk__tensor_release_buffer},
    {0, NULL}};

static PyType_Spec tensor_spec = {
    .name = "wick.Tensor",
    .basicsize = sizeof(wk__python_tensor),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = tensor_slots,
};

static PyMethodDef module_functions[] = {{"_set_parameter_type", set_parameter_type, METH_O, NULL}, {0}};

static int add_method_table(PyTypeObject *type, PyMethodDef *table) {
  for (PyMethodDef *m = table; m->ml_name; m++) {
    PyObject *descriptor = m->ml_flags & METH_STATIC ? PyCFunction_New(m, NULL) : PyDescr_NewMethod(type, m);
    int status = descriptor ? PyDict_SetItemString(wk__type_dict(type), m->ml_name, descriptor) : -1;
    Py_XDECREF(descriptor);
    if (status < 0) return -1;
  }
  return 0;
}

static int add_getset_table(PyTypeObject *type, PyGetSetDef *table) {
  for (PyGetSetDef *g = table; g->name; g++) {
    PyObject *descriptor = PyDescr_NewGetSet(type, g);
    int status = descriptor ? PyDict_SetItemString(wk__type_dict(type), g->name, descriptor) : -1;
    Py_XDECREF(descriptor);
    if (status < 0) return -1;
  }
  return 0;
}

int wk__add_tensor_type(PyObject *module, wk__state *state) {
  state->tensor_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &tensor_spec, NULL);
  if (!state->tensor_type) return -1;
  PyTypeObject *type = state->tensor_type;
  type->tp_name = "Tensor"; /* what messages say, as in PyTorch; __module__ stays */
  if (add_method_table(type, wk__tensor_autograd_methods) < 0 ||
      add_method_table(type, wk__tensor_interop_methods) < 0 ||
      add_method_table(type, wk__tensor_conversion_methods) < 0)
    return -1;
  if (add_method_table(type, wk__tensor_complex_methods) < 0) return -1;
  if (add_getset_table(type, wk__tensor_autograd_getset) < 0) return -1;
  if (add_getset_table(type, wk__tensor_complex_getset) < 0) return -1;
  PyType_Modified(type);
  if (PyModule_AddFunctions(module, module_functions) < 0) return -1;
  return PyModule_AddObjectRef(module, "Tensor", (PyObject *)type);
}
