/* safetensors files for Python: tensors over a mapped file, and files from tensors. wick/safetensors.py gives them the
 * public library's functions.
 *
 * In: a path, or bytes; a dict of contiguous CPU tensors. Out: a dict of tensors; a file, or bytes. Invariant: the map
 * is private, so writing to a loaded tensor never changes the file, and lasts as long as any tensor over it. A file
 * that another process cuts short while it is mapped kills ours, as with any map. Tests:
 * tests/python/test_safetensors.py. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dynamo/cpython/gil.h"
#include "python/data/interop.h"
#include "tensor/safetensors.h"

/* ==================================================== the map =================================================== */

typedef struct mapping {
  _Atomic int32_t references;
  void *bytes; /* NULL when size is 0 */
  int64_t size;
} mapping;

static void mapping_release(void *context) {
  mapping *m = context;
  if (atomic_fetch_sub(&m->references, 1) != 1) return;
  if (m->bytes) munmap(m->bytes, (size_t)m->size);
  PyMem_RawFree(m);
}

/* Maps `size` bytes of a file; of fd -1 new zeroed memory. NULL with an exception. */
static mapping *map_bytes(int fd, int64_t size) {
  mapping *m = PyMem_RawCalloc(1, sizeof *m);
  if (!m) {
    PyErr_NoMemory();
    return NULL;
  }
  atomic_init(&m->references, 1);
  m->size = size;
  if (!size) return m;
  void *bytes = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
  if (bytes != MAP_FAILED) {
    m->bytes = bytes;
    return m;
  }
  PyErr_SetFromErrno(PyExc_OSError);
  PyMem_RawFree(m);
  return NULL;
}

static mapping *map_file(PyObject *path) {
  PyObject *bytes;
  if (!PyUnicode_FSConverter(path, &bytes)) return NULL;
  mapping *m = NULL;
  struct stat facts;
  int fd = open(PyBytes_AS_STRING(bytes), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &facts) < 0)
    PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
  else if (!S_ISREG(facts.st_mode)) {
    errno = S_ISDIR(facts.st_mode) ? EISDIR : EINVAL;
    PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
  } else
    m = map_bytes(fd, facts.st_size);
  if (fd >= 0) close(fd);
  Py_DECREF(bytes);
  return m;
}

/* A copy of an object's bytes. */
static mapping *map_copy(PyObject *o) {
  Py_buffer view;
  if (PyObject_GetBuffer(o, &view, PyBUF_SIMPLE) < 0) return NULL;
  mapping *m = map_bytes(-1, view.len);
  if (m && view.len) memcpy(m->bytes, view.buf, (size_t)view.len);
  PyBuffer_Release(&view);
  return m;
}

/* ==================================================== loading =================================================== */

static wk_dtype dtype_of_code(const wk__safetensors_entry *e) {
  for (int d = 0; d < WK_DTYPE_COUNT; d++)
    if (wk__dtypes[d].safetensors && strcmp(wk__dtypes[d].safetensors, e->dtype) == 0) return (wk_dtype)d;
  PyErr_Format(PyExc_NotImplementedError, "safetensors: \"%.80s\" has dtype %s, which wick does not have", e->name,
               e->dtype);
  return WK_DTYPE_NONE;
}

/* Over the map, or a copy where a careless writer did not align the data. */
static PyObject *tensor_of_entry(wk__state *state, const wk__safetensors_entry *e, mapping *m) {  // -> new
  wk_dtype dtype = dtype_of_code(e);
  if (dtype == WK_DTYPE_NONE) return NULL;
  if ((uintptr_t)e->data % wk_dtype_size(dtype))
    return wk__wrap(state, wk_tensor_from_data(e->data, dtype, e->ndim, e->shape));
  void *data = (void *)(uintptr_t)e->data;
  wk_tensor *t = wk__tensor_over_memory(data, dtype, e->ndim, e->shape, NULL, mapping_release, m);
  if (t) atomic_fetch_add(&m->references, 1);
  return wk__wrap(state, t);
}

static PyObject *tensors_of_file(wk__state *state, const wk__safetensors *file, mapping *m) {  // -> new
  PyObject *dict = PyDict_New();
  for (int64_t i = 0; dict && i < file->count; i++) {
    PyObject *tensor = tensor_of_entry(state, &file->entries[i], m);
    if (!tensor || PyDict_SetItemString(dict, file->entries[i].name, tensor) < 0) Py_CLEAR(dict);
    Py_XDECREF(tensor);
  }
  return dict;
}

static PyObject *metadata_of_file(const wk__safetensors *file) {  // -> new, None without any
  if (!file->metadata_count) Py_RETURN_NONE;
  PyObject *dict = PyDict_New();
  for (int64_t i = 0; dict && i < file->metadata_count; i++) {
    PyObject *value = PyUnicode_FromString(file->metadata[i].value);
    if (!value || PyDict_SetItemString(dict, file->metadata[i].key, value) < 0) Py_CLEAR(dict);
    Py_XDECREF(value);
  }
  return dict;
}

