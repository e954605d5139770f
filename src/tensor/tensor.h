/* What the other parts may use of tensor/: the structs, views, scalars, dtype facts.
 * Sizes and strides are wk_int everywhere, so that the same code serves concrete tensors and tracing ones. */
#ifndef WICK_TENSOR_TENSOR_H
#define WICK_TENSOR_TENSOR_H

#include "base/base.h"
#include "device/device.h"
#include "sym/sym.h"
#include "wick/tensor.h"

/* ================================================ dtypes (dtype.c) =============================================== */

typedef enum wk__category { WK__BOOL_KIND, WK__INTEGER_KIND, WK__FLOAT_KIND, WK__COMPLEX_KIND } wk__category;

typedef struct wk__dtype_info {
  const char *name;        /* "float32" */
  const char *legacy;      /* "Float": the word in PyTorch's error messages */
  const char *numpy;       /* array-interface type string without byte order, "f4"; NULL when NumPy has none */
  const char *safetensors; /* "F32"; NULL when the format has none */
  uint8_t size;            /* bytes */
  uint8_t category;        /* wk__category */
  uint8_t compute;         /* the wk_dtype that kernels compute in: f32, f64, i64 or bool */
} wk__dtype_info;

extern const wk__dtype_info wk__dtypes[WK_DTYPE_COUNT];
static inline const char *wk__dtype_legacy(wk_dtype d) { return wk__dtypes[d].legacy; }
/* The name of old of a tensor's type: "torch.FloatTensor", "torch.cuda.HalfTensor". */
void wk__print_type(char *out, size_t capacity, wk_dtype dtype, wk_device device);
static inline wk__category wk__dtype_category(wk_dtype d) { return (wk__category)wk__dtypes[d].category; }
wk_dtype wk__promote(wk_dtype a, wk_dtype b);                      /* PyTorch's promote_types */
WK_MUST_USE wk_status wk__check_promotion(wk_dtype a, wk_dtype b); /* refuses float8 and words with anything else */
bool wk__can_cast(wk_dtype from, wk_dtype to);                     /* PyTorch's can_cast: no drop of category */
/* Of a complex dtype the one of its parts, any other itself; of a floating one the complex one with such parts. */
wk_dtype wk__real_dtype(wk_dtype dtype);
wk_dtype wk__complex_dtype(wk_dtype dtype); /* WK_DTYPE_NONE: there is none */
wk_dtype wk__default_dtype(void);           /* per thread; float32 at the start */
void wk__default_dtype_set(wk_dtype dtype);

/* A Python-like number. */
typedef struct wk__scalar {
  uint8_t category; /* bool and integers in i, floats in d */
  bool is_unsigned; /* i holds the bits of a uint64 */
  union {
    int64_t i;
    double d;
  };
} wk__scalar;
static inline double wk__scalar_double(wk__scalar s) {
  if (s.category == WK__FLOAT_KIND) return s.d;
  return WK_UNLIKELY(s.is_unsigned) ? (double)(uint64_t)s.i : (double)s.i;
}
/* Float to integer as PyTorch's CPU kernels do it on x86: out of range gives INT64_MIN. */
static inline int64_t wk__double_to_int(double d) {
  return d >= -9223372036854775808.0 && d < 9223372036854775808.0 ? (int64_t)d : INT64_MIN;
}
/* Float to uint64, as there: numbers below 2^63 as to int64, the others by what is above it. */
static inline int64_t wk__double_to_unsigned(double d) {
  return d >= 0x1p63 ? wk__double_to_int(d - 0x1p63) ^ INT64_MIN : wk__double_to_int(d);
}
static inline int64_t wk__scalar_int(wk__scalar s) {
  return s.category == WK__FLOAT_KIND ? wk__double_to_int(s.d) : s.i;
}
wk__scalar wk__element_get(const void *element, wk_dtype dtype);
void wk__element_set(void *element, wk_dtype dtype, wk__scalar value);

