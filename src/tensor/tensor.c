/* Tensor structs: creation, lifetime, geometry facts. A tensor owns its storage and its autograd data; each reference
 * owns the tensor. Structs come from a per-thread free list. The contiguous flag and numel are kept right by the one
 * function that sets geometry. Tests: tests/c/test_tensor.c. */
#include <pthread.h>

#include "tensor/tensor.h"

/* ---- structs ---- */

enum { FREE_LIST_DEPTH = 256 };
static WK__THREAD_LOCAL struct {
  wk_tensor *head;
  int depth;
  bool registered;
} free_list;

/* Under the address sanitizer freed structs are not kept, so that it sees their misuse. */
#ifndef __SANITIZE_ADDRESS__
static pthread_key_t free_list_key;
static pthread_once_t free_list_once = PTHREAD_ONCE_INIT;

/* The next free struct is kept in `wrapper`. */
static void drain_free_list(void *unused) {
  (void)unused;
  for (wk_tensor *t = free_list.head; t;) {
    wk_tensor *next = t->wrapper;
    wk__free(t);
    t = next;
  }
  free_list.head = NULL;
  free_list.depth = FREE_LIST_DEPTH; /* the thread is ending */
}
static void make_free_list_key(void) { (void)pthread_key_create(&free_list_key, drain_free_list); }
#endif

static wk_tensor *struct_alloc(void) {
  wk_tensor *t = free_list.head;
  if (WK_UNLIKELY(t && wk__fault_now())) {
    (void)wk_fail(WK_OUT_OF_MEMORY, "out of memory: you tried to allocate %zu bytes", sizeof *t);
    return NULL;
  }
  if (WK_LIKELY(t != NULL)) {
    free_list.head = t->wrapper;
    free_list.depth--;
  } else {
    t = wk__alloc(sizeof *t);
    if (!t) return NULL;
  }
  memset(t, 0, offsetof(wk_tensor, dims));
  atomic_init(&t->references, 1);
  return t;
}

static void struct_free(wk_tensor *t) {
#ifndef __SANITIZE_ADDRESS__
  if (free_list.depth < FREE_LIST_DEPTH) {
    if (WK_UNLIKELY(!free_list.registered)) {
      pthread_once(&free_list_once, make_free_list_key);
      free_list.registered = pthread_setspecific(free_list_key, &free_list) == 0;
    }
    t->wrapper = free_list.head;
    free_list.head = t;
    free_list.depth++;
    return;
  }
#endif
  wk__free(t);
}

static void release_version(wk__version_counter *counter) {
  if (counter && wk__last_reference(&counter->references)) wk__free(counter);
}

wk_status wk__version_detach(wk_tensor *t, uint32_t version) {
  wk__version_counter *counter = wk__alloc(sizeof *counter);
  if (!counter) return WK_OUT_OF_MEMORY;
  atomic_init(&counter->references, 1);
  atomic_init(&counter->version, version);
  release_version(t->own_version);
  t->own_version = counter;
  return WK_OK;
}

void wk__inner_release(wk__inner *inner) {
  if (!inner || !wk__last_reference(&inner->references)) return;
  wk__release(inner->value);
  wk__release(inner->tangent);
  wk__free(inner);
}

void wk__tensor_set_inner(wk_tensor *t, wk__inner *steal_inner) {
  wk__inner *old = t->inner;
  t->inner = steal_inner;
  t->keys = (wk__keys)(steal_inner ? t->keys | WK__KEY_LEVEL : t->keys & ~WK__KEY_LEVEL);
  wk__inner_release(old);
}

void wk__tensor_share_inner(wk_tensor *t, const wk_tensor *of) {
  if (WK_LIKELY(!of->inner && !t->inner)) return;
  if (of->inner) atomic_fetch_add_explicit(&of->inner->references, 1, memory_order_relaxed);
  wk__tensor_set_inner(t, of->inner);
}

void wk__sparse_release(wk__sparse *s) {
  if (!s || !wk__last_reference(&s->references)) return;
  wk__release(s->places);
  wk__release(s->columns);
  wk__release(s->values);
  wk__free(s);
}
void wk__tensor_set_sparse(wk_tensor *t, wk__sparse *steal_sparse) {
  wk__sparse *old = t->sparse;
  t->sparse = steal_sparse;
  t->keys = (wk__keys)(steal_sparse ? t->keys | WK__KEY_SPARSE : t->keys & ~WK__KEY_SPARSE);
  wk__sparse_release(old);
}

