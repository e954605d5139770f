/* id() and hash() of what the region has made: numbers that are others in each call, and that programs use as keys.
 *
 * Such a number is an object of the region's own. Keys and comparisons with == find out what they will find out in any
 * call, because the object is kept alive until the segment ends: no other one gets its address. Everything else that
 * would look at the number (its order, its text, arithmetic) is a break. One that can be seen outside is asked for
 * again by each replay, of the object that it then is.
 *
 * In: a call of id() or hash(). Out: the number, known by its identity. Tests: tests/python/capture/test_identities.py.
 */
#include "dynamo/capture/known.h"
#include "dynamo/capture/record_parts.h"

struct wk__identity {
  PyObject *number, *function, *owner; /* owned; the number is function(owner) */
};

static uint64_t key_of(const void *p) { return (uint64_t)(uintptr_t)p; }

bool wk__is_identity(const wk__recording *r, PyObject *o) {
  return r->identity_count && wk__map_get(&r->identity_numbers, key_of(o));
}

bool wk__holds_identity(const wk__recording *r, PyObject *o) {
  if (!r->identity_count || !PyTuple_CheckExact(o)) return wk__is_identity(r, o);
  bool holds = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++) holds |= wk__is_identity(r, PyTuple_GET_ITEM(o, i));
  return holds;
}

/* A number below 257 has no object of its own. */
static bool is_one_of_its_own(PyObject *number) {
  int overflow;
  long value = PyLong_AsLongAndOverflow(number, &overflow);
  return overflow || value > 256 || value < -256;
}

PyObject *wk__identity_call(wk__frame *f, wk__recording *r, PyObject *function, PyObject *owner) {
  PyObject *number = PyObject_CallOneArg(function, owner);
  if (!number || !is_one_of_its_own(number)) return number;
  bool kept = wk__reg_constant(r, function) >= 0 &&
              wk__grow(&r->identities, &r->identity_capacity, r->identity_count + 1, sizeof *r->identities) == WK_OK &&
              wk__map_set(&r->identity_numbers, key_of(number), (void *)(intptr_t)(r->identity_count + 1)) == WK_OK;
  if (!kept) {
    Py_DECREF(number);
    return wk__refuse(f, "out of memory");
  }
  r->identities[r->identity_count++] = (wk__identity){Py_NewRef(number), Py_NewRef(function), Py_NewRef(owner)};
  return number;
}

wk__reg wk__made_identity(wk__recording *r, const wk__binding *b, PyObject *number) {
  wk__identity known = r->identities[(intptr_t)wk__map_get(&r->identity_numbers, key_of(number)) - 1];
  PyObject *items[] = {known.function, known.owner};
  return wk__did(r, b, WK__DO_CALL, number, items, 2, NULL) < 0 ? -1 : wk__reg_find(r, number);
}

void wk__forget_identities(wk__recording *r) {
  wk__map_release(&r->identity_numbers);
  for (int64_t i = 0; i < r->identity_count; i++) {
    WK__BURY(r->identities[i].number);
    WK__BURY(r->identities[i].function);
    WK__BURY(r->identities[i].owner);
  }
  r->identity_count = 0;
}
