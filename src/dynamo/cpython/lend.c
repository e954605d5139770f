/* A loop of an evaluated frame is left to CPython's loop, at its full speed, and taken back.
 *
 * CPython's loop runs a frame until it returns. So the frame gets, for this time, a code object of its own, equal in
 * all but this: what stands outside of the loop is an opcode that leaves CPython's loop at once (3.11: RETURN_VALUE,
 * which leaves the clearing of the frame to its caller; from 3.12 on INTERPRETER_EXIT, which CPython has for its own
 * outermost frames). Slots and stack stay where they are, and how deep the stack is at an instruction is known from the
 * code. No other frame runs that code object, so that it may be changed while it runs: that is how the loop is asked
 * back.
 *
 * In: a frame in front of an instruction of the loop. Out: the same in front of one outside of it, or at its first one.
 * Invariant: the bytes of instructions in the loop are the program's. Tests: tests/python/capture/test_evaluator.py. */
#include "dynamo/cpython/version.h"

struct wk__lent {
  PyCodeObject *code; /* owned */
  int16_t at[];       /* (count) the stack's depth in front of the instruction there; NOWHERE */
};
enum { NOWHERE = -1, SECOND = -2 /* of two that leave */ };

/* ================================================ loops in code ================================================== */

static bool is_jump(int kind) {
  switch (kind) {
    case WK__I_JUMP:
    case WK__I_JUMP_AND_SERVE:
    case WK__I_POP_JUMP_IF_FALSE:
    case WK__I_POP_JUMP_IF_TRUE:
    case WK__I_POP_JUMP_IF_NONE:
    case WK__I_POP_JUMP_IF_NOT_NONE:
    case WK__I_JUMP_IF_FALSE_OR_POP:
    case WK__I_JUMP_IF_TRUE_OR_POP:
    case WK__I_FOR_ITER:
      return true;
    default:
      return false;
  }
}

int wk__code_width(const wk__code *info, int offset) { return info->code[offset].width; }

/* A display's own items have its object right below them: between it and a comprehension's there is the iterator. */
bool wk__code_collects(const wk__code *info, int offset) {
  const wk__instruction *i = &info->code[offset];
  bool adds = i->kind == WK__I_LIST_APPEND || i->kind == WK__I_SET_ADD || i->kind == WK__I_MAP_ADD;
  return adds && i->argument > 1;
}

bool wk__code_jumps_back(const wk__code *info, int offset, int *out_target) {
  const wk__instruction *i = &info->code[offset];
  if (!is_jump(i->kind) || i->argument >= 0) return false;
  *out_target = offset + i->width + i->argument;
  return true;
}

/* From 3.12 on handlers lie behind all else, and go back into the loops that they belong to. */
static int first_handler(PyCodeObject *code, int count) {
  const uint8_t *end, *p = wk__exception_table(code, &end);
  wk__handler_entry e;
  int first = count;
  while (WK__HANDLERS_LAST && p < end) {
    p = wk__read_handler_entry(p, &e);
    if (e.target < first) first = e.target;
  }
  return first;
}

int wk__code_loop_end(PyCodeObject *code, const wk__code *info, int head) {
  const wk__instruction *first = &info->code[head];
  if (first->kind == WK__I_FOR_ITER) return head + first->width + first->argument;
  int last = first_handler(code, info->unit_count), end = head + first->width, target;
  for (int i = head; i < last; i += info->code[i].width)
    if (wk__code_jumps_back(info, i, &target) && target == head) end = i + info->code[i].width;
  return end;
}

/* ============================================= how deep the stack is ============================================= */

typedef struct walk {
  const uint8_t *units;
  const wk__code *info;
  int16_t *at;
  int *waiting, waiting_count;
} walk;

static bool reach(walk *w, int offset, int depth) {
  if (offset < 0 || offset >= w->info->unit_count || depth < 0 || depth > INT16_MAX) return false;
  if (w->at[offset] != NOWHERE) return true;
  w->at[offset] = (int16_t)depth;
  w->waiting[w->waiting_count++] = offset;
  return true;
}

static bool ends(int kind) {
  return kind == WK__I_RETURN || kind == WK__I_RETURN_CONST || kind == WK__I_RAISE || kind == WK__I_RERAISE ||
         kind == WK__I_JUMP || kind == WK__I_JUMP_AND_SERVE;
}

