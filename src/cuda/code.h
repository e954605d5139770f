/* A nest's code, for what launches the nest in another way than alone (behind.c). */
#ifndef WICK_CUDA_CODE_H
#define WICK_CUDA_CODE_H

#include "cuda/native.h"

const wk__nest *wk__cuda_nest_of(const wk__code *code);
wk__cuda_native *wk__cuda_native_of(const wk__code *code);
bool wk__cuda_calls_functions(const wk__code *code); /* wk__ptx_calls_functions of the nest */
/* Loops stay as the launch has them. */
WK_MUST_USE wk_status wk__cuda_bind(const wk__code *code, const wk__launch *launch, wk__binding *out);

#endif
