/* Kernels of scans (ptx.h): a thread has a row, or a chunk of one, element after element.
 *
 * Inside of a chunk the state begins at the identity; what the chunks before have come to, one after the other, goes in
 * front of it (loop/loop.h). Rows of several chunks have two kernels: the first leaves what each chunk comes to in the
 * scratch memory. Rows in tiles: ptx_scan_tiles.c. Test: tests/cuda/test_ptx.py. */
#include "codegen/ptx_rows.h"

bool wk__ptx_is_scanned(const wk__nest *nest) {
  int scans = 0;
  for (int v = 1; v < (int)nest->instr_count; v++) {
    const wk__instr *i = &nest->instrs[v];
    bool by_row = wk__loop_is_store(i->op) && !i->per_element;
    if (wk__loop_is_reduction(i->op) || i->op == WK__LOOP_store_add || by_row || i->stage > 0) return false;
    scans += wk__loop_is_scan(i->op);
  }
  return scans == 1;
}

static int scan_of(const ptx_writer *w) {
  int v = 1;
  while (!wk__loop_is_scan(ptx_instr(w, v)->op)) v++;
  return v;
}

/* The values of the scan for all elements of a step: %before and what is inside of the chunk. */
void ptx_scan_step(ptx_writer *w, int v) {
  const wk__instr *i = ptx_instr(w, v);
  for (int k = 0; k < w->shape->each; k++) {
    reg_name out = ptx_value(w, v, k), next = ptx_new(w, ptx_type(i->dtype));
    ptx_line(w, ".reg .%s %s;", ptx_type(i->dtype), out.text);
    ptx_combine(w, i->op, i->dtype, next.text, "%inside", ptx_value(w, i->operands[0], k).text);
    ptx_line(w, "mov.%s %%inside, %s;", ptx_type(i->dtype), next.text);
    ptx_combine(w, i->op, i->dtype, out.text, "%before", "%inside");
  }
}

/* %row and %chunk64 of the thread, its elements from %e to %end, the states. */
static void begin(ptx_writer *w, const wk__instr *scan) {
  ptx_count_chunks(w);
  ptx_line(w, ".reg .b64 %%chunk64, %%e, %%end;");
  ptx_line(w, ".reg .%s %%inside, %%before;", ptx_type(scan->dtype));
  ptx_line(w, "mov.b64 %%chunk64, 0;");
  if (w->shape->warps > 1) {
    ptx_line(w, "rem.u64 %%chunk64, %%row, %%count64;");
    ptx_line(w, "div.u64 %%row, %%row, %%count64;");
  }
  ptx_line(w, "shl.b64 %%e, %%chunk64, 12;");
  ptx_line(w, "add.s64 %%end, %%e, %d;", WK__REDUCE_CHUNK);
  ptx_line(w, "min.s64 %%end, %%end, %%length;");
  if (w->shape->tile) ptx_line(w, "@!%%live mov.b64 %%end, %%e;");
  ptx_prepare(w);
  ptx_identity(w, scan->op, scan->dtype, "%inside");
  ptx_identity(w, scan->op, scan->dtype, "%before");
  for (int v = 1; v < (int)w->nest->instr_count; v++) /* values of the row that elements need */
    if (!w->varies[v] && !wk__loop_is_store(ptx_instr(w, v)->op)) ptx_emit(w, v);
}

void ptx_write_scan_step(ptx_writer *w, int scan, bool stores) {
  ptx_line(w, "{");
  ptx_guard_elements(w);
  ptx_prepare_step(w);
  ptx_emit_with_needs(w, scan);
  if (stores) ptx_emit_element_stores(w, 0);
  ptx_line(w, "}");
  ptx_line(w, "add.s64 %%e, %%e, %d;", w->shape->each);
}

static void write_steps(ptx_writer *w, int scan, bool stores) {
  int label = w->unique++;
  if (w->shape->tile) {
    ptx_write_scan_tiles(w, scan, stores);
    return;
  }
  ptx_line(w, ".reg .pred %%over;");
  ptx_line(w, "STEP%d:", label);
  ptx_line(w, "setp.ge.s64 %%over, %%e, %%end;");
  ptx_line(w, "@%%over bra DONE%d;", label);
  ptx_write_scan_step(w, scan, stores);
  ptx_line(w, "bra STEP%d;", label);
  ptx_line(w, "DONE%d:", label);
}

/* The address of the row's first chunk in the scratch memory. */
static reg_name scratch_of_row(ptx_writer *w) {
  reg_name scratch = ptx_load_arg(w, WK__PTX_SCRATCH, 0, 0), at = ptx_new(w, "b64");
  ptx_line(w, "mul.lo.s64 %s, %%row, %%count64;", at.text);
  ptx_line(w, "mad.lo.s64 %s, %s, 8, %s;", at.text, at.text, scratch.text);
  return at;
}

/* %before = what the chunks before come to. */
static void take_before(ptx_writer *w, const wk__instr *scan) {
  int label = w->unique++;
  reg_name at = scratch_of_row(w), one = ptx_new(w, ptx_type(scan->dtype)), sum = ptx_new(w, ptx_type(scan->dtype));
  ptx_line(w, "{");
  ptx_line(w, ".reg .b64 %%left;");
  ptx_line(w, ".reg .pred %%none;");
  ptx_line(w, "mov.b64 %%left, %%chunk64;");
  ptx_line(w, "BEFORE%d:", label);
  ptx_line(w, "setp.eq.s64 %%none, %%left, 0;");
  ptx_line(w, "@%%none bra INSIDE%d;", label);
  ptx_line(w, "ld.global.%s %s, [%s];", ptx_type(scan->dtype), one.text, at.text);
  ptx_combine(w, scan->op, scan->dtype, sum.text, "%before", one.text);
  ptx_line(w, "mov.%s %%before, %s;", ptx_type(scan->dtype), sum.text);
  ptx_line(w, "add.s64 %s, %s, 8;", at.text, at.text);
  ptx_line(w, "sub.s64 %%left, %%left, 1;");
  ptx_line(w, "bra BEFORE%d;", label);
  ptx_line(w, "INSIDE%d:", label);
  ptx_line(w, "}");
}

void ptx_write_scans(ptx_writer *w) {
  w->unsupported |= !wk__ptx_is_scanned(w->nest);
  if (w->unsupported) return;
  int v = scan_of(w);
  const wk__instr *scan = ptx_instr(w, v);
  begin(w, scan);
  if (w->shape->warps > 1) take_before(w, scan);
  write_steps(w, v, true);
}

void ptx_write_scan_parts(ptx_writer *w) {
  w->unsupported |= !wk__ptx_is_scanned(w->nest);
  if (w->unsupported) return;
  int v = scan_of(w);
  const wk__instr *scan = ptx_instr(w, v);
  begin(w, scan);
  write_steps(w, v, false);
  reg_name at = scratch_of_row(w);
  ptx_line(w, "mad.lo.s64 %s, %%chunk64, 8, %s;", at.text, at.text);
  ptx_line(w, "%sst.global.%s [%s], %%inside;", w->shape->tile ? "@%live " : "", ptx_type(scan->dtype), at.text);
  w->out->states = 1;
}
