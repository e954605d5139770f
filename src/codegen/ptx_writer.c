/* Writing a kernel: what comes first, phases, folds. In: a nest and a shape. Out: the module's text and its arguments.
 * Test: tests/cuda/test_ptx.py. */
#include "codegen/ptx_internal.h"

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
  if (!w->varies[v])
    snprintf(r.text, NAME, "%%v%d", v);
  else
    snprintf(r.text, NAME, "%%e%d_%d_%d", w->phase, v, k);
  return r;
}

int ptx_arg(ptx_writer *w, int kind, int a, int b) {
  wk__ptx_kernel *out = w->out;
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
    ptx_line(w, "ld.param.u64 %s, [args+%d];", r.text, 8 * n);
  return r;
}

reg_name ptx_guard(const ptx_writer *w, int k) {
  reg_name r = {""};
  bool last = k == w->shape->each - 1, rows = w->shape->mode == WK__PTX_ROWS;
  if (w->whole) return r;
  bool may_miss = rows ? last || w->shape->warps > 1 : w->shape->mode != WK__PTX_POINTWISE;
  if (may_miss) snprintf(r.text, NAME, "@%%in%d ", k);
  return r;
}

reg_name ptx_value_guard(const ptx_writer *w, int v, int k) { return w->varies[v] ? ptx_guard(w, k) : (reg_name){""}; }

/* ---- what is known of values ---- */

static const wk__instr *instr_of(const ptx_writer *w, int v) { return &w->nest->instrs[v]; }
static bool has_rows(const ptx_writer *w) { return w->shape->mode != WK__PTX_POINTWISE && !ptx_is_tiles(w); }
static bool is_columns(const ptx_writer *w) {
  int mode = w->shape->mode;
  return mode == WK__PTX_COLUMNS || mode == WK__PTX_COLUMN_PARTS || mode == WK__PTX_COLUMN_WHOLE;
}

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
  const wk__instr *i = instr_of(w, v);
  if (has_rows(w)) return i->per_element;
  if (wk__loop_has_access(i->op) && access_varies(w, i)) return true;
  if (i->op == WK__LOOP_index && moves_inside(w, walker_of(w, v))) return true;
  for (int n = 0; n < wk__loop_ops[i->op].arity; n++)
    if (w->varies[i->operands[n]]) return true;
  return false;
}

/* ---- values ---- */

void ptx_emit(ptx_writer *w, int v) {
  const wk__instr *i = instr_of(w, v);
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
  } else {
    for (int k = 0; k < count; k++) ptx_operation(w, v, k);
  }
}

/* Elements' values, with all that they need of elements. */
static void emit_with_needs(ptx_writer *w, int v) {
  const wk__instr *i = instr_of(w, v);
  for (int n = 0; n < wk__loop_ops[i->op].arity; n++)
    if (w->varies[i->operands[n]]) emit_with_needs(w, i->operands[n]);
  if (wk__loop_has_access(i->op)) {
    const wk__access *a = &w->nest->accesses[i->extra];
    for (int d = 0; a->has_indirect && d < a->ndim; d++)
      if (a->indirect[d] && w->varies[a->indirect[d]]) emit_with_needs(w, a->indirect[d]);
  }
  if (!wk__loop_is_store(i->op) && w->varies[v]) ptx_emit(w, v);
}

/* ---- folds ---- */

static int dtype_of_fold(const ptx_writer *w, int v) { return instr_of(w, instr_of(w, v)->operands[0])->dtype; }

typedef struct state {
  reg_name value, index; /* index: of arg reductions, -1 where there is none */
} state;

static state new_state(ptx_writer *w, int v) {
  int dtype = dtype_of_fold(w, v);
  state s = {ptx_new(w, ptx_type(dtype)), {""}};
  if (wk__loop_is_arg(instr_of(w, v)->op)) s.index = ptx_new(w, "b64");
  return s;
}

static void begin_state(ptx_writer *w, int v, const state *s) {
  ptx_identity(w, instr_of(w, v)->op, dtype_of_fold(w, v), s->value.text);
  if (s->index.text[0]) ptx_line(w, "mov.b64 %s, -1;", s->index.text);
}

static void move_value(ptx_writer *w, int dtype, const char *guard, const char *to, const char *from) {
  ptx_line(w, "%smov.%s %s, %s;", guard, ptx_type(dtype), to, from);
}

/* s = the better of s and another; where the guard does not hold s stays. */
static void take_arg(ptx_writer *w, int v, const state *s, const char *value, const char *index, const char *guard) {
  int op = instr_of(w, v)->op, dtype = dtype_of_fold(w, v);
  reg_name better = ptx_better(w, op, dtype, s->value.text, value),
           worse = ptx_better(w, op, dtype, value, s->value.text);
  reg_name earlier = ptx_new(w, "pred"), none = ptx_new(w, "pred"), there = ptx_new(w, "pred");
  ptx_line(w, "setp.lt.s64 %s, %s, %s;", earlier.text, index, s->index.text);
  ptx_line(w, "not.pred %s, %s;", worse.text, worse.text);
  ptx_line(w, "and.pred %s, %s, %s;", earlier.text, earlier.text, worse.text);
  ptx_line(w, "or.pred %s, %s, %s;", better.text, better.text, earlier.text);
  ptx_line(w, "setp.lt.s64 %s, %s, 0;", none.text, s->index.text);
  ptx_line(w, "or.pred %s, %s, %s;", better.text, better.text, none.text);
  ptx_line(w, "setp.ge.s64 %s, %s, 0;", there.text, index);
  ptx_line(w, "and.pred %s, %s, %s;", better.text, better.text, there.text);
  if (guard[0]) ptx_line(w, "and.pred %s, %s, %.*s;", better.text, better.text, (int)strlen(guard) - 2, guard + 1);
  char taken[NAME + 4];
  snprintf(taken, sizeof taken, "@%s ", better.text);
  move_value(w, dtype, taken, s->value.text, value);
  ptx_line(w, "%smov.b64 %s, %s;", taken, s->index.text, index);
}