/* (tensors, metadata); takes the mapping, which may be NULL with an exception. */
static PyObject *load_mapping(wk__state *state, mapping *steal_mapping) {  // -> new
  wk__safetensors file;
  if (!steal_mapping) return NULL;
  PyObject *result = NULL;
  if (wk__safetensors_parse(steal_mapping->bytes, steal_mapping->size, &file) == WK_OK) {
    PyObject *tensors = tensors_of_file(state, &file, steal_mapping);
    PyObject *metadata = tensors ? metadata_of_file(&file) : NULL;
    result = metadata ? PyTuple_Pack(2, tensors, metadata) : NULL;
    Py_XDECREF(metadata);
    Py_XDECREF(tensors);
    wk__safetensors_release(&file);
  } else {
    wk__raise(state);
  }
  mapping_release(steal_mapping);
  return result;
}

static PyObject *safetensors_load(PyObject *module, PyObject *path) {  // -> new
  return load_mapping(wk__state_of_module(module), map_file(path));
}
static PyObject *safetensors_load_bytes(PyObject *module, PyObject *data) {  // -> new
  return load_mapping(wk__state_of_module(module), map_copy(data));
}

/* ==================================================== saving ==================================================== */

/* What the arguments say, borrowing names and bytes from them. Sizes need a place: entries point to plain int64. */
typedef struct draft {
  wk__safetensors_entry *entries; /* (count) */
  int64_t (*shapes)[WK_MAX_DIMS]; /* (count) */
  wk_storage **storages;          /* (count), owned: the bytes while the interpreter is released */
  wk__safetensors_pair *metadata; /* (metadata_count) */
  Py_ssize_t count, metadata_count;
} draft;

static void draft_clear(draft *d) {
  for (Py_ssize_t i = 0; d->storages && i < d->count; i++) wk__storage_release(d->storages[i]);
  PyMem_Free(d->storages);
  PyMem_Free(d->entries);
  PyMem_Free(d->shapes);
  PyMem_Free(d->metadata);
}

/* A string without zero bytes, borrowed from the object. NULL with an exception. */
static const char *text_of(PyObject *o) {
  Py_ssize_t size;
  const char *text = PyUnicode_AsUTF8AndSize(o, &size);
  if (!text || strlen(text) == (size_t)size) return text;
  PyErr_Format(PyExc_ValueError, "safetensors: names and metadata cannot hold zero bytes: %R", o);
  return NULL;
}

static int describe_tensor(wk__state *state, PyObject *name, PyObject *value, int64_t *shape,
                           wk__safetensors_entry *e) {
  if (!wk__is_tensor(state, value)) {
    PyErr_Format(PyExc_ValueError, "Key `%S` is invalid, expected torch.Tensor but received %R", name, Py_TYPE(value));
    return -1;
  }
  const wk_tensor *t = wk__tensor_of(value);
  if (wk__check_readable(state, t, WK_NOT_IMPLEMENTED, "Cannot copy out of meta tensor; no data!") < 0) return -1;
  if (wk__numel(t) && !wk__host_data(t)) {
    PyErr_Format(PyExc_ValueError, "`%S` is not in the CPU's memory", name);
    return -1;
  }
  if (!wk__is_contiguous(t) || !wk__dtypes[t->dtype].safetensors) {
    PyErr_Format(PyExc_ValueError,
                 wk__is_contiguous(t)
                     ? "`%S` has a dtype that safetensors does not have"
                     : "You are trying to save a non contiguous tensor: `%S` which is not allowed. It either "
                       "means you are trying to save tensors which are reference of each other in which case "
                       "it's recommended to save only the full tensors, and reslice at load time, or simply "
                       "call `.contiguous()` on your tensor to pack it before saving.",
                 name);
    return -1;
  }
  for (int d = 0; d < t->ndim; d++) shape[d] = wk__size(t, d);
  *e = (wk__safetensors_entry){.name = text_of(name),
                               .dtype = wk__dtypes[t->dtype].safetensors,
                               .ndim = t->ndim,
                               .shape = shape,
                               .end = wk__numel(t) * (int64_t)wk__itemsize(t),
                               .data = wk__host_data(t)};
  return e->name ? 0 : -1;
}

static int describe_metadata(PyObject *metadata, draft *d) {
  if (metadata == Py_None) return 0;
  if (!PyDict_Check(metadata)) {
    PyErr_SetString(PyExc_TypeError, "metadata must be a dict of strings");
    return -1;
  }
  d->metadata = PyMem_Calloc((size_t)PyDict_GET_SIZE(metadata) + 1, sizeof *d->metadata);
  if (!d->metadata) return PyErr_NoMemory(), -1;
  PyObject *key, *value;
  for (Py_ssize_t at = 0; PyDict_Next(metadata, &at, &key, &value);) {
    wk__safetensors_pair *pair = &d->metadata[d->metadata_count++];
    pair->key = text_of(key);
    pair->value = pair->key ? text_of(value) : NULL;
    if (!pair->value) return -1;
  }
  return 0;
}

