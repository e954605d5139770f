/* Operators that draw random numbers, and dropout.
 *
 * In: a generator (the process's when none is given) and a distribution. Out: PyTorch's values from the same state;
 * which words each operator draws stands in docs/compatibility.md, the drawing itself in tensor/random.c. Invariant: a
 * tensor is filled in the order of addresses, whatever its strides; dtypes that have no fill of their own are drawn in
 * a wider one and converted. Fills in place are operators that mutate; the creating forms fill their new tensor the
 * same way. Tests: tests/c/test_random_ops.c (numbers recorded from PyTorch). */
#include <math.h>

#include "ops/draw.h"
#include "ops/internal.h"
#include "ops/rules.h"
#include "tensor/generator.h"
#include "wick/operators.h"

#define G (v->grads[0])
#define NONE ((wk_value){0})

/* ==================================================== filling =================================================== */

typedef struct fill {
  wk__generator *generator;
  double a, b;     /* the distribution's numbers, in the order of the operator's arguments */
  int64_t base;    /* integers: base + word % range */
  uint64_t range;  /* 0: 2^64; for `full`: the modulus */
  bool two_words;  /* `full` */
  const void *p;   /* Bernoulli by a tensor: probabilities, in the order of filling */
  wk_dtype dtype;  /* of the tensor that is filled */
  bool contiguous; /* Tensor.is_contiguous() of it: the normal distribution's algorithm hangs on it */
} fill;
typedef wk_status fill_fn(const fill *f, void *out, int64_t n);

static wk__generator *generator_of(const wk__call *c, int arg) {
  return c->args[arg].tag == WK_VALUE_GENERATOR ? c->args[arg].generator : wk__generator_default();
}

/* The tensor with its dims by descending stride: row-major order of the result is the order of addresses of `t`. */
static wk_tensor *by_address(const wk_tensor *base, const wk_tensor *t) {
  int order[WK_MAX_DIMS];
  wk__spec spec;
  wk__spec_of(&spec, t);
  for (int k = 0; k < t->ndim; k++) {
    int at = k;
    for (; at > 0 && wk__stride(base, order[at - 1]) < wk__stride(base, k); at--) order[at] = order[at - 1];
    order[at] = k;
  }
  for (int k = 0; k < t->ndim; k++) {
    spec.sizes[k] = t->sizes[order[k]];
    spec.strides[k] = t->strides[order[k]];
  }
  return wk__tensor_alias(t, &spec);
}

/* Draws in dtype `drawn` in the order of addresses, then converts. */
static wk_status fill_through(wk_tensor *t, wk_dtype drawn, fill_fn *fn, const fill *f) {
  WK__OWNED place = by_address(t, t);
  if (!place) return wk_error_category();
  wk__spec spec;
  wk__spec_contiguous(&spec, drawn, t->device, place->ndim, place->sizes);
  WK__OWNED values = wk__tensor_from_spec(&spec);
  if (!values) return wk_error_category();
  WK_TRY(fn(f, wk__data(values), wk__numel(values)));
  return wk__copy_into(place, values);
}

static wk_status fill_tensor(wk_tensor *t, wk_dtype drawn, fill_fn *fn, fill f) {
  if (!t->storage) return WK_OK; /* on device meta */
  f.dtype = (wk_dtype)t->dtype;
  f.contiguous = wk__is_contiguous(t);
  if (t->dtype == drawn && wk__non_overlapping_and_dense(t)) return fn(&f, wk__data(t), wk__numel(t));
  return fill_through(t, drawn, fn, &f);
}

/* An operator `name_(self, ...)`: fills argument 0. */
static wk_status fill_self(wk__call *c, wk_dtype drawn, fill_fn *fn, fill f) {
  wk_tensor *self = c->args[0].tensor;
  if (wk__has_internal_overlap(self))
    return wk_fail(WK_RUNTIME_ERROR,
                   "unsupported operation: more than one element of the written-to tensor refers to a single memory "
                   "location. Please clone() the tensor before performing the operation.");
  uint32_t before = wk__version(self);
  WK_TRY(fill_tensor(self, drawn, fn, f));
  if (wk__version(self) == before) wk__version_bump(self); /* a fill through a copy has counted already */
  c->results[0] = wk__v_tensor(wk__retain(self));
  return WK_OK;
}

static wk_status require_float(const wk_tensor *t, const char *kernel) {
  if (wk_dtype_is_floating((wk_dtype)t->dtype) && !wk__dtype_is_float8(t->dtype)) return WK_OK;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", kernel, wk__dtype_legacy((wk_dtype)t->dtype));
}

