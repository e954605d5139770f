/* Runs program instances. In: a plan and a launch. Out: memory that they have written. Test:
 * tests/python/test_tiles.py. */
#include "cpu/tile/internal.h"

static int64_t count_of(const tile_run *r, wk__tile v) { return wk__tile_elements(type_of(r, v)); }

/* As the dtype has it, after an operation in the compute dtype. */
static void round_value(const tile_run *r, wk__tile v) {
  const wk__tile_type *t = type_of(r, v);
  r->primitives->round_to[t->dtype](value_of(r, v), value_of(r, v), NULL, NULL, count_of(r, v));
}

static void run_parameter(const tile_run *r, wk__tile v, const wk__tile_instr *i) {
  int64_t bits = r->launch->args[i->number.i];
  union {
    int64_t i;
    double d;
  } u = {bits};
  switch (wk__tile_lane(&i->type)) {
    case WK__LANE_F32:
      *(float *)value_of(r, v) = (float)u.d;
      break;
    case WK__LANE_BOOL:
      *(uint8_t *)value_of(r, v) = bits != 0;
      break;
    default:
      *(int64_t *)value_of(r, v) = bits;
  }
  if (wk__tile_needs_rounding(i)) round_value(r, v);
}

static void run_map(const tile_run *r, wk__tile v, const wk__tile_instr *i) {
  const wk__tile *o = i->operands;
  wk__lane_type lane = wk__tile_lane(type_of(r, o[i->map == WK__LOOP_where]));
  r->primitives->map[i->map][lane](value_of(r, v), value_of(r, o[0]), o[1] ? value_of(r, o[1]) : NULL,
                                   o[2] ? value_of(r, o[2]) : NULL, count_of(r, v));
  if (wk__tile_needs_rounding(i)) round_value(r, v);
}

static void run_cast(const tile_run *r, wk__tile v, const wk__tile_instr *i) {
  const wk__tile_type *from = type_of(r, i->operands[0]);
  wk__lane_type a = wk__tile_lane(from), b = wk__tile_lane(&i->type);
  int64_t n = count_of(r, v);
  if (a == b)
    memcpy(value_of(r, v), value_of(r, i->operands[0]), (size_t)(n * item_of(from)));
  else
    r->primitives->cast[a][b](value_of(r, v), value_of(r, i->operands[0]), NULL, NULL, n);
  if (wk__tile_needs_rounding(i)) round_value(r, v);
}

static void run_bits(const tile_run *r, wk__tile v, const wk__tile_instr *i) {
  int64_t n = count_of(r, v);
  r->primitives->store[type_of(r, i->operands[0])->dtype](scratch_of(r, 0), value_of(r, i->operands[0]), 1, n, n, 1);
  r->primitives->load[i->type.dtype](value_of(r, v), scratch_of(r, 0), 1, n, n, 1);
}

static void run_range(const tile_run *r, wk__tile v, const wk__tile_instr *i) {
  int64_t *out = value_of(r, v), n = count_of(r, v);
  for (int64_t e = 0; e < n; e++) out[e] = i->number.i + e;
}

static void run_offset(const tile_run *r, wk__tile v, const wk__tile_instr *i) {
  const wk__tile_type *index = type_of(r, i->operands[1]);
  int64_t *out = value_of(r, v), n = count_of(r, v), size = wk__dtypes[i->type.dtype].size;
  const int64_t *p = value_of(r, i->operands[0]), *at = value_of(r, i->operands[1]);
  if (wk__tile_lane(index) == WK__LANE_BOOL) {
    const uint8_t *bytes = value_of(r, i->operands[1]);
    for (int64_t e = 0; e < n; e++) out[e] = p[e] + bytes[e] * size;
    return;
  }
  for (int64_t e = 0; e < n; e++) out[e] = (int64_t)((uint64_t)p[e] + (uint64_t)at[e] * (uint64_t)size);
}

