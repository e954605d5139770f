/* Instructions of PTX that touch memory. Spaces, widths and what is loaded how become fields of one instruction; the
 * words for caches, scopes and orders are read and, but for "strong" accesses that are no race, forgotten. Tests:
 * tests/test_control.c, tests/test_parse.c. */
#include "ptx_parser.h"

/* ---- the words between the mnemonic and the type ---- */

typedef struct access {
  ptx_space space;
  ptx_type type;
  uint32_t elements; /* of a vector, 1 for none */
  bool has_cache_hint;
} access;

static bool is_ignored(const char *part) {
  static const char *const ignored[] = {"weak", "cta", "cluster", "gpu", "sys", "nc", "ca",
                                        "cg",   "cs",  "lu",      "cv",  "wb",  "wt"};
  for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
    if (!strcmp(part, ignored[i])) return true;
  return !strncmp(part, "L1::", 4) || !strncmp(part, "L2::", 4);
}

static bool is_strong(const char *part) {
  static const char *const strong[] = {"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"};
  for (size_t i = 0; i < sizeof strong / sizeof *strong; i++)
    if (!strcmp(part, strong[i])) return true;
  return false;
}

/* Takes a word that all accesses share; false: it is the instruction's own. */
static bool take_access_part(ptx_parser *p, access *a, const char *part) {
  if (!strcmp(part, "global") || !strcmp(part, "const"))
    a->space = PTX_GLOBAL;
  else if (!strcmp(part, "shared") || !strcmp(part, "shared::cta"))
    a->space = PTX_SHARED;
  else if (!strcmp(part, "local"))
    a->space = PTX_LOCAL;
  else if (!strncmp(part, "param", 5) && (!part[5] || part[5] == ':'))
    a->space = PTX_PARAM;
  else if (!strcmp(part, "v2"))
    a->elements = 2;
  else if (!strcmp(part, "v4"))
    a->elements = 4;
  else if (!strcmp(part, "L2::cache_hint"))
    a->has_cache_hint = true;
  else if (is_strong(part))
    p->mod |= PTX_MOD_STRONG;
  else if (ptx_type_of(part, strlen(part)))
    a->type = ptx_type_of(part, strlen(part));
  else
    return is_ignored(part);
  return true;
}

static bool is_loadable(ptx_type type) {
  return ptx_types[type].kind != PTX_KIND_FLOAT || type == PTX_F32 || type == PTX_F64;
}

static access take_access(ptx_parser *p, char **parts, int count) {
  access a = {.space = PTX_GENERIC, .elements = 1};
  for (int i = 1; i < count; i++)
    if (!take_access_part(p, &a, parts[i])) ptx_unknown(p);
  if (!a.type || a.type == PTX_PRED || a.type == PTX_TF32 || a.elements * ptx_types[a.type].bytes > 16) ptx_unknown(p);
  if (!is_loadable(a.type)) ptx_unknown(p);
  return a;
}

static void take_cache_hint(ptx_parser *p, const access *a) {
  if (!a->has_cache_hint) return;
  ptx_expect(p, ",");
  ptx_take_source(p, PTX_B64);
}

static void check_room(ptx_parser *p, const access *a) {
  if (a->space == PTX_FRAME && a->elements * ptx_types[a->type].bytes > p->address_room)
    ptx_fail(p, "beyond the end of the parameter");
}

typedef struct place {
  uint32_t slot;
  int64_t offset;
  bool is_narrow; /* the address is of 32 bits */
} place;

static place take_place(ptx_parser *p, ptx_space *space) {
  place at = {0};
  at.slot = ptx_take_address(p, space, &at.offset);
  at.is_narrow = ptx_types[p->operand_type].bytes == 4;
  return at;
}

/* ---- ld, st ---- */

static void parse_ld(ptx_parser *p, char **parts, int count) {
  access a = take_access(p, parts, count);
  uint32_t slots[4];
  uint32_t have = ptx_take_vector(p, a.type, true, true, slots, 4);
  if (have != a.elements) ptx_fail(p, "%u registers for %u elements", have, a.elements);
  bool extends =
      ptx_types[a.type].kind == PTX_KIND_SIGNED && ptx_types[p->operand_type].bytes > ptx_types[a.type].bytes;
  ptx_expect(p, ",");
  place from = take_place(p, &a.space);
  check_room(p, &a);
  take_cache_hint(p, &a);
  bool plain = have == 1 && !extends;
  ptx_op op = !plain                                    ? PTX_OP_LD
              : a.space == PTX_GLOBAL                   ? PTX_OP_LD_GLOBAL
              : a.space == PTX_PARAM && !from.is_narrow ? PTX_OP_LD_PARAM
              : a.space == PTX_SHARED && from.is_narrow ? PTX_OP_LD_SHARED
                                                        : PTX_OP_LD;
  uint32_t to = op == PTX_OP_LD ? ptx_add_list(p, slots, have) : slots[0];
  ptx_ins *ins = ptx_emit(p, op);
  ins->d = to, ins->a = from.slot, ins->imm = from.offset, ins->e = from.is_narrow;
  ins->type = extends ? a.type : PTX_NONE, ins->type2 = a.space;
  ins->bytes = ptx_types[a.type].bytes, ins->count = (uint8_t)have;
}

