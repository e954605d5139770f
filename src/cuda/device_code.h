/* The device's code as text (on_device/). */
#ifndef WICK_CUDA_DEVICE_CODE_H
#define WICK_CUDA_DEVICE_CODE_H

extern const char wk__cuda_tier0_ptx[], wk__cuda_gemm_ptx[], wk__cuda_random_ptx[], wk__cuda_order_ptx[],
    wk__cuda_cells_ptx[], wk__cuda_rejection_ptx[], wk__cuda_sequences_ptx[];

#endif
