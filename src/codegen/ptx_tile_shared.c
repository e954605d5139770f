/* What goes through shared memory: changes of layout, the parts of reductions that cross warps, scans.
 *
 * Invariant: a barrier stands before each first write and before each first read of it, so what one use has left may be
 * written over by the next. Test: tests/cuda/test_tiles.py, whose emulator finds races. */
#include "codegen/ptx_tile_internal.h"

int shared_item(const wk__tile_type *t) {
  static const int bytes[] = {4, 8, 2, 1};
  return bytes[class_of(t)];
}

void need_shared(tile_writer *w, int64_t bytes) { w->shared = (int)wk__max(w->shared, bytes); }

static void guard(tile_writer *w, int predicate) {
  wk__string_append(&w->text.code, "\t");
  if (predicate >= 0) wk__string_printf(&w->text.code, "@%%p%d ", predicate);
}

static const char *const types[] = {"b32", "b64", "b16", "u8"};

void store_shared(tile_writer *w, const wk__tile_type *t, int reg, int address, int offset, int predicate) {
  reg_class c = class_of(t);
  if (c == CLASS_P) {
    int bits = new_word(w);
    SAY("selp.u32 %%r%d, 1, 0, %%p%d", bits, reg);
    reg = bits;
  }
  guard(w, predicate);
  wk__string_printf(&w->text.code, "st.shared.%s [%%r%d+%d], %%%c%d;\n", types[c], address, offset,
                    c == CLASS_P ? 'r' : class_letter[c], reg);
}

void load_shared(tile_writer *w, const wk__tile_type *t, int reg, int address, int offset) {
  reg_class c = class_of(t);
  int into = c == CLASS_P ? new_word(w) : reg;
  SAY("ld.shared.%s %%%c%d, [%%r%d+%d]", types[c], c == CLASS_P ? 'r' : class_letter[c], into, address, offset);
  if (c == CLASS_P) SAY("setp.ne.u32 %%p%d, %%r%d, 0", reg, into);
}

/* ---- changes of layout ---- */

int place_of(tile_writer *w, const layout *l) {
  int sum = -1;
  for (int p = 0; p < l->bits; p++) {
    int t = l->bit[p] - THREAD, run = 1;
    if (t < 0) continue;
    while (p + run < l->bits && l->bit[p + run] == l->bit[p] + run) run++;
    int part = WITH("and.b32", t ? WITH("shr.u32", w->tid, t) : w->tid, (1 << run) - 1);
    if (p) part = WITH("shl.b32", part, p);
    sum = sum < 0 ? part : TWO("or.b32", sum, part);
    p += run - 1;
  }
  if (sum >= 0) return sum;
  sum = new_word(w);
  SAY("mov.b32 %%r%d, 0", sum);
  return sum;
}

bool is_renaming(const layout *from, const layout *to) {
  for (int p = 0; p < from->bits; p++)
    if (from->bit[p] != to->bit[p] && (from->bit[p] >= THREAD || to->bit[p] >= THREAD)) return false;
  return true;
}

/* The 16-byte pieces of a line of 128 bytes are exchanged by the line's number, so that what lies below each other is
 * not in the same banks. Of two addresses without common bits: the exclusive or of theirs. */
static int swizzled(int bytes) { return bytes ^ ((bytes >> 7 & 7) << 4); }

typedef struct through {
  const layout *l;
  int item, base; /* base: a word, the thread's address */
  int set;        /* bits of it that may be set */
  int vector;     /* neighbours in one access, as a power of two */
} through;

static through begin(tile_writer *w, const wk__tile_type *t, const layout *l) {
  through x = {.l = l, .item = shared_item(t)};
  for (int p = 0; p < x.l->bits; p++)
    if (x.l->bit[p] >= THREAD) x.set |= swizzled((1 << p) * x.item);
  int bytes = WITH("mul.lo.u32", place_of(w, l), x.item), line = WITH("and.b32", WITH("shr.u32", bytes, 3), 7 << 4);
  x.base = TWO("xor.b32", bytes, line);
  if (class_of(t) != CLASS_P)
    while (x.vector < x.l->bits && x.l->bit[x.vector] == x.vector && (x.item << (x.vector + 1)) <= 16) x.vector++;
  return x;
}

