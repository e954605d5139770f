/* Functions of C code that C code is given to call: the key of sorted(), the function of map(), a property's getter.
 * CPython calls them where no frame is entered, so nothing of what they do is noted.
 * In: such a function. Out: whether it only looks at what it is given and at what it is bound to, which then becomes
 * known. Tests: tests/python/capture/test_callbacks.py. */
#include "dynamo/capture/known.h"
#include "dynamo/capture/known_calls.h"
#include "dynamo/capture/record_parts.h"
#include "dynamo/cpython/objects.h"

static bool only_looks(const wk__known_call *known) {
  return known->what == WK__KNOWN_LOOKS || known->what == WK__KNOWN_VALUES || known->what == WK__KNOWN_PASSES;
}

static bool changes_itself(PyTypeObject *type) {
  return PyType_IsSubtype(type, &PyList_Type) || PyType_IsSubtype(type, &PyDict_Type) ||
         PyType_IsSubtype(type, &PySet_Type) || strcmp(type->tp_name, "collections.deque") == 0;
}

/* "{0.a}".format(o): C code reads the attribute, which no guard is told of. */
bool wk__format_reads_attributes(PyObject *format, const char *method) {
  if (!PyUnicode_Check(format) || strncmp(method, "format", 6) != 0) return false;
  const char *text = PyUnicode_AsUTF8(format);
  PyErr_Clear();
  for (bool field = false; text && *text; text++) {
    bool escaped = !field && text[0] == '{' && text[1] == '{';
    if (field && *text == '.') return true;
    field = *text == '{' ? !escaped : field && *text != '}' && *text != ':' && *text != '!';
    text += escaped;
  }
  return false;
}

/* Of an object of the region's own it does what it does to that object. */
static bool bound_function_looks(wk__frame *f, PyObject *self, const char *name) {
  wk__recording *r = f->session->recording;
  if (wk__format_reads_attributes(self, name)) return false;
  bool own = !wk__is_foreign(r, self) && wk__reg_find(r, self) < 0;
  if (own || PyType_Check(self) || wk__is_tensor_object(f, self)) return true;
  const wk__known_call *known = wk__known_method(Py_TYPE(self), name);
  bool of_value = wk__known_class(Py_TYPE(self)) == WK__CLASS_VALUE || wk__is_plain_value(f->session->binding, self);
  return of_value || (only_looks(known) && wk__usable(f, self));
}

static bool refuse_callback(wk__frame *f, const char *name) {
  f->session->reason[0] = 0;
  wk__refuse(f, "C code is given %s(), which it may call", name);
  return false;
}

static bool c_function_looks(wk__frame *f, PyObject *function) {
  const PyCFunctionObject *c = (const PyCFunctionObject *)function;
  PyObject *self = PyCFunction_GET_SELF(function);
  const char *name = c->m_ml->ml_name;
  if (self && !PyModule_Check(self)) return bound_function_looks(f, self, name) || refuse_callback(f, name);
  const char *module = c->m_module && PyUnicode_Check(c->m_module) ? PyUnicode_AsUTF8(c->m_module) : "";
  bool of_core = self == f->session->binding->module;
  const wk__known_call *known = wk__known_function(module ? module : "", name);
  return of_core || only_looks(known) || known->how & WK__CALL_GIVEN || refuse_callback(f, name);
}

static bool descriptor_looks(wk__frame *f, PyObject *descriptor) {
  PyTypeObject *type = PyDescr_TYPE(descriptor);
  const char *name = PyUnicode_AsUTF8(PyDescr_NAME(descriptor));
  bool looks = !changes_itself(type) || (name && only_looks(wk__known_method(type, name)));
  return looks || refuse_callback(f, name ? name : "a method");
}

static bool wrapper_looks(wk__frame *f, PyObject *wrapper) {
  PyObject *self = PyObject_GetAttrString(wrapper, "__self__"), *name = PyObject_GetAttrString(wrapper, "__name__");
  const char *text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
  bool looks = self && text && (!changes_itself(Py_TYPE(self)) || bound_function_looks(f, self, text));
  PyErr_Clear();
  if (!looks) refuse_callback(f, text ? text : "a method");
  Py_XDECREF(name);
  Py_XDECREF(self);
  return looks;
}

/* A property's getter or setter; NULL: it is Python code, which is evaluated, or there is none. */
PyObject *wk__c_part_of_property(PyObject *property, const char *part) {  // -> new
  PyObject *function = PyObject_GetAttrString(property, part);
  PyErr_Clear();
  if (function && function != Py_None && !PyFunction_Check(function)) return function;
  Py_XDECREF(function);
  return NULL;
}

PyObject *wk__call_of_property(wk__frame *f, wk__recording *r, PyObject *steal_function, PyObject *const *args,
                               Py_ssize_t count) {
  bool known = wk__reg_constant(r, steal_function) >= 0;
  PyObject *result = known ? wk__recorded_call(f, r, steal_function, args, count, NULL) : NULL;
  Py_DECREF(steal_function);
  return result;
}

bool wk__is_c_callback(PyObject *o) {
  return PyCFunction_Check(o) || Py_TYPE(o) == &PyMethodDescr_Type || Py_TYPE(o) == &PyWrapperDescr_Type ||
         Py_TYPE(o) == wk__method_wrapper_type() || wk__is_partial(Py_TYPE(o));
}

bool wk__callback_looks(wk__frame *f, PyObject *o) {
  if (PyCFunction_Check(o)) return c_function_looks(f, o);
  if (Py_TYPE(o) == &PyMethodDescr_Type || Py_TYPE(o) == &PyWrapperDescr_Type) return descriptor_looks(f, o);
  if (Py_TYPE(o) == wk__method_wrapper_type()) return wrapper_looks(f, o);
  if (!wk__is_partial(Py_TYPE(o))) return true;
  PyObject *inner = PyObject_GetAttrString(o, "func");
  bool looks = inner && wk__callback_looks(f, inner);
  Py_XDECREF(inner);
  return looks;
}
