/* Devices in Python: how many there are, which is current, streams and events, CUDA's memory and facts. torch.cuda and
 * torch.accelerator are written over it.
 *
 * A stream object borrows its stream, which lives as long as the process; an event object owns its event.
 * Tests: tests/cuda/test_cuda.py, tests/device/. */
#include "cuda/cuda.h"
#include "python/data/interop.h"

/* ---- arguments ---- */

/* A device, with its index. */
static int device_of(PyObject *module, PyObject *o, wk_device *out) {
  wk__state *state = wk__state_of_module(module);
  *out = (wk_device){WK_CUDA, -1};
  if (o != Py_None && wk__device_argument(state, o, out) < 0) return -1;
  if (wk__device_resolve(out) == WK_OK) return 0;
  wk__raise(state);
  return -1;
}

static PyObject *none_or_error(PyObject *module, wk_status status) {  // -> new
  return status == WK_OK ? Py_NewRef(Py_None) : wk__raise(wk__state_of_module(module));
}

static int cuda_index(PyObject *module, PyObject *o) {
  wk_device device;
  if (device_of(module, o, &device) < 0) return -1;
  if (device.type == WK_CUDA) return device.index;
  PyErr_Format(PyExc_ValueError, "Expected a cuda device, but got: %s", wk__device_type_name(device.type));
  return -1;
}

/* ---- devices ---- */

static PyObject *device_count(PyObject *module, PyObject *name) {  // -> new
  wk_device device;
  const char *text = PyUnicode_AsUTF8(name);
  if (!text) return NULL;
  if (wk__device_parse(text, &device) != WK_OK) return wk__raise(wk__state_of_module(module));
  const wk__device_type *type = wk__device_types[device.type];
  return PyLong_FromLong(type ? type->count(false) : 0);
}

static PyObject *current_device(PyObject *module, PyObject *o) {  // -> new
  wk_device device;
  if (device_of(module, o, &device) < 0) return NULL;
  return PyLong_FromLong(wk__device_current(device.type));
}

static PyObject *set_device(PyObject *module, PyObject *o) {  // -> new
  wk_device device;
  if (device_of(module, o, &device) < 0) return NULL;
  return none_or_error(module, wk__device_set_current(device));
}

static PyObject *synchronize(PyObject *module, PyObject *o) {  // -> new
  wk_device device;
  if (device_of(module, o, &device) < 0) return NULL;
  wk_status status;
  Py_BEGIN_ALLOW_THREADS status = device.type == WK_CUDA ? wk__cuda_synchronize_all(device.index) : WK_OK;
  Py_END_ALLOW_THREADS return none_or_error(module, status);
}

/* ---- CUDA's numbers ---- */

static PyObject *cuda_facts(PyObject *module, PyObject *o) {  // -> new
  wk__cuda_facts f;
  int index = cuda_index(module, o);
  if (index < 0) return NULL;
  if (wk__cuda_facts_get(index, &f) != WK_OK) return wk__raise(wk__state_of_module(module));
  return Py_BuildValue("{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:L,s:i}", "name", f.name, "major", f.major, "minor", f.minor,
                       "multi_processor_count", f.multiprocessors, "max_threads_per_multi_processor", f.threads_each,
                       "shared_memory_per_block", f.shared_each, "shared_memory_per_block_optin", f.shared_most,
                       "L2_cache_size", f.l2_bytes, "total_memory", (long long)f.total_bytes, "driver", f.driver);
}

/* (device, attribute) */
static PyObject *cuda_attribute(PyObject *module, PyObject *args) {  // -> new
  PyObject *device;
  int attribute, value;
  if (!PyArg_ParseTuple(args, "Oi", &device, &attribute)) return NULL;
  int index = cuda_index(module, device);
  if (index < 0) return NULL;
  if (wk__cuda_attribute(index, attribute, &value) != WK_OK) return wk__raise(wk__state_of_module(module));
  return PyLong_FromLong(value);
}