/* One element of the small float formats; round to nearest even. */
float wk__f16_to_f32(uint16_t h);
uint16_t wk__f32_to_f16(float f);
static inline float wk__bf16_to_f32(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}
static inline uint16_t wk__f32_to_bf16(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
  return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
static inline bool wk__dtype_is_word(int dtype) { return dtype >= WK_UINT16 && dtype <= WK_UINT64; }
static inline bool wk__dtype_is_unsigned(int dtype) { return dtype == WK_UINT8 || wk__dtype_is_word(dtype); }
static inline bool wk__dtype_is_small_float(int dtype) { /* not float8 */
  return dtype == WK_FLOAT16 || dtype == WK_BFLOAT16;
}
static inline bool wk__dtype_is_float8(int dtype) { return dtype >= WK_FLOAT8_E4M3 && dtype <= WK_FLOAT8_E8M0; }
float wk__f8_to_f32(uint8_t v, wk_dtype format);
uint8_t wk__f32_to_f8(float f, wk_dtype format);

/* ============================================== storage (storage.c) ============================================== */

/* Owned by the tensors over it (reference count). The bytes never move while a tensor holds it, except by resize_. */
struct wk_storage {
  _Atomic int32_t references;
  _Atomic uint32_t version; /* in-place writes so far; shared by every tensor over the bytes */
  _Atomic int32_t pins;     /* buffers given to other libraries: while there are any the bytes may not move */
  void *data;
  int64_t bytes;    /* usable size */
  int64_t capacity; /* the allocator's block; 0 when the memory is not the allocator's */
  wk_device device;
  wk__stream *stream;             /* that the memory was taken for; NULL: the CPU's */
  void (*release)(void *context); /* for memory that came from outside; NULL otherwise */
  void *context;
  void *trace; /* of a lazy storage, which has no bytes yet: what its value will be, owned by the tracer; else NULL */
};

wk_storage *wk__storage_create(wk_device device, int64_t bytes) WK_MUST_USE;
/* wanted: where the memory should lie, if that is free; NULL: anywhere. */
wk_storage *wk__storage_create_at(wk_device device, int64_t bytes, const void *wanted) WK_MUST_USE;
/* The memory alone, for who shares a storage's out in time: a run's block. The storage has none before, or after. */
WK_MUST_USE wk_status wk__storage_allocate(wk_storage *storage, int64_t bytes, const void *wanted);
void wk__storage_deallocate(wk_storage *storage);
wk_storage *wk__storage_lazy(wk_device device) WK_MUST_USE; /* without bytes; a tracer gives it its `trace` */
wk_storage *wk__storage_from_memory(void *data, int64_t bytes, void (*release)(void *), void *context) WK_MUST_USE;
static inline wk_storage *wk__storage_retain(wk_storage *s) {
  atomic_fetch_add_explicit(&s->references, 1, memory_order_relaxed);
  return s;
}
void wk__storage_release(wk_storage *storage);
/* Other memory in the place of the CPU's that it has, which is given back; what it holds is the caller's business. */
void wk__storage_replace(wk_storage *storage, void *data, int64_t bytes, void (*release)(void *), void *context);
/* For memory that another library looks at; it also needs a reference of its own. */
static inline void wk__storage_pin(wk_storage *s) { atomic_fetch_add_explicit(&s->pins, 1, memory_order_relaxed); }
static inline void wk__storage_unpin(wk_storage *s) { atomic_fetch_sub_explicit(&s->pins, 1, memory_order_relaxed); }
WK_MUST_USE wk_status wk__storage_resize(wk_storage *storage, int64_t bytes); /* keeps contents; never shrinks memory */

/* =============================================== tensors (tensor.c) ============================================== */

/* Layers around an operator call that a tensor asks for; the bits of wk_tensor.keys. Order = order of the layers. */
typedef uint16_t wk__keys;
enum {
  WK__KEY_WATCH = 1,       /* (thread only) somebody is told of calls: ops/watch.c */
  WK__KEY_TRACE = 2,       /* its value is a graph node: record */
  WK__KEY_BODY = 4,        /* (thread only) calls become instructions of a loop body: autograd/body.h */
  WK__KEY_DECOMPOSE = 8,   /* (thread only) calls are taken apart: decompose/decompose.h */
  WK__KEY_LEVEL = 16,      /* belongs to a level, or the thread is in one: levels/levels.h */
  WK__KEY_AUTOGRAD = 32,   /* requires grad or has a grad_fn: keep tape */
  WK__KEY_AUTOCAST = 64,   /* (thread only) */
  WK__KEY_SPARSE = 128,    /* its elements are in other tensors: ops/sparse.c */
  WK__KEY_INFERENCE = 256, /* made under inference_mode: outermost, see autograd/inference.c */
  WK__KEY_COUNT = 9,
};

enum {
  WK__TENSOR_CONTIGUOUS = 1, /* row-major without gaps; kept up to date when sizes or strides are set */
  WK__TENSOR_SYMBOLIC = 2,   /* a size, a stride or the offset is not known; the same, while tracers use symbols */
};

/* A count of in-place writes that is not the storage's. Owned by the tensors that share it (reference count). */
typedef struct wk__version_counter {
  _Atomic int32_t references;
  _Atomic uint32_t version;
} wk__version_counter;

/* Of a tensor that belongs to a level (levels/levels.h). Owned by the tensors that share it (reference count). */
typedef struct wk__inner {
  _Atomic int32_t references;
  uint32_t level;     /* the level's number */
  int32_t batch_dim;  /* the dim of `value` that the tensor does not have; -1: it has all */
  wk_tensor *value;   /* owned: what it stands for one level below */
  wk_tensor *tangent; /* owned: of forward mode, the derivative of `value`; NULL: zero */
} wk__inner;

typedef enum wk__layout { WK__STRIDED, WK__SPARSE_COO, WK__SPARSE_CSR, WK__SPARSE_CSC } wk__layout;

/* Of a tensor with a sparse layout, which has no memory: where its elements are, and those that are not zero. Owned by
 * the tensors that share it (reference count). */
typedef struct wk__sparse {
  _Atomic int32_t references;
  uint8_t layout;     /* wk__layout */
  bool coalesced;     /* COO: the places ascend, and none is there twice */
  wk_tensor *places;  /* COO: (sparse dims, n), the indices of each; else where each row, or column, begins */
  wk_tensor *columns; /* CSR: the column of each (n), CSC: its row; COO: NULL */
  wk_tensor *values;  /* (n, ...) */
} wk__sparse;

typedef struct wk__autograd wk__autograd; /* autograd/: gradient, grad_fn, hooks, view relation */

/* Owned by reference count. `sizes` and `strides` point into `dims` or, above WK__INLINE_DIMS, to the heap. */
enum { WK__INLINE_DIMS = 6 };
struct wk_tensor {
  _Atomic int32_t references;
  uint8_t dtype; /* wk_dtype */
  uint8_t ndim;
  wk__keys keys; /* WK__KEY_* */
  uint8_t flags; /* WK__TENSOR_* */
  wk_device device;
  wk_int offset;          /* elements from the storage's start */
  wk_int numel;           /* product of the sizes */
  wk_int *sizes;          /* (ndim) */
  wk_int *strides;        /* (ndim), elements */
  wk_storage *storage;    /* owned; NULL for a tensor that only has a shape (device meta, tracing, saved shapes) */
  wk_tensor *base;        /* owned: of a view made while recording, the tensor that it looks at; NULL otherwise */
  wk__autograd *autograd; /* owned; NULL until needed */
  void *trace;            /* what the tracer that made it knows of it, owned by the tracer; else NULL */
  void *wrapper;          /* borrowed: the embedding language's object while it lives */
  wk__version_counter *own_version; /* of .data and its views, of a tensor whose .data was set; else NULL */
  wk__inner *inner;                 /* of a tensor of a level; else NULL */
  wk__sparse *sparse;               /* of a tensor with a sparse layout; else NULL */
  wk_int dims[2 * WK__INLINE_DIMS];
};

/* What a tensor will be: an operator's shape rule fills one, an allocation reads it. */
typedef struct wk__spec {
  uint8_t dtype;
  uint8_t ndim;
  wk_device device;
  wk_int offset; /* views only */
  wk_int sizes[WK_MAX_DIMS];
  wk_int strides[WK_MAX_DIMS];
} wk__spec;

/* Sets dtype, device, ndim, sizes and contiguous strides. */
void wk__spec_contiguous(wk__spec *spec, wk_dtype dtype, wk_device device, int ndim, const wk_int *sizes);
void wk__spec_of(wk__spec *spec, const wk_tensor *tensor); /* same geometry */
void wk__spec_copy(wk__spec *to, const wk__spec *from);    /* its dims alone: an assignment copies room for all */
wk_int wk__spec_numel(const wk__spec *spec);
void wk__spec_make_known(wk__spec *spec); /* its symbols become their present values */

wk_tensor *wk__tensor_from_spec(const wk__spec *spec) WK_MUST_USE;                        /* with new storage */
wk_tensor *wk__tensor_from_spec_at(const wk__spec *spec, const void *wanted) WK_MUST_USE; /* wk__storage_create_at */
wk_tensor *wk__tensor_shape_only(const wk__spec *spec) WK_MUST_USE;                       /* without storage */
wk_tensor *wk__tensor_shape_of(const wk_tensor *tensor) WK_MUST_USE;                  /* its shape, without storage */
wk_tensor *wk__tensor_kept_shape(const wk_tensor *tensor) WK_MUST_USE;                /* the same, to outlive a trace */
wk_tensor *wk__tensor_alias(const wk_tensor *base, const wk__spec *spec) WK_MUST_USE; /* same storage, new geometry */
wk_tensor *wk__tensor_over(wk_storage *steal_storage, const wk__spec *spec) WK_MUST_USE;
/* What the tensor stands for one level below, from now on; takes the share. NULL: nothing, it is of no level. */
void wk__tensor_set_inner(wk_tensor *tensor, wk__inner *steal_inner);
void wk__inner_release(wk__inner *inner);                            /* NULL is fine */
void wk__tensor_share_inner(wk_tensor *tensor, const wk_tensor *of); /* it stands for what the other one does */
/* Its elements are these from now on; takes the share. */
void wk__tensor_set_sparse(wk_tensor *tensor, wk__sparse *steal_sparse);
void wk__sparse_release(wk__sparse *sparse); /* NULL is fine */
/* The number of the level that the tensor belongs to; 0: of none. */
static inline uint32_t wk__level_of(const wk_tensor *t) { return t->inner ? t->inner->level : 0; }
/* It has a derivative of forward mode, at its level or at one below. */
static inline bool wk__has_tangent(const wk_tensor *t) {
  for (; t->inner; t = t->inner->value)
    if (t->inner->tangent) return true;
  return false;
}
/* It belongs to the level that the thread is in: the tape of that level may record it. */
static inline bool wk__is_of_this_level(const wk_tensor *t) { return wk__level_of(t) == wk__thread.mode.level_number; }
/* Counts changes of what a living tensor is like (geometry, requires_grad): while it is unchanged, what was checked of
 * a tensor still holds. */
extern _Atomic uint64_t wk__tensor_epoch;
static inline void wk__tensor_epoch_bump(void) {
  atomic_fetch_add_explicit(&wk__tensor_epoch, 1, memory_order_relaxed);
}
/* Changes a tensor's geometry in place (set_, resize_, t_, .data = ...). Checks nothing. */
WK_MUST_USE wk_status wk__tensor_set_geometry(wk_tensor *tensor, const wk__spec *spec);

static inline wk_tensor *wk__retain(const wk_tensor *t) {
  if (t) atomic_fetch_add_explicit(&((wk_tensor *)t)->references, 1, memory_order_relaxed);
  return (wk_tensor *)t;
}
void wk__tensor_destroy(wk_tensor *tensor);
/* Drops a reference; true when it was the last. The only owner needs no locked instruction: no other thread can count
 * up.
 */
static inline bool wk__last_reference(_Atomic int32_t *references) {
  return atomic_load_explicit(references, memory_order_acquire) == 1 ||
         atomic_fetch_sub_explicit(references, 1, memory_order_acq_rel) == 1;
}
static inline void wk__release(wk_tensor *t) {
  if (t && wk__last_reference(&t->references)) wk__tensor_destroy(t);
}
static inline void wk__release_cleanup(wk_tensor **t) { wk__release(*t); }
#define WK__OWNED __attribute__((cleanup(wk__release_cleanup))) wk_tensor * /* released when the block ends */

static inline int64_t wk__size(const wk_tensor *t, int dim) { return t->sizes[dim].bits; }     /* concrete only */
static inline int64_t wk__stride(const wk_tensor *t, int dim) { return t->strides[dim].bits; } /* concrete only */
static inline int64_t wk__numel(const wk_tensor *t) { return t->numel.bits; }                  /* concrete only */
static inline bool wk__is_contiguous(const wk_tensor *t) { return t->flags & WK__TENSOR_CONTIGUOUS; }
static inline size_t wk__itemsize(const wk_tensor *t) { return wk__dtypes[t->dtype].size; }
/* Where its first element is, in its device's memory: to be computed with and handed to the device. NULL: nowhere. */
static inline void *wk__address(const wk_tensor *t) {
  return t->storage ? (char *)t->storage->data + t->offset.bits * (int64_t)wk__itemsize(t) : NULL;
}
/* The same, to be read and written: only in a device's own folder. */
static inline char *wk__data(const wk_tensor *t) { return wk__address(t); }

/* How many numbers an element has, and where the first one's are: the imaginary parts lie behind the real ones. */
static inline int wk__part_count(const wk_tensor *t) {
  return t->dtype == WK_COMPLEX64 || t->dtype == WK_COMPLEX128 ? 2 : 1;
}
static inline void *wk__part_address(const wk_tensor *t, int part) {
  return (char *)wk__address(t) + (size_t)part * wk__itemsize(t) / 2;
}

/* ---- a tensor's values on the host (host.c); realised, not symbolic ---- */

/* To be read and written by the host; NULL where it cannot, or there is no memory. */
static inline char *wk__host_data(const wk_tensor *t) {
  return t->storage && wk__device_types[t->storage->device.type]->host_reads ? wk__address(t) : NULL;
}
/* Memory as the host may read it: itself, or a copy of the part that the tensor uses, with its strides. */
typedef struct wk__host_view {
  char *data; /* the first element; NULL: there is no memory */
  char *copy; /* owned; NULL: there is none */
} wk__host_view;
WK_MUST_USE wk_status wk__to_host(const wk_tensor *t, wk__host_view *out);
WK_MUST_USE wk_status wk__storage_to_host(const wk_storage *storage, wk__host_view *out);
void wk__host_view_release(wk__host_view *view);
/* The first element, where there is memory. */
WK_MUST_USE wk_status wk__read_other(const wk_tensor *t, void *element); /* any device's; of at most 16 bytes */
static inline wk_status wk__read_element(const wk_tensor *t, wk__scalar *out) {
  char element[16];
  const void *at = wk__host_data(t);
  if (WK_UNLIKELY(!at)) {
    WK_TRY(wk__read_other(t, element));
    at = element;
  }
  *out = wk__element_get(at, (wk_dtype)t->dtype);
  return WK_OK;
}
WK_MUST_USE wk_status wk__write_element(wk_tensor *t, wk__scalar value); /* the first; nothing on device meta */
/* Contiguous tensors. */
WK_MUST_USE wk_status wk__write_from_host(wk_tensor *t, const void *data, int64_t bytes);
WK_MUST_USE wk_status wk__fill_bytes(wk_tensor *t, int value);
/* From one device to another; both contiguous, of one dtype and as many elements. later: a copy between pinned memory
 * of the host and a device may be done when the current stream gets there. */
WK_MUST_USE wk_status wk__copy_elements(wk_tensor *to, const wk_tensor *from, bool later);
/* Bytes of storages, on any device. */
WK_MUST_USE wk_status wk__storage_read(const wk_storage *s, int64_t begin, int64_t bytes, void *out);
WK_MUST_USE wk_status wk__storage_write(wk_storage *s, int64_t begin, int64_t bytes, const void *data);
WK_MUST_USE wk_status wk__storage_fill(wk_storage *s, int64_t begin, int64_t bytes, int value);
WK_MUST_USE wk_status wk__storage_copy(wk_storage *to, const wk_storage *from, int64_t bytes); /* they do not overlap */
/* Gives the tensor a count of its own that begins with `version`; it no longer sees writes through others. */
WK_MUST_USE wk_status wk__version_detach(wk_tensor *tensor, uint32_t version);
static inline void wk__version_bump(wk_tensor *t) {
  if (WK_UNLIKELY(t->own_version != NULL))
    atomic_fetch_add_explicit(&t->own_version->version, 1, memory_order_relaxed);
  else if (t->storage)
    atomic_fetch_add_explicit(&t->storage->version, 1, memory_order_relaxed);
}
static inline uint32_t wk__version(const wk_tensor *t) {
  if (WK_UNLIKELY(t->own_version != NULL)) return atomic_load_explicit(&t->own_version->version, memory_order_relaxed);
  return t->storage ? atomic_load_explicit(&t->storage->version, memory_order_relaxed) : 0;
}
bool wk__same_sizes(const wk_tensor *a, const wk_tensor *b); /* guards symbolic sizes */
/* No two index tuples share an element (conservative: false when unsure). */
bool wk__non_overlapping_and_dense(const wk_tensor *t);
bool wk__has_internal_overlap(const wk_tensor *t);
/* Bytes [begin, end) of the storage that the tensor can touch; empty tensors give begin == end. */
void wk__memory_range(const wk_tensor *t, int64_t *out_begin, int64_t *out_end);
wk_int wk__sizes_numel(const wk_int *sizes, int ndim);
void wk__contiguous_strides(wk_int *strides, const wk_int *sizes, int ndim);
void wk__print_sizes(wk__string *s, const wk_int *sizes, int ndim); /* "[2, 3]" */

/* What may outlive the graph whose symbols it holds: see wk__symbolic_hold. */
typedef void wk__make_known(void *object);
wk__make_known wk__tensor_make_known;       /* of a wk_tensor *: symbols in its geometry become their present values */
extern _Atomic int32_t wk__symbolic_traces; /* how many tracers use symbols now; 0: there are none to look for */

/* What tensors need of parts above this one, which own what `trace` and `autograd` point to. The one table of it is in
 * wiring.c; the functions below call it. */
typedef struct wk__tensor_upcalls {
  /* the tracer (trace/trace.h, trace/internal.h) */
  void (*tensor_dropped)(wk_tensor *tensor);
  void (*storage_dropped)(wk_storage *storage);
  wk_status (*realize)(wk_tensor *tensor, const char *why);
  wk_status (*constant)(wk_tensor *tensor);
  wk_status (*symbolic_hold)(void *object, wk__make_known *make_known);
  void (*symbolic_drop)(void *object);
  /* the tape (autograd/autograd.h) */
  void (*autograd_release)(wk__autograd *meta);
} wk__tensor_upcalls;
extern const wk__tensor_upcalls wk__upcalls;

/* For code that looks at bytes: gives a traced tensor its value now. `why` is the reason that the tracer reports. */
WK_MUST_USE static inline wk_status wk__realize(wk_tensor *tensor, const char *why) {
  return wk__upcalls.realize(tensor, why);
}
/* For code that makes tensors from numbers beside the operators: in a trace such a tensor is a constant. */
WK_MUST_USE static inline wk_status wk__trace_constant(wk_tensor *tensor) { return wk__upcalls.constant(tensor); }
/* Symbolic integers live as long as the graph that is being traced. What may outlive it, tensors with a storage (which
 * see to it themselves) and what the tape keeps, is registered here: before the graph is released the tracer calls
 * make_known for it, unless it was dropped before. A second call for the same object does nothing. */
WK_MUST_USE static inline wk_status wk__symbolic_hold(void *object, wk__make_known *make_known) {
  return wk__upcalls.symbolic_hold(object, make_known);
}
static inline void wk__symbolic_drop(void *object) { wk__upcalls.symbolic_drop(object); }

/* ============================================== geometry (geometry.c) ============================================ */

/* Maps -ndim..ndim-1 to 0..ndim-1 (a 0-dim tensor takes -1 and 0); else PyTorch's IndexError. */
WK_MUST_USE wk_status wk__wrap_dim(int64_t dim, int ndim, int *out_dim);
WK_MUST_USE wk_status wk__check_ndim(int64_t ndim); /* no more than a tensor may have */
/* Sets of dims: a bit a dim. */
static inline uint64_t wk__dim_bit(int dim) { return UINT64_C(1) << dim; }
static inline uint64_t wk__all_dims(int ndim) { return ndim ? UINT64_MAX >> (WK_MAX_DIMS - ndim) : 0; }
/* Broadcast shape of two shapes; out may alias neither. */
WK_MUST_USE wk_status wk__broadcast(const wk_int *a, int a_ndim, const wk_int *b, int b_ndim, wk_int *out_sizes,
                                    int *out_ndim);
/* Fills one -1 of `shape`; PyTorch's "shape '[..]' is invalid for input of size n". */
WK_MUST_USE wk_status wk__infer_size(const wk_int *shape, int ndim, wk_int numel, wk_int *out_sizes);
/* Strides that view `tensor` as `sizes` without a copy; false when there are none. */
bool wk__view_strides(const wk_tensor *tensor, const wk_int *sizes, int ndim, wk_int *out_strides);

/* ================================================ text (print.c) ================================================= */

void wk__print_profile(const char *name); /* "default", "short" or "full", as torch.set_printoptions; others: nothing */
extern const char *wk__print_module_name; /* before dtypes, "torch" at the start; set once, before tensors print */
/* repr: prefix "tensor(" or a subclass's; suffix, such as "grad_fn=<AddBackward0>", may be NULL. The values must be in
 * the CPU's memory, else WK_NOT_IMPLEMENTED; a tensor without storage prints "..." for them. */
WK_MUST_USE wk_status wk__tensor_print(wk__string *s, const wk_tensor *tensor, const char *prefix, const char *suffix);
WK_MUST_USE wk_status wk__scalar_print(wk__string *s, wk__scalar value); /* as Python's repr */
double wk__double_parse(const char *text, const char **out_end);         /* strtod with a point in every locale */

#endif
