/* torch.ops.aten.add.Tensor: one overload of an operator as a callable with PyTorch's names.
 *
 * In: names in PyTorch's form. Out: one object for each overload, so that programs compare targets with `is`. An
 * overload is the row itself, its in-place form (add_.Tensor), or, of a row that mutates, the functional twin that
 * graphs hold (_fused_sgd.default): it gives what the row makes and the new values of what the row would write. The
 * namespaces around it are Python, wick/_ops.py. Tests: tests/python/test_fx.py. */
#include "python/fx/graph_parts.h"

#include <structmember.h>

typedef struct op_overload {
  PyObject_HEAD vectorcallfunc vectorcall;
  wk__state *state;
  const wk_op *op;
  PyObject *callable; /* owned: the operator, in place where this is */
  uint8_t form;       /* wk__overload_form */
  char packet[64];    /* "add_" */
  char name[64];      /* "Tensor" */
} op_overload;

bool wk__is_overload(const wk__state *state, PyObject *o) { return Py_IS_TYPE(o, state->overload_type); }
const wk_op *wk__overload_op(PyObject *o, wk__overload_form *out_form) {
  *out_form = (wk__overload_form)((op_overload *)o)->form;
  return ((op_overload *)o)->op;
}

/* ==================================================== calling =================================================== */

static PyObject *plain_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names) {  // -> new
  return PyObject_Vectorcall(((op_overload *)self)->callable, args, nargsf, names);
}

/* A copy of a tensor, or of a list of them. */
static PyObject *copied(wk__state *state, PyObject *o) {  // -> new
  if (wk__is_tensor(state, o)) {
    wk_value args[] = {{.tag = WK_VALUE_TENSOR, .tensor = wk__tensor_of(o)}, {0}};
    return wk__call_to_python(state, WK__OP(clone), args, NULL);
  }
  PyObject *list = PySequence_List(o);
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
    PyObject *item = copied(state, PyList_GET_ITEM(list, i));
    if (!item || PyList_SetItem(list, i, item) < 0) Py_CLEAR(list);
  }
  return list;
}

static int add_written(PyObject *results, PyObject *o) {
  if (!PyList_Check(o)) return PyList_Append(results, o);
  return PyList_SetSlice(results, PyList_GET_SIZE(results), PyList_GET_SIZE(results), o);
}

/* What the row makes stands in front of what it has written. */
static int add_made(PyObject *results, const wk_op *op, PyObject *done) {
  int made = wk__made_beside_writes(op);
  if (!made) return 0;
  return made == 1 ? PyList_Insert(results, 0, done) : PyList_SetSlice(results, 0, 0, done);
}

/* Where the call has argument `i`; NULL: it has not. */
static PyObject **argument_at(const wk__schema *schema, PyObject **args, size_t n, PyObject *names, size_t i) {
  if (i < n) return &args[i];
  for (Py_ssize_t k = 0; names && k < PyTuple_GET_SIZE(names); k++)
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, k), schema->parameters[i].name) == 0)
      return &args[n + (size_t)k];
  return NULL;
}

/* Puts copies in the place of what is written; `kept` owns them, and the tensors among them are `results`. */
static int copy_written(const op_overload *o, PyObject **args, size_t n, PyObject *names, PyObject *kept,
                        PyObject *results) {
  const wk__schema *schema = &o->op->schema;
  for (size_t i = 0; i < schema->parameter_count; i++) {
    PyObject **place = schema->parameters[i].written ? argument_at(schema, args, n, names, i) : NULL;
    if (!place || *place == Py_None) continue;
    PyObject *copy = copied(o->state, *place);
    int status = copy ? PyList_Append(kept, copy) : -1;
    Py_XDECREF(copy);
    if (status < 0 || add_written(results, copy) < 0) return -1;
    *place = copy;
  }
  return 0;
}

/* Calls the row on copies of what it writes; those are the result, behind what it makes. One tensor is given alone when
 * the row gives one. */