/* What a tensor over the same bytes has from the one that it is made of. */
static void inherit(wk_tensor *t, const wk_tensor *base) {
  t->keys |= base->keys & WK__KEY_INFERENCE;
  wk__tensor_share_inner(t, base);
  if (WK_UNLIKELY(base->sparse != NULL)) {
    atomic_fetch_add_explicit(&base->sparse->references, 1, memory_order_relaxed);
    wk__tensor_set_sparse(t, base->sparse);
  }
  if (WK_LIKELY(!base->own_version)) return;
  atomic_fetch_add_explicit(&base->own_version->references, 1, memory_order_relaxed);
  t->own_version = base->own_version;
}

void wk__tensor_destroy(wk_tensor *t) {
  if (WK_UNLIKELY(t->trace != NULL)) wk__upcalls.tensor_dropped(t);
  if (WK_UNLIKELY(t->flags & WK__TENSOR_SYMBOLIC)) wk__symbolic_drop(t);
  if (t->autograd) wk__upcalls.autograd_release(t->autograd);
  if (t->base) wk__release(t->base);
  if (t->storage) wk__storage_release(t->storage);
  if (WK_UNLIKELY(t->own_version != NULL)) release_version(t->own_version);
  if (WK_UNLIKELY(t->inner != NULL)) wk__inner_release(t->inner);
  if (WK_UNLIKELY(t->sparse != NULL)) wk__sparse_release(t->sparse);
  if (t->sizes != t->dims) wk__free(t->sizes);
  struct_free(t);
}

/* ---- geometry ---- */

wk_int wk__sizes_numel(const wk_int *sizes, int ndim) {
  wk_int n = wk_int_of(1);
  for (int d = 0; d < ndim; d++) n = wk_int_mul(n, sizes[d]);
  return n;
}

void wk__contiguous_strides(wk_int *strides, const wk_int *sizes, int ndim) {
  wk_int run = wk_int_of(1);
  for (int d = ndim - 1; d >= 0; d--) {
    strides[d] = run;
    run = wk_int_mul(run, wk_int_max(sizes[d], wk_int_of(1)));
  }
}

/* Written as wk__contiguous_strides would, where a symbolic size may be 0. */
static bool written_contiguous(const wk_int *sizes, const wk_int *strides, int ndim) {
  wk_int expected[WK_MAX_DIMS];
  wk__contiguous_strides(expected, sizes, ndim);
  for (int d = 0; d < ndim; d++)
    if (!wk_int_same(strides[d], expected[d]) && !(wk_int_is_known(sizes[d]) && sizes[d].bits == 1)) return false;
  return true;
}

static bool strides_contiguous(const wk_int *sizes, const wk_int *strides, int ndim, wk_int numel) {
  if (wk_int_is_known(numel) && numel.bits == 0) return true;
  wk_int run = wk_int_of(1);
  for (int d = ndim - 1; d >= 0; d--) {
    if (wk_int_is_known(sizes[d]) && sizes[d].bits == 1) continue;
    if (!wk_int_same(strides[d], run)) return !wk_int_is_known(numel) && written_contiguous(sizes, strides, ndim);
    run = wk_int_mul(run, sizes[d]);
  }
  return true;
}

/* The product of the sizes does not fit a wk_int, or its expression could not be made. */
static wk_status too_many_elements(const wk__spec *spec, wk_int numel) {
  for (int d = 0; d < spec->ndim; d++)
    if (!wk_int_is_known(spec->sizes[d])) return wk_int_check(numel);
  return wk_fail(WK_RUNTIME_ERROR, "numel: integer multiplication overflow");
}

_Atomic uint64_t wk__tensor_epoch;
_Atomic int32_t wk__symbolic_traces;

static bool is_symbolic(const wk__spec *spec) {
  bool known = wk_int_is_known(spec->offset);
  for (int d = 0; d < spec->ndim; d++) known &= wk_int_is_known(spec->sizes[d]) && wk_int_is_known(spec->strides[d]);
  return !known;
}

