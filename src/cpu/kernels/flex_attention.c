/* Attention with a body of scores on the CPU: which blocks are computed, and the body's nests run on each of them.
 *
 * In: the operands, the table of blocks, and nests as text. A block of the kernel (WK__QUERY_BLOCK, WK__KEY_BLOCK) may
 * lie across several of the table; then each gets its part. Tests: tests/python/test_flex_attention.py. */
#include <math.h>
#include <stdatomic.h>

#include "autograd/body.h"
#include "cpu/attention/attention_kernels.h"
#include "cpu/attention/score_code.h"
#include "cpu/cpu.h"
#include "cpu/kernels.h"
#include "cpu/kernels/attention_operands.h"
#include "ops/internal.h"
#include "wick/operators.h"

enum { EMPTY, PARTLY, FULL, MIXED }; /* in the table; the last of several blocks together */

typedef struct blocks {
  const uint8_t *data; /* NULL: all are full, or partly where there is a mask */
  int64_t batch, head, row;
  int64_t queries, keys; /* in one */
} blocks;

typedef struct flex_run {
  blocks blocks;
  int64_t heads;
  wk__score_code *score, *masked;        /* owned; NULL: does nothing */
  wk__score_code *derivative;            /* owned: of the scores, or of the captured tensors; NULL: does nothing */
  wk__launch launch;                     /* the captured tensors and their gradients */
  int64_t (*strides)[WK__NEST_MAX_DIMS]; /* of the gradients; borrowed */
  int64_t gradient_step; /* bytes from one head's gradients to the next one's; 0: all heads share them */
  int captured_count;
  wk_dtype dtype;
  _Atomic int status; /* the first failure */
} flex_run;

/* ---- the table ---- */

/* Those that a block of scores touches. */
typedef struct covered {
  const uint8_t *first; /* of the head */
  int64_t row, row_end, column, column_end;
} covered;

static covered cover(const flex_run *r, const wk__score_block *b) {
  const blocks *t = &r->blocks;
  return (covered){.first = t->data + b->head / r->heads * t->batch + b->head % r->heads * t->head,
                   .row = b->query / t->queries,
                   .row_end = wk__ceil_div(b->query + b->queries, t->queries),
                   .column = b->key / t->keys,
                   .column_end = wk__ceil_div(b->key + b->keys, t->keys)};
}

static int seen_of(const flex_run *r, const wk__score_block *b) {
  if (!r->blocks.data) return r->masked ? PARTLY : FULL;
  covered c = cover(r, b);
  int all = c.first[c.row * r->blocks.row + c.column];
  for (int64_t i = c.row; i < c.row_end; i++)
    for (int64_t j = c.column; j < c.column_end; j++)
      if (c.first[i * r->blocks.row + j] != all) return MIXED;
  return all;
}

/* What of b lies in one block of the table */
static wk__score_block part_of(const blocks *t, const wk__score_block *b, int64_t row, int64_t column) {
  int64_t query = wk__max(b->query, row * t->queries), key = wk__max(b->key, column * t->keys);
  return (wk__score_block){.head = b->head,
                           .query = query,
                           .key = key,
                           .queries = wk__min(b->query + b->queries, (row + 1) * t->queries) - query,
                           .keys = wk__min(b->key + b->keys, (column + 1) * t->keys) - key};
}

/* ---- the body ---- */

static void run_code(flex_run *r, const wk__score_code *code, const wk__score_block *b, const void *scores,
                     const void *gradient, void *out) {
  const int64_t sizes[] = {b->queries, b->keys}, strides[] = {WK__KEY_BLOCK, 1};
  const wk__scalar params[WK__BODY_PARAMS] = {
      [WK__BODY_BATCH] = {WK__INTEGER_KIND, .i = b->head / r->heads},
      [WK__BODY_HEAD] = {WK__INTEGER_KIND, .i = b->head % r->heads},
      [WK__BODY_QUERY] = {WK__INTEGER_KIND, .i = b->query},
      [WK__BODY_KEY] = {WK__INTEGER_KIND, .i = b->key},
  };
  wk__launch launch = r->launch;
  launch.params = params;
  launch.buffers[WK__BODY_BUFFER_SCORES] = (wk__launch_buffer){(void *)scores, sizes, strides};
  launch.buffers[WK__BODY_BUFFER_GRADIENT] = (wk__launch_buffer){(void *)gradient, sizes, strides};
  launch.buffers[WK__BODY_BUFFER_OUT] = (wk__launch_buffer){out, sizes, strides};
  wk__launch_buffer *gradients = launch.buffers + WK__BODY_BUFFER_CAPTURED + r->captured_count;
  for (int k = 0; r->gradient_step && k < r->captured_count; k++)
    gradients[k].data = (char *)gradients[k].data + b->head * r->gradient_step;
  wk_status status = wk__program_run(wk__score_program(code), &launch);
  if (WK_UNLIKELY(status != WK_OK)) atomic_store(&r->status, (int)status);
}

