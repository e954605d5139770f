/* Writing a kernel: registers and arguments, values, phases, and the module around them. In: a nest and a shape. Out:
 * the module's text and its arguments. Test: tests/cuda/test_ptx.py. */
#include "codegen/ptx_rows.h"

#include <stdio.h>

void ptx_line(ptx_writer *w, const char *format, ...) {
  va_list args;
  va_start(args, format);
  wk__string_append(&w->body, "\t");
  wk__string_vprintf(&w->body, format, args);
  wk__string_append(&w->body, "\n");
  va_end(args);
}

reg_name ptx_new(ptx_writer *w, const char *type) {
  reg_name r;
  snprintf(r.text, NAME, "%%t%d", w->unique++);
  ptx_line(w, ".reg .%s %s;", type, r.text);
  return r;
}

const char *ptx_type(int compute) {
  return compute == WK_FLOAT32 ? "f32" : compute == WK_FLOAT64 ? "f64" : compute == WK_INT64 ? "b64" : "pred";
}

reg_name ptx_value(const ptx_writer *w, int v, int k) {
  reg_name r;
  if (w->scores) return ptx_score_value(w, v, k);
  if (!w->varies[v])
    snprintf(r.text, NAME, "%%v%d", v);
  else
    snprintf(r.text, NAME, "%%e%d_%d_%d", w->phase, v, k);
  return r;
}

int ptx_arg(ptx_writer *w, int kind, int a, int b) {
  wk__ptx_kernel *out = w->out;
  if (w->scores) return ptx_score_arg(w, kind, a, b);
  for (int n = 0; n < out->arg_count; n++)
    if (out->args[n].kind == kind && out->args[n].a == a && out->args[n].b == b) return n;
  if (out->arg_count == WK__PTX_MAX_ARGS) {
    w->unsupported = true;
    return 0;
  }
  out->args[out->arg_count] = (wk__ptx_arg){(uint8_t)kind, (uint16_t)a, (uint16_t)b};
  return out->arg_count++;
}

reg_name ptx_load_arg(ptx_writer *w, int kind, int a, int b) {
  reg_name r = ptx_new(w, "b64");
  int n = ptx_arg(w, kind, a, b);
  if (w->shape->together)
    ptx_line(w, "ld.global.nc.b64 %s, [%%own+%d];", r.text, 8 * (n + 1));
  else
    ptx_line(w, "ld.param.u64 %s, [args+%d];", r.text, 8 * (w->first_arg + n));
  return r;
}

reg_name ptx_guard(const ptx_writer *w, int k) {
  reg_name r = {""};
  bool last = k == w->shape->each - 1, rows = w->shape->mode == WK__PTX_ROWS;
  if (w->behind) snprintf(r.text, NAME, "@%%p%d ", w->pieces[w->piece].there);
  if (w->behind || w->whole) return r;
  bool may_miss = rows ? last || w->shape->warps > 1 : w->shape->mode != WK__PTX_POINTWISE;
  if (may_miss) snprintf(r.text, NAME, "@%%in%d ", k);
  return r;
}

reg_name ptx_value_guard(const ptx_writer *w, int v, int k) { return w->varies[v] ? ptx_guard(w, k) : (reg_name){""}; }

/* ---- what is known of values ---- */

static int walker_of(const ptx_writer *w, int v) {
  for (int k = 0; k < w->expression_count; k++)
    if (w->expressions[k] == v) return (int)w->nest->access_count + k;
  return 0;
}

static bool moves_inside(const ptx_writer *w, int walker) {
  return w->shape->p && wk__ptx_move(w->shape, walker, ptx_inner_loop(w)) != WK__PTX_STILL;
}

static bool access_varies(const ptx_writer *w, const wk__instr *i) {
  const wk__access *a = &w->nest->accesses[i->extra];
  if (moves_inside(w, i->extra) || a->may_leave) return true;
  for (int d = 0; a->has_indirect && d < a->ndim; d++)
    if (a->indirect[d] && w->varies[a->indirect[d]]) return true;
  return false;
}

