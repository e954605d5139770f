/* Building regions, and what is done when a kernel is complete.
 *
 * Invariant: a carry stands directly before the region that sets it; sets stand at the end of a region. What nothing
 * needs is taken out, so that back ends see no dead code. Test: tests/c/test_tile.c. */
#include "tile/internal.h"

static bool enter(wk__tile_builder *b, int count) {
  if (b->status != WK_OK) return false;
  if (b->depth == WK__TILE_MAX_DEPTH)
    return wk__tile_refuse(b, WK_VALUE_ERROR, "regions are nested too deeply (more than %d)", WK__TILE_MAX_DEPTH),
           false;
  wk__tile *carries = wk__alloc((size_t)(count + 1) * sizeof *carries);
  if (!carries) return b->status = WK_OUT_OF_MEMORY, false;
  b->regions[b->depth].carries = carries, b->regions[b->depth].count = count, b->regions[b->depth].other = 0;
  b->depth++;
  return true;
}

/* What the region at hand has begun with is checked by the caller. */
static void leave(wk__tile_builder *b) { wk__free(b->regions[--b->depth].carries); }
#define TOP(b) (&(b)->regions[(b)->depth - 1])

static void make_carries(wk__tile_builder *b, int count, const wk__tile *values, wk__tile *out) {
  for (int i = 0; i < count && b->status == WK_OK; i++)
    out[i] = TOP(b)->carries[i] = tile_emit(b, WK__TILE_carry, type_of(b, values[i]), values[i], 0, 0);
}

wk__tile wk__tile_for_begin(wk__tile_builder *b, wk__tile from, wk__tile to, int64_t step, int count,
                            const wk__tile *values, wk__tile *out) {
  if (b->status != WK_OK) return 0;
  const wk__tile_type *s = type_of(b, from), *t = type_of(b, to);
  if (s->ndim || t->ndim || s->pointer || t->pointer || wk__dtype_category((wk_dtype)s->dtype) != WK__INTEGER_KIND ||
      wk__dtype_category((wk_dtype)t->dtype) != WK__INTEGER_KIND)
    return wk__tile_refuse(b, WK_TYPE_ERROR, "For loop bounds and step must all be ints");
  if (step == 0) return wk__tile_refuse(b, WK_VALUE_ERROR, "range() arg 3 must not be zero");
  wk_dtype dtype = s->dtype == WK_INT64 || t->dtype == WK_INT64 ? WK_INT64 : WK_INT32;
  from = wk__tile_cast(b, from, dtype), to = wk__tile_cast(b, to, dtype);
  wk__tile by = wk__tile_constant(b, (wk__scalar){.category = WK__INTEGER_KIND, .i = step}, dtype);
  if (!enter(b, count)) return 0;
  make_carries(b, count, values, out);
  if (b->status != WK_OK) return 0;
  return TOP(b)->begin = tile_emit(b, WK__TILE_for, type_of(b, from), from, to, by);
}

void wk__tile_while_begin(wk__tile_builder *b, int count, const wk__tile *values, wk__tile *out) {
  if (!enter(b, count)) return;
  make_carries(b, count, values, out);
  if (b->status == WK_OK) TOP(b)->begin = tile_emit(b, WK__TILE_while, NULL, 0, 0, 0);
}

static wk__tile condition_of(wk__tile_builder *b, wk__tile x) {
  if (b->status != WK_OK) return 0;
  if (type_of(b, x)->ndim)
    return wk__tile_refuse(b, WK_VALUE_ERROR,
                           "Boolean value of Tensor with more than one value is ambiguous: conditions are scalars");
  return wk__tile_cast(b, x, WK_BOOL);
}

void wk__tile_while_test(wk__tile_builder *b, wk__tile condition) {
  condition = condition_of(b, condition);
  if (b->status == WK_OK) TOP(b)->other = tile_emit(b, WK__TILE_test, NULL, condition, 0, 0);
}

