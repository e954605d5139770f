/* The functions for tests that are not worth a file: faults, switches, graphs from text. */
#include "codegen/test_switches.h"
#include "cpu/test_switches.h"
#include "ext.h"
#include "python/fx/graph_parts.h"

#ifdef WICK_DEBUG
/* Lets the n-th allocation from here on fail; 0 lets all succeed. */
static PyObject *fault_arm(PyObject *module, PyObject *n) {  // -> new
  (void)module;
  long long count = PyLong_AsLongLong(n);
  if (count == -1 && PyErr_Occurred()) return NULL;
  wk__fault_arm(count);
  Py_RETURN_NONE;
}
static PyObject *live_allocations(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  return PyLong_FromLongLong(wk__live_allocations());
}
#endif

static PyObject *use_short_way(PyObject *module, PyObject *use) {  // -> new
  (void)module;
  wk__program_use_short_way(use == Py_True);
  Py_RETURN_NONE;
}

static PyObject *make_mistakes(PyObject *module, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"pass_", "kernel", "native", NULL};
  const char *pass = "", *kernel = "", *native = "";
  (void)module;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "|sss", names, &pass, &kernel, &native)) return NULL;
  wk__mistakes *m = &wk__mistakes_made;
  snprintf(m->pass, sizeof m->pass, "%s", pass);
  snprintf(m->kernel, sizeof m->kernel, "%s", kernel);
  snprintf(m->native, sizeof m->native, "%s", native);
  Py_RETURN_NONE;
}

static PyObject *parse_graph(PyObject *module, PyObject *text) {  // -> new
  wk__state *state = wk__state_of_module(module);
  const char *source_text = PyUnicode_AsUTF8(text);
  wk__graph *source = NULL;
  if (!source_text) return NULL;
  if (wk__graph_parse(source_text, NULL, 0, &source) != WK_OK) return wk__raise(state);
  PyObject *result = wk__graph_module_create(state, source);
  wk__graph_release(source);
  return result;
}

/* What the text of a graph says when it has been read and is printed again. */
static PyObject *graph_text(PyObject *module, PyObject *text) {  // -> new
  const char *source_text = PyUnicode_AsUTF8(text);
  wk__graph *graph = NULL;
  wk__string printed = {0};
  if (!source_text) return NULL;
  wk_status status = wk__graph_parse(source_text, NULL, 0, &graph);
  if (status == WK_OK) status = wk__graph_freeze(graph);
  if (status == WK_OK) status = wk__graph_print(&printed, graph, false);
  PyObject *result = status == WK_OK ? PyUnicode_FromString(printed.text) : wk__raise(wk__state_of_module(module));
  wk__string_release(&printed);
  wk__graph_release(graph);
  return result;
}

static PyMethodDef functions[] = {
#ifdef WICK_DEBUG
    {"_fault_arm", fault_arm, METH_O, "The n-th allocation from here on fails."},
    {"_live_allocations", live_allocations, METH_NOARGS, "Blocks of the core not yet freed."},
#endif
    {"_use_short_way", use_short_way, METH_O, "Whether small launches are tier 0's though there is native code."},
    {"_make_mistakes", (PyCFunction)(void (*)(void))make_mistakes, METH_VARARGS | METH_KEYWORDS,
     "What the compiler does wrong from here on: codegen/test_switches.h."},
    {"_graph_text", graph_text, METH_O, "A graph's text as it is printed after it was read."},
    {"_parse_graph", parse_graph, METH_O, "A GraphModule of a graph in the IR's text form."},
    {0}};

int wk__add_test_functions(PyObject *module) {
  if (PyModule_AddFunctions(module, functions) < 0 || wk__add_symbolic_tracing(module) < 0) return -1;
  return wk__add_evaluator(module) < 0 ? -1 : wk__add_probe(module);
}
