/* The interpreter: runs any nest, as a program of instructions (cuda/tier0.h), with a thread a value and its slots in
 * shared memory. Generated kernels take its place when there are any; its bits are theirs.
 *
 * In: a program, a launch block, the stream's faults. Tests: tests/device/, tests/cuda/. */
#include "cuda/on_device/faults.h"
#include "cuda/on_device/values.h"

enum { LANES = 32, ROUNDS = 4096 / LANES /* of a chunk */ };

extern SHARED uint64_t shared[]; /* slots, positions at the row, at the element, then states, then counters */

typedef struct run {
  const wk__cuda_program *program;
  const wk__cuda_launch_block *launch;
  const wk__cuda_instr *instrs;
  const wk__cuda_fold *folds;
  const wk__cuda_place *places;
  const int64_t *base, *start, *limit, *stride, *indirect, *params;
  faults *faults;
  SHARED uint64_t *slots, *row_at, *element_at; /* of this thread: one every `threads` words */
  SHARED uint64_t *states;                      /* (folds + 1 for scans, 2, threads): of each lane */
  SHARED uint64_t *counters;                    /* (folds + scans, levels, 2): of this thread's group */
  int threads, lane;                            /* of the block; of this thread in its group */
} run;

INLINE value get(const run *r, int slot) { return of_bits(r->slots[slot * r->threads]); }
INLINE void set(const run *r, int slot, value v) { r->slots[slot * r->threads] = v.bits; }

/* ---- positions ---- */

/* n becomes n / size; returns the rest. */
INLINE int64_t divide(int64_t *n, int64_t size) {
  if (((uint64_t)(*n | size)) >> 32 == 0) {
    uint32_t a = (uint32_t)*n, b = (uint32_t)size, q = a / b;
    *n = q;
    return a - q * b;
  }
  int64_t q = *n / size, rest = *n - q * size;
  *n = q;
  return rest;
}

/* to = from + the strides of loops [begin, end) at the linear index n. */
static __attribute__((noinline)) void move(const run *r, SHARED uint64_t *to, SHARED uint64_t *from, int begin, int end,
                                           int64_t n) {
  int walkers = r->program->walker_count, dims = r->launch->p + r->launch->r;
  for (int w = 0; w < walkers; w++) to[w * r->threads] = from ? from[w * r->threads] : (uint64_t)r->start[w];
  for (int d = end - 1; d >= begin && n; d--) {
    int64_t c = d > begin ? divide(&n, r->launch->size[d]) : n;
    for (int w = 0; c && w < walkers; w++) to[w * r->threads] += (uint64_t)(c * r->stride[w * dims + d]);
  }
}

/* ---- instructions ---- */

INLINE char *address(const run *r, const wk__cuda_instr *i, SHARED uint64_t *at) {
  int64_t offset = (int64_t)at[i->extra * r->threads];
  if (i->places != WK__CUDA_NONE) {
    const int64_t *strides = r->indirect + i->extra * WK__CUDA_DIMS;
    const wk__cuda_place *p = r->places + i->places;
    for (;; p++) {
      offset += get(r, p->slot).i * strides[p->dim];
      if (p->last) break;
    }
  }
  return (char *)r->base[i->extra] + offset * size_of(i->memory);
}

INLINE bool is_inside(const run *r, const wk__cuda_instr *i, SHARED uint64_t *at) {
  for (int b = 0; b < i->bound_count; b++) {
    int w = i->bounds + b;
    if (at[w * r->threads] >= (uint64_t)r->limit[w]) return false;
  }
  return true;
}

INLINE value checked(const run *r, const wk__cuda_instr *i) {
  int64_t index = get(r, i->in[0]).i, size = r->limit[i->extra], wrapped = index;
  if (index < 0 && !i->bound_count) wrapped += size;
  if ((uint64_t)wrapped < (uint64_t)size) return of_int(wrapped);
  note_index(r->faults, index, size, (int)i->number);
  return of_int(0);
}

/* An addition to memory that other threads may add to as well. */
static __attribute__((noinline)) void add_to(char *p, uint64_t bits, int type) {
  value v = of_bits(bits);
  int size = size_of(type);
  if (type == WK__MEMORY_F32) {
    __nvvm_atom_add_gen_f((float *)p, v.f);
  } else if (type == WK__MEMORY_F64) {
    __nvvm_atom_add_gen_d((double *)p, v.d);
  } else if (size == 8) {
    __nvvm_atom_add_gen_ll((long long *)p, v.i);
  } else if (size == 4) {
    __nvvm_atom_add_gen_i((int *)p, (int)v.i);
  } else { /* the word that it is a part of is exchanged */
    uint32_t *word = (uint32_t *)((uintptr_t)p & ~(uintptr_t)3), shift = 8 * ((uintptr_t)p & 3);
    uint32_t mask = (size == 1 ? 0xffu : 0xffffu) << shift, seen = *(volatile uint32_t *)word, before;
    bool is_float = type >= WK__MEMORY_E4M3;
    do {
      before = seen;
      uint32_t part = (before & mask) >> shift;
      value old = load_from((const char *)&part, type);
      value sum = type == WK__MEMORY_BOOL ? of_bool(old.bits | (v.bits != 0))
                  : is_float              ? of_float(old.f + v.f)
                                          : of_int(old.i + v.i);
      uint32_t after = (before & ~mask) | ((uint32_t)to_memory(sum, type) << shift & mask);
      seen = (uint32_t)__nvvm_atom_cas_gen_i((int *)word, (int)before, (int)after);
    } while (seen != before);
  }
}

