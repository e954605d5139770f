/* What calls.c and method_calls.c share. */
#ifndef WICK_DYNAMO_CAPTURE_CALL_PARTS_H
#define WICK_DYNAMO_CAPTURE_CALL_PARTS_H

#include "dynamo/capture/known.h"
#include "dynamo/capture/known_calls.h"
#include "dynamo/cpython/objects.h"

/* ---- calls.c: C code that only looks at its arguments; the same, where a size that was marked stays one; that only
 * hands references on ---- */
PyObject *wk__call_looking(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                           PyObject *names);  // -> new
PyObject *wk__call_at_values(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                             PyObject *names);  // -> new
PyObject *wk__call_passing(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                           PyObject *names);  // -> new
PyObject *wk__new_instance(wk__frame *f, wk__recording *r, PyTypeObject *t, PyObject *callable, PyObject *const *args,
                           Py_ssize_t count, PyObject *names);  // -> new
/* ---- method_calls.c ---- */
/* A call that changes the process, of values alone. */
PyObject *wk__effect_of_values(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args,
                               Py_ssize_t count, PyObject *names);  // -> new
/* A method of a container, or a function whose first argument it is, that changes it. */
PyObject *wk__change_container(wk__frame *f, wk__recording *r, const wk__known_call *known, PyObject *self,
                               PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *names,
                               bool self_is_first);  // -> new
/* ---- core_calls.c: of a function of wick's own ---- */
PyObject *wk__core_call(wk__frame *f, const char *name, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                        PyObject *names);  // -> new
/* ---- recomputed.c: _trial_begin() and _trial_end() ---- */
PyObject *wk__trial_begin(wk__frame *f, PyObject *parts);  // -> new
PyObject *wk__trial_end(wk__frame *f, PyObject *result);   // -> new
static inline bool wk__is_container(PyObject *o) {
  return PyList_Check(o) || PyDict_Check(o) || PySet_Check(o) || wk__is_deque(o);
}
/* Sizes that stay symbols; NULL, with nothing set, for everything else. */
PyObject *wk__symbolic_size(wk__frame *f, PyObject *self, const char *name, PyObject *const *args,
                            Py_ssize_t count);  // -> new
/* The sum or product of a sequence some of whose items are symbolic. */
bool wk__fold_symbols(wk__recording *r, int nb_kind, PyObject *sequence, PyObject **out);
PyObject *wk__made_exception(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args,
                             Py_ssize_t count, PyObject *names);  // -> new
/* A method that C code implements, of `self`. */
PyObject *wk__method_call(wk__frame *f, wk__recording *r, PyObject *self, const char *name, PyObject *callable,
                          PyObject *const *args, Py_ssize_t count, PyObject *names, bool self_is_first);  // -> new

/* Values, and containers of such: their attributes are what they are. depth: 0 */
bool wk__holds_values(const wk__frame *f, PyObject *o, int depth);

#endif