static wk__block_state find_state(void *context, const wk__score_block *b) {
  const flex_run *r = context;
  int seen = seen_of(r, b);
  if (seen == EMPTY) return WK__BLOCK_EMPTY;
  return r->score || seen != FULL ? WK__BLOCK_CHANGED : WK__BLOCK_AS_IS;
}

static void hide(const flex_run *r, const wk__score_block *b, char *scores) {
  for (int64_t i = 0; i < b->queries; i++)
    for (int64_t j = 0; j < b->keys; j++)
      if (r->dtype == WK_FLOAT64)
        ((double *)scores)[i * WK__KEY_BLOCK + j] = -INFINITY;
      else
        ((float *)scores)[i * WK__KEY_BLOCK + j] = -INFINITY;
}

/* Of a block that lies in one of the table. Without a body `out` has the scores already. */
static void modify_part(flex_run *r, const wk__score_block *b, int seen, const char *in, char *out) {
  const wk__score_code *code = seen == PARTLY && r->masked ? r->masked : r->score;
  if (seen == EMPTY)
    hide(r, b, out);
  else if (code)
    run_code(r, code, b, in, in, out);
}

static void modify(void *context, const wk__score_block *b, const void *in, void *out) {
  flex_run *r = context;
  int64_t size = wk__dtypes[r->dtype].size;
  int seen = seen_of(r, b);
  if (in != out && !r->score) memcpy(out, in, (size_t)(b->queries * WK__KEY_BLOCK * size));
  if (seen != MIXED) {
    modify_part(r, b, seen, in, out);
    return;
  }
  covered c = cover(r, b);
  for (int64_t i = c.row; i < c.row_end; i++)
    for (int64_t j = c.column; j < c.column_end; j++) {
      wk__score_block part = part_of(&r->blocks, b, i, j);
      int64_t at = ((part.query - b->query) * WK__KEY_BLOCK + part.key - b->key) * size;
      modify_part(r, &part, c.first[i * r->blocks.row + j], (const char *)in + at, (char *)out + at);
    }
}

static void differentiate(void *context, const wk__score_block *b, const void *scores, void *gradient) {
  flex_run *r = context;
  run_code(r, r->derivative, b, scores, gradient, gradient);
}

/* ---- the calls ---- */

/* What the operators have in common, and whether `derivative` adds to the captured tensors' gradients, in `gradients`.
 */
typedef struct common {
  wk_tensor *query, *blocks;
  const wk_value *captured, *block_size;
  const char *score, *masked, *derivative;
  wk_tensor *gradients; /* NULL: it gives that of the scores */
} common;

static wk_status get_code(const common *in, const char *text, bool with_gradients, wk__score_code **out) {
  if (!*text) return WK_OK;
  return wk__score_code_get(text, (wk_dtype)in->query->dtype, in->captured->tensors, (int)in->captured->count,
                            with_gradients, out);
}

static void end(flex_run *r) {
  wk__score_code_release(r->score);
  wk__score_code_release(r->masked);
  wk__score_code_release(r->derivative);
}

static blocks blocks_of(const common *in) {
  const wk_tensor *t = in->blocks;
  if (!t) return (blocks){0};
  return (blocks){.data = (const uint8_t *)wk__data(t),
                  .batch = wk__size(t, 0) == 1 ? 0 : wk__stride(t, 0),
                  .head = wk__size(t, 1) == 1 ? 0 : wk__stride(t, 1),
                  .row = wk__stride(t, 2),
                  .queries = in->block_size->integers[0].bits,
                  .keys = in->block_size->integers[1].bits};
}

/* The gradients lie one behind the other, each contiguous. */
static void bind_captured(const common *in, char *gradient, flex_run *r) {
  wk__launch_buffer *buffers = r->launch.buffers + WK__BODY_BUFFER_CAPTURED;
  uint32_t count = in->captured->count;
  for (uint32_t k = 0; k < count; k++) {
    const wk_tensor *t = in->captured->tensors[k];
    buffers[k] = (wk__launch_buffer){wk__data(t), &t->sizes->bits, &t->strides->bits};
    if (!gradient) continue;
    int64_t step = 1;
    for (int d = t->ndim - 1; d >= 0; step *= wk__size(t, d--)) r->strides[k][d] = step;
    buffers[count + k] = (wk__launch_buffer){gradient, &t->sizes->bits, r->strides[k]};
    gradient += wk__numel(t) * (int64_t)wk__itemsize(in->gradients);
  }
}

