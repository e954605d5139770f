/* What happens at a call while something is captured. Python functions are evaluated, operators record themselves, C
 * functions that only look at their arguments run; methods that change a container run and are noted; everything else
 * is refused and ends the segment. The lists of what only looks stand here. Tests: tests/python/capture/test_corpus.py.
 */
#include <opcode.h>

#include "autograd/autograd.h"
#include "dynamo/capture/known.h"
#include "dynamo/cpython/objects.h"

#define BINDING (f->session->binding)

static bool in_list(const char *name, const char *const *list) {
  for (; *list; list++)
    if (strcmp(*list, name) == 0) return true;
  return false;
}

/* ==================================================== lists ====================================================== */

/* Results depend on the arguments alone, which C code may look at all of. */
static const char *const builtins_that_look[] = {
    "abs", "all", "any", "ascii", "bin", "callable", "chr",  "divmod", "format", "hex", "isinstance", "issubclass",
    "len", "max", "min", "oct",   "ord", "pow",      "repr", "round",  "sorted", "sum", NULL};
static const char *const tensor_methods_that_look[] = {"size",
                                                       "stride",
                                                       "dim",
                                                       "ndimension",
                                                       "numel",
                                                       "nelement",
                                                       "storage_offset",
                                                       "element_size",
                                                       "is_contiguous",
                                                       "is_floating_point",
                                                       "is_complex",
                                                       "is_signed",
                                                       "__len__",
                                                       "to",
                                                       "type",
                                                       "float",
                                                       "double",
                                                       "half",
                                                       "bfloat16",
                                                       "long",
                                                       "int",
                                                       "short",
                                                       "char",
                                                       "byte",
                                                       "bool",
                                                       "cpu",
                                                       "backward",
                                                       "unbind",
                                                       "__iter__",
                                                       "__reversed__",
                                                       "__getitem__",
                                                       "__setitem__",
                                                       "__eq__",
                                                       "__ne__",
                                                       "__lt__",
                                                       "__le__",
                                                       "__gt__",
                                                       "__ge__",
                                                       "__neg__",
                                                       "__pos__",
                                                       "__abs__",
                                                       "__invert__",
                                                       "__add__",
                                                       "__sub__",
                                                       "__mul__",
                                                       "__truediv__",
                                                       "__floordiv__",
                                                       "__mod__",
                                                       "__pow__",
                                                       "__matmul__",
                                                       "__and__",
                                                       "__or__",
                                                       "__xor__",
                                                       "__lshift__",
                                                       "__rshift__",
                                                       "__radd__",
                                                       "__rsub__",
                                                       "__rmul__",
                                                       "__rtruediv__",
                                                       "__rfloordiv__",
                                                       "__rmod__",
                                                       "__rpow__",
                                                       "__rmatmul__",
                                                       "__rand__",
                                                       "__ror__",
                                                       "__rxor__",
                                                       "__rlshift__",
                                                       "__rrshift__",
                                                       "__iadd__",
                                                       "__isub__",
                                                       "__imul__",
                                                       "__itruediv__",
                                                       "__ifloordiv__",
                                                       "__imod__",
                                                       "__ipow__",
                                                       "__iand__",
                                                       "__ior__",
                                                       "__ixor__",
                                                       "__ilshift__",
                                                       "__irshift__",
                                                       NULL};
/* The tensor itself becomes its view. */
static const char *const methods_that_reshape[] = {"t_", "transpose_", "squeeze_", "unsqueeze_", NULL};
static const char *const core_functions_that_look[] = {"is_grad_enabled",
                                                       "is_inference_mode_enabled",
                                                       "_set_grad_enabled",
                                                       "_run_backward",
                                                       "is_tensor",
                                                       "result_type",
                                                       "promote_types",
                                                       "can_cast",
                                                       "get_default_dtype",
                                                       "get_default_device",
                                                       "is_autocast_enabled",
                                                       "is_autocast_cpu_enabled",
                                                       "get_autocast_dtype",
                                                       "get_autocast_cpu_dtype",
                                                       "get_autocast_gpu_dtype",
                                                       "is_autocast_cache_enabled",
                                                       "is_floating_point",
                                                       "is_complex",
                                                       "numel",
                                                       "_is_compiling",
                                                       "_is_tracing",
                                                       "_is_torch_function_enabled",
                                                       NULL};
static const char *const core_functions_that_set_autocast[] = {
    "set_autocast_cpu_enabled", "set_autocast_cpu_dtype", "set_autocast_cache_enabled", "clear_autocast_cache", NULL};
static const char *const container_methods_that_look[] = {"copy",
                                                          "index",
                                                          "count",
                                                          "keys",
                                                          "values",
                                                          "items",
                                                          "get",
                                                          "union",
                                                          "intersection",
                                                          "difference",
                                                          "symmetric_difference",
                                                          "issubset",
                                                          "issuperset",
                                                          "isdisjoint",
                                                          "__contains__",
                                                          "__len__",
                                                          "__getitem__",
                                                          "__iter__",
                                                          "__eq__",
                                                          "__ne__",
                                                          "__reversed__",
                                                          NULL};
/* Of those, the ones that give out what is in the container and look at nothing but a key. */
static const char *const container_methods_that_pass[] = {"copy",    "keys",        "values",   "items",        "get",
                                                          "__len__", "__getitem__", "__iter__", "__reversed__", NULL};
static const char *const container_methods_that_change[] = {"append",
                                                            "extend",
                                                            "insert",
                                                            "pop",
                                                            "remove",
                                                            "clear",
                                                            "sort",
                                                            "reverse",
                                                            "update",
                                                            "setdefault",
                                                            "popitem",
                                                            "add",
                                                            "discard",
                                                            "intersection_update",
                                                            "difference_update",
                                                            "symmetric_difference_update",
                                                            "__setitem__",
                                                            "__delitem__",
                                                            "move_to_end",
                                                            NULL};
/* Of those, the ones that do the same whatever the container holds, and give nothing back. */
static const char *const methods_that_are_blind[] = {"append",  "extend", "insert",  "clear",
                                                     "reverse", "add",    "discard", NULL};
/* And those that may have changed something when they raise: an iterable, a comparison or a key fails on the way. */
static const char *const methods_that_fail_halfway[] = {
    "extend", "sort", "update", "intersection_update", "difference_update", "symmetric_difference_update", NULL};
static const char *const methods_that_search[] = {"index", "count", "remove", "__contains__", "discard", NULL};
static const char *const instance_methods_that_look[] = {
    "__init__", "__new__", "__init_subclass__", "__enter__", "__exit__", "clone", NULL};

