/* Python callables as hooks of tensors and nodes. Each list of C hooks holds at most one of ours, whose context is an
 * OrderedDict of callables: RemovableHandle keeps a weak reference to that dict, and a hook may add or remove others
 * while it runs, since the callables are copied before the first is called.
 * In: what the engine passes. Out: replaced gradients, checked as PyTorch checks them. Tests:
 * tests/python/test_autograd.py. */
#include "autograd/function_op.h"
#include "dynamo/dynamo.h"
#include "python/autograd/autograd.h"

typedef struct hook_context {
  PyObject *dict; /* owned: an OrderedDict {id: callable} */
  wk__state *state;
  int first, shown; /* of a node's gradients, behind it; shown 0: all */
} hook_context;

static void release_context(void *context) {
  hook_context *c = context;
  wk__gil gil = wk__gil_hold();
  if (gil.alive) Py_DECREF(c->dict);
  wk__gil_drop(gil);
  wk__free(c);
}

static hook_context *make_context(wk__state *state, PyObject *dict) {
  hook_context *c = wk__alloc(sizeof *c);
  if (!c) return NULL;
  *c = (hook_context){.dict = Py_NewRef(dict), .state = state};
  return c;
}

/* ================================================== calling ===================================================== */

static PyObject *hook_name(PyObject *hook) {  // -> new
  PyObject *name = PyObject_GetAttrString(hook, "__name__");
  if (name) return name;
  PyErr_Clear();
  return PyUnicode_FromString("<unknown>");
}

static int hook_error(PyObject *hook, const char *format, ...) {
  PyObject *name = hook_name(hook);
  va_list args;
  va_start(args, format);
  PyObject *text = PyUnicode_FromFormatV(format, args);
  va_end(args);
  if (name && text) PyErr_Format(PyExc_RuntimeError, "hook '%U' has %U", name, text);
  Py_XDECREF(name);
  Py_XDECREF(text);
  return -1;
}

/* A hook's replacement has the type and the size of what it replaces. */
static int check_replacement(wk__state *state, PyObject *hook, PyObject *old, PyObject *new) {
  if (new == Py_None) return 0;
  if (old == Py_None) {
    PyErr_SetString(PyExc_RuntimeError, "can't replace a None gradient with a non-None value");
    return -1;
  }
  if (!wk__is_tensor(state, new)) {
    PyErr_Format(PyExc_TypeError, "expected Variable, but hook returned '%s'", Py_TYPE(new)->tp_name);
    return -1;
  }
  const wk_tensor *a = wk__tensor_of(old), *b = wk__tensor_of(new);
  if (a->dtype != b->dtype)
    return hook_error(hook, "changed the type of value (was torch.%sTensor got torch.%sTensor)",
                      wk__dtype_legacy((wk_dtype)a->dtype), wk__dtype_legacy((wk_dtype)b->dtype));
  return wk__same_sizes(a, b) ? 0 : hook_error(hook, "changed the size of value");
}

PyObject *wk__call_hook(PyObject *hook, PyObject *const *args, Py_ssize_t count) {  // -> new
  bool python = PyFunction_Check(hook) || (PyMethod_Check(hook) && PyFunction_Check(PyMethod_GET_FUNCTION(hook)));
  if (python || !wk__dynamo_captures()) return PyObject_Vectorcall(hook, args, (size_t)count, NULL);
  PyObject *module = PyImport_ImportModule("wick.utils.hooks"), *given[3] = {hook};
  PyObject *call = module ? PyObject_GetAttrString(module, "_call_hook") : NULL;
  for (Py_ssize_t i = 0; i < count; i++) given[1 + i] = args[i];
  PyObject *result = call ? PyObject_Vectorcall(call, given, (size_t)count + 1, NULL) : NULL;
  Py_XDECREF(call);
  Py_XDECREF(module);
  return result;
}

/* Takes `value`, gives what the hooks made of it. NULL with an exception. */
static PyObject *call_tensor_hooks(hook_context *c, PyObject *value) {  // -> new
  PyObject *hooks = PyDict_Values(c->dict);
  for (Py_ssize_t i = 0; hooks && value && i < PyList_GET_SIZE(hooks); i++) {
    PyObject *hook = PyList_GET_ITEM(hooks, i), *result = wk__call_hook(hook, &value, 1);
    if (!result || check_replacement(c->state, hook, value, result) < 0) {
      Py_XDECREF(result);
      Py_CLEAR(value);
    } else if (result == Py_None) {
      Py_DECREF(result);
    } else {
      Py_SETREF(value, result);
    }
  }
  if (!hooks) Py_CLEAR(value);
  Py_XDECREF(hooks);
  return value;
}

