/* The device's generator (Philox: a seed and an offset, PyTorch's state of 16 bytes), and the rows that draw from it.
 *
 * A call takes the offset and adds the words that one thread may have used. Tensors are filled in the order of
 * addresses; one with gaps through a contiguous one. What is drawn on the host comes
 * from a generator of its kind that this one's state seeds. Tests: tests/cuda/test_random.py. */
#include "cuda/random.h"

#include <math.h>

#include "cuda/capture.h"
#include "cuda/internal.h"
#include "cuda/kernels.h"
#include "cuda/program.h"
#include "cuda/recording.h"
#include "cuda/tier0.h"
#include "ops/internal.h"
#include "ops/rules/draw.h"
#include "random/generator.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

/* ---- the generator ---- */

typedef struct philox {
  wk__generator head;
  uint64_t seed, offset; /* the offset is a multiple of 4 */
} philox;
enum { STATE_BYTES = 16 };

static wk__generator *create(void) { return wk__alloc_zeroed(sizeof(philox)); }
static void seed(wk__generator *head, uint64_t value) {
  ((philox *)head)->seed = value;
  ((philox *)head)->offset = 0;
}
static void get_state(wk__generator *head, uint8_t *out) {
  const philox *p = (const philox *)head;
  memcpy(out, &p->seed, 8);
  memcpy(out + 8, &p->offset, 8);
}
static wk_status set_state(wk__generator *head, const uint8_t *bytes) {
  uint64_t offset;
  memcpy(&offset, bytes + 8, 8);
  if (offset % 4) return wk_fail(WK_RUNTIME_ERROR, "offset must be a multiple of 4");
  memcpy(&((philox *)head)->seed, bytes, 8);
  ((philox *)head)->offset = offset;
  head->seed = ((philox *)head)->seed;
  return WK_OK;
}

const wk__generator_type wk__philox_generator_type = {
    .state_bytes = STATE_BYTES, .create = create, .seed = seed, .get_state = get_state, .set_state = set_state};

/* A call's seed and offset; the next one begins `used` words further. */
void wk__cuda_take_words(wk__generator *generator, uint64_t used, uint64_t *out_seed, uint64_t *out_offset) {
  philox *p = (philox *)generator;
  pthread_mutex_lock(&generator->mutex);
  *out_seed = p->seed;
  *out_offset = p->offset;
  p->offset += used;
  pthread_mutex_unlock(&generator->mutex);
}

wk_status wk__cuda_take_drawn(const wk__cuda_stream *s, wk__generator *generator, uint64_t used, wk__cuda_drawn *out) {
  out->generator = generator;
  out->unit = 1;
  wk__cuda_take_words(generator, s->capture ? 0 : used, &out->seed, &out->offset);
  return s->capture ? wk__cuda_graph_draw(s->capture, generator, used, &out->offset) : WK_OK;
}

wk__generator *wk__cuda_host_generator(wk__generator *generator) {
  enum { WORDS_ON_HOST = 4096 };
  uint64_t value, offset;
  wk__cuda_take_words(generator, WORDS_ON_HOST, &value, &offset);
  return wk__generator_create(WK__CPU_DEVICE, value ^ offset * UINT64_C(0x9e3779b97f4a7c15));
}

/* ---- launches ---- */

enum { THREADS = 256 };

/* PyTorch's number of blocks. */
static int64_t blocks_for(const wk__cuda_device *d, int64_t n) {
  return wk__min(wk__ceil_div(n, THREADS), (int64_t)d->multiprocessors * (d->threads_each / THREADS));
}

int64_t wk__cuda_mask_threads(const wk__cuda_device *device, int64_t n) { return THREADS * blocks_for(device, n); }

wk_status wk__cuda_take_mask(const wk__cuda_stream *s, wk__generator *generator, int64_t n, wk__cuda_drawn *out) {
  return wk__cuda_take_drawn(s, generator, 4 * (uint64_t)((n - 1) / (4 * wk__cuda_mask_threads(s->device, n)) + 1),
                             out);
}

