/* wick._C.Module: the attribute and call path of nn.Module. The rest of nn.Module (registration, state dicts, hooks,
 * conversion) is Python, in wick/nn/modules/module.py, which derives from this type.
 *
 * In: attribute reads, stores and calls of module instances. Out: PyTorch's behaviour, its error texts included.
 * Invariant: everything an instance knows stands in its __dict__ under PyTorch's names (_parameters, _buffers,
 * _modules, _forward_hooks, ...), so pickle, copy and programs that reach into __dict__ see what they expect; the C
 * fields beside it are only shortcuts. Tests: tests/python/test_nn.py, tests/parity/test_nn_parity.py.
 *
 * How an attribute is read, in PyTorch's order: data descriptor of the type, instance dict, the type's other
 * attributes, then _parameters, _buffers, _modules. PyTorch does the last step in a Python __getattr__, after an
 * AttributeError was raised and caught; here it is one C function. A subclass with its own __getattr__ or
 * __getattribute__ gets the two steps separately again, because then Python puts a dispatching slot into the subclass.
 */
#include "dynamo/cpython/objects.h"
#include "python/python.h"

#include <structmember.h>

/* Names besides those of python.h, and a cache of type attributes. */
/* clang-format off */
#define NN_NAMES(NAME)                                                                                                \
  NAME(_is_param) NAME(_is_buffer) NAME(persistent) NAME(register_buffer) NAME(_call_with_hooks)                      \
  NAME(call_super_init) NAME(__init__) NAME(__init_subclass__) NAME(__getattribute__) NAME(_state_dict_hooks)         \
  NAME(_state_dict_pre_hooks) NAME(_load_state_dict_pre_hooks) NAME(_load_state_dict_post_hooks)                      \
  NAME(_is_full_backward_hook)
/* clang-format on */

enum { CACHE_SIZE = 1024, GLOBAL_CALL_HOOKS = 4, GLOBAL_HOOKS = 7 };

typedef struct type_attribute {
  unsigned version; /* the type's version tag: never given out twice, so a dead type's entry cannot be hit */
  PyObject *name;   /* owned */
  PyObject
      *value; /* borrowed from the type, alive as long as the version holds; NULL: the type has no such attribute */
} type_attribute;

struct wk__nn_state {
#define NAME(x) PyObject *name_##x;
  NN_NAMES(NAME)
#undef NAME
  PyObject *call_impl;                  /* Module._call_impl as it stands in the type's dict */
  PyObject *getattr, *getattribute;     /* likewise __getattr__ and __getattribute__ */
  PyObject *global_hooks[GLOBAL_HOOKS]; /* the dicts of wick.nn.modules.module, once it has registered them */
  type_attribute cache[CACHE_SIZE];
};
/* The order of global_hooks. The first GLOBAL_CALL_HOOKS matter to calls, the others to registration. */
enum { BUFFER_REGISTRATION = 4, MODULE_REGISTRATION = 5 };

/* What the instance's dict says about calls. Where dicts have versions (before 3.12) this is kept while the version
 * holds; no version is given out twice, and the hook dicts live as long as the instance's dict holds them. */
typedef struct call_facts {
  uint64_t version;   /* of the dict when it was read; 0: not read */
  bool has_forward;   /* forward was replaced on the instance */
  bool has_call;      /* _call_impl was, or compile() has made a _compiled_call_impl */
  PyObject *hooks[4]; /* borrowed: the four dicts of hooks that calls look at, NULL where there is none */
} call_facts;

/* clang-format off */
typedef struct nn_module {
  PyObject_HEAD
  PyObject *dict; /* the instance's __dict__, or NULL before the first store */
  PyObject *weak_references;
  vectorcallfunc vectorcall;
  wk__state *state; /* lives as long as the type does */
  call_facts facts;
} nn_module;
/* clang-format on */

static PyObject *module_getattro(PyObject *o, PyObject *name);                                           // -> new
static PyObject *module_call(PyObject *o, PyObject *args, PyObject *kwargs);                             // -> new
static PyObject *module_vectorcall(PyObject *o, PyObject *const *args, size_t nargsf, PyObject *names);  // -> new

/* ================================================= small lookups ================================================== */

/* The type's attribute without binding it, or NULL without an exception. Borrowed. `name` is an exact str. */
static PyObject *type_lookup_slow(PyTypeObject *type, PyObject *name) {  // -> borrowed
  PyObject *mro = type->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); i++) {
    PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
    PyObject *dict = wk__type_dict(base), *value = dict ? PyDict_GetItemWithError(dict, name) : NULL;
    if (value) return value;
  }
  PyErr_Clear();
  return NULL;
}

