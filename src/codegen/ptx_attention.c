/* What attention's kernels are made of. In: a kind of kernel. Out: its module. Test: tests/cuda/test_attention.py. */
#include "codegen/ptx_attention_internal.h"
#include "codegen/ptx_groups.h"

#define SAY(...) wk__ptx_say(&w->text, __VA_ARGS__)
#define TWO(op, a, b) wk__ptx_two(&w->text, op, a, b)
#define WITH(op, a, constant) wk__ptx_with(&w->text, op, a, constant)

static int word(attention_writer *w) { return wk__ptx_words(&w->text, 1); }
static bool is_half(const attention_writer *w) { return w->a->dtype == WK_FLOAT16; }

/* ---- the start ---- */

/* Where a lane's row of 16 x 16 elements lies in a panel, for each step of 16 columns. */
static void find_places(attention_writer *w, int out[4], int row, int high) {
  int lane7 = WITH("and.b32", w->lane, 7), start = WITH("shl.b32", row, 7);
  for (int s = 0; s < 4; s++)
    out[s] = TWO("add.u32", start, WITH("shl.b32", TWO("xor.b32", WITH("add.u32", high, 2 * s), lane7), 4));
}

void attention_begin(attention_writer *w, int tiles, int warps) {
  w->tiles = tiles, w->warps = warps;
  int widest = attention_widest(w->a);
  w->steps = (w->a->size + 15) / 16, w->value_steps = (w->a->value_size + 15) / 16;
  w->panels = (widest + 63) / 64, w->pitch = 64 * ((widest + 15) / 16) + 16;
  int tid = wk__ptx_special(&w->text, "%tid.x");
  w->lane = WITH("and.b32", tid, 31), w->warp = WITH("shr.u32", tid, 5);
  w->head = wk__ptx_special(&w->text, "%ctaid.y"), w->batch = wk__ptx_special(&w->text, "%ctaid.z");
  w->shared = wk__ptx_special(&w->text, "memory");
  if (w->groups) w->shared = WITH("and.b32", WITH("add.u32", w->shared, 1023), -1024); /* atoms of the swizzle */
  int low15 = WITH("and.b32", w->lane, 15), top = WITH("shr.u32", w->lane, 4), low7 = WITH("and.b32", w->lane, 7);
  find_places(w, w->place_rows, low15, top);
  find_places(w, w->place_columns, TWO("add.u32", low7, WITH("shl.b32", top, 3)),
              WITH("and.b32", WITH("shr.u32", w->lane, 3), 1));
  int chunk = WITH("and.b32", tid, 7);
  w->copy_row = WITH("shr.u32", tid, 3);
  w->copy_to = TWO("xor.b32", chunk, WITH("and.b32", w->copy_row, 7));
  w->copy_to = TWO("add.u32", WITH("shl.b32", w->copy_to, 4), WITH("shl.b32", w->copy_row, 7));
  w->copy_chunk = WITH("shl.b32", chunk, 4);
  w->factor = wk__ptx_arg_word(&w->text, WK__ATTENTION_SCALE);
  int scaled = word(w);
  SAY("mul.f32 %%r%d, %%r%d, 0f%08X", scaled, w->factor, wk__ptx_bits(ATTENTION_LOG2E));
  w->factor = scaled;
}

int attention_head(attention_writer *w, int arg, int head) {
  int base = wk__ptx_arg_long(&w->text, arg);
  base = wk__ptx_advance(&w->text, base, arg + 1, w->batch);
  return wk__ptx_advance(&w->text, base, arg + 2, head);
}

/* ---- tiles ---- */

