/* The device seam: what the rest of wick asks of a device.
 *
 * A device type is one constant table of functions; which of its devices is meant, and in which order its work is done,
 * comes with each call as a stream. Nothing outside a device's own folder reads or writes its memory: addresses are
 * only computed with, and handed to launch, copy and fill. Values come to the host by wk__to_host and wk__read_element
 * (tensor/tensor.h). tools/check_devices.py keeps that, and so does the device "host2" of debug builds, whose memory
 * can be touched only inside a call of its table.
 *
 * Work of one stream is done in the order of its calls; a function may return before the work is done, but for copies
 * to the host, which are finished when they return. Memory that is released may still be used by work that was given to
 * the same stream before. All functions may be called by any thread. Errors: a status, and the thread's error.
 *
 * docs/add-a-device.md walks through a table. Tests: tests/device/, which run on every device that is there. */
#ifndef WICK_DEVICE_DEVICE_H
#define WICK_DEVICE_DEVICE_H

#include "base/base.h"
#include "wick/ops.h"

typedef struct wk__device_type wk__device_type;

/* A queue of one device. Owned by its device and never freed: pointers stay valid while the process lives. */
typedef struct wk__stream {
  const wk__device_type *type;
  wk_device device; /* with its index */
  void *own;        /* the device's */
  bool captured;    /* what it is given is not run, but noted by the device, to be run later and more than once */
} wk__stream;

/* A point in a stream's work. Owned by whoever created it. */
typedef struct wk__event wk__event;

/* LATER: the host's memory may be read or written after the call has returned, at any time before the stream's work is
 * done; a device that cannot, or not with that memory, does it at once. */
typedef enum wk__copy_way {
  WK__FROM_HOST,
  WK__TO_HOST,
  WK__ON_DEVICE,
  WK__PEER,
  WK__FROM_HOST_LATER,
  WK__TO_HOST_LATER
} wk__copy_way;

/* ---- code: nests as a device runs them ---- */

struct wk__nest;        /* loop/loop.h */
struct wk__launch;      /* loop/launch.h */
struct wk__tile_kernel; /* tile/tile.h */
struct wk__tile_launch;
struct wk__call; /* ops/ops.h: one call of an operator with its results made */
typedef struct wk__code
    wk__code; /* of one nest; owned by whoever built it; may be launched by several threads at once */

/* A nest whose code is to become faster in the background. */
typedef struct wk__code_source {
  const struct wk__nest *nest;
  const char *name;       /* for people: "softmax"; NULL: none. Need not be unique */
  const char *provenance; /* lines that become a comment: graph nodes, Python lines; NULL: none */
  unsigned modes;         /* of wk__device_type.modes_of: which it is needed for; 0: all */
  wk__code *code;         /* gets it */
  int64_t nanoseconds;    /* that its launches took so far: which is worth the most comes first; 0: not known */
} wk__code_source;

/* Sources that were given together. */
typedef struct wk__code_group wk__code_group;
typedef enum wk__code_state { WK__CODE_PENDING, WK__CODE_READY, WK__CODE_FAILED } wk__code_state;

/* Code that a row keeps between its calls (the update of an optimizer, a body of scores). A compiled graph that calls
 * the row asks for native code of it, which then serves eager calls, too. */
typedef struct wk__kept_code {
  struct wk__nest *nest;
  const wk__device_type *device;
  wk__code *code;
  const char *name;         /* for people */
  wk__code_group *improved; /* NULL until a graph has asked; compile/fuse/kernel.c's, under its lock */
  void (*release)(struct wk__kept_code *kept); /* gives a share back; NULL: it stays until the process ends */
} wk__kept_code;

/* A kernel that is run part by part beside an operator that makes or takes the parts: product_fit.c says which go
 * together. `whole` is its launch over the whole matrix (or line), whose part a device selects by itself. */
