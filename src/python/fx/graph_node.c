/* GraphNode: one operation of a Graph, with torch.fx's attributes.
 * In: targets and arguments as programs give them. Out: nodes in a doubly linked list around the graph's root.
 * Invariant: `inputs` are the nodes among the arguments, each once; a node is among the users of exactly its inputs.
 * Tests: tests/python/test_fx.py. */
#include "dynamo/cpython/objects.h"
#include "python/fx/graph_parts.h"

#include <structmember.h>

const char *const wk__fx_op_names[WK__FX_OP_COUNT] = {"root",        "placeholder", "get_attr", "call_function",
                                                      "call_method", "call_module", "output"};

static wk__fx_node *of(PyObject *o) { return (wk__fx_node *)o; }

/* =================================================== arguments ================================================== */

/* The value itself; nodes are noted on the way. */
static PyObject *note_input(void *context, PyObject *leaf) {  // -> new
  wk__fx_node *node = context;
  if (wk__is_fx_node(node->graph->state, leaf) && PyDict_SetItem(node->inputs, leaf, Py_None) < 0) return NULL;
  return Py_NewRef(leaf);
}

static int forget_inputs(wk__fx_node *node) {
  PyObject *input, *none;
  Py_ssize_t at = 0;
  while (node->inputs && PyDict_Next(node->inputs, &at, &input, &none)) {
    PyObject *users = of(input)->users;
    if (users && PyDict_Contains(users, (PyObject *)node) > 0 && PyDict_DelItem(users, (PyObject *)node) < 0) return -1;
  }
  if (node->inputs) PyDict_Clear(node->inputs);
  return 0;
}

static int become_user(wk__fx_node *node) {
  PyObject *input, *none;
  Py_ssize_t at = 0;
  while (PyDict_Next(node->inputs, &at, &input, &none))
    if (PyDict_SetItem(of(input)->users, (PyObject *)node, Py_None) < 0) return -1;
  return 0;
}

static int check_args(PyObject *args, PyObject *kwargs) {
  bool fits = (!args || PyTuple_Check(args)) && (!kwargs || PyDict_Check(kwargs));
  if (fits) return 0;
  bool bad_args = args && !PyTuple_Check(args);
  PyErr_Format(PyExc_AssertionError, bad_args ? "args must be a tuple, got %R" : "kwargs must be a dict, got %R",
               (PyObject *)Py_TYPE(bad_args ? args : kwargs));
  return -1;
}

int wk__fx_node_set_args(wk__fx_node *node, PyObject *args, PyObject *kwargs) {
  wk__state *state = node->graph->state;
  if (check_args(args, kwargs) < 0 || forget_inputs(node) < 0) return -1;
  PyObject *new_args = wk__fx_map(state, args ? args : node->args, true, note_input, node);
  PyObject *new_kwargs = new_args ? wk__fx_map(state, kwargs ? kwargs : node->kwargs, true, note_input, node) : NULL;
  if (!new_kwargs) {
    Py_XDECREF(new_args);
    return -1;
  }
  Py_XSETREF(node->args, new_args);
  Py_XSETREF(node->kwargs, new_kwargs);
  wk__fx_graph_edited(node->graph);
  return become_user(node);
}

/* =================================================== the list =================================================== */

static void set_link(wk__fx_node **link, wk__fx_node *to) { Py_XSETREF(*link, (wk__fx_node *)Py_NewRef(to)); }

void wk__fx_node_unlink(wk__fx_node *node) {
  set_link(&node->previous->next, node->next);
  set_link(&node->next->previous, node->previous);
}

void wk__fx_node_link(wk__fx_node *node, wk__fx_node *at, bool behind) {
  wk__fx_node *previous = behind ? at : at->previous, *next = previous->next;
  set_link(&node->previous, previous);
  set_link(&node->next, next);
  set_link(&previous->next, node);
  set_link(&next->previous, node);
  wk__fx_graph_edited(node->graph);
}