/* A thread has piece t % 8 of rows t / 8 + 4 warps i. */
void attention_copy(attention_writer *w, int to, int rows, int from, int stride_arg, int first, int limit) {
  if (!attention_is_small(w->a)) {
    attention_copy_floats(w, to, rows, from, stride_arg, first, limit);
    return;
  }
  int each = 4 * w->warps, place = TWO("add.u32", to, w->copy_to), pieces = attention_size_of(w->a, stride_arg) / 8;
  int column = wk__ptx_long(&w->text), there = wk__ptx_predicate(&w->text);
  SAY("cvt.u64.u32 %%d%d, %%r%d", column, w->copy_chunk);
  SAY("add.s64 %%d%d, %%d%d, %%d%d", column, column, from);
  for (int i = 0; i < rows / each; i++) {
    int row = TWO("add.u32", first, i ? WITH("add.u32", w->copy_row, i * each) : w->copy_row), bytes = word(w);
    SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", there, row, limit);
    SAY("selp.b32 %%r%d, 16, 0, %%p%d", bytes, there);
    SAY("selp.b32 %%r%d, %%r%d, 0, %%p%d", row, row, there);
    int address = wk__ptx_advance(&w->text, column, stride_arg, row);
    for (int p = 0; 8 * p < pieces; p++) {
      int whole = pieces - 8 * p, size = bytes, start = address;
      if (whole < 8) { /* pieces behind the head's last are zeros */
        int inside = wk__ptx_predicate(&w->text), none = wk__ptx_long(&w->text);
        size = word(w), start = none;
        SAY("setp.lt.u32 %%p%d, %%r%d, %d", inside, w->copy_chunk, 16 * whole);
        SAY("selp.b32 %%r%d, %%r%d, 0, %%p%d", size, bytes, inside);
        SAY("add.s64 %%d%d, %%d%d, %d", none, address, 128 * p);
        SAY("selp.b64 %%d%d, %%d%d, %%d%d, %%p%d", none, none, from, inside);
      }
      SAY("cp.async.cg.shared.global [%%r%d+%d], [%%d%d+%d], 16, %%r%d", place, p * rows * 128 + i * each * 128, start,
          whole < 8 ? 0 : 128 * p, size);
    }
  }
}

void attention_zero(attention_writer *w, int first, int count) {
  for (int i = 0; i < count; i++) SAY("mov.b32 %%r%d, 0", first + i);
}

static void load_matrices(attention_writer *w, int out, int address, int offset, bool turned) {
  SAY("ldmatrix.sync.aligned.m8n8.x4%s.shared.b16 {%%r%d, %%r%d, %%r%d, %%r%d}, [%%r%d+%d]", turned ? ".trans" : "",
      out, out + 1, out + 2, out + 3, address, offset);
}

static void multiply(attention_writer *w, int sums, int a, int b) {
  const char *type = is_half(w) ? "f16" : "bf16";
  SAY("mma.sync.aligned.m16n8k16.row.col.f32.%s.%s.f32 {%%r%d, %%r%d, %%r%d, %%r%d}, {%%r%d, %%r%d, %%r%d, %%r%d}, "
      "{%%r%d, %%r%d}, {%%r%d, %%r%d, %%r%d, %%r%d}",
      type, type, sums, sums + 1, sums + 2, sums + 3, a, a + 1, a + 2, a + 3, b, b + 1, sums, sums + 1, sums + 2,
      sums + 3);
}

/* The base of each step's addresses in a panel: base + places. */
static void add_places(attention_writer *w, int out[4], int base, const int places[4]) {
  for (int s = 0; s < 4; s++) out[s] = s < w->steps || s < w->value_steps ? TWO("add.u32", base, places[s]) : base;
}

static int own_rows(attention_writer *w, int base) {
  return TWO("add.u32", base, WITH("mul.lo.u32", w->warp, w->tiles * 16 * 128));
}

void attention_load_rows(attention_writer *w, int fragments, int a, int a_rows) {
  int at[4];
  add_places(w, at, own_rows(w, a), w->place_rows);
  for (int s = 0; s < w->steps; s++)
    for (int i = 0; i < w->tiles; i++)
      load_matrices(w, fragments + (s * w->tiles + i) * 4, at[s % 4], s / 4 * a_rows * 128 + i * 16 * 128, false);
}

/* ---- products of groups ---- */

void attention_wait(attention_writer *w, int left) {
  if (w->groups) SAY("wgmma.wait_group.sync.aligned %d", left);
}

void attention_fence(attention_writer *w) {
  if (w->groups) SAY("wgmma.fence.sync.aligned");
}

void attention_arrived(attention_writer *w) {
  SAY("cp.async.wait_group 0");
  if (w->groups) SAY("fence.proxy.async.shared::cta");
  SAY("bar.sync 0");
}

