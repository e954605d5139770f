/* Pooling to a given number of windows, as even as they can be.
 *
 * In: a tensor and the sizes of its last dims in the result. Out: averages, or largest elements and their places. Where
 * the sizes divide, these are moving windows (pool.c). Else dim after dim: each window's elements are selected into a
 * dim of their own, as long as the longest window, and reduced there. Tests: tests/ops/, tests/python/test_pool.py. */
#include <math.h>

#include "ops/internal.h"
#include "ops/rules.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

enum { SELF, OUTPUT_SIZE, MOST_DIMS = 3 };

static wk_int zero(void) { return wk_int_of(0); }
static wk_int one(void) { return wk_int_of(1); }

static bool is_max(const wk_op *op) {
  return op == WK__OP(adaptive_max_pool1d) || op == WK__OP(adaptive_max_pool2d) || op == WK__OP(adaptive_max_pool3d);
}
static int dims_of(const wk_op *op) { return op->schema.parameters[OUTPUT_SIZE].fixed_count; }

/* ===================================================== checks ==================================================== */

static wk_status fail_with_sizes(const char *format, const char *name, const wk_tensor *t, int dims, int empty) {
  wk__string text = {0};
  wk__print_sizes(&text, t->sizes, t->ndim);
  const char *sizes = text.text ? text.text : "?";
  wk_status status = empty < 0 ? wk_fail(WK_RUNTIME_ERROR, format, name, dims + 1, dims + 2, sizes)
                               : wk_fail(WK_RUNTIME_ERROR, format, name, sizes, empty);
  wk__string_release(&text);
  return status;
}

/* PyTorch's planes of averages may have no channels. */
static int first_that_needs_elements(const wk_op *op, const wk_tensor *t, int dims) {
  return !is_max(op) && dims == 2 ? t->ndim - dims : t->ndim - dims - 1;
}

static wk_status check_input(const wk_op *op, const wk_tensor *t, const wk_value *sizes, const char *name) {
  int dims = dims_of(op);
  if (t->ndim != dims + 1 && t->ndim != dims + 2)
    return fail_with_sizes(
        is_max(op) ? "%s(): Expected %dD or %dD tensor, but got: %s" : "%s(): Expected %dD or %dD tensor, but got %s",
        name, t, dims, -1);
  if ((int)sizes->count != dims && sizes->count != 1)
    return is_max(op) ? wk_fail(WK_RUNTIME_ERROR, "%s(): internal error: output_size.size() must be %d", name, dims)
                      : wk_fail(WK_RUNTIME_ERROR, "%s: output_size must be %d", name, dims);
  for (int d = first_that_needs_elements(op, t, dims); d < t->ndim; d++)
    if (wk_int_eq(t->sizes[d], zero()))
      return fail_with_sizes(
          "%s(): Expected input to have non-zero size for non-batch dimensions, but input has sizes %s with "
          "dimension %d being empty",
          name, t, dims, d);
  return WK_OK;
}

static wk_status negative_size(const wk_op *op, const wk_tensor *t, const wk_int *sizes, int dims) {
  wk__string text = {0};
  if (is_max(op)) {
    wk_int whole[WK_MAX_DIMS];
    int lead = t->ndim - dims, bad = 0;
    memcpy(whole, t->sizes, t->ndim * sizeof *whole);
    memcpy(whole + lead, sizes, (size_t)dims * sizeof *whole);
    while (wk_int_ge(sizes[bad], zero())) bad++;
    wk__print_sizes(&text, whole, t->ndim);
    (void)!wk_fail(WK_RUNTIME_ERROR, "Trying to create tensor with negative dimension %lld: %s", wk__shown(sizes[bad]),
                   text.text ? text.text : "?");
  } else {
    for (int d = 0; d < dims; d++)
      wk__string_printf(&text, "%s%lld", d == 0 ? "" : d == 1 ? ", " : ",", wk__shown(sizes[d]));
    (void)!wk_fail(WK_RUNTIME_ERROR,
                   "adaptive_avg_pool%dd: elements of output_size must be greater than or equal to 0 but received {%s}",
                   dims, text.text ? text.text : "?");
  }
  wk__string_release(&text);
  return WK_RUNTIME_ERROR;
}

static wk_status check_dtype(const wk_op *op, const wk_tensor *t, int dims) {
  if (wk_dtype_is_floating((wk_dtype)t->dtype)) return WK_OK;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"adaptive_%s_pool%dd%s\" not implemented for '%s'", is_max(op) ? "max" : "avg",
                 dims, dims == 3 ? "_cpu" : "", wk__dtype_legacy((wk_dtype)t->dtype));
}

