/* The object that compile() gives: it calls its function under a session. In a region that is being captured it is
 * looked through. Tests: tests/python/capture/test_api.py. */
#include "dynamo/explain.h"
#include "dynamo/program.h"

#include <structmember.h>

/* The type keeps the binding that it was added with. NULL with an exception. */
static wk__binding *binding_of(PyTypeObject *type) {
  PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "_binding");
  wk__binding *binding = capsule ? PyCapsule_GetPointer(capsule, NULL) : NULL;
  Py_XDECREF(capsule);
  return binding;
}

static PyTypeObject *compiled_type_of(const wk__binding *b) { return b->compiled_type; }

PyObject *wk__compiled_function(const wk__binding *b, PyObject *o) {
  return Py_TYPE(o) == compiled_type_of(b) ? ((wk__compiled *)o)->function : NULL;
}

/* The sizes of a first call, which runs as it is: those that differ in the second are symbols from then on. */
static void note_first_call(wk__compiled *self, PyObject *const *args, Py_ssize_t count) {
  const wk__binding *b = self->binding;
  struct wk__first_call *first = wk__alloc_zeroed(sizeof *first);
  if (!first) wk_error_clear();
  for (int i = 0; first && i < count && i < WK__FIRST_ARGUMENTS; i++) {
    bool tensor = PyObject_TypeCheck(args[i], b->tensor_type);
    const wk_tensor *t = tensor ? b->tensor_of(args[i]) : NULL;
    first->ndim[i] = tensor ? t->ndim : -1;
    for (int d = 0; tensor && d < t->ndim; d++) first->sizes[i][d] = wk__size(t, d);
    first->count = i + 1;
  }
  self->first_call = first;
}

static void compare_with_first_call(wk__compiled *self, PyCodeObject *code, bool bound, PyObject *const *args,
                                    Py_ssize_t count) {
  const wk__binding *b = self->binding;
  const struct wk__first_call *first = self->first_call;
  for (int i = 0; i < count && i < first->count; i++) {
    bool tensor = PyObject_TypeCheck(args[i], b->tensor_type);
    const wk_tensor *t = tensor ? b->tensor_of(args[i]) : NULL;
    uint64_t dims = 0;
    for (int d = 0; tensor && t->ndim == first->ndim[i] && d < t->ndim; d++)
      if (wk__size(t, d) != first->sizes[i][d]) dims |= wk__dim_bit(d);
    if (dims) wk__mark_changing(self, wk__path_of_argument(code, i + bound), dims);
  }
  wk__free(self->first_call);
  self->first_call = NULL;
}

static PyCodeObject *code_of(PyObject *function, bool *out_bound) {  // -> borrowed
  *out_bound = PyMethod_Check(function);
  PyObject *python = *out_bound ? PyMethod_GET_FUNCTION(function) : function;
  return (PyCodeObject *)PyFunction_GET_CODE(python);
}

/* Under the stance that runs first calls as they are: whether this is one. */
static bool is_first_call(wk__compiled *self, PyObject *const *args, Py_ssize_t count) {
  bool first = self->binding->stance == WK__STANCE_EAGER_THEN_COMPILE && !self->called, bound;
  if (first) note_first_call(self, args, count);
  PyCodeObject *code = code_of(self->function, &bound);
  if (!first && self->first_call) compare_with_first_call(self, code, bound, args, count);
  self->called = true;
  return first;
}

static PyObject *run_compiled(wk__compiled *self, PyObject *const *args, size_t nargsf, PyObject *names) {  // -> new
  if (WK_UNLIKELY(!self->called || self->first_call) && is_first_call(self, args, PyVectorcall_NARGS(nargsf)))
    return PyObject_Vectorcall(self->function, args, nargsf, names);
  int64_t begin = wk__span_begin(), number = self->number;
  PyObject *result = wk__session_call(self, self->function, args, nargsf, names);
  if (WK_UNLIKELY(begin != 0)) wk__timeline_add_span(WK__SPAN_CALL, begin, number, 0);
  return result;
}

