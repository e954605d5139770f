/* The stack of levels, tensors of a level, and the layer of the call that turns calls of a level into calls one below.
 * In: a call of a level. Out: the same on inner values, its results as tensors of the level. Invariant: the thread is
 * in the same level before and after. Tests: tests/python/test_func.py. */
#include "levels/levels.h"

#include "autograd/body.h"
#include "levels/internal.h"
#include "trace/trace.h"

/* ==================================================== the stack ================================================= */

static _Atomic uint32_t last_number;

static void set_level(wk__thread_mode *mode, wk__level *level) {
  mode->level = level;
  mode->level_number = level ? level->number : 0;
  mode->level_followed = mode->level_number;
  if (level && level->follows_below) mode->level_followed = level->outer ? level->outer->number : 0;
  mode->keys_on = (wk__keys)(level ? mode->keys_on | WK__KEY_LEVEL : mode->keys_on & ~WK__KEY_LEVEL);
}

wk__level *wk__level_begin(wk__level_kind kind, wk_int batch_size, wk__randomness randomness) {
  wk__level *level = wk__alloc_zeroed(sizeof *level);
  if (!level) return NULL;
  *level = (wk__level){.outer = wk__thread.mode.level,
                       .number = atomic_fetch_add_explicit(&last_number, 1, memory_order_relaxed) + 1,
                       .kind = (uint8_t)kind,
                       .randomness = (uint8_t)randomness,
                       .batch_size = batch_size,
                       .mode = wk__thread.mode};
  set_level(&wk__thread.mode, level);
  return level;
}

void wk__level_follow_below(wk__level *level) {
  level->follows_below = true;
  set_level(&wk__thread.mode, level);
}

void wk__level_end(void) {
  wk__level *level = wk__thread.mode.level;
  set_level(&wk__thread.mode, level->outer);
  wk__free(level);
}

int wk__level_depth(void) {
  int depth = 0;
  for (const wk__level *l = wk__thread.mode.level; l; l = l->outer) depth++;
  return depth;
}

int wk__level_depth_of(const wk_tensor *t) {
  int depth = wk__level_depth();
  for (const wk__level *l = wk__thread.mode.level; l; l = l->outer, depth--)
    if (l->number == wk__level_of(t)) return depth;
  return 0;
}

/* Under grad the tape below goes on as it was outside: no_grad() in the function is about the level's own tape. */
wk__thread_mode wk__level_go_down(void) {
  wk__thread_mode before = wk__thread.mode;
  const wk__level *level = before.level;
  set_level(&wk__thread.mode, level->outer);
  wk__thread.mode.keys_off = level->mode.keys_off;
  if (level->kind == WK__LEVEL_GRAD) wk__thread.mode.grad_enabled = level->mode.grad_enabled;
  return before;
}

wk_status wk__call_one_below(const wk_op *op, const wk_value *args, wk_tensor *const *destinations, wk_value *results) {
  wk__thread_mode before = wk__level_go_down();
  wk_status status = wk__call_below(2 * WK__KEY_AUTOGRAD, op, args, destinations, results);
  wk__level_come_back(&before);
  return status;
}

/* =================================================== tensors of a level ========================================= */

static void without_dim(wk__spec *spec, int dim) {
  for (int d = dim; d + 1 < spec->ndim; d++) {
    spec->sizes[d] = spec->sizes[d + 1];
    spec->strides[d] = spec->strides[d + 1];
  }
  spec->ndim--;
}

static wk__inner *new_inner(wk_tensor *value, int batch_dim, wk_tensor *tangent) {
  wk__inner *inner = wk__alloc_zeroed(sizeof *inner);
  if (!inner) return NULL;
  atomic_init(&inner->references, 1);
  inner->level = wk__thread.mode.level_number;
  inner->batch_dim = batch_dim;
  inner->value = wk__retain(value);
  inner->tangent = wk__retain(tangent);
  return inner;
}

wk_tensor *wk__level_wrap(wk_tensor *value, int batch_dim, wk_tensor *tangent) {
  wk__spec spec;
  wk__spec_of(&spec, value);
  if (batch_dim >= 0) without_dim(&spec, batch_dim);
  wk_tensor *t = wk__tensor_alias(value, &spec);
  wk__inner *inner = t ? new_inner(value, batch_dim, tangent) : NULL;
  if (!inner) {
    wk__release(t);
    return NULL;
  }
  wk__tensor_set_inner(t, inner);
  return t;
}

static bool is_alive(uint32_t number) {
  for (const wk__level *l = wk__thread.mode.level; l; l = l->outer)
    if (l->number == number) return true;
  return false;
}

wk_tensor *wk__level_living(wk_tensor *t) {
  while (t->inner && !is_alive(t->inner->level)) t = t->inner->value;
  return t;
}

bool wk__is_batched(const wk_tensor *t) {
  for (; t->inner; t = t->inner->value)
    if (t->inner->batch_dim >= 0 && is_alive(t->inner->level)) return true;
  return false;
}

