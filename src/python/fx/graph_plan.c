/* Running a Graph on the executor of the IR.
 * In: a plan, made of the graph's source or by tracing (graph_trace.c), and the values of the arguments. Out: what
 * forward gives; or "does not fit", and then the nodes are run one by one, which is always right. A plan fits tensors
 * with the dtypes and sizes that it was made for, and as long as nothing would have to be on the tape that it does not
 * put there. Tests: tests/python/test_fx.py. */
#include "autograd/autograd.h"
#include "python/fx/graph_parts.h"

/* ===================================================== life ===================================================== */

wk__fx_plan *wk__fx_plan_create(wk__fx_graph *graph, Py_ssize_t input_count) {
  wk__fx_plan *plan = PyMem_Calloc(1, sizeof *plan);
  if (!plan || !(plan->inputs = PyMem_Calloc((size_t)input_count + 1, sizeof *plan->inputs))) {
    PyMem_Free(plan);
    PyErr_NoMemory();
    return NULL;
  }
  plan->references = 1;
  plan->version = graph->version;
  plan->input_count = input_count;
  return plan;
}

void wk__fx_plan_release(wk__fx_plan *plan) {
  if (!plan || --plan->references) return;
  for (Py_ssize_t i = 0; i < plan->input_count; i++) {
    Py_XDECREF(plan->inputs[i].path);
    wk__release(plan->inputs[i].fixed);
    wk__release(plan->inputs[i].shape);
  }
  wk__graph_executor_release(plan->executor);
  Py_XDECREF(plan->result);
  PyMem_Free(plan->inputs);
  PyMem_Free(plan);
}

int wk__fx_plan_traverse(wk__fx_plan *plan, visitproc visit, void *arg) {
  if (plan) Py_VISIT(plan->result);
  return 0;
}

/* An input without a tensor among the arguments is an integer: its size is what counts. */
static void place_arguments(const wk__fx_graph *graph, wk__fx_plan *plan) {
  for (int tensors = 0; tensors < 2; tensors++)
    for (Py_ssize_t i = 0; i < graph->argument_count - graph->number_count; i++) {
      wk__fx_argument a = graph->arguments[i];
      if ((a.dim < 0) != tensors) continue;
      plan->inputs[a.input].argument = i;
      plan->inputs[a.input].is_integer = !tensors;
    }
}

wk__fx_plan *wk__fx_plan_of_source(wk__fx_graph *graph) {
  const wk__graph *source = graph->source;
  wk__fx_plan *plan = wk__fx_plan_create(graph, source->input_count);
  if (!plan) return NULL;
  plan->graph = source;
  plan->taped = graph->captured;
  plan->result = Py_XNewRef(graph->structure);
  for (Py_ssize_t i = 0; i < plan->input_count; i++) {
    bool argument = graph->arguments || i < graph->argument_count - graph->number_count;
    plan->inputs[i].argument = argument ? i : -1;
    plan->inputs[i].path = argument ? NULL : Py_NewRef(PyList_GET_ITEM(graph->input_names, i));
    plan->inputs[i].shape = wk__retain(source->inputs[i]->value);
  }
  if (graph->arguments) place_arguments(graph, plan);
  if (wk__graph_executor_create(graph->source, &plan->executor) == WK_OK) return plan;
  plan->hopeless = true; /* numbers that no input's size gives: the nodes cannot be run either, and will say so */
  wk_error_clear();
  return plan;
}

/* =================================================== does it fit ================================================= */

bool wk__fx_is_plain_tensor(const wk__state *state, PyObject *o) {
  return Py_IS_TYPE(o, state->tensor_type) || (state->parameter_type && Py_IS_TYPE(o, state->parameter_type));
}

static bool fits_known(wk_int expected, wk_int given) {
  return !wk_int_is_known(expected) || wk_int_same(expected, given);
}

static bool looks_like(const wk_tensor *t, const wk_tensor *shape, bool strides_too) {
  if (t->dtype != shape->dtype || t->ndim != shape->ndim || !wk__device_equal(t->device, shape->device)) return false;
  for (int d = 0; d < t->ndim; d++) {
    if (!fits_known(shape->sizes[d], t->sizes[d])) return false;
    if (strides_too && !fits_known(shape->strides[d], t->strides[d])) return false;
  }
  return true;
}

