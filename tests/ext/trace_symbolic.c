/* A Python call traced with symbolic sizes.
 * In: a function and tensors. Out: the graph as text, the guards, and what the graph computes of the same tensors.
 * Every size above 1 becomes a symbol of its own, strides follow from the sizes where they can. For
 * tests/ops/test_symbolic.py, test_compile.py and test_decompositions.py. */
#include "compile/compile.h"
#include "ext.h"
#include "python/fx/graph_parts.h"
#include "trace/trace.h"

typedef struct symbolic_trace {
  wk__state *state;
  wk__tracer *tracer;
  bool ended;
  char reason[200];
  PyObject *nodes; /* list of capsules: the results' nodes */
} symbolic_trace;

/* ================================================== descriptions ================================================= */

/* A dim whose reach is this dim's stride, among those that have their expression already. */
static wk_int stride_expression(const wk_tensor *t, const wk__spec *spec, const bool *done, int d) {
  if (t->strides[d].bits <= 1) return t->strides[d];
  for (int k = t->ndim - 1; k >= 0; k--)
    if (done[k] && t->strides[k].bits * t->sizes[k].bits == t->strides[d].bits && !wk_int_is_known(spec->sizes[k]))
      return wk_int_mul(spec->strides[k], spec->sizes[k]);
  return t->strides[d];
}

static int next_by_stride(const wk_tensor *t, const bool *done) {
  int next = -1;
  for (int d = t->ndim - 1; d >= 0; d--)
    if (!done[d] && (next < 0 || t->strides[d].bits < t->strides[next].bits)) next = d;
  return next;
}

static wk_tensor *describe(wk__shape_env *env, const wk_tensor *t) {
  enum { LARGEST = 1 << 30 };
  wk__spec spec;
  bool done[WK_MAX_DIMS] = {false};
  wk__spec_of(&spec, t);
  for (int d = 0; d < t->ndim; d++)
    if (t->sizes[d].bits > 1) spec.sizes[d] = wk__shape_env_symbol(env, NULL, t->sizes[d].bits, 2, LARGEST);
  if (wk__is_contiguous(t)) {
    wk__contiguous_strides(spec.strides, spec.sizes, t->ndim);
    for (int d = 0; d < t->ndim; d++) /* of size 1 they may be anything */
      if (!wk_int_same(wk__symbolic_value(spec.strides[d]), t->strides[d])) spec.strides[d] = t->strides[d];
  } else {
    for (int k = 0; k < t->ndim; k++) {
      int d = next_by_stride(t, done);
      spec.strides[d] = stride_expression(t, &spec, done, d);
      done[d] = true;
    }
  }
  return wk__tensor_shape_only(&spec);
}

/* ==================================================== the owner ================================================== */

static wk_status describe_input(void *context, wk_tensor *tensor, const char **out_name, wk_tensor **out_description) {
  symbolic_trace *s = context;
  (void)out_name;
  if (!tensor->storage) return WK_OK;
  wk__shape_env *env = wk__tracer_env(s->tracer);
  *out_description = env ? describe(env, tensor) : NULL;
  return *out_description ? WK_OK : wk_error_category();
}
static void trace_ended(void *context, const char *reason) {
  symbolic_trace *s = context;
  s->ended = true;
  snprintf(s->reason, sizeof s->reason, "%s", reason);
}

/* ===================================================== results =================================================== */

static int add_nodes(symbolic_trace *s, PyObject *result) {
  if (wk__is_tensor(s->state, result)) {
    wk__graph_node *node = wk__tracer_node(s->tracer, wk__tensor_of(result));
    PyObject *capsule = node ? PyCapsule_New(node, NULL, NULL) : wk__raise(s->state);
    int status = capsule ? PyList_Append(s->nodes, capsule) : -1;
    Py_XDECREF(capsule);
    return status;
  }
  if (!PyTuple_Check(result) && !PyList_Check(result)) return 0;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(result); i++)
    if (add_nodes(s, PySequence_Fast_GET_ITEM(result, i)) < 0) return -1;
  return 0;
}

static wk_status set_outputs(const symbolic_trace *s, wk__graph *graph) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(s->nodes); i++)
    WK_TRY(wk__graph_output(graph, PyCapsule_GetPointer(PyList_GET_ITEM(s->nodes, i), NULL)));
  WK_TRY(wk__graph_run_pass(graph, "remove_dead", wk__graph_remove_dead));
  WK_TRY(wk__graph_verify(graph));
  return wk__graph_check_shapes(graph);
}

/* The graph's text, once it has been seen to parse and to print the same again. */
static wk_status checked_text(const wk__graph *graph, wk__string *out) {
  wk__string again = {0};
  wk__graph *parsed = NULL;
  WK_TRY(wk__graph_print(out, graph, false));
  wk_status status = wk__graph_parse(out->text, NULL, 0, &parsed);
  if (status == WK_OK) status = wk__graph_print(&again, parsed, false);
  if (status == WK_OK && strcmp(out->text, again.text) != 0)
    status = wk_fail(WK_INTERNAL_ERROR, "the graph's text changes when it is parsed and printed");
  wk__graph_release(parsed);
  wk__string_release(&again);
  return status;
}

