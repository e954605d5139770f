/* Operations on elements as lines of PTX: in the registers' own types, small floats through f32, rounded back.
 * Test: tests/cuda/test_tiles.py. */
#include <stdio.h>

#include "codegen/ptx_tile_internal.h"

int new_registers(tile_writer *w, reg_class c, int count) {
  int *next[] = {&w->text.words, &w->text.longs, &w->text.halves, &w->text.predicates};
  *next[c] += count;
  return *next[c] - count;
}

int registers_in(tile_writer *w, wk__tile v, int at) {
  for (int n = 0; n < w->variant_count[v]; n++)
    if (w->variants[v][n].layout == at && w->variants[v][n].made) return w->variants[v][n].base;
  w->unsupported = true; /* not asked for: a mistake of choose_layouts */
  return 0;
}

int value_in(tile_writer *w, wk__tile v, int at) {
  settle(w, v);
  return registers_in(w, v, at);
}

int base_of(tile_writer *w, wk__tile v, int at) {
  return v ? value_in(w, v, type_at(w, v)->ndim ? at : layout_number(w, &(layout){0})) : 0;
}

void move_register(tile_writer *w, reg_class c, int out, int in) {
  static const char *const types[] = {"b32", "b64", "b16", "pred"};
  SAY("mov.%s %%%c%d, %%%c%d", types[c], class_letter[c], out, class_letter[c], in);
}

/* ---- functions taken over as text ---- */

/* The function's text has names of its own for registers, %r and %d among them: arguments and result go through others,
 * which the module declares: %xa, %xb, %xr of 32 bits, %ya, %yb, %yr of 64. */
static void put(tile_writer *w, const char *body, int unique, bool wide_in, bool wide_out) {
  for (const char *p = body; *p; p++) {
    const char *end = strchr(p, '$');
    wk__string_append_n(&w->text.code, p, end ? end - p : (int64_t)strlen(p));
    if (!end) break;
    p = end + 1;
    if (*p == 'u')
      wk__string_printf(&w->text.code, "%d", unique);
    else
      wk__string_printf(&w->text.code, "%%%c%c", (*p == 'r' ? wide_out : wide_in) ? 'y' : 'x',
                        *p == 'r'   ? 'r'
                        : *p == '0' ? 'a'
                                    : 'b');
  }
}

void call_function(tile_writer *w, const char *name, const char *out, const char *a, const char *b) {
  const wk__ptx_function *f = NULL;
  for (int n = 0; n < wk__ptx_function_count && !f; n++)
    if (strcmp(wk__ptx_functions[n].name, name) == 0) {
      f = &wk__ptx_functions[n];
      if (f->table) w->tables |= UINT64_C(1) << n;
    }
  if (!f) {
    w->unsupported = true;
    return;
  }
  bool wide_in = a[1] == 'd', wide_out = out[1] == 'd';
  SAY("mov.b%d %%%ca, %s", wide_in ? 64 : 32, wide_in ? 'y' : 'x', a);
  if (b) SAY("mov.b%d %%%cb, %s", wide_in ? 64 : 32, wide_in ? 'y' : 'x', b);
  put(w, f->body, w->unique++, wide_in, wide_out);
  SAY("mov.b%d %s, %%%cr", wide_out ? 64 : 32, out, wide_out ? 'y' : 'x');
}

typedef struct reg_text {
  char text[16];
} reg_text;
static reg_text reg_of(char letter, int number) {
  reg_text r;
  (void)snprintf(r.text, sizeof r.text, "%%%c%d", letter, number);
  return r;
}

/* ---- small floats ---- */

int widen(tile_writer *w, const wk__tile_type *t, int reg) {
  if (t->pointer || (t->dtype != WK_FLOAT16 && t->dtype != WK_BFLOAT16)) return reg;
  int out = new_word(w);
  if (t->dtype == WK_FLOAT16)
    SAY("cvt.f32.f16 %%r%d, %%h%d", out, reg);
  else {
    int zero = wk__ptx_halves(&w->text, 1);
    SAY("mov.b16 %%h%d, 0;\n\tmov.b32 %%r%d, {%%h%d, %%h%d}", zero, out, zero, reg);
  }
  return out;
}

