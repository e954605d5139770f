/* What the recording operations share: asking whether C code may look at an object, and reading attributes. */
#ifndef WICK_DYNAMO_CAPTURE_KNOWN_H
#define WICK_DYNAMO_CAPTURE_KNOWN_H

#include "dynamo/capture/numbers.h"
#include "dynamo/capture/operations.h"
#include "dynamo/cpython/plain.h"
#include "dynamo/session.h"

/* What a recording says of an object: it was found outside (READ, CONSTANT), or it is the region's own. */
bool wk__is_foreign(const wk__recording *r, PyObject *o);
/* t.requires_grad = ... without a note: of what is so already, and of what the region makes without a history, which
 * becomes a leaf as a parameter that it makes does. False: it is neither. */
bool wk__set_requires_grad(const wk__frame *f, PyObject *tensor, bool requires_grad);
/* A block of the thread's state: no_grad() and its kind, saved_tensors_hooks. */
static inline bool wk__is_mode(const wk__frame *f, PyTypeObject *t) {
  const wk__binding *b = f->session->binding;
  return b->is_own_mode(t) || b->is_saver(t);
}
bool wk__is_tensor_object(const wk__frame *f, PyObject *o);
/* An instance of a class written in Python: what C code does with it ends in Python functions, which are evaluated. */
bool wk__is_python_instance(PyObject *o);
/* A special method of the owner's class, written in Python, that is a function of C code under another name: borrowed,
 * NULL: it is not one. The call that an instruction makes of it, and the same of one that sets or deletes. */
PyObject *wk__special_of_c(PyObject *owner, const char *name);
PyObject *wk__call_special(wk__frame *f, wk__recording *r, PyObject *special, PyObject *owner, PyObject *const *args,
                           Py_ssize_t count, PyObject *names);  // -> new
int wk__set_by_special(wk__frame *f, wk__recording *r, PyObject *special, PyObject *owner, PyObject *key,
                       PyObject *value);
/* A function of C code that C code may be given to call; whether that only looks at what it is given and bound to,
 * which becomes known. False: refused. */
bool wk__is_c_callback(PyObject *o);
/* A text's method format() or format_map() reads attributes of what it is given. */
bool wk__format_reads_attributes(PyObject *format, const char *method);
/* A part of a property ("fget") that is not Python code, NULL: it is; and the call of it, which is noted. */
PyObject *wk__c_part_of_property(PyObject *property, const char *part);  // -> new
PyObject *wk__call_of_property(wk__frame *f, wk__recording *r, PyObject *steal_function, PyObject *const *args,
                               Py_ssize_t count);  // -> new
bool wk__callback_looks(wk__frame *f, PyObject *callback);
/* No operator on such an object is a function of C code that may change something. */
bool wk__operators_are_noted(wk__recording *r, PyObject *owner);
bool wk__is_python_class(PyTypeObject *t);
bool wk__is_class_of_c(PyTypeObject *t); /* made by C code itself, static or not; not what derives from one */
bool wk__is_partial(PyTypeObject *t);    /* functools.partial */
bool wk__is_thread_local(const wk__recording *r, PyObject *o); /* a threading.local() from outside */
bool wk__is_itertool(PyTypeObject *t);                         /* itertools.chain and its kind */
bool wk__is_own_proxy(const wk__recording *r, PyObject *o);
bool wk__is_default_dict(PyTypeObject *t); /* collections.defaultdict */
/* C code may look at all of the object: containers become known, iterators have to be the region's own. False: refused,
 * with the reason set. */
bool wk__usable(wk__frame *f, PyObject *o);
/* The same of C code that takes what it finds for keys: numbers of id() are compared with == and hashed alone. */
bool wk__keys_usable(wk__frame *f, PyObject *o);
/* How a call is refused because of this object: an array from outside, behind x.numpy() say, is left over. */
wk__refusal wk__refusal_of(const wk__frame *f, PyObject *o);
/* C code hands references on and looks at nothing that it finds: numbers stay symbolic. */
bool wk__passed_on(wk__frame *f, PyObject *o);
/* C code that goes over it only hands on what Python functions give that it runs meanwhile: lists, generators, zip(),
 * map() of a Python function. */
