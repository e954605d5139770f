/* The PTX writer: a nest of the loop IR as a kernel of the CUDA device, for one shape of launches.
 *
 * In: a nest, and how a launch goes through it: loops after merging, how each walker moves with each (not at all, by
 * one, by another stride), how many elements a thread takes. Sizes, strides and numbers are arguments, so a kernel
 * serves all launches of its shape. Out: a module in PTX with one entry, and what its arguments are.
 *
 *   pointwise: a thread has `each` neighbours along the innermost loop, read and written as vectors.
 *   short rows: a thread has a row of `each` elements, at most 16, in registers, and folds them as 32 lanes would.
 *   rows:      `warps` warps have a row of one chunk in registers, 32 `each` elements a warp; lane l of a warp has
 * elements l, l + 32, ... of its part. What the elements of a lane come to goes on from warp to warp. long rows:
 * `warps` warps have a row, a chunk each in turns, in steps of 32 `each` elements; every phase reads it again, what is
 * `kept` from shared memory, where the same warp has put it. One
 * warp: the row is one chunk. columns:   a block has 32 neighbouring rows, thread (lane, column) the lane's elements:
 * for rows that lie side by side. parts:     a warp has a chunk of a row, and leaves what it comes to in memory; then
 *   whole:     a block has a row's chunks. For few long rows; where they are gone through several times, two kernels a
 * phase. column parts, column whole: the same for rows that lie side by side, also by phases: a block has a chunk of 32
 * rows, and leaves what it comes to; then a block folds those of 32 rows.
 *
 *   scans:     a thread has a row, or a chunk of it after scan parts, which leave what chunks come to. Where `tile` is
 * not 0, a warp reads and writes `tile` neighbours of each of its 32 rows at a time, through shared memory.
 *
 *   tiles:     pointwise, where some of what is loaded has its neighbours along another loop than the innermost: a
 * block has 32 x 32 elements of the two, and such loads go along their own loop, through shared memory.
 *
 * Lanes and chunks are those of a reduction's order (loop/loop.h), and functions are taken from the source of the
 * interpreter, so the bits are tier 0's and the CPU's. Several scans, or one beside reductions, and additions to memory
 * of integers below 32 bits and float8 are left to tier 0. Tests: tests/cuda/test_ptx.py, tests/device/. */
#ifndef WICK_CODEGEN_PTX_H
#define WICK_CODEGEN_PTX_H

#include "loop/binding.h"

typedef enum wk__ptx_mode {
  WK__PTX_POINTWISE,
  WK__PTX_SHORT_ROWS,
  WK__PTX_ROWS,
  WK__PTX_LONG_ROWS,
  WK__PTX_COLUMNS,
  WK__PTX_PARTS,
  WK__PTX_WHOLE,
  WK__PTX_COLUMN_PARTS,
  WK__PTX_COLUMN_WHOLE,
  WK__PTX_TILES,
  WK__PTX_SCANS,
  WK__PTX_SCAN_PARTS,
} wk__ptx_mode;
extern const char *const wk__ptx_mode_names[];      /* by wk__ptx_mode, in words */
enum { WK__PTX_TILE = 32, WK__PTX_TILE_WARPS = 8 }; /* elements of a tile's side; a warp has each 8th of its rows */
enum { WK__PTX_COLUMN_CHUNKS = 64 };                /* of a column; more where shared memory has room */
enum { WK__PTX_MAX_LOOPS = 8, WK__PTX_MAX_EACH = 32, WK__PTX_SHORT_ROW = 16 };
enum { WK__PTX_STILL, WK__PTX_ONE, WK__PTX_STRIDED }; /* how a walker moves with a loop */

/* What becomes of additions of floats to memory: they are made, or, of sums that are the same in any order
 * (codegen/exact_sums.h), the largest magnitude is found (and nothing else is stored), or whole numbers are added up.
 */
