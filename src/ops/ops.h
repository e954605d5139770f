/* The operator table and the call. One row of ops.def is one operator: schema, shape rule, derivative, and how it is
 * computed. Everything else — argument parsing, in-place and out= forms, tape, tracing, documentation, tests — follows.
 *
 * An operator is computed in one of four ways, by what its row gives:
 *   LOWER(fn)      a loop-IR body; tier 0 runs it, compiled code fuses it
 *   VIEW(fn)       new geometry over the same storage
 *   KERNEL(fn)     a library kernel or something that is not a loop (mm, randperm, copy of a list)
 *   COMPOSE(fn)    in terms of other operators. Without a derivative of its own it is replaced by its parts at once.
 *
 * A call goes through layers, outermost first, each asked for by one bit (tensor/tensor.h, WK__KEY_*):
 *   inference -> Python override -> autocast -> autograd -> decompose -> trace -> compute.  */
#ifndef WICK_OPS_OPS_H
#define WICK_OPS_OPS_H

#include "base/base.h"
#include "loop/loop.h"
#include "tensor/tensor.h"
#include "wick/ops.h"

enum { WK__MAX_ARGS = 16, WK__MAX_RESULTS = 4 };

/* ---- schema (schema.c): PyTorch's schema language, parsed once ---- */

typedef enum wk__type {
  WK__TYPE_TENSOR,
  WK__TYPE_SCALAR, /* int, float or bool number */
  WK__TYPE_INT,
  WK__TYPE_FLOAT,
  WK__TYPE_BOOL,
  WK__TYPE_STRING,
  WK__TYPE_DTYPE,
  WK__TYPE_DEVICE,
  WK__TYPE_GENERATOR,
  WK__TYPE_TENSORS,
  WK__TYPE_INTS,
  WK__TYPE_FLOATS,
  WK__TYPE_MEMORY_FORMAT, /* its value is a string */
} wk__type;

typedef struct wk__parameter {
  char name[24];
  uint8_t type;      /* wk__type */
  bool optional;     /* `?`: None is a value */
  bool keyword_only; /* behind `*` */
  bool has_default;
  bool written;        /* alias mark with `!` */
  bool optional_items; /* Tensor?[] */
  bool symbolic;       /* SymInt: more kinds of tensors stand for one */
  uint8_t fixed_count; /* int[2]: a single int stands for that many */
  wk_value default_value;
} wk__parameter;

typedef struct wk__schema {
  wk__parameter parameters[WK__MAX_ARGS];
  uint8_t parameter_count;
  uint8_t positional_count; /* before `*` */
  uint8_t result_count;
  bool result_is_list;                   /* -> Tensor[] */
  uint8_t result_alias[WK__MAX_RESULTS]; /* 1 + the parameter that the result is a view of or is; 0: a new tensor */
} wk__schema;

/* ---- the call ---- */

enum {
  WK__TAG_POINTWISE = 1, /* one nest dim over broadcast shapes; gets in-place and out= forms */
  WK__TAG_CORE = 2,      /* in PyTorch's core ATen set */
  WK__TAG_PRIM = 4,
  WK__TAG_VIEW = 8,
  WK__TAG_OUT = 16,            /* has an out= form though not pointwise */
  WK__TAG_INPLACE = 32,        /* has an in-place form though not pointwise */
  WK__TAG_RANDOM = 64,         /* draws from a generator: never cached, folded or merged */
  WK__TAG_COMPARISON = 128,    /* pointwise with a bool result; in-place form keeps self's dtype */
  WK__TAG_METHOD_ONLY = 256,   /* Tensor method, no function */
  WK__TAG_FUNCTION_ONLY = 512, /* function, no Tensor method */
  WK__TAG_INTERNAL = 1024,     /* neither: called by rules */
  WK__TAG_FIRST_ONLY = 8192,   /* of several results only the first has a derivative */
  /* Numbers are part of the body: there are some that have one of their own (wk__fixed_numbers). Others may be given at
   * launch, in a compiled graph. */
  WK__TAG_FIXED_NUMBERS = 4096,
  WK__TAG_FUSED = 1 << 21, /* a compiled graph's kernel: takes destinations itself. With POINTWISE: a destination may
                              be an argument of the same layout */
  WK__TAG_MUTATES = 2048,  /* writes the arguments marked in the schema (multi-tensor optimizers, copy_) */
  /* The derivative gives numbers to operators of this kind as they are. */
  WK__TAG_PASSES_NUMBERS = 1 << 22,
  WK__TAG_LAUNCH_NUMBERS = 1 << 23, /* not pointwise, but nothing except the launch looks at its numbers */
  /* Beside small floats a number is rounded to them first, as comparisons do it; others keep its digits. As in
   * PyTorch's kernels. */
  WK__TAG_ROUNDS_NUMBERS = 1 << 24,
  WK__TAG_HIDDEN = 1 << 25,      /* a function of the core alone: the package has it in nn.functional or elsewhere */
  WK__TAG_NOT_INPLACE = 1 << 26, /* pointwise, but there is no method that writes its first argument */
  WK__TAG_LIKE = 1 << 29,      /* of tensors it looks at the shape, dtype and device: their memory need not be there */
  WK__TAG_OWN_DTYPE = 1 << 30, /* numbers are converted to argument 0's dtype and do not promote it */
  WK__TAG_APART = 1 << 28,     /* out= may share no memory with an argument */
  WK__TAG_BY_RESULT = 1 << 27, /* in place the derivative is taken from the result, where it asks for argument 0 */
  WK__TAG_FLOAT8 = 1 << 14,      /* computes with float8 as well; the others only store it, as in PyTorch */
  WK__TAG_FILLS = 1 << 15,       /* pointwise, one value for all elements: may write a tensor that overlaps itself */
};

