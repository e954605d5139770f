/* t_, transpose_ and their other names, squeeze_, unsqueeze_, as_strided_: the tensor itself gets the geometry of its
 * view, and the view's place in the tape. No memory is written. Arguments and their errors are those of the plain
 * forms. Tests: tests/python/test_inplace_views.py. */
#include "autograd/autograd.h"
#include "dynamo/cpython/objects.h"
#include "python/calls/override.h"
#include "trace/trace.h"

/* A view of a base is derived from it again when it is next asked for; any other tensor becomes what `view`, made of
 * it, was. */
static wk_status take_history(wk_tensor *self, wk_tensor *view, const char *name) {
  wk__edge edge;
  if (!wk_requires_grad(self)) return WK_OK;
  if (self->base) {
    if (self->autograd) self->autograd->view_version = wk__version(self) - 1;
    return WK_OK;
  }
  WK_TRY(wk__edge_of(view, &edge));
  if (edge.node && !edge.node->name && !(edge.node->name = wk__strdup(name))) {
    wk__node_release(edge.node);
    return WK_OUT_OF_MEMORY;
  }
  wk_status status = edge.node ? wk__set_history(self, edge.node, edge.input) : WK_OK;
  wk__node_release(edge.node);
  return status;
}

static wk_status become(wk_tensor *self, wk_tensor *view, const char *name) {
  wk__spec spec;
  wk__spec_of(&spec, view);
  WK_TRY(wk__trace_may_become(self) ? wk__trace_become(self, view) : wk__tensor_set_geometry(self, &spec));
  wk__tensor_share_inner(self, view);
  WK_TRY(take_history(self, view, name));
  if (self->storage) wk__version_bump(self);
  return WK_OK;
}

static PyObject *change(PyObject *self, const char *plain, const char *name, PyObject *args,
                        PyObject *keywords) {  // -> new
  wk__state *state = ((wk__python_tensor *)self)->state;
  wk_tensor *t = wk__tensor_of(self);
  bool known = wk__trace_may_become(t) || wk__realize(t, "a tensor's own shape is changed") == WK_OK;
  if (!known || wk__check_inplace(t) != WK_OK) return wk__raise(state);
  PyObject *method = PyObject_GetAttrString(self, plain);
  PyObject *view = method ? PyObject_Call(method, args, keywords) : NULL;
  Py_XDECREF(method);
  if (!view) return NULL;
  wk_status status = become(t, wk__tensor_of(view), name);
  Py_DECREF(view);
  return status == WK_OK ? Py_NewRef(self) : wk__raise(state);
}

/* squeeze_ has three forms, as squeeze has. */
static const char *squeeze_name(PyObject *args, PyObject *keywords) {
  PyObject *dim = PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0) : NULL;
  if (!dim && keywords) dim = PyDict_GetItemString(keywords, "dim");
  bool list = PyTuple_GET_SIZE(args) > 1 || (dim && (PyTuple_Check(dim) || PyList_Check(dim)));
  return !dim ? "SqueezeBackward3" : list ? "SqueezeBackward5" : "SqueezeBackward4";
}

/* `name`: of the tape's node, as PyTorch numbers them. */
#define IN_PLACE(method, plain, name)                                           \
  static PyObject *method(PyObject *self, PyObject *args, PyObject *keywords) { \
    return change(self, plain, name, args, keywords);                           \
  }                                                                             \
  WK__OVERRIDABLE_TUPLE(method, #method)
IN_PLACE(t_, "t", "TBackward1")
IN_PLACE(transpose_, "transpose", "TransposeBackward1")
IN_PLACE(squeeze_, "squeeze", squeeze_name(args, keywords))
IN_PLACE(unsqueeze_, "unsqueeze", "UnsqueezeBackward1")
IN_PLACE(swapaxes_, "swapaxes", "TransposeBackward1")
IN_PLACE(swapdims_, "swapdims", "TransposeBackward1")
IN_PLACE(as_strided_, "as_strided", "AsStridedBackward1")

#define METHOD(name, text) \
  { #name, (PyCFunction)(void (*)(void))name##_entry, METH_VARARGS | METH_KEYWORDS, text }
static PyMethodDef methods[] = {METHOD(t_, "t_() -> self, transposed."),
                                METHOD(transpose_, "transpose_(dim0, dim1) -> self, with these dims exchanged."),
                                METHOD(squeeze_, "squeeze_(dim=None) -> self, without dims of size 1."),
                                METHOD(unsqueeze_, "unsqueeze_(dim) -> self, with a dim of size 1."),
                                METHOD(swapaxes_, "swapaxes_(axis0, axis1) -> self, with these dims exchanged."),
                                METHOD(swapdims_, "swapdims_(dim0, dim1) -> self, with these dims exchanged."),
                                METHOD(as_strided_,
                                       "as_strided_(size, stride, storage_offset=None) -> self, which "
                                       "looks at its memory with these."),
                                {0}};

int wk__add_inplace_views(wk__state *state) {
  PyObject *dict = wk__type_dict(state->tensor_type);
  for (PyMethodDef *m = methods; m->ml_name; m++) {
    PyObject *method = PyDescr_NewMethod(state->tensor_type, m);
    if (!method || PyDict_SetItemString(dict, m->ml_name, method) < 0) {
      Py_XDECREF(method);
      return -1;
    }
    Py_DECREF(method);
  }
  PyType_Modified(state->tensor_type);
  return 0;
}
