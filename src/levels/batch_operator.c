/* vmap of an operator that has a derivative of its own, as an operator.
 *
 * Where a call is done by its parts (batch.c), tapes and tangents below would see the parts, which need have no
 * derivative. So the whole is one operator there, made at run time: of the same schema, with the batch as the first dim
 * of some arguments and of all results. It computes by the operator under a level of vmap of its own; its derivative is
 * the operator's rule under such a level. Nothing else knows of it: it is a composite with a derivative.
 *
 * In: an operator and which arguments have a batch. Out: that operator, one for each pair, kept as long as the process.
 * Tests: tests/ops/test_levels.py. */
#include <pthread.h>

#include "levels/internal.h"
#include "wick/operators.h"

typedef struct batched_operator {
  wk_op op; /* first, so that it is found from there */
  const wk_op *of;
  uint32_t with; /* arguments with a batch, as bits */
  struct batched_operator *next;
} batched_operator;

static pthread_mutex_t made_mutex = PTHREAD_MUTEX_INITIALIZER;
static batched_operator *made_operators;

static const batched_operator *details_of(const wk_op *op) { return (const batched_operator *)op; }
static bool has_batch(const wk_op *op, int arg) { return details_of(op)->with >> arg & 1; }

/* ==================================================== computing ================================================= */

/* Arguments as examples of the innermost level; in the scope. */
static wk_status wrap_arguments(const wk_op *op, wk__recast *r) {
  for (int i = 0; i < op->schema.parameter_count; i++) {
    wk__tensor_span span = wk__value_tensors(&r->args[i]);
    for (uint32_t k = 0; has_batch(op, i) && k < span.count; k++) {
      if (!span.items[k]) continue;
      span.items[k] = wk__level_wrap(span.items[k], 0, NULL);
      if (!span.items[k]) return wk_error_category();
      wk__scope_add(span.items[k]);
    }
  }
  return WK_OK;
}

/* One level below: the whole, with the batch as its first dim. Owned. */
static wk_tensor *taken_out(wk_tensor *t) {
  wk__batch b = {.level = wk__thread.mode.level};
  wk_scope scope;
  wk__thread_mode before = wk__level_go_down();
  wk_scope_begin(&scope);
  wk_tensor *whole = wk_scope_keep(wk__batch_expanded(&b, t));
  wk_scope_end(&scope);
  wk__level_come_back(&before);
  return whole;
}

static wk_status take_out_results(const wk_op *op, wk_value *made, wk_value *results) {
  wk_status status = WK_OK;
  for (int r = 0; r < op->schema.result_count; r++) {
    wk__tensor_span span = wk__value_tensors(&made[r]);
    for (uint32_t k = 0; k < span.count && status == WK_OK; k++) {
      wk_tensor *example = span.items[k];
      if (!example) continue;
      span.items[k] = taken_out(example);
      wk__release(example);
      if (!span.items[k]) status = wk_error_category();
    }
    if (status != WK_OK && made[r].tag == WK_VALUE_TENSOR && !made[r].tensor) made[r] = (wk_value){0};
  }
  for (int r = 0; r < op->schema.result_count; r++) {
    if (status == WK_OK)
      results[r] = made[r];
    else
      wk_value_release(&made[r]);
  }
  return status;
}

static wk_int size_of_batch(const wk_op *op, const wk_value *args) {
  for (int i = 0; i < op->schema.parameter_count; i++)
    if (has_batch(op, i)) WK__EACH_TENSOR(tensor, &args[i], 1) return tensor->sizes[0];
  return wk_int_of(0);
}

/* A level of vmap of its own, which is there wherever the operator is run: a graph's executor has switched the layers
 * off. Gives the mode of before, for `end_own_level`. */
static bool begin_own_level(wk_int size, wk__thread_mode *out_before) {
  *out_before = wk__thread.mode;
  if (!wk__level_begin(WK__LEVEL_BATCH, size, WK__RANDOM_ERROR)) return false;
  wk__thread.mode.keys_off &= (wk__keys)~WK__KEY_LEVEL;
  return true;
}
static void end_own_level(const wk__thread_mode *before) {
  wk__level_end();
  wk__thread.mode.keys_off = before->keys_off;
}