/* `used`: words of the generator that a thread may use. */
static wk_status launch_blocks(wk__generator *generator, const wk_tensor *out, const char *kernel, wk__cuda_draws *f,
                               int64_t blocks, uint64_t used) {
  wk__cuda_stream *s = wk__cuda_stream_of(wk__stream_of(out->device));
  CUfunction function;
  const wk__cuda_address addresses[] = {{offsetof(wk__cuda_draws, out) / 8, f->out},
                                        {offsetof(wk__cuda_draws, p) / 8, f->p},
                                        {offsetof(wk__cuda_draws, q) / 8, f->q}};
  wk__cuda_drawn drawn = WK__CUDA_DRAWN_IN_FILL;
  if (!generator) return wk_error_category();
  if (f->n == 0) return WK_OK;
  WK_TRY(wk__cuda_take_drawn(s, generator, used, &drawn));
  f->seed = drawn.seed, f->offset = drawn.offset;
  WK_TRY(wk__cuda_enter(s->device));
  WK_TRY(wk__cuda_function(s->device, WK__CUDA_RANDOM, kernel, &function));
  CUevent begin;
  wk__cuda_time_begin(s, &begin);
  wk_status status = wk__cuda_give(s, &(wk__cuda_work){.function = function,
                                                       .grid = {(unsigned)blocks, 1, 1},
                                                       .threads = THREADS,
                                                       .words = f,
                                                       .word_count = (int)(sizeof *f / 8),
                                                       .addresses = addresses,
                                                       .address_count = f->q   ? 3
                                                                        : f->p ? 2
                                                                               : 1,
                                                       .drawn = &drawn});
  wk__cuda_time_end(s, begin, kernel);
  return status;
}

/* `each`: values a draw gives. */
static wk_status launch(wk__generator *generator, const wk_tensor *out, const char *kernel, wk__cuda_draws *f,
                        int64_t each) {
  int64_t blocks = blocks_for(wk__cuda_stream_of(wk__stream_of(out->device))->device, f->n);
  int64_t turn = wk__max(1, each * THREADS * blocks);
  return launch_blocks(generator, out, kernel, f, blocks, 4 * (uint64_t)((f->n - 1) / turn + 1));
}

static int64_t each_of(const wk__cuda_draws *f) {
  bool wide = f->draw == WK__DRAW_INTEGER ? f->two_words : f->type == WK__MEMORY_F64;
  return wide ? 2 : 4;
}

/* ---- filling tensors ---- */

static wk__generator *generator_of(const wk__call *c, int arg) {
  return c->args[arg].tag == WK_VALUE_GENERATOR ? c->args[arg].generator : wk__generator_default_of(wk__call_device(c));
}
static int last_argument(const wk__call *c) { return c->op->schema.parameter_count - 1; }
static double number(const wk_value *v) { return wk__scalar_double(wk__value_scalar(v)); }

static wk_status fill_dense(wk__generator *generator, wk_tensor *t, wk__cuda_draws f) {
  f.out = (uint64_t)(uintptr_t)wk__address(t);
  f.n = wk__numel(t);
  f.type = wk__cuda_memory_of((wk_dtype)t->dtype);
  return launch(generator, t, "kernel_fill", &f, each_of(&f));
}

static wk_status fill_tensor(wk__generator *generator, wk_tensor *t, wk__cuda_draws f) {
  if (wk__non_overlapping_and_dense(t)) return fill_dense(generator, t, f);
  wk__spec spec;
  wk__spec_contiguous(&spec, (wk_dtype)t->dtype, t->device, t->ndim, t->sizes);
  WK__OWNED values = wk__tensor_from_spec(&spec);
  if (!values) return wk_error_category();
  WK_TRY(fill_dense(generator, values, f));
  return wk__copy_into(t, values);
}

static wk_status fill_self(wk__call *c, wk__cuda_draws f) {
  wk_tensor *self = c->args[0].tensor;
  if (wk__has_internal_overlap(self))
    return wk_fail(WK_RUNTIME_ERROR,
                   "unsupported operation: more than one element of the written-to tensor refers to a single memory "
                   "location. Please clone() the tensor before performing the operation.");
  uint32_t before = wk__version(self);
  WK_TRY(fill_tensor(generator_of(c, last_argument(c)), self, f));
  if (wk__version(self) == before) wk__version_bump(self);
  c->results[0] = wk__v_tensor(wk__retain(self));
  return WK_OK;
}