static wk_dtype drawn_float(const wk_tensor *t) { return t->dtype == WK_FLOAT64 ? WK_FLOAT64 : WK_FLOAT32; }
static double number(const wk_value *v) { return wk__scalar_double(wk__value_scalar(v)); }

/* The rule of creation (size, dtype, device) for an operator that has these at other places. */
static wk_status create_like(wk__call *c, const wk_value *size, int dtype_arg, wk_dtype otherwise) {
  wk_value args[] = {*size, wk__v_dtype(wk__arg_dtype(c, dtype_arg, otherwise)), c->args[dtype_arg + 1]};
  wk__call inner = *c;
  inner.args = args;
  WK_TRY(wk__meta_create(&inner));
  c->compute_dtype = inner.compute_dtype;
  return WK_OK;
}

/* ==================================================== uniform =================================================== */

static float rounded_to(float x, wk_dtype dtype) {
  float y;
  uint64_t bits = 0;
  wk__element_set(&bits, dtype, (wk__scalar){WK__FLOAT_KIND, .d = x});
  y = (float)wk__element_get(&bits, dtype).d;
  return y;
}

/* Rounding to a small type may reach the excluded end. */
static void exclude_end(float *out, int64_t n, const fill *f) {
  float from = rounded_to((float)f->a, f->dtype), to = rounded_to((float)f->b, f->dtype);
  for (int64_t i = 0; i < n; i++)
    if (rounded_to(out[i], f->dtype) == to) out[i] = from;
}

static wk_status draw_uniform(const fill *f, void *out, int64_t n) {
  if (f->dtype == WK_FLOAT64) return wk__random_uniform_f64(f->generator, out, n, f->a, f->b);
  WK_TRY(wk__random_uniform_f32(f->generator, out, n, f->a, f->b));
  if (f->dtype != WK_FLOAT32) exclude_end(out, n, f);
  return WK_OK;
}

wk_status wk__kernel_uniform(wk__call *c) {
  wk_tensor *self = c->args[0].tensor;
  WK_TRY(require_float(self, "check_uniform_bounds"));
  return fill_self(c, drawn_float(self), draw_uniform,
                   (fill){.generator = generator_of(c, 3), .a = number(&c->args[1]), .b = number(&c->args[2])});
}

static int last_argument(const wk__call *c) { return c->op->schema.parameter_count - 1; }

/* rand, rand_like: the generator is the last argument. */
wk_status wk__kernel_rand(wk__call *c) {
  WK_TRY(require_float(c->outputs[0], "check_uniform_bounds"));
  return fill_tensor(c->outputs[0], drawn_float(c->outputs[0]), draw_uniform,
                     (fill){.generator = generator_of(c, last_argument(c)), .b = 1});
}

/* ==================================================== normal ==================================================== */

static wk_status draw_normal(const fill *f, void *out, int64_t n) {
  if (f->dtype == WK_FLOAT64) return wk__random_normal_f64(f->generator, out, n, f->a, f->b, f->contiguous);
  if (f->dtype == WK_FLOAT32) return wk__random_normal_f32(f->generator, out, n, f->a, f->b, f->contiguous);
  return wk__random_normal_half(f->generator, out, n, f->a, f->b, f->contiguous);
}

static wk_status fill_normal(wk_tensor *t, wk__generator *generator, double mean, double std) {
  WK_TRY(require_float(t, "normal_kernel_cpu"));
  return fill_tensor(t, drawn_float(t), draw_normal, (fill){.generator = generator, .a = mean, .b = std});
}

wk_status wk__kernel_normal(wk__call *c) {
  wk_tensor *self = c->args[0].tensor;
  WK_TRY(require_float(self, "normal_kernel_cpu"));
  return fill_self(c, drawn_float(self), draw_normal,
                   (fill){.generator = generator_of(c, 3), .a = number(&c->args[1]), .b = number(&c->args[2])});
}

/* randn, randn_like */
wk_status wk__kernel_randn(wk__call *c) { return fill_normal(c->outputs[0], generator_of(c, last_argument(c)), 0, 1); }

/* normal(float mean, float std, size) */
wk_status wk__meta_normal_sized(wk__call *c) { return create_like(c, &c->args[2], 3, wk__default_dtype()); }
wk_status wk__kernel_normal_sized(wk__call *c) {
  return fill_normal(c->outputs[0], generator_of(c, last_argument(c)), number(&c->args[0]), number(&c->args[1]));
}

/* normal(mean, std) with at least one tensor: values drawn in the dtype of the first, with the deviation that is a
 * number or scaled by the tensor of them, then moved; each step is rounded to the dtype, a mean that is a number too.
 * Elements are looked at where there are some: neither of a meta tensor nor while
 * a graph is traced. */
