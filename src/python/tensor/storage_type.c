/* wick.UntypedStorage: the bytes behind tensors as a Python object, and tensors rebuilt over them from saved files.
 *
 * In: sizes, bytes, other objects' buffers; sizes and strides from files. Out: storages; tensors that cannot reach
 * outside theirs. One on device meta has a number of bytes and none of them, and so have tensors that are rebuilt over
 * it. Invariant: an object owns one reference to its storage for life; two objects over one storage are equal. Tests:
 * tests/python/test_interop.py, tests/python/test_serialization.py. */
#include "python/data/interop.h"
#include "tensor/mapped.h"

typedef struct storage_object {
  PyObject_HEAD wk_storage *storage; /* owned */
} storage_object;

static wk_storage *storage_of(PyObject *self) { return ((storage_object *)self)->storage; }  // borrowed

/* Takes the storage; NULL gives the thread's error. */
static PyObject *make_object(PyTypeObject *type, wk_storage *steal_storage) {  // -> new
  if (!steal_storage) return wk__raise(wk__state_of_type(type));
  PyObject *self = type->tp_alloc(type, 0);
  if (self)
    ((storage_object *)self)->storage = steal_storage;
  else
    wk__storage_release(steal_storage);
  return self;
}

static void storage_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  wk__storage_release(storage_of(self));
  type->tp_free(self);
  Py_DECREF(type);
}

static bool is_meta(PyObject *self) { return storage_of(self)->device.type == WK_META; }
static PyObject *not_on_meta(void) {  // -> borrowed, always NULL
  return PyErr_Format(PyExc_NotImplementedError, "Not available for 'meta' device type");
}
static PyObject *no_data(void) {  // -> borrowed, always NULL
  return PyErr_Format(PyExc_NotImplementedError, "Cannot copy out of meta tensor; no data!");
}

/* ---- making ---- */

static PyObject *storage_on_meta(PyTypeObject *type, int64_t bytes) {  // -> new
  wk_storage *storage = wk__storage_lazy((wk_device){WK_META, -1});
  if (storage) storage->bytes = bytes;
  return make_object(type, storage);
}

static PyObject *storage_with_size(PyTypeObject *type, PyObject *size, wk_device device) {  // -> new
  Py_ssize_t bytes = PyNumber_AsSsize_t(size, PyExc_OverflowError);
  if (bytes == -1 && PyErr_Occurred()) return NULL;
  if (bytes < 0) return PyErr_Format(PyExc_RuntimeError, "a storage cannot have %zd bytes", bytes);
  return make_object(type, wk__storage_create(device, bytes));
}

/* From an object with a buffer, or a sequence of ints from 0 to 255. */
static PyObject *storage_with_bytes(PyTypeObject *type, PyObject *values, wk_device device) {  // -> new
  PyObject *bytes = PyBytes_FromObject(values);
  if (!bytes) return NULL;
  Py_ssize_t count = PyBytes_GET_SIZE(bytes);
  wk_storage *storage = wk__storage_create(device, count);
  if (storage && wk__storage_write(storage, 0, count, PyBytes_AS_STRING(bytes)) != WK_OK) {
    wk__storage_release(storage);
    storage = NULL;
  }
  Py_DECREF(bytes);
  return make_object(type, storage);
}

static PyObject *storage_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"", "device", NULL};
  PyObject *values = NULL, *given = NULL;
  wk__state *state = wk__state_of_type(type);
  wk_device device = WK__CPU_DEVICE;
  if (!state || !PyArg_ParseTupleAndKeywords(args, keywords, "|OO:UntypedStorage", names, &values, &given)) return NULL;
  if (wk__device_argument(state, given, &device) < 0) return NULL;
  if (device.type == WK_META) {
    Py_ssize_t bytes = !values ? 0 : PyIndex_Check(values) ? PyNumber_AsSsize_t(values, NULL) : PyObject_Size(values);
    if (bytes == -1 && PyErr_Occurred()) return NULL;
    if (bytes < 0) return PyErr_Format(PyExc_RuntimeError, "a storage cannot have %zd bytes", bytes);
    return storage_on_meta(type, bytes);
  }
  if (!values) return make_object(type, wk__storage_create(device, 0));
  return PyIndex_Check(values) ? storage_with_size(type, values, device) : storage_with_bytes(type, values, device);
}

