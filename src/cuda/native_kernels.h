/* Kernels of tier 1 by the shape of their launches: shared by what gives one launch (native_launch.c), many as one
 * (together.c), and one behind a product (behind.c). */
#ifndef WICK_CUDA_NATIVE_KERNELS_H
#define WICK_CUDA_NATIVE_KERNELS_H

#include "codegen/ptx_product.h"
#include "cuda/native.h"
#include "cuda/recording.h"

/* The product whose kernel does the nest's work as well; its arguments come first. */
typedef struct wk__cuda_behind {
  wk__ptx_product product;
  uint64_t taken; /* accesses (bits) that read the product's result */
} wk__cuda_behind;

typedef struct wk__cuda_kernel {
  struct wk__cuda_kernel *next;
  wk__ptx_shape shape;
  bool is_behind;
  wk__cuda_behind behind; /* of one that is */
  const wk__nest *nest;   /* borrowed */
  wk__cuda_device *device;
  _Atomic(int) state;
  _Atomic(int) uses;   /* before it was asked for */
  wk__cuda_held *held; /* owned: the module of the function; NULL before it is there */
  CUfunction function;
  int arg_count, states;
  int threads, shared;            /* of one that is behind a product */
  wk__ptx_arg *args;              /* owned; those of the nest */
  struct wk__cuda_kernel *queued; /* of the compiler */
} wk__cuda_kernel;

/* Whether the interpreter does all of it, or such a launch. */
bool wk__cuda_is_interpreted(const wk__nest *nest, const wk__cuda_device *device, const wk__binding *binding,
                             const wk__launch *launch);
/* The kernel when it is there; else it is asked for by its second use, or waited for. behind: NULL: a nest alone. */
wk__cuda_kernel *wk__cuda_kernel_for(wk__cuda_native *native, const wk__nest *nest, const wk__cuda_stream *stream,
                                     const wk__binding *binding, const wk__ptx_shape *shape,
                                     const wk__cuda_behind *behind);
/* The kernel of a nest alone, for which this waits; NULL: there is none (error cleared). */
wk__cuda_kernel *wk__cuda_kernel_now(wk__cuda_native *native, const wk__nest *nest, const wk__cuda_stream *stream,
                                     const wk__ptx_shape *shape);
/* Whether a launch has the shared memory that it needs. */
bool wk__cuda_kernel_fits(const wk__cuda_kernel *kernel, const wk__binding *binding);
/* Gives a launch of one kernel to the stream. scratch: memory for what its arguments lie in; NULL: it has none. */
WK_MUST_USE wk_status wk__cuda_give_kernel(const wk__cuda_kernel *kernel, wk__cuda_stream *stream,
                                           const wk__binding *binding, const wk__launch *launch, void *scratch);
/* The kernels of a launch in their order: one; or parts of rows and what folds them, phase by phase. */
enum { WK__CUDA_MOST_KERNELS = 2 * WK__PTX_MOST_PHASES };
typedef struct wk__cuda_sequence {
  const wk__cuda_kernel *in_turn[WK__CUDA_MOST_KERNELS];
  int count;
  int64_t scratch; /* bytes that they hand on states in */
} wk__cuda_sequence;
/* False: one of them is not there, or has not the shared memory that it needs. now: they are waited for. */
bool wk__cuda_find_sequence(wk__cuda_native *native, const wk__nest *nest, const wk__cuda_stream *stream,
                            const wk__binding *binding, const wk__ptx_shape *shape, bool now, wk__cuda_sequence *out);
WK_MUST_USE wk_status wk__cuda_give_sequence(const wk__cuda_sequence *sequence, wk__cuda_stream *stream,
                                             const wk__binding *binding, const wk__launch *launch);
/* Blocks of a launch. */
int64_t wk__cuda_blocks_of(const wk__cuda_kernel *kernel, const wk__binding *binding);
/* The kernel's arguments, and which of them are addresses of the caller's: how many. Words count from `first`. */
int wk__cuda_collect_args(const wk__cuda_kernel *kernel, const wk__cuda_stream *stream, const wk__binding *binding,
                          const wk__launch *launch, void *scratch, int64_t *out, uint32_t first,
                          wk__cuda_address *out_addresses);

/* exact_sums.c: an argument of an exact launch's kernels (WK__PTX_PLACES and those behind it) in its memory. */
int64_t wk__cuda_exact_arg(const wk__nest *nest, const wk__binding *b, const wk__launch *launch, const wk__ptx_arg *arg,
                           const void *memory);

#endif
