/* What ends because the region lets go of it, and whether that runs Python code: a destructor, the callback of a weak
 * reference, a `finally`. Such code may do something that the region's next instructions see, and whatever the recorder
 * knows lives until the region is over; so a segment ends in front of the instruction. That nothing of the kind happens
 * is guarded where it depends on what comes from outside.
 *
 * In: an object, or a container that is about to change. Out: refused, or a check. Tests:
 * tests/python/capture/test_ends.py. */
#include "dynamo/capture/ends.h"

#include "dynamo/capture/known.h"
#include "dynamo/capture/record_parts.h"
#include "dynamo/reads.h"

/* ================================================= what runs code ================================================ */

static bool has_callback(PyObject *o) {
  if (!PyType_SUPPORTS_WEAKREFS(Py_TYPE(o))) return false;
  const PyWeakReference *reference = *(PyWeakReference **)PyObject_GET_WEAKREFS_LISTPTR(o);
  while (reference && (!reference->wr_callback || wk__is_watcher(reference->wr_callback)))
    reference = reference->wr_next;
  return reference != NULL;
}

bool wk__has_weak_references(PyObject *o) {
  return PyType_SUPPORTS_WEAKREFS(Py_TYPE(o)) && *(PyObject **)PyObject_GET_WEAKREFS_LISTPTR(o);
}

bool wk__generator_ends_aloud(PyObject *o) {
  bool generator = PyGen_CheckExact(o);
  if (!generator && !PyCoro_CheckExact(o)) return false;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *suspended = PyObject_GetAttrString(o, generator ? "gi_suspended" : "cr_suspended");
  PyObject *code = PyObject_GetAttrString(o, generator ? "gi_code" : "cr_code");
  bool aloud = suspended != Py_False && code && wk__code_has_handlers((PyCodeObject *)code);
  Py_XDECREF(code);
  Py_XDECREF(suspended);
  PyErr_Restore(type, value, traceback); /* an error of the above goes with it */
  return aloud;
}

bool wk__has_destructor(PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  return t->tp_flags & Py_TPFLAGS_HEAPTYPE && t->tp_finalize && !wk__type_is_fixed(t);
}

static bool runs_code(PyObject *o) { return wk__has_destructor(o) || has_callback(o) || wk__generator_ends_aloud(o); }

/* ==================================================== deaths ===================================================== */

enum { MOST_REFERENCES = 64 }; /* more than frames and recorder have of one object */

/* An object dies, and what only it holds, `depth` objects deep. What the region has made is a part of it, and so is the
 * code that its end runs (a generator's): with a `recording` that counts only behind something known. */
typedef struct death {
  const wk__holders *others;
  wk__recording *recording; /* NULL: everything counts */
  bool notes;               /* that what is known runs no code is guarded */
  bool watched;             /* what has weak references counts, too: whether they are dead is asked for */
  bool known;
  wk__map *let_go,
      own; /* object that several hold -> how many of them let go of it, and known: see is_last; own: freed */
  int depth, objects;
  bool aloud;
  bool happens;    /* it is no question: what the recorder alone keeps is noted as dead */
  bool kept;       /* what is looked at stands in something that it keeps */
  PyObject **held; /* (held_count) borrowed, in owned memory: all such, as often as they stand there */
  int64_t held_count, held_capacity;
} death;

static void check_mute(wk__recording *r, wk__reg reg, int64_t what, PyObject *key) {
  wk__check_once(r, WK__CHECK_MUTE, reg, what, key);
}

static const uintptr_t HAS_ENDED = UINTPTR_MAX;

static uintptr_t note_let_go(death *d, PyObject *o, uintptr_t what) {
  if (wk__map_set(d->let_go, (uintptr_t)o, (void *)what) != WK_OK) d->aloud = true;
  return what;
}

/* It has been looked at: what is in a cycle may be reached again. */
static bool has_ended(death *d, PyObject *o) {
  if (Py_REFCNT(o) <= 1 || !PyObject_IS_GC(o)) return false;
  bool ended = (uintptr_t)wk__map_get(d->let_go, (uintptr_t)o) == HAS_ENDED;
  if (!ended) note_let_go(d, o, HAS_ENDED);
  return ended;
}

