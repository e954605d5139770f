/* one_hot: numbers of classes (...) as rows of zeros with a one, (..., classes). A number that no class has is an error
 * of the kernel, so that capture need not look at values; only how many classes there are may have to be read. Tests:
 * tests/ops/, tests/python/test_errors.py, tests/parity/test_nn_parity.py. */
#include "ops/internal.h"
#include "ops/rules.h"
#include "wick/operators.h"

/* As many as the largest number needs. */
static wk_status count_classes(wk_tensor *numbers, wk_int *out_count) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *largest = wk_max(numbers);
  wk__scalar value = {0};
  wk_status status = largest ? wk__realize(largest, "one_hot without a number of classes") : wk_error_category();
  if (!status && !largest->storage)
    status = wk_fail(WK_RUNTIME_ERROR, "Tensor.item() cannot be called on meta tensors");
  if (!status) status = wk__read_element(largest, &value);
  wk_scope_end(&scope);
  WK_TRY(status);
  if (value.i < 0) return wk_fail(WK_RUNTIME_ERROR, "Class values must be non-negative.");
  *out_count = wk_int_of(value.i + 1);
  return WK_OK;
}

wk_status wk__compose_one_hot(wk__call *c) {
  wk_tensor *numbers = c->args[WK__ARG(one_hot, self)].tensor;
  wk_int classes = c->args[WK__ARG(one_hot, num_classes)].integer, zero = wk_int_of(0);
  if (numbers->dtype != WK_INT64)
    return wk_fail(WK_RUNTIME_ERROR, "one_hot is only applicable to index tensor of type LongTensor.");
  bool positive = wk_int_lt(zero, classes), inferred = wk_int_eq(classes, wk_int_of(-1));
  if (!positive && wk_int_eq(numbers->numel, zero))
    return wk_fail(WK_RUNTIME_ERROR, "Can not infer total number of classes from empty tensor.");
  if (!positive && !inferred) return wk_fail(WK_RUNTIME_ERROR, "Class values must be smaller than num_classes.");
  if (inferred) WK_TRY(count_classes(numbers, &classes));
  wk_tensor *rows = wk__one_hot(numbers, classes);
  c->results[0] = wk__v_tensor(rows);
  return rows ? WK_OK : wk_error_category();
}

wk_status wk__meta_one_hot(wk__call *c) {
  const wk_tensor *numbers = c->args[WK__ARG(_one_hot, self)].tensor;
  wk_int sizes[WK_MAX_DIMS];
  WK_TRY(wk__check_ndim(numbers->ndim + 1));
  memcpy(sizes, numbers->sizes, numbers->ndim * sizeof *sizes);
  sizes[numbers->ndim] = c->args[WK__ARG(_one_hot, num_classes)].integer;
  wk__spec_contiguous(&c->specs[0], WK_INT64, numbers->device, numbers->ndim + 1, sizes);
  c->compute_dtype = WK_INT64;
  return WK_OK;
}

void wk__lower_one_hot(wk__lower *l) {
  wk_int sizes[WK_MAX_DIMS], index[WK_MAX_DIMS];
  int last = wk__result_rank(l, 0) - 1;
  for (int d = 0; d <= last; d++) {
    sizes[d] = wk__size_of_result(l, 0, d);
    index[d] = wk__loop_i(d);
  }
  wk__loop_over(l, last + 1, 0, sizes);
  wk__access at = wk__access_arg(l, WK__ARG(_one_hot, self), index), to = wk__access_result(l, 0, index);
  wk__var class = wk__k_check_place(l->h, wk__k_load(l->h, &at), sizes[last]);
  wk__var hit = wk__k_eq(l->h, wk__k_index(l->h, index[last]), class);
  wk__k_store(l->h, &to, wk__k_cast(l->h, hit, WK_INT64));
}
