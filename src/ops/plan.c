/* Finding or making the plan of a call, and launching it. In: a call with outputs. Invariant: everything a lowering may
 * look at is part of the key; sizes, strides and numbers are not, they come at launch. Tests: tests/c/test_ops.c. */
#include "ops/plan.h"

#include "ops/complex_calls.h"
#include "ops/internal.h"
#include "ops/many_dims.h"

/* ---- keys ---- */

enum { KEY_WORDS = 64 }; /* of a call with a longer key the plan is not kept */

typedef struct plan_key {
  uint64_t words[KEY_WORDS];
  int count;
  bool too_long;
} plan_key;

static void put(plan_key *key, uint64_t word) {
  if (key->count == KEY_WORDS)
    key->too_long = true;
  else
    key->words[key->count++] = word;
}

static bool is_param(const wk_op *op, int i, const wk_value *v) {
  const wk__parameter *p = &op->schema.parameters[i];
  bool number = p->type == WK__TYPE_SCALAR || p->type == WK__TYPE_FLOAT || p->at_launch;
  return number && (wk__value_is_number(v) || v->tag == WK_VALUE_COMPLEX) && !(op->tags & WK__TAG_FIXED_NUMBERS);
}

/* Of a number given at launch the body may know its kind and whether it is one: see wk__is_one. */
static bool is_exactly_one(const wk_value *v) {
  switch (v->tag) {
    case WK_VALUE_INT:
      return v->integer.bits == 1;
    case WK_VALUE_DOUBLE:
      return v->number == 1;
    case WK_VALUE_WIDE:
    case WK_VALUE_INPUT: /* may be another in the next run */
    case WK_VALUE_COMPLEX:
      return false;
    default:
      return v->boolean;
  }
}

static void put_bytes(plan_key *key, const void *bytes, size_t size) {
  for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    memcpy(&word, (const char *)bytes + at, wk__min(sizeof word, size - at));
    put(key, word);
  }
}

/* An item has no padding, so its bytes are its value. */
static void put_behind(plan_key *key, uint64_t head, const wk_value *v) {
  size_t size = wk__value_extent(v);
  put(key, head | size);
  put_bytes(key, v->string, size);
}

/* Anything but tensors, which rules look at by dtype and rank. */
static void put_structure(plan_key *key, const wk_value *v) {
  uint64_t head = (uint64_t)v->tag << 56;
  switch (v->tag) {
    case WK_VALUE_TENSORS:
    case WK_VALUE_GENERATOR:
    case WK_VALUE_DEVICE: /* of the results */
      put(key, head);
      break;
    case WK_VALUE_SCALARS:
      put(key, head | v->count);
      for (uint32_t k = 0; k < v->count; k++) put_structure(key, &v->scalars[k]);
      break;
    default:
      if (wk__value_points(v)) {
        put_behind(key, head, v);
      } else {
        put(key, wk__value_bits(v));
        put(key, head | v->count);
      }
  }
}

static void put_value(plan_key *key, bool param, bool shape_only, const wk_value *v, bool pointwise) {
  uint64_t head = (uint64_t)v->tag << 56;
  if (param || shape_only)
    put(key, head | (param ? is_exactly_one(v) : v->tag == WK_VALUE_INTS ? v->count : 0));
  else if (v->tag == WK_VALUE_TENSOR)
    put(key, head | v->tensor->dtype | (uint64_t)(pointwise ? 0 : v->tensor->ndim) << 8);
  else if (v->tag == WK_VALUE_NONE)
    put(key, head);
  else
    put_structure(key, v);
}

static void make_key(plan_key *key, const wk__call *c, wk_tensor *const *outputs) {
  const wk__schema *schema = &c->op->schema;
  bool pointwise = c->op->tags & WK__TAG_POINTWISE;
  key->count = 0;
  key->too_long = false;
  put(key, c->compute_dtype | (uint64_t)outputs[0]->device.type << 8);
  for (int r = 0; r < schema->result_count; r++)
    put(key, outputs[r]->dtype | (uint64_t)(pointwise ? 0 : outputs[r]->ndim) << 8);
  for (int i = 0; i < schema->parameter_count; i++)
    put_value(key, is_param(c->op, i, &c->args[i]), schema->parameters[i].shape_only, &c->args[i], pointwise);
}

