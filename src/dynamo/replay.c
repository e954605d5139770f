/* A later call: checking what a segment assumes, running its graph, repeating its steps.
 * In: frames at a position. Out: the same state of the world as capturing left. Invariant: until all guards have held
 * nothing is changed. Tests: tests/python/capture/. */
#include "autograd/autograd.h"
#include "dynamo/session.h"

/* ==================================================== versions =================================================== */

void wk__segment_note_versions(wk__segment *g, const uint64_t *seen) {
  for (int64_t i = 0; i < g->recording->versioned_count; i++) {
    PyObject *o = g->recording->versioned[i];
    g->versions[i].at = PyDict_Check(o) ? &((PyDictObject *)o)->ma_version_tag : NULL;
    g->versions[i].seen = seen ? seen[i] : wk__version_of(o);
  }
  g->tensor_epoch = atomic_load_explicit(&wk__tensor_epoch, memory_order_relaxed);
}

/* The whole price of an unchanged model: one comparison a dictionary. */
static bool versions_hold(const wk__segment *g) {
  const struct wk__version *v = g->versions;
  for (int64_t i = 0; i < g->recording->versioned_count; i++) {
    uint64_t now = WK_LIKELY(v[i].at != NULL) ? *v[i].at : wk__version_of(g->recording->versioned[i]);
    if (WK_UNLIKELY(now != v[i].seen)) return false;
  }
  return atomic_load_explicit(&wk__tensor_epoch, memory_order_relaxed) == g->tensor_epoch;
}

/* What was found in a type or function is not read again: it may be another when that has changed. */
static bool types_hold(const wk__segment *g) {
  for (int64_t i = 0; i < g->recording->versioned_count; i++) {
    PyObject *o = g->recording->versioned[i];
    if (!g->versions[i].at && wk__version_of(o) != g->versions[i].seen) return false;
  }
  return true;
}

/* ===================================================== guards ==================================================== */

typedef struct guard_run {
  const wk__segment *segment;
  wk__session *session;
  wk__activation **frames; /* by depth */
  PyObject **values;       /* owned where the register is not fixed */
} guard_run;

static bool tensor_is(const wk__binding *b, PyObject *o, const wk__tensor_spec *spec) {
  if (Py_TYPE(o) != spec->type) return false;
  const wk_tensor *t = b->tensor_of(o);
  if (t->dtype != spec->dtype || t->ndim != spec->ndim || (t->keys & WK__KEY_AUTOGRAD) != spec->keys ||
      t->device.type != spec->device_type || t->device.index != spec->device_index)
    return false;
  for (int d = 0; d < t->ndim; d++)
    if (t->sizes[d].bits != spec->dims[d] || t->strides[d].bits != spec->dims[t->ndim + d]) return false;
  return true;
}

/* Plain values: the same type and value; 0.0 is not -0.0. */
static bool is_equal(PyObject *a, PyObject *b) {
  if (a == b) return true;
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

static bool keys_are(PyObject *dict, PyObject *keys) {
  PyObject *key, *value;
  Py_ssize_t i = 0;
  if (!PyDict_Check(dict) || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(keys)) return false;
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value); i++)
    if (key != PyTuple_GET_ITEM(keys, i) && !is_equal(key, PyTuple_GET_ITEM(keys, i))) return false;
  return true;
}

static bool items_are(PyObject *list, PyObject *items) {
  if (!PyList_Check(list) || PyList_GET_SIZE(list) != PyTuple_GET_SIZE(items)) return false;
  return memcmp(((PyListObject *)list)->ob_item, &PyTuple_GET_ITEM(items, 0),
                (size_t)PyTuple_GET_SIZE(items) * sizeof(PyObject *)) == 0;
}

static PyObject *from_dict(PyObject *dict, PyObject *key) {  // -> borrowed
  if (!dict || !PyDict_Check(dict)) return NULL;
  PyObject *found = PyDict_GetItemWithError(dict, key);
  if (!found && PyErr_Occurred()) PyErr_Clear();
  return found;
}

static PyObject *instance_dict(PyObject *o) {  // -> borrowed, NULL when there is none
  PyObject **place = _PyObject_GetDictPtr(o);
  return place ? *place : NULL;
}

