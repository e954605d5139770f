/* PTX as the emulator holds it: a module of functions, each a list of compact instructions over a frame of slots.
 *
 * ptx_parse (ptx_parse.c) takes text and gives a ptx_module; ptx_run (ptx_run.c) runs one thread of it until it ends or
 * has to wait. Every operand of an instruction is a slot of its function's frame, 64 bits wide: registers, constants
 * and special registers alike, so that the interpreter never asks what kind an operand is. An instruction reads the low
 * bits of a slot that its type has and ignores the others. Tests: tests/test_kernels.c. */
#ifndef EMULATOR_PTX_H
#define EMULATOR_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#pragma GCC visibility push(hidden)

/* ---- types ---- */

typedef enum ptx_kind {
  PTX_KIND_BITS,
  PTX_KIND_UNSIGNED,
  PTX_KIND_SIGNED,
  PTX_KIND_FLOAT,
  PTX_KIND_PREDICATE
} ptx_kind;

/* name, PTX's word, bytes, kind */
#define PTX_TYPES(X)            \
  X(NONE, "", 0, BITS)          \
  X(PRED, "pred", 1, PREDICATE) \
  X(B8, "b8", 1, BITS)          \
  X(B16, "b16", 2, BITS)        \
  X(B32, "b32", 4, BITS)        \
  X(B64, "b64", 8, BITS)        \
  X(U8, "u8", 1, UNSIGNED)      \
  X(U16, "u16", 2, UNSIGNED)    \
  X(U32, "u32", 4, UNSIGNED)    \
  X(U64, "u64", 8, UNSIGNED)    \
  X(S8, "s8", 1, SIGNED)        \
  X(S16, "s16", 2, SIGNED)      \
  X(S32, "s32", 4, SIGNED)      \
  X(S64, "s64", 8, SIGNED)      \
  X(F16, "f16", 2, FLOAT)       \
  X(F16X2, "f16x2", 4, FLOAT)   \
  X(BF16, "bf16", 2, FLOAT)     \
  X(BF16X2, "bf16x2", 4, FLOAT) \
  X(F32, "f32", 4, FLOAT)       \
  X(F64, "f64", 8, FLOAT)       \
  X(U16X2, "u16x2", 4, BITS)    \
  X(S16X2, "s16x2", 4, BITS)    \
  X(TF32, "tf32", 4, BITS)      \
  X(E4M3, "e4m3", 1, BITS)      \
  X(E5M2, "e5m2", 1, BITS)      \
  X(E4M3X2, "e4m3x2", 2, BITS)  \
  X(E5M2X2, "e5m2x2", 2, BITS)

typedef enum ptx_type {
#define X(name, word, bytes, kind) PTX_##name,
  PTX_TYPES(X)
#undef X
      PTX_TYPE_COUNT
} ptx_type;

typedef struct ptx_type_info {
  const char *word;
  uint8_t bytes, kind; /* a ptx_kind */
} ptx_type_info;
extern const ptx_type_info ptx_types[PTX_TYPE_COUNT];
ptx_type ptx_type_of(const char *word, size_t length); /* PTX_NONE when it is no type */

/* ---- modifiers, in ptx_ins.mod ---- */

typedef enum ptx_rounding { PTX_RN, PTX_RZ, PTX_RM, PTX_RP, PTX_RNA } ptx_rounding;
enum {
  PTX_MOD_ROUNDING = 7,      /* mask of a ptx_rounding */
  PTX_MOD_FTZ = 1 << 3,      /* denormal numbers of f32 count as zero */
  PTX_MOD_SAT = 1 << 4,      /* integers clamp; floats go to [0, 1] */
  PTX_MOD_NAN = 1 << 5,      /* min, max: NaN wins */
  PTX_MOD_ROUNDED = 1 << 6,  /* a rounding of floats was named */
  PTX_MOD_INTEGRAL = 1 << 7, /* .rni and the like: to a whole number */
  PTX_MOD_FINITE = 1 << 8,   /* .satfinite */
  PTX_MOD_APPROX = 1 << 9,   /* .approx or .full */
  PTX_MOD_RELU = 1 << 10,    /* what is below zero becomes zero */
  PTX_MOD_STRONG = 1 << 11,  /* volatile, relaxed, ...: no race */
  PTX_MOD_ALIGNED = 1 << 12, /* barriers: all lanes of a warp take part */
};

