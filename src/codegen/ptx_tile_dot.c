/* Products: mma.sync on fragments that are in registers already, or chains of fused multiply-adds whose operands are in
 * shared memory. (wgmma: ptx_tile_groups.c.) Test: tests/cuda/test_tiles.py. */
#include "codegen/ptx_tile_internal.h"

/* ---- tensor cores ---- */

int pack_pairs(tile_writer *w, int base, int count) {
  int words = wk__ptx_words(&w->text, count / 2);
  for (int n = 0; n < count / 2; n++) SAY("mov.b32 %%r%d, {%%h%d, %%h%d}", words + n, base + 2 * n, base + 2 * n + 1);
  return words;
}

static int emit_mma(tile_writer *w, wk__tile v, int at) {
  const wk__tile_instr *i = instr_at(w, v);
  const layout *d = &w->layouts[at];
  const wk__tile_type *ta = type_at(w, i->operands[0]), *tb = type_at(w, i->operands[1]);
  layout a = operand_layout(w, ta, d, false), b = operand_layout(w, tb, d, true);
  int a_words = pack_pairs(w, value_in(w, i->operands[0], layout_number(w, &a)), registers_of(&a));
  int b_words = pack_pairs(w, value_in(w, i->operands[1], layout_number(w, &b)), registers_of(&b));
  int count = registers_of(d), out = new_registers(w, CLASS_R, count), sums = value_in(w, i->operands[2], at);
  int columns = log2_of(i->type.shape[1]), k_bits = log2_of(ta->shape[1]);
  const char *name = ta->dtype == WK_FLOAT16 ? "f16" : "bf16";
  for (int r = 0; r < count; r++) move_register(w, CLASS_R, out + r, sums + r);
  for (int k = 0; k < ta->shape[1]; k += 16)
    for (int tile = 0; tile < count; tile += 4) {
      int position = position_of(d, tile), row = position >> columns, column = position & ((1 << columns) - 1);
      int fa[4], fb[2];
      for (int n = 0; n < 4; n++) {
        int at_a = (row | (n & 1) << 3) << k_bits | k | (n >> 1) << 3;
        fa[n] = a_words + register_at(&a, at_a) / 2;
      }
      for (int n = 0; n < 2; n++) fb[n] = b_words + register_at(&b, (k | n << 3) << columns | column) / 2;
      int o = out + tile;
      SAY("mma.sync.aligned.m16n8k16.row.col.f32.%s.%s.f32 {%%r%d, %%r%d, %%r%d, %%r%d}, {%%r%d, %%r%d, %%r%d, %%r%d}, "
          "{%%r%d, %%r%d}, {%%r%d, %%r%d, %%r%d, %%r%d}",
          name, name, o, o + 1, o + 2, o + 3, fa[0], fa[1], fa[2], fa[3], fb[0], fb[1], o, o + 1, o + 2, o + 3);
    }
  return out;
}

/* ---- multiply-adds ---- */

/* An operand in shared memory, row by row, as it is computed with. */
static void leave(tile_writer *w, wk__tile x, const wk__tile_type *wide, int offset) {
  const layout *l = &w->layouts[w->own[x]];
  int base = value_in(w, x, w->own[x]), item = shared_item(wide), one = primary(w, l);
  int address = TWO("add.u32", w->shared_base, WITH("mul.lo.u32", w->place[w->own[x]], item));
  for (int r = 0; r < registers_of(l); r++)
    store_shared(w, wide, widen(w, type_at(w, x), base + r), address, offset + position_of(l, r) * item, one);
}

typedef struct chain {
  tile_writer *w;
  const wk__tile_type *t; /* of the sums */
  int item, columns, k;   /* bytes; bits of columns; elements of k */
  const layout *d;
  int count, sums;
  int rows, cols; /* words: where the thread's rows of a and columns of b begin */
} chain;

