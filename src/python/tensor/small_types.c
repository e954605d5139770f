/* device, Size, memory formats and layouts, and the settings of the library. dtype and Generator have files of their
 * own. In: Python arguments. Out: small immutable objects; PyTorch's texts, errors included. Tests:
 * tests/python/test_small_types.py. */
#include <stdatomic.h>

#include "python/data/interop.h"

PyTypeObject *wk__add_type(PyObject *module, PyType_Spec *spec, PyTypeObject *base, const char *name) {  // -> new
  PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, (PyObject *)base);
  if (type && PyModule_AddObjectRef(module, name, (PyObject *)type) < 0) Py_CLEAR(type);
  return type;
}

static void plain_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

/* ==================================================== device ==================================================== */

enum { MAX_DEVICE_INDEX = INT8_MAX };

static wk_device device_of(PyObject *self) { return ((wk__python_device *)self)->device; }

static PyObject *make_device(PyTypeObject *type, wk_device device) {  // -> new
  PyObject *self = type->tp_alloc(type, 0);
  if (self) ((wk__python_device *)self)->device = device;
  return self;
}
PyObject *wk__device_object(wk__state *state, wk_device device) {  // -> new
  return make_device(state->device_type, device);
}

/* Only what a device prints is accepted: no signs, leading zeros or spaces in the index. */
static int parse_device(wk__state *state, const char *text, wk_device *out) {
  if (!*text) {
    PyErr_SetString(PyExc_RuntimeError, "Device string must not be empty");
    return -1;
  }
  if (wk__device_parse(text, out) != WK_OK) {
    wk__raise(state);
    return -1;
  }
  wk__string printed = {0};
  wk__device_print(&printed, *out);
  bool same = printed.text && strcmp(printed.text, text) == 0;
  wk__string_release(&printed);
  if (!same) PyErr_Format(PyExc_RuntimeError, "Invalid device string: '%s'", text);
  return same ? 0 : -1;
}

static int index_from_python(PyObject *o, int8_t *out) {
  long index = PyLong_AsLong(o);
  if (index == -1 && PyErr_Occurred()) return -1;
  if (index >= 0 && index <= MAX_DEVICE_INDEX) {
    *out = (int8_t)index;
    return 0;
  }
  PyErr_Format(PyExc_RuntimeError, index < 0 ? "Device index must not be negative" : "Device index %ld is too large",
               index);
  return -1;
}

int wk__device_as_named(wk__state *state, PyObject *o, wk_device *out) {
  if (Py_IS_TYPE(o, state->device_type)) {
    *out = device_of(o);
    return 0;
  }
  if (PyUnicode_Check(o)) {
    const char *text = PyUnicode_AsUTF8(o);
    return text ? parse_device(state, text, out) : -1;
  }
  if (PyLong_Check(o) && !PyBool_Check(o)) {
    out->type = WK_CUDA;
    return index_from_python(o, &out->index);
  }
  PyErr_Format(PyExc_TypeError, "argument 'device' must be torch.device, not %s", Py_TYPE(o)->tp_name);
  return -1;
}

/* Where a tensor is to be: of the CPU and of meta there is one, whatever the number. */
int wk__device_from_python(wk__state *state, PyObject *o, wk_device *out) {
  if (wk__device_as_named(state, o, out) < 0) return -1;
  if (wk__device_resolve(out) == WK_OK) return 0;
  wk__raise(state);
  return -1;
}

static PyObject *device_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"type", "index", NULL};
  PyObject *given, *index = NULL;
  wk_device device;
  wk__state *state = wk__state_of_type(type);
  if (!state || !PyArg_ParseTupleAndKeywords(args, keywords, "O|O:device", names, &given, &index)) return NULL;
  if (wk__device_as_named(state, given, &device) < 0) return NULL;
  if (!index || index == Py_None) return make_device(type, device);
  if (device.index >= 0 || !PyUnicode_Check(given))
    return PyErr_Format(PyExc_RuntimeError,
                        "type (string) must not include an index because index was passed explicitly: %S", given);
  return index_from_python(index, &device.index) < 0 ? NULL : make_device(type, device);
}

static PyObject *device_str(PyObject *self) {  // -> new
  wk__string s = {0};
  wk__device_print(&s, device_of(self));
  PyObject *text = s.failed ? PyErr_NoMemory() : PyUnicode_FromStringAndSize(s.text, (Py_ssize_t)s.length);
  wk__string_release(&s);
  return text;
}

