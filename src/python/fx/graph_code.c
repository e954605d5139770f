/* Graphs as text: a line per node, a table, and the source text of forward, in torch.fx's forms.
 * In: a loaded graph. Out: Python strings. Tests: tests/python/test_fx.py, texts as recorded from PyTorch. */
#include "python/fx/graph_parts.h"

/* How one value is written; nodes differ between the forms. */
typedef PyObject *text_fn(void *context, PyObject *value);  // -> new

/* ============================================== joining texts =================================================== */

/* Takes the text, which may be NULL with an exception. */
static int put(wk__string *out, PyObject *steal_text) {
  const char *text = steal_text ? PyUnicode_AsUTF8(steal_text) : NULL;
  if (text) wk__string_append(out, text);
  Py_XDECREF(steal_text);
  return text ? 0 : -1;
}

static PyObject *finish(wk__string *s, int status) {  // -> new
  PyObject *text = status < 0 ? NULL : PyUnicode_FromString(s->text ? s->text : "");
  wk__string_release(s);
  return text;
}

/* "(a, b)", "[a, b]"; a tuple with one item gets its comma. */
static PyObject *sequence_text(PyObject *sequence, text_fn *item, void *context) {  // -> new
  bool tuple = PyTuple_Check(sequence);
  Py_ssize_t n = PySequence_Fast_GET_SIZE(sequence);
  wk__string s = {0};
  int status = 0;
  wk__string_append(&s, tuple ? "(" : "[");
  for (Py_ssize_t i = 0; i < n && status == 0; i++) {
    if (i) wk__string_append(&s, ", ");
    status = put(&s, item(context, PySequence_Fast_GET_ITEM(sequence, i)));
  }
  wk__string_append(&s, tuple ? (n == 1 ? ",)" : ")") : "]");
  return finish(&s, status);
}

static PyObject *dict_text(PyObject *dict, text_fn *key_text, text_fn *item, void *context) {  // -> new
  wk__string s = {0};
  PyObject *key, *value;
  Py_ssize_t at = 0;
  int status = 0;
  wk__string_append(&s, "{");
  for (bool first = true; status == 0 && PyDict_Next(dict, &at, &key, &value); first = false) {
    if (!first) wk__string_append(&s, ", ");
    status = put(&s, key_text(context, key));
    wk__string_append(&s, ": ");
    if (status == 0) status = put(&s, item(context, value));
  }
  wk__string_append(&s, "}");
  return finish(&s, status);
}

/* =================================================== one line ==================================================== */

static PyObject *plain_text(void *context, PyObject *value) {  // -> new
  (void)context;
  return PyObject_Str(value);
}

static PyObject *line_value(void *context, PyObject *value) {  // -> new
  wk__state *state = context;
  if (wk__is_fx_node(state, value)) return PyUnicode_FromFormat("%%%U", ((wk__fx_node *)value)->name);
  if (PyTuple_Check(value) || PyList_Check(value)) return sequence_text(value, line_value, context);
  if (PyDict_Check(value)) return dict_text(value, plain_text, line_value, context);
  return PyObject_Str(value);
}

static PyObject *type_text(PyObject *type) {  // -> new
  PyObject *name = PyType_Check(type) ? PyObject_GetAttrString(type, "__qualname__") : NULL;
  PyObject *module = name ? PyObject_GetAttrString(type, "__module__") : NULL;
  PyObject *text = NULL;
  if (module && PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, "builtins") != 0)
    text = PyUnicode_FromFormat("%U.%U", module, name);
  else if (module)
    text = Py_NewRef(name);
  else
    text = PyErr_Occurred() ? NULL : PyObject_Str(type);
  Py_XDECREF(name);
  Py_XDECREF(module);
  return text;
}

/* "int " before a bracket, "" without an annotation. */
static PyObject *annotation(const wk__fx_node *node, const char *form) {  // -> new
  if (node->type == Py_None) return PyUnicode_FromString("");
  PyObject *text = type_text(node->type), *result = text ? PyUnicode_FromFormat(form, text) : NULL;
  Py_XDECREF(text);
  return result;
}

static PyObject *target_text(wk__fx_node *node) {  // -> new
  return node->op == WK__FX_CALL_FUNCTION ? wk__fx_qualified_name(node->graph->state, node->target)
                                          : PyObject_Str(node->target);
}

