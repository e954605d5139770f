/* What the files of the CPU's device table share. */
#ifndef WICK_CPU_CPU_H
#define WICK_CPU_CPU_H

#include "device/device.h"

/* fused.c: an operator with a kernel beside it. A stream is that of another device which computes as the CPU does. */
WK_MUST_USE wk_status wk__cpu_run_product(wk__stream *none, const wk_op *op, const wk_value *args, wk_tensor *out,
                                          const wk__fused_launch *fused);
WK_MUST_USE wk_status wk__cpu_run_draw(wk__stream *stream, const wk_op *op, double p, wk_tensor *out_or_null, int64_t n,
                                       const wk__fused_launch *fused);

/* kernels/flex_attention.c: the codes of its bodies. */
int wk__cpu_kept_codes(const wk_op *op, const wk_value *args, wk__kept_code **out, int most);

#endif
