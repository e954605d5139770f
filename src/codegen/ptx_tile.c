/* A tile kernel as PTX: the order of its instructions, and regions. (The module around them: ptx_tile_module.c.)
 *
 * Each value is made where it stands, in every layout that is asked for: one by its instruction, the others of it. So
 * what the program keeps out of a loop stays out of it. Test: tests/cuda/test_tiles.py. */
#include "codegen/ptx_tile_internal.h"

/* ---- values ---- */

static int emit_parameter(tile_writer *w, const wk__tile_instr *i) {
  reg_class c = class_of(&i->type);
  int out = new_registers(w, c, 1), index = (int)i->number.i;
  if (is_float_type(&i->type)) {
    int d = wk__ptx_arg_long(&w->text, index);
    if (c == CLASS_D) return d;
    int f = c == CLASS_H ? new_word(w) : out;
    SAY("cvt.rn.f32.f64 %%r%d, %%d%d", f, d);
    if (c == CLASS_H) narrow(w, &i->type, out, f);
    return out;
  }
  if (c == CLASS_D) return wk__ptx_arg_long(&w->text, index);
  int word = wk__ptx_arg_word(&w->text, index);
  if (c == CLASS_P)
    SAY("setp.ne.u32 %%p%d, %%r%d, 0", out, word);
  else
    out = word;
  return out;
}

static int emit_range(tile_writer *w, const wk__tile_instr *i, int at) {
  const layout *l = &w->layouts[at];
  int count = registers_of(l), out = wk__ptx_words(&w->text, count);
  for (int r = 0; r < count; r++)
    SAY("add.s32 %%r%d, %%r%d, %d", out + r, w->place[at], (int)i->number.i + position_of(l, r));
  return out;
}

static int emit_offset(tile_writer *w, wk__tile v, int at) {
  const wk__tile_instr *i = instr_at(w, v);
  int count = registers_of(&w->layouts[at]), out = new_registers(w, CLASS_D, count),
      size = wk__dtypes[i->type.dtype].size;
  int pointer = base_of(w, i->operands[0], at), index = base_of(w, i->operands[1], at);
  const wk__tile_type *t = type_at(w, i->operands[1]);
  for (int r = 0; r < count; r += w->free[v] ? 1 : 1 << w->step[v]) {
    int by = wk__ptx_long(&w->text);
    if (class_of(t) == CLASS_P)
      SAY("selp.b64 %%d%d, %d, 0, %%p%d", by, size, index + r);
    else if (class_of(t) == CLASS_D)
      SAY("mul.lo.s64 %%d%d, %%d%d, %d", by, index + r, size);
    else
      SAY("mul.wide.%c32 %%d%d, %%r%d, %d",
          wk__dtype_is_unsigned(t->dtype) && wk__dtypes[t->dtype].size == 4 ? 'u' : 's', by, index + r, size);
    SAY("add.s64 %%d%d, %%d%d, %%d%d", out + r, pointer + r, by);
  }
  return out;
}

/* Registers of the operand, by position: no lines but moves. */
static int emit_source(tile_writer *w, wk__tile v, int at) {
  const wk__tile_instr *i = instr_at(w, v);
  layout from = source_layout(w, v, &w->layouts[at]);
  int base = value_in(w, i->operands[0], layout_number(w, &from)), count = registers_of(&w->layouts[at]);
  int out = new_registers(w, class_of(&i->type), count);
  for (int r = 0; r < count; r++)
    move_register(w, class_of(&i->type), out + r,
                  base + register_at(&from, source_position(w, v, position_of(&w->layouts[at], r))));
  return out;
}

static int emit_cast_or_bits(tile_writer *w, const wk__tile_instr *i, int at) {
  int count = registers_of(&w->layouts[at]), out = new_registers(w, class_of(&i->type), count);
  int in = base_of(w, i->operands[0], at);
  const wk__tile_type *from = type_at(w, i->operands[0]);
  if (i->op == WK__TILE_cast && class_of(&i->type) == CLASS_H && from->dtype == WK_FLOAT32 && !from->pointer &&
      count > 1 && w->kind->capability >= 80) { /* two at once */
    for (int r = 0; r < count; r += 2) {
      int pair = new_word(w);
      SAY("cvt.rn.%s.f32 %%r%d, %%r%d, %%r%d", i->type.dtype == WK_FLOAT16 ? "f16x2" : "bf16x2", pair, in + r + 1,
          in + r);
      SAY("mov.b32 {%%h%d, %%h%d}, %%r%d", out + r, out + r + 1, pair);
    }
    return out;
  }
  for (int r = 0; r < count; r++)
    (i->op == WK__TILE_cast ? emit_cast : emit_bits)(w, type_at(w, i->operands[0]), &i->type, out + r, in + r);
  return out;
}

