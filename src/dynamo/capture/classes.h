/* Classes that a region makes (classes.c). */
#ifndef WICK_DYNAMO_CAPTURE_CLASSES_H
#define WICK_DYNAMO_CAPTURE_CLASSES_H

#include "dynamo/capture/known.h"

/* __build_class__(function, name, *bases), which a class statement is, and type(name, bases, dict). */
PyObject *wk__build_class_call(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args,
                               Py_ssize_t count, PyObject *names);  // -> new
PyObject *wk__type_new_call(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                            PyObject *names);  // -> new
PyObject *wk__new_class(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args,
                        Py_ssize_t count);  // -> new
/* A frame has been entered while a class is made. */
void wk__note_shown_class(wk__frame *f, wk__recording *r);
/* collections.namedtuple() and what a dataclass decorator ends in. False: it is evaluated after all. */
bool wk__class_function_call(wk__frame *f, wk__recording *r, PyObject *function, PyObject *callable,
                             PyObject *const *args, Py_ssize_t count, PyObject *names, PyObject **out);
/* An attribute of such a class that no other class has given it; `first`: looked for behind that one (super()); NULL.
 */
bool wk__is_found_in_made_class(const wk__recording *r, PyTypeObject *type, PyObject *first, PyObject *name);

#endif
