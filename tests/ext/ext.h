/* What tests see of the inside: functions of wick._C in builds with -Dtests=enabled, which define WICK_TESTS. Release
 * builds have none of it. */
#ifndef WICK_TESTS_EXT_H
#define WICK_TESTS_EXT_H

#include "python/python.h"

/* All of them; the last step of the module's execution. 0, or -1 with an exception. */
int wk__add_test_functions(PyObject *module);

int wk__add_symbolic_tracing(PyObject *module); /* trace_symbolic.c */
int wk__add_evaluator(PyObject *module);        /* evaluate.c */
int wk__add_probe(PyObject *module);            /* probe.c */

#endif