static PyObject *device_type(PyObject *self, void *unused) {  // -> new
  (void)unused;
  PyObject *text = device_str(self), *colon = text ? PyUnicode_FromString(":") : NULL;
  PyObject *parts = colon ? PyUnicode_Partition(text, colon) : NULL;
  PyObject *type = parts ? Py_NewRef(PyTuple_GET_ITEM(parts, 0)) : NULL;
  Py_XDECREF(parts);
  Py_XDECREF(colon);
  Py_XDECREF(text);
  return type;
}
static PyObject *device_index(PyObject *self, void *unused) {  // -> new
  (void)unused;
  if (device_of(self).index < 0) Py_RETURN_NONE;
  return PyLong_FromLong(device_of(self).index);
}

static PyObject *device_repr(PyObject *self) {  // -> new
  PyObject *type = device_type(self, NULL), *text = NULL;
  if (!type) return NULL;
  if (device_of(self).index < 0)
    text = PyUnicode_FromFormat("device(type='%U')", type);
  else
    text = PyUnicode_FromFormat("device(type='%U', index=%d)", type, device_of(self).index);
  Py_DECREF(type);
  return text;
}

static PyObject *device_reduce(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return Py_BuildValue("O(N)", Py_TYPE(self), device_str(self));
}
static PyObject *device_compare(PyObject *a, PyObject *b, int comparison) {  // -> new
  if ((comparison != Py_EQ && comparison != Py_NE) || !Py_IS_TYPE(b, Py_TYPE(a))) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong(wk__device_equal(device_of(a), device_of(b)) == (comparison == Py_EQ));
}
static Py_hash_t device_hash(PyObject *self) { return device_of(self).type * 1000 + device_of(self).index + 1; }

/* ---- the device of new tensors: `with device("meta"):` and set_default_device ---- */

enum { MOST_DEVICES_DEEP = 64 };
static WK__THREAD_LOCAL wk_device devices_before[MOST_DEVICES_DEEP];
static WK__THREAD_LOCAL int devices_deep;

static PyObject *device_enter(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  wk_device device = device_of(self);
  if (devices_deep == MOST_DEVICES_DEEP) return PyErr_Format(PyExc_RuntimeError, "too many default devices at once");
  wk__state *state = wk__state_of_type(Py_TYPE(self));
  if (wk__device_resolve(&device) != WK_OK) return wk__raise(state);
  devices_before[devices_deep++] = wk__thread.default_device;
  wk__thread.default_device = device;
  return Py_NewRef(self);
}
static PyObject *device_exit(PyObject *self, PyObject *args) {  // -> new
  (void)self, (void)args;
  if (devices_deep) wk__thread.default_device = devices_before[--devices_deep];
  Py_RETURN_NONE;
}
/* As a decorator: each call of the function inside the device's block. */
static PyObject *device_call(PyObject *self, PyObject *args, PyObject *keywords) {  // -> new
  PyObject *function;
  static char *names[] = {"func", NULL};
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O", names, &function)) return NULL;
  PyObject *module = PyImport_ImportModule("wick._default_device");
  PyObject *result = module ? PyObject_CallMethod(module, "decorate", "OO", self, function) : NULL;
  Py_XDECREF(module);
  return result;
}

static PyObject *get_default_device(PyObject *module, PyObject *unused) {  // -> new
  (void)unused;
  return make_device(wk__state_of_module(module)->device_type, wk__thread.default_device);
}
static PyObject *set_default_device(PyObject *module, PyObject *o) {  // -> new
  wk_device device = WK__CPU_DEVICE;
  if (o != Py_None && wk__device_from_python(wk__state_of_module(module), o, &device) < 0) return NULL;
  wk__thread.default_device = device;
  Py_RETURN_NONE;
}
static PyMethodDef device_functions[] = {
    {"get_default_device", get_default_device, METH_NOARGS, "The device of new tensors whose call names none."},
    {"set_default_device", set_default_device, METH_O, "set_default_device('meta'); None: the CPU."},
    {0}};

static PyMethodDef device_methods[] = {{"__reduce__", device_reduce, METH_NOARGS, NULL},
                                       {"__enter__", device_enter, METH_NOARGS, "New tensors are made there."},
                                       {"__exit__", device_exit, METH_VARARGS, NULL},
                                       {0}};
static PyGetSetDef device_getset[] = {{"type", device_type, NULL, "'cpu', 'cuda' or 'meta'.", NULL},
                                      {"index", device_index, NULL, "Which of them; None for the current one.", NULL},
                                      {0}};