bool wk__hands_on(const wk__frame *f, PyObject *o);
/* An argument of an operator, which takes symbolic integers as they are, alone, in lists and (`index`) in slices. */
bool wk__operand_usable(wk__frame *f, PyObject *o);
bool wk__index_usable(wk__frame *f, PyObject *key);
bool wk__is_view_of_others(PyObject *o); /* it stands for others, which would have to be known: dict views, cells */
bool wk__is_view_of_dict(const PyTypeObject *t);
bool wk__is_that_one(wk__recording *r, PyObject *o); /* it is the same object in each call: noted */
bool wk__hashes_its_address(const wk__frame *f, PyObject *o);
bool wk__has_constant_hash(const wk__frame *f, PyObject *o);     /* of values, or said by Python */
void wk__text_shows(wk__recording *recording, PyObject *object); /* it is made into a text */
bool wk__is_own_node(const wk__recording *r, PyObject *o);       /* of the tape that the region has written */
/* Of a C class whose instances a region may make and use (known_calls.def), and made in this one. */
/* What it is, as an attribute that its class has, is known. */
bool wk__know_part(wk__frame *f, wk__recording *r, PyObject *o, const char *name);
/* How many it holds is guarded; false: it is the region's own, or was changed. (operations.c) */
bool wk__note_length(wk__recording *r, PyObject *container);
bool wk__is_own_object(const wk__recording *r, PyObject *o);
/* A tensor, or lists, tuples and dictionaries that hold one; deep ones may. */
bool wk__holds_tensor(const wk__frame *f, PyObject *o);
/* An attribute as the region sees it; NULL with an exception, or refused. */
PyObject *wk__get_attribute(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name);  // -> new
/* object.__getattribute__(owner, name), of an instance of a Python class that is no module. */
PyObject *wk__get_usual_attribute(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name);  // -> new
/* type.__getattribute__(class, name) */
PyObject *wk__get_usual_attribute_of_class(wk__frame *f, wk__recording *r, PyObject *class, PyObject *name);  // -> new
/* object.__setattr__(owner, name, value) of the same. 0, or -1 with an exception, or refused. */
int wk__set_usual_attribute(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name, PyObject *value);
/* The dictionary of an instance from outside becomes known; -1 when there is none (yet), or with r->failed set. */
wk__reg wk__instance_dict(wk__frame *f, wk__recording *r, wk__reg reg, PyObject *owner);
/* Bound methods and partial calls from outside: what they are bound to becomes known. False: refused. */
bool wk__know_bound(wk__frame *f, wk__recording *r, PyObject *o);
/* Objects from outside become keys of the region's own: which of them are the same one is guarded. step: of `keys`, how
 * many items apart; container: a dict or set that gets one more. */
void wk__note_keys(wk__frame *f, wk__recording *r, PyObject *const *keys, Py_ssize_t count, int step);
void wk__note_key(wk__frame *f, wk__recording *r, PyObject *container, PyObject *key);
/* The same of a key that register `container` is asked for, and those that the region has put there. */
void wk__note_written_keys(wk__recording *r, wk__reg container, PyObject *key);
/* A key that is another object in each call, such as a tensor: each asks the dictionary for its own. */
bool wk__is_asked_again(const wk__frame *f, const wk__recording *r, PyObject *key, wk__reg reg);
/* `value` is looked for among the items of a container: which of them it is has to stay the same. */
void wk__note_search(wk__frame *f, wk__recording *r, PyObject *container, PyObject *value);
/* Two objects are or are not the same; the answer is checked where it could be another one. */
void wk__note_identity(wk__recording *r, PyObject *a, PyObject *b);
/* Items of `b` meet the keys of a set, dictionary or view: which are the same one is guarded. */
void wk__note_joined(wk__frame *f, wk__recording *r, PyObject *a, PyObject *b);
/* The same of two objects that are compared by what they hold: their items are, and each key with all of the other. */
void wk__note_equality(wk__frame *f, wk__recording *r, PyObject *a, PyObject *b);
/* The forward of an nn.Module whose call does nothing else, or what calls it between its forward hooks; refused when
 * there are others. */
PyObject *wk__module_forward(wk__frame *f, wk__recording *r, PyObject *module);  // -> borrowed
/* A container's item or an instance's attribute is about to be deleted: whether it is there decides what happens. */
int wk__note_presence(wk__frame *f, wk__recording *r, PyObject *owner, PyObject *name);
/* An effect that has been noted as step `step` was tried. One that raised is not repeated: when it changes nothing
 * before it raises (`whole`) nothing has happened, else the segment ends in front of the instruction from now on. */
void wk__tried(wk__frame *f, wk__recording *r, int64_t step, bool worked, bool whole);
/* The ctx of an autograd.Function that the region has applied. */
bool wk__is_own_context(const wk__frame *f, PyObject *o);
/* A module's dictionaries of parts become known, and in which of them the name stands: `out_found`, -1: in none. */
enum { WK__PART_PARAMETERS, WK__PART_BUFFERS, WK__PART_MODULES, WK__MODULE_PARTS };
/* Module.__getattr__(name). NULL, without an exception or a refusal: it has no such part. */
PyObject *wk__module_part(wk__frame *f, wk__recording *r, PyObject *module, PyObject *name);  // -> new
int wk__module_parts(wk__frame *f, wk__recording *r, PyObject *module, PyObject *name, wk__reg *out_parts,
                     int *out_found);
