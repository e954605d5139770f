/* A launch: its blocks, the turns of their threads, and barriers.
 *
 * Comes in: a kernel, a grid, parameters. Goes out: a CUresult, after all blocks have run. The threads of a warp run
 * one after the other until each has ended or waits; then what a warp has met for is done; when no warp can go on,
 * barriers of the block open; when none can, the launch has a deadlock. A kernel without such instructions runs its
 * threads one by one over a single frame. Blocks go in order of their number, on WICK_EMULATOR_THREADS threads of the
 * host. Tests: tests/test_control.c, tests/test_errors.c. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cuda/driver.h"
#include "ptx_run.h"

uint64_t ptx_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static long number_from_environment(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text && *text ? strtol(text, NULL, 10) : otherwise;
}

/* ---- failures ---- */

void ptx_fault(ptx_thread *t, const ptx_ins *ins, int result, const char *format, ...) {
  const ptx_block *block = t->block;
  ptx_launch *launch = block->launch;
  char reason[256];
  va_list args;
  va_start(args, format);
  vsnprintf(reason, sizeof reason, format, args);
  va_end(args);
  t->state = PTX_FAILED;
  pthread_mutex_lock(&launch->lock);
  if (!launch->result) {
    int length;
    const char *line = ptx_line(t->function->module, ins->line, &length);
    launch->result = result;
    fprintf(stderr, "emulated CUDA: kernel %s: %s; line %u: \"%.*s\", block (%u, %u, %u), thread (%u, %u, %u)\n",
            launch->function->name, reason, ins->line, length, line, block->index[0], block->index[1], block->index[2],
            t->index[0], t->index[1], t->index[2]);
  }
  pthread_mutex_unlock(&launch->lock);
}

/* ---- barriers of a block ---- */

static bool waits_at(const ptx_thread *t, uint64_t barrier) {
  return t->state == PTX_WAITS && t->pc->op == PTX_OP_BARRIER && t->r[t->pc->a] == barrier;
}

static uint32_t count_waiting(const ptx_block *block, uint64_t barrier) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < block->thread_count; i++) count += waits_at(&block->threads[i], barrier);
  return count;
}

static uint32_t count_living(const ptx_block *block) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < block->thread_count; i++) count += block->threads[i].state != PTX_ENDED;
  return count;
}

/* bar, and barrier.aligned: all lanes of a warp have to come to the same instruction. */
static bool is_aligned(ptx_block *block, uint64_t barrier) {
  const ptx_ins *places[1024 / PTX_WARP] = {NULL};
  for (uint32_t i = 0; i < block->thread_count; i++) {
    ptx_thread *t = &block->threads[i];
    if (!waits_at(t, barrier) || !(t->pc->mod & PTX_MOD_ALIGNED)) continue;
    if (!places[t->warp]) places[t->warp] = t->pc;
    if (places[t->warp] == t->pc) continue;
    ptx_fault(t, t->pc, CUDA_ERROR_LAUNCH_FAILED, "lanes of a warp come to different barriers (the other at line %u)",
              places[t->warp]->line);
    return false;
  }
  return true;
}

/* popc, and, or of the predicates of all who wait. */
static uint64_t reduce(const ptx_block *block, uint64_t barrier, int64_t how) {
  uint64_t set = 0, count = 0;
  for (uint32_t i = 0; i < block->thread_count; i++) {
    const ptx_thread *t = &block->threads[i];
    if (!waits_at(t, barrier)) continue;
    count++;
    set += t->r[t->pc->c] & 1;
  }
  return how == 1 ? set : how == 2 ? set == count : set != 0;
}

static void join_for_races(ptx_block *block, uint64_t barrier) {
  uint32_t bits = block->barriers[barrier].warps, warps[1024 / PTX_WARP], count = 0;
  for (uint32_t i = 0; i < block->thread_count; i++)
    if (waits_at(&block->threads[i], barrier)) bits |= (uint32_t)1 << block->threads[i].warp;
  for (uint32_t w = 0; w < block->warp_count; w++)
    if (bits >> w & 1) warps[count++] = w;
  races_join_warps(block->races, warps, count);
}

static void open_barrier(ptx_block *block, uint64_t barrier) {
  if (block->races) join_for_races(block, barrier);
  uint64_t results[4] = {0};
  for (int how = 1; how < 4; how++) results[how] = reduce(block, barrier, how);
  for (uint32_t i = 0; i < block->thread_count; i++) {
    ptx_thread *t = &block->threads[i];
    if (!waits_at(t, barrier)) continue;
    if (t->pc->imm) t->r[t->pc->d] = results[t->pc->imm];
    t->pc++;
    t->state = PTX_READY;
  }
  block->barriers[barrier] = (ptx_barrier){0};
}

