/* The derivative of a recurrent layer made of operators that have derivatives: what a backward pass takes that is
 * itself recorded. In: the vjp of _rnn_layer, whose results `output` and `kept` lead on to the layer. Out: its
 * gradients, step after step against the direction of the layer; a gradient of what was kept is taken as well, since
 * second derivatives come by it. dX is the gradient of X; sizes as in tables/rnn.ops. Tests: tests/python/test_rnn.py.
 */
#include "ops/internal.h"
#include "ops/rules/rnn.h"
#include "wick/operators.h"

typedef struct sweep {
  const wk__vjp *v;
  wk_tensor *hx, *weight, *projection, *output, *kept;
  wk_int units;
  int64_t steps, *begin, *count; /* rows of each step */
  bool reverse;
  wk_tensor *state, *cell;                  /* dh (B, P) and dc (B, H) behind the step */
  wk_tensor **gates, **hidden;              /* of each step: the gradients of both parts of the gates */
  wk_tensor **before, **projected, **whole; /* the state before; dh and h before the projection */
} sweep;

static wk_tensor *rows_of(wk_tensor *t, int64_t begin, int64_t count) {
  return wk_slice(t, 0, wk__v_int(begin), wk__v_int(begin + count), wk_int_of(1));
}
static wk_tensor *vector(const sweep *s, wk_tensor *t, int k) {
  wk_int from = wk_int_mul(wk_int_of(k), s->units);
  return t ? wk_slice(t, 1, wk__v_size(from), wk__v_size(wk_int_add(from, s->units)), wk_int_of(1)) : NULL;
}
static wk_tensor *plus(wk_tensor *a, wk_tensor *b) { return !a ? b : !b ? a : wk_add(a, b, wk__v_int(1)); }
static wk_tensor *minus(wk_tensor *a, wk_tensor *b) { return wk_sub(a, b, wk__v_int(1)); }
static wk_tensor *less_than_one(wk_tensor *t) { return wk_rsub_Scalar(t, wk__v_int(1), wk__v_int(1)); }
static wk_tensor *slope_of_sigmoid(wk_tensor *y) { return wk_mul(y, less_than_one(y)); }
static wk_tensor *slope_of_tanh(wk_tensor *y) { return less_than_one(wk_mul(y, y)); }

/* dkept of a step: one of its vectors, or NULL. */
static wk_tensor *given(const sweep *s, int64_t t, int k) {
  wk_tensor *g = s->v->grads[WK__RNN_KEPT];
  return g ? vector(s, rows_of(g, s->begin[t], s->count[t]), k) : NULL;
}

/* The state that a step began with: rows of the step before it, in the layer's direction, or of the first state. */
static wk_tensor *state_before(const sweep *s, int64_t t) {
  int64_t last = s->reverse ? t + 1 : t - 1, n = s->count[t];
  if (last < 0 || last == s->steps) return rows_of(s->hx, 0, n);
  int64_t known = s->count[last] < n ? s->count[last] : n;
  wk_tensor *parts[] = {rows_of(s->output, s->begin[last], known), known < n ? rows_of(s->hx, known, n - known) : NULL};
  return known == n || !parts[0] || !parts[1] ? parts[0] : wk_cat(parts, 2, 0);
}

static wk_tensor *side_by_side(wk_tensor **parts, int count) {
  for (int i = 0; i < count; i++)
    if (!parts[i]) return NULL;
  return wk_cat(parts, count, 1);
}

/* Puts the first rows of a gradient of states in the place of those before. */
static wk_tensor *advanced(wk_tensor *whole, wk_tensor *first, int64_t n) {
  int64_t all = wk_int_guard_value(whole->sizes[0]);
  if (n == all || !first) return first;
  wk_tensor *parts[] = {first, rows_of(whole, n, all - n)};
  return parts[1] ? wk_cat(parts, 2, 0) : NULL;
}