/* ================================================== arguments ==================================================== */

static bool arguments_usable(wk__frame *f, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  Py_ssize_t all = count + (names ? PyTuple_GET_SIZE(names) : 0);
  for (Py_ssize_t i = 0; i < all; i++)
    if (!wk__usable(f, args[i])) return false;
  return true;
}

/* Python code goes on in a frame of its own; the instruction does nothing else, unless this is a call within one. */
static PyObject *enter(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  wk__session *s = f->session;
  s->entering = !f->within;
  PyObject *result = wk__plain_call(f, callable, args, count, names);
  s->entering = false;
  return result;
}

/* An operator takes a changing number as it is: it becomes an input of the graph, or one of its symbols. */
static PyObject *call_operator(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                               PyObject *names) {
  Py_ssize_t all = count + (names ? PyTuple_GET_SIZE(names) : 0);
  for (Py_ssize_t i = 0; i < all; i++)
    if (!PyFloat_CheckExact(args[i]) && !wk__operand_usable(f, args[i])) return NULL;
  return wk__plain_call(f, callable, args, count, names);
}

/* What a segment does with the CPU's autocast is guarded at its start and set again at its end. */
static bool sets_autocast(const char *name, PyObject *const *args, Py_ssize_t count) {
  if (in_list(name, core_functions_that_set_autocast)) return true;
  bool names_device = strcmp(name, "set_autocast_enabled") == 0 || strcmp(name, "set_autocast_dtype") == 0;
  return names_device && count == 2 && PyUnicode_Check(args[0]) &&
         PyUnicode_CompareWithASCIIString(args[0], "cpu") == 0;
}

static PyObject *look(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  return arguments_usable(f, args, count, names) ? wk__plain_call(f, callable, args, count, names) : NULL;
}

/* The same, but a size that was marked stays one: the call is a break, and looks at it behind that. */
static PyObject *look_at_values(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                                PyObject *names) {
  for (Py_ssize_t i = 0; i < count + (names ? PyTuple_GET_SIZE(names) : 0); i++)
    if (wk__holds_marked_int(f->session->recording, args[i]))
      return wk__refuse(f, "C code looks at a size that was marked");
  return look(f, callable, args, count, names);
}

/* For C code that only hands references on. */
static PyObject *pass_on(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  for (Py_ssize_t i = 0; i < count + (names ? PyTuple_GET_SIZE(names) : 0); i++) {
    if (!wk__passed_on(f, args[i])) return NULL;
    if (i && callable == (PyObject *)&PyEnum_Type) wk__specialize(f->session->recording, args[i]); /* its start */
  }
  return wk__plain_call(f, callable, args, count, names);
}

/* =============================================== methods of containers =========================================== */

/* `type`: where the C method is found. */
static int note_method(wk__frame *f, wk__recording *r, PyTypeObject *type, PyObject *self, const char *name,
                       PyObject *const *args, Py_ssize_t count, PyObject *names) {
  PyObject *method = PyObject_GetAttrString((PyObject *)type, name), *items[12] = {method, self};
  Py_ssize_t all = count + (names ? PyTuple_GET_SIZE(names) : 0);
  if (!method || all > 10) {
    Py_XDECREF(method);
    wk__refuse(f, "a call of %s with many arguments", name);
    return -1;
  }
  for (Py_ssize_t i = 0; i < all; i++) items[2 + i] = args[i];
  int noted = wk__reg_constant(r, method);
  if (noted >= 0) noted = wk__did(r, BINDING, WK__DO_IMPURE_CALL, NULL, items, (int)(2 + all), names);
  Py_DECREF(method);
  if (noted < 0) wk__refuse(f, "%s", r->failed);
  return noted < 0 ? -1 : 0;
}

/* The C method itself: a class written in Python may have one of its own before it. */
static int note_change(wk__frame *f, wk__recording *r, PyObject *self, const char *name, PyObject *const *args,
                       Py_ssize_t count, PyObject *names) {
  PyTypeObject *type = Py_TYPE(self);
  while (!wk__type_is_fixed(type)) type = type->tp_base;
  return note_method(f, r, type, self, name, args, count, names);
}

/* The method puts the argument, or what it holds, into the container and looks at none of it. */
static bool stores(PyObject *self, const char *name, PyObject *arg) {
  if (PyList_CheckExact(self) && (strcmp(name, "append") == 0 || strcmp(name, "extend") == 0)) return true;
  return PyDict_CheckExact(self) && PyDict_CheckExact(arg) && strcmp(name, "update") == 0;
}

/* No Python code but that of what dies of it: of a class with methods of its own these are the C methods. */
static bool runs_destructors_alone(PyObject *self, const char *name, PyObject *const *args, Py_ssize_t given) {
  if (strcmp(name, "clear") == 0) return true;
  bool sets = strcmp(name, "__setitem__") == 0 || strcmp(name, "__delitem__") == 0;
  if (sets) return given && (PyUnicode_CheckExact(args[0]) || PyLong_CheckExact(args[0]));
  return strcmp(name, "update") == 0 && given && PyDict_CheckExact(self) && PyDict_CheckExact(args[0]);
}

/* A container's method that changes it: noted when others can see the container. */
static PyObject *change(wk__frame *f, wk__recording *r, PyObject *self, const char *name, PyObject *callable,
                        PyObject *const *args, Py_ssize_t count, PyObject *names, bool self_is_first) {
  bool blind = in_list(name, methods_that_are_blind) && (Py_TYPE(self) == &PyList_Type || Py_TYPE(self) == &PySet_Type);
  wk__reg reg = wk__reg_find(r, self);
  for (Py_ssize_t i = self_is_first; i < count + (names ? PyTuple_GET_SIZE(names) : 0); i++)
    if (!(stores(self, name, args[i]) ? wk__passed_on(f, args[i]) : wk__usable(f, args[i]))) return NULL;
  if (!blind && !(PyDict_Check(self) ? wk__passed_on(f, self) : wk__usable(f, self))) return NULL;
  if (blind && reg >= 0 && wk__keep_before(r, reg) < 0) return NULL;
  if (in_list(name, methods_that_search) && count > self_is_first) wk__note_search(f, r, self, args[self_is_first]);
  if (reg < 0) return wk__plain_call(f, callable, args, count, names);
  if (note_change(f, r, self, name, args + self_is_first, count - self_is_first, names) < 0) return NULL;
  int64_t step = r->step_count - 1;
  int only_lets_go = runs_destructors_alone(self, name, args + self_is_first, count - self_is_first);
  f->dropping += only_lets_go;
  PyObject *result = wk__plain_call(f, callable, args, count, names);
  f->dropping -= only_lets_go;
  wk__tried(f, r, step, result, !in_list(name, methods_that_fail_halfway));
  if (result && wk__recording_of(f) == r) wk__mark_written(r, reg, NULL);
  return result;
}

