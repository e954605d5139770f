/* One instruction of a frame, in the normal form (normal.h). The instructions move values between slots and stack and
 * follow jumps here; what they do to objects is in operations.h. Operands stay on the stack until their operation has
 * succeeded, so that a refused one leaves the frame as it was. Tests: tests/python/capture/test_evaluator.py. */
#include "dynamo/cpython/version.h"

#include "dynamo/capture/operations.h"
#include "dynamo/cpython/plain.h"

/* ---- the stack ---- */

static inline void push(wk__frame *f, PyObject *steal_value) { f->real->localsplus[f->real->stacktop++] = steal_value; }
static inline PyObject *pop(wk__frame *f) { return f->real->localsplus[--f->real->stacktop]; }  // -> new
/* The n-th value from the top, from 1 on. */
static inline PyObject **peek(wk__frame *f, int n) { return &f->real->localsplus[f->real->stacktop - n]; }

/* The values go only after they have left the stack: freeing one may run any code. */
static inline void drop(wk__frame *f, int count) {
  f->real->stacktop -= count;
  PyObject **values = &f->real->localsplus[f->real->stacktop];
  if (f->session) wk__op_dropped(f, values, count);
  f->dropping++;
  for (int i = 0; i < count; i++) Py_XDECREF(values[i]);
  f->dropping--;
}

static inline void set_slot(wk__frame *f, int slot, PyObject *steal_value) {
  PyObject *old = f->real->localsplus[slot];
  if (f->session) wk__op_stored(f, slot);
  f->real->localsplus[slot] = steal_value;
  if (f->session && old) wk__op_dropped(f, &old, 1);
  f->dropping++;
  Py_XDECREF(old);
  f->dropping--;
}

/* ---- how instructions end ---- */

/* An operation did not succeed: it raised or refused. */
static __attribute__((noinline)) wk__step failed(wk__frame *f) {
  f->next = f->offset;
  return PyErr_Occurred() ? WK__STEP_RAISE : WK__STEP_REFUSED;
}

/* `count` operands make way for the result, unless there is none. */
static inline wk__step replace(wk__frame *f, int count, PyObject *steal_result) {
  if (WK_UNLIKELY(!steal_result)) return failed(f);
  drop(f, count);
  push(f, steal_result);
  return WK__STEP_NEXT;
}
static inline wk__step replace_bool(wk__frame *f, int count, int truth) {
  return replace(f, count, truth < 0 ? NULL : Py_NewRef(truth ? Py_True : Py_False));
}
/* After an operation that gives only a status. */
static inline wk__step done(wk__frame *f, int count, int status) {
  if (WK_UNLIKELY(status < 0)) return failed(f);
  drop(f, count);
  return WK__STEP_NEXT;
}

/* Its operand is gone, and a None stays in its place where the instruction leaves one. */
static wk__step done_leaving(wk__frame *f, int status, bool none) {
  return none ? replace(f, 1, status < 0 ? NULL : Py_NewRef(Py_None)) : done(f, 1, status);
}

static wk__step unbound(wk__frame *f, int slot) {
  wk__plain_unbound(f, slot);
  return failed(f);
}

/* After calls and backward jumps: what is requested is done with the instruction already finished. */
static inline wk__step serve_requests(wk__frame *f) {
  if (WK_LIKELY(!wk__thread_has_requests(f->thread))) return WK__STEP_NEXT;
  return wk__serve_requests(f->session, f->thread) < 0 ? WK__STEP_RAISE : WK__STEP_NEXT;
}

/* ---- groups of instructions ---- */

static wk__step jump_back(wk__frame *f, int distance) {
  f->next -= distance;
  return serve_requests(f);
}

static inline wk__step jump(wk__frame *f, int distance) {
  if (distance < 0) return jump_back(f, -distance);
  f->next += distance;
  return WK__STEP_NEXT;
}

/* Newer versions write a conditional jump back as two: both are done, so that a round of a loop begins in one place. */
static inline wk__step fall_through(wk__frame *f) {
  const wk__instruction *next = &f->info->code[f->next];
  if (WK_LIKELY(next->kind != WK__I_JUMP_AND_SERVE)) return WK__STEP_NEXT;
  f->next += next->width;
  return jump(f, next->argument);
}
static inline wk__step pop_and_jump_if(wk__frame *f, bool wanted, int distance) {
  int truth = wk__op_true(f, *peek(f, 1));
  if (WK_UNLIKELY(truth < 0)) return failed(f);
  drop(f, 1);
  return truth == wanted ? jump(f, distance) : fall_through(f);
}
static inline wk__step pop_and_jump_if_none(wk__frame *f, bool wanted, int distance) {
  int none = wk__op_is(f, *peek(f, 1), Py_None);
  if (WK_UNLIKELY(none < 0)) return failed(f);
  drop(f, 1);
  return none == wanted ? jump(f, distance) : fall_through(f);
}
static wk__step jump_if_or_pop(wk__frame *f, bool wanted, int distance) {
  int truth = wk__op_true(f, *peek(f, 1));
  if (truth < 0) return failed(f);
  if (truth != wanted) return done(f, 1, 0);
  f->next += distance;
  return WK__STEP_NEXT;
}

