/* Loads, stores and atomics of blocks of pointers. Runs of neighbours go through tier 0's copies.
 * Test: tests/python/test_tiles.py. */
#include "cpu/tile/internal.h"

/* Elements from e on that are all masked alike and, where they are there, lie one behind the other. */
static int64_t run_length(const int64_t *p, const uint8_t *mask, int64_t e, int64_t n, int64_t size) {
  int64_t end = e + 1;
  if (mask && !mask[e]) {
    while (end < n && !mask[end]) end++;
    return end - e;
  }
  while (end < n && p[end] == p[end - 1] + size && (!mask || mask[end])) end++;
  return end - e;
}

/* All of a block, which most are: found without a branch an element. */
static bool is_one_run(const int64_t *p, const uint8_t *mask, int64_t n, int64_t size) {
  uint64_t apart = 0;
  for (int64_t e = 0; e < n; e++) apart |= (uint64_t)p[e] - (uint64_t)p[0] - (uint64_t)(e * size);
  if (apart || !mask) return !apart;
  uint8_t all = 1;
  for (int64_t e = 0; e < n; e++) all &= mask[e];
  return all;
}

void tile_load(const tile_run *r, wk__tile v) {
  const wk__tile_instr *i = &r->plan->kernel->instrs[v];
  const int64_t *p = value_of(r, i->operands[0]);
  const uint8_t *mask = i->operands[1] ? value_of(r, i->operands[1]) : NULL;
  const char *other = i->operands[2] ? value_of(r, i->operands[2]) : NULL;
  char *out = value_of(r, v);
  int64_t n = wk__tile_elements(&i->type), item = item_of(&i->type), size = wk__dtypes[i->type.dtype].size;
  wk__load_fn *load = r->primitives->load[i->type.dtype];
  if (is_one_run(p, mask, n, size)) {
    load(out, (const void *)(uintptr_t)p[0], 1, n, n, 1);
    return;
  }
  for (int64_t e = 0, run; e < n; e += run) {
    run = run_length(p, mask, e, n, size);
    if (!mask || mask[e])
      load(out + e * item, (const void *)(uintptr_t)p[e], 1, run, run, 1); /* NOLINT: an address of the program */
    else if (other)
      memcpy(out + e * item, other + e * item, (size_t)(run * item));
    else
      memset(out + e * item, 0, (size_t)(run * item));
  }
}

void tile_store(const tile_run *r, wk__tile v) {
  const wk__tile_instr *i = &r->plan->kernel->instrs[v];
  const wk__tile_type *t = type_of(r, i->operands[1]);
  const int64_t *p = value_of(r, i->operands[0]);
  const uint8_t *mask = i->operands[2] ? value_of(r, i->operands[2]) : NULL;
  const char *value = value_of(r, i->operands[1]);
  int64_t n = wk__tile_elements(t), item = item_of(t), size = wk__dtypes[t->dtype].size;
  wk__store_fn *store = r->primitives->store[t->dtype];
  if (is_one_run(p, mask, n, size)) {
    store((void *)(uintptr_t)p[0], value, 1, n, n, 1);
    return;
  }
  for (int64_t e = 0, run; e < n; e += run) {
    run = run_length(p, mask, e, n, size);
    if (!mask || mask[e]) store((void *)(uintptr_t)p[e], value + e * item, 1, run, run, 1);
  }
}

/* ---- atomics ---- */

typedef union number {
  uint64_t bits;
  int64_t i;
  double d;
  float f;
} number;