static wk_status step_of_lstm(sweep *s, int64_t t, wk_tensor *g) {
  wk_tensor *kept = rows_of(s->kept, s->begin[t], s->count[t]);
  wk_tensor *i = vector(s, kept, 0), *f = vector(s, kept, 1), *c = vector(s, kept, 2), *o = vector(s, kept, 3);
  wk_tensor *last = vector(s, kept, 4);
  if (!last) return wk_error_category();
  wk_tensor *bent = wk_tanh(plus(wk_mul(f, last), wk_mul(i, c)));
  wk_tensor *by_cell = plus(rows_of(s->cell, 0, s->count[t]), wk_mul(wk_mul(g, o), slope_of_tanh(bent)));
  wk_tensor *parts[] = {wk_mul(plus(wk_mul(by_cell, c), given(s, t, 0)), slope_of_sigmoid(i)),
                        wk_mul(plus(wk_mul(by_cell, last), given(s, t, 1)), slope_of_sigmoid(f)),
                        wk_mul(plus(wk_mul(by_cell, i), given(s, t, 2)), slope_of_tanh(c)),
                        wk_mul(plus(wk_mul(g, bent), given(s, t, 3)), slope_of_sigmoid(o))};
  s->whole[t] = wk_mul(o, bent);
  s->gates[t] = s->hidden[t] = side_by_side(parts, 4);
  s->cell = advanced(s->cell, plus(wk_mul(by_cell, f), given(s, t, 4)), s->count[t]);
  wk_tensor *before = s->gates[t] ? wk_mm(s->gates[t], s->weight) : NULL;
  s->state = before ? advanced(s->state, before, s->count[t]) : NULL;
  return s->state && s->cell && s->whole[t] ? WK_OK : wk_error_category();
}

static wk_status step_of_gru(sweep *s, int64_t t, wk_tensor *g) {
  wk_tensor *kept = rows_of(s->kept, s->begin[t], s->count[t]);
  wk_tensor *r = vector(s, kept, 0), *z = vector(s, kept, 1), *fresh = vector(s, kept, 2), *inner = vector(s, kept, 3);
  if (!inner || !s->before[t]) return wk_error_category();
  wk_tensor *by_fresh = wk_mul(plus(wk_mul(g, less_than_one(z)), given(s, t, 2)), slope_of_tanh(fresh));
  wk_tensor *by_z = wk_mul(plus(wk_mul(g, minus(s->before[t], fresh)), given(s, t, 1)), slope_of_sigmoid(z));
  wk_tensor *by_r = wk_mul(plus(wk_mul(by_fresh, inner), given(s, t, 0)), slope_of_sigmoid(r));
  wk_tensor *by_inner = plus(wk_mul(by_fresh, r), given(s, t, 3));
  s->gates[t] = side_by_side((wk_tensor *[]){by_r, by_z, by_fresh}, 3);
  s->hidden[t] = side_by_side((wk_tensor *[]){by_r, by_z, by_inner}, 3);
  if (!s->gates[t] || !s->hidden[t]) return wk_error_category();
  s->state = advanced(s->state, plus(wk_mul(g, z), wk_mm(s->hidden[t], s->weight)), s->count[t]);
  return s->state ? WK_OK : wk_error_category();
}

static wk_status step_of_plain(sweep *s, int64_t t, wk_tensor *g, bool relu) {
  wk_tensor *y = rows_of(s->output, s->begin[t], s->count[t]);
  if (!y) return wk_error_category();
  wk_tensor *slope = relu ? wk__in_dtype(wk_gt_Scalar(y, wk__v_int(0)), (wk_dtype)y->dtype) : slope_of_tanh(y);
  s->gates[t] = s->hidden[t] = wk_mul(g, slope);
  wk_tensor *before = s->gates[t] ? wk_mm(s->gates[t], s->weight) : NULL;
  s->state = before ? advanced(s->state, before, s->count[t]) : NULL;
  return s->state ? WK_OK : wk_error_category();
}

static wk_status step_back(sweep *s, int64_t t, const char *mode) {
  wk_tensor *g = rows_of(s->state, 0, s->count[t]), *outer = s->v->grads[WK__RNN_OUTPUT];
  if (outer) g = plus(g, rows_of(outer, s->begin[t], s->count[t]));
  s->before[t] = state_before(s, t);
  if (!g || !s->before[t]) return wk_error_category();
  s->projected[t] = g;
  if (s->projection) g = wk_mm(g, s->projection);
  if (!g) return wk_error_category();
  if (strcmp(mode, "LSTM") == 0) return step_of_lstm(s, t, g);
  return strcmp(mode, "GRU") == 0 ? step_of_gru(s, t, g) : step_of_plain(s, t, g, strcmp(mode, "RNN_RELU") == 0);
}

