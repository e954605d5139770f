/* What capture did, in words: WICK_LOGS=graph_breaks,guards,recompiles,graph, and the report of explain().
 * In: segments. Out: text. Tests: tests/python/test_explain.py. */
#include <stdio.h>

#include "compile/report.h"
#include "dynamo/cpython/objects.h"
#include "dynamo/explain.h"

static const char *const kind_names[] = {
    [WK__READ_SLOT] = "slot",
    [WK__READ_STACK] = "stack",
    [WK__READ_CELL] = "cell",
    [WK__READ_DICT] = "item",
    [WK__READ_ITEM] = "element",
    [WK__READ_ATTRIBUTE] = "attribute",
    [WK__READ_INSTANCE] = "__dict__",
    [WK__READ_CLOSURE] = "closure",
    [WK__READ_DEFAULTS] = "defaults",
    [WK__READ_GRAD] = "grad",
    [WK__READ_HOOKS] = "hooks",
    [WK__READ_FUNCTION] = "function",
    [WK__READ_REFERENT] = "referent",
    [WK__READ_SYMBOLIC] = "symbolic",
    [WK__READ_COMPUTED] = "computed",
    [WK__READ_CLOCK] = "time",
    [WK__READ_DRAWN] = "drawn",
    [WK__READ_UPCOMING] = "upcoming",
    [WK__CHECK_IS] = "is",
    [WK__CHECK_SAME] = "is",
    [WK__CHECK_DIFFERENT] = "is not",
    [WK__CHECK_EQUAL] = "==",
    [WK__CHECK_CODE] = "has code",
    [WK__CHECK_TYPE] = "type is",
    [WK__CHECK_LENGTH] = "length ==",
    [WK__CHECK_KEYS] = "keys ==",
    [WK__CHECK_ABSENT] = "has no",
    [WK__CHECK_PRESENT] = "has",
    [WK__CHECK_NO_DICT] = "has no",
    [WK__CHECK_NO_SLOT] = "has no",
    [WK__CHECK_UNBOUND] = "is unbound",
    [WK__CHECK_NO_GRAD] = "grad is None",
    [WK__CHECK_NO_HOOKS] = "has no hooks",
    [WK__CHECK_COMPUTED] = "is no leaf",
    [WK__CHECK_LEAF] = "is_leaf ==",
    [WK__CHECK_TENSOR] = "is a tensor",
    [WK__CHECK_FITS] = "fits",
    [WK__CHECK_QUIET] = "raises nothing as a warning",
    [WK__CHECK_ADDRESS] = "has the id that it had",
    [WK__CHECK_ITEMS] = "items are",
    [WK__CHECK_ENDS] = "ends",
    [WK__CHECK_MUTE_SLOT] = "can be replaced without running code",
    [WK__CHECK_MUTE] = "can be replaced without running code",
};

/* ---- where a register comes from, as a Python expression ---- */

static const wk__read *read_of(const wk__recording *r, wk__reg reg) {
  for (int64_t i = 0; i < r->read_count; i++)
    if (r->reads[i].dest == reg) return &r->reads[i];
  return NULL;
}

static void print_object(wk__string *out, PyObject *o) {
  PyObject *text = o ? (PyType_Check(o) ? PyUnicode_FromString(((PyTypeObject *)o)->tp_name) : PyObject_Repr(o)) : NULL;
  const char *utf8 = text ? PyUnicode_AsUTF8(text) : NULL;
  size_t length = utf8 ? strlen(utf8) : 0;
  wk__string_printf(out, "%.*s%s", (int)(length > 60 ? 57 : length), utf8 ? utf8 : "?", length > 60 ? "..." : "");
  PyErr_Clear();
  Py_XDECREF(text);
}

static const char *slot_name(const wk__segment *g, const wk__read *read) {
  PyCodeObject *code = read->a < g->frame_count ? g->codes[read->a] : NULL;
  PyObject *names = code ? code->co_localsplusnames : NULL;
  const char *name =
      names && read->b < PyTuple_GET_SIZE(names) ? PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, read->b)) : NULL;
  return name ? name : "?";
}

static void print_register(wk__string *out, const wk__segment *g, wk__reg reg, int depth);

static void print_computed(wk__string *out, const wk__segment *g, const wk__read *read, int depth) {
  PyObject *function = read->object, *name = PyObject_GetAttrString(function, "__name__");
  PyErr_Clear();
  if (name && PyUnicode_Check(name))
    wk__string_append(out, PyUnicode_AsUTF8(name));
  else
    print_object(out, function);
  Py_XDECREF(name);
  wk__string_append(out, "(");
  if (read->a >= 0) print_register(out, g, read->a, depth + 1);
  if (read->b >= 0) wk__string_append(out, ", ");
  if (read->b >= 0) print_register(out, g, (wk__reg)read->b, depth + 1);
  wk__string_append(out, ")");
}