/* With a backend that is forced another Compiled is called. */
static PyObject *call_forced(wk__compiled *self, PyObject *const *args, size_t nargsf, PyObject *names) {  // -> new
  PyObject *other = PyObject_CallOneArg(self->binding->forced, (PyObject *)self), *result = NULL;
  if (other && Py_TYPE(other) == Py_TYPE(self))
    result = run_compiled((wk__compiled *)other, args, nargsf, names);
  else if (other)
    PyErr_Format(PyExc_TypeError, "a Compiled is forced, not %R", other);
  Py_XDECREF(other);
  return result;
}

static PyObject *compiled_call(PyObject *o, PyObject *const *args, size_t nargsf, PyObject *names) {  // -> new
  wk__compiled *self = (wk__compiled *)o;
  const wk__binding *b = self->binding;
  wk__session *around = wk__session_current();
  bool captured = around && around->mode == WK__MODE_CAPTURE; /* C code calls it: it is looked through here, too */
  if (captured || wk__session_refuses_calls(around)) return PyObject_Vectorcall(self->function, args, nargsf, names);
  if (wk__hook_tracing(PyThreadState_Get()) || b->stance == WK__STANCE_FORCE_EAGER || wk__thread.body ||
      wk__thread.mode.level || b->overrides(b->state) & WK__OVERRIDE_BY_MODE)
    return PyObject_Vectorcall(self->function, args, nargsf, names);
  if (WK_UNLIKELY(b->forced != NULL)) return call_forced(self, args, nargsf, names);
  return run_compiled(self, args, nargsf, names);
}

static PyObject *python_code_of(PyObject *callable) {  // -> borrowed, NULL when it is not Python code
  if (PyMethod_Check(callable)) callable = PyMethod_GET_FUNCTION(callable);
  return PyFunction_Check(callable) ? PyFunction_GET_CODE(callable) : NULL;
}

static PyObject *compiled_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"function", "backend", "fullgraph",  "dynamic",      "limit",
                          "mode",     "counts",  "keeps_tape", "guard_filter", NULL};
  PyObject *function, *backend = Py_None, *filter = Py_None;
  int fullgraph = 0, dynamic = -1, limit = 8, mode = WK__COMPILE_LATER, counts = 0, keeps_tape = 0;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|OpiiiipO", names, &function, &backend, &fullgraph, &dynamic,
                                   &limit, &mode, &counts, &keeps_tape, &filter))
    return NULL;
  if (mode < WK__COMPILE_NOTHING || mode > WK__COMPILE_TUNED_WITH_OTHER_SUMS)
    return PyErr_Format(PyExc_ValueError, "Compiled: mode is 0, 1, 2 or 3, not %d", mode);
  if (!python_code_of(function))
    return PyErr_Format(PyExc_TypeError, "a Python function or method is compiled, not %R", function);
  const wk__binding *binding = binding_of(type);
  wk__compiled *self = binding ? (wk__compiled *)type->tp_alloc(type, 0) : NULL;
  if (!self) return NULL;
  self->function = Py_NewRef(function);
  static _Atomic long long last_number;
  self->number = 1 + atomic_fetch_add_explicit(&last_number, 1, memory_order_relaxed);
  self->vectorcall = compiled_call;
  self->binding = binding;
  self->options = (wk__compile_options){.backend = backend == Py_None ? NULL : Py_NewRef(backend),
                                        .guard_filter = filter == Py_None ? NULL : Py_NewRef(filter),
                                        .fullgraph = fullgraph,
                                        .counts = counts,
                                        .keeps_tape = keeps_tape,
                                        .dynamic = (int8_t)dynamic,
                                        .limit = limit,
                                        .mode = backend == Py_None ? (wk__compile_mode)mode : WK__COMPILE_NOTHING};
  return (PyObject *)self;
}

