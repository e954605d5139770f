/* Reductions and scans of tile kernels: in registers, across lanes by shuffles, across warps through shared memory.
 *
 * Invariant: as of ptx_tile_shared.c. Test: tests/cuda/test_tiles.py, whose emulator finds races. */
#include "codegen/ptx_tile_internal.h"

/* ---- reductions ---- */

typedef struct folding {
  tile_writer *w;
  const wk__tile_type *t; /* of the elements */
  int op;
  bool arg;
  int count;
  int value[MAX_REGISTERS], index[MAX_REGISTERS];
  bool active[MAX_REGISTERS];
} folding;

static int map_of(int op) {
  return op == WK__LOOP_reduce_sum || op == WK__LOOP_scan_sum     ? WK__LOOP_add
         : op == WK__LOOP_reduce_prod || op == WK__LOOP_scan_prod ? WK__LOOP_mul
         : op == WK__LOOP_reduce_max                              ? WK__LOOP_max
         : op == WK__LOOP_reduce_min                              ? WK__LOOP_min
                                                                  : op;
}

static const wk__tile_type index_type = {.dtype = WK_INT32, .shape = {1, 1, 1}};

/* Is b better than a, or as good and of a lower index? */
static int is_better(folding *f, int a, int b, int a_index, int b_index) {
  tile_writer *w = f->w;
  bool is_float = is_float_type(f->t);
  int x = widen(w, f->t, a), y = widen(w, f->t, b), p = new_registers(w, CLASS_P, 6);
  wk__tile_type wide = *f->t;
  if (class_of(f->t) == CLASS_H) wide.dtype = WK_FLOAT32;
  combine(w, f->op == WK__LOOP_reduce_argmax ? WK__LOOP_gt : WK__LOOP_lt, &wide, p, y, x);
  combine(w, WK__LOOP_eq, &wide, p + 1, x, y);
  if (is_float) { /* a NaN is the best, and as good as another */
    combine(w, WK__LOOP_ne, &wide, p + 2, x, x);
    combine(w, WK__LOOP_ne, &wide, p + 3, y, y);
    SAY("not.pred %%p%d, %%p%d;\n\tand.pred %%p%d, %%p%d, %%p%d", p + 4, p + 2, p + 4, p + 4, p + 3);
    SAY("or.pred %%p%d, %%p%d, %%p%d;\n\tand.pred %%p%d, %%p%d, %%p%d", p, p, p + 4, p + 4, p + 2, p + 3);
    SAY("or.pred %%p%d, %%p%d, %%p%d", p + 1, p + 1, p + 4);
  }
  SAY("setp.lt.s32 %%p%d, %%r%d, %%r%d;\n\tand.pred %%p%d, %%p%d, %%p%d", p + 5, b_index, a_index, p + 5, p + 5, p + 1);
  SAY("or.pred %%p%d, %%p%d, %%p%d", p, p, p + 5);
  return p;
}

static int chosen(tile_writer *w, const wk__tile_type *t, int p, int yes, int no) {
  static const char *const names[] = {"b32", "b64", "b16"};
  reg_class c = class_of(t);
  int out = new_registers(w, c, 1);
  if (c == CLASS_P) {
    int both = new_registers(w, CLASS_P, 2);
    SAY("and.pred %%p%d, %%p%d, %%p%d;\n\tnot.pred %%p%d, %%p%d", both, p, yes, both + 1, p);
    SAY("and.pred %%p%d, %%p%d, %%p%d;\n\tor.pred %%p%d, %%p%d, %%p%d", both + 1, both + 1, no, out, both, both + 1);
  } else {
    SAY("selp.%s %%%c%d, %%%c%d, %%%c%d, %%p%d", names[c], class_letter[c], out, class_letter[c], yes, class_letter[c],
        no, p);
  }
  return out;
}

/* value[r] and another are folded into value[r]; `swap` (or -1): a predicate, the other one comes first. */
static void fold(folding *f, int r, int other, int other_index, int swap) {
  tile_writer *w = f->w;
  if (f->arg) {
    int p = is_better(f, f->value[r], other, f->index[r], other_index);
    f->value[r] = chosen(w, f->t, p, other, f->value[r]);
    f->index[r] = chosen(w, &index_type, p, other_index, f->index[r]);
    return;
  }
  int a = f->value[r], b = other, out = new_registers(w, class_of(f->t), 1), op = map_of(f->op);
  if (swap >= 0 && is_float_type(f->t) && !w->approximates && (op == WK__LOOP_max || op == WK__LOOP_min)) {
    a = chosen(w, f->t, swap, other, f->value[r]);
    b = chosen(w, f->t, swap, f->value[r], other);
  }
  combine(w, op, f->t, out, a, b);
  f->value[r] = out;
}

