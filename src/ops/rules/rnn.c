/* Recurrent networks: layers, directions and steps made of _rnn_layer, one operator for the whole sequence of a layer
 * and direction, whose code is each device's own. The inputs' part of the gates is one product for all steps.
 *
 * Sequences are rows, step after step: (T, B, ...) folded, or the data of a packed sequence. Small floats compute in
 * f32. Tests: tests/python/test_rnn.py. */
#include "ops/rules/rnn.h"
#include "ops/internal.h"
#include "ops/rules.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})
#define LAYER(name) WK__ARG(_rnn_layer, name)
#define BACKWARD(name) WK__ARG(_rnn_layer_backward, name)

/* How many vectors of H: gates, and what the derivative needs. */
int wk__rnn_gates(const char *mode) { return strcmp(mode, "LSTM") == 0 ? 4 : strcmp(mode, "GRU") == 0 ? 3 : 1; }
static int kept_of(const char *mode) { return strcmp(mode, "LSTM") == 0 ? 5 : strcmp(mode, "GRU") == 0 ? 4 : 0; }

/* ================================================= shapes ======================================================= */

static void spec(wk__spec *out, const wk_tensor *like, wk_int rows, wk_int columns) {
  wk__spec_contiguous(out, (wk_dtype)like->dtype, like->device, 2, (wk_int[]){rows, columns});
}
static wk_int times(int k, wk_int n) { return wk_int_mul(wk_int_of(k), n); }
static bool is_matrix(const wk_tensor *t, wk_int rows, wk_int columns) {
  return t->ndim == 2 && wk_int_eq(t->sizes[0], rows) && wk_int_eq(t->sizes[1], columns);
}

/* What the code relies on. Programs come here through the networks below, which give what fits or say more. */
static wk_status check_layer(const wk_tensor *hx, const wk_tensor *weight, const wk_tensor *projection, wk_int units,
                             int gates) {
  bool fits = hx->ndim == 2 && weight->ndim == 2 && (hx->dtype == WK_FLOAT32 || hx->dtype == WK_FLOAT64) &&
              weight->dtype == hx->dtype && is_matrix(weight, times(gates, units), hx->sizes[1]);
  if (projection)
    fits = fits && projection->dtype == hx->dtype && is_matrix(projection, hx->sizes[1], units);
  else
    fits = fits && wk_int_eq(units, hx->sizes[1]);
  return fits ? WK_OK : wk_fail(WK_RUNTIME_ERROR, "the sizes or dtypes of a recurrent layer's arguments do not match");
}

wk_status wk__meta_rnn_layer(wk__call *c) {
  const wk_tensor *gates = c->args[LAYER(gates)].tensor, *hx = c->args[LAYER(hx)].tensor;
  const wk_tensor *weight = c->args[LAYER(weight)].tensor, *cx = wk__arg_tensor(c, LAYER(cx));
  const wk_tensor *bias = wk__arg_tensor(c, LAYER(bias));
  const char *mode = c->args[LAYER(mode)].string;
  int count = wk__rnn_gates(mode), kept = kept_of(mode);
  if (gates->ndim != 2) return wk_fail(WK_RUNTIME_ERROR, "a recurrent layer's gates are a matrix");
  wk_int rows = gates->sizes[0], units = wk_int_floordiv(gates->sizes[1], wk_int_of(count));
  WK_TRY(check_layer(hx, weight, wk__arg_tensor(c, LAYER(projection)), units, count));
  bool fits =
      gates->dtype == hx->dtype && wk_int_eq(times(count, units), gates->sizes[1]) && (count == 4) == (cx != NULL);
  if (cx) fits = fits && cx->dtype == hx->dtype && is_matrix(cx, hx->sizes[0], units);
  if (bias) fits = fits && bias->dtype == hx->dtype && bias->ndim == 1 && wk_int_eq(bias->sizes[0], gates->sizes[1]);
  if (!fits) return wk_fail(WK_RUNTIME_ERROR, "the sizes or dtypes of a recurrent layer's arguments do not match");
  spec(&c->specs[WK__RNN_OUTPUT], hx, rows, hx->sizes[1]);
  spec(&c->specs[WK__RNN_HN], hx, hx->sizes[0], hx->sizes[1]);
  spec(&c->specs[WK__RNN_CN], hx, cx ? hx->sizes[0] : wk_int_of(0), units);
  spec(&c->specs[WK__RNN_KEPT], hx, rows, times(kept, units));
  return WK_OK;
}