wk_status wk__tensor_set_geometry(wk_tensor *t, const wk__spec *spec) {
  wk_int numel = wk__sizes_numel(spec->sizes, spec->ndim);
  if (WK_UNLIKELY(wk_int_is_poisoned(numel))) return too_many_elements(spec, numel);
  if (t->sizes) wk__tensor_epoch_bump(); /* a new one has none yet */
  int ndim = spec->ndim;
  if (WK_UNLIKELY(ndim > WK__INLINE_DIMS)) {
    wk_int *dims = wk__alloc(2 * (size_t)ndim * sizeof *dims);
    if (!dims) return WK_OUT_OF_MEMORY;
    if (t->sizes && t->sizes != t->dims) wk__free(t->sizes);
    t->sizes = dims;
  } else {
    if (t->sizes && t->sizes != t->dims) wk__free(t->sizes);
    t->sizes = t->dims;
  }
  t->strides = t->sizes + ndim;
  for (int d = 0; d < ndim; d++) t->sizes[d] = spec->sizes[d];
  for (int d = 0; d < ndim; d++) t->strides[d] = spec->strides[d];
  t->ndim = spec->ndim;
  t->dtype = spec->dtype;
  t->device = spec->device;
  t->offset = spec->offset;
  t->numel = numel;
  bool contiguous = strides_contiguous(t->sizes, t->strides, ndim, t->numel);
  bool symbols_in_use = atomic_load_explicit(&wk__symbolic_traces, memory_order_relaxed);
  bool symbolic = WK_UNLIKELY(symbols_in_use) && is_symbolic(spec);
  if (WK_UNLIKELY(t->flags & WK__TENSOR_SYMBOLIC) && !symbolic) wk__symbolic_drop(t);
  t->flags = (uint8_t)((t->flags & ~(WK__TENSOR_CONTIGUOUS | WK__TENSOR_SYMBOLIC)) |
                       (contiguous ? WK__TENSOR_CONTIGUOUS : 0) | (symbolic ? WK__TENSOR_SYMBOLIC : 0));
  return WK_OK;
}

void wk__spec_contiguous(wk__spec *spec, wk_dtype dtype, wk_device device, int ndim, const wk_int *sizes) {
  spec->dtype = (uint8_t)dtype;
  spec->device = device;
  spec->ndim = (uint8_t)ndim;
  spec->offset = wk_int_of(0);
  for (int d = 0; d < ndim; d++) spec->sizes[d] = sizes[d];
  wk__contiguous_strides(spec->strides, spec->sizes, ndim);
}

void wk__spec_of(wk__spec *spec, const wk_tensor *t) {
  spec->dtype = t->dtype;
  spec->device = t->device;
  spec->ndim = t->ndim;
  spec->offset = t->offset;
  for (int d = 0; d < t->ndim; d++) {
    spec->sizes[d] = t->sizes[d];
    spec->strides[d] = t->strides[d];
  }
}

void wk__spec_copy(wk__spec *to, const wk__spec *from) {
  to->dtype = from->dtype;
  to->device = from->device;
  to->ndim = from->ndim;
  to->offset = from->offset;
  memcpy(to->sizes, from->sizes, from->ndim * sizeof *from->sizes);
  memcpy(to->strides, from->strides, from->ndim * sizeof *from->strides);
}

wk_int wk__spec_numel(const wk__spec *spec) { return wk__sizes_numel(spec->sizes, spec->ndim); }

/* ---- symbols become numbers ---- */

void wk__spec_make_known(wk__spec *spec) {
  spec->offset = wk__symbolic_value(spec->offset);
  for (int d = 0; d < spec->ndim; d++) {
    spec->sizes[d] = wk__symbolic_value(spec->sizes[d]);
    spec->strides[d] = wk__symbolic_value(spec->strides[d]);
  }
}

void wk__tensor_make_known(void *tensor) {
  wk__spec spec;
  wk__spec_of(&spec, tensor);
  wk__spec_make_known(&spec);
  (void)!wk__tensor_set_geometry(tensor, &spec); /* as many dims as before: fails for none of the usual ranks */
}

/* ---- creation ---- */