/* The word and the bytes behind it where a register's element lies. */
static int address_of(tile_writer *w, const through *x, int reg, int *out_offset) {
  int own = swizzled(position_of(x->l, reg) * x->item), common = own & x->set;
  *out_offset = own & ~x->set;
  int base = common ? WITH("xor.b32", x->base, common) : x->base;
  return TWO("add.u32", base, w->shared_base);
}

/* A vector of 2 to 4 registers of words or doubles, or halves as words. */
static void move_vector(tile_writer *w, const wk__tile_type *t, const through *x, int first, int reg, int predicate,
                        bool load) {
  int offset, address = address_of(w, x, reg, &offset), count = 1 << x->vector;
  bool halves = class_of(t) == CLASS_H;
  if (count == 1) {
    if (load)
      load_shared(w, t, first + reg, address, offset);
    else
      store_shared(w, t, first + reg, address, offset, predicate);
    return;
  }
  int words = halves ? count / 2 : count, base = halves ? wk__ptx_words(&w->text, words) : first + reg;
  char letter = halves ? 'r' : class_letter[class_of(t)];
  for (int n = 0; n < words && halves && !load; n++)
    SAY("mov.b32 %%r%d, {%%h%d, %%h%d}", base + n, first + reg + 2 * n, first + reg + 2 * n + 1);
  guard(w, predicate);
  wk__string_printf(&w->text.code, "%s.shared%s.%s ", load ? "ld" : "st",
                    words == 4   ? ".v4"
                    : words == 2 ? ".v2"
                                 : "",
                    letter == 'd' ? "b64" : "b32");
  if (!load) wk__string_printf(&w->text.code, "[%%r%d+%d], ", address, offset);
  if (words > 1) wk__string_append(&w->text.code, "{");
  for (int n = 0; n < words; n++) wk__string_printf(&w->text.code, "%s%%%c%d", n ? ", " : "", letter, base + n);
  if (words > 1) wk__string_append(&w->text.code, "}");
  if (load) wk__string_printf(&w->text.code, ", [%%r%d+%d]", address, offset);
  wk__string_append(&w->text.code, ";\n");
  for (int n = 0; n < words && halves && load; n++)
    SAY("mov.b32 {%%h%d, %%h%d}, %%r%d", first + reg + 2 * n, first + reg + 2 * n + 1, base + n);
}

/* The position bit that has a register's or thread's bit; -1: none. */
static int bit_at(const layout *l, int where) {
  for (int p = 0; p < l->bits; p++)
    if (l->bit[p] == where) return p;
  return -1;
}

/* Positions counted from bit `first` on, around: the other dim of a matrix becomes the one that lies together. */
static layout turned(const layout *l, int first) {
  layout out = *l;
  for (int p = 0; p < l->bits; p++) out.bit[p] = l->bit[(p + first) % l->bits];
  return out;
}

static const int NO_BIT = 255;

/* ldmatrix gives lane l halves 2 (l mod 4), + 1 of row l / 4 of a matrix of 8 rows of 16 bytes, .trans of its
 * transpose; lane l says where row l mod 8 of matrix l / 8 is. Out: the layout of these addresses. False: not such a
 * layout. */
static bool is_matrix(const layout *l, bool trans, layout *out) {
  const int low[] = {0, THREAD, THREAD + 1}, high[] = {THREAD + 2, THREAD + 3, THREAD + 4};
  const int *columns = trans ? high : low, *rows = trans ? low : high;
  *out = *l;
  if (bit_at(l, 1) < 0 || bit_at(l, 2) < 0) return false;
  for (int b = 0; b < 3; b++) {
    if (l->bit[b] != columns[b] || bit_at(l, rows[b]) < 0) return false;
    out->bit[b] = NO_BIT;
  }
  for (int b = 0; b < 3; b++) out->bit[bit_at(l, rows[b])] = (uint8_t)(THREAD + b);
  out->bit[bit_at(l, 1)] = THREAD + 3, out->bit[bit_at(l, 2)] = THREAD + 4;
  return true;
}

