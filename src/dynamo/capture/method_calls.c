/* Methods that C code implements, of containers, tensors and other objects, while something is captured: those that
 * only look run, those that change a container run and are noted. Which does what: known_calls.def. In: a call with its
 * object. Out: its result, or refused. Tests: tests/python/capture/test_corpus.py, test_known_calls.py. */
#include <opcode.h>

#include "autograd/autograd.h"
#include "dynamo/capture/call_parts.h"
#include "dynamo/capture/ends.h"
#include "dynamo/capture/known.h"
#include "dynamo/capture/known_calls.h"
#include "dynamo/capture/record_parts.h"
#include "dynamo/cpython/objects.h"

#define BINDING (f->session->binding)

/* =============================================== methods of containers =========================================== */

/* A call that changes `self`, its first argument, done again by a replay. args: (count) what follows that. */
static int note_call(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *self, const char *name,
                     PyObject *const *args, Py_ssize_t count, PyObject *names) {
  enum { MOST = 10 };
  PyObject *items[2 + MOST] = {callable, self};
  Py_ssize_t all = count + (names ? PyTuple_GET_SIZE(names) : 0);
  if (all > MOST) {
    wk__refuse(f, "a call of %s with many arguments", name);
    return -1;
  }
  for (Py_ssize_t i = 0; i < all; i++) items[2 + i] = args[i];
  int noted = wk__reg_constant(r, callable);
  if (noted >= 0) noted = wk__did(r, BINDING, WK__DO_IMPURE_CALL, NULL, items, (int)(2 + all), names);
  if (noted < 0) wk__refuse(f, "%s", r->failed);
  return noted < 0 ? -1 : 0;
}

/* A call that changes the process: done, and done again by a replay. */
PyObject *wk__effect(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                     PyObject *names) {
  if (!wk__note_effect(f, r, callable, args, count + (names ? PyTuple_GET_SIZE(names) : 0), names)) return NULL;
  int64_t step = r->step_count - 1;
  f->dropping++; /* Python code that it ends in is no part of what is captured */
  PyObject *result = wk__plain_call(f, callable, args, count, names);
  f->dropping--;
  wk__tried(f, r, step, result, true);
  return result;
}

PyObject *wk__effect_of_values(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args,
                               Py_ssize_t count, PyObject *names) {
  bool plain = !names;
  for (Py_ssize_t i = 0; plain && i < count; i++) plain = wk__is_plain_value(BINDING, args[i]);
  return plain ? wk__effect(f, r, callable, args, count, NULL) : wk__refuse(f, "an effect of other things than values");
}

/* `type`: where the C method is found. */
static int note_method(wk__frame *f, wk__recording *r, PyTypeObject *type, PyObject *self, const char *name,
                       PyObject *const *args, Py_ssize_t count, PyObject *names) {
  PyObject *method = PyObject_GetAttrString((PyObject *)type, name);
  int noted = method ? note_call(f, r, method, self, name, args, count, names) : -1;
  if (!method) wk__refuse(f, "a method %s that is not there", name);
  Py_XDECREF(method);
  return noted;
}

/* The C method itself: a class written in Python may have one of its own before it. */
static int note_change(wk__frame *f, wk__recording *r, PyObject *self, const char *name, PyObject *const *args,
                       Py_ssize_t count, PyObject *names) {
  PyTypeObject *type = Py_TYPE(self);
  while (!wk__type_is_fixed(type)) type = type->tp_base;
  return note_method(f, r, type, self, name, args, count, names);
}

/* Of a list or dictionary itself the method looks at none of what it puts in. */
static bool stores(const wk__known_call *known, PyObject *self, PyObject *arg) {
  if (!(known->how & WK__CALL_STORES)) return false;
  return PyList_CheckExact(self) || wk__is_deque(self) || (PyDict_CheckExact(self) && PyDict_CheckExact(arg));
}

/* No Python code but that of what dies of it: of a class with methods of its own these are the C methods. */
static bool runs_destructors_alone(PyObject *self, const char *name, PyObject *const *args, Py_ssize_t given) {
  if (strcmp(name, "clear") == 0) return true;
  bool sets = strcmp(name, "__setitem__") == 0 || strcmp(name, "__delitem__") == 0;
  if (sets) return given && (PyUnicode_CheckExact(args[0]) || PyLong_CheckExact(args[0]));
  return strcmp(name, "update") == 0 && given && PyDict_CheckExact(self) && PyDict_CheckExact(args[0]);
}

