/* A step of a product: what tensor cores are told, by mma.sync, of fragments in registers, or by wgmma, of matrices in
 * shared memory. In: a stage that is there, and sums. Tests: tests/cuda/test_products.py,
 * tests/cuda/test_byte_products.py. */
#include "codegen/ptx_groups.h"
#include "codegen/ptx_product_internal.h"

typedef product_writer writer;

/* ---- a step by mma.sync: a warp has 64 x 64, or 32 x 64 where it adds parts, which take registers ---- */

static void load_matrices(writer *w, int out, int address, int offset, bool turned) {
  SAY("ldmatrix.sync.aligned.m8n8.x4%s.shared.b16 {%%r%d, %%r%d, %%r%d, %%r%d}, [%%r%d+%d]", turned ? ".trans" : "",
      out, out + 1, out + 2, out + 3, address, offset);
}

/* Four floats, each in a piece and a line that are so many from the lane's first. */
static void load_floats(writer *w, int out, int address, int offset, const int pieces[4], const int lines[4]) {
  for (int j = 0; j < 4; j++)
    SAY("ld.shared.b32 %%r%d, [%%r%d+%d]", out + j, TWO("add.u32", address, w->place_floats[pieces[j] / 2]),
        offset + lines[j] * LINE);
}

/* 16 rows of A, and 16 columns of B, of a slice of k. Elements of two bytes that lie across it are turned on their
 * way. */
static void load_left(writer *w, int out, int address, int i, int slice) {
  static const int lines[4] = {0, 0, 4, 4};
  if (!w->p->a_across)
    load_matrices(w, out, TWO("add.u32", address, w->place_rows[slice]), i * 16 * LINE, false);
  else if (w->p->a != WK__ELEMENT_F32)
    load_matrices(w, out, TWO("add.u32", address, w->place_columns[i]), slice * 16 * LINE, true);
  else {
    int turned = i % 2 ? 4 : 0; /* the second 16 of a line's 32 rows */
    const int pieces[4] = {turned, turned ^ 2, turned ^ 4, turned ^ 6};
    load_floats(w, out, address, (i / 2 * product_depth(w) + 8 * slice) * LINE, pieces, lines);
  }
}

static void load_right(writer *w, int out, int address, int i, int slice) {
  static const int lines[4] = {0, 4, 0, 4};
  if (!w->p->b_across)
    load_matrices(w, out, TWO("add.u32", address, w->place_columns[slice]), i * 16 * LINE, false);
  else if (w->p->b != WK__ELEMENT_F32)
    load_matrices(w, out, TWO("add.u32", address, w->place_rows[i]), slice * 16 * LINE, true);
  else {
    int turned = i % 2 ? 4 : 0;
    const int pieces[4] = {turned, turned ^ 4, turned ^ 2, turned ^ 6};
    load_floats(w, out, address, (i / 2 * product_depth(w) + 8 * slice) * LINE, pieces, lines);
  }
}

const char *wk__product_type(int element) {
  static const char *const names[] = {
      [WK__ELEMENT_BF16] = "bf16", [WK__ELEMENT_F16] = "f16", [WK__ELEMENT_F32] = "tf32", [WK__ELEMENT_E4M3] = "e4m3",
      [WK__ELEMENT_E5M2] = "e5m2", [WK__ELEMENT_S8] = "s8",   [WK__ELEMENT_U8] = "u8",    [WK__ELEMENT_S32] = "s32"};
  return names[element];
}

static void multiply_matrices(writer *w, int out, int left, int right, int sums) {
  const wk__ptx_product *p = w->p;
  const char *type = product_is_whole(p) ? "s32" : "f32";
  SAY("mma.sync.aligned.m16n8k%d.row.col.%s.%s.%s.%s {%%r%d, %%r%d, %%r%d, %%r%d}, {%%r%d, %%r%d, %%r%d, %%r%d}, "
      "{%%r%d, %%r%d}, {%%r%d, %%r%d, %%r%d, %%r%d}",
      SLICE / product_item(w), type, wk__product_type(p->a), wk__product_type(p->b), type, out, out + 1, out + 2,
      out + 3, left, left + 1, left + 2, left + 3, right, right + 1, sums, sums + 1, sums + 2, sums + 3);
}

