/* A nest's work on pieces of a matrix that another kernel has in registers. In: the nest, and the pieces. Out: lines
 * for the middle of that kernel.
 *
 * A thread has several pieces at a time, and what they load is asked for before any of them is computed, so that memory
 * is waited for once. Then each piece is a block of its own, with the names of any pointwise kernel: %c0 and %c1 are
 * its row and column. A piece that is not there is another one that is, and stores nothing. Test:
 * tests/cuda/test_behind.py. */
#include <stdio.h>

#include "codegen/ptx_rows.h"

static int access_dtype(const ptx_writer *w, int access) {
  return w->nest->buffers[w->nest->accesses[access].buffer].dtype;
}

static bool is_taken(const ptx_writer *w, int access) { return w->behind->taken >> access & 1; }

reg_name ptx_piece_word(const ptx_writer *w, int access, int n) {
  reg_name r;
  if (is_taken(w, access))
    snprintf(r.text, NAME, "%%r%d", w->pieces[w->piece].words + n);
  else
    snprintf(r.text, NAME, "%%x%d_%d_%d", w->piece, access, n);
  return r;
}

void ptx_begin_piece(ptx_writer *w) {
  ptx_line(w, ".reg .b64 %%c0, %%c1;");
  ptx_line(w, "cvt.u64.u32 %%c0, %%r%d;", w->pieces[w->piece].row);
  ptx_line(w, "cvt.u64.u32 %%c1, %%r%d;", w->pieces[w->piece].column);
}

/* Vectors of an access, into registers. */
static void load_ahead(ptx_writer *w, int access) {
  int item = (int)wk__dtypes[access_dtype(w, access)].size, word = item == 8 ? 8 : 4;
  int words = WK__PTX_PIECE * item / word, most = 16 / word;
  reg_name at = ptx_load_arg(w, WK__PTX_BASE, access, 0), place[2];
  for (int d = 0; d < 2; d++) {
    place[d] = ptx_new(w, "b64");
    ptx_line(w, "cvt.u64.u32 %s, %%r%d;", place[d].text, d ? w->pieces[w->piece].column : w->pieces[w->piece].row);
    ptx_add_moved(w, at.text, access, d, place[d].text);
  }
  for (int n = 0; n < words; n++) ptx_line(w, ".reg .b%d %s;", 8 * word, ptx_piece_word(w, access, n).text);
  for (int first = 0; first < words; first += most) {
    reg_name r[4];
    for (int n = 0; n < most; n++) r[n] = ptx_piece_word(w, access, first + n);
    if (most == 4)
      ptx_line(w, "ld.global.v4.b32 {%s, %s, %s, %s}, [%s+%d];", r[0].text, r[1].text, r[2].text, r[3].text, at.text,
               first * word);
    else
      ptx_line(w, "ld.global.v2.b64 {%s, %s}, [%s+%d];", r[0].text, r[1].text, at.text, first * word);
  }
}

static void load_all_ahead(ptx_writer *w) {
  uint64_t loaded = w->behind->taken;
  for (int v = 1; v < (int)w->nest->instr_count; v++) {
    const wk__instr *i = ptx_instr(w, v);
    if (i->op != WK__LOOP_load || loaded >> i->extra & 1 || !ptx_is_vector(w, i)) continue;
    loaded |= UINT64_C(1) << i->extra;
    load_ahead(w, i->extra);
  }
}

static wk_status write_pieces(ptx_writer *w, int count) {
  ptx_find_varying(w);
  for (w->piece = 0; w->piece < count; w->piece++) load_all_ahead(w);
  for (w->piece = 0; w->piece < count; w->piece++) {
    memset(w->emitted, 0, (size_t)w->nest->instr_count * sizeof *w->emitted);
    ptx_line(w, "{");
    ptx_write_pointwise(w);
    ptx_line(w, "}");
  }
  return w->unsupported ? WK_UNSUPPORTED : WK_OK;
}

wk_status wk__ptx_write_pieces(const wk__ptx_behind *behind, const wk__ptx_piece *pieces, int count, int first,
                               wk__string *code, wk__string *out_tables) {
  const wk__nest *nest = behind->nest;
  ptx_writer w = {
      .nest = nest, .shape = behind->shape, .out = behind->out, .behind = behind, .pieces = pieces, .first_arg = first};
  for (int v = 1; v < (int)nest->instr_count; v++)
    if (wk__loop_is_reduction(nest->instrs[v].op) || wk__loop_is_scan(nest->instrs[v].op)) return WK_UNSUPPORTED;
  w.expression_count = wk__nest_expressions(nest, w.expressions);
  w.varies = wk__alloc_zeroed((size_t)nest->instr_count * sizeof *w.varies);
  w.emitted = wk__alloc_zeroed((size_t)nest->instr_count * sizeof *w.emitted);
  wk_status status = w.varies && w.emitted ? write_pieces(&w, count) : WK_OUT_OF_MEMORY;
  if (w.body.text) wk__string_append(code, w.body.text);
  if (w.body.failed) code->failed = true;
  ptx_declare_tables(&w, out_tables);
  wk__free(w.varies);
  wk__free(w.emitted);
  wk__string_release(&w.body);
  return status;
}
