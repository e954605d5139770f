/* Functions with a cache (functools.lru_cache), which guards call as the program would: the cache counts its calls, and
 * what it does not have runs the function.
 *
 * In front of such a call in the guards of a segment all that decided that the program makes it has held. Where a later
 * guard does not hold the call has therefore been made already: the next segment's guards and the capture get what it
 * gave, in the same order.
 *
 * In: calls of guards and captures at one position. Out: results, each of one call. Tests:
 * tests/python/capture/test_calls_of_guards.py. */
#include "dynamo/capture/known.h"
#include "dynamo/cpython/objects.h"

struct wk__asked {
  PyObject *function, *a, *b; /* owned; arguments: NULL: there is none */
  PyObject *result;           /* owned; NULL: it raised */
  PyObject *error;            /* owned: what */
};

void wk__forget_asked(wk__session *s) {
  int count = s->asked_count;
  s->asked_count = s->asked_next = 0;
  for (int i = 0; i < count; i++) {
    struct wk__asked *asked = &s->asked[i];
    WK__BURY(asked->function);
    WK__BURY(asked->a);
    WK__BURY(asked->b);
    WK__BURY(asked->result);
    WK__BURY(asked->error);
  }
}

static bool is_same(PyObject *a, PyObject *b) {
  if (a == b) return true;
  bool both = a && b && Py_TYPE(a) == Py_TYPE(b) && PyUnicode_Check(a) == PyUnicode_Check(b);
  bool value = both && (PyLong_CheckExact(a) || PyUnicode_CheckExact(a) || PyFloat_CheckExact(a));
  return value && PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

static bool is_of(const struct wk__asked *asked, PyObject *function, PyObject *a, PyObject *b) {
  return wk__is_same_call(asked->function, function) && is_same(asked->a, a) && is_same(asked->b, b);
}

static PyObject *again(const struct wk__asked *asked) {  // -> new
  if (!asked->result) PyErr_SetObject((PyObject *)Py_TYPE(asked->error), asked->error);
  return Py_XNewRef(asked->result);
}

bool wk__was_asked(wk__session *s, PyObject *function, PyObject *a, PyObject *b, PyObject **out_new) {
  bool next = s->asked_next < s->asked_count && is_of(&s->asked[s->asked_next], function, a, b);
  if (next) *out_new = again(&s->asked[s->asked_next++]);
  return next;
}

static PyObject *raised(void) {  // -> new
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback && value) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return value;
}

PyObject *wk__ask(wk__session *s, PyObject *function, PyObject *a, PyObject *b) {
  PyObject *result = NULL;
  if (wk__was_asked(s, function, a, b, &result)) return result;
  result = PyObject_CallFunctionObjArgs(function, a, b, (PyObject *)NULL);
  int count = s->asked_count + 1;
  struct wk__asked *grown =
      s->asked_next == s->asked_count ? PyMem_Realloc(s->asked, (size_t)count * sizeof *grown) : NULL;
  if (!grown) return result;
  s->asked = grown;
  s->asked_count = s->asked_next = count;
  grown[count - 1] = (struct wk__asked){.function = Py_NewRef(function), .a = Py_XNewRef(a), .b = Py_XNewRef(b)};
  grown[count - 1].result = Py_XNewRef(result);
  if (!result) grown[count - 1].error = raised();
  return result;
}