static wk_status begin(const common *in, char *gradients, int64_t (*strides)[WK__NEST_MAX_DIMS], flex_run *out) {
  *out = (flex_run){.blocks = blocks_of(in),
                    .heads = wk__size(in->query, 1),
                    .dtype = (wk_dtype)in->query->dtype,
                    .captured_count = (int)in->captured->count,
                    .strides = strides};
  if (in->captured->count > WK__BODY_MAX_CAPTURED) return wk_fail(WK_VALUE_ERROR, "_flex_attention: many tensors");
  wk_status status = get_code(in, in->score, false, &out->score);
  if (status == WK_OK) status = get_code(in, in->masked, false, &out->masked);
  if (status == WK_OK) status = get_code(in, in->derivative, in->gradients, &out->derivative);
  if (status == WK_OK) bind_captured(in, gradients, out);
  if (status != WK_OK) end(out);
  return status;
}

static wk__attention_body body_of(flex_run *r) {
  return (wk__attention_body){
      .state = find_state, .modify = modify, .differentiate = r->derivative ? differentiate : NULL, .context = r};
}

static wk_status status_of(const flex_run *r) {
  int status = atomic_load(&r->status);
  if (status == WK_RUNTIME_ERROR) return wk_fail(WK_RUNTIME_ERROR, "ZeroDivisionError"); /* told to another thread */
  return status == WK_INDEX_ERROR ? wk_fail(WK_INDEX_ERROR, "index out of range in self") : (wk_status)status;
}

static common forward_call(const wk_value *args) {
  WK__ARGS(_flex_attention);
  return (common){.query = args[A_query].tensor,
                  .blocks = wk__tensor_or_null(&args[A_blocks]),
                  .captured = &args[A_captured],
                  .block_size = &args[A_block_size],
                  .score = args[A_score].string,
                  .masked = args[A_masked].string,
                  .derivative = ""};
}

wk_status wk__cpu_flex_attention(wk__call *c) {
  WK__ARGS(_flex_attention);
  const common in = forward_call(c->args);
  flex_run r;
  WK_TRY(begin(&in, NULL, NULL, &r));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *q = wk__with_adjacent_rows(in.query), *k = wk__with_adjacent_rows(c->args[A_key].tensor),
            *v = wk__with_adjacent_rows(c->args[A_value].tensor);
  wk_status status = q && k && v ? WK_OK : wk_error_category();
  if (status == WK_OK) {
    wk__attention_body body = body_of(&r);
    wk__attention a = wk__attention_of(q, k, v, c->args[A_scale].number);
    a.body = &body, a.maxima = wk__data(c->outputs[2]);
    status = wk__attention_forward(&a, wk__heads_of(c->outputs[0]), wk__data(c->outputs[1]));
  }
  wk_scope_end(&scope);
  end(&r);
  return status == WK_OK ? status_of(&r) : status;
}

/* Of a backward operator; make_dense() gives the tensors as the kernels want them, and those belong to the scope. */
typedef struct backward_operands {
  wk_tensor *grad, *grad_rows, *query, *key, *value, *out, *rows;
  double scale;
} backward_operands;

static wk_status make_dense(backward_operands *o) {
  o->grad = wk__with_adjacent_rows(o->grad);
  o->query = wk__with_adjacent_rows(o->query);
  o->key = wk__with_adjacent_rows(o->key);
  o->value = wk__with_adjacent_rows(o->value);
  o->out = wk__with_adjacent_rows(o->out);
  o->rows = wk_contiguous(o->rows, "contiguous_format");
  bool made = o->grad && o->query && o->key && o->value && o->out && o->rows;
  if (made && o->grad_rows) made = (o->grad_rows = wk_contiguous(o->grad_rows, "contiguous_format")) != NULL;
  return made ? WK_OK : wk_error_category();
}

/* dq, dk and dv; or the gradients of the captured tensors: to `gradients`, `step` bytes further for each head. */
static wk_status run_backward(const common *in, backward_operands o, char *gradients, int64_t step,
                              wk_tensor *const *outputs) {
  int64_t strides[WK__BODY_MAX_CAPTURED][WK__NEST_MAX_DIMS];
  flex_run r;
  WK_TRY(begin(in, gradients, strides, &r));
  r.gradient_step = step;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = make_dense(&o);
  if (status == WK_OK) {
    wk__attention_body body = body_of(&r);
    wk__attention a = wk__attention_of(o.query, o.key, o.value, o.scale);
    wk__heads out = wk__heads_of(o.out), grad = wk__heads_of(o.grad);
    a.body = &body, a.dlogarithms = o.grad_rows ? wk__data(o.grad_rows) : NULL;
    status = in->gradients ? wk__attention_score_gradients(&a, out, wk__data(o.rows), grad, step > 0)
                           : wk__attention_backward(&a, out, wk__data(o.rows), grad, wk__heads_of(outputs[0]),
                                                    wk__heads_of(outputs[1]), wk__heads_of(outputs[2]));
  }
  wk_scope_end(&scope);
  end(&r);
  return status == WK_OK ? status_of(&r) : status;
}

