/* oneDNN's matrix products: see onednn.h.
 *
 * In: a wk__gemm that it takes. Out: its C, cut into as many parts as there are threads, matrices of a batch first. */
#include "cpu/gemm/onednn.h"

#include "cpu/gemm/onednn_library.h"

bool wk__onednn_is_there(void) { return wk__onednn_get() != NULL; }

/* How an operand lies: by rows, or transposed, and how far apart. */
typedef struct lie {
  char letter;
  int64_t step;
} lie;

static bool lies(int64_t rows, int64_t columns, int64_t row, int64_t column, lie *out) {
  if (column == 1 && row >= columns)
    *out = (lie){'N', row};
  else if (row == 1 && column >= rows)
    *out = (lie){'T', column};
  else
    return false;
  return true;
}

bool wk__onednn_takes(const wk__gemm *g) {
  lie a, b;
  return g->type == WK__GEMM_F32 && !g->make_a && !g->make_b && g->alpha != 0 && g->k > 0 &&
         lies(g->m, g->k, g->a_row, g->a_column, &a) && lies(g->k, g->n, g->b_row, g->b_column, &b) &&
         wk__onednn_is_there();
}

typedef struct job {
  const wk__gemm *g;
  lie a, b;
  int64_t parts, part_rows; /* of one matrix */
  _Atomic bool failed;
} job;

static void add_to_rows(float *c, int64_t c_row, int64_t rows, const float *row, int64_t n) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < n; j++) c[i * c_row + j] += row[j];
}

/* Rows [row, row + rows) of one matrix. */
static bool run_part(const job *j, int64_t batch, int64_t row, int64_t rows) {
  const wk__gemm *g = j->g;
  const float *a = (const float *)g->a + batch * g->a_batch + row * g->a_row;
  float *c = (float *)g->c + batch * g->c_batch + row * g->c_row;
  if (wk__onednn_get()->sgemm(j->a.letter, j->b.letter, rows, g->n, g->k, (float)g->alpha, a, j->a.step,
                              (const float *)g->b + batch * g->b_batch, j->b.step, (float)g->beta, c, g->c_row))
    return false;
  if (g->row) add_to_rows(c, g->c_row, rows, (const float *)g->row + batch * g->row_batch, g->n);
  const wk__gemm_tile tile = {batch, row, 0, rows, g->n, c, g->c_row};
  if (g->epilogue) g->epilogue(g->epilogue_context, &tile);
  return true;
}

static void run_parts(void *context, int64_t begin, int64_t end) {
  job *j = context;
  const wk__onednn_library *l = wk__onednn_get();
  int threads = l->get_threads && l->set_threads ? l->get_threads() : 0;
  if (threads) l->set_threads(1);
  for (int64_t i = begin; i < end; i++) {
    int64_t row = i % j->parts * j->part_rows;
    if (!run_part(j, i / j->parts, row, wk__min(j->part_rows, j->g->m - row))) atomic_store(&j->failed, true);
  }
  if (threads) l->set_threads(threads);
}

wk_status wk__onednn_run(const wk__gemm *g) {
  int64_t threads = wk_get_num_threads();
  job j = {.g = g, .part_rows = g->m};
  (void)lies(g->m, g->k, g->a_row, g->a_column, &j.a);
  (void)lies(g->k, g->n, g->b_row, g->b_column, &j.b);
  if (g->batch < threads) j.part_rows = wk__ceil_div(g->m, wk__ceil_div(threads, g->batch));
  j.parts = wk__ceil_div(g->m, j.part_rows);
  wk__parallel_for(g->batch * j.parts, 1, run_parts, &j);
  return atomic_load(&j.failed) ? wk_fail(WK_OUT_OF_MEMORY, "oneDNN: out of memory") : WK_OK;
}
