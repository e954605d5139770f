/* Symbolic sizes of an IR graph as nodes: a symbol is sym_size.int of the input that has it, an expression is calls of
 * Python's operators. So that an edited graph can be run for any sizes. Tests: tests/python/test_fx.py. */
#include "python/fx/graph_parts.h"

/* Takes the operands, which may be NULL with an exception. */
static PyObject *apply(wk__fx_graph *graph, const char *module, const char *function, PyObject *steal_a,
                       PyObject *steal_b) {  // -> new
  PyObject *target = wk__fx_object(graph->state, module, function);
  PyObject *args = target && steal_a && steal_b ? PyTuple_Pack(2, steal_a, steal_b) : NULL;
  bool size = strcmp(function, "_sym_size") == 0;
  PyObject *name = args ? PyUnicode_FromString(size ? "sym_size_int" : function) : NULL;
  PyObject *node =
      name ? (PyObject *)wk__fx_graph_add(graph, WK__FX_CALL_FUNCTION, target, args, NULL, name, NULL) : NULL;
  Py_XDECREF(args);
  Py_XDECREF(name);
  Py_XDECREF(steal_a);
  Py_XDECREF(steal_b);
  return node;
}

static PyObject *text_of(wk_int x) {  // -> new
  wk__string s = {0};
  wk_int_print(&s, x);
  PyObject *text = PyUnicode_FromString(s.text ? s.text : "?");
  wk__string_release(&s);
  return text;
}

/* The size of an input; its name as text when no input has it. */
static PyObject *symbol(wk__fx_graph *graph, PyObject *const *nodes, wk_int x) {  // -> new
  for (int64_t i = 0; i < graph->source->input_count; i++) {
    const wk__graph_node *input = graph->source->inputs[i];
    PyObject *node = nodes[input->number];
    for (int d = 0; node && d < input->value->ndim; d++)
      if (wk_int_same(input->value->sizes[d], x))
        return apply(graph, "wick._ops", "_sym_size", Py_NewRef(node), PyLong_FromLong(d));
  }
  return text_of(x);
}

static PyObject *of_operands(wk__fx_graph *graph, PyObject *const *nodes, PyObject *memo, wk_int x, const char *module,
                             const char *function) {  // -> new
  PyObject *total = NULL;
  for (int i = 0; i < wk__sym_count(x); i++) {
    PyObject *operand = wk__fx_symbol_value(graph, nodes, memo, wk__sym_operand(x, i));
    total = i ? apply(graph, module, function, total, operand) : operand;
    if (!total) return NULL;
  }
  return total;
}

static PyObject *sum(wk__fx_graph *graph, PyObject *const *nodes, PyObject *memo, wk_int x) {  // -> new
  PyObject *total = NULL;
  int64_t constant = wk__sym_constant(x);
  for (int i = 0; i < wk__sym_count(x); i++) {
    PyObject *term = wk__fx_symbol_value(graph, nodes, memo, wk__sym_operand(x, i));
    int64_t factor = wk__sym_coefficient(x, i);
    if (factor != 1) term = apply(graph, "operator", "mul", term, PyLong_FromLongLong(factor));
    total = i ? apply(graph, "operator", "add", total, term) : term;
    if (!total) return NULL;
  }
  return constant ? apply(graph, "operator", "add", total, PyLong_FromLongLong(constant)) : total;
}

static PyObject *expression(wk__fx_graph *graph, PyObject *const *nodes, PyObject *memo, wk_int x) {  // -> new
  switch (wk__sym_kind_of(x)) {
    case WK__SYM_SYMBOL:
      return symbol(graph, nodes, x);
    case WK__SYM_FLOORDIV:
      return of_operands(graph, nodes, memo, x, "operator", "floordiv");
    case WK__SYM_MOD:
      return of_operands(graph, nodes, memo, x, "operator", "mod");
    case WK__SYM_MIN:
      return of_operands(graph, nodes, memo, x, "builtins", "min");
    case WK__SYM_MAX:
      return of_operands(graph, nodes, memo, x, "builtins", "max");
    case WK__SYM_PRODUCT:
      return of_operands(graph, nodes, memo, x, "operator", "mul");
    case WK__SYM_SUM:
      return sum(graph, nodes, memo, x);
    default:
      return text_of(x);
  }
}

PyObject *wk__fx_symbol_value(wk__fx_graph *graph, PyObject *const *nodes, PyObject *memo, wk_int x) {  // -> new
  if (wk_int_is_known(x)) return PyLong_FromLongLong(x.bits);
  PyObject *key = PyLong_FromLongLong(x.bits), *known = key ? PyDict_GetItemWithError(memo, key) : NULL;
  PyObject *value = known ? Py_NewRef(known) : key ? expression(graph, nodes, memo, x) : NULL;
  if (value && !known && PyDict_SetItem(memo, key, value) < 0) Py_CLEAR(value);
  Py_XDECREF(key);
  return value;
}