static void parse_st(ptx_parser *p, char **parts, int count) {
  access a = take_access(p, parts, count);
  place to = take_place(p, &a.space);
  check_room(p, &a);
  if (a.space == PTX_PARAM) ptx_fail(p, "the parameters of a kernel cannot be written");
  ptx_expect(p, ",");
  uint32_t slots[4];
  uint32_t have = ptx_take_vector(p, a.type, false, true, slots, 4);
  if (have != a.elements) ptx_fail(p, "%u registers for %u elements", have, a.elements);
  take_cache_hint(p, &a);
  ptx_op op = have > 1                                ? PTX_OP_ST
              : a.space == PTX_GLOBAL                 ? PTX_OP_ST_GLOBAL
              : a.space == PTX_SHARED && to.is_narrow ? PTX_OP_ST_SHARED
                                                      : PTX_OP_ST;
  uint32_t from = op == PTX_OP_ST ? ptx_add_list(p, slots, have) : slots[0];
  ptx_ins *ins = ptx_emit(p, op);
  ins->b = from, ins->a = to.slot, ins->imm = to.offset, ins->e = to.is_narrow;
  ins->type2 = a.space, ins->bytes = ptx_types[a.type].bytes, ins->count = (uint8_t)have;
}

/* ---- atom, red ---- */

static int atomic_of(const char *word) {
  static const char *const words[] = {
#define X(name, word) word,
      PTX_ATOMICS(X)
#undef X
  };
  for (int i = 0; i < (int)(sizeof words / sizeof *words); i++)
    if (!strcmp(words[i], word)) return i;
  return -1;
}

static bool atomic_takes(int op, ptx_type type) {
  ptx_kind kind = (ptx_kind)ptx_types[type].kind;
  int bytes = ptx_types[type].bytes;
  switch (op) {
    case PTX_ATOMIC_ADD:
      return kind == PTX_KIND_FLOAT || type == PTX_U32 || type == PTX_S32 || type == PTX_U64;
    case PTX_ATOMIC_MIN:
    case PTX_ATOMIC_MAX:
      return (kind == PTX_KIND_UNSIGNED || kind == PTX_KIND_SIGNED) && bytes >= 4;
    case PTX_ATOMIC_INC:
    case PTX_ATOMIC_DEC:
      return type == PTX_U32;
    case PTX_ATOMIC_CAS:
      return kind == PTX_KIND_BITS && bytes >= 2;
    case PTX_ATOMIC_EXCH:
      return kind == PTX_KIND_BITS && bytes >= 4;
    default:
      return kind == PTX_KIND_BITS && bytes >= 4;
  }
}

static void parse_atomic(ptx_parser *p, char **parts, int count) {
  bool gives = !strcmp(parts[0], "atom");
  access a = {.space = PTX_GENERIC, .elements = 1};
  int op = -1;
  bool keeps_denormals = false;
  for (int i = 1; i < count; i++) {
    if (atomic_of(parts[i]) >= 0)
      op = atomic_of(parts[i]);
    else if (!strcmp(parts[i], "noftz"))
      keeps_denormals = true;
    else if (!take_access_part(p, &a, parts[i]))
      ptx_unknown(p);
  }
  if (op < 0 || !a.type || a.elements > 1 || !atomic_takes(op, a.type)) ptx_unknown(p);
  bool is_half = ptx_types[a.type].kind == PTX_KIND_FLOAT && a.type != PTX_F32 && a.type != PTX_F64;
  if (is_half != keeps_denormals)
    ptx_fail(p, "\"%s\": .noftz has to stand with halves, and with nothing else", p->word);
  uint32_t to = 0, third = 0;
  if (gives) {
    to = ptx_take_destination(p, a.type);
    ptx_expect(p, ",");
  } else {
    if (!p->scratch) p->scratch = ptx_new_slots(p, 1);
    to = p->scratch;
  }
  place at = take_place(p, &a.space);
  ptx_expect(p, ",");
  uint32_t second = ptx_take_source(p, a.type);
  if (op == PTX_ATOMIC_CAS) {
    ptx_expect(p, ",");
    third = ptx_take_source(p, a.type);
  }
  take_cache_hint(p, &a);
  ptx_ins *ins = ptx_emit(p, PTX_OP_ATOM);
  ins->d = to, ins->a = at.slot, ins->b = second, ins->c = third, ins->e = at.is_narrow, ins->imm = at.offset;
  ins->type = a.type, ins->type2 = a.space, ins->bytes = ptx_types[a.type].bytes, ins->count = (uint8_t)op;
}