/* A tile of `rows`: its panels count where rows are summed over. */
static int describe(attention_writer *w, int address, int rows) {
  return wk__ptx_group_describe(&w->text, address, 128, rows * 128);
}

static int moved(attention_writer *w, int description, int bytes) {
  return wk__ptx_group_part(&w->text, description, bytes);
}

/* A product of 16 columns of A: at the description `a`, or in four registers; B turned where its rows are summed over.
 */
static void multiply_groups(attention_writer *w, int sums, int columns, int a, int fragments, int b, bool turned,
                            bool adds) {
  const char *type = is_half(w) ? "f16" : "bf16";
  int all = wk__ptx_predicate(&w->text);
  SAY("setp.%s.u32 %%p%d, 0, 0", adds ? "eq" : "ne", all);
  wk__ptx_group_product g = {.columns = columns,
                             .depth = 16,
                             .sum = "f32",
                             .left = type,
                             .right = type,
                             .sums = sums,
                             .a = a,
                             .fragments = fragments,
                             .b = b,
                             .adds = all,
                             .b_across = turned};
  wk__ptx_group_multiply(&w->text, &g);
}

static void outer_of_groups(attention_writer *w, int sums, int a, int a_rows, int b, int b_rows, int count, int steps) {
  int group = WITH("shr.u32", w->warp, 2),
      left = describe(w, TWO("add.u32", a, WITH("mul.lo.u32", group, 64 * 128)), a_rows),
      right = describe(w, b, b_rows);
  for (int s = 0; s < steps; s++) {
    int inside = s % 4 * 32;
    multiply_groups(w, sums, 8 * count, moved(w, left, s / 4 * a_rows * 128 + inside), -1,
                    moved(w, right, s / 4 * b_rows * 128 + inside), false, s > 0);
  }
  SAY("wgmma.commit_group.sync.aligned");
}

int attention_pack(attention_writer *w, int p, int count) {
  int fragments = wk__ptx_words(&w->text, 2 * count);
  attention_pack_into(w, fragments, p, count);
  return fragments;
}

void attention_pack_into(attention_writer *w, int fragments, int p, int count) {
  for (int k = 0; k < count / 2; k++)
    for (int n = 0; n < 4; n++) {
      int from = p + (2 * k + n / 2) * 4 + n % 2 * 2;
      SAY("cvt.rn.%s.f32 %%r%d, %%r%d, %%r%d", is_half(w) ? "f16x2" : "bf16x2", fragments + 4 * k + n, from + 1, from);
    }
}

void attention_inner_packed(attention_writer *w, int sums, int fragments, int count, int b, int b_rows, int panel,
                            int columns) {
  int right = describe(w, WITH("add.u32", b, panel * b_rows * 128), b_rows);
  for (int k = 0; k < count / 2; k++)
    multiply_groups(w, sums, columns, -1, fragments + 4 * k, moved(w, right, k * 16 * 128), true, true);
  SAY("wgmma.commit_group.sync.aligned");
}

/* ---- products ---- */

void attention_outer(attention_writer *w, int sums, int a, int a_rows, int a_fragments, int b, int b_rows, int count,
                     int steps) {
  if (w->groups) {
    outer_of_groups(w, sums, a, a_rows, b, b_rows, count, steps);
    return;
  }
  if (!attention_is_small(w->a)) {
    attention_outer_floats(w, sums, a, b, count, steps);
    return;
  }
  attention_zero(w, sums, w->tiles * count * 4);
  int at_a[4] = {0}, at_b[4];
  if (a_fragments < 0) add_places(w, at_a, own_rows(w, a), w->place_rows);
  add_places(w, at_b, b, w->place_columns);
  for (int s = 0; s < steps; s++) {
    int left = a_fragments < 0 ? wk__ptx_words(&w->text, 4 * w->tiles) : a_fragments + s * w->tiles * 4;
    for (int i = 0; a_fragments < 0 && i < w->tiles; i++)
      load_matrices(w, left + 4 * i, at_a[s % 4], s / 4 * a_rows * 128 + i * 16 * 128, false);
    for (int j = 0; j < count; j += 2) {
      int right = wk__ptx_words(&w->text, 4);
      load_matrices(w, right, at_b[s % 4], s / 4 * b_rows * 128 + j * 8 * 128, false);
      for (int i = 0; i < w->tiles; i++)
        for (int n = 0; n < 2; n++) multiply(w, sums + (i * count + j + n) * 4, left + 4 * i, right + 2 * n);
    }
  }
}

