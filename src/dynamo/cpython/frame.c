/* A frame's place in its thread; looking into frames and filling them. What differs between versions of CPython is in
 * version_3XX.h, the instructions are in step.c, exceptions in unwind.c, the hook of PEP 523 in hook.c. Tests:
 * tests/python/capture/test_evaluator.py.
 *
 * While a frame is evaluated its stacktop is always right, unlike in CPython's own loop: the stack may be looked at in
 * any operation, and the garbage collector, which visits the frames of running generators, sees only what they own. */
#include "dynamo/cpython/version.h"

/* ---- entering and leaving ---- */

void wk__frame_link(wk__frame *frame) {
  wk__linkage *link = wk__linkage_of(frame);
  wk__thread_link(frame);
  link->linked = true;
  link->counted = wk__thread_count(frame->thread);
  if (WK_UNLIKELY(!link->counted)) frame->throwing = true;  // RecursionError is set: the first step raises it
}

void wk__frame_enter(wk__frame *frame, wk__session *session, PyThreadState *thread, real_frame *real, wk__code *info,
                     bool throwing) {
  *frame = (wk__frame){.session = session,
                       .real = real,
                       .thread = thread,
                       .code = wk__real_code(real),
                       .info = info,
                       .throwing = throwing};
  wk__real_position(real, throwing, &frame->offset, &frame->next);
  wk__frame_link(frame);
}

bool wk__frame_imagine(wk__frame *frame, wk__frame_image *space, wk__session *session, PyObject *function,
                       PyObject *const *args, Py_ssize_t count) {
  enum { NOT_SIMPLE = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR };
  PyFunctionObject *f = (PyFunctionObject *)function;
  PyCodeObject *code = (PyCodeObject *)f->func_code;
  real_frame *real = (real_frame *)space->words;  // cppcheck-suppress ctuuninitvar
  Py_ssize_t room = (Py_ssize_t)((sizeof *space - offsetof(real_frame, localsplus)) / sizeof *real->localsplus);
  if (code->co_argcount != count || code->co_kwonlyargcount || code->co_flags & NOT_SIMPLE ||
      code->co_nlocalsplus > room)
    return false;
  wk__real_imagine(real, f, code);
  for (int i = 0; i < code->co_nlocalsplus; i++) real->localsplus[i] = i < count ? args[i] : NULL;
  *frame = (wk__frame){.session = session, .real = real, .code = code};
  return true;
}

void wk__frame_unlink(wk__frame *frame) {
  wk__linkage *link = wk__linkage_of(frame);
  link->linked = false;
  if (link->counted) wk__thread_uncount(frame->thread);
  wk__thread_unlink(frame);
}

PyObject *wk__frame_exit(wk__frame *frame, PyObject *steal_result) {
  wk__linkage *link = wk__linkage_of(frame);
  if (!link->linked) return steal_result;  // CPython has gone on with it, to its end
  wk__frame_unlink(frame);
  if (!link->yielded) return wk__version_clear(frame, steal_result);
  wk__real_suspended(frame);
  return steal_result;
}

static PyObject *go_on(wk__frame *frame) {  // -> new
  wk__frame_unlink(frame);
  wk__thread_uncount_hook(frame->thread, WK__HOOK_COUNTS);
  PyObject *result = _PyEval_EvalFrameDefault(frame->thread, frame->real, frame->throwing);
  wk__thread_uncount_hook(frame->thread, -WK__HOOK_COUNTS);
  return result;
}

/* What comes next was to be given a bool, and has what the comparison in front of it gave. */
static bool wants_bool(const wk__frame *frame) {
  int kind = frame->info->code[frame->next].kind;
  return kind == WK__I_POP_JUMP_IF_FALSE || kind == WK__I_POP_JUMP_IF_TRUE || kind == WK__I_UNARY_NOT;
}
static int make_bool(wk__frame *frame) {
  PyObject **top = &frame->real->localsplus[frame->real->stacktop - 1], *value = *top;
  if (PyBool_Check(value)) return 0;
  int truth = PyObject_IsTrue(value);
  if (truth < 0) return -1;
  *top = Py_NewRef(truth ? Py_True : Py_False);
  Py_DECREF(value);
  return 0;
}

PyObject *wk__frame_continue(wk__frame *frame) {
  if (!wk__linkage_of(frame)->counted) return wk__frame_exit(frame, NULL);
  if (frame->throwing) return go_on(frame);
  if (WK__JUMPS_WANT_BOOLS && wants_bool(frame) && make_bool(frame) < 0) {
    wk__frame_stand_before_next(frame);
    return wk__frame_continue_raising(frame);
  }
  wk__real_go_on_at(frame, frame->next);
  return go_on(frame);
}

/* CPython's own way in with an exception adds a traceback entry, which is one too many after a re-raise. */
PyObject *wk__frame_continue_raising(wk__frame *frame) {
  return wk__frame_unwind(frame) ? wk__frame_continue(frame) : wk__frame_exit(frame, NULL);
}

