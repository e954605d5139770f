/* _fused_attention and its backward on the device: kernels written for the kind of call (codegen/ptx_attention.h), made
 * by the driver at their first use and kept, or cuDNN's where these are faster (cudnn_attention.h).
 *
 * In: operands of any strides; rows that are not of 16-byte pieces are copied first. Tests:
 * tests/cuda/test_attention.py. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda/attention.h"
#include "cuda/cudnn_attention.h"
#include "cuda/kernels.h"
#include "ops/internal.h"
#include "ops/rules.h"
#include "random/generator.h"
#include "wick/operators.h"

typedef wk__cuda_attention attention;

/* ---- kernels ---- */

wk_status wk__cuda_attention_write(const wk__ptx_attention *kind, const wk__ptx_score_bodies *bodies, char **out_text,
                                   wk__cuda_written *out) {
  wk__ptx_attention_kernel written;
  WK_TRY(wk__ptx_write_attention(kind, bodies, &written));
  *out_text = written.text;
  *out = (wk__cuda_written){
      .threads = written.threads, .shared = written.shared, .rows = written.rows, .parts = written.parts};
  return WK_OK;
}

static wk_status write(const void *kind, char **out_text, wk__cuda_written *out) {
  return wk__cuda_attention_write(kind, NULL, out_text, out);
}

static wk_status find_plain(const attention *a, const wk__cuda_written **out) {
  return wk__cuda_find_written(a->stream->device, &a->kind, sizeof a->kind, write, out);
}

/* Products of small floats from sm_80 on, and the shared memory of the largest kind. */
bool wk__cuda_fuses_attention(wk_device device) {
  enum { MOST_SHARED = 192 << 10, CAPABILITY = 80 };
  const wk__cuda_device *d = wk__device_resolve(&device) == WK_OK ? wk__cuda_device_get(device.index) : NULL;
  if (!d) wk_error_clear();
  return d && d->capability >= CAPABILITY && d->shared_most >= MOST_SHARED;
}

/* ---- arguments ---- */

/* Rows of 16-byte pieces: the tensor, or a copy that the scope owns. */
wk_tensor *wk__cuda_attention_rows(wk_tensor *t) {
  bool fits = wk__size(t, 3) <= 1 || wk__stride(t, 3) == 1;
  for (int d = 0; d < 3; d++) fits &= wk__size(t, d) <= 1 || wk__stride(t, d) * wk__itemsize(t) % 16 == 0;
  return fits && (uintptr_t)wk__address(t) % 16 == 0 ? t : wk_clone(t, "contiguous_format");
}

void wk__cuda_attention_set(attention *a, int arg, const wk_tensor *t) {
  a->args[arg] = (int64_t)(uintptr_t)wk__address(t);
  for (int d = 0; d < 3; d++) a->args[arg + 1 + d] = wk__size(t, d) <= 1 ? 0 : wk__stride(t, d) * wk__itemsize(t);
}

static void set_mask(attention *a, const wk_tensor *mask) {
  if (!mask) return;
  a->kind.mask = mask->dtype == WK_BOOL      ? WK__PTX_MASK_BOOL
                 : mask->dtype == WK_FLOAT32 ? WK__PTX_MASK_F32
                                             : WK__PTX_MASK_SMALL;
  a->args[WK__ATTENTION_MASK] = (int64_t)(uintptr_t)wk__address(mask);
  for (int n = 0; n < 4; n++) {
    int d = mask->ndim - 4 + n;
    bool moves = d >= 0 && wk__size(mask, d) != 1;
    a->args[WK__ATTENTION_MASK + 1 + n] = moves ? wk__stride(mask, d) * wk__itemsize(mask) : 0;
  }
}

int64_t wk__cuda_float_bits(float value) {
  union {
    float f;
    uint32_t bits;
  } u = {value};
  return u.bits;
}

