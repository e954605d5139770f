/* Recurrent layers on the device: for each step a product of the states with the weight and one kernel of the cells
 * (on_device/cells.c), in the order of cpu/rnn/rnn.c; with a projection a second product, of what the cells give.
 * Tests: tests/cuda/test_rnn.py, tests/device/. */
#include "ops/rules/rnn.h"
#include "cuda/cells.h"
#include "cuda/internal.h"
#include "cuda/kernels.h"
#include "cuda/products.h"
#include "cuda/units.h"
#include "ops/internal.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

typedef struct layer {
  int mode;
  bool reverse;
  int64_t sequences, units, gates, keeps, steps, rows; /* gates' and kept vectors of `units` */
  int64_t outputs;                                     /* of a state: units, or fewer with a projection */
  int64_t size;                                        /* of an element */
  const int64_t *batch_sizes;                          /* of the host, or NULL: `sequences` each */
  const wk_tensor *like;                               /* of the layer's dtype and device */
} layer;

static wk_tensor *plain(wk_tensor *t) { return t ? wk_contiguous(t, NULL) : NULL; }
static int64_t rows_of(const layer *l, int64_t step) { return l->batch_sizes ? l->batch_sizes[step] : l->sequences; }
/* Of a row of n vectors, `row` rows further. */
static uint64_t further(const layer *l, uint64_t address, int64_t row, int64_t n) {
  return address ? address + (uint64_t)(row * n * l->units * l->size) : 0;
}

static uint64_t state_at(const layer *l, uint64_t address, int64_t row) {
  return address ? address + (uint64_t)(row * l->outputs * l->size) : 0;
}

static wk_status check_sizes(layer *l) {
  int64_t sum = 0, most = l->sequences;
  for (int64_t t = 0; t < l->steps; t++) {
    int64_t n = rows_of(l, t);
    if (n <= 0 || n > most) return wk_fail(WK_RUNTIME_ERROR, "batch_sizes should be positive and not increase");
    sum += n, most = n;
  }
  return sum == l->rows ? WK_OK : wk_fail(WK_RUNTIME_ERROR, "batch_sizes does not match the number of rows");
}

/* `sizes` on the host, without gaps, or NULL. */
static wk_status describe(layer *l, const char *mode, bool reverse, const wk_tensor *hx, const wk_tensor *weight,
                          const wk_tensor *sizes, int64_t rows) {
  static const char *const names[] = {"RNN_TANH", "RNN_RELU", "LSTM", "GRU"};
  static const int64_t keeps[] = {0, 0, 5, 4};
  while (l->mode < WK__CELLS_GRU && strcmp(names[l->mode], mode) != 0) l->mode++;
  l->reverse = reverse, l->rows = rows, l->like = hx;
  l->gates = wk__rnn_gates(mode), l->keeps = keeps[l->mode];
  l->sequences = wk__size(hx, 0), l->outputs = wk__size(hx, 1), l->units = wk__size(weight, 0) / l->gates;
  l->size = (int64_t)wk__itemsize(hx);
  l->batch_sizes = sizes ? (const int64_t *)(const void *)wk__host_data(sizes) : NULL;
  l->steps = sizes ? wk__size(sizes, 0) : l->sequences ? rows / l->sequences : 0;
  return check_sizes(l);
}

static wk_status launch(const layer *l, const char *name, wk__cuda_cells *s) {
  enum { THREADS = 128, MOST_BLOCKS = 1 << 16 };
  s->mode = l->mode, s->units = l->units, s->is_double = l->like->dtype == WK_FLOAT64;
  int64_t blocks = wk__min(wk__ceil_div(s->rows * s->units, THREADS), MOST_BLOCKS);
  return wk__cuda_call_unit(l->like, &(wk__cuda_unit_call){.module = WK__CUDA_CELLS,
                                                           .kernel = name,
                                                           .blocks = blocks,
                                                           .threads = THREADS,
                                                           .words = s,
                                                           .word_count = (int)(sizeof *s / 8),
                                                           .address_count = WK__CELLS_ADDRESSES});
}

static int64_t first_of(const layer *l, int64_t step) {
  int64_t first = 0;
  for (int64_t t = 0; t < step; t++) first += rows_of(l, t);
  return first;
}