static wk_status require_float(const wk_tensor *t, const char *kernel) {
  if (wk_dtype_is_floating((wk_dtype)t->dtype) && !wk__dtype_is_float8(t->dtype)) return WK_OK;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", kernel, wk__dtype_legacy((wk_dtype)t->dtype));
}

static wk_status check_uniform(double from, double to) {
  if (from <= to) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "uniform_ expects to return a [from, to) range, but found from=%g > to=%g", from,
                 to);
}

wk_status wk__cuda_uniform(wk__call *c) {
  WK__ARGS(uniform_);
  wk__cuda_draws f = {.draw = WK__DRAW_UNIFORM, .a = number(&c->args[A_from]), .b = number(&c->args[A_to])};
  WK_TRY(require_float(c->args[A_self].tensor, "check_uniform_bounds"));
  WK_TRY(check_uniform(f.a, f.b));
  return fill_self(c, f);
}

wk_status wk__cuda_rand(wk__call *c) {
  WK_TRY(require_float(c->outputs[0], "check_uniform_bounds"));
  return fill_tensor(generator_of(c, last_argument(c)), c->outputs[0],
                     (wk__cuda_draws){.draw = WK__DRAW_UNIFORM, .b = 1});
}

wk_status wk__cuda_normal(wk__call *c) {
  WK__ARGS(normal_);
  wk__cuda_draws f = {.draw = WK__DRAW_NORMAL, .a = number(&c->args[A_mean]), .b = number(&c->args[A_std])};
  WK_TRY(wk__random_check_normal(f.b));
  WK_TRY(require_float(c->args[A_self].tensor, "normal_kernel_cuda"));
  return fill_self(c, f);
}

wk_status wk__cuda_randn(wk__call *c) {
  wk__cuda_draws f = {.draw = WK__DRAW_NORMAL, .b = 1};
  if (c->op == WK__OP(normal_float_float)) {
    f.a = number(&c->args[WK__ARG(normal_float_float, mean)]);
    f.b = number(&c->args[WK__ARG(normal_float_float, std)]);
  }
  WK_TRY(require_float(c->outputs[0], "normal_kernel_cuda"));
  WK_TRY(wk__random_check_normal(f.b));
  return fill_tensor(generator_of(c, last_argument(c)), c->outputs[0], f);
}

wk_status wk__cuda_exponential(wk__call *c) {
  wk__cuda_draws f = {.draw = WK__DRAW_EXPONENTIAL, .a = number(&c->args[WK__ARG(exponential_, lambd)])};
  wk_dtype dtype = (wk_dtype)c->args[0].tensor->dtype;
  WK_TRY(wk__check_continuous("Exponential", dtype, wk__dtype_legacy(dtype)));
  if (!(f.a > 0)) return wk_fail(WK_RUNTIME_ERROR, "exponential_ expects lambda > 0.0, but found lambda=%g", f.a);
  return fill_self(c, f);
}

static wk_status check_positive(const char *row, const char *name, double value) {
  return value > 0 ? WK_OK : wk_fail(WK_RUNTIME_ERROR, "%s expects %s > 0.0, but found %s=%g", row, name, name, value);
}

wk_status wk__cuda_geometric(wk__call *c) {
  wk__cuda_draws f = {.draw = WK__DRAW_GEOMETRIC, .a = number(&c->args[WK__ARG(geometric_, p)])};
  if (c->args[0].tensor->dtype == WK_BOOL)
    return wk_fail(WK_NOT_IMPLEMENTED, "\"geometric_cuda\" not implemented for 'Bool'");
  if (!(f.a > 0 && f.a < 1))
    return wk_fail(WK_RUNTIME_ERROR, "geometric_ expects p to be in (0, 1), but got p=%g", f.a);
  return fill_self(c, f);
}

wk_status wk__cuda_cauchy(wk__call *c) {
  WK__ARGS(cauchy_);
  wk__cuda_draws f = {.draw = WK__DRAW_CAUCHY, .a = number(&c->args[A_median]), .b = number(&c->args[A_sigma])};
  wk_dtype dtype = (wk_dtype)c->args[A_self].tensor->dtype;
  WK_TRY(wk__check_continuous("Cauchy", dtype, wk__dtype_c_name(dtype)));
  WK_TRY(check_positive("cauchy_", "sigma", f.b));
  return fill_self(c, f);
}

