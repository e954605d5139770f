/* Multi-tensor operators: optimizer steps and the list arithmetic around them.
 *
 * In: lists of tensors, one of each kind a parameter, and the step's numbers. Out: the tensors, written in place;
 * nothing is returned. A step is one loop body over param, grad and state, with the numbers as launch parameters; all
 * tensors of a list run in one parallel region. The arithmetic is that of PyTorch's default path (one operator after
 * another on each tensor), with each rounding where that has it for 32 and 64 bit floats; for the small floats there is
 * one rounding at the end instead of one an operator. Bodies are made once for each combination of dtypes and options
 * and kept. Tests: tests/c/test_optim_ops.c, tests/parity/test_optim_parity.py. */
#include <math.h>

#include "loop/launch.h"
#include "ops/internal.h"
#include "ops/many_dims.h"
#include "ops/rules.h"
#include "ops/rules/multi_tensor.h"
#include "wick/operators.h"

enum { MAX_ROLES = 9, MAX_NUMBERS = 8 }; /* tensors of a launch, numbers of a launch */

/* ==================================================== bodies ==================================================== */

typedef enum family { ADAM, SGD, SCALAR_ADD, SCALAR_MUL, TENSOR_MUL } family;

/* What a body depends on besides dtypes. */
enum {
  MAXIMIZE = 1,
  DECAY_GRADIENT = 2,  /* weight decay as part of the gradient */
  DECAY_PARAMETER = 4, /* weight decay on the parameter itself (AdamW) */
  AMSGRAD = 8,
  UNSCALE = 16,  /* the gradient is divided by a number first and stored so */
  FAR_LERP = 32, /* the first moment moves by half or more: counted from the gradient */
  MOMENTUM = 64,
  FIRST_STEP = 128, /* the momentum buffer starts as the gradient */
  NESTEROV = 256,
  UNLESS_FOUND = 512, /* nothing is written where a number of the device says so, which the host does not read */
  SCALE_THERE = 1024, /* so is what the gradient is divided by */
  COUNT_THERE = 2048, /* so are the numbers that depend on how many steps there were */
};

/* Roles: which buffer a tensor of the launch is. */
enum { PARAM = 0, GRAD = 1, AVERAGE = 2, SQUARE = 3, MAX_SQUARE = 4, BUFFER = 2, OTHER = 1 };

/* Behind the others of its kind: those that are numbers on the device; -1: none. */
typedef struct numbers_there {
  int found, scale, step_size, root_correction, roles; /* of all */
} numbers_there;
static numbers_there roles_behind(uint32_t options, int roles) {
  numbers_there n = {-1, -1, -1, -1, roles};
  if (options & UNLESS_FOUND) n.found = n.roles++;
  if (options & SCALE_THERE) n.scale = n.roles++;
  if (options & COUNT_THERE) n.step_size = n.roles++, n.root_correction = n.roles++;
  return n;
}
static int adam_roles(uint32_t options) { return options & AMSGRAD ? 5 : 4; }
static int sgd_roles(uint32_t options) { return options & MOMENTUM ? 3 : 2; }

/* Numbers of a launch. */
enum { STEP_SIZE, ROOT_CORRECTION, MOVE, BETA2, REST2, EPSILON, DECAY, SCALE };        /* Adam */
enum { RATE = STEP_SIZE, MOMENTUM_FACTOR = MOVE, REST_DAMPENING = REST2, FACTOR = 0 }; /* SGD; list arithmetic */

typedef struct body {
  wk__kept_code is; /* first: callers have a pointer to it */
  struct body *next;
  uint64_t key;
} body;

typedef struct writer {
  wk__recorder recorder;
  wk__loop_handler *h;
  wk_dtype compute;
  numbers_there there;
} writer;

static wk__access element_of(int role) {
  return (wk__access){.buffer = (uint8_t)role, .ndim = 1, .index = {wk__loop_i(0)}};
}
static wk__var load(writer *w, int role) {
  wk__access a = element_of(role);
  return wk__k_load_as(w->h, &a, w->compute);
}
static void store(writer *w, int role, wk__var value) {
  wk__access a = element_of(role);
  wk__k_store(w->h, &a, value);
}
static wk__var number(writer *w, int n) { return wk__k_param(w->h, n, w->compute); }
/* Of the launch, or where `role` has it. */
static wk__var number_or(writer *w, int role, int n) { return role < 0 ? number(w, n) : load(w, role); }