typedef struct wk__fused_launch {
  const wk__code *code;
  const struct wk__launch *whole;
  int ndim; /* loops: 2, or 1 for one row */
  int buffer_count;
  const uint8_t *sizes; /* (buffer_count) bytes an element */
  int own;          /* which buffer is the operator's part: made for it, or drawn by it; -1: it writes its result, and
                       the kernel runs behind it */
  uint32_t written; /* which buffers the kernel writes, as bits */
  uint32_t result;  /* which read the operator's result, as bits */
  bool kept;        /* that result is wanted by others, too: the kernel does not overwrite it */
  int made;         /* of an operand that the kernel makes: which argument; else -1 */
  bool transposed;  /* what it makes has the argument's last two dims (attention: heads and rows) exchanged */
} wk__fused_launch;

/* ---- what the compiler asks ---- */

/* What runs as one with a kernel beside it. */
enum {
  WK__BESIDE_PRODUCTS = 1, /* run_product is there: mm and linear with a kernel behind them, */
  WK__BESIDE_MORE = 2,     /* bmm, attention and convolutions as well, and operands that a kernel makes, */
  WK__BESIDE_WANTED = 4,   /* and results that others want, too */
  WK__BESIDE_DRAWS = 8,    /* run_draw is there */
};

typedef struct wk__fusion_facts {
  bool compiles;          /* nests are worth fusing here at all */
  uint8_t beside;         /* WK__BESIDE_..., as bits */
  uint32_t beside_dtypes; /* of which products, as bits */
  bool columns_apart;     /* a reduction down the columns of what another kernel stores is a kernel of its own */
  bool together;          /* launches of one kernel cost less when they are given together */
  int64_t kept_elements;  /* of a row: longer ones are computed again in each phase, not kept */
} wk__fusion_facts;

/* ---- recordings: what steps of a graph's run give a stream, noted, to be given again by one call ---- */

/* Of one stream; used by one thread at a time. Steps and launches count from 0. */
typedef struct wk__recording wk__recording;

/* Which of the caller's memories (a number from 0 on) the address lies in, and how far from where the memory begins;
 * -1: in none. */
typedef int32_t wk__memory_of_fn(void *context, uint64_t address, int64_t *out_offset);
typedef struct wk__memories {
  wk__memory_of_fn *find;
  void *context;
} wk__memories;

typedef enum wk__recorded { WK__RECORDED, WK__NOT_NOW, WK__NOT_EVER } wk__recorded;

/* `begins` below: where each memory begins now, by number; it may have moved since it was noted, by a multiple of 256
 * bytes. */
typedef struct wk__recording_type {
  uint32_t (*settings)(
      void); /* another number when a setting of the device has changed, so that steps give other work */
  /* NULL with no error: recordings are switched off. */
  wk__recording *(*create)(wk__stream *stream);
  void (*release)(wk__recording *recording); /* work of it that was given may still run; NULL is fine */
  /* What this thread gives between the two is a step's: it is given and noted. Memory that it takes meanwhile and gives
   * back stays the recording's. end_step: *out_why says why the step cannot be given again, and it is forgotten. */
  wk_status (*begin_step)(wk__recording *recording, wk__memories memories);
  wk__recorded (*end_step)(wk__recording *recording, int64_t *out_launches, const char **out_why);
  /* No more steps: makes what `give` gives. */
  wk_status (*close)(wk__recording *recording, const uint64_t *begins);
  /* Of a closed recording, in the order of steps and before give: the step's code runs between the two, as it did when
   * it was noted, and what it gives is compared with that instead: numbers may be others. false: it was other work. All
   * in front of it and it has been given by itself then; what is behind it is the caller's, and the recording is done
   * with. */
  void (*begin_again)(wk__recording *recording, int64_t step, const uint64_t *begins);
  bool (*end_again)(wk__recording *recording);
  /* Whether the step need not be run again: work of a library cannot follow memory that has moved. begins
   * NULL: it may have moved anywhere. */
  bool (*holds)(const wk__recording *recording, int64_t step, const uint64_t *begins);
  /* All of it. */
  wk_status (*give)(wk__recording *recording, const uint64_t *begins);
  /* The launches of the steps in front of `step`, one by one: what is behind is the caller's. */
  wk_status (*give_until)(wk__recording *recording, int64_t step, const uint64_t *begins);
} wk__recording_type;