static int draft_fill(wk__state *state, PyObject *tensors, PyObject *metadata, draft *d) {
  if (!PyDict_Check(tensors)) {
    PyErr_Format(PyExc_ValueError, "Expected a dict of [str, torch.Tensor] but received %R", Py_TYPE(tensors));
    return -1;
  }
  size_t count = (size_t)PyDict_GET_SIZE(tensors) + 1;
  d->entries = PyMem_Calloc(count, sizeof *d->entries);
  d->shapes = PyMem_Calloc(count, sizeof *d->shapes);
  d->storages = PyMem_Calloc(count, sizeof *d->storages);
  if (!d->entries || !d->shapes || !d->storages) return PyErr_NoMemory(), -1;
  PyObject *name, *value;
  for (Py_ssize_t at = 0; PyDict_Next(tensors, &at, &name, &value); d->count++) {
    if (describe_tensor(state, name, value, d->shapes[d->count], &d->entries[d->count]) < 0) return -1;
    d->storages[d->count] = wk__storage_retain(wk__tensor_of(value)->storage);
  }
  return describe_metadata(metadata, d);
}

static wk_status write_file(PyObject *path, draft *d) {
  wk__gil_give();
  wk_status status =
      wk__safetensors_save(PyBytes_AS_STRING(path), d->entries, d->count, d->metadata, d->metadata_count);
  wk__gil_take_back();
  return status;
}

/* safetensors_save(tensors, path, metadata). Other threads run meanwhile, so the names are those of a dict of our own.
 */
static PyObject *safetensors_save(PyObject *module, PyObject *const *args, Py_ssize_t n) {  // -> new
  wk__state *state = wk__state_of_module(module);
  PyObject *path, *held;
  if (n != 3)
    return PyErr_Format(PyExc_TypeError, "safetensors_save() takes 3 positional arguments but %zd were given", n);
  if (!PyDict_Check(args[0]))
    return PyErr_Format(PyExc_ValueError, "Expected a dict of [str, torch.Tensor] but received %R", Py_TYPE(args[0]));
  if (!(held = PyDict_Copy(args[0]))) return NULL;
  draft d = {0};
  PyObject *result = NULL;
  if (PyUnicode_FSConverter(args[1], &path)) {
    if (draft_fill(state, held, args[2], &d) == 0)
      result = write_file(path, &d) == WK_OK ? Py_NewRef(Py_None) : wk__raise(state);
    Py_DECREF(path);
  }
  draft_clear(&d);
  Py_DECREF(held);
  return result;
}

/* The planned file in memory. */
static PyObject *draft_to_bytes(const draft *d, const wk__string *header) {  // -> new
  int64_t data = 0;
  for (Py_ssize_t i = 0; i < d->count; i++) data = wk__max(data, d->entries[i].end);
  PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(header->length + data));
  if (!bytes) return NULL;
  char *at = PyBytes_AS_STRING(bytes);
  memcpy(at, header->text, (size_t)header->length);
  for (Py_ssize_t i = 0; i < d->count; i++) {
    const wk__safetensors_entry *e = &d->entries[i];
    if (e->end > e->begin) memcpy(at + header->length + e->begin, e->data, (size_t)(e->end - e->begin));
  }
  return bytes;
}

/* safetensors_save_bytes(tensors, metadata) */
static PyObject *safetensors_save_bytes(PyObject *module, PyObject *const *args, Py_ssize_t n) {  // -> new
  wk__state *state = wk__state_of_module(module);
  if (n != 2)
    return PyErr_Format(PyExc_TypeError, "safetensors_save_bytes() takes 2 positional arguments but %zd were given", n);
  draft d = {0};
  wk__string header = {0};
  PyObject *result = NULL;
  if (draft_fill(state, args[0], args[1], &d) == 0)
    result = wk__safetensors_plan(d.entries, d.count, d.metadata, d.metadata_count, &header) == WK_OK
                 ? draft_to_bytes(&d, &header)
                 : wk__raise(state);
  wk__string_release(&header);
  draft_clear(&d);
  return result;
}

static PyMethodDef functions[] = {
    {"safetensors_load", safetensors_load, METH_O, "(tensors, metadata or None) of a file: safetensors_load(path)"},
    {"safetensors_load_bytes", safetensors_load_bytes, METH_O, "The same of a file's bytes, which are copied."},
    {"safetensors_save", WK__METHOD(safetensors_save), METH_FASTCALL,
     "safetensors_save(tensors, path, metadata or None)"},
    {"safetensors_save_bytes", WK__METHOD(safetensors_save_bytes), METH_FASTCALL, "The same as bytes."},
    {0}};

int wk__add_safetensors(PyObject *module) { return PyModule_AddFunctions(module, functions); }
