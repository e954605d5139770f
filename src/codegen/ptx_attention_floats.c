/* Tiles and products of f32: fused multiply-adds, or TF32 on tensor cores. Rows of a tile lie w->pitch bytes apart, 16
 * more than a multiple of 64, so that what eight rows have in a column lies in different banks. Each lane has what it
 * has of a product on tensor cores: rows g and g + 8 of each tile of a warp and of eight columns two neighbours. By
 * fused multiply-adds it has, of what P is multiplied to (out, dq, dk, dv), columns 4 q to 4 q + 3 of sixteen, q = lane
 * % 4, which are the sums of two groups of eight: it reads 16 bytes at a time.
 *
 * P goes to the rows of the other lanes by shared memory, at w->scratch, which a warp has for itself.
 * Test: tests/cuda/test_attention.py. */
#include "codegen/ptx_attention_internal.h"

#define SAY(...) wk__ptx_say(&w->text, __VA_ARGS__)
#define TWO(op, a, b) wk__ptx_two(&w->text, op, a, b)
#define WITH(op, a, constant) wk__ptx_with(&w->text, op, a, constant)

static int word(attention_writer *w) { return wk__ptx_words(&w->text, 1); }

static int scratch_pitch(int count) { return 32 * count + 16; }
int attention_scratch_bytes(const attention_writer *w, int count) {
  return attention_is_small(w->a) ? 0 : 16 * w->tiles * w->warps * scratch_pitch(count);
}

/* ---- copies ---- */

/* Bytes of a piece that is copied: none of those behind the head's last. start: its address, `from` instead of one
 * behind the row. */
static int piece_bytes(attention_writer *w, int bytes, int pieces, int from, int *start) {
  if (pieces >= 8) return bytes;
  int inside = wk__ptx_predicate(&w->text), size = word(w), safe = wk__ptx_long(&w->text);
  SAY("setp.lt.u32 %%p%d, %%r%d, %d", inside, w->copy_chunk, 16 * pieces);
  SAY("selp.b32 %%r%d, %%r%d, 0, %%p%d", size, bytes, inside);
  SAY("selp.b64 %%d%d, %%d%d, %%d%d, %%p%d", safe, *start, from, inside);
  *start = safe;
  return size;
}

/* A thread has piece t % 8 of rows t / 8 + 4 warps i: of each eight of a row's pieces, whose last may be four. */
void attention_copy_floats(attention_writer *w, int to, int rows, int from, int stride_arg, int first, int limit) {
  int each = 4 * w->warps, column = wk__ptx_long(&w->text), there = wk__ptx_predicate(&w->text),
      mine = wk__ptx_predicate(&w->text);
  int size_of_head = attention_size_of(w->a, stride_arg), pieces = (size_of_head + 15) / 16 * 4;
  int place = TWO("add.u32", TWO("add.u32", to, WITH("mul.lo.u32", w->copy_row, w->pitch)), w->copy_chunk);
  SAY("cvt.u64.u32 %%d%d, %%r%d", column, w->copy_chunk);
  SAY("add.s64 %%d%d, %%d%d, %%d%d", column, column, from);
  for (int i = 0; i * each < rows; i++) {
    int row = TWO("add.u32", first, WITH("add.u32", w->copy_row, i * each)), bytes = word(w);
    SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", there, row, limit);
    SAY("selp.b32 %%r%d, 16, 0, %%p%d", bytes, there);
    SAY("selp.b32 %%r%d, %%r%d, 0, %%p%d", row, row, there);
    int address = wk__ptx_advance(&w->text, column, stride_arg, row);
    for (int p = 0; 8 * p < pieces; p++) {
      int start = wk__ptx_long(&w->text), padded = pieces - 8 * p;
      SAY("add.s64 %%d%d, %%d%d, %d", start, address, 128 * p);
      int size = piece_bytes(w, bytes, size_of_head / 4 - 8 * p, from, &start);
      SAY("setp.lt.u32 %%p%d, %%r%d, %d", mine, w->copy_row, rows - i * each);
      SAY("setp.lt.and.u32 %%p%d, %%r%d, %d, %%p%d", mine, w->copy_chunk, 16 * padded, mine);
      SAY("@%%p%d cp.async.cg.shared.global [%%r%d+%d], [%%d%d], 16, %%r%d", mine, place, i * each * w->pitch + 128 * p,
          start, size);
    }
  }
}