/* Of a step: what was there stays where an infinity was found. */
static void put(writer *w, int role, wk__var value) {
  if (w->there.found >= 0) {
    wk__var found = wk__k_eq(w->h, load(w, w->there.found), wk__k_constant(w->h, 1, w->compute));
    value = wk__k_where(w->h, found, load(w, role), value);
  }
  store(w, role, value);
}

/* The gradient as the step sees it. */
static wk__var gradient(writer *w, uint32_t options, wk__var param) {
  wk__var g = load(w, GRAD);
  if (options & UNSCALE) {
    g = wk__k_div(w->h, g, number_or(w, w->there.scale, SCALE));
    put(w, GRAD, g);
  }
  if (options & MAXIMIZE) g = wk__k_neg(w->h, g);
  if (options & DECAY_GRADIENT) g = wk__k_fma(w->h, param, number(w, DECAY), g);
  return g;
}

/* Kingma and Ba, Adam (2015), algorithm 1; Loshchilov and Hutter, Decoupled Weight Decay (2019), algorithm 2; Reddi et
 * al., On the Convergence of Adam (2018), algorithm 2:
 *   m += (1 - beta1) (g - m),  v = beta2 v + (1 - beta2) g g,  p += -step m / (sqrt(v) / sqrt(1 - beta2^t) + eps) */
static void write_adam(writer *w, uint32_t options) {
  wk__loop_handler *h = w->h;
  wk__var p = load(w, PARAM);
  if (options & DECAY_PARAMETER) p = wk__k_mul(h, p, number(w, DECAY));
  wk__var g = gradient(w, options, p), m = load(w, AVERAGE), v = load(w, SQUARE);
  wk__var move = number(w, MOVE), far = wk__k_constant(h, 1, w->compute);
  m = options & FAR_LERP ? wk__k_fma(h, wk__k_sub(h, move, far), wk__k_sub(h, g, m), g)
                         : wk__k_fma(h, move, wk__k_sub(h, g, m), m);
  v = wk__k_fma(h, wk__k_mul(h, number(w, REST2), g), g, wk__k_mul(h, v, number(w, BETA2)));
  put(w, AVERAGE, m);
  put(w, SQUARE, v);
  if (options & AMSGRAD) {
    v = wk__k_max(h, load(w, MAX_SQUARE), v);
    put(w, MAX_SQUARE, v);
  }
  wk__var root = wk__k_div(h, wk__k_sqrt(h, v), number_or(w, w->there.root_correction, ROOT_CORRECTION));
  wk__var denominator = wk__k_add(h, root, number(w, EPSILON));
  wk__var size = number_or(w, w->there.step_size, STEP_SIZE);
  put(w, PARAM, wk__k_add(h, p, wk__k_div(h, wk__k_mul(h, size, m), denominator)));
}

/* b = momentum b + (1 - dampening) g,  p += -rate b  (Nesterov: g + momentum b in place of b) */
static void write_sgd(writer *w, uint32_t options) {
  wk__loop_handler *h = w->h;
  wk__var p = load(w, PARAM), g = gradient(w, options, p);
  if (options & MOMENTUM) {
    wk__var b = g;
    if (!(options & FIRST_STEP)) {
      b = wk__k_mul(h, load(w, BUFFER), number(w, MOMENTUM_FACTOR));
      b = wk__k_fma(h, g, number(w, REST_DAMPENING), b);
    }
    put(w, BUFFER, b);
    g = options & NESTEROV ? wk__k_fma(h, b, number(w, MOMENTUM_FACTOR), g) : b;
  }
  put(w, PARAM, wk__k_fma(h, g, number(w, RATE), p));
}

static void write_body(writer *w, family kind, uint32_t options) {
  w->there = roles_behind(options, kind == ADAM ? adam_roles(options) : sgd_roles(options));
  switch (kind) {
    case ADAM:
      write_adam(w, options);
      break;
    case SGD:
      write_sgd(w, options);
      break;
    case SCALAR_ADD:
      store(w, PARAM, wk__k_add(w->h, load(w, PARAM), number(w, FACTOR)));
      break;
    case SCALAR_MUL:
      store(w, PARAM, wk__k_mul(w->h, load(w, PARAM), number(w, FACTOR)));
      break;
    case TENSOR_MUL:
      store(w, PARAM, wk__k_mul(w->h, load(w, PARAM), load(w, OTHER)));
      break;
  }
}

/* ---- making and keeping them ---- */

static body *_Atomic bodies; /* newest first; pushed without a lock, making one twice is harmless */

