/* A Python frame as the rest of dynamo sees it, and one instruction of it at a time.
 *
 * All that knows CPython's layout, opcodes or calling details stands behind this header: what differs between minor
 * versions in opcodes_3XX.def and version_3XX.h (docs/add-a-cpython.md). It reads bytecode, moves values between the
 * frame's slots and its stack, follows jumps, unwinds exceptions; what an instruction *means* for objects is done by
 * the functions of operations.h, so that recording, guards and breaks know nothing of bytecode.
 *
 * The frame is CPython's own: its slots and stack are the real ones, so that at any instruction CPython can go on from
 * here (wk__frame_continue), and a saved state can be put into a fresh frame (wk__frame_fill). */
#ifndef WICK_DYNAMO_CPYTHON_FRAMES_H
#define WICK_DYNAMO_CPYTHON_FRAMES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "base/base.h"

struct _PyInterpreterFrame;
typedef struct wk__frame wk__frame;
typedef struct wk__session wk__session; /* what this thread is doing: capturing or replaying (session.h) */

/* What is kept of a code object, made at its first evaluation, freed with it. */
typedef struct wk__code {
  const struct wk__instruction *code; /* (unit_count) in the normal form (normal.h) */
  int unit_count;
  int exit; /* an instruction that returns, maybe another constant than the program's; -1: there is none */
  const char *unsupported;     /* a reason why no frame of it is evaluated (async, ...); NULL */
  struct wk__watched *watched; /* owned, PyMem_Free's: program.h; NULL */
} wk__code;

/* One frame being evaluated; lives on the C stack of the hook that got it. */
struct wk__frame {
  wk__session *session;
  struct _PyInterpreterFrame *real; /* borrowed */
  PyThreadState *thread;
  PyCodeObject *code;      /* borrowed */
  wk__code *info;          /* borrowed */
  int offset;              /* the instruction being run, in code units, at its first EXTENDED_ARG */
  int next;                /* the one after it; jumps have been followed once a step gave WK__STEP_NEXT */
  PyObject *keyword_names; /* borrowed; set between KW_NAMES and CALL, where no segment ends */
  PyObject *result;        /* owned; after WK__STEP_RETURN and WK__STEP_YIELD */
  bool throwing;           /* entered with an exception to be raised at its resumption */
  int dropping;            /* not 0: what Python runs now is run by the death of objects */
  bool returned_into;      /* so it is: the frame that the instruction has entered is over */
  bool within;             /* what it calls is a part of its instruction, which is not to be done again */
  bool resumable; /* the instruction of the frame below does nothing but enter this one: replay may do it again */
  void *links[4]; /* version_3XX.h's: how the frame hangs in the thread */
};

/* A call of a Python function in progress reaches the hook, which makes a wk__frame. `real` is not linked yet. */
void wk__frame_enter(wk__frame *frame, wk__session *session, PyThreadState *thread, struct _PyInterpreterFrame *real,
                     wk__code *info, bool throwing);
/* Unlinks it, and clears it where the caller of the hook does not. Gives the result back. */
PyObject *wk__frame_exit(wk__frame *frame, PyObject *steal_result);  // -> new, NULL with the exception that is set

/* Room for a frame that a call would have when it begins: to look at, not to run. */
typedef struct wk__frame_image {
  void *words[48];
} wk__frame_image;
/* Fills `frame` with what looks like the frame of this call before its first instruction, borrowing the arguments.
 * False: the call binds its arguments in a less simple way, or has too many variables. */
bool wk__frame_imagine(wk__frame *frame, wk__frame_image *space, wk__session *session, PyObject *function,
                       PyObject *const *args, Py_ssize_t count);

/* The record of a code object; NULL with a Python exception. -> borrowed */
wk__code *wk__code_get(PyCodeObject *code);
wk__code *wk__code_peek(PyCodeObject *code); /* NULL when there is none yet; no exception */

/* It catches exceptions, or has something to do on their way; not what CPython puts around every generator. */
bool wk__code_has_handlers(PyCodeObject *code);

