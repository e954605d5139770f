/* Products of groups on the device, whose ends it reads itself: nothing is waited for, and a graph that is given again
 * finds what the ends are then.
 *
 * Small floats, and f32 that may be TF32, are multiplied on tensor cores (tensor_cores.c), of operands in rows of
 * 16-byte pieces, into which others are copied; all else by the kernel of on_device/gemm.c, whose bits are the CPU's.
 * In: two matrices, or one and a stack, and ends. Tests: tests/cuda/test_grouped_products.py. */
#include "cuda/cuda.h"
#include "cuda/internal.h"
#include "cuda/kernels.h"
#include "cuda/products.h"
#include "ops/internal.h"
#include "wick/operators.h"

static uint64_t at(const wk_tensor *t) { return (uint64_t)(uintptr_t)wk__address(t); }

enum { PIECE = 16 };

static int64_t elements_of_piece(const wk_tensor *t) { return PIECE / (int64_t)wk__itemsize(t); }

/* Whether rows along one dim are of whole pieces, which lie apart. */
static bool has_rows(const wk_tensor *t, int along, int across) {
  int64_t stride = wk__stride(t, across);
  return wk__stride(t, along) == 1 && stride >= wk__size(t, along) && stride % elements_of_piece(t) == 0;
}

/* Itself, or a copy, with zeros behind its rows. */
static wk_tensor *in_pieces(wk_tensor *t) {
  int last = t->ndim - 1;
  int64_t each = elements_of_piece(t), more = -wk__size(t, last) & (each - 1);
  if (at(t) % PIECE == 0 && (has_rows(t, last, last - 1) || has_rows(t, last - 1, last)) &&
      (t->ndim == 2 || wk__stride(t, 0) % each == 0))
    return t;
  if (more == 0) return wk_clone(t, "contiguous_format");
  return wk_constant_pad_nd(t, (wk_int[]){wk_int_of(0), wk_int_of(more)}, 2, wk__v_int(0));
}

static wk_status grouped_product(wk__call *c) {
  WK__ARGS(_grouped_product);
  wk_tensor *a = c->args[A_self].tensor, *b = c->args[A_mat2].tensor, *out = c->outputs[0];
  wk_tensor *ends = wk_contiguous(c->args[A_offs].tensor, NULL), *left = in_pieces(a), *right = in_pieces(b);
  int i = a->ndim - 2, j = b->ndim - 2;
  if (!ends || !left || !right) return wk_error_category();
  if (wk__numel(ends) == 0) return wk__fill_bytes(out, 0);
  wk__cuda_product p = {.a = at(left), .b = at(right), .c = at(out), .ends = at(ends), .alpha = 1};
  p.m = wk__size(a, i), p.k = wk__size(a, i + 1), p.n = wk__size(b, j + 1), p.batch = wk__numel(ends);
  p.a_row = wk__stride(left, i), p.a_column = wk__stride(left, i + 1), p.a_batch = i ? wk__stride(left, 0) : 0;
  p.b_row = wk__stride(right, j), p.b_column = wk__stride(right, j + 1), p.b_batch = j ? wk__stride(right, 0) : 0;
  p.c_row = p.n, p.c_batch = i || j ? 0 : p.m * p.n;
  p.groups = i ? WK__GROUPS_OF_COLUMNS : j ? WK__GROUPS_OF_ROWS : WK__GROUPS_OF_K;
  return wk__cuda_multiply(out, &p);
}
wk_status wk__cuda_grouped_product(wk__call *c) { return wk__cuda_in_scope(c, grouped_product); }
