/* The interpreter's lock: given away around long work, and held again by callbacks that C code may make without it.
 *
 * A thread that gives the lock away remembers with which thread state it did, since CPython's PyGILState functions know
 * the first interpreter only: a callback in another one would wait for a lock that its own thread holds, or run among
 * the first one's objects. Tests: tests/python/test_interpreters.py. */
#ifndef WICK_DYNAMO_CPYTHON_GIL_H
#define WICK_DYNAMO_CPYTHON_GIL_H

#include <Python.h>

#include <stdbool.h>

#include "base/base.h"

/* Lets other threads run. The same thread takes the lock back. */
static inline void wk__gil_give(void) { wk__thread.gil_given = PyEval_SaveThread(); }
static inline void wk__gil_take_back(void) {
  PyThreadState *thread = wk__thread.gil_given;
  wk__thread.gil_given = NULL;
  PyEval_RestoreThread(thread);
}

typedef struct wk__gil {
  bool taken, given, alive; /* taken: by wk__gil_hold; given: it was given away here; alive: there is an interpreter */
  PyGILState_STATE before;
} wk__gil;

/* Before 3.13 the one that is found may be another thread's. */
static inline bool wk__gil_is_held(void) {
#if PY_VERSION_HEX >= 0x030D0000
  return PyThreadState_GetUnchecked() != NULL;
#else
  PyThreadState *holder = _PyThreadState_UncheckedGet();
  return holder && !wk__thread.gil_given && holder->thread_id == PyThread_get_thread_ident();
#endif
}

/* A thread that Python does not know joins the first interpreter. */
static inline wk__gil wk__gil_hold(void) {
  if (WK_LIKELY(wk__gil_is_held())) return (wk__gil){.alive = true};
  if (!Py_IsInitialized()) return (wk__gil){0};
  if (wk__thread.gil_given) {
    wk__gil_take_back();
    return (wk__gil){.taken = true, .given = true, .alive = true};
  }
  return (wk__gil){.taken = true, .alive = true, .before = PyGILState_Ensure()};
}
static inline void wk__gil_drop(wk__gil gil) {
  if (!gil.taken) return;
  if (gil.given)
    wk__gil_give();
  else
    PyGILState_Release(gil.before);
}

#endif
