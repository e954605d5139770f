/* What has to hold before a segment is replayed: versions, reads and checks in the order of the capture.
 * In: frames at a position. Out: the segment whose guards hold there, its registers filled. Invariant: nothing that a
 * program can see is changed. Tests: tests/python/capture/test_guards.py. */
#include "autograd/autograd.h"
#include "dynamo/capture/ends.h"
#include "dynamo/capture/numbers.h"
#include "dynamo/cpython/objects.h"
#include "dynamo/reads.h"

/* ==================================================== versions =================================================== */

void wk__segment_note_versions(wk__segment *g, const uint64_t *seen) {
  for (int64_t i = 0; i < g->recording->versioned_count; i++) {
    PyObject *o = g->recording->versioned[i];
    g->versions[i].at = PyDict_Check(o) ? wk__dict_version_place(o) : NULL;
    g->versions[i].seen = seen ? seen[i] : wk__version_of(o);
  }
  g->tensor_epoch = atomic_load_explicit(&wk__tensor_epoch, memory_order_relaxed);
}

/* The whole price of an unchanged model: one comparison a dictionary. `dicts`: theirs alone. */
static bool versions_hold(const wk__segment *g, bool dicts) {
  const struct wk__version *v = g->versions;
  for (int64_t i = 0; i < g->recording->versioned_count; i++) {
    if (dicts && !v[i].at) continue;
    if (v[i].place && *v[i].place != g->recording->versioned[i]) return false; /* it may be gone */
    uint64_t now = WK_LIKELY(v[i].at != NULL) ? WK__DICT_VERSION(*v[i].at) : wk__version_of(g->recording->versioned[i]);
    if (WK_UNLIKELY(now != v[i].seen)) return false;
  }
  return atomic_load_explicit(&wk__tensor_epoch, memory_order_relaxed) == g->tensor_epoch;
}

/* What was found in a type or function is not read again: it may be another when that has changed. */
static bool types_hold(const wk__session *s, const wk__segment *g) {
  for (int64_t i = 0; i < g->recording->versioned_count; i++) {
    PyObject *o = g->recording->versioned[i];
    if (g->versions[i].at || wk__version_of(o) == g->versions[i].seen) continue;
    if (!PyType_Check(o) || !wk__type_is_as_pictured(s->compiled, g->recording, (PyTypeObject *)o)) return false;
  }
  return true;
}

/* ===================================================== guards ==================================================== */

typedef struct guard_run {
  const wk__segment *segment;
  wk__session *session;
  wk__activation **frames; /* by depth */
  PyObject **values;       /* owned where the register is not fixed */
  wk__map *let_go;         /* what the region lets go of, see wk__holders */
} guard_run;

static bool tensor_is(const wk__binding *b, PyObject *o, const wk__tensor_spec *spec) {
  if (Py_TYPE(o) != spec->type) return false;
  const wk_tensor *t = b->tensor_of(o);
  if (t->sparse || t->dtype != spec->dtype || t->ndim != spec->ndim || (t->keys & WK__KEY_AUTOGRAD) != spec->keys ||
      t->device.type != spec->device_type || t->device.index != spec->device_index)
    return false;
  for (int d = 0; d < t->ndim; d++) {
    int over = spec->dims[d].over;
    int64_t stride = over < 0 ? spec->dims[d].stride : t->strides[over].bits * t->sizes[over].bits;
    bool same_size = spec->dynamic >> d & 1 || t->sizes[d].bits == spec->dims[d].size;
    if (!same_size || t->strides[d].bits != stride) return false;
  }
  return true;
}

