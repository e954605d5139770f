/* The run loop: from position to position until the root frame returns.
 * In: a call of a compiled function. Out: what the function returns or raises, exactly. Invariant: while no segment is
 * being recorded every tensor is real. Tests: tests/python/capture/. */
#include "dynamo/capture/classes.h"
#include "dynamo/explain.h"
#include "dynamo/program.h"

#include <stdarg.h>
#include <stdio.h>

#include "dynamo/capture/known.h"
#include "dynamo/capture/numbers.h"
#include "dynamo/capture/record_parts.h"
#include "dynamo/cpython/objects.h"
#include "dynamo/cpython/plain.h"

PyObject *wk__refuse_as(wk__frame *f, wk__refusal kind, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(f->session->reason, sizeof f->session->reason, format, args);
  va_end(args);
  f->session->refused = kind;
  PyErr_Clear();
  return NULL;
}

/* ==================================================== breaks ===================================================== */

/* Learned for one compiled function: another may well capture the same instruction of a library. Code that has died and
 * left its address to other code costs a break at worst. */
static uint64_t place_of_instruction(const wk__frame *f, int offset) {
  return wk__hash_mix((uintptr_t)f->code, (uint64_t)offset);
}
static void learn_break(wk__session *s, const wk__frame *f) {
  wk__compiled *c = s->compiled;
  if (wk__map_set(&c->learned_breaks, place_of_instruction(f, f->offset), c) != WK_OK) wk_error_clear();
}
static bool is_learned_break(const wk__session *s, const wk__frame *f) {
  const wk__map *learned = &s->compiled->learned_breaks;
  return learned->slots && wk__map_get(learned, place_of_instruction(f, f->next));
}

/* The instruction that has to be a break of its own: the innermost one that replay can reach. */
static wk__activation *culprit(wk__session *s) {
  wk__activation *found = s->innermost;
  for (wk__activation *a = s->innermost; a && a->outer; a = a->outer)
    if (!a->frame.resumable) found = a->outer;
  return found;
}

void wk__session_give_up(wk__session *s, const char *reason) {
  wk__suspension *suspended = s->mode == WK__MODE_OFF ? s->suspended : NULL;
  if (s->mode != WK__MODE_CAPTURE && !(suspended && suspended->mode == WK__MODE_CAPTURE)) return;
  wk__activation *a = culprit(s);
  if (a) learn_break(s, &a->frame);
  if (reason != s->reason) snprintf(s->reason, sizeof s->reason, "%s", reason);
  if (wk__log_on(WK__LOG_BREAKS))
    wk__log_print(WK__LOG_BREAKS, "%s:%d: recording given up: %s", PyUnicode_AsUTF8(a->frame.code->co_filename),
                  wk__frame_line(&a->frame), reason);
  if (WK_UNLIKELY(s->binding->notes != NULL))
    wk__note_unkept(s, PyUnicode_AsUTF8(a->frame.code->co_filename), wk__frame_line(&a->frame), reason);
  s->mode = WK__MODE_CAPTURE; /* what is let go of waits */
  s->giving_up = true;
  if (wk__segment_discard(s) < 0) PyErr_Clear(); /* who uses a poisoned tensor gets it */
  s->giving_up = false;
  s->capture_ended = true;
  s->mode = suspended ? WK__MODE_OFF : WK__MODE_PLAIN;
  if (suspended) suspended->mode = WK__MODE_PLAIN;
}

static bool all_resumable(const wk__session *s) {
  for (const wk__activation *a = s->innermost; a; a = a->outer)
    if (a->outer && !a->frame.resumable) return false;
  return true;
}

/* What error_on_graph_break() says at the moment. */
static bool breaks_raise(const wk__session *s) {
  PyObject *list = s->binding->break_errors;
  Py_ssize_t count = list ? PyList_GET_SIZE(list) : 0;
  return count && PyList_GET_ITEM(list, count - 1) == Py_True;
}

/* An error of fullgraph=True. The frames are unwound as for any exception, so that what was entered is left; but it is
 * the caller's error, whatever handlers on the way make of it. */
static int refuse_break(wk__session *s) {
  wk__frame *f = &s->innermost->frame;
  PyErr_Format(s->binding->unsupported, "%s, but the graph breaks here: %s\n  at %U, line %d, in %U",
               s->compiled->options.fullgraph ? "fullgraph=True" : "error_on_graph_break(True)", s->reason,
               f->code->co_filename, wk__frame_line(f), f->code->co_name);
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  s->refusal = Py_XNewRef(value);
  PyErr_Restore(type, value, traceback);
  return -1;
}

/* Ends the segment before the instruction that comes next. */
static int end_here(wk__session *s, wk__end_kind kind) {
  if (!all_resumable(s)) {
    wk__session_give_up(s, s->reason);
    return 0;
  }
  int status = wk__segment_end(s, kind, NULL);
  s->mode = WK__MODE_PLAIN;
  return status;
}

