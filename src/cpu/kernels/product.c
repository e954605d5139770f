/* Matrix products on the CPU. mm, bmm, addmm and linear call the GEMM with the tensors' own strides, so transposed and
 * broadcast operands are never copied. Types that the GEMM does not know are converted: small floats are multiplied in
 * f32, integers in f64 where that is exact and by a plain loop where it may not be.
 * Tests: tests/ops/, tests/c/test_gemm.c, tests/python/test_matmul.py. */
#include "cpu/kernels/product.h"

#include "cpu/kernels.h"
#include "cpu/kernels/in_scope.h"
#include "cpu/quant/quant.h"
#include "ops/internal.h"
#include "ops/rules/grouped_mm.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

static wk_value retained(wk_tensor *t) { return wk__v_tensor(wk__retain(t)); }

/* The tensor in a dtype that the GEMM adds in: itself, or an f32 copy of a small float (f64 of an integer). Owned. */
static wk_status in_gemm_dtype(wk_tensor *t, wk_value *out) {
  if (t->dtype == WK_FLOAT32 || t->dtype == WK_FLOAT64) {
    *out = retained(t);
    return WK_OK;
  }
  wk_dtype wide = wk_dtype_is_floating((wk_dtype)t->dtype) ? WK_FLOAT32 : WK_FLOAT64;
  return wk__compute(WK__OP(_to_copy), (wk_value[]){wk__v_tensor(t), wk__v_dtype(wide), NONE}, NULL, out);
}

typedef struct matrices { /* strides in elements; batch strides 0 where there is one matrix */
  int64_t batch, m, n, k, a_batch, a_row, a_column, b_batch, b_row, b_column;
  double alpha, beta;
  int64_t whole_alpha, whole_beta; /* the same for integers, which a double may not hold */
  const void *row;                 /* (n) of out's dtype, added to every row at the end; NULL for none */
  bool is_linear;                  /* b is a weight, transposed */
  const wk__product_hooks *hooks;  /* or NULL */
} matrices;

/* Puts the function in the operand's place. */
static void make_operand(const matrices *p, wk__gemm *g, wk__gemm_maker *maker) {
  const wk__product_hooks *h = p->hooks;
  *maker = (wk__gemm_maker){h->make, h->context, .transposed = h->transposed != (h->made == 1 && p->is_linear)};
  if (h->made == 0) {
    maker->batch_rows = maker->transposed ? g->k : g->m;
    g->make_a = maker, g->a = NULL, g->a_row = g->a_column = g->a_batch = 0;
  } else {
    maker->batch_rows = maker->transposed ? g->n : g->k;
    g->make_b = maker, g->b = NULL, g->b_row = g->b_column = g->b_batch = 0;
  }
}

/* NULL for what will be made */
static const void *data_of(const wk_tensor *t) { return t->storage ? wk__data(t) : NULL; }

static wk__gemm_type type_of(const wk_tensor *t) {
  if (t->dtype == WK_BFLOAT16) return WK__GEMM_BF16;
  return t->dtype == WK_FLOAT64 ? WK__GEMM_F64 : WK__GEMM_F32;
}

/* out, contiguous (batch, m, n), = beta out + alpha a b. a and b are of one of the GEMM's types, out of what that adds
 * in.
 */
static wk_status gemm(const matrices *p, const wk_tensor *a, const wk_tensor *b, wk_tensor *out) {
  wk__gemm g = {.type = type_of(a),
                .m = p->m,
                .n = p->n,
                .k = p->k,
                .a = data_of(a),
                .a_row = p->a_row,
                .a_column = p->a_column,
                .b = data_of(b),
                .b_row = p->b_row,
                .b_column = p->b_column,
                .c = wk__data(out),
                .c_row = p->n,
                .alpha = p->alpha,
                .beta = p->beta,
                .row = p->row,
                .batch = p->batch,
                .a_batch = p->a_batch,
                .b_batch = p->b_batch,
                .c_batch = p->m * p->n};
  wk__gemm_maker maker;
  if (p->hooks && p->hooks->make) make_operand(p, &g, &maker);
  if (p->hooks) g.epilogue = p->hooks->after, g.epilogue_context = p->hooks->context;
  return wk__gemm_run(&g);
}

