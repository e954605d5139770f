/* The state of a thread on one page: what is current in it. A call depends on its arguments, on this, and on nothing
 * else of the thread.
 *
 * Each pointer belongs to the part that is named beside it, which sets it and puts back what was there before; base/
 * knows the types by name only. A new thread starts with what thread.c says.
 *
 * Not here, because no result depends on it: what a thread keeps in order to be faster (free lists in tensor/ and
 * autograd/, its share of the allocator's cache, the plans that it used last, scratch memory, the interpreter that it
 * was last in), its error (base/error.c), where a kernel notes an index that is out of range (cpu/tier0/primitives.h),
 * and nodes that wait to be destroyed (autograd/node.c). Tests: tests/c/test_base.c. */
#ifndef WICK_BASE_THREAD_H
#define WICK_BASE_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "wick/tensor.h"

/* Every variable of a thread is one of these. Where a shared library that is loaded after the start has any other, to
 * find one is a call of the C library, some 3 ns, and an operator makes a dozen of them; these lie where the thread's
 * register points. glibc leaves little more than 1 KB there for all libraries that come later, so what is large is a
 * pointer to the heap. All of wick's together: at most 768 bytes (tests/python/test_build.py). */
#if defined __GLIBC__
#define WK__THREAD_LOCAL _Thread_local __attribute__((tls_model("initial-exec")))
#else
#define WK__THREAD_LOCAL _Thread_local
#endif

enum { WK__MOST_DEVICES = 16 }; /* of a type */

/* What layers of a call look at (ops/dispatch.c). Saved and put back as a whole by code that calls operators under
 * another mode. Bits are WK__KEY_* of tensor/tensor.h. */
typedef struct wk__thread_mode {
  uint16_t keys_on;                      /* layers that this thread turns on for every call: trace, body, decompose */
  uint16_t keys_off;                     /* layers that are switched off here: inside the layer itself, under no_grad */
  bool grad_enabled;                     /* true at the start */
  bool inference;                        /* what is made is an inference tensor (autograd/inference.c) */
  bool autocast_caches;                  /* ops/autocast.c: what the program has set; nothing is cached */
  uint8_t autocast_on;                   /* ops/autocast.c: on which devices, WK__AUTOCAST_ON_ bits */
  uint8_t autocast_dtype;                /* wk_dtype that products are computed in on the CPU; bfloat16 at first, */
  uint8_t autocast_cuda_dtype;           /* and on CUDA; float16 at first */
  bool decompose_once;                   /* what a call is decomposed into stays whole (decompose/table.c) */
  uint32_t level_number;                 /* of `level`; 0: none */
  uint32_t level_followed;               /* of the other level whose tensors its tape records; its own: none */
  struct wk__level *level;               /* levels/levels.h: the innermost function transform that runs; NULL */
  uint64_t tape_sequence;                /* of the tape node that is being recorded around this call; 0 */
  uint64_t running_sequence;             /* of the tape node that the engine runs; 0: none */
  struct wk__grad_watcher *grad_watcher; /* ops/ops.h: told what the tape does to leaves; NULL */
} wk__thread_mode;

/* How tensors are printed (tensor/print.c). */
typedef struct wk__print_options {
  int precision;     /* digits after the point: 4 */
  int64_t threshold; /* elements above which a summary is printed: 1000 */
  int edge_items;    /* of a summary: 3 */
  int line_width;    /* 80 */
  int scientific;    /* -1: decide; 0, 1 */
} wk__print_options;

typedef struct wk__thread_state {
  wk__thread_mode mode;

  /* who records, watches or owns; NULL: none */
  struct wk__tracer *tracer;                     /* trace/: calls become nodes of its graph */
  struct wk__control_recording *control;         /* compile/control/: functions of control flow are called */
  struct wk__body *body;                         /* autograd/: calls become instructions of its nest */
  struct wk__tracer *symbols_of;                 /* trace/: the tracer whose symbols are in use */
  struct wk__shape_env *shape_env;               /* sym/: where new expressions are made */
  struct wk__session *session;                   /* dynamo/: the innermost compiled function that runs */
  struct wk__saver *saver;                       /* autograd/: packs what the tape keeps */
  const struct wk__number_watcher *number_watch; /* ops/: told that a number fits a dtype */
  const struct wk__call_watcher *call_watcher;   /* ops/: told of calls under WK__KEY_WATCH */
  struct wk__gemm_timing *gemm_timing;           /* cpu/gemm/: products are timed in several ways, results go there */
  struct wk_scope *scope;                        /* wick/ops.h: owns what C calls make */
  struct _ts *gil_given; /* dynamo/cpython/gil.h: Python's thread state while its lock is given away */

  const char *warning; /* what the last call found odd in its arguments, for its caller to say and to clear; NULL. Never
                          freed */
  int overrides_off, subclass_overrides_off; /* python/calls/override.c: how many such blocks the thread is in */
  int backward_depth;                        /* autograd/engine.c: how many backward passes the thread is in */
  uint64_t program_calls, program_backwards; /* python/: operators and backward passes that the program has called */
  uint64_t program_calls_asked;              /* dynamo/: at that many calls it wants to be told; 0: never */
  struct wk__program *program;               /* dynamo/: whose hot loops are found; NULL */
  int worker;                                /* base/threads.c: wk__thread_index */
  bool inside_parallel_for;                  /* base/threads.c: another one runs inline */
  bool gemm_other_sums;                      /* of a tuned graph: ways that sum in another order may be taken */
  bool copies_later;                         /* ops/rules/create.c: .to(non_blocking=True) is being called */
  wk_device default_device;                  /* python/: of new tensors whose call names none; WK_CPU at the start */
  uint8_t default_dtype;                     /* wk_dtype of floats that name none; WK_FLOAT32 at the start */
  wk__print_options print;
  /* device/registry.c: of each type the current device, and what streams get the devices' work; NULL: the default ones
   */
  int8_t devices[WK_DEVICE_TYPE_COUNT];
  struct wk__stream *(*streams)[WK__MOST_DEVICES];
} wk__thread_state;

extern WK__THREAD_LOCAL __attribute__((visibility("hidden"))) wk__thread_state wk__thread;

#endif