void wk__frame_stand_before_next(wk__frame *frame) {
  frame->offset = frame->next;
  wk__real_stand_at(frame, frame->offset);
}

/* ---- looking and filling ---- */

int wk__frame_slot_count(const wk__frame *frame) { return frame->code->co_nlocalsplus; }
PyObject *wk__frame_slot(const wk__frame *frame, int slot) { return frame->real->localsplus[slot]; }
bool wk__frame_shows_slot(const wk__frame *frame, int slot) {
#ifdef CO_FAST_HIDDEN
  return !(_PyLocals_GetKind(frame->code->co_localspluskinds, slot) & CO_FAST_HIDDEN);
#else
  return frame && slot >= 0;
#endif
}
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
PyObject *wk__frame_function(const wk__frame *frame) { return (PyObject *)wk__real_function(frame->real); }
int wk__line_in_code(PyCodeObject *code, int offset) {
  int line = PyCode_Addr2Line(code, offset * (int)sizeof(_Py_CODEUNIT));
  return line < 0 ? code->co_firstlineno : line; /* the instructions in front of the first line have none */
}
int wk__frame_line(const wk__frame *frame) { return wk__line_in_code(frame->code, frame->offset); }
bool wk__frame_is_generator(const wk__frame *frame) { return frame->code->co_flags & CO_GENERATOR; }
bool wk__frame_is_shown(const wk__frame *frame) {
  return wk__linkage_of((wk__frame *)frame)->linked && !_PyFrame_IsIncomplete(frame->real);
}
const char *wk__frame_opcode_name(const wk__frame *frame, int offset) {
  return wk__opcode_name(frame->info->code[offset].opcode);
}

/* Where the KW_NAMES stands whose call is made of the instruction at `offset`; -1. */
static int keyword_names_before(const wk__instruction *code, int offset) {
  if (code[offset].kind != WK__I_CALL && code[offset].kind != WK__I_PRECALL) return -1;
  while (offset > 0 && code[offset - 1].kind == WK__I_PRECALL) offset--;
  return offset > 0 && code[offset - 1].kind == WK__I_KW_NAMES ? offset - 1 : -1;
}

bool wk__frame_may_stop_at(const wk__frame *frame, int offset) {
  return keyword_names_before(frame->info->code, offset) < 0;
}

/* A jump leads out of it, or it does something that lasts. */
static bool may_stand_in_front_of_raise(wk__instruction_kind kind) {
  switch (kind) {
    case WK__I_NOP:
    case WK__I_PRECALL:
    case WK__I_PUSH_NULL:
    case WK__I_COPY:
    case WK__I_SWAP:
    case WK__I_LOAD_FAST:
    case WK__I_LOAD_FAST_2:
    case WK__I_LOAD_FAST_OR_CELL:
    case WK__I_LOAD_CONST:
    case WK__I_LOAD_GLOBAL:
    case WK__I_LOAD_DEREF:
    case WK__I_LOAD_ATTR:
    case WK__I_LOAD_METHOD:
    case WK__I_LOAD_ITEM:
    case WK__I_LOAD_SLICE:
    case WK__I_LOAD_ASSERTION_ERROR:
    case WK__I_UNARY:
    case WK__I_BINARY:
    case WK__I_COMPARE:
    case WK__I_FORMAT:
    case WK__I_CONVERT:
    case WK__I_KW_NAMES:
    case WK__I_CALL:
    case WK__I_CALL_KW:
    case WK__I_BUILD_TUPLE:
    case WK__I_BUILD_LIST:
    case WK__I_BUILD_STRING:
      return true;
    default:
      return false;
  }
}

static const wk__instruction *behind(const wk__instruction *i) { return i + i->width; }

/* What begins there does nothing but raise. */
static bool only_raises(const wk__instruction *i) {
  enum { MOST = 64 };
  for (int n = 0; n < MOST && may_stand_in_front_of_raise((wk__instruction_kind)i->kind); n++) i = behind(i);
  return i->kind == WK__I_RAISE;
}

/* In a loop the way that goes on is a jump back, which stands behind a branch to the other way from CPython 3.12 on. */
bool wk__frame_branch_raises(const wk__frame *f, wk__raising_branch *out) {
  const wk__instruction *code = f->info->code, *i = &code[f->offset];
  if (i->kind == WK__I_TO_BOOL) i = behind(i);
  if (i->kind != WK__I_POP_JUMP_IF_TRUE && i->kind != WK__I_POP_JUMP_IF_FALSE) return false;
  const wk__instruction *first = behind(i), *target = first + i->argument;
  bool jumps_if = i->kind == WK__I_POP_JUMP_IF_TRUE, raises_at_target = !only_raises(first);
  if (raises_at_target && !only_raises(target)) return false;
  *out = (wk__raising_branch){.goes_on_if = jumps_if != raises_at_target};
  if (raises_at_target) first = target;
  const wk__instruction *text = behind(first);
  if (first->kind != WK__I_LOAD_ASSERTION_ERROR || text->kind != WK__I_LOAD_CONST) return true;
  PyObject *constant = PyTuple_GET_ITEM(f->code->co_consts, text->argument);
  if (PyUnicode_Check(constant)) out->message = constant;
  return true;
}

