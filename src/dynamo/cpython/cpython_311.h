/* What the cpython_311_*.c files share. Only they include CPython's internal headers, and nothing else includes this.
 */
#ifndef WICK_DYNAMO_CPYTHON_CPYTHON_311_H
#define WICK_DYNAMO_CPYTHON_CPYTHON_311_H

#ifndef Py_BUILD_CORE_MODULE
#define Py_BUILD_CORE_MODULE 1
#endif
#include "dynamo/cpython/frames.h"
// The internal headers come after Python.h.
#include <internal/pycore_ceval.h>
#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#include <opcode.h>

_Static_assert(PY_MAJOR_VERSION == 3 && PY_MINOR_VERSION == 11, "cpython_311_*.c are for CPython 3.11");

typedef struct _PyInterpreterFrame real_frame;

/* How a wk__frame is linked into its thread: kept in frame->links, hence the may_alias. */
typedef struct linkage {
  _PyCFrame cframe; /* CPython's record of a running loop, one for each C stack frame that evaluates */
  bool linked;      /* the frame is the thread's current one */
  bool counted;     /* one unit of the recursion limit is taken */
  bool reraising;   /* the exception that is set was raised before: it gets no new traceback entry */
} __attribute__((may_alias)) linkage;
_Static_assert(sizeof(linkage) <= sizeof(((wk__frame *)0)->links), "linkage does not fit");

static inline linkage *wk__linkage(wk__frame *frame) { return (linkage *)frame->links; }

static inline int wk__opcode_at(const wk__code *info, int offset) { return info->units[2 * offset]; }

/* Inline cache entries behind an instruction. */
extern const uint8_t wk__cache_units[256];

#endif
