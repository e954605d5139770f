/* autograd.Function.apply and the node that it leaves on the tape.
 * In: arguments of forward, some of them tensors. Out: what forward returned, its tensors with a node of class
 * function_class as history, whose run calls backward. forward runs without recording; an input that it returns
 * untouched becomes an alias, an input that it wrote (mark_dirty) gets the node as its new history. Tests:
 * tests/python/test_function.py, tests/parity/test_autograd_parity.py. */
#include "dynamo/cpython/objects.h"
#include "dynamo/dynamo.h"
#include "ops/internal.h"
#include "python/autograd/autograd.h"

/* =================================================== the node ================================================== */

static PyObject *gradient_argument(wk__function_node *n, wk_tensor *grad, int result) {  // -> new
  wk__state *state = n->context->state;
  if (grad) return wk__wrap(state, wk__retain(grad));
  wk_tensor *shape = n->shapes[n->node.input_count + result];
  if (!shape || !n->context->materialize_grads) return Py_NewRef(Py_None);
  wk_value zeros = {0}, args[4] = {wk__v_tensor(shape)};
  if (wk_call(WK__OP(zeros_like), args, NULL, &zeros) != WK_OK) return wk__raise(state);
  return wk__wrap(state, zeros.tensor);
}

static PyObject *gradient_arguments(wk__function_node *n, wk_tensor *const *grads) {  // -> new
  PyObject *tuple = PyTuple_New(n->node.result_count);
  for (int r = 0; tuple && r < n->node.result_count; r++) {
    PyObject *item = gradient_argument(n, grads[r], r);
    if (!item)
      Py_CLEAR(tuple);
    else
      PyTuple_SET_ITEM(tuple, r, item);
  }
  return tuple;
}

static wk_status runtime_error(const char *format, ...) {
  va_list args;
  va_start(args, format);
  PyErr_FormatV(PyExc_RuntimeError, format, args);
  va_end(args);
  return wk__status_from_python();
}
static const char *name_of(const wk__function_node *n) { return wk__type_name(Py_TYPE(n->context)); }

static wk_status wrong_shape(const wk__function_node *n, int input, const wk_tensor *grad) {
  wk__string got = {0}, wanted = {0};
  wk__print_sizes(&got, grad->sizes, grad->ndim);
  wk__print_sizes(&wanted, n->shapes[input]->sizes, n->shapes[input]->ndim);
  wk_status status = runtime_error(
      "Function %s returned an invalid gradient at index %d - got %s but expected shape compatible with %s", name_of(n),
      input, got.text ? got.text : "?", wanted.text ? wanted.text : "?");
  wk__string_release(&got);
  wk__string_release(&wanted);
  return status;
}

