/* Matrix products by plain fused multiply-adds: any strides, any sizes, f16, bf16, f32, f64 and i64. The order is the
 * CPU's (cpu/gemm/gemm.h): blocks of k, each a chain from 0, block after block. So are the bits.
 *
 * A block of 256 threads makes 64 x 64 of C, 4 x 4 a thread, from strips of 16 of k in shared memory.
 * In: a wk__cuda_product. Tests: tests/cuda/test_products.py, tests/cuda/test_grouped_products.py. */
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

/* What a block makes: from m0 and n0 up to m and n, of k from `begin` to `end`. */
typedef struct part {
  int64_t m0, n0, m, n, begin, end, batch;
} part;

INLINE int64_t tiles_of(int64_t extent) { return (extent + TILE - 1) / TILE; }
INLINE int64_t group_end(const wk__cuda_product *p, int64_t group, int64_t low, int64_t extent) {
  int64_t end = group < p->batch ? ((const int32_t *)p->ends)[group] : extent;
  return end < low ? low : end > extent ? extent : end;
}

/* Tiles count group by group; behind the last end is one more group, of no k. Tiles that are not there have no rows. */
INLINE part part_of_strips(const wk__cuda_product *p, int64_t tile) {
  bool rows = p->groups == WK__GROUPS_OF_ROWS;
  int64_t extent = rows ? p->m : p->n, others = tiles_of(rows ? p->n : p->m), low = 0;
  for (int64_t g = 0; g <= p->batch; g++) {
    int64_t end = group_end(p, g, low, extent), tiles = tiles_of(end - low) * others;
    if (tile < tiles) {
      int64_t strip = low + tile / others * TILE, other = tile % others * TILE, k = g < p->batch ? p->k : 0;
      return rows ? (part){strip, other, end, p->n, 0, k, g} : (part){other, strip, p->m, end, 0, k, g};
    }
    tile -= tiles, low = end;
  }
  return (part){0};
}

INLINE part part_of(const wk__cuda_product *p, int64_t tile) {
  if (p->groups == WK__GROUPS_OF_ROWS || p->groups == WK__GROUPS_OF_COLUMNS) return part_of_strips(p, tile);
  int64_t m_tiles = tiles_of(p->m), n_tiles = tiles_of(p->n), batch = tile / (m_tiles * n_tiles);
  part out = {tile / n_tiles % m_tiles * TILE, tile % n_tiles * TILE, p->m, p->n, 0, p->k, batch};
  if (p->groups == WK__GROUPS_NONE) return out;
  out.begin = batch ? group_end(p, batch - 1, 0, p->k) : 0, out.end = group_end(p, batch, out.begin, p->k);
  return out;
}

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
  INLINE void block_##name(wide sum[EACH][EACH], const wk__cuda_product *p, const char *a, const char *b,             \
                           const part *o, int64_t begin, int64_t end) {                                               \
    int row = thread_index() / SIDE, column = thread_index() % SIDE;                                                  \
    for (int64_t k = begin; k < end; k += STRIP) {                                                                    \
      wait_for_block();                                                                                               \
      load_##name(left_##name, a, o->m0, o->m, p->a_row, k, end, p->a_column);                                        \
      load_##name(right_##name, b, o->n0, o->n, p->b_column, k, end, p->b_row);                                       \
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
    part o = part_of(p, block_index());                                                                               \
    if (o.m0 >= o.m) return;                                                                                          \
    const char *a = (const char *)p->a + o.batch * p->a_batch * size,                                                 \
               *b = (const char *)p->b + o.batch * p->b_batch * size;                                                 \
    char *c = (char *)p->c + o.batch * p->c_batch * size;                                                             \
    const char *line = (const char *)p->row;                                                                          \
    int row = thread_index() / SIDE, column = thread_index() % SIDE;                                                  \
    wide alpha = (wide)p->alpha, beta = (wide)p->beta, out[EACH][EACH];                                               \
    _Pragma("unroll") for (int i = 0; i < EACH; i++) _Pragma("unroll") for (int j = 0; j < EACH; j++) {               \
      int64_t y = o.m0 + row + i * SIDE, x = o.n0 + column + j * SIDE;                                                \
      bool reads = beta != 0 && y < o.m && x < o.n;                                                                   \
      out[i][j] = reads ? beta * READ_##name(c + (y * p->c_row + x) * size) : 0;                                      \
    }                                                                                                                 \
    for (int64_t begin = o.begin; begin < o.end; begin += K_BLOCK) {                                                  \
      wide sum[EACH][EACH] = {{0}};                                                                                   \
      block_##name(sum, p, a, b, &o, begin, begin + K_BLOCK < o.end ? begin + K_BLOCK : o.end);                       \
      bool fresh = begin == o.begin && beta == 0;                                                                     \
      _Pragma("unroll") for (int i = 0; i < EACH; i++) _Pragma("unroll") for (int j = 0; j < EACH; j++) out[i][j] =   \
          fresh ? alpha * sum[i][j] : FMA_##lane(alpha, sum[i][j], out[i][j]);                                        \
    }                                                                                                                 \
    _Pragma("unroll") for (int i = 0; i < EACH; i++) _Pragma("unroll") for (int j = 0; j < EACH; j++) {               \
      int64_t y = o.m0 + row + i * SIDE, x = o.n0 + column + j * SIDE;                                                \
      if (y >= o.m || x >= o.n) continue;                                                                             \
      wide value = line ? out[i][j] + READ_##name(line + x * size) : out[i][j];                                       \
      WRITE_##name(c + (y * p->c_row + x) * size, value);                                                             \
    }                                                                                                                 \
  }
GEMM(f16, 2, f32, float)
GEMM(bf16, 2, f32, float)
GEMM(f32, 4, f32, float)
GEMM(f64, 8, f64, double)
GEMM(i64, 8, i64, int64_t)