static wk_status run_tensor_hooks(void *context, wk_tensor *grad, wk_tensor **out_grad) {
  hook_context *c = context;
  wk__gil gil = wk__gil_hold();
  Py_INCREF(c->dict); /* the hook may be removed while it runs */
  hook_context copy = *c;
  PyObject *value = wk__wrap(c->state, wk__retain(grad));
  if (value) value = call_tensor_hooks(&copy, value);
  wk_status status = value ? WK_OK : wk__status_from_python();
  if (value && wk__tensor_of(value) != grad) *out_grad = wk__retain(wk__tensor_of(value));
  Py_XDECREF(value);
  Py_DECREF(copy.dict);
  wk__gil_drop(gil);
  return status;
}

static int call_accumulate_hooks(PyObject *hooks, PyObject *tensor) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(hooks); i++) {
    PyObject *result = wk__call_hook(PyList_GET_ITEM(hooks, i), &tensor, 1);
    if (!result) return -1;
    bool none = result == Py_None;
    Py_DECREF(result);
    if (none) continue;
    PyErr_SetString(PyExc_RuntimeError, "Tensor post accumulate grad hooks should return None.");
    return -1;
  }
  return 0;
}

static wk_status run_accumulate_hooks(void *context, wk_tensor *leaf, wk_tensor **out_unused) {
  (void)out_unused;
  hook_context *c = context;
  wk__gil gil = wk__gil_hold();
  PyObject *hooks = PyDict_Values(c->dict), *tensor = hooks ? wk__wrap(c->state, wk__retain(leaf)) : NULL;
  wk_status status = tensor && call_accumulate_hooks(hooks, tensor) == 0 ? WK_OK : wk__status_from_python();
  Py_XDECREF(tensor);
  Py_XDECREF(hooks);
  wk__gil_drop(gil);
  return status;
}

/* ---- around a node ---- */

static PyObject *tuple_of(wk__state *state, wk_tensor *const *grads, int count) {  // -> new
  PyObject *tuple = PyTuple_New(count);
  for (int i = 0; tuple && i < count; i++) {
    PyObject *item = grads[i] ? wk__wrap(state, wk__retain(grads[i])) : Py_NewRef(Py_None);
    if (!item)
      Py_CLEAR(tuple);
    else
      PyTuple_SET_ITEM(tuple, i, item);
  }
  return tuple;
}

/* Takes `result`; it becomes *grads when it is not None. One gradient may be given without a tuple around it. */
static int replace_all(wk__state *state, PyObject *hook, PyObject *result, PyObject **grads) {
  Py_ssize_t count = PyTuple_GET_SIZE(*grads);
  if (result == Py_None) {
    Py_DECREF(result);
    return 0;
  }
  if (!PyTuple_Check(result)) {
    if (!wk__is_tensor(state, result))
      PyErr_Format(PyExc_TypeError, "expected tuple, but hook returned '%s'", Py_TYPE(result)->tp_name);
    PyObject *one = PyErr_Occurred() ? NULL : PyTuple_Pack(1, result);
    Py_SETREF(result, one);
    if (!result) return -1;
  }
  int status = 0;
  if (PyTuple_GET_SIZE(result) != count)
    status = hook_error(hook, "returned an incorrect number of values (got %zd, but expected %zd)",
                        PyTuple_GET_SIZE(result), count);
  for (Py_ssize_t i = 0; status == 0 && i < count; i++)
    status = check_replacement(state, hook, PyTuple_GET_ITEM(*grads, i), PyTuple_GET_ITEM(result, i));
  if (status == 0) Py_SETREF(*grads, Py_NewRef(result));
  Py_DECREF(result);
  return status;
}

static void take_back(PyObject *tuple, wk_tensor **grads, int count) {
  for (int i = 0; i < count; i++) {
    PyObject *item = PyTuple_GET_ITEM(tuple, i);
    wk_tensor *old = grads[i];
    grads[i] = item == Py_None ? NULL : wk__retain(wk__tensor_of(item));
    wk__release(old);
  }
}

