/* vmap's level: a call on examples becomes a call on all of them, one level below.
 *
 * In: a call with tensors of a batch. Out: its results, tensors of the batch where they depend on one. How is said by
 * the operator's row: a pointwise one has the batch as a first dim of all operands; field `batch` says what the others
 * do (LEAD, MERGE, OWN); a composite is done by its parts, and so is what has a decomposition. What nothing is said of
 * is called example by example, which is right for every row. Tests: tests/ops/test_levels.py. */
#include "decompose/decompose.h"
#include "levels/internal.h"
#include "random/generator.h"
#include "wick/operators.h"

/* ==================================================== the batch ================================================= */

static bool is_of(const wk__batch *b, const wk_tensor *t) {
  return t && t->inner && t->inner->level == b->level->number && t->inner->batch_dim >= 0;
}

bool wk__has_batch(const wk__batch *b, int arg) {
  WK__EACH_TENSOR(tensor, &b->args[arg], 1)
  if (is_of(b, tensor)) return true;
  return false;
}

wk_tensor *wk__example(const wk__batch *b, int arg) { return wk__tensor_or_null(&b->args[arg]); }

static bool any_batch(const wk__batch *b) {
  bool found = false;
  for (int i = 0; i < b->op->schema.parameter_count; i++) found |= wk__has_batch(b, i);
  for (int d = 0; b->destinations && d < b->op->schema.result_count; d++) found |= is_of(b, b->destinations[d]);
  return found;
}

wk_tensor *wk__batch_first(const wk__batch *b, wk_tensor *t) {
  if (!is_of(b, t)) return t;
  return t->inner->batch_dim ? wk_movedim_int(t->inner->value, t->inner->batch_dim, 0) : t->inner->value;
}

wk_tensor *wk__batch_expanded(const wk__batch *b, wk_tensor *t) {
  if (is_of(b, t)) return wk__batch_first(b, t);
  wk_int sizes[WK_MAX_DIMS + 1] = {b->level->batch_size};
  memcpy(sizes + 1, t->sizes, t->ndim * sizeof *sizes);
  return wk_expand(wk_unsqueeze(t, 0), sizes, t->ndim + 1, false);
}

wk_tensor *wk__batch_merge(wk_tensor *t, int dim) { return t ? wk_flatten_using_ints(t, dim, dim + 1) : NULL; }

wk_tensor *wk__batch_split(const wk__batch *b, wk_tensor *t, int dim) {
  if (!t) return NULL;
  wk_int size = t->sizes[dim], batch = b->level->batch_size;
  bool empty = wk_int_eq(batch, wk_int_of(0));
  wk_int sizes[] = {batch, empty ? size : wk_int_floordiv(size, batch)};
  return wk_unflatten_int(t, dim, sizes, 2);
}

wk_status wk__batch_give(wk__batch *b, int r, wk_tensor *t, int batch_dim) {
  if (!t) return wk_error_category();
  b->results[r] = wk__v_tensor(wk_scope_keep(t));
  b->batch_dims[r] = batch_dim;
  return WK_OK;
}

wk_status wk__batch_call(const wk_op *op, const wk_value *args, wk_tensor *const *destinations, wk_value *results) {
  return wk__call_below(2 * WK__KEY_AUTOGRAD, op, args, destinations, results);
}

/* ==================================================== pointwise ================================================= */

static int greatest_rank(const wk__batch *b) {
  int rank = 0;
  WK__EACH_TENSOR(tensor, b->args, b->op->schema.parameter_count)
  if (tensor->ndim > rank) rank = tensor->ndim;
  return rank;
}

/* The dtype that tensors with dims promote to: those without have no say in it, unless they are of a higher kind. */
static wk_dtype dtype_of_dims(const wk__batch *b) {
  wk_dtype dtype = WK_DTYPE_NONE;
  for (int i = 0; i < b->op->schema.parameter_count; i++) {
    const wk_tensor *t = wk__example(b, i);
    if (!t || t->ndim == 0 || b->op->schema.parameters[i].unpromoted) continue;
    dtype = dtype == WK_DTYPE_NONE ? (wk_dtype)t->dtype : wk__promote(dtype, (wk_dtype)t->dtype);
  }
  return dtype;
}