static PyObject *cuda_usage(PyObject *module, PyObject *o) {  // -> new
  wk__cuda_usage u;
  int index = cuda_index(module, o);
  if (index < 0) return NULL;
  if (wk__cuda_usage_get(index, &u) != WK_OK) return wk__raise(wk__state_of_module(module));
  const struct {
    const char *name;
    int64_t value;
  } counts[] = {{"allocated", u.allocated},
                {"peak_allocated", u.peak_allocated},
                {"reserved", u.reserved},
                {"peak_reserved", u.peak_reserved},
                {"allocations", u.allocations},
                {"frees", u.frees},
                {"active", u.active},
                {"peak_active", u.peak_active},
                {"allocated_ever", u.allocated_ever},
                {"freed_ever", u.freed_ever},
                {"reserved_ever", u.reserved_ever},
                {"unreserved_ever", u.unreserved_ever},
                {"segments", u.segments},
                {"peak_segments", u.peak_segments},
                {"mappings", u.mappings},
                {"unmappings", u.unmappings},
                {"retries", u.retries},
                {"refusals", u.refusals}};
  PyObject *result = PyDict_New();
  for (size_t i = 0; result && i < WK_COUNT(counts); i++) {
    PyObject *value = PyLong_FromLongLong(counts[i].value);
    if (!value || PyDict_SetItemString(result, counts[i].name, value) < 0) Py_CLEAR(result);
    Py_XDECREF(value);
  }
  return result;
}

static PyObject *cuda_reset_peaks(PyObject *module, PyObject *o) {  // -> new
  int index = cuda_index(module, o);
  return index < 0 ? NULL : none_or_error(module, wk__cuda_usage_reset_peaks(index));
}

static PyObject *cuda_reset_totals(PyObject *module, PyObject *o) {  // -> new
  int index = cuda_index(module, o);
  return index < 0 ? NULL : none_or_error(module, wk__cuda_usage_reset_totals(index));
}

static PyObject *cuda_empty_cache(PyObject *module, PyObject *o) {  // -> new
  int index = cuda_index(module, o);
  return index < 0 ? NULL : none_or_error(module, wk__cuda_empty_cache(index));
}

static PyObject *cuda_memory_free(PyObject *module, PyObject *o) {  // -> new
  int64_t available, total;
  int index = cuda_index(module, o);
  if (index < 0) return NULL;
  if (wk__cuda_memory_free(index, &available, &total) != WK_OK) return wk__raise(wk__state_of_module(module));
  return Py_BuildValue("(LL)", (long long)available, (long long)total);
}

static PyObject *cuda_set_fraction(PyObject *module, PyObject *args) {  // -> new
  PyObject *device;
  double fraction;
  if (!PyArg_ParseTuple(args, "dO", &fraction, &device)) return NULL;
  int index = cuda_index(module, device);
  return index < 0 ? NULL : none_or_error(module, wk__cuda_set_fraction(index, fraction));
}

static _Atomic bool *find_switch(const char *name) {
  static const struct {
    const char *name;
    _Atomic bool *value;
  } switches[] = {{"cudnn", &wk__cuda_switches.cudnn},
                  {"cudnn_tf32", &wk__cuda_switches.cudnn_tf32},
                  {"cudnn_attention", &wk__cuda_switches.cudnn_attention},
                  {"products_tf32", &wk__cuda_switches.products_tf32},
                  {"deterministic", &wk__cuda_switches.deterministic},
                  {"deterministic_warns", &wk__cuda_switches.deterministic_warns}};
  for (size_t i = 0; i < WK_COUNT(switches); i++)
    if (!strcmp(switches[i].name, name)) return switches[i].value;
  PyErr_Format(PyExc_ValueError, "there is no switch %s", name);
  return NULL;
}

static PyObject *cuda_switch(PyObject *module, PyObject *o) {  // -> new
  const char *name = PyUnicode_AsUTF8(o);
  const _Atomic bool *value = name ? find_switch(name) : NULL;
  (void)module;
  return value ? PyBool_FromLong(*value) : NULL;
}

static PyObject *set_cuda_switch(PyObject *module, PyObject *args) {  // -> new
  const char *name;
  int is_on;
  (void)module;
  if (!PyArg_ParseTuple(args, "sp", &name, &is_on)) return NULL;
  _Atomic bool *value = find_switch(name);
  if (!value) return NULL;
  if (atomic_exchange(value, is_on != 0) != (is_on != 0)) atomic_fetch_add(&wk__cuda_switches.changes, 1);
  Py_RETURN_NONE;
}

static PyObject *can_access_peer(PyObject *module, PyObject *args) {  // -> new
  int index, peer;
  bool can;
  if (!PyArg_ParseTuple(args, "ii", &index, &peer)) return NULL;
  if (wk__cuda_can_access_peer(index, peer, &can) != WK_OK) return wk__raise(wk__state_of_module(module));
  return PyBool_FromLong(can);
}

