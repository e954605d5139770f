/* A later call: running a segment's graph, repeating its steps, putting its state into the frames.
 * In: a segment whose guards have held, and its registers. Out: the same state of the world as capturing left.
 * Invariant: a graph that fails has changed nothing. Tests: tests/python/capture/. */
#include "autograd/autograd.h"
#include "dynamo/capture/known.h"
#include "dynamo/capture/numbers.h"
#include "dynamo/cpython/gil.h"
#include "dynamo/session.h"
#include "random/generator.h"

/* ====================================================== graph ==================================================== */

/* A loss whose backward has been run inside still says that it had one. */
static wk_status set_spent_history(wk_tensor *t, const wk__spent *spent, wk_tensor *const *inputs) {
  wk_tensor **reached = wk__alloc((size_t)(spent->count + 1) * sizeof *reached);
  if (!reached) return WK_OUT_OF_MEMORY;
  for (int i = 0; i < spent->count; i++) reached[i] = inputs[spent->inputs[i]];
  wk_node *node = wk__node_spent(spent->name, spent->message, reached, spent->count);
  wk_status status = node ? wk__set_history(t, node, 0) : wk_error_category();
  wk__node_release(node);
  wk__free(reached);
  return status;
}

/* What the graph computes with, and gives; on the stack where it is little. */
enum { FEW = 32 };
typedef struct graph_run {
  wk_tensor *few[FEW], **inputs, **results; /* inputs borrowed but for those of integers; results owned */
  double few_numbers[FEW], *numbers;
  int64_t input_count, output_count, number_count;
  int64_t *symbols; /* of a graph that tells some; NULL */
} graph_run;

static int prepare_run(graph_run *run, const wk__segment *g) {
  *run = (graph_run){.inputs = run->few, .numbers = run->few_numbers};
  run->input_count = g->recording->input_count;
  run->output_count = g->graph->output_count;
  run->number_count = g->recording->number_count;
  size_t tensors = (size_t)(run->input_count + run->output_count), numbers = (size_t)run->number_count;
  if (tensors > FEW) run->inputs = PyMem_Calloc(tensors, sizeof *run->inputs);
  if (numbers > FEW) run->numbers = PyMem_Malloc(numbers * sizeof *run->numbers);
  int64_t symbols = g->recording->counted ? g->recording->symbol_count : 0;
  if (symbols) run->symbols = PyMem_Malloc((size_t)symbols * sizeof *run->symbols);
  if (!run->inputs || !run->numbers || (symbols && !run->symbols)) return -1;
  run->results = run->inputs + run->input_count;
  for (size_t i = 0; i < tensors; i++) run->inputs[i] = NULL;
  return 0;
}

/* The tensor without values by which a graph learns an integer. */
static wk_tensor *tensor_of_int(PyObject *number) {
  wk__spec spec;
  wk_int size = wk_int_of(PyLong_AsLongLong(number));
  wk__spec_contiguous(&spec, WK_UINT8, WK__CPU_DEVICE, 1, &size);
  return wk__tensor_shape_only(&spec);
}

static int fill_run(graph_run *run, const wk__binding *b, const wk__recording *r, PyObject *const *values) {
  for (int64_t i = 0; i < run->input_count; i++) {
    PyObject *o = values[r->inputs[i]];
    run->inputs[i] = PyLong_Check(o) ? tensor_of_int(o) : b->tensor_of(o);
    if (!run->inputs[i]) return -1;
  }
  for (int64_t i = 0; i < run->number_count; i++) run->numbers[i] = PyFloat_AS_DOUBLE(values[r->numbers[i]]);
  return 0;
}

static void finish_run(graph_run *run, const wk__recording *r, PyObject *const *values) {
  for (int64_t i = 0; run->inputs && run->results && i < run->input_count; i++)
    if (PyLong_Check(values[r->inputs[i]])) wk__release(run->inputs[i]);
  if (run->inputs != run->few) PyMem_Free(run->inputs);
  if (run->numbers != run->few_numbers) PyMem_Free(run->numbers);
  PyMem_Free(run->symbols);
}