static wk_status compute_batched(wk__call *c) {
  wk__recast r;
  wk_value made[WK__MAX_RESULTS] = {{0}};
  wk_scope scope;
  wk__thread_mode before;
  if (!begin_own_level(size_of_batch(c->op, c->args), &before)) return WK_OUT_OF_MEMORY;
  wk_scope_begin(&scope);
  wk_status status = wk__recast_begin(&r, c->op, c->args, NULL);
  if (status == WK_OK) status = wrap_arguments(c->op, &r);
  if (status == WK_OK) status = wk__call_below(2 * WK__KEY_LEVEL, details_of(c->op)->of, r.args, NULL, made);
  if (status == WK_OK) status = take_out_results(c->op, made, c->results);
  wk__recast_end(&r);
  wk_scope_end(&scope);
  end_own_level(&before);
  return status;
}

/* ==================================================== derivative ================================================ */

static wk_tensor *example_of(wk_tensor *t) {
  wk_tensor *example = t ? wk__level_wrap(t, 0, NULL) : NULL;
  if (example) wk__scope_add(example);
  return example;
}

/* The gradient of what has no batch is the sum of all examples'. */
static wk_tensor *gradient_below(const wk_op *op, const wk_value *args, int input, wk_tensor *gradient) {
  int arg = input, start = op->schema.parameter_count;
  for (int i = 0; input >= start && i < op->schema.parameter_count; i++) {
    if (args[i].tag != WK_VALUE_TENSORS) continue;
    if (input < start + (int)args[i].count) arg = i;
    start += (int)args[i].count;
    if (arg < op->schema.parameter_count) break;
  }
  wk_tensor *whole = taken_out(gradient);
  if (!whole || has_batch(op, arg)) return whole;
  wk_int first = wk_int_of(0);
  wk_scope scope;
  wk__thread_mode before = wk__level_go_down();
  wk_scope_begin(&scope);
  wk_tensor *sum = wk_scope_keep(wk_sum_dim_IntList(whole, &first, 1, false, WK_DTYPE_NONE));
  wk_scope_end(&scope);
  wk__level_come_back(&before);
  wk__release(whole);
  return sum;
}

static wk_status run_rule(wk__vjp *v, wk_value *args, wk_tensor **space, wk_tensor **owned) {
  const wk_op *op = v->op;
  int inputs = wk__list_start(op, v->args, op->schema.parameter_count);
  wk_tensor *results[WK__MAX_RESULTS], **grads = space, **out = space + v->result_count;
  for (int r = 0; r < op->schema.result_count; r++) results[r] = example_of(v->results[r]);
  for (int r = 0; r < v->result_count; r++) grads[r] = example_of(v->grads[r]);
  wk__vjp inner = {.op = details_of(op)->of,
                   .args = args,
                   .results = results,
                   .grads = grads,
                   .result_count = v->result_count,
                   .wanted = v->wanted,
                   .out_grads = out};
  WK_TRY(inner.op->vjp(&inner));
  for (int i = 0; i < inputs; i++) {
    if (!out[i] || !v->wanted[i]) continue;
    owned[i] = gradient_below(op, v->args, i, out[i]);
    if (!owned[i]) return wk_error_category();
  }
  return WK_OK;
}

static wk_int size_of_gradients(const wk__vjp *v) {
  for (int r = 0; r < v->result_count; r++)
    if (v->grads[r]) return v->grads[r]->sizes[0];
  return wk_int_of(0);
}

static wk_status vjp_batched(wk__vjp *v) {
  int inputs = wk__list_start(v->op, v->args, v->op->schema.parameter_count);
  wk_tensor **space = wk__alloc_zeroed((size_t)(v->result_count + 2 * inputs + 1) * sizeof *space);
  wk_tensor **owned = space ? space + v->result_count + inputs : NULL;
  wk__recast r;
  wk_scope scope;
  wk__thread_mode before;
  if (!space || !begin_own_level(size_of_gradients(v), &before)) {
    wk__free(space);
    return WK_OUT_OF_MEMORY;
  }
  wk_scope_begin(&scope);
  wk_status status = wk__recast_begin(&r, v->op, v->args, NULL);
  if (status == WK_OK) status = wrap_arguments(v->op, &r);
  if (status == WK_OK) status = run_rule(v, r.args, space, owned);
  wk__recast_end(&r);
  wk_scope_end(&scope);
  end_own_level(&before);
  for (int i = 0; i < inputs; i++) {
    if (!owned[i]) continue;
    wk__scope_add(owned[i]);
    v->out_grads[i] = owned[i];
  }
  wk__free(space);
  return status;
}

