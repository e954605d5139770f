/* The CUDA device's own: devices, streams, memory, code.
 *
 * Every entry of the device's table begins with wk__cuda_enter, which makes the device's context the thread's. All work
 * is asynchronous: it is given to a stream of the driver, and errors that code notes (an index out of range) are told
 * where the host waits for it. */
#ifndef WICK_CUDA_INTERNAL_H
#define WICK_CUDA_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "cuda/cuda.h"
#include "cuda/driver.h"
#include "device/device.h"

struct wk__generator;  /* random/generator.h */
struct wk__cuda_drawn; /* recording.h */
typedef struct wk__cuda_stream wk__cuda_stream;
typedef struct wk__cuda_memory wk__cuda_memory; /* blocks.h */
typedef struct wk__cuda_bins wk__cuda_bins;

/* Units of the device's code (on_device/). */
typedef enum wk__cuda_module {
#define UNIT(number, file) WK__CUDA_##number,
#include "cuda/units.def"
#undef UNIT
  WK__CUDA_MODULES
} wk__cuda_module;

typedef struct wk__cuda_device {
  int index;
  CUdevice handle;
  CUcontext context;
  int capability; /* 90: sm_90 */
  int multiprocessors, threads_each, shared_each, shared_most, l2_bytes;
  size_t total_bytes;
  char name[128];
  wk__cuda_stream *default_stream; /* the driver's NULL stream, which others wait for and which waits for them */
  wk__cuda_memory *memory;
  _Atomic(CUmodule) modules[WK__CUDA_MODULES]; /* of the device's code, each loaded at its first use */
  _Atomic(CUfunction) tier0;                   /* the interpreter, among them */
} wk__cuda_device;

/* What code of a stream has noted since the host last looked: pinned, written by the device. */
typedef struct wk__cuda_faults {
  int32_t bits; /* WK__KERNEL_INDEX_FAULT, WK__KERNEL_ZERO_DIVISION */
  int32_t dim;  /* that the index is of; WK__CUDA_NO_DIM: of none that has a number */
  int64_t index, size;
} wk__cuda_faults;

struct wk__cuda_stream {
  wk__stream head; /* what the rest of wick sees */
  wk__cuda_device *device;
  CUstream handle;
  wk__cuda_faults *faults;
  pthread_mutex_t lock;       /* held while a launch is given, which is several calls of the driver */
  CUdeviceptr launch_block;   /* tier 0's arguments, WK__CUDA_LAUNCH_BYTES; written and read in the stream's order */
  wk__cuda_bins *bins;        /* owned: free memory that this stream's work may still use */
  wk__cuda_graph *capture;    /* that its work goes to; NULL (head.captured says the same) */
  wk__cuda_stream *replaying; /* what it has replayed last notes faults there; NULL */
  wk__cuda_stream *next;      /* of the device */
};
static inline wk__cuda_stream *wk__cuda_stream_of(wk__stream *stream) { return stream->own; }

/* ---- context.c ---- */

int wk__cuda_count(bool why);
/* The opened device; NULL with the error set. */
wk__cuda_device *wk__cuda_device_get(int index) WK_MUST_USE;
WK_MUST_USE wk_status wk__cuda_enter(const wk__cuda_device *device);
/* Any device that this process has opened; NULL: none, and no error is set. */
wk__cuda_device *wk__cuda_opened(void);

/* ---- streams.c ---- */

wk__stream *wk__cuda_default_stream(int index);
wk__stream *wk__cuda_create_stream(int index);
WK_MUST_USE wk_status wk__cuda_make_stream(wk__cuda_device *device, CUstream handle, wk__cuda_stream **out);
WK_MUST_USE wk_status wk__cuda_synchronize(wk__stream *stream);
wk__event *wk__cuda_create_event(int index);
void wk__cuda_release_event(wk__event *event);
WK_MUST_USE wk_status wk__cuda_record(wk__event *event, wk__stream *stream);
WK_MUST_USE wk_status wk__cuda_wait(wk__stream *stream, const wk__event *event);
bool wk__cuda_is_done(const wk__event *event);
WK_MUST_USE wk_status wk__cuda_finish(const wk__event *event);
double wk__cuda_elapsed(const wk__event *begin, const wk__event *end);
/* The host is about to wait for a stream's work: torch.cuda.set_sync_debug_mode. */
WK_MUST_USE wk_status wk__cuda_tell_of_wait(void);
/* What the stream's finished work has noted, as an error; forgotten then. */
WK_MUST_USE wk_status wk__cuda_take_faults(wk__cuda_stream *stream);
/* WICK_CUDA_CHECK=1: what was given is waited for, so that what it runs into is the error of its own call. */
WK_MUST_USE wk_status wk__cuda_check_work(wk__cuda_stream *stream);

/* ---- memory.c ---- */

WK_MUST_USE wk_status wk__cuda_memory_create(wk__cuda_device *device);
WK_MUST_USE wk_status wk__cuda_memory_add_stream(wk__cuda_stream *stream);
/* wanted: where it should lie, if that is free for the stream; NULL: anywhere. */
void *wk__cuda_allocate_at(wk__stream *stream, int64_t bytes, const void *wanted, int64_t *out_capacity);
static inline void *wk__cuda_allocate(wk__stream *stream, int64_t bytes, int64_t *out_capacity) {
  return wk__cuda_allocate_at(stream, bytes, NULL, out_capacity);
}
void wk__cuda_release(wk__stream *stream, void *memory, int64_t capacity);
/* What was released while something was captured and had to wait for that. */
void wk__cuda_release_waiting(wk__cuda_device *device);