/* A word w is kept where fma(w, 2^-32, 2^-33) < 1 - p, as dropout's mask has it: those below the least that is not. */
static uint32_t least_dropped(double p) {
  float kept = (float)(1 - p);
  uint64_t low = 0, high = UINT64_C(1) << 32;
  while (low < high) {
    uint64_t middle = (low + high) / 2;
    if (fmaf((float)(uint32_t)middle, 0x1p-32f, 0x1p-33f) < kept)
      low = middle + 1;
    else
      high = middle;
  }
  return (uint32_t)wk__min((int64_t)low, (int64_t)UINT32_MAX);
}

static void set_dropout(attention *a, double p, const wk_tensor *state, int64_t threads) {
  if (p == 0) return;
  a->kind.dropout = true;
  a->args[WK__ATTENTION_DRAW] = (int64_t)(uintptr_t)wk__address(state);
  a->args[WK__ATTENTION_THREADS] = threads;
  a->args[WK__ATTENTION_RECIPROCAL] = (INT64_C(1) << 32) / threads;
  a->args[WK__ATTENTION_LEAST] = least_dropped(p);
  a->args[WK__ATTENTION_KEPT] = wk__cuda_float_bits(1.0f / (float)(1 - p));
}

void wk__cuda_attention_begin(attention *a, const wk_tensor *q, const wk_tensor *k, const wk_tensor *v, bool causal,
                              const wk_value *scale) {
  double factor = wk__value_is_real(scale) ? scale->number : 1 / sqrt((double)wk__size(q, 3));
  *a = (attention){.find = find_plain,
                   .arg_count = WK__ATTENTION_ARGS,
                   .stream = wk__cuda_stream_of(wk__stream_of(q->device)),
                   .batch = wk__size(q, 0),
                   .heads = wk__size(q, 1),
                   .key_heads = wk__size(k, 1),
                   .queries = wk__size(q, 2),
                   .keys = wk__size(k, 2)};
  bool groups = wk__dtype_is_small_float(q->dtype) && wk__size(q, 3) <= 128 && wk__size(v, 3) <= 128;
  a->kind = (wk__ptx_attention){.dtype = q->dtype,
                                .causal = causal,
                                .capability = (uint8_t)a->stream->device->capability,
                                .warpgroups = groups && wk__cuda_has_warpgroups(a->stream->device),
                                .tf32 = q->dtype == WK_FLOAT32 && wk__cuda_switches.products_tf32,
                                .size = (uint16_t)wk__size(q, 3),
                                .value_size = (uint16_t)wk__size(v, 3)};
  a->args[WK__ATTENTION_HEADS] = a->heads;
  a->args[WK__ATTENTION_GROUP] = a->heads / wk__max(a->key_heads, 1);
  a->args[WK__ATTENTION_T] = a->queries, a->args[WK__ATTENTION_S] = a->keys;
  a->args[WK__ATTENTION_SCALE] = wk__cuda_float_bits((float)factor);
}

/* ---- launches ---- */

static int addresses_of(const attention *a, wk__cuda_address *out) {
  static const int are_addresses[] = {
      WK__ATTENTION_Q,      WK__ATTENTION_K,    WK__ATTENTION_V,     WK__ATTENTION_OUT,     WK__ATTENTION_DOUT,
      WK__ATTENTION_DQ,     WK__ATTENTION_DK,   WK__ATTENTION_DV,    WK__ATTENTION_MASK,    WK__ATTENTION_LOGARITHMS,
      WK__ATTENTION_DELTAS, WK__ATTENTION_DRAW, WK__ATTENTION_TABLE, WK__ATTENTION_LARGEST,
  };
  int count = a->address_count;
  memcpy(out, a->addresses, (size_t)count * sizeof *out);
  for (size_t i = 0; i < WK_COUNT(are_addresses); i++) {
    uint64_t address = (uint64_t)a->args[are_addresses[i]];
    if (address) out[count++] = (wk__cuda_address){(uint32_t)are_addresses[i], address};
  }
  return count;
}

static const char *name_of(int dtype) { return dtype == WK_FLOAT32 ? "f32" : dtype == WK_FLOAT16 ? "f16" : "bf16"; }

