/* oneDNN's matrix products: see onednn.h.
 *
 * In: a wk__gemm that it takes. Out: its C, cut into as many parts as there are threads, matrices of a batch first. */
#include "cpu/gemm/onednn.h"

#include <dlfcn.h>
#include <pthread.h>

/* Row-major: C (m, n) = alpha op(A) op(B) + beta C. 0 is success. */
typedef int sgemm_fn(char transa, char transb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                     int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

/* The library's threads are OpenMP's in most builds; their number belongs to the calling thread. */
static struct {
  sgemm_fn *sgemm;
  int (*get_threads)(void);
  void (*set_threads)(int);
} library;

static void load(void) {
  static const char *const names[] = {"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so.1", "libdnnl.so"};
  void *handle = NULL;
  for (size_t i = 0; i < WK_COUNT(names) && !handle; i++) handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (!handle) return;
  *(void **)&library.get_threads = dlsym(handle, "omp_get_max_threads");
  *(void **)&library.set_threads = dlsym(handle, "omp_set_num_threads");
  *(void **)&library.sgemm = dlsym(handle, "dnnl_sgemm");
}

bool wk__onednn_is_there(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  return library.sgemm != NULL;
}

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
  if (library.sgemm(j->a.letter, j->b.letter, rows, g->n, g->k, (float)g->alpha, a, j->a.step,
                    (const float *)g->b + batch * g->b_batch, j->b.step, (float)g->beta, c, g->c_row))
    return false;
  if (g->row) add_to_rows(c, g->c_row, rows, g->row, g->n);
  const wk__gemm_tile tile = {batch, row, 0, rows, g->n, c, g->c_row};
  if (g->epilogue) g->epilogue(g->epilogue_context, &tile);
  return true;
}

static void run_parts(void *context, int64_t begin, int64_t end) {
  job *j = context;
  int threads = library.get_threads && library.set_threads ? library.get_threads() : 0;
  if (threads) library.set_threads(1);
  for (int64_t i = begin; i < end; i++) {
    int64_t row = i % j->parts * j->part_rows;
    if (!run_part(j, i / j->parts, row, wk__min(j->part_rows, j->g->m - row))) atomic_store(&j->failed, true);
  }
  if (threads) library.set_threads(threads);
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