/* ---- random numbers ---- */

typedef struct wk__generator_type wk__generator_type; /* random/generator.h */

/* ---- the table ---- */

typedef wk_status wk__kernel_fn(struct wk__call *call); /* fills call->outputs; see ops/ops.h */

struct wk__device_type {
  const char *name;      /* "cpu" */
  bool host_reads;       /* its memory is the host's: addresses may be followed anywhere */
  bool has_index;        /* "cuda:0"; without, there is one device */
  const char *no_memory; /* the error for memory that there is not, with %lld for its bytes */

  /* How many there are; 0, with the error set when `why`, says that there is no driver or no device. */
  int (*count)(bool why);
  wk__stream *(*default_stream)(int index);     /* NULL: the device cannot be opened (error set) */
  wk__stream *(*create_stream)(int index);      /* NULL with the error set; it lives as long as the process */
  wk_status (*synchronize)(wk__stream *stream); /* waits for all its work */

  wk__event *(*create_event)(int index); /* NULL with the error set */
  void (*release_event)(wk__event *event);
  wk_status (*record)(wk__event *event, wk__stream *stream);
  wk_status (*wait)(wk__stream *stream, const wk__event *event); /* the stream's later work runs behind it */
  bool (*is_done)(const wk__event *event);
  wk_status (*finish)(const wk__event *event);                     /* the host waits */
  double (*elapsed)(const wk__event *begin, const wk__event *end); /* milliseconds */

  /* At least `bytes`, aligned for every dtype; NULL with the error set. The stream's earlier releases may be given out
   * again at once. wanted: where it should lie, if the device can choose and that is free; NULL: anywhere. */
  void *(*allocate)(wk__stream *stream, int64_t bytes, const void *wanted, int64_t *out_capacity);
  void (*release)(wk__stream *stream, void *memory, int64_t capacity);
  /* WK__PEER: `from` is memory of another device of this type. */
  wk_status (*copy)(wk__stream *stream, void *to, const void *from, int64_t bytes, wk__copy_way way);
  wk_status (*fill)(wk__stream *stream, void *to, int value, int64_t bytes);

  /* Tier 0: must neither wait for a compiler nor fail for want of one. The nest must outlive the code. */
  wk__code *(*build)(const struct wk__nest *nest);
  void (*release_code)(wk__code *code); /* not while it runs */
  /* `count` launches of one code, none of which touches what another writes. */
  wk_status (*launch)(wk__stream *stream, const wk__code *code, const struct wk__launch *launches, int64_t count);
  /* Tier 1, in the background; from then on launch uses it. NULL with the error set. The functions are NULL where a
   * device has one tier. */
  wk__code_group *(*improve)(const wk__code_source *sources, int count);
  /* The same for those of which code is there from earlier processes: which, in out_found (count). NULL: none. */
  wk__code_group *(*recall_code)(const wk__code_source *sources, int count, bool *out_found);
  /* What earlier processes and this one have left of code, as bytes for another machine (owned, wk__free; NULL:
   * nothing); and back: how many pieces, -1: it is something else. */
  char *(*bundle_code)(size_t *out_size);
  int64_t (*unbundle_code)(const char *data, size_t size);
  wk__code_state (*await_group)(wk__code_group *group);
  bool (*is_native)(const wk__code *code);      /* at this moment; what is written as C has it (codegen/) */
  void (*release_group)(wk__code_group *group); /* its codes fall back to tier 0; none may be running */
  unsigned (*modes_of)(const wk__code *code, const struct wk__launch *launch); /* bits; 0: any. Needs no data */
  /* A kernel of the tile IR, of which the first launch makes code that the kernel owns. NULL: runs none. */
  wk_status (*launch_tiles)(wk__stream *stream, struct wk__tile_kernel *kernel, const struct wk__tile_launch *launch);

