/* The evaluator by itself, the simplest loop around wk__frame_step: calls a function with the hook installed and
 * evaluates its frames, with nothing recorded. For tests/python/capture/test_evaluator.py and test_corpus.py. */
#include "dynamo/cpython/frames.h"
#include "ext.h"

/* A frame between two instructions; all references owned. */
typedef struct state {
  int offset, slot_count, depth;
  PyObject **slots, **stack; /* (slot_count), (depth): one allocation */
} state;

typedef struct evaluation {
  PyCodeObject *code; /* borrowed: frames of it are counted and switched */
  bool nested;        /* the frames of other code are evaluated too */
  bool started;       /* the first frame of `code` has been entered */
  bool refill;        /* a switch goes on in a fresh frame, filled with the state of the one that is left */
  const state *saved; /* what the next frame of `code` is to be filled with; NULL */
  long long switch_after, steps;
} evaluation;

static _Thread_local evaluation *current; /* of this thread; NULL outside of _dynamo_evaluate */

static bool is_over(const evaluation *now, bool counted) {
  return counted && now->switch_after >= 0 && now->steps >= now->switch_after;
}

/* ---- going on in a fresh frame, as replay does ---- */

static int save_state(const wk__frame *frame, state *out_state) {
  int slot_count = wk__frame_slot_count(frame), depth = wk__frame_depth(frame);
  *out_state = (state){.offset = frame->next, .slot_count = slot_count, .depth = depth};
  if (!(out_state->slots = PyMem_New(PyObject *, slot_count + depth))) {
    PyErr_NoMemory();
    return -1;
  }
  out_state->stack = out_state->slots + slot_count;
  for (int i = 0; i < slot_count; i++) out_state->slots[i] = Py_XNewRef(wk__frame_slot(frame, i));
  for (int i = 0; i < depth; i++) out_state->stack[i] = Py_XNewRef(wk__frame_stack(frame, i));
  return 0;
}

/* Any arguments that the signature takes: they are replaced. */
static PyObject *call_with_anything(wk__frame *frame) {  // -> new
  PyCodeObject *code = frame->code;
  PyObject *args = PyTuple_New(code->co_argcount), *keywords = PyDict_New(), *result = NULL;
  bool made = args && keywords;
  for (int i = 0; made && i < code->co_argcount; i++) PyTuple_SET_ITEM(args, i, Py_NewRef(Py_None));
  for (int i = 0; made && i < code->co_kwonlyargcount; i++) {
    PyObject *name = PyTuple_GET_ITEM(code->co_localsplusnames, code->co_argcount + i);
    made = PyDict_SetItem(keywords, name, Py_None) == 0;
  }
  if (made) result = PyObject_Call(wk__frame_function(frame), args, keywords);
  Py_XDECREF(args);
  Py_XDECREF(keywords);
  return result;
}

static PyObject *continue_in_fresh_frame(evaluation *now, wk__frame *frame) {  // -> new
  state saved;
  if (save_state(frame, &saved) < 0) return NULL;
  now->saved = &saved;
  PyObject *result = call_with_anything(frame);
  now->saved = NULL;
  PyMem_Free(saved.slots);  // what it held is the fresh frame's
  return result;
}

/* Class bodies have their names in a mapping that a call cannot give, generators are not entered by a call. */
static bool can_refill(const wk__frame *frame) {
  return (frame->code->co_flags & CO_OPTIMIZED) && !wk__frame_is_generator(frame) && !wk__hook_tracing(frame->thread);
}

static PyObject *leave(evaluation *now, wk__frame *frame) {  // -> new
  bool refill = now->refill && is_over(now, frame->code == now->code) && can_refill(frame);
  return refill ? continue_in_fresh_frame(now, frame) : wk__frame_continue(frame);
}

static PyObject *run_saved(evaluation *now, wk__frame *frame) {  // -> new
  const state *saved = now->saved;
  now->saved = NULL;
  wk__frame_fill(frame, saved->offset, saved->slots, saved->stack, saved->depth);
  return wk__frame_continue(frame);
}

/* ---- the loop ---- */