/* ==================================================== operators ================================================= */

static batched_operator *make_operator(const wk_op *of, uint32_t with) {
  batched_operator *made = wk__alloc_zeroed(sizeof *made);
  if (!made) return NULL;
  made->op = *of;
  made->op.number = WK__OP_COUNT;
  made->op.tags &= ~(uint32_t)(WK__TAG_POINTWISE | WK__TAG_COMPARISON | WK__TAG_VIEW | WK__TAG_PRIM);
  made->op.compose = compute_batched;
  made->op.vjp = vjp_batched;
  made->op.meta = NULL;
  made->op.lower = made->op.pairs = NULL;
  made->op.view = made->op.routine = made->op.of_complex = NULL;
  made->op.has_kernel = made->op.halves = false;
  made->op.takes_complex = true;
  made->op.kernel_name = NULL;
  memset(made->op.autocast, WK__AUTOCAST_NONE, sizeof made->op.autocast);
  made->of = of;
  made->with = with;
  return made;
}

static const wk_op *operator_for(const wk_op *of, uint32_t with) {
  pthread_mutex_lock(&made_mutex);
  batched_operator *found = made_operators;
  while (found && (found->of != of || found->with != with)) found = found->next;
  if (!found && (found = make_operator(of, with))) {
    found->next = made_operators;
    made_operators = found;
  }
  pthread_mutex_unlock(&made_mutex);
  return found ? &found->op : NULL;
}

/* ---- the call ---- */

static wk_status put_first(const wk__batch *b, wk__recast *r, int arg) {
  wk__tensor_span from = wk__value_tensors(&b->args[arg]), to = wk__value_tensors(&r->args[arg]);
  for (uint32_t k = 0; k < from.count; k++) {
    if (!from.items[k]) continue;
    to.items[k] = wk__batch_expanded(b, from.items[k]);
    if (!to.items[k]) return wk_error_category();
  }
  return WK_OK;
}

wk_status wk__batch_whole_operator(wk__batch *b) {
  uint32_t with = 0;
  for (int i = 0; i < b->op->schema.parameter_count; i++) with |= (uint32_t)wk__has_batch(b, i) << i;
  const wk_op *op = operator_for(b->op, with);
  wk__recast r;
  if (!op) return WK_OUT_OF_MEMORY;
  wk_status status = wk__recast_begin(&r, b->op, b->args, NULL);
  for (int i = 0; i < b->op->schema.parameter_count && status == WK_OK; i++)
    if (with >> i & 1) status = put_first(b, &r, i);
  if (status == WK_OK) status = wk__batch_call(op, r.args, NULL, b->results);
  wk__recast_end(&r);
  return status;
}

/* Of a vmap below nothing is followed: it does the call by its parts as well, unless somebody follows it. */
static const wk_tensor *below_batches(const wk_tensor *t) {
  const wk__level *level = wk__thread.mode.level;
  while (t->inner && level) {
    if (level->number != t->inner->level) {
      level = level->outer;
      continue;
    }
    if (level->kind != WK__LEVEL_BATCH) break;
    t = t->inner->value;
  }
  return t;
}

bool wk__batch_is_followed(const wk__batch *b) {
  if (!b->op->vjp) return false;
  wk__thread_mode before = wk__level_go_down();
  bool tape = wk__thread.mode.grad_enabled && !(wk__thread.mode.keys_off & WK__KEY_AUTOGRAD), followed = false;
  wk__level_come_back(&before);
  WK__EACH_TENSOR(tensor, b->args, b->op->schema.parameter_count) {
    const wk_tensor *value = below_batches(tensor);
    int keys = value->keys | (value->base ? value->base->keys : 0);
    followed |= value->inner != NULL || (tape && keys & WK__KEY_AUTOGRAD);
  }
  return followed;
}
