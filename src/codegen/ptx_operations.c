/* Operations of the loop IR as lines of PTX. In: registers. Out: lines. Test: tests/cuda/test_ptx.py. */
#include "codegen/ptx_internal.h"

#include <stdio.h>

static const char *suffix(int compute) {
  return compute == WK_FLOAT32 ? "f32" : compute == WK_FLOAT64 ? "f64" : compute == WK_INT64 ? "s64" : "pred";
}
static bool is_float(int compute) { return compute == WK_FLOAT32 || compute == WK_FLOAT64; }

/* ---- functions ---- */

static const wk__ptx_function *find(const char *name, int *out_number) {
  for (int i = 0; i < wk__ptx_function_count; i++)
    if (strcmp(wk__ptx_functions[i].name, name) == 0) return *out_number = i, &wk__ptx_functions[i];
  return NULL;
}

void ptx_call(ptx_writer *w, const char *name, const char *out, const char *a, const char *b) {
  int number;
  const wk__ptx_function *f = find(name, &number);
  if (!f) {
    w->unsupported = true;
    return;
  }
  if (f->table) w->tables |= UINT64_C(1) << number;
  int unique = w->unique++;
  for (const char *p = f->body; *p; p++) {
    const char *end = strchr(p, '$');
    if (!end) {
      wk__string_append(&w->body, p);
      break;
    }
    wk__string_append_n(&w->body, p, end - p);
    p = end + 1;
    if (*p == 'u')
      wk__string_printf(&w->body, "%d", unique);
    else
      wk__string_append(&w->body, *p == 'r' ? out : *p == '0' ? a : b);
  }
}

static void call_of(ptx_writer *w, int compute, int op, const char *out, const char *a, const char *b) {
  char name[NAME];
  snprintf(name, sizeof name, "%s_%s", compute == WK_INT64 ? "i64" : suffix(compute), wk__loop_ops[op].name);
  ptx_call(w, name, out, a, b);
}

bool wk__ptx_calls_functions(const wk__nest *nest) {
  char name[NAME];
  int number;
  for (int v = 1; v < (int)nest->instr_count; v++) {
    const wk__instr *i = &nest->instrs[v];
    snprintf(name, sizeof name, "%s_%s", suffix(i->dtype), wk__loop_ops[i->op].name);
    if (is_float(i->dtype) && find(name, &number)) return true;
  }
  return false;
}

/* ---- predicates are bools ---- */

static void bool_operation(ptx_writer *w, int op, const char *o, const char *a, const char *b) {
  static const struct {
    uint8_t op;
    const char *pattern; /* N: not */
  } rows[] = {{WK__LOOP_add, "or"},      {WK__LOOP_max, "or"},       {WK__LOOP_bit_or, "or"},     {WK__LOOP_sub, "xor"},
              {WK__LOOP_bit_xor, "xor"}, {WK__LOOP_ne, "xor"},       {WK__LOOP_mul, "and"},       {WK__LOOP_min, "and"},
              {WK__LOOP_bit_and, "and"}, {WK__LOOP_shift_left, "N"}, {WK__LOOP_shift_right, "N"}, {WK__LOOP_gt, "N"},
              {WK__LOOP_pow, "O"},       {WK__LOOP_ge, "O"},         {WK__LOOP_eq, "E"},          {WK__LOOP_lt, "L"},
              {WK__LOOP_le, "M"}};
  if (op == WK__LOOP_logical_not || op == WK__LOOP_bit_not) {
    ptx_line(w, "not.pred %s, %s;", o, a);
    return;
  }
  if (op == WK__LOOP_sign || op == WK__LOOP_abs) {
    ptx_line(w, "mov.pred %s, %s;", o, a);
    return;
  }
  for (size_t i = 0; i < WK_COUNT(rows); i++) {
    if (rows[i].op != op) continue;
    char how = rows[i].pattern[0];
    if (how >= 'a') {
      ptx_line(w, "%s.pred %s, %s, %s;", rows[i].pattern, o, a, b);
      return;
    }
    bool negates_a = how == 'L' || how == 'M';
    if (how == 'E') {
      ptx_line(w, "xor.pred %s, %s, %s;", o, a, b);
      ptx_line(w, "not.pred %s, %s;", o, o);
      return;
    }
    reg_name not_one = ptx_new(w, "pred");
    ptx_line(w, "not.pred %s, %s;", not_one.text, negates_a ? a : b);
    ptx_line(w, "%s.pred %s, %s, %s;", how == 'N' || how == 'L' ? "and" : "or", o, negates_a ? not_one.text : a,
             negates_a ? b : not_one.text);
    return;
  }
  if (op == WK__LOOP_isnan)
    ptx_line(w, "setp.ne.u32 %s, 0, 0;", o);
  else
    w->unsupported = true;
}

