/* The rows of known_calls.def, found by owner and name through an index that is made once: capture asks for nearly
 * every object that it meets. Tests: tests/python/capture/test_known_calls.py. */
#include "dynamo/capture/known_calls.h"

#include <pthread.h>
#include <string.h>

#include "base/base.h"
#include "dynamo/capture/known.h"
#include "dynamo/cpython/objects.h"

#define BLIND WK__CALL_BLIND
#define HALFWAY WK__CALL_HALFWAY
#define SEARCHES WK__CALL_SEARCHES
#define STORES WK__CALL_STORES
#define KEYS WK__CALL_KEYS
#define DROPS WK__CALL_DROPS
#define DROPS_ITEM WK__CALL_DROPS_ITEM
#define DROPS_KEYS WK__CALL_DROPS_KEYS
#define GIVEN WK__CALL_GIVEN
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

/* ---- the index: open addresses, numbers of rows from 1 on ---- */

enum { PLACES = 2048 };
static uint16_t call_index[PLACES], class_index[PLACES];
_Static_assert(WK_COUNT(calls) < PLACES / 2 && WK_COUNT(classes) < PLACES / 2, "the index has room");

static uint64_t hash_name(const char *name, uint64_t seed) { return wk__hash_bytes(name, strlen(name), seed); }
static uint64_t hash_call(const char *owner, const char *name) { return hash_name(name, hash_name(owner, 0)); }

static void enter(uint16_t *index, uint64_t hash, size_t row) {
  while (index[hash % PLACES]) hash++;
  index[hash % PLACES] = (uint16_t)(row + 1);
}

static void make_index(void) {
  for (size_t i = 0; i < WK_COUNT(calls); i++) enter(call_index, hash_call(calls[i].owner, calls[i].name), i);
  for (size_t i = 0; i < WK_COUNT(classes); i++) enter(class_index, hash_name(classes[i].name, 0), i);
}

static void need_index(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_index);
}

static const wk__known_call *find_row(const char *owner, const char *name) {
  need_index();
  for (uint64_t at = hash_call(owner, name); call_index[at % PLACES]; at++) {
    const wk__known_call *row = &calls[call_index[at % PLACES] - 1];
    if (strcmp(row->name, name) == 0 && strcmp(row->owner, owner) == 0) return row;
  }
  return NULL;
}

/* NULL: the table does not know this owner's. Of a name's own row and the owner's for all names the first one says. */
static const wk__known_call *find(const char *owner, const char *name) {
  const wk__known_call *own = find_row(owner, name), *all = find_row(owner, "*");
  return !own || (all && all < own) ? all : own;
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
  need_index();
  for (uint64_t at = hash_name(type->tp_name, 0); class_index[at % PLACES]; at++) {
    size_t row = class_index[at % PLACES] - 1u;
    if (strcmp(classes[row].name, type->tp_name) == 0) return (wk__class_kind)classes[row].kind;
  }
  return WK__CLASS_UNKNOWN;
}