static PyObject *from_sequence(PyObject *o, int64_t i) {  // -> borrowed
  if (PyTuple_Check(o)) return i < PyTuple_GET_SIZE(o) ? PyTuple_GET_ITEM(o, i) : NULL;
  if (PyList_Check(o)) return i < PyList_GET_SIZE(o) ? PyList_GET_ITEM(o, i) : NULL;
  return NULL;
}

static Py_ssize_t length_of(PyObject *o) {
  if (PyTuple_Check(o)) return PyTuple_GET_SIZE(o);
  if (PyList_Check(o)) return PyList_GET_SIZE(o);
  if (PyDict_Check(o)) return PyDict_GET_SIZE(o);
  return PyAnySet_Check(o) ? PySet_GET_SIZE(o) : -1;
}

static PyObject *from_function(PyObject *o, wk__read_kind kind, int64_t i) {  // -> borrowed
  if (!PyFunction_Check(o)) return NULL;
  PyFunctionObject *f = (PyFunctionObject *)o;
  if (kind == WK__READ_DEFAULTS) return i ? f->func_kwdefaults : f->func_defaults;
  return f->func_closure && i < PyTuple_GET_SIZE(f->func_closure) ? PyTuple_GET_ITEM(f->func_closure, i) : NULL;
}

/* What a read finds; NULL with no exception when there is nothing. */
static PyObject *find(const guard_run *g, const wk__read *read) {  // -> new
  PyObject *a = read->a >= 0 && read->kind > WK__READ_STACK ? g->values[read->a] : NULL;
  switch (read->kind) {
    case WK__READ_SLOT:
      return Py_XNewRef(wk__frame_slot(&g->frames[read->a]->frame, (int)read->b));
    case WK__READ_STACK:
      return Py_XNewRef(wk__frame_stack(&g->frames[read->a]->frame, (int)read->b));
    case WK__READ_FUNCTION:
      return Py_XNewRef(wk__frame_function(&g->frames[read->a]->frame));
    case WK__READ_CELL:
      return PyCell_Check(a) ? Py_XNewRef(PyCell_GET(a)) : NULL;
    case WK__READ_DICT:
      return Py_XNewRef(from_dict(a, read->object ? read->object : g->values[read->b]));
    case WK__READ_ITEM:
      return Py_XNewRef(from_sequence(a, read->b));
    case WK__READ_INSTANCE:
      return Py_XNewRef(instance_dict(a));
    case WK__READ_CLOSURE:
    case WK__READ_DEFAULTS:
      return Py_XNewRef(from_function(a, read->kind, read->b));
    case WK__READ_GRAD:
      return PyObject_TypeCheck(a, g->session->binding->tensor_type) ? g->session->binding->grad_of(a) : NULL;
    case WK__READ_REFERENT:
      return PyWeakref_Check(a) ? Py_NewRef(PyWeakref_GET_OBJECT(a)) : NULL;
    case WK__READ_ATTRIBUTE: {
      PyObject *found = PyObject_GetAttr(a, read->object);
      if (!found) PyErr_Clear();
      return found;
    }
    default:
      return NULL;
  }
}

static bool unbound(const guard_run *g, const wk__read *check) {
  if (check->b < 0) return PyCell_Check(g->values[check->a]) && !PyCell_GET(g->values[check->a]);
  return !wk__frame_slot(&g->frames[check->a]->frame, (int)check->b);
}