/* ---- numbers ---- */

/* ((a > b) | (a != a)) ? a : b, so that of zeros the second stays, as everywhere in wick. */
static void extreme(ptx_writer *w, bool max, int compute, const char *o, const char *a, const char *b) {
  const char *t = suffix(compute);
  reg_name p = ptx_new(w, "pred"), q = ptx_new(w, "pred");
  if (!is_float(compute)) {
    ptx_line(w, "%s.s64 %s, %s, %s;", max ? "max" : "min", o, a, b);
    return;
  }
  ptx_line(w, "setp.nan.%s %s, %s, %s;", t, q.text, a, a);
  ptx_line(w, "setp.%s.or.%s %s, %s, %s, %s;", max ? "gt" : "lt", t, p.text, a, b, q.text);
  ptx_line(w, "selp.b%s %s, %s, %s, %s;", t + 1, o, a, b, p.text);
}

static void comparison(ptx_writer *w, int op, int compute, const char *o, const char *a, const char *b) {
  const char *name = wk__loop_ops[op].name;
  bool unordered = is_float(compute) && op == WK__LOOP_ne;
  ptx_line(w, "setp.%s%s.%s %s, %s, %s;", name, unordered ? "u" : "", suffix(compute), o, a, b);
}

/* 1, 0 or -1, of a NaN 0. */
static void sign(ptx_writer *w, int compute, const char *o, const char *a) {
  const char *t = suffix(compute), *zero = compute == WK_INT64     ? "0"
                                           : compute == WK_FLOAT32 ? "0f00000000"
                                                                   : "0d0000000000000000";
  const char *one = compute == WK_INT64 ? "1" : compute == WK_FLOAT32 ? "0f3F800000" : "0d3FF0000000000000";
  const char *less = compute == WK_INT64 ? "-1" : compute == WK_FLOAT32 ? "0fBF800000" : "0dBFF0000000000000";
  reg_name above = ptx_new(w, "pred"), below = ptx_new(w, "pred");
  ptx_line(w, "setp.gt.%s %s, %s, %s;", t, above.text, a, zero);
  ptx_line(w, "setp.lt.%s %s, %s, %s;", t, below.text, a, zero);
  ptx_line(w, "selp.%s %s, %s, %s, %s;", compute == WK_INT64 ? "b64" : t, o, one, zero, above.text);
  ptx_line(w, "@%s mov.%s %s, %s;", below.text, compute == WK_INT64 ? "b64" : t, o, less);
}

static void shift(ptx_writer *w, bool left, const char *o, const char *a, const char *b) {
  reg_name count = ptx_new(w, "b32"), most = ptx_new(w, "b64");
  ptx_line(w, "min.u64 %s, %s, 64;", most.text, b);
  ptx_line(w, "cvt.u32.u64 %s, %s;", count.text, most.text);
  ptx_line(w, "%s %s, %s, %s;", left ? "shl.b64" : "shr.s64", o, a, count.text);
}

/* By zero: 0, and a fault of its kind. */
static void note_zero_division(ptx_writer *w, const char *divisor, int v, int k) {
  reg_name zero = ptx_new(w, "pred"), faults = ptx_load_arg(w, WK__PTX_FAULTS, 0, 0), guard = ptx_value_guard(w, v, k);
  ptx_line(w, "setp.eq.s64 %s, %s, 0;", zero.text, divisor);
  if (guard.text[0])
    ptx_line(w, "and.pred %s, %s, %.*s;", zero.text, zero.text, (int)strlen(guard.text) - 2, guard.text + 1);
  ptx_line(w, "@%s red.global.or.b32 [%s], 2;", zero.text, faults.text);
}

static bool divides(int op) {
  return op == WK__LOOP_floor_div || op == WK__LOOP_trunc_div || op == WK__LOOP_mod || op == WK__LOOP_fmod;
}