static bool fits_tape(const wk__fx_plan *plan, const wk_tensor *t, bool requires_grad) {
  if (plan->taped && !plan->exact) return true;
  if (plan->exact) return wk_requires_grad(t) == requires_grad;
  return !wk__thread.mode.grad_enabled || !wk_requires_grad(t);
}

/* Says yes when unsure. */
static bool share_memory(wk_tensor *const *tensors, Py_ssize_t count) {
  wk__map storages = {0};
  bool shared = false;
  for (Py_ssize_t i = 0; i < count && !shared; i++) {
    uint64_t key = (uint64_t)(uintptr_t)tensors[i]->storage;
    if (!key) continue;
    shared = wk__map_get(&storages, key) || wk__map_set(&storages, key, tensors[i]) != WK_OK;
  }
  wk__map_release(&storages);
  wk_error_clear();
  return shared;
}

/* The attributes are the tensors that the graph has as constants. */
static int constants_fit(const wk__fx_graph *graph, const wk__fx_plan *plan, PyObject *module) {
  if (plan->graph != graph->source) return 1;
  bool fit = true;
  for (const wk__graph_node *n = plan->graph->first; fit && n; n = n->next) {
    if (n->kind != WK__GRAPH_CONSTANT) continue;
    PyObject *value = wk__fx_attribute(module, PyList_GET_ITEM(graph->constant_names, n->index));
    if (!value) return -1;
    fit = wk__fx_is_plain_tensor(graph->state, value) && wk__tensor_of(value) == n->constant &&
          fits_tape(plan, n->constant, false);
    Py_DECREF(value);
  }
  return fit;
}

/* The tensor without values by which the graph learns an integer. */
static PyObject *tensor_of_integer(wk__state *state, PyObject *value) {  // -> new; NULL: it is no integer
  wk__spec spec;
  int64_t n = PyLong_Check(value) ? PyLong_AsLongLong(value) : -1;
  wk_int size = wk_int_of(n);
  PyErr_Clear();
  if (n < 0) return NULL;
  wk__spec_contiguous(&spec, WK_UINT8, WK__CPU_DEVICE, 1, &size);
  wk_tensor *t = wk__tensor_shape_only(&spec);
  return t ? wk__wrap(state, t) : wk__raise(state);
}

/* The tensor of one input; `keep` gets the object that has to live as long as it is used. NULL: does not fit, or an
 * exception. */
static wk_tensor *input_tensor(const wk__fx_graph *graph, const wk__fx_plan *plan, const wk__fx_input *input,
                               PyObject *module, PyObject *const *values, PyObject **keep) {
  wk_tensor *t = input->fixed;
  if (input->is_integer) {
    *keep = tensor_of_integer(graph->state, values[input->argument]);
    return *keep ? wk__tensor_of(*keep) : NULL;
  }
  if (!t) {
    *keep = input->path ? wk__fx_attribute(module, input->path) : Py_NewRef(values[input->argument]);
    if (!*keep || !wk__fx_is_plain_tensor(graph->state, *keep)) return NULL;
    t = wk__tensor_of(*keep);
  }
  return looks_like(t, input->shape, plan->exact) && fits_tape(plan, t, input->requires_grad) ? t : NULL;
}

/* ====================================================== running ================================================== */

typedef struct results {
  wk__state *state;
  PyObject **outputs; /* owned */
  PyObject *const *values;
} results;

static PyObject *result_leaf(void *context, PyObject *leaf) {  // -> new
  const results *r = context;
  Py_ssize_t index = wk__fx_output_of_mark(leaf);
  if (index >= 0) return Py_NewRef(r->outputs[index]);
  if (!PyCapsule_IsValid(leaf, "wick.argument")) return Py_NewRef(leaf);
  return Py_NewRef(r->values[(Py_ssize_t)(uintptr_t)PyCapsule_GetPointer(leaf, "wick.argument") - 1]);
}