/* Of the lane whose number differs in one bit. */
static int shuffled(tile_writer *w, const wk__tile_type *t, int reg, int lanes) {
  reg_class c = class_of(t);
  int out = new_registers(w, c, 1), in = reg, word = new_word(w);
  if (c == CLASS_D) {
    int half = wk__ptx_words(&w->text, 4);
    SAY("mov.b64 {%%r%d, %%r%d}, %%d%d", half, half + 1, reg);
    for (int n = 0; n < 2; n++)
      SAY("shfl.sync.bfly.b32 %%r%d, %%r%d, %d, 31, 0xffffffff", half + 2 + n, half + n, lanes);
    SAY("mov.b64 %%d%d, {%%r%d, %%r%d}", out, half + 2, half + 3);
    return out;
  }
  if (c != CLASS_R) in = new_word(w);
  if (c == CLASS_H) SAY("cvt.u32.u16 %%r%d, %%h%d", in, reg);
  if (c == CLASS_P) SAY("selp.u32 %%r%d, 1, 0, %%p%d", in, reg);
  SAY("shfl.sync.bfly.b32 %%r%d, %%r%d, %d, 31, 0xffffffff", c == CLASS_R ? out : word, in, lanes);
  if (c == CLASS_H) SAY("cvt.u16.u32 %%h%d, %%r%d", out, word);
  if (c == CLASS_P) SAY("setp.ne.u32 %%p%d, %%r%d, 0", out, word);
  return out;
}

static int bit_of_thread(tile_writer *w, int bit) {
  int p = new_registers(w, CLASS_P, 1);
  SAY("setp.ne.u32 %%p%d, %%r%d, 0", p, WITH("and.b32", w->tid, 1 << bit));
  return p;
}

/* Every thread leaves what it has and reads that of the thread whose number differs in one bit. */
static void fold_warps(folding *f, int bit) {
  tile_writer *w = f->w;
  int item = shared_item(f->t), slots = 0, swap = bit_of_thread(w, bit), other = WITH("xor.b32", w->tid, 1 << bit);
  int mine = TWO("add.u32", w->shared_base, WITH("mul.lo.u32", w->tid, item));
  int theirs = TWO("add.u32", w->shared_base, WITH("mul.lo.u32", other, item));
  int mine_index = TWO("add.u32", w->shared_base, WITH("shl.b32", w->tid, 2));
  int theirs_index = TWO("add.u32", w->shared_base, WITH("shl.b32", other, 2));
  for (int r = 0; r < f->count; r++) slots += f->active[r];
  int behind = (slots * w->threads * item + 15) / 16 * 16, slot = 0;
  need_shared(w, behind + (f->arg ? slots * w->threads * 4 : 0));
  SAY("bar.sync 0");
  for (int r = 0; r < f->count; r++) {
    if (!f->active[r]) continue;
    store_shared(w, f->t, f->value[r], mine, slot * w->threads * item, -1);
    if (f->arg) store_shared(w, &index_type, f->index[r], mine_index, behind + slot * w->threads * 4, -1);
    slot++;
  }
  SAY("bar.sync 0");
  slot = 0;
  for (int r = 0; r < f->count; r++) {
    if (!f->active[r]) continue;
    int value = new_registers(w, class_of(f->t), 1), index = f->arg ? new_word(w) : 0;
    load_shared(w, f->t, value, theirs, slot * w->threads * item);
    if (f->arg) load_shared(w, &index_type, index, theirs_index, behind + slot * w->threads * 4);
    fold(f, r, value, index, swap);
    slot++;
  }
}

static void fold_bit(folding *f, int where) {
  tile_writer *w = f->w;
  if (where < THREAD) {
    for (int r = 0; r < f->count; r++) {
      int other = r | 1 << where;
      if (!f->active[r] || other == r) continue;
      fold(f, r, f->value[other], f->index[other], -1);
      f->active[other] = false;
    }
  } else if (where < THREAD + 5) {
    int lanes = 1 << (where - THREAD), swap = bit_of_thread(w, where - THREAD);
    for (int r = 0; r < f->count; r++) {
      if (!f->active[r]) continue;
      int value = shuffled(w, f->t, f->value[r], lanes);
      fold(f, r, value, f->arg ? shuffled(w, &index_type, f->index[r], lanes) : 0, swap);
    }
  } else {
    fold_warps(f, where - THREAD);
  }
}

