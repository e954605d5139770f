/* What goes through shared memory: elements, changes of layout.
 *
 * Invariant: a barrier stands before each first write and before each first read of it, so what one use has left may be
 * written over by the next. (Reductions: ptx_tile_reduce.c.) Test: tests/cuda/test_tiles.py, whose emulator finds
 * races. */
#include "codegen/ptx_groups.h"
#include "codegen/ptx_tile_internal.h"

int shared_item(const wk__tile_type *t) {
  static const int bytes[] = {4, 8, 2, 1};
  return bytes[class_of(t)];
}

void need_shared(tile_writer *w, int64_t bytes) { w->shared = (int)wk__max(w->shared, w->shared_offset + bytes); }

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

/* Runs of the thread's bits whose bytes double from one to the next are one part. */
static int thread_part(tile_writer *w, const layout *l, const int *bytes) {
  int sum = -1;
  for (int p = 0; p < l->bits; p++) {
    int t = l->bit[p] - THREAD, run = 1;
    if (t < 0) continue;
    while (p + run < l->bits && l->bit[p + run] == l->bit[p] + run && bytes[p + run] == bytes[p] << run) run++;
    int part = WITH("and.b32", t ? WITH("shr.u32", w->tid, t) : w->tid, (1 << run) - 1);
    if (bytes[p] > 1) part = WITH("mul.lo.u32", part, bytes[p]);
    sum = sum < 0 ? part : TWO("xor.b32", sum, part);
    p += run - 1;
  }
  if (sum >= 0) return sum;
  sum = new_word(w);
  SAY("mov.b32 %%r%d, 0", sum);
  return sum;
}

int place_of(tile_writer *w, const layout *l) {
  int ones[TILE_BITS];
  for (int p = 0; p < l->bits; p++) ones[p] = 1 << p;
  return thread_part(w, l, ones);
}

bool is_renaming(const layout *from, const layout *to) {
  for (int p = 0; p < from->bits; p++)
    if (from->bit[p] != to->bit[p] && (from->bit[p] >= THREAD || to->bit[p] >= THREAD)) return false;
  return true;
}

/* The 16-byte pieces of a line of 128 bytes are exchanged by the line's number, so that what lies below each other is
 * not in the same banks. */
static form plain_form(int bits, int item) {
  form f = {{0}};
  for (int p = 0; p < bits; p++) f.bytes[p] = wk__ptx_group_swizzled(item << p, 128);
  return f;
}

through begin_through(tile_writer *w, const wk__tile_type *t, const layout *l, const form *f) {
  through x = {.l = l, .f = *f, .item = shared_item(t), .origin = w->shared_base};
  for (int p = 0; p < l->bits; p++)
    if (l->bit[p] >= THREAD) x.set |= f->bytes[p];
  x.base = thread_part(w, l, f->bytes);
  for (int p = 0; p < l->bits && class_of(t) != CLASS_P;)
    if (f->bytes[p] == x.item << x.vector && l->bit[p] == x.vector && x.item << (x.vector + 1) <= 16)
      x.vector++, p = 0;
    else
      p++;
  return x;
}

static through begin(tile_writer *w, const wk__tile_type *t, const layout *l) {
  form f = plain_form(l->bits, shared_item(t));
  return begin_through(w, t, l, &f);
}

int address_of(tile_writer *w, const through *x, int reg, int *out_offset) {
  int own = 0, position = position_of(x->l, reg);
  for (int p = 0; p < x->l->bits; p++)
    if (position >> p & 1) own ^= x->f.bytes[p];
  int common = own & x->set;
  *out_offset = own & ~x->set;
  int base = common ? WITH("xor.b32", x->base, common) : x->base;
  return TWO("add.u32", base, x->origin);
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
  for (int p = 0; p < known.bits; p++)
    if (known.bit[p] == NO_BIT) known.bit[p] = 0; /* no part of an address */
  through x = begin(w, t, &known);
  x.l = l;
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

void leave_in(tile_writer *w, const wk__tile_type *t, const layout *l, int base, const through *x) {
  int one = primary(w, l);
  for (int r = 0; r < registers_of(l); r += 1 << x->vector) move_vector(w, t, x, base, r, one, false);
}

static void leave(tile_writer *w, const change *c) {
  layout a, b;
  turn(w, c, &a, &b);
  through x = begin(w, c->t, &a);
  leave_in(w, c->t, &a, c->base, &x);
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
