/* Tensor's methods and attributes that concern gradients; tensor_type.c puts the two tables into the type.
 * In: what programs pass, checked as PyTorch checks it. Tests: tests/python/test_autograd.py. */
#include "dynamo/cpython/objects.h"
#include "levels/levels.h"
#include "python/autograd/autograd.h"
#include "python/calls/override.h"
#include "trace/trace.h"

static wk__state *state_of(PyObject *self) { return ((wk__python_tensor *)self)->state; }

static PyObject *none_or_raise(PyObject *self, wk_status status) {  // -> new
  if (status != WK_OK) return wk__raise(state_of(self));
  Py_RETURN_NONE;
}
static PyObject *self_or_raise(PyObject *self, wk_status status) {  // -> new
  return status == WK_OK ? Py_NewRef(self) : wk__raise(state_of(self));
}
static int zero_or_raise(PyObject *self, wk_status status) {
  return status == WK_OK ? 0 : (wk__raise(state_of(self)), -1);
}

/* =================================================== methods ==================================================== */

static PyObject *tensor_backward(PyObject *self, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"gradient", "retain_graph", "create_graph", "inputs", NULL};
  PyObject *gradient = Py_None, *retain = Py_None, *inputs = Py_None;
  int create = 0;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "|OOpO:backward", names, &gradient, &retain, &create, &inputs))
    return NULL;
  int keep = retain == Py_None ? create : PyObject_IsTrue(retain);
  if (keep < 0) return NULL;
  wk__backward_arguments a = {.tensors = self,
                              .grads = gradient,
                              .inputs = inputs,
                              .retain_graph = keep,
                              .create_graph = create,
                              .allow_unused = true,
                              .accumulate = true};
  return wk__backward_from_python(state_of(self), &a);
}

static PyObject *tensor_register_hook(PyObject *self, PyObject *hook) {  // -> new
  return wk__tensor_add_hook(state_of(self), self, hook, false);
}
static PyObject *tensor_register_accumulate_hook(PyObject *self, PyObject *hook) {  // -> new
  return wk__tensor_add_hook(state_of(self), self, hook, true);
}

static PyObject *tensor_retain_grad(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return none_or_raise(self, wk__retain_grad(wk__tensor_of(self)));
}

static PyObject *tensor_requires_grad_(PyObject *self, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"requires_grad", NULL};
  PyObject *value = Py_True;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:requires_grad_", names, &value)) return NULL;
  if (!PyBool_Check(value))
    return PyErr_Format(PyExc_TypeError, "requires_grad_(): argument 'requires_grad' (position 1) must be bool, not %s",
                        wk__type_name(Py_TYPE(value)));
  const wk__level *level = wk__thread.mode.level;
  if (WK_UNLIKELY(level && level->kind != WK__LEVEL_FORWARD))
    return PyErr_Format(
        PyExc_RuntimeError,
        "You are attempting to call Tensor.requires_grad_() (or perhaps using torch.autograd.functional.* "
        "APIs) inside of a function being transformed by a functorch transform. This is unsupported, please "
        "attempt to use the functorch transforms (e.g. grad, vjp, jacrev, jacfwd, hessian) or call "
        "requires_grad_() outside of a function being transformed instead.");
  return self_or_raise(self, wk_set_requires_grad(wk__tensor_of(self), value == Py_True));
}

static PyObject *tensor_detach_(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  wk_tensor *t = wk__tensor_of(self);
  if (t->base) {
    PyErr_SetString(PyExc_RuntimeError,
                    "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel (DDP) "
                    "for training, and gradient_as_bucket_view is set as True, gradients are views of DDP buckets, and "
                    "hence detach_() cannot be called on these gradients. To fix this error, please refer to the "
                    "Optimizer.zero_grad() function in torch/optim/optimizer.py as the solution.");
    return NULL;
  }
  wk__detach_in_place(t);
  return Py_NewRef(self);
}

static PyObject *tensor_is_view(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return PyBool_FromLong(wk__tensor_of(self)->base != NULL);
}
static PyObject *tensor_is_inference(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return PyBool_FromLong((wk__tensor_of(self)->keys & WK__KEY_INFERENCE) != 0);
}