static wk_int known(const wk__segment *g, wk_int x) {
  return wk_int_is_known(x) ? x : wk_int_of(wk__segment_evaluate(g, x));
}

/* A write into a view has become functional operators; what the program sees is still the write. */
static wk_status name_sliced_history(wk_tensor *t) {
  wk_node *node = wk__grad_fn(t);
  if (!node || node->name || wk__sliced_function(node)) return WK_OK;
  return (node->name = wk__strdup("CopySlices")) ? WK_OK : WK_OUT_OF_MEMORY;
}

static wk_status set_history(const wk__segment *g, const graph_run *run, int64_t output) {
  wk_tensor *t = run->results[output];
  if (WK_UNLIKELY(g->output_is_data[output])) WK_TRY(wk__version_detach(t, 0));
  if (g->spent[output].name) return set_spent_history(t, &g->spent[output], run->inputs);
  return g->sliced[output] ? name_sliced_history(t) : WK_OK;
}

/* The executor's views have no base; those of the program had. */
static wk_tensor *base_of(const wk__segment *g, const graph_run *run, int64_t i) {  // -> new; NULL with the error set
  const wk__output_base *b = &g->bases[i];
  wk_tensor *first = run->results[b->output];
  if (b->is_output) return wk__retain(first);
  if (b->output != i && first->base) return wk__retain(first->base);
  wk__spec spec;
  wk__spec_copy(&spec, &b->spec);
  spec.offset = known(g, spec.offset);
  for (int d = 0; d < spec.ndim; d++) spec.sizes[d] = known(g, spec.sizes[d]);
  for (int d = 0; d < spec.ndim; d++) spec.strides[d] = known(g, spec.strides[d]);
  return wk__tensor_alias(first, &spec);
}

static wk_status set_bases(const wk__segment *g, const graph_run *run) {
  for (int64_t i = 0; i < run->output_count; i++) {
    wk_tensor *t = run->results[i];
    if (!g->bases[i].tensor || t->base || t->storage != run->results[g->bases[i].output]->storage) continue;
    wk_tensor *base = base_of(g, run, i);
    if (!base) return wk_error_category();
    if (base == t)
      wk__release(base);
    else
      t->base = base;
  }
  return WK_OK;
}

static PyObject *wrap(const wk__binding *b, const wk__segment *g, wk__reg reg, wk_tensor *steal_tensor) {  // -> new
  PyTypeObject *type = g->recording->registers[reg].type;
  return type ? b->wrap_as(b->state, type, steal_tensor) : b->wrap(b->state, steal_tensor);
}

/* Results become registers. */
static int take_results(graph_run *run, wk__session *s, const wk__segment *g, PyObject **values) {
  const wk__binding *b = s->binding;
  for (int64_t i = 0; i < run->output_count; i++) {
    bool named = set_history(g, run, i) == WK_OK;
    values[g->outputs[i]] = named ? wrap(b, g, g->outputs[i], run->results[i]) : b->raise(b->state);
    if (!named) wk__release(run->results[i]);
    run->results[i] = NULL;
    if (values[g->outputs[i]]) continue;
    for (i++; i < run->output_count; i++) wk__release(run->results[i]);
    return -1;
  }
  return 0;
}

static int drop_stale_grads(const wk__session *s, const wk__segment *g, PyObject **values) {
  for (int64_t i = 0; i < g->stale_grad_count; i++) {
    wk__stale_grad stale = g->stale_grads[i];
    if (!values[stale.tensor]) continue; /* it is made by this segment */
    Py_CLEAR(values[stale.grad]);
    if (PyObject_SetAttr(values[stale.tensor], s->binding->grad_name, Py_None) < 0) return -1;
  }
  return 0;
}