static PyObject *call_on_copies(op_overload *o, PyObject **args, size_t n, PyObject *names) {  // -> new
  PyObject *results = PyList_New(0), *kept = PyList_New(0), *done = NULL, *result = NULL;
  if (results && kept && copy_written(o, args, n, names, kept, results) == 0)
    done = PyObject_Vectorcall(o->callable, args, n, names);
  if (done && add_made(results, o->op, done) == 0) {
    bool one = o->op->schema.result_count == 1 && PyList_GET_SIZE(results) == 1;
    result = one ? Py_NewRef(PyList_GET_ITEM(results, 0)) : PyList_AsTuple(results);
  }
  Py_XDECREF(done);
  Py_XDECREF(results);
  Py_XDECREF(kept);
  return result;
}

static PyObject *functional_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names) {  // -> new
  size_t n = (size_t)PyVectorcall_NARGS(nargsf), all = n + (names ? (size_t)PyTuple_GET_SIZE(names) : 0);
  PyObject **space = PyMem_Malloc((all + 1) * sizeof *space);
  if (!space) return PyErr_NoMemory();
  memcpy(space, args, all * sizeof *space);
  PyObject *result = call_on_copies((op_overload *)self, space, n, names);
  PyMem_Free(space);
  return result;
}

/* ==================================================== the type ================================================== */

static op_overload *of(PyObject *self) { return (op_overload *)self; }

/* Rows of torch.ops.NAMESPACE begin with a word of its own (wick/_ops.py); all others are aten's. */
static const char *namespace_of(const op_overload *o, const char **out_packet) {
  static const struct {
    const char *row, *namespace;
  } others[] = {{"vision_", "torchvision"}, {"quantized_", "quantized_decomposed"}};
  *out_packet = o->packet;
  for (size_t i = 0; i < WK_COUNT(others); i++)
    if (strncmp(o->packet, others[i].row, strlen(others[i].row)) == 0) {
      *out_packet += strlen(others[i].row);
      return others[i].namespace;
    }
  return "aten";
}

static PyObject *overload_str(PyObject *self) {  // -> new
  const char *packet, *space = namespace_of(of(self), &packet);
  return PyUnicode_FromFormat("%s.%s.%s", space, packet, of(self)->name);
}
static PyObject *overload_repr(PyObject *self) {  // -> new
  const char *packet, *space = namespace_of(of(self), &packet);
  return PyUnicode_FromFormat("<OpOverload(op='%s.%s', overload='%s')>", space, packet, of(self)->name);
}
static PyObject *overload_name(PyObject *self, void *unused) {  // -> new
  (void)unused;
  const char *packet;
  namespace_of(of(self), &packet);
  return PyUnicode_FromFormat("%s.%s", packet, of(self)->name);
}
static PyObject *overload_qualified(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  const char *packet, *space = namespace_of(of(self), &packet);
  bool plain = strcmp(of(self)->name, "default") == 0;
  return plain ? PyUnicode_FromFormat("%s::%s", space, packet)
               : PyUnicode_FromFormat("%s::%s.%s", space, packet, of(self)->name);
}
static PyObject *overload_namespace(PyObject *self, void *unused) {  // -> new
  (void)unused;
  const char *packet;
  return PyUnicode_FromString(namespace_of(of(self), &packet));
}
static PyObject *overload_module(PyObject *self, void *unused) {  // -> new
  (void)unused;
  const char *packet;
  return PyUnicode_FromFormat("torch._ops.%s", namespace_of(of(self), &packet));
}
static PyObject *overload_schema(PyObject *self, void *unused) {  // -> new
  (void)unused;
  const char *packet, *space = namespace_of(of(self), &packet);
  return PyUnicode_FromFormat("%s::%s", space, of(self)->op->schema_text + (packet - of(self)->packet));
}
static PyObject *overload_packet(PyObject *self, void *unused) {  // -> new
  (void)unused;
  PyObject *find = wk__fx_object(of(self)->state, "wick._ops", "packet");
  const char *packet, *space = namespace_of(of(self), &packet);
  return find ? PyObject_CallFunction(find, "ss", packet, space) : NULL;
}
static PyObject *overload_reduce(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  PyObject *find = wk__fx_object(of(self)->state, "wick._C", "_overload");
  return find ? Py_BuildValue("O(N)", find, PyUnicode_FromFormat("%s.%s", of(self)->packet, of(self)->name)) : NULL;
}
static PyObject *overload_copy(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return Py_NewRef(self);
}

