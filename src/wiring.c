/* What lower parts call of upper ones. All of it is here: elsewhere each part calls only the parts above it in the
 * table of docs/design.md, which tools/check_calls.py checks in the objects.
 *
 * The tables are constants that the dynamic linker completes when it loads the library: there is nothing to set up and
 * nothing that can be missing. */
#include "autograd/autograd.h"
#include "autograd/body.h"
#include "decompose/decompose.h"
#include "device/device.h"
#include "levels/levels.h"
#include "ops/ops.h"
#include "trace/trace.h"

/* Layers of an operator call, outermost last (ops/ops.h). */
wk__layer_fn *const wk__layers[WK__KEY_COUNT] = {
    wk__watch_layer,     /* WK__KEY_WATCH */
    wk__trace_layer,     /* WK__KEY_TRACE */
    wk__body_layer,      /* WK__KEY_BODY */
    wk__decompose_layer, /* WK__KEY_DECOMPOSE */
    wk__levels_layer,    /* WK__KEY_LEVEL */
    wk__autograd_layer,  /* WK__KEY_AUTOGRAD */
    wk__autocast_layer,  /* WK__KEY_AUTOCAST */
    wk__sparse_layer,    /* WK__KEY_SPARSE */
    wk__inference_layer, /* WK__KEY_INFERENCE */
};

/* What a tensor's `trace` and `autograd` belong to (tensor/tensor.h). */
const wk__tensor_upcalls wk__upcalls = {
    .tensor_dropped = wk__trace_tensor_dropped,
    .storage_dropped = wk__trace_storage_dropped,
    .realize = wk__levels_realize,
    .constant = wk__levels_constant,
    .symbolic_hold = wk__trace_symbolic_hold,
    .symbolic_drop = wk__trace_symbolic_drop,
    .autograd_release = wk__autograd_release,
};

/* The types of devices that there are (device/device.h). */
const wk__device_type *const wk__device_types[WK_DEVICE_TYPE_COUNT] = {
    [WK_CPU] = &wk__cpu_device_type,
    [WK_CUDA] = &wk__cuda_device_type,
#ifdef WICK_DEBUG
    [WK_HOST2] = &wk__host2_device_type,
#endif
};