static void forget_segments(wk__compiled *self) {
  wk__segment *g = self->segments;
  wk__lookup_drop(self);
  self->segments = NULL;
  self->segment_count = 0;
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
  Py_VISIT(self->options.guard_filter);
  Py_VISIT(self->recompiles);
  for (wk__segment *g = self->segments; g; g = g->next) {
    if (atomic_load(&g->references) > 1) continue; /* somebody replays it */
    for (int64_t i = 0; i < g->recording->register_count; i++)
      if (!g->recording->registers[i].borrowed) Py_VISIT(g->recording->registers[i].object);
    for (int64_t i = 0; i < g->recording->versioned_count; i++)
      if (!g->versions[i].place) Py_VISIT(g->recording->versioned[i]);
    for (int64_t i = 0; i < g->recording->picture_count; i++) {
      Py_VISIT(g->recording->pictures[i].class);
      Py_VISIT(g->recording->pictures[i].mro);
      Py_VISIT(g->recording->pictures[i].held);
    }
  }
  return 0;
}
static int compiled_clear(PyObject *o) {
  wk__compiled *self = (wk__compiled *)o;
  wk__free(self->unkept);
  wk__free(self->first_call);
  self->first_call = NULL;
  Py_CLEAR(self->recompiles);
  wk__map_release(&self->changing);
  wk__map_release(&self->learned_breaks);
  wk__map_release(&self->functions_in_vain);
  self->unkept = NULL;
  self->unkept_size = self->unkept_capacity = 0;
  forget_segments(self);
  Py_CLEAR(self->function);
  Py_CLEAR(self->dict);
  Py_CLEAR(self->options.backend);
  Py_CLEAR(self->options.guard_filter);
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
static PyObject *compiled_kernels(PyObject *self, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"sources", NULL};
  int sources = 0;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "|p", names, &sources)) return NULL;
  return wk__compiled_kernels((wk__compiled *)self, sources);
}
static PyObject *compiled_recompiles(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  PyObject *list = ((wk__compiled *)self)->recompiles;
  return list ? PySequence_List(list) : PyList_New(0);
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
    {"number", T_LONGLONG, offsetof(wk__compiled, number), READONLY, "No other one of the process has it."},
    {"captures", T_LONGLONG, offsetof(wk__compiled, capture_count), READONLY, "Segments captured so far."},
    {"breaks", T_LONGLONG, offsetof(wk__compiled, break_count), READONLY, "Captured segments that ended in a break."},
    {"unkept", T_LONGLONG, offsetof(wk__compiled, unkept_count), READONLY, "Segments that could not be kept."},
    {"fullgraph", T_BOOL, offsetof(wk__compiled, options.fullgraph), READONLY, "A break is an error."},
    {"dynamic", T_BYTE, offsetof(wk__compiled, options.dynamic), READONLY, "1, 0 or -1, as it was compiled."},
    {"limit", T_INT, offsetof(wk__compiled, options.limit), 0, "Segments a position; then it runs plain."},
    {"__dictoffset__", T_PYSSIZET, offsetof(wk__compiled, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(wk__compiled, weak_references), READONLY, NULL},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(wk__compiled, vectorcall), READONLY, NULL},
    {0}};
