/* Attention's operators on the CPU: tensors as what cpu/attention/ computes with, and the parts that hooks get.
 * Tests: tests/ops/, tests/c/test_attention.c. */
#include "cpu/attention/attention.h"

#include <math.h>

#include "cpu/kernels.h"
#include "cpu/kernels/attention_operands.h"
#include "cpu/kernels/product.h"
#include "ops/internal.h"
#include "ops/rules.h"
#include "wick/operators.h"

enum { QUERY, KEY, VALUE, DROPOUT, CAUSAL, MASK, SCALE }; /* arguments of the forward kernel */

enum {
  BACKWARD_QUERY = 1,
  BACKWARD_OUT = 4,
  BACKWARD_LOGARITHMS,
  BACKWARD_DROPOUT,
  BACKWARD_CAUSAL,
  BACKWARD_MASK,
  BACKWARD_SCALE
};

static double scale_of(const wk_value *scale, const wk_tensor *query) {
  return wk__value_is_real(scale) ? scale->number : 1 / sqrt((double)wk_int_guard_value(query->sizes[query->ndim - 1]));
}

wk_tensor *wk__with_adjacent_rows(wk_tensor *t) {
  return wk__stride(t, 3) == 1 || wk__size(t, 3) <= 1 ? t : wk_contiguous(t, "contiguous_format");
}

static int64_t mask_stride(const wk_tensor *mask, int from_back) {
  int d = mask->ndim - from_back;
  return d < 0 || wk__size(mask, d) == 1 ? 0 : wk__stride(mask, d);
}

wk__attention wk__attention_of(const wk_tensor *q, const wk_tensor *k, const wk_tensor *v, double scale) {
  return (wk__attention){.type = q->dtype == WK_FLOAT64 ? WK__GEMM_F64 : WK__GEMM_F32,
                         .batch = wk__size(q, 0),
                         .heads = wk__size(q, 1),
                         .queries = wk__size(q, 2),
                         .keys = wk__size(k, 2),
                         .size = wk__size(q, 3),
                         .value_size = wk__size(v, 3),
                         .q = wk__heads_of(q),
                         .k = wk__heads_of(k),
                         .v = wk__heads_of(v),
                         .scale = scale};
}

static wk__attention describe(const wk_tensor *q, const wk_tensor *k, const wk_tensor *value, const wk_tensor *mask,
                              bool causal, double scale) {
  wk__attention a = wk__attention_of(q, k, value, scale);
  a.causal = causal;
  if (!mask) return a;
  a.mask_kind = mask->dtype == WK_BOOL ? WK__MASK_KEEP : WK__MASK_ADD;
  a.mask = wk__data(mask);
  a.mask_batch = mask_stride(mask, 4);
  a.mask_head = mask_stride(mask, 3);
  a.mask_query = mask_stride(mask, 2);
  a.mask_key = mask_stride(mask, 1);
  return a;
}

/* Rows of a head as part of the tensor's memory: all heads of a row are side by side, or one head is below the other.
 */
typedef struct head_layout {
  bool inside;
  int64_t heads, rows, columns; /* of each head */
} head_layout;

static head_layout layout_of(const wk_tensor *t) {
  return (head_layout){wk__heads_are_inside(t), wk__size(t, 1), wk__size(t, 2), wk__size(t, 3)};
}

static wk__gemm_tile part_of(const head_layout *l, int64_t head, int64_t row, int64_t rows) {
  wk__gemm_tile part = {.row = head * l->rows + row, .rows = rows, .columns = l->columns};
  if (!l->inside) return part;
  part.row = head / l->heads * l->rows + row;
  part.column = head % l->heads * l->columns;
  return part;
}

typedef struct hooked {
  const wk__product_hooks *hooks;
  head_layout query, out;
} hooked;

static void make_query(void *context, int64_t head, int64_t row, int64_t rows, void *q) {
  const hooked *h = context;
  wk__gemm_tile part = part_of(&h->query, head, row, rows);
  h->hooks->make(h->hooks->context, part.row, part.column, part.rows, part.columns, q, part.columns);
}