static PyObject *build_result(const wk__fx_plan *plan, results *r, Py_ssize_t count) {  // -> new
  if (plan->result) return wk__fx_map(r->state, plan->result, false, result_leaf, r);
  PyObject *tuple = PyTuple_New(count);
  for (Py_ssize_t i = 0; tuple && i < count; i++) PyTuple_SET_ITEM(tuple, i, Py_NewRef(r->outputs[i]));
  return tuple;
}

/* Takes the tensors. */
static PyObject *wrap_results(wk__fx_graph *graph, const wk__fx_plan *plan, wk_tensor **made, Py_ssize_t count,
                              PyObject *const *values) {  // -> new
  results r = {graph->state, PyMem_Calloc((size_t)count + 1, sizeof *r.outputs), values};
  bool whole = r.outputs;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *o = whole ? wk__wrap(graph->state, made[i]) : (wk__release(made[i]), NULL);
    if (whole) r.outputs[i] = o;
    whole = whole && o;
  }
  PyObject *result = whole ? build_result(plan, &r, count) : PyErr_Occurred() ? NULL : PyErr_NoMemory();
  for (Py_ssize_t i = 0; r.outputs && i < count; i++) Py_XDECREF(r.outputs[i]);
  PyMem_Free(r.outputs);
  return result;
}

static PyObject *execute(wk__fx_graph *graph, const wk__fx_plan *plan, wk_tensor *const *inputs, const double *numbers,
                         PyObject *const *values) {  // -> new
  Py_ssize_t count = plan->graph->output_count;
  wk_tensor **made = PyMem_Calloc((size_t)count + 1, sizeof *made);
  if (!made) return PyErr_NoMemory();
  PyObject *result = NULL;
  if (wk__graph_execute(plan->executor, inputs, numbers, made) == WK_OK)
    result = wrap_results(graph, plan, made, count, values);
  else
    (void)wk__raise(graph->state);
  PyMem_Free(made);
  return result;
}

/* 1: all fit. */
static int collect(wk__fx_graph *graph, const wk__fx_plan *plan, PyObject *module, PyObject *const *values,
                   wk_tensor **inputs, PyObject **keep) {
  for (Py_ssize_t i = 0; i < plan->input_count; i++)
    if (!(inputs[i] = input_tensor(graph, plan, &plan->inputs[i], module, values, &keep[i])))
      return PyErr_Occurred() ? -1 : 0;
  if (plan->graph->mutation_count && share_memory(inputs, plan->input_count)) return 0;
  return constants_fit(graph, plan, module);
}

/* The source's numbers stand behind the tensors. */
static bool collect_numbers(const wk__fx_graph *graph, const wk__fx_plan *plan, PyObject *const *values, double *out) {
  if (plan->graph != graph->source) return true;
  for (Py_ssize_t i = 0; i < graph->number_count; i++) {
    PyObject *number = values[graph->argument_count - graph->number_count + i];
    if (!PyFloat_Check(number)) return false;
    out[i] = PyFloat_AS_DOUBLE(number);
  }
  return true;
}

int wk__fx_plan_run(wk__fx_graph *graph, wk__fx_plan *plan, PyObject *module, PyObject *const *values,
                    PyObject **out_result) {
  *out_result = NULL;
  if (plan->exact && wk__thread.mode.grad_enabled != plan->grad_enabled) return 0;
  size_t room = 2 * (size_t)plan->input_count + (size_t)graph->number_count;
  wk_tensor **inputs = PyMem_Calloc(room + 1, sizeof *inputs); /* tensors, what keeps them, numbers */
  if (!inputs) {
    PyErr_NoMemory();
    return -1;
  }
  PyObject **keep = (PyObject **)(inputs + plan->input_count);
  double *numbers = (double *)(keep + plan->input_count);
  int status = collect(graph, plan, module, values, inputs, keep);
  if (status == 1 && !collect_numbers(graph, plan, values, numbers)) status = 0;
  if (status == 1 && !(*out_result = execute(graph, plan, inputs, numbers, values))) status = -1;
  for (Py_ssize_t i = 0; i < plan->input_count; i++) Py_XDECREF(keep[i]);
  PyMem_Free(inputs);
  return status;
}