static PyObject *call_arguments(wk__fx_node *node) {  // -> new
  if (node->op == WK__FX_GET_ATTR) return PyUnicode_FromString("");
  if (node->op == WK__FX_PLACEHOLDER) {
    if (PyTuple_GET_SIZE(node->args) == 0) return PyUnicode_FromString("");
    return PyUnicode_FromFormat("(default=%S)", PyTuple_GET_ITEM(node->args, 0));
  }
  wk__state *state = node->graph->state;
  PyObject *args = line_value(state, node->args), *kwargs = args ? line_value(state, node->kwargs) : NULL;
  PyObject *text = kwargs ? PyUnicode_FromFormat("(args = %U, kwargs = %U)", args, kwargs) : NULL;
  Py_XDECREF(args);
  Py_XDECREF(kwargs);
  return text;
}

PyObject *wk__fx_format_node(wk__fx_node *node) {  // -> new
  if (node->op == WK__FX_OUTPUT) return PyUnicode_FromFormat("return %S", PyTuple_GET_ITEM(node->args, 0));
  PyObject *type = annotation(node, "%U "), *target = type ? target_text(node) : NULL;
  PyObject *arguments = target ? call_arguments(node) : NULL, *text = NULL;
  if (arguments)
    text = PyUnicode_FromFormat("%%%U : %U[num_users=%zd] = %s[target=%U]%U", node->name, type,
                                PyDict_GET_SIZE(node->users), wk__fx_op_names[node->op], target, arguments);
  Py_XDECREF(type);
  Py_XDECREF(target);
  Py_XDECREF(arguments);
  return text;
}

PyObject *wk__fx_graph_text(wk__fx_graph *graph) {  // -> new
  wk__string s = {0};
  int status = 0;
  wk__string_append(&s, "graph():");
  WK__FX_EACH_NODE(n, graph) {
    wk__string_append(&s, "\n    ");
    if (status == 0) status = put(&s, wk__fx_format_node(n));
  }
  return finish(&s, status);
}

/* ==================================================== a table ==================================================== */

enum { COLUMNS = 5 };
static const char *const headers[COLUMNS] = {"opcode", "name", "target", "args", "kwargs"};

static PyObject *row_of(wk__fx_node *node) {  // -> new, a tuple of texts
  PyObject *row = PyTuple_New(COLUMNS);
  if (!row) return NULL;
  PyObject *values[COLUMNS] = {NULL, node->name, node->target, node->args, node->kwargs};
  for (int i = 0; i < COLUMNS && row; i++) {
    PyObject *text = i ? PyObject_Str(values[i]) : PyUnicode_FromString(wk__fx_op_names[node->op]);
    if (text)
      PyTuple_SET_ITEM(row, i, text);
    else
      Py_CLEAR(row);
  }
  return row;
}

static void put_padded(wk__string *s, const char *text, Py_ssize_t used, Py_ssize_t width, bool last) {
  wk__string_append(s, text);
  for (; used < width + 2 && !last; used++) wk__string_append(s, " ");
}

static void put_row(wk__string *s, PyObject *row, const Py_ssize_t *widths) {
  wk__string_append(s, "\n");
  for (int c = 0; c < COLUMNS; c++) {
    PyObject *cell = PyTuple_GET_ITEM(row, c);
    const char *text = PyUnicode_AsUTF8(cell);
    put_padded(s, text ? text : "?", PyUnicode_GET_LENGTH(cell), widths[c], c == COLUMNS - 1);
  }
}

static PyObject *table_of(PyObject *rows) {  // -> new
  Py_ssize_t widths[COLUMNS];
  wk__string s = {0};
  for (int c = 0; c < COLUMNS; c++) {
    widths[c] = (Py_ssize_t)strlen(headers[c]) + 2;
    for (Py_ssize_t r = 0; r < PyList_GET_SIZE(rows); r++) {
      Py_ssize_t length = PyUnicode_GET_LENGTH(PyTuple_GET_ITEM(PyList_GET_ITEM(rows, r), c));
      if (length > widths[c]) widths[c] = length;
    }
  }
  for (int c = 0; c < COLUMNS; c++)
    put_padded(&s, headers[c], (Py_ssize_t)strlen(headers[c]), widths[c], c == COLUMNS - 1);
  wk__string_append(&s, "\n");
  for (int c = 0; c < COLUMNS; c++) {
    for (Py_ssize_t i = 0; i < widths[c]; i++) wk__string_append(&s, "-");
    if (c < COLUMNS - 1) wk__string_append(&s, "  ");
  }
  for (Py_ssize_t r = 0; r < PyList_GET_SIZE(rows); r++) put_row(&s, PyList_GET_ITEM(rows, r), widths);
  return finish(&s, PyErr_Occurred() ? -1 : 0);
}

