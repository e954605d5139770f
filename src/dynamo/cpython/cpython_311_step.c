/* CPython 3.11: one instruction of a frame. The instructions move values between slots and stack and follow jumps here;
 * what they do to objects is in operations.h. Operands stay on the stack until their operation has succeeded, so that a
 * refused one leaves the frame as it was. Tests: tests/python/capture/test_evaluator.py. */
#include "dynamo/cpython/cpython_311.h"

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
  f->dropping++;
  for (int i = 0; i < count; i++) Py_XDECREF(values[i]);
  f->dropping--;
}

static inline void set_slot(wk__frame *f, int slot, PyObject *steal_value) {
  PyObject *old = f->real->localsplus[slot];
  if (f->session) wk__op_stored(f, slot);
  f->real->localsplus[slot] = steal_value;
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

static wk__step unbound(wk__frame *f, int slot) {
  wk__plain_unbound(f, slot);
  return failed(f);
}

/* ---- signals, the lock, pending calls, exceptions from other threads ---- */

int wk__hook_serve_requests(PyThreadState *thread) {
  if (Py_MakePendingCalls() < 0) return -1;  // signals too
  PyObject *exception = thread->async_exc;
  struct _ceval_state *state = &thread->interp->ceval;
  if (exception) {
    thread->async_exc = NULL;
    state->pending.async_exc = 0;
  }
  // Taking the lock again computes again whether there are requests.
  if (exception || _Py_atomic_load_relaxed(&state->gil_drop_request)) PyEval_RestoreThread(PyEval_SaveThread());
  if (!exception) return 0;
  PyErr_SetNone(exception);
  Py_DECREF(exception);
  return -1;
}

/* After calls and backward jumps: what is requested is done with the instruction already finished. */
static inline wk__step serve_requests(wk__frame *f) {
  if (WK_LIKELY(!_Py_atomic_load_relaxed(&f->thread->interp->ceval.eval_breaker))) return WK__STEP_NEXT;
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

static inline wk__step pop_and_jump_if(wk__frame *f, bool wanted, int distance) {
  int truth = wk__op_true(f, *peek(f, 1));
  if (WK_UNLIKELY(truth < 0)) return failed(f);
  drop(f, 1);
  return truth == wanted ? jump(f, distance) : WK__STEP_NEXT;
}
static inline wk__step pop_and_jump_if_none(wk__frame *f, bool wanted, int distance) {
  int none = wk__op_is(f, *peek(f, 1), Py_None);
  if (WK_UNLIKELY(none < 0)) return failed(f);
  drop(f, 1);
  return none == wanted ? jump(f, distance) : WK__STEP_NEXT;
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
static wk__step load_closure(wk__frame *f, int slot) {
  PyObject *cell = f->real->localsplus[slot];
  if (!cell) return unbound(f, slot);
  push(f, Py_NewRef(cell));
  return WK__STEP_NEXT;
}
static wk__step delete_fast(wk__frame *f, int slot) {
  if (!f->real->localsplus[slot]) return unbound(f, slot);
  set_slot(f, slot, NULL);
  return WK__STEP_NEXT;
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
  PyObject *closure = f->real->f_func->func_closure;
  int first = f->code->co_nlocalsplus - count;
  for (int i = 0; i < count; i++) f->real->localsplus[first + i] = Py_NewRef(PyTuple_GET_ITEM(closure, i));
  return WK__STEP_NEXT;
}

static inline wk__step load_global(wk__frame *f, PyObject *name, bool for_call) {
  PyObject *value = wk__op_global(f, name);
  if (WK_UNLIKELY(!value)) return failed(f);
  if (for_call) push(f, NULL);
  push(f, value);
  return WK__STEP_NEXT;
}
/* A method and self, or NULL and what is to be called. */
static wk__step load_method(wk__frame *f, PyObject *name) {
  PyObject *self = NULL, *callable = wk__op_method(f, *peek(f, 1), name, &self);
  if (WK_UNLIKELY(!callable)) return failed(f);
  drop(f, 1);
  push(f, self ? callable : NULL);
  push(f, self ? self : callable);
  return WK__STEP_NEXT;
}

static wk__step call(wk__frame *f, int count) {
  PyObject **base = peek(f, count + 2), *names = f->keyword_names;
  bool method = base[0] != NULL;
  Py_ssize_t positional = count + method - (names ? PyTuple_GET_SIZE(names) : 0);
  PyObject *result = wk__op_call(f, base[!method], base + 2 - method, positional, names);
  if (WK_UNLIKELY(!result)) return failed(f);
  f->keyword_names = NULL;
  replace(f, count + 2, result);
  return serve_requests(f);
}
static wk__step call_spread(wk__frame *f, bool with_keywords) {
  PyObject *keywords = with_keywords ? *peek(f, 1) : NULL;
  PyObject **base = peek(f, 3 + with_keywords); /* NULL, callable, arguments */
  PyObject *result = wk__op_call_spread(f, base[1], base[2], keywords);
  if (!result) return failed(f);
  replace(f, 3 + with_keywords, result);
  return serve_requests(f);
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
    PyObject *sequence = pop(f);
    for (int i = total; i-- > 0;) push(f, items[i]);
    Py_DECREF(sequence);
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

/* ---- generators ---- */

/* Receiver and value become receiver and what it yields, or, at its end, its value. */
static wk__step send(wk__frame *f, int to_end) {
  PyObject *item;
  int status = wk__op_send(f, *peek(f, 2), *peek(f, 1), &item);
  if (status < 0) return failed(f);
  if (status == 0) f->next += to_end;
  return replace(f, status ? 1 : 2, item);
}
static wk__step yield_value(wk__frame *f) {
  f->result = pop(f);
  _PyFrame_GetGenerator(f->real)->gi_frame_state = FRAME_SUSPENDED;
  return WK__STEP_YIELD;
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
static wk__step raise(wk__frame *f, int count) {
  PyObject *handled = _PyErr_GetTopmostException(f->thread)->exc_value;
  bool again = count == 0 && handled && handled != Py_None;
  wk__op_raise(f, count > 0 ? *peek(f, count) : NULL, count > 1 ? *peek(f, 1) : NULL);
  wk__step step = failed(f);
  wk__linkage(f)->reraising = again && step == WK__STEP_RAISE;
  return step;
}
/* `from_depth`: where on the stack the place of the first raise lies; 0: nowhere. */
static wk__step raise_again(wk__frame *f, int from_depth) {
  if (from_depth > 0) {
    long last = PyLong_AsLong(*peek(f, from_depth + 1));
    f->real->prev_instr = _PyCode_CODE(f->code) + last;
  }
  PyObject *value = pop(f);
  PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(value)), value, PyException_GetTraceback(value));
  wk__linkage(f)->reraising = true;
  return failed(f);
}
static wk__step load_assertion_error(wk__frame *f) {
  PyObject *type = NULL;
  return replace(f, 0, wk__op_assertion(f, &type) < 0 ? NULL : type);
}

/* ---- the instructions ---- */

/* An exception that was set before the first step: thrown into a generator, or a RecursionError. */
static __attribute__((noinline)) wk__step start_throwing(wk__frame *f) {
  f->throwing = false;
  return failed(f);
}

wk__step wk__frame_step(wk__frame *f) {
  if (WK_UNLIKELY(f->throwing)) return start_throwing(f);
  const uint8_t *units = f->info->units;
  int offset = f->offset = f->next;
  int opcode = units[2 * offset], argument = units[2 * offset + 1];
  while (WK_UNLIKELY(opcode == EXTENDED_ARG)) {
    offset++;
    opcode = units[2 * offset];
    argument = argument << 8 | units[2 * offset + 1];
  }
  f->real->prev_instr = _PyCode_CODE(f->code) + offset;
  f->next = offset + 1 + wk__cache_units[opcode];

#define TOP (*peek(f, 1))
#define SECOND (*peek(f, 2))
#define THIRD (*peek(f, 3))
#define NAME(i) PyTuple_GET_ITEM(f->code->co_names, i)
#define CONSTANT(i) PyTuple_GET_ITEM(f->code->co_consts, i)
#define SLOT(i) (f->real->localsplus[i])
  // clang-format off
  switch (opcode) {
    /* ---- nothing, and the stack ---- */
    case RESUME: return argument < 2 ? serve_requests(f) : WK__STEP_NEXT;
    case NOP:
    case PRECALL: return WK__STEP_NEXT;
    case POP_TOP: return done(f, 1, 0);
    case PUSH_NULL: push(f, NULL); return WK__STEP_NEXT;
    case COPY: push(f, Py_XNewRef(*peek(f, argument))); return WK__STEP_NEXT;
    case SWAP: {
      PyObject *top = TOP;
      TOP = *peek(f, argument);
      *peek(f, argument) = top;
      return WK__STEP_NEXT;
    }

    /* ---- names ---- */
    case LOAD_FAST: return load_fast(f, argument);
    case LOAD_CONST: return replace(f, 0, wk__op_constant(f, CONSTANT(argument)));
    case STORE_FAST: set_slot(f, argument, pop(f)); return WK__STEP_NEXT;
    case DELETE_FAST: return delete_fast(f, argument);
    case LOAD_GLOBAL: return load_global(f, NAME(argument >> 1), argument & 1);
    case STORE_GLOBAL: return done(f, 1, wk__op_set_global(f, NAME(argument), TOP));
    case DELETE_GLOBAL: return done(f, 0, wk__op_set_global(f, NAME(argument), NULL));
    case LOAD_NAME: return replace(f, 0, wk__op_name(f, NAME(argument)));
    case STORE_NAME: return done(f, 1, wk__op_set_name(f, NAME(argument), TOP));
    case DELETE_NAME: return done(f, 0, wk__op_set_name(f, NAME(argument), NULL));
    case MAKE_CELL: return make_cell(f, argument);
    case COPY_FREE_VARS: return copy_free_variables(f, argument);
    case LOAD_CLOSURE: return load_closure(f, argument);
    case LOAD_DEREF: return replace(f, 0, wk__op_cell(f, SLOT(argument), argument));
    case STORE_DEREF: return done(f, 1, wk__op_set_cell(f, SLOT(argument), TOP));
    case DELETE_DEREF: return delete_deref(f, argument);
    case LOAD_CLASSDEREF: return replace(f, 0, wk__op_class_cell(f, SLOT(argument), argument));
    case IMPORT_NAME: return replace(f, 2, wk__op_import(f, NAME(argument), TOP, SECOND));
    case IMPORT_FROM: return replace(f, 0, wk__op_import_from(f, TOP, NAME(argument)));
    case IMPORT_STAR: return done(f, 1, wk__op_import_star(f, TOP));
    case SETUP_ANNOTATIONS: return done(f, 0, wk__op_setup_annotations(f));
    case PRINT_EXPR: return done(f, 1, wk__op_print(f, TOP));

    /* ---- attributes, items ---- */
    case LOAD_ATTR: return replace(f, 1, wk__op_attr(f, TOP, NAME(argument)));
    case STORE_ATTR: return done(f, 2, wk__op_set_attr(f, TOP, NAME(argument), SECOND));
    case DELETE_ATTR: return done(f, 1, wk__op_set_attr(f, TOP, NAME(argument), NULL));
    case LOAD_METHOD: return load_method(f, NAME(argument));
    case BINARY_SUBSCR: return replace(f, 2, wk__op_item(f, SECOND, TOP));
    case STORE_SUBSCR: return done(f, 3, wk__op_set_item(f, SECOND, TOP, THIRD));
    case DELETE_SUBSCR: return done(f, 2, wk__op_set_item(f, SECOND, TOP, NULL));

    /* ---- operators ---- */
    case UNARY_POSITIVE: return replace(f, 1, wk__op_unary(f, WK__UNARY_POSITIVE, TOP));
    case UNARY_NEGATIVE: return replace(f, 1, wk__op_unary(f, WK__UNARY_NEGATIVE, TOP));
    case UNARY_INVERT: return replace(f, 1, wk__op_unary(f, WK__UNARY_INVERT, TOP));
    case UNARY_NOT: {
      int truth = wk__op_true(f, TOP);
      return replace_bool(f, 1, truth < 0 ? truth : !truth);
    }
    case BINARY_OP: return replace(f, 2, wk__op_binary(f, argument, SECOND, TOP));
    case COMPARE_OP: return replace(f, 2, wk__op_compare(f, argument, SECOND, TOP));
    case IS_OP: {
      int is = wk__op_is(f, SECOND, TOP);
      return replace_bool(f, 2, is < 0 ? is : is ^ argument);
    }
    case CONTAINS_OP: {
      int contains = wk__op_contains(f, TOP, SECOND);
      return replace_bool(f, 2, contains < 0 ? contains : contains ^ argument);
    }
    case FORMAT_VALUE: return format(f, argument);

    /* ---- calls ---- */
    case KW_NAMES: f->keyword_names = CONSTANT(argument); return WK__STEP_NEXT;
    case CALL: return call(f, argument);
    case CALL_FUNCTION_EX: return call_spread(f, argument & 1);

    /* ---- making things ---- */
    case BUILD_TUPLE: return build(f, WK__BUILD_TUPLE, argument);
    case BUILD_LIST: return build(f, WK__BUILD_LIST, argument);
    case BUILD_SET: return build(f, WK__BUILD_SET, argument);
    case BUILD_STRING: return build(f, WK__BUILD_STRING, argument);
    case BUILD_SLICE: return build(f, WK__BUILD_SLICE, argument);
    case BUILD_MAP: return build(f, WK__BUILD_MAP, 2 * argument);
    case BUILD_CONST_KEY_MAP:
      return replace(f, argument + 1, wk__op_build_const_map(f, TOP, peek(f, argument + 1), argument));
    case LIST_TO_TUPLE: return replace(f, 1, wk__op_list_to_tuple(f, TOP));
    case LIST_APPEND: return fill(f, WK__FILL_LIST_APPEND, argument);
    case LIST_EXTEND: return fill(f, WK__FILL_LIST_EXTEND, argument);
    case SET_ADD: return fill(f, WK__FILL_SET_ADD, argument);
    case SET_UPDATE: return fill(f, WK__FILL_SET_UPDATE, argument);
    case DICT_UPDATE: return fill(f, WK__FILL_DICT_UPDATE, argument);
    case MAP_ADD: return done(f, 2, wk__op_fill(f, WK__FILL_MAP_ADD, *peek(f, argument + 2), SECOND, TOP, NULL));
    case DICT_MERGE:
      return done(f, 1, wk__op_fill(f, WK__FILL_DICT_MERGE, *peek(f, argument + 1), TOP, NULL, *peek(f, argument + 3)));
    case MAKE_FUNCTION: return make_function(f, argument);
    case LOAD_BUILD_CLASS: return replace(f, 0, wk__op_build_class(f));

    /* ---- jumps ---- */
    case JUMP_FORWARD: f->next += argument; return WK__STEP_NEXT;
    case JUMP_BACKWARD: return jump_back(f, argument);
    case JUMP_BACKWARD_NO_INTERRUPT: f->next -= argument; return WK__STEP_NEXT;
    case POP_JUMP_FORWARD_IF_FALSE: return pop_and_jump_if(f, false, argument);
    case POP_JUMP_FORWARD_IF_TRUE: return pop_and_jump_if(f, true, argument);
    case POP_JUMP_BACKWARD_IF_FALSE: return pop_and_jump_if(f, false, -argument);
    case POP_JUMP_BACKWARD_IF_TRUE: return pop_and_jump_if(f, true, -argument);
    case POP_JUMP_FORWARD_IF_NONE: return pop_and_jump_if_none(f, true, argument);
    case POP_JUMP_FORWARD_IF_NOT_NONE: return pop_and_jump_if_none(f, false, argument);
    case POP_JUMP_BACKWARD_IF_NONE: return pop_and_jump_if_none(f, true, -argument);
    case POP_JUMP_BACKWARD_IF_NOT_NONE: return pop_and_jump_if_none(f, false, -argument);
    case JUMP_IF_FALSE_OR_POP: return jump_if_or_pop(f, false, argument);
    case JUMP_IF_TRUE_OR_POP: return jump_if_or_pop(f, true, argument);

    /* ---- iteration, generators ---- */
    case GET_ITER: return replace(f, 1, wk__op_iter(f, TOP));
    case FOR_ITER: return for_iter(f, argument);
    case UNPACK_SEQUENCE: return unpack(f, argument, -1);
    case UNPACK_EX: return unpack(f, argument & 0xff, argument >> 8);
    case GET_YIELD_FROM_ITER: return replace(f, 1, wk__op_yield_from_iter(f, TOP));
    case SEND: return send(f, argument);
    case YIELD_VALUE: return yield_value(f);
    case RETURN_VALUE: f->result = pop(f); return WK__STEP_RETURN;

    /* ---- with, match ---- */
    case BEFORE_WITH: return before_with(f);
    case WITH_EXCEPT_START: return with_exception(f);
    case GET_LEN: return get_length(f);
    case MATCH_MAPPING: return replace_bool(f, 0, wk__op_match_kind(f, WK__PATTERN_MAPPING, TOP));
    case MATCH_SEQUENCE: return replace_bool(f, 0, wk__op_match_kind(f, WK__PATTERN_SEQUENCE, TOP));
    case MATCH_KEYS: return replace(f, 0, wk__op_match_keys(f, SECOND, TOP));
    case MATCH_CLASS: return replace(f, 3, wk__op_match_class(f, THIRD, SECOND, argument, TOP));

    /* ---- exceptions ---- */
    case LOAD_ASSERTION_ERROR: return load_assertion_error(f);
    case RAISE_VARARGS: return raise(f, argument);
    case RERAISE: return raise_again(f, argument);
    case PUSH_EXC_INFO: return push_exception(f);
    case POP_EXCEPT: return pop_exception(f);
    case CHECK_EXC_MATCH: return replace_bool(f, 1, wk__op_exception_matches(f, SECOND, TOP));
    case CHECK_EG_MATCH: return match_group(f);
    case PREP_RERAISE_STAR: return replace(f, 2, wk__op_join_groups(f, SECOND, TOP));

    default: /* RETURN_GENERATOR makes an object that only CPython can make; the others are in coroutines */
      f->next = f->offset;
      return WK__STEP_UNKNOWN;
  }
// clang-format on
#undef TOP
#undef SECOND
#undef THIRD
#undef NAME
#undef CONSTANT
#undef SLOT
}
