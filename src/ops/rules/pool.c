/* Pooling over windows that move over the last dims: averages and largest elements.
 *
 * In: a tensor (..., sizes of the dims that the window moves over), the window's sizes, steps and padding. Out: one
 * element a window. A body's row is a window, whose elements are loaded with padding as masked loads; so pooling fuses
 * with what is done to its result. Gradients: a sum's are added to the elements of its window, a largest element's goes
 * to the place that was kept. Tests: tests/ops/, tests/python/test_pool.py. */
#include <math.h>

#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

enum { MOST_DIMS = 3 };

/* How a window moves: over the last `dims` of its input, outermost first. */
typedef struct window {
  int dims;
  int64_t size[MOST_DIMS], step[MOST_DIMS], padding[MOST_DIMS], dilation[MOST_DIMS];
  bool ceil; /* a last window may go over the end */
  bool counts_padding;
  int64_t divisor; /* 0: elements are counted */
} window;

/* The two families have their arguments in the same places, whatever the number of dims. */
enum { SELF, SIZE, STEP, PADDING };
_Static_assert((int)WK__ARG_avg_pool2d_padding == PADDING && (int)WK__ARG_max_pool3d_with_indices_padding == PADDING,
               "the arguments of a window");

static bool is_max(const wk_op *op) {
  return op == WK__OP(max_pool2d_with_indices) || op == WK__OP(max_pool3d_with_indices) || op == WK__OP(_max_pool2d) ||
         op == WK__OP(_max_pool3d);
}
static int dims_of(const wk_op *op) { return op->schema.parameters[SIZE].fixed_count; }

/* ==================================================== arguments ================================================== */

static const char *pool_name(const wk_op *op) {
  return !is_max(op) ? op->base_name : dims_of(op) == 2 ? "max_pool2d" : "max_pool3d";
}

static wk_status wrong_count(const wk_op *op, const char *argument) {
  int dims = dims_of(op);
  bool may_omit = strcmp(argument, "stride") == 0, dilation = strcmp(argument, "dilation") == 0;
  const char *be = dilation ? "be either" : dims == 2 || is_max(op) ? "either be" : "be";
  return wk_fail(WK_RUNTIME_ERROR, "%s: %s must %s %sa single int, or a tuple of %s ints", pool_name(op), argument, be,
                 may_omit ? "omitted, " : "", dims == 2 ? "two" : "three");
}

/* One number stands for all dims. */
static wk_status read_list(const wk_op *op, const wk_value *list, const char *argument, int dims, int64_t *out) {
  if ((int)list->count != 1 && (int)list->count != dims) return wrong_count(op, argument);
  for (int d = 0; d < dims; d++) out[d] = wk_int_guard_value(list->integers[list->count == 1 ? 0 : d]);
  return WK_OK;
}

static wk_status read_window(const wk_op *op, const wk_value *args, window *w) {
  bool max = is_max(op);
  *w = (window){.dims = dims_of(op), .counts_padding = true};
  WK_TRY(read_list(op, &args[SIZE], "kernel_size", w->dims, w->size));
  if (args[STEP].count)
    WK_TRY(read_list(op, &args[STEP], "stride", w->dims, w->step));
  else
    memcpy(w->step, w->size, sizeof w->step);
  WK_TRY(read_list(op, &args[PADDING], "padding", w->dims, w->padding));
  for (int d = 0; d < w->dims; d++) w->dilation[d] = 1;
  if (max) {
    w->ceil = args[WK__ARG(max_pool2d_with_indices, ceil_mode)].boolean;
    return read_list(op, &args[WK__ARG(max_pool2d_with_indices, dilation)], "dilation", w->dims, w->dilation);
  }
  const wk_value *divisor = &args[WK__ARG(avg_pool2d, divisor_override)];
  w->ceil = args[WK__ARG(avg_pool2d, ceil_mode)].boolean;
  w->counts_padding = args[WK__ARG(avg_pool2d, count_include_pad)].boolean;
  if (divisor->tag == WK_VALUE_NONE) return WK_OK;
  w->divisor = wk_int_guard_value(divisor->integer);
  return w->divisor ? WK_OK : wk_fail(WK_RUNTIME_ERROR, "divisor must be not zero");
}

static int64_t reach_of(const window *w, int d) { return w->dilation[d] * (w->size[d] - 1) + 1; }

static wk_status check_window(const window *w) {
  for (int d = 0; d < w->dims; d++) {
    if (w->step[d] == 0) return wk_fail(WK_RUNTIME_ERROR, "stride should not be zero");
    if (w->padding[d] < 0)
      return wk_fail(WK_RUNTIME_ERROR, "pad must be non-negative, but got pad: %lld", (long long)w->padding[d]);
    if (w->padding[d] > reach_of(w, d) / 2)
      return wk_fail(WK_RUNTIME_ERROR,
                     "pad should be at most half of effective kernel size, but got pad=%lld, kernel_size=%lld and "
                     "dilation=%lld",
                     (long long)w->padding[d], (long long)w->size[d], (long long)w->dilation[d]);
  }
  return WK_OK;
}

