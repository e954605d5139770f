/* The levels of function transforms (levels/levels.h) for wick/_functorch/, which begins and ends them.
 * In: tensors and how they belong to the innermost level. Out: tensors of it, and their inner values.
 * Tests: tests/python/test_func.py. */
#include "levels/levels.h"

#include "dynamo/cpython/objects.h"
#include "python/autograd/autograd.h"

/* _level_begin(kind, batch_size, randomness, follows_below=False) -> how many levels there are now */
static PyObject *level_begin(PyObject *module, PyObject *args) {  // -> new
  int kind, randomness, follows = 0;
  long long batch_size;
  if (!PyArg_ParseTuple(args, "iLi|p:_level_begin", &kind, &batch_size, &randomness, &follows)) return NULL;
  wk__level *level = wk__level_begin((wk__level_kind)kind, wk_int_of(batch_size), (wk__randomness)randomness);
  if (level && follows) wk__level_follow_below(level);
  return level ? PyLong_FromLong(wk__level_depth()) : wk__raise(wk__state_of_module(module));
}

static PyObject *level_end(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  if (!wk__thread.mode.level) return PyErr_Format(PyExc_RuntimeError, "_level_end(): nothing has begun");
  wk__level_end();
  Py_RETURN_NONE;
}

static PyObject *level_depth(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  return PyLong_FromLong(wk__level_depth());
}

/* _level_randomness() of the innermost vmap, -1 where there is none */
static PyObject *level_randomness(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  const wk__level *level = wk__thread.mode.level;
  while (level && level->kind != WK__LEVEL_BATCH) level = level->outer;
  return PyLong_FromLong(level ? level->randomness : -1);
}

static bool check_tensor(const wk__state *state, PyObject *o, const char *function) {
  if (wk__is_tensor(state, o)) return true;
  PyErr_Format(PyExc_TypeError, "%s(): expected a tensor, not %s", function, wk__type_name(Py_TYPE(o)));
  return false;
}

/* Where the level's tape follows what is below, the tensor has its value's history. */
static wk_status link_history(wk_tensor *wrapped, wk_tensor *value) {
  wk__edge edge;
  if (!wk__thread.mode.level->follows_below || !wk__thread.mode.grad_enabled || !wk_requires_grad(value)) return WK_OK;
  WK_TRY(wk__edge_of(value, &edge));
  wk_status status = edge.node ? wk__set_history(wrapped, edge.node, edge.input) : WK_OK;
  wk__node_release(edge.node);
  return status;
}

/* _level_wrap(tensor, batch_dim, tangent) -> a tensor of the innermost level; -1 and None: without */
static PyObject *level_wrap(PyObject *module, PyObject *args) {  // -> new
  wk__state *state = wk__state_of_module(module);
  PyObject *o, *tangent;
  int batch_dim;
  if (!PyArg_ParseTuple(args, "OiO:_level_wrap", &o, &batch_dim, &tangent)) return NULL;
  if (!check_tensor(state, o, "_level_wrap")) return NULL;
  if (tangent != Py_None && !check_tensor(state, tangent, "_level_wrap")) return NULL;
  wk_tensor *t = wk__level_living(wk__tensor_of(o));
  wk_tensor *derivative = tangent == Py_None ? NULL : wk__level_living(wk__tensor_of(tangent));
  if (!wk__thread.mode.level || batch_dim >= t->ndim)
    return PyErr_Format(PyExc_RuntimeError, "_level_wrap(): there is no such level or dim");
  wk_tensor *wrapped = wk__level_wrap(t, batch_dim, derivative);
  if (wrapped && link_history(wrapped, t) == WK_OK) return wk__wrap(state, wrapped);
  wk__release(wrapped);
  return wk__raise(state);
}

/* _level_unwrap(tensor) -> (inner value, batch dim or None), or None for one that is not of the innermost level */
static PyObject *level_unwrap(PyObject *module, PyObject *o) {  // -> new
  wk__state *state = wk__state_of_module(module);
  if (!check_tensor(state, o, "_level_unwrap")) return NULL;
  const wk_tensor *t = wk__tensor_of(o);
  if (!t->inner || !wk__is_of_this_level(t)) Py_RETURN_NONE;
  PyObject *value = wk__wrap(state, wk__retain(t->inner->value));
  if (!value) return NULL;
  return t->inner->batch_dim < 0 ? Py_BuildValue("(NO)", value, Py_None)
                                 : Py_BuildValue("(Ni)", value, (int)t->inner->batch_dim);
}

