/* The interpreter of one thread. Comes in: a thread that can go on. Goes out: the same thread, ended, failed, or at an
 * instruction for which others have to come.
 *
 * One case for each operation, reached through a table of labels; those of ptx_operations.h are made from their rows.
 * Jumps back use up a budget, and at its end the thread lets others run, so that threads may wait for each other in
 * loops. Tests: tests/test_kernels.c, tests/test_control.c. */
#include "ptx_run.h"

#include "cuda/driver.h"
#include "ptx_values.h"

enum { BUDGET = 1 << 16 };

/* ---- frames ---- */

static uint32_t lane_mask(ptx_special special, uint32_t lane) {
  uint32_t equal = (uint32_t)1 << lane, less = equal - 1;
  switch (special) {
    case PTX_SPECIAL_LANEMASK_EQ:
      return equal;
    case PTX_SPECIAL_LANEMASK_LT:
      return less;
    case PTX_SPECIAL_LANEMASK_LE:
      return less | equal;
    case PTX_SPECIAL_LANEMASK_GT:
      return ~(less | equal);
    default:
      return ~less;
  }
}

static uint64_t special_value(const ptx_thread *t, ptx_special special) {
  const ptx_block *block = t->block;
  const ptx_launch *launch = block->launch;
  if (special <= PTX_SPECIAL_TID_Z) return t->index[special - PTX_SPECIAL_TID_X];
  if (special <= PTX_SPECIAL_NTID_Z) return launch->threads[special - PTX_SPECIAL_NTID_X];
  if (special <= PTX_SPECIAL_CTAID_Z) return block->index[special - PTX_SPECIAL_CTAID_X];
  if (special <= PTX_SPECIAL_NCTAID_Z) return launch->grid[special - PTX_SPECIAL_NCTAID_X];
  switch (special) {
    case PTX_SPECIAL_LANEID:
      return t->lane;
    case PTX_SPECIAL_WARPID:
      return t->warp;
    case PTX_SPECIAL_NWARPID:
      return block->warp_count;
    case PTX_SPECIAL_SMID:
      return block->number % PTX_MULTIPROCESSORS;
    case PTX_SPECIAL_NSMID:
      return PTX_MULTIPROCESSORS;
    case PTX_SPECIAL_GRIDID:
      return launch->id;
    case PTX_SPECIAL_DYNAMIC_SMEM_SIZE:
      return launch->dynamic_bytes;
    case PTX_SPECIAL_TOTAL_SMEM_SIZE:
      return block->shared_bytes;
    case PTX_SPECIAL_DYNAMIC_SHARED:
      return block->dynamic_base;
    case PTX_SPECIAL_LOCAL_BASE:
      return t->local_base;
    default:
      return lane_mask(special, t->lane);
  }
}

static void fill_specials(const ptx_thread *t, const ptx_function *f, uint64_t *r) {
  for (uint32_t i = 0; i < f->special_count; i++)
    r[f->specials[i].slot] = special_value(t, (ptx_special)f->specials[i].special);
}

void ptx_begin(ptx_thread *t) {
  t->function = t->block->launch->function;
  t->pc = t->function->code;
  t->state = PTX_READY;
  t->local_base = 0;
  t->carry = 0;
  t->budget = BUDGET;
  t->copy_count = t->group = 0;
  fill_specials(t, t->function, t->r);
}

/* What a call keeps, in the slots before the callee's frame. */
enum { SAVED_PC, SAVED_FRAME, SAVED_FUNCTION, SAVED_LOCAL, SAVED_COUNT };

static bool call(ptx_thread *t, const ptx_ins *ins) {
  const ptx_function *caller = t->function, *callee = caller->module->functions[ins->imm];
  const uint32_t *arguments = caller->lists + ins->a + callee->result_count;
  uint64_t *stack_end = t->block->launch->function->waits ? t->block->frames + (t->number + 1) * t->block->frame_slots
                                                          : t->block->frames + t->block->frame_slots;
  uint64_t *saved = t->r + caller->slot_count, *r = saved + SAVED_COUNT;
  uint32_t local = (t->local_base + caller->local_bytes + 15) & ~15u;
  if (!callee->is_defined) {
    int result = strcmp(callee->name, "__assertfail") ? CUDA_ERROR_LAUNCH_FAILED : 710;
    ptx_fault(t, ins, result, "call of %s, which is not defined", callee->name);
    return false;
  }
  if (r + callee->slot_count > stack_end || local + callee->local_bytes > t->block->local_bytes) {
    ptx_fault(t, ins, CUDA_ERROR_LAUNCH_FAILED, "the stack overflows");
    return false;
  }
  saved[SAVED_PC] = (uint64_t)(uintptr_t)ins, saved[SAVED_FRAME] = (uint64_t)(uintptr_t)t->r;
  saved[SAVED_FUNCTION] = (uint64_t)(uintptr_t)caller, saved[SAVED_LOCAL] = t->local_base;
  t->local_base = local;
  uint32_t registers = callee->register_count; /* which hold what was there: there are many, and many calls */
  if (callee->slot_count > registers)
    memcpy(r + registers, callee->frame + registers, (callee->slot_count - registers) * sizeof *r);
  fill_specials(t, callee, r);
  for (uint32_t i = 0; i < callee->parameter_count; i++)
    memcpy(&r[callee->parameters[i].slot], &t->r[arguments[i]], callee->parameters[i].bytes);
  t->function = callee, t->r = r, t->pc = callee->code;
  return true;
}

