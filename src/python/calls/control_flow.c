/* _branch_begin, _loop_begin, _scan_begin, _control_next, _branch_end, _loop_end and _scan_end: around the calls of the
 * functions of cond, while_loop, scan and map, which become an operator of the graph that is being recorded
 * (compile/control/control.h). _higher_order_ops/control_flow.py calls them.
 * Tests: tests/python/capture/test_branches.py, test_scans.py. */
#include "autograd/autograd.h"
#include "compile/control/control.h"
#include "ops/internal.h"
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

static wk_status copy_of(wk_tensor *t, wk_tensor **out) {
  wk_value args[] = {{.tag = WK_VALUE_TENSOR, .tensor = t}, {.tag = WK_VALUE_STRING, .string = "contiguous_format"}};
  wk_value copy = {0};
  WK_TRY(wk_call(WK__OP(clone), args, NULL, &copy));
  *out = copy.tensor;
  return WK_OK;
}

/* What a function is called with for something that is carried: contiguous memory that nothing else has. history: it
 * gets one, whatever the tensor has. */
static wk_status placeholder_of(wk_tensor *t, bool history, wk_tensor **out) {
  WK_TRY(copy_of(t, out));
  bool makes = history && !((*out)->keys & WK__KEY_AUTOGRAD);
  wk_status status = makes ? wk_set_requires_grad(*out, true) : WK_OK;
  if (status == WK_OK) return WK_OK;
  wk__release(*out);
  *out = NULL;
  return status;
}

static wk_status first_slice(wk_tensor *t, wk_tensor **out) {
  wk_value args[] = {wk__v_tensor(t), wk__v_int(0), wk__v_int(0)}, slice = {0};
  WK_TRY(wk_call(WK__OP(select_int), args, NULL, &slice));
  *out = slice.tensor;
  return WK_OK;
}

/* Takes the tensors, in the end, and the memory. NULL of them: that is the error. */
static PyObject *wrapped(wk__state *state, wk_status status, wk_tensor **steal_tensors, int count) {  // -> new
  PyObject *tuple = status == WK_OK ? PyTuple_New(count) : wk__raise(state);
  for (int i = 0; i < count; i++) {
    PyObject *t = tuple ? wk__wrap(state, wk__retain(steal_tensors[i])) : NULL;
    if (t)
      PyTuple_SET_ITEM(tuple, i, t);
    else
      Py_CLEAR(tuple);
    wk__release(steal_tensors[i]);
  }
  wk__free(steal_tensors);
  return tuple;
}

static PyObject *begin_repeated(wk__state *state, PyObject *steal_tuple) {  // -> new
  bool begun;
  if (!steal_tuple || wk__control_begin(&begun) == WK_OK) return steal_tuple;
  Py_DECREF(steal_tuple);
  return wk__raise(state);
}

static bool is_bit(unsigned long long bits, int i) { return i < 64 && bits >> i & 1; }

/* _loop_begin(leaves, again): placeholders, and the operands that they stand for. None: nothing is recorded. */
static PyObject *loop_begin(PyObject *module, PyObject *args) {  // -> new
  wk__state *state = wk__state_of_module(module);
  PyObject *leaves;
  unsigned long long again;
  int count;
  if (!PyArg_ParseTuple(args, "OK:_loop_begin", &leaves, &again)) return NULL;
  wk_tensor **tensors = wk__tracer_current() ? tensors_of(state, leaves, &count) : NULL;
  if (!tensors) return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
  wk_tensor **made = wk__alloc_zeroed((2 * (size_t)count + 1) * sizeof *made);
  wk_status status = made ? WK_OK : WK_OUT_OF_MEMORY;
  for (int i = 0; status == WK_OK && i < count; i++) {
    status = placeholder_of(tensors[i], is_bit(again, i), &made[i]);
    bool same = status == WK_OK && !is_bit(again, i);
    if (same)
      made[count + i] = wk__retain(made[i]);
    else if (status == WK_OK)
      status = copy_of(tensors[i], &made[count + i]);
  }
  wk__free(tensors);
  return begin_repeated(state, wrapped(state, status, made, made ? 2 * count : 0));
}

/* _scan_begin(leaves, carried, again): placeholders for what is carried, the first leaves, and for slices of the
 * others. None: nothing is recorded. */
