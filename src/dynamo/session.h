/* One call of a compiled function in one thread: capturing, replaying, or between the two.
 *
 * The frames that our evaluator runs form a chain: the compiled function's own (the root), the one that it entered, and
 * so on. A *position* is where all of them stand. At a position a segment is looked up; when its guards hold it is
 * replayed, else one is captured. A segment ends where the root returns or where something has to be done that can not
 * be recorded: that one instruction is then run plainly, and the next position reached.
 *
 * Replaying may lead from any position to any other: frames that are no longer there return to the one that is, frames
 * that are not there yet are entered by doing the call of the frame below again (wk__frame.resumable says that it does
 * nothing else). So whatever captured once can go on in the middle of things: CPython's own frames are always right. */
#ifndef WICK_DYNAMO_SESSION_H
#define WICK_DYNAMO_SESSION_H

#include "compile/compile.h"
#include "dynamo/capture/record.h"

typedef struct wk__segment wk__segment;
typedef struct wk__compiled wk__compiled;
typedef struct wk__lookup wk__lookup;
typedef struct wk__loop wk__loop;       /* program.h */
typedef struct wk__watched wk__watched; /* the same */
typedef struct wk__program wk__program;

typedef enum wk__mode_kind {
  WK__MODE_START,   /* the compiled function has been called, its frame is not there yet */
  WK__MODE_SEEK,    /* at a position: replay or capture */
  WK__MODE_CAPTURE, /* every instruction is recorded */
  WK__MODE_PLAIN,   /* one instruction that cannot be recorded; what it calls is not evaluated */
  WK__MODE_UNWIND,  /* frames return until the one at `target` is reached */
  WK__MODE_ENTER,   /* the innermost frame does its call again to enter the next frame of the state to be reached */
  WK__MODE_OFF,     /* the rest of this call is left to CPython */
  WK__MODE_AWAY,    /* (visits) instructions are run as in PLAIN, until a statement or a round begins */
} wk__mode_kind;

/* A frame with what a session knows of it. */
typedef struct wk__activation {
  wk__frame frame; /* first, so that a wk__frame is one of these */
  struct wk__activation *outer;
  int depth;           /* 0: the root */
  PyObject **at_start; /* owned references: slots, then stack, when the present segment began; NULL: entered since */
  int slots_at_start, stack_at_start;
  bool *stored; /* (slots_at_start) it has been assigned to in this segment, be it the object that was there */
  bool *seen;   /* (slots_at_start) the slot's value has been read from outside in this segment */
  const wk__source_line *source; /* where it stood last, in the graph of this segment; NULL */
} wk__activation;

/* What a suspended session goes back to; on the stack of who has suspended it. */
typedef struct wk__suspension {
  struct wk__suspension *outer;
  wk__mode_kind mode;             /* CAPTURE, or PLAIN when the recording has been given up meanwhile */
  bool entering, may_end, traced; /* traced: calls were recorded */
  wk__grad_watcher *watcher;
} wk__suspension;

/* Why an operation refused. */
typedef enum wk__refusal {
  WK__REFUSED_BREAK, /* an error of fullgraph=True */
  /* Because of an object that was made before the recorded region began: an iterator, say. In front of the whole
   * function that is its caller's; behind an end that fullgraph=True allows it may be the function's own, and is no
   * error then. */
  WK__REFUSED_LEFT_OVER,
  WK__REFUSED_VALUE, /* because a tensor's value becomes a number: no error, the function goes on behind it */
} wk__refusal;