static PyObject *type_lookup(struct wk__nn_state *nn, PyTypeObject *type, PyObject *name) {  // -> borrowed
  unsigned version = wk__type_version(type);
  type_attribute *entry = &nn->cache[(version * 31 ^ ((uintptr_t)name >> 4)) % CACHE_SIZE];
  if (entry->version == version && entry->name == name && version != 0) return entry->value;
  PyObject *value = type_lookup_slow(type, name);
  if (version != 0) {
    *entry = (type_attribute){version, entry->name, value};
    Py_XSETREF(entry->name, Py_NewRef(name));
  }
  return value;
}

/* A value of the instance's dict; NULL without an exception when it is not there. */
static PyObject *own_value(nn_module *self, PyObject *name) {  // -> borrowed
  return self->dict ? PyDict_GetItemWithError(self->dict, name) : NULL;
}

/* One of the dicts in the instance's dict; NULL when the constructor has not run. */
static PyObject *own_dict(nn_module *self, PyObject *name) {  // -> borrowed
  PyObject *value = own_value(self, name);
  return value && PyDict_Check(value) ? value : NULL;
}

/* Subclasses may do what they like with PyObject_GetItem; a dict is read directly. */
static PyObject *registered_value(nn_module *self, PyObject *name) {  // -> borrowed
  wk__state *state = self->state;
  PyObject *names[] = {state->name__parameters, state->name__buffers, state->name__modules};
  for (int i = 0; i < 3; i++) {
    PyObject *dict = own_dict(self, names[i]);
    PyObject *value = dict && PyDict_GET_SIZE(dict) > 0 ? PyDict_GetItemWithError(dict, name) : NULL;
    if (value || PyErr_Occurred()) return value;
  }
  return NULL;
}

static void *raise_missing(PyObject *o, PyObject *name) {
  const char *type_name = strrchr(Py_TYPE(o)->tp_name, '.');
  type_name = type_name ? type_name + 1 : Py_TYPE(o)->tp_name;
  PyErr_Format(PyExc_AttributeError, "'%s' object has no attribute '%U'", type_name, name);
  return NULL;
}

/* =============================================== reading attributes =============================================== */

static PyObject *module_getattro(PyObject *o, PyObject *name) {
  nn_module *self = (nn_module *)o;
  PyTypeObject *type = Py_TYPE(o);
  if (!PyUnicode_CheckExact(name) || self->state == NULL) return PyObject_GenericGetAttr(o, name);

  PyObject *result = NULL, *in_type = type_lookup(self->state->nn, type, name);
  descrgetfunc get = NULL;
  if (in_type) {
    Py_INCREF(in_type);
    get = Py_TYPE(in_type)->tp_descr_get;
    if (get && Py_TYPE(in_type)->tp_descr_set) {
      result = get(in_type, o, (PyObject *)type);
      goto bound;
    }
  }
  result = own_value(self, name);
  if (result) {
    Py_INCREF(result);
    Py_XDECREF(in_type);
    return result;
  }
  if (in_type) {
    if (!get) return in_type;
    result = get(in_type, o, (PyObject *)type);
    goto bound;
  }
  if (PyErr_Occurred()) return NULL;
  /* With a dispatching slot in the type, its __getattr__ comes next and this step is module_getattr's. */
  if (type->tp_getattro == module_getattro) {
    result = registered_value(self, name);
    if (result) return Py_NewRef(result);
    if (PyErr_Occurred()) return NULL;
  }
  return raise_missing(o, name);

bound:
  Py_DECREF(in_type);
  /* A property that raises AttributeError: the registered names are asked before the error goes out. */
  if (!result && type->tp_getattro == module_getattro && PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyObject *error_type, *error, *traceback;
    PyErr_Fetch(&error_type, &error, &traceback);
    result = Py_XNewRef(registered_value(self, name));
    if (!result) {
      PyErr_Clear();
      PyErr_Restore(error_type, error, traceback);
      return NULL;
    }
    Py_XDECREF(error_type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
  }
  return result;
}

/* Module.__getattr__, for subclasses that define their own and call super(). */
static PyObject *module_getattr(PyObject *o, PyObject *name) {  // -> new
  PyObject *value = registered_value((nn_module *)o, name);
  if (value) return Py_NewRef(value);
  return PyErr_Occurred() ? NULL : raise_missing(o, name);
}

/* =============================================== storing attributes =============================================== */

/* The truth of an attribute that may be missing; -1 with an exception. */
static int flag_of(PyObject *o, PyObject *name) {
  PyObject *value = PyObject_GetAttr(o, name);
  if (!value) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
    PyErr_Clear();
    return 0;
  }
  int truth = PyObject_IsTrue(value);
  Py_DECREF(value);
  return truth;
}