static PyType_Slot device_slots[] = {{Py_tp_doc, "Where a tensor's memory is: device('cuda:1'), device('cuda', 1)."},
                                     {Py_tp_new, device_new},
                                     {Py_tp_dealloc, plain_dealloc},
                                     {Py_tp_repr, device_repr},
                                     {Py_tp_str, device_str},
                                     {Py_tp_richcompare, device_compare},
                                     {Py_tp_hash, device_hash},
                                     {Py_tp_call, device_call},
                                     {Py_tp_methods, device_methods},
                                     {Py_tp_getset, device_getset},
                                     {0, NULL}};
static PyType_Spec device_spec = {
    .name = "wick.device", .basicsize = sizeof(wk__python_device), .flags = Py_TPFLAGS_DEFAULT, .slots = device_slots};

/* ===================================================== Size ===================================================== */

/* What Python's tuple slots give may hold anything and be a plain tuple: Sizes are made and checked here alone. */

static PyObject *bad_size(PyObject *item, Py_ssize_t at) {  // -> borrowed, always NULL
  return PyErr_Format(PyExc_TypeError, "torch.Size() takes an iterable of 'int' (item %zd is '%s')", at,
                      Py_TYPE(item)->tp_name);
}

/* Takes the tuple, which may be NULL with an exception. */
static PyObject *size_from_tuple(PyTypeObject *type, PyObject *steal_tuple) {  // -> new
  Py_ssize_t n = steal_tuple ? PyTuple_GET_SIZE(steal_tuple) : 0;
  PyObject *size = steal_tuple ? type->tp_alloc(type, n) : NULL;
  for (Py_ssize_t i = 0; size && i < n; i++) {
    PyObject *item = PyTuple_GET_ITEM(steal_tuple, i);
    PyObject *number = PyLong_CheckExact(item) ? Py_NewRef(item)
                       : PyIndex_Check(item)   ? PyNumber_Index(item)
                                               : bad_size(item, i);
    if (!number) Py_CLEAR(size);
    if (size) PyTuple_SET_ITEM(size, i, number);
  }
  Py_XDECREF(steal_tuple);
  return size;
}

static PyObject *size_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {  // -> new
  return size_from_tuple(type, PyTuple_Type.tp_new(&PyTuple_Type, args, keywords));
}

PyObject *wk__size_object(wk__state *state, const wk_int *sizes, int count) {  // -> new
  PyObject *self = state->size_type->tp_alloc(state->size_type, count);
  for (int i = 0; self && i < count; i++) {
    int64_t value = wk_int_guard_value(sizes[i]);
    PyObject *item = value == INT64_MIN ? wk__raise(state) : PyLong_FromLongLong(value);
    if (!item) Py_CLEAR(self);
    if (self) PyTuple_SET_ITEM(self, i, item);
  }
  return self;
}

static PyObject *size_repr(PyObject *self) {  // -> new
  PyObject *list = PySequence_List(self);
  PyObject *text = list ? PyUnicode_FromFormat("%s.Size(%R)", wk__print_module_name, list) : NULL;
  Py_XDECREF(list);
  return text;
}

static PyObject *size_numel(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  PyObject *product = PyLong_FromLong(1);
  for (Py_ssize_t i = 0; product && i < PyTuple_GET_SIZE(self); i++)
    Py_SETREF(product, PyNumber_Multiply(product, PyTuple_GET_ITEM(self, i)));
  return product;
}

static PyObject *size_reduce(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return Py_BuildValue("O(N)", Py_TYPE(self), PyTuple_GetSlice(self, 0, PyTuple_GET_SIZE(self)));
}

/* The Size type of one of two operands, at least one of which is a Size. */
static PyTypeObject *size_type_of(PyObject *a, PyObject *b) {  // -> borrowed
  return Py_TYPE(a)->tp_new == size_new ? Py_TYPE(a) : Py_TYPE(b);
}

/* For both orders: the number slot is asked even when the left operand is a plain tuple. */
static PyObject *size_add(PyObject *a, PyObject *b) {  // -> new
  if (!PyTuple_Check(a) || !PyTuple_Check(b)) Py_RETURN_NOTIMPLEMENTED;
  return size_from_tuple(size_type_of(a, b), PyTuple_Type.tp_as_sequence->sq_concat(a, b));
}
static PyObject *size_concat(PyObject *self, PyObject *other) {  // -> new
  if (PyTuple_Check(other)) return size_add(self, other);
  return PyErr_Format(PyExc_TypeError, "can only concatenate tuple (not %s) to torch.Size", Py_TYPE(other)->tp_name);
}
static PyObject *size_repeat(PyObject *self, Py_ssize_t count) {  // -> new
  return size_from_tuple(Py_TYPE(self), PyTuple_Type.tp_as_sequence->sq_repeat(self, count));
}
static PyObject *size_subscript(PyObject *self, PyObject *key) {  // -> new
  PyObject *result = PyTuple_Type.tp_as_mapping->mp_subscript(self, key);
  return PySlice_Check(key) ? size_from_tuple(Py_TYPE(self), result) : result;
}

