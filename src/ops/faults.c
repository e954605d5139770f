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
                                                    [WK_UINT16] = "short unsigned int",
                                                    [WK_UINT32] = "unsigned int",
                                                    [WK_UINT64] = "long unsigned int",
                                                    [WK_BOOL] = "bool",
                                                    [WK_COMPLEX64] = "c10::complex<float>",
                                                    [WK_COMPLEX128] = "c10::complex<double>"};
  return names[dtype] ? names[dtype] : wk_dtype_name(dtype);
}

/* The number in "index 7 is out of bounds ...". */
static long long bad_number(void) {
  long long number = 0;
  (void)sscanf(wk_error_message(), "index %lld", &number);
  return number;
}

static wk_status bad_class(void) {
  if (bad_number() < 0) return wk_fail(WK_RUNTIME_ERROR, "Class values must be non-negative.");
  return wk_fail(WK_RUNTIME_ERROR, "Class values must be smaller than num_classes.");
}

wk_status wk__explain_bad_index(const wk_op *op) {
  if (op->bad_index == WK__BAD_INDEX_TARGET)
    return wk_fail(WK_INDEX_ERROR, "Target %lld is out of bounds.", bad_number());
  if (op->bad_index == WK__BAD_INDEX_CLASS) return bad_class();
  if (op->bad_index == WK__BAD_INDEX_ROW) return wk_fail(WK_INDEX_ERROR, "index out of range in self");
  if (op->bad_index == WK__BAD_INDEX_PLAIN) return WK_INDEX_ERROR;
  char message[256];
  snprintf(message, sizeof message, "%s", wk_error_message());
  bool no_dims = !strstr(message, " for dimension"); /* a 0-dim tensor counts as one element */
  return wk_fail(WK_RUNTIME_ERROR, "%s%s", message, no_dims ? " for dimension 0 with size 1" : "");
}
