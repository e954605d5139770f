/* Accesses of a thread to memory: which bytes an address means, loads and stores of vectors, atomics, cp.async.
 *
 * Every access is checked: the bytes have to be mapped for the device (or be memory of cuMemHostAlloc), inside of
 * shared or local memory, and aligned. Copies of cp.async are done when the thread waits for them, so that whoever
 * reads before sees the poison. Tests: tests/test_control.c, tests/test_errors.c. */
#include <stdlib.h>

#include "cuda/driver.h"
#include "ptx_run.h"
#include "ptx_values.h"

/* ---- addresses ---- */

static const char *const purposes[] = {"read", "write", "atomic"};

static uint8_t *fail(ptx_thread *t, const ptx_ins *ins, const char *space, uint64_t address, unsigned bytes,
                     ptx_purpose purpose) {
  bool misaligned = address & (bytes - 1);
  int result = misaligned ? CUDA_ERROR_MISALIGNED_ADDRESS : CUDA_ERROR_ILLEGAL_ADDRESS;
  ptx_fault(t, ins, result, "%s %s of %u bytes at %s0x%llx", misaligned ? "misaligned" : "illegal", purposes[purpose],
            bytes, space, (unsigned long long)address);
  return NULL;
}

static uint8_t *at_global(ptx_thread *t, const ptx_ins *ins, uint64_t address, unsigned bytes, ptx_purpose purpose) {
  uint8_t *at = memory_device(address, bytes, (unsigned)t->block->launch->device);
  if (at) return at;
  if (!(address & (bytes - 1)) && memory_is_pinned(address, bytes)) return (uint8_t *)(uintptr_t)address;
  return fail(t, ins, "", address, bytes, purpose);
}

static uint8_t *at_shared(ptx_thread *t, const ptx_ins *ins, uint64_t address, unsigned bytes, ptx_purpose purpose) {
  const ptx_block *block = t->block;
  if (address & (bytes - 1) || address >= block->shared_bytes || block->shared_bytes - address < bytes)
    return fail(t, ins, "shared ", address, bytes, purpose);
  if (block->races && !races_access(t, ins, (uint32_t)address, bytes, purpose)) return NULL;
  return block->shared + address;
}

static uint8_t *at_local(ptx_thread *t, const ptx_ins *ins, uint64_t address, unsigned bytes, ptx_purpose purpose) {
  uint32_t size = t->block->local_bytes;
  if (address & (bytes - 1) || address >= size || size - address < bytes)
    return fail(t, ins, "local ", address, bytes, purpose);
  return t->local + address;
}

static uint8_t *at_parameter(ptx_thread *t, const ptx_ins *ins, uint64_t address, unsigned bytes, ptx_purpose purpose) {
  uint32_t size = t->block->launch->function->parameter_bytes;
  if (purpose != PTX_READ || address & (bytes - 1) || address >= size || size - address < bytes)
    return fail(t, ins, "parameter ", address, bytes, purpose);
  return (uint8_t *)(uintptr_t)t->block->launch->parameters + address;
}

static uint8_t *at_generic(ptx_thread *t, const ptx_ins *ins, uint64_t address, unsigned bytes, ptx_purpose purpose) {
  uint64_t offset = address - memory.base;
  if (offset < PTX_WINDOW_LOCAL) return at_shared(t, ins, offset, bytes, purpose);
  if (offset < PTX_WINDOW_PARAM) return at_local(t, ins, offset - PTX_WINDOW_LOCAL, bytes, purpose);
  if (offset < PTX_WINDOW_PARAM + PTX_WINDOW_BYTES)
    return at_parameter(t, ins, offset - PTX_WINDOW_PARAM, bytes, purpose);
  return at_global(t, ins, address, bytes, purpose);
}

uint8_t *ptx_at(ptx_thread *t, const ptx_ins *ins, ptx_space space, uint64_t address, unsigned bytes,
                ptx_purpose purpose) {
  switch (space) {
    case PTX_GLOBAL:
      return at_global(t, ins, address, bytes, purpose);
    case PTX_SHARED:
      return at_shared(t, ins, address, bytes, purpose);
    case PTX_LOCAL:
      return at_local(t, ins, address, bytes, purpose);
    case PTX_PARAM:
      return at_parameter(t, ins, address, bytes, purpose);
    case PTX_FRAME:
      return (uint8_t *)&t->r[ins->a] + ins->imm;
    default:
      return at_generic(t, ins, address, bytes, purpose);
  }
}