static int overload_traverse(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(of(self)->callable);
  return 0;
}
static void overload_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Py_CLEAR(of(self)->callable);
  type->tp_free(self);
  Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(op_overload, vectorcall), READONLY, NULL},
    {"_opname", T_STRING_INPLACE, offsetof(op_overload, packet), READONLY, "\"add_\""},
    {"_overloadname", T_STRING_INPLACE, offsetof(op_overload, name), READONLY, "\"Tensor\""},
    {0}};
static PyGetSetDef getset[] = {{"__name__", overload_name, NULL, NULL, NULL},
                               {"__qualname__", overload_name, NULL, NULL, NULL},
                               {"__module__", overload_module, NULL, NULL, NULL},
                               {"namespace", overload_namespace, NULL, "\"aten\"", NULL},
                               {"_schema", overload_schema, NULL, "The schema as text.", NULL},
                               {"overloadpacket", overload_packet, NULL, "The callable over all overloads.", NULL},
                               {0}};
static PyMethodDef methods[] = {{"name", overload_qualified, METH_NOARGS, "\"aten::add.Tensor\""},
                                {"__reduce__", overload_reduce, METH_NOARGS, NULL},
                                {"__copy__", overload_copy, METH_NOARGS, NULL},
                                {"__deepcopy__", overload_copy, METH_O, NULL},
                                {0}};
static PyType_Slot slots[] = {{Py_tp_doc, "One overload of an operator: torch.ops.aten.add.Tensor(x, 1)"},
                              {Py_tp_dealloc, overload_dealloc},
                              {Py_tp_traverse, overload_traverse},
                              {Py_tp_repr, overload_repr},
                              {Py_tp_str, overload_str},
                              {Py_tp_call, PyVectorcall_Call},
                              {Py_tp_members, members},
                              {Py_tp_getset, getset},
                              {Py_tp_methods, methods},
                              {0, NULL}};
static PyType_Spec spec = {
    .name = "wick._C.OpOverload",
    .basicsize = sizeof(op_overload),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots};

/* =================================================== the names ================================================== */

/* "copy" of the row "copy_"; rows that make results beside what they write need not end so. */
static void name_functional(char *packet, size_t room) {
  size_t length = strlen(packet);
  if (packet[length - 1] == '_')
    packet[length - 1] = 0;
  else
    snprintf(packet + length, room - length, "_functional");
}

/* "add_", "Tensor": the row's own names with the form's ending. */
static void name_parts(const wk_op *op, wk__overload_form form, char *packet, char *name, size_t room) {
  const char *dot = strchr(op->name, '.');
  snprintf(packet, room, "%s%s", op->base_name, form == WK__OVERLOAD_IN_PLACE ? "_" : "");
  if (form == WK__OVERLOAD_FUNCTIONAL) name_functional(packet, room);
  snprintf(name, room, "%s", dot ? dot + 1 : "default");
}

static PyObject *make(wk__state *state, const wk_op *op, wk__overload_form form) {  // -> new
  PyTypeObject *type = state->overload_type;
  op_overload *o = (op_overload *)type->tp_alloc(type, 0);
  if (!o) return NULL;
  o->vectorcall = form == WK__OVERLOAD_FUNCTIONAL ? functional_call : plain_call;
  o->state = state;
  o->op = op;
  o->form = (uint8_t)form;
  name_parts(op, form, o->packet, o->name, sizeof o->packet);
  o->callable = wk__operator_object(state, op, form == WK__OVERLOAD_IN_PLACE);
  if (o->callable) return (PyObject *)o;
  Py_DECREF(o);
  return NULL;
}

PyObject *wk__overload_of(wk__state *state, const wk_op *op, wk__overload_form form) {  // -> new
  PyObject *custom = wk__custom_op_target(op, form == WK__OVERLOAD_FUNCTIONAL);
  if (custom || PyErr_Occurred()) return custom;
  PyObject *key = Py_BuildValue("ii", (int)op->number, (int)form);
  PyObject *known = key ? Py_XNewRef(PyDict_GetItemWithError(state->graph_objects, key)) : NULL;
  if (key && !known && !PyErr_Occurred()) {
    known = make(state, op, form);
    if (known && PyDict_SetItem(state->graph_objects, key, known) < 0) Py_CLEAR(known);
  }
  Py_XDECREF(key);
  return known;
}

