/* Fused kernels as operators of a graph.
 *
 * A *kernel* is a nest and its code on a device, shared by all graphs of the process whose fused nodes have the same
 * nest text: the equal layers of a model have one kernel. A *fused operator* is what a graph node calls: a kernel and
 * how the node's arguments become its launch. Its schema is kernel_N(Tensor[] inputs, SymInt[] numbers, float p0=0,
 * ...) -> Tensor, or -> Tensor[] for several results `numbers` are all sizes, strides and offsets of the launch: the
 * executor computes them again only when symbols change.
 *
 * Ownership: wk__kernels owns the fused operators, which must outlive the graph and executor that call them; a fused
 * operator holds its kernel. */
#ifndef WICK_COMPILE_FUSE_KERNEL_H
#define WICK_COMPILE_FUSE_KERNEL_H

#include "compile/fuse/fuse.h"
#include "ops/rules/draw.h"
#include "ops/rules/multi_tensor.h"
#include "ops/rules/product.h"

typedef struct wk__kernel {
  struct wk__kernel *next; /* of the same hash */
  int64_t references;      /* under the cache's lock */
  uint64_t hash;
  char *text; /* of the nest */
  wk__nest *nest;
  wk__shape_env *env; /* owns compound expressions of the nest */
  const wk__device_type *device;
  wk__code *code;
  unsigned modes;              /* of the device's modes_of: how launches go through it; 0: in any way */
  struct wk__improved *batch;  /* NULL: nothing has asked for tier 1 */
  _Atomic bool measured;       /* launches are timed, until it is known whether tier 1 is worth it: */
  _Atomic int64_t nanoseconds; /* what they took together */
} wk__kernel;

wk__kernel *wk__kernel_retain(wk__kernel *kernel);
void wk__kernel_release(wk__kernel *kernel);

enum {                                 /* for a buffer's tensor */
       WK__FUSED_DRAWN = INT16_MIN,    /* the values that were just drawn, kept nowhere */
       WK__FUSED_MADE = INT16_MIN + 1, /* the part of an operand that a product is about to use */
};

typedef struct wk__fused_buffer {
  int16_t input;                  /* of the node's inputs; -1 - r: result r; WK__FUSED_... */
  int32_t offset, sizes, strides; /* places among the numbers; sizes: -1 for a nest that is free of geometry */
} wk__fused_buffer;

/* A launch of the kernel: its loops, and what its buffers are. */
typedef struct wk__fused_form {
  int ndim;
  int32_t loop_sizes; /* of a nest that is free of geometry: its iteration space among the numbers */
  wk__fused_buffer buffers[WK__NEST_MAX_BUFFERS];
} wk__fused_form;

typedef struct wk__fused_output {
  uint8_t dtype, ndim;
  int32_t sizes, strides;
} wk__fused_output;

typedef struct wk__fused_param {
  int16_t argument; /* float argument p<i>; -1: an integer, */
  int32_t number;   /* which is this one */
} wk__fused_param;

/* An operand that the kernel makes as the product uses it. */
typedef struct wk__fused_made {
  uint8_t ndim; /* 0: there is none */
  uint8_t operand;
  bool transposed;
  int32_t sizes; /* place among the numbers */
} wk__fused_made;

/* A matrix product or attention whose epilogue or operand the kernel is (product_fit.c). */
enum { WK__PRODUCT_ARGS = 9 };
typedef struct wk__fused_product {
  const wk_op *op;                      /* NULL: none */
  int16_t args[WK__PRODUCT_ARGS];       /* the node's input that is its argument i; -1: none */
  wk_value constants[WK__PRODUCT_ARGS]; /* of those: bools, floats, integers and owned lists of them; else NONE */
  int16_t result;                       /* the node's result that its own lies in */
  wk__fused_made made;
} wk__fused_product;

/* Random values that the kernel reads as they are drawn (product_fit.c). */
typedef struct wk__fused_draw {
  const wk_op *op;  /* NULL: none */
  int16_t argument; /* the float argument p<i> that is its probability */
  int16_t result;   /* the node's result that keeps the values; -1: they are not used */
} wk__fused_draw;

struct wk__fused {
  wk_op op; /* first: a call gives it back */
  char name[32], schema_text[320];
  wk__parameter parameters[2 + WK__FUSED_NUMBERS];
  char *origin; /* owned: the nodes that it stands for, a line each */
  char *stacks; /* owned: where they were called, a line each, as wk__source_line_print; empty: not known */
  bool checked; /* it comes from text: launches are checked */
  wk__kernel *kernel;
  wk_device device; /* where its tensors are */
  int buffer_count, output_count, param_count;
  const wk_op *index_op; /* an operator of it that checks indices, for the error's text; NULL */
  wk__fused_form form;
  wk__fused_form *again; /* (again_count) owned: further launches, which the device is given together with the first */
  int again_count;       /* of a nest that is free of geometry, with nothing beside it */
  wk__fused_output outputs[WK__NEST_MAX_BUFFERS];
  wk__fused_param params[2 * WK__FUSED_NUMBERS];
  wk__fused_product product;
  wk__fused_draw draw;
};

/* The kernel of a nest, new or shared, for launches of the fused operator with these numbers: a function for the other
 * mode would be half of what the C compiler does. Where numbers are symbolic, or NULL, launches may go in any mode; one
 * that goes otherwise than is said here stays with tier 0. alone: it is not shared, so that whether it has native code
 * depends on nothing else. Takes nest and env over, on failure too. */
wk__kernel *wk__kernel_get(wk__nest *steal_nest, wk__shape_env *steal_env, const wk__fused *fused,
                           const wk_int *numbers, int64_t count, bool alone) WK_MUST_USE;

struct wk__kernels {
  wk__choices choices; /* that they are made with, */
  wk__limits limits;   /* and as far as */
  wk__fused **items;   /* owned */
  int64_t count, capacity;
  const wk_op **controls; /* owned shares: operators of control flow, of a graph from text */
  int64_t control_count, control_capacity;
  wk__kept_code *kept[16]; /* of the rows that the graph calls: they get native code, too */
  int kept_count;
};

/* Adds one without buffers; output_count decides its schema. name: NULL: the next number's. */
wk__fused *wk__kernels_add(wk__kernels *kernels, const char *name, int output_count) WK_MUST_USE;

/* It is not called any more. */
void wk__kernels_remove(wk__kernels *kernels, const wk__fused *fused);

/* together.c, a pass: calls of equal kernels that may run at one place become one. */
WK_MUST_USE wk_status wk__give_together(wk__graph *graph, wk__kernels *kernels, bool *out_changed);

/* Finds the codes that rows which the graph calls keep. */
WK_MUST_USE wk_status wk__kernels_find_kept(wk__kernels *kernels, const wk__graph *graph);

/* text.c: the definition. */
void wk__fused_print(const wk_op *op, wk__string *out, bool with_sources);
/* WK_VALUE_ERROR: a call with these arguments and outputs would leave their memory. */
WK_MUST_USE wk_status wk__fused_check_launch(const wk__fused *fused, const wk_value *args, wk_tensor *const *outputs);

void wk__fused_product_release(wk__fused_product *product); /* its lists */
/* The arguments of the product, from those of the fused operator; none for an operand that is made. */
void wk__fused_product_args(const wk__fused *fused, const wk_value *args, wk_value *out);
/* That operand, without memory. */
wk_tensor *wk__fused_made_shape(const wk__fused *fused, const wk_int *numbers) WK_MUST_USE;
#endif