/* Until the frame returns, yields or raises, or CPython goes on with it. -> new */
static PyObject *run(evaluation *now, wk__frame *frame, bool counted) {
  for (;;) {
    bool stop = is_over(now, counted) || wk__hook_tracing(frame->thread);
    if (stop && wk__frame_may_stop_at(frame, frame->next)) return leave(now, frame);
    wk__step step = wk__frame_step(frame);
    if (step == WK__STEP_UNKNOWN) return wk__frame_continue(frame);
    if (step == WK__STEP_REFUSED) {
      PyErr_Format(PyExc_SystemError, "%s in line %d refused with nothing recorded",
                   wk__frame_opcode_name(frame, frame->offset), wk__frame_line(frame));
      step = WK__STEP_RAISE;
    }
    now->steps += counted;
    if (step == WK__STEP_RETURN || step == WK__STEP_YIELD) return frame->result;
    if (step == WK__STEP_RAISE && !wk__frame_unwind(frame)) return NULL;
  }
}

/* An exception that is being thrown into a generator must survive. */
static wk__code *code_record(PyCodeObject *code) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  wk__code *info = wk__code_get(code);
  PyErr_Restore(type, value, traceback);
  return info && !info->unsupported ? info : NULL;
}

static PyObject *hook(PyThreadState *thread, struct _PyInterpreterFrame *real, int throwing) {  // -> new
  evaluation *now = current;
  if (!now || wk__hook_tracing(thread)) return wk__hook_default(thread, real, throwing);
  PyCodeObject *code = wk__hook_code(real);
  bool counted = code == now->code;
  now->started |= counted;
  bool wanted = counted ? !is_over(now, true) || now->saved : now->nested && now->started;
  wk__code *info = wanted ? code_record(code) : NULL;
  if (!info) return wk__hook_default(thread, real, throwing);
  wk__frame frame;
  wk__frame_enter(&frame, NULL, thread, real, info, throwing);
  PyObject *result = counted && now->saved ? run_saved(now, &frame) : run(now, &frame, counted);
  return wk__frame_exit(&frame, result);
}

/* _dynamo_evaluate(function, args, kwargs={}, switch_after=-1, *, nested=False, code=None, refill=False)
 * -> (result, steps)
 * Calls the function; the frames of its code (or of `code`) are evaluated, and left to CPython after that many
 * instructions in all, -1: never. nested: so are, without limit, all others that are entered from here on. refill: what
 * is left goes on in a fresh frame of the same function that is filled with its state, where that can be done. */
static PyObject *dynamo_evaluate(PyObject *module, PyObject *args, PyObject *keywords) {
  static char *names[] = {"function", "args", "kwargs", "switch_after", "nested", "code", "refill", NULL};
  (void)module;
  PyObject *function, *function_args, *function_keywords = NULL, *code = Py_None;
  long long switch_after = -1;
  int nested = 0, refill = 0;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO!|O!L$pOp:_dynamo_evaluate", names, &function, &PyTuple_Type,
                                   &function_args, &PyDict_Type, &function_keywords, &switch_after, &nested, &code,
                                   &refill)) {
    return NULL;
  }
  if (code == Py_None && PyFunction_Check(function)) code = PyFunction_GET_CODE(function);
  if (!PyCode_Check(code)) return PyErr_Format(PyExc_TypeError, "a function or code= is needed, not %R", function);
  evaluation now = {.code = (PyCodeObject *)code, .nested = nested, .refill = refill, .switch_after = switch_after};
  evaluation *outer = current;
  PyInterpreterState *interpreter = PyInterpreterState_Get();
  current = &now;
  wk__hook_install(interpreter, hook);
  PyObject *result = PyObject_Call(function, function_args, function_keywords);
  wk__hook_remove(interpreter);
  current = outer;
  return result ? Py_BuildValue("NL", result, now.steps) : NULL;
}

static PyMethodDef functions[] = {
    {"_dynamo_evaluate", (PyCFunction)(void (*)(void))dynamo_evaluate, METH_VARARGS | METH_KEYWORDS,
     "Calls a function with its frames evaluated by wick, not by Python's own loop."},
    {0}};

int wk__add_evaluator(PyObject *module) { return PyModule_AddFunctions(module, functions); }
