/* Modules and optimizers that a segment knows: watched, not owned, nor are their dictionaries, but while it is
 * replayed. In: a segment that has been kept. Out: weak references, whose callback forgets the segment. Tests:
 * tests/python/capture/test_lifetime.py. */
#include "dynamo/cpython/objects.h"
#include "dynamo/session.h"

void wk__segment_forget(wk__segment *g) {
  if (!g->owner) return;
  for (wk__segment **place = &g->owner->segments; *place; place = &(*place)->next) {
    if (*place != g) continue;
    wk__lookup_drop(g->owner);
    g->owner->segment_count--;
    *place = g->next;
    g->owner = NULL;
    wk__segment_release(g);
    return;
  }
}

/* A module or optimizer that the segment knows has died: it can never be replayed again. The collector calls back for
 * everything that it found dead, also when the first call was the segment's end. */
static PyObject *model_died(PyObject *capsule, PyObject *reference) {  // -> new
  (void)reference;
  wk__segment *g = PyCapsule_GetContext(capsule);
  if (g) wk__segment_forget(g);
  if (PyErr_Occurred()) return NULL;
  Py_RETURN_NONE;
}
static PyMethodDef model_died_method = {"model_died", model_died, METH_O, NULL};

bool wk__is_watcher(PyObject *callback) {
  return PyCFunction_Check(callback) && ((PyCFunctionObject *)callback)->m_ml == &model_died_method;
}

static bool is_model(const wk__session *s, PyObject *o) {
  return PyObject_TypeCheck(o, s->binding->module_type) || s->binding->is_optimizer(s->binding->state, o);
}

static void borrow_version(wk__segment *g, PyObject *const *place) {
  wk__recording *r = g->recording;
  for (int64_t i = 0; i < r->versioned_count; i++) {
    if (r->versioned[i] != *place || r->versioned_borrowed[i]) continue;
    r->versioned_borrowed[i] = true;
    g->versions[i].place = place;
    wk__bury(*place);
  }
}

/* The dictionary of a model is the model's: owned, it would keep alive a model that is in one of its own attributes. It
 * lives as long as the model has it, which is looked at in the model before its count of changes is. */
static int borrow_dictionaries(wk__segment *g) {
  wk__recording *r = g->recording;
  r->versioned_borrowed = wk__arena_alloc(&r->arena, (size_t)r->versioned_count + 1);
  if (!r->versioned_borrowed) return -1;
  for (int64_t i = 0; i < r->read_count; i++) {
    const wk__read *read = &r->reads[i];
    if (read->kind != WK__READ_INSTANCE || !r->registers[read->a].borrowed) continue;
    wk__register *reg = &r->registers[read->dest];
    PyObject **place = wk__instance_dict_place(r->registers[read->a].object);
    if (!reg->fixed || reg->borrowed || !place || !*place || *place != reg->object) continue;
    borrow_version(g, place);
    reg->borrowed = true;
    wk__bury(reg->object);
  }
  return 0;
}

/* ---- what a replay keeps alive ---- */

static wk__reg model_of_dict(const wk__recording *r, wk__reg dict) {
  for (int64_t i = 0; i < r->read_count; i++)
    if (r->reads[i].kind == WK__READ_INSTANCE && r->reads[i].dest == dict) return r->reads[i].a;
  return -1;
}

static void will_hold(wk__segment *g, wk__reg reg) {
  const wk__recording *r = g->recording;
  if (reg < 0 || !r->registers[reg].borrowed) return;
  for (int64_t i = 0; i < g->held_count; i++)
    if (g->held[i].reg == reg) return;
  g->held[g->held_count++] = (wk__held){reg, model_of_dict(r, reg)};
}

/* All that a replay touches behind its guards. */
static void find_held(wk__segment *g) {
  if (g->end == WK__END_RETURN) will_hold(g, g->value);
  for (int64_t i = 0; i < g->step_count; i++)
    for (int k = 0; k < g->steps[i].count; k++) will_hold(g, g->steps[i].items[k]);
  for (int i = 0; i < g->end_count; i++)
    for (int k = 0; k < g->end_frames[i].slot_count + g->end_frames[i].depth; k++)
      will_hold(g, g->end_frames[i].values[k]);
}

/* One without references is dying: its other weak references are being told of it before ours. */
bool wk__segment_hold_models(const wk__segment *g, PyObject *const *values) {
  for (int64_t i = 0; i < g->held_count; i++) {
    wk__held held = g->held[i];
    PyObject **place = held.owner < 0 ? NULL : wk__instance_dict_place(values[held.owner]);
    bool alive = held.owner < 0 ? Py_REFCNT(values[held.reg]) > 0 : place && *place == values[held.reg];
    if (!g->owner || !alive) {
      while (i--) Py_DECREF(values[g->held[i].reg]);
      return false;
    }
    Py_INCREF(values[held.reg]);
  }
  return true;
}

void wk__segment_let_models_go(const wk__segment *g, PyObject *const *values) {
  for (int64_t i = 0; values && i < g->held_count; i++) Py_DECREF(values[g->held[i].reg]);
}

int wk__segment_watch_models(wk__session *s, wk__segment *g) {
  wk__recording *r = g->recording;
  g->held = wk__arena_alloc(&r->arena, (size_t)(r->register_count + 1) * sizeof *g->held);
  if (!g->held) return -1; /* nothing is borrowed yet */
  g->life = PyCapsule_New(g, NULL, NULL);
  PyObject *callback =
      g->life && PyCapsule_SetContext(g->life, g) == 0 ? PyCFunction_New(&model_died_method, g->life) : NULL;
  int status = callback && (g->watchers = PyList_New(0)) ? 0 : -1;
  for (int64_t i = 0; status == 0 && i < r->register_count; i++) {
    wk__register *reg = &r->registers[i];
    if (!reg->fixed || !reg->object || !is_model(s, reg->object)) continue;
    PyObject *reference = PyWeakref_NewRef(reg->object, callback);
    status = reference ? PyList_Append(g->watchers, reference) : -1;
    Py_XDECREF(reference);
    if (status < 0) break;
    reg->borrowed = true;
    wk__bury(reg->object); /* the last reference: it dies, and the segment with it, when all of this is done */
  }
  for (int64_t i = 0; status == 0 && i < r->read_count; i++) {
    wk__read *check = &r->reads[i];
    if (check->kind != WK__CHECK_IS || !check->object || !is_model(s, check->object)) continue;
    check->borrowed = true;
    wk__bury(check->object);
  }
  Py_XDECREF(callback);
  if (status == 0) status = borrow_dictionaries(g);
  find_held(g);
  return status;
}
