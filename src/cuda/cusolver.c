/* cuSOLVER, found by dlopen at the first matrix that is large or complex: Cholesky, LU, solutions, determinants, QR,
 * eigenvalues of Hermitian matrices, singular values, in the tensor's own dtype, matrix after matrix.
 *
 * It counts columns first. A row-major matrix is the transposed one to it: a symmetric matrix needs no copy but has its
 * triangles exchanged; a
 * Hermitian one is its conjugate then. All others are copied transposed, and so are their results. Its bits are its
 * own. Tests: tests/cuda/test_linalg.py, where there is a device with the library. */
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

/* ROUTINE(name, its name for complex numbers, arguments): of all four dtypes; `void *` where they have an element's
 * type. */
#define ROUTINES(X)                                                                                            \
  X(potrf_bufferSize, potrf_bufferSize, (void *, int, int, void *, int, int *))                                \
  X(potrf, potrf, (void *, int, int, void *, int, void *, int, int *))                                         \
  X(getrf_bufferSize, getrf_bufferSize, (void *, int, int, void *, int, int *))                                \
  X(getrf, getrf, (void *, int, int, void *, int, void *, int *, int *))                                       \
  X(getrs, getrs, (void *, int, int, int, const void *, int, const int *, void *, int, int *))                 \
  X(geqrf_bufferSize, geqrf_bufferSize, (void *, int, int, void *, int, int *))                                \
  X(geqrf, geqrf, (void *, int, int, void *, int, void *, void *, int, int *))                                 \
  X(orgqr_bufferSize, ungqr_bufferSize, (void *, int, int, int, const void *, int, const void *, int *))       \
  X(orgqr, ungqr, (void *, int, int, int, void *, int, const void *, void *, int, int *))                      \
  X(syevd_bufferSize, heevd_bufferSize, (void *, int, int, int, const void *, int, const void *, int *))       \
  X(syevd, heevd, (void *, int, int, int, void *, int, void *, void *, int, int *))                            \
  X(gesvdj_bufferSize, gesvdj_bufferSize,                                                                      \
    (void *, int, int, int, int, const void *, int, const void *, const void *, int, const void *, int, int *, \
     void *))                                                                                                  \
  X(gesvdj, gesvdj,                                                                                            \
    (void *, int, int, int, int, void *, int, void *, void *, int, void *, int, void *, int, int *, void *))

typedef struct routines {
#define X(name, complex_name, args) int(*name) args;
  ROUTINES(X)
#undef X
} routines;