/* append(x), prepend(x): x moves next to the node. */
static PyObject *move(PyObject *self, PyObject *other, bool behind) {  // -> new
  wk__fx_node *node = of(self);
  if (!wk__is_fx_node(node->graph->state, other) || of(other)->graph != node->graph) {
    PyErr_SetString(PyExc_AssertionError, "Attempting to move a Node into a different Graph");
    return NULL;
  }
  if (other == self) Py_RETURN_NONE;
  wk__fx_node_unlink(of(other));
  wk__fx_node_link(of(other), node, behind);
  Py_RETURN_NONE;
}
static PyObject *node_append(PyObject *self, PyObject *other) { return move(self, other, true); }    // -> new
static PyObject *node_prepend(PyObject *self, PyObject *other) { return move(self, other, false); }  // -> new

/* ==================================================== making ==================================================== */

static int check_target(wk__fx_graph *graph, wk__fx_op op, PyObject *name, PyObject *target) {
  bool fits = op == WK__FX_CALL_FUNCTION ? PyCallable_Check(target) : op == WK__FX_ROOT || PyUnicode_Check(target);
  if (fits) return 0;
  const char *expected = op == WK__FX_CALL_FUNCTION ? "a Callable" : "a str";
  PyObject *text = wk__fx_graph_text(graph);
  if (text)
    PyErr_Format(PyExc_ValueError, "Node [graph = %U, name = '%U'] target %S has type %s but %s is expected", text,
                 name, target, Py_TYPE(target)->tp_name, expected);
  Py_XDECREF(text);
  return -1;
}

wk__fx_node *wk__fx_node_create(wk__fx_graph *graph, wk__fx_op op, PyObject *steal_name, PyObject *target,
                                PyObject *args, PyObject *kwargs, PyObject *type) {  // -> new
  PyTypeObject *node_type = graph->state->graph_node_type;
  wk__fx_node *node = steal_name ? (wk__fx_node *)node_type->tp_alloc(node_type, 0) : NULL;
  if (!node) {
    Py_XDECREF(steal_name);
    return NULL;
  }
  node->graph = (wk__fx_graph *)Py_NewRef(graph);
  node->op = (uint8_t)op;
  node->name = steal_name;
  node->target = Py_NewRef(target);
  node->type = Py_NewRef(type ? type : Py_None);
  node->taped = true;
  node->inputs = PyDict_New();
  node->users = PyDict_New();
  PyObject *no_args = args ? NULL : PyTuple_New(0), *no_kwargs = kwargs ? NULL : PyDict_New();
  int status = node->inputs && node->users && (args || no_args) && (kwargs || no_kwargs) ? 0 : -1;
  if (status == 0) status = check_args(args, kwargs);
  if (status == 0) status = check_target(graph, op, node->name, target);
  if (status == 0 && op != WK__FX_ROOT)
    status = wk__fx_node_set_args(node, args ? args : no_args, kwargs ? kwargs : no_kwargs);
  Py_XDECREF(no_args);
  Py_XDECREF(no_kwargs);
  if (status == 0) return node;
  Py_DECREF(node);
  return NULL;
}

static int node_traverse(PyObject *self, visitproc visit, void *arg) {
  wk__fx_node *n = of(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(n->graph);
  Py_VISIT(n->previous);
  Py_VISIT(n->next);
  Py_VISIT(n->target);
  Py_VISIT(n->args);
  Py_VISIT(n->kwargs);
  Py_VISIT(n->type);
  Py_VISIT(n->inputs);
  Py_VISIT(n->users);
  Py_VISIT(n->meta);
  Py_VISIT(n->dict);
  return 0;
}
/* The graph stays: other methods look at it as long as the object lives. */
static int node_clear(PyObject *self) {
  wk__fx_node *n = of(self);
  Py_CLEAR(n->previous);
  Py_CLEAR(n->next);
  Py_CLEAR(n->target);
  Py_CLEAR(n->args);
  Py_CLEAR(n->kwargs);
  Py_CLEAR(n->type);
  Py_CLEAR(n->inputs);
  Py_CLEAR(n->users);
  Py_CLEAR(n->meta);
  Py_CLEAR(n->dict);
  return 0;
}
static void node_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (of(self)->weak_references) PyObject_ClearWeakRefs(self);
  (void)node_clear(self);
  Py_CLEAR(of(self)->name);
  Py_CLEAR(of(self)->graph);
  type->tp_free(self);
  Py_DECREF(type);
}

