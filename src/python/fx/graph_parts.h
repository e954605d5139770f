/* What the files of the fx face share: Graph and Node objects, and functions over their arguments.
 *
 * A Graph is a list of nodes that programs change freely, as torch.fx's: arguments are any Python values with nodes in
 * them, targets any callable. It may stand for a graph of the IR, its `source`: then the nodes are made when they are
 * first asked for, and calls run the source itself until the first edit. An edited graph is run node by node, or traced
 * into a new IR graph (graph_run.c). */
#ifndef WICK_PYTHON_FX_GRAPH_PARTS_H
#define WICK_PYTHON_FX_GRAPH_PARTS_H

#include "execute/execute.h"
#include "python/data/interop.h"
#include "python/fx/graph_type.h"

typedef struct wk__fx_graph wk__fx_graph;
typedef struct wk__fx_plan wk__fx_plan;

typedef enum wk__fx_op {
  WK__FX_ROOT, /* the list's ends; no node of a program */
  WK__FX_PLACEHOLDER,
  WK__FX_GET_ATTR,
  WK__FX_CALL_FUNCTION,
  WK__FX_CALL_METHOD,
  WK__FX_CALL_MODULE,
  WK__FX_OUTPUT,
  WK__FX_OP_COUNT
} wk__fx_op;
extern const char *const wk__fx_op_names[WK__FX_OP_COUNT];

typedef struct wk__fx_node {
  PyObject_HEAD wk__fx_graph *graph;   /* owned: a cycle that the collector knows */
  struct wk__fx_node *previous, *next; /* owned; an erased node keeps them, so that loops over the list go on */
  PyObject *name, *target, *args, *kwargs, *type;
  PyObject *inputs; /* dict of the nodes among args and kwargs, in order */
  PyObject *users;  /* dict of the nodes that have this one as input */
  PyObject *meta;   /* dict; NULL: not asked for yet */
  PyObject *dict, *weak_references;
  const wk__graph_node *source; /* in graph->source; NULL: made by a program */
  uint8_t op;                   /* wk__fx_op */
  bool erased;
  bool taped; /* runs under autograd where the graph says which nodes do */
} wk__fx_node;

/* What argument of a graph with sizes among its arguments is given for: input `input` of the source, or the symbol that
 * is the size of its dim `dim`. */
typedef struct wk__fx_argument {
  int32_t input;
  int32_t dim; /* -1: the tensor */
} wk__fx_argument;

struct wk__fx_graph {
  PyObject_HEAD wk__state *state;
  wk__fx_node *root; /* owned: before the first and behind the last node */
  Py_ssize_t count;
  wk__fx_node *insert_at; /* owned: new nodes go before it, or behind it */
  bool insert_behind;
  PyObject *names;       /* dict: a name in use -> None */
  PyObject *name_counts; /* dict: the stem of a name -> the last number behind it */
  PyObject *owner;       /* weak reference to the GraphModule, or NULL */
  PyObject *tracer;      /* the class that traced it, or NULL */
  PyObject *weak_references;
  wk__graph *source;          /* owned, frozen; NULL: made in Python */
  PyObject *structure;        /* what the source's outputs are put into: wk__fx_output_mark for each; NULL: a tuple */
  PyObject *input_names;      /* list: of the source's inputs, arguments first, then attributes of the GraphModule */
  PyObject *constant_names;   /* list: of the attributes that its constants are */
  Py_ssize_t argument_count;  /* tensors, then numbers */
  Py_ssize_t number_count;    /* of the source: Python numbers that it takes behind the tensors */
  wk__fx_argument *arguments; /* (argument_count - number_count) owned: sizes, each before the first tensor that has it;
                               * NULL: argument i is input i */
  bool loaded;                /* the source's nodes are made */
  bool captured;              /* the source says which nodes run under autograd; else all do */
  uint64_t version;           /* counts edits; 0: the source is what it was */
  wk__fx_plan *plan;          /* how it is run; NULL: not run yet */
};

/* ---- graph_node.c ---- */
static inline bool wk__is_fx_node(const wk__state *state, PyObject *o) { return Py_IS_TYPE(o, state->graph_node_type); }
/* Takes the name. Does not put the node into the list. */
wk__fx_node *wk__fx_node_create(wk__fx_graph *graph, wk__fx_op op, PyObject *steal_name, PyObject *target,
                                PyObject *args, PyObject *kwargs, PyObject *type);  // -> new
