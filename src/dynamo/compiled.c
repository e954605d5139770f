/* The object that compile() gives: it calls its function under a session. In a region that is being captured it is
 * looked through. Tests: tests/python/capture/test_api.py. */
#include "dynamo/explain.h"

#include <structmember.h>

/* The type keeps the binding that it was added with. NULL with an exception. */
static const wk__binding *binding_of(PyTypeObject *type) {
  PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "_binding");
  const wk__binding *binding = capsule ? PyCapsule_GetPointer(capsule, NULL) : NULL;
  Py_XDECREF(capsule);
  return binding;
}

static PyTypeObject *compiled_type_of(const wk__binding *b) { return b->compiled_type; }

PyObject *wk__compiled_function(const wk__binding *b, PyObject *o) {
  return Py_TYPE(o) == compiled_type_of(b) ? ((wk__compiled *)o)->function : NULL;
}

static PyObject *compiled_call(PyObject *o, PyObject *const *args, size_t nargsf, PyObject *names) {  // -> new
  wk__compiled *self = (wk__compiled *)o;
  const wk__binding *b = self->binding;
  wk__session *around = wk__session_current();
  bool captured = around && around->mode == WK__MODE_CAPTURE; /* C code calls it: it is looked through here, too */
  if (captured || wk__session_refuses_calls(around)) return PyObject_Vectorcall(self->function, args, nargsf, names);
  if (wk__hook_tracing(PyThreadState_Get()) || *b->disabled || wk__thread.body || wk__thread.mode.level ||
      b->overrides(b->state) & WK__OVERRIDE_BY_MODE)
    return PyObject_Vectorcall(self->function, args, nargsf, names);
  return wk__session_call(self, self->function, args, nargsf, names);
}

static PyObject *python_code_of(PyObject *callable) {  // -> borrowed, NULL when it is not Python code
  if (PyMethod_Check(callable)) callable = PyMethod_GET_FUNCTION(callable);
  return PyFunction_Check(callable) ? PyFunction_GET_CODE(callable) : NULL;
}

static PyObject *compiled_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"function", "backend", "fullgraph", "dynamic", "limit", "mode", NULL};
  PyObject *function, *backend = Py_None;
  int fullgraph = 0, dynamic = -1, limit = 8, mode = WK__COMPILE_LATER;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|Opiii", names, &function, &backend, &fullgraph, &dynamic, &limit,
                                   &mode))
    return NULL;
  if (mode < WK__COMPILE_NOTHING || mode > WK__COMPILE_TUNED_WITH_OTHER_SUMS)
    return PyErr_Format(PyExc_ValueError, "Compiled: mode is 0, 1, 2 or 3, not %d", mode);
  if (!python_code_of(function))
    return PyErr_Format(PyExc_TypeError, "a Python function or method is compiled, not %R", function);
  const wk__binding *binding = binding_of(type);
  wk__compiled *self = binding ? (wk__compiled *)type->tp_alloc(type, 0) : NULL;
  if (!self) return NULL;
  self->function = Py_NewRef(function);
  self->vectorcall = compiled_call;
  self->binding = binding;
  self->options = (wk__compile_options){.backend = backend == Py_None ? NULL : Py_NewRef(backend),
                                        .fullgraph = fullgraph,
                                        .dynamic = (int8_t)dynamic,
                                        .limit = limit,
                                        .mode = backend == Py_None ? (wk__compile_mode)mode : WK__COMPILE_NOTHING};
  return (PyObject *)self;
}

static void forget_segments(wk__compiled *self) {
  wk__segment *g = self->segments;
  self->segments = NULL;
  while (g) {
    wk__segment *next = g->next;
    g->owner = NULL;
    wk__segment_release(g);
    g = next;
  }
}