void narrow(tile_writer *w, const wk__tile_type *t, int out, int in) {
  if (t->dtype == WK_FLOAT16) {
    SAY("cvt.rn.f16.f32 %%h%d, %%r%d", out, in);
    return;
  }
  if (w->kind->capability >= 80) {
    int packed = new_word(w), other = wk__ptx_halves(&w->text, 1);
    SAY("cvt.rn.bf16x2.f32 %%r%d, %%r%d, %%r%d;\n\tmov.b32 {%%h%d, %%h%d}, %%r%d", packed, in, in, out, other, packed);
    return;
  }
  int bits = new_word(w), other = wk__ptx_halves(&w->text, 1);
  call_function(w, "f32_to_bf16", reg_of('r', bits).text, reg_of('r', in).text, NULL);
  SAY("mov.b32 {%%h%d, %%h%d}, %%r%d", out, other, bits);
}

void wrap_integer(tile_writer *w, const wk__tile_type *t, int reg) {
  int size = wk__dtypes[t->dtype].size;
  if (size < 4 && t->dtype != WK_BOOL)
    SAY("bfe.%c32 %%r%d, %%r%d, 0, %d", wk__dtype_is_unsigned(t->dtype) ? 'u' : 's', reg, reg, 8 * size);
}

/* ---- constants ---- */

void emit_constant(tile_writer *w, const wk__tile_instr *i, int base, int count) {
  union {
    double d;
    uint64_t bits;
  } wide = {wk__scalar_double(i->number)};
  unsigned narrow_bits = wk__ptx_bits((float)wide.d);
  for (int r = base; r < base + count; r++) {
    if (is_float_type(&i->type) && i->type.dtype == WK_FLOAT64)
      SAY("mov.b64 %%d%d, 0x%llX", r, (unsigned long long)wide.bits);
    else if (i->type.dtype == WK_FLOAT16 && !i->type.pointer)
      SAY("mov.b16 %%h%d, %d", r, wk__f32_to_f16((float)wide.d));
    else if (i->type.dtype == WK_BFLOAT16 && !i->type.pointer)
      SAY("mov.b16 %%h%d, %d", r, wk__f32_to_bf16((float)wide.d));
    else if (is_float_type(&i->type))
      SAY("mov.b32 %%r%d, 0x%08X", r, narrow_bits);
    else if (class_of(&i->type) == CLASS_P)
      SAY("setp.ne.u32 %%p%d, %d, 0", r, i->number.i != 0);
    else if (class_of(&i->type) == CLASS_D)
      SAY("mov.b64 %%d%d, %lld", r, (long long)i->number.i);
    else
      SAY("mov.b32 %%r%d, %d", r, (int32_t)i->number.i);
  }
}

/* ---- maps ---- */

/* What an operation is computed with: f32, f64, or an integer's type. */
static const char *suffix_of(const wk__tile_type *t) {
  if (t->pointer) return "u64";
  if (is_float_type(t)) return t->dtype == WK_FLOAT64 ? "f64" : "f32";
  bool is_unsigned = wk__dtype_is_unsigned(t->dtype) && wk__dtypes[t->dtype].size >= 4;
  if (wk__dtypes[t->dtype].size == 8) return is_unsigned ? "u64" : "s64";
  return is_unsigned ? "u32" : "s32";
}

static bool is_comparison(int op) { return wk__loop_ops[op].rule == WK__RULE_COMPARE; }