/* (mode=None) -> what it was */
static PyObject *sync_mode(PyObject *module, PyObject *args) {  // -> new
  int mode = -1;
  (void)module;
  if (!PyArg_ParseTuple(args, "|i", &mode)) return NULL;
  return PyLong_FromLong(mode < 0 ? wk__cuda_sync_mode : atomic_exchange(&wk__cuda_sync_mode, mode));
}

/* (address, bytes, pool, stream, is_free) of each block. */
static PyObject *cuda_blocks(PyObject *module, PyObject *o) {  // -> new
  wk__cuda_block_facts *blocks;
  int64_t count;
  int index = cuda_index(module, o);
  if (index < 0) return NULL;
  if (wk__cuda_blocks_get(index, &blocks, &count) != WK_OK) return wk__raise(wk__state_of_module(module));
  PyObject *list = PyList_New(count);
  for (int64_t i = 0; list && i < count; i++) {
    const wk__cuda_block_facts *b = &blocks[i];
    PyObject *facts = Py_BuildValue("KLLNO", (unsigned long long)b->address, (long long)b->bytes, (long long)b->pool,
                                    PyLong_FromVoidPtr(b->stream), b->is_free ? Py_True : Py_False);
    if (!facts) Py_CLEAR(list);
    if (facts) PyList_SET_ITEM(list, i, facts);
  }
  wk__free(blocks);
  return list;
}

static PyObject *cudnn_version(PyObject *module, PyObject *none) {  // -> new
  (void)module, (void)none;
  return PyLong_FromLongLong(wk__cudnn_version());
}

static PyMethodDef functions[] = {
    {"_device_count", device_count, METH_O, "How many devices of a type there are: _device_count('cuda')."},
    {"_device_current", current_device, METH_O, "The index of the thread's current device of a device's type."},
    {"_device_set", set_device, METH_O, "Makes a device the thread's current one of its type."},
    {"_device_synchronize", synchronize, METH_O, "Waits for all work of a device."},
    {"_cuda_facts", cuda_facts, METH_O, "What a device is, as a dict."},
    {"_cuda_attribute", cuda_attribute, METH_VARARGS, "A number by the driver's list: (device, attribute)."},
    {"_cuda_usage", cuda_usage, METH_O, "Bytes of a device's memory, as a dict."},
    {"_cuda_reset_peaks", cuda_reset_peaks, METH_O, "Peaks start at what is used now."},
    {"_cuda_reset_totals", cuda_reset_totals, METH_O, "Counts since the start are 0."},
    {"_cuda_empty_cache", cuda_empty_cache, METH_O, "Gives unused memory back to the device."},
    {"_cuda_memory_free", cuda_memory_free, METH_O, "(free, total) bytes of a device."},
    {"_cuda_can_access_peer", can_access_peer, METH_VARARGS, "Whether a device reaches another's memory."},
    {"_cuda_sync_mode", sync_mode, METH_VARARGS,
     "What happens where the host waits: 0 nothing, 1 a warning, 2 an error."},
    {"_cuda_blocks", cuda_blocks, METH_O, "(address, bytes, pool, stream, is_free) of each block of memory."},
    {"_cuda_switch", cuda_switch, METH_O, "(name): what torch.backends says."},
    {"_set_cuda_switch", set_cuda_switch, METH_VARARGS, "(name, is_on)"},
    {"_cudnn_version", cudnn_version, METH_NOARGS, "cuDNN's version; 0 where there is none."},
    {"_cuda_set_fraction", cuda_set_fraction, METH_VARARGS, "Bounds the memory that is taken of a device."},
    {0}};

/* ==================================================== events ==================================================== */

typedef struct stream_object {
  PyObject_HEAD;
  wk__stream *stream; /* borrowed */
} stream_object;
typedef struct event_object {
  PyObject_HEAD;
  const wk__device_type *type; /* NULL: not recorded yet */
  wk__event *event;            /* owned; made when it is first recorded */
  int index;
} event_object;

static PyObject *raise_of(PyObject *self) { return wk__raise(wk__state_of_type(Py_TYPE(self))); }
static PyObject *done_or_error(PyObject *self, wk_status status) {  // -> new
  return status == WK_OK ? Py_NewRef(Py_None) : raise_of(self);
}

static PyObject *event_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {  // -> new
  (void)args, (void)keywords;
  return type->tp_alloc(type, 0);
}
static void event_dealloc(PyObject *self) {
  event_object *e = (event_object *)self;
  PyTypeObject *type = Py_TYPE(self);
  if (e->event) e->type->release_event(e->event);
  type->tp_free(self);
  Py_DECREF(type);
}