WK__OVERRIDABLE_TUPLE(tensor_backward, "backward")
WK__OVERRIDABLE_ONE(tensor_register_hook, "register_hook")
WK__OVERRIDABLE_ONE(tensor_register_accumulate_hook, "register_post_accumulate_grad_hook")
WK__OVERRIDABLE_ALONE(tensor_retain_grad, "retain_grad")
WK__OVERRIDABLE_TUPLE(tensor_requires_grad_, "requires_grad_")
WK__OVERRIDABLE_ALONE(tensor_detach_, "detach_")
WK__OVERRIDABLE_ALONE(tensor_is_view, "_is_view")
WK__OVERRIDABLE_ALONE(tensor_is_inference, "is_inference")

PyMethodDef wk__tensor_autograd_methods[] = {
    {"backward", (PyCFunction)(void (*)(void))tensor_backward_entry, METH_VARARGS | METH_KEYWORDS,
     "backward(gradient=None, retain_graph=None, create_graph=False, inputs=None)\n\n"
     "Adds to .grad of the leaves that this tensor was computed from.\n\n    loss = (x * w).sum()\n    "
     "loss.backward()"},
    {"register_hook", tensor_register_hook_entry, METH_O,
     "register_hook(hook) -> RemovableHandle\n\nhook(grad) runs when the gradient is known; a tensor replaces it."},
    {"register_post_accumulate_grad_hook", tensor_register_accumulate_hook_entry, METH_O,
     "register_post_accumulate_grad_hook(hook) -> RemovableHandle\n\nhook(self) runs after .grad of a leaf was "
     "updated."},
    {"retain_grad", tensor_retain_grad_entry, METH_NOARGS, "retain_grad(): keep .grad of a tensor that is not a leaf."},
    {"requires_grad_", (PyCFunction)(void (*)(void))tensor_requires_grad__entry, METH_VARARGS | METH_KEYWORDS,
     "requires_grad_(requires_grad=True) -> self"},
    {"detach_", tensor_detach__entry, METH_NOARGS, "detach_() -> self: forgets how the tensor was made."},
    {"_is_view", tensor_is_view_entry, METH_NOARGS, NULL},
    {"is_inference", tensor_is_inference_entry, METH_NOARGS, "is_inference() -> bool: made under inference_mode()."},
    {0}};

/* ==================================================== grad ====================================================== */

static PyObject *get_grad(PyObject *self, void *unused) {  // -> new
  (void)unused;
  wk_tensor *t = wk__tensor_of(self), *grad = wk_get_grad(t);
  if (grad) return wk__wrap(state_of(self), wk__retain(grad));
  bool expected = wk_is_leaf(t) || (t->autograd && t->autograd->retains_grad);
  if (!expected &&
      PyErr_WarnEx(
          PyExc_UserWarning,
          "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute "
          "won't be populated during autograd.backward(). If you indeed want the .grad field to be populated "
          "for a non-leaf Tensor, use .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor "
          "by mistake, make sure you access the leaf Tensor instead. See github.com/pytorch/pytorch/pull/30531 "
          "for more informations.",
          1) < 0)
    return NULL;
  Py_RETURN_NONE;
}

/* The C++ names that PyTorch's message has for element types. */
static const char *c_name(wk_dtype dtype) {
  static const char *const names[WK_DTYPE_COUNT] = {[WK_BOOL] = "bool",
                                                    [WK_UINT8] = "unsigned char",
                                                    [WK_INT8] = "signed char",
                                                    [WK_INT16] = "short",
                                                    [WK_INT32] = "int",
                                                    [WK_INT64] = "long",
                                                    [WK_UINT16] = "unsigned short",
                                                    [WK_UINT32] = "unsigned int",
                                                    [WK_UINT64] = "unsigned long",
                                                    [WK_FLOAT16] = "c10::Half",
                                                    [WK_BFLOAT16] = "c10::BFloat16",
                                                    [WK_FLOAT32] = "float",
                                                    [WK_FLOAT64] = "double",
                                                    [WK_COMPLEX64] = "c10::complex<float>",
                                                    [WK_COMPLEX128] = "c10::complex<double>"};
  return names[dtype] ? names[dtype] : wk_dtype_name(dtype);
}

