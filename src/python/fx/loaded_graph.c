/* wick._C.LoadedGraph: a graph of the IR from its text, with its fused kernels, to be run.
 *
 * In: text as WICK_DEBUG_DIR and WICK_LOGS=graph have it, and the tensors that it tells by hash. Out: an object that is
 * called with the graph's inputs and gives the tuple of its outputs. Invariant: kernels read memory as the text says,
 * so inputs of another dtype, size or stride are refused, not converted. Tests: tests/python/test_load_graph.py. */
#include "compile/choices.h"
#include "compile/compile.h"
#include "dynamo/dynamo.h"
#include "python/data/interop.h"
#include "python/fx/graph_type.h"

typedef struct loaded_graph {
  PyObject_HEAD wk__state *state;
  wk__graph *graph;             /* owned */
  wk__kernels *kernels;         /* owned: the graph calls them */
  wk__graph_executor *executor; /* owned; NULL: it is compiled */
  wk__compiled_graph *compiled; /* owned; NULL: it runs as it is */
  wk__sym_guard *guards;        /* (guard_count) owned: what has to hold of the symbols, besides their ranges */
  Py_ssize_t guard_count;
} loaded_graph;

static void loaded_dealloc(PyObject *self) {
  loaded_graph *g = (loaded_graph *)self;
  PyTypeObject *type = Py_TYPE(self);
  wk__graph_executor_release(g->executor);
  wk__compiled_graph_release(g->compiled);
  wk__graph_release(g->graph);
  wk__kernels_release(g->kernels);
  PyMem_Free(g->guards);
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

static wk_status check_ranges(const call *c) {
  const wk__shape_env *env = c->graph->env;
  for (int64_t i = 0; env && i < wk__shape_env_symbol_count(env); i++) {
    wk__symbol_info symbol = wk__shape_env_symbol_at(env, i);
    int64_t value = 0;
    WK_TRY(value_of_symbol((void *)c, symbol.value, &value));
    if (value < symbol.lo || value > symbol.hi)
      return wk_fail(WK_VALUE_ERROR, "the size %s is %lld: the graph is for %lld to %lld", symbol.name,
                     (long long)value, (long long)symbol.lo, (long long)symbol.hi);
  }
  return WK_OK;
}

static wk_status check_guard(const call *c, wk__sym_guard guard) {
  int64_t left, right;
  WK_TRY(wk__sym_eval(guard.left, value_of_symbol, (void *)c, &left));
  WK_TRY(wk__sym_eval(guard.right, value_of_symbol, (void *)c, &right));
  if (wk__guard_compare(guard.kind, left, right)) return WK_OK;
  wk__string text = {0};
  wk__sym_guard_print(&text, guard);
  wk_status status = wk_fail(WK_VALUE_ERROR, "the graph is for sizes of which %s holds", text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

static wk_status check_sizes(const call *c, const loaded_graph *g) {
  if (!g->guards) return WK_OK;
  WK_TRY(check_ranges(c));
  for (Py_ssize_t i = 0; i < g->guard_count; i++) WK_TRY(check_guard(c, g->guards[i]));
  return WK_OK;
}

/* Borrowed tensors in an array that the caller frees with PyMem_Free; NULL with an exception. */
static wk_tensor **collect(const loaded_graph *g, PyObject *args) {
  if (PyTuple_GET_SIZE(args) != g->graph->input_count)
    return (wk_tensor **)PyErr_Format(PyExc_TypeError, "the graph takes %lld tensors but %zd were given",
                                      (long long)g->graph->input_count, PyTuple_GET_SIZE(args));
  wk_tensor **inputs = PyMem_Calloc((size_t)g->graph->input_count + 1, sizeof *inputs);
  if (!inputs) return (wk_tensor **)PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++) {
    PyObject *o = PyTuple_GET_ITEM(args, i);
    if (!wk__is_tensor(g->state, o)) {
      PyMem_Free(inputs);
      return (wk_tensor **)PyErr_Format(PyExc_TypeError, "input %%%s is a Tensor, not %.100s",
                                        g->graph->inputs[i]->name, Py_TYPE(o)->tp_name);
    }
    inputs[i] = wk__tensor_of(o);
  }
  return inputs;
}

static wk_status check(const loaded_graph *g, wk_tensor **inputs) {
  call c = {.graph = g->graph, .inputs = inputs};
  WK_TRY(check_inputs(&c));
  return check_sizes(&c, g);
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
  if (keywords && PyDict_GET_SIZE(keywords)) return PyErr_Format(PyExc_TypeError, "a graph takes no keyword arguments");
  wk_tensor **inputs = collect(g, args);
  if (!inputs) return NULL;
  PyObject *result = check(g, inputs) == WK_OK ? run(g, inputs) : wk__raise(g->state);
  PyMem_Free(inputs);
  return result;
}

static PyObject *loaded_fits(PyObject *self, PyObject *args) {  // -> new
  loaded_graph *g = (loaded_graph *)self;
  wk_tensor **inputs = collect(g, args);
  if (!inputs) return NULL;
  bool fits = check(g, inputs) == WK_OK;
  if (!fits) wk_error_clear();
  PyMem_Free(inputs);
  return PyBool_FromLong(fits);
}

static PyObject *loaded_report(PyObject *self, PyObject *unused) {  // -> new
  loaded_graph *g = (loaded_graph *)self;
  (void)unused;
  return g->compiled ? wk__compiled_graph_report(g->compiled, true) : Py_NewRef(Py_None);
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

/* "2 < s0": an expression, how they compare, an expression. */
static wk_status parse_guard(wk__shape_env *env, char *text, wk__sym_guard *out) {
  static const struct {
    const char *text;
    wk__guard_kind kind;
  } kinds[] = {{" == ", WK__GUARD_EQ}, {" != ", WK__GUARD_NE}, {" < ", WK__GUARD_LT}, {" >= ", WK__GUARD_GE}};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    char *at = strstr(text, kinds[k].text);
    if (!at) continue;
    *at = 0;
    out->kind = kinds[k].kind;
    WK_TRY(wk_int_parse(env, text, &out->left));
    return wk_int_parse(env, at + strlen(kinds[k].text), &out->right);
  }
  return wk_fail(WK_VALUE_ERROR, "no comparison of sizes: '%.100s'", text);
}

static wk_status add_guard(loaded_graph *g, const char *text) {
  if (!g->graph->env) return wk_fail(WK_VALUE_ERROR, "a guard of sizes, and a graph without symbols");
  wk__string own = {0};
  wk__string_append(&own, text);
  wk_status status = own.text ? parse_guard(g->graph->env, own.text, &g->guards[g->guard_count]) : WK_OUT_OF_MEMORY;
  wk__string_release(&own);
  g->guard_count += status == WK_OK;
  return status;
}

static int add_guards(loaded_graph *g, PyObject *guards) {
  PyObject *fast = guards == Py_None ? NULL : PySequence_Fast(guards, "guards are a list of texts");
  if (!fast) return guards == Py_None ? 0 : -1;
  int done = (g->guards = PyMem_Calloc((size_t)PySequence_Fast_GET_SIZE(fast) + 1, sizeof *g->guards)) ? 0 : -1;
  if (done < 0) PyErr_NoMemory();
  for (Py_ssize_t i = 0; done == 0 && i < PySequence_Fast_GET_SIZE(fast); i++) {
    const char *text = PyUnicode_AsUTF8(PySequence_Fast_GET_ITEM(fast, i));
    if (!text || add_guard(g, text) != WK_OK) done = -1;
    if (text && done < 0) (void)wk__raise(g->state);
  }
  Py_DECREF(fast);
  return done;
}

/* limits: NULL: there are none. */
static wk_status load(loaded_graph *g, const char *text, wk_tensor *const *constants, Py_ssize_t count, bool compiled,
                      const wk__limits *limits) {
  WK_TRY(wk__load_graph(text, constants, (int)count, &g->graph, &g->kernels));
  if (limits) return wk__compile_within(g->graph, limits, &g->compiled);
  if (compiled) return wk__compile_graph(g->graph, NULL, WK__COMPILE_LATER, &g->compiled);
  return wk__graph_executor_create(g->graph, &g->executor);
}

/* (passes, kernels, native), None for as many as there are. */
static bool limits_of(PyObject *tuple, wk__limits *out) {
  int64_t *const each[] = {&out->passes, &out->kernels, &out->native};
  if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 3) {
    PyErr_SetString(PyExc_TypeError, "limits are a tuple: passes, kernels, kernels with native code");
    return false;
  }
  for (int i = 0; i < 3; i++) {
    PyObject *o = PyTuple_GET_ITEM(tuple, i);
    if (o != Py_None) *each[i] = PyLong_AsLongLong(o);
  }
  return !PyErr_Occurred();
}

static PyObject *loaded_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"text", "constants", "compiled", "guards", "limits", NULL};
  wk__state *state = wk__state_of_module(PyType_GetModule(type));
  const char *text;
  PyObject *constants = NULL, *guards = Py_None, *limits = Py_None;
  int compiled = 0;
  wk__limits within = wk__no_limits;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "s|OpOO", names, &text, &constants, &compiled, &guards, &limits))
    return NULL;
  if (limits != Py_None && !limits_of(limits, &within)) return NULL;
  PyObject *fast = constants ? PySequence_Fast(constants, "constants are Tensors") : PyTuple_New(0);
  loaded_graph *g = fast ? (loaded_graph *)type->tp_alloc(type, 0) : NULL;
  Py_ssize_t count = g ? PySequence_Fast_GET_SIZE(fast) : 0;
  wk_tensor **tensors = g ? PyMem_Calloc((size_t)count + 1, sizeof *tensors) : NULL;
  bool done = tensors && constants_of(state, fast, tensors) == 0;
  if (g) g->state = state;
  if (g && !tensors) PyErr_NoMemory();
  if (done && load(g, text, tensors, count, compiled, limits == Py_None ? NULL : &within) != WK_OK) {
    (void)wk__raise(state);
    done = false;
  }
  PyMem_Free(tensors);
  Py_XDECREF(fast);
  if (!done || add_guards(g, guards) < 0) Py_CLEAR(g);
  return (PyObject *)g;
}

