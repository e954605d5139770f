/* The recording of one segment: which objects are known, where from, and what was done to them.
 * In: what operations.c sees happen. Out: reads and checks, steps, registers. Invariant: an object that has a register
 * is kept alive by it, so that its address stands for it. Tests: tests/python/capture/. */
#include "dynamo/capture/ends.h"
#include "dynamo/capture/numbers.h"
#include "dynamo/capture/record_parts.h"
#include "dynamo/cpython/objects.h"

#include <stdarg.h>
#include <stdio.h>

/* ================================================== life ======================================================== */

wk__recording *wk__recording_create(void) { return wk__alloc_zeroed(sizeof(wk__recording)); }

static void let_go(PyObject **place, bool borrowed) {
  PyObject *object = *place;
  *place = NULL;
  if (!borrowed) wk__bury(object);
}

void wk__keep_alive(wk__recording *r, PyObject *object) {
  if (wk__grow(&r->kept, &r->kept_capacity, r->kept_count + 1, sizeof *r->kept) == WK_OK)
    r->kept[r->kept_count++] = Py_NewRef(object);
  else
    wk__record_no_memory(r);
}

void wk__let_kept_go(wk__recording *r) {
  wk__map_release(&r->made_classes);
  for (int64_t i = 0; i < r->kept_count; i++) WK__BURY(r->kept[i]);
  r->kept_count = 0;
}

void wk__recording_empty(wk__recording *r) {
  for (int64_t i = 0; i < r->register_count; i++) {
    let_go(&r->registers[i].object, r->registers[i].borrowed);
    let_go(&r->registers[i].names, false);
    let_go(&r->registers[i].before, false);
  }
  for (int64_t i = 0; i < r->read_count; i++) let_go(&r->reads[i].object, r->reads[i].borrowed);
  for (int64_t i = 0; i < r->step_count; i++) let_go(&r->steps[i].object, false);
  for (int64_t i = 0; i < r->picture_count; i++) {
    let_go(&r->pictures[i].class, false);
    let_go(&r->pictures[i].mro, false);
    let_go(&r->pictures[i].held, false);
  }
  r->picture_count = 0;
  wk__forget_identities(r);
  wk__forget_tried(r);
  wk__forget_kept_trial(r);
  wk__forget_left_hooks(r);
  wk__let_kept_go(r);
  for (int64_t i = 0; i < r->versioned_count; i++)
    let_go(&r->versioned[i], r->versioned_borrowed && r->versioned_borrowed[i]);
}

void wk__recording_release(wk__recording *r) {
  if (!r) return;
  wk__recording_empty(r);
  wk__free(r->registers);
  wk__free(r->reads);
  wk__free(r->steps);
  wk__free(r->specs);
  wk__free(r->inputs);
  wk__free(r->versioned);
  wk__free(r->versions);
  wk__free(r->numbers);
  wk__free(r->symbols);
  wk__free(r->identities);
  wk__free(r->kept);
  wk__free(r->tried);
  wk__free(r->left_hooks);
  wk__free(r->pictures);
  wk__map_release(&r->names_asked);
  wk__map_release(&r->names_guarded);
  wk__map_release(&r->whole_types);
  wk__map_release(&r->expressions);
  wk__map_release(&r->functions);
  wk__map_release(&r->hooks);
  wk__map_release(&r->hook_dicts);
  wk__map_release(&r->hooked_nodes);
  wk__map_release(&r->node_tensors);
  wk__map_release(&r->hooked_leaves);
  wk__map_release(&r->fresh);
  wk__map_release(&r->held_by_dead);
  wk__map_release(&r->special_classes);
  wk__map_release(&r->by_object);
  wk__map_release(&r->read_before);
  wk__arena_release(&r->arena);
  wk__free(r);
}

void wk__record_failed(wk__recording *r, const char *format, ...) {
  if (r->failed[0]) return;
  va_list args;
  va_start(args, format);
  vsnprintf(r->failed, sizeof r->failed, format, args);
  va_end(args);
}

/* ================================================ registers ===================================================== */

static uint64_t key_of(const void *p) { return (uint64_t)(uintptr_t)p; }

wk__reg wk__reg_find(const wk__recording *r, PyObject *object) {
  return (wk__reg)(intptr_t)wk__map_get(&r->by_object, key_of(object)) - 1;
}

