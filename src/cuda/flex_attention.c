/* _flex_attention of small floats and f32 and its two backward rows on the device: attention's kernels with bodies of
 * scores written into them (codegen/ptx_attention.h). A kernel's kind is the kind of call and the bodies' texts.
 *
 * In: operands of any strides, nests as text, which are checked against the captured tensors. f64 is
 * computed on the host. Tests: tests/cuda/test_flex_attention.py,
 * tests/cuda/test_captured_gradients.py. */
#include "cpu/attention/score_code.h"
#include "cuda/attention.h"
#include "cuda/kernels.h"
#include "ops/internal.h"
#include "wick/operators.h"

typedef wk__cuda_attention attention;

/* What the rows are given. derivative and reads: one of the backward ones each, else "". */
typedef struct operands {
  wk_tensor *query, *key, *value, *blocks;
  const wk_value *captured, *block_size, *scale;
  const char *score, *masked, *derivative, *reads;
} operands;

/* ---- kernels ---- */

/* A kind as bytes: a wk__ptx_attention, then the texts, each with its end. */
static wk__nest *parse(const char **text, wk_status *status) {
  const char *begin = *text;
  *text += strlen(begin) + 1;
  if (!*begin || *status != WK_OK) return NULL;
  wk__nest *nest = wk__nest_parse(begin);
  if (!nest) *status = wk_error_category();
  return nest;
}

static wk_status write_in_env(const void *kind, char **out_text, wk__cuda_written *out) {
  const char *text = (const char *)kind + sizeof(wk__ptx_attention);
  wk_status status = WK_OK;
  wk__nest *score = parse(&text, &status), *masked = parse(&text, &status), *derivative = parse(&text, &status),
           *reads = parse(&text, &status);
  const wk__ptx_score_bodies bodies = {.score = score, .masked = masked, .derivative = derivative, .reads = reads};
  if (status == WK_OK) status = wk__cuda_attention_write(kind, &bodies, out_text, out);
  wk__nest_release(score);
  wk__nest_release(masked);
  wk__nest_release(derivative);
  wk__nest_release(reads);
  return status;
}

static wk_status write(const void *kind, char **out_text, wk__cuda_written *out) {
  wk__shape_env *env = wk__shape_env_create();
  if (!env) return WK_OUT_OF_MEMORY;
  wk__shape_env *outer = wk__shape_env_set_current(env);
  wk_status status = write_in_env(kind, out_text, out);
  wk__shape_env_set_current(outer);
  wk__shape_env_release(env);
  return status;
}

static void add_text(wk__string *key, const char *text) { wk__string_append_n(key, text, (int64_t)strlen(text) + 1); }

static wk_status find(const attention *a, const wk__cuda_written **out) {
  const operands *o = a->context;
  wk__string key = {0};
  wk__string_append_n(&key, (const char *)&a->kind, sizeof a->kind);
  add_text(&key, o->score);
  add_text(&key, o->masked);
  add_text(&key, o->derivative);
  add_text(&key, o->reads);
  wk_status status = key.failed ? WK_OUT_OF_MEMORY
                                : wk__cuda_find_written(a->stream->device, key.text, (size_t)key.length, write, out);
  wk__string_release(&key);
  return status;
}

static bool is_writable(const char *text) {
  wk__nest *nest = wk__nest_parse(text);
  bool fits = nest && wk__ptx_writes_scores(nest);
  wk__nest_release(nest);
  return fits;
}

bool wk__cuda_fuses_scores(wk_device device, const char *text) {
  if (!*text) return wk__cuda_fuses_attention(device);
  wk__shape_env *env = wk__shape_env_create(), *outer = wk__shape_env_set_current(env);
  bool fits = env && is_writable(text);
  if (!fits) wk_error_clear();
  wk__shape_env_set_current(outer);
  wk__shape_env_release(env);
  return fits;
}

/* ---- arguments ---- */

static wk_status check_body(const operands *o, const char *text, bool with_gradients) {
  wk__score_code *code = NULL;
  if (!*text) return WK_OK;
  WK_TRY(wk__score_code_get(text, WK_FLOAT32, o->captured->tensors, (int)o->captured->count, with_gradients, &code));
  wk__score_code_release(code);
  return WK_OK;
}