/* A next value of another dtype or shape than the carry's. */
static bool check_next(wk__tile_builder *b, wk__tile carry, wk__tile value, const char *name) {
  char first[TYPE_NAME], second[TYPE_NAME];
  if (wk__tile_same_type(type_of(b, carry), type_of(b, value))) return true;
  tile_type_name(type_of(b, carry), first, sizeof first);
  tile_type_name(type_of(b, value), second, sizeof second);
  return wk__tile_refuse(
             b, WK_TYPE_ERROR,
             "Loop-carried variable %s has initial type %s but is re-assigned to %s in loop! Please make sure "
             "that the type stays consistent.",
             name, first, second),
         false;
}

void wk__tile_loop_end(wk__tile_builder *b, const wk__tile *values, const char *const *names) {
  if (b->status != WK_OK || b->depth == 0) return;
  for (int i = 0; i < TOP(b)->count; i++)
    if (!check_next(b, TOP(b)->carries[i], values[i], names ? names[i] : "?")) return;
  for (int i = 0; i < TOP(b)->count; i++)
    if (values[i] != TOP(b)->carries[i]) (void)tile_emit(b, WK__TILE_set, NULL, TOP(b)->carries[i], values[i], 0);
  (void)tile_emit(b, WK__TILE_end, NULL, 0, 0, 0);
  leave(b);
}

void wk__tile_if_begin(wk__tile_builder *b, wk__tile condition) {
  condition = condition_of(b, condition);
  if (enter(b, 0)) TOP(b)->begin = tile_emit(b, WK__TILE_if, NULL, condition, 0, 0);
}

void wk__tile_if_else(wk__tile_builder *b) {
  if (b->status == WK_OK) TOP(b)->other = tile_emit(b, WK__TILE_else, NULL, 0, 0, 0);
}

void wk__tile_if_end(wk__tile_builder *b, int count, const wk__tile *then_values, const wk__tile *else_values,
                     const char *const *names, wk__tile *out) {
  if (b->status != WK_OK || b->depth == 0) return;
  wk__tile begin = TOP(b)->begin, other = TOP(b)->other;
  for (int i = 0; i < count; i++) {
    char first[TYPE_NAME], second[TYPE_NAME];
    if (wk__tile_same_type(type_of(b, then_values[i]), type_of(b, else_values[i]))) continue;
    tile_type_name(type_of(b, then_values[i]), first, sizeof first);
    tile_type_name(type_of(b, else_values[i]), second, sizeof second);
    wk__tile_refuse(b, WK_TYPE_ERROR, "Mismatched type for %s between then block (%s) and else block (%s)",
                    names ? names[i] : "?", first, second);
    return;
  }
  for (int i = 0; i < count && b->status == WK_OK; i++) {
    wk__tile_instr carry = {.op = WK__TILE_carry, .type = *type_of(b, then_values[i])};
    out[i] = wk__tile_insert(b, begin, &carry);
    wk__tile_instr set = {.op = WK__TILE_set, .operands = {out[i], then_values[i]}};
    (void)wk__tile_insert(b, other, &set);
  }
  for (int i = 0; i < count && b->status == WK_OK; i++)
    (void)tile_emit(b, WK__TILE_set, NULL, out[i], else_values[i], 0);
  (void)tile_emit(b, WK__TILE_end, NULL, 0, 0, 0);
  if (b->status == WK_OK) leave(b);
}

void wk__tile_return(wk__tile_builder *b) { (void)tile_emit(b, WK__TILE_return, NULL, 0, 0, 0); }

wk__tile wk__tile_region_end(const wk__tile_kernel *k, wk__tile begin) {
  int depth = 0;
  for (wk__tile v = k->instrs[begin].next; v; v = k->instrs[v].next) {
    int op = k->instrs[v].op;
    if (depth == 0 && (op == WK__TILE_end || op == WK__TILE_else)) return v;
    depth += (op == WK__TILE_for || op == WK__TILE_while || op == WK__TILE_if) - (op == WK__TILE_end);
  }
  return 0;
}

