/* Instructions of PTX: operands, and the instructions of the table of operations.
 *
 * A word is cut at its dots, modifiers are taken off, and what is left is looked up among the words of
 * ptx_operations.h; the signature there says what operands follow. The types of registers are checked as the PTX ISA
 * has it, so that text which an assembler would refuse is refused here. Tests: tests/test_parse.c. */
#include <math.h>
#include <pthread.h>

#include "ptx_parser.h"
#include "ptx_values.h"

/* ---- the table, by word ---- */

typedef struct row {
  const char *words, *signature;
  ptx_op op;
} row;

static const row rows[] = {
#define X(name, words, signature, expression) {words, signature, PTX_OP_##name},
    PTX_OPERATIONS(X)
#undef X
};

enum { ROW_BUCKETS = 4096 }; /* more than twice the number of words */
static struct {
  const char *word;
  int length;
  const row *row;
} row_of_word[ROW_BUCKETS];

static uint32_t bucket_of(const char *word, int length) {
  uint32_t hash = 2166136261u;
  for (int i = 0; i < length; i++) hash = (hash ^ (uint8_t)word[i]) * 16777619u;
  return (hash ^ hash >> 13) % ROW_BUCKETS;
}

static void fill_table(void) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    for (const char *word = rows[i].words; *word; word += strspn(word, " ")) {
      int length = (int)strcspn(word, " ");
      uint32_t bucket = bucket_of(word, length);
      while (row_of_word[bucket].word) bucket = (bucket + 1) % ROW_BUCKETS;
      row_of_word[bucket].word = word, row_of_word[bucket].length = length, row_of_word[bucket].row = &rows[i];
      word += length;
    }
  }
}

static const row *find_row(const char *word) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, fill_table);
  int length = (int)strlen(word);
  for (uint32_t bucket = bucket_of(word, length); row_of_word[bucket].word; bucket = (bucket + 1) % ROW_BUCKETS)
    if (row_of_word[bucket].length == length && !memcmp(row_of_word[bucket].word, word, (size_t)length))
      return row_of_word[bucket].row;
  return NULL;
}

int ptx_find_operation(const char *word) {
  const row *found = find_row(word);
  return found ? (int)found->op : -1;
}

/* ---- modifiers ---- */

bool ptx_take_modifier(ptx_parser *p, const char *part) {
  static const struct {
    const char *word;
    unsigned set;
  } modifiers[] = {{"rn", PTX_RN | PTX_MOD_ROUNDED},
                   {"rz", PTX_RZ | PTX_MOD_ROUNDED},
                   {"rm", PTX_RM | PTX_MOD_ROUNDED},
                   {"rp", PTX_RP | PTX_MOD_ROUNDED},
                   {"rna", PTX_RNA | PTX_MOD_ROUNDED},
                   {"rni", PTX_RN | PTX_MOD_INTEGRAL},
                   {"rzi", PTX_RZ | PTX_MOD_INTEGRAL},
                   {"rmi", PTX_RM | PTX_MOD_INTEGRAL},
                   {"rpi", PTX_RP | PTX_MOD_INTEGRAL},
                   {"ftz", PTX_MOD_FTZ},
                   {"sat", PTX_MOD_SAT},
                   {"NaN", PTX_MOD_NAN},
                   {"approx", PTX_MOD_APPROX},
                   {"full", PTX_MOD_APPROX},
                   {"satfinite", PTX_MOD_FINITE},
                   {"relu", PTX_MOD_RELU}};
  for (size_t i = 0; i < sizeof modifiers / sizeof *modifiers; i++) {
    if (strcmp(modifiers[i].word, part)) continue;
    p->mod |= modifiers[i].set;
    return true;
  }
  return false;
}

void ptx_unknown(ptx_parser *p) { ptx_fail(p, "unknown instruction \"%s\"", p->word); }

/* The modifiers that a signature allows, and the check of those that it demands. */
static void check_modifiers(ptx_parser *p, const char *signature) {
  unsigned allowed = 0;
  const char *slash = strchr(signature, '/');
  for (const char *c = slash ? slash + 1 : ""; *c; c++) {
    switch (*c) {
      case 'r':
        allowed |= PTX_MOD_ROUNDING | PTX_MOD_ROUNDED;
        break;
      case 'R':
        allowed |= PTX_MOD_ROUNDING | PTX_MOD_ROUNDED | PTX_MOD_APPROX;
        if (!(p->mod & (PTX_MOD_ROUNDED | PTX_MOD_APPROX))) ptx_fail(p, "\"%s\" needs a rounding", p->word);
        break;
      case 'A':
        allowed |= PTX_MOD_APPROX;
        if (!(p->mod & PTX_MOD_APPROX)) ptx_fail(p, "\"%s\" needs .approx", p->word);
        break;
      case 'f':
        allowed |= PTX_MOD_FTZ;
        break;
      case 'F':
        allowed |= PTX_MOD_FTZ;
        if (!(p->mod & PTX_MOD_FTZ)) ptx_fail(p, "\"%s\" needs .ftz", p->word);
        break;
      case 's':
        allowed |= PTX_MOD_SAT;
        break;
      case 'n':
        allowed |= PTX_MOD_NAN;
        break;
      case 'l':
        allowed |= PTX_MOD_RELU;
        break;
      default:
        break;
    }
  }
  if (p->mod & ~allowed) ptx_fail(p, "\"%s\" has a modifier that it may not have", p->word);
}