static int pack(attention_writer *w, int low, int high) {
  int r = word(w);
  SAY("cvt.rn.%s.f32 %%r%d, %%r%d, %%r%d", is_half(w) ? "f16x2" : "bf16x2", r, high, low);
  return r;
}

void attention_inner(attention_writer *w, int sums, int p, int count, int b, int b_rows, int panel, int columns) {
  if (w->groups) {
    int fragments = attention_pack(w, p, count);
    attention_fence(w);
    attention_inner_packed(w, sums, fragments, count, b, b_rows, panel, columns);
    return;
  }
  if (!attention_is_small(w->a)) {
    attention_inner_floats(w, sums, p, count, b, panel, columns);
    return;
  }
  int at[4], groups = columns / 8;
  add_places(w, at, b, w->place_rows);
  for (int k = 0; k < count / 2; k++) {
    int left = wk__ptx_words(&w->text, 4 * w->tiles);
    for (int i = 0; i < w->tiles; i++)
      for (int n = 0; n < 4; n++) {
        int from = p + (i * count + 2 * k + n / 2) * 4 + n % 2 * 2;
        SAY("mov.b32 %%r%d, %%r%d", left + 4 * i + n, pack(w, from, from + 1));
      }
    for (int j = 0; j < groups; j += 2) {
      int right = wk__ptx_words(&w->text, 4), s = j / 2;
      load_matrices(w, right, at[s % 4], (panel + s / 4) * b_rows * 128 + k * 16 * 128, true);
      for (int i = 0; i < w->tiles; i++)
        for (int n = 0; n < 2; n++) multiply(w, sums + (i * groups + j + n) * 4, left + 4 * i, right + 2 * n);
    }
  }
}

/* ---- what counts ---- */

static void add_mask(attention_writer *w, int score, int there, int query, int key) {
  int d = wk__ptx_arg_long(&w->text, WK__ATTENTION_MASK), value = word(w), counts = wk__ptx_predicate(&w->text);
  d = wk__ptx_advance(&w->text, d, WK__ATTENTION_MASK + 1, w->batch);
  d = wk__ptx_advance(&w->text, d, WK__ATTENTION_MASK + 2, w->head);
  d = wk__ptx_advance(&w->text, d, WK__ATTENTION_MASK + 3, query);
  d = wk__ptx_advance(&w->text, d, WK__ATTENTION_MASK + 4, key);
  SAY("mov.b32 %%r%d, 0", value);
  if (w->a->mask == WK__PTX_MASK_BOOL) {
    SAY("@%%p%d ld.global.u8 %%r%d, [%%d%d]", there, value, d);
    SAY("setp.ne.u32 %%p%d, %%r%d, 0", counts, value);
    SAY("selp.b32 %%r%d, %%r%d, 0fFF800000, %%p%d", score, score, counts);
    return;
  }
  if (w->a->mask == WK__PTX_MASK_F32) {
    SAY("@%%p%d ld.global.b32 %%r%d, [%%d%d]", there, value, d);
  } else {
    int small = wk__ptx_halves(&w->text, 1);
    SAY("mov.b16 %%h%d, 0", small);
    SAY("@%%p%d ld.global.b16 %%h%d, [%%d%d]", there, small, d);
    if (is_half(w))
      SAY("cvt.f32.f16 %%r%d, %%h%d", value, small);
    else
      SAY("cvt.u32.u16 %%r%d, %%h%d;\n\tshl.b32 %%r%d, %%r%d, 16", value, small, value, value);
  }
  SAY("mul.f32 %%r%d, %%r%d, 0f%08X", value, value, wk__ptx_bits(ATTENTION_LOG2E));
  SAY("fma.rn.f32 %%r%d, %%r%d, %%r%d, %%r%d", score, score, w->factor, value);
}