static char axis_of(const window *w, int d) { return "TDHW"[w->dims == 3 && d == 0 ? 0 : d + 4 - w->dims]; }

static wk_status check_positive(const window *w, const int64_t *list, const char *what, char letter) {
  bool positive = true;
  wk__string text = {0};
  for (int d = 0; d < w->dims; d++) {
    positive &= list[d] > 0;
    wk__string_printf(&text, " %c%c: %lld", letter, axis_of(w, d), (long long)list[d]);
  }
  wk_status status = WK_OK;
  if (!positive)
    status = wk_fail(WK_RUNTIME_ERROR, "%s should be greater than zero, but got%s", what, text.text ? text.text : "");
  wk__string_release(&text);
  return status;
}

/* ==================================================== shape rules ================================================= */

/* All but the batch must have elements. */
static int empty_dim(const wk_tensor *t, int dims) {
  for (int d = t->ndim == dims + 2; d < t->ndim; d++)
    if (wk_int_eq(t->sizes[d], wk_int_of(0))) return d;
  return -1;
}

static wk_status bad_input(const wk_op *op, const wk_tensor *t, int dims) {
  wk__string text = {0};
  wk__print_sizes(&text, t->sizes, t->ndim);
  const char *sizes = text.text ? text.text : "?";
  wk_status status;
  if (t->ndim != dims + 1 && t->ndim != dims + 2)
    status =
        wk_fail(WK_RUNTIME_ERROR, "non-empty %dD or %dD (batch mode) tensor expected for input", dims + 1, dims + 2);
  else if (dims == 2)
    status =
        wk_fail(WK_RUNTIME_ERROR,
                "Expected 3D or 4D (batch mode) tensor with optional 0 dim batch size for input, but got:%s", sizes);
  else
    status = wk_fail(WK_RUNTIME_ERROR,
                     "%s(): Expected input's non-batch dimensions to have positive length, but input has a shape of %s "
                     "and non-batch dimension 0 has length zero!", /* whichever it is */
                     is_max(op) ? "max_pool3d_with_indices_out_cpu_template" : "avg_pool3d", sizes);
  wk__string_release(&text);
  return status;
}

static void print_sizes(wk__string *s, wk_int channels, const wk_int *sizes, int dims) {
  wk__string_printf(s, "(%lld", wk__shown(channels));
  for (int d = 0; d < dims; d++) wk__string_printf(s, "x%lld", wk__shown(sizes[d]));
  wk__string_append(s, ")");
}

static wk_status too_small(const wk_tensor *t, const window *w, const wk_int *sizes) {
  wk__string in = {0}, out = {0};
  wk_int channels = t->sizes[t->ndim - w->dims - 1];
  print_sizes(&in, channels, t->sizes + t->ndim - w->dims, w->dims);
  print_sizes(&out, channels, sizes, w->dims);
  wk_status status =
      wk_fail(WK_RUNTIME_ERROR, "Given input size: %s. Calculated output size: %s. Output size is too small",
              in.text ? in.text : "?", out.text ? out.text : "?");
  wk__string_release(&in);
  wk__string_release(&out);
  return status;
}

/* Windows along dim d of an input of this size; the last one must begin in it or in the padding before it. */
static wk_int windows(const window *w, int d, wk_int size) {
  wk_int around = wk_int_add(size, wk_int_of(w->padding[d]));
  wk_int rest = wk_int_add(around, wk_int_of(w->padding[d] - reach_of(w, d) + (w->ceil ? w->step[d] - 1 : 0)));
  wk_int count = wk_int_add(wk_int_floordiv(rest, wk_int_of(w->step[d])), wk_int_of(1));
  if (!w->ceil) return count;
  wk_int last = wk_int_mul(wk_int_sub(count, wk_int_of(1)), wk_int_of(w->step[d]));
  return wk_int_ge(last, around) ? wk_int_sub(count, wk_int_of(1)) : count;
}

static wk_status smaller_than_window(const wk_tensor *t, const window *w) {
  const wk_int *sizes = t->sizes + t->ndim - 3;
  return wk_fail(WK_RUNTIME_ERROR,
                 "input image (T: %lld H: %lld W: %lld) smaller than kernel size (kT: %lld kH: %lld kW: %lld)",
                 wk__shown(sizes[0]), wk__shown(sizes[1]), wk__shown(sizes[2]), (long long)w->size[0],
                 (long long)w->size[1], (long long)w->size[2]);
}