/* ---- registers ---- */

static bool kinds_agree(ptx_type have, ptx_type want) {
  ptx_kind a = ptx_types[have].kind, b = ptx_types[want].kind;
  if ((a == PTX_KIND_PREDICATE) != (b == PTX_KIND_PREDICATE)) return false;
  return a == PTX_KIND_BITS || b == PTX_KIND_BITS || (a == PTX_KIND_FLOAT) == (b == PTX_KIND_FLOAT);
}

static void check_type(ptx_parser *p, const char *name, ptx_type have, ptx_type want, bool may_be_wide) {
  int bytes = ptx_types[have].bytes, wanted = ptx_types[want].bytes;
  bool in_bits = ptx_types[have].kind == PTX_KIND_BITS && want != PTX_BF16;
  bool fits = may_be_wide && (ptx_types[want].kind != PTX_KIND_FLOAT || in_bits) ? bytes >= wanted : bytes == wanted;
  if (!fits || !kinds_agree(have, want))
    ptx_fail(p, "\"%s\" is of type .%s where .%s is due", name, ptx_types[have].word, ptx_types[want].word);
}

static uint32_t register_slot(ptx_parser *p, const char *name, ptx_type type, bool may_be_wide) {
  uint32_t index;
  ptx_symbol *symbol = ptx_lookup(p, name, &index);
  if (!symbol) ptx_fail(p, "unknown name \"%s\"", name);
  if (symbol->kind != PTX_SYMBOL_REGISTER) ptx_fail(p, "\"%s\" is no register", name);
  check_type(p, name, symbol->type, type, may_be_wide);
  p->operand_type = symbol->type;
  return symbol->slot + index;
}

/* ---- sources ---- */

static uint64_t float_constant(ptx_parser *p, ptx_type type, double value) {
  if (type == PTX_F64 || type == PTX_B64) return ptx_f64(value);
  if (type == PTX_F32 || type == PTX_B32) return ptx_float_bits((float)value);
  ptx_fail(p, "a float where .%s is due", ptx_types[type].word);
}

static uint32_t constant_source(ptx_parser *p, ptx_type type) {
  p->operand_type = PTX_NONE;
  if (p->token.is_single && ptx_types[type].bytes == 4) { /* its bits, whatever they are */
    uint64_t bits = p->token.value;
    if (!kinds_agree(PTX_F32, type)) ptx_fail(p, "a float where .%s is due", ptx_types[type].word);
    ptx_next(p);
    return ptx_constant_slot(p, bits);
  }
  bool is_float;
  uint64_t value = ptx_take_number(p, &is_float);
  if (is_float) return ptx_constant_slot(p, float_constant(p, type, ptx_double(value)));
  if (ptx_types[type].kind == PTX_KIND_FLOAT) ptx_fail(p, "an integer where .%s is due", ptx_types[type].word);
  if (type == PTX_PRED) value = value != 0;
  return ptx_constant_slot(p, value);
}

/* Registers that say nothing here: no clusters, no environment. */
static int fixed_special(const char *name) {
  if (!strncmp(name, "%envreg", 7) || !strncmp(name, "%pm", 3)) return 0;
  if (!strncmp(name, "%cluster_nctaid", 15) || !strncmp(name, "%cluster_nctarank", 17)) return 1;
  if (!strncmp(name, "%cluster_cta", 12) || !strcmp(name, "%is_explicit_cluster")) return 0;
  return -1;
}

static uint32_t negated_source(ptx_parser *p) {
  uint32_t positive = ptx_take_source(p, PTX_PRED), slot = ptx_new_slots(p, 1);
  ptx_ins *ins = ptx_emit(p, PTX_OP_NOT_P);
  ins->d = slot, ins->a = positive;
  return slot;
}