typedef enum wk__ptx_adds { WK__PTX_ADDS, WK__PTX_LARGEST_ADDED, WK__PTX_ADDS_EXACTLY } wk__ptx_adds;
static inline bool wk__ptx_is_exact(int dtype) {
  return dtype == WK_FLOAT64 || dtype == WK_FLOAT32 || dtype == WK_FLOAT16 || dtype == WK_BFLOAT16;
}

/* All of it is the key that a kernel is found by: no padding. */
typedef struct wk__ptx_shape {
  uint8_t mode, p, r, each;
  uint8_t warps;      /* tiles: the other loop; scans: 2 where rows have several chunks */
  uint8_t capability; /* of the device: 90 */
  uint8_t wide;       /* positions need 64 bits */
  uint8_t walkers;
  uint8_t together;      /* pointwise: several launches in one, whose arguments are a table */
  uint8_t whole;         /* rows and their parts: no element of a step is beyond the last */
  uint8_t phased, phase; /* parts, whole: of nests of several phases, the kernel's */
  uint8_t carries;       /* rows over two loops, of which the inner one has 32 elements or more */
  uint8_t vectors;       /* scans: what moves by one along the rows goes 16 bytes at a time; long rows: what is kept */
  uint16_t adds;         /* wk__ptx_adds */
  uint16_t kept;         /* long rows: accesses (bits) whose elements stay in shared memory for later phases */
  uint16_t tile;         /* scans: elements of a row's piece in shared memory; 0: none */
  uint16_t moves[WK__MAX_WALKERS]; /* by walker: two bits a loop */
} wk__ptx_shape;
static inline int wk__ptx_move(const wk__ptx_shape *s, int walker, int loop) {
  return s->moves[walker] >> 2 * loop & 3;
}

/* Launches together: the kernel's own arguments, 8 bytes each. A table's line: the launch's first block, 8 bytes, then
 * its arguments. */
typedef enum wk__ptx_together_arg {
  WK__PTX_TABLE,  /* address */
  WK__PTX_LINE,   /* bytes of a line */
  WK__PTX_BLOCKS, /* address: by block, the number of its launch, 2 bytes */
  WK__PTX_TOGETHER_ARGS
} wk__ptx_together_arg;

/* What an argument is; each has 8 bytes. */
typedef enum wk__ptx_arg_kind {
  WK__PTX_BASE,     /* of access a: the address of its first element */
  WK__PTX_START,    /* of walker a */
  WK__PTX_STRIDE,   /* of walker a with loop b; of an access in bytes */
  WK__PTX_INDIRECT, /* of access a: its buffer's stride along dim b, in bytes */
  WK__PTX_LIMIT,    /* of walker a */
  WK__PTX_SIZE,     /* of loop a */
  WK__PTX_NUMBER,   /* number a of the launch, as lane b */
  WK__PTX_COUNT,    /* threads that have something to do; rows */
  WK__PTX_LENGTH,   /* elements of a row */
  WK__PTX_FAULTS,   /* where faults are noted */
  WK__PTX_SCRATCH,  /* parts, whole: memory for the chunks' states */
  WK__PTX_VALUES,   /* phased: memory for what the rows' reductions come to */
  WK__PTX_KEPT,     /* of access a: where its row begins in shared memory, in bytes */
  /* of sums that are exact, of access a: where its buffer begins in memory, and magnitudes and sums of that place */
  WK__PTX_PLACES,
  WK__PTX_LARGEST,
  WK__PTX_SUMS,
  WK__PTX_BITS, /* of all numbers that are added */
} wk__ptx_arg_kind;
typedef struct wk__ptx_arg {
  uint8_t kind;
  uint16_t a, b;
} wk__ptx_arg;

enum { WK__PTX_MAX_ARGS = 256, WK__PTX_ENTRY_BYTES = 64 };
typedef struct wk__ptx_kernel {
  char *text;                      /* owned */
  char entry[WK__PTX_ENTRY_BYTES]; /* its name, by which profilers know it: the mode and what is computed */
  wk__ptx_arg args[WK__PTX_MAX_ARGS];
  int arg_count;
  /* 8-byte words of a state. Rows of several warps keep 32 of them in shared memory, long rows one a chunk, columns 32
   * x 32 and 32 a chunk, parts and whole one a chunk in the scratch memory, column parts one a chunk and row there, and
   * column whole 32 a chunk in shared memory as well. */
  int states;
} wk__ptx_kernel;