/* hook(grad_inputs, grad_results) after the node, hook(grad_results) before it; `replaced` is what the hook may change.
 */
static int call_node_hooks(const hook_context *c, PyObject **replaced, PyObject *results) {
  PyObject *hooks = PyDict_Values(c->dict);
  int status = hooks ? 0 : -1;
  for (Py_ssize_t i = 0; status == 0 && i < PyList_GET_SIZE(hooks); i++) {
    PyObject *hook = PyList_GET_ITEM(hooks, i);
    PyObject *result = wk__call_hook(hook, (PyObject *[]){*replaced, results}, results ? 2 : 1);
    status = result ? replace_all(c->state, hook, result, replaced) : -1;
  }
  Py_XDECREF(hooks);
  return status;
}

static wk_status run_pre_hooks(void *context, wk_tensor **inputs, int input_count, wk_tensor **results,
                               int result_count) {
  (void)inputs, (void)input_count;
  hook_context *c = context;
  wk__gil gil = wk__gil_hold();
  PyObject *grads = tuple_of(c->state, results, result_count);
  int status = grads ? call_node_hooks(c, &grads, NULL) : -1;
  if (status == 0) take_back(grads, results, result_count);
  Py_XDECREF(grads);
  wk_status answer = status == 0 ? WK_OK : wk__status_from_python();
  wk__gil_drop(gil);
  return answer;
}

static wk_status run_post_hooks(void *context, wk_tensor **inputs, int input_count, wk_tensor **results,
                                int result_count) {
  hook_context *c = context;
  inputs += c->first;
  if (c->shown) input_count = c->shown;
  wk__gil gil = wk__gil_hold();
  PyObject *grads = tuple_of(c->state, inputs, input_count), *given = tuple_of(c->state, results, result_count);
  int status = grads && given ? call_node_hooks(c, &grads, given) : -1;
  if (status == 0) take_back(grads, inputs, input_count);
  Py_XDECREF(grads);
  Py_XDECREF(given);
  wk_status answer = status == 0 ? WK_OK : wk__status_from_python();
  wk__gil_drop(gil);
  return answer;
}

/* ================================================ registering =================================================== */

/* RemovableHandle(dict); dict[handle.id] = hook */
static PyObject *handle_in(PyObject *dict, PyObject *hook) {  // -> new
  PyObject *module = PyImport_ImportModule("wick.utils.hooks");
  PyObject *handle = module ? PyObject_CallMethod(module, "RemovableHandle", "O", dict) : NULL;
  PyObject *id = handle ? PyObject_GetAttrString(handle, "id") : NULL;
  if (!id || PyObject_SetItem(dict, id, hook) < 0) Py_CLEAR(handle);
  Py_XDECREF(id);
  Py_XDECREF(module);
  return handle;
}

PyObject *wk__tensor_hooks(wk_tensor *t, bool accumulate) {  // -> borrowed
  if (!accumulate) {
    wk__grad_hook *h = wk__find_grad_hook(t, run_tensor_hooks);
    return h ? ((hook_context *)h->context)->dict : NULL;
  }
  for (wk__grad_hook *h = t->autograd ? t->autograd->accumulate_hooks : NULL; h; h = h->next)
    if (h->call == run_accumulate_hooks) return ((hook_context *)h->context)->dict;
  return NULL;
}

Py_ssize_t wk__hook_count(const wk_node *n) {
  Py_ssize_t count = 0;
  for (int r = 0; n->result_hooks && r < n->result_count; r++)
    for (const wk__grad_hook *h = n->result_hooks[r]; h; h = h->next)
      if (h->call == run_tensor_hooks) count += PyDict_GET_SIZE(((hook_context *)h->context)->dict);
  for (const wk__node_hook *h = n->hooks; h; h = h->next)
    if (h->call == run_pre_hooks || h->call == run_post_hooks)
      count += PyDict_GET_SIZE(((hook_context *)h->context)->dict);
  return count;
}

/* An object whose tensor holds Python objects takes part in garbage collection. */
static void track(PyObject *tensor) {
  if (!PyObject_GC_IsTracked(tensor)) PyObject_GC_Track(tensor);
}