static int emit_value(tile_writer *w, wk__tile v, int at) {
  const wk__tile_instr *i = instr_at(w, v);
  int out;
  switch (i->op) {
    case WK__TILE_parameter:
      return emit_parameter(w, i);
    case WK__TILE_constant:
      out = new_registers(w, class_of(&i->type), registers_of(&w->layouts[at]));
      emit_constant(w, i, out, registers_of(&w->layouts[at]));
      return out;
    case WK__TILE_program_id:
      return wk__ptx_special(&w->text, ((const char *[]){"%ctaid.x", "%ctaid.y", "%ctaid.z"})[i->number.i]);
    case WK__TILE_num_programs:
      return wk__ptx_special(&w->text, ((const char *[]){"%nctaid.x", "%nctaid.y", "%nctaid.z"})[i->number.i]);
    case WK__TILE_range:
      return emit_range(w, i, at);
    case WK__TILE_map:
      return emit_map(w, v, at);
    case WK__TILE_exp2:
    case WK__TILE_log2:
      return emit_power(w, v, at);
    case WK__TILE_cast:
    case WK__TILE_bits:
      return emit_cast_or_bits(w, i, at);
    case WK__TILE_view:
    case WK__TILE_broadcast:
    case WK__TILE_permute:
      return emit_source(w, v, at);
    case WK__TILE_offset:
      return emit_offset(w, v, at);
    case WK__TILE_reduce:
      return emit_reduce(w, v, at);
    case WK__TILE_scan:
      return emit_scan(w, v, at);
    case WK__TILE_dot:
      return emit_dot(w, v, at);
    case WK__TILE_philox:
      return emit_philox(w, v, at);
    case WK__TILE_load:
      return emit_load(w, v, at);
    case WK__TILE_atomic:
      return emit_atomic(w, v, at);
    default:
      w->unsupported = true;
      return 0;
  }
}

static variant *variant_of(tile_writer *w, wk__tile v, int at) {
  for (int n = 0; n < w->variant_count[v]; n++)
    if (w->variants[v][n].layout == at) return &w->variants[v][n];
  return NULL;
}

static bool is_made_again(const tile_writer *w, wk__tile v) {
  int op = instr_at(w, v)->op;
  return w->free[v] || op == WK__TILE_view || op == WK__TILE_broadcast || op == WK__TILE_permute;
}

/* The other layouts of a value that is there in its own, or of several: 0 is none. */
static void make_others(tile_writer *w, const wk__tile *values, int count) {
  change changes[MAX_CHANGES];
  int n = 0;
  for (int i = 0; i < count; i++) {
    wk__tile v = values[i];
    if (!v || is_made_again(w, v) || !variant_of(w, v, w->own[v]) || !variant_of(w, v, w->own[v])->made) continue;
    for (int m = 0; m < w->variant_count[v]; m++) {
      variant *x = &w->variants[v][m];
      if (x->made || n == MAX_CHANGES) continue;
      x->base = new_registers(w, class_of(type_at(w, v)), registers_of(&w->layouts[x->layout]));
      x->made = true;
      changes[n++] = (change){type_at(w, v), w->own[v], value_in(w, v, w->own[v]), x->layout, x->base};
    }
  }
  if (n) convert(w, changes, n);
}

/* A carry that nothing but products of its own loop reads. */
static bool is_read_by_products(const tile_writer *w, wk__tile carry) {
  int depth = 0;
  wk__tile v = carry;
  while (instr_at(w, v)->op == WK__TILE_carry) v++;
  if (instr_at(w, v)->op != WK__TILE_for) return false;
  for (wk__tile u = v; u < w->k->count; u++) {
    const wk__tile_instr *i = instr_at(w, u);
    depth += (i->op == WK__TILE_for || i->op == WK__TILE_while || i->op == WK__TILE_if) - (i->op == WK__TILE_end);
    for (int o = 0; o < 4; o++)
      if (i->operands[o] == carry && !(i->op == WK__TILE_set && o == 0) && (i->op != WK__TILE_dot || depth != 1))
        return false;
  }
  return true;
}

