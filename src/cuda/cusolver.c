/* cuSOLVER, found by dlopen at the first matrix that is large: Cholesky, LU, solutions, QR, eigenvalues of symmetric
 * matrices, in the tensor's own dtype, matrix after matrix.
 *
 * It counts columns first. A row-major matrix is the transposed one to it: a symmetric matrix needs no copy but has its
 * triangles exchanged; all others are copied transposed, and so are their results. Its bits are its own. Tests:
 * tests/cuda/test_linalg.py, where there is a device with the library. */
#include "cuda/cusolver.h"

#include <dlfcn.h>

#include "cuda/kernels.h"
#include "cuda/library.h"
#include "cuda/recording.h"
#include "cuda/units.h"
#include "ops/internal.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

enum { FILL_LOWER = 0, FILL_UPPER = 1, NOT_TRANSPOSED = 0 };

/* Of both dtypes; `void *` where they have an element's type. */
#define ROUTINES(X)                                                                     \
  X(potrf_bufferSize, (void *, int, int, void *, int, int *))                           \
  X(potrf, (void *, int, int, void *, int, void *, int, int *))                         \
  X(getrf_bufferSize, (void *, int, int, void *, int, int *))                           \
  X(getrf, (void *, int, int, void *, int, void *, int *, int *))                       \
  X(getrs, (void *, int, int, int, const void *, int, const int *, void *, int, int *)) \
  X(geqrf_bufferSize, (void *, int, int, void *, int, int *))                           \
  X(geqrf, (void *, int, int, void *, int, void *, void *, int, int *))                 \
  X(orgqr_bufferSize, (void *, int, int, int, const void *, int, const void *, int *))  \
  X(orgqr, (void *, int, int, int, void *, int, const void *, void *, int, int *))      \
  X(syevd_bufferSize, (void *, int, int, int, const void *, int, const void *, int *))  \
  X(syevd, (void *, int, int, int, void *, int, void *, void *, int, int *))

typedef struct routines {
#define X(name, args) int(*name) args;
  ROUTINES(X)
#undef X
} routines;

