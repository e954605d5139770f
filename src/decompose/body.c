/* The decomposition of a pointwise operator, derived from its loop body: each operation of the body becomes a call of
 * the operator that does the same to every element. So a row that says what happens to an element is decomposed
 * already.
 *
 * In: a call whose shape rule has run. Out: its results, in the dtype that the body computes in. Invariant: values are
 * as the body has them but for fused multiply-adds, which become two roundings. Tests:
 * tests/ops/test_decompositions.py. */
#include "decompose/decompose.h"
#include "ops/plan.h"
#include "wick/operators.h"

/* What a value of the body is: a tensor, or a number that is the same for all elements. */
typedef struct translation {
  const wk__call *call;
  const wk__lowered *lowered;
  const wk__nest *nest;
  wk_value *values; /* (instr_count) borrowed: tensors belong to the scope around the rule */
} translation;

/* ================================================= operators ==================================================== */

typedef struct twin {
  const wk_op *op, *with_number; /* with a number as the second operand; NULL: numbers become tensors */
  const char *mode;              /* of a division */
} twin;

static const twin twins[WK__LOOP_COUNT] = {
    [WK__LOOP_neg] = {WK__OP(neg)},
    [WK__LOOP_abs] = {WK__OP(abs)},
    [WK__LOOP_sign] = {WK__OP(sign)},
    [WK__LOOP_bit_not] = {WK__OP(bitwise_not)},
    [WK__LOOP_floor] = {WK__OP(floor)},
    [WK__LOOP_ceil] = {WK__OP(ceil)},
    [WK__LOOP_trunc] = {WK__OP(trunc)},
    [WK__LOOP_round] = {WK__OP(round)},
    [WK__LOOP_sqrt] = {WK__OP(sqrt)},
    [WK__LOOP_rsqrt] = {WK__OP(rsqrt)},
    [WK__LOOP_reciprocal] = {WK__OP(reciprocal)},
    [WK__LOOP_exp] = {WK__OP(exp)},
    [WK__LOOP_expm1] = {WK__OP(expm1)},
    [WK__LOOP_log] = {WK__OP(log)},
    [WK__LOOP_log1p] = {WK__OP(log1p)},
    [WK__LOOP_sin] = {WK__OP(sin)},
    [WK__LOOP_cos] = {WK__OP(cos)},
    [WK__LOOP_tanh] = {WK__OP(tanh)},
    [WK__LOOP_sigmoid] = {WK__OP(sigmoid)},
    [WK__LOOP_erf] = {WK__OP(erf)},
    [WK__LOOP_add] = {WK__OP(add_Tensor), WK__OP(add_Scalar)},
    [WK__LOOP_sub] = {WK__OP(sub_Tensor), WK__OP(sub_Scalar)},
    [WK__LOOP_mul] = {WK__OP(mul_Tensor), WK__OP(mul_Scalar)},
    [WK__LOOP_div] = {WK__OP(div_Tensor), WK__OP(div_Scalar)},
    [WK__LOOP_floor_div] = {WK__OP(div_Tensor_mode), WK__OP(div_Scalar_mode), "floor"},
    [WK__LOOP_trunc_div] = {WK__OP(div_Tensor_mode), WK__OP(div_Scalar_mode), "trunc"},
    [WK__LOOP_mod] = {WK__OP(remainder_Tensor), WK__OP(remainder_Scalar)},
    [WK__LOOP_pow] = {WK__OP(pow_Tensor_Tensor), WK__OP(pow_Tensor_Scalar)},
    [WK__LOOP_max] = {WK__OP(maximum)},
    [WK__LOOP_min] = {WK__OP(minimum)},
    [WK__LOOP_bit_and] = {WK__OP(bitwise_and_Tensor), WK__OP(bitwise_and_Scalar)},
    [WK__LOOP_bit_or] = {WK__OP(bitwise_or_Tensor), WK__OP(bitwise_or_Scalar)},
    [WK__LOOP_bit_xor] = {WK__OP(bitwise_xor_Tensor), WK__OP(bitwise_xor_Scalar)},
    [WK__LOOP_shift_left] = {WK__OP(bitwise_left_shift_Tensor), WK__OP(bitwise_left_shift_Tensor_Scalar)},
    [WK__LOOP_shift_right] = {WK__OP(bitwise_right_shift_Tensor), WK__OP(bitwise_right_shift_Tensor_Scalar)},
    [WK__LOOP_eq] = {WK__OP(eq_Tensor), WK__OP(eq_Scalar)},
    [WK__LOOP_ne] = {WK__OP(ne_Tensor), WK__OP(ne_Scalar)},
    [WK__LOOP_lt] = {WK__OP(lt_Tensor), WK__OP(lt_Scalar)},
    [WK__LOOP_le] = {WK__OP(le_Tensor), WK__OP(le_Scalar)},
    [WK__LOOP_gt] = {WK__OP(gt_Tensor), WK__OP(gt_Scalar)},
    [WK__LOOP_ge] = {WK__OP(ge_Tensor), WK__OP(ge_Scalar)},
    [WK__LOOP_where] = {WK__OP(where_self)},
};

