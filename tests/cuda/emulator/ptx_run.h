/* A launch while it runs: blocks, warps and threads, for the files that run them.
 *
 * launch.c runs the blocks of a launch one after the other (or several at once), each by letting its threads run in
 * turn: ptx_run runs one until it ends, fails or comes to an instruction at which it has to wait. Threads are
 * coroutines: all that a thread is stands in its ptx_thread and its frames. Tests: tests/test_kernels.c. */
#ifndef EMULATOR_PTX_RUN_H
#define EMULATOR_PTX_RUN_H

#include <pthread.h>

#include "memory.h"
#include "ptx.h"

#pragma GCC visibility push(hidden)

enum { PTX_WARP = 32, PTX_BARRIERS = 16, PTX_MULTIPROCESSORS = 4 };

typedef enum ptx_state {
  PTX_READY, /* can go on at pc */
  PTX_WAITS, /* pc is an instruction for which others have to come */
  PTX_ENDED,
  PTX_FAILED,
} ptx_state;

typedef struct ptx_copy { /* of cp.async, not done yet */
  uint64_t to, from;      /* in shared and global memory */
  uint32_t bytes, size;   /* what is written; what is read, the rest is zeros */
  uint32_t group;         /* the number of its group */
} ptx_copy;

typedef struct ptx_thread {
  const ptx_ins *pc;
  uint64_t *r; /* the frame: slots */
  struct ptx_block *block;
  const ptx_function *function; /* that it is in */
  uint8_t *local;               /* its local memory */
  uint32_t local_base;          /* where the function's begins */
  uint32_t index[3], number, lane, warp;
  uint32_t carry; /* CC */
  ptx_state state;
  int64_t budget; /* jumps back until it lets others run */
  ptx_copy *copies;
  uint32_t copy_count, copy_capacity, group; /* group: of the next copy */
} ptx_thread;

typedef struct ptx_barrier {
  uint32_t arrived, warps; /* of bar.arrive: threads, and a bit for each of their warps */
} ptx_barrier;

typedef struct ptx_block {
  struct ptx_launch *launch;
  uint32_t index[3], number; /* number: among the blocks of the grid */
  ptx_thread *threads;
  uint32_t thread_count, warp_count;
  uint64_t *frames; /* of all threads */
  uint64_t frame_slots;
  uint8_t *shared, *local;
  uint32_t shared_bytes, dynamic_base, local_bytes; /* local: of a thread */
  ptx_barrier barriers[PTX_BARRIERS];
  struct races *races; /* NULL: not looked for */
} ptx_block;

typedef struct ptx_launch {
  const ptx_function *function;
  uint32_t grid[3], threads[3], dynamic_bytes;
  const uint8_t *parameters;
  int device;
  uint64_t id;
  uint64_t deadline;    /* nanoseconds of the clock; 0: none */
  pthread_mutex_t lock; /* of what follows */
  uint64_t next;        /* block to run */
  int result;           /* CUresult of the first failure */
} ptx_launch;

/* ---- ptx_run.c ---- */

void ptx_run(ptx_thread *thread);
void ptx_begin(ptx_thread *thread); /* its first frame has its constants */

/* ---- ptx_access.c ---- */

typedef enum ptx_purpose { PTX_READ, PTX_WRITE, PTX_ATOMIC } ptx_purpose;

/* The bytes at an address of a space, which are checked; NULL: the thread has failed. */
uint8_t *ptx_at(ptx_thread *thread, const ptx_ins *ins, ptx_space space, uint64_t address, unsigned bytes,
                ptx_purpose purpose);
bool ptx_load(ptx_thread *thread, const ptx_ins *ins);
bool ptx_store(ptx_thread *thread, const ptx_ins *ins);
bool ptx_atomic_run(ptx_thread *thread, const ptx_ins *ins);
bool ptx_copy_async(ptx_thread *thread, const ptx_ins *ins);
bool ptx_copy_wait(ptx_thread *thread, const ptx_ins *ins); /* does the copies of all but the newest groups */

/* ---- ptx_bulk.c: false: the thread has failed ---- */

bool ptx_barrier_init(ptx_thread *thread, const ptx_ins *ins);
bool ptx_barrier_arrive(ptx_thread *thread, const ptx_ins *ins);
bool ptx_barrier_try(ptx_thread *thread, const ptx_ins *ins);
bool ptx_bulk_copy(ptx_thread *thread, const ptx_ins *ins);
bool ptx_bulk_store(ptx_thread *thread, const ptx_ins *ins);

static inline uint64_t ptx_address(const ptx_thread *thread, const ptx_ins *ins) {
  uint64_t address = thread->r[ins->a] + (uint64_t)ins->imm;
  return ins->e ? (uint32_t)address : address;
}

/* ---- launch.c ---- */

/* The thread fails: the first failure of a launch is its result, and is printed. */
void ptx_fault(ptx_thread *thread, const ptx_ins *ins, int result, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
int ptx_launch_run(ptx_launch *launch); /* from its function to its device filled in; gives a CUresult */
uint64_t ptx_clock(void);               /* nanoseconds */

/* ---- ptx_warp.c, ptx_matrix.c ---- */

/* Lets the lanes of a warp do what they have all come to; whether any did. */
bool ptx_meet(ptx_block *block, uint32_t warp);
/* When nothing else can run: lets the lanes that ask for the active lanes have them; whether any did. */
bool ptx_meet_active(ptx_block *block, uint32_t warp);
void ptx_matrix_move(ptx_thread *lanes, const ptx_ins *ins); /* ldmatrix, stmatrix: of the 32 lanes of a warp */
void ptx_matrix_multiply(ptx_thread *lanes, const ptx_ins *ins);
void ptx_warpgroup_multiply(ptx_thread *lanes, const ptx_ins *ins);

/* ---- races.c ---- */

struct races *races_create(uint32_t bytes);
void races_release(struct races *races);
void races_begin(struct races *races, uint32_t warps); /* of a block */
/* An access to shared memory; false: it is a race, and the thread has failed. */
bool races_access(ptx_thread *thread, const ptx_ins *ins, uint32_t address, uint32_t bytes, ptx_purpose purpose);
void races_join_warp(struct races *races, uint32_t warp);
void races_join_warps(struct races *races, const uint32_t *warps, uint32_t count); /* a barrier */

#pragma GCC visibility pop
#endif