wk_status wk__meta_rnn_layer_backward(wk__call *c) {
  const wk_tensor *hx = c->args[BACKWARD(hx)].tensor, *weight = c->args[BACKWARD(weight)].tensor;
  const wk_tensor *projection = wk__arg_tensor(c, BACKWARD(projection)), *output = c->args[BACKWARD(output)].tensor;
  const wk_tensor *kept = c->args[BACKWARD(kept)].tensor;
  const char *mode = c->args[BACKWARD(mode)].string;
  int count = wk__rnn_gates(mode);
  if (weight->ndim != 2 || output->ndim != 2 || kept->ndim != 2)
    return wk_fail(WK_RUNTIME_ERROR, "a recurrent layer's results are matrices");
  wk_int none = wk_int_of(0), rows = output->sizes[0], units = wk_int_floordiv(weight->sizes[0], wk_int_of(count));
  WK_TRY(check_layer(hx, weight, projection, units, count));
  bool fits = is_matrix(output, rows, hx->sizes[1]) && is_matrix(kept, rows, times(kept_of(mode), units));
  const wk_tensor *grads[] = {wk__arg_tensor(c, BACKWARD(grad_output)), wk__arg_tensor(c, BACKWARD(grad_hn)),
                              wk__arg_tensor(c, BACKWARD(grad_cn))};
  if (grads[0]) fits = fits && grads[0]->dtype == hx->dtype && is_matrix(grads[0], rows, hx->sizes[1]);
  if (grads[1]) fits = fits && grads[1]->dtype == hx->dtype && is_matrix(grads[1], hx->sizes[0], hx->sizes[1]);
  if (grads[2]) fits = fits && grads[2]->dtype == hx->dtype && count == 4 && is_matrix(grads[2], hx->sizes[0], units);
  if (!fits) return wk_fail(WK_RUNTIME_ERROR, "the sizes or dtypes of a recurrent layer's gradients do not match");
  spec(&c->specs[WK__RNN_GRAD_GATES], hx, rows, weight->sizes[0]);
  spec(&c->specs[WK__RNN_GRAD_HIDDEN], hx, count == 3 ? rows : none, weight->sizes[0]);
  spec(&c->specs[WK__RNN_GRAD_HX], hx, hx->sizes[0], hx->sizes[1]);
  spec(&c->specs[WK__RNN_GRAD_CX], hx, count == 4 ? hx->sizes[0] : none, units);
  spec(&c->specs[WK__RNN_GRAD_ROWS], hx, projection ? rows : none, hx->sizes[1]);
  spec(&c->specs[WK__RNN_STATES], hx, rows, hx->sizes[1]);
  spec(&c->specs[WK__RNN_UNPROJECTED], hx, projection ? rows : none, units);
  return WK_OK;
}

/* =============================================== derivative ===================================================== */

/* a^T b, summed over rows */
static wk_tensor *over_rows(wk_tensor *a, wk_tensor *b) { return wk_mm(wk_t(a), b); }

static wk_status run_backward(const wk__vjp *v, wk_tensor *grads[WK__RNN_GRADIENTS]) {
  const char *mode = v->args[LAYER(mode)].string;
  wk_tensor *by_cell = wk__rnn_gates(mode) == 4 ? v->grads[WK__RNN_CN] : NULL;
  return wk__rnn_layer_backward(v->grads[WK__RNN_OUTPUT], v->grads[WK__RNN_HN], by_cell, v->args[LAYER(hx)].tensor,
                                v->args[LAYER(weight)].tensor, v->args[LAYER(projection)].tensor,
                                v->args[LAYER(batch_sizes)].tensor, v->results[WK__RNN_OUTPUT],
                                v->results[WK__RNN_KEPT], mode, v->args[LAYER(reverse)].boolean, grads);
}

