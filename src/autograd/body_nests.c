/* The nests of a score body: what its functions gave, and the derivatives that the tape of their calls says, each a
 * part of the whole nest, as text. Tests: tests/python/test_flex_attention.py. */
#include <math.h>

#include "autograd/autograd.h"
#include "autograd/body_internal.h"

/* What a nest stores, or adds to what is there. */
typedef struct stored {
  wk__loop_op op;
  wk__var value;
  wk__access to;
} stored;

/* A nest that is copied from the whole one. */
typedef struct part {
  const wk__nest *all;
  wk__nest *nest;
  wk__recorder recorder;
  wk__var *values; /* by instruction of `all`: what it has become */
  bool *wanted;
} part;

static void want_places(const part *p, const wk__access *at) {
  for (int d = 0; d < at->ndim; d++) p->wanted[at->indirect[d]] = true; /* 0 is none */
}

/* What the wanted values are computed from is wanted, too. */
static void want_operands(const part *p) {
  for (int64_t v = p->all->instr_count - 1; v > 0; v--) {
    const wk__instr *instr = &p->all->instrs[v];
    if (!p->wanted[v]) continue;
    for (int i = 0; i < wk__loop_ops[instr->op].arity; i++) p->wanted[instr->operands[i]] = true;
    if (wk__loop_has_access(instr->op)) want_places(p, &p->all->accesses[instr->extra]);
  }
}

static wk__access copy_access(const part *p, const wk__access *at) {
  wk__access copy = *at;
  for (int d = 0; d < at->ndim; d++) copy.indirect[d] = p->values[at->indirect[d]];
  return copy;
}

static wk__var copy_instr(part *p, int64_t v) {
  wk__loop_handler *h = &p->recorder.handler;
  wk__instr instr = p->all->instrs[v];
  for (int i = 0; i < wk__loop_ops[instr.op].arity; i++) instr.operands[i] = p->values[instr.operands[i]];
  if (!wk__loop_has_access(instr.op)) return h->emit(h, &instr, NULL);
  wk__access at = copy_access(p, &p->all->accesses[instr.extra]);
  return h->emit(h, &instr, &at);
}

static wk_status copy_part(part *p, const stored *stores, int count) {
  wk__loop_handler *h = &p->recorder.handler;
  for (int i = 0; i < count; i++) {
    p->wanted[stores[i].value] = true;
    want_places(p, &stores[i].to);
  }
  want_operands(p);
  for (int64_t v = 1; v < p->all->instr_count && !h->status; v++)
    if (p->wanted[v]) p->values[v] = copy_instr(p, v);
  for (int i = 0; i < count && !h->status; i++) {
    wk__access to = copy_access(p, &stores[i].to);
    (stores[i].op == WK__LOOP_store_add ? wk__k_store_add : wk__k_store)(h, &to, p->values[stores[i].value]);
  }
  return h->status;
}

/* The nest that does these, as text. with_gradients: it has the captured tensors' gradients as buffers. */
static wk_status print_part(const wk__body *b, const stored *stores, int count, bool with_gradients, wk__string *out) {
  size_t n = (size_t)b->nest->instr_count;
  part p = {
      .all = b->nest, .nest = wk__nest_create(), .values = wk__alloc_zeroed(n * (sizeof(wk__var) + sizeof(bool)))};
  wk_status status = p.nest && p.values ? WK_OK : WK_OUT_OF_MEMORY;
  if (status == WK_OK) {
    p.wanted = (bool *)(p.values + n);
    wk__recorder_init(&p.recorder, p.nest);
    p.nest->pointwise_dims = 2;
    memcpy(p.nest->sizes, p.all->sizes, sizeof p.nest->sizes);
    memcpy(p.nest->buffers, p.all->buffers, sizeof p.nest->buffers);
    p.nest->buffer_count = p.all->buffer_count;
    for (int k = 0; with_gradients && k < b->captured_count; k++)
      p.nest->buffers[p.nest->buffer_count++] =
          (wk__nest_buffer){.dtype = (uint8_t)b->dtype, .ndim = b->captured[k]->ndim};
    status = copy_part(&p, stores, count);
  }
  if (status == WK_OK) wk__nest_print(out, p.nest);
  if (out->failed) status = WK_OUT_OF_MEMORY;
  wk__free(p.values);
  wk__nest_release(p.nest);
  return status;
}

static wk_status print_value(const wk__body *b, wk__var value, wk__string *out) {
  wk__access to = {.buffer = WK__BODY_BUFFER_OUT, .ndim = 2, .index = {wk__loop_i(0), wk__loop_i(1)}};
  return print_part(b, &(stored){WK__LOOP_store, value, to}, 1, false, out);
}

static wk__var as_score(wk__body *b, wk__var value) { return wk__k_cast(&b->recorder.handler, value, b->dtype); }

static wk_status find_score(wk__body *b, wk_tensor *modified, wk__var *out) {
  WK_TRY(wk__body_value(b, modified, out));
  *out = as_score(b, *out);
  return b->recorder.handler.status;
}