static wk_status count_windows(const wk_op *op, const wk_tensor *t, const window *w, wk_int *out) {
  int lead = t->ndim - w->dims;
  bool small = false;
  if (op == WK__OP(avg_pool2d) && t->ndim < 3) return wk__wrap_dim(-3, t->ndim, &lead); /* PyTorch's words */
  if (t->ndim != w->dims + 1 && t->ndim != w->dims + 2) return bad_input(op, t, w->dims);
  WK_TRY(check_window(w));
  WK_TRY(check_positive(w, w->size, "kernel size", 'k'));
  WK_TRY(check_positive(w, w->step, "stride", 'd'));
  WK_TRY(check_positive(w, w->dilation, "dilation", 'd'));
  if (empty_dim(t, w->dims) >= 0) return bad_input(op, t, w->dims);
  for (int d = 0; d < w->dims; d++) {
    bool fits = wk_int_ge(t->sizes[lead + d], wk_int_of(w->size[d]));
    if (!fits && w->dims == 3 && !is_max(op)) return smaller_than_window(t, w);
    out[d] = windows(w, d, t->sizes[lead + d]);
    small |= wk_int_lt(out[d], wk_int_of(1));
  }
  return small ? too_small(t, w, out) : WK_OK;
}

static wk_status no_kernel(const wk_op *op, const wk_tensor *t) {
  bool frame = op == WK__OP(avg_pool3d);
  return wk_fail(WK_NOT_IMPLEMENTED, "\"%s%s\" not implemented for '%s'", pool_name(op), frame ? "_out_frame" : "",
                 wk__dtype_legacy((wk_dtype)t->dtype));
}

static wk_status describe_pool(wk__call *c) {
  const wk_tensor *t = c->args[SELF].tensor;
  wk_int sizes[WK_MAX_DIMS];
  window w;
  WK_TRY(read_window(c->op, c->args, &w));
  memcpy(sizes, t->sizes, t->ndim * sizeof *sizes);
  WK_TRY(count_windows(c->op, t, &w, sizes + wk__max(t->ndim - w.dims, 0)));
  wk__spec_contiguous(&c->specs[0], (wk_dtype)t->dtype, t->device, t->ndim, sizes);
  c->compute_dtype = t->dtype;
  return c->op == WK__OP(avg_pool3d) ? WK_OK : wk__spec_lay_out_as(&c->specs[0], t);
}

wk_status wk__meta_avg_pool(wk__call *c) {
  const wk_tensor *t = c->args[SELF].tensor;
  WK_TRY(describe_pool(c));
  bool wide = t->dtype == WK_FLOAT32 || t->dtype == WK_FLOAT64 || t->dtype == WK_INT64;
  bool small = wk_dtype_is_floating((wk_dtype)t->dtype) && c->op != WK__OP(avg_pool3d); /* as in PyTorch */
  return wide || small ? WK_OK : no_kernel(c->op, t);
}

wk_status wk__meta_max_pool(wk__call *c) {
  WK_TRY(describe_pool(c));
  if (c->op->schema.result_count == 2) {
    c->specs[1] = c->specs[0];
    c->specs[1].dtype = WK_INT64;
  }
  return c->specs[0].dtype == WK_BOOL ? no_kernel(c->op, c->args[SELF].tensor) : WK_OK;
}

/* ===================================================== bodies ==================================================== */

/* The loops of a pooling body: pointwise over the result, a window's elements reduced. */
typedef struct loops {
  window w;
  int rank, lead;
  wk_int out[WK_MAX_DIMS], in[WK_MAX_DIMS]; /* coordinates of the result and of the input */
  wk_int start[MOST_DIMS];                  /* of a window in the input: negative in the padding */
} loops;

static bool begin_loops(wk__lower *l, loops *s) {
  wk_int sizes[WK_MAX_DIMS + MOST_DIMS];
  wk_status status = read_window(l->call->op, l->call->args, &s->w);
  if (status != WK_OK) l->h->status = status;
  if (status != WK_OK) return false;
  s->rank = wk__result_rank(l, 0);
  s->lead = s->rank - s->w.dims;
  for (int d = 0; d < s->rank; d++) {
    sizes[d] = wk__size_of_result(l, 0, d);
    s->out[d] = s->in[d] = wk__loop_i(d);
  }
  for (int d = 0; d < s->w.dims; d++) {
    sizes[s->rank + d] = wk_int_of(s->w.size[d]);
    s->start[d] = wk_int_sub(wk_int_mul(wk_int_of(s->w.step[d]), s->out[s->lead + d]), wk_int_of(s->w.padding[d]));
    s->in[s->lead + d] = wk_int_add(s->start[d], wk_int_mul(wk_int_of(s->w.dilation[d]), wk__loop_r(d)));
  }
  wk__loop_over(l, s->rank, s->w.dims, sizes);
  return true;
}

/* Windows that go over the edge along dim d. */
static bool leaves(const window *w, int d) { return w->padding[d] || w->ceil; }

static wk__var load_element(wk__lower *l, const loops *s, wk__var other) {
  wk__access load = wk__access_arg(l, SELF, s->in);
  load.per_element = true; /* also of a window of one element */
  for (int d = 0; d < s->w.dims; d++)
    if (leaves(&s->w, d)) load.may_leave |= (uint16_t)(1u << (s->lead + d));
  return load.may_leave ? wk__k_masked_load(l->h, &load, other) : wk__k_load(l->h, &load);
}