/* dict.get(key): only that key matters. */
static PyObject *get_from_dict(wk__frame *f, wk__recording *r, PyObject *self, PyObject *key) {
  wk__settle(r, key);
  wk__reg reg = wk__reg_find(r, self);
  PyObject *found = PyDict_GetItemWithError(self, key);
  if (!found && PyErr_Occurred()) return NULL;
  if (wk__was_written(r, reg, key)) return Py_XNewRef(found);
  if (!found) wk__check_once(r, WK__CHECK_ABSENT, reg, 0, key);
  if (found && wk__observe(r, BINDING, found, WK__READ_DICT, reg, -1, key) < 0) return wk__refuse(f, "%s", r->failed);
  return found ? wk__as_read(r, found) : NULL;
}

static PyObject *container_method(wk__frame *f, wk__recording *r, PyObject *self, const char *name, PyObject *callable,
                                  PyObject *const *args, Py_ssize_t count, PyObject *names, bool self_is_first) {
  if (in_list(name, container_methods_that_change))
    return change(f, r, self, name, callable, args, count, names, self_is_first);
  if (in_list(name, methods_that_search) && count > self_is_first && wk__usable(f, self))
    wk__note_search(f, r, self, args[self_is_first]);
  if (!in_list(name, container_methods_that_look))
    return wk__refuse(f, "method %s of a %s", name, Py_TYPE(self)->tp_name);
  Py_ssize_t given = count - self_is_first;
  if (strcmp(name, "get") == 0 && PyDict_Check(self) && wk__is_foreign(r, self) && !names && given >= 1 &&
      wk__is_plain_value(BINDING, args[self_is_first])) {
    PyObject *found = get_from_dict(f, r, self, args[self_is_first]);
    if (found || PyErr_Occurred() || f->session->reason[0]) return found;
    return Py_NewRef(given >= 2 ? args[self_is_first + 1] : Py_None);
  }
  bool passes = in_list(name, container_methods_that_pass) && (PyDict_CheckExact(self) || PyList_CheckExact(self));
  if (!(passes ? wk__passed_on(f, self) : wk__usable(f, self))) return NULL;
  if (!arguments_usable(f, args + self_is_first, count - self_is_first, names)) return NULL;
  return wk__plain_call(f, callable, args, count, names);
}

/* ================================================ methods by self ================================================ */

static bool is_container(PyObject *o) {
  return Py_TYPE(o) == &PyList_Type || PyDict_Check(o) || Py_TYPE(o) == &PySet_Type;
}

/* size(), stride(), of one dim, too, numel(), len(): integers that stay symbolic. NULL, with nothing set, for
 * everything else. */
static PyObject *symbolic_size(wk__frame *f, PyObject *self, const char *name, PyObject *const *args,
                               Py_ssize_t count) {
  wk__recording *r = f->session->recording;
  const wk_tensor *t = BINDING->tensor_of(self);
  if (!(t->flags & WK__TENSOR_SYMBOLIC)) return NULL;
  bool size = strcmp(name, "size") == 0, stride = strcmp(name, "stride") == 0;
  if (count == 0 && size) return wk__sizes_object(r, BINDING, t);
  if (count == 0 && stride) return wk__ints_tuple(r, t->strides, t->ndim);
  if (count == 0 && t->ndim && strcmp(name, "__len__") == 0) return wk__int_object(r, t->sizes[0]);
  if (count == 0 && (strcmp(name, "numel") == 0 || strcmp(name, "nelement") == 0)) return wk__int_object(r, t->numel);
  if (count != 1 || !(size || stride) || !PyLong_CheckExact(args[0])) return NULL;
  wk__settle(r, args[0]);
  int overflow;
  int64_t d = PyLong_AsLongLongAndOverflow(args[0], &overflow);
  if (overflow || d < -t->ndim || d >= t->ndim) return NULL;
  return wk__int_object(r, (size ? t->sizes : t->strides)[d < 0 ? d + t->ndim : d]);
}

/* Whether the step does the same at replay: leaves, and views with a history, make something else of it, as does
 * another grad mode than that in which steps are repeated. */
static bool reshapes_alike(wk__frame *f, wk__recording *r, PyObject *self, const wk_tensor *t) {
  const wk__session *s = f->session;
  if (s->compiled->options.backend || !wk__is_foreign(r, self)) return false; /* Python code is shown the inputs */
  if (!(t->keys & WK__KEY_AUTOGRAD)) return true;
  if (!t->autograd || !t->autograd->grad_fn || t->base || wk__thread.mode.grad_enabled != s->grad_at_start)
    return false;
  wk__check_once(r, WK__CHECK_COMPUTED, wk__reg_find(r, self), 0, NULL);
  return true;
}

/* The tensor's history goes on with the view; what stands for it as the graph's input has the one that it came with. */
static bool keep_history(wk__frame *f, const wk_tensor *t, wk_node *before, uint32_t result) {
  const wk__tracer *tracer = f->session->tracer;
  wk_tensor *input = wk__tracer_input(tracer, wk__tracer_input_under(tracer, t));
  return input->autograd || wk__set_history(input, before, result) == WK_OK;
}

/* The tensor becomes its view. One from outside becomes that again at replay, behind the graph, which has it as it was.
 */
static PyObject *reshape_in_place(wk__frame *f, PyObject *self, const char *name, PyObject *callable,
                                  PyObject *const *args, Py_ssize_t count, PyObject *names, bool self_is_first) {
  wk__recording *r = f->session->recording;
  const wk_tensor *t = BINDING->tensor_of(self);
  if (wk__is_computed_here(t) && !wk__is_foreign(r, self)) return look(f, callable, args, count, names);
  if (!reshapes_alike(f, r, self, t)) return wk__refuse(f, "Tensor.%s() of a tensor from outside", name);
  if (!arguments_usable(f, args, count, names)) return NULL;
  if (note_method(f, r, BINDING->tensor_type, self, name, args + self_is_first, count - self_is_first, names) < 0)
    return NULL;
  int64_t step = r->step_count - 1;
  wk_node *before = t->autograd ? wk__node_retain(t->autograd->grad_fn) : NULL;
  uint32_t result_before = before ? t->autograd->result : 0;
  wk__tracer_let_become(f->session->tracer, t);
  PyObject *result = wk__plain_call(f, callable, args, count, names);
  wk__tracer_let_become(f->session->tracer, NULL);
  wk__tried(f, r, step, result, true);
  bool kept = !before || !result || wk__recording_of(f) != r || keep_history(f, t, before, result_before);
  wk__node_release(before);
  if (!kept) wk__record_failed(r, "out of memory");
  return result;
}