static uint64_t hash_of(const wk_op *op, const plan_key *key) {
  uint64_t hash = op->number;
  for (int i = 0; i < key->count; i++) hash = wk__hash_mix(hash, key->words[i]);
  return hash;
}

/* ---- making ---- */

void wk__plan_release(wk__plan *plan) {
  if (!plan || atomic_fetch_sub_explicit(&plan->references, 1, memory_order_acq_rel) > 1) return;
  for (int n = 0; n < plan->lowered.nest_count; n++)
    if (plan->codes[n]) plan->device->release_code(plan->codes[n]);
  wk__lowered_release(&plan->lowered);
  if (plan->env) wk__shape_env_release(plan->env);
  wk__free(plan);
}

/* A complex tensor is two: its real and its imaginary parts. */
static void add_buffer(wk__nest *nest, const wk_tensor *t, bool pointwise) {
  for (int part = 0; part < wk__part_count(t); part++)
    nest->buffers[nest->buffer_count++] = (wk__nest_buffer){.dtype = (uint8_t)wk__real_dtype((wk_dtype)t->dtype),
                                                            .ndim = (uint8_t)(pointwise ? 1 : t->ndim)};
}

/* Buffers: tensor arguments in order, then results. Every nest of a lowering declares them all. */
static wk__nest *new_nest(const wk__lower *l) {
  const wk__call *c = l->call;
  wk__nest *nest = wk__nest_create();
  if (!nest) return NULL;
  for (int i = 0; i < c->op->schema.parameter_count; i++)
    if (c->args[i].tag == WK_VALUE_TENSOR) add_buffer(nest, c->args[i].tensor, l->pointwise);
  for (int r = 0; r < c->op->schema.result_count; r++) add_buffer(nest, c->outputs[r], l->pointwise);
  if (l->pointwise) {
    nest->geometry_free = true;
    nest->pointwise_dims = 1;
    nest->sizes[0] = wk_int_buffer_size(nest->buffer_count - 1, 0);
  }
  return nest;
}

static wk_status start_nest(wk__lower *l) {
  wk__lowered *lowered = l->lowered;
  if (lowered->nest_count == WK__PLAN_MAX_NESTS)
    return wk_fail(WK_INTERNAL_ERROR, "operator %s lowers to too many nests", l->call->op->name);
  l->nest = new_nest(l);
  if (!l->nest) return WK_OUT_OF_MEMORY;
  lowered->nests[lowered->nest_count++] = l->nest;
  wk__recorder_init(&l->recorder, l->nest);
  return WK_OK;
}

void wk__next_nest(wk__lower *l) {
  if (!l->h->status) {
    wk_status status = start_nest(l);
    l->h->status = status;
  }
}

/* is_given NULL: an operator that is run by itself. */
static bool comes_at_launch(const wk__call *c, int i, const bool *is_given) {
  const wk_value *v = &c->args[i];
  bool fixed = c->op->tags & WK__TAG_FIXED_NUMBERS;
  if (fixed) return is_given && is_given[i] && wk__value_is_real(v);
  return is_param(c->op, i, v) && (!is_given || is_given[i]);
}