/* Element e of sums i, j: its row and column. */
static void place_of(attention_writer *w, int row, int column, int i, int j, int e, int *out_row, int *out_column) {
  *out_row = WITH("add.u32", row, 16 * i + 8 * (e / 2));
  *out_column = WITH("add.u32", column, 8 * j + e % 2);
}

/* Conditions are written for each element; where all of a tile's are true, the branch around them is taken. */
void attention_mask(attention_writer *w, int scores, int count, int row, int column, bool turned, int row_end,
                    int column_end) {
  int there = wk__ptx_predicate(&w->text), sees = wk__ptx_predicate(&w->text);
  for (int i = 0; i < w->tiles; i++)
    for (int j = 0; j < count; j++)
      for (int e = 0; e < 4; e++) {
        int score = scores + (i * count + j) * 4 + e, r, c;
        place_of(w, row, column, i, j, e, &r, &c);
        SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", there, c, column_end);
        if (w->a->mask) {
          int in_rows = wk__ptx_predicate(&w->text);
          SAY("setp.lt.and.u32 %%p%d, %%r%d, %%r%d, %%p%d", in_rows, r, row_end, there);
          add_mask(w, score, in_rows, turned ? c : r, turned ? r : c);
        }
        if (w->a->causal)
          SAY("setp.le.and.u32 %%p%d, %%r%d, %%r%d, %%p%d", sees, turned ? r : c, turned ? c : r, there);
        SAY("selp.b32 %%r%d, %%r%d, 0fFF800000, %%p%d", score, score, w->a->causal ? sees : there);
      }
}

/* ---- dropout: Philox4x32-10 of element / 4 ---- */

void attention_draw_begin(attention_writer *w, int seed, int offset) {
  wk__ptx_text *t = &w->text;
  int key = wk__ptx_words(t, 2);
  SAY("mov.b64 {%%r%d, %%r%d}, %%d%d", key, key + 1, seed);
  for (int r = 0; r < 10; r++)
    for (int n = 0; n < 2; n++)
      w->keys[r][n] = WITH("add.u32", key + n, (int32_t)((uint32_t)r * (n ? 0xbb67ae85u : 0x9e3779b9u)));
  w->draw_low = wk__ptx_words(t, 2), w->draw_high = w->draw_low + 1;
  SAY("mov.b64 {%%r%d, %%r%d}, %%d%d", w->draw_low, w->draw_high, offset);
  w->draw_thread_count = wk__ptx_arg_word(t, WK__ATTENTION_THREADS);
  w->reciprocal = wk__ptx_arg_word(t, WK__ATTENTION_RECIPROCAL);
  w->least = wk__ptx_arg_word(t, WK__ATTENTION_LEAST);
  w->kept = wk__ptx_arg_word(t, WK__ATTENTION_KEPT);
}

/* Four words for group `group` of four elements: turn q of thread r, group = q threads + r. */
static void draw_words(attention_writer *w, int group, int words) {
  wk__ptx_text *t = &w->text;
  int turn = word(w), c = words, product = wk__ptx_words(t, 4), wide = wk__ptx_long(t), more = wk__ptx_predicate(t);
  /* the reciprocal is too small by less than 1, and so is the quotient */
  SAY("mul.hi.u32 %%r%d, %%r%d, %%r%d", turn, group, w->reciprocal);
  SAY("mul.lo.u32 %%r%d, %%r%d, %%r%d", c + 2, turn, w->draw_thread_count);
  SAY("sub.u32 %%r%d, %%r%d, %%r%d", c + 2, group, c + 2);
  SAY("setp.ge.u32 %%p%d, %%r%d, %%r%d", more, c + 2, w->draw_thread_count);
  SAY("@%%p%d add.u32 %%r%d, %%r%d, 1", more, turn, turn);
  SAY("@%%p%d sub.u32 %%r%d, %%r%d, %%r%d", more, c + 2, c + 2, w->draw_thread_count);
  SAY("mov.b32 %%r%d, 0", c + 3);
  SAY("add.cc.u32 %%r%d, %%r%d, %%r%d", c, w->draw_low, turn);
  SAY("addc.u32 %%r%d, %%r%d, 0", c + 1, w->draw_high);
  for (int r = 0; r < 10; r++) {
    int p = product; /* of words 0 and 2: low, high, low, high */
    static const uint32_t factors[2] = {0xd2511f53u, 0xcd9e8d57u};
    for (int n = 0; n < 2; n++)
      SAY("mul.wide.u32 %%d%d, %%r%d, %u;\n\tmov.b64 {%%r%d, %%r%d}, %%d%d", wide, c + 2 * n, factors[n], p + 2 * n,
          p + 2 * n + 1, wide);
    SAY("xor.b32 %%r%d, %%r%d, %%r%d;\n\txor.b32 %%r%d, %%r%d, %%r%d", c, p + 3, c + 1, c, c, w->keys[r][0]);
    SAY("xor.b32 %%r%d, %%r%d, %%r%d;\n\txor.b32 %%r%d, %%r%d, %%r%d", c + 2, p + 1, c + 3, c + 2, c + 2,
        w->keys[r][1]);
    SAY("mov.b32 %%r%d, %%r%d;\n\tmov.b32 %%r%d, %%r%d", c + 1, p + 2, c + 3, p);
  }
}

