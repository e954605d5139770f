/* Tracing Python calls into graphs: an edited Graph becomes a plan, a function becomes a GraphModule.
 * In: a call whose arguments are tensors. Out: its result, computed by the flush, and the IR graph that computes it
 * again. Tensors that the call uses besides its arguments become further inputs: attributes of the GraphModule.
 * Invariant: what cannot be traced is computed all the same; only the graph is missing then.
 * Tests: tests/python/test_fx.py. */
#include "autograd/autograd.h"
#include "python/fx/graph_parts.h"
#include "trace/trace.h"

typedef struct tracing {
  wk__state *state;
  wk__tracer *tracer;
  bool ended; /* something could not be recorded */
  char reason[200];
  wk__graph *graph;   /* after finish: owned */
  wk_tensor **inputs; /* owned, in the graph's order */
  Py_ssize_t input_count;
  wk__graph_node **outputs; /* the graph's outputs to be */
  wk_tensor **output_tensors;
  Py_ssize_t output_count, output_capacity;
  PyObject *const *values; /* the arguments */
  Py_ssize_t argument_count;
  bool replayable; /* results can be given by an executor's outputs */
} tracing;

/* ================================================= begin and end ================================================ */

static wk_status accept_input(void *context, wk_tensor *tensor, const char **out_name, wk_tensor **out_description) {
  (void)context, (void)tensor, (void)out_name, (void)out_description;
  return WK_OK;
}
/* Operators on large tensors run without the interpreter's lock: no frame can be looked at. */
static const wk__source_line *no_source(void *context, wk__graph *graph) {
  (void)context, (void)graph;
  return NULL;
}
static void trace_ended(void *context, const char *reason) {
  tracing *t = context;
  t->ended = true;
  snprintf(t->reason, sizeof t->reason, "%s", reason);
}

/* Arguments become inputs first, in order. */
static int begin(tracing *t) {
  wk__trace_owner owner = {.context = t, .input = accept_input, .source = no_source, .ended = trace_ended};
  t->replayable = true;
  if (!(t->tracer = wk__tracer_create(&owner))) {
    (void)wk__raise(t->state);
    return -1;
  }
  wk__tracer_resume(t->tracer);
  for (Py_ssize_t i = 0; i < t->argument_count; i++) {
    if (wk__tracer_node(t->tracer, wk__tensor_of(t->values[i])) && wk__tracer_input_count(t->tracer) == i + 1) continue;
    if (wk_error_category()) (void)wk__raise(t->state);
    if (!PyErr_Occurred()) t->ended = true; /* the same tensor twice */
    return PyErr_Occurred() ? -1 : 0;
  }
  return 0;
}

static int keep_inputs(tracing *t) {
  int count = wk__tracer_input_count(t->tracer);
  if (!(t->inputs = PyMem_Calloc((size_t)count + 1, sizeof *t->inputs))) {
    PyErr_NoMemory();
    return -1;
  }
  for (; t->input_count < count; t->input_count++)
    t->inputs[t->input_count] = wk__retain(wk__tracer_input(t->tracer, (int)t->input_count));
  return 0;
}

/* A view that was derived again stands beside the tape: it is taped when what it looks at is. */
static void mark_taped(wk__graph *graph) {
  for (wk__graph_node *n = graph->first; n; n = n->next) {
    if (n->kind == WK__GRAPH_ITEM) n->flags |= n->args[0].node->flags & WK__GRAPH_TAPED;
    if (n->kind != WK__GRAPH_CALL) continue;
    bool derived = !n->tape_sequence && n->op->view && n->args[0].node->flags & WK__GRAPH_TAPED;
    if (n->tape_sequence || derived) n->flags |= WK__GRAPH_TAPED;
  }
}

static wk_status complete_graph(tracing *t) {
  for (Py_ssize_t i = 0; i < t->output_count; i++) WK_TRY(wk__graph_output(t->graph, t->outputs[i]));
  WK_TRY(wk__graph_run_pass(t->graph, "remove_dead", wk__graph_remove_dead));
  return wk__graph_freeze(t->graph);
}

