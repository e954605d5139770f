/* The operator table and the call. One row of ops/tables/ is one operator: schema, shape rule, derivative, and how it
 * is computed. Everything else — argument parsing, in-place and out= forms, tape, tracing, documentation, tests —
 * follows. tools/ops/ reads the rows and writes them as the constant records below.
 *
 * An operator is computed in one of five ways, by what its row gives:
 *   lower fn       a loop-IR body; tier 0 runs it, compiled code fuses it
 *   view fn        new geometry over the same storage
 *   routine fn     its results are filled by calls below the layers (cat, copy_, optimizers): the same on every device
 *   kernel         code that reads or writes memory (mm, sort, randperm): each device has its own (device/device.h)
 *   compose fn     in terms of other operators. Without a derivative of its own it is replaced by its parts at once.
 *
 * A call goes through layers, outermost first, each asked for by one bit (tensor/tensor.h, WK__KEY_*):
 *   inference -> Python override -> autocast -> autograd -> level -> decompose -> body -> trace -> compute.  */
#ifndef WICK_OPS_OPS_H
#define WICK_OPS_OPS_H

#include "base/base.h"
#include "loop/loop.h"
#include "ops/op_table.h"
#include "ops/value.h"
#include "tensor/tensor.h"
#include "wick/ops.h"

enum { WK__MAX_ARGS = 32, WK__MAX_RESULTS = 16 };
_Static_assert(WK__MAX_ARGS <= 32 && WK__MAX_RESULTS <= 32, "arguments and results are bits of a wk__saves");

/* ---- schema: PyTorch's schema language, read by the generator, and by schema.c what is defined at run time ---- */

typedef enum wk__type {
#define TYPE(type, word, shown, kinds) WK__TYPE_##type,
#define TYPE_AS(type, word)
#define LIST_TYPE(type, item, shown, kinds) WK__TYPE_##type,
#include "ops/value_types.def"
#undef TYPE
#undef TYPE_AS
#undef LIST_TYPE
  WK__TYPE_COUNT,
} wk__type;

typedef struct wk__type_row {
  const char *shown; /* in Python's errors */
  uint8_t item;      /* of a list: the wk__type of its items; else the type itself */
  uint32_t kinds;    /* which WK_VALUE_ fit, as bits; none fits what is optional besides */
} wk__type_row;
extern const wk__type_row wk__types[WK__TYPE_COUNT]; /* schema.c */
/* Of a type of lists: the kind that its values are of. */
static inline uint8_t wk__list_kind(uint8_t type) { return (uint8_t)__builtin_ctz(wk__types[type].kinds); }
static inline bool wk__type_fits(uint8_t type, const wk_value *v) { return wk__types[type].kinds >> v->tag & 1; }
static inline bool wk__type_is_list(uint8_t type) { return wk__types[type].item != type; }

typedef struct wk__parameter {
  uint8_t type;      /* wk__type */
  bool optional;     /* `?`: None is a value */
  bool keyword_only; /* behind `*` */
  bool has_default;
  bool written;        /* alias mark with `!` */
  bool optional_items; /* Tensor?[] */
  bool symbolic;       /* SymInt: more kinds of tensors stand for one */
  uint8_t fixed_count; /* int[2]: a single int stands for that many */
  bool shape_only;     /* integers that only the shape rule looks at: a lowered body serves them all */
  bool at_launch;      /* an integer that a lowered body is given at launch, as numbers are */
  bool unpromoted;     /* a tensor or number that takes no part in promotion: a mask, alpha */
  bool complex;        /* a number, or list of them, that may be complex */
  bool clamps;         /* an integer below all others is as good as the least one: which diagonal */
  bool long_list;      /* integers, perhaps more than a tensor has dims */
  wk_value default_value;
  char name[32];
} wk__parameter;

typedef struct wk__schema {
  const wk__parameter *parameters; /* (parameter_count) */
  const char *const *result_names; /* (result_count); NULL: they have none */
  uint8_t parameter_count;
  uint8_t positional_count; /* before `*` */
  uint8_t result_count;
  bool result_is_list;                   /* -> Tensor[] */
  uint8_t result_alias[WK__MAX_RESULTS]; /* 1 + the parameter that the result is a view of or is; 0: a new tensor */
} wk__schema;

/* ---- the call ---- */