struct wk__session {
  wk__session *outer; /* the thread's session before this one */
  wk__compiled *compiled;
  const wk__binding *binding;
  PyThreadState *thread;
  PyCodeObject *root_code;
  wk__mode_kind mode;
  wk__activation *innermost;
  bool steps_plainly;       /* an instruction is being run plainly, and has called nothing yet */
  bool entering;            /* the next frame is entered by an instruction that does nothing else */
  const wk__frame *handing; /* borrowed: its instruction hands on what the frames give that it runs; NULL */
  /* capturing */
  wk__recording *recording;
  /* Those that were given up, emptied: an operation may be in the middle of one, since a key's __eq__, say, has ended
   * it. Freed when the root's instruction is done. */
  wk__recording *retired;
  wk__recording *ending; /* borrowed: of the segment that is just being ended; its tape may still ask for inputs */
  wk__tracer *tracer;
  int low; /* frames of the segment's start that are still there */
  bool grad_at_start;
  int overrides_at_start, autocast_at_start;
  int backward_depth_at_start;            /* backward passes that have called this */
  const struct wk__saver *saver_at_start; /* saved_tensors_hooks that are active */
  const struct wk__level *level_at_start; /* of function transforms, the innermost */
  PyObject *handled_at_start;             /* owned: the exception in whose `except` block it began; NULL */
  wk__grad_watcher watcher;
  PyCodeObject **start_codes; /* (start_count) borrowed: the position that the segment began at */
  int *start_offsets;
  int start_count;
  char reason[160];   /* why the last operation refused */
  uint8_t refused;    /* wk__refusal: of what kind that was */
  PyObject *refusal;  /* owned: the error that fullgraph=True has made of that; NULL */
  bool giving_up;     /* everything becomes real whatever comes: signals wait */
  bool capture_ended; /* recording was given up in the middle of an instruction: see wk__session_give_up */
  int captures;       /* segments captured in this call: a bound against loops that never settle */
  int64_t began;      /* when the recording did, by wk__nanoseconds() */
  PyObject **buried;  /* (buried_count) owned: what the recorder has let go of, see wk__bury */
  int64_t buried_count, buried_capacity;
  wk__suspension *suspended;    /* innermost; NULL */
  wk__segment *failed_segment;  /* owned reference: the newest of the position whose guards did not hold; NULL */
  const wk__read *failed_guard; /* and the first one that did not hold */
  /* visiting: the root is a frame that is there already, in a loop of it (program.h) */
  wk__loop *loop;  /* NULL: a function was called */
  int loop_depth;  /* values on the root's stack when a round begins */
  bool left;       /* the root's frame goes on without this session */
  int away_rounds; /* of other loops of the root, run in AWAY since the round began */
  /* replaying towards a state */
  wk__segment *target;                /* owned reference; NULL: none */
  int target_depth;                   /* UNWIND: the frame that goes on */
  PyObject **values;                  /* owned references, by register, of the target */
  PyObject *returned;                 /* owned: what the root is to return; NULL */
  struct wk__asked *asked;            /* (asked_count) owned: what guards have called here that counts its calls; */
  int asked_count, asked_next;        /* the next one is that of whoever calls now */
  bool asks_ahead;                    /* it is what the guards of a call without a frame have called */
  PyObject *drawn_from, *drawn_state; /* owned: whose random numbers guards have drawn, as it was before; NULL */
};

static inline wk__activation *wk__activation_of(wk__frame *f) { return (wk__activation *)f; }
static inline wk__recording *wk__recording_of(const wk__frame *f) {
  return f->session && f->session->mode == WK__MODE_CAPTURE ? f->session->recording : NULL;
}

/* Calls `function` under a new session: the whole of a compiled call. -> new */
PyObject *wk__session_call(wk__compiled *compiled, PyObject *function, PyObject *const *args, size_t nargsf,
                           PyObject *keyword_names);
/* A frame that is evaluated with nothing recorded stands at the head of a loop: a session goes on with it until it
 * leaves the loop, or the loop is not to be visited any more (false: it stands at frame.next), or until it is over
 * (true: *out_result is what it returns, NULL with an exception). */
bool wk__session_visit(wk__compiled *compiled, wk__activation *root, wk__loop *loop, PyObject **out_result);
PyObject *wk__session_hook(PyThreadState *thread, struct _PyInterpreterFrame *real, int throwing);  // -> new
static inline wk__session *wk__session_current(void) { return wk__thread.session; }

/* For operations that refuse: says why, gives NULL. */
PyObject *wk__refuse_as(wk__frame *f, wk__refusal kind, const char *format, ...) WK_PRINTF(3, 4);
#define wk__refuse(f, ...) wk__refuse_as(f, WK__REFUSED_BREAK, __VA_ARGS__)
/* Recording cannot go on, in the middle of an instruction that has begun: everything becomes real, the instruction is
 * remembered as one before which segments end, and a new segment begins behind it. */
void wk__session_give_up(wk__session *session, const char *reason);

void wk__activation_forget_start(wk__activation *activation);

/* ---- Python that runs in between (between.c) ---- */
/* What has been buried goes, in that order: where nothing is being recorded, and every tensor is real. */
void wk__session_drop_buried(wk__session *session);
/* A variable dies, or what was on the stack has died, and its end runs Python code, which the program's next
 * instructions may see the effect of: while the region holds it that would come later. By the next instruction; when an
 * exception leaves the frame. */
