/* Products of warpgroups, four warps together (wgmma, sm_90): how a matrix lies in shared memory that they read, what
 * says so, and the instruction. Products, attention and tile kernels write theirs with these.
 *
 * A matrix lies in *lines* of 128, 64 or 32 bytes of its dim that lies together; a line's 16-byte pieces are exchanged
 * by bits of its address, so that what lies below each other is in different banks. Eight lines follow each other; what
 * is longer than a line lies in *panels*, all lines of the first 128 bytes, then of the next. It begins at a multiple
 * of 1024 bytes. Tests: tests/cuda/test_products.py, tests/cuda/test_attention.py, tests/cuda/test_tiles.py. */
#ifndef WICK_CODEGEN_PTX_GROUPS_H
#define WICK_CODEGEN_PTX_GROUPS_H

#include "codegen/ptx_text.h"

enum { WK__GROUP_ROWS = 64, WK__GROUP_COLUMNS = 256, WK__GROUP_SLICE = 32, WK__GROUP_ATOM = 1024 };
/* SLICE: bytes of k that one instruction multiplies; COLUMNS: at most; ATOM: where matrices may begin. */

/* Where byte `bytes` of lines without panels lies; of two places without common bits: the exclusive or of theirs. */
static inline int wk__ptx_group_swizzled(int bytes, int line) { return bytes ^ ((bytes >> 7 & (line / 16 - 1)) << 4); }

/* A long that says where a matrix lies: its address, a word; bytes of a line; bytes from a panel to the next, which
 * count where lines lie across k. A part of it begins so many bytes further. */
int wk__ptx_group_describe(wk__ptx_text *t, int address, int line, int panel);
int wk__ptx_group_part(wk__ptx_text *t, int description, int bytes);

typedef struct wk__ptx_group_product {
  int columns, depth;             /* depth: elements of SLICE bytes */
  const char *sum, *left, *right; /* types: "f32", "bf16", ... */
  int sums;                       /* words: (columns / 8, 4) */
  int a, fragments;               /* a description, or, where it is -1, four words */
  int b;                          /* a description */
  int adds;                       /* a predicate; false: to zeros */
  bool a_across, b_across;        /* lines lie across k: of elements of two bytes */
} wk__ptx_group_product;
void wk__ptx_group_multiply(wk__ptx_text *t, const wk__ptx_group_product *p);

#endif
