/* Rows whose batch has a function of its own: views that name dims in their own way, products, convolutions, indexing.
 * In: a call with a batch, one level below. Out: its results, with the dim that their batch is. WK__BATCH_NOT_SO: by
 * parts or example by example. Tests: tests/ops/test_levels.py. */
#include "levels/internal.h"
#include "ops/rules/convolution.h"
#include "wick/operators.h"

static wk_tensor *first(const wk__batch *b, int arg) { return wk__batch_first(b, wk__example(b, arg)); }
static wk_tensor *expanded(const wk__batch *b, int arg) { return wk__batch_expanded(b, wk__example(b, arg)); }
static int rank_of(const wk__batch *b, int arg) { return wk__example(b, arg)->ndim; }

/* ====================================================== views =================================================== */

wk_status wk__batch_unsqueeze(wk__batch *b) {
  WK__ARGS(unsqueeze);
  int dim;
  WK_TRY(wk__wrap_dim(wk_int_guard_value(b->args[A_dim].integer), rank_of(b, A_self) + 1, &dim));
  return wk__batch_give(b, 0, wk_unsqueeze(first(b, A_self), dim + 1), 0);
}

/* All dims of an example that are of size 1. */
wk_status wk__batch_squeeze(wk__batch *b) {
  wk_int dims[WK_MAX_DIMS];
  int count = 0;
  const wk_tensor *example = wk__example(b, 0);
  for (int d = 0; d < example->ndim; d++)
    if (wk_int_eq(example->sizes[d], wk_int_of(1))) dims[count++] = wk_int_of(d + 1);
  return wk__batch_give(b, 0, count ? wk_squeeze_dims(first(b, 0), dims, count) : wk_alias(first(b, 0)), 0);
}

wk_status wk__batch_expand(wk__batch *b) {
  WK__ARGS(expand);
  wk_int sizes[WK_MAX_DIMS + 1] = {b->level->batch_size};
  const wk_value *given = &b->args[A_size];
  int missing = (int)given->count - rank_of(b, A_self);
  wk_tensor *t = first(b, A_self);
  WK_TRY(wk__check_ndim(given->count + 1));
  WK_TRY(wk__check_expand(wk__example(b, A_self), given->integers, (int)given->count));
  for (; t && missing > 0; missing--) t = wk_unsqueeze(t, 1);
  memcpy(sizes + 1, given->integers, given->count * sizeof *sizes);
  return wk__batch_give(b, 0, t ? wk_expand(t, sizes, (int)given->count + 1, b->args[A_implicit].boolean) : NULL, 0);
}

wk_status wk__batch_permute(wk__batch *b) {
  WK__ARGS(permute);
  wk_int dims[WK_MAX_DIMS + 1] = {wk_int_of(0)};
  const wk_value *given = &b->args[A_dims];
  if ((int)given->count != rank_of(b, A_self)) return WK__BATCH_NOT_SO; /* which says what is wrong */
  for (uint32_t k = 0; k < given->count; k++) {
    int dim;
    WK_TRY(wk__wrap_dim(wk_int_guard_value(given->integers[k]), rank_of(b, A_self), &dim));
    dims[k + 1] = wk_int_of(dim + 1);
  }
  return wk__batch_give(b, 0, wk_permute(first(b, A_self), dims, (int)given->count + 1), 0);
}

wk_status wk__batch_t(wk__batch *b) {
  if (rank_of(b, 0) > 2) return WK__BATCH_NOT_SO;
  return wk__batch_give(b, 0, rank_of(b, 0) < 2 ? wk_alias(first(b, 0)) : wk_transpose_int(first(b, 0), 1, 2), 0);
}

/* An example's strides and offset are those of its part of the whole. */
wk_status wk__batch_as_strided(wk__batch *b) {
  WK__ARGS(as_strided);
  const wk_value *size = &b->args[A_size], *stride = &b->args[A_stride];
  wk_tensor *value = first(b, A_self);
  wk_int sizes[WK_MAX_DIMS + 1] = {b->level->batch_size}, strides[WK_MAX_DIMS + 1];
  if (!value || size->count != stride->count) return value ? WK__BATCH_NOT_SO : wk_error_category();
  WK_TRY(wk__check_ndim(size->count + 1));
  strides[0] = value->strides[0];
  memcpy(sizes + 1, size->integers, size->count * sizeof *sizes);
  memcpy(strides + 1, stride->integers, stride->count * sizeof *strides);
  int count = (int)size->count + 1;
  return wk__batch_give(b, 0, wk_as_strided(value, sizes, count, strides, count, b->args[A_storage_offset]), 0);
}

