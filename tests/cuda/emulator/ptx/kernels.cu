// Small kernels of every family, as regression inputs: kernels.ptx is what a compiler for sm_90 makes of this file.
// tests/test_kernels.c runs each and compares it with plain C.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" {

__global__ void saxpy(int n, float a, const float *x, float *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

__device__ float warp_sum(float v) {
  for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
  return v;
}

__global__ void block_sum(const float *x, float *out, int n) {
  __shared__ float parts[32];
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = warp_sum(threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : 0);
    if (threadIdx.x == 0) atomicAdd(out, sum);
  }
}

__global__ void softmax_rows(const float *x, float *y, int columns) {
  extern __shared__ float row[];
  __shared__ float parts[32];
  x += (size_t)blockIdx.x * columns, y += (size_t)blockIdx.x * columns;
  float most = -INFINITY, sum = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) most = fmaxf(most, row[i] = x[i]);
  for (int d = 16; d; d >>= 1) most = fmaxf(most, __shfl_down_sync(~0u, most, d));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = most;
  __syncthreads();
  most = parts[0];
  for (unsigned i = 1; i < blockDim.x / 32; i++) most = fmaxf(most, parts[i]);
  __syncthreads();
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += row[i] = expf(row[i] - most);
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (unsigned i = 0; i < blockDim.x / 32; i++) sum += parts[i];
  for (int i = threadIdx.x; i < columns; i += blockDim.x) y[i] = row[i] / sum;
}

__global__ void scan(const int *x, int *y, int n) {
  __shared__ int warps[32];
  int i = threadIdx.x, lane = i % 32, v = i < n ? x[i] : 0;
  for (int d = 1; d < 32; d *= 2) {
    int other = __shfl_up_sync(~0u, v, d);
    if (lane >= d) v += other;
  }
  if (lane == 31) warps[i / 32] = v;
  __syncthreads();
  for (int w = 0; w < i / 32; w++) v += warps[w];
  if (i < n) y[i] = v;
}

__global__ void histogram(const unsigned char *x, unsigned *counts, int n) {
  __shared__ unsigned local[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[x[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    if (local[i]) atomicAdd(&counts[i], local[i]);
}

__global__ void halves(const float *x, __half *h, __nv_bfloat16 *b, float *back, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  h[i] = __hmul(__float2half(x[i]), __float2half(3.0f));
  b[i] = __hadd(__float2bfloat16(x[i]), __float2bfloat16(0.5f));
  back[i] = __half2float(h[i]) + __bfloat162float(b[i]);
}

__global__ void switches(const int *x, int *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int v = x[i], r = -1;
  switch (v) {
    case 0: r = y[i] + 7; break;
    case 1: r = y[i] * 3; break;
    case 2: r = y[i] - v; break;
    case 3: r = y[i] ^ 77; break;
    case 4: r = y[i] / 5; break;
    case 5: r = y[i] % 6; break;
    case 6: r = ~y[i]; break;
    case 7: r = y[i] << 3; break;
    case 8: r = y[i] >> 2; break;
  }
  y[i] = r;
}

__global__ void divide(const long long *a, const long long *b, long long *quotient, unsigned long long *rest, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  quotient[i] = a[i] / b[i];
  rest[i] = (unsigned long long)a[i] % (unsigned long long)b[i];
}

__global__ void transpose(const float *x, float *y, int rows, int columns) {
  __shared__ float tile[32][33];
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += blockDim.y)
    if (c < columns && r + j < rows) tile[threadIdx.y + j][threadIdx.x] = x[(r + j) * columns + c];
  __syncthreads();
  int c2 = blockIdx.y * 32 + threadIdx.x, r2 = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += blockDim.y)
    if (c2 < rows && r2 + j < columns) y[(r2 + j) * rows + c2] = tile[threadIdx.x][threadIdx.y + j];
}

__constant__ float weights[4] = {0.5f, -1.0f, 2.0f, 0.25f};
__device__ int visits = 5;

__device__ __noinline__ float polynomial(float x, int degree) {
  if (degree == 0) return weights[0];
  return polynomial(x, degree - 1) * x + weights[degree];
}

__global__ void calls(const float *x, float *y, int n) {
  int i = threadIdx.x;
  if (i >= n) return;
  float kept[8];
  for (int j = 0; j < 8; j++) kept[j] = x[(i + j) % n];
  y[i] = polynomial(kept[i % 8], 3) + sinf(x[i] * 1000.0f);
  atomicAdd(&visits, 1);
}

}