static PyObject *storage_from_bytes(PyObject *type, PyObject *buffer) {  // -> new
  wk_storage *storage = wk__storage_over_buffer(buffer);
  return storage ? make_object((PyTypeObject *)type, storage) : NULL;
}

/* ---- mapped memory ---- */

static PyObject *storage_from_file(PyObject *type, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"filename", "shared", "nbytes", NULL};
  PyObject *path;
  int shared = 0;
  long long bytes = 0;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O&|pL", names, PyUnicode_FSConverter, &path, &shared, &bytes))
    return NULL;
  wk_storage *storage = wk__storage_map_file(PyBytes_AS_STRING(path), shared, bytes);
  Py_DECREF(path);
  return make_object((PyTypeObject *)type, storage);
}

static PyObject *storage_new_shared(PyObject *type, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"size", "device", NULL};
  PyObject *device = NULL;
  long long bytes;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "L|O", names, &bytes, &device)) return NULL;
  if (bytes < 0) return PyErr_Format(PyExc_RuntimeError, "a storage cannot have %lld bytes", bytes);
  return make_object((PyTypeObject *)type, wk__storage_create_shared(bytes));
}

static PyObject *storage_new_shared_fd(PyObject *type, PyObject *args) {  // -> new
  int descriptor;
  long long bytes;
  if (!PyArg_ParseTuple(args, "iL", &descriptor, &bytes)) return NULL;
  return make_object((PyTypeObject *)type, wk__storage_map_descriptor(descriptor, bytes));
}

static PyObject *storage_share_memory(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  if (is_meta(self)) return no_data();
  if (wk__storage_share(storage_of(self)) != WK_OK) return wk__raise(wk__state_of_type(Py_TYPE(self)));
  return Py_NewRef(self);
}

/* (descriptor, bytes) for another process; the descriptor is the storage's own. */
static PyObject *storage_share_fd(PyObject *self, PyObject *unused) {  // -> new
  PyObject *shared = storage_share_memory(self, unused);
  if (!shared) return NULL;
  Py_DECREF(shared);
  int descriptor = wk__storage_descriptor(storage_of(self));
  if (descriptor < 0)
    return PyErr_Format(PyExc_RuntimeError, "Couldn't get a file descriptor: the storage is over a mapped file");
  return Py_BuildValue("iL", descriptor, (long long)storage_of(self)->bytes);
}

static PyObject *storage_filename(PyObject *self, void *unused) {  // -> new
  (void)unused;
  const char *path = wk__storage_file_name(storage_of(self));
  return path ? PyUnicode_DecodeFSDefault(path) : Py_NewRef(Py_None);
}

/* ---- facts ---- */

static PyObject *storage_nbytes(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return PyLong_FromLongLong(storage_of(self)->bytes);
}
static Py_ssize_t storage_length(PyObject *self) { return (Py_ssize_t)storage_of(self)->bytes; }
static PyObject *storage_data_ptr(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return PyLong_FromVoidPtr(storage_of(self)->bytes ? storage_of(self)->data : NULL);
}
static PyObject *storage_element_size(PyObject *self, PyObject *unused) {  // -> new
  (void)self, (void)unused;
  return PyLong_FromLong(1);
}
static PyObject *storage_resizable(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return PyBool_FromLong(!storage_of(self)->release && !atomic_load(&storage_of(self)->pins));
}
static PyObject *storage_is_shared(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return PyBool_FromLong(wk__storage_is_mapped(storage_of(self)));
}
static PyObject *storage_itself(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return Py_NewRef(self);
}
static PyObject *storage_device(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return wk__device_object(wk__state_of_type(Py_TYPE(self)), storage_of(self)->device);
}
static PyObject *storage_is_cuda(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyBool_FromLong(storage_of(self)->device.type == WK_CUDA);
}
static PyObject *storage_cdata(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyLong_FromVoidPtr(storage_of(self));
}

static PyObject *storage_compare(PyObject *a, PyObject *b, int comparison) {  // -> new
  if ((comparison != Py_EQ && comparison != Py_NE) || !Py_IS_TYPE(b, Py_TYPE(a))) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((storage_of(a) == storage_of(b)) == (comparison == Py_EQ));
}
static Py_hash_t storage_hash(PyObject *self) { return (Py_hash_t)((uintptr_t)storage_of(self) >> 4); }

