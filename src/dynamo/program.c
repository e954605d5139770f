/* Which loops and functions of a program are hot, and what becomes of them: see program.h.
 *
 * In: the code of a program (_C._run_program). Out: what it would have done. Invariant: between two instructions of a
 * watched frame its state is CPython's, so that CPython, a session or this loop may go on with it.
 * Tests: tests/python/capture/test_program.py. */
#include "dynamo/program.h"

#include "autograd/autograd.h"
#include "dynamo/cpython/objects.h"
#include "dynamo/dynamo.h"

enum {
  FEW_OPERATORS = 4, /* a round with fewer is not worth a segment */
  FIRST_ASKED = 64,  /* operators that a quiet loop calls before it is looked at again; then 16 times as many */
  JUDGED_ROUNDS = 16,
  MOST_CAPTURES = 400, /* of one loop, or of a function */
  MOST_EVALUATED = 64, /* rounds of a loop that CPython cannot be given alone */
  HOT_CALLS = 3,       /* of a function */
  PATIENCE = 8,        /* so many times as long does a loop take to be hot whose tape goes on behind it */
  SPARED = 3,          /* operators that a replay has to be worth */
};

struct wk__program {
  wk__binding *binding;
  PyObject *make;         /* borrowed: (function, line, kind) -> Compiled */
  PyObject *regions;      /* owned: a dict of Compiled, by code (loops) or function */
  PyCodeObject *expected; /* borrowed: the frame that is about to be entered is watched, */
  bool passes;            /* or only gets its arguments, and is CPython's */
  wk__frame *caller;      /* borrowed: whose call that is; NULL: of the module's code */
  int hot_rounds;         /* of a loop, before it is visited */
  int quiet_rounds;       /* without many operators, before CPython gets it */
  bool compiles_calls;    /* hot functions that the innermost watched frame calls are to be compiled functions */
  int64_t changes;        /* captures of such functions, and verdicts on them */
  uint64_t spared;        /* operators that were not called, because a segment was replayed */
  wk__lent *running;      /* borrowed: the innermost loop that CPython runs; NULL */
  int running_head;
};

/* A frame that is watched. */
typedef struct watch {
  wk__activation a; /* first */
  wk__program *program;
  wk__watched *known; /* borrowed: of its code */
  wk__lent **lent;    /* (known->loop_count) owned: loops as CPython runs them; NULL until then */
} watch;

/* ================================================ what is said ================================================== */

static uint64_t work_of(const wk__program *p) { return wk__thread.program_calls + p->spared; }

static void say(const wk__frame *f, const wk__loop *l, const char *what) {
  if (!wk__log_on(WK__LOG_REGIONS)) return;
  int line = PyCode_Addr2Line(f->code, l->head * 2);
  wk__log_print(WK__LOG_REGIONS, "%s:%d: the loop in %s %s", PyUnicode_AsUTF8(f->code->co_filename), line,
                PyUnicode_AsUTF8(f->code->co_qualname), what);
}

/* ================================================= compiled objects ============================================== */

/* The Compiled of a loop's code, or of a function, which is made when there is none. NULL, without an exception: there
 * is none. */
static wk__compiled *compiled_of(wk__program *p, PyObject *key, PyObject *function, int line, const char *kind) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *found = PyDict_GetItemWithError(p->regions, key);
  if (!found && !PyErr_Occurred()) {
    PyObject *made = PyObject_CallFunction(p->make, "Ois", function, line, kind);
    bool right = made && Py_TYPE(made) == p->binding->compiled_type;
    if (right && PyDict_SetItem(p->regions, key, made) == 0) found = made;
    Py_XDECREF(made); /* the dictionary has it */
  }
  PyErr_Clear();
  PyErr_Restore(type, value, traceback);
  return (wk__compiled *)found;
}

static wk__compiled *compiled_of_loop(const watch *w, const wk__loop *l) {
  PyObject *code = (PyObject *)w->a.frame.code;
  return compiled_of(w->program, code, wk__frame_function(&w->a.frame), PyCode_Addr2Line(w->a.frame.code, l->head * 2),
                     "loop");
}