enum { WK__FIXED_NUMBER_COUNT = 7 };
extern const double wk__fixed_numbers[WK__FIXED_NUMBER_COUNT];

typedef struct wk__call wk__call;
typedef struct wk__vjp wk__vjp;
struct wk__lower;
typedef wk_status wk__meta_fn(wk__call *call);   /* fills call->specs, call->compute_dtype */
typedef wk_status wk__kernel_fn(wk__call *call); /* sets call->results; of a row with a shape rule: fills outputs */
typedef wk_status wk__vjp_fn(wk__vjp *vjp);
typedef void wk__lower_fn(struct wk__lower *lower);

/* What the tape keeps when argument i requires grad, as bits: the tensor of argument a, only its shape, result r. */
#define WK__SAVE_ARG(a) (1u << (a))
#define WK__SAVE_SHAPE(a) (1u << (10 + (a)))
#define WK__SAVE_RESULT(r) (1u << (20 + (r)))

struct wk_op {
  /* from the row */
  const char *name; /* "add.Tensor" */
  const char *schema_text;
  uint32_t tags;
  wk__meta_fn *meta;
  wk__vjp_fn *vjp;
  uint32_t saves[10]; /* by argument */
  wk__lower_fn *lower;
  wk__kernel_fn *view, *kernel, *compose;
  const char *samples; /* inputs for the generated tests: Python argument lists, separated by ';' */
  /* made at start */
  wk__schema schema;
  uint16_t number;
  char base_name[56];             /* "add" */
  struct wk__plan *_Atomic plans; /* cached nests and their programs, newest first */
  /* of an operator that is not in the table: appends its definition, "kernel {\n...\n}"; NULL otherwise */
  void (*print)(const wk_op *op, wk__string *out, bool with_places);
};

/* One call while it is computed; lives on the caller's stack. */
struct wk__call {
  const wk_op *op;
  const wk_value *args;           /* borrowed */
  wk_tensor *const *destinations; /* borrowed; NULL or one entry a result */
  wk_value *results;              /* owned out */
  uint8_t compute_dtype;          /* the dtype the body computes in before it is stored (a wk_dtype) */
  wk__spec *specs;                /* (WK__MAX_RESULTS), filled by the shape rule */
  wk_tensor **outputs;            /* borrowed, (results): where the kernel writes; made from the specs */
};

static inline wk_tensor *wk__arg_tensor(const wk__call *c, int i) {
  return c->args[i].tag == WK_VALUE_TENSOR ? c->args[i].tensor : NULL;
}
static inline bool wk__value_is_integer(const wk_value *v) { return v->tag == WK_VALUE_INT || v->tag == WK_VALUE_WIDE; }
static inline bool wk__value_is_number(const wk_value *v) {
  return wk__value_is_integer(v) || v->tag == WK_VALUE_DOUBLE || v->tag == WK_VALUE_BOOL;
}
wk__scalar wk__value_scalar(const wk_value *v); /* of a number */
wk_value wk__value_of_int(int64_t i);           /* as a number, no size: any int64 */
/* Refuses a number that PyTorch does not convert to the dtype, in its words: integers have to be in range (uint8: from
 * -255), floats not to overflow. Elements that are converted, and operands, wrap around instead. */
