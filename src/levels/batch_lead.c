/* Rows for which a batch is one more first dim: tensors get it, dims are counted on, sizes begin with it.
 * Tests: tests/ops/test_levels.py. */
#include "levels/internal.h"
#include "wick/operators.h"

typedef struct lead {
  wk__batch *b;
  const wk__level_row *row;
  int rank;  /* of the example that dims are about */
  bool flat; /* it has no dims, and is given one: dims are about that */
  wk_value args[WK__MAX_ARGS];
  wk_int lists[WK__MAX_ARGS][WK_MAX_DIMS + 1];
  wk_tensor **tensors[WK__MAX_ARGS]; /* owned arrays */
} lead;

static bool is_in(uint32_t set, int i) { return set >> i & 1; }

static wk_tensor *first_tensor(const lead *l) {
  for (int i = 0; i < l->b->op->schema.parameter_count; i++)
    if (is_in(l->row->batch_args, i)) WK__EACH_TENSOR(tensor, &l->b->args[i], 1) return tensor;
  return NULL;
}

/* How many dims there are that an argument may name: those of the sizes, if the row is given both. */
static int rank_of_dims(const lead *l, const wk_tensor *first) {
  for (int i = 0; l->row->dims && i < l->b->op->schema.parameter_count; i++)
    if (is_in(l->row->sizes, i)) return (int)l->b->args[i].count;
  return first ? first->ndim : 0;
}

static wk_tensor *led(const lead *l, wk_tensor *t) {
  wk_tensor *led = wk__batch_expanded(l->b, t);
  return l->flat && t->ndim == 0 ? wk_unsqueeze(led, 1) : led;
}

static wk_status lead_tensors(lead *l, int i) {
  wk__tensor_span span = wk__value_tensors(&l->b->args[i]);
  if (l->b->args[i].tag == WK_VALUE_TENSOR) {
    l->args[i].tensor = led(l, l->b->args[i].tensor);
    return l->args[i].tensor ? WK_OK : wk_error_category();
  }
  l->args[i].tensors = l->tensors[i] = wk__alloc_zeroed((span.count + 1) * sizeof *l->tensors[i]);
  if (!l->tensors[i]) return WK_OUT_OF_MEMORY;
  for (uint32_t k = 0; k < span.count; k++)
    if (span.items[k] && !(l->tensors[i][k] = led(l, span.items[k]))) return wk_error_category();
  return WK_OK;
}

static wk_status count_on(const lead *l, wk_int given, wk_int *out) {
  int dim;
  WK_TRY(wk__wrap_dim(wk_int_guard_value(given), l->rank ? l->rank : 1, &dim));
  *out = wk_int_of(dim + 1);
  return WK_OK;
}

/* An empty list of dims may mean all, which the shape of an example's result tells. */
static wk_status means_none(const lead *l, bool *out) {
  wk__spec specs[WK__MAX_RESULTS];
  wk__call call = {.op = l->b->op, .args = l->b->args, .specs = specs, .compute_dtype = WK_DTYPE_NONE};
  *out = true;
  if (!l->b->op->meta) return WK_OK;
  WK_TRY(l->b->op->meta(&call));
  *out = specs[0].ndim == l->rank;
  for (int d = 0; *out && d < l->rank; d++) *out = wk_int_eq(specs[0].sizes[d], wk__example(l->b, 0)->sizes[d]);
  return WK_OK;
}

static wk_status lead_dims(lead *l, int i) {
  const wk_value *given = &l->b->args[i];
  wk_int *list = l->lists[i];
  bool none = false;
  if (given->tag == WK_VALUE_INT) return count_on(l, given->integer, &l->args[i].integer);
  uint32_t count = given->tag == WK_VALUE_INTS ? given->count : 0;
  if (given->tag == WK_VALUE_NONE && l->b->op->schema.parameters[i].type != WK__TYPE_INTS) return WK__BATCH_NOT_SO;
  for (uint32_t k = 0; k < count; k++) WK_TRY(count_on(l, given->integers[k], &list[k]));
  if (count == 0 && given->tag == WK_VALUE_INTS) WK_TRY(means_none(l, &none));
  if (count == 0 && !none)
    for (int d = 0; d < (l->rank ? l->rank : 1); d++) list[count++] = wk_int_of(d + 1);
  l->args[i] = wk__v_ints(list, (int)count);
  return WK_OK;
}