static PyObject *storage_tolist(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  if (is_meta(self)) return not_on_meta();
  wk__host_view view;
  if (wk__storage_to_host(storage_of(self), &view) != WK_OK) return wk__raise(wk__state_of_type(Py_TYPE(self)));
  PyObject *list = PyList_New((Py_ssize_t)storage_of(self)->bytes);
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++)
    PyList_SET_ITEM(list, i, PyLong_FromLong((uint8_t)view.data[i])); /* numbers below 256 exist already */
  wk__host_view_release(&view);
  return list;
}

static PyObject *storage_repr(PyObject *self) {  // -> new
  const wk_storage *storage = storage_of(self);
  wk__string s = {0};
  wk__host_view view = {0};
  if (is_meta(self))
    wk__string_append(&s, "...\n");
  else if (wk__storage_to_host(storage, &view) != WK_OK)
    return wk__raise(wk__state_of_type(Py_TYPE(self)));
  for (int64_t i = 0; view.data && i < storage->bytes; i++) wk__string_printf(&s, " %d\n", (uint8_t)view.data[i]);
  if (!is_meta(self)) wk__host_view_release(&view);
  wk__string_printf(&s, "[%s.storage.UntypedStorage(device=", wk__print_module_name);
  wk__device_print(&s, storage->device);
  wk__string_printf(&s, ") of size %lld]", (long long)storage->bytes);
  PyObject *text = s.failed ? PyErr_NoMemory() : PyUnicode_FromStringAndSize(s.text, (Py_ssize_t)s.length);
  wk__string_release(&s);
  return text;
}

/* ---- bytes in and out ---- */

static PyObject *storage_to_bytes(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  if (is_meta(self)) return no_data();
  const wk_storage *storage = storage_of(self);
  PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)storage->bytes);
  if (!bytes || wk__storage_read(storage, 0, storage->bytes, PyBytes_AS_STRING(bytes)) == WK_OK) return bytes;
  Py_DECREF(bytes);
  return wk__raise(wk__state_of_type(Py_TYPE(self)));
}
static PyObject *storage_reduce(PyObject *self, PyObject *unused) {  // -> new
  return Py_BuildValue("O(N)", Py_TYPE(self), storage_to_bytes(self, unused));
}
static PyObject *copied_to(PyObject *self, wk_device device) {  // -> new
  wk_storage *copy = wk__storage_create(device, storage_of(self)->bytes);
  if (copy && wk__storage_copy(copy, storage_of(self), copy->bytes) != WK_OK) {
    wk__storage_release(copy);
    copy = NULL;
  }
  return make_object(Py_TYPE(self), copy);
}
static PyObject *storage_clone(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  if (is_meta(self)) return storage_on_meta(Py_TYPE(self), storage_of(self)->bytes);
  return copied_to(self, storage_of(self)->device);
}

static void written(PyObject *self) { atomic_fetch_add(&storage_of(self)->version, 1); }

static int byte_from_python(PyObject *value, uint8_t *out) {
  long byte = PyLong_AsLong(value);
  if (byte == -1 && PyErr_Occurred()) return -1;
  *out = (uint8_t)byte;
  return 0;
}

static PyObject *storage_fill(PyObject *self, PyObject *value) {  // -> new
  uint8_t byte;
  if (byte_from_python(value, &byte) < 0) return NULL;
  if (!is_meta(self) && wk__storage_fill(storage_of(self), 0, storage_of(self)->bytes, byte) != WK_OK)
    return wk__raise(wk__state_of_type(Py_TYPE(self)));
  written(self);
  return Py_NewRef(self);
}

static PyObject *storage_copy(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  static const wk__signature signature = {"copy_", 1, 2, {"source", "non_blocking"}};
  PyObject *given[2];
  if (wk__bind(&signature, args, n, keywords, given) < 0) return NULL;
  if (!Py_IS_TYPE(given[0], Py_TYPE(self)))
    return PyErr_Format(PyExc_TypeError, "copy_() expects an UntypedStorage, not %s", Py_TYPE(given[0])->tp_name);
  const wk_storage *source = storage_of(given[0]);
  wk_storage *storage = storage_of(self);
  if (source->bytes != storage->bytes)
    return PyErr_Format(PyExc_RuntimeError, "size does not match, self was %lld bytes but src was %lld bytes",
                        (long long)storage->bytes, (long long)source->bytes);
  if (is_meta(self)) return Py_NewRef(self);
  if (is_meta(given[0])) return no_data();
  if (source->data != storage->data && wk__storage_copy(storage, source, storage->bytes) != WK_OK)
    return wk__raise(wk__state_of_type(Py_TYPE(self)));
  written(self);
  return Py_NewRef(self);
}