/* =================================================== attributes ================================================= */

PyObject *wk__fx_node_meta(wk__fx_node *node) {  // -> borrowed
  if (!node->meta) node->meta = node->source ? wk__fx_source_meta(node) : PyDict_New();
  return node->meta;
}

static PyObject *get_op(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyUnicode_InternFromString(wk__fx_op_names[of(self)->op]);
}
static int set_op(PyObject *self, PyObject *value, void *unused) {
  (void)unused;
  for (int i = 1; value && PyUnicode_Check(value) && i < WK__FX_OP_COUNT; i++) {
    if (PyUnicode_CompareWithASCIIString(value, wk__fx_op_names[i]) != 0) continue;
    of(self)->op = (uint8_t)i;
    wk__fx_graph_edited(of(self)->graph);
    return 0;
  }
  PyErr_Format(PyExc_AssertionError, "op '%S' is not in _legal_ops", value);
  return -1;
}

static int refuse_deletion(PyObject *value) {
  if (!value) PyErr_SetString(PyExc_AttributeError, "a Node's attributes cannot be deleted");
  return value ? 0 : -1;
}

static PyObject *get_name(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return Py_NewRef(of(self)->name);
}
static int set_name(PyObject *self, PyObject *value, void *unused) {
  (void)unused;
  if (refuse_deletion(value) < 0 || PyObject_RichCompareBool(value, of(self)->name, Py_EQ) == 1)
    return PyErr_Occurred() ? -1 : 0;
  PyObject *name = wk__fx_graph_new_name(of(self)->graph, value);
  if (!name) return -1;
  Py_SETREF(of(self)->name, name);
  return 0;
}

/* A member by its offset: target, type. */
static PyObject *get_member(PyObject *self, void *offset) {  // -> new
  PyObject *value = *(PyObject **)((char *)self + (uintptr_t)offset);
  return Py_NewRef(value ? value : Py_None);
}
static int set_member(PyObject *self, PyObject *value, void *offset) {
  PyObject **place = (PyObject **)((char *)self + (uintptr_t)offset);
  if (refuse_deletion(value) < 0) return -1;
  Py_XSETREF(*place, Py_NewRef(value));
  wk__fx_graph_edited(of(self)->graph);
  return 0;
}

static int set_args(PyObject *self, PyObject *value, void *unused) {
  (void)unused;
  return refuse_deletion(value) < 0 ? -1 : wk__fx_node_set_args(of(self), value, NULL);
}
static int set_kwargs(PyObject *self, PyObject *value, void *unused) {
  (void)unused;
  return refuse_deletion(value) < 0 ? -1 : wk__fx_node_set_args(of(self), NULL, value);
}

static PyObject *get_inputs(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return wk__fx_list_of_keys(of(self)->inputs);
}
static PyObject *get_inputs_as_keys(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyDict_Copy(of(self)->inputs);
}

static PyObject *get_meta(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return Py_XNewRef(wk__fx_node_meta(of(self)));
}
static int set_meta(PyObject *self, PyObject *value, void *unused) {
  (void)unused;
  if (!value || !PyDict_Check(value)) {
    PyErr_SetString(PyExc_TypeError, "meta must be a dict");
    return -1;
  }
  Py_XSETREF(of(self)->meta, Py_NewRef(value));
  return 0;
}

static PyObject *get_stack_trace(PyObject *self, void *unused) {  // -> new
  (void)unused;
  PyObject *meta = wk__fx_node_meta(of(self));
  PyObject *trace = meta ? PyDict_GetItemString(meta, "stack_trace") : NULL;
  return meta ? Py_NewRef(trace ? trace : Py_None) : NULL;
}
static int set_stack_trace(PyObject *self, PyObject *value, void *unused) {
  (void)unused;
  PyObject *meta = refuse_deletion(value) < 0 ? NULL : wk__fx_node_meta(of(self));
  return meta ? PyDict_SetItemString(meta, "stack_trace", value) : -1;
}

static PyObject *get_erased(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyBool_FromLong(of(self)->erased);
}

