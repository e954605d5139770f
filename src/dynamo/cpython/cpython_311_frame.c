/* CPython 3.11: a frame's place in its thread, what is kept of code objects, looking into frames and filling them,
 * unwinding, and the hook of PEP 523. The instructions are in cpython_311_step.c. Tests:
 * tests/python/capture/test_evaluator.py.
 *
 * While a frame is evaluated its stacktop is always right, unlike in CPython's own loop: the stack may be looked at in
 * any operation, and the garbage collector, which visits the frames of running generators, sees only what they own. */
#include "dynamo/cpython/cpython_311.h"
#include "dynamo/cpython/gil.h"

const uint8_t wk__cache_units[256] = {
    [BINARY_SUBSCR] = INLINE_CACHE_ENTRIES_BINARY_SUBSCR,
    [STORE_SUBSCR] = INLINE_CACHE_ENTRIES_STORE_SUBSCR,
    [UNPACK_SEQUENCE] = INLINE_CACHE_ENTRIES_UNPACK_SEQUENCE,
    [STORE_ATTR] = INLINE_CACHE_ENTRIES_STORE_ATTR,
    [LOAD_ATTR] = INLINE_CACHE_ENTRIES_LOAD_ATTR,
    [COMPARE_OP] = INLINE_CACHE_ENTRIES_COMPARE_OP,
    [LOAD_GLOBAL] = INLINE_CACHE_ENTRIES_LOAD_GLOBAL,
    [BINARY_OP] = INLINE_CACHE_ENTRIES_BINARY_OP,
    [LOAD_METHOD] = INLINE_CACHE_ENTRIES_LOAD_METHOD,
    [PRECALL] = INLINE_CACHE_ENTRIES_PRECALL,
    [CALL] = INLINE_CACHE_ENTRIES_CALL,
};

/* ---- entering and leaving ---- */

void wk__frame_enter(wk__frame *frame, wk__session *session, PyThreadState *thread, real_frame *real, wk__code *info,
                     bool throwing) {
  int last = _PyInterpreterFrame_LASTI(real);
  *frame = (wk__frame){
      .session = session,
      .real = real,
      .thread = thread,
      .code = real->f_code,
      .info = info,
      .offset = last < 0 ? 0 : last,
      .next = last + 1,
      .throwing = throwing,
  };
  linkage *link = wk__linkage(frame);
  _PyCFrame *previous = thread->cframe;
  link->cframe.use_tracing = previous->use_tracing;
  link->cframe.previous = previous;
  link->cframe.current_frame = real;
  real->previous = previous->current_frame;
  real->is_entry = true;
  thread->cframe = &link->cframe;
  link->linked = true;
  link->counted = _Py_EnterRecursiveCallTstate(thread, "") == 0;
  if (WK_UNLIKELY(!link->counted)) frame->throwing = true;  // RecursionError is set: the first step raises it
}

bool wk__frame_imagine(wk__frame *frame, wk__frame_image *space, wk__session *session, PyObject *function,
                       PyObject *const *args, Py_ssize_t count) {
  enum { NOT_SIMPLE = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR };
  PyFunctionObject *f = (PyFunctionObject *)function;
  PyCodeObject *code = (PyCodeObject *)f->func_code;
  real_frame *real = (real_frame *)space->words;
  Py_ssize_t room = (Py_ssize_t)((sizeof *space - offsetof(real_frame, localsplus)) / sizeof *real->localsplus);
  if (code->co_argcount != count || code->co_kwonlyargcount || code->co_flags & NOT_SIMPLE ||
      code->co_nlocalsplus > room)
    return false;
  *real = (real_frame){.f_func = f,
                       .f_globals = f->func_globals,
                       .f_builtins = f->func_builtins,
                       .f_code = code,
                       .prev_instr = _PyCode_CODE(code) - 1,
                       .stacktop = code->co_nlocalsplus};
  for (int i = 0; i < code->co_nlocalsplus; i++) real->localsplus[i] = i < count ? args[i] : NULL;
  *frame = (wk__frame){.session = session, .real = real, .code = code};
  return true;
}