static double largest(const wk_tensor *t) { /* of an f64 tensor without gaps */
  const double *x = (const double *)wk__data(t);
  double most = 0;
  for (int64_t i = 0; i < wk__numel(t); i++) {
    double size = x[i] < 0 ? -x[i] : x[i];
    most = size > most ? size : most;
  }
  return most;
}

/* No sum of products leaves the integers that f64 has. */
static bool exact_in_f64(const matrices *p, const wk_tensor *a, const wk_tensor *b, const wk_tensor *out) {
  double alpha = p->alpha < 0 ? -p->alpha : p->alpha, beta = p->beta < 0 ? -p->beta : p->beta;
  double most = alpha * (double)p->k * largest(a) * largest(b) + (beta > 0 ? beta * largest(out) : 0);
  return most < 0x1p53;
}

/* out, i64, = beta out + alpha a b, modulo 2^64 as machines multiply. */
static void multiply_integers(const matrices *p, const wk_tensor *a, const wk_tensor *b, wk_tensor *out) {
  const uint64_t *x = (const uint64_t *)wk__data(a), *y = (const uint64_t *)wk__data(b);
  uint64_t *z = (uint64_t *)wk__data(out), alpha = (uint64_t)p->whole_alpha, beta = (uint64_t)p->whole_beta;
  for (int64_t g = 0; g < p->batch; g++)
    for (int64_t i = 0; i < p->m; i++, z += p->n) {
      for (int64_t j = 0; j < p->n; j++) z[j] = beta ? z[j] * beta : 0;
      for (int64_t l = 0; l < p->k; l++) {
        uint64_t factor = alpha * x[g * p->a_batch + i * p->a_row + l * p->a_column];
        const uint64_t *row = y + g * p->b_batch + l * p->b_row;
        for (int64_t j = 0; j < p->n; j++) z[j] += factor * row[j * p->b_column];
      }
    }
}

static wk_status converted(wk_tensor *t, wk_dtype dtype, wk_value *out) {
  return wk__compute(WK__OP(_to_copy), (wk_value[]){wk__v_tensor(t), wk__v_dtype(dtype), NONE}, NULL, out);
}

static wk_status multiply_as_integers(const matrices *p, wk_tensor *a, wk_tensor *b, wk_tensor *out) {
  wk_value wide[3] = {{0}};
  wk_status status = converted(a, WK_INT64, &wide[0]);
  if (status == WK_OK) status = converted(b, WK_INT64, &wide[1]);
  if (status == WK_OK) status = converted(out, WK_INT64, &wide[2]);
  if (status == WK_OK) multiply_integers(p, wide[0].tensor, wide[1].tensor, wide[2].tensor);
  if (status == WK_OK) status = wk__copy_into(out, wide[2].tensor);
  for (int i = 0; i < 3; i++) wk_value_release(&wide[i]);
  return status;
}

/* Of a type that the GEMM takes */
static bool is_gemm_dtype(const wk_tensor *t) {
  return t->dtype == WK_FLOAT32 || t->dtype == WK_FLOAT64 || t->dtype == WK_BFLOAT16;
}

/* A matrix that `multiply` may convert with its strides: itself, or a copy (kept in `owned`) of one that has gaps or is
 * broadcast. The GEMM's own types need none. Borrowed; NULL with the error set. */
static wk_tensor *operand(wk_tensor *t, wk_tensor **owned) {
  if (is_gemm_dtype(t) || !t->storage || wk__non_overlapping_and_dense(t)) return t;
  wk_value copy = {0}, format = {.tag = WK_VALUE_STRING, .string = "contiguous_format"};
  if (wk__compute(WK__OP(clone), (wk_value[]){wk__v_tensor(t), format}, NULL, &copy)) return NULL;
  return *owned = copy.tensor;
}

