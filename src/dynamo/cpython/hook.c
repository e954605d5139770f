/* The hook of PEP 523, and what is kept of an interpreter and of code objects. Tests:
 * tests/python/capture/test_evaluator.py, tests/python/test_interpreters.py. */
#include "dynamo/cpython/version.h"

#include "dynamo/cpython/gil.h"
#include "dynamo/cpython/objects.h"

typedef struct interpreter {
  Py_ssize_t code_index;        /* of our pointer in co_extra */
  int hooks;                    /* installed and not yet removed */
  wk__frame_hook_fn *otherwise; /* what evaluates frames without the hook */
} interpreter;

static const char capsule_name[] = "wick._C.interpreter";

/* The last interpreter of this thread; ids are never used again, addresses may be. */
static WK__THREAD_LOCAL struct {
  int64_t id;
  interpreter *state;
} cached = {.id = -1};

static void free_code(void *pointer) {
  wk__code *info = pointer;
  if (!info) return;
  PyMem_Free(info->watched);
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
  state->code_index = PyUnstable_Eval_RequestCodeExtraIndex(free_code);
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
  if (state) (void)PyUnstable_Code_GetExtra((PyObject *)code, state->code_index, &info);
  return info;
}

static const char *why_unsupported(PyCodeObject *code) {
  if (code->co_flags & CO_COROUTINE) return "a coroutine";
  if (code->co_flags & CO_ASYNC_GENERATOR) return "an asynchronous generator";
  if (code->co_flags & CO_ITERABLE_COROUTINE) return "a generator-based coroutine";
  return NULL;
}

static int find_exit(const wk__instruction *code, int count) {
  int i = count - 1;
  while (i >= 0 && code[i].kind != WK__I_RETURN && code[i].kind != WK__I_RETURN_CONST) i--;
  return i;
}

wk__code *wk__code_get(PyCodeObject *code) {
  wk__code *info = wk__code_peek(code);
  if (info) return info;
  interpreter *state = find_interpreter(_PyInterpreterState_GET(), true);
  PyObject *bytes = state ? PyCode_GetCode(code) : NULL;
  if (!bytes) return NULL;
  int count = (int)(PyBytes_GET_SIZE(bytes) / (Py_ssize_t)sizeof(_Py_CODEUNIT));
  wk__instruction *code_units = NULL;
  info = PyMem_Calloc(1, sizeof(*info) + (size_t)count * sizeof(*code_units));
  if (info) {
    info->code = code_units = (wk__instruction *)(info + 1);
    wk__decode((const uint8_t *)PyBytes_AS_STRING(bytes), count, code_units);
    info->unit_count = count;
    info->exit = find_exit(code_units, count);
    info->unsupported = why_unsupported(code);
  } else {
    PyErr_NoMemory();
  }
  Py_DECREF(bytes);
  if (info && PyUnstable_Code_SetExtra((PyObject *)code, state->code_index, info) < 0) {
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
  wk__thread_uncount_hook(thread, WK__HOOK_COUNTS);
  PyObject *result = find_interpreter(thread->interp, false)->otherwise(thread, real, throwing);
  wk__thread_uncount_hook(thread, -WK__HOOK_COUNTS);
  return result;
}
PyCodeObject *wk__hook_code(real_frame *real) { return wk__real_code(real); }
PyObject *wk__hook_function(real_frame *real) { return (PyObject *)wk__real_function(real); }
bool wk__hook_makes_generator(real_frame *real) {
  return real->owner == FRAME_OWNED_BY_THREAD && wk__hook_is_generator(real);
}
bool wk__hook_is_generator(real_frame *real) { return wk__real_code(real)->co_flags & CO_GENERATOR; }
bool wk__hook_has_requests(PyThreadState *thread) { return wk__thread_has_requests(thread); }
int wk__hook_serve_requests(PyThreadState *thread) { return wk__version_serve_requests(thread); }
bool wk__hook_interrupted(void) {
  if (!wk__signals_wait() || !PyOS_InterruptOccurred()) return false;
  PyErr_SetInterrupt(); /* asking has taken it back */
  return true;
}
bool wk__hook_collecting(PyThreadState *thread) { return thread->interp->gc.collecting; }
bool wk__hook_watched(PyCodeObject *code) { return wk__code_watched(code); }
bool wk__hook_tracing(PyThreadState *thread) { return wk__thread_traced(thread); }
