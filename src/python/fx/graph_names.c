/* Names of nodes: Python identifiers, unique in their graph, with PyTorch's numbers behind them.
 * In: what a program or a target suggests. Out: a name that no other node has or had. Tests: tests/python/test_fx.py.
 */
#include "python/fx/graph_parts.h"

/* Letters, digits and underscores; not empty, no digit first. */
static PyObject *identifier(PyObject *candidate) {  // -> new
  Py_ssize_t n = PyUnicode_GET_LENGTH(candidate);
  bool digit_first = n && Py_UNICODE_ISDIGIT(PyUnicode_READ_CHAR(candidate, 0));
  if (n == 0) return PyUnicode_FromString("_unnamed");
  wk__string s = {0};
  if (digit_first) wk__string_append(&s, "_");
  for (Py_ssize_t i = 0; i < n; i++) {
    Py_UCS4 c = PyUnicode_READ_CHAR(candidate, i);
    bool fits = c < 128 && (Py_ISALNUM(c) || c == '_');
    wk__string_printf(&s, "%c", fits ? (int)c : '_');
  }
  PyObject *text = s.text ? PyUnicode_FromString(s.text) : PyErr_NoMemory();
  wk__string_release(&s);
  return text;
}

/* The stem of "add_1" is "add", its number 1; without a number -1. */
static PyObject *stem_of(PyObject *name, long long *out_number) {  // -> new
  Py_ssize_t n = PyUnicode_GET_LENGTH(name), digits = 0;
  while (digits < n && Py_ISDIGIT(PyUnicode_READ_CHAR(name, n - 1 - digits))) digits++;
  bool numbered = digits && digits < 18 && n > digits && PyUnicode_READ_CHAR(name, n - 1 - digits) == '_';
  *out_number = -1;
  if (!numbered) return Py_NewRef(name);
  *out_number = 0;
  for (Py_ssize_t i = n - digits; i < n; i++)
    *out_number = *out_number * 10 + (long long)(PyUnicode_READ_CHAR(name, i) - '0');
  return PyUnicode_Substring(name, 0, n - 1 - digits);
}

/* A name that means something in the generated code. */
static int is_reserved(wk__state *state, PyObject *name) {
  static const char *const ours[] = {"torch", "device", "inf", "nan", "NoneType"};
  for (size_t i = 0; i < WK_COUNT(ours); i++)
    if (PyUnicode_CompareWithASCIIString(name, ours[i]) == 0) return 1;
  PyObject *keywords = wk__fx_object(state, "keyword", "kwlist"), *builtins = PyEval_GetBuiltins();
  int found = keywords ? PySequence_Contains(keywords, name) : -1;
  return found ? found : PyDict_Contains(builtins, name);
}

/* The stem with the first number above `number` that is free. Takes `name`, which is given when it is free itself. */
static PyObject *numbered(wk__fx_graph *graph, PyObject *steal_name, PyObject *stem, long long number) {  // -> new
  PyObject *name = steal_name;
  while (name && PyDict_Contains(graph->names, name) == 1)
    Py_SETREF(name, PyUnicode_FromFormat("%U_%lld", stem, ++number));
  PyObject *count = name ? PyLong_FromLongLong(number) : NULL;
  bool kept =
      count && PyDict_SetItem(graph->names, name, Py_None) == 0 && PyDict_SetItem(graph->name_counts, stem, count) == 0;
  Py_XDECREF(count);
  if (!kept) Py_CLEAR(name);
  return name;
}

static PyObject *name_from(wk__fx_graph *graph, PyObject *name, PyObject *stem, long long number) {  // -> new
  if (number >= 0 && PyDict_Contains(graph->names, name) == 0) return numbered(graph, Py_NewRef(name), stem, number);
  PyObject *count = PyDict_GetItemWithError(graph->name_counts, stem);
  int reserved = number < 0 ? is_reserved(graph->state, name) : 0;
  number = count ? PyLong_AsLongLong(count) : 0;
  if (reserved < 0) return NULL;
  if (!reserved) return numbered(graph, Py_NewRef(name), stem, number);
  return numbered(graph, PyUnicode_FromFormat("%U_%lld", stem, number + 1), stem, number + 1);
}

PyObject *wk__fx_graph_new_name(wk__fx_graph *graph, PyObject *candidate) {  // -> new
  if (!PyUnicode_Check(candidate)) return PyErr_Format(PyExc_TypeError, "a name is a str, not %R", candidate);
  long long number;
  PyObject *name = identifier(candidate), *stem = name ? stem_of(name, &number) : NULL;
  PyObject *result = stem ? name_from(graph, name, stem, number) : NULL;
  Py_XDECREF(name);
  Py_XDECREF(stem);
  return result;
}

/* LayerNorm -> layer_norm; dots stay. */
static PyObject *snake_case(PyObject *text) {  // -> new
  wk__string s = {0};
  Py_UCS4 before = '.';
  for (Py_ssize_t i = 0; i < PyUnicode_GET_LENGTH(text); i++) {
    Py_UCS4 c = PyUnicode_READ_CHAR(text, i);
    if (c < 128 && Py_ISUPPER(c) && (Py_ISLOWER(before) || Py_ISDIGIT(before))) wk__string_append(&s, "_");
    wk__string_printf(&s, "%c", c < 128 ? Py_TOLOWER(c) : '_');
    before = c < 128 ? c : '_';
  }
  PyObject *result = s.text ? PyUnicode_FromString(s.text) : PyUnicode_FromString("");
  wk__string_release(&s);
  return result;
}

PyObject *wk__fx_name_for_target(PyObject *target) {  // -> new
  PyObject *text = PyUnicode_Check(target) ? Py_NewRef(target) : PyObject_GetAttrString(target, "__name__");
  if (!text) {
    PyErr_Clear();
    text = PyUnicode_FromString(Py_TYPE(target)->tp_name);
  }
  PyObject *name = text && PyUnicode_Check(text) ? snake_case(text) : PyUnicode_FromString("call");
  Py_XDECREF(text);
  return name;
}
