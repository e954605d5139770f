/* Shared by the files of the PTX writer: what is being written, and the names of its registers. */
#ifndef WICK_CODEGEN_PTX_INTERNAL_H
#define WICK_CODEGEN_PTX_INTERNAL_H

#include "codegen/ptx.h"

/* Of a body of scores (ptx_scores.c), whose values and arguments have names of their own. */
typedef struct ptx_scores_names {
  uint8_t *needs; /* by instruction: which places (bits) its value depends on */
  int body;       /* a number of its own */
  int key_count, faults_arg, captured_args;
} ptx_scores_names;

typedef struct ptx_writer {
  const wk__nest *nest;
  const wk__ptx_shape *shape;
  wk__ptx_kernel *out;
  wk__string body;
  wk__var expressions[WK__MAX_WALKERS]; /* instructions whose walkers stand behind the accesses' */
  int expression_count;
  bool *varies;                 /* by instruction: another value for each of the thread's elements; else one for all */
  bool *emitted;                /* by instruction */
  uint64_t tables;              /* functions (bits) whose tables are read */
  int unique;                   /* for names */
  int phase;                    /* prefix of registers in long rows, where phases compute values again */
  const wk__ptx_behind *behind; /* of a nest inside of another kernel, else NULL */
  const ptx_scores_names *scores; /* of a body of scores, else NULL */
  const wk__ptx_piece *pieces;
  int piece, first_arg;               /* which one is written; where the nest's arguments begin */
  uint8_t kept_by[WK__PTX_MOST_KEPT]; /* by access that is kept: the phase that puts it there */
  bool scratch;                       /* states are in the scratch memory, else shared */
  bool whole;                         /* all elements of the step are there: none is guarded */
  bool unsupported;
} ptx_writer;

static inline const wk__instr *ptx_instr(const ptx_writer *w, int v) { return &w->nest->instrs[v]; }

enum { NAME = 40 };
typedef struct reg_name {
  char text[NAME];
} reg_name;

/* A line of the body. */
void ptx_line(ptx_writer *w, const char *format, ...) WK_PRINTF(2, 3);
/* A new register of a type ("f32", "b64", "pred"), declared. */
reg_name ptx_new(ptx_writer *w, const char *type);
/* The register of instruction v's value for element k. */
reg_name ptx_value(const ptx_writer *w, int v, int k);
const char *ptx_type(int compute); /* of registers of a compute dtype */

/* An argument's number; one that was asked for before is the same. */
int ptx_arg(ptx_writer *w, int kind, int a, int b);
/* A 64-bit register with an argument. */
reg_name ptx_load_arg(ptx_writer *w, int kind, int a, int b);

/* "@%in3 " where element k may not be there, else "". */
reg_name ptx_guard(const ptx_writer *w, int k);
/* The same for what instruction v does: of a row's value all of it is there. */
reg_name ptx_value_guard(const ptx_writer *w, int v, int k);

/* Which values are different for the thread's elements. */
void ptx_find_varying(ptx_writer *w);
/* A pointwise nest: what is there for each element, then stores. */
void ptx_write_pointwise(ptx_writer *w);
/* Declarations of the tables that functions read. */
void ptx_declare_tables(const ptx_writer *w, wk__string *out);

/* ---- ptx_pieces.c ---- */

/* The register with word n of what the access loads for the piece that is written. */
reg_name ptx_piece_word(const ptx_writer *w, int access, int n);
/* %c0 and %c1 of the piece. */
void ptx_begin_piece(ptx_writer *w);

/* ---- ptx_scores.c: ptx_value and ptx_arg of a body of scores ---- */

reg_name ptx_score_value(const ptx_writer *w, int v, int k);
int ptx_score_arg(ptx_writer *w, int kind, int a, int b);

/* ---- ptx_operations.c ---- */

/* Instruction v, no load, store or reduction, for element k: its register is declared here. */
void ptx_operation(ptx_writer *w, int v, int k);
/* `out` = the function of that name of one or two arguments. */
void ptx_call(ptx_writer *w, const char *name, const char *out, const char *a, const char *b);
/* to = combine(a, b) as a reduction or scan does it; of floats and integers. */
void ptx_combine(ptx_writer *w, int op, int compute, const char *to, const char *a, const char *b);
/* A predicate: is b better than a, as an arg reduction sees it? */
reg_name ptx_better(ptx_writer *w, int op, int compute, const char *a, const char *b);
/* to = the identity of a reduction. */
void ptx_identity(ptx_writer *w, int op, int compute, const char *to);

/* ---- ptx_memory.c ---- */

/* Value of a walker that is a number (an index expression or a bound), for element k: a 64-bit register. */
reg_name ptx_number_at(ptx_writer *w, int walker, int k);
/* Loads of instruction v for all elements of the thread. */
void ptx_load(ptx_writer *w, int v);
void ptx_store(ptx_writer *w, int v);
/* An addition of a float to the element at an address as the shape's `adds` says. ptx_exact.c */
void ptx_add_exactly(ptx_writer *w, int access, int dtype, const char *value, const char *address, int offset,
                     const char *guard);
/* out = the element at an address that nothing writes to meanwhile. */
void ptx_load_constant(ptx_writer *w, int dtype, const char *out, reg_name address);
/* What is the same for all of a thread's elements: coordinates and addresses, before anything is loaded. */
void ptx_prepare(ptx_writer *w);
/* Whether an access is of 16-byte vectors. */
bool ptx_is_vector(const ptx_writer *w, const wk__instr *i);
/* to += coordinate * the access's stride with a loop. */
void ptx_add_moved(ptx_writer *w, const char *to, int walker, int loop, const char *coordinate);
/* How far apart a thread's elements are. */
int ptx_distance(const ptx_writer *w);
/* Long rows: the addresses of a step, whose first element is in %e. */
void ptx_prepare_step(ptx_writer *w);

/* Tiles: the loop that a thread's elements go along, 8 apart; the innermost one is that of a warp's lanes. */
static inline int ptx_tile_loop(const ptx_writer *w) { return w->shape->warps; }
static inline bool ptx_is_tiles(const ptx_writer *w) { return w->shape->mode == WK__PTX_TILES; }
/* The loop that the elements of a thread of a nest without rows go along. */
static inline int ptx_inner_loop(const ptx_writer *w) { return ptx_is_tiles(w) ? ptx_tile_loop(w) : w->shape->p - 1; }
/* A load whose neighbours lie along the tile's other loop. */
static inline bool ptx_lies_across(const ptx_writer *w, int access) {
  return ptx_is_tiles(w) && wk__ptx_move(w->shape, access, ptx_tile_loop(w)) == WK__PTX_ONE &&
         wk__ptx_move(w->shape, access, w->shape->p - 1) == WK__PTX_STRIDED;
}

/* Scans: an access whose elements of the step lie in shared memory, from %own<access> on. ptx_scan_tiles.c */
bool ptx_is_tiled(const ptx_writer *w, const wk__instr *i);

/* Emits what an instruction gives for all elements. */
void ptx_emit(ptx_writer *w, int v);

#endif