/* 2^x = e^((x - n) ln 2) 2^n with n = round(x), the scale in two steps for what is small; a constant is 1 / ln 2. */
static void run_exp2_f32(const tile_run *r, wk__tile v, wk__tile x, int64_t n) {
  const wk__primitives *p = r->primitives;
  float *rounded = scratch_of(r, 0), *rest = scratch_of(r, 1), *out = value_of(r, v);
  const float *in = value_of(r, x);
  for (int64_t e = 0; e < n; e++) {
    float c = in[e] < 129.0f ? in[e] : in[e] == in[e] ? 129.0f : in[e];
    rest[e] = c > -160.0f ? c : c == c ? -160.0f : c;
  }
  p->map[WK__LOOP_round][WK__LANE_F32](rounded, rest, NULL, NULL, n);
  for (int64_t e = 0; e < n; e++) rest[e] = (rest[e] - rounded[e]) * 0x1.62e43p-1f;
  p->map[WK__LOOP_exp][WK__LANE_F32](rest, rest, NULL, NULL, n);
  for (int64_t e = 0; e < n; e++) {
    int32_t whole = rounded[e] == rounded[e] ? (int32_t)rounded[e] : 0, first = whole >> 1;
    union {
      uint32_t bits;
      float f;
    } a = {(uint32_t)(first + 127) << 23}, b = {(uint32_t)(whole - first + 127) << 23};
    out[e] = rest[e] * a.f * b.f;
  }
}

static void run_exp2_f64(const tile_run *r, wk__tile v, wk__tile x, int64_t n) {
  const wk__primitives *p = r->primitives;
  double *rounded = scratch_of(r, 0), *rest = scratch_of(r, 1), *out = value_of(r, v);
  const double *in = value_of(r, x);
  for (int64_t e = 0; e < n; e++) {
    double c = in[e] < 1025.0 ? in[e] : in[e] == in[e] ? 1025.0 : in[e];
    rest[e] = c > -1100.0 ? c : c == c ? -1100.0 : c;
  }
  p->map[WK__LOOP_round][WK__LANE_F64](rounded, rest, NULL, NULL, n);
  for (int64_t e = 0; e < n; e++) rest[e] = (rest[e] - rounded[e]) * 0x1.62e42fefa39efp-1;
  p->map[WK__LOOP_exp][WK__LANE_F64](rest, rest, NULL, NULL, n);
  for (int64_t e = 0; e < n; e++) {
    int64_t whole = rounded[e] == rounded[e] ? (int64_t)rounded[e] : 0, first = whole >> 1;
    union {
      uint64_t bits;
      double d;
    } a = {(uint64_t)(first + 1023) << 52}, b = {(uint64_t)(whole - first + 1023) << 52};
    out[e] = rest[e] * a.d * b.d;
  }
}

static void run_exp2(const tile_run *r, wk__tile v, const wk__tile_instr *i) {
  if (wk__tile_lane(&i->type) == WK__LANE_F32)
    run_exp2_f32(r, v, i->operands[0], count_of(r, v));
  else
    run_exp2_f64(r, v, i->operands[0], count_of(r, v));
  if (wk__tile_needs_rounding(i)) round_value(r, v);
}

static void run_log2(const tile_run *r, wk__tile v, const wk__tile_instr *i) {
  wk__lane_type lane = wk__tile_lane(&i->type);
  int64_t n = count_of(r, v);
  r->primitives->map[WK__LOOP_log][lane](value_of(r, v), value_of(r, i->operands[0]), NULL, NULL, n);
  if (lane == WK__LANE_F32)
    for (int64_t e = 0; e < n; e++) ((float *)value_of(r, v))[e] *= 0x1.715476p0f;
  else
    for (int64_t e = 0; e < n; e++) ((double *)value_of(r, v))[e] *= 0x1.71547652b82fep0;
  if (wk__tile_needs_rounding(i)) round_value(r, v);
}