static wk__var maximum(wk__lower *l, wk__var a, int64_t b) { return wk__k_max(l->h, a, wk__k_integer(l->h, b)); }

/* Elements of the window at hand that count: it ends at the padding behind the input, or at the input. */
static wk__var count_elements(wk__lower *l, const loops *s) {
  wk__var count = 0;
  for (int d = 0; d < s->w.dims; d++) {
    wk_int size = wk__size_of_arg(l, SELF, s->lead + d), end = wk_int_add(s->start[d], wk_int_of(s->w.size[d]));
    wk_int limit = s->w.counts_padding ? wk_int_add(size, wk_int_of(s->w.padding[d])) : size;
    wk__var start = wk__k_index(l->h, s->start[d]);
    wk__var stop = wk__k_min(l->h, wk__k_index(l->h, end), wk__k_index(l->h, limit));
    if (!s->w.counts_padding) start = maximum(l, start, 0);
    wk__var length = wk__k_sub(l->h, stop, start);
    count = count ? wk__k_mul(l->h, count, length) : length;
  }
  return count;
}

/* All windows have the same number of elements that count, or a divisor is given. */
static bool has_one_divisor(const window *w, int64_t *out) {
  bool whole = true;
  *out = 1;
  for (int d = 0; d < w->dims; d++) {
    whole &= !w->ceil && (w->counts_padding || w->padding[d] == 0);
    *out *= w->size[d];
  }
  if (w->divisor) *out = w->divisor;
  return whole || w->divisor;
}

void wk__lower_avg_pool(wk__lower *l) {
  loops s;
  int64_t divisor;
  if (!begin_loops(l, &s)) return;
  wk__var x = wk__k_cast(l->h, load_element(l, &s, wk__k_constant(l->h, 0, l->compute)), l->compute);
  wk__var sum = wk__k_reduce_sum(l->h, x), count;
  if (has_one_divisor(&s.w, &divisor))
    count = wk__k_constant(l->h, (double)divisor, l->compute);
  else
    count = wk__k_cast(l->h, count_elements(l, &s), l->compute);
  wk__access to = wk__access_result(l, 0, s.out);
  wk__k_store(l->h, &to, l->compute == WK_INT64 ? wk__k_trunc_div(l->h, sum, count) : wk__k_div(l->h, sum, count));
}

/* What no element is below, in memory's dtype. */
static wk__var lowest(wk__lower *l) {
  static const int64_t least[WK_DTYPE_COUNT] = {
      [WK_INT8] = INT8_MIN, [WK_INT16] = INT16_MIN, [WK_INT32] = INT32_MIN, [WK_INT64] = INT64_MIN};
  if (l->compute != WK_INT64) return wk__k_constant(l->h, -INFINITY, l->compute);
  return wk__k_integer(l->h, least[l->call->args[SELF].tensor->dtype]);
}

/* number / divisor for numbers in [0, limit): a product and a shift where that is exact, which it is while the error of
 * the rounded up reciprocal, below limit / 2^SHIFT, stays below 1 / divisor. */
static wk__var quotient(wk__lower *l, wk__var number, int64_t divisor, int64_t limit) {
  enum { SHIFT = 20 };
  if (divisor == 1) return number;
  if (limit > (1 << SHIFT) / divisor) return wk__k_floor_div(l->h, number, wk__k_integer(l->h, divisor));
  wk__var product = wk__k_mul(l->h, number, wk__k_integer(l->h, (1 << SHIFT) / divisor + 1));
  return wk__k_shift_right(l->h, product, wk__k_integer(l->h, SHIFT));
}

/* Of the window at hand along dim d, the number of the first element that lies in the input. */
static wk__var first_inside(wk__lower *l, const loops *s, int d) {
  wk__var before = wk__k_index(l->h, wk_int_sub(wk_int_of(s->w.dilation[d] - 1), s->start[d]));
  int64_t reach = s->w.padding[d] + s->w.dilation[d]; /* of `before`; where it is negative the element is the first */
  return quotient(l, maximum(l, before, 0), s->w.dilation[d], reach);
}

/* Where the largest element lies in the input's last dims as one, from its number in the window. Where all elements of
 * a window are the lowest there is, what lies outside is no larger: then it is the first one inside. */