/* ---- copies.c ---- */

WK_MUST_USE wk_status wk__cuda_copy(wk__stream *stream, void *to, const void *from, int64_t bytes, wk__copy_way way);
WK_MUST_USE wk_status wk__cuda_fill(wk__stream *stream, void *to, int value, int64_t bytes);

/* ---- pinned.c ---- */

/* wk__cuda_is_pinned of a thread that is in a device, where it stays. */
bool wk__cuda_is_pinned_inside(const void *address);
/* The stream's copies use the pinned memory, if it is ours. */
WK_MUST_USE wk_status wk__cuda_pinned_note_use(wk__cuda_stream *stream, const void *address);

/* ---- code.c ---- */

wk__code *wk__cuda_build(const struct wk__nest *nest);
void wk__cuda_release_code(wk__code *code);
WK_MUST_USE wk_status wk__cuda_run_product(wk__stream *stream, const wk_op *op, const wk_value *args, wk_tensor *out,
                                           const struct wk__fused_launch *fused); /* behind.c */
WK_MUST_USE wk_status wk__cuda_launch(wk__stream *stream, const wk__code *code, const struct wk__launch *launches,
                                      int64_t count);

/* ---- module.c ---- */

/* Machine code of a text in PTX; the driver's complaint is the error. The thread is in the device. */
WK_MUST_USE wk_status wk__cuda_load(const wk__cuda_device *device, const char *ptx, CUmodule *out);
/* A function of the device's code. */
WK_MUST_USE wk_status wk__cuda_function(wk__cuda_device *device, wk__cuda_module module, const char *name,
                                        CUfunction *out);

/* ---- times.c: WICK_LOGS=kernel_times ---- */

/* Around a launch, which it is counted by: `name` says what it is. Nothing where the log is off. */
void wk__cuda_time_begin(const wk__cuda_stream *stream, CUevent *out_begin);
void wk__cuda_time_end(const wk__cuda_stream *stream, CUevent begin, const char *name);
void wk__cuda_nest_name(const struct wk__nest *nest, const char *mode, char *out, size_t bytes);
enum { WK__CUDA_NAME_BYTES = 160 };

/* ---- random.c ---- */

extern const struct wk__generator_type wk__philox_generator_type;

/* A mask of n elements that are taken 4 at a time: the threads that draw it, and the seed and offset in front of it,
 * from which the generator goes on. */
int64_t wk__cuda_mask_threads(const wk__cuda_device *device, int64_t n);
WK_MUST_USE wk_status wk__cuda_take_mask(const wk__cuda_stream *stream, struct wk__generator *generator, int64_t n,
                                         struct wk__cuda_drawn *out);
/* The same of a launch on the stream; one that is captured takes them at each replay. */
WK_MUST_USE wk_status wk__cuda_take_drawn(const wk__cuda_stream *stream, struct wk__generator *generator, uint64_t used,
                                          struct wk__cuda_drawn *out);
/* Uniform numbers as PyTorch's kernel of draws by weight has them. out: (rows, samples) f32 */
WK_MUST_USE wk_status wk__cuda_draw_samples(struct wk__generator *generator, const wk_tensor *out);
/* Seed and offset of a use of so many words, from which the generator goes on. */
void wk__cuda_take_words(struct wk__generator *generator, uint64_t used, uint64_t *out_seed, uint64_t *out_offset);

/* ---- attention.c ---- */

bool wk__cuda_fuses_attention(wk_device device);
bool wk__cuda_convolves_last(wk_device device, wk_dtype dtype);
bool wk__cuda_convolves_each_last(wk_device device, int64_t kernel, int64_t stride);

/* ---- quant.c ---- */

bool wk__cuda_scales_products(wk_device device);

/* ---- flex_attention.c ---- */

bool wk__cuda_fuses_scores(wk_device device, const char *text);

/* ---- tile.c ---- */

WK_MUST_USE wk_status wk__cuda_launch_tiles(wk__stream *stream, struct wk__tile_kernel *kernel,
                                            const struct wk__tile_launch *launch);

/* ---- kernels.c ---- */

extern wk__kernel_fn *wk__cuda_kernels[];
WK_MUST_USE wk_status wk__cuda_run_kernel_on_host(struct wk__call *call);

/* For an operation of which there is no form with the same bits each time: the error, or, where that is wished, a
 * warning, while such forms alone are wanted. `what`: a literal. exact_sums.c */
#define WK__CUDA_ALERT(what) wk__cuda_alert(what WK__CUDA_REFUSES, what WK__CUDA_WARNS)
#define WK__CUDA_REFUSES                                                                                            \
  " does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True)'. You can " \
  "turn off determinism just for this operation, or you can use the 'warn_only=True' option, if that's acceptable " \
  "for your application."
#define WK__CUDA_WARNS                                  \
  " does not have a deterministic implementation, but " \
  "you set 'torch.use_deterministic_algorithms(True, warn_only=True)'."
WK_MUST_USE wk_status wk__cuda_alert(const char *error, const char *warning);

#endif
