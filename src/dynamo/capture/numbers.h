/* Numbers that differ from call to call: floats that become inputs of the graph, and symbolic integers.
 *
 * Each is an object of the region's own, known by its identity. A symbolic integer stands for an expression over the
 * symbols of the graph being traced: sizes of input tensors and integers from outside. Operators take the expression;
 * arithmetic gives new ones; a comparison records what it assumed. Whoever lets C code look at the number itself
 * settles it first: its value becomes part of the guards. */
#ifndef WICK_DYNAMO_CAPTURE_NUMBERS_H
#define WICK_DYNAMO_CAPTURE_NUMBERS_H

#include "dynamo/capture/record.h"

/* ---- sizes of tensors ---- */
/* Which dims of a tensor that has just been read become symbols: those that guards have seen change, all of them with
 * dynamic=True, and as the program has marked it. A bit a dim. */
uint64_t wk__dynamic_dims(const wk__recording *r, const wk__binding *binding, wk__reg reg, PyObject *tensor);
/* For the tracer: the tensor by symbols, which join the recording's. NULL in *out where nothing of it is symbolic. */
WK_MUST_USE wk_status wk__describe_tensor(wk__recording *r, wk__reg reg, const wk_tensor *tensor, wk__tensor_spec *spec,
                                          wk_tensor **out);

/* ---- sizes that values decide: symbols that the graph tells while it is run ---- */
/* For the tracer: rows of a result. WK_INT_POISONED where they are not to be a symbol. */
wk_int wk__counted_rows(wk__recording *r, int64_t now);
/* item() or int() of a tensor, tolist() of a few integers (counted.c). -> new; NULL without an exception: done plainly
 */
PyObject *wk__counted_item(wk__frame *f, PyObject *tensor);
PyObject *wk__counted_list(wk__frame *f, PyObject *tensor);
bool wk__is_counted(const wk__recording *r,
                    wk_int x); /* such a symbol is in it: it has no value before the graph is run */

/* ---- marks (marks.c) ---- */
/* The bits of torch._dynamo.mark_dynamic() and its kind: a set of dims in an attribute of the tensor. */
uint64_t wk__marked_dims(PyObject *tensor, const char *attribute);
/* The values that mark_dynamic(min=, max=) allows: narrows what is given. Whether there is anything. */
bool wk__marked_range(PyObject *tensor, int dim, int64_t *lo, int64_t *hi);
/* An integer whose value depends on a marked size, or a list or tuple that has one. */
bool wk__holds_marked_int(const wk__recording *r, PyObject *object);

/* ---- integers ---- */
bool wk__symbolic_int(const wk__recording *r, PyObject *object, wk_int *out); /* is it one, and which */
PyObject *wk__int_object(wk__recording *r, wk_int x);                         // -> new; an ordinary one when x is known
PyObject *wk__ints_tuple(wk__recording *r, const wk_int *list, int count);    // -> new
PyObject *wk__sizes_object(wk__recording *r, const wk__binding *binding, const wk_tensor *tensor);  // -> new; a Size
/* Arithmetic and comparisons of integers, one of which is symbolic. False: they are something else, or of a kind that
 * needs the numbers; *out is new, or NULL with an exception. */
bool wk__symbolic_binary(wk__recording *r, int nb_kind, PyObject *a, PyObject *b, PyObject **out);
bool wk__symbolic_unary(wk__recording *r, int negative, PyObject *a, PyObject **out);
bool wk__symbolic_extremum(wk__recording *r, bool largest, PyObject *const *args, Py_ssize_t count, PyObject **out);
/* 1, 0: what holds, assumed from here on; -1: no such integers. Also == and != of tuples that hold some. */
int wk__symbolic_compare(wk__recording *r, int py_kind, PyObject *a, PyObject *b);
int wk__symbolic_truth(wk__recording *r, PyObject *a); /* 1, 0; -1: no symbolic integer */

/* ---- an integer or float that a guard saw change ---- */
bool wk__number_changes(const wk__recording *r, PyObject *object, wk__read_kind kind, uint64_t path);
/* The region gets an object of its own, which stands for the read. 0, or -1 with r->failed set. */
int wk__read_changing(wk__recording *r, uint64_t hash, uint64_t path, PyObject *number, wk__read_kind kind, wk__reg a,
                      int64_t b, PyObject *key);

/* The register of a float that changes, or is computed of numbers that do; -1: it does not. */
wk__reg wk__float_register(const wk__recording *r, PyObject *object);
static inline bool wk__is_number(PyObject *o) { return PyLong_CheckExact(o) || PyFloat_CheckExact(o); }
static inline bool wk__has_numbers(const wk__recording *r) { return r->fresh.count || r->symbol_count; }

/* ---- floats computed of such floats and integers (floats.c): pure functions of C, done again in front of the guards
 * behind them ---- */
/* As wk__symbolic_binary and its like. */
bool wk__float_binary(wk__recording *r, int nb_kind, PyObject *a, PyObject *b, PyObject **out);
bool wk__float_negative(wk__recording *r, PyObject *a, PyObject **out);
bool wk__float_extremum(wk__recording *r, bool largest, PyObject *const *args, Py_ssize_t count, PyObject **out);
bool wk__float_call(wk__recording *r, PyObject *function, PyObject *const *args, Py_ssize_t count, PyObject **out);
int wk__float_compare(wk__recording *r, int py_kind, PyObject *a, PyObject *b); /* 1, 0: guarded; -1: no such float */
int wk__float_truth(wk__recording *r, PyObject *a);
/* Whether it is none of the values, which is guarded then. */
bool wk__float_avoids(wk__recording *r, PyObject *a, const double *values, int count);

/* ---- floats that are quotients of integers (quotients.c), until they are made integers again ---- */
typedef enum wk__rounding { WK__ROUND_DOWN, WK__ROUND_UP, WK__ROUND_TO_ZERO } wk__rounding;
void wk__note_quotient(wk__recording *r, int nb_kind, PyObject *a, PyObject *b, PyObject *result);
void wk__note_float_of_int(wk__recording *r, PyObject *number, PyObject *result);
/* A new integer; false: the float is none of those. */
bool wk__rounded_quotient(wk__recording *r, wk__rounding rounding, PyObject *a, PyObject **out);

/* ---- C code will see the number itself: its value is a constant from here on, and checked ---- */
void wk__settle(wk__recording *r, PyObject *object); /* a number, or numbers in lists, tuples, dicts and sets */
void wk__settle_all(wk__recording *r);               /* every number: what C code will find cannot be told */
void wk__settle_symbols(wk__recording *r);           /* every size, too: an error's text may tell it */

#endif
