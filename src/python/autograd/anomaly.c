/* Anomaly detection: which line of the forward pass made the node whose derivative fails.
 *
 * While it is on, each node of the tape keeps the stack of Python calls that it was made under, as a hook that does
 * nothing but hold it. When the node fails, or gives a NaN, the stack is shown as a warning before the error is raised.
 * In: nodes, from the core. Out: warnings. Tests: tests/python/test_autograd.py. */
#include "dynamo/cpython/gil.h"
#include "python/autograd/autograd.h"

static wk_status does_nothing(void *context, wk_tensor **grad_inputs, int input_count, wk_tensor **grad_results,
                              int result_count) {
  (void)context, (void)grad_inputs, (void)input_count, (void)grad_results, (void)result_count;
  return WK_OK;
}

static void release_stack(void *context) {
  wk__gil gil = wk__gil_hold();
  if (gil.alive) Py_DECREF((PyObject *)context);
  wk__gil_drop(gil);
}

static PyObject *format_stack(void) {  // -> new; NULL without an exception
  PyObject *module = PyImport_ImportModule("traceback");
  PyObject *lines = module ? PyObject_CallMethod(module, "format_stack", NULL) : NULL, *nothing = PyUnicode_New(0, 0);
  PyObject *text = lines && nothing ? PyUnicode_Join(nothing, lines) : NULL;
  Py_XDECREF(module);
  Py_XDECREF(lines);
  Py_XDECREF(nothing);
  PyErr_Clear();
  return text;
}

/* Calls that are recorded for a graph run later, and somewhere else. */
static void keep_stack(wk_node *node) {
  if (wk__thread.mode.keys_on & WK__KEY_TRACE) return;
  wk__gil gil = wk__gil_hold();
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *text = gil.alive ? format_stack() : NULL;
  wk__node_hook hook = {.call = does_nothing, .release = release_stack, .context = text};
  if (text && wk__node_add_hook(node, hook) != WK_OK) {
    Py_DECREF(text);
    wk_error_clear();
  }
  PyErr_Restore(type, value, traceback);
  wk__gil_drop(gil);
}

static PyObject *stack_of(const wk_node *node) {  // -> borrowed
  for (const wk__node_hook *h = node->hooks; h; h = h->next)
    if (h->call == does_nothing) return h->context;
  return NULL;
}

static int show(const wk_node *node) {
  wk__string name = {0};
  wk__node_print_name(&name, node);
  PyObject *stack = stack_of(node);
  const char *called = name.text ? name.text : "?";
  int status =
      stack ? PyErr_WarnFormat(PyExc_UserWarning, 1,
                               "Error detected in %s. Traceback of forward call that caused the error:\n%U", called,
                               stack)
            : PyErr_WarnFormat(PyExc_UserWarning, 1,
                               "Error detected in %s. No forward pass information available. Enable detect anomaly "
                               "during forward pass for more information.",
                               called);
  wk__string_release(&name);
  return status;
}

/* The error stays what it is, unless the warning is one itself. */
static wk_status show_stack(const wk_node *node, wk_status status) {
  char message[1024];
  snprintf(message, sizeof message, "%s", wk_error_message());
  wk__gil gil = wk__gil_hold();
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  int shown = gil.alive ? show(node) : 0;
  if (shown == 0) PyErr_Restore(type, value, traceback);
  wk__gil_drop(gil);
  if (shown == 0) return wk_fail(status, "%s", message);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return wk__status_from_python();
}

void wk__anomaly_detect(bool on, bool finds_nan) {
  wk__anomaly_made = keep_stack;
  wk__anomaly_found = show_stack;
  atomic_store(&wk__anomaly_finds_nan, finds_nan);
  atomic_store(&wk__anomaly_on, on);
}