/* Where each example lies apart from the others, so do the places that are written. */
wk_status wk__batch_as_strided_scatter(wk__batch *b) {
  WK__ARGS(as_strided_scatter);
  if (!wk__has_batch(b, A_self)) return WK__BATCH_NOT_SO;
  wk_value args[WK__MAX_ARGS];
  wk_int sizes[WK_MAX_DIMS + 1] = {b->level->batch_size}, strides[WK_MAX_DIMS + 1];
  memcpy(args, b->args, b->op->schema.parameter_count * sizeof *args);
  const wk_value *size = &b->args[A_size], *stride = &b->args[A_stride];
  args[A_self].tensor = first(b, A_self);
  args[A_src].tensor = expanded(b, A_src);
  if (!args[A_self].tensor || !args[A_src].tensor) return wk_error_category();
  if (size->count != stride->count) return WK__BATCH_NOT_SO;
  strides[0] = args[A_self].tensor->strides[0];
  memcpy(sizes + 1, size->integers, size->count * sizeof *sizes);
  memcpy(strides + 1, stride->integers, stride->count * sizeof *strides);
  args[A_size] = wk__v_ints(sizes, (int)size->count + 1);
  args[A_stride] = wk__v_ints(strides, (int)stride->count + 1);
  return wk__batch_give(b, 0, wk__call_tensor(b->op, args), 0);
}

/* Without images' dim a batch is that dim. */
wk_status wk__batch_col2im(wk__batch *b) {
  if (rank_of(b, 0) != 2) return wk__batch_merged(b);
  wk_value args[WK__MAX_ARGS];
  memcpy(args, b->args, b->op->schema.parameter_count * sizeof *args);
  args[0] = wk__v_tensor(first(b, 0));
  return wk__batch_give(b, 0, wk__call_tensor(b->op, args), 0);
}

/* ====================================================== copies ================================================== */

static wk_status refuse_narrow(void) {
  return wk_fail(WK_RUNTIME_ERROR,
                 "vmap: aten::copy_(self, *extra_args) is not possible because there exists a Tensor `other` in "
                 "extra_args that has more elements than `self`. This happened due to `other` being vmapped over but "
                 "`self` not being vmapped over in a vmap. Please try to use out-of-place operators instead of "
                 "aten::copy_. If said operator is being called inside the PyTorch framework, please file a bug report "
                 "instead.");
}

wk_status wk__batch_copy(wk__batch *b) {
  WK__ARGS(copy_);
  if (!wk__has_batch(b, A_self)) return refuse_narrow();
  wk_tensor *to = first(b, A_self), *from = first(b, A_other);
  int missing = wk__has_batch(b, A_other) ? rank_of(b, A_self) - rank_of(b, A_other) : 0;
  for (; from && missing > 0; missing--) from = wk_unsqueeze(from, 1);
  wk_tensor *written = to && from ? wk_copy_(to, from, b->args[A_non_blocking].boolean) : NULL;
  return wk__batch_give(b, 0, written ? wk__example(b, A_self)->inner->value : NULL, 0);
}

/* Tensors without elements and of one dim are left out where others have more, as cat does. */
wk_status wk__batch_cat(wk__batch *b) {
  WK__ARGS(cat);
  const wk_value *list = &b->args[A_tensors];
  wk_tensor **tensors = wk__alloc((list->count + 1) * sizeof *tensors);
  if (!tensors) return WK_OUT_OF_MEMORY;
  int rank = 1, count = 0, dim = 0;
  for (uint32_t k = 0; k < list->count; k++) rank = wk__max(rank, list->tensors[k]->ndim);
  wk_status status = wk__wrap_dim(wk_int_guard_value(b->args[A_dim].integer), rank, &dim);
  for (uint32_t k = 0; k < list->count && status == WK_OK; k++) {
    const wk_tensor *t = list->tensors[k];
    if (t->ndim == 1 && rank > 1 && wk_int_eq(t->numel, wk_int_of(0))) continue;
    if (t->ndim == 0) status = WK__BATCH_NOT_SO; /* which says what is wrong */
    tensors[count] = wk__batch_expanded(b, list->tensors[k]);
    if (!tensors[count++]) status = wk_error_category();
  }
  if (status == WK_OK) status = wk__batch_give(b, 0, wk_cat(tensors, count, dim + 1), 0);
  wk__free(tensors);
  return status;
}