/* warnings.warn(...) (warn.c) */
PyObject *wk__warn_call(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                        PyObject *keyword_names);  // -> new
/* ---- object_calls.c ---- */
/* object.__getattribute__, __setattr__ and __delattr__, which a class's own methods of these names call for what they
 * do not do themselves. *out: the result; false: it is another method. */
bool wk__usual_attribute_call(wk__frame *f, wk__recording *r, PyObject *self, const char *name, PyObject *callable,
                              PyObject *const *args, Py_ssize_t count, PyObject **out);
/* __reduce_ex__ of a set or dictionary, object's of an instance of a Python class or a module: what it holds becomes
 * known. False: it is another method. */
bool wk__reduce_call(wk__frame *f, wk__recording *r, PyObject *self, PyObject *callable, PyObject *const *args,
                     Py_ssize_t count, PyObject **out);
PyObject *wk__abstract_check(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args,
                             bool of_instance);  // -> new
/* sys.exc_info() and sys.exception(), where nothing is being handled. */
PyObject *wk__exception_state(wk__frame *f, wk__recording *r, PyObject *function);  // -> new
/* The dictionary that a types.MappingProxyType from outside shows; the object itself where it is something else. */
PyObject *wk__behind_proxy(wk__frame *f, wk__recording *r, PyObject *o);         // -> borrowed
PyObject *wk__made_proxy(wk__frame *f, wk__recording *r, PyObject *dict);        // -> new
PyObject *wk__referent_of(wk__frame *f, wk__recording *r, PyObject *reference);  // -> new
bool wk__is_weak_reference(const PyTypeObject *type); /* whose call is weakref.ref's, be it a class of Python */
/* weakref.ref(object, callback) */
PyObject *wk__new_weak_reference(wk__frame *f, wk__recording *r, PyObject *type, PyObject *const *args,
                                 Py_ssize_t count, PyObject *names);  // -> new
/* What a weakref.proxy() from outside stands for; the object itself where it is something else. NULL: refused. */
PyObject *wk__behind_weak_proxy(wk__frame *f, wk__recording *r, PyObject *o);  // -> borrowed
/* Of functools.lru_cache. */
bool wk__is_cached_function(PyObject *callable);
PyObject *wk__cached_call(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                          PyObject *names);  // -> new
/* Its author says that its result is the same for as long as the process lives. */
bool wk__is_marked_constant(PyObject *callable);
PyObject *wk__constant_call(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                            PyObject *names);  // -> new
/* A function of numpy that is written in Python, and known to do nothing but compute. */
bool wk__is_array_function(PyObject *callable);
/* One that makes its result of values alone, for this call. */
PyObject *wk__fresh_call(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                         PyObject *names);  // -> new
/* typing._get_protocol_attrs(protocol). False: it is evaluated. */
bool wk__protocol_members(wk__frame *f, wk__recording *r, PyObject *function, PyObject *protocol, PyObject **out);
/* copy.copy() of an instance, copy.deepcopy() of plain data: the region's own. False: it is something else. */
bool wk__copy_call(wk__frame *f, wk__recording *r, PyObject *function, PyObject *o, PyObject **out);
/* A call that changes the process is about to be done; a replay does it again. args: (all), those that have `names`
 * last. False: refused. */
bool wk__note_effect(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t all,
                     PyObject *names);
/* A lock from outside: taken and given back again by each replay. Those of libraries guard what a first call makes. */
bool wk__is_lock(const wk__recording *r, PyObject *o);
/* Its method `name`, of `count` times None, is about to be called. False: refused. */
bool wk__note_lock(wk__frame *f, wk__recording *r, PyObject *lock, const char *name, int count);
/* A call of operator.itemgetter(...) or its kind: the instructions that it stands for. */
PyObject *wk__getter_call(wk__frame *f, wk__recording *r, PyObject *getter, PyObject *o);  // -> new
/* ---- tensor_calls.c ---- */
/* A tensor made from Python data, which is argument `at`: what is in front of it says its dtype. */
PyObject *wk__tensor_of_data(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *names,
                             Py_ssize_t at);  // -> new
