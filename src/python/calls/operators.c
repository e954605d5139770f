/* Operators as Python callables: wick.add and Tensor.add are one object a name, with all overloads of the table behind
 * it. Arguments are matched against the schemas in order (match.c); the first that fits is called. In-place names
 * (`add_`) and out= are the same call with a destination. Errors name the argument as PyTorch does (mismatch.c). Tests:
 * tests/python/test_errors.py, tests/python/test_odd_arguments.py. */

#include "python/calls/operators.h"
#include "autograd/autograd.h"
#include "dynamo/cpython/objects.h"
#include "dynamo/dynamo.h"
#include "python/calls/override.h"

#include <structmember.h>

/* ==================================================== calling =================================================== */

/* Of arguments that wk__match_out has seen. */
static bool destinations_of(const wk__python_operator *o, const wk_op *op, const wk__match *m,
                            wk_tensor **destinations) {
  if (o->in_place) {
    destinations[0] = m->values[0].tensor;
    return true;
  }
  if (!m->out) return false;
  bool tuple = op->schema.result_count > 1;
  for (int r = 0; r < op->schema.result_count; r++)
    destinations[r] = wk__tensor_of(tuple ? PySequence_Fast_GET_ITEM(m->out, r) : m->out);
  return true;
}

static PyObject *set_requires_grad(wk__state *state, PyObject *result, PyObject *flag) {  // -> new, takes result
  if (!result || !flag || !wk__is_tensor(state, result)) return result;
  bool differentiable = wk_dtype_is_floating((wk_dtype)wk__tensor_of(result)->dtype) ||
                        wk_dtype_is_complex((wk_dtype)wk__tensor_of(result)->dtype);
  if (flag == Py_True && !differentiable) {
    Py_DECREF(result);
    return PyErr_Format(PyExc_RuntimeError, "Only Tensors of floating point and complex dtype can require gradients");
  }
  int truth = PyObject_IsTrue(flag);
  if (truth < 0 || (truth && wk_set_requires_grad(wk__tensor_of(result), true) != WK_OK)) {
    Py_DECREF(result);
    return truth < 0 ? NULL : wk__raise(state);
  }
  return result;
}

/* Whether nothing but a launch looks at an operator's numbers. */
static bool takes_numbers_at_launch(const wk_op *op) {
  if (op->tags & WK__TAG_MUTATES) return op->routine || op->has_kernel;
  return op->tags & WK__TAG_LAUNCH_NUMBERS || (op->lower && op->tags & WK__TAG_POINTWISE);
}

static bool can_be_input(const wk_op *op, const wk_value *number) {
  bool fixed = op->tags & WK__TAG_FIXED_NUMBERS;
  return !fixed || wk__dynamo_number_avoids(number, wk__fixed_numbers, WK__FIXED_NUMBER_COUNT);
}

/* Numbers that are inputs of a graph being captured can only go where nothing but a launch looks at them. */
void wk__settle_numbers(const wk_op *op, wk_value *values) {
  bool launch_only = takes_numbers_at_launch(op);
  for (int i = 0; i < op->schema.parameter_count; i++)
    if (values[i].tag == WK_VALUE_TENSOR && wk__thread.mode.grad_enabled && values[i].tensor->keys & WK__KEY_AUTOGRAD)
      launch_only &= !op->vjp || op->tags & WK__TAG_PASSES_NUMBERS; /* else the derivative would compute with it */
  for (int i = 0; i < op->schema.parameter_count; i++) {
    if (values[i].tag != WK_VALUE_INPUT || (launch_only && can_be_input(op, &values[i]))) continue;
    wk__dynamo_specialize(&values[i]);
  }
}

/* New tensors go to the thread's default device, unless the call names one or has a tensor to be like. */
static void fill_device(const wk_op *op, wk_value *values) {
  const wk__schema *schema = &op->schema;
  for (int i = 0; i < schema->parameter_count; i++) {
    if (values[i].tag == WK_VALUE_TENSOR) return;
    if (schema->parameters[i].type == WK__TYPE_DEVICE && values[i].tag == WK_VALUE_NONE)
      values[i] = (wk_value){.tag = WK_VALUE_DEVICE, .device = wk__thread.default_device};
  }
}