/* What a row's fields say, tools/ops/language.py has the words. */
enum {
  WK__TAG_POINTWISE = 1 << 0, /* one nest dim over broadcast shapes; gets in-place and out= forms */
  WK__TAG_CORE = 1 << 1,      /* in PyTorch's core ATen set */
  WK__TAG_PRIM = 1 << 2,      /* of the primitive set (decompose/decompose.h) */
  WK__TAG_VIEW = 1 << 3,
  WK__TAG_RANDOM = 1 << 4,     /* draws from a generator: never cached, folded or merged */
  WK__TAG_COMPARISON = 1 << 5, /* pointwise with a bool result; in-place form keeps self's dtype */
  WK__TAG_FIRST_ONLY = 1 << 6, /* of several results only the first has a derivative */
  WK__TAG_MUTATES = 1 << 7,    /* writes the arguments marked in the schema (multi-tensor optimizers, copy_) */
  WK__TAG_FUSED = 1 << 8, /* a compiled graph's kernel: takes destinations itself. With POINTWISE: a destination may
                             be an argument of the same layout */
  /* The result is argument 0 with some places written. A lowered body's first nest is the copy; in place it is left
   * out, and nothing but those places is touched. A kernel so tagged counts the write itself. */
  WK__TAG_PLACES = 1 << 9,
  /* numbers */
  /* The body depends on the number: those of wk__fixed_numbers have a body of their own; any other may be given at
     launch, in a compiled graph. */
  WK__TAG_FIXED_NUMBERS = 1 << 10,
  WK__TAG_PASSES_NUMBERS = 1 << 11, /* the derivative gives numbers to operators of this kind as they are */
  WK__TAG_LAUNCH_NUMBERS = 1 << 12, /* not pointwise, but nothing except the launch looks at its numbers */
  /* Beside small floats a number is rounded to them first, as comparisons do it; others keep its digits. As in
   * PyTorch's kernels. */
  WK__TAG_ROUNDS_NUMBERS = 1 << 13,
  /* errors and dtypes */
  WK__TAG_RAISES_INDEX = 1 << 14,    /* integer arguments say where elements are: they may be out of range */
  WK__TAG_RAISES_DIVISION = 1 << 15, /* integers may be divided by zero */
  WK__TAG_DTYPE_FROM_OUT = 1 << 16,  /* an out= gives the dtype that is computed in, unless the call names one */
  WK__TAG_NAMES_DTYPE = 1 << 17,     /* has the arguments dtype and device: makes tensors */
  /* Python */
  WK__TAG_NUMBER_FIRST = 1 << 18,   /* a number may stand for the first tensor: mul(2, x) */
  WK__TAG_NUMBER_COPIED = 1 << 19,  /* a number may stand for the second tensor: x.copy_(2) */
  WK__TAG_TAKES_NUMBERS = 1 << 20,  /* PyTorch takes numbers for tensors, and has no overload for them */
  WK__TAG_UNSHOWN = 1 << 21,        /* such an overload of ours: error texts do not show it */
  WK__TAG_OLDER_FORM = 1 << 22,     /* PyTorch keeps an older form that error texts do not show */
  WK__TAG_MORE_OVERLOADS = 1 << 23, /* PyTorch has more overloads with as many arguments */
  WK__TAG_COUNTS_OUT = 1 << 24,     /* the warning of an out= that is resized counts elements */
  /* tensors */
  WK__TAG_SHAPES_ONLY = 1 << 25, /* of tensors it looks at shape, dtype and device: their memory need not be there */
  WK__TAG_OWN_DTYPE = 1 << 26,   /* numbers are converted to argument 0's dtype and do not promote it */
  WK__TAG_OUT_APART = 1 << 27,   /* out= may share no memory with an argument */
  WK__TAG_BY_RESULT = 1 << 28,   /* in place the derivative is taken from the result, where it asks for argument 0 */
  WK__TAG_FLOAT8 = 1 << 29,      /* computes with float8 as well; the others only store it, as in PyTorch */
  WK__TAG_FILLS = 1 << 30,       /* pointwise, one value for all elements: may write a tensor that overlaps itself */
  /* computes with uint16, uint32 and uint64 as well; the others only store them */
  WK__TAG_WORDS = (int)(1u << 31),
};

/* Where Python sees an operator. */
enum {
  WK__FORM_FUNCTION = 1 << 0,
  WK__FORM_HIDDEN = 1 << 1, /* a function of the core alone: the package has it in nn.functional or elsewhere */
  WK__FORM_METHOD = 1 << 2,
  WK__FORM_INPLACE = 1 << 3,          /* a method, and a function of the core alone */
  WK__FORM_INPLACE_FUNCTION = 1 << 4, /* a function as well */
  WK__FORM_INPLACE_HIDDEN = 1 << 5,   /* a function of the core alone */
  WK__FORM_INTERNAL = 1 << 6,         /* called by rules */
  WK__FORM_ANY_INPLACE = WK__FORM_INPLACE | WK__FORM_INPLACE_FUNCTION | WK__FORM_INPLACE_HIDDEN,
};