/* Smaller only while no other tensor looks at the bytes, since tensors are not notified. */
static PyObject *storage_resize(PyObject *self, PyObject *size) {  // -> new
  wk_storage *storage = storage_of(self);
  Py_ssize_t bytes = PyNumber_AsSsize_t(size, PyExc_OverflowError);
  if (bytes == -1 && PyErr_Occurred()) return NULL;
  bool alone = atomic_load(&storage->references) == 1 && !atomic_load(&storage->pins);
  if (bytes < 0 || (bytes < storage->bytes && !alone))
    return PyErr_Format(PyExc_RuntimeError, "cannot resize a storage of %lld bytes to %zd bytes while it is in use",
                        (long long)storage->bytes, bytes);
  if (bytes < storage->bytes || is_meta(self))
    storage->bytes = bytes;
  else if (bytes > storage->bytes && wk__storage_resize(storage, bytes) != WK_OK)
    return wk__raise(wk__state_of_type(Py_TYPE(self)));
  return Py_NewRef(self);
}

static PyObject *storage_to(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  static const wk__signature signature = {"to", 1, 1, {"device", "non_blocking"}};
  PyObject *given[2];
  wk__state *state = wk__state_of_type(Py_TYPE(self));
  wk_device device;
  if (wk__bind(&signature, args, n, keywords, given) < 0 || wk__device_from_python(state, given[0], &device) < 0)
    return NULL;
  if (wk__device_equal(device, storage_of(self)->device)) return Py_NewRef(self);
  if (device.type == WK_META) return storage_on_meta(Py_TYPE(self), storage_of(self)->bytes);
  return is_meta(self) ? no_data() : copied_to(self, device);
}

static PyObject *storage_cpu(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  if (is_meta(self)) return no_data();
  return storage_of(self)->device.type == WK_CPU ? Py_NewRef(self) : copied_to(self, WK__CPU_DEVICE);
}

/* ---- items ---- */

/* The index of a byte from 0 on; -1 with an exception. */
static Py_ssize_t byte_index(PyObject *self, PyObject *key) {
  Py_ssize_t index = PyNumber_AsSsize_t(key, PyExc_IndexError), bytes = storage_length(self);
  if (index == -1 && PyErr_Occurred()) return -1;
  if (index >= -bytes && index < bytes) return index < 0 ? index + bytes : index;
  PyErr_Format(PyExc_IndexError, "index %zd out of range for storage of size %zd", index, bytes);
  return -1;
}

static int slice_range(PyObject *self, PyObject *slice, Py_ssize_t *start, Py_ssize_t *count) {
  Py_ssize_t stop, step;
  if (PySlice_Unpack(slice, start, &stop, &step) < 0) return -1;
  *count = PySlice_AdjustIndices(storage_length(self), start, &stop, step);
  if (step == 1) return 0;
  PyErr_Format(PyExc_RuntimeError, "Trying to slice with a step of %zd, but only a step of 1 is supported", step);
  return -1;
}

static void release_parent(void *storage) {
  wk__storage_unpin(storage);
  wk__storage_release(storage);
}

/* A storage over some of the bytes; it keeps the whole alive and in place. */
static PyObject *storage_slice(PyObject *self, PyObject *slice) {  // -> new
  Py_ssize_t start, count;
  if (slice_range(self, slice, &start, &count) < 0) return NULL;
  wk_storage *parent = wk__storage_retain(storage_of(self));
  wk__storage_pin(parent);
  wk_storage *part = wk__storage_from_memory((char *)parent->data + start, count, release_parent, parent);
  if (part) part->device = parent->device, part->stream = parent->stream;
  if (!part) release_parent(parent);
  return make_object(Py_TYPE(self), part);
}

static PyObject *storage_subscript(PyObject *self, PyObject *key) {  // -> new
  if (is_meta(self)) return not_on_meta();
  if (PySlice_Check(key)) return storage_slice(self, key);
  Py_ssize_t index = byte_index(self, key);
  uint8_t byte;
  if (index < 0) return NULL;
  if (wk__storage_read(storage_of(self), index, 1, &byte) != WK_OK) return wk__raise(wk__state_of_type(Py_TYPE(self)));
  return PyLong_FromLong(byte);
}