static PyObject *call_matched(wk__python_operator *o, const wk_op *op, wk__match *m) {  // -> new
  if (WK_UNLIKELY(wk__thread.mode.keys_on & WK__KEY_TRACE)) wk__settle_numbers(op, m->values);
  if (WK_UNLIKELY(wk__thread.default_device.type != WK_CPU) && wk__creates(op) && !m->out) fill_device(op, m->values);
  wk_tensor *destinations[WK__MAX_RESULTS] = {NULL};
  bool has = destinations_of(o, op, m, destinations);
  if (WK_UNLIKELY(m->out != NULL)) {
    bool warns = !wk__creates(op) || op->tags & WK__TAG_COUNTS_OUT;
    return set_requires_grad(o->state, wk__call_with_out(o->state, op, m->values, destinations, warns),
                             m->requires_grad);
  }
  PyObject *result = wk__call_to_python(o->state, op, m->values, has ? destinations : NULL);
  if (WK_UNLIKELY(m->pin_memory == Py_True) && result) Py_SETREF(result, wk__pinned(result));
  return set_requires_grad(o->state, result, m->requires_grad);
}

/* mul(2, x), remainder(5, x): the number becomes a tensor of the dtype that the result has. New; NULL where no number
 * stands for the first tensor, or with an exception. */
static PyObject *first_number_as_tensor(const wk__python_operator *o, PyObject *const *args, Py_ssize_t n) {  // -> new
  const wk_op *op = o->overloads[0];
  wk__state *state = o->state;
  if (!(op->tags & WK__TAG_NUMBER_FIRST) || o->is_method || o->in_place || n < 2 || !wk__is_real(args[0])) return NULL;
  bool beside = wk__is_tensor(state, args[1]);
  if (!beside && !(op->tags & WK__TAG_TAKES_NUMBERS && wk__is_real(args[1]))) return NULL;
  wk_value number;
  if (wk__scalar_from_python(state, args[0], &number) < 0) return NULL;
  return wk__wrap(state, wk__number_as_tensor(state, &number, beside ? wk__tensor_of(args[1]) : NULL));
}

static PyObject *operator_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *keywords);  // -> new

/* copy_(2): the number as a tensor. New; NULL where it is something else, or with an exception. */
static PyObject *copied_number(const wk__python_operator *o, PyObject *const *args, Py_ssize_t n) {  // -> new
  wk_value number;
  if (!(o->overloads[0]->tags & WK__TAG_NUMBER_COPIED) || n < 2 || !wk__is_real(args[1])) return NULL;
  if (wk__scalar_from_python(o->state, args[1], &number) < 0) return NULL;
  return wk__wrap(o->state, wk__number_as_tensor(o->state, &number, NULL));
}

/* The call with a number among its first arguments as a tensor. False: that is not what it lacks. */
static bool call_with_tensor(wk__python_operator *o, PyObject *const *args, Py_ssize_t n, PyObject *keywords,
                             PyObject **out_result) {
  PyObject *replaced[WK__MAX_ARGS];
  Py_ssize_t all = n + (keywords ? PyTuple_GET_SIZE(keywords) : 0);
  if (all > WK__MAX_ARGS) return false;
  PyObject *first = first_number_as_tensor(o, args, n), *second = first ? NULL : copied_number(o, args, n);
  if (!first && !second) return false;
  memcpy(replaced, args, (size_t)all * sizeof *args);
  replaced[first ? 0 : 1] = first ? first : second;
  *out_result = operator_call((PyObject *)o, replaced, (size_t)n, keywords);
  Py_XDECREF(first);
  Py_XDECREF(second);
  return true;
}

/* A list's items are no tensors: they may still say what the call means. Else the exception stays. */
static bool means_something_else(wk__python_operator *o, PyObject *self, PyObject *const *args, Py_ssize_t n,
                                 PyObject *keywords, PyObject **result) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (!wk__overridden(o->state, self, args, n, keywords, result)) {
    PyErr_Restore(type, value, traceback);
    return false;
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return true;
}

