/* Messages of the module `logging`.
 * In: a call of Logger._log, which all of its functions end in once a level is on. Out: an effect that makes the record
 * again in each replay, with the file and line of the program and the time of that call, and hands it to the handlers.
 * Tests: tests/python/capture/test_log_records.py. */
#include "dynamo/capture/known.h"

#define BINDING (f->session->binding)

enum { LOGGER, LEVEL, MESSAGE, ARGUMENTS, GIVEN };

/* (file, line, function) of the frame that logs: the frames of `logging` itself are passed over. */
static PyObject *find_caller(wk__frame *f, PyObject *logger) {  // -> new
  wk__suspension suspension;
  wk__session_suspend(f->session, true, &suspension);
  PyObject *found = PyObject_CallMethod(logger, "findCaller", NULL);
  wk__session_resume(f->session, &suspension);
  if (found && PyTuple_Check(found) && PyTuple_GET_SIZE(found) >= 3) return found;
  Py_XDECREF(found);
  PyErr_Clear();
  return NULL;
}

static PyObject *function_that_logs(wk__frame *f) {  // -> new
  wk__suspension suspension;
  wk__session_suspend(f->session, true, &suspension);
  PyObject *module = PyImport_ImportModule("wick._dynamo.logs");
  PyObject *function = module ? PyObject_GetAttrString(module, "log_again") : NULL;
  wk__session_resume(f->session, &suspension);
  Py_XDECREF(module);
  return function;
}

PyObject *wk__log_call(wk__frame *f, wk__recording *r, PyObject *const *given, Py_ssize_t count, PyObject *names) {
  bool plain = !names && count == GIVEN && PyTuple_Check(given[ARGUMENTS]) &&
               wk__has_constant_text(f, given[MESSAGE]) && wk__has_constant_text(f, given[ARGUMENTS]);
  if (!plain) return wk__refuse(f, "a message to a log of other things than values");
  if (!wk__passed_on(f, given[ARGUMENTS])) return NULL;
  PyObject *caller = find_caller(f, given[LOGGER]), *function = caller ? function_that_logs(f) : NULL, *result = NULL;
  if (wk__recording_of(f) == r && function) {
    PyObject *args[GIVEN + 3] = {given[LOGGER], given[LEVEL], given[MESSAGE], given[ARGUMENTS]};
    for (int i = 0; i < 3; i++) args[GIVEN + i] = PyTuple_GET_ITEM(caller, i);
    result = wk__effect(f, r, function, args, GIVEN + 3, NULL);
  } else {
    wk__refuse(f, "a message to a log");
  }
  Py_XDECREF(caller);
  Py_XDECREF(function);
  return result;
}
