/* wick._C._TileKernel: a kernel of the tile IR that is finished, and its launches. Ownership: it owns the kernel.
 * Tests: tests/python/test_tiles.py. */
#include "dynamo/cpython/gil.h"
#include "python/data/interop.h"
#include "python/tile/tiles.h"

static void kernel_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  wk__tile_release(((wk__tile_kernel_object *)self)->kernel);
  type->tp_free(self);
  Py_DECREF(type);
}

static PyObject *kernel_text(PyObject *self, void *unused) {  // -> new
  (void)unused;
  wk__string s = {0};
  wk__tile_print(&s, ((wk__tile_kernel_object *)self)->kernel);
  char *text = wk__string_take(&s);
  if (!text) return wk__raise(((wk__tile_kernel_object *)self)->state);
  PyObject *result = PyUnicode_FromString(text);
  wk__free(text);
  return result;
}

static bool address_of(wk__state *state, PyObject *o, Py_ssize_t n, wk_device *device, int64_t *out) {
  if (!wk__is_tensor(state, o)) {
    PyErr_Format(PyExc_TypeError, "argument %zd of the kernel was a tensor when it was specialised, and is %s", n,
                 Py_TYPE(o)->tp_name);
    return false;
  }
  const wk_tensor *t = wk__tensor_of(o);
  if (!t->storage || t->storage->trace || t->inner) {
    PyErr_Format(PyExc_ValueError, "Pointer argument (at %zd) has no memory", n);
    return false;
  }
  if (device->type == WK_META) *device = t->device;
  if (!wk__device_equal(*device, t->device)) {
    PyErr_Format(PyExc_ValueError, "Pointer argument (at %zd) lies on another device than the first one", n);
    return false;
  }
  *out = (int64_t)(uintptr_t)wk__address(t);
  return true;
}

static bool argument_of(wk__state *state, const wk__tile_type *type, PyObject *o, Py_ssize_t n, wk_device *device,
                        int64_t *out) {
  union {
    double d;
    int64_t i;
  } bits = {.i = 0};
  wk__scalar number;
  if (type->pointer) return address_of(state, o, n, device, out);
  if (wk__tile_scalar_from(o, &number) < 0) return false;
  if (wk__dtype_category((wk_dtype)type->dtype) == WK__FLOAT_KIND)
    bits.d = wk__scalar_double(number);
  else
    bits.i = wk__scalar_int(number);
  *out = bits.i;
  return true;
}

/* Ctrl-C while a kernel runs; its exception is set then. */
static bool is_interrupted(void) {
  wk__gil gil = wk__gil_hold();
  bool yes = gil.alive && PyErr_CheckSignals() < 0;
  wk__gil_drop(gil);
  return yes;
}

/* launch(grid, arguments): a tuple of three, a list */
static PyObject *kernel_launch(PyObject *self, PyObject *args) {  // -> new
  const wk__tile_kernel_object *k = (const wk__tile_kernel_object *)self;
  wk__tile_launch launch;
  wk_device device = {WK_META, -1};
  PyObject *list;
  wk_status status;
  if (!PyArg_ParseTuple(args, "(iii)O!:launch", &launch.grid[0], &launch.grid[1], &launch.grid[2], &PyList_Type, &list))
    return NULL;
  if (PyList_GET_SIZE(list) != k->kernel->parameters)
    return PyErr_Format(PyExc_TypeError, "the kernel takes %d arguments, not %zd", k->kernel->parameters,
                        PyList_GET_SIZE(list));
  for (wk__tile v = 1; v < k->kernel->count; v++) {
    const wk__tile_instr *i = &k->kernel->instrs[v];
    if (i->op != WK__TILE_parameter) continue;
    Py_ssize_t n = (Py_ssize_t)i->number.i;
    if (!argument_of(k->state, &i->type, PyList_GET_ITEM(list, n), n, &device, &launch.args[n])) return NULL;
  }
  if (launch.grid[0] <= 0 || launch.grid[1] <= 0 || launch.grid[2] <= 0) Py_RETURN_NONE;
  if (device.type == WK_META) device = WK__CPU_DEVICE;
  const wk__device_type *type = wk__device_type_of(device);
  wk__stream *stream = type ? wk__stream_of(device) : NULL;
  if (!type || (!stream && device.type != WK_CPU)) return wk__raise(k->state);
  if (!type->launch_tiles)
    return PyErr_Format(PyExc_NotImplementedError, "tile kernels do not run on device %s",
                        wk__device_type_name(device.type));
  launch.is_interrupted = is_interrupted;
  wk__gil_give();
  status = type->launch_tiles(stream, k->kernel, &launch);
  wk__gil_take_back();
  if (status == WK_INTERRUPTED && PyErr_Occurred()) return NULL;
  if (status != WK_OK) return wk__raise(k->state);
  Py_RETURN_NONE;
}