static wk_status refuse_bool(const wk__call *c, const wk_tensor *t) {
  if (t->dtype != WK_BOOL) return WK_OK;
  const char *name = c->op == WK__OP(bmm) ? "bmm" : "addmm_impl_cpu_";
  return wk_fail(WK_NOT_IMPLEMENTED, "\"%s\" not implemented for 'Bool'", name);
}

/* A few rows of bfloat16 and a weight whose rows have no gaps: it is read as it lies, and its sums are those of
 * quant.h. */
static bool few_of_bf16(const matrices *p, const wk_tensor *a, const wk_tensor *b, const wk_tensor *out) {
  int columns = wk__block_sizes[WK__QUANT_BF16].elements;
  return out->dtype == WK_BFLOAT16 && a->dtype == WK_BFLOAT16 && b->dtype == WK_BFLOAT16 && !p->hooks &&
         p->batch == 1 && p->alpha == 1 && p->m <= WK__BF16_FEW_ROWS && p->k > 0 && p->k % columns == 0 &&
         p->a_column == 1 && (p->a_row == p->k || p->m == 1) && p->b_row == 1 && p->b_column == p->k;
}

/* out + beta added, both of float without gaps */
static void add_scaled(wk_tensor *out, double beta, const wk_tensor *added) {
  float *y = (float *)wk__data(out);
  const float *x = (const float *)wk__data(added);
  for (int64_t i = 0, count = wk__numel(out); i < count; i++) y[i] += (float)beta * x[i];
}

static wk_status multiply_few_bf16(const matrices *p, wk_tensor *a, const wk_tensor *b, wk_tensor *out) {
  wk__packed_weight w = {.format = WK__QUANT_BF16, .n = p->n, .k = p->k, .data = wk__data(b)};
  wk_value rows = {0}, sums = {0}, added = {0};
  wk_status status = in_gemm_dtype(a, &rows);
  if (status == WK_OK) status = in_gemm_dtype(out, &sums);
  if (status == WK_OK && p->beta != 0) status = in_gemm_dtype(out, &added);
  if (status == WK_OK)
    status = wk__quant_weights(&w, p->m, (const float *)wk__data(rows.tensor), NULL, (float *)wk__data(sums.tensor));
  if (status == WK_OK && p->beta != 0) add_scaled(sums.tensor, p->beta, added.tensor);
  if (status == WK_OK) status = wk__copy_into(out, sums.tensor);
  wk_value_release(&rows);
  wk_value_release(&sums);
  wk_value_release(&added);
  return status;
}

static wk_status multiply_bf16(const matrices *p, const wk_tensor *a, const wk_tensor *b, wk_tensor *out) {
  wk_value sums = {0};
  WK_TRY(in_gemm_dtype(out, &sums));
  wk_status status = gemm(p, a, b, sums.tensor);
  if (status == WK_OK) status = wk__copy_into(out, sums.tensor);
  wk_value_release(&sums);
  return status;
}

/* The same for any dtype of `out`; a and b are operands. */
static wk_status multiply(const matrices *p, wk_tensor *a, wk_tensor *b, wk_tensor *out) {
  if (out->dtype == WK_FLOAT32 || out->dtype == WK_FLOAT64) return gemm(p, a, b, out);
  if (few_of_bf16(p, a, b, out)) return multiply_few_bf16(p, a, b, out);
  if (out->dtype == WK_BFLOAT16) return multiply_bf16(p, a, b, out);
  wk_value wide_a = {0}, wide_b = {0}, wide_out = {0};
  wk_status status = in_gemm_dtype(a, &wide_a);
  if (status == WK_OK) status = in_gemm_dtype(b, &wide_b);
  if (status == WK_OK) status = in_gemm_dtype(out, &wide_out);
  bool integral = wk_dtype_is_integral((wk_dtype)out->dtype, true);
  if (status == WK_OK && integral && !exact_in_f64(p, wide_a.tensor, wide_b.tensor, wide_out.tensor)) {
    status = multiply_as_integers(p, a, b, out);
  } else {
    if (status == WK_OK) status = gemm(p, wide_a.tensor, wide_b.tensor, wide_out.tensor);
    if (status == WK_OK) status = wk__copy_into(out, wide_out.tensor);
  }
  wk_value_release(&wide_a);
  wk_value_release(&wide_b);
  wk_value_release(&wide_out);
  return status;
}

