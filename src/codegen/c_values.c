/* One instruction of a nest as C: operands by name, one call a loop operation, named after it (unit_vector.h).
 * In: an analysis and where the statement stands. Out: text. Invariant: in a body each statement computes S elements at
 * j, of which n are wanted; among the values of a row, all lanes hold the row's value.
 * Tests: tests/c/test_codegen.c. */
#include <math.h>
#include <stdio.h>

#include "codegen/internal.h"

/* ---- names ---- */

char letter_of(int compute) {
  return compute == WK_FLOAT32 ? 'f' : compute == WK_FLOAT64 ? 'd' : compute == WK_INT64 ? 'l' : 'b';
}
char type_of(int compute) { return (char)(letter_of(compute) - 'a' + 'A'); }

const char *memory_name(int dtype) {
  static const char *const names[WK_DTYPE_COUNT] = {[WK_BOOL] = "bool",
                                                    [WK_UINT8] = "u8",
                                                    [WK_INT8] = "i8",
                                                    [WK_INT16] = "i16",
                                                    [WK_INT32] = "i32",
                                                    [WK_INT64] = "i64",
                                                    [WK_FLOAT16] = "f16",
                                                    [WK_BFLOAT16] = "bf16",
                                                    [WK_FLOAT8_E4M3] = "e4m3",
                                                    [WK_FLOAT8_E5M2] = "e5m2",
                                                    [WK_FLOAT32] = "f32",
                                                    [WK_FLOAT64] = "f64",
                                                    [WK_UINT16] = "u16",
                                                    [WK_UINT32] = "u32",
                                                    [WK_UINT64] = "u64",
                                                    [WK_FLOAT8_E4M3_FNUZ] = "e4m3z",
                                                    [WK_FLOAT8_E5M2_FNUZ] = "e5m2z",
                                                    [WK_FLOAT8_E8M0] = "e8m0"};
  return names[dtype];
}

const char *combiner_of(int op) {
  switch (op) {
    case WK__LOOP_reduce_prod:
    case WK__LOOP_scan_prod:
      return "mul";
    case WK__LOOP_reduce_max:
      return "max";
    case WK__LOOP_reduce_min:
      return "min";
    default:
      return "add";
  }
}

static const char *values(const target *t) { return t->body ? "v->" : "v."; }
static const char *wanted(const target *t) { return t->body || by_strips(t) ? "n" : "1"; }

/* ---- numbers ---- */

static void write_float(wk__string *out, char letter, double x) {
  char text[40];
  snprintf(text, sizeof text, letter == 'f' ? "%.9g" : "%.17g", x);
  const char *point = strpbrk(text, ".en") ? "" : ".0";
  if (isnan(x) || isinf(x))
    wk__string_printf(out, "%s%s", x < 0 ? "-" : "", isnan(x) ? "NAN" : "INFINITY");
  else
    wk__string_printf(out, "%s%s%s", text, point, letter == 'f' ? "f" : "");
}

static void write_integer(wk__string *out, int64_t x) {
  if (x == INT64_MIN)
    wk__string_append(out, "INT64_MIN");
  else
    wk__string_printf(out, "%lld", (long long)x);
}

static void write_number(wk__string *out, wk__scalar number, int compute) {
  char letter = letter_of(compute);
  wk__string_printf(out, "%c_splat(", letter);
  if (letter == 'b')
    wk__string_printf(out, "%d", wk__scalar_double(number) != 0);
  else if (letter == 'l')
    write_integer(out, wk__scalar_int(number));
  else
    write_float(out, letter, letter == 'f' ? (float)wk__scalar_double(number) : wk__scalar_double(number));
  wk__string_append(out, ")");
}

void write_identity(wk__string *out, int op, int compute) {
  bool integer = letter_of(compute) == 'l', max = op == WK__LOOP_reduce_max, min = op == WK__LOOP_reduce_min;
  wk__scalar number = {WK__INTEGER_KIND, .i = op == WK__LOOP_reduce_prod || op == WK__LOOP_scan_prod};
  if (integer && (max || min)) number.i = max ? INT64_MIN : INT64_MAX;
  if (!integer && (max || min)) number = (wk__scalar){WK__FLOAT_KIND, .d = max ? -INFINITY : INFINITY};
  if (letter_of(compute) == 'b') number = (wk__scalar){WK__INTEGER_KIND, .i = min};
  write_number(out, number, compute);
}

/* ---- operands ---- */

int operand_dtype(const analysis *a, const wk__instr *i) {
  wk__var v = i->operands[i->op == WK__LOOP_where ? 1 : 0];
  return a->nest->instrs[v].dtype;
}