/* `count` hold it, and one of them lets go of it now: whether that was the last one. */
static bool is_last(death *d, PyObject *o, Py_ssize_t count) {
  if (!PyObject_IS_GC(o) && !PyType_SUPPORTS_WEAKREFS(Py_TYPE(o)) && !runs_code(o)) return false;
  uintptr_t before = (uintptr_t)wk__map_get(d->let_go, (uintptr_t)o);
  if (before == HAS_ENDED) return false;
  uintptr_t now = note_let_go(d, o, (before + 2) | d->known);
  d->known |= now & 1;
  return (Py_ssize_t)(now >> 1) >= count;
}

static int look_at_held(PyObject *o, void *context);

/* What is more than these is not looked through, and may have anything in it. */
static bool goes_on(death *d, PyObject *o) {
  enum { DEEPEST = 200, MOST_OBJECTS = 1 << 16 };
  if (d->aloud || !PyObject_IS_GC(o) || !Py_TYPE(o)->tp_traverse) return false;
  d->aloud = ++d->objects > MOST_OBJECTS || d->depth >= DEEPEST;
  return !d->aloud;
}

static void note_held_by_dead(death *d, PyObject *o) {
  if (wk__grow(&d->held, &d->held_capacity, d->held_count + 1, sizeof *d->held) == WK_OK)
    d->held[d->held_count++] = o;
  else
    wk_error_clear(); /* it is taken for alive */
}

static int look_at_death(PyObject *o, void *context) {
  death *d = context;
  if (has_ended(d, o)) return d->aloud;
  bool known_before = d->known, kept_before = d->kept;
  wk__reg reg = d->recording && !PyType_Check(o) ? wk__reg_find(d->recording, o) : -1;
  d->known |= reg >= 0;
  d->kept |= d->happens && reg >= 0;
  d->aloud |= d->known && (runs_code(o) || (d->watched && wk__has_weak_references(o)));
  if (d->recording && wk__has_weak_references(o)) d->recording->ended_watched = true;
  if (reg >= 0 && d->notes && !d->aloud && wk__is_foreign(d->recording, o) && !d->recording->registers[reg].fixed)
    check_mute(d->recording, reg, WK__MUTE_ITSELF, NULL);
  if (goes_on(d, o)) {
    d->depth++;
    Py_TYPE(o)->tp_traverse(o, look_at_held, d);
    d->depth--;
  }
  d->known = known_before;
  d->kept = kept_before;
  return d->aloud;
}
static int look_at_held(PyObject *o, void *context) {
  death *d = context;
  bool known_before = d->known;
  if (d->kept) note_held_by_dead(d, o);
  Py_ssize_t count = Py_REFCNT(o);
  if (count > 1 && count <= MOST_REFERENCES && d->others) count -= d->others->count(d->others->context, o);
  bool ends = count <= 1 || (count <= MOST_REFERENCES && is_last(d, o, count));
  if (ends) look_at_death(o, context);
  d->known = known_before;
  return d->aloud;
}

/* From 3.13 on a dictionary of attributes does not visit the values that lie in its object. */
static void visit_held(PyObject *container, visitproc visit, void *context) {
  PyObject *key, *value;
  if (!PyDict_Check(container) && Py_TYPE(container)->tp_traverse)
    Py_TYPE(container)->tp_traverse(container, visit, context);
  for (Py_ssize_t at = 0; PyDict_Check(container) && PyDict_Next(container, &at, &key, &value);)
    if (visit(key, context) || visit(value, context)) return;
}

static void look_at_all_held(PyObject *container, death *d) {
  if (PyObject_IS_GC(container)) visit_held(container, look_at_held, d);
}

static void begin(death *d) { d->let_go = d->others && d->others->let_go ? d->others->let_go : &d->own; }
static bool is_aloud(death *d) {
  wk__map_release(&d->own);
  return d->aloud;
}

static death death_seen_by(const wk__holders *others) {
  return (death){.others = others, .known = true, .watched = others && others->watches};
}

