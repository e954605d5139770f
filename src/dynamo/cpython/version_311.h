/* CPython 3.11: frames. See version.h. */
#ifndef WICK_DYNAMO_CPYTHON_VERSION_311_H
#define WICK_DYNAMO_CPYTHON_VERSION_311_H

#include "dynamo/cpython/gil.h"
#include "dynamo/cpython/version.h"

#define WK__OPCODES "dynamo/cpython/opcodes_311.def"
enum { WK__CALLABLE_FIRST = 0 };   /* what is called lies on the stack as NULL, callable: not as callable, NULL */
enum { WK__JUMPS_WANT_BOOLS = 0 }; /* CPython's conditional jumps and `not` take True and False alone */
enum { WK__HOOK_COUNTS = 0 };      /* what CPython's loop counts once more under a hook */
enum { WK__NOTHING_HANDLED_IS_NULL = 0 }; /* else None, when POP_EXCEPT puts it back */

enum { WK__HANDLERS_LAST = 0 }; /* behind all other code of the function */

struct wk__linkage {
  _PyCFrame cframe; /* CPython's record of a running loop, one for each C stack frame that evaluates */
  bool linked;      /* the frame is the thread's current one */
  bool counted;     /* one unit of the recursion limit is taken */
  bool reraising;   /* the exception that is set was raised before: it gets no new traceback entry */
  bool yielded;     /* the frame is a generator's that goes on later */
} __attribute__((may_alias));

/* ---- the parts of a frame ---- */
static inline PyCodeObject *wk__real_code(real_frame *real) { return real->f_code; }          // -> borrowed
static inline PyFunctionObject *wk__real_function(real_frame *real) { return real->f_func; }  // -> borrowed
static inline void wk__real_imagine(real_frame *real, PyFunctionObject *function, PyCodeObject *code) {
  *real = (real_frame){.f_func = function,
                       .f_globals = function->func_globals,
                       .f_builtins = function->func_builtins,
                       .f_code = code,
                       .prev_instr = _PyCode_CODE(code) - 1,
                       .stacktop = code->co_nlocalsplus};
}

/* ---- where it is ---- */
/* Of a frame that is entered: the instruction that it stood at, and the next one. */
static inline void wk__real_position(real_frame *real, bool throwing, int *out_offset, int *out_next) {
  int last = _PyInterpreterFrame_LASTI(real);
  (void)throwing;
  *out_offset = last < 0 ? 0 : last;
  *out_next = last + 1;
}
/* The opcode at this offset is being run. */
static inline void wk__real_stand_at(wk__frame *f, int offset) { f->real->prev_instr = _PyCode_CODE(f->code) + offset; }
/* CPython's loop is to begin with this instruction. */
static inline void wk__real_go_on_at(wk__frame *f, int offset) {
  f->real->prev_instr = _PyCode_CODE(f->code) + offset - 1;
}

/* ---- a loop that CPython runs for a while (lend.c) ---- */
enum { WK__LEAVING_OPCODE = RETURN_VALUE }; /* takes what lies on the stack out of CPython's loop, and nothing else */
/* An exception that leaves a frame does not clear it. */
enum { WK__RAISING_KEEPS_FRAME = 1 };
/* Steals the code, and gives the frame's own reference away. */
static inline void wk__real_set_code(real_frame *real, PyCodeObject *code) { real->f_code = code; }
static inline real_frame *wk__thread_current(PyThreadState *thread) {
  (void)thread;
  return NULL;
}
/* CPython's loop has been left by that opcode: what it does not put back itself. `current`: wk__thread_current before.
 */
static inline void wk__thread_take_back(wk__frame *frame, real_frame *current) { (void)frame, (void)current; }

/* ---- its thread ---- */
static inline void wk__thread_link(wk__frame *frame) {
  wk__linkage *link = wk__linkage_of(frame);
  _PyCFrame *previous = frame->thread->cframe;
  link->cframe.use_tracing = previous->use_tracing;
  link->cframe.previous = previous;
  link->cframe.current_frame = frame->real;
  frame->real->previous = previous->current_frame;
  frame->real->is_entry = true;
  frame->thread->cframe = &link->cframe;
}
static inline void wk__thread_unlink(wk__frame *frame) {
  wk__linkage *link = wk__linkage_of(frame);
  frame->thread->cframe = link->cframe.previous;
  frame->thread->cframe->use_tracing = link->cframe.use_tracing;
}
/* False: RecursionError is set. */
static inline bool wk__thread_count(PyThreadState *thread) { return _Py_EnterRecursiveCallTstate(thread, "") == 0; }
static inline void wk__thread_uncount(PyThreadState *thread) { _Py_LeaveRecursiveCallTstate(thread); }
static inline void wk__thread_uncount_hook(PyThreadState *thread, int units) { (void)thread, (void)units; }

static inline bool wk__thread_has_requests(PyThreadState *thread) {
  return _Py_atomic_load_relaxed(&thread->interp->ceval.eval_breaker) != 0;
}
/* By any thread, with or without the lock. */
static inline bool wk__signals_wait(void) {
  return _Py_atomic_load_relaxed(&_PyRuntime.ceval.signals_pending) && wk__gil_is_held();
}
static inline bool wk__thread_traced(PyThreadState *thread) { return thread->cframe->use_tracing != 0; }
static inline bool wk__code_watched(PyCodeObject *code) { return (void)code, false; }
static inline int *wk__thread_event(PyThreadState *thread) { return &thread->tracing_what; }

/* A generator's frame gives a value. */
static inline void wk__real_suspend(wk__frame *f, int argument) {
  (void)argument;
  _PyFrame_GetGenerator(f->real)->gi_frame_state = FRAME_SUSPENDED;
}
static inline void wk__real_suspended(wk__frame *f) { (void)f; }

#endif