/* ====================================================== whole =================================================== */

/* Of all elements of an example: those are one dim of the batch. */
wk_status wk__batch_whole(wk__batch *b) {
  wk_value args[WK__MAX_ARGS];
  if (b->op->schema.parameter_count > 1 && b->args[1].tag == WK_VALUE_INT) return wk__batch_lead(b);
  bool keep = b->op->schema.parameter_count > 2 && b->args[2].tag == WK_VALUE_BOOL && b->args[2].boolean;
  wk_int sizes[WK_MAX_DIMS + 1] = {b->level->batch_size, wk__example(b, 0)->numel};
  wk_tensor *flat = wk_reshape(first(b, 0), sizes, 2), *made;
  const wk_op *op = b->op == WK__OP(any)         ? WK__OP(any_dim)
                    : b->op == WK__OP(all)       ? WK__OP(all_dim)
                    : b->op == WK__OP(_prod_all) ? WK__OP(prod_dim_int)
                                                 : b->op;
  args[0] = wk__v_tensor(flat);
  args[1] = wk__v_int(1);
  args[2] = wk__v_bool(false);
  if (op == WK__OP(prod_dim_int)) args[3] = b->args[1];
  made = wk__call_tensor(op, args);
  for (int d = 0; made && keep && d < rank_of(b, 0); d++) made = wk_unsqueeze(made, 1);
  return wk__batch_give(b, 0, made, 0);
}

/* One value for all elements, or for some: another for each example. */
wk_status wk__batch_fill(wk__batch *b) {
  WK__ARGS(fill_Tensor);
  wk_tensor *value = wk__in_dtype(expanded(b, A_value), (wk_dtype)wk__example(b, A_self)->dtype),
            *self = expanded(b, A_self);
  if (rank_of(b, A_value)) return WK__BATCH_NOT_SO; /* which says what is wrong */
  for (int d = 0; value && d < rank_of(b, A_self); d++) value = wk_unsqueeze(value, 1);
  return wk__batch_give(b, 0, value && self ? wk_clone(wk_expand_as(value, self), "contiguous_format") : NULL, 0);
}
wk_status wk__batch_masked_fill(wk__batch *b) {
  WK__ARGS(masked_fill_Tensor);
  wk_tensor *value = wk__in_dtype(expanded(b, A_value), (wk_dtype)wk__example(b, A_self)->dtype);
  wk_tensor *self = expanded(b, A_self), *mask = expanded(b, A_mask);
  if (rank_of(b, A_value)) return WK__BATCH_NOT_SO;
  int rank = wk__max(rank_of(b, A_self), rank_of(b, A_mask));
  for (int d = 0; value && d < rank; d++) value = wk_unsqueeze(value, 1);
  for (int d = rank_of(b, A_self); self && d < rank; d++) self = wk_unsqueeze(self, 1);
  for (int d = rank_of(b, A_mask); mask && d < rank; d++) mask = wk_unsqueeze(mask, 1);
  return wk__batch_give(b, 0, value && self && mask ? wk_where_self(mask, value, self) : NULL, 0);
}

wk_status wk__batch_dynamic(wk__batch *b) {
  return wk_fail(
      WK_RUNTIME_ERROR,
      "vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over "
      "aten::%s. Please file an issue at https://github.com/pytorch/pytorch/issues if you need this feature.",
      b->op->name);
}

/* ===================================================== products ================================================= */

