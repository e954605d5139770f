/* A layer of a recurrent network over a sequence, one direction, on the CPU: for each step a matrix product of the
 * states with the weight, and the cells' arithmetic (rnn_cells.h) over its rows.
 *
 * In: rows of all steps, one step behind the other; a step has as many as sequences that are that long, the longest
 * first. A buffer holds the state of every sequence; a step writes those of its rows, so what has ended, or in the
 * other direction not begun, stays. The backward goes the other way with a buffer of gradients. Bits depend neither on
 * threads nor on the CPU level, as those of the product and of the cells do not. Tests: tests/python/test_rnn.py. */
#include "cpu/kernels.h"
#include "cpu/rnn/rnn_cells.h"
#include "cpu/workspace.h"
#include "ops/internal.h"
#include "wick/operators.h"

enum {
  GRAIN = 2048,      /* units that are worth a thread */
  PANEL_BYTES = 256, /* of a panel's row: what the product's tiles read in place */
  PANELS_MIN_STEPS = 8,
};

/* A matrix (k, n) that the states of each step are multiplied by, element (i, j) at i row + j column. Where there are
 * many steps it is laid out once as panels of so many columns, one behind the other, so that no step packs it. */
typedef struct right {
  const char *data;
  int64_t k, n, row, column;
  int64_t panel; /* columns of a panel, or 0 */
} right;

typedef struct layer {
  wk__gemm_type type;
  wk__rnn_mode mode;
  const wk__rnn_cells *cells;
  bool reverse;
  int64_t sequences, steps, units, outputs, gates, keeps; /* B, T, H, P, gates' and kept vectors of H */
  size_t size;                                            /* of an element */
  const int64_t *batch_sizes;                             /* (T), or NULL: B */
  right weight,
      projection;   /* (P, gates H); (H, P), its data NULL where there is none. The backward has them transposed */
  const char *bias; /* (gates H) or NULL */
} layer;

static const wk__rnn_cells *find_cells(wk__gemm_type type) {
#if defined(__x86_64__)
  switch (wk__cpu_level_get()) {
    case WK__CPU_AVX512:
      return &wk__rnn_cells_avx512[type];
    case WK__CPU_AVX2:
      return &wk__rnn_cells_avx2[type];
    default:
      break;
  }
#endif
  return &wk__rnn_cells_portable[type];
}

static wk__rnn_mode mode_named(const char *name) {
  static const char *const names[] = {"RNN_TANH", "RNN_RELU", "LSTM", "GRU"};
  int mode = 0;
  while (mode < WK__RNN_MODES - 1 && strcmp(names[mode], name) != 0) mode++;
  return (wk__rnn_mode)mode;
}

static int64_t rows_of(const layer *l, int64_t step) { return l->batch_sizes ? l->batch_sizes[step] : l->sequences; }

/* Sizes and, where batch_sizes is given, whether it is one of sequences sorted by length. */
static wk_status describe(layer *l, const char *mode, bool reverse, const wk_tensor *hx, const wk_tensor *weight,
                          const wk_tensor *projection, const wk_tensor *batch_sizes, int64_t rows) {
  static const int64_t gates[] = {1, 1, 4, 3}, keeps[] = {0, 0, 5, 4};
  l->mode = mode_named(mode);
  l->type = hx->dtype == WK_FLOAT64 ? WK__GEMM_F64 : WK__GEMM_F32;
  l->cells = find_cells(l->type);
  l->reverse = reverse;
  l->gates = gates[l->mode], l->keeps = keeps[l->mode];
  l->sequences = wk__size(hx, 0), l->outputs = wk__size(hx, 1), l->units = wk__size(weight, 0) / l->gates;
  l->size = wk_dtype_size((wk_dtype)hx->dtype);
  int64_t all = l->gates * l->units;
  l->weight = (right){(const char *)wk__data(weight), l->outputs, all, 1, l->outputs, 0};
  l->projection = (right){projection ? (const char *)wk__data(projection) : NULL, l->units, l->outputs, 1, l->units, 0};
  l->batch_sizes = batch_sizes ? (const int64_t *)wk__data(batch_sizes) : NULL;
  l->steps = batch_sizes ? wk__size(batch_sizes, 0) : l->sequences ? rows / l->sequences : 0;
  int64_t sum = 0, most = l->sequences;
  for (int64_t t = 0; t < l->steps; t++) {
    int64_t n = rows_of(l, t);
    if (n <= 0 || n > most) return wk_fail(WK_RUNTIME_ERROR, "batch_sizes should be positive and not increase");
    sum += n, most = n;
  }
  return sum == rows ? WK_OK : wk_fail(WK_RUNTIME_ERROR, "batch_sizes does not match the number of rows");
}