/* The two backward operators have one order of arguments: `reads` of the other one is where the derivative is. */
static common backward_call(const wk_value *args, backward_operands *out) {
  WK__ARGS(_flex_attention_backward);
  *out = (backward_operands){.grad = args[A_grad_out].tensor,
                             .grad_rows = wk__tensor_or_null(&args[A_grad_logsumexp]),
                             .query = args[A_query].tensor,
                             .key = args[A_key].tensor,
                             .value = args[A_value].tensor,
                             .out = args[A_output].tensor,
                             .rows = args[A_logsumexp].tensor,
                             .scale = args[A_scale].number};
  return (common){.query = out->query,
                  .blocks = wk__tensor_or_null(&args[A_blocks]),
                  .captured = &args[A_captured],
                  .block_size = &args[A_block_size],
                  .score = args[A_score].string,
                  .masked = args[A_masked].string,
                  .derivative = args[A_derivative].string};
}

wk_status wk__cpu_flex_attention_backward(wk__call *c) {
  backward_operands o;
  const common in = backward_call(c->args, &o);
  if (*in.score && !*in.derivative)
    return wk_fail(WK_RUNTIME_ERROR, "_flex_attention_backward: the body was traced without its derivative");
  return run_backward(&in, o, NULL, 0, c->outputs);
}

/* The sum over heads, in their order. */
static void add_parts(const char *parts, int64_t heads, wk_tensor *out) {
  int64_t n = wk__numel(out);
  void *sums = wk__data(out);
  for (int64_t head = 0; head < heads; head++)
    for (int64_t i = 0; i < n; i++)
      if (out->dtype == WK_FLOAT64)
        ((double *)sums)[i] += ((const double *)parts)[head * n + i];
      else
        ((float *)sums)[i] += ((const float *)parts)[head * n + i];
}

/* Each head has gradients of its own, so that threads can share the heads and a sum has one order. Where that would be
 * much memory they have the same ones, and one thread goes through them. */
static wk_status sum_gradients(const common *in, backward_operands o, wk_tensor *out) {
  enum { MOST_PARTS = 16 << 20 };
  int64_t heads = wk__size(in->query, 0) * wk__size(in->query, 1);
  int64_t bytes = wk__numel(out) * (int64_t)wk__itemsize(out);
  memset(wk__data(out), 0, (size_t)bytes);
  if (heads == 0) return WK_OK;
  if (bytes > MOST_PARTS / heads) return run_backward(in, o, wk__data(out), 0, NULL);
  char *parts = wk__alloc_zeroed((size_t)(heads * bytes));
  if (!parts) return WK_OUT_OF_MEMORY;
  wk_status status = run_backward(in, o, parts, bytes, NULL);
  if (status == WK_OK) add_parts(parts, heads, out);
  wk__free(parts);
  return status;
}

wk_status wk__cpu_flex_attention_backward_captured(wk__call *c) {
  backward_operands o;
  common in = backward_call(c->args, &o);
  in.gradients = c->outputs[0];
  return sum_gradients(&in, o, c->outputs[0]);
}

/* ---- their codes ---- */

/* A text that is not good fails when it is called. */
static int add_kept(const common *in, const char *text, bool with_gradients, wk__kept_code **out) {
  wk__score_code *code = NULL;
  if (get_code(in, text, with_gradients, &code) != WK_OK) wk_error_clear();
  if (code) *out = wk__score_kept(code);
  return code != NULL;
}

int wk__cpu_kept_codes(const wk_op *op, const wk_value *args, wk__kept_code **out, int most) {
  enum { TEXTS = 3 };
  wk__kernel_fn *kernel = wk__cpu_kernels[op->number];
  bool forward = kernel == wk__cpu_flex_attention, captured = kernel == wk__cpu_flex_attention_backward_captured;
  if (most < TEXTS || !(forward || captured || kernel == wk__cpu_flex_attention_backward)) return 0;
  backward_operands none;
  const common in = forward ? forward_call(args) : backward_call(args, &none);
  int count = add_kept(&in, in.score, false, out);
  count += add_kept(&in, in.masked, false, out + count);
  return count + add_kept(&in, in.derivative, captured, out + count);
}