static wk_tensor *with_missing_dims(wk_tensor *t, int missing) {
  for (; t && missing > 0; missing--) t = wk_unsqueeze(t, 1);
  return t;
}

/* An operand without dims counts for less in promotion, and with a batch dim it has one. */
static wk_tensor *operand(const wk__batch *b, int arg, int rank, wk_dtype with_dims) {
  wk_tensor *example = wk__example(b, arg), *t = wk__batch_first(b, example);
  bool free = example->ndim || b->op->schema.parameters[arg].unpromoted;
  if (!is_of(b, example)) return !free && rank == 0 ? wk_unsqueeze(t, 0) : t;
  bool weaker =
      !free && with_dims != WK_DTYPE_NONE && wk__dtype_category((wk_dtype)t->dtype) <= wk__dtype_category(with_dims);
  return with_missing_dims(weaker ? wk__in_dtype(t, with_dims) : t, rank - example->ndim);
}

static wk_status refuse_narrow_write(const wk_op *op) {
  return wk_fail(WK_RUNTIME_ERROR,
                 "vmap: aten::%s_(self, *extra_args) is not possible because there exists a Tensor `other` in "
                 "extra_args that has more elements than `self`. This happened due to `other` being vmapped over but "
                 "`self` not being vmapped over in a vmap. Please try to use out-of-place operators instead of "
                 "aten::%s_. If said operator is being called inside the PyTorch framework, please file a bug report "
                 "instead.",
                 op->base_name, op->base_name);
}

static wk_status pointwise(wk__batch *b) {
  wk_value args[WK__MAX_ARGS];
  int rank = greatest_rank(b);
  wk_dtype with_dims = dtype_of_dims(b);
  bool in_place = b->destinations;
  if (in_place && !wk__has_batch(b, 0)) return refuse_narrow_write(b->op);
  memcpy(args, b->args, b->op->schema.parameter_count * sizeof *args);
  for (int i = 0; i < b->op->schema.parameter_count; i++) {
    if (args[i].tag != WK_VALUE_TENSOR) continue;
    bool written = in_place && i == 0;
    args[i].tensor = written ? with_missing_dims(wk__batch_first(b, args[0].tensor), rank - args[0].tensor->ndim)
                             : operand(b, i, rank, with_dims);
    if (!args[i].tensor) return wk_error_category();
  }
  wk_tensor *written = in_place ? args[0].tensor : NULL;
  WK_TRY(wk__batch_call(b->op, args, in_place ? &written : NULL, b->results));
  if (!in_place) return WK_OK;
  wk_value_release(&b->results[0]);
  b->results[0] = wk__v_tensor(wk__retain(b->args[0].tensor->inner->value));
  return WK_OK;
}

/* ====================================================== merged ================================================== */

static bool batch_is_only_in(const wk__batch *b, uint32_t args) {
  for (int i = 0; i < b->op->schema.parameter_count; i++)
    if (!(args >> i & 1) && wk__has_batch(b, i)) return false;
  return true;
}

wk_status wk__batch_merged(wk__batch *b) {
  uint32_t with = wk__level_row_of(b->op)->batch_args;
  wk_value args[WK__MAX_ARGS];
  if (!batch_is_only_in(b, with)) return WK__BATCH_NOT_SO;
  memcpy(args, b->args, b->op->schema.parameter_count * sizeof *args);
  for (int i = 0; i < b->op->schema.parameter_count; i++) {
    if (!(with >> i & 1) || args[i].tag != WK_VALUE_TENSOR) continue;
    if (args[i].tensor->ndim == 0) return WK__BATCH_NOT_SO;
    args[i].tensor = wk__batch_merge(wk__batch_expanded(b, args[i].tensor), 0);
    if (!args[i].tensor) return wk_error_category();
  }
  wk_value made[WK__MAX_RESULTS] = {{0}};
  WK_TRY(wk__batch_call(b->op, args, NULL, made));
  wk_status status = WK_OK;
  for (int r = 0; r < b->op->schema.result_count; r++) {
    if (made[r].tag == WK_VALUE_TENSOR && status == WK_OK)
      status = wk__batch_give(b, r, wk__batch_split(b, made[r].tensor, 0), 0);
    wk_value_release(&made[r]);
  }
  return status;
}