static int storage_assign(PyObject *self, PyObject *key, PyObject *value) {
  Py_ssize_t start, count = 1;
  uint8_t byte;
  if (!value) {
    PyErr_SetString(PyExc_TypeError, "bytes of a storage cannot be deleted");
    return -1;
  }
  if (PySlice_Check(key) ? slice_range(self, key, &start, &count) < 0 : (start = byte_index(self, key)) < 0) return -1;
  if (byte_from_python(value, &byte) < 0) return -1;
  written(self);
  if (is_meta(self) || wk__storage_fill(storage_of(self), start, count, byte) == WK_OK) return 0;
  wk__raise(wk__state_of_type(Py_TYPE(self)));
  return -1;
}

/* ---- buffer ---- */

static int storage_get_buffer(PyObject *self, Py_buffer *view, int flags) {
  wk_storage *storage = storage_of(self);
  if (is_meta(self) || !wk__device_types[storage->device.type]->host_reads) {
    PyErr_SetString(PyExc_BufferError, "the storage has no memory that the CPU can read");
    return -1;
  }
  if (PyBuffer_FillInfo(view, self, storage->data, (Py_ssize_t)storage->bytes, 0, flags) < 0) return -1;
  wk__storage_pin(storage);
  return 0;
}
static void storage_release_buffer(PyObject *self, Py_buffer *view) {
  (void)view;
  wk__storage_unpin(storage_of(self));
}

/* ==================================================== the type ================================================== */

static PyMethodDef storage_methods[] = {
    {"_from_bytes", storage_from_bytes, METH_O | METH_CLASS, "A storage over a writable buffer, which it keeps alive."},
    {"_to_bytes", storage_to_bytes, METH_NOARGS, "A copy of the bytes."},
    {"nbytes", storage_nbytes, METH_NOARGS, "The number of bytes."},
    {"size", storage_nbytes, METH_NOARGS, "The number of bytes."},
    {"element_size", storage_element_size, METH_NOARGS, "1"},
    {"data_ptr", storage_data_ptr, METH_NOARGS, "The address of the first byte; 0 without bytes."},
    {"resizable", storage_resizable, METH_NOARGS, "Whether resize_ may move the bytes."},
    {"resize_", storage_resize, METH_O, "Changes the number of bytes and keeps their values."},
    {"is_shared", storage_is_shared, METH_NOARGS,
     "Whether the bytes are in mapped memory, as what processes share is."},
    {"share_memory_", storage_share_memory, METH_NOARGS, "Moves the bytes into memory that processes share."},
    {"from_file", WK__METHOD(storage_from_file), METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "from_file(filename, shared=False, nbytes=0): a file's bytes, mapped. Shared: writing changes the file."},
    {"_new_shared", WK__METHOD(storage_new_shared), METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "_new_shared(size): memory that processes share."},
    {"_new_shared_fd_cpu", storage_new_shared_fd, METH_VARARGS | METH_CLASS,
     "_new_shared_fd_cpu(descriptor, size): what another process shares."},
    {"_share_fd_cpu_", storage_share_fd, METH_NOARGS, "(descriptor, size) of the bytes, in shared memory from now on."},
    {"tolist", storage_tolist, METH_NOARGS, "The bytes as ints."},
    {"fill_", storage_fill, METH_O, "Sets every byte."},
    {"copy_", WK__METHOD(storage_copy), WK__FAST_CALL, "Copies another storage of the same size."},
    {"clone", storage_clone, METH_NOARGS, "A copy."},
    {"cpu", storage_cpu, METH_NOARGS, "The storage in the CPU's memory."},
    {"to", WK__METHOD(storage_to), WK__FAST_CALL, "The storage on a device."},
    {"untyped", storage_itself, METH_NOARGS, "The storage itself."},
    {"__reduce__", storage_reduce, METH_NOARGS, NULL},
    {0}};
static PyGetSetDef storage_getset[] = {{"device", storage_device, NULL, NULL, NULL},
                                       {"is_cuda", storage_is_cuda, NULL, NULL, NULL},
                                       {"filename", storage_filename, NULL, "Of a file that is mapped shared.", NULL},
                                       {"_cdata", storage_cdata, NULL, "The same for objects over one storage.", NULL},
                                       {0}};
