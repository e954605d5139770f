/* Products of tile kernels by wgmma (sm_90): four warps together, or several such groups.
 *
 * In: a product of small floats whose block is made of 64 rows a group. A thread's sums are those of mma.sync, in
 * groups of 64 rows by all columns, and stay where they are: a product whose result is a carry's next value adds to the
 * carry's registers. Operands lie in shared memory (ptx_groups.h): in a ring that copies of a loop's loads fill
 * (ptx_tile_rings.c), where they are kept from in front of the loop on, or, what is computed in it, just for the
 * product. The first one is taken from registers where it lies there as wgmma wants it: of another product's results.
 *
 * Invariant: a product is under way until something needs its result, or may write over what it reads. One that adds
 * to a carry and reads rings may be so while the next round begins. Test: tests/cuda/test_tiles.py. */
#include "codegen/ptx_groups.h"
#include "codegen/ptx_tile_internal.h"

enum { MOST_KEPT = 96 * 1024, PANEL_COLUMNS = 64, LEAST_COLUMNS = 16 };

static int rounded(int64_t bytes) { return (int)((bytes + WK__GROUP_ATOM - 1) / WK__GROUP_ATOM * WK__GROUP_ATOM); }

/* ---- which products, and where their sums are ---- */

/* Groups share rows first; those that are left over share columns. */
static int row_bits_of(const tile_writer *w, const wk__tile_type *t) {
  return (int)wk__min(log2_of(t->shape[0] / WK__GROUP_ROWS), w->thread_bits - 7);
}
static int column_bits_of(const tile_writer *w, const wk__tile_type *t) {
  return w->thread_bits - 7 - row_bits_of(w, t);
}

bool uses_groups(const tile_writer *w, wk__tile dot) {
  const wk__tile_type *t = type_at(w, dot);
  if (!w->kind->warpgroups || w->thread_bits < 7 || t->shape[0] < WK__GROUP_ROWS || !uses_tensor_cores(w, dot))
    return false;
  int column_bits = column_bits_of(w, t), columns = t->shape[1] >> column_bits;
  return columns >= (column_bits ? PANEL_COLUMNS : LEAST_COLUMNS);
}

layout group_layout(const tile_writer *w, const wk__tile_type *t) {
  layout l = {.bits = (uint8_t)log2_of(wk__tile_elements(t)), .rank = 2};
  int columns = log2_of(t->shape[1]), rows = log2_of(t->shape[0]), reg = 0;
  int row_bits = row_bits_of(w, t), column_bits = column_bits_of(w, t);
  int row_end = (int)wk__min(rows - row_bits, TILE_BITS - columns); /* always the first: for the compiler to see */
  l.bit[0] = (uint8_t)reg++;
  l.bit[1] = THREAD, l.bit[2] = THREAD + 1;
  for (int b = 0; b < 3; b++) l.bit[columns + b] = (uint8_t)(THREAD + 2 + b);
  l.bit[columns + 3] = (uint8_t)reg++;
  for (int b = 4; b < 6; b++) l.bit[columns + b] = (uint8_t)(THREAD + 1 + b);
  for (int b = 3; b < columns - column_bits; b++) l.bit[b] = (uint8_t)reg++;
  for (int b = 0; b < column_bits; b++) l.bit[columns - column_bits + b] = (uint8_t)(THREAD + 7 + row_bits + b);
  for (int b = 6; b < row_end; b++) l.bit[columns + b] = (uint8_t)reg++;
  for (int b = 0; b < row_bits; b++) l.bit[columns + rows - row_bits + b] = (uint8_t)(THREAD + 7 + b);
  return l;
}

/* ---- operands ---- */

static wk__tile root_of(const tile_writer *w, wk__tile v, bool *out_turned) {
  *out_turned = false;
  while (instr_at(w, v)->op == WK__TILE_permute) {
    *out_turned ^= (instr_at(w, v)->number.i & 15) == 1;
    v = instr_at(w, v)->operands[0];
  }
  return v;
}

form group_form(const wk__tile_type *t, int fast) {
  form f = {{0}};
  int item = wk__dtypes[t->dtype].size, line = (int)wk__min(128, t->shape[fast] * item), first, count;
  int in_line = log2_of(line / item), panel = t->shape[1 - fast] * line;
  bits_of_dim(t, fast, &first, &count);
  for (int b = 0; b < count; b++) f.bytes[first + b] = b < in_line ? item << b : panel << (b - in_line);
  bits_of_dim(t, 1 - fast, &first, &count);
  for (int b = 0; b < count; b++) f.bytes[first + b] = wk__ptx_group_swizzled(line << b, line);
  return f;
}