static wk__var place_of_largest(wk__lower *l, const loops *s, wk__var number, wk__var largest, wk__var least) {
  wk__var place = 0, is_least = wk__k_eq(l->h, largest, least);
  int64_t inner = 1;
  for (int d = 1; d < s->w.dims; d++) inner *= s->w.size[d];
  for (int d = 0; d < s->w.dims; d++) {
    wk__var along = quotient(l, number, inner, inner * s->w.size[d]);
    number = wk__k_sub(l->h, number, wk__k_mul(l->h, along, wk__k_integer(l->h, inner)));
    if (leaves(&s->w, d)) along = wk__k_where(l->h, is_least, first_inside(l, s, d), along);
    wk__var at = s->w.dilation[d] == 1 ? along : wk__k_mul(l->h, along, wk__k_integer(l->h, s->w.dilation[d]));
    at = wk__k_add(l->h, wk__k_index(l->h, s->start[d]), at);
    wk__var size = wk__k_index(l->h, wk__size_of_arg(l, SELF, s->lead + d));
    place = place ? wk__k_add(l->h, wk__k_mul(l->h, place, size), at) : at;
    if (d + 1 < s->w.dims) inner /= s->w.size[d + 1];
  }
  return place;
}

void wk__lower_max_pool(wk__lower *l) {
  loops s;
  if (!begin_loops(l, &s)) return;
  wk__var least = lowest(l), x = load_element(l, &s, least), largest = wk__k_reduce_max(l->h, x);
  wk__access value = wk__access_result(l, 0, s.out);
  wk__k_store(l->h, &value, largest);
  if (l->call->op->schema.result_count < 2) return;
  wk__access index = wk__access_result(l, 1, s.out);
  wk__k_store(l->h, &index, place_of_largest(l, &s, wk__k_reduce_argmax(l->h, x), largest, least));
}

/* ==================================================== gradients ================================================== */

wk_status wk__meta_sum_windows_backward(wk__call *c) {
  const wk_tensor *g = c->args[WK__ARG(_sum_windows_backward, grad_output)].tensor;
  const wk_value *size = &c->args[WK__ARG(_sum_windows_backward, size)];
  wk_int sizes[WK_MAX_DIMS];
  memcpy(sizes, g->sizes, g->ndim * sizeof *sizes);
  for (uint32_t d = 0; d < size->count; d++) sizes[g->ndim - (int)size->count + (int)d] = size->integers[d];
  wk__spec_contiguous(&c->specs[0], (wk_dtype)g->dtype, g->device, g->ndim, sizes);
  c->compute_dtype = g->dtype;
  return wk__spec_lay_out_as(&c->specs[0], g);
}

/* Zeros; then every window's gradient is added to its elements, one window after the other. */
void wk__lower_sum_windows_backward(wk__lower *l) {
  const wk_value *size = &l->call->args[WK__ARG(_sum_windows_backward, kernel_size)];
  const wk_value *step = &l->call->args[WK__ARG(_sum_windows_backward, stride)];
  wk_int sizes[WK_MAX_DIMS + MOST_DIMS], from[WK_MAX_DIMS], to[WK_MAX_DIMS];
  int rank = wk__result_rank(l, 0), dims = (int)size->count, lead = rank - dims;
  for (int d = 0; d < rank; d++) {
    sizes[d] = wk__size_of_result(l, 0, d);
    from[d] = to[d] = wk__loop_i(d);
  }
  wk__loop_over(l, rank, 0, sizes);
  wk__access store = wk__access_result(l, 0, to);
  wk__k_store(l->h, &store, wk__k_constant(l->h, 0, l->compute));
  wk__next_nest(l);
  for (int d = 0; d < rank; d++) sizes[d] = wk__size_of_arg(l, WK__ARG(_sum_windows_backward, grad_output), d);
  for (int d = 0; d < dims; d++) {
    sizes[rank + d] = size->integers[d];
    to[lead + d] = wk_int_add(wk_int_mul(step->integers[d], from[lead + d]), wk__loop_i(rank + d));
  }
  wk__loop_over(l, rank + dims, 0, sizes);
  wk__access load = wk__access_arg(l, WK__ARG(_sum_windows_backward, grad_output), from);
  store = wk__access_result(l, 0, to);
  wk__k_store_add(l->h, &store, wk__k_load(l->h, &load));
}

/* `x`'s windows, summed without padding. */
static wk_tensor *sum_windows(wk_tensor *x, const wk_int *size, const wk_int *step, int dims) {
  wk_int none = wk_int_of(0);
  wk_value one = wk__v_int(1);
  return dims == 2 ? wk_avg_pool2d(x, size, dims, step, dims, &none, 1, false, true, one)
                   : wk_avg_pool3d(x, size, dims, step, dims, &none, 1, false, true, one);
}

wk_status wk__vjp_sum_windows_backward(wk__vjp *v) {
  const wk_value *size = &v->args[WK__ARG(_sum_windows_backward, kernel_size)];
  const wk_value *step = &v->args[WK__ARG(_sum_windows_backward, stride)];
  return wk__vjp_set(v, WK__ARG(_sum_windows_backward, grad_output),
                     sum_windows(G, size->integers, step->integers, (int)size->count));
}

static void as_ints(const int64_t *numbers, int dims, wk_int *out) {
  for (int d = 0; d < dims; d++) out[d] = wk_int_of(numbers[d]);
}