wk_status wk__vjp_rnn_layer(wk__vjp *v) {
  const char *mode = v->args[LAYER(mode)].string;
  wk_tensor *grads[WK__RNN_GRADIENTS] = {NULL};
  wk_int first = wk_int_of(0);
  bool recorded = wk__thread.mode.grad_enabled || v->grads[WK__RNN_KEPT]; /* the pass itself, or one like it was */
  WK_TRY((recorded ? wk__rnn_taped_backward : run_backward)(v, grads));
  wk_tensor *hidden = grads[wk__rnn_gates(mode) == 3 ? WK__RNN_GRAD_HIDDEN : WK__RNN_GRAD_GATES];
  if (wk__needs(v, LAYER(gates))) WK_TRY(wk__vjp_set(v, LAYER(gates), grads[WK__RNN_GRAD_GATES]));
  if (wk__needs(v, LAYER(hx))) WK_TRY(wk__vjp_set(v, LAYER(hx), grads[WK__RNN_GRAD_HX]));
  if (wk__needs(v, LAYER(cx))) WK_TRY(wk__vjp_set(v, LAYER(cx), grads[WK__RNN_GRAD_CX]));
  if (wk__needs(v, LAYER(weight))) WK_TRY(wk__vjp_set(v, LAYER(weight), over_rows(hidden, grads[WK__RNN_STATES])));
  if (wk__needs(v, LAYER(bias)))
    WK_TRY(wk__vjp_set(v, LAYER(bias), wk_sum_dim_IntList(hidden, &first, 1, false, WK_DTYPE_NONE)));
  if (wk__needs(v, LAYER(projection)))
    WK_TRY(wk__vjp_set(v, LAYER(projection), over_rows(grads[WK__RNN_GRAD_ROWS], grads[WK__RNN_UNPROJECTED])));
  return WK_OK;
}

/* ================================================ networks ====================================================== */

/* A network's arguments, whichever row they came by. Tensors belong to the caller or to the scope. */
typedef struct network {
  const char *mode;
  wk_tensor *rows, *batch_sizes, *hx, *cx; /* (N, features), (T) or NULL, (layers directions, B, P), of H or NULL */
  wk_tensor **params;
  int param_count, each; /* of a layer and direction: 2, with biases 4, and one more with a projection */
  int layers, directions;
  double dropout;
  bool has_biases, projects;
  wk_tensor *output, *hn, *cn; /* results, in the scope; output (N, directions P) */
} network;

enum { WEIGHTS = 2, BIASES = 2, MOST_STATES = 256 };

static wk_status check_network(const network *n) {
  if (!n->rows || !n->hx || n->hx->ndim != 3) return wk_fail(WK_RUNTIME_ERROR, "hx should have 3 dimensions");
  if (n->layers < 1 || n->layers * n->directions > MOST_STATES)
    return wk_fail(WK_RUNTIME_ERROR, "a recurrent network has 1 to %d layers", MOST_STATES / n->directions);
  if (!wk_int_eq(n->hx->sizes[0], wk_int_of(n->layers * n->directions)))
    return wk_fail(WK_RUNTIME_ERROR, "Expected %d states in hx, got %lld", n->layers * n->directions,
                   wk__shown(n->hx->sizes[0]));
  if (n->param_count != n->each * n->layers * n->directions)
    return wk_fail(WK_RUNTIME_ERROR, "got an incorrect number of RNN parameters");
  return WK_OK;
}

static wk_tensor *wide(wk_tensor *t) { return t ? wk__in_dtype(t, wk__computed_in((wk_dtype)t->dtype)) : NULL; }
static wk_tensor *part(wk_tensor *t, int k) { return t ? wide(wk_select_int(t, 0, wk_int_of(k))) : NULL; }