static matrices of_matrices(const wk_tensor *a, const wk_tensor *b) {
  return (matrices){.batch = 1,
                    .m = wk__size(a, 0),
                    .n = wk__size(b, 1),
                    .k = wk__size(a, 1),
                    .a_row = wk__stride(a, 0),
                    .a_column = wk__stride(a, 1),
                    .b_row = wk__stride(b, 0),
                    .b_column = wk__stride(b, 1),
                    .alpha = 1,
                    .whole_alpha = 1};
}

static wk_status run_mm(const wk__call *c, const wk__product_hooks *hooks) {
  WK__ARGS(mm);
  WK_TRY(refuse_bool(c, c->args[A_self].tensor));
  WK__OWNED a_copy = NULL;
  WK__OWNED b_copy = NULL;
  wk_tensor *a = operand(c->args[A_self].tensor, &a_copy), *b = operand(c->args[A_mat2].tensor, &b_copy);
  if (!a || !b) return wk_error_category();
  matrices p = of_matrices(a, b);
  p.hooks = hooks;
  return multiply(&p, a, b, c->outputs[0]);
}

wk_status wk__cpu_mm(wk__call *c) { return run_mm(c, NULL); }

static wk_status run_bmm(const wk__call *c, const wk__product_hooks *hooks) {
  WK__ARGS(bmm);
  WK_TRY(refuse_bool(c, c->args[A_self].tensor));
  WK__OWNED a_copy = NULL;
  WK__OWNED b_copy = NULL;
  wk_tensor *a = operand(c->args[A_self].tensor, &a_copy), *b = operand(c->args[A_mat2].tensor, &b_copy);
  if (!a || !b) return wk_error_category();
  matrices p = {.batch = wk__size(a, 0),
                .m = wk__size(a, 1),
                .n = wk__size(b, 2),
                .k = wk__size(a, 2),
                .a_batch = wk__stride(a, 0),
                .a_row = wk__stride(a, 1),
                .a_column = wk__stride(a, 2),
                .b_batch = wk__stride(b, 0),
                .b_row = wk__stride(b, 1),
                .b_column = wk__stride(b, 2),
                .alpha = 1,
                .whole_alpha = 1,
                .hooks = hooks};
  return multiply(&p, a, b, c->outputs[0]);
}

wk_status wk__cpu_bmm(wk__call *c) { return run_bmm(c, NULL); }

static double number(const wk_value *v) { return wk__scalar_double(wk__value_scalar(v)); }

wk_status wk__cpu_addmm(wk__call *c) {
  WK__ARGS(addmm);
  WK_TRY(refuse_bool(c, c->args[A_mat1].tensor));
  WK__OWNED a_copy = NULL;
  WK__OWNED b_copy = NULL;
  wk_tensor *a = operand(c->args[A_mat1].tensor, &a_copy), *b = operand(c->args[A_mat2].tensor, &b_copy);
  if (!a || !b) return wk_error_category();
  matrices p = of_matrices(a, b);
  bool whole = !wk_dtype_is_floating((wk_dtype)c->outputs[0]->dtype);
  p.whole_beta = wk__scalar_int(wk__value_scalar(&c->args[A_beta]));
  p.whole_alpha = wk__scalar_int(wk__value_scalar(&c->args[A_alpha]));
  p.beta = whole ? (double)p.whole_beta : number(&c->args[A_beta]);
  p.alpha = whole ? (double)p.whole_alpha : number(&c->args[A_alpha]);
  if (p.beta != 0) WK_TRY(wk__copy_into(c->outputs[0], c->args[A_self].tensor));
  return multiply(&p, a, b, c->outputs[0]);
}

