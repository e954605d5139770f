/* Launches of kernels: their grids and arguments, and the several kernels that some shapes are made of.
 *
 * In: a kernel, a bound launch. Out: work for a stream. Tests: tests/cuda/test_ptx.py. */
#include <stdio.h>

#include "cuda/native_kernels.h"
#include "cuda/shape.h"
#include "cuda/shape_ways.h"

typedef wk__cuda_kernel kernel;

/* ---- one kernel ---- */

int64_t wk__cuda_param_bits(wk__scalar number, int lane) {
  union {
    int64_t bits;
    double d;
    float f;
  } u = {0};
  if (lane == WK__LANE_F64) u.d = wk__scalar_double(number);
  if (lane == WK__LANE_F32) u.f = (float)wk__scalar_double(number);
  if (lane == WK__LANE_I64) u.bits = wk__scalar_int(number);
  if (lane == WK__LANE_BOOL) u.bits = wk__scalar_double(number) != 0;
  return u.bits;
}

static bool is_scan(const kernel *k) { return k->shape.mode == WK__PTX_SCANS || k->shape.mode == WK__PTX_SCAN_PARTS; }

static int64_t count_of(const kernel *k, const wk__binding *b) {
  int64_t rows = wk__shape_count(b, 0, b->p);
  if (k->shape.mode == WK__PTX_PARTS || is_scan(k)) return rows * wk__shape_chunks(b);
  if (k->shape.mode == WK__PTX_TILES) {
    int64_t width = b->size[b->p - 1], height = b->size[k->shape.warps];
    return rows / (width * height) * wk__ceil_div(width, WK__PTX_TILE) * wk__ceil_div(height, WK__PTX_TILE);
  }
  return rows / (k->shape.mode == WK__PTX_POINTWISE ? k->shape.each : 1);
}

/* Behind the chunks' states. */
static int64_t states_bytes(const kernel *k, const wk__binding *b) {
  return wk__ceil_div(8 * k->states * wk__shape_chunks(b), 16) * 16;
}
static int64_t kept_at(const kernel *k, const wk__binding *b, int access) {
  int64_t at = 0;
  (void)wk__shape_kept_bytes(k->nest, b, &k->shape, access, &at);
  return states_bytes(k, b) + at;
}

/* Of rows whose phases are in parts: what their reductions come to, in front of the chunks' states. */
static int64_t values_bytes(const wk__nest *nest, const wk__binding *b) {
  return 8 * wk__ptx_phases_of(nest).reductions * wk__shape_count(b, 0, b->p);
}

static int64_t value_of(const kernel *k, const wk__cuda_stream *s, const wk__binding *b, const wk__launch *launch,
                        const wk__ptx_arg *arg, void *scratch) {
  bool access = arg->a < b->access_count;
  switch (arg->kind) {
    case WK__PTX_BASE:
      return (int64_t)(uintptr_t)b->base[arg->a] + b->start[arg->a] * wk__shape_item(k->nest, arg->a);
    case WK__PTX_START:
      return b->start[arg->a];
    case WK__PTX_STRIDE:
      return b->stride[arg->a][arg->b] * (access ? wk__shape_item(k->nest, arg->a) : 1);
    case WK__PTX_INDIRECT:
      return b->indirect[arg->a][arg->b] * wk__shape_item(k->nest, arg->a);
    case WK__PTX_LIMIT:
      return b->limit[arg->a];
    case WK__PTX_SIZE:
      return k->shape.mode == WK__PTX_POINTWISE && arg->a == b->p - 1 ? b->size[arg->a] / k->shape.each
                                                                      : b->size[arg->a];
    case WK__PTX_NUMBER:
      return wk__cuda_param_bits(launch->params[arg->a], arg->b);
    case WK__PTX_COUNT:
      return count_of(k, b);
    case WK__PTX_LENGTH:
      return wk__shape_length(b);
    case WK__PTX_SCRATCH:
      return (int64_t)(uintptr_t)scratch + (k->shape.phased ? values_bytes(k->nest, b) : 0);
    case WK__PTX_VALUES:
      return (int64_t)(uintptr_t)scratch;
    case WK__PTX_KEPT:
      return kept_at(k, b, arg->a);
    case WK__PTX_PLACES:
    case WK__PTX_LARGEST:
    case WK__PTX_SUMS:
    case WK__PTX_BITS:
      return wk__cuda_exact_arg(k->nest, b, launch, arg, scratch);
    default:
      return (int64_t)(uintptr_t)s->faults;
  }
}

