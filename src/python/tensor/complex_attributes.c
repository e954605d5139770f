/* A tensor's parts as attributes (real, imag, H, mH), and what it says of itself: real.__set__ writes the part.
 * A conjugate is computed at once, so that no tensor is a view that notes that it is conjugated (is_conj is False) or
 * negated (is_neg). Tests: tests/python/test_complex.py. */
#include "dynamo/cpython/objects.h"
#include "python/calls/override.h"
#include "python/python.h"

static wk__state *state_of(PyObject *self) { return ((wk__python_tensor *)self)->state; }

static PyObject *call_one(PyObject *self, const wk_op *op) {  // -> new
  wk_value args[] = {{.tag = WK_VALUE_TENSOR, .tensor = wk__tensor_of(self)}};
  return wk__call_to_python(state_of(self), op, args, NULL);
}
static bool is_complex(PyObject *self) { return wk_dtype_is_complex((wk_dtype)wk__tensor_of(self)->dtype); }

static PyObject *get_real(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return is_complex(self) ? call_one(self, WK__OP(real)) : Py_NewRef(self);
}
static PyObject *get_imag(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return call_one(self, WK__OP(imag));
}
static PyObject *get_mH(PyObject *self, void *unused) {  // -> new
  (void)unused;
  int ndim = wk__tensor_of(self)->ndim;
  if (ndim < 2)
    return PyErr_Format(PyExc_RuntimeError,
                        "tensor.mH is only supported on matrices or batches of matrices. Got %d-D tensor.", ndim);
  return call_one(self, WK__OP(adjoint));
}
static PyObject *get_H(PyObject *self, void *unused) {  // -> new
  (void)unused;
  int ndim = wk__tensor_of(self)->ndim;
  if (ndim == 0 || ndim == 2) return ndim ? call_one(self, WK__OP(adjoint)) : call_one(self, WK__OP(conj));
  return PyErr_Format(PyExc_RuntimeError, "tensor.H is only supported on matrices (2-D tensors). Got %d-D tensor.%s",
                      ndim, ndim > 2 ? " For batches of matrices, consider using tensor.mH" : "");
}

static int set_part(PyObject *self, PyObject *value, PyObject *(*get)(PyObject *, void *)) {
  PyObject *part = value ? get(self, NULL) : NULL;
  if (!value) PyErr_SetString(PyExc_AttributeError, "a tensor's parts cannot be deleted");
  PyObject *number = part && !wk__is_tensor(state_of(self), value) ? value : NULL;
  PyObject *done = part ? PyObject_CallMethod(part, number ? "fill_" : "copy_", "O", value) : NULL;
  Py_XDECREF(part);
  Py_XDECREF(done);
  return done ? 0 : -1;
}
static int set_real(PyObject *self, PyObject *value, void *unused) {
  (void)unused;
  return set_part(self, value, get_real);
}
static int set_imag(PyObject *self, PyObject *value, void *unused) {
  (void)unused;
  return set_part(self, value, get_imag);
}

WK__OVERRIDABLE_GET(get_real, "real")
WK__OVERRIDABLE_GET(get_imag, "imag")
WK__OVERRIDABLE_SET(set_real, "real")
WK__OVERRIDABLE_SET(set_imag, "imag")
WK__OVERRIDABLE_GET(get_mH, "mH")
WK__OVERRIDABLE_GET(get_H, "H")

PyGetSetDef wk__tensor_complex_getset[] = {
    {"real", get_real_entry, set_real_entry, "The real parts, in the same memory; of a real tensor itself.", NULL},
    {"imag", get_imag_entry, set_imag_entry, "The imaginary parts, in the same memory.", NULL},
    {"mH", get_mH_entry, NULL, "The last two dimensions swapped, and the conjugate of that.", NULL},
    {"H", get_H_entry, NULL, "The conjugate transpose of a matrix.", NULL},
    {0}};

static PyObject *tensor_never(PyObject *self, PyObject *unused) {  // -> new
  (void)self, (void)unused;
  Py_RETURN_FALSE;
}
static PyObject *tensor_self(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return Py_NewRef(self);
}
static PyObject *tensor_complex(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  PyObject *item = PyObject_CallMethod(self, "item", NULL);
  PyObject *number = item ? PyObject_CallOneArg((PyObject *)&PyComplex_Type, item) : NULL;
  Py_XDECREF(item);
  return number;
}
WK__OVERRIDABLE_ALONE(tensor_never, "is_conj")
WK__OVERRIDABLE_ALONE(tensor_self, "resolve_conj")
WK__OVERRIDABLE_ALONE(tensor_complex, "__complex__")

PyMethodDef wk__tensor_complex_methods[] = {
    {"is_conj", tensor_never_entry, METH_NOARGS, "False: conjugates are computed at once."},
    {"is_neg", tensor_never_entry, METH_NOARGS, "False: negatives are computed at once."},
    {"resolve_conj", tensor_self_entry, METH_NOARGS, "The tensor, which is no view of a conjugate."},
    {"resolve_neg", tensor_self_entry, METH_NOARGS, "The tensor, which is no view of a negative."},
    {"__complex__", tensor_complex_entry, METH_NOARGS, NULL},
    {0}};