static __attribute__((noinline)) void run_instr(const run *r, const wk__cuda_instr *i, SHARED uint64_t *at) {
  value out;
  int fault = 0;
  switch (i->op) {
    case LOOP_load:
      out = load_from(address(r, i, at), i->memory);
      break;
    case LOOP_masked_load:
      out = is_inside(r, i, at) ? load_from(address(r, i, at), i->memory) : round_to(get(r, i->in[0]), i->memory);
      break;
    case LOOP_store:
      store_to(address(r, i, at), get(r, i->in[0]), i->memory);
      return;
    case LOOP_store_add:
      add_to(address(r, i, at), get(r, i->in[0]).bits, i->memory);
      return;
    case LOOP_param:
      out = of_bits((uint64_t)r->params[i->extra]);
      break;
    case LOOP_constant:
      out = of_int(i->number);
      break;
    case LOOP_index:
      out = of_bits(at[i->extra * r->threads]);
      break;
    case LOOP_check_index:
      out = checked(r, i);
      break;
    case LOOP_cast:
      out = cast(get(r, i->in[0]), i->lane, i->made);
      break;
    case LOOP_round_to:
      out = round_to(get(r, i->in[0]), i->memory);
      break;
    default:
      out = map(i->op, i->lane, get(r, i->in[0]), get(r, i->in[1]), get(r, i->in[2]), &fault);
      if (fault) r->faults->bits |= fault;
  }
  set(r, i->slot, out);
}

/* ---- rounds: states are a lane's, counters a group's ---- */

INLINE partial read_state(const run *r, int k, int at) {
  return (partial){of_bits(r->states[2 * k * r->threads + at]), (int64_t)r->states[(2 * k + 1) * r->threads + at]};
}
INLINE void write_state(const run *r, int k, int at, partial p) {
  r->states[2 * k * r->threads + at] = p.v.bits;
  r->states[(2 * k + 1) * r->threads + at] = (uint64_t)p.index;
}
INLINE partial read_counter(const run *r, int k, int level) {
  SHARED uint64_t *c = r->counters + 2 * (k * r->launch->levels + level);
  return (partial){of_bits(c[0]), (int64_t)c[1]};
}
INLINE void write_counter(const run *r, int k, int level, partial p) {
  SHARED uint64_t *c = r->counters + 2 * (k * r->launch->levels + level);
  c[0] = p.v.bits;
  c[1] = (uint64_t)p.index;
}

/* A chunk's value goes up like a carry. */
INLINE void count_up(const run *r, int k, int op, int lane, int64_t chunk, partial value) {
  int level = 0;
  for (; chunk >> level & 1; level++) value = combine(op, lane, read_counter(r, k, level), value);
  write_counter(r, k, level, value);
}

INLINE partial count_all(const run *r, int k, int op, int lane, int64_t chunks) {
  int level = __builtin_ctzll((unsigned long long)chunks);
  partial all = read_counter(r, k, level);
  for (level++; chunks >> level; level++)
    if (chunks >> level & 1) all = combine(op, lane, read_counter(r, k, level), all);
  return all;
}

INLINE partial fresh(const wk__cuda_fold *f) { return (partial){identity_of(f->op, f->lane), -1}; }

INLINE void take(const run *r, int k, const wk__cuda_fold *f, int64_t e) {
  int me = thread_index();
  partial state = read_state(r, k, me), value = {get(r, f->from), e};
  write_state(r, k, me, is_arg(f->op) && state.index < 0 ? value : combine(f->op, f->lane, state, value));
}

/* The lanes of a chunk in halves; then they start over. */
static __attribute__((noinline)) void fold_chunk(const run *r, int k, const wk__cuda_fold *f, int64_t chunk) {
  int me = thread_index();
  for (int half = LANES / 2; half > 0; half /= 2) {
    wait_for_warp();
    if (r->lane >= half) continue;
    partial mine = read_state(r, k, me), other = read_state(r, k, me + half);
    bool alone = is_arg(f->op) && other.index < 0;
    if (!alone) write_state(r, k, me, combine(f->op, f->lane, mine, other));
  }
  wait_for_warp();
  if (r->lane == 0) count_up(r, k, f->op, f->lane, chunk, read_state(r, k, me));
  wait_for_warp();
  write_state(r, k, me, fresh(f));
}

/* The prefixes of a round, element after element; the counter's level 0 has the chunks before, level 1 the prefix so
 * far in this one. */
