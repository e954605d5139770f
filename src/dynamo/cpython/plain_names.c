/* What instructions do to names and cells, and imports, when nothing is recorded. Tests:
 * tests/python/capture/test_evaluator.py. */
#include "dynamo/cpython/objects.h"
#include "dynamo/cpython/plain.h"

/* ---- errors ---- */

/* NameErrors know their name, for suggestions. */
static void note_name(PyObject *name) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (PyErr_GivenExceptionMatches(value, PyExc_NameError) && !((PyNameErrorObject *)value)->name) {
    (void)PyObject_SetAttrString(value, "name", name);
  }
  PyErr_Restore(type, value, traceback);
}

static void raise_about_name(PyObject *type, const char *format, PyObject *name) {
  const char *text = PyUnicode_AsUTF8(name);
  if (!text) return;
  PyErr_Format(type, format, text);
  if (type == PyExc_NameError) note_name(name);
}

static void raise_name_error(PyObject *name) {
  raise_about_name(PyExc_NameError, "name '%.200s' is not defined", name);
}

void wk__plain_unbound(wk__frame *f, int slot) {
  PyObject *name = PyTuple_GET_ITEM(f->code->co_localsplusnames, slot);
  if (slot < f->code->co_nlocalsplus - f->code->co_nfreevars) {
    raise_about_name(PyExc_UnboundLocalError,
                     "cannot access local variable '%s' where it is not associated with a value", name);
  } else {
    raise_about_name(PyExc_NameError,
                     "cannot access free variable '%s' where it is not associated with a value in enclosing scope",
                     name);
  }
}

/* ---- locals, constants, globals ---- */

int wk__plain_local(wk__frame *f, int slot) {
  (void)f, (void)slot;
  return 0;
}

PyObject *wk__plain_constant(wk__frame *f, PyObject *constant) {
  (void)f;
  return Py_NewRef(constant);
}

/* From a namespace that is usually a dictionary. NULL without an exception: it is not there. -> new */
static PyObject *look_up(PyObject *namespace, PyObject *name) {
  if (PyDict_CheckExact(namespace)) return Py_XNewRef(PyDict_GetItemWithError(namespace, name));
  PyObject *value = PyObject_GetItem(namespace, name);
  if (!value && PyErr_ExceptionMatches(PyExc_KeyError)) PyErr_Clear();
  return value;
}

static int store(PyObject *namespace, PyObject *name, PyObject *value) {
  return PyDict_CheckExact(namespace) ? PyDict_SetItem(namespace, name, value)
                                      : PyObject_SetItem(namespace, name, value);
}

PyObject *wk__plain_global(wk__frame *f, PyObject *name) {
  PyObject *value = look_up(wk__frame_globals(f), name);
  if (!value && !PyErr_Occurred()) value = look_up(wk__frame_builtins(f), name);
  if (!value && !PyErr_Occurred()) raise_name_error(name);
  return value;
}

int wk__plain_set_global(wk__frame *f, PyObject *name, PyObject *value) {
  if (value) return PyDict_SetItem(wk__frame_globals(f), name, value);
  if (PyDict_DelItem(wk__frame_globals(f), name) == 0) return 0;
  if (PyErr_ExceptionMatches(PyExc_KeyError)) raise_name_error(name);
  return -1;
}

PyObject *wk__plain_name(wk__frame *f, PyObject *name) {
  PyObject *locals = wk__frame_locals(f);
  if (!locals) return PyErr_Format(PyExc_SystemError, "no locals when loading %R", name);
  PyObject *value = look_up(locals, name);
  return value || PyErr_Occurred() ? value : wk__plain_global(f, name);
}

int wk__plain_set_name(wk__frame *f, PyObject *name, PyObject *value) {
  PyObject *locals = wk__frame_locals(f);
  if (!locals) {
    PyErr_Format(PyExc_SystemError, value ? "no locals found when storing %R" : "no locals when deleting %R", name);
    return -1;
  }
  if (value) return store(locals, name, value);
  if (PyObject_DelItem(locals, name) == 0) return 0;
  raise_name_error(name);
  return -1;
}

/* ---- cells ---- */

PyObject *wk__plain_make_cell(wk__frame *f, int slot) { return PyCell_New(wk__frame_slot(f, slot)); }