wk_status wk__cuda_log_normal(wk__call *c) {
  WK__ARGS(log_normal_);
  wk__cuda_draws f = {.draw = WK__DRAW_LOG_NORMAL, .a = number(&c->args[A_mean]), .b = number(&c->args[A_std])};
  WK_TRY(require_float(c->args[A_self].tensor, "log_normal_cuda"));
  WK_TRY(check_positive("log_normal_", "std", f.b));
  return fill_self(c, f);
}

/* ---- integers ---- */

/* From 2^28 on a value takes two words. */
static wk_status int_fill(const wk__call *c, wk__cuda_draws *out) {
  wk__integers drawn;
  WK_TRY(wk__integers_of(c, &drawn));
  *out = (wk__cuda_draws){.draw = WK__DRAW_INTEGER, .base = drawn.base, .range = drawn.range};
  out->two_words = drawn.full ? drawn.two_words : drawn.range == 0 || drawn.range >= 1 << 28;
  return WK_OK;
}

wk_status wk__cuda_random(wk__call *c) {
  wk__cuda_draws f;
  WK_TRY(int_fill(c, &f));
  return fill_self(c, f);
}

wk_status wk__cuda_randint(wk__call *c) {
  wk__cuda_draws f;
  WK_TRY(int_fill(c, &f));
  return fill_tensor(generator_of(c, last_argument(c)), c->outputs[0], f);
}

/* ---- permutations: places by keys, of so many bits that few are equal ---- */

static wk_status shuffle_islands(wk__generator *generator, const wk_tensor *keys, const wk_tensor *places) {
  enum { ISLAND_THREADS = 512 };
  wk__cuda_stream *s = wk__cuda_stream_of(wk__stream_of(keys->device));
  wk__cuda_draws f = {.out = (uint64_t)(uintptr_t)wk__address(places),
                      .p = (uint64_t)(uintptr_t)wk__address(keys),
                      .n = wk__numel(keys)};
  const wk__cuda_address addresses[] = {{offsetof(wk__cuda_draws, out) / 8, f.out},
                                        {offsetof(wk__cuda_draws, p) / 8, f.p}};
  CUfunction function;
  wk__cuda_drawn drawn = WK__CUDA_DRAWN_IN_FILL;
  WK_TRY(wk__cuda_take_drawn(s, generator, (uint64_t)wk__ceil_div(f.n, 4) * 4, &drawn));
  f.seed = drawn.seed, f.offset = drawn.offset;
  WK_TRY(wk__cuda_enter(s->device));
  WK_TRY(wk__cuda_function(s->device, WK__CUDA_RANDOM, "kernel_islands", &function));
  return wk__cuda_give(s, &(wk__cuda_work){.function = function,
                                           .grid = {(unsigned)wk__ceil_div(f.n, ISLAND_THREADS), 1, 1},
                                           .threads = ISLAND_THREADS,
                                           .words = &f,
                                           .word_count = (int)(sizeof f / 8),
                                           .addresses = addresses,
                                           .address_count = 2,
                                           .drawn = &drawn});
}

/* Equal keys are there with a probability of a tenth at most. */
static int key_bits(int64_t n) {
  double count = (double)n;
  return (int)wk__min(64, (int64_t)ceil(log2(count - (6 * count * count + 1) / (12 * log(0.9)))));
}

static wk_status permutation(wk__call *c) {
  wk_tensor *out = c->outputs[0], *sorted[2];
  wk__generator *generator = generator_of(c, last_argument(c));
  int bits = key_bits(wk__numel(out));
  wk_tensor *keys = wk_new_empty(out, out->sizes, 1, bits <= 32 ? WK_INT32 : WK_INT64, NONE);
  wk_value end = wk__v_int(bits <= 32 ? INT32_MAX : INT64_MAX);
  if (!generator) return wk_error_category();
  if (keys) keys = wk_random__from(keys, bits <= 32 ? INT32_MIN : INT64_MIN, end, generator);
  if (keys) keys = wk__in_dtype(keys, WK_INT64);
  if (keys && bits != 32 && bits != 64) keys = wk_bitwise_and_Scalar(keys, wk__v_int((INT64_C(1) << bits) - 1));
  if (!keys) return wk_error_category();
  WK_TRY(wk_sort_stable(keys, wk__v_bool(true), 0, false, sorted));
  WK_TRY(shuffle_islands(generator, sorted[0], sorted[1]));
  return wk__copy_into(out, sorted[1]);
}