/* The dims whose size is another one, of a tensor that differs in nothing else but the strides they make. */
static uint64_t other_sizes(const wk__binding *b, PyObject *o, const wk__tensor_spec *spec) {
  if (Py_TYPE(o) != spec->type) return 0;
  const wk_tensor *t = b->tensor_of(o);
  bool alike = !t->sparse && t->dtype == spec->dtype && t->ndim == spec->ndim &&
               (t->keys & WK__KEY_AUTOGRAD) == spec->keys && t->device.type == spec->device_type &&
               t->device.index == spec->device_index;
  uint64_t dims = 0;
  for (int d = 0; alike && d < t->ndim; d++)
    if (!(spec->dynamic >> d & 1) && t->sizes[d].bits != spec->dims[d].size) dims |= wk__dim_bit(d);
  return dims;
}

/* Plain values: the same type and value; 0.0 is not -0.0. What has an identity is equal to itself alone. */
static bool is_equal(const wk__binding *binding, PyObject *a, PyObject *b) {
  if (a == b) return true;
  if (PyObject_TypeCheck(a, binding->tensor_type) || PyObject_TypeCheck(b, binding->tensor_type)) return false;
  if (Py_TYPE(a) != Py_TYPE(b)) {
    if (!PyAnySet_Check(a) || !PyAnySet_Check(b)) return false;
  }
  if (PyFloat_CheckExact(a)) {
    double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
    return memcmp(&x, &y, sizeof x) == 0;
  }
  int equal = PyObject_RichCompareBool(a, b, Py_EQ);
  if (equal < 0) PyErr_Clear();
  return equal > 0;
}

/* An ordered dictionary has an order of its own. */
static bool ordered_keys_are(const wk__binding *b, PyObject *dict, PyObject *keys) {
  PyObject *now = wk__held_by(dict);
  bool same = now && PyTuple_GET_SIZE(now) == PyTuple_GET_SIZE(keys);
  for (Py_ssize_t i = 0; same && i < PyTuple_GET_SIZE(now); i++)
    same = is_equal(b, PyTuple_GET_ITEM(now, i), PyTuple_GET_ITEM(keys, i));
  Py_XDECREF(now);
  PyErr_Clear();
  return same;
}

static bool keys_are(const wk__binding *b, PyObject *dict, PyObject *keys) {
  PyObject *key, *value;
  Py_ssize_t i = 0;
  if (!PyDict_Check(dict) || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(keys)) return false;
  if (PyODict_Check(dict)) return ordered_keys_are(b, dict, keys);
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value); i++)
    if (key != PyTuple_GET_ITEM(keys, i) && !is_equal(b, key, PyTuple_GET_ITEM(keys, i))) return false;
  return true;
}

static bool items_are(PyObject *list, PyObject *items) {
  if (!PyList_Check(list) || PyList_GET_SIZE(list) != PyTuple_GET_SIZE(items)) return false;
  return memcmp(((PyListObject *)list)->ob_item, &PyTuple_GET_ITEM(items, 0),
                (size_t)PyTuple_GET_SIZE(items) * sizeof(PyObject *)) == 0;
}

/* -1, which is below every symbol's range, for an integer that is too large. */
static int64_t value_of(const wk__binding *b, PyObject *o, int dim) {
  int overflow;
  return dim < 0 ? PyLong_AsLongLongAndOverflow(o, &overflow) : wk__size(b->tensor_of(o), dim);
}

static wk_status value_of_read_symbol(void *context, wk_int leaf, int64_t *out) {
  const guard_run *g = context;
  wk__symbol symbol = g->segment->recording->symbols[wk__sym_index(leaf)];
  *out = value_of(g->session->binding, g->values[symbol.reg], symbol.dim); /* read, and of its type, by now */
  return WK_OK;
}

static PyObject *int_of_expression(const guard_run *g, wk_int x) {  // -> new
  int64_t value;
  if (wk__sym_eval(x, value_of_read_symbol, (void *)g, &value) == WK_OK) return PyLong_FromLongLong(value);
  wk_error_clear();
  return NULL;
}

