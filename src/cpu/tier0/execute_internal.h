/* What the files that run programs share: the state of a launch and of a thread.
 *
 * execute.c prepares launches and shares their tasks out; execute_worker.c gives a thread its memory; execute_tasks.c
 * does a task, block by block; execute_steps.c does a step on a block; execute_split.c cuts few, long rows,
 * execute_scan.c those that are scanned; execute_line.c is the short way for small launches. */
#ifndef WICK_CPU_TIER0_EXECUTE_INTERNAL_H
#define WICK_CPU_TIER0_EXECUTE_INTERNAL_H

#include "cpu/tier0/program_internal.h"

enum { COUNTER_LEVELS = 48 /* of the counter of partial results, see loop.h */ };

/* State of one reduction or scan while a task runs. width = values side by side. */
typedef struct reduction {
  char *lanes;     /* (width, LANES) or (LANES, width); arg: best values; scan: of the chunk so far */
  int64_t *index;  /* arg: (width) */
  char *partial;   /* (width): the chunk just folded; scan: the chunks before */
  char *stack;     /* (COUNTER_LEVELS, width): partial results by weight, see loop.h */
  uint64_t chunks; /* folded so far; its bits say which levels of the stack are full */
} reduction;

typedef struct run {
  const wk__program *program;
  const wk__launch *launch;
  const wk__primitives *primitives;
  geometry g;
  int64_t m_blocks, n_blocks, tasks;
  int64_t block_elements;  /* of the largest block */
  int64_t block_pitch;     /* bytes from block to block */
  int64_t row_elements;    /* kept values: elements a task keeps */
  bool reads_ahead;        /* of memory, a block ahead */
  bool reads_rows_ahead;   /* of each of a block's rows as much as the block has of it */
  bool keeping;            /* values of earlier phases are kept */
  uint64_t blocked_stores; /* accesses that results may not be computed into, because of overlap */
  uint64_t row_accesses;   /* indirect accesses whose rows of a block are adjacent elements from one place each */
  bool indices_by_row;     /* all indirect accesses are; then indices are computed once a row */
  uint64_t fixed_accesses; /* loads that give the same values for many blocks: a thread converts them once */
  _Atomic int faults;
  _Atomic int64_t bad_index;
  _Atomic int bad_check;
  _Atomic int status;
} run;

/* One thread's view. */
typedef struct worker {
  const run *r;
  char **at;               /* (values) where each value is */
  char *slots;             /* temporary blocks */
  char **kept;             /* (kept values) */
  int64_t *offsets;        /* for gathers */
  char *fixed;             /* blocks of the fixed accesses */
  const char **fixed_from; /* where they are from, */
  uint64_t fixed_ready;    /* those that are filled */
  reduction *reductions;
  int64_t position[MAX_WALKERS]; /* element of each walker at the task's (or block's outer) origin */
  int64_t m, n, m0, n0;          /* the block: extent and origin on the inner axes */
  int64_t width;                 /* rows or columns side by side */
  int64_t element;               /* linear reduction index of the block's first element, for lanes */
  int64_t along;      /* elements of a row (rows of a column) that values per row are expanded to; 0: not yet */
  const step *masked; /* the masked load that came last, and what stands for elements outside of its buffer */
  int64_t outside;
  int64_t pitch;        /* elements between the rows of a value that is reduced where it lies */
  bool whole_chunk;     /* the block is all of a chunk: reductions fold it at once, no lanes are kept */
  bool hold_row_stores; /* values per row are computed, but not stored */
  bool later_chunk;     /* scans have chunks before this one */
  bool totals_only;     /* of a block's steps those up to the scan: execute_scan.c */
} worker;

static inline int64_t aligned(int64_t bytes) { return (bytes + 63) & ~INT64_C(63); }

/* ---- execute_steps.c ---- */

extern WK__THREAD_LOCAL int bad_check; /* the check that found wk__kernel_bad_index: number of its expression */

/* Every primitive that the program needs exists: said before anything runs, so that nothing is half done. */
WK_MUST_USE wk_status check_primitives(const wk__program *program, const wk__primitives *p);

/* One step over m x n elements at (m0, n0). Row steps and expansions: m x n says how a value per row lies on the axes,
 * (rows, 1) or (1, columns). */
void run_step(worker *w, const step *s, int64_t m, int64_t n, int64_t m0, int64_t n0);

/* The steps of a list over the worker's block. */
void run_block(worker *w, const step_list *list);

/* ---- execute_tasks.c ---- */

void run_task(worker *w, int64_t task);

/* The parts of a task with reductions, for those who share its chunks out. */
void start_task(worker *w, int64_t task);
void start_reductions(worker *w, int phase);
void run_row_steps(worker *w, int phase);                         /* values per row that a phase makes computable */
void run_row_step(worker *w, const step *s);                      /* one of them */
void run_chunk(worker *w, int phase, int64_t begin, int64_t end); /* elements of the row, folded to `partial` */
void push_partial(const worker *w, int k, const char *partial);   /* a chunk's result, in the chunks' order */
void finish_reduction(worker *w, int k);                          /* the result of reduction k to its row value */

static inline const wk__instr *reduction_instr(const worker *w, int k) {
  return &w->r->program->nest->instrs[w->r->program->reductions[k]];
}

/* ---- execute_worker.c ---- */

/* Lays a thread's memory out for a run; false: memory ran out, which the run notes. */
WK_MUST_USE bool start_worker(worker *w, run *r);
/* Tells the run what the thread has met. */
void end_worker(run *r);
/* The thread's memory for kernels, at least so much; its content is lost. NULL: there is none. */
char *take_scratch(int64_t bytes);

/* ---- execute_scan.c ---- */

/* The program scans few rows of several chunks and does nothing else that needs the whole of a row. */
bool splits_scan(const run *r);
/* Runs that, chunks side by side and shared among threads. What threads meet is noted in the run. */
WK_MUST_USE wk_status run_split_scan(run *r);

/* ---- execute.c ---- */

/* What follows from a run's geometry: its tasks, and which accesses are what. */
void prepare_run(run *r);

/* ---- execute_line.c ---- */

/* A launch along one line, of 1 to WK__BLOCK elements, of a program that is_short and whose primitives are checked. */
WK_MUST_USE wk_status run_line(const wk__program *program, const wk__launch *launch, const wk__primitives *primitives);

/* ---- execute_split.c ---- */

/* Runs tasks one after the other, each cut among threads. What threads meet is noted in the run. */
WK_MUST_USE wk_status run_split(run *r);

#endif