void wk__frame_exit(wk__frame *frame) {
  linkage *link = wk__linkage(frame);
  if (!link->linked) return;
  link->linked = false;
  if (link->counted) _Py_LeaveRecursiveCallTstate(frame->thread);
  frame->thread->cframe = link->cframe.previous;
  frame->thread->cframe->use_tracing = link->cframe.use_tracing;
}

PyObject *wk__frame_continue(wk__frame *frame) {
  bool refused_entry = !wk__linkage(frame)->counted;
  if (!frame->throwing) frame->real->prev_instr = _PyCode_CODE(frame->code) + frame->next - 1;
  wk__frame_exit(frame);
  return refused_entry ? NULL : _PyEval_EvalFrameDefault(frame->thread, frame->real, frame->throwing);
}

/* CPython's own way in with an exception adds a traceback entry, which is one too many after a re-raise. */
PyObject *wk__frame_continue_raising(wk__frame *frame) {
  if (wk__frame_unwind(frame)) return wk__frame_continue(frame);
  wk__frame_exit(frame);
  return NULL;
}

/* ---- unwinding ---- */

typedef struct handler {
  int target, depth;
  bool push_last; /* where the exception came from goes onto the stack, for RERAISE */
} handler;

static const uint8_t *read_varint(const uint8_t *p, int *out_value) {
  int value = *p & 63;
  while (*p++ & 64) value = (value << 6) | (*p & 63);
  *out_value = value;
  return p;
}

/* The table has (start, size, target, depth * 2 + push_last), sorted by start, disjoint. */
static bool find_handler(PyCodeObject *code, int offset, handler *out_handler) {
  const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(code->co_exceptiontable);
  const uint8_t *end = p + PyBytes_GET_SIZE(code->co_exceptiontable);
  while (p < end) {
    int start, size, depth;
    p = read_varint(p, &start);
    p = read_varint(p, &size);
    p = read_varint(p, &out_handler->target);
    p = read_varint(p, &depth);
    if (start > offset) return false;
    if (offset >= start + size) continue;
    out_handler->depth = depth >> 1;
    out_handler->push_last = depth & 1;
    return true;
  }
  return false;
}

static void pop_to(wk__frame *frame, int depth) {
  real_frame *real = frame->real;
  int bottom = frame->code->co_nlocalsplus + depth;
  frame->dropping++;
  while (real->stacktop > bottom) {
    PyObject *value = real->localsplus[--real->stacktop];
    Py_XDECREF(value);
  }
  frame->dropping--;
}

/* The frame is the thread's current one, so that the thread can be asked for its frame object. */
static void add_traceback(wk__frame *frame) {
  if (_PyFrame_IsIncomplete(frame->real)) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyFrameObject *object = PyThreadState_GetFrame(frame->thread);
  PyErr_Restore(type, value, traceback);
  if (object) PyTraceBack_Here(object);
  Py_XDECREF(object);
}

/* Takes the exception that is set, with its traceback. -> new */
static PyObject *take_exception(void) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyException_SetTraceback(value, traceback ? traceback : Py_None);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return value;
}

/* ---- a tracer or profiler that was turned on while the frame was evaluated is told of what its exceptions do ---- */

/* With the exception put aside; one of the tracer's own takes its place. */
static void tell(wk__frame *frame, Py_tracefunc tracer, PyObject *owner, int event) {
  PyThreadState *thread = frame->thread;
  if (!tracer || thread->tracing) return;
  PyObject *type, *value, *traceback, *argument = NULL;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (event == PyTrace_EXCEPTION) argument = PyTuple_Pack(3, type, value, traceback ? traceback : Py_None);
  PyFrameObject *object = PyThreadState_GetFrame(thread);
  int outer_event = thread->tracing_what, status = -1;
  if (object && (argument || event != PyTrace_EXCEPTION)) {
    thread->tracing_what = event;
    PyThreadState_EnterTracing(thread);
    object->f_lineno = PyFrame_GetLineNumber(object);
    status = tracer(owner, object, event, argument);
    object->f_lineno = 0;
    PyThreadState_LeaveTracing(thread);
    thread->tracing_what = outer_event;
  }
  Py_XDECREF(object);
  Py_XDECREF(argument);
  if (status == 0) {
    PyErr_Restore(type, value, traceback);
  } else {
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
  }
}