/* Everything becomes real. 0, or -1 with the exception of what was computed. */
static int finish(tracing *t, bool taped) {
  if (!t->ended && keep_inputs(t) < 0) t->ended = true;
  wk__tracer_pause(t->tracer);
  if (wk__tracer_flush(t->tracer, &t->graph) != WK_OK) {
    (void)wk__raise(t->state);
    return -1;
  }
  if (t->ended || !t->graph) return 0;
  if (taped) mark_taped(t->graph);
  for (int64_t i = 0; i < t->graph->mutation_count; i++)
    if (t->graph->mutations[i].node->flags & WK__GRAPH_TAPED) t->replayable = false;
  if (complete_graph(t) == WK_OK) return 0;
  t->ended = true;
  snprintf(t->reason, sizeof t->reason, "%s", wk_error_message());
  wk_error_clear();
  return 0;
}

static void release_tracing(tracing *t) {
  if (t->tracer && wk__tracer_current() == t->tracer) wk__tracer_pause(t->tracer);
  wk__tracer_release(t->tracer);
  wk__graph_release(t->graph);
  for (Py_ssize_t i = 0; i < t->input_count; i++) wk__release(t->inputs[i]);
  for (Py_ssize_t i = 0; i < t->output_count; i++) wk__release(t->output_tensors[i]);
  PyMem_Free(t->inputs);
  PyMem_Free(t->outputs);
  PyMem_Free(t->output_tensors);
}

/* ================================================= what comes out =============================================== */

static int add_output(tracing *t, wk_tensor *tensor, wk__graph_node *node) {
  if (t->output_count == t->output_capacity) {
    Py_ssize_t room = 2 * t->output_capacity + 8;
    wk__graph_node **nodes = PyMem_Realloc(t->outputs, (size_t)room * sizeof *nodes);
    if (nodes) t->outputs = nodes;
    wk_tensor **tensors = PyMem_Realloc(t->output_tensors, (size_t)room * sizeof(wk_tensor *));
    if (tensors) t->output_tensors = tensors;
    if (!nodes || !tensors) {
      PyErr_NoMemory();
      return -1;
    }
    t->output_capacity = room;
  }
  t->outputs[t->output_count] = node;
  t->output_tensors[t->output_count++] = wk__retain(tensor);
  return 0;
}

/* An executor's outputs are fresh tensors that share no memory; other results cannot come from one. */
static bool is_fresh(const tracing *t, wk_tensor *tensor) {
  if (wk__tracer_input_under(t->tracer, tensor) >= 0) return false;
  if (wk_requires_grad(tensor) && !wk__grad_fn(tensor)) return false;
  for (Py_ssize_t i = 0; i < t->output_count; i++)
    if (t->output_tensors[i]->storage == tensor->storage) return false;
  return true;
}

static PyObject *mark_leaf(void *context, PyObject *leaf) {  // -> new
  tracing *t = context;
  if (!wk__is_tensor(t->state, leaf) || t->ended) return Py_NewRef(leaf);
  wk_tensor *tensor = wk__tensor_of(leaf);
  for (Py_ssize_t i = 0; i < t->argument_count; i++)
    if (t->values[i] == leaf) return PyCapsule_New((void *)(uintptr_t)(i + 1), "wick.argument", NULL);
  if (!is_fresh(t, tensor)) t->replayable = false;
  wk__graph_node *node = wk__tracer_node(t->tracer, tensor);
  if (!node) return wk__raise(t->state);
  return add_output(t, tensor, node) < 0 ? NULL : wk__fx_output_mark(t->output_count - 1);
}

/* For a function's own graph an argument that is given back is an output as others are. */
static PyObject *mark_output(void *context, PyObject *leaf) {  // -> new
  tracing *t = context;
  if (!wk__is_tensor(t->state, leaf)) return Py_NewRef(leaf);
  wk_tensor *tensor = wk__tensor_of(leaf);
  wk__graph_node *node = wk__tracer_node(t->tracer, tensor);
  if (!node) return wk__raise(t->state);
  return add_output(t, tensor, node) < 0 ? NULL : wk__fx_output_mark(t->output_count - 1);
}

/* ============================================== plans of edited graphs ========================================== */

static PyObject *path_of(PyObject *attributes, const wk_tensor *tensor, const wk__state *state) {  // -> borrowed
  PyObject *path, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(attributes, &at, &path, &value))
    if (wk__fx_is_plain_tensor(state, value) && wk__tensor_of(value) == tensor) return path;
  return NULL;
}

