/* contextvars.ContextVar: what a variable is outside is guarded, and each replay sets and resets it again, in order.
 *
 * In: a call of a method of one. Out: its result. A token is made by the step that sets, so that one that goes outside,
 * or is reset by a later segment, is that call's own. Tests: tests/python/capture/test_context_vars.py. */
#include "dynamo/capture/known.h"
#include "dynamo/capture/record_parts.h"

#define BINDING (f->session->binding)

enum { MOST = 4 };

static PyObject *method_of(PyObject *variable, const char *name) {  // -> new
  return PyObject_GetAttrString((PyObject *)Py_TYPE(variable), name);
}

/* What it is outside is asked for again in front of each replay. */
static PyObject *ask(wk__frame *f, wk__recording *r, PyObject *variable, PyObject *const *args, Py_ssize_t count) {
  PyObject *all[1 + MOST] = {variable}, *get = count < MOST ? method_of(variable, "get") : NULL;
  for (Py_ssize_t i = 0; get && i < count; i++) all[1 + i] = args[i];
  PyObject *value = get ? wk__cached_call(f, r, get, all, 1 + count, NULL) : NULL;
  Py_XDECREF(get);
  return value;
}

/* It will be what it was when it is reset. */
static bool know_outside(wk__frame *f, wk__recording *r, PyObject *variable, wk__reg reg) {
  if (wk__was_written(r, reg, NULL)) return true;
  PyObject *none = Py_None, *value = ask(f, r, variable, &none, 1);
  Py_XDECREF(value);
  return value && wk__recording_of(f) == r;
}

static PyObject *set(wk__frame *f, wk__recording *r, PyObject *variable, wk__reg reg, PyObject *value) {
  PyObject *method = method_of(variable, "set"), *items[] = {method, variable, value}, *token = NULL;
  bool known = method && know_outside(f, r, variable, reg);
  known = known && wk__reg_constant(r, method) >= 0 && wk__reg_of(r, BINDING, value) >= 0;
  if (known) token = PyObject_CallFunctionObjArgs(method, variable, value, NULL);
  Py_XDECREF(method); /* its class has it */
  if (!known) return wk__refuse(f, "%s", r->failed[0] ? r->failed : "a ContextVar that cannot be asked");
  if (!token) return NULL;
  (void)!wk__did(r, BINDING, WK__DO_EFFECT, token, items, 3, NULL); /* a failure is noted */
  wk__mark_written(r, reg, NULL);
  return token;
}

/* What a token from outside will set is guarded. */
static bool know_old_value(wk__frame *f, wk__recording *r, PyObject *token) {
  wk__reg reg = wk__is_foreign(r, token) ? wk__reg_find(r, token) : -1;
  if (reg < 0) return true;
  PyObject *name = PyUnicode_InternFromString("old_value"), *old = name ? PyObject_GetAttr(token, name) : NULL;
  bool known = old && wk__observe(r, BINDING, old, WK__READ_ATTRIBUTE, reg, 0, name) == 0;
  Py_XDECREF(name);
  Py_XDECREF(old);
  PyErr_Clear(); /* it is no token */
  return known;
}

static PyObject *reset(wk__frame *f, wk__recording *r, PyObject *variable, wk__reg reg, PyObject *token) {
  PyObject *method = method_of(variable, "reset"), *args[] = {variable, token}, *result = NULL;
  if (method && know_outside(f, r, variable, reg) && know_old_value(f, r, token))
    result = wk__effect(f, r, method, args, 2, NULL);
  Py_XDECREF(method);
  if (result) wk__mark_written(r, reg, NULL);
  if (result || PyErr_Occurred() || f->session->reason[0]) return result;
  return wk__refuse(f, "a ContextVar that cannot be asked");
}

PyObject *wk__context_var_call(wk__frame *f, wk__recording *r, PyObject *variable, const char *name,
                               PyObject *const *args, Py_ssize_t count) {
  wk__reg reg = wk__is_foreign(r, variable) ? wk__reg_find(r, variable) : -1;
  if (reg < 0) return wk__refuse(f, "a ContextVar that the region has made");
  if (wk__reg_constant(r, variable) < 0) return wk__refuse(f, "%s", r->failed);
  if (strcmp(name, "set") == 0 && count == 1) return set(f, r, variable, reg, args[0]);
  if (strcmp(name, "reset") == 0 && count == 1) return reset(f, r, variable, reg, args[0]);
  if (strcmp(name, "get") != 0 || count > 1) return wk__refuse(f, "method %s of a ContextVar", name);
  if (!wk__was_written(r, reg, NULL)) return ask(f, r, variable, args, count);
  PyObject *get = method_of(variable, "get");
  PyObject *value = get ? PyObject_CallFunctionObjArgs(get, variable, count ? args[0] : NULL, NULL) : NULL;
  Py_XDECREF(get);
  return value;
}