PyObject *wk__fx_graph_table(wk__fx_graph *graph) {  // -> new
  PyObject *rows = PyList_New(0);
  WK__FX_EACH_NODE(n, graph) {
    PyObject *row = rows ? row_of(n) : NULL;
    if (!row || PyList_Append(rows, row) < 0) Py_CLEAR(rows);
    Py_XDECREF(row);
  }
  PyObject *text = rows ? table_of(rows) : NULL;
  Py_XDECREF(rows);
  return text;
}

/* ================================================= source: values =============================================== */

typedef struct writer {
  wk__fx_graph *graph;
  const char *root;  /* "self" */
  PyObject *globals; /* dict: names that the code uses */
  PyObject *last;    /* dict: node -> list of the nodes whose last use it is */
  wk__string parameters, body;
  PyObject *place; /* of the node before, for comments; NULL: none yet */
  bool readable;
} writer;

/* What the code calls an object by; it becomes a global unless it is reached through `torch`. */
static PyObject *global_name(writer *w, PyObject *o) {  // -> new
  PyObject *name = wk__fx_qualified_name(w->graph->state, o);
  const char *text = name ? PyUnicode_AsUTF8(name) : NULL;
  if (!text) return NULL;
  if (strncmp(text, "torch.", 6) == 0) return name;
  bool builtin = strncmp(text, "builtins.", 9) == 0;
  wk__string s = {0};
  wk__string_append(&s, builtin ? text + 9 : text);
  for (char *c = s.text; c && *c; c++)
    if (!Py_ISALNUM(*c)) *c = '_';
  Py_DECREF(name);
  name = finish(&s, 0);
  if (name && PyDict_SetItem(w->globals, name, o) < 0) Py_CLEAR(name);
  return name;
}

static PyObject *code_value(void *context, PyObject *value);  // -> new

static PyObject *key_value(void *context, PyObject *key) {  // -> new
  (void)context;
  return PyObject_Repr(key);
}

static PyObject *named_tuple(writer *w, PyObject *value) {  // -> new
  PyObject *type = global_name(w, (PyObject *)Py_TYPE(value)), *items = type ? PySequence_List(value) : NULL;
  PyObject *list = items ? sequence_text(items, code_value, w) : NULL;
  PyObject *inner = list ? PyUnicode_Substring(list, 1, PyUnicode_GET_LENGTH(list) - 1) : NULL;
  PyObject *text = inner ? PyUnicode_FromFormat("%U(%U)", type, inner) : NULL;
  Py_XDECREF(type);
  Py_XDECREF(items);
  Py_XDECREF(list);
  Py_XDECREF(inner);
  return text;
}

static bool is_named_by_program(const wk__state *state, PyObject *value) {
  return wk__is_overload(state, value) || Py_IS_TYPE(value, state->operator_type) || PyType_Check(value) ||
         PyFunction_Check(value) || PyCFunction_Check(value);
}

static PyObject *code_value(void *context, PyObject *value) {  // -> new
  writer *w = context;
  if (wk__is_fx_node(w->graph->state, value)) return Py_NewRef(((wk__fx_node *)value)->name);
  if (PyTuple_Check(value) && PyObject_HasAttrString(value, "_fields")) return named_tuple(w, value);
  if (PyTuple_Check(value) || PyList_Check(value)) return sequence_text(value, code_value, w);
  if (PyDict_Check(value)) return dict_text(value, key_value, code_value, w);
  if (is_named_by_program(w->graph->state, value)) return global_name(w, value);
  return PyObject_Repr(value);
}