/* The program has asked its hash once. */
bool wk__hashes_by_python(PyObject *key) {
  if (!(Py_TYPE(key)->tp_flags & Py_TPFLAGS_HEAPTYPE) || Py_TYPE(key)->tp_hash == PyBaseObject_Type.tp_hash)
    return false;
  PyObject *name = PyUnicode_InternFromString("__hash__");
  PyObject *found = name ? wk__type_attribute(Py_TYPE(key), name) : NULL;
  Py_XDECREF(name);
  return found && PyFunction_Check(found);
}
PyObject *wk__from_dict_by_identity(PyObject *dict, PyObject *key) {
  PyObject *other, *value;
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &other, &value);)
    if (other == key) return value;
  return NULL;
}

/* What a read finds; NULL with no exception when there is nothing. */
static PyObject *find(const guard_run *g, const wk__read *read) {  // -> new
  PyObject *a = read->a >= 0 && read->kind > WK__READ_STACK ? g->values[read->a] : NULL;
  switch (read->kind) {
    case WK__READ_DICT:
      return Py_XNewRef(wk__from_dict(a, read->object ? read->object : g->values[read->b]));
    case WK__READ_SLOT:
    case WK__READ_STACK:
    case WK__READ_FUNCTION:
    case WK__READ_CELL:
    case WK__READ_ITEM:
    case WK__READ_INSTANCE:
    case WK__READ_CLOSURE:
    case WK__READ_DEFAULTS:
      return Py_XNewRef(wk__from_frame_or_object(g->frames, read, a));
    case WK__READ_GRAD:
      return PyObject_TypeCheck(a, g->session->binding->tensor_type) ? g->session->binding->grad_of(a) : NULL;
    case WK__READ_HOOKS:
      return PyObject_TypeCheck(a, g->session->binding->tensor_type)
                 ? Py_XNewRef(g->session->binding->leaf_hooks(g->session->binding->tensor_of(a), read->b))
                 : NULL;
    case WK__READ_REFERENT:
      if (Py_TYPE(a) == &PyDictProxy_Type) return Py_NewRef(wk__shown_by_proxy(a));
      return PyWeakref_Check(a) ? wk__weak_referent(a) : NULL;
    case WK__READ_ATTRIBUTE: {
      PyObject *found = PyObject_GetAttr(a, read->object);
      if (!found) PyErr_Clear();
      return found;
    }
    case WK__READ_SYMBOLIC:
      return int_of_expression(g, (wk_int){read->b});
    case WK__READ_COMPUTED: {
      PyObject *second = read->b >= 0 ? g->values[read->b] : NULL;
      PyObject *made = wk__counts_calls(read->object)
                           ? wk__ask(g->session, read->object, a, second)
                           : PyObject_CallFunctionObjArgs(read->object, a, second, (PyObject *)NULL);
      if (!made) PyErr_Clear();
      return made;
    }
    case WK__READ_CLOCK: {
      PyObject *now = PyObject_CallNoArgs(read->object);
      if (!now) PyErr_Clear();
      return now;
    }
    case WK__READ_UPCOMING:
      return wk__upcoming(a, read->b);
    case WK__READ_DRAWN:
      return wk__draw_again(g->session, a, read);
    default:
      return NULL;
  }
}

static bool unbound(const guard_run *g, const wk__read *check) {
  if (check->b < 0) return PyCell_Check(g->values[check->a]) && !PyCell_GET(g->values[check->a]);
  return !wk__frame_slot(&g->frames[check->a]->frame, (int)check->b);
}

/* How often the registers have it. */
static Py_ssize_t guards_references(const void *context, PyObject *o) {
  const guard_run *g = context;
  Py_ssize_t count = 0;
  for (int64_t i = 0; i < g->segment->recording->register_count; i++) count += g->values[i] == o;
  return count;
}