/* What is stored where `old` was; of floats the lane's value. */
static number next_of(wk__tile_atomic how, int dtype, number old, number value) {
  wk__lane_type lane = wk__lane_of((wk_dtype)wk__dtypes[dtype].compute);
  bool is_unsigned = wk__dtype_is_unsigned(dtype);
  switch (how) {
    case WK__TILE_ADD:
      if (lane == WK__LANE_F32) return (number){.f = old.f + value.f};
      if (lane == WK__LANE_F64) return (number){.d = old.d + value.d};
      return (number){.bits = old.bits + value.bits};
    case WK__TILE_MAX:
    case WK__TILE_MIN: {
      bool larger = lane == WK__LANE_F32   ? value.f > old.f
                    : lane == WK__LANE_F64 ? value.d > old.d
                    : is_unsigned          ? value.bits > old.bits
                                           : value.i > old.i;
      return larger == (how == WK__TILE_MAX) ? value : old;
    }
    case WK__TILE_AND:
      return (number){.bits = old.bits & value.bits};
    case WK__TILE_OR:
      return (number){.bits = old.bits | value.bits};
    case WK__TILE_XOR:
      return (number){.bits = old.bits ^ value.bits};
    default:
      return value;
  }
}

static number from_memory(uint64_t bits, int dtype) {
  wk__scalar s = wk__element_get(&bits, (wk_dtype)dtype);
  if (wk__dtypes[dtype].compute == WK_FLOAT32) return (number){.f = (float)s.d};
  if (wk__dtypes[dtype].compute == WK_FLOAT64) return (number){.d = s.d};
  return (number){.i = s.i};
}

static uint64_t to_memory(number value, int dtype) {
  uint64_t bits = 0;
  wk__scalar s = {.category = WK__INTEGER_KIND, .i = value.i};
  if (wk__dtypes[dtype].compute == WK_FLOAT32) s = (wk__scalar){.category = WK__FLOAT_KIND, .d = (double)value.f};
  if (wk__dtypes[dtype].compute == WK_FLOAT64) s = (wk__scalar){.category = WK__FLOAT_KIND, .d = value.d};
  wk__element_set(&bits, (wk_dtype)dtype, s);
  return bits;
}

#define EXCHANGE(name, type)                                                                                    \
  static uint64_t exchange_##name(void *at, int how, int dtype, number value, const number *compare) {          \
    type *p = at, old = __atomic_load_n(p, __ATOMIC_RELAXED);                                                   \
    for (;;) {                                                                                                  \
      if (compare && old != (type)to_memory(*compare, dtype)) {                                                 \
        __atomic_thread_fence(__ATOMIC_ACQUIRE);                                                                \
        return old;                                                                                             \
      }                                                                                                         \
      type next = (type)to_memory(next_of((wk__tile_atomic)how, dtype, from_memory(old, dtype), value), dtype); \
      if (__atomic_compare_exchange_n(p, &old, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return old;    \
    }                                                                                                           \
  }
EXCHANGE(16, uint16_t)
EXCHANGE(32, uint32_t)
EXCHANGE(64, uint64_t)

static number number_at(const void *block, int64_t e, wk__lane_type lane) {
  number n = {0};
  memcpy(&n, (const char *)block + e * wk__lane_size(lane), (size_t)wk__lane_size(lane));
  return n;
}

void tile_atomic(const tile_run *r, wk__tile v) {
  const wk__tile_instr *i = &r->plan->kernel->instrs[v];
  const int64_t *p = value_of(r, i->operands[0]);
  const uint8_t *mask = i->operands[2] ? value_of(r, i->operands[2]) : NULL;
  int64_t n = wk__tile_elements(&i->type), size = wk__dtypes[i->type.dtype].size;
  wk__lane_type lane = wk__tile_lane(&i->type);
  char *out = value_of(r, v);
  for (int64_t e = 0; e < n; e++) {
    number old = {0}, compare = {0}, value = number_at(value_of(r, i->operands[1]), e, lane);
    if (i->operands[3]) compare = number_at(value_of(r, i->operands[3]), e, lane);
    const number *compared = i->number.i == WK__TILE_CAS ? &compare : NULL;
    void *at = (void *)(uintptr_t)p[e];
    if (!mask || mask[e]) {
      int how = (int)i->number.i, dtype = i->type.dtype;
      uint64_t bits = size == 2   ? exchange_16(at, how, dtype, value, compared)
                      : size == 4 ? exchange_32(at, how, dtype, value, compared)
                                  : exchange_64(at, how, dtype, value, compared);
      old = from_memory(bits, dtype);
    }
    memcpy(out + e * wk__lane_size(lane), &old, (size_t)wk__lane_size(lane));
  }
}
