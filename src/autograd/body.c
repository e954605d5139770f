/* Calls become instructions of one nest; body.h says which. Tests: tests/python/test_flex_attention.py. */
#include "autograd/body.h"

#include <math.h>
#include <stdatomic.h>

#include "autograd/autograd.h"
#include "ops/internal.h"
#include "ops/plan.h"
#include "trace/trace.h"

/* What the storage of a value is: the storage is its identity, since views and what the tape keeps share it. */
typedef struct cell {
  uint64_t body;
  wk__var value;   /* in the dtype that the tensor's computes in */
  int64_t element; /* memory for who asks; zero */
} cell;

static wk_status refuse(const char *what) { return wk_fail(WK_UNSUPPORTED, "a body of scores: %s", what); }

/* ================================================== values ====================================================== */

static void release_cell(void *context) { wk__free(context); }

static cell *cell_of(const wk__body *b, const wk_tensor *t) {
  if (!b || !t || !t->storage || t->storage->release != release_cell) return NULL;
  cell *c = t->storage->context;
  return c->body == b->number ? c : NULL;
}

wk_status wk__body_realize(wk_tensor *tensor, const char *why) {
  wk__body *b = wk__thread.body;
  if (WK_LIKELY(!cell_of(b, tensor))) return wk__trace_realize(tensor, why);
  b->failed = true;
  return refuse("a value is looked at");
}

/* A tensor of one element, whose value the body computes. */
static wk_tensor *new_value(const wk__body *b, const wk__spec *spec, wk__var value) {
  cell *c = wk__alloc_zeroed(sizeof *c);
  if (!c) return NULL;
  *c = (cell){.body = b->number, .value = value};
  wk_storage *storage = wk__storage_from_memory(&c->element, sizeof c->element, release_cell, c);
  if (!storage) wk__free(c);
  return storage ? wk__tensor_over(storage, spec) : NULL;
}

static wk_status give(wk__body *b, const wk__spec *spec, wk__var value, wk_value *result) {
  WK_TRY(b->recorder.handler.status);
  wk_tensor *t = new_value(b, spec, value);
  if (!t) return wk_error_category();
  *result = wk__v_tensor(t);
  return WK_OK;
}

/* One number for each score: dims as those of a score matrix, all of size 1, so that indexing by it is as it is by a
 * tensor of all places. */
static wk_tensor *new_place(const wk__body *b, wk_dtype dtype, wk__var value) {
  const wk_int ones[] = {wk_int_of(1), wk_int_of(1), wk_int_of(1), wk_int_of(1)};
  wk__spec spec = {0};
  wk__spec_contiguous(&spec, dtype, WK__CPU_DEVICE, 4, ones);
  return new_value(b, &spec, value);
}

static bool is_one_element(const wk_tensor *t) { return wk_int_same(t->numel, wk_int_of(1)); }

/* ================================================= captured tensors ============================================= */

static bool same_tensor(const wk_tensor *a, const wk_tensor *b) {
  if (a == b) return true;
  if (!a->storage || a->storage != b->storage || a->dtype != b->dtype || a->ndim != b->ndim) return false;
  bool same = wk_int_same(a->offset, b->offset);
  for (int d = 0; same && d < a->ndim; d++)
    same = wk_int_same(a->sizes[d], b->sizes[d]) && wk_int_same(a->strides[d], b->strides[d]);
  return same;
}

/* The buffer that it is read from. */
static wk_status capture(wk__body *b, wk_tensor *t, int *out_buffer) {
  for (int k = 0; k < b->captured_count; k++) {
    *out_buffer = WK__BODY_BUFFER_CAPTURED + k;
    if (same_tensor(b->captured[k], t)) return WK_OK;
  }
  bool computes = !wk_dtype_is_complex((wk_dtype)t->dtype) && !wk__dtype_is_float8(t->dtype) &&
                  !wk__dtype_is_word(t->dtype) && t->device.type == WK_CPU && t->ndim <= WK__NEST_MAX_DIMS;
  if (!computes) return refuse("a captured tensor of a dtype or device that it does not compute with");
  if (b->captured_count == WK__BODY_MAX_CAPTURED) return refuse("many captured tensors");
  if (t->keys & WK__KEY_AUTOGRAD && wk__thread.mode.grad_enabled) return refuse("a captured tensor that requires grad");
  *out_buffer = WK__BODY_BUFFER_CAPTURED + b->captured_count;
  b->nest->buffers[*out_buffer] = (wk__nest_buffer){.dtype = t->dtype, .ndim = t->ndim};
  b->nest->buffer_count = (uint8_t)(*out_buffer + 1);
  b->captured[b->captured_count++] = wk__retain(t);
  return WK_OK;
}