/* Opens the barrier at which a thread waits when all have come for which it waits. */
static bool try_barrier(ptx_block *block, ptx_thread *t) {
  uint64_t barrier = t->r[t->pc->a];
  if (barrier >= PTX_BARRIERS) {
    ptx_fault(t, t->pc, CUDA_ERROR_LAUNCH_FAILED, "barrier %llu of %d", (unsigned long long)barrier, PTX_BARRIERS);
    return false;
  }
  uint32_t due = t->pc->count ? (uint32_t)t->r[t->pc->b] : count_living(block);
  if (t->pc->count && (!due || due % PTX_WARP)) {
    ptx_fault(t, t->pc, CUDA_ERROR_LAUNCH_FAILED, "a barrier for %u threads, which are no whole warps", due);
    return false;
  }
  uint32_t come = count_waiting(block, barrier) + block->barriers[barrier].arrived;
  if (come < due || !is_aligned(block, barrier)) return false;
  open_barrier(block, barrier);
  return true;
}

/* ---- turns ---- */

static bool has_failed(const ptx_block *block) { return block->launch->result != 0; }

/* Runs a warp as far as it goes; whether anything has moved. */
static bool run_warp(ptx_block *block, uint32_t warp) {
  uint32_t first = warp * PTX_WARP, end = first + PTX_WARP;
  if (end > block->thread_count) end = block->thread_count;
  bool moved = false;
  for (;;) {
    bool paused = false;
    for (uint32_t i = first; i < end; i++) {
      ptx_thread *t = &block->threads[i];
      if (t->state != PTX_READY) continue;
      ptx_run(t);
      moved = true;
      if (t->state == PTX_FAILED) return true;
      paused |= t->state == PTX_READY;
    }
    if (!ptx_meet(block, warp) || paused || has_failed(block)) return moved;
    moved = true;
  }
}

/* Those that say how many threads they are for open while others go on, who may wait for these by looking again. */
static bool open_barriers(ptx_block *block, bool all) {
  uint32_t tried = 0;
  bool opened = false;
  for (uint32_t i = 0; i < block->thread_count && !has_failed(block); i++) {
    ptx_thread *t = &block->threads[i];
    if (t->state != PTX_WAITS || t->pc->op != PTX_OP_BARRIER || !(all || t->pc->count)) continue;
    uint32_t bit = (uint32_t)1 << t->r[t->pc->a] % PTX_BARRIERS;
    if (tried & bit) continue;
    tried |= bit;
    opened |= try_barrier(block, t);
  }
  return opened;
}

static bool open_any(ptx_block *block) {
  for (uint32_t w = 0; w < block->warp_count; w++)
    if (ptx_meet_active(block, w)) return true;
  return open_barriers(block, true);
}

static void report_deadlock(ptx_block *block) {
  uint32_t waiting = 0;
  ptx_thread *first = NULL;
  for (uint32_t i = 0; i < block->thread_count; i++) {
    if (block->threads[i].state != PTX_WAITS) continue;
    waiting++;
    if (!first) first = &block->threads[i];
  }
  ptx_fault(first, first->pc, CUDA_ERROR_LAUNCH_FAILED, "deadlock: %u threads wait, this one first", waiting);
}

static void run_together(ptx_block *block) {
  for (uint32_t i = 0; i < block->thread_count; i++) ptx_begin(&block->threads[i]);
  while (count_living(block) && !has_failed(block)) {
    bool moved = false;
    for (uint32_t w = 0; w < block->warp_count && !has_failed(block); w++) moved |= run_warp(block, w);
    if (has_failed(block) || open_barriers(block, false) || moved) continue;
    if (!open_any(block) && !has_failed(block)) report_deadlock(block);
  }
}

static void run_alone(ptx_block *block) {
  for (uint32_t i = 0; i < block->thread_count && !has_failed(block); i++) {
    ptx_begin(&block->threads[i]);
    ptx_run(&block->threads[i]);
  }
}

/* ---- blocks ---- */

static void *take_memory(size_t bytes) {
  void *memory = NULL;
  if (posix_memalign(&memory, 64, bytes ? bytes : 64)) abort();
  return memory;
}

/* The stacks of kernels that call functions: room for every function four times over, and then some. */
static void size_stacks(const ptx_function *kernel, ptx_block *block) {
  block->frame_slots = kernel->slot_count;
  block->local_bytes = kernel->local_bytes;
  if (!kernel->calls) return;
  uint64_t slots = 0, bytes = 0;
  for (uint32_t i = 0; i < kernel->module->function_count; i++) {
    const ptx_function *f = kernel->module->functions[i];
    if (f->is_entry) continue;
    slots += f->slot_count + 8, bytes += f->local_bytes + 16;
  }
  block->frame_slots += 4 * slots + 1024;
  block->local_bytes += (uint32_t)(4 * bytes + 1024);
}