static int describe_input(const tracing *t, wk__fx_plan *plan, Py_ssize_t i, PyObject *attributes) {
  wk__fx_input *input = &plan->inputs[i];
  wk_tensor *tensor = t->inputs[i];
  input->argument = i < t->argument_count ? i : -1;
  PyObject *path = input->argument < 0 ? path_of(attributes, tensor, t->state) : NULL;
  input->path = Py_XNewRef(path);
  if (input->argument < 0 && !path) input->fixed = wk__retain(tensor);
  input->shape = wk__tensor_shape_of(tensor);
  input->requires_grad = wk_requires_grad(tensor);
  if (input->shape) return 0;
  (void)wk__raise(t->state);
  return -1;
}

static wk__fx_plan *plan_of(const tracing *t, wk__fx_graph *graph, PyObject *attributes, PyObject *result) {
  bool works = !t->ended && t->graph && t->replayable && result;
  wk__fx_plan *plan = wk__fx_plan_create(graph, works ? t->input_count : 0);
  if (!plan) return NULL;
  plan->hopeless = !works;
  plan->exact = plan->taped = true;
  plan->grad_enabled = wk__thread.mode.grad_enabled;
  plan->graph = t->graph; /* the executor keeps it */
  plan->result = works ? Py_NewRef(result) : NULL;
  for (Py_ssize_t i = 0; i < plan->input_count; i++)
    if (describe_input(t, plan, i, attributes) < 0) plan->hopeless = true;
  if (!plan->hopeless && wk__graph_executor_create(t->graph, &plan->executor) != WK_OK) plan->hopeless = true;
  wk_error_clear();
  PyErr_Clear();
  return plan;
}

