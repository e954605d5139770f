/* Instructions of PTX in which threads meet: barriers, shuffles, votes, matrices. Each becomes one instruction with the
 * mask of its lanes in the slot `e`; ptx_warp.c, ptx_matrix.c and launch.c do them. Tests: tests/test_warps.c,
 * tests/test_parse.c. */
#include <stdlib.h>

#include "ptx_parser.h"

static int position_in(const char *const *words, int count, const char *word) {
  for (int i = 0; i < count; i++)
    if (!strcmp(words[i], word)) return i;
  return -1;
}

static uint32_t scratch_slot(ptx_parser *p) {
  if (!p->scratch) p->scratch = ptx_new_slots(p, 1);
  return p->scratch;
}

static uint32_t take_after_comma(ptx_parser *p, ptx_type type) {
  ptx_expect(p, ",");
  return ptx_take_source(p, type);
}

/* d or d|p; gives the slot of p, which is scratch when there is none. */
static uint32_t take_with_predicate(ptx_parser *p, ptx_type type, uint32_t *out_predicate) {
  uint32_t to = ptx_take_destination(p, type);
  *out_predicate = ptx_accept(p, "|") ? ptx_take_destination(p, PTX_PRED) : scratch_slot(p);
  return to;
}

/* ---- barriers ---- */

static bool predicate_is_next(ptx_parser *p) {
  const ptx_symbol *symbol = ptx_peek_symbol(p);
  return ptx_is(p, "!") || (symbol && symbol->kind == PTX_SYMBOL_REGISTER && symbol->type == PTX_PRED);
}

static void parse_warp_barrier(ptx_parser *p) {
  uint32_t mask = ptx_take_source(p, PTX_B32);
  ptx_emit(p, PTX_OP_BAR_WARP)->e = mask;
}

/* bar, barrier: "aligned" is what bar means by itself. */
static void parse_bar(ptx_parser *p, char **parts, int count) {
  static const char *const reductions[] = {"", "popc", "and", "or"};
  bool arrive = false, reduces = false;
  int reduction = 0;
  if (!strcmp(parts[0], "bar")) p->mod |= PTX_MOD_ALIGNED;
  if (count == 3 && !strcmp(parts[1], "warp") && !strcmp(parts[2], "sync")) {
    parse_warp_barrier(p);
    return;
  }
  for (int i = 1; i < count; i++) {
    if (!strcmp(parts[i], "aligned"))
      p->mod |= PTX_MOD_ALIGNED;
    else if (!strcmp(parts[i], "arrive"))
      arrive = true;
    else if (!strcmp(parts[i], "red"))
      reduces = true;
    else if (position_in(reductions, 4, parts[i]) > 0)
      reduction = position_in(reductions, 4, parts[i]);
    else if (strcmp(parts[i], "cta") && strcmp(parts[i], "sync") && strcmp(parts[i], "u32") && strcmp(parts[i], "pred"))
      ptx_unknown(p);
  }
  if (reduces != (reduction > 0)) ptx_unknown(p);
  uint32_t to = 0, threads = 0, predicate = 0;
  bool has_threads = false;
  if (reduces) {
    to = ptx_take_destination(p, reduction == 1 ? PTX_U32 : PTX_PRED);
    ptx_expect(p, ",");
  }
  uint32_t barrier = ptx_take_source(p, PTX_U32);
  while (ptx_accept(p, ",")) {
    if (reduces && predicate_is_next(p))
      predicate = ptx_take_source(p, PTX_PRED);
    else
      threads = ptx_take_source(p, PTX_U32), has_threads = true;
  }
  if (arrive && !has_threads) ptx_fail(p, "\"%s\" needs the number of threads", p->word);
  if (reduces && !predicate) ptx_fail(p, "\"%s\" needs a predicate", p->word);
  ptx_ins *ins = ptx_emit(p, arrive ? PTX_OP_BAR_ARRIVE : PTX_OP_BARRIER);
  ins->d = to, ins->a = barrier, ins->b = threads, ins->c = predicate, ins->count = has_threads, ins->imm = reduction;
}

/* ---- shuffles and votes ---- */

static void parse_shfl(ptx_parser *p, char **parts, int count) {
  static const char *const modes[] = {"up", "down", "bfly", "idx"};
  int mode = count == 4 && !strcmp(parts[1], "sync") && !strcmp(parts[3], "b32") ? position_in(modes, 4, parts[2]) : -1;
  if (mode < 0) ptx_unknown(p);
  uint32_t predicate, to = take_with_predicate(p, PTX_B32, &predicate);
  uint32_t a = take_after_comma(p, PTX_B32), b = take_after_comma(p, PTX_B32), c = take_after_comma(p, PTX_B32);
  uint32_t mask = take_after_comma(p, PTX_B32);
  ptx_ins *ins = ptx_emit(p, PTX_OP_SHFL);
  ins->d = to, ins->a = a, ins->b = b, ins->c = c, ins->e = mask, ins->imm = mode | (int64_t)predicate << 8;
}