wk_status wk__cuda_attention_run(attention *a, wk__ptx_attention_pass pass) {
  static const char *const names[] = {"attention", "attention delta", "attention dk, dv", "attention dq",
                                      "attention captured"};
  const wk__cuda_written *k;
  bool by_keys = pass == WK__ATTENTION_KEYS, groups = a->kind.warpgroups;
  int64_t rows = by_keys ? a->keys : a->queries, heads = by_keys ? a->key_heads : a->heads;
  if (rows == 0 || heads == 0 || a->batch == 0) return WK_OK;
  a->kind.pass = (uint8_t)pass;
  if (by_keys && a->kind.size <= 64 && a->kind.value_size <= 64)
    a->kind.warpgroups = false; /* two blocks of mma.sync were faster */
  WK_TRY(wk__cuda_enter(a->stream->device));
  WK_TRY(a->find(a, &k));
  a->kind.warpgroups = groups;
  CUevent begin;
  wk__cuda_address addresses[WK__ATTENTION_ARGS + WK__ATTENTION_MOST_CAPTURED];
  int address_count = addresses_of(a, addresses);
  unsigned blocks = (unsigned)(wk__ceil_div(rows, k->rows) * k->parts);
  wk__cuda_time_begin(a->stream, &begin);
  wk_status status = wk__cuda_give(a->stream, &(wk__cuda_work){.function = k->function,
                                                               .grid = {blocks, (unsigned)heads, (unsigned)a->batch},
                                                               .threads = (unsigned)k->threads,
                                                               .shared = (unsigned)k->shared,
                                                               .words = a->args,
                                                               .word_count = a->arg_count,
                                                               .addresses = addresses,
                                                               .address_count = address_count,
                                                               .drawn = a->drawn.generator ? &a->drawn : NULL});
  if (WK_LIKELY(!begin)) return status;
  char name[WK__CUDA_NAME_BYTES];
  (void)snprintf(name, sizeof name, "%s%s %s %lldx%lldx%lldx%lldx%d", a->kind.scores ? "flex " : "", names[pass],
                 name_of(a->kind.dtype), (long long)a->batch, (long long)a->heads, (long long)a->queries,
                 (long long)a->keys, a->kind.size);
  wk__cuda_time_end(a->stream, begin, name);
  return status;
}

/* Deltas depend on neither mask nor dropout nor bodies. */
wk_tensor *wk__cuda_attention_deltas(attention *a, wk_tensor *rows) {
  wk_tensor *deltas = wk_empty_like(rows, WK_DTYPE_NONE, (wk_value){0}, NULL);
  if (!deltas) return NULL;
  a->args[WK__ATTENTION_DELTAS] = (int64_t)(uintptr_t)wk__address(deltas);
  attention plain = *a;
  plain.kind.causal = plain.kind.warpgroups = plain.kind.scores = plain.kind.tf32 = plain.kind.dropout = false;
  plain.kind.mask = 0;
  plain.find = find_plain, plain.arg_count = WK__ATTENTION_ARGS, plain.address_count = 0;
  return wk__cuda_attention_run(&plain, WK__ATTENTION_DELTA) == WK_OK ? deltas : NULL;
}

/* Probabilities that dropout draws for. */
static int64_t drawn(const attention *a) { return a->batch * a->heads * a->queries * a->keys; }

static wk_status check_drawn(const attention *a) {
  if (drawn(a) <= (int64_t)UINT32_MAX * 4) return WK_OK;
  return wk_fail(WK_NOT_IMPLEMENTED, "dropout of %lld probabilities in attention on cuda", (long long)drawn(a));
}

static wk_status take_draws(attention *a, wk__call *c, double p) {
  wk__generator *generator = wk__generator_default_of(c->outputs[0]->device);
  if (drawn(a) == 0 || !generator) return WK_OK;
  WK_TRY(wk__cuda_take_mask(a->stream, generator, drawn(a), &a->drawn));
  a->drawn.seed_word = WK__ATTENTION_SEED, a->drawn.offset_word = WK__ATTENTION_OFFSET, a->drawn.unit = 4;
  a->args[WK__ATTENTION_SEED] = (int64_t)a->drawn.seed, a->args[WK__ATTENTION_OFFSET] = (int64_t)(a->drawn.offset / 4);
  set_dropout(a, p, c->outputs[2], wk__cuda_mask_threads(a->stream->device, drawn(a)));
  return WK_OK;
}