static wk_status check(const operands *o) {
  const wk_value *captured = o->captured;
  if (!wk__cuda_fuses_attention(o->query->device)) return wk_fail(WK_NOT_IMPLEMENTED, "_flex_attention on this device");
  bool here =
      captured->count <= WK__BODY_MAX_CAPTURED && (!o->blocks || wk__device_equal(o->blocks->device, o->query->device));
  for (uint32_t k = 0; here && k < captured->count; k++)
    here = wk__device_equal(captured->tensors[k]->device, o->query->device);
  if (!here) return wk_fail(WK_VALUE_ERROR, "_flex_attention: captured tensors on another device, or many");
  if (wk__size(o->query, 2) >= WK__PTX_SCORE_PLACES || wk__size(o->key, 2) >= WK__PTX_SCORE_PLACES)
    return wk_fail(WK_NOT_IMPLEMENTED, "_flex_attention of so many queries or keys on cuda");
  WK_TRY(check_body(o, o->score, false));
  WK_TRY(check_body(o, o->masked, false));
  WK_TRY(check_body(o, o->derivative, false));
  return check_body(o, o->reads, true);
}

static void add_address(attention *a, uint64_t address) {
  if (address) a->addresses[a->address_count++] = (wk__cuda_address){(uint32_t)a->arg_count, address};
  a->args[a->arg_count++] = (int64_t)address;
}

static void set_captured(attention *a, const wk_value *captured) {
  for (uint32_t k = 0; k < captured->count; k++) {
    const wk_tensor *t = captured->tensors[k];
    add_address(a, (uint64_t)(uintptr_t)wk__address(t));
    for (int d = 0; d < t->ndim; d++) {
      a->args[a->arg_count++] = wk__size(t, d);
      a->args[a->arg_count++] = wk__stride(t, d) * wk__itemsize(t);
    }
  }
}

/* Their gradients, which lie one behind the other in `all`, each contiguous. */
static void set_gradients(attention *a, const wk_value *captured, const wk_tensor *all) {
  uint64_t address = (uint64_t)(uintptr_t)wk__address(all);
  for (uint32_t k = 0; k < captured->count; k++) {
    const wk_tensor *t = captured->tensors[k];
    int64_t step = wk__numel(t) * wk__itemsize(all);
    add_address(a, address);
    address += (uint64_t)step;
    for (int d = 0; d < t->ndim; d++) {
      step /= wk__max(wk__size(t, d), 1);
      a->args[a->arg_count++] = wk__size(t, d);
      a->args[a->arg_count++] = step;
    }
  }
}

static void set_table(attention *a, const wk_tensor *blocks, const wk_value *block_size) {
  if (!blocks) return;
  int64_t queries = block_size->integers[0].bits, keys = block_size->integers[1].bits;
  a->kind.scores = WK__PTX_SCORES_IN_BLOCKS;
  a->args[WK__ATTENTION_TABLE] = (int64_t)(uintptr_t)wk__address(blocks);
  for (int d = 0; d < 4; d++)
    a->args[WK__ATTENTION_TABLE + 1 + d] = d < 2 && wk__size(blocks, d) == 1 ? 0 : wk__stride(blocks, d);
  a->args[WK__ATTENTION_BLOCK_QUERIES] = queries, a->args[WK__ATTENTION_BLOCK_KEYS] = keys;
  a->args[WK__ATTENTION_BLOCK_ROWS] = wk__ceil_div(a->queries, queries);
  a->args[WK__ATTENTION_BLOCK_COLUMNS] = wk__ceil_div(a->keys, keys);
}

/* The scope has what is copied. */
static wk_status begin(attention *a, const operands *o) {
  WK_TRY(check(o));
  wk_tensor *q = wk__cuda_attention_rows(o->query), *k = wk__cuda_attention_rows(o->key),
            *v = wk__cuda_attention_rows(o->value);
  if (!q || !k || !v) return wk_error_category();
  wk__cuda_attention_begin(a, q, k, v, false, o->scale);
  a->find = find, a->context = o;
  a->kind.scores = WK__PTX_SCORES_CHANGED;
  wk__cuda_attention_set(a, WK__ATTENTION_Q, q);
  wk__cuda_attention_set(a, WK__ATTENTION_K, k);
  wk__cuda_attention_set(a, WK__ATTENTION_V, v);
  a->args[WK__ATTENTION_FAULTS] = (int64_t)(uintptr_t)a->stream->faults;
  set_table(a, o->blocks, o->block_size);
  set_captured(a, o->captured);
  return WK_OK;
}

static void set_rows(attention *a, int arg, const wk_tensor *t) { a->args[arg] = (int64_t)(uintptr_t)wk__address(t); }

/* ---- the calls ---- */

/* Of a row's call c, where its arguments have the same names; the texts that not all rows have. */
#define OPERANDS(...)                                                                                              \
  {                                                                                                                \
    .query = c->args[A_query].tensor, .key = c->args[A_key].tensor, .value = c->args[A_value].tensor,              \
    .blocks = wk__arg_tensor(c, A_blocks), .captured = &c->args[A_captured], .block_size = &c->args[A_block_size], \
    .scale = &c->args[A_scale], .score = c->args[A_score].string, .masked = c->args[A_masked].string, __VA_ARGS__  \
  }