  /* KERNEL rows: code by operator number; NULL: this device has none. */
  wk__kernel_fn *const *kernels;
  /* Which codes of its own such a row runs in a call with these arguments, at most `most`, with a share of each for the
   * caller: how many. Tensors may be descriptions. NULL: none. */
  int (*kept_codes)(const wk_op *op, const wk_value *args, wk__kept_code **out, int most);
  /* A product (or attention) into `out`, or a draw, with a kernel beside it: WK_UNSUPPORTED never comes, since the
   * facts are asked before. */
  wk_status (*run_product)(wk__stream *stream, const wk_op *op, const wk_value *args, wk_tensor *out,
                           const wk__fused_launch *fused);
  wk_status (*run_draw)(wk__stream *stream, const wk_op *op, double p, wk_tensor *out_or_null, int64_t n,
                        const wk__fused_launch *fused);
  const wk__fusion_facts *facts;
  const wk__recording_type *recordings; /* NULL: none */
  const wk__generator_type *generator;
  bool (*fuses_attention)(wk_device device); /* _fused_attention is there, for small floats and float32; NULL: no */
  bool (*scales_products)(wk_device device); /* _scaled_product is there; NULL: no */
  bool finds_groups;                         /* _grouped_product reads its ends on the device */
  /* Convolutions of the dtype take images with the channels last as they lie, and copy others. NULL: no. */
  bool (*convolves_last)(wk_device device, wk_dtype dtype);
  /* _flex_attention is there, for small floats and float32, with a body of f32 scores (as text; empty: at all); NULL:
   * no */
  bool (*fuses_scores)(wk_device device, const char *body);
  /* So do, of those dtypes, convolutions of one channel a group by that square kernel and stride. NULL: no. */
  bool (*convolves_each_last)(wk_device device, int64_t kernel, int64_t stride);
};

/* ---- the registry (registry.c) ---- */

/* Each in its own folder. */
extern const wk__device_type wk__cpu_device_type;
extern const wk__device_type wk__cuda_device_type;
#ifdef WICK_DEBUG
extern const wk__device_type wk__host2_device_type;
#endif
extern const wk__device_type
    *const wk__device_types[WK_DEVICE_TYPE_COUNT]; /* NULL: has no memory (meta), or not built */

/* The table of a device's type; NULL with the error set when it has none, or there is no such device. */
const wk__device_type *wk__device_type_of(wk_device device);
/* The device with the index that is meant: the thread's current one where none is given. WK_RUNTIME_ERROR: there is
 * none with that index, or no driver. */
WK_MUST_USE wk_status wk__device_resolve(wk_device *device);
WK_MUST_USE wk_status wk__device_parse(const char *text, wk_device *out_device); /* "cpu", "cuda:1", PyTorch's errors */
void wk__device_print(wk__string *s, wk_device device);
const char *wk__device_type_name(int type); /* "cpu" */
static inline bool wk__device_equal(wk_device a, wk_device b) { return a.type == b.type && a.index == b.index; }
#define WK__CPU_DEVICE ((wk_device){WK_CPU, -1})

/* The thread's stream of a device, whose index is known; NULL for the CPU, whose functions take none, and, with the
 * error set, for a device that cannot be opened. */
wk__stream *wk__stream_find(wk_device device);
static inline wk__stream *wk__stream_of(wk_device device) {
  return WK_LIKELY(device.type == WK_CPU) ? NULL : wk__stream_find(device);
}
WK_MUST_USE wk_status wk__stream_set_current(wk__stream *stream); /* of its device, for this thread */
int wk__device_current(int type);                                 /* index of the thread's current device of the type */
WK_MUST_USE wk_status wk__device_set_current(wk_device device);

#endif
