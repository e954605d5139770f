/* Shared by the interpreter's files. */
#ifndef WICK_CPU_TILE_INTERNAL_H
#define WICK_CPU_TILE_INTERNAL_H

#include "cpu/tier0/primitives.h"
#include "cpu/tile/tile.h"

/* A kernel prepared to be run: where each value is in the memory of a thread. */
typedef struct tile_plan {
  wk__tile_code head;
  const wk__tile_kernel *kernel; /* borrowed: it owns this */
  int64_t *place;                /* (instructions) bytes from the memory's begin */
  wk__tile *partner;             /* (instructions) if: its else; else, for, while, test: the end; end: what it ends */
  int64_t scratch, memory;       /* bytes: where room for any value begins, four times; all of it */
  int64_t largest;               /* bytes of the largest value */
} tile_plan;

/* One program instance. */
typedef struct tile_run {
  const tile_plan *plan;
  const wk__tile_launch *launch;
  const wk__primitives *primitives;
  char *memory;
  int32_t ids[3];
  uint32_t trips;      /* loops' ends that were come to */
  _Atomic(int) *ended; /* a status of the launch: WK_OK while it goes on */
  wk_status status;
} tile_run;

static inline void *value_of(const tile_run *r, wk__tile v) { return r->memory + r->plan->place[v]; }
static inline void *scratch_of(const tile_run *r, int which) {
  return r->memory + r->plan->scratch + which * r->plan->largest;
}
static inline const wk__tile_type *type_of(const tile_run *r, wk__tile v) { return &r->plan->kernel->instrs[v].type; }
static inline int64_t item_of(const wk__tile_type *t) { return wk__lane_size(wk__tile_lane(t)); }

tile_plan *tile_prepare(const wk__tile_kernel *kernel); /* NULL with the error set */

/* ---- run_memory.c ---- */
void tile_load(const tile_run *r, wk__tile v);
void tile_store(const tile_run *r, wk__tile v);
void tile_atomic(const tile_run *r, wk__tile v);

/* ---- run_blocks.c: operations that go across elements ---- */
void tile_broadcast(const tile_run *r, wk__tile v);
void tile_permute(const tile_run *r, wk__tile v);
void tile_reduce(const tile_run *r, wk__tile v);
void tile_scan(const tile_run *r, wk__tile v);
void tile_dot(tile_run *r, wk__tile v);
void tile_philox(const tile_run *r, wk__tile v);

#endif