typedef enum wk__step {
  WK__STEP_NEXT,    /* done; frame->next says where to go on */
  WK__STEP_RETURN,  /* frame->result is what the function returns */
  WK__STEP_YIELD,   /* a generator gives frame->result; the frame is ready to be resumed */
  WK__STEP_RAISE,   /* a Python exception is set; see wk__frame_unwind */
  WK__STEP_REFUSED, /* an operation refused (operations.h); nothing has happened, frame->offset is to be run again */
  WK__STEP_UNKNOWN, /* an instruction that only CPython can do (RETURN_GENERATOR, async, ...): nothing has happened */
} wk__step;
/* Runs the instruction at frame->next. */
wk__step wk__frame_step(wk__frame *frame);
/* The signal check, GIL request and pending calls that CPython's loop does at backward jumps and calls are done inside
 * step: by this, which suspends a session that captures (between.c). 0, or -1 with an exception. */
int wk__serve_requests(wk__session *session, PyThreadState *thread);

/* After WK__STEP_RAISE: adds the traceback entry, finds the handler of this frame, pops and pushes as CPython does.
 * True: go on at frame->next. False: the exception leaves the frame. */
bool wk__frame_unwind(wk__frame *frame);
/* An exception is about to be raised that no instruction has raised: in front of the next one. */
void wk__frame_stand_before_next(wk__frame *frame);
/* CPython goes on at frame->next until the frame returns, yields or raises: at most once a frame, after which the
 * wk__frame is only to be exited. -> new */
PyObject *wk__frame_continue(wk__frame *frame);
/* Like it, with the exception that is set raised at frame->offset (after WK__STEP_RAISE). -> new */
PyObject *wk__frame_continue_raising(wk__frame *frame);

/* ---- a loop that is left to CPython for a while (lend.c) ---- */

/* The instructions [begin, end) of one frame as CPython's loop is to run them: it leaves that loop in front of any
 * other instruction of the frame, and in front of one of its own once that has been asked for. */
typedef struct wk__lent wk__lent;
/* NULL, without an exception: that cannot be done with this code. */
wk__lent *wk__lent_create(PyCodeObject *code, int begin, int end);
void wk__lent_release(wk__lent *lent);
void wk__lent_ask_back(wk__lent *lent, int offset); /* in front of that one; also while it runs */
/* CPython runs the frame from frame->next, which is inside, until it leaves the instructions: true. False: an exception
 * has left the frame, which is only to be exited. */
bool wk__frame_lend(wk__frame *frame, wk__lent *lent);

/* Where a jump back leads to. The loop that begins there has its last instruction before this one. */
int wk__code_loop_end(PyCodeObject *code, const wk__code *info, int head);
int wk__code_width(const wk__code *info, int offset);     /* units up to the next instruction */
bool wk__code_collects(const wk__code *info, int offset); /* into what a comprehension makes */
bool wk__code_jumps_back(const wk__code *info, int offset, int *out_target);

/* The call at frame->offset has entered the frame of `function`, which has its arguments: in CPython a call moves them
 * there, so that one ends where its variable is replaced. What is left on the stack, None, is as good for a call that
 * is done again, whose frame is then filled. */
void wk__frame_give_arguments(wk__frame *frame, PyObject *function);
bool wk__frame_next_gives(const wk__frame *frame); /* the next call has an argument that ends with its variable there */

/* What the next instruction calls, where it lies on the stack; NULL: it is no call. */
PyObject **wk__frame_next_callee(const wk__frame *frame);

/* ---- looking. Slots: parameters, other locals, cells, free variables, in CPython's order; cells as cell objects. ----
 */
int wk__frame_slot_count(const wk__frame *frame);
PyObject *wk__frame_slot(const wk__frame *frame, int slot);          // -> borrowed, NULL when unbound
bool wk__frame_shows_slot(const wk__frame *frame, int slot);         /* to locals() */
int wk__frame_depth(const wk__frame *frame);                         /* values on the stack */
PyObject *wk__frame_stack(const wk__frame *frame, int from_bottom);  // -> borrowed, may be NULL
PyObject *wk__frame_globals(const wk__frame *frame);                 // -> borrowed
PyObject *wk__frame_builtins(const wk__frame *frame);                // -> borrowed
PyObject *wk__frame_locals(const wk__frame *frame);    // -> borrowed, the mapping of a class body or module; NULL
PyObject *wk__frame_function(const wk__frame *frame);  // -> borrowed
int wk__line_in_code(PyCodeObject *code, int offset);  /* of an instruction; the first line where it has none */
int wk__frame_line(const wk__frame *frame);            /* of frame->offset */
bool wk__frame_is_generator(const wk__frame *frame);
bool wk__frame_is_shown(const wk__frame *frame); /* to sys._getframe: it is linked, and has begun */
const char *wk__frame_opcode_name(const wk__frame *frame, int offset); /* for reasons and logs */
bool wk__frame_may_stop_at(const wk__frame *frame, int offset);        /* false between KW_NAMES and CALL */