typedef struct grid {
  int64_t blocks, threads, shared;
} grid;

static grid grid_of(const kernel *k, const wk__binding *b) {
  enum { THREADS = 256, LANES = WK__REDUCE_LANES, SCAN_THREADS = 64 /* few rows go to many multiprocessors */ };
  int64_t count = count_of(k, b), warps = k->shape.warps, word = 8 * k->states;
  switch (k->shape.mode) {
    case WK__PTX_POINTWISE:
    case WK__PTX_SHORT_ROWS:
      return (grid){wk__ceil_div(count, THREADS), THREADS, 0};
    case WK__PTX_COLUMN_PARTS:
      return (grid){wk__ceil_div(count, LANES) * wk__shape_chunks(b), LANES * LANES, word * LANES * LANES};
    case WK__PTX_COLUMNS:
    case WK__PTX_COLUMN_WHOLE:
      return (grid){wk__ceil_div(count, LANES), LANES * LANES, word * LANES * (LANES + wk__shape_chunks(b))};
    case WK__PTX_TILES:
      return (grid){count, THREADS, 0};
    case WK__PTX_SCANS:
    case WK__PTX_SCAN_PARTS:
      if (k->shape.tile) return (grid){wk__ceil_div(count, LANES), LANES, 0};
      return (grid){wk__ceil_div(count, SCAN_THREADS), SCAN_THREADS, 0};
    case WK__PTX_WHOLE:
      return (grid){count, LANES * LANES, 0};
    default:
      if (warps == 1) return (grid){wk__ceil_div(count * LANES, THREADS), THREADS, 0};
      if (k->shape.mode == WK__PTX_ROWS) return (grid){count, LANES * warps, word * LANES};
      return (grid){count, LANES * warps, states_bytes(k, b) + wk__shape_kept_bytes(k->nest, b, &k->shape, -1, NULL)};
  }
}

int64_t wk__cuda_blocks_of(const kernel *k, const wk__binding *b) { return grid_of(k, b).blocks; }

static void note_time(const kernel *k, const wk__cuda_stream *s, const wk__binding *b, CUevent begin) {
  char mode[64], name[WK__CUDA_NAME_BYTES];
  (void)snprintf(mode, sizeof mode, "%s %lldx%lld/%d", wk__ptx_mode_names[k->shape.mode],
                 (long long)wk__shape_count(b, 0, b->p), (long long)wk__shape_length(b), k->shape.each);
  wk__cuda_nest_name(k->nest, mode, name, sizeof name);
  wk__cuda_time_end(s, begin, name);
}

/* The address that argument `arg` is made of; 0: it is not one, or the stream's own. */
static uint64_t address_of(const wk__binding *b, const wk__ptx_arg *arg, const void *scratch) {
  switch (arg->kind) {
    case WK__PTX_BASE:
    case WK__PTX_PLACES:
      return (uint64_t)(uintptr_t)b->base[arg->a];
    case WK__PTX_SCRATCH:
    case WK__PTX_VALUES:
    case WK__PTX_LARGEST:
    case WK__PTX_SUMS:
      return (uint64_t)(uintptr_t)scratch;
    default:
      return 0;
  }
}

int wk__cuda_collect_args(const kernel *k, const wk__cuda_stream *s, const wk__binding *b, const wk__launch *launch,
                          void *scratch, int64_t *out, uint32_t first, wk__cuda_address *out_addresses) {
  int count = 0;
  for (int n = 0; n < k->arg_count; n++) {
    out[n] = value_of(k, s, b, launch, &k->args[n], scratch);
    uint64_t address = address_of(b, &k->args[n], scratch);
    if (address) out_addresses[count++] = (wk__cuda_address){first + (uint32_t)n, address};
  }
  return count;
}

