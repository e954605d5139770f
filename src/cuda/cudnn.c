/* cuDNN, found by dlopen at the first convolution. Which algorithm is best for a kind is asked once and kept.
 *
 * Used are the functions of descriptors and handles, which all its versions from 7 to 9 have. Tests:
 * tests/cuda/test_convolution.py, where the library is. */
#include "cuda/cudnn.h"

#include <dlfcn.h>

#include "cuda/cuda.h"
#include "cuda/library.h"
#include "cuda/recording.h"
#include "cuda/tier0.h"

/* What the library says of an algorithm, the best first. */
typedef struct found {
  int algorithm, status;
  float time;
  size_t workspace;
  int deterministic, math;
  int reserved[3];
} found;

#define FUNCTIONS(X)                                                                                                   \
  X(cudnnCreate, int, (void **))                                                                                       \
  X(cudnnDestroy, int, (void *))                                                                                       \
  X(cudnnGetVersion, size_t, (void))                                                                                   \
  X(cudnnSetStream, int, (void *, CUstream))                                                                           \
  X(cudnnCreateTensorDescriptor, int, (void **))                                                                       \
  X(cudnnDestroyTensorDescriptor, int, (void *))                                                                       \
  X(cudnnSetTensorNdDescriptor, int, (void *, int, int, const int *, const int *))                                     \
  X(cudnnCreateFilterDescriptor, int, (void **))                                                                       \
  X(cudnnDestroyFilterDescriptor, int, (void *))                                                                       \
  X(cudnnSetFilterNdDescriptor, int, (void *, int, int, int, const int *))                                             \
  X(cudnnCreateConvolutionDescriptor, int, (void **))                                                                  \
  X(cudnnDestroyConvolutionDescriptor, int, (void *))                                                                  \
  X(cudnnSetConvolutionNdDescriptor, int, (void *, int, const int *, const int *, const int *, int, int))              \
  X(cudnnSetConvolutionGroupCount, int, (void *, int))                                                                 \
  X(cudnnSetConvolutionMathType, int, (void *, int))                                                                   \
  X(cudnnGetConvolutionForwardAlgorithm_v7, int, (void *, void *, void *, void *, void *, int, int *, found *))        \
  X(cudnnGetConvolutionBackwardDataAlgorithm_v7, int, (void *, void *, void *, void *, void *, int, int *, found *))   \
  X(cudnnGetConvolutionBackwardFilterAlgorithm_v7, int, (void *, void *, void *, void *, void *, int, int *, found *)) \
  X(cudnnConvolutionForward, int,                                                                                      \
    (void *, const void *, void *, const void *, void *, const void *, void *, int, void *, size_t, const void *,      \
     void *, void *))                                                                                                  \
  X(cudnnConvolutionBackwardData, int,                                                                                 \
    (void *, const void *, void *, const void *, void *, const void *, void *, int, void *, size_t, const void *,      \
     void *, void *))                                                                                                  \
  X(cudnnConvolutionBackwardFilter, int,                                                                               \
    (void *, const void *, void *, const void *, void *, const void *, void *, int, void *, size_t, const void *,      \
     void *, void *))

enum { MOST_DEVICES = 64 };

static struct {
  pthread_once_t once;
  void *library; /* NULL: it is not there, or lacks a function */
#define X(name, type, args) type(*name) args;
  FUNCTIONS(X)
#undef X
  void *handles[MOST_DEVICES]; /* made at a device's first convolution, under the lock of `kinds` */
} dnn = {.once = PTHREAD_ONCE_INIT};

enum { FLOAT = 0, DOUBLE = 1, HALF = 2, BFLOAT16 = 9 };
enum { NCHW = 0, NHWC = 1, CROSS_CORRELATION = 1 };
enum { DEFAULT_MATH = 0, TENSOR_OP_MATH = 1, FMA_MATH = 3 };
enum { MOST_ALGORITHMS = 12 };
static const size_t MOST_WORKSPACE = (size_t)1 << 30;

/* ---- the library ---- */