wk__reg wk__new_register(wk__recording *r, wk__reg_kind kind, PyObject *object, bool fixed) {
  if (wk__grow(&r->registers, &r->register_capacity, r->register_count + 1, sizeof *r->registers) != WK_OK)
    return wk__record_no_memory(r);
  wk__reg reg = (wk__reg)r->register_count++;
  r->registers[reg] =
      (wk__register){.kind = kind, .fixed = fixed, .input = -1, .spec = -1, .output = -1, .object = Py_XNewRef(object)};
  r->registers[reg].path = key_of(object);
  if (object && wk__map_set(&r->by_object, key_of(object), (void *)(intptr_t)(reg + 1)) != WK_OK)
    return wk__record_no_memory(r);
  return reg;
}

wk__reg wk__reg_constant(wk__recording *r, PyObject *object) {
  wk__reg known = wk__reg_find(r, object);
  if (known < 0 && WK_UNLIKELY(wk__is_made_class(r, object))) {
    wk__record_failed(r, "a class that the region has made is seen outside");
    return -1;
  }
  if (known < 0) return wk__new_register(r, WK__REG_CONSTANT, object, true);
  /* What was read from outside has turned out to be this very object. */
  if (r->registers[known].kind == WK__REG_READ && !r->registers[known].fixed)
    wk__check_once(r, WK__CHECK_IS, known, 0, object);
  return known;
}
wk__reg wk__reg_made(wk__recording *r, PyObject *object) { return wk__new_register(r, WK__REG_MADE, object, false); }
wk__reg wk__reg_tensor(wk__recording *r, PyObject *object) {
  return wk__new_register(r, WK__REG_TENSOR, object, false);
}

bool wk__is_plain_value(const wk__binding *b, PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  return o == Py_None || t == &PyBool_Type || t == &PyLong_Type || t == &PyFloat_Type || t == &PyUnicode_Type ||
         t == &PyBytes_Type || t == &PyComplex_Type || t == &PyEllipsis_Type || o == Py_NotImplemented ||
         t == b->dtype_type || t == b->device_type || t == b->memory_format_type || t == b->layout_type ||
         t == b->finfo_type || t == b->iinfo_type;
}

/* ================================================= versions ===================================================== */

uint64_t wk__version_of(PyObject *o) {
  if (PyDict_Check(o)) return wk__dict_version(o);
  if (!PyFunction_Check(o)) {
    static _Atomic uint64_t without = UINT64_C(1) << 32; /* a type that gets no more versions is never the same */
    unsigned version = wk__type_version((PyTypeObject *)o);
    return version ? version : atomic_fetch_add_explicit(&without, 1, memory_order_relaxed);
  }
  const PyFunctionObject *f = (PyFunctionObject *)o; /* a recording keeps these alive */
  return wk__hash_mix(wk__hash_mix(key_of(f->func_code), key_of(f->func_defaults)), key_of(f->func_kwdefaults));
}

static int keep_version(wk__recording *r, PyObject *object) {
  for (int64_t i = r->versioned_count - 1; i >= 0; i--)
    if (r->versioned[i] == object) return 0;
  int64_t count = r->versioned_count + 1;
  if (wk__grow(&r->versioned, &r->versioned_capacity, count, sizeof *r->versioned) != WK_OK ||
      wk__grow(&r->versions, &r->version_capacity, count, sizeof *r->versions) != WK_OK)
    return wk__record_no_memory(r);
  r->versions[r->versioned_count] = wk__version_of(object);
  r->versioned[r->versioned_count++] = Py_NewRef(object);
  return 0;
}

int wk__depend_on_look_ups(wk__recording *r, PyTypeObject *type) {
  if (wk__type_is_fixed(type)) return 0;
  uint64_t key = key_of(type) | 1;
  if (wk__map_get(&r->read_before, key)) return 0;
  if (wk__map_set(&r->read_before, key, type) != WK_OK) return wk__record_no_memory(r);
  return keep_version(r, (PyObject *)type) < 0 ? -1 : wk__note_class_as_found(r, type);
}
int wk__depend_on_type(wk__recording *r, PyTypeObject *type) {
  if (wk__type_is_fixed(type)) return 0;
  if (wk__map_set(&r->whole_types, key_of(type), type) != WK_OK) return wk__record_no_memory(r);
  return wk__depend_on_look_ups(r, type);
}

void wk__note_made(wk__recording *r, PyObject *object) {
  if (wk__map_set(&r->read_before, key_of(object) | 1, object) != WK_OK) wk__record_no_memory(r);
}
bool wk__was_made(const wk__recording *r, PyObject *object) {
  return wk__map_get(&r->read_before, key_of(object) | 1) != NULL;
}