static bool follow(walk *w, int offset) {
  int at = offset, argument = w->units[2 * at + 1];
  for (; w->units[2 * at] == EXTENDED_ARG; at++) argument = argument << 8 | w->units[2 * at + 3];
  int opcode = w->units[2 * at], next = at + 1 + wk__opcode_caches(opcode), depth = w->at[offset];
  const wk__instruction *i = &w->info->code[offset];
  int given = opcode < HAVE_ARGUMENT ? 0 : argument;
  if (is_jump(i->kind)) {
    bool iterates = i->kind == WK__I_FOR_ITER;
    int change = iterates ? -1 : PyCompile_OpcodeStackEffectWithJump(opcode, given, 1);
    if (!reach(w, offset + i->width + i->argument, depth + change)) return false;
  }
  if (ends(i->kind)) return true;
  return reach(w, next, depth + PyCompile_OpcodeStackEffectWithJump(opcode, given, 0));
}

static bool reach_handlers(walk *w, PyCodeObject *code) {
  const uint8_t *end, *p = wk__exception_table(code, &end);
  wk__handler_entry e;
  while (p < end) {
    p = wk__read_handler_entry(p, &e);
    if (!reach(w, e.target, e.depth + e.push_last + 1)) return false;
  }
  return true;
}

static bool find_depths(PyCodeObject *code, const wk__code *info, const uint8_t *units, int16_t *at) {
  walk w = {.units = units, .info = info, .at = at};
  for (int i = 0; i <= info->unit_count; i++) at[i] = NOWHERE;
  if (!(w.waiting = PyMem_New(int, info->unit_count + 1))) return false;
  bool found = reach(&w, 0, 0) && reach_handlers(&w, code);
  while (found && w.waiting_count) found = follow(&w, w.waiting[--w.waiting_count]);
  PyMem_Free(w.waiting);
  return found;
}

/* ================================================== the code object ============================================== */

/* What the opcode takes is not given back, so it has to be there: the stack's top, a variable, or, where there is
 * neither, a constant that an instruction before it puts there, if there is room for two. */
static bool leave_at(PyCodeObject *code, uint8_t *units, int16_t *at, int offset, bool room) {
  bool bare = !at[offset] && !code->co_nlocalsplus;
  if (bare && (!room || !PyTuple_GET_SIZE(code->co_consts))) return false;
  units[2 * offset] = bare ? LOAD_CONST : WK__LEAVING_OPCODE;
  units[2 * offset + 1] = 0;
  if (!bare) return true;
  units[2 * offset + 2] = WK__LEAVING_OPCODE;
  units[2 * offset + 3] = 0;
  at[offset + 1] = SECOND;
  return true;
}

static bool returns(int kind) { return kind == WK__I_RETURN || kind == WK__I_RETURN_CONST; }

static PyObject *with_bytes(PyCodeObject *code, PyObject *bytes) {  // -> new
  PyObject *replace = PyObject_GetAttrString((PyObject *)code, "replace"), *none = PyTuple_New(0);
  PyObject *named = Py_BuildValue("{sO}", "co_code", bytes), *made = NULL;
  if (replace && none && named) made = PyObject_Call(replace, none, named);
  Py_XDECREF(replace);
  Py_XDECREF(none);
  Py_XDECREF(named);
  return made;
}

/* Marks what an instruction of the loop leads to. */
static void mark_ways_out(const wk__code *info, int offset, bool *out_exits) {
  const wk__instruction *i = &info->code[offset];
  int next = offset + i->width;
  if (is_jump(i->kind)) out_exits[next + i->argument] = true;
  if (!ends(i->kind) && next < info->unit_count) out_exits[next] = true;
  if (returns(i->kind)) out_exits[offset] = true;
}

/* The instructions outside that the loop leads to, and ends of the function inside. */
static void mark_exits(PyCodeObject *code, const wk__code *info, const int16_t *at, int begin, int end,
                       bool *out_exits) {
  const uint8_t *table_end, *p = wk__exception_table(code, &table_end);
  wk__handler_entry e;
  for (int i = begin; i < end; i++)
    if (at[i] >= 0) mark_ways_out(info, i, out_exits);
  while (p < table_end) {
    p = wk__read_handler_entry(p, &e);
    if (e.start < end && e.start + e.size > begin) out_exits[e.target] = true;
  }
  for (int i = begin; i < end; i++) out_exits[i] &= at[i] >= 0 && returns(info->code[i].kind);
}