/* A Parameter, or a tensor of another class that was made one. */
static int is_parameter(wk__state *state, PyObject *value) {
  if (!wk__is_tensor(state, value)) return 0;
  if (state->parameter_type && PyObject_TypeCheck(value, state->parameter_type)) return 1;
  return Py_IS_TYPE(value, state->tensor_type) ? 0 : flag_of(value, state->nn->name__is_param);
}

static int is_buffer(wk__state *state, PyObject *value) {
  return wk__is_tensor(state, value) ? flag_of(value, state->nn->name__is_buffer) : 0;
}

/* Drops `name` from a dict of the instance, or from the instance's dict itself when `which` is NULL. */
static int forget(nn_module *self, PyObject *which, PyObject *name) {
  PyObject *dict = which ? own_dict(self, which) : self->dict;
  if (!dict) return 0;
  int found = PyDict_Contains(dict, name);
  return found > 0 ? PyDict_DelItem(dict, name) : found;
}

static int forget_non_persistent(nn_module *self, PyObject *name) {
  PyObject *set = own_value(self, self->state->name__non_persistent_buffers_set);
  return set && PySet_Check(set) ? PySet_Discard(set, name) : 0;
}

/* "torch.FloatTensor" or "module.Class": what PyTorch's typename says in these messages. */
static PyObject *type_name_of(PyObject *value) {  // -> new
  PyObject *qualified = NULL;
  PyObject *helpers = PyImport_ImportModule("wick.nn.modules.module");
  if (helpers) qualified = PyObject_CallMethod(helpers, "_typename", "O", value);
  Py_XDECREF(helpers);
  return qualified;
}

static int raise_wrong_kind(PyObject *value, const char *kind, PyObject *name, const char *expected) {
  PyObject *type_name = type_name_of(value);
  if (type_name) {
    PyErr_Format(PyExc_TypeError, "cannot assign '%U' as %s '%U' (%s expected)", type_name, kind, name, expected);
    Py_DECREF(type_name);
  }
  return -1;
}

/* Runs the global registration hooks: each may replace the value. Steals `value`; NULL with an exception. */
static PyObject *run_registration_hooks(nn_module *self, int which, PyObject *name, PyObject *steal_value) {  // -> new
  PyObject *hooks = self->state->nn->global_hooks[which];
  if (!hooks || PyDict_GET_SIZE(hooks) == 0) return steal_value;
  PyObject *list = PyMapping_Values(hooks);
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list) && steal_value; i++) {
    PyObject *other = PyObject_CallFunctionObjArgs(PyList_GET_ITEM(list, i), (PyObject *)self, name, steal_value, NULL);
    if (other == Py_None)
      Py_DECREF(other);
    else
      Py_SETREF(steal_value, other);
  }
  if (!list) Py_CLEAR(steal_value);
  Py_XDECREF(list);
  return steal_value;
}

static int store_registered(nn_module *self, PyObject *dict, int hooks, PyObject *name, PyObject *value) {
  value = run_registration_hooks(self, hooks, name, Py_NewRef(value));
  if (!value) return -1;
  int rc = PyDict_SetItem(dict, name, value);
  Py_DECREF(value);
  return rc;
}

static int call_register(nn_module *self, PyObject *method, PyObject *name, PyObject *value, PyObject *third) {
  PyObject *result = PyObject_CallMethodObjArgs((PyObject *)self, method, name, value, third, NULL);
  Py_XDECREF(result);
  return result ? 0 : -1;
}

static int set_parameter(nn_module *self, PyObject *name, PyObject *value) {
  wk__state *state = self->state;
  if (!own_dict(self, state->name__parameters)) {
    PyErr_SetString(PyExc_AttributeError, "cannot assign parameters before Module.__init__() call");
    return -1;
  }
  if (forget(self, NULL, name) < 0 || forget(self, state->name__buffers, name) < 0 ||
      forget(self, state->name__modules, name) < 0 || forget_non_persistent(self, name) < 0)
    return -1;
  return call_register(self, state->name_register_parameter, name, value, NULL);
}