static void take_other(ptx_writer *w, int v, const state *s, const state *other, const char *guard) {
  int op = instr_of(w, v)->op, dtype = dtype_of_fold(w, v);
  if (s->index.text[0]) {
    take_arg(w, v, s, other->value.text, other->index.text, guard);
    return;
  }
  reg_name sum = ptx_new(w, ptx_type(dtype));
  ptx_combine(w, op, dtype, sum.text, s->value.text, other->value.text);
  if (dtype == WK_BOOL && guard[0]) { /* a predicate may not be moved under one by every assembler */
    reg_name kept = ptx_new(w, "b32"), made = ptx_new(w, "b32");
    ptx_line(w, "selp.b32 %s, 1, 0, %s;", kept.text, s->value.text);
    ptx_line(w, "selp.b32 %s, 1, 0, %s;", made.text, sum.text);
    ptx_line(w, "%smov.b32 %s, %s;", guard, kept.text, made.text);
    ptx_line(w, "setp.ne.u32 %s, %s, 0;", s->value.text, kept.text);
    return;
  }
  move_value(w, dtype, guard, s->value.text, sum.text);
}

/* Element k's number in its row. */
static reg_name element_number(ptx_writer *w, int k) {
  reg_name number = ptx_new(w, "b64");
  ptx_line(w, "add.s64 %s, %%e, %d;", number.text, ptx_distance(w) * k);
  return number;
}

static void take_element(ptx_writer *w, int v, const state *s, int k) {
  reg_name guard = ptx_guard(w, k);
  state other = {ptx_value(w, instr_of(w, v)->operands[0], k), {""}};
  if (s->index.text[0]) other.index = element_number(w, k);
  take_other(w, v, s, &other, guard.text);
}

static void take_elements(ptx_writer *w, int v, const state *s) {
  for (int k = 0; k < w->shape->each; k++) take_element(w, v, s, k);
}

/* to = from of another lane: `mode` "down" or "idx", by `amount`. */
static void from_lane(ptx_writer *w, int dtype, const char *to, const char *from, const char *mode, int amount) {
  if (dtype == WK_FLOAT32) {
    ptx_line(w, "shfl.sync.%s.b32 %s, %s, %d, 0x1f, 0xffffffff;", mode, to, from, amount);
  } else if (dtype == WK_BOOL) {
    reg_name bits = ptx_new(w, "b32");
    ptx_line(w, "selp.b32 %s, 1, 0, %s;", bits.text, from);
    ptx_line(w, "shfl.sync.%s.b32 %s, %s, %d, 0x1f, 0xffffffff;", mode, bits.text, bits.text, amount);
    ptx_line(w, "setp.ne.u32 %s, %s, 0;", to, bits.text);
  } else {
    reg_name low = ptx_new(w, "b32"), high = ptx_new(w, "b32");
    ptx_line(w, "mov.b64 {%s, %s}, %s;", low.text, high.text, from);
    ptx_line(w, "shfl.sync.%s.b32 %s, %s, %d, 0x1f, 0xffffffff;", mode, low.text, low.text, amount);
    ptx_line(w, "shfl.sync.%s.b32 %s, %s, %d, 0x1f, 0xffffffff;", mode, high.text, high.text, amount);
    ptx_line(w, "mov.b64 %s, {%s, %s};", to, low.text, high.text);
  }
}

/* The lanes in halves; lane 0 has the chunk's value, and then all do. */
static void fold_lanes(ptx_writer *w, int v, const state *s) {
  int dtype = dtype_of_fold(w, v);
  for (int half = 16; half > 0; half /= 2) {
    state other = {ptx_new(w, ptx_type(dtype)), {""}};
    from_lane(w, dtype, other.value.text, s->value.text, "down", half);
    if (s->index.text[0]) {
      other.index = ptx_new(w, "b64");
      from_lane(w, WK_INT64, other.index.text, s->index.text, "down", half);
    }
    take_other(w, v, s, &other, "");
  }
  from_lane(w, dtype, s->value.text, s->value.text, "idx", 0);
  if (s->index.text[0]) from_lane(w, WK_INT64, s->index.text, s->index.text, "idx", 0);
}

/* The row's value of reduction v. */
static void finish(ptx_writer *w, int v, const state *s) {
  const wk__instr *i = instr_of(w, v);
  ptx_line(w, ".reg .%s %s;", ptx_type(i->dtype), ptx_value(w, v, 0).text);
  move_value(w, i->dtype, "", ptx_value(w, v, 0).text, s->index.text[0] ? s->index.text : s->value.text);
  w->emitted[v] = true;
}

/* ---- phases ---- */

static bool is_fold_of(const ptx_writer *w, int v, int phase) {
  return wk__loop_is_reduction(instr_of(w, v)->op) && wk__instr_phase(instr_of(w, v)) == phase;
}

static int phases_of(const ptx_writer *w) {
  int most = 0;
  for (int v = 1; v < (int)w->nest->instr_count; v++) most = (int)wk__max(most, instr_of(w, v)->stage);
  return has_rows(w) ? most + 1 : 1;
}

/* Values of rows that are due, then their stores. */
static void emit_rows(ptx_writer *w, int phase) {
  for (int stores = 0; stores < 2; stores++)
    for (int v = 1; v < (int)w->nest->instr_count; v++) {
      const wk__instr *i = instr_of(w, v);
      if (w->varies[v] || wk__loop_is_reduction(i->op) || (has_rows(w) && i->stage != phase)) continue;
      if (wk__loop_is_store(i->op) != (stores == 1)) continue;
      if (stores)
        ptx_store(w, v);
      else
        ptx_emit(w, v);
    }
}

