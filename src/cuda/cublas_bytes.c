/* Products of bytes by cuBLASLt, prepared once for a kind.
 *
 * It counts columns first: our C (m, n) is its (n, m), whose first operand is B as it lies, transposed, and whose
 * second is A. That is the one layout that it takes of bytes everywhere. Tests: tests/cuda/test_byte_products.py. */
#include "cuda/cublas_bytes.h"

#include "cuda/cublas_lt.h"
#include "cuda/recording.h"

typedef struct plan {
  wk__cuda_prepared head;
  wk__cuda_byte_product key; /* without addresses */
  wk__cublas_kind kind;
  wk__cublas_algorithm best;
} plan;

static int data_type(int dtype) {
  switch (dtype) {
    case WK_FLOAT8_E4M3:
      return WK__CUBLAS_R_8F_E4M3;
    case WK_FLOAT8_E5M2:
      return WK__CUBLAS_R_8F_E5M2;
    case WK_INT8:
      return WK__CUBLAS_R_8I;
    case WK_INT32:
      return WK__CUBLAS_R_32I;
    case WK_FLOAT16:
      return WK__CUBLAS_R_16F;
    case WK_BFLOAT16:
      return WK__CUBLAS_R_16BF;
    case WK_FLOAT32:
      return WK__CUBLAS_R_32F;
    default:
      return -1;
  }
}
static bool is_whole(const wk__cuda_byte_product *p) { return p->a_type == WK_INT8; }

/* ---- a kind, prepared ---- */

static bool set(void *desc, int attribute, const void *value, size_t bytes) {
  return !wk__cublas_lt()->cublasLtMatmulDescSetAttribute(desc, attribute, value, bytes);
}
static bool set_number(void *desc, int attribute, int value) { return set(desc, attribute, &value, sizeof value); }
static bool set_address(void *desc, int attribute, uint64_t value) {
  return set(desc, attribute, &value, sizeof value);
}

static bool set_addresses(void *desc, uint64_t scale_of_b, uint64_t scale_of_a, uint64_t row) {
  if (scale_of_b && !set_address(desc, WK__CUBLAS_DESC_A_SCALE_POINTER, scale_of_b)) return false;
  if (scale_of_a && !set_address(desc, WK__CUBLAS_DESC_B_SCALE_POINTER, scale_of_a)) return false;
  return !row || set_address(desc, WK__CUBLAS_DESC_BIAS_POINTER, row);
}

/* What it is asked before there are addresses is said of some that are aligned as memory is. */
static bool make_desc(plan *p) {
  enum { SOMEWHERE = 4096 };
  const wk__cuda_byte_product *k = &p->key;
  int compute = is_whole(k) ? WK__CUBLAS_COMPUTE_32I : WK__CUBLAS_COMPUTE_32F;
  int of_scales = is_whole(k) ? WK__CUBLAS_R_32I : WK__CUBLAS_R_32F;
  int8_t fast = (int8_t)k->fast;
  if (wk__cublas_lt()->cublasLtMatmulDescCreate(&p->kind.desc, compute, of_scales)) return false;
  if (!set_number(p->kind.desc, WK__CUBLAS_DESC_TRANSA, 1) || !set_number(p->kind.desc, WK__CUBLAS_DESC_TRANSB, 0))
    return false;
  if (is_whole(k)) return true;
  if (!set(p->kind.desc, WK__CUBLAS_DESC_FAST_ACCUM, &fast, sizeof fast)) return false;
  if (k->scales_rows && (!set_number(p->kind.desc, WK__CUBLAS_DESC_A_SCALE_MODE, WK__CUBLAS_SCALE_OUTER_VEC_32F) ||
                         !set_number(p->kind.desc, WK__CUBLAS_DESC_B_SCALE_MODE, WK__CUBLAS_SCALE_OUTER_VEC_32F)))
    return false;
  if (k->row && (!set_number(p->kind.desc, WK__CUBLAS_DESC_EPILOGUE, WK__CUBLAS_EPILOGUE_BIAS) ||
                 !set_number(p->kind.desc, WK__CUBLAS_DESC_BIAS_DATA_TYPE, data_type(k->row_type))))
    return false;
  return set_addresses(p->kind.desc, SOMEWHERE, SOMEWHERE, k->row ? SOMEWHERE : 0);
}

static bool make_layout(void **layout, int dtype, int64_t rows, int64_t columns, int64_t leading) {
  return !wk__cublas_lt()->cublasLtMatrixLayoutCreate(layout, data_type(dtype), (uint64_t)rows, (uint64_t)columns,
                                                      leading);
}