static wk_status check_deviations(wk_tensor *std) {
  if (!std->storage || wk__mode.keys_on & WK__KEY_TRACE || wk_int_eq(std->numel, wk_int_of(0))) return WK_OK;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *good = wk_all(wk_ge_Scalar(std, wk__v_int(0)));
  bool all = good && wk__element_get(wk__data(good), WK_BOOL).i;
  wk_scope_end(&scope);
  if (!good) return wk_error_category();
  return all ? WK_OK : wk_fail(WK_RUNTIME_ERROR, "normal expects all elements of std >= 0.0");
}

wk_status wk__compose_normal_tensors(wk__call *c) {
  const wk_value *mean = &c->args[0], *std = &c->args[1];
  wk_tensor *m = wk__arg_tensor(c, 0), *s = wk__arg_tensor(c, 1), *y = NULL;
  wk_tensor *model = c->args[c->op == WK__OP(normal_float_Tensor) ? 1 : 0].tensor;
  wk_int sizes[WK_MAX_DIMS], no_sizes = {0};
  int ndim = model->ndim;
  memcpy(sizes, model->sizes, (size_t)ndim * sizeof *sizes);
  if (m && s) WK_TRY(wk__broadcast(m->sizes, m->ndim, s->sizes, s->ndim, sizes, &ndim));
  if (!s && number(std) < 0)
    return wk_fail(WK_RUNTIME_ERROR, "normal expects std >= 0.0, but found std %g", number(std));
  if (s) WK_TRY(check_deviations(s));
  wk_scope scope;
  wk_scope_begin(&scope);
  y = wk_normal_(wk_new_empty(model, sizes, ndim, WK_DTYPE_NONE, NONE), 0, s ? 1 : number(std), generator_of(c, 2));
  if (s) y = wk__in_dtype(wk_mul(y, s), (wk_dtype)model->dtype);
  if (!m) m = wk_new_full(model, &no_sizes, 0, *mean, WK_DTYPE_NONE, NONE);
  y = wk__in_dtype(wk_add(y, m, wk__v_int(1)), (wk_dtype)model->dtype);
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(&scope);
  return y ? WK_OK : wk_error_category();
}
/* PyTorch calls it differentiable, with a derivative of zeros. */
wk_status wk__vjp_normal(wk__vjp *v) {
  for (int i = 0; i < 2; i++) {
    wk_tensor *shape = wk__needs(v, i) ? v->args[i].tensor : NULL;
    if (shape) WK_TRY(wk__vjp_set(v, i, wk_new_zeros(v->grads[0], shape->sizes, shape->ndim, WK_DTYPE_NONE, NONE)));
  }
  return WK_OK;
}

/* =================================================== integers =================================================== */

static wk_status draw_int(const fill *f, void *out, int64_t n) {
  wk__random_int(f->generator, out, n, f->range, f->base);
  return WK_OK;
}
static wk_status draw_int_full(const fill *f, void *out, int64_t n) {
  wk__random_int_full(f->generator, out, n, f->range, f->two_words);
  return WK_OK;
}

/* What random_ knows of a dtype. */
typedef struct int_limits {
  const char *name;    /* C++'s, for messages */
  int64_t least, most; /* of from and to - 1 */
  int digits;          /* floats: significant bits; integers 0 */
  uint64_t modulus;    /* random_() without bounds */
  bool two_words;
} int_limits;

static const int_limits limits_of[WK_DTYPE_COUNT] = {
    [WK_BOOL] = {"bool", 0, 1, 0, 2, false},
    [WK_UINT8] = {"unsigned char", 0, 255, 0, 256, false},
    [WK_INT8] = {"signed char", INT8_MIN, INT8_MAX, 0, 128, false},
    [WK_INT16] = {"short int", INT16_MIN, INT16_MAX, 0, 1 << 15, false},
    [WK_INT32] = {"int", INT32_MIN, INT32_MAX, 0, UINT64_C(1) << 31, false},
    [WK_INT64] = {"long int", INT64_MIN, INT64_MAX, 0, UINT64_C(1) << 63, true},
    [WK_FLOAT16] = {"c10::Half", -65504, 65504, 11, (1 << 11) + 1, false},
    [WK_BFLOAT16] = {"c10::BFloat16", INT64_MIN, INT64_MAX, 8, (1 << 8) + 1, false},
    [WK_FLOAT32] = {"float", INT64_MIN, INT64_MAX, 24, (1 << 24) + 1, false},
    [WK_FLOAT64] = {"double", INT64_MIN, INT64_MAX, 53, (UINT64_C(1) << 53) + 1, true},
};

static wk_status limits_for(wk_dtype dtype, const int_limits **out) {
  *out = &limits_of[dtype];
  if ((*out)->name) return WK_OK;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"random_\" not implemented for '%s'", wk__dtype_legacy(dtype));
}