/* A graph that fails behind what it has drawn is run plainly, with the same random numbers. */
static uint8_t *states_before_draws(const wk__segment *g) {  // -> new, NULL: nothing is to be kept
  size_t bytes = 0, at = 0;
  for (int i = 0; i < g->drawn_count; i++) {
    wk__generator *generator = wk__generator_default_of(g->drawn_on[i]);
    if (generator) bytes += (size_t)wk__generator_state_bytes(generator);
    if (!generator) wk_error_clear(); /* the graph fails in the same way */
    if (!generator) return NULL;
  }
  uint8_t *states = bytes ? PyMem_RawMalloc(bytes) : NULL;
  for (int i = 0; states && i < g->drawn_count; i++) {
    wk__generator *generator = wk__generator_default_of(g->drawn_on[i]);
    wk__generator_get_state(generator, states + at);
    at += (size_t)wk__generator_state_bytes(generator);
  }
  return states;
}

static void draw_again(const wk__segment *g, const uint8_t *states) {
  for (int i = 0; i < g->drawn_count; i++) {
    wk__generator *generator = wk__generator_default_of(g->drawn_on[i]);
    int64_t bytes = wk__generator_state_bytes(generator);
    if (wk__generator_set_state(generator, states, bytes) != WK_OK) wk_error_clear();
    states += bytes;
  }
}

/* Integers that the program computed of sizes: in front of the graph, or behind it where that tells them. */
static int make_integers(const wk__segment *g, PyObject **values, bool counted) {
  for (int64_t i = 0; i < g->integer_count; i++) {
    wk__reg reg = g->integers[i];
    wk_int number = g->recording->registers[reg].number;
    if (wk__is_counted(g->recording, number) != counted) continue;
    int64_t value = wk__segment_evaluate(g, number);
    if (value == INT64_MIN) PyErr_SetString(PyExc_OverflowError, "an integer computed of sizes is too large");
    if (value == INT64_MIN || !(values[reg] = PyLong_FromLongLong(value))) return -1;
  }
  return 0;
}

/* The sizes that values decide, for what is computed of them behind the graph. */
static void take_counted(const wk__segment *g, const int64_t *symbols) {
  const wk__recording *r = g->recording;
  for (int64_t i = 0; i < r->symbol_count; i++)
    if (r->symbols[i].counted) g->symbol_values[i] = symbols[i];
}

static wk_status run_executor(const wk__segment *g, graph_run *run) {
  const wk__recording *r = g->recording;
  if (WK_LIKELY(!r->counted)) return wk__compiled_graph_run(g->executor, run->inputs, run->numbers, run->results);
  return wk__compiled_graph_run_telling(g->executor, run->inputs, run->numbers, run->results, run->symbols);
}

/* Versions of the inputs, where one counts more writes than the graph does. */
static uint32_t *versions_before(const wk__segment *g, const graph_run *run) {
  uint32_t *versions = g->input_writes ? PyMem_RawMalloc((size_t)run->input_count * sizeof *versions) : NULL;
  for (int64_t i = 0; versions && i < run->input_count; i++) versions[i] = wk__version(run->inputs[i]);
  return versions;
}
static void count_writes(const wk__segment *g, const graph_run *run, const uint32_t *versions) {
  for (int64_t i = 0; i < run->input_count; i++)
    for (uint32_t done = wk__version(run->inputs[i]) - versions[i]; done < g->input_writes[i]; done++)
      wk__version_bump(run->inputs[i]);
}

