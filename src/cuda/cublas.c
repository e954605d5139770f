/* Products of floats by cuBLASLt. What it thinks best for a shape is asked once and kept in a table; what it thinks
 * next best, when that is to be timed (product_ways.c).
 *
 * It counts columns first: our row-major C (m, n) is its C' (n, m), so B and A change places. An operand is given as it
 * lies where one of its strides is 1. Tests: tests/cuda/test_products.py. */
#include "cuda/cublas.h"

#include "cuda/cublas_lt.h"
#include "cuda/recording.h"
#include "cuda/tier0.h"

/* ---- a kind of product, prepared ---- */

typedef struct operand {
  bool transposed;
  int64_t rows, columns, leading, batch_stride; /* as the library counts them */
} operand;

typedef struct plan {
  wk__cuda_prepared head;
  wk__cuda_product key; /* without addresses */
  wk__cublas_kind kind;
  wk__cublas_algorithm ways[WK__CUBLAS_WAYS]; /* the best first */
  int way_count;
} plan;

/* A row-major (rows, columns) operand by its strides. False: neither stride is 1. */
static bool describe(int64_t rows, int64_t columns, int64_t row, int64_t column, int64_t batch, operand *out) {
  bool by_rows = column == 1 || columns == 1, by_columns = row == 1 || rows == 1;
  if (by_rows && row >= wk__max(columns, 1)) {
    *out = (operand){false, columns, rows, row, batch};
    return true;
  }
  if (by_columns && column >= wk__max(rows, 1)) {
    *out = (operand){true, rows, columns, column, batch};
    return true;
  }
  if (by_rows && rows == 1) {
    *out = (operand){false, columns, rows, columns, batch};
    return true;
  }
  return false;
}

static int data_type(int type) {
  return type == WK__MEMORY_F32   ? WK__CUBLAS_R_32F
         : type == WK__MEMORY_F64 ? WK__CUBLAS_R_64F
         : type == WK__MEMORY_F16 ? WK__CUBLAS_R_16F
                                  : WK__CUBLAS_R_16BF;
}

static bool make_layout(void **layout, int type, const operand *o, int64_t batch) {
  const wk__cublas_functions *lt = wk__cublas_lt();
  int count = (int)batch;
  if (lt->cublasLtMatrixLayoutCreate(layout, type, (uint64_t)o->rows, (uint64_t)o->columns, o->leading)) return false;
  if (batch == 1) return true;
  return !lt->cublasLtMatrixLayoutSetAttribute(*layout, WK__CUBLAS_LAYOUT_BATCH_COUNT, &count, sizeof count) &&
         !lt->cublasLtMatrixLayoutSetAttribute(*layout, WK__CUBLAS_LAYOUT_BATCH_STRIDE, &o->batch_stride,
                                               sizeof o->batch_stride);
}

static bool make_desc(plan *p, bool first_transposed, bool second_transposed) {
  const wk__cublas_functions *lt = wk__cublas_lt();
  bool wide = p->key.type == WK__MEMORY_F64;
  int compute = wide                                           ? WK__CUBLAS_COMPUTE_64F
                : p->key.tf32 && p->key.type == WK__MEMORY_F32 ? WK__CUBLAS_COMPUTE_32F_TF32
                                                               : WK__CUBLAS_COMPUTE_32F;
  int first = first_transposed, second = second_transposed, epilogue = WK__CUBLAS_EPILOGUE_BIAS;
  if (lt->cublasLtMatmulDescCreate(&p->kind.desc, compute, wide ? WK__CUBLAS_R_64F : WK__CUBLAS_R_32F)) return false;
  if (lt->cublasLtMatmulDescSetAttribute(p->kind.desc, WK__CUBLAS_DESC_TRANSA, &first, sizeof first)) return false;
  if (lt->cublasLtMatmulDescSetAttribute(p->kind.desc, WK__CUBLAS_DESC_TRANSB, &second, sizeof second)) return false;
  return !p->key.row ||
         !lt->cublasLtMatmulDescSetAttribute(p->kind.desc, WK__CUBLAS_DESC_EPILOGUE, &epilogue, sizeof epilogue);
}