static wk_status check_bounds(int64_t *from, int64_t *to, wk_dtype dtype) {
  const int_limits *l;
  WK_TRY(limits_for(dtype, &l));
  if (*from >= *to)
    return wk_fail(WK_RUNTIME_ERROR, "random_ expects 'from' to be less than 'to', but got from=%lld >= to=%lld",
                   (long long)*from, (long long)*to);
  if (l->digits) WK_TRY(wk__random_int_bounds(from, to, l->digits));
  if (*from < l->least || *from > l->most) return wk_fail(WK_RUNTIME_ERROR, "from is out of bounds for %s", l->name);
  if (*to - 1 < l->least || *to - 1 > l->most)
    return wk_fail(WK_RUNTIME_ERROR, "to - 1 is out of bounds for %s", l->name);
  return WK_OK;
}

static wk_status int_fill(fill *f, int64_t from, int64_t to, wk_dtype dtype) {
  WK_TRY(check_bounds(&from, &to, dtype));
  f->base = from;
  f->range = (uint64_t)to - (uint64_t)from;
  return WK_OK;
}

wk_status wk__kernel_random(wk__call *c) {
  const int_limits *l;
  WK_TRY(limits_for((wk_dtype)c->args[0].tensor->dtype, &l));
  return fill_self(c, WK_INT64, draw_int_full,
                   (fill){.generator = generator_of(c, 1), .range = l->modulus, .two_words = l->two_words});
}

wk_status wk__kernel_random_to(wk__call *c) {
  fill f = {.generator = generator_of(c, 2)};
  WK_TRY(int_fill(&f, 0, wk__arg_int(c, 1), (wk_dtype)c->args[0].tensor->dtype));
  return fill_self(c, WK_INT64, draw_int, f);
}

/* random_(from, to): without `to`, up to the dtype's largest value, that included. */
wk_status wk__kernel_random_from(wk__call *c) {
  fill f = {.generator = generator_of(c, 3), .base = wk__arg_int(c, 1)};
  wk_dtype dtype = (wk_dtype)c->args[0].tensor->dtype;
  const int_limits *l;
  WK_TRY(limits_for(dtype, &l));
  if (!wk__arg_is_none(c, 2)) {
    WK_TRY(int_fill(&f, f.base, wk__arg_int(c, 2), dtype));
  } else {
    int64_t most = l->digits ? INT64_C(1) << l->digits : l->most;
    f.range = (uint64_t)most - (uint64_t)f.base + 1;
  }
  return fill_self(c, WK_INT64, draw_int, f);
}

/* randint(high, size), randint(low, high, size) */
static bool has_low(const wk__call *c) {
  return c->op == WK__OP(randint_low) || c->op == WK__OP(randint_like_low_dtype);
}

wk_status wk__meta_randint(wk__call *c) {
  int size = has_low(c) ? 2 : 1;
  return create_like(c, &c->args[size], size + 1, WK_INT64);
}

/* randint_like(self, high), randint_like(self, low, high) */
wk_status wk__meta_randint_like(wk__call *c) {
  int first = has_low(c) ? 3 : 2;
  wk_value args[] = {c->args[0], c->args[first], c->args[first + 1], c->args[first + 2]};
  wk__call inner = *c;
  inner.op = WK__OP(zeros_like);
  inner.args = args;
  WK_TRY(wk__meta_create_like(&inner));
  c->compute_dtype = inner.compute_dtype;
  return WK_OK;
}

wk_status wk__kernel_randint(wk__call *c) {
  bool like = c->args[0].tag == WK_VALUE_TENSOR;
  int high = (like ? 1 : 0) + has_low(c);
  fill f = {.generator = generator_of(c, last_argument(c))};
  int64_t from = has_low(c) ? wk__arg_int(c, high - 1) : 0;
  WK_TRY(int_fill(&f, from, wk__arg_int(c, high), (wk_dtype)c->outputs[0]->dtype));
  return fill_tensor(c->outputs[0], WK_INT64, draw_int, f);
}

/* ---- randperm ---- */

static wk_status draw_permutation(const fill *f, void *out, int64_t n) {
  wk__random_permutation(f->generator, out, n);
  return WK_OK;
}

static const char *c_type_name(wk_dtype d) {
  return d == WK_UINT8 ? "uint8_t" : d == WK_INT8 ? "int8_t" : d == WK_INT16 ? "int16_t" : "int";
}