/* Of (rows, n) tensors, a part of the rows. */
static wk_status copy_rows(wk_tensor *to, int64_t to_first, wk_tensor *from, int64_t from_first, int64_t rows) {
  if (rows == 0) return WK_OK;
  wk_tensor *there = wk_narrow(to, 0, wk_int_of(to_first), wk_int_of(rows));
  wk_tensor *here = wk_narrow(from, 0, wk_int_of(from_first), wk_int_of(rows));
  return there && here && wk_copy_(there, here, false) ? WK_OK : wk_error_category();
}

/* A row of so many elements for each sequence, or NULL. */
static wk_tensor *room(const layer *l, int64_t each) {
  wk_int sizes[] = {wk_int_of(l->sequences), wk_int_of(each)};
  return wk_new_empty((wk_tensor *)l->like, sizes, 2, (wk_dtype)l->like->dtype, NONE);
}

/* ---- forward ---- */

static wk_status forward_at(const layer *l, wk__cuda_cells s, wk__cuda_product p, int64_t first) {
  p.m = s.rows;
  WK_TRY(wk__cuda_multiply(l->like, &p));
  s.input = further(l, s.input, first, l->gates);
  s.kept = l->keeps ? further(l, s.kept, first, l->keeps) : 0;
  s.out = s.out ? state_at(l, s.out, first) : s.last;
  return launch(l, "kernel_cells_forward", &s);
}

/* What the cells give (`s.last` and `s.out`: of the step) times the projection; `output` (rows, outputs) and the states
 * get it. */
static wk_status project_at(const layer *l, uint64_t cells, const wk_tensor *projection, wk_tensor *output,
                            wk_tensor *states, int64_t first, int64_t rows) {
  wk__cuda_product p = {.a = cells,
                        .b = wk__cuda_at(projection),
                        .c = state_at(l, wk__cuda_at(output), first),
                        .alpha = 1,
                        .batch = 1,
                        .m = rows};
  p.n = p.c_row = l->outputs, p.k = p.a_row = p.b_column = l->units, p.a_column = p.b_row = 1;
  WK_TRY(wk__cuda_multiply(l->like, &p));
  return copy_rows(states, 0, output, first, rows);
}

static wk_status run_forward(wk__call *c) {
  WK__ARGS(_rnn_layer);
  wk_tensor *gates = plain(c->args[A_gates].tensor), *hx = c->args[A_hx].tensor, *cx = wk__arg_tensor(c, A_cx);
  wk_tensor *weight = plain(c->args[A_weight].tensor), *bias = plain(wk__arg_tensor(c, A_bias));
  wk_tensor *projection = plain(wk__arg_tensor(c, A_projection)), *unprojected = NULL;
  wk_tensor *sizes = wk__arg_tensor(c, A_batch_sizes);
  if (sizes) sizes = plain(wk__to_copy(sizes, WK_INT64, (wk_value){.tag = WK_VALUE_DEVICE, .device = WK__CPU_DEVICE}));
  layer l = {0};
  if (!gates || !weight || (wk__arg_tensor(c, A_batch_sizes) && !sizes)) return wk_error_category();
  WK_TRY(describe(&l, c->args[A_mode].string, wk__arg_bool(c, A_reverse), hx, weight, sizes, wk__size(gates, 0)));
  wk_tensor *hidden = room(&l, l.gates * l.units);
  if (projection) unprojected = room(&l, l.units);
  if (!hidden || (projection && !unprojected)) return wk_error_category();
  WK_TRY(wk__copy_into(c->outputs[WK__RNN_HN], hx));
  if (cx) WK_TRY(wk__copy_into(c->outputs[WK__RNN_CN], cx));
  wk__cuda_cells s = {.kept = wk__cuda_at(c->outputs[WK__RNN_KEPT]),
                      .out = wk__cuda_at(c->outputs[WK__RNN_OUTPUT]),
                      .state = l.mode == WK__CELLS_LSTM ? wk__cuda_at(c->outputs[WK__RNN_CN]) : 0,
                      .input = wk__cuda_at(gates),
                      .hidden = wk__cuda_at(hidden),
                      .last = wk__cuda_at(c->outputs[WK__RNN_HN])};
  if (projection) s.out = 0, s.last = wk__cuda_at(unprojected);
  wk__cuda_product p = {.a = wk__cuda_at(c->outputs[WK__RNN_HN]),
                        .b = wk__cuda_at(weight),
                        .c = wk__cuda_at(hidden),
                        .row = wk__cuda_at(bias),
                        .alpha = 1,
                        .batch = 1};
  p.n = p.c_row = l.gates * l.units, p.k = p.a_row = p.b_column = l.outputs, p.a_column = p.b_row = 1;
  int64_t first = l.reverse ? l.rows : 0;
  for (int64_t k = 0; k < l.steps; k++) {
    s.rows = rows_of(&l, l.reverse ? l.steps - 1 - k : k);
    if (l.reverse) first -= s.rows;
    WK_TRY(forward_at(&l, s, p, first));
    if (projection)
      WK_TRY(project_at(&l, s.last, projection, c->outputs[WK__RNN_OUTPUT], c->outputs[WK__RNN_HN], first, s.rows));
    if (!l.reverse) first += s.rows;
  }
  return WK_OK;
}