static bool prepare(wk__cuda_prepared *entry) {
  plan *p = (plan *)entry;
  const wk__cuda_byte_product *k = &p->key;
  return make_layout(&p->kind.first, k->b_type, k->k, k->n, k->b_column) &&
         make_layout(&p->kind.second, k->a_type, k->k, k->m, k->a_row) &&
         make_layout(&p->kind.result, k->c_type, k->n, k->m, k->n) && make_desc(p) &&
         wk__cublas_ask(&p->kind, 1, &p->best) > 0;
}

static void release(wk__cuda_prepared *entry) { wk__cublas_release(&((plan *)entry)->kind); }

static wk__cuda_preparations plans = {.entry_bytes = sizeof(plan),
                                      .key_bytes = sizeof(wk__cuda_byte_product),
                                      .prepare = prepare,
                                      .release = release,
                                      .lock = PTHREAD_MUTEX_INITIALIZER};

static wk__cuda_byte_product key_of(const wk__cuda_byte_product *p) {
  wk__cuda_byte_product key = *p;
  key.a = key.b = key.c = key.scale_a = key.scale_b = 0;
  key.row = p->row ? 1 : 0;
  return key;
}

/* ---- running ---- */

typedef struct giving {
  const wk__cuda_byte_product *product;
  const plan *plan;
  void *workspace;
} giving;

static bool give(void *context, CUstream stream) {
  const giving *g = context;
  const wk__cuda_byte_product *p = g->product;
  const plan *made = g->plan;
  const float one = 1, zero = 0;
  const int32_t whole_one = 1, whole_zero = 0;
  const void *alpha = is_whole(p) ? (const void *)&whole_one : &one,
             *beta = is_whole(p) ? (const void *)&whole_zero : &zero;
  if (!is_whole(p) && !set_addresses(made->kind.desc, p->scale_b, p->scale_a, p->row)) return false;
  wk__cublas_product product = {alpha, beta, p->b, p->a, p->c, g->workspace};
  return wk__cublas_multiply(&made->kind, &made->best, &product, stream);
}

static bool give_product(wk__cuda_stream *s, const wk__cuda_byte_product *p, const plan *made, void *workspace) {
  uint64_t of[] = {p->a, p->b, p->c, p->row, p->scale_a, p->scale_b, (uint64_t)(uintptr_t)workspace};
  wk__cuda_address addresses[WK_COUNT(of)];
  int count = 0;
  for (size_t i = 0; i < WK_COUNT(of); i++)
    if (of[i]) addresses[count++] = (wk__cuda_address){0, of[i]};
  giving g = {p, made, workspace};
  return wk__cuda_give_library(s, addresses, count, give, &g);
}

/* Rows in pieces of 16 bytes, of integers in words: what the library's kernels read. Results of float8 are ours: the
 * library wants a scale of the result for them. */
static bool fits(const wk__cuda_byte_product *p) {
  int64_t unit = is_whole(p) ? 4 : 16;
  if (data_type(p->a_type) < 0 || data_type(p->b_type) < 0 || data_type(p->c_type) < 0) return false;
  if (p->c_type == WK_FLOAT8_E4M3 || p->c_type == WK_FLOAT8_E5M2) return false;
  bool lies = ((p->a | p->b | p->c) & 15) == 0 && p->a_row % unit == 0 && p->b_column % unit == 0;
  return lies && p->m > 0 && p->n > 0 && p->k > 0 && p->n % unit == 0 && p->k % unit == 0;
}

wk_status wk__cublas_run_bytes(wk__cuda_stream *s, const wk__cuda_byte_product *product, bool *out_done) {
  int64_t capacity;
  void *workspace = NULL;
  *out_done = false;
  if (!fits(product) || !wk__cublas_lt()) return WK_OK;
  WK_TRY(wk__cuda_enter(s->device));
  pthread_mutex_lock(&plans.lock);
  wk__cuda_byte_product key = key_of(product);
  plan *p = (plan *)wk__cuda_prepared_for(&plans, &key, s->device->index);
  bool usable = p && p->head.usable;
  if (usable && p->best.workspace && !(workspace = wk__cuda_allocate(&s->head, (int64_t)p->best.workspace, &capacity)))
    usable = false;
  if (usable) *out_done = give_product(s, product, p, workspace);
  pthread_mutex_unlock(&plans.lock);
  if (workspace) wk__cuda_release(&s->head, workspace, capacity);
  wk_error_clear();
  return WK_OK;
}