static wk_status wrong_device(const wk__function_node *n, int input, const wk_tensor *grad) {
  wk__string text = {0};
  wk__string_printf(&text, "Function %s returned an invalid gradient at index %d - ", name_of(n), input);
  wk__print_devices_of_gradient(&text, n->shapes[input]->device, grad->device);
  wk_status status = runtime_error("%s", text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

/* Sums what was broadcast and converts the dtype, so that the gradient is as the input was; one of no dims may come
 * from another device. */
static wk_status fit_gradient(const wk__function_node *n, int input, wk_tensor *grad, wk_tensor **out) {
  const wk_tensor *shape = n->shapes[input];
  bool moves = !wk__device_equal(shape->device, grad->device);
  if (moves && grad->ndim != 0) return wrong_device(n, input, grad);
  wk_value result = wk__v_tensor(wk__retain(grad));
  if (!wk__same_sizes(shape, grad)) {
    wk_int sizes[WK_MAX_DIMS];
    int ndim;
    bool broadcasts = wk__broadcast(shape->sizes, shape->ndim, grad->sizes, grad->ndim, sizes, &ndim) == WK_OK &&
                      ndim == grad->ndim && memcmp(sizes, grad->sizes, (size_t)ndim * sizeof *sizes) == 0;
    wk_value args[] = {result, wk__v_ints(shape->sizes, shape->ndim)};
    wk_status status = broadcasts ? wk_call(WK__OP(sum_to_size), args, NULL, &result) : wrong_shape(n, input, grad);
    wk_value_release(&args[0]);
    WK_TRY(status);
  }
  if (result.tensor->dtype != shape->dtype || moves) {
    wk_value args[] = {result, wk__v_dtype((wk_dtype)shape->dtype), {.tag = WK_VALUE_DEVICE, .device = shape->device}};
    wk_status status = wk_call(WK__OP(_to_copy), args, NULL, &result);
    wk_value_release(&args[0]);
    WK_TRY(status);
  }
  *out = result.tensor;
  return WK_OK;
}

/* Takes `result`: a tuple as long as forward's arguments; more is allowed when the rest is None. */
static PyObject *as_gradient_tuple(const wk__function_node *n, PyObject *result) {  // -> new
  Py_ssize_t expected = n->argument_count;
  if (!PyTuple_Check(result)) Py_SETREF(result, PyTuple_Pack(1, result));
  Py_ssize_t count = result ? PyTuple_GET_SIZE(result) : 0, kept = count;
  while (result && kept > expected && PyTuple_GET_ITEM(result, kept - 1) == Py_None) kept--;
  if (!result || count == expected || (count > expected && kept == expected)) return result;
  (void)runtime_error("function %s returned an incorrect number of gradients (expected %zd, got %zd)", name_of(n),
                      expected, count);
  Py_DECREF(result);
  return NULL;
}

/* input: which of the node's inputs argument i is, when it is a tensor. */
static wk_status take_gradient(const wk__function_node *n, int i, int input, PyObject *item, const bool *wanted,
                               wk_tensor **out_grads) {
  if (item == Py_None) return WK_OK;
  if (!n->is_tensor[i])
    return runtime_error(
        "function %s returned a gradient different than None at position %d, but the corresponding forward "
        "input was not a Variable",
        name_of(n), i + 1);
  if (!wk__is_tensor(n->context->state, item))
    return runtime_error("expected Variable or None (got %s)", wk__type_name(Py_TYPE(item)));
  return wanted[input] ? fit_gradient(n, input, wk__tensor_of(item), &out_grads[input]) : WK_OK;
}

static wk_status take_gradients(const wk__function_node *n, PyObject *tuple, const bool *wanted,
                                wk_tensor **out_grads) {
  for (int i = 0, input = 0; i < n->argument_count; input += n->is_tensor[i++])
    WK_TRY(take_gradient(n, i, input, PyTuple_GET_ITEM(tuple, i), wanted, out_grads));
  return WK_OK;
}

static wk_status call_backward(wk__function_node *n, wk_tensor *const *grads, const bool *wanted,
                               wk_tensor **out_grads) {
  wk__python_function *context = (wk__python_function *)Py_NewRef(n->context);
  PyObject *args = gradient_arguments(n, grads);
  PyObject *apply = args ? PyObject_GetAttr((PyObject *)context, context->state->name_apply) : NULL;
  PyObject *result = apply ? PyObject_Call(apply, args, NULL) : NULL;
  if (result) result = as_gradient_tuple(n, result);
  wk_status status = result ? take_gradients(n, result, wanted, out_grads) : wk__status_from_python();
  if (status != WK_OK) {
    if (!PyErr_Occurred()) wk__raise(context->state);
    for (int i = 0; i < n->node.input_count; i++) {
      wk__release(out_grads[i]);
      out_grads[i] = NULL;
    }
    status = wk__status_from_python();
  }
  Py_XDECREF(result);
  Py_XDECREF(apply);
  Py_XDECREF(args);
  Py_DECREF(context);
  return status;
}

static wk_status run_function(wk_node *node, wk_tensor *const *grads, const bool *wanted, bool create_graph,
                              wk_tensor **out_grads) {
  (void)create_graph; /* the engine has set the grad mode */
  wk__gil gil = wk__gil_hold();
  wk_status status = call_backward((wk__function_node *)node, grads, wanted, out_grads);
  wk__gil_drop(gil);
  return status;
}

/* The node itself can run again: only reading ctx.saved_tensors is refused from now on. */
static void release_saved(wk_node *node) {
  wk__gil gil = wk__gil_hold();
  wk__function_release_saved(((wk__function_node *)node)->context);
  wk__gil_drop(gil);
}

static void destroy_function(wk_node *node) {
  wk__function_node *n = (wk__function_node *)node;
  wk__gil gil = wk__gil_hold();
  if (n->context && gil.alive) {
    n->context->node = NULL;
    Py_DECREF(n->context);
  }
  wk__gil_drop(gil);
  for (int i = 0; n->shapes && i < node->input_count + node->result_count; i++) wk__release(n->shapes[i]);
  wk__free(n->shapes);
  wk__free(n->is_tensor);
}

static const wk__node_class function_class = {.suffix = "",
                                              .run = run_function,
                                              .release_saved = release_saved,
                                              .destroy = destroy_function,
                                              .runs_without_grads = true};

int wk__function_node_traverse(wk_node *node, visitproc visit, void *arg) {
  if (node->class == &function_class) Py_VISIT(((wk__function_node *)node)->context);
  return 0;
}

/* =================================================== apply ====================================================== */

/* One call of apply. */
typedef struct call {
  wk__state *state;
  PyObject *class;              /* borrowed */
  PyObject *args;               /* owned: forward's, a tuple */
  wk__python_function *context; /* owned */
  int argument_count, input_count;
  bool *is_tensor;    /* (argument_count) owned until the node takes it */
  wk_tensor **inputs; /* (input_count) borrowed: the tensors among args */
  wk__edge *edges;    /* (input_count) owned: where the inputs' gradients go, from before forward wrote any of them */
  bool has_setup;     /* forward has no ctx; setup_context gets it */
  bool recording;
  wk__function_node *node; /* owned; NULL when nothing is recorded */
} call;

static void call_release(call *c) {
  for (int i = 0; c->edges && i < c->input_count; i++) wk__node_release(c->edges[i].node);
  wk__free(c->edges);
  wk__free(c->inputs);
  wk__free(c->is_tensor);
  if (c->node) wk__node_release(&c->node->node);
  Py_XDECREF(c->context);
  Py_XDECREF(c->args);
}

static wk_status status_of_python(void *result) { return result ? WK_OK : wk__status_from_python(); }

static wk_status collect_inputs(call *c) {
  int count = c->argument_count = (int)PyTuple_GET_SIZE(c->args);
  PyObject *needs = PyTuple_New(count);
  WK_TRY(status_of_python(needs));
  c->context->needs_input_grad = needs;
  c->is_tensor = wk__alloc_zeroed((size_t)count * sizeof *c->is_tensor);
  c->inputs = wk__alloc_zeroed((size_t)count * sizeof *c->inputs);
  if (!c->is_tensor || !c->inputs) return WK_OUT_OF_MEMORY;
  for (int i = 0; i < count; i++) {
    PyObject *o = PyTuple_GET_ITEM(c->args, i);
    bool tensor = wk__is_tensor(c->state, o), needed = tensor && wk_requires_grad(wk__tensor_of(o));
    PyTuple_SET_ITEM(needs, i, PyBool_FromLong(needed));
    c->is_tensor[i] = tensor;
    c->recording |= needed;
    if (tensor) c->inputs[c->input_count++] = wk__tensor_of(o);
  }
  c->recording &= wk_grad_enabled();
  c->edges = wk__alloc_zeroed((size_t)c->input_count * sizeof *c->edges);
  if (!c->edges) return WK_OUT_OF_MEMORY;
  for (int i = 0; c->recording && i < c->input_count; i++)
    if (wk_requires_grad(c->inputs[i])) WK_TRY(wk__edge_of(c->inputs[i], &c->edges[i]));
  return WK_OK;
}

/* (ctx, *args) */
static PyObject *with_context(const call *c) {  // -> new
  PyObject *tuple = PyTuple_New(c->argument_count + 1);
  if (!tuple) return NULL;
  PyTuple_SET_ITEM(tuple, 0, Py_NewRef((PyObject *)c->context));
  for (int i = 0; i < c->argument_count; i++) PyTuple_SET_ITEM(tuple, i + 1, Py_NewRef(PyTuple_GET_ITEM(c->args, i)));
  return tuple;
}

static PyObject *call_forward(const call *c) {  // -> new
  PyObject *forward = PyObject_GetAttr(c->class, c->state->name_forward);
  PyObject *args = !forward ? NULL : c->has_setup ? Py_NewRef(c->args) : with_context(c);
  PyObject *output = args ? PyObject_Call(forward, args, NULL) : NULL;
  Py_XDECREF(args);
  Py_XDECREF(forward);
  if (!c->has_setup || !output) return output;
  PyObject *done = PyObject_CallMethod(c->class, "setup_context", "OOO", c->context, c->args, output);
  if (!done) Py_CLEAR(output);
  Py_XDECREF(done);
  return output;
}

static wk_status make_node(call *c, PyObject *outputs) {
  int results = (int)PyTuple_GET_SIZE(outputs);
  wk__function_node *n = (wk__function_node *)wk__node_create(&function_class, sizeof *n, c->input_count, results);
  if (!n) return WK_OUT_OF_MEMORY;
  c->node = n;
  n->argument_count = c->argument_count;
  n->is_tensor = c->is_tensor;
  c->is_tensor = NULL;
  memcpy(n->node.edges, c->edges, (size_t)c->input_count * sizeof *c->edges);
  memset(c->edges, 0, (size_t)c->input_count * sizeof *c->edges);
  n->node.name = wk__strdup(wk__type_name(Py_TYPE(c->context)));
  n->shapes = wk__alloc_zeroed((size_t)(c->input_count + results) * sizeof *n->shapes);
  if (!n->node.name || !n->shapes) return WK_OUT_OF_MEMORY;
  for (int i = 0; i < c->input_count + results; i++) {
    PyObject *o = i < c->input_count ? NULL : PyTuple_GET_ITEM(outputs, i - c->input_count);
    if (o && !wk__is_tensor(c->state, o)) continue;
    n->shapes[i] = wk__tensor_kept_shape(o ? wk__tensor_of(o) : c->inputs[i]);
    if (!n->shapes[i]) return wk_error_category();
  }
  n->context = (wk__python_function *)Py_NewRef((PyObject *)c->context);
  n->node.wrapper = n->context;
  c->context->node = n;
  return WK_OK;
}

/* ---- results ---- */

static bool is_among(PyObject *tuple, const wk_tensor *t) {
  for (Py_ssize_t i = 0; tuple && i < PyTuple_GET_SIZE(tuple); i++)
    if (((wk__python_tensor *)PyTuple_GET_ITEM(tuple, i))->tensor == t) return true;
  return false;
}
static bool is_input(const call *c, const wk_tensor *t) {
  for (int i = 0; i < c->input_count; i++)
    if (c->inputs[i] == t) return true;
  return false;
}

static wk_status check_marks(const call *c, PyObject *tuple, const char *format) {
  if (tuple && !PyTuple_Check(tuple)) return runtime_error(format, wk__type_name(Py_TYPE(tuple)));
  for (Py_ssize_t i = 0; tuple && i < PyTuple_GET_SIZE(tuple); i++) {
    PyObject *o = PyTuple_GET_ITEM(tuple, i);
    if (!wk__is_tensor(c->state, o)) return runtime_error(format, wk__type_name(Py_TYPE(o)));
  }
  return WK_OK;
}

static wk_status check_dirty(const call *c, PyObject *outputs) {
  PyObject *dirty = c->context->dirty_tensors;
  for (Py_ssize_t d = 0; dirty && d < PyTuple_GET_SIZE(dirty); d++) {
    bool returned = false;
    for (Py_ssize_t r = 0; r < PyTuple_GET_SIZE(outputs); r++)
      returned |= PyTuple_GET_ITEM(outputs, r) == PyTuple_GET_ITEM(dirty, d);
    if (!returned)
      return runtime_error(
          "Some elements marked as dirty during the forward method were not returned as output. The inputs "
          "that are modified inplace must all be outputs of the Function.");
  }
  return WK_OK;
}

/* A written input: what it was is behind the node's edge, what it is comes from the node. */
static wk_status set_written_history(const call *c, wk_tensor *t, uint32_t result) {
  if (wk_is_leaf(t) && t->keys & WK__KEY_AUTOGRAD)
    return wk_fail(WK_RUNTIME_ERROR, "a leaf Variable that requires grad has been used in an in-place operation.");
  WK_TRY(wk__check_inplace(t));
  if (!t->base) return wk__set_history(t, &c->node->node, result);
  if (c->node->node.result_count != 1)
    return wk_fail(WK_RUNTIME_ERROR, "Functions which modify views in-place must return a single Variable");
  return wk__rebase_history(t, &c->node->node);
}

static PyObject *alias_of(const call *c, const wk_tensor *t) {  // -> new
  wk__spec spec;
  wk__spec_of(&spec, t);
  return wk__wrap(c->state, wk__tensor_alias(t, &spec));
}

/* An object whose tensor keeps a Python context alive takes part in garbage collection. */
static wk_status adopt(const call *c, PyObject *o, uint32_t result) {
  if (!PyObject_GC_IsTracked(o)) PyObject_GC_Track(o);
  return wk__set_history(wk__tensor_of(o), &c->node->node, result);
}

/* A result over an input's memory is a view of it that the tape does not know. */
static bool shares_memory(const call *c, const wk_tensor *t) {
  for (int i = 0; i < c->input_count; i++)
    if (t->storage && c->inputs[i]->storage == t->storage) return true;
  return false;
}

static PyObject *finish_output(const call *c, PyObject *o, uint32_t result) {  // -> new
  if (!wk__is_tensor(c->state, o)) return Py_NewRef(o);
  wk_tensor *t = wk__tensor_of(o);
  bool written = is_among(c->context->dirty_tensors, t), input = is_input(c, t);
  wk_dtype dtype = (wk_dtype)t->dtype;
  bool differentiable = c->node && !is_among(c->context->non_differentiable, t) &&
                        (wk_dtype_is_floating(dtype) || wk_dtype_is_complex(dtype));
  if (written) wk__version_bump(t);
  PyObject *output = input && !written ? alias_of(c, t) : Py_NewRef(o);
  if (!output) return NULL;
  wk_status status = WK_OK;
  if (!differentiable) {
    if (!input && wk_requires_grad(t)) wk__detach_in_place(t);
  } else {
    status = written ? set_written_history(c, t, result) : adopt(c, output, result);
    if (status == WK_OK && !written) wk__tensor_of(output)->autograd->refuses_writes = shares_memory(c, t);
  }
  if (status == WK_OK) return output;
  Py_DECREF(output);
  return wk__raise(c->state);
}

static PyObject *finish_outputs(const call *c, PyObject *outputs) {  // -> new
  Py_ssize_t count = PyTuple_GET_SIZE(outputs);
  PyObject *tuple = PyTuple_New(count);
  for (Py_ssize_t r = 0; tuple && r < count; r++) {
    PyObject *output = finish_output(c, PyTuple_GET_ITEM(outputs, r), (uint32_t)r);
    if (!output)
      Py_CLEAR(tuple);
    else
      PyTuple_SET_ITEM(tuple, r, output);
  }
  return tuple;
}

/* Capture may make an operator of it. */
static void tell_capture(const call *c, PyObject *finished) {
  int count = c->node->node.result_count;
  wk_tensor **results = wk__alloc_zeroed((size_t)count * sizeof *results + 1);
  PyObject *backward = PyObject_GetAttrString(c->class, "backward");
  PyObject *once = backward ? PyObject_GetAttrString(backward, "_once_differentiable") : NULL;
  PyObject *hands_on = PyObject_GetAttrString(c->class, "_hands_gradients_on");
  PyErr_Clear();
  for (int r = 0; results && r < count; r++) {
    PyObject *o = PyTuple_GET_ITEM(finished, r);
    if (wk__is_tensor(c->state, o)) results[r] = wk__tensor_of(o);
  }
  const wk__applied applied = {.node = &c->node->node,
                               .context = (PyObject *)c->context,
                               .inputs = c->inputs,
                               .results = results,
                               .once = once == Py_True,
                               .hands_on = hands_on == Py_True,
                               .materializes = c->context->materialize_grads,
                               .writes = c->context->dirty_tensors};
  if (results) wk__dynamo_applied(&applied);
  wk__free(results);
  Py_XDECREF(once);
  Py_XDECREF(hands_on);
  Py_XDECREF(backward);
}

/* `outputs`: what forward returned, as a tuple. */
static PyObject *record(call *c, PyObject *outputs) {  // -> new
  wk__python_function *context = c->context;
  wk_status status = check_marks(c, context->dirty_tensors, "mark_dirty can only accept variables, but got %s");
  if (status == WK_OK)
    status = check_marks(c, context->non_differentiable,
                         "mark_non_differentiable only accepts variable arguments, but got %s");
  if (status == WK_OK) status = check_dirty(c, outputs);
  if (status == WK_OK && c->recording) status = make_node(c, outputs);
  PyObject *finished = status == WK_OK ? finish_outputs(c, outputs) : NULL;
  if (finished && c->node && wk__function_save(context) != WK_OK) {
    Py_CLEAR(finished);
    status = wk_error_category();
  }
  if (!finished && !PyErr_Occurred()) wk__raise(c->state);
  if (finished && c->node && WK_UNLIKELY(wk__dynamo_captures())) tell_capture(c, finished);
  Py_CLEAR(context->to_save);
  Py_CLEAR(context->dirty_tensors);
  Py_CLEAR(context->non_differentiable);
  return finished;
}

/* Nothing is recorded inside forward. */
static PyObject *run_forward(const call *c) {  // -> new
  bool before = wk_set_grad_enabled(false);
  PyObject *output = call_forward(c);
  wk_set_grad_enabled(before);
  return output;
}

static PyObject *run_call(call *c) {  // -> new
  if (collect_inputs(c) != WK_OK) return PyErr_Occurred() ? NULL : wk__raise(c->state);
  PyObject *output = run_forward(c);
  if (!output) return NULL;
  if (PyTuple_Check(output)) {
    PyObject *finished = record(c, output);
    Py_DECREF(output);
    return finished;
  }
  PyObject *outputs = PyTuple_Pack(1, output), *finished = outputs ? record(c, outputs) : NULL;
  PyObject *only = finished ? Py_NewRef(PyTuple_GET_ITEM(finished, 0)) : NULL;
  Py_XDECREF(finished);
  Py_XDECREF(outputs);
  Py_DECREF(output);
  return only;
}

/* Keywords and, for the form with setup_context, defaults are made positional by the class. */
static PyObject *bound_arguments(PyObject *class, PyObject *args, PyObject *keywords, bool has_setup) {  // -> new
  if (!keywords && !has_setup) return Py_NewRef(args);
  PyObject *bound = PyObject_CallMethod(class, "_bind_arguments", "OO", args, keywords ? keywords : Py_None);
  if (!bound || PyTuple_Check(bound)) return bound;
  Py_DECREF(bound);
  PyErr_SetString(PyExc_TypeError, "_bind_arguments() has to return a tuple");
  return NULL;
}

static int has_setup_context(wk__state *state, PyObject *class) {
  PyObject *flag = PyObject_GetAttr(class, state->name__has_setup_context);
  int answer = flag ? PyObject_IsTrue(flag) : -1;
  Py_XDECREF(flag);
  return answer;
}

/* Inside of a function transform each level has its part (wick/_functorch/autograd_function.py). */
static PyObject *apply_in_level(wk__state *state, PyObject *class, PyObject *args, PyObject *keywords) {  // -> new
  int has_setup = has_setup_context(state, class);
  PyObject *bound = has_setup < 0 ? NULL : bound_arguments(class, args, keywords, has_setup);
  PyObject *result = bound ? PyObject_CallMethod(class, "_apply_in_level", "(O)", bound) : NULL;
  Py_XDECREF(bound);
  return result;
}

PyObject *wk__function_apply(PyObject *class, PyObject *args, PyObject *keywords) {  // -> new
  if (WK_UNLIKELY(wk__thread.mode.level != NULL))
    return apply_in_level(wk__state_of_type((PyTypeObject *)class), class, args, keywords);
  return wk__function_apply_here(class, args, keywords);
}

PyObject *wk__function_apply_here(PyObject *class, PyObject *args, PyObject *keywords) {  // -> new
  call c = {.state = wk__state_of_type((PyTypeObject *)class), .class = class};
  int has_setup = has_setup_context(c.state, class);
  if (has_setup < 0) return NULL;
  c.has_setup = has_setup;
  c.args = bound_arguments(class, args, keywords, has_setup);
  PyObject *backward_class = c.args ? PyObject_GetAttr(class, c.state->name__backward_cls) : NULL;
  c.context = backward_class ? (wk__python_function *)PyObject_CallNoArgs(backward_class) : NULL;
  PyObject *result = c.context ? run_call(&c) : NULL;
  Py_XDECREF(backward_class);
  call_release(&c);
  return result;
}