static int run_graph(wk__session *s, const wk__segment *g, PyObject **values) {
  graph_run run;
  if (drop_stale_grads(s, g, values) < 0) return -1;
  int result = prepare_run(&run, g);
  if (result == 0) result = fill_run(&run, s->binding, g->recording, values);
  if (result < 0) PyErr_NoMemory();
  if (result == 0) {
    uint8_t *states = states_before_draws(g);
    uint32_t *versions = versions_before(g, &run);
    if (g->lets_others_run) wk__gil_give();
    wk_status status = run_executor(g, &run);
    if (g->lets_others_run) wk__gil_take_back();
    if (status == WK_OK && versions) count_writes(g, &run, versions);
    PyMem_RawFree(versions);
    if (status == WK_OK && g->has_bases) {
      (void)wk__segment_bind((wk__segment *)g, s->binding, values);
      take_counted(g, run.symbols);
      status = set_bases(g, &run);
      for (int64_t i = 0; status != WK_OK && i < run.output_count; i++) wk__release(run.results[i]);
    }
    if (status != WK_OK) {
      s->binding->raise(s->binding->state);
      if (states) draw_again(g, states);
      result = -1;
    }
    PyMem_RawFree(states);
  }
  if (result == 0) result = take_results(&run, s, g, values);
  if (result == 0 && g->recording->counted) {
    (void)wk__segment_bind((wk__segment *)g, s->binding, values);
    take_counted(g, run.symbols);
    result = make_integers(g, values, true);
  }
  finish_run(&run, g->recording, values);
  return result;
}

/* ---- views of inputs ---- */

static wk_status view_of(const wk__segment *g, const wk__input_view *view, wk_tensor *input, wk_value *out) {
  wk_int sizes[WK_MAX_DIMS], strides[WK_MAX_DIMS];
  uint32_t ndim = view->spec.ndim;
  for (uint32_t d = 0; d < ndim; d++) sizes[d] = known(g, view->spec.sizes[d]);
  for (uint32_t d = 0; d < ndim; d++) strides[d] = known(g, view->spec.strides[d]);
  wk_value args[] = {{.tag = WK_VALUE_TENSOR, .tensor = input},
                     {.tag = WK_VALUE_INTS, .count = ndim, .integers = sizes},
                     {.tag = WK_VALUE_INTS, .count = ndim, .integers = strides},
                     {.tag = WK_VALUE_INT, .integer = wk_int_add(input->offset, known(g, view->spec.offset))}};
  bool before = wk__thread.mode.grad_enabled;
  wk__thread.mode.grad_enabled = view->has_base;
  wk_status status = wk_call(WK__OP(as_strided), args, NULL, out);
  wk__thread.mode.grad_enabled = before;
  return status;
}

static int make_views(wk__session *s, const wk__segment *g, PyObject **values) {
  const wk__binding *b = s->binding;
  for (int64_t i = 0; i < g->view_count; i++) {
    const wk__input_view *view = &g->views[i];
    wk_tensor *input = b->tensor_of(values[g->recording->inputs[view->input]]);
    wk_value made = {0}, detached = {0};
    (void)wk__segment_bind((wk__segment *)g, b, values);
    /* None of these views has a history: of an input that has one the program looked at its detach(). */
    wk_value whole = {.tag = WK_VALUE_TENSOR, .tensor = input};
    bool viewed = !(input->keys & WK__KEY_AUTOGRAD) || wk_call(WK__OP(detach), &whole, NULL, &detached) == WK_OK;
    viewed = viewed && view_of(g, view, detached.tensor ? detached.tensor : input, &made) == WK_OK;
    if (viewed && view->is_data) viewed = wk__version_detach(made.tensor, 0) == WK_OK;
    wk_value_release(&detached);
    values[view->reg] = viewed ? wrap(b, g, view->reg, made.tensor) : b->raise(b->state);
    if (!values[view->reg]) return -1;
  }
  return 0;
}

/* ---- a backend written in Python ---- */

static PyObject *of_register(const wk__recording *r, PyObject *const *values, wk__reg reg) {  // -> new
  return Py_NewRef(values ? values[reg] : r->registers[reg].object);
}