/* ---- ld, st ---- */

/* Of a size that is known: bytes one by one, and then read as a word, are what most of the time was spent on. */
static uint64_t get(const uint8_t *from, unsigned bytes) {
  uint16_t two;
  uint32_t four;
  uint64_t eight;
  switch (bytes) {
    case 1:
      return *from;
    case 2:
      return memcpy(&two, from, 2), two;
    case 4:
      return memcpy(&four, from, 4), four;
    default:
      return memcpy(&eight, from, 8), eight;
  }
}

static void put(uint8_t *to, uint64_t value, unsigned bytes) {
  switch (bytes) {
    case 1:
      memcpy(to, &value, 1);
      return;
    case 2:
      memcpy(to, &value, 2);
      return;
    case 4:
      memcpy(to, &value, 4);
      return;
    default:
      memcpy(to, &value, 8);
  }
}

bool ptx_load(ptx_thread *t, const ptx_ins *ins) {
  unsigned bytes = ins->bytes;
  const uint8_t *from = ptx_at(t, ins, ins->type2, ptx_address(t, ins), bytes * ins->count, PTX_READ);
  if (!from) return false;
  const uint32_t *to = t->function->lists + ins->d;
  uint64_t values[4] = {0};
  for (unsigned i = 0; i < ins->count; i++) values[i] = get(from + i * bytes, bytes);
  for (unsigned i = 0; i < ins->count; i++) t->r[to[i]] = ins->type ? ptx_extend(values[i], ins->type) : values[i];
  return true;
}

bool ptx_store(ptx_thread *t, const ptx_ins *ins) {
  unsigned bytes = ins->bytes;
  uint8_t *to = ptx_at(t, ins, ins->type2, ptx_address(t, ins), bytes * ins->count, PTX_WRITE);
  if (!to) return false;
  const uint32_t *slots = t->function->lists + ins->b;
  for (unsigned i = 0; i < ins->count; i++) put(to + i * bytes, t->r[slots[i]], bytes);
  return true;
}

/* ---- atom, red ---- */

static uint64_t add(const ptx_ins *ins, uint64_t a, uint64_t b) {
  switch (ins->type) {
    /* The ISA: f32 in global memory flushes denormal numbers, in shared memory it does not. */
    case PTX_F32:
      return ptx_f32_rounded(PTX_ADD, a, b, 0, ins->type2 == PTX_SHARED ? 0 : PTX_MOD_FTZ);
    case PTX_F64:
      return ptx_f64(FD(a) + FD(b));
    case PTX_F16:
    case PTX_F16X2:
    case PTX_BF16:
    case PTX_BF16X2:
      return ptx_half(PTX_ADD, ins->type, a, b, 0, 0);
    default:
      return a + b;
  }
}

static uint64_t extreme(const ptx_ins *ins, uint64_t a, uint64_t b, bool greater) {
  bool less = ptx_compare(ins->type, PTX_CMP_LT, a, b, false);
  return less == greater ? b : a;
}

static uint64_t new_value(const ptx_ins *ins, uint64_t old, uint64_t b, uint64_t c) {
  switch ((ptx_atomic)ins->count) {
    case PTX_ATOMIC_ADD:
      return add(ins, old, b);
    case PTX_ATOMIC_MIN:
      return extreme(ins, old, b, false);
    case PTX_ATOMIC_MAX:
      return extreme(ins, old, b, true);
    case PTX_ATOMIC_AND:
      return old & b;
    case PTX_ATOMIC_OR:
      return old | b;
    case PTX_ATOMIC_XOR:
      return old ^ b;
    case PTX_ATOMIC_EXCH:
      return b;
    case PTX_ATOMIC_CAS:
      return ptx_extend(old ^ b, ins->type) ? old : c;
    case PTX_ATOMIC_INC:
      return U32(old) >= U32(b) ? 0 : old + 1;
    case PTX_ATOMIC_DEC:
      return U32(old) == 0 || U32(old) > U32(b) ? b : old - 1;
  }
  return old;
}