/* ---- by cuDNN ---- */

/* Whether cuDNN is asked first. Measured on an H100, bf16, microseconds, ours and cuDNN's, forward and backward:
 * 4 x 16 x 4096 x 128 causal 678 + 2573 (486 + 1662), 8 x 12 x 1024 x 64 causal 59 + 202 (49 + 168), 16 x 12 x 512 x 64
 * 44 + 147 (38 + 146), 64 x 12 x 197 x 64 52 + 168 (48 + 194), 2 x 4 x 64 x 333 x 128 11 + 20 (13 + 27). Its gradients
 * of q are sums in an order that changes. WICK_CUDA_ATTENTION: own or cudnn in any case. */
static bool library_goes_first(const wk__cudnn_attention *k, const attention *a) {
  enum { LEAST_QUERIES = 128, LEAST_OF_GRADIENTS = 1024, LARGE = 128 };
  const double least_work = 1 << 28; /* multiplications */
  const char *who = getenv("WICK_CUDA_ATTENTION");
  if (!wk__cuda_switches.cudnn || !wk__cuda_switches.cudnn_attention) return false;
  if (a->kind.mask || a->kind.dropout || a->kind.dtype == WK_FLOAT32 || a->kind.value_size != a->kind.size)
    return false;
  if (k->gradients && (wk__cuda_switches.deterministic || k->heads != k->key_heads)) return false;
  if (who && (strcmp(who, "own") == 0 || strcmp(who, "cudnn") == 0)) return *who == 'c';
  double work = (double)(k->batch * k->heads) * (double)(k->queries * k->keys * k->size);
  bool pays = !k->gradients || k->queries >= LEAST_OF_GRADIENTS || k->size > LARGE;
  return pays && work >= least_work && k->queries >= LEAST_QUERIES && k->keys >= LEAST_QUERIES;
}

static float scale_of(const attention *a) {
  union {
    uint32_t bits;
    float f;
  } u = {(uint32_t)a->args[WK__ATTENTION_SCALE]};
  return u.f;
}

/* operands: by wk__cudnn_operand; those of gradients NULL, if it is the result that is wanted. */
static wk_status by_library(const attention *a, wk_tensor *const operands[WK__CUDNN_OPERANDS], bool *out_done) {
  uint64_t addresses[WK__CUDNN_OPERANDS] = {0};
  wk__cudnn_attention kind = {.gradients = operands[WK__CUDNN_DOUT] != NULL,
                              .half = a->kind.dtype == WK_FLOAT16,
                              .causal = a->kind.causal,
                              .batch = a->batch,
                              .heads = a->heads,
                              .key_heads = a->key_heads,
                              .queries = a->queries,
                              .keys = a->keys,
                              .size = a->kind.size};
  *out_done = false;
  if (!library_goes_first(&kind, a)) return WK_OK;
  for (int i = 0; i < WK__CUDNN_OPERANDS; i++) {
    if (!operands[i]) continue;
    addresses[i] = (uint64_t)(uintptr_t)wk__address(operands[i]);
    for (int d = 0; d < 4 && i != WK__CUDNN_ROWS; d++) kind.strides[i][d] = wk__stride(operands[i], d);
  }
  WK_TRY(wk__cuda_enter(a->stream->device));
  return wk__cudnn_attention_run(a->stream, &kind, addresses, scale_of(a), out_done);
}

