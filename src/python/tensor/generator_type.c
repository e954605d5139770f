/* wick.Generator and the functions on the process's generator: manual_seed, seed, get_rng_state, ...
 * In: seeds, states as uint8 tensors. Out: PyTorch's random streams (random/generator.h). Invariant: a Generator object
 * owns one reference to its generator; default_generator is the process's, in every interpreter. Tests:
 * tests/python/test_small_types.py. */
#include "python/data/interop.h"
#include "random/generator.h"

static wk__generator *generator_of(PyObject *self) { return ((wk__python_generator *)self)->generator; }  // borrowed

/* ---- seeds ---- */

/* -2^63 to 2^64 - 1; negative seeds wrap around. */
static int seed_from_integer(PyObject *integer, uint64_t *out) {
  int overflow;
  int64_t value = PyLong_AsLongLongAndOverflow(integer, &overflow);
  *out = (uint64_t)value;
  if (!overflow) return value == -1 && PyErr_Occurred() ? -1 : 0;
  if (overflow > 0) {
    *out = PyLong_AsUnsignedLongLong(integer);
    if (!PyErr_Occurred()) return 0;
    PyErr_Clear();
  }
  PyErr_SetString(PyExc_ValueError, "Overflow when unpacking long long");
  return -1;
}

/* Takes the reference to the integer, which may be NULL with an exception. */
static int seed_generator(wk__generator *generator, PyObject *steal_integer) {
  uint64_t seed;
  int status = steal_integer ? seed_from_integer(steal_integer, &seed) : -1;
  Py_XDECREF(steal_integer);
  if (status == 0) wk__generator_seed(generator, seed);
  return status;
}

/* ---- states ---- */

static PyObject *state_to_tensor(wk__state *state, wk__generator *generator) {  // -> new
  wk_tensor *t = wk_tensor_create(WK_UINT8, 1, (int64_t[]){wk__generator_state_bytes(generator)});
  if (!t) return wk__raise(state);
  wk__generator_get_state(generator, (uint8_t *)wk__host_data(t));
  return wk__wrap(state, t);
}

static int state_from_tensor(wk__state *state, wk__generator *generator, PyObject *o) {
  if (!wk__is_tensor(state, o)) {
    PyErr_Format(PyExc_TypeError, "expected a torch.ByteTensor, but got %s", Py_TYPE(o)->tp_name);
    return -1;
  }
  const wk_tensor *t = wk__tensor_of(o);
  if (t->dtype != WK_UINT8 || t->device.type != WK_CPU || !t->storage || !wk__is_contiguous(t)) {
    PyErr_SetString(PyExc_TypeError, "RNG state must be a torch.ByteTensor");
    return -1;
  }
  if (wk__generator_set_state(generator, wk__host_data(t), wk__numel(t)) == WK_OK) return 0;
  wk__raise(state);
  return -1;
}

/* ==================================================== the type ================================================== */

static PyObject *generator_object(PyTypeObject *type, wk__generator *steal_generator) {  // -> new
  PyObject *self = type->tp_alloc(type, 0);
  if (self)
    ((wk__python_generator *)self)->generator = steal_generator;
  else
    wk__generator_release(steal_generator);
  return self;
}

static PyObject *generator_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {  // -> new
  static char *names[] = {"device", NULL};
  PyObject *given = NULL;
  wk_device device = WK__CPU_DEVICE, one = device;
  wk__state *state = wk__state_of_type(type);
  if (!state || !PyArg_ParseTupleAndKeywords(args, keywords, "|O:Generator", names, &given)) return NULL;
  if (wk__device_argument(state, given, &one) < 0) return NULL;
  if (given && given != Py_None && wk__device_as_named(state, given, &device) < 0) return NULL;
  if (device.type == WK_CPU) device = one; /* of others it is for any, where no index was said */
  if (device.type == WK_META)
    return PyErr_Format(PyExc_RuntimeError, "Device type meta is not supported for torch.Generator() api.");
  wk__generator *generator = wk__generator_create(device, WK__DEFAULT_SEED);
  return generator ? generator_object(type, generator) : wk__raise(state);
}