PyObject *wk__plain_cell(wk__frame *f, PyObject *cell, int slot) {
  PyObject *value = PyCell_GET(cell);
  if (!value) wk__plain_unbound(f, slot);
  return Py_XNewRef(value);
}

int wk__plain_set_cell(wk__frame *f, PyObject *cell, PyObject *value) {
  (void)f;
  PyObject *old = PyCell_GET(cell);
  PyCell_SET(cell, Py_XNewRef(value));
  Py_XDECREF(old);
  return 0;
}

PyObject *wk__plain_class_cell(wk__frame *f, PyObject *cell, int slot) {
  PyObject *value = look_up(wk__frame_locals(f), PyTuple_GET_ITEM(f->code->co_localsplusnames, slot));
  return value || PyErr_Occurred() ? value : wk__plain_cell(f, cell, slot);
}

/* ---- class bodies, the interactive prompt ---- */

/* A builtin that instructions use; NULL without an exception when it is not there. -> new */
static PyObject *builtin(wk__frame *f, const char *name) {
  PyObject *key = PyUnicode_InternFromString(name);
  PyObject *value = key ? look_up(wk__frame_builtins(f), key) : NULL;
  Py_XDECREF(key);
  return value;
}

PyObject *wk__plain_build_class(wk__frame *f) {
  PyObject *function = builtin(f, "__build_class__");
  if (!function && !PyErr_Occurred()) PyErr_SetString(PyExc_NameError, "__build_class__ not found");
  return function;
}

int wk__plain_setup_annotations(wk__frame *f) {
  PyObject *locals = wk__frame_locals(f);
  if (!locals) {
    PyErr_SetString(PyExc_SystemError, "no locals found when setting up annotations");
    return -1;
  }
  PyObject *name = PyUnicode_InternFromString("__annotations__");
  PyObject *annotations = name ? look_up(locals, name) : NULL;
  int status = 0;
  if (!annotations) {
    if (!PyErr_Occurred()) annotations = PyDict_New();
    status = annotations ? store(locals, name, annotations) : -1;
  }
  Py_XDECREF(annotations);
  Py_XDECREF(name);
  return status;
}

int wk__plain_print(wk__frame *f, PyObject *value) {
  (void)f;
  PyObject *hook = PySys_GetObject("displayhook");
  if (!hook) {
    PyErr_SetString(PyExc_RuntimeError, "lost sys.displayhook");
    return -1;
  }
  Py_INCREF(hook);
  PyObject *result = PyObject_CallOneArg(hook, value);
  Py_DECREF(hook);
  Py_XDECREF(result);
  return result ? 0 : -1;
}

/* ---- imports ---- */

PyObject *wk__plain_import(wk__frame *f, PyObject *name, PyObject *from_list, PyObject *level) {
  PyObject *function = builtin(f, "__import__");
  if (!function) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ImportError, "__import__ not found");
    return NULL;
  }
  PyObject *locals = wk__frame_locals(f);
  PyObject *args[] = {name, wk__frame_globals(f), locals ? locals : Py_None, from_list, level};
  PyObject *module = PyObject_Vectorcall(function, args, 5, NULL);
  Py_DECREF(function);
  return module;
}

static bool is_initializing(PyObject *module) {
  PyObject *spec = PyObject_GetAttrString(module, "__spec__");
  PyObject *value = spec ? PyObject_GetAttrString(spec, "_initializing") : NULL;
  int result = value ? PyObject_IsTrue(value) : 0;
  Py_XDECREF(value);
  Py_XDECREF(spec);
  PyErr_Clear();
  return result > 0;
}

/* `package` is the module's name, NULL when it has none. */
static void raise_cannot_import(PyObject *module, PyObject *name, PyObject *package) {
  PyObject *path = PyModule_GetFilenameObject(module), *message;
  PyObject *shown = package ? Py_NewRef(package) : PyUnicode_FromString("<unknown module name>");
  if (path && PyUnicode_Check(path)) {
    message =
        PyUnicode_FromFormat(is_initializing(module) ? "cannot import name %R from partially initialized module %R "
                                                       "(most likely due to a circular import) (%S)"
                                                     : "cannot import name %R from %R (%S)",
                             name, shown, path);
    PyErr_SetImportError(message, shown, path);
  } else {
    PyErr_Clear();
    message = shown ? PyUnicode_FromFormat("cannot import name %R from %R (unknown location)", name, shown) : NULL;
    PyErr_SetImportError(message, package, NULL);
  }
  Py_XDECREF(message);
  Py_XDECREF(shown);
  Py_XDECREF(path);
}