/* One layer in one direction: k-th of both. */
static wk_status run_layer(const network *n, wk_tensor *rows, int k, wk_tensor *results[WK__RNN_RESULTS]) {
  wk_tensor **p = n->params + k * n->each;
  wk_tensor *gates = wk_linear(rows, wide(p[0]), n->has_biases ? wide(p[2]) : NULL);
  wk_tensor *projection = n->projects ? wide(p[n->each - 1]) : NULL;
  if (!gates) return wk_error_category();
  return wk__rnn_layer(gates, part(n->hx, k), part(n->cx, k), wide(p[1]), n->has_biases ? wide(p[3]) : NULL, projection,
                       n->batch_sizes, n->mode, k % n->directions == 1, results);
}

static wk_tensor *joined(wk_tensor **states, int count, const wk_tensor *like) {
  return wk__in_dtype(wk_stack(states, count, 0), (wk_dtype)like->dtype);
}

static wk_status run_network(network *n) {
  wk_tensor *hn[MOST_STATES], *cn[MOST_STATES], *rows = wide(n->rows);
  int count = n->layers * n->directions;
  WK_TRY(check_network(n));
  for (int layer = 0; layer < n->layers; layer++) {
    wk_tensor *outputs[2] = {NULL};
    for (int d = 0; d < n->directions; d++) {
      wk_tensor *results[WK__RNN_RESULTS];
      int k = layer * n->directions + d;
      WK_TRY(run_layer(n, rows, k, results));
      outputs[d] = results[WK__RNN_OUTPUT], hn[k] = results[WK__RNN_HN], cn[k] = results[WK__RNN_CN];
    }
    rows = n->directions == 2 ? wk_cat(outputs, 2, 1) : outputs[0];
    if (n->dropout > 0 && layer < n->layers - 1) rows = wk_dropout(rows, n->dropout, true);
    if (!rows) return wk_error_category();
  }
  n->output = wk__in_dtype(rows, (wk_dtype)n->rows->dtype);
  n->hn = joined(hn, count, n->hx);
  n->cn = n->cx ? joined(cn, count, n->cx) : NULL;
  return n->output && n->hn && (n->cn || !n->cx) ? WK_OK : wk_error_category();
}

/* The arguments that all rows have in one order, from `params` on. */
static void take_options(network *n, const wk_value *args) {
  n->params = args[0].tensors, n->param_count = (int)args[0].count;
  n->has_biases = args[1].boolean;
  n->layers = (int)wk_int_guard_value(args[2].integer);
  n->dropout = args[4].boolean ? args[3].number : 0;
  n->directions = args[5].boolean ? 2 : 1;
  n->each = WEIGHTS + (n->has_biases ? BIASES : 0) + n->projects;
}

static wk_status take_states(network *n, const wk_value *hx) {
  if (hx->tag == WK_VALUE_TENSOR) {
    n->hx = hx->tensor;
    return WK_OK;
  }
  if (hx->count != 2) return wk_fail(WK_RUNTIME_ERROR, "lstm expects two hidden states");
  n->hx = hx->tensors[0], n->cx = hx->tensors[1];
  n->projects = n->hx->ndim == 3 && n->cx->ndim == 3 && !wk_int_eq(n->hx->sizes[2], n->cx->sizes[2]);
  return WK_OK;
}

static wk_status give_results(wk__call *c, wk_scope *scope, const network *n, wk_status status, wk_tensor *output) {
  wk_tensor *results[] = {output, n->hn, n->cn};
  if (status == WK_OK && !output) status = wk_error_category();
  for (int r = 0; status == WK_OK && r < (n->cx ? 3 : 2); r++) c->results[r] = wk__v_tensor(wk_scope_keep(results[r]));
  wk_scope_end(scope);
  return status;
}

