/* Shared by the files of the tile kernels' writer. */
#ifndef WICK_CODEGEN_PTX_TILE_INTERNAL_H
#define WICK_CODEGEN_PTX_TILE_INTERNAL_H

#include "codegen/ptx.h"
#include "codegen/ptx_text.h"
#include "codegen/ptx_tile.h"

enum { TILE_BITS = 20, MAX_LAYOUTS = 96, MAX_VARIANTS = 6, THREAD = 32, MAX_REGISTERS = 1024, MOST_LOOKS = 4096 };

/* bit[p]: where bit p of a position is: bit r of a register's number, or THREAD + t of the thread's. */
typedef struct layout {
  uint8_t bits;
  uint8_t rank; /* of several operands' layouts the highest is taken: 1; 2 of products */
  uint8_t bit[TILE_BITS];
} layout;

/* Registers by class: %rN (f32, integers up to 32 bits, sign- or zero-extended), %dN (64 bits), %hN (f16, bf16 as they
 * lie in memory), %pN (bools). */
typedef enum reg_class { CLASS_R, CLASS_D, CLASS_H, CLASS_P } reg_class;

typedef struct variant {
  uint8_t layout;
  bool made;
  int base; /* its first register */
} variant;

typedef struct tile_writer {
  wk__ptx_text text;
  const wk__tile_kernel *k;
  const wk__ptx_tile_kind *kind;
  int threads, thread_bits;
  int vector_bits; /* neighbours that a thread has at most, as a power of two */
  layout layouts[MAX_LAYOUTS];
  int place[MAX_LAYOUTS]; /* a word: the thread's part of positions in that layout */
  int layout_count;
  uint8_t *own;   /* (instructions) layout that a value is computed in, 1 and more; 0: not known */
  uint8_t *free;  /* (instructions) bool: computed again in each layout */
  uint8_t *step;  /* (instructions) of pointers: each 2^step-th register is read */
  uint8_t *order; /* (instructions) of pointers: the dim along which they are neighbours, one more than it */
  variant (*variants)[MAX_VARIANTS];
  uint8_t *variant_count;
  int tid, shared_base;
  int shared; /* bytes */
  uint64_t tables;
  int unique;
  int done; /* label of the kernel's end */
  bool unsupported;
  bool approximates; /* there are products on tensor cores, whose bits are theirs: exponentials are the device's, too */
  int *looks;        /* at values in the search at hand: what is shared is looked at again, so a search has an end */
} tile_writer;

static inline const wk__tile_instr *instr_at(const tile_writer *w, wk__tile v) { return &w->k->instrs[v]; }
static inline const wk__tile_type *type_at(const tile_writer *w, wk__tile v) { return &w->k->instrs[v].type; }
static inline int log2_of(int64_t n) { return 63 - __builtin_clzll((uint64_t)n); }
static inline reg_class class_of(const wk__tile_type *t) {
  if (t->pointer || wk__dtypes[t->dtype].size == 8) return CLASS_D;
  if (t->dtype == WK_BOOL) return CLASS_P;
  return t->dtype == WK_FLOAT16 || t->dtype == WK_BFLOAT16 ? CLASS_H : CLASS_R;
}
static inline bool is_float_type(const wk__tile_type *t) {
  return !t->pointer && wk__dtype_category((wk_dtype)t->dtype) == WK__FLOAT_KIND;
}
static const char class_letter[] = {'r', 'd', 'h', 'p'};

/* ---- ptx_tile_layout.c ---- */

int layout_number(tile_writer *w, const layout *l); /* the same layout has the same number */
int registers_of(const layout *l);
int position_of(const layout *l, int reg);                 /* the register's part of a position */
int register_at(const layout *l, int position);            /* the register that has it, in some thread */
int unused_threads(const tile_writer *w, const layout *l); /* bits of the thread that hold the same elements */
/* Bits of positions that dim d is: how many, the first. */
void bits_of_dim(const wk__tile_type *t, int d, int *out_first, int *out_count);
layout default_layout(const tile_writer *w, const wk__tile_type *t, int fast);
layout product_layout(const tile_writer *w, const wk__tile_type *t, bool by_rows);
layout operand_layout(const tile_writer *w, const wk__tile_type *t, const layout *result, bool second);
layout without_axis(const layout *l, const wk__tile_type *t, int axis);
/* Of a broadcast, view or permute: the operand's position that a position of the value comes from. */
int source_position(const tile_writer *w, wk__tile v, int position);
layout source_layout(const tile_writer *w, wk__tile v, const layout *l);
bool uses_tensor_cores(const tile_writer *w, wk__tile dot);
int store_layout(tile_writer *w, wk__tile v); /* where a store computes: as its pointers lie */
wk_status choose_layouts(tile_writer *w);
/* How a pointer's or mask's elements go on from one to the next along a dim. */
typedef enum going { SAME, NEXT, ANYHOW } going;
typedef struct progress {
  going how;
  int zeros; /* low bits of the value that are 0, where the coordinate is a multiple of `each` */
} progress;
progress progress_of(const tile_writer *w, wk__tile v, int dim, int each_bits, int depth);