static int set_module(nn_module *self, PyObject *name, PyObject *value) {
  wk__state *state = self->state;
  PyObject *modules = own_dict(self, state->name__modules);
  if (!modules) {
    PyErr_SetString(PyExc_AttributeError, "cannot assign module before Module.__init__() call");
    return -1;
  }
  if (forget(self, NULL, name) < 0 || forget(self, state->name__parameters, name) < 0 ||
      forget(self, state->name__buffers, name) < 0 || forget_non_persistent(self, name) < 0)
    return -1;
  return store_registered(self, modules, MODULE_REGISTRATION, name, value);
}

static int set_buffer(nn_module *self, PyObject *buffers, PyObject *name, PyObject *value, int marked) {
  wk__state *state = self->state;
  if (value != Py_None && !wk__is_tensor(state, value))
    return raise_wrong_kind(value, "buffer", name, "torch.nn.Buffer, torch.Tensor or None");
  if (!marked) return store_registered(self, buffers, BUFFER_REGISTRATION, name, value);
  PyObject *persistent = PyObject_GetAttr(value, state->nn->name_persistent);
  if (!persistent) return -1;
  int rc = forget(self, NULL, name) < 0 || forget(self, state->name__parameters, name) < 0 ||
                   forget(self, state->name__modules, name) < 0
               ? -1
               : call_register(self, state->nn->name_register_buffer, name, value, persistent);
  Py_DECREF(persistent);
  return rc;
}

/* 1 when the dict (NULL: not there) has the name; -1 with an exception. */
static int has(PyObject *dict, PyObject *name) {
  return dict && PyDict_GET_SIZE(dict) > 0 ? PyDict_Contains(dict, name) : 0;
}

static int module_store(nn_module *self, PyObject *name, PyObject *value) {
  wk__state *state = self->state;
  int is;
  if ((is = is_parameter(state, value)) != 0) return is < 0 ? -1 : set_parameter(self, name, value);
  if ((is = has(own_dict(self, state->name__parameters), name)) != 0) {
    if (is < 0) return -1;
    if (value != Py_None) return raise_wrong_kind(value, "parameter", name, "torch.nn.Parameter or None");
    return call_register(self, state->name_register_parameter, name, value, NULL);
  }
  if (PyObject_TypeCheck(value, state->module_type)) return set_module(self, name, value);
  PyObject *modules = own_dict(self, state->name__modules);
  if ((is = has(modules, name)) != 0) {
    if (is < 0) return -1;
    if (value != Py_None) return raise_wrong_kind(value, "child module", name, "torch.nn.Module or None");
    return store_registered(self, modules, MODULE_REGISTRATION, name, value);
  }
  PyObject *buffers = own_dict(self, state->name__buffers);
  int marked = is_buffer(state, value);
  if (marked < 0) return -1;
  if (marked || (is = has(buffers, name)) != 0) return is < 0 ? -1 : set_buffer(self, buffers, name, value, marked);
  return PyObject_GenericSetAttr((PyObject *)self, name, value);
}

/* Module.__setattr__. A method and not the type's slot, so that object.__setattr__(module, name, value), with which
 * programs bypass registration, stays allowed: Python refuses it on types with a C slot. */
