/* Iterators that were made outside of the region: that of a loop which was interrupted, a variable's.
 *
 * In: an iterator of C over something that can be looked at without taking it (lists, tuples, ranges, dicts, and
 * enumerate, zip and reversed of such). Out: a read of what comes, by its number from the segment's start on, and an
 * effect that takes it. So guards look and leave the iterator where it is, and a replay takes as many as the capture
 * did. What an iterator stands on is asked by its __reduce__: (iter, (list,), position).
 * Tests: tests/python/capture/test_iterators.py. */
#include "dynamo/capture/known.h"
#include "dynamo/reads.h"

#define BINDING (f->session->binding)

enum { COMES, ENDS, UNKNOWN = -1 };

static int peek(PyObject *iterator, int64_t number, PyObject **out_item);

/* Item `at` of what an iterator goes over, which nothing but that decides. */
static int item_at(PyObject *sequence, int64_t at, PyObject **out_item) {
  bool known = PyList_CheckExact(sequence) || PyTuple_CheckExact(sequence) || PyRange_Check(sequence);
  Py_ssize_t count = known ? PySequence_Size(sequence) : -1;
  if (count < 0) return UNKNOWN;
  if (at < 0 || at >= count) return ENDS;
  *out_item = PySequence_GetItem(sequence, at);
  return *out_item ? COMES : UNKNOWN;
}

/* Nothing else takes from it. `references`: those that are known. */
static bool is_held_alone(PyObject *iterator, Py_ssize_t references) { return Py_REFCNT(iterator) <= references; }

/* enumerate: (its iterator, the number that comes) */
static int peek_numbered(PyObject *args, int64_t number, PyObject **out_item) {
  PyObject *inner = PyTuple_GET_ITEM(args, 0), *item = NULL;
  int overflow;
  long long first = PyTuple_GET_SIZE(args) == 2 && PyLong_CheckExact(PyTuple_GET_ITEM(args, 1))
                        ? PyLong_AsLongLongAndOverflow(PyTuple_GET_ITEM(args, 1), &overflow)
                        : -1;
  int status = first >= 0 && is_held_alone(inner, 2) ? peek(inner, number, &item) : UNKNOWN;
  if (status == COMES && !(*out_item = Py_BuildValue("LN", first + number, item))) return UNKNOWN;
  return status;
}

/* zip: its iterators. One that has ended has let those before it go on by one: where they are not equally long, only
 * what comes in front of that is known. */
static int peek_joined(PyObject *iterators, int64_t number, PyObject **out_item) {
  Py_ssize_t count = PyTuple_GET_SIZE(iterators);
  PyObject *items = PyTuple_New(count);
  int status = items && count ? COMES : UNKNOWN;
  for (Py_ssize_t i = 0; status == COMES && i < count; i++) {
    PyObject *inner = PyTuple_GET_ITEM(iterators, i), *item = NULL;
    status = is_held_alone(inner, 1) ? peek(inner, number, &item) : UNKNOWN;
    if (status == COMES) PyTuple_SET_ITEM(items, i, item);
  }
  if (status == COMES)
    *out_item = items;
  else
    Py_XDECREF(items);
  return status;
}

static int peek_reduced(PyObject *how, int64_t number, PyObject **out_item) {
  PyObject *builtins = PyEval_GetBuiltins(), *callable = PyTuple_GET_ITEM(how, 0), *args = PyTuple_GET_ITEM(how, 1);
  if (!PyTuple_Check(args) || PyTuple_GET_SIZE(args) == 0) return UNKNOWN;
  if (callable == (PyObject *)&PyEnum_Type) return peek_numbered(args, number, out_item);
  bool strict = PyTuple_GET_SIZE(how) > 2;
  if (callable == (PyObject *)&PyZip_Type) return strict ? UNKNOWN : peek_joined(args, number, out_item);
  PyObject *state = PyTuple_GET_SIZE(how) > 2 ? PyTuple_GET_ITEM(how, 2) : Py_None;
  int64_t at = PyLong_Check(state) ? PyLong_AsLongLong(state) : 0;
  if (callable == (PyObject *)&PyReversed_Type)
    return PyLong_Check(state) ? item_at(PyTuple_GET_ITEM(args, 0), at - number, out_item) : UNKNOWN;
  if (callable != PyDict_GetItemString(builtins, "iter")) return UNKNOWN;
  return item_at(PyTuple_GET_ITEM(args, 0), at + number, out_item);
}

static bool is_of_known_type(const PyTypeObject *t) {
  return t == &PyListIter_Type || t == &PyTupleIter_Type || t == &PyRangeIter_Type || t == &PyEnum_Type ||
         t == &PyZip_Type || t == &PyListRevIter_Type || t == &PyDictIterKey_Type || t == &PyDictIterValue_Type ||
         t == &PyDictIterItem_Type;
}

static int peek(PyObject *iterator, int64_t number, PyObject **out_item) {
  if (!is_of_known_type(Py_TYPE(iterator))) return UNKNOWN;
  PyObject *how = PyObject_CallMethod(iterator, "__reduce__", NULL);
  int status = how && PyTuple_Check(how) && PyTuple_GET_SIZE(how) >= 2 ? peek_reduced(how, number, out_item) : UNKNOWN;
  PyErr_Clear(); /* the dict has changed its size: so does taking say */
  Py_XDECREF(how);
  return status;
}