static void print_register(wk__string *out, const wk__segment *g, wk__reg reg, int depth) {
  const wk__read *read = depth < 12 ? read_of(g->recording, reg) : NULL;
  if (!read) {
    PyObject *o = g->recording->registers[reg].object, *class = o ? wk__class_of_dictionary(g->recording, o) : NULL;
    if (class)
      wk__string_printf(out, "vars(%s)", wk__type_name((PyTypeObject *)class));
    else if (o && PyDict_Check(o))
      wk__string_append(out, "globals");
    else
      print_object(out, o);
    return;
  }
  if (read->kind == WK__READ_SLOT) {
    wk__string_append(out, slot_name(g, read));
    return;
  }
  if (read->kind == WK__READ_STACK || read->kind == WK__READ_FUNCTION) {
    wk__string_printf(out, "%s[%lld]", kind_names[read->kind], (long long)read->b);
    return;
  }
  if (read->kind == WK__READ_SYMBOLIC) {
    wk_int_print(out, (wk_int){read->b});
    return;
  }
  if (read->kind == WK__READ_COMPUTED) {
    print_computed(out, g, read, depth);
    return;
  }
  print_register(out, g, read->a, depth + 1);
  if (read->kind == WK__READ_DICT) {
    wk__string_append(out, "[");
    if (read->object)
      print_object(out, read->object);
    else
      print_register(out, g, (wk__reg)read->b, depth + 1);
    wk__string_append(out, "]");
  } else if (read->kind == WK__READ_ITEM) {
    wk__string_printf(out, "[%lld]", (long long)read->b);
  } else {
    wk__string_printf(
        out, ".%s",
        read->object && PyUnicode_Check(read->object) ? PyUnicode_AsUTF8(read->object) : kind_names[read->kind]);
  }
}

void wk__source_print(wk__string *out, const wk__segment *g, wk__reg reg) {
  static const char globals[] = "globals[";
  wk__string text = {0};
  print_register(&text, g, reg, 0);
  const char *name = text.text ? text.text : "?";
  size_t length = strcspn(name, ".[");
  if (strncmp(name, globals, sizeof globals - 1) == 0)
    wk__string_printf(out, "G%s", name + length);
  else
    wk__string_printf(out, "L['%.*s']%s", (int)length, name, name + length);
  wk__string_release(&text);
}

/* Symbols by the names that the graph has for them. */
static void print_size(wk__string *out, const wk__segment *g, wk__reg reg, int d, int64_t size) {
  const wk__recording *r = g->recording;
  for (int64_t i = 0; i < r->symbol_count; i++)
    if (r->symbols[i].reg == reg && r->symbols[i].dim == d && g->graph && g->graph->env) {
      wk__string_append(out, wk__shape_env_symbol_at(g->graph->env, i).name);
      return;
    }
  wk__string_printf(out, "%lld", (long long)size);
}

static void print_tensor_spec(wk__string *out, const wk__segment *g, wk__reg reg, const wk__tensor_spec *s) {
  wk__string_printf(out, " %s[", wk__dtypes[s->dtype].name);
  for (int d = 0; d < s->ndim; d++) {
    wk__string_append(out, d ? ", " : "");
    print_size(out, g, reg, d, s->dims[d].size);
  }
  wk__string_append(out, "] strides [");
  for (int d = 0; d < s->ndim; d++) {
    wk__string_append(out, d ? ", " : "");
    if (s->dims[d].over >= 0)
      wk__string_printf(out, "over dim %d", s->dims[d].over);
    else
      wk__string_printf(out, "%lld", (long long)s->dims[d].stride);
  }
  wk__string_append(out, s->keys ? "] requires grad" : "]");
}

static int64_t size_guard_count(const wk__segment *g) {
  return g->recording->symbol_count && g->graph && g->graph->env ? wk__shape_env_guard_count(g->graph->env) : 0;
}
static void print_size_guards(wk__string *out, const wk__segment *g) {
  wk__string_append(out, "sizes at least 2");
  for (int64_t i = 0; i < size_guard_count(g); i++) {
    wk__string_append(out, ", ");
    wk__sym_guard_print(out, wk__shape_env_guard(g->graph->env, i));
  }
}