static void map_bools(tile_writer *w, int op, int out, int a, int b, int c) {
  const char *plain = NULL;
  int other;
  switch (op) {
    case WK__LOOP_add:
    case WK__LOOP_max:
    case WK__LOOP_bit_or:
    case WK__LOOP_reduce_max:
      plain = "or";
      break;
    case WK__LOOP_sub:
    case WK__LOOP_bit_xor:
    case WK__LOOP_ne:
      plain = "xor";
      break;
    case WK__LOOP_mul:
    case WK__LOOP_min:
    case WK__LOOP_bit_and:
      plain = "and";
      break;
    case WK__LOOP_logical_not:
    case WK__LOOP_bit_not:
      SAY("not.pred %%p%d, %%p%d", out, a);
      return;
    case WK__LOOP_eq:
      SAY("xor.pred %%p%d, %%p%d, %%p%d;\n\tnot.pred %%p%d, %%p%d", out, a, b, out, out);
      return;
    case WK__LOOP_where:
      other = new_registers(w, CLASS_P, 2);
      SAY("and.pred %%p%d, %%p%d, %%p%d;\n\tnot.pred %%p%d, %%p%d", other, a, b, other + 1, a);
      SAY("and.pred %%p%d, %%p%d, %%p%d;\n\tor.pred %%p%d, %%p%d, %%p%d", other + 1, other + 1, c, out, other,
          other + 1);
      return;
    default:
      w->unsupported = true;
      return;
  }
  SAY("%s.pred %%p%d, %%p%d, %%p%d", plain, out, a, b);
}

/* ((a > b) | (a != a)) ? a : b, as everywhere in wick. */
static void extreme(tile_writer *w, bool max, const char *t, char l, int out, int a, int b) {
  if (t[0] != 'f') {
    SAY("%s.%s %%%c%d, %%%c%d, %%%c%d", max ? "max" : "min", t, l, out, l, a, l, b);
    return;
  }
  if (w->approximates && t[1] == '3') { /* another zero of two, another NaN */
    SAY("%s.NaN.f32 %%r%d, %%r%d, %%r%d", max ? "max" : "min", out, a, b);
    return;
  }
  int p = new_registers(w, CLASS_P, 2);
  SAY("setp.nan.%s %%p%d, %%%c%d, %%%c%d", t, p + 1, l, a, l, a);
  SAY("setp.%s.or.%s %%p%d, %%%c%d, %%%c%d, %%p%d", max ? "gt" : "lt", t, p, l, a, l, b, p + 1);
  SAY("selp.b%s %%%c%d, %%%c%d, %%%c%d, %%p%d", t + 1, l, out, l, a, l, b, p);
}

static void sign(tile_writer *w, const char *t, char l, int out, int a) {
  static const char *const numbers[][3] = {{"0", "1", "-1"},
                                           {"0f00000000", "0f3F800000", "0fBF800000"},
                                           {"0d0000000000000000", "0d3FF0000000000000", "0dBFF0000000000000"}};
  const char *const *n = numbers[t[0] != 'f' ? 0 : t[1] == '3' ? 1 : 2];
  int p = new_registers(w, CLASS_P, 2);
  SAY("setp.gt.%s %%p%d, %%%c%d, %s;\n\tsetp.lt.%s %%p%d, %%%c%d, %s", t, p, l, a, n[0], t, p + 1, l, a, n[0]);
  SAY("selp.%s %%%c%d, %s, %s, %%p%d;\n\t@%%p%d mov.%s %%%c%d, %s", t, l, out, n[1], n[0], p, p + 1, t, l, out, n[2]);
}

static void shift(tile_writer *w, const wk__tile_type *t, bool left, char l, int out, int a, int b) {
  bool wide = class_of(t) == CLASS_D;
  int count = b;
  if (wide) {
    int most = wk__ptx_long(&w->text);
    count = new_word(w);
    SAY("min.u64 %%d%d, %%d%d, 64;\n\tcvt.u32.u64 %%r%d, %%d%d", most, b, count, most);
  }
  SAY("%s.%s %%%c%d, %%%c%d, %%r%d", left ? "shl" : "shr", left ? wide ? "b64" : "b32" : suffix_of(t), l, out, l, a,
      count);
}