/* Two words go to the lane that differs in one bit, two come from it: where the bit is set, `a` go, else `b`. */
static void exchange(attention_writer *w, int bit, const int a[2], const int b[2], int out[2]) {
  int set = wk__ptx_predicate(&w->text);
  SAY("and.b32 %%r%d, %%r%d, %d", out[0] = word(w), w->lane, bit);
  SAY("setp.ne.u32 %%p%d, %%r%d, 0", set, out[0]);
  for (int n = 0; n < 2; n++) {
    out[n] = word(w);
    SAY("selp.b32 %%r%d, %%r%d, %%r%d, %%p%d", out[n], a[n], b[n], set);
    SAY("shfl.sync.bfly.b32 %%r%d, %%r%d, %d, 31, 0xffffffff", out[n], out[n], bit);
  }
}

static int select_by(attention_writer *w, int bit, int where_set, int else_) {
  int set = wk__ptx_predicate(&w->text), r = word(w);
  SAY("and.b32 %%r%d, %%r%d, %d", r, w->lane, bit);
  SAY("setp.ne.u32 %%p%d, %%r%d, 0", set, r);
  SAY("selp.b32 %%r%d, %%r%d, %%r%d, %%p%d", r, where_set, else_, set);
  return r;
}

/* ((batch heads + head) T + query) S / 4 + key / 4 */
static int group_of(attention_writer *w, int query, int key) {
  wk__ptx_text *t = &w->text;
  int heads = wk__ptx_arg_word(t, WK__ATTENTION_HEADS), rows = wk__ptx_arg_word(t, WK__ATTENTION_T),
      keys = WITH("shr.u32", wk__ptx_arg_word(t, WK__ATTENTION_S), 2), at = word(w);
  SAY("mad.lo.u32 %%r%d, %%r%d, %%r%d, %%r%d", at, w->batch, heads, w->head);
  SAY("mad.lo.u32 %%r%d, %%r%d, %%r%d, %%r%d", at, at, rows, query);
  SAY("mad.lo.u32 %%r%d, %%r%d, %%r%d, %%r%d", at, at, keys, WITH("shr.u32", key, 2));
  return at;
}

static void kept(attention_writer *w, int value, int *out) {
  *out = wk__ptx_predicate(&w->text);
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", *out, value, w->least);
}

/* Rows are queries: two neighbouring lanes have row g's four keys and row g + 8's: the even one draws the former. */
static void draw_plain(attention_writer *w, int row, int column, int i, int j, int out[4]) {
  int words = wk__ptx_words(&w->text, 4), odd = WITH("and.b32", w->lane, 1), got[2];
  int query = TWO("add.u32", WITH("add.u32", row, 16 * i), WITH("shl.b32", odd, 3));
  draw_words(w, group_of(w, query, WITH("add.u32", column, 8 * j)), words);
  exchange(w, 1, (int[]){words, words + 1}, (int[]){words + 2, words + 3}, got);
  for (int n = 0; n < 2; n++) {
    kept(w, select_by(w, 1, got[n], words + n), &out[n]);
    kept(w, select_by(w, 1, words + 2 + n, got[n]), &out[2 + n]);
  }
}