static inline wk__step load_fast(wk__frame *f, int slot) {
  PyObject *value = f->real->localsplus[slot];
  if (WK_UNLIKELY(!value)) return unbound(f, slot);
  if (WK_UNLIKELY(wk__op_local(f, slot) < 0)) return failed(f);
  value = f->real->localsplus[slot]; /* a number that changes has got an object of its own */
  push(f, Py_NewRef(value));
  return WK__STEP_NEXT;
}
/* The first one is pushed when the second has been found, too. */
static wk__step load_fast_2(wk__frame *f, int slots) {
  int first = wk__first_of_two(slots), second = wk__second_of_two(slots);
  PyObject **places = f->real->localsplus;
  if (WK_UNLIKELY(!places[first] || !places[second])) return unbound(f, places[first] ? second : first);
  if (WK_UNLIKELY(wk__op_local(f, first) < 0 || wk__op_local(f, second) < 0)) return failed(f);
  push(f, Py_NewRef(places[first]));
  push(f, Py_NewRef(places[second]));
  return WK__STEP_NEXT;
}
/* The value that is stored has left the stack when the other is pushed: so that one is looked at first. */
static wk__step store_fast_load_fast(wk__frame *f, int slots) {
  int stored = wk__first_of_two(slots), loaded = wk__second_of_two(slots);
  PyObject **places = f->real->localsplus;
  if (loaded != stored) {
    if (WK_UNLIKELY(!places[loaded])) return unbound(f, loaded);
    if (WK_UNLIKELY(wk__op_local(f, loaded) < 0)) return failed(f);
  }
  set_slot(f, stored, pop(f));
  push(f, Py_NewRef(places[loaded]));
  return WK__STEP_NEXT;
}
static inline bool is_cell_slot(wk__frame *f, int slot) {
  PyObject *value = f->real->localsplus[slot];
  return value && PyCell_Check(value) &&
         _PyLocals_GetKind(f->code->co_localspluskinds, slot) & (CO_FAST_CELL | CO_FAST_FREE);
}
static wk__step load_closure(wk__frame *f, int slot) {
  PyObject *cell = f->real->localsplus[slot];
  if (!cell) return unbound(f, slot);
  push(f, Py_NewRef(cell));
  return WK__STEP_NEXT;
}
/* A variable of an inlined comprehension has had another life outside, which waits on the stack: NULL if unbound. */
static wk__step take_fast(wk__frame *f, int slot) {
  if (!is_cell_slot(f, slot) && wk__op_local(f, slot) < 0) return failed(f);
  PyObject *value = Py_XNewRef(f->real->localsplus[slot]);
  set_slot(f, slot, NULL);
  push(f, value);
  return WK__STEP_NEXT;
}
static wk__step delete_fast(wk__frame *f, int slot) {
  if (!f->real->localsplus[slot]) return unbound(f, slot);
  set_slot(f, slot, NULL);
  return WK__STEP_NEXT;
}
static wk__step load_locals(wk__frame *f) {
  PyObject *locals = wk__frame_locals(f);
  if (!locals) PyErr_SetString(PyExc_SystemError, "no locals");
  return replace(f, 0, Py_XNewRef(locals));
}
static wk__step make_cell(wk__frame *f, int slot) {
  PyObject *cell = wk__op_make_cell(f, slot);
  if (!cell) return failed(f);
  set_slot(f, slot, cell);
  return WK__STEP_NEXT;
}
static wk__step delete_deref(wk__frame *f, int slot) {
  PyObject *cell = f->real->localsplus[slot];
  if (!PyCell_GET(cell)) return unbound(f, slot);
  return done(f, 0, wk__op_set_cell(f, cell, NULL));
}
static wk__step copy_free_variables(wk__frame *f, int count) {
  PyObject *closure = wk__real_function(f->real)->func_closure;
  int first = f->code->co_nlocalsplus - count;
  for (int i = 0; i < count; i++)
    if (wk__op_closure(f, PyTuple_GET_ITEM(closure, i), first + i) < 0) return failed(f);
  for (int i = 0; i < count; i++) f->real->localsplus[first + i] = Py_NewRef(PyTuple_GET_ITEM(closure, i));
  return WK__STEP_NEXT;
}