static PyMethodDef methods[] = {
    {"report", compiled_report, METH_NOARGS, "What was captured: a list of dicts, one a segment."},
    {"kernels", (PyCFunction)(void (*)(void))compiled_kernels, METH_VARARGS | METH_KEYWORDS,
     "What is run: one item a segment, None or a dict with its graph, kernels, steps and their times. sources: kernels "
     "with the C that native code of them is made of."},
    {"recompiles", compiled_recompiles, METH_NOARGS,
     "What was captured again, and why: a list of (file, line, the guard that did not hold)."},
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

/* While something is captured these two are done by capture/recomputed.c. */
static PyObject *trial_begin(PyObject *module, PyObject *parts) {  // -> new
  (void)module, (void)parts;
  Py_RETURN_NONE;
}
static PyObject *trial_end(PyObject *module, PyObject *result) {  // -> new
  (void)module;
  return Py_NewRef(result);
}

static PyObject *is_compiling(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  wk__session *s = wk__session_current();
  return PyBool_FromLong(s && s->mode == WK__MODE_CAPTURE);
}
static PyObject *is_tracing(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  return PyBool_FromLong(wk__thread.mode.keys_on & WK__KEY_TRACE);
}
wk__binding *wk__binding_of_module(PyObject *module) {
  PyObject *type = PyObject_GetAttrString(module, "Compiled");
  wk__binding *binding = type ? binding_of((PyTypeObject *)type) : NULL;
  Py_XDECREF(type);
  return binding;
}

/* Gives what it was before. */
static PyObject *set_stance(PyObject *module, PyObject *number) {  // -> new
  wk__binding *binding = wk__binding_of_module(module);
  long stance = binding ? PyLong_AsLong(number) : -1;
  if (stance == -1 && PyErr_Occurred()) return NULL;
  if (stance < WK__STANCE_DEFAULT || stance > WK__STANCE_EAGER_THEN_COMPILE)
    return PyErr_Format(PyExc_ValueError, "a stance is 0 to 4, not %ld", stance);
  wk__stance before = binding->stance;
  binding->stance = (wk__stance)stance;
  return PyLong_FromLong(before);
}

static PyObject *set_recompile_error(PyObject *module, PyObject *exception) {  // -> new
  wk__binding *binding = wk__binding_of_module(module);
  if (!binding) return NULL;
  Py_XSETREF(binding->recompile_error, exception == Py_None ? NULL : Py_NewRef(exception));
  Py_RETURN_NONE;
}

/* Gives what it was before. */
static PyObject *set_forced(PyObject *module, PyObject *function) {  // -> new
  wk__binding *binding = wk__binding_of_module(module);
  if (!binding) return NULL;
  PyObject *before = binding->forced;
  binding->forced = function == Py_None ? NULL : Py_NewRef(function);
  return before ? before : Py_NewRef(Py_None);
}

static PyObject *set_log(PyObject *module, PyObject *args) {  // -> new
  (void)module;
  const char *name;
  int on;
  if (!PyArg_ParseTuple(args, "sp", &name, &on)) return NULL;
  return PyBool_FromLong(wk__log_set(name, on));
}

static PyObject *log_channels(PyObject *module, PyObject *none) {  // -> new
  (void)module, (void)none;
  PyObject *names = PyTuple_New(WK__LOG_COUNT);
  for (int k = 0; names && k < WK__LOG_COUNT; k++) {
    PyObject *name = PyUnicode_FromString(wk__log_name((wk__log)k));
    if (!name) Py_CLEAR(names);
    if (names) PyTuple_SET_ITEM(names, k, name);
  }
  return names;
}

/* Gives what it was before. */
static PyObject *set_profiling(PyObject *module, PyObject *flag) {  // -> new
  (void)module;
  int value = PyObject_IsTrue(flag);
  return value < 0 ? NULL : PyBool_FromLong(atomic_exchange(&wk__profiling, value != 0));
}

static PyObject *begin_timeline(PyObject *module, PyObject *args) {  // -> new
  (void)module;
  long long words;
  int spans = 0;
  if (!PyArg_ParseTuple(args, "L|p", &words, &spans)) return NULL;
  wk__timeline_begin(words, spans);
  Py_RETURN_NONE;
}

/* error_on_graph_break(flag) is entered. */
static PyObject *push_break_error(PyObject *module, PyObject *flag) {  // -> new
  wk__binding *binding = wk__binding_of_module(module);
  if (binding && !binding->break_errors) binding->break_errors = PyList_New(0);
  if (!binding || !binding->break_errors) return NULL;
  int value = PyObject_IsTrue(flag);
  if (value < 0 || PyList_Append(binding->break_errors, value ? Py_True : Py_False) < 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject *pop_break_error(PyObject *module, PyObject *none) {  // -> new
  (void)none;
  wk__binding *binding = wk__binding_of_module(module);
  Py_ssize_t count = binding && binding->break_errors ? PyList_GET_SIZE(binding->break_errors) : 0;
  if (count && PyList_SetSlice(binding->break_errors, count - 1, count, NULL) < 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject *set_substitutes(PyObject *module, PyObject *dict) {  // -> new
  wk__binding *binding = wk__binding_of_module(module);
  if (!binding) return NULL;
  if (!PyDict_Check(dict)) return PyErr_Format(PyExc_TypeError, "substitutes are a dict, not %R", dict);
  Py_XSETREF(binding->substitutes, Py_NewRef(dict));
  Py_RETURN_NONE;
}

/* Gives what it was before. */
static PyObject *set_notes(PyObject *module, PyObject *list) {  // -> new
  wk__binding *binding = wk__binding_of_module(module);
  if (!binding) return NULL;
  if (list != Py_None && !PyList_Check(list))
    return PyErr_Format(PyExc_TypeError, "notes are put into a list, not %R", list);
  PyObject *before = binding->notes;
  binding->notes = list == Py_None ? NULL : Py_NewRef(list);
  return before ? before : Py_NewRef(Py_None);
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
    {"_begin_timeline", begin_timeline, METH_VARARGS,
     "_begin_timeline(most, spans=False): runs leave when their steps began, in so many words of memory; spans: so do "
     "calls of compiled functions and units of source that native code is made of."},
    {"_push_break_error", push_break_error, METH_O, "Whether a graph break is an error, until it is popped."},
    {"_pop_break_error", pop_break_error, METH_NOARGS, "As it was before the last _push_break_error()."},
    {"_set_substitutes", set_substitutes, METH_O, "A dict from functions to those that are captured in their place."},
    {"_set_notes", set_notes, METH_O, "A list that what capture does is noted in, or None; gives the one before."},
    {"_take_timeline", take_timeline, METH_NOARGS,
     "Ends it: [(executor, thread, [nanoseconds of each step's beginning and of the last one's end])], runs lost. "
     "Spans "
     "have a kind below 0 in the place of the executor and [beginning, end, two numbers]: execute/execute.h."},
    {"_set_profiling", set_profiling, METH_O, "Runs of compiled graphs note what each step takes, or not."},
    {"_set_stance", set_stance, METH_O, "What calls of compiled functions do; gives what they did before."},
    {"_set_recompile_error", set_recompile_error, METH_O,
     "The exception that is raised where something would be captured again, or None."},
    {"_set_forced_compiled", set_forced, METH_O,
     "A function that gives, for a Compiled, what is called in its place, or None; gives the one before."},
    {"_log_channels", log_channels, METH_NOARGS, "The names of the channels of WICK_LOGS."},
    {"_set_log", set_log, METH_VARARGS, "_set_log(channel, on): whether there is such a channel of WICK_LOGS."},
    {"_is_tracing", is_tracing, METH_NOARGS, "Whether calls are recorded, and tensors have no values."},
    {"_is_compiling", is_compiling, METH_NOARGS, "Whether the caller is being captured."},
    {"_trial_begin", trial_begin, METH_O,
     "_trial_begin(parts): what follows, which uses the parts, does nothing but compute, or is undone by _trial_end(). "
     "None: that cannot be had; False: it is a part of another trial."},
    {"_trial_end", trial_end, METH_O, "_trial_end(result): the result, or None where it was undone."},
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
  if (PyModule_AddFunctions(module, functions) < 0 || wk__add_program(module) < 0) return -1;
  return PyModule_AddObjectRef(module, "Compiled", type);
}
