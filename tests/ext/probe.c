/* A probe of what runs in between: calls something, once, in front of the n-th instruction that this thread's sessions
 * evaluate from then on, as a destructor or a signal might. The run loop asks (dynamo/session.c).
 * For tests/python/capture/test_between.py and tests/ops/between_fuzz.py. */
#include "dynamo/session.h"
#include "ext.h"

static _Thread_local struct {
  long long left; /* instructions until it is called */
  PyObject *callback;
} probe;

/* Gives what was left of the probe before; None when that was called. */
static PyObject *dynamo_probe(PyObject *module, PyObject *args) {  // -> new
  (void)module;
  long long left;
  PyObject *callback;
  if (!PyArg_ParseTuple(args, "LO:_dynamo_probe", &left, &callback)) return NULL;
  long long before = probe.left;
  bool fired = !probe.callback;
  probe.left = left;
  Py_XSETREF(probe.callback, callback == Py_None ? NULL : Py_NewRef(callback));
  return fired ? Py_NewRef(Py_None) : PyLong_FromLongLong(before);
}

bool wk__probe_is_due(void) { return WK_UNLIKELY(probe.callback != NULL) && probe.left-- <= 0; }

int wk__probe_call(wk__session *s) {
  PyObject *callback = probe.callback;
  probe.callback = NULL;
  wk__suspension suspension;
  wk__session_suspend(s, true, &suspension);
  PyObject *result = PyObject_CallNoArgs(callback);
  Py_DECREF(callback);
  Py_XDECREF(result);
  wk__session_resume(s, &suspension);
  return result ? 0 : -1;
}

static PyMethodDef functions[] = {
    {"_dynamo_probe", dynamo_probe, METH_VARARGS,
     "_dynamo_probe(n, callback): calls it in front of the n-th instruction that is evaluated."},
    {0}};

int wk__add_probe(PyObject *module) { return PyModule_AddFunctions(module, functions); }