int wk__depend_on_function(wk__recording *r, const wk__binding *b, PyObject *function) {
  PyFunctionObject *f = (PyFunctionObject *)function;
  uint64_t hash = key_of(function) | 1;
  if (wk__map_get(&r->read_before, hash)) return 0;
  if (wk__map_set(&r->read_before, hash, function) != WK_OK || keep_version(r, function) < 0)
    return wk__record_no_memory(r);
  if (wk__reg_constant(r, f->func_code) < 0) return -1;
  wk__reg defaults = f->func_defaults ? wk__reg_constant(r, f->func_defaults) : -1;
  for (Py_ssize_t i = 0; defaults >= 0 && i < PyTuple_GET_SIZE(f->func_defaults); i++) {
    PyObject *value = PyTuple_GET_ITEM(f->func_defaults, i);
    if (!wk__is_plain_value(b, value) && wk__observe(r, b, value, WK__READ_ITEM, defaults, i, NULL) < 0) return -1;
  }
  bool before = r->keep_numbers;
  r->keep_numbers = true;
  wk__reg named = f->func_kwdefaults ? wk__reg_constant(r, f->func_kwdefaults) : -1;
  PyObject *key, *value;
  for (Py_ssize_t at = 0; named >= 0 && PyDict_Next(f->func_kwdefaults, &at, &key, &value);)
    if (wk__observe(r, b, value, WK__READ_DICT, named, -1, key) < 0) return -1;
  r->keep_numbers = before;
  return 0;
}

/* ============================================ reads and their checks ============================================ */

wk__read *wk__add_read(wk__recording *r, wk__read_kind kind, wk__reg a, int64_t b, PyObject *object) {
  if (wk__grow(&r->reads, &r->read_capacity, r->read_count + 1, sizeof *r->reads) != WK_OK) {
    wk__record_no_memory(r);
    return NULL;
  }
  wk__read *read = &r->reads[r->read_count++];
  *read = (wk__read){.kind = (uint8_t)kind, .dest = -1, .a = a, .b = b, .object = Py_XNewRef(object)};
  return read;
}

static bool is_fixed(const wk__recording *r, wk__reg reg) { return reg >= 0 && r->registers[reg].fixed; }

/* Whether what the read finds can only change together with a version that is checked. */
static bool read_is_fixed(const wk__recording *r, wk__read_kind kind, wk__reg a, int64_t b, PyObject *key) {
  switch (kind) {
    case WK__READ_DICT:
    case WK__CHECK_ABSENT:
      return is_fixed(r, a) && !r->registers[a].is_globals && (key || is_fixed(r, (wk__reg)b));
    case WK__READ_ITEM:
      return is_fixed(r, a) && PyTuple_Check(r->registers[a].object);
    case WK__READ_CLOSURE:
    case WK__READ_HOOKS: /* a new one counts as a change of the tensor */
    case WK__CHECK_NO_HOOKS:
      return is_fixed(r, a);
    case WK__READ_INSTANCE: /* that a tensor gets a dictionary changes no version */
      return is_fixed(r, a) && r->registers[a].spec < 0;
    case WK__CHECK_IS:
    case WK__CHECK_EQUAL:
    case WK__CHECK_TYPE:
    case WK__CHECK_TENSOR:
    case WK__CHECK_PRESENT:
      return is_fixed(r, a) && !r->registers[a].is_globals;
    case WK__CHECK_NO_DICT:
      return is_fixed(r, a) && !r->registers[a].is_globals && r->registers[a].spec < 0;
    case WK__CHECK_KEYS:
      if (is_fixed(r, a) && PyODict_Check(r->registers[a].object)) return false; /* move_to_end is no new version */
      return is_fixed(r, a) && (PyDict_Check(r->registers[a].object) || PyTuple_Check(r->registers[a].object));
    case WK__CHECK_LENGTH:
      return is_fixed(r, a) && (PyDict_Check(r->registers[a].object) || PyTuple_Check(r->registers[a].object));
    case WK__CHECK_SAME:
    case WK__CHECK_DIFFERENT:
      return is_fixed(r, a) && is_fixed(r, (wk__reg)b);
    default:
      return false;
  }
}

static void keep_versions_behind(wk__recording *r, wk__read_kind kind, wk__reg a) {
  PyObject *o = a >= 0 ? r->registers[a].object : NULL;
  if (o && PyDict_Check(o) && kind != WK__CHECK_TYPE && kind != WK__CHECK_IS) keep_version(r, o);
}