/* What such a check says is let go of; NULL: nothing, or more than one thing. */
static PyObject *item_let_go(PyObject *a, const wk__read *check) {  // -> borrowed
  if (!check->object) return !PyTuple_Check(a) && check->b >= 0 ? wk__from_sequence(a, check->b) : NULL;
  if (PyDict_Check(a)) return wk__from_dict(a, check->object);
  PyObject *o = PyObject_GenericGetAttr(a, check->object);
  if (!o) PyErr_Clear();
  Py_XDECREF(o); /* its slot has it */
  return o;
}

/* So many references may be let go of. */
static Py_ssize_t references_let_go(const guard_run *g) {
  const wk__recording *r = g->segment->recording;
  Py_ssize_t count = 0;
  for (int64_t i = 0; i < r->read_count; i++) {
    const wk__read *check = &r->reads[i];
    PyObject *a = check->kind == WK__CHECK_MUTE ? g->values[check->a] : NULL;
    if (!a || check->b <= WK__MUTE_ITSELF) continue;
    if (!check->object && check->b == WK__MUTE_CONTENT) count += wk__length_of(a) < 0 ? 1 : wk__length_of(a);
    PyObject *item = item_let_go(a, check);
    count += item && !wk__is_plain_value(g->session->binding, item);
  }
  return count;
}

static bool stays(const guard_run *g, PyObject *a) {
  Py_ssize_t ours = guards_references(g, a) + wk__frames_references(g->session, a);
  return Py_REFCNT(a) > ours + references_let_go(g);
}

static bool is_mute(const guard_run *g, PyObject *a, const wk__read *check) {
  const wk__holders others = {guards_references, g, g->segment->recording->asks_referents, g->let_go};
  if (!check->object && check->b == WK__MUTE_ITSELF) return !wk__end_is_aloud(a, &others);
  if (!check->object && check->b == WK__MUTE_CONTENT) return !wk__emptying_is_aloud(a, &others);
  if (!check->object && check->b == WK__MUTE_STAYS) return stays(g, a);
  PyObject *o = item_let_go(a, check);
  return !o || !wk__let_go_is_aloud(o, &others);
}

static bool is_mute_slot(const guard_run *g, const wk__read *check) {
  const wk__holders others = {guards_references, g, g->segment->recording->asks_referents, g->let_go};
  PyObject *o = wk__frame_slot(&g->frames[check->a]->frame, (int)check->b);
  return !o || wk__is_plain_value(g->session->binding, o) || !wk__let_go_is_aloud(o, &others);
}