wk_status wk__meta_randperm(wk__call *c) {
  wk_dtype dtype = wk__arg_dtype(c, 1, WK_INT64);
  wk_int n = c->args[0].integer;
  wk_value size = wk__v_ints(&n, 1);
  const int_limits *l = &limits_of[dtype];
  WK_TRY(create_like(c, &size, 1, WK_INT64));
  if (dtype == WK_BOOL || !l->name)
    return wk_fail(WK_NOT_IMPLEMENTED, "\"randperm\" not implemented for '%s'", wk__dtype_legacy(dtype));
  int64_t count = wk_int_guard_value(n);
  if (!l->digits && count > l->most)
    return wk_fail(WK_RUNTIME_ERROR, "value cannot be converted to type %s without overflow", c_type_name(dtype));
  if (l->digits && count > (INT64_C(1) << l->digits) + 1)
    return wk_fail(WK_RUNTIME_ERROR, "n cannot be greater than %lld for %s type.",
                   (long long)(INT64_C(1) << l->digits) + 1, wk__dtype_legacy(dtype));
  return WK_OK;
}
wk_status wk__kernel_randperm(wk__call *c) {
  return fill_tensor(c->outputs[0], WK_INT64, draw_permutation, (fill){.generator = generator_of(c, last_argument(c))});
}

/* =================================================== Bernoulli ================================================== */

static wk_status draw_bernoulli(const fill *f, void *out, int64_t n) {
  return wk__random_bernoulli(f->generator, out, n, f->a);
}
static wk_status draw_bernoulli_p32(const fill *f, void *out, int64_t n) {
  return wk__random_bernoulli_p32(f->generator, out, n, f->p);
}
static wk_status draw_bernoulli_p64(const fill *f, void *out, int64_t n) {
  return wk__random_bernoulli_p64(f->generator, out, n, f->p);
}

wk_status wk__kernel_bernoulli_number(wk__call *c) {
  return fill_self(c, WK_BOOL, draw_bernoulli, (fill){.generator = generator_of(c, 2), .a = number(&c->args[1])});
}

/* bernoulli(self, p): a new tensor of self's shape; self's values do not matter. */
wk_status wk__kernel_bernoulli_p(wk__call *c) {
  return fill_tensor(c->outputs[0], WK_BOOL, draw_bernoulli,
                     (fill){.generator = generator_of(c, 2), .a = number(&c->args[1])});
}

/* Probabilities in the order in which `t` is filled: contiguous, f64 or f32. */
static wk_tensor *probabilities(const wk_tensor *t, wk_tensor *p) {
  wk_dtype dtype = drawn_float(p);
  wk_tensor *expanded = wk_expand(wk_detach(p), t->sizes, t->ndim, false);
  if (!expanded) return NULL;
  wk_tensor *ordered = by_address(t, expanded);
  if (!ordered) return NULL;
  wk__scope_add(ordered);
  wk_value args[] = {wk__v_tensor(ordered), wk__v_dtype(dtype), NONE};
  if (ordered->dtype != dtype) ordered = wk__call_tensor(WK__OP(_to_copy), args);
  return ordered ? wk_contiguous(ordered, NULL) : NULL;
}

static fill_fn *bernoulli_by(const wk_tensor *p) {
  return p->dtype == WK_FLOAT64 ? draw_bernoulli_p64 : draw_bernoulli_p32;
}

wk_status wk__kernel_bernoulli_tensor(wk__call *c) {
  wk_tensor *p = c->args[1].tensor;
  WK_TRY(require_float(p, "bernoulli_tensor_cpu_p_"));
  wk_scope scope;
  wk_scope_begin(&scope);
  p = probabilities(c->args[0].tensor, p);
  wk_status status = wk_error_category();
  if (p) status = fill_self(c, WK_BOOL, bernoulli_by(p), (fill){.generator = generator_of(c, 2), .p = wk__data(p)});
  wk_scope_end(&scope);
  return status;
}

wk_status wk__kernel_bernoulli(wk__call *c) {
  wk_tensor *p = c->args[0].tensor;
  WK_TRY(require_float(p, "bernoulli_tensor_cpu_p_"));
  wk_scope scope;
  wk_scope_begin(&scope);
  p = probabilities(c->outputs[0], p);
  wk_status status = wk_error_category();
  if (p)
    status =
        fill_tensor(c->outputs[0], WK_BOOL, bernoulli_by(p), (fill){.generator = generator_of(c, 1), .p = wk__data(p)});
  wk_scope_end(&scope);
  return status;
}

/* ============================================== other distributions ============================================= */

static wk_status draw_exponential(const fill *f, void *out, int64_t n) {
  return wk__random_exponential(f->generator, out, n, f->a);
}
static wk_status draw_geometric(const fill *f, void *out, int64_t n) {
  return wk__random_geometric(f->generator, out, n, f->a);
}
static wk_status draw_cauchy(const fill *f, void *out, int64_t n) {
  return wk__random_cauchy(f->generator, out, n, f->a, f->b);
}
static wk_status draw_log_normal(const fill *f, void *out, int64_t n) {
  return wk__random_log_normal(f->generator, out, n, f->a, f->b);
}