static PyObject *guards_of(const wk__graph *graph) {  // -> new
  int64_t count = graph->env ? wk__shape_env_guard_count(graph->env) : 0;
  PyObject *list = PyList_New(0);
  for (int64_t i = 0; list && i < count; i++) {
    wk__string text = {0};
    wk__sym_guard_print(&text, wk__shape_env_guard(graph->env, i));
    PyObject *guard = PyUnicode_FromString(text.text ? text.text : "?");
    if (!guard || PyList_Append(list, guard) < 0) Py_CLEAR(list);
    Py_XDECREF(guard);
    wk__string_release(&text);
  }
  return list;
}

static PyObject *list_of(wk__state *state, wk_tensor **steal_tensors, int64_t count) {  // -> new
  PyObject *list = PyList_New(0);
  for (int64_t i = 0; i < count; i++) {
    PyObject *item = list ? wk__wrap(state, steal_tensors[i]) : NULL;
    if (!list) wk__release(steal_tensors[i]);
    if (list && (!item || PyList_Append(list, item) < 0)) Py_CLEAR(list);
    Py_XDECREF(item);
  }
  return list;
}

/* What the graph computes of these tensors. */
static PyObject *run(wk__state *state, wk__graph *graph, wk_tensor *const *inputs) {  // -> new
  wk__graph_executor *executor = NULL;
  wk_tensor **outputs = PyMem_Calloc((size_t)graph->output_count + 1, sizeof *outputs);
  if (!outputs) return PyErr_NoMemory();
  wk_status status = wk__graph_executor_create(graph, &executor);
  if (status == WK_OK) status = wk__graph_execute(executor, inputs, NULL, outputs);
  PyObject *list = status == WK_OK ? list_of(state, outputs, graph->output_count) : wk__raise(state);
  wk__graph_executor_release(executor);
  PyMem_Free(outputs);
  return list;
}

static void release_graph(PyObject *capsule) { wk__graph_release(PyCapsule_GetPointer(capsule, "wick.graph")); }

static PyObject *outcome(const symbolic_trace *s, wk__graph *graph, wk_tensor *const *inputs) {  // -> new
  if (s->ended || !graph) return Py_BuildValue("OOOsO", Py_None, Py_None, Py_None, s->reason, Py_None);
  wk__string text = {0};
  wk_status status = set_outputs(s, graph);
  if (status == WK_OK) status = checked_text(graph, &text);
  PyObject *results = status == WK_OK ? run(s->state, graph, inputs) : wk__raise(s->state);
  PyObject *guards = results ? guards_of(graph) : NULL;
  PyObject *kept = guards ? PyCapsule_New(wk__graph_retain(graph), "wick.graph", release_graph) : NULL;
  PyObject *all = kept ? Py_BuildValue("sOOOO", text.text, guards, results, Py_None, kept) : NULL;
  Py_XDECREF(kept);
  Py_XDECREF(guards);
  Py_XDECREF(results);
  wk__string_release(&text);
  return all;
}

/* ===================================================== the call ================================================== */

static PyObject *call(symbolic_trace *s, PyObject *const *args, Py_ssize_t count) {  // -> new
  for (Py_ssize_t i = 1; i < count; i++)
    if (!wk__tracer_node(s->tracer, wk__tensor_of(args[i]))) return wk__raise(s->state);
  return PyObject_Vectorcall(args[0], args + 1, (size_t)(count - 1), NULL);
}

static wk_tensor **inputs_of(const wk__tracer *tracer, int count) {  // -> owned
  wk_tensor **inputs = PyMem_Calloc((size_t)count + 1, sizeof *inputs);
  for (int i = 0; inputs && i < count; i++) inputs[i] = wk__retain(wk__tracer_input(tracer, i));
  if (!inputs) PyErr_NoMemory();
  return inputs;
}

static PyObject *trace(symbolic_trace *s, PyObject *const *args, Py_ssize_t count) {  // -> new
  wk__tracer_resume(s->tracer);
  PyObject *result = call(s, args, count), *all = NULL;
  int status = result && !s->ended ? add_nodes(s, result) : 0;
  if (wk__tracer_current() == s->tracer) wk__tracer_pause(s->tracer);
  int input_count = wk__tracer_input_count(s->tracer);
  wk_tensor **inputs = inputs_of(s->tracer, input_count);
  wk__graph *graph = NULL;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  wk_status flushed = wk__tracer_flush(s->tracer, &graph);
  if (!type && flushed != WK_OK) (void)wk__raise(s->state);
  if (type) PyErr_Restore(type, value, traceback);
  if (flushed == WK_OK && result && status == 0 && inputs) all = outcome(s, graph, inputs);
  for (int i = 0; inputs && i < input_count; i++) wk__release(inputs[i]);
  PyMem_Free(inputs);
  Py_XDECREF(result);
  wk__graph_release(graph);
  return all;
}