static PyObject *module_setattr(PyObject *o, PyObject *const *args, Py_ssize_t count) {  // -> new
  if (count != 2) return PyErr_Format(PyExc_TypeError, "expected 2 arguments, got %zd", count);
  if (!PyUnicode_Check(args[0]))
    return PyErr_Format(PyExc_TypeError, "attribute name must be string, not '%s'", Py_TYPE(args[0])->tp_name);
  PyObject *name = Py_NewRef(args[0]);
  PyUnicode_InternInPlace(&name);
  int rc = module_store((nn_module *)o, name, args[1]);
  Py_DECREF(name);
  return rc < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *module_delattr(PyObject *o, PyObject *name) {  // -> new
  nn_module *self = (nn_module *)o;
  wk__state *state = self->state;
  PyObject *names[] = {state->name__parameters, state->name__buffers, state->name__modules};
  for (int i = 0; i < 3; i++) {
    PyObject *dict = own_dict(self, names[i]);
    int found = has(dict, name);
    if (found == 0) continue;
    if (found < 0 || PyDict_DelItem(dict, name) < 0 || (i == 1 && forget_non_persistent(self, name) < 0)) return NULL;
    return Py_NewRef(Py_None);
  }
  return PyObject_GenericSetAttr(o, name, NULL) < 0 ? NULL : Py_NewRef(Py_None);
}

/* ==================================================== calling ===================================================== */

static const call_facts *facts_of(nn_module *self) {
  call_facts *facts = &self->facts;
  if (!self->dict) {
    *facts = (call_facts){0};
    return facts;
  }
  uint64_t version = wk__dict_version(self->dict);
  if (version != 0 && version == facts->version) return facts;
  wk__state *state = self->state;
  PyObject *names[] = {state->name__forward_hooks, state->name__forward_pre_hooks, state->name__backward_hooks,
                       state->name__backward_pre_hooks};
  for (int i = 0; i < 4; i++) facts->hooks[i] = own_dict(self, names[i]);
  PyObject *compiled = own_value(self, state->name__compiled_call_impl);
  facts->has_call = (compiled && compiled != Py_None) || own_value(self, state->name__call_impl);
  facts->has_forward = own_value(self, state->name_forward) != NULL;
  facts->version = version;
  return facts;
}

static bool has_hooks(nn_module *self, const call_facts *facts) {
  for (int i = 0; i < 4; i++)
    if (facts->hooks[i] && PyDict_GET_SIZE(facts->hooks[i]) > 0) return true;
  PyObject **global = self->state->nn->global_hooks;
  for (int i = 0; i < GLOBAL_CALL_HOOKS && global[i]; i++)
    if (PyDict_GET_SIZE(global[i]) > 0) return true;
  return false;
}

/* Calls the type's plain function `method` with self before the arguments: no bound method is made. */
static PyObject *call_with_self(nn_module *self, PyObject *function, PyObject *const *args, size_t nargsf,
                                PyObject *names) {  // -> new
  size_t count = PyVectorcall_NARGS(nargsf), total = count + (names ? PyTuple_GET_SIZE(names) : 0);
  if (nargsf & PY_VECTORCALL_ARGUMENTS_OFFSET) { /* the slot before the arguments is ours to borrow */
    PyObject **shifted = (PyObject **)args - 1, *saved = *shifted;
    *shifted = (PyObject *)self;
    PyObject *result = PyObject_Vectorcall(function, shifted, count + 1, names);
    *shifted = saved;
    return result;
  }
  PyObject *on_stack[9], **copy = total < 8 ? on_stack : PyMem_Malloc((total + 2) * sizeof *copy);
  if (!copy) return PyErr_NoMemory();
  copy[1] = (PyObject *)self;
  if (total) memcpy(copy + 2, args, total * sizeof *copy);
  PyObject *result = PyObject_Vectorcall(function, copy + 1, (count + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, names);
  if (copy != on_stack) PyMem_Free(copy);
  return result;
}

static PyObject *call_method(nn_module *self, PyObject *method, PyObject *const *args, size_t nargsf,
                             PyObject *names) {  // -> new
  PyObject *bound = PyObject_GetAttr((PyObject *)self, method);
  if (!bound) return NULL;
  PyObject *result = PyObject_Vectorcall(bound, args, nargsf, names);
  Py_DECREF(bound);
  return result;
}

/* Module._call_impl: forward when there are no hooks, the Python path otherwise. */
static PyObject *module_call_impl(PyObject *o, PyObject *const *args, size_t nargsf, PyObject *names) {  // -> new
  nn_module *self = (nn_module *)o;
  wk__state *state = self->state;
  const call_facts *facts = facts_of(self);
  if (has_hooks(self, facts)) return call_method(self, state->nn->name__call_with_hooks, args, nargsf, names);
  PyObject *forward = type_lookup(state->nn, Py_TYPE(o), state->name_forward);
  if (!forward || !PyFunction_Check(forward) || facts->has_forward)
    return call_method(self, state->name_forward, args, nargsf, names);
  Py_INCREF(forward);
  PyObject *result = call_with_self(self, forward, args, nargsf, names);
  Py_DECREF(forward);
  return result;
}

static PyObject *module_call_impl_method(PyObject *o, PyObject *const *args, Py_ssize_t count,
                                         PyObject *names) {  // -> new
  return module_call_impl(o, args, (size_t)count, names);
}

/* Module.__call__: the compiled form when compile() made one, else _call_impl, which a program may have replaced. */
static PyObject *call_either(PyObject *o, PyObject *const *args, size_t nargsf, PyObject *names) {  // -> new
  nn_module *self = (nn_module *)o;
  wk__state *state = self->state;
  bool replaced = type_lookup(state->nn, Py_TYPE(o), state->name__call_impl) != state->nn->call_impl;
  if (replaced || facts_of(self)->has_call) {
    PyObject *compiled = own_value(self, state->name__compiled_call_impl);
    bool is_compiled = compiled && compiled != Py_None;
    return call_method(self, is_compiled ? state->name__compiled_call_impl : state->name__call_impl, args, nargsf,
                       names);
  }
  return module_call_impl(o, args, nargsf, names);
}

static PyObject *module_call(PyObject *o, PyObject *args, PyObject *kwargs) {
  if (!kwargs || PyDict_GET_SIZE(kwargs) == 0)
    return call_either(o, ((PyTupleObject *)args)->ob_item, PyTuple_GET_SIZE(args), NULL);
  Py_ssize_t count = PyTuple_GET_SIZE(args), position = 0, i = 0;
  PyObject *names = PyTuple_New(PyDict_GET_SIZE(kwargs)), *result = NULL, *key, *value;
  PyObject **values = PyMem_Malloc((count + PyDict_GET_SIZE(kwargs) + 1) * sizeof *values);
  if (names && values) {
    for (; i < count; i++) values[1 + i] = PyTuple_GET_ITEM(args, i);
    for (; PyDict_Next(kwargs, &position, &key, &value); i++) {
      PyTuple_SET_ITEM(names, i - count, Py_NewRef(key));
      values[1 + i] = value;
    }
    result = call_either(o, values + 1, (size_t)count | PY_VECTORCALL_ARGUMENTS_OFFSET, names);
  } else if (!PyErr_Occurred()) {
    PyErr_NoMemory();
  }
  PyMem_Free(values);
  Py_XDECREF(names);
  return result;
}

/* The same without tuples. The type may have got a __call__ of its own after this instance was made. */
static PyObject *module_vectorcall(PyObject *o, PyObject *const *args, size_t nargsf, PyObject *names) {
  if (Py_TYPE(o)->tp_call == module_call) return call_either(o, args, nargsf, names);
  Py_ssize_t count = PyVectorcall_NARGS(nargsf), named = names ? PyTuple_GET_SIZE(names) : 0;
  PyObject *positional = PyTuple_New(count), *keywords = named ? PyDict_New() : NULL, *result = NULL;
  if (!positional || (named && !keywords)) goto done;
  for (Py_ssize_t i = 0; i < count; i++) PyTuple_SET_ITEM(positional, i, Py_NewRef(args[i]));
  for (Py_ssize_t i = 0; i < named; i++)
    if (PyDict_SetItem(keywords, PyTuple_GET_ITEM(names, i), args[count + i]) < 0) goto done;
  result = Py_TYPE(o)->tp_call(o, positional, keywords);
done:
  Py_XDECREF(positional);
  Py_XDECREF(keywords);
  return result;
}

/* ==================================================== lifetime ==================================================== */

static PyObject *module_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {  // -> new
  (void)args, (void)kwargs;
  wk__state *state = wk__state_of_type(type);
  nn_module *self = state ? (nn_module *)type->tp_alloc(type, 0) : NULL;
  if (!self) return NULL;
  self->state = state;
  self->vectorcall = module_vectorcall;
  return (PyObject *)self;
}

/* Module takes no arguments of its own; a class with call_super_init = True passes them on along its bases. */
static int check_init_arguments(nn_module *self, PyObject *args, PyObject *kwargs, bool pass_on) {
  if (pass_on) return 0;
  PyTypeObject *type = Py_TYPE(self);
  PyObject *key, *value;
  Py_ssize_t position = 0;
  const char *dot = strrchr(type->tp_name, '.'), *type_name = dot ? dot + 1 : type->tp_name;
  if (kwargs && PyDict_Next(kwargs, &position, &key, &value)) {
    PyErr_Format(PyExc_TypeError, "%s.__init__() got an unexpected keyword argument '%U'", type_name, key);
    return -1;
  }
  if (PyTuple_GET_SIZE(args) == 0) return 0;
  PyErr_Format(PyExc_TypeError, "%s.__init__() takes 1 positional argument but %zd were given", type_name,
               PyTuple_GET_SIZE(args) + 1);
  return -1;
}

static int call_next_init(nn_module *self, PyObject *args, PyObject *kwargs) {
  PyObject *super = PyObject_CallFunctionObjArgs((PyObject *)&PySuper_Type, (PyObject *)self->state->module_type,
                                                 (PyObject *)self, NULL);
  PyObject *init = super ? PyObject_GetAttr(super, self->state->nn->name___init__) : NULL;
  PyObject *result = init ? PyObject_Call(init, args, kwargs) : NULL;
  Py_XDECREF(super);
  Py_XDECREF(init);
  Py_XDECREF(result);
  return result ? 0 : -1;
}

static int put(PyObject *dict, PyObject *name, PyObject *steal_value) {
  int rc = steal_value ? PyDict_SetItem(dict, name, steal_value) : -1;
  Py_XDECREF(steal_value);
  return rc;
}

static int put_ordered(PyObject *dict, PyObject **names, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (put(dict, names[i], PyODict_New()) < 0) return -1;
  return 0;
}

static int module_init(PyObject *o, PyObject *args, PyObject *kwargs) {
  nn_module *self = (nn_module *)o;
  wk__state *state = self->state;
  struct wk__nn_state *nn = state->nn;
  int pass_on = flag_of(o, nn->name_call_super_init);
  if (pass_on < 0 || check_init_arguments(self, args, kwargs, pass_on) < 0) return -1;
  if (!self->dict && !(self->dict = PyDict_New())) return -1;
  PyObject *dict = self->dict;
  PyObject *before[] = {state->name__backward_pre_hooks, state->name__backward_hooks};
  PyObject *after[] = {state->name__forward_hooks,
                       state->name__forward_hooks_with_kwargs,
                       state->name__forward_hooks_always_called,
                       state->name__forward_pre_hooks,
                       state->name__forward_pre_hooks_with_kwargs,
                       nn->name__state_dict_hooks,
                       nn->name__state_dict_pre_hooks,
                       nn->name__load_state_dict_pre_hooks,
                       nn->name__load_state_dict_post_hooks};
  if (put(dict, state->name_training, Py_NewRef(Py_True)) < 0 || put(dict, state->name__parameters, PyDict_New()) < 0 ||
      put(dict, state->name__buffers, PyDict_New()) < 0 ||
      put(dict, state->name__non_persistent_buffers_set, PySet_New(NULL)) < 0 || put_ordered(dict, before, 2) < 0 ||
      put(dict, nn->name__is_full_backward_hook, Py_NewRef(Py_None)) < 0 ||
      put_ordered(dict, after, sizeof after / sizeof *after) < 0 || put(dict, state->name__modules, PyDict_New()) < 0)
    return -1;
  return pass_on ? call_next_init(self, args, kwargs) : 0;
}

static int module_traverse(PyObject *o, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(((nn_module *)o)->dict);
  return 0;
}

static int module_clear(PyObject *o) {
  Py_CLEAR(((nn_module *)o)->dict);
  return 0;
}

static void module_dealloc(PyObject *o) {
  PyTypeObject *type = Py_TYPE(o);
  PyObject_GC_UnTrack(o);
  Py_TRASHCAN_BEGIN(o, module_dealloc) if (((nn_module *)o)->weak_references) PyObject_ClearWeakRefs(o);
  module_clear(o);
  type->tp_free(o);
  Py_DECREF(type);
  Py_TRASHCAN_END
}

/* Every Python subclass passes here. Python has put a dispatching slot into it because a __getattr__ is in sight; when
 * that one is ours, the C function takes its place. Before 3.12, Python does not pass vectorcall on to subclasses. */
static PyObject *module_init_subclass(PyObject *cls, PyObject *const *args, Py_ssize_t count,
                                      PyObject *names) {  // -> new
  PyTypeObject *type = (PyTypeObject *)cls;
  wk__state *state = wk__state_of_type(type);
  if (!state) return NULL;
  struct wk__nn_state *nn = state->nn;
  if (type_lookup_slow(type, state->name___getattr__) == nn->getattr &&
      type_lookup_slow(type, nn->name___getattribute__) == nn->getattribute)
    type->tp_getattro = module_getattro;
  if (type->tp_call == module_call && type->tp_vectorcall_offset == (Py_ssize_t)offsetof(nn_module, vectorcall))
    type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
  PyObject *super = PyObject_CallFunctionObjArgs((PyObject *)&PySuper_Type, (PyObject *)state->module_type, cls, NULL);
  PyObject *next = super ? PyObject_GetAttr(super, nn->name___init_subclass__) : NULL;
  PyObject *result = next ? PyObject_Vectorcall(next, args, count, names) : NULL;
  Py_XDECREF(super);
  Py_XDECREF(next);
  return result;
}

/* ==================================================== the type ==================================================== */

static PyMethodDef module_methods[] = {
    {"__getattr__", module_getattr, METH_O, "Registered parameters, buffers and modules by name."},
    {"__setattr__", (PyCFunction)(void (*)(void))module_setattr, METH_FASTCALL,
     "Registers parameters and modules, keeps buffers buffers, stores all else."},
    {"__delattr__", module_delattr, METH_O, "Removes a registered name or an ordinary attribute."},
    {"_call_impl", (PyCFunction)(void (*)(void))module_call_impl_method, METH_FASTCALL | METH_KEYWORDS,
     "Calls forward, with the hooks around it."},
    {"__init_subclass__", (PyCFunction)(void (*)(void))module_init_subclass, METH_FASTCALL | METH_KEYWORDS | METH_CLASS,
     NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef module_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(nn_module, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(nn_module, weak_references), READONLY, NULL},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(nn_module, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef module_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot module_slots[] = {
    {Py_tp_doc, "The attribute and call path of nn.Module; derive from wick.nn.Module."},
    {Py_tp_new, module_new},
    {Py_tp_init, module_init},
    {Py_tp_dealloc, module_dealloc},
    {Py_tp_traverse, module_traverse},
    {Py_tp_clear, module_clear},
    {Py_tp_getattro, module_getattro},
    {Py_tp_call, module_call},
    {Py_tp_methods, module_methods},
    {Py_tp_members, module_members},
    {Py_tp_getset, module_getset},
    {0, NULL},
};

static PyType_Spec module_spec = {
    .name = "wick._C.Module",
    .basicsize = sizeof(nn_module),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = module_slots,
};

/* _C._set_module_hooks(...): the dicts of hooks for all modules, in the order of global_hooks. */
static PyObject *set_module_hooks(PyObject *module, PyObject *args) {  // -> new
  struct wk__nn_state *nn = wk__state_of_module(module)->nn;
  if (PyTuple_GET_SIZE(args) != GLOBAL_HOOKS) return PyErr_Format(PyExc_TypeError, "expected %d dicts", GLOBAL_HOOKS);
  for (int i = 0; i < GLOBAL_HOOKS; i++) {
    PyObject *dict = PyTuple_GET_ITEM(args, i);
    if (!PyDict_Check(dict)) return PyErr_Format(PyExc_TypeError, "expected a dict");
    Py_XSETREF(nn->global_hooks[i], Py_NewRef(dict));
  }
  return Py_NewRef(Py_None);
}

PyObject *wk__global_call_hooks(const wk__state *state, int k) {  // -> borrowed
  return k < GLOBAL_CALL_HOOKS ? state->nn->global_hooks[k] : NULL;
}

static PyMethodDef functions[] = {
    {"_set_module_hooks", set_module_hooks, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int wk__add_nn_module(PyObject *module, wk__state *state) {
  struct wk__nn_state *nn = state->nn = PyMem_Calloc(1, sizeof *nn);
  if (!nn) return PyErr_NoMemory(), -1;
#define NAME(x)                                  \
  nn->name_##x = PyUnicode_InternFromString(#x); \
  if (!nn->name_##x) return -1;
  NN_NAMES(NAME)
#undef NAME
  state->module_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &module_spec, NULL);
  if (!state->module_type) return -1;
  nn->call_impl = type_lookup_slow(state->module_type, state->name__call_impl);
  nn->getattr = type_lookup_slow(state->module_type, state->name___getattr__);
  nn->getattribute = type_lookup_slow(state->module_type, nn->name___getattribute__);
  if (PyModule_AddFunctions(module, functions) < 0) return -1;
  return PyModule_AddObjectRef(module, "Module", (PyObject *)state->module_type);
}

void wk__free_nn_module(wk__state *state) {
  struct wk__nn_state *nn = state->nn;
  if (!nn) return;
#define NAME(x) Py_XDECREF(nn->name_##x);
  NN_NAMES(NAME)
#undef NAME
  for (int i = 0; i < CACHE_SIZE; i++) Py_XDECREF(nn->cache[i].name);
  for (int i = 0; i < GLOBAL_HOOKS; i++) Py_XDECREF(nn->global_hooks[i]);
  PyMem_Free(nn);
  state->nn = NULL;
}
