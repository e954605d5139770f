/* Python that runs in between: what the recorder lets go of, and code that no instruction of the program calls.
 *
 * A destructor or the callback of a weak reference may run any Python code, which finds the session as it is. So the
 * recorder drops nothing while it works: what may run Python goes onto the session's list (wk__bury), which is emptied
 * when nothing is being recorded. Code that comes in between while something *is* recorded (destructors of what the
 * program lets go of, the collector, signals) is no part of what is captured: it would come at another place next time,
 * or comes again by itself when the objects die there. It is run plainly, with the session suspended.
 *
 * In: objects; a session in any mode. Out: the session as it was, or with its recording given up because that code used
 * a value that had not been computed. Tests: tests/python/capture/test_between.py. */
#include "dynamo/capture/ends.h"
#include "dynamo/cpython/objects.h"
#include "dynamo/session.h"

/* ================================================= what is let go of ============================================= */

/* Freeing it runs no Python code. Tensors are the ones to go at once: they hold memory. */
static bool dies_quietly(const wk__binding *b, PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  if (t == &PyLong_Type || t == &PyFloat_Type || t == &PyUnicode_Type || t == &PyBytes_Type) return true;
  if (t != b->tensor_type || wk__has_weak_references(o)) return false;
  PyObject **dict = wk__instance_dict_place(o);
  return !(dict && *dict) && !b->tensor_of(o)->autograd;
}

void wk__bury(PyObject *steal_object) {
  PyObject *o = steal_object;
  wk__session *s = wk__session_current();
  if (!o) return;
  if (!s || s->mode != WK__MODE_CAPTURE || Py_REFCNT(o) > 1 || dies_quietly(s->binding, o)) {
    Py_DECREF(o);
    return;
  }
  if (wk__grow(&s->buried, &s->buried_capacity, s->buried_count + 1, sizeof *s->buried) == WK_OK)
    s->buried[s->buried_count++] = o;
  else
    wk_error_clear(); /* without memory for the list it lives on */
}

void wk__session_drop_buried(wk__session *s) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  wk__mode_kind before = s->mode;
  s->mode = WK__MODE_OFF;
  while (s->buried_count) {
    PyObject **objects = s->buried;
    int64_t count = s->buried_count;
    s->buried = NULL;
    s->buried_count = s->buried_capacity = 0;
    for (int64_t i = 0; i < count; i++) Py_DECREF(objects[i]);
    wk__free(objects);
  }
  s->mode = before;
  PyErr_Restore(type, value, traceback);
}

/* ================================================== being suspended ============================================== */

void wk__session_suspend(wk__session *s, bool may_end, wk__suspension *out) {
  *out = (wk__suspension){.outer = s->suspended,
                          .mode = s->mode,
                          .entering = s->entering,
                          .may_end = may_end,
                          .traced = s->tracer && wk__tracer_current() == s->tracer,
                          .watcher = wk__thread.mode.grad_watcher};
  if (s->mode != WK__MODE_CAPTURE) return;
  s->suspended = out;
  s->mode = WK__MODE_OFF;
  s->entering = false;
  wk__thread.mode.grad_watcher = NULL;
  if (out->traced) wk__tracer_suspend(s->tracer, may_end);
}

void wk__session_resume(wk__session *s, const wk__suspension *suspension) {
  if (s->suspended != suspension) return;
  s->suspended = suspension->outer;
  s->mode = suspension->mode;
  s->entering = suspension->entering;
  if (s->mode != WK__MODE_CAPTURE) return; /* it was given up meanwhile */
  wk__thread.mode.grad_watcher = suspension->watcher;
  if (suspension->traced) wk__tracer_go_on(s->tracer);
}

void wk__dynamo_run_plainly(void (*run)(void *context), void *context) {
  wk__session *s = wk__session_current();
  wk__suspension suspension;
  if (s) wk__session_suspend(s, false, &suspension);
  run(context);
  if (s) wk__session_resume(s, &suspension);
}

/* Two tracers in one thread would not know each other's tensors. */
bool wk__session_refuses_calls(wk__session *s) {
  if (!s || !s->suspended) return false;
  if (s->suspended->may_end) wk__session_give_up(s, "a compiled function is called by code that runs in between");
  return !s->suspended->may_end;
}

bool wk__is_in_between(const wk__session *s, PyThreadState *thread, struct _PyInterpreterFrame *real) {
  if (s->mode != WK__MODE_CAPTURE) return false;
  if (!s->recording || wk__hook_collecting(thread)) return true;
  const wk__activation *a = s->innermost;
  return a && !s->entering && (a->frame.dropping || a->frame.returned_into) && !wk__hook_is_generator(real);
}

PyObject *wk__run_in_between(wk__session *s, PyThreadState *thread, struct _PyInterpreterFrame *real, int throwing) {
  bool may_end = s->recording && !wk__hook_collecting(thread); /* else the recorder is in the middle of something */
  wk__suspension suspension;
  wk__session_suspend(s, may_end, &suspension);
  PyObject *result = wk__hook_default(thread, real, throwing);
  wk__session_resume(s, &suspension);
  return result;
}

int wk__serve_requests(wk__session *s, PyThreadState *thread) {
  wk__suspension suspension;
  if (!s) return wk__hook_serve_requests(thread);
  if (s->mode == WK__MODE_UNWIND || s->mode == WK__MODE_ENTER) return 0; /* the frames are not where they seem to be */
  wk__session_suspend(s, true, &suspension);
  int status = wk__hook_serve_requests(thread);
  wk__session_resume(s, &suspension);
  return status;
}

/* A handler of the program's own in one of these frames may go on with values that a failed run has not computed. */
static bool may_be_caught(const wk__session *s) {
  for (const wk__activation *a = s->innermost; a; a = a->outer)
    if (PyBytes_GET_SIZE(a->frame.code->co_exceptiontable)) return true;
  return false;
}

wk_status wk__session_between_steps(void *context) {
  wk__session *s = context;
  wk__suspension suspension;
  if (WK_LIKELY(!wk__hook_has_requests(s->thread)) || s->giving_up || PyErr_Occurred()) return WK_OK;
  if (may_be_caught(s)) return WK_OK;
  wk__session_suspend(s, false, &suspension);
  int status = PyErr_CheckSignals();
  wk__session_resume(s, &suspension);
  return status < 0 ? wk_fail(WK_INTERRUPTED, "a signal's handler has raised") : WK_OK;
}