/* The only element of a captured tensor */
static wk_status load_one(wk__body *b, wk_tensor *t, wk__var *out) {
  int buffer;
  if (!is_one_element(t)) return refuse("a tensor of several elements beside a score");
  WK_TRY(capture(b, t, &buffer));
  wk__access at = {.buffer = (uint8_t)buffer, .ndim = t->ndim};
  for (int d = 0; d < t->ndim; d++) at.index[d] = wk_int_of(0);
  *out = wk__k_load(&b->recorder.handler, &at);
  return b->recorder.handler.status;
}

static wk_status value_of(wk__body *b, wk_tensor *t, wk__var *out) {
  const cell *c = cell_of(b, t);
  if (!c) return load_one(b, t, out);
  *out = c->value;
  return is_one_element(t) ? WK_OK : refuse("a score is expanded");
}

/* A float that a captured graph is given in each run: a tensor made of it. */
static wk_status number_value(wk__body *b, const wk_value *number, wk__var *out) {
  wk_value args[WK__MAX_ARGS] = {*number, wk__v_dtype(WK_FLOAT64)}, made = {0};
  WK_TRY(wk_call(WK__OP(scalar_tensor), args, NULL, &made));
  wk_status status = load_one(b, made.tensor, out);
  wk_value_release(&made);
  return status;
}

/* self[i, j, ...] with a value for each dim */
static wk_status pick(wk__body *b, const wk_value *args, wk_value *result) {
  wk__loop_handler *h = &b->recorder.handler;
  wk_tensor *self = args[0].tensor;
  const wk_value *list = &args[1];
  int buffer;
  if (cell_of(b, self) || (int)list->count != self->ndim || self->ndim == 0)
    return refuse("a part of a tensor is taken");
  WK_TRY(capture(b, self, &buffer));
  wk__access at = {.buffer = (uint8_t)buffer, .ndim = self->ndim};
  const wk_tensor *like = NULL;
  for (int d = 0; d < self->ndim; d++) {
    wk_tensor *index = list->tensors[d];
    wk__var place;
    if (!index || wk__dtype_category((wk_dtype)index->dtype) != WK__INTEGER_KIND) return refuse("a mask as an index");
    WK_TRY(value_of(b, index, &place));
    at.index[d] = wk_int_of(0);
    at.indirect[d] = wk__k_check_index(h, wk__k_cast(h, place, WK_INT64), wk_int_buffer_size(buffer, d));
    if (!like || index->ndim > like->ndim) like = index;
  }
  wk__spec spec = {0};
  wk__spec_contiguous(&spec, (wk_dtype)self->dtype, WK__CPU_DEVICE, like->ndim, like->sizes);
  return give(b, &spec, wk__k_load(h, &at), result);
}

/* ================================================= pointwise calls ============================================== */

/* The loop body of a call, whose instructions are copied. */
typedef struct inlined {
  wk__body *body;
  const wk__call *call;
  const wk__lowered *lowered;
  const wk__nest *nest;
  wk__var *values; /* (instr_count) what they have become */
} inlined;

/* The argument that a buffer or parameter of the call's nest stands for */
static const wk_value *argument(const inlined *in, const int8_t *number_of_arg, int number) {
  for (int i = 0; i < in->call->op->schema.parameter_count; i++)
    if (number_of_arg[i] == number) return &in->call->args[i];
  return NULL;
}

static wk_status copy_load(inlined *in, const wk__instr *instr, wk__var *out) {
  const wk_value *arg = argument(in, in->lowered->buffer_of_arg, in->nest->accesses[instr->extra].buffer);
  return arg && instr->op == WK__LOOP_load ? value_of(in->body, arg->tensor, out) : refuse("a load of its own kind");
}

static wk_status copy_number(inlined *in, const wk__instr *instr, wk__var *out) {
  wk__loop_handler *h = &in->body->recorder.handler;
  if (instr->op == WK__LOOP_constant) {
    *out = h->emit(h, instr, NULL);
    return h->status;
  }
  const wk_value *arg = argument(in, in->lowered->param_of_arg, instr->extra);
  if (!arg) return refuse("a number of its own");
  WK_TRY(number_value(in->body, arg, out));
  *out = wk__k_cast(h, *out, (wk_dtype)instr->dtype);
  return h->status;
}