/* (input, hx, params, ..., batch_first): input (T, B, features), or (B, T, features). */
static wk_status run_input(wk__call *c, const char *mode) {
  network n = {.mode = mode};
  wk_tensor *input = c->args[0].tensor, *output = NULL;
  WK_TRY(take_states(&n, &c->args[WK__ARG(gru_input, hx)]));
  take_options(&n, c->args + 2);
  bool batch_first = c->args[WK__ARG(gru_input, batch_first)].boolean;
  if (input->ndim != 3) return wk_fail(WK_RUNTIME_ERROR, "input must have 3 dimensions, got %d", input->ndim);
  wk_scope scope;
  wk_scope_begin(&scope);
  if (batch_first) input = wk_transpose_int(input, 0, 1);
  wk_int steps = input ? input->sizes[0] : wk_int_of(0), batch = input ? input->sizes[1] : wk_int_of(0);
  n.rows = input ? wk_reshape(input, (wk_int[]){wk_int_mul(steps, batch), input->sizes[2]}, 2) : NULL;
  wk_status status = n.rows ? run_network(&n) : wk_error_category();
  if (status == WK_OK) output = wk_view(n.output, (wk_int[]){steps, batch, n.output->sizes[1]}, 3);
  if (batch_first && output) output = wk_transpose_int(output, 0, 1);
  return give_results(c, &scope, &n, status, output);
}

/* (data, batch_sizes, hx, params, ...) */
static wk_status run_data(wk__call *c, const char *mode) {
  network n = {.mode = mode, .rows = c->args[0].tensor, .batch_sizes = c->args[WK__ARG(gru_data, batch_sizes)].tensor};
  if (n.rows->ndim != 2 || n.batch_sizes->ndim != 1 || n.batch_sizes->dtype != WK_INT64)
    return wk_fail(WK_RUNTIME_ERROR, "batch_sizes tensor should be 1D int64, and data 2D");
  WK_TRY(take_states(&n, &c->args[WK__ARG(gru_data, hx)]));
  take_options(&n, c->args + 3);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_value device = {.tag = WK_VALUE_DEVICE, .device = n.rows->device}; /* batch sizes stay on the CPU in Python */
  n.batch_sizes = wk__to_copy(n.batch_sizes, WK_INT64, device);
  wk_status status = n.batch_sizes ? run_network(&n) : wk_error_category();
  return give_results(c, &scope, &n, status, n.output);
}

wk_status wk__compose_lstm_input(wk__call *c) { return run_input(c, "LSTM"); }
wk_status wk__compose_lstm_data(wk__call *c) { return run_data(c, "LSTM"); }
wk_status wk__compose_gru_input(wk__call *c) { return run_input(c, "GRU"); }
wk_status wk__compose_gru_data(wk__call *c) { return run_data(c, "GRU"); }
wk_status wk__compose_rnn_tanh_input(wk__call *c) { return run_input(c, "RNN_TANH"); }
wk_status wk__compose_rnn_tanh_data(wk__call *c) { return run_data(c, "RNN_TANH"); }
wk_status wk__compose_rnn_relu_input(wk__call *c) { return run_input(c, "RNN_RELU"); }
wk_status wk__compose_rnn_relu_data(wk__call *c) { return run_data(c, "RNN_RELU"); }

/* ================================================ one step ====================================================== */

/* All of one dtype. */
static wk_status check_cell_dtypes(const wk__call *c, const wk_tensor *hx, const wk_tensor *cx) {
  WK__ARGS(gru_cell);
  const wk_tensor *x = c->args[0].tensor, *others[] = {hx,
                                                       cx,
                                                       c->args[A_w_ih].tensor,
                                                       c->args[A_w_hh].tensor,
                                                       wk__arg_tensor(c, A_b_ih),
                                                       wk__arg_tensor(c, A_b_hh)};
  for (size_t k = 0; k < WK_COUNT(others); k++)
    if (others[k] && others[k]->dtype != x->dtype)
      return wk_fail(WK_RUNTIME_ERROR, "mat1 and mat2 must have the same dtype, but got %s and %s",
                     wk__dtype_legacy((wk_dtype)x->dtype), wk__dtype_legacy((wk_dtype)others[k]->dtype));
  return WK_OK;
}
/* A bias may be a row, and one element stands for all. */
static wk_tensor *bias_of(wk_tensor *bias, const wk_tensor *weight) {
  if (bias && bias->ndim == 2 && wk_int_eq(bias->sizes[0], wk_int_of(1))) bias = wk_select_int(bias, 0, wk_int_of(0));
  bool one = bias && weight->ndim == 2 && bias->ndim < 2 && wk_int_eq(bias->numel, wk_int_of(1));
  return wide(one ? wk_expand(bias, weight->sizes, 1, false) : bias);
}