static bool check_holds(const guard_run *g, const wk__read *check) {
  if (check->kind == WK__CHECK_UNBOUND) return unbound(g, check);
  if (check->kind == WK__CHECK_MUTE_SLOT) return is_mute_slot(g, check);
  PyObject *a = g->values[check->a];
  const wk__binding *b = g->session->binding;
  switch (check->kind) {
    case WK__CHECK_IS:
      return a == check->object;
    case WK__CHECK_SAME:
      return a == g->values[check->b];
    case WK__CHECK_DIFFERENT:
      return a != g->values[check->b];
    case WK__CHECK_EQUAL:
      return is_equal(b, a, check->object);
    case WK__CHECK_CODE: {
      const PyFunctionObject *f = (const PyFunctionObject *)a;
      return wk__is_bare_function(a) && f->func_code == check->object &&
             f->func_globals == (PyObject *)(intptr_t)check->b;
    }
    case WK__CHECK_TYPE:
      return (PyObject *)Py_TYPE(a) == check->object;
    case WK__CHECK_LENGTH:
      return wk__length_of(a) == check->b;
    case WK__CHECK_KEYS:
      return keys_are(b, a, check->object);
    case WK__CHECK_PRESENT:
      return PyDict_Check(a) && wk__from_dict(a, check->object);
    case WK__CHECK_ABSENT:
      return PyDict_Check(a) && !wk__from_dict(a, check->object ? check->object : g->values[check->b]);
    case WK__CHECK_NO_DICT:
      return !wk__from_dict(wk__instance_dict_of(a), check->object);
    case WK__CHECK_NO_SLOT: {
      PyObject *found = PyObject_GenericGetAttr(a, check->object);
      if (!found) PyErr_Clear();
      Py_XDECREF(found);
      return !found;
    }
    case WK__CHECK_NO_GRAD: {
      PyObject *grad = PyObject_TypeCheck(a, b->tensor_type) ? b->grad_of(a) : NULL;
      Py_XDECREF(grad);
      return !grad;
    }
    case WK__CHECK_NO_HOOKS: {
      PyObject *hooks = PyObject_TypeCheck(a, b->tensor_type) ? b->leaf_hooks(b->tensor_of(a), check->b) : NULL;
      return !hooks || !PyDict_GET_SIZE(hooks);
    }
    case WK__CHECK_COMPUTED: {
      const wk_tensor *t = PyObject_TypeCheck(a, b->tensor_type) ? b->tensor_of(a) : NULL;
      return t && t->autograd && t->autograd->grad_fn && !t->base;
    }
    case WK__CHECK_LEAF:
      return PyObject_TypeCheck(a, b->tensor_type) && wk_is_leaf(b->tensor_of(a)) == check->b;
    case WK__CHECK_TENSOR:
      return PyObject_TypeCheck(a, b->tensor_type) && tensor_is(b, a, g->segment->recording->specs[check->b]);
    case WK__CHECK_FITS:
      return PyFloat_CheckExact(a) && wk__number_fits(PyFloat_AS_DOUBLE(a), (wk_dtype)check->b);
    case WK__CHECK_QUIET:
      return !wk__warning_may_raise(a);
    case WK__CHECK_ADDRESS:
      return (int64_t)(intptr_t)a == check->b;
    case WK__CHECK_ITEMS:
      return items_are(a, check->object);
    case WK__CHECK_MUTE:
      return is_mute(g, a, check);
    case WK__CHECK_ENDS:
      return wk__ends_at(a, check->b);
    default:
      return false;
  }
}

/* Fixed registers have their object already. */
static bool read_holds(const guard_run *g, const wk__read *read) {
  if (read->dest < 0) return check_holds(g, read);
  PyObject *found = find(g, read);
  if (!found) return false;
  if (!g->segment->recording->registers[read->dest].fixed) {
    Py_XSETREF(g->values[read->dest], found);
    return true;
  }
  bool same = found == g->values[read->dest];
  if (!same && !g->segment->recording->registers[read->dest].borrowed)
    same = is_equal(g->session->binding, found, g->values[read->dest]);
  Py_DECREF(found);
  return same;
}

const wk__read wk__guard_of_modes, wk__guard_of_sizes, wk__guard_of_memory;

/* ---- numbers and sizes that differ this time ---- */

/* One bit of the word is taken: a size of dim 63 that changes is a constant of each capture. */
void wk__mark_changing(wk__compiled *c, uint64_t path, uint64_t dims) {
  uintptr_t known = (uintptr_t)wk__map_get(&c->changing, path);
  (void)!wk__map_set(&c->changing, path, (void *)(known | (uintptr_t)dims << 1 | 1));
}

