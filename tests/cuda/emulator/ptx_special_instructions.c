/* Instructions of PTX whose operands or modifiers follow rules of their own: moves, comparisons, conversions, branches,
 * calls. Those of memory stand in ptx_memory_instructions.c, those of warps in ptx_warp_instructions.c. Tests:
 * tests/test_control.c, tests/test_parse.c. */
#include "ptx_parser.h"

static bool is_part(char **parts, int count, const char *word) {
  for (int i = 1; i < count; i++)
    if (!strcmp(parts[i], word)) return true;
  return false;
}

static ptx_type last_type(ptx_parser *p, char **parts, int count) {
  ptx_type type = count > 1 ? ptx_type_of(parts[count - 1], strlen(parts[count - 1])) : PTX_NONE;
  if (!type) ptx_unknown(p);
  return type;
}

/* ---- mov, cvta, isspacep ---- */

static void unpack(ptx_parser *p, ptx_type type) {
  uint32_t slots[8], at = p->function->list_count;
  /* Elements are as wide as the registers that they go to. */
  ptx_expect(p, "{");
  uint32_t count = 0;
  do {
    if (count == 8) ptx_fail(p, "more than 8 elements");
    slots[count++] = ptx_take_wide_destination(p, PTX_B8);
  } while (ptx_accept(p, ","));
  ptx_expect(p, "}");
  ptx_expect(p, ",");
  ptx_type source = ptx_types[type].bytes == 8 ? PTX_B64 : ptx_types[type].bytes == 4 ? PTX_B32 : PTX_B16;
  uint32_t from = ptx_take_source(p, source);
  ptx_add_list(p, slots, count);
  ptx_ins *ins = ptx_emit(p, PTX_OP_UNPACK);
  ins->d = at, ins->a = from, ins->count = (uint8_t)count, ins->bytes = (uint8_t)(ptx_types[type].bytes / count);
  if (ins->bytes * count != ptx_types[type].bytes)
    ptx_fail(p, "%u elements do not make .%s", count, ptx_types[type].word);
}

static void pack(ptx_parser *p, ptx_type type, uint32_t to) {
  uint32_t slots[8], at = p->function->list_count;
  uint32_t count = ptx_take_vector(p, PTX_B8, false, true, slots, 8);
  ptx_add_list(p, slots, count);
  ptx_ins *ins = ptx_emit(p, PTX_OP_PACK);
  ins->d = to, ins->a = at, ins->count = (uint8_t)count, ins->bytes = (uint8_t)(ptx_types[type].bytes / count);
  if (ins->bytes * count != ptx_types[type].bytes)
    ptx_fail(p, "%u elements do not make .%s", count, ptx_types[type].word);
}

/* A variable's name as a source: its address, in its space. NULL: something else, and the parser has not moved. */
static ptx_symbol *peek_variable(ptx_parser *p) {
  ptx_symbol *symbol = ptx_peek_symbol(p);
  return symbol && symbol->kind == PTX_SYMBOL_VARIABLE ? symbol : NULL;
}

static uint32_t take_variable_address(ptx_parser *p, ptx_symbol *symbol) {
  ptx_next(p);
  int64_t offset = ptx_is(p, "+") || ptx_is(p, "-") ? (int64_t)ptx_take_number(p, NULL) : 0;
  return ptx_address_slot(p, symbol, offset);
}

static bool take_clock(ptx_parser *p, ptx_type type, uint32_t to) {
  char name[32] = "";
  if (p->token.kind == PTX_TOKEN_WORD && p->token.length < (int)sizeof name)
    memcpy(name, p->token.text, (size_t)p->token.length);
  int special = name[0] ? ptx_special_of(name) : -1;
  if (special < PTX_SPECIAL_CLOCK) return false;
  if (ptx_types[ptx_special_type((ptx_special)special)].bytes != ptx_types[type].bytes)
    ptx_fail(p, "\"%s\" is of another width", name);
  ptx_next(p);
  ptx_ins *ins = ptx_emit(p, PTX_OP_CLOCK);
  ins->d = to, ins->imm = special;
  return true;
}