/* Python code was promised to get all of the function as one graph. */
static bool must_be_one_graph(const wk__session *s) {
  return s->compiled->options.fullgraph && s->compiled->options.backend;
}

bool wk__takes_counted(const wk__session *s, bool items) {
  enum { MOST_MISCOUNTS = 4 };
  const wk__compile_options *options = &s->compiled->options;
  bool wanted = options->fullgraph || options->counts & (items ? WK__COUNTS_ITEMS : WK__COUNTS_ROWS);
  return wanted && !options->backend && s->compiled->miscounts < MOST_MISCOUNTS;
}

/* Whether fullgraph=True allows an end before the instruction that refused. One that takes a number out of a tensor is
 * done plainly, and so is one that was found out in its middle (a result whose shape depends on values, C code that
 * looks at them). What lies behind such an end may meet what was made in front of it. */
static bool may_end_here(const wk__session *s) {
  bool goes_on = s->start_count > 1 || s->start_offsets[0] > 0;
  bool value = s->refused == WK__REFUSED_VALUE && !must_be_one_graph(s);
  return value || is_learned_break(s, &s->innermost->frame) || (goes_on && s->refused == WK__REFUSED_LEFT_OVER);
}

static int end_before_instruction(wk__session *s, wk__end_kind kind) {
  bool raises = s->compiled->options.fullgraph || breaks_raise(s);
  if (!raises || may_end_here(s)) return end_here(s, kind);
  int status = wk__segment_discard(s);
  s->mode = WK__MODE_OFF;
  return status < 0 ? status : refuse_break(s);
}

/* ================================================= one frame ===================================================== */

/* While the frames still have what the program has not let go of. */
static void drop_buried(wk__session *s) {
  if (WK_UNLIKELY(s->buried_count) && !s->recording && !s->capture_ended) wk__session_drop_buried(s);
}

static void say_raised(wk__session *s) {
  PyObject *raised = PyErr_Occurred();
  const char *name = PyExceptionClass_Check(raised) ? ((PyTypeObject *)raised)->tp_name : "an error";
  const wk__frame *f = &s->innermost->frame;
  char why[160];
  snprintf(why, sizeof why, "%s left the function", name);
  if (wk__log_on(WK__LOG_BREAKS))
    wk__log_print(WK__LOG_BREAKS, "%s: not kept: %s", PyUnicode_AsUTF8(s->root_code->co_qualname), why);
  if (s->binding->notes) wk__note_unkept(s, PyUnicode_AsUTF8(f->code->co_filename), wk__frame_line(f), why);
}

/* An exception leaves the root: what was recorded cannot be used, everything is real. An operator of the graph that
 * fails now was called before: the program would not have come to the exception. */