void wk__check(wk__recording *r, wk__read_kind kind, wk__reg a, int64_t b, PyObject *object) {
  wk__read *check = wk__add_read(r, kind, a, b, object);
  if (!check) return;
  check->fixed = read_is_fixed(r, kind, a, b, object);
  if (check->fixed) keep_versions_behind(r, kind, a);
}

static uint64_t hash_of_read(wk__read_kind kind, wk__reg a, int64_t b, PyObject *key) {
  uint64_t h = wk__hash_mix(wk__hash_mix(wk__hash_mix((uint64_t)kind + 1, (uint64_t)a), (uint64_t)b), key_of(key));
  return h << 1 ? h & ~UINT64_C(1) : 2; /* even: odd keys are types */
}

void wk__check_once(wk__recording *r, wk__read_kind kind, wk__reg a, int64_t b, PyObject *object) {
  uint64_t hash = hash_of_read(kind, a, b, object);
  if (wk__map_get(&r->read_before, hash)) return;
  if (wk__map_set(&r->read_before, hash, r) != WK_OK) wk__record_no_memory(r);
  wk__check(r, kind, a, b, object);
}

static wk__tensor_spec *new_spec(wk__recording *r, PyTypeObject *type, const wk_tensor *t) {
  wk__tensor_spec *spec = wk__arena_alloc(&r->arena, sizeof *spec + t->ndim * sizeof *spec->dims);
  if (!spec || wk__grow(&r->specs, &r->spec_capacity, r->spec_count + 1, sizeof *r->specs) != WK_OK) return NULL;
  *spec = (wk__tensor_spec){.type = type,
                            .dtype = t->dtype,
                            .ndim = t->ndim,
                            .device_type = t->device.type,
                            .device_index = t->device.index,
                            .keys = t->keys & WK__KEY_AUTOGRAD};
  for (int d = 0; d < t->ndim; d++) {
    spec->dims[d].size = t->sizes[d].bits;
    spec->dims[d].stride = t->strides[d].bits;
    spec->dims[d].over = -1;
  }
  return r->specs[r->spec_count++] = spec;
}

/* A tensor whose sizes are to be symbols is an input at once, so that the program never sees the numbers. What cannot
 * be one, or is one already, keeps them. */
static void make_symbolic(wk__recording *r, wk_tensor *t, wk__tensor_spec *spec) {
  if (!spec->dynamic) return;
  bool is_input = wk__tracer_node(r->tracer, t);
  if (!is_input) wk_error_clear();
  if (!is_input && t->flags & WK__TENSOR_SYMBOLIC) wk__record_failed(r, "a tensor that cannot be an input");
  if (!(t->flags & WK__TENSOR_SYMBOLIC)) spec->dynamic = 0;
}

static int check_tensor(wk__recording *r, const wk__binding *binding, wk__reg reg, PyObject *object) {
  wk_tensor *t = binding->tensor_of(object);
  if (t->sparse) wk__record_failed(r, "a tensor with a sparse layout");
  wk__tensor_spec *spec = new_spec(r, Py_TYPE(object), t);
  if (!spec) return wk__record_no_memory(r);
  r->registers[reg].spec = (int)r->spec_count - 1;
  wk__check(r, WK__CHECK_TENSOR, reg, r->spec_count - 1, NULL);
  spec->dynamic = wk__dynamic_dims(r, binding, reg, object);
  make_symbolic(r, t, spec);
  return 0;
}

/* Objects that programs do not replace by equal ones: they are checked by identity, and what is reached through them by
 * version.
 */
static bool by_identity(const wk__binding *b, PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  return PyType_Check(o) || PyFunction_Check(o) || PyCFunction_Check(o) || PyModule_Check(o) || PyCode_Check(o) ||
         t == &PyMethodDescr_Type || t == &PyWrapperDescr_Type || t == &PyClassMethodDescr_Type ||
         t == &PyStaticMethod_Type || t == &PyClassMethod_Type || t == b->operator_type || t == *b->overload_type ||
         t == &PyFrozenSet_Type || PyObject_TypeCheck(o, b->module_type) ||
         (b->is_optimizer && b->is_optimizer(b->state, o));
}

/* Objects whose value is all that C code looks at: ranges, slices, members of an IntEnum, texts of a class of its own.
 */
static bool by_value(PyObject *o) {
  return PyRange_Check(o) || PySlice_Check(o) || PyLong_Check(o) || PyUnicode_Check(o) || PyFloat_Check(o) ||
         PyBytes_Check(o) || PyComplex_Check(o);
}