static PyType_Slot storage_slots[] = {
    {Py_tp_doc, "Bytes that tensors are views of: UntypedStorage(16), UntypedStorage(b'abc')."},
    {Py_tp_new, storage_new},
    {Py_tp_dealloc, storage_dealloc},
    {Py_tp_repr, storage_repr},
    {Py_tp_richcompare, storage_compare},
    {Py_tp_hash, storage_hash},
    {Py_tp_methods, storage_methods},
    {Py_tp_getset, storage_getset},
    {Py_mp_length, storage_length},
    {Py_mp_subscript, storage_subscript},
    {Py_mp_ass_subscript, storage_assign},
    {Py_bf_getbuffer, storage_get_buffer},
    {Py_bf_releasebuffer, storage_release_buffer},
    {0, NULL}};
static PyType_Spec storage_spec = {.name = "wick.UntypedStorage",
                                   .basicsize = sizeof(storage_object),
                                   .flags = Py_TPFLAGS_DEFAULT,
                                   .slots = storage_slots};

/* ============================================== storages and tensors ============================================ */

/* Bytes from the storage's start to the end of the last element; -1 when sizes are negative or it overflows. */
static int64_t bytes_needed(const wk__spec *spec) {
  int64_t last = spec->offset.bits, reach;
  bool empty = false;
  if (last < 0) return -1;
  for (int d = 0; d < spec->ndim; d++) {
    int64_t size = spec->sizes[d].bits, stride = spec->strides[d].bits;
    if (size < 0 || stride < 0) return -1;
    empty |= size == 0;
    if (size && (__builtin_mul_overflow(size - 1, stride, &reach) || __builtin_add_overflow(last, reach, &last)))
      return -1;
  }
  int64_t bytes, itemsize = (int64_t)wk_dtype_size((wk_dtype)spec->dtype);
  if (__builtin_add_overflow(last, !empty, &last) || __builtin_mul_overflow(last, itemsize, &bytes)) return -1;
  return empty ? 0 : bytes;
}

PyObject *wk__tensor_untyped_storage(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  wk__state *state = ((wk__python_tensor *)self)->state;
  const wk_tensor *t = wk__tensor_of(self);
  if (t->storage && wk__realize((wk_tensor *)t, "a tensor's storage is taken") != WK_OK) return wk__raise(state);
  if (t->storage) return make_object(state->storage_type, wk__storage_retain(t->storage));
  if (t->device.type == WK_META && !(t->keys & WK__KEY_TRACE)) {
    wk__spec spec;
    wk__spec_of(&spec, t);
    int64_t bytes = t->flags & WK__TENSOR_SYMBOLIC ? -1 : bytes_needed(&spec);
    if (bytes >= 0) return storage_on_meta(state->storage_type, bytes);
  }
  (void)wk_fail(t->keys & WK__KEY_TRACE ? WK_UNSUPPORTED : WK_NOT_IMPLEMENTED,
                "Cannot access storage of a tensor without one");
  return wk__raise(state);
}

/* The memo keeps the original beside its copy, so that no other storage comes to lie at its address. */
static PyObject *copy_of_storage(PyObject *original, PyObject *memo) {  // -> new
  PyObject *key = PyLong_FromVoidPtr(storage_of(original)), *copy = NULL;
  PyObject *pair = key ? PyDict_GetItemWithError(memo, key) : NULL;
  if (pair && PyTuple_Check(pair)) {
    copy = Py_NewRef(PyTuple_GET_ITEM(pair, 0));
  } else if (key && !PyErr_Occurred() && (copy = storage_clone(original, NULL))) {
    PyObject *both = PyTuple_Pack(2, copy, original);
    if (!both || PyDict_SetItem(memo, key, both) < 0) Py_CLEAR(copy);
    Py_XDECREF(both);
  }
  Py_XDECREF(key);
  return copy;
}

wk_tensor *wk__tensor_over_copy(PyObject *self, PyObject *memo) {
  PyObject *original = wk__tensor_untyped_storage(self, NULL);
  PyObject *copy = original ? copy_of_storage(original, memo) : NULL;
  wk_tensor *made = NULL;
  if (copy) {
    wk__spec spec;
    wk__spec_of(&spec, wk__tensor_of(self));
    made = wk__tensor_over(wk__storage_retain(storage_of(copy)), &spec);
    if (!made) (void)wk__raise(wk__state_of_type(Py_TYPE(copy)));
  }
  Py_XDECREF(copy);
  Py_XDECREF(original);
  return made;
}

