/* What objects of the region's own hold. A call that is only tried may change them, and nothing notes that: they have
 * no registers until somebody can see them. Nor does anything note what the region does to them behind a call whose
 * results were taken for what a later one will give.
 * In: an object that the code in question can reach. Out: whether something of it is another one now, and the old
 * contents. Compared is by identity. Tests: tests/python/capture/test_tensor_hooks.py. */
#include "dynamo/capture/own_state.h"
#include "dynamo/capture/known.h"
#include "dynamo/capture/known_calls.h"
#include "dynamo/capture/record_parts.h"
#include "dynamo/cpython/objects.h"

enum { MOST_OBJECTS = 1 << 16 }; /* more than that is somebody's data, not what a hook keeps */

typedef struct kept_object {
  PyObject *object, *contents; /* owned; contents: a tuple */
} kept_object;

struct wk__own_state {
  kept_object *objects;
  int64_t count, capacity;
};

/* ================================================== contents ===================================================== */

static PyObject *of_dict(PyObject *o) {  // -> new
  PyObject *tuple = PyTuple_New(2 * PyDict_GET_SIZE(o)), *key, *value;
  Py_ssize_t i = 0;
  for (Py_ssize_t at = 0; tuple && PyDict_Next(o, &at, &key, &value);) {
    PyTuple_SET_ITEM(tuple, i++, Py_NewRef(key));
    PyTuple_SET_ITEM(tuple, i++, Py_NewRef(value));
  }
  return tuple;
}

static PyObject *contents_of(PyObject *o) {  // -> new
  if (PyDict_Check(o)) return of_dict(o);
  if (PyList_Check(o)) return PyList_AsTuple(o);
  if (PySet_Check(o)) return wk__held_by(o);
  return PyCell_GET(o) ? PyTuple_Pack(1, PyCell_GET(o)) : PyTuple_New(0);
}

static bool is_compared(PyObject *o) { return PyDict_Check(o) || PyList_Check(o) || PySet_Check(o) || PyCell_Check(o); }

static bool is_same(const kept_object *k) {
  PyObject *now = contents_of(k->object);
  bool same = now && PyTuple_GET_SIZE(now) == PyTuple_GET_SIZE(k->contents);
  for (Py_ssize_t i = 0; same && i < PyTuple_GET_SIZE(now); i++)
    same = PyTuple_GET_ITEM(now, i) == PyTuple_GET_ITEM(k->contents, i);
  if (!now) PyErr_Clear();
  wk__bury(now);
  return same;
}

static int fill_dict(PyObject *o, PyObject *contents) {
  bool ordered = PyODict_Check(o);
  PyObject *cleared = PyObject_CallMethod((PyObject *)(ordered ? &PyODict_Type : &PyDict_Type), "clear", "O", o);
  int status = cleared ? 0 : -1;
  for (Py_ssize_t i = 0; status == 0 && i < PyTuple_GET_SIZE(contents); i += 2) {
    PyObject *key = PyTuple_GET_ITEM(contents, i), *value = PyTuple_GET_ITEM(contents, i + 1);
    status = ordered ? PyODict_SetItem(o, key, value) : PyDict_SetItem(o, key, value);
  }
  Py_XDECREF(cleared);
  return status;
}

static int fill_set(PyObject *o, PyObject *contents) {
  int status = PySet_Clear(o);
  for (Py_ssize_t i = 0; status == 0 && i < PyTuple_GET_SIZE(contents); i++)
    status = PySet_Add(o, PyTuple_GET_ITEM(contents, i));
  return status;
}

static int fill(PyObject *o, PyObject *contents) {
  if (PyDict_Check(o)) return fill_dict(o, contents);
  if (PyList_Check(o)) return PyList_SetSlice(o, 0, PyList_GET_SIZE(o), contents);
  if (PySet_Check(o)) return fill_set(o, contents);
  return PyCell_Set(o, PyTuple_GET_SIZE(contents) ? PyTuple_GET_ITEM(contents, 0) : NULL);
}

/* ================================================= what is reached =============================================== */

typedef struct walk {
  const wk__session *session;
  wk__map seen;
  PyObject **stack; /* borrowed */
  int64_t count, capacity;
  bool failed;
} walk;

static int push(PyObject *o, void *context) {
  walk *w = context;
  if (!o || w->failed || wk__map_get(&w->seen, (uintptr_t)o)) return 0;
  w->failed = w->seen.count >= MOST_OBJECTS || wk__map_set(&w->seen, (uintptr_t)o, o) != WK_OK ||
              wk__grow(&w->stack, &w->capacity, w->count + 1, sizeof *w->stack) != WK_OK;
  if (!w->failed) w->stack[w->count++] = o;
  return 0;
}