static void root_raises(wk__session *s) {
  if (s->recording && (wk__log_on(WK__LOG_BREAKS) || s->binding->notes)) say_raised(s);
  bool stays = !PyErr_ExceptionMatches(PyExc_Exception); /* somebody stops the program */
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  bool failed = wk__segment_discard(s) < 0;
  s->mode = WK__MODE_OFF;
  drop_buried(s);
  if (!failed || stays) {
    PyErr_Restore(type, value, traceback);
    return;
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
}

/* A generator in a variable of the root is closed behind the end, which may run `finally` blocks: not to be replayed.
 */
static void note_endings(wk__session *s, wk__activation *a) {
  for (int i = 0; i < wk__frame_slot_count(&a->frame); i++) {
    PyObject *o = wk__frame_slot(&a->frame, i);
    if (o && PyCell_Check(o)) o = PyCell_GET(o);
    if (o && wk__generator_ends_aloud(o)) wk__record_failed(s->recording, "a generator that is not finished");
  }
}

/* It may compare what it is given, and so look at what that holds. */
static void give_to_c_code(wk__session *s, wk__activation *a, PyObject *value) {
  if (s->handing && a->outer && s->handing == &a->outer->frame) return;
  wk__settle(s->recording, value);
  if (!wk__usable(&a->frame, value)) s->reason[0] = 0; /* C code that looks at such things is refused by itself */
  if (wk__holds_identity(s->recording, value)) wk__record_failed(s->recording, "C code is given an id()");
}

static PyObject *frame_returns(wk__session *s, wk__activation *a) {
  PyObject *result = a->frame.result;
  a->frame.result = NULL;
  if (s->mode == WK__MODE_CAPTURE) wk__segment_note_left(s, a);
  if (s->mode == WK__MODE_CAPTURE && a->depth && !a->frame.resumable) give_to_c_code(s, a, result);
  if (a->depth || s->mode != WK__MODE_CAPTURE) return result;
  note_endings(s, a);
  int status = wk__segment_end(s, WK__END_RETURN, result);
  s->mode = WK__MODE_OFF; /* clearing the frame may run code */
  drop_buried(s);
  if (status == 0) return result;
  Py_DECREF(result);
  return NULL;
}

/* CPython goes on with this frame; frames below go on being evaluated. */
static PyObject *leave(wk__session *s, wk__activation *a) {
  wk__activation *outer = a->outer;
  s->mode = WK__MODE_OFF;
  drop_buried(s);
  wk__hook_remove(s->thread->interp); /* without it calls move their arguments, and are faster */
  PyObject *result = wk__frame_continue(&a->frame);
  wk__hook_install(s->thread->interp, wk__session_hook);
  if (outer && !s->refusal) s->mode = WK__MODE_SEEK;
  return result;
}

/* Capturing here has failed a few times. */
static bool is_hopeless(const wk__session *s) {
  enum { ATTEMPTS = 3 };
  const wk__frame *f = &s->innermost->frame;
  const wk__compiled *c = s->compiled;
  for (int64_t i = 0; i < c->unkept_size; i++)
    if (c->unkept[i].code == f->code && c->unkept[i].offset == f->next) return c->unkept[i].count >= ATTEMPTS;
  return false;
}

/* A loop that goes on and on is captured in pieces: planning takes more than linear time, and no value is computed
 * before it is done. What no segment may end in, and what must be one graph, goes on. */
static bool is_full(const wk__session *s, const wk__activation *a) {
  enum { MOST_NODES = 10000 };
  if (s->recording->tries) return false;
  if (wk__tracer_graph(s->tracer)->node_count < MOST_NODES || must_be_one_graph(s)) return false;
  return wk__frame_next_only_moves(&a->frame) && all_resumable(s);
}

static void forget_failure(wk__session *s) {
  wk__segment *g = s->failed_segment;
  s->failed_segment = NULL;
  wk__segment_release(g);
}

/* Under the stance that captures nothing more, and where config.error_on_recompile is set. It is the caller's error,
 * whatever handlers on the way make of it. */
static int refuse_recompile(wk__session *s, bool by_stance) {
  const wk__frame *f = &s->innermost->frame;
  PyObject *why = wk__session_why(s), *type, *value, *traceback;
  bool guard = why && PyUnicode_GET_LENGTH(why);
  if (why && by_stance)
    PyErr_Format(PyExc_RuntimeError,
                 "Detected recompile when torch.compile stance is 'fail_on_recompile'. filename: '%U', function name: "
                 "'%U', line number: %d%s%U",
                 f->code->co_filename, f->code->co_name, wk__frame_line(f),
                 guard ? "\n    triggered by the following guard failure(s):\n    - " : "", why);
  else if (why)
    PyErr_Format(s->binding->recompile_error,
                 "Recompiling function %U in %U:%d\n    triggered by the following guard failure(s):\n    - %U",
                 f->code->co_name, f->code->co_filename, f->code->co_firstlineno, why);
  Py_XDECREF(why);
  forget_failure(s);
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  s->refusal = Py_XNewRef(value);
  PyErr_Restore(type, value, traceback);
  s->mode = WK__MODE_OFF;
  return -1;
}

/* Nothing is captured here. */
static void go_away(wk__session *s) {
  bool comes_back = s->loop && (!s->innermost->depth || wk__has_boundary(s->innermost->frame.info->watched));
  s->mode = comes_back ? WK__MODE_AWAY : WK__MODE_OFF;
}

/* A segment was found, or not. 0, or -1 with an exception. Under a mode, which sees every call, and between a
 * transform's begin and end instructions are run plainly, one after the other, until it is left. */
static int seek(wk__session *s) {
  /* Whole rounds of a loop may be replayed without an instruction that asks for signals. */
  if (WK_UNLIKELY(wk__hook_has_requests(s->thread)) && wk__serve_requests(s, s->thread) < 0) return -1;
  if (wk__thread.mode.level || s->binding->overrides(s->binding->state) & WK__OVERRIDE_BY_MODE) {
    s->mode = WK__MODE_PLAIN;
    return 0;
  }
  if (WK_UNLIKELY(wk__hook_tracing(s->thread))) { /* it wants to see what is called */
    go_away(s);
    return 0;
  }
  PyObject **values = NULL;
  bool full = false;
  if (WK_UNLIKELY(s->asked_count) && !s->asks_ahead) wk__forget_asked(s);
  s->asks_ahead = false;
  wk__segment *found = wk__segment_find(s, &values, &full);
  s->asked_next = 0;
  if (WK_UNLIKELY(s->asked_count) && found) wk__forget_asked(s);
  int status = found ? wk__segment_replay(s, found, values) : 0;
  if (WK_UNLIKELY(s->drawn_state != NULL)) (status > 0 ? wk__undo_draws : wk__forget_draws)(s);
  if (found && status <= 0) {
    forget_failure(s);
    return status;
  }
  wk__stance stance = s->binding->stance;
  if (!status && stance == WK__STANCE_FAIL_ON_RECOMPILE) return refuse_recompile(s, true);
  if (stance == WK__STANCE_EAGER_ON_RECOMPILE) status = 1;
  bool plain = status || full || s->captures >= 64 || is_hopeless(s) || !all_resumable(s);
  if (!plain && s->binding->recompile_error && s->failed_segment) return refuse_recompile(s, false);
  if (!plain) wk__note_recompile(s);
  forget_failure(s);
  if (plain) {
    go_away(s);
    wk__forget_asked(s);
    return 0;
  }
  s->captures++;
  return wk__segment_begin(s);
}

/* The state to be reached is this frame's: fill it, and go on with its instruction or into the next frame. */
static int arrive(wk__session *s, wk__activation *a) {
  if (wk__segment_fill(s, a) < 0) return -1;
  if (a->depth + 1 < s->target->end_count) {
    s->mode = WK__MODE_ENTER;
    return 0;
  }
  s->mode = s->target->end == WK__END_LEAVE ? WK__MODE_OFF : WK__MODE_PLAIN;
  wk__session_drop_target(s);
  return 0;
}

/* The state to be reached has not this frame: what it gives is not looked at. */
static PyObject *leave_replayed(const wk__session *s, wk__activation *a) {  // -> new
  const wk__recording *r = s->target ? s->target->recording : NULL;
  struct wk__left left = r && a->depth < r->left_count ? r->left[a->depth] : (struct wk__left){NULL, 0};
  wk__frame_let_go(&a->frame, left.changed, left.count);
  return Py_NewRef(Py_None);
}

/* The end of a replay. Without memory the variables stay as they were. */
static PyObject *root_returns(wk__session *s, wk__activation *root) {  // -> new
  PyObject *result = s->returned;
  s->returned = NULL;
  if (s->target && wk__segment_fill(s, root) < 0) PyErr_Clear();
  s->mode = WK__MODE_OFF; /* what dies now may run code */
  wk__session_drop_target(s);
  return result;
}

typedef enum outcome { GO_ON, DONE } outcome;

/* Of a class of C's own, made of texts without a digit, as "list index out of range" is. */
static bool says_no_number(PyObject *exception) {
  PyObject *args =
      exception && wk__type_is_fixed(Py_TYPE(exception)) ? ((PyBaseExceptionObject *)exception)->args : NULL;
  for (Py_ssize_t i = 0; args && i < PyTuple_GET_SIZE(args); i++) {
    PyObject *text = PyTuple_GET_ITEM(args, i);
    const char *utf8 = PyUnicode_CheckExact(text) ? PyUnicode_AsUTF8(text) : NULL;
    if (!utf8 || strpbrk(utf8, "0123456789")) return false;
  }
  return args != NULL;
}

/* The text of the exception that is set: operators say in theirs what sizes they were given. */
static bool may_tell_sizes(void) {
  PyObject *const kinds[] = {PyExc_RuntimeError, PyExc_IndexError, PyExc_ValueError, PyExc_TypeError};
  bool may = false;
  for (size_t i = 0; i < WK_COUNT(kinds); i++) may |= PyErr_ExceptionMatches(kinds[i]);
  if (!may) return false;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  may = !says_no_number(value);
  PyErr_Clear();
  PyErr_Restore(type, value, traceback);
  return may;
}

/* An exception leaves a frame, whose variables go with it or with its traceback. */
static void give_up_raising(wk__session *s) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  wk__session_give_up(s, "an exception ends variables whose end runs code");
  PyErr_Restore(type, value, traceback);
}