int wk__fx_node_set_args(wk__fx_node *node, PyObject *args, PyObject *kwargs);      /* NULL: those it has */
void wk__fx_node_link(wk__fx_node *node, wk__fx_node *at, bool behind);
void wk__fx_node_unlink(wk__fx_node *node);
PyObject *wk__fx_node_meta(wk__fx_node *node);  // -> borrowed
bool wk__fx_node_is_impure(wk__fx_node *node, bool random_too);
int wk__add_graph_node(PyObject *module, wk__state *state);

/* ---- graph_values.c: values with nodes in them ---- */
typedef PyObject *wk__fx_leaf_fn(void *context, PyObject *leaf);  // -> new
/* The value with fn(leaf) for all that is no tuple, list, dict or slice. `immutable`: lists and dicts are the classes
 * of wick.fx.immutable_collections, else plain ones. */
PyObject *wk__fx_map(wk__state *state, PyObject *value, bool immutable, wk__fx_leaf_fn *fn, void *context);  // -> new
int wk__add_graph_values(PyObject *module);
/* module.name, imported once. */
PyObject *wk__fx_object(wk__state *state, const char *module, const char *name);  // -> borrowed
PyObject *wk__fx_list_of_keys(PyObject *dict);                                    // -> new
/* "torch.add", "torch.ops.aten.add.Tensor", "operator.getitem": where a program finds the target. */
PyObject *wk__fx_qualified_name(wk__state *state, PyObject *target);  // -> new

/* Loops over the list; the body must not take `n` out of it. */
#define WK__FX_EACH_NODE(n, graph) for (wk__fx_node *n = (graph)->root->next; n && n->op != WK__FX_ROOT; n = n->next)

/* ---- graph_names.c ---- */
PyObject *wk__fx_graph_new_name(wk__fx_graph *graph, PyObject *candidate);  // -> new, unique in the graph
PyObject *wk__fx_name_for_target(PyObject *target);  // -> new: the candidate for a node that calls it

/* ---- graph_type.c ---- */
wk__fx_graph *wk__fx_graph_create(wk__state *state);  // -> new
int wk__fx_graph_load(wk__fx_graph *graph);           /* makes the source's nodes */
wk__fx_node *wk__fx_graph_add(wk__fx_graph *graph, wk__fx_op op, PyObject *target, PyObject *args, PyObject *kwargs,
                              PyObject *name, PyObject *type);  // -> new, standing at the insert point
static inline void wk__fx_graph_edited(wk__fx_graph *graph) { graph->version += graph->loaded; }

PyObject *wk__fx_attribute(PyObject *module, PyObject *path);  // -> new: module.layer.weight

/* ---- graph_lists.c: Graph.nodes and insert points ---- */
PyObject *wk__fx_node_list(wk__fx_graph *graph);                                   // -> new
PyObject *wk__fx_insert_point(wk__fx_graph *graph, wk__fx_node *at, bool behind);  // -> new
int wk__add_graph_lists(PyObject *module, wk__state *state);

/* ---- graph_code.c ---- */
PyObject *wk__fx_format_node(wk__fx_node *node);    // -> new
PyObject *wk__fx_graph_text(wk__fx_graph *graph);   // -> new
PyObject *wk__fx_graph_table(wk__fx_graph *graph);  // -> new
/* The source text of forward; `globals` (a dict) gets what it uses besides its arguments. `readable`: with types and
 * places. */
PyObject *wk__fx_graph_code(wk__fx_graph *graph, const char *root, bool readable, PyObject *globals);  // -> new

/* ---- graph_source.c: from the IR ---- */
/* A graph that stands for an IR graph: the first `tensor_count` inputs are arguments, the others attributes. Takes
 * the lists, NULL: names of the source. */
wk__fx_graph *wk__fx_graph_over(wk__state *state, wk__graph *source, Py_ssize_t tensor_count,
                                PyObject *steal_input_names);  // -> new
int wk__fx_make_nodes(wk__fx_graph *graph);
PyObject *wk__fx_source_meta(const wk__fx_node *node);  // -> new
/* A GraphModule over a graph object; the source's constants become attributes, and those in `attributes` (a dict). */
PyObject *wk__fx_module_over(wk__fx_graph *graph, PyObject *attributes, PyObject *class_name);  // -> new
PyObject *wk__fx_output_mark(Py_ssize_t index);                                                 // -> new
Py_ssize_t wk__fx_output_of_mark(PyObject *mark); /* -1, no exception: something else */