void wk__guard_print(wk__string *out, const wk__segment *g, const wk__read *check) {
  if (check->dest >= 0) {
    print_register(out, g, check->dest, 0);
    wk__string_append(out, " is there");
    return;
  }
  if (check->kind == WK__CHECK_UNBOUND || check->kind == WK__CHECK_MUTE_SLOT)
    wk__string_append(out, "a variable");
  else
    print_register(out, g, check->a, 0);
  wk__string_printf(out, " %s", kind_names[check->kind]);
  if (check->kind == WK__CHECK_LENGTH) wk__string_printf(out, " %lld", (long long)check->b);
  if (check->kind == WK__CHECK_FITS) wk__string_printf(out, " %s", wk_dtype_name((wk_dtype)check->b));
  bool of_two = check->kind == WK__CHECK_SAME || check->kind == WK__CHECK_DIFFERENT;
  if (of_two || (check->kind == WK__CHECK_ABSENT && !check->object)) {
    wk__string_append(out, " ");
    print_register(out, g, (wk__reg)check->b, 0);
  }
  if (check->kind == WK__CHECK_TENSOR) print_tensor_spec(out, g, check->a, g->recording->specs[check->b]);
  if (check->object) {
    wk__string_append(out, " ");
    print_object(out, check->object);
  }
}

/* ---- logs ---- */

static void log_guards(const wk__segment *g) {
  for (int pass = 0; pass < 2; pass++) {
    const wk__read *reads = pass ? g->reads : g->fixed;
    int64_t count = pass ? g->read_count : g->fixed_count;
    for (int64_t i = 0; i < count; i++) {
      wk__string text = {0};
      if (reads[i].dest >= 0) continue;
      wk__guard_print(&text, g, &reads[i]);
      wk__log_print(WK__LOG_GUARDS, "%s", text.text ? text.text : "?");
      wk__string_release(&text);
    }
  }
}

void wk__segment_log(const wk__segment *g) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (wk__log_on(WK__LOG_BREAKS) && g->end != WK__END_RETURN)
    wk__log_print(WK__LOG_BREAKS, "%s:%d: %s", g->file, g->line, g->reason);
  if (wk__log_on(WK__LOG_GUARDS)) log_guards(g);
  PyErr_Restore(type, value, traceback);
}

static void print_failure(wk__string *out, const wk__segment *g, const wk__read *failing) {
  if (failing == &wk__guard_of_modes)
    wk__string_append(out, "the thread's modes or a class");
  else if (failing == &wk__guard_of_memory)
    wk__string_append(out, "inputs that are written have memory of their own");
  else if (failing == &wk__guard_of_sizes)
    print_size_guards(out, g);
  else
    wk__guard_print(out, g, failing);
}

void wk__guard_log(wk__session *s, const wk__segment *g, const wk__read *failing) {
  (void)s;
  if (!wk__log_on(WK__LOG_RECOMPILES)) return;
  wk__string text = {0};
  print_failure(&text, g, failing);
  wk__log_print(WK__LOG_RECOMPILES, "%s:%d: does not hold: %s", g->file ? g->file : "?", g->line,
                text.text ? text.text : "?");
  wk__string_release(&text);
}

PyObject *wk__session_why(const wk__session *s) {
  wk__string text = {0};
  if (s->failed_segment) print_failure(&text, s->failed_segment, s->failed_guard);
  PyObject *why = PyUnicode_FromString(text.text ? text.text : "");
  wk__string_release(&text);
  return why;
}

void wk__note_recompile(wk__session *s) {
  enum { MOST = 1000 };
  wk__compiled *c = s->compiled;
  const wk__frame *f = &s->innermost->frame;
  if (!s->failed_segment || (c->recompiles && PyList_GET_SIZE(c->recompiles) >= MOST)) return;
  PyObject *why = wk__session_why(s), *note = NULL;
  if (!c->recompiles) c->recompiles = PyList_New(0);
  if (why) note = Py_BuildValue("OiO", f->code->co_filename, wk__frame_line(f), why);
  if (note && c->recompiles) (void)!PyList_Append(c->recompiles, note);
  if (why && s->binding->notes) wk__note_again(s, PyUnicode_AsUTF8(f->code->co_filename), wk__frame_line(f), why);
  Py_XDECREF(why);
  Py_XDECREF(note);
  PyErr_Clear();
}

/* ---- the report ---- */

static int append_text(PyObject *list, wk__string *text) {
  PyObject *line = PyUnicode_FromString(text->text ? text->text : "?");
  int status = line ? PyList_Append(list, line) : -1;
  wk__string_release(text);
  Py_XDECREF(line);
  return status;
}

