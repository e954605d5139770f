/* Which of its arguments a kernel writes: the parameters that the addresses of stores and atomics are made of.
 *
 * In: a kernel. Out: parameters as bits. A value is made of what its operands are made of, a carry of all that it is
 * set to; what is loaded is made of nothing, unless it is an address. Test: tests/python/test_tiles.py. */
#include "tile/tile.h"

/* Adds to `made` by one pass over the kernel; whether anything was added. */
static bool pass(const wk__tile_kernel *k, uint64_t *made) {
  bool more = false;
  for (wk__tile v = k->instrs[0].next; v; v = k->instrs[v].next) {
    const wk__tile_instr *i = &k->instrs[v];
    uint64_t of = 0;
    if (i->op == WK__TILE_parameter && i->type.pointer) of = UINT64_C(1) << i->number.i;
    bool reads = i->op == WK__TILE_load || i->op == WK__TILE_atomic;
    for (int n = 0; n < wk__tile_ops[i->op].operands && n < 4 && !(reads && !i->type.pointer); n++)
      if (i->operands[n]) of |= made[i->operands[n]];
    wk__tile to = i->op == WK__TILE_set ? i->operands[0] : v;
    more |= (of & ~made[to]) != 0;
    made[to] |= of;
  }
  return more;
}

wk_status wk__tile_written(const wk__tile_kernel *k, uint64_t *out_written, bool *out_known) {
  uint64_t *made = wk__alloc_zeroed((size_t)k->count * sizeof *made);
  *out_written = 0, *out_known = true;
  if (!made) return WK_OUT_OF_MEMORY;
  while (pass(k, made)) continue;
  for (wk__tile v = k->instrs[0].next; v; v = k->instrs[v].next) {
    const wk__tile_instr *i = &k->instrs[v];
    if (i->op != WK__TILE_store && i->op != WK__TILE_atomic) continue;
    *out_written |= made[i->operands[0]];
    *out_known &= made[i->operands[0]] != 0;
  }
  wk__free(made);
  return WK_OK;
}