/* Comparisons of setp and set. The unordered ones are true for NaN. */
/* clang-format off */
#define PTX_COMPARISONS(X)                                                                                             \
  X(EQ, "eq") X(NE, "ne") X(LT, "lt") X(LE, "le") X(GT, "gt") X(GE, "ge") X(LO, "lo") X(LS, "ls") X(HI, "hi")          \
  X(HS, "hs") X(EQU, "equ") X(NEU, "neu") X(LTU, "ltu") X(LEU, "leu") X(GTU, "gtu") X(GEU, "geu") X(NUM, "num") X(NAN, "nan")
/* clang-format on */
typedef enum ptx_comparison {
#define X(name, word) PTX_CMP_##name,
  PTX_COMPARISONS(X)
#undef X
} ptx_comparison;

/* Operations of atom and red, in ptx_ins.count. */
/* clang-format off */
#define PTX_ATOMICS(X)                                                                                                 \
  X(ADD, "add") X(MIN, "min") X(MAX, "max") X(AND, "and") X(OR, "or")                                                  \
  X(XOR, "xor") X(EXCH, "exch") X(CAS, "cas") X(INC, "inc") X(DEC, "dec")
/* clang-format on */
typedef enum ptx_atomic {
#define X(name, word) PTX_ATOMIC_##name,
  PTX_ATOMICS(X)
#undef X
} ptx_atomic;

/* ---- state spaces ---- */

typedef enum ptx_space {
  PTX_GENERIC,
  PTX_GLOBAL, /* .const too: it lies in global memory */
  PTX_SHARED,
  PTX_LOCAL,
  PTX_PARAM, /* the parameters of the kernel */
  PTX_FRAME, /* parameters of functions: slots of the frame */
} ptx_space;

/* Generic addresses of the small spaces: windows at the start of the range that memory.c reserves. A window's offset is
 * the address in its space. Nothing is ever mapped there. */
enum { PTX_WINDOW_BYTES = 1 << 24, PTX_WINDOW_SHARED = 0, PTX_WINDOW_LOCAL = 1 << 24, PTX_WINDOW_PARAM = 2 << 24 };

/* ---- operations ---- */

#include "ptx_operations.h"

typedef enum ptx_op {
#define X(name, ...) PTX_OP_##name,
  PTX_OPERATIONS(X) PTX_CONTROL(X)
#undef X
      PTX_OP_COUNT
} ptx_op;

typedef struct ptx_ins {
  uint16_t op;          /* a ptx_op */
  uint16_t mod;         /* PTX_MOD_... */
  uint8_t type, type2;  /* ptx_type: of the operation; of a conversion's source, or of what else the operation needs */
  uint8_t bytes, count; /* of memory: of an element, elements */
  uint32_t d, a, b, c, e; /* slots; lists of slots for vectors: an index into ptx_function.lists */
  uint32_t line;          /* in the text */
  int64_t imm;            /* an offset, a target, a variant */
} ptx_ins;