/* How many elements count in each window: the sum over a tensor of ones, (1, windows...). With the padding written out
 * there may be a window more, which begins in it. */
static wk_tensor *window_counts(const window *w, const wk_tensor *g, const wk_int *sizes) {
  wk_int whole[1 + MOST_DIMS] = {wk_int_of(1)}, size[MOST_DIMS], step[MOST_DIMS], padding[MOST_DIMS];
  wk_value device = {.tag = WK_VALUE_DEVICE, .device = g->device}, one = wk__v_int(1);
  as_ints(w->size, w->dims, size);
  as_ints(w->step, w->dims, step);
  for (int d = 0; d < w->dims; d++) {
    int64_t around = w->counts_padding ? w->padding[d] : 0;
    whole[1 + d] = wk_int_add(sizes[d], wk_int_of(2 * around));
    padding[d] = wk_int_of(w->padding[d] - around);
  }
  wk_tensor *ones = wk_ones(whole, 1 + w->dims, (wk_dtype)g->dtype, device);
  wk_tensor *counts = w->dims == 2
                          ? wk_avg_pool2d(ones, size, w->dims, step, w->dims, padding, w->dims, w->ceil, true, one)
                          : wk_avg_pool3d(ones, size, w->dims, step, w->dims, padding, w->dims, w->ceil, true, one);
  for (int d = 0; counts && d < w->dims; d++)
    counts = wk_narrow(counts, 1 + d, wk_int_of(0), g->sizes[g->ndim - w->dims + d]);
  return counts;
}

/* The windows' gradients added up over the padded input, of which the padding is taken away again. */
static wk_tensor *spread_windows(wk_tensor *g, const window *w, const wk_int *sizes) {
  wk_int whole[MOST_DIMS], size[MOST_DIMS], step[MOST_DIMS], pad[2 * MOST_DIMS];
  bool padded = false;
  as_ints(w->size, w->dims, size);
  as_ints(w->step, w->dims, step);
  for (int d = 0; d < w->dims; d++) {
    wk_int front = wk_int_of(w->padding[d]), count = g->sizes[g->ndim - w->dims + d];
    wk_int covered = wk_int_add(wk_int_mul(wk_int_sub(count, wk_int_of(1)), step[d]), size[d]);
    whole[d] = wk_int_max(wk_int_add(front, sizes[d]), covered);
    wk_int *around = pad + 2 * (w->dims - 1 - d);
    around[0] = wk_int_neg(front);
    around[1] = wk_int_sub(wk_int_add(sizes[d], front), whole[d]);
    padded |= !wk_int_same(whole[d], sizes[d]);
  }
  wk_tensor *y = wk__sum_windows_backward(g, whole, w->dims, size, w->dims, step, w->dims);
  return y && padded ? wk_constant_pad_nd(y, pad, 2 * w->dims, wk__v_int(0)) : y;
}

static wk_tensor *avg_gradient(wk_tensor *g, const wk_tensor *self, const window *w) {
  const wk_int *sizes = self->sizes + self->ndim - w->dims;
  int64_t divisor;
  if (!g) return NULL;
  if (has_one_divisor(w, &divisor))
    g = wk_div_Scalar(g, wk__v_int(divisor));
  else
    g = wk_div(g, window_counts(w, g, sizes));
  return g ? spread_windows(g, w, sizes) : NULL;
}

wk_status wk__vjp_avg_pool(wk__vjp *v) {
  window w;
  WK_TRY(read_window(v->op, v->args, &w));
  return wk__vjp_set(v, SELF, avg_gradient(G, v->args[SELF].tensor, &w));
}

/* The places are of the last dims as one. Images that have their channels last get a gradient that has, too. */
static wk_tensor *max_gradient(wk_tensor *g, const wk_tensor *self, wk_tensor *indices, int dims) {
  wk_int sizes[WK_MAX_DIMS], places = wk_int_of(1);
  int lead = self->ndim - dims;
  bool last = lead == 2 && wk__has_channels_last(self);
  wk_tensor *flat = wk_flatten_using_ints(g, -dims, -1), *at = wk_flatten_using_ints(indices, -dims, -1);
  if (last && flat && at) flat = wk_transpose_int(flat, 1, 2), at = wk_transpose_int(at, 1, 2);
  if (!flat || !at) return NULL;
  for (int d = lead; d < self->ndim; d++) places = wk_int_mul(places, self->sizes[d]);
  memcpy(sizes, self->sizes, lead * sizeof *sizes);
  sizes[lead] = places;
  if (last) sizes[1] = places, sizes[2] = self->sizes[1];
  wk_tensor *zeros = wk_new_zeros(flat, sizes, lead + 1, WK_DTYPE_NONE, NONE);
  wk_tensor *y = zeros ? wk_scatter_add(zeros, last ? 1 : -1, at, flat) : NULL;
  if (last && y) y = wk_transpose_int(y, 1, 2);
  return y ? wk_reshape(y, self->sizes, self->ndim) : NULL;
}

