/* What instructions do to objects. cpython/step.c calls these; they do it for real, and, while something is being
 * captured, they also record it, guard what it read, or refuse.
 *
 * Every function that gives an object gives a new reference, or NULL: with a Python exception set it is raised; with
 * none set the operation was REFUSED before it did anything, and the instruction will be run again with recording off.
 * Functions that give int give -1 in both cases. Arguments are borrowed; the evaluator leaves them on the frame's stack
 * until the operation has succeeded. */
#ifndef WICK_DYNAMO_CAPTURE_OPERATIONS_H
#define WICK_DYNAMO_CAPTURE_OPERATIONS_H

#include "dynamo/cpython/frames.h"

/* ---- names ---- */
int wk__op_local(wk__frame *f, int slot);   /* a slot is about to be read; 0 or -1 */
void wk__op_stored(wk__frame *f, int slot); /* a slot has got another value, or none */
/* Values have left the stack, and lose that reference next. */
void wk__op_dropped(wk__frame *f, PyObject *const *values, int count);
PyObject *wk__op_constant(wk__frame *f, PyObject *constant);          // -> new
PyObject *wk__op_global(wk__frame *f, PyObject *name);                // -> new; NameError as CPython's
int wk__op_set_global(wk__frame *f, PyObject *name, PyObject *value); /* value NULL: delete */
PyObject *wk__op_name(wk__frame *f, PyObject *name);                  // -> new; LOAD_NAME, in class bodies
int wk__op_set_name(wk__frame *f, PyObject *name, PyObject *value);   /* value NULL: delete */
PyObject *wk__op_make_cell(wk__frame *f, int slot);                   // -> new; of what is in the slot, or empty
int wk__op_closure(wk__frame *f, PyObject *cell, int slot);           /* a cell is passed on; 0 or -1 */
PyObject *wk__op_cell(wk__frame *f, PyObject *cell, int slot);        // -> new; unbound: CPython's error for the slot
int wk__op_set_cell(wk__frame *f, PyObject *cell, PyObject *value);   /* value NULL: delete (the cell is bound) */
PyObject *wk__op_class_cell(wk__frame *f, PyObject *cell, int slot);  // -> new; LOAD_CLASSDEREF
PyObject *wk__op_import(wk__frame *f, PyObject *name, PyObject *from_list, PyObject *level);  // -> new
PyObject *wk__op_import_from(wk__frame *f, PyObject *module, PyObject *name);                 // -> new
int wk__op_import_star(wk__frame *f, PyObject *module);
int wk__op_setup_annotations(wk__frame *f);      /* __annotations__ of a class body or module */
int wk__op_print(wk__frame *f, PyObject *value); /* sys.displayhook, at an interactive prompt */

/* ---- attributes, items ---- */
PyObject *wk__op_attr(wk__frame *f, PyObject *owner, PyObject *name);  // -> new
/* For a call: *out_self new or NULL. With it the result is a function to be called with self first. */
PyObject *wk__op_method(wk__frame *f, PyObject *owner, PyObject *name, PyObject **out_self);  // -> new
int wk__op_set_attr(wk__frame *f, PyObject *owner, PyObject *name, PyObject *value);          /* value NULL: delete */
PyObject *wk__op_item(wk__frame *f, PyObject *owner, PyObject *key);                          // -> new
int wk__op_set_item(wk__frame *f, PyObject *owner, PyObject *key, PyObject *value);           /* value NULL: delete */

/* ---- operators ---- */
typedef enum wk__unary { WK__UNARY_POSITIVE, WK__UNARY_NEGATIVE, WK__UNARY_INVERT } wk__unary;
PyObject *wk__op_unary(wk__frame *f, wk__unary kind, PyObject *a);              /* -> new */
PyObject *wk__op_binary(wk__frame *f, int nb_kind, PyObject *a, PyObject *b);   // -> new; NB_ADD, NB_INPLACE_ADD, ...
PyObject *wk__op_compare(wk__frame *f, int py_kind, PyObject *a, PyObject *b);  // -> new; Py_LT, ...
int wk__op_contains(wk__frame *f, PyObject *container, PyObject *value);        /* 1, 0 */
int wk__op_is(wk__frame *f, PyObject *a, PyObject *b);                          /* 1, 0 */
int wk__op_true(wk__frame *f, PyObject *a);                                     /* 1, 0: for jumps and `not` */
PyObject *wk__op_format(wk__frame *f, PyObject *value, int conversion,
                        PyObject *spec);  // -> new; 's' 'r' 'a' 0; spec or NULL

PyObject *wk__op_convert(wk__frame *f, PyObject *value, int conversion);  // -> new; the same without formatting

/* ---- calls. args: (count) positional ones, then one for each name; args[-1] may be overwritten for the time of the
 * call, as with PY_VECTORCALL_ARGUMENTS_OFFSET. ---- */
