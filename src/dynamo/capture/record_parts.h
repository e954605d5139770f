/* What the files of a recording share: record.c (registers, reads, steps), numbers.c, reconstruct.c. */
#ifndef WICK_DYNAMO_CAPTURE_RECORD_PARTS_H
#define WICK_DYNAMO_CAPTURE_RECORD_PARTS_H

#include "dynamo/capture/record.h"

static inline int wk__record_no_memory(wk__recording *r) {
  wk__record_failed(r, "out of memory");
  return -1;
}
/* `object` NULL: nothing is found by it. */
wk__reg wk__new_register(wk__recording *r, wk__reg_kind kind, PyObject *object, bool fixed);
wk__read *wk__add_read(wk__recording *r, wk__read_kind kind, wk__reg a, int64_t b, PyObject *object); /* NULL: failed */

/* It lives as long as the recording. (record.c) */
void wk__keep_alive(wk__recording *r, PyObject *object);
void wk__let_kept_go(wk__recording *r);
/* ---- reconstruct.c: tensor.retain_grad() is called again by each replay. False: r->failed is set ---- */
bool wk__note_retained(wk__recording *r, const wk__binding *binding, PyObject *tensor);
/* ---- classes.c ---- */
bool wk__is_made_class(const wk__recording *r, PyObject *object);
/* ---- class_attributes.c ---- */
int wk__note_class_as_found(wk__recording *r, PyTypeObject *type);
/* ---- identities.c ---- */
bool wk__is_identity(const wk__recording *r,
                     PyObject *object); /* a number that id() or hash() has given of a made object */
bool wk__holds_identity(const wk__recording *r, PyObject *object); /* it is one, or a tuple that has one */
wk__reg wk__made_identity(wk__recording *r, const wk__binding *binding, PyObject *number); /* asked for again */
void wk__forget_identities(wk__recording *r);
/* ---- functions.c ---- */
void wk__forget_tried(wk__recording *r);
/* ---- recomputed.c ---- */
void wk__forget_kept_trial(wk__recording *r);
static inline bool wk__is_thrown_away(const wk__recording *r) { return r->tries && !r->kept_trial; }
/* ---- hooks.c ---- */
void wk__forget_left_hooks(wk__recording *r);
wk__reg wk__note_handle(wk__recording *r, const wk__binding *binding, PyObject *handle); /* -1: it is something else */
PyObject *wk__tensor_of_node(const wk__recording *r, PyObject *node);  // -> borrowed: whose grad_fn it is; NULL

/* ---- same_objects.c ---- */
/* At the end: what steps change is none of the other objects from outside, or the same one as now. */
void wk__note_changed(wk__recording *r, const wk__binding *binding);

#endif