static void emit_element_stores(ptx_writer *w, int phase) {
  for (int pass = 0; pass < 2; pass++)
    for (int v = 1; v < (int)w->nest->instr_count; v++) {
      const wk__instr *i = instr_of(w, v);
      if (!wk__loop_is_store(i->op) || !w->varies[v] || (has_rows(w) && i->stage != phase)) continue;
      if (pass == 0)
        emit_with_needs(w, v);
      else
        ptx_store(w, v);
    }
}

static void write_pointwise(ptx_writer *w) {
  ptx_prepare(w);
  for (int v = 1; v < (int)w->nest->instr_count; v++)
    if (!wk__loop_is_store(instr_of(w, v)->op)) ptx_emit(w, v);
  for (int v = 1; v < (int)w->nest->instr_count; v++)
    if (wk__loop_is_store(instr_of(w, v)->op)) ptx_store(w, v);
}

/* ---- states in memory: shared, or the scratch of parts ---- */

static const char *space_of(const ptx_writer *w) { return w->scratch ? "global" : "shared"; }

/* The address of the state with a number (32 bits), `words` words each. */
static reg_name state_address(ptx_writer *w, const char *number, int words) {
  reg_name at = ptx_new(w, w->scratch ? "b64" : "b32");
  if (w->scratch) {
    ptx_line(w, "mad.wide.u32 %s, %s, %d, %%scratch;", at.text, number, 8 * words);
  } else {
    ptx_line(w, "mov.u32 %s, states;", at.text);
    ptx_line(w, "mad.lo.s32 %s, %s, %d, %s;", at.text, number, 8 * words, at.text);
  }
  return at;
}

static void move_word(ptx_writer *w, bool load, int dtype, const char *value, const char *at, int offset) {
  const char *type = dtype == WK_FLOAT32 ? "f32" : dtype == WK_FLOAT64 ? "f64" : "b64", *space = space_of(w);
  if (dtype != WK_BOOL) {
    if (load)
      ptx_line(w, "ld.%s.%s %s, [%s+%d];", space, type, value, at, offset);
    else
      ptx_line(w, "st.%s.%s [%s+%d], %s;", space, type, at, offset, value);
    return;
  }
  reg_name bits = ptx_new(w, "b32");
  if (load) {
    ptx_line(w, "ld.%s.b32 %s, [%s+%d];", space, bits.text, at, offset);
    ptx_line(w, "setp.ne.u32 %s, %s, 0;", value, bits.text);
  } else {
    ptx_line(w, "selp.b32 %s, 1, 0, %s;", bits.text, value);
    ptx_line(w, "st.%s.b32 [%s+%d], %s;", space, at, offset, bits.text);
  }
}

/* The state of reduction v; `word`: its first word behind the address. */
static void move_state(ptx_writer *w, int v, bool load, const state *s, const char *at, int word) {
  move_word(w, load, dtype_of_fold(w, v), s->value.text, at, 8 * word);
  if (s->index.text[0]) move_word(w, load, WK_INT64, s->index.text, at, 8 * word + 8);
}
static int words_of(const ptx_writer *w, int v) { return 1 + wk__loop_is_arg(instr_of(w, v)->op); }

/* The lanes' states go from warp to warp, each of which takes its elements; then every warp has them all. */
static void take_by_warps(ptx_writer *w, int v, const state *s) {
  int label = w->unique++, slot = 32 * w->out->states;
  w->out->states += words_of(w, v);
  ptx_line(w, "{");
  ptx_line(w, ".reg .b32 %%turn, %%slot;");
  ptx_line(w, ".reg .pred %%other, %%later;");
  ptx_line(w, "add.u32 %%slot, %%lane32, %d;", words_of(w, v) == 1 ? slot : slot / 2);
  reg_name at = state_address(w, "%slot", words_of(w, v));
  ptx_line(w, "mov.u32 %%turn, 0;");
  ptx_line(w, "TURN%d:", label);
  ptx_line(w, "setp.ne.u32 %%other, %%turn, %%warp;");
  ptx_line(w, "@%%other bra WAIT%d;", label);
  ptx_line(w, "setp.eq.u32 %%later, %%turn, 0;");
  ptx_line(w, "@%%later bra TAKE%d;", label);
  move_state(w, v, true, s, at.text, 0);
  ptx_line(w, "TAKE%d:", label);
  take_elements(w, v, s);
  move_state(w, v, false, s, at.text, 0);
  ptx_line(w, "WAIT%d:", label);
  ptx_line(w, "bar.sync 0;");
  ptx_line(w, "add.u32 %%turn, %%turn, 1;");
  ptx_line(w, "setp.lt.u32 %%other, %%turn, %d;", w->shape->warps);
  ptx_line(w, "@%%other bra TURN%d;", label);
  move_state(w, v, true, s, at.text, 0);
  ptx_line(w, "}");
}

static void guard_elements(ptx_writer *w) {
  reg_name length = ptx_load_arg(w, WK__PTX_LENGTH, 0, 0);
  for (int k = 0; k < w->shape->each; k++) {
    if (!ptx_guard(w, k).text[0]) continue;
    reg_name at = ptx_new(w, "b64");
    ptx_line(w, ".reg .pred %%in%d;", k);
    ptx_line(w, "add.s64 %s, %%e, %d;", at.text, 32 * k);
    ptx_line(w, "setp.lt.u64 %%in%d, %s, %s;", k, at.text, length.text);
    if (is_columns(w)) ptx_line(w, "and.pred %%in%d, %%in%d, %%live;", k, k);
  }
}

