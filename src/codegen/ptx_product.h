/* Matrix products in PTX, on tensor cores: C = alpha A B (+ beta C) (+ row), batched, with sums in f32 of f16, bf16,
 * f32 as TF32, and float8, and in int32, without any of these, of bytes.
 *
 * A tile's lines are 128 bytes of k, whatever the elements are: 64 of 2 bytes, 32 floats, 128 bytes. All instructions
 * take 32 bytes of k at a time, and what a thread has of an operand is the same bytes; so types differ in names, and
 * in how many elements a line has. Floats are rounded to TF32 (nearest, ties away from zero) in registers by mma.sync;
 * for wgmma, which reads shared memory, by the copy engine, whose maps say TF32.
 *
 * Tiles of A and B come into a ring of stages in shared memory, of which some are on their way while one is
 * multiplied. On sm_90 the copy engine brings them (TMA): a block makes tile after tile; one
 * thread asks for what the next steps need, and two warpgroups multiply it by wgmma. A finished tile is
 * stored from shared memory while the next one is multiplied. Otherwise a block makes one tile, whose operands its
 * threads copy by cp.async, and multiplies by mma.sync (from sm_80 on, float8 from sm_89 on). Either operand may lie
 * along k or across it; bytes, and floats for wgmma, along it alone. Where tiles are few, k is split among blocks,
 * which leave f32 sums; a second kernel adds them in their order, so results are the same bits every time.
 *
 * float8 has scales, of matrices or of A's rows and B's columns: a sum is multiplied by the product of both. Tensor
 * cores add products of float8 with fewer bits than f32 has; unless `fast` allows that, what they add is 32 of k
 * (mma.sync) or a line (wgmma), and the rest is added in f32.
 *
 * What comes behind a product, a nest over its rows and columns, may be done by its kernel: a tile is rounded to C's
 * type and goes through shared memory to where a thread has pieces of rows, and the nest's work is done on these;
 * on sm_90 between the steps of the next tile, while its products run.
 *
 * An operand may be the windows of images instead of a matrix (ptx_windows.h): its pieces are looked for where they
 * lie by the threads that copy them, and the rest is the same.
 *
 * Rows, columns or k may be cut into groups (ptx_product_groups.c), whose ends are read in the device's memory: a tile
 * is of one group. What lies behind the last end, and a group of an empty k, is zeros. Whatever the ends are, nothing
 * outside of the matrices is read or written.
 * Tests: tests/cuda/test_products.py, tests/cuda/test_byte_products.py, tests/cuda/test_convolution.py,
 * tests/cuda/test_grouped_products.py. */
#ifndef WICK_CODEGEN_PTX_PRODUCT_H
#define WICK_CODEGEN_PTX_PRODUCT_H

#include "codegen/product_groups.h"
#include "codegen/ptx.h"
#include "codegen/ptx_windows.h"

/* Of operands all but the last; of C all but bytes that are integers. */
typedef enum wk__ptx_element {
  WK__ELEMENT_BF16,
  WK__ELEMENT_F16,
  WK__ELEMENT_F32, /* as an operand: TF32 */
  WK__ELEMENT_E4M3,
  WK__ELEMENT_E5M2,
  WK__ELEMENT_S8,
  WK__ELEMENT_U8,
  WK__ELEMENT_S32
} wk__ptx_element;
static inline int wk__ptx_element_bytes(wk__ptx_element e) {
  if (e == WK__ELEMENT_F32 || e == WK__ELEMENT_S32) return 4;
  return e == WK__ELEMENT_BF16 || e == WK__ELEMENT_F16 ? 2 : 1;
}
static inline bool wk__ptx_is_float8(wk__ptx_element e) { return e == WK__ELEMENT_E4M3 || e == WK__ELEMENT_E5M2; }

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
  uint8_t a, b, c;    /* wk__ptx_element; a and b of as many bytes */
  uint8_t row_type;   /* wk__ptx_element: C's, or, of float8, f16 or bf16 */
  uint8_t a_across;   /* neighbours of A in memory are of one column: along m; else along k */
  uint8_t b_across;   /* neighbours of B are of one row: along n; else along k */
  uint8_t row;        /* 1: row is added; 2: and two of its elements may be read at once */
  uint8_t beta;       /* C is read; not of float8 */
  uint8_t scales;     /* 1: of A and of B; 2: of A's rows and B's columns */
  uint8_t fast;       /* of float8: all of k is added by tensor cores */
  uint8_t split;      /* sums go to the workspace */
  uint8_t vectors;    /* rows of C are made of 16-byte pieces */
  uint8_t warpgroups; /* wgmma; of matrices, by the copy engine */
  uint8_t adds;       /* the second kernel */
  uint8_t behind;     /* a nest's work is done on C, */
  uint8_t keeps;      /* which is stored as well */
  uint8_t capability;
  uint8_t windows;  /* wk__ptx_windows_of */
  uint8_t dims;     /* of images; else 0 */
  uint8_t groups;   /* wk__product_groups; all three of one type, with neither row, beta, scales nor splits */
  uint16_t columns; /* of a tile: 128; of wgmma 64, 192 and 256, too */
} wk__ptx_product;
enum { WK__PRODUCT_ROWS = 128, WK__PRODUCT_LINE = 128 }; /* of a tile; bytes of k */
/* Elements of a tile along k. */
static inline int wk__ptx_product_depth(const wk__ptx_product *p) {
  return WK__PRODUCT_LINE / wk__ptx_element_bytes((wk__ptx_element)p->a);
}
/* Whether tensor cores add a part of k alone. */
static inline bool wk__ptx_adds_parts(const wk__ptx_product *p) {
  return wk__ptx_is_float8((wk__ptx_element)p->a) && !p->fast;
}
/* Blocks of tiles that a multiprocessor has at a time. */
static inline int wk__ptx_product_blocks(const wk__ptx_product *p) {
  return p->warpgroups || wk__ptx_adds_parts(p) ? 1 : 2;
}
/* Whether tiles may have so many columns: as sums are held in registers, twice where they are added outside of tensor
 * cores, and results in shared memory, in whole lines for the copy engine. */