/* The sizes, one for each dim. */
static wk_status read_sizes(const wk_op *op, const wk_tensor *t, const wk_value *list, const char *name, wk_int *out) {
  int dims = dims_of(op);
  WK_TRY(check_input(op, t, list, name));
  for (int d = 0; d < dims; d++) out[d] = list->integers[list->count == 1 ? 0 : d];
  for (int d = 0; d < dims; d++)
    if (wk_int_lt(out[d], zero())) return negative_size(op, t, out, dims);
  return check_dtype(op, t, dims);
}

/* ============================================= windows of one size =============================================== */

static bool all_are(const wk_int *sizes, int dims, int64_t number) {
  for (int d = 0; d < dims; d++)
    if (!wk_int_eq(sizes[d], wk_int_of(number))) return false;
  return true;
}

static bool has_no_windows(const wk_int *sizes, int dims) {
  for (int d = 0; d < dims; d++)
    if (wk_int_eq(sizes[d], zero())) return true;
  return false;
}

/* The sizes of equal windows; false where they are not equal, or symbols: a window that moves has sizes that are known.
 */
static bool are_even(const wk_tensor *t, const wk_int *sizes, int dims, wk_int *out) {
  const wk_int *whole = t->sizes + t->ndim - dims;
  for (int d = 0; d < dims; d++) {
    if (!wk_int_is_known(whole[d]) || !wk_int_eq(wk_int_mod(whole[d], sizes[d]), zero())) return false;
    out[d] = wk_int_floordiv(whole[d], sizes[d]);
  }
  return true;
}

static wk_tensor *nothing(wk_tensor *t, const wk_int *sizes, int dims, wk_dtype dtype) {
  wk_int whole[WK_MAX_DIMS];
  memcpy(whole, t->sizes, t->ndim * sizeof *whole);
  memcpy(whole + t->ndim - dims, sizes, (size_t)dims * sizeof *whole);
  return wk_new_empty(t, whole, t->ndim, dtype, NONE);
}

/* ================================================ along one dim ================================================== */

/* Each window's elements in a dim of their own behind `dim`: (..., count, longest, ...). */
typedef struct pieces {
  int dim, ndim; /* of the tensor that they are made of */
  wk_int count, longest;
  wk_tensor *start;     /* (count, 1) */
  wk_tensor *length;    /* (count, 1) */
  wk_tensor *places;    /* (count * longest): which elements; behind a window's end the input's last */
  wk_tensor *is_inside; /* (count, longest), with dims of one behind it */
} pieces;

/* floor((i size + more) / count), i from `first` on: (count, 1) */
static wk_tensor *border(const wk_tensor *t, wk_int size, wk_int count, int64_t first, wk_int more) {
  wk_value device = {.tag = WK_VALUE_DEVICE, .device = t->device}, unit = wk__v_int(1);
  wk_tensor *i = wk_unsqueeze(wk_arange(wk__v_size(count), WK_INT64, device), -1);
  i = wk_add_Scalar(wk_mul_Scalar(wk_add_Scalar(i, wk__v_int(first), unit), wk__v_size(size)), wk__v_size(more), unit);
  return wk_div_Scalar_mode(i, wk__v_size(count), "floor");
}

/* (count, x) beside the windows' elements: dims of one behind it. */
static wk_tensor *beside(wk_tensor *x, const pieces *p) {
  for (int d = p->dim + 1; x && d < p->ndim; d++) x = wk_unsqueeze(x, -1);
  return x;
}

static bool cut(const wk_tensor *t, int dim, wk_int count, pieces *p) {
  wk_int size = t->sizes[dim];
  wk_value device = {.tag = WK_VALUE_DEVICE, .device = t->device}, unit = wk__v_int(1);
  *p = (pieces){.dim = dim, .ndim = t->ndim, .count = count};
  p->longest = wk_int_add(wk_int_floordiv(wk_int_sub(wk_int_add(size, count), one()), count), one());
  p->start = border(t, size, count, 0, zero());
  wk_tensor *end = border(t, size, count, 1, wk_int_sub(count, one()));
  wk_tensor *at = wk_add(p->start, wk_arange(wk__v_size(p->longest), WK_INT64, device), unit);
  p->length = wk_sub(end, p->start, unit);
  p->is_inside = beside(wk_lt(at, end), p);
  p->places = wk_flatten_using_ints(wk_clamp_max(at, wk__v_size(wk_int_sub(size, one()))), 0, -1);
  return p->length && p->is_inside && p->places;
}

static wk_tensor *elements_of(wk_tensor *t, const pieces *p) {
  return wk_unflatten_int(wk_index_select(t, p->dim, p->places), p->dim, (wk_int[]){p->count, p->longest}, 2);
}

