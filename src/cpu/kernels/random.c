/* Operators that draw random numbers, on the CPU. The drawing itself is in random/fill.c.
 *
 * Invariant: a tensor is filled in the order of addresses, whatever its strides; dtypes that have no fill of their own
 * are drawn in a wider one and converted. Tests: tests/c/test_random_ops.c (numbers recorded from PyTorch). */
#include "cpu/kernels.h"
#include "cpu/kernels/draw.h"
#include "ops/internal.h"
#include "ops/rules/draw.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

typedef struct fill {
  wk__generator *generator;
  double a, b;     /* the distribution's numbers, in the order of the operator's arguments */
  int64_t base;    /* integers: base + word % range */
  uint64_t range;  /* 0: 2^64; for `full`: the modulus */
  bool two_words;  /* `full` */
  const void *p;   /* Bernoulli by a tensor: probabilities, in the order of filling */
  wk_dtype dtype;  /* of the tensor that is filled */
  bool contiguous; /* Tensor.is_contiguous() of it: the normal distribution's algorithm depends on it */
} fill;

typedef wk_status fill_fn(const fill *f, void *out, int64_t n);

static wk__generator *generator_of(const wk__call *c, int arg) {
  return c->args[arg].tag == WK_VALUE_GENERATOR ? c->args[arg].generator : wk__generator_default_of(wk__call_device(c));
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

wk_status wk__cpu_uniform(wk__call *c) {
  WK__ARGS(uniform_);
  wk_tensor *self = c->args[A_self].tensor;
  WK_TRY(require_float(self, "check_uniform_bounds"));
  return fill_self(c, drawn_float(self), draw_uniform,
                   (fill){.generator = generator_of(c, 3), .a = number(&c->args[A_from]), .b = number(&c->args[A_to])});
}

static int last_argument(const wk__call *c) { return c->op->schema.parameter_count - 1; }

/* rand, rand_like: the generator is the last argument. */
wk_status wk__cpu_rand(wk__call *c) {
  WK_TRY(require_float(c->outputs[0], "check_uniform_bounds"));
  return fill_tensor(c->outputs[0], drawn_float(c->outputs[0]), draw_uniform,
                     (fill){.generator = generator_of(c, last_argument(c)), .b = 1});
}

static wk_status draw_normal(const fill *f, void *out, int64_t n) {
  if (f->dtype == WK_FLOAT64) return wk__random_normal_f64(f->generator, out, n, f->a, f->b, f->contiguous);
  if (f->dtype == WK_FLOAT32) return wk__random_normal_f32(f->generator, out, n, f->a, f->b, f->contiguous);
  return wk__random_normal_half(f->generator, out, n, f->a, f->b, f->contiguous);
}

static wk_status fill_normal(wk_tensor *t, wk__generator *generator, double mean, double std) {
  WK_TRY(require_float(t, "normal_kernel_cpu"));
  return fill_tensor(t, drawn_float(t), draw_normal, (fill){.generator = generator, .a = mean, .b = std});
}

wk_status wk__cpu_normal(wk__call *c) {
  WK__ARGS(normal_);
  wk_tensor *self = c->args[A_self].tensor;
  WK_TRY(wk__random_check_normal(number(&c->args[A_std])));
  WK_TRY(require_float(self, "normal_kernel_cpu"));
  return fill_self(
      c, drawn_float(self), draw_normal,
      (fill){.generator = generator_of(c, 3), .a = number(&c->args[A_mean]), .b = number(&c->args[A_std])});
}

/* randn, randn_like */
wk_status wk__cpu_randn(wk__call *c) { return fill_normal(c->outputs[0], generator_of(c, last_argument(c)), 0, 1); }

wk_status wk__cpu_normal_sized(wk__call *c) {
  return fill_normal(c->outputs[0], generator_of(c, last_argument(c)),
                     number(&c->args[WK__ARG(normal_float_float, mean)]),
                     number(&c->args[WK__ARG(normal_float_float, std)]));
}

static wk_status draw_int(const fill *f, void *out, int64_t n) {
  wk__random_int(f->generator, out, n, f->range, f->base);
  return WK_OK;
}

static wk_status draw_int_full(const fill *f, void *out, int64_t n) {
  wk__random_int_full(f->generator, out, n, f->range, f->two_words);
  return WK_OK;
}

/* What random_, random_(from, to) and randint draw. */
static wk_status int_fill(const wk__call *c, fill *f, fill_fn **fn) {
  wk__integers drawn;
  WK_TRY(wk__integers_of(c, &drawn));
  f->base = drawn.base;
  f->range = drawn.range;
  f->two_words = drawn.two_words;
  *fn = drawn.full ? draw_int_full : draw_int;
  return WK_OK;
}

wk_status wk__cpu_random(wk__call *c) {
  fill f = {.generator = generator_of(c, last_argument(c))};
  fill_fn *fn;
  WK_TRY(int_fill(c, &f, &fn));
  return fill_self(c, WK_INT64, fn, f);
}

wk_status wk__cpu_randint(wk__call *c) {
  fill f = {.generator = generator_of(c, last_argument(c))};
  fill_fn *fn;
  WK_TRY(int_fill(c, &f, &fn));
  return fill_tensor(c->outputs[0], WK_INT64, fn, f);
}

static wk_status draw_permutation(const fill *f, void *out, int64_t n) {
  wk__random_permutation(f->generator, out, n);
  return WK_OK;
}

wk_status wk__cpu_randperm(wk__call *c) {
  return fill_tensor(c->outputs[0], WK_INT64, draw_permutation, (fill){.generator = generator_of(c, last_argument(c))});
}

static wk_status draw_bernoulli(const fill *f, void *out, int64_t n) {
  return wk__random_bernoulli(f->generator, out, n, f->a);
}

static wk_status draw_bernoulli_p32(const fill *f, void *out, int64_t n) {
  return wk__random_bernoulli_p32(f->generator, out, n, f->p);
}

static wk_status draw_bernoulli_p64(const fill *f, void *out, int64_t n) {
  return wk__random_bernoulli_p64(f->generator, out, n, f->p);
}

wk_status wk__cpu_bernoulli_number(wk__call *c) {
  return fill_self(c, WK_BOOL, draw_bernoulli,
                   (fill){.generator = generator_of(c, 2), .a = number(&c->args[WK__ARG(bernoulli__float, p)])});
}

/* bernoulli(self, p): a new tensor of self's shape; self's values do not matter. */
wk_status wk__cpu_bernoulli_p(wk__call *c) {
  return fill_tensor(c->outputs[0], WK_BOOL, draw_bernoulli,
                     (fill){.generator = generator_of(c, 2), .a = number(&c->args[WK__ARG(bernoulli_p, p)])});
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

wk_status wk__cpu_bernoulli_tensor(wk__call *c) {
  wk_tensor *p = c->args[WK__ARG(bernoulli__Tensor, p)].tensor;
  WK_TRY(require_float(p, "bernoulli_tensor_cpu_p_"));
  wk_scope scope;
  wk_scope_begin(&scope);
  p = probabilities(c->args[WK__ARG(bernoulli__Tensor, self)].tensor, p);
  wk_status status = wk_error_category();
  if (p) status = fill_self(c, WK_BOOL, bernoulli_by(p), (fill){.generator = generator_of(c, 2), .p = wk__data(p)});
  wk_scope_end(&scope);
  return status;
}

wk_status wk__cpu_bernoulli(wk__call *c) {
  wk_tensor *p = c->args[WK__ARG(bernoulli, self)].tensor;
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

wk_status wk__cpu_exponential(wk__call *c) {
  wk_dtype dtype = (wk_dtype)c->args[WK__ARG(exponential_, self)].tensor->dtype;
  WK_TRY(wk__check_continuous("Exponential", dtype, wk__dtype_legacy(dtype)));
  return fill_self(c, WK_FLOAT64, draw_exponential,
                   (fill){.generator = generator_of(c, 2), .a = number(&c->args[WK__ARG(exponential_, lambd)])});
}

wk_status wk__cpu_geometric(wk__call *c) {
  if (c->args[WK__ARG(geometric_, self)].tensor->dtype == WK_BOOL)
    return wk_fail(WK_NOT_IMPLEMENTED, "\"geometric_cpu\" not implemented for 'Bool'");
  return fill_self(c, WK_FLOAT64, draw_geometric,
                   (fill){.generator = generator_of(c, 2), .a = number(&c->args[WK__ARG(geometric_, p)])});
}

wk_status wk__cpu_cauchy(wk__call *c) {
  wk_dtype dtype = (wk_dtype)c->args[WK__ARG(cauchy_, self)].tensor->dtype;
  WK_TRY(wk__check_continuous("Cauchy", dtype, wk__dtype_c_name(dtype)));
  return fill_self(c, WK_FLOAT64, draw_cauchy,
                   (fill){.generator = generator_of(c, 3),
                          .a = number(&c->args[WK__ARG(cauchy_, median)]),
                          .b = number(&c->args[WK__ARG(cauchy_, sigma)])});
}

wk_status wk__cpu_log_normal(wk__call *c) {
  WK__ARGS(log_normal_);
  WK_TRY(require_float(c->args[A_self].tensor, "log_normal_cpu"));
  return fill_self(
      c, WK_FLOAT64, draw_log_normal,
      (fill){.generator = generator_of(c, 3), .a = number(&c->args[A_mean]), .b = number(&c->args[A_std])});
}

wk_status wk__cpu_multinomial(wk__call *c) {
  WK__ARGS(multinomial);
  wk_tensor *p = c->args[A_self].tensor, *out = c->outputs[0];
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
    status =
        wk__random_multinomial(generator_of(c, 3), wk__data(p), dtype == WK_FLOAT64, rows, categories,
                               wk__arg_int(c, A_num_samples), wk__arg_bool(c, A_replacement), (int64_t *)wk__data(out));
  wk_scope_end(&scope);
  return status;
}

static bool is_training(const wk_value *args, const wk_op *op) {
  return op == WK__OP(_dropout) || args[2].tag != WK_VALUE_BOOL || args[2].boolean;
}

wk_status wk__cpu_dropout_mask(wk__call *c) {
  fill f = {.generator = wk__generator_default_of(wk__call_device(c)),
            .a = 1 - number(&c->args[WK__ARG(_dropout_mask, p)])};
  if (!c->outputs[0]->storage) return WK_OK;
  return fill_tensor(c->outputs[0], WK_BOOL, draw_bernoulli, f);
}

wk_status wk__draw_to(const wk_op *op, wk__generator *generator, double p, uint8_t *out, int64_t n,
                      const wk__random_taker *taker) {
  (void)op; /* there is one */
  return wk__random_bernoulli_to(generator, out, n, 1 - p, taker);
}

/* Draws the mask as bytes, then one pass: x * (mask * scale). */
wk_status wk__cpu_dropout(wk__call *c) {
  wk_tensor *mask = c->outputs[1];
  double p = number(&c->args[WK__ARG(_dropout, p)]), scale = wk__dropout_scale(c->op, p, c->args[0].tensor);
  bool training = is_training(c->args, c->op);
  if (!mask->storage) return WK_OK;
  fill f = {.generator = wk__generator_default_of(wk__call_device(c)), .a = 1 - p};
  if (training)
    WK_TRY(fill_tensor(mask, WK_BOOL, draw_bernoulli, f));
  else
    memset(wk__data(mask), 1, (size_t)wk__numel(mask));
  wk_value args[] = {c->args[0], wk__v_tensor(mask), wk__v_double(training ? scale : 1)}, result = {0};
  WK_TRY(wk__compute(WK__OP(native_dropout_backward), args, c->outputs, &result));
  wk_value_release(&result);
  return WK_OK;
}

/* Only elements that are not positive draw, in their order, in double. x: (n), becomes the result; noise: (n) */
static wk_status draw_slopes(wk__generator *generator, double *x, double *noise, int64_t n, double lower, double upper,
                             bool in_double) {
  int64_t count = 0, drawn = 0;
  for (int64_t i = 0; i < n; i++) count += x[i] <= 0;
  double *slopes = wk__alloc((size_t)(count + 1) * sizeof *slopes);
  wk_status status = slopes ? wk__random_uniform_f64(generator, slopes, count, lower, upper) : WK_OUT_OF_MEMORY;
  for (int64_t i = 0; i < n && status == WK_OK; i++) {
    noise[i] = 1;
    if (!(x[i] <= 0)) continue;
    noise[i] = in_double ? slopes[drawn] : (float)slopes[drawn];
    x[i] = in_double ? x[i] * noise[i] : (float)x[i] * (float)noise[i];
    drawn++;
  }
  wk__free(slopes);
  return status;
}

/* (self, lower, upper, generator) -> what is left of self, and the factors */
wk_status wk__cpu_rrelu(wk__call *c) {
  WK__ARGS(_rrelu_with_noise);
  wk_tensor *self = c->args[A_self].tensor;
  wk__generator *generator = generator_of(c, 3);
  wk_scope scope;
  if (!self->storage) return WK_OK;
  wk_scope_begin(&scope);
  wk_value device = {.tag = WK_VALUE_DEVICE, .device = self->device};
  wk_tensor *x = wk_empty_memory_format(self->sizes, self->ndim, WK_FLOAT64, device, NULL);
  wk_tensor *noise = wk_empty_memory_format(self->sizes, self->ndim, WK_FLOAT64, device, NULL);
  wk_status status = x && noise ? wk__copy_into(x, self) : wk_error_category();
  if (status == WK_OK)
    status = draw_slopes(generator, (double *)wk__data(x), (double *)wk__data(noise), wk__numel(x),
                         number(&c->args[A_lower]), number(&c->args[A_upper]), self->dtype == WK_FLOAT64);
  if (status == WK_OK) status = wk__copy_into(c->outputs[0], x);
  if (status == WK_OK) status = wk__copy_into(c->outputs[1], noise);
  wk_scope_end(&scope);
  return status;
}