static wk_status require_continuous(const wk__call *c, const char *distribution) {
  wk_dtype dtype = (wk_dtype)c->args[0].tensor->dtype;
  if (wk_dtype_is_floating(dtype)) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR,
                 "%s distribution is a continuous probability distribution. dtype must be a floating point but you "
                 "specified %s",
                 distribution, wk__dtype_legacy(dtype));
}

wk_status wk__kernel_exponential(wk__call *c) {
  WK_TRY(require_continuous(c, "Exponential"));
  return fill_self(c, WK_FLOAT64, draw_exponential, (fill){.generator = generator_of(c, 2), .a = number(&c->args[1])});
}
wk_status wk__kernel_geometric(wk__call *c) {
  if (c->args[0].tensor->dtype == WK_BOOL)
    return wk_fail(WK_NOT_IMPLEMENTED, "\"geometric_cpu\" not implemented for 'Bool'");
  return fill_self(c, WK_FLOAT64, draw_geometric, (fill){.generator = generator_of(c, 2), .a = number(&c->args[1])});
}
wk_status wk__kernel_cauchy(wk__call *c) {
  WK_TRY(require_continuous(c, "Cauchy"));
  return fill_self(c, WK_FLOAT64, draw_cauchy,
                   (fill){.generator = generator_of(c, 3), .a = number(&c->args[1]), .b = number(&c->args[2])});
}
wk_status wk__kernel_log_normal(wk__call *c) {
  WK_TRY(require_float(c->args[0].tensor, "log_normal_cpu"));
  return fill_self(c, WK_FLOAT64, draw_log_normal,
                   (fill){.generator = generator_of(c, 3), .a = number(&c->args[1]), .b = number(&c->args[2])});
}

/* ---- multinomial: weights (rows, categories) or (categories) to indices (rows, samples) or (samples) ---- */

