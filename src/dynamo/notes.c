/* What capture does, as it happens, for who wants to see a whole run (wick.trace).
 *
 * In: sessions and segments of an interpreter whose binding has a list. Out: dicts at its end (explain.h has them).
 * Invariant: nothing fails and no exception is lost; a segment that was noted tells what became of it when it goes, so
 * that functions which end before the program are seen as well. Tests: tests/python/test_trace_page.py. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>

#include "dynamo/explain.h"

enum { MOST_NOTES = 4096 };

typedef struct kept_exception {
  PyObject *type, *value, *traceback;
} kept_exception;

static kept_exception set_aside(void) {
  kept_exception e;
  PyErr_Fetch(&e.type, &e.value, &e.traceback);
  return e;
}

/* Or whoever has it wants no more, and has put a None at its end. */
static bool is_full(PyObject *list) {
  Py_ssize_t count = PyList_GET_SIZE(list);
  return count >= MOST_NOTES || (count && PyList_GET_ITEM(list, count - 1) == Py_None);
}

/* The note is stolen; NULL: it could not be made. */
static void add(PyObject *list, PyObject *steal_note, kept_exception before) {
  if (steal_note && !is_full(list)) (void)!PyList_Append(list, steal_note);
  Py_XDECREF(steal_note);
  PyErr_Clear();
  PyErr_Restore(before.type, before.value, before.traceback);
}

/* What every note of a session says. */
static PyObject *note_of(const wk__session *s, const char *kind, const char *file, int line) {  // -> new
  return Py_BuildValue("{s:s,s:L,s:O,s:s,s:i,s:L,s:L}", "kind", kind, "compiled", (long long)s->compiled->number,
                       "function", s->root_code->co_qualname, "file", file ? file : "?", "line", line, "thread",
                       (long long)syscall(SYS_gettid), "began", (long long)s->began);
}

static PyObject *with(PyObject *steal_note, const char *name, PyObject *steal_value) {  // -> new
  if (!steal_note || !steal_value || PyDict_SetItemString(steal_note, name, steal_value) < 0) Py_CLEAR(steal_note);
  Py_XDECREF(steal_value);
  return steal_note;
}

static PyObject *now(void) { return PyLong_FromLongLong(wk__nanoseconds()); }  // -> new

void wk__note_segment(const wk__session *s, wk__segment *g) {
  PyObject *list = s->binding->notes;
  if (is_full(list)) return;
  kept_exception before = set_aside();
  PyObject *note = note_of(s, "segment", g->file, g->line);
  note = with(note, "ended", now());
  note = with(note, "number", PyLong_FromLongLong(g->number));
  note = with(note, "report", wk__segment_report(g));
  if (note && s->binding->notes == list && !g->notes) g->notes = Py_NewRef(list);
  add(list, note, before);
}

void wk__note_unkept(const wk__session *s, const char *file, int line, const char *why) {
  PyObject *list = s->binding->notes;
  kept_exception before = set_aside();
  PyObject *note = with(note_of(s, "unkept", file, line), "ended", now());
  add(list, with(note, "why", PyUnicode_FromString(why)), before);
}

void wk__note_again(const wk__session *s, const char *file, int line, PyObject *why) {
  PyObject *list = s->binding->notes;
  kept_exception before = set_aside();
  PyObject *note = with(note_of(s, "recompile", file, line), "why", Py_NewRef(why));
  add(list, with(note, "began", now()), before);
}

void wk__note_gone(const wk__segment *g) {
  PyObject *list = g->notes;
  if (is_full(list)) return;
  kept_exception before = set_aside();
  PyObject *note = Py_BuildValue("{s:s,s:L,s:L,s:N}", "kind", "gone", "number", (long long)g->number, "hits",
                                 (long long)g->hits, "kernels", wk__segment_kernels(g, true));
  add(list, note, before);
}