static const wk_op *find_row(const char *packet, const char *name) {
  char text[136];
  bool plain = strcmp(name, "default") == 0;
  snprintf(text, sizeof text, plain ? "%s" : "%s.%s", packet, name);
  return wk_op_find(text);
}

static bool has_in_place_form(const wk_op *op) {
  bool on_tensor = op->schema.parameter_count && op->schema.parameters[0].type == WK__TYPE_TENSOR;
  return on_tensor && wk__writes_in_place(op);
}

/* NULL: there is none, no exception. */
static const wk_op *find_form(const char *packet, const char *name, wk__overload_form *out_form) {
  char other[64];
  size_t length = strlen(packet);
  const wk_op *op = find_row(packet, name);
  *out_form = WK__OVERLOAD_PLAIN;
  if (op || length + 2 > sizeof other) return op;
  if (length && packet[length - 1] == '_') {
    snprintf(other, sizeof other, "%.*s", (int)length - 1, packet);
    *out_form = WK__OVERLOAD_IN_PLACE;
    op = find_row(other, name);
    return op && has_in_place_form(op) ? op : NULL;
  }
  *out_form = WK__OVERLOAD_FUNCTIONAL;
  const char *ending = strstr(packet, "_functional");
  if (ending && !ending[strlen("_functional")])
    snprintf(other, sizeof other, "%.*s", (int)(ending - packet), packet);
  else
    snprintf(other, sizeof other, "%s_", packet);
  op = find_row(other, name);
  return op && op->tags & WK__TAG_MUTATES ? op : NULL;
}

/* _overload("add.Tensor"), _overload("relu.default") */
static PyObject *overload(PyObject *module, PyObject *qualified) {  // -> new
  char packet[64];
  const char *text = PyUnicode_AsUTF8(qualified), *dot = text ? strchr(text, '.') : NULL;
  if (!text) return NULL;
  wk__overload_form form;
  snprintf(packet, sizeof packet, "%.*s", dot ? (int)(dot - text) : (int)strlen(text), text);
  const wk_op *op = find_form(packet, dot ? dot + 1 : "default", &form);
  return op ? wk__overload_of(wk__state_of_module(module), op, form) : PyErr_Format(PyExc_KeyError, "%s", text);
}

static int add_name(PyObject *list, const char *name) {
  PyObject *text = PyUnicode_FromString(name);
  int status = text ? PyList_Append(list, text) : -1;
  Py_XDECREF(text);
  return status;
}

/* The names of the overloads of "add_": empty when there is no such operator. */
static PyObject *overload_names(PyObject *module, PyObject *packet) {  // -> new
  (void)module;
  const char *text = PyUnicode_AsUTF8(packet);
  PyObject *list = text ? PyList_New(0) : NULL;
  char own_packet[64], name[64];
  for (int i = 0; list && i < wk_op_count(); i++) {
    const wk_op *op = wk_op_at(i);
    for (int form = 0; list && form <= WK__OVERLOAD_FUNCTIONAL; form++) {
      if (form == WK__OVERLOAD_IN_PLACE && !has_in_place_form(op)) continue;
      if (form == WK__OVERLOAD_FUNCTIONAL && !(op->tags & WK__TAG_MUTATES)) continue;
      name_parts(op, (wk__overload_form)form, own_packet, name, sizeof name);
      wk__overload_form found;
      if (strcmp(own_packet, text) != 0 || find_form(own_packet, name, &found) != op || (int)found != form) continue;
      if (add_name(list, name) < 0) Py_CLEAR(list);
    }
  }
  return list;
}

static PyMethodDef functions[] = {
    {"_overload", overload, METH_O, "One overload by its name: _overload('add.Tensor')"},
    {"_overload_names", overload_names, METH_O, "The overloads' names: _overload_names('add')"},
    {0}};

int wk__add_overloads(PyObject *module, wk__state *state) {
  state->overload_type = wk__add_type(module, &spec, NULL, "OpOverload");
  return state->overload_type ? PyModule_AddFunctions(module, functions) : -1;
}