static void open_library(void) {
  static const char *const names[] = {"libcudnn.so.9", "libcudnn.so.8", "libcudnn.so", NULL};
  void *library = wk__cuda_open_library("WICK_CUDNN", names);
  if (!library) return;
#define X(name, type, args) \
  if (!(*(void **)&dnn.name = dlsym(library, #name))) return;
  FUNCTIONS(X)
#undef X
  dnn.library = library;
}

void *wk__cudnn_library(void) {
  (void)pthread_once(&dnn.once, open_library);
  return dnn.library;
}

int64_t wk__cudnn_version(void) { return wk__cudnn_library() ? (int64_t)dnn.cudnnGetVersion() : 0; }

static void *handle_of(int device) {
  if (device >= MOST_DEVICES) return NULL;
  if (!dnn.handles[device] && dnn.cudnnCreate(&dnn.handles[device])) dnn.handles[device] = NULL;
  return dnn.handles[device];
}

/* ---- a kind of convolution, prepared ---- */

typedef struct plan {
  wk__cuda_prepared head;
  wk__cudnn_convolution kind;
  void *x, *w, *y, *convolution; /* descriptors */
  found best;
} plan;

static int data_type(int type) {
  return type == WK__MEMORY_F32 ? FLOAT : type == WK__MEMORY_F64 ? DOUBLE : type == WK__MEMORY_F16 ? HALF : BFLOAT16;
}

static bool describe(const wk__cudnn_convolution *k, const int32_t *sizes, void **out) {
  int strides[2 + WK__CUDNN_DIMS], step = 1;
  if (k->channels_last) strides[1] = 1, step = sizes[1];
  for (int d = 1 + k->dims; d >= (k->channels_last ? 2 : 1); d--) {
    strides[d] = step;
    step *= sizes[d];
  }
  strides[0] = step;
  return !dnn.cudnnCreateTensorDescriptor(out) &&
         !dnn.cudnnSetTensorNdDescriptor(*out, data_type(k->type), 2 + k->dims, sizes, strides);
}

static bool describe_all(plan *p) {
  const wk__cudnn_convolution *k = &p->kind;
  int computed = k->type == WK__MEMORY_F64 ? DOUBLE : FLOAT, math = DEFAULT_MATH;
  if (k->type == WK__MEMORY_F16 || k->type == WK__MEMORY_BF16) math = TENSOR_OP_MATH;
  if (k->type == WK__MEMORY_F32 && !k->tf32) math = FMA_MATH;
  return describe(k, k->x, &p->x) && describe(k, k->y, &p->y) && !dnn.cudnnCreateFilterDescriptor(&p->w) &&
         !dnn.cudnnSetFilterNdDescriptor(p->w, data_type(k->type), k->channels_last ? NHWC : NCHW, 2 + k->dims, k->w) &&
         !dnn.cudnnCreateConvolutionDescriptor(&p->convolution) &&
         !dnn.cudnnSetConvolutionNdDescriptor(p->convolution, k->dims, k->padding, k->stride, k->dilation,
                                              CROSS_CORRELATION, computed) &&
         !dnn.cudnnSetConvolutionGroupCount(p->convolution, k->groups) &&
         !dnn.cudnnSetConvolutionMathType(p->convolution, math);
}

static int ask(const plan *p, void *handle, int *out_count, found *out) {
  switch (p->kind.result) {
    case WK__CUDNN_Y:
      return dnn.cudnnGetConvolutionForwardAlgorithm_v7(handle, p->x, p->w, p->convolution, p->y, MOST_ALGORITHMS,
                                                        out_count, out);
    case WK__CUDNN_X:
      return dnn.cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, p->w, p->y, p->convolution, p->x, MOST_ALGORITHMS,
                                                             out_count, out);
    default:
      return dnn.cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, p->x, p->y, p->convolution, p->w,
                                                               MOST_ALGORITHMS, out_count, out);
  }
}

static bool prepare(wk__cuda_prepared *entry) {
  plan *p = (plan *)entry;
  found all[MOST_ALGORITHMS];
  int count = 0;
  void *handle = handle_of(entry->device);
  if (!handle || !describe_all(p) || ask(p, handle, &count, all)) return false;
  for (int i = 0; i < count; i++) {
    if (all[i].status || !all[i].deterministic || all[i].workspace > MOST_WORKSPACE) continue;
    if (p->kind.type == WK__MEMORY_F32 && !p->kind.tf32 && all[i].math != FMA_MATH && all[i].math != DEFAULT_MATH)
      continue;
    p->best = all[i];
    return !dnn.cudnnSetConvolutionMathType(p->convolution, all[i].math);
  }
  return false;
}

static void release(wk__cuda_prepared *entry) {
  plan *p = (plan *)entry;
  if (p->x) dnn.cudnnDestroyTensorDescriptor(p->x);
  if (p->y) dnn.cudnnDestroyTensorDescriptor(p->y);
  if (p->w) dnn.cudnnDestroyFilterDescriptor(p->w);
  if (p->convolution) dnn.cudnnDestroyConvolutionDescriptor(p->convolution);
}

static wk__cuda_preparations kinds = {.entry_bytes = sizeof(plan),
                                      .key_bytes = sizeof(wk__cudnn_convolution),
                                      .prepare = prepare,
                                      .release = release,
                                      .lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- running ---- */

typedef struct giving {
  const plan *plan;
  void *handle, *x, *w, *y, *workspace;
  bool added;
} giving;

static bool give(void *context, CUstream stream) {
  const giving *g = context;
  const plan *p = g->plan;
  double wide[2] = {1, g->added};
  float narrow[2] = {1, g->added};
  bool is_wide = p->kind.type == WK__MEMORY_F64;
  const void *one = is_wide ? (void *)&wide[0] : &narrow[0], *added = is_wide ? (void *)&wide[1] : &narrow[1];
  int algorithm = p->best.algorithm;
  size_t room = p->best.workspace;
  if (dnn.cudnnSetStream(g->handle, stream)) return false;
  switch (p->kind.result) {
    case WK__CUDNN_Y:
      return !dnn.cudnnConvolutionForward(g->handle, one, p->x, g->x, p->w, g->w, p->convolution, algorithm,
                                          g->workspace, room, added, p->y, g->y);
    case WK__CUDNN_X:
      return !dnn.cudnnConvolutionBackwardData(g->handle, one, p->w, g->w, p->y, g->y, p->convolution, algorithm,
                                               g->workspace, room, added, p->x, g->x);
    default:
      return !dnn.cudnnConvolutionBackwardFilter(g->handle, one, p->x, g->x, p->y, g->y, p->convolution, algorithm,
                                                 g->workspace, room, added, p->w, g->w);
  }
}

static void *pointer(uint64_t address) { return (void *)(uintptr_t)address; }

wk_status wk__cudnn_run(wk__cuda_stream *s, const wk__cudnn_convolution *kind, uint64_t x, uint64_t w, uint64_t y,
                        bool added, bool *out_done) {
  int64_t capacity;
  void *workspace = NULL;
  *out_done = false;
  if (!wk__cudnn_library()) return WK_OK;
  pthread_mutex_lock(&kinds.lock);
  const plan *p = (plan *)wk__cuda_prepared_for(&kinds, kind, s->device->index);
  bool usable = p && p->head.usable;
  if (usable && p->best.workspace && !(workspace = wk__cuda_allocate(&s->head, (int64_t)p->best.workspace, &capacity)))
    usable = false;
  if (usable) {
    wk__cuda_address of[] = {{0, x}, {0, w}, {0, y}, {0, (uint64_t)(uintptr_t)workspace}};
    giving g = {p, dnn.handles[s->device->index], pointer(x), pointer(w), pointer(y), workspace, added};
    *out_done = wk__cuda_give_library(s, of, workspace ? 4 : 3, give, &g);
  }
  pthread_mutex_unlock(&kinds.lock);
  if (workspace) wk__cuda_release(&s->head, workspace, capacity);
  wk_error_clear();
  return WK_OK;
}
