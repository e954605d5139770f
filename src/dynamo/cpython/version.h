/* The CPython that wick is built for: its internal headers, its opcodes, where things are in its frames and threads.
 * Included by the files of this folder alone, before all else, and nothing else includes CPython's internal headers.
 *
 * version_3XX.h has, as inline functions, what each instruction or call needs; version_3XX.c the rest:
 * docs/add-a-cpython.md says what each of them promises. */
#ifndef WICK_DYNAMO_CPYTHON_VERSION_H
#define WICK_DYNAMO_CPYTHON_VERSION_H

#ifndef Py_BUILD_CORE_MODULE
#define Py_BUILD_CORE_MODULE 1
#endif
#include "dynamo/cpython/normal.h"
#include "dynamo/cpython/unwind.h"
// The internal headers come after Python.h.
#include <internal/pycore_ceval.h>
#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#include <opcode.h>

#ifdef Py_GIL_DISABLED
#error "wick needs a CPython with the global interpreter lock: this one is free-threaded (python3.13t and the like)"
#endif

typedef struct _PyInterpreterFrame real_frame;

/* How a wk__frame is linked into its thread: kept in frame->links, hence the may_alias. */
typedef struct wk__linkage wk__linkage;
static inline wk__linkage *wk__linkage_of(wk__frame *frame);

#if PY_MAJOR_VERSION == 3 && PY_MINOR_VERSION == 11
#include "dynamo/cpython/version_311.h"
#elif PY_MAJOR_VERSION == 3 && PY_MINOR_VERSION == 12
#include "dynamo/cpython/version_312.h"
#elif PY_MAJOR_VERSION == 3 && PY_MINOR_VERSION == 13
#include "dynamo/cpython/version_313.h"
#else
#error "wick knows the frames of CPython 3.11, 3.12 and 3.13: docs/add-a-cpython.md"
#endif

_Static_assert(sizeof(struct wk__linkage) <= sizeof(((wk__frame *)0)->links), "wk__linkage does not fit");
static inline wk__linkage *wk__linkage_of(wk__frame *frame) { return (wk__linkage *)frame->links; }

/* frame.c: into its thread, as the current one, and out of it. */
void wk__frame_link(wk__frame *frame);
void wk__frame_unlink(wk__frame *frame);

/* ---- version_3XX.c ---- */

/* The frame, which is linked no more, is over: what it holds is let go of, with the exception that is set, if one is.
 * `steal_result` (NULL: none) is given back. From 3.12 on CPython's caller leaves that to the hook. */
PyObject *wk__version_clear(wk__frame *frame, PyObject *steal_result);  // -> new
/* Signals, pending calls, exceptions from other threads, the lock, garbage: 0, or -1 with an exception. */
int wk__version_serve_requests(PyThreadState *thread);

#endif