void write_operand(const target *t, wk__var v) {
  const wk__instr *i = &t->a->nest->instrs[v];
  switch ((value_place)t->a->place[v]) {
    case PLACE_NONE:
      write_number(t->out, i->number, i->dtype);
      break;
    case PLACE_UNIFORM:
      wk__string_printf(t->out, "%sv%d", values(t), v);
      break;
    case PLACE_ROW:
      if (by_strips(t))
        wk__string_printf(t->out, "%c_strip(%sr%d, j)", letter_of(i->dtype), values(t), v);
      else
        wk__string_printf(t->out, "%sv%d", values(t), v);
      break;
    default:
      wk__string_printf(t->out, "%sv%d", t->put ? "o->" : "", v);
  }
}

static void write_operands(const target *t, const wk__instr *i) {
  for (int k = 0; k < wk__loop_ops[i->op].arity; k++) {
    if (k) wk__string_append(t->out, ", ");
    write_operand(t, i->operands[k]);
  }
}

/* Values of one row, by rows: memory is addressed directly, and one lane is computed for all. */
static bool alone(const target *t) { return !t->body && !by_strips(t); }

/* ---- memory ---- */

/* Of a walker in the row at hand, the q-th of those that are taken together. */
static void write_position(const target *t, int walker) {
  wk__string_printf(t->out, "l_splat(t->at[%d] + q * a->walkers[%d].stride_m)", walker, walker);
}

/* Elements from the buffer's begin, one integer a lane. */
static void write_offsets(const target *t, int number) {
  const wk__access *access = &t->a->nest->accesses[number];
  int open = 0;
  for (int d = 0; d < access->ndim; d++)
    if (access->indirect[d]) open++;
  for (int d = 0; d < open; d++) wk__string_append(t->out, "l_add(");
  if (alone(t))
    write_position(t, number);
  else
    wk__string_printf(t->out, "l_load_i64(%sp%d, j, n)", values(t), number);
  for (int d = 0; d < access->ndim; d++) {
    if (!access->indirect[d]) continue;
    wk__string_append(t->out, ", l_mul(");
    write_operand(t, access->indirect[d]);
    wk__string_printf(t->out, ", l_splat(a->walkers[%d].indirect[%d])))", number, d);
  }
}

/* As cpu/native/run.c has it. */
static bool moves_with_columns(const wk__access *access) {
  uint32_t vars = 0;
  for (int d = 0; d < access->ndim; d++) vars |= wk__sym_loop_vars(access->index[d]);
  return vars & ((1u << WK__FIRST_R) - 1);
}

static void write_load(const target *t, const wk__instr *i) {
  const wk__access *access = &t->a->nest->accesses[i->extra];
  const char *name = memory_name(t->a->nest->buffers[access->buffer].dtype);
  char letter = letter_of(i->dtype);
  if (access->has_indirect) {
    if (alone(t)) wk__string_printf(t->out, "%c_splat(%c_first(", letter, letter);
    wk__string_printf(t->out, "%c_gather_%s(a->walkers[%d].base, ", letter, name, i->extra);
    write_offsets(t, i->extra);
    wk__string_printf(t->out, ", %s)%s", wanted(t), alone(t) ? "))" : "");
  } else if (alone(t)) {
    wk__string_printf(t->out, "%c_one_%s(%s_memory(a, t, %d, q))", letter, name, access->may_leave ? "block" : "row",
                      i->extra);
  } else if (by_strips(t) && !moves_with_columns(access)) {
    wk__string_printf(t->out, "%c_one_%s(%sp%d)", letter, name, values(t), i->extra);
  } else {
    wk__string_printf(t->out, "%c_load_%s(%sp%d, j, n)", letter, name, values(t), i->extra);
  }
}

static void write_store(const target *t, const wk__instr *i) {
  const wk__access *access = &t->a->nest->accesses[i->extra];
  const char *name = memory_name(t->a->nest->buffers[access->buffer].dtype);
  char letter = letter_of(i->dtype);
  if (access->has_indirect || i->op == WK__LOOP_store_add) {
    wk__string_printf(t->out, "if (!(t->fault & WK__KERNEL_INDEX_FAULT)) %c_scatter%s_%s(a->walkers[%d].base, ", letter,
                      i->op == WK__LOOP_store_add ? "_add" : "", name, i->extra);
    write_offsets(t, i->extra);
    wk__string_append(t->out, ", ");
  } else if (alone(t)) {
    wk__string_printf(t->out, "%c_store_%s(row_memory(a, t, %d, q), 0, ", letter, name, i->extra);
  } else {
    wk__string_printf(t->out, "%c_store_%s(%sp%d, j, ", letter, name, values(t), i->extra);
  }
  write_operand(t, i->operands[0]);
  wk__string_printf(t->out, ", %s)", wanted(t));
}

