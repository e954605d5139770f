/* Matrix products by plain fused multiply-adds: any strides, any sizes, f16, bf16, f32, f64 and i64. The order is the
 * CPU's (cpu/gemm/gemm.h): blocks of k, each a chain from 0, block after block. So are the bits.
 *
 * A block of 256 threads makes 64 x 64 of C, 4 x 4 a thread, from strips of 16 of k in shared memory.
 * In: a wk__cuda_product. Tests: tests/cuda/test_products.py. */
#include "cuda/on_device/values.h"
#include "cuda/products.h"

enum { TILE = 64, STRIP = 16, EACH = 4, SIDE = TILE / EACH, THREADS = SIDE * SIDE, K_BLOCK = 384, PITCH = TILE + 1 };

#define FMA_f32(a, b, c) __nvvm_fma_rn_f(a, b, c)
#define FMA_f64(a, b, c) __nvvm_fma_rn_d(a, b, c)
#define FMA_i64(a, b, c) (int64_t)((uint64_t)(a) * (uint64_t)(b) + (uint64_t)(c))
#define READ_f16(p) from_f16(*(const uint16_t *)(p))
#define READ_bf16(p) from_bf16(*(const uint16_t *)(p))
#define READ_f32(p) (*(const float *)(p))
#define READ_f64(p) (*(const double *)(p))
#define READ_i64(p) (*(const int64_t *)(p))
#define WRITE_f16(p, v) (*(uint16_t *)(p) = to_f16(v))
#define WRITE_bf16(p, v) (*(uint16_t *)(p) = to_bf16(v))
#define WRITE_f32(p, v) (*(float *)(p) = (v))
#define WRITE_f64(p, v) (*(double *)(p) = (v))
#define WRITE_i64(p, v) (*(int64_t *)(p) = (v))

#define GEMM(name, size, lane, wide)                                                                                  \
  static SHARED wide left_##name[STRIP * PITCH], right_##name[STRIP * PITCH];                                         \
  /* A strip of an operand: `along` is m or n, which the block's tile begins at. */                                   \
  INLINE void load_##name(SHARED wide *to, const char *from, int64_t along, int64_t count, int64_t along_stride,      \
                          int64_t k, int64_t k_end, int64_t k_stride) {                                               \
    bool k_first = k_stride == 1;                                                                                     \
    for (int i = thread_index(); i < TILE * STRIP; i += THREADS) {                                                    \
      int x = k_first ? i / STRIP : i % TILE, z = k_first ? i % STRIP : i / TILE;                                     \
      bool inside = along + x < count && k + z < k_end;                                                               \
      to[z * PITCH + x] = inside ? READ_##name(from + ((along + x) * along_stride + (k + z) * k_stride) * size) : 0;  \
    }                                                                                                                 \
  }                                                                                                                   \
  INLINE void block_##name(wide sum[EACH][EACH], const wk__cuda_product *p, const char *a, const char *b, int64_t m0, \
                           int64_t n0, int64_t begin, int64_t end) {                                                  \
    int row = thread_index() / SIDE, column = thread_index() % SIDE;                                                  \
    for (int64_t k = begin; k < end; k += STRIP) {                                                                    \
      wait_for_block();                                                                                               \
      load_##name(left_##name, a, m0, p->m, p->a_row, k, end, p->a_column);                                           \
      load_##name(right_##name, b, n0, p->n, p->b_column, k, end, p->b_row);                                          \
      wait_for_block();                                                                                               \
      int depth = end - k < STRIP ? (int)(end - k) : STRIP;                                                           \
      for (int z = 0; z < depth; z++) {                                                                               \
        wide x[EACH], y[EACH];                                                                                        \
        _Pragma("unroll") for (int i = 0; i < EACH; i++) x[i] = left_##name[z * PITCH + row + i * SIDE];              \
        _Pragma("unroll") for (int j = 0; j < EACH; j++) y[j] = right_##name[z * PITCH + column + j * SIDE];          \
        _Pragma("unroll") for (int i = 0; i < EACH; i++) _Pragma("unroll") for (int j = 0; j < EACH; j++) sum[i][j] = \
            FMA_##lane(x[i], y[j], sum[i][j]);                                                                        \
      }                                                                                                               \
    }                                                                                                                 \
  }                                                                                                                   \
  KERNEL(gemm_##name)(wk__cuda_product given) {                                                                       \
    const wk__cuda_product *p = &given;                                                                               \
    int64_t m_tiles = (p->m + TILE - 1) / TILE, n_tiles = (p->n + TILE - 1) / TILE, tile = block_index();             \
    int64_t batch = tile / (m_tiles * n_tiles), m0 = tile / n_tiles % m_tiles * TILE, n0 = tile % n_tiles * TILE;     \
    const char *a = (const char *)p->a + batch * p->a_batch * size,                                                   \
               *b = (const char *)p->b + batch * p->b_batch * size;                                                   \
    char *c = (char *)p->c + batch * p->c_batch * size;                                                               \
    const char *line = (const char *)p->row;                                                                          \
    int row = thread_index() / SIDE, column = thread_index() % SIDE;                                                  \
    wide alpha = (wide)p->alpha, beta = (wide)p->beta, out[EACH][EACH];                                               \
    _Pragma("unroll") for (int i = 0; i < EACH; i++) _Pragma("unroll") for (int j = 0; j < EACH; j++) {               \
      int64_t y = m0 + row + i * SIDE, x = n0 + column + j * SIDE;                                                    \
      bool reads = beta != 0 && y < p->m && x < p->n;                                                                 \
      out[i][j] = reads ? beta * READ_##name(c + (y * p->c_row + x) * size) : 0;                                      \
    }                                                                                                                 \
    for (int64_t begin = 0; begin < p->k; begin += K_BLOCK) {                                                         \
      wide sum[EACH][EACH] = {{0}};                                                                                   \
      block_##name(sum, p, a, b, m0, n0, begin, begin + K_BLOCK < p->k ? begin + K_BLOCK : p->k);                     \
      bool fresh = begin == 0 && beta == 0;                                                                           \
      _Pragma("unroll") for (int i = 0; i < EACH; i++) _Pragma("unroll") for (int j = 0; j < EACH; j++) out[i][j] =   \
          fresh ? alpha * sum[i][j] : FMA_##lane(alpha, sum[i][j], out[i][j]);                                        \
    }                                                                                                                 \
    _Pragma("unroll") for (int i = 0; i < EACH; i++) _Pragma("unroll") for (int j = 0; j < EACH; j++) {               \
      int64_t y = m0 + row + i * SIDE, x = n0 + column + j * SIDE;                                                    \
      if (y >= p->m || x >= p->n) continue;                                                                           \
      wide value = line ? out[i][j] + READ_##name(line + x * size) : out[i][j];                                       \
      WRITE_##name(c + (y * p->c_row + x) * size, value);                                                             \
    }                                                                                                                 \
  }
GEMM(f16, 2, f32, float)
GEMM(bf16, 2, f32, float)
GEMM(f32, 4, f32, float)
GEMM(f64, 8, f64, double)
GEMM(i64, 8, i64, int64_t)