static uint32_t align_up(uint32_t value, uint32_t alignment) { return (value + alignment - 1) & ~(alignment - 1); }

/* Constants are there for all blocks, poison in the registers for the first alone: large kernels have frames of 100 KB,
 * and most of the time would be spent on filling them. */
static void create_frames(const ptx_function *kernel, uint32_t count, ptx_block *block) {
  block->frames = take_memory(count * block->frame_slots * sizeof *block->frames);
  for (uint32_t i = 0; i < count && kernel->slot_count; i++)
    memcpy(block->frames + i * block->frame_slots, kernel->frame, kernel->slot_count * sizeof *block->frames);
}

static void create_block(ptx_block *block, ptx_launch *launch) {
  const ptx_function *kernel = launch->function;
  uint32_t count = launch->threads[0] * launch->threads[1] * launch->threads[2];
  *block = (ptx_block){.launch = launch, .thread_count = count, .warp_count = (count + PTX_WARP - 1) / PTX_WARP};
  block->dynamic_base = align_up(kernel->shared_bytes, kernel->dynamic_alignment);
  block->shared_bytes = launch->dynamic_bytes ? block->dynamic_base + launch->dynamic_bytes : kernel->shared_bytes;
  size_stacks(kernel, block);
  create_frames(kernel, kernel->waits ? count : 1, block);
  block->shared = take_memory(block->shared_bytes);
  block->local = take_memory((size_t)count * block->local_bytes);
  block->threads = calloc(count, sizeof *block->threads);
  if (!block->threads) abort();
  if (number_from_environment("WICK_EMULATOR_RACES", 0)) block->races = races_create(block->shared_bytes);
  for (uint32_t i = 0; i < count; i++) {
    ptx_thread *t = &block->threads[i];
    t->block = block;
    t->number = i, t->lane = i % PTX_WARP, t->warp = i / PTX_WARP;
    t->index[0] = i % launch->threads[0];
    t->index[1] = i / launch->threads[0] % launch->threads[1];
    t->index[2] = i / launch->threads[0] / launch->threads[1];
    t->r = block->frames + (kernel->waits ? i * block->frame_slots : 0);
    t->local = block->local + (size_t)i * block->local_bytes;
  }
}

static void release_block(ptx_block *block) {
  for (uint32_t i = 0; i < block->thread_count; i++) free(block->threads[i].copies);
  races_release(block->races);
  free(block->threads);
  free(block->frames);
  free(block->shared);
  free(block->local);
}

static void run_block(ptx_block *block, uint64_t number) {
  const ptx_launch *launch = block->launch;
  block->number = (uint32_t)number;
  block->index[0] = (uint32_t)(number % launch->grid[0]);
  block->index[1] = (uint32_t)(number / launch->grid[0] % launch->grid[1]);
  block->index[2] = (uint32_t)(number / launch->grid[0] / launch->grid[1]);
  memset(block->shared, MEMORY_POISON, block->shared_bytes);
  memset(block->local, MEMORY_POISON, (size_t)block->thread_count * block->local_bytes);
  memset(block->barriers, 0, sizeof block->barriers);
  if (block->races) races_begin(block->races, block->warp_count);
  if (launch->function->waits)
    run_together(block);
  else
    run_alone(block);
}

/* ---- workers ---- */

static bool take_block(ptx_launch *launch, uint64_t *out_number) {
  pthread_mutex_lock(&launch->lock);
  uint64_t count = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
  bool has = !launch->result && launch->next < count;
  if (has) *out_number = launch->next++;
  pthread_mutex_unlock(&launch->lock);
  return has;
}

static void *work(void *context) {
  ptx_launch *launch = context;
  ptx_block block;
  create_block(&block, launch);
  for (uint64_t number; take_block(launch, &number);) run_block(&block, number);
  release_block(&block);
  return NULL;
}

int ptx_launch_run(ptx_launch *launch) {
  enum { MOST_WORKERS = 64 };
  pthread_t workers[MOST_WORKERS];
  long count = number_from_environment("WICK_EMULATOR_THREADS", 1) - 1, started = 0;
  long seconds = number_from_environment("WICK_EMULATOR_TIMEOUT", 0);
  pthread_mutex_init(&launch->lock, NULL);
  launch->next = 0, launch->result = 0;
  launch->deadline = seconds > 0 ? ptx_clock() + (uint64_t)seconds * 1000000000u : 0;
  while (started < count && started < MOST_WORKERS && !pthread_create(&workers[started], NULL, work, launch)) started++;
  work(launch);
  for (long i = 0; i < started; i++) pthread_join(workers[i], NULL);
  pthread_mutex_destroy(&launch->lock);
  return launch->result;
}
