/* Tensors that are made in a region of Python data, of sizes, or of another tensor.
 * In: a call of tensor(), as_tensor(), from_numpy(), Tensor() or new_tensor(). Out: what the graph has in its place.
 * Tests: tests/python/capture/test_known_calls.py, test_features.py. */
#include "autograd/autograd.h"
#include "dynamo/capture/known.h"
#include "dynamo/cpython/objects.h"

#define BINDING (f->session->binding)

/* tensor(a) of a float that differs from call to call: an operator's result. NULL: it is something else, or raises. */
static PyObject *tensor_of_number(wk__frame *f, PyObject *number) {
  wk_value args[WK__MAX_ARGS] = {{0}}, result = {0};
  int input = wk__number_input(f->session->recording, number);
  if (input < 0) return NULL;
  args[0] = (wk_value){.tag = WK_VALUE_INPUT, .count = (uint32_t)input, .number = PyFloat_AS_DOUBLE(number)};
  wk_status status = wk_call(WK__OP(scalar_tensor), args, NULL, &result);
  return status == WK_OK ? BINDING->wrap(BINDING->state, result.tensor) : BINDING->raise(BINDING->state);
}

/* A tensor made from Python data is the same in every call: a constant of the graph, given out as a copy. */
PyObject *wk__tensor_of_data(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *names,
                             Py_ssize_t at) {
  if (count > at && wk__holds_marked_int(f->session->recording, args[at]))
    return wk__refuse(f, "a tensor is made from a size that was marked");
  bool of_operator = count == 1 && !names && !at && PyFloat_CheckExact(args[0]);
  PyObject *of_number = of_operator ? tensor_of_number(f, args[0]) : NULL;
  if (of_number || PyErr_Occurred()) return of_number;
  if (!wk__arguments_usable(f, args, count, names)) return NULL;
  for (Py_ssize_t i = at; i < count; i++)
    if (wk__holds_tensor(f, args[i]))
      return wk__refuse_as(f, WK__REFUSED_VALUE, "a tensor is made from another one's values");
  wk__tracer *tracer = f->session->tracer;
  wk__tracer_pause(tracer);
  PyObject *made = wk__plain_call(f, callable, args, count, names), *copy = NULL;
  wk__tracer_resume(tracer);
  if (!made) return NULL;
  wk_tensor *t = BINDING->tensor_of(made);
  if (t->keys & WK__KEY_AUTOGRAD) {
    Py_DECREF(made);
    return wk__refuse(f, "a leaf that requires grad is made");
  }
  wk_value args_of_clone[2] = {{.tag = WK_VALUE_TENSOR, .tensor = t}}, result = {0};
  wk_status status = wk__tracer_constant(tracer, t);
  if (status == WK_OK) status = wk_call(WK__OP(clone), args_of_clone, NULL, &result);
  copy = status == WK_OK ? BINDING->wrap(BINDING->state, result.tensor) : BINDING->raise(BINDING->state);
  Py_DECREF(made);
  return copy;
}

/* The memory of an array that the region made, which only this call still looks at: it is a temporary value, or in
 * one variable that is not read again. So a tensor over that memory is as one of its values. Takes the references that
 * `known` says for known. */
static bool is_last_look(wk__frame *f, PyObject *array, Py_ssize_t known) {
  if (!wk__is_own_object(f->session->recording, array) || strcmp(Py_TYPE(array)->tp_name, "numpy.ndarray") != 0)
    return false;
  for (int slot = 0; slot < wk__frame_slot_count(f); slot++) {
    if (wk__frame_slot(f, slot) != array) continue;
    if (!wk__frame_slot_is_done(f, slot)) return false;
    known++;
  }
  if (Py_REFCNT(array) > known) return false;
  PyObject *base = PyObject_GetAttrString(array, "base");
  bool last = base == Py_None || (base && is_last_look(f, base, 2)); /* of the array, and of this function */
  Py_XDECREF(base);
  PyErr_Clear();
  return last;
}