/* ==================================================== judging ==================================================== */

static void begin_judging(wk__loop *l) {
  l->rounds = 0;
  l->calls = l->replays = 0;
}

/* Half of the operators are spared (a quarter, where functions are compiled), and a replay is worth several of them. */
static bool is_gain(double all, uint64_t called, uint64_t replays, int parts) {
  double spared = all - (double)called;
  return parts * spared >= all && spared >= SPARED * (double)replays;
}
static bool is_worth_it(const wk__loop *l) {
  return is_gain(l->round_work * l->rounds, l->calls, l->replays, l->state == WK__LOOP_CALLS ? 4 : 2);
}

/* Adds the round that is over, unless something was captured in it. */
static void count_round(wk__loop *l, int64_t captures, uint64_t replays) {
  if (captures == l->captures_at) {
    l->rounds++;
    l->calls += wk__thread.program_calls - l->calls_at;
    l->replays += replays - l->replays_at;
    if (wk__thread.program_backwards != l->backwards_at) l->calls += (uint64_t)l->round_work / 2;
  }
  l->calls_at = wk__thread.program_calls;
  l->backwards_at = wk__thread.program_backwards;
  l->replays_at = replays;
  l->captures_at = captures;
}

static void set_state(const wk__frame *f, wk__loop *l, wk__loop_state state, const char *what) {
  l->state = (uint8_t)state;
  say(f, l, what);
  begin_judging(l);
}

bool wk__program_round(wk__session *s) {
  wk__loop *l = s->loop;
  wk__program *p = wk__thread.program;
  int64_t captures = s->compiled->capture_count + s->compiled->unkept_count;
  p->spared += (uint64_t)l->round_work;
  s->captures = 0;
  s->away_rounds = 0;
  if (++l->trip > l->longest) l->longest = l->trip;
  count_round(l, captures, s->compiled->replay_count);
  if (captures - l->captures > MOST_CAPTURES) {
    set_state(&s->innermost->frame, l, WK__LOOP_CALLS, "is captured again and again: its calls are looked at");
    return false;
  }
  if (l->rounds < JUDGED_ROUNDS) return true;
  if (is_worth_it(l)) {
    begin_judging(l);
    return true;
  }
  set_state(&s->innermost->frame, l, WK__LOOP_CALLS, "gains nothing as a region: its calls are looked at");
  return false;
}

/* ================================================ loops of a frame =============================================== */

/* CPython runs the loop. 1: it is back; 0: the frame is over, by an exception; -1: it cannot be done. */
static int lend(watch *w, wk__loop *l, uint64_t asked) {
  wk__frame *f = &w->a.frame;
  wk__lent **lent = &w->lent[l - w->known->loops];
  if (!*lent && !(*lent = wk__lent_create(f->code, l->begin, l->end))) return -1;
  wk__lent *outer = w->program->running;
  int outer_head = w->program->running_head;
  uint64_t asked_outside = wk__thread.program_calls_asked;
  w->program->running = *lent;
  w->program->running_head = l->head;
  wk__thread.program_calls_asked = asked ? wk__thread.program_calls + asked : 0;
  bool back = wk__frame_lend(f, *lent);
  w->program->running = outer;
  w->program->running_head = outer_head;
  wk__thread.program_calls_asked = asked_outside;
  if (f->next == l->head) { /* it was asked back: that code is spent */
    wk__lent_release(*lent);
    *lent = NULL;
  }
  return back;
}

bool wk__program_lend(wk__session *s, wk__frame *f) {
  wk__loop *l = wk__loop_of_jump(f->info->watched, f->next);
  wk__lent *lent = l ? wk__lent_create(f->code, l->begin, l->end) : NULL;
  if (!lent) return true;
  wk__hook_remove(PyThreadState_GetInterpreter(s->thread));
  bool back = wk__frame_lend(f, lent);
  wk__hook_install(PyThreadState_GetInterpreter(s->thread), wk__session_hook);
  wk__lent_release(lent);
  return back;
}

void wk__dynamo_calls_reached(void) {
  wk__program *p = wk__thread.program;
  if (p && p->running) wk__lent_ask_back(p->running, p->running_head);
}