static void round_floats(writer *w, int words, int count) {
  for (int i = 0; w->p->a == WK__ELEMENT_F32 && i < count; i++)
    SAY("cvt.rna.tf32.f32 %%r%d, %%r%d", words + i, words + i);
}

/* Where tensor cores are not to add to sums, they begin with zeros. */
static void multiply_and_add(writer *w, int left, int right, int sums) {
  if (!wk__ptx_adds_parts(w->p)) {
    multiply_matrices(w, sums, left, right, sums);
    return;
  }
  int part = wk__ptx_words(&w->text, 4);
  multiply_matrices(w, part, left, right, w->parts);
  for (int e = 0; e < 4; e++) SAY("add.f32 %%r%d, %%r%d, %%r%d", sums + e, sums + e, part + e);
}

static void multiply_slice(writer *w, int a, int b, int slice) {
  int left = wk__ptx_words(&w->text, 4 * w->tiles);
  for (int i = 0; i < w->tiles; i++) load_left(w, left + 4 * i, a, i, slice);
  round_floats(w, left, 4 * w->tiles);
  for (int pair = 0; pair < w->groups / 2; pair++) {
    int right = wk__ptx_words(&w->text, 4);
    load_right(w, right, b, pair, slice);
    round_floats(w, right, 4);
    for (int i = 0; i < w->tiles; i++)
      for (int j = 0; j < 2; j++)
        multiply_and_add(w, left + 4 * i, right + 2 * j, w->sums + (i * w->groups + 2 * pair + j) * 4);
  }
}

void wk__product_multiply_by_warps(product_writer *w) {
  int a = TWO("add.u32", w->from, WITH("shl.b32", w->warp_row, 7)), b = WITH("add.u32", w->from, ROWS * LINE);
  b = TWO("add.u32", b, WITH("shl.b32", w->warp_column, 7)); /* 64 rows, or panels: the same bytes */
  for (int s = 0; s < SLICES; s++) multiply_slice(w, a, b, s);
}

/* ---- a step by wgmma: four warps have 64 rows, 16 each ---- */

void wk__product_multiply(product_writer *w, int sums, int adds) {
  const wk__ptx_product *p = w->p;
  int group = WITH("shr.u32", w->warp, 2), a = TWO("add.u32", w->from, WITH("mul.lo.u32", group, 64 * LINE));
  int left = wk__ptx_group_describe(&w->text, a, LINE, 64 * LINE),
      right = wk__ptx_group_describe(&w->text, WITH("add.u32", w->from, ROWS * LINE), LINE, 64 * LINE);
  int always = wk__ptx_predicate(&w->text);
  SAY("setp.eq.u32 %%p%d, 0, 0", always);
  SAY("wgmma.fence.sync.aligned");
  wk__ptx_group_product g = {.columns = p->columns,
                             .depth = SLICE / product_item(w),
                             .sums = sums,
                             .fragments = -1,
                             .sum = product_is_whole(p) ? "s32" : "f32",
                             .left = wk__product_type(p->a),
                             .right = wk__product_type(p->b),
                             .a_across = p->a_across,
                             .b_across = p->b_across};
  for (int s = 0; s < SLICES; s++) {
    g.a = wk__ptx_group_part(&w->text, left, s * (p->a_across ? 16 * LINE : SLICE));
    g.b = wk__ptx_group_part(&w->text, right, s * (p->b_across ? 16 * LINE : SLICE));
    g.adds = s ? always : adds;
    wk__ptx_group_multiply(&w->text, &g);
  }
  SAY("wgmma.commit_group.sync.aligned");
  SAY("setp.eq.u32 %%p%d, 0, 0", adds);
}
