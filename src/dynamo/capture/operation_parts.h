/* What the files operations*.c share: instructions while something is captured. */
#ifndef WICK_DYNAMO_CAPTURE_OPERATION_PARTS_H
#define WICK_DYNAMO_CAPTURE_OPERATION_PARTS_H

#include "dynamo/capture/known.h"
#include "dynamo/capture/record_parts.h"

/* The first line of an instruction: without a recording it is done plainly. */
#define RECORDING(plain)                  \
  wk__recording *r = wk__recording_of(f); \
  if (!r) return plain
#define BINDING (f->session->binding)
/* What replaces or removes objects, and runs no Python code but that of what dies of it: replaying the step does that
 * again, so it is not recorded. */
#define LETTING_GO(status, call) \
  do {                           \
    f->dropping++;               \
    (status) = (call);           \
    f->dropping--;               \
  } while (0)

/* The instruction is refused, because the recording has failed, or for a reason of its own. */
static inline PyObject *wk__failed(wk__frame *f, const wk__recording *r) { return wk__refuse(f, "%s", r->failed); }
static inline int wk__failed_int(wk__frame *f, const wk__recording *r) {
  wk__refuse(f, "%s", r->failed);
  return -1;
}
static inline int wk__refused(wk__frame *f, const char *why) {
  wk__refuse(f, "%s", why);
  return -1;
}

wk__reg wk__globals_register(wk__recording *r, PyObject *dict); /* of the dictionary of a module's names; or -1 */
/* A name of a module, here or there: in its dictionary. `value` NULL: it is removed. 0 or -1. */
int wk__set_in_module(wk__frame *f, wk__recording *r, PyObject *dict, PyObject *name, PyObject *value);
/* owner[key] = value, or del where it is NULL, of a builtin container that the region has not made. 0 or -1. */
int wk__did_set_item(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *key, PyObject *value);

#endif