/* Which dtypes an out= may have (out_forms.c). */
typedef enum wk__out_rule {
  WK__OUT_NONE,  /* there is no out= */
  WK__OUT_CAST,  /* whatever the result can be converted to */
  WK__OUT_EXACT, /* the result's dtype */
  WK__OUT_ALIKE, /* the same, in the words of loops whose operands all have one dtype */
  WK__OUT_BOOL,  /* bool, or bytes */
  WK__OUT_FLOAT, /* any floating dtype */
} wk__out_rule;

/* The words for an index that is out of range (faults.c). */
typedef enum wk__bad_index {
  WK__BAD_INDEX_PLAIN,  /* an IndexError with its dim */
  WK__BAD_INDEX_TARGET, /* a loss's class */
  WK__BAD_INDEX_ROW,    /* which rows of a table are wanted, and no more */
  WK__BAD_INDEX_CLASS,  /* a class's number, as one_hot says it */
  WK__BAD_INDEX_DIM,    /* a RuntimeError that names the dim */
} wk__bad_index;

/* What the profiler counts (compile/report.c). */
typedef enum wk__cost {
  WK__COST_BYTES,     /* what it reads and writes */
  WK__COST_PRODUCT,   /* cost_arg: its last dim is summed over */
  WK__COST_ATTENTION, /* cost_arg: the query, cost_factor: products of its size */
  WK__COST_GATHER,    /* reads no more of an argument than it gives out */
  WK__COST_SHAPE,     /* looks at the shapes of its arguments alone */
} wk__cost;

/* Which dims of its tensors a lowered body that is not pointwise tells from the others (many_dims.c). */
typedef enum wk__dims_rule {
  WK__DIMS_OWN,      /* it is for the row alone to say */
  WK__DIMS_ALIKE,    /* none: it goes over all elements in a row */
  WK__DIMS_ALONG,    /* dims_arg: those that it names */
  WK__DIMS_LAST,     /* dims_arg: the last, as many as it says or as it has sizes */
  WK__DIMS_PAIRS,    /* dims_arg: those with a pair of numbers that are not 0, from the last on; each from the others */
  WK__DIMS_LAST_TWO, /* those, and each from the other */
  WK__DIMS_ROWS      /* the last of the largest tensor; the others say which row, and a table of rows has two dims */
} wk__dims_rule;

enum { WK__FIXED_NUMBER_COUNT = 7 };
extern const double wk__fixed_numbers[WK__FIXED_NUMBER_COUNT];

/* What autocast does with an operator's floating arguments (autocast.c). */
typedef enum wk__autocast_rule {
  WK__AUTOCAST_NONE,         /* as they are */
  WK__AUTOCAST_SAME,         /* so are those of the calls that the composite makes */
  WK__AUTOCAST_LOWER,        /* to the small dtype that was asked for: products */
  WK__AUTOCAST_FLOAT32,      /* to float32: what needs its range or its digits */
  WK__AUTOCAST_FLOAT32_REST, /* the same, but the first argument, which the composite widens itself (nn.c) */
  WK__AUTOCAST_WIDEST,       /* to the widest among them */
} wk__autocast_rule;

typedef struct wk__call wk__call;
typedef struct wk__vjp wk__vjp;
struct wk__lower;
typedef wk_status wk__meta_fn(wk__call *call); /* fills call->specs, call->compute_dtype */
typedef wk_status wk__vjp_fn(wk__vjp *vjp);
typedef void wk__lower_fn(struct wk__lower *lower);

/* An argument, and what PyTorch calls it in an error. */
typedef struct wk__said_argument {
  uint8_t position;
  const char *name;
} wk__said_argument;

/* What the tape keeps when an argument requires grad, as bits: tensors among the arguments, only their shapes, results.
 */
typedef struct wk__saves {
  uint32_t args, shapes, results;
} wk__saves;

