/* Matrix products of small floats in PTX, on tensor cores with sums in f32: C = alpha A B (+ beta C) (+ row), batched.
 *
 * Tiles of A and B, 64 deep, come into a ring of stages in shared memory, of which some are on their way while one is
 * multiplied. On sm_90 the copy engine brings them (TMA): a block makes tile after tile; one
 * thread asks for what the next steps need, and two warpgroups multiply it by wgmma. A finished tile is
 * stored from shared memory while the next one is multiplied. Otherwise a block makes one tile, whose operands its
 * threads copy by cp.async, and multiplies by mma.sync (from sm_80 on). Either operand may lie along k or across it.
 * Where tiles are few, k is split among blocks, which leave f32 sums; a second kernel adds them in their order, so
 * results are the same bits every time.
 *
 * What comes behind a product, a nest over its rows and columns, may be done by its kernel: a tile is rounded to C's
 * type and goes through shared memory to where a thread has pieces of rows, and the nest's work is done on these;
 * on sm_90 between the steps of the next tile, while its products run.
 *
 * An operand may be the windows of images instead of a matrix (ptx_windows.h): its pieces are looked for where they
 * lie by the threads that copy them, and the rest is the same.
 * Tests: tests/cuda/test_products.py, tests/cuda/test_convolution.py. */
#ifndef WICK_CODEGEN_PTX_PRODUCT_H
#define WICK_CODEGEN_PTX_PRODUCT_H

#include "codegen/ptx.h"
#include "codegen/ptx_windows.h"

/* Which operand is windows: rows of A, or lines of B, along n. `spread`: of A, and rows of C are not evenly apart
 * either. */
typedef enum wk__ptx_windows_of {
  WK__WINDOWS_OF_NONE,
  WK__WINDOWS_OF_A,
  WK__WINDOWS_OF_A_SPREAD,
  WK__WINDOWS_OF_B
} wk__ptx_windows_of;

/* All of it is the key that a kernel is found by: no padding. */
typedef struct wk__ptx_product {
  uint8_t half;       /* f16, else bf16 */
  uint8_t a_across;   /* neighbours of A in memory are of one column: along m; else along k */
  uint8_t b_across;   /* neighbours of B are of one row: along n; else along k */
  uint8_t row;        /* 1: row is added; 2: and two of its elements may be read at once */
  uint8_t beta;       /* C is read */
  uint8_t split;      /* sums go to the workspace */
  uint8_t vectors;    /* rows of C are made of 16-byte pieces */
  uint8_t warpgroups; /* wgmma; of matrices, by the copy engine */
  uint8_t adds;       /* the second kernel */
  uint8_t behind;     /* a nest's work is done on C, */
  uint8_t keeps;      /* which is stored as well */
  uint8_t capability;
  uint8_t windows;  /* wk__ptx_windows_of */
  uint8_t dims;     /* of images; else 0 */
  uint16_t columns; /* of a tile: 128; of wgmma 64, 192 and 256, too */
} wk__ptx_product;
enum { WK__PRODUCT_ROWS = 128, WK__PRODUCT_DEPTH = 64 }; /* of a tile */
/* Whether the copy engine brings the operands. */
static inline bool wk__ptx_product_is_bulk(const wk__ptx_product *p) {
  return p->warpgroups && p->windows == WK__WINDOWS_OF_NONE;
}

/* Arguments, 8 bytes each: addresses, counts, and strides in bytes. An operand's stride is that of its slow dim, unused
 * of windows, whose address is the first image's. Theirs (wk__ptx_window_arg) come behind these. */
typedef enum wk__ptx_product_arg {
  WK__PRODUCT_A,
  WK__PRODUCT_A_STRIDE,
  WK__PRODUCT_A_BATCH,
  WK__PRODUCT_B,
  WK__PRODUCT_B_STRIDE,
  WK__PRODUCT_B_BATCH,
  WK__PRODUCT_C,
  WK__PRODUCT_C_STRIDE,
  WK__PRODUCT_C_BATCH,
  WK__PRODUCT_ROW,
  WK__PRODUCT_WORK, /* (splits, batch, m, n) f32 */
  WK__PRODUCT_M,
  WK__PRODUCT_N,
  WK__PRODUCT_K,
  WK__PRODUCT_ALPHA, /* f32 */
  WK__PRODUCT_BETA,
  WK__PRODUCT_TILES_M,
  WK__PRODUCT_TILES_N,
  WK__PRODUCT_STEPS, /* of k, of a split */
  WK__PRODUCT_BATCHES,
  WK__PRODUCT_SPLITS,
  WK__PRODUCT_ITEMS, /* for the copy engine: tiles, of all splits and batches, */
  /* and tensor maps of the driver, 16 words each at multiples of 64 bytes: (batch, slow dim, fast dim) in boxes of 64
   * along the fast one, and of a whole tile along k or 64 across it, or of 16 rows of C. */
  WK__PRODUCT_MAP_A = 24,
  WK__PRODUCT_MAP_B = 40,
  WK__PRODUCT_MAP_C = 56, /* of a kind with vectors, and with neither split nor nest */
  WK__PRODUCT_ARGS = 72
} wk__ptx_product_arg;

typedef struct wk__ptx_product_kernel {
  /* Owned; the entry is "wick". Blocks: (tiles, splits, batch); with the copy engine as many as multiprocessors; of the
   * second kernel (256 elements, 1, batch). */
  char *text;
  int threads, shared;
} wk__ptx_product_kernel;
/* behind: of a kind that is and has no windows, else NULL. WK_UNSUPPORTED: its nest cannot be. */
WK_MUST_USE wk_status wk__ptx_write_product(const wk__ptx_product *p, const wk__ptx_behind *behind,
                                            wk__ptx_product_kernel *out);

#endif
