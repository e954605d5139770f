/* Batches of matrices for the rows of linear algebra: copies in the caller's scope that a routine works on, one matrix
 * after the other. By rows they are double or complex double, for wk__real_NAME and wk__complex_NAME, which run on
 * several threads; by columns they have the tensor's own dtype, for LAPACK. Results are rounded and laid out by the
 * copy into the output. */
#ifndef WICK_CPU_KERNELS_LINALG_MATRICES_H
#define WICK_CPU_KERNELS_LINALG_MATRICES_H

#include "cpu/linalg/lapack.h"
#include "cpu/linalg/linalg.h"
#include "ops/internal.h"

typedef struct wk__matrices {
  char *at;
  wk_tensor *made; /* (..., m, n), by columns (..., n, m) */
  int64_t count, m, n;
  bool by_columns, is_complex;
  wk__lapack_type type;
} wk__matrices;

/* Copies of t's matrices. */
wk_status wk__matrices_open(wk_tensor *t, bool by_columns, wk__matrices *out);
/* Room for as many (m, n) as t has matrices; `real`: of real numbers, beside t's. */
wk_status wk__matrices_room(wk_tensor *t, bool by_columns, bool real, int64_t m, int64_t n, wk__matrices *out);
/* A result that lies as its output does, a vector or a number for each matrix. */
wk_status wk__matrices_give(const wk__matrices *b, wk_tensor *output);
/* The same with its matrices turned, since they were made by columns in room by rows. */
wk_status wk__matrices_give_turned(const wk__matrices *b, wk_tensor *output);

static inline int64_t wk__matrices_number_size(const wk__matrices *b) {
  return b->by_columns ? (int64_t)4 << ((b->type & 1) + (b->type >= WK__LAPACK_C)) : b->is_complex ? 16 : 8;
}
static inline void *wk__matrices_at(const wk__matrices *b, int64_t i) {
  return b->at + i * b->m * b->n * wk__matrices_number_size(b);
}

/* Calls fn for each matrix, with room of so many bytes for one call at a time; `steps`: about how many operations a
 * matrix takes. What fails gives false. */
typedef bool wk__matrices_fn(void *context, int64_t i, void *room);
WK_MUST_USE wk_status wk__matrices_each(wk__matrices_fn *fn, void *context, const wk__matrices *b, int64_t room,
                                        int64_t steps, int64_t *out_failed);

/* A routine's name by the kind of number. */
#define WK__MATRICES_CALL(batch, name, ...) \
  ((batch)->is_complex ? wk__complex_##name(__VA_ARGS__) : wk__real_##name(__VA_ARGS__))

#endif