/* A row of the table, or an operator that something made at run time (compile/fuse/kernel.h). */
struct wk_op {
  /* what each call looks at, side by side */
  uint32_t tags;   /* WK__TAG_ */
  uint16_t number; /* of the row; WK__OP_COUNT: it is not in the table */
  uint8_t forms;   /* WK__FORM_ */
  uint8_t out;     /* wk__out_rule */
  wk__kernel_fn *compose;
  wk__vjp_fn *vjp;
  wk__meta_fn *meta;
  wk__lower_fn *lower;
  wk__kernel_fn *view, *routine;
  bool has_kernel;           /* each device has code of its own, or none */
  bool halves;               /* of complex tensors: the same of real parts, then of imaginary ones (complex_calls.c) */
  bool takes_complex;        /* a kernel that computes with complex tensors itself */
  wk__lower_fn *pairs;       /* a lowered row over complex tensors: a body on pairs (pairs.h) */
  wk__kernel_fn *of_complex; /* of complex tensors: fills outputs, at once below the layers */
  const wk__saves *saves;    /* by argument; NULL without a derivative */
  wk__schema schema;
  /* names, errors, reports */
  const char *name, *base_name; /* "add.Tensor", "add" */
  const char *schema_text;
  const char *grad_fn_name; /* of the tape's node; NULL: the operator's with Backward0 */
  const char *kernel_name;  /* PyTorch's, for errors about dtypes; NULL: after the operator */
  const char
      *no_complex; /* what is said of complex tensors: a kernel's name or a text; NULL: the name is kernel_name's */
  const char *out_words; /* what is said of an out= of another dtype (out_forms.c); NULL: what its rule says */
  uint8_t autocast[2];   /* wk__autocast_rule: on the CPU, on CUDA */
  uint16_t alias_of;     /* of a row that is another name: the number of the one that it calls */
  uint8_t bad_index, cost, cost_arg, cost_factor;
  uint8_t dims_rule, dims_arg; /* wk__dims_rule, an argument */
  uint8_t grad_fn_arg;         /* 1 + the argument without which grad_fn_name does not hold; 0: it always does */
  uint8_t one_device_count;
  const wk__said_argument *one_device; /* which have to be on one device, in the order in which PyTorch looks at them */
  /* of an operator that is not in the table: appends its definition, "kernel {\n...\n}"; NULL otherwise */
  void (*print)(const wk_op *op, wk__string *out, bool with_sources);
  bool of_function; /* stands for an autograd.Function (autograd/function_op.h): a node of the tape, below which are
                     * only aliases of arguments */
  /* of an operator that is counted (that one, compile/control/control.h): takes a share of it (1), or gives one back
   * (-1). NULL: whoever made it keeps it longer than anything that calls it */
  void (*hold)(const wk_op *op, int by);
};
static inline void wk__op_hold(const wk_op *op, int by) {
  if (WK_UNLIKELY(op->hold != NULL)) op->hold(op, by);
}
static inline bool wk__is_function(const wk_op *op) { return op->of_function; }

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

/* Where it is computed: where its results are or, without a shape rule, its first tensor (compute.c). */
wk_device wk__call_device(const wk__call *call);

static inline wk_tensor *wk__tensor_or_null(const wk_value *v) { return v->tag == WK_VALUE_TENSOR ? v->tensor : NULL; }
static inline wk_tensor *wk__arg_tensor(const wk__call *c, int i) { return wk__tensor_or_null(&c->args[i]); }
static inline bool wk__value_is_integer(const wk_value *v) { return v->tag == WK_VALUE_INT || v->tag == WK_VALUE_WIDE; }
/* A float, or one that a captured graph is given in each run: `number` is its value now. */
static inline bool wk__value_is_real(const wk_value *v) {
  return v->tag == WK_VALUE_DOUBLE || v->tag == WK_VALUE_INPUT;
}
static inline bool wk__value_is_number(const wk_value *v) {
  return wk__value_is_integer(v) || wk__value_is_real(v) || v->tag == WK_VALUE_BOOL;
}
wk__scalar wk__value_scalar(const wk_value *v); /* of a number */
wk_value wk__value_of_int(int64_t i);           /* as a number, no size: any int64 */
/* Refuses a number that PyTorch does not convert to the dtype, in its words: integers have to be in range (uint8: from
 * -255), floats not to overflow. Elements that are converted, and operands, wrap around instead. */
WK_MUST_USE wk_status wk__check_number(const wk_value *number, wk_dtype dtype);
bool wk__number_fits(double number, wk_dtype dtype);
/* The parts of a number as doubles: of a real one the second is 0. */
static inline double wk__value_part(const wk_value *v, int part) {
  if (v->tag == WK_VALUE_COMPLEX) return v->numbers[part];
  return part ? 0 : wk__scalar_double(wk__value_scalar(v));
}
wk_status wk__refuse_complex(wk_dtype dtype); /* the same error, for a number with an imaginary part */
/* wk__thread.number_watch is told, while a call is recorded, that number input `number` of the graph was found to fit:
 * so it has to later. */