wk_tensor *wk__tensor_over(wk_storage *steal_storage, const wk__spec *spec) {
  wk_tensor *t = struct_alloc();
  if (t && wk__tensor_set_geometry(t, spec) == WK_OK) {
    t->storage = steal_storage;
    bool outlives_symbols = WK_UNLIKELY(t->flags & WK__TENSOR_SYMBOLIC) && steal_storage;
    if (!outlives_symbols || wk__symbolic_hold(t, wk__tensor_make_known) == WK_OK) return t;
    wk__tensor_destroy(t);
    return NULL;
  }
  if (t) struct_free(t);
  wk__storage_release(steal_storage);
  return NULL;
}

static int64_t negative_size(const wk__spec *spec, int64_t size) {
  wk__string sizes = {0};
  wk__print_sizes(&sizes, spec->sizes, spec->ndim);
  wk_fail(WK_RUNTIME_ERROR, "Trying to create tensor with negative dimension %lld: %s", (long long)size,
          sizes.text ? sizes.text : "?");
  wk__string_release(&sizes);
  return -1;
}

static int64_t size_overflow(const wk__spec *spec) {
  wk__string sizes = {0};
  wk__print_sizes(&sizes, spec->sizes, spec->ndim);
  wk_fail(WK_RUNTIME_ERROR, "Storage size calculation overflowed with sizes=%s", sizes.text ? sizes.text : "?");
  wk__string_release(&sizes);
  return -1;
}

/* Bytes of a new tensor; -1 with the error set when sizes are negative or the product overflows. */
static int64_t spec_bytes(const wk__spec *spec) {
  int64_t extent = 1, numel = 1, bytes;
  bool overflow = false, strides_known = true;
  for (int d = 0; d < spec->ndim; d++) {
    int64_t size = spec->sizes[d].bits, stride = spec->strides[d].bits, reach;
    if (wk_int_check(spec->sizes[d])) return -1;
    if (size < 0) return negative_size(spec, size);
    strides_known &= wk_int_is_known(spec->strides[d]);
    overflow |= __builtin_mul_overflow(numel, size, &numel);
    overflow |= strides_known && (__builtin_mul_overflow(wk__max(size, 1) - 1, stride, &reach) ||
                                  __builtin_add_overflow(extent, reach, &extent));
  }
  if (!overflow && !strides_known) return (void)wk_fail(WK_RUNTIME_ERROR, "Stride calculation overflowed"), -1;
  overflow |= __builtin_mul_overflow(extent, (int64_t)wk__dtypes[spec->dtype].size, &bytes);
  if (overflow) return size_overflow(spec);
  return numel == 0 ? 0 : bytes;
}

static bool sizes_known(const wk__spec *spec) {
  bool known = true;
  for (int d = 0; d < spec->ndim; d++) known &= wk_int_is_known(spec->sizes[d]);
  return known;
}

wk_tensor *wk__tensor_from_spec_at(const wk__spec *spec, const void *wanted) {
  bool meta = spec->device.type == WK_META; /* which may have symbolic sizes; others are measured all the same */
  int64_t bytes = meta && !sizes_known(spec) ? 0 : spec_bytes(spec);
  if (bytes < 0) return NULL;
  if (meta) return wk__tensor_shape_only(spec);
  wk_storage *storage = wk__storage_create_at(spec->device, bytes, wanted);
  return storage ? wk__tensor_over(storage, spec) : NULL;
}

wk_tensor *wk__tensor_from_spec(const wk__spec *spec) { return wk__tensor_from_spec_at(spec, NULL); }

wk_tensor *wk__tensor_shape_only(const wk__spec *spec) { return wk__tensor_over(NULL, spec); }

wk_tensor *wk__tensor_shape_of(const wk_tensor *tensor) {
  wk__spec spec;
  wk__spec_of(&spec, tensor);
  return wk__tensor_shape_only(&spec);
}

wk_tensor *wk__tensor_kept_shape(const wk_tensor *tensor) {
  wk_tensor *t = wk__tensor_shape_of(tensor);
  if (WK_LIKELY(!t || !(t->flags & WK__TENSOR_SYMBOLIC))) return t;
  if (wk__symbolic_hold(t, wk__tensor_make_known) == WK_OK) return t;
  wk__release(t);
  return NULL;
}