static void generator_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  wk__generator_release(generator_of(self));
  type->tp_free(self);
  Py_DECREF(type);
}

static PyObject *generator_manual_seed(PyObject *self, PyObject *seed) {  // -> new
  if (!PyIndex_Check(seed))
    return PyErr_Format(PyExc_RuntimeError, "manual_seed expected a long, but got %s", Py_TYPE(seed)->tp_name);
  return seed_generator(generator_of(self), PyNumber_Index(seed)) < 0 ? NULL : Py_NewRef(self);
}
static PyObject *generator_seed(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return PyLong_FromUnsignedLongLong(wk__generator_seed_random(generator_of(self)));
}
static PyObject *generator_initial_seed(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return PyLong_FromUnsignedLongLong(wk__generator_initial_seed(generator_of(self)));
}
static PyObject *generator_get_state(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return state_to_tensor(wk__state_of_type(Py_TYPE(self)), generator_of(self));
}
static PyObject *generator_set_state(PyObject *self, PyObject *tensor) {  // -> new
  wk__state *state = wk__state_of_type(Py_TYPE(self));
  return state_from_tensor(state, generator_of(self), tensor) < 0 ? NULL : Py_NewRef(self);
}
static PyObject *generator_device(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return wk__device_object(wk__state_of_type(Py_TYPE(self)), generator_of(self)->device);
}

/* Pickling and copying: a new generator, then the state as bytes. */
static PyObject *generator_reduce(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)wk__generator_state_bytes(generator_of(self)));
  if (!bytes) return NULL;
  wk__generator_get_state(generator_of(self), (uint8_t *)PyBytes_AS_STRING(bytes));
  wk_device device = generator_of(self)->device;
  if (device.type == WK_CPU) return Py_BuildValue("O()N", Py_TYPE(self), bytes);
  return Py_BuildValue("O(N)N", Py_TYPE(self), wk__device_object(wk__state_of_type(Py_TYPE(self)), device), bytes);
}

static PyObject *generator_setstate(PyObject *self, PyObject *bytes) {  // -> new
  if (!PyBytes_Check(bytes)) return PyErr_Format(PyExc_TypeError, "a generator's state must be bytes");
  if (wk__generator_set_state(generator_of(self), PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes)) == WK_OK)
    Py_RETURN_NONE;
  return wk__raise(wk__state_of_type(Py_TYPE(self)));
}

static PyObject *generator_clone_state(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  wk__state *state = wk__state_of_type(Py_TYPE(self));
  int64_t size = wk__generator_state_bytes(generator_of(self));
  wk__generator *copy = wk__generator_create(generator_of(self)->device, WK__DEFAULT_SEED);
  uint8_t *bytes = copy ? wk__alloc((size_t)size) : NULL;
  wk_status status = bytes ? WK_OK : wk_error_category();
  if (bytes) wk__generator_get_state(generator_of(self), bytes);
  if (bytes) status = wk__generator_set_state(copy, bytes, size);
  wk__free(bytes);
  if (status == WK_OK) return generator_object(Py_TYPE(self), copy);
  wk__generator_release(copy);
  return wk__raise(state);
}

static PyMethodDef generator_methods[] = {
    {"manual_seed", generator_manual_seed, METH_O,
     "Sets the seed and returns the generator: Generator().manual_seed(0)"},
    {"seed", generator_seed, METH_NOARGS, "Sets a seed from the system's entropy and returns it."},
    {"initial_seed", generator_initial_seed, METH_NOARGS, "The seed as last set."},
    {"get_state", generator_get_state, METH_NOARGS, "The state as a uint8 tensor."},
    {"set_state", generator_set_state, METH_O, "Sets a state that get_state gave."},
    {"clone_state", generator_clone_state, METH_NOARGS, "A new generator in the same state."},
    {"__reduce__", generator_reduce, METH_NOARGS, NULL},
    {"__setstate__", generator_setstate, METH_O, NULL},
    {0}};