int emit_reduce(tile_writer *w, wk__tile v, int at) {
  const wk__tile_instr *i = instr_at(w, v);
  wk__tile x = i->operands[0];
  const layout *l = &w->layouts[w->own[x]], *to = &w->layouts[at];
  int base = value_in(w, x, w->own[x]), first, count, results = registers_of(to);
  folding *f = wk__alloc_zeroed(sizeof *f);
  int out = new_registers(w, class_of(&i->type), results);
  if (!f || registers_of(l) > MAX_REGISTERS) {
    w->unsupported = true;
    wk__free(f);
    return out;
  }
  bits_of_dim(type_at(w, x), i->axis, &first, &count);
  *f = (folding){.w = w, .t = type_at(w, x), .op = i->map, .arg = wk__loop_is_arg(i->map), .count = registers_of(l)};
  int mask = (1 << count) - 1, along = f->arg ? WITH("and.b32", WITH("shr.u32", w->place[w->own[x]], first), mask) : 0;
  for (int r = 0; r < f->count; r++) {
    f->active[r] = true, f->value[r] = base + r;
    if (f->arg) f->index[r] = WITH("add.u32", along, position_of(l, r) >> first & mask);
  }
  for (int b = 0; b < count && b < 2; b++) fold_bit(f, l->bit[first + b]);
  for (int b = count - 1; b >= 2; b--) fold_bit(f, l->bit[first + b]);
  for (int r = 0; r < results; r++) { /* the position in front of which the axis's bits are put in, 0 */
    int p = position_of(to, r), source = register_at(l, (p >> first << (first + count)) | (p & ((1 << first) - 1)));
    move_register(w, class_of(&i->type), out + r, f->arg ? f->index[source] : f->value[source]);
  }
  wk__free(f);
  return out;
}

/* ---- scans: a row a thread ---- */

int emit_scan(tile_writer *w, wk__tile v, int at) {
  const wk__tile_instr *i = instr_at(w, v);
  const wk__tile_type *t = &i->type;
  const layout *l = &w->layouts[at];
  int item = shared_item(t), count = registers_of(l), in = base_of(w, i->operands[0], at), first, bits;
  int out = new_registers(w, class_of(t), count),
      address = TWO("add.u32", w->shared_base, WITH("mul.lo.u32", w->place[at], item));
  int one = primary(w, l), rows = (int)wk__tile_elements(t) / t->shape[i->axis], length = t->shape[i->axis];
  bits_of_dim(t, i->axis, &first, &bits);
  int step = (1 << first) * item * (i->number.i ? -1 : 1);
  need_shared(w, wk__tile_elements(t) * item);
  SAY("bar.sync 0");
  for (int r = 0; r < count; r++) store_shared(w, t, in + r, address, position_of(l, r) * item, one);
  SAY("bar.sync 0");
  int row = new_word(w), loop = w->text.labels++, done = w->text.labels++, p = new_registers(w, CLASS_P, 1);
  SAY("mov.b32 %%r%d, %%r%d", row, w->tid);
  wk__ptx_label(&w->text, loop);
  SAY("setp.ge.u32 %%p%d, %%r%d, %d;\n\t@%%p%d bra L%d", p, row, rows, p, done);
  int low = WITH("and.b32", row, (1 << first) - 1), high = WITH("shl.b32", WITH("shr.u32", row, first), first + bits);
  int at_row = new_word(w), left = new_word(w), more = w->text.labels++, next = w->text.labels++;
  int sum = new_registers(w, class_of(t), 1), value = new_registers(w, class_of(t), 1);
  SAY("mov.b32 %%r%d, %%r%d", at_row,
      TWO("add.u32", w->shared_base, WITH("mul.lo.u32", TWO("or.b32", low, high), item)));
  if (i->number.i) SAY("add.u32 %%r%d, %%r%d, %d", at_row, at_row, -step * (length - 1));
  load_shared(w, t, sum, at_row, 0);
  SAY("mov.b32 %%r%d, %d", left, length - 1);
  wk__ptx_label(&w->text, more);
  SAY("setp.eq.u32 %%p%d, %%r%d, 0;\n\t@%%p%d bra L%d", p, left, p, next);
  SAY("add.s32 %%r%d, %%r%d, %d", at_row, at_row, step);
  load_shared(w, t, value, at_row, 0);
  combine(w, map_of(i->map), t, sum, sum, value);
  store_shared(w, t, sum, at_row, 0, -1);
  SAY("sub.u32 %%r%d, %%r%d, 1;\n\tbra L%d", left, left, more);
  wk__ptx_label(&w->text, next);
  SAY("add.u32 %%r%d, %%r%d, %d;\n\tbra L%d", row, row, w->threads, loop);
  wk__ptx_label(&w->text, done);
  SAY("bar.sync 0");
  for (int r = 0; r < count; r++) load_shared(w, t, out + r, address, position_of(l, r) * item);
  return out;
}