/* _level_plain(tensor) -> the tensor below all levels: of a batch all examples */
static PyObject *level_plain(PyObject *module, PyObject *o) {  // -> new
  wk__state *state = wk__state_of_module(module);
  if (!check_tensor(state, o, "_level_plain")) return NULL;
  wk_tensor *t = wk__tensor_of(o);
  while (t->inner) t = t->inner->value;
  return wk__wrap(state, wk__retain(t));
}

/* _level_tangent(tensor) -> its tangent at the innermost level, or None */
static PyObject *level_tangent(PyObject *module, PyObject *o) {  // -> new
  wk__state *state = wk__state_of_module(module);
  if (!check_tensor(state, o, "_level_tangent")) return NULL;
  const wk_tensor *t = wk__tensor_of(o);
  bool has = t->inner && wk__is_of_this_level(t) && t->inner->tangent;
  return has ? wk__wrap(state, wk__retain(t->inner->tangent)) : Py_NewRef(Py_None);
}

/* _level_leaf(tensor) -> itself, a tensor of the innermost level that requires grad from now on */
static PyObject *level_leaf(PyObject *module, PyObject *o) {  // -> new
  wk__state *state = wk__state_of_module(module);
  if (!check_tensor(state, o, "_level_leaf")) return NULL;
  wk_tensor *t = wk__tensor_of(o);
  if (!t->inner || !wk__is_of_this_level(t))
    return PyErr_Format(PyExc_RuntimeError, "_level_leaf(): the tensor is of another level");
  return wk_set_requires_grad(t, true) == WK_OK ? Py_NewRef(o) : wk__raise(state);
}

/* _level_kind() of the innermost level, -1 where there is none */
static PyObject *level_kind(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  return PyLong_FromLong(wk__thread.mode.level ? wk__thread.mode.level->kind : -1);
}

/* _level_batch() -> (batch size, randomness) of the innermost level, one of vmap */
static PyObject *level_batch(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  const wk__level *level = wk__thread.mode.level;
  if (!level) return PyErr_Format(PyExc_RuntimeError, "_level_batch(): there is no level");
  return Py_BuildValue("(Li)", (long long)wk_int_guard_value(level->batch_size), level->randomness);
}

/* _level_go_down() -> the mode of before, for _level_come_back: between the two calls are made one level below. */
static PyObject *level_go_down(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  if (!wk__thread.mode.level) return PyErr_Format(PyExc_RuntimeError, "_level_go_down(): there is no level below");
  wk__thread_mode before = wk__level_go_down();
  PyObject *kept = PyBytes_FromStringAndSize((const char *)&before, sizeof before);
  if (!kept) wk__level_come_back(&before);
  return kept;
}

static PyObject *level_come_back(PyObject *module, PyObject *kept) {  // -> new
  (void)module;
  wk__thread_mode before;
  if (!PyBytes_Check(kept) || PyBytes_GET_SIZE(kept) != sizeof before)
    return PyErr_Format(PyExc_TypeError, "_level_come_back(): expected what _level_go_down() gave");
  memcpy(&before, PyBytes_AS_STRING(kept), sizeof before);
  wk__level_come_back(&before);
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_level_begin", level_begin, METH_VARARGS, NULL},   {"_level_end", level_end, METH_NOARGS, NULL},
    {"_level_depth", level_depth, METH_NOARGS, NULL},    {"_level_randomness", level_randomness, METH_NOARGS, NULL},
    {"_level_wrap", level_wrap, METH_VARARGS, NULL},     {"_level_unwrap", level_unwrap, METH_O, NULL},
    {"_level_tangent", level_tangent, METH_O, NULL},     {"_level_plain", level_plain, METH_O, NULL},
    {"_level_leaf", level_leaf, METH_O, NULL},           {"_level_kind", level_kind, METH_NOARGS, NULL},
    {"_level_batch", level_batch, METH_NOARGS, NULL},    {"_level_go_down", level_go_down, METH_NOARGS, NULL},
    {"_level_come_back", level_come_back, METH_O, NULL}, {0}};

int wk__add_levels(PyObject *module) { return PyModule_AddFunctions(module, functions); }