static PyObject *operator_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *keywords) {  // -> new
  wk__python_operator *o = (wk__python_operator *)self;
  Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  wk__match m;
  m.blocks = NULL;
  m.used = 0;
  PyObject *result = NULL;
  if (WK_UNLIKELY(o->state->overrides) && wk__overridden(o->state, self, args, n, keywords, &result)) return result;
  int fits = 0;
  for (int k = 0; k < o->overload_count && fits == 0; k++) {
    fits = wk__match_overload(o, &m, o->overloads[k], args, n, keywords);
    if (fits == 1) result = call_matched(o, o->overloads[k], &m);
  }
  if (fits == 0 && call_with_tensor(o, args, n, keywords, &result)) fits = 1;
  if (fits == 0 && PyErr_Occurred()) fits = -1;
  if (fits < 0 && PyErr_ExceptionMatches(PyExc_TypeError) && means_something_else(o, self, args, n, keywords, &result))
    fits = 1;
  /* An object that is no tensor may still say what the call means. */
  if (fits == 0 && wk__overridden(o->state, self, args, n, keywords, &result)) fits = 1;
  if (fits == 0) wk__raise_mismatch(o, &m, args, n, keywords);
  wk__match_release(&m);
  return result;
}

/* ==================================================== the type ================================================== */

static PyObject *operator_repr(PyObject *self) {  // -> new
  const wk__python_operator *o = (wk__python_operator *)self;
  return PyUnicode_FromFormat(
      o->is_method ? "<method '%s' of 'torch._C.TensorBase' objects>" : "<built-in method %s of type object>", o->name);
}
static PyObject *operator_get(PyObject *self, PyObject *instance, PyObject *type) {  // -> new
  (void)type;
  if (!instance || instance == Py_None || !((wk__python_operator *)self)->is_method) return Py_NewRef(self);
  return PyMethod_New(self, instance);
}
static void operator_dealloc(PyObject *self) {
  PyMem_Free(((wk__python_operator *)self)->overloads);
  PyTypeObject *type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}
static PyObject *operator_name(PyObject *self, void *unused) {  // -> new
  (void)unused;
  return PyUnicode_FromString(((wk__python_operator *)self)->name);
}
static PyObject *operator_doc(PyObject *self, void *unused) {  // -> new
  (void)unused;
  wk__string s = {0};
  const wk__python_operator *o = (wk__python_operator *)self;
  for (int k = 0; k < o->overload_count; k++) wk__string_printf(&s, "%s\n", o->overloads[k]->schema_text);
  PyObject *text = PyUnicode_FromString(s.text ? s.text : "");
  wk__string_release(&s);
  return text;
}
static PyObject *operator_reduce(PyObject *self, PyObject *unused) {  // -> new
  (void)unused;
  return PyUnicode_FromString(((wk__python_operator *)self)->name); /* a name in the module: pickled as a global */
}

static PyMemberDef operator_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(wk__python_operator, vectorcall), READONLY, NULL}, {0}};
static PyGetSetDef operator_getset[] = {{"__name__", operator_name, NULL, NULL, NULL},
                                        {"__qualname__", operator_name, NULL, NULL, NULL},
                                        {"__doc__", operator_doc, NULL, NULL, NULL},
                                        {0}};
static PyMethodDef operator_methods[] = {{"__reduce__", operator_reduce, METH_NOARGS, NULL}, {0}};
static PyType_Slot operator_slots[] = {{Py_tp_dealloc, operator_dealloc}, {Py_tp_repr, operator_repr},
                                       {Py_tp_descr_get, operator_get},   {Py_tp_call, PyVectorcall_Call},
                                       {Py_tp_members, operator_members}, {Py_tp_getset, operator_getset},
                                       {Py_tp_methods, operator_methods}, {0, NULL}};
static PyType_Spec operator_spec = {
    .name = "wick._C.Operator",
    .basicsize = sizeof(wk__python_operator),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = operator_slots,
};

/* =================================================== the names ================================================== */

static wk__python_operator *new_operator(wk__state *state, const char *name, bool in_place, bool is_method) {  // -> new
  wk__python_operator *o = PyObject_New(wk__python_operator, state->operator_type);
  if (!o) return NULL;
  o->vectorcall = operator_call;
  o->state = state;
  snprintf(o->name, sizeof o->name, "%s", name);
  o->overloads = NULL;
  o->overload_count = 0;
  o->in_place = in_place;
  o->is_method = is_method;
  o->hidden = false;
  return o;
}