/* A function that is made again for each call (a comprehension's, a lambda in an argument) is known by its code. */
static bool is_made_each_time(const wk__recording *r, wk__reg reg, PyObject *o) {
  const wk__read *read = &r->reads[r->read_count - 1];
  if (!PyFunction_Check(o) || read->dest != reg || (read->kind != WK__READ_SLOT && read->kind != WK__READ_STACK))
    return false;
  return wk__is_bare_function(o);
}

static int check_kind(wk__recording *r, const wk__binding *b, wk__reg reg, PyObject *o) {
  wk__register *g = &r->registers[reg];
  if (is_made_each_time(r, reg, o)) {
    wk__check(r, WK__CHECK_CODE, reg, (int64_t)(intptr_t)PyFunction_GET_GLOBALS(o), PyFunction_GET_CODE(o));
    g->by_code = true;
    return 0;
  }
  if (by_identity(b, o)) {
    wk__check(r, WK__CHECK_IS, reg, 0, o);
    g->fixed = true;
    return PyType_Check(o) ? 0 : wk__depend_on_look_ups(r, Py_TYPE(o));
  }
  if (PyObject_TypeCheck(o, b->tensor_type)) return check_tensor(r, b, reg, o);
  wk__check(r, by_value(o) ? WK__CHECK_EQUAL : WK__CHECK_TYPE, reg, 0, by_value(o) ? o : (PyObject *)Py_TYPE(o));
  if (PyTuple_Check(o)) {
    wk__check(r, WK__CHECK_LENGTH, reg, PyTuple_GET_SIZE(o), NULL);
    r->registers[reg].touched = PyTuple_GET_SIZE(o) == 0;
  }
  return wk__depend_on_look_ups(r, Py_TYPE(o));
}

/* Checks of a thing that has been read into `reg` and has a register already. */
static void check_again(wk__recording *r, wk__reg reg, wk__reg known) {
  wk__register *k = &r->registers[known];
  k->others++;
  if (k->fixed)
    wk__check(r, WK__CHECK_IS, reg, 0, k->object);
  else
    wk__check(r, WK__CHECK_SAME, reg, known, NULL);
}

static uint64_t path_in_frame(wk__read_kind kind, PyCodeObject *code, int depth, int64_t at) {
  uint64_t h = wk__hash_mix(wk__hash_mix((uint64_t)kind + 1, key_of(code)), (uint64_t)depth);
  h = wk__hash_mix(h, (uint64_t)at);
  return h ? h : 1;
}
uint64_t wk__path_of_argument(PyCodeObject *code, int slot) { return path_in_frame(WK__READ_SLOT, code, 0, slot); }

static uint64_t path_behind(wk__read_kind kind, uint64_t path, int64_t b, PyObject *key) {
  uint64_t h = wk__hash_mix((uint64_t)kind + 1, path);
  Py_hash_t name = key && PyUnicode_Check(key) ? PyObject_Hash(key) : (Py_hash_t)(intptr_t)key;
  h = wk__hash_mix(wk__hash_mix(h, (uint64_t)b), (uint64_t)name);
  return h ? h : 1;
}

uint64_t wk__path_of_name(PyObject *dict, PyObject *name) { return path_behind(WK__READ_DICT, key_of(dict), -1, name); }

/* Where something is found, the same in every capture. */
static uint64_t path_of(const wk__recording *r, wk__read_kind kind, wk__reg a, int64_t b, PyObject *key) {
  bool of_frame = kind == WK__READ_SLOT || kind == WK__READ_STACK || kind == WK__READ_FUNCTION;
  if (of_frame) return path_in_frame(kind, r->codes ? r->codes[a] : NULL, a, b);
  return path_behind(kind, a >= 0 ? r->registers[a].path : 0, b, key);
}

static bool has_changed(const wk__recording *r, uint64_t path, PyObject *o, int depth);
static bool value_has_changed(const wk__recording *r, uint64_t path, PyObject *dict, int depth) {
  PyObject *key, *value;
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value);)
    if (has_changed(r, path_behind(WK__READ_DICT, path, -1, key), value, depth)) return true;
  return false;
}
static bool has_changed(const wk__recording *r, uint64_t path, PyObject *o, int depth) {
  enum { DEEPEST = 4 };
  if (PyFloat_CheckExact(o) || PyLong_CheckExact(o)) return wk__map_get(r->changing, path);
  if (depth == DEEPEST) return false;
  if (PyDict_CheckExact(o)) return value_has_changed(r, path, o, depth + 1);
  bool sequence = PyList_CheckExact(o) || PyTuple_CheckExact(o);
  for (Py_ssize_t i = 0; sequence && i < PySequence_Fast_GET_SIZE(o); i++)
    if (has_changed(r, path_behind(WK__READ_ITEM, path, i, NULL), PySequence_Fast_GET_ITEM(o, i), depth + 1))
      return true;
  return false;
}