static void run_value(tile_run *r, wk__tile v, const wk__tile_instr *i) {
  switch (i->op) {
    case WK__TILE_parameter:
      run_parameter(r, v, i);
      break;
    case WK__TILE_constant:
      wk__number_fill(value_of(r, v), i->number, wk__tile_lane(&i->type), count_of(r, v));
      break;
    case WK__TILE_program_id:
      *(int64_t *)value_of(r, v) = r->ids[i->number.i];
      break;
    case WK__TILE_num_programs:
      *(int64_t *)value_of(r, v) = r->launch->grid[i->number.i];
      break;
    case WK__TILE_range:
      run_range(r, v, i);
      break;
    case WK__TILE_map:
      run_map(r, v, i);
      break;
    case WK__TILE_exp2:
      run_exp2(r, v, i);
      break;
    case WK__TILE_log2:
      run_log2(r, v, i);
      break;
    case WK__TILE_cast:
      run_cast(r, v, i);
      break;
    case WK__TILE_bits:
      run_bits(r, v, i);
      break;
    case WK__TILE_view:
      memcpy(value_of(r, v), value_of(r, i->operands[0]), (size_t)(count_of(r, v) * item_of(&i->type)));
      break;
    case WK__TILE_broadcast:
      tile_broadcast(r, v);
      break;
    case WK__TILE_permute:
      tile_permute(r, v);
      break;
    case WK__TILE_offset:
      run_offset(r, v, i);
      break;
    case WK__TILE_reduce:
      tile_reduce(r, v);
      break;
    case WK__TILE_scan:
      tile_scan(r, v);
      break;
    case WK__TILE_dot:
      tile_dot(r, v);
      break;
    case WK__TILE_philox:
      tile_philox(r, v);
      break;
    case WK__TILE_load:
      tile_load(r, v);
      break;
    case WK__TILE_store:
      tile_store(r, v);
      break;
    case WK__TILE_atomic:
      tile_atomic(r, v);
      break;
    default:
      break;
  }
}

/* ---- regions ---- */

static void copy_value(const tile_run *r, wk__tile to, wk__tile from) {
  memcpy(value_of(r, to), value_of(r, from), (size_t)(count_of(r, to) * item_of(type_of(r, to))));
}

/* The sets from v on, all at once: a value that is itself a carry that is set before is read first. -> the last one */
static wk__tile run_sets(const tile_run *r, wk__tile v) {
  const wk__tile_instr *all = r->plan->kernel->instrs;
  wk__tile end = v;
  while (all[end + 1].op == WK__TILE_set) end++;
  for (wk__tile s = v; s <= end; s++) {
    bool is_read_later = false;
    for (wk__tile t = s + 1; t <= end; t++) is_read_later |= all[t].operands[1] == all[s].operands[0];
    if (!is_read_later) {
      copy_value(r, all[s].operands[0], all[s].operands[1]);
      continue;
    }
    /* A turn of carries, such as a, b = b, a + b: through memory that the plan has for it. */
    void *kept = scratch_of(r, 3);
    int64_t bytes = count_of(r, all[s].operands[0]) * item_of(type_of(r, all[s].operands[0]));
    memcpy(kept, value_of(r, all[s].operands[1]), (size_t)bytes);
    (void)run_sets(r, s + 1);
    memcpy(value_of(r, all[s].operands[0]), kept, (size_t)bytes);
    return end;
  }
  return end;
}

static bool goes_on(const tile_run *r, const wk__tile_instr *i, int64_t index) {
  int64_t step = *(int64_t *)value_of(r, i->operands[2]), to = *(int64_t *)value_of(r, i->operands[1]);
  return step > 0 ? index < to : index > to;
}

/* A loop need not end: one that waits for a lock that is never free. */
static bool is_ended(tile_run *r) {
  enum { TRIPS_BETWEEN = 1 << 12 };
  if (++r->trips % TRIPS_BETWEEN) return false;
  if (wk__thread_index() == 0 && r->launch->is_interrupted && r->launch->is_interrupted())
    atomic_store(r->ended, WK_INTERRUPTED);
  r->status = (wk_status)atomic_load(r->ended);
  return r->status != WK_OK;
}