wk_status wk__cuda_randperm(wk__call *c) {
  int64_t n = wk__numel(c->outputs[0]);
  if (n == 0) return WK_OK;
  return n > INT32_MAX ? wk__cuda_run_kernel_on_host(c) : wk__cuda_in_scope(c, permutation);
}

/* ---- Bernoulli ---- */

static wk_status check_probability(double p) {
  return p >= 0 && p <= 1 ? WK_OK : wk_fail(WK_RUNTIME_ERROR, "bernoulli_ expects p to be in [0, 1], but got p=%g", p);
}

wk_status wk__cuda_bernoulli_number(wk__call *c) {
  wk__cuda_draws f = {.draw = WK__DRAW_BERNOULLI, .a = number(&c->args[WK__ARG(bernoulli__float, p)])};
  WK_TRY(check_probability(f.a));
  return fill_self(c, f);
}

wk_status wk__cuda_bernoulli_p(wk__call *c) {
  wk__cuda_draws f = {.draw = WK__DRAW_BERNOULLI, .a = number(&c->args[WK__ARG(bernoulli_p, p)])};
  WK_TRY(check_probability(f.a));
  return fill_tensor(generator_of(c, 2), c->outputs[0], f);
}

/* Whether neither tensor crosses dim i with the longer steps, and one crosses j so: PyTorch's kernel takes j first. */
static bool comes_behind(const wk_tensor *t, const wk_tensor *p, int i, int j) {
  const wk_tensor *both[] = {t, p};
  bool longer = false;
  if (wk__size(t, i) == 1 || wk__size(t, j) == 1) return false;
  for (int k = 0; k < 2; k++) {
    int64_t si = wk__stride(both[k], i), sj = wk__stride(both[k], j);
    if (si > sj) return false;
    longer |= si < sj;
  }
  return longer;
}

/* The dims as PyTorch's kernel goes over them. */
static void order_of(const wk_tensor *t, const wk_tensor *p, wk_int *out) {
  int dims[WK_MAX_DIMS];
  for (int i = 0; i < t->ndim; i++) dims[i] = i;
  for (int i = 0; i < t->ndim; i++)
    for (int j = i + 1; j < t->ndim; j++)
      if (comes_behind(t, p, dims[i], dims[j])) {
        int first = dims[i];
        dims[i] = dims[j], dims[j] = first;
      }
  for (int i = 0; i < t->ndim; i++) out[i] = wk_int_of(dims[i]);
}

/* Each by its own probability. */
static wk_status fill_by_tensor(wk__generator *generator, wk_tensor *t, wk_tensor *p) {
  enum { TAKEN = 12 }; /* PyTorch's kernel asks for 10 */
  wk_dtype dtype = t->dtype == WK_FLOAT64 ? WK_FLOAT64 : WK_FLOAT32;
  wk_int dims[WK_MAX_DIMS];
  if (!wk_dtype_is_floating((wk_dtype)p->dtype))
    return wk_fail(WK_RUNTIME_ERROR, "expected probabilities tensor to have floating type, got %s",
                   wk__dtype_legacy((wk_dtype)p->dtype));
  p = wk_expand(wk__in_dtype(p, dtype), t->sizes, t->ndim, false);
  if (!p) return wk_error_category();
  order_of(t, p, dims);
  wk_tensor *to = wk_permute(t, dims, t->ndim), *all = wk_contiguous(wk_permute(p, dims, p->ndim), NULL);
  wk_tensor *made = to && all ? wk_new_empty(all, to->sizes, to->ndim, WK_BOOL, NONE) : NULL;
  if (!made) return wk_error_category();
  wk__cuda_draws f = {.type = wk__cuda_memory_of(dtype), .n = wk__numel(made)};
  f.out = (uint64_t)(uintptr_t)wk__address(made), f.p = (uint64_t)(uintptr_t)wk__address(all);
  WK_TRY(launch_blocks(generator, made, "kernel_bernoulli", &f, wk__ceil_div(f.n, 4 * THREADS), TAKEN));
  return wk__copy_into(to, made);
}