static int wrong_grad_dtype(const wk_tensor *t, const wk_tensor *grad) {
  PyErr_Format(
      PyExc_RuntimeError,
      "attempting to assign a gradient with dtype '%s' to a tensor with grad_dtype '%s'. The gradient must "
      "match the tensor's grad_dtype (defaults to the tensor's dtype). You can set the tensor's grad_dtype "
      "attribute with a specific dtype, or None to allow any dtype. Set grad_dtype with caution. Diverging the "
      "dtypes of a tensor and its gradient may break downstream systems that assume they match.",
      c_name((wk_dtype)grad->dtype), wk__dtype_legacy(wk_get_grad_dtype(t)));
  return -1;
}
static int wrong_grad_size(const wk_tensor *t, const wk_tensor *grad) {
  wk__string given = {0}, own = {0};
  wk__print_sizes(&given, grad->sizes, grad->ndim);
  wk__print_sizes(&own, t->sizes, t->ndim);
  PyErr_Format(PyExc_RuntimeError,
               "attempting to assign a gradient of size '%s' to a tensor of size '%s'. Please ensure that the gradient "
               "and the tensor are the same size",
               given.text ? given.text : "?", own.text ? own.text : "?");
  wk__string_release(&given);
  wk__string_release(&own);
  return -1;
}

static int set_grad(PyObject *self, PyObject *value, void *unused) {
  (void)unused;
  wk_tensor *t = wk__tensor_of(self);
  if (!value || value == Py_None) return zero_or_raise(self, wk_set_grad(t, NULL));
  if (!wk__is_tensor(state_of(self), value)) {
    PyErr_Format(PyExc_TypeError, "assigned grad expected to be a Tensor or None but got grad of type %s",
                 wk__type_name(Py_TYPE(value)));
    return -1;
  }
  wk_tensor *grad = wk__tensor_of(value);
  if (grad == t) {
    PyErr_SetString(PyExc_RuntimeError, "can't assign Variable as its own grad");
    return -1;
  }
  wk_dtype wanted = wk_get_grad_dtype(t);
  if (wanted != WK_DTYPE_NONE && (wk_dtype)grad->dtype != wanted) return wrong_grad_dtype(t, grad);
  if (!wk__same_sizes(grad, t)) return wrong_grad_size(t, grad);
  return zero_or_raise(self, wk_set_grad(t, grad));
}

static PyObject *get_grad_dtype(PyObject *self, void *unused) {  // -> new
  (void)unused;
  const wk_tensor *t = wk__tensor_of(self);
  if (!wk_is_leaf(t)) return PyErr_Format(PyExc_RuntimeError, "grad_dtype can only be accessed on leaf tensors.");
  wk_dtype dtype = wk_get_grad_dtype(t);
  if (dtype == WK_DTYPE_NONE) Py_RETURN_NONE;
  return wk__dtype_object(state_of(self), dtype);
}
static int wrong_before(wk_dtype dtype, const wk_tensor *grad) {
  PyErr_Format(PyExc_RuntimeError,
               "Cannot set grad_dtype to '%s' because there is already a gradient with dtype '%s'. Please clear the "
               "gradient (.grad = None) before changing grad_dtype, or ensure the new grad_dtype matches the existing "
               "gradient's dtype.",
               wk__dtype_legacy(dtype), c_name((wk_dtype)grad->dtype));
  return -1;
}
static int set_grad_dtype(PyObject *self, PyObject *value, void *unused) {
  (void)unused;
  wk_dtype dtype = WK_DTYPE_NONE;
  if (!value) {
    PyErr_SetString(PyExc_RuntimeError, "grad_dtype cannot be deleted");
    return -1;
  }
  if (value != Py_None && Py_TYPE(value) != state_of(self)->dtype_type) {
    PyErr_Format(PyExc_RuntimeError, "grad_dtype must be a torch.dtype or None, but got %s",
                 wk__type_name(Py_TYPE(value)));
    return -1;
  }
  if (value != Py_None && wk__dtype_from_python(state_of(self), value, &dtype) < 0) return -1;
  wk_tensor *t = wk__tensor_of(self);
  const wk_tensor *grad = wk_is_leaf(t) ? wk_get_grad(t) : NULL;
  if (grad && dtype != WK_DTYPE_NONE && (wk_dtype)grad->dtype != dtype) return wrong_before(dtype, grad);
  return zero_or_raise(self, wk_set_grad_dtype(t, dtype));
}

/* =============================================== flags and history ============================================== */