/* The type is that of the instruction; B8 is that of a pack, whose elements have none. */
static void check_special(ptx_parser *p, const char *name, ptx_type have, ptx_type want) {
  if (!p->takes_special) ptx_fail(p, "\"%s\" is read by mov and cvt only", name);
  bool agree = ptx_types[have].bytes == ptx_types[want].bytes && ptx_types[want].kind != PTX_KIND_FLOAT;
  agree |= !strcmp(name, "%gridid"); /* of both widths */
  if (!agree && want != PTX_B8)
    ptx_fail(p, "\"%s\" is of type .%s where .%s is due", name, ptx_types[have].word, ptx_types[want].word);
}

static uint32_t take_source(ptx_parser *p, ptx_type type, bool may_be_wide) {
  if (type == PTX_PRED && ptx_accept(p, "!")) return negated_source(p);
  if (p->token.kind != PTX_TOKEN_WORD || ptx_is(p, "WARP_SZ")) return constant_source(p, type);
  const char *name = ptx_take_word(p, "an operand");
  int special = ptx_special_of(name), fixed = fixed_special(name);
  if (special >= PTX_SPECIAL_CLOCK) ptx_fail(p, "\"%s\" is read by mov only", name);
  p->operand_type = PTX_NONE;
  if (special >= 0 || fixed >= 0)
    check_special(p, name, special < 0 ? PTX_U32 : ptx_special_type((ptx_special)special), type);
  if (special >= 0) return ptx_special_slot(p, (ptx_special)special);
  if (fixed >= 0) return ptx_constant_slot(p, (uint64_t)fixed);
  return register_slot(p, name, type, may_be_wide);
}

uint32_t ptx_take_source(ptx_parser *p, ptx_type type) { return take_source(p, type, false); }
uint32_t ptx_take_wide_source(ptx_parser *p, ptx_type type) { return take_source(p, type, true); }

/* ---- destinations ---- */

static uint32_t take_destination(ptx_parser *p, ptx_type type, bool may_be_wide) {
  const char *name = ptx_take_word(p, "a register");
  if (strcmp(name, "_")) return register_slot(p, name, type, may_be_wide);
  if (!p->scratch) p->scratch = ptx_new_slots(p, 1);
  p->operand_type = type;
  return p->scratch;
}

uint32_t ptx_take_destination(ptx_parser *p, ptx_type type) { return take_destination(p, type, false); }
uint32_t ptx_take_wide_destination(ptx_parser *p, ptx_type type) { return take_destination(p, type, true); }

uint32_t ptx_take_vector(ptx_parser *p, ptx_type type, bool is_destination, bool may_be_wide, uint32_t *slots,
                         uint32_t most) {
  uint32_t count = 0;
  bool braces = ptx_accept(p, "{");
  do {
    if (count == most) ptx_fail(p, "more than %u elements", most);
    slots[count++] = (is_destination ? take_destination : take_source)(p, type, may_be_wide);
  } while (braces && ptx_accept(p, ","));
  if (braces) ptx_expect(p, "}");
  return count;
}

/* ---- addresses ---- */

static ptx_space space_of(ptx_parser *p, const ptx_symbol *symbol, ptx_space asked) {
  ptx_space space = symbol->space;
  bool fits =
      space == asked || (space == PTX_FRAME && asked == PTX_PARAM) || (space == PTX_GLOBAL && asked == PTX_GENERIC);
  if (!fits) ptx_fail(p, "\"%s\" does not lie in this space", symbol->name);
  return space;
}

static int64_t take_offset(ptx_parser *p) { return ptx_is(p, "+") ? (int64_t)ptx_take_number(p, NULL) : 0; }

static uint32_t register_address(ptx_parser *p, const ptx_symbol *symbol, uint32_t index, ptx_space space) {
  int bytes = ptx_types[symbol->type].bytes;
  bool small = space == PTX_SHARED || space == PTX_LOCAL || space == PTX_PARAM;
  if (bytes != 8 && !(bytes == 4 && small)) ptx_fail(p, "\"%s\" is too narrow for an address", symbol->name);
  if (ptx_types[symbol->type].kind == PTX_KIND_FLOAT)
    ptx_fail(p, "\"%s\" is of a type without addresses", symbol->name);
  p->operand_type = symbol->type;
  return symbol->slot + index;
}