static void release_body(body *b) {
  if (b->is.code) b->is.device->release_code(b->is.code);
  wk__nest_release(b->is.nest);
  wk__free(b);
}

/* The tensors of one launch. */
typedef struct row {
  int roles;
  wk_tensor *tensors[MAX_ROLES]; /* by role, borrowed */
} row;

static uint64_t key_of(family kind, uint32_t options, const row *r) {
  uint64_t key = (uint64_t)kind << 12 | options;
  key = key << 3 | r->tensors[PARAM]->device.type;
  for (int i = 0; i < r->roles; i++) key = key << 5 | (uint64_t)(r->tensors[i]->dtype + 1);
  return key;
}

static const char *const names[] = {"adam", "sgd", "add", "mul", "mul"}; /* of families */

static wk_status build(wk__kept_code *b, family kind, uint32_t options, const row *r) {
  writer w = {.compute = (wk_dtype)wk__dtypes[r->tensors[PARAM]->dtype].compute};
  if (w.compute == WK_DTYPE_NONE)
    return wk_fail(WK_NOT_IMPLEMENTED, "multi-tensor operators are not implemented for '%s'",
                   wk__dtype_legacy((wk_dtype)r->tensors[PARAM]->dtype));
  if (!(b->nest = wk__nest_create())) return WK_OUT_OF_MEMORY;
  b->nest->geometry_free = true;
  b->nest->pointwise_dims = 1;
  b->nest->sizes[0] = wk_int_buffer_size(PARAM, 0);
  for (int i = 0; i < r->roles; i++)
    b->nest->buffers[b->nest->buffer_count++] = (wk__nest_buffer){.dtype = r->tensors[i]->dtype, .ndim = 1};
  wk__recorder_init(&w.recorder, b->nest);
  w.h = &w.recorder.handler;
  write_body(&w, kind, options);
  b->name = names[kind];
  WK_TRY(w.h->status);
#ifdef WICK_DEBUG
  WK_TRY(wk__nest_verify(b->nest));
#endif
  b->device = wk__device_types[r->tensors[PARAM]->device.type];
  b->code = b->device->build(b->nest);
  return b->code ? WK_OK : wk_error_category();
}

static body *find_body(family kind, uint32_t options, const row *r) {
  uint64_t key = key_of(kind, options, r);
  for (body *b = atomic_load_explicit(&bodies, memory_order_acquire); b; b = b->next)
    if (b->key == key) return b;
  body *made = wk__alloc_zeroed(sizeof *made);
  if (!made) return NULL;
  made->key = key;
  if (build(&made->is, kind, options, r) != WK_OK) {
    release_body(made);
    return NULL;
  }
  made->next = atomic_load(&bodies);
  while (!atomic_compare_exchange_weak(&bodies, &made->next, made)) continue;
  return made;
}

/* ================================================== launching =================================================== */

/* A list operator while it runs: `row_of` and `numbers_of` say what each launch is made of. */
typedef struct step {
  const wk__call *call;
  family kind;
  uint32_t options;
  int64_t count;
  void (*row_of)(const struct step *s, int64_t i, row *r);
  wk_status (*numbers_of)(const struct step *s, int64_t i, double *numbers);
  uint32_t written;                         /* bit r: role r is written */
  wk_tensor *found, *scale;                 /* numbers on the device; borrowed, or NULL */
  wk_tensor *step_sizes, *root_corrections; /* one for each tensor, in f64; of the caller's scope, or NULL */
} step;

/* What a launch points to. */
typedef struct launch_data {
  wk__scalar numbers[MAX_NUMBERS];
  int64_t line, strides[MAX_ROLES][WK__NEST_MAX_DIMS];
} launch_data;

static wk_status check_row(const row *r) {
  const wk_tensor *p = r->tensors[PARAM];
  for (int i = 1; i < r->roles; i++) {
    const wk_tensor *t = r->tensors[i];
    if (!wk__device_equal(p->device, t->device)) return wk__loop_devices_differ(p->device, t->device);
    if (t->ndim == 0 || wk__same_sizes(p, t)) continue;
    return wk_fail(WK_RUNTIME_ERROR, "params, grads and state tensors must have the same size");
  }
  return WK_OK;
}