static const char *const plain_ops[WK__LOOP_COUNT] = {
    [WK__LOOP_add] = "add",       [WK__LOOP_sub] = "sub",       [WK__LOOP_neg] = "neg",
    [WK__LOOP_abs] = "abs",       [WK__LOOP_bit_and] = "and",   [WK__LOOP_bit_or] = "or",
    [WK__LOOP_bit_xor] = "xor",   [WK__LOOP_bit_not] = "not",   [WK__LOOP_trunc_div] = "div",
    [WK__LOOP_fmod] = "rem",      [WK__LOOP_mul] = "mul",       [WK__LOOP_div] = "div",
    [WK__LOOP_sqrt] = "sqrt",     [WK__LOOP_fma] = "fma",       [WK__LOOP_floor] = "cvt.rmi",
    [WK__LOOP_ceil] = "cvt.rpi",  [WK__LOOP_trunc] = "cvt.rzi", [WK__LOOP_round] = "cvt.rni",
    [WK__LOOP_reciprocal] = "rcp"};

static void map_integers(tile_writer *w, int op, const wk__tile_type *t, int out, int a, int b) {
  const char *s = suffix_of(t);
  char l = class_letter[class_of(t)];
  bool bitwise = op == WK__LOOP_bit_and || op == WK__LOOP_bit_or || op == WK__LOOP_bit_xor || op == WK__LOOP_bit_not;
  int arity = wk__loop_ops[op].arity;
  if (is_comparison(op))
    SAY("setp.%s.%s %%p%d, %%%c%d, %%%c%d", wk__loop_ops[op].name, s, out, l, a, l, b);
  else if (op == WK__LOOP_logical_not)
    SAY("setp.eq.%s %%p%d, %%%c%d, 0", s, out, l, a);
  else if (op == WK__LOOP_isnan)
    SAY("setp.ne.u32 %%p%d, 0, 0", out);
  else if (op == WK__LOOP_max || op == WK__LOOP_min)
    extreme(w, op == WK__LOOP_max, s, l, out, a, b);
  else if (op == WK__LOOP_sign)
    sign(w, s, l, out, a);
  else if (op == WK__LOOP_shift_left || op == WK__LOOP_shift_right)
    shift(w, t, op == WK__LOOP_shift_left, l, out, a, b);
  else if (!plain_ops[op] || wk__loop_ops[op].rule == WK__RULE_FLOAT)
    w->unsupported = true;
  else if (arity == 1)
    SAY("%s.%c%s %%%c%d, %%%c%d", plain_ops[op], bitwise ? 'b' : 's', s + 1, l, out, l, a);
  else
    SAY("%s%s.%c%s %%%c%d, %%%c%d, %%%c%d", plain_ops[op], op == WK__LOOP_mul ? ".lo" : "", bitwise ? 'b' : s[0], s + 1,
        l, out, l, a, l, b);
}