static wk_status map_arguments(wk__lower *l, const bool *is_given) {
  const wk__call *c = l->call;
  int buffers = 0, params = 0;
  for (int i = 0; i < c->op->schema.parameter_count; i++) {
    bool tensor = c->args[i].tag == WK_VALUE_TENSOR;
    bool param = comes_at_launch(c, i, is_given);
    l->buffer_of_arg[i] = (int8_t)(tensor ? buffers : -1);
    l->param_of_arg[i] = (int8_t)(param ? params : -1);
    if (tensor) buffers += wk__part_count(c->args[i].tensor);
    if (param) params += c->args[i].tag == WK_VALUE_COMPLEX ? 2 : 1;
  }
  for (int r = 0; r < c->op->schema.result_count; r++) {
    l->buffer_of_result[r] = (int8_t)buffers;
    buffers += wk__part_count(c->outputs[r]);
  }
  if (buffers > WK__NEST_MAX_BUFFERS)
    return wk_fail(WK_INTERNAL_ERROR, "operator %s has too many tensors", c->op->name);
  return WK_OK;
}

static void log_nest(const wk_op *op, const wk__nest *nest) {
  wk__string text = {0};
  wk__nest_print(&text, nest);
  wk__log_print(WK__LOG_LOOP, "%s\n%s", op->name, text.text ? text.text : "");
  wk__string_release(&text);
}

static wk_status check_nests(const wk_op *op, const wk__lowered *lowered) {
  for (int n = 0; n < lowered->nest_count; n++) {
#ifdef WICK_DEBUG
    WK_TRY(wk__nest_verify(lowered->nests[n]));
#endif
    if (wk__log_on(WK__LOG_LOOP)) log_nest(op, lowered->nests[n]);
  }
  return WK_OK;
}

/* The kernel's name for errors about dtypes. */
static const char *kernel_name(const wk_op *op, const char **out_suffix) {
  *out_suffix = op->kernel_name ? "" : "_cpu";
  return op->kernel_name ? op->kernel_name : op->base_name + (*op->base_name == '_');
}

wk_status wk__check_words(const wk_op *op, int dtype) {
  if (WK_LIKELY(!wk__dtype_is_word(dtype)) || op->tags & WK__TAG_WORDS) return WK_OK;
  const char *suffix, *name = kernel_name(op, &suffix);
  return wk_fail(WK_NOT_IMPLEMENTED, "\"%s%s\" not implemented for '%s'", name, suffix,
                 wk__dtype_legacy((wk_dtype)dtype));
}

/* Most operators only store float8, and not all have a body on pairs. */
static wk_status check_computes(const wk__call *c, int dtype) {
  if (wk__dtype_is_float8(dtype) && !(c->op->tags & WK__TAG_FLOAT8))
    return wk_fail(WK_NOT_IMPLEMENTED, "\"%s_cpu\" not implemented for '%s'",
                   c->op->base_name + (*c->op->base_name == '_'), wk__dtype_legacy((wk_dtype)dtype));
  if (!wk_dtype_is_complex((wk_dtype)dtype) || c->op->pairs) return WK_OK;
  return wk__refuse_complex_tensors(c->op, (wk_dtype)dtype);
}
static wk_status check_dtypes(const wk__call *c) {
  WK_TRY(check_computes(c, c->compute_dtype));
  WK_TRY(wk__check_words(c->op, c->compute_dtype));
  bool looks = !(c->op->tags & WK__TAG_SHAPES_ONLY);
  for (int i = 0; i < c->op->schema.parameter_count && looks; i++)
    if (c->args[i].tag == WK_VALUE_TENSOR) WK_TRY(check_computes(c, c->args[i].tensor->dtype));
  return WK_OK;
}

#ifdef WICK_DEBUG
/* What a row says that only its shape rule looks at is not there for the body. */
static void hide_shapes(wk__call *seen, wk_value *args) {
  static const wk_int hidden[WK_MAX_DIMS] = {[0 ... WK_MAX_DIMS - 1] = {INT64_MIN}};
  const wk__schema *schema = &seen->op->schema;
  memcpy(args, seen->args, schema->parameter_count * sizeof *args);
  seen->args = args;
  for (int i = 0; i < schema->parameter_count; i++) {
    if (!schema->parameters[i].shape_only) continue;
    if (args[i].tag == WK_VALUE_INT) args[i].integer = hidden[0];
    if (args[i].tag == WK_VALUE_INTS && args[i].count <= WK_MAX_DIMS) args[i].integers = hidden;
  }
}
#endif

