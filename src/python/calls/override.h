/* The Python override layer: what a call has to ask before it computes. `state->overrides` is false until a subclass
 * with a __torch_function__ of its own, or a mode, is there; so a program without them pays one bit test a call. */
#ifndef WICK_PYTHON_CALLS_OVERRIDE_H
#define WICK_PYTHON_CALLS_OVERRIDE_H

#include "python/python.h"

static inline bool wk__overrides(PyObject *tensor) { return ((wk__python_tensor *)tensor)->state->overrides; }

/* Hands the call `func(args..., keywords...)` to the mode or to the arguments that override it. True: it was handed
 * over, *result is new, or NULL with an exception. False: compute it yourself. */
bool wk__overridden(wk__state *state, PyObject *func, PyObject *const *args, Py_ssize_t n, PyObject *keywords,
                    PyObject **result);
/* The same for a method or slot of Tensor by name, and below for its attributes (value NULL: reading). */
bool wk__overridden_method(wk__state *state, const char *name, PyObject *const *args, Py_ssize_t n, PyObject *keywords,
                           PyObject **result);
/* For a function of the module that makes tensors: only modes are asked. */
bool wk__overridden_function(wk__state *state, const char *name, PyObject *const *args, Py_ssize_t n,
                             PyObject *keywords, PyObject **result);
bool wk__overridden_attribute(PyObject *self, const char *name, PyObject *value, PyObject **result);
/* A subclass's object was made: from now on calls look for overrides, unless the class has none. 0 or -1. */
int wk__note_subclass(wk__state *state, PyTypeObject *type);
/* What of __torch_function__ the thread asks now: WK__OVERRIDE_... of dynamo.h. */
int wk__override_state(const wk__state *state);
/* The object of a tensor, of a subclass: the one that it has, when it is of that class. */
PyObject *wk__wrap_as(wk__state *state, PyTypeObject *type, wk_tensor *steal_tensor);  // -> new, in tensor_type.c
/* The same tensor as a new object of a subclass. */
PyObject *wk__as_subclass(wk__state *state, PyObject *tensor, PyTypeObject *type);  // -> new, in tensor_type.c

/* Entries for method and attribute tables: the override layer before the function itself. */
#define WK__OVERRIDABLE(function, name)                                                                        \
  static PyObject *function##_entry(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords) { \
    PyObject *result;                                                                                          \
    if (WK_UNLIKELY(wk__overrides(self))) {                                                                    \
      PyObject *all[WK__OVERRIDE_ARGS] = {self};                                                               \
      Py_ssize_t count = n + (keywords ? PyTuple_GET_SIZE(keywords) : 0);                                      \
      for (Py_ssize_t i = 0; i < count && i < WK__OVERRIDE_ARGS - 1; i++) all[i + 1] = args[i];                \
      if (count < WK__OVERRIDE_ARGS &&                                                                         \
          wk__overridden_method(((wk__python_tensor *)self)->state, name, all, n + 1, keywords, &result))      \
        return result;                                                                                         \
    }                                                                                                          \
    return function(self, args, n, keywords);                                                                  \
  }
#define WK__OVERRIDABLE_ALONE(function, name)                                                     \
  static PyObject *function##_entry(PyObject *self, PyObject *unused) {                           \
    PyObject *result;                                                                             \
    if (WK_UNLIKELY(wk__overrides(self)) &&                                                       \
        wk__overridden_method(((wk__python_tensor *)self)->state, name, &self, 1, NULL, &result)) \
      return result;                                                                              \
    return function(self, unused);                                                                \
  }
#define WK__OVERRIDABLE_ONE(function, name)                                                                          \
  static PyObject *function##_entry(PyObject *self, PyObject *argument) {                                            \
    PyObject *result;                                                                                                \
    if (WK_UNLIKELY(wk__overrides(self)) && wk__overridden_method(((wk__python_tensor *)self)->state, name,          \
                                                                  (PyObject *[]){self, argument}, 2, NULL, &result)) \
      return result;                                                                                                 \
    return function(self, argument);                                                                                 \
  }
/* For METH_VARARGS | METH_KEYWORDS. */
bool wk__overridden_tuple(PyObject *self, const char *name, PyObject *args, PyObject *keywords, PyObject **result);
#define WK__OVERRIDABLE_TUPLE(function, name)                                                                         \
  static PyObject *function##_entry(PyObject *self, PyObject *args, PyObject *keywords) {                             \
    PyObject *result;                                                                                                 \
    if (WK_UNLIKELY(wk__overrides(self)) && wk__overridden_tuple(self, name, args, keywords, &result)) return result; \
    return function(self, args, keywords);                                                                            \
  }
#define WK__OVERRIDABLE_GET(function, name)                                                                     \
  static PyObject *function##_entry(PyObject *self, void *unused) {                                             \
    PyObject *result;                                                                                           \
    if (WK_UNLIKELY(wk__overrides(self)) && wk__overridden_attribute(self, name, NULL, &result)) return result; \
    return function(self, unused);                                                                              \
  }
#define WK__OVERRIDABLE_SET(function, name)                                                                  \
  static int function##_entry(PyObject *self, PyObject *value, void *unused) {                               \
    PyObject *result;                                                                                        \
    if (WK_UNLIKELY(wk__overrides(self)) && value && wk__overridden_attribute(self, name, value, &result)) { \
      Py_XDECREF(result);                                                                                    \
      return result ? 0 : -1;                                                                                \
    }                                                                                                        \
    return function(self, value, unused);                                                                    \
  }
enum { WK__OVERRIDE_ARGS = 24 };

int wk__add_overrides(PyObject *module, wk__state *state);
int wk__add_call_watching(PyObject *module); /* watch.c */

#endif