/* A call that the program does not make (capture/functions.c), or that becomes a loop body (score_begin in
 * capture/calls.c), ends where it cannot be recorded: nothing is done twice. */
static bool is_only_tried(const wk__session *s) {
  if (s->mode != WK__MODE_CAPTURE || !s->recording->tries) return false;
  s->recording->tries_in_vain = true;
  PyErr_SetString(PyExc_RuntimeError, "what is only tried cannot be recorded here");
  return true;
}

/* An instruction has been run plainly. Away from what is captured, a segment may begin with each statement of the root
 * (nothing but the iterators of its loops is on the stack). */
static void look_again(wk__session *s, const wk__activation *a) {
  bool plain = s->mode == WK__MODE_PLAIN;
  bool statement = s->mode == WK__MODE_AWAY && !a->depth && wk__frame_depth(&a->frame) == s->loop_depth;
  if ((plain || statement) && all_resumable(s)) s->mode = WK__MODE_SEEK;
}

/* Away from what is captured the root has gone round a loop so often that CPython had better do it. */
static bool is_busy(wk__session *s, const wk__activation *a) {
  enum { MOST_ROUNDS = 256 };
  bool round = s->mode == WK__MODE_AWAY && !a->depth && a->frame.next < a->frame.offset;
  return round && a->frame.next != s->loop->head && ++s->away_rounds > MOST_ROUNDS;
}