wk_status wk__cuda_give_kernel(const kernel *k, wk__cuda_stream *s, const wk__binding *b, const wk__launch *launch,
                               void *scratch) {
  int64_t args[WK__PTX_MAX_ARGS];
  wk__cuda_address addresses[WK__PTX_MAX_ARGS];
  int address_count = wk__cuda_collect_args(k, s, b, launch, scratch, args, 0, addresses);
  grid g = grid_of(k, b);
  CUevent begin;
  wk__cuda_time_begin(s, &begin);
  wk_status status = wk__cuda_give(s, &(wk__cuda_work){.function = k->function,
                                                       .held = k->held,
                                                       .grid = {(unsigned)g.blocks, 1, 1},
                                                       .threads = (unsigned)g.threads,
                                                       .shared = (unsigned)g.shared,
                                                       .waits = wk__ptx_waits(k->shape.capability),
                                                       .words = args,
                                                       .word_count = k->arg_count,
                                                       .addresses = addresses,
                                                       .address_count = address_count});
  if (WK_UNLIKELY(begin)) note_time(k, s, b, begin);
  return status;
}

bool wk__cuda_kernel_fits(const kernel *k, const wk__binding *b) {
  return grid_of(k, b).shared <= k->device->shared_most; /* rows are kept beside states of more words than usual */
}

/* ---- all kernels of a shape ---- */

/* Words of the memory that parts leave their states in. */
static int64_t states_of(const kernel *parts, const wk__binding *b) {
  int64_t states = parts->states * count_of(parts, b);
  return parts->shape.mode == WK__PTX_COLUMN_PARTS ? states * wk__shape_chunks(b) : states;
}

/* Those that are not there yet are asked for. */
static bool add_kernel(wk__cuda_sequence *all, wk__cuda_native *native, const wk__nest *nest, const wk__cuda_stream *s,
                       const wk__binding *b, const wk__ptx_shape *shape, bool now) {
  const kernel *k =
      now ? wk__cuda_kernel_now(native, nest, s, shape) : wk__cuda_kernel_for(native, nest, s, b, shape, NULL);
  if (!k || !wk__cuda_kernel_fits(k, b)) return false;
  all->in_turn[all->count++] = k;
  if (wk__shape_whole(shape->mode) != shape->mode) all->scratch = wk__max(all->scratch, 8 * states_of(k, b));
  return true;
}

bool wk__cuda_find_sequence(wk__cuda_native *native, const wk__nest *nest, const wk__cuda_stream *s,
                            const wk__binding *b, const wk__ptx_shape *shape, bool now, wk__cuda_sequence *out) {
  wk__ptx_phases phases = {.count = 1, .folds = 1};
  wk__ptx_shape part = *shape, whole = *shape;
  bool all = true;
  *out = (wk__cuda_sequence){.count = 0};
  whole.mode = (uint8_t)wk__shape_whole(shape->mode);
  if (shape->phased) phases = wk__ptx_phases_of(nest);
  for (int phase = 0; phase < phases.count; phase++) {
    bool folds = phases.folds >> phase & 1;
    part.phase = whole.phase = (uint8_t)phase;
    if (folds || phases.stores >> phase & 1) all &= add_kernel(out, native, nest, s, b, &part, now);
    if (folds && whole.mode != part.mode) all &= add_kernel(out, native, nest, s, b, &whole, now);
  }
  if (shape->phased) out->scratch += values_bytes(nest, b);
  return all;
}

wk_status wk__cuda_give_sequence(const wk__cuda_sequence *all, wk__cuda_stream *s, const wk__binding *b,
                                 const wk__launch *launch) {
  int64_t capacity = 0;
  void *scratch = all->scratch ? wk__cuda_allocate(&s->head, all->scratch, &capacity) : NULL;
  wk_status status = scratch || !all->scratch ? WK_OK : wk_error_category();
  for (int n = 0; n < all->count && status == WK_OK; n++)
    status = wk__cuda_give_kernel(all->in_turn[n], s, b, launch, scratch);
  if (scratch) wk__cuda_release(&s->head, scratch, capacity);
  return status;
}

wk_status wk__cuda_native_launch(wk__cuda_native *native, wk__cuda_stream *s, const wk__nest *nest,
                                 const wk__binding *b, const wk__launch *launch, bool *out_done) {
  wk__ptx_shape shape;
  wk__cuda_sequence all;
  *out_done = false;
  if (wk__cuda_is_interpreted(nest, s->device, b, launch)) return WK_OK;
  if (!wk__shape_of(nest, s->device, b, &shape)) return WK_OK;
  if (WK_UNLIKELY(wk__cuda_chooses_shapes())) wk__cuda_choose_shape(native, s, nest, b, launch, &shape);
  *out_done = wk__cuda_find_sequence(native, nest, s, b, &shape, false, &all);
  return *out_done ? wk__cuda_give_sequence(&all, s, b, launch) : WK_OK;
}