static wk_tensor *average_along(wk_tensor *t, int dim, wk_int count) {
  pieces p;
  wk_int reduced = wk_int_of(dim + 1);
  if (!t || !cut(t, dim, count, &p)) return NULL;
  wk_tensor *sum = wk_sum_dim_IntList(wk_where_ScalarOther(p.is_inside, elements_of(t, &p), wk__v_double(0)), &reduced,
                                      1, false, WK_DTYPE_NONE);
  return wk_div(sum, beside(wk_squeeze_dim(p.length, -1), &p));
}

/* *values become the largest along the dim; *places, of its elements in the dims behind it as one, go with them. */
static bool largest_along(wk_tensor **values, wk_tensor **places, int dim, wk_int count, wk_int inner) {
  pieces p;
  wk_tensor *best[2] = {NULL, NULL};
  if (!cut(*values, dim, count, &p)) return false;
  wk_tensor *inside = wk_where_ScalarOther(p.is_inside, elements_of(*values, &p), wk__v_double(-INFINITY));
  if (!inside || wk_max_dim(inside, dim + 1, false, best) != WK_OK) return false;
  wk_tensor *at = wk_add(best[1], beside(wk_squeeze_dim(p.start, -1), &p), wk__v_int(1));
  if (*places) {
    wk_tensor *chosen = wk_gather(elements_of(*places, &p), dim + 1, wk_unsqueeze(best[1], dim + 1), false);
    at = wk_add(wk_mul_Scalar(at, wk__v_size(inner)), wk_squeeze_dim(chosen, dim + 1), wk__v_int(1));
  }
  *values = best[0];
  *places = at;
  return at != NULL;
}

/* =================================================== averages ==================================================== */

/* Planes whose channels lie innermost stay so. */
static wk_tensor *laid_out_as(wk_tensor *y, const wk_tensor *t, int dims) {
  bool last = dims == 2 && t->ndim == 4 && !wk__is_contiguous(t) && wk__is_contiguous_in(t, "channels_last");
  return last ? wk_contiguous(y, "channels_last") : y;
}

static wk_tensor *average_uneven(wk_tensor *t, const wk_int *sizes, int dims) {
  wk_dtype own = (wk_dtype)t->dtype, compute = (wk_dtype)wk__dtypes[own].compute;
  wk_tensor *y = own == compute ? t : wk__to_copy(t, compute, NONE);
  for (int d = 0; y && d < dims; d++) y = average_along(y, t->ndim - dims + d, sizes[d]);
  if (y && own != compute) y = wk__to_copy(y, own, NONE);
  return laid_out_as(y, t, dims);
}

static wk_tensor *averages(wk_tensor *t, const wk_int *sizes, int dims) {
  static const int64_t last[] = {-3, -2, -1};
  wk_int size[MOST_DIMS], axes[MOST_DIMS], none = zero();
  for (int d = 0; d < dims; d++) axes[d] = wk_int_of(last[MOST_DIMS - dims + d]);
  if (has_no_windows(sizes, dims)) return nothing(t, sizes, dims, WK_DTYPE_NONE);
  if (all_are(sizes, dims, 1)) return wk_mean_dim(t, axes, dims, true, WK_DTYPE_NONE);
  bool small = wk__dtypes[t->dtype].compute != t->dtype; /* which avg_pool3d does not take */
  if ((dims == 3 && small) || !are_even(t, sizes, dims, size)) return average_uneven(t, sizes, dims);
  return dims == 2 ? wk_avg_pool2d(t, size, dims, size, dims, &none, 1, false, true, NONE)
                   : wk_avg_pool3d(t, size, dims, size, dims, &none, 1, false, true, NONE);
}

static wk_status give(wk__call *c, wk_scope *scope, wk_tensor *const *results, int count) {
  bool made = true;
  for (int r = 0; r < count; r++) made &= results[r] != NULL;
  for (int r = 0; r < count && made; r++) c->results[r] = wk__v_tensor(wk_scope_keep(results[r]));
  wk_scope_end(scope);
  return made ? WK_OK : wk_error_category();
}

wk_status wk__compose_adaptive_avg_pool(wk__call *c) {
  int dims = dims_of(c->op);
  wk_tensor *t = c->args[SELF].tensor, *y;
  wk_int sizes[MOST_DIMS];
  wk_scope scope;
  WK_TRY(read_sizes(c->op, t, &c->args[OUTPUT_SIZE], dims == 2 ? "adaptive_avg_pool2d" : "adaptive_avg_pool3d", sizes));
  wk_scope_begin(&scope);
  y = averages(t, sizes, dims);
  return give(c, &scope, &y, 1);
}

/* ================================================ largest elements =============================================== */