wk_status wk__vjp_max_pool(wk__vjp *v) {
  return wk__vjp_set(v, SELF, max_gradient(G, v->args[SELF].tensor, v->results[1], dims_of(v->op)));
}

/* =================================================== composites ================================================== */

static wk_status give(wk__call *c, wk_scope *scope, wk_tensor *y) {
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(scope);
  return y ? WK_OK : wk_error_category();
}

/* The forward operator's arguments are those of the derivative from the second on. */
wk_status wk__compose_avg_pool_backward(wk__call *c) {
  const wk_op *forward = c->op == WK__OP(avg_pool2d_backward) ? WK__OP(avg_pool2d) : WK__OP(avg_pool3d);
  window w;
  wk_scope scope;
  WK_TRY(read_window(forward, c->args + 1, &w));
  wk_scope_begin(&scope);
  return give(c, &scope, avg_gradient(c->args[0].tensor, c->args[WK__ARG(avg_pool2d_backward, self)].tensor, &w));
}

wk_status wk__compose_max_pool_backward(wk__call *c) {
  int indices = WK__ARG(max_pool2d_with_indices_backward, indices);
  int dims = c->op == WK__OP(max_pool2d_with_indices_backward) ? 2 : 3;
  wk_scope scope;
  wk_scope_begin(&scope);
  return give(c, &scope,
              max_gradient(c->args[0].tensor, c->args[WK__ARG(max_pool2d_with_indices_backward, self)].tensor,
                           c->args[indices].tensor, dims));
}

/* The operator for the largest elements of a tensor's windows: where a derivative may be asked for it keeps places. */
static const wk_op *largest_of(const wk_tensor *t, int dims) {
  bool taped = (t->keys | (t->base ? t->base->keys : 0)) & (WK__KEY_AUTOGRAD | WK__KEY_LEVEL);
  bool kept = taped && wk__thread.mode.grad_enabled && !(wk__thread.mode.keys_off & WK__KEY_AUTOGRAD);
  if (dims == 3) return kept ? WK__OP(max_pool3d_with_indices) : WK__OP(_max_pool3d);
  return kept ? WK__OP(max_pool2d_with_indices) : WK__OP(_max_pool2d);
}

wk_status wk__compose_max_pool(wk__call *c) {
  wk_value results[2] = {{0}};
  WK_TRY(wk_call(largest_of(c->args[SELF].tensor, dims_of(c->op)), c->args, NULL, results));
  c->results[0] = results[0];
  wk_value_release(&results[1]);
  return WK_OK;
}

/* ---- one dim: a plane of height one ---- */

static wk_status check_line(const wk_tensor *t, const char *name) {
  if (t->ndim == 2 || t->ndim == 3) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR,
                 "Expected 2 to 3 dimensions, but got %d-dimensional tensor for argument #1 'self' (while checking "
                 "arguments for %s)",
                 t->ndim, name);
}

/* (number) -> (around, number); an empty list stays empty. */
static wk_status widen(const wk_value *list, const char *name, const char *argument, int64_t around, wk_int *out,
                       wk_value *wide) {
  if (list->count > 1)
    return wk_fail(WK_RUNTIME_ERROR, "%s() argument '%s' should contain one int (got %u)", name, argument, list->count);
  out[0] = wk_int_of(around);
  if (list->count) out[1] = list->integers[0];
  *wide = (wk_value){.tag = WK_VALUE_INTS, .count = list->count ? 2 : 0, .integers = out};
  return WK_OK;
}

enum { LINE_ARGS = 8 };

/* Calls the operator of planes; the arguments behind the window are the same. */
static wk_status pool_line(wk__call *c, const wk_op *op, const char *name, int lists, wk_value *results) {
  static const char *const arguments[] = {"self", "kernel_size", "stride", "padding", "dilation"};
  wk_int numbers[LINE_ARGS][2];
  wk_value args[LINE_ARGS] = {{0}};
  WK_TRY(check_line(c->args[SELF].tensor, name));
  for (int i = 1; i < c->op->schema.parameter_count; i++) args[i] = c->args[i];
  for (int i = 1; i <= lists; i++)
    WK_TRY(widen(&c->args[i], name, arguments[i], i == PADDING ? 0 : 1, numbers[i], &args[i]));
  if (args[STEP].count == 0) args[STEP] = args[SIZE];
  args[SELF] = wk__v_tensor(wk_unsqueeze(c->args[SELF].tensor, -2));
  return args[SELF].tensor ? wk_call(op, args, NULL, results) : wk_error_category();
}

/* Planes to lines again. */
static wk_status give_lines(wk__call *c, wk_value *results, int count) {
  wk_status status = WK_OK;
  for (int r = 0; r < count; r++) {
    wk_scope scope;
    wk_scope_begin(&scope);
    wk_tensor *line = status == WK_OK ? wk_squeeze_dim(results[r].tensor, -2) : NULL;
    c->results[r] = wk__v_tensor(wk_scope_keep(line));
    wk_scope_end(&scope);
    if (!line && status == WK_OK) status = wk_error_category();
    wk_value_release(&results[r]);
  }
  return status;
}

