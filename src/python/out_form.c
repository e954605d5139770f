/* out= of operators: PyTorch's warnings of outputs that are resized. What dtypes they take is said in ops/out_forms.c. Tests: tests/python/test_out_forms.py. */
#include "python/python.h"

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
  note_sizes(destinations, op->schema.result_count, before);
  PyObject *result = wk__call_to_python(state, op, args, destinations);
  warns &= !(op->tags & WK__TAG_RANDOM);
  for (int r = 0; result && warns && r < op->schema.result_count; r++)
    if (was_resized(destinations[r], &before[r]) && warn_of_resize(op, destinations[r], &before[r]) < 0)
      Py_CLEAR(result);
  return result;
}