static void begin_trip(wk__loop *l) {
  l->trip = 0;
  l->work = 0;
}

/* A session goes on with the frame, at the head. True: the frame is over. */
static bool visit(watch *w, wk__loop *l, PyObject **out_result) {
  wk__compiled *compiled = compiled_of_loop(w, l);
  if (!compiled) {
    set_state(&w->a.frame, l, WK__LOOP_LEFT, "cannot be compiled");
    return false;
  }
  for (int item = -1; item < 1; item++) /* what a round gets from the iterator, range() and enumerate() count */
    wk__mark_changing(compiled, wk__path_of_round(w->a.frame.code, wk__frame_depth(&w->a.frame), item), 0);
  l->calls_at = wk__thread.program_calls;
  l->backwards_at = wk__thread.program_backwards;
  l->captures_at = compiled->capture_count + compiled->unkept_count;
  if (!l->visits++) l->captures = l->captures_at;
  l->replays_at = compiled->replay_count;
  return wk__session_visit(compiled, &w->a, l, out_result);
}

/* The counted rounds of a loop have come to a decision, or not. */
static void decide(watch *w, wk__loop *l) {
  const wk__frame *f = &w->a.frame;
  int rounds = l->trip - 1; /* the first one began unseen */
  bool many = rounds && l->work >= (uint64_t)(FEW_OPERATORS * rounds), seen = rounds || !w->program->quiet_rounds;
  int wanted = w->program->hot_rounds * (l->taped && !l->backwards ? PATIENCE : 1);
  if (many && l->trip >= wanted) {
    l->round_work = (double)l->work / rounds;
    set_state(f, l, WK__LOOP_REGION, "is hot: a region");
  } else if (seen && !many && l->trip >= w->program->quiet_rounds) {
    l->asked = l->asked ? 16 * l->asked : FIRST_ASKED;
    set_state(f, l, WK__LOOP_QUIET, "calls few operators: CPython runs it");
  }
}

/* While its functions are captured and judged themselves it waits. */
static void judge_calls(watch *w, wk__loop *l) {
  count_round(l, w->program->changes, l->replays_at);
  if (l->rounds < 2 * JUDGED_ROUNDS) return;
  if (is_worth_it(l))
    begin_judging(l);
  else
    set_state(&w->a.frame, l, WK__LOOP_LEFT, "gains nothing: CPython runs it");
}

/* A backward pass is as much work as the operators before it. */
static void count_trip(watch *w, wk__loop *l) {
  uint64_t work = work_of(w->program), backwards = wk__thread.program_backwards;
  uint64_t sequence = wk__node_next_sequence();
  bool trains = l->trip && backwards != l->backwards_at;
  for (int i = 0; i < w->known->loop_count; i++)
    if (wk__loop_is_inside(&w->known->loops[i], l)) begin_trip(&w->known->loops[i]);
  if (l->trip) l->work += (work - l->work_at) << trains;
  l->work_at = work;
  l->backwards += trains;
  l->taped |= l->trip && !trains && sequence != l->sequence_at;
  l->backwards_at = backwards;
  l->sequence_at = sequence;
  if (++l->trip > l->longest) l->longest = l->trip;
}

/* As it is for calls of compiled functions. */
static bool may_visit(const wk__program *p) {
  const wk__binding *b = p->binding;
  bool apart = wk__thread.body || wk__thread.mode.level || b->overrides(b->state) & WK__OVERRIDE_BY_MODE;
  return !apart && b->stance != WK__STANCE_FORCE_EAGER && !b->forced;
}

/* CPython gets the loop. True: the frame is over. */
static bool leave_loop(watch *w, wk__loop *l, PyObject **out_result) {
  wk__frame *f = &w->a.frame;
  int lent = lend(w, l, l->state == WK__LOOP_QUIET ? l->asked : 0);
  *out_result = NULL;
  if (lent > 0 && f->next == l->head) {
    begin_trip(l);
    set_state(f, l, WK__LOOP_COUNTED, "calls operators by now: its rounds are counted");
  } else if (lent < 0 && l->trip > MOST_EVALUATED) {
    say(f, l, "cannot be left alone: CPython runs the rest of the function");
    *out_result = wk__frame_continue(f);
    return true;
  }
  return lent == 0;
}