int register_dim(const wk__tile_type *t, const layout *l) {
  int first, count;
  for (int d = 0; d < t->ndim; d++) {
    bits_of_dim(t, d, &first, &count);
    for (int b = first; b < first + count; b++)
      if (l->bit[b] == 0) return d;
  }
  return t->ndim - 1;
}

/* The loop that a product is in, of any kind; 0: none. */
static wk__tile loop_around(const tile_writer *w, wk__tile v) {
  int depth = 0;
  for (wk__tile u = v; u > 0; u--) {
    int op = instr_at(w, u)->op;
    depth += (op == WK__TILE_end) - (op == WK__TILE_for || op == WK__TILE_while || op == WK__TILE_if);
    if (depth < 0 && op != WK__TILE_if) return u;
    if (depth < 0) depth = 0;
  }
  return 0;
}

/* What is made in front of the product's loop lies in shared memory as long as that runs. */
static group_place place_in_memory(const tile_writer *w, wk__tile dot, wk__tile root) {
  if (in_ring(w, root)) return IN_RING;
  wk__tile loop = loop_around(w, dot);
  while (loop && instr_at(w, loop - 1)->op == WK__TILE_carry) loop--;
  return root < loop && instr_at(w, root)->op != WK__TILE_carry && !w->free[root] ? KEPT : PASSING;
}

static bool is_in_registers(const tile_writer *w, wk__tile dot, wk__tile x) {
  layout wanted = operand_layout(w, type_at(w, x), &w->layouts[w->own[dot]], false);
  return w->own[x] && is_renaming(&w->layouts[w->own[x]], &wanted);
}

group_operand group_operand_of(const tile_writer *w, wk__tile dot, int o) {
  bool turned;
  wk__tile x = instr_at(w, dot)->operands[o];
  group_operand g = {.root = root_of(w, x, &turned)};
  const wk__tile_type *t = type_at(w, g.root);
  g.place = o == 0 && is_in_registers(w, dot, x) ? IN_REGISTERS : place_in_memory(w, dot, g.root);
  wk__tile laid_out = g.place == IN_RING ? w->rings[w->ring_of[g.root] - 1].load : g.root;
  int fast = w->own[laid_out] ? register_dim(t, &w->layouts[w->own[laid_out]]) : t->ndim - 1;
  g.form = group_form(t, fast);
  g.line = (int)wk__min(128, t->shape[fast] * wk__dtypes[t->dtype].size), g.panel = t->shape[1 - fast] * g.line;
  g.across = (fast ^ turned) == o;
  return g;
}

/* ---- the plan ---- */

static int uses_of(const tile_writer *w, wk__tile v) {
  int uses = 0;
  for (wk__tile u = 1; u < w->k->count; u++)
    for (int o = 0; o < 4; o++) uses += instr_at(w, u)->operands[o] == v;
  return uses;
}

/* The carry that a product's result becomes, where nothing reads the old one behind it, or the result otherwise. */
static wk__tile carry_to_add_to(const tile_writer *w, wk__tile dot) {
  wk__tile loop = loop_around(w, dot), carry = 0;
  if (!loop || instr_at(w, loop)->op != WK__TILE_for || uses_of(w, dot) != 1) return 0;
  wk__tile end = wk__tile_region_end(w->k, loop);
  for (wk__tile s = end - 1; instr_at(w, s)->op == WK__TILE_set; s--)
    if (instr_at(w, s)->operands[1] == dot) carry = instr_at(w, s)->operands[0];
  if (!carry || w->own[carry] != w->own[dot]) return 0;
  for (wk__tile u = dot + 1; u < end; u++)
    for (int o = 0; o < 4; o++)
      if (instr_at(w, u)->operands[o] == carry && !(instr_at(w, u)->op == WK__TILE_set && o == 0)) return 0;
  return carry;
}

static void plan_operand(tile_writer *w, wk__tile dot, int o) {
  group_operand g = group_operand_of(w, dot, o);
  int bytes = rounded(wk__tile_elements(type_at(w, g.root)) * 2);
  if (g.place != KEPT || w->kept[g.root] || w->kept_bytes + bytes > MOST_KEPT) return;
  w->kept[g.root] = w->kept_bytes + 1;
  w->kept_bytes += bytes;
}

void plan_groups(tile_writer *w) {
  for (wk__tile v = 1; v < w->k->count; v++) {
    if (instr_at(w, v)->op != WK__TILE_dot || !uses_groups(w, v)) continue;
    w->has_groups = true;
    w->sums_of[v] = carry_to_add_to(w, v);
    for (int o = 0; o < 2; o++) plan_operand(w, v, o);
  }
}

/* ---- products under way ---- */