static PyObject *get_taped(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyBool_FromLong(of(self)->taped);
}

#define MEMBER(field) ((void *)offsetof(wk__fx_node, field))
static PyGetSetDef getset[] = {
    {"op", get_op, set_op, "'placeholder', 'get_attr', 'call_function', 'output', ...", NULL},
    {"name", get_name, set_name, "Unique in the graph; a name that is taken gets a number.", NULL},
    {"target", get_member, set_member, "What is called; a name for other ops.", MEMBER(target)},
    {"type", get_member, set_member, "An annotation, or None.", MEMBER(type)},
    {"args", get_member, set_args, "Positional arguments; nodes stand for their values.", MEMBER(args)},
    {"kwargs", get_member, set_kwargs, "Keyword arguments.", MEMBER(kwargs)},
    {"users", get_member, NULL, "The nodes that use this one, as keys.", MEMBER(users)},
    {"all_input_nodes", get_inputs, NULL, "The nodes among the arguments, each once.", NULL},
    {"_input_nodes", get_inputs_as_keys, NULL, "The same as keys.", NULL},
    {"meta", get_meta, set_meta, "A dict for passes over the graph; 'val' describes the value.", NULL},
    {"stack_trace", get_stack_trace, set_stack_trace, "Where in the program the node was made, or None.", NULL},
    {"graph", get_member, NULL, "The graph that it belongs to.", MEMBER(graph)},
    {"next", get_member, NULL, "The node behind it.", MEMBER(next)},
    {"prev", get_member, NULL, "The node before it.", MEMBER(previous)},
    {"_erased", get_erased, NULL, NULL, NULL},
    {"_taped", get_taped, NULL, "Whether it ran under autograd when it was captured.", NULL},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {0}};

/* ================================================ changing arguments ============================================ */

