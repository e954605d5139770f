/* The PTX writer: a nest of the loop IR as a kernel of the CUDA device, for one shape of launches.
 *
 * In: a nest, and how a launch goes through it: loops after merging, how each walker moves with each (not at all, by one,
 * by another stride), how many elements a thread takes. Sizes, strides and numbers are arguments, so a kernel serves all
 * launches of its shape. Out: a module in PTX with one entry, and what its arguments are.
 *
 *   pointwise: a thread has `each` neighbours along the innermost loop, read and written as vectors.
 *   rows:      a warp has a row of at most 32 `each` elements in registers; lane l has elements l, l + 32, ...
 *   long rows: `warps` warps have a row, a chunk each in turns, in steps of 32 `each` elements; every phase reads it
 *              again. One warp: the row is one chunk.
 *
 * Lanes and chunks are those of a reduction's order (loop/loop.h), and functions are taken from the source of the
 * interpreter, so the bits are tier 0's and the CPU's. Scans, and additions to memory of small types, are left to tier 0.
 * Tests: tests/cuda/test_ptx.py, tests/device/. */
#ifndef WICK_CODEGEN_PTX_H
#define WICK_CODEGEN_PTX_H

#include "loop/binding.h"

typedef enum wk__ptx_mode { WK__PTX_POINTWISE, WK__PTX_ROWS, WK__PTX_LONG_ROWS } wk__ptx_mode;
enum { WK__PTX_MAX_LOOPS = 8, WK__PTX_MAX_EACH = 32 };
enum { WK__PTX_STILL, WK__PTX_ONE, WK__PTX_STRIDED }; /* how a walker moves with a loop */

/* All of it is the key that a kernel is found by: no padding. */
typedef struct wk__ptx_shape {
  uint8_t mode, p, r, each, warps;
  uint8_t capability;                 /* of the device: 90 */
  uint8_t wide;                       /* positions need 64 bits */
  uint8_t walkers;
  uint16_t moves[WK__MAX_WALKERS];    /* by walker: two bits a loop */
} wk__ptx_shape;
static inline int wk__ptx_move(const wk__ptx_shape *s, int walker, int loop) { return s->moves[walker] >> 2 * loop & 3; }

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
} wk__ptx_arg_kind;
typedef struct wk__ptx_arg {
  uint8_t kind;
  uint16_t a, b;
} wk__ptx_arg;

enum { WK__PTX_MAX_ARGS = 256 };
typedef struct wk__ptx_kernel {
  char *text; /* owned */
  wk__ptx_arg args[WK__PTX_MAX_ARGS];
  int arg_count;
  int states; /* long rows of several warps: 8-byte words of shared memory a chunk */
} wk__ptx_kernel;

/* WK_UNSUPPORTED: it is tier 0's. The entry's name is "wick". `provenance` becomes a comment, or NULL. */
WK_MUST_USE wk_status wk__ptx_write(const wk__nest *nest, const wk__ptx_shape *shape, const char *provenance,
                                    wk__ptx_kernel *out);

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