PyObject *wk__tensor_typed_storage(PyObject *self, PyObject *unused) {  // -> new
  PyObject *untyped = wk__tensor_untyped_storage(self, unused);
  PyObject *module = untyped ? PyImport_ImportModule("wick.storage") : NULL;
  PyObject *dtype = wk__dtype_object(((wk__python_tensor *)self)->state, (wk_dtype)wk__tensor_of(self)->dtype);
  PyObject *typed = module ? PyObject_CallMethod(module, "_of", "OO", untyped, dtype) : NULL;
  Py_DECREF(dtype);
  Py_XDECREF(module);
  Py_XDECREF(untyped);
  return typed;
}

static bool numel_overflows(const wk__spec *spec) {
  int64_t numel = 1;
  for (int d = 0; d < spec->ndim; d++)
    if (__builtin_mul_overflow(numel, spec->sizes[d].bits, &numel)) return true;
  return false;
}

static PyObject *out_of_bounds(const wk__spec *spec, const wk_storage *storage,
                               int64_t needed) {  // -> borrowed, always NULL
  wk__string sizes = {0}, strides = {0};
  wk__print_sizes(&sizes, spec->sizes, spec->ndim);
  wk__print_sizes(&strides, spec->strides, spec->ndim);
  PyErr_Format(
      PyExc_RuntimeError,
      "setStorage: sizes %s, strides %s, storage offset %lld, and itemsize %zu requiring a storage size of %lld are "
      "out of bounds for storage of size %lld",
      sizes.text ? sizes.text : "?", strides.text ? strides.text : "?", (long long)spec->offset.bits,
      wk_dtype_size((wk_dtype)spec->dtype), (long long)needed, (long long)storage->bytes);
  wk__string_release(&sizes);
  wk__string_release(&strides);
  return NULL;
}

/* _rebuild_tensor(storage, dtype, offset, size, stride): refuses what would reach outside the storage. */
static PyObject *rebuild_tensor(PyObject *module, PyObject *const *args, Py_ssize_t n) {  // -> new
  wk__state *state = wk__state_of_module(module);
  if (n != 5)
    return PyErr_Format(PyExc_TypeError, "_rebuild_tensor() takes 5 positional arguments but %zd were given", n);
  if (!Py_IS_TYPE(args[0], state->storage_type) || !Py_IS_TYPE(args[1], state->dtype_type))
    return PyErr_Format(PyExc_TypeError, "_rebuild_tensor() takes an UntypedStorage and a dtype");
  wk_storage *storage = storage_of(args[0]);
  wk__spec spec = {.dtype = ((wk__python_dtype *)args[1])->dtype, .device = storage->device};
  int ndim = wk__ints_from_python(state, args[3], spec.sizes, false);
  if (ndim < 0 || wk__int_from_python(state, args[2], &spec.offset) < 0) return NULL;
  int stride_count = wk__ints_from_python(state, args[4], spec.strides, false);
  if (stride_count < 0) return NULL;
  if (stride_count != ndim)
    return PyErr_Format(PyExc_RuntimeError, "mismatch in length of strides and shape: %d and %d", stride_count, ndim);
  spec.ndim = (uint8_t)ndim;
  int64_t needed = bytes_needed(&spec);
  if (needed < 0 || (!is_meta(args[0]) && needed > storage->bytes) || numel_overflows(&spec))
    return out_of_bounds(&spec, storage, needed);
  if (is_meta(args[0])) return wk__wrap(state, wk__tensor_shape_only(&spec));
  return wk__wrap(state, wk__tensor_over(wk__storage_retain(storage), &spec));
}

static PyMethodDef functions[] = {{"_rebuild_tensor", WK__METHOD(rebuild_tensor), METH_FASTCALL,
                                   "_rebuild_tensor(storage, dtype, offset, size, stride): a tensor over a storage."},
                                  {0}};

int wk__add_storage(PyObject *module, wk__state *state) {
  state->storage_type = wk__add_type(module, &storage_spec, NULL, "UntypedStorage");
  return state->storage_type ? PyModule_AddFunctions(module, functions) : -1;
}