/* (how many are written, those, others): whether each tensor is contiguous, from the beginning of its memory, which is
 * none of the others' where one of the two is written: a graph may give a kernel copies, beside which there is nothing.
 */
PyObject *wk__tiles_are_apart(PyObject *module, PyObject *tensors) {  // -> new
  wk__state *state = wk__state_of_module(module);
  Py_ssize_t count = PyTuple_GET_SIZE(tensors), written = count ? PyLong_AsSsize_t(PyTuple_GET_ITEM(tensors, 0)) : 0;
  if (PyErr_Occurred()) return NULL;
  for (Py_ssize_t n = 1; n < count; n++) {
    PyObject *o = PyTuple_GET_ITEM(tensors, n);
    if (!wk__is_tensor(state, o)) return PyErr_Format(PyExc_TypeError, "a tensor is wanted");
    const wk_tensor *t = wk__tensor_of(o);
    bool whole = t->storage && wk__is_contiguous(t) && wk_int_is_known(t->offset) && t->offset.bits == 0;
    for (Py_ssize_t m = 1; m < n && m <= written && whole; m++)
      whole = wk__tensor_of(PyTuple_GET_ITEM(tensors, m))->storage != t->storage;
    if (!whole) Py_RETURN_FALSE;
  }
  Py_RETURN_TRUE;
}

static PyMethodDef kernel_methods[] = {{"launch", kernel_launch, METH_VARARGS, NULL}, {0}};
/* The numbers of the arguments that it writes to; None: it may write to memory that no argument says. */
static PyObject *kernel_written(PyObject *self, void *unused) {  // -> new
  const wk__tile_kernel_object *k = (const wk__tile_kernel_object *)self;
  uint64_t written;
  bool known;
  (void)unused;
  if (wk__tile_written(k->kernel, &written, &known) != WK_OK) return wk__raise(k->state);
  if (!known) Py_RETURN_NONE;
  PyObject *tuple = PyTuple_New(__builtin_popcountll(written));
  for (Py_ssize_t at = 0; tuple && written; at++, written &= written - 1) {
    PyObject *number = PyLong_FromLong(__builtin_ctzll(written));
    if (!number) {
      Py_DECREF(tuple);
      return NULL;
    }
    PyTuple_SET_ITEM(tuple, at, number);
  }
  return tuple;
}

static PyGetSetDef kernel_getset[] = {
    {"text", kernel_text, NULL, "The kernel in the tile IR.", NULL},
    {"written", kernel_written, NULL, "The numbers of the arguments that it writes to, or None.", NULL},
    {0}};
static PyType_Slot kernel_slots[] = {
    {Py_tp_dealloc, kernel_dealloc}, {Py_tp_methods, kernel_methods}, {Py_tp_getset, kernel_getset}, {0, NULL}};
PyType_Spec wk__tile_kernel_spec = {.name = "wick._C._TileKernel",
                                    .basicsize = sizeof(wk__tile_kernel_object),
                                    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                    .slots = kernel_slots};
