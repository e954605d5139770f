/* What a kernel found wrong with an index, in the words of the operator that was called.
 * In: the thread's error, set by tier 0. Out: the error that PyTorch raises. Tests: tests/python/test_errors.py. */
#include "ops/internal.h"

#include <stdio.h>

const char *wk__dtype_c_name(wk_dtype dtype) {
  static const char *const names[WK_DTYPE_COUNT] = {[WK_FLOAT64] = "double",
                                                    [WK_FLOAT32] = "float",
                                                    [WK_FLOAT16] = "c10::Half",
                                                    [WK_BFLOAT16] = "c10::BFloat16",
                                                    [WK_INT64] = "long int",
                                                    [WK_INT32] = "int",
                                                    [WK_INT16] = "short int",
                                                    [WK_INT8] = "signed char",
                                                    [WK_UINT8] = "unsigned char",
                                                    [WK_BOOL] = "bool",
                                                    [WK_COMPLEX64] = "c10::complex<float>",
                                                    [WK_COMPLEX128] = "c10::complex<double>"};
  return names[dtype] ? names[dtype] : wk_dtype_name(dtype);
}

/* These say which rows of a table they want, and no more. */
static bool looks_up_rows(const wk_op *op) { return op == WK__OP(embedding) || op == WK__OP(index_select); }

/* Those that name a dim raise RuntimeError; the indices of x[...] stay IndexErrors. */
static bool names_a_dim(const wk_op *op) {
  static const char *const names[] = {"gather", "scatter", "scatter_add", "scatter_reduce", "index_add"};
  for (size_t i = 0; i < WK_COUNT(names); i++)
    if (strcmp(op->base_name, names[i]) == 0) return true;
  return false;
}

/* "index 7 is out of bounds ..." as a loss says it. */
static wk_status bad_target(void) {
  long long class = 0;
  (void)sscanf(wk_error_message(), "index %lld", &class);
  return wk_fail(WK_INDEX_ERROR, "Target %lld is out of bounds.", class);
}

wk_status wk__explain_bad_index(const wk_op *op) {
  if (op == WK__OP(nll_rows) || op == WK__OP(nll_loss_backward)) return bad_target();
  if (looks_up_rows(op)) return wk_fail(WK_INDEX_ERROR, "index out of range in self");
  if (!names_a_dim(op)) return WK_INDEX_ERROR;
  char message[256];
  snprintf(message, sizeof message, "%s", wk_error_message());
  bool no_dims = !strstr(message, " for dimension"); /* a 0-dim tensor counts as one element */
  return wk_fail(WK_RUNTIME_ERROR, "%s%s", message, no_dims ? " for dimension 0 with size 1" : "");
}