static PyGetSetDef generator_getset[] = {{"device", generator_device, NULL, NULL, NULL}, {0}};
static PyType_Slot generator_slots[] = {{Py_tp_doc, "A stream of random numbers: Generator(device='cpu')."},
                                        {Py_tp_new, generator_new},
                                        {Py_tp_dealloc, generator_dealloc},
                                        {Py_tp_methods, generator_methods},
                                        {Py_tp_getset, generator_getset},
                                        {0, NULL}};
static PyType_Spec generator_spec = {.name = "wick.Generator",
                                     .basicsize = sizeof(wk__python_generator),
                                     .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                     .slots = generator_slots};

/* ============================================ the process's generator =========================================== */

static int seed_all(PyObject *steal_integer) {
  uint64_t seed;
  int status = steal_integer ? seed_from_integer(steal_integer, &seed) : -1;
  Py_XDECREF(steal_integer);
  if (status == 0) wk_manual_seed(seed);
  return status;
}

static PyObject *manual_seed(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  static const wk__signature signature = {"manual_seed", 1, 1, {"seed"}};
  PyObject *seed;
  if (wk__bind(&signature, args, n, keywords, &seed) < 0) return NULL;
  if (seed_all(PyNumber_Long(seed)) < 0) return NULL;
  return PyObject_GetAttrString(module, "default_generator");
}
static PyObject *seed(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  return PyLong_FromUnsignedLongLong(wk__generator_seed_random(wk__generator_default()));
}
static PyObject *initial_seed(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  return PyLong_FromUnsignedLongLong(wk__generator_initial_seed(wk__generator_default()));
}
static PyObject *get_rng_state(PyObject *module, PyObject *unused) {  // -> new
  (void)unused;
  return state_to_tensor(wk__state_of_module(module), wk__generator_default());
}
static PyObject *set_rng_state(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {  // -> new
  static const wk__signature signature = {"set_rng_state", 1, 1, {"new_state"}};
  PyObject *tensor;
  if (wk__bind(&signature, args, n, keywords, &tensor) < 0) return NULL;
  if (state_from_tensor(wk__state_of_module(module), wk__generator_default(), tensor) < 0) return NULL;
  return Py_NewRef(Py_None);
}

/* Another device's, of the process: an object of its own over it, each time. */
static PyObject *default_generator_of(PyObject *module, PyObject *o) {  // -> new
  wk__state *state = wk__state_of_module(module);
  wk_device device;
  if (wk__device_argument(state, o, &device) < 0) return NULL;
  wk__generator *generator = wk__generator_default_of(device);
  if (!generator) return wk__raise(state);
  wk__generator_retain(generator);
  return generator_object(state->generator_type, generator);
}

static PyMethodDef functions[] = {
    {"_default_generator", default_generator_of, METH_O, "The generator that a device draws from by default."},
    {"manual_seed", WK__METHOD(manual_seed), WK__FAST_CALL,
     "Seeds the default generator and returns it: manual_seed(0)"},
    {"seed", seed, METH_NOARGS, "Seeds the default generator from the system's entropy; returns the seed."},
    {"initial_seed", initial_seed, METH_NOARGS, "The default generator's seed as last set."},
    {"get_rng_state", get_rng_state, METH_NOARGS, "The default generator's state as a uint8 tensor."},
    {"set_rng_state", WK__METHOD(set_rng_state), WK__FAST_CALL, "Sets a state that get_rng_state gave."},
    {0}};

int wk__add_generators(PyObject *module, wk__state *state) {
  state->generator_type = wk__add_type(module, &generator_spec, NULL, "Generator");
  if (!state->generator_type) return -1;
  wk__generator_retain(wk__generator_default());
  PyObject *generator = generator_object(state->generator_type, wk__generator_default());
  int status = generator ? PyModule_AddObjectRef(module, "default_generator", generator) : -1;
  Py_XDECREF(generator);
  return status < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
