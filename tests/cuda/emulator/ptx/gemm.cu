// A matrix product over tensor cores with cp.async and ldmatrix, as a regression input: gemm.ptx is what a compiler for
// sm_90 makes of this file. C (M, N) = A (M, K) B (K, N), f16 in, f32 out; a block computes (32, 32) with two warps, K in
// steps of 16, two stages. tests/test_kernels.c compares it with plain C.
#include <cuda_fp16.h>

enum { TILE = 32, STEP = 16 };

__device__ unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ void copy16(void *to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from));
}

extern "C" __global__ void __launch_bounds__(64) gemm(const __half *a, const __half *b, float *c, int m, int n, int k) {
  __shared__ __align__(16) __half a_tile[2][TILE][STEP + 8], b_tile[2][STEP][TILE + 8];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row0 = blockIdx.y * TILE, column0 = blockIdx.x * TILE;
  float sums[4][4] = {};
  auto load = [&](int stage, int at) {
    int r = threadIdx.x / 2, h = threadIdx.x % 2 * 8;
    copy16(&a_tile[stage][r][h], a + (size_t)(row0 + r) * k + at + h);
    r = threadIdx.x / 4, h = threadIdx.x % 4 * 8;
    copy16(&b_tile[stage][r][h], b + (size_t)(at + r) * n + column0 + h);
    asm volatile("cp.async.commit_group;");
  };
  load(0, 0);
  for (int at = 0; at < k; at += STEP) {
    int stage = at / STEP & 1;
    if (at + STEP < k) {
      load(stage ^ 1, at + STEP);
      asm volatile("cp.async.wait_group 1;");
    } else {
      asm volatile("cp.async.wait_all;");
    }
    __syncthreads();
    unsigned x[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(&a_tile[stage][warp * 16 + lane % 16][lane / 16 * 8])));
    for (int j = 0; j < 4; j++) {
      unsigned y[2];
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                   : "=r"(y[0]), "=r"(y[1])
                   : "r"(shared_address(&b_tile[stage][lane % 16][j * 8])));
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                   : "+f"(sums[j][0]), "+f"(sums[j][1]), "+f"(sums[j][2]), "+f"(sums[j][3])
                   : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    }
    __syncthreads();
  }
  for (int j = 0; j < 4; j++)
    for (int e = 0; e < 4; e++) {
      int r = row0 + warp * 16 + lane / 4 + 8 * (e / 2), column = column0 + j * 8 + lane % 4 * 2 + e % 2;
      c[(size_t)r * n + column] = sums[j][e];
    }
}