static bool check_holds(const guard_run *g, const wk__read *check) {
  if (check->kind == WK__CHECK_UNBOUND) return unbound(g, check);
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
      return is_equal(a, check->object);
    case WK__CHECK_CODE: {
      const PyFunctionObject *f = (const PyFunctionObject *)a;
      return PyFunction_Check(a) && f->func_code == check->object &&
             f->func_globals == (PyObject *)(intptr_t)check->b && !f->func_defaults && !f->func_kwdefaults;
    }
    case WK__CHECK_TYPE:
      return (PyObject *)Py_TYPE(a) == check->object;
    case WK__CHECK_LENGTH:
      return length_of(a) == check->b;
    case WK__CHECK_KEYS:
      return keys_are(a, check->object);
    case WK__CHECK_ABSENT:
      return PyDict_Check(a) && !from_dict(a, check->object);
    case WK__CHECK_NO_DICT:
      return !from_dict(instance_dict(a), check->object);
    case WK__CHECK_NO_GRAD: {
      PyObject *grad = PyObject_TypeCheck(a, b->tensor_type) ? b->grad_of(a) : NULL;
      Py_XDECREF(grad);
      return !grad;
    }
    case WK__CHECK_TENSOR:
      return PyObject_TypeCheck(a, b->tensor_type) && tensor_is(b, a, g->segment->recording->specs[check->b]);
    case WK__CHECK_ITEMS:
      return items_are(a, check->object);
    default:
      return false;
  }
}

/* Runs reads and checks; the first one that does not hold, or NULL. Fixed registers have their object already. */
static const wk__read *first_failing(const guard_run *g, const wk__read *reads, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    const wk__read *read = &reads[i];
    if (read->dest < 0) {
      if (!check_holds(g, read)) return read;
      continue;
    }
    PyObject *found = find(g, read);
    if (!found) return read;
    if (!g->segment->recording->registers[read->dest].fixed) {
      Py_XSETREF(g->values[read->dest], found);
      continue;
    }
    bool same = found == g->values[read->dest] || is_equal(found, g->values[read->dest]);
    Py_DECREF(found);
    if (!same) return read;
  }
  return NULL;
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
      const wk_storage *storage = b->tensor_of(g->values[s->recording->inputs[i]])->storage;
      int64_t at = (int64_t)(wk__hash_mix(1, (uint64_t)(uintptr_t)storage) >> 16) & (size - 1);
      while (table[at] && table[at] != storage) at = (at + 1) & (size - 1);
      if (table[at]) apart = false;
      if (!pass) table[at] = storage;
    }
  if (table != few) PyMem_Free(table);
  return apart;
}