static bool cut_out(PyCodeObject *code, const wk__code *info, uint8_t *units, wk__lent *lent, int begin, int end) {
  bool *exits = PyMem_Calloc((size_t)info->unit_count + 1, sizeof *exits), done = exits != NULL;
  if (exits) mark_exits(code, info, lent->at, begin, end, exits);
  for (int i = 0; done && i < info->unit_count; i++) {
    if (!exits[i]) continue;
    bool inside = i + 1 >= begin && i + 1 < end, taken = exits[i + 1] || inside || i + 1 == info->unit_count;
    done = leave_at(code, units, lent->at, i, !taken);
  }
  PyMem_Free(exits);
  return done;
}

wk__lent *wk__lent_create(PyCodeObject *code, int begin, int end) {
  wk__code *info = wk__code_get(code);
  PyObject *bytes = info ? PyCode_GetCode(code) : NULL, *copy = NULL;
  Py_ssize_t size = bytes ? PyBytes_GET_SIZE(bytes) : 0;
  wk__lent *lent = bytes ? PyMem_Malloc(sizeof *lent + (size_t)(info->unit_count + 1) * sizeof *lent->at) : NULL;
  if (lent) {
    const uint8_t *units = (const uint8_t *)PyBytes_AS_STRING(bytes);
    *lent = (wk__lent){0};
    bool done = find_depths(code, info, units, lent->at) && lent->at[begin] != NOWHERE;
    copy = done ? PyBytes_FromStringAndSize((const char *)units, size) : NULL;
    done = copy && cut_out(code, info, (uint8_t *)PyBytes_AS_STRING(copy), lent, begin, end);
    lent->code = done ? (PyCodeObject *)with_bytes(code, copy) : NULL;
  }
  PyErr_Clear();
  Py_XDECREF(copy);
  Py_XDECREF(bytes);
  if (lent && lent->code) return lent;
  PyMem_Free(lent);
  return NULL;
}

void wk__lent_release(wk__lent *lent) {
  if (!lent) return;
  Py_DECREF(lent->code);
  PyMem_Free(lent);
}

void wk__lent_ask_back(wk__lent *lent, int offset) {
  uint8_t *units = (uint8_t *)_PyCode_CODE(lent->code);
  (void)leave_at(lent->code, units, lent->at, offset, lent->at[offset + 1] == NOWHERE);
}

/* ==================================================== the frame ================================================== */

/* The code object's place of a pointer into the other one's. */
static void change_code(wk__frame *f, PyCodeObject *to, int offset) {
  wk__real_set_code(f->real, to);
  f->code = to;
  wk__real_stand_at(f, offset);
}

bool wk__frame_lend(wk__frame *f, wk__lent *lent) {
  PyCodeObject *own = f->code;
  real_frame *current;
  change_code(f, (PyCodeObject *)Py_NewRef(lent->code), 0);
  wk__real_go_on_at(f, f->next);
  wk__frame_unlink(f);
  current = wk__thread_current(f->thread);
  wk__thread_uncount_hook(f->thread, WK__HOOK_COUNTS);
  PyObject *taken = _PyEval_EvalFrameDefault(f->thread, f->real, 0);
  wk__thread_uncount_hook(f->thread, -WK__HOOK_COUNTS);
  bool raised = !taken && PyErr_Occurred();
  if (raised && !WK__RAISING_KEEPS_FRAME) {
    Py_DECREF(own);
    f->code = own;
    return false;
  }
  int at = _PyInterpreterFrame_LASTI(f->real);
  if (lent->at[at] == SECOND) {
    Py_DECREF(taken);
    at--;
  }
  change_code(f, own, at);
  Py_DECREF(lent->code);
  if (raised) return false;
  wk__thread_take_back(f, current);
  f->offset = f->next = at;
  f->real->stacktop = own->co_nlocalsplus + lent->at[at];
  wk__frame_link(f);
  return true;
}