static void run_program(tile_run *r) {
  const wk__tile_kernel *k = r->plan->kernel;
  const wk__tile *partner = r->plan->partner;
  for (wk__tile v = 1; v < k->count; v++) {
    const wk__tile_instr *i = &k->instrs[v];
    switch (i->op) {
      case WK__TILE_carry:
        if (i->operands[0]) copy_value(r, v, i->operands[0]);
        break;
      case WK__TILE_set:
        v = run_sets(r, v);
        break;
      case WK__TILE_for:
        *(int64_t *)value_of(r, v) = *(int64_t *)value_of(r, i->operands[0]);
        if (!goes_on(r, i, *(int64_t *)value_of(r, v))) v = partner[v];
        break;
      case WK__TILE_test:
        if (!*(uint8_t *)value_of(r, i->operands[0])) v = partner[v];
        break;
      case WK__TILE_if:
        if (!*(uint8_t *)value_of(r, i->operands[0])) v = partner[v];
        break;
      case WK__TILE_else:
        v = partner[v];
        break;
      case WK__TILE_end: {
        wk__tile begin = partner[v];
        const wk__tile_instr *loop = &k->instrs[begin];
        if (loop->op != WK__TILE_if && is_ended(r)) return;
        if (loop->op == WK__TILE_while) v = begin;
        if (loop->op != WK__TILE_for) break;
        int64_t *index = value_of(r, begin);
        *index += *(int64_t *)value_of(r, loop->operands[2]);
        if (goes_on(r, loop, *index)) v = begin;
        break;
      }
      case WK__TILE_return:
        return;
      default:
        run_value(r, v, i);
    }
  }
}

/* ---- launches ---- */

typedef struct job {
  const tile_plan *plan;
  const wk__tile_launch *launch;
  _Atomic(int) status; /* the first that is not WK_OK */
} job;

static void run_range_of(void *context, int64_t begin, int64_t end) {
  job *j = context;
  tile_run r = {.plan = j->plan, .launch = j->launch, .primitives = wk__primitives_get(), .ended = &j->status};
  r.memory = wk__alloc_aligned((size_t)j->plan->memory, 64);
  if (!r.memory) {
    atomic_store(&j->status, WK_OUT_OF_MEMORY);
    return;
  }
  const int32_t *grid = j->launch->grid;
  for (int64_t n = begin; n < end && r.status == WK_OK; n++) {
    r.ids[0] = (int32_t)(n % grid[0]), r.ids[1] = (int32_t)(n / grid[0] % grid[1]);
    r.ids[2] = (int32_t)(n / grid[0] / grid[1]);
    run_program(&r);
  }
  wk__kernel_fault = 0; /* an integer that was divided by zero: any number, as on a GPU */
  if (r.status != WK_OK) atomic_store(&j->status, r.status);
  wk__free(r.memory);
}

wk_status wk__cpu_launch_tiles(wk__stream *none, wk__tile_kernel *kernel, const wk__tile_launch *launch) {
  (void)none;
  WK_TRY(wk__cpu_level_check());
  wk__tile_code *code = atomic_load(&kernel->codes[WK_CPU]), *before = NULL;
  if (!code) {
    tile_plan *plan = tile_prepare(kernel);
    if (!plan) return wk_error_category();
    code = &plan->head;
    if (!atomic_compare_exchange_strong(&kernel->codes[WK_CPU], &before, code)) {
      code->release(code);
      code = before;
    }
  }
  job j = {.plan = (tile_plan *)code, .launch = launch};
  int64_t programs = (int64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
  wk__parallel_for(programs, 1, run_range_of, &j);
  int status = atomic_load(&j.status);
  if (status == WK_INTERRUPTED) return WK_INTERRUPTED;
  return status == WK_OK ? WK_OK : wk_fail((wk_status)status, "a tile kernel has found no memory");
}
