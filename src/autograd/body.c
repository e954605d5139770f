/* Values of a score body and the tensors that it captures; body.h says what these are.
 * Tests: tests/python/test_flex_attention.py. */
#include <stdatomic.h>

#include "autograd/autograd.h"
#include "autograd/body_internal.h"
#include "ops/internal.h"
#include "trace/trace.h"
#include "wick/autograd.h"

/* What the storage of a value is: the storage is its identity, since views and what the tape keeps share it. */
typedef struct cell {
  uint64_t body;
  wk__var value;   /* in the dtype that the tensor's computes in */
  int64_t element; /* memory for who asks later: all bits, as a float a NaN */
} cell;

wk_status wk__body_refuse(const char *what) { return wk_fail(WK_UNSUPPORTED, "a body of scores: %s", what); }

/* ================================================== values ====================================================== */

static void release_cell(void *context) { wk__free(context); }

static cell *cell_of(const wk__body *b, const wk_tensor *t) {
  if (!b || !t || !t->storage || t->storage->release != release_cell) return NULL;
  cell *c = t->storage->context;
  return c->body == b->number ? c : NULL;
}

bool wk__body_has(const wk__body *b, const wk_tensor *tensor) { return cell_of(b, tensor); }

wk_status wk__body_realize(wk_tensor *tensor, const char *why) {
  wk__body *b = wk__thread.body;
  if (WK_LIKELY(!cell_of(b, tensor))) return wk__trace_realize(tensor, why);
  b->failed = true;
  return wk__body_refuse("a value is looked at");
}

wk_tensor *wk__body_new(const wk__body *b, const wk__spec *spec, wk__var value) {
  cell *c = wk__alloc_zeroed(sizeof *c);
  if (!c) return NULL;
  *c = (cell){.body = b->number, .value = value, .element = -1};
  wk_storage *storage = wk__storage_from_memory(&c->element, sizeof c->element, release_cell, c);
  if (!storage) wk__free(c);
  return storage ? wk__tensor_over(storage, spec) : NULL;
}

wk_status wk__body_give(wk__body *b, const wk__spec *spec, wk__var value, wk_value *result) {
  WK_TRY(b->recorder.handler.status);
  wk_tensor *t = wk__body_new(b, spec, value);
  if (!t) return wk_error_category();
  *result = wk__v_tensor(t);
  return WK_OK;
}

/* One number for each score: dims as those of a score matrix, all of size 1, so that indexing by it is as it is by a
 * tensor of all places. */
static wk_tensor *new_place(const wk__body *b, wk_dtype dtype, wk__var value) {
  const wk_int ones[] = {wk_int_of(1), wk_int_of(1), wk_int_of(1), wk_int_of(1)};
  wk__spec spec = {0};
  wk__spec_contiguous(&spec, dtype, b->device, 4, ones);
  return wk__body_new(b, &spec, value);
}

/* ================================================= captured tensors ============================================= */

static bool same_tensor(const wk_tensor *a, const wk_tensor *b) {
  if (a == b || (a->keys | b->keys) & WK__KEY_AUTOGRAD) return a == b;
  if (!a->storage || a->storage != b->storage || a->dtype != b->dtype || a->ndim != b->ndim) return false;
  bool same = wk_int_same(a->offset, b->offset);
  for (int d = 0; same && d < a->ndim; d++)
    same = wk_int_same(a->sizes[d], b->sizes[d]) && wk_int_same(a->strides[d], b->strides[d]);
  return same;
}

/* The buffer that it is read from. */
static wk_status capture(wk__body *b, wk_tensor *t, int *out_buffer) {
  for (int k = 0; k < b->captured_count; k++) {
    *out_buffer = WK__BODY_BUFFER_CAPTURED + k;
    if (same_tensor(b->captured[k], t)) return WK_OK;
  }
  bool computes = !wk_dtype_is_complex((wk_dtype)t->dtype) && !wk__dtype_is_float8(t->dtype) &&
                  !wk__dtype_is_word(t->dtype) && wk__device_equal(t->device, b->device) &&
                  t->ndim <= WK__NEST_MAX_DIMS;
  if (!computes) return wk__body_refuse("a captured tensor of a dtype or device that it does not compute with");
  if (b->captured_count == WK__BODY_MAX_CAPTURED) return wk__body_refuse("many captured tensors");
  *out_buffer = WK__BODY_BUFFER_CAPTURED + b->captured_count;
  b->nest->buffers[*out_buffer] = (wk__nest_buffer){.dtype = t->dtype, .ndim = t->ndim};
  b->nest->buffer_count = (uint8_t)(*out_buffer + 1);
  b->captured[b->captured_count++] = wk__retain(t);
  return WK_OK;
}