/* ---- graph_symbols.c ---- */
/* A size as an int or as the node that gives it, made when it is first asked for. `nodes`: of the source, by number.
 * `memo`: dict of those made. */
PyObject *wk__fx_symbol_value(wk__fx_graph *graph, PyObject *const *nodes, PyObject *memo, wk_int x);  // -> new

/* ---- graph_run.c: calling a graph ---- */
PyObject *wk__fx_graph_run(wk__fx_graph *graph, PyObject *module, PyObject *args, PyObject *kwargs);  // -> new
void wk__fx_plan_release(wk__fx_plan *plan);
int wk__fx_plan_traverse(wk__fx_plan *plan, visitproc visit, void *arg);

/* ---- graph_nodes_run.c: node by node, in Python ---- */
/* `attributes`: NULL, or a dict that gets path -> value of the get_attr nodes. */
PyObject *wk__fx_run_nodes(wk__fx_graph *graph, PyObject *module, PyObject *const *values,
                           PyObject *attributes);  // -> new
PyObject *wk__fx_last_uses(wk__fx_graph *graph);   // -> new: dict of a node -> list of the inputs whose last use it is

/* ---- graph_plan.c: how a graph runs on the executor ---- */
typedef struct wk__fx_input {
  Py_ssize_t argument; /* position among the arguments, or -1 */
  PyObject *path;      /* of an attribute; NULL */
  wk_tensor *fixed;    /* neither: always this one */
  wk_tensor *shape;    /* what it has to look like: no storage */
  bool is_integer;     /* the argument is a number that the graph takes for the size of a tensor without values */
  bool requires_grad;
} wk__fx_input;
struct wk__fx_plan {
  int32_t references; /* under the interpreter's lock */
  uint64_t version;   /* of the graph that it is for */
  bool hopeless;      /* no executor can run the graph */
  bool exact;         /* traced with these inputs: strides and requires_grad have to be the same */
  bool taped;         /* the nodes say what runs under autograd; else only without */
  bool grad_enabled;
  int misses;
  wk__graph_executor *executor;
  const wk__graph *graph; /* the executor's */
  wk__fx_input *inputs;
  Py_ssize_t input_count;
  PyObject *result; /* output marks, argument marks and constants; NULL: a tuple of the outputs */
};
wk__fx_plan *wk__fx_plan_create(wk__fx_graph *graph, Py_ssize_t input_count);
wk__fx_plan *wk__fx_plan_of_source(wk__fx_graph *graph); /* NULL with an exception */
/* 1: ran, *out_result is new; 0: does not fit these arguments; -1: an exception. */
int wk__fx_plan_run(wk__fx_graph *graph, wk__fx_plan *plan, PyObject *module, PyObject *const *values,
                    PyObject **out_result);
bool wk__fx_is_plain_tensor(const wk__state *state, PyObject *o);

/* ---- graph_trace.c: Python calls into IR graphs ---- */
/* Runs the nodes once under a tracer; what they recorded becomes the plan of later calls. */
PyObject *wk__fx_run_and_plan(wk__fx_graph *graph, PyObject *module, PyObject *const *values, Py_ssize_t count,
                              wk__fx_plan **out_plan);  // -> new
int wk__add_graph_tracing(PyObject *module);

/* ---- op_overload.c: torch.ops.aten.add.Tensor ---- */
typedef enum wk__overload_form {
  WK__OVERLOAD_PLAIN,
  WK__OVERLOAD_IN_PLACE,   /* add_.Tensor */
  WK__OVERLOAD_FUNCTIONAL, /* of an operator that mutates: gives the new values */
} wk__overload_form;
bool wk__is_overload(const wk__state *state, PyObject *o);
const wk_op *wk__overload_op(PyObject *overload, wk__overload_form *out_form);
PyObject *wk__overload_of(wk__state *state, const wk_op *op, wk__overload_form form);  // -> new; one object for each
int wk__add_overloads(PyObject *module, wk__state *state);

/* custom_op.c: what a node calls whose operator a program has defined; NULL without an exception: it is no such one. */
PyObject *wk__custom_op_target(const wk_op *op, bool functional);  // -> new
int wk__add_custom_operators(PyObject *module);

#endif