/* (n, k) (k, m): a batch of the one lies in front of its rows, that of the other beside its columns. */
wk_status wk__batch_mm(wk__batch *b) {
  WK__ARGS(mm);
  bool left = wk__has_batch(b, A_self), right = wk__has_batch(b, A_mat2);
  if (rank_of(b, A_self) != 2 || rank_of(b, A_mat2) != 2) return WK__BATCH_NOT_SO;
  if (left && right) return wk__batch_give(b, 0, wk_bmm(first(b, A_self), first(b, A_mat2)), 0);
  if (left) {
    wk_tensor *rows = wk__batch_merge(first(b, A_self), 0);
    return wk__batch_give(b, 0, rows ? wk__batch_split(b, wk_mm(rows, wk__example(b, A_mat2)), 0) : NULL, 0);
  }
  wk_tensor *columns = wk__batch_merge(wk_movedim_int(first(b, A_mat2), 0, 1), 1);
  return wk__batch_give(b, 0, columns ? wk__batch_split(b, wk_mm(wk__example(b, A_self), columns), 1) : NULL, 1);
}

/* A mask may be one for each image: its dims are then not the merged ones. */
wk_status wk__batch_attention(wk__batch *b) {
  bool forward = b->op == WK__OP(_scaled_dot_product_flash_attention_for_cpu);
  int mask = forward ? WK__ARG(_scaled_dot_product_flash_attention_for_cpu, attn_mask)
                     : WK__ARG(_scaled_dot_product_flash_attention_for_cpu_backward, attn_mask);
  return wk__example(b, mask) ? WK__BATCH_NOT_SO : wk__batch_merged(b);
}

wk_status wk__batch_fused_attention(wk__batch *b) {
  bool forward = b->op == WK__OP(_fused_attention);
  int mask = forward ? WK__ARG(_fused_attention, attn_mask) : WK__ARG(_fused_attention_backward, attn_mask);
  bool drops = !forward && b->args[WK__ARG(_fused_attention_backward, dropout_p)].number != 0;
  return wk__example(b, mask) || drops ? WK__BATCH_NOT_SO : wk__batch_merged(b);
}

/* ==================================================== convolutions ============================================== */

/* (B, N, C, ...) as (N, B C, ...): the examples' channels side by side, as groups. */
static wk_tensor *channels_beside(const wk__batch *b, int arg) {
  wk_tensor *t = expanded(b, arg);
  return t ? wk__batch_merge(wk_movedim_int(t, 0, 1), 1) : NULL;
}

static wk_int times_batch(const wk__batch *b, wk_int x) { return wk_int_mul(x, b->level->batch_size); }

/* Filters that are the same for all are used on the images of all. */
static wk_status convolve_merged(wk__batch *b, wk_value *args) {
  WK__ARGS(convolution);
  args[A_input].tensor = wk__batch_merge(expanded(b, A_input), 0);
  wk_tensor *made = args[A_input].tensor ? wk__call_tensor(b->op, args) : NULL;
  return wk__batch_give(b, 0, wk__batch_split(b, made, 0), 0);
}

wk_status wk__batch_convolution(wk__batch *b) {
  WK__ARGS(convolution);
  wk_value args[WK__MAX_ARGS];
  memcpy(args, b->args, b->op->schema.parameter_count * sizeof *args);
  if (!wk__has_batch(b, A_weight) && !wk__has_batch(b, A_bias)) return convolve_merged(b, args);
  wk_tensor *bias = wk__example(b, A_bias);
  args[A_input].tensor = channels_beside(b, A_input);
  args[A_weight].tensor = wk__batch_merge(expanded(b, A_weight), 0);
  if (bias) args[A_bias].tensor = wk__batch_merge(wk__batch_expanded(b, bias), 0);
  args[A_groups].integer = times_batch(b, b->args[A_groups].integer);
  if (!args[A_input].tensor || !args[A_weight].tensor || (bias && !args[A_bias].tensor)) return wk_error_category();
  return wk__batch_give(b, 0, wk__batch_split(b, wk__call_tensor(b->op, args), 1), 1);
}

wk_status wk__batch_convolution_backward_weight(wk__batch *b) {
  WK__ARGS(_convolution_backward_weight);
  wk_value args[WK__MAX_ARGS];
  wk_int size[WK_MAX_DIMS];
  const wk_value *given = &b->args[A_weight_size];
  memcpy(args, b->args, b->op->schema.parameter_count * sizeof *args);
  memcpy(size, given->integers, given->count * sizeof *size);
  size[0] = times_batch(b, size[0]);
  args[A_weight_size] = wk__v_ints(size, (int)given->count);
  args[A_grad_output].tensor = channels_beside(b, A_grad_output);
  args[A_input].tensor = channels_beside(b, A_input);
  args[A_groups].integer = times_batch(b, b->args[A_groups].integer);
  if (!args[A_grad_output].tensor || !args[A_input].tensor) return wk_error_category();
  return wk__batch_give(b, 0, wk__batch_split(b, wk__call_tensor(b->op, args), 0), 0);
}