/* ---- backward ---- */

/* The states that the rows of a step began with: the outputs of the step before it, or hx. */
static wk_status fill_states(const layer *l, wk_tensor *states, wk_tensor *output, wk_tensor *hx, int64_t step) {
  int64_t first = first_of(l, step), rows = rows_of(l, step), before = l->reverse ? step + 1 : step - 1, known = 0;
  bool is_there = before >= 0 && before < l->steps;
  if (is_there) known = wk__min(rows, rows_of(l, before));
  if (known) WK_TRY(copy_rows(states, first, output, first_of(l, before), known));
  return copy_rows(states, first + known, hx, known, rows - known);
}

/* Where all steps have all sequences the states are the outputs, a step further. */
static wk_status fill_all_states(const layer *l, wk_tensor *states, wk_tensor *output, wk_tensor *hx) {
  int64_t n = l->sequences, others = l->rows - n;
  for (int64_t t = 0; l->batch_sizes && t < l->steps; t++) WK_TRY(fill_states(l, states, output, hx, t));
  if (l->batch_sizes || l->rows == 0) return WK_OK;
  WK_TRY(copy_rows(states, l->reverse ? 0 : n, output, l->reverse ? n : 0, others));
  return copy_rows(states, l->reverse ? others : 0, hx, 0, n);
}

static wk_status backward_at(const layer *l, wk__cuda_cells s, wk__cuda_product p, int64_t first) {
  s.kept = l->keeps ? further(l, s.kept, first, l->keeps) : 0;
  s.out = further(l, s.out, first, 1), s.state = further(l, s.state, first, 1);
  s.grad_output = further(l, s.grad_output, first, 1);
  s.by_input = further(l, s.by_input, first, l->gates);
  s.by_hidden = l->mode == WK__CELLS_GRU ? further(l, s.by_hidden, first, l->gates) : 0;
  WK_TRY(launch(l, "kernel_cells_backward", &s));
  p.m = s.rows;
  p.a = s.by_hidden ? s.by_hidden : s.by_input;
  return wk__cuda_multiply(l->like, &p);
}

/* ---- backward with a projection ---- */

/* The gradient of the step's outputs, which is noted in `rows`, times the projection: that of what the cells give. */
static wk_status unproject_at(const layer *l, wk_tensor *by_states, wk_tensor *grad_output, wk_tensor *all,
                              const wk_tensor *projection, const wk_tensor *by_cells, int64_t first, int64_t rows) {
  wk_tensor *now = wk_narrow(by_states, 0, wk_int_of(0), wk_int_of(rows));
  wk_tensor *more = grad_output ? wk_narrow(grad_output, 0, wk_int_of(first), wk_int_of(rows)) : NULL;
  if (!now || (grad_output && !more)) return wk_error_category();
  wk_tensor *sum = more ? wk_add(now, more, wk__v_int(1)) : NULL;
  if (more) WK_TRY(sum ? copy_rows(by_states, 0, sum, 0, rows) : wk_error_category());
  WK_TRY(copy_rows(all, first, by_states, 0, rows));
  wk__cuda_product p = {.a = wk__cuda_at(by_states),
                        .b = wk__cuda_at(projection),
                        .c = wk__cuda_at(by_cells),
                        .alpha = 1,
                        .batch = 1,
                        .m = rows};
  p.k = p.a_row = l->outputs, p.n = p.c_row = p.b_row = l->units, p.a_column = p.b_column = 1;
  return wk__cuda_multiply(l->like, &p);
}