static inline bool wk__ptx_product_may_be(const wk__ptx_product *p, int columns) {
  int bytes = wk__ptx_element_bytes((wk__ptx_element)p->c);
  int widest = !p->warpgroups || wk__ptx_adds_parts(p) ? 128 : bytes == 4 ? 192 : 256;
  if (bytes == 1 && p->scales == 2) widest = 128;
  return columns <= widest && columns * bytes % WK__PRODUCT_LINE == 0;
}
/* Whether the copy engine brings the operands. */
static inline bool wk__ptx_product_is_bulk(const wk__ptx_product *p) {
  return p->warpgroups && p->windows == WK__WINDOWS_OF_NONE;
}

/* The elements that tiles of a group begin at multiples of: before the group where it begins elsewhere. Whole pieces of
 * 16 bytes are copied and stored, and the copy engine's boxes begin at them: others are an illegal instruction. */
static inline int wk__ptx_product_unit(const wk__ptx_product *p) {
  bool pieces = p->groups == WK__GROUPS_OF_COLUMNS;
  if (p->groups == WK__GROUPS_OF_ROWS) pieces = p->a_across;
  if (p->groups == WK__GROUPS_OF_K) pieces = !(p->a_across && p->b_across);
  return pieces ? 16 / wk__ptx_element_bytes((wk__ptx_element)p->a) : 1;
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
  WK__PRODUCT_WORK, /* (splits, batch, m, n) sums */
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
  WK__PRODUCT_ITEMS,   /* for the copy engine: tiles, of all splits and batches */
  WK__PRODUCT_SCALE_A, /* addresses of f32 */
  WK__PRODUCT_SCALE_B,
  WK__PRODUCT_ENDS, /* of groups: int32, ascending */
  WK__PRODUCT_GROUPS,
  /* For the copy engine tensor maps of the driver, 16 words each at multiples of 64 bytes: (batch, slow dim, fast dim)
   * in boxes of a line along the fast one, and of a whole tile along k or a step's depth across it, or of 16 rows of C.
   */
  WK__PRODUCT_MAP_A = 32,
  WK__PRODUCT_MAP_B = 48,
  WK__PRODUCT_MAP_C = 64, /* of a kind with vectors, and with neither split nor nest */
  WK__PRODUCT_ARGS = 80
} wk__ptx_product_arg;

typedef struct wk__ptx_product_kernel {
  /* Owned; the entry is "wick". Blocks: (tiles, splits, batch); of groups as many as there may be tiles of all; with
   * the copy engine as many as multiprocessors; of the second kernel (256 elements, 1, batch). */
  char *text;
  int threads, shared;
} wk__ptx_product_kernel;
/* behind: of a kind that is and has no windows, else NULL. WK_UNSUPPORTED: its nest cannot be. */
WK_MUST_USE wk_status wk__ptx_write_product(const wk__ptx_product *p, const wk__ptx_behind *behind,
                                            wk__ptx_product_kernel *out);

#endif