static int attach_dict(wk__state *state, PyObject *tensor, PyObject *dict, bool accumulate) {
  wk__grad_hook hook = {.id = wk__next_hook_id(),
                        .call = accumulate ? run_accumulate_hooks : run_tensor_hooks,
                        .release = release_context,
                        .context = make_context(state, dict)};
  wk_tensor *t = wk__tensor_of(tensor);
  wk_status status = hook.context ? WK_OK : wk_error_category();
  if (status == WK_OK) status = accumulate ? wk__add_accumulate_hook(t, hook) : wk__add_grad_hook(t, hook);
  if (status == WK_OK) {
    track(tensor);
    return 0;
  }
  if (hook.context) release_context(hook.context);
  wk__raise(state);
  return -1;
}

PyObject *wk__tensor_add_hook(wk__state *state, PyObject *tensor, PyObject *hook, bool accumulate) {  // -> new
  if (wk_is_leaf(wk__tensor_of(tensor))) wk__tensor_epoch_bump(); /* captures guard which hooks leaves have */
  PyObject *dict = Py_XNewRef(wk__tensor_hooks(wk__tensor_of(tensor), accumulate));
  if (!dict) {
    dict = PyODict_New();
    if (dict && attach_dict(state, tensor, dict, accumulate) < 0) Py_CLEAR(dict);
  }
  PyObject *handle = dict ? handle_in(dict, hook) : NULL;
  Py_XDECREF(dict);
  return handle;
}

int wk__tensor_set_hooks(wk__state *state, PyObject *tensor, PyObject *dict) {
  wk_tensor *t = wk__tensor_of(tensor);
  wk__tensor_epoch_bump();
  wk__grad_hook *old = wk__find_grad_hook(t, run_tensor_hooks);
  if (old) wk__remove_grad_hook(t, old->id);
  if (!dict || dict == Py_None || (!wk_requires_grad(t) && PyDict_Check(dict) && PyDict_GET_SIZE(dict) == 0)) return 0;
  if (PyODict_Check(dict)) return attach_dict(state, tensor, dict, false);
  PyErr_SetString(PyExc_TypeError, "_backward_hooks has to be an OrderedDict or None");
  return -1;
}

PyObject *wk__node_add_python_hook(wk__state *state, wk_node *n, PyObject *hook, bool post) {  // -> new
  PyObject *dict = NULL;
  for (wk__node_hook *h = n->hooks; h && !dict; h = h->next)
    if (h->call == (post ? run_post_hooks : run_pre_hooks)) dict = Py_NewRef(((hook_context *)h->context)->dict);
  if (!dict) {
    dict = PyODict_New();
    hook_context *context = dict ? make_context(state, dict) : NULL;
    if (context && n->op && wk__is_function(n->op)) context->shown = wk__function_inputs(n->op, &context->first);
    wk__node_hook added = {.id = wk__next_hook_id(),
                           .post = post,
                           .call = post ? run_post_hooks : run_pre_hooks,
                           .release = release_context,
                           .context = context};
    if (!context || wk__node_add_hook(n, added) != WK_OK) {
      if (dict) wk__raise(state);
      if (context) release_context(context);
      Py_CLEAR(dict);
    }
  }
  PyObject *handle = dict ? handle_in(dict, hook) : NULL;
  Py_XDECREF(dict);
  return handle;
}

/* ================================================ collection ==================================================== */

int wk__tensor_autograd_traverse(wk_tensor *t, visitproc visit, void *arg) {
  wk__autograd *a = t->autograd;
  if (!a || atomic_load(&t->references) != 1) return 0;
  for (wk__grad_hook *h = a->hooks; h; h = h->next)
    if (h->call == run_tensor_hooks) Py_VISIT(((hook_context *)h->context)->dict);
  for (wk__grad_hook *h = a->accumulate_hooks; h; h = h->next)
    if (h->call == run_accumulate_hooks) Py_VISIT(((hook_context *)h->context)->dict);
  wk_node *n = a->grad_fn;
  if (!n || atomic_load(&n->references) != 1) return 0;
  for (int r = 0; n->result_hooks && r < n->result_count; r++)
    for (wk__grad_hook *h = n->result_hooks[r]; h; h = h->next)
      if (h->call == run_tensor_hooks) Py_VISIT(((hook_context *)h->context)->dict);
  return wk__function_node_traverse(n, visit, arg);
}
