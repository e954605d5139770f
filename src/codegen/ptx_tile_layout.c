/* Where the elements of blocks are: layouts, and which values have which. Test: tests/cuda/test_tiles.py. */
#include "codegen/ptx_tile_internal.h"

/* ---- layouts ---- */

int layout_number(tile_writer *w, const layout *l) {
  for (int n = 1; n <= w->layout_count; n++) {
    const layout *have = &w->layouts[n];
    if (have->bits == l->bits && memcmp(have->bit, l->bit, l->bits) == 0) return n;
  }
  if (w->layout_count + 1 >= MAX_LAYOUTS) {
    w->unsupported = true;
    return 1;
  }
  w->layouts[++w->layout_count] = *l;
  return w->layout_count;
}

int registers_of(const layout *l) {
  int count = 1;
  for (int p = 0; p < l->bits; p++) count <<= l->bit[p] < THREAD;
  return count;
}

int position_of(const layout *l, int reg) {
  int position = 0;
  for (int p = 0; p < l->bits; p++)
    if (l->bit[p] < THREAD) position |= (int)((unsigned)reg >> l->bit[p] & 1u) << p;
  return position;
}

int register_at(const layout *l, int position) {
  int reg = 0;
  for (int p = 0; p < l->bits; p++)
    if (l->bit[p] < THREAD) reg |= (int)(((unsigned)position >> p & 1u) << l->bit[p]);
  return reg;
}

int unused_threads(const tile_writer *w, const layout *l) {
  int unused = w->threads - 1;
  for (int p = 0; p < l->bits; p++)
    if (l->bit[p] >= THREAD) unused &= ~(1 << (l->bit[p] - THREAD));
  return unused;
}

void bits_of_dim(const wk__tile_type *t, int d, int *out_first, int *out_count) {
  *out_first = 0;
  for (int e = t->ndim - 1; e > d; e--) *out_first += log2_of(t->shape[e]);
  *out_count = log2_of(t->shape[d]);
}

/* Registers' bits without gaps, in their order. */
static void compact(layout *l) {
  int next = 0;
  for (int r = 0; r < THREAD; r++)
    for (int p = 0; p < l->bits; p++)
      if (l->bit[p] == r) {
        l->bit[p] = (uint8_t)next++;
        break;
      }
}

/* Neighbours along the dim `fast` in registers, then threads, then registers again. */
layout default_layout(const tile_writer *w, const wk__tile_type *t, int fast) {
  layout l = {.bits = (uint8_t)log2_of(wk__tile_elements(t)), .rank = 1};
  int order[TILE_BITS], n = 0, first, count, fast_bits = 0;
  for (int turn = -1; turn < t->ndim; turn++) {
    int d = turn < 0 ? fast : t->ndim - 1 - turn;
    if (t->ndim == 0 || (turn >= 0 && d == fast)) continue;
    bits_of_dim(t, d, &first, &count);
    for (int b = 0; b < count; b++) order[n++] = first + b;
    if (turn < 0) fast_bits = count;
  }
  int low = (int)wk__max(0, wk__min(wk__min(w->vector_bits, fast_bits), n - w->thread_bits));
  for (int i = 0; i < n; i++)
    l.bit[order[i]] = (uint8_t)(i < low ? i : i < low + w->thread_bits ? THREAD + i - low : i - w->thread_bits);
  return l;
}

/* mma.m16n8: lane l has row l / 4 (and 8 further) and columns 2 (l mod 4), + 1. Warps have rows, or rows and columns.
 */
layout product_layout(const tile_writer *w, const wk__tile_type *t, bool by_rows) {
  layout l = {.bits = (uint8_t)log2_of(wk__tile_elements(t)), .rank = 2};
  int columns = log2_of(t->shape[1]), rows = log2_of(t->shape[0]), warp_bits = w->thread_bits - 5, reg = 0;
  int row_warps = (int)wk__min(rows - 4, by_rows ? warp_bits : (warp_bits + 1) / 2);
  int column_warps = (int)wk__min(columns - 3, warp_bits - row_warps);
  row_warps = (int)wk__min(rows - 4, warp_bits - column_warps);
  l.bit[0] = (uint8_t)reg++;
  l.bit[1] = THREAD, l.bit[2] = THREAD + 1;
  for (int b = 0; b < 3; b++) l.bit[columns + b] = (uint8_t)(THREAD + 2 + b);
  l.bit[columns + 3] = (uint8_t)reg++;
  for (int b = 3; b < columns - column_warps; b++) l.bit[b] = (uint8_t)reg++;
  for (int b = 0; b < column_warps; b++) l.bit[columns - column_warps + b] = (uint8_t)(THREAD + 5 + row_warps + b);
  int row_end = (int)wk__min(rows - row_warps, TILE_BITS - columns); /* always the first: for the compiler to see */
  for (int b = 4; b < row_end; b++) l.bit[columns + b] = (uint8_t)reg++;
  for (int b = 0; b < row_warps; b++) l.bit[columns + rows - row_warps + b] = (uint8_t)(THREAD + 5 + b);
  return l;
}