/* A load whose first reader stands in the same region waits with its other layouts for that: loads that follow are
 * under way then, and two operands of a product share their barriers. */
static bool can_wait(const tile_writer *w, wk__tile v) {
  if (instr_at(w, v)->op == WK__TILE_carry) return is_read_by_products(w, v);
  if (instr_at(w, v)->op != WK__TILE_load) return false;
  for (wk__tile u = v + 1; u < w->k->count; u++) {
    const wk__tile_instr *i = instr_at(w, u);
    for (int o = 0; o < 4; o++)
      if (i->operands[o] == v) return i->op == WK__TILE_dot;
    if (wk__tile_ops[i->op].op_class == WK__TILE_REGION) return false;
  }
  return false;
}

static void make(tile_writer *w, wk__tile v) {
  for (int n = 0; n < w->variant_count[v]; n++) {
    variant *x = &w->variants[v][n];
    if (!is_made_again(w, v) && x->layout != w->own[v]) continue;
    x->base = emit_value(w, v, x->layout);
    x->made = true;
  }
  if (w->kept[v]) keep(w, v);
  if (!can_wait(w, v)) make_others(w, &v, 1);
}

/* ---- regions ---- */

typedef struct region {
  wk__tile begin;
  int top, end; /* labels; end: of the region, or where an `else` begins */
  bool divided;
} region;

static void emit_carry(tile_writer *w, wk__tile v) {
  const wk__tile_instr *i = instr_at(w, v);
  variant *own = variant_of(w, v, w->own[v]);
  int count = registers_of(&w->layouts[w->own[v]]);
  if (!own) return;
  own->base = new_registers(w, class_of(&i->type), count);
  own->made = true;
  if (!i->operands[0]) return;
  int in = value_in(w, i->operands[0], w->own[v]);
  for (int r = 0; r < count; r += 1 << w->step[v]) move_register(w, class_of(&i->type), own->base + r, in + r);
}

/* A carry's other layouts are made where it has a new value: at the top of its loop, and behind it. */
static void make_carries(tile_writer *w, wk__tile begin) {
  for (wk__tile v = begin - 1; v > 0 && instr_at(w, v)->op == WK__TILE_carry; v--) {
    for (int n = 0; n < w->variant_count[v]; n++)
      if (w->variants[v][n].layout != w->own[v]) w->variants[v][n].made = false;
    if (w->variant_count[v] && !can_wait(w, v)) make_others(w, &v, 1);
  }
}

/* Whose registers are not moved: a ring's, and those that a product has added to. */
static bool is_set_already(const tile_writer *w, wk__tile set) {
  const wk__tile_instr *i = instr_at(w, set);
  return in_ring(w, i->operands[0]) || w->sums_of[i->operands[1]] == i->operands[0];
}

/* All values first, then all carries. -> the last set */
static wk__tile emit_sets(tile_writer *w, wk__tile v) {
  wk__tile end = v;
  int *kept = NULL;
  while (instr_at(w, end + 1)->op == WK__TILE_set) end++;
  kept = wk__alloc_zeroed((end - v + 1) * sizeof *kept);
  if (!kept) {
    w->unsupported = true;
    return end;
  }
  for (int turn = 0; turn < 2; turn++)
    for (wk__tile s = v; s <= end; s++) {
      if (is_set_already(w, s)) continue;
      wk__tile to = instr_at(w, s)->operands[0], from = instr_at(w, s)->operands[1];
      reg_class c = class_of(type_at(w, to));
      int count = registers_of(&w->layouts[w->own[to]]);
      if (turn == 0) kept[s - v] = new_registers(w, c, count);
      int in = turn ? kept[s - v] : value_in(w, from, w->own[to]);
      int out = turn ? value_in(w, to, w->own[to]) : kept[s - v];
      for (int r = 0; r < count; r += 1 << w->step[to]) move_register(w, c, out + r, in + r);
    }
  wk__free(kept);
  return end;
}