/* The cells' outputs, which a projection hides, of all rows: o tanh(f before + i g). */
static wk_status fill_unprojected(const layer *l, wk_tensor *kept, wk_tensor *out) {
  enum { I, F, G, O, BEFORE, PARTS };
  wk_tensor *part[PARTS], *all = wk_reshape(kept, (wk_int[]){wk_int_of(l->rows), wk_int_of(-1)}, 2);
  for (int k = 0; k < PARTS; k++)
    if (!all || !(part[k] = wk_narrow(all, 1, wk_int_of(k * l->units), wk_int_of(l->units))))
      return wk_error_category();
  wk_tensor *stayed = wk_mul(part[F], part[BEFORE]), *came = stayed ? wk_mul(part[I], part[G]) : NULL;
  wk_tensor *bent = came ? wk_tanh(wk_add(stayed, came, wk__v_int(1))) : NULL;
  wk_tensor *made = bent ? wk_mul(part[O], bent) : NULL;
  return made ? wk__copy_into(out, made) : wk_error_category();
}

/* ---- all steps ---- */

static wk_status begin_with(wk_tensor *out, wk_tensor *given) {
  return given ? wk__copy_into(out, given) : wk__fill_bytes(out, 0);
}

static wk_status run_backward(wk__call *c) {
  WK__ARGS(_rnn_layer_backward);
  wk_tensor *hx = plain(c->args[A_hx].tensor), *weight = plain(c->args[A_weight].tensor);
  wk_tensor *grad_output = plain(wk__arg_tensor(c, A_grad_output)), *sizes = wk__arg_tensor(c, A_batch_sizes);
  wk_tensor *output = plain(c->args[A_output].tensor), *kept = plain(c->args[A_kept].tensor);
  wk_tensor *projection = plain(wk__arg_tensor(c, A_projection)), *by_cells = NULL;
  if (sizes) sizes = plain(wk__to_copy(sizes, WK_INT64, (wk_value){.tag = WK_VALUE_DEVICE, .device = WK__CPU_DEVICE}));
  layer l = {0};
  if (!hx || !weight || !output || !kept) return wk_error_category();
  if (wk__arg_tensor(c, A_batch_sizes) && !sizes) return wk_error_category();
  WK_TRY(describe(&l, c->args[A_mode].string, wk__arg_bool(c, A_reverse), hx, weight, sizes, wk__size(output, 0)));
  if (projection && !(by_cells = room(&l, l.units))) return wk_error_category();
  wk_tensor **out = c->outputs, *states = out[WK__RNN_STATES];
  WK_TRY(begin_with(out[WK__RNN_GRAD_HX], wk__arg_tensor(c, A_grad_hn)));
  WK_TRY(begin_with(out[WK__RNN_GRAD_CX], wk__arg_tensor(c, A_grad_cn)));
  WK_TRY(fill_all_states(&l, states, output, hx));
  wk__cuda_cells s = {.kept = wk__cuda_at(kept),
                      .out = wk__cuda_at(output),
                      .state = wk__cuda_at(states),
                      .last = wk__cuda_at(out[WK__RNN_GRAD_HX]),
                      .grad_output = wk__cuda_at(grad_output),
                      .grad_state = l.mode == WK__CELLS_LSTM ? wk__cuda_at(out[WK__RNN_GRAD_CX]) : 0,
                      .by_input = wk__cuda_at(out[WK__RNN_GRAD_GATES]),
                      .by_hidden = wk__cuda_at(out[WK__RNN_GRAD_HIDDEN])};
  wk__cuda_product p = {.b = wk__cuda_at(weight), .c = s.last, .alpha = 1, .beta = l.mode == WK__CELLS_GRU, .batch = 1};
  p.k = p.a_row = l.gates * l.units, p.n = p.c_row = p.b_row = l.outputs, p.a_column = p.b_column = 1;
  if (projection) {
    s.last = wk__cuda_at(by_cells), s.grad_output = s.out = s.state = 0; /* of an LSTM's cells only */
    WK_TRY(fill_unprojected(&l, kept, out[WK__RNN_UNPROJECTED]));
  }
  int64_t first = l.reverse ? 0 : l.rows;
  for (int64_t k = 0; k < l.steps; k++) {
    s.rows = rows_of(&l, l.reverse ? k : l.steps - 1 - k);
    if (!l.reverse) first -= s.rows;
    if (projection)
      WK_TRY(unproject_at(&l, out[WK__RNN_GRAD_HX], grad_output, out[WK__RNN_GRAD_ROWS], projection, by_cells, first,
                          s.rows));
    WK_TRY(backward_at(&l, s, p, first));
    if (l.reverse) first += s.rows;
  }
  return WK_OK;
}

wk_status wk__cuda_rnn_layer(wk__call *c) { return wk__cuda_in_scope(c, run_forward); }
wk_status wk__cuda_rnn_layer_backward(wk__call *c) { return wk__cuda_in_scope(c, run_backward); }