/* Of mma.m16n8k16's first operand (m, k) or its second (k, n), with the warps' part of the result's rows or columns. */
layout operand_layout(const tile_writer *w, const wk__tile_type *t, const layout *result, bool second) {
  layout l = {.bits = (uint8_t)log2_of(wk__tile_elements(t)), .rank = 2};
  int along = second ? 0 : 1, first_k, k_bits, first_o, o_bits, reg = 0;
  (void)w;
  bits_of_dim(t, along, &first_k, &k_bits);
  bits_of_dim(t, 1 - along, &first_o, &o_bits);
  int result_columns = result->bits - (second ? 0 : o_bits); /* of the result's positions: columns come first */
  int from = second ? 0 : result_columns;
  l.bit[first_k] = (uint8_t)reg++;
  l.bit[first_k + 1] = THREAD, l.bit[first_k + 2] = THREAD + 1;
  if (!second) l.bit[first_o + 3] = (uint8_t)reg++;
  l.bit[first_k + 3] = (uint8_t)reg++;
  for (int b = 0; b < 3; b++) l.bit[first_o + b] = (uint8_t)(THREAD + 2 + b);
  for (int b = 4; b < k_bits; b++) l.bit[first_k + b] = (uint8_t)reg++;
  for (int b = second ? 3 : 4; b < o_bits; b++) {
    uint8_t at = result->bit[from + b];
    l.bit[first_o + b] = at >= THREAD ? at : (uint8_t)reg++;
  }
  return l;
}

layout without_axis(const layout *l, const wk__tile_type *t, int axis) {
  layout out = {.rank = l->rank};
  int first, count;
  bits_of_dim(t, axis, &first, &count);
  for (int p = 0; p < l->bits; p++)
    if (p < first || p >= first + count) out.bit[out.bits++] = l->bit[p];
  compact(&out);
  return out;
}

int source_position(const tile_writer *w, wk__tile v, int position) {
  const wk__tile_instr *i = instr_at(w, v);
  const wk__tile_type *t = &i->type, *from = type_at(w, i->operands[0]);
  int out = 0, first, count, from_first, from_count;
  if (i->op == WK__TILE_view) return position;
  if (i->op == WK__TILE_broadcast && from->ndim == 0) return 0;
  for (int d = 0; d < t->ndim; d++) {
    bits_of_dim(t, d, &first, &count);
    bits_of_dim(from, i->op == WK__TILE_permute ? (int)(i->number.i >> 4 * d & 15) : d, &from_first, &from_count);
    if (from_count) out |= (position >> first & ((1 << count) - 1)) << from_first;
  }
  return out;
}

layout source_layout(const tile_writer *w, wk__tile v, const layout *l) {
  layout out = {.bits = (uint8_t)log2_of(wk__tile_elements(type_at(w, instr_at(w, v)->operands[0]))), .rank = l->rank};
  for (int p = 0; p < l->bits; p++) {
    int at = source_position(w, v, 1 << p);
    if (at) out.bit[log2_of(at)] = l->bit[p];
  }
  compact(&out);
  return out;
}

/* The layout that a view or permute has where its operand's is known. */
static layout derived_layout(const tile_writer *w, wk__tile v, const layout *from) {
  layout out = {.bits = from->bits, .rank = from->rank};
  for (int p = 0; p < out.bits; p++) out.bit[p] = from->bit[log2_of(source_position(w, v, 1 << p))];
  return out;
}

/* ---- which value has which layout ---- */

static bool is_transparent(int op) { return op == WK__TILE_broadcast || op == WK__TILE_view || op == WK__TILE_permute; }

static bool is_free(const tile_writer *w, wk__tile v) {
  const wk__tile_instr *i = instr_at(w, v);
  if (i->type.ndim == 0) return false;
  switch (i->op) {
    case WK__TILE_constant:
    case WK__TILE_range:
      return true;
    case WK__TILE_broadcast:
    case WK__TILE_view:
    case WK__TILE_permute:
    case WK__TILE_map:
    case WK__TILE_cast:
    case WK__TILE_offset:
      for (int o = 0; o < 3; o++)
        if (i->operands[o] && type_at(w, i->operands[o])->ndim && !w->free[i->operands[o]]) return false;
      return true;
    default:
      return false;
  }
}

/* Products whose results are operands of others, or folded by rows: all columns of a row in one warp. */
static bool has_rows(const tile_writer *w) {
  int dots = 0;
  for (wk__tile v = 1; v < w->k->count; v++) {
    dots += instr_at(w, v)->op == WK__TILE_dot;
    if (instr_at(w, v)->op == WK__TILE_reduce) return true;
  }
  return dots > 1;
}