bool wk__frame_next_only_moves(const wk__frame *frame) {
  int kind = frame->info->code[frame->next].kind;
  return kind == WK__I_LOAD_FAST || kind == WK__I_LOAD_FAST_OR_CELL || kind == WK__I_LOAD_FAST_2;
}

int wk__frame_next_lets_go(const wk__frame *frame, int out_slots[2]) {
  const wk__instruction *next = &frame->info->code[frame->next];
  switch (next->kind) {
    case WK__I_RETURN:
    case WK__I_RETURN_CONST:
      return -1;
    case WK__I_STORE_FAST:
    case WK__I_DELETE_FAST:
      out_slots[0] = next->argument;
      return 1;
    case WK__I_STORE_FAST_LOAD_FAST:
    case WK__I_STORE_FAST_2:
      out_slots[0] = wk__first_of_two(next->argument);
      out_slots[1] = wk__second_of_two(next->argument);
      return next->kind == WK__I_STORE_FAST_2 ? 2 : 1;
    default:
      return 0;
  }
}

bool wk__frame_next_ends_handler(const wk__frame *frame) {
  return frame->info->code[frame->next].kind == WK__I_POP_EXCEPT;
}

static bool loads_slot(const wk__instruction *i, int slot) {
  bool two = i->kind == WK__I_LOAD_FAST_2;
  if (two) return wk__first_of_two(i->argument) == slot || wk__second_of_two(i->argument) == slot;
  if (i->kind == WK__I_STORE_FAST_LOAD_FAST) return wk__second_of_two(i->argument) == slot;
  bool one = i->kind == WK__I_LOAD_FAST || i->kind == WK__I_LOAD_FAST_OR_CELL || i->kind == WK__I_TAKE_FAST;
  return (one || i->kind == WK__I_LOAD_CLOSURE) && i->argument == slot;
}

/* It asks for variables by their names, as locals() does. */
static bool loads_all(const wk__frame *frame) {
  static const char *const names[] = {"locals", "vars", "eval", "exec", "_getframe"};
  PyObject *all = frame->code->co_names;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(all); i++)
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
      if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(all, i), names[n]) == 0) return true;
  return false;
}

/* Code lies in the order of its statements: only a jump back leads to what stands in front. */
bool wk__frame_slot_is_done(const wk__frame *frame, int slot) {
  const wk__instruction *code = frame->info->code, *next = &code[frame->next];
  if (next->kind == WK__I_STORE_FAST && next->argument == slot) return true;
  const wk__instruction *end = code + Py_SIZE(frame->code);
  for (const wk__instruction *i = next; i < end; i = behind(i)) {
    bool jumps_back = (i->kind >= WK__I_JUMP && i->kind <= WK__I_JUMP_IF_TRUE_OR_POP) && i->argument < 0;
    if (loads_slot(i, slot) || jumps_back) return false;
  }
  return !loads_all(frame);
}

/* What KW_NAMES has said, in a frame that is filled behind it. */
static PyObject *keyword_names_at(const wk__frame *frame, int offset) {
  const wk__instruction *code = frame->info->code;
  int at = keyword_names_before(code, offset);
  return at < 0 ? NULL : PyTuple_GET_ITEM(frame->code->co_consts, code[at].argument);
}

bool wk__frame_is_kept(const wk__frame *frame) {
  const PyObject *object = (PyObject *)frame->real->frame_obj;
  return object && Py_REFCNT(object) > 1;
}

void wk__frame_let_go(wk__frame *frame, const bool *slots, int count) {
  if (!wk__frame_is_kept(frame)) return;  // what is left dies in CPython's order
  wk__frame_pop_to(frame, 0);
  frame->dropping++;
  for (int i = 0; i < count; i++)
    if (slots[i]) Py_CLEAR(frame->real->localsplus[i]);
  frame->dropping--;
}

void wk__frame_fill(wk__frame *frame, int offset, PyObject **steal_slots, PyObject **steal_stack, int depth) {
  real_frame *real = frame->real;
  wk__frame_pop_to(frame, 0);
  for (int slot = 0; slot < frame->code->co_nlocalsplus; slot++) Py_XSETREF(real->localsplus[slot], steal_slots[slot]);
  for (int i = 0; i < depth; i++) real->localsplus[real->stacktop++] = steal_stack[i];
  frame->offset = frame->next = offset;
  frame->keyword_names = keyword_names_at(frame, offset);
  wk__real_go_on_at(frame, offset);  // complete from here on, for sys._getframe
}
