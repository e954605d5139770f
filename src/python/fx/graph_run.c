/* Calling a Graph: arguments are bound to the placeholders, then the executor runs it, or its nodes are run one by one.
 * In: a GraphModule, positional and keyword arguments. Out: what forward gives. Invariant: which way it ran cannot be
 * told from the result. Tests: tests/python/test_fx.py. */
#include "python/fx/graph_parts.h"
#include "trace/trace.h"

enum { MAX_MISSES = 8 }; /* so often an edited graph is traced for other arguments; then it is run node by node */

/* ============================================= arguments to parameters ========================================== */

typedef struct binding {
  PyObject **values; /* owned */
  Py_ssize_t count;
} binding;

static void release_binding(binding *b) {
  for (Py_ssize_t i = 0; b->values && i < b->count; i++) Py_XDECREF(b->values[i]);
  PyMem_Free(b->values);
}

static int wrong_count(Py_ssize_t least, Py_ssize_t most, Py_ssize_t given) {
  if (least == most)
    PyErr_Format(PyExc_TypeError, "forward() takes %zd positional argument%s but %zd were given", most + 1,
                 most ? "s" : "", given + 1);
  else
    PyErr_Format(PyExc_TypeError, "forward() takes from %zd to %zd positional arguments but %zd were given", least + 1,
                 most + 1, given + 1);
  return -1;
}

/* The nodes are not made yet: their number is all that is known. */
static int bind_by_position(const wk__fx_graph *graph, PyObject *args, binding *b) {
  for (; b->count < graph->argument_count; b->count++)
    b->values[b->count] = Py_NewRef(PyTuple_GET_ITEM(args, b->count));
  return 0;
}

static Py_ssize_t stars_of(const wk__fx_node *n) {
  const char *target = PyUnicode_AsUTF8(n->target);
  return target && target[0] == '*' ? (target[1] == '*' ? 2 : 1) : 0;
}

/* One parameter's value, and whether it came by keyword. `rest`: keywords not used yet. */
static PyObject *value_of_parameter(const wk__fx_node *n, PyObject *args, Py_ssize_t *at, PyObject *rest) {  // -> new
  Py_ssize_t stars = stars_of(n), given = PyTuple_GET_SIZE(args), from = *at;
  if (stars == 1) {
    *at = given;
    return PyTuple_GetSlice(args, from, given);
  }
  if (stars == 2) {
    PyObject *all = PyDict_Copy(rest);
    PyDict_Clear(rest);
    return all;
  }
  PyObject *by_name = PyDict_GetItemWithError(rest, n->target);
  if (*at < given) {
    if (by_name) return PyErr_Format(PyExc_TypeError, "forward() got multiple values for argument '%U'", n->target);
    return Py_NewRef(PyTuple_GET_ITEM(args, (*at)++));
  }
  if (by_name) {
    Py_INCREF(by_name);
    if (PyDict_DelItem(rest, n->target) < 0) Py_CLEAR(by_name);
    return by_name;
  }
  if (PyTuple_GET_SIZE(n->args)) return Py_NewRef(PyTuple_GET_ITEM(n->args, 0));
  return PyErr_Format(PyExc_TypeError, "forward() missing 1 required positional argument: '%U'", n->target);
}

static int check_all_used(const wk__fx_graph *graph, PyObject *args, Py_ssize_t used, PyObject *rest) {
  Py_ssize_t most = 0, defaults = 0, at = 0;
  PyObject *key, *value;
  if (PyDict_Next(rest, &at, &key, &value)) {
    PyErr_Format(PyExc_TypeError, "forward() got an unexpected keyword argument '%S'", key);
    return -1;
  }
  if (used == PyTuple_GET_SIZE(args)) return 0;
  for (const wk__fx_node *n = graph->root->next; n->op != WK__FX_ROOT; n = n->next) {
    if (n->op != WK__FX_PLACEHOLDER) continue;
    most++;
    defaults += PyTuple_GET_SIZE(n->args) > 0;
  }
  return wrong_count(most - defaults, most, PyTuple_GET_SIZE(args));
}

static int bind_by_name(wk__fx_graph *graph, PyObject *args, PyObject *rest, binding *b) {
  Py_ssize_t used = 0;
  for (const wk__fx_node *n = graph->root->next; n->op != WK__FX_ROOT; n = n->next) {
    if (n->op != WK__FX_PLACEHOLDER) continue;
    if (!(b->values[b->count] = value_of_parameter(n, args, &used, rest))) return -1;
    b->count++;
  }
  return check_all_used(graph, args, used, rest);
}

