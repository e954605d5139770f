/* Calls of wick's own functions that are no operators: they ask for or set a mode of the thread, make tensors of data,
 * or say that what is called until another one is to become a part of the graph. In: the call. Out: its result, or
 * refused. Tests: tests/python/capture/test_known_calls.py, test_branches.py, test_scans.py. */
#include "autograd/autograd.h"
#include "compile/control/control.h"
#include "dynamo/capture/call_parts.h"
#include "dynamo/capture/record_parts.h"

/* Of the CPU's autocast and CUDA's: the others' is not there. */
static bool names_other_device(const char *name, PyObject *const *args, Py_ssize_t count) {
  bool named = strcmp(name, "set_autocast_enabled") == 0 || strcmp(name, "set_autocast_dtype") == 0;
  bool text = named && count == 2 && PyUnicode_Check(args[0]);
  bool ours = text && (PyUnicode_CompareWithASCIIString(args[0], "cpu") == 0 ||
                       PyUnicode_CompareWithASCIIString(args[0], "cuda") == 0);
  return named && !ours;
}

/* Functions of scores are called between these two, and their calls become a loop body (autograd/body.h): the graph
 * gets that body, not the calls, so that nothing else may come of them. What refuses raises meanwhile, and then there
 * is no body: the program calls the functions with all scores. */
static PyObject *score_begin(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                             PyObject *names) {
  if (wk__is_thrown_away(f->session->recording)) return wk__refuse(f, "scores inside of what is only tried");
  PyObject *values = wk__call_looking(f, callable, args, count, names);
  if (values && values != Py_None) f->session->recording->tries = true;
  return values;
}

static PyObject *score_end(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  wk__recording *r = f->session->recording;
  bool in_vain = r->tries_in_vain;
  if (!r->kept_trial) r->tries = r->tries_in_vain = r->tries_modes = false;
  PyObject *body = wk__plain_call(f, callable, args, count, names);
  if (!in_vain || !body) return body;
  Py_DECREF(body);
  Py_RETURN_NONE;
}

/* The functions of cond, while_loop, scan and map are called between these two, and what they do becomes an operator
 * (compile/control/control.h). What refuses raises meanwhile, and then there is no operator: the program goes one way.
 */
static PyObject *control_begin(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                               PyObject *names) {
  wk__recording *r = f->session->recording;
  if (wk__is_thrown_away(r) && !wk__control_records())
    return wk__refuse(f, "control flow inside of what is only tried");
  PyObject *begun = wk__call_looking(f, callable, args, count, names);
  if (wk__control_records()) r->tries = true;
  return begun;
}

static PyObject *control_end(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                             PyObject *names) {
  wk__recording *r = f->session->recording;
  enum { MOST = 5 };
  PyObject *given[MOST]; /* the last is what the function gave */
  if (count > MOST) return wk__refuse(f, "control flow with many parts");
  for (Py_ssize_t i = 0; i < count; i++) given[i] = r->tries_in_vain && i == count - 1 ? Py_None : args[i];
  PyObject *results = wk__plain_call(f, callable, given, count, names);
  r->tries = wk__control_records() || r->kept_trial;
  if (!r->tries) r->tries_in_vain = r->tries_modes = false;
  return results;
}

/* A mode is entered: its class says what it does about each call, and its method is evaluated in the region. */
static PyObject *enter_mode(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                            PyObject *names) {
  wk__recording *r = f->session->recording;
  if (count != 1 || names || !wk__is_python_instance(args[0])) return wk__refuse(f, "a mode of C code");
  if (wk__depend_on_type(r, Py_TYPE(args[0])) < 0) return wk__refuse(f, "%s", r->failed);
  return wk__plain_call(f, callable, args, count, names);
}

/* What a pass that the region has begun does at its end is a part of it. */
static PyObject *queue_callback(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count) {
  if (wk__thread.backward_depth <= f->session->backward_depth_at_start)
    return wk__refuse(f, "a callback for the end of a backward pass that began outside");
  return wk__plain_call(f, callable, args, count, NULL);
}

/* The classes of what is given decide, and the thread's state, which is guarded. */
PyObject *wk__core_call(wk__frame *f, const char *name, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                        PyObject *names) {
  if (strcmp(name, "tensor") == 0) return wk__tensor_of_data(f, callable, args, count, names, 0);
  bool shares = strcmp(name, "as_tensor") == 0 || strcmp(name, "from_numpy") == 0;
  if (shares) return wk__as_tensor_call(f, callable, args, count, names);
  if (strcmp(name, "_push_on_torch_function_stack") == 0) return enter_mode(f, callable, args, count, names);
  if (strcmp(name, "_score_begin") == 0) return score_begin(f, callable, args, count, names);
  if (strcmp(name, "_score_end") == 0) return score_end(f, callable, args, count, names);
  if (strcmp(name, "_control_next") == 0) return wk__plain_call(f, callable, args, count, names);
  if (strcmp(name, "_trial_begin") == 0 && count == 1) return wk__trial_begin(f, args[0]);
  if (strcmp(name, "_trial_end") == 0 && count == 1) return wk__trial_end(f, args[0]);
  if (strcmp(name, "_queue_callback") == 0 && !names) return queue_callback(f, callable, args, count);
  wk__knowledge what = wk__known_function("wick", name)->what;
  if (what == WK__KNOWN_BEGINS) return control_begin(f, callable, args, count, names);
  if (what == WK__KNOWN_ENDS) return control_end(f, callable, args, count, names);
  bool looks = what == WK__KNOWN_LOOKS || (what == WK__KNOWN_AUTOCAST && !names_other_device(name, args, count));
  if (looks) return wk__call_looking(f, callable, args, count, names);
  if (what == WK__KNOWN_PASSES) return wk__call_passing(f, callable, args, count, names);
  if (what == WK__KNOWN_TAKES) return wk__refuse_as(f, WK__REFUSED_VALUE, "a call of %s()", name);
  if (what == WK__KNOWN_ASKED) return wk__cached_call(f, f->session->recording, callable, args, count, names);
  if (what == WK__KNOWN_EFFECT) return wk__effect_of_values(f, f->session->recording, callable, args, count, names);
  return wk__refuse_as(f, count ? wk__refusal_of(f, args[0]) : WK__REFUSED_BREAK, "a call of %s()", name);
}