static void map_floats(tile_writer *w, int op, const char *t, char l, int out, int a, int b, int c) {
  char name[40];
  bool rounds = op == WK__LOOP_floor || op == WK__LOOP_ceil || op == WK__LOOP_trunc || op == WK__LOOP_round;
  bool exact = op == WK__LOOP_neg || op == WK__LOOP_abs;
  if (is_comparison(op))
    SAY("setp.%s%s.%s %%p%d, %%%c%d, %%%c%d", wk__loop_ops[op].name, op == WK__LOOP_ne ? "u" : "", t, out, l, a, l, b);
  else if (op == WK__LOOP_logical_not)
    SAY("setp.eq.%s %%p%d, %%%c%d, %s", t, out, l, a, t[1] == '3' ? "0f00000000" : "0d0000000000000000");
  else if (op == WK__LOOP_isnan)
    SAY("setp.nan.%s %%p%d, %%%c%d, %%%c%d", t, out, l, a, l, a);
  else if (op == WK__LOOP_max || op == WK__LOOP_min)
    extreme(w, op == WK__LOOP_max, t, l, out, a, b);
  else if (op == WK__LOOP_sign)
    sign(w, t, l, out, a);
  else if (rounds)
    SAY("%s.%s.%s %%%c%d, %%%c%d", plain_ops[op], t, t, l, out, l, a);
  else if (op == WK__LOOP_exp && w->approximates && l == 'r')
    SAY("mul.rn.f32 %%r%d, %%r%d, 0f3FB8AA3B;\n\tex2.approx.ftz.f32 %%r%d, %%r%d", out, a, out, out);
  else if (op == WK__LOOP_rsqrt)
    SAY("sqrt.rn.%s %%%c%d, %%%c%d;\n\trcp.rn.%s %%%c%d, %%%c%d", t, l, out, l, a, t, l, out, l, out);
  else if (op == WK__LOOP_trunc_div)
    SAY("div.rn.%s %%%c%d, %%%c%d, %%%c%d;\n\tcvt.rzi.%s.%s %%%c%d, %%%c%d", t, l, out, l, a, l, b, t, t, l, out, l,
        out);
  else if (plain_ops[op] && op != WK__LOOP_fmod && wk__loop_ops[op].arity == 1)
    SAY("%s%s.%s %%%c%d, %%%c%d", plain_ops[op], exact ? "" : ".rn", t, l, out, l, a);
  else if (plain_ops[op] && op != WK__LOOP_fmod && wk__loop_ops[op].arity == 2)
    SAY("%s.rn.%s %%%c%d, %%%c%d, %%%c%d", plain_ops[op], t, l, out, l, a, l, b);
  else if (op == WK__LOOP_fma)
    SAY("fma.rn.%s %%%c%d, %%%c%d, %%%c%d, %%%c%d", t, l, out, l, a, l, b, l, c);
  else {
    (void)snprintf(name, sizeof name, "%s_%s", t, wk__loop_ops[op].name);
    call_function(w, name, reg_of(l, out).text, reg_of(l, a).text,
                  wk__loop_ops[op].arity > 1 ? reg_of(l, b).text : NULL);
  }
}

/* One element; t: of the operands. A comparison's `out` is a predicate. */
static void map_one(tile_writer *w, int op, const wk__tile_type *t, int out, int a, int b, int c) {
  if (!t->pointer && t->dtype == WK_BOOL) {
    map_bools(w, op, out, a, b, c);
  } else if (!is_float_type(t)) {
    map_integers(w, op, t, out, a, b);
    if (!is_comparison(op) && wk__loop_ops[op].rule != WK__RULE_TEST) wrap_integer(w, t, out);
  } else if (class_of(t) == CLASS_H) {
    bool truth = is_comparison(op) || wk__loop_ops[op].rule == WK__RULE_TEST;
    int arity = wk__loop_ops[op].arity, wide = truth ? out : new_word(w);
    a = widen(w, t, a);
    if (arity > 1) b = widen(w, t, b);
    if (arity > 2) c = widen(w, t, c);
    map_floats(w, op, "f32", 'r', wide, a, b, c);
    if (!truth) narrow(w, t, out, wide);
  } else {
    map_floats(w, op, suffix_of(t), class_letter[class_of(t)], out, a, b, c);
  }
}

void combine(tile_writer *w, int op, const wk__tile_type *t, int out, int a, int b) { map_one(w, op, t, out, a, b, 0); }

int emit_map(tile_writer *w, wk__tile v, int at) {
  const wk__tile_instr *i = instr_at(w, v);
  static const char *const types[] = {"b32", "b64", "b16"};
  int in[3], count = registers_of(&w->layouts[at]), out = new_registers(w, class_of(&i->type), count);
  for (int o = 0; o < 3; o++) in[o] = base_of(w, i->operands[o], at);
  for (int r = 0; r < count; r++) {
    reg_class c = class_of(&i->type);
    if (i->map == WK__LOOP_where && c != CLASS_P)
      SAY("selp.%s %%%c%d, %%%c%d, %%%c%d, %%p%d", types[c], class_letter[c], out + r, class_letter[c], in[1] + r,
          class_letter[c], in[2] + r, in[0] + r);
    else
      map_one(w, i->map, type_at(w, i->operands[0]), out + r, in[0] + r, in[1] + r, in[2] + r);
  }
  return out;
}