static wk_status record_on(event_object *e, wk__stream *stream) {
  if (e->event && (e->type != stream->type || e->index != stream->device.index))
    return wk_fail(WK_RUNTIME_ERROR, "Event device %d does not match recording stream's device %d.", e->index,
                   stream->device.index);
  if (!e->event) {
    e->type = stream->type;
    e->index = stream->device.index;
    if (!(e->event = stream->type->create_event(stream->device.index))) return wk_error_category();
  }
  return stream->type->record(e->event, stream);
}

static wk__stream *stream_of(PyObject *o) { return ((stream_object *)o)->stream; }  // borrowed

static PyObject *event_record(PyObject *self, PyObject *stream) {  // -> new
  return done_or_error(self, record_on((event_object *)self, stream_of(stream)));
}
static PyObject *event_wait(PyObject *self, PyObject *stream) {  // -> new
  event_object *e = (event_object *)self;
  return done_or_error(self, e->event ? e->type->wait(stream_of(stream), e->event) : WK_OK);
}
static PyObject *event_query(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  event_object *e = (event_object *)self;
  return PyBool_FromLong(!e->event || e->type->is_done(e->event));
}
static PyObject *event_synchronize(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  event_object *e = (event_object *)self;
  wk_status status = WK_OK;
  Py_BEGIN_ALLOW_THREADS if (e->event) status = e->type->finish(e->event);
  Py_END_ALLOW_THREADS return done_or_error(self, status);
}
static PyObject *event_elapsed(PyObject *self, PyObject *end) {  // -> new
  event_object *a = (event_object *)self, *b = (event_object *)end;
  if (Py_TYPE(end)->tp_dealloc != Py_TYPE(self)->tp_dealloc) return PyErr_Format(PyExc_TypeError, "an event is wanted");
  if (!a->event || !b->event)
    return PyErr_Format(PyExc_ValueError, "Both events must be recorded before calculating elapsed time.");
  if (!a->type->is_done(a->event) || !b->type->is_done(b->event))
    return PyErr_Format(PyExc_RuntimeError, "Both events must be completed before calculating elapsed time.");
  return PyFloat_FromDouble(a->type->elapsed(a->event, b->event));
}

static PyMethodDef event_methods[] = {{"_record", event_record, METH_O, "On a stream."},
                                      {"_wait", event_wait, METH_O, "Later work of a stream runs behind it."},
                                      {"query", event_query, METH_NOARGS, "Whether all work before it is done."},
                                      {"synchronize", event_synchronize, METH_NOARGS, "Waits for it."},
                                      {"elapsed_time", event_elapsed, METH_O, "Milliseconds to another event."},
                                      {0}};
static PyType_Slot event_slots[] = {{Py_tp_doc, "A point in a stream's work."},
                                    {Py_tp_new, event_new},
                                    {Py_tp_dealloc, event_dealloc},
                                    {Py_tp_methods, event_methods},
                                    {0, NULL}};
static PyType_Spec event_spec = {.name = "wick._C._EventBase",
                                 .basicsize = sizeof(event_object),
                                 .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                 .slots = event_slots};

/* ==================================================== streams =================================================== */

enum stream_choice { NEW_STREAM, CURRENT_STREAM, DEFAULT_STREAM, EXTERNAL_STREAM };

/* _StreamBase(device, which, handle): 0: a new one, 1: the thread's current one, 2: the device's default one, 3: that
 * of the driver's handle. */
static PyObject *stream_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {  // -> new
  wk__state *state = wk__state_of_type(type);
  PyObject *given = Py_None;
  int which = NEW_STREAM;
  unsigned long long handle = 0;
  wk_device device = {WK_CUDA, -1};
  (void)keywords;
  if (!state || !PyArg_ParseTuple(args, "|OiK", &given, &which, &handle)) return NULL;
  if (given != Py_None && wk__device_argument(state, given, &device) < 0) return NULL;
  if (wk__device_resolve(&device) != WK_OK) return wk__raise(state);
  const wk__device_type *t = wk__device_types[device.type];
  wk__stream *stream = which == NEW_STREAM       ? t->create_stream(device.index)
                       : which == CURRENT_STREAM ? wk__stream_find(device)
                       : which == DEFAULT_STREAM ? t->default_stream(device.index)
                                                 : wk__cuda_external_stream(device.index, (void *)(uintptr_t)handle);
  PyObject *self = stream ? type->tp_alloc(type, 0) : wk__raise(state);
  if (self) ((stream_object *)self)->stream = stream;
  return self;
}
static void stream_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