/* One loop over memory serves all tensors of the launch: they lie alike and without gaps. */
static bool is_line(const row *r) {
  const wk_tensor *p = r->tensors[PARAM];
  bool alike = true, contiguous = true;
  for (int i = 0; i < r->roles; i++) {
    const wk_tensor *t = r->tensors[i];
    if (t->ndim == 0) continue; /* one element, of stride 0 */
    contiguous &= wk__is_contiguous(t);
    alike &= t->ndim == p->ndim && memcmp(t->strides, p->strides, p->ndim * sizeof *p->strides) == 0;
  }
  return contiguous || (alike && wk__non_overlapping_and_dense(p));
}

static void bind(const row *r, wk__launch *l, launch_data *d) {
  const wk_tensor *p = r->tensors[PARAM];
  bool line = is_line(r);
  d->line = wk__numel(p);
  l->params = d->numbers;
  l->ndim = line ? 1 : p->ndim;
  l->sizes = line ? &d->line : &p->sizes->bits;
  for (int i = 0; i < r->roles; i++) {
    const wk_tensor *t = r->tensors[i];
    for (int k = 0; k < l->ndim; k++) d->strides[i][k] = t->ndim == 0 ? 0 : line ? 1 : wk__stride(t, k);
    l->buffers[i] = (wk__launch_buffer){.data = wk__address(t), .strides = d->strides[i]};
  }
}

/* Tensors of more dims than a nest, which lie in different orders. */
static bool has_many_dims(const row *r) { return r->tensors[PARAM]->ndim > WK__NEST_MAX_DIMS && !is_line(r); }

static wk_status launch_many_dims(const row *r, const body *b, const launch_data *d) {
  const wk_tensor *p = r->tensors[PARAM];
  wk__launch l = {.params = d->numbers};
  wk__loops loops = {.ndim = p->ndim, .count = r->roles};
  for (int k = 0; k < p->ndim; k++) loops.sizes[k] = wk__size(p, k);
  for (int i = 0; i < r->roles; i++) {
    l.buffers[i].data = wk__address(r->tensors[i]);
    for (int k = 0; k < r->tensors[i]->ndim; k++) loops.strides[i][k] = wk__stride(r->tensors[i], k);
  }
  return wk__launch_many(&(wk__many_code){b->is.device, b->is.code, b->is.nest}, wk__stream_of(p->device), &l, &loops,
                         PARAM);
}

static void bump_versions(const row *r, uint32_t written) {
  for (int i = 0; i < r->roles; i++)
    if (written >> i & 1) wk__version_bump(r->tensors[i]);
}

/* Launches of all rows from `first` on that share the first one's body; the others are left for another round. */
static wk_status run_alike(const step *s, bool *done, int64_t first, wk__launch *launches, launch_data *data) {
  row r;
  int64_t n = 0;
  wk__stream *launched_on = NULL;
  s->row_of(s, first, &r);
  const body *b = find_body(s->kind, s->options, &r);
  if (!b) return wk_error_category();
  for (int64_t i = first; i < s->count; i++) {
    double numbers[MAX_NUMBERS] = {0};
    s->row_of(s, i, &r);
    if (done[i] || key_of(s->kind, s->options, &r) != b->key) continue;
    done[i] = true;
    WK_TRY(check_row(&r));
    if (!r.tensors[PARAM]->storage || wk__numel(r.tensors[PARAM]) == 0) continue;
    WK_TRY(s->numbers_of(s, i, numbers));
    for (int k = 0; k < MAX_NUMBERS; k++) data[n].numbers[k] = (wk__scalar){WK__FLOAT_KIND, .d = numbers[k]};
    bump_versions(&r, s->written);
    if (WK_UNLIKELY(has_many_dims(&r))) {
      WK_TRY(launch_many_dims(&r, b, &data[n]));
      continue;
    }
    bind(&r, &launches[n], &data[n]);
    launched_on = wk__stream_of(r.tensors[PARAM]->device);
    n++;
  }
  return n ? b->is.device->launch(launched_on, b->is.code, launches, n) : WK_OK;
}

static wk_status run(const step *s) {
  size_t n = (size_t)s->count;
  char *memory = wk__alloc(n * (sizeof(wk__launch) + sizeof(launch_data) + sizeof(bool)) + 1);
  if (!memory) return WK_OUT_OF_MEMORY;
  wk__launch *launches = (wk__launch *)memory;
  launch_data *data = (launch_data *)(launches + n);
  bool *done = (bool *)(data + n);
  wk_status status = WK_OK;
  memset(done, 0, n * sizeof *done);
  for (int64_t i = 0; i < s->count && status == WK_OK; i++)
    if (!done[i]) status = run_alike(s, done, i, launches, data);
  wk__free(memory);
  return status;
}

