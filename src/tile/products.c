/* Sums that products take in: `sums += tl.dot(a, b)` is a product of its own in the IR, and a sum.
 *
 * In: a kernel. Out: of x + dot(a, b, 0) of small floats, where nothing else reads the product and k is one block,
 * dot(a, b, x), so that tensor cores add to x. Test: tests/c/test_tile.c. */
#include "tile/internal.h"

static bool is_zero(const wk__tile_instr *i) {
  return i->op == WK__TILE_constant && (i->number.category == WK__FLOAT_KIND ? i->number.d == 0 : i->number.i == 0);
}

static bool begins_at_zero(const wk__tile_kernel *k, wk__tile v) {
  const wk__tile_instr *i = &k->instrs[v];
  if (i->op != WK__TILE_dot) return false;
  const wk__tile_type *a = &k->instrs[i->operands[0]].type;
  return (a->dtype == WK_FLOAT16 || a->dtype == WK_BFLOAT16) && a->shape[1] <= WK__TILE_K_BLOCK &&
         is_zero(&k->instrs[i->operands[2]]);
}

static int uses_of(const wk__tile_kernel *k, wk__tile v) {
  int uses = 0;
  for (wk__tile u = k->instrs[0].next; u; u = k->instrs[u].next)
    for (int o = 0; o < 4; o++) uses += k->instrs[u].operands[o] == v;
  return uses;
}

/* Whether v is computed in front of u, in its region or around it. */
static bool is_there(const wk__tile_kernel *k, wk__tile v, wk__tile u) {
  for (wk__tile x = k->instrs[u].previous; x; x = k->instrs[x].previous)
    if (x == v) return true;
  return false;
}

static void put_in_place(wk__tile_kernel *k, wk__tile sum, wk__tile product) {
  for (wk__tile u = k->instrs[0].next; u; u = k->instrs[u].next)
    for (int o = 0; o < 4; o++)
      if (k->instrs[u].operands[o] == sum) k->instrs[u].operands[o] = product;
}

wk_status wk__tile_add_in_products(wk__tile_kernel *k) {
  bool changed = false;
  for (wk__tile v = k->instrs[0].next; v; v = k->instrs[v].next) {
    const wk__tile_instr *i = &k->instrs[v];
    if (i->op != WK__TILE_map || i->map != WK__LOOP_add) continue;
    for (int o = 0; o < 2; o++) {
      wk__tile product = i->operands[o], other = i->operands[1 - o];
      if (!begins_at_zero(k, product) || uses_of(k, product) != 1 || !is_there(k, other, product)) continue;
      k->instrs[product].operands[2] = other;
      put_in_place(k, v, product);
      changed = true;
      break;
    }
  }
  return changed ? wk__tile_tidy(k) : WK_OK;
}