/* ---- reductions and scans ---- */

static void write_reduction_by_rows(const target *t, wk__var v, const wk__instr *i, char letter) {
  if (wk__loop_is_arg(i->op)) {
    wk__string_printf(t->out, "%c_take_%s(&acc->v%d, ", letter, i->op == WK__LOOP_reduce_argmax ? "argmax" : "argmin",
                      v);
    write_operand(t, i->operands[0]);
    wk__string_append(t->out, ", e + j, n)");
    return;
  }
  wk__string_printf(t->out, "acc->v%d[k] = %c_take_%s(acc->v%d[k], ", v, letter, combiner_of(i->op), v);
  write_operand(t, i->operands[0]);
  wk__string_append(t->out, ", n)");
}

static void write_reduction_by_columns(const target *t, wk__var v, const wk__instr *i, char letter) {
  if (wk__loop_is_arg(i->op)) {
    wk__string_printf(t->out, "%c_take_strip_%s(v->s%d, v->s%d + a->strip, j, ", letter,
                      i->op == WK__LOOP_reduce_argmax ? "argmax" : "argmin", v, v);
    write_operand(t, i->operands[0]);
    wk__string_append(t->out, ", e, n)");
    return;
  }
  wk__string_printf(t->out, "acc->v%d = %c_%s(acc->v%d, ", v, letter, combiner_of(i->op), v);
  write_operand(t, i->operands[0]);
  wk__string_append(t->out, ")");
}

static void write_scan(const target *t, wk__var v, const wk__instr *i, char letter) {
  const char *combiner = combiner_of(i->op);
  if (by_strips(t)) {
    wk__string_printf(t->out, "%c_scan_strip_%s(", letter, combiner);
    write_operand(t, i->operands[0]);
    wk__string_printf(t->out, ", v->s%d, v->s%d + a->strip, j)", v, v);
    return;
  }
  wk__string_printf(t->out, "%c_scan_%s(", letter, combiner);
  write_operand(t, i->operands[0]);
  wk__string_printf(t->out, ", &acc->v%d, acc->before%d, n)", v, v);
}

/* ---- instructions ---- */

static void write_param(const target *t, const wk__instr *i) {
  static const char *const forms[] = {"b_splat(a->params[%d].d != 0)", "l_splat(a->params[%d].i)",
                                      "f_splat((float)a->params[%d].d)", "d_splat(a->params[%d].d)"};
  const char *form = forms[i->dtype == WK_BOOL ? 0 : i->dtype == WK_INT64 ? 1 : i->dtype == WK_FLOAT32 ? 2 : 3];
  wk__string_printf(t->out, form, i->extra);
}

static void write_index(const target *t, wk__var v) {
  int walker = walker_of(t->a, v);
  if (t->a->place[v] == PLACE_UNIFORM)
    wk__string_printf(t->out, "l_splat(a->walkers[%d].start)", walker);
  else if (alone(t))
    write_position(t, walker);
  else
    wk__string_printf(t->out, "l_load_i64(%sp%d, j, n)", values(t), walker);
}

static void write_check(const target *t, wk__var v, const wk__instr *i) {
  int number = walker_of(t->a, v) - (int)t->a->nest->access_count;
  wk__string_append(t->out, alone(t) ? "l_splat(l_first(l_check_index(" : "l_check_index(");
  write_operand(t, i->operands[0]);
  wk__string_printf(t->out, ", %s, a->limits[%d], ", wanted(t), number);
  wk__string_printf(t->out, i->extra ? "0" : "a->limits[%d]", number);
  wk__string_printf(t->out, ", %d, t)%s", number, alone(t) ? "))" : "");
}

static bool divides_integers(const wk__instr *i, int operand) {
  return operand == WK_INT64 && (i->op == WK__LOOP_floor_div || i->op == WK__LOOP_trunc_div || i->op == WK__LOOP_mod ||
                                 i->op == WK__LOOP_fmod);
}

static bool has_one_lane(const wk__instr *i, int operand) {
  return wk_dtype_is_floating((wk_dtype)operand) &&
         (i->op == WK__LOOP_div || i->op == WK__LOOP_sqrt || i->op == WK__LOOP_rsqrt || i->op == WK__LOOP_reciprocal);
}