static bool prepare(wk__cuda_prepared *entry) {
  plan *p = (plan *)entry;
  const wk__cuda_product *k = &p->key;
  operand a, b, c = {false, k->n, k->m, k->c_row, k->c_batch};
  int type = data_type(k->type);
  if (k->row && k->type == WK__MEMORY_F64) return false; /* no such epilogue */
  if (!describe(k->m, k->k, k->a_row, k->a_column, k->a_batch, &a)) return false;
  if (!describe(k->k, k->n, k->b_row, k->b_column, k->b_batch, &b)) return false;
  return make_layout(&p->kind.first, type, &b, k->batch) && make_layout(&p->kind.second, type, &a, k->batch) &&
         make_layout(&p->kind.result, type, &c, k->batch) && make_desc(p, b.transposed, a.transposed) &&
         (p->way_count = wk__cublas_ask(&p->kind, 1, p->ways)) > 0;
}

static void release(wk__cuda_prepared *entry) { wk__cublas_release(&((plan *)entry)->kind); }

static wk__cuda_preparations plans = {.entry_bytes = sizeof(plan),
                                      .key_bytes = sizeof(wk__cuda_product),
                                      .prepare = prepare,
                                      .release = release,
                                      .lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- running ---- */

typedef struct giving {
  const wk__cuda_product *product;
  plan *plan;
  const wk__cublas_algorithm *way;
  void *workspace;
} giving;

static bool give(void *context, CUstream stream) {
  const wk__cublas_functions *lt = wk__cublas_lt();
  const giving *g = context;
  const wk__cuda_product *p = g->product;
  plan *made = g->plan;
  double wide[2] = {p->alpha, p->beta};
  float narrow[2] = {(float)p->alpha, (float)p->beta};
  bool is_wide = p->type == WK__MEMORY_F64;
  const void *alpha = is_wide ? (void *)&wide[0] : &narrow[0], *beta = is_wide ? (void *)&wide[1] : &narrow[1];
  if (p->row &&
      lt->cublasLtMatmulDescSetAttribute(made->kind.desc, WK__CUBLAS_DESC_BIAS_POINTER, &p->row, sizeof p->row))
    return false;
  wk__cublas_product product = {alpha, beta, p->b, p->a, p->c, g->workspace};
  return wk__cublas_multiply(&made->kind, g->way, &product, stream);
}

static bool give_product(wk__cuda_stream *s, const wk__cuda_product *p, plan *made, const wk__cublas_algorithm *way,
                         void *workspace) {
  uint64_t of[] = {p->a, p->b, p->c, p->row, (uint64_t)(uintptr_t)workspace};
  wk__cuda_address addresses[WK_COUNT(of)];
  int count = 0;
  for (size_t i = 0; i < WK_COUNT(of); i++)
    if (of[i]) addresses[count++] = (wk__cuda_address){0, of[i]};
  giving g = {p, made, way, workspace};
  return wk__cuda_give_library(s, addresses, count, give, &g);
}

/* The others are asked for with the first of them. NULL: there are not so many. */
static const wk__cublas_algorithm *way_of(plan *p, int way) {
  if (way >= p->way_count && p->way_count == 1)
    p->way_count = wk__max(1, wk__cublas_ask(&p->kind, WK__CUBLAS_WAYS, p->ways));
  return way < p->way_count ? &p->ways[way] : NULL;
}

wk_status wk__cublas_run(wk__cuda_stream *s, const wk__cuda_product *product, int number, bool *out_done) {
  int64_t capacity;
  void *workspace = NULL;
  *out_done = false;
  if (product->batch > INT32_MAX || !wk__cublas_lt()) return WK_OK;
  pthread_mutex_lock(&plans.lock);
  wk__cuda_product key = wk__cuda_product_kind(product);
  plan *p = (plan *)wk__cuda_prepared_for(&plans, &key, s->device->index);
  const wk__cublas_algorithm *way = p && p->head.usable ? way_of(p, number) : NULL;
  if (way && way->workspace && !(workspace = wk__cuda_allocate(&s->head, (int64_t)way->workspace, &capacity)))
    way = NULL;
  if (way) *out_done = give_product(s, product, p, way, workspace);
  pthread_mutex_unlock(&plans.lock);
  if (workspace) wk__cuda_release(&s->head, workspace, capacity);
  wk_error_clear();
  return WK_OK;
}