/* Sets and dictionaries take what they are given for keys. */
static bool item_usable(wk__frame *f, PyObject *self, PyObject *o) {
  return PyDict_Check(self) || PyAnySet_Check(self) ? wk__keys_usable(f, o) : wk__usable(f, o);
}

/* Of a method of a container: what it compares with the items. */
static void note_keys_met(wk__frame *f, wk__recording *r, const wk__known_call *known, PyObject *self,
                          PyObject *const *args, Py_ssize_t given) {
  if (known->how & WK__CALL_SEARCHES && given) wk__note_search(f, r, self, args[0]);
  if (known->how & WK__CALL_KEYS && given) wk__note_key(f, r, self, args[0]);
  if (known->how & (WK__CALL_SEARCHES | WK__CALL_KEYS)) return;
  for (Py_ssize_t i = 0; i < given; i++) wk__note_joined(f, r, self, args[i]);
}

/* A method of a container, or a function whose first argument it is, that changes it: noted when others can see the
 * container. */
PyObject *wk__change_container(wk__frame *f, wk__recording *r, const wk__known_call *known, PyObject *self,
                               PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *names,
                               bool self_is_first) {
  PyObject *const *rest = args + self_is_first;
  Py_ssize_t given = count - self_is_first;
  bool known_class = Py_TYPE(self) == &PyList_Type || Py_TYPE(self) == &PySet_Type || wk__is_deque(self);
  bool blind = known->how & WK__CALL_BLIND && known_class;
  wk__reg reg = wk__reg_find(r, self);
  if (reg >= 0 && wk__is_foreign(r, self) && wk__keys_end_aloud(f, r, self))
    return wk__refuse(f, "keys of a %s whose end runs code", Py_TYPE(self)->tp_name);
  if (wk__note_losses(f, r, known, self, rest, given, names) < 0) return NULL;
  if (wk__is_deque(self) && wk__note_pushed_out(f, r, known, self) < 0) return NULL;
  for (Py_ssize_t i = 0; i < given + (names ? PyTuple_GET_SIZE(names) : 0); i++)
    if (!(stores(known, self, rest[i]) ? wk__passed_on(f, rest[i]) : item_usable(f, self, rest[i]))) return NULL;
  bool takes = PyDict_Check(self) || wk__is_deque(self) ||
               (PyList_CheckExact(self) && strcmp(known->name, "pop") == 0); /* looks at none */
  if (!blind && !(takes ? wk__passed_on(f, self) : item_usable(f, self, self))) return NULL;
  if (blind && reg >= 0 && wk__keep_before(r, reg) < 0) return NULL;
  note_keys_met(f, r, known, self, rest, given);
  const wk__frame *before = f->session->handing;
  f->session->handing = given == 1 && stores(known, self, rest[0]) && wk__hands_on(f, rest[0]) ? f : NULL;
  if (reg < 0) {
    PyObject *changed = wk__plain_call(f, callable, args, count, names);
    f->session->handing = before;
    return changed;
  }
  f->session->handing = before;
  bool function = PyCFunction_Check(callable) && self_is_first;
  if ((function ? note_call(f, r, callable, self, known->name, rest, given, names)
                : note_change(f, r, self, known->name, rest, given, names)) < 0)
    return NULL;
  int64_t step = r->step_count - 1;
  int only_lets_go = runs_destructors_alone(self, known->name, rest, given);
  f->dropping += only_lets_go;
  PyObject *result = wk__plain_call(f, callable, args, count, names);
  f->dropping -= only_lets_go;
  wk__tried(f, r, step, result, !(known->how & WK__CALL_HALFWAY));
  if (result && wk__recording_of(f) == r) wk__mark_written(r, reg, NULL);
  return result;
}

/* dict.get(key): only that key matters. */
static PyObject *get_from_dict(wk__frame *f, wk__recording *r, PyObject *self, PyObject *key) {
  wk__settle(r, key);
  wk__reg reg = wk__reg_find(r, self), by = -1;
  if (!wk__is_plain_value(BINDING, key)) {
    by = wk__reg_find(r, key);
    wk__note_written_keys(r, reg, key);
  }
  PyObject *constant = by < 0 ? key : NULL;
  PyObject *found = PyDict_GetItemWithError(self, key);
  if (!found && PyErr_Occurred()) return NULL;
  if (wk__was_written(r, reg, key)) return Py_XNewRef(found);
  if (found && wk__is_identity(r, key)) return wk__refuse(f, "an id() that is a key of something from outside");
  if (!found) wk__check_once(r, WK__CHECK_ABSENT, reg, by, constant);
  if (found && wk__observe(r, BINDING, found, WK__READ_DICT, reg, by, constant) < 0)
    return wk__refuse(f, "%s", r->failed);
  return found ? wk__as_read(r, found) : NULL;
}