/* ================================================= Adam and SGD ================================================= */

static double argument(const wk__call *c, int i) { return wk__scalar_double(wk__value_scalar(&c->args[i])); }
static wk_tensor *item(const wk__call *c, int arg, int64_t i) { return c->args[arg].tensors[i]; }

static wk_status same_length(const wk__call *c, int arg) {
  if (c->args[arg].count == c->args[0].count) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "Tensor lists must have the same number of tensors, got %u and %u", c->args[0].count,
                 c->args[arg].count);
}

static wk_status tensor_number(const wk_tensor *t, double *out) {
  *out = 0;
  return t->storage ? wk_tensor_item(t, out) : WK_OK;
}

/* Whether a number lies on another device than the host, beside all parameters: it is not waited for. */
static bool is_beside(const wk__call *c, const wk_tensor *t) {
  if (t->device.type == WK_CPU || t->ndim || !t->storage) return false;
  for (uint32_t i = 0; i < c->args[0].count; i++)
    if (!wk__device_equal(t->device, item(c, 0, i)->device)) return false;
  return true;
}
static wk_tensor *number_there(const wk__call *c, int arg) {
  wk_tensor *t = wk__arg_is_none(c, arg) ? NULL : c->args[arg].tensor;
  return t && is_beside(c, t) ? t : NULL;
}

static void take_numbers_there(step *s, int scale_arg) {
  if ((s->scale = number_there(s->call, scale_arg))) s->options |= SCALE_THERE;
  if ((s->found = number_there(s->call, scale_arg + 1))) s->options |= UNLESS_FOUND;
}

static void add_numbers_there(const step *s, int64_t i, row *r) {
  numbers_there n = roles_behind(s->options, r->roles);
  r->roles = n.roles;
  if (n.found >= 0) r->tensors[n.found] = s->found;
  if (n.scale >= 0) r->tensors[n.scale] = s->scale;
  if (n.step_size < 0) return;
  r->tensors[n.step_size] = wk_select_int(s->step_sizes, 0, wk_int_of(i));
  r->tensors[n.root_correction] = wk_select_int(s->root_corrections, 0, wk_int_of(i));
}

/* An infinity was found in the gradients: the whole step is left out. */
static wk_status should_skip(const step *s, int found_arg, bool *out_skip) {
  double found = 0;
  if (!s->found && !wk__arg_is_none(s->call, found_arg)) WK_TRY(tensor_number(s->call->args[found_arg].tensor, &found));
  *out_skip = found == 1;
  return WK_OK;
}

static wk_status gradient_scale(const step *s, int scale_arg, double *out) {
  *out = 1;
  return s->scale || wk__arg_is_none(s->call, scale_arg) ? WK_OK : tensor_number(s->call->args[scale_arg].tensor, out);
}

/* Arguments of _fused_adam_ and _fused_adamw_. */
enum {
  ADAM_SELF,
  ADAM_GRADS,
  ADAM_AVERAGES,
  ADAM_SQUARES,
  ADAM_MAX_SQUARES,
  ADAM_STEPS,
  ADAM_LR,
  ADAM_BETA1,
  ADAM_BETA2,
  ADAM_DECAY,
  ADAM_EPS,
  ADAM_AMSGRAD,
  ADAM_MAXIMIZE,
  ADAM_SCALE,
  ADAM_FOUND_INF,
};

static void adam_row(const step *s, int64_t i, row *r) {
  bool amsgrad = s->options & AMSGRAD;
  *r = (row){.roles = adam_roles(s->options),
             .tensors = {item(s->call, ADAM_SELF, i), item(s->call, ADAM_GRADS, i), item(s->call, ADAM_AVERAGES, i),
                         item(s->call, ADAM_SQUARES, i), amsgrad ? item(s->call, ADAM_MAX_SQUARES, i) : NULL}};
  add_numbers_there(s, i, r);
}

static bool counts_there(const wk__call *c) {
  uint32_t count = c->args[ADAM_STEPS].count;
  if (count == 0 || !is_beside(c, item(c, ADAM_STEPS, 0))) return false;
  for (uint32_t i = 1; i < count; i++) {
    const wk_tensor *t = item(c, ADAM_STEPS, i);
    if (t->ndim || !t->storage || !wk__device_equal(t->device, item(c, 0, 0)->device)) return false;
  }
  return true;
}

static wk_status no_numbers(const step *s, int64_t i, double *numbers) {
  (void)s, (void)i, (void)numbers;
  return WK_OK;
}