/* ---- looking at values ---- */

wk_status wk__refuse_batched_choice(void) {
  return wk_fail(WK_RUNTIME_ERROR,
                 "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't "
                 "support that yet, please file an issue at https://github.com/pytorch/pytorch/issues .");
}

wk_status wk__levels_realize(wk_tensor *tensor, const char *why) {
  if (WK_UNLIKELY(tensor->inner != NULL) && wk__is_batched(tensor))
    return wk_fail(WK_RUNTIME_ERROR,
                   "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() "
                   "on a Tensor, please try to rewrite what you're doing with other operations. If error is occurring "
                   "somewhere inside PyTorch internals, please file a bug report.");
  return wk__body_realize(tensor, why);
}

/* What is made under grad or forward mode belongs to the level, as results of calls do: it may be written there. */
wk_status wk__levels_constant(wk_tensor *t) {
  WK_TRY(wk__trace_add_constant(t));
  const wk__level *level = wk__thread.mode.level;
  if (WK_LIKELY(!level) || level->kind == WK__LEVEL_BATCH || t->inner) return WK_OK;
  wk__spec spec;
  wk__spec_of(&spec, t);
  WK__OWNED value = wk__tensor_alias(t, &spec);
  wk__inner *inner = value ? new_inner(value, -1, NULL) : NULL;
  if (!inner) return WK_OUT_OF_MEMORY;
  wk__tensor_set_inner(t, inner);
  return WK_OK;
}

/* =============================================== calls with other tensors ======================================= */

wk_status wk__recast_begin(wk__recast *r, const wk_op *op, const wk_value *args, wk_tensor *const *destinations) {
  int count = op->schema.parameter_count;
  *r = (wk__recast){.op = op, .given_destinations = destinations};
  memcpy(r->args, args, (size_t)count * sizeof *args);
  if (destinations) memcpy(r->destinations, destinations, op->schema.result_count * sizeof *destinations);
  for (int i = 0; i < count; i++) {
    if (args[i].tag != WK_VALUE_TENSORS) continue;
    r->lists[i] = wk__alloc((args[i].count + 1) * sizeof *r->lists[i]);
    if (!r->lists[i]) return WK_OUT_OF_MEMORY;
    memcpy(r->lists[i], args[i].tensors, args[i].count * sizeof *r->lists[i]);
    r->args[i].tensors = r->lists[i];
  }
  return WK_OK;
}

void wk__recast_end(wk__recast *r) {
  for (int i = 0; i < r->op->schema.parameter_count; i++) wk__free(r->lists[i]);
}

static void replace_all(wk__recast *r, wk_tensor *(*by)(wk_tensor *)) {
  for (int i = 0; i < r->op->schema.parameter_count; i++) {
    wk__tensor_span span = wk__value_tensors(&r->args[i]);
    for (uint32_t k = 0; k < span.count; k++)
      if (span.items[k]) span.items[k] = by(span.items[k]);
  }
  for (int d = 0; r->given_destinations && d < r->op->schema.result_count; d++)
    if (r->destinations[d]) r->destinations[d] = by(r->destinations[d]);
}

/* ---- results ---- */

static wk_tensor *argument_with(const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                                const wk_tensor *value) {
  for (int d = 0; destinations && d < op->schema.result_count; d++)
    if (destinations[d] && wk__level_value(destinations[d]) == value) return destinations[d];
  WK__EACH_TENSOR(tensor, args, op->schema.parameter_count)
  if (wk__level_value(tensor) == value) return tensor;
  return NULL;
}

static wk_status give_one(const wk_op *op, const wk_value *args, wk_tensor *const *destinations, wk_tensor **place,
                          int result, int item, wk__wrap_fn *wrap, void *context) {
  if (!*place) return WK_OK;
  wk_tensor *same = argument_with(op, args, destinations, *place);
  if (same) {
    wk__release(*place);
    *place = wk__retain(same);
    return WK_OK;
  }
  *place = wrap(context, *place, result, item);
  return *place ? WK_OK : wk_error_category();
}

wk_status wk__give_results(const wk_op *op, const wk_value *args, wk_tensor *const *destinations, wk_value *made,
                           wk_value *results, wk__wrap_fn *wrap, void *context) {
  wk_status status = WK_OK;
  int count = op->schema.result_count;
  for (int r = 0; r < count && status == WK_OK; r++) {
    wk__tensor_span span = wk__value_tensors(&made[r]);
    for (uint32_t k = 0; k < span.count && status == WK_OK; k++)
      status = give_one(op, args, destinations, &span.items[k], r, (int)k, wrap, context);
    if (status != WK_OK && made[r].tag == WK_VALUE_TENSOR) made[r] = (wk_value){0};
  }
  for (int r = 0; r < count; r++) {
    if (status == WK_OK)
      results[r] = made[r];
    else
      wk_value_release(&made[r]);
  }
  return status;
}

