/* What stands around a Graph: its list of nodes as an iterable, and insert points as context managers.
 * Invariant: a loop over the nodes goes on rightly when nodes are added, moved or erased inside it.
 * Tests: tests/python/test_fx.py. */
#include "python/fx/graph_parts.h"

typedef struct node_list {
  PyObject_HEAD wk__fx_graph *graph; /* owned */
  wk__fx_node *at;                   /* owned: of an iterator, the node given last; NULL: it is a list, or has ended */
  bool backward;
} node_list;

typedef struct insert_point {
  PyObject_HEAD wk__fx_graph *graph; /* owned */
  wk__fx_node *before;               /* owned: the graph's earlier insert point */
  bool before_behind;
} insert_point;

static PyObject *cached_type(wk__state *state, const char *name) {  // -> borrowed
  return wk__fx_object(state, "wick._C", name);
}

/* ================================================ the list of nodes ============================================= */

static PyObject *new_list(wk__fx_graph *graph, const char *type_name, wk__fx_node *at, bool backward) {  // -> new
  PyTypeObject *type = (PyTypeObject *)cached_type(graph->state, type_name);
  node_list *list = type ? (node_list *)type->tp_alloc(type, 0) : NULL;
  if (!list) return NULL;
  list->graph = (wk__fx_graph *)Py_NewRef(graph);
  list->at = (wk__fx_node *)Py_XNewRef(at);
  list->backward = backward;
  return (PyObject *)list;
}
PyObject *wk__fx_node_list(wk__fx_graph *graph) {  // -> new
  return wk__fx_graph_load(graph) < 0 ? NULL : new_list(graph, "_NodeList", NULL, false);
}

static int list_traverse(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(((node_list *)self)->graph);
  Py_VISIT(((node_list *)self)->at);
  return 0;
}
static int list_clear(PyObject *self) {
  Py_CLEAR(((node_list *)self)->graph);
  Py_CLEAR(((node_list *)self)->at);
  return 0;
}
static void list_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  (void)list_clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}

static Py_ssize_t list_length(PyObject *self) { return ((node_list *)self)->graph->count; }
static PyObject *list_iterator(PyObject *self) {  // -> new
  wk__fx_graph *graph = ((node_list *)self)->graph;
  return new_list(graph, "_NodeIterator", graph->root, false);
}
static PyObject *list_reversed(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  wk__fx_graph *graph = ((node_list *)self)->graph;
  return new_list(graph, "_NodeIterator", graph->root, true);
}

/* An erased node leads on to where it stood. */
static PyObject *iterator_next(PyObject *self) {  // -> new; NULL without an exception at the end
  node_list *i = (node_list *)self;
  wk__fx_node *n = i->at;
  do n = n ? (i->backward ? n->previous : n->next) : NULL;
  while (n && n->erased);
  if (n && n->op == WK__FX_ROOT) n = NULL;
  Py_XSETREF(i->at, (wk__fx_node *)Py_XNewRef(n));
  return Py_XNewRef((PyObject *)n);
}

static PyMethodDef list_methods[] = {{"__reversed__", list_reversed, METH_NOARGS, NULL}, {0}};
static PyType_Slot list_slots[] = {{Py_tp_dealloc, list_dealloc},   {Py_tp_traverse, list_traverse},
                                   {Py_tp_clear, list_clear},       {Py_tp_iter, list_iterator},
                                   {Py_sq_length, list_length},     {Py_tp_methods, list_methods},
                                   {Py_tp_doc, "A graph's nodes."}, {0, NULL}};
static PyType_Slot iterator_slots[] = {{Py_tp_dealloc, list_dealloc},   {Py_tp_traverse, list_traverse},
                                       {Py_tp_clear, list_clear},       {Py_tp_iter, PyObject_SelfIter},
                                       {Py_tp_iternext, iterator_next}, {0, NULL}};
enum { HIDDEN = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION };
static PyType_Spec list_spec = {
    .name = "wick._C._NodeList", .basicsize = sizeof(node_list), .flags = HIDDEN, .slots = list_slots};
static PyType_Spec iterator_spec = {
    .name = "wick._C._NodeIterator", .basicsize = sizeof(node_list), .flags = HIDDEN, .slots = iterator_slots};

/* ================================================== insert points =============================================== */

static void set_point(wk__fx_graph *graph, wk__fx_node *at, bool behind) {
  Py_SETREF(graph->insert_at, (wk__fx_node *)Py_NewRef(at));
  graph->insert_behind = behind;
}

PyObject *wk__fx_insert_point(wk__fx_graph *graph, wk__fx_node *at, bool behind) {  // -> new
  PyTypeObject *type = (PyTypeObject *)cached_type(graph->state, "_InsertPoint");
  insert_point *p = type ? (insert_point *)type->tp_alloc(type, 0) : NULL;
  if (!p) return NULL;
  p->graph = (wk__fx_graph *)Py_NewRef(graph);
  p->before = (wk__fx_node *)Py_NewRef(graph->insert_at);
  p->before_behind = graph->insert_behind;
  set_point(graph, at, behind);
  return (PyObject *)p;
}

static PyObject *point_enter(PyObject *self, PyObject *unused) {  // -> new
  (void)self, (void)unused;
  Py_RETURN_NONE;
}
static PyObject *point_exit(PyObject *self, PyObject *unused) {  // -> new
  insert_point *p = (insert_point *)self;
  (void)unused;
  wk__fx_node *at = p->before;
  while (at->erased) at = p->before_behind ? at->previous : at->next; /* erased inside the block */
  set_point(p->graph, at, p->before_behind);
  Py_RETURN_NONE;
}

static int point_traverse(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(((insert_point *)self)->graph);
  Py_VISIT(((insert_point *)self)->before);
  return 0;
}
static void point_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Py_CLEAR(((insert_point *)self)->graph);
  Py_CLEAR(((insert_point *)self)->before);
  type->tp_free(self);
  Py_DECREF(type);
}

static PyMethodDef point_methods[] = {
    {"__enter__", point_enter, METH_NOARGS, NULL}, {"__exit__", point_exit, METH_VARARGS, NULL}, {0}};
static PyType_Slot point_slots[] = {{Py_tp_dealloc, point_dealloc},
                                    {Py_tp_traverse, point_traverse},
                                    {Py_tp_methods, point_methods},
                                    {Py_tp_doc, "Nodes made inside the block stand here."},
                                    {0, NULL}};
static PyType_Spec point_spec = {
    .name = "wick._C._InsertPoint", .basicsize = sizeof(insert_point), .flags = HIDDEN, .slots = point_slots};

int wk__add_graph_lists(PyObject *module, wk__state *state) {
  (void)state;
  PyType_Spec *specs[] = {&list_spec, &iterator_spec, &point_spec};
  for (size_t i = 0; i < WK_COUNT(specs); i++) {
    PyTypeObject *type = wk__add_type(module, specs[i], NULL, strrchr(specs[i]->name, '.') + 1);
    if (!type) return -1;
    Py_DECREF(type); /* the module keeps it */
  }
  return 0;
}