static PyMethodDef size_methods[] = {{"numel", size_numel, METH_NOARGS, "The product: Size([2, 3]).numel() == 6"},
                                     {"__reduce__", size_reduce, METH_NOARGS, NULL},
                                     {0}};
static PyType_Slot size_slots[] = {{Py_tp_doc, "The sizes of a tensor: a tuple of ints."},
                                   {Py_tp_new, size_new},
                                   {Py_tp_repr, size_repr},
                                   {Py_tp_methods, size_methods},
                                   {Py_nb_add, size_add},
                                   {Py_sq_concat, size_concat},
                                   {Py_sq_repeat, size_repeat},
                                   {Py_mp_subscript, size_subscript},
                                   {0, NULL}};
static PyType_Spec size_spec = {.name = "wick.Size", .flags = Py_TPFLAGS_DEFAULT, .slots = size_slots};

/* =========================================== memory formats and layouts ========================================= */

typedef struct constant {
  PyObject_HEAD const char *name; /* of static life */
} constant;

static PyObject *constant_repr(PyObject *self) {  // -> new
  return PyUnicode_FromFormat("%s.%s", wk__print_module_name, ((constant *)self)->name);
}
static PyObject *constant_reduce(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return PyUnicode_FromString(((constant *)self)->name);
}

static PyMethodDef constant_methods[] = {{"__reduce__", constant_reduce, METH_NOARGS, NULL}, {0}};
static PyType_Slot constant_slots[] = {
    {Py_tp_dealloc, plain_dealloc}, {Py_tp_repr, constant_repr}, {Py_tp_methods, constant_methods}, {0, NULL}};
static PyType_Spec memory_format_spec = {.name = "wick.memory_format",
                                         .basicsize = sizeof(constant),
                                         .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                         .slots = constant_slots};
static PyType_Spec layout_spec = {.name = "wick.layout",
                                  .basicsize = sizeof(constant),
                                  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  .slots = constant_slots};

static const char *const memory_formats[] = {"contiguous_format", "preserve_format", "channels_last",
                                             "channels_last_3d", NULL};
/* All but strided only so that programs can compare with them. */
static const char *const layouts[] = {"strided",    "sparse_coo", "sparse_csr", "sparse_csc",
                                      "sparse_bsr", "sparse_bsc", "jagged",     NULL};

static int add_constants(PyObject *module, PyTypeObject *type, const char *const *names) {
  for (; *names; names++) {
    constant *o = (constant *)type->tp_alloc(type, 0);
    if (!o) return -1;
    o->name = *names;
    int status = PyModule_AddObjectRef(module, *names, (PyObject *)o);
    if (status == 0 && strcmp(*names, "contiguous_format") == 0)
      status = PyModule_AddObjectRef(module, "legacy_contiguous_format", (PyObject *)o);
    Py_DECREF(o);
    if (status < 0) return -1;
  }
  return 0;
}

const char *wk__named_constant(wk__state *state, PyObject *o) {
  bool ours = Py_IS_TYPE(o, state->memory_format_type) || Py_IS_TYPE(o, state->layout_type);
  return ours ? ((constant *)o)->name : NULL;
}

/* =================================================== settings =================================================== */

/* A positive int for set_num_threads and its like; -1 with an exception. */
static int thread_count(const char *function, PyObject *o) {
  if (!PyLong_CheckExact(o)) {
    PyErr_Format(PyExc_RuntimeError, "%s expects an int, but got %s", function, Py_TYPE(o)->tp_name);
    return -1;
  }
  long count = PyLong_AsLong(o);
  if (count > 0 && count <= INT32_MAX) return (int)count;
  if (!PyErr_Occurred()) PyErr_Format(PyExc_RuntimeError, "%s expects a positive integer", function);
  return -1;
}

static PyObject *set_num_threads(PyObject *module, PyObject *o) {  // -> new
  int count = thread_count("set_num_threads", o);
  if (count < 0) return NULL;
  if (wk_set_num_threads(count) != WK_OK) return wk__raise(wk__state_of_module(module));
  return Py_NewRef(Py_None);
}
static PyObject *get_num_threads(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  return PyLong_FromLong(wk_get_num_threads());
}

/* wick runs one operator at a time, so this number is only kept. */
static atomic_int interop_threads;

