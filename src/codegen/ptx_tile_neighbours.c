/* Which neighbours of a block of pointers lie side by side in memory, and of which masks are the same: how values go on
 * from one element to the next, found from what they are computed of. Test: tests/cuda/test_tiles.py. */
#include "codegen/ptx_tile_internal.h"

static progress least(progress a, progress b) {
  return (progress){a.how == b.how ? a.how : ANYHOW, (int)wk__min(a.zeros, b.zeros)};
}

static progress of_binary(const tile_writer *w, const wk__tile_instr *i, int dim, int each, int depth) {
  progress a = progress_of(w, i->operands[0], dim, each, depth), b = progress_of(w, i->operands[1], dim, each, depth);
  int zeros = (int)wk__min(a.zeros, b.zeros);
  bool same = a.how == SAME && b.how == SAME,
       aligned = a.zeros >= each && b.zeros >= each && b.how == SAME && a.how != ANYHOW;
  int op = i->op == WK__TILE_offset ? WK__LOOP_add : i->map;
  switch (op) {
    case WK__LOOP_add:
      if (b.how == NEXT) return (progress){a.how == SAME ? NEXT : ANYHOW, zeros};
      return (progress){b.how == SAME ? a.how : ANYHOW, zeros};
    case WK__LOOP_sub:
      return (progress){b.how == SAME ? a.how : ANYHOW, zeros};
    case WK__LOOP_mul:
      return (progress){same ? SAME : ANYHOW, (int)wk__min(a.zeros + b.zeros, 31)};
    case WK__LOOP_fmod:
      return (progress){same ? SAME : aligned ? a.how : ANYHOW, zeros};
    case WK__LOOP_lt:
    case WK__LOOP_ge: /* x < n, where neither x nor n ends a group in the middle */
      return (progress){same || aligned ? SAME : ANYHOW, 0};
    case WK__LOOP_gt: /* n > x */
    case WK__LOOP_le:
      aligned = a.zeros >= each && b.zeros >= each && a.how == SAME && b.how != ANYHOW;
      return (progress){same || aligned ? SAME : ANYHOW, 0};
    case WK__LOOP_max:
    case WK__LOOP_min:
      return (progress){same ? SAME : ANYHOW, zeros};
    default:
      return (progress){same ? SAME : ANYHOW, 0};
  }
}

/* A carry goes on as it begins, if what is added to it is the same for all of the group. */
static progress of_carry(const tile_writer *w, wk__tile v, int dim, int each, int depth) {
  const wk__tile_instr *i = instr_at(w, v);
  progress out = i->operands[0] ? progress_of(w, i->operands[0], dim, each, depth) : (progress){ANYHOW, 0};
  for (wk__tile s = v + 1; s < w->k->count && out.how != ANYHOW; s++) {
    const wk__tile_instr *set = instr_at(w, s);
    if (set->op != WK__TILE_set || set->operands[0] != v) continue;
    const wk__tile_instr *next = instr_at(w, set->operands[1]);
    bool moves = (next->op == WK__TILE_offset || (next->op == WK__TILE_map && next->map == WK__LOOP_add)) &&
                 next->operands[0] == v;
    if (!moves) return (progress){ANYHOW, 0};
    progress by = progress_of(w, next->operands[1], dim, each, depth);
    if (by.how != SAME) return (progress){ANYHOW, 0};
    out.zeros = (int)wk__min(out.zeros, by.zeros);
  }
  return out;
}

static progress of_source(const tile_writer *w, wk__tile v, int dim, int each, int depth) {
  const wk__tile_instr *i = instr_at(w, v);
  const wk__tile_type *t = &i->type, *from = type_at(w, i->operands[0]);
  int first, count, from_first, from_count;
  if (dim < 0 || from->ndim == 0) return progress_of(w, i->operands[0], -1, each, depth);
  bits_of_dim(t, dim, &first, &count);
  if (count == 0) return progress_of(w, i->operands[0], -1, each, depth);
  int at = source_position(w, v, 1 << first);
  if (at == 0) return progress_of(w, i->operands[0], -1, each, depth); /* the same along this dim */
  for (int d = 0; d < from->ndim; d++) {
    bits_of_dim(from, d, &from_first, &from_count);
    if (from_count == count && at == 1 << from_first) return progress_of(w, i->operands[0], d, each, depth);
  }
  return (progress){ANYHOW, 0};
}

/* dim -1: the value does not change along the dim that is asked for. */
progress progress_of(const tile_writer *w, wk__tile v, int dim, int each, int depth) {
  const wk__tile_instr *i = instr_at(w, v);
  const progress unknown = {ANYHOW, 0};
  if (depth == 0) *w->looks = 0;
  if (depth > 40 || ++*w->looks > MOST_LOOKS) return unknown;
  depth++;
  progress out = unknown;
  switch (i->op) {
    case WK__TILE_parameter:
      out = (progress){SAME, 0};
      if (i->number.i < 64 && w->kind->multiples >> i->number.i & 1)
        out.zeros = i->type.pointer ? 4 - log2_of(wk__dtypes[i->type.dtype].size) : 4;
      return out;
    case WK__TILE_constant:
      if (i->number.category == WK__FLOAT_KIND) return (progress){SAME, 0};
      return (progress){SAME, i->number.i ? (int)wk__min(__builtin_ctzll((uint64_t)i->number.i), 31) : 31};
    case WK__TILE_program_id:
    case WK__TILE_num_programs:
      return (progress){SAME, 0};
    case WK__TILE_range:
      if (dim < 0) return (progress){SAME, 0};
      return (progress){NEXT, i->number.i ? (int)wk__min(__builtin_ctzll((uint64_t)i->number.i), each) : each};
    case WK__TILE_for:
      return least(progress_of(w, i->operands[0], -1, each, depth), progress_of(w, i->operands[2], -1, each, depth));
    case WK__TILE_carry:
      return of_carry(w, v, dim, each, depth);
    case WK__TILE_broadcast:
    case WK__TILE_view:
    case WK__TILE_permute:
      return of_source(w, v, dim, each, depth);
    case WK__TILE_cast:
      return is_float_type(&i->type) ? unknown : progress_of(w, i->operands[0], dim, each, depth);
    case WK__TILE_offset:
      return of_binary(w, i, dim, each, depth);
    case WK__TILE_map:
      if (i->operands[2] || !i->operands[1]) return i->type.ndim == 0 ? (progress){SAME, 0} : unknown;
      out = of_binary(w, i, dim, each, depth);
      break;
    default:
      return i->type.ndim == 0 ? (progress){SAME, 0} : unknown;
  }
  if (i->type.ndim == 0) out.how = SAME;
  return out;
}

int fast_dim(const tile_writer *w, wk__tile pointer) {
  const wk__tile_type *t = type_at(w, pointer);
  for (int d = t->ndim - 1; d >= 0; d--)
    if (t->shape[d] > 1 && progress_of(w, pointer, d, 0, 0).how == NEXT) return d;
  return t->ndim - 1;
}