bool wk__holds_changing(const wk__recording *r, PyObject *o) {
  wk__reg reg = r->changing ? wk__reg_find(r, o) : -1;
  const wk__register *g = reg >= 0 ? &r->registers[reg] : NULL;
  bool as_found = g && g->kind == WK__REG_READ && !g->written && !g->names && !g->before && !g->touched;
  return as_found && has_changed(r, g->path, o, 0);
}

uint64_t wk__path_of_round(PyCodeObject *code, int depth, int item) {
  uint64_t path = path_in_frame(WK__READ_STACK, code, 0, depth);
  if (item < 0) return path;
  uint64_t h = wk__hash_mix(wk__hash_mix(wk__hash_mix((uint64_t)WK__READ_ITEM + 1, path), (uint64_t)item), 0);
  return h ? h : 1;
}

int wk__observe(wk__recording *r, const wk__binding *binding, PyObject *object, wk__read_kind kind, wk__reg a,
                int64_t b, PyObject *key) {
  uint64_t hash = hash_of_read(kind, a, b, key);
  r->last_fresh = r->fresh.count ? wk__map_get(&r->fresh, hash) : NULL;
  r->last_found = object;
  if (r->keep_numbers && r->last_fresh) wk__specialize(r, r->last_fresh); /* C code sees what is in the container */
  if (wk__map_get(&r->read_before, hash) == object) return 0;
  uint64_t path = path_of(r, kind, a, b, key);
  if (wk__map_set(&r->read_before, hash, object) != WK_OK) return wk__record_no_memory(r);
  if (wk__number_changes(r, object, kind, path)) return wk__read_changing(r, hash, path, object, kind, a, b, key);
  bool plain = wk__is_plain_value(binding, object);
  wk__reg known = plain ? -1 : wk__reg_find(r, object);
  if (known >= 0 && r->registers[known].kind != WK__REG_READ && r->registers[known].kind != WK__REG_CONSTANT) {
    wk__record_failed(r, "an object made in the region was found outside");
    return -1;
  }
  bool fixed = read_is_fixed(r, kind, a, b, key) && !wk__has_destructor(object); /* a segment would keep it alive */
  if (fixed) keep_versions_behind(r, kind, a);
  /* A tensor that has been replaced there since an earlier capture is looked at in each call. */
  if (fixed && r->changing && PyObject_TypeCheck(object, binding->tensor_type) && wk__map_get(r->changing, path))
    fixed = false;
  wk__reg reg = wk__new_register(r, WK__REG_READ, plain || known >= 0 ? NULL : object, fixed);
  wk__read *read = reg >= 0 ? wk__add_read(r, kind, a, b, key) : NULL;
  if (!read) return -1;
  read->dest = reg;
  read->fixed = fixed;
  r->registers[reg].path = path;
  if (plain || known >= 0) r->registers[reg].object = Py_NewRef(object); /* fixed ones keep it; not found by it */
  if (plain)
    wk__check(r, WK__CHECK_EQUAL, reg, 0, object);
  else if (known >= 0)
    check_again(r, reg, known);
  else
    return check_kind(r, binding, reg, object);
  return 0;
}

/* ---- all of a container ---- */

static int touch_items(wk__recording *r, const wk__binding *b, wk__reg reg, PyObject *const *items, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; i++)
    if (wk__observe(r, b, items[i], WK__READ_ITEM, reg, i, NULL) < 0) return -1;
  return 0;
}

/* A key or item that a check of its container compares: the same object in each call that the check holds in, also
 * where it has been found in another way. */
static int touch_key(wk__recording *r, PyObject *key) {
  wk__reg reg = wk__reg_find(r, key);
  if (reg < 0) return wk__reg_constant(r, key) < 0 ? -1 : 0;
  const wk__register *g = &r->registers[reg];
  if (g->kind == WK__REG_READ && !g->fixed) wk__check_once(r, WK__CHECK_IS, reg, 0, key);
  return 0;
}

static int touch_dict(wk__recording *r, const wk__binding *b, wk__reg reg, PyObject *dict) {
  PyObject *before = r->registers[reg].before, *key, *value;
  PyObject *keys = before ? Py_NewRef(before) : wk__held_by(dict);
  if (!keys) return -1;
  wk__check(r, WK__CHECK_KEYS, reg, 0, keys);
  Py_DECREF(keys);
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value);) {
    if (wk__was_written(r, reg, key)) continue;
    if (wk__is_plain_value(b, key)) {
      if (wk__observe(r, b, value, WK__READ_DICT, reg, -1, key) < 0) return -1;
      continue;
    }
    if (touch_key(r, key) < 0) return -1; /* CHECK_KEYS compares keys by identity or value */
    if (wk__observe(r, b, value, WK__READ_DICT, reg, -1, key) < 0) return -1;
  }
  return 0;
}

