/* The fx face of the graph IR, for the parts of the extension module that make graphs: dynamo's backends get what
 * wk__graph_module_create gives. */
#ifndef WICK_PYTHON_FX_GRAPH_TYPE_H
#define WICK_PYTHON_FX_GRAPH_TYPE_H

#include "graph/graph.h"
#include "python/python.h"

/* A wick.fx.GraphModule over the graph, which is retained and frozen (a graph that is not frozen is copied first). Its
 * forward takes the inputs in order and gives a tuple of the outputs; inputs that the graph mutates are written when it
 * runs. Calls go through the executor until it is edited, taped nodes under autograd. */
PyObject *wk__graph_module_create(wk__state *state, wk__graph *graph);  // -> new
/* The same for a graph with symbols: forward takes their values too, each before the first tensor that has it.
 * integers: (inputs) those inputs are symbols alone, whatever tensor the graph has in their place. */
PyObject *wk__graph_module_with_sizes(wk__state *state, wk__graph *graph, const bool *integers);  // -> new

int wk__add_graph_types(PyObject *module, wk__state *state);
int wk__add_loaded_graph(PyObject *module);   /* loaded_graph.c */
int wk__add_decompositions(PyObject *module); /* decompositions.c */

#endif
