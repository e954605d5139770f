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
#include "dynamo/cpython/objects.h"
#include "dynamo/session.h"

/* ================================================= what is let go of ============================================= */

static bool has_weak_references(PyObject *o) {
  return PyType_SUPPORTS_WEAKREFS(Py_TYPE(o)) && *(PyObject **)PyObject_GET_WEAKREFS_LISTPTR(o);
}

/* Freeing it runs no Python code. Tensors are the ones to go at once: they hold memory. */
static bool dies_quietly(const wk__binding *b, PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  if (t == &PyLong_Type || t == &PyFloat_Type || t == &PyUnicode_Type || t == &PyBytes_Type) return true;
  if (t != b->tensor_type || has_weak_references(o)) return false;
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

/* ================================================= what dies aloud =============================================== */

static bool has_callback(PyObject *o) {
  if (!PyType_SUPPORTS_WEAKREFS(Py_TYPE(o))) return false;
  const PyWeakReference *reference = *(PyWeakReference **)PyObject_GET_WEAKREFS_LISTPTR(o);
  while (reference && !reference->wr_callback) reference = reference->wr_next;
  return reference != NULL;
}

bool wk__generator_ends_aloud(PyObject *o) {
  bool generator = PyGen_CheckExact(o);
  if (!generator && !PyCoro_CheckExact(o)) return false;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *suspended = PyObject_GetAttrString(o, generator ? "gi_suspended" : "cr_suspended");
  PyObject *code = PyObject_GetAttrString(o, generator ? "gi_code" : "cr_code");
  bool aloud = suspended != Py_False && code && wk__code_has_handlers((PyCodeObject *)code);
  Py_XDECREF(code);
  Py_XDECREF(suspended);
  PyErr_Restore(type, value, traceback); /* an error of the above goes with it */
  return aloud;
}

/* Freeing it runs Python code, or freeing what only it holds, `depth` objects deep. */
typedef struct death {
  int depth, objects;
  bool aloud;
} death;

static int look_at_held(PyObject *o, void *context);
static int look_at_death(PyObject *o, void *context) {
  enum { DEEPEST = 6, MOST_OBJECTS = 1000 };
  death *d = context;
  PyTypeObject *t = Py_TYPE(o);
  bool finalizer = t->tp_flags & Py_TPFLAGS_HEAPTYPE && t->tp_finalize && !wk__type_is_fixed(t);
  d->aloud = finalizer || has_callback(o) || wk__generator_ends_aloud(o);
  if (d->aloud || ++d->objects > MOST_OBJECTS || d->depth == DEEPEST) return d->aloud;
  d->depth++;
  if (PyObject_IS_GC(o) && t->tp_traverse) t->tp_traverse(o, look_at_held, d);
  d->depth--;
  return d->aloud;
}
static int look_at_held(PyObject *o, void *context) { return Py_REFCNT(o) == 1 && look_at_death(o, context); }

enum { MOST_REFERENCES = 64 }; /* more than frames and recorder have of one object */

/* How often the recorder holds it, and how often the frames do. */
static Py_ssize_t recorders_references(const wk__session *s, PyObject *o) {
  wk__reg reg = wk__reg_find(s->recording, o);
  Py_ssize_t count = (reg >= 0 && s->recording->registers[reg].object == o) + (s->handled_at_start == o);
  for (const wk__activation *a = s->innermost; a; a = a->outer)
    for (int i = 0; a->at_start && i < a->slots_at_start + a->stack_at_start; i++) count += a->at_start[i] == o;
  return count;
}
static Py_ssize_t frames_references(const wk__session *s, PyObject *o) {
  Py_ssize_t count = 0;
  for (const wk__activation *a = s->innermost; a; a = a->outer) {
    int slots = wk__frame_slot_count(&a->frame), depth = wk__frame_depth(&a->frame);
    for (int i = 0; i < slots; i++) count += wk__frame_slot(&a->frame, i) == o;
    for (int i = 0; i < depth; i++) count += wk__frame_stack(&a->frame, i) == o;
  }
  return count;
}

bool wk__ends_aloud(PyObject *o, Py_ssize_t references) {
  death d = {0};
  return Py_REFCNT(o) <= references && look_at_death(o, &d);
}
bool wk__replaced_ends_aloud(const wk__session *s, PyObject *o) {
  if (Py_REFCNT(o) > MOST_REFERENCES) return false;
  return wk__ends_aloud(o, 1 + recorders_references(s, o));
}

static bool dies_aloud(const wk__session *s, const wk__activation *a, int slot) {
  PyObject *o = wk__frame_slot(&a->frame, slot);
  if (!o || Py_REFCNT(o) > MOST_REFERENCES) return false;
  Py_ssize_t recorder = recorders_references(s, o);
  return recorder && wk__ends_aloud(o, recorder + frames_references(s, o));
}

/* The exception that is handled, by the end of its `except` block. Beside the recorder the thread has it, and this. */
static bool handled_dies_aloud(const wk__session *s) {
  PyObject *o = PyErr_GetHandledException();
  Py_ssize_t recorder = o && Py_REFCNT(o) <= MOST_REFERENCES ? recorders_references(s, o) : 0;
  death d = {0};
  bool aloud = recorder && Py_REFCNT(o) == recorder + 2 && look_at_death(o, &d);
  Py_XDECREF(o);
  return aloud;
}

bool wk__frame_dies_aloud(const wk__session *s, const wk__activation *a) {
  for (int i = 0; s->recording && i < wk__frame_slot_count(&a->frame); i++)
    if (dies_aloud(s, a, i)) return true;
  return false;
}

bool wk__variable_dies_aloud(const wk__session *s, const wk__activation *a) {
  int slots[2], count = s->recording ? wk__frame_next_lets_go(&a->frame, slots) : 0;
  if (count < 0) return a->depth && wk__frame_dies_aloud(s, a);
  if (s->recording && wk__frame_next_ends_handler(&a->frame)) return handled_dies_aloud(s);
  for (int i = 0; i < count; i++)
    if (dies_aloud(s, a, slots[i])) return true;
  return false;
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
