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

/* Where positions lie in shared memory: bit p is so many bytes; of several bits the exclusive or of theirs. */
typedef struct form {
  int bytes[TILE_BITS];
} form;

typedef struct variant {
  uint8_t layout;
  bool made;
  int base; /* its first register */
} variant;

/* ---- products of warpgroups (ptx_tile_groups.c, ptx_tile_rings.c) ---- */

/* A load of a loop that products read in shared memory alone: copies of some rounds are on their way into a ring of
 * slots. In the IR it is a chain of carries (tile/pipeline.c), which have no registers then. */
typedef struct ring {
  wk__tile head, load; /* the carry that products read; the load in the loop */
  int offset;          /* bytes, of a slot */
} ring;

enum { MAX_RINGS = 16, MAX_STAGED = 8, MAX_PENDING = 16 };

/* A loop that has rings: all in one slot of a round. */
typedef struct staged_loop {
  wk__tile loop, end;
  wk__tile first_load, first_product; /* in front of it, in it */
  int rounds, slots;                  /* rounds that copies are ahead */
  bool changes_sums;                  /* between products */
  bool late;                          /* products of the round before may read while the next copies begin */
  int bytes;                          /* of a slot */
  int rings[MAX_RINGS], count;
  int scratch;     /* word: shared memory behind the slots */
  int read, write; /* words, bytes: the slot of this round, that which is filled next */
} staged_loop;

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
  int shared;        /* bytes */
  int shared_offset; /* of shared_base */
  uint64_t tables;
  int unique;
  int done; /* label of the kernel's end */
  bool unsupported;
  bool approximates; /* there are products on tensor cores, whose bits are theirs: exponentials are the device's, too */
  int stages;        /* of loops */
  bool has_groups;   /* products of warpgroups */
  ring rings[MAX_RINGS];
  staged_loop staged[MAX_STAGED];
  int ring_count, staged_count;
  int ring_base, kept_bytes;     /* word: where kept operands are, and behind them slots */
  int outside;                   /* word: in a staged loop, shared_base outside of it: where its slots are */
  uint8_t *ring_of;              /* (instructions) of rings' carries and loads: the ring's number and 1 */
  uint8_t *stage;                /* (instructions) of rings' loads in front of a loop: the round and 1 */
  int *kept;                     /* (instructions) of operands that lie in shared memory all the time: where, and 1 */
  wk__tile *sums_of;             /* (instructions) of products: the carry whose registers they add to */
  wk__tile pending[MAX_PENDING]; /* products that are under way, in their order */
  int pending_count;
  int *looks; /* at values in the search at hand: what is shared is looked at again, so a search has an end */
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
static inline bool is_zero(const wk__tile_instr *i) {
  return i->op == WK__TILE_constant && (i->number.category == WK__FLOAT_KIND ? i->number.d == 0 : i->number.i == 0);
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
/* ---- ptx_tile.c ---- */
void emit_all(tile_writer *w);

/* ---- ptx_tile_neighbours.c ---- */

/* How a pointer's or mask's elements go on from one to the next along a dim. */
typedef enum going { SAME, NEXT, ANYHOW } going;
typedef struct progress {
  going how;
  int zeros; /* low bits of the value that are 0, where the coordinate is a multiple of `each` */
} progress;
progress progress_of(const tile_writer *w, wk__tile v, int dim, int each_bits, int depth);
int fast_dim(const tile_writer *w, wk__tile pointer); /* the one whose neighbours lie side by side; else the last */

/* ---- ptx_tile_values.c ---- */
int new_registers(tile_writer *w, reg_class c, int count);
/* The value's first register in a layout, in which it has been made; scalars have their own. */
int value_in(tile_writer *w, wk__tile v, int layout_at);
int registers_in(tile_writer *w, wk__tile v, int layout_at); /* the same, of a product that may be under way */
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
/* How many elements one access takes, as a power of two. */
int vector_bits_of(const tile_writer *w, wk__tile pointer, wk__tile mask, const layout *l);

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
/* The way of a layout's registers to a place in shared memory. */
typedef struct through {
  const layout *l;
  form f;
  int item, base; /* base: a word, the thread's part */
  int origin;     /* word: where the place begins: shared_base at first */
  int set;        /* bits of an address that may be set in the thread's part */
  int vector;     /* neighbours in one access, as a power of two */
} through;
through begin_through(tile_writer *w, const wk__tile_type *t, const layout *l, const form *f);
/* The word and the bytes behind it where a register's element lies. */
int address_of(tile_writer *w, const through *x, int reg, int *out_offset);
/* Registers from `base` on to their place. */
void leave_in(tile_writer *w, const wk__tile_type *t, const layout *l, int base, const through *x);
/* An element of shared memory; `address`: a word, `offset` bytes behind it. */
void store_shared(tile_writer *w, const wk__tile_type *t, int reg, int address, int offset, int predicate);
void load_shared(tile_writer *w, const wk__tile_type *t, int reg, int address, int offset);
int shared_item(const wk__tile_type *t); /* bytes */
void need_shared(tile_writer *w, int64_t bytes);
/* A predicate that is true in one of the threads that hold the same elements; -1: all hold others. */
int primary(tile_writer *w, const layout *l);

/* ---- ptx_tile_reduce.c ---- */
int emit_reduce(tile_writer *w, wk__tile v, int at);
int emit_scan(tile_writer *w, wk__tile v, int at);

/* ---- ptx_tile_dot.c ---- */
int emit_dot(tile_writer *w, wk__tile v, int at);
/* Neighbours along k, which a fragment holds as one word. */
int pack_pairs(tile_writer *w, int base, int count);

/* ---- ptx_tile_groups.c: products by wgmma ---- */

/* Where one has an operand: in registers (the first alone); in a ring; in shared memory all the time, or just for it.
 */
typedef enum group_place { IN_REGISTERS, IN_RING, KEPT, PASSING } group_place;
typedef struct group_operand {
  group_place place;
  wk__tile root;   /* the value that lies there: the operand, or what it is the transpose of */
  bool across;     /* its lines lie across k */
  int line, panel; /* bytes: ptx_groups.h */
  form form;       /* of the root's positions */
} group_operand;
group_operand group_operand_of(const tile_writer *w, wk__tile dot, int o);
form group_form(const wk__tile_type *t, int fast);         /* lines along the dim `fast` */
int register_dim(const wk__tile_type *t, const layout *l); /* the dim whose neighbours a thread has; else the last */
bool uses_groups(const tile_writer *w, wk__tile dot);
layout group_layout(const tile_writer *w, const wk__tile_type *t);
/* Which operands are kept, and which products add in place; behind find_rings. */
void plan_groups(tile_writer *w);
int emit_group_dot(tile_writer *w, wk__tile v, int at);
/* A kept operand goes to its place when it is made. */
void keep(tile_writer *w, wk__tile v);
/* Waits for products: for the one whose result or sums v are; for all; at the end of a round. */
void settle(tile_writer *w, wk__tile v);
void settle_all(tile_writer *w);
void settle_all_but_last(tile_writer *w);
void settle_last_round(tile_writer *w);                                   /* products that have begun again */
bool is_deferred(const tile_writer *w, const staged_loop *s, wk__tile v); /* the next round begins without it */
/* Whether sums of products are changed by something else in each round, as attention's are. */
bool changes_sums(const tile_writer *w, wk__tile loop, wk__tile end);

/* ---- ptx_tile_rings.c ---- */

/* rounds: (instructions) how many rounds ahead loads are wanted: of those that rings may hold. */
void wanted_rounds(tile_writer *w, uint8_t *rounds, int stages);
void find_rings(tile_writer *w);
staged_loop *staged_of(tile_writer *w, wk__tile loop); /* NULL: it has no rings */
void begin_shared(tile_writer *w);                     /* the words above, at the kernel's start */
void emit_ring_load(tile_writer *w, wk__tile load);
/* A round's copies have arrived; those of the next one that has none begin, where nothing reads their slot any more. */
void await_round(tile_writer *w, const staged_loop *s);
void begin_copies(tile_writer *w, staged_loop *s);
void begin_staged(tile_writer *w, staged_loop *s); /* at the top of the loop */
void end_round(tile_writer *w, staged_loop *s);
void end_staged(tile_writer *w, staged_loop *s); /* behind it */
static inline bool in_ring(const tile_writer *w, wk__tile v) { return w->ring_of[v] != 0; }

#define SAY(...) wk__ptx_say(&w->text, __VA_ARGS__)
#define TWO(op, a, b) wk__ptx_two(&w->text, op, a, b)
#define WITH(op, a, c) wk__ptx_with(&w->text, op, a, c)
static inline int new_word(tile_writer *w) { return wk__ptx_words(&w->text, 1); }

#endif