/* In a circular import the submodule is not yet an attribute of its package, but among the loaded modules. */
static PyObject *loaded_submodule(PyObject *package, PyObject *name) {  // -> new; NULL without an exception: none
  PyObject *full_name = PyUnicode_FromFormat("%U.%U", package, name);
  PyObject *module = full_name ? PyImport_GetModule(full_name) : NULL;
  Py_XDECREF(full_name);
  return module;
}

PyObject *wk__plain_import_from(wk__frame *f, PyObject *module, PyObject *name) {
  (void)f;
  PyObject *value;
  if (wk__get_optional_attribute(module, name, &value) != 0) return value;
  PyObject *package = PyObject_GetAttrString(module, "__name__");
  if (package && !PyUnicode_Check(package)) Py_CLEAR(package);
  if (package) value = loaded_submodule(package, name);
  if (!package || (!value && !PyErr_Occurred())) raise_cannot_import(module, name, package);
  Py_XDECREF(package);
  return value;
}

/* What `import *` takes: __all__, or the keys of __dict__ without the private ones. -> new */
static PyObject *public_names(PyObject *module, bool *out_skip_private) {
  PyObject *names, *dict;
  PyObject *key = PyUnicode_InternFromString("__all__");
  int found = key ? wk__get_optional_attribute(module, key, &names) : -1;
  Py_XDECREF(key);
  *out_skip_private = found == 0;
  if (found != 0) return found < 0 ? NULL : names;
  key = PyUnicode_InternFromString("__dict__");
  found = key ? wk__get_optional_attribute(module, key, &dict) : -1;
  Py_XDECREF(key);
  if (found < 0) return NULL;
  if (found == 0) {
    PyErr_SetString(PyExc_ImportError, "from-import-* object has no __dict__ and no __all__");
    return NULL;
  }
  names = PyMapping_Keys(dict);
  Py_DECREF(dict);
  return names;
}

static void raise_not_a_name(PyObject *module, PyObject *item, bool from_dict) {
  PyObject *name = PyObject_GetAttrString(module, "__name__");
  if (!name) return;
  if (PyUnicode_Check(name)) {
    PyErr_Format(PyExc_TypeError, "%s in %U.%s must be str, not %.100s", from_dict ? "Key" : "Item", name,
                 from_dict ? "__dict__" : "__all__", Py_TYPE(item)->tp_name);
  } else {
    PyErr_Format(PyExc_TypeError, "module __name__ must be a string, not %.100s", Py_TYPE(name)->tp_name);
  }
  Py_DECREF(name);
}

static int import_one(PyObject *locals, PyObject *module, PyObject *name, bool skip_private) {
  if (!PyUnicode_Check(name)) {
    raise_not_a_name(module, name, skip_private);
    return -1;
  }
  if (skip_private && PyUnicode_GET_LENGTH(name) > 0 && PyUnicode_READ_CHAR(name, 0) == '_') return 0;
  PyObject *value = PyObject_GetAttr(module, name);
  int status = value ? store(locals, name, value) : -1;
  Py_XDECREF(value);
  return status;
}

int wk__plain_import_star(wk__frame *f, PyObject *module) {
  PyObject *locals = wk__frame_locals(f);
  if (!locals) {
    PyErr_SetString(PyExc_SystemError, "no locals found during 'import *'");
    return -1;
  }
  bool skip_private;
  PyObject *names = public_names(module, &skip_private), *name;
  int status = names ? 0 : -1;
  for (Py_ssize_t i = 0; status == 0; i++) {
    if (!(name = PySequence_GetItem(names, i))) {
      if (!PyErr_ExceptionMatches(PyExc_IndexError))
        status = -1;
      else
        PyErr_Clear();
      break;
    }
    status = import_one(locals, module, name, skip_private);
    Py_DECREF(name);
  }
  Py_XDECREF(names);
  return status;
}