/* The frame has jumped back to the head of a loop. True: it is over. */
static bool jumped_back(watch *w, wk__loop *l, PyObject **out_result) {
  count_trip(w, l);
  if (l->state == WK__LOOP_COUNTED) decide(w, l);
  if (l->state == WK__LOOP_CALLS) judge_calls(w, l);
  if (l->state == WK__LOOP_REGION) return may_visit(w->program) && visit(w, l, out_result);
  if (l->state == WK__LOOP_COUNTED || l->state == WK__LOOP_CALLS) return false;
  return leave_loop(w, l, out_result);
}

/* ===================================================== calls ===================================================== */

static PyObject *method_of_class(PyObject *o, const char *text) {  // -> borrowed, NULL
  PyObject *name = PyUnicode_InternFromString(text), *found = name ? wk__type_attribute(Py_TYPE(o), name) : NULL;
  Py_XDECREF(name);
  return found;
}

static PyObject *of_partial(PyObject *partial) {  // -> borrowed
  PyObject *function = PyObject_GetAttrString(partial, "func");
  Py_XDECREF(function); /* it has it */
  PyErr_Clear();
  return function;
}

/* The Python function that a call of this object comes to, by way of C code or at once. NULL: there is none.
 * -> borrowed */
static PyObject *function_of(const wk__binding *b, PyObject *callee) {
  enum { MOST_PARTIALS = 4 };
  for (int i = 0; callee && i < MOST_PARTIALS && strcmp(Py_TYPE(callee)->tp_name, "functools.partial") == 0; i++)
    callee = of_partial(callee);
  if (callee && PyMethod_Check(callee)) callee = PyMethod_GET_FUNCTION(callee);
  if (!callee || PyFunction_Check(callee)) return callee;
  if (wk__type_is_fixed(Py_TYPE(callee))) return NULL;
  PyObject *found = method_of_class(callee, PyObject_TypeCheck(callee, b->module_type) ? "forward" : "__call__");
  return found && PyFunction_Check(found) ? found : NULL;
}

/* Up to 3.11 a function of its own, whose loop makes one object: no region. */
static bool is_comprehension(PyCodeObject *code) {
  Py_UCS4 first = PyUnicode_GET_LENGTH(code->co_name) ? PyUnicode_READ_CHAR(code->co_name, 0) : 0;
  return first == '<' && PyUnicode_CompareWithASCIIString(code->co_name, "<lambda>") != 0;
}

/* In a loop that gains nothing as a whole, and in what it calls. */
static bool compiles_calls(const watch *w) {
  const wk__loop *l = wk__loop_around(w->known, w->a.frame.next);
  bool compiles = l ? l->state == WK__LOOP_CALLS : w->program->compiles_calls;
  return compiles && may_visit(w->program);
}

static double work_of_call(const wk__watched *callee) {
  return callee->calls ? (double)callee->work / (double)callee->calls : 0;
}

/* What a hot function is called by way of; NULL: of nothing. -> borrowed */
static wk__compiled *compiled_for(const watch *w, PyObject *callable, const wk__watched *callee, PyObject *function) {
  if (callee->gains_nothing || callee->calls < HOT_CALLS || work_of_call(callee) < FEW_OPERATORS) return NULL;
  PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(function);
  bool returns_at_once = code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR);
  if (callable != function || returns_at_once) return NULL;
  return compiled_of(w->program, function, function, code->co_firstlineno, "function");
}

static void judge_function(wk__program *p, const wk__compiled *compiled, wk__watched *callee, PyCodeObject *code) {
  bool many = compiled->capture_count + compiled->unkept_count > MOST_CAPTURES;
  if (callee->compiled_calls < JUDGED_ROUNDS && !many) return;
  double all = work_of_call(callee) * (double)callee->compiled_calls;
  callee->gains_nothing = many || !is_gain(all, callee->compiled_operators, callee->replays, 2);
  callee->compiled_calls = callee->compiled_operators = callee->replays = 0;
  if (!callee->gains_nothing) return;
  p->changes++;
  if (wk__log_on(WK__LOG_REGIONS))
    wk__log_print(WK__LOG_REGIONS, "%s:%d: %s gains nothing as a function: its calls are looked at",
                  PyUnicode_AsUTF8(code->co_filename), code->co_firstlineno, PyUnicode_AsUTF8(code->co_qualname));
}