static void settle_up_to(tile_writer *w, int index) {
  int left = w->pending_count - index - 1;
  SAY("wgmma.wait_group.sync.aligned %d", left);
  memmove(w->pending, w->pending + index + 1, (size_t)left * sizeof *w->pending);
  w->pending_count = left;
}

void settle(tile_writer *w, wk__tile v) {
  for (int n = w->pending_count - 1; n >= 0; n--)
    if (w->pending[n] == v || w->sums_of[w->pending[n]] == v) {
      settle_up_to(w, n);
      return;
    }
}

void settle_all(tile_writer *w) {
  if (w->pending_count) settle_up_to(w, w->pending_count - 1);
}

void settle_all_but_last(tile_writer *w) {
  if (w->pending_count > 1) settle_up_to(w, w->pending_count - 2);
}

void settle_last_round(tile_writer *w) {
  for (int n = w->pending_count - 1; n >= 0; n--)
    for (int m = n + 1; m < w->pending_count; m++)
      if (w->pending[m] == w->pending[n]) {
        settle_up_to(w, n);
        return;
      }
}

bool changes_sums(const tile_writer *w, wk__tile loop, wk__tile end) {
  for (wk__tile v = instr_at(w, loop)->next; v != end; v = instr_at(w, v)->next) {
    if (instr_at(w, v)->op != WK__TILE_dot || !uses_groups(w, v)) continue;
    const wk__tile_instr *sums = instr_at(w, instr_at(w, v)->operands[2]);
    if (sums->op != WK__TILE_carry && !is_zero(sums)) return true;
  }
  return false;
}

/* Nothing but the next round's first copies writes to what it reads; registers of its first operand are written behind
 * the next round's first product. */
bool is_deferred(const tile_writer *w, const staged_loop *s, wk__tile v) {
  if (instr_at(w, v)->op != WK__TILE_dot || !uses_groups(w, v) || !w->sums_of[v]) return false;
  for (int o = 0; o < 2; o++) {
    group_operand g = group_operand_of(w, v, o);
    if (g.place == PASSING || (g.place == KEPT && !w->kept[g.root])) return false;
    if (g.place == IN_REGISTERS && v == s->first_product) return false;
  }
  return true;
}

/* ---- one product ---- */

static void leave_operand(tile_writer *w, const group_operand *g, int origin) {
  const layout *l = &w->layouts[w->own[g->root]];
  through x = begin_through(w, type_at(w, g->root), l, &g->form);
  x.origin = origin;
  leave_in(w, type_at(w, g->root), l, value_in(w, g->root, w->own[g->root]), &x);
}

/* All that products of the loop in front have read is read. */
void keep(tile_writer *w, wk__tile v) {
  group_operand g = {.root = v};
  const wk__tile_type *t = type_at(w, v);
  g.form = group_form(t, register_dim(t, &w->layouts[w->own[v]]));
  settle_all(w);
  SAY("bar.sync 0");
  leave_operand(w, &g, WITH("add.u32", w->ring_base, w->kept[v] - 1));
  SAY("fence.proxy.async.shared::cta;\n\tbar.sync 0");
}

/* Operands of this product alone; -> bytes before which `origins` (words) are. */
static void pass_operands(tile_writer *w, const group_operand *g, int *origins) {
  int bytes = 0;
  bool any = false;
  for (int o = 0; o < 2; o++) any |= origins[o] < 0;
  if (!any) return;
  settle_all(w);
  SAY("bar.sync 0");
  for (int o = 0; o < 2; o++) {
    if (origins[o] >= 0) continue;
    origins[o] = WITH("add.u32", w->shared_base, bytes);
    leave_operand(w, &g[o], origins[o]);
    bytes += rounded(wk__tile_elements(type_at(w, g[o].root)) * 2);
  }
  need_shared(w, bytes);
  SAY("fence.proxy.async.shared::cta;\n\tbar.sync 0");
}

/* The word where an operand lies already, -1: nowhere; 0 of registers. */
static int origin_of(tile_writer *w, const staged_loop *s, const group_operand *g) {
  if (g->place == IN_REGISTERS) return 0;
  if (g->place == KEPT && w->kept[g->root]) return WITH("add.u32", w->ring_base, w->kept[g->root] - 1);
  if (g->place != IN_RING) return -1;
  int offset = w->kept_bytes + w->rings[w->ring_of[g->root] - 1].offset;
  return WITH("add.u32", TWO("add.u32", w->ring_base, s->read), offset);
}

/* Bytes from an operand's begin to `along` rows or columns further, and to `k`. */
static int part_of(const group_operand *g, int along, int k) {
  int fast = 2 * (g->across ? along : k), slow = g->across ? k : along;
  return fast / g->line * g->panel + fast % g->line + slow * g->line;
}