/* ====================================================== tables ================================================== */

/* Each example's numbers count from where its rows begin in the table of all. */
static wk_tensor *rows_of_all(const wk__batch *b, int arg, wk_int rows) {
  wk_tensor *t = expanded(b, arg);
  wk_value all = wk__v_size(b->level->batch_size),
           device = {.tag = WK_VALUE_DEVICE, .device = t ? t->device : WK__CPU_DEVICE};
  wk_tensor *start = t ? wk_arange(all, WK_INT64, device) : NULL;
  for (int d = 1; start && d < t->ndim; d++) start = wk_unsqueeze(start, -1);
  return start ? wk_add(t, wk_mul_Scalar(start, wk__v_size(rows)), wk__v_int(1)) : NULL;
}

/* A row that no gradient goes to would be one of each table: example by example. */
static bool skips_row(const wk__batch *b, int arg) { return wk_int_guard_value(b->args[arg].integer) >= 0; }

wk_status wk__batch_embedding(wk__batch *b) {
  WK__ARGS(embedding);
  if (!wk__has_batch(b, A_weight)) return wk__batch_lead(b);
  if (rank_of(b, A_weight) != 2 || skips_row(b, A_padding_idx)) return WK__BATCH_NOT_SO;
  wk_value args[WK__MAX_ARGS];
  memcpy(args, b->args, b->op->schema.parameter_count * sizeof *args);
  args[A_indices] = wk__v_tensor(rows_of_all(b, A_indices, wk__example(b, A_weight)->sizes[0]));
  args[A_weight] = wk__v_tensor(wk__batch_merge(first(b, A_weight), 0));
  return wk__batch_give(b, 0, wk__call_tensor(b->op, args), 0);
}

wk_status wk__batch_embedding_backward(wk__batch *b) {
  WK__ARGS(embedding_dense_backward);
  if (skips_row(b, A_padding_idx) || b->args[A_scale_grad_by_freq].boolean) return WK__BATCH_NOT_SO;
  wk_value args[WK__MAX_ARGS];
  memcpy(args, b->args, b->op->schema.parameter_count * sizeof *args);
  args[A_grad_output] = wk__v_tensor(expanded(b, A_grad_output));
  args[A_indices] = wk__v_tensor(rows_of_all(b, A_indices, b->args[A_num_weights].integer));
  args[A_num_weights] = wk__v_size(times_batch(b, b->args[A_num_weights].integer));
  return wk__batch_give(b, 0, wk__batch_split(b, wk__call_tensor(b->op, args), 0), 0);
}

/* ====================================================== places ================================================== */

typedef struct indexing {
  int count, common; /* indices; their dims */
  bool neighbours;   /* the indexed dims are: the indices' dims are where those were, else in front */
  int start;         /* the first indexed dim */
  bool batched;      /* some index has a batch */
} indexing;

static void read_indexing(const wk__batch *b, int dims, int first_index, indexing *x) {
  const wk_value *list = &b->args[dims];
  *x = (indexing){.count = (int)list->count, .common = rank_of(b, first_index), .neighbours = true};
  x->start = (int)list->integers[0].bits;
  for (int k = 0; k < x->count; k++) {
    x->neighbours &= k == 0 || list->integers[k].bits == list->integers[k - 1].bits + 1;
    x->batched |= wk__has_batch(b, first_index + k);
  }
}

/* 0, 1, ... of the batch, in the shape of the indices. */
static wk_tensor *numbers_like(const wk__batch *b, const wk_tensor *index) {
  wk_value all = wk__v_size(b->level->batch_size), device = {.tag = WK_VALUE_DEVICE, .device = index->device};
  wk_tensor *t = wk_arange(all, WK_INT64, device);
  for (int d = 1; t && d < index->ndim; d++) t = wk_unsqueeze(t, -1);
  return t ? wk_expand(t, index->sizes, index->ndim, false) : NULL;
}