bool wk__variable_dies_aloud(const wk__session *session, const wk__activation *activation);
bool wk__frame_dies_aloud(const wk__session *session, const wk__activation *activation);
/* A generator or coroutine stands where its end may run code: a `finally`, a `with`. */
bool wk__generator_ends_aloud(PyObject *object);
/* A session that captures does not look at what runs until wk__session_resume, which does nothing for another one.
 * may_end: that code may use values that are not computed yet, which gives the recording up. */
void wk__session_suspend(wk__session *session, bool may_end, wk__suspension *out);
void wk__session_resume(wk__session *session, const wk__suspension *suspension);
/* Signals are served while a long graph is run at a segment's end, unless the function itself might catch what a
 * handler raises; WK_INTERRUPTED: one has raised. */
wk_status wk__session_between_steps(void *session);
/* A compiled function is called: whether by code that runs in between and that may not have a session of its own. */
bool wk__session_refuses_calls(wk__session *session);
/* A frame that is entered while something is captured and is no part of it: of a destructor, a callback of a weak
 * reference, the collector. */
bool wk__is_in_between(const wk__session *session, PyThreadState *thread, struct _PyInterpreterFrame *real);
PyObject *wk__run_in_between(wk__session *session, PyThreadState *thread, struct _PyInterpreterFrame *real,
                             int throwing);  // -> new
#ifdef WICK_TESTS /* tests/ext/probe.c: something to be called in front of the next instruction */
bool wk__probe_is_due(void);
int wk__probe_call(wk__session *session); /* 0, or -1 with an exception */
#endif

/* ---- warnings (warn.c) ---- */
bool wk__warning_may_raise(PyObject *category); /* some filter turns it into an exception, or may; nothing is raised */
int wk__warn_again(const wk__session *session, PyObject *step); /* 0, or -1 with an exception of what shows it */

/* ---- segments (segment.c, segment_end.c) ---- */
typedef enum wk__end_kind {
  WK__END_RETURN, /* the root returns register `value` */
  WK__END_BREAK,  /* the innermost frame's instruction is run plainly */
  WK__END_LEAVE,  /* CPython goes on with the innermost frame */
} wk__end_kind;

enum { WK__KEEP = -2 }; /* in place of a register: as it is in the frame */
typedef struct wk__end_frame {
  PyCodeObject *code; /* borrowed */
  int offset, slot_count, depth;
  wk__reg *values; /* slots, then stack: a register, -1 (empty) or WK__KEEP */
} wk__end_frame;

/* A tensor that looks at an input: made of it when the graph has written what it writes. */
typedef struct wk__input_view {
  wk__reg reg;
  int input;
  bool has_base; /* made while recording: the input is its base */
  bool is_data;  /* by way of x.data: it counts its writes itself */
  wk__spec spec; /* in the graph's symbols; the offset from the input's own */
} wk__input_view;

/* What an output without a history is a view of: writes through either are followed by way of it. */
typedef struct wk__output_base {
  const wk_tensor *tensor; /* NULL: it is no view; not to be looked at after capture */
  int64_t output; /* the output that it is, or the first one with the same base; itself: made by the geometry */
  bool is_output; /* it is that output */
  wk__spec spec;  /* in the graph's symbols */
} wk__output_base;

/* An output whose tape has been run, in part at least, or kept what was written since: it cannot be followed, and
 * whoever tries is told so. */
typedef struct wk__spent {
  const char *name;    /* of its grad_fn; NULL: the tape can still be run */
  const char *message; /* of the error, with the versions of the capture; NULL: the tape has been run */
  int *inputs;         /* (count) of the graph, that the tape leads to */
  int count;
} wk__spent;

/* A gradient that the segment replaces unread: it goes before the graph is run, whose memory it would stand beside. */
typedef struct wk__stale_grad {
  wk__reg tensor, grad; /* grad: the register that it was read to, -1 */
} wk__stale_grad;

/* A model, or the dictionary of one, that steps or frames of a segment use: it is not owned, and what a replay does may
 * take it from whoever owns it. */
typedef struct wk__held {
  wk__reg reg, owner; /* owner: the model that has this dictionary; -1 */
} wk__held;

/* Which checks the program does not want: 0, or -1 with an exception. (guard_filter.c) */
int wk__filter_guards(wk__session *session, wk__segment *segment);