static const wk__read *failing_guard(guard_run *g) {
  static const wk__read wrong_mode;
  wk__segment *s = (wk__segment *)g->segment;
  if (wk__mode.grad_enabled != s->grad_enabled || wk__mode.inference != s->inference ||
      wk__default_dtype() != s->default_dtype)
    return &wrong_mode;
  if (!versions_hold(s)) {
    if (!types_hold(s)) return &wrong_mode;
    const wk__read *failing = first_failing(g, s->fixed, s->fixed_count);
    if (failing) return failing;
    wk__segment_note_versions(s, NULL);
  }
  const wk__read *failing = first_failing(g, s->reads, s->read_count);
  return failing || written_apart(g) ? failing : &wrong_mode;
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
static void free_values(wk__segment *g, PyObject **values) {
  for (int64_t i = 0; values && i < g->loose_count; i++) Py_CLEAR(values[g->loose[i]]);
  if (g->idle_values)
    PyMem_Free(values);
  else
    g->idle_values = values;
}

static bool is_here(const wk__session *s, const wk__segment *g, wk__activation **frames) {
  if (g->frame_count != s->innermost->depth + 1) return false;
  for (wk__activation *a = s->innermost; a; a = a->outer) {
    int offset = a == s->innermost ? a->frame.next : a->frame.offset;
    if (g->codes[a->depth] != a->frame.code || g->offsets[a->depth] != offset) return false;
    frames[a->depth] = a;
  }
  return true;
}

/* A number that is another one this time becomes an input when this is captured again. */
static void note_changing(wk__session *s, const wk__segment *g, const wk__read *failing) {
  const wk__recording *r = g->recording;
  bool number = false;
  wk__reg reg = -1;
  if (failing->dest >= 0 && failing->kind < WK__CHECK_IS) { /* a fixed read that gives something else now */
    reg = failing->dest;
    number = r->registers[reg].object && PyFloat_CheckExact(r->registers[reg].object);
  } else if (failing->kind == WK__CHECK_EQUAL) {
    reg = failing->a;
    number = PyFloat_CheckExact(failing->object);
  }
  if (number && s->compiled->options.dynamic != 0)
    (void)!wk__map_set(&s->compiled->changing, r->registers[reg].path, (void *)1);
}

wk__segment *wk__segment_find(wk__session *s, PyObject ***out_values, bool *out_full) {
  enum { MAX_DEPTH = 128 };
  wk__activation *frames[MAX_DEPTH];
  int here = 0;
  if (s->innermost->depth >= MAX_DEPTH) {
    *out_full = true;
    return NULL;
  }
  for (wk__segment *g = s->compiled->segments; g; g = g->next) {
    if (!is_here(s, g, frames)) continue;
    here++;
    PyObject **values = make_values(g);
    if (!values) return NULL;
    guard_run run = {.segment = g, .session = s, .frames = frames, .values = values};
    const wk__read *failing = failing_guard(&run);
    if (!failing) {
      atomic_fetch_add(&g->references, 1);
      *out_values = values;
      return g;
    }
    wk__guard_log(s, g, failing);
    note_changing(s, g, failing);
    free_values(g, values);
  }
  *out_full = here >= s->compiled->options.limit;
  return NULL;
}

/* ====================================================== graph ==================================================== */

/* A loss whose backward has been run inside still says that it had one. */
static wk_status set_spent_history(wk_tensor *t, const char *name) {
  wk_node *node = wk__node_spent(name);
  wk_status status = node ? wk__set_history(t, node, 0) : WK_OUT_OF_MEMORY;
  wk__node_release(node);
  return status;
}

static int run_graph(wk__session *s, const wk__segment *g, PyObject **values) {
  enum { FEW = 32 };
  const wk__binding *b = s->binding;
  int64_t inputs = g->recording->input_count, outputs = g->graph->output_count;
  wk_tensor *few[FEW], **space = few;
  if (inputs + outputs > FEW && !(space = PyMem_Malloc((size_t)(inputs + outputs) * sizeof *space))) {
    PyErr_NoMemory();
    return -1;
  }
  wk_tensor **results = space + inputs;
  for (int64_t i = 0; i < inputs; i++) space[i] = b->tensor_of(values[g->recording->inputs[i]]);
  for (int64_t i = 0; i < outputs; i++) results[i] = NULL;
  double few_numbers[FEW], *numbers = few_numbers;
  int64_t number_count = g->recording->number_count;
  if (number_count > FEW && !(numbers = PyMem_Malloc((size_t)number_count * sizeof *numbers))) {
    if (space != few) PyMem_Free(space);
    PyErr_NoMemory();
    return -1;
  }
  for (int64_t i = 0; i < number_count; i++) numbers[i] = PyFloat_AS_DOUBLE(values[g->recording->numbers[i]]);
  PyThreadState *thread = g->lets_others_run ? PyEval_SaveThread() : NULL;
  wk_status status = wk__graph_execute(g->executor, space, numbers, results);
  if (thread) PyEval_RestoreThread(thread);
  if (numbers != few_numbers) PyMem_Free(numbers);
  int result = 0;
  if (status != WK_OK) {
    b->raise(b->state);
    result = -1;
  }
  for (int64_t i = 0; i < outputs && result == 0; i++) {
    if (g->spent[i] && set_spent_history(results[i], g->spent[i]) != WK_OK) {
      b->raise(b->state);
      return -1;
    }
    PyObject *object = b->wrap(b->state, results[i]);
    if (!object) result = -1;
    values[g->outputs[i]] = object;
  }
  if (space != few) PyMem_Free(space);
  return result;
}

static int run_backend(wk__session *s, const wk__segment *g, PyObject **values) {
  (void)s;
  int64_t inputs = g->recording->input_count, numbers = g->recording->number_count, outputs = g->graph->output_count;
  PyObject **args = PyMem_Malloc((size_t)(inputs + numbers + 1) * sizeof *args);
  if (!args) {
    PyErr_NoMemory();
    return -1;
  }
  for (int64_t i = 0; i < inputs; i++) args[i] = values[g->recording->inputs[i]];
  for (int64_t i = 0; i < numbers; i++) args[inputs + i] = values[g->recording->numbers[i]];
  PyObject *made = PyObject_Vectorcall(g->backend_call, args, (size_t)(inputs + numbers), NULL);
  PyMem_Free(args);
  PyObject *list = made ? PySequence_Fast(made, "a backend's function gives a tuple of tensors") : NULL;
  Py_XDECREF(made);
  if (!list) return -1;
  int result = 0;
  if (PySequence_Fast_GET_SIZE(list) < outputs) {
    PyErr_Format(PyExc_RuntimeError, "a backend's function gave %zd values, %lld are wanted",
                 PySequence_Fast_GET_SIZE(list), (long long)outputs);
    result = -1;
  }
  for (int64_t i = 0; i < outputs && result == 0; i++)
    values[g->outputs[i]] = Py_NewRef(PySequence_Fast_GET_ITEM(list, i));
  Py_DECREF(list);
  return result;
}

/* ====================================================== steps ==================================================== */

static PyObject *make_function(PyObject *const *values, const wk__do *d) {  // -> new
#define PART(i) (d->items[i] >= 0 ? Py_NewRef(values[d->items[i]]) : NULL)
  PyObject *function = PyFunction_New(values[d->items[0]], values[d->items[1]]);
  if (!function) return NULL;
  PyFunctionObject *f = (PyFunctionObject *)function;
  Py_XSETREF(f->func_defaults, PART(2));
  Py_XSETREF(f->func_kwdefaults, PART(3));
  Py_XSETREF(f->func_annotations, PART(4));
  Py_XSETREF(f->func_closure, PART(5));
#undef PART
  return function;
}

static PyObject *make_sequence(PyObject *const *values, const wk__do *d) {  // -> new
  bool tuple = d->kind == WK__DO_TUPLE;
  PyObject *made = tuple ? PyTuple_New(d->count) : PyList_New(d->count);
  for (int i = 0; made && i < d->count; i++) {
    PyObject *item = Py_NewRef(values[d->items[i]]);
    if (tuple)
      PyTuple_SET_ITEM(made, i, item);
    else
      PyList_SET_ITEM(made, i, item);
  }
  return made;
}

static PyObject *make_set(PyObject *const *values, const wk__do *d) {  // -> new
  PyObject *made = PySet_New(NULL);
  for (int i = 0; made && i < d->count; i++)
    if (PySet_Add(made, values[d->items[i]]) < 0) Py_CLEAR(made);
  return made;
}

static PyObject *make_dict(PyObject *const *values, const wk__do *d) {  // -> new
  PyObject *made = PyDict_New();
  for (int i = 0; made && i < d->count; i += 2)
    if (PyDict_SetItem(made, values[d->items[i]], values[d->items[i + 1]]) < 0) Py_CLEAR(made);
  return made;
}

static PyObject *do_call(PyObject *const *values, const wk__do *d) {  // -> new
  PyObject *args[16];
  if (d->count > 16) return PyErr_Format(PyExc_SystemError, "a replayed call of too many arguments");
  for (int i = 0; i < d->count; i++) args[i] = values[d->items[i]];
  size_t names = d->object ? (size_t)PyTuple_GET_SIZE(d->object) : 0;
  return PyObject_Vectorcall(args[0], args + 1, (size_t)d->count - 1 - names, d->object);
}

/* The object that a step makes. -> new */
static PyObject *make(PyObject *const *values, const wk__do *d) {
  PyObject *first = d->count && d->items[0] >= 0 ? values[d->items[0]] : NULL;
  switch (d->kind) {
    case WK__DO_TUPLE:
    case WK__DO_LIST:
      return make_sequence(values, d);
    case WK__DO_SET:
      return make_set(values, d);
    case WK__DO_MAP:
      return make_dict(values, d);
    case WK__DO_SLICE:
      return PySlice_New(first, values[d->items[1]], values[d->items[2]]);
    case WK__DO_METHOD:
      return PyMethod_New(first, values[d->items[1]]);
    case WK__DO_CELL:
      return PyCell_New(first);
    case WK__DO_FUNCTION:
      return make_function(values, d);
    case WK__DO_INSTANCE:
      return ((PyTypeObject *)first)->tp_alloc((PyTypeObject *)first, 0);
    default:
      return do_call(values, d);
  }
}

/* A class's own __setattr__ is evaluated when it is called; what is recorded is what it did. */
static int set_attribute(const wk__session *s, PyObject *owner, PyObject *name, PyObject *value) {
  bool module = PyObject_TypeCheck(owner, s->binding->module_type);
  return module ? PyObject_SetAttr(owner, name, value) : PyObject_GenericSetAttr(owner, name, value);
}

/* An effect. 0, or -1 with an exception. */
static int apply(wk__session *s, PyObject *const *values, const wk__do *d) {
#define VALUE(i) (d->items[i] >= 0 ? values[d->items[i]] : NULL)
  switch (d->kind) {
    case WK__DO_SET_ATTR:
      return set_attribute(s, VALUE(0), d->object, VALUE(1));
    case WK__DO_SET_ITEM:
      return VALUE(2) ? PyObject_SetItem(VALUE(0), VALUE(1), VALUE(2)) : PyObject_DelItem(VALUE(0), VALUE(1));
    case WK__DO_SET_CELL:
      return PyCell_Set(VALUE(0), VALUE(1));
    case WK__DO_SET_GRAD:
      return PyObject_SetAttr(VALUE(0), s->binding->grad_name, VALUE(1) ? VALUE(1) : Py_None);
    case WK__DO_APPEND:
      return PyList_Append(VALUE(0), VALUE(1));
    case WK__DO_ADD:
      return PySet_Add(VALUE(0), VALUE(1));
    default: {
      PyObject *result = do_call(values, d);
      Py_XDECREF(result);
      return result ? 0 : -1;
    }
  }
#undef VALUE
}

static int run_steps(wk__session *s, const wk__segment *g, PyObject **values) {
  for (int64_t i = 0; i < g->step_count; i++) {
    const wk__do *d = &g->steps[i];
    if (d->dest < 0) {
      if (apply(s, values, d) < 0) return -1;
    } else if (!(values[d->dest] = make(values, d))) {
      return -1;
    }
  }
  if (g->grad_after >= 0) wk__mode.grad_enabled = g->grad_after;
  return 0;
}

/* ==================================================== to the end ================================================= */

void wk__session_drop_target(wk__session *s) {
  if (s->target) free_values(s->target, s->values);
  wk__segment_release(s->target);
  s->target = NULL;
  s->values = NULL;
}

int wk__segment_replay(wk__session *s, wk__segment *steal_segment, PyObject **steal_values) {
  wk__segment *g = steal_segment;
  s->target = g;
  s->values = steal_values;
  g->hits++;
  int status = 0;
  if (g->backend_call)
    status = run_backend(s, g, s->values);
  else if (g->executor && run_graph(s, g, s->values) < 0) {
    PyErr_Clear(); /* run plainly it fails where it has to */
    wk__session_drop_target(s);
    return 1;
  }
  if (status == 0) status = run_steps(s, g, s->values);
  if (status < 0) {
    wk__session_drop_target(s);
    return -1;
  }
  s->mode = WK__MODE_UNWIND;
  s->target_depth = g->end == WK__END_RETURN ? -1 : g->common - 1;
  if (g->end == WK__END_RETURN) {
    s->returned = Py_NewRef(s->values[g->value]);
    wk__session_drop_target(s);
  }
  return 0;
}

int wk__segment_fill(wk__session *s, wk__activation *a) {
  const wk__end_frame *e = &s->target->end_frames[a->depth];
  int count = e->slot_count + e->depth;
  PyObject **objects = PyMem_Malloc((size_t)(count + 1) * sizeof *objects);
  if (!objects) {
    PyErr_NoMemory();
    return -1;
  }
  for (int i = 0; i < count; i++) {
    wk__reg reg = e->values[i];
    if (reg == WK__KEEP)
      objects[i] = i < e->slot_count ? wk__frame_slot(&a->frame, i) : wk__frame_stack(&a->frame, i - e->slot_count);
    else
      objects[i] = reg >= 0 ? s->values[reg] : NULL;
    Py_XINCREF(objects[i]);
  }
  wk__frame_fill(&a->frame, e->offset, objects, objects + e->slot_count, e->depth);
  PyMem_Free(objects);
  return 0;
}
