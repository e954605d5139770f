/* CPython 3.13: frames. See version.h. */
#ifndef WICK_DYNAMO_CPYTHON_VERSION_313_H
#define WICK_DYNAMO_CPYTHON_VERSION_313_H

#include <internal/pycore_intrinsics.h>

#include "dynamo/cpython/gil.h"
#include "dynamo/cpython/version.h"

#define WK__OPCODES "dynamo/cpython/opcodes_313.def"
enum { WK__CALLABLE_FIRST = 1 };   /* what is called lies on the stack as callable, NULL: not as NULL, callable */
enum { WK__JUMPS_WANT_BOOLS = 1 }; /* CPython's conditional jumps and `not` take True and False alone */
enum { WK__NOTHING_HANDLED_IS_NULL = 1 }; /* else None, when POP_EXCEPT puts it back */
enum { WK__HOOK_COUNTS = 0 };             /* what CPython's loop counts once more under a hook */

enum { WK__HANDLERS_LAST = 1 }; /* behind all other code of the function */

struct wk__linkage {
  real_frame *previous; /* the thread's current frame before this one */
  bool linked;          /* the frame is the thread's current one */
  bool counted;         /* one unit of the recursion limit is taken */
  bool reraising;       /* the exception that is set was raised before: it gets no new traceback entry */
  bool yielded;         /* the frame is a generator's that goes on later */
} __attribute__((may_alias));

/* ---- the parts of a frame ---- */
static inline PyCodeObject *wk__real_code(real_frame *real) { return (PyCodeObject *)real->f_executable; }
static inline PyFunctionObject *wk__real_function(real_frame *real) { return (PyFunctionObject *)real->f_funcobj; }
static inline void wk__real_imagine(real_frame *real, PyFunctionObject *function, PyCodeObject *code) {
  *real = (real_frame){.f_funcobj = (PyObject *)function,
                       .f_globals = function->func_globals,
                       .f_builtins = function->func_builtins,
                       .f_executable = (PyObject *)code,
                       .instr_ptr = _PyCode_CODE(code),
                       .stacktop = code->co_nlocalsplus};
}

/* ---- where it is ---- */
/* Of a frame that is entered: the instruction that it stood at, and the next one, which CPython points at. */
static inline void wk__real_position(real_frame *real, bool throwing, int *out_offset, int *out_next) {
  int next = _PyInterpreterFrame_LASTI(real);
  *out_offset = throwing && next > 0 ? next - 1 : next;
  *out_next = next;
}
/* The opcode at this offset is being run. */
static inline void wk__real_stand_at(wk__frame *f, int offset) { f->real->instr_ptr = _PyCode_CODE(f->code) + offset; }
/* CPython's loop is to begin with this instruction. */
static inline void wk__real_go_on_at(wk__frame *f, int offset) { wk__real_stand_at(f, offset); }

/* ---- a loop that CPython runs for a while (lend.c) ---- */
enum {
  WK__LEAVING_OPCODE = INTERPRETER_EXIT
}; /* takes what lies on the stack out of CPython's loop, and nothing else */
/* An exception that leaves a frame does not clear it. */
enum { WK__RAISING_KEEPS_FRAME = 0 };
/* Steals the code, and gives the frame's own reference away. */
static inline void wk__real_set_code(real_frame *real, PyCodeObject *code) { real->f_executable = (PyObject *)code; }
static inline real_frame *wk__thread_current(PyThreadState *thread) { return thread->current_frame; }
/* CPython's loop has been left by that opcode: what it does not put back itself. `current`: wk__thread_current before.
 */
static inline void wk__thread_take_back(wk__frame *frame, real_frame *current) {
  frame->thread->py_recursion_remaining++;
  frame->thread->current_frame = current;
}

/* ---- its thread ---- */
static inline void wk__thread_link(wk__frame *frame) {
  wk__linkage_of(frame)->previous = frame->real->previous = frame->thread->current_frame;
  frame->thread->current_frame = frame->real;
}
static inline void wk__thread_unlink(wk__frame *frame) {
  frame->thread->current_frame = wk__linkage_of(frame)->previous;
}
/* One of the limit that programs set, one of that of C. False: RecursionError is set. */
static inline bool wk__thread_count(PyThreadState *thread) {
  if (thread->py_recursion_remaining <= 0 && !thread->recursion_headroom) {
    thread->recursion_headroom++;
    PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded");
    thread->recursion_headroom--;
    return false;
  }
  if (_Py_EnterRecursiveCallTstate(thread, "") < 0) return false;
  thread->py_recursion_remaining--;
  return true;
}
static inline void wk__thread_uncount(PyThreadState *thread) {
  thread->py_recursion_remaining++;
  _Py_LeaveRecursiveCallTstate(thread);
}
static inline void wk__thread_uncount_hook(PyThreadState *thread, int units) { (void)thread, (void)units; }

static inline bool wk__thread_has_requests(PyThreadState *thread) {
  return _Py_atomic_load_uintptr_relaxed(&thread->eval_breaker) & _PY_EVAL_EVENTS_MASK;
}
/* By any thread, with or without the lock. */
static inline bool wk__signals_wait(void) {
  return wk__gil_is_held() && _Py_eval_breaker_bit_is_set(PyThreadState_GetUnchecked(), _PY_SIGNALS_PENDING_BIT);
}
/* A tracer, a profiler or a tool of sys.monitoring is on in this interpreter, and this thread is in none of their
 * calls. */
static inline bool wk__thread_traced(PyThreadState *thread) {
  const uint8_t *tools = thread->interp->monitors.tools;
  uint64_t some, others;
  _Static_assert(sizeof thread->interp->monitors.tools >= 8 && sizeof thread->interp->monitors.tools <= 16,
                 "two words");
  memcpy(&some, tools, 8);
  memcpy(&others, tools + sizeof thread->interp->monitors.tools - 8, 8);
  return (some | others) && !thread->tracing;
}
/* For its code alone. */
static inline bool wk__code_watched(PyCodeObject *code) {
  const _PyCoMonitoringData *data = code->_co_monitoring;
  bool any = false;
  for (size_t i = 0; data && i < sizeof data->local_monitors.tools; i++) any |= data->local_monitors.tools[i] != 0;
  return any;
}
static inline int *wk__thread_event(PyThreadState *thread) { return &thread->what_event; }
/* A generator's frame gives a value. CPython points at the instruction behind the YIELD_VALUE. */
static inline void wk__real_suspend(wk__frame *f, int argument) {
  _PyFrame_GetGenerator(f->real)->gi_frame_state = (int8_t)(FRAME_SUSPENDED + argument);
  wk__real_go_on_at(f, f->next);
}
/* It has left its thread: what CPython's YIELD_VALUE does itself. */
static inline void wk__real_suspended(wk__frame *f) {
  PyGenObject *generator = _PyFrame_GetGenerator(f->real);
  f->thread->exc_info = generator->gi_exc_state.previous_item;
  generator->gi_exc_state.previous_item = NULL;
  f->real->previous = NULL;
}

#endif