/* Four matrices at a time, 8 halves a thread. */
static void load_matrices(tile_writer *w, const wk__tile_type *t, const layout *l, const layout *addresses, bool trans,
                          int out) {
  layout known = *addresses;
  int count = registers_of(l);
  through x = {.l = l, .item = shared_item(t)};
  for (int p = 0; p < known.bits; p++) {
    if (known.bit[p] == NO_BIT) known.bit[p] = 0; /* no part of an address */
    if (known.bit[p] >= THREAD) x.set |= swizzled((1 << p) * x.item);
  }
  int bytes = WITH("mul.lo.u32", place_of(w, &known), x.item),
      line = WITH("and.b32", WITH("shr.u32", bytes, 3), 7 << 4);
  x.base = TWO("xor.b32", bytes, line);
  for (int r = 0; r < count; r += 8) {
    int offset, address = address_of(w, &x, r, &offset), words = wk__ptx_words(&w->text, 4);
    SAY("ldmatrix.sync.aligned.m8n8.x4%s.shared.b16 {%%r%d, %%r%d, %%r%d, %%r%d}, [%%r%d+%d]", trans ? ".trans" : "",
        words, words + 1, words + 2, words + 3, address, offset);
    for (int n = 0; n < 4; n++) SAY("mov.b32 {%%h%d, %%h%d}, %%r%d", out + r + 2 * n, out + r + 2 * n + 1, words + n);
  }
}

/* Both layouts, counted so that what the source has together lies together. */
static void turn(const tile_writer *w, const change *c, layout *a, layout *b) {
  *a = w->layouts[c->from], *b = w->layouts[c->to];
  int first = bit_at(a, 0);
  if (first > 0) *a = turned(a, first), *b = turned(b, first);
}

static void leave(tile_writer *w, const change *c) {
  layout a, b;
  turn(w, c, &a, &b);
  through x = begin(w, c->t, &a);
  int one = primary(w, &a);
  for (int r = 0; r < registers_of(&a); r += 1 << x.vector) move_vector(w, c->t, &x, c->base, r, one, false);
}

static void take(tile_writer *w, const change *c) {
  layout a, b, addresses;
  turn(w, c, &a, &b);
  for (int trans = 0; trans < 2 && class_of(c->t) == CLASS_H; trans++)
    if (w->kind->capability >= 75 && is_matrix(&b, trans, &addresses)) {
      load_matrices(w, c->t, &b, &addresses, trans, c->out);
      return;
    }
  through x = begin(w, c->t, &b);
  for (int r = 0; r < registers_of(&b); r += 1 << x.vector) move_vector(w, c->t, &x, c->out, r, -1, true);
}

static void rename_registers(tile_writer *w, const change *c) {
  const layout *a = &w->layouts[c->from], *b = &w->layouts[c->to];
  for (int r = 0; r < registers_of(b); r++)
    move_register(w, class_of(c->t), c->out + r, c->base + register_at(a, position_of(b, r)));
}

void convert(tile_writer *w, const change *changes, int count) {
  int base = w->shared_base, where[MAX_CHANGES];
  int64_t bytes = 0;
  bool through_shared = false;
  for (int n = 0; n < count; n++) {
    const change *c = &changes[n];
    where[n] = -1;
    if (is_renaming(&w->layouts[c->from], &w->layouts[c->to])) {
      rename_registers(w, c);
      continue;
    }
    if (!through_shared) SAY("bar.sync 0");
    through_shared = true;
    where[n] = w->shared_base = bytes ? WITH("add.u32", base, bytes) : base;
    bytes += (wk__tile_elements(c->t) * shared_item(c->t) + 1023) / 1024 * 1024;
    leave(w, c);
  }
  need_shared(w, bytes);
  if (through_shared) SAY("bar.sync 0");
  for (int n = 0; n < count; n++) {
    if (where[n] < 0) continue;
    w->shared_base = where[n];
    take(w, &changes[n]);
  }
  w->shared_base = base;
}

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
