/* Which objects are the same one: containers find what they are asked for, and compare equal, by that. In: objects from
 * outside that C code compares. Out: guards that they are, or are not, the same one. An object that no two registers
 * lead to has a guard only where another answer could be found. Tests: tests/python/capture/test_same_objects.py,
 * test_containers.py. */
#include "dynamo/capture/known.h"
#include "dynamo/capture/known_calls.h"
#include "dynamo/capture/record_parts.h"
#include "dynamo/cpython/objects.h"

void wk__note_identity(wk__recording *r, PyObject *a, PyObject *b) {
  wk__reg x = wk__reg_find(r, a), y = wk__reg_find(r, b);
  if (x < 0 || y < 0 || x == y) return;
  const wk__register *gx = &r->registers[x], *gy = &r->registers[y];
  bool outside = wk__is_foreign(r, a) && wk__is_foreign(r, b);
  if ((gx->fixed && gy->fixed) || !outside) return;
  if (Py_TYPE(a) != Py_TYPE(b)) return; /* their types are checked */
  wk__check_once(r, WK__CHECK_DIFFERENT, x, y, NULL);
}

static bool has_keys(PyObject *o) { return PyDict_Check(o) || PyAnySet_Check(o) || PyDictViewSet_Check(o); }

static bool is_key_from_outside(const wk__frame *f, const wk__recording *r, PyObject *o) {
  return !wk__is_plain_value(f->session->binding, o) && wk__is_foreign(r, o);
}

void wk__note_keys(wk__frame *f, wk__recording *r, PyObject *const *keys, Py_ssize_t count, int step) {
  for (Py_ssize_t i = 0; i < count; i += step)
    for (Py_ssize_t k = 0; k < i && is_key_from_outside(f, r, keys[i]); k += step)
      wk__note_identity(r, keys[i], keys[k]);
}

void wk__note_key(wk__frame *f, wk__recording *r, PyObject *container, PyObject *key) {
  if (!is_key_from_outside(f, r, key)) return;
  PyObject *there = wk__held_by(container);
  if (!there) PyErr_Clear();
  for (Py_ssize_t i = 0; there && i < PyTuple_GET_SIZE(there); i++)
    wk__note_identity(r, PyTuple_GET_ITEM(there, i), key);
  Py_XDECREF(there);
}

void wk__note_written_keys(wk__recording *r, wk__reg container, PyObject *key) {
  PyObject *names = r->registers[container].names, *written = names ? PySequence_Tuple(names) : NULL;
  if (names && !written) PyErr_Clear();
  for (Py_ssize_t i = 0; written && i < PyTuple_GET_SIZE(written); i++)
    wk__note_identity(r, PyTuple_GET_ITEM(written, i), key);
  Py_XDECREF(written);
}

bool wk__is_asked_again(const wk__frame *f, const wk__recording *r, PyObject *key, wk__reg reg) {
  const wk__register *g = reg >= 0 ? &r->registers[reg] : NULL;
  return g && g->kind == WK__REG_READ && !g->fixed && wk__hashes_its_address(f, key);
}

/* Keys of a set, dictionary or view of one. */
static void note_search_of_keys(wk__frame *f, wk__recording *r, PyObject *container, PyObject *value) {
  wk__reg reg = wk__reg_find(r, value);
  if (wk__is_foreign(r, container)) {
    if (!r->registers[reg].fixed) wk__check_once(r, WK__CHECK_IS, reg, 0, value);
  } else {
    wk__note_key(f, r, container, value);
  }
}

void wk__note_search(wk__frame *f, wk__recording *r, PyObject *container, PyObject *value) {
  wk__reg reg = wk__reg_find(r, value);
  if (reg < 0 || wk__is_plain_value(f->session->binding, value) || !wk__is_foreign(r, value)) return;
  if (has_keys(container)) {
    note_search_of_keys(f, r, container, value);
    return;
  }
  bool sequence = PyTuple_Check(container) || PyList_Check(container);
  for (Py_ssize_t i = 0; sequence && i < PySequence_Fast_GET_SIZE(container); i++)
    wk__note_identity(r, PySequence_Fast_GET_ITEM(container, i), value);
  for (Py_ssize_t i = 0; wk__is_deque(container) && i < Py_SIZE(container); i++)
    wk__note_identity(r, wk__from_deque(container, i), value);
}

void wk__note_joined(wk__frame *f, wk__recording *r, PyObject *a, PyObject *b) {
  if (!has_keys(a) || !(has_keys(b) || PyList_Check(b) || PyTuple_Check(b))) return;
  PyObject *keys = wk__held_by(b);
  if (!keys) PyErr_Clear();
  for (Py_ssize_t i = 0; keys && i < PyTuple_GET_SIZE(keys); i++) wk__note_key(f, r, a, PyTuple_GET_ITEM(keys, i));
  Py_XDECREF(keys);
}