/* What the program's shapes assume of the symbols, beside being at least 2. */
static PyObject *size_guards_of(const wk__segment *g) {  // -> new
  PyObject *list = PyList_New(0);
  for (int64_t i = 0; list && i < size_guard_count(g); i++) {
    wk__string text = {0};
    wk__sym_guard_print(&text, wk__shape_env_guard(g->graph->env, i));
    if (append_text(list, &text) < 0) Py_CLEAR(list);
  }
  return list;
}

static PyObject *guards_of(const wk__segment *g) {  // -> new
  PyObject *list = PyList_New(0);
  for (int64_t i = 0; list && i < g->recording->read_count; i++) {
    const wk__read *read = &g->recording->reads[i];
    if (read->dest >= 0) continue;
    wk__string text = {0};
    wk__guard_print(&text, g, read);
    if (append_text(list, &text) < 0) Py_CLEAR(list);
  }
  return list;
}

static PyObject *graph_text(const wk__segment *g) {  // -> new
  wk__string text = {0};
  if (g->graph) (void)!wk__graph_print(&text, g->graph, true);
  PyObject *result = PyUnicode_FromString(text.text ? text.text : "");
  wk__string_release(&text);
  return result;
}

/* Where it begins: (function, line), the root first. */
static PyObject *start_of(const wk__segment *g) {  // -> new
  PyObject *list = PyList_New(0);
  for (int i = 0; list && i < g->frame_count; i++) {
    PyObject *at = Py_BuildValue("(Oi)", g->codes[i]->co_name, wk__line_in_code(g->codes[i], g->offsets[i]));
    if (!at || PyList_Append(list, at) < 0) Py_CLEAR(list);
    Py_XDECREF(at);
  }
  return list;
}

static PyObject *codes_of(const wk__segment *g) {  // -> new
  PyObject *list = PyList_New(g->frame_count);
  for (int i = 0; list && i < g->frame_count; i++) PyList_SET_ITEM(list, i, Py_NewRef((PyObject *)g->codes[i]));
  return list;
}

static PyObject *line_of(const wk__source_line *source) {  // -> new
  return source ? Py_BuildValue("(ssi)", source->file, source->function, source->line) : Py_NewRef(Py_None);
}

/* Where each operator was called: a list of (file, function, line), the innermost call first. */
static PyObject *places_of(const wk__segment *g) {  // -> new
  PyObject *list = PyList_New(0);
  for (const wk__graph_node *n = g->graph ? g->graph->first : NULL; list && n; n = n->next) {
    if (n->kind != WK__GRAPH_CALL || !n->source) continue;
    PyObject *calls = PyList_New(0);
    for (const wk__source_line *p = n->source; calls && p; p = p->caller) {
      PyObject *one = line_of(p);
      if (!one || PyList_Append(calls, one) < 0) Py_CLEAR(calls);
      Py_XDECREF(one);
    }
    if (!calls || PyList_Append(list, calls) < 0) Py_CLEAR(list);
    Py_XDECREF(calls);
  }
  return list;
}

PyObject *wk__segment_report(const wk__segment *g) {
  static const char *const ends[] = {"return", "break", "leave"};
  int64_t calls = 0;
  for (const wk__graph_node *n = g->graph ? g->graph->first : NULL; n; n = n->next) calls += n->kind == WK__GRAPH_CALL;
  return Py_BuildValue(
      "{s:L,s:N,s:s,s:s,s:s,s:i,s:L,s:L,s:L,s:N,s:N,s:N,s:L,s:L,s:N,s:N}", "number", (long long)g->number, "start",
      start_of(g), "end", ends[g->end], "reason", g->reason, "file", g->file ? g->file : "?", "line", g->line, "hits",
      (long long)g->hits, "operators", (long long)calls, "steps", (long long)g->step_count, "guards", guards_of(g),
      "size_guards", size_guards_of(g), "graph", graph_text(g), "inputs", (long long)g->recording->input_count,
      "mutations", (long long)(g->graph ? g->graph->mutation_count : 0), "codes", codes_of(g), "places", places_of(g));
}

PyObject *wk__compiled_report(wk__compiled *compiled) {
  PyObject *list = PyList_New(0);
  for (wk__segment *g = wk__segment_next(compiled, NULL); g; g = wk__segment_next(compiled, g)) {
    if (!list) continue;
    PyObject *one = wk__segment_report(g);
    if (!one || PyList_Insert(list, 0, one) < 0) Py_CLEAR(list);
    Py_XDECREF(one);
  }
  return list;
}

/* ---- kernels and times ---- */

static PyObject *text_of_graph(const wk__graph *graph) {  // -> new
  wk__string text = {0};
  if (wk__graph_print(&text, graph, true) != WK_OK) wk_error_clear();
  PyObject *result = PyUnicode_FromString(text.text ? text.text : "");
  wk__string_release(&text);
  return result;
}