static PyObject *set_num_interop_threads(PyObject *module, PyObject *o) {  // -> new
  (void)module;
  int count = thread_count("set_num_interop_threads", o);
  if (count < 0) return NULL;
  atomic_store(&interop_threads, count);
  return Py_NewRef(Py_None);
}
static PyObject *get_num_interop_threads(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  int count = atomic_load(&interop_threads);
  return PyLong_FromLong(count ? count : wk_get_num_threads());
}

/* A print option that counts: None leaves it, and infinity is the most. */
static int count_option(PyObject *o, int64_t most, int64_t *out) {
  if (!o || o == Py_None) return 0;
  double value = PyFloat_AsDouble(o);
  if (value == -1 && PyErr_Occurred()) return -1;
  if (!(value >= 0)) {
    PyErr_SetString(PyExc_ValueError, "print options must not be negative");
    return -1;
  }
  *out = value < (double)most ? (int64_t)value : most;
  return 0;
}

static PyObject *set_printoptions(PyObject *module, PyObject *const *args, Py_ssize_t n,
                                  PyObject *keywords) {  // -> new
  static const wk__signature signature = {
      "set_printoptions", 0, 6, {"precision", "threshold", "edgeitems", "linewidth", "profile", "sci_mode"}};
  enum { PRECISION, THRESHOLD, EDGE_ITEMS, LINE_WIDTH, PROFILE, SCI_MODE, COUNT };
  PyObject *given[COUNT];
  (void)module;
  if (wk__bind(&signature, args, n, keywords, given) < 0) return NULL;
  wk__print_options before = wk__thread.print;
  const char *profile = given[PROFILE] && PyUnicode_Check(given[PROFILE]) ? PyUnicode_AsUTF8(given[PROFILE]) : NULL;
  if (profile) wk__print_profile(profile);
  wk__print_options *o = &wk__thread.print;
  int64_t precision = o->precision, edge_items = o->edge_items, line_width = o->line_width;
  if (PyErr_Occurred() || count_option(given[PRECISION], 1000, &precision) < 0 ||
      count_option(given[THRESHOLD], INT64_MAX, &o->threshold) < 0 ||
      count_option(given[EDGE_ITEMS], INT32_MAX, &edge_items) < 0 ||
      count_option(given[LINE_WIDTH], INT32_MAX, &line_width) < 0) {
    *o = before;
    return NULL;
  }
  o->precision = (int)precision;
  o->edge_items = (int)edge_items;
  o->line_width = (int)line_width;
  o->scientific = !given[SCI_MODE] || given[SCI_MODE] == Py_None ? -1 : PyObject_IsTrue(given[SCI_MODE]);
  return Py_NewRef(Py_None);
}

static PyObject *is_tensor(PyObject *module, PyObject *o) {  // -> new
  return PyBool_FromLong(wk__is_tensor(wk__state_of_module(module), o));
}

static PyMethodDef functions[] = {
    {"set_num_threads", set_num_threads, METH_O, "Threads used inside one operator: set_num_threads(4)"},
    {"get_num_threads", get_num_threads, METH_NOARGS, "Threads used inside one operator."},
    {"set_num_interop_threads", set_num_interop_threads, METH_O, "Accepted; operators run one at a time."},
    {"get_num_interop_threads", get_num_interop_threads, METH_NOARGS, "The number that was set."},
    {"set_printoptions", WK__METHOD(set_printoptions), WK__FAST_CALL,
     "How tensors print: set_printoptions(precision=2, sci_mode=False), set_printoptions(profile='full')"},
    {"is_tensor", is_tensor, METH_O, "Whether the object is a Tensor."},
    {0}};

int wk__add_small_types(PyObject *module, wk__state *state) {
  state->device_type = wk__add_type(module, &device_spec, NULL, "device");
  state->size_type = state->device_type ? wk__add_type(module, &size_spec, &PyTuple_Type, "Size") : NULL;
  state->memory_format_type =
      state->size_type ? wk__add_type(module, &memory_format_spec, NULL, "memory_format") : NULL;
  state->layout_type = state->memory_format_type ? wk__add_type(module, &layout_spec, NULL, "layout") : NULL;
  if (!state->layout_type || add_constants(module, state->memory_format_type, memory_formats) < 0 ||
      add_constants(module, state->layout_type, layouts) < 0)
    return -1;
  if (PyModule_AddFunctions(module, functions) < 0 || PyModule_AddFunctions(module, device_functions) < 0) return -1;
  return wk__add_dtypes(module, state) < 0 ? -1 : wk__add_generators(module, state);
}