/* Blocks may run on several threads of the host, so memory is changed by compare and swap. */
#define EXCHANGE(type)                                                                                   \
  do {                                                                                                   \
    type *word = (type *)at, old = __atomic_load_n(word, __ATOMIC_RELAXED), next;                        \
    do {                                                                                                 \
      next = (type)new_value(ins, old, b, c);                                                            \
    } while (!__atomic_compare_exchange_n(word, &old, next, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)); \
    t->r[ins->d] = old;                                                                                  \
  } while (0)

bool ptx_atomic_run(ptx_thread *t, const ptx_ins *ins) {
  uint8_t *at = ptx_at(t, ins, ins->type2, ptx_address(t, ins), ins->bytes, PTX_ATOMIC);
  if (!at) return false;
  uint64_t b = t->r[ins->b], c = t->r[ins->c];
  if (ins->bytes == 2)
    EXCHANGE(uint16_t);
  else if (ins->bytes == 4)
    EXCHANGE(uint32_t);
  else
    EXCHANGE(uint64_t);
  return true;
}

/* ---- cp.async ---- */

/* What a copy reads: `size` bytes, which may be fewer than it writes, at an address for all of them. */
static const uint8_t *source_of(ptx_thread *t, const ptx_ins *ins, const ptx_copy *copy) {
  if (copy->from & (copy->bytes - 1)) return ptx_at(t, ins, PTX_GLOBAL, copy->from, copy->bytes, PTX_READ);
  if (!ptx_at(t, ins, PTX_GLOBAL, copy->from + copy->size - 1, 1, PTX_READ)) return NULL;
  return ptx_at(t, ins, PTX_GLOBAL, copy->from, 1, PTX_READ);
}

bool ptx_copy_async(ptx_thread *t, const ptx_ins *ins) {
  ptx_copy copy = {
      .from = t->r[ins->a] + (uint64_t)ins->imm, .bytes = ins->bytes, .size = U32(t->r[ins->b]), .group = t->group};
  copy.to = ins->e ? U32(t->r[ins->d]) : t->r[ins->d];
  if (copy.size > copy.bytes) {
    ptx_fault(t, ins, CUDA_ERROR_LAUNCH_FAILED, "cp.async reads %u bytes to write %u", copy.size, copy.bytes);
    return false;
  }
  if (copy.size && !source_of(t, ins, &copy)) return false;
  if (!ptx_at(t, ins, PTX_SHARED, copy.to, copy.bytes, PTX_WRITE)) return false;
  if (t->copy_count == t->copy_capacity) {
    t->copy_capacity = t->copy_capacity ? t->copy_capacity * 2 : 16;
    t->copies = realloc(t->copies, t->copy_capacity * sizeof *t->copies);
    if (!t->copies) abort();
  }
  t->copies[t->copy_count++] = copy;
  return true;
}

static bool copy_now(ptx_thread *t, const ptx_ins *ins, const ptx_copy *copy) {
  uint8_t bytes[16] = {0};
  const uint8_t *from = copy->size ? source_of(t, ins, copy) : bytes;
  if (!from) return false;
  memcpy(bytes, from, copy->size);
  uint8_t *to = ptx_at(t, ins, PTX_SHARED, copy->to, copy->bytes, PTX_WRITE);
  if (to) memcpy(to, bytes, copy->bytes);
  return to;
}

/* imm: how many of the newest groups may be left; -1: nothing, of no group either. */
bool ptx_copy_wait(ptx_thread *t, const ptx_ins *ins) {
  uint32_t done = 0, kept = 0;
  for (; done < t->copy_count; done++) {
    const ptx_copy *copy = &t->copies[done];
    if (ins->imm >= 0 && copy->group + ins->imm >= t->group) break;
    if (!copy_now(t, ins, copy)) return false;
  }
  for (; done < t->copy_count; done++) t->copies[kept++] = t->copies[done];
  t->copy_count = kept;
  return true;
}