/* ================================================== example by example ========================================== */

static wk_status refuse_empty_loop(void) {
  return wk_fail(WK_RUNTIME_ERROR,
                 "The fallback path does not support vmap over dims of size 0. Please file an issue with your use "
                 "case at https://github.com/pytorch/pytorch");
}

static wk_tensor *example_of(const wk__batch *b, wk_tensor *t, int64_t k) {
  if (!is_of(b, t)) return t;
  wk_value args[] = {wk__v_tensor(t->inner->value), wk__v_int(t->inner->batch_dim), wk__v_int(k)};
  return wk__call_tensor(WK__OP(select_int), args);
}

static wk_status pick(const wk__batch *b, wk__recast *r, int64_t k) {
  for (int i = 0; i < b->op->schema.parameter_count; i++) {
    wk__tensor_span from = wk__value_tensors(&b->args[i]), to = wk__value_tensors(&r->args[i]);
    for (uint32_t j = 0; j < from.count; j++) {
      if (!from.items[j]) continue;
      to.items[j] = example_of(b, from.items[j], k);
      if (!to.items[j]) return wk_error_category();
    }
  }
  return WK_OK;
}

static wk_status call_example(const wk__batch *b, int64_t k, wk_value *out) {
  const wk__before_example *before = &b->before_example;
  wk__recast r;
  if (before->generator) WK_TRY(wk__generator_set_state(before->generator, before->state, before->bytes));
  wk_status status = wk__recast_begin(&r, b->op, b->args, NULL);
  if (status == WK_OK) status = pick(b, &r, k);
  if (status == WK_OK) status = wk__batch_call(b->op, r.args, NULL, out);
  wk__recast_end(&r);
  return status;
}

/* What an operator gives that it has written is the argument itself. */
static wk_tensor *written_value(const wk__batch *b, int r) {
  int alias = b->op->schema.result_alias[r] - 1;
  if (!(b->op->tags & WK__TAG_MUTATES) || alias < 0 || b->args[alias].tag != WK_VALUE_TENSOR) return NULL;
  wk_tensor *t = b->args[alias].tensor;
  return is_of(b, t) ? t->inner->value : t;
}

static wk_tensor *stack_item(const wk_value *made, int results, int r, int64_t count, wk_tensor **space,
                             uint32_t item) {
  for (int64_t k = 0; k < count; k++) space[k] = wk__value_tensors(&made[k * results + r]).items[item];
  return space[0] ? wk_stack(space, (int)count, 0) : NULL;
}

static wk_status stack_list(wk__batch *b, const wk_value *made, int64_t count, wk_tensor **space) {
  uint32_t items = made[0].count;
  wk_tensor **list = wk__alloc_zeroed((items + 1) * sizeof *list);
  if (!list) return WK_OUT_OF_MEMORY;
  b->results[0] = (wk_value){.tag = WK_VALUE_TENSORS, .count = items, .tensors = list};
  for (uint32_t j = 0; j < items; j++) {
    list[j] = wk_scope_keep(stack_item(made, 1, 0, count, space, j));
    if (!list[j]) return wk_error_category();
  }
  return WK_OK;
}

static wk_status stack_results(wk__batch *b, const wk_value *made, int64_t count, wk_tensor **space) {
  int results = b->op->schema.result_count;
  if (b->op->schema.result_is_list) return stack_list(b, made, count, space);
  for (int r = 0; r < results; r++) {
    wk_tensor *written = written_value(b, r);
    if (made[r].tag != WK_VALUE_TENSOR) continue;
    wk_tensor *whole = written ? written : stack_item(made, results, r, count, space, 0);
    WK_TRY(wk__batch_give(b, r, whole, 0));
  }
  return WK_OK;
}

wk_status wk__batch_loop(wk__batch *b) {
  int64_t count = wk_int_guard_value(b->level->batch_size);
  int results = b->op->schema.result_count;
  if (count == 0) return refuse_empty_loop();
  wk_value *made = wk__alloc_zeroed((size_t)count * (size_t)(results + 1) * sizeof *made);
  wk_tensor **space = wk__alloc_zeroed((size_t)count * sizeof *space);
  wk_status status = made && space ? WK_OK : WK_OUT_OF_MEMORY;
  for (int64_t k = 0; k < count && status == WK_OK; k++) status = call_example(b, k, made + k * results);
  if (status == WK_OK) status = stack_results(b, made, count, space);
  for (int64_t k = 0; made && k < count * results; k++) wk_value_release(&made[k]);
  wk__free(made);
  wk__free(space);
  return status;
}