/* c (rows, n) = a (rows, k) b + bias (n) or NULL */
static wk_status product(const layer *l, int64_t rows, const void *a, const right *b, void *c, const void *bias) {
  int64_t columns = b->panel ? b->panel : b->n;
  wk__gemm g = {.type = l->type,
                .m = rows,
                .n = columns,
                .k = b->k,
                .a = a,
                .a_row = b->k,
                .a_column = 1,
                .b = b->data,
                .b_row = b->row,
                .b_column = b->column,
                .c = c,
                .c_row = b->n,
                .alpha = 1,
                .row = bias,
                .batch = b->n / columns,
                .b_batch = b->k * columns,
                .c_batch = columns,
                .row_batch = columns};
  return wk__gemm_run(&g);
}

static right transposed(const right *b) { return (right){b->data, b->n, b->k, b->column, b->row, 0}; }
static size_t panels_bytes(const layer *l, const right *b) { return (size_t)(b->k * b->n) * l->size; }

/* Rows of panels: so many runs of elements that lie `column` apart. */
static void gather_row(const layer *l, const char *from, int64_t column, int64_t n, char *to) {
  if (column == 1)
    memcpy(to, from, (size_t)n * l->size);
  else if (l->type == WK__GEMM_F64)
    for (int64_t j = 0; j < n; j++) ((double *)to)[j] = ((const double *)from)[j * column];
  else
    for (int64_t j = 0; j < n; j++) ((float *)to)[j] = ((const float *)from)[j * column];
}
/* `memory`: panels_bytes. */
static void lay_out(const layer *l, right *b, char *memory) {
  int64_t panel = PANEL_BYTES / (int64_t)l->size, size = (int64_t)l->size;
  if (l->steps < PANELS_MIN_STEPS || b->n % panel != 0) return;
  char *to = memory;
  for (int64_t p = 0; p < b->n; p += panel)
    for (int64_t i = 0; i < b->k; i++, to += panel * size)
      gather_row(l, b->data + (i * b->row + p * b->column) * size, b->column, panel, to);
  *b = (right){memory, b->k, b->n, panel, 1, panel};
}

/* ---- forward ---- */

typedef struct forward_step {
  const layer *l;
  const char *input, *hidden;
  char *state, *kept, *out; /* of the step's rows */
} forward_step;

static void forward_rows(void *context, int64_t begin, int64_t end) {
  const forward_step *s = context;
  const layer *l = s->l;
  size_t units = (size_t)l->units * l->size, gates = (size_t)l->gates * units, kept = (size_t)l->keeps * units;
  for (int64_t r = begin; r < end; r++) {
    size_t row = (size_t)r;
    l->cells->forward[l->mode](l->units, s->input + row * gates, s->hidden + row * gates, s->state + row * units,
                               s->kept + row * kept, s->out + row * units);
  }
}

typedef struct buffers {
  char *input, *output, *kept; /* of all rows */
  char *hidden, *unprojected;  /* of one step */
  char *hn, *cn;               /* (B, P), (B, H): the states */
} buffers;

static wk_status forward_at(const layer *l, const buffers *b, int64_t first, int64_t rows) {
  size_t units = (size_t)l->units * l->size, outputs = (size_t)l->outputs * l->size, at = (size_t)first;
  char *out = b->output + at * outputs, *cells_out = l->projection.data ? b->unprojected : out;
  WK_TRY(product(l, rows, b->hn, &l->weight, b->hidden, l->bias));
  forward_step s = {l,
                    b->input + at * (size_t)l->gates * units,
                    b->hidden,
                    l->mode == WK__RNN_LSTM ? b->cn : b->hn,
                    b->kept + at * (size_t)l->keeps * units,
                    cells_out};
  wk__parallel_for(rows, 1 + GRAIN / (l->units + 1), forward_rows, &s);
  if (l->projection.data) WK_TRY(product(l, rows, cells_out, &l->projection, out, NULL));
  memcpy(b->hn, out, (size_t)rows * outputs);
  return WK_OK;
}

static wk_status forward(const layer *l, const buffers *b, int64_t rows) {
  int64_t first = l->reverse ? rows : 0;
  for (int64_t k = 0; k < l->steps; k++) {
    int64_t n = rows_of(l, l->reverse ? l->steps - 1 - k : k);
    if (l->reverse) first -= n;
    WK_TRY(forward_at(l, b, first, n));
    if (!l->reverse) first += n;
  }
  return WK_OK;
}

/* The tensor without gaps, in the caller's scope; NULL for NULL. */
static wk_tensor *plain(wk_tensor *t) { return t ? wk_contiguous(t, NULL) : NULL; }
static void *data_or_null(const wk_tensor *t) { return t ? wk__data(t) : NULL; }