/* Reduction v of a short row: each element is a lane's, and lanes are folded in halves, as fold_lanes does it. */
static void fold_short(ptx_writer *w, int v) {
  state lanes[WK__PTX_SHORT_ROW];
  int count = w->shape->each;
  emit_with_needs(w, v);
  for (int k = 0; k < count; k++) {
    lanes[k] = new_state(w, v);
    begin_state(w, v, &lanes[k]);
    take_element(w, v, &lanes[k], k);
  }
  for (int half = WK__PTX_SHORT_ROW / 2; half > 0; half /= 2)
    for (int k = 0; k < half && k + half < count; k++) take_other(w, v, &lanes[k], &lanes[k + half], "");
  finish(w, v, &lanes[0]);
}

static void write_short_rows(ptx_writer *w) {
  ptx_line(w, ".reg .b64 %%e;");
  ptx_line(w, "mov.b64 %%e, 0;");
  ptx_prepare(w);
  for (int phase = 0, count = phases_of(w); phase < count; phase++) {
    emit_rows(w, phase);
    for (int v = 1; v < (int)w->nest->instr_count; v++)
      if (is_fold_of(w, v, phase)) fold_short(w, v);
    emit_element_stores(w, phase);
  }
}

/* Rows in registers: what one phase has computed the next ones have. */
static void write_rows(ptx_writer *w) {
  bool wide = w->shape->warps > 1;
  ptx_line(w, ".reg .b64 %%e;");
  ptx_line(w, "mov.b64 %%e, %%lane;");
  if (wide) {
    reg_name part = ptx_new(w, "b64");
    ptx_line(w, "mul.wide.u32 %s, %%warp, %d;", part.text, 32 * w->shape->each);
    ptx_line(w, "add.s64 %%e, %%e, %s;", part.text);
  }
  ptx_prepare(w);
  guard_elements(w);
  for (int phase = 0, count = phases_of(w); phase < count; phase++) {
    emit_rows(w, phase);
    for (int v = 1; v < (int)w->nest->instr_count; v++) {
      if (!is_fold_of(w, v, phase)) continue;
      state s = new_state(w, v);
      emit_with_needs(w, v);
      begin_state(w, v, &s);
      if (wide)
        take_by_warps(w, v, &s);
      else
        take_elements(w, v, &s);
      fold_lanes(w, v, &s);
      finish(w, v, &s);
    }
    emit_element_stores(w, phase);
  }
}

/* ---- long rows ---- */

enum { MOST_FOLDS = 16 };

typedef struct folds {
  int v[MOST_FOLDS], count;
  state s[MOST_FOLDS];
  int words[MOST_FOLDS]; /* the first of each in a chunk's states */
  int word_count;
} folds;

static folds folds_of(ptx_writer *w, int phase) {
  folds f = {.count = 0};
  for (int v = 1; v < (int)w->nest->instr_count; v++) {
    if (!is_fold_of(w, v, phase)) continue;
    if (f.count == MOST_FOLDS) {
      w->unsupported = true;
      return f;
    }
    f.v[f.count] = v;
    f.s[f.count] = new_state(w, v);
    f.words[f.count++] = f.word_count;
    f.word_count += words_of(w, v);
  }
  w->out->states = (int)wk__max(w->out->states, f.word_count);
  return f;
}

static bool stores_elements(const ptx_writer *w, int phase) {
  for (int v = 1; v < (int)w->nest->instr_count; v++)
    if (wk__loop_is_store(instr_of(w, v)->op) && w->varies[v] && instr_of(w, v)->stage == phase) return true;
  return false;
}

/* Elements %e, %e + 32, ... of a row, each where it is below the length. */
static void write_step(ptx_writer *w, int phase, folds *f) {
  for (int v = 1; v < (int)w->nest->instr_count; v++)
    if (w->varies[v]) w->emitted[v] = false;
  guard_elements(w);
  ptx_prepare_step(w);
  for (int n = 0; n < f->count; n++) emit_with_needs(w, f->v[n]);
  for (int n = 0; n < f->count; n++) take_elements(w, f->v[n], &f->s[n]);
  emit_element_stores(w, phase);
}

static void move_states(ptx_writer *w, const folds *f, bool load, const state *s, const char *at) {
  for (int n = 0; n < f->count; n++) move_state(w, f->v[n], load, &s[n], at, f->words[n]);
}

/* Chunks pairwise, neighbours first, in shared memory by the whole block; then all threads have the row's values. */
static void fold_chunks(ptx_writer *w, folds *f) {
  int label = w->unique++;
  state other[MOST_FOLDS];
  for (int n = 0; n < f->count; n++) other[n] = new_state(w, f->v[n]);
  ptx_line(w, "{");
  ptx_line(w, ".reg .b32 %%step, %%i, %%j, %%pair, %%stride;");
  ptx_line(w, ".reg .pred %%more;");
  ptx_line(w, "bar.sync 0;");
  ptx_line(w, "mov.u32 %%step, 1;");
  ptx_line(w, "STEP%d:", label);
  ptx_line(w, "setp.ge.u32 %%more, %%step, %%chunks;");
  ptx_line(w, "@%%more bra DONE%d;", label);
  ptx_line(w, "shl.b32 %%pair, %%step, 1;");
  ptx_line(w, "mul.lo.u32 %%i, %%thread, %%pair;");
  ptx_line(w, "mul.lo.u32 %%stride, %%pair, %%threads;");
  ptx_line(w, "PAIR%d:", label);
  ptx_line(w, "add.u32 %%j, %%i, %%step;");
  ptx_line(w, "setp.ge.u32 %%more, %%j, %%chunks;");
  ptx_line(w, "@%%more bra NEXT%d;", label);
  reg_name a = state_address(w, "%i", f->word_count), b = state_address(w, "%j", f->word_count);
  move_states(w, f, true, f->s, a.text);
  move_states(w, f, true, other, b.text);
  for (int n = 0; n < f->count; n++) take_other(w, f->v[n], &f->s[n], &other[n], "");
  move_states(w, f, false, f->s, a.text);
  ptx_line(w, "add.u32 %%i, %%i, %%stride;");
  ptx_line(w, "bra PAIR%d;", label);
  ptx_line(w, "NEXT%d:", label);
  ptx_line(w, "bar.sync 0;");
  ptx_line(w, "mov.u32 %%step, %%pair;");
  ptx_line(w, "bra STEP%d;", label);
  ptx_line(w, "DONE%d:", label);
  ptx_line(w, "mov.u32 %%i, 0;");
  reg_name all = state_address(w, "%i", f->word_count);
  move_states(w, f, true, f->s, all.text);
  ptx_line(w, "bar.sync 0;"); /* they are written again by the next phase */
  ptx_line(w, "}");
}

