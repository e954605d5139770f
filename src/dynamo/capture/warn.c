/* warnings.warn() in captured code: an effect that is repeated in its place among the others.
 *
 * Where a warning is said to come from (file, line, the registry of what was shown there) is that of a frame, and a
 * replay has other frames. So the call is noted as what it stands for: text, category and that place; of a frame behind
 * the compiled function, which is another one in each call, how far behind. Filters are asked again in each call, and
 * whether they show, count or drop the warning is up to them. One that turns it into an exception has to do so at the
 * instruction: while there may be such a one the call is a break.
 *
 * In: a call of _warnings.warn. Out: a step, and the guard that no filter raises. Tests:
 * tests/python/capture/test_api.py.
 */
#include "dynamo/capture/known.h"

/* ================================================= would it raise ================================================ */

enum { ACTION, MESSAGE, CATEGORY, MODULE, LINE, FILTER_ITEMS };

static bool is_text(PyObject *o, const char *text) {
  return PyUnicode_Check(o) && PyUnicode_CompareWithASCIIString(o, text) == 0;
}

/* 1: this filter raises, or may; 0: it decides, and does not; -1: another one decides. */
static int filter_raises(PyObject *filter, PyObject *category) {
  if (!PyTuple_Check(filter) || PyTuple_GET_SIZE(filter) != FILTER_ITEMS) return 1;
  PyObject *of = PyTuple_GET_ITEM(filter, CATEGORY);
  if (!PyType_Check(of)) return 1;
  if (!PyType_IsSubtype((PyTypeObject *)category, (PyTypeObject *)of)) return -1;
  PyObject *line = PyTuple_GET_ITEM(filter, LINE);
  bool all = PyTuple_GET_ITEM(filter, MESSAGE) == Py_None && PyTuple_GET_ITEM(filter, MODULE) == Py_None &&
             PyLong_Check(line) && PyLong_AsLong(line) == 0;
  if (is_text(PyTuple_GET_ITEM(filter, ACTION), "error")) return 1;
  return all ? 0 : -1;
}

bool wk__warning_may_raise(PyObject *category) {
  PyObject *name = PyUnicode_InternFromString("warnings"), *module = name ? PyImport_GetModule(name) : NULL;
  PyObject *filters = module ? PyObject_GetAttrString(module, "filters") : NULL;
  PyObject *otherwise = module ? PyObject_GetAttrString(module, "defaultaction") : NULL;
  int raises = -1;
  if (!filters || !PyList_Check(filters) || !otherwise) raises = 1;
  for (Py_ssize_t i = 0; raises < 0 && i < PyList_GET_SIZE(filters); i++)
    raises = filter_raises(PyList_GET_ITEM(filters, i), category);
  if (raises < 0) raises = is_text(otherwise, "error");
  PyErr_Clear();
  Py_XDECREF(name);
  Py_XDECREF(module);
  Py_XDECREF(filters);
  Py_XDECREF(otherwise);
  return raises;
}

/* ================================================ where it comes from ============================================ */

/* Such frames do not count as callers. */
static bool is_import(PyFrameObject *frame) {
  PyCodeObject *code = PyFrame_GetCode(frame);
  const char *file = PyUnicode_AsUTF8(code->co_filename);
  bool import = file && strstr(file, "importlib") && strstr(file, "_bootstrap");
  PyErr_Clear();
  Py_DECREF(code);
  return import;
}

/* Takes `frame`. NULL: there is none. */
static PyFrameObject *caller_of(PyFrameObject *frame) {  // -> new
  do {
    PyFrameObject *back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  } while (frame && is_import(frame));
  return frame;
}

/* warn_explicit() from there; frame NULL: behind all Python code. */
static int warn_at(PyObject *text, PyObject *category, PyObject *file, int line, PyObject *globals) {
  PyObject *key = PyUnicode_InternFromString("__warningregistry__"), *fresh = PyDict_New();
  PyObject *registry = key && fresh ? PyDict_SetDefault(globals, key, fresh) : NULL;
  PyObject *name = PyDict_GetItemString(globals, "__name__");
  PyObject *module = name && PyUnicode_Check(name) ? Py_NewRef(name) : PyUnicode_FromString("<string>");
  int status = registry && module ? PyErr_WarnExplicitObject(category, text, file, line, module, registry) : -1;
  Py_XDECREF(key);
  Py_XDECREF(fresh);
  Py_XDECREF(module);
  return status;
}

static int warn_from(PyObject *text, PyObject *category, PyFrameObject *frame) {
  if (!frame) {
    PyObject *file = PyUnicode_FromString("sys"), *module = PyImport_AddModule("sys"); /* borrowed */
    int status = file && module ? warn_at(text, category, file, 1, PyModule_GetDict(module)) : -1;
    Py_XDECREF(file);
    return status;
  }
  PyCodeObject *code = PyFrame_GetCode(frame);
  PyObject *globals = PyFrame_GetGlobals(frame);
  int status = warn_at(text, category, code->co_filename, PyFrame_GetLineNumber(frame), globals);
  Py_DECREF(globals);
  Py_DECREF(code);
  return status;
}