static PyObject *container_method(wk__frame *f, wk__recording *r, const wk__known_call *known, PyObject *self,
                                  PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *names,
                                  bool self_is_first) {
  if (known->what == WK__KNOWN_CHANGES)
    return wk__change_container(f, r, known, self, callable, args, count, names, self_is_first);
  Py_ssize_t given = count - self_is_first;
  PyObject *key = given >= 1 ? args[self_is_first] : NULL;
  bool one_key = key && (wk__is_plain_value(BINDING, key) || wk__is_asked_again(f, r, key, wk__reg_find(r, key)));
  if (strcmp(known->name, "get") == 0 && PyDict_Check(self) && wk__is_foreign(r, self) && !names && one_key) {
    PyObject *found = get_from_dict(f, r, self, key);
    if (found || PyErr_Occurred() || f->session->reason[0]) return found;
    return Py_NewRef(given >= 2 ? args[self_is_first + 1] : Py_None);
  }
  bool known_class = PyDict_CheckExact(self) || PyList_CheckExact(self) || wk__is_deque(self);
  bool passes = known->what == WK__KNOWN_PASSES && known_class;
  if (!(passes ? wk__passed_on(f, self) : item_usable(f, self, self))) return NULL;
  for (Py_ssize_t i = self_is_first; i < count + (names ? PyTuple_GET_SIZE(names) : 0); i++)
    if (!item_usable(f, self, args[i])) return NULL;
  note_keys_met(f, r, known, self, args + self_is_first, given);
  return wk__plain_call(f, callable, args, count, names);
}

/* ================================================ methods by self ================================================ */

/* size(), stride(), of one dim, too, numel(), len(): integers that stay symbolic. NULL, with nothing set, for
 * everything else. */