static int append_overload(wk__python_operator *o, const wk_op *op) {
  const wk_op **grown = PyMem_Realloc(o->overloads, (o->overload_count + 1u) * sizeof *grown);
  if (!grown) {
    PyErr_NoMemory();
    return -1;
  }
  o->overloads = grown;
  o->overloads[o->overload_count++] = op;
  return 0;
}

PyObject *wk__operator_object(wk__state *state, const wk_op *op, bool in_place) {  // -> new
  char name[64];
  snprintf(name, sizeof name, "%s%s", op->base_name, in_place ? "_" : "");
  wk__python_operator *o = new_operator(state, name, in_place, false);
  if (o && append_overload(o, op) < 0) Py_CLEAR(o);
  return (PyObject *)o;
}

const wk_op *wk__operator_first(PyObject *operator, bool * out_in_place, bool *out_is_method) {
  const wk__python_operator *o = (wk__python_operator *)operator;
  *out_in_place = o->in_place;
  *out_is_method = o->is_method;
  return o->overloads[0];
}

/* Adds an overload to the object of that name in `dict`, making it when it is not there. */
static int add_overload(wk__state *state, PyObject *dict, const char *name, const wk_op *op, bool in_place,
                        bool is_method) {
  PyObject *known = PyDict_GetItemString(dict, name);
  wk__python_operator *o = known && Py_IS_TYPE(known, state->operator_type) ? (wk__python_operator *)known : NULL;
  if (known && !o) return 0; /* a method written by hand stands before the table */
  bool fresh = !o;
  if (fresh && !(o = new_operator(state, name, in_place, is_method))) return -1;
  int status = append_overload(o, op);
  if (status == 0 && fresh) status = PyDict_SetItemString(dict, name, (PyObject *)o);
  if (fresh) Py_DECREF(o);
  return status;
}

static void hide(PyObject *functions, const char *name) {
  ((wk__python_operator *)PyDict_GetItemString(functions, name))->hidden = true;
}

bool wk__is_hidden_operator(const wk__state *state, PyObject *o) {
  return Py_IS_TYPE(o, state->operator_type) && ((wk__python_operator *)o)->hidden;
}

static int add_in_place(wk__state *state, PyObject *functions, PyObject *methods, const wk_op *op) {
  char name[64];
  snprintf(name, sizeof name, "%s_", op->base_name);
  if (add_overload(state, functions, name, op, true, false) < 0) return -1;
  if (!(op->forms & WK__FORM_INPLACE_FUNCTION)) hide(functions, name);
  return op->forms & WK__FORM_INPLACE ? add_overload(state, methods, name, op, true, true) : 0;
}

static int add_op(wk__state *state, PyObject *functions, PyObject *methods, const wk_op *op) {
  const char *name = op->base_name;
  if (op->forms & (WK__FORM_FUNCTION | WK__FORM_HIDDEN | WK__FORM_INTERNAL)) {
    if (add_overload(state, functions, name, op, false, false) < 0) return -1;
    if (!(op->forms & WK__FORM_FUNCTION)) hide(functions, name);
  }
  if (op->forms & WK__FORM_METHOD && add_overload(state, methods, name, op, false, true) < 0) return -1;
  return op->forms & WK__FORM_ANY_INPLACE ? add_in_place(state, functions, methods, op) : 0;
}

/* ---- the table itself ---- */

/* One overload by its qualified name, also an internal one. */
static PyObject *operator_named(PyObject *module, PyObject *name) {  // -> new
  const char *text = PyUnicode_AsUTF8(name);
  const wk_op *op = text ? wk_op_find(text) : NULL;
  if (!op) return text ? PyErr_Format(PyExc_KeyError, "no operator %s", text) : NULL;
  return wk__operator_object(wk__state_of_module(module), op, false);
}

static PyMethodDef module_functions[] = {{"_operator", operator_named, METH_O, "One overload by its qualified name."},
                                         {0}};

int wk__add_operators(PyObject *module, wk__state *state) {
  if (PyModule_AddFunctions(module, module_functions) < 0) return -1;
  state->operator_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &operator_spec, NULL);
  if (!state->operator_type) return -1;
  PyObject *functions = PyModule_GetDict(module), *methods = wk__type_dict(state->tensor_type);
  for (int i = 0; i < wk_op_count(); i++)
    if (add_op(state, functions, methods, wk_op_at(i)) < 0) return -1;
  PyType_Modified(state->tensor_type);
  return 0;
}