/* It lay in a frame when the region began: an argument, a cell from outside. */
static bool was_at_start(const wk__session *s, const PyObject *o) {
  for (const wk__activation *a = s->innermost; a; a = a->outer)
    for (int i = 0; a->at_start && i < a->slots_at_start + a->stack_at_start; i++)
      if (a->at_start[i] == o) return true;
  return false;
}

/* What is done to something from outside is noted by itself, and what never changes need not be looked into. */
static bool is_passed_by(const walk *w, PyObject *o) {
  const wk__session *s = w->session;
  wk__reg reg = wk__reg_find(s->recording, o);
  if (reg >= 0 && s->recording->registers[reg].kind != WK__REG_MADE) return true;
  return !PyObject_IS_GC(o) || PyType_Check(o) || PyModule_Check(o) || PyCode_Check(o) || PyFrame_Check(o) ||
         wk__is_plain_value(s->binding, o) || PyObject_TypeCheck(o, s->binding->tensor_type) || was_at_start(s, o);
}

static bool has_slots(PyObject *o) {
  for (PyTypeObject *t = Py_TYPE(o); t && t->tp_flags & Py_TPFLAGS_HEAPTYPE; t = t->tp_base) {
    PyObject *names = ((PyHeapTypeObject *)t)->ht_slots;
    if (names && PyTuple_GET_SIZE(names)) return true;
  }
  return false;
}

/* It changes, and there is nothing to compare: an iterator, a deque. */
static bool is_not_comparable(const wk__session *s, PyObject *o) {
  if (is_compared(o) || PyFunction_Check(o) || PyTuple_Check(o)) return false;
  return PyIter_Check(o) || PyGen_Check(o) || has_slots(o) || wk__is_own_object(s->recording, o);
}

/* Not its globals, which are somebody else's. */
static void push_parts_of_function(walk *w, PyObject *o) {
  const PyFunctionObject *f = (PyFunctionObject *)o;
  push(f->func_closure, w);
  push(f->func_defaults, w);
  push(f->func_kwdefaults, w);
  push(f->func_dict, w);
}

static void push_parts(walk *w, PyObject *o) {
  if (PyFunction_Check(o)) {
    push_parts_of_function(w, o);
    return;
  }
  PyObject **dict = is_compared(o) ? NULL : wk__instance_dict_place(o);
  if (dict) push(*dict, w);
  if (Py_TYPE(o)->tp_traverse) Py_TYPE(o)->tp_traverse(o, push, w);
}

static bool keep_object(wk__own_state *state, PyObject *o) {
  if (wk__grow(&state->objects, &state->capacity, state->count + 1, sizeof *state->objects) != WK_OK) return false;
  PyObject *contents = contents_of(o);
  if (contents) state->objects[state->count++] = (kept_object){Py_NewRef(o), contents};
  return contents != NULL;
}

static void keep_reached(walk *w, wk__own_state *state) {
  while (w->count && !w->failed) {
    PyObject *o = w->stack[--w->count];
    if (is_passed_by(w, o)) continue;
    w->failed = is_not_comparable(w->session, o) || (is_compared(o) && !keep_object(state, o));
    push_parts(w, o);
  }
}

wk__own_state *wk__own_state_keep(const wk__session *s, PyObject *root, bool given_away) {
  wk__own_state *state = wk__alloc_zeroed(sizeof *state);
  walk w = {.session = s, .failed = !state};
  push(root, &w);
  for (int64_t i = 0; given_away && i < s->recording->register_count; i++)
    if (s->recording->registers[i].kind == WK__REG_MADE) push(s->recording->registers[i].object, &w);
  if (state) keep_reached(&w, state);
  wk__map_release(&w.seen);
  wk__free(w.stack);
  PyErr_Clear();
  if (!w.failed) return state;
  wk__own_state_release(state);
  return NULL;
}

bool wk__own_state_is_same(const wk__own_state *state) {
  bool same = true;
  for (int64_t i = 0; i < state->count && same; i++) same = is_same(&state->objects[i]);
  return same;
}

int wk__own_state_put_back(const wk__own_state *state) {
  int status = 0;
  for (int64_t i = 0; i < state->count && status == 0; i++) {
    const kept_object *k = &state->objects[i];
    if (!is_same(k)) status = fill(k->object, k->contents);
  }
  return status;
}

void wk__own_state_release(wk__own_state *state) {
  if (!state) return;
  for (int64_t i = 0; i < state->count; i++) {
    wk__bury(state->objects[i].object);
    wk__bury(state->objects[i].contents);
  }
  wk__free(state->objects);
  wk__free(state);
}