/* What differs becomes an input or a symbol when this is captured again. False: it is nothing of the kind. */
static bool note_changing(const guard_run *g, const wk__read *failing) {
  const wk__recording *r = g->segment->recording;
  wk__session *s = g->session;
  if (failing->kind == WK__CHECK_ADDRESS) {
    wk__mark_changing(s->compiled, wk__identity_path(r->registers[failing->a].path), 0);
    return true;
  }
  if (s->compiled->options.dynamic == 0) return false;
  bool fixed_read = failing->dest >= 0; /* it gives something else now */
  wk__reg reg = fixed_read ? failing->dest : failing->a;
  PyObject *number = fixed_read ? r->registers[reg].object : failing->object;
  uint64_t dims = 0;
  if (failing->kind == WK__CHECK_TENSOR && PyObject_TypeCheck(g->values[reg], s->binding->tensor_type))
    dims = other_sizes(s->binding, g->values[reg], r->specs[failing->b]);
  PyObject *now = failing->kind == WK__CHECK_TENSOR ? g->values[reg] : NULL;
  if (now &&
      (PyFloat_CheckExact(now) || PyLong_CheckExact(now))) { /* where a tensor was, it will be another one, too */
    wk__mark_changing(s->compiled, r->registers[reg].path, 0);
    return false;
  }
  bool value = (fixed_read || failing->kind == WK__CHECK_EQUAL) && number &&
               (PyFloat_CheckExact(number) || PyLong_CheckExact(number));
  bool replaced = fixed_read && number && PyObject_TypeCheck(number, s->binding->tensor_type);
  if (!dims && !value && !replaced) return false;
  uint64_t path = r->registers[reg].path; /* 0: the number is computed of others */
  if (path) wk__mark_changing(s->compiled, path, dims);
  return true;
}

/* ---- symbols ---- */

bool wk__segment_bind(wk__segment *g, const wk__binding *b, PyObject *const *values) {
  const wk__recording *r = g->recording;
  bool same = true;
  for (int64_t i = 0; i < r->symbol_count; i++) {
    if (r->symbols[i].counted) continue;
    int64_t value = value_of(b, values[r->symbols[i].reg], r->symbols[i].dim);
    same &= g->symbol_values[i] == value;
    g->symbol_values[i] = value;
  }
  return same;
}

static wk_status value_of_symbol(void *values, wk_int leaf, int64_t *out) {
  *out = ((const int64_t *)values)[wk__sym_index(leaf)];
  return WK_OK;
}

int64_t wk__segment_evaluate(const wk__segment *g, wk_int x) {
  int64_t value = 0;
  if (wk__sym_eval(x, value_of_symbol, g->symbol_values, &value) == WK_OK) return value;
  wk_error_clear();
  return INT64_MIN;
}

static bool guard_holds(const wk__segment *s, wk__sym_guard guard) {
  if (wk__is_counted(s->recording, guard.left) || wk__is_counted(s->recording, guard.right)) return true; /* as above */
  int64_t left = wk__segment_evaluate(s, guard.left), right = wk__segment_evaluate(s, guard.right);
  return left != INT64_MIN && right != INT64_MIN && wk__guard_compare(guard.kind, left, right);
}

/* Of sizes that are the last ones for which they held, they hold. */
static bool sizes_hold(guard_run *g) {
  wk__segment *s = (wk__segment *)g->segment;
  const wk__recording *r = s->recording;
  if (wk__segment_bind(s, g->session->binding, g->values) && s->symbols_hold) return true;
  const wk__shape_env *env = s->graph->env;
  s->symbols_hold = false;
  for (int64_t i = 0; i < r->symbol_count; i++) {
    wk__symbol_info info = wk__shape_env_symbol_at(env, i);
    if (r->symbols[i].counted) continue; /* it is checked while the graph is run */
    if (s->symbol_values[i] < info.lo || s->symbol_values[i] > info.hi) return false;
  }
  for (int64_t i = 0; i < wk__shape_env_guard_count(env); i++)
    if (!guard_holds(s, wk__shape_env_guard(env, i))) return false;
  return s->symbols_hold = true;
}

static bool symbols_are_read(const guard_run *g) {
  const wk__recording *r = g->segment->recording;
  bool read = r->symbol_count > 0;
  for (int64_t i = 0; i < r->symbol_count && read; i++) read = r->symbols[i].counted || g->values[r->symbols[i].reg];
  return read;
}

/* Runs reads and checks; the first one that does not hold, or NULL. Where only a size or a number is another one the
 * others are looked at, too, so that all of them are known at the next capture. */