wk_status wk__lower_call(const wk__call *c, const bool *is_given, wk__lowered *out) {
#ifdef WICK_DEBUG
  wk_value args[WK__MAX_ARGS];
  wk__call seen = *c;
  hide_shapes(&seen, args);
  c = &seen;
#endif
  wk__lower l = {.call = c,
                 .lowered = out,
                 .pointwise = c->op->tags & WK__TAG_POINTWISE,
                 .compute = (wk_dtype)wk__dtypes[wk__real_dtype((wk_dtype)c->compute_dtype)].compute};
  WK_TRY(check_dtypes(c));
  out->pairs = wk__call_is_complex(c);
  WK_TRY(map_arguments(&l, is_given));
  memcpy(out->buffer_of_arg, l.buffer_of_arg, sizeof l.buffer_of_arg);
  memcpy(out->buffer_of_result, l.buffer_of_result, sizeof l.buffer_of_result);
  memcpy(out->param_of_arg, l.param_of_arg, sizeof l.param_of_arg);
  l.h = &l.recorder.handler;
  WK_TRY(start_nest(&l));
  (out->pairs ? c->op->pairs : c->op->lower)(&l);
  WK_TRY(l.h->status);
  return check_nests(c->op, out);
}

void wk__lowered_release(wk__lowered *lowered) {
  for (int n = 0; n < lowered->nest_count; n++) wk__nest_release(lowered->nests[n]);
}

static wk_status lower_into(wk__plan *plan, const wk__call *c) {
  WK_TRY(wk__cpu_level_check()); /* an impossible WICK_CPU is said by the first call */
  WK_TRY(wk__lower_call(c, NULL, &plan->lowered));
  for (int n = 0; n < plan->lowered.nest_count; n++) {
    plan->codes[n] = plan->device->build(plan->lowered.nests[n]);
    if (!plan->codes[n]) return wk_error_category();
  }
  return WK_OK;
}

static bool has_tensors(const wk__call *c) {
  bool any = false;
  for (int i = 0; i < c->op->schema.parameter_count; i++) any |= c->args[i].tag == WK_VALUE_TENSOR;
  return any;
}

static wk__plan *make_plan(const wk__call *c, const plan_key *key, uint64_t hash, wk_tensor *const *outputs) {
  for (int r = 0; r < c->op->schema.result_count; r++) {
    bool computed = !wk__dtype_is_float8(outputs[r]->dtype) || !has_tensors(c); /* else converted at the end */
    if (computed && check_computes(c, outputs[r]->dtype)) return NULL;
    if (!has_tensors(c) && wk__check_words(c->op, outputs[r]->dtype)) return NULL;
  }
  wk__plan *plan = wk__alloc_zeroed(sizeof *plan + (size_t)key->count * sizeof *key->words);
  if (!plan) return NULL;
  atomic_init(&plan->references, 1);
  plan->op = c->op;
  plan->device = wk__device_types[outputs[0]->device.type];
  plan->hash = hash;
  plan->key_words = key->count;
  memcpy(plan->key, key->words, (size_t)key->count * sizeof *key->words);
  plan->env = wk__shape_env_create();
  wk__shape_env *outer = wk__shape_env_set_current(plan->env);
  wk_status status = plan->env ? lower_into(plan, c) : WK_OUT_OF_MEMORY;
  wk__shape_env_set_current(outer);
  if (status == WK_OK) return plan;
  wk__plan_release(plan);
  return NULL;
}

/* ---- launching ---- */

static void bind_params(const wk__plan *plan, const wk__call *c, wk__scalar *params) {
  for (int i = 0; i < c->op->schema.parameter_count; i++) {
    int p = plan->lowered.param_of_arg[i];
    if (p < 0) continue;
    if (WK_UNLIKELY(c->args[i].tag == WK_VALUE_COMPLEX))
      for (int part = 0; part < 2; part++)
        params[p + part] = (wk__scalar){WK__FLOAT_KIND, .d = wk__value_part(&c->args[i], part)};
    else
      params[p] = wk__value_scalar(&c->args[i]);
  }
}