/* Without guards, where threads of rows that are not there do what the last row's do: but they must not store it. */
static bool has_whole_steps(const ptx_writer *w, int phase) { return !is_columns(w) || !stores_elements(w, phase); }

/* Steps from %e on: those that are whole, or the rest. */
static void write_rounds(ptx_writer *w, int phase, folds *f, bool whole) {
  int label = w->unique++;
  w->whole = whole;
  ptx_line(w, "ROUND%d:", label);
  if (whole) {
    reg_name behind = ptx_new(w, "b64");
    ptx_line(w, "add.s64 %s, %%e, %d;", behind.text, 32 * w->shape->each);
    ptx_line(w, "setp.gt.s64 %%over, %s, %%end;", behind.text);
  } else {
    ptx_line(w, "setp.ge.s64 %%over, %%e, %%end;");
  }
  ptx_line(w, "@%%over bra FOLD%d;", label);
  ptx_line(w, "{");
  write_step(w, phase, f);
  ptx_line(w, "}");
  ptx_line(w, "add.s64 %%e, %%e, %d;", 32 * w->shape->each);
  ptx_line(w, "bra ROUND%d;", label);
  ptx_line(w, "FOLD%d:", label);
  w->whole = w->shape->whole;
}

/* A chunk of a row, %chunk, in steps; the states begin again. `lane`: the register of the thread's lane. */
static void write_chunk(ptx_writer *w, int phase, folds *f, const char *lane) {
  ptx_line(w, "{");
  ptx_line(w, ".reg .b64 %%e, %%end;");
  ptx_line(w, ".reg .pred %%over;");
  for (int n = 0; n < f->count; n++) begin_state(w, f->v[n], &f->s[n]);
  ptx_line(w, "mul.wide.u32 %%e, %%chunk, %d;", WK__REDUCE_CHUNK);
  ptx_line(w, "add.s64 %%end, %%e, %d;", WK__REDUCE_CHUNK);
  ptx_line(w, "min.s64 %%end, %%end, %%length;");
  ptx_line(w, "add.s64 %%end, %%end, %s;", lane);
  ptx_line(w, "add.s64 %%e, %%e, %s;", lane);
  if (has_whole_steps(w, phase)) write_rounds(w, phase, f, true);
  if (!w->shape->whole) write_rounds(w, phase, f, false);
  ptx_line(w, "}");
}

/* What lane 0 has goes to the chunk's place. */
static void keep_states(ptx_writer *w, folds *f, const char *number) {
  int skip = w->unique++;
  reg_name at = state_address(w, number, f->word_count);
  ptx_line(w, "@!%%lane0 bra SKIP%d;", skip);
  move_states(w, f, false, f->s, at.text);
  ptx_line(w, "SKIP%d:", skip);
}

/* A loop over chunks from `first`, in steps of end_chunks(). Returns its label. */
static int begin_chunks(ptx_writer *w, const char *first) {
  int label = w->unique++;
  ptx_line(w, "{");
  ptx_line(w, ".reg .b32 %%chunk;");
  ptx_line(w, ".reg .pred %%over;");
  ptx_line(w, "mov.u32 %%chunk, %s;", first);
  ptx_line(w, "CHUNK%d:", label);
  ptx_line(w, "setp.ge.u32 %%over, %%chunk, %%chunks;");
  ptx_line(w, "@%%over bra OVER%d;", label);
  return label;
}

static void end_chunks(ptx_writer *w, int label, int step) {
  ptx_line(w, "add.u32 %%chunk, %%chunk, %d;", step);
  ptx_line(w, "bra CHUNK%d;", label);
  ptx_line(w, "OVER%d:", label);
  ptx_line(w, "}");
}

/* Chunks of a row in turns. */
static void write_chunks(ptx_writer *w, int phase, folds *f) {
  int label = begin_chunks(w, "%warp");
  write_chunk(w, phase, f, "%lane");
  for (int n = 0; n < f->count; n++) fold_lanes(w, f->v[n], &f->s[n]);
  if (f->count && w->shape->warps > 1) keep_states(w, f, "%chunk");
  end_chunks(w, label, w->shape->warps);
}

static void count_chunks(ptx_writer *w) {
  reg_name length = ptx_load_arg(w, WK__PTX_LENGTH, 0, 0);
  ptx_line(w, ".reg .b64 %%length, %%count64;");
  ptx_line(w, ".reg .b32 %%chunks;");
  ptx_line(w, "mov.b64 %%length, %s;", length.text);
  ptx_line(w, "add.s64 %%count64, %%length, %d;", WK__REDUCE_CHUNK - 1);
  ptx_line(w, "shr.u64 %%count64, %%count64, 12;");
  ptx_line(w, "cvt.u32.u64 %%chunks, %%count64;");
}

