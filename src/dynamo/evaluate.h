/* The evaluator by itself, without capture: for tests, and as the simplest loop around wk__frame_step. */
#ifndef WICK_DYNAMO_EVALUATE_H
#define WICK_DYNAMO_EVALUATE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* _dynamo_evaluate(function, args, kwargs={}, switch_after=-1, *, nested=False, code=None, refill=False)
 * -> (result, steps)
 * Calls the function; the frames of its code (or of `code`) are evaluated, and left to CPython after that many
 * instructions in all, -1: never. nested: so are, without limit, all others that are entered from here on. refill: what
 * is left goes on in a fresh frame of the same function that is filled with its state, where that can be done. */
PyObject *wk__dynamo_evaluate(PyObject *module, PyObject *args, PyObject *keywords);  // -> new

#endif