/* The arguments begin with the tensor, but for a slot that is bound to it. */
static PyObject *tensor_method(wk__frame *f, PyObject *self, const char *name, PyObject *callable,
                               PyObject *const *args, Py_ssize_t count, PyObject *names, bool self_is_first) {
  PyObject *const *rest = args + self_is_first;
  Py_ssize_t given = count - self_is_first;
  bool sets = !names && (given == 0 || (given == 1 && PyBool_Check(rest[0]))) && strcmp(name, "requires_grad_") == 0;
  if (sets && wk__set_requires_grad(f, self, given == 0 || rest[0] == Py_True)) return Py_NewRef(self);
  PyObject *number = names ? NULL : symbolic_size(f, self, name, rest, given);
  if (number) return number;
  if (in_list(name, methods_that_reshape))
    return reshape_in_place(f, self, name, callable, args, count, names, self_is_first);
  if (!in_list(name, tensor_methods_that_look)) return wk__refuse(f, "Tensor.%s() needs the tensor's value", name);
  return look(f, callable, args, count, names);
}

/* The sum or product of a sequence some of whose items are symbolic. */
static bool fold(wk__recording *r, int nb_kind, PyObject *sequence, PyObject **out) {
  bool list = PyTuple_Check(sequence) || PyList_CheckExact(sequence);
  PyObject *all = PyLong_FromLong(nb_kind == NB_MULTIPLY);
  wk_int x;
  bool symbolic = false;
  for (Py_ssize_t i = 0; list && all && i < PySequence_Fast_GET_SIZE(sequence); i++) {
    PyObject *item = PySequence_Fast_GET_ITEM(sequence, i), *next = NULL;
    bool now = wk__symbolic_int(r, item, &x);
    if (!now && !PyLong_CheckExact(item)) list = false;
    symbolic |= now;
    if (!symbolic && list) next = nb_kind == NB_ADD ? PyNumber_Add(all, item) : PyNumber_Multiply(all, item);
    if (symbolic && list && !wk__symbolic_binary(r, nb_kind, all, item, &next)) list = false;
    Py_SETREF(all, next);
  }
  if (list && symbolic && all) {
    *out = all;
    return true;
  }
  Py_XDECREF(all);
  PyErr_Clear();
  return false;
}

/* What an exception is made of may be printed by C code. */
static PyObject *made_exception(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args,
                                Py_ssize_t count, PyObject *names) {
  for (Py_ssize_t i = 0; i < count + (names ? PyTuple_GET_SIZE(names) : 0); i++) wk__settle(r, args[i]);
  return wk__plain_call(f, callable, args, count, names);
}

/* super().__torch_function__(func, types, args, kwargs): calls func, which C code has found, as the operators do. */
static PyObject *tensor_torch_function(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count) {
  for (Py_ssize_t i = 1; i < count; i++)
    if (!wk__passed_on(f, args[i])) return NULL;
  return wk__plain_call(f, callable, args, count, NULL);
}

/* autograd.Function.apply: forward is evaluated, and so is backward where it is run in the region. Where a graph cannot
 * make the node between them again (functions.c) and a history with one has gone on outside, the call is a break from
 * then on. */
static PyObject *apply_function(wk__frame *f, wk__recording *r, PyObject *class, PyObject *callable,
                                PyObject *const *args, Py_ssize_t count, PyObject *names) {
  bool taped = false;
  for (Py_ssize_t i = 0; i < count + (names ? PyTuple_GET_SIZE(names) : 0); i++) {
    if (!wk__usable(f, args[i])) return NULL;
    taped |= wk__is_tensor_object(f, args[i]) && BINDING->tensor_of(args[i])->keys & WK__KEY_AUTOGRAD;
  }
  taped = taped && wk__thread.mode.grad_enabled;
  wk__compiled *compiled = f->session->compiled;
  if (taped && compiled->functions_break && wk__map_get(&compiled->functions_in_vain, (uintptr_t) class))
    return wk__refuse(f, "an autograd.Function, whose history goes on outside");
  if (wk__depend_on_type(r, (PyTypeObject *)class) < 0) return wk__refuse(f, "%s", r->failed);
  bool before = r->has_functions;
  r->has_functions = false;
  PyObject *result = wk__plain_call(f, callable, args, count, names);
  if (wk__recording_of(f) != r) return result;
  if (r->has_functions && wk__map_set(&compiled->functions_in_vain, (uintptr_t) class, compiled) != WK_OK)
    wk_error_clear(); /* it is tried again */
  r->has_functions |= before;
  return result;
}

/* A method that C code implements, of `self`. */
static PyObject *c_method(wk__frame *f, wk__recording *r, PyObject *self, const char *name, PyObject *callable,
                          PyObject *const *args, Py_ssize_t count, PyObject *names, bool self_is_first) {
  PyTypeObject *t = Py_TYPE(self);
  PyObject *result = NULL;
  if (!names &&
      wk__usual_attribute_call(f, r, self, name, callable, args + self_is_first, count - self_is_first, &result))
    return result;
  if (wk__is_tensor_object(f, self)) return tensor_method(f, self, name, callable, args, count, names, self_is_first);
  if (is_container(self)) return container_method(f, r, self, name, callable, args, count, names, self_is_first);
  PyObject *product = NULL;
  bool folds = t == BINDING->size_type && count - self_is_first == 0 && !names && strcmp(name, "numel") == 0;
  if (folds && fold(r, NB_MULTIPLY, self, &product)) return product;
  if (PyUnicode_CheckExact(self)) return look_at_values(f, callable, args, count, names);
  if (wk__is_plain_value(BINDING, self) || PyTuple_Check(self) || t == &PyRange_Type || t == &PyFrozenSet_Type ||
      t == &PySlice_Type)
    return look(f, callable, args, count, names);
  if (BINDING->is_own_mode(t)) return wk__plain_call(f, callable, args, count, names);
  if (wk__is_own_proxy(r, self)) return look(f, callable, args, count, names);
  if (t == &PyGen_Type && strcmp(name, "throw") != 0) return look(f, callable, args, count, names);
  if (PyExceptionInstance_Check(self)) return made_exception(f, r, callable, args, count, names);
  bool chains = PyType_Check(self) && wk__is_itertool((PyTypeObject *)self) && strcmp(name, "from_iterable") == 0;
  if (chains) return look(f, callable, args, count, names);
  bool function = PyType_Check(self) && PyType_IsSubtype((PyTypeObject *)self, *BINDING->function_type);
  if (function && !self_is_first && strcmp(name, "apply") == 0)
    return apply_function(f, r, self, callable, args, count, names);
  if (wk__is_own_context(f, self)) return wk__plain_call(f, callable, args, count, names);
  bool asks_type = strcmp(name, "__instancecheck__") == 0 || strcmp(name, "__subclasscheck__") == 0;
  if (PyType_Check(self) && asks_type) return pass_on(f, callable, args, count, names);
  bool overrides = PyType_Check(self) && strcmp(name, "__torch_function__") == 0 && !self_is_first && !names &&
                   PyType_IsSubtype((PyTypeObject *)self, BINDING->tensor_type);
  if (overrides && count == 4) return tensor_torch_function(f, callable, args, count);
  if ((wk__is_python_instance(self) || PyType_Check(self) || PyObject_TypeCheck(self, BINDING->module_type)) &&
      in_list(name, instance_methods_that_look) && !wk__is_foreign(r, self))
    return wk__plain_call(f, callable, args, count, names);
  return wk__refuse(f, "method %s of a %s", name, t->tp_name);
}