static int compiled_traverse(PyObject *o, visitproc visit, void *arg) {
  wk__compiled *self = (wk__compiled *)o;
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(self->function);
  Py_VISIT(self->dict);
  Py_VISIT(self->options.backend);
  for (wk__segment *g = self->segments; g; g = g->next) {
    if (atomic_load(&g->references) > 1) continue; /* somebody replays it */
    for (int64_t i = 0; i < g->recording->register_count; i++)
      if (!g->recording->registers[i].borrowed) Py_VISIT(g->recording->registers[i].object);
    for (int64_t i = 0; i < g->recording->versioned_count; i++)
      if (!g->versions[i].place) Py_VISIT(g->recording->versioned[i]);
  }
  return 0;
}
static int compiled_clear(PyObject *o) {
  wk__compiled *self = (wk__compiled *)o;
  wk__free(self->unkept);
  wk__map_release(&self->changing);
  wk__map_release(&self->learned_breaks);
  wk__map_release(&self->functions_in_vain);
  self->unkept = NULL;
  self->unkept_size = self->unkept_capacity = 0;
  forget_segments(self);
  Py_CLEAR(self->function);
  Py_CLEAR(self->dict);
  Py_CLEAR(self->options.backend);
  return 0;
}
static void compiled_dealloc(PyObject *o) {
  PyTypeObject *type = Py_TYPE(o);
  PyObject_GC_UnTrack(o);
  if (((wk__compiled *)o)->weak_references) PyObject_ClearWeakRefs(o);
  (void)compiled_clear(o);
  type->tp_free(o);
  Py_DECREF(type);
}

/* As a method: bound like a function. */
static PyObject *compiled_get(PyObject *self, PyObject *instance, PyObject *type) {  // -> new
  (void)type;
  return instance && instance != Py_None ? PyMethod_New(self, instance) : Py_NewRef(self);
}

static PyObject *compiled_report(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return wk__compiled_report((wk__compiled *)self);
}
static PyObject *compiled_kernels(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return wk__compiled_kernels((wk__compiled *)self);
}
static PyObject *compiled_reset(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  forget_segments((wk__compiled *)self);
  Py_RETURN_NONE;
}

/* Graphs of what is captured so far; those without a kernel count as being there. */
static PyObject *compiled_wait_for_native(PyObject *self, PyObject *unused) {  // -> new
  bool all = true;
  (void)unused;
  wk__compiled *c = (wk__compiled *)self;
  for (wk__segment *g = wk__segment_next(c, NULL); g; g = wk__segment_next(c, g))
    if (g->executor) all &= wk__compiled_graph_wait(g->executor);
  return PyBool_FromLong(all);
}

static PyMemberDef members[] = {
    {"function", T_OBJECT_EX, offsetof(wk__compiled, function), READONLY, "What was compiled."},
    {"captures", T_LONGLONG, offsetof(wk__compiled, capture_count), READONLY, "Segments captured so far."},
    {"breaks", T_LONGLONG, offsetof(wk__compiled, break_count), READONLY, "Captured segments that ended in a break."},
    {"unkept", T_LONGLONG, offsetof(wk__compiled, unkept_count), READONLY, "Segments that could not be kept."},
    {"limit", T_INT, offsetof(wk__compiled, options.limit), 0, "Segments a position; then it runs plain."},
    {"__dictoffset__", T_PYSSIZET, offsetof(wk__compiled, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(wk__compiled, weak_references), READONLY, NULL},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(wk__compiled, vectorcall), READONLY, NULL},
    {0}};
static PyMethodDef methods[] = {
    {"report", compiled_report, METH_NOARGS, "What was captured: a list of dicts, one a segment."},
    {"kernels", compiled_kernels, METH_NOARGS,
     "What is run: one item a segment, None or a dict with its graph, kernels, steps and their times."},
    {"reset", compiled_reset, METH_NOARGS, "Forgets everything captured."},
    {"wait_for_native", compiled_wait_for_native, METH_NOARGS,
     "Asks for native code for everything captured and waits for it: whether all of it is there."},
    {0}};
static PyGetSetDef getset[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL}, {0}};
static PyType_Slot slots[] = {{Py_tp_new, compiled_new},
                              {Py_tp_dealloc, compiled_dealloc},
                              {Py_tp_traverse, compiled_traverse},
                              {Py_tp_clear, compiled_clear},
                              {Py_tp_call, PyVectorcall_Call},
                              {Py_tp_descr_get, compiled_get},
                              {Py_tp_members, members},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, getset},
                              {Py_tp_doc, "Compiled(function): calls of it are captured and replayed."},
                              {0}};
static PyType_Spec spec = {.name = "wick._C.Compiled",
                           .basicsize = sizeof(wk__compiled),
                           .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
                           .slots = slots};

static PyObject *is_compiling(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  wk__session *s = wk__session_current();
  return PyBool_FromLong(s && s->mode == WK__MODE_CAPTURE);
}
static PyObject *is_tracing(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  return PyBool_FromLong(wk__thread.mode.keys_on & WK__KEY_TRACE);
}
/* Gives what it was before. */
static PyObject *set_disabled(PyObject *module, PyObject *flag) {  // -> new
  PyObject *type = PyObject_GetAttrString(module, "Compiled");
  if (!type) return NULL;
  const wk__binding *binding = binding_of((PyTypeObject *)type);
  Py_DECREF(type);
  int value = binding ? PyObject_IsTrue(flag) : -1;
  if (value < 0) return NULL;
  int before = *binding->disabled;
  *binding->disabled = value;
  return PyBool_FromLong(before);
}

