/* CPython 3.13: see version.h. */
#include "dynamo/cpython/version.h"

PyObject *wk__version_clear(wk__frame *frame, PyObject *steal_result) {
  _PyEval_FrameClearAndPop(frame->thread, frame->real);
  return steal_result;
}

int wk__version_serve_requests(PyThreadState *thread) { return _Py_HandlePending(thread); }
