/* t_, transpose_, squeeze_, unsqueeze_: the tensor itself gets the geometry of its view, and the view's place in the
 * tape. No memory is written. Arguments and their errors are those of the plain forms.
 * Tests: tests/python/test_inplace_views.py. */
#include "autograd/autograd.h"
#include "graph/trace.h"
#include "python/override.h"

/* A view of a base is derived from it again when it is next asked for; any other tensor becomes what `view`, made of
 * it, was. */
static wk_status take_history(wk_tensor *self, wk_tensor *view) {
  wk__edge edge;
  if (!wk_requires_grad(self)) return WK_OK;
  if (self->base) {
    if (self->autograd) self->autograd->view_version = wk__version(self) - 1;
    return WK_OK;
  }
  WK_TRY(wk__edge_of(view, &edge));
  wk_status status = edge.node ? wk__set_history(self, edge.node, edge.input) : WK_OK;
  wk__node_release(edge.node);
  return status;
}

static wk_status become(wk_tensor *self, wk_tensor *view) {
  wk__spec spec;
  wk__spec_of(&spec, view);
  WK_TRY(take_history(self, view));
  WK_TRY(wk__is_computed_here(self) ? wk__trace_become(self, view) : wk__tensor_set_geometry(self, &spec));
  if (self->storage) wk__version_bump(self);
  return WK_OK;
}

static PyObject *change(PyObject *self, const char *plain, PyObject *args, PyObject *keywords) {  // -> new
  wk__state *state = ((wk__python_tensor *)self)->state;
  wk_tensor *t = wk__tensor_of(self);
  bool known = wk__is_computed_here(t) || wk__realize(t, "a tensor's own shape is changed") == WK_OK;
  if (!known || wk__check_inplace(t) != WK_OK) return wk__raise(state);
  PyObject *method = PyObject_GetAttrString(self, plain);
  PyObject *view = method ? PyObject_Call(method, args, keywords) : NULL;
  Py_XDECREF(method);
  if (!view) return NULL;
  wk_status status = become(t, wk__tensor_of(view));
  Py_DECREF(view);
  return status == WK_OK ? Py_NewRef(self) : wk__raise(state);
}

#define IN_PLACE(name, plain)                                                 \
  static PyObject *name(PyObject *self, PyObject *args, PyObject *keywords) { \
    return change(self, plain, args, keywords);                               \
  }                                                                           \
  WK__OVERRIDABLE_TUPLE(name, #name)
IN_PLACE(t_, "t")
IN_PLACE(transpose_, "transpose")
IN_PLACE(squeeze_, "squeeze")
IN_PLACE(unsqueeze_, "unsqueeze")

#define METHOD(name, text) \
  { #name, (PyCFunction)(void (*)(void))name##_entry, METH_VARARGS | METH_KEYWORDS, text }
static PyMethodDef methods[] = {METHOD(t_, "t_() -> self, transposed."),
                                METHOD(transpose_, "transpose_(dim0, dim1) -> self, with these dims exchanged."),
                                METHOD(squeeze_, "squeeze_(dim=None) -> self, without dims of size 1."),
                                METHOD(unsqueeze_, "unsqueeze_(dim) -> self, with a dim of size 1."),
                                {0}};

int wk__add_inplace_views(wk__state *state) {
  PyObject *dict = state->tensor_type->tp_dict;
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
