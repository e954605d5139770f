/* What ends because the region lets go of it, and whether that runs Python code (ends.c). */
#ifndef WICK_DYNAMO_CAPTURE_ENDS_H
#define WICK_DYNAMO_CAPTURE_ENDS_H

#include "dynamo/capture/known_calls.h"
#include "dynamo/session.h"

/* Who has references of an object that count for nothing, since they are no part of the program: so many. */
typedef struct wk__holders {
  Py_ssize_t (*count)(const void *context, PyObject *object);
  const void *context;
  bool watches;    /* and that weak references to it die counts as code that its end runs */
  wk__map *let_go; /* what is asked about here is let go of together: what was asked about so far; NULL: nothing */
} wk__holders;

bool wk__has_weak_references(PyObject *object);
bool wk__has_destructor(PyObject *object);

/* Its end runs code, or that of something that only it holds; so does what happens if one reference to it is dropped;
 * if a container drops all that it holds. others: NULL: there are none. */
bool wk__end_is_aloud(PyObject *object, const wk__holders *others);
bool wk__let_go_is_aloud(PyObject *object, const wk__holders *others);
bool wk__emptying_is_aloud(PyObject *container, const wk__holders *others);

/* A set or dictionary from outside has a key whose end runs code: a guard that asks for the keys would keep that
 * alive. */
bool wk__keys_end_aloud(const wk__frame *f, wk__recording *r, PyObject *container);
Py_ssize_t wk__frames_references(const wk__session *session, PyObject *object);
/* It comes from outside and does not end in the region, which is guarded. False: it is not held elsewhere now. */
bool wk__note_stays(const wk__frame *f, wk__recording *r, PyObject *object);
/* Something is about to take the place of what a dictionary has for a key, a list at an index or slice, an object
 * as an attribute; of all that a container holds; of what a known call drops, whose row says what that may be. args:
 * (count) what follows the container, `names` those of the last. 0, or -1: an exception, or refused, because the end of
 * that runs code. */
int wk__note_replaced(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *key);
int wk__note_attribute_replaced(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name);
int wk__note_emptied(wk__frame *f, wk__recording *r, PyObject *container);
int wk__note_pushed_out(wk__frame *f, wk__recording *r, const wk__known_call *known, PyObject *deque);
int wk__note_losses(wk__frame *f, wk__recording *r, const wk__known_call *known, PyObject *self, PyObject *const *args,
                    Py_ssize_t count, PyObject *names);
/* An instruction drops these from the stack. Where something ends with them that runs code the recording is over: the
 * recorder would keep it alive, and the next instruction has to see what the code does. */
void wk__note_dropped(wk__frame *f, wk__recording *r, PyObject *const *values, int count);
/* The same of what an iterator over a list or tuple lets go of, where it is asked for one more and has none. */
void wk__note_exhausted(wk__frame *f, wk__recording *r, PyObject *iterator);

#endif