PyObject *wk__fx_run_and_plan(wk__fx_graph *graph, PyObject *module, PyObject *const *values, Py_ssize_t count,
                              wk__fx_plan **out_plan) {  // -> new
  tracing t = {.state = graph->state, .values = values, .argument_count = count};
  PyObject *attributes = PyDict_New(), *marked = NULL, *result = NULL;
  *out_plan = NULL;
  int status = attributes ? begin(&t) : -1;
  if (status == 0 && t.ended) wk__tracer_pause(t.tracer);
  if (status == 0) result = wk__fx_run_nodes(graph, module, values, attributes);
  if (result && !t.ended) marked = wk__fx_map(graph->state, result, false, mark_leaf, &t);
  if (result && !t.ended && !marked) {
    PyErr_Clear(); /* known only as memory: computed, not planned */
    t.replayable = false;
  }
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (t.tracer && finish(&t, true) < 0) {
    Py_CLEAR(result);
  } else {
    PyErr_Restore(type, value, traceback);
    type = value = traceback = NULL;
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  if (result) *out_plan = plan_of(&t, graph, attributes, marked);
  release_tracing(&t);
  Py_XDECREF(attributes);
  Py_XDECREF(marked);
  return result;
}

/* ================================================ graphs of functions =========================================== */

static PyObject *attribute_name(const tracing *t, PyObject *tensor, Py_ssize_t number) {  // -> new
  bool parameter = t->state->parameter_type && PyObject_TypeCheck(tensor, t->state->parameter_type);
  return PyUnicode_FromFormat(parameter ? "_param_constant%zd" : "_tensor_constant%zd", number);
}

/* Names of all inputs; those behind the arguments go into `attributes`. */
static PyObject *name_inputs(const tracing *t, PyObject *argument_names, PyObject *attributes,
                             Py_ssize_t number) {  // -> new
  PyObject *names = PySequence_List(argument_names);
  for (Py_ssize_t i = t->argument_count; names && i < t->input_count; i++) {
    PyObject *tensor = wk__wrap(t->state, wk__retain(t->inputs[i]));
    PyObject *name = tensor ? attribute_name(t, tensor, number++) : NULL;
    if (!name || PyDict_SetItem(attributes, name, tensor) < 0 || PyList_Append(names, name) < 0) Py_CLEAR(names);
    Py_XDECREF(tensor);
    Py_XDECREF(name);
  }
  return names;
}

static PyObject *module_of(const tracing *t, PyObject *names, PyObject *structure, PyObject *class_name) {  // -> new
  if (t->ended)
    return PyErr_Format(PyExc_RuntimeError, "the function cannot be traced: %s", t->reason[0] ? t->reason : "?");
  PyObject *attributes = PyDict_New();
  PyObject *input_names = attributes ? name_inputs(t, names, attributes, t->graph->constant_count) : NULL;
  wk__fx_graph *graph = input_names ? wk__fx_graph_over(t->state, t->graph, t->argument_count, input_names) : NULL;
  if (graph) graph->structure = Py_NewRef(structure);
  PyObject *module = graph ? wk__fx_module_over(graph, attributes, class_name) : NULL;
  Py_XDECREF(graph);
  Py_XDECREF(attributes);
  return module;
}

static PyObject *trace(tracing *t, PyObject *function, PyObject *names, PyObject *class_name) {  // -> new
  PyObject *result = NULL, *marked = NULL, *module = NULL;
  if (begin(t) == 0) {
    if (t->ended) return PyErr_Format(PyExc_ValueError, "the same tensor is given twice");
    result = PyObject_Vectorcall(function, t->values, (size_t)t->argument_count, NULL);
  }
  if (result && !t->ended) marked = wk__fx_map(t->state, result, false, mark_output, t);
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  bool computed = t->tracer && finish(t, false) == 0;
  if (computed && !type) module = module_of(t, names, marked ? marked : Py_None, class_name);
  if (type) PyErr_Restore(type, value, traceback);
  Py_XDECREF(result);
  Py_XDECREF(marked);
  return module;
}

/* "arg0_1", "arg1_1", ... */
static PyObject *numbered_names(Py_ssize_t count) {  // -> new
  PyObject *list = PyList_New(0);
  for (Py_ssize_t i = 0; list && i < count; i++) {
    PyObject *name = PyUnicode_FromFormat("arg%zd_1", i);
    if (!name || PyList_Append(list, name) < 0) Py_CLEAR(list);
    Py_XDECREF(name);
  }
  return list;
}

/* _trace_graph(function, *tensors, names=None, class_name=None) */
static PyObject *trace_graph(PyObject *module, PyObject *args, PyObject *keywords) {  // -> new
  static char *keyword_names[] = {"names", "class_name", NULL};
  wk__state *state = wk__state_of_module(module);
  PyObject *names = Py_None, *class_name = Py_None, *none = PyTuple_New(0);
  Py_ssize_t count = PyTuple_GET_SIZE(args) - 1;
  bool parsed =
      none && PyArg_ParseTupleAndKeywords(none, keywords, "|$OO:_trace_graph", keyword_names, &names, &class_name);
  Py_XDECREF(none);
  if (!parsed) return NULL;
  if (count < 0 || !PyCallable_Check(PyTuple_GET_ITEM(args, 0)))
    return PyErr_Format(PyExc_TypeError, "_trace_graph(function, *tensors) traces a function");
  for (Py_ssize_t i = 1; i <= count; i++)
    if (!wk__is_tensor(state, PyTuple_GET_ITEM(args, i)))
      return PyErr_Format(PyExc_TypeError, "a function is traced with tensors, not with %R",
                          (PyObject *)Py_TYPE(PyTuple_GET_ITEM(args, i)));
  if (wk__tracer_current()) return PyErr_Format(PyExc_RuntimeError, "the caller is being traced itself");
  tracing t = {.state = state, .values = &PyTuple_GET_ITEM(args, 1), .argument_count = count};
  PyObject *own_names = names == Py_None ? numbered_names(count) : PySequence_List(names), *result = NULL;
  if (own_names && PyList_GET_SIZE(own_names) != count)
    PyErr_SetString(PyExc_ValueError, "a name is needed for each tensor");
  else if (own_names)
    result = trace(&t, PyTuple_GET_ITEM(args, 0), own_names, class_name);
  release_tracing(&t);
  Py_XDECREF(own_names);
  return result;
}

static PyMethodDef functions[] = {
    {"_trace_graph", (PyCFunction)(void (*)(void))trace_graph, METH_VARARGS | METH_KEYWORDS,
     "_trace_graph(function, *tensors): a GraphModule of what the call computes"},
    {0}};

int wk__add_graph_tracing(PyObject *module) { return PyModule_AddFunctions(module, functions); }