static void parse_mov(ptx_parser *p, char **parts, int count) {
  ptx_type type = last_type(p, parts, count);
  bool is_small = ptx_types[type].kind == PTX_KIND_FLOAT && type != PTX_F32 && type != PTX_F64;
  if (is_small || (ptx_types[type].bytes < 2 && type != PTX_PRED)) ptx_unknown(p);
  if (ptx_is(p, "{")) {
    unpack(p, type);
    return;
  }
  uint32_t to = ptx_take_destination(p, type);
  ptx_expect(p, ",");
  if (ptx_is(p, "{")) {
    pack(p, type, to);
    return;
  }
  if (take_clock(p, type, to)) return;
  ptx_symbol *variable = peek_variable(p);
  uint32_t from = variable ? take_variable_address(p, variable) : ptx_take_source(p, type);
  ptx_ins *ins = ptx_emit(p, PTX_OP_MOV);
  ins->d = to, ins->a = from;
}

static ptx_space space_part(ptx_parser *p, char **parts, int count) {
  static const struct {
    const char *word;
    ptx_space space;
  } spaces[] = {{"global", PTX_GLOBAL}, {"const", PTX_GLOBAL}, {"shared", PTX_SHARED},     {"shared::cta", PTX_SHARED},
                {"local", PTX_LOCAL},   {"param", PTX_PARAM},  {"param::entry", PTX_PARAM}};
  for (int i = 1; i < count; i++)
    for (size_t j = 0; j < sizeof spaces / sizeof *spaces; j++)
      if (!strcmp(parts[i], spaces[j].word)) return spaces[j].space;
  ptx_unknown(p);
}

static void parse_cvta(ptx_parser *p, char **parts, int count) {
  ptx_type type = last_type(p, parts, count);
  ptx_space space = space_part(p, parts, count);
  if (ptx_types[type].bytes != 8) ptx_fail(p, "addresses have 64 bits here");
  uint32_t to = ptx_take_destination(p, type);
  ptx_expect(p, ",");
  ptx_symbol *variable = peek_variable(p);
  uint32_t from = variable ? take_variable_address(p, variable) : ptx_take_source(p, type);
  ptx_ins *ins = ptx_emit(p, is_part(parts, count, "to") ? PTX_OP_CVTA_TO : PTX_OP_CVTA);
  ins->d = to, ins->a = from, ins->imm = space;
}

static void parse_isspacep(ptx_parser *p, char **parts, int count) {
  ptx_space space = space_part(p, parts, count);
  uint32_t to = ptx_take_destination(p, PTX_PRED);
  ptx_expect(p, ",");
  uint32_t from = ptx_take_source(p, PTX_B64);
  ptx_ins *ins = ptx_emit(p, PTX_OP_ISSPACEP);
  ins->d = to, ins->a = from, ins->imm = space;
}

/* ---- setp, set ---- */

typedef struct comparison {
  int comparison, combine; /* ptx_comparison; 0 nothing, 1 and, 2 or, 3 xor */
  ptx_type types[2];
} comparison;

static int comparison_of(const char *word) {
  static const char *const words[] = {
#define X(name, word) word,
      PTX_COMPARISONS(X)
#undef X
  };
  for (int i = 0; i < (int)(sizeof words / sizeof *words); i++)
    if (!strcmp(words[i], word)) return i;
  return -1;
}

static int combination_of(const char *word) {
  return !strcmp(word, "and") ? 1 : !strcmp(word, "or") ? 2 : !strcmp(word, "xor") ? 3 : 0;
}