PyObject *wk__as_tensor_call(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                             PyObject *names);                                                             // -> new
PyObject *wk__new_tensor_call(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count);  // -> new
PyObject *wk__tensor_deepcopy_call(wk__frame *f, PyObject *self);                                          // -> new
/* ---- clocks.c ---- */
PyObject *wk__clock_call(wk__frame *f, wk__recording *r, PyObject *clock, PyObject *const *args, Py_ssize_t count,
                         PyObject *names);  // -> new
/* ---- assertions.c ---- */
int wk__branch_on_tensor(wk__frame *f, wk__recording *r, PyObject *tensor); /* 1, 0; -1: refused */
/* ---- identities.c ---- */
/* function(owner), id() or hash(), of what the region has made: another number in each call. */
PyObject *wk__identity_call(wk__frame *f, wk__recording *r, PyObject *function, PyObject *owner);  // -> new
/* ---- context_vars.c ---- */
PyObject *wk__context_var_call(wk__frame *f, wk__recording *r, PyObject *variable, const char *name,
                               PyObject *const *args, Py_ssize_t count);  // -> new
/* ---- draws.c ---- */
bool wk__is_random(PyObject *o); /* a random.Random, or something else that is a _random.Random */
PyObject *wk__draw_call(wk__frame *f, wk__recording *r, PyObject *random, const char *name, PyObject *const *args,
                        Py_ssize_t count, PyObject *names);        // -> new
PyObject *wk__draw(PyObject *random, PyObject *method, int bits);  // -> new; bits 0: method takes none
/* ---- iterators.c ---- */
/* An iterator from outside of which it can be said what it will give, without taking it. */
bool wk__can_look_ahead(const wk__recording *r, PyObject *iterator);
/* Takes from such a one: 1 with the item, 0 at its end, -1 refused. */
int wk__take_upcoming(wk__frame *f, wk__recording *r, PyObject *iterator, PyObject **out_item);
/* One of the region's own over a list or tuple whose numbers have changed (wk__holds_changing): what comes next of it,
 * as above; all of such a list or tuple, 0 or -1 refused. */
bool wk__goes_over_changing(const wk__recording *r, PyObject *iterator);
int wk__next_of_changing(wk__frame *f, wk__recording *r, PyObject *iterator, PyObject **out_item);
int wk__unpack_changing(wk__frame *f, wk__recording *r, PyObject *sequence, PyObject **out_items);
/* What a call that is an effect has given, the handle of a hook, say. It is changed by effects alone: by functions with
 * this attribute. */
#define WK__MARK_EFFECT "_wick_effect"
bool wk__is_of_effect(const wk__recording *r, PyObject *o);
static inline bool wk__has_mark(PyObject *function, const char *mark) {
  PyObject *dict = PyFunction_Check(function) ? ((PyFunctionObject *)function)->func_dict : NULL;
  return dict && PyDict_GetItemString(dict, mark);
}
/* ---- hooks.c ---- */
/* tensor.register_hook(hook), register_post_accumulate_grad_hook(hook) */
PyObject *wk__tensor_hook_call(wk__frame *f, wk__recording *r, PyObject *self, const char *name, PyObject *callable,
                               PyObject *const *args, Py_ssize_t count, PyObject *hook);  // -> new
/* A backward pass has come to a leaf: which hooks one from outside has becomes known. */
void wk__observe_leaf_hooks(const wk__session *s, wk__recording *r, wk_tensor *leaf);
/* node.register_hook(hook), register_prehook(hook), of the tape that the region has written */
PyObject *wk__node_hook_call(wk__frame *f, wk__recording *r, PyObject *node, const char *name, PyObject *callable,
                             PyObject *const *args, Py_ssize_t count, PyObject *hook);        // -> new
PyObject *wk__node_metadata(wk__frame *f, wk__recording *r, PyObject *node, PyObject *name);  // -> new
void wk__note_node(wk__recording *r, PyObject *node, PyObject *tensor); /* it is the grad_fn of that tensor */
/* ---- logs.c ---- */
/* Logger._log: what it is given, the logger first. */
PyObject *wk__log_call(wk__frame *f, wk__recording *r, PyObject *const *given, Py_ssize_t count,
                       PyObject *names);  // -> new
/* calls.c */
/* A call that changes the process: done, and done again by a replay. */
PyObject *wk__effect(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                     PyObject *names);  // -> new
/* Text that is the same whenever it is made: of values and tuples of them. */
bool wk__has_constant_text(const wk__frame *f, PyObject *o);
bool wk__arguments_usable(wk__frame *f, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *wk__recorded_call(wk__frame *f, wk__recording *r, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                            PyObject *keyword_names);  // -> new
/* One without arguments that is a part of what the instruction does. */
PyObject *wk__called_within(wk__frame *f, wk__recording *r, PyObject *callable);  // -> new

#endif