/* ---- products ---- */

static int load_four(attention_writer *w, int address, int offset) {
  int v = wk__ptx_words(&w->text, 4);
  SAY("ld.shared.v4.b32 {%%r%d, %%r%d, %%r%d, %%r%d}, [%%r%d+%d]", v, v + 1, v + 2, v + 3, address, offset);
  return v;
}

static void add_product(attention_writer *w, int sum, int a, int b) {
  SAY("fma.rn.f32 %%r%d, %%r%d, %%r%d, %%r%d", sum, a, b, sum);
}

static int group_row(attention_writer *w) { return WITH("shr.u32", w->lane, 2); }
static int in_group(attention_writer *w) { return WITH("and.b32", w->lane, 3); }

/* The lane's first row of the warp's, of rows `pitch` bytes apart. */
static int own_row(attention_writer *w, int base, int pitch) {
  int row = TWO("add.u32", WITH("mul.lo.u32", w->warp, 16 * w->tiles), group_row(w));
  return TWO("add.u32", base, WITH("mul.lo.u32", row, pitch));
}

/* A loop of `times` rounds around what is written between its begin and end. */
typedef struct rounds {
  int label, left;
} rounds;

static rounds begin_rounds(attention_writer *w, int times) {
  rounds r = {w->text.labels++, word(w)};
  SAY("mov.b32 %%r%d, %d", r.left, times);
  wk__ptx_label(&w->text, r.label);
  return r;
}

static void end_rounds(attention_writer *w, rounds r) {
  int more = wk__ptx_predicate(&w->text);
  SAY("sub.u32 %%r%d, %%r%d, 1", r.left, r.left);
  SAY("setp.ne.u32 %%p%d, %%r%d, 0", more, r.left);
  SAY("@%%p%d bra L%d", more, r.label);
}

/* Of four columns of the head, `offset` bytes behind those at a and b. */
static void outer_of_four(attention_writer *w, int sums, int a, int b, int count, int offset) {
  int left[4] = {0};
  for (int r = 0; r < 2 * w->tiles; r++) left[r] = load_four(w, a, 8 * r * w->pitch + offset);
  for (int c = 0; c < 2 * count; c++) {
    int right = load_four(w, b, (8 * (c / 2) + c % 2) * w->pitch + offset);
    for (int k = 0; k < 4; k++)
      for (int r = 0; r < 2 * w->tiles; r++)
        add_product(w, sums + (r / 2 * count + c / 2) * 4 + r % 2 * 2 + c % 2, left[r] + k, right + k);
  }
}

static void outer_by_fma(attention_writer *w, int sums, int a, int b, int count, int steps) {
  int left = own_row(w, a, w->pitch), right = word(w);
  SAY("mad.lo.u32 %%r%d, %%r%d, %d, %%r%d", right, in_group(w), 2 * w->pitch, b);
  rounds r = begin_rounds(w, 2 * steps);
  for (int four = 0; four < 2; four++) outer_of_four(w, sums, left, right, count, 16 * four);
  SAY("add.u32 %%r%d, %%r%d, 32;\n\tadd.u32 %%r%d, %%r%d, 32", left, left, right, right);
  end_rounds(w, r);
}

/* P's rows (the lane's first at `own`) to the warp's scratch memory. */
static void spread(attention_writer *w, int p, int count, int own) {
  int pitch = scratch_pitch(count), at = TWO("add.u32", own, WITH("shl.b32", in_group(w), 3));
  for (int i = 0; i < w->tiles; i++)
    for (int j = 0; j < count; j++)
      for (int h = 0; h < 2; h++) {
        int from = p + (i * count + j) * 4 + 2 * h;
        SAY("st.shared.v2.b32 [%%r%d+%d], {%%r%d, %%r%d}", at, (16 * i + 8 * h) * pitch + 32 * j, from, from + 1);
      }
  SAY("bar.warp.sync 0xffffffff");
}

