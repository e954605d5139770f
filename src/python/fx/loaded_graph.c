/* wick._C.LoadedGraph: a graph of the IR from its text, with its fused kernels, to be run.
 *
 * In: text as WICK_DEBUG_DIR and WICK_LOGS=graph have it, and the tensors that it tells by hash. Out: an object that is
 * called with the graph's inputs and gives the tuple of its outputs. Invariant: kernels read memory as the text says,
 * so inputs of another dtype, size or stride are refused, not converted. Tests: tests/python/test_load_graph.py. */
#include "compile/compile.h"
#include "python/data/interop.h"
#include "python/fx/graph_type.h"

typedef struct loaded_graph {
  PyObject_HEAD wk__state *state;
  wk__graph *graph;             /* owned */
  wk__kernels *kernels;         /* owned: the graph calls them */
  wk__graph_executor *executor; /* owned; NULL: it is compiled */
  wk__compiled_graph *compiled; /* owned; NULL: it runs as it is */
} loaded_graph;

static void loaded_dealloc(PyObject *self) {
  loaded_graph *g = (loaded_graph *)self;
  PyTypeObject *type = Py_TYPE(self);
  wk__graph_executor_release(g->executor);
  wk__compiled_graph_release(g->compiled);
  wk__graph_release(g->graph);
  wk__kernels_release(g->kernels);
  type->tp_free(self);
  Py_DECREF(type);
}

/* ===================================================== inputs ==================================================== */

typedef struct call {
  const wk__graph *graph;
  wk_tensor **inputs; /* borrowed */
} call;

/* A symbol is the size of an input's dim, of the first that has it. */
static wk_status value_of_symbol(void *context, wk_int leaf, int64_t *out) {
  const call *c = context;
  for (int64_t i = 0; i < c->graph->input_count; i++)
    for (int d = 0; d < c->inputs[i]->ndim; d++) {
      if (!wk_int_same(c->graph->inputs[i]->value->sizes[d], leaf)) continue;
      *out = c->inputs[i]->sizes[d].bits;
      return WK_OK;
    }
  return wk_fail(WK_VALUE_ERROR, "a symbol of the graph is not the size of any input");
}

static wk_status check_number(const call *c, int64_t i, const char *what, wk_int expected, wk_int given) {
  int64_t value;
  WK_TRY(wk__sym_eval(expected, value_of_symbol, (void *)c, &value));
  if (value == given.bits) return WK_OK;
  return wk_fail(WK_VALUE_ERROR, "input %%%s: expected %s %lld, not %lld", c->graph->inputs[i]->name, what,
                 (long long)value, (long long)given.bits);
}

static wk_status check_input(const call *c, int64_t i) {
  const wk_tensor *given = c->inputs[i], *expected = c->graph->inputs[i]->value;
  const char *name = c->graph->inputs[i]->name;
  if (given->dtype != expected->dtype || !wk__device_equal(given->device, expected->device))
    return wk_fail(WK_VALUE_ERROR, "input %%%s: expected %s on %s", name, wk_dtype_name((wk_dtype)expected->dtype),
                   expected->device.type == WK_CPU ? "cpu" : "its device");
  for (int d = 0; d < given->ndim; d++) {
    WK_TRY(check_number(c, i, "a size of", expected->sizes[d], given->sizes[d]));
    if (given->sizes[d].bits > 1) WK_TRY(check_number(c, i, "a stride of", expected->strides[d], given->strides[d]));
  }
  for (int64_t k = 0; k < i && c->graph->mutation_count; k++)
    if (given->storage && given->storage == c->inputs[k]->storage)
      return wk_fail(WK_VALUE_ERROR, "inputs %%%s and %%%s share memory, and the graph writes inputs",
                     c->graph->inputs[k]->name, name);
  return WK_OK;
}