PyObject *wk__op_call(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                      PyObject *keyword_names);  // -> new
/* What is behind the * of a call, once it has been gone over: that happens once, also where the call is refused. */
PyObject *wk__op_spread_tuple(wk__frame *f, PyObject *args);                                         // -> new; NULL
PyObject *wk__op_call_spread(wk__frame *f, PyObject *callable, PyObject *args, PyObject *keywords);  // -> new; or NULL

/* ---- making things. count is that of items: twice the pairs for a map. ---- */
typedef enum wk__build {
  WK__BUILD_TUPLE,
  WK__BUILD_LIST,
  WK__BUILD_SET,
  WK__BUILD_STRING,
  WK__BUILD_SLICE, /* 2 or 3 */
  WK__BUILD_MAP,   /* key, value, key, value ... */
} wk__build;
PyObject *wk__op_build(wk__frame *f, wk__build kind, PyObject *const *items, Py_ssize_t count);             // -> new
PyObject *wk__op_build_const_map(wk__frame *f, PyObject *keys, PyObject *const *values, Py_ssize_t count);  // -> new
PyObject *wk__op_list_to_tuple(wk__frame *f, PyObject *list);                                               // -> new
/* Into a container that the bytecode is filling (a display or a comprehension). */
typedef enum wk__fill {
  WK__FILL_LIST_APPEND,
  WK__FILL_LIST_EXTEND,
  WK__FILL_SET_ADD,
  WK__FILL_SET_UPDATE,
  WK__FILL_MAP_ADD,     /* key, value */
  WK__FILL_DICT_UPDATE, /* {**a} */
  WK__FILL_DICT_MERGE,  /* f(**a): repeated keys are the TypeError of `callable` */
} wk__fill;
int wk__op_fill(wk__frame *f, wk__fill kind, PyObject *container, PyObject *a, PyObject *b, PyObject *callable);
/* flags as MAKE_FUNCTION's; NULL where absent. */
PyObject *wk__op_make_function(wk__frame *f, PyObject *code, PyObject *defaults, PyObject *keyword_defaults,
                               PyObject *annotations, PyObject *closure);  // -> new
PyObject *wk__op_build_class(wk__frame *f);                                // -> new; builtins.__build_class__

/* ---- iteration ---- */
PyObject *wk__op_iter(wk__frame *f, PyObject *iterable);             // -> new
PyObject *wk__op_yield_from_iter(wk__frame *f, PyObject *iterable);  // -> new; GET_YIELD_FROM_ITER
/* 1 with *out_item new; 0 at the end (no exception left set). */
int wk__op_next(wk__frame *f, PyObject *iterator, PyObject **out_item);
/* SEND: 1 *out_item is a yielded value; 0 it is the value of the finished iteration. */
int wk__op_send(wk__frame *f, PyObject *receiver, PyObject *value, PyObject **out_item);
/* `count` items into out_items (new); with after >= 0: count before, one list, `after` behind it. */
int wk__op_unpack(wk__frame *f, PyObject *sequence, int count, int after, PyObject **out_items);

/* ---- with, match, exceptions ---- */
/* *out_exit: the bound __exit__; result: what __enter__ gave. The TypeErrors of CPython. */
PyObject *wk__op_enter(wk__frame *f, PyObject *manager, PyObject **out_exit);                               // -> new
PyObject *wk__op_exit(wk__frame *f, PyObject *exit, PyObject *type, PyObject *value, PyObject *traceback);  // -> new
Py_ssize_t wk__op_length(wk__frame *f, PyObject *a); /* GET_LEN */
/* 1, 0: is the subject of a kind that mapping (or sequence) patterns match. */
typedef enum wk__pattern { WK__PATTERN_MAPPING, WK__PATTERN_SEQUENCE } wk__pattern;
int wk__op_match_kind(wk__frame *f, wk__pattern kind, PyObject *subject);
PyObject *wk__op_match_class(wk__frame *f, PyObject *subject, PyObject *type, Py_ssize_t positional,
                             PyObject *keyword_names);                         // -> new; a tuple or None
PyObject *wk__op_match_keys(wk__frame *f, PyObject *subject, PyObject *keys);  // -> new; a tuple or None
/* 1, 0: does the exception match what `except` names. */
int wk__op_exception_matches(wk__frame *f, PyObject *exception, PyObject *type);
/* except*: what of the exception (or None) the clause takes and what is left, each a group or None; 0. */
int wk__op_match_group(wk__frame *f, PyObject *exception, PyObject *type, PyObject **out_match, PyObject **out_rest);
/* The end of try/except*: what is to be raised of what the clauses raised and left; None. */
PyObject *wk__op_join_groups(wk__frame *f, PyObject *original, PyObject *raised);  // -> new
/* `raise exception from cause`; both NULL: the present one again. Always -1; with no exception set: refused. */
int wk__op_raise(wk__frame *f, PyObject *exception, PyObject *cause);
int wk__op_assertion(wk__frame *f, PyObject **out_type); /* LOAD_ASSERTION_ERROR */

#endif