/* What is to be called, and self or NULL: in this version's order. */
static inline void push_callable(wk__frame *f, PyObject *steal_callable, PyObject *steal_self) {
  bool in_order = WK__CALLABLE_FIRST || steal_self;
  push(f, in_order ? steal_callable : NULL);
  push(f, in_order ? steal_self : steal_callable);
}

static inline wk__step load_global(wk__frame *f, PyObject *name, bool for_call) {
  PyObject *value = wk__op_global(f, name);
  if (WK_UNLIKELY(!value)) return failed(f);
  if (for_call)
    push_callable(f, value, NULL);
  else
    push(f, value);
  return WK__STEP_NEXT;
}
static wk__step load_method(wk__frame *f, PyObject *name) {
  PyObject *self = NULL, *callable = wk__op_method(f, *peek(f, 1), name, &self);
  if (WK_UNLIKELY(!callable)) return failed(f);
  drop(f, 1);
  push_callable(f, callable, self);
  return WK__STEP_NEXT;
}
/* super().name, with `super`, the class and self on the stack. Where `super` is something else, which may do anything,
 * CPython calls it. */
static wk__step load_super_attribute(wk__frame *f, PyObject *name, bool for_call) {
  PyObject **base = peek(f, 3);
  if (base[0] != (PyObject *)&PySuper_Type) {
    f->next = f->offset;
    return WK__STEP_UNKNOWN;
  }
  PyObject *object = wk__op_call(f, base[0], base + 1, 2, NULL);
  PyObject *value = object ? wk__op_attr(f, object, name) : NULL;
  Py_XDECREF(object);
  if (!value) return failed(f);
  drop(f, 3);
  if (for_call)
    push_callable(f, value, NULL);
  else
    push(f, value);
  return WK__STEP_NEXT;
}

/* callable and self, or NULL, below the arguments; `above` more lie on top of those. */
static wk__step call(wk__frame *f, int count, PyObject *names, int above) {
  PyObject **base = peek(f, count + above + 2);
  bool method = base[WK__CALLABLE_FIRST] != NULL;
  PyObject *callable = WK__CALLABLE_FIRST || method ? base[0] : base[1];
  Py_ssize_t positional = count + method - (names ? PyTuple_GET_SIZE(names) : 0);
  PyObject *result = wk__op_call(f, callable, base + 2 - method, positional, names);
  if (WK_UNLIKELY(!result)) return failed(f);
  f->keyword_names = NULL;
  replace(f, count + above + 2, result);
  return serve_requests(f);
}
void wk__frame_give_arguments(wk__frame *f, PyObject *function) {
  const wk__instruction *at = &f->info->code[f->offset];
  if (at->kind != WK__I_CALL && at->kind != WK__I_CALL_KW) return;
  PyObject **base = peek(f, at->argument + (at->kind == WK__I_CALL_KW) + 2);
  bool method = base[WK__CALLABLE_FIRST] != NULL;
  PyObject *callable = WK__CALLABLE_FIRST || method ? base[0] : base[1];
  if (callable != function) return; /* C code calls it, and has the arguments until it returns */
  for (PyObject **arg = base + 2 - method; arg < base + 2 + at->argument; arg++) Py_SETREF(*arg, Py_NewRef(Py_None));
}
bool wk__frame_next_gives(const wk__frame *f) {
  const wk__instruction *next = &f->info->code[f->next];
  PyObject **top = &f->real->localsplus[f->real->stacktop] - (next->kind == WK__I_CALL_KW);
  if (next->kind != WK__I_CALL && next->kind != WK__I_CALL_KW) return false;
  for (int i = 1; i <= next->argument + 1; i++) /* self, or nothing, below the arguments */
    if (top[-i] && Py_REFCNT(top[-i]) == 1 && PyObject_IS_GC(top[-i])) return true;
  return false;
}
PyObject **wk__frame_next_callee(const wk__frame *f) {
  const wk__instruction *next = &f->info->code[f->next];
  PyObject **top = &f->real->localsplus[f->real->stacktop];
  switch (next->kind) {
    case WK__I_CALL:
    case WK__I_CALL_KW: {
      PyObject **base = top - next->argument - (next->kind == WK__I_CALL_KW) - 2;
      return base + (!WK__CALLABLE_FIRST && !base[0]);
    }
    case WK__I_CALL_SPREAD:
      return top - 3 - (next->argument != 0) + !WK__CALLABLE_FIRST;
    default:
      return NULL;
  }
}
static wk__step call_with_names(wk__frame *f, int count) { return call(f, count, *peek(f, 1), 1); }