/* Items that hash their addresses are those very objects. */
static int touch_set(wk__recording *r, const wk__binding *b, wk__reg reg, PyObject *items) {
  PyObject *copy = PyFrozenSet_New(items), *all = copy ? PySequence_Tuple(copy) : NULL;
  int status = all ? 0 : -1;
  if (all) wk__check(r, WK__CHECK_EQUAL, reg, 0, copy);
  for (Py_ssize_t i = 0; status == 0 && i < PyTuple_GET_SIZE(all); i++) {
    PyObject *item = PyTuple_GET_ITEM(all, i);
    hashfunc hash = Py_TYPE(item)->tp_hash;
    bool by_address = hash == PyBaseObject_Type.tp_hash || hash == b->tensor_type->tp_hash;
    if (by_address && !wk__is_plain_value(b, item)) status = touch_key(r, item);
  }
  Py_XDECREF(all);
  Py_XDECREF(copy);
  return status;
}

static bool is_kept_list(const wk__recording *r, const wk__binding *b, wk__reg reg, PyObject *list) {
  if (!r->registers[reg].fixed || !PyList_GET_SIZE(list)) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
    PyObject *o = PyList_GET_ITEM(list, i);
    bool stays =
        PyDict_CheckExact(o) || PyObject_TypeCheck(o, *b->parameter_type) || PyObject_TypeCheck(o, b->module_type);
    if (!stays) return false;
  }
  return true;
}

/* A fixed list of parameters or parameter groups: the same objects, so they are fixed too. */
static int touch_kept_list(wk__recording *r, const wk__binding *b, wk__reg reg, PyObject *list) {
  PyObject *items = PyList_AsTuple(list);
  if (!items) return -1;
  wk__check(r, WK__CHECK_ITEMS, reg, 0, items);
  Py_DECREF(items);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
    PyObject *o = PyList_GET_ITEM(list, i);
    if (wk__reg_find(r, o) >= 0) {
      wk__reg known = wk__reg_find(r, o);
      if (!r->registers[known].fixed) wk__check(r, WK__CHECK_IS, known, 0, o);
      r->registers[known].fixed = true;
      continue;
    }
    wk__reg item = wk__new_register(r, WK__REG_CONSTANT, o, true);
    if (item < 0) return -1;
    if (PyObject_TypeCheck(o, b->tensor_type) && check_tensor(r, b, item, o) < 0) return -1;
  }
  return 0;
}

static int touch_deque(wk__recording *r, const wk__binding *b, wk__reg reg, PyObject *deque) {
  PyObject *items = wk__held_by(deque);
  if (!items) return -1;
  wk__check(r, WK__CHECK_LENGTH, reg, PyTuple_GET_SIZE(items), NULL);
  int status = touch_items(r, b, reg, &PyTuple_GET_ITEM(items, 0), PyTuple_GET_SIZE(items));
  Py_DECREF(items);
  return status;
}

/* What it holds may be something else in the next call. */
static bool may_differ(const wk__register *g) { return g->kind == WK__REG_READ || g->of_class; }

static int touch(wk__recording *r, const wk__binding *b, PyObject *o) {
  wk__reg reg = wk__reg_find(r, o);
  if (reg < 0 || !may_differ(&r->registers[reg]) || r->registers[reg].touched) return 0;
  PyObject *before = r->registers[reg].before;
  r->registers[reg].touched = true;
  if (before && (PyList_Check(o) || wk__is_deque(o))) {
    wk__check(r, WK__CHECK_LENGTH, reg, PyTuple_GET_SIZE(before), NULL);
    return touch_items(r, b, reg, &PyTuple_GET_ITEM(before, 0), PyTuple_GET_SIZE(before));
  }
  if (r->registers[reg].written && !before) return 0; /* it became known before it was written */
  if (PyTuple_Check(o)) return touch_items(r, b, reg, &PyTuple_GET_ITEM(o, 0), PyTuple_GET_SIZE(o));
  if (PyDict_Check(o)) return touch_dict(r, b, reg, o);
  if (PyList_Check(o)) {
    if (is_kept_list(r, b, reg, o)) return touch_kept_list(r, b, reg, o);
    wk__check(r, WK__CHECK_LENGTH, reg, PyList_GET_SIZE(o), NULL);
    return touch_items(r, b, reg, ((PyListObject *)o)->ob_item, PyList_GET_SIZE(o));
  }
  if (wk__is_deque(o)) return touch_deque(r, b, reg, o);
  return PyAnySet_Check(o) ? touch_set(r, b, reg, before ? before : o) : 0;
}

