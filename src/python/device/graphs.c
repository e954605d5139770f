/* CUDA graphs that programs capture themselves, and pools of memory, for Python. torch.cuda.CUDAGraph and MemPool are
 * written over it (python/wick/cuda/graphs.py).
 *
 * A graph object owns its graph. Pools go by number; who uses one has a share in it. Tests:
 * tests/cuda/test_cuda_graphs.py. */
#include "cuda/cuda.h"
#include "python/data/interop.h"
#include "random/generator.h"

typedef struct graph_object {
  PyObject_HEAD wk__cuda_graph *graph;
} graph_object;
static wk__cuda_graph *graph_of(PyObject *o) { return ((graph_object *)o)->graph; }  // borrowed

static PyObject *none_or_error(PyObject *self, wk_status status) {  // -> new
  return status == WK_OK ? Py_NewRef(Py_None) : wk__raise(wk__state_of_type(Py_TYPE(self)));
}

/* ---- lifetime ---- */

static PyObject *graph_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"keep_graph", NULL};
  wk__state *state = wk__state_of_type(type);
  int keep = 0;
  if (!state || !PyArg_ParseTupleAndKeywords(args, keywords, "|p", names, &keep)) return NULL;
  PyObject *self = type->tp_alloc(type, 0);
  if (!self) return NULL;
  if ((((graph_object *)self)->graph = wk__cuda_graph_create(keep != 0))) return self;
  Py_DECREF(self);
  return wk__raise(state);
}

static void graph_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  wk__cuda_graph_release(graph_of(self));
  type->tp_free(self);
  Py_DECREF(type);
}

/* ---- arguments ---- */

/* A pool as (0, number), which graph_pool_handle() gives; None: 0. */
static int pool_number(PyObject *o, long long *out) {
  int zero;
  *out = 0;
  if (o == Py_None) return 0;
  return PyArg_Parse(o, "(iL);a memory pool is wanted", &zero, out) ? 0 : -1;
}

static PyObject *pool_object(int64_t number) {  // -> new
  return Py_BuildValue("(iL)", 0, (long long)number);
}

/* The driver's number of a mode; -1 with an exception. */
static int mode_number(const char *name) {
  static const char *const names[] = {"global", "thread_local", "relaxed"};
  for (int i = 0; i < (int)WK_COUNT(names); i++)
    if (!strcmp(name, names[i])) return i;
  PyErr_Format(PyExc_RuntimeError,
               "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got %s", name);
  return -1;
}

/* The thread's stream of the graph's device, else of its current device; NULL with an exception. */
static wk__stream *stream_for(PyObject *self) {  // -> borrowed
  int index = wk__cuda_graph_device(graph_of(self));
  wk_device device = {WK_CUDA, (int8_t)(index < 0 ? wk__device_current(WK_CUDA) : index)};
  wk__stream *stream = wk__stream_find(device);
  return stream ? stream : (void *)wk__raise(wk__state_of_type(Py_TYPE(self)));
}

/* ---- methods ---- */

static PyObject *graph_begin(PyObject *self, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"pool", "capture_error_mode", NULL};
  PyObject *pool = Py_None;
  const char *mode = "global";
  long long number;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "|Os", names, &pool, &mode)) return NULL;
  int mode_value = mode_number(mode);
  wk__stream *stream = mode_value < 0 || pool_number(pool, &number) < 0 ? NULL : stream_for(self);
  if (!stream) return NULL;
  return none_or_error(self, wk__cuda_graph_begin(graph_of(self), stream, number, mode_value));
}

static PyObject *graph_end(PyObject *self, PyObject *unused) {  // -> new
  bool empty;
  wk__stream *stream = stream_for(self);
  (void)unused;
  if (!stream) return NULL;
  if (wk__cuda_graph_end(graph_of(self), stream, &empty) != WK_OK) return wk__raise(wk__state_of_type(Py_TYPE(self)));
  if (empty && PyErr_WarnEx(PyExc_UserWarning,
                            "The CUDA Graph is empty. This usually means that the graph was attempted to be captured "
                            "on wrong device or stream.",
                            1) < 0)
    return NULL;
  Py_RETURN_NONE;
}

static PyObject *graph_replay(PyObject *self, PyObject *unused) {  // -> new
  wk_status status;
  wk__stream *stream = stream_for(self);
  (void)unused;
  if (!stream) return NULL;
  Py_BEGIN_ALLOW_THREADS status = wk__cuda_graph_replay(graph_of(self), stream);
  Py_END_ALLOW_THREADS return none_or_error(self, status);
}

static PyObject *graph_instantiate(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return none_or_error(self, wk__cuda_graph_instantiate(graph_of(self)));
}
static PyObject *graph_reset(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return none_or_error(self, wk__cuda_graph_reset(graph_of(self)));
}

static PyObject *graph_pool(PyObject *self, PyObject *unused) {  // -> new
  int64_t number;
  (void)unused;
  wk_status status = wk__cuda_graph_pool(graph_of(self), &number);
  return status == WK_OK ? pool_object(number) : none_or_error(self, status);
}

static PyObject *graph_dump(PyObject *self, PyObject *path) {  // -> new
  PyObject *bytes;
  if (!PyUnicode_FSConverter(path, &bytes)) return NULL;
  wk_status status = wk__cuda_graph_dump(graph_of(self), PyBytes_AS_STRING(bytes));
  Py_DECREF(bytes);
  return none_or_error(self, status);
}

