/* Clocks: time.time(), time.perf_counter() and their kind.
 * In: a call of one. Out: a read that asks the clock again in front of each replay; the float is an input of the graph,
 * and a branch on it is guarded. So what it shows does not cover what the region has done before it: behind the first
 * operator or the first change of an object a call is a break, and the next segment begins with what was asked plainly.
 * Tests: tests/python/capture/test_draws.py. */
#include "dynamo/capture/known.h"

PyObject *wk__clock_call(wk__frame *f, wk__recording *r, PyObject *clock, PyObject *const *args, Py_ssize_t count,
                         PyObject *names) {
  const char *name = ((PyCFunctionObject *)clock)->m_ml->ml_name;
  if (count || names) return wk__plain_call(f, clock, args, count, names); /* a TypeError */
  if (wk__tracer_graph(f->session->tracer)->node_count || r->step_count)
    return wk__refuse(f, "a call of time.%s() behind something that takes time", name);
  PyObject *now = PyObject_CallNoArgs(clock), *number = NULL;
  if (!now) return NULL;
  wk__reg reg = wk__reg_constant(r, clock);
  bool noted = reg >= 0 && wk__observe(r, f->session->binding, now, WK__READ_CLOCK, reg, r->clocks++, clock) == 0;
  number = noted ? wk__as_read(r, now) : wk__refuse(f, "%s", r->failed);
  Py_DECREF(now);
  return number;
}
