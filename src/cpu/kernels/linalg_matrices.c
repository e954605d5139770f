/* Batches of matrices: see linalg_matrices.h. Tests: tests/ops/, tests/python/test_linalg.py. */
#include "cpu/kernels/linalg_matrices.h"

#include <stdatomic.h>

#include "wick/operators.h"

#define NONE ((wk_value){0})

static wk_dtype wide_dtype(const wk__matrices *b) {
  static const wk_dtype own[] = {WK_FLOAT32, WK_FLOAT64, WK_COMPLEX64, WK_COMPLEX128};
  return b->by_columns ? own[b->type] : b->is_complex ? WK_COMPLEX128 : WK_FLOAT64;
}

static void start(const wk_tensor *t, bool by_columns, bool is_complex, wk__matrices *b) {
  bool is_wide = t->dtype == WK_FLOAT64 || t->dtype == WK_COMPLEX128;
  *b = (wk__matrices){.by_columns = by_columns, .is_complex = is_complex, .count = 1};
  b->type = (wk__lapack_type)(is_wide + 2 * is_complex);
  for (int d = 0; d < t->ndim - 2; d++) b->count *= wk__size(t, d);
}
static wk_status finish(wk__matrices *b, wk_tensor *made) {
  b->made = made;
  if (!made) return wk_error_category();
  b->at = (char *)wk__data(made);
  return WK_OK;
}

wk_status wk__matrices_open(wk_tensor *t, bool by_columns, wk__matrices *b) {
  start(t, by_columns, wk_dtype_is_complex((wk_dtype)t->dtype), b);
  b->m = t->ndim < 2 ? 1 : wk__size(t, t->ndim - 2);
  b->n = wk__size(t, t->ndim - 1);
  if (by_columns) return finish(b, wk_clone(wk_transpose_int(t, -2, -1), "contiguous_format"));
  wk_tensor *wide = wk__call_tensor(WK__OP(_to_copy), (wk_value[]){wk__v_tensor(t), wk__v_dtype(wide_dtype(b)), NONE});
  if (wide && wide->storage == t->storage) wide = wk_clone(wide, "contiguous_format");
  return finish(b, wide ? wk_contiguous(wide, NULL) : NULL);
}

wk_status wk__matrices_room(wk_tensor *t, bool by_columns, bool real, int64_t m, int64_t n, wk__matrices *b) {
  wk_int sizes[WK_MAX_DIMS];
  start(t, by_columns, !real && wk_dtype_is_complex((wk_dtype)t->dtype), b);
  b->m = m;
  b->n = n;
  memcpy(sizes, t->sizes, (size_t)(t->ndim - 2) * sizeof *sizes);
  sizes[t->ndim - 2] = wk_int_of(by_columns ? n : m);
  sizes[t->ndim - 1] = wk_int_of(by_columns ? m : n);
  return finish(b, wk_new_empty(t, sizes, t->ndim, wide_dtype(b), NONE));
}

wk_status wk__matrices_give_turned(const wk__matrices *b, wk_tensor *output) {
  wk_tensor *turned = wk_transpose_int(b->made, -2, -1);
  return turned ? wk__copy_into(output, turned) : wk_error_category();
}
wk_status wk__matrices_give(const wk__matrices *b, wk_tensor *output) {
  if (output->ndim < b->made->ndim) {
    wk_tensor *flat = wk_reshape(b->made, output->sizes, output->ndim);
    return flat ? wk__copy_into(output, flat) : wk_error_category();
  }
  return b->by_columns ? wk__matrices_give_turned(b, output) : wk__copy_into(output, b->made);
}

/* ---- each matrix ---- */

typedef struct each {
  wk__matrices_fn *fn;
  void *context;
  int64_t room;
  _Atomic(int64_t) failed; /* the first matrix that did, from 1 on; -1: there was no room */
} each;

static void fail_at(each *e, int64_t place) {
  int64_t before = atomic_load(&e->failed);
  while ((before == 0 || place < before) && !atomic_compare_exchange_weak(&e->failed, &before, place)) {
  }
}
static void some(void *context, int64_t begin, int64_t end) {
  each *e = context;
  void *room = wk__alloc((size_t)e->room + 1);
  if (!room) {
    fail_at(e, -1);
    return;
  }
  for (int64_t i = begin; i < end; i++)
    if (!e->fn(e->context, i, room)) fail_at(e, i + 1);
  wk__free(room);
}

wk_status wk__matrices_each(wk__matrices_fn *fn, void *context, const wk__matrices *b, int64_t room, int64_t steps,
                            int64_t *out_failed) {
  enum { WORTH_A_THREAD = 20000 }; /* operations */
  each e = {.fn = fn, .context = context, .room = room};
  if (b->by_columns)
    some(&e, 0, b->count);
  else
    wk__parallel_for(b->count, wk__max(1, WORTH_A_THREAD / wk__max(1, steps)), some, &e);
  *out_failed = atomic_load(&e.failed);
  return *out_failed < 0 ? WK_OUT_OF_MEMORY : WK_OK;
}