struct wk__segment {
  _Atomic int references;
  int64_t number;      /* no other one of the process has it */
  wk__segment *next;   /* older one of the same compiled function */
  wk__compiled *owner; /* borrowed; NULL: it is forgotten, only a run still holds it */
  PyObject *life;      /* owned: a capsule whose context is this segment, until it dies */
  PyObject *watchers;  /* owned: weak references to the modules and optimizers that it knows; when one dies so does
                        * the segment */
  PyObject *notes;     /* owned: the list that it was noted in, and that its end is; NULL */
  wk__recording *recording;
  PyCodeObject **codes; /* (frame_count) owned: where it begins */
  int *offsets;
  int frame_count;
  /* guards */
  wk__read *reads; /* (read_count) those that are not fixed, in the recording's order */
  int64_t read_count;
  wk__read *fixed; /* (fixed_count) */
  int64_t fixed_count;
  struct wk__version {  /* (recording->versioned_count) */
    const uint64_t *at; /* a dictionary's own count of its changes; NULL: see wk__version_of */
    uint64_t seen;
    PyObject *const *place; /* where a watched model has its dictionary, which is not owned; NULL: it is owned */
  } * versions;
  wk__held *held; /* (held_count) in the recording's arena: what a replay keeps alive */
  int64_t held_count;
  wk__reg *loose; /* (loose_count) registers whose objects differ from call to call */
  int64_t loose_count;
  PyObject **idle_values; /* registers of a call that is over, for the next one; NULL while one runs */
  int64_t *symbol_values; /* (recording->symbol_count) of the call at hand */
  bool symbols_hold;      /* and they satisfy the guards of the graph's environment */
  wk__reg *integers;      /* (integer_count) registers that are computed of symbols */
  int64_t integer_count;
  uint64_t tensor_epoch;
  bool grad_enabled, inference;
  int overrides; /* as the binding says; never by a mode: under one nothing is captured */
  uint8_t default_dtype;
  int autocast; /* wk__autocast_mode() */
  wk_device default_device;
  /* work */
  wk__graph *graph;            /* NULL: nothing to compute */
  bool *requires_grad;         /* (graph inputs) in the recording's arena */
  wk__output_base *bases;      /* (outputs) the same */
  bool has_bases;              /* some of them are views */
  wk__stale_grad *stale_grads; /* in the recording's arena */
  int64_t stale_grad_count;
  wk__compiled_graph *executor; /* owned; NULL with a backend */
  wk_device *drawn_on;          /* where its random operators may draw: in the recording's arena */
  int drawn_count;
  bool lets_others_run;   /* long enough, and nothing in it touches Python: the GIL is released around it */
  PyObject *backend_call; /* owned: what the backend made of it; NULL */
  wk__reg *outputs;       /* (graph->output_count) */
  bool *output_taped;     /* (as outputs) it had a grad_fn */
  bool *output_is_data;   /* (as outputs) by way of x.data: it counts its writes itself */
  wk__spent *spent;       /* (graph->output_count) */
  bool *sliced;           /* (graph->output_count) its grad_fn is a CopySlices, whatever replaying makes of it */
  wk__input_view *views;  /* (view_count) */
  int64_t view_count;
  bool *input_written;    /* (input_count) */
  uint32_t *input_writes; /* (input_count) how many the program did, of which the graph does the last; NULL: one each */
  bool inputs_fixed;      /* all of them: their memory is as it was */
  wk__do *steps;
  int64_t step_count;
  /* end */
  wk__end_kind end;
  wk__reg value;
  wk__end_frame *end_frames;
  int end_count, common; /* the first `common` end frames are activations that the segment began with */
  int grad_after;        /* -1: unchanged */
  int autocast_after;    /* wk__autocast_mode(); -1: unchanged */
  char reason[160];
  const char *file; /* of the break; borrowed from the code */
  int line;
  int64_t hits, misses; /* misses: the graph has failed, and the call was run plainly */
};
/* Sizes that values decide are symbols of the graph (numbers.h): wanted, and of use so far. */
bool wk__takes_counted(const wk__session *session, bool items); /* items: those of item() and the like */
/* Ends the recording at the present state and keeps the segment. `value`: what the root returns (RETURN). The graph has
 * been run and every tensor is real when it is back; 0, or -1 with an exception (of the graph). The frames are as they
 * were. */