static int scalar_of(tile_writer *w, wk__tile v) { return value_in(w, v, layout_number(w, &(layout){0})); }

static void leave_if_done(tile_writer *w, const wk__tile_instr *i, int index, int end) {
  int p = new_registers(w, CLASS_P, 1);
  bool up = instr_at(w, i->operands[2])->number.i > 0;
  char l = class_letter[class_of(&i->type)];
  SAY("setp.%s.s%d %%p%d, %%%c%d, %%%c%d;\n\t@%%p%d bra L%d", up ? "ge" : "le", l == 'd' ? 64 : 32, p, l, index, l,
      scalar_of(w, i->operands[1]), p, end);
}

static void begin_region(tile_writer *w, region *g, wk__tile v) {
  const wk__tile_instr *i = instr_at(w, v);
  staged_loop *s = staged_of(w, v);
  *g = (region){.begin = v, .top = w->text.labels++, .end = w->text.labels++};
  if (i->op == WK__TILE_if) {
    SAY("@!%%p%d bra L%d", scalar_of(w, i->operands[0]), g->end);
    return;
  }
  if (i->op == WK__TILE_for) {
    variant *x = variant_of(w, v, w->own[v]);
    if (!x) return;
    x->base = new_registers(w, class_of(&i->type), 1), x->made = true;
    move_register(w, class_of(&i->type), x->base, scalar_of(w, i->operands[0]));
  }
  wk__ptx_label(&w->text, g->top);
  if (s) begin_staged(w, s);
  make_carries(w, v);
  if (i->op == WK__TILE_for) leave_if_done(w, i, scalar_of(w, v), g->end);
}

static void end_region(tile_writer *w, region *g) {
  const wk__tile_instr *i = instr_at(w, g->begin);
  staged_loop *s = staged_of(w, g->begin);
  if (s) end_round(w, s);
  if (i->op == WK__TILE_for) {
    char l = class_letter[class_of(&i->type)];
    int index = scalar_of(w, g->begin);
    SAY("add.s%d %%%c%d, %%%c%d, %%%c%d", l == 'd' ? 64 : 32, l, index, l, index, l, scalar_of(w, i->operands[2]));
  }
  if (i->op != WK__TILE_if) SAY("bra L%d", g->top);
  wk__ptx_label(&w->text, g->end);
  if (s) end_staged(w, s);
  if (i->op == WK__TILE_if) make_carries(w, g->begin);
}

void emit_all(tile_writer *w) {
  region regions[WK__TILE_MAX_DEPTH];
  int depth = 0;
  for (wk__tile v = 1; v < w->k->count && !w->unsupported; v++) {
    const wk__tile_instr *i = instr_at(w, v);
    bool ends_round = i->op == WK__TILE_end && staged_of(w, regions[depth - 1].begin);
    if (wk__tile_ops[i->op].op_class == WK__TILE_REGION && i->op != WK__TILE_set && !ends_round) settle_all(w);
    switch (i->op) {
      case WK__TILE_carry:
        emit_carry(w, v);
        break;
      case WK__TILE_set:
        v = emit_sets(w, v);
        break;
      case WK__TILE_for:
      case WK__TILE_while:
      case WK__TILE_if:
        begin_region(w, &regions[depth++], v);
        break;
      case WK__TILE_test:
        SAY("@!%%p%d bra L%d", scalar_of(w, i->operands[0]), regions[depth - 1].end);
        break;
      case WK__TILE_else: {
        region *g = &regions[depth - 1];
        SAY("bra L%d", g->top);
        wk__ptx_label(&w->text, g->end);
        g->end = g->top;
        break;
      }
      case WK__TILE_end:
        end_region(w, &regions[--depth]);
        break;
      case WK__TILE_return:
        SAY("bra L%d", w->done);
        break;
      case WK__TILE_barrier:
        SAY("bar.sync 0");
        break;
      case WK__TILE_store:
        emit_store(w, v);
        break;
      case WK__TILE_dot:
        make_others(w, i->operands, 3);
        make(w, v);
        break;
      case WK__TILE_load:
        if (in_ring(w, v))
          emit_ring_load(w, v);
        else
          make(w, v);
        break;
      default:
        make(w, v);
    }
  }
}