static PyObject *done(int status) {  // -> new
  if (status < 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject *update_arg(PyObject *self, PyObject *args) {  // -> new
  Py_ssize_t index;
  PyObject *value;
  if (!PyArg_ParseTuple(args, "nO", &index, &value)) return NULL;
  PyObject *list = PySequence_List(of(self)->args);
  int status = list ? PySequence_SetItem(list, index, value) : -1;
  PyObject *tuple = status == 0 ? PyList_AsTuple(list) : NULL;
  status = tuple ? wk__fx_node_set_args(of(self), tuple, NULL) : -1;
  Py_XDECREF(list);
  Py_XDECREF(tuple);
  return done(status);
}

static PyObject *insert_arg(PyObject *self, PyObject *args) {  // -> new
  Py_ssize_t index;
  PyObject *value;
  if (!PyArg_ParseTuple(args, "nO", &index, &value)) return NULL;
  if (index < 0 || index > PyTuple_GET_SIZE(of(self)->args)) {
    PyErr_SetString(PyExc_AssertionError, "insert_args index must be between 0 and len(self.args)");
    return NULL;
  }
  PyObject *list = PySequence_List(of(self)->args);
  PyObject *tuple = list && PyList_Insert(list, index, value) == 0 ? PyList_AsTuple(list) : NULL;
  int status = tuple ? wk__fx_node_set_args(of(self), tuple, NULL) : -1;
  Py_XDECREF(list);
  Py_XDECREF(tuple);
  return done(status);
}

static PyObject *update_kwarg(PyObject *self, PyObject *args) {  // -> new
  PyObject *key, *value, *dict = PyDict_New();
  int status = dict && PyArg_ParseTuple(args, "UO", &key, &value) ? PyDict_Update(dict, of(self)->kwargs) : -1;
  if (status == 0) status = PyDict_SetItem(dict, key, value);
  if (status == 0) status = wk__fx_node_set_args(of(self), NULL, dict);
  Py_XDECREF(dict);
  return done(status);
}

typedef struct replacement {
  PyObject *old, *by;
} replacement;
static PyObject *replaced(void *context, PyObject *leaf) {  // -> new
  const replacement *r = context;
  return Py_NewRef(leaf == r->old ? r->by : leaf);
}

static int replace_in(wk__fx_node *user, PyObject *old, PyObject *by) {
  replacement r = {old, by};
  wk__state *state = user->graph->state;
  PyObject *args = wk__fx_map(state, user->args, false, replaced, &r);
  PyObject *kwargs = args ? wk__fx_map(state, user->kwargs, false, replaced, &r) : NULL;
  int status = kwargs ? wk__fx_node_set_args(user, args, kwargs) : -1;
  Py_XDECREF(args);
  Py_XDECREF(kwargs);
  return status;
}

static PyObject *replace_input_with(PyObject *self, PyObject *args) {  // -> new
  wk__state *state = of(self)->graph->state;
  PyObject *old, *by;
  if (!PyArg_ParseTuple(args, "O!O!", state->graph_node_type, &old, state->graph_node_type, &by)) return NULL;
  return done(replace_in(of(self), old, by));
}

/* 1: this user is to be changed, 0: not, -1: an exception. */
static int is_wanted(PyObject *wanted, PyObject *user) {
  PyObject *answer = wanted && wanted != Py_None ? PyObject_CallOneArg(wanted, user) : Py_NewRef(Py_True);
  int truth = answer ? PyObject_IsTrue(answer) : -1;
  Py_XDECREF(answer);
  return truth;
}

static PyObject *replace_in_users(PyObject *self, PyObject *by, PyObject *wanted) {  // -> new
  PyObject *users = PyDict_Keys(of(self)->users), *changed = users ? PyList_New(0) : NULL;
  for (Py_ssize_t i = 0; changed && i < PyList_GET_SIZE(users); i++) {
    PyObject *user = PyList_GET_ITEM(users, i);
    int truth = is_wanted(wanted, user);
    if (truth < 0 || (truth && (replace_in(of(user), self, by) < 0 || PyList_Append(changed, user) < 0)))
      Py_CLEAR(changed);
  }
  Py_XDECREF(users);
  return changed;
}

static int hand_meta_over(wk__fx_node *from, wk__fx_node *to) {
  PyObject *old = wk__fx_node_meta(from), *meta = wk__fx_node_meta(to);
  if (!old || !meta) return -1;
  if (PyDict_GET_SIZE(meta) == 0) return PyDict_Update(meta, old);
  PyErr_SetString(PyExc_AssertionError,
                  "Called node.replace_all_uses_with(replace_with, propagate_meta=True), but replace_with already has "
                  ".meta keys");
  return -1;
}

static PyObject *replace_all_uses_with(PyObject *self, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"replace_with", "delete_user_cb", "propagate_meta", NULL};
  PyObject *by, *wanted = NULL;
  int propagate = 0;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!|O$p", names, of(self)->graph->state->graph_node_type, &by,
                                   &wanted, &propagate))
    return NULL;
  if (propagate && hand_meta_over(of(self), of(by)) < 0) return NULL;
  return replace_in_users(self, by, wanted);
}

/* ===================================================== facts ==================================================== */

static bool is_effect_function(PyObject *target) {
  PyObject *name = PyObject_GetAttrString(target, "__name__"), *module = PyObject_GetAttrString(target, "__module__");
  bool effect = name && module && PyUnicode_Check(name) && PyUnicode_Check(module) &&
                PyUnicode_CompareWithASCIIString(name, "setitem") == 0 &&
                PyUnicode_CompareWithASCIIString(module, "_operator") == 0;
  PyErr_Clear();
  Py_XDECREF(name);
  Py_XDECREF(module);
  return effect;
}

/* Writes something, or draws random numbers: stays although it has no users. */
bool wk__fx_node_is_impure(wk__fx_node *node, bool random_too) {
  const wk__state *state = node->graph->state;
  bool in_place = false, is_method;
  if (node->op == WK__FX_PLACEHOLDER || node->op == WK__FX_OUTPUT || node->op == WK__FX_CALL_MODULE) return true;
  if (node->op != WK__FX_CALL_FUNCTION) return false;
  const wk_op *op;
  uint32_t unwanted = WK__TAG_MUTATES | (random_too ? WK__TAG_RANDOM : 0);
  wk__overload_form form = WK__OVERLOAD_PLAIN;
  if (wk__is_overload(state, node->target))
    op = wk__overload_op(node->target, &form);
  else if (Py_IS_TYPE(node->target, state->operator_type))
    op = wk__operator_first(node->target, &in_place, &is_method);
  else
    return is_effect_function(node->target);
  if (form == WK__OVERLOAD_FUNCTIONAL) unwanted &= ~(uint32_t)WK__TAG_MUTATES;
  return in_place || form == WK__OVERLOAD_IN_PLACE || op->tags & unwanted;
}