/* ================================================ functions of C ================================================= */

static PyObject *get_attribute_call(wk__frame *f, PyObject *const *args, Py_ssize_t count, bool only_has) {
  PyObject *found = wk__op_attr(f, args[0], args[1]);
  if (found && !only_has) return found;
  if (found) {
    Py_DECREF(found);
    Py_RETURN_TRUE;
  }
  if (!PyErr_Occurred() || !PyErr_ExceptionMatches(PyExc_AttributeError)) return NULL;
  if (!only_has && count < 3) return NULL;
  PyErr_Clear();
  return Py_NewRef(only_has ? Py_False : args[2]);
}

static PyObject *next_call(wk__frame *f, PyObject *const *args, Py_ssize_t count) {
  PyObject *item = NULL;
  int more = wk__op_next(f, args[0], &item);
  if (more > 0) return item;
  if (more < 0) return NULL;
  if (count > 1) return Py_NewRef(args[1]);
  PyErr_SetNone(PyExc_StopIteration);
  return NULL;
}

static bool quotient_and_rest(wk__recording *r, PyObject *const *args, PyObject **out) {
  PyObject *quotient = NULL, *rest = NULL;
  bool symbolic = wk__symbolic_binary(r, NB_FLOOR_DIVIDE, args[0], args[1], &quotient) &&
                  wk__symbolic_binary(r, NB_REMAINDER, args[0], args[1], &rest);
  if (symbolic) *out = quotient && rest ? PyTuple_Pack(2, quotient, rest) : NULL;
  Py_XDECREF(quotient);
  Py_XDECREF(rest);
  return symbolic;
}

/* len, min, max, sum, divmod and pow where they need not know the numbers. */
static bool of_symbols(wk__frame *f, const char *name, PyObject *const *args, Py_ssize_t count, PyObject **out) {
  wk__recording *r = f->session->recording;
  if (!r->symbol_count || !count) return false;
  if (strcmp(name, "len") == 0 && count == 1 &&
      (PyTuple_CheckExact(args[0]) || PyList_CheckExact(args[0]) || Py_TYPE(args[0]) == BINDING->size_type)) {
    if (wk__passed_on(f, args[0])) *out = PyLong_FromSsize_t(PySequence_Fast_GET_SIZE(args[0]));
    return true;
  }
  if (strcmp(name, "len") == 0 && count == 1 && wk__is_tensor_object(f, args[0]))
    return (*out = symbolic_size(f, args[0], "__len__", args + 1, 0)) != NULL;
  bool largest = strcmp(name, "max") == 0;
  if (count > 1 && (largest || strcmp(name, "min") == 0)) return wk__symbolic_extremum(r, largest, args, count, out);
  if (count == 2 && strcmp(name, "divmod") == 0) return quotient_and_rest(r, args, out);
  if (count == 2 && strcmp(name, "pow") == 0) return wk__symbolic_binary(r, NB_POWER, args[0], args[1], out);
  return count == 1 && strcmp(name, "sum") == 0 && fold(r, NB_ADD, args[0], out);
}

/* abs, round, pow, min and max of floats that differ from call to call. */
static bool of_floats(wk__frame *f, const char *name, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                      PyObject **out) {
  static const char *const functions[] = {"abs", "round", "pow", NULL};
  wk__recording *r = f->session->recording;
  if (in_list(name, functions)) return wk__float_call(r, callable, args, count, out);
  bool largest = strcmp(name, "max") == 0;
  return (largest || strcmp(name, "min") == 0) && wk__float_extremum(r, largest, args, count, out);
}

/* id(): of an object from outside a constant, as long as the same one is there. A number or text is no certain object,
 * what the region makes is another one in each call, and so may be an argument: from then on it is a break. */
static PyObject *identity(wk__frame *f, wk__recording *r, PyObject *o) {
  wk__reg reg = wk__is_foreign(r, o) ? wk__reg_find(r, o) : -1;
  if (reg < 0 || wk__is_plain_value(BINDING, o)) return wk__refuse(f, "id() of an object that the region has made");
  bool another = r->changing && wk__map_get(r->changing, wk__identity_path(r->registers[reg].path));
  if (another && !f->session->compiled->options.fullgraph)
    return wk__refuse(f, "id() of an object that is another one in each call");
  if (r->registers[reg].kind == WK__REG_READ) wk__check_once(r, WK__CHECK_ADDRESS, reg, (int64_t)(intptr_t)o, NULL);
  return PyLong_FromVoidPtr(o);
}