static PyObject *kernels_of(const wk__compiled_graph *c, bool sources) {  // -> new
  PyObject *list = PyList_New(0);
  for (int64_t i = 0; list && i < wk__compiled_graph_kernel_count(c); i++) {
    wk__kernel_report k;
    if (!wk__compiled_graph_kernel(c, i, &k)) continue;
    char *source = sources ? wk__compiled_graph_kernel_source(c, i) : NULL;
    PyObject *one = Py_BuildValue("{s:s,s:s,s:s,s:s,s:O,s:z}", "name", k.name, "origin", k.origin, "nest", k.nest,
                                  "stacks", k.stacks, "native", k.native ? Py_True : Py_False, "source", source);
    wk__free(source);
    if (!one || PyList_Append(list, one) < 0) Py_CLEAR(list);
    Py_XDECREF(one);
  }
  return list;
}

static PyObject *stack_of(const wk__source_line *source) {  // -> new
  wk__string text = {0};
  wk__source_line_print(&text, source);
  PyObject *result = PyUnicode_FromString(text.text ? text.text : "");
  wk__string_release(&text);
  return result;
}

static PyObject *steps_of(const wk__compiled_graph *c) {  // -> new
  PyObject *list = PyList_New(0);
  for (int64_t i = 0; list && i < wk__compiled_graph_step_count(c); i++) {
    wk__step_report r;
    wk__compiled_graph_step(c, i, &r);
    PyObject *one =
        Py_BuildValue("{s:s,s:s,s:z,s:N,s:N,s:L,s:L,s:d,s:d}", "name", r.name, "op", r.op, "kernel", r.kernel, "place",
                      line_of(r.source), "stack", stack_of(r.source), "nanoseconds", (long long)r.nanoseconds, "runs",
                      (long long)r.runs, "bytes", r.bytes, "flops", r.flops);
    if (!one || PyList_Append(list, one) < 0) Py_CLEAR(list);
    Py_XDECREF(one);
  }
  return list;
}

static PyObject *compiled_graph_of(const wk__compiled_graph *c, const char *kind, bool sources);  // -> new

typedef struct half_list {
  PyObject *list;
  bool sources;
} half_list;

static int add_half(void *context, const wk__compiled_graph *half, bool backward) {
  const half_list *to = context;
  PyObject *one = compiled_graph_of(half, backward ? "backward" : "forward", to->sources);
  int status = one ? PyList_Append(to->list, one) : -1;
  Py_XDECREF(one);
  return status;
}

static PyObject *halves_of(const wk__compiled_graph *c, bool sources) {  // -> new
  half_list to = {PyList_New(0), sources};
  if (to.list && wk__compiled_graph_each_half(c, add_half, &to) < 0) Py_CLEAR(to.list);
  return to.list;
}

static PyObject *compiled_graph_of(const wk__compiled_graph *c, const char *kind, bool sources) {  // -> new
  const wk__graph_executor *e = wk__compiled_graph_executor(c);
  return Py_BuildValue("{s:i,s:L,s:s,s:O,s:N,s:N,s:N,s:N}", "number", wk__compiled_graph_number(c), "executor",
                       (long long)(e ? wk__graph_executor_number(e) : 0), "kind", kind, "derivative",
                       wk__compiled_graph_has_derivative(c) ? Py_True : Py_False, "graph",
                       text_of_graph(wk__compiled_graph_final(c)), "kernels", kernels_of(c, sources), "steps",
                       steps_of(c), "halves", halves_of(c, sources));
}

PyObject *wk__compiled_graph_report(const wk__compiled_graph *compiled, bool sources) {
  int collected = PyGC_Disable(); /* halves are looked at under a lock: no finalizer may run and want it */
  PyObject *one = compiled_graph_of(compiled, "graph", sources);
  if (collected) PyGC_Enable();
  return one;
}

PyObject *wk__segment_kernels(const wk__segment *g, bool sources) {
  return g->executor ? wk__compiled_graph_report(g->executor, sources) : Py_NewRef(Py_None);
}

PyObject *wk__compiled_kernels(wk__compiled *compiled, bool sources) {
  PyObject *list = PyList_New(0);
  for (wk__segment *g = wk__segment_next(compiled, NULL); g; g = wk__segment_next(compiled, g)) {
    if (!list) continue;
    PyObject *one = wk__segment_kernels(g, sources);
    if (!one || PyList_Insert(list, 0, one) < 0) Py_CLEAR(list);
    Py_XDECREF(one);
  }
  return list;
}
