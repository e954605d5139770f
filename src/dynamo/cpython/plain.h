/* What the operations of operations.h do when nothing is recorded: CPython's exact results and errors. They take the
 * same arguments, and never refuse: a NULL or -1 has an exception set. */
#ifndef WICK_DYNAMO_CPYTHON_PLAIN_H
#define WICK_DYNAMO_CPYTHON_PLAIN_H

#include "dynamo/capture/operations.h"

/* A slot or its cell is unbound: sets UnboundLocalError, or NameError for a free variable. */
void wk__plain_unbound(wk__frame *f, int slot);

/* ---- names ---- */
int wk__plain_local(wk__frame *f, int slot);
PyObject *wk__plain_constant(wk__frame *f, PyObject *constant);  // -> new
PyObject *wk__plain_global(wk__frame *f, PyObject *name);        // -> new
int wk__plain_set_global(wk__frame *f, PyObject *name, PyObject *value);
PyObject *wk__plain_name(wk__frame *f, PyObject *name);  // -> new
int wk__plain_set_name(wk__frame *f, PyObject *name, PyObject *value);
PyObject *wk__plain_make_cell(wk__frame *f, int slot);             // -> new
PyObject *wk__plain_cell(wk__frame *f, PyObject *cell, int slot);  // -> new
int wk__plain_set_cell(wk__frame *f, PyObject *cell, PyObject *value);
PyObject *wk__plain_class_cell(wk__frame *f, PyObject *cell, int slot);                          // -> new
PyObject *wk__plain_import(wk__frame *f, PyObject *name, PyObject *from_list, PyObject *level);  // -> new
PyObject *wk__plain_import_from(wk__frame *f, PyObject *module, PyObject *name);                 // -> new
int wk__plain_import_star(wk__frame *f, PyObject *module);
int wk__plain_setup_annotations(wk__frame *f);
int wk__plain_print(wk__frame *f, PyObject *value);

/* ---- attributes, items ---- */
PyObject *wk__plain_attr(wk__frame *f, PyObject *owner, PyObject *name);                         // -> new
PyObject *wk__plain_method(wk__frame *f, PyObject *owner, PyObject *name, PyObject **out_self);  // -> new
int wk__plain_set_attr(wk__frame *f, PyObject *owner, PyObject *name, PyObject *value);
PyObject *wk__plain_item(wk__frame *f, PyObject *owner, PyObject *key);  // -> new
int wk__plain_set_item(wk__frame *f, PyObject *owner, PyObject *key, PyObject *value);

/* ---- operators ---- */
PyObject *wk__plain_unary(wk__frame *f, wk__unary kind, PyObject *a);              // -> new
PyObject *wk__plain_binary(wk__frame *f, int nb_kind, PyObject *a, PyObject *b);   // -> new
PyObject *wk__plain_compare(wk__frame *f, int py_kind, PyObject *a, PyObject *b);  // -> new
int wk__plain_contains(wk__frame *f, PyObject *container, PyObject *value);
int wk__plain_is(wk__frame *f, PyObject *a, PyObject *b);
int wk__plain_true(wk__frame *f, PyObject *a);
PyObject *wk__plain_convert(wk__frame *f, PyObject *value, int conversion);                 // -> new
PyObject *wk__plain_format(wk__frame *f, PyObject *value, int conversion, PyObject *spec);  // -> new

/* ---- calls ---- */
PyObject *wk__plain_call(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                         PyObject *keyword_names);                                                      // -> new
PyObject *wk__plain_call_spread(wk__frame *f, PyObject *callable, PyObject *args, PyObject *keywords);  // -> new

/* ---- making things ---- */
PyObject *wk__plain_build(wk__frame *f, wk__build kind, PyObject *const *items, Py_ssize_t count);             // -> new
PyObject *wk__plain_build_const_map(wk__frame *f, PyObject *keys, PyObject *const *values, Py_ssize_t count);  // -> new
PyObject *wk__plain_list_to_tuple(wk__frame *f, PyObject *list);                                               // -> new
int wk__plain_fill(wk__frame *f, wk__fill kind, PyObject *container, PyObject *a, PyObject *b, PyObject *callable);
PyObject *wk__plain_make_function(wk__frame *f, PyObject *code, PyObject *defaults, PyObject *keyword_defaults,
                                  PyObject *annotations, PyObject *closure);  // -> new
PyObject *wk__plain_build_class(wk__frame *f);                                // -> new

/* ---- iteration ---- */
PyObject *wk__plain_iter(wk__frame *f, PyObject *iterable);             // -> new
PyObject *wk__plain_yield_from_iter(wk__frame *f, PyObject *iterable);  // -> new
int wk__plain_next(wk__frame *f, PyObject *iterator, PyObject **out_item);
int wk__plain_send(wk__frame *f, PyObject *receiver, PyObject *value, PyObject **out_item);
int wk__plain_unpack(wk__frame *f, PyObject *sequence, int count, int after, PyObject **out_items);

/* ---- with, match, exceptions ---- */
PyObject *wk__plain_enter(wk__frame *f, PyObject *manager, PyObject **out_exit);                               // -> new
PyObject *wk__plain_exit(wk__frame *f, PyObject *exit, PyObject *type, PyObject *value, PyObject *traceback);  // -> new
Py_ssize_t wk__plain_length(wk__frame *f, PyObject *a);
int wk__plain_match_kind(wk__frame *f, wk__pattern kind, PyObject *subject);
PyObject *wk__plain_match_class(wk__frame *f, PyObject *subject, PyObject *type, Py_ssize_t positional,
                                PyObject *keyword_names);                         // -> new
PyObject *wk__plain_match_keys(wk__frame *f, PyObject *subject, PyObject *keys);  // -> new
int wk__plain_exception_matches(wk__frame *f, PyObject *exception, PyObject *type);
int wk__plain_match_group(wk__frame *f, PyObject *exception, PyObject *type, PyObject **out_match, PyObject **out_rest);
PyObject *wk__plain_join_groups(wk__frame *f, PyObject *original, PyObject *raised);  // -> new
int wk__plain_raise(wk__frame *f, PyObject *exception, PyObject *cause);
int wk__plain_assertion(wk__frame *f, PyObject **out_type);
/* What leaves a generator: a StopIteration of its own becomes the cause of a RuntimeError. */
PyObject *wk__plain_stop_iteration_error(wk__frame *f, PyObject *exception);  // -> new

#endif