/* ---- casts ---- */

void emit_cast(tile_writer *w, const wk__tile_type *from, const wk__tile_type *to, int out, int in) {
  reg_class a = class_of(from), b = class_of(to);
  bool from_float = is_float_type(from), to_float = is_float_type(to);
  if (from->dtype == to->dtype && from->pointer == to->pointer) {
    move_register(w, b, out, in);
    return;
  }
  if (a == CLASS_H) in = widen(w, from, in), a = CLASS_R;
  const char *s = a == CLASS_P ? "" : suffix_of(from), *t = b == CLASS_P ? "" : b == CLASS_H ? "f32" : suffix_of(to);
  int wide = b == CLASS_H ? new_word(w) : out;
  char l = class_letter[b == CLASS_H ? CLASS_R : b];
  if (b == CLASS_P) {
    const char *zero = !from_float ? "0" : a == CLASS_D ? "0d0000000000000000" : "0f00000000";
    SAY("setp.ne%s.%s %%p%d, %%%c%d, %s", from_float ? "u" : "", s, out, class_letter[a], in, zero);
    return;
  }
  if (a == CLASS_P) {
    const char *one = !to_float ? "1" : b == CLASS_D ? "0d3FF0000000000000" : "0f3F800000";
    const char *zero = !to_float ? "0" : b == CLASS_D ? "0d0000000000000000" : "0f00000000";
    SAY("selp.%s %%%c%d, %s, %s, %%p%d", t, l, wide, one, zero, in);
  } else if (from_float && to_float) {
    if (a == b || (a == CLASS_R && b == CLASS_H))
      SAY("mov.b%s %%%c%d, %%%c%d", t + 1, l, wide, class_letter[a], in);
    else
      SAY("cvt%s.%s.%s %%%c%d, %%%c%d", b == CLASS_D ? "" : ".rn", t, s, l, wide, class_letter[a], in);
  } else if (from_float) { /* through f64 and i64, as the engine does, then as many bits as there are */
    int d = in, whole = b == CLASS_D ? out : wk__ptx_long(&w->text);
    if (a == CLASS_R) {
      d = wk__ptx_long(&w->text);
      SAY("cvt.f64.f32 %%d%d, %%r%d", d, in);
    }
    call_function(w, "f64_to_i64", reg_of('d', whole).text, reg_of('d', d).text, NULL);
    if (b != CLASS_D) SAY("cvt.u32.u64 %%r%d, %%d%d", out, whole);
    if (b != CLASS_D) wrap_integer(w, to, out);
  } else if (to_float) {
    SAY("cvt.rn.%s.%s %%%c%d, %%%c%d", t, s, l, wide, class_letter[a], in);
  } else if (a == CLASS_R && b == CLASS_D) {
    SAY("cvt.%s.%s %%d%d, %%r%d", s[0] == 'u' ? "u64" : "s64", s, out, in);
  } else if (a == CLASS_D && b == CLASS_R) {
    SAY("cvt.u32.u64 %%r%d, %%d%d", out, in);
    wrap_integer(w, to, out);
  } else {
    move_register(w, b, out, in);
    if (b == CLASS_R) wrap_integer(w, to, out);
  }
  if (b == CLASS_H) narrow(w, to, out, wide);
}

void emit_bits(tile_writer *w, const wk__tile_type *from, const wk__tile_type *to, int out, int in) {
  reg_class a = class_of(from), b = class_of(to);
  if (a == b && a != CLASS_P) {
    move_register(w, b, out, in);
    if (b == CLASS_R) wrap_integer(w, to, out);
  } else if (a == CLASS_H && b == CLASS_R) {
    SAY("cvt.u32.u16 %%r%d, %%h%d", out, in);
    wrap_integer(w, to, out);
  } else if (a == CLASS_R && b == CLASS_H) {
    SAY("cvt.u16.u32 %%h%d, %%r%d", out, in);
  } else {
    w->unsupported = true;
  }
}

