/* out= of operators: memory that it shares with what is read, and PyTorch's warnings of outputs that are resized. What
 * dtypes they take is said in ops/out_forms.c. Tests: tests/python/test_out_forms.py. */
#include "autograd/autograd.h"
#include "python/python.h"

/* ---- memory that out= shares with what is read: PyTorch refuses it where its kernels would go wrong ---- */

/* The core's own check has the loops over elements (wk__check_apart); these would go through a temporary there. */
static wk_status check_apart(const wk_op *op, const wk_value *args, const wk_tensor *out) {
  bool other_dtype = args[0].tag == WK_VALUE_TENSOR && args[0].tensor->dtype != out->dtype; /* refused before */
  if (!(op->tags & WK__TAG_OUT_APART) || other_dtype) return WK_OK;
  WK__EACH_TENSOR(tensor, args, op->schema.parameter_count) {
    wk__meeting m = wk__meet(tensor, out);
    if (m == WK__MEET_ALL || m == WK__MEET_PARTLY) return wk__refuse_shared_memory();
  }
  return WK_OK;
}

/* The core takes an out= that is the first argument for the in-place form, which may be recorded. */
static wk_status check_history(const wk_op *op, const wk_value *args, const wk_tensor *out) {
  bool recorded = wk__thread.mode.grad_enabled && (op->vjp || op->compose) && args[0].tag == WK_VALUE_TENSOR;
  if (!recorded || args[0].tensor != out || !wk_requires_grad(out)) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR,
                 "%s(): functions with out=... arguments don't support automatic differentiation, but one of the "
                 "arguments requires grad.",
                 op->base_name);
}

static wk_status check_outputs(const wk_op *op, const wk_value *args, wk_tensor *const *destinations) {
  if (wk__thread.mode.keys_on & WK__KEY_TRACE) return WK_OK; /* memory is not there yet, and writes are values */
  for (int r = 0; r < op->schema.result_count; r++) {
    WK_TRY(check_history(op, args, destinations[r]));
    WK_TRY(check_apart(op, args, destinations[r]));
  }
  return WK_OK;
}

typedef struct sizes_before {
  wk_int sizes[WK_MAX_DIMS];
  int ndim;
  bool empty;
} sizes_before;

static void note_sizes(wk_tensor *const *destinations, int count, sizes_before *before) {
  for (int r = 0; r < count; r++) {
    const wk_tensor *t = destinations[r];
    before[r].ndim = t->ndim;
    before[r].empty = wk_int_eq(t->numel, wk_int_of(0));
    memcpy(before[r].sizes, t->sizes, t->ndim * sizeof *t->sizes);
  }
}

static bool was_resized(const wk_tensor *t, const sizes_before *before) {
  if (before->empty) return false;
  if (t->ndim != before->ndim) return true;
  for (int d = 0; d < t->ndim; d++)
    if (!wk_int_same(t->sizes[d], before->sizes[d])) return true;
  return false;
}

/* PyTorch's warning; 0, or -1 where it is an error. */
static int warn_of_resize(const wk_op *op, const wk_tensor *t, const sizes_before *before) {
  wk__string old = {0}, now = {0};
  wk__print_sizes(&old, before->sizes, before->ndim);
  wk__print_sizes(&now, t->sizes, t->ndim);
  const char *from = old.text ? old.text : "?", *to = now.text ? now.text : "?";
  long long count = wk_int_guard_value(t->numel), given = 1;
  for (int d = 0; d < before->ndim; d++) given *= wk_int_guard_value(before->sizes[d]);
  bool range = op->tags & WK__TAG_COUNTS_OUT;
  int status = 0;
  if (range && count != given)
    status = PyErr_WarnFormat(PyExc_UserWarning, 1,
                              "The number of elements in the out tensor of shape %s is %lld which does not match the "
                              "computed number of elements %lld. Note that this may occur as a result of rounding "
                              "error. The out tensor will be resized to a tensor of shape (%lld,).",
                              from, given, count, count);
  else if (!range)
    status = PyErr_WarnFormat(
        PyExc_UserWarning, 1,
        "An output with one or more elements was resized since it had shape %s, which does not match the required "
        "output shape %s. This behavior is deprecated, and in a future PyTorch release outputs will not be resized "
        "unless they have zero elements. You can explicitly reuse an out tensor t by resizing it, inplace, to zero "
        "elements with t.resize_(0).",
        from, to);
  wk__string_release(&old);
  wk__string_release(&now);
  return status;
}

PyObject *wk__call_with_out(wk__state *state, const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                            bool warns) {  // -> new
  sizes_before before[WK__MAX_RESULTS];
  if (check_outputs(op, args, destinations) != WK_OK) return wk__raise(state);
  note_sizes(destinations, op->schema.result_count, before);
  PyObject *result = wk__call_to_python(state, op, args, destinations);
  warns &= !(op->tags & WK__TAG_RANDOM);
  for (int r = 0; result && warns && r < op->schema.result_count; r++)
    if (was_resized(destinations[r], &before[r]) && warn_of_resize(op, destinations[r], &before[r]) < 0)
      Py_CLEAR(result);
  return result;
}
