/* Operators that programs define (torch.library), as nodes of graphs: made at run time, and their code is Python.
 *
 * In: a definition of wick/library.py, its name and its schema. Out: a callable that is called while something is
 * traced, so that the graph has one node for it; what it does is the definition's `_run`, on real tensors when the
 * graph runs, and on tensors of device meta when its results' shapes are asked for. Sizes with symbols are settled
 * before that: a function for tensors without memory may do anything with them. Such an operator has no derivative: the
 * autograd.Function around it has (wick/library.py).
 *
 * Ownership: an operator lives as long as the process, since any graph may call it. Tests:
 * tests/python/test_library.py. */
#include "dynamo/cpython/gil.h"
#include "dynamo/dynamo.h"
#include "ops/internal.h"
#include "python/fx/graph_parts.h"

typedef struct custom_op {
  wk_op op; /* first: a call gives it back */
  wk__state *state;
  PyObject *definition; /* owned */
  char name[128], schema_text[1024];
  wk__parameter parameters[WK__MAX_ARGS];
} custom_op;

/* ================================================== arguments =================================================== */

/* The sizes become numbers, which the graph's guards say. On device meta it is a tensor of its own, because the graph's
 * description is not. */
static wk_tensor *as_argument(const wk_tensor *t) {
  wk__spec spec;
  if (t->device.type != WK_META) return wk__retain((wk_tensor *)t);
  wk__spec_of(&spec, t);
  spec.offset = wk_int_of(0);
  for (int d = 0; d < spec.ndim; d++) {
    spec.sizes[d] = wk_int_of(wk_int_guard_value(spec.sizes[d]));
    spec.strides[d] = wk_int_of(wk_int_guard_value(spec.strides[d]));
  }
  return wk__tensor_shape_only(&spec);
}

static PyObject *argument(const custom_op *c, const wk__parameter *p, const wk_value *v) {  // -> new
  switch (v->tag) {
    case WK_VALUE_TENSOR:
      return wk__wrap(c->state, as_argument(v->tensor));
    case WK_VALUE_DEVICE:
      return wk__device_object(c->state, v->device);
    case WK_VALUE_STRING:
      return p->type == WK__TYPE_MEMORY_FORMAT ? PyObject_GetAttrString(c->state->module, v->string)
                                               : PyUnicode_FromString(v->string);
    default: {
      wk_value copy = *v;
      if (!wk__value_has_items(v)) return wk__value_to_python(c->state, &copy); /* it holds nothing to be released */
    }
  }
  PyObject *list = PyList_New((Py_ssize_t)v->count);
  for (uint32_t k = 0; list && k < v->count; k++) {
    wk_value item = wk__value_item(v, k);
    bool none = item.tag == WK_VALUE_TENSOR && !item.tensor;
    PyObject *object = none ? Py_NewRef(Py_None) : argument(c, p, &item);
    if (object)
      PyList_SET_ITEM(list, (Py_ssize_t)k, object);
    else
      Py_CLEAR(list);
  }
  return list;
}

static PyObject *arguments(const custom_op *c, const wk_value *args) {  // -> new
  const wk__schema *schema = &c->op.schema;
  PyObject *tuple = PyTuple_New(schema->parameter_count);
  for (int i = 0; tuple && i < schema->parameter_count; i++) {
    PyObject *object = argument(c, &schema->parameters[i], &args[i]);
    if (object)
      PyTuple_SET_ITEM(tuple, i, object);
    else
      Py_CLEAR(tuple);
  }
  return tuple;
}

/* =================================================== results ==================================================== */

static wk_status not_a_tensor(const custom_op *c, PyObject *object) {
  PyErr_Format(PyExc_TypeError, "%s(): a Tensor was to be returned, not a %s", c->name, Py_TYPE(object)->tp_name);
  return wk__status_from_python();
}

static wk_status take_list(const custom_op *c, PyObject *object, wk_value *out) {
  PyObject *items = PySequence_Fast(object, "a list of Tensors was to be returned");
  Py_ssize_t n = items ? PySequence_Fast_GET_SIZE(items) : 0;
  if (!items) return wk__status_from_python();
  *out = (wk_value){.tag = WK_VALUE_TENSORS, .count = (uint32_t)n};
  out->tensors = wk__alloc_zeroed((size_t)(n + 1) * sizeof *out->tensors);
  wk_status status = out->tensors ? WK_OK : WK_OUT_OF_MEMORY;
  for (Py_ssize_t k = 0; status == WK_OK && k < n; k++) {
    PyObject *item = PySequence_Fast_GET_ITEM(items, k);
    if (wk__is_tensor(c->state, item))
      out->tensors[k] = wk__retain(wk__tensor_of(item));
    else
      status = not_a_tensor(c, item);
  }
  Py_DECREF(items);
  if (status != WK_OK) wk_value_release(out);
  return status;
}