/* False: there is no caller. */
static bool ret(ptx_thread *t) {
  const ptx_function *callee = t->function;
  if (callee->is_entry) return false;
  const uint64_t *saved = t->r - SAVED_COUNT;
  const ptx_ins *at = (const ptx_ins *)(uintptr_t)saved[SAVED_PC];
  uint64_t *r = (uint64_t *)(uintptr_t)saved[SAVED_FRAME];
  const ptx_function *caller = (const ptx_function *)(uintptr_t)saved[SAVED_FUNCTION];
  t->local_base = (uint32_t)saved[SAVED_LOCAL];
  for (uint32_t i = 0; i < callee->result_count; i++) {
    uint64_t *to = &r[caller->lists[at->a + i]];
    memcpy(to, &t->r[callee->results[i].slot], callee->results[i].bytes);
  }
  t->function = caller, t->r = r, t->pc = at + 1;
  return true;
}

/* ---- single operations ---- */

static void pack(const ptx_thread *t, const ptx_ins *i) {
  uint64_t value = 0, mask = ~(uint64_t)0 >> (64 - 8 * i->bytes);
  for (int k = 0; k < i->count; k++) value |= (t->r[t->function->lists[i->a + (uint32_t)k]] & mask) << 8 * i->bytes * k;
  t->r[i->d] = value;
}

static void unpack(const ptx_thread *t, const ptx_ins *i) {
  uint64_t value = t->r[i->a], mask = ~(uint64_t)0 >> (64 - 8 * i->bytes);
  for (int k = 0; k < i->count; k++) t->r[t->function->lists[i->d + (uint32_t)k]] = value >> 8 * i->bytes * k & mask;
}

static uint64_t clock_value(int64_t special) {
  uint64_t now = ptx_clock();
  switch (special) {
    case PTX_SPECIAL_CLOCK:
    case PTX_SPECIAL_GLOBALTIMER_LO:
      return U32(now);
    case PTX_SPECIAL_CLOCK_HI:
    case PTX_SPECIAL_GLOBALTIMER_HI:
      return now >> 32;
    default:
      return now;
  }
}

static uint64_t window_of(int64_t space) {
  switch (space) {
    case PTX_SHARED:
      return memory.base + PTX_WINDOW_SHARED;
    case PTX_LOCAL:
      return memory.base + PTX_WINDOW_LOCAL;
    case PTX_PARAM:
      return memory.base + PTX_WINDOW_PARAM;
    default:
      return 0;
  }
}

static bool is_in_space(uint64_t address, int64_t space) {
  uint64_t offset = address - memory.base;
  if (space == PTX_GLOBAL) return offset >= 3 * (uint64_t)PTX_WINDOW_BYTES;
  return address - window_of(space) < PTX_WINDOW_BYTES;
}

static bool combine(int64_t how, bool a, bool b) { return how == 1 ? a & b : how == 2 ? a | b : how == 3 ? a ^ b : a; }

/* The comparison of one half of a pair (0 the lower), or of two values. */
static bool holds(const uint64_t *r, const ptx_ins *i, int half) {
  ptx_type type = ptx_half_of(i->type);
  uint64_t a = r[i->a] >> 16 * half, b = r[i->b] >> 16 * half;
  return ptx_compare(type ? type : i->type, (ptx_comparison)(i->imm & 0xff), a, b, i->mod & PTX_MOD_FTZ);
}

/* The second predicate is of the opposite, or of a pair's upper half. All is read before d is written, which may be c.
 */
static void compare(uint64_t *r, const ptx_ins *i) {
  bool first = holds(r, i, 0), other = r[i->c] & 1, second = ptx_half_of(i->type) ? holds(r, i, 1) : !first;
  r[i->d] = combine(i->imm >> 8, first, other);
  r[i->e] = combine(i->imm >> 8, second, other);
}