static wk_status run_forward(wk__call *c) {
  wk_tensor *gates = plain(c->args[WK__ARG(_rnn_layer, gates)].tensor),
            *hx = plain(c->args[WK__ARG(_rnn_layer, hx)].tensor);
  wk_tensor *cx = plain(wk__arg_tensor(c, WK__ARG(_rnn_layer, cx)));
  wk_tensor *weight = plain(c->args[WK__ARG(_rnn_layer, weight)].tensor);
  wk_tensor *bias = plain(wk__arg_tensor(c, WK__ARG(_rnn_layer, bias)));
  wk_tensor *projection = plain(wk__arg_tensor(c, WK__ARG(_rnn_layer, projection)));
  wk_tensor *batch_sizes = plain(wk__arg_tensor(c, WK__ARG(_rnn_layer, batch_sizes)));
  layer l;
  if (!gates || !hx || !weight) return wk_error_category();
  int64_t rows = wk__size(gates, 0);
  WK_TRY(describe(&l, c->args[WK__ARG(_rnn_layer, mode)].string, wk__arg_bool(c, WK__ARG(_rnn_layer, reverse)), hx,
                  weight, projection, batch_sizes, rows));
  l.bias = data_or_null(bias);
  size_t units = (size_t)(l.sequences * l.units) * l.size;
  size_t of_step = units * (size_t)(l.gates + 1);
  char *space = wk__workspace_get(WK__WORKSPACE_KERNEL, of_step + panels_bytes(&l, &l.weight) + 1);
  if (!space) return wk_error_category();
  lay_out(&l, &l.weight, space + of_step);
  buffers b = {(char *)wk__data(gates),         (char *)wk__data(c->outputs[0]), (char *)wk__data(c->outputs[3]), space,
               space + units * (size_t)l.gates, (char *)wk__data(c->outputs[1]), (char *)wk__data(c->outputs[2])};
  memcpy(b.hn, wk__data(hx), (size_t)(l.sequences * l.outputs) * l.size);
  if (cx) memcpy(b.cn, wk__data(cx), units);
  return forward(&l, &b, rows);
}

wk_status wk__cpu_rnn_layer(wk__call *c) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = run_forward(c);
  wk_scope_end(&scope);
  return status;
}

/* ---- backward ---- */

typedef struct backward_step {
  const layer *l;
  const char *kept, *out, *states, *grad;
  char *grad_state, *grad_input, *grad_hidden;
} backward_step;

static void backward_rows(void *context, int64_t begin, int64_t end) {
  const backward_step *s = context;
  const layer *l = s->l;
  size_t units = (size_t)l->units * l->size, gates = (size_t)l->gates * units, kept = (size_t)l->keeps * units;
  for (int64_t r = begin; r < end; r++) {
    size_t row = (size_t)r;
    l->cells->backward[l->mode](l->units, s->kept + row * kept, s->out + row * units, s->states + row * units,
                                s->grad + row * units, s->grad_state + row * units, s->grad_input + row * gates,
                                s->grad_hidden + row * gates);
  }
}

/* Gradients and what they are computed from, of all rows; of one step: the gradient of the cells' output and the part
 * that a state gets beside the weight. */
typedef struct gradients {
  const char *grad_output, *output, *kept, *hx;
  char *gates, *hidden, *hn, *cn, *rows, *states, *unprojected; /* results, in the row's order */
  char *by_cells, *beside;
} gradients;

/* to += from */
static void add(const layer *l, char *to, const char *from, int64_t n) {
  if (l->type == WK__GEMM_F64)
    for (int64_t i = 0; i < n; i++) ((double *)to)[i] += ((const double *)from)[i];
  else
    for (int64_t i = 0; i < n; i++) ((float *)to)[i] += ((const float *)from)[i];
}

/* The cells' outputs, which a projection hides. */
static void unproject(const layer *l, const gradients *g, int64_t first, int64_t rows) {
  size_t units = (size_t)l->units * l->size, at = (size_t)first;
  const char *kept = g->kept + at * (size_t)l->keeps * units;
  for (int64_t r = 0; r < rows; r++, kept += (size_t)l->keeps * units)
    l->cells->lstm_output(l->units, kept, g->unprojected + (at + (size_t)r) * units);
}

/* The states that the rows of a step began with: the outputs of the step before it, or hx. */
static void fill_states(const layer *l, const gradients *g, int64_t step, int64_t first) {
  size_t outputs = (size_t)l->outputs * l->size;
  int64_t rows = rows_of(l, step), before = l->reverse ? step + 1 : step - 1, known = 0, begin = 0;
  if (before >= 0 && before < l->steps) {
    known = wk__min(rows, rows_of(l, before));
    begin = l->reverse ? first + rows : first - rows_of(l, before);
  }
  char *states = g->states + (size_t)first * outputs;
  memcpy(states, g->output + (size_t)begin * outputs, (size_t)known * outputs);
  memcpy(states + (size_t)known * outputs, g->hx + (size_t)known * outputs, (size_t)(rows - known) * outputs);
}