static PyObject *get_requires_grad(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyBool_FromLong(wk_requires_grad(wk__tensor_of(self)));
}
static int set_requires_grad(PyObject *self, PyObject *value, void *unused) {
  (void)unused;
  wk_tensor *t = wk__tensor_of(self);
  wk_dtype dtype = (wk_dtype)t->dtype;
  if (!value || !PyBool_Check(value))
    PyErr_SetString(PyExc_RuntimeError, "requires_grad must be a bool");
  else if (value == Py_True && !wk_dtype_is_floating(dtype) && !wk_dtype_is_complex(dtype))
    PyErr_SetString(PyExc_RuntimeError, "only Tensors of floating point and complex dtype can require gradients");
  else
    return zero_or_raise(self, wk_set_requires_grad(t, value == Py_True));
  return -1;
}
static PyObject *get_is_leaf(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyBool_FromLong(wk_is_leaf(wk__tensor_of(self)));
}
static PyObject *get_retains_grad(PyObject *self, void *unused) {  // -> new
  (void)unused;
  const wk_tensor *t = wk__tensor_of(self);
  return PyBool_FromLong(t->autograd && t->autograd->retains_grad);
}

/* The current grad_fn (a view may get a new one). False with an exception. */
static bool current_grad_fn(PyObject *self, wk_node **out_node) {
  wk_error_clear();
  *out_node = wk__grad_fn(wk__tensor_of(self));
  if (*out_node || wk_error_category() == WK_OK) return true;
  wk__raise(state_of(self));
  return false;
}
static PyObject *get_grad_fn(PyObject *self, void *unused) {  // -> new
  (void)unused;
  wk_node *n;
  return current_grad_fn(self, &n) ? wk__wrap_node(state_of(self), wk__node_retain(n)) : NULL;
}
static PyObject *get_output_nr(PyObject *self, void *unused) {  // -> new
  (void)unused;
  wk_node *n;
  if (!current_grad_fn(self, &n)) return NULL;
  return PyLong_FromUnsignedLong(n ? wk__tensor_of(self)->autograd->result : 0);
}

static PyObject *get_version(PyObject *self, void *unused) {  // -> new
  (void)unused;
  const wk_tensor *t = wk__tensor_of(self);
  if (t->keys & WK__KEY_INFERENCE)
    return PyErr_Format(PyExc_RuntimeError, "Inference tensors do not track version counter.");
  return PyLong_FromUnsignedLong(wk__version(t));
}
static PyObject *get_base(PyObject *self, void *unused) {  // -> new
  (void)unused;
  wk_tensor *base = wk__tensor_of(self)->base;
  return base ? wk__wrap(state_of(self), wk__retain(base)) : Py_NewRef(Py_None);
}

/* ---- hooks as dicts ---- */

static PyObject *get_hooks(PyObject *self, void *accumulate) {  // -> new
  PyObject *dict = wk__tensor_hooks(wk__tensor_of(self), accumulate != NULL);
  return Py_NewRef(dict ? dict : Py_None);
}
static int set_hooks(PyObject *self, PyObject *dict, void *unused) {
  (void)unused;
  return wk__tensor_set_hooks(state_of(self), self, dict);
}

/* ==================================================== data ====================================================== */

wk_tensor *wk__detached_alias(wk_tensor *t) {
  wk_value args[] = {{.tag = WK_VALUE_TENSOR, .tensor = t}}, result = {0};
  wk__spec spec;
  wk__spec_of(&spec, t);
  if (!(wk__thread.mode.keys_on & WK__KEY_TRACE)) return wk__tensor_alias(t, &spec);
  if (wk_call(WK__OP(detach), args, NULL, &result) != WK_OK) return NULL;
  wk__release(result.tensor->base);
  result.tensor->base = NULL;
  return result.tensor;
}

static PyObject *get_data(PyObject *self, void *unused) {  // -> new
  (void)unused;
  wk_tensor *alias = wk__detached_alias(wk__tensor_of(self));
  if (alias && wk__version_detach(alias, 0) != WK_OK) {
    wk__release(alias);
    alias = NULL;
  }
  return wk__wrap(state_of(self), alias);
}

/* The tensor looks at other's memory from now on; its history, gradient, hooks and count of writes stay. */
static wk_status swap_data(wk_tensor *t, const wk_tensor *other) {
  wk__spec spec;
  if (!t->own_version) WK_TRY(wk__version_detach(t, wk__version(t)));
  wk__spec_of(&spec, other);
  wk_storage *old = t->storage;
  wk_tensor *base = t->base;
  if (other->storage) wk__storage_retain(other->storage);
  wk_status status = wk__tensor_set_geometry(t, &spec);
  t->storage = status == WK_OK ? other->storage : old;
  if (status != WK_OK) old = other->storage;
  if (old) wk__storage_release(old);
  if (status != WK_OK) return status;
  wk__tensor_share_inner(t, other);
  t->base = NULL; /* no longer a view of what it was a view of */
  wk__release(base);
  return WK_OK;
}

