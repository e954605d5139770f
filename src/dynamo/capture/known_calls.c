/* The rows of known_calls.def, found by owner and name. There are few hundred, and only capture asks: they are gone
 * through. Tests: tests/python/capture/test_known_calls.py. */
#include "dynamo/capture/known_calls.h"

#include <string.h>

#include "base/base.h"
#include "dynamo/capture/known.h"
#include "dynamo/cpython/objects.h"

#define BLIND WK__CALL_BLIND
#define HALFWAY WK__CALL_HALFWAY
#define SEARCHES WK__CALL_SEARCHES
#define STORES WK__CALL_STORES
static const wk__known_call calls[] = {
#define CALL(owner, name, what, how, sample) {owner, name, WK__KNOWN_##what, how},
#define CLASS(name, kind, sample)
#include "dynamo/capture/known_calls.def"
#undef CALL
#undef CLASS
};

static const struct {
  const char *name;
  uint8_t kind;
} classes[] = {
#define CALL(owner, name, what, how, sample)
#define CLASS(name, kind, sample) {name, WK__CLASS_##kind},
#include "dynamo/capture/known_calls.def"
#undef CALL
#undef CLASS
};

/* NULL: the table does not know this owner's. */
static const wk__known_call *find(const char *owner, const char *name) {
  for (size_t i = 0; i < WK_COUNT(calls); i++) {
    if (strcmp(calls[i].owner, owner) != 0) continue;
    if (strcmp(calls[i].name, name) == 0 || strcmp(calls[i].name, "*") == 0) return &calls[i];
  }
  return NULL;
}

static const wk__known_call nothing = {"", "", WK__KNOWN_NOTHING, 0};

const wk__known_call *wk__known_function(const char *module, const char *name) {
  const wk__known_call *found = find(module, name);
  return found ? found : &nothing;
}

const wk__known_call *wk__known_python_function(PyObject *function) {
  const PyFunctionObject *f = (const PyFunctionObject *)function;
  const char *module = f->func_module && PyUnicode_Check(f->func_module) ? PyUnicode_AsUTF8(f->func_module) : NULL;
  const char *name = module ? PyUnicode_AsUTF8(f->func_qualname) : NULL;
  if (!name) PyErr_Clear();
  return name ? wk__known_function(module, name) : &nothing;
}

/* A Python class may have any name. */
static bool is_of_c(PyTypeObject *type) { return wk__type_is_fixed(type) || wk__is_class_of_c(type); }

const wk__known_call *wk__known_method(PyTypeObject *type, const char *name) {
  for (; type; type = type->tp_base) {
    const wk__known_call *found = is_of_c(type) ? find(type->tp_name, name) : NULL;
    if (found) return found;
  }
  return &nothing;
}

wk__class_kind wk__known_class(PyTypeObject *type) {
  if (!is_of_c(type)) return WK__CLASS_UNKNOWN;
  for (size_t i = 0; i < WK_COUNT(classes); i++)
    if (strcmp(classes[i].name, type->tp_name) == 0) return (wk__class_kind)classes[i].kind;
  return WK__CLASS_UNKNOWN;
}
