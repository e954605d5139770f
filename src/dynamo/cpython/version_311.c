/* CPython 3.11: see version.h. */
#include "dynamo/cpython/version.h"

/* CPython's caller of the hook clears the frame. */
PyObject *wk__version_clear(wk__frame *frame, PyObject *steal_result) {
  (void)frame;
  return steal_result;
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