PyObject *wk__symbolic_size(wk__frame *f, PyObject *self, const char *name, PyObject *const *args, Py_ssize_t count) {
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
  if (wk__is_computed_here(t) && !wk__is_foreign(r, self)) return wk__call_looking(f, callable, args, count, names);
  if (!reshapes_alike(f, r, self, t)) return wk__refuse(f, "Tensor.%s() of a tensor from outside", name);
  if (!wk__arguments_usable(f, args, count, names)) return NULL;
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

/* tensor.retain_grad() of what the region has computed. Where somebody can see the tensor already this is noted, else
 * when somebody can (reconstruct.c). */
static PyObject *retain_grad(wk__frame *f, wk__recording *r, PyObject *self, PyObject *callable, PyObject *const *args,
                             Py_ssize_t count, PyObject *names) {
  PyObject *result = wk__plain_call(f, callable, args, count, names);
  bool seen = result && wk__reg_find(r, self) >= 0;
  if (seen && !wk__note_retained(r, BINDING, self)) wk__record_failed(r, "a gradient that cannot be asked for again");
  return result;
}

/* The region has written it: what is done to it is done to the region's own. */
static bool has_own_history(const wk__frame *f, const wk__recording *r, PyObject *o) {
  wk_tensor *t = f->session->binding->tensor_of(o);
  const wk_node *grad_fn = t->autograd || t->base ? wk__grad_fn(t) : NULL;
  return !wk__is_foreign(r, o) && wk__is_computed_here(t) &&
         (!grad_fn || grad_fn->sequence >= f->session->watcher.first);
}

/* The arguments begin with the tensor, but for a slot that is bound to it. */
static PyObject *tensor_method(wk__frame *f, wk__recording *r, PyObject *self, const char *name, PyObject *callable,
                               PyObject *const *args, Py_ssize_t count, PyObject *names, bool self_is_first) {
  PyObject *const *rest = args + self_is_first;
  Py_ssize_t given = count - self_is_first;
  bool sets = !names && (given == 0 || (given == 1 && PyBool_Check(rest[0]))) && strcmp(name, "requires_grad_") == 0;
  if (sets && wk__set_requires_grad(f, self, given == 0 || rest[0] == Py_True)) return Py_NewRef(self);
  PyObject *number = names ? NULL : wk__symbolic_size(f, self, name, rest, given);
  if (number) return number;
  wk__knowledge what = wk__known_function("Tensor", name)->what;
  r->keeps_tape |= strcmp(name, "retain_grad") == 0;
  bool hooks = strcmp(name, "register_hook") == 0 || strcmp(name, "register_post_accumulate_grad_hook") == 0;
  if (!names && given == 1 && hooks) return wk__tensor_hook_call(f, r, self, name, callable, args, count, rest[0]);
  if (what == WK__KNOWN_RESHAPES) return reshape_in_place(f, self, name, callable, args, count, names, self_is_first);
  bool item = !names && !given && strcmp(name, "item") == 0, list = !names && !given && strcmp(name, "tolist") == 0;
  PyObject *counted = item ? wk__counted_item(f, self) : list ? wk__counted_list(f, self) : NULL;
  if (counted || PyErr_Occurred()) return counted;
  if (what == WK__KNOWN_TAKES) return wk__refuse_as(f, WK__REFUSED_VALUE, "Tensor.%s() takes the tensor's value", name);
  if (!names && given == 1 && strcmp(name, "__deepcopy__") == 0) return wk__tensor_deepcopy_call(f, self);
  if (what == WK__KNOWN_BY_CODE) return wk__tensor_of_data(f, callable, args, count, names, self_is_first);
  if (what != WK__KNOWN_LOOKS) return wk__refuse(f, "Tensor.%s() needs the tensor's value", name);
  bool retains = strcmp(name, "retain_grad") == 0;
  if ((retains || strcmp(name, "detach_") == 0) && !has_own_history(f, r, self))
    return wk__refuse(f, "Tensor.%s() of a tensor from outside", name);
  if (retains) return retain_grad(f, r, self, callable, args, count, names);
  return wk__call_looking(f, callable, args, count, names);
}

/* The sum or product of a sequence some of whose items are symbolic. */
bool wk__fold_symbols(wk__recording *r, int nb_kind, PyObject *sequence, PyObject **out) {
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
PyObject *wk__made_exception(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args,
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
 * make the node between them again (functions.c) and a history with one has gone on outside, the call is done plainly
 * from then on. */
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
    return wk__refuse_as(f, WK__REFUSED_VALUE, "an autograd.Function, whose history goes on outside");
  if (wk__depend_on_type(r, (PyTypeObject *)class) < 0) return wk__refuse(f, "%s", r->failed);
  bool before = r->has_functions;
  int64_t tried = r->tried_count;
  r->has_functions = false;
  PyObject *result = wk__plain_call(f, callable, args, count, names);
  if (wk__recording_of(f) != r) return result;
  if (r->tried_count > tried) r->tried[r->tried_count - 1].key = (uintptr_t) class;
  if (r->has_functions && wk__map_set(&compiled->functions_in_vain, (uintptr_t) class, compiled) != WK_OK)
    wk_error_clear(); /* it is tried again */
  r->has_functions |= before;
  return result;
}

/* Of a lock, without arguments or with the three None of a with statement's end. */
static PyObject *lock_method(wk__frame *f, wk__recording *r, PyObject *self, const char *name, PyObject *callable,
                             PyObject *const *args, Py_ssize_t count, PyObject *names, bool self_is_first) {
  Py_ssize_t given = count - self_is_first;
  bool simple = !names;
  for (Py_ssize_t i = self_is_first; simple && i < count; i++) simple = args[i] == Py_None;
  if (!simple) return wk__refuse(f, "method %s of a lock, with arguments", name);
  if (!wk__note_lock(f, r, self, name, (int)given)) return NULL;
  int64_t step = r->step_count - 1;
  PyObject *result = wk__plain_call(f, callable, args, count, NULL);
  wk__tried(f, r, step, result, true);
  return result;
}

/* One whose result is asked for again in front of each replay. */
static PyObject *ask_method(wk__frame *f, wk__recording *r, PyObject *self, const char *name, PyObject *const *args,
                            Py_ssize_t count) {
  enum { MOST = 4 };
  PyObject *all[1 + MOST] = {self}, *method = PyObject_GetAttrString((PyObject *)Py_TYPE(self), name);
  for (Py_ssize_t i = 0; i < count && i < MOST; i++) all[1 + i] = args[i];
  PyObject *result = method && count <= MOST ? wk__cached_call(f, r, method, all, 1 + count, NULL) : NULL;
  Py_XDECREF(method);
  return result;
}

bool wk__holds_values(const wk__frame *f, PyObject *o, int depth) {
  enum { DEEPEST = 3 };
  if (wk__is_plain_value(BINDING, o)) return true;
  if (depth == DEEPEST || !(PyTuple_CheckExact(o) || PyList_CheckExact(o) || PyDict_CheckExact(o))) return false;
  PyObject *key, *value;
  for (Py_ssize_t at = 0; PyDict_CheckExact(o) && PyDict_Next(o, &at, &key, &value);)
    if (!wk__holds_values(f, value, depth + 1)) return false;
  for (Py_ssize_t i = 0; !PyDict_CheckExact(o) && i < PySequence_Fast_GET_SIZE(o); i++)
    if (!wk__holds_values(f, PySequence_Fast_GET_ITEM(o, i), depth + 1)) return false;
  return true;
}

/* It is object's own method of this name. */
static bool is_of_object(PyObject *callable, const char *name) {
  PyObject *own = PyDict_GetItemString(wk__type_dict(&PyBaseObject_Type), name);
  return own && Py_TYPE(own) == &PyClassMethodDescr_Type && PyCFunction_Check(callable) &&
         ((PyMethodDescrObject *)own)->d_method == ((PyCFunctionObject *)callable)->m_ml;
}

/* A method that C code implements, of `self`. */
PyObject *wk__method_call(wk__frame *f, wk__recording *r, PyObject *self, const char *name, PyObject *callable,
                          PyObject *const *args, Py_ssize_t count, PyObject *names, bool self_is_first) {
  PyTypeObject *t = Py_TYPE(self);
  PyObject *result = NULL;
  if (!names &&
      wk__usual_attribute_call(f, r, self, name, callable, args + self_is_first, count - self_is_first, &result))
    return result;
  if (!names && count - self_is_first == 1 && strcmp(name, "__reduce_ex__") == 0 &&
      wk__reduce_call(f, r, self, callable, args, count, &result))
    return result;
  if (wk__is_tensor_object(f, self))
    return tensor_method(f, r, self, name, callable, args, count, names, self_is_first);
  bool part = PyObject_TypeCheck(self, BINDING->module_type) && strcmp(name, "__getattr__") == 0 && !names;
  if (part && count - self_is_first == 1 && PyUnicode_Check(args[self_is_first])) {
    result = wk__module_part(f, r, self, args[self_is_first]);
    return result || f->session->reason[0] ? result : wk__plain_call(f, callable, args, count, names);
  }
  bool block = t == BINDING->device_type && (strcmp(name, "__enter__") == 0 || strcmp(name, "__exit__") == 0);
  if (block) r->device_blocks += strcmp(name, "__enter__") == 0 ? 1 : -1;
  if (block) return wk__plain_call(f, callable, args, count, names);
  const wk__known_call *known = wk__known_method(t, name);
  if (wk__is_container(self) && known->what != WK__KNOWN_NOTHING)
    return container_method(f, r, known, self, callable, args, count, names, self_is_first);
  PyObject *product = NULL;
  bool folds = t == BINDING->size_type && count - self_is_first == 0 && !names && strcmp(name, "numel") == 0;
  if (folds && wk__fold_symbols(r, NB_MULTIPLY, self, &product)) return product;
  bool context_var = known->what == WK__KNOWN_BY_CODE && strcmp(known->owner, "_contextvars.ContextVar") == 0;
  if (context_var && !names) return wk__context_var_call(f, r, self, name, args + self_is_first, count - self_is_first);
  bool own = known->what == WK__KNOWN_NOTHING && wk__is_own_object(r, self);
  bool value = known->what == WK__KNOWN_VALUES || known->what == WK__KNOWN_LOOKS || wk__is_plain_value(BINDING, self) ||
               wk__known_class(t) == WK__CLASS_VALUE || own;
  if (known->what == WK__KNOWN_ASKED) return ask_method(f, r, self, name, args + self_is_first, count - self_is_first);
  if (known->what == WK__KNOWN_DRAWS)
    return wk__draw_call(f, r, self, name, args + self_is_first, count - self_is_first, names);
  if (value && !wk__usable(f, self)) return NULL;
  bool reads = wk__format_reads_attributes(self, name);
  for (Py_ssize_t i = 0; reads && i < count + (names ? PyTuple_GET_SIZE(names) : 0); i++)
    if (!wk__holds_values(f, args[i], 0)) return wk__refuse(f, "a text that reads attributes of what it formats");
  bool formats = PyUnicode_Check(self) && strcmp(name, "format") == 0;
  for (Py_ssize_t i = 0; formats && i < count + (names ? PyTuple_GET_SIZE(names) : 0); i++) wk__text_shows(r, args[i]);
  if (known->what == WK__KNOWN_VALUES) return wk__call_at_values(f, callable, args, count, names);
  if (value) return wk__call_looking(f, callable, args, count, names);
  if (known->what == WK__KNOWN_FRESH && wk__usable(f, self)) return wk__fresh_call(f, callable, args, count, names);
  bool class_method =
      PyType_Check(self) && !self_is_first && wk__known_method((PyTypeObject *)self, name)->what == WK__KNOWN_LOOKS;
  if (class_method) return wk__call_looking(f, callable, args, count, names);
  bool hooks = strcmp(name, "register_hook") == 0 || strcmp(name, "register_prehook") == 0;
  bool one = !names && count - self_is_first == 1;
  if (hooks && one && (wk__is_own_node(r, self) || wk__is_own_context(f, self)))
    return wk__node_hook_call(f, r, self, name, callable, args, count, args[self_is_first]);
  if (wk__is_own_node(r, self) && strcmp(name, "name") == 0) return wk__plain_call(f, callable, args, count, names);
  if (wk__is_mode(f, t)) {
    result = wk__plain_call(f, callable, args, count, names);
    r->packs |= wk__thread.saver != f->session->saver_at_start;
    return result;
  }
  if (wk__is_own_proxy(r, self)) return wk__call_looking(f, callable, args, count, names);
  if (t == &PyGen_Type) return wk__call_looking(f, callable, args, count, names);
  bool binds = PyFunction_Check(self) && strcmp(name, "__get__") == 0 && !names;
  if (binds) return wk__plain_call(f, callable, args, count, names); /* it looks at nothing */
  bool own_exception = PyExceptionInstance_Check(self) && !wk__is_foreign(r, self);
  if (own_exception) return wk__made_exception(f, r, callable, args, count, names);
  bool chains = PyType_Check(self) && wk__is_itertool((PyTypeObject *)self) && strcmp(name, "from_iterable") == 0;
  if (chains) return wk__call_looking(f, callable, args, count, names);
  bool function = PyType_Check(self) && PyType_IsSubtype((PyTypeObject *)self, *BINDING->function_type);
  if (function && !self_is_first && strcmp(name, "apply") == 0)
    return apply_function(f, r, self, callable, args, count, names);
  if (wk__is_own_context(f, self)) return wk__plain_call(f, callable, args, count, names);
  if (known->what == WK__KNOWN_EFFECT && wk__is_lock(r, self))
    return lock_method(f, r, self, name, callable, args, count, names, self_is_first);
  bool makes = PyType_Check(self) && strcmp(name, "__call__") == 0 && wk__is_python_class((PyTypeObject *)self);
  if (makes && !self_is_first) return wk__new_instance(f, r, (PyTypeObject *)self, callable, args, count, names);
  if (PyType_Check(self) && is_of_object(callable, "__init_subclass__"))
    return wk__call_passing(f, callable, args, count, names); /* it does nothing, or raises */
  bool asks_type = strcmp(name, "__instancecheck__") == 0 || strcmp(name, "__subclasscheck__") == 0;
  if (PyType_Check(self) && asks_type) return wk__call_passing(f, callable, args, count, names);
  bool overrides = PyType_Check(self) && strcmp(name, "__torch_function__") == 0 && !self_is_first && !names &&
                   PyType_IsSubtype((PyTypeObject *)self, BINDING->tensor_type);
  if (overrides && count == 4) return tensor_torch_function(f, callable, args, count);
  if ((wk__is_python_instance(self) || PyType_Check(self) || PyObject_TypeCheck(self, BINDING->module_type)) &&
      wk__known_function("instance", name)->what == WK__KNOWN_LOOKS && !wk__is_foreign(r, self))
    return wk__plain_call(f, callable, args, count, names);
  return wk__refuse_as(f, wk__refusal_of(f, self), "method %s of a %s", name, t->tp_name);
}