/* Whether kernels for a device wait for those in front of them as the first thing they do, and let those behind them
 * begin: launches may overlap then. */
bool wk__ptx_waits(int capability);
/* WK_UNSUPPORTED: it is tier 0's. `provenance` becomes a comment, or NULL. */
WK_MUST_USE wk_status wk__ptx_write(const wk__nest *nest, const wk__ptx_shape *shape, const char *provenance,
                                    wk__ptx_kernel *out);

/* A pointwise nest over the rows and columns of a matrix that another kernel has just made of f16, bf16 or
 * f32 (ptx_product.h): the kernel gives it pieces of 8 neighbours of a row, in registers, of which the accesses `taken`
 * would load the elements. The shape is pointwise, 8 each, two loops. */
enum { WK__PTX_PIECE = 8 };
typedef struct wk__ptx_behind {
  const wk__nest *nest;
  const wk__ptx_shape *shape;
  uint64_t taken;      /* accesses, as bits */
  wk__ptx_kernel *out; /* gets the arguments, which stand behind the kernel's own */
} wk__ptx_behind;
/* Registers by number: %r of row and column, which are those of a piece that is there, %p whether this one is, %r of
 * the first of its words: four, of f32 eight. */
typedef struct wk__ptx_piece {
  int row, column, there, words;
} wk__ptx_piece;
/* Appends the work on `count` pieces to the code: what they load comes first. out_tables: declarations for the module,
 * appended. `first`: the kernel's own arguments. WK_UNSUPPORTED as below. ptx_pieces.c */
WK_MUST_USE wk_status wk__ptx_write_pieces(const wk__ptx_behind *behind, const wk__ptx_piece *pieces, int count,
                                           int first, wk__string *code, wk__string *out_tables);

/* Accesses (bits) of the nest's first ones whose elements more than one phase loads; out_first: by access, the phase
 * that is the first to. */
enum { WK__PTX_MOST_KEPT = 16 };
uint16_t wk__ptx_read_again(const wk__nest *nest, uint8_t out_first[WK__PTX_MOST_KEPT]);

/* Whether some of it is a function that takes a dozen instructions or more. */
bool wk__ptx_calls_functions(const wk__nest *nest);

/* A nest of one scan and what goes with its elements. */
bool wk__ptx_is_scanned(const wk__nest *nest);
/* Some of it goes through tiles of that shape, and all of that has room in shared memory. ptx_scan_tiles.c */
enum { WK__PTX_MOST_TILED = 8 };
bool wk__ptx_scan_tiles_fit(const wk__nest *nest, const wk__ptx_shape *shape);

/* What the phases of a nest do, as bits: reduce elements, store them. A nest of more than the most has no phases in
 * parts.
 */
enum { WK__PTX_MOST_PHASES = 6 };
typedef struct wk__ptx_phases {
  int count, reductions; /* reductions: words of a row's values */
  unsigned folds, stores;
} wk__ptx_phases;
wk__ptx_phases wk__ptx_phases_of(const wk__nest *nest);

/* A nest that parts can do at once: its elements are gone through, and stored, in the first phase alone. */
bool wk__ptx_is_reduced_once(const wk__nest *nest);

/* Functions as text, from cuda/on_device/functions.c: `$0`, `$1` stand for the arguments, `$r` for the result, `$u` for
 * something that is unique. */
typedef struct wk__ptx_function {
  const char *name; /* "f32_exp" */
  const char *body;
  const char *table; /* the declaration of the table that it reads; NULL: none */
} wk__ptx_function;
extern const wk__ptx_function wk__ptx_functions[];
extern const int wk__ptx_function_count;

#endif