static wk__step call_spread(wk__frame *f, bool with_keywords) {
  PyObject *keywords = with_keywords ? *peek(f, 1) : NULL;
  PyObject **base = peek(f, 3 + with_keywords); /* callable and NULL, arguments */
  PyObject *args = wk__op_spread_tuple(f, base[2]);
  if (!args) return failed(f);
  Py_SETREF(base[2], args);
  PyObject *result = wk__op_call_spread(f, base[!WK__CALLABLE_FIRST], base[2], keywords);
  if (!result) return failed(f);
  replace(f, 3 + with_keywords, result);
  return serve_requests(f);
}
static wk__step merge_keywords(wk__frame *f, int depth) {
  PyObject *callable = *peek(f, depth + 3 + WK__CALLABLE_FIRST);
  return done(f, 1, wk__op_fill(f, WK__FILL_DICT_MERGE, *peek(f, depth + 1), *peek(f, 1), NULL, callable));
}

static wk__step build(wk__frame *f, wk__build kind, int count) {
  return replace(f, count, wk__op_build(f, kind, peek(f, count), count));
}
/* The container lies `depth` below the operands. */
static wk__step fill(wk__frame *f, wk__fill kind, int depth) {
  return done(f, 1, wk__op_fill(f, kind, *peek(f, depth + 1), *peek(f, 1), NULL, NULL));
}
static wk__step make_function(wk__frame *f, int flags) {
  PyObject *parts[4] = {0}; /* defaults, keyword defaults, annotations, closure: each there when its flag is */
  int depth = 1;
  for (int i = 3; i >= 0; i--) {
    if (flags & (1 << i)) parts[i] = *peek(f, ++depth);
  }
  return replace(f, depth, wk__op_make_function(f, *peek(f, 1), parts[0], parts[1], parts[2], parts[3]));
}
static wk__step format(wk__frame *f, int flags) {
  static const char conversions[] = {0, 's', 'r', 'a'};
  bool with_spec = flags & 4;
  PyObject *spec = with_spec ? *peek(f, 1) : NULL;
  return replace(f, 1 + with_spec, wk__op_format(f, *peek(f, 1 + with_spec), conversions[flags & 3], spec));
}

static wk__step convert(wk__frame *f, int kind) {
  static const char conversions[] = {0, 's', 'r', 'a'};
  return replace(f, 1, wk__op_convert(f, *peek(f, 1), conversions[kind & 3]));
}

/* container[start:stop] */
static wk__step load_slice(wk__frame *f) {
  PyObject *slice = wk__op_build(f, WK__BUILD_SLICE, peek(f, 2), 2);
  PyObject *item = slice ? wk__op_item(f, *peek(f, 3), slice) : NULL;
  Py_XDECREF(slice);
  return replace(f, 3, item);
}
static wk__step store_slice(wk__frame *f) {
  PyObject *slice = wk__op_build(f, WK__BUILD_SLICE, peek(f, 2), 2);
  int status = slice ? wk__op_set_item(f, *peek(f, 3), slice, *peek(f, 4)) : -1;
  Py_XDECREF(slice);
  return done(f, 4, status);
}

/* The first item comes to the top. */
static wk__step unpack(wk__frame *f, int count, int after) {
  PyObject *few[16], **items = few;
  int total = count + (after >= 0 ? after + 1 : 0);
  if (total > (int)WK_COUNT(few) && !(items = PyMem_New(PyObject *, total))) {
    PyErr_NoMemory();
    return failed(f);
  }
  int status = wk__op_unpack(f, *peek(f, 1), count, after, items);
  if (status >= 0) {
    drop(f, 1);
    for (int i = total; i-- > 0;) push(f, items[i]);
  }
  if (items != few) PyMem_Free(items);
  return status < 0 ? failed(f) : WK__STEP_NEXT;
}

static inline wk__step for_iter(wk__frame *f, int to_end) {
  PyObject *item;
  int status = wk__op_next(f, *peek(f, 1), &item);
  if (WK_UNLIKELY(status < 0)) return failed(f);
  if (WK_LIKELY(status)) {
    push(f, item);
  } else {
    drop(f, 1);
    f->next += to_end;
  }
  return WK__STEP_NEXT;
}

/* ---- with, match, exceptions ---- */