bool uses_tensor_cores(const tile_writer *w, wk__tile dot) {
  const wk__tile_instr *i = instr_at(w, dot);
  const wk__tile_type *a = type_at(w, i->operands[0]);
  return w->kind->capability >= 80 && (a->dtype == WK_FLOAT16 || a->dtype == WK_BFLOAT16) && i->type.shape[0] >= 16 &&
         i->type.shape[1] >= 8 && a->shape[1] >= 16;
}

/* Of a value that is not free; bits 0 and rank 0: not known. */
static layout find_layout(tile_writer *w, wk__tile v);

static layout best_operand(tile_writer *w, const wk__tile_instr *i) {
  layout best = {0};
  for (int o = 0; o < 4; o++) {
    if (!i->operands[o] || !wk__tile_same_shape(type_at(w, i->operands[o]), &i->type)) continue;
    layout l = find_layout(w, i->operands[o]);
    if (l.rank > best.rank) best = l;
  }
  return best;
}

static layout find_carry(tile_writer *w, wk__tile v) {
  layout best = {0};
  for (wk__tile s = v + 1; s < w->k->count; s++) {
    const wk__tile_instr *set = instr_at(w, s);
    if (set->op != WK__TILE_set || set->operands[0] != v) continue;
    layout l = find_layout(w, set->operands[1]);
    if (l.rank > best.rank) best = l;
  }
  if (best.rank < 2 && instr_at(w, v)->operands[0]) {
    layout l = find_layout(w, instr_at(w, v)->operands[0]);
    if (l.rank > best.rank) best = l;
  }
  return best;
}

static layout find_new(tile_writer *w, wk__tile v) {
  const wk__tile_instr *i = instr_at(w, v);
  layout l = {0};
  switch (i->op) {
    case WK__TILE_dot:
      if (uses_groups(w, v)) return group_layout(w, &i->type);
      return uses_tensor_cores(w, v) ? product_layout(w, &i->type, has_rows(w)) : default_layout(w, &i->type, 1);
    case WK__TILE_carry:
      return find_carry(w, v);
    case WK__TILE_load:
    case WK__TILE_atomic:
      l = w->free[i->operands[0]] ? l : find_layout(w, i->operands[0]);
      return l.rank ? l : default_layout(w, &i->type, fast_dim(w, i->operands[0]));
    case WK__TILE_reduce:
      l = find_layout(w, i->operands[0]);
      if (!l.rank) l = default_layout(w, type_at(w, i->operands[0]), type_at(w, i->operands[0])->ndim - 1);
      return without_axis(&l, type_at(w, i->operands[0]), i->axis);
    case WK__TILE_view:
    case WK__TILE_permute:
      l = find_layout(w, i->operands[0]);
      return l.rank ? derived_layout(w, v, &l) : l;
    case WK__TILE_broadcast:
      return l;
    case WK__TILE_scan:
      return default_layout(w, &i->type, i->type.ndim - 1);
    default:
      return best_operand(w, i);
  }
}

static layout find_layout(tile_writer *w, wk__tile v) {
  layout none = {0};
  if (w->own[v]) return w->layouts[w->own[v]];
  if (w->free[v] || w->order[v] == 255) return none; /* 255: it is looked at */
  uint8_t before = w->order[v];
  if (++*w->looks > MOST_LOOKS) return none;
  w->order[v] = 255;
  layout l = find_new(w, v);
  w->order[v] = before;
  if (l.rank && !is_transparent(instr_at(w, v)->op)) w->own[v] = (uint8_t)layout_number(w, &l);
  return l;
}

/* What lies in a ring has no registers. */
static void need(tile_writer *w, wk__tile v, int at) {
  if (!v || in_ring(w, v)) return;
  for (int n = 0; n < w->variant_count[v]; n++)
    if (w->variants[v][n].layout == at) return;
  if (w->variant_count[v] == MAX_VARIANTS) {
    w->unsupported = true;
    return;
  }
  w->variants[v][w->variant_count[v]++] = (variant){.layout = (uint8_t)at};
}

static int scalar_layout(tile_writer *w) {
  layout l = {0};
  return layout_number(w, &l);
}