/* Gives what it was before. */
static PyObject *set_profiling(PyObject *module, PyObject *flag) {  // -> new
  (void)module;
  int value = PyObject_IsTrue(flag);
  return value < 0 ? NULL : PyBool_FromLong(atomic_exchange(&wk__profiling, value != 0));
}

static PyObject *begin_timeline(PyObject *module, PyObject *most) {  // -> new
  (void)module;
  long long words = PyLong_AsLongLong(most);
  if (words == -1 && PyErr_Occurred()) return NULL;
  wk__timeline_begin(words);
  Py_RETURN_NONE;
}

/* One run of a timeline; `at` stands on its executor's number. */
static PyObject *run_of(const int64_t *at) {  // -> new
  PyObject *moments = PyList_New(at[2]);
  for (int64_t i = 0; moments && i < at[2]; i++) {
    PyObject *moment = PyLong_FromLongLong(at[3 + i]);
    if (moment)
      PyList_SET_ITEM(moments, i, moment);
    else
      Py_CLEAR(moments);
  }
  return moments ? Py_BuildValue("(LLN)", (long long)at[0], (long long)at[1], moments) : NULL;
}

static PyObject *take_timeline(PyObject *module, PyObject *none) {  // -> new
  (void)module, (void)none;
  int64_t count, lost, *words = wk__timeline_take(&count, &lost);
  PyObject *runs = PyList_New(0);
  for (const int64_t *at = words; runs && at < words + count; at += 3 + at[2]) {
    PyObject *run = run_of(at);
    if (!run || PyList_Append(runs, run) < 0) Py_CLEAR(runs);
    Py_XDECREF(run);
  }
  wk__free(words);
  return runs ? Py_BuildValue("(NL)", runs, (long long)lost) : NULL;
}

static PyMethodDef functions[] = {
    {"_begin_timeline", begin_timeline, METH_O, "Runs leave when their steps began, in so many words of memory."},
    {"_take_timeline", take_timeline, METH_NOARGS,
     "Ends it: [(executor, thread, [nanoseconds of each step's beginning and of the last one's end])], runs lost."},
    {"_set_profiling", set_profiling, METH_O, "Runs of compiled graphs note what each step takes, or not."},
    {"_set_compile_disabled", set_disabled, METH_O, "Compiled functions run as they are, or not; gives what it was."},
    {"_is_tracing", is_tracing, METH_NOARGS, "Whether calls are recorded, and tensors have no values."},
    {"_is_compiling", is_compiling, METH_NOARGS, "Whether the caller is being captured."},
    {0}};

int wk__add_dynamo(PyObject *module, wk__binding *binding) {
  wk__is_interrupted = wk__hook_interrupted;
  PyObject *operators = PyImport_ImportModule("_operator"); /* numbers.c calls them where no module can be loaded */
  if (!operators) return -1;
  Py_DECREF(operators);
  PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
  if (!type) return -1;
  binding->compiled_type = (PyTypeObject *)type;
  PyObject *capsule = PyCapsule_New(binding, NULL, NULL);
  int kept = capsule ? PyObject_SetAttrString(type, "_binding", capsule) : -1;
  Py_XDECREF(capsule);
  if (kept < 0) return -1;
  binding->unsupported =
      PyErr_NewExceptionWithDoc("wick._dynamo.exc.Unsupported",
                                "With fullgraph=True: something that would break the graph.", PyExc_RuntimeError, NULL);
  if (!binding->unsupported || PyModule_AddObjectRef(module, "Unsupported", binding->unsupported) < 0) return -1;
  binding->constraint_violation =
      PyErr_NewExceptionWithDoc("wick.fx.experimental.symbolic_shapes.ConstraintViolationError",
                                "A size that mark_dynamic() marked is a constant.", PyExc_RuntimeError, NULL);
  if (!binding->constraint_violation ||
      PyModule_AddObjectRef(module, "ConstraintViolationError", binding->constraint_violation) < 0)
    return -1;
  if (PyModule_AddFunctions(module, functions) < 0) return -1;
  return PyModule_AddObjectRef(module, "Compiled", type);
}