static void finish_rows(void *context, int64_t head, int64_t row, int64_t rows) {
  const hooked *h = context;
  wk__gemm_tile part = part_of(&h->out, head, row, rows);
  h->hooks->after(h->hooks->context, &part);
}

static wk_status run_attention(wk__call *c, const wk__product_hooks *hooks) {
  wk_tensor *query = c->args[QUERY].tensor;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *q = hooks && hooks->make ? query : wk__with_adjacent_rows(query),
            *k = wk__with_adjacent_rows(c->args[KEY].tensor), *value = wk__with_adjacent_rows(c->args[VALUE].tensor);
  wk_status status = q && k && value ? WK_OK : wk_error_category();
  if (status == WK_OK) {
    wk__attention a =
        describe(q, k, value, wk__arg_tensor(c, MASK), wk__arg_bool(c, CAUSAL), scale_of(&c->args[SCALE], q));
    hooked h = {hooks, layout_of(q), layout_of(c->outputs[0])};
    wk__attention_hooks own = {.context = &h};
    if (hooks) own.make_q = hooks->make ? make_query : NULL, own.finished = hooks->after ? finish_rows : NULL;
    if (hooks) a.hooks = &own;
    status = wk__attention_forward(&a, wk__heads_of(c->outputs[0]), wk__data(c->outputs[1]));
  }
  wk_scope_end(&scope);
  return status;
}

wk_status wk__cpu_flash_attention(wk__call *c) { return run_attention(c, NULL); }

/* The logarithms are for a backward pass, which there is none of. */
wk_status wk__attention_into(const wk_value *args, wk_tensor *out, const wk__product_hooks *hooks) {
  wk__spec specs[2];
  wk__call call = {.op = WK__OP(_scaled_dot_product_flash_attention_for_cpu),
                   .args = args,
                   .specs = specs,
                   .compute_dtype = WK_DTYPE_NONE};
  WK_TRY(wk__meta_flash_attention(&call));
  specs[0].offset = out->offset;
  WK__OWNED logarithms = wk__tensor_from_spec(&specs[1]);
  WK__OWNED shaped = logarithms ? wk__tensor_alias(out, &specs[0]) : NULL; /* the dims that it has as a result */
  if (!shaped) return wk_error_category();
  call.outputs = (wk_tensor *[]){shaped, logarithms};
  return run_attention(&call, hooks);
}

/* Other devices' rows. */
static wk_status only_elsewhere(const wk__call *c) {
  return wk_fail(WK_NOT_IMPLEMENTED, "Could not run 'aten::%s' with arguments from the 'CPU' backend.", c->op->name);
}
wk_status wk__cpu_fused_attention(wk__call *c) { return only_elsewhere(c); }
wk_status wk__cpu_fused_attention_backward(wk__call *c) { return only_elsewhere(c); }

wk_status wk__cpu_flash_attention_backward(wk__call *c) {
  WK__ARGS(_scaled_dot_product_flash_attention_for_cpu_backward);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *g = wk__with_adjacent_rows(c->args[A_grad_out].tensor),
            *q = wk__with_adjacent_rows(c->args[A_query].tensor), *k = wk__with_adjacent_rows(c->args[A_key].tensor),
            *value = wk__with_adjacent_rows(c->args[A_value].tensor),
            *out = wk__with_adjacent_rows(c->args[BACKWARD_OUT].tensor);
  wk_status status = g && q && k && value && out ? WK_OK : wk_error_category();
  if (status == WK_OK) {
    wk__attention a = describe(q, k, value, wk__arg_tensor(c, BACKWARD_MASK), wk__arg_bool(c, BACKWARD_CAUSAL),
                               scale_of(&c->args[BACKWARD_SCALE], q));
    status =
        wk__attention_backward(&a, wk__heads_of(out), wk__data(c->args[BACKWARD_LOGARITHMS].tensor), wk__heads_of(g),
                               wk__heads_of(c->outputs[0]), wk__heads_of(c->outputs[1]), wk__heads_of(c->outputs[2]));
  }
  wk_scope_end(&scope);
  return status;
}
