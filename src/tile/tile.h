/* The tile IR: a kernel that many program instances run, each on blocks of elements.
 *
 * A kernel has parameters (pointers and numbers) and one list of instructions. An instruction's value is a *block*: a
 * dtype, or pointers to a dtype, and a shape of up to three dims whose sizes are powers of two; without dims it is a
 * scalar. Memory is reached through blocks of pointers. Control flow is structured: `for`, `while`, `if` up to `end`,
 * and what changes in a region is a *carry*:
 *
 *     %4 = carry float32[64] %3
 *     %5 = for int32 %0 %1 %2
 *       ...
 *       set %4 %9
 *     end
 *
 * The numbers are the engine's: elements are computed as the loop IR computes them (loop/loop.h), in f32, f64, i64 or
 * bool, and rounded to the dtype after each operation; small integers wrap. What has an order:
 *
 *   reduce   folds the S elements of a row in a tree: neighbours (e with e + 1), then pairs of them (e with e + 2), and
 *            then halves, the distance S / 2, S / 4, ..., 4. Of the two the one with the lower index is the first
 *            operand.
 *   scan     takes element after element.
 *   dot      is, per element, a chain of fused multiply-adds over ascending k that starts at 0, in blocks of
 *            WK__TILE_K_BLOCK, each of which is added to the sum; on tensor cores theirs.
 *
 * Building (build.c) checks types and broadcasts, promotes numbers, and folds what is known; its errors are a
 * program's. Verifying (verify.c) says what is well formed: an error there is ours. Tests: tests/c/test_tile.c. */
#ifndef WICK_TILE_TILE_H
#define WICK_TILE_TILE_H

#include "loop/loop.h"

enum {
  WK__TILE_DIMS = 3,
  WK__TILE_MAX_ELEMENTS = 1 << 20,
  WK__TILE_MAX_PARAMETERS = 64,
  WK__TILE_K_BLOCK = 384,
  WK__TILE_MAX_DEPTH = 32, /* regions in regions */
  WK__TILE_STAGES = 3,     /* of a kernel that does not say them */
  WK__TILE_MOST_AHEAD = 7, /* rounds */
};

typedef enum wk__tile_op {
#define TILE(name, operands, class) WK__TILE_##name,
#include "tile/tile_ops.def"
#undef TILE
  WK__TILE_OP_COUNT
} wk__tile_op;

typedef enum wk__tile_class { WK__TILE_VALUE, WK__TILE_MEMORY, WK__TILE_REGION } wk__tile_class;
typedef struct wk__tile_op_info {
  const char *name;
  uint8_t operands;
  uint8_t op_class; /* wk__tile_class */
} wk__tile_op_info;
extern const wk__tile_op_info wk__tile_ops[WK__TILE_OP_COUNT];

typedef enum wk__tile_atomic {
  WK__TILE_ADD,
  WK__TILE_MAX,
  WK__TILE_MIN,
  WK__TILE_AND,
  WK__TILE_OR,
  WK__TILE_XOR,
  WK__TILE_XCHG,
  WK__TILE_CAS,
  WK__TILE_ATOMICS
} wk__tile_atomic;
extern const char *const wk__tile_atomics[WK__TILE_ATOMICS];

typedef struct wk__tile_type {
  uint8_t dtype; /* wk_dtype; of pointers: of what they point to */
  bool pointer;
  uint8_t ndim;
  int32_t shape[WK__TILE_DIMS]; /* those behind ndim are 1 */
} wk__tile_type;

typedef uint32_t wk__tile; /* an instruction's number; 0 is none */

typedef struct wk__tile_instr {
  uint8_t op;  /* wk__tile_op */
  uint8_t map; /* wk__loop_op of map, reduce, scan */
  uint8_t axis;
  wk__tile_type type; /* of its value; without one: all 0 */
  wk__tile operands[4];
  wk__scalar number;       /* constant; else an integer, see tile_ops.def */
  int32_t line;            /* of the program's source */
  wk__tile previous, next; /* in the order of the kernel */
} wk__tile_instr;

/* Owned by whoever created it. Frozen when it is finished: then several threads may launch it. */
typedef struct wk__tile_kernel {
  wk__tile_instr *instrs; /* [0] is the head of the order */
  int64_t count, capacity;
  int parameters;
  int warps;  /* that run a program instance on a GPU: 1, 2, 4, 8 or 16 */
  int stages; /* of a loop: in how many rounds' places its loads may lie there, 1 or more */
  char *name;
  /* What devices have made of it, by their type; each has its own release. */
  struct wk__tile_code *_Atomic codes[WK_DEVICE_TYPE_COUNT];
} wk__tile_kernel;