static wk_status take_results(const custom_op *c, PyObject *given, wk_value *results) {
  const wk__schema *schema = &c->op.schema;
  int count = schema->result_count;
  if (schema->result_is_list) return take_list(c, given, &results[0]);
  if (count > 1 && (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) != count)) {
    PyErr_Format(PyExc_TypeError, "%s(): a tuple of %d Tensors was to be returned", c->name, count);
    return wk__status_from_python();
  }
  for (int r = 0; r < count; r++) {
    PyObject *item = count == 1 ? given : PyTuple_GET_ITEM(given, r);
    if (!wk__is_tensor(c->state, item)) {
      while (r--) wk_value_release(&results[r]);
      return not_a_tensor(c, item);
    }
    results[r] = wk__v_tensor(wk__retain(wk__tensor_of(item)));
  }
  return WK_OK;
}

/* =================================================== running ==================================================== */

typedef struct running {
  wk__call *call;
  wk_status status;
} running;

static void run_python(void *context) {
  running *r = context;
  const custom_op *c = (const custom_op *)r->call->op;
  PyObject *args = arguments(c, r->call->args);
  PyObject *run = args ? PyObject_GetAttrString(c->definition, "_run") : NULL;
  PyObject *given = run ? PyObject_CallObject(run, args) : NULL;
  r->status = given ? take_results(c, given, r->call->results) : wk__status_from_python();
  Py_XDECREF(args);
  Py_XDECREF(run);
  Py_XDECREF(given);
}

/* Its code sees the layers that a program sees, and a tape that is off. */
static wk_status run_custom(wk__call *call) {
  running r = {call, WK_OK};
  wk__gil gil = wk__gil_hold();
  if (!gil.alive) return wk_fail(WK_RUNTIME_ERROR, "%s: Python has ended", call->op->name);
  wk__thread_mode before = wk__thread.mode;
  if (wk__call_device(call).type != WK_META) wk__thread.mode.keys_off = WK__KEY_TRACE;
  wk__thread.mode.grad_enabled = false;
  wk__dynamo_run_plainly(run_python, &r);
  wk__thread.mode = before;
  wk__gil_drop(gil);
  return r.status;
}

/* ==================================================== making ==================================================== */

static bool writes(const wk__schema *schema) {
  for (int i = 0; i < schema->parameter_count; i++)
    if (schema->parameters[i].written) return true;
  return false;
}

static custom_op *make(wk__state *state, PyObject *definition, const char *name, const char *schema) {
  custom_op *c = wk__alloc_zeroed(sizeof *c);
  if (!c) return NULL;
  snprintf(c->name, sizeof c->name, "%s", name);
  snprintf(c->schema_text, sizeof c->schema_text, "%s%s", name, schema);
  c->op = (wk_op){.name = c->name,
                  .base_name = strstr(c->name, "::") + 2,
                  .schema_text = c->schema_text,
                  .routine = run_custom,
                  .number = WK__OP_COUNT};
  if (wk__schema_parse(c->schema_text, c->parameters, WK_COUNT(c->parameters), &c->op.schema) != WK_OK) {
    wk__free(c);
    return NULL;
  }
  c->op.tags = writes(&c->op.schema) ? WK__TAG_MUTATES : 0;
  c->state = state;
  c->definition = Py_NewRef(definition);
  return c;
}

/* _custom_operator(definition, "mylib::name", "(Tensor x, int n) -> Tensor"). None: graphs cannot have it. */
static PyObject *custom_operator(PyObject *module, PyObject *args) {  // -> new
  PyObject *definition;
  const char *name, *schema;
  if (!PyArg_ParseTuple(args, "Oss", &definition, &name, &schema)) return NULL;
  wk__state *state = wk__state_of_module(module);
  bool fits = strlen(name) + strlen(schema) < 1000 && strlen(name) < 60 && strstr(name, "::");
  custom_op *c = fits ? make(state, definition, name, schema) : NULL;
  if (c) return wk__operator_object(state, &c->op, false);
  wk_error_clear(); /* an argument of a kind that no graph has */
  Py_RETURN_NONE;
}

PyObject *wk__custom_op_target(const wk_op *op, bool functional) {  // -> new
  if (op->routine != run_custom) return NULL;
  PyObject *definition = ((const custom_op *)op)->definition;
  return functional ? PyObject_GetAttrString(definition, "_functional") : Py_NewRef(definition);
}

static PyMethodDef functions[] = {{"_custom_operator", custom_operator, METH_VARARGS,
                                   "An operator whose code is Python, to be called while tracing."},
                                  {0}};

int wk__add_custom_operators(PyObject *module) { return PyModule_AddFunctions(module, functions); }