static wk_tensor *move_dims(wk_tensor *t, int from, int to, int count) {
  wk_int source[WK_MAX_DIMS], target[WK_MAX_DIMS];
  for (int d = 0; d < count; d++) {
    source[d] = wk_int_of(from + d);
    target[d] = wk_int_of(to + d);
  }
  return t && count && from != to ? wk_movedim_intlist(t, source, count, target, count) : t;
}

enum { MOST_INDICES = 8 };

wk_status wk__batch_index(wk__batch *b) {
  WK__ARGS(_index);
  wk_value args[WK__MAX_ARGS] = {{0}};
  wk_int dims[MOST_INDICES];
  indexing x;
  read_indexing(b, A_dims, A_i0, &x);
  bool self = wk__has_batch(b, A_self), numbered = self && x.batched;
  if (numbered && x.count == MOST_INDICES) return WK__BATCH_NOT_SO;
  args[A_self] = wk__v_tensor(first(b, A_self));
  for (int k = 0; k < x.count; k++) {
    dims[k + numbered] = wk_int_of(b->args[A_dims].integers[k].bits + self);
    wk_tensor *index = x.batched ? expanded(b, A_i0 + k) : wk__example(b, A_i0 + k);
    args[A_i0 + k + numbered] = wk__v_tensor(index);
    if (!index) return wk_error_category();
  }
  if (numbered) {
    dims[0] = wk_int_of(0);
    args[A_i0] = wk__v_tensor(numbers_like(b, args[A_i0 + 1].tensor));
  }
  args[A_dims] = wk__v_ints(dims, x.count + numbered);
  wk_tensor *made = wk__call_tensor(b->op, args);
  if (numbered) return wk__batch_give(b, 0, move_dims(made, 1, x.neighbours ? 1 + x.start : 1, x.common), 0);
  int at = x.batched ? (x.neighbours ? x.start : 0) : x.neighbours ? 0 : x.common;
  return wk__batch_give(b, 0, made, at);
}

/* ---- index_put(self, indices, values): indices are from the first dim on, None for a dim that has none ---- */

static bool is_mask(const wk_tensor *t) { return t->dtype == WK_BOOL || t->dtype == WK_UINT8; }

/* Indices of the first dims, as most are. */
static bool read_put(const wk__batch *b, int *out_rank) {
  const wk_value *list = &b->args[WK__ARG(index_put, indices)];
  *out_rank = 0;
  for (uint32_t k = 0; k < list->count; k++) {
    const wk_tensor *t = list->tensors[k];
    if (!t || is_mask(t)) return false;
    if (t->ndim > *out_rank) *out_rank = t->ndim;
  }
  return list->count > 0 && (int)list->count <= rank_of(b, WK__ARG(index_put, self));
}

wk_status wk__batch_index_put(wk__batch *b) {
  WK__ARGS(index_put);
  const wk_value *list = &b->args[A_indices];
  wk_tensor *indices[WK_MAX_DIMS + 1];
  int rank;
  if (!read_put(b, &rank)) return WK__BATCH_NOT_SO;
  for (uint32_t k = 0; k < list->count; k++) {
    wk_tensor *t = wk__batch_expanded(b, list->tensors[k]);
    for (int missing = rank - list->tensors[k]->ndim; t && missing > 0; missing--) t = wk_unsqueeze(t, 1);
    if (!(indices[k + 1] = t)) return wk_error_category();
  }
  wk_value all = wk__v_size(b->level->batch_size), device = {.tag = WK_VALUE_DEVICE, .device = indices[1]->device};
  indices[0] = wk_arange(all, WK_INT64, device);
  for (int d = 0; indices[0] && d < rank; d++) indices[0] = wk_unsqueeze(indices[0], -1);
  wk_tensor *values = expanded(b, A_values);
  int missing = rank + rank_of(b, A_self) - (int)list->count - rank_of(b, A_values);
  for (; values && missing > 0; missing--) values = wk_unsqueeze(values, 1);
  wk_tensor *self = expanded(b, A_self);
  if (!indices[0] || !values || !self) return wk_error_category();
  wk_value args[] = {wk__v_tensor(self),
                     {.tag = WK_VALUE_TENSORS, .count = list->count + 1, .tensors = indices},
                     wk__v_tensor(values),
                     b->args[A_accumulate]};
  return wk__batch_give(b, 0, wk__call_tensor(b->op, args), 0);
}