static const wk__read *first_failing(guard_run *g, const wk__read *reads, int64_t count) {
  const wk__read *first = NULL;
  for (int64_t i = 0; i < count; i++) {
    if (WK_UNLIKELY(!g->segment->owner)) return &wk__guard_of_memory; /* what guards have run ended a model of it */
    bool counts = reads[i].kind == WK__READ_COMPUTED && wk__counts_calls(reads[i].object);
    if (counts && first) break; /* the program does not come to that call */
    if (counts && symbols_are_read(g) && !sizes_hold(g)) return &wk__guard_of_sizes;
    if (read_holds(g, &reads[i])) continue;
    if (!first) first = &reads[i];
    if (!note_changing(g, &reads[i])) break;
  }
  return first;
}

/* Inputs that the graph writes have memory of their own: what was captured did not see a write through another one. */
static bool written_apart(const guard_run *g) {
  enum { FEW = 1 << 10 };
  const wk__segment *s = g->segment;
  const wk__binding *b = g->session->binding;
  if (!s->graph || !s->graph->mutation_count || s->inputs_fixed) return true;
  int64_t count = s->recording->input_count, size = 16;
  while (size < 2 * count) size *= 2;
  const wk_storage *few[FEW], **table = few;
  bool apart = true;
  if (size > FEW && !(table = PyMem_Malloc((size_t)size * sizeof *table))) return false;
  memset(table, 0, (size_t)size * sizeof *table);
  for (int64_t pass = 0; pass < 2; pass++) /* the written ones first */
    for (int64_t i = 0; i < count && apart; i++) {
      if (s->input_written[i] != !pass) continue;
      PyObject *input = g->values[s->recording->inputs[i]];
      const wk_storage *storage = PyLong_Check(input) ? NULL : b->tensor_of(input)->storage;
      if (!storage) continue; /* the size of a number */
      int64_t at = (int64_t)(wk__hash_mix(1, (uint64_t)(uintptr_t)storage) >> 16) & (size - 1);
      while (table[at] && table[at] != storage) at = (at + 1) & (size - 1);
      if (table[at]) apart = false;
      if (!pass) table[at] = storage;
    }
  if (table != few) PyMem_Free(table);
  return apart;
}

static const wk__read *failing_guard(guard_run *g) {
  wk__segment *s = (wk__segment *)g->segment;
  const wk__binding *b = g->session->binding;
  if (wk__thread.mode.grad_enabled != s->grad_enabled || wk__thread.mode.inference != s->inference ||
      wk__default_dtype() != s->default_dtype || wk__autocast_mode() != s->autocast ||
      !wk__device_equal(wk__thread.default_device, s->default_device) || b->overrides(b->state) != s->overrides)
    return &wk__guard_of_modes;
  if (!versions_hold(s, false)) {
    if (!types_hold(g->session, s)) return &wk__guard_of_modes;
    const wk__read *failing = versions_hold(s, true) ? NULL : first_failing(g, s->fixed, s->fixed_count);
    if (failing) return failing;
    wk__segment_note_versions(s, NULL);
  }
  const wk__read *failing = first_failing(g, s->reads, s->read_count);
  if (failing) return failing;
  if (s->recording->symbol_count && !sizes_hold(g)) return &wk__guard_of_sizes;
  return written_apart(g) ? NULL : &wk__guard_of_memory;
}

/* Borrowed where the register is fixed, else NULL until they are read. */
static PyObject **make_values(wk__segment *g) {
  const wk__recording *r = g->recording;
  PyObject **values = g->idle_values;
  g->idle_values = NULL;
  if (values) return values;
  values = PyMem_Malloc((size_t)(r->register_count + 1) * sizeof *values);
  for (int64_t i = 0; values && i < r->register_count; i++)
    values[i] = r->registers[i].fixed ? r->registers[i].object : NULL;
  return values;
}
static void put_values(wk__segment *g, PyObject **values) {
  for (int64_t i = 0; values && i < g->loose_count; i++) Py_CLEAR(values[g->loose[i]]);
  if (g->idle_values)
    PyMem_Free(values);
  else
    g->idle_values = values;
}
void wk__segment_put_values(wk__segment *g, PyObject **values) {
  wk__segment_let_models_go(g, values);
  put_values(g, values);
}