static PyObject *builtin(wk__frame *f, const char *name, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                         PyObject *names) {
  bool asks_type = strcmp(name, "isinstance") == 0 || strcmp(name, "callable") == 0;
  if (asks_type && !names) return pass_on(f, callable, args, count, names); /* what it holds does not matter */
  bool counts = strcmp(name, "len") == 0 && count == 1 && !names && is_container(args[0]);
  if (counts) return pass_on(f, callable, args, count, names);
  PyObject *computed = NULL;
  if (!names && (of_symbols(f, name, args, count, &computed) || of_floats(f, name, callable, args, count, &computed)))
    return computed;
  if (in_list(name, builtins_that_look)) {
    bool prints = strcmp(name, "repr") == 0 || strcmp(name, "format") == 0 || strcmp(name, "ascii") == 0;
    if (prints && count && wk__is_tensor_object(f, args[0])) return wk__refuse(f, "a tensor's values are printed");
    return look_at_values(f, callable, args, count, names);
  }
  bool text_second = count >= 2 && !names && PyUnicode_Check(args[1]);
  if (strcmp(name, "getattr") == 0 && text_second) return get_attribute_call(f, args, count, false);
  if (strcmp(name, "hasattr") == 0 && text_second) return get_attribute_call(f, args, count, true);
  if (strcmp(name, "setattr") == 0 && text_second && count == 3)
    return wk__op_set_attr(f, args[0], args[1], args[2]) < 0 ? NULL : Py_NewRef(Py_None);
  if (strcmp(name, "delattr") == 0 && text_second && count == 2)
    return wk__op_set_attr(f, args[0], args[1], NULL) < 0 ? NULL : Py_NewRef(Py_None);
  if (strcmp(name, "hash") == 0 && count == 1 && wk__is_plain_value(BINDING, args[0]))
    return look(f, callable, args, count, names);
  if (strcmp(name, "id") == 0 && count == 1 && !names) return identity(f, f->session->recording, args[0]);
  if (strcmp(name, "iter") == 0 && count == 1) return wk__op_iter(f, args[0]);
  if (strcmp(name, "next") == 0 && count >= 1) return next_call(f, args, count);
  return wk__refuse(f, "a call of %s()", name);
}

/* tensor(a) of a float that differs from call to call: an operator's result. NULL: it is something else, or raises. */
static PyObject *tensor_of_number(wk__frame *f, PyObject *number) {
  wk_value args[WK__MAX_ARGS] = {{0}}, result = {0};
  int input = wk__number_input(f->session->recording, number);
  if (input < 0) return NULL;
  args[0] = (wk_value){.tag = WK_VALUE_INPUT, .count = (uint32_t)input, .number = PyFloat_AS_DOUBLE(number)};
  wk_status status = wk_call(WK__OP(scalar_tensor), args, NULL, &result);
  return status == WK_OK ? BINDING->wrap(BINDING->state, result.tensor) : BINDING->raise(BINDING->state);
}

static bool holds_tensor(const wk__frame *f, PyObject *o, int depth) {
  enum { MAX_NESTING = 64 };
  if (wk__is_tensor_object(f, o) || depth > MAX_NESTING) return true;
  if (!PyList_Check(o) && !PyTuple_Check(o)) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++)
    if (holds_tensor(f, PySequence_Fast_GET_ITEM(o, i), depth + 1)) return true;
  return false;
}

/* A tensor made from Python data is the same in every call: a constant of the graph, given out as a copy. */
static PyObject *tensor_of_data(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                                PyObject *names) {
  if (count && wk__holds_marked_int(f->session->recording, args[0]))
    return wk__refuse(f, "a tensor is made from a size that was marked");
  PyObject *of_number = count == 1 && !names ? tensor_of_number(f, args[0]) : NULL;
  if (of_number || PyErr_Occurred()) return of_number;
  if (!arguments_usable(f, args, count, names)) return NULL;
  for (Py_ssize_t i = 0; i < count; i++)
    if (holds_tensor(f, args[i], 0)) return wk__refuse(f, "a tensor is made from another one's values");
  wk__tracer *tracer = f->session->tracer;
  wk__tracer_pause(tracer);
  PyObject *made = wk__plain_call(f, callable, args, count, names), *copy = NULL;
  wk__tracer_resume(tracer);
  if (!made) return NULL;
  wk_tensor *t = BINDING->tensor_of(made);
  if (t->keys & WK__KEY_AUTOGRAD) {
    Py_DECREF(made);
    return wk__refuse(f, "a leaf that requires grad is made");
  }
  wk_value args_of_clone[2] = {{.tag = WK_VALUE_TENSOR, .tensor = t}}, result = {0};
  wk_status status = wk__tracer_constant(tracer, t);
  if (status == WK_OK) status = wk_call(WK__OP(clone), args_of_clone, NULL, &result);
  copy = status == WK_OK ? BINDING->wrap(BINDING->state, result.tensor) : BINDING->raise(BINDING->state);
  Py_DECREF(made);
  return copy;
}

static const char *const override_questions[] = {"_has_torch_function", "_has_torch_function_variadic",
                                                 "_dispatch_torch_function", NULL};

/* The classes of what is given decide, and the thread's state, which is guarded. */
static PyObject *core_function(wk__frame *f, const char *name, PyObject *callable, PyObject *const *args,
                               Py_ssize_t count, PyObject *names) {
  if (strcmp(name, "tensor") == 0) return tensor_of_data(f, callable, args, count, names);
  if (sets_autocast(name, args, count)) return look(f, callable, args, count, names);
  if (in_list(name, core_functions_that_look)) return look(f, callable, args, count, names);
  if (in_list(name, override_questions)) return pass_on(f, callable, args, count, names);
  return wk__refuse(f, "a call of %s()", name);
}

/* The others change what they are given. */
static const char *const operators_with_an_i[] = {"index", "indexOf", "inv", "invert", "is_", "is_not", NULL};

/* math.floor and its kind: of integers and their quotients. */
static bool rounded(wk__recording *r, const char *name, PyObject *a, PyObject **out) {
  static const char *const names[] = {
      [WK__ROUND_DOWN] = "floor", [WK__ROUND_UP] = "ceil", [WK__ROUND_TO_ZERO] = "trunc"};
  wk_int x;
  for (int k = 0; k < (int)WK_COUNT(names); k++) {
    if (strcmp(name, names[k]) != 0) continue;
    if (!wk__symbolic_int(r, a, &x)) return wk__rounded_quotient(r, (wk__rounding)k, a, out);
    *out = Py_NewRef(a);
    return true;
  }
  return false;
}