static void write_long_rows(ptx_writer *w) {
  count_chunks(w);
  ptx_prepare(w);
  for (int phase = 0, count = phases_of(w); phase < count; phase++) {
    emit_rows(w, phase);
    w->phase = phase;
    folds f = folds_of(w, phase);
    if (!f.count && !stores_elements(w, phase)) continue;
    write_chunks(w, phase, &f);
    if (f.count && w->shape->warps > 1) fold_chunks(w, &f);
    for (int n = 0; n < f.count; n++) finish(w, f.v[n], &f.s[n]);
  }
}

/* ---- columns: warp y is lane y of the order, lane x a row ---- */

/* The warps' states in halves, by shared memory; then every thread has its row's. */
static void fold_warps(ptx_writer *w, folds *f) {
  state other[MOST_FOLDS];
  ptx_line(w, "{");
  ptx_line(w, ".reg .b32 %%number;");
  ptx_line(w, ".reg .pred %%upper;");
  for (int n = 0; n < f->count; n++) other[n] = new_state(w, f->v[n]);
  reg_name mine = state_address(w, "%thread", f->word_count);
  move_states(w, f, false, f->s, mine.text);
  for (int half = 16; half > 0; half /= 2) {
    int skip = w->unique++;
    ptx_line(w, "bar.sync 0;");
    ptx_line(w, "setp.ge.u32 %%upper, %%warp, %d;", half);
    ptx_line(w, "@%%upper bra UPPER%d;", skip);
    ptx_line(w, "add.u32 %%number, %%thread, %d;", 32 * half);
    reg_name theirs = state_address(w, "%number", f->word_count);
    move_states(w, f, true, other, theirs.text);
    for (int n = 0; n < f->count; n++) take_other(w, f->v[n], &f->s[n], &other[n], "");
    move_states(w, f, false, f->s, mine.text);
    ptx_line(w, "UPPER%d:", skip);
  }
  ptx_line(w, "bar.sync 0;");
  reg_name first = state_address(w, "%lane32", f->word_count);
  move_states(w, f, true, f->s, first.text);
  ptx_line(w, "bar.sync 0;");
  ptx_line(w, "}");
}

/* The state of chunk %number of this thread's row, behind those of the warps. */
static reg_name column_address(ptx_writer *w, const char *number, const folds *f) {
  reg_name place = ptx_new(w, "b32");
  ptx_line(w, "shl.b32 %s, %s, 5;", place.text, number);
  ptx_line(w, "add.u32 %s, %s, %%lane32;", place.text, place.text);
  ptx_line(w, "add.u32 %s, %s, 1024;", place.text, place.text);
  return state_address(w, place.text, f->word_count);
}

/* Chunks pairwise, neighbours first, by each thread of warp 0 for its row; then all threads have them. */
static void fold_column(ptx_writer *w, folds *f) {
  int label = w->unique++;
  state other[MOST_FOLDS];
  for (int n = 0; n < f->count; n++) other[n] = new_state(w, f->v[n]);
  ptx_line(w, "{");
  ptx_line(w, ".reg .b32 %%step, %%i, %%j, %%pair;");
  ptx_line(w, ".reg .pred %%more;");
  ptx_line(w, "mov.u32 %%step, 1;");
  ptx_line(w, "setp.ne.u32 %%more, %%warp, 0;");
  ptx_line(w, "@%%more bra DONE%d;", label);
  ptx_line(w, "STEP%d:", label);
  ptx_line(w, "setp.ge.u32 %%more, %%step, %%chunks;");
  ptx_line(w, "@%%more bra DONE%d;", label);
  ptx_line(w, "shl.b32 %%pair, %%step, 1;");
  ptx_line(w, "mov.u32 %%i, 0;");
  ptx_line(w, "PAIR%d:", label);
  ptx_line(w, "add.u32 %%j, %%i, %%step;");
  ptx_line(w, "setp.ge.u32 %%more, %%j, %%chunks;");
  ptx_line(w, "@%%more bra NEXT%d;", label);
  reg_name a = column_address(w, "%i", f), b = column_address(w, "%j", f);
  move_states(w, f, true, f->s, a.text);
  move_states(w, f, true, other, b.text);
  for (int n = 0; n < f->count; n++) take_other(w, f->v[n], &f->s[n], &other[n], "");
  move_states(w, f, false, f->s, a.text);
  ptx_line(w, "add.u32 %%i, %%i, %%pair;");
  ptx_line(w, "bra PAIR%d;", label);
  ptx_line(w, "NEXT%d:", label);
  ptx_line(w, "mov.u32 %%step, %%pair;");
  ptx_line(w, "bra STEP%d;", label);
  ptx_line(w, "DONE%d:", label);
  ptx_line(w, "bar.sync 0;");
  ptx_line(w, "mov.u32 %%i, 0;");
  reg_name all = column_address(w, "%i", f);
  move_states(w, f, true, f->s, all.text);
  ptx_line(w, "bar.sync 0;");
  ptx_line(w, "}");
}

/* The warps' states of a chunk become its state. */
static void keep_column(ptx_writer *w, folds *f) {
  int skip = w->unique++;
  fold_warps(w, f);
  reg_name at = column_address(w, "%chunk", f);
  ptx_line(w, "setp.ne.u32 %%over, %%warp, 0;");
  ptx_line(w, "@%%over bra SKIP%d;", skip);
  move_states(w, f, false, f->s, at.text);
  ptx_line(w, "SKIP%d:", skip);
}

static void write_column_chunks(ptx_writer *w, int phase, folds *f) {
  int label = begin_chunks(w, "0");
  write_chunk(w, phase, f, "%warp64");
  if (f->count) keep_column(w, f);
  end_chunks(w, label, 1);
}