int wk__segment_end(wk__session *session, wk__end_kind kind, PyObject *value);
int wk__segment_begin(wk__session *session); /* 0, or -1 with an exception */
/* Ends the recording and keeps nothing. Every tensor is real when it is back, or poisoned: 0, or -1 with an exception
 * (of the graph). */
void wk__session_drop_retired(wk__session *s);
int wk__segment_discard(wk__session *session);
/* The program leaves a frame, which a replay of what is recorded leaves as well. */
void wk__segment_note_left(wk__session *session, const wk__activation *activation);
void wk__segment_stop_recording(wk__session *session); /* the tracer pauses, the tape is not watched any more */
void wk__segment_release(wk__segment *segment);
/* For loops that may run Python code, which may forget segments: the one behind `steal_segment`, or the first (NULL),
 * retained; NULL: it was the last, or has been forgotten meanwhile. */
wk__segment *wk__segment_next(wk__compiled *compiled, wk__segment *steal_segment);
/* Models and their dictionaries are watched, not owned; what hangs in those is owned. When a model dies the segment
 * goes. 0, or -1 with an exception. (models.c) */
int wk__segment_watch_models(wk__session *session, wk__segment *segment);
bool wk__is_watcher(PyObject *callback); /* of a weak reference, by which a segment is told: no code of the program */
/* Its guards hold with these registers, so models are alive: those that it uses stay so until the registers are put
 * back. False: something that the guards have run has ended one, or the segment. (models.c) */
bool wk__segment_hold_models(const wk__segment *segment, PyObject *const *values);
void wk__segment_forget(wk__segment *segment); /* later calls do not find it */
void wk__segment_let_models_go(const wk__segment *segment, PyObject *const *values);
/* 0, or -1 with an exception: the program fixes a size that mark_dynamic() was called for, or allows less of it than
 * was said. (marks.c) */
int wk__check_marks(const wk__session *session, const wk__segment *segment, const wk__graph *graph);
/* explain.c: what WICK_LOGS asked to see */
void wk__segment_log(const wk__segment *segment);
void wk__guard_log(wk__session *session, const wk__segment *segment, const wk__read *failing);
/* Why the newest segment of this position does not hold, "" where there is none. -> new, NULL with an exception */
PyObject *wk__session_why(const wk__session *session);
/* It is captured again: noted for Compiled.recompiles(). Failing to is no error. */
void wk__note_recompile(wk__session *session);

/* ---- guards (guards.c) ---- */
/* The segment whose guards hold here, with its registers filled; NULL: none (no exception). */
wk__segment *wk__segment_find(wk__session *session, PyObject ***out_values, bool *out_full);
/* ---- lookup.c ---- */
enum { WK__MOST_CANDIDATES = 32 };
typedef struct wk__candidates {
  wk__segment *segments[WK__MOST_CANDIDATES]; /* (count) retained; the others of this position do not hold */
  int count;
  int64_t here; /* segments of this position */
} wk__candidates;
/* frames: by depth. False: there are few segments, which are tried one by one, or too many may hold. */
bool wk__lookup_find(wk__compiled *compiled, const wk__session *session, wk__activation *const *frames,
                     wk__candidates *out);
void wk__lookup_drop(wk__compiled *compiled); /* a segment is forgotten */

/* It becomes a symbol or an input when it is captured again. dims: of a tensor, as wk__dim_bit says; 0: a number. */
void wk__mark_changing(wk__compiled *compiled, uint64_t path, uint64_t dims);

/* Where no single read or check is to blame. */
extern const wk__read wk__guard_of_modes, wk__guard_of_sizes, wk__guard_of_memory;
/* The symbols take their values from tensors and integers that have been read; whether all have those they had. Another
 * thread may have given them others whenever Python has run in between. */
bool wk__segment_bind(wk__segment *segment, const wk__binding *binding, PyObject *const *values);
/* An expression of the graph's environment for the sizes that are bound; INT64_MIN when it has no value. */
int64_t wk__segment_evaluate(const wk__segment *segment, wk_int x);
void wk__segment_put_values(wk__segment *segment, PyObject **steal_values); /* registers that are not needed any more */
/* As they are now, or, given, as they were when they were read. */
void wk__segment_note_versions(wk__segment *segment, const uint64_t *seen);
/* class_attributes.c: the type has another version, and is the same for all that the recording has looked at. What it
 * differs in will be known when it is captured again. */