static uint64_t true_value(ptx_type type) {
  switch (type) {
    case PTX_F32:
      return 0x3f800000;
    case PTX_F16:
    case PTX_F16X2:
      return 0x3c00;
    case PTX_BF16:
    case PTX_BF16X2:
      return 0x3f80;
    default:
      return ptx_types[type].bytes == 2 ? 0xffff : UINT32_MAX;
  }
}

static uint64_t set(const uint64_t *r, const ptx_ins *i) {
  bool pair = ptx_half_of(i->type), other = r[i->c] & 1;
  uint64_t value = true_value(i->type2), result = combine(i->imm >> 8, holds(r, i, 0), other) ? value : 0;
  if (!pair) return result;
  return (result & 0xffff) | (combine(i->imm >> 8, holds(r, i, 1), other) ? (value & 0xffff) << 16 : 0);
}

static bool is_target(ptx_thread *t, const ptx_ins *i) {
  uint32_t index = U32(t->r[i->a]);
  if (index < (uint64_t)i->imm) return true;
  ptx_fault(t, i, CUDA_ERROR_LAUNCH_FAILED, "index %u of a table of %d targets", index, (int)i->imm);
  return false;
}

static void arrive(ptx_thread *t, uint64_t number) {
  ptx_barrier *barrier = &t->block->barriers[number % PTX_BARRIERS];
  barrier->arrived++;
  barrier->warps |= (uint32_t)1 << t->warp;
}

/* ---- the loop ---- */

/* Whether the thread goes on after a budget: in kernels without waits there are no others to let run. */
static bool goes_on(ptx_thread *t, const ptx_ins *i) {
  t->budget = BUDGET;
  uint64_t deadline = t->block->launch->deadline;
  if (deadline && ptx_clock() > deadline) {
    ptx_fault(t, i, 702, "the kernel takes too long");
    return false;
  }
  return !t->block->launch->function->waits;
}

/* Memory has no type: a kernel may write it as one and read it as another. */
typedef uint16_t __attribute__((may_alias)) word16;
typedef uint32_t __attribute__((may_alias)) word32;
typedef uint64_t __attribute__((may_alias)) word64;

static inline uint64_t load(const uint8_t *from, unsigned bytes) {
  switch (bytes) {
    case 1:
      return *from;
    case 2:
      return *(const word16 *)from;
    case 4:
      return *(const word32 *)from;
    default:
      return *(const word64 *)from;
  }
}

static inline void store(uint8_t *to, unsigned bytes, uint64_t value) {
  switch (bytes) {
    case 1:
      *to = (uint8_t)value;
      return;
    case 2:
      *(word16 *)to = (uint16_t)value;
      return;
    case 4:
      *(word32 *)to = (uint32_t)value;
      return;
    default:
      *(word64 *)to = value;
  }
}

/* The usual ways of an access, and ptx_at for the others. */
static inline uint8_t *at_global(ptx_thread *t, const ptx_ins *i, unsigned device, ptx_purpose purpose) {
  uint64_t address = t->r[i->a] + (uint64_t)i->imm;
  uint8_t *at = memory_device(address, i->bytes, device);
  return __builtin_expect(at != NULL, 1) ? at : ptx_at(t, i, PTX_GLOBAL, address, i->bytes, purpose);
}

static inline uint8_t *at_shared(ptx_thread *t, const ptx_ins *i, uint8_t *shared, uint32_t size, ptx_purpose purpose) {
  uint32_t address = (uint32_t)(t->r[i->a] + (uint64_t)i->imm), bytes = i->bytes;
  bool good = shared && !(address & (bytes - 1)) && address < size && size - address >= bytes;
  return good ? shared + address : ptx_at(t, i, PTX_SHARED, address, bytes, purpose);
}