/* Of four rows of B at b, by fused multiply-adds. */
static void inner_of_four(attention_writer *w, int sums, int p, int pitch, int b, int columns) {
  int left[4] = {0}, groups = columns / 8;
  for (int r = 0; r < 2 * w->tiles; r++) left[r] = load_four(w, p, 8 * r * pitch);
  for (int k = 0; k < 4; k++)
    for (int q = 0; q < columns / 16; q++) {
      int right = load_four(w, b, k * w->pitch + 64 * q);
      for (int r = 0; r < 2 * w->tiles; r++)
        for (int x = 0; x < 4; x++)
          add_product(w, sums + (r / 2 * groups + 2 * q + x / 2) * 4 + r % 2 * 2 + x % 2, left[r] + k, right + x);
    }
}

/* p: the lane's first row of P. */
static void inner_by_fma(attention_writer *w, int sums, int p, int count, int b, int columns) {
  int pitch = scratch_pitch(count), left = WITH("add.u32", p, 0),
      right = TWO("add.u32", b, WITH("shl.b32", in_group(w), 4));
  rounds r = begin_rounds(w, 2 * count);
  inner_of_four(w, sums, left, pitch, right, columns);
  SAY("add.u32 %%r%d, %%r%d, 16;\n\tadd.u32 %%r%d, %%r%d, %d", left, left, right, right, 4 * w->pitch);
  end_rounds(w, r);
}

/* ---- products of TF32 ---- */

/* Operands are rounded as they are read: tensor cores would cut them off. */
static void load_tf32(attention_writer *w, int to, int address, int offset) {
  SAY("ld.shared.b32 %%r%d, [%%r%d+%d]", to, address, offset);
  SAY("cvt.rna.tf32.f32 %%r%d, %%r%d", to, to);
}

static void multiply_tf32(attention_writer *w, int sums, int a, int b) {
  SAY("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%%r%d, %%r%d, %%r%d, %%r%d}, {%%r%d, %%r%d, %%r%d, %%r%d}, "
      "{%%r%d, %%r%d}, {%%r%d, %%r%d, %%r%d, %%r%d}",
      sums, sums + 1, sums + 2, sums + 3, a, a + 1, a + 2, a + 3, b, b + 1, sums, sums + 1, sums + 2, sums + 3);
}

/* (tiles, 4): the warp's rows of eight columns at a, the lane's first row and column. */
static int load_left_tf32(attention_writer *w, int a, int pitch) {
  int left = wk__ptx_words(&w->text, 4 * w->tiles);
  for (int n = 0; n < 4 * w->tiles; n++) load_tf32(w, left + n, a, (n / 4 * 16 + n % 2 * 8) * pitch + n % 4 / 2 * 16);
  return left;
}

static void outer_by_tf32(attention_writer *w, int sums, int a, int b, int count, int steps) {
  int column = WITH("shl.b32", in_group(w), 2), left = TWO("add.u32", own_row(w, a, w->pitch), column);
  int right = TWO("add.u32", TWO("add.u32", b, WITH("mul.lo.u32", group_row(w), w->pitch)), column);
  rounds r = begin_rounds(w, 2 * steps);
  int rows = load_left_tf32(w, left, w->pitch);
  for (int j = 0; j < count; j++) {
    int columns = wk__ptx_words(&w->text, 2);
    for (int n = 0; n < 2; n++) load_tf32(w, columns + n, right, 8 * j * w->pitch + 16 * n);
    for (int i = 0; i < w->tiles; i++) multiply_tf32(w, sums + (i * count + j) * 4, rows + 4 * i, columns);
  }
  SAY("add.u32 %%r%d, %%r%d, 32;\n\tadd.u32 %%r%d, %%r%d, 32", left, left, right, right);
  end_rounds(w, r);
}