static void integer_operation(ptx_writer *w, int op, const char *o, const char *a, const char *b) {
  static const char *const plain[WK__LOOP_COUNT] = {
      [WK__LOOP_neg] = "neg.s64",     [WK__LOOP_abs] = "abs.s64",   [WK__LOOP_bit_not] = "not.b64",
      [WK__LOOP_add] = "add.s64",     [WK__LOOP_sub] = "sub.s64",   [WK__LOOP_mul] = "mul.lo.s64",
      [WK__LOOP_bit_and] = "and.b64", [WK__LOOP_bit_or] = "or.b64", [WK__LOOP_bit_xor] = "xor.b64",
  };
  if (plain[op] && wk__loop_ops[op].arity == 1)
    ptx_line(w, "%s %s, %s;", plain[op], o, a);
  else if (plain[op])
    ptx_line(w, "%s %s, %s, %s;", plain[op], o, a, b);
  else if (op == WK__LOOP_max || op == WK__LOOP_min)
    extreme(w, op == WK__LOOP_max, WK_INT64, o, a, b);
  else if (op == WK__LOOP_sign)
    sign(w, WK_INT64, o, a);
  else if (op == WK__LOOP_logical_not)
    ptx_line(w, "setp.eq.s64 %s, %s, 0;", o, a);
  else if (op == WK__LOOP_isnan)
    ptx_line(w, "setp.ne.u32 %s, 0, 0;", o);
  else if (op == WK__LOOP_shift_left || op == WK__LOOP_shift_right)
    shift(w, op == WK__LOOP_shift_left, o, a, b);
  else if (wk__loop_ops[op].rule == WK__RULE_COMPARE)
    comparison(w, op, WK_INT64, o, a, b);
  else
    call_of(w, WK_INT64, op, o, a, b);
}

static void float_operation(ptx_writer *w, int op, int compute, const char *o, const char *a, const char *b,
                            const char *c) {
  static const char *const plain[WK__LOOP_COUNT] = {
      [WK__LOOP_neg] = "neg",       [WK__LOOP_abs] = "abs",      [WK__LOOP_sqrt] = "sqrt.rn",
      [WK__LOOP_add] = "add.rn",    [WK__LOOP_sub] = "sub.rn",   [WK__LOOP_mul] = "mul.rn",
      [WK__LOOP_div] = "div.rn",    [WK__LOOP_fma] = "fma.rn",   [WK__LOOP_reciprocal] = "rcp.rn",
      [WK__LOOP_floor] = "cvt.rmi", [WK__LOOP_ceil] = "cvt.rpi", [WK__LOOP_trunc] = "cvt.rzi",
      [WK__LOOP_round] = "cvt.rni",
  };
  const char *t = suffix(compute);
  bool rounds = op == WK__LOOP_floor || op == WK__LOOP_ceil || op == WK__LOOP_trunc || op == WK__LOOP_round;
  if (rounds)
    ptx_line(w, "%s.%s.%s %s, %s;", plain[op], t, t, o, a);
  else if (plain[op] && wk__loop_ops[op].arity == 1)
    ptx_line(w, "%s.%s %s, %s;", plain[op], t, o, a);
  else if (plain[op] && wk__loop_ops[op].arity == 2)
    ptx_line(w, "%s.%s %s, %s, %s;", plain[op], t, o, a, b);
  else if (plain[op])
    ptx_line(w, "%s.%s %s, %s, %s, %s;", plain[op], t, o, a, b, c);
  else if (op == WK__LOOP_rsqrt) {
    ptx_line(w, "sqrt.rn.%s %s, %s;", t, o, a);
    ptx_line(w, "rcp.rn.%s %s, %s;", t, o, o);
  } else if (op == WK__LOOP_trunc_div) {
    ptx_line(w, "div.rn.%s %s, %s, %s;", t, o, a, b);
    ptx_line(w, "cvt.rzi.%s.%s %s, %s;", t, t, o, o);
  } else if (op == WK__LOOP_max || op == WK__LOOP_min)
    extreme(w, op == WK__LOOP_max, compute, o, a, b);
  else if (op == WK__LOOP_sign)
    sign(w, compute, o, a);
  else if (op == WK__LOOP_logical_not)
    ptx_line(w, "setp.eq.%s %s, %s, %s;", t, o, a, compute == WK_FLOAT32 ? "0f00000000" : "0d0000000000000000");
  else if (op == WK__LOOP_isnan)
    ptx_line(w, "setp.nan.%s %s, %s, %s;", t, o, a, a);
  else if (wk__loop_ops[op].rule == WK__RULE_COMPARE)
    comparison(w, op, compute, o, a, b);
  else
    call_of(w, compute, op, o, a, b);
}