static void counted_row(const step *s, int64_t i, row *r) {
  *r = (row){.roles = 2, .tensors = {wk_select_int(s->step_sizes, 0, wk_int_of(i)), item(s->call, ADAM_STEPS, i)}};
}

/* The counts beside each other, by one launch for all: times one. */
static wk_tensor *gather_counts(const wk__call *c, int64_t count) {
  wk_tensor *first = item(c, ADAM_STEPS, 0);
  wk_int size = wk_int_of(count);
  wk_tensor *counts = wk_new_full(first, &size, 1, wk__v_int(1), WK_DTYPE_NONE, (wk_value){0});
  step s = {.call = c,
            .kind = TENSOR_MUL,
            .count = count,
            .row_of = counted_row,
            .numbers_of = no_numbers,
            .written = 1u << PARAM,
            .step_sizes = counts};
  return counts && run(&s) == WK_OK ? counts : NULL;
}

/* 1 - beta^t */
static wk_tensor *rest_of(double beta, wk_tensor *t) {
  return wk_rsub_Scalar(wk_pow_Scalar(wk__v_double(beta), t), wk__v_int(1), wk__v_int(1));
}

/* The numbers of adam_numbers that depend on counts of the device, in double as there. */
static wk_status find_corrections(step *s) {
  const wk__call *c = s->call;
  wk_tensor *t = wk__in_dtype(gather_counts(c, s->count), WK_FLOAT64);
  if (!t) return wk_error_category();
  wk_tensor *rate = wk_add_Scalar(wk_mul_Scalar(t, wk__v_int(0)), wk__v_double(-argument(c, ADAM_LR)), wk__v_int(1));
  s->step_sizes = wk_div(rate, rest_of(argument(c, ADAM_BETA1), t));
  s->root_corrections = wk_sqrt(rest_of(argument(c, ADAM_BETA2), t));
  return s->step_sizes && s->root_corrections ? WK_OK : wk_error_category();
}

static wk_status adam_numbers(const step *s, int64_t i, double *n) {
  const wk__call *c = s->call;
  double lr = argument(c, ADAM_LR), beta1 = argument(c, ADAM_BETA1), beta2 = argument(c, ADAM_BETA2), t;
  double decay = argument(c, ADAM_DECAY);
  if (!(s->options & COUNT_THERE)) {
    WK_TRY(tensor_number(item(c, ADAM_STEPS, i), &t));
    n[STEP_SIZE] = -(lr / (1 - pow(beta1, t)));
    n[ROOT_CORRECTION] = sqrt(1 - pow(beta2, t));
  }
  n[MOVE] = 1 - beta1;
  n[BETA2] = beta2;
  n[REST2] = 1 - beta2;
  n[EPSILON] = argument(c, ADAM_EPS);
  n[DECAY] = s->options & DECAY_PARAMETER ? 1 - lr * decay : decay;
  return gradient_scale(s, ADAM_SCALE, &n[SCALE]);
}

static wk_status describe_adam(const wk__call *c, step *s) {
  bool decoupled = c->op == WK__OP(_fused_adamw_), amsgrad = wk__arg_bool(c, ADAM_AMSGRAD);
  *s = (step){
      .call = c, .kind = ADAM, .count = c->args[ADAM_SELF].count, .row_of = adam_row, .numbers_of = adam_numbers};
  for (int list = ADAM_GRADS; list <= ADAM_STEPS; list++)
    if (list != ADAM_MAX_SQUARES || amsgrad) WK_TRY(same_length(c, list));
  if (argument(c, ADAM_DECAY) != 0) s->options |= decoupled ? DECAY_PARAMETER : DECAY_GRADIENT;
  if (amsgrad) s->options |= AMSGRAD;
  if (wk__arg_bool(c, ADAM_MAXIMIZE)) s->options |= MAXIMIZE;
  if (!wk__arg_is_none(c, ADAM_SCALE)) s->options |= UNSCALE;
  if (1 - argument(c, ADAM_BETA1) >= 0.5) s->options |= FAR_LERP;
  take_numbers_there(s, ADAM_SCALE);
  if (counts_there(c)) s->options |= COUNT_THERE;
  s->written = 1u << PARAM | 1u << AVERAGE | 1u << SQUARE | 1u << MAX_SQUARE | (s->options & UNSCALE ? 1u << GRAD : 0);
  return WK_OK;
}