/* A description of a group's part: group number `bits` bits from bit `first` of the thread's number on has as many
 * parts of `along` rows or columns in front of it. */
static int describe(tile_writer *w, const group_operand *g, int origin, int first, int bits, int along) {
  if (bits) {
    int group = WITH("and.b32", WITH("shr.u32", w->tid, first), (1 << bits) - 1);
    origin = TWO("add.u32", origin, WITH("mul.lo.u32", group, part_of(g, along, 0)));
  }
  return wk__ptx_group_describe(&w->text, origin, g->line, g->panel);
}

static int predicate_of(tile_writer *w, bool value) {
  int p = new_registers(w, CLASS_P, 1);
  SAY("setp.%s.u32 %%p%d, 0, 0", value ? "eq" : "ne", p);
  return p;
}

/* All of a product: 64 rows and up to 256 columns at a time. */
static void multiply(tile_writer *w, wk__tile v, const group_operand g[2], const int origins[2], int sums, bool adds) {
  const wk__tile_type *t = type_at(w, v), *ta = type_at(w, instr_at(w, v)->operands[0]);
  int row_bits = row_bits_of(w, t), column_bits = column_bits_of(w, t);
  int rows = t->shape[0] >> row_bits, columns = t->shape[1] >> column_bits, words = -1;
  layout in_registers = operand_layout(w, ta, &w->layouts[w->own[v]], false);
  const char *name = ta->dtype == WK_FLOAT16 ? "f16" : "bf16";
  wk__ptx_group_product p = {.columns = (int)wk__min(columns, WK__GROUP_COLUMNS),
                             .depth = 16,
                             .sum = "f32",
                             .left = name,
                             .right = name,
                             .a = -1,
                             .a_across = g[0].across,
                             .b_across = g[1].across};
  int left = -1, right = describe(w, &g[1], origins[1], 7 + row_bits, column_bits, columns);
  if (g[0].place == IN_REGISTERS)
    words = pack_pairs(w, value_in(w, instr_at(w, v)->operands[0], layout_number(w, &in_registers)),
                       registers_of(&in_registers));
  else
    left = describe(w, &g[0], origins[0], 7, row_bits, rows);
  int first = predicate_of(w, adds), others = predicate_of(w, true);
  SAY("wgmma.fence.sync.aligned");
  for (int row = 0; row < rows; row += WK__GROUP_ROWS)
    for (int column = 0; column < columns; column += p.columns)
      for (int k = 0; k < ta->shape[1]; k += 16) {
        p.sums = sums + (row * columns / WK__GROUP_ROWS + column) / 2;
        p.adds = k ? others : first;
        if (words >= 0)
          p.fragments = words + register_at(&in_registers, row * ta->shape[1] + k) / 2;
        else
          p.a = wk__ptx_group_part(&w->text, left, part_of(&g[0], row, k));
        p.b = wk__ptx_group_part(&w->text, right, part_of(&g[1], column, k));
        wk__ptx_group_multiply(&w->text, &p);
      }
  SAY("wgmma.commit_group.sync.aligned");
}

/* The registers that a product adds to, with what they begin with. */
static int begin_sums(tile_writer *w, wk__tile v, int at, bool adds) {
  wk__tile from = instr_at(w, v)->operands[2], carry = w->sums_of[v];
  int count = registers_of(&w->layouts[at]);
  if (carry && from == carry) return registers_in(w, carry, at);
  int out = carry ? value_in(w, carry, at) : new_registers(w, CLASS_R, count);
  int in = adds ? value_in(w, from, at) : 0;
  for (int r = 0; r < count && adds; r++) move_register(w, CLASS_R, out + r, in + r);
  return out;
}

int emit_group_dot(tile_writer *w, wk__tile v, int at) {
  wk__tile loop = loop_around(w, v);
  staged_loop *s = loop ? staged_of(w, loop) : NULL;
  group_operand g[2] = {group_operand_of(w, v, 0), group_operand_of(w, v, 1)};
  bool adds = !is_zero(instr_at(w, instr_at(w, v)->operands[2]));
  if (s && v == s->first_product) await_round(w, s);
  int origins[2] = {origin_of(w, s, &g[0]), origin_of(w, s, &g[1])};
  bool passes = origins[0] < 0 || origins[1] < 0;
  pass_operands(w, g, origins);
  int sums = begin_sums(w, v, at, adds);
  multiply(w, v, g, origins, sums, adds);
  if (w->pending_count == MAX_PENDING) settle_all(w);
  w->pending[w->pending_count++] = v;
  if (passes) settle_all(w);
  if (s && v == s->first_product) begin_copies(w, s);
  return sums;
}