static bool value_varies(const ptx_writer *w, int v) {
  const wk__instr *i = ptx_instr(w, v);
  if (ptx_has_rows(w)) return i->per_element;
  if (wk__loop_has_access(i->op) && access_varies(w, i)) return true;
  if (i->op == WK__LOOP_index && moves_inside(w, walker_of(w, v))) return true;
  for (int n = 0; n < wk__loop_ops[i->op].arity; n++)
    if (w->varies[i->operands[n]]) return true;
  return false;
}

/* ---- values ---- */

void ptx_emit(ptx_writer *w, int v) {
  const wk__instr *i = ptx_instr(w, v);
  int count = w->varies[v] ? w->shape->each : 1;
  if (w->emitted[v]) return;
  w->emitted[v] = true;
  if (wk__loop_is_load(i->op)) {
    ptx_load(w, v);
  } else if (i->op == WK__LOOP_index) {
    for (int k = 0; k < count; k++) {
      ptx_line(w, ".reg .b64 %s;", ptx_value(w, v, k).text);
      reg_name at = ptx_number_at(w, walker_of(w, v), k);
      ptx_line(w, "mov.b64 %s, %s;", ptx_value(w, v, k).text, at.text);
    }
  } else if (wk__loop_is_scan(i->op)) {
    ptx_scan_step(w, v);
  } else {
    for (int k = 0; k < count; k++) ptx_operation(w, v, k);
  }
}

/* Elements' values, with all that they need of elements. */
void ptx_emit_with_needs(ptx_writer *w, int v) {
  const wk__instr *i = ptx_instr(w, v);
  for (int n = 0; n < wk__loop_ops[i->op].arity; n++)
    if (w->varies[i->operands[n]]) ptx_emit_with_needs(w, i->operands[n]);
  if (wk__loop_has_access(i->op)) {
    const wk__access *a = &w->nest->accesses[i->extra];
    for (int d = 0; a->has_indirect && d < a->ndim; d++)
      if (a->indirect[d] && w->varies[a->indirect[d]]) ptx_emit_with_needs(w, a->indirect[d]);
  }
  if (!wk__loop_is_store(i->op) && w->varies[v]) ptx_emit(w, v);
}

/* ---- phases ---- */

bool ptx_is_fold_of(const ptx_writer *w, int v, int phase) {
  return wk__loop_is_reduction(ptx_instr(w, v)->op) && wk__instr_phase(ptx_instr(w, v)) == phase;
}

int ptx_phases(const ptx_writer *w) {
  int most = 0;
  for (int v = 1; v < (int)w->nest->instr_count; v++) most = (int)wk__max(most, ptx_instr(w, v)->stage);
  return ptx_has_rows(w) ? most + 1 : 1;
}

/* Values of rows that are due, then their stores. */
void ptx_emit_rows(ptx_writer *w, int phase) {
  for (int stores = 0; stores < 2; stores++)
    for (int v = 1; v < (int)w->nest->instr_count; v++) {
      const wk__instr *i = ptx_instr(w, v);
      if (w->varies[v] || wk__loop_is_reduction(i->op) || (ptx_has_rows(w) && i->stage != phase)) continue;
      if (wk__loop_is_store(i->op) != (stores == 1)) continue;
      if (stores)
        ptx_store(w, v);
      else
        ptx_emit(w, v);
    }
}

void ptx_emit_element_stores(ptx_writer *w, int phase) {
  for (int pass = 0; pass < 2; pass++)
    for (int v = 1; v < (int)w->nest->instr_count; v++) {
      const wk__instr *i = ptx_instr(w, v);
      if (!wk__loop_is_store(i->op) || !w->varies[v] || (ptx_has_rows(w) && i->stage != phase)) continue;
      if (pass == 0)
        ptx_emit_with_needs(w, v);
      else
        ptx_store(w, v);
    }
}

void ptx_find_varying(ptx_writer *w) {
  for (int v = 1; v < (int)w->nest->instr_count; v++) w->varies[v] = value_varies(w, v);
}