wk_status wk__meta_multinomial(wk__call *c) {
  const wk_tensor *p = c->args[0].tensor;
  wk_int samples = c->args[1].integer, sizes[2];
  if (!wk_dtype_is_floating((wk_dtype)p->dtype))
    return wk_fail(WK_RUNTIME_ERROR, "multinomial only supports floating-point dtypes for input, got: %s",
                   wk__dtype_legacy((wk_dtype)p->dtype));
  if (p->ndim != 1 && p->ndim != 2) return wk_fail(WK_RUNTIME_ERROR, "prob_dist must be 1 or 2 dim");
  if (wk_int_lt(samples, wk_int_of(1))) return wk_fail(WK_RUNTIME_ERROR, "cannot sample n_sample <= 0 samples");
  if (!wk__arg_bool(c, 2) && wk_int_lt(p->sizes[p->ndim - 1], samples))
    return wk_fail(WK_RUNTIME_ERROR, "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  memcpy(sizes, p->sizes, p->ndim * sizeof *sizes);
  sizes[p->ndim - 1] = samples;
  wk__spec_contiguous(&c->specs[0], WK_INT64, p->device, p->ndim, sizes);
  return WK_OK;
}

wk_status wk__kernel_multinomial(wk__call *c) {
  wk_tensor *p = c->args[0].tensor, *out = c->outputs[0];
  if (!out->storage) return WK_OK;
  int64_t rows = p->ndim == 2 ? wk__size(p, 0) : 1, categories = wk__size(p, p->ndim - 1);
  wk_dtype dtype = drawn_float(p);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_value args[] = {wk__v_tensor(p), wk__v_dtype(dtype), NONE};
  if (p->dtype != dtype) p = wk__call_tensor(WK__OP(_to_copy), args);
  if (p) p = wk_contiguous(p, NULL);
  wk_status status = wk_error_category();
  if (p)
    status = wk__random_multinomial(generator_of(c, 3), wk__data(p), dtype == WK_FLOAT64, rows, categories,
                                    wk__arg_int(c, 1), wk__arg_bool(c, 2), (int64_t *)wk__data(out));
  wk_scope_end(&scope);
  return status;
}

/* ==================================================== dropout =================================================== */

static double rounded_number(double x, wk_dtype dtype) {
  uint64_t bits = 0;
  wk__element_set(&bits, dtype, (wk__scalar){WK__FLOAT_KIND, .d = x});
  return wk__element_get(&bits, dtype).d;
}

/* What kept elements are multiplied with. dropout divides its mask by 1 - p in x's type, whose arithmetic for the small
 * types is f32; native_dropout multiplies with 1 / (1 - p) from double. The two may differ in the last bit. */
double wk__dropout_scale(const wk_op *op, double p, wk_dtype dtype) {
  double keep = 1 - p;
  if (keep == 0) return 0;
  bool divided = op == WK__OP(_dropout) && dtype != WK_FLOAT64;
  return rounded_number(divided ? (double)(1.0f / (float)keep) : 1 / keep, dtype);
}

/* (self, p) or (self, p, train): values like self, and the mask. */
wk_status wk__meta_dropout(wk__call *c) {
  const wk_tensor *t = c->args[0].tensor;
  if (!wk_dtype_is_floating((wk_dtype)t->dtype))
    return wk_fail(WK_RUNTIME_ERROR, "result type %s can't be cast to the desired output type %s",
                   wk__dtype_legacy(wk__default_dtype()), wk__dtype_legacy((wk_dtype)t->dtype));
  WK_TRY(wk__meta_like_first(c));
  if (wk__non_overlapping_and_dense(t)) memcpy(c->specs[0].strides, t->strides, t->ndim * sizeof *t->strides);
  c->specs[1] = c->specs[0];
  c->specs[1].dtype = WK_BOOL;
  return WK_OK;
}

static bool is_training(const wk_value *args, const wk_op *op) {
  return op == WK__OP(_dropout) || args[2].tag != WK_VALUE_BOOL || args[2].boolean;
}

/* The mask alone: what compiled code draws, the rest is a loop body. (size, stride, p) */
wk_status wk__meta_dropout_mask(wk__call *c) {
  wk__spec_contiguous(&c->specs[0], WK_BOOL, WK__CPU_DEVICE, (int)c->args[0].count, c->args[0].integers);
  memcpy(c->specs[0].strides, c->args[1].integers, c->args[1].count * sizeof(wk_int));
  c->compute_dtype = WK_BOOL;
  return WK_OK;
}
wk_status wk__kernel_dropout_mask(wk__call *c) {
  fill f = {.generator = wk__generator_default(), .a = 1 - number(&c->args[2])};
  if (!c->outputs[0]->storage) return WK_OK;
  return fill_tensor(c->outputs[0], WK_BOOL, draw_bernoulli, f);
}

bool wk__is_draw(const wk_op *op) { return op == WK__OP(_dropout_mask); }
wk_status wk__draw_to(const wk_op *op, double p, uint8_t *out, int64_t n, const wk__random_taker *taker) {
  (void)op; /* there is one */
  return wk__random_bernoulli_to(wk__generator_default(), out, n, 1 - p, taker);
}

/* Draws the mask as bytes, then one pass: x * (mask * scale). */
wk_status wk__kernel_dropout(wk__call *c) {
  wk_tensor *mask = c->outputs[1];
  double p = number(&c->args[1]), scale = wk__dropout_scale(c->op, p, (wk_dtype)c->args[0].tensor->dtype);
  bool training = is_training(c->args, c->op);
  if (!mask->storage) return WK_OK;
  fill f = {.generator = wk__generator_default(), .a = 1 - p};
  if (training)
    WK_TRY(fill_tensor(mask, WK_BOOL, draw_bernoulli, f));
  else
    memset(wk__data(mask), 1, (size_t)wk__numel(mask));
  wk_value args[] = {c->args[0], wk__v_tensor(mask), wk__v_double(training ? scale : 1)}, result = {0};
  WK_TRY(wk__compute(WK__OP(native_dropout_backward), args, c->outputs, &result));
  wk_value_release(&result);
  return WK_OK;
}

/* Forward and derivative are the same map. */
void wk__lower_dropout(wk__lower *l) {
  wk__var factor = wk__k_mul(l->h, wk__in(l, 1), wk__in(l, 2));
  wk__out(l, 0, wk__k_mul(l->h, wk__in(l, 0), factor));
}

wk_status wk__vjp_dropout(wk__vjp *v) {
  double p = number(&v->args[1]), scale = G ? wk__dropout_scale(v->op, p, (wk_dtype)G->dtype) : 0;
  if (!G) return WK_OK;
  return wk__vjp_set(v, 0, wk_native_dropout_backward(G, v->results[1], is_training(v->args, v->op) ? scale : 1));
}
wk_status wk__vjp_dropout_backward(wk__vjp *v) {
  return wk__vjp_set(v, 0, wk_native_dropout_backward(G, v->args[1].tensor, number(&v->args[2])));
}

static wk_status check_dropout(const wk__call *c) {
  double p = number(&c->args[1]);
  if (p >= 0 && p <= 1) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "dropout probability has to be between 0 and 1, but got %g", p);
}