static int bind(wk__fx_graph *graph, PyObject *args, PyObject *kwargs, binding *b) {
  bool by_position = graph->source && !graph->loaded && PyDict_GET_SIZE(kwargs) == 0 &&
                     PyTuple_GET_SIZE(args) == graph->argument_count;
  if (!by_position && wk__fx_graph_load(graph) < 0) return -1;
  Py_ssize_t room = by_position ? graph->argument_count : graph->count;
  if (!(b->values = PyMem_Calloc((size_t)room + 1, sizeof *b->values))) {
    PyErr_NoMemory();
    return -1;
  }
  if (by_position) return bind_by_position(graph, args, b);
  PyObject *rest = PyDict_Copy(kwargs);
  int status = rest ? bind_by_name(graph, args, rest, b) : -1;
  Py_XDECREF(rest);
  return status;
}

/* ==================================================== which way ================================================= */

/* A mode, inference or a tracer watches the calls: they have to be made. */
static bool is_watched(const wk__state *state) {
  return state->modes || wk__thread.mode.inference || wk__tracer_current();
}

/* A target that does nothing but compute: what it did once it does again. */
static bool is_pure_target(const wk__fx_graph *graph, PyObject *target) {
  const wk__state *state = graph->state;
  if (wk__is_overload(state, target) || Py_IS_TYPE(target, state->operator_type)) return true;
  PyObject *module = PyObject_GetAttrString(target, "__module__");
  const char *name = module && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : NULL;
  bool pure = name && (strcmp(name, "_operator") == 0 || strcmp(name, "wick.nn.functional") == 0 ||
                       strcmp(name, "wick.ops.aten.sym_size") == 0);
  PyErr_Clear();
  Py_XDECREF(module);
  static const char *const builtins[] = {"getattr", "min", "max"};
  for (size_t i = 0; i < WK_COUNT(builtins) && !pure; i++)
    pure = target == PyDict_GetItemString(PyEval_GetBuiltins(), builtins[i]);
  return pure;
}

static bool is_pure_method(const wk__fx_graph *graph, PyObject *name) {
  PyObject *method = PyObject_GetAttr((PyObject *)graph->state->tensor_type, name);
  bool pure = method && Py_IS_TYPE(method, graph->state->operator_type);
  PyErr_Clear();
  Py_XDECREF(method);
  return pure;
}

static bool can_be_traced(const wk__fx_graph *graph, const binding *b) {
  for (Py_ssize_t i = 0; i < b->count; i++)
    if (!wk__fx_is_plain_tensor(graph->state, b->values[i])) return false;
  for (const wk__fx_node *n = graph->root->next; n->op != WK__FX_ROOT; n = n->next) {
    if (n->op == WK__FX_CALL_MODULE) return false;
    if (n->op == WK__FX_CALL_FUNCTION && !is_pure_target(graph, n->target)) return false;
    if (n->op == WK__FX_CALL_METHOD && !is_pure_method(graph, n->target)) return false;
  }
  return true;
}

static void set_plan(wk__fx_graph *graph, wk__fx_plan *steal_plan) {
  wk__fx_plan *old = graph->plan;
  graph->plan = steal_plan;
  wk__fx_plan_release(old);
}

/* A graph made or changed in Python: its first call is traced. */
static PyObject *run_edited(wk__fx_graph *graph, PyObject *module, const binding *b) {  // -> new
  int misses = graph->plan ? graph->plan->misses + 1 : 0;
  bool traced = (!graph->plan || !graph->plan->hopeless) && misses < MAX_MISSES && can_be_traced(graph, b);
  if (!traced) return wk__fx_run_nodes(graph, module, b->values, NULL);
  wk__fx_plan *plan = NULL;
  PyObject *result = wk__fx_run_and_plan(graph, module, b->values, b->count, &plan);
  if (plan) {
    plan->misses = misses;
    set_plan(graph, plan);
  }
  return result;
}

static int try_plan(wk__fx_graph *graph, PyObject *module, const binding *b, PyObject **out_result) {
  wk__fx_plan *plan = graph->plan;
  if (plan && plan->version != graph->version) set_plan(graph, plan = NULL);
  if (!plan && graph->source && !graph->version) {
    if (!(plan = wk__fx_plan_of_source(graph))) return -1;
    set_plan(graph, plan);
  }
  if (!plan || plan->hopeless) return 0;
  plan->references++; /* what runs may edit the graph */
  int status = wk__fx_plan_run(graph, plan, module, b->values, out_result);
  wk__fx_plan_release(plan);
  return status;
}

static PyObject *run_bound(wk__fx_graph *graph, PyObject *module, const binding *b) {  // -> new
  PyObject *result = NULL;
  if (is_watched(graph->state)) return wk__fx_run_nodes(graph, module, b->values, NULL);
  int status = try_plan(graph, module, b, &result);
  if (status) return result;
  bool unedited = graph->source && !graph->version;
  return unedited ? wk__fx_run_nodes(graph, module, b->values, NULL) : run_edited(graph, module, b);
}

PyObject *wk__fx_graph_run(wk__fx_graph *graph, PyObject *module, PyObject *args, PyObject *kwargs) {  // -> new
  binding b = {0};
  PyObject *result = bind(graph, args, kwargs, &b) < 0 ? NULL : run_bound(graph, module, &b);
  release_binding(&b);
  return result;
}