/* After an instruction. */
static outcome after_step(wk__session *s, wk__activation *a, wk__step step, PyObject **out_result) {
  switch (step) {
    case WK__STEP_NEXT:
      if (WK_UNLIKELY(s->loop != NULL) && is_busy(s, a) && !wk__program_lend(s, &a->frame)) {
        root_raises(s);
        *out_result = NULL;
        return DONE;
      }
      look_again(s, a);
      return GO_ON;
    case WK__STEP_RETURN:
      *out_result = frame_returns(s, a);
      return *out_result ? DONE : after_step(s, a, WK__STEP_RAISE, out_result);
    case WK__STEP_YIELD:
      *out_result = a->frame.result;
      a->frame.result = NULL;
      if (s->mode == WK__MODE_CAPTURE) give_to_c_code(s, a, *out_result); /* that may be who asks */
      return DONE;
    case WK__STEP_RAISE:
      if (s->mode == WK__MODE_CAPTURE && may_tell_sizes()) wk__settle_symbols(s->recording);
      if (wk__frame_unwind(&a->frame)) {
        look_again(s, a);
        return GO_ON;
      }
      if (!a->depth) root_raises(s);
      if (s->mode == WK__MODE_CAPTURE && wk__frame_dies_aloud(s, a)) give_up_raising(s);
      if (s->mode == WK__MODE_CAPTURE) wk__segment_note_left(s, a);
      *out_result = NULL;
      return DONE;
    case WK__STEP_REFUSED:
      a->frame.next = a->frame.offset;
      if (is_only_tried(s)) return after_step(s, a, WK__STEP_RAISE, out_result);
      if (s->mode == WK__MODE_CAPTURE && end_before_instruction(s, WK__END_BREAK) == 0) return GO_ON;
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "an operation refused with nothing recorded");
      return after_step(s, a, WK__STEP_RAISE, out_result); /* the graph failed, or must not break */
    case WK__STEP_UNKNOWN:
      a->frame.next = a->frame.offset;
      if (is_only_tried(s)) return after_step(s, a, WK__STEP_RAISE, out_result);
      snprintf(s->reason, sizeof s->reason, "%s is left to CPython", wk__frame_opcode_name(&a->frame, a->frame.offset));
      if (s->mode == WK__MODE_CAPTURE && end_before_instruction(s, WK__END_LEAVE) < 0)
        return after_step(s, a, WK__STEP_RAISE, out_result);
      *out_result = leave(s, a);
      return DONE;
  }
  return DONE;
}

/* The call in whose middle that happened is over. */
static void leave_capture(wk__session *s) {
  if (!s->capture_ended) return;
  wk__tracer_pause(s->tracer);
  s->capture_ended = false;
}

#ifdef WICK_TESTS
static bool probe_raises(wk__session *s, wk__activation *a) {
  int status = wk__probe_is_due() ? wk__probe_call(s) : 0;
  leave_capture(s); /* it may have used what was captured */
  if (status < 0) wk__frame_stand_before_next(&a->frame);
  return status < 0;
}
#endif

static outcome take_step(wk__session *s, wk__activation *a, PyObject **out_result) {
  a->frame.returned_into = false;
#ifdef WICK_TESTS
  if (probe_raises(s, a)) return after_step(s, a, WK__STEP_RAISE, out_result);
#endif
  s->refused = WK__REFUSED_BREAK;
  s->steps_plainly = s->mode == WK__MODE_PLAIN || s->mode == WK__MODE_AWAY; /* what it calls is CPython's alone */
  PyObject **callee = s->steps_plainly && s->loop ? wk__frame_next_callee(&a->frame) : NULL;
  bool bare =
      s->steps_plainly && s->loop && !(callee && PyFunction_Check(*callee)); /* which run_plainly() looks after */
  if (bare) wk__hook_remove(s->thread->interp);
  wk__step step = wk__frame_step(&a->frame);
  if (bare) wk__hook_install(s->thread->interp, wk__session_hook);
  s->steps_plainly = false;
  leave_capture(s);
  return after_step(s, a, step, out_result);
}

/* ==================================================== visits ===================================================== */

static bool is_outside(const wk__session *s, const wk__activation *a) {
  return !a->depth && (a->frame.next < s->loop->begin || a->frame.next >= s->loop->end);
}
static bool is_at_head(const wk__session *s, const wk__activation *a) {
  return !a->depth && a->frame.next == s->loop->head;
}

