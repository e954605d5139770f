/* Exceptions in a frame: the traceback entry, the handler of the frame, and what CPython's loop does to the stack on
 * the way there. Tests: tests/python/capture/test_evaluator.py. */
#include "dynamo/cpython/version.h"

#include "dynamo/capture/operations.h"

static const uint8_t *read_varint(const uint8_t *p, int *out_value) {
  int value = *p & 63;
  while (*p++ & 64) value = (value << 6) | (*p & 63);
  *out_value = value;
  return p;
}

const uint8_t *wk__read_handler_entry(const uint8_t *p, wk__handler_entry *out) {
  int depth;
  p = read_varint(p, &out->start);
  p = read_varint(p, &out->size);
  p = read_varint(p, &out->target);
  p = read_varint(p, &depth);
  out->depth = depth >> 1;
  out->push_last = depth & 1;
  return p;
}
const uint8_t *wk__exception_table(PyCodeObject *code, const uint8_t **out_end) {
  const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(code->co_exceptiontable);
  *out_end = p + PyBytes_GET_SIZE(code->co_exceptiontable);
  return p;
}

static bool find_handler(PyCodeObject *code, int offset, wk__handler_entry *out_handler) {
  const uint8_t *end, *p = wk__exception_table(code, &end);
  wk__handler_entry e;
  while (p < end) {
    p = wk__read_handler_entry(p, &e);
    if (e.start > offset) return false;
    if (offset >= e.start + e.size) continue;
    *out_handler = e;
    return true;
  }
  return false;
}

bool wk__code_has_handlers(PyCodeObject *code) {
  const uint8_t *end, *p = wk__exception_table(code, &end);
  if (p == end) return false;
  wk__code *info = wk__code_get(code);
  PyErr_Clear();
  if (!info) return true;
  wk__handler_entry e;
  while (p < end) {
    p = wk__read_handler_entry(p, &e);
    int kind = info->code[e.target].kind;
    if (kind != WK__I_STOP_ITERATION_ERROR && kind != WK__I_CLEANUP_THROW) return true;
  }
  return false;
}

void wk__frame_pop_to(wk__frame *frame, int depth) {
  real_frame *real = frame->real;
  int bottom = frame->code->co_nlocalsplus + depth;
  frame->dropping++;
  while (real->stacktop > bottom) {
    PyObject *value = real->localsplus[--real->stacktop];
    if (frame->session) wk__op_dropped(frame, &value, 1);
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
  int *current_event = wk__thread_event(thread), outer_event = *current_event, status = -1;
  if (object && (argument || event != PyTrace_EXCEPTION)) {
    *current_event = event;
    PyThreadState_EnterTracing(thread);
    object->f_lineno = PyFrame_GetLineNumber(object);
    status = tracer(owner, object, event, argument);
    object->f_lineno = 0;
    PyThreadState_LeaveTracing(thread);
    *current_event = outer_event;
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
  wk__linkage *link = wk__linkage_of(frame);
  real_frame *real = frame->real;
  frame->keyword_names = NULL;
  if (!link->counted) return false;  // it was never entered
  bool traced = wk__thread_traced(frame->thread);
  if (!link->reraising) {
    add_traceback(frame);
    if (WK_UNLIKELY(traced)) tell_of_raise(frame);
  }
  link->reraising = false;
  wk__handler_entry found;
  if (!find_handler(frame->code, frame->offset, &found)) {
    wk__frame_pop_to(frame, 0);
    if (WK_UNLIKELY(traced)) tell_of_exit(frame);
    return false;
  }
  wk__frame_pop_to(frame, found.depth);
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