/* Ranks first: looking for a symbol goes over all inputs. */
static wk_status check_inputs(const call *c) {
  for (int64_t i = 0; i < c->graph->input_count; i++)
    if (c->inputs[i]->ndim != c->graph->inputs[i]->value->ndim || !c->inputs[i]->storage)
      return wk_fail(WK_VALUE_ERROR, "input %%%s: expected a tensor of %d dimensions", c->graph->inputs[i]->name,
                     c->graph->inputs[i]->value->ndim);
  for (int64_t i = 0; i < c->graph->input_count; i++) WK_TRY(check_input(c, i));
  return WK_OK;
}

static int collect(const loaded_graph *g, PyObject *args, call *c) {
  if (PyTuple_GET_SIZE(args) != g->graph->input_count) {
    PyErr_Format(PyExc_TypeError, "the graph takes %lld tensors but %zd were given", (long long)g->graph->input_count,
                 PyTuple_GET_SIZE(args));
    return -1;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++) {
    PyObject *o = PyTuple_GET_ITEM(args, i);
    if (!wk__is_tensor(g->state, o)) {
      PyErr_Format(PyExc_TypeError, "input %%%s is a Tensor, not %.100s", g->graph->inputs[i]->name,
                   Py_TYPE(o)->tp_name);
      return -1;
    }
    c->inputs[i] = wk__tensor_of(o);
  }
  if (check_inputs(c) == WK_OK) return 0;
  (void)wk__raise(g->state);
  return -1;
}

/* ===================================================== calls ===================================================== */

static PyObject *tuple_of(wk__state *state, wk_tensor **steal_tensors, Py_ssize_t count) {  // -> new
  PyObject *tuple = PyTuple_New(count);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *o = tuple ? wk__wrap(state, steal_tensors[i]) : (wk__release(steal_tensors[i]), NULL);
    if (o)
      PyTuple_SET_ITEM(tuple, i, o);
    else
      Py_CLEAR(tuple);
  }
  return tuple;
}

static PyObject *run(loaded_graph *g, wk_tensor *const *inputs) {  // -> new
  Py_ssize_t count = (Py_ssize_t)g->graph->output_count;
  wk_tensor **outputs = PyMem_Calloc((size_t)count + 1, sizeof *outputs);
  if (!outputs) return PyErr_NoMemory();
  wk_status status = g->compiled ? wk__compiled_graph_run(g->compiled, inputs, NULL, outputs)
                                 : wk__graph_execute(g->executor, inputs, NULL, outputs);
  PyObject *result = status == WK_OK ? tuple_of(g->state, outputs, count) : wk__raise(g->state);
  PyMem_Free(outputs);
  return result;
}

static PyObject *loaded_call(PyObject *self, PyObject *args, PyObject *keywords) {  // -> new
  loaded_graph *g = (loaded_graph *)self;
  call c = {.graph = g->graph};
  if (keywords && PyDict_GET_SIZE(keywords)) return PyErr_Format(PyExc_TypeError, "a graph takes no keyword arguments");
  if (!(c.inputs = PyMem_Calloc((size_t)g->graph->input_count + 1, sizeof *c.inputs))) return PyErr_NoMemory();
  PyObject *result = collect(g, args, &c) == 0 ? run(g, c.inputs) : NULL;
  PyMem_Free(c.inputs);
  return result;
}

static PyObject *loaded_text(PyObject *self) {  // -> new
  loaded_graph *g = (loaded_graph *)self;
  wk__string text = {0};
  wk_status status = wk__graph_print(&text, g->compiled ? wk__compiled_graph_final(g->compiled) : g->graph, false);
  PyObject *result = status == WK_OK ? PyUnicode_FromString(text.text) : wk__raise(g->state);
  wk__string_release(&text);
  return result;
}

static PyObject *hints(const wk_int *list, int count) {  // -> new
  PyObject *tuple = PyTuple_New(count);
  for (int i = 0; tuple && i < count; i++) {
    int64_t hint = 0;
    PyObject *o = wk__sym_hint(list[i], &hint) ? PyLong_FromLongLong(hint) : Py_NewRef(Py_None);
    if (o)
      PyTuple_SET_ITEM(tuple, i, o);
    else
      Py_CLEAR(tuple);
  }
  return tuple;
}