static wk__step before_with(wk__frame *f) {
  PyObject *exit = NULL, *entered = wk__op_enter(f, *peek(f, 1), &exit);
  if (!entered) return failed(f);
  drop(f, 1);
  push(f, exit);
  push(f, entered);
  return WK__STEP_NEXT;
}
/* The stack: __exit__, where the exception came from, the exception before it, the exception. */
static wk__step with_exception(wk__frame *f) {
  PyObject *value = *peek(f, 1), *traceback = PyException_GetTraceback(value);
  PyObject *result = wk__op_exit(f, *peek(f, 4), (PyObject *)Py_TYPE(value), value, traceback ? traceback : Py_None);
  Py_XDECREF(traceback);
  return replace(f, 0, result);
}

static wk__step get_length(wk__frame *f) {
  Py_ssize_t length = wk__op_length(f, *peek(f, 1));
  return replace(f, 0, length < 0 ? NULL : PyLong_FromSsize_t(length));
}

/* The exception becomes the one that is handled; the one before it is kept below. */
static wk__step push_exception(wk__frame *f) {
  _PyErr_StackItem *handled = f->thread->exc_info;
  PyObject *value = *peek(f, 1);
  *peek(f, 1) = handled->exc_value ? handled->exc_value : Py_NewRef(Py_None);
  push(f, Py_NewRef(value));
  handled->exc_value = value;
  return WK__STEP_NEXT;
}
static wk__step pop_exception(wk__frame *f) {
  _PyErr_StackItem *handled = f->thread->exc_info;
  PyObject *value = handled->exc_value;
  handled->exc_value = pop(f);
  if (WK__NOTHING_HANDLED_IS_NULL && handled->exc_value == Py_None) Py_CLEAR(handled->exc_value);
  Py_XDECREF(value);
  return WK__STEP_NEXT;
}
static wk__step match_group(wk__frame *f) {
  PyObject *match = NULL, *rest = NULL;
  if (wk__op_match_group(f, *peek(f, 2), *peek(f, 1), &match, &rest) < 0) return failed(f);
  drop(f, 1);
  if (match == Py_None) {
    Py_DECREF(rest);
  } else {
    PyErr_SetExcInfo(NULL, Py_NewRef(match), NULL);
    drop(f, 1);
    push(f, rest);
  }
  push(f, match);
  return WK__STEP_NEXT;
}

/* `raise` alone gives the handled exception no new traceback entry. */
static wk__step raise_exception(wk__frame *f, int count) {
  PyObject *handled = count == 0 ? PyErr_GetHandledException() : NULL;
  bool again = handled != NULL;
  Py_XDECREF(handled);
  wk__op_raise(f, count > 0 ? *peek(f, count) : NULL, count > 1 ? *peek(f, 1) : NULL);
  wk__step step = failed(f);
  wk__linkage_of(f)->reraising = again && step == WK__STEP_RAISE;
  return step;
}
/* `from_depth`: where on the stack the place of the first raise lies; 0: nowhere. */
static wk__step raise_again(wk__frame *f, int from_depth) {
  if (from_depth > 0) {
    long last = PyLong_AsLong(*peek(f, from_depth + 1));
    wk__real_stand_at(f, (int)last);
  }
  PyObject *value = pop(f);
  PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(value)), value, PyException_GetTraceback(value));
  wk__linkage_of(f)->reraising = true;
  return failed(f);
}
static wk__step load_assertion_error(wk__frame *f) {
  PyObject *type = NULL;
  return replace(f, 0, wk__op_assertion(f, &type) < 0 ? NULL : type);
}

/* ---- generators ---- */

/* Receiver and value become receiver and what it yields, or, at its end, its value: below which the receiver stays for
 * an END_SEND in newer versions. */
static wk__step send(wk__frame *f, int to_end, bool drop_receiver) {
  PyObject *item;
  int status = wk__op_send(f, *peek(f, 2), *peek(f, 1), &item);
  if (status < 0) return failed(f);
  if (status == 0) f->next += to_end;
  return replace(f, status == 0 && drop_receiver ? 2 : 1, item);
}
static wk__step end_send(wk__frame *f) {
  PyObject *value = pop(f);
  drop(f, 1);
  push(f, value);
  return WK__STEP_NEXT;
}
/* An exception thrown into a `yield from` has come back out of the inner iterator, unless it says the iterator's end.
 * The stack: receiver, what was sent last, the exception. */
static wk__step cleanup_throw(wk__frame *f) {
  PyObject *exception = *peek(f, 1);
  if (!PyErr_GivenExceptionMatches(exception, PyExc_StopIteration)) return raise_again(f, 0);
  PyObject *value = Py_NewRef(((PyStopIterationObject *)exception)->value);
  drop(f, 3);
  push(f, Py_NewRef(Py_None));
  push(f, value);
  return WK__STEP_NEXT;
}
static wk__step yield_value(wk__frame *f, int argument) {
  f->result = pop(f);
  wk__linkage_of(f)->yielded = true;
  wk__real_suspend(f, argument);
  return WK__STEP_YIELD;
}
static wk__step return_value(wk__frame *f) {
  f->result = pop(f);
  return WK__STEP_RETURN;
}
static wk__step return_constant(wk__frame *f, PyObject *constant) {
  f->result = wk__op_constant(f, constant);
  return f->result ? WK__STEP_RETURN : failed(f);
}