/* ---- cp.async, prefetch ---- */

/* The address with its offset, for an instruction whose own is another's. */
static uint32_t with_offset(ptx_parser *p, const place *at) {
  if (!at->offset) return at->slot;
  uint32_t slot = ptx_new_slots(p, 1), addend = ptx_constant_slot(p, (uint64_t)at->offset);
  ptx_ins *sum = ptx_emit(p, PTX_OP_ADD_64);
  sum->d = slot, sum->a = at->slot, sum->b = addend;
  return slot;
}

static void parse_copy(ptx_parser *p, bool is_cg) {
  ptx_space to_space = PTX_SHARED, from_space = PTX_GLOBAL;
  place to = take_place(p, &to_space);
  ptx_expect(p, ",");
  place from = take_place(p, &from_space);
  ptx_expect(p, ",");
  uint32_t bytes = ptx_take_u32(p), size = ptx_constant_slot(p, bytes);
  bool good = bytes == 16 || (!is_cg && (bytes == 4 || bytes == 8));
  if (!good) ptx_fail(p, "cp.async.ca copies 4, 8 or 16 bytes, cp.async.cg 16");
  if (ptx_accept(p, ",")) {
    size = ptx_take_source(p, PTX_U32);
    if (ptx_accept(p, ",")) ptx_take_source(p, PTX_B64);
  }
  to.slot = with_offset(p, &to);
  ptx_ins *ins = ptx_emit(p, PTX_OP_CP_ASYNC);
  ins->d = to.slot, ins->a = from.slot, ins->b = size, ins->e = to.is_narrow, ins->imm = from.offset;
  ins->bytes = (uint8_t)bytes;
}

static uint32_t take_whole(ptx_parser *p, ptx_space *space) {
  place at = take_place(p, space);
  return with_offset(p, &at);
}

static uint32_t take_box(ptx_parser *p, uint32_t *out_map) {
  uint32_t coordinates[3];
  ptx_expect(p, "[");
  *out_map = ptx_take_source(p, PTX_B64);
  ptx_expect(p, ",");
  if (ptx_take_vector(p, PTX_B32, false, false, coordinates, 3) != 3) ptx_fail(p, "3 coordinates are due");
  ptx_expect(p, "]");
  return ptx_add_list(p, coordinates, 3);
}

/* cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [map, {x, y, z}], [from] */
static void parse_bulk_store(ptx_parser *p, char **parts) {
  ptx_space shared = PTX_SHARED;
  if (strcmp(parts[3], "tensor") || strcmp(parts[4], "3d") || strcmp(parts[5], "global")) ptx_unknown(p);
  uint32_t map, box = take_box(p, &map);
  ptx_expect(p, ",");
  uint32_t from = take_whole(p, &shared);
  ptx_ins *ins = ptx_emit(p, PTX_OP_BULK_STORE);
  ins->d = from, ins->a = map, ins->b = box;
}

/* cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [to], [map, {x, y, z}], [barrier] */
static void parse_bulk_copy(ptx_parser *p, char **parts, int count) {
  ptx_space shared = PTX_SHARED;
  if (count > 3 && (!strcmp(parts[3], "commit_group") || !strcmp(parts[3], "wait_group"))) {
    while (!ptx_is(p, ";") && p->token.kind != PTX_TOKEN_END) ptx_next(p);
    return;
  }
  if (count == 8 && !strcmp(parts[7], "bulk_group")) {
    parse_bulk_store(p, parts);
    return;
  }
  bool known = count == 8 && !strcmp(parts[3], "tensor") && !strcmp(parts[4], "3d") &&
               !strncmp(parts[5], "shared::", 8) && !strcmp(parts[6], "global") &&
               !strcmp(parts[7], "mbarrier::complete_tx::bytes");
  if (!known) ptx_unknown(p);
  uint32_t to = take_whole(p, &shared);
  ptx_expect(p, ",");
  uint32_t map, list = take_box(p, &map);
  ptx_expect(p, ",");
  uint32_t barrier = take_whole(p, &shared);
  ptx_ins *ins = ptx_emit(p, PTX_OP_BULK_COPY);
  ins->d = to, ins->a = map, ins->b = list, ins->c = barrier;
}

