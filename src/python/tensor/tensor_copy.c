/* copy.deepcopy of tensors: another tensor of the class, with a copy of the storage, of the gradient and of the
 * attributes.
 *
 * In: a tensor and the memo of the deep copy. Out: its copy. Invariant: tensors that share a storage share the copy's.
 * Tests: tests/python/test_serialization.py. */
#include "autograd/autograd.h"
#include "python/calls/override.h"
#include "python/data/interop.h"
#include "python/tensor/tensor_parts.h"
#include "wick/operators.h"

static wk__state *state_of(PyObject *self) { return ((wk__python_tensor *)self)->state; }

/* What is being traced, or has no bytes, is copied by an operator. */
static wk_tensor *copy_values(PyObject *self, PyObject *memo) {
  wk_tensor *t = wk__tensor_of(self);
  if (t->storage && !t->storage->trace && !(t->keys & WK__KEY_TRACE) && !(t->flags & WK__TENSOR_SYMBOLIC))
    return wk__tensor_over_copy(self, memo);
  wk_value args[] = {{.tag = WK_VALUE_TENSOR, .tensor = t}, {0}}, result = {0};
  bool before = wk_set_grad_enabled(false);
  wk_status status = wk_call(WK__OP(clone), args, NULL, &result);
  wk_set_grad_enabled(before);
  if (status == WK_OK) return result.tensor;
  (void)wk__raise(state_of(self));
  return NULL;
}

static int copy_grad(PyObject *self, PyObject *copy, PyObject *memo) {
  if (!wk_get_grad(wk__tensor_of(self))) return 0;
  PyObject *grad = PyObject_GetAttrString(self, "grad");
  PyObject *copied = grad ? PyObject_CallMethod(grad, "__deepcopy__", "O", memo) : NULL;
  int status = copied ? PyObject_SetAttrString(copy, "grad", copied) : -1;
  Py_XDECREF(copied);
  Py_XDECREF(grad);
  return status;
}

static int copy_attributes(PyObject *self, PyObject *copy, PyObject *memo) {
  PyObject *attributes = PyObject_GetAttrString(self, "__dict__"), *module = NULL, *copied = NULL, *own = NULL;
  int status = attributes ? 0 : -1;
  if (attributes && PyDict_Check(attributes) && PyDict_GET_SIZE(attributes)) {
    module = PyImport_ImportModule("copy");
    copied = module ? PyObject_CallMethod(module, "deepcopy", "OO", attributes, memo) : NULL;
    own = copied ? PyObject_GetAttrString(copy, "__dict__") : NULL;
    status = own ? PyDict_Update(own, copied) : -1;
  }
  Py_XDECREF(own);
  Py_XDECREF(copied);
  Py_XDECREF(module);
  Py_XDECREF(attributes);
  return status;
}

static PyObject *copied_tensor(PyObject *self, PyObject *memo) {  // -> new
  wk_tensor *t = wk__tensor_of(self), *values;
  if (!wk_is_leaf(t)) {
    PyErr_SetString(PyExc_RuntimeError,
                    "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
                    "moment.  If you were attempting to deepcopy a module, this may be because of a "
                    "torch.nn.utils.weight_norm usage, see https://github.com/pytorch/pytorch/pull/103001");
    return NULL;
  }
  if (!(values = copy_values(self, memo))) return NULL;
  if (wk_requires_grad(t) && wk_set_requires_grad(values, true) != WK_OK) {
    wk__release(values);
    return wk__raise(state_of(self));
  }
  PyObject *copy = wk__new_tensor_object(state_of(self), Py_TYPE(self), values);
  if (copy && (copy_grad(self, copy, memo) < 0 || copy_attributes(self, copy, memo) < 0)) Py_CLEAR(copy);
  return copy;
}

/* The object of a deep copy: leaves only, as PyTorch says. */
static PyObject *tensor_deepcopy(PyObject *self, PyObject *memo) {  // -> new
  if (!PyDict_Check(memo)) return PyErr_Format(PyExc_TypeError, "__deepcopy__() expects a dict, not %R", Py_TYPE(memo));
  PyObject *key = PyLong_FromVoidPtr(self), *known = key ? PyDict_GetItemWithError(memo, key) : NULL;
  if (known || !key || PyErr_Occurred()) {
    Py_XDECREF(key);
    return Py_XNewRef(known);
  }
  PyObject *copy = copied_tensor(self, memo);
  if (copy && PyDict_SetItem(memo, key, copy) < 0) Py_CLEAR(copy);
  Py_DECREF(key);
  return copy;
}
WK__OVERRIDABLE_ONE(tensor_deepcopy, "__deepcopy__")

PyObject *wk__tensor_deepcopy(PyObject *self, PyObject *memo) { return tensor_deepcopy_entry(self, memo); }