static PyObject *trace_symbolic(PyObject *module, PyObject *const *args, Py_ssize_t count) {  // -> new
  symbolic_trace s = {.state = wk__state_of_module(module)};
  for (Py_ssize_t i = 1; i < count; i++)
    if (!wk__is_tensor(s.state, args[i])) return PyErr_Format(PyExc_TypeError, "a function is traced with tensors");
  if (!count || wk__tracer_current()) return PyErr_Format(PyExc_RuntimeError, "there is nothing to trace here");
  wk__trace_owner owner = {.context = &s, .input = describe_input, .ended = trace_ended};
  if (!(s.tracer = wk__tracer_create(&owner))) return wk__raise(s.state);
  PyObject *all = (s.nodes = PyList_New(0)) ? trace(&s, args, count) : NULL;
  wk__tracer_release(s.tracer);
  Py_XDECREF(s.nodes);
  return all;
}

static void release_compiled(PyObject *capsule) {
  wk__compiled_graph_release(PyCapsule_GetPointer(capsule, "wick.compiled_graph"));
}

/* _compile_symbolic(graph, native): compiled once, for _run_symbolic to run at many sizes. native: waits for
 * native code. */
static PyObject *compile_symbolic(PyObject *module, PyObject *const *args, Py_ssize_t count) {  // -> new
  wk__compiled_graph *compiled = NULL;
  wk__graph *graph = count == 2 ? PyCapsule_GetPointer(args[0], "wick.graph") : NULL;
  if (!graph) return PyErr_Format(PyExc_TypeError, "a graph, and whether to wait for native code");
  if (!graph->frozen && wk__graph_freeze(graph) != WK_OK) return wk__raise(wk__state_of_module(module));
  if (wk__compile_graph(graph, NULL, WK__COMPILE_LATER, &compiled) != WK_OK)
    return wk__raise(wk__state_of_module(module));
  if (args[1] == Py_True && wk__compiled_graph_kernel_count(compiled) && !wk__compiled_graph_wait(compiled)) {
    wk__compiled_graph_release(compiled);
    return PyErr_Format(PyExc_RuntimeError, "there is no native code");
  }
  return PyCapsule_New(compiled, "wick.compiled_graph", release_compiled);
}

static PyObject *run_compiled(wk__state *state, const wk__compiled_graph *compiled,
                              wk_tensor *const *inputs) {  // -> new
  int64_t count = wk__compiled_graph_final(compiled)->output_count;
  wk_tensor **outputs = PyMem_Calloc((size_t)count + 1, sizeof *outputs);
  if (!outputs) return PyErr_NoMemory();
  wk_status status = wk__compiled_graph_run(compiled, inputs, NULL, outputs);
  PyObject *list = status == WK_OK ? list_of(state, outputs, count) : wk__raise(state);
  PyMem_Free(outputs);
  return list;
}

/* _run_symbolic(graph, *tensors): the graph that a trace gave, or what was compiled of it, for tensors of other sizes.
 */
static PyObject *run_symbolic(PyObject *module, PyObject *const *args, Py_ssize_t count) {  // -> new
  wk__state *state = wk__state_of_module(module);
  bool is_compiled = count && PyCapsule_IsValid(args[0], "wick.compiled_graph");
  wk__compiled_graph *compiled = is_compiled ? PyCapsule_GetPointer(args[0], "wick.compiled_graph") : NULL;
  wk__graph *graph = compiled ? wk__compiled_graph_final(compiled) : NULL;
  if (count && !compiled) graph = PyCapsule_GetPointer(args[0], "wick.graph");
  if (!graph || graph->input_count != count - 1) return PyErr_Format(PyExc_TypeError, "a graph and its inputs");
  wk_tensor **inputs = PyMem_Calloc((size_t)count, sizeof *inputs);
  if (!inputs) return PyErr_NoMemory();
  bool tensors = true;
  for (Py_ssize_t i = 1; i < count && tensors; i++)
    if ((tensors = wk__is_tensor(state, args[i]))) inputs[i - 1] = wk__tensor_of(args[i]);
  PyObject *results = NULL;
  if (!tensors)
    PyErr_SetString(PyExc_TypeError, "inputs are tensors");
  else
    results = compiled ? run_compiled(state, compiled, inputs) : run(state, graph, inputs);
  PyMem_Free(inputs);
  return results;
}

static PyMethodDef functions[] = {
    {"_trace_symbolic", (PyCFunction)(void (*)(void))trace_symbolic, METH_FASTCALL,
     "_trace_symbolic(function, *tensors): (text, guards, the graph's results, why it ended early, graph)"},
    {"_compile_symbolic", (PyCFunction)(void (*)(void))compile_symbolic, METH_FASTCALL,
     "_compile_symbolic(graph, native): the traced graph compiled, for _run_symbolic"},
    {"_run_symbolic", (PyCFunction)(void (*)(void))run_symbolic, METH_FASTCALL,
     "_run_symbolic(graph, *tensors): what the traced or compiled graph gives for tensors of other sizes"},
    {0}};

int wk__add_symbolic_tracing(PyObject *module) { return PyModule_AddFunctions(module, functions); }