/* The call that comes next, by way of a compiled function. */
static wk__step step_compiled(watch *w, PyObject **place, wk__compiled *compiled, wk__watched *callee,
                              PyCodeObject *code) {
  wk__program *p = w->program;
  int64_t captures = compiled->capture_count + compiled->unkept_count;
  uint64_t replays = compiled->replay_count, operators = wk__thread.program_calls;
  Py_SETREF(*place, Py_NewRef((PyObject *)compiled));
  wk__step step = wk__frame_step(&w->a.frame);
  p->spared += (uint64_t)work_of_call(callee);
  if (captures != compiled->capture_count + compiled->unkept_count) {
    p->changes++;
  } else {
    callee->compiled_calls++;
    callee->compiled_operators += wk__thread.program_calls - operators;
    callee->replays += compiled->replay_count - replays;
  }
  judge_function(p, compiled, callee, code);
  return step;
}

/* The call that comes next, of a function that is watched when it is entered. */
static wk__step step_into(watch *w, PyCodeObject *code) {
  wk__program *p = w->program;
  PyInterpreterState *interpreter = PyThreadState_GetInterpreter(w->a.frame.thread);
  p->expected = code;
  p->caller = &w->a.frame;
  wk__hook_install(interpreter, wk__session_hook);
  wk__step step = wk__frame_step(&w->a.frame);
  if (p->expected) { /* it has not come to that */
    p->expected = NULL;
    wk__hook_remove(interpreter);
  }
  p->passes = false;
  return step;
}

/* The same of one that is not watched, where an argument may end within the call. */
static wk__step step_past(watch *w, PyCodeObject *code) {
  if (!wk__frame_next_gives(&w->a.frame)) return wk__frame_step(&w->a.frame);
  w->program->passes = true;
  return step_into(w, code);
}

/* Plainly, or into a frame that is watched. */
static wk__step step_measured(watch *w, wk__watched *callee, PyCodeObject *code, bool compiles) {
  wk__program *p = w->program;
  uint64_t before = work_of(p);
  bool enters = !callee->calls++ || callee->work, outer = p->compiles_calls;
  p->compiles_calls = compiles;
  wk__step step = enters ? step_into(w, code) : step_past(w, code);
  p->compiles_calls = outer;
  callee->work += work_of(p) - before;
  return step;
}

static wk__step step_over_call(watch *w, PyObject **place) {
  PyObject *function = function_of(w->program->binding, *place);
  PyCodeObject *code = function ? (PyCodeObject *)PyFunction_GET_CODE(function) : NULL;
  wk__watched *callee = code ? wk__known_of(code) : NULL;
  if (!callee || is_comprehension(code)) return wk__frame_step(&w->a.frame);
  bool compiles = compiles_calls(w);
  wk__compiled *compiled = compiles ? compiled_for(w, *place, callee, function) : NULL;
  Py_INCREF(code); /* the function may be gone behind the call */
  wk__step step = compiled ? step_compiled(w, place, compiled, callee, code) : step_measured(w, callee, code, compiles);
  Py_DECREF(code);
  return step;
}

/* ==================================================== the frame ================================================== */

static wk__step take_step(watch *w) {
  PyObject **place = wk__frame_next_callee(&w->a.frame);
  return place ? step_over_call(w, place) : wk__frame_step(&w->a.frame);
}

