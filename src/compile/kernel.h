/* Fused kernels as operators of a graph.
 *
 * A *kernel* is a nest and its program, shared by all graphs of the process whose fused nodes have the same nest text:
 * the equal layers of a model have one kernel. A *fused operator* is what a graph node calls: a kernel and how the
 * node's arguments become its launch. Its schema is
 *     kernel_N(Tensor[] inputs, SymInt[] numbers, float p0=0, ...) -> Tensor, or -> Tensor[] for several results
 * `numbers` are all sizes, strides and offsets of the launch: the executor computes them anew only when symbols change.
 *
 * Ownership: wk__kernels owns the fused operators, which must outlive the graph and executor that call them; a fused
 * operator holds its kernel. */
#ifndef WICK_COMPILE_KERNEL_H
#define WICK_COMPILE_KERNEL_H

#include "compile/internal.h"

typedef struct wk__kernel {
  struct wk__kernel *next; /* of the same hash */
  int64_t references;      /* under the cache's lock */
  uint64_t hash;
  char *text; /* of the nest */
  wk__nest *nest;
  wk__shape_env *env; /* owns compound expressions of the nest */
  wk__program *program;
  struct wk__native_unit *unit; /* NULL: nobody has asked for native code */
} wk__kernel;

/* The kernel of a nest, new or shared. Takes nest and env over, on failure too. */
wk__kernel *wk__kernel_get(wk__nest *steal_nest, wk__shape_env *steal_env) WK_MUST_USE;
void wk__kernel_release(wk__kernel *kernel);

typedef struct wk__fused_buffer {
  int16_t input;                  /* of the node's inputs; -1 - r: result r */
  int32_t offset, sizes, strides; /* places among the numbers; sizes: -1 for a nest that is free of geometry */
} wk__fused_buffer;

typedef struct wk__fused_output {
  uint8_t dtype, ndim;
  int32_t sizes, strides;
} wk__fused_output;

typedef struct wk__fused_param {
  int16_t argument; /* float argument p<i>; -1: an integer, */
  int32_t number;   /* which is this one */
} wk__fused_param;

struct wk__fused {
  wk_op op; /* first: a call gives it back */
  char name[32], schema_text[320];
  char *origin; /* owned: the nodes that it stands for, a line each */
  wk__kernel *kernel;
  int buffer_count, output_count, param_count, ndim;
  int32_t loop_sizes;    /* of a nest that is free of geometry: its iteration space among the numbers */
  const wk_op *index_op; /* an operator of it that checks indices, for the error's text; NULL */
  wk__fused_buffer buffers[WK__NEST_MAX_BUFFERS];
  wk__fused_output outputs[WK__NEST_MAX_BUFFERS];
  wk__fused_param params[2 * WK__FUSED_NUMBERS];
};

struct wk__kernels {
  wk__fused **items; /* owned */
  int64_t count, capacity;
};

/* Adds one without buffers; output_count decides its schema. */
wk__fused *wk__kernels_add(wk__kernels *kernels, int output_count) WK_MUST_USE;
void wk__kernels_release(wk__kernels *kernels);
/* Native code for those that have none yet, in the background. */
void wk__kernels_submit(const wk__kernels *kernels);
bool wk__kernels_wait(const wk__kernels *kernels); /* false: some have none */

#endif
