/* The loop IR: what an operator does to each element, said once, for every back end.
 *
 * A *nest* is a set of loops over pointwise dims (i0, i1, ...) and reduction dims (r0, r1, ...), the buffers that it
 * touches, and a *body*: SSA instructions, each a value per element (its coordinate uses a reduction dim, or an operand
 * does) or a value per row (one for all reduction dims). A reduction turns a value per element into one per row; using
 * a row value beside element values broadcasts it. So softmax is one body:
 *
 *     %1 = load x[i0, r0]   %2 = reduce_max %1   %3 = sub %1 %2   %4 = exp %3   %5 = reduce_sum %4   %6 = div %4 %5
 *     store y[i0, r0] %6
 *
 * Bodies never mention strides: a coordinate addresses a buffer by its logical dims, the buffer knows its strides.
 *
 * The order of a reduction is part of its meaning. Number the row's elements 0..n-1 in logical order. They are cut into
 * chunks of WK__REDUCE_CHUNK; inside a chunk element e goes to lane e mod WK__REDUCE_LANES, lanes start at the
 * identity and take their elements in order; the lanes of a chunk are folded in halves (lane l with lane l + 16, then
 * + 8, + 4, + 2, + 1); chunks are folded pairwise, neighbours first, like the carries of a binary counter, the rest
 * from the right. A back end may split work wherever this leaves the order alone. A scan goes element
 * after element inside of a chunk, from the identity; what it gives is the sum (product) of the chunks before, which
 * are added one after the other, with that. All in the compute dtype.
 *
 * Text: `print` gives one line an instruction, `parse` reads it back, `verify` states what is well formed.
 * Tests: tests/c/test_loop.c. */
#ifndef WICK_LOOP_LOOP_H
#define WICK_LOOP_LOOP_H

#include "tensor/tensor.h"

enum { WK__REDUCE_LANES = 32, WK__REDUCE_CHUNK = 4096 };

typedef enum wk__loop_op {
  WK__LOOP_NONE,
#define LOOP(name, arity, rule, class) WK__LOOP_##name,
#include "loop/loop_ops.def"
#undef LOOP
  WK__LOOP_COUNT
} wk__loop_op;

typedef enum wk__loop_rule {
  WK__RULE_SAME,
  WK__RULE_FLOAT,
  WK__RULE_INTEGER,
  WK__RULE_COMPARE,
  WK__RULE_TEST,
  WK__RULE_WHERE,
  WK__RULE_SPECIAL
} wk__loop_rule;

/* What an operation is in a loop, see loop_ops.def. */
typedef enum wk__loop_class {
  WK__CLASS_NONE,
  WK__CLASS_LOAD,
  WK__CLASS_STORE,
  WK__CLASS_NUMBER,
  WK__CLASS_INDEX,
  WK__CLASS_MAP,
  WK__CLASS_REDUCTION,
  WK__CLASS_ARG,
  WK__CLASS_SCAN
} wk__loop_class;

typedef struct wk__loop_op_info {
  const char *name;
  uint8_t arity;
  uint8_t rule;     /* wk__loop_rule */
  uint8_t op_class; /* wk__loop_class */
} wk__loop_op_info;
extern const wk__loop_op_info wk__loop_ops[WK__LOOP_COUNT];

static inline wk__loop_class wk__loop_class_of(int op) { return (wk__loop_class)wk__loop_ops[op].op_class; }
static inline bool wk__loop_is_load(int op) { return wk__loop_class_of(op) == WK__CLASS_LOAD; }
static inline bool wk__loop_is_store(int op) { return wk__loop_class_of(op) == WK__CLASS_STORE; }
static inline bool wk__loop_has_access(int op) { return wk__loop_is_load(op) || wk__loop_is_store(op); }
static inline bool wk__loop_has_expression(int op) { return wk__loop_class_of(op) == WK__CLASS_INDEX; }
static inline bool wk__loop_is_number(int op) { return wk__loop_class_of(op) == WK__CLASS_NUMBER; }
static inline bool wk__loop_is_scan(int op) { return wk__loop_class_of(op) == WK__CLASS_SCAN; }
static inline bool wk__loop_is_arg(int op) { return wk__loop_class_of(op) == WK__CLASS_ARG; }
static inline bool wk__loop_is_reduction(int op) {
  return wk__loop_class_of(op) == WK__CLASS_REDUCTION || wk__loop_is_arg(op);
}

typedef uint16_t wk__var; /* an instruction's number in its body; 0 is none */

/* Tensors may have more dims (WK_MAX_DIMS): ops/many_dims.c makes fewer of them before anything is lowered. */
enum { WK__NEST_MAX_DIMS = 16, WK__NEST_MAX_BUFFERS = 24 };

/* Where a load or store goes: one index expression per dim of the buffer. An expression is over the nest's loop
 * variables and sizes; `indirect[d]`, when set, is an i64 value that is added to it (a gather). */
