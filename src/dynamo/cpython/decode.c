/* Reads a version's bytecode into the normal form (normal.h): opcodes_3XX.def says which kind an opcode is. */
#include "dynamo/cpython/version.h"

#include "dynamo/capture/operations.h"

/* An opcode's kind and argument. */
typedef struct meaning {
  uint8_t kind;
  int32_t argument;
} meaning;

#define MEANING(kind_name, argument_value) \
  (meaning) { .kind = WK__I_##kind_name, .argument = (argument_value) }

#if PY_VERSION_HEX >= 0x030C0000
static meaning wk__attribute(int a) { return a & 1 ? MEANING(LOAD_METHOD, a >> 1) : MEANING(LOAD_ATTR, a >> 1); }

/* What 3.11 had instructions for; argument 1 where the intrinsic leaves a None that the instruction did not. */
static meaning wk__intrinsic_1(int a) {
  switch (a) {
    case INTRINSIC_PRINT:
      return MEANING(PRINT, 1);
    case INTRINSIC_IMPORT_STAR:
      return MEANING(IMPORT_STAR, 1);
    case INTRINSIC_STOPITERATION_ERROR:
      return MEANING(STOP_ITERATION_ERROR, 0);
    case INTRINSIC_UNARY_POSITIVE:
      return MEANING(UNARY, WK__UNARY_POSITIVE);
    case INTRINSIC_LIST_TO_TUPLE:
      return MEANING(LIST_TO_TUPLE, 0);
    default: /* asynchronous generators, type parameters */
      return MEANING(UNKNOWN, a);
  }
}
static meaning wk__intrinsic_2(int a) {
  return a == INTRINSIC_PREP_RERAISE_STAR ? MEANING(JOIN_GROUPS, 0) : MEANING(UNKNOWN, a);
}
#endif

static meaning meaning_of(int opcode, int a) {
  (void)a;
  switch (opcode) {
#define OPCODE(name, caches, kind_name, argument_value) \
  case name:                                            \
    return (meaning){.kind = WK__I_##kind_name, .argument = (argument_value)};
#define OPCODE_BY(name, caches, meaning_value) \
  case name:                                   \
    return meaning_value;
#include WK__OPCODES
#undef OPCODE
#undef OPCODE_BY
    default:
      return MEANING(UNKNOWN, 0);
  }
}

static const uint8_t cache_entries[256] = {
#define OPCODE(name, caches, kind_name, argument_value) [name] = (caches),
#define OPCODE_BY(name, caches, meaning_value) [name] = (caches),
#include WK__OPCODES
#undef OPCODE
#undef OPCODE_BY
};

int wk__opcode_caches(int opcode) { return cache_entries[opcode]; }

const char *wk__opcode_name(int opcode) {
  static const char *const names[256] = {
#define OPCODE(name, caches, kind_name, argument_value) [name] = #name,
#define OPCODE_BY(name, caches, meaning_value) [name] = #name,
#include WK__OPCODES
#undef OPCODE
#undef OPCODE_BY
  };
  return names[opcode] ? names[opcode] : "CACHE";
}

/* From 3.13 on a function gets its defaults, annotations and closure after it is made, from below it on the stack: in
 * the same order in which one MAKE_FUNCTION with flags took them. */
static int absorb_function_attributes(const uint8_t *units, int at, int count, int32_t *flags) {
#ifdef SET_FUNCTION_ATTRIBUTE
  for (; at < count && units[2 * at] == SET_FUNCTION_ATTRIBUTE; at++) *flags |= units[2 * at + 1];
#else
  (void)units, (void)count, (void)flags;
#endif
  return at;
}

void wk__decode(const uint8_t *units, int count, wk__instruction *out) {
  for (int start = 0, end; start < count; start = end) {
    int at = start, argument = units[2 * at + 1];
    for (; units[2 * at] == EXTENDED_ARG && at + 1 < count; at++) argument = argument << 8 | units[2 * at + 3];
    int opcode = units[2 * at];
    meaning m = meaning_of(opcode, argument);
    end = at + 1 + cache_entries[opcode];
    if (m.kind == WK__I_MAKE_FUNCTION) end = absorb_function_attributes(units, end, count, &m.argument);
    if (end > count) end = count;
    for (int i = start; i < end; i++)
      out[i] = (wk__instruction){.kind = m.kind,
                                 .opcode = (uint8_t)opcode,
                                 .width = (uint8_t)(end - i),
                                 .prefixes = (uint8_t)(i < at ? at - i : 0),
                                 .argument = m.argument};
  }
}