static struct {
  pthread_once_t once;
  bool is_there;
  int (*create)(void **);
  int (*set_stream)(void *, CUstream);
  routines single, wide;
  pthread_mutex_t lock; /* held while a handle is used */
  void *handles[WK__MOST_DEVICES];
} solver = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void open_library(void) {
  static const char *const names[] = {"libcusolver.so.12", "libcusolver.so.11", "libcusolver.so", NULL};
  void *library = wk__cuda_open_library("WICK_CUSOLVER", names);
  if (!library) return;
  if (!(*(void **)&solver.create = dlsym(library, "cusolverDnCreate"))) return;
  if (!(*(void **)&solver.set_stream = dlsym(library, "cusolverDnSetStream"))) return;
#define X(name, args)                                                                 \
  if (!(*(void **)&solver.single.name = dlsym(library, "cusolverDnS" #name))) return; \
  if (!(*(void **)&solver.wide.name = dlsym(library, "cusolverDnD" #name))) return;
  ROUTINES(X)
#undef X
  solver.is_there = true;
}

bool wk__cusolver_is_there(void) {
  (void)pthread_once(&solver.once, open_library);
  return solver.is_there;
}

/* ---- a call ---- */

typedef struct job {
  void *handle;
  const routines *r;
  wk__cuda_stream *stream;
  int64_t item, count, m, n; /* bytes of an element; matrices */
  void *work;
  int64_t capacity;
  int elements; /* of the work */
} job;

static wk_status check(int status, const char *what) {
  return status == 0 ? WK_OK : wk_fail(WK_RUNTIME_ERROR, "cusolver error: %d, when calling `%s`", status, what);
}

/* Takes the lock, which end gives back. */
static wk_status begin(job *j, const wk_tensor *a) {
  *j = (job){.item = (int64_t)wk__itemsize(a), .m = wk__size(a, a->ndim - 2), .n = wk__size(a, a->ndim - 1)};
  j->count = wk__numel(a) / (j->m * j->n);
  j->r = a->dtype == WK_FLOAT64 ? &solver.wide : &solver.single;
  j->stream = wk__cuda_stream_of(wk__stream_of(a->device));
  wk__cuda_not_recorded("a library factorises");
  WK_TRY(wk__cuda_enter(j->stream->device));
  pthread_mutex_lock(&solver.lock);
  void **handle = &solver.handles[j->stream->device->index];
  wk_status status = *handle ? WK_OK : check(solver.create(handle), "cusolverDnCreate");
  j->handle = *handle;
  return status == WK_OK ? check(solver.set_stream(j->handle, j->stream->handle), "cusolverDnSetStream") : status;
}

static void end(job *j) {
  pthread_mutex_unlock(&solver.lock);
  if (j->work) wk__cuda_release(&j->stream->head, j->work, j->capacity);
}

/* Room of so many elements: `status` is that of the question for it. */
static wk_status take_work(job *j, int status, int elements, const char *what) {
  WK_TRY(check(status, what));
  if (j->work && elements <= j->elements) return WK_OK;
  if (j->work) wk__cuda_release(&j->stream->head, j->work, j->capacity);
  j->work = wk__cuda_allocate(&j->stream->head, wk__max(elements, 1) * j->item, &j->capacity);
  j->elements = elements;
  return j->work ? WK_OK : wk_error_category();
}

static void *matrix(const job *j, const wk_tensor *t, int64_t i, int64_t elements) {
  return (char *)wk__address(t) + i * elements * j->item;
}
static int *integer(const wk_tensor *t, int64_t i, int64_t each) { return (int *)wk__address(t) + i * each; }

static wk_tensor *room(const wk_tensor *like, int64_t count, int64_t each, wk_dtype dtype) {
  wk_int sizes[] = {wk_int_of(count), wk_int_of(each)};
  return wk_new_empty((wk_tensor *)like, sizes, 2, dtype, NONE);
}
static wk_tensor *copied(wk_tensor *t) { return wk_clone(t, "contiguous_format"); }
static wk_tensor *turned(wk_tensor *t) { return wk_transpose_int(t, -2, -1); }
static wk_status give(wk_tensor *made, wk_tensor *out) { return made ? wk__copy_into(out, made) : wk_error_category(); }

/* ---- Cholesky ---- */

static wk_status factor_positive(job *j, const wk_tensor *a, const wk_tensor *info) {
  int n = (int)j->n, elements = 0;
  int status = j->r->potrf_bufferSize(j->handle, FILL_UPPER, n, wk__address(a), n, &elements);
  WK_TRY(take_work(j, status, elements, "potrf_bufferSize"));
  for (int64_t i = 0; i < j->count; i++)
    WK_TRY(check(
        j->r->potrf(j->handle, FILL_UPPER, n, matrix(j, a, i, j->n * j->n), n, j->work, elements, integer(info, i, 1)),
        "potrf"));
  return WK_OK;
}

wk_status wk__cusolver_cholesky(wk__call *c) {
  wk_tensor *a = copied(c->args[0].tensor);
  job j;
  if (!a) return wk_error_category();
  wk_status status = begin(&j, a);
  if (status == WK_OK) status = factor_positive(&j, a, c->outputs[1]);
  end(&j);
  return status == WK_OK ? give(wk_tril(a, 0), c->outputs[0]) : status;
}

/* ---- LU ---- */

/* at: turned copies. */
static wk_status factor(job *j, const wk_tensor *at, const wk_tensor *pivots, const wk_tensor *info) {
  int m = (int)j->m, n = (int)j->n, elements = 0;
  int status = j->r->getrf_bufferSize(j->handle, m, n, wk__address(at), m, &elements);
  WK_TRY(take_work(j, status, elements, "getrf_bufferSize"));
  for (int64_t i = 0; i < j->count; i++)
    WK_TRY(check(j->r->getrf(j->handle, m, n, matrix(j, at, i, j->m * j->n), m, j->work,
                             integer(pivots, i, wk__min(m, n)), integer(info, i, 1)),
                 "getrf"));
  return WK_OK;
}

wk_status wk__cusolver_lu_factor(wk__call *c) {
  wk_tensor *a = c->args[0].tensor, *at = copied(turned(a));
  job j;
  if (!at) return wk_error_category();
  wk_status status = begin(&j, a);
  if (status == WK_OK) status = factor(&j, at, c->outputs[1], c->outputs[2]);
  end(&j);
  return status == WK_OK ? give(turned(at), c->outputs[0]) : status;
}

static wk_status solve(job *j, const wk_tensor *at, const wk_tensor *pivots, const wk_tensor *bt, int64_t k,
                       const wk_tensor *info) {
  wk_tensor *unused = room(at, 1, 1, WK_INT32); /* whether an argument is wrong */
  if (!unused) return wk_error_category();
  WK_TRY(factor(j, at, pivots, info));
  for (int64_t i = 0; i < j->count; i++)
    WK_TRY(check(j->r->getrs(j->handle, NOT_TRANSPOSED, (int)j->n, (int)k, matrix(j, at, i, j->n * j->n), (int)j->n,
                             integer(pivots, i, j->n), matrix(j, bt, i, j->n * k), (int)j->n, integer(unused, 0, 1)),
                 "getrs"));
  return WK_OK;
}

wk_status wk__cusolver_solve(wk__call *c) {
  WK__ARGS(_linalg_solve);
  wk_tensor *a = c->args[A_A].tensor, *b = c->args[A_B].tensor, *at = copied(turned(a)), *bt = copied(turned(b));
  wk_tensor *pivots = at && bt ? room(a, wk__numel(a) / wk__size(a, a->ndim - 1), 1, WK_INT32) : NULL;
  job j;
  if (!pivots) return wk_error_category();
  wk_status status = begin(&j, a);
  if (status == WK_OK) status = solve(&j, at, pivots, bt, wk__size(b, b->ndim - 1), c->outputs[1]);
  end(&j);
  return status == WK_OK ? give(turned(bt), c->outputs[0]) : status;
}

/* ---- QR ---- */

/* at becomes R and reflections; tau (count, k) */
static wk_status reflect(job *j, const wk_tensor *at, const wk_tensor *tau, const wk_tensor *info) {
  int m = (int)j->m, n = (int)j->n, elements = 0;
  int status = j->r->geqrf_bufferSize(j->handle, m, n, wk__address(at), m, &elements);
  WK_TRY(take_work(j, status, elements, "geqrf_bufferSize"));
  for (int64_t i = 0; i < j->count; i++)
    WK_TRY(check(j->r->geqrf(j->handle, m, n, matrix(j, at, i, j->m * j->n), m, matrix(j, tau, i, wk__min(m, n)),
                             j->work, elements, integer(info, 0, 1)),
                 "geqrf"));
  return WK_OK;
}

/* qt (count, columns, m), whose first rows are at's, becomes Q. */
static wk_status form(job *j, const wk_tensor *qt, const wk_tensor *tau, int64_t columns, const wk_tensor *info) {
  int m = (int)j->m, k = (int)wk__min(j->m, j->n), elements = 0;
  int status = j->r->orgqr_bufferSize(j->handle, m, (int)columns, k, wk__address(qt), m, wk__address(tau), &elements);
  WK_TRY(take_work(j, status, elements, "orgqr_bufferSize"));
  for (int64_t i = 0; i < j->count; i++)
    WK_TRY(check(j->r->orgqr(j->handle, m, (int)columns, k, matrix(j, qt, i, columns * j->m), m, matrix(j, tau, i, k),
                             j->work, elements, integer(info, 0, 1)),
                 "orgqr"));
  return WK_OK;
}

/* (..., columns, m) with the reflections in its first rows. */
static wk_tensor *room_for_q(wk_tensor *at, int64_t columns) {
  wk_int sizes[WK_MAX_DIMS];
  int rows = at->ndim - 2;
  int64_t k = wk__min(columns, wk__size(at, rows));
  memcpy(sizes, at->sizes, (size_t)at->ndim * sizeof *sizes);
  sizes[rows] = wk_int_of(columns);
  wk_tensor *qt = wk_new_zeros(at, sizes, at->ndim, (wk_dtype)at->dtype, NONE);
  wk_tensor *first = qt ? wk_narrow(qt, rows, wk_int_of(0), wk_int_of(k)) : NULL;
  wk_tensor *from = first ? wk_narrow(at, rows, wk_int_of(0), wk_int_of(k)) : NULL;
  return from && wk__copy_into(first, from) == WK_OK ? qt : NULL;
}

wk_status wk__cusolver_qr(wk__call *c) {
  WK__ARGS(linalg_qr);
  wk_tensor *a = c->args[A_A].tensor, *q = c->outputs[0], *out = c->outputs[1], *at = copied(turned(a)), *qt = NULL;
  int64_t columns = strcmp(c->args[A_mode].string, "r") == 0 ? -1 : wk__size(q, q->ndim - 1);
  job j;
  if (!at) return wk_error_category();
  int64_t m = wk__size(a, a->ndim - 2), n = wk__size(a, a->ndim - 1);
  wk_tensor *tau = room(a, wk__numel(a) / (m * n), wk__min(m, n), (wk_dtype)a->dtype);
  wk_tensor *info = tau ? room(a, 1, 1, WK_INT32) : NULL;
  if (!info) return wk_error_category();
  wk_status status = begin(&j, a);
  if (status == WK_OK) status = reflect(&j, at, tau, info);
  if (status == WK_OK && columns >= 0) {
    qt = room_for_q(at, columns);
    status = qt ? form(&j, qt, tau, columns, info) : wk_error_category();
  }
  end(&j);
  WK_TRY(status);
  wk_tensor *r = wk_triu(turned(at), 0);
  if (r) r = wk_slice(r, -2, wk__v_int(0), wk__v_int(wk__size(out, out->ndim - 2)), wk_int_of(1));
  WK_TRY(give(r, out));
  return qt ? give(turned(qt), q) : WK_OK;
}

/* ---- eigenvalues ---- */

static wk_status decompose(job *j, const wk_tensor *a, const wk_tensor *values, bool vectors, bool upper,
                           const wk_tensor *info) {
  int n = (int)j->n, elements = 0, fill = upper ? FILL_LOWER : FILL_UPPER;
  int status = j->r->syevd_bufferSize(j->handle, vectors, fill, n, wk__address(a), n, wk__address(values), &elements);
  WK_TRY(take_work(j, status, elements, "syevd_bufferSize"));
  for (int64_t i = 0; i < j->count; i++)
    WK_TRY(check(j->r->syevd(j->handle, vectors, fill, n, matrix(j, a, i, j->n * j->n), n, matrix(j, values, i, j->n),
                             j->work, elements, integer(info, i, 1)),
                 "syevd"));
  return WK_OK;
}

wk_status wk__cusolver_eigh(wk__call *c) {
  WK__ARGS(_linalg_eigh);
  wk_tensor *a = copied(c->args[A_A].tensor);
  bool vectors = wk__arg_bool(c, A_compute_v);
  bool upper = c->args[A_UPLO].string[0] == 'U' || c->args[A_UPLO].string[0] == 'u';
  job j;
  if (!a) return wk_error_category();
  int64_t n = wk__size(a, a->ndim - 1), count = wk__numel(a) / (n * n);
  wk_tensor *values = room(a, count, n, (wk_dtype)a->dtype), *info = values ? room(a, count, 1, WK_INT32) : NULL;
  if (!info) return wk_error_category();
  wk_status status = begin(&j, a);
  if (status == WK_OK) status = decompose(&j, a, values, vectors, upper, info);
  end(&j);
  WK_TRY(status);
  double worst = 0;
  wk_tensor *most = wk_max(wk_abs(info));
  WK_TRY(most ? wk_tensor_item(most, &worst) : wk_error_category());
  if (worst > 0)
    return wk_fail(WK_LINALG_ERROR,
                   "linalg.eigh: The algorithm failed to converge because the input matrix is ill-conditioned or has "
                   "too many repeated eigenvalues (error code: %d).",
                   (int)worst);
  WK_TRY(give(wk_reshape(values, c->outputs[0]->sizes, c->outputs[0]->ndim), c->outputs[0]));
  return vectors ? give(turned(a), c->outputs[1]) : WK_OK;
}
