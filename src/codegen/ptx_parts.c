/* Kernels of rows in parts, and of the whole of them (ptx.h): for few long rows.
 *
 * A warp has a chunk of a row, and leaves what it comes to in the scratch memory; a block folds a row's chunks. Nests
 * whose phases come one after the other have two such kernels a phase: the first goes through the elements of that
 * phase alone, the second leaves the row's values, which stand in front of the chunks' states, for the kernels behind
 * it. Test: tests/cuda/test_ptx.py. */
#include "codegen/ptx_rows.h"

/* ---- what host and kernels ask ---- */

bool wk__ptx_is_reduced_once(const wk__nest *nest) {
  bool reduces = false;
  for (int v = 1; v < (int)nest->instr_count; v++) {
    const wk__instr *i = &nest->instrs[v];
    if (wk__loop_is_reduction(i->op) && wk__instr_phase(i) != 0) return false;
    if (wk__loop_is_scan(i->op) || (wk__loop_is_store(i->op) && i->per_element && i->stage > 0)) return false;
    reduces |= wk__loop_is_reduction(i->op);
  }
  return reduces;
}

wk__ptx_phases wk__ptx_phases_of(const wk__nest *nest) {
  wk__ptx_phases p = {.count = 1};
  for (int v = 1; v < (int)nest->instr_count; v++) {
    const wk__instr *i = &nest->instrs[v];
    int phase = wk__instr_phase(i);
    p.count = (int)wk__max(p.count, i->stage + 1);
    if (wk__loop_is_scan(i->op) || i->op == WK__LOOP_store_add || phase >= WK__PTX_MOST_PHASES) p.count = INT16_MAX;
    if (phase < WK__PTX_MOST_PHASES && wk__loop_is_reduction(i->op)) p.folds |= 1u << phase, p.reductions++;
    if (phase < WK__PTX_MOST_PHASES && wk__loop_is_store(i->op) && i->per_element) p.stores |= 1u << phase;
  }
  return p;
}

/* ---- the scratch memory ---- */

/* %scratch: the chunks' states of the row; %values: what its reductions have come to. */
static void find_scratch(ptx_writer *w, const ptx_folds *f) {
  reg_name scratch = ptx_load_arg(w, WK__PTX_SCRATCH, 0, 0), skipped = ptx_new(w, "b64");
  ptx_line(w, ".reg .b64 %%scratch;");
  ptx_line(w, "mul.lo.s64 %s, %%row, %%count64;", skipped.text);
  ptx_line(w, "mad.lo.s64 %%scratch, %s, %d, %s;", skipped.text, 8 * f->word_count, scratch.text);
  ptx_find_values(w);
}

void ptx_find_values(ptx_writer *w) {
  if (!w->shape->phased) return;
  reg_name values = ptx_load_arg(w, WK__PTX_VALUES, 0, 0);
  ptx_line(w, ".reg .b64 %%values;");
  ptx_line(w, "mad.lo.s64 %%values, %%row, %d, %s;", 8 * wk__ptx_phases_of(w->nest).reductions, values.text);
}

void ptx_move_values(ptx_writer *w, bool load, int phase) {
  if (!w->shape->phased) return;
  int at = 0;
  for (int v = 1; v < (int)w->nest->instr_count; v++) {
    const wk__instr *i = ptx_instr(w, v);
    if (!wk__loop_is_reduction(i->op)) continue;
    int own = wk__instr_phase(i), offset = 8 * at++;
    if (load ? own >= phase : own != phase) continue;
    reg_name value = ptx_value(w, v, 0), bits = ptx_new(w, "b32");
    bool truth = i->dtype == WK_BOOL;
    const char *type = truth ? "b32" : ptx_type(i->dtype);
    if (load) {
      ptx_line(w, ".reg .%s %s;", ptx_type(i->dtype), value.text);
      ptx_line(w, "ld.global.%s %s, [%%values+%d];", type, truth ? bits.text : value.text, offset);
      if (truth) ptx_line(w, "setp.ne.u32 %s, %s, 0;", value.text, bits.text);
      w->emitted[v] = true;
    } else {
      if (truth) ptx_line(w, "selp.b32 %s, 1, 0, %s;", bits.text, value.text);
      ptx_line(w, "@%%first st.global.%s [%%values+%d], %s;", type, offset, truth ? bits.text : value.text);
    }
  }
}

/* ---- the kernels ---- */

void ptx_emit_row_values(ptx_writer *w, int last) {
  for (int stage = 0; stage <= last; stage++)
    for (int v = 1; v < (int)w->nest->instr_count; v++) {
      const wk__instr *i = ptx_instr(w, v);
      bool is_due = !w->varies[v] && i->stage == stage && !wk__loop_is_store(i->op) && !wk__loop_is_reduction(i->op);
      if (is_due) ptx_emit(w, v);
    }
}

void ptx_write_parts(ptx_writer *w) {
  int phase = w->shape->phase;
  ptx_folds f = ptx_folds_of(w, phase);
  w->unsupported |= !w->shape->phased && !wk__ptx_is_reduced_once(w->nest);
  ptx_line(w, ".reg .b32 %%chunk;");
  ptx_line(w, ".reg .b64 %%chunk64;");
  ptx_count_chunks(w);
  ptx_line(w, "rem.u64 %%chunk64, %%row, %%count64;");
  ptx_line(w, "cvt.u32.u64 %%chunk, %%chunk64;");
  ptx_line(w, "div.u64 %%row, %%row, %%count64;");
  ptx_prepare(w);
  find_scratch(w, &f);
  ptx_move_values(w, true, phase);
  ptx_emit_row_values(w, phase);
  w->phase = phase;
  ptx_write_chunk(w, phase, &f, "%lane");
  for (int n = 0; n < f.count; n++) ptx_fold_lanes(w, f.v[n], &f.s[n]);
  if (f.count) ptx_keep_states(w, &f, "%chunk");
}

/* Rows' stores of a stage come with the phase in front of it, those of the first with its own. */
void ptx_write_whole(ptx_writer *w) {
  int phase = w->shape->phase;
  ptx_folds f = ptx_folds_of(w, phase);
  ptx_count_chunks(w);
  ptx_prepare(w);
  find_scratch(w, &f);
  if (phase == 0) ptx_emit_rows(w, 0);
  ptx_move_values(w, true, phase);
  ptx_emit_row_values(w, phase);
  ptx_fold_chunks(w, &f);
  for (int n = 0; n < f.count; n++) ptx_finish(w, f.v[n], &f.s[n]);
  ptx_move_values(w, false, phase);
  int last = w->shape->phased ? phase + 1 : ptx_phases(w) - 1;
  for (int stage = phase + 1; stage <= last; stage++) ptx_emit_rows(w, stage);
}