typedef struct wk__number_watcher {
  void *context;
  void (*fits)(void *context, int number, wk_dtype dtype);
} wk__number_watcher;
/* The same where a kernel computes with the number, in float for the small floats. */
WK_MUST_USE wk_status wk__check_factor(const wk_value *number, wk_dtype dtype);
/* The same where the number becomes a tensor of its own, in which small floats may be infinite. */
WK_MUST_USE wk_status wk__check_element(const wk_value *number, wk_dtype dtype);

/* The table, by number. */
extern const struct wk_op wk__op_table[];
#define WK__OP(symbol) (&wk__op_table[WK__OP_##symbol])
/* Whether an operator may write its first argument. */
static inline bool wk__writes_in_place(const wk_op *op) {
  return op->tags & WK__TAG_POINTWISE || op->forms & WK__FORM_ANY_INPLACE;
}
/* Of an operator that mutates: how many of its results are new tensors, and not what it has written. All, or none. */
static inline int wk__made_beside_writes(const wk_op *op) {
  return op->schema.result_count && !op->schema.result_alias[0] ? op->schema.result_count : 0;
}
#define WK__ARG(symbol, name) ((int)WK__ARG_##symbol##_##name) /* the position of an argument */
/* In a function: the positions of a row's arguments as A_self, A_dim, ... */
#define WK__ARGS(symbol) WK__ARGS_##symbol

/* What can be said of two tensors' memory at little cost; of those with gaps or overlaps nothing, as in PyTorch. */
typedef enum wk__meeting { WK__MEET_NOT, WK__MEET_ALL, WK__MEET_PARTLY, WK__MEET_UNKNOWN } wk__meeting;
wk__meeting wk__meet(const wk_tensor *a, const wk_tensor *b); /* compute.c */
wk_status wk__refuse_shared_memory(void);                     /* PyTorch's error for a result that shares memory */

/* Whether a tensor's elements lie without gaps in the order of a memory format ("channels_last"; create.c). */
bool wk__is_contiguous_in(const wk_tensor *t, const char *format);
/* Whether the order of t's strides is one with the channels last, of 4 or 5 dims. */
bool wk__has_channels_last(const wk_tensor *t);
/* The channels last, as t has them, in a contiguous description of as many dims; else nothing. */
WK_MUST_USE wk_status wk__spec_lay_out_as(wk__spec *spec, const wk_tensor *t);

/* ---- layers (dispatch.c) ---- */

/* A layer gets the call and goes on with wk__call_below(its own key, ...). The one table of them is in wiring.c; a call
 * goes to the one of its highest key. */
typedef wk_status wk__layer_fn(const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                               wk_value *results);
wk__layer_fn wk__sparse_layer;
/* What a call with sparse tensors gives (sparse.c); NULL: that is not known. */
extern wk_status (*wk__sparse_call)(const wk_op *op, const wk_value *args, wk_value *results);
extern wk__layer_fn *const wk__layers[WK__KEY_COUNT]; /* by the number of the key's bit; NULL: reserved */

/* wk__thread.call_watcher is told, where the thread's mode has WK__KEY_WATCH, of each call that was computed: the
 * arguments and results are borrowed. `before`, where there is one, is asked first: it may give the results itself. */
typedef struct wk__call_watcher {
  void *context;
  wk_status (*before)(void *context, const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                      wk_value *results, bool *out_done);
  wk_status (*called)(void *context, const wk_op *op, const wk_value *args, const wk_value *results);
} wk__call_watcher;
wk__layer_fn wk__watch_layer; /* watch.c */

/* wk__thread.mode.grad_watcher is told by the tape when it looks at or sets a leaf's .grad, and before it runs a node
 * that was recorded before `first`. */
typedef struct wk__grad_watcher {
  void *context;
  uint64_t first; /* sequence of a node */
  void (*old_node_runs)(void *context);
  void (*grad_read)(void *context, wk_tensor *leaf);
  void (*grad_written)(void *context, wk_tensor *leaf);
  void (*leaf_reached)(void *context, wk_tensor *leaf); /* its hooks are about to be run, where it has any */
} wk__grad_watcher;

