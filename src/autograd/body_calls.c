/* The layer of a score body: calls with a value of the body become instructions of its nest.
 * Tests: tests/python/test_flex_attention.py. */
#include "autograd/body_internal.h"
#include "ops/internal.h"
#include "ops/plan.h"

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
  return arg && instr->op == WK__LOOP_load ? wk__body_value(in->body, arg->tensor, out)
                                           : wk__body_refuse("a load of its own kind");
}

static wk_status copy_number(inlined *in, const wk__instr *instr, wk__var *out) {
  wk__loop_handler *h = &in->body->recorder.handler;
  if (instr->op == WK__LOOP_constant) {
    *out = h->emit(h, instr, NULL);
    return h->status;
  }
  const wk_value *arg = argument(in, in->lowered->param_of_arg, instr->extra);
  if (!arg) return wk__body_refuse("a number of its own");
  WK_TRY(wk__body_number(in->body, arg, out));
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
  if (buffer != in->lowered->buffer_of_result[0]) return wk__body_refuse("a call with several results");
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
      return wk__body_refuse("more than element by element");
  }
  return *out ? WK_OK : wk__body_refuse("nothing is computed");
}

static wk_status inline_nest(wk__body *b, const wk__call *call, const wk__lowered *lowered, wk__var *out) {
  inlined in = {.body = b, .call = call, .lowered = lowered, .nest = lowered->nests[0]};
  if (lowered->nest_count != 1 || lowered->pairs) return wk__body_refuse("several loops");
  in.values = wk__alloc_zeroed((size_t)in.nest->instr_count * sizeof *in.values);
  if (!in.values) return WK_OUT_OF_MEMORY;
  wk_status status = copy_instructions(&in, out);
  wk__free(in.values);
  return status;
}

static wk_status pointwise(wk__body *b, const wk_op *op, const wk_value *args, wk_value *result) {
  wk__spec specs[WK__MAX_RESULTS];
  wk__call call = {.op = op, .args = args, .specs = specs, .compute_dtype = WK_DTYPE_NONE};
  if (op->schema.result_count != 1) return wk__body_refuse("a call with several results");
  WK_TRY(op->meta(&call));
  wk_tensor *shape = wk__tensor_shape_only(&specs[0]);
  if (!shape) return wk_error_category();
  call.outputs = &shape;
  bool is_given[WK__MAX_ARGS] = {false};
  for (int i = 0; i < op->schema.parameter_count; i++) is_given[i] = args[i].tag == WK_VALUE_INPUT;
  wk__lowered lowered = {0};
  wk__var value = 0;
  wk_status status =
      wk__is_one_element(shape) ? wk__lower_call(&call, is_given, &lowered) : wk__body_refuse("a score is expanded");
  if (status == WK_OK) status = inline_nest(b, &call, &lowered, &value);
  wk__lowered_release(&lowered);
  wk__release(shape);
  return status == WK_OK ? wk__body_give(b, &specs[0], value, result) : status;
}

/* ================================================== other calls ================================================= */

static wk_status convert(wk__body *b, const wk_value *args, wk_value *result) {
  wk__loop_handler *h = &b->recorder.handler;
  wk_tensor *self = args[0].tensor;
  wk_dtype to = args[1].tag == WK_VALUE_DTYPE ? args[1].dtype : (wk_dtype)self->dtype;
  wk__var value;
  if (wk_dtype_is_complex(to) || wk__dtype_is_float8(to) || wk__dtype_is_word(to))
    return wk__body_refuse("another dtype");
  WK_TRY(wk__body_value(b, self, &value));
  value = wk__k_cast(h, value, (wk_dtype)wk__dtypes[to].compute);
  if (wk__dtypes[to].compute != to) value = wk__k_round_to(h, value, to);
  wk__spec spec;
  wk__spec_of(&spec, self);
  wk__spec_contiguous(&spec, to, b->device, self->ndim, self->sizes);
  return wk__body_give(b, &spec, value, result);
}

static wk_status same_value(wk__body *b, wk_tensor *self, wk_value *result) {
  wk__spec spec = {0};
  wk__var value;
  WK_TRY(wk__body_value(b, self, &value));
  wk__spec_contiguous(&spec, (wk_dtype)self->dtype, b->device, self->ndim, self->sizes);
  return wk__body_give(b, &spec, value, result);
}