static bool largest_uneven(wk_tensor *t, const wk_int *sizes, int dims, wk_tensor **out) {
  wk_int inner = one();
  out[0] = t;
  out[1] = NULL;
  for (int d = dims - 1; d >= 0; d--) {
    if (!largest_along(&out[0], &out[1], t->ndim - dims + d, sizes[d], inner)) return false;
    inner = wk_int_mul(inner, t->sizes[t->ndim - dims + d]);
  }
  for (int r = 0; r < 2; r++) out[r] = laid_out_as(out[r], t, dims);
  return true;
}

static bool largest_even(wk_tensor *t, const wk_int *size, int dims, wk_tensor **out) {
  wk_int none = zero(), unit = one();
  wk_status status = dims == 2 ? wk_max_pool2d_with_indices(t, size, 2, size, 2, &none, 1, &unit, 1, false, out)
                               : wk_max_pool3d_with_indices(t, size, 3, size, 3, &none, 1, &unit, 1, false, out);
  return status == WK_OK;
}

/* Of all elements. */
static bool largest_of_all(wk_tensor *t, int dims, wk_tensor **out) {
  wk_tensor *flat = wk_flatten_using_ints(t, -dims, -1);
  if (!flat || wk_max_dim(flat, -1, true, out) != WK_OK) return false;
  for (int r = 0; r < 2; r++)
    for (int d = 1; d < dims && out[r]; d++) out[r] = wk_unsqueeze(out[r], -1);
  return true;
}

static bool largest(wk_tensor *t, const wk_int *sizes, int dims, wk_tensor **out) {
  wk_int size[MOST_DIMS];
  if (has_no_windows(sizes, dims)) {
    out[0] = nothing(t, sizes, dims, WK_DTYPE_NONE);
    out[1] = nothing(t, sizes, dims, WK_INT64);
    return true;
  }
  if (all_are(sizes, dims, 1)) return largest_of_all(t, dims, out);
  return are_even(t, sizes, dims, size) ? largest_even(t, size, dims, out) : largest_uneven(t, sizes, dims, out);
}

wk_status wk__compose_adaptive_max_pool(wk__call *c) {
  int dims = dims_of(c->op);
  wk_tensor *t = c->args[SELF].tensor, *results[2] = {NULL, NULL};
  wk_int sizes[MOST_DIMS];
  wk_scope scope;
  WK_TRY(read_sizes(c->op, t, &c->args[OUTPUT_SIZE], c->op->base_name, sizes));
  wk_scope_begin(&scope);
  if (dims == 3) t = wk_contiguous(t, "contiguous_format"); /* PyTorch's kernel of volumes knows no other */
  if (!t || !largest(t, sizes, dims, results)) results[0] = NULL;
  return give(c, &scope, results, 2);
}

/* ---- one dim: a plane of height one ---- */

static wk_status check_line(const wk_op *op, const wk_tensor *t, const wk_value *size) {
  if (t->ndim != 2 && t->ndim != 3)
    return wk_fail(WK_RUNTIME_ERROR,
                   "Expected 2 to 3 dimensions, but got %d-dimensional tensor for argument #1 'self' (while checking "
                   "arguments for %s)",
                   t->ndim, op->base_name);
  if (size->count == 1) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "%s() argument 'output_size' should contain one int (got %u)", op->base_name,
                 size->count);
}

static wk_status pool_line(wk__call *c, const wk_op *planes, int count) {
  wk_value results[2] = {{0}};
  wk_tensor *lines[2] = {NULL, NULL};
  wk_int sizes[] = {one(), c->args[OUTPUT_SIZE].integers[0]};
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_value plane = wk__v_tensor(wk_unsqueeze(c->args[SELF].tensor, -2));
  wk_value args[] = {plane, {.tag = WK_VALUE_INTS, .count = 2, .integers = sizes}};
  bool made = plane.tensor && wk_call(planes, args, NULL, results) == WK_OK;
  for (int r = 0; r < count && made; r++) lines[r] = wk_squeeze_dim(results[r].tensor, -2);
  for (int r = 0; r < count; r++) wk_value_release(&results[r]);
  return give(c, &scope, lines, count);
}

wk_status wk__compose_adaptive_avg_pool1d(wk__call *c) {
  WK_TRY(check_line(c->op, c->args[SELF].tensor, &c->args[OUTPUT_SIZE]));
  return pool_line(c, WK__OP(adaptive_avg_pool2d), 1);
}

wk_status wk__compose_adaptive_max_pool1d(wk__call *c) {
  const wk_tensor *t = c->args[SELF].tensor;
  WK_TRY(check_line(c->op, t, &c->args[OUTPUT_SIZE]));
  for (int d = t->ndim - 2; d < t->ndim; d++)
    if (wk_int_eq(t->sizes[d], zero())) return check_input(c->op, t, &c->args[OUTPUT_SIZE], c->op->base_name);
  return pool_line(c, WK__OP(adaptive_max_pool2d), 2);
}