/* ---- casts and roundings ---- */

static void cast(ptx_writer *w, int from, int to, const char *o, const char *a) {
  reg_name wide = from == WK_FLOAT32 && to == WK_INT64 ? ptx_new(w, "f64") : (reg_name){""};
  if (to == WK_BOOL && is_float(from))
    ptx_line(w, "setp.neu.%s %s, %s, %s;", suffix(from), o, a,
             from == WK_FLOAT32 ? "0f00000000" : "0d0000000000000000");
  else if (to == WK_BOOL)
    ptx_line(w, "setp.ne.s64 %s, %s, 0;", o, a);
  else if (from == WK_BOOL)
    ptx_line(w, "selp.%s %s, %s, %s, %s;", to == WK_INT64 ? "b64" : suffix(to), o,
             to == WK_INT64     ? "1"
             : to == WK_FLOAT32 ? "0f3F800000"
                                : "0d3FF0000000000000",
             to == WK_INT64     ? "0"
             : to == WK_FLOAT32 ? "0f00000000"
                                : "0d0000000000000000",
             a);
  else if (to == WK_INT64) {
    if (from == WK_FLOAT32) ptx_line(w, "cvt.f64.f32 %s, %s;", wide.text, a);
    ptx_call(w, "f64_to_i64", o, from == WK_FLOAT32 ? wide.text : a, NULL);
  } else if (from == WK_INT64)
    ptx_line(w, "cvt.rn.%s.s64 %s, %s;", suffix(to), o, a);
  else
    ptx_line(w, "cvt%s.%s.%s %s, %s;", to == WK_FLOAT32 ? ".rn" : "", suffix(to), suffix(from), o, a);
}

static void round_small_float(ptx_writer *w, int dtype, const char *o, const char *a) {
  reg_name bits = ptx_new(w, "b32");
  if (dtype == WK_FLOAT16) {
    reg_name half = ptx_new(w, "b16");
    ptx_line(w, "cvt.rn.f16.f32 %s, %s;", half.text, a);
    ptx_line(w, "cvt.f32.f16 %s, %s;", o, half.text);
  } else if (dtype == WK_BFLOAT16) {
    ptx_call(w, "f32_to_bf16", bits.text, a, NULL);
    ptx_line(w, "shl.b32 %s, %s, 16;", bits.text, bits.text);
    ptx_line(w, "mov.b32 %s, %s;", o, bits.text);
  } else {
    bool e4m3 = dtype == WK_FLOAT8_E4M3;
    ptx_call(w, e4m3 ? "f32_to_e4m3" : "f32_to_e5m2", bits.text, a, NULL);
    ptx_call(w, e4m3 ? "e4m3_to_f32" : "e5m2_to_f32", o, bits.text, NULL);
  }
}

static void round_to(ptx_writer *w, int dtype, const char *o, const char *a, int compute) {
  static const char *const narrow[WK_DTYPE_COUNT] = {[WK_UINT8] = "u8",  [WK_INT8] = "s8",    [WK_INT16] = "s16",
                                                     [WK_INT32] = "s32", [WK_UINT16] = "u16", [WK_UINT32] = "u32"};
  if (narrow[dtype]) {
    ptx_line(w, "cvt.%c64.%s %s, %s;", narrow[dtype][0], narrow[dtype], o, a);
  } else if (wk__dtypes[dtype].compute == WK_FLOAT32 && dtype != WK_FLOAT32) {
    round_small_float(w, dtype, o, a);
  } else {
    ptx_line(w, "mov.%s %s, %s;", compute == WK_BOOL ? "pred" : ptx_type(compute), o, a);
  }
}

/* ---- numbers known before the loop ---- */