/* Its gradient is asked for. value: a tensor of the element, or the captured one of one element. */
static wk_status note_read(wk__body *b, const wk_tensor *captured, wk_tensor *value, const wk__access *place) {
  if (!(captured->keys & WK__KEY_AUTOGRAD) || !wk__thread.mode.grad_enabled) return WK_OK;
  for (int i = 0; i < b->read_count; i++)
    if (b->reads[i].value == value) return WK_OK;
  if (b->read_count == WK__BODY_MAX_READS) return wk__body_refuse("many reads of captured tensors");
  b->reads[b->read_count++] = (wk__body_read){wk__retain(value), *place};
  return WK_OK;
}

static wk_status load_there(wk__body *b, wk_tensor *t, wk__var *out) {
  int buffer;
  WK_TRY(capture(b, t, &buffer));
  wk__access at = {.buffer = (uint8_t)buffer, .ndim = t->ndim};
  for (int d = 0; d < t->ndim; d++) at.index[d] = wk_int_of(0);
  *out = wk__k_load(&b->recorder.handler, &at);
  WK_TRY(b->recorder.handler.status);
  return note_read(b, t, t, &at);
}

/* The only element of a captured tensor: a number of the host goes to the body's device, which the tape, above this
 * layer, would not see. */
static wk_status load_one(wk__body *b, wk_tensor *t, wk__var *out) {
  if (!wk__is_one_element(t)) return wk__body_refuse("a tensor of several elements beside a score");
  if (t->ndim > 0 || t->device.type != WK_CPU || b->device.type == WK_CPU) return load_there(b, t, out);
  if (t->keys & WK__KEY_AUTOGRAD && wk__thread.mode.grad_enabled)
    return wk__body_refuse("a host's number requires grad");
  wk_value args[] = {wk__v_tensor(t), {0}, {.tag = WK_VALUE_DEVICE, .device = b->device}}, made = {0};
  WK_TRY(wk_call(WK__OP(_to_copy), args, NULL, &made));
  wk_status status = load_there(b, made.tensor, out);
  wk_value_release(&made);
  return status;
}

wk_status wk__body_value(wk__body *b, wk_tensor *t, wk__var *out) {
  const cell *c = cell_of(b, t);
  if (!c) return load_one(b, t, out);
  *out = c->value;
  return wk__is_one_element(t) ? WK_OK : wk__body_refuse("a score is expanded");
}

wk_status wk__body_number(wk__body *b, const wk_value *number, wk__var *out) {
  wk_value args[WK__MAX_ARGS] = {*number, wk__v_dtype(WK_FLOAT64)}, made = {0};
  WK_TRY(wk_call(WK__OP(scalar_tensor), args, NULL, &made));
  wk_status status = load_one(b, made.tensor, out);
  wk_value_release(&made);
  return status;
}

wk_status wk__body_pick(wk__body *b, const wk_value *args, wk_value *result) {
  wk__loop_handler *h = &b->recorder.handler;
  wk_tensor *self = args[0].tensor;
  const wk_value *list = &args[1];
  int buffer;
  if (cell_of(b, self) || (int)list->count != self->ndim || self->ndim == 0)
    return wk__body_refuse("a part of a tensor is taken");
  WK_TRY(capture(b, self, &buffer));
  wk__access at = {.buffer = (uint8_t)buffer, .ndim = self->ndim};
  const wk_tensor *like = list->tensors[0]; /* of the most dims */
  for (int d = 0; d < self->ndim; d++) {
    wk_tensor *index = list->tensors[d];
    wk__var place;
    if (!index || wk__dtype_category((wk_dtype)index->dtype) != WK__INTEGER_KIND)
      return wk__body_refuse("a mask as an index");
    WK_TRY(wk__body_value(b, index, &place));
    at.index[d] = wk_int_of(0);
    at.indirect[d] = wk__k_check_index(h, wk__k_cast(h, place, WK_INT64), wk_int_buffer_size(buffer, d));
    if (index->ndim > like->ndim) like = index;
  }
  wk__spec spec = {0};
  wk__spec_contiguous(&spec, (wk_dtype)self->dtype, b->device, like->ndim, like->sizes);
  WK_TRY(wk__body_give(b, &spec, wk__k_load(h, &at), result));
  wk_status status = note_read(b, self, result->tensor, &at);
  if (status != WK_OK) wk_value_release(result);
  return status;
}