/* The arguments of an input: the sizes of a tensor that are symbols, and the tensor; an integer. */
static Py_ssize_t add_input(const wk__segment *g, const wk__binding *b, PyObject *const *values, wk__reg reg,
                            PyObject **args) {
  const wk__recording *r = g->recording;
  PyObject *input = of_register(r, values, reg);
  Py_ssize_t count = 0;
  bool example = !values, integer = PyLong_Check(input), failed = false;
  for (int64_t k = 0; k < r->symbol_count && !failed; k++) {
    wk__symbol symbol = r->symbols[k];
    if (symbol.reg != reg || (integer && !example)) continue;
    int64_t value = integer ? PyLong_AsLongLong(input) : wk__size(b->tensor_of(input), symbol.dim);
    args[count] =
        example ? b->size_example(value, wk__shape_env_symbol_at(g->graph->env, k).name) : PyLong_FromLongLong(value);
    failed = !args[count];
    count += !failed;
  }
  bool stands_already = integer && count;
  if (stands_already || failed)
    Py_DECREF(input);
  else
    args[count++] = input;
  return failed ? -1 : count;
}

static void drop_arguments(PyObject **args, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; i++) Py_XDECREF(args[i]);
  PyMem_Free(args);
}

Py_ssize_t wk__backend_arguments(const wk__segment *g, const wk__binding *b, PyObject *const *values,
                                 PyObject ***out_args) {
  const wk__recording *r = g->recording;
  Py_ssize_t count = 0, added = 0;
  PyObject **args = PyMem_Calloc((size_t)(r->input_count + r->symbol_count + r->number_count + 1), sizeof *args);
  *out_args = args;
  if (!args) PyErr_NoMemory();
  for (int64_t i = 0; args && i < r->input_count && added >= 0; i++) {
    added = add_input(g, b, values, r->inputs[i], args + count);
    count += added > 0 ? added : 0;
  }
  for (int64_t i = 0; args && i < r->number_count; i++) args[count++] = of_register(r, values, r->numbers[i]);
  if (args && added >= 0) return count;
  if (args) drop_arguments(args, r->input_count + r->symbol_count + r->number_count);
  *out_args = NULL;
  return -1;
}

/* The histories that a backend's function knows nothing of: of results whose backward was run inside. */
static int set_backend_histories(const wk__session *s, const wk__segment *g, PyObject *const *values) {
  const wk__binding *b = s->binding;
  const wk__recording *r = g->recording;
  wk_tensor **inputs = NULL;
  wk_status status = WK_OK;
  for (int64_t i = 0; i < g->graph->output_count && status == WK_OK; i++) {
    PyObject *result = values[g->outputs[i]];
    if (!g->spent[i].name || !PyObject_TypeCheck(result, b->tensor_type)) continue;
    if (!inputs && !(inputs = wk__alloc_zeroed((size_t)(r->input_count + 1) * sizeof *inputs))) {
      status = WK_OUT_OF_MEMORY;
      break;
    }
    for (int64_t k = 0; k < r->input_count; k++) {
      PyObject *input = values[r->inputs[k]];
      inputs[k] = PyObject_TypeCheck(input, b->tensor_type) ? b->tensor_of(input) : NULL;
    }
    status = set_spent_history(b->tensor_of(result), &g->spent[i], inputs);
  }
  wk__free(inputs);
  if (status == WK_OK) return 0;
  b->raise(b->state);
  return -1;
}

static int run_backend(const wk__session *s, const wk__segment *g, PyObject **values) {
  int64_t outputs = g->graph->output_count;
  PyObject **args;
  Py_ssize_t count = wk__backend_arguments(g, s->binding, values, &args);
  if (count < 0) return -1;
  PyObject *made = PyObject_Vectorcall(g->backend_call, args, (size_t)count, NULL);
  drop_arguments(args, count);
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
  return result == 0 ? set_backend_histories(s, g, values) : -1;
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
  PyObject *few[16], **args = few;
  if (d->count > (int)WK_COUNT(few) && !(args = PyMem_Malloc((size_t)d->count * sizeof *args))) return PyErr_NoMemory();
  for (int i = 0; i < d->count; i++) args[i] = values[d->items[i]];
  size_t names = d->object ? (size_t)PyTuple_GET_SIZE(d->object) : 0;
  PyObject *result = PyObject_Vectorcall(args[0], args + 1, (size_t)d->count - 1 - names, d->object);
  if (args != few) PyMem_Free(args);
  return result;
}