uint32_t ptx_take_address(ptx_parser *p, ptx_space *space, int64_t *out_offset) {
  ptx_expect(p, "[");
  uint32_t slot, index;
  *out_offset = 0;
  p->operand_type = PTX_B64;
  if (p->token.kind != PTX_TOKEN_WORD) {
    if (*space != PTX_LOCAL) ptx_fail(p, "a number is an address of local memory only");
    slot = ptx_constant_slot(p, ptx_take_number(p, NULL));
  } else {
    const char *name = ptx_take_word(p, "an address");
    ptx_symbol *symbol = ptx_lookup(p, name, &index);
    if (!symbol) ptx_fail(p, "unknown name \"%s\"", name);
    if (symbol->kind == PTX_SYMBOL_REGISTER) {
      slot = register_address(p, symbol, index, *space);
      *out_offset = take_offset(p);
    } else if (symbol->kind == PTX_SYMBOL_VARIABLE) {
      *space = space_of(p, symbol, *space);
      int64_t offset = take_offset(p);
      if (*space == PTX_FRAME)
        *out_offset = offset, slot = symbol->slot;
      else
        slot = ptx_address_slot(p, symbol, offset);
      p->address_room = symbol->bytes - (uint64_t)offset;
      if (*space == PTX_FRAME && (offset < 0 || (uint64_t)offset >= symbol->bytes))
        ptx_fail(p, "outside of \"%s\"", name);
    } else {
      ptx_fail(p, "\"%s\" has no address", name);
    }
  }
  ptx_expect(p, "]");
  return slot;
}

/* ---- instructions of the table ---- */

static ptx_type type_of_width(int bytes) { return bytes == 2 ? PTX_B16 : bytes == 4 ? PTX_B32 : PTX_B64; }

/* The types named in a word: the first two. */
static void types_of(char **parts, int count, ptx_type types[2]) {
  int found = 0;
  types[0] = types[1] = PTX_NONE;
  for (int i = 1; i < count && found < 2; i++) {
    ptx_type type = ptx_type_of(parts[i], strlen(parts[i]));
    if (type) types[found++] = type;
  }
}

static ptx_type operand_type(char letter, const ptx_type types[2]) {
  switch (letter) {
    case 't':
      return types[0];
    case 'y':
      return types[1];
    case 'w':
      return type_of_width(ptx_types[types[0]].bytes * 2);
    case 'p':
      return PTX_PRED;
    default:
      return PTX_B32;
  }
}

static void take_operands(ptx_parser *p, const row *found, const ptx_type types[2]) {
  uint32_t slots[5] = {0};
  const char *letters = found->signature;
  for (int i = 0; letters[i] && letters[i] != '/'; i++) {
    if (i) ptx_expect(p, ",");
    ptx_type type = operand_type(letters[i], types);
    if (letters[i] == 'i')
      slots[i] = ptx_constant_slot(p, ptx_take_u32(p));
    else
      slots[i] = i ? ptx_take_source(p, type) : ptx_take_destination(p, type);
  }
  ptx_ins *ins = ptx_emit(p, found->op);
  ins->d = slots[0], ins->a = slots[1], ins->b = slots[2], ins->c = slots[3], ins->e = slots[4];
  ins->type = types[0];
}

static void table_instruction(ptx_parser *p, char **parts, int count) {
  char word[sizeof p->word + 2];
  size_t length = 0;
  for (int i = 0; i < count; i++) {
    if (i && ptx_take_modifier(p, parts[i])) continue;
    if (i) word[length++] = '.';
    memcpy(word + length, parts[i], strlen(parts[i]));
    length += strlen(parts[i]);
  }
  word[length] = 0;
  const row *found = find_row(word);
  unsigned matters = p->mod & ~(unsigned)(PTX_MOD_ROUNDED | PTX_MOD_APPROX);
  if (matters && !(found && strchr(found->signature, '+'))) {
    memcpy(word + length, "!", 2);
    const row *modified = find_row(word);
    if (modified) found = modified;
  }
  if (!found) ptx_unknown(p);
  check_modifiers(p, found->signature);
  ptx_type types[2];
  types_of(parts, count, types);
  take_operands(p, found, types);
}

/* ---- every instruction ---- */

/* Cuts at the dots, in place. */
static int split(char *word, char **parts, int most) {
  int count = 0;
  for (char *at = word; at && count < most; count++) {
    parts[count] = at;
    at = strchr(at, '.');
    if (at) *at++ = 0;
  }
  return count;
}

void ptx_parse_instruction(ptx_parser *p) {
  char copy[sizeof p->word];
  char *parts[24];
  memcpy(copy, p->word, sizeof copy);
  p->takes_special = !strncmp(copy, "mov", 3) || !strncmp(copy, "cvt", 3);
  int count = split(copy, parts, 24);
  ptx_instruction_fn *special = ptx_special_instruction(parts[0]);
  if (!special) special = ptx_memory_instruction(parts[0]);
  if (!special) special = ptx_warp_instruction(parts[0]);
  if (!special) special = table_instruction;
  special(p, parts, count);
  if (!ptx_accept(p, ";")) ptx_fail(p, "expected \";\" before \"%.*s\"", p->token.length, p->token.text);
}