/* Which rows are a step's: B each, or what batch_sizes says. */
static wk_status read_steps(sweep *s, wk_tensor *batch_sizes, int64_t rows, int64_t sequences) {
  int64_t at = 0;
  for (int64_t t = 0; t < s->steps; t++) {
    wk__scalar count = {.i = sequences};
    if (batch_sizes) {
      wk_tensor *one = wk_select_int(batch_sizes, 0, wk_int_of(t));
      if (!one) return wk_error_category();
      WK_TRY(wk__read_element(one, &count));
    }
    if (count.i < 1 || count.i > sequences || count.i > rows - at)
      return wk_fail(WK_RUNTIME_ERROR, "batch_sizes of a recurrent layer do not fit its rows");
    s->begin[t] = at;
    s->count[t] = count.i;
    at += count.i;
  }
  return WK_OK;
}

static wk_tensor *zeros(const wk_tensor *like, wk_int rows, wk_int columns) {
  wk_value device = {.tag = WK_VALUE_DEVICE, .device = like->device};
  return wk_zeros((wk_int[]){rows, columns}, 2, (wk_dtype)like->dtype, device);
}

static wk_status sweep_back(sweep *s, wk_tensor *batch_sizes, const char *mode, wk_tensor *grads[WK__RNN_GRADIENTS]) {
  const wk__vjp *v = s->v;
  wk_int sequences = s->hx->sizes[0];
  s->state = v->grads[WK__RNN_HN] ? v->grads[WK__RNN_HN] : zeros(s->hx, sequences, s->hx->sizes[1]);
  s->cell = v->grads[WK__RNN_CN] ? v->grads[WK__RNN_CN] : zeros(s->hx, sequences, s->units);
  if (!s->state || !s->cell) return wk_error_category();
  WK_TRY(read_steps(s, batch_sizes, wk__size(s->output, 0), wk_int_guard_value(sequences)));
  for (int64_t k = 0; k < s->steps; k++) WK_TRY(step_back(s, s->reverse ? k : s->steps - 1 - k, mode));
  grads[WK__RNN_GRAD_GATES] = wk_cat(s->gates, (int)s->steps, 0);
  grads[WK__RNN_GRAD_HIDDEN] = wk_cat(s->hidden, (int)s->steps, 0);
  grads[WK__RNN_GRAD_HX] = s->state;
  grads[WK__RNN_GRAD_CX] = s->cell;
  grads[WK__RNN_STATES] = wk_cat(s->before, (int)s->steps, 0);
  if (!s->projection) return WK_OK;
  grads[WK__RNN_GRAD_ROWS] = wk_cat(s->projected, (int)s->steps, 0);
  grads[WK__RNN_UNPROJECTED] = wk_cat(s->whole, (int)s->steps, 0);
  return WK_OK;
}

wk_status wk__rnn_taped_backward(const wk__vjp *v, wk_tensor *grads[WK__RNN_GRADIENTS]) {
  WK__ARGS(_rnn_layer);
  const char *mode = v->args[A_mode].string;
  wk_tensor *batch_sizes = v->args[A_batch_sizes].tensor, *weight = v->args[A_weight].tensor;
  int parts = wk__rnn_gates(mode);
  sweep s = {.v = v,
             .hx = v->args[A_hx].tensor,
             .weight = weight,
             .projection = v->args[A_projection].tensor,
             .output = v->results[WK__RNN_OUTPUT],
             .kept = v->results[WK__RNN_KEPT],
             .units = wk_int_floordiv(weight->sizes[0], wk_int_of(parts)),
             .reverse = v->args[A_reverse].boolean};
  int64_t sequences = wk_int_guard_value(s.hx->sizes[0]);
  s.steps = batch_sizes ? wk_int_guard_value(batch_sizes->numel)
            : sequences ? wk_int_guard_value(s.output->sizes[0]) / sequences
                        : 0;
  void *room = wk__alloc_zeroed((size_t)wk__max(s.steps, 1) * 7 * sizeof(void *));
  if (!room) return WK_OUT_OF_MEMORY;
  s.begin = room, s.count = s.begin + s.steps;
  s.gates = (wk_tensor **)(s.count + s.steps), s.hidden = s.gates + s.steps, s.before = s.hidden + s.steps;
  s.projected = s.before + s.steps, s.whole = s.projected + s.steps;
  wk_status status = sweep_back(&s, batch_sizes, mode, grads);
  wk__free(room);
  return status;
}