static void parse_cp(ptx_parser *p, char **parts, int count) {
  if (count < 3 || strcmp(parts[1], "async")) ptx_unknown(p);
  if (!strcmp(parts[2], "bulk")) {
    parse_bulk_copy(p, parts, count);
    return;
  }
  if (!strcmp(parts[2], "commit_group")) {
    ptx_emit(p, PTX_OP_CP_COMMIT);
  } else if (!strcmp(parts[2], "wait_group")) {
    int64_t left = ptx_take_u32(p);
    ptx_emit(p, PTX_OP_CP_WAIT)->imm = left;
  } else if (!strcmp(parts[2], "wait_all")) {
    ptx_emit(p, PTX_OP_CP_WAIT)->imm = -1;
  } else if (!strcmp(parts[2], "ca") || !strcmp(parts[2], "cg")) {
    for (int i = 3; i < count; i++)
      if (strncmp(parts[i], "shared", 6) && strcmp(parts[i], "global") && !is_ignored(parts[i])) ptx_unknown(p);
    parse_copy(p, !strcmp(parts[2], "cg"));
  } else {
    ptx_unknown(p);
  }
}

/* ---- mbarrier ---- */

static void parse_mbarrier(ptx_parser *p, char **parts, int count) {
  ptx_space space = PTX_SHARED;
  const char *what = count > 1 ? parts[1] : "";
  bool tries = !strcmp(what, "try_wait") || !strcmp(what, "test_wait"), arrives = !strcmp(what, "arrive"),
       begins = !strcmp(what, "init"), with_bytes = arrives && count > 2 && !strcmp(parts[2], "expect_tx");
  if (!tries && !arrives && !begins) ptx_unknown(p);
  if (tries && (count < 3 || strcmp(parts[2], "parity"))) ptx_unknown(p);
  uint32_t to = tries ? ptx_take_destination(p, PTX_PRED) : 0;
  if (tries || (arrives && ptx_accept(p, "_"))) ptx_expect(p, ",");
  place at = take_place(p, &space);
  uint32_t second = ptx_constant_slot(p, 0);
  if (tries || begins || with_bytes) {
    ptx_expect(p, ",");
    second = ptx_take_source(p, PTX_U32);
  }
  ptx_ins *ins = ptx_emit(p, tries ? PTX_OP_MBARRIER_TRY : arrives ? PTX_OP_MBARRIER_ARRIVE : PTX_OP_MBARRIER_INIT);
  ins->d = to, ins->a = at.slot, ins->b = second, ins->e = at.is_narrow, ins->imm = at.offset;
}

/* prefetch, prefetchu, discard, applypriority: of no effect, and allowed anywhere. */
static void parse_prefetch(ptx_parser *p, char **parts, int count) {
  (void)parts, (void)count;
  while (!ptx_is(p, ";") && p->token.kind != PTX_TOKEN_END) ptx_next(p);
}

static void parse_createpolicy(ptx_parser *p, char **parts, int count) {
  (void)parts, (void)count;
  uint32_t to = ptx_take_destination(p, PTX_B64);
  while (!ptx_is(p, ";") && p->token.kind != PTX_TOKEN_END) ptx_next(p);
  uint32_t none = ptx_constant_slot(p, 0);
  ptx_ins *ins = ptx_emit(p, PTX_OP_MOV);
  ins->d = to, ins->a = none;
}

ptx_instruction_fn *ptx_memory_instruction(const char *mnemonic) {
  static const struct {
    const char *mnemonic;
    ptx_instruction_fn *parse;
  } table[] = {{"ld", parse_ld},
               {"ldu", parse_ld},
               {"st", parse_st},
               {"atom", parse_atomic},
               {"red", parse_atomic},
               {"cp", parse_cp},
               {"mbarrier", parse_mbarrier},
               {"prefetch", parse_prefetch},
               {"prefetchu", parse_prefetch},
               {"discard", parse_prefetch},
               {"applypriority", parse_prefetch},
               {"createpolicy", parse_createpolicy}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (!strcmp(table[i].mnemonic, mnemonic)) return table[i].parse;
  return NULL;
}