static PyObject *scan_begin(PyObject *module, PyObject *args) {  // -> new
  wk__state *state = wk__state_of_module(module);
  PyObject *leaves;
  unsigned long long again;
  int count, carried;
  if (!PyArg_ParseTuple(args, "OiK:_scan_begin", &leaves, &carried, &again)) return NULL;
  wk_tensor **tensors = wk__tracer_current() ? tensors_of(state, leaves, &count) : NULL;
  if (!tensors) return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
  wk_tensor **made = wk__alloc_zeroed(((size_t)count + 1) * sizeof *made);
  wk_status status = made ? WK_OK : WK_OUT_OF_MEMORY;
  for (int i = 0; status == WK_OK && i < count; i++)
    status = i < carried ? placeholder_of(tensors[i], is_bit(again, i), &made[i]) : first_slice(tensors[i], &made[i]);
  wk__free(tensors);
  return begin_repeated(state, wrapped(state, status, made, made ? count : 0));
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

static PyObject *give_or_again(wk__state *state, wk_status status, uint64_t again, wk_value *list) {  // -> new
  if (!again) return give(state, status, list);
  wk_error_clear();
  return PyLong_FromUnsignedLongLong(again);
}

typedef wk_status end_function(const wk__control_given *given, wk_tensor *const *results, int count,
                               uint64_t *out_again, wk_value *out_results);

static PyObject *end_repeated(wk__state *state, wk__control_given *given, PyObject *lists[3],
                              end_function *end) {  // -> new
  int placeholders = 0, operands = 0, count = 0;
  uint64_t again = 0;
  wk_value list = {0};
  wk_tensor **before = tensors_of(state, lists[0], &placeholders);
  wk_tensor **stand_for = before ? tensors_of(state, lists[1], &operands) : NULL;
  wk_tensor **tensors = stand_for && lists[2] != Py_None ? tensors_of(state, lists[2], &count) : NULL;
  PyErr_Clear();
  bool fits = tensors && placeholders == operands && placeholders == given->carried + given->slices;
  given->placeholders = before;
  given->operands = stand_for;
  wk_status status = end(given, fits ? tensors : NULL, count, &again, &list);
  wk__free(before);
  wk__free(stand_for);
  wk__free(tensors);
  return give_or_again(state, status, again, &list);
}

/* _loop_end(placeholders, operands, results): the same; or which carried ones have to get a history, as bits */
static PyObject *loop_end(PyObject *module, PyObject *args) {  // -> new
  PyObject *lists[3];
  if (!PyArg_ParseTuple(args, "OOO:_loop_end", &lists[0], &lists[1], &lists[2])) return NULL;
  Py_ssize_t carried = PySequence_Size(lists[0]);
  if (carried < 0) return NULL;
  wk__control_given given = {.carried = (int)carried};
  return end_repeated(wk__state_of_module(module), &given, lists, wk__control_end_loop);
}

/* _scan_end(placeholders, operands, carried, reverse, results): the same */
static PyObject *scan_end(PyObject *module, PyObject *args) {  // -> new
  PyObject *lists[3];
  int carried, reversed;
  if (!PyArg_ParseTuple(args, "OOipO:_scan_end", &lists[0], &lists[1], &carried, &reversed, &lists[2])) return NULL;
  Py_ssize_t count = PySequence_Size(lists[0]);
  if (count < 0) return NULL;
  wk__control_given given = {.carried = carried, .slices = (int)count - carried, .reversed = reversed};
  return end_repeated(wk__state_of_module(module), &given, lists, wk__control_end_scan);
}

static PyMethodDef functions[] = {
    {"_branch_begin", branch_begin, METH_NOARGS,
     "_branch_begin(): functions of control flow are called until _branch_end; False where nothing is recorded."},
    {"_loop_begin", loop_begin, METH_VARARGS,
     "_loop_begin(leaves, again): the same until _loop_end; what the functions are to be called with, then what that "
     "stands for. None where nothing is recorded."},
    {"_scan_begin", scan_begin, METH_VARARGS,
     "_scan_begin(leaves, carried, again): the same until _scan_end; what the function is to be called with."},
    {"_control_next", control_next, METH_O, "_control_next(results): what the first function gave."},
    {"_branch_end", branch_end, METH_VARARGS,
     "_branch_end(pred, results): what the operator gives, or None where the functions make none; results None: it is "
     "given up."},
    {"_loop_end", loop_end, METH_VARARGS,
     "_loop_end(placeholders, operands, results): the same of a loop; an int, for `again`, where it is to be recorded "
     "once more."},
    {"_scan_end", scan_end, METH_VARARGS,
     "_scan_end(placeholders, operands, carried, reverse, results): the same of a scan."},
    {0}};

int wk__add_control_flow(PyObject *module) { return PyModule_AddFunctions(module, functions); }