static wk_status copy_map(inlined *in, const wk__instr *instr, wk__var *out) {
  wk__loop_handler *h = &in->body->recorder.handler;
  wk__instr copy = *instr;
  for (int i = 0; i < wk__loop_ops[instr->op].arity; i++) copy.operands[i] = in->values[instr->operands[i]];
  *out = h->emit(h, &copy, NULL);
  return h->status;
}

/* A stored value is what its dtype holds. */
static wk_status take_stored(inlined *in, const wk__instr *instr, wk__var *out) {
  wk__loop_handler *h = &in->body->recorder.handler;
  int buffer = in->nest->accesses[instr->extra].buffer;
  wk_dtype dtype = (wk_dtype)in->nest->buffers[buffer].dtype;
  if (buffer != in->lowered->buffer_of_result[0]) return refuse("a call with several results");
  *out = in->values[instr->operands[0]];
  if (wk__dtypes[dtype].compute != dtype) *out = wk__k_round_to(h, *out, dtype);
  return h->status;
}

static wk_status copy_instructions(inlined *in, wk__var *out) {
  *out = 0;
  for (int64_t v = 1; v < in->nest->instr_count; v++) {
    const wk__instr *instr = &in->nest->instrs[v];
    wk__loop_class class = wk__loop_class_of(instr->op);
    if (class == WK__CLASS_LOAD)
      WK_TRY(copy_load(in, instr, &in->values[v]));
    else if (class == WK__CLASS_NUMBER)
      WK_TRY(copy_number(in, instr, &in->values[v]));
    else if (class == WK__CLASS_MAP)
      WK_TRY(copy_map(in, instr, &in->values[v]));
    else if (instr->op == WK__LOOP_store)
      WK_TRY(take_stored(in, instr, out));
    else
      return refuse("more than element by element");
  }
  return *out ? WK_OK : refuse("nothing is computed");
}

static wk_status inline_nest(wk__body *b, const wk__call *call, const wk__lowered *lowered, wk__var *out) {
  inlined in = {.body = b, .call = call, .lowered = lowered, .nest = lowered->nests[0]};
  if (lowered->nest_count != 1 || lowered->pairs) return refuse("several loops");
  in.values = wk__alloc_zeroed((size_t)in.nest->instr_count * sizeof *in.values);
  if (!in.values) return WK_OUT_OF_MEMORY;
  wk_status status = copy_instructions(&in, out);
  wk__free(in.values);
  return status;
}

static wk_status pointwise(wk__body *b, const wk_op *op, const wk_value *args, wk_value *result) {
  wk__spec specs[WK__MAX_RESULTS];
  wk__call call = {.op = op, .args = args, .specs = specs, .compute_dtype = WK_DTYPE_NONE};
  if (op->schema.result_count != 1) return refuse("a call with several results");
  WK_TRY(op->meta(&call));
  wk_tensor *shape = wk__tensor_shape_only(&specs[0]);
  if (!shape) return wk_error_category();
  call.outputs = &shape;
  bool is_given[WK__MAX_ARGS] = {false};
  for (int i = 0; i < op->schema.parameter_count; i++) is_given[i] = args[i].tag == WK_VALUE_INPUT;
  wk__lowered lowered = {0};
  wk__var value = 0;
  wk_status status = is_one_element(shape) ? wk__lower_call(&call, is_given, &lowered) : refuse("a score is expanded");
  if (status == WK_OK) status = inline_nest(b, &call, &lowered, &value);
  wk__lowered_release(&lowered);
  wk__release(shape);
  return status == WK_OK ? give(b, &specs[0], value, result) : status;
}

/* ================================================== other calls ================================================= */

static wk_status convert(wk__body *b, const wk_value *args, wk_value *result) {
  wk__loop_handler *h = &b->recorder.handler;
  wk_tensor *self = args[0].tensor;
  wk_dtype to = args[1].tag == WK_VALUE_DTYPE ? args[1].dtype : (wk_dtype)self->dtype;
  wk__var value;
  if (wk_dtype_is_complex(to) || wk__dtype_is_float8(to) || wk__dtype_is_word(to)) return refuse("another dtype");
  WK_TRY(value_of(b, self, &value));
  value = wk__k_cast(h, value, (wk_dtype)wk__dtypes[to].compute);
  if (wk__dtypes[to].compute != to) value = wk__k_round_to(h, value, to);
  wk__spec spec;
  wk__spec_of(&spec, self);
  wk__spec_contiguous(&spec, to, WK__CPU_DEVICE, self->ndim, self->sizes);
  return give(b, &spec, value, result);
}