/* The next instruction takes a variable to the stack, and does nothing else. */
bool wk__frame_next_only_moves(const wk__frame *frame);

/* The instruction at frame->offset branches on a truth, and one of its ways does nothing but raise. */
typedef struct wk__raising_branch {
  bool goes_on_if;   /* the truth that does not lead there */
  PyObject *message; /* borrowed: the text of an assert statement; NULL: it has none, or it is no such statement */
} wk__raising_branch;
bool wk__frame_branch_raises(const wk__frame *frame, wk__raising_branch *out);

/* No instruction that may still come looks at what the slot has now. */
bool wk__frame_slot_is_done(const wk__frame *frame, int slot);

/* How many slots the next instruction empties or fills again, written to out_slots; -1: it returns, all of them. */
int wk__frame_next_lets_go(const wk__frame *frame, int out_slots[2]);

/* Its variables outlive it: something has its object, such as the traceback of an exception that it has handled. */
bool wk__frame_is_kept(const wk__frame *frame);

bool wk__frame_next_ends_handler(const wk__frame *frame); /* the thread lets go of the exception that was handled */

/* Puts an equal value in place of slot `index`, or of the stack's, which are counted behind the slots. */
void wk__frame_put(wk__frame *frame, int index, PyObject *value);

/* ---- writing: a saved state into a frame that has just been entered, or into one that stood elsewhere. Steals the
 * references (slots: slot_count, stack: depth; entries may be NULL). Cells are given as cell objects; free variables
 * that are already there may be given again. ---- */
void wk__frame_fill(wk__frame *frame, int offset, PyObject **steal_slots, PyObject **steal_stack, int depth);
/* A replay leaves it where its segment began. Who keeps its object, as the traceback of an exception does that it has
 * handled, finds nothing of what the program has dropped: the stack, and those of the first `count` slots. */
void wk__frame_let_go(wk__frame *frame, const bool *slots, int count);

/* ---- the hook of PEP 523, per interpreter: installed while a compiled region runs somewhere. ---- */
typedef PyObject *wk__frame_hook_fn(PyThreadState *thread, struct _PyInterpreterFrame *real, int throwing);  // -> new
void wk__hook_install(PyInterpreterState *interpreter, wk__frame_hook_fn *hook); /* counted: install, remove pair up */
void wk__hook_remove(PyInterpreterState *interpreter);
/* What CPython would have done without the hook. -> new */
PyObject *wk__hook_default(PyThreadState *thread, struct _PyInterpreterFrame *real, int throwing);
PyCodeObject *wk__hook_code(struct _PyInterpreterFrame *real);   // -> borrowed
PyObject *wk__hook_function(struct _PyInterpreterFrame *real);   // -> borrowed
bool wk__hook_makes_generator(struct _PyInterpreterFrame *real); /* a call that will only give a generator */
bool wk__hook_is_generator(struct _PyInterpreterFrame *real);
bool wk__hook_collecting(PyThreadState *thread); /* the collector is at work */
bool wk__hook_interrupted(void);                 /* Ctrl-C waits to be served by this thread */
bool wk__hook_has_requests(PyThreadState *thread);
int wk__hook_serve_requests(PyThreadState *thread); /* signals and all else that threads are asked for: 0 or -1 */
bool wk__hook_tracing(PyThreadState *thread);       /* a profiler or debugger is on: nothing is evaluated */
bool wk__hook_watched(PyCodeObject *code);          /* a tool of sys.monitoring is on for this code alone */

#endif