/* While calls are recorded somebody may repeat that; else nothing of it may be known to the graph. */
static wk_status take_data(wk_tensor *t, wk_tensor *other) {
  bool traced = wk__trace_is_let(t);
  if (!traced) WK_TRY(wk__realize(t, "the data of a tensor are set"));
  if (!traced) WK_TRY(wk__realize(other, "the data of a tensor are set"));
  if (traced) WK_TRY(wk__trace_leave_data(t, other));
  WK_TRY(swap_data(t, other));
  return traced ? wk__trace_take_data(t, other) : WK_OK;
}

static int set_data(PyObject *self, PyObject *value, void *unused) {
  (void)unused;
  wk_tensor *t = wk__tensor_of(self);
  if (!value) {
    PyErr_SetString(PyExc_RuntimeError, "Deleting tensor data is not allowed. Delete tensor instead!");
    return -1;
  }
  if (!wk__is_tensor(state_of(self), value)) {
    PyErr_Format(PyExc_TypeError, "Variable data has to be a tensor, but got %s", wk__type_name(Py_TYPE(value)));
    return -1;
  }
  wk_tensor *other = wk__tensor_of(value);
  wk_dtype dtype = (wk_dtype)other->dtype;
  if (wk_requires_grad(t) && !wk_dtype_is_floating(dtype) && !wk_dtype_is_complex(dtype)) {
    PyErr_SetString(PyExc_RuntimeError,
                    "data set to a tensor that requires gradients must be floating point or complex dtype");
    return -1;
  }
  return t == other ? 0 : zero_or_raise(self, take_data(t, other));
}

WK__OVERRIDABLE_GET(get_grad, "grad")
WK__OVERRIDABLE_SET(set_grad, "grad")
WK__OVERRIDABLE_GET(get_grad_dtype, "grad_dtype")
WK__OVERRIDABLE_SET(set_grad_dtype, "grad_dtype")
WK__OVERRIDABLE_GET(get_requires_grad, "requires_grad")
WK__OVERRIDABLE_SET(set_requires_grad, "requires_grad")
WK__OVERRIDABLE_GET(get_is_leaf, "is_leaf")
WK__OVERRIDABLE_GET(get_retains_grad, "retains_grad")
WK__OVERRIDABLE_GET(get_grad_fn, "grad_fn")
WK__OVERRIDABLE_GET(get_output_nr, "output_nr")
WK__OVERRIDABLE_GET(get_version, "_version")
WK__OVERRIDABLE_GET(get_base, "_base")
WK__OVERRIDABLE_GET(get_hooks, "_backward_hooks")
WK__OVERRIDABLE_SET(set_hooks, "_backward_hooks")
WK__OVERRIDABLE_GET(get_data, "data")
WK__OVERRIDABLE_SET(set_data, "data")

PyGetSetDef wk__tensor_autograd_getset[] = {
    {"grad", get_grad_entry, set_grad_entry, "The accumulated gradient, or None.", NULL},
    {"_grad", get_grad_entry, set_grad_entry, NULL, NULL},
    {"grad_dtype", get_grad_dtype_entry, set_grad_dtype_entry,
     "The dtype that a leaf's .grad has and gradients become, or None for any.", NULL},
    {"requires_grad", get_requires_grad_entry, set_requires_grad_entry,
     "Whether operations on the tensor are recorded.", NULL},
    {"is_leaf", get_is_leaf_entry, NULL, "Whether it was not computed by a recorded operation.", NULL},
    {"retains_grad", get_retains_grad_entry, NULL, "Whether .grad is kept though the tensor is not a leaf.", NULL},
    {"grad_fn", get_grad_fn_entry, NULL, "The node that made the tensor; None for leaves.", NULL},
    {"output_nr", get_output_nr_entry, NULL, "Which result of grad_fn it is.", NULL},
    {"_version", get_version_entry, NULL, "In-place writes so far.", NULL},
    {"_base", get_base_entry, NULL, "Of a view: the tensor that it looks at.", NULL},
    {"_backward_hooks", get_hooks_entry, set_hooks_entry, NULL, NULL},
    {"_post_accumulate_grad_hooks", get_hooks_entry, NULL, NULL, (void *)"accumulate"},
    {"data", get_data_entry, set_data_entry,
     "The same memory without history; writes through it have a count of their own.", NULL},
    {0}};