/* A segment of a visit ends here: where a round ends, of the loop itself or of a long one inside, and where the loop
 * does. */
static bool ends_round(const wk__session *s, const wk__activation *a) {
  if (s->recording->tries || !all_resumable(s)) return false;
  return is_outside(s, a) || is_at_head(s, a) || wk__is_boundary(a->frame.info->watched, a->frame.next);
}

/* The root goes on without the session. Where a round begins its first instruction, which asks an iterator, is run
 * plainly. */
static bool leaves_visit(wk__session *s, const wk__activation *a) {
  bool between = s->mode == WK__MODE_SEEK || s->mode == WK__MODE_PLAIN || s->mode == WK__MODE_AWAY;
  if (!between || a->depth) return false;
  if (is_at_head(s, a)) {
    s->mode = WK__MODE_PLAIN;
    return s->left = !wk__program_round(s);
  }
  return s->left = is_outside(s, a);
}

static PyObject *run(wk__session *s, wk__activation *a) {
  PyObject *result = NULL;
  for (;;) {
    int status = 0;
    if (WK_UNLIKELY(s->retired != NULL) && !a->depth) wk__session_drop_retired(s);
    drop_buried(s);
    if (s->loop && leaves_visit(s, a)) return NULL;
    switch (s->mode) {
      case WK__MODE_SEEK:
        status = seek(s);
        break;
      case WK__MODE_UNWIND:
        if (s->returned && !a->depth) return root_returns(s, a);
        if (s->target_depth < a->depth) return leave_replayed(s, a);
        status = arrive(s, a);
        break;
      case WK__MODE_OFF:
      case WK__MODE_START:
        return leave(s, a);
      default:
        if (s->mode == WK__MODE_CAPTURE && is_learned_break(s, &a->frame)) {
          a->frame.offset = a->frame.next;
          if (!s->reason[0]) snprintf(s->reason, sizeof s->reason, "an instruction that could not be captured before");
          if (after_step(s, a, WK__STEP_REFUSED, &result) == DONE) return result;
          break;
        }
        if (s->mode == WK__MODE_CAPTURE && WK_UNLIKELY(wk__variable_dies_aloud(s, a))) {
          a->frame.offset = a->frame.next;
          wk__refuse_as(&a->frame, WK__REFUSED_LEFT_OVER, "the end of a variable runs code");
          if (after_step(s, a, WK__STEP_REFUSED, &result) == DONE) return result;
          break;
        }
        if (s->mode == WK__MODE_CAPTURE && s->loop && ends_round(s, a)) {
          a->frame.offset = a->frame.next;
          snprintf(s->reason, sizeof s->reason, "a round of a loop is over");
          if (end_here(s, WK__END_BREAK) < 0 && after_step(s, a, WK__STEP_RAISE, &result) == DONE) return result;
          break;
        }
        if (s->mode == WK__MODE_CAPTURE && WK_UNLIKELY(is_full(s, a))) {
          a->frame.offset = a->frame.next;
          snprintf(s->reason, sizeof s->reason, "a graph of many thousand operators, which goes on in another one");
          if (end_here(s, WK__END_BREAK) < 0 && after_step(s, a, WK__STEP_RAISE, &result) == DONE) return result;
          break;
        }
        if (take_step(s, a, &result) == DONE) return result;
        break;
    }
    if (status < 0) {
      wk__frame_stand_before_next(&a->frame);
      if (!wk__frame_unwind(&a->frame)) {
        if (!a->depth) root_raises(s);
        return NULL;
      }
      if (!s->refusal) s->mode = WK__MODE_SEEK;
    }
  }
}

/* ==================================================== the hook ==================================================== */

/* A function from outside has been entered, by a call or by C code that found it in a class: what it consists of is
 * part of what was captured. */
static void know_function(wk__session *s, wk__frame *f) {
  PyObject *function = wk__frame_function(f), *type, *value, *traceback;
  if (!s->recording || wk__was_made(s->recording, function)) return;
  wk__reg reg = wk__reg_find(s->recording, function);
  if (reg >= 0 && s->recording->registers[reg].by_code) return;
  PyErr_Fetch(&type, &value, &traceback); /* of a generator that something is thrown into */
  if (wk__reg_constant(s->recording, function) >= 0)
    (void)!wk__depend_on_function(s->recording, s->binding, function); /* a failure is noted */
  PyErr_Restore(type, value, traceback);
}