static void tell_of_raise(wk__frame *frame) {
  tell(frame, frame->thread->c_tracefunc, frame->thread->c_traceobj, PyTrace_EXCEPTION);
}
static void tell_of_exit(wk__frame *frame) {
  tell(frame, frame->thread->c_tracefunc, frame->thread->c_traceobj, PyTrace_RETURN);
  tell(frame, frame->thread->c_profilefunc, frame->thread->c_profileobj, PyTrace_RETURN);
}

bool wk__frame_unwind(wk__frame *frame) {
  linkage *link = wk__linkage(frame);
  real_frame *real = frame->real;
  frame->keyword_names = NULL;
  if (!link->counted) return false;  // it was never entered
  bool traced = link->cframe.use_tracing != 0;
  if (!link->reraising) {
    add_traceback(frame);
    if (WK_UNLIKELY(traced)) tell_of_raise(frame);
  }
  link->reraising = false;
  handler found;
  if (!find_handler(frame->code, frame->offset, &found)) {
    pop_to(frame, 0);
    if (WK_UNLIKELY(traced)) tell_of_exit(frame);
    return false;
  }
  pop_to(frame, found.depth);
  if (found.push_last) {
    PyObject *last = PyLong_FromLong(_PyInterpreterFrame_LASTI(real));
    if (!last) {
      link->reraising = true;
      return wk__frame_unwind(frame);
    }
    real->localsplus[real->stacktop++] = last;
  }
  real->localsplus[real->stacktop++] = take_exception();
  frame->next = found.target;
  return true;
}

void wk__frame_stand_before_next(wk__frame *frame) {
  frame->offset = frame->next;
  frame->real->prev_instr = _PyCode_CODE(frame->code) + frame->offset;
}

/* ---- looking and filling ---- */

int wk__frame_slot_count(const wk__frame *frame) { return frame->code->co_nlocalsplus; }
PyObject *wk__frame_slot(const wk__frame *frame, int slot) { return frame->real->localsplus[slot]; }
int wk__frame_depth(const wk__frame *frame) { return frame->real->stacktop - frame->code->co_nlocalsplus; }
PyObject *wk__frame_stack(const wk__frame *frame, int from_bottom) {
  return frame->real->localsplus[frame->code->co_nlocalsplus + from_bottom];
}
void wk__frame_put(wk__frame *frame, int index, PyObject *value) {
  Py_XSETREF(frame->real->localsplus[index], Py_NewRef(value));
}
PyObject *wk__frame_globals(const wk__frame *frame) { return frame->real->f_globals; }
PyObject *wk__frame_builtins(const wk__frame *frame) { return frame->real->f_builtins; }
PyObject *wk__frame_locals(const wk__frame *frame) { return frame->real->f_locals; }
PyObject *wk__frame_function(const wk__frame *frame) { return (PyObject *)frame->real->f_func; }
int wk__frame_line(const wk__frame *frame) {
  return PyCode_Addr2Line(frame->code, frame->offset * (int)sizeof(_Py_CODEUNIT));
}
bool wk__frame_is_generator(const wk__frame *frame) { return frame->code->co_flags & CO_GENERATOR; }

static int skip_extended(const wk__code *info, int offset) {
  while (wk__opcode_at(info, offset) == EXTENDED_ARG) offset++;
  return offset;
}
static int before_extended(const wk__code *info, int offset) {
  while (offset > 0 && wk__opcode_at(info, offset - 1) == EXTENDED_ARG) offset--;
  return offset;
}

/* KW_NAMES is followed by PRECALL with its cache entry, and that by CALL. Where it stands, or -1. */
static int keyword_names_before(const wk__code *info, int offset) {
  int opcode = wk__opcode_at(info, skip_extended(info, offset));
  offset = before_extended(info, offset);
  if (opcode == CALL) offset = before_extended(info, offset - 1 - wk__cache_units[PRECALL]);
  if ((opcode != CALL && opcode != PRECALL) || offset == 0) return -1;
  return wk__opcode_at(info, offset - 1) == KW_NAMES ? offset - 1 : -1;
}