static void write_columns(ptx_writer *w) {
  count_chunks(w);
  ptx_line(w, ".reg .b64 %%warp64;");
  ptx_line(w, "cvt.u64.u32 %%warp64, %%warp;");
  ptx_prepare(w);
  for (int phase = 0, count = phases_of(w); phase < count; phase++) {
    emit_rows(w, phase);
    w->phase = phase;
    folds f = folds_of(w, phase);
    if (!f.count && !stores_elements(w, phase)) continue;
    write_column_chunks(w, phase, &f);
    if (f.count) fold_column(w, &f);
    for (int n = 0; n < f.count; n++) finish(w, f.v[n], &f.s[n]);
  }
}

/* ---- parts, and the whole of them ---- */

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

/* %scratch: the states of the row. */
static void find_scratch(ptx_writer *w, const folds *f) {
  reg_name scratch = ptx_load_arg(w, WK__PTX_SCRATCH, 0, 0), skipped = ptx_new(w, "b64");
  ptx_line(w, ".reg .b64 %%scratch;");
  ptx_line(w, "mul.lo.s64 %s, %%row, %%count64;", skipped.text);
  ptx_line(w, "mad.lo.s64 %%scratch, %s, %d, %s;", skipped.text, 8 * f->word_count, scratch.text);
}

/* Values of the row that elements need. */
static void emit_row_values(ptx_writer *w) {
  for (int v = 1; v < (int)w->nest->instr_count; v++) {
    const wk__instr *i = instr_of(w, v);
    if (!w->varies[v] && i->stage == 0 && !wk__loop_is_store(i->op) && !wk__loop_is_reduction(i->op)) ptx_emit(w, v);
  }
}

static void write_parts(ptx_writer *w) {
  folds f = folds_of(w, 0);
  w->unsupported |= !wk__ptx_is_reduced_once(w->nest);
  ptx_line(w, ".reg .b32 %%chunk;");
  ptx_line(w, ".reg .b64 %%chunk64;");
  count_chunks(w);
  ptx_line(w, "rem.u64 %%chunk64, %%row, %%count64;");
  ptx_line(w, "cvt.u32.u64 %%chunk, %%chunk64;");
  ptx_line(w, "div.u64 %%row, %%row, %%count64;");
  ptx_prepare(w);
  find_scratch(w, &f);
  emit_row_values(w);
  write_chunk(w, 0, &f, "%lane");
  for (int n = 0; n < f.count; n++) fold_lanes(w, f.v[n], &f.s[n]);
  keep_states(w, &f, "%chunk");
}

static void write_whole(ptx_writer *w) {
  folds f = folds_of(w, 0);
  count_chunks(w);
  ptx_prepare(w);
  find_scratch(w, &f);
  emit_rows(w, 0);
  fold_chunks(w, &f);
  for (int n = 0; n < f.count; n++) finish(w, f.v[n], &f.s[n]);
  for (int phase = 1, count = phases_of(w); phase < count; phase++) emit_rows(w, phase);
}

/* The scratch memory's state of the thread's row, chunk %chunk and lane %warp64 of the order: (chunks, lanes, rows). */
static reg_name lane_address(ptx_writer *w, const folds *f) {
  reg_name at = ptx_new(w, "b64"), line = ptx_new(w, "b64"), rows = ptx_load_arg(w, WK__PTX_COUNT, 0, 0),
           scratch = ptx_load_arg(w, WK__PTX_SCRATCH, 0, 0);
  ptx_line(w, "mul.wide.u32 %s, %%chunk, 32;", line.text);
  ptx_line(w, "add.s64 %s, %s, %%warp64;", line.text, line.text);
  ptx_line(w, "mad.lo.s64 %s, %s, %s, %%row;", at.text, line.text, rows.text);
  ptx_line(w, "mad.lo.s64 %s, %s, %d, %s;", at.text, at.text, 8 * f->word_count, scratch.text);
  return at;
}

/* A block has 32 rows, a chunk and 8 lanes of the order, a warp each. */
static void write_column_parts(ptx_writer *w) {
  folds f = folds_of(w, 0);
  int skip = w->unique++;
  w->unsupported |= !wk__ptx_is_reduced_once(w->nest);
  ptx_prepare(w);
  emit_row_values(w);
  write_chunk(w, 0, &f, "%warp64");
  reg_name at = lane_address(w, &f);
  ptx_line(w, "@!%%live bra SKIP%d;", skip);
  move_states(w, &f, false, f.s, at.text);
  ptx_line(w, "SKIP%d:", skip);
}

static void write_column_whole(ptx_writer *w) {
  folds f = folds_of(w, 0);
  count_chunks(w);
  ptx_line(w, ".reg .b64 %%warp64;");
  ptx_line(w, "cvt.u64.u32 %%warp64, %%warp;");
  ptx_prepare(w);
  emit_rows(w, 0);
  int label = begin_chunks(w, "0");
  reg_name at = lane_address(w, &f);
  w->scratch = true;
  move_states(w, &f, true, f.s, at.text);
  w->scratch = false;
  keep_column(w, &f);
  end_chunks(w, label, 1);
  fold_column(w, &f);
  for (int n = 0; n < f.count; n++) finish(w, f.v[n], &f.s[n]);
  for (int phase = 1, count = phases_of(w); phase < count; phase++) emit_rows(w, phase);
}

/* ---- the module ---- */

static bool is_blocks(const ptx_writer *w) {
  return w->shape->mode == WK__PTX_WHOLE || (!is_columns(w) && w->shape->warps > 1);
}