static void bind_buffer(wk__launch_buffer *b, const wk_tensor *t) {
  b->data = wk__address(t);
  b->sizes = &t->sizes->bits;
  b->strides = &t->strides->bits;
}

/* A tensor's one or two buffers. Those of its parts step twice as far; `strides` has room for one more tensor's. */
static void bind_parts(const wk__plan *plan, const wk_tensor *t, wk__launch_buffer *b, int64_t *strides) {
  bind_buffer(b, t);
  if (!plan->lowered.pairs || !wk_dtype_is_complex((wk_dtype)t->dtype)) return;
  for (int d = 0; d < t->ndim; d++) strides[d] = 2 * wk__stride(t, d);
  b[0].strides = strides;
  b[1] = b[0];
  b[1].data = (char *)b[0].data + wk__itemsize(t) / 2;
}

static wk_status launch(const wk__plan *plan, const wk__call *c, wk_tensor *const *outputs) {
  wk__launch l;
  wk__scalar params[2 * WK__MAX_ARGS];
  int64_t strides[WK__NEST_MAX_BUFFERS][WK__NEST_MAX_DIMS];
  bind_params(plan, c, params);
  l.params = params;
  for (int i = 0; i < c->op->schema.parameter_count; i++)
    if (plan->lowered.buffer_of_arg[i] >= 0) {
      int b = plan->lowered.buffer_of_arg[i];
      bind_parts(plan, c->args[i].tensor, &l.buffers[b], strides[b]);
    }
  for (int r = 0; r < c->op->schema.result_count; r++) {
    int b = plan->lowered.buffer_of_result[r];
    bind_parts(plan, outputs[r], &l.buffers[b], strides[b]);
  }
  bool copied = c->op->tags & WK__TAG_PLACES && outputs[0] == c->args[0].tensor;
  wk__stream *stream = wk__stream_of(outputs[0]->device);
  for (int n = copied; n < plan->lowered.nest_count; n++) WK_TRY(plan->device->launch(stream, plan->codes[n], &l, 1));
  return WK_OK;
}

/* Strides over the output's dims: 0 where the tensor is broadcast. */
static void broadcast_strides(const wk_tensor *t, int ndim, int64_t *strides) {
  int skip = ndim - t->ndim;
  int parts = wk__part_count(t);
  for (int d = 0; d < ndim; d++)
    strides[d] = d < skip || wk__size(t, d - skip) == 1 ? 0 : parts * wk__stride(t, d - skip);
}

/* Every tensor is contiguous and of the output's shape, or one element: the iteration space is a line. */
static bool is_line(const wk__call *c, const wk_tensor *out, wk_tensor *const *outputs) {
  for (int r = 0; r < c->op->schema.result_count; r++)
    if (!wk__is_contiguous(outputs[r])) return false;
  for (int i = 0; i < c->op->schema.parameter_count; i++) {
    if (c->args[i].tag != WK_VALUE_TENSOR) continue;
    const wk_tensor *t = c->args[i].tensor;
    if (!wk__is_contiguous(t) || t->numel.bits != out->numel.bits) {
      if (t->numel.bits != 1) return false;
    }
  }
  return true;
}

static wk_status launch_many_dims(const wk__plan *plan, const wk__call *c, wk_tensor *const *outputs) {
  const wk_tensor *out = outputs[0];
  int parameters = c->op->schema.parameter_count, buffers = 0;
  wk__launch l;
  wk__loops loops = {.ndim = out->ndim};
  wk__scalar params[2 * WK__MAX_ARGS];
  bind_params(plan, c, params);
  l.params = params;
  for (int d = 0; d < out->ndim; d++) loops.sizes[d] = wk__size(out, d);
  for (int i = 0; i < parameters + c->op->schema.result_count; i++) {
    const wk_tensor *t = i < parameters ? wk__arg_tensor(c, i) : outputs[i - parameters];
    if (!t) continue;
    for (int part = 0; part < wk__part_count(t); part++) {
      l.buffers[buffers].data = wk__part_address(t, part);
      broadcast_strides(t, out->ndim, loops.strides[buffers++]);
    }
  }
  loops.count = buffers;
  wk__many_code code = {plan->device, plan->codes[0], plan->lowered.nests[0]};
  return wk__launch_many(&code, wk__stream_of(out->device), &l, &loops, plan->lowered.buffer_of_result[0]);
}