static wk_status lead_sizes(lead *l, int i) {
  const wk_value *given = &l->b->args[i];
  if (given->tag != WK_VALUE_INTS || given->count >= WK_MAX_DIMS) return WK__BATCH_NOT_SO;
  l->lists[i][0] = l->b->level->batch_size;
  memcpy(l->lists[i] + 1, given->integers, given->count * sizeof *given->integers);
  l->args[i] = wk__v_ints(l->lists[i], (int)given->count + 1);
  return WK_OK;
}

/* "channels_last" is about tensors of as many dims as an example has. */
static bool is_other_layout(const wk_value *v, const wk__parameter *p) {
  return p->type == WK__TYPE_MEMORY_FORMAT && v->tag == WK_VALUE_STRING && !strncmp(v->string, "channels", 8);
}

static wk_status lead_argument(lead *l, int i) {
  const wk_value *given = &l->b->args[i];
  l->args[i] = *given;
  bool tensors = given->tag == WK_VALUE_TENSOR || given->tag == WK_VALUE_TENSORS;
  if (tensors && is_in(l->row->batch_args, i)) return lead_tensors(l, i);
  if (tensors && wk__has_batch(l->b, i)) return WK__BATCH_NOT_SO;
  if (is_other_layout(given, &l->b->op->schema.parameters[i])) return WK__BATCH_NOT_SO;
  if (is_in(l->row->dims, i)) return lead_dims(l, i);
  return is_in(l->row->sizes, i) ? lead_sizes(l, i) : WK_OK;
}

/* What an operator gives that it has written is the argument itself; a dim that was added goes again. */
static wk_status give(lead *l, int r, wk_tensor *made) {
  int alias = l->b->op->schema.result_alias[r] - 1;
  const wk_tensor *written = l->b->op->tags & WK__TAG_MUTATES && alias >= 0 ? l->b->args[alias].tensor : NULL;
  if (written && wk__has_batch(l->b, alias)) return wk__batch_give(l->b, r, written->inner->value, 0);
  return wk__batch_give(l->b, r, l->flat && made->ndim > 1 ? wk_squeeze_dim(made, 1) : made, 0);
}

static wk_status call(lead *l) {
  wk_value made[WK__MAX_RESULTS] = {{0}};
  WK_TRY(wk__batch_call(l->b->op, l->args, NULL, made));
  if (l->b->op->schema.result_is_list) {
    l->b->results[0] = made[0];
    return WK_OK;
  }
  wk_status status = WK_OK;
  for (int r = 0; r < l->b->op->schema.result_count; r++) {
    if (made[r].tag == WK_VALUE_TENSOR && status == WK_OK) status = give(l, r, made[r].tensor);
    wk_value_release(&made[r]);
  }
  return status;
}

wk_status wk__batch_lead(wk__batch *b) {
  lead *l = wk__alloc_zeroed(sizeof *l);
  if (!l) return WK_OUT_OF_MEMORY;
  l->b = b;
  l->row = wk__level_row_of(b->op);
  const wk_tensor *first = first_tensor(l);
  l->rank = rank_of_dims(l, first);
  l->flat = first && l->rank == 0 && l->row->dims;
  wk_status status = WK_OK;
  for (int i = 0; i < b->op->schema.parameter_count && status == WK_OK; i++) status = lead_argument(l, i);
  if (status == WK_OK) status = call(l);
  for (int i = 0; i < b->op->schema.parameter_count; i++) wk__free(l->tensors[i]);
  wk__free(l);
  return status;
}