/* The gradient of one element that others were computed with has the dims of these, which are summed. */
static wk_status sum_of_one(wk__body *b, const wk_op *op, const wk_value *args, wk_value *result) {
  wk__spec spec;
  wk__var value;
  wk__call call = {.op = op, .args = args, .specs = &spec, .compute_dtype = WK_DTYPE_NONE};
  WK_TRY(op->meta(&call));
  WK_TRY(wk__body_value(b, args[0].tensor, &value));
  value = wk__k_cast(&b->recorder.handler, value, (wk_dtype)wk__dtypes[spec.dtype].compute);
  return wk__body_give(b, &spec, value, result);
}

/* zeros_like and its kind: computed now, on the host, a constant of the body. */
static wk_status take_constant(wk__body *b, wk_tensor *t, wk_value *result) {
  wk__loop_handler *h = &b->recorder.handler;
  wk__scalar number = {0};
  wk__spec spec;
  if (!wk__is_one_element(t)) return wk__body_refuse("a score is expanded");
  WK_TRY(wk__read_element(t, &number));
  wk__spec_of(&spec, t);
  spec.device = b->device;
  wk_dtype compute = (wk_dtype)wk__dtypes[spec.dtype].compute;
  bool whole = compute == WK_INT64;
  return wk__body_give(
      b, &spec,
      whole ? wk__k_integer(h, wk__scalar_int(number)) : wk__k_constant(h, wk__scalar_double(number), compute), result);
}

/* Of a tensor the shape alone counts. */
static wk_status compute_on_host(const wk_op *op, const wk_value *args, wk_tensor *shape, wk_value *made) {
  wk_value of_host[WK__MAX_ARGS];
  for (int i = 0; i < op->schema.parameter_count; i++) {
    of_host[i] = args[i];
    if (args[i].tag == WK_VALUE_TENSOR) of_host[i].tensor = shape;
    if (args[i].tag == WK_VALUE_DEVICE) of_host[i].device = WK__CPU_DEVICE;
  }
  return wk__compute(op, of_host, NULL, made);
}

static wk_status constant(wk__body *b, const wk_op *op, const wk_value *args, wk_value *result) {
  wk_value made[WK__MAX_RESULTS] = {{0}};
  wk__spec spec;
  if (args[0].tag != WK_VALUE_TENSOR) return wk__body_refuse("shapes of several tensors");
  wk__spec_of(&spec, args[0].tensor);
  spec.device = WK__CPU_DEVICE;
  WK__OWNED shape = wk__tensor_shape_only(&spec);
  if (!shape) return wk_error_category();
  WK_TRY(compute_on_host(op, args, shape, made));
  wk_status status = take_constant(b, made[0].tensor, result);
  wk_value_release(&made[0]);
  return status;
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
  if (destinations || op->tags & (WK__TAG_MUTATES | WK__TAG_RANDOM))
    return wk__body_refuse("a write or a random number");
  if (op == WK__OP(index_Tensor)) return wk__body_pick(b, args, results);
  if (op == WK__OP(_to_copy)) return convert(b, args, results);
  if (op == WK__OP(clone)) return same_value(b, args[0].tensor, results);
  if (op->view) return wk__compute(op, args, NULL, results);
  if (op->tags & WK__TAG_SHAPES_ONLY) return constant(b, op, args, results);
  if (op->lower && op->tags & WK__TAG_POINTWISE) return pointwise(b, op, args, results);
  if (b->deriving && op == WK__OP(sum_dim_IntList)) return sum_of_one(b, op, args, results);
  return op->compose ? parts(op, args, results) : wk__body_refuse("an operator that is not element by element");
}

static bool has_value(const wk__body *b, const wk_op *op, const wk_value *args, wk_tensor *const *destinations) {
  WK__EACH_TENSOR(t, args, op->schema.parameter_count)
  if (wk__body_has(b, t)) return true;
  for (int r = 0; destinations && r < op->schema.result_count; r++)
    if (wk__body_has(b, destinations[r])) return true;
  return false;
}

wk_status wk__body_layer(const wk_op *op, const wk_value *args, wk_tensor *const *destinations, wk_value *results) {
  wk__body *b = wk__thread.body;
  if (!has_value(b, op, args, destinations)) return wk__call_below(WK__KEY_BODY, op, args, destinations, results);
  wk__shape_env *outer = wk__shape_env_set_current(b->env);
  wk_status status = b->failed ? wk__body_refuse("it has failed") : record(b, op, args, destinations, results);
  wk__shape_env_set_current(outer);
  if (status != WK_OK) b->failed = true;
  return status;
}