static wk_status launch_pointwise(const wk__plan *plan, const wk__call *c, wk_tensor *const *outputs) {
  const wk_tensor *out = outputs[0];
  wk__launch l;
  wk__scalar params[2 * WK__MAX_ARGS];
  int64_t strides[WK__NEST_MAX_BUFFERS][WK__NEST_MAX_DIMS];
  static const int64_t along = 1, along_pairs = 2, nowhere = 0;
  bool line = is_line(c, out, outputs);
  if (WK_UNLIKELY(out->ndim > WK__NEST_MAX_DIMS) && !line) return launch_many_dims(plan, c, outputs);
  bind_params(plan, c, params);
  l.params = params;
  l.ndim = line ? 1 : out->ndim;
  l.sizes = line ? &out->numel.bits : &out->sizes->bits;
  for (int i = 0; i < c->op->schema.parameter_count + c->op->schema.result_count; i++) {
    int r = i - c->op->schema.parameter_count,
        b = r < 0 ? plan->lowered.buffer_of_arg[i] : plan->lowered.buffer_of_result[r];
    if (b < 0) continue;
    const wk_tensor *t = r < 0 ? c->args[i].tensor : outputs[r];
    l.buffers[b].data = wk__address(t);
    l.buffers[b].sizes = NULL;
    l.buffers[b].strides = strides[b];
    bool pair = plan->lowered.pairs && wk_dtype_is_complex((wk_dtype)t->dtype);
    if (line)
      l.buffers[b].strides = t->numel.bits == 1 ? &nowhere : pair ? &along_pairs : &along;
    else
      broadcast_strides(t, out->ndim, strides[b]);
    if (!pair) continue;
    l.buffers[b + 1] = l.buffers[b];
    l.buffers[b + 1].data = wk__part_address(t, 1);
  }
  return plan->device->launch(wk__stream_of(out->device), plan->codes[0], &l, 1);
}

/* out_own: a plan that is not kept. No plan: there is none for so many dims. */
static wk_status find_or_make(const wk__call *c, const plan_key *key, wk_tensor *const *outputs,
                              const wk__plan **out_plan, wk__plan **out_own) {
  uint64_t hash = hash_of(c->op, key);
  if (!key->too_long && (*out_plan = wk__plan_find(c->op, key->words, key->count, hash))) return WK_OK;
  if (!(c->op->tags & WK__TAG_POINTWISE) && wk__has_many_dims(c, outputs)) return WK_OK;
  wk__plan *made = make_plan(c, key, hash, outputs);
  if (!made) return wk_error_category();
  *out_plan = key->too_long ? (*out_own = made) : wk__plan_add(made);
  return *out_plan ? WK_OK : wk_error_category();
}

wk_status wk__run_lowered(wk__call *c, wk_tensor *const *outputs) {
  plan_key key;
  wk__plan *own = NULL;
  make_key(&key, c, outputs);
  const wk__plan *plan = key.too_long ? NULL : wk__plan_last(c->op, key.words, key.count);
  if (WK_UNLIKELY(!plan)) WK_TRY(find_or_make(c, &key, outputs, &plan, &own));
  if (WK_UNLIKELY(!plan)) return wk__run_many_dims(c, outputs);
  wk_status status = c->op->tags & WK__TAG_POINTWISE ? launch_pointwise(plan, c, outputs) : launch(plan, c, outputs);
  wk__plan_release(own);
  return status;
}