static PyObject *c_function(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                            PyObject *names) {
  const PyCFunctionObject *c = (const PyCFunctionObject *)callable;
  const char *name = c->m_ml->ml_name;
  PyObject *self = PyCFunction_GET_SELF(callable);
  if (!wk__know_bound(f, r, callable)) return NULL;
  if (self && !PyModule_Check(self)) {
    if (PyType_Check(self) && strcmp(name, "__new__") == 0) return look(f, callable, args, count, names);
    return c_method(f, r, self, name, callable, args, count, names, false);
  }
  bool makes_parameter = !self && !c->m_module && strcmp(name, "_make_subclass") == 0 && count &&
                         args[0] == (PyObject *)*BINDING->parameter_type;
  if (makes_parameter) return look(f, callable, args, count, names);
  const char *module = c->m_module && PyUnicode_Check(c->m_module) ? PyUnicode_AsUTF8(c->m_module) : "";
  if (!module) return NULL;
  if (strcmp(module, "builtins") == 0) return builtin(f, name, callable, args, count, names);
  if (self == BINDING->module) return core_function(f, name, callable, args, count, names);
  if (strcmp(module, "_warnings") == 0 && strcmp(name, "warn") == 0)
    return wk__warn_call(f, r, callable, args, count, names);
  if (strcmp(module, "sys") == 0 && strcmp(name, "getrecursionlimit") == 0) return wk__process_number(f, r, callable);
  bool of_abc = strcmp(module, "_abc") == 0 && count == 2 && !names;
  if (of_abc && strcmp(name, "_abc_instancecheck") == 0) return wk__abstract_check(f, r, callable, args, true);
  if (of_abc && strcmp(name, "_abc_subclasscheck") == 0) return wk__abstract_check(f, r, callable, args, false);
  PyObject *product = NULL;
  bool folds = count == 1 && !names && strcmp(module, "math") == 0 && strcmp(name, "prod") == 0;
  if (folds && fold(r, NB_MULTIPLY, args[0], &product)) return product;
  bool of_math = !names && strcmp(module, "math") == 0;
  if (of_math && count == 1 && rounded(r, name, args[0], &product)) return product;
  if (of_math && wk__float_call(r, callable, args, count, &product)) return product;
  bool pure_module = strcmp(module, "math") == 0 || strcmp(module, "cmath") == 0;
  bool plain_operator = strcmp(module, "_operator") == 0 && (name[0] != 'i' || in_list(name, operators_with_an_i));
  bool reduces = strcmp(module, "_functools") == 0 && strcmp(name, "reduce") == 0;
  reduces |= strcmp(module, "itertools") == 0; /* tee */
  if (pure_module || plain_operator || reduces) return look_at_values(f, callable, args, count, names);
  return wk__refuse(f, "a call of %s.%s()", module, name);
}

/* ==================================================== classes ==================================================== */

static bool is_value_class(const wk__binding *b, PyTypeObject *t) {
  return t == &PyLong_Type || t == &PyFloat_Type || t == &PyBool_Type || t == &PyUnicode_Type || t == &PyBytes_Type ||
         t == &PyComplex_Type || t == &PyList_Type || t == &PyTuple_Type || t == &PyDict_Type || t == &PySet_Type ||
         t == &PyFrozenSet_Type || t == &PyRange_Type || t == &PySlice_Type || t == &PyEnum_Type || t == &PyZip_Type ||
         t == &PyMap_Type || t == &PyFilter_Type || t == &PyReversed_Type || t == &PyBaseObject_Type ||
         t == &PySuper_Type || t == &PyProperty_Type || t == b->size_type || t == b->device_type ||
         t == b->dtype_type || t == b->finfo_type || t == b->iinfo_type || b->is_own_mode(t);
}

/* super() looks into the frame: at its first variable, which has not been read yet. */
static PyObject *super_of_frame(wk__frame *f, PyObject *callable) {
  PyObject *first = f->code->co_argcount ? wk__frame_slot(f, 0) : NULL, *content = NULL;
  bool cell = first && PyCell_Check(first);
  if (cell && !(content = wk__op_cell(f, first, 0))) return NULL;
  Py_XDECREF(content);
  if (first && !cell && wk__op_local(f, 0) < 0) return NULL;
  return wk__plain_call(f, callable, NULL, 0, NULL);
}

/* One without parameters of its own is as any object that the region makes. */
static PyObject *new_module(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                            PyObject *names) {
  PyTypeObject *t = (PyTypeObject *)callable;
  bool plain = Py_TYPE(callable) == &PyType_Type && !t->tp_finalize && !t->tp_del;
  if (!plain || t->tp_new != BINDING->module_type->tp_new || wk__depend_on_type(r, t) < 0)
    return wk__refuse(f, "a new %s", t->tp_name);
  return wk__plain_call(f, callable, args, count, names);
}

static PyObject *call_class(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                            PyObject *names) {
  PyTypeObject *t = (PyTypeObject *)callable;
  if (t == &PySuper_Type && !count && !names) return super_of_frame(f, callable);
  if (t == &PyType_Type && count == 1 && !names) return Py_NewRef((PyObject *)Py_TYPE(args[0]));
  bool scalar =
      t == &PyLong_Type || t == &PyFloat_Type || t == &PyBool_Type || t == &PyComplex_Type || t == &PyUnicode_Type;
  if (scalar && count && wk__is_tensor_object(f, args[0])) return wk__refuse(f, "%s() of a tensor's value", t->tp_name);
  wk_int x;
  if (t == &PyLong_Type && count == 1 && !names && wk__symbolic_int(r, args[0], &x)) return Py_NewRef(args[0]);
  PyObject *number = NULL;
  if (t == &PyFloat_Type && count == 1 && !names && wk__float_register(r, args[0]) >= 0) return Py_NewRef(args[0]);
  if (t == &PyFloat_Type && !names && wk__float_call(r, callable, args, count, &number)) {
    if (count == 1) wk__note_float_of_int(r, args[0], number);
    return number;
  }
  bool to_int = t == &PyLong_Type && count == 1 && !names;
  if (to_int && wk__rounded_quotient(r, WK__ROUND_TO_ZERO, args[0], &number)) return number;
  int truth = t == &PyBool_Type && count == 1 && !names ? wk__symbolic_truth(r, args[0]) : -1;
  if (truth >= 0) return Py_NewRef(truth ? Py_True : Py_False);
  bool passes = t == &PyList_Type || t == &PyTuple_Type || t == &PyEnum_Type || t == &PyZip_Type ||
                t == &PySlice_Type || t == BINDING->size_type;
  if (passes) return pass_on(f, callable, args, count, names);
  if (scalar) return look_at_values(f, callable, args, count, names);
  bool made_of_arguments = t == &PyODict_Type || wk__is_default_dict(t) || wk__is_itertool(t);
  if (made_of_arguments || is_value_class(BINDING, t)) return look(f, callable, args, count, names);
  bool proxy = t == &PyDictProxy_Type && count == 1 && !names && PyDict_Check(args[0]) && wk__reg_find(r, args[0]) < 0;
  if (proxy) return wk__made_proxy(f, r, args[0]);
  if (PyExceptionClass_Check(callable)) return made_exception(f, r, callable, args, count, names);
  if (t == *BINDING->parameter_type) return look(f, callable, args, count, names); /* its __new__ is evaluated */
  bool tensors = PyType_IsSubtype(t, BINDING->tensor_type);
  if (wk__is_partial(t)) return look(f, callable, args, count, names);
  if (tensors || wk__type_is_fixed(t)) return wk__refuse(f, "a new %s", t->tp_name);
  if (PyType_IsSubtype(t, BINDING->module_type)) return new_module(f, r, callable, args, count, names);
  if (t->tp_base != &PyBaseObject_Type && !arguments_usable(f, args, count, names)) return NULL; /* C code fills it */
  if (t->tp_finalize || t->tp_del) return wk__refuse(f, "a new %s, which has a destructor", t->tp_name);
  if (!wk__is_python_class(t) || wk__depend_on_type(r, t) < 0) return wk__refuse(f, "a new %s", t->tp_name);
  return wk__plain_call(f, callable, args, count, names);
}