bool wk__frame_may_stop_at(const wk__frame *frame, int offset) { return keyword_names_before(frame->info, offset) < 0; }

bool wk__frame_next_only_moves(const wk__frame *frame) { return wk__opcode_at(frame->info, frame->next) == LOAD_FAST; }

/* What KW_NAMES has said, in a frame that is filled behind it. */
static PyObject *keyword_names_at(const wk__frame *frame, int offset) {
  int at = keyword_names_before(frame->info, offset), argument = 0;
  for (int i = at < 0 ? 0 : before_extended(frame->info, at); i <= at; i++)
    argument = argument << 8 | frame->info->units[2 * i + 1];
  return at < 0 ? NULL : PyTuple_GET_ITEM(frame->code->co_consts, argument);
}

void wk__frame_fill(wk__frame *frame, int offset, PyObject **steal_slots, PyObject **steal_stack, int depth) {
  real_frame *real = frame->real;
  pop_to(frame, 0);
  for (int slot = 0; slot < frame->code->co_nlocalsplus; slot++) Py_XSETREF(real->localsplus[slot], steal_slots[slot]);
  for (int i = 0; i < depth; i++) real->localsplus[real->stacktop++] = steal_stack[i];
  frame->offset = frame->next = offset;
  frame->keyword_names = keyword_names_at(frame, offset);
  real->prev_instr = _PyCode_CODE(frame->code) + offset - 1;  // complete from here on, for sys._getframe
}

// clang-format off
#define OPCODES(NAME) \
  NAME(POP_TOP) NAME(PUSH_NULL) NAME(NOP) NAME(UNARY_POSITIVE) NAME(UNARY_NEGATIVE) NAME(UNARY_NOT) \
  NAME(UNARY_INVERT) NAME(BINARY_SUBSCR) NAME(GET_LEN) NAME(MATCH_MAPPING) NAME(MATCH_SEQUENCE) NAME(MATCH_KEYS) \
  NAME(PUSH_EXC_INFO) NAME(CHECK_EXC_MATCH) NAME(CHECK_EG_MATCH) NAME(WITH_EXCEPT_START) NAME(GET_AITER) \
  NAME(GET_ANEXT) NAME(BEFORE_ASYNC_WITH) NAME(BEFORE_WITH) NAME(END_ASYNC_FOR) NAME(STORE_SUBSCR) \
  NAME(DELETE_SUBSCR) NAME(GET_ITER) NAME(GET_YIELD_FROM_ITER) NAME(PRINT_EXPR) NAME(LOAD_BUILD_CLASS) \
  NAME(LOAD_ASSERTION_ERROR) NAME(RETURN_GENERATOR) NAME(LIST_TO_TUPLE) NAME(RETURN_VALUE) NAME(IMPORT_STAR) \
  NAME(SETUP_ANNOTATIONS) NAME(YIELD_VALUE) NAME(ASYNC_GEN_WRAP) NAME(PREP_RERAISE_STAR) NAME(POP_EXCEPT) \
  NAME(STORE_NAME) NAME(DELETE_NAME) NAME(UNPACK_SEQUENCE) NAME(FOR_ITER) NAME(UNPACK_EX) NAME(STORE_ATTR) \
  NAME(DELETE_ATTR) NAME(STORE_GLOBAL) NAME(DELETE_GLOBAL) NAME(SWAP) NAME(LOAD_CONST) NAME(LOAD_NAME) \
  NAME(BUILD_TUPLE) NAME(BUILD_LIST) NAME(BUILD_SET) NAME(BUILD_MAP) NAME(LOAD_ATTR) NAME(COMPARE_OP) \
  NAME(IMPORT_NAME) NAME(IMPORT_FROM) NAME(JUMP_FORWARD) NAME(JUMP_IF_FALSE_OR_POP) NAME(JUMP_IF_TRUE_OR_POP) \
  NAME(POP_JUMP_FORWARD_IF_FALSE) NAME(POP_JUMP_FORWARD_IF_TRUE) NAME(LOAD_GLOBAL) NAME(IS_OP) NAME(CONTAINS_OP) \
  NAME(RERAISE) NAME(COPY) NAME(BINARY_OP) NAME(SEND) NAME(LOAD_FAST) NAME(STORE_FAST) NAME(DELETE_FAST) \
  NAME(POP_JUMP_FORWARD_IF_NOT_NONE) NAME(POP_JUMP_FORWARD_IF_NONE) NAME(RAISE_VARARGS) NAME(GET_AWAITABLE) \
  NAME(MAKE_FUNCTION) NAME(BUILD_SLICE) NAME(JUMP_BACKWARD_NO_INTERRUPT) NAME(MAKE_CELL) NAME(LOAD_CLOSURE) \
  NAME(LOAD_DEREF) NAME(STORE_DEREF) NAME(DELETE_DEREF) NAME(JUMP_BACKWARD) NAME(CALL_FUNCTION_EX) \
  NAME(EXTENDED_ARG) NAME(LIST_APPEND) NAME(SET_ADD) NAME(MAP_ADD) NAME(LOAD_CLASSDEREF) NAME(COPY_FREE_VARS) \
  NAME(RESUME) NAME(MATCH_CLASS) NAME(FORMAT_VALUE) NAME(BUILD_CONST_KEY_MAP) NAME(BUILD_STRING) NAME(LOAD_METHOD) \
  NAME(LIST_EXTEND) NAME(SET_UPDATE) NAME(DICT_MERGE) NAME(DICT_UPDATE) NAME(PRECALL) NAME(CALL) NAME(KW_NAMES) \
  NAME(POP_JUMP_BACKWARD_IF_NOT_NONE) NAME(POP_JUMP_BACKWARD_IF_NONE) NAME(POP_JUMP_BACKWARD_IF_FALSE) \
  NAME(POP_JUMP_BACKWARD_IF_TRUE)
