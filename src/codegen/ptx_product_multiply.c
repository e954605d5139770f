/* A step of a product: what tensor cores are told, by mma.sync, of fragments in registers, or by wgmma, of matrices in
 * shared memory. In: a stage that is there, and sums. Tests: tests/cuda/test_products.py,
 * tests/cuda/test_byte_products.py. */
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

/* What says where a matrix lies: address / 16, bytes / 16 from a panel to the next (of 2-byte elements that lie across)
 * and from 8 lines to the next 8, swizzled by 128 bytes. */
static int describe(writer *w, int address) {
  int d = wk__ptx_long(&w->text), r = WITH("and.b32", WITH("shr.u32", address, 4), 0x3fff);
  uint64_t rest = UINT64_C(1) << 62 | (uint64_t)(8 * LINE / 16) << 32 | (uint64_t)(64 * LINE / 16) << 16;
  SAY("cvt.u64.u32 %%d%d, %%r%d", d, r);
  SAY("or.b64 %%d%d, %%d%d, 0x%llx", d, d, (unsigned long long)rest);
  return d;
}

/* What follows the operands: integers have no signs of factors, and elements of two bytes alone may be turned. */
static void finish_product(writer *w, int adds) {
  const wk__ptx_product *p = w->p;
  wk__string *code = &w->text.code;
  wk__string_printf(code, "%%p%d", adds);
  if (!product_is_whole(p)) wk__string_append(code, ", 1, 1");
  if (product_item(w) == 2) wk__string_printf(code, ", %d, %d", p->a_across, p->b_across);
  wk__string_append(code, ";\n");
}

void wk__product_multiply(product_writer *w, int sums, int adds) {
  const wk__ptx_product *p = w->p;
  int group = WITH("shr.u32", w->warp, 2), a = TWO("add.u32", w->from, WITH("mul.lo.u32", group, 64 * LINE));
  int left = describe(w, a), right = describe(w, WITH("add.u32", w->from, ROWS * LINE)), count = p->columns / 2;
  int x = wk__ptx_long(&w->text), y = wk__ptx_long(&w->text), always = wk__ptx_predicate(&w->text);
  SAY("setp.eq.u32 %%p%d, 0, 0", always);
  SAY("wgmma.fence.sync.aligned");
  for (int s = 0; s < SLICES; s++) {
    SAY("add.s64 %%d%d, %%d%d, %d", x, left, s * (p->a_across ? 16 * LINE : SLICE) / 16);
    SAY("add.s64 %%d%d, %%d%d, %d", y, right, s * (p->b_across ? 16 * LINE : SLICE) / 16);
    wk__string_printf(&w->text.code, "\twgmma.mma_async.sync.aligned.m64n%dk%d.%s.%s.%s {", p->columns,
                      SLICE / product_item(w), product_is_whole(p) ? "s32" : "f32", wk__product_type(p->a),
                      wk__product_type(p->b));
    for (int c = 0; c < count; c++) wk__string_printf(&w->text.code, "%s%%r%d", c ? ", " : "", sums + c);
    wk__string_printf(&w->text.code, "}, %%d%d, %%d%d, ", x, y);
    finish_product(w, s ? always : adds);
  }
  SAY("wgmma.commit_group.sync.aligned");
  SAY("setp.eq.u32 %%p%d, 0, 0", adds);
}