WK_MUST_USE wk_status wk__check_number(const wk_value *number, wk_dtype dtype);
bool wk__number_fits(double number, wk_dtype dtype);
wk_status wk__refuse_complex(wk_dtype dtype); /* the same error, for a number with an imaginary part */
/* Told, while a call is recorded, that number input `number` of the graph was found to fit: so it has to later. */
typedef struct wk__number_watcher {
  void *context;
  void (*fits)(void *context, int number, wk_dtype dtype);
} wk__number_watcher;
extern _Thread_local const wk__number_watcher *wk__number_watch; /* NULL: nobody */
/* The same where a kernel computes with the number, in float for the small floats. */
WK_MUST_USE wk_status wk__check_factor(const wk_value *number, wk_dtype dtype);
/* The same where the number becomes a tensor of its own, in which small floats may be infinite. */
WK_MUST_USE wk_status wk__check_element(const wk_value *number, wk_dtype dtype);

/* The table (table.c). */
extern struct wk_op wk__op_table[];
enum {
#define OP(symbol, ...) WK__OP_##symbol,
#include "ops/ops.def"
#undef OP
  WK__OP_COUNT
};
#define WK__OP(symbol) (&wk__op_table[WK__OP_##symbol])

/* Whether a tensor's elements lie without gaps in the order of a memory format ("channels_last"; create.c). */
bool wk__is_contiguous_in(const wk_tensor *t, const char *format);
/* The channels last, as t has them, in a contiguous description of as many dims; else nothing. */
WK_MUST_USE wk_status wk__spec_lay_out_as(wk__spec *spec, const wk_tensor *t);

/* ---- layers (dispatch.c) ---- */

/* A layer gets the call and goes on with wk__call_below(its own key, ...). Set once, when the parts are linked. */
typedef wk_status wk__layer_fn(const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                               wk_value *results);

/* Per-thread state that layers look at. */
typedef struct wk__thread_mode {
  uint8_t keys_on;  /* layers that this thread turns on for every call (trace, autocast, Python modes) */
  uint8_t keys_off; /* layers that are switched off here (inside the layer itself, under no_grad) */
  bool grad_enabled;
  bool inference;
  wk__layer_fn *decompose;               /* set before its key is on */
  uint64_t tape_sequence;                /* of the tape node that is being recorded around this call; 0 */
  uint64_t running_sequence;             /* of the tape node that the engine runs; 0: none */
  struct wk__grad_watcher *grad_watcher; /* who wants to know what the tape does to leaves; NULL */
} wk__thread_mode;

/* Told by the tape when it looks at or sets a leaf's .grad, and before it runs a node that was recorded before
 * `first`. */
typedef struct wk__grad_watcher {
  void *context;
  uint64_t first; /* sequence of a node */
  void (*old_node_runs)(void *context);
  void (*grad_read)(void *context, wk_tensor *leaf);
  void (*grad_written)(void *context, wk_tensor *leaf);
} wk__grad_watcher;

extern _Thread_local wk__thread_mode wk__mode;
/* What the last call found odd in its arguments, for whoever made it to say and to clear; NULL. Never freed. */
extern _Thread_local const char *wk__warning;

/* Runs the call below the layers: shape rule, allocation, kernel. */
WK_MUST_USE wk_status wk__compute(const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                                  wk_value *results);
/* The same for a row with a shape rule, or a fused kernel, whose results are there: `outputs` have the geometry that
 * the rule gives; with `check`, and in debug builds, WK_VALUE_ERROR where they have not. Nothing of them lies where an
 * argument does, but for POINTWISE operators element on element. */
WK_MUST_USE wk_status wk__compute_into(const wk_op *op, const wk_value *args, wk_tensor **outputs, bool check);
wk__layer_fn wk__inference_layer; /* autograd/inference.c */
wk__layer_fn wk__autograd_layer;  /* autograd/record.c */
wk__layer_fn wk__trace_layer;     /* graph/trace.c */
WK_MUST_USE wk_status wk__call_below(int key, const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                                     wk_value *results);
/* Calls `op` and gives its single tensor result, registered with the thread's scope; NULL on failure. The typed
 * functions end here. A NULL tensor where the schema wants one means an inner call failed: gives NULL, keeps the error.
 */
wk_tensor *wk__call_tensor(const wk_op *op, const wk_value *args);
/* The same for several results. */
WK_MUST_USE wk_status wk__call_tensors(const wk_op *op, const wk_value *args, wk_tensor **out_results, int count);
void wk__scope_add(wk_tensor *steal_tensor);

/* ---- derivatives ---- */