/* A device's code of a kernel. */
typedef struct wk__tile_code {
  void (*release)(struct wk__tile_code *code);
} wk__tile_code;

typedef struct wk__tile_launch {
  int32_t grid[3];
  int64_t args[WK__TILE_MAX_PARAMETERS]; /* addresses, integers, and the bits of a double for floats */
  /* Asked by the calling thread now and then in loops that a host runs: true ends the launch, WK_INTERRUPTED. NULL: it
   * is not. */
  bool (*is_interrupted)(void);
} wk__tile_launch;

wk__tile_kernel *wk__tile_create(void) WK_MUST_USE;
void wk__tile_release(wk__tile_kernel *kernel);
WK_MUST_USE wk_status wk__tile_verify(const wk__tile_kernel *kernel);
void wk__tile_print(wk__string *s, const wk__tile_kernel *kernel);
wk__tile_kernel *wk__tile_parse(const char *text) WK_MUST_USE;

/* Which parameters (bits) stores and atomics write to; not known: one's address is made of none. */
WK_MUST_USE wk_status wk__tile_written(const wk__tile_kernel *kernel, uint64_t *out_written, bool *out_known);

static inline const wk__tile_instr *wk__tile_get(const wk__tile_kernel *k, wk__tile v) { return &k->instrs[v]; }
static inline int64_t wk__tile_elements(const wk__tile_type *t) {
  return (int64_t)t->shape[0] * t->shape[1] * t->shape[2];
}
static inline bool wk__tile_has_value(const wk__tile_instr *i) { return i->type.shape[0] != 0; }
/* What elements are computed in; pointers are integers. */
static inline wk_dtype wk__tile_compute(const wk__tile_type *t) {
  return t->pointer ? WK_INT64 : (wk_dtype)wk__dtypes[t->dtype].compute;
}
static inline wk__lane_type wk__tile_lane(const wk__tile_type *t) { return wk__lane_of(wk__tile_compute(t)); }
bool wk__tile_same_shape(const wk__tile_type *a, const wk__tile_type *b);
bool wk__tile_same_type(const wk__tile_type *a, const wk__tile_type *b);
void wk__tile_type_print(wk__string *s, const wk__tile_type *t);
/* The `end` (or `else`) of the region that an instruction begins. */
wk__tile wk__tile_region_end(const wk__tile_kernel *k, wk__tile begin);
/* Whether a map's result has to be rounded to its dtype: it may lie between its values, or beyond them. */
bool wk__tile_needs_rounding(const wk__tile_instr *i);

/* ---- building (build.c, build_memory.c, build_regions.c) ---- */

/* Instructions go to the end. Errors are sticky, as a handler's (loop/loop.h): after the first, calls give 0. */
typedef struct wk__tile_builder {
  wk__tile_kernel *kernel;
  wk_status status;
  int32_t line; /* that instructions are of */
  int depth;
  struct {
    wk__tile begin, other; /* other: the `else` of an `if`, the `test` of a `while` */
    wk__tile *carries;     /* owned */
    int count;
  } regions[WK__TILE_MAX_DEPTH];
} wk__tile_builder;

void wk__tile_builder_init(wk__tile_builder *b, wk__tile_kernel *kernel);
void wk__tile_builder_release(wk__tile_builder *b); /* not the kernel */

wk__tile wk__tile_parameter(wk__tile_builder *b, wk_dtype dtype, bool pointer);
wk__tile wk__tile_constant(wk__tile_builder *b, wk__scalar number, wk_dtype dtype);
/* A number as a program writes it: int32 or, where it does not fit, uint32, int64 or uint64; float32 or float64; bool.
 */