static void parse_vote(ptx_parser *p, char **parts, int count) {
  static const char *const modes[] = {"all", "any", "uni", "ballot"};
  bool sync_first = count == 4 && !strcmp(parts[1], "sync"), sync_second = count == 4 && !strcmp(parts[2], "sync");
  int mode = sync_first ? position_in(modes, 4, parts[2]) : sync_second ? position_in(modes, 4, parts[1]) : -1;
  if (mode < 0 || strcmp(parts[3], mode == 3 ? "b32" : "pred")) ptx_unknown(p);
  uint32_t to = ptx_take_destination(p, mode == 3 ? PTX_B32 : PTX_PRED);
  uint32_t a = take_after_comma(p, PTX_PRED), mask = take_after_comma(p, PTX_B32);
  ptx_ins *ins = ptx_emit(p, PTX_OP_VOTE);
  ins->d = to, ins->a = a, ins->e = mask, ins->imm = mode;
}

static void parse_match(ptx_parser *p, char **parts, int count) {
  static const char *const modes[] = {"any", "all"};
  int mode = count == 4 && !strcmp(parts[2], "sync") ? position_in(modes, 2, parts[1]) : -1;
  ptx_type type = count == 4 ? ptx_type_of(parts[3], strlen(parts[3])) : PTX_NONE;
  if (mode < 0 || (type != PTX_B32 && type != PTX_B64)) ptx_unknown(p);
  uint32_t predicate, to = take_with_predicate(p, PTX_B32, &predicate);
  uint32_t a = take_after_comma(p, type), mask = take_after_comma(p, PTX_B32);
  ptx_ins *ins = ptx_emit(p, PTX_OP_MATCH);
  ins->d = to, ins->a = a, ins->c = predicate, ins->e = mask, ins->imm = mode, ins->type = type;
}

static void parse_redux(ptx_parser *p, char **parts, int count) {
  static const char *const operations[] = {"add", "min", "max", "and", "or", "xor"};
  int operation = count == 4 && !strcmp(parts[1], "sync") ? position_in(operations, 6, parts[2]) : -1;
  ptx_type type = count == 4 ? ptx_type_of(parts[3], strlen(parts[3])) : PTX_NONE;
  bool fits = operation < 3 ? type == PTX_U32 || type == PTX_S32 : type == PTX_B32;
  if (operation < 0 || !fits) ptx_unknown(p);
  uint32_t to = ptx_take_destination(p, type), a = take_after_comma(p, type), mask = take_after_comma(p, PTX_B32);
  ptx_ins *ins = ptx_emit(p, PTX_OP_REDUX);
  ins->d = to, ins->a = a, ins->e = mask, ins->imm = operation, ins->type = type;
}

static void parse_activemask(ptx_parser *p, char **parts, int count) {
  if (count != 2 || strcmp(parts[1], "b32")) ptx_unknown(p);
  uint32_t to = ptx_take_destination(p, PTX_B32);
  ptx_emit(p, PTX_OP_ACTIVEMASK)->d = to;
}

static void parse_elect(ptx_parser *p, char **parts, int count) {
  if (count != 2 || strcmp(parts[1], "sync")) ptx_unknown(p);
  uint32_t predicate, to = take_with_predicate(p, PTX_B32, &predicate), mask = take_after_comma(p, PTX_B32);
  ptx_ins *ins = ptx_emit(p, PTX_OP_ELECT);
  ins->d = to, ins->c = predicate, ins->e = mask;
}

/* ---- matrices ---- */

static void parse_matrix_move(ptx_parser *p, char **parts, int count) {
  bool loads = !strcmp(parts[0], "ldmatrix"), transposed = false;
  uint32_t matrices = 0, slots[4];
  ptx_space space = PTX_GENERIC;
  if (count < 6 || strcmp(parts[1], "sync") || strcmp(parts[2], "aligned")) ptx_unknown(p);
  for (int i = 3; i < count; i++) {
    if (parts[i][0] == 'x' && strchr("124", parts[i][1]) && !parts[i][2])
      matrices = (uint32_t)(parts[i][1] - '0');
    else if (!strcmp(parts[i], "trans"))
      transposed = true;
    else if (!strncmp(parts[i], "shared", 6))
      space = PTX_SHARED;
    else if (strcmp(parts[i], "b16") && strcmp(parts[i], "m8n8"))
      ptx_unknown(p);
  }
  if (!matrices) ptx_unknown(p);
  int64_t offset = 0;
  uint32_t address = 0, have = 0;
  bool is_narrow = false;
  for (int i = 0; i < 2; i++) {
    if (i) ptx_expect(p, ",");
    if (loads == (i == 0))
      have = ptx_take_vector(p, PTX_B32, loads, false, slots, 4);
    else
      address = ptx_take_address(p, &space, &offset), is_narrow = ptx_types[p->operand_type].bytes == 4;
  }
  if (have != matrices) ptx_fail(p, "%u registers for %u matrices", have, matrices);
  uint32_t at = ptx_add_list(p, slots, have), all = ptx_constant_slot(p, UINT32_MAX);
  ptx_ins *ins = ptx_emit(p, loads ? PTX_OP_LDMATRIX : PTX_OP_STMATRIX);
  ins->d = at, ins->a = address, ins->e = all, ins->imm = offset, ins->count = (uint8_t)matrices;
  ins->type = transposed, ins->type2 = (uint8_t)space, ins->bytes = is_narrow;
}