static void note_items(wk__frame *f, wk__recording *r, PyObject *a, PyObject *b, int depth);
static void note_values(wk__frame *f, wk__recording *r, PyObject *a, PyObject *b, int depth) {
  PyObject *key, *value;
  for (Py_ssize_t at = 0; PyDict_Next(a, &at, &key, &value);) {
    PyObject *other = PyDict_GetItemWithError(b, key);
    if (other) note_items(f, r, value, other, depth);
    if (!other) PyErr_Clear();
  }
}

static void note_items(wk__frame *f, wk__recording *r, PyObject *a, PyObject *b, int depth) {
  enum { DEEPEST = 16 };
  if (depth > DEEPEST) return;
  bool sequences = (PyTuple_Check(a) && PyTuple_Check(b)) || (PyList_Check(a) && PyList_Check(b));
  Py_ssize_t count = sequences ? Py_MIN(PySequence_Fast_GET_SIZE(a), PySequence_Fast_GET_SIZE(b)) : 0;
  for (Py_ssize_t i = 0; i < count; i++)
    note_items(f, r, PySequence_Fast_GET_ITEM(a, i), PySequence_Fast_GET_ITEM(b, i), depth + 1);
  wk__note_joined(f, r, a, b);
  if (PyDict_Check(a) && PyDict_Check(b)) note_values(f, r, a, b, depth + 1);
  wk__note_identity(r, a, b);
}
void wk__note_equality(wk__frame *f, wk__recording *r, PyObject *a, PyObject *b) { note_items(f, r, a, b, 0); }

/* ---- what steps change ---- */

static bool is_from_outside(const wk__register *g) {
  return g->object && (g->kind == WK__REG_READ || g->kind == WK__REG_CONSTANT);
}

/* A container, a cell, an instance of a class written in Python, or a tensor (its gradient, data and attributes: what
 * is written into memory is the graph's concern). */
static bool can_change(const wk__binding *b, PyObject *o) {
  if (PyList_Check(o) || PyDict_Check(o) || PyAnySet_Check(o) || PyCell_Check(o)) return true;
  if (PyObject_TypeCheck(o, b->tensor_type)) return true;
  if (PyType_Check(o)) return false;
  return wk__is_python_instance(o) || wk__known_class(Py_TYPE(o)) == WK__CLASS_OWN;
}

static void mark_changed(const wk__recording *r, bool *changed) {
  for (int64_t i = 0; i < r->step_count; i++) {
    const wk__do *step = &r->steps[i];
    bool of_process = step->kind == WK__DO_EFFECT || step->kind == WK__DO_WARN;
    if (step->undone || of_process || !wk__is_effect(r, step->kind, step->items)) continue;
    wk__reg target = step->kind == WK__DO_IMPURE_CALL ? step->items[1] : step->items[0];
    if (target >= 0) changed[target] = true;
  }
  for (wk__reg reg = 0; reg < r->register_count; reg++)
    if (r->registers[reg].written || r->registers[reg].names) changed[reg] = true;
}

/* The objects from outside that can change, those first that may be another one in the next call. */
typedef struct changeable {
  wk__reg *all;
  int64_t loose, count;
} changeable;

static void find_changeable(const wk__recording *r, const wk__binding *b, changeable *out) {
  for (int fixed = 0; fixed < 2; fixed++) {
    for (wk__reg reg = 0; reg < r->register_count; reg++) {
      const wk__register *g = &r->registers[reg];
      if (g->fixed == fixed && is_from_outside(g) && can_change(b, g->object)) out->all[out->count++] = reg;
    }
    if (!fixed) out->loose = out->count;
  }
}

/* Of one that is changed, and all others of its type: those before it that are changed, too, have asked already. */
static int64_t note_others(wk__recording *r, const changeable *c, int64_t place, const bool *changed) {
  const wk__register *g = &r->registers[c->all[place]];
  int64_t noted = 0;
  for (int64_t k = 0; k < (g->fixed ? c->loose : c->count); k++) {
    const wk__register *other = &r->registers[c->all[k]];
    bool asked = k == place || (k < place && changed[c->all[k]]);
    if (asked || other->object == g->object || Py_TYPE(other->object) != Py_TYPE(g->object)) continue;
    wk__check_once(r, WK__CHECK_DIFFERENT, c->all[k], c->all[place], NULL);
    noted++;
  }
  return noted;
}

void wk__note_changed(wk__recording *r, const wk__binding *b) {
  enum { MOST = 4096 };
  changeable c = {.all = wk__alloc((size_t)(r->register_count + 1) * sizeof *c.all)};
  bool *changed = wk__alloc_zeroed((size_t)r->register_count + 1);
  int64_t noted = 0;
  if (c.all && changed) {
    mark_changed(r, changed);
    find_changeable(r, b, &c);
  } else {
    wk__record_no_memory(r);
  }
  for (int64_t k = 0; k < c.count && noted <= MOST; k++)
    if (changed[c.all[k]]) noted += note_others(r, &c, k, changed);
  if (noted > MOST) wk__record_failed(r, "many objects that are changed, any two of which may be the same one");
  wk__free(changed);
  wk__free(c.all);
}