wk_status wk__routine_fused_adam(wk__call *c) {
  step s;
  bool skip;
  wk_scope scope;
  WK_TRY(describe_adam(c, &s));
  WK_TRY(should_skip(&s, ADAM_FOUND_INF, &skip));
  if (skip) return WK_OK;
  if (!(s.options & COUNT_THERE)) return run(&s);
  wk_scope_begin(&scope);
  wk_status status = find_corrections(&s);
  if (status == WK_OK) status = run(&s);
  wk_scope_end(&scope);
  return status;
}

/* Arguments of _fused_sgd_. */
enum {
  SGD_SELF,
  SGD_GRADS,
  SGD_BUFFERS,
  SGD_DECAY,
  SGD_MOMENTUM,
  SGD_LR,
  SGD_DAMPENING,
  SGD_NESTEROV,
  SGD_MAXIMIZE,
  SGD_FIRST,
  SGD_SCALE,
  SGD_FOUND_INF,
};

static void sgd_row(const step *s, int64_t i, row *r) {
  bool momentum = s->options & MOMENTUM;
  *r = (row){.roles = sgd_roles(s->options),
             .tensors = {item(s->call, SGD_SELF, i), item(s->call, SGD_GRADS, i),
                         momentum ? item(s->call, SGD_BUFFERS, i) : NULL}};
  add_numbers_there(s, i, r);
}

static wk_status sgd_numbers(const step *s, int64_t i, double *n) {
  const wk__call *c = s->call;
  (void)i;
  n[RATE] = -argument(c, SGD_LR);
  n[MOMENTUM_FACTOR] = argument(c, SGD_MOMENTUM);
  n[REST_DAMPENING] = 1 - argument(c, SGD_DAMPENING);
  n[DECAY] = argument(c, SGD_DECAY);
  return gradient_scale(s, SGD_SCALE, &n[SCALE]);
}

static wk_status describe_sgd(const wk__call *c, step *s) {
  *s = (step){.call = c, .kind = SGD, .count = c->args[SGD_SELF].count, .row_of = sgd_row, .numbers_of = sgd_numbers};
  if (argument(c, SGD_MOMENTUM) != 0) s->options |= MOMENTUM;
  WK_TRY(same_length(c, SGD_GRADS));
  if (s->options & MOMENTUM) WK_TRY(same_length(c, SGD_BUFFERS));
  if (argument(c, SGD_DECAY) != 0) s->options |= DECAY_GRADIENT;
  if (wk__arg_bool(c, SGD_MAXIMIZE)) s->options |= MAXIMIZE;
  if (wk__arg_bool(c, SGD_NESTEROV)) s->options |= NESTEROV;
  if (wk__arg_bool(c, SGD_FIRST)) s->options |= FIRST_STEP;
  take_numbers_there(s, SGD_SCALE);
  if (!wk__arg_is_none(c, SGD_SCALE)) s->options |= UNSCALE;
  s->written = 1u << PARAM | 1u << BUFFER | (s->options & UNSCALE ? 1u << GRAD : 0);
  return WK_OK;
}

wk_status wk__routine_fused_sgd(wk__call *c) {
  step s;
  bool skip;
  WK_TRY(describe_sgd(c, &s));
  WK_TRY(should_skip(&s, SGD_FOUND_INF, &skip));
  return skip ? WK_OK : run(&s);
}

/* ---- their bodies, for native code ---- */

static bool is_optimizer(const wk_op *op) {
  return op == WK__OP(_fused_adam_) || op == WK__OP(_fused_adamw_) || op == WK__OP(_fused_sgd_);
}

/* One that cannot be described fails when it is called. Bodies with numbers of the device are found then. */
int wk__multi_tensor_bodies(const wk_op *op, const wk_value *args, wk__kept_code **out, int most) {
  const wk__call call = {.op = op, .args = args};
  step s = {0};
  int count = 0;
  if (!is_optimizer(op)) return 0;
  bool fails = (op == WK__OP(_fused_sgd_) ? describe_sgd : describe_adam)(&call, &s) != WK_OK;
  fails |= (s.options & (UNLESS_FOUND | SCALE_THERE | COUNT_THERE)) != 0;
  for (int64_t i = 0; i < s.count && !fails && count < most; i++) {
    row r;
    s.row_of(&s, i, &r);
    body *b = find_body(s.kind, s.options, &r);
    int same = 0;
    while (same < count && out[same] != &b->is) same++;
    fails = !b;
    if (b && same == count) out[count++] = &b->is;
  }
  if (fails) wk_error_clear();
  return count;
}