static wk_status bernoulli(wk__call *c) {
  return fill_by_tensor(generator_of(c, last_argument(c)), c->outputs[0], c->args[0].tensor);
}
wk_status wk__cuda_bernoulli(wk__call *c) { return wk__cuda_in_scope(c, bernoulli); }

static wk_status bernoulli_tensor(wk__call *c) {
  WK_TRY(fill_by_tensor(generator_of(c, last_argument(c)), c->args[0].tensor, c->args[1].tensor));
  c->results[0] = wk__v_tensor(wk__retain(c->args[0].tensor));
  return WK_OK;
}
wk_status wk__cuda_bernoulli_tensor(wk__call *c) { return wk__cuda_in_scope(c, bernoulli_tensor); }

/* ---- samples: uniform numbers for draws by weight ---- */

/* out: (rows, samples) f32. PyTorch's kernel gives a row whole blocks of 128 threads, and a call at most 65535 rows at
 * a time. */
wk_status wk__cuda_draw_samples(wk__generator *generator, const wk_tensor *out) {
  enum { ROW_THREADS = 128, MOST_ROWS = 65535 };
  int64_t rows = wk__size(out, 0), samples = wk__size(out, 1), at_a_time = wk__min(rows, MOST_ROWS);
  wk__cuda_draws f = {.out = (uint64_t)(uintptr_t)wk__address(out), .n = rows * samples, .range = (uint64_t)samples};
  if (f.n == 0) return WK_OK;
  f.base = wk__ceil_div(samples, ROW_THREADS) * ROW_THREADS;
  f.stride = (int32_t)at_a_time;
  return launch_blocks(generator, out, "kernel_samples", &f, wk__ceil_div(f.n, THREADS),
                       4 * (uint64_t)((rows - 1) / at_a_time + 1));
}

/* ---- dropout ---- */

/* Elements a thread takes at a time: as many as 16 bytes of the input hold, or half as many, and so on, until the
 * tensor is made of such pieces. */
static int pieces(const wk_tensor *t, size_t itemsize, uint64_t address) {
  int count = (int)(16 / itemsize);
  if (!wk__non_overlapping_and_dense(t)) return 1;
  while (count > 1 && (wk__numel(t) % count || address % ((uint64_t)count * itemsize))) count /= 2;
  return count;
}
static int stride_for(const wk_tensor *x) { return pieces(x, wk__itemsize(x), (uint64_t)(uintptr_t)wk__address(x)); }

/* What f32 numbers have to be less than to be less than p: of a mask for f64 that is double's comparison. */
static double kept_below(double p, size_t itemsize) {
  float near = (float)p;
  return itemsize == 8 && (double)near < p ? (double)nextafterf(near, INFINITY) : p;
}

static wk_status draw_mask_at(wk_tensor *mask, int stride, double kept) {
  wk__cuda_draws f = {.draw = WK__DRAW_BERNOULLI, .a = kept, .type = WK__MEMORY_BOOL, .stride = stride};
  f.out = (uint64_t)(uintptr_t)wk__address(mask);
  f.n = wk__numel(mask);
  return launch(wk__generator_default_of(mask->device), mask, "kernel_mask", &f, 4);
}

/* Single elements are taken in their logical order, pieces in memory's. Nothing is drawn where nothing is kept. */
static wk_status draw_mask(wk_tensor *mask, int stride, double p, size_t itemsize) {
  double kept = kept_below(1 - p, itemsize);
  if (p == 1) return wk__fill_bytes(mask, 0);
  if (stride > 1 || wk__is_contiguous(mask)) return draw_mask_at(mask, stride, kept);
  wk__spec spec;
  wk__spec_contiguous(&spec, WK_BOOL, mask->device, mask->ndim, mask->sizes);
  WK__OWNED drawn = wk__tensor_from_spec(&spec);
  if (!drawn) return wk_error_category();
  WK_TRY(draw_mask_at(drawn, 1, kept));
  return wk__copy_into(mask, drawn);
}