/* ===================================================== the level ================================================ */

static wk_status by_row(wk__batch *b) {
  const wk__level_row *row = wk__level_row_of(b->op);
  if (b->op->tags & WK__TAG_POINTWISE && !row->own) return pointwise(b);
  switch ((wk__batch_way)row->batch) {
    case WK__BATCH_LEAD:
      return wk__batch_lead(b);
    case WK__BATCH_MERGE:
      return wk__batch_merged(b);
    case WK__BATCH_OWN:
      return row->own(b);
    default:
      return WK__BATCH_NOT_SO;
  }
}

static wk_tensor *wrap_example(void *context, wk_tensor *steal_value, int result, int item) {
  const wk__batch *b = context;
  (void)item;
  if (b->batch_dims[result] < 0) return steal_value;
  wk_tensor *t = wk__level_wrap(steal_value, b->batch_dims[result], NULL);
  wk__release(steal_value);
  return t;
}

/* One level below, what is made in between owned by a scope. */
static wk_status run(wk__batch *b, wk__batch_fn *rule, wk_value *results) {
  wk_value made[WK__MAX_RESULTS] = {{0}};
  wk_scope scope;
  b->results = made;
  wk__thread_mode before = wk__level_go_down();
  wk_scope_begin(&scope);
  wk_status status = rule(b);
  wk_scope_end(&scope);
  wk__level_come_back(&before);
  if (status == WK_OK) return wk__give_results(b->op, b->args, b->destinations, made, results, wrap_example, b);
  for (int r = 0; r < b->op->schema.result_count; r++) wk_value_release(&made[r]);
  return status;
}

/* What is not written element by element is made first and then copied. */
static wk_status make_then_copy(wk__batch *b, wk_value *results) {
  wk_value made[WK__MAX_RESULTS] = {{0}};
  int count = b->op->schema.result_count;
  WK_TRY(wk__call_below(2 * WK__KEY_LEVEL, b->op, b->args, NULL, made));
  wk_status status = WK_OK;
  for (int r = 0; r < count; r++) {
    wk_value copy[] = {wk__v_tensor(b->destinations[r]), made[r], wk__v_bool(false)};
    if (!b->destinations[r]) {
      results[r] = made[r];
      continue;
    }
    if (status == WK_OK) status = wk__call_below(2 * WK__KEY_LEVEL, WK__OP(copy_), copy, NULL, &results[r]);
    wk_value_release(&made[r]);
  }
  return status;
}

static bool has_parts(const wk_op *op) {
  return op->number < WK__OP_COUNT && wk__decomposition_of(op) == WK__DECOMPOSITION_RULE;
}

wk_status wk__batch_level(const wk_op *op, const wk_value *args, wk_tensor *const *destinations, wk_value *results) {
  wk__batch b = {.op = op, .args = args, .destinations = destinations, .level = wk__thread.mode.level};
  bool in_place =
      destinations && destinations[0] && args[0].tag == WK_VALUE_TENSOR && args[0].tensor == destinations[0];
  if (op->tags & WK__TAG_RANDOM && !op->compose) return run(&b, wk__batch_random, results);
  if (!any_batch(&b)) return wk__call_one_below(op, args, destinations, results);
  if (destinations && !(in_place && op->tags & WK__TAG_POINTWISE && !wk__level_row_of(op)->own))
    return make_then_copy(&b, results);
  wk_status status = run(&b, by_row, results);
  if (status != WK__BATCH_NOT_SO) return status;
  if (!op->compose && !has_parts(op)) return run(&b, wk__batch_loop, results);
  if (wk__batch_is_followed(&b)) return run(&b, wk__batch_whole_operator, results);
  if (!op->compose) return wk__decompose_call(op, args, results);
  wk__call call = {.op = op, .args = args, .results = results};
  return op->compose(&call);
}