void ptx_write_pointwise(ptx_writer *w) {
  ptx_prepare(w);
  for (int v = 1; v < (int)w->nest->instr_count; v++)
    if (!wk__loop_is_store(ptx_instr(w, v)->op)) ptx_emit(w, v);
  for (int v = 1; v < (int)w->nest->instr_count; v++)
    if (wk__loop_is_store(ptx_instr(w, v)->op)) ptx_store(w, v);
}

/* ---- the module ---- */

static bool is_blocks(const ptx_writer *w) {
  return w->shape->mode == WK__PTX_WHOLE || (!ptx_is_columns(w) && !ptx_is_scans(w) && w->shape->warps > 1);
}

/* Which rows and chunk a block has: %block becomes that of the rows. */
static void begin_column_parts(ptx_writer *w) {
  ptx_count_chunks(w);
  ptx_line(w, ".reg .b32 %%chunk;");
  ptx_line(w, ".reg .b64 %%warp64;");
  ptx_line(w, "rem.u32 %%chunk, %%block, %%chunks;");
  ptx_line(w, "div.u32 %%block, %%block, %%chunks;");
  ptx_line(w, "cvt.u64.u32 %%warp64, %%warp;");
}

/* Threads beyond the last row have to be there when the block, or a scan's warp, waits: they do its work and store
 * nothing. */
static void begin_columns(ptx_writer *w, const char *count) {
  reg_name last = ptx_new(w, "b64");
  if (w->shape->mode == WK__PTX_COLUMN_PARTS) begin_column_parts(w);
  ptx_line(w, ".reg .pred %%live;");
  ptx_line(w, "mul.wide.u32 %%row, %%block, 32;");
  ptx_line(w, "add.s64 %%row, %%row, %%lane;");
  ptx_line(w, "setp.lt.u64 %%live, %%row, %s;", count);
  ptx_line(w, "sub.s64 %s, %s, 1;", last.text, count);
  ptx_line(w, "min.u64 %%row, %%row, %s;", last.text);
  ptx_line(w, "setp.eq.and.u32 %%first, %%warp, 0, %%live;");
}

/* %own: the line of the block's launch; %block becomes that of the launch. */
static void find_launch(ptx_writer *w) {
  ptx_line(w, ".reg .b64 %%own, %%line, %%blocks;");
  ptx_line(w, ".reg .b32 %%launch, %%before;");
  ptx_line(w, "ld.param.u64 %%own, [args+%d];", 8 * WK__PTX_TABLE);
  ptx_line(w, "ld.param.u64 %%line, [args+%d];", 8 * WK__PTX_LINE);
  ptx_line(w, "ld.param.u64 %%blocks, [args+%d];", 8 * WK__PTX_BLOCKS);
  ptx_line(w, "mad.wide.u32 %%blocks, %%block, 2, %%blocks;");
  ptx_line(w, "ld.global.nc.u16 %%launch, [%%blocks];");
  ptx_line(w, "cvt.u64.u32 %%blocks, %%launch;");
  ptx_line(w, "mad.lo.u64 %%own, %%blocks, %%line, %%own;");
  ptx_line(w, "ld.global.nc.u32 %%before, [%%own];");
  ptx_line(w, "sub.u32 %%block, %%block, %%before;");
}

bool wk__ptx_waits(int capability) { return capability >= 90; }