bool wk__end_is_aloud(PyObject *o, const wk__holders *others) {
  death d = death_seen_by(others);
  begin(&d);
  look_at_death(o, &d);
  return is_aloud(&d);
}
bool wk__let_go_is_aloud(PyObject *o, const wk__holders *others) {
  death d = death_seen_by(others);
  begin(&d);
  look_at_held(o, &d);
  return is_aloud(&d);
}
bool wk__emptying_is_aloud(PyObject *container, const wk__holders *others) {
  death d = death_seen_by(others);
  begin(&d);
  look_at_all_held(container, &d);
  return is_aloud(&d);
}

/* ============================================== variables of frames ============================================== */

/* In what containers held before they were changed. */
static Py_ssize_t references_before(const wk__recording *r, const PyObject *o) {
  Py_ssize_t count = 0;
  for (int64_t i = 0; r->has_before && i < r->register_count; i++) {
    const PyObject *before = r->registers[i].before;
    for (Py_ssize_t k = 0; before && k < PyTuple_GET_SIZE(before); k++) count += PyTuple_GET_ITEM(before, k) == o;
  }
  return count;
}

/* How often the recorder holds it, and how often the frames do. */
static Py_ssize_t recorders_references(const void *session, PyObject *o) {
  const wk__session *s = session;
  wk__reg reg = wk__reg_find(s->recording, o);
  Py_ssize_t count = s->handled_at_start == o;
  if (reg >= 0) count += (s->recording->registers[reg].object == o) + s->recording->registers[reg].others;
  for (const wk__activation *a = s->innermost; a; a = a->outer)
    for (int i = 0; a->at_start && i < a->slots_at_start + a->stack_at_start; i++) count += a->at_start[i] == o;
  count += (Py_ssize_t)wk__map_get(&s->recording->held_by_dead, (uintptr_t)o);
  return count + references_before(s->recording, o);
}
static Py_ssize_t references_of_frame(const wk__activation *a, PyObject *o) {
  Py_ssize_t count = 0;
  int slots = wk__frame_slot_count(&a->frame), depth = wk__frame_depth(&a->frame);
  for (int i = 0; i < slots; i++) count += wk__frame_slot(&a->frame, i) == o;
  for (int i = 0; i < depth; i++) count += wk__frame_stack(&a->frame, i) == o;
  return count;
}
Py_ssize_t wk__frames_references(const wk__session *s, PyObject *o) {
  Py_ssize_t count = 0;
  for (const wk__activation *a = s->innermost; a; a = a->outer) count += references_of_frame(a, o);
  return count;
}

/* The frame drops the object. late: something keeps the frame, so that what the region has made does not end here,
 * either: a generator, or what weak references point at. */
static bool dies_aloud(const wk__session *s, const wk__activation *a, PyObject *o, bool late) {
  if (!o || Py_REFCNT(o) > MOST_REFERENCES) return false;
  Py_ssize_t recorder = recorders_references(s, o);
  Py_ssize_t frames = recorder ? wk__frames_references(s, o) : references_of_frame(a, o);
  const wk__holders others = {.count = recorders_references, .context = s};
  death d = {.others = &others, .recording = s->recording, .notes = true, .known = late || recorder, .watched = late};
  begin(&d);
  if (Py_REFCNT(o) <= recorder + frames) look_at_death(o, &d);
  return is_aloud(&d);
}

/* An instruction has taken it from the stack, where it was when the segment began, and C code has let go of it. */
static bool stack_died_aloud(const wk__session *s, const wk__activation *a) {
  for (int i = a->slots_at_start; i < a->slots_at_start + a->stack_at_start; i++) {
    PyObject *o = a->at_start[i];
    if (!o || Py_REFCNT(o) > MOST_REFERENCES || wk__is_plain_value(s->binding, o)) continue;
    if (Py_REFCNT(o) <= recorders_references(s, o) && dies_aloud(s, a, o, false)) return true;
  }
  return false;
}

/* The exception that is handled, by the end of its `except` block. Beside the recorder the thread has it, and this. */
static bool handled_dies_aloud(const wk__session *s) {
  PyObject *o = PyErr_GetHandledException();
  Py_ssize_t recorder = o && Py_REFCNT(o) <= MOST_REFERENCES ? recorders_references(s, o) : 0;
  bool aloud = recorder && Py_REFCNT(o) == recorder + 2 && wk__end_is_aloud(o, NULL);
  Py_XDECREF(o);
  return aloud;
}