/* ---- the instructions ---- */

/* An exception that was set before the first step: thrown into a generator, or a RecursionError. */
static __attribute__((noinline)) wk__step start_throwing(wk__frame *f) {
  f->throwing = false;
  return failed(f);
}

wk__step wk__frame_step(wk__frame *f) {
  if (WK_UNLIKELY(f->throwing)) return start_throwing(f);
  const wk__instruction *instruction = &f->info->code[f->next];
  int argument = instruction->argument;
  f->offset = f->next;
  f->next += instruction->width;
  wk__real_stand_at(f, f->offset + instruction->prefixes);

#define TOP (*peek(f, 1))
#define SECOND (*peek(f, 2))
#define THIRD (*peek(f, 3))
#define NAME(i) PyTuple_GET_ITEM(f->code->co_names, i)
#define CONSTANT(i) PyTuple_GET_ITEM(f->code->co_consts, i)
#define SLOT(i) (f->real->localsplus[i])
  // clang-format off
  switch ((wk__instruction_kind)instruction->kind) {
    /* ---- nothing, and the stack ---- */
    case WK__I_RESUME: return argument ? serve_requests(f) : WK__STEP_NEXT;
    case WK__I_NOP:
    case WK__I_PRECALL: return WK__STEP_NEXT;
    case WK__I_POP: return done(f, argument, 0);
    case WK__I_PUSH_NULL: push(f, NULL); return WK__STEP_NEXT;
    case WK__I_COPY: push(f, Py_XNewRef(*peek(f, argument))); return WK__STEP_NEXT;
    case WK__I_SWAP: {
      PyObject *top = TOP;
      TOP = *peek(f, argument);
      *peek(f, argument) = top;
      return WK__STEP_NEXT;
    }

    /* ---- names ---- */
    case WK__I_LOAD_FAST: return load_fast(f, argument);
    case WK__I_LOAD_FAST_2: return load_fast_2(f, argument);
    case WK__I_LOAD_FAST_OR_CELL: return is_cell_slot(f, argument) ? load_closure(f, argument) : load_fast(f, argument);
    case WK__I_TAKE_FAST: return take_fast(f, argument);
    case WK__I_LOAD_CONST: return replace(f, 0, wk__op_constant(f, CONSTANT(argument)));
    case WK__I_STORE_FAST: set_slot(f, argument, pop(f)); return WK__STEP_NEXT;
    case WK__I_STORE_FAST_LOAD_FAST: return store_fast_load_fast(f, argument);
    case WK__I_STORE_FAST_2:
      set_slot(f, wk__first_of_two(argument), pop(f));
      set_slot(f, wk__second_of_two(argument), pop(f));
      return WK__STEP_NEXT;
    case WK__I_DELETE_FAST: return delete_fast(f, argument);
    case WK__I_LOAD_GLOBAL: return load_global(f, NAME(argument >> 1), argument & 1);
    case WK__I_STORE_GLOBAL: return done(f, 1, wk__op_set_global(f, NAME(argument), TOP));
    case WK__I_DELETE_GLOBAL: return done(f, 0, wk__op_set_global(f, NAME(argument), NULL));
    case WK__I_LOAD_NAME: return replace(f, 0, wk__op_name(f, NAME(argument)));
    case WK__I_STORE_NAME: return done(f, 1, wk__op_set_name(f, NAME(argument), TOP));
    case WK__I_DELETE_NAME: return done(f, 0, wk__op_set_name(f, NAME(argument), NULL));
    case WK__I_LOAD_LOCALS: return load_locals(f);
    case WK__I_LOAD_FROM_DICT_OR_GLOBALS:
      if (TOP != wk__frame_locals(f)) break; /* a scope of type parameters */
      return replace(f, 1, wk__op_name(f, NAME(argument)));
    case WK__I_MAKE_CELL: return make_cell(f, argument);
    case WK__I_COPY_FREE_VARS: return copy_free_variables(f, argument);
    case WK__I_LOAD_CLOSURE: return load_closure(f, argument);
    case WK__I_LOAD_DEREF: return replace(f, 0, wk__op_cell(f, SLOT(argument), argument));
    case WK__I_STORE_DEREF: return done(f, 1, wk__op_set_cell(f, SLOT(argument), TOP));
    case WK__I_DELETE_DEREF: return delete_deref(f, argument);
    case WK__I_LOAD_CLASS_DEREF: return replace(f, 0, wk__op_class_cell(f, SLOT(argument), argument));
    case WK__I_LOAD_FROM_DICT_OR_DEREF:
      if (TOP != wk__frame_locals(f)) break;
      return replace(f, 1, wk__op_class_cell(f, SLOT(argument), argument));
    case WK__I_IMPORT_NAME: return replace(f, 2, wk__op_import(f, NAME(argument), TOP, SECOND));
    case WK__I_IMPORT_FROM: return replace(f, 0, wk__op_import_from(f, TOP, NAME(argument)));
    case WK__I_IMPORT_STAR: return done_leaving(f, wk__op_import_star(f, TOP), argument);
    case WK__I_SETUP_ANNOTATIONS: return done(f, 0, wk__op_setup_annotations(f));
    case WK__I_PRINT: return done_leaving(f, wk__op_print(f, TOP), argument);

    /* ---- attributes, items ---- */
    case WK__I_LOAD_ATTR: return replace(f, 1, wk__op_attr(f, TOP, NAME(argument)));
    case WK__I_LOAD_METHOD: return load_method(f, NAME(argument));
    case WK__I_LOAD_SUPER_ATTR: return load_super_attribute(f, NAME(argument >> 2), argument & 1);
    case WK__I_STORE_ATTR: return done(f, 2, wk__op_set_attr(f, TOP, NAME(argument), SECOND));
    case WK__I_DELETE_ATTR: return done(f, 1, wk__op_set_attr(f, TOP, NAME(argument), NULL));
    case WK__I_LOAD_ITEM: return replace(f, 2, wk__op_item(f, SECOND, TOP));
    case WK__I_STORE_ITEM: return done(f, 3, wk__op_set_item(f, SECOND, TOP, THIRD));
    case WK__I_DELETE_ITEM: return done(f, 2, wk__op_set_item(f, SECOND, TOP, NULL));
    case WK__I_LOAD_SLICE: return load_slice(f);
    case WK__I_STORE_SLICE: return store_slice(f);

    /* ---- operators ---- */
    case WK__I_UNARY: return replace(f, 1, wk__op_unary(f, (wk__unary)argument, TOP));
    case WK__I_UNARY_NOT: {
      int truth = wk__op_true(f, TOP);
      return replace_bool(f, 1, truth < 0 ? truth : !truth);
    }
    case WK__I_TO_BOOL: return replace_bool(f, 1, wk__op_true(f, TOP));
    case WK__I_BINARY: return replace(f, 2, wk__op_binary(f, argument, SECOND, TOP));
    case WK__I_COMPARE: return replace(f, 2, wk__op_compare(f, argument, SECOND, TOP));
    case WK__I_IS: {
      int is = wk__op_is(f, SECOND, TOP);
      return replace_bool(f, 2, is < 0 ? is : is ^ argument);
    }
    case WK__I_CONTAINS: {
      int contains = wk__op_contains(f, TOP, SECOND);
      return replace_bool(f, 2, contains < 0 ? contains : contains ^ argument);
    }
    case WK__I_FORMAT: return format(f, argument);
    case WK__I_CONVERT: return convert(f, argument);

    /* ---- calls ---- */
    case WK__I_KW_NAMES: f->keyword_names = CONSTANT(argument); return WK__STEP_NEXT;
    case WK__I_CALL: return call(f, argument, f->keyword_names, 0);
    case WK__I_CALL_KW: return call_with_names(f, argument);
    case WK__I_CALL_SPREAD: return call_spread(f, argument);

    /* ---- making things ---- */
    case WK__I_BUILD_TUPLE: return build(f, WK__BUILD_TUPLE, argument);
    case WK__I_BUILD_LIST: return build(f, WK__BUILD_LIST, argument);
    case WK__I_BUILD_SET: return build(f, WK__BUILD_SET, argument);
    case WK__I_BUILD_STRING: return build(f, WK__BUILD_STRING, argument);
    case WK__I_BUILD_SLICE: return build(f, WK__BUILD_SLICE, argument);
    case WK__I_BUILD_MAP: return build(f, WK__BUILD_MAP, argument);
    case WK__I_BUILD_CONST_KEY_MAP:
      return replace(f, argument + 1, wk__op_build_const_map(f, TOP, peek(f, argument + 1), argument));
    case WK__I_LIST_TO_TUPLE: return replace(f, 1, wk__op_list_to_tuple(f, TOP));
    case WK__I_LIST_APPEND: return fill(f, WK__FILL_LIST_APPEND, argument);
    case WK__I_LIST_EXTEND: return fill(f, WK__FILL_LIST_EXTEND, argument);
    case WK__I_SET_ADD: return fill(f, WK__FILL_SET_ADD, argument);
    case WK__I_SET_UPDATE: return fill(f, WK__FILL_SET_UPDATE, argument);
    case WK__I_DICT_UPDATE: return fill(f, WK__FILL_DICT_UPDATE, argument);
    case WK__I_MAP_ADD: return done(f, 2, wk__op_fill(f, WK__FILL_MAP_ADD, *peek(f, argument + 2), SECOND, TOP, NULL));
    case WK__I_DICT_MERGE: return merge_keywords(f, argument);
    case WK__I_MAKE_FUNCTION: return make_function(f, argument);
    case WK__I_LOAD_BUILD_CLASS: return replace(f, 0, wk__op_build_class(f));

    /* ---- jumps ---- */
    case WK__I_JUMP: f->next += argument; return WK__STEP_NEXT;
    case WK__I_JUMP_AND_SERVE: return jump(f, argument);
    case WK__I_POP_JUMP_IF_FALSE: return pop_and_jump_if(f, false, argument);
    case WK__I_POP_JUMP_IF_TRUE: return pop_and_jump_if(f, true, argument);
    case WK__I_POP_JUMP_IF_NONE: return pop_and_jump_if_none(f, true, argument);
    case WK__I_POP_JUMP_IF_NOT_NONE: return pop_and_jump_if_none(f, false, argument);
    case WK__I_JUMP_IF_FALSE_OR_POP: return jump_if_or_pop(f, false, argument);
    case WK__I_JUMP_IF_TRUE_OR_POP: return jump_if_or_pop(f, true, argument);

    /* ---- iteration, generators ---- */
    case WK__I_GET_ITER: return replace(f, 1, wk__op_iter(f, TOP));
    case WK__I_FOR_ITER: return for_iter(f, argument);
    case WK__I_UNPACK: return unpack(f, argument, -1);
    case WK__I_UNPACK_EX: return unpack(f, argument & 0xff, argument >> 8);
    case WK__I_GET_YIELD_FROM_ITER: return replace(f, 1, wk__op_yield_from_iter(f, TOP));
    case WK__I_SEND: return send(f, argument, false);
    case WK__I_SEND_AND_END: return send(f, argument, true);
    case WK__I_END_SEND: return end_send(f);
    case WK__I_CLEANUP_THROW: return cleanup_throw(f);
    case WK__I_YIELD: return yield_value(f, argument);
    case WK__I_RETURN: return return_value(f);
    case WK__I_RETURN_CONST: return return_constant(f, CONSTANT(argument));

    /* ---- with, match ---- */
    case WK__I_BEFORE_WITH: return before_with(f);
    case WK__I_WITH_EXCEPT_START: return with_exception(f);
    case WK__I_GET_LEN: return get_length(f);
    case WK__I_MATCH_MAPPING: return replace_bool(f, 0, wk__op_match_kind(f, WK__PATTERN_MAPPING, TOP));
    case WK__I_MATCH_SEQUENCE: return replace_bool(f, 0, wk__op_match_kind(f, WK__PATTERN_SEQUENCE, TOP));
    case WK__I_MATCH_KEYS: return replace(f, 0, wk__op_match_keys(f, SECOND, TOP));
    case WK__I_MATCH_CLASS: return replace(f, 3, wk__op_match_class(f, THIRD, SECOND, argument, TOP));

    /* ---- exceptions ---- */
    case WK__I_LOAD_ASSERTION_ERROR: return load_assertion_error(f);
    case WK__I_RAISE: return raise_exception(f, argument);
    case WK__I_RERAISE: return raise_again(f, argument);
    case WK__I_PUSH_EXC_INFO: return push_exception(f);
    case WK__I_POP_EXCEPT: return pop_exception(f);
    case WK__I_CHECK_EXC_MATCH: return replace_bool(f, 1, wk__op_exception_matches(f, SECOND, TOP));
    case WK__I_CHECK_EG_MATCH: return match_group(f);
    case WK__I_JOIN_GROUPS: return replace(f, 2, wk__op_join_groups(f, SECOND, TOP));
    case WK__I_STOP_ITERATION_ERROR: return replace(f, 1, wk__plain_stop_iteration_error(f, TOP));

    case WK__I_UNKNOWN: break; /* what makes an object that only CPython can make, or is in coroutines */
  }
  // clang-format on
  f->next = f->offset;
  return WK__STEP_UNKNOWN;
#undef TOP
#undef SECOND
#undef THIRD
#undef NAME
#undef CONSTANT
#undef SLOT
}