/* Without the input: what it would be taken by, if its memory begins at a piece. */
wk_status wk__cuda_dropout_mask(wk__call *c) {
  WK__ARGS(_dropout_mask);
  wk_tensor *mask = c->outputs[0];
  bool known = c->args[A_of].tag == WK_VALUE_DTYPE;
  size_t itemsize = wk_dtype_size(known ? (wk_dtype)c->args[A_of].dtype : WK_BOOL);
  return draw_mask(mask, pieces(mask, itemsize, 0), number(&c->args[A_p]), itemsize);
}

static bool is_training(const wk__call *c) {
  return c->op == WK__OP(_dropout) || c->args[2].tag != WK_VALUE_BOOL || c->args[2].boolean;
}

/* One kernel draws and multiplies where all of it is in whole pieces of 16 bytes and something may be kept. */
static bool drops_pieces(const wk_tensor *x, const wk_tensor *y, const wk_tensor *mask, double p) {
  bool has_kernel = x->dtype == WK_FLOAT32 || x->dtype == WK_FLOAT16 || x->dtype == WK_BFLOAT16;
  bool aligned = (uintptr_t)wk__address(y) % 16 == 0 && (uintptr_t)wk__address(mask) % 4 == 0;
  bool contiguous = wk__is_contiguous(x) && wk__is_contiguous(y) && wk__is_contiguous(mask);
  return p != 1 && has_kernel && aligned && contiguous && stride_for(x) == (int)(16 / wk__itemsize(x));
}

static wk_status drop_pieces(const wk_tensor *x, const wk_tensor *y, const wk_tensor *mask, double p, double scale) {
  wk__cuda_draws f = {.draw = WK__DRAW_BERNOULLI, .a = 1 - p, .b = scale, .stride = stride_for(x)};
  f.type = wk__cuda_memory_of((wk_dtype)x->dtype);
  f.out = (uint64_t)(uintptr_t)wk__address(mask);
  f.p = (uint64_t)(uintptr_t)wk__address(x);
  f.q = (uint64_t)(uintptr_t)wk__address(y);
  f.n = wk__numel(x);
  return launch(wk__generator_default_of(mask->device), mask, "kernel_dropout", &f, 4);
}

/* x * (mask * scale) */
wk_status wk__cuda_dropout(wk__call *c) {
  wk_tensor *x = c->args[0].tensor, *mask = c->outputs[1];
  double p = number(&c->args[WK__ARG(_dropout, p)]);
  bool training = is_training(c);
  double scale = training ? wk__dropout_scale(c->op, p, x) : 1;
  if (training && drops_pieces(x, c->outputs[0], mask, p)) return drop_pieces(x, c->outputs[0], mask, p, scale);
  if (training)
    WK_TRY(draw_mask(mask, stride_for(x), p, wk__itemsize(x)));
  else
    WK_TRY(wk__fill_bytes(mask, 1));
  if (training && p == 1 && c->op == WK__OP(native_dropout)) return wk__fill_bytes(c->outputs[0], 0);
  wk_value args[] = {c->args[0], wk__v_tensor(mask), wk__v_double(scale)}, result = NONE;
  WK_TRY(wk__compute(WK__OP(native_dropout_backward), args, c->outputs, &result));
  wk_value_release(&result);
  return WK_OK;
}

/* Slopes of what is not positive: drawn for all elements, as PyTorch's kernel does. */
static wk_status draw_slopes(wk__call *c) {
  WK__ARGS(_rrelu_with_noise);
  wk_tensor *x = c->args[A_self].tensor, *below = wk_le_Scalar(x, wk__v_int(0));
  wk_tensor *drawn = below ? wk_new_empty(x, x->sizes, x->ndim, (wk_dtype)x->dtype, NONE) : NULL;
  wk__cuda_draws f = {.draw = WK__DRAW_SLOPE, .a = number(&c->args[A_lower]), .b = number(&c->args[A_upper])};
  if (!drawn) return wk_error_category();
  WK_TRY(fill_tensor(generator_of(c, A_generator), drawn, f));
  wk_tensor *noise = wk_where_ScalarOther(below, drawn, wk__v_int(1));
  wk_tensor *made = noise ? wk_mul(x, noise) : NULL;
  if (!made) return wk_error_category();
  WK_TRY(wk__copy_into(c->outputs[0], made));
  return wk__copy_into(c->outputs[1], noise);
}
wk_status wk__cuda_rrelu(wk__call *c) { return wk__cuda_in_scope(c, draw_slopes); }