/* Which rows, chunk and lanes of the order a block has: %block becomes that of the rows. */
static void begin_column_parts(ptx_writer *w) {
  count_chunks(w);
  ptx_line(w, ".reg .b32 %%chunk, %%group;");
  ptx_line(w, ".reg .b64 %%warp64;");
  ptx_line(w, "and.b32 %%group, %%block, 3;");
  ptx_line(w, "shr.u32 %%block, %%block, 2;");
  ptx_line(w, "rem.u32 %%chunk, %%block, %%chunks;");
  ptx_line(w, "div.u32 %%block, %%block, %%chunks;");
  ptx_line(w, "mad.lo.u32 %%warp, %%group, 8, %%warp;");
  ptx_line(w, "cvt.u64.u32 %%warp64, %%warp;");
}

/* Threads beyond the last row have to be there when the block waits: they do its work and store nothing. */
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

/* %row: the number of what the thread, warp or block does. */
static void write_beginning(ptx_writer *w) {
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
  if (is_columns(w)) {
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
    bool alone = w->shape->mode == WK__PTX_SHORT_ROWS;
    if (has_rows(w) && !alone) ptx_line(w, "shr.u64 %%row, %%row, 5;");
    ptx_line(w, "setp.eq.u32 %%first, %s, 0;", alone ? "0" : "%lane32");
    ptx_line(w, "mov.u32 %%warp, 0;"); /* each has its row alone */
  }
  ptx_line(w, "setp.ge.u64 %%none, %%row, %s;", count.text);
  ptx_line(w, "@%%none ret;");
}

static bool shares_memory(const ptx_writer *w) {
  int mode = w->shape->mode;
  return mode == WK__PTX_COLUMNS || mode == WK__PTX_COLUMN_WHOLE ||
         ((mode == WK__PTX_ROWS || mode == WK__PTX_LONG_ROWS) && w->shape->warps > 1);
}

static int most_threads(const ptx_writer *w) {
  int mode = w->shape->mode;
  if (mode == WK__PTX_COLUMNS || mode == WK__PTX_COLUMN_WHOLE || mode == WK__PTX_WHOLE) return 1024;
  return w->shape->warps > 8 ? 32 * w->shape->warps : 256;
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
  for (int n = 0; n < wk__ptx_function_count; n++) {
    bool again = false;
    for (int m = 0; m < n; m++)
      again |= w->tables >> m & 1 &&
               strcmp(wk__ptx_functions[m].table, wk__ptx_functions[n].table ? wk__ptx_functions[n].table : "") == 0;
    if (w->tables >> n & 1 && !again) wk__string_append(text, wk__ptx_functions[n].table);
  }
  if (w->out->states && shares_memory(w)) wk__string_append(text, ".extern .shared .align 8 .b8 states[];\n");
  if (ptx_is_tiles(w)) /* rows of a tile with room for two elements more, at least 8 bytes */
    wk__string_printf(text, ".shared .align 8 .b8 tile[%d];\n", WK__PTX_TILE * (WK__PTX_TILE + 4) * 8);
  wk__string_printf(text, ".visible .entry wick(.param .align 8 .b8 args[%d])\n.maxntid %d, 1, 1\n{\n",
                    8 * (w->shape->together ? WK__PTX_TOGETHER_ARGS : (int)wk__max(w->out->arg_count, 1)),
                    most_threads(w));
}

static bool is_written(const wk__nest *nest) {
  for (int v = 1; v < (int)nest->instr_count; v++)
    if (wk__loop_is_scan(nest->instrs[v].op)) return false;
  return true;
}

static wk_status write_kernel(ptx_writer *w, const char *provenance) {
  wk__string text = {0};
  for (int v = 1; v < (int)w->nest->instr_count; v++) w->varies[v] = value_varies(w, v);
  write_beginning(w);
  if (!has_rows(w)) write_pointwise(w);
  if (w->shape->mode == WK__PTX_SHORT_ROWS) write_short_rows(w);
  if (w->shape->mode == WK__PTX_ROWS) write_rows(w);
  if (w->shape->mode == WK__PTX_LONG_ROWS) write_long_rows(w);
  if (w->shape->mode == WK__PTX_COLUMNS) write_columns(w);
  if (w->shape->mode == WK__PTX_PARTS) write_parts(w);
  if (w->shape->mode == WK__PTX_WHOLE) write_whole(w);
  if (w->shape->mode == WK__PTX_COLUMN_PARTS) write_column_parts(w);
  if (w->shape->mode == WK__PTX_COLUMN_WHOLE) write_column_whole(w);
  ptx_line(w, "ret;");
  if (w->unsupported) return WK_UNSUPPORTED;
  write_head(w, &text, provenance);
  if (w->body.text) wk__string_append(&text, w->body.text);
  wk__string_append(&text, "}\n");
  if (w->body.failed) text.failed = true;
  w->out->text = wk__string_take(&text);
  return w->out->text ? WK_OK : WK_OUT_OF_MEMORY;
}

wk_status wk__ptx_write(const wk__nest *nest, const wk__ptx_shape *shape, const char *provenance, wk__ptx_kernel *out) {
  ptx_writer w = {.nest = nest, .shape = shape, .out = out, .whole = shape->whole};
  w.scratch = shape->mode == WK__PTX_PARTS || shape->mode == WK__PTX_WHOLE || shape->mode == WK__PTX_COLUMN_PARTS;
  out->arg_count = out->states = 0;
  out->text = NULL;
  if (!is_written(nest)) return WK_UNSUPPORTED;
  w.expression_count = wk__nest_expressions(nest, w.expressions);
  w.varies = wk__alloc_zeroed((size_t)nest->instr_count * sizeof *w.varies);
  w.emitted = wk__alloc_zeroed((size_t)nest->instr_count * sizeof *w.emitted);
  wk_status status = w.varies && w.emitted ? write_kernel(&w, provenance) : WK_OUT_OF_MEMORY;
  wk__free(w.varies);
  wk__free(w.emitted);
  wk__string_release(&w.body);
  return status;
}