typedef struct matrix_shape {
  const char *word;
  int m, k;
  ptx_type type; /* of the factors */
} matrix_shape;

static const matrix_shape matrix_shapes[] = {
    {"m16n8k8", 16, 8, PTX_F16},    {"m16n8k16", 16, 16, PTX_F16}, {"m16n8k8", 16, 8, PTX_BF16},
    {"m16n8k16", 16, 16, PTX_BF16}, {"m16n8k4", 16, 4, PTX_TF32},  {"m16n8k8", 16, 8, PTX_TF32},
    {"m8n8k4", 8, 4, PTX_F64},      {"m16n8k4", 16, 4, PTX_F64},   {"m16n8k8", 16, 8, PTX_F64},
    {"m16n8k16", 16, 16, PTX_F64},  {"m16n8k16", 16, 16, PTX_S8},  {"m16n8k32", 16, 32, PTX_S8},
    {"m16n8k16", 16, 16, PTX_U8},   {"m16n8k32", 16, 32, PTX_U8},  {"m16n8k32", 16, 32, PTX_E4M3},
    {"m16n8k32", 16, 32, PTX_E5M2}};

static const matrix_shape *find_shape(const char *word, ptx_type type) {
  for (size_t i = 0; i < sizeof matrix_shapes / sizeof *matrix_shapes; i++)
    if (matrix_shapes[i].type == type && !strcmp(matrix_shapes[i].word, word)) return &matrix_shapes[i];
  return NULL;
}

/* f16 and bf16 sum in f32, f16 in f16 too; integers in s32; f64 in f64. */
static bool sums_in(ptx_type factor, ptx_type sum) {
  if (factor == PTX_F64) return sum == PTX_F64;
  if (factor == PTX_S8 || factor == PTX_U8) return sum == PTX_S32;
  return sum == PTX_F32 || (factor == PTX_F16 && sum == PTX_F16);
}

static uint32_t take_fragment(ptx_parser *p, ptx_type type, int elements, bool is_destination) {
  uint32_t slots[32];
  int bytes = ptx_types[type].bytes, wide = bytes < 4 ? 4 : bytes;
  ptx_type held = bytes < 4 ? PTX_B32 : type == PTX_TF32 ? PTX_B32 : type;
  uint32_t due = (uint32_t)(elements * bytes / (32 * wide)),
           have = ptx_take_vector(p, held, is_destination, false, slots, 32);
  if (have != due) ptx_fail(p, "%u registers where %u are due", have, due);
  return ptx_add_list(p, slots, have);
}

static void parse_mma(ptx_parser *p, char **parts, int count) {
  ptx_type types[4] = {PTX_NONE, PTX_NONE, PTX_NONE, PTX_NONE};
  int found = 0, words = 0;
  for (int i = 1; i < count; i++) {
    ptx_type type = ptx_type_of(parts[i], strlen(parts[i]));
    if (type && found < 4)
      types[found++] = type;
    else if (!strcmp(parts[i], "satfinite"))
      p->mod |= PTX_MOD_SAT;
    else
      words++;
  }
  bool plain = count > 5 && words == 5 && !strcmp(parts[1], "sync") && !strcmp(parts[2], "aligned") &&
               !strcmp(parts[4], "row") && !strcmp(parts[5], "col");
  const matrix_shape *shape = plain && found == 4 ? find_shape(parts[3], types[1]) : NULL;
  if (!shape || ptx_types[types[1]].bytes != ptx_types[types[2]].bytes || !sums_in(types[1], types[0]) ||
      types[3] != types[0])
    ptx_unknown(p);
  uint32_t d = take_fragment(p, types[0], shape->m * 8, true);
  ptx_expect(p, ",");
  uint32_t a = take_fragment(p, types[1], shape->m * shape->k, false);
  ptx_expect(p, ",");
  uint32_t b = take_fragment(p, types[2], shape->k * 8, false);
  ptx_expect(p, ",");
  uint32_t c = take_fragment(p, types[3], shape->m * 8, false), all = ptx_constant_slot(p, UINT32_MAX);
  ptx_ins *ins = ptx_emit(p, PTX_OP_MMA);
  ins->d = d, ins->a = a, ins->b = b, ins->c = c, ins->e = all;
  ins->type = types[1], ins->type2 = types[2], ins->bytes = (uint8_t)types[0], ins->count = (uint8_t)shape->m;
  ins->imm = shape->k;
}