/* Rows are keys: four lanes, 4 apart, have four groups, one of each: query parity x % 2, keys g and g + 8 by x / 2.
 * Lane x draws group x; two exchanges turn the square of words. */
static void draw_turned(attention_writer *w, int row, int column, int i, int j, int out[4]) {
  int d = wk__ptx_words(&w->text, 4), own = WITH("and.b32", WITH("shr.u32", w->lane, 2), 3), far[2], near[2], a[4],
      b[4];
  int query = TWO("add.u32", WITH("add.u32", column, 8 * j), WITH("and.b32", own, 1));
  int key = TWO("add.u32", WITH("add.u32", row, 16 * i), WITH("shl.b32", WITH("shr.u32", own, 1), 3));
  draw_words(w, group_of(w, query, key), d);
  /* a: groups of the own bit 0 with bit 1 clear (0, 1) and set (2, 3): the two words of the own bit 1 */
  exchange(w, 8, (int[]){d, d + 1}, (int[]){d + 2, d + 3}, far);
  for (int n = 0; n < 2; n++) {
    a[n] = select_by(w, 8, far[n], d + n);
    a[2 + n] = select_by(w, 8, d + 2 + n, far[n]);
  }
  exchange(w, 4, (int[]){a[0], a[2]}, (int[]){a[1], a[3]}, near);
  for (int n = 0; n < 2; n++) {
    b[2 * n] = select_by(w, 4, near[n], a[2 * n]);
    b[2 * n + 1] = select_by(w, 4, a[2 * n + 1], near[n]);
  }
  for (int n = 0; n < 4; n++) kept(w, b[n], &out[n]);
}

void attention_draw(attention_writer *w, int row, int column, int i, int j, bool turned, int out[4]) {
  (turned ? draw_turned : draw_plain)(w, row, column, i, j, out);
}

/* ---- results ---- */

void attention_store(attention_writer *w, int sums, int factors, bool by_row, int at, int rows, int to, int stride_arg,
                     int limit, int panel, int columns) {
  if (!attention_is_small(w->a)) {
    attention_store_floats(w, sums, factors, by_row, to, stride_arg, limit, panel, columns);
    return;
  }
  int size = attention_size_of(w->a, stride_arg), groups = columns / 8, base = own_rows(w, at),
      g = WITH("shr.u32", w->lane, 2), g7 = WITH("shl.b32", g, 4);
  int place =
      TWO("add.u32", TWO("add.u32", base, WITH("shl.b32", g, 7)), WITH("shl.b32", WITH("and.b32", w->lane, 3), 2));
  for (int j = 0; j < groups; j++) {
    int address = TWO("add.u32", place, WITH("xor.b32", g7, 16 * (j % 8)));
    for (int i = 0; i < w->tiles; i++)
      for (int h = 0; h < 2; h++) {
        int c = sums + (i * groups + j) * 4 + 2 * h, factor = factors + (by_row ? 2 * i + h : 0);
        int value = pack(w, TWO("mul.f32", c, factor), TWO("mul.f32", c + 1, factor));
        SAY("st.shared.b32 [%%r%d+%d], %%r%d", address, j / 8 * rows * 128 + i * 16 * 128 + h * 8 * 128, value);
      }
  }
  SAY("bar.warp.sync 0xffffffff");
  /* lane l: piece l % 8 of rows l / 8 + 4 n */
  int piece = WITH("and.b32", w->lane, 7), first = WITH("shr.u32", w->lane, 3), chunk = wk__ptx_long(&w->text);
  int row = TWO("add.u32", TWO("add.u32", w->row0, WITH("mul.lo.u32", w->warp, 16 * w->tiles)), first);
  SAY("mul.wide.u32 %%d%d, %%r%d, 16", chunk, piece);
  SAY("add.s64 %%d%d, %%d%d, %%d%d", chunk, chunk, to);
  for (int n = 0; n < 4 * w->tiles; n++) {
    int there = wk__ptx_predicate(&w->text), r = WITH("add.u32", row, 4 * n), in = WITH("add.u32", first, 4 * n);
    int from = TWO("xor.b32", piece, WITH("and.b32", in, 7));
    from = TWO("add.u32", TWO("add.u32", base, WITH("shl.b32", in, 7)), WITH("shl.b32", from, 4));
    int address = wk__ptx_advance(&w->text, chunk, stride_arg, r);
    SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", there, r, limit);
    for (int p = 0; p < (columns + 63) / 64; p++) {
      int v = wk__ptx_words(&w->text, 4), pieces = size / 8 - 8 * (panel + p), may = there;
      if (pieces < 8) {
        may = wk__ptx_predicate(&w->text);
        SAY("setp.lt.and.u32 %%p%d, %%r%d, %d, %%p%d", may, piece, pieces, there);
      }
      SAY("ld.shared.v4.b32 {%%r%d, %%r%d, %%r%d, %%r%d}, [%%r%d+%d]", v, v + 1, v + 2, v + 3, from, p * rows * 128);
      SAY("@%%p%d st.global.v4.b32 [%%d%d+%d], {%%r%d, %%r%d, %%r%d, %%r%d}", may, address, (panel + p) * 128, v, v + 1,
          v + 2, v + 3);
    }
  }
  SAY("bar.warp.sync 0xffffffff");
}