static wk_status backward_at(const layer *l, const gradients *g, int64_t step, int64_t first) {
  int64_t rows = rows_of(l, step);
  size_t at = (size_t)first, units = (size_t)l->units * l->size, outputs = (size_t)l->outputs * l->size;
  bool lstm = l->mode == WK__RNN_LSTM;
  char *gates = g->gates + at * (size_t)l->gates * units, *by_cells = g->hn;
  char *hidden = l->mode == WK__RNN_GRU ? g->hidden + at * (size_t)l->gates * units : gates;
  fill_states(l, g, step, first);
  if (g->grad_output) add(l, g->hn, g->grad_output + at * outputs, rows * l->outputs);
  if (l->projection.data) {
    memcpy(g->rows + at * outputs, g->hn, (size_t)rows * outputs);
    by_cells = g->by_cells;
    WK_TRY(product(l, rows, g->hn, &l->projection, by_cells, NULL));
    unproject(l, g, first, rows);
  }
  backward_step s = {l,
                     g->kept + at * (size_t)l->keeps * units,
                     g->output + at * units,
                     g->states + at * units,
                     by_cells,
                     lstm ? g->cn : g->beside,
                     gates,
                     hidden};
  wk__parallel_for(rows, 1 + GRAIN / (l->units + 1), backward_rows, &s);
  WK_TRY(product(l, rows, hidden, &l->weight, g->hn, NULL));
  if (l->mode == WK__RNN_GRU) add(l, g->hn, g->beside, rows * l->units);
  return WK_OK;
}

static wk_status backward(const layer *l, const gradients *g, int64_t rows) {
  int64_t first = l->reverse ? 0 : rows;
  for (int64_t k = 0; k < l->steps; k++) {
    int64_t step = l->reverse ? k : l->steps - 1 - k;
    if (!l->reverse) first -= rows_of(l, step);
    WK_TRY(backward_at(l, g, step, first));
    if (l->reverse) first += rows_of(l, step);
  }
  return WK_OK;
}

/* A buffer's gradients at the end of the sequence: given, or zeros. */
static void begin_with(wk_tensor *out, const wk_tensor *given) {
  size_t bytes = (size_t)wk__numel(out) * wk_dtype_size((wk_dtype)out->dtype);
  if (given)
    memcpy(wk__data(out), wk__data(given), bytes);
  else
    memset(wk__data(out), 0, bytes);
}

#define GIVEN(name) plain(wk__arg_tensor(c, WK__ARG(_rnn_layer_backward, name)))
#define OUT(r) ((char *)wk__data(c->outputs[r]))

static wk_status run_backward(wk__call *c) {
  wk_tensor *hx = GIVEN(hx), *weight = GIVEN(weight), *projection = GIVEN(projection), *sizes = GIVEN(batch_sizes);
  wk_tensor *grad_output = GIVEN(grad_output), *grad_hn = GIVEN(grad_hn), *grad_cn = GIVEN(grad_cn);
  wk_tensor *output = GIVEN(output), *kept = GIVEN(kept);
  layer l;
  if (!hx || !weight || !output || !kept) return wk_error_category();
  int64_t rows = wk__size(output, 0);
  WK_TRY(describe(&l, c->args[WK__ARG(_rnn_layer_backward, mode)].string,
                  wk__arg_bool(c, WK__ARG(_rnn_layer_backward, reverse)), hx, weight, projection, sizes, rows));
  size_t units = (size_t)(l.sequences * l.units) * l.size;
  l.weight = transposed(&l.weight), l.projection = transposed(&l.projection);
  char *space = wk__workspace_get(WK__WORKSPACE_KERNEL, 2 * units + panels_bytes(&l, &l.weight) + 1);
  if (!space) return wk_error_category();
  lay_out(&l, &l.weight, space + 2 * units);
  begin_with(c->outputs[2], grad_hn);
  begin_with(c->outputs[3], grad_cn);
  gradients g = {data_or_null(grad_output),
                 (char *)wk__data(output),
                 (char *)wk__data(kept),
                 (char *)wk__data(hx),
                 OUT(0),
                 OUT(1),
                 OUT(2),
                 OUT(3),
                 OUT(4),
                 OUT(5),
                 OUT(6),
                 space,
                 space + units};
  return backward(&l, &g, rows);
}

wk_status wk__cpu_rnn_layer_backward(wk__call *c) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = run_backward(c);
  wk_scope_end(&scope);
  return status;
}
