/* CPython 3.12: see version.h. */
#include "dynamo/cpython/version.h"

/* CPython clears frames in its loop alone, by functions that it does not export: so the loop is given one more
 * instruction of the frame, one that returns, or, in code without any, an exception. */

/* What is on the stack dies after the variables, so it stays there; what has to make room for the None that is
 * returned, after those. */
static void clear_by_returning(wk__frame *frame) {
  real_frame *real = frame->real;
  PyObject *top = NULL;
  if (frame->info->code[frame->info->exit].kind == WK__I_RETURN) {
    if (real->stacktop > frame->code->co_nlocalsplus) top = real->localsplus[--real->stacktop];
    real->localsplus[real->stacktop++] = Py_NewRef(Py_None);
  }
  wk__real_go_on_at(frame, frame->info->exit);
  Py_XDECREF(_PyEval_EvalFrameDefault(frame->thread, real, 0));
  Py_XDECREF(top);
}

/* In front of the first instruction there is no handler. */
static void clear_by_raising(wk__frame *frame) {
  PyErr_SetNone(PyExc_SystemError);
  wk__real_stand_at(frame, -1);
  Py_XDECREF(_PyEval_EvalFrameDefault(frame->thread, frame->real, 1));
}

/* Tracers are not told of it, and who has kept the frame object sees where the frame was. */
PyObject *wk__version_clear(wk__frame *frame, PyObject *steal_result) {
  PyThreadState *thread = frame->thread;
  PyObject *exception = PyErr_GetRaisedException();
  PyFrameObject *object = (PyFrameObject *)Py_XNewRef((PyObject *)frame->real->frame_obj);
  _Py_CODEUNIT *at = frame->real->prev_instr;
  wk__thread_uncount_hook(thread, WK__HOOK_COUNTS);
  thread->tracing++;
  if (frame->info->exit >= 0)
    clear_by_returning(frame);
  else
    clear_by_raising(frame);
  thread->tracing--;
  wk__thread_uncount_hook(thread, -WK__HOOK_COUNTS);
  PyErr_Clear();
  if (object && object->f_frame) object->f_frame->prev_instr = at;
  Py_XDECREF(object);
  if (exception) PyErr_SetRaisedException(exception);
  return steal_result;
}

int wk__version_serve_requests(PyThreadState *thread) {
  if (PyErr_CheckSignals() < 0 || Py_MakePendingCalls() < 0) return -1;  // garbage is collected by the first
  PyObject *exception = thread->async_exc;
  struct _ceval_state *state = &thread->interp->ceval;
  if (exception) {
    thread->async_exc = NULL;
    state->pending.async_exc = 0;
  }
  // Taking the lock again computes again whether there are requests.
  if (exception || _Py_atomic_load_relaxed(&state->eval_breaker)) PyEval_RestoreThread(PyEval_SaveThread());
  if (!exception) return 0;
  PyErr_SetNone(exception);
  Py_DECREF(exception);
  return -1;
}