/* ================================================ list arithmetic =============================================== */

static void self_row(const step *s, int64_t i, row *r) { *r = (row){.roles = 1, .tensors = {item(s->call, 0, i)}}; }
static void self_and_other_row(const step *s, int64_t i, row *r) {
  *r = (row){.roles = 2, .tensors = {item(s->call, 0, i), s->call->args[1].tensor}};
}
static wk_status factor(const step *s, int64_t i, double *numbers) {
  (void)i;
  numbers[FACTOR] = argument(s->call, 1);
  return WK_OK;
}

static wk_status on_list(const wk__call *c, family kind) {
  step s = {.call = c,
            .kind = kind,
            .count = c->args[0].count,
            .row_of = self_row,
            .numbers_of = factor,
            .written = 1u << PARAM};
  return run(&s);
}
wk_status wk__routine_foreach_add_scalar(wk__call *c) { return on_list(c, SCALAR_ADD); }
wk_status wk__routine_foreach_mul_scalar(wk__call *c) { return on_list(c, SCALAR_MUL); }

wk_status wk__routine_foreach_mul_tensor(wk__call *c) {
  const wk_tensor *other = c->args[WK__ARG(_foreach_mul__Tensor, other)].tensor;
  if (other->ndim != 0)
    return wk_fail(WK_RUNTIME_ERROR, "scalar tensor expected to be 0 dim but it has %d dimensions and %lld elements.",
                   other->ndim, (long long)wk__numel(other));
  step s = {.call = c,
            .kind = TENSOR_MUL,
            .count = c->args[WK__ARG(_foreach_mul__Tensor, self)].count,
            .row_of = self_and_other_row,
            .numbers_of = no_numbers,
            .written = 1u << PARAM};
  return run(&s);
}

/* An operator on two tensors, on each pair of two lists, with the arguments behind them; what it gives goes into the
 * first. Dtypes and sizes of a pair may differ as they may in place. */
static wk_status on_pairs(const wk__call *c, const wk_op *op) {
  WK_TRY(same_length(c, 1));
  for (uint32_t i = 0; i < c->args[0].count; i++) {
    wk_value args[WK__MAX_ARGS] = {wk__v_tensor(item(c, 0, i)), wk__v_tensor(item(c, 1, i))}, result = {0};
    for (int k = 2; k < c->op->schema.parameter_count; k++) args[k] = c->args[k];
    wk_tensor *destination = op->tags & WK__TAG_MUTATES ? NULL : args[0].tensor;
    WK_TRY(wk__compute(op, args, destination ? &destination : NULL, &result));
    wk_value_release(&result);
  }
  return WK_OK;
}
wk_status wk__routine_foreach_add_list(wk__call *c) { return on_pairs(c, WK__OP(add_Tensor)); }
wk_status wk__routine_foreach_sub_list(wk__call *c) { return on_pairs(c, WK__OP(sub_Tensor)); }
wk_status wk__routine_foreach_mul_list(wk__call *c) { return on_pairs(c, WK__OP(mul_Tensor)); }
wk_status wk__routine_foreach_div_list(wk__call *c) { return on_pairs(c, WK__OP(div_Tensor)); }
wk_status wk__routine_foreach_lerp_list(wk__call *c) { return on_pairs(c, WK__OP(lerp_Scalar)); }
wk_status wk__routine_foreach_copy(wk__call *c) { return on_pairs(c, WK__OP(copy_)); }

/* The norm of each tensor; every one is a reduction of its own, large ones shared among threads. */
wk_status wk__compose_foreach_norm(wk__call *c) {
  WK__ARGS(_foreach_norm_Scalar);
  const wk_value *list = &c->args[A_self];
  wk_tensor **norms = wk__alloc((list->count + 1) * sizeof *norms);
  if (!norms) return WK_OUT_OF_MEMORY;
  c->results[0] = (wk_value){.tag = WK_VALUE_TENSORS, .count = 0, .tensors = norms};
  for (uint32_t i = 0; i < list->count; i++) {
    wk_value norm = {0}, args[] = {wk__v_tensor(list->tensors[i]), c->args[A_ord], {0}, {0}, c->args[A_dtype]};
    wk_status status = wk_call(WK__OP(linalg_vector_norm), args, NULL, &norm);
    if (status) {
      wk_value_release(&c->results[0]);
      return status;
    }
    norms[c->results[0].count++] = norm.tensor;
  }
  return WK_OK;
}