static PyObject *stream_make_current(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return done_or_error(self, wk__stream_set_current(stream_of(self)));
}
static PyObject *stream_synchronize(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  wk_status status;
  wk__stream *s = stream_of(self);
  wk__thread.warning = NULL;
  Py_BEGIN_ALLOW_THREADS status = s->type->synchronize(s);
  Py_END_ALLOW_THREADS return wk__warned(done_or_error(self, status));
}
static PyObject *stream_query(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  bool is_done;
  wk_status status = wk__cuda_stream_is_done(stream_of(self), &is_done);
  return status == WK_OK ? PyBool_FromLong(is_done) : raise_of(self);
}
static PyObject *stream_note_use(PyObject *self, PyObject *tensor) {  // -> new
  wk__state *state = wk__state_of_type(Py_TYPE(self));
  if (!wk__is_tensor(state, tensor)) return PyErr_Format(PyExc_TypeError, "a tensor is wanted");
  const wk_tensor *t = wk__tensor_of(tensor);
  if (t->storage && t->device.type == WK_CUDA) wk__cuda_note_use(stream_of(self), t->storage->data);
  Py_RETURN_NONE;
}
static PyObject *stream_device(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return wk__device_object(wk__state_of_type(Py_TYPE(self)), stream_of(self)->device);
}
static PyObject *stream_is_capturing(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return PyBool_FromLong(stream_of(self)->captured);
}
static PyObject *stream_handle(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyLong_FromVoidPtr(wk__cuda_stream_handle(stream_of(self)));
}
static PyObject *stream_id(PyObject *self, void *unused) {  // -> new
  (void)unused;
  bool is_default = stream_of(self) == stream_of(self)->type->default_stream(stream_of(self)->device.index);
  return is_default ? PyLong_FromLong(0) : PyLong_FromVoidPtr(stream_of(self));
}
static Py_hash_t stream_hash(PyObject *self) { return (Py_hash_t)((uintptr_t)stream_of(self) >> 4); }
static PyObject *stream_compare(PyObject *self, PyObject *other, int op) {  // -> new
  bool comparable = (op == Py_EQ || op == Py_NE) && Py_TYPE(other)->tp_dealloc == stream_dealloc;
  if (Py_TYPE(self)->tp_dealloc != Py_TYPE(other)->tp_dealloc && !comparable) Py_RETURN_NOTIMPLEMENTED;
  if (op != Py_EQ && op != Py_NE) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((stream_of(self) == stream_of(other)) == (op == Py_EQ));
}

static PyMethodDef stream_methods[] = {
    {"_make_current", stream_make_current, METH_NOARGS, "Later work of this thread goes to it."},
    {"synchronize", stream_synchronize, METH_NOARGS, "Waits for all work given so far."},
    {"query", stream_query, METH_NOARGS, "Whether all its work is done."},
    {"is_capturing", stream_is_capturing, METH_NOARGS, "Whether its work is captured into a graph."},
    {"_note_use", stream_note_use, METH_O, "The tensor's memory is not given out again before this stream's work."},
    {0}};
static PyGetSetDef stream_getset[] = {{"device", stream_device, NULL, "Whose it is.", NULL},
                                      {"cuda_stream", stream_handle, NULL, "The driver's handle, a number.", NULL},
                                      {"stream_id", stream_id, NULL, "0: the default one.", NULL},
                                      {0}};
static PyType_Slot stream_slots[] = {{Py_tp_doc, "A queue of a device's work."},
                                     {Py_tp_new, stream_new},
                                     {Py_tp_dealloc, stream_dealloc},
                                     {Py_tp_hash, stream_hash},
                                     {Py_tp_richcompare, stream_compare},
                                     {Py_tp_methods, stream_methods},
                                     {Py_tp_getset, stream_getset},
                                     {0, NULL}};
static PyType_Spec stream_spec = {.name = "wick._C._StreamBase",
                                  .basicsize = sizeof(stream_object),
                                  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                  .slots = stream_slots};

int wk__add_devices(PyObject *module) {
  PyTypeObject *stream = wk__add_type(module, &stream_spec, NULL, "_StreamBase");
  PyTypeObject *event = stream ? wk__add_type(module, &event_spec, NULL, "_EventBase") : NULL;
  Py_XDECREF(stream);
  Py_XDECREF(event);
  return event ? PyModule_AddFunctions(module, functions) : -1;
}