static wk_status compose_line(wk__call *c, const wk_op *op, const char *name, int lists, int count) {
  wk_value results[2] = {{0}};
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = pool_line(c, op, name, lists, results);
  wk_scope_end(&scope);
  if (status == WK_OK) status = give_lines(c, results, count);
  if (count == 1) wk_value_release(&results[1]); /* places that are not given out */
  return status;
}

wk_status wk__compose_avg_pool1d(wk__call *c) {
  return compose_line(c, WK__OP(avg_pool2d), "avg_pool1d", WK__ARG(avg_pool1d, padding), 1);
}

wk_status wk__compose_max_pool1d_with_indices(wk__call *c) {
  return compose_line(c, WK__OP(max_pool2d_with_indices), "max_pool1d", WK__ARG(max_pool1d, dilation), 2);
}

/* PyTorch checks lines whose places are not wanted in words of their own. */
static wk_status check_line_list(const wk_value *list, const char *argument, bool may_be_empty) {
  if (list->count == 1 || (may_be_empty && list->count == 0)) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR,
                 "max_pool1d() %s must be an int, list of ints or tuple of ints of size 1 but got size %u", argument,
                 list->count);
}

static wk_status check_above(const wk_value *list, const char *argument) {
  int64_t number = list->count ? wk_int_guard_value(list->integers[0]) : 1;
  if (number > 0) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "max_pool1d() %s must be greater than zero, but got %lld", argument,
                 (long long)number);
}

static wk_status check_max_line(const wk__call *c) {
  const wk_tensor *t = c->args[SELF].tensor;
  const wk_value *dilation = &c->args[WK__ARG(max_pool1d, dilation)];
  if ((t->ndim != 2 && t->ndim != 3) || empty_dim(t, 1) >= 0) {
    wk__string text = {0};
    wk__print_sizes(&text, t->sizes, t->ndim);
    wk_status status = wk_fail(WK_RUNTIME_ERROR,
                               "max_pool1d: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for "
                               "input, but got:%s",
                               text.text ? text.text : "?");
    wk__string_release(&text);
    return status;
  }
  WK_TRY(check_line_list(&c->args[SIZE], "kernel_size", false));
  WK_TRY(check_line_list(&c->args[STEP], "stride", true));
  WK_TRY(check_line_list(&c->args[PADDING], "padding", false));
  WK_TRY(check_line_list(dilation, "dilation", false));
  WK_TRY(check_above(&c->args[SIZE], "kernel_size"));
  WK_TRY(check_above(&c->args[STEP], "stride"));
  int64_t padding = wk_int_guard_value(c->args[PADDING].integers[0]);
  int64_t size = wk_int_guard_value(c->args[SIZE].integers[0]);
  if (padding < 0)
    return wk_fail(WK_RUNTIME_ERROR, "max_pool1d() padding must be non-negative, but got %lld", (long long)padding);
  if (padding > size / 2)
    return wk_fail(WK_RUNTIME_ERROR,
                   "max_pool1d() padding should be at most half of kernel size, but got padding=%lld and "
                   "kernel_size=%lld",
                   (long long)padding, (long long)size);
  return check_above(dilation, "dilation");
}

static wk_status check_line_windows(const wk__call *c) {
  const wk_tensor *t = c->args[SELF].tensor;
  const wk_value *step = c->args[STEP].count ? &c->args[STEP] : &c->args[SIZE];
  window w = {.dims = 1,
              .size = {wk_int_guard_value(c->args[SIZE].integers[0])},
              .step = {wk_int_guard_value(step->integers[0])},
              .padding = {wk_int_guard_value(c->args[PADDING].integers[0])},
              .dilation = {wk_int_guard_value(c->args[WK__ARG(max_pool1d, dilation)].integers[0])},
              .ceil = c->args[WK__ARG(max_pool1d, ceil_mode)].boolean};
  wk_int count = windows(&w, 0, t->sizes[t->ndim - 1]);
  if (!wk_int_gt(count, wk_int_of(0)))
    return wk_fail(WK_RUNTIME_ERROR, "max_pool1d() Invalid computed output size: %lld", wk__shown(count));
  if (!wk_dtype_is_floating((wk_dtype)t->dtype))
    return wk_fail(WK_NOT_IMPLEMENTED, "\"max_pool1d_impl\" not implemented for '%s'",
                   wk__dtype_legacy((wk_dtype)t->dtype));
  return WK_OK;
}

wk_status wk__compose_max_pool1d(wk__call *c) {
  WK_TRY(check_max_line(c));
  WK_TRY(check_line_windows(c));
  return compose_line(c, largest_of(c->args[SELF].tensor, 2), "max_pool1d", WK__ARG(max_pool1d, dilation), 1);
}