/* %row: the number of what the thread, warp or block does. */
static void write_beginning(ptx_writer *w) {
  if (wk__ptx_waits(w->shape->capability)) {
    ptx_line(w, "griddepcontrol.launch_dependents;");
    ptx_line(w, "griddepcontrol.wait;");
  }
  ptx_line(w, ".reg .b32 %%thread, %%block, %%threads, %%lane32, %%warp;");
  ptx_line(w, "mov.u32 %%block, %%ctaid.x;");
  if (w->shape->together) find_launch(w);
  reg_name count = ptx_load_arg(w, WK__PTX_COUNT, 0, 0);
  ptx_line(w, ".reg .b64 %%row, %%lane, %%thread64;");
  ptx_line(w, ".reg .pred %%none, %%first, %%lane0;");
  ptx_line(w, "mov.u32 %%thread, %%tid.x;");
  ptx_line(w, "mov.u32 %%threads, %%ntid.x;");
  ptx_line(w, "and.b32 %%lane32, %%thread, 31;");
  ptx_line(w, "cvt.u64.u32 %%lane, %%lane32;");
  ptx_line(w, "shr.u32 %%warp, %%thread, 5;");
  ptx_line(w, "setp.eq.u32 %%lane0, %%lane32, 0;");
  if (ptx_is_columns(w) || w->shape->tile) {
    begin_columns(w, count.text);
    return;
  }
  if (ptx_is_tiles(w)) { /* all threads wait for each other */
    ptx_line(w, "cvt.u64.u32 %%row, %%block;");
    return;
  }
  if (is_blocks(w)) {
    ptx_line(w, "cvt.u64.u32 %%row, %%block;");
    ptx_line(w, "setp.eq.u32 %%first, %%thread, 0;");
  } else {
    ptx_line(w, "mul.wide.u32 %%row, %%block, %%threads;");
    ptx_line(w, "cvt.u64.u32 %%thread64, %%thread;");
    ptx_line(w, "add.s64 %%row, %%row, %%thread64;");
    bool alone = w->shape->mode == WK__PTX_SHORT_ROWS || ptx_is_scans(w);
    if (ptx_has_rows(w) && !alone) ptx_line(w, "shr.u64 %%row, %%row, 5;");
    ptx_line(w, "setp.eq.u32 %%first, %s, 0;", alone ? "0" : "%lane32");
    ptx_line(w, "mov.u32 %%warp, 0;"); /* each has its row alone */
  }
  ptx_line(w, "setp.ge.u64 %%none, %%row, %s;", count.text);
  ptx_line(w, "@%%none ret;");
}

static bool shares_memory(const ptx_writer *w) {
  int mode = w->shape->mode;
  return ptx_is_columns(w) || ((mode == WK__PTX_ROWS || mode == WK__PTX_LONG_ROWS) && w->shape->warps > 1);
}

static int most_threads(const ptx_writer *w) {
  int mode = w->shape->mode;
  if (w->shape->tile) return 32;
  if (ptx_is_columns(w) || mode == WK__PTX_WHOLE) return 1024;
  return w->shape->warps > 8 ? 32 * w->shape->warps : 256;
}

void ptx_declare_tables(const ptx_writer *w, wk__string *out) {
  for (int n = 0; n < wk__ptx_function_count; n++) {
    bool again = false;
    for (int m = 0; m < n; m++)
      again |= w->tables >> m & 1 &&
               strcmp(wk__ptx_functions[m].table, wk__ptx_functions[n].table ? wk__ptx_functions[n].table : "") == 0;
    if (w->tables >> n & 1 && !again) wk__string_append(out, wk__ptx_functions[n].table);
  }
}

const char *const wk__ptx_mode_names[] = {[WK__PTX_POINTWISE] = "pointwise",
                                          [WK__PTX_SHORT_ROWS] = "short rows",
                                          [WK__PTX_ROWS] = "rows",
                                          [WK__PTX_LONG_ROWS] = "long rows",
                                          [WK__PTX_COLUMNS] = "columns",
                                          [WK__PTX_PARTS] = "parts",
                                          [WK__PTX_WHOLE] = "whole",
                                          [WK__PTX_TILES] = "tiles",
                                          [WK__PTX_SCANS] = "scans",
                                          [WK__PTX_SCAN_PARTS] = "scan parts",
                                          [WK__PTX_COLUMN_PARTS] = "column parts",
                                          [WK__PTX_COLUMN_WHOLE] = "column whole"};

static void name_entry(const ptx_writer *w) {
  char *name = w->out->entry;
  size_t length = (size_t)snprintf(name, WK__PTX_ENTRY_BYTES, "wick_%s", wk__ptx_mode_names[w->shape->mode]);
  for (char *c = name; *c; c++)
    if (*c == ' ') *c = '_';
  for (int v = 1; v < (int)w->nest->instr_count; v++) {
    int op = w->nest->instrs[v].op;
    const char *word = wk__loop_ops[op].name;
    if (wk__loop_class_of(op) < WK__CLASS_MAP || op == WK__LOOP_cast) continue;
    if (length + 1 + strlen(word) < WK__PTX_ENTRY_BYTES)
      length += (size_t)snprintf(name + length, WK__PTX_ENTRY_BYTES - length, "_%s", word);
  }
}