/* ================================================== operands ==================================================== */

static bool is_tensor(const wk_value *v) { return v->tag == WK_VALUE_TENSOR; }

static const wk_tensor *any_tensor(const translation *t) {
  for (int i = 0; i < t->call->op->schema.parameter_count; i++)
    if (is_tensor(&t->call->args[i])) return t->call->args[i].tensor;
  return NULL;
}

/* A number becomes a tensor without dims, of the dtype that the body has it in. */
static wk_tensor *as_tensor(const translation *t, wk__var v) {
  const wk_value *value = &t->values[v];
  if (is_tensor(value)) return value->tensor;
  return wk__d_number(*value, (wk_dtype)t->nest->instrs[v].dtype, any_tensor(t));
}

/* Whether a number beside a tensor leaves the tensor's dtype alone, so that an operator may take it as it is. */
static bool fits_beside(const translation *t, wk__var v) {
  const wk_value *value = &t->values[v];
  if (is_tensor(value)) return false;
  wk_dtype dtype = (wk_dtype)t->nest->instrs[v].dtype;
  return wk_dtype_is_floating(dtype) || (dtype == WK_INT64 && wk__value_is_integer(value));
}

/* ================================================= instructions ================================================= */

static wk_value call(const wk_op *op, wk_value a, wk_value b, wk_value c) {
  wk_value args[WK__MAX_ARGS] = {a, b, c};
  return wk__v_tensor(wk__call_tensor(op, args));
}

static wk_value load(const translation *t, const wk__instr *instr) {
  int buffer = t->nest->accesses[instr->extra].buffer;
  for (int i = 0; i < t->call->op->schema.parameter_count; i++)
    if (t->lowered->buffer_of_arg[i] == buffer)
      return wk__v_tensor(wk__d_cast(t->call->args[i].tensor, (wk_dtype)instr->dtype));
  return WK__NO_VALUE;
}

static wk_value param(const translation *t, const wk__instr *instr) {
  for (int i = 0; i < t->call->op->schema.parameter_count; i++)
    if (t->lowered->param_of_arg[i] == instr->extra) return t->call->args[i];
  return WK__NO_VALUE;
}

static wk_value constant(const wk__instr *instr) {
  const wk__scalar *n = &instr->number;
  if (n->category == WK__FLOAT_KIND) return wk__v_double(n->d);
  return n->category == WK__BOOL_KIND ? wk__v_bool(n->i) : wk__value_of_int(n->i);
}

/* x - y trunc(x / y) */
static wk_value fmod_of(wk_tensor *x, wk_tensor *y) {
  return wk__v_tensor(wk__d_sub(x, wk_mul(y, wk_div_Tensor_mode(x, y, "trunc"))));
}

static wk_value operation(const translation *t, const wk__instr *instr) {
  const twin *twin = &twins[instr->op];
  const wk__var *v = instr->operands;
  int arity = wk__loop_ops[instr->op].arity;
  wk_value mode = twin->mode ? (wk_value){.tag = WK_VALUE_STRING, .string = twin->mode} : WK__NO_VALUE;
  if (!twin->op) {
    (void)!wk_fail(WK_INTERNAL_ERROR, "no operator does what %s does", wk__loop_ops[instr->op].name);
    return WK__NO_VALUE;
  }
  wk_value a = wk__v_tensor(as_tensor(t, v[0]));
  if (arity == 1) return call(twin->op, a, WK__NO_VALUE, WK__NO_VALUE);
  if (twin->with_number && fits_beside(t, v[1])) return call(twin->with_number, a, t->values[v[1]], mode);
  wk_value b = wk__v_tensor(as_tensor(t, v[1]));
  return call(twin->op, a, b, arity == 3 ? wk__v_tensor(as_tensor(t, v[2])) : mode);
}

