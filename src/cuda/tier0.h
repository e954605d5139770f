/* What the host and the interpreter on the device (on_device/tier0.c) agree on: a nest as a program of instructions, and
 * a launch of it. Compiled for both.
 *
 * A warp does one row, all phases of it, its lanes being those of a reduction's order (loop/loop.h), so that the bits are
 * the CPU's; without reductions a thread does one element, whose instructions all count as a row's. Every value of a nest,
 * of a row too, has a *slot*, 8 bytes of each thread; behind the slots each thread keeps the positions of the walkers
 * (loop/binding.h) at its row and at its element. A phase runs the instructions of rows that are due, then goes through
 * the row's elements, a lane's worth at a time, a *round*; a chunk's rounds are folded, and chunks counted up. */
#ifndef WICK_CUDA_TIER0_H
#define WICK_CUDA_TIER0_H

#include <stdint.h>

enum {
  WK__CUDA_LAUNCH_BYTES = 16384, /* of a wk__cuda_launch */
  WK__CUDA_THREADS = 256,        /* of a block, at most */
  WK__CUDA_DIMS = 16,
  WK__CUDA_WALKERS = 64,
};

typedef enum wk__cuda_memory_type { /* storage dtypes as memory has them */
  WK__MEMORY_BOOL,
  WK__MEMORY_U8,
  WK__MEMORY_I8,
  WK__MEMORY_I16,
  WK__MEMORY_I32,
  WK__MEMORY_I64, /* u64 as well */
  WK__MEMORY_U16,
  WK__MEMORY_U32,
  WK__MEMORY_E4M3,
  WK__MEMORY_E5M2,
  WK__MEMORY_F16,
  WK__MEMORY_BF16,
  WK__MEMORY_F32,
  WK__MEMORY_F64,
} wk__cuda_memory_type;

enum { WK__CUDA_NONE = 0xffff };

typedef struct wk__cuda_instr {
  uint8_t op;         /* wk__loop_op */
  uint8_t lane, made; /* wk__lane_type of the operand that tells, and of the result */
  uint8_t memory;     /* load, store, round_to: wk__cuda_memory_type */
  uint16_t slot;      /* of the result */
  uint16_t in[3];     /* slots */
  uint16_t extra;     /* load, store: access; index, check_index: walker; param: its number; scan: its state */
  uint16_t places;    /* load, store: the first of its indirect coordinates in `places`, WK__CUDA_NONE: none */
  uint16_t bounds;    /* masked_load: the first walker of its bounds, */
  uint16_t bound_count; /* and how many there are; check_index: 1 where negative indices are out of range */
  int64_t number;     /* constant: the slot's bits */
} wk__cuda_instr;

/* An indirect coordinate of an access. */
typedef struct wk__cuda_place {
  uint16_t slot; /* of the index */
  uint16_t dim;  /* of the buffer */
  uint16_t last; /* 1: of its access */
} wk__cuda_place;

typedef struct wk__cuda_fold { /* a reduction */
  uint8_t op, lane;
  uint16_t from, slot; /* slots of the elements' values and of the result */
} wk__cuda_fold;

typedef struct wk__cuda_phase {
  int32_t rows, elements, end; /* instructions [rows, elements) are the row's, [elements, end) the elements' */
  int32_t folds, fold_end;
  int32_t has_scan;
} wk__cuda_phase;

/* In the device's memory: header, then phases, instructions, folds, places, one behind the other. */
typedef struct wk__cuda_program {
  int32_t phase_count, slot_count, fold_count, scan_count;
  int32_t access_count, walker_count;
  int32_t instrs, folds, places; /* bytes from the program's beginning */
  int32_t has_rows;              /* reduction dims */
  wk__cuda_phase phases[];
} wk__cuda_program;

/* In the device's memory: header, then the arrays below, of walker_count or param_count items. */
typedef struct wk__cuda_launch_block {
  int64_t rows, length; /* how many rows; elements of one */
  int32_t p, r;         /* loops */
  int32_t levels;       /* of a row's counters: at least 2 */
  int32_t reserved;
  int64_t size[WK__CUDA_DIMS];
  int32_t base, start, limit, stride, indirect, params; /* bytes from the block's beginning:
    base (accesses) addresses, start, limit (walkers), stride (walkers, p + r), indirect (accesses, dims), params
    (slot bits each) */
} wk__cuda_launch_block;

/* The interpreter's arguments are: the program, the launch block, where faults go. */

#endif