/* By the class of C that it derives from: what a __new__ of Python has done is told by the steps behind. */
static PyObject *make_instance(PyTypeObject *type) {  // -> new
  PyTypeObject *base = type;
  while (base->tp_flags & Py_TPFLAGS_HEAPTYPE && !wk__is_class_of_c(base)) base = base->tp_base;
  if (base == &PyBaseObject_Type) return type->tp_alloc(type, 0);
  PyObject *nothing = PyTuple_New(0), *made = nothing ? base->tp_new(type, nothing, NULL) : NULL;
  Py_XDECREF(nothing);
  return made;
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
      return make_instance((PyTypeObject *)first);
    default:
      return do_call(values, d);
  }
}

/* A class's own __setattr__ is evaluated when it is called; what is recorded is what it did. */
static int set_attribute(const wk__session *s, PyObject *owner, PyObject *name, PyObject *value) {
  if (PyType_Check(owner)) return PyType_Type.tp_setattro(owner, name, value);
  bool by_its_code = PyObject_TypeCheck(owner, s->binding->module_type) ||
                     (wk__is_class_of_c(Py_TYPE(owner)) && !PyObject_TypeCheck(owner, s->binding->tensor_type));
  return by_its_code ? PyObject_SetAttr(owner, name, value) : PyObject_GenericSetAttr(owner, name, value);
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
    case WK__DO_WARN:
      return wk__warn_again(s, d->object);
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
  if (g->grad_after >= 0) wk__thread.mode.grad_enabled = g->grad_after;
  if (g->autocast_after >= 0) wk__set_autocast_mode(g->autocast_after);
  return 0;
}

/* ==================================================== to the end ================================================= */

void wk__session_drop_target(wk__session *s) {
  wk__segment *target = s->target;
  PyObject **values = s->values;
  s->target = NULL;
  s->values = NULL;
  if (target) wk__segment_put_values(target, values); /* what dies of it may run Python code */
  wk__segment_release(target);
}

/* What was assumed of sizes that values decide is found out behind half of the work: a segment that is mostly wrong
 * about them is worse than none. */
static void note_miss(const wk__session *s, wk__segment *g) {
  enum { FEW_MISSES = 2, HITS_A_MISS = 4 };
  g->misses++;
  if (!g->recording->counted || g->misses <= FEW_MISSES || g->misses * HITS_A_MISS <= g->hits) return;
  s->compiled->miscounts++;
  if (g->owner) wk__segment_forget(g);
}

int wk__segment_replay(wk__session *s, wk__segment *steal_segment, PyObject **steal_values) {
  wk__segment *g = steal_segment;
  s->target = g;
  s->values = steal_values;
  g->hits++;
  s->compiled->replay_count++;
  int status = 0;
  if (g->backend_call)
    status = make_integers(g, s->values, false) < 0 ? -1 : run_backend(s, g, s->values);
  else if (make_integers(g, s->values, false) < 0 || (g->executor && run_graph(s, g, s->values) < 0)) {
    if (wk__log_on(WK__LOG_BREAKS))
      wk__log_print(WK__LOG_BREAKS, "run plainly, the graph failed: %s", wk_error_message());
    PyErr_Clear(); /* run plainly it fails where it has to */
    note_miss(s, g);
    wk__session_drop_target(s);
    return 1;
  }
  if (status == 0) status = make_views(s, g, s->values);
  if (status == 0) status = run_steps(s, g, s->values);
  if (status < 0) {
    wk__session_drop_target(s);
    return -1;
  }
  s->mode = WK__MODE_UNWIND;
  s->target_depth = g->end == WK__END_RETURN ? -1 : g->common - 1;
  if (g->end == WK__END_RETURN) {
    s->returned = Py_NewRef(s->values[g->value]);
    if (!g->end_count) wk__session_drop_target(s); /* else the root's frame wants them */
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