static void constant(ptx_writer *w, const wk__instr *i, const char *o) {
  double d = wk__scalar_double(i->number);
  float f = (float)d;
  uint32_t narrow;
  uint64_t wide;
  memcpy(&narrow, &f, sizeof narrow);
  memcpy(&wide, &d, sizeof wide);
  if (i->dtype == WK_FLOAT32) ptx_line(w, "mov.f32 %s, 0f%08X;", o, narrow);
  if (i->dtype == WK_FLOAT64) ptx_line(w, "mov.f64 %s, 0d%016llX;", o, (unsigned long long)wide);
  if (i->dtype == WK_INT64) ptx_line(w, "mov.b64 %s, %lld;", o, (long long)wk__scalar_int(i->number));
  if (i->dtype == WK_BOOL) ptx_line(w, "setp.ne.u32 %s, %d, 0;", o, d != 0);
}

static void param(ptx_writer *w, const wk__instr *i, const char *o) {
  int lane = (int)wk__lane_of((wk_dtype)i->dtype), arg = 8 * ptx_arg(w, WK__PTX_NUMBER, i->extra, lane);
  const char *space = w->shape->together ? "global.nc" : "param", *base = w->shape->together ? "%own" : "args";
  if (w->shape->together) arg += 8;
  if (i->dtype == WK_BOOL) {
    reg_name bits = ptx_new(w, "b32");
    ptx_line(w, "ld.%s.u32 %s, [%s+%d];", space, bits.text, base, arg);
    ptx_line(w, "setp.ne.u32 %s, %s, 0;", o, bits.text);
  } else {
    ptx_line(w, "ld.%s.%s %s, [%s+%d];", space, i->dtype == WK_INT64 ? "u64" : suffix(i->dtype), o, base, arg);
  }
}

/* Out of range: 0, and a fault with the dim, the index and the size. */
static void check_index(ptx_writer *w, int v, const wk__instr *i, const char *o, const char *a, int k) {
  int walker = (int)w->nest->access_count;
  while (w->expressions[walker - w->nest->access_count] != v) walker++;
  reg_name limit = ptx_load_arg(w, WK__PTX_LIMIT, walker, 0), bad = ptx_new(w, "pred"), low = ptx_new(w, "pred");
  reg_name faults = ptx_load_arg(w, WK__PTX_FAULTS, 0, 0), guard = ptx_value_guard(w, v, k);
  ptx_line(w, "mov.b64 %s, %s;", o, a);
  if (!i->extra) {
    ptx_line(w, "setp.lt.s64 %s, %s, 0;", low.text, a);
    ptx_line(w, "@%s add.s64 %s, %s, %s;", low.text, o, a, limit.text);
  }
  ptx_line(w, "setp.ge.u64 %s, %s, %s;", bad.text, o, limit.text);
  ptx_line(w, "@%s mov.b64 %s, 0;", bad.text, o);
  if (guard.text[0])
    ptx_line(w, "and.pred %s, %s, %.*s;", bad.text, bad.text, (int)strlen(guard.text) - 2, guard.text + 1);
  ptx_line(w, "@%s st.global.u64 [%s+8], %s;", bad.text, faults.text, a);
  ptx_line(w, "@%s st.global.u64 [%s+16], %s;", bad.text, faults.text, limit.text);
  ptx_line(w, "@%s st.global.u32 [%s+4], %d;", bad.text, faults.text, wk__checked_dim(i));
  ptx_line(w, "@%s red.global.or.b32 [%s], 1;", bad.text, faults.text);
}

static void where(ptx_writer *w, int compute, const char *o, const char *m, const char *a, const char *b) {
  if (compute != WK_BOOL) {
    ptx_line(w, "selp.%s %s, %s, %s, %s;", ptx_type(compute), o, a, b, m);
    return;
  }
  reg_name first = ptx_new(w, "pred"), other = ptx_new(w, "pred");
  ptx_line(w, "and.pred %s, %s, %s;", first.text, m, a);
  ptx_line(w, "not.pred %s, %s;", other.text, m);
  ptx_line(w, "and.pred %s, %s, %s;", other.text, other.text, b);
  ptx_line(w, "or.pred %s, %s, %s;", o, first.text, other.text);
}