static void inner_by_tf32(attention_writer *w, int sums, int p, int count, int b, int columns) {
  int groups = columns / 8, pitch = scratch_pitch(count), left = TWO("add.u32", p, WITH("shl.b32", in_group(w), 2));
  int right = TWO("add.u32", b, WITH("shl.b32", group_row(w), 2));
  SAY("mad.lo.u32 %%r%d, %%r%d, %d, %%r%d", right, in_group(w), w->pitch, right);
  rounds r = begin_rounds(w, count);
  int rows = load_left_tf32(w, left, pitch);
  for (int j = 0; j < groups; j++) {
    int keys = wk__ptx_words(&w->text, 2);
    for (int n = 0; n < 2; n++) load_tf32(w, keys + n, right, 4 * n * w->pitch + 32 * j);
    for (int i = 0; i < w->tiles; i++) multiply_tf32(w, sums + (i * groups + j) * 4, rows + 4 * i, keys);
  }
  SAY("add.u32 %%r%d, %%r%d, 32;\n\tadd.u32 %%r%d, %%r%d, %d", left, left, right, right, 8 * w->pitch);
  end_rounds(w, r);
}

/* ---- either ---- */

void attention_outer_floats(attention_writer *w, int sums, int a, int b, int count, int steps) {
  attention_zero(w, sums, w->tiles * count * 4);
  (w->a->tf32 ? outer_by_tf32 : outer_by_fma)(w, sums, a, b, count, steps);
}

void attention_inner_floats(attention_writer *w, int sums, int p, int count, int b, int panel, int columns) {
  int own = own_row(w, w->scratch, scratch_pitch(count)), first = WITH("add.u32", b, 256 * panel);
  spread(w, p, count, own);
  (w->a->tf32 ? inner_by_tf32 : inner_by_fma)(w, sums, own, count, first, columns);
  SAY("bar.warp.sync 0xffffffff"); /* before the next product's P */
}

/* ---- results ---- */

/* Four neighbours, or two of TF32's. */
static void store_neighbours(attention_writer *w, int sums, int factor, int may, int address, int offset) {
  int v = wk__ptx_words(&w->text, 4);
  int count = w->a->tf32 ? 2 : 4;
  for (int x = 0; x < count; x++) /* the second pair is of the next group of columns */
    SAY("mul.f32 %%r%d, %%r%d, %%r%d", v + x, sums + x / 2 * 4 + x % 2, factor);
  if (count == 2)
    SAY("@%%p%d st.global.v2.b32 [%%d%d+%d], {%%r%d, %%r%d}", may, address, offset, v, v + 1);
  else
    SAY("@%%p%d st.global.v4.b32 [%%d%d+%d], {%%r%d, %%r%d, %%r%d, %%r%d}", may, address, offset, v, v + 1, v + 2,
        v + 3);
}

void attention_store_floats(attention_writer *w, int sums, int factors, bool by_row, int to, int stride_arg, int limit,
                            int panel, int columns) {
  int own_place = in_group(w), column = wk__ptx_long(&w->text), groups = columns / 8, each = w->a->tf32 ? 2 : 4;
  int row = TWO("add.u32", TWO("add.u32", w->row0, WITH("mul.lo.u32", w->warp, 16 * w->tiles)), group_row(w));
  SAY("mul.wide.u32 %%d%d, %%r%d, %d;\n\tadd.s64 %%d%d, %%d%d, %%d%d", column, own_place, 4 * each, column, column, to);
  for (int r = 0; r < 2 * w->tiles; r++) {
    int there = wk__ptx_predicate(&w->text), own = WITH("add.u32", row, 8 * r);
    int address = wk__ptx_advance(&w->text, column, stride_arg, own);
    SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", there, own, limit);
    for (int n = 0; n < columns / (4 * each); n++) {
      int may = there,
          places = attention_size_of(w->a, stride_arg) / each - 64 / each * panel - 4 * n; /* of four lanes */
      if (places < 4) {
        may = wk__ptx_predicate(&w->text);
        SAY("setp.lt.and.s32 %%p%d, %%r%d, %d, %%p%d", may, own_place, places, there);
      }
      store_neighbours(w, sums + (r / 2 * groups + each / 2 * n) * 4 + r % 2 * 2, factors + (by_row ? r : 0), may,
                       address, 256 * panel + 16 * each * n);
    }
  }
}