/* as_tensor(t) of a tensor is itself or a conversion; of Python data it is tensor(). Of an array it would share the
 * memory, as from_numpy() does: no graph knows what else is written there. */
PyObject *wk__as_tensor_call(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                             PyObject *names) {
  if (count && wk__is_tensor_object(f, args[0]))
    return wk__arguments_usable(f, args, count, names) ? wk__plain_call(f, callable, args, count, names) : NULL;
  bool data = count && (wk__is_plain_value(BINDING, args[0]) || PyList_Check(args[0]) || PyTuple_Check(args[0]));
  if (data || (count && is_last_look(f, args[0], 1))) return wk__tensor_of_data(f, callable, args, count, names, 0);
  return wk__refuse_as(f, count ? wk__refusal_of(f, args[0]) : WK__REFUSED_BREAK, "a tensor over an array's memory");
}

/* Tensor(2, 3) is memory without values, as empty() gives it; Tensor([1, 2]) data in the default dtype. Tensor(tensor)
 * would be an alias that the graph does not follow. */
PyObject *wk__new_tensor_call(wk__frame *f, PyObject *callable, PyObject *const *args, Py_ssize_t count) {
  bool data = count == 1 && !PyLong_Check(args[0]) && Py_TYPE(args[0]) != BINDING->size_type;
  if (data && wk__is_tensor_object(f, args[0])) return wk__refuse(f, "a new Tensor over another one's memory");
  if (data) return wk__tensor_of_data(f, callable, args, count, NULL, 0);
  for (Py_ssize_t i = 0; i < count; i++)
    if (!wk__operand_usable(f, args[i])) return NULL;
  PyObject *empty = PyObject_GetAttrString(BINDING->module, "empty"), *zero = PyLong_FromLong(0);
  PyObject *made = empty && zero ? wk__plain_call(f, empty, count ? args : &zero, count ? count : 1, NULL) : NULL;
  Py_XDECREF(empty);
  Py_XDECREF(zero);
  return made;
}

/* ==================================================== deep copies ================================================= */

/* x.__deepcopy__(memo) of a leaf that has all of its memory to itself, without a gradient and attributes: a clone that
 * is a leaf. Tensors over one memory would have to stay so in their copies. */
PyObject *wk__tensor_deepcopy_call(wk__frame *f, PyObject *self) {
  wk_tensor *t = BINDING->tensor_of(self);
  PyObject **dict = wk__instance_dict_place(self), *grad = BINDING->grad_of(self);
  bool leaf = Py_TYPE(self) == BINDING->tensor_type && !t->base && !wk__grad_fn(t) && !grad;
  bool whole = leaf && t->storage && wk_int_is_known(t->offset) && !t->offset.bits && wk__non_overlapping_and_dense(t);
  if (whole && !t->storage->trace) whole = t->storage->bytes == wk__numel(t) * (int64_t)wk__itemsize(t);
  Py_XDECREF(grad);
  if (!whole || (dict && *dict && PyDict_GET_SIZE(*dict))) return wk__refuse(f, "a deep copy of such a tensor");
  if (atomic_load(&t->storage->references) > 1) return wk__refuse(f, "a deep copy of one of tensors over one memory");
  wk_value args[] = {{.tag = WK_VALUE_TENSOR, .tensor = t}, {0}}, result = {0};
  bool before = wk_set_grad_enabled(false);
  wk_status status = wk_call(WK__OP(clone), args, NULL, &result);
  wk_set_grad_enabled(before);
  if (status != WK_OK) return BINDING->raise(BINDING->state);
  PyObject *copy = BINDING->wrap(BINDING->state, result.tensor);
  bool needs = t->keys & WK__KEY_AUTOGRAD;
  if (copy && needs && !wk__set_requires_grad(f, copy, true)) {
    Py_DECREF(copy);
    return wk__refuse(f, "a deep copy of such a tensor");
  }
  return copy;
}