/* ================================================== the whole =================================================== */

wk__var wk__body_score(wk__body *b, int buffer) {
  wk__access at = {.buffer = (uint8_t)buffer, .ndim = 2, .index = {wk__loop_i(0), wk__loop_i(1)}};
  return wk__k_load(&b->recorder.handler, &at);
}

static wk_status make_values(wk__body *b, bool differentiable) {
  wk__loop_handler *h = &b->recorder.handler;
  for (int buffer = 0; buffer < WK__BODY_BUFFER_CAPTURED; buffer++)
    b->nest->buffers[buffer] = (wk__nest_buffer){.dtype = (uint8_t)b->dtype, .ndim = 2};
  b->nest->buffer_count = WK__BODY_BUFFER_CAPTURED;
  b->nest->pointwise_dims = 2;
  for (int d = 0; d < 2; d++) b->nest->sizes[d] = wk_int_buffer_size(WK__BODY_BUFFER_SCORES, d);
  b->score = new_place(b, b->dtype, wk__body_score(b, WK__BODY_BUFFER_SCORES));
  for (int p = 0; p < WK__BODY_PARAMS; p++) {
    wk__var place = wk__k_param(h, p, WK_INT64);
    if (p >= WK__BODY_QUERY) place = wk__k_add(h, place, wk__k_index(h, wk__loop_i(p - WK__BODY_QUERY)));
    if (!(b->places[p] = new_place(b, WK_INT64, place))) return wk_error_category();
  }
  WK_TRY(h->status);
  if (!b->score) return wk_error_category();
  return differentiable ? wk_set_requires_grad(b->score, true) : WK_OK;
}

wk__body *wk__body_begin(wk_dtype scores, wk_device device, bool differentiable) {
  static _Atomic uint64_t last;
  if (wk__thread.body) {
    (void)!wk__body_refuse("one inside of another");
    return NULL;
  }
  wk__body *b = wk__alloc_zeroed(sizeof *b);
  if (!b) return NULL;
  b->number = atomic_fetch_add(&last, 1) + 1;
  b->dtype = scores, b->device = device;
  b->nest = wk__nest_create();
  b->env = wk__shape_env_create();
  wk_status status = b->nest && b->env ? WK_OK : WK_OUT_OF_MEMORY;
  if (status == WK_OK) {
    wk__recorder_init(&b->recorder, b->nest);
    wk__shape_env *outer = wk__shape_env_set_current(b->env);
    status = make_values(b, differentiable);
    wk__shape_env_set_current(outer);
  }
  if (status != WK_OK) {
    wk__body_release(b);
    return NULL;
  }
  b->running = true;
  wk__thread.body = b;
  wk__thread.mode.keys_on |= WK__KEY_BODY;
  return b;
}

void wk__body_end(wk__body *b) {
  if (!b || !b->running) return;
  b->running = false;
  wk__thread.body = NULL;
  wk__thread.mode.keys_on &= (wk__keys)~WK__KEY_BODY;
}

void wk__body_release(wk__body *b) {
  if (!b) return;
  wk__body_end(b);
  wk__release(b->score);
  for (int p = 0; p < WK__BODY_PARAMS; p++) wk__release(b->places[p]);
  for (int k = 0; k < b->captured_count; k++) wk__release(b->captured[k]);
  for (int i = 0; i < b->read_count; i++) wk__release(b->reads[i].value);
  wk__nest_release(b->nest);
  wk__shape_env_release(b->env);
  wk__free(b);
}