/* ==================================================== the step =================================================== */

/* The step's object: text, category, and either file, line and globals or how many frames behind the root. */
enum { STEP_TEXT, STEP_CATEGORY, STEP_FILE, STEP_LINE, STEP_GLOBALS };

int wk__warn_again(const wk__session *s, PyObject *step) {
  PyObject *text = PyTuple_GET_ITEM(step, STEP_TEXT), *category = PyTuple_GET_ITEM(step, STEP_CATEGORY);
  PyObject *file = PyTuple_GET_ITEM(step, STEP_FILE), *globals = PyTuple_GET_ITEM(step, STEP_GLOBALS);
  int line = (int)PyLong_AsLong(PyTuple_GET_ITEM(step, STEP_LINE));
  if (file != Py_None) return warn_at(text, category, file, line, globals);
  PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());
  for (const wk__activation *a = s->innermost; frame && a; a = a->outer)
    if (wk__frame_is_shown(&a->frame)) frame = caller_of(frame);
  for (int i = 1; frame && i < line; i++) frame = caller_of(frame);
  int status = warn_from(text, category, frame);
  Py_XDECREF(frame);
  return status;
}

/* Of a frame of the region: where it stands. Behind them: how far. */
static PyObject *describe(const wk__frame *f, PyObject *text, PyObject *category, long level) {  // -> new
  int depth = f->session->innermost->depth;
  if (level > depth + 1) return Py_BuildValue("OOOlO", text, category, Py_None, level - depth - 1, Py_None);
  PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());
  for (long i = 1; frame && i < level; i++) frame = caller_of(frame);
  if (!frame) return NULL;
  PyCodeObject *code = PyFrame_GetCode(frame);
  PyObject *globals = PyFrame_GetGlobals(frame);
  PyObject *step = Py_BuildValue("OOOiO", text, category, code->co_filename, PyFrame_GetLineNumber(frame), globals);
  Py_DECREF(globals);
  Py_DECREF(code);
  Py_DECREF(frame);
  return step;
}

/* ==================================================== the call =================================================== */

typedef struct warning {
  PyObject *text, *category; /* borrowed */
  long level;
} warning;

/* False: something else than a text, a class and a number was given. */
static bool parse(PyObject *const *args, Py_ssize_t count, PyObject *names, warning *out) {
  static const char *const parameters[] = {"message", "category", "stacklevel", "source"};
  PyObject *given[WK_COUNT(parameters)] = {NULL};
  Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
  if (count > (Py_ssize_t)WK_COUNT(given)) return false;
  for (Py_ssize_t i = 0; i < count; i++) given[i] = args[i];
  for (Py_ssize_t i = 0; i < named; i++) {
    size_t k = 0;
    while (k < WK_COUNT(given) && !is_text(PyTuple_GET_ITEM(names, i), parameters[k])) k++;
    if (k == WK_COUNT(given) || given[k]) return false;
    given[k] = args[count + i];
  }
  bool plain = given[0] && PyUnicode_CheckExact(given[0]) && (!given[3] || given[3] == Py_None) &&
               (!given[2] || PyLong_CheckExact(given[2]));
  if (!plain) return false;
  out->text = given[0];
  out->category = given[1] && given[1] != Py_None ? given[1] : PyExc_UserWarning;
  out->level = given[2] ? PyLong_AsLong(given[2]) : 1;
  if (out->level < 1) out->level = 1;
  bool known = PyType_Check(out->category) && out->level < 1000 &&
               PyType_IsSubtype((PyTypeObject *)out->category, (PyTypeObject *)PyExc_Warning);
  PyErr_Clear();
  return known;
}

PyObject *wk__warn_call(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                        PyObject *names) {
  warning w;
  for (Py_ssize_t i = 0; i < count + (names ? PyTuple_GET_SIZE(names) : 0); i++) wk__settle(r, args[i]);
  if (!parse(args, count, names, &w)) return wk__refuse(f, "a warning that is no text, or has a source");
  if (wk__warning_may_raise(w.category)) return wk__refuse(f, "a warning that a filter may turn into an error");
  wk__reg category = wk__reg_constant(r, w.category);
  PyObject *step = category >= 0 ? describe(f, w.text, w.category, w.level) : NULL;
  int noted = step ? wk__did(r, f->session->binding, WK__DO_WARN, NULL, NULL, 0, step) : -1;
  Py_XDECREF(step);
  if (noted < 0) return wk__refuse(f, "a warning: %s", r->failed);
  wk__check_once(r, WK__CHECK_QUIET, category, 0, NULL);
  int64_t at = r->step_count - 1;
  f->dropping++; /* what shows it is no part of what is captured, and shows it again */
  PyObject *result = wk__plain_call(f, callable, args, count, names);
  f->dropping--;
  wk__tried(f, r, at, result, true);
  return result;
}
