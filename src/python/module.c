/* The extension module wick._C: its state, and the list of files that fill it. All Python state is per module, so that
 * several interpreters can load wick side by side. Tests: tests/python/. */
#include "python/calls/override.h"

#include "base/ends.h"
#include "cpu/linalg/lapack.h"
#include "cpu/memory.h"
#include "cpu/tier0/program.h"
#include "python/fx/graph_type.h"

wk__state *wk__state_of_module(PyObject *module) { return PyModule_GetState(module); }

wk__state *wk__state_of_type(PyTypeObject *type) {
  PyObject *module = PyType_GetModuleByDef(type, &wk__python_module);
  return module ? PyModule_GetState(module) : NULL;
}

static int intern_names(wk__state *state) {
#define NAME(x) \
  if (!(state->name_##x = PyUnicode_InternFromString(#x))) return -1;
  WK__PYTHON_NAMES(NAME)
#undef NAME
  return 0;
}

/* ---- the process's settings: CPU level and memory, for measurements ---- */

static PyObject *cpu_level(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  return PyUnicode_FromString(wk__cpu_level_name(wk__cpu_level_get()));
}
static PyObject *cpu_levels(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  PyObject *list = PyList_New(0);
  for (int level = 0; list && level <= (int)wk__cpu_level_max(); level++) {
    PyObject *name = PyUnicode_FromString(wk__cpu_level_name((wk__cpu_level)level));
    if (!name || PyList_Append(list, name) < 0) Py_CLEAR(list);
    Py_XDECREF(name);
  }
  return list;
}
static PyObject *set_cpu_level(PyObject *module, PyObject *name) {  // -> new
  const char *text = PyUnicode_AsUTF8(name);
  if (!text) return NULL;
  for (int level = 0; level < WK__CPU_LEVEL_COUNT; level++) {
    if (strcmp(wk__cpu_level_name((wk__cpu_level)level), text) != 0) continue;
    if (wk__cpu_level_set((wk__cpu_level)level) != WK_OK) return wk__raise(wk__state_of_module(module));
    Py_RETURN_NONE;
  }
  return PyErr_Format(PyExc_ValueError, "no CPU level '%s'", text);
}
static PyObject *memory_stats(PyObject *module, PyObject *unused) {  // -> new
  (void)module, (void)unused;
  return Py_BuildValue("{s:L,s:L}", "live", (long long)wk__allocator_live_bytes(), "peak",
                       (long long)wk__allocator_peak_bytes());
}

/* Folders that packages may be in, separated by colons. */
static PyObject *look_in(PyObject *module, PyObject *folders) {  // -> new
  (void)module;
  const char *text = PyUnicode_AsUTF8(folders);
  if (!text) return NULL;
  wk__lapack_look_in(text);
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_look_for_lapack_in", look_in, METH_O, "Where Python packages are, one of which may have LAPACK."},
    {"_swap_tensors", wk__swap_tensors, METH_VARARGS, "Each of two objects is the other's tensor from now on."},
    {"_cpu_level", cpu_level, METH_NOARGS, "The CPU level in use: portable, avx2 or avx512."},
    {"_cpu_levels", cpu_levels, METH_NOARGS, "The levels that this machine has, lowest first."},
    {"_set_cpu_level", set_cpu_level, METH_O, "Lowers or restores the CPU level."},
    {"_memory_stats", memory_stats, METH_NOARGS, "Bytes of tensor memory in use now and at most."},
    {0}};

/* Every public name, for `from wick._C import *`. */
static int add_all(PyObject *module) {
  PyObject *names = PyDict_Keys(PyModule_GetDict(module)), *all = PyList_New(0);
  int status = names && all ? 0 : -1;
  for (Py_ssize_t i = 0; status == 0 && i < PyList_GET_SIZE(names); i++) {
    PyObject *name = PyList_GET_ITEM(names, i);
    PyObject *value = PyDict_GetItem(PyModule_GetDict(module), name);
    bool shown = PyUnicode_READ_CHAR(name, 0) != '_' && !wk__is_hidden_operator(wk__state_of_module(module), value);
    if (shown) status = PyList_Append(all, name);
  }
  if (status == 0) status = PyModule_AddObjectRef(module, "__all__", all);
  Py_XDECREF(names);
  Py_XDECREF(all);
  return status;
}

#ifdef WICK_TESTS
int wk__add_test_functions(PyObject *module); /* tests/ext/ext.h */
#endif

/* Once, of all interpreters. Where there is no room for it, exit() is early enough for most. */
static void end_with_interpreter(void) {
  static atomic_flag asked = ATOMIC_FLAG_INIT;
  if (!atomic_flag_test_and_set(&asked)) (void)Py_AtExit(wk__run_ends);
}

static int module_exec(PyObject *module) {
  wk__state *state = wk__state_of_module(module);
  state->module = module;
  end_with_interpreter();
  if (intern_names(state) < 0) return -1;
  if (PyModule_AddStringConstant(module, "__version__", wk_version()) < 0) return -1;
  if (wk__add_small_types(module, state) < 0 || wk__add_tensor_type(module, state) < 0) return -1;
  if (wk__add_overrides(module, state) < 0 || wk__add_call_watching(module) < 0) return -1;
  if (wk__add_operators(module, state) < 0 || wk__add_interop(module, state) < 0) return -1;
  if (wk__add_return_types(module, state) < 0 || wk__add_inplace_views(state) < 0) return -1;
  if (wk__add_autograd(module, state) < 0 || wk__add_nn_module(module, state) < 0) return -1;
  if (wk__add_graph_types(module, state) < 0 || wk__add_loaded_graph(module) < 0 || wk__add_decompositions(module) < 0)
    return -1;
  if (wk__add_control_flow(module) < 0) return -1;
  if (wk__add_score_bodies(module) < 0 || wk__add_levels(module) < 0 || wk__add_devices(module) < 0) return -1;
  if (wk__add_device_memory(module) < 0 || wk__add_device_graphs(module) < 0) return -1;
  if (wk__add_sparse(module) < 0 || wk__add_tiles(module) < 0) return -1;
  if (wk__add_artifacts(module) < 0 || wk__add_dynamo_binding(module, state) < 0) return -1;
#ifdef WICK_TESTS
  if (wk__add_test_functions(module) < 0) return -1;
#endif
  return PyModule_AddFunctions(module, functions) < 0 ? -1 : add_all(module);
}

/* The objects that the state owns, one macro for traverse and clear. */
// clang-format off
#define STATE_OBJECTS(VISIT) \
  VISIT(tensor_type) VISIT(parameter_type) VISIT(module_type) VISIT(dtype_type) VISIT(device_type) \
  VISIT(size_type) VISIT(generator_type) VISIT(storage_type) VISIT(node_type) VISIT(function_type) \
  VISIT(operator_type) VISIT(memory_format_type) VISIT(layout_type) VISIT(exception_out_of_memory) VISIT(exception_accelerator) \
  VISIT(disabled_override) VISIT(graph_type) VISIT(graph_node_type) VISIT(overload_type) VISIT(graph_objects) \
  VISIT(return_type_objects)
// clang-format on

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
  wk__state *state = wk__state_of_module(module);
  if (!state) return 0;
#define VISIT(field) Py_VISIT(state->field);
  STATE_OBJECTS(VISIT)
#undef VISIT
  for (size_t i = 0; i < WK_COUNT(state->dtypes); i++) Py_VISIT(state->dtypes[i]);
  return 0;
}

static int module_clear(PyObject *module) {
  wk__state *state = wk__state_of_module(module);
#define CLEAR(field) Py_CLEAR(state->field);
  STATE_OBJECTS(CLEAR)
#undef CLEAR
  for (size_t i = 0; i < WK_COUNT(state->dtypes); i++) Py_CLEAR(state->dtypes[i]);
#define NAME(x) Py_CLEAR(state->name_##x);
  WK__PYTHON_NAMES(NAME)
#undef NAME
  return 0;
}

static void module_free(void *module) {
  wk__state *state = wk__state_of_module(module);
  if (!state) return;
  wk__free_nn_module(state);
  wk__free_dynamo_binding(state);
  wk__free_tensor_objects(state);
  PyMem_Free(state->return_types);
  module_clear(module);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

struct PyModuleDef wk__python_module = {
    PyModuleDef_HEAD_INIT, .m_name = "wick._C",           .m_doc = "The C core of wick.", .m_size = sizeof(wk__state),
    .m_slots = slots,      .m_traverse = module_traverse, .m_clear = module_clear,        .m_free = module_free,
};

PyMODINIT_FUNC PyInit__C(void);
PyMODINIT_FUNC PyInit__C(void) { return PyModuleDef_Init(&wk__python_module); }