/* Nothing to drop, or everything: no draw. Sets *out_done. */
static wk_status trivial_dropout(wk__call *c, bool *out_done) {
  WK_TRY(check_dropout(c));
  double p = number(&c->args[1]);
  wk_tensor *x = c->args[0].tensor;
  *out_done = true;
  if (p == 0 || !wk__arg_bool(c, 2) || wk_int_eq(x->numel, wk_int_of(0))) {
    c->results[0] = wk__v_tensor(wk__retain(x));
    return WK_OK;
  }
  if (p == 1) return wk_call(WK__OP(mul_Scalar), (wk_value[]){c->args[0], wk__v_int(0)}, NULL, c->results);
  *out_done = false;
  return WK_OK;
}

wk_status wk__compose_dropout(wk__call *c) {
  wk_value results[2] = {{0}};
  bool done;
  WK_TRY(trivial_dropout(c, &done));
  if (done) return WK_OK;
  WK_TRY(wk_call(WK__OP(_dropout), (wk_value[]){c->args[0], c->args[1]}, NULL, results));
  wk_value_release(&results[1]);
  c->results[0] = results[0];
  return WK_OK;
}

/* mask / (1 - p) in x's type, of x's shape or, `by_channel`, of (N, C, 1, ...). */
static wk_tensor *noise(wk_tensor *x, double p, bool by_channel, bool divided) {
  wk_int sizes[WK_MAX_DIMS];
  for (int d = 0; d < x->ndim; d++) sizes[d] = by_channel && d > 1 ? wk_int_of(1) : x->sizes[d];
  wk_tensor *empty =
      by_channel ? wk_new_empty(x, sizes, x->ndim, WK_DTYPE_NONE, NONE) : wk_empty_like(x, WK_DTYPE_NONE, NONE, NULL);
  wk_tensor *mask = wk_bernoulli__float(empty, 1 - p, NULL);
  return divided ? wk_div_Scalar(mask, wk__v_double(1 - p)) : mask;
}

static wk_status give(wk__call *c, wk_scope *scope, wk_tensor *y) {
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(scope);
  return y ? WK_OK : wk_error_category();
}

/* In terms of mul_, so that the tape sees a product that was written in place. */
wk_status wk__compose_dropout_inplace(wk__call *c) {
  wk_tensor *x = c->args[0].tensor, *factor = NULL;
  double p = number(&c->args[1]);
  WK_TRY(check_dropout(c));
  if (p == 0 || !wk__arg_bool(c, 2)) {
    c->results[0] = wk__v_tensor(wk__retain(x));
    return WK_OK;
  }
  wk_scope scope;
  wk_scope_begin(&scope);
  factor = p == 1 ? wk_zeros_like(x, WK_DTYPE_NONE, NONE, NULL) : noise(x, p, false, true);
  wk_status status = wk_error_category();
  if (factor) status = wk_call(WK__OP(mul_Tensor), (wk_value[]){c->args[0], wk__v_tensor(factor)}, &x, c->results);
  wk_scope_end(&scope);
  return status;
}

wk_status wk__compose_feature_dropout(wk__call *c) {
  wk_tensor *x = c->args[0].tensor;
  bool done;
  WK_TRY(trivial_dropout(c, &done));
  if (done) return WK_OK;
  if (x->ndim < 2) return wk_fail(WK_RUNTIME_ERROR, "Feature dropout requires at least 2 dimensions in the input");
  wk_scope scope;
  wk_scope_begin(&scope);
  return give(c, &scope, wk_mul(x, noise(x, number(&c->args[1]), true, true)));
}

/* Klambauer et al., Self-Normalizing Neural Networks (2017): dropped elements become -alpha' = -1.7580993, and an
 * affine map restores mean and variance: a (x m + alpha (m - 1)) + a alpha p, with a = ((alpha^2 p + 1) (1 -
 * p))^(-1/2). */
wk_status wk__compose_alpha_dropout(wk__call *c) {
  const double alpha = 1.7580993408473766;
  wk_tensor *x = c->args[0].tensor;
  double p = number(&c->args[1]), a = 1 / sqrt((alpha * alpha * p + 1) * (1 - p));
  wk_value one = wk__v_int(1);
  bool done;
  WK_TRY(trivial_dropout(c, &done));
  if (done) return WK_OK;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *mask = noise(x, p, c->op == WK__OP(feature_alpha_dropout), false);
  wk_tensor *moved = wk_mul_Scalar(wk_add_Scalar(mask, wk__v_int(-1), one), wk__v_double(alpha * a));
  wk_tensor *offset = wk_add_Scalar(moved, wk__v_double(alpha * a * p), one);
  return give(c, &scope, wk_add(wk_mul(x, wk_mul_Scalar(mask, wk__v_double(a))), offset, one));
}