/* ---- when it is complete ---- */

static bool has_effect(const wk__tile_instr *i) {
  if (i->op == WK__TILE_load) return false;
  if (i->op == WK__TILE_carry || i->op == WK__TILE_set) return false;
  return wk__tile_ops[i->op].op_class != WK__TILE_VALUE || i->op == WK__TILE_parameter;
}

/* A carry is needed when something other than its own next value needs it. */
static wk_status remove_dead(wk__tile_kernel *k) {
  bool *needed = wk__alloc_zeroed((size_t)k->count), changed = true;
  if (!needed) return WK_OUT_OF_MEMORY;
  while (changed) { /* operands stand in front of what needs them, but for a carry's next value */
    changed = false;
    for (wk__tile v = k->instrs[0].previous; v; v = k->instrs[v].previous) {
      const wk__tile_instr *i = &k->instrs[v];
      if (!needed[v] && !has_effect(i) && !(i->op == WK__TILE_set && needed[i->operands[0]])) continue;
      changed |= !needed[v];
      needed[v] = true;
      for (int o = 0; o < 4; o++)
        if (i->operands[o] && !needed[i->operands[o]]) needed[i->operands[o]] = changed = true;
    }
  }
  for (wk__tile v = k->instrs[0].next; v; v = k->instrs[v].next) {
    if (needed[v]) continue;
    k->instrs[k->instrs[v].previous].next = k->instrs[v].next;
    k->instrs[k->instrs[v].next].previous = k->instrs[v].previous;
  }
  wk__free(needed);
  return WK_OK;
}

/* New numbers, in the order of the kernel. */
static wk_status renumber(wk__tile_kernel *k) {
  wk__tile *number = wk__alloc_zeroed((size_t)k->count * sizeof *number), n = 0;
  wk__tile_instr *instrs = wk__alloc_zeroed((size_t)k->count * sizeof *instrs);
  if (!number || !instrs) {
    wk__free(number);
    wk__free(instrs);
    return WK_OUT_OF_MEMORY;
  }
  for (wk__tile v = k->instrs[0].next; v; v = k->instrs[v].next) number[v] = ++n;
  for (wk__tile v = k->instrs[0].next; v; v = k->instrs[v].next) {
    wk__tile_instr *i = &instrs[number[v]];
    *i = k->instrs[v];
    for (int o = 0; o < 4; o++) i->operands[o] = number[i->operands[o]];
    i->previous = number[v] - 1, i->next = number[v] == n ? 0 : number[v] + 1;
  }
  instrs[0].next = n ? 1 : 0, instrs[0].previous = n;
  k->capacity = k->count, k->count = n + 1;
  wk__free(number);
  wk__free(k->instrs);
  k->instrs = instrs;
  return WK_OK;
}

wk_status wk__tile_tidy(wk__tile_kernel *k) {
  WK_TRY(remove_dead(k));
  WK_TRY(renumber(k));
  return wk__tile_verify(k);
}

wk_status wk__tile_finish(wk__tile_builder *b, const char *name, int warps, int stages) {
  wk__tile_kernel *k = b->kernel;
  if (b->status != WK_OK) return b->status;
  if (b->depth) return wk_fail(WK_INTERNAL_ERROR, "a region of a kernel has no end");
  if (warps < 1 || warps > 16 || (warps & (warps - 1)))
    return wk_fail(WK_VALUE_ERROR, "num_warps must be 1, 2, 4, 8 or 16, and is %d", warps);
  if (stages < 0) return wk_fail(WK_VALUE_ERROR, "num_stages must be 0 or more, and is %d", stages);
  k->warps = warps, k->stages = (int)wk__max(stages, 1);
  k->name = wk__strdup(name);
  if (!k->name) return WK_OUT_OF_MEMORY;
  return wk__tile_tidy(k);
}