typedef struct wk__access {
  uint8_t buffer;
  uint8_t ndim;
  bool per_element; /* some coordinate uses a reduction dim, or an indirect value does */
  bool has_indirect;
  uint16_t may_leave; /* dims (bits) whose coordinate may lie outside of the buffer: of a masked_load */
  wk_int index[WK__NEST_MAX_DIMS];
  wk__var indirect[WK__NEST_MAX_DIMS];
} wk__access;

typedef struct wk__instr {
  uint8_t op;    /* wk__loop_op */
  uint8_t dtype; /* compute dtype of the result: f32, f64, i64, bool. store: of the value */
  bool per_element;
  uint8_t stage; /* reductions that must be complete before this value can be computed */
  wk__var operands[3];
  uint16_t extra; /* load, store: number of the access; param: its number; round_to: wk_dtype;
                     check_index: 1 when negative indices are out of range, not counted from the end */
  union {
    wk__scalar number; /* constant */
    wk_int expression; /* index: the value; check_index: the size */
  };
} wk__instr;

typedef struct wk__nest_buffer {
  uint8_t dtype; /* storage dtype */
  uint8_t ndim;
  bool written;
} wk__nest_buffer;

/* Owned by whoever created it; arrays grow with it. */
typedef struct wk__nest {
  uint8_t pointwise_dims, reduction_dims;
  bool geometry_free; /* purely pointwise over equal shapes, written with one dim; runs over any number of dims */
  wk_int sizes[WK__NEST_MAX_DIMS]; /* pointwise dims first */
  wk__nest_buffer buffers[WK__NEST_MAX_BUFFERS];
  uint8_t buffer_count;
  uint16_t param_count;
  wk__instr *instrs; /* [0] is unused */
  int64_t instr_count, instr_capacity;
  wk__access *accesses;
  int64_t access_count, access_capacity;
} wk__nest;

/* The phase, one more than the last that has to be complete, in which an instruction is computed. */
static inline int wk__instr_phase(const wk__instr *i) { return wk__loop_is_reduction(i->op) ? i->stage - 1 : i->stage; }
/* It has a value for each element: all of a nest without rows, element values of one with. */
static inline bool wk__instr_per_element(const wk__nest *nest, const wk__instr *i) {
  return nest->reduction_dims == 0 || i->per_element;
}

/* Of a check_index against a buffer's size: which dim of it; else 255. For errors. */
static inline int wk__checked_dim(const wk__instr *i) {
  return wk__sym_kind_of(i->expression) == WK__SYM_BUFFER_SIZE ? wk__sym_index(i->expression) % WK__BUFFER_DIMS : 255;
}

/* Coordinates that are compared with the buffer's size, of all accesses. */
static inline int wk__nest_bound_count(const wk__nest *nest) {
  int count = 0;
  for (int64_t a = 0; a < nest->access_count; a++) count += __builtin_popcount(nest->accesses[a].may_leave);
  return count;
}

wk__nest *wk__nest_create(void) WK_MUST_USE;
void wk__nest_release(wk__nest *nest);
WK_MUST_USE wk_status wk__nest_verify(const wk__nest *nest);
void wk__nest_print(wk__string *s, const wk__nest *nest);
void wk__instr_print(wk__string *s, const wk__nest *nest, int64_t v); /* its line, without the end */
wk__nest *wk__nest_parse(const char *text) WK_MUST_USE;

/* ---- handlers: who listens when a lowering speaks ---- */

/* A lowering calls the wk__k_* functions below; each ends in `emit`. The default handler records into a nest. A back
 * end, a cost model or a printer may be a handler too. Errors are sticky: after the first, calls return 0 and do
 * nothing. */
typedef struct wk__loop_handler wk__loop_handler;
struct wk__loop_handler {
  wk__var (*emit)(wk__loop_handler *handler, const wk__instr *instr, const wk__access *access);
  const wk__instr *(*get)(const wk__loop_handler *handler, wk__var value); /* as it was emitted */
  wk_dtype (*buffer_dtype)(const wk__loop_handler *handler, int buffer);
  wk_status status; /* first error */
};
typedef struct wk__recorder {
  wk__loop_handler handler;
  wk__nest *nest; /* borrowed */
} wk__recorder;
void wk__recorder_init(wk__recorder *recorder, wk__nest *nest);

/* Loop variables as index expressions. */
static inline wk_int wk__loop_i(int dim) { return wk_int_loop_var(dim); }
static inline wk_int wk__loop_r(int dim) { return wk_int_loop_var(WK__FIRST_R + dim); }