// clang-format on

const char *wk__frame_opcode_name(const wk__frame *frame, int offset) {
#define NAME(opcode) [opcode] = #opcode,
  static const char *const names[256] = {OPCODES(NAME)};
#undef NAME
  const char *name = names[wk__opcode_at(frame->info, skip_extended(frame->info, offset))];
  return name ? name : "CACHE";
}

/* ---- what is kept of an interpreter and of code objects ---- */

typedef struct interpreter {
  Py_ssize_t code_index;        /* of our pointer in co_extra */
  int hooks;                    /* installed and not yet removed */
  wk__frame_hook_fn *otherwise; /* what evaluates frames without the hook */
} interpreter;

static const char capsule_name[] = "wick._C.interpreter";

/* The last interpreter of this thread; ids are never used again, addresses may be. */
static _Thread_local struct {
  int64_t id;
  interpreter *state;
} cached = {.id = -1};

static void free_code(void *pointer) {
  wk__code *info = pointer;
  if (!info) return;
  PyMem_Free(info);
}

static void free_interpreter(PyObject *capsule) { PyMem_Free(PyCapsule_GetPointer(capsule, capsule_name)); }

/* Puts a new record into the interpreter's dictionary. NULL with an exception. */
static interpreter *make_interpreter(PyObject *dict) {
  interpreter *state = PyMem_Calloc(1, sizeof(*state));
  if (!state) return (interpreter *)PyErr_NoMemory();
  PyObject *capsule = PyCapsule_New(state, capsule_name, free_interpreter);
  if (!capsule) {
    PyMem_Free(state);
    return NULL;
  }
  state->otherwise = _PyEval_EvalFrameDefault;
  state->code_index = _PyEval_RequestCodeExtraIndex(free_code);
  if (state->code_index < 0) PyErr_SetString(PyExc_RuntimeError, "no free index for extra data of code objects");
  int status = state->code_index < 0 ? -1 : PyDict_SetItemString(dict, capsule_name, capsule);
  Py_DECREF(capsule);
  return status < 0 ? NULL : state;
}