int wk__touch(wk__recording *r, const wk__binding *b, PyObject *o) {
  r->keep_numbers = true;
  int status = touch(r, b, o);
  r->keep_numbers = false;
  return status;
}

/* ================================================== steps ======================================================= */

int wk__keep_before(wk__recording *r, wk__reg reg) {
  wk__register *g = &r->registers[reg];
  bool container =
      PyDict_Check(g->object) || PyList_Check(g->object) || PyAnySet_Check(g->object) || wk__is_deque(g->object);
  if (!may_differ(g) || g->touched || g->before || g->written || g->names || !container) return 0;
  if (!(g->before = wk__held_by(g->object))) return -1;
  r->has_before = true;
  return 0;
}

void wk__mark_written(wk__recording *r, wk__reg reg, PyObject *name) {
  wk__register *g = &r->registers[reg];
  if (name && !g->is_globals && g->object && PyDict_Check(g->object) && wk__keep_before(r, reg) < 0) PyErr_Clear();
  if (!name) {
    g->written = true;
    return;
  }
  if (!g->names && !(g->names = PySet_New(NULL))) PyErr_Clear();
  if (!g->names || PySet_Add(g->names, name) < 0) {
    PyErr_Clear(); /* an unhashable name: all of it */
    g->written = true;
  }
}

bool wk__was_written(const wk__recording *r, wk__reg reg, PyObject *name) {
  const wk__register *g = &r->registers[reg];
  if (g->written) return true;
  if (!g->names) return false;
  int found = PySet_Contains(g->names, name);
  if (found < 0) PyErr_Clear();
  return found != 0;
}

bool wk__is_effect(const wk__recording *r, wk__step_kind kind, const wk__reg *items) {
  switch (kind) {
    case WK__DO_SET_ATTR:
    case WK__DO_SET_ITEM:
    case WK__DO_SET_CELL:
    case WK__DO_SET_GRAD:
    case WK__DO_APPEND:
    case WK__DO_ADD:
      return r->registers[items[0]].kind != WK__REG_MADE && r->registers[items[0]].kind != WK__REG_TENSOR;
    case WK__DO_EFFECT:
    case WK__DO_WARN:
      return true;
    case WK__DO_IMPURE_CALL:
      return r->registers[items[1]].kind != WK__REG_MADE;
    default:
      return false;
  }
}

static wk__do *add_step(wk__recording *r, wk__step_kind kind, wk__reg dest, const wk__reg *items, int count,
                        PyObject *object) {
  wk__reg *list = wk__arena_alloc(&r->arena, (size_t)(count + 1) * sizeof *list);
  if (!list || wk__grow(&r->steps, &r->step_capacity, r->step_count + 1, sizeof *r->steps) != WK_OK) {
    wk__record_no_memory(r);
    return NULL;
  }
  if (count) memcpy(list, items, (size_t)count * sizeof *list);
  wk__do *step = &r->steps[r->step_count++];
  *step = (wk__do){.kind = (uint8_t)kind, .dest = dest, .count = count, .items = list, .object = Py_XNewRef(object)};
  return step;
}

int wk__did(wk__recording *r, const wk__binding *b, wk__step_kind kind, PyObject *dest, PyObject *const *items,
            int count, PyObject *object) {
  wk__reg few[16], *regs = few;
  if (count > (int)WK_COUNT(few) && !(regs = wk__alloc((size_t)count * sizeof *regs))) return wk__record_no_memory(r);
  int status = 0;
  for (int i = 0; i < count && status == 0; i++) {
    regs[i] = items[i] ? wk__reg_of(r, b, items[i]) : -1;
    if (items[i] && regs[i] < 0) status = -1;
  }
  if (status == 0 && WK_UNLIKELY(r->tries) && wk__is_effect(r, kind, regs)) {
    r->tries_in_vain = true;
    status = -1;
  }
  wk__reg made = -1;
  if (status == 0 && dest && (made = wk__reg_made(r, dest)) < 0) status = -1;
  if (status == 0 && !add_step(r, kind, made, regs, count, object)) status = -1;
  if (regs != few) wk__free(regs);
  return status;
}