static wk_status same_value(wk__body *b, wk_tensor *self, wk_value *result) {
  wk__spec spec = {0};
  wk__var value;
  WK_TRY(value_of(b, self, &value));
  wk__spec_contiguous(&spec, (wk_dtype)self->dtype, WK__CPU_DEVICE, self->ndim, self->sizes);
  return give(b, &spec, value, result);
}

/* zeros_like and its kind: computed now, a constant of the body. */
static wk_status constant(wk__body *b, const wk_op *op, const wk_value *args, wk_value *result) {
  wk_value made[WK__MAX_RESULTS] = {{0}};
  WK_TRY(wk__compute(op, args, NULL, made));
  wk_tensor *t = made[0].tensor;
  wk__scalar number = {0};
  wk__spec spec;
  wk_status status = is_one_element(t) ? wk__read_element(t, &number) : refuse("a score is expanded");
  wk__spec_of(&spec, t);
  wk_value_release(&made[0]);
  WK_TRY(status);
  wk__loop_handler *h = &b->recorder.handler;
  wk_dtype compute = (wk_dtype)wk__dtypes[spec.dtype].compute;
  bool whole = compute == WK_INT64;
  return give(b, &spec,
              whole ? wk__k_integer(h, wk__scalar_int(number)) : wk__k_constant(h, wk__scalar_double(number), compute),
              result);
}

/* Its parts come back to this layer, and leave no trace on the tape. */
static wk_status parts(const wk_op *op, const wk_value *args, wk_value *results) {
  wk__call call = {.op = op, .args = args, .results = results, .compute_dtype = WK_DTYPE_NONE};
  wk__keys before = wk__thread.mode.keys_off;
  wk__thread.mode.keys_off |= WK__KEY_AUTOGRAD;
  wk_status status = op->compose(&call);
  wk__thread.mode.keys_off = before;
  return status;
}

static wk_status record(wk__body *b, const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                        wk_value *results) {
  if (destinations || op->tags & (WK__TAG_MUTATES | WK__TAG_RANDOM)) return refuse("a write or a random number");
  if (op == WK__OP(index_Tensor)) return pick(b, args, results);
  if (op == WK__OP(_to_copy)) return convert(b, args, results);
  if (op == WK__OP(clone)) return same_value(b, args[0].tensor, results);
  if (op->view) return wk__compute(op, args, NULL, results);
  if (op->tags & WK__TAG_SHAPES_ONLY) return constant(b, op, args, results);
  if (op->lower && op->tags & WK__TAG_POINTWISE) return pointwise(b, op, args, results);
  return op->compose ? parts(op, args, results) : refuse("an operator that is not element by element");
}

static bool has_value(const wk__body *b, const wk_op *op, const wk_value *args, wk_tensor *const *destinations) {
  WK__EACH_TENSOR(t, args, op->schema.parameter_count)
  if (cell_of(b, t)) return true;
  for (int r = 0; destinations && r < op->schema.result_count; r++)
    if (cell_of(b, destinations[r])) return true;
  return false;
}

wk_status wk__body_layer(const wk_op *op, const wk_value *args, wk_tensor *const *destinations, wk_value *results) {
  wk__body *b = wk__thread.body;
  if (!has_value(b, op, args, destinations)) return wk__call_below(WK__KEY_BODY, op, args, destinations, results);
  wk__shape_env *outer = wk__shape_env_set_current(b->env);
  wk_status status = b->failed ? refuse("it has failed") : record(b, op, args, destinations, results);
  wk__shape_env_set_current(outer);
  if (status != WK_OK) b->failed = true;
  return status;
}

/* ================================================== the whole =================================================== */

static wk__var score_at(wk__body *b, int buffer) {
  wk__access at = {.buffer = (uint8_t)buffer, .ndim = 2, .index = {wk__loop_i(0), wk__loop_i(1)}};
  return wk__k_load(&b->recorder.handler, &at);
}

