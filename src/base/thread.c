/* The one variable of thread.h, and what a new thread starts with. Tests: tests/c/test_base.c. */
#include "base/thread.h"

WK__THREAD_LOCAL wk__thread_state wk__thread = {
    .mode = {.grad_enabled = true,
             .autocast_caches = true,
             .autocast_dtype = WK_BFLOAT16,
             .autocast_cuda_dtype = WK_FLOAT16},
    .default_device = {WK_CPU, -1},
    .default_dtype = WK_FLOAT32,
    .print = {.precision = 4, .threshold = 1000, .edge_items = 3, .line_width = 80, .scientific = -1},
};