static PyObject *evaluate(wk__session *s, PyThreadState *thread, struct _PyInterpreterFrame *real, wk__code *info,
                          int throwing) {  // -> new
  wk__activation a = {.outer = s->innermost, .depth = s->innermost ? s->innermost->depth + 1 : 0};
  wk__frame_enter(&a.frame, s, thread, real, info, throwing);
  a.frame.resumable = s->entering || s->mode == WK__MODE_ENTER;
  s->entering = false;
  if (a.outer && a.frame.resumable) wk__frame_give_arguments(&a.outer->frame, wk__frame_function(&a.frame));
  s->innermost = &a;
  if (s->mode == WK__MODE_START) s->mode = WK__MODE_SEEK;
  if (s->mode == WK__MODE_ENTER) {
    s->mode = WK__MODE_UNWIND;
    s->target_depth = a.depth;
  }
  if (s->mode == WK__MODE_CAPTURE) know_function(s, &a.frame);
  if (s->recording && s->recording->classes_open) wk__note_shown_class(&a.frame, s->recording);
  PyObject *result = run(s, &a);
  s->innermost = a.outer;
  if (a.outer && a.frame.resumable) a.outer->frame.returned_into = true;
  wk__activation_forget_start(&a);
  return wk__frame_exit(&a.frame, result);
}

/* Whether this frame is evaluated: the root, and what it enters while capturing or on the way to a state. */
static bool is_wanted(const wk__session *s, PyCodeObject *code) {
  const wk__segment *to = s->target;
  switch (s->mode) {
    case WK__MODE_START:
      return code == s->root_code;
    case WK__MODE_CAPTURE:
      return !(code->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR));
    case WK__MODE_ENTER:
      return s->innermost->depth + 1 < to->end_count && code == to->end_frames[s->innermost->depth + 1].code;
    default:
      return false;
  }
}

/* An instruction that is run plainly has called a function: what that calls goes by no hook. */
static PyObject *run_plainly(wk__session *s, PyThreadState *thread, struct _PyInterpreterFrame *real, int throwing) {
  s->steps_plainly = false;
  wk__frame_give_arguments(&s->innermost->frame, wk__hook_function(real));
  wk__hook_remove(thread->interp);
  PyObject *result = wk__hook_default(thread, real, throwing);
  wk__hook_install(thread->interp, wk__session_hook);
  return result;
}

PyObject *wk__session_hook(PyThreadState *thread, struct _PyInterpreterFrame *real, int throwing) {  // -> new
  wk__session *s = wk__thread.session;
  PyCodeObject *code = wk__hook_code(real);
  if (WK_UNLIKELY(wk__program_expects(thread, code))) return wk__program_enter(thread, real, throwing);
  if (!s || s->thread != thread) return wk__hook_default(thread, real, throwing);
  if (s->steps_plainly && !s->suspended) return run_plainly(s, thread, real, throwing);
  if (!is_wanted(s, code)) return wk__hook_default(thread, real, throwing);
  bool entered_again = s->mode == WK__MODE_ENTER; /* the frame gets its state here alone */
  if (!entered_again && wk__hook_tracing(thread)) return wk__hook_default(thread, real, throwing);
  if (WK_UNLIKELY(wk__is_in_between(s, thread, real))) return wk__run_in_between(s, thread, real, throwing);
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  wk__code *info = wk__code_get(code);
  if (!info) PyErr_Clear();
  PyErr_Restore(type, value, traceback);
  if (!info || info->unsupported || wk__hook_makes_generator(real) || (!entered_again && wk__hook_watched(code))) {
    s->entering = false;
    return wk__hook_default(thread, real, throwing);
  }
  return evaluate(s, thread, real, info, throwing);
}

void wk__dynamo_number(PyObject *number, wk_value *value) {
  wk__session *s = wk__thread.session;
  int input = s && s->mode == WK__MODE_CAPTURE ? wk__number_input(s->recording, number) : -1;
  if (input >= 0) *value = (wk_value){.tag = WK_VALUE_INPUT, .count = (uint32_t)input, .number = value->number};
}
bool wk__dynamo_int(PyObject *number, wk_int *out) {
  wk__session *s = wk__thread.session;
  return s && s->mode == WK__MODE_CAPTURE && wk__symbolic_int(s->recording, number, out);
}
/* NULL: nothing is captured, or there is no such input. */
static PyObject *object_of_number(const wk_value *input) {  // -> borrowed
  wk__session *s = wk__thread.session;
  if (!s || s->mode != WK__MODE_CAPTURE || input->count >= s->recording->number_count) return NULL;
  return s->recording->registers[s->recording->numbers[input->count]].object;
}
bool wk__dynamo_number_avoids(const wk_value *input, const double *values, int count) {
  PyObject *object = object_of_number(input);
  return object && wk__float_avoids(wk__thread.session->recording, object, values, count);
}
void wk__dynamo_specialize(wk_value *input) {
  PyObject *object = object_of_number(input);
  if (object) wk__specialize(wk__thread.session->recording, object);
  *input = (wk_value){.tag = WK_VALUE_DOUBLE, .number = input->number};
}