/* A frame that was there when the segment began may be kept by what the recorder has from then, the exception in whose
 * handler it began: the traceback has the frame, or one that it has called. The program may keep such a thing, too. */
bool wk__frame_dies_aloud(const wk__session *s, const wk__activation *a) {
  bool late = a->at_start && wk__frame_is_kept(&a->frame);
  for (int i = 0; s->recording && i < wk__frame_slot_count(&a->frame); i++)
    if (dies_aloud(s, a, wk__frame_slot(&a->frame, i), late)) return true;
  return false;
}

/* What the segment did not look at is something else another time, or something where there was nothing; but at the
 * start of a function, whose variables are empty. */
static void know_replaced(const wk__session *s, const wk__activation *a, int slot) {
  bool unknown = a->at_start && slot < a->slots_at_start && !a->stored[slot] && !a->seen[slot];
  bool begins = unknown && !a->depth && s->start_offsets[0] == 0 && !a->at_start[slot];
  if (unknown && !begins) wk__check_once(s->recording, WK__CHECK_MUTE_SLOT, a->depth, slot, NULL);
}

bool wk__variable_dies_aloud(const wk__session *s, const wk__activation *a) {
  if (s->recording && a->stack_at_start && stack_died_aloud(s, a)) return true;
  int slots[2], count = s->recording ? wk__frame_next_lets_go(&a->frame, slots) : 0;
  if (count < 0) return a->depth && wk__frame_dies_aloud(s, a);
  if (s->recording && wk__frame_next_ends_handler(&a->frame)) return handled_dies_aloud(s);
  for (int i = 0; i < count; i++) {
    if (dies_aloud(s, a, wk__frame_slot(&a->frame, slots[i]), false)) return true;
    know_replaced(s, a, slots[i]);
  }
  return false;
}

static void keep_as_dead(wk__recording *r, const death *d) {
  for (int64_t i = 0; i < d->held_count; i++) {
    uintptr_t key = (uintptr_t)d->held[i], before = (uintptr_t)wk__map_get(&r->held_by_dead, key);
    if (wk__map_set(&r->held_by_dead, key, (void *)(before + 1)) != WK_OK) wk_error_clear();
  }
}

void wk__note_dropped(wk__frame *f, wk__recording *r, PyObject *const *values, int count) {
  const wk__holders others = {.count = recorders_references, .context = f->session};
  death d = {.others = &others, .recording = r, .notes = true, .happens = true};
  begin(&d);
  for (int i = 0; i < count && !d.aloud; i++)
    if (values[i] && !wk__is_plain_value(f->session->binding, values[i])) look_at_held(values[i], &d);
  bool aloud = is_aloud(&d);
  if (!aloud) keep_as_dead(r, &d);
  wk__free(d.held);
  if (!aloud) return;
  PyObject *type, *value, *traceback; /* it may be an exception that drops them */
  PyErr_Fetch(&type, &value, &traceback);
  wk__session_give_up(f->session, "the end of what is on the stack runs code");
  PyErr_Restore(type, value, traceback);
}

static int give_sequence(PyObject *o, void *out) {
  if (PyList_CheckExact(o) || PyTuple_CheckExact(o)) *(PyObject **)out = o;
  return 0;
}

void wk__note_exhausted(wk__frame *f, wk__recording *r, PyObject *iterator) {
  PyTypeObject *t = Py_TYPE(iterator);
  if ((t != &PyListIter_Type && t != &PyTupleIter_Type) || PyObject_LengthHint(iterator, 1)) return;
  PyObject *sequence = NULL;
  t->tp_traverse(iterator, give_sequence, &sequence);
  if (sequence) wk__note_dropped(f, r, &sequence, 1);
}

bool wk__note_stays(const wk__frame *f, wk__recording *r, PyObject *o) {
  wk__reg reg = wk__is_foreign(r, o) ? wk__reg_find(r, o) : -1;
  const wk__session *s = f->session;
  bool held = Py_REFCNT(o) > MOST_REFERENCES || Py_REFCNT(o) > recorders_references(s, o) + wk__frames_references(s, o);
  if (reg < 0 || !held) return false;
  if (!r->registers[reg].fixed) check_mute(r, reg, WK__MUTE_STAYS, NULL);
  return true;
}