static wk_value translate(const translation *t, const wk__instr *instr) {
  const wk__var *v = instr->operands;
  switch (instr->op) {
    case WK__LOOP_load:
      return load(t, instr);
    case WK__LOOP_param:
      return param(t, instr);
    case WK__LOOP_constant:
      return constant(instr);
    case WK__LOOP_cast:
      return wk__v_tensor(wk__d_cast(as_tensor(t, v[0]), (wk_dtype)instr->dtype));
    case WK__LOOP_round_to:
      return wk__v_tensor(wk__d_cast(wk__d_cast(as_tensor(t, v[0]), (wk_dtype)instr->extra), (wk_dtype)instr->dtype));
    case WK__LOOP_isnan:
      return wk__v_tensor(wk_ne(as_tensor(t, v[0]), as_tensor(t, v[0])));
    case WK__LOOP_logical_not:
      return wk__v_tensor(wk_eq_Scalar(as_tensor(t, v[0]), wk__v_int(0)));
    case WK__LOOP_fmod:
      return fmod_of(as_tensor(t, v[0]), as_tensor(t, v[1]));
    case WK__LOOP_fma:
      return wk__v_tensor(wk__d_add(wk_mul(as_tensor(t, v[0]), as_tensor(t, v[1])), as_tensor(t, v[2])));
    default:
      return operation(t, instr);
  }
}

/* A value that the body stores, as a tensor of its own of the result's size: a number, and what is broadcast, is
 * repeated. */
static wk_tensor *stored(const translation *t, int result, wk__var v) {
  const wk__spec *spec = &t->call->specs[result];
  wk_dtype dtype = (wk_dtype)t->nest->instrs[v].dtype;
  if (!is_tensor(&t->values[v]))
    return wk_full(spec->sizes, spec->ndim, t->values[v], dtype, wk__d_device(any_tensor(t)));
  wk_tensor *made = t->values[v].tensor;
  bool same = made->ndim == spec->ndim, is_argument = false;
  for (int d = 0; same && d < spec->ndim; d++) same = wk_int_same(made->sizes[d], spec->sizes[d]);
  if (!same) return wk_clone(wk_expand(made, spec->sizes, spec->ndim, false), "contiguous_format");
  for (int i = 0; i < t->call->op->schema.parameter_count; i++)
    is_argument |= is_tensor(&t->call->args[i]) && t->call->args[i].tensor == made;
  return is_argument ? wk_clone(made, NULL) : made;
}

static wk_status translate_all(const translation *t, wk_tensor **out) {
  for (int64_t v = 1; v < t->nest->instr_count; v++) {
    const wk__instr *instr = &t->nest->instrs[v];
    if (instr->op == WK__LOOP_store) {
      int buffer = t->nest->accesses[instr->extra].buffer;
      for (int r = 0; r < t->call->op->schema.result_count; r++)
        if (t->lowered->buffer_of_result[r] == buffer && !(out[r] = stored(t, r, instr->operands[0])))
          return wk_error_category();
      continue;
    }
    t->values[v] = translate(t, instr);
    if (t->values[v].tag == WK_VALUE_NONE) return wk_error_category();
  }
  return WK_OK;
}

/* ==================================================== the call ================================================== */

static wk_status with_nest(const wk__call *call, const wk__lowered *lowered, wk_tensor **out) {
  translation t = {.call = call, .lowered = lowered, .nest = lowered->nests[0]};
  if (lowered->nest_count != 1) return wk_fail(WK_INTERNAL_ERROR, "operator %s has several loops", call->op->name);
  t.values = wk__alloc_zeroed((size_t)t.nest->instr_count * sizeof *t.values);
  if (!t.values) return WK_OUT_OF_MEMORY;
  wk_status status = translate_all(&t, out);
  wk__free(t.values);
  return status;
}

wk_status wk__decompose_body(wk__call *c, wk_tensor **out) {
  wk_tensor *shapes[WK__MAX_RESULTS] = {NULL};
  wk__lowered lowered = {0};
  wk_status status = WK_OK;
  wk__call described = *c;
  described.outputs = shapes;
  for (int r = 0; r < c->op->schema.result_count && status == WK_OK; r++)
    if (!(shapes[r] = wk__tensor_shape_only(&c->specs[r]))) status = wk_error_category();
  if (status == WK_OK) status = wk__lower_call(&described, NULL, &lowered);
  if (status == WK_OK) status = with_nest(&described, &lowered, out);
  wk__lowered_release(&lowered);
  for (int r = 0; r < c->op->schema.result_count; r++) wk__release(shapes[r]);
  return status;
}