wk_tensor *wk__tensor_alias(const wk_tensor *base, const wk__spec *spec) {
  wk_tensor *t = wk__tensor_over(base->storage ? wk__storage_retain(base->storage) : NULL, spec);
  if (t) inherit(t, base);
  return t;
}

/* ---- public ---- */

static wk_status spec_from_ints(wk__spec *spec, wk_dtype dtype, int ndim, const int64_t *sizes) {
  if (dtype >= WK_DTYPE_COUNT) return wk_fail(WK_TYPE_ERROR, "invalid dtype %d", (int)dtype);
  if (ndim < 0) return wk_fail(WK_VALUE_ERROR, "a tensor cannot have %d dimensions", ndim);
  WK_TRY(wk__check_ndim(ndim));
  wk_int dims[WK_MAX_DIMS];
  for (int d = 0; d < ndim; d++) dims[d] = wk_int_of(sizes[d]);
  wk__spec_contiguous(spec, dtype, WK__CPU_DEVICE, ndim, dims);
  return WK_OK;
}

wk_tensor *wk_tensor_create(wk_dtype dtype, int ndim, const int64_t *sizes) {
  wk__spec spec;
  return spec_from_ints(&spec, dtype, ndim, sizes) ? NULL : wk__tensor_from_spec(&spec);
}

wk_tensor *wk_tensor_from_memory(void *data, wk_dtype dtype, int ndim, const int64_t *sizes, const int64_t *strides,
                                 void (*release)(void *context), void *context) {
  wk__spec spec;
  if (spec_from_ints(&spec, dtype, ndim, sizes)) return NULL;
  for (int d = 0; strides && d < ndim; d++) spec.strides[d] = wk_int_of(strides[d]);
  int64_t bytes = spec_bytes(&spec);
  wk_storage *storage = bytes < 0 ? NULL : wk__storage_from_memory(data, bytes, NULL, NULL);
  wk_tensor *t = storage ? wk__tensor_over(storage, &spec) : NULL;
  if (!t) return NULL; /* the memory stays the caller's */
  storage->release = release;
  storage->context = context;
  return t;
}

wk_tensor *wk_tensor_from_data(const void *data, wk_dtype dtype, int ndim, const int64_t *sizes) {
  wk_tensor *t = wk_tensor_create(dtype, ndim, sizes);
  if (t && wk__numel(t)) memcpy(wk__host_data(t), data, (size_t)wk__numel(t) * wk__itemsize(t));
  return t;
}

wk_tensor *wk_tensor_retain(wk_tensor *tensor) { return wk__retain(tensor); }
void wk_tensor_release(wk_tensor *tensor) { wk__release(tensor); }
wk_dtype wk_tensor_dtype(const wk_tensor *t) { return (wk_dtype)t->dtype; }
wk_device wk_tensor_device(const wk_tensor *t) { return t->device; }
int wk_tensor_ndim(const wk_tensor *t) { return t->ndim; }
int64_t wk_tensor_size(const wk_tensor *t, int dim) { return wk__size(t, dim < 0 ? dim + t->ndim : dim); }
int64_t wk_tensor_stride(const wk_tensor *t, int dim) { return wk__stride(t, dim < 0 ? dim + t->ndim : dim); }
int64_t wk_tensor_numel(const wk_tensor *t) { return wk__numel(t); }
bool wk_tensor_is_contiguous(const wk_tensor *t) { return wk__is_contiguous(t); }
void *wk_tensor_data(const wk_tensor *t) {
  return wk__realize((wk_tensor *)t, "a tensor's memory is given out") == WK_OK ? wk__address(t) : NULL;
}

wk_status wk_tensor_item(const wk_tensor *t, double *out_value) {
  if (!wk_int_is_known(t->numel) || t->numel.bits != 1)
    return wk_fail(WK_RUNTIME_ERROR, "a Tensor with %lld elements cannot be converted to Scalar",
                   wk_int_is_known(t->numel) ? (long long)t->numel.bits : -1LL);
  if (!t->storage) return wk_fail(WK_RUNTIME_ERROR, "Tensor.item() cannot be called on meta tensors");
  WK_TRY(wk__realize((wk_tensor *)t, "a tensor's value is used as a number"));
  wk__scalar value;
  WK_TRY(wk__read_element(t, &value));
  *out_value = wk__scalar_double(value);
  return WK_OK;
}
