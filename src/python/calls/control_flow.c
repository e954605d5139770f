/* _branch_begin, _loop_begin, _control_next, _branch_end and _loop_end: around the calls of the functions of cond and
 * while_loop, which become an operator of the graph that is being recorded (compile/control/control.h).
 * _higher_order_ops/control_flow.py calls them. Tests: tests/python/capture/test_branches.py. */
#include "compile/control/control.h"
#include "python/calls/operators.h"
#include "python/python.h"
#include "trace/trace.h"

/* _branch_begin() */
static PyObject *branch_begin(PyObject *module, PyObject *none) {  // -> new
  (void)none;
  bool begun;
  if (wk__control_begin(&begun) != WK_OK) return wk__raise(wk__state_of_module(module));
  return PyBool_FromLong(begun);
}

/* Borrowed tensors of a list or tuple, in memory for wk__free; NULL with an exception. */
static wk_tensor **tensors_of(wk__state *state, PyObject *list, int *count) {
  PyObject *items = PySequence_Fast(list, "a list or tuple of tensors");
  if (!items) return NULL;
  Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
  wk_tensor **tensors = wk__alloc((size_t)n * sizeof *tensors + 1);
  bool good = tensors;
  if (!tensors) (void)wk__raise(state);
  for (Py_ssize_t i = 0; good && i < n; i++) {
    PyObject *item = PySequence_Fast_GET_ITEM(items, i);
    good = wk__is_tensor(state, item);
    if (good) tensors[i] = wk__tensor_of(item);
    if (!good) PyErr_SetString(PyExc_TypeError, "a list or tuple of tensors");
  }
  Py_DECREF(items); /* the caller's list holds them */
  *count = (int)n;
  if (good) return tensors;
  wk__free(tensors);
  return NULL;
}

/* What is no operator is no error: the functions are called otherwise. */
static PyObject *none_or_raise(wk__state *state, wk_status status) {  // -> new
  if (status == WK_OUT_OF_MEMORY) return wk__raise(state);
  if (wk__log_on(WK__LOG_BREAKS)) wk__log_print(WK__LOG_BREAKS, "control flow as Python: %s", wk_error_message());
  wk_error_clear();
  PyErr_Clear();
  Py_RETURN_NONE;
}

/* _control_next(results) */
static PyObject *control_next(PyObject *module, PyObject *results) {  // -> new
  wk__state *state = wk__state_of_module(module);
  int count;
  wk_tensor **tensors = tensors_of(state, results, &count);
  if (!tensors) return NULL;
  wk_status status = wk__control_next(tensors, count);
  wk__free(tensors);
  return status == WK_OK ? Py_NewRef(Py_None) : wk__raise(state);
}

static PyObject *give(wk__state *state, wk_status status, wk_value *list) {  // -> new
  if (status != WK_OK) return none_or_raise(state, status);
  PyObject *tuple = PyTuple_New(list->count);
  for (uint32_t i = 0; tuple && i < list->count; i++) {
    PyObject *t = wk__wrap(state, wk__retain(list->tensors[i]));
    if (t)
      PyTuple_SET_ITEM(tuple, i, t);
    else
      Py_CLEAR(tuple);
  }
  wk_value_release(list);
  return tuple;
}

/* What a loop carries when it begins: contiguous memory that nothing else has. None: nothing is recorded. */
static PyObject *loop_begin(PyObject *module, PyObject *leaves) {  // -> new
  wk__state *state = wk__state_of_module(module);
  int count;
  bool begun;
  wk_tensor **tensors = wk__tracer_current() ? tensors_of(state, leaves, &count) : NULL;
  if (!tensors) return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
  PyObject *tuple = PyTuple_New(count);
  for (int i = 0; tuple && i < count; i++) {
    wk_value args[] = {{.tag = WK_VALUE_TENSOR, .tensor = tensors[i]},
                       {.tag = WK_VALUE_STRING, .string = "contiguous_format"}};
    PyObject *copy = wk__call_to_python(state, WK__OP(clone), args, NULL);
    if (copy)
      PyTuple_SET_ITEM(tuple, i, copy);
    else
      Py_CLEAR(tuple);
  }
  wk__free(tensors);
  if (tuple && wk__control_begin(&begun) != WK_OK) {
    Py_DECREF(tuple);
    return wk__raise(state);
  }
  return tuple;
}

/* _branch_end(pred, results): a tuple; None where it is no operator, and for results None. */
static PyObject *branch_end(PyObject *module, PyObject *args) {  // -> new
  wk__state *state = wk__state_of_module(module);
  PyObject *pred, *results;
  int count = 0;
  wk_value list = {0};
  if (!PyArg_ParseTuple(args, "OO:_branch_end", &pred, &results)) return NULL;
  bool given = results != Py_None && wk__is_tensor(state, pred);
  wk_tensor **tensors = given ? tensors_of(state, results, &count) : NULL;
  PyErr_Clear();
  wk_tensor *value = wk__is_tensor(state, pred) ? wk__tensor_of(pred) : NULL;
  wk_status status = wk__control_end_branch(value, tensors, count, &list);
  wk__free(tensors);
  return give(state, status, &list);
}

/* _loop_end(carried, results): the same */
static PyObject *loop_end(PyObject *module, PyObject *args) {  // -> new
  wk__state *state = wk__state_of_module(module);
  PyObject *carried, *results;
  int count = 0, carried_count = 0;
  wk_value list = {0};
  if (!PyArg_ParseTuple(args, "OO:_loop_end", &carried, &results)) return NULL;
  wk_tensor **before = tensors_of(state, carried, &carried_count);
  wk_tensor **tensors = before && results != Py_None ? tensors_of(state, results, &count) : NULL;
  PyErr_Clear();
  bool fits = tensors && count == carried_count;
  wk_status status = wk__control_end_loop(before, fits ? tensors : NULL, count, &list);
  wk__free(before);
  wk__free(tensors);
  return give(state, status, &list);
}

static PyMethodDef functions[] = {
    {"_branch_begin", branch_begin, METH_NOARGS,
     "_branch_begin(): functions of control flow are called until _branch_end or _loop_end; False where nothing is "
     "recorded."},
    {"_loop_begin", loop_begin, METH_O,
     "_loop_begin(carried): the same, with what the functions are to be called with; None where nothing is recorded."},
    {"_control_next", control_next, METH_O, "_control_next(results): what the first function gave."},
    {"_branch_end", branch_end, METH_VARARGS,
     "_branch_end(pred, results): what the operator gives, or None where the functions make none; results None: it is "
     "given up."},
    {"_loop_end", loop_end, METH_VARARGS, "_loop_end(carried, results): the same of a loop."},
    {0}};

int wk__add_control_flow(PyObject *module) { return PyModule_AddFunctions(module, functions); }
