/* Races on shared memory, looked for with WICK_EMULATOR_RACES=1.
 *
 * Every warp has a clock: for each warp of the block, up to which of its steps it has seen the work done. A barrier
 * joins the clocks of the warps that meet, any meeting inside a warp begins a new step of it (whatever its mask: this
 * finds less, and never too much, for meetings of a few lanes). For each byte the last writer and two readers are kept.
 * Two accesses of different threads, one of them a write, race when neither has seen the other's step; atomics and
 * strong accesses do not race with each other. Vector clocks: Mattern 1989; for races: Flanagan and Freund, FastTrack,
 * 2009. Tests: tests/test_errors.c. */
#include <stdlib.h>

#include "cuda/driver.h"
#include "ptx_run.h"

enum { MOST_WARPS = 32, NO_THREAD = 0xffff };

typedef struct access {
  uint16_t thread; /* NO_THREAD: none yet */
  bool is_strong;
  uint32_t step; /* of its warp */
} access;

typedef struct record { /* of a byte */
  access writer, readers[2];
} record;

typedef struct races {
  record *records;
  uint32_t bytes;
  uint32_t seen[MOST_WARPS]
               [MOST_WARPS]; /* [w][v]: the steps of v that w has seen done; [w][w]: the step that it is in */
} races;

struct races *races_create(uint32_t bytes) {
  races *made = calloc(1, sizeof *made);
  if (!made) abort();
  made->bytes = bytes;
  made->records = malloc((bytes ? bytes : 1) * sizeof *made->records);
  if (!made->records) abort();
  return made;
}

void races_release(struct races *made) {
  if (made) free(made->records);
  free(made);
}

void races_begin(struct races *made, uint32_t warps) {
  memset(made->records, 0xff, made->bytes * sizeof *made->records);
  memset(made->seen, 0, sizeof made->seen);
  for (uint32_t w = 0; w < warps; w++) made->seen[w][w] = 1;
}

void races_join_warp(struct races *made, uint32_t warp) { made->seen[warp][warp]++; }

void races_join_warps(struct races *made, const uint32_t *warps, uint32_t count) {
  uint32_t joined[MOST_WARPS] = {0};
  for (uint32_t i = 0; i < count; i++)
    for (uint32_t v = 0; v < MOST_WARPS; v++)
      if (made->seen[warps[i]][v] > joined[v]) joined[v] = made->seen[warps[i]][v];
  for (uint32_t i = 0; i < count; i++) memcpy(made->seen[warps[i]], joined, sizeof joined);
  for (uint32_t i = 0; i < count; i++) made->seen[warps[i]][warps[i]]++;
}

/* Whether `before` may happen at the same time as what the thread does now. */
static bool is_concurrent(const races *made, const access *before, const ptx_thread *t, bool strong) {
  if (before->thread == NO_THREAD || before->thread == t->number) return false;
  if (before->is_strong && strong) return false;
  uint32_t warp = before->thread / PTX_WARP;
  return warp == t->warp ? before->step == made->seen[warp][warp] : before->step > made->seen[t->warp][warp];
}

static bool report(ptx_thread *t, const ptx_ins *ins, uint32_t address, const char *what, const access *before) {
  ptx_fault(t, ins, CUDA_ERROR_LAUNCH_FAILED,
            "race: shared byte %u is %s by thread %u of the block without a barrier between", address, what,
            before->thread);
  return false;
}

bool races_access(ptx_thread *t, const ptx_ins *ins, uint32_t address, uint32_t bytes, ptx_purpose purpose) {
  races *made = t->block->races;
  bool strong = purpose == PTX_ATOMIC || ins->mod & PTX_MOD_STRONG;
  access now = {(uint16_t)t->number, strong, made->seen[t->warp][t->warp]};
  for (uint32_t i = address; i < address + bytes; i++) {
    record *record = &made->records[i];
    if (is_concurrent(made, &record->writer, t, strong)) return report(t, ins, i, "written", &record->writer);
    if (purpose == PTX_READ) {
      if (record->readers[0].thread != now.thread) record->readers[1] = record->readers[0];
      record->readers[0] = now;
      continue;
    }
    for (int k = 0; k < 2; k++)
      if (is_concurrent(made, &record->readers[k], t, strong)) return report(t, ins, i, "read", &record->readers[k]);
    record->writer = now;
  }
  return true;
}