static comparison take_comparison(ptx_parser *p, char **parts, int count, int type_count) {
  comparison c = {.comparison = count > 1 ? comparison_of(parts[1]) : -1};
  int types = 0;
  for (int i = 2; i < count; i++) {
    ptx_type type = ptx_type_of(parts[i], strlen(parts[i]));
    if (type && types < 2)
      c.types[types++] = type;
    else if (combination_of(parts[i]))
      c.combine = combination_of(parts[i]);
    else if (!ptx_take_modifier(p, parts[i]))
      ptx_unknown(p);
  }
  if (c.comparison < 0 || types != type_count || p->mod & ~(unsigned)PTX_MOD_FTZ) ptx_unknown(p);
  ptx_type type = c.types[types - 1];
  bool is_float = ptx_types[type].kind == PTX_KIND_FLOAT, is_bits = ptx_types[type].kind == PTX_KIND_BITS;
  bool for_unsigned = c.comparison >= PTX_CMP_LO && c.comparison <= PTX_CMP_HS;
  if (for_unsigned && ptx_types[type].kind != PTX_KIND_UNSIGNED) ptx_unknown(p);
  if (is_bits && c.comparison > PTX_CMP_NE) ptx_unknown(p);
  if (!is_float && c.comparison >= PTX_CMP_EQU) ptx_unknown(p);
  if (ptx_types[type].bytes < 2) ptx_unknown(p);
  return c;
}

static void take_compared(ptx_parser *p, const comparison *c, ptx_type type, uint32_t slots[3]) {
  slots[2] = 0;
  ptx_expect(p, ",");
  slots[0] = ptx_take_source(p, type);
  ptx_expect(p, ",");
  slots[1] = ptx_take_source(p, type);
  if (!c->combine) return;
  ptx_expect(p, ",");
  slots[2] = ptx_take_source(p, PTX_PRED);
}

static uint32_t scratch_slot(ptx_parser *p) {
  if (!p->scratch) p->scratch = ptx_new_slots(p, 1);
  return p->scratch;
}

static void parse_setp(ptx_parser *p, char **parts, int count) {
  comparison c = take_comparison(p, parts, count, 1);
  uint32_t to = ptx_take_destination(p, PTX_PRED), other = 0, slots[3];
  bool two = ptx_accept(p, "|");
  if (two) other = ptx_take_destination(p, PTX_PRED);
  take_compared(p, &c, c.types[0], slots);
  char word[32] = "setp.";
  strcat(strcat(strcat(word, parts[1]), "."), ptx_types[c.types[0]].word);
  int plain = two || c.combine || p->mod ? -1 : ptx_find_operation(word);
  if (!two) other = scratch_slot(p);
  ptx_ins *ins = ptx_emit(p, plain >= 0 ? (ptx_op)plain : PTX_OP_SETP);
  ins->d = to, ins->a = slots[0], ins->b = slots[1], ins->c = slots[2], ins->e = other;
  ins->type = c.types[0], ins->imm = c.comparison | c.combine << 8;
}

static void parse_set(ptx_parser *p, char **parts, int count) {
  comparison c = take_comparison(p, parts, count, 2);
  uint32_t to = ptx_take_destination(p, c.types[0]), slots[3];
  take_compared(p, &c, c.types[1], slots);
  ptx_ins *ins = ptx_emit(p, PTX_OP_SET);
  ins->d = to, ins->a = slots[0], ins->b = slots[1], ins->c = slots[2];
  ins->type = c.types[1], ins->type2 = c.types[0], ins->imm = c.comparison | c.combine << 8;
}

/* ---- cvt ---- */

static bool is_packed(ptx_type type) {
  return type == PTX_F16X2 || type == PTX_BF16X2 || type == PTX_E4M3X2 || type == PTX_E5M2X2;
}

/* Which roundings a conversion has to name. */
static void check_rounding(ptx_parser *p, ptx_type to, ptx_type from) {
  bool to_float = ptx_types[to].kind == PTX_KIND_FLOAT || to == PTX_TF32 || is_packed(to);
  bool from_float = ptx_types[from].kind == PTX_KIND_FLOAT || is_packed(from);
  int narrower = ptx_types[to].bytes - ptx_types[from].bytes;
  bool other_half = narrower == 0 && to != from && to != PTX_F16; /* the ISA lets bf16 go to f16 with none */
  bool is_eighth = to == PTX_E4M3X2 || to == PTX_E5M2X2;
  if (is_eighth && !(p->mod & PTX_MOD_FINITE)) ptx_fail(p, "\"%s\" needs .satfinite", p->word);
  bool rounded = p->mod & PTX_MOD_ROUNDED, integral = p->mod & PTX_MOD_INTEGRAL;
  if (to_float && !from_float && !rounded) ptx_fail(p, "\"%s\" needs a rounding", p->word);
  if (!to_float && from_float && !integral) ptx_fail(p, "\"%s\" needs a rounding to integers", p->word);
  if (to_float && from_float && (narrower < 0 || other_half) && !rounded)
    ptx_fail(p, "\"%s\" needs a rounding", p->word);
  bool exact = !to_float && !from_float;
  bool widens = to_float && from_float && narrower > 0 && !is_packed(from);
  bool same = to == from && !integral;
  if ((exact || widens || same) && (rounded || integral)) ptx_fail(p, "\"%s\" does not round", p->word);
}