static wk_status find_masked(wk__body *b, wk__var score, wk_tensor *keep, wk__var *out) {
  wk__loop_handler *h = &b->recorder.handler;
  wk__var seen;
  WK_TRY(wk__body_value(b, keep, &seen));
  *out = wk__k_where(h, wk__k_cast(h, seen, WK_BOOL), score, wk__k_constant(h, -INFINITY, b->dtype));
  return h->status;
}

/* What the tape says of the score and of what is read of captured tensors. */
typedef struct derivatives {
  wk__var score; /* its gradient; 0: it is not asked for */
  stored reads[WK__BODY_MAX_READS];
  int read_count;
} derivatives;

/* A gradient that the engine gave; NULL: nothing flowed. */
static wk_status gradient_value(wk__body *b, wk_tensor *grad, wk__var *out) {
  *out = grad ? 0 : wk__k_constant(&b->recorder.handler, 0, b->dtype);
  if (grad) WK_TRY(wk__body_value(b, grad, out));
  *out = as_score(b, *out);
  return b->recorder.handler.status;
}

static wk_status take_read(wk__body *b, const wk__body_read *read, wk_tensor *grad, derivatives *out) {
  stored *s = &out->reads[out->read_count++];
  *s = (stored){.op = WK__LOOP_store_add, .to = read->place};
  s->to.buffer = (uint8_t)(s->to.buffer + b->captured_count);
  return gradient_value(b, grad, &s->value);
}

static wk_status take_gradients(wk__body *b, wk_tensor *const *grads, derivatives *out) {
  if (b->score->keys & WK__KEY_AUTOGRAD) WK_TRY(gradient_value(b, grads[0], &out->score));
  for (int i = 0; i < b->read_count; i++)
    if (grads[1 + i]) WK_TRY(take_read(b, &b->reads[i], grads[1 + i], out));
  return WK_OK;
}

/* Runs the tape of the calls that gave `modified`. grads: of the score, then of what was read. */
static wk_status run_tape(wk__body *b, wk_tensor *modified, wk_tensor *seed, wk_tensor **grads) {
  wk_tensor *inputs[1 + WK__BODY_MAX_READS], *found[1 + WK__BODY_MAX_READS] = {NULL};
  int places[1 + WK__BODY_MAX_READS], count = 0;
  for (int i = 0; i <= b->read_count; i++) {
    wk_tensor *input = i ? b->reads[i - 1].value : b->score;
    if (input->keys & WK__KEY_AUTOGRAD) inputs[count] = input, places[count++] = i;
  }
  if (!count || !(modified->keys & WK__KEY_AUTOGRAD)) return WK_OK;
  b->deriving = true;
  wk_status status = wk__run_backward(&(wk__backward){.tensors = &modified,
                                                      .grads = &seed,
                                                      .count = 1,
                                                      .inputs = inputs,
                                                      .input_count = count,
                                                      .allow_unused = true,
                                                      .out_grads = found});
  b->deriving = false;
  for (int i = 0; i < count; i++) grads[places[i]] = found[i];
  return status;
}

/* By the tape of the function's calls, of the gradient of what it gave. */
static wk_status differentiate(wk__body *b, wk_tensor *modified, derivatives *out) {
  wk__loop_handler *h = &b->recorder.handler;
  wk_tensor *grads[1 + WK__BODY_MAX_READS] = {NULL};
  wk__spec spec;
  wk__spec_of(&spec, modified);
  wk__var value =
      wk__k_cast(h, wk__body_score(b, WK__BODY_BUFFER_GRADIENT), (wk_dtype)wk__dtypes[modified->dtype].compute);
  WK__OWNED seed = wk__body_new(b, &spec, value);
  if (!seed) return wk_error_category();
  wk_status status = run_tape(b, modified, seed, grads);
  if (status == WK_OK) status = take_gradients(b, grads, out);
  for (int i = 0; i <= b->read_count; i++) wk__release(grads[i]);
  return status == WK_OK ? h->status : status;
}

/* All values first: each text names every captured tensor. */
static wk_status finish(wk__body *b, wk_tensor *modified, wk_tensor *keep, wk__body_texts *out) {
  wk__var own, score, masked = 0;
  derivatives d = {0};
  WK_TRY(wk__body_value(b, b->score, &own));
  score = own;
  if (modified) WK_TRY(find_score(b, modified, &score));
  if (keep) WK_TRY(find_masked(b, score, keep, &masked));
  if (score != own) WK_TRY(differentiate(b, modified, &d));
  if (score != own) WK_TRY(print_value(b, score, &out->score));
  if (masked) WK_TRY(print_value(b, masked, &out->masked));
  if (d.score) WK_TRY(print_value(b, d.score, &out->derivative));
  return d.read_count ? print_part(b, d.reads, d.read_count, true, &out->captured) : WK_OK;
}

wk_status wk__body_finish(wk__body *b, wk_tensor *modified, wk_tensor *keep, wk__body_texts *out) {
  *out = (wk__body_texts){0};
  if (b->failed) return wk__body_refuse("it has failed");
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
  wk__string_release(&texts->captured);
}
