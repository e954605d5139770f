/* Python's random numbers: `random`, and what functions of that module end in.
 * In: a call of random() or getrandbits() of a _random.Random. Out: a read that draws again in front of each replay, as
 * often and in the same order; a float is an input of the graph, an integer one of its symbols or guarded. Invariant:
 * numbers that were drawn for guards that do not hold, or for a graph that fails, are drawn again by who comes next.
 * Tests: tests/python/capture/test_draws.py. */
#include "dynamo/capture/known.h"
#include "dynamo/capture/known_calls.h"

#define BINDING (f->session->binding)

enum { BITS_SHIFT = 16, MOST_BITS = (1 << BITS_SHIFT) - 1 }; /* a read's b: its turn, and how many bits; 0: random() */

bool wk__is_random(PyObject *o) { return wk__known_method(Py_TYPE(o), "getrandbits")->what == WK__KNOWN_DRAWS; }

/* How many bits are asked for: 0 for random(), -1: it is something else. */
static int bits_of(const char *name, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  if (names) return -1;
  if (strcmp(name, "random") == 0) return count == 0 ? 0 : -1;
  int overflow;
  long bits = count == 1 && PyLong_CheckExact(args[0]) ? PyLong_AsLongAndOverflow(args[0], &overflow) : -1;
  return bits > 0 && bits <= MOST_BITS ? (int)bits : -1;
}

/* random.seed(): a step, as a change of any object. What would be drawn behind it is drawn too early by guards: a
 * break.
 */
static PyObject *seed_call(wk__frame *f, wk__recording *r, PyObject *random, PyObject *method, PyObject *seed) {
  PyObject *args[] = {random, seed};
  bool plain = seed != Py_None && wk__is_plain_value(BINDING, seed);
  if (!plain) return wk__refuse(f, "random.seed() of the time, or of an object");
  PyObject *result = wk__effect(f, r, method, args, 2, NULL);
  if (result && wk__recording_of(f) == r) r->seeded = true;
  return result;
}

PyObject *wk__draw_call(wk__frame *f, wk__recording *r, PyObject *random, const char *name, PyObject *const *args,
                        Py_ssize_t count, PyObject *names) {
  if (count) wk__settle(r, args[0]);
  int bits = bits_of(name, args, count, names);
  bool seeds = strcmp(name, "seed") == 0 && count == 1 && !names;
  if (bits < 0 && !seeds) return wk__refuse(f, "random numbers of another kind");
  if (r->tries) return wk__refuse(f, "random numbers in what is only tried");
  if (r->seeded) return wk__refuse(f, "random numbers behind random.seed()");
  if (r->tries) return wk__refuse(f, "random numbers of what is only tried");
  if (!wk__is_foreign(r, random) || (r->drawn_from && r->drawn_from != random))
    return wk__refuse(f, "random numbers of another generator than those before");
  PyTypeObject *type = Py_TYPE(random);
  while (type->tp_base && wk__known_method(type->tp_base, name)->what == WK__KNOWN_DRAWS) type = type->tp_base;
  PyObject *method = PyObject_GetAttrString((PyObject *)type, name);
  if (seeds) {
    PyObject *none = method ? seed_call(f, r, random, method, args[0]) : NULL;
    Py_XDECREF(method);
    return none;
  }
  PyObject *found = method ? wk__draw(random, method, bits) : NULL, *number = NULL;
  int64_t turn = r->draws++;
  r->drawn_from = random;
  bool noted =
      found && wk__reg_constant(r, method) >= 0 &&
      wk__observe(r, BINDING, found, WK__READ_DRAWN, wk__reg_find(r, random), turn << BITS_SHIFT | bits, method) == 0;
  if (noted) number = wk__as_read(r, found);
  if (found && !noted) { /* it has been drawn: the instruction is done */
    wk__session_give_up(f->session, r->failed);
    number = Py_NewRef(found);
  }
  Py_XDECREF(method);
  Py_XDECREF(found);
  return number;
}

PyObject *wk__draw(PyObject *random, PyObject *method, int bits) {
  if (!bits) return PyObject_CallOneArg(method, random);
  PyObject *count = PyLong_FromLong(bits);
  PyObject *number = count ? PyObject_CallFunctionObjArgs(method, random, count, (PyObject *)NULL) : NULL;
  Py_XDECREF(count);
  return number;
}

/* ================================================ in front of a replay ============================================ */

PyObject *wk__draw_again(wk__session *s, PyObject *random, const wk__read *read) {
  PyObject *class = (PyObject *)PyDescr_TYPE(read->object);
  if (!PyObject_TypeCheck(random, (PyTypeObject *)class)) return NULL;
  if (!s->drawn_state) {
    s->drawn_state = PyObject_CallMethod(class, "getstate", "O", random);
    s->drawn_from = s->drawn_state ? Py_NewRef(random) : NULL;
  }
  PyObject *number = s->drawn_from == random ? wk__draw(random, read->object, (int)(read->b & MOST_BITS)) : NULL;
  if (!number) PyErr_Clear();
  return number;
}

void wk__forget_draws(wk__session *s) {
  Py_CLEAR(s->drawn_from);
  Py_CLEAR(s->drawn_state);
}

void wk__undo_draws(wk__session *s) {
  if (WK_LIKELY(!s->drawn_state)) return;
  PyTypeObject *type = Py_TYPE(s->drawn_from);
  while (type->tp_base && wk__known_method(type->tp_base, "getrandbits")->what == WK__KNOWN_DRAWS) type = type->tp_base;
  PyObject *none = PyObject_CallMethod((PyObject *)type, "setstate", "OO", s->drawn_from, s->drawn_state);
  if (!none) PyErr_Clear(); /* without memory */
  Py_XDECREF(none);
  wk__forget_draws(s);
}