/* A layer of one step; hx, cx and results (B, H). */
static wk_status run_cell(wk__call *c, const char *mode, wk_tensor *hx, wk_tensor *cx,
                          wk_tensor *results[WK__RNN_RESULTS]) {
  WK__ARGS(gru_cell);
  wk_tensor *w_ih = c->args[A_w_ih].tensor, *w_hh = c->args[A_w_hh].tensor;
  WK_TRY(check_cell_dtypes(c, hx, cx));
  wk_tensor *gates = wk_linear(wide(c->args[0].tensor), wide(w_ih), bias_of(wk__arg_tensor(c, A_b_ih), w_ih));
  if (!gates) return wk_error_category();
  return wk__rnn_layer(gates, wide(hx), wide(cx), wide(w_hh), bias_of(wk__arg_tensor(c, A_b_hh), w_hh), NULL, NULL,
                       mode, false, results);
}

/* A GRU mixes its state with the new one, so that the result's strides are those of a transposed state. */
static wk_tensor *laid_out_like(wk_tensor *y, const wk_tensor *state) {
  bool transposed = state->ndim == 2 && wk_int_eq(state->strides[0], wk_int_of(1)) &&
                    wk_int_eq(state->strides[1], state->sizes[0]) && wk_int_lt(wk_int_of(1), state->sizes[0]) &&
                    wk_int_lt(wk_int_of(1), state->sizes[1]);
  return transposed ? wk_t(wk_contiguous(wk_t(y), "contiguous_format")) : y;
}

static wk_status compose_cell(wk__call *c, const char *mode) {
  wk_tensor *results[WK__RNN_RESULTS], *y = NULL;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = run_cell(c, mode, c->args[WK__ARG(gru_cell, hx)].tensor, NULL, results);
  if (status == WK_OK) y = wk__in_dtype(results[WK__RNN_OUTPUT], (wk_dtype)c->args[0].tensor->dtype);
  if (y && strcmp(mode, "GRU") == 0) y = laid_out_like(y, c->args[WK__ARG(gru_cell, hx)].tensor);
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(&scope);
  return status;
}
wk_status wk__compose_gru_cell(wk__call *c) { return compose_cell(c, "GRU"); }
wk_status wk__compose_rnn_tanh_cell(wk__call *c) { return compose_cell(c, "RNN_TANH"); }
wk_status wk__compose_rnn_relu_cell(wk__call *c) { return compose_cell(c, "RNN_RELU"); }

wk_status wk__compose_lstm_cell(wk__call *c) {
  WK__ARGS(lstm_cell);
  wk_tensor *results[WK__RNN_RESULTS], **hx = c->args[A_hx].tensors;
  wk_dtype dtype = (wk_dtype)c->args[A_input].tensor->dtype;
  if (c->args[A_hx].count != 2) return wk_fail(WK_RUNTIME_ERROR, "lstm_cell expects two hidden states");
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = run_cell(c, "LSTM", hx[0], hx[1], results);
  for (int r = 0; status == WK_OK && r < 2; r++)
    c->results[r] = wk__v_tensor(wk_scope_keep(wk__in_dtype(results[r ? WK__RNN_CN : WK__RNN_OUTPUT], dtype)));
  wk_scope_end(&scope);
  return status;
}
