/* Arguments of the functions that are no operators: positions and keywords to slots, with PyTorch's error texts.
 * In: a vectorcall's arguments, borrowed. Out: one slot a parameter, borrowed. Tests: tests/python/test_interop.py. */
#include "python/data/interop.h"

static int parameter_count(const wk__signature *s) {
  int count = 0;
  while (s->names[count]) count++;
  return count;
}

static int find_parameter(const wk__signature *s, PyObject *keyword) {
  for (int i = 0; s->names[i]; i++)
    if (PyUnicode_CompareWithASCIIString(keyword, s->names[i]) == 0) return i;
  return -1;
}

static int bind_keywords(const wk__signature *s, PyObject *const *values, PyObject *keywords, PyObject **out) {
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(keywords); k++) {
    PyObject *keyword = PyTuple_GET_ITEM(keywords, k);
    int at = find_parameter(s, keyword);
    if (at < 0) {
      PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", s->function, keyword);
      return -1;
    }
    if (out[at]) {
      PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%s'", s->function, s->names[at]);
      return -1;
    }
    out[at] = values[k];
  }
  return 0;
}

int wk__bind(const wk__signature *s, PyObject *const *args, Py_ssize_t n, PyObject *keywords, PyObject **out) {
  if (n > s->positional) {
    PyErr_Format(PyExc_TypeError, "%s() takes %d positional argument%s but %zd %s given", s->function, s->positional,
                 s->positional == 1 ? "" : "s", n, n == 1 ? "was" : "were");
    return -1;
  }
  int count = parameter_count(s);
  for (int i = 0; i < count; i++) out[i] = i < n ? args[i] : NULL;
  if (keywords && bind_keywords(s, args + n, keywords, out) < 0) return -1;
  for (int i = 0; i < s->required; i++)
    if (!out[i]) {
      PyErr_Format(PyExc_TypeError, "%s() missing 1 required positional arguments: \"%s\"", s->function, s->names[i]);
      return -1;
    }
  return 0;
}

static int wrong_argument(const char *function, const char *name, const char *wanted, PyObject *o) {
  PyErr_Format(PyExc_TypeError, "%s(): argument '%s' must be %s, not %s", function, name, wanted, Py_TYPE(o)->tp_name);
  return -1;
}

int wk__bool_argument(const char *function, const char *name, PyObject *o, bool *out) {
  if (!o) return 0;
  if (!PyBool_Check(o)) return wrong_argument(function, name, "bool", o);
  *out = o == Py_True;
  return 0;
}

int wk__dtype_argument(wk__state *state, const char *function, const char *name, PyObject *o, wk_dtype *out) {
  if (!o || o == Py_None) return 0;
  if (wk__dtype_from_python(state, o, out) == 0) return 0;
  PyErr_Clear();
  return wrong_argument(function, name, "torch.dtype", o);
}

int wk__device_argument(wk__state *state, PyObject *o, wk_device *out) {
  return !o || o == Py_None ? 0 : wk__device_from_python(state, o, out);
}