static __attribute__((noinline)) void scan_round(const run *r, const wk__cuda_instr *i, int64_t round, int count) {
  int me = thread_index(), k = r->program->fold_count + i->extra, s = r->program->fold_count;
  wait_for_warp();
  write_state(r, s, me, (partial){get(r, i->in[0]), 0});
  wait_for_warp();
  if (r->lane == 0) {
    partial none = {identity_of(i->op == LOOP_scan_prod ? LOOP_reduce_prod : LOOP_reduce_sum, i->lane), 0};
    partial before = round ? read_counter(r, k, 0) : none, inside = none;
    if (round % ROUNDS) inside = read_counter(r, k, 1);
    for (int l = 0; l < count; l++) {
      inside = combine(i->op, i->lane, inside, read_state(r, s, me + l));
      write_state(r, s, me + l, combine(i->op, i->lane, before, inside));
    }
    if (round % ROUNDS == ROUNDS - 1) before = combine(i->op, i->lane, before, inside);
    write_counter(r, k, 0, before);
    write_counter(r, k, 1, inside);
  }
  wait_for_warp();
  if (r->lane < count) set(r, i->slot, read_state(r, s, me).v);
}

INLINE bool is_scan(int op) { return op == LOOP_scan_sum || op == LOOP_scan_prod; }

/* Elements LANES * round + lane of the group's row. */
static void run_round(const run *r, const wk__cuda_phase *phase, int64_t round) {
  int64_t e = round * LANES + r->lane, left = r->launch->length - round * LANES;
  bool there = e < r->launch->length;
  if (there) move(r, r->element_at, r->row_at, r->launch->p, r->launch->p + r->launch->r, e);
  for (int n = phase->elements; n < phase->end; n++) {
    const wk__cuda_instr *i = &r->instrs[n];
    if (is_scan(i->op))
      scan_round(r, i, round, left < LANES ? (int)left : LANES);
    else if (there)
      run_instr(r, i, r->element_at);
  }
  for (int f = phase->folds; f < phase->fold_end; f++) {
    if (there) take(r, f, &r->folds[f], e);
    if (round % ROUNDS == ROUNDS - 1 || left <= LANES) fold_chunk(r, f, &r->folds[f], round / ROUNDS);
  }
}

static void finish_folds(const run *r, const wk__cuda_phase *phase) {
  int64_t chunks = (r->launch->length + LANES * ROUNDS - 1) / (LANES * ROUNDS);
  wait_for_warp();
  for (int f = phase->folds; f < phase->fold_end; f++) {
    const wk__cuda_fold *fold = &r->folds[f];
    partial all = chunks ? count_all(r, f, fold->op, fold->lane, chunks) : fresh(fold);
    set(r, fold->slot, is_arg(fold->op) ? of_int(all.index) : all.v);
  }
}

static void run_row(const run *r) {
  int64_t rounds = (r->launch->length + LANES - 1) / LANES;
  for (int p = 0; p < r->program->phase_count; p++) {
    const wk__cuda_phase *phase = &r->program->phases[p];
    for (int n = phase->rows; n < phase->elements; n++) {
      const wk__cuda_instr *i = &r->instrs[n];
      if (r->lane == 0 || (i->op != LOOP_store && i->op != LOOP_store_add)) run_instr(r, i, r->row_at);
    }
    for (int f = phase->folds; f < phase->fold_end; f++) write_state(r, f, thread_index(), fresh(&r->folds[f]));
    bool by_elements = phase->end > phase->elements || phase->fold_end > phase->folds;
    for (int64_t k = 0; by_elements && k < rounds; k++) run_round(r, phase, k);
    if (phase->fold_end > phase->folds) finish_folds(r, phase);
  }
}

INLINE const void *part(const void *start, int32_t bytes) { return (const char *)start + bytes; }

static run begin(const wk__cuda_program *p, const wk__cuda_launch_block *l, faults *seen) {
  int me = thread_index(), threads = thread_count();
  SHARED uint64_t *words = shared + me, *states = shared + (p->slot_count + 2 * p->walker_count) * threads;
  int state_count = p->fold_count + (p->scan_count > 0), group = p->has_rows ? me / LANES : 0;
  return (run){.program = p,
               .launch = l,
               .instrs = part(p, p->instrs),
               .folds = part(p, p->folds),
               .places = part(p, p->places),
               .base = part(l, l->base),
               .start = part(l, l->start),
               .limit = part(l, l->limit),
               .stride = part(l, l->stride),
               .indirect = part(l, l->indirect),
               .params = part(l, l->params),
               .faults = seen,
               .slots = words,
               .row_at = words + p->slot_count * threads,
               .element_at = words + (p->slot_count + p->walker_count) * threads,
               .states = states,
               .counters = states + 2 * state_count * threads + 2 * group * (p->fold_count + p->scan_count) * l->levels,
               .threads = threads,
               .lane = p->has_rows ? me % LANES : 0};
}

KERNEL(tier0)(const wk__cuda_program *program, const wk__cuda_launch_block *launch, faults *seen) {
  run r = begin(program, launch, seen);
  int width = program->has_rows ? LANES : 1;
  int64_t groups = r.threads / width, step = groups * block_count();
  for (int64_t row = block_index() * groups + thread_index() / width; row < launch->rows; row += step) {
    move(&r, r.row_at, 0, 0, launch->p, row);
    run_row(&r);
  }
}