static PyObject *graph_register(PyObject *self, PyObject *o) {  // -> new
  wk__state *state = wk__state_of_type(Py_TYPE(self));
  if (!PyObject_TypeCheck(o, state->generator_type)) return PyErr_Format(PyExc_TypeError, "a generator is wanted");
  return none_or_error(self, wk__cuda_graph_register(graph_of(self), ((wk__python_generator *)o)->generator));
}

static PyObject *handle_or_error(PyObject *self, const void *handle) {  // -> new
  return handle ? PyLong_FromVoidPtr((void *)handle) : wk__raise(wk__state_of_type(Py_TYPE(self)));
}
static PyObject *graph_raw(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return handle_or_error(self, wk__cuda_graph_raw(graph_of(self)));
}
static PyObject *graph_raw_exec(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return handle_or_error(self, wk__cuda_graph_raw_exec(graph_of(self)));
}

static PyMethodDef graph_methods[] = {
    {"capture_begin", WK__METHOD(graph_begin), METH_VARARGS | METH_KEYWORDS, "The current stream's work is captured."},
    {"capture_end", graph_end, METH_NOARGS, "Until here; then replay() may be called."},
    {"instantiate", graph_instantiate, METH_NOARGS, "Makes what replay launches."},
    {"replay", graph_replay, METH_NOARGS, "Gives the current stream the work that was captured."},
    {"reset", graph_reset, METH_NOARGS, "Forgets it."},
    {"pool", graph_pool, METH_NOARGS, "The pool that its memory is of, for capture_begin of other graphs."},
    {"register_generator_state", graph_register, METH_O, "Draws of the generator go on at each replay."},
    {"_dump", graph_dump, METH_O, "Writes the graph as DOT."},
    {"raw_cuda_graph", graph_raw, METH_NOARGS, "The driver's graph, of CUDAGraph(keep_graph=True)."},
    {"raw_cuda_graph_exec", graph_raw_exec, METH_NOARGS, "The driver's executable graph."},
    {0}};
static PyType_Slot graph_slots[] = {{Py_tp_doc, "Captured work of a device."},
                                    {Py_tp_new, graph_new},
                                    {Py_tp_dealloc, graph_dealloc},
                                    {Py_tp_methods, graph_methods},
                                    {0, NULL}};
static PyType_Spec graph_spec = {.name = "wick._C._CUDAGraph",
                                 .basicsize = sizeof(graph_object),
                                 .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                 .slots = graph_slots};

/* ---- functions ---- */

static PyObject *is_capturing(PyObject *module, PyObject *unused) {  // -> new
  (void)unused;
  if (!wk__cuda_captures()) Py_RETURN_FALSE;
  const wk__stream *stream = wk__stream_find((wk_device){WK_CUDA, (int8_t)wk__device_current(WK_CUDA)});
  return stream ? PyBool_FromLong(stream->captured) : wk__raise(wk__state_of_module(module));
}

static PyObject *pool_handle(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  return pool_object(wk__cuda_pool_new_id());
}

/* (device index, pool) -> a share in the pool, as a capsule */
static void release_share(PyObject *capsule) { wk__cuda_pool_let_go(PyCapsule_GetPointer(capsule, "pool")); }
static PyObject *pool_share(PyObject *module, PyObject *args) {  // -> new
  int index;
  PyObject *pool;
  long long number;
  if (!PyArg_ParseTuple(args, "iO", &index, &pool) || pool_number(pool, &number) < 0) return NULL;
  wk__cuda_pool *share = wk__cuda_pool_get(index, number);
  if (!share) return wk__raise(wk__state_of_module(module));
  PyObject *capsule = PyCapsule_New(share, "pool", release_share);
  if (!capsule) wk__cuda_pool_let_go(share);
  return capsule;
}

static PyObject *pool_uses(PyObject *module, PyObject *share) {  // -> new
  const wk__cuda_pool *pool = PyCapsule_GetPointer(share, "pool");
  (void)module;
  return pool ? PyLong_FromLongLong(wk__cuda_pool_uses(pool)) : NULL;
}

/* (share or None): this thread's allocations are the pool's. -> an address to go back by, which stands for the pool
 * before
 */
static PyObject *pool_use(PyObject *module, PyObject *o) {  // -> new
  (void)module;
  wk__cuda_pool *pool = NULL;
  if (PyLong_Check(o))
    pool = PyLong_AsVoidPtr(o);
  else if (o != Py_None && !(pool = PyCapsule_GetPointer(o, "pool")))
    return NULL;
  return PyLong_FromVoidPtr(wk__cuda_pool_use(pool));
}

static PyMethodDef functions[] = {
    {"_cuda_is_capturing", is_capturing, METH_NOARGS, "Whether the current stream's work is captured."},
    {"_graph_pool_handle", pool_handle, METH_NOARGS, "A number for a new pool of memory: (0, number)."},
    {"_cuda_pool_share", pool_share, METH_VARARGS, "A share in a device's pool: (device, pool)."},
    {"_cuda_pool_uses", pool_uses, METH_O, "How many shares there are."},
    {"_cuda_pool_use", pool_use, METH_O, "This thread allocates from the pool; returns what it did before."},
    {0}};

int wk__add_device_graphs(PyObject *module) {
  PyTypeObject *graph = wk__add_type(module, &graph_spec, NULL, "_CUDAGraph");
  Py_XDECREF(graph);
  return graph ? PyModule_AddFunctions(module, functions) : -1;
}