/* ---- exp2, log2: as cpu/tile/run.c has them ---- */

/* exp's polynomial, since exp of what is left takes no part of it away (|x - n| ln 2 log2(e) stays below 1/2). */
static void exp2_f32(tile_writer *w, int out, int x) {
  static const unsigned polynomial[] = {0x3C091DEF, 0x3D2AAA2F, 0x3E2AAA47, 0x3F000000, 0x3F800000, 0x3F800000};
  if (w->approximates) {
    SAY("ex2.approx.ftz.f32 %%r%d, %%r%d", out, x);
    return;
  }
  int c = new_word(w), shifted = new_word(w), rest = new_word(w), p = new_word(w), above = new_registers(w, CLASS_P, 1);
  SAY("setp.gt.f32 %%p%d, %%r%d, 0f43010000;\n\tselp.f32 %%r%d, 0f43010000, %%r%d, %%p%d", above, x, c, x, above);
  SAY("setp.lt.f32 %%p%d, %%r%d, 0fC3200000;\n\tselp.f32 %%r%d, 0fC3200000, %%r%d, %%p%d", above, c, c, c, above);
  SAY("add.rn.f32 %%r%d, %%r%d, 0f4B400000;\n\tsub.rn.f32 %%r%d, %%r%d, 0f4B400000", shifted, c, rest, shifted);
  SAY("sub.rn.f32 %%r%d, %%r%d, %%r%d;\n\tmul.rn.f32 %%r%d, %%r%d, 0f3F317218", rest, c, rest, rest, rest);
  SAY("fma.rn.f32 %%r%d, %%r%d, 0f3AB6DA6F, 0f3C091DEF", p, rest);
  for (size_t n = 1; n < WK_COUNT(polynomial); n++)
    SAY("fma.rn.f32 %%r%d, %%r%d, %%r%d, 0f%08X", p, p, rest, polynomial[n]);
  int whole = WITH("sub.s32", shifted, 0x4B400000), first = WITH("shr.s32", whole, 1),
      second = TWO("sub.s32", whole, first);
  first = WITH("add.s32", WITH("shl.b32", first, 23), 0x3F800000),
  second = WITH("add.s32", WITH("shl.b32", second, 23), 0x3F800000);
  SAY("mul.rn.f32 %%r%d, %%r%d, %%r%d;\n\tmul.rn.f32 %%r%d, %%r%d, %%r%d", p, p, first, out, p, second);
}

static void exp2_f64(tile_writer *w, int out, int x) {
  wk__ptx_text *t = &w->text;
  int c = wk__ptx_long(t), n = wk__ptx_long(t), rest = wk__ptx_long(t), whole = wk__ptx_long(t),
      first = wk__ptx_long(t);
  int p = new_registers(w, CLASS_P, 1);
  SAY("setp.gt.f64 %%p%d, %%d%d, 0d4090040000000000;\n\tselp.f64 %%d%d, 0d4090040000000000, %%d%d, %%p%d", p, x, c, x,
      p);
  SAY("setp.lt.f64 %%p%d, %%d%d, 0dC091300000000000;\n\tselp.f64 %%d%d, 0dC091300000000000, %%d%d, %%p%d", p, c, c, c,
      p);
  SAY("cvt.rni.f64.f64 %%d%d, %%d%d;\n\tsub.rn.f64 %%d%d, %%d%d, %%d%d", n, c, rest, c, n);
  SAY("mul.rn.f64 %%d%d, %%d%d, 0d3FE62E42FEFA39EF", rest, rest);
  call_function(w, "f64_exp", reg_of('d', rest).text, reg_of('d', rest).text, NULL);
  SAY("cvt.rzi.s64.f64 %%d%d, %%d%d;\n\tshr.s64 %%d%d, %%d%d, 1;\n\tsub.s64 %%d%d, %%d%d, %%d%d", whole, n, first,
      whole, whole, whole, first);
  SAY("add.s64 %%d%d, %%d%d, 1023;\n\tshl.b64 %%d%d, %%d%d, 52", first, first, first, first);
  SAY("add.s64 %%d%d, %%d%d, 1023;\n\tshl.b64 %%d%d, %%d%d, 52", whole, whole, whole, whole);
  SAY("mul.rn.f64 %%d%d, %%d%d, %%d%d;\n\tmul.rn.f64 %%d%d, %%d%d, %%d%d", rest, rest, first, out, rest, whole);
}