static ptx_op conversion_op(ptx_type to, ptx_type from, unsigned mod) {
  bool integers = ptx_types[to].kind <= PTX_KIND_SIGNED && ptx_types[from].kind <= PTX_KIND_SIGNED && to != PTX_TF32;
  int a = ptx_types[from].bytes, b = ptx_types[to].bytes;
  if (integers && !(mod & PTX_MOD_SAT) && a + b == 12)
    return a == 4 && ptx_types[from].kind == PTX_KIND_SIGNED ? PTX_OP_CVT_S32 : PTX_OP_CVT_U32;
  if (to == PTX_F32 && from == PTX_S32 && !(mod & (PTX_MOD_ROUNDING | PTX_MOD_SAT))) return PTX_OP_CVT_F32_S32;
  if (to == PTX_F32 && from == PTX_BF16 && !(mod & ~(unsigned)PTX_MOD_ROUNDED)) return PTX_OP_CVT_F32_BF16;
  if (to == PTX_BF16 && from == PTX_F32 && !(mod & ~(unsigned)PTX_MOD_ROUNDED)) return PTX_OP_CVT_BF16_F32;
  return PTX_OP_CVT;
}

static void parse_cvt(ptx_parser *p, char **parts, int count) {
  ptx_type types[2] = {PTX_NONE, PTX_NONE};
  int found = 0;
  for (int i = 1; i < count; i++) {
    ptx_type type = ptx_type_of(parts[i], strlen(parts[i]));
    if (type && found < 2)
      types[found++] = type;
    else if (!ptx_take_modifier(p, parts[i]))
      ptx_unknown(p);
  }
  if (found != 2 || types[0] == PTX_PRED || types[1] == PTX_PRED) ptx_unknown(p);
  check_rounding(p, types[0], types[1]);
  uint32_t to = ptx_take_wide_destination(p, types[0]), second = 0;
  ptx_expect(p, ",");
  uint32_t from = ptx_take_wide_source(p, types[1]);
  bool pair = is_packed(types[0]) && types[1] == PTX_F32;
  if (pair) {
    ptx_expect(p, ",");
    second = ptx_take_source(p, PTX_F32);
  }
  ptx_ins *ins = ptx_emit(p, pair ? PTX_OP_CVT_PAIR : conversion_op(types[0], types[1], p->mod));
  ins->d = to, ins->a = from, ins->b = second, ins->type = types[0], ins->type2 = types[1];
}

/* ---- branches and calls ---- */

static void parse_bra(ptx_parser *p, char **parts, int count) {
  if (count > 2 || (count == 2 && strcmp(parts[1], "uni"))) ptx_unknown(p);
  uint32_t at = p->function->code_count;
  ptx_emit(p, PTX_OP_BRA);
  ptx_refer(p, ptx_take_word(p, "a label"), false, at);
}

static void parse_brx(ptx_parser *p, char **parts, int count) {
  if (count < 2 || strcmp(parts[1], "idx")) ptx_unknown(p);
  uint32_t index = ptx_take_source(p, PTX_U32), unused;
  ptx_expect(p, ",");
  const char *name = ptx_take_word(p, "a list of targets");
  ptx_symbol *targets = ptx_lookup(p, name, &unused);
  if (!targets || targets->kind != PTX_SYMBOL_TARGETS) ptx_fail(p, "\"%s\" is no list of targets", name);
  ptx_ins *ins = ptx_emit(p, PTX_OP_BRX);
  ins->a = index, ins->b = (uint32_t)targets->offset, ins->imm = targets->count;
}

