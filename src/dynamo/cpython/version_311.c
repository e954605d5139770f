/* CPython 3.11: see version.h. */
#include "dynamo/cpython/version.h"

/* CPython's caller of the hook clears the frame. */
PyObject *wk__version_clear(wk__frame *frame, PyObject *steal_result) {
  (void)frame;
  return steal_result;
}

/* ---- a tracer or profiler that was turned on while the frame was evaluated is told of what its exceptions do ---- */

/* With the exception put aside; one of the tracer's own takes its place. */
static void tell(wk__frame *frame, Py_tracefunc tracer, PyObject *owner, int event) {
  PyThreadState *thread = frame->thread;
  if (!tracer || thread->tracing) return;
  PyObject *type, *value, *traceback, *argument = NULL;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (event == PyTrace_EXCEPTION) argument = PyTuple_Pack(3, type, value, traceback ? traceback : Py_None);
  PyFrameObject *object = PyThreadState_GetFrame(thread);
  int outer_event = thread->tracing_what, status = -1;
  if (object && (argument || event != PyTrace_EXCEPTION)) {
    thread->tracing_what = event;
    PyThreadState_EnterTracing(thread);
    object->f_lineno = PyFrame_GetLineNumber(object);
    status = tracer(owner, object, event, argument);
    object->f_lineno = 0;
    PyThreadState_LeaveTracing(thread);
    thread->tracing_what = outer_event;
  }
  Py_XDECREF(object);
  Py_XDECREF(argument);
  if (status == 0) {
    PyErr_Restore(type, value, traceback);
  } else {
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
  }
}

void wk__version_tell(wk__frame *frame, wk__told what) {
  PyThreadState *thread = frame->thread;
  int event = what == WK__TOLD_RAISE ? PyTrace_EXCEPTION : PyTrace_RETURN;
  tell(frame, thread->c_tracefunc, thread->c_traceobj, event);
  if (what == WK__TOLD_EXIT) tell(frame, thread->c_profilefunc, thread->c_profileobj, event);
}

int wk__version_serve_requests(PyThreadState *thread) {
  if (Py_MakePendingCalls() < 0) return -1;  // signals too
  PyObject *exception = thread->async_exc;
  struct _ceval_state *state = &thread->interp->ceval;
  if (exception) {
    thread->async_exc = NULL;
    state->pending.async_exc = 0;
  }
  // Taking the lock again computes again whether there are requests.
  if (exception || _Py_atomic_load_relaxed(&state->gil_drop_request)) PyEval_RestoreThread(PyEval_SaveThread());
  if (!exception) return 0;
  PyErr_SetNone(exception);
  Py_DECREF(exception);
  return -1;
}
