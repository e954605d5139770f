/* _C._watch_calls(function): function(overload, args, result, in_backward) is called behind each operator call of this
 * thread that is computed, with its arguments as in the schema. Of a pair of functions the second, before(overload,
 * args, written), is asked in front of it: it gives None, or the result, a tensor or tuple of tensors, which is then
 * not computed; `written` are the tensors that the call writes. None ends it; gives what was given before. Tests:
 * tests/python/test_flop_counter.py, test_selective_checkpoint.py. */
#include "dynamo/cpython/gil.h"
#include "dynamo/dynamo.h"
#include "ops/internal.h"
#include "python/calls/override.h"
#include "python/fx/graph_parts.h"

typedef struct watcher {
  wk__call_watcher is; /* first: the thread has a pointer to it */
  wk__state *state;
  PyObject *given;             /* owned: the function, or the pair */
  PyObject *function, *before; /* borrowed of it; before: NULL where there is none */
} watcher;

/* ================================================= what is told ================================================= */

static PyObject *tuple_of(wk__state *state, const wk_value *values, int count) {  // -> new
  PyObject *tuple = PyTuple_New(count);
  for (int i = 0; tuple && i < count; i++) {
    PyObject *object = wk__value_object(state, &values[i]);
    if (object)
      PyTuple_SET_ITEM(tuple, i, object);
    else
      Py_CLEAR(tuple);
  }
  return tuple;
}

typedef struct telling {
  const watcher *who;
  const wk_op *op;
  const wk_value *args, *results;
  wk_status status;
} telling;

static void call_function(void *context) {
  telling *t = context;
  wk__state *state = t->who->state;
  int count = t->op->schema.result_count;
  PyObject *overload = wk__overload_of(state, t->op, WK__OVERLOAD_PLAIN);
  PyObject *args = tuple_of(state, t->args, t->op->schema.parameter_count);
  PyObject *result = count == 1 ? wk__value_object(state, t->results) : tuple_of(state, t->results, count);
  PyObject *backward = wk__thread.backward_depth ? Py_True : Py_False;
  PyObject *given = overload && args && result
                        ? PyObject_CallFunctionObjArgs(t->who->function, overload, args, result, backward, NULL)
                        : NULL;
  if (!given) t->status = wk__status_from_python();
  Py_XDECREF(given);
  Py_XDECREF(overload);
  Py_XDECREF(args);
  Py_XDECREF(result);
}

static wk_status called(void *context, const wk_op *op, const wk_value *args, const wk_value *results) {
  if (op->number >= WK__OP_COUNT) return WK_OK; /* a kernel of one graph has no name */
  telling t = {.who = context, .op = op, .args = args, .results = results};
  wk__gil gil = wk__gil_hold();
  if (!gil.alive) return WK_OK;
  wk__dynamo_run_plainly(call_function, &t);
  wk__gil_drop(gil);
  return t.status;
}

/* =============================================== what is asked ================================================== */

typedef struct asking {
  const watcher *who;
  const wk_op *op;
  const wk_value *args;
  wk_tensor *const *destinations;
  wk_value *results;
  bool done;
  wk_status status;
} asking;

static int append_tensor(wk__state *state, PyObject *list, wk_tensor *t) {
  PyObject *tensor = t ? wk__wrap(state, wk__retain(t)) : NULL;
  int status = !t ? 0 : tensor ? PyList_Append(list, tensor) : -1;
  Py_XDECREF(tensor);
  return status;
}

/* The destinations; of a row that writes its arguments, all tensors among them. */
static PyObject *written_by(const asking *a) {  // -> new, a list
  wk__state *state = a->who->state;
  PyObject *list = PyList_New(0);
  int status = list ? 0 : -1;
  for (int i = 0; status == 0 && a->destinations && i < a->op->schema.result_count; i++)
    status = append_tensor(state, list, a->destinations[i]);
  bool mutates = a->op->tags & WK__TAG_MUTATES;
  for (int i = 0; status == 0 && mutates && i < a->op->schema.parameter_count; i++) {
    const wk_value *v = &a->args[i];
    if (v->tag == WK_VALUE_TENSOR) status = append_tensor(state, list, v->tensor);
    for (uint32_t k = 0; status == 0 && v->tag == WK_VALUE_TENSORS && k < v->count; k++)
      status = append_tensor(state, list, v->tensors[k]);
  }
  if (status < 0) Py_CLEAR(list);
  return list;
}