/* ---- ptx_tile_values.c ---- */
int new_registers(tile_writer *w, reg_class c, int count);
/* The value's first register in a layout, in which it has been made; scalars have their own. */
int value_in(tile_writer *w, wk__tile v, int layout_at);
/* emit_...: a value in a layout: its first register. */
int emit_map(tile_writer *w, wk__tile v, int at);
int base_of(tile_writer *w, wk__tile v, int at); /* the same for an operand in the layout of its instruction */
void emit_constant(tile_writer *w, const wk__tile_instr *i, int base, int count);
void emit_cast(tile_writer *w, const wk__tile_type *from, const wk__tile_type *to, int out, int in);
void emit_bits(tile_writer *w, const wk__tile_type *from, const wk__tile_type *to, int out, int in);
int emit_power(tile_writer *w, wk__tile v, int at);
int emit_philox(tile_writer *w, wk__tile v, int at);
void call_function(tile_writer *w, const char *name, const char *out, const char *a, const char *b);
/* A value as a 32-bit (or 64-bit) register to compute with, and back: a small float as f32. */
int widen(tile_writer *w, const wk__tile_type *t, int reg);
void narrow(tile_writer *w, const wk__tile_type *t, int out, int in);
void wrap_integer(tile_writer *w, const wk__tile_type *t, int reg);
/* out = op(a, b), an operation of the loop IR, on registers as they hold values of the type. */
void combine(tile_writer *w, int op, const wk__tile_type *t, int out, int a, int b);
void move_register(tile_writer *w, reg_class c, int out, int in);

/* ---- ptx_tile_memory.c ---- */
/* Sets w->step. */
void find_steps(tile_writer *w);
int emit_load(tile_writer *w, wk__tile v, int at);
void emit_store(tile_writer *w, wk__tile v);
int emit_atomic(tile_writer *w, wk__tile v, int at);

/* ---- ptx_tile_shared.c ---- */
int place_of(tile_writer *w, const layout *l); /* a word: the thread's part of positions */
bool is_renaming(const layout *from, const layout *to);
/* A value in another layout: registers from `base` on in layout `from`, from `out` on in `to`. Several at once share
 * two barriers. */
enum { MAX_CHANGES = 8 };
typedef struct change {
  const wk__tile_type *t;
  int from, base, to, out;
} change;
void convert(tile_writer *w, const change *changes, int count);
int emit_reduce(tile_writer *w, wk__tile v, int at);
int emit_scan(tile_writer *w, wk__tile v, int at);
/* An element of shared memory; `address`: a word, `offset` bytes behind it. */
void store_shared(tile_writer *w, const wk__tile_type *t, int reg, int address, int offset, int predicate);
void load_shared(tile_writer *w, const wk__tile_type *t, int reg, int address, int offset);
int shared_item(const wk__tile_type *t); /* bytes */
void need_shared(tile_writer *w, int64_t bytes);
/* A predicate that is true in one of the threads that hold the same elements; -1: all hold others. */
int primary(tile_writer *w, const layout *l);

/* ---- ptx_tile_dot.c ---- */
int emit_dot(tile_writer *w, wk__tile v, int at);

#define SAY(...) wk__ptx_say(&w->text, __VA_ARGS__)
#define TWO(op, a, b) wk__ptx_two(&w->text, op, a, b)
#define WITH(op, a, c) wk__ptx_with(&w->text, op, a, c)
static inline int new_word(tile_writer *w) { return wk__ptx_words(&w->text, 1); }

#endif