/* "x, 1, alpha = 2": arguments from the first-th on. */
static PyObject *argument_list(writer *w, PyObject *args, PyObject *kwargs, Py_ssize_t first) {  // -> new
  wk__string s = {0};
  PyObject *key, *value;
  Py_ssize_t at = 0;
  int status = 0;
  for (Py_ssize_t i = first; i < PyTuple_GET_SIZE(args) && status == 0; i++) {
    if (i > first) wk__string_append(&s, ", ");
    status = put(&s, code_value(w, PyTuple_GET_ITEM(args, i)));
  }
  bool any = PyTuple_GET_SIZE(args) > first;
  while (status == 0 && PyDict_Next(kwargs, &at, &key, &value)) {
    if (any) wk__string_append(&s, ", ");
    any = true;
    status = put(&s, PyObject_Str(key));
    wk__string_append(&s, " = ");
    if (status == 0) status = put(&s, code_value(w, value));
  }
  return finish(&s, status);
}

/* ================================================= source: calls ================================================ */

typedef struct sign {
  const char *name, *text;
} sign;
static const sign binary_signs[] = {{"add", "+"},  {"sub", "-"},  {"mul", "*"},    {"truediv", "/"}, {"floordiv", "//"},
                                    {"mod", "%"},  {"pow", "**"}, {"matmul", "@"}, {"lshift", "<<"}, {"rshift", ">>"},
                                    {"and_", "&"}, {"or_", "|"},  {"xor", "^"},    {"eq", "=="},     {"ne", "!="},
                                    {"lt", "<"},   {"gt", ">"},   {"le", "<="},    {"ge", ">="},     {0}};
static const sign unary_signs[] = {{"neg", "-"}, {"pos", "+"}, {"invert", "~"}, {0}};
static const sign assigning_signs[] = {{"iadd", "+="},     {"isub", "-="},
                                       {"imul", "*="},     {"itruediv", "/="},
                                       {"imod", "%="},     {"ifloordiv", "//="},
                                       {"imatmul", "@="},  {"ipow", "**="},
                                       {"iand", "&="},     {"ior", "|="},
                                       {"ixor", "^="},     {"ilshift", "<<="},
                                       {"irshift", ">>="}, {0}};

static const char *sign_of(const sign *signs, const char *name) {
  for (; signs->name; signs++)
    if (strcmp(signs->name, name) == 0) return signs->text;
  return NULL;
}

/* The name of a function of module `operator`, in `out`; false for any other target. */
static bool operator_name(PyObject *target, char *out, size_t room) {
  PyObject *module = PyObject_GetAttrString(target, "__module__"), *name = PyObject_GetAttrString(target, "__name__");
  bool found = module && name && PyUnicode_Check(module) && PyUnicode_Check(name) &&
               PyUnicode_CompareWithASCIIString(module, "_operator") == 0;
  if (found) snprintf(out, room, "%s", PyUnicode_AsUTF8(name));
  PyErr_Clear();
  Py_XDECREF(module);
  Py_XDECREF(name);
  return found;
}

/* The three texts around two or three operands; takes the operands. */
static PyObject *joined(const char *form, PyObject *a, PyObject *b, PyObject *c) {  // -> new
  PyObject *text = a && b && c ? PyUnicode_FromFormat(form, a, b, c) : NULL;
  Py_XDECREF(a);
  Py_XDECREF(b);
  Py_XDECREF(c);
  return text;
}

/* "a + b", "x[0]", "x += 1;  iadd = x". NULL without an exception: there is no such form. */
static PyObject *with_sign(writer *w, wk__fx_node *node, bool *out_statement) {  // -> new
  char name[32];
  PyObject *args = node->args, *sign_text;
  Py_ssize_t n = PyTuple_GET_SIZE(args);
  if (PyDict_GET_SIZE(node->kwargs) || n < 1 || n > 3 || !operator_name(node->target, name, sizeof name)) return NULL;
  PyObject *a = PyTuple_GET_ITEM(args, 0), *b = n > 1 ? PyTuple_GET_ITEM(args, 1) : NULL;
  const char *sign = n == 1 ? sign_of(unary_signs, name) : n == 2 ? sign_of(binary_signs, name) : NULL;
  if (sign) {
    sign_text = PyUnicode_FromString(sign);
    return n == 1 ? joined("%U%U%U", sign_text, code_value(w, a), PyUnicode_FromString(""))
                  : joined("%U %U %U", code_value(w, a), sign_text, code_value(w, b));
  }
  if (n == 2 && strcmp(name, "getitem") == 0)
    return joined("%U[%U]%U", code_value(w, a), code_value(w, b), PyUnicode_FromString(""));
  const char *assigning = n == 2 ? sign_of(assigning_signs, name) : NULL;
  bool setitem = n == 3 && strcmp(name, "setitem") == 0;
  *out_statement = assigning || setitem;
  if (setitem)
    return joined("%U[%U] = %U", code_value(w, a), code_value(w, b), code_value(w, PyTuple_GET_ITEM(args, 2)));
  if (!assigning) return NULL;
  return joined("%U %U %U", code_value(w, a), PyUnicode_FromString(assigning), code_value(w, b));
}