void ptx_operation(ptx_writer *w, int v, int k) {
  const wk__instr *i = ptx_instr(w, v);
  int arity = wk__loop_ops[i->op].arity;
  reg_name o = ptx_value(w, v, k), in[3] = {{""}, {""}, {""}};
  for (int n = 0; n < arity; n++) in[n] = ptx_value(w, i->operands[n], k);
  int compute = arity ? ptx_instr(w, i->operands[0])->dtype : i->dtype;
  ptx_line(w, ".reg .%s %s;", ptx_type(i->dtype), o.text);
  switch (i->op) {
    case WK__LOOP_constant:
      constant(w, i, o.text);
      return;
    case WK__LOOP_param:
      param(w, i, o.text);
      return;
    case WK__LOOP_cast:
      cast(w, compute, i->dtype, o.text, in[0].text);
      return;
    case WK__LOOP_round_to:
      round_to(w, i->extra, o.text, in[0].text, compute);
      return;
    case WK__LOOP_check_index:
      check_index(w, v, i, o.text, in[0].text, k);
      return;
    case WK__LOOP_where:
      where(w, i->dtype, o.text, in[0].text, in[1].text, in[2].text);
      return;
    default:
      break;
  }
  if (compute == WK_BOOL) bool_operation(w, i->op, o.text, in[0].text, in[1].text);
  if (compute == WK_INT64) integer_operation(w, i->op, o.text, in[0].text, in[1].text);
  if (compute == WK_INT64 && divides(i->op)) note_zero_division(w, in[1].text, v, k);
  if (is_float(compute)) float_operation(w, i->op, compute, o.text, in[0].text, in[1].text, in[2].text);
}

/* ---- reductions ---- */

void ptx_combine(ptx_writer *w, int op, int compute, const char *to, const char *a, const char *b) {
  bool sum = op == WK__LOOP_reduce_sum || op == WK__LOOP_scan_sum;
  bool product = op == WK__LOOP_reduce_prod || op == WK__LOOP_scan_prod;
  if (compute == WK_BOOL)
    bool_operation(w, op == WK__LOOP_reduce_max ? WK__LOOP_bit_or : WK__LOOP_bit_and, to, a, b);
  else if (sum || product)
    ptx_line(w, "%s%s.%s %s, %s, %s;", sum ? "add" : "mul",
             is_float(compute) ? ".rn"
             : sum             ? ""
                               : ".lo",
             suffix(compute), to, a, b);
  else
    extreme(w, op == WK__LOOP_reduce_max, compute, to, a, b);
}

reg_name ptx_better(ptx_writer *w, int op, int compute, const char *a, const char *b) {
  const char *t = suffix(compute), *than = op == WK__LOOP_reduce_argmax ? "gt" : "lt";
  reg_name better = ptx_new(w, "pred"), nan = ptx_new(w, "pred");
  ptx_line(w, "setp.%s%s.%s %s, %s, %s;", than, is_float(compute) ? "u" : "", t, better.text, b, a); /* or b is a NaN */
  if (!is_float(compute)) return better;
  ptx_line(w, "setp.num.%s %s, %s, %s;", t, nan.text, a, a);
  ptx_line(w, "and.pred %s, %s, %s;", better.text, better.text, nan.text);
  return better;
}

void ptx_identity(ptx_writer *w, int op, int compute, const char *to) {
  bool max = op == WK__LOOP_reduce_max || op == WK__LOOP_reduce_argmax,
       min = op == WK__LOOP_reduce_min || op == WK__LOOP_reduce_argmin,
       one = op == WK__LOOP_reduce_prod || op == WK__LOOP_scan_prod;
  if (compute == WK_BOOL) ptx_line(w, "setp.ne.u32 %s, %d, 0;", to, min || one);
  if (compute == WK_INT64)
    ptx_line(w, "mov.b64 %s, %s;", to, max ? "0x8000000000000000" : min ? "0x7fffffffffffffff" : one ? "1" : "0");
  if (compute == WK_FLOAT32)
    ptx_line(w, "mov.f32 %s, %s;", to, max ? "0fFF800000" : min ? "0f7F800000" : one ? "0f3F800000" : "0f00000000");
  if (compute == WK_FLOAT64)
    ptx_line(w, "mov.f64 %s, %s;", to,
             max   ? "0dFFF0000000000000"
             : min ? "0d7FF0000000000000"
             : one ? "0d3FF0000000000000"
                   : "0d0000000000000000");
}