/* ===================================================== the layer ================================================ */

static bool is_dead(const wk_tensor *t) { return t->inner && !is_alive(t->inner->level); }

static bool has_dead(const wk_op *op, const wk_value *args, wk_tensor *const *destinations) {
  WK__EACH_TENSOR(tensor, args, op->schema.parameter_count)
  if (is_dead(tensor)) return true;
  for (int d = 0; destinations && d < op->schema.result_count; d++)
    if (destinations[d] && is_dead(destinations[d])) return true;
  return false;
}

/* As it is without the levels that are over. */
static wk_status call_living(const wk_op *op, const wk_value *args, wk_tensor *const *destinations, wk_value *results) {
  wk__recast r;
  wk_status status = wk__recast_begin(&r, op, args, destinations);
  if (status == WK_OK) {
    replace_all(&r, wk__level_living);
    status = wk__call_below(2 * WK__KEY_AUTOGRAD, op, r.args, wk__recast_destinations(&r), results);
  }
  wk__recast_end(&r);
  return status;
}

/* ---- the level of a tape ---- */

static bool is_captured(const wk_tensor *t) { return t && !wk__is_of_this_level(t); }

static bool any_of_this_level(const wk_op *op, const wk_value *args) {
  WK__EACH_TENSOR(tensor, args, op->schema.parameter_count)
  if (wk__is_of_this_level(tensor)) return true;
  return false;
}

wk_status wk__refuse_captured_write(const wk_op *op) {
  return wk_fail(WK_RUNTIME_ERROR,
                 "During a grad (vjp, jvp, grad, etc) transform, the function provided attempted to call in-place "
                 "operation (aten::%s) that would mutate a captured Tensor. This is not supported; please rewrite the "
                 "function being transformed to explicitly accept the mutated Tensor(s) as inputs.",
                 op->name);
}

static wk_status check_captured_writes(const wk_op *op, const wk_value *args, wk_tensor *const *destinations) {
  if (!any_of_this_level(op, args)) return WK_OK;
  bool written = destinations && is_captured(destinations[0]);
  if (op->tags & WK__TAG_MUTATES && op->schema.parameters[0].written && args[0].tag == WK_VALUE_TENSOR)
    written |= is_captured(args[0].tensor);
  return written ? wk__refuse_captured_write(op) : WK_OK;
}

/* A view made while the tape records looks at the tensor of this level; so does each of forward mode. */
void wk__level_set_base(const wk_op *op, const wk_value *args, wk_tensor *result) {
  int alias = op->schema.result_alias[0] - 1;
  bool records = wk__thread.mode.level->kind == WK__LEVEL_FORWARD || wk__thread.mode.grad_enabled;
  bool view = alias >= 0 && args[alias].tag == WK_VALUE_TENSOR && !op->schema.parameters[alias].written;
  if (!view || !records || op == WK__OP(detach) || op == WK__OP(view_dtype)) return;
  wk_tensor *self = args[alias].tensor;
  if (result->storage == self->storage && wk__is_of_this_level(self))
    result->base = wk__retain(self->base ? self->base : self);
}

typedef struct grad_call {
  const wk_op *op;
  const wk_value *args;
} grad_call;

static wk_tensor *wrap_for_tape(void *context, wk_tensor *steal_value, int result, int item) {
  const grad_call *c = context;
  (void)result, (void)item;
  wk_tensor *t = wk__level_wrap(steal_value, -1, NULL);
  if (t) wk__level_set_base(c->op, c->args, t);
  wk__release(steal_value);
  return t;
}

static wk_status grad_level(const wk_op *op, const wk_value *args, wk_tensor *const *destinations, wk_value *results) {
  wk__recast r;
  wk_value made[WK__MAX_RESULTS] = {{0}};
  WK_TRY(check_captured_writes(op, args, destinations));
  wk_status status = wk__recast_begin(&r, op, args, destinations);
  if (status == WK_OK) {
    replace_all(&r, wk__level_value);
    status = wk__call_one_below(op, r.args, wk__recast_destinations(&r), made);
  }
  wk__recast_end(&r);
  WK_TRY(status);
  grad_call context = {op, args};
  return wk__give_results(op, args, destinations, made, results, wrap_for_tape, &context);
}

wk_status wk__levels_layer(const wk_op *op, const wk_value *args, wk_tensor *const *destinations, wk_value *results) {
  const wk__level *level = wk__thread.mode.level;
  if (WK_UNLIKELY(has_dead(op, args, destinations))) return call_living(op, args, destinations, results);
  if (!level) return wk__call_below(WK__KEY_LEVEL, op, args, destinations, results);
  switch ((wk__level_kind)level->kind) {
    case WK__LEVEL_GRAD:
      return grad_level(op, args, destinations, results);
    case WK__LEVEL_BATCH:
      return wk__batch_level(op, args, destinations, results);
    default:
      return wk__forward_level(op, args, destinations, results);
  }
}