static wk_status forward(wk__call *c) {
  WK__ARGS(_flex_attention);
  const operands o = OPERANDS(.derivative = "", .reads = "");
  attention a;
  WK_TRY(begin(&a, &o));
  wk__cuda_attention_set(&a, WK__ATTENTION_OUT, c->outputs[0]);
  set_rows(&a, WK__ATTENTION_LOGARITHMS, c->outputs[1]);
  set_rows(&a, WK__ATTENTION_LARGEST, c->outputs[2]);
  WK_TRY(wk__cuda_attention_run(&a, WK__ATTENTION_FORWARD));
  return wk__cuda_check_work(a.stream);
}

/* What both backward rows read; these arguments of theirs have one order. */
static wk_status begin_backward(attention *a, wk__call *c) {
  WK__ARGS(_flex_attention_backward);
  wk_tensor *grad = wk__cuda_attention_rows(c->args[A_grad_out].tensor),
            *out = wk__cuda_attention_rows(c->args[A_output].tensor),
            *rows = wk_contiguous(c->args[A_logsumexp].tensor, "contiguous_format");
  if (!grad || !out || !rows) return wk_error_category();
  wk__cuda_attention_set(a, WK__ATTENTION_OUT, out), wk__cuda_attention_set(a, WK__ATTENTION_DOUT, grad);
  set_rows(a, WK__ATTENTION_LOGARITHMS, rows);
  wk_tensor *deltas = wk__cuda_attention_deltas(a, rows), *grad_rows = wk__arg_tensor(c, A_grad_logsumexp);
  if (deltas && grad_rows) deltas = wk_sub(deltas, grad_rows, wk__v_int(1));
  if (!deltas) return wk_error_category();
  set_rows(a, WK__ATTENTION_DELTAS, deltas);
  return WK_OK;
}

static wk_status backward(wk__call *c) {
  WK__ARGS(_flex_attention_backward);
  const operands o = OPERANDS(.derivative = c->args[A_derivative].string, .reads = "");
  if (*o.score && !*o.derivative)
    return wk_fail(WK_RUNTIME_ERROR, "_flex_attention_backward: the body was traced without its derivative");
  attention a;
  WK_TRY(begin(&a, &o));
  WK_TRY(begin_backward(&a, c));
  static const int results[] = {WK__ATTENTION_DQ, WK__ATTENTION_DK, WK__ATTENTION_DV};
  for (int i = 0; i < 3; i++) wk__cuda_attention_set(&a, results[i], c->outputs[i]);
  WK_TRY(wk__cuda_attention_run(&a, WK__ATTENTION_KEYS));
  WK_TRY(wk__cuda_attention_run(&a, WK__ATTENTION_QUERIES));
  return wk__cuda_check_work(a.stream);
}

static wk_status backward_captured(wk__call *c) {
  WK__ARGS(_flex_attention_backward_captured);
  const operands o = OPERANDS(.derivative = "", .reads = c->args[A_reads].string);
  wk_tensor *all = c->outputs[0];
  attention a;
  WK_TRY(begin(&a, &o));
  WK_TRY(wk__cuda_fill(wk__stream_of(all->device), wk__data(all), 0, wk__numel(all) * wk__itemsize(all)));
  WK_TRY(begin_backward(&a, c));
  set_gradients(&a, o.captured, all);
  WK_TRY(wk__cuda_attention_run(&a, WK__ATTENTION_CAPTURED));
  return wk__cuda_check_work(a.stream);
}

wk_status wk__cuda_flex_attention(wk__call *c) {
  WK__ARGS(_flex_attention);
  return c->args[A_query].tensor->dtype != WK_FLOAT64 ? wk__cuda_in_scope(c, forward) : wk__cuda_run_kernel_on_host(c);
}

wk_status wk__cuda_flex_attention_backward(wk__call *c) {
  WK__ARGS(_flex_attention_backward);
  return c->args[A_query].tensor->dtype != WK_FLOAT64 ? wk__cuda_in_scope(c, backward) : wk__cuda_run_kernel_on_host(c);
}

wk_status wk__cuda_flex_attention_backward_captured(wk__call *c) {
  WK__ARGS(_flex_attention_backward_captured);
  return c->args[A_query].tensor->dtype != WK_FLOAT64 ? wk__cuda_in_scope(c, backward_captured)
                                                      : wk__cuda_run_kernel_on_host(c);
}