static wk_status run_forward(wk__call *c, double p, bool causal, const wk_tensor *mask, const wk_value *scale) {
  WK__ARGS(_fused_attention);
  attention a;
  wk_tensor *q = wk__cuda_attention_rows(c->args[A_query].tensor), *k = wk__cuda_attention_rows(c->args[A_key].tensor),
            *value = wk__cuda_attention_rows(c->args[A_value].tensor);
  if (!q || !k || !value) return wk_error_category();
  wk__cuda_attention_begin(&a, q, k, value, causal, scale);
  if (p > 0) WK_TRY(check_drawn(&a));
  wk__cuda_attention_set(&a, WK__ATTENTION_Q, q), wk__cuda_attention_set(&a, WK__ATTENTION_K, k),
      wk__cuda_attention_set(&a, WK__ATTENTION_V, value);
  wk__cuda_attention_set(&a, WK__ATTENTION_OUT, c->outputs[0]);
  set_mask(&a, mask);
  a.args[WK__ATTENTION_LOGARITHMS] = (int64_t)(uintptr_t)wk__address(c->outputs[1]);
  if (p > 0) WK_TRY(take_draws(&a, c, p));
  wk_tensor *operands[WK__CUDNN_OPERANDS] = {q, k, value, c->outputs[0], c->outputs[1]};
  bool done;
  WK_TRY(by_library(&a, operands, &done));
  return done ? WK_OK : wk__cuda_attention_run(&a, WK__ATTENTION_FORWARD);
}

static wk_status forward(wk__call *c) {
  WK__ARGS(_fused_attention);
  return run_forward(c, 0, wk__arg_bool(c, A_is_causal), wk__arg_tensor(c, A_attn_mask), &c->args[A_scale]);
}

static wk_status forward_dropout(wk__call *c) {
  WK__ARGS(_fused_attention_dropout);
  return run_forward(c, c->args[A_dropout_p].number, wk__arg_bool(c, A_is_causal), wk__arg_tensor(c, A_attn_mask),
                     &c->args[A_scale]);
}

wk_status wk__cuda_fused_attention(wk__call *c) { return wk__cuda_in_scope(c, forward); }
wk_status wk__cuda_fused_attention_dropout(wk__call *c) { return wk__cuda_in_scope(c, forward_dropout); }

static wk_status backward(wk__call *c) {
  WK__ARGS(_fused_attention_backward);
  attention a;
  double p = c->args[A_dropout_p].number;
  wk_tensor *q = wk__cuda_attention_rows(c->args[A_query].tensor), *k = wk__cuda_attention_rows(c->args[A_key].tensor),
            *value = wk__cuda_attention_rows(c->args[A_value].tensor),
            *g = wk__cuda_attention_rows(c->args[A_grad_out].tensor),
            *out = wk__cuda_attention_rows(c->args[A_out].tensor), *sums = c->args[A_logsumexp].tensor;
  if (!q || !k || !value || !g || !out) return wk_error_category();
  wk__cuda_attention_begin(&a, q, k, value, wk__arg_bool(c, A_is_causal), &c->args[A_scale]);
  wk__cuda_attention_set(&a, WK__ATTENTION_Q, q), wk__cuda_attention_set(&a, WK__ATTENTION_K, k),
      wk__cuda_attention_set(&a, WK__ATTENTION_V, value);
  wk__cuda_attention_set(&a, WK__ATTENTION_OUT, out), wk__cuda_attention_set(&a, WK__ATTENTION_DOUT, g);
  wk__cuda_attention_set(&a, WK__ATTENTION_DQ, c->outputs[0]),
      wk__cuda_attention_set(&a, WK__ATTENTION_DK, c->outputs[1]);
  wk__cuda_attention_set(&a, WK__ATTENTION_DV, c->outputs[2]);
  a.args[WK__ATTENTION_LOGARITHMS] = (int64_t)(uintptr_t)wk__address(sums);
  set_mask(&a, wk__arg_tensor(c, A_attn_mask));
  if (p > 0 && drawn(&a) > 0)
    set_dropout(&a, p, c->args[A_rng_state].tensor, wk__cuda_mask_threads(a.stream->device, drawn(&a)));
  bool done;
  wk_tensor *operands[] = {q, k, value, out, sums, g, c->outputs[0], c->outputs[1], c->outputs[2]};
  WK_TRY(by_library(&a, operands, &done));
  if (done) return WK_OK;
  if (!wk__cuda_attention_deltas(&a, sums)) return wk_error_category();
  WK_TRY(wk__cuda_attention_run(&a, WK__ATTENTION_KEYS));
  return wk__cuda_attention_run(&a, WK__ATTENTION_QUERIES);
}
wk_status wk__cuda_fused_attention_backward(wk__call *c) { return wk__cuda_in_scope(c, backward); }