/* e^(x - max(x)), of which the part of exp that looks for arguments too large is left out. */
static bool is_exp_below_max(const analysis *a, const wk__instr *i) {
  const wk__instr *difference = &a->nest->instrs[i->operands[0]];
  if (i->op != WK__LOOP_exp || i->dtype != WK_FLOAT32 || difference->op != WK__LOOP_sub) return false;
  const wk__instr *most = &a->nest->instrs[difference->operands[1]];
  return most->op == WK__LOOP_reduce_max && most->operands[0] == difference->operands[0];
}

static void write_operation(const target *t, const wk__instr *i) {
  int dtype = operand_dtype(t->a, i);
  bool divides = divides_integers(i, dtype);
  if (divides && alone(t)) wk__string_append(t->out, "l_splat(l_first(");
  const char *one = alone(t) && has_one_lane(i, dtype) ? "one_" : "";
  const char *name = is_exp_below_max(t->a, i) ? "exp_below" : wk__loop_ops[i->op].name;
  wk__string_printf(t->out, "%c_%s%s(", letter_of(dtype), one, name);
  write_operands(t, i);
  if (divides) wk__string_printf(t->out, ", %s, &t->fault", wanted(t));
  wk__string_append(t->out, divides && alone(t) ? ")))" : ")");
}

static void write_expression(const target *t, wk__var v, const wk__instr *i) {
  switch (i->op) {
    case WK__LOOP_load:
    case WK__LOOP_masked_load:
      write_load(t, i);
      break;
    case WK__LOOP_param:
      write_param(t, i);
      break;
    case WK__LOOP_index:
      write_index(t, v);
      break;
    case WK__LOOP_check_index:
      write_check(t, v, i);
      break;
    case WK__LOOP_cast:
      wk__string_printf(t->out, "%c_from_%c(", letter_of(i->dtype), letter_of(operand_dtype(t->a, i)));
      write_operands(t, i);
      wk__string_append(t->out, ")");
      break;
    case WK__LOOP_round_to:
      wk__string_printf(t->out, "%c_round_%s(", letter_of(i->dtype), memory_name(i->extra));
      write_operands(t, i);
      wk__string_append(t->out, ")");
      break;
    case WK__LOOP_scan_sum:
    case WK__LOOP_scan_prod:
      write_scan(t, v, i, letter_of(i->dtype));
      break;
    default:
      write_operation(t, i);
  }
}

void write_comment(const target *t, wk__var v) {
  wk__string_append(t->out, " // ");
  wk__instr_print(t->out, t->a->nest, v);
  wk__string_append(t->out, "\n");
}

static void end_statement(const target *t, wk__var v) {
  wk__string_append(t->out, ";");
  write_comment(t, v);
}

void write_keep(const target *t, wk__var v) {
  int dtype = t->a->nest->instrs[v].dtype;
  if (t->a->place[v] != PLACE_KEPT || by_strips(t)) return;
  wk__string_printf(t->out, "  %c_store_%s(v->kept%d, e + j, ", letter_of(dtype), memory_name(dtype), t->a->number[v]);
  write_operand(t, v);
  wk__string_append(t->out, ", n);\n");
}

void write_kept_load(const target *t, wk__var v) {
  int dtype = t->a->nest->instrs[v].dtype;
  wk__string_printf(t->out, "  const %c v%d = %c_load_%s(v->kept%d, e + j, n);", type_of(dtype), v, letter_of(dtype),
                    memory_name(dtype), t->a->number[v]);
  write_comment(t, v);
}

void write_instr(const target *t, wk__var v) {
  const wk__instr *i = &t->a->nest->instrs[v];
  char letter = letter_of(operand_dtype(t->a, i));
  wk__string_append(t->out, "  ");
  if (wk__loop_is_store(i->op)) {
    write_store(t, i);
  } else if (wk__loop_is_reduction(i->op)) {
    (by_strips(t) ? write_reduction_by_columns : write_reduction_by_rows)(t, v, i, letter);
  } else if (t->a->place[v] == PLACE_ROW && by_strips(t)) {
    wk__string_printf(t->out, "%c_set_strip(v.r%d, j, ", letter_of(i->dtype), v);
    write_expression(t, v, i);
    wk__string_append(t->out, ")");
  } else {
    if (t->a->place[v] >= PLACE_ELEMENT)
      wk__string_printf(t->out, "const %c v%d = ", type_of(i->dtype), v);
    else
      wk__string_printf(t->out, "v.v%d = ", v);
    write_expression(t, v, i);
  }
  end_statement(t, v);
}
