/* Shared by the files of codegen/: what is known of a nest before it is written, and the texts of a unit's head. */
#ifndef WICK_CODEGEN_INTERNAL_H
#define WICK_CODEGEN_INTERNAL_H

#include "codegen/codegen.h"

/* The heads' texts, made from the headers of the same names by tools/embed_text.py. */
extern const char wk__unit_head[], wk__unit_abi[], wk__unit_imports[], wk__unit_intrinsics[], wk__unit_machine[],
    wk__unit_math_f32[], wk__unit_math_f64[], wk__unit_scalar_math[], wk__unit_vector[], wk__unit_reduce[];

typedef enum value_place {
  PLACE_NONE,    /* a store, or a constant, which is written where it is used */
  PLACE_UNIFORM, /* the same everywhere */
  PLACE_ROW,     /* one a row (column) */
  PLACE_ELEMENT, /* one an element */
  PLACE_KEPT,    /* one an element; by rows, kept for a later phase */
} value_place;

/* A nest as the writer sees it. Arrays are by instruction. */
typedef struct analysis {
  const wk__nest *nest;
  bool has_rows;       /* the nest has reduction dims */
  uint8_t *place;      /* value_place */
  uint16_t *number;    /* among the values of its place */
  uint16_t *reduction; /* of a reduction or scan: among those */
  uint64_t *wanted_in; /* phases (bits) that need it by elements when nothing is kept */
  uint16_t *home;      /* of a kept value: one more than the access in whose row it is kept; 0: memory of its own */
  bool *needed;        /* what the phase at hand needs; see mark_needed */
  int phases;          /* one more than the stages */
  int row_count;       /* values per row */
  int kept_count;      /* values that rows keep */
  int reduction_count; /* reductions and scans */
  bool has_store_add;
} analysis;

WK_MUST_USE wk_status analyse(const wk__nest *nest, analysis *out); /* released also after a failure */
void release_analysis(analysis *a);
/* Sets a->needed to what a phase computes by elements. When keeping, kept values of earlier phases are needed, but what
 * they were computed from is not. */
void mark_needed(analysis *a, int phase, bool keeping);
int walker_of(const analysis *a, wk__var v); /* of an instruction with an expression */
int walker_count(const analysis *a);         /* bounds of masked loads included */
bool is_loaded_from_kept(const analysis *a, wk__var v, int phase);

enum { STATE_STRIPS = 32 }; /* columns: of a reduction or scan, lanes or less */

/* Where instructions are written: into a kernel function, or into the body of a phase, which handles S elements at j.
 */
typedef struct target {
  analysis *a;
  wk__string *out;
  wk__c_mode mode;
  int phase;
  bool body;
  bool put; /* into the part of a body that stores: values come from the other part */
} target;

static inline bool by_strips(const target *t) { return t->mode == WK__C_COLUMNS; }

char letter_of(int compute);        /* f, d, l, b: of functions */
char type_of(int compute);          /* F, D, L, B: of values */
const char *memory_name(int dtype); /* f32, bf16, ... */
const char *combiner_of(int op);    /* add, mul, max, min */
void write_identity(wk__string *out, int op, int compute);
int operand_dtype(const analysis *a, const wk__instr *i); /* of the first; of `where`, of the second */
void write_operand(const target *t, wk__var v);
void write_instr(const target *t, wk__var v); /* statements, with the IR's text as a comment */
void write_keep(const target *t, wk__var v);  /* of a value that rows keep */
void write_kept_load(const target *t, wk__var v);
void write_comment(const target *t, wk__var v);

#endif