static wk_status make_values(wk__body *b, bool differentiable) {
  wk__loop_handler *h = &b->recorder.handler;
  for (int buffer = 0; buffer < WK__BODY_BUFFER_CAPTURED; buffer++)
    b->nest->buffers[buffer] = (wk__nest_buffer){.dtype = (uint8_t)b->dtype, .ndim = 2};
  b->nest->buffer_count = WK__BODY_BUFFER_CAPTURED;
  b->nest->pointwise_dims = 2;
  for (int d = 0; d < 2; d++) b->nest->sizes[d] = wk_int_buffer_size(WK__BODY_BUFFER_SCORES, d);
  b->score = new_place(b, b->dtype, score_at(b, WK__BODY_BUFFER_SCORES));
  for (int p = 0; p < WK__BODY_PARAMS; p++) {
    wk__var place = wk__k_param(h, p, WK_INT64);
    if (p >= WK__BODY_QUERY) place = wk__k_add(h, place, wk__k_index(h, wk__loop_i(p - WK__BODY_QUERY)));
    if (!(b->places[p] = new_place(b, WK_INT64, place))) return wk_error_category();
  }
  WK_TRY(h->status);
  if (!b->score) return wk_error_category();
  return differentiable ? wk_set_requires_grad(b->score, true) : WK_OK;
}

wk__body *wk__body_begin(wk_dtype scores, bool differentiable) {
  static _Atomic uint64_t last;
  if (wk__thread.body) {
    (void)!refuse("one inside of another");
    return NULL;
  }
  wk__body *b = wk__alloc_zeroed(sizeof *b);
  if (!b) return NULL;
  b->number = atomic_fetch_add(&last, 1) + 1;
  b->dtype = scores;
  b->nest = wk__nest_create();
  b->env = wk__shape_env_create();
  wk_status status = b->nest && b->env ? WK_OK : WK_OUT_OF_MEMORY;
  if (status == WK_OK) {
    wk__recorder_init(&b->recorder, b->nest);
    wk__shape_env *outer = wk__shape_env_set_current(b->env);
    status = make_values(b, differentiable);
    wk__shape_env_set_current(outer);
  }
  if (status != WK_OK) {
    wk__body_release(b);
    return NULL;
  }
  b->running = true;
  wk__thread.body = b;
  wk__thread.mode.keys_on |= WK__KEY_BODY;
  return b;
}

void wk__body_end(wk__body *b) {
  if (!b || !b->running) return;
  b->running = false;
  wk__thread.body = NULL;
  wk__thread.mode.keys_on &= (wk__keys)~WK__KEY_BODY;
}

void wk__body_release(wk__body *b) {
  if (!b) return;
  wk__body_end(b);
  wk__release(b->score);
  for (int p = 0; p < WK__BODY_PARAMS; p++) wk__release(b->places[p]);
  for (int k = 0; k < b->captured_count; k++) wk__release(b->captured[k]);
  wk__nest_release(b->nest);
  wk__shape_env_release(b->env);
  wk__free(b);
}

/* ---- nests of parts of the body ---- */

/* Marks what `value` is computed from. */
static void mark(const wk__nest *nest, wk__var value, bool *wanted) {
  wanted[value] = true;
  for (int64_t v = value; v > 0; v--) {
    if (!wanted[v]) continue;
    const wk__instr *instr = &nest->instrs[v];
    for (int i = 0; i < wk__loop_ops[instr->op].arity; i++) wanted[instr->operands[i]] = true;
    if (!wk__loop_has_access(instr->op)) continue;
    const wk__access *at = &nest->accesses[instr->extra];
    for (int d = 0; d < at->ndim; d++) wanted[at->indirect[d]] = true; /* 0 is none */
  }
}

static wk__var copy_instr(wk__loop_handler *h, const wk__nest *from, int64_t v, const wk__var *values) {
  wk__instr instr = from->instrs[v];
  for (int i = 0; i < wk__loop_ops[instr.op].arity; i++) instr.operands[i] = values[instr.operands[i]];
  if (!wk__loop_has_access(instr.op)) return h->emit(h, &instr, NULL);
  wk__access at = from->accesses[instr.extra];
  for (int d = 0; d < at.ndim; d++) at.indirect[d] = values[at.indirect[d]];
  return h->emit(h, &instr, &at);
}