void ptx_run(ptx_thread *t) {
  static const void *const labels[] = {
#define X(name, ...) &&do_##name,
      PTX_OPERATIONS(X) PTX_CONTROL(X)
#undef X
  };
  uint64_t *r = t->r;
  const ptx_ins *i = t->pc, *code = t->function->code;
  const unsigned device = (unsigned)t->block->launch->device;
  uint8_t *const shared = t->block->races ? NULL : t->block->shared;
  const uint32_t shared_bytes = t->block->shared_bytes;
  uint8_t *at;
  t->state = PTX_READY;

#define DISPATCH goto *labels[i->op]
#define NEXT  \
  do {        \
    i++;      \
    DISPATCH; \
  } while (0)
#define JUMP(to)                                            \
  do {                                                      \
    const ptx_ins *target = code + (to);                    \
    if (target <= i && --t->budget < 0 && !goes_on(t, i)) { \
      t->pc = target;                                       \
      return;                                               \
    }                                                       \
    i = target;                                             \
    DISPATCH;                                               \
  } while (0)

#define A r[i->a]
#define B r[i->b]
#define C r[i->c]
#define E r[i->e]
#define CC (&t->carry)
#define MOD i->mod

  DISPATCH;

#define X(name, words, signature, expression)   \
  do_##name : r[i->d] = (uint64_t)(expression); \
  NEXT;
  PTX_OPERATIONS(X)
#undef X

/* clang-format off */
do_MOV:          r[i->d] = A; NEXT;
do_PACK:         pack(t, i); NEXT;
do_UNPACK:       unpack(t, i); NEXT;
do_CLOCK:        r[i->d] = clock_value(i->imm); NEXT;
do_CVTA:         r[i->d] = A + window_of(i->imm); NEXT;
do_CVTA_TO:      r[i->d] = A - window_of(i->imm); NEXT;
do_ISSPACEP:     r[i->d] = is_in_space(A, i->imm); NEXT;
do_SETP:         compare(r, i); NEXT;
do_SET:          r[i->d] = set(r, i); NEXT;
do_CVT:          r[i->d] = ptx_convert(i->type, i->type2, i->mod, A); NEXT;
do_CVT_U32:      r[i->d] = U32(A); NEXT;
do_CVT_S32:      r[i->d] = (uint64_t)S32(A); NEXT;
do_CVT_F32_S32:  r[i->d] = ptx_float_bits((float)S32(A)); NEXT;
do_CVT_F32_BF16: r[i->d] = ptx_bf16_to_f32(A); NEXT;
do_CVT_BF16_F32: r[i->d] = ptx_f32_to_bf16(A); NEXT;
do_CVT_PAIR:     r[i->d] = ptx_convert_pair(i->type, A, B, i->mod); NEXT;

do_LD_GLOBAL: at = at_global(t, i, device, PTX_READ); goto read;
do_LD_SHARED: at = at_shared(t, i, shared, shared_bytes, PTX_READ); goto read;
do_LD_PARAM:  at = ptx_at(t, i, PTX_PARAM, A + (uint64_t)i->imm, i->bytes, PTX_READ); goto read;
do_ST_GLOBAL: at = at_global(t, i, device, PTX_WRITE); goto write;
do_ST_SHARED: at = at_shared(t, i, shared, shared_bytes, PTX_WRITE); goto write;
read:         if (!at) goto end; r[i->d] = load(at, i->bytes); NEXT;
write:        if (!at) goto end; store(at, i->bytes, B); NEXT;
do_LD:        if (!ptx_load(t, i)) goto end; NEXT;
do_ST:        if (!ptx_store(t, i)) goto end; NEXT;
do_ATOM:      if (!ptx_atomic_run(t, i)) goto end; NEXT;
do_CP_ASYNC:  if (!ptx_copy_async(t, i)) goto end; NEXT;
do_CP_COMMIT: t->group++; NEXT;
do_CP_WAIT:   if (!ptx_copy_wait(t, i)) goto end; NEXT;

do_MBARRIER_INIT:   if (!ptx_barrier_init(t, i)) goto end; NEXT;
do_MBARRIER_ARRIVE: if (!ptx_barrier_arrive(t, i)) goto end; NEXT;
do_BULK_COPY:       if (!ptx_bulk_copy(t, i)) goto end; NEXT;
do_BULK_STORE:      if (!ptx_bulk_store(t, i)) goto end; NEXT;

do_BRA:       JUMP(i->imm);
do_BRA_IF:    if (A & 1) JUMP(i->imm); NEXT;
do_BRA_IFNOT: if (!(A & 1)) JUMP(i->imm); NEXT;
do_BRX:       if (!is_target(t, i)) goto end; JUMP(t->function->lists[i->b + U32(A)]);
do_CALL:      if (!call(t, i)) goto end; goto enter;
do_RET:       if (!ret(t)) goto do_EXIT; goto enter;
enter:        i = t->pc, r = t->r, code = t->function->code; DISPATCH;
do_EXIT:      t->state = PTX_ENDED; goto end;
do_TRAP:      ptx_fault(t, i, CUDA_ERROR_LAUNCH_FAILED, "trap"); goto end;
do_BAR_ARRIVE: arrive(t, A); NEXT;
  /* clang-format on */

do_MBARRIER_TRY: /* whoever is too early lets others run */
  if (!ptx_barrier_try(t, i)) goto end;
  if (r[i->d] & 1) NEXT;
  i++;
  goto end;

do_BARRIER:
do_BAR_WARP:
do_SHFL:
do_VOTE:
do_MATCH:
do_REDUX:
do_ACTIVEMASK:
do_ELECT:
do_LDMATRIX:
do_STMATRIX:
do_MMA:
do_WGMMA:
  t->state = PTX_WAITS;
end:
  t->pc = i;
}