/* Registers, constants and call parameters in parentheses: their slots. */
static uint32_t take_arguments(ptx_parser *p, uint32_t *slots, uint32_t most, bool results) {
  uint32_t count = 0;
  ptx_expect(p, "(");
  while (!ptx_is(p, ")")) {
    if (count == most) ptx_fail(p, "more than %u arguments", most);
    ptx_symbol *variable = peek_variable(p);
    if (variable && variable->space == PTX_FRAME)
      slots[count] = variable->slot, ptx_next(p);
    else
      slots[count] = results ? ptx_take_wide_destination(p, PTX_B8) : ptx_take_wide_source(p, PTX_B8);
    count++;
    if (!ptx_accept(p, ",")) break;
  }
  ptx_expect(p, ")");
  return count;
}

static void parse_call(ptx_parser *p, char **parts, int count) {
  if (count > 2 || (count == 2 && strcmp(parts[1], "uni"))) ptx_unknown(p);
  enum { MOST = 64 };
  uint32_t slots[2 * MOST], result_count = 0, argument_count = 0, unused;
  if (ptx_is(p, "(")) {
    result_count = take_arguments(p, slots, MOST, true);
    ptx_expect(p, ",");
  }
  const char *name = ptx_take_word(p, "a function");
  ptx_symbol *symbol = ptx_lookup(p, name, &unused);
  if (!symbol || symbol->kind != PTX_SYMBOL_FUNCTION) ptx_fail(p, "\"%s\" is no function", name);
  if (ptx_accept(p, ",")) argument_count = take_arguments(p, slots + result_count, MOST, false);
  ptx_function *callee = symbol->function;
  if (callee->result_count != result_count || callee->parameter_count != argument_count)
    ptx_fail(p, "\"%s\" is called with another number of arguments", name);
  uint32_t index = 0, at = p->function->list_count;
  while (p->module->functions[index] != callee) index++;
  ptx_add_list(p, slots, result_count + argument_count);
  ptx_ins *ins = ptx_emit(p, PTX_OP_CALL);
  ins->a = at, ins->imm = index;
  p->function->calls = true;
}

static void parse_ret(ptx_parser *p, char **parts, int count) {
  if (count > 2 || (count == 2 && strcmp(parts[1], "uni"))) ptx_unknown(p);
  ptx_emit(p, PTX_OP_RET);
}
static void parse_exit(ptx_parser *p, char **parts, int count) {
  (void)parts, (void)count;
  ptx_emit(p, PTX_OP_EXIT);
}
static void parse_trap(ptx_parser *p, char **parts, int count) {
  (void)parts, (void)count;
  ptx_emit(p, PTX_OP_TRAP);
}

/* One thread runs at a time and memory is always in order: fences have nothing to do. */
static void parse_nothing(ptx_parser *p, char **parts, int count) {
  (void)parts, (void)count;
  while (!ptx_is(p, ";") && p->token.kind != PTX_TOKEN_END) ptx_next(p);
}

/* ---- the table ---- */

ptx_instruction_fn *ptx_special_instruction(const char *mnemonic) {
  static const struct {
    const char *mnemonic;
    ptx_instruction_fn *parse;
  } table[] = {{"mov", parse_mov},
               {"cvt", parse_cvt},
               {"setp", parse_setp},
               {"bra", parse_bra},
               {"cvta", parse_cvta},
               {"set", parse_set},
               {"ret", parse_ret},
               {"exit", parse_exit},
               {"isspacep", parse_isspacep},
               {"call", parse_call},
               {"brx", parse_brx},
               {"trap", parse_trap},
               {"membar", parse_nothing},
               {"fence", parse_nothing},
               {"griddepcontrol", parse_nothing},
               {"setmaxnreg", parse_nothing},
               {"brkpt", parse_nothing},
               {"nanosleep", parse_nothing},
               {"pmevent", parse_nothing}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (!strcmp(table[i].mnemonic, mnemonic)) return table[i].parse;
  return NULL;
}