static PyObject *loaded_output_count(PyObject *self, void *closure) {  // -> new
  (void)closure;
  return PyLong_FromLongLong(((loaded_graph *)self)->graph->output_count);
}

static PyGetSetDef loaded_getset[] = {
    {"output_count", loaded_output_count, NULL, "How many tensors a call gives.", NULL},
    {"inputs", loaded_inputs, NULL,
     "[(name, dtype, sizes, strides)] of what a call takes; symbols with the values that they had when captured.",
     NULL},
    {0}};

static PyMethodDef loaded_methods[] = {
    {"fits", loaded_fits, METH_VARARGS, "Whether a call takes tensors like these: fits(*inputs) -> bool."},
    {"report", loaded_report, METH_NOARGS, "Of a compiled one what Compiled.kernels(sources=True) has for a segment."},
    {0}};

static PyType_Slot loaded_slots[] = {
    {Py_tp_new, loaded_new},
    {Py_tp_dealloc, loaded_dealloc},
    {Py_tp_call, loaded_call},
    {Py_tp_str, loaded_text},
    {Py_tp_getset, loaded_getset},
    {Py_tp_methods, loaded_methods},
    {Py_tp_doc,
     "LoadedGraph(text, constants=(), compiled=False, guards=None, limits=None)\n--\n\nA graph of "
     "the compiler from its text; called "
     "with its input tensors it gives the tuple of its outputs. guards: texts like '2 "
     "< s0', which are asked in front of "
     "each call, as the symbols' ranges are then. limits: (passes, kernels, kernels "
     "with native code), how many of each are run, made and asked for; None: all."},
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