static void one_step(const chain *c, int offset_b) {
  tile_writer *w = c->w;
  int rows[MAX_REGISTERS], columns[MAX_REGISTERS], mask = (1 << c->columns) - 1;
  reg_class reg = class_of(c->t);
  char l = class_letter[reg];
  for (int r = 0; r < c->count; r++) {
    int row = position_of(c->d, r) >> c->columns, column = position_of(c->d, r) & mask;
    rows[r] = columns[r] = -1;
    for (int e = 0; e < r; e++) {
      if (position_of(c->d, e) >> c->columns == row) rows[r] = rows[e];
      if ((position_of(c->d, e) & mask) == column) columns[r] = columns[e];
    }
    if (rows[r] < 0) load_shared(w, c->t, rows[r] = new_registers(w, reg, 1), c->rows, row * c->k * c->item);
    if (columns[r] < 0)
      load_shared(w, c->t, columns[r] = new_registers(w, reg, 1), c->cols, offset_b + column * c->item);
    if (is_float_type(c->t))
      SAY("fma.rn.%s %%%c%d, %%%c%d, %%%c%d, %%%c%d", reg == CLASS_D ? "f64" : "f32", l, c->sums + r, l, rows[r], l,
          columns[r], l, c->sums + r);
    else
      SAY("mad.lo.s32 %%r%d, %%r%d, %%r%d, %%r%d", c->sums + r, rows[r], columns[r], c->sums + r);
  }
}

/* A chain over k from `first` on; `steps` of them. */
static void one_block(const chain *c, int steps, int offset_b) {
  tile_writer *w = c->w;
  int loop = w->text.labels++, left = new_word(w), more = new_registers(w, CLASS_P, 1);
  wk__tile_instr zero = {.type = *c->t,
                         .number = {.category = is_float_type(c->t) ? WK__FLOAT_KIND : WK__INTEGER_KIND}};
  emit_constant(w, &zero, c->sums, c->count);
  SAY("mov.b32 %%r%d, %d", left, steps);
  wk__ptx_label(&w->text, loop);
  one_step(c, offset_b);
  SAY("add.u32 %%r%d, %%r%d, %d;\n\tadd.u32 %%r%d, %%r%d, %d", c->rows, c->rows, c->item, c->cols, c->cols,
      c->item << c->columns);
  SAY("sub.u32 %%r%d, %%r%d, 1;\n\tsetp.ne.u32 %%p%d, %%r%d, 0;\n\t@%%p%d bra L%d", left, left, more, left, more, loop);
}

static int emit_chains(tile_writer *w, wk__tile v, int at) {
  const wk__tile_instr *i = instr_at(w, v);
  const wk__tile_type *ta = type_at(w, i->operands[0]), *tb = type_at(w, i->operands[1]);
  chain c = {
      .w = w, .t = &i->type, .item = shared_item(&i->type), .columns = log2_of(i->type.shape[1]), .k = ta->shape[1]};
  c.d = &w->layouts[at], c.count = registers_of(c.d);
  int out = new_registers(w, class_of(&i->type), c.count), sums = value_in(w, i->operands[2], at);
  int bytes_a = (int)wk__tile_elements(ta) * c.item;
  if (c.count > MAX_REGISTERS) w->unsupported = true;
  if (w->unsupported) return out;
  need_shared(w, bytes_a + wk__tile_elements(tb) * c.item);
  SAY("bar.sync 0");
  leave(w, i->operands[0], &i->type, 0);
  leave(w, i->operands[1], &i->type, bytes_a);
  SAY("bar.sync 0");
  c.rows = new_word(w), c.cols = new_word(w);
  int row = WITH("mul.lo.u32", WITH("shr.u32", w->place[at], c.columns), c.k * c.item);
  int column = WITH("mul.lo.u32", WITH("and.b32", w->place[at], (1 << c.columns) - 1), c.item);
  SAY("add.u32 %%r%d, %%r%d, %%r%d;\n\tadd.u32 %%r%d, %%r%d, %%r%d", c.rows, row, w->shared_base, c.cols, column,
      w->shared_base);
  for (int r = 0; r < c.count; r++) move_register(w, class_of(&i->type), out + r, sums + r);
  c.sums = new_registers(w, class_of(&i->type), c.count);
  for (int k = 0; k < c.k; k += WK__TILE_K_BLOCK) {
    one_block(&c, (int)wk__min(WK__TILE_K_BLOCK, c.k - k), bytes_a);
    for (int r = 0; r < c.count; r++) combine(w, WK__LOOP_add, &i->type, out + r, c.sums + r, out + r);
  }
  return out;
}

int emit_dot(tile_writer *w, wk__tile v, int at) {
  if (uses_groups(w, v)) return emit_group_dot(w, v, at);
  return uses_tensor_cores(w, v) ? emit_mma(w, v, at) : emit_chains(w, v, at);
}