/* What an instruction that is computed in layout `at` needs of its operands. */
static void need_operands(tile_writer *w, wk__tile v, int at) {
  const wk__tile_instr *i = instr_at(w, v);
  layout l;
  if (is_transparent(i->op)) {
    l = source_layout(w, v, &w->layouts[at]);
    need(w, i->operands[0], layout_number(w, &l));
    return;
  }
  if (i->op == WK__TILE_dot && uses_groups(w, v)) {
    for (int o = 0; o < 2; o++) {
      group_operand g = group_operand_of(w, v, o);
      l = operand_layout(w, type_at(w, i->operands[o]), &w->layouts[at], o == 1);
      if (g.place == IN_REGISTERS)
        need(w, i->operands[o], layout_number(w, &l));
      else if (g.place != IN_RING)
        need(w, g.root, w->own[g.root]);
    }
    if (!is_zero(instr_at(w, i->operands[2]))) need(w, i->operands[2], at);
    return;
  }
  if (i->op == WK__TILE_dot && uses_tensor_cores(w, v)) {
    for (int o = 0; o < 2; o++) {
      l = operand_layout(w, type_at(w, i->operands[o]), &w->layouts[at], o == 1);
      need(w, i->operands[o], layout_number(w, &l));
    }
    need(w, i->operands[2], at);
    return;
  }
  for (int o = 0; o < 4; o++) {
    wk__tile x = i->operands[o];
    if (!x) continue;
    if (type_at(w, x)->ndim == 0)
      need(w, x, scalar_layout(w));
    else if (i->op == WK__TILE_set)
      need(w, x, w->own[i->operands[0]]);
    else if (i->op == WK__TILE_reduce || (i->op == WK__TILE_dot && o < 2))
      need(w, x, w->own[x]);
    else
      need(w, x, at);
  }
}

static void own_layout(tile_writer *w, wk__tile v) {
  const wk__tile_instr *i = instr_at(w, v);
  if (!wk__tile_has_value(i) || w->free[v] || w->own[v]) return;
  if (i->type.ndim == 0) {
    w->own[v] = (uint8_t)scalar_layout(w);
    return;
  }
  *w->looks = 0;
  layout l = find_layout(w, v);
  if (!l.rank) l = default_layout(w, &i->type, i->type.pointer ? fast_dim(w, v) : i->type.ndim - 1);
  w->own[v] = (uint8_t)layout_number(w, &l);
}

/* Where a store computes: as its value is, or as its pointers lie. */
int store_layout(tile_writer *w, wk__tile v) {
  const wk__tile_instr *i = instr_at(w, v);
  wk__tile pointer = i->operands[0];
  if (type_at(w, pointer)->ndim == 0) return scalar_layout(w);
  if (!w->free[pointer] && w->own[pointer]) return w->own[pointer];
  layout l = default_layout(w, type_at(w, pointer), fast_dim(w, pointer));
  return layout_number(w, &l);
}

wk_status choose_layouts(tile_writer *w) {
  const wk__tile_kernel *k = w->k;
  (void)scalar_layout(w);
  for (wk__tile v = 1; v < k->count; v++) w->free[v] = is_free(w, v);
  for (wk__tile v = 1; v < k->count; v++) own_layout(w, v);
  find_rings(w);
  for (wk__tile v = 1; v < k->count; v++) { /* operands that are used in their own layout have one */
    const wk__tile_instr *i = instr_at(w, v);
    for (int o = 0; o < 2; o++) {
      bool groups = i->op == WK__TILE_dot && uses_groups(w, v);
      bool in_own = i->op == WK__TILE_reduce || (i->op == WK__TILE_dot && (groups || !uses_tensor_cores(w, v)));
      wk__tile x = groups ? group_operand_of(w, v, o).root : i->operands[o];
      if (!in_own || !x || w->own[x]) continue;
      layout l = default_layout(w, type_at(w, x), type_at(w, x)->ndim - 1);
      w->own[x] = (uint8_t)layout_number(w, &l);
    }
  }
  plan_groups(w);
  for (wk__tile v = (wk__tile)k->count - 1; v > 0 && !w->unsupported; v--) {
    const wk__tile_instr *i = instr_at(w, v);
    if (i->op == WK__TILE_store) {
      need_operands(w, v, store_layout(w, v));
    } else if (!wk__tile_has_value(i)) {
      need_operands(w, v, i->op == WK__TILE_set ? 0 : scalar_layout(w));
    } else if (w->free[v] || is_transparent(i->op)) {
      if (i->type.ndim == 0) need(w, v, scalar_layout(w));
      for (int n = 0; n < w->variant_count[v]; n++) need_operands(w, v, w->variants[v][n].layout);
    } else {
      need(w, v, w->own[v]);
      need_operands(w, v, w->own[v]);
    }
  }
  if (w->unsupported) return wk_fail(WK_NOT_IMPLEMENTED, "a tile kernel with too many layouts for the GPU");
  for (int n = 1; n <= w->layout_count; n++)
    if (registers_of(&w->layouts[n]) > MAX_REGISTERS)
      return wk_fail(
          WK_NOT_IMPLEMENTED,
          "out of resource: registers, a block of %lld elements for %d threads. Reducing block sizes or more "
          "`num_warps` may help.",
          1LL << w->layouts[n].bits, w->threads);
  return WK_OK;
}