/* Until the frame returns or raises, or CPython goes on with it. -> new */
static PyObject *run(watch *w) {
  wk__frame *f = &w->a.frame;
  PyObject *result = NULL;
  for (;;) {
    if (WK_UNLIKELY(wk__hook_tracing(f->thread)) && wk__frame_may_stop_at(f, f->next)) return wk__frame_continue(f);
    wk__step step = take_step(w);
    if (step == WK__STEP_UNKNOWN) return wk__frame_continue(f);
    if (step == WK__STEP_REFUSED) {
      PyErr_SetString(PyExc_SystemError, "an operation refused with nothing recorded");
      step = WK__STEP_RAISE;
    }
    if (step == WK__STEP_RETURN || step == WK__STEP_YIELD) return f->result;
    if (step == WK__STEP_RAISE && !wk__frame_unwind(f)) return NULL;
    wk__loop *l = f->next <= f->offset ? wk__loop_of_jump(w->known, f->next) : NULL;
    if (l && jumped_back(w, l, &result)) return result;
  }
}

bool wk__program_expects(PyThreadState *thread, PyCodeObject *code) {
  const wk__program *p = wk__thread.program;
  return p && p->expected == code && thread == PyThreadState_Get();
}

static PyObject *enter(wk__program *p, PyThreadState *thread, struct _PyInterpreterFrame *real, int throwing) {
  PyCodeObject *code = wk__hook_code(real);
  watch w = {.program = p, .known = wk__known_of(code)};
  if (w.known) w.lent = PyMem_Calloc((size_t)w.known->loop_count + 1, sizeof *w.lent);
  if (!w.lent) return wk__hook_default(thread, real, throwing);
  wk__frame_enter(&w.a.frame, NULL, thread, real, wk__code_get(code), throwing);
  for (int i = 0; i < w.known->loop_count; i++) begin_trip(&w.known->loops[i]);
  PyObject *result = run(&w);
  int count = w.known->loop_count; /* the code may go with the frame */
  result = wk__frame_exit(&w.a.frame, result);
  for (int i = 0; i < count; i++) wk__lent_release(w.lent[i]);
  PyMem_Free(w.lent);
  return result;
}

PyObject *wk__program_enter(PyThreadState *thread, struct _PyInterpreterFrame *real, int throwing) {
  wk__program *p = wk__thread.program;
  bool passes = p->passes;
  p->expected = NULL;
  p->passes = false;
  wk__hook_remove(PyThreadState_GetInterpreter(thread));
  PyCodeObject *code = wk__hook_code(real);
  if (p->caller) wk__frame_give_arguments(p->caller, wk__hook_function(real));
  p->caller = NULL;
  if (passes || wk__hook_tracing(thread) || wk__hook_watched(code) || wk__hook_makes_generator(real) || throwing)
    return wk__hook_default(thread, real, throwing);
  return enter(p, thread, real, throwing);
}

/* =================================================== the program ================================================= */

/* _run_program(code, globals, make, hot_rounds, quiet_rounds): runs the code of a module; make(function, line, kind)
 * gives the Compiled of what is hot. */
static PyObject *run_program(PyObject *module, PyObject *args) {  // -> new
  PyObject *code, *globals, *make;
  int hot, quiet;
  if (!PyArg_ParseTuple(args, "O!O!Oii:_run_program", &PyCode_Type, &code, &PyDict_Type, &globals, &make, &hot, &quiet))
    return NULL;
  wk__program p = {.binding = wk__binding_of_module(module),
                   .make = make,
                   .expected = (PyCodeObject *)code,
                   .hot_rounds = hot,
                   .quiet_rounds = quiet};
  if (!p.binding || !(p.regions = PyDict_New())) return NULL;
  wk__program *outer = wk__thread.program;
  PyInterpreterState *interpreter = PyInterpreterState_Get();
  wk__thread.program = &p;
  wk__hook_install(interpreter, wk__session_hook);
  PyObject *result = PyEval_EvalCode(code, globals, globals);
  if (p.expected) wk__hook_remove(interpreter);
  wk__thread.program = outer;
  Py_DECREF(p.regions);
  return result;
}

static PyMethodDef functions[] = {
    {"_run_program", run_program, METH_VARARGS,
     "_run_program(code, globals, make, hot_rounds, quiet_rounds): as exec(), and what is hot is compiled, as "
     "make(function, line, kind)."},
    {0}};

int wk__add_program(PyObject *module) { return PyModule_AddFunctions(module, functions); }
