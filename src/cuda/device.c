/* CUDA as a device: its table. Nothing of it is used before a tensor is wanted there.
 * Tests: tests/cuda/, tests/device/ (WICK_TEST_DEVICES=cuda). */
#include "cuda/internal.h"
#include "cuda/recording.h"
#include "random/generator.h"

static const wk__fusion_facts facts = {.compiles = true,
                                       .columns_apart = true,
                                       .together = true,
                                       .beside = WK__BESIDE_PRODUCTS | WK__BESIDE_WANTED,
                                       .beside_dtypes = 1u << WK_FLOAT16 | 1u << WK_BFLOAT16 | 1u << WK_FLOAT32};

const wk__device_type wk__cuda_device_type = {
    .name = "cuda",
    .has_index = true,
    .count = wk__cuda_count,
    .default_stream = wk__cuda_default_stream,
    .create_stream = wk__cuda_create_stream,
    .synchronize = wk__cuda_synchronize,
    .create_event = wk__cuda_create_event,
    .release_event = wk__cuda_release_event,
    .record = wk__cuda_record,
    .wait = wk__cuda_wait,
    .is_done = wk__cuda_is_done,
    .finish = wk__cuda_finish,
    .elapsed = wk__cuda_elapsed,
    .allocate = wk__cuda_allocate_at,
    .release = wk__cuda_release,
    .copy = wk__cuda_copy,
    .fill = wk__cuda_fill,
    .build = wk__cuda_build,
    .release_code = wk__cuda_release_code,
    .launch = wk__cuda_launch,
    .run_product = wk__cuda_run_product,
    .launch_tiles = wk__cuda_launch_tiles,
    .kernels = wk__cuda_kernels,
    .facts = &facts,
    .recordings = &wk__cuda_recordings,
    .generator = &wk__philox_generator_type,
    .fuses_attention = wk__cuda_fuses_attention,
    .scales_products = wk__cuda_scales_products,
    .finds_groups = true,
    .convolves_last = wk__cuda_convolves_last,
    .fuses_scores = wk__cuda_fuses_scores,
    .convolves_each_last = wk__cuda_convolves_each_last,
};