/* base.layer.weight; parts that are no names through getattr. */
static PyObject *path_text(PyObject *steal_base, PyObject *path) {  // -> new
  PyObject *dot = PyUnicode_FromString("."), *names = dot ? PyUnicode_Split(path, dot, -1) : NULL;
  PyObject *text = names ? steal_base : NULL;
  if (!names) Py_XDECREF(steal_base);
  for (Py_ssize_t i = 0; text && i < PyList_GET_SIZE(names); i++) {
    PyObject *name = PyList_GET_ITEM(names, i);
    Py_SETREF(text, PyUnicode_FromFormat(PyUnicode_IsIdentifier(name) ? "%U.%U" : "getattr(%U, \"%U\")", text, name));
  }
  Py_XDECREF(dot);
  Py_XDECREF(names);
  return text;
}

static bool is_attribute_read(const wk__fx_node *node) {
  PyObject *getattr = PyDict_GetItemString(PyEval_GetBuiltins(), "getattr");
  return node->target == getattr && PyTuple_GET_SIZE(node->args) == 2 && PyDict_GET_SIZE(node->kwargs) == 0 &&
         PyUnicode_Check(PyTuple_GET_ITEM(node->args, 1)) && PyUnicode_IsIdentifier(PyTuple_GET_ITEM(node->args, 1));
}

static PyObject *call_text(writer *w, PyObject *steal_callee, wk__fx_node *node, Py_ssize_t first) {  // -> new
  return joined("%U(%U)%U", steal_callee, argument_list(w, node->args, node->kwargs, first), PyUnicode_FromString(""));
}

static PyObject *function_text(writer *w, wk__fx_node *node, bool *out_statement) {  // -> new
  if (is_attribute_read(node))
    return joined("%U.%U%U", code_value(w, PyTuple_GET_ITEM(node->args, 0)), Py_NewRef(PyTuple_GET_ITEM(node->args, 1)),
                  PyUnicode_FromString(""));
  PyObject *text = with_sign(w, node, out_statement);
  return text || PyErr_Occurred() ? text : call_text(w, global_name(w, node->target), node, 0);
}

/* The right side of a node's line. */
static PyObject *value_text(writer *w, wk__fx_node *node, bool *out_statement) {  // -> new
  *out_statement = false;
  switch (node->op) {
    case WK__FX_GET_ATTR:
      return path_text(PyUnicode_FromString(w->root), node->target);
    case WK__FX_CALL_MODULE:
      return call_text(w, path_text(PyUnicode_FromString(w->root), node->target), node, 0);
    case WK__FX_CALL_METHOD:
      if (PyTuple_GET_SIZE(node->args) == 0) return PyErr_Format(PyExc_ValueError, "a method is called on nothing");
      return call_text(w, path_text(code_value(w, PyTuple_GET_ITEM(node->args, 0)), node->target), node, 1);
    default:
      return function_text(w, node, out_statement);
  }
}

/* ================================================= source: lines ================================================ */

/* ";  a = b = None" for what is not needed any more; the node itself when it has no users. */
static int put_deletions(writer *w, wk__fx_node *node) {
  PyObject *dead = PyDict_GetItemWithError(w->last, (PyObject *)node);
  bool unused = PyDict_GET_SIZE(node->users) == 0;
  Py_ssize_t n = dead ? PyList_GET_SIZE(dead) : 0;
  if (n || unused) wk__string_append(&w->body, ";  ");
  for (Py_ssize_t i = 0; i < n; i++) {
    if (put(&w->body, Py_NewRef(((wk__fx_node *)PyList_GET_ITEM(dead, i))->name)) < 0) return -1;
    wk__string_append(&w->body, " = ");
  }
  if (unused && put(&w->body, PyUnicode_FromFormat("%U = ", node->name)) < 0) return -1;
  wk__string_append(&w->body, n || unused ? "None\n" : "\n");
  return 0;
}