wk__layer_fn wk__autocast_layer; /* autocast.c */
/* Within a composite of WK__AUTOCAST_FLOAT32_REST: whether the first argument is to be float32. */
bool wk__autocast_widens(const wk_tensor *first);
/* All that autocast asks of the thread, as one number. Captured code depends on it, and may change it. */
enum { WK__AUTOCAST_ON_CPU = 1, WK__AUTOCAST_ON_CUDA = 2 };
static inline int wk__autocast_mode(void) {
  const wk__thread_mode *m = &wk__thread.mode;
  return m->autocast_on | m->autocast_caches << 2 | m->autocast_dtype << 3 | m->autocast_cuda_dtype << 11;
}
static inline void wk__set_autocast_on(int devices) {
  int others = wk__thread.mode.keys_on & ~WK__KEY_AUTOCAST;
  wk__thread.mode.autocast_on = (uint8_t)devices;
  wk__thread.mode.keys_on = (wk__keys)(devices ? others | WK__KEY_AUTOCAST : others);
}
static inline void wk__set_autocast_mode(int mode) {
  wk__set_autocast_on(mode & 3);
  wk__thread.mode.autocast_caches = mode & 4;
  wk__thread.mode.autocast_dtype = (uint8_t)(mode >> 3);
  wk__thread.mode.autocast_cuda_dtype = (uint8_t)(mode >> 11);
}

/* Runs the call below the layers: shape rule, allocation, kernel. */
WK_MUST_USE wk_status wk__compute(const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                                  wk_value *results);
/* The same for a row with a shape rule, or a fused kernel, whose results are there: `outputs` have the geometry that
 * the rule gives; with `check`, and in debug builds, WK_VALUE_ERROR where they have not. Nothing of them lies where an
 * argument does, but for POINTWISE operators element on element. */
WK_MUST_USE wk_status wk__compute_into(const wk_op *op, const wk_value *args, wk_tensor **outputs, bool check);
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
  const bool *wanted;    /* by input: one an argument, then one an item of each list of tensors */
  wk_tensor **out_grads; /* by input; set by wk__vjp_set */
};
static inline bool wk__needs(const wk__vjp *v, int input) { return v->wanted[input]; }
/* Where the items of a list of tensors, argument `arg`, begin among the inputs: behind the items of lists before it. */
static inline int wk__list_start(const wk_op *op, const wk_value *args, int arg) {
  int start = op->schema.parameter_count;
  for (int i = 0; i < arg; i++) start += args[i].tag == WK_VALUE_TENSORS ? (int)args[i].count : 0;
  return start;
}
static inline int wk__list_input(const wk__vjp *v, int arg, int item) {
  return wk__list_start(v->op, v->args, arg) + item;
}
/* Records a gradient (borrowed; NULL, a failed call, gives the error's status). */
WK_MUST_USE wk_status wk__vjp_set(wk__vjp *v, int input, wk_tensor *grad);

/* ---- lowering (lower.c) ---- */

/* What a row's lower function sees. It says what happens to each element by calling wk__k_* on `h`. Sizes are symbols
 * ("size of buffer b, dim d"), so that one body serves all sizes; ranks, dtypes, int and bool arguments are known. */
typedef struct wk__lower {
  wk__loop_handler *h;
  wk__nest *nest;
  const wk__call *call;
  wk_dtype compute;                   /* of the call's compute_dtype */
  bool pointwise;                     /* geometry-free: every access is [i0] */
  int8_t buffer_of_arg[WK__MAX_ARGS]; /* -1: not a tensor */
  int8_t buffer_of_result[WK__MAX_RESULTS];
  int8_t param_of_arg[WK__MAX_ARGS];   /* -1: not a number that is given at launch */
  uint8_t row_rank;                    /* rows: rank of the argument whose dims the nest has */
  uint64_t row_mask;                   /* rows: its reduction dims */
  wk_int row_index[WK__NEST_MAX_DIMS]; /* rows: the loop variable of each of its dims */
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

/* Of a complex call, in a row's body on pairs: the real and the imaginary part. What is real has the number 0 as the
 * latter; of what goes into a real result only the former is looked at. */
typedef struct wk__pair {
  wk__var re, im;
} wk__pair;
wk__pair wk__in_pair(wk__lower *l, int arg);
void wk__out_pair(wk__lower *l, int result, wk__pair value);

/* Rows: the dims of argument `arg` become the nest, those in `mask` as reduction dims. */
void wk__rows_of(wk__lower *l, int arg, uint64_t mask);
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