/* A derivative rule in action: from gradients of the results to gradients of the tensor arguments, by calling
 * operators. Runs inside a scope of its own. */
struct wk__vjp {
  const wk_op *op;
  const wk_value *args;      /* as called; tensors whole where saved, shape only where asked for, else NULL */
  wk_tensor *const *results; /* whole where saved, else NULL */
  wk_tensor *const *grads;   /* one a result (of a list: one an item); NULL where nothing flowed */
  int result_count;
  const bool *wanted;    /* by input: one an argument, then one an item of the tensor list if there is one */
  wk_tensor **out_grads; /* by input; set by wk__vjp_set */
};
static inline bool wk__needs(const wk__vjp *v, int input) { return v->wanted[input]; }
static inline int wk__list_input(const wk__vjp *v, int item) { return v->op->schema.parameter_count + item; }
/* Records a gradient (borrowed; NULL, a failed call, gives the error's status). */
WK_MUST_USE wk_status wk__vjp_set(wk__vjp *v, int input, wk_tensor *grad);

/* ---- lowering (lower.c) ---- */

/* What a row's LOWER function sees. It says what happens to each element by calling wk__k_* on `h`. Sizes are symbols
 * ("size of buffer b, dim d"), so that one body serves all sizes; ranks, dtypes, int and bool arguments are known. */
typedef struct wk__lower {
  wk__loop_handler *h;
  wk__nest *nest;
  const wk__call *call;
  wk_dtype compute;                   /* of the call's compute_dtype */
  bool pointwise;                     /* geometry-free: every access is [i0] */
  int8_t buffer_of_arg[WK__MAX_ARGS]; /* -1: not a tensor */
  int8_t buffer_of_result[WK__MAX_RESULTS];
  int8_t param_of_arg[WK__MAX_ARGS]; /* -1: not a number that is given at launch */
  uint8_t row_rank;                  /* rows: rank of the argument whose dims the nest has */
  uint32_t row_mask;                 /* rows: its reduction dims */
  wk_int row_index[WK_MAX_DIMS];     /* rows: the loop variable of each of its dims */
  struct wk__lowered *lowered;
  wk__recorder recorder;
} wk__lower;
static inline bool wk__has(const wk__lower *l, int arg) { return l->call->args[arg].tag != WK_VALUE_NONE; }
/* A number that is exactly one: the only thing a body may ask of a number given at launch (it is part of the plan's
 * key). */
static inline bool wk__is_one(const wk__lower *l, int arg) {
  const wk_value *v = &l->call->args[arg];
  return wk__value_is_number(v) && wk__scalar_double(wk__value_scalar(v)) == 1;
}
/* Ends the current nest and starts another over the same buffers: an operator that needs two loops. */
void wk__next_nest(wk__lower *l);

/* Pointwise: the value of argument `arg` for this element, in the compute dtype: a load or a number of the launch. */
wk__var wk__in(wk__lower *l, int arg);
wk__var wk__in_as(wk__lower *l, int arg, wk_dtype compute); /* in another compute dtype */
void wk__out(wk__lower *l, int result, wk__var value);

/* Rows: the dims of argument `arg` become the nest, those in `mask` as reduction dims. */
void wk__rows_of(wk__lower *l, int arg, uint32_t mask);
wk__var wk__row_in(wk__lower *l, int arg);                    /* a tensor of the same rank, at the same place */
void wk__row_out(wk__lower *l, int result, wk__var value);    /* the same */
wk__var wk__row_in_reduced(wk__lower *l, int arg, bool keep); /* one a row; keep: reduction dims are there, size 1 */
void wk__row_out_reduced(wk__lower *l, int result, wk__var value, bool keep);
wk__var wk__row_in_trailing(wk__lower *l, int arg); /* a tensor over the last dims, as weights are */
wk__var wk__row_count(wk__lower *l);                /* elements of a row, in the compute dtype */

/* Anything else: dims one by one. Give the nest its dims first. */
void wk__loop_over(wk__lower *l, int pointwise_dims, int reduction_dims, const wk_int *sizes);
wk_int wk__size_of_arg(const wk__lower *l, int arg, int dim); /* as a symbol */
wk_int wk__size_of_result(const wk__lower *l, int result, int dim);
wk__access wk__access_arg(const wk__lower *l, int arg, const wk_int *index);
wk__access wk__access_result(const wk__lower *l, int result, const wk_int *index);
int wk__arg_rank(const wk__lower *l, int arg);
int wk__result_rank(const wk__lower *l, int result);

#endif