/* input (..., in), weight (out, in), bias (out): rows of input are folded into one matrix. A node of its own, so that
 * overhead stays small where it matters most. */
static bool folds(const wk_tensor *t, int64_t *row_stride) { /* leading dims as one, without a copy */
  *row_stride = t->ndim > 1 ? wk__stride(t, t->ndim - 2) : 0;
  for (int d = t->ndim - 2; d > 0; d--)
    if (wk__size(t, d - 1) != 1 && wk__stride(t, d - 1) != wk__size(t, d) * wk__stride(t, d)) return false;
  return true;
}

static wk_status linear_into(wk_tensor *input, wk_tensor *weight, wk_tensor *bias, wk_tensor *out,
                             const wk__product_hooks *hooks) {
  WK__OWNED x_copy = NULL;
  WK__OWNED w_copy = NULL;
  wk_tensor *x = operand(input, &x_copy), *w = operand(weight, &w_copy);
  if (!x || !w) return wk_error_category();
  int64_t in = wk__size(w, 1), row_stride;
  folds(x, &row_stride);
  matrices p = {.batch = 1,
                .m = in ? wk__numel(x) / in : wk__numel(out) / wk__max(wk__size(w, 0), 1),
                .n = wk__size(w, 0),
                .k = in,
                .a_row = row_stride,
                .a_column = wk__stride(x, x->ndim - 1),
                .b_row = wk__stride(w, 1),
                .b_column = wk__stride(w, 0),
                .alpha = 1,
                .whole_alpha = 1,
                .is_linear = true,
                .hooks = hooks};
  bool by_row =
      bias && bias->ndim == 1 && wk__is_contiguous(bias) && (out->dtype == WK_FLOAT32 || out->dtype == WK_FLOAT64);
  if (by_row) p.row = wk__data(bias);
  p.beta = p.whole_beta = bias && !by_row;
  if (p.beta != 0) WK_TRY(wk__copy_into(out, bias));
  return multiply(&p, x, w, out);
}

static wk_status run_linear(const wk__call *c, const wk__product_hooks *hooks) {
  WK__ARGS(linear);
  wk_tensor *x = c->args[A_input].tensor, *w = c->args[A_weight].tensor, *bias = wk__arg_tensor(c, A_bias),
            *out = c->outputs[0];
  int64_t row_stride;
  WK_TRY(refuse_bool(c, x));
  if (folds(x, &row_stride)) return linear_into(x, w, bias, out, hooks);
  wk_value rows = {0}, format = {.tag = WK_VALUE_STRING, .string = "contiguous_format"};
  WK_TRY(wk__compute(WK__OP(clone), (wk_value[]){wk__v_tensor(x), format}, NULL, &rows));
  wk_status status = linear_into(rows.tensor, w, bias, out, hooks);
  wk_value_release(&rows);
  return status;
}

wk_status wk__cpu_linear(wk__call *c) { return run_linear(c, NULL); }

static wk_status grouped_product(wk__call *c) {
  WK__ARGS(_grouped_product);
  wk_tensor *y = wk__grouped_product_by_parts(c->args[A_self].tensor, c->args[A_mat2].tensor, c->args[A_offs].tensor);
  return y ? wk__copy_into(c->outputs[0], y) : wk_error_category();
}
WK__KERNEL_IN_SCOPE(grouped_product, grouped_product)

wk_status wk__product_into(const wk_op *op, const wk_value *args, wk_tensor *out, const wk__product_hooks *hooks) {
  wk__call call = {.op = op, .args = args, .outputs = &out};
  if (wk__is_attention(op)) return wk__attention_into(args, out, hooks);
  if (wk__is_convolution(op)) return wk__convolution_into(op, args, out, hooks);
  if (op == WK__OP(mm)) return run_mm(&call, hooks);
  return op == WK__OP(bmm) ? run_bmm(&call, hooks) : run_linear(&call, hooks);
}