static bool is_here(const wk__session *s, const wk__segment *g, wk__activation *const *frames) {
  int depth = s->innermost->depth;
  if (g->frame_count != depth + 1) return false;
  for (int i = 0; i <= depth; i++) {
    const wk__frame *f = &frames[i]->frame;
    if (g->codes[i] != f->code || g->offsets[i] != (i == depth ? f->next : f->offset)) return false;
  }
  return true;
}

static void note_failure(wk__session *s, wk__segment *g, const wk__read *failing) {
  wk__guard_log(s, g, failing);
  if (s->failed_segment) return;
  atomic_fetch_add(&g->references, 1);
  s->failed_segment = g;
  s->failed_guard = failing;
}

/* Whether the guards of a retained segment hold, which it gives up if they do not. */
static bool holds(wk__session *s, wk__segment *g, wk__activation **frames, PyObject ***out_values) {
  PyObject **values = make_values(g);
  s->asked_next = 0;
  wk__map let_go = {0};
  guard_run run = {.segment = g, .session = s, .frames = frames, .values = values, .let_go = &let_go};
  const wk__read *failing = values ? failing_guard(&run) : &wk__guard_of_memory;
  wk__map_release(&let_go);
  if (!failing && !wk__segment_hold_models(g, values)) failing = &wk__guard_of_memory;
  if (!failing) {
    *out_values = values;
    return true;
  }
  wk__undo_draws(s);
  if (values && s->mode == WK__MODE_SEEK) note_failure(s, g, failing); /* else it is looked up again in its frame */
  put_values(g, values);
  return false;
}

static wk__segment *first_that_holds(wk__session *s, wk__candidates *some, wk__activation **frames,
                                     PyObject ***out_values) {
  wk__segment *found = NULL;
  for (int i = 0; i < some->count; i++) {
    wk__segment *g = some->segments[i];
    if (!found && g->owner && is_here(s, g, frames) && holds(s, g, frames, out_values))
      found = g;
    else
      wk__segment_release(g);
  }
  return found;
}

/* Tries as many of this position, the newest first: *here counts them. */
static wk__segment *first_of_all(wk__session *s, int64_t most, wk__activation **frames, PyObject ***out_values,
                                 int64_t *here) {
  for (wk__segment *g = wk__segment_next(s->compiled, NULL); g; g = wk__segment_next(s->compiled, g)) {
    if (!is_here(s, g, frames)) continue;
    if (++*here > most) {
      wk__segment_release(g);
      break;
    }
    if (holds(s, g, frames, out_values)) return g;
  }
  return NULL;
}

/* Where no segment holds the newest ones are looked at in any case: for what has changed, and for the log. */
wk__segment *wk__segment_find(wk__session *s, PyObject ***out_values, bool *out_full) {
  enum { MAX_DEPTH = 128, NEWEST = 8 };
  wk__activation *frames[MAX_DEPTH];
  wk__candidates some;
  if (s->innermost->depth >= MAX_DEPTH) {
    *out_full = true;
    return NULL;
  }
  for (wk__activation *a = s->innermost; a; a = a->outer) frames[a->depth] = a;
  int64_t here = 0;
  bool told_apart = wk__lookup_find(s->compiled, s, frames, &some);
  wk__segment *found = told_apart ? first_that_holds(s, &some, frames, out_values) : NULL;
  if (!found) found = first_of_all(s, told_apart ? NEWEST : INT64_MAX, frames, out_values, &here);
  *out_full = (told_apart ? some.here : here) >= s->compiled->options.limit;
  return found;
}