/* The nest that stores one value, as text. */
static wk_status print_part(const wk__body *b, wk__var value, wk__string *out) {
  const wk__nest *all = b->nest;
  wk__nest *nest = wk__nest_create();
  size_t n = (size_t)all->instr_count;
  wk__var *values = wk__alloc_zeroed(n * (sizeof *values + sizeof(bool)));
  wk_status status = nest && values ? WK_OK : WK_OUT_OF_MEMORY;
  if (status == WK_OK) {
    bool *wanted = (bool *)(values + n);
    wk__recorder recorder;
    wk__recorder_init(&recorder, nest);
    nest->pointwise_dims = 2;
    memcpy(nest->sizes, all->sizes, sizeof nest->sizes);
    memcpy(nest->buffers, all->buffers, sizeof nest->buffers);
    nest->buffer_count = all->buffer_count;
    mark(all, value, wanted);
    for (int64_t v = 1; v <= value && !recorder.handler.status; v++)
      if (wanted[v]) values[v] = copy_instr(&recorder.handler, all, v, values);
    wk__access to = {.buffer = WK__BODY_BUFFER_OUT, .ndim = 2, .index = {wk__loop_i(0), wk__loop_i(1)}};
    wk__k_store(&recorder.handler, &to, values[value]);
    status = recorder.handler.status;
  }
  if (status == WK_OK) wk__nest_print(out, nest);
  wk__free(values);
  wk__nest_release(nest);
  return status;
}

static wk__var as_score(wk__body *b, wk__var value) { return wk__k_cast(&b->recorder.handler, value, b->dtype); }

static wk_status find_score(wk__body *b, wk_tensor *modified, wk__var *out) {
  WK_TRY(value_of(b, modified, out));
  *out = as_score(b, *out);
  return b->recorder.handler.status;
}

static wk_status find_masked(wk__body *b, wk__var score, wk_tensor *keep, wk__var *out) {
  wk__loop_handler *h = &b->recorder.handler;
  wk__var seen;
  WK_TRY(value_of(b, keep, &seen));
  *out = wk__k_where(h, wk__k_cast(h, seen, WK_BOOL), score, wk__k_constant(h, -INFINITY, b->dtype));
  return h->status;
}

static wk_status run_tape(const wk__body *b, wk_tensor *modified, wk_tensor *seed, wk_tensor **out_grad) {
  return wk__run_backward(&(wk__backward){.tensors = &modified,
                                          .grads = &seed,
                                          .count = 1,
                                          .inputs = &b->score,
                                          .input_count = 1,
                                          .allow_unused = true,
                                          .out_grads = out_grad});
}

/* The gradient of the score, of that of what the function made: by the tape of its calls. */
static wk_status find_derivative(wk__body *b, wk_tensor *modified, wk__var *out) {
  wk__loop_handler *h = &b->recorder.handler;
  wk_tensor *grad = NULL;
  wk__var value = wk__k_cast(h, score_at(b, WK__BODY_BUFFER_GRADIENT), (wk_dtype)wk__dtypes[modified->dtype].compute);
  wk__spec spec;
  wk__spec_of(&spec, modified);
  WK__OWNED seed = new_value(b, &spec, value);
  if (!seed) return wk_error_category();
  bool reaches = modified->keys & WK__KEY_AUTOGRAD;
  wk_status status = reaches ? run_tape(b, modified, seed, &grad) : WK_OK;
  if (status == WK_OK && grad) status = value_of(b, grad, &value);
  if (status == WK_OK && !grad) value = wk__k_constant(h, 0, b->dtype);
  wk__release(grad);
  *out = as_score(b, value);
  return status == WK_OK ? h->status : status;
}

/* All values first: each text names every captured tensor. */
static wk_status finish(wk__body *b, wk_tensor *modified, wk_tensor *keep, wk__body_texts *out) {
  wk__var own = cell_of(b, b->score)->value, score = own, masked = 0, derivative = 0;
  if (modified) WK_TRY(find_score(b, modified, &score));
  if (keep) WK_TRY(find_masked(b, score, keep, &masked));
  if (score != own && b->score->keys & WK__KEY_AUTOGRAD) WK_TRY(find_derivative(b, modified, &derivative));
  if (score != own) WK_TRY(print_part(b, score, &out->score));
  if (masked) WK_TRY(print_part(b, masked, &out->masked));
  return derivative ? print_part(b, derivative, &out->derivative) : WK_OK;
}

wk_status wk__body_finish(wk__body *b, wk_tensor *modified, wk_tensor *keep, wk__body_texts *out) {
  *out = (wk__body_texts){0};
  if (b->failed) return refuse("it has failed");
  wk__shape_env *outer = wk__shape_env_set_current(b->env);
  wk_status status = finish(b, modified, keep, out);
  wk__shape_env_set_current(outer);
  if (status != WK_OK) wk__body_texts_release(out);
  return status;
}

void wk__body_texts_release(wk__body_texts *texts) {
  wk__string_release(&texts->score);
  wk__string_release(&texts->masked);
  wk__string_release(&texts->derivative);
}