/* =================================================== containers ================================================== */

/* The container lets go of one reference (`item`), or of all that it holds. One that the region has made holds what is
 * known, or what is the region's own. */
static bool is_let_go_aloud(const wk__frame *f, wk__recording *r, PyObject *container, PyObject *item) {
  const wk__holders others = {.count = recorders_references, .context = f->session, .let_go = r->let_go};
  bool own = !wk__is_foreign(r, container);
  death d = {.others = &others, .recording = r, .notes = own, .known = !own};
  begin(&d);
  if (item)
    look_at_held(item, &d);
  else
    look_at_all_held(container, &d);
  return is_aloud(&d);
}

static int item_runs_code(PyObject *o, void *unused) {
  (void)unused;
  return !PyType_Check(o) && runs_code(o);
}

bool wk__keys_end_aloud(const wk__frame *f, wk__recording *r, PyObject *container) {
  if (PyAnySet_Check(container))
    return Py_TYPE(container)->tp_traverse(container, item_runs_code, NULL) || is_let_go_aloud(f, r, container, NULL);
  PyObject *key, *value;
  for (Py_ssize_t at = 0; PyDict_Check(container) && PyDict_Next(container, &at, &key, &value);) {
    if (PyUnicode_CheckExact(key) || wk__is_plain_value(f->session->binding, key)) continue;
    if (wk__has_destructor(key) || is_let_go_aloud(f, r, container, key)) return true;
  }
  return false;
}

static int refuse_end(wk__frame *f) {
  wk__refuse(f, "the end of what is replaced runs code");
  return -1;
}

int wk__note_emptied(wk__frame *f, wk__recording *r, PyObject *container) {
  if (is_let_go_aloud(f, r, container, NULL)) return refuse_end(f);
  if (wk__is_foreign(r, container)) check_mute(r, wk__reg_find(r, container), WK__MUTE_CONTENT, NULL);
  return 0;
}

/* Finding such a key in the dictionary asks no Python code. */
static bool is_plain_key(const wk__frame *f, const wk__recording *r, PyObject *key) {
  return wk__is_plain_value(f->session->binding, key) && !wk__is_identity(r, key);
}
static bool has_plain_keys(const wk__frame *f, PyObject *dict) {
  PyObject *key, *value;
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value);)
    if (!PyUnicode_CheckExact(key) && !wk__is_plain_value(f->session->binding, key)) return false;
  return true;
}

static int note_key_replaced(wk__frame *f, wk__recording *r, PyObject *dict, PyObject *key) {
  PyObject *old = PyDict_GetItemWithError(dict, key);
  if (!old && PyErr_Occurred()) return -1;
  if (old && is_let_go_aloud(f, r, dict, old)) return refuse_end(f);
  wk__reg reg = wk__is_foreign(r, dict) ? wk__reg_find(r, dict) : -1;
  bool all = reg >= 0 && r->registers[reg].written;
  if (all) check_mute(r, reg, WK__MUTE_CONTENT, NULL);
  if (reg >= 0 && !all && !wk__was_written(r, reg, key)) check_mute(r, reg, 0, key);
  return 0;
}

/* at: behind the last one: nothing is let go of now, and may be in another call. */
static int note_place_replaced(wk__frame *f, wk__recording *r, PyObject *list, Py_ssize_t at) {
  PyObject *item = at < Py_SIZE(list) ? wk__from_sequence(list, at) : NULL;
  if (item && is_let_go_aloud(f, r, list, item)) return refuse_end(f);
  wk__reg reg = wk__is_foreign(r, list) ? wk__reg_find(r, list) : -1;
  bool as_found = reg >= 0 && !r->registers[reg].written;
  if (reg >= 0) check_mute(r, reg, as_found ? at : WK__MUTE_CONTENT, NULL);
  return 0;
}

int wk__note_replaced(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *key) {
  if (PyDict_Check(owner) && is_plain_key(f, r, key) && has_plain_keys(f, owner))
    return note_key_replaced(f, r, owner, key);
  Py_ssize_t place = PyList_Check(owner) && PyLong_CheckExact(key) ? PyLong_AsSsize_t(key) : -1;
  if (place == -1 && PyErr_Occurred()) PyErr_Clear();
  if (!PyList_Check(owner) || !PyLong_CheckExact(key)) return wk__note_emptied(f, r, owner);
  Py_ssize_t count = PyList_GET_SIZE(owner), at = place < 0 ? place + count : place;
  return at < 0 || at >= count ? 0 : note_place_replaced(f, r, owner, at); /* 0: it is an error */
}