PyObject *wk__upcoming(PyObject *iterator, int64_t number) {
  PyObject *item = NULL;
  return peek(iterator, number, &item) == COMES ? item : NULL;
}
bool wk__ends_at(PyObject *iterator, int64_t number) {
  PyObject *item = NULL;
  int status = peek(iterator, number, &item);
  Py_XDECREF(item);
  return status == ENDS;
}

/* ==================================================== recording ================================================== */

/* The region has changed what an iterator goes over, or may have. */
static int is_changed(PyObject *o, void *recording) {
  const wk__recording *r = recording;
  wk__reg reg = wk__reg_find(r, o);
  bool inner = is_of_known_type(Py_TYPE(o));
  if (reg >= 0 && (inner || r->registers[reg].written || r->registers[reg].names || r->registers[reg].before)) return 1;
  return inner && Py_TYPE(o)->tp_traverse && Py_TYPE(o)->tp_traverse(o, is_changed, recording);
}
static bool goes_over_changed(const wk__recording *r, PyObject *iterator) {
  traverseproc traverse = Py_TYPE(iterator)->tp_traverse; /* NULL: of a range */
  return traverse && traverse(iterator, is_changed, (void *)r);
}

bool wk__can_look_ahead(const wk__recording *r, PyObject *iterator) {
  PyObject *item = NULL;
  if (!wk__is_foreign(r, iterator) || wk__reg_find(r, iterator) < 0) return false;
  bool known = peek(iterator, 0, &item) != UNKNOWN && !goes_over_changed(r, iterator);
  Py_XDECREF(item);
  return known;
}

static bool note_taking(wk__frame *f, wk__recording *r, PyObject *iterator) {
  PyObject *next = PyDict_GetItemString(PyEval_GetBuiltins(), "next"), *items[] = {next, iterator, Py_None};
  return next && wk__reg_constant(r, next) >= 0 &&
         wk__did(r, BINDING, WK__DO_IMPURE_CALL, NULL, items, WK_COUNT(items), NULL) == 0;
}

int wk__take_upcoming(wk__frame *f, wk__recording *r, PyObject *iterator, PyObject **out_item) {
  wk__reg reg = wk__reg_find(r, iterator);
  int64_t number = r->registers[reg].taken;
  PyObject *item = NULL;
  if (r->tries) return wk__refuse(f, "an iterator from outside in what is only tried"), -1;
  int status = peek(iterator, 0, &item), noted = -1;
  if (status == COMES)
    noted = wk__observe(r, BINDING, item, WK__READ_UPCOMING, reg, number, NULL);
  else if (status == ENDS)
    wk__check(r, WK__CHECK_ENDS, reg, number, NULL), noted = 0;
  if (noted < 0 || !note_taking(f, r, iterator)) {
    Py_XDECREF(item);
    return wk__refuse(f, "%s", r->failed), -1;
  }
  r->registers[reg].taken++;
  Py_XDECREF(PyIter_Next(iterator));
  if (status == COMES) *out_item = wk__as_read(r, item);
  Py_XDECREF(item);
  return status == COMES;
}

/* ==================================== the region's own, over numbers that change ================================= */

static int give_sequence(PyObject *o, void *out) {
  if (PyList_CheckExact(o) || PyTuple_CheckExact(o)) *(PyObject **)out = o;
  return 0;
}

/* What such an iterator of the region's own goes over; NULL: something else. */
static PyObject *sequence_behind(const wk__recording *r, PyObject *iterator) {  // -> borrowed
  PyTypeObject *t = Py_TYPE(iterator);
  PyObject *sequence = NULL;
  bool known = r->changing && (t == &PyListIter_Type || t == &PyTupleIter_Type) && wk__reg_find(r, iterator) < 0;
  if (known) t->tp_traverse(iterator, give_sequence, &sequence);
  return sequence;
}

bool wk__goes_over_changing(const wk__recording *r, PyObject *iterator) {
  PyObject *sequence = sequence_behind(r, iterator);
  return sequence && wk__holds_changing(r, sequence);
}

static bool observe_item(wk__frame *f, wk__recording *r, PyObject *sequence, Py_ssize_t at, PyObject **out_item) {
  PyObject *item = PySequence_Fast_GET_ITEM(sequence, at);
  r->last_fresh = NULL;
  if (wk__observe(r, BINDING, item, WK__READ_ITEM, wk__reg_find(r, sequence), at, NULL) < 0)
    return wk__refuse(f, "%s", r->failed), false;
  *out_item = wk__as_read(r, item);
  return true;
}

int wk__next_of_changing(wk__frame *f, wk__recording *r, PyObject *iterator, PyObject **out_item) {
  PyObject *sequence = sequence_behind(r, iterator);
  Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence), left = PyObject_LengthHint(iterator, 0);
  wk__check_once(r, WK__CHECK_LENGTH, wk__reg_find(r, sequence), count, NULL);
  PyObject *item = NULL;
  if (left > 0 && !observe_item(f, r, sequence, count - left, &item)) return -1;
  Py_XDECREF(PyIter_Next(iterator));
  *out_item = item;
  return item != NULL;
}

int wk__unpack_changing(wk__frame *f, wk__recording *r, PyObject *sequence, PyObject **out_items) {
  Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence);
  wk__check_once(r, WK__CHECK_LENGTH, wk__reg_find(r, sequence), count, NULL);
  for (Py_ssize_t i = 0; i < count; i++) {
    if (observe_item(f, r, sequence, i, &out_items[i])) continue;
    while (i--) Py_DECREF(out_items[i]);
    return -1;
  }
  return 0;
}