static int take_result(asking *a, PyObject *given) {
  wk__state *state = a->who->state;
  int count = a->op->schema.result_count;
  bool fits = count == 1 ? wk__is_tensor(state, given) : PyTuple_Check(given) && PyTuple_GET_SIZE(given) == count;
  for (int i = 0; fits && count > 1 && i < count; i++) fits = wk__is_tensor(state, PyTuple_GET_ITEM(given, i));
  if (!fits || a->op->schema.result_is_list) {
    PyErr_SetString(PyExc_TypeError, "the function in front of a call gives what is no result of it");
    return -1;
  }
  for (int i = 0; i < count; i++) {
    PyObject *item = count == 1 ? given : PyTuple_GET_ITEM(given, i);
    a->results[i] = (wk_value){.tag = WK_VALUE_TENSOR, .tensor = wk__retain(wk__tensor_of(item))};
  }
  a->done = true;
  return 0;
}

static void ask_function(void *context) {
  asking *a = context;
  wk__state *state = a->who->state;
  PyObject *overload = wk__overload_of(state, a->op, WK__OVERLOAD_PLAIN);
  PyObject *args = tuple_of(state, a->args, a->op->schema.parameter_count), *written = written_by(a);
  PyObject *given =
      overload && args && written ? PyObject_CallFunctionObjArgs(a->who->before, overload, args, written, NULL) : NULL;
  if (!given || (given != Py_None && take_result(a, given) < 0)) a->status = wk__status_from_python();
  Py_XDECREF(given);
  Py_XDECREF(overload);
  Py_XDECREF(args);
  Py_XDECREF(written);
}

static wk_status asked(void *context, const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                       wk_value *results, bool *out_done) {
  if (op->number >= WK__OP_COUNT) return WK_OK;
  asking a = {.who = context, .op = op, .args = args, .destinations = destinations, .results = results};
  wk__gil gil = wk__gil_hold();
  if (!gil.alive) return WK_OK;
  wk__dynamo_run_plainly(ask_function, &a);
  wk__gil_drop(gil);
  *out_done = a.done;
  return a.status;
}

/* ================================================ begin and end ================================================= */

static PyObject *end(void) {  // -> new
  watcher *before = (watcher *)wk__thread.call_watcher;
  wk__thread.call_watcher = NULL;
  wk__thread.mode.keys_on &= (wk__keys)~WK__KEY_WATCH;
  PyObject *given = before ? before->given : Py_NewRef(Py_None);
  wk__free(before);
  return given;
}

static PyObject *watch_calls(PyObject *module, PyObject *given) {  // -> new
  bool pair = PyTuple_Check(given) && PyTuple_GET_SIZE(given) == 2;
  watcher *w = given == Py_None ? NULL : wk__alloc_zeroed(sizeof *w);
  if (!w && given != Py_None) return PyErr_NoMemory();
  PyObject *before = end();
  if (!w) return before;
  *w = (watcher){.is = {w, pair ? asked : NULL, called}, .state = wk__state_of_module(module)};
  w->given = Py_NewRef(given);
  w->function = pair ? PyTuple_GET_ITEM(given, 0) : given;
  w->before = pair ? PyTuple_GET_ITEM(given, 1) : NULL;
  wk__thread.call_watcher = &w->is;
  wk__thread.mode.keys_on |= WK__KEY_WATCH;
  return before;
}

static PyObject *in_backward(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  return PyBool_FromLong(wk__thread.backward_depth);
}

static PyMethodDef functions[] = {
    {"_in_backward", in_backward, METH_NOARGS, "Whether a backward pass runs in this thread."},
    {"_watch_calls", watch_calls, METH_O,
     "function(overload, args, result, in_backward) is called behind each call, the second of a pair in front of it; "
     "gives what was given before."},
    {0}};

int wk__add_call_watching(PyObject *module) { return PyModule_AddFunctions(module, functions); }