/* What fills a slot when a frame begins, for values that differ by thread or block. */
/* clang-format off */
#define PTX_SPECIALS(X)                                                                                                \
  X(TID_X, "%tid.x") X(TID_Y, "%tid.y") X(TID_Z, "%tid.z") X(NTID_X, "%ntid.x")                                        \
  X(NTID_Y, "%ntid.y") X(NTID_Z, "%ntid.z") X(CTAID_X, "%ctaid.x") X(CTAID_Y, "%ctaid.y")                              \
  X(CTAID_Z, "%ctaid.z") X(NCTAID_X, "%nctaid.x") X(NCTAID_Y, "%nctaid.y") X(NCTAID_Z, "%nctaid.z")                    \
  X(LANEID, "%laneid") X(WARPID, "%warpid") X(NWARPID, "%nwarpid") X(SMID, "%smid")                                    \
  X(NSMID, "%nsmid") X(GRIDID, "%gridid") X(LANEMASK_EQ, "%lanemask_eq") X(LANEMASK_LE, "%lanemask_le")                \
  X(LANEMASK_LT, "%lanemask_lt") X(LANEMASK_GE, "%lanemask_ge") X(LANEMASK_GT, "%lanemask_gt") X(DYNAMIC_SMEM_SIZE, "%dynamic_smem_size") \
  X(TOTAL_SMEM_SIZE, "%total_smem_size")                                                                               \
  X(DYNAMIC_SHARED, " dynamic shared") /* the address of extern .shared arrays */                                      \
  X(LOCAL_BASE, " local base")         /* where the .local variables of a function begin */                            \
  X(CLOCK, "%clock") X(CLOCK_HI, "%clock_hi") X(CLOCK64, "%clock64") X(GLOBALTIMER, "%globaltimer")                    \
  X(GLOBALTIMER_LO, "%globaltimer_lo") X(GLOBALTIMER_HI, "%globaltimer_hi")
/* clang-format on */
typedef enum ptx_special {
#define X(name, word) PTX_SPECIAL_##name,
  PTX_SPECIALS(X)
#undef X
      PTX_SPECIAL_COUNT
} ptx_special;

typedef struct ptx_parameter {
  uint32_t offset, bytes; /* of a kernel: in its buffer */
  uint32_t slot;          /* of a function: where its value lies in the frame */
} ptx_parameter;

typedef struct ptx_frame_special {
  uint32_t slot;
  uint8_t special; /* a ptx_special */
} ptx_frame_special;

typedef struct ptx_function {
  struct ptx_module *module;
  const char *name;
  bool is_entry, is_defined;
  bool waits; /* has an instruction at which a thread may have to wait for others */
  bool calls;
  ptx_ins *code;
  uint32_t *lists; /* slots of vector operands, targets of jump tables */
  uint64_t *frame; /* what a frame begins with: constants; poison in the registers */
  ptx_frame_special *specials;
  ptx_parameter *parameters, *results;
  uint32_t code_count, list_count, slot_count, special_count, parameter_count, result_count;
  uint32_t register_count;  /* of the first slots, in front of constants */
  uint32_t parameter_bytes; /* of a kernel */
  uint32_t shared_bytes, local_bytes;
  uint32_t dynamic_alignment;    /* of extern shared arrays */
  uint32_t required[3], most[3]; /* .reqntid, .maxntid; 0: not given */
  int dynamic_shared_limit;      /* cuFuncSetAttribute; 0: the usual 48 KiB */
} ptx_function;

typedef struct ptx_variable { /* .global or .const */
  const char *name;
  uint64_t offset, bytes; /* in the module's data */
} ptx_variable;

typedef struct ptx_relocation { /* a place that waits for the address of the module's data */
  ptx_function *function;       /* a slot of its frame, or NULL: in the data itself */
  uint64_t at;
} ptx_relocation;

typedef struct ptx_module {
  struct ptx_block_of_memory *memory; /* of everything below */
  const char *source;
  ptx_function **functions;
  ptx_variable *variables;
  ptx_relocation *relocations;
  uint8_t *data; /* first values of the variables */
  uint64_t data_bytes, data_capacity;
  uint32_t function_count, variable_count, relocation_count;
  uint32_t function_shared_bytes; /* static shared memory of functions that are no kernels: at the start */
} ptx_module;

/* NULL when the text is wrong, with the reason in `error`. */
ptx_module *ptx_parse(const char *text, char *error, size_t error_bytes);
void ptx_release(ptx_module *module);
/* Adds the address of the module's data to everything that waits for it; once. */
void ptx_relocate(ptx_module *module, uint64_t base);
ptx_function *ptx_find(const ptx_module *module, const char *name); /* NULL: none of that name */
/* The text of a line of the source without blanks around it: start, and its length. */
const char *ptx_line(const ptx_module *module, uint32_t line, int *length);
void *ptx_alloc(ptx_module *module, size_t bytes); /* zeroed; freed with the module */

#pragma GCC visibility pop
#endif