/* ============================================== a call that is a graph ============================================ */

/* The whole call: what it returns comes from a graph of what it is given, and nothing else happens. */
static bool is_whole_call(const wk__segment *g) {
  return g->frame_count == 1 && g->offsets[0] == 0 && g->end == WK__END_RETURN && g->executor && g->step_count == 0;
}

/* Replays such a call without its frame. False: the call has to be made after all. True: *out_result is what it
 * returns, NULL with an exception. */
static bool replay_at_once(wk__session *s, PyObject *function, PyObject *const *args, Py_ssize_t count,
                           PyObject **out_result) {
  wk__frame_image space;
  wk__activation a = {.depth = 0};
  if (!wk__frame_imagine(&a.frame, &space, s, function, args, count)) return false;
  PyObject **values = NULL;
  bool full;
  s->innermost = &a;
  wk__segment *found = wk__segment_find(s, &values, &full);
  s->innermost = NULL;
  s->asks_ahead = true;
  if (!found) return false;
  if (!is_whole_call(found)) {
    wk__undo_draws(s);
    wk__segment_put_values(found, values);
    wk__segment_release(found);
    return false;
  }
  int status = wk__segment_replay(s, found, values);
  if (WK_UNLIKELY(s->drawn_state != NULL)) (status > 0 ? wk__undo_draws : wk__forget_draws)(s);
  wk__forget_asked(s);
  if (status > 0) s->mode = WK__MODE_OFF; /* the graph failed: made plainly the call fails where it has to */
  *out_result = status == 0 ? s->returned : NULL;
  return status <= 0;
}

/* fullgraph=True: the error that was raised inside, unless something stops the program. */
static PyObject *end_refused(wk__session *s, PyObject *result) {  // -> new, NULL with an exception
  bool stops = !result && !PyErr_ExceptionMatches(PyExc_Exception);
  if (!stops) {
    Py_XDECREF(result);
    PyErr_SetObject((PyObject *)Py_TYPE(s->refusal), s->refusal);
  }
  Py_CLEAR(s->refusal);
  return NULL;
}

static void end_session(wk__session *s) {
  wk__thread.session = s->outer;
  wk__session_drop_target(s);
  wk__tracer_release(s->tracer);
  PyMem_Free(s->start_codes);
  PyMem_Free(s->start_offsets);
  wk__session_drop_retired(s);
  wk__forget_asked(s);
  PyMem_Free(s->asked);
  if (s->buried_count) wk__session_drop_buried(s);
}

PyObject *wk__session_call(wk__compiled *compiled, PyObject *function, PyObject *const *args, size_t nargsf,
                           PyObject *keyword_names) {
  PyObject *python = PyMethod_Check(function) ? PyMethod_GET_FUNCTION(function) : function;
  PyObject *code = PyFunction_GET_CODE(python);
  wk__session s = {.outer = wk__thread.session,
                   .compiled = compiled,
                   .binding = compiled->binding,
                   .thread = PyThreadState_Get(),
                   .root_code = (PyCodeObject *)code,
                   .mode = WK__MODE_START};
  PyInterpreterState *interpreter = s.thread->interp;
  Py_INCREF(compiled);
  PyObject *result;
  if (compiled->segments && is_whole_call(compiled->segments) && python == function && !keyword_names &&
      !wk__hook_watched(s.root_code) && replay_at_once(&s, function, args, PyVectorcall_NARGS(nargsf), &result)) {
    Py_DECREF(compiled);
    return result;
  }
  wk__thread.session = &s;
  wk__hook_install(interpreter, wk__session_hook);
  result = PyObject_Vectorcall(function, args, nargsf, keyword_names);
  wk__hook_remove(interpreter);
  end_session(&s);
  if (WK_UNLIKELY(s.refusal != NULL)) result = end_refused(&s, result);
  Py_DECREF(compiled);
  return result;
}

bool wk__session_visit(wk__compiled *compiled, wk__activation *root, wk__loop *loop, PyObject **out_result) {
  wk__session s = {.outer = wk__thread.session,
                   .compiled = compiled,
                   .binding = compiled->binding,
                   .thread = root->frame.thread,
                   .root_code = root->frame.code,
                   .mode = WK__MODE_PLAIN,
                   .innermost = root,
                   .loop = loop,
                   .loop_depth = wk__frame_depth(&root->frame)};
  Py_INCREF(compiled);
  root->frame.session = wk__thread.session = &s;
  wk__hook_install(s.thread->interp, wk__session_hook);
  *out_result = run(&s, root);
  wk__hook_remove(s.thread->interp);
  s.innermost = NULL;
  wk__activation_forget_start(root);
  end_session(&s);
  root->frame.session = NULL;
  Py_DECREF(compiled);
  return !s.left;
}