static struct {
  pthread_once_t once;
  bool is_there;
  int (*create)(void **);
  int (*set_stream)(void *, CUstream);
  int (*create_rotations)(void **);
  void *rotations; /* gesvdj's settings, as they are by default */
  routines single, wide, complex_single, complex_wide;
  pthread_mutex_t lock; /* held while a handle is used */
  void *handles[WK__MOST_DEVICES];
} solver = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void open_library(void) {
  static const char *const names[] = {"libcusolver.so.12", "libcusolver.so.11", "libcusolver.so", NULL};
  void *library = wk__cuda_open_library("WICK_CUSOLVER", names);
  if (!library) return;
  if (!(*(void **)&solver.create = dlsym(library, "cusolverDnCreate"))) return;
  if (!(*(void **)&solver.set_stream = dlsym(library, "cusolverDnSetStream"))) return;
  if (!(*(void **)&solver.create_rotations = dlsym(library, "cusolverDnCreateGesvdjInfo"))) return;
#define FIND(kind, letter, name, at) \
  if (!(*(void **)&solver.kind.at = dlsym(library, "cusolverDn" #letter #name))) return;
#define X(name, complex_name, args)           \
  FIND(single, S, name, name)                 \
  FIND(wide, D, name, name)                   \
  FIND(complex_single, C, complex_name, name) \
  FIND(complex_wide, Z, complex_name, name)
  ROUTINES(X)
#undef X
#undef FIND
  solver.is_there = solver.create_rotations(&solver.rotations) == 0;
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

static const routines *routines_of(wk_dtype dtype) {
  if (dtype == WK_COMPLEX64) return &solver.complex_single;
  if (dtype == WK_COMPLEX128) return &solver.complex_wide;
  return dtype == WK_FLOAT64 ? &solver.wide : &solver.single;
}

/* Takes the lock, which end gives back. */
static wk_status begin(job *j, const wk_tensor *a) {
  *j = (job){.item = (int64_t)wk__itemsize(a), .m = wk__size(a, a->ndim - 2), .n = wk__size(a, a->ndim - 1)};
  j->count = wk__numel(a) / (j->m * j->n);
  j->r = routines_of((wk_dtype)a->dtype);
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

static void *matrix(const wk_tensor *t, int64_t i, int64_t elements) {
  return (char *)wk__address(t) + i * elements * (int64_t)wk__itemsize(t);
}
static int *integer(const wk_tensor *t, int64_t i, int64_t each) { return (int *)wk__address(t) + i * each; }

static wk_tensor *room(const wk_tensor *like, int64_t count, int64_t each, wk_dtype dtype) {
  wk_int sizes[] = {wk_int_of(count), wk_int_of(each)};
  return wk_new_empty((wk_tensor *)like, sizes, 2, dtype, NONE);
}
static wk_tensor *copied(wk_tensor *t) { return wk_clone(t, "contiguous_format"); }
static wk_tensor *turned(wk_tensor *t) { return wk_transpose_int(t, -2, -1); }
static wk_tensor *conjugate(wk_tensor *t) {
  return t && wk_dtype_is_complex((wk_dtype)t->dtype) ? wk_conj_physical(t) : t;
}
static wk_dtype real_of(const wk_tensor *t) { return wk__real_dtype((wk_dtype)t->dtype); }
static wk_status give(wk_tensor *made, wk_tensor *out) { return made ? wk__copy_into(out, made) : wk_error_category(); }

/* ---- Cholesky ---- */

static wk_status factor_positive(job *j, const wk_tensor *a, const wk_tensor *info) {
  int n = (int)j->n, elements = 0;
  int status = j->r->potrf_bufferSize(j->handle, FILL_UPPER, n, wk__address(a), n, &elements);
  WK_TRY(take_work(j, status, elements, "potrf_bufferSize"));
  for (int64_t i = 0; i < j->count; i++)
    WK_TRY(check(
        j->r->potrf(j->handle, FILL_UPPER, n, matrix(a, i, j->n * j->n), n, j->work, elements, integer(info, i, 1)),
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
    WK_TRY(check(j->r->getrf(j->handle, m, n, matrix(at, i, j->m * j->n), m, j->work, integer(pivots, i, wk__min(m, n)),
                             integer(info, i, 1)),
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
    WK_TRY(check(j->r->getrs(j->handle, NOT_TRANSPOSED, (int)j->n, (int)k, matrix(at, i, j->n * j->n), (int)j->n,
                             integer(pivots, i, j->n), matrix(bt, i, j->n * k), (int)j->n, integer(unused, 0, 1)),
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

/* (..., 1) f: -1 where an odd number of rows was exchanged, else 1. pivots (count, n) */
static wk_tensor *parity(wk_tensor *pivots, wk_tensor *like) {
  wk_int last = wk_int_of(1);
  wk_value n = wk__v_int(wk__size(pivots, 1) + 1);
  wk_tensor *places =
      wk_arange_start(wk__v_int(1), n, WK_INT32, (wk_value){.tag = WK_VALUE_DEVICE, .device = like->device});
  wk_tensor *moved = places ? wk_ne(pivots, places) : NULL;
  wk_tensor *count = moved ? wk_sum_dim_IntList(moved, &last, 1, false, WK_INT64) : NULL;
  wk_tensor *odd = count ? wk_remainder_Scalar(count, wk__v_int(2)) : NULL;
  wk_tensor *sign = odd ? wk_mul_Scalar(wk__in_dtype(odd, real_of(like)), wk__v_int(-2)) : NULL;
  return sign ? wk_add_Scalar(sign, wk__v_int(1), wk__v_int(1)) : NULL;
}

/* Of U's diagonal; where there are two results its phases and logarithms. */
wk_status wk__cusolver_determinant(wk__call *c) {
  bool apart = c->op->schema.result_count > 1;
  wk_tensor *a = c->args[0].tensor, *at = copied(turned(a));
  if (!at) return wk_error_category();
  int64_t n = wk__size(a, a->ndim - 1), count = wk__numel(a) / (n * n);
  wk_tensor *pivots = room(a, count, n, WK_INT32), *info = pivots ? room(a, count, 1, WK_INT32) : NULL;
  job j;
  if (!info) return wk_error_category();
  wk_status status = begin(&j, a);
  if (status == WK_OK) status = factor(&j, at, pivots, info);
  end(&j);
  WK_TRY(status);
  wk_tensor *d = wk_diagonal(at, 0, -2, -1), *sign = d ? parity(pivots, d) : NULL;
  wk_tensor *product = sign ? wk_prod_dim_int(apart ? wk_sgn(d) : d, -1, false, WK_DTYPE_NONE) : NULL;
  if (product) product = wk_mul(product, wk_reshape(sign, product->sizes, product->ndim));
  WK_TRY(give(product, c->outputs[0]));
  if (!apart) return WK_OK;
  wk_int last = wk_int_of(-1);
  wk_tensor *logs = wk_log(wk_abs(d));
  return give(logs ? wk_sum_dim_IntList(logs, &last, 1, false, WK_DTYPE_NONE) : NULL, c->outputs[1]);
}

/* ---- QR ---- */

/* at becomes R and reflections; tau (count, k) */
static wk_status reflect(job *j, const wk_tensor *at, const wk_tensor *tau, const wk_tensor *info) {
  int m = (int)j->m, n = (int)j->n, elements = 0;
  int status = j->r->geqrf_bufferSize(j->handle, m, n, wk__address(at), m, &elements);
  WK_TRY(take_work(j, status, elements, "geqrf_bufferSize"));
  for (int64_t i = 0; i < j->count; i++)
    WK_TRY(check(j->r->geqrf(j->handle, m, n, matrix(at, i, j->m * j->n), m, matrix(tau, i, wk__min(m, n)), j->work,
                             elements, integer(info, 0, 1)),
                 "geqrf"));
  return WK_OK;
}

/* qt (count, columns, m), whose first rows are at's, becomes Q. */
static wk_status form(job *j, const wk_tensor *qt, const wk_tensor *tau, int64_t columns, const wk_tensor *info) {
  int m = (int)j->m, k = (int)wk__min(j->m, j->n), elements = 0;
  int status = j->r->orgqr_bufferSize(j->handle, m, (int)columns, k, wk__address(qt), m, wk__address(tau), &elements);
  WK_TRY(take_work(j, status, elements, "orgqr_bufferSize"));
  for (int64_t i = 0; i < j->count; i++)
    WK_TRY(check(j->r->orgqr(j->handle, m, (int)columns, k, matrix(qt, i, columns * j->m), m, matrix(tau, i, k),
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
    WK_TRY(check(j->r->syevd(j->handle, vectors, fill, n, matrix(a, i, j->n * j->n), n, matrix(values, i, j->n),
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
  wk_tensor *values = room(a, count, n, real_of(a)), *info = values ? room(a, count, 1, WK_INT32) : NULL;
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
  return vectors ? give(conjugate(turned(a)), c->outputs[1]) : WK_OK;
}

/* ---- singular values ---- */

/* T = U S V^H of T as high as wide or higher, by columns: room for U's columns, and V's. */
typedef struct singular {
  int64_t high, low, columns; /* of U */
  wk_tensor *t, *u, *values, *v, *info;
} singular;

static wk_status rotate(job *j, const singular *s, bool vectors) {
  int m = (int)s->high, n = (int)s->low, econ = s->columns < s->high, elements = 0;
  void *u = matrix(s->u, 0, 0), *v = matrix(s->v, 0, 0);
  int status = j->r->gesvdj_bufferSize(j->handle, vectors, econ, m, n, wk__address(s->t), m, wk__address(s->values), u,
                                       m, v, n, &elements, solver.rotations);
  WK_TRY(take_work(j, status, elements, "gesvdj_bufferSize"));
  for (int64_t i = 0; i < j->count; i++)
    WK_TRY(check(
        j->r->gesvdj(j->handle, vectors, econ, m, n, matrix(s->t, i, s->high * s->low), m, matrix(s->values, i, s->low),
                     matrix(s->u, i, s->columns * s->high), m, matrix(s->v, i, s->low * s->low), n, j->work, elements,
                     integer(s->info, i, 1), solver.rotations),
        "gesvdj"));
  return WK_OK;
}

/* Whether all converged to numbers; the host waits. */
static wk_status is_good(const singular *s, bool *out) {
  double worst = 0, sum = 0;
  wk_tensor *most = wk_max(s->info), *all = most ? wk_sum(s->values, WK_FLOAT64) : NULL;
  WK_TRY(all ? wk_tensor_item(most, &worst) : wk_error_category());
  WK_TRY(wk_tensor_item(all, &sum));
  *out = worst == 0 && sum - sum == 0;
  return WK_OK;
}

/* A wide matrix is read as its transpose, T = A^T: A = conj(V) S U^T. What is not finite, or does not converge, is said
 * by the CPU's kernel. */
wk_status wk__cusolver_svd(wk__call *c) {
  WK__ARGS(_linalg_svd);
  wk_tensor *a = c->args[A_A].tensor;
  int64_t m = wk__size(a, a->ndim - 2), n = wk__size(a, a->ndim - 1), count = wk__numel(a) / (m * n);
  bool wide = m < n, vectors = wk__arg_bool(c, A_compute_uv), good;
  singular s = {.high = wk__max(m, n), .low = wk__min(m, n), .t = copied(wide ? a : turned(a))};
  s.columns = wk__arg_bool(c, A_full_matrices) ? s.high : s.low;
  job j;
  if (!s.t) return wk_error_category();
  s.values = room(a, count, s.low, real_of(a)), s.info = room(a, count, 1, WK_INT32);
  s.u = room(a, count, s.columns * s.high, (wk_dtype)a->dtype); /* worked in also where no vectors are asked for */
  s.v = room(a, count, s.low * s.low, (wk_dtype)a->dtype);
  if (!s.values || !s.info || !s.u || !s.v) return wk_error_category();
  wk_status status = begin(&j, a);
  if (status == WK_OK) status = rotate(&j, &s, vectors);
  end(&j);
  WK_TRY(status);
  WK_TRY(is_good(&s, &good));
  if (!good) return wk__cuda_run_kernel_on_host(c);
  WK_TRY(give(wk_reshape(s.values, c->outputs[1]->sizes, c->outputs[1]->ndim), c->outputs[1]));
  if (!vectors) return WK_OK;
  wk_int of_u[] = {wk_int_of(count), wk_int_of(s.columns), wk_int_of(s.high)},
         *of_v = (wk_int[]){wk_int_of(count), wk_int_of(s.low), wk_int_of(s.low)};
  wk_tensor *u = wk_reshape(s.u, of_u, 3), *v = conjugate(wk_reshape(s.v, of_v, 3)); /* U^T, V^H */
  if (!u || !v) return wk_error_category();
  wk_tensor *left = turned(wide ? v : u), *right = wide ? u : v, **out = c->outputs;
  WK_TRY(give(left ? wk_reshape(left, out[0]->sizes, out[0]->ndim) : NULL, out[0]));
  return give(wk_reshape(right, out[2]->sizes, out[2]->ndim), out[2]);
}
