/* _score_begin and _score_end: around the calls of a program's functions of scores, which become a body of scores
 * (autograd/body.h). nn/attention/flex_attention.py calls them. In: what the functions gave. Out: nests as text and the
 * tensors that they read, or None where the functions are no such body. Tests: tests/python/test_flex_attention.py. */
#include "autograd/body.h"
#include "python/calls/operators.h"
#include "python/python.h"

static PyObject *wrap_values(wk__state *state, const wk__body *b) {  // -> new
  PyObject *values = PyTuple_New(1 + WK__BODY_PARAMS);
  for (int i = 0; values && i <= WK__BODY_PARAMS; i++) {
    PyObject *value = wk__wrap(state, wk__retain(i ? b->places[i - 1] : b->score));
    if (value)
      PyTuple_SET_ITEM(values, i, value);
    else
      Py_CLEAR(values);
  }
  return values;
}

/* Whether the device's kernel can do a body; an empty text: any. */
static bool device_does(wk_device device, const char *body) {
  const wk__device_type *type = wk__device_type_of(device);
  if (!type) wk_error_clear();
  return device.type == WK_CPU || (type && type->fuses_scores && type->fuses_scores(device, body));
}

/* The operators of a body have no forward mode: the parts of the formula have. */
static bool has_tangents(wk_tensor *const *operands) {
  for (int i = 0; i < 3; i++)
    if (wk__has_tangent(operands[i])) return true;
  return false;
}

/* _score_begin(dtype, differentiable, query, key, value) */
static PyObject *score_begin(PyObject *module, PyObject *args) {  // -> new
  wk__state *state = wk__state_of_module(module);
  PyObject *given, *tensors[3];
  wk_tensor *operands[3];
  int differentiable;
  wk_dtype dtype;
  if (!PyArg_ParseTuple(args, "OpOOO:_score_begin", &given, &differentiable, &tensors[0], &tensors[1], &tensors[2]))
    return NULL;
  if (wk__dtype_from_python(state, given, &dtype) < 0) return NULL;
  if (dtype != WK_FLOAT32 && dtype != WK_FLOAT64)
    return PyErr_Format(PyExc_ValueError, "_score_begin(): scores are float32 or float64");
  for (int i = 0; i < 3; i++) {
    if (!wk__is_tensor(state, tensors[i])) return PyErr_Format(PyExc_TypeError, "_score_begin(): tensors are wanted");
    operands[i] = wk__tensor_of(tensors[i]);
  }
  if (wk__thread.body || has_tangents(operands) || !device_does(operands[0]->device, "")) Py_RETURN_NONE;
  wk__body *b = wk__body_begin(dtype, operands[0]->device, differentiable);
  PyObject *values = b ? wrap_values(state, b) : wk__raise(state);
  if (!values) wk__body_release(b);
  return values;
}

static PyObject *captured_list(wk__state *state, const wk__body *b) {  // -> new
  PyObject *list = PyList_New(b->captured_count);
  for (int k = 0; list && k < b->captured_count; k++) {
    PyObject *t = wk__wrap(state, wk__retain(b->captured[k]));
    if (t)
      PyList_SET_ITEM(list, k, t);
    else
      Py_CLEAR(list);
  }
  return list;
}

static const char *text_of(const wk__string *s) { return s->text ? s->text : ""; }

static bool is_done_by(const wk__body *b, const wk__body_texts *texts) {
  const wk__string *all[] = {&texts->score, &texts->masked, &texts->derivative, &texts->captured};
  if (b->device.type == WK_CPU) return true;
  for (size_t i = 0; i < WK_COUNT(all); i++)
    if (all[i]->text && !device_does(b->device, all[i]->text)) return false;
  return true;
}

static PyObject *finish(wk__state *state, wk__body *b, PyObject *modified, PyObject *keep) {  // -> new
  bool given =
      (modified == Py_None || wk__is_tensor(state, modified)) && (keep == Py_None || wk__is_tensor(state, keep));
  wk__body_texts texts;
  if (!given || b->failed) Py_RETURN_NONE;
  wk_status status = wk__body_finish(b, modified == Py_None ? NULL : wk__tensor_of(modified),
                                     keep == Py_None ? NULL : wk__tensor_of(keep), &texts);
  if (status == WK_OUT_OF_MEMORY) return wk__raise(state);
  if (status != WK_OK) {
    wk_error_clear();
    PyErr_Clear();
    Py_RETURN_NONE;
  }
  if (!is_done_by(b, &texts)) {
    wk__body_texts_release(&texts);
    Py_RETURN_NONE;
  }
  PyObject *result = Py_BuildValue("ssssN", text_of(&texts.score), text_of(&texts.masked), text_of(&texts.derivative),
                                   text_of(&texts.captured), captured_list(state, b));
  wk__body_texts_release(&texts);
  return result;
}

/* _score_end(modified, keep): what the functions gave, None for one that there is not. */
static PyObject *score_end(PyObject *module, PyObject *args) {  // -> new
  PyObject *modified, *keep;
  wk__body *b = wk__thread.body;
  if (!PyArg_ParseTuple(args, "OO:_score_end", &modified, &keep)) return NULL;
  if (!b) return PyErr_Format(PyExc_RuntimeError, "_score_end(): nothing has begun");
  PyObject *result = finish(wk__state_of_module(module), b, modified, keep);
  wk__body_release(b);
  return result;
}

static PyMethodDef functions[] = {
    {"_score_begin", score_begin, METH_VARARGS,
     "_score_begin(dtype, differentiable, query, key, value): a score, its batch, head, query and key; until "
     "_score_end "
     "calls with them become a loop body. None inside of another, in forward mode, and where the device's attention "
     "takes "
     "none."},
    {"_score_end", score_end, METH_VARARGS,
     "_score_end(modified, keep): (score, masked, derivative, reads, captured), or None where it is no loop body."},
    {0}};

int wk__add_score_bodies(PyObject *module) { return PyModule_AddFunctions(module, functions); }