bool wk__type_is_as_pictured(wk__compiled *compiled, const wk__recording *r, PyTypeObject *type);
/* One that has a picture; NULL: it is another dictionary. */
PyObject *wk__class_of_dictionary(const wk__recording *r, PyObject *dict);  // -> borrowed
/* Python's random numbers are drawn by guards (capture/draws.c): one of them, NULL without an exception; all are as if
 * they had not been drawn; or they have been. */
/* asked.c: as a call of `function`, which may have been made here already; a, b: NULL: there is no such argument. NULL
 * with an exception. */
PyObject *wk__ask(wk__session *session, PyObject *function, PyObject *a, PyObject *b);  // -> new
/* The next such call that guards have made is this one: *out_new, NULL with an exception, is what came of it. */
bool wk__was_asked(wk__session *session, PyObject *function, PyObject *a, PyObject *b, PyObject **out_new);
void wk__forget_asked(wk__session *session);
/* object_calls.c: the function has a cache, or calls one that has; both are such, with the same arguments. */
bool wk__counts_calls(PyObject *function);
bool wk__is_same_call(PyObject *function, PyObject *other);
PyObject *wk__draw_again(wk__session *session, PyObject *random, const wk__read *read);  // -> new
void wk__undo_draws(wk__session *session);
void wk__forget_draws(wk__session *session);
/* ---- replay (replay.c) ---- */
/* Graph and steps. 0, -1 with an exception, or 1: the graph failed, nothing has been done.
 * Afterwards session->target, values, returned and mode say where to go.
 */
int wk__segment_replay(wk__session *session, wk__segment *steal_segment, PyObject **steal_values);
/* What a backend's function is called with, in the order of its GraphModule's placeholders: the symbols of an input
 * before it, numbers behind all. The number of arguments (-1 with an exception), new references in *out_args, which is
 * PyMem_Free's. `values` by register; NULL: the objects of the capture, sizes as examples. */
Py_ssize_t wk__backend_arguments(const wk__segment *segment, const wk__binding *binding, PyObject *const *values,
                                 PyObject ***out_args);
/* Puts the target's state into the frame. 0, or -1 with an exception. */
int wk__segment_fill(wk__session *session, wk__activation *activation);
void wk__session_drop_target(wk__session *session);

/* ---- the compiled function (compiled.c) ---- */
enum { WK__FIRST_ARGUMENTS = 16 };
struct wk__compiled {
  PyObject ob_base;
  PyObject *function; /* owned: what was compiled */
  long long number;   /* no other one of the process has it */
  PyObject *dict, *weak_references;
  vectorcallfunc vectorcall;
  wk__compile_options options;
  wk__segment *segments; /* newest first */
  int64_t segment_count;
  wk__lookup *lookup; /* owned: finds those that may hold among many; NULL: it has not been needed, or was dropped */
  const wk__binding *binding;
  int64_t capture_count, break_count, unkept_count;
  uint64_t replay_count;
  int miscounts; /* segments forgotten because sizes that values decide were mostly others than they took for granted */
  struct wk__unkept {   /* positions whose segments could not be kept: after a few attempts they run plain */
    PyCodeObject *code; /* borrowed: only compared */
    int offset, count;
  } * unkept;
  int64_t unkept_size, unkept_capacity;
  wk__map learned_breaks; /* instructions before which its segments end in any case: key -> anything */
  bool follows_tape;      /* a history went on outside that its graph would not have made again: see wk__trace_owner */
  bool functions_break;   /* neither would it have made again those of an autograd.Function, */
  wk__map functions_in_vain; /* one of these classes (borrowed: only compared) */
  bool called;               /* since it was made */
  struct wk__first_call {
    int count, ndim[WK__FIRST_ARGUMENTS]; /* -1: no tensor */
    int64_t sizes[WK__FIRST_ARGUMENTS][WK_MAX_DIMS];
  } * first_call;       /* owned: sizes of a first call that was not captured; NULL */
  PyObject *recompiles; /* owned: a list of (file, line, reason), NULL: nothing was captured again */
  wk__map changing;     /* paths of numbers and tensors that guards have seen change: 1, or 1 and two to the dim + 1 */
};

wk__binding *wk__binding_of_module(PyObject *module); /* the extension module's; NULL with an exception */
/* The function behind a Compiled, which a region that calls it runs itself; NULL for other objects. */
PyObject *wk__compiled_function(const wk__binding *binding, PyObject *o);  // -> borrowed

#endif