/* Known: products of 32 bytes of k, of f16, bf16, tf32 and float8 with sums in f32, of integers in s32. */
static bool is_warpgroup_product(char **parts, int count, int *out_n, ptx_type types[3]) {
  int n = count == 8 && !strncmp(parts[4], "m64n", 4) ? atoi(parts[4] + 4) : 0;
  const char *depth = n ? strchr(parts[4] + 4, 'k') : NULL;
  if (!depth || n % 8 || n > 256 || strcmp(parts[1], "mma_async")) return false;
  for (int i = 0; i < 3; i++) types[i] = ptx_type_of(parts[5 + i], strlen(parts[5 + i]));
  if (!types[0] || !types[1] || !types[2] || types[1] == PTX_F64 || types[1] == PTX_F32) return false;
  int bytes = ptx_types[types[1]].bytes;
  bool alike = bytes == 1 ? ptx_types[types[2]].bytes == 1 : types[1] == types[2];
  *out_n = n;
  return alike && atoi(depth + 1) * bytes == 32 && sums_in(types[1], types[0]) && sums_in(types[2], types[0]);
}

/* wgmma.mma_async; fence, commit_group and wait_group have nothing to do, since a warp does its part at once. Factors
 * are floats' alone, and only elements of two bytes may be turned. */
static void parse_wgmma(ptx_parser *p, char **parts, int count) {
  uint32_t d[128], a[4], have;
  ptx_type types[3];
  int n;
  if (count > 1 &&
      (!strcmp(parts[1], "fence") || !strcmp(parts[1], "commit_group") || !strcmp(parts[1], "wait_group"))) {
    while (!ptx_is(p, ";") && p->token.kind != PTX_TOKEN_END) ptx_next(p);
    return;
  }
  if (!is_warpgroup_product(parts, count, &n, types)) ptx_unknown(p);
  have = ptx_take_vector(p, PTX_B32, true, false, d, 128);
  if (have != (uint32_t)n / 2) ptx_fail(p, "%u registers where %d are due", have, n / 2);
  uint32_t sums = ptx_add_list(p, d, have);
  ptx_expect(p, ",");
  bool registers = ptx_is(p, "{");
  uint32_t left, right, flags = registers;
  if (registers) {
    if (ptx_take_vector(p, PTX_B32, false, false, a, 4) != 4) ptx_fail(p, "4 registers of A are due");
    left = ptx_add_list(p, a, 4);
  } else {
    left = ptx_take_source(p, PTX_B64);
  }
  ptx_expect(p, ",");
  right = ptx_take_source(p, PTX_B64);
  ptx_expect(p, ",");
  uint32_t adds = ptx_take_source(p, PTX_PRED);
  for (int i = 0; i < 2 && types[0] != PTX_S32; i++) { /* factors of A and B */
    ptx_expect(p, ",");
    if (ptx_take_number(p, NULL) != 1) ptx_unknown(p);
  }
  for (int i = registers; i < 2 && ptx_types[types[1]].bytes == 2; i++) { /* turned: A, B */
    ptx_expect(p, ",");
    if (ptx_take_number(p, NULL)) flags |= 2u << i;
  }
  uint32_t all = ptx_constant_slot(p, UINT32_MAX);
  ptx_ins *ins = ptx_emit(p, PTX_OP_WGMMA);
  ins->d = sums, ins->a = left, ins->b = right, ins->c = adds, ins->e = all;
  ins->type = types[1], ins->type2 = types[2], ins->bytes = (uint8_t)types[0];
  ins->count = (uint8_t)(n / 8), ins->imm = flags;
}

ptx_instruction_fn *ptx_warp_instruction(const char *mnemonic) {
  static const struct {
    const char *mnemonic;
    ptx_instruction_fn *parse;
  } table[] = {{"bar", parse_bar},
               {"barrier", parse_bar},
               {"shfl", parse_shfl},
               {"vote", parse_vote},
               {"match", parse_match},
               {"redux", parse_redux},
               {"activemask", parse_activemask},
               {"elect", parse_elect},
               {"ldmatrix", parse_matrix_move},
               {"stmatrix", parse_matrix_move},
               {"mma", parse_mma},
               {"wgmma", parse_wgmma}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (!strcmp(table[i].mnemonic, mnemonic)) return table[i].parse;
  return NULL;
}