static void write_head(ptx_writer *w, wk__string *text, const char *provenance) {
  int target = w->shape->capability >= 90 ? 90 : w->shape->capability >= 80 ? 80 : 70;
  for (const char *p = provenance; p && *p;) {
    const char *end = strchr(p, '\n');
    int length = end ? (int)(end - p) : (int)strlen(p);
    wk__string_printf(text, "// %.*s\n", length, p);
    p += length + (end != NULL);
  }
  wk__string_printf(text, ".version 7.8\n.target sm_%d\n.address_size 64\n", target);
  ptx_declare_tables(w, text);
  if ((w->out->states || w->shape->kept) && shares_memory(w))
    wk__string_printf(text, ".extern .shared .align %d .b8 states[];\n", w->shape->vectors ? 16 : 8);
  if (ptx_is_tiles(w)) /* rows of a tile with room for two elements more, at least 8 bytes */
    wk__string_printf(text, ".shared .align 8 .b8 tile[%d];\n", WK__PTX_TILE * (WK__PTX_TILE + 4) * 8);
  if (w->shape->tile) wk__string_printf(text, ".shared .align 16 .b8 tile[%d];\n", ptx_scan_tile_bytes(w));
  wk__string_printf(text, ".visible .entry %s(.param .align 8 .b8 args[%d])\n.maxntid %d, 1, 1\n{\n", w->out->entry,
                    8 * (w->shape->together ? WK__PTX_TOGETHER_ARGS : (int)wk__max(w->out->arg_count, 1)),
                    most_threads(w));
}

static bool is_written(const wk__nest *nest, const wk__ptx_shape *shape) {
  bool scans = shape->mode == WK__PTX_SCANS || shape->mode == WK__PTX_SCAN_PARTS;
  for (int v = 1; v < (int)nest->instr_count; v++)
    if (wk__loop_is_scan(nest->instrs[v].op) && !scans) return false;
  return true;
}

static wk_status write_kernel(ptx_writer *w, const char *provenance) {
  wk__string text = {0};
  ptx_find_varying(w);
  write_beginning(w);
  if (ptx_has_rows(w))
    ptx_write_rows(w);
  else
    ptx_write_pointwise(w);
  ptx_line(w, "ret;");
  if (w->unsupported) return WK_UNSUPPORTED;
  name_entry(w);
  write_head(w, &text, provenance);
  if (w->body.text) wk__string_append(&text, w->body.text);
  wk__string_append(&text, "}\n");
  if (w->body.failed) text.failed = true;
  w->out->text = wk__string_take(&text);
  return w->out->text ? WK_OK : WK_OUT_OF_MEMORY;
}

wk_status wk__ptx_write(const wk__nest *nest, const wk__ptx_shape *shape, const char *provenance, wk__ptx_kernel *out) {
  ptx_writer w = {.nest = nest, .shape = shape, .out = out, .whole = shape->whole};
  w.scratch = shape->mode == WK__PTX_PARTS || shape->mode == WK__PTX_WHOLE;
  out->arg_count = out->states = 0;
  out->text = NULL;
  if (!is_written(nest, shape)) return WK_UNSUPPORTED;
  w.expression_count = wk__nest_expressions(nest, w.expressions);
  w.varies = wk__alloc_zeroed((size_t)nest->instr_count * sizeof *w.varies);
  w.emitted = wk__alloc_zeroed((size_t)nest->instr_count * sizeof *w.emitted);
  wk_status status = w.varies && w.emitted ? write_kernel(&w, provenance) : WK_OUT_OF_MEMORY;
  wk__free(w.varies);
  wk__free(w.emitted);
  wk__string_release(&w.body);
  return status;
}