/* NULL: with an exception when it was to be made. */
static interpreter *find_interpreter(PyInterpreterState *of, bool make) {
  if (WK_LIKELY(cached.id == of->id)) return cached.state;
  PyObject *dict = PyInterpreterState_GetDict(of);
  PyObject *capsule = dict ? PyDict_GetItemString(dict, capsule_name) : NULL;
  interpreter *state = capsule ? PyCapsule_GetPointer(capsule, capsule_name) : NULL;
  if (!state && make) state = dict ? make_interpreter(dict) : (interpreter *)PyErr_NoMemory();
  if (state) cached.id = of->id, cached.state = state;
  return state;
}

wk__code *wk__code_peek(PyCodeObject *code) {
  if (!code->co_extra) return NULL;
  interpreter *state = find_interpreter(_PyInterpreterState_GET(), false);
  void *info = NULL;
  if (state) (void)_PyCode_GetExtra((PyObject *)code, state->code_index, &info);
  return info;
}

static const char *why_unsupported(PyCodeObject *code) {
  if (code->co_flags & CO_COROUTINE) return "a coroutine";
  if (code->co_flags & CO_ASYNC_GENERATOR) return "an asynchronous generator";
  if (code->co_flags & CO_ITERABLE_COROUTINE) return "a generator-based coroutine";
  return NULL;
}

wk__code *wk__code_get(PyCodeObject *code) {
  wk__code *info = wk__code_peek(code);
  if (info) return info;
  interpreter *state = find_interpreter(_PyInterpreterState_GET(), true);
  PyObject *bytes = state ? PyCode_GetCode(code) : NULL;
  if (!bytes) return NULL;
  size_t size = (size_t)PyBytes_GET_SIZE(bytes);
  info = PyMem_Calloc(1, sizeof(*info) + size);
  if (info) {
    info->units = memcpy(info + 1, PyBytes_AS_STRING(bytes), size);
    info->unit_count = (int)(size / sizeof(_Py_CODEUNIT));
    info->unsupported = why_unsupported(code);
  } else {
    PyErr_NoMemory();
  }
  Py_DECREF(bytes);
  if (info && _PyCode_SetExtra((PyObject *)code, state->code_index, info) < 0) {
    free_code(info);
    return NULL;
  }
  return info;
}

/* ---- the hook ---- */

void wk__hook_install(PyInterpreterState *of, wk__frame_hook_fn *hook) {
  interpreter *state = find_interpreter(of, true);
  if (!state) {
    PyErr_Clear();  // without memory nothing is evaluated, which is slower and right
    return;
  }
  if (state->hooks++ > 0) return;
  state->otherwise = _PyInterpreterState_GetEvalFrameFunc(of);
  _PyInterpreterState_SetEvalFrameFunc(of, hook);
}

void wk__hook_remove(PyInterpreterState *of) {
  interpreter *state = find_interpreter(of, false);
  if (state && state->hooks > 0 && --state->hooks == 0) _PyInterpreterState_SetEvalFrameFunc(of, state->otherwise);
}

PyObject *wk__hook_default(PyThreadState *thread, real_frame *real, int throwing) {
  return find_interpreter(thread->interp, false)->otherwise(thread, real, throwing);
}
PyCodeObject *wk__hook_code(real_frame *real) { return real->f_code; }
bool wk__hook_makes_generator(real_frame *real) {
  return real->owner == FRAME_OWNED_BY_THREAD && real->f_code->co_flags & CO_GENERATOR;
}
bool wk__hook_is_generator(real_frame *real) { return real->f_code->co_flags & CO_GENERATOR; }
bool wk__hook_has_requests(PyThreadState *thread) {
  return _Py_atomic_load_relaxed(&thread->interp->ceval.eval_breaker) != 0;
}
bool wk__hook_interrupted(void) {
  if (!_Py_atomic_load_relaxed(&_PyRuntime.ceval.signals_pending) || !wk__gil_is_held() || !PyOS_InterruptOccurred())
    return false;
  PyErr_SetInterrupt(); /* asking has taken it back */
  return true;
}
bool wk__hook_collecting(PyThreadState *thread) { return thread->interp->gc.collecting; }
bool wk__hook_tracing(PyThreadState *thread) { return thread->cframe->use_tracing != 0; }