/* The dtype as in "f32[2, 3]". */
static const char *short_dtype(int dtype) {
  static const char *const names[][2] = {
      {"float", "f"}, {"bfloat", "bf"}, {"int", "i"}, {"uint", "u"}, {"complex", "c"}};
  static WK__THREAD_LOCAL char text[24];
  const char *name = wk_dtype_name((wk_dtype)dtype);
  if (dtype == WK_BOOL) return "b8";
  for (size_t i = 0; i < WK_COUNT(names); i++) {
    size_t length = strlen(names[i][0]);
    if (strncmp(name, names[i][0], length) != 0 || !Py_ISDIGIT(name[length])) continue;
    snprintf(text, sizeof text, "%s%s", names[i][1], name + length);
    return text;
  }
  return name;
}

/* "[s0, 4]", as the tensor's `shape` says. */
static int put_sizes(PyObject *tensor, wk__string *out) {
  PyObject *shape = PyObject_GetAttrString(tensor, "shape");
  PyObject *sizes = shape ? PySequence_Fast(shape, "shape is no sequence") : NULL;
  int status = sizes ? 0 : -1;
  wk__string_append(out, "[");
  for (Py_ssize_t i = 0; status == 0 && i < PySequence_Fast_GET_SIZE(sizes); i++) {
    if (i) wk__string_append(out, ", ");
    status = put(out, PyObject_Str(PySequence_Fast_GET_ITEM(sizes, i)));
  }
  wk__string_append(out, "]");
  Py_XDECREF(shape);
  Py_XDECREF(sizes);
  return status;
}

/* `: "f32[2, 3]"`, `: "Sym(s0)"` when the node says what it is. */
static int put_description(writer *w, wk__fx_node *node, wk__string *out) {
  wk__state *state = w->graph->state;
  PyObject *meta = w->readable ? wk__fx_node_meta(node) : NULL;
  PyObject *value = meta ? PyDict_GetItemString(meta, "val") : NULL;
  if (!value) return w->readable && !meta ? -1 : 0;
  if (wk__is_tensor(state, value)) {
    wk__string_printf(out, ": \"%s", short_dtype(wk__tensor_of(value)->dtype));
    if (put_sizes(value, out) < 0) return -1;
    wk__string_append(out, "\"");
    return 0;
  }
  PyObject *size = PyLong_Check(value) ? wk__fx_object(state, "wick._symint", "SymInt") : NULL;
  if (!size || !PyObject_IsInstance(value, size)) return PyErr_Occurred() ? -1 : 0;
  return put(out, PyUnicode_FromFormat(": \"Sym(%S)\"", value));
}

/* The innermost of the places in a stack trace, as a comment above the node. */
static int put_place(writer *w, wk__fx_node *node) {
  PyObject *meta = w->readable ? wk__fx_node_meta(node) : NULL;
  if (!w->readable || !meta) return w->readable ? -1 : 0;
  PyObject *trace = PyDict_GetItemString(meta, "stack_trace");
  PyObject *place = trace && PyUnicode_Check(trace) ? trace : Py_None;
  int same = w->place ? PyObject_RichCompareBool(place, w->place, Py_EQ) : 0;
  if (same) return same < 0 ? -1 : 0;
  Py_XSETREF(w->place, Py_NewRef(place));
  if (place == Py_None) {
    wk__string_append(&w->body, "    # No stacktrace found for following nodes\n");
    return 0;
  }
  PyObject *shorten = wk__fx_object(w->graph->state, "wick.fx._places", "comment");
  wk__string_append(&w->body, "    \n     # ");
  if (!shorten || put(&w->body, PyObject_CallOneArg(shorten, place)) < 0) return -1;
  wk__string_append(&w->body, "\n");
  return 0;
}