static PyObject *is_impure(PyObject *self, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"impure_random", NULL};
  int random_too = 1;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "|p", names, &random_too)) return NULL;
  return PyBool_FromLong(wk__fx_node_is_impure(of(self), random_too));
}

static PyObject *format_node(PyObject *self, PyObject *args, PyObject *keywords) {  // -> new
  (void)args, (void)keywords;
  return wk__fx_format_node(of(self));
}
static PyObject *node_repr(PyObject *self) { return Py_NewRef(of(self)->name); }  // -> new

/* `a` stands before `b`. */
static bool stands_before(const wk__fx_node *a, const wk__fx_node *b) {
  for (const wk__fx_node *n = a->next; n && n->op != WK__FX_ROOT; n = n->next)
    if (n == b) return true;
  return false;
}

static PyObject *node_compare(PyObject *a, PyObject *b, int comparison) {  // -> new
  if (Py_TYPE(a) != Py_TYPE(b)) Py_RETURN_NOTIMPLEMENTED;
  bool less = comparison == Py_LT || comparison == Py_LE;
  switch (comparison) {
    case Py_EQ:
    case Py_NE:
      return PyBool_FromLong((a == b) == (comparison == Py_EQ));
    case Py_LE:
    case Py_GE:
      if (a == b) Py_RETURN_TRUE;
      /* fall through */
    default:
      return PyBool_FromLong(less ? stands_before(of(a), of(b)) : stands_before(of(b), of(a)));
  }
}
static Py_hash_t node_hash(PyObject *self) { return wk__hash_of_address(self); }

#define KEYWORDS(f) ((PyCFunction)(void (*)(void))(f)), METH_VARARGS | METH_KEYWORDS
static PyMethodDef methods[] = {
    {"append", node_append, METH_O, "Moves the other node right behind this one."},
    {"prepend", node_prepend, METH_O, "Moves the other node right before this one."},
    {"update_arg", update_arg, METH_VARARGS, "update_arg(1, y): another positional argument."},
    {"insert_arg", insert_arg, METH_VARARGS, "insert_arg(1, y): one more positional argument."},
    {"update_kwarg", update_kwarg, METH_VARARGS, "update_kwarg('dim', 0)"},
    {"replace_all_uses_with", KEYWORDS(replace_all_uses_with),
     "Gives another node to all users, or to those for which delete_user_cb(user) is true; returns them."},
    {"replace_input_with", replace_input_with, METH_VARARGS, "replace_input_with(old, new) in this node's arguments."},
    {"is_impure", KEYWORDS(is_impure), "Whether it has to stay although it has no users."},
    {"format_node", KEYWORDS(format_node), "The node as a line of text."},
    {0}};
static PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(wk__fx_node, weak_references), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(wk__fx_node, dict), READONLY, NULL},
    {0}};
static PyType_Slot slots[] = {{Py_tp_doc, "One operation of a Graph."},
                              {Py_tp_dealloc, node_dealloc},
                              {Py_tp_traverse, node_traverse},
                              {Py_tp_clear, node_clear},
                              {Py_tp_repr, node_repr},
                              {Py_tp_richcompare, node_compare},
                              {Py_tp_hash, node_hash},
                              {Py_tp_getset, getset},
                              {Py_tp_methods, methods},
                              {Py_tp_members, members},
                              {0, NULL}};
static PyType_Spec spec = {.name = "wick._C.GraphNode",
                           .basicsize = sizeof(wk__fx_node),
                           .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                           .slots = slots};

int wk__add_graph_node(PyObject *module, wk__state *state) {
  state->graph_node_type = wk__add_type(module, &spec, NULL, "GraphNode");
  return state->graph_node_type ? 0 : -1;
}