/* ---- all ---- */

static int captured_args(const wk__ptx_score_bodies *b) {
  const wk__nest *nest = !b ? NULL : b->reads ? b->reads : b->score ? b->score : b->masked;
  int count = 0;
  for (int k = WK__BODY_BUFFER_CAPTURED; nest && k < nest->buffer_count; k++)
    count += wk__ptx_captured_args(nest->buffers[k].ndim);
  return count;
}

static wk_status finish(attention_writer *w, wk__ptx_module *m, wk_status status, char **out_text) {
  wk__string tables = {0};
  wk__ptx_scores_tables(&w->score_state, &tables);
  m->tables = tables.text;
  if (status == WK_OK && (tables.failed || w->out_of_memory)) status = WK_OUT_OF_MEMORY;
  if (status == WK_OK && w->score_state.unsupported) status = wk_fail(WK_UNSUPPORTED, "a body of scores in PTX");
  if (status == WK_OK && !(*out_text = wk__ptx_finish(&w->text, m))) status = WK_OUT_OF_MEMORY;
  if (status != WK_OK) wk__string_release(&w->text.code);
  wk__string_release(&tables);
  return status;
}

wk_status wk__ptx_write_attention(const wk__ptx_attention *a, const wk__ptx_score_bodies *bodies,
                                  wk__ptx_attention_kernel *out) {
  attention_writer *w = wk__alloc_zeroed(sizeof *w);
  if (!w) return WK_OUT_OF_MEMORY;
  *out = (wk__ptx_attention_kernel){.parts = 1};
  w->a = a, w->bodies = bodies;
  w->groups = a->warpgroups;
  wk_status status = WK_OK;
  int blocks = 1, widest = attention_widest(a);
  switch (a->pass) {
    case WK__ATTENTION_FORWARD:
      status = attention_write_forward(w, out);
      blocks = widest <= 128 ? 2 : 1;
      break;
    case WK__ATTENTION_DELTA:
      status = attention_write_delta(w, out);
      break;
    case WK__ATTENTION_KEYS:
      status = attention_write_keys(w, out);
      blocks = widest <= 64 ? 2 : 1;
      break;
    default: /* dq, and what is as dq */
      status = attention_write_queries(w, out);
      blocks = widest <= 128 ? 2 : 1;
  }
  wk__ptx_module m = {.entry = "wick",
                      .capability = a->capability,
                      .args = WK__ATTENTION_ARGS + captured_args(bodies),
                      .threads = out->threads,
                      .blocks = blocks,
                      .warpgroups = a->warpgroups && a->pass != WK__ATTENTION_DELTA};
  if (w->groups) m.blocks = widest <= 64 && a->pass != WK__ATTENTION_KEYS ? 2 : 1, out->shared += 1024;
  status = finish(w, &m, status, &out->text);
  wk__free(w);
  return status;
}