wk__tile wk__tile_number(wk__tile_builder *b, wk__scalar number);
wk__tile wk__tile_filled(wk__tile_builder *b, wk__scalar number, const wk__tile_type *type);
wk__tile wk__tile_program_id(wk__tile_builder *b, int axis);
wk__tile wk__tile_num_programs(wk__tile_builder *b, int axis);
wk__tile wk__tile_range(wk__tile_builder *b, int64_t start, int64_t end);
wk__tile wk__tile_unary(wk__tile_builder *b, const char *name, wk__tile x);
/* `weak`: which operands (bits) are numbers of the source, whose dtype gives way. */
wk__tile wk__tile_binary(wk__tile_builder *b, const char *name, wk__tile x, wk__tile y, int weak);
wk__tile wk__tile_where(wk__tile_builder *b, wk__tile condition, wk__tile x, wk__tile y, int weak);
wk__tile wk__tile_fma(wk__tile_builder *b, wk__tile x, wk__tile y, wk__tile z);
wk__tile wk__tile_cast(wk__tile_builder *b, wk__tile x, wk_dtype dtype);
wk__tile wk__tile_cast_pointer(wk__tile_builder *b, wk__tile x, wk_dtype dtype); /* to pointers to it */
wk__tile wk__tile_bits(wk__tile_builder *b, wk__tile x, wk_dtype dtype);
wk__tile wk__tile_view(wk__tile_builder *b, wk__tile x, int ndim, const int64_t *shape);
wk__tile wk__tile_expand_dims(wk__tile_builder *b, wk__tile x, int axis);
wk__tile wk__tile_broadcast(wk__tile_builder *b, wk__tile x, int ndim, const int64_t *shape);
wk__tile wk__tile_permute(wk__tile_builder *b, wk__tile x, int ndim, const int *dims);
wk__tile wk__tile_reduce(wk__tile_builder *b, const char *name, wk__tile x, int axis, bool keep);
wk__tile wk__tile_scan(wk__tile_builder *b, const char *name, wk__tile x, int axis, bool reverse);
wk__tile wk__tile_dot(wk__tile_builder *b, wk__tile x, wk__tile y, wk__tile sum, wk_dtype dtype);
wk__tile wk__tile_philox(wk__tile_builder *b, wk__tile seed, wk__tile offset, int word);
wk__tile wk__tile_load(wk__tile_builder *b, wk__tile pointer, wk__tile mask, wk__tile other);
void wk__tile_store(wk__tile_builder *b, wk__tile pointer, wk__tile value, wk__tile mask);
wk__tile wk__tile_atomic_op(wk__tile_builder *b, wk__tile_atomic how, wk__tile pointer, wk__tile value, wk__tile mask,
                            wk__tile compare);
void wk__tile_barrier(wk__tile_builder *b);

/* Regions. `values` are what the names that the region changes have before it; `out` what they are inside. */
wk__tile wk__tile_for_begin(wk__tile_builder *b, wk__tile from, wk__tile to, int64_t step, int count,
                            const wk__tile *values, wk__tile *out);
void wk__tile_while_begin(wk__tile_builder *b, int count, const wk__tile *values, wk__tile *out);
void wk__tile_while_test(wk__tile_builder *b, wk__tile condition);
/* Ends a for or while: the names' next values. Behind it they are what `out` was. Names are for errors. */
void wk__tile_loop_end(wk__tile_builder *b, const wk__tile *values, const char *const *names);
void wk__tile_if_begin(wk__tile_builder *b, wk__tile condition);
void wk__tile_if_else(wk__tile_builder *b);
/* What the names are at the ends of the branches; what they are behind, in `out`. */
void wk__tile_if_end(wk__tile_builder *b, int count, const wk__tile *then_values, const wk__tile *else_values,
                     const char *const *names, wk__tile *out);
void wk__tile_return(wk__tile_builder *b);
/* Takes out what nothing needs, and verifies. */
WK_MUST_USE wk_status wk__tile_finish(wk__tile_builder *b, const char *name, int warps, int stages);

/* Takes out what nothing needs, numbers what is left in order, and verifies. */
WK_MUST_USE wk_status wk__tile_tidy(wk__tile_kernel *kernel);
wk__tile_kernel *wk__tile_copy(const wk__tile_kernel *kernel) WK_MUST_USE; /* without code; NULL with the error set */
/* Loads of innermost loops some rounds ahead (pipeline.c). rounds: (instructions) of loads, how many; 0 or NULL: one.
 */
WK_MUST_USE wk_status wk__tile_load_ahead(wk__tile_kernel *kernel, const uint8_t *rounds);
/* x + dot(a, b, 0) of small floats becomes dot(a, b, x), which is the same up to the sign of zeros where all of k is
 * one block (products.c). */
WK_MUST_USE wk_status wk__tile_add_in_products(wk__tile_kernel *kernel);

/* ---- for the builder's files and for parsing ---- */
wk__tile wk__tile_append(wk__tile_builder *b, const wk__tile_instr *instr); /* at the end */
wk__tile wk__tile_insert(wk__tile_builder *b, wk__tile before, const wk__tile_instr *instr);
wk__tile wk__tile_refuse(wk__tile_builder *b, wk_status category, const char *format, ...) WK_PRINTF(3, 4); /* 0 */
/* Both to one shape; *out_ok false: an error was set. */
bool wk__tile_broadcast_pair(wk__tile_builder *b, wk__tile *x, wk__tile *y);

#endif