static PyObject *loaded_inputs(PyObject *self, void *closure) {  // -> new
  loaded_graph *g = (loaded_graph *)self;
  PyObject *list = PyList_New(0);
  (void)closure;
  for (int64_t i = 0; list && i < g->graph->input_count; i++) {
    const wk_tensor *t = g->graph->inputs[i]->value;
    PyObject *sizes = hints(t->sizes, t->ndim), *strides = hints(t->strides, t->ndim);
    PyObject *dtype = wk__dtype_object(g->state, (wk_dtype)t->dtype);
    PyObject *o =
        sizes && strides && dtype ? Py_BuildValue("(sOOO)", g->graph->inputs[i]->name, dtype, sizes, strides) : NULL;
    Py_XDECREF(sizes);
    Py_XDECREF(strides);
    Py_XDECREF(dtype);
    if (!o || PyList_Append(list, o) < 0) Py_CLEAR(list);
    Py_XDECREF(o);
  }
  return list;
}

/* ==================================================== the type =================================================== */

static int constants_of(wk__state *state, PyObject *fast, wk_tensor **out) {
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast); i++) {
    PyObject *o = PySequence_Fast_GET_ITEM(fast, i);
    if (!wk__is_tensor(state, o)) {
      PyErr_SetString(PyExc_TypeError, "constants are Tensors");
      return -1;
    }
    out[i] = wk__tensor_of(o);
  }
  return 0;
}

static wk_status load(loaded_graph *g, const char *text, wk_tensor *const *constants, Py_ssize_t count, bool compiled) {
  WK_TRY(wk__load_graph(text, constants, (int)count, &g->graph, &g->kernels));
  if (compiled) return wk__compile_graph(g->graph, NULL, WK__COMPILE_LATER, &g->compiled);
  return wk__graph_executor_create(g->graph, &g->executor);
}

static PyObject *loaded_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"text", "constants", "compiled", NULL};
  wk__state *state = wk__state_of_module(PyType_GetModule(type));
  const char *text;
  PyObject *constants = NULL;
  int compiled = 0;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "s|Op", names, &text, &constants, &compiled)) return NULL;
  PyObject *fast = constants ? PySequence_Fast(constants, "constants are Tensors") : PyTuple_New(0);
  loaded_graph *g = fast ? (loaded_graph *)type->tp_alloc(type, 0) : NULL;
  Py_ssize_t count = g ? PySequence_Fast_GET_SIZE(fast) : 0;
  wk_tensor **tensors = g ? PyMem_Calloc((size_t)count + 1, sizeof *tensors) : NULL;
  bool done = tensors && constants_of(state, fast, tensors) == 0;
  if (g) g->state = state;
  if (g && !tensors) PyErr_NoMemory();
  if (done && load(g, text, tensors, count, compiled) != WK_OK) {
    (void)wk__raise(state);
    done = false;
  }
  PyMem_Free(tensors);
  Py_XDECREF(fast);
  if (!done) Py_CLEAR(g);
  return (PyObject *)g;
}

static PyGetSetDef loaded_getset[] = {
    {"inputs", loaded_inputs, NULL,
     "[(name, dtype, sizes, strides)] of what a call takes; symbols with the values that they had when captured.",
     NULL},
    {0}};

static PyType_Slot loaded_slots[] = {
    {Py_tp_new, loaded_new},
    {Py_tp_dealloc, loaded_dealloc},
    {Py_tp_call, loaded_call},
    {Py_tp_str, loaded_text},
    {Py_tp_getset, loaded_getset},
    {Py_tp_doc,
     "LoadedGraph(text, constants=(), compiled=False)\n--\n\nA graph of the compiler from its text; called "
     "with its input tensors it gives the tuple of its outputs."},
    {0}};
static PyType_Spec loaded_spec = {
    .name = "wick._C.LoadedGraph",
    .basicsize = sizeof(loaded_graph),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = loaded_slots,
};

int wk__add_loaded_graph(PyObject *module) {
  PyTypeObject *type = wk__add_type(module, &loaded_spec, NULL, "LoadedGraph");
  Py_XDECREF(type);
  return type ? 0 : -1;
}