wk__var wk__k_op(wk__loop_handler *h, wk__loop_op op, wk__var a, wk__var b, wk__var c);
wk__var wk__k_load(wk__loop_handler *h, const wk__access *access);
wk__var wk__k_load_as(wk__loop_handler *h, const wk__access *access, wk_dtype compute);  /* and converted */
wk__var wk__k_masked_load(wk__loop_handler *h, const wk__access *access, wk__var other); /* a param or constant */
void wk__k_store(wk__loop_handler *h, const wk__access *access, wk__var value);
void wk__k_store_add(wk__loop_handler *h, const wk__access *access, wk__var value);
wk__var wk__k_param(wk__loop_handler *h, int number, wk_dtype dtype);
wk__var wk__k_constant(wk__loop_handler *h, double value, wk_dtype dtype);
wk__var wk__k_integer(wk__loop_handler *h, int64_t value); /* an int64 constant, all its digits */
wk__var wk__k_index(wk__loop_handler *h, wk_int expression);
wk__var wk__k_cast(wk__loop_handler *h, wk__var value, wk_dtype dtype); /* nothing when it has that dtype */
wk__var wk__k_round_to(wk__loop_handler *h, wk__var value, wk_dtype dtype);
wk__var wk__k_check_index(wk__loop_handler *h, wk__var index, wk_int size);
wk__var wk__k_check_place(wk__loop_handler *h, wk__var index, wk_int size); /* check_index without wrapping */
wk_dtype wk__k_dtype(wk__loop_handler *h, wk__var value);

#define WK__K_UNARY(name) \
  static inline wk__var wk__k_##name(wk__loop_handler *h, wk__var a) { return wk__k_op(h, WK__LOOP_##name, a, 0, 0); }
#define WK__K_BINARY(name)                                                        \
  static inline wk__var wk__k_##name(wk__loop_handler *h, wk__var a, wk__var b) { \
    return wk__k_op(h, WK__LOOP_##name, a, b, 0);                                 \
  }
#define WK__K_TERNARY(name)                                                                  \
  static inline wk__var wk__k_##name(wk__loop_handler *h, wk__var a, wk__var b, wk__var c) { \
    return wk__k_op(h, WK__LOOP_##name, a, b, c);                                            \
  }
// clang-format off
WK__K_UNARY(neg) WK__K_UNARY(abs) WK__K_UNARY(sign) WK__K_UNARY(bit_not) WK__K_UNARY(floor) WK__K_UNARY(ceil)
WK__K_UNARY(trunc) WK__K_UNARY(round) WK__K_UNARY(sqrt) WK__K_UNARY(rsqrt) WK__K_UNARY(reciprocal) WK__K_UNARY(exp)
WK__K_UNARY(expm1) WK__K_UNARY(log) WK__K_UNARY(log1p) WK__K_UNARY(sin) WK__K_UNARY(cos) WK__K_UNARY(tanh)
WK__K_UNARY(sigmoid) WK__K_UNARY(erf) WK__K_UNARY(logical_not) WK__K_UNARY(isnan) WK__K_UNARY(reduce_sum)
WK__K_UNARY(reduce_prod) WK__K_UNARY(reduce_max) WK__K_UNARY(reduce_min) WK__K_UNARY(reduce_argmax)
WK__K_UNARY(reduce_argmin) WK__K_UNARY(scan_sum) WK__K_UNARY(scan_prod)
WK__K_BINARY(add) WK__K_BINARY(sub) WK__K_BINARY(mul) WK__K_BINARY(div) WK__K_BINARY(floor_div)
WK__K_BINARY(trunc_div) WK__K_BINARY(mod) WK__K_BINARY(fmod) WK__K_BINARY(pow) WK__K_BINARY(max) WK__K_BINARY(min)
WK__K_BINARY(bit_and) WK__K_BINARY(bit_or) WK__K_BINARY(bit_xor) WK__K_BINARY(shift_left) WK__K_BINARY(shift_right) WK__K_BINARY(eq) WK__K_BINARY(ne) WK__K_BINARY(lt)
WK__K_BINARY(le) WK__K_BINARY(gt) WK__K_BINARY(ge)
WK__K_TERNARY(where) WK__K_TERNARY(fma)
    // clang-format on

    /* ---- what values are computed in ---- */

    typedef enum wk__lane_type {
      WK__LANE_BOOL,
      WK__LANE_I64,
      WK__LANE_F32,
      WK__LANE_F64,
      WK__LANE_COUNT
    } wk__lane_type;

static inline wk__lane_type wk__lane_of(wk_dtype compute) {
  return compute == WK_FLOAT32 ? WK__LANE_F32
         : compute == WK_INT64 ? WK__LANE_I64
         : compute == WK_BOOL  ? WK__LANE_BOOL
                               : WK__LANE_F64;
}
static inline int64_t wk__lane_size(wk__lane_type lane) {
  return lane == WK__LANE_BOOL ? 1 : lane == WK__LANE_F32 ? 4 : 8;
}

#endif