/* One that is full lets go of what is at its other end. */
int wk__note_pushed_out(wk__frame *f, wk__recording *r, const wk__known_call *known, PyObject *deque) {
  bool right = strcmp(known->name, "append") == 0, left = strcmp(known->name, "appendleft") == 0;
  bool many = strncmp(known->name, "extend", 6) == 0 || strcmp(known->name, "__iadd__") == 0;
  if (!left && !right && !many) return 0;
  PyObject *most = PyObject_GetAttrString(deque, "maxlen");
  Py_ssize_t count = most && most != Py_None ? PyLong_AsSsize_t(most) : 0;
  Py_XDECREF(most);
  if (wk__is_foreign(r, deque) && !wk__know_part(f, r, deque, "maxlen")) return -1;
  if (!count) return 0;
  return many ? wk__note_emptied(f, r, deque) : note_place_replaced(f, r, deque, left ? count - 1 : 0);
}

/* One that stands in a slot of the class (`__slots__`). */
static int note_slot_replaced(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name) {
  PyObject *old = PyObject_GenericGetAttr(owner, name);
  Py_XDECREF(old); /* the owner has it */
  PyErr_Clear();
  if (old && is_let_go_aloud(f, r, owner, old)) return refuse_end(f);
  wk__reg reg = wk__is_foreign(r, owner) ? wk__reg_find(r, owner) : -1;
  if (reg >= 0 && !wk__was_written(r, reg, name)) check_mute(r, reg, 0, name);
  return 0;
}

int wk__note_attribute_replaced(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name) {
  PyObject *in_class = wk__type_attribute(Py_TYPE(owner), name), **dict = wk__instance_dict_place(owner);
  if (in_class && Py_TYPE(in_class) == &PyMemberDescr_Type) return note_slot_replaced(f, r, owner, name);
  return dict && *dict ? wk__note_replaced(f, r, *dict, name) : 0;
}

/* dict.update(): what it has under the keys of `more`. */
static int note_keys_replaced(wk__frame *f, wk__recording *r, PyObject *dict, PyObject *more) {
  PyObject *key, *value;
  if (!has_plain_keys(f, dict) || !has_plain_keys(f, more)) return wk__note_emptied(f, r, dict);
  for (Py_ssize_t at = 0; PyDict_Next(more, &at, &key, &value);)
    if (note_key_replaced(f, r, dict, key) < 0) return -1;
  return 0;
}

static int note_losses(wk__frame *f, wk__recording *r, const wk__known_call *known, PyObject *self,
                       PyObject *const *args, Py_ssize_t count, PyObject *names) {
  if (known->how & WK__CALL_DROPS_ITEM && !names) {
    PyObject *last = PyList_Check(self) && !count ? PyLong_FromLong(-1) : NULL;
    PyObject *key = count ? args[0] : last;
    int status = key ? wk__note_replaced(f, r, self, key) : wk__note_emptied(f, r, self);
    Py_XDECREF(last);
    return status;
  }
  bool by_keys = known->how & WK__CALL_DROPS_KEYS && (!count || PyDict_CheckExact(args[0]));
  if (!by_keys) return known->how & (WK__CALL_DROPS | WK__CALL_DROPS_KEYS) ? wk__note_emptied(f, r, self) : 0;
  if (count && note_keys_replaced(f, r, self, args[0]) < 0) return -1;
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); i++)
    if (wk__note_replaced(f, r, self, PyTuple_GET_ITEM(names, i)) < 0) return -1;
  return 0;
}

int wk__note_losses(wk__frame *f, wk__recording *r, const wk__known_call *known, PyObject *self, PyObject *const *args,
                    Py_ssize_t count, PyObject *names) {
  wk__map let_go = {0};
  r->let_go = &let_go;
  int status = note_losses(f, r, known, self, args, count, names);
  r->let_go = NULL;
  wk__map_release(&let_go);
  return status;
}