/* =================================================== every call ================================================== */

static bool is_disabled(PyObject *function) {
  PyObject *dict = ((PyFunctionObject *)function)->func_dict;
  return dict && PyDict_GetItemString(dict, "_wick_disable");
}

static PyObject *python_function(wk__frame *f, PyObject *function, PyObject *callable, PyObject *const *args,
                                 Py_ssize_t count, PyObject *names) {
  if (is_disabled(function)) return wk__refuse(f, "a call of a function that compiler.disable() keeps out");
  if (wk__is_marked_constant(function))
    return wk__constant_call(f, f->session->recording, callable, args, count, names);
  PyObject *copy = NULL;
  if (count == 1 && !names && wk__deep_copy(f, f->session->recording, function, args[0], &copy)) return copy;
  return enter(f, callable, args, count, names);
}

/* A slot of C code bound to its object: super().__init__ of an exception, say. */
static PyObject *method_wrapper(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args,
                                Py_ssize_t count, PyObject *names) {
  if (wk__is_foreign(r, callable)) return wk__refuse_left_over(f, "a method-wrapper from outside");
  PyObject *self = PyObject_GetAttrString(callable, "__self__"), *name = PyObject_GetAttrString(callable, "__name__");
  const char *text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
  PyObject *result = self && text ? c_method(f, r, self, text, callable, args, count, names, false) : NULL;
  Py_XDECREF(self);
  Py_XDECREF(name);
  return result;
}

/* functools.partial(...)(...): the call that it stands for. */
static PyObject *partial_call(wk__frame *f, wk__recording *r, PyObject *partial, PyObject *const *args,
                              Py_ssize_t count, PyObject *names) {
  if (!wk__know_bound(f, r, partial)) return NULL;
  PyObject *function = PyObject_GetAttrString(partial, "func"), *first = PyObject_GetAttrString(partial, "args");
  PyObject *given = PyObject_GetAttrString(partial, "keywords"), *all = NULL, *keywords = NULL, *result = NULL;
  bool usable = function && first && given && wk__usable(f, first) && wk__usable(f, given);
  if (usable && (all = PyTuple_New(PyTuple_GET_SIZE(first) + count)) && (keywords = PyDict_Copy(given))) {
    Py_ssize_t before = PyTuple_GET_SIZE(first), i;
    for (i = 0; i < before; i++) PyTuple_SET_ITEM(all, i, Py_NewRef(PyTuple_GET_ITEM(first, i)));
    for (i = 0; i < count; i++) PyTuple_SET_ITEM(all, before + i, Py_NewRef(args[i]));
    for (i = 0; names && i < PyTuple_GET_SIZE(names); i++)
      if (PyDict_SetItem(keywords, PyTuple_GET_ITEM(names, i), args[count + i]) < 0) break;
    if (!PyErr_Occurred()) result = wk__op_call_spread(f, function, all, keywords);
  }
  Py_XDECREF(function);
  Py_XDECREF(first);
  Py_XDECREF(given);
  Py_XDECREF(all);
  Py_XDECREF(keywords);
  return result;
}

PyObject *wk__recorded_call(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                            PyObject *names) {
  f->session->reason[0] = 0;
  PyTypeObject *t = Py_TYPE(callable);
  if (PyFunction_Check(callable)) return python_function(f, callable, callable, args, count, names);
  if (PyMethod_Check(callable)) {
    if (!wk__know_bound(f, r, callable)) return NULL;
    PyObject *function = PyMethod_GET_FUNCTION(callable);
    if (PyFunction_Check(function)) return python_function(f, function, callable, args, count, names);
    if (Py_TYPE(function) == BINDING->operator_type) return call_operator(f, callable, args, count, names);
    return wk__refuse(f, "a bound %s", Py_TYPE(function)->tp_name);
  }
  if (t == BINDING->operator_type || t == *BINDING->overload_type)
    return call_operator(f, callable, args, count, names);
  if (t == &PyMethodDescr_Type || t == &PyWrapperDescr_Type) {
    if (!count) return wk__plain_call(f, callable, args, count, names);
    PyObject *name = PyDescr_NAME(callable);
    return c_method(f, r, args[0], PyUnicode_AsUTF8(name), callable, args, count, names, true);
  }
  if (PyCFunction_Check(callable)) return c_function(f, r, callable, args, count, names);
  if (PyType_Check(callable)) return call_class(f, r, callable, args, count, names);
  if (PyObject_TypeCheck(callable, BINDING->module_type)) {
    PyObject *function = wk__module_forward(f, r, callable);
    return function ? enter(f, callable, args, count, names) : NULL;
  }
  if (t == wk__weak_reference_type() && !count && !names && wk__is_foreign(r, callable))
    return wk__referent_of(f, r, callable);
  if (wk__is_cached_function(callable))
    return (wk__is_marked_constant(callable) ? wk__constant_call : wk__cached_call)(f, r, callable, args, count, names);
  if (t == wk__method_wrapper_type()) return method_wrapper(f, r, callable, args, count, names);
  if (wk__is_partial(t)) return partial_call(f, r, callable, args, count, names);
  PyObject *inner = wk__compiled_function(BINDING, callable);
  if (inner) return wk__recorded_call(f, r, inner, args, count, names);
  if (t->tp_flags & Py_TPFLAGS_HEAPTYPE && wk__is_python_instance(callable)) {
    if (wk__depend_on_type(r, t) < 0) return NULL;
    return enter(f, callable, args, count, names);
  }
  return wk__refuse(f, "a call of a %s", t->tp_name);
}

PyObject *wk__called_within(wk__frame *f, wk__recording *r, PyObject *callable) {
  bool before = f->within;
  f->within = true;
  PyObject *result = wk__recorded_call(f, r, callable, NULL, 0, NULL);
  f->within = before;
  return result;
}
