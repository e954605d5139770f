/* _C._watch_calls(function): function(overload, args, result, in_backward) is called behind each operator call of this
 * thread that is computed, with its arguments as in the schema. None ends it; gives the function before.
 * Tests: tests/python/test_flop_counter.py. */
#include "dynamo/cpython/gil.h"
#include "dynamo/dynamo.h"
#include "ops/internal.h"
#include "python/calls/override.h"
#include "python/fx/graph_parts.h"

typedef struct watcher {
  wk__call_watcher is; /* first: the thread has a pointer to it */
  wk__state *state;
  PyObject *function; /* owned */
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

/* ================================================ begin and end ================================================= */

static PyObject *end(void) {  // -> new
  watcher *before = (watcher *)wk__thread.call_watcher;
  wk__thread.call_watcher = NULL;
  wk__thread.mode.keys_on &= (wk__keys)~WK__KEY_WATCH;
  PyObject *function = before ? before->function : Py_NewRef(Py_None);
  wk__free(before);
  return function;
}

static PyObject *watch_calls(PyObject *module, PyObject *function) {  // -> new
  watcher *w = function == Py_None ? NULL : wk__alloc_zeroed(sizeof *w);
  if (!w && function != Py_None) return PyErr_NoMemory();
  PyObject *before = end();
  if (!w) return before;
  *w = (watcher){.is = {w, called}, .state = wk__state_of_module(module), .function = Py_NewRef(function)};
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
     "function(overload, args, result, in_backward) is called behind each call; gives the function before."},
    {0}};

int wk__add_call_watching(PyObject *module) { return PyModule_AddFunctions(module, functions); }