int emit_power(tile_writer *w, wk__tile v, int at) {
  const wk__tile_instr *i = instr_at(w, v);
  int count = registers_of(&w->layouts[at]), in = base_of(w, i->operands[0], at);
  int out = new_registers(w, class_of(&i->type), count);
  for (int r = 0; r < count; r++) {
    bool wide = i->type.dtype == WK_FLOAT64, half = class_of(&i->type) == CLASS_H;
    int x = widen(w, &i->type, in + r), result = half ? new_word(w) : out + r;
    char l = wide ? 'd' : 'r';
    if (i->op == WK__TILE_exp2 && wide)
      exp2_f64(w, result, x);
    else if (i->op == WK__TILE_exp2)
      exp2_f32(w, result, x);
    else {
      call_function(w, wide ? "f64_log" : "f32_log", reg_of(l, result).text, reg_of(l, x).text, NULL);
      if (wide)
        SAY("mul.rn.f64 %%d%d, %%d%d, 0d3FF71547652B82FE", result, result);
      else
        SAY("mul.rn.f32 %%r%d, %%r%d, 0f%08X", result, result, wk__ptx_bits(0x1.715476p0f));
    }
    if (half) narrow(w, &i->type, out + r, result);
  }
  return out;
}

/* ---- random numbers: Philox 4x32-10 ---- */

int emit_philox(tile_writer *w, wk__tile v, int at) {
  const wk__tile_instr *i = instr_at(w, v);
  int count = registers_of(&w->layouts[at]), out = new_registers(w, CLASS_R, count);
  int seed = base_of(w, i->operands[0], at), offset = base_of(w, i->operands[1], at);
  for (int r = 0; r < count; r++) {
    int c[4], key[2];
    for (int n = 0; n < 4; n++) c[n] = new_word(w);
    for (int n = 0; n < 2; n++) key[n] = new_word(w);
    SAY("mov.b32 %%r%d, %%r%d;\n\tmov.b32 %%r%d, 0;\n\tmov.b32 %%r%d, 0;\n\tmov.b32 %%r%d, 0", c[0], offset + r, c[1],
        c[2], c[3]);
    SAY("mov.b64 {%%r%d, %%r%d}, %%d%d", key[0], key[1], seed + r);
    for (int round = 0; round < 10; round++) {
      int p = new_word(w), q = new_word(w), p_low = new_word(w), q_low = new_word(w);
      SAY("mul.hi.u32 %%r%d, %%r%d, 0xD2511F53;\n\tmul.lo.u32 %%r%d, %%r%d, 0xD2511F53", p, c[0], p_low, c[0]);
      SAY("mul.hi.u32 %%r%d, %%r%d, 0xCD9E8D57;\n\tmul.lo.u32 %%r%d, %%r%d, 0xCD9E8D57", q, c[2], q_low, c[2]);
      int next0 = TWO("xor.b32", TWO("xor.b32", q, c[1]), key[0]),
          next2 = TWO("xor.b32", TWO("xor.b32", p, c[3]), key[1]);
      c[0] = next0, c[1] = q_low, c[2] = next2, c[3] = p_low;
      if (round < 9) {
        int k0 = new_word(w), k1 = new_word(w);
        SAY("add.u32 %%r%d, %%r%d, 0x9E3779B9;\n\tadd.u32 %%r%d, %%r%d, 0xBB67AE85", k0, key[0], k1, key[1]);
        key[0] = k0, key[1] = k1;
      }
    }
    SAY("mov.b32 %%r%d, %%r%d", out + r, c[i->number.i]);
  }
  return out;
}