static int put_parameter(writer *w, wk__fx_node *node) {
  wk__string *s = &w->parameters;
  wk__string_append(s, ", ");
  if (put(s, Py_NewRef(node->target)) < 0 || put(s, annotation(node, " : %U")) < 0) return -1;
  if (node->type == Py_None && put_description(w, node, s) < 0) return -1;
  if (PyTuple_GET_SIZE(node->args)) {
    wk__string_append(s, " = ");
    if (put(s, code_value(w, PyTuple_GET_ITEM(node->args, 0))) < 0) return -1;
  }
  const char *target = PyUnicode_AsUTF8(node->target);
  while (target && *target == '*') target++;
  if (!target || PyUnicode_CompareWithASCIIString(node->name, target) == 0) return target ? 0 : -1;
  if (put(&w->body, PyUnicode_FromFormat("    %U = %s\n", node->name, target)) < 0) return -1;
  return 0;
}

static int put_call(writer *w, wk__fx_node *node) {
  bool statement;
  PyObject *value = put_place(w, node) < 0 ? NULL : value_text(w, node, &statement);
  if (!value) return -1;
  wk__string_append(&w->body, "    ");
  if (statement) {
    PyObject *first = code_value(w, PyTuple_GET_ITEM(node->args, 0));
    PyObject *text = first ? PyUnicode_FromFormat("%U;  %U = %U", value, node->name, first) : NULL;
    Py_XDECREF(first);
    Py_DECREF(value);
    return put(&w->body, text) < 0 ? -1 : put_deletions(w, node);
  }
  int status = put(&w->body, Py_NewRef(node->name));
  if (status == 0) status = put(&w->body, annotation(node, " : %U"));
  if (status == 0 && node->type == Py_None) status = put_description(w, node, &w->body);
  wk__string_append(&w->body, " = ");
  if (status == 0)
    status = put(&w->body, value);
  else
    Py_DECREF(value);
  return status < 0 ? -1 : put_deletions(w, node);
}

static int put_node(writer *w, wk__fx_node *node) {
  if (node->op == WK__FX_PLACEHOLDER) return put_parameter(w, node);
  if (node->op != WK__FX_OUTPUT) return put_call(w, node);
  wk__string_append(&w->body, "    return ");
  int status = put(&w->body, code_value(w, PyTuple_GET_ITEM(node->args, 0)));
  wk__string_append(&w->body, "\n");
  return status;
}

static PyObject *whole_text(writer *w) {  // -> new
  if (w->graph->root->previous->op == WK__FX_ROOT) wk__string_append(&w->body, "    pass\n");
  const char *parameters = w->parameters.text ? w->parameters.text : "", *body = w->body.text ? w->body.text : "";
  return PyUnicode_FromFormat("\n\n\ndef forward(%s%s):\n%s    ", w->root, parameters, body);
}

static int add_common_globals(wk__fx_graph *graph, PyObject *globals) {
  PyObject *torch = PyImport_ImportModule("wick"), *inf = PyFloat_FromDouble(Py_HUGE_VAL),
           *nan = PyFloat_FromDouble(Py_NAN);
  int status = torch && inf && nan ? PyDict_SetItemString(globals, "torch", torch) : -1;
  if (status == 0) status = PyDict_SetItemString(globals, "inf", inf);
  if (status == 0) status = PyDict_SetItemString(globals, "nan", nan);
  if (status == 0) status = PyDict_SetItemString(globals, "device", (PyObject *)graph->state->device_type);
  Py_XDECREF(torch);
  Py_XDECREF(inf);
  Py_XDECREF(nan);
  return status;
}

PyObject *wk__fx_graph_code(wk__fx_graph *graph, const char *root, bool readable, PyObject *globals) {  // -> new
  writer w = {.graph = graph, .root = root, .globals = globals, .readable = readable};
  w.last = wk__fx_last_uses(graph);
  int status = w.last ? add_common_globals(graph, globals) : -1;
  WK__FX_EACH_NODE(n, graph) {
    if (status < 0 || (status = put_node(&w, n)) < 0) break;
  }
  PyObject *text = status < 0 ? NULL : whole_text(&w);
  Py_XDECREF(w.last);
  Py_XDECREF(w.place);
  wk__string_release(&w.parameters);
  wk__string_release(&w.body);
  return text;
}
