/* The innermost layer: shape rule, outputs, kernel. In-place and out= forms are derived here: the same call with a
 * destination, checked, and written through a temporary where source and destination overlap in another way than
 * element on element. In: complete arguments. Out: owned results. Tests: tests/c/test_ops.c, tests/ops/. */
#include "ops/complex_calls.h"
#include "ops/internal.h"
#include "ops/plan.h"
#include "random/generator.h"

/* ---- destinations ---- */

wk_status wk__shape_mismatch(const wk_tensor *destination, const wk__spec *spec) {
  wk__string text = {0};
  wk__print_sizes(&text, destination->sizes, destination->ndim);
  wk__string_append(&text, " doesn't match the broadcast shape ");
  wk__print_sizes(&text, spec->sizes, spec->ndim);
  wk_status status = wk_fail(WK_RUNTIME_ERROR, "output with shape %s", text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

wk_status wk__check_overlap(const wk_tensor *destination) {
  if (!wk__has_internal_overlap(destination)) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR,
                 "unsupported operation: more than one element of the written-to tensor refers to a single memory "
                 "location. Please clone() the tensor before performing the operation.");
}

static bool has_sizes(const wk_tensor *t, const wk__spec *spec) {
  if (t->ndim != spec->ndim) return false;
  for (int d = 0; d < t->ndim; d++)
    if (!wk_int_eq(t->sizes[d], spec->sizes[d])) return false;
  return true;
}

static wk_status too_large(const wk__spec *spec) {
  wk__string text = {0};
  wk__print_sizes(&text, spec->sizes, spec->ndim);
  wk_status status =
      wk_fail(WK_RUNTIME_ERROR, "Storage size calculation overflowed with sizes=%s", text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

static wk_status resize_to(wk_tensor *t, const wk__spec *spec) {
  wk__spec own;
  wk__spec_copy(&own, spec);
  own.dtype = t->dtype;
  own.device = t->device;
  own.offset = t->offset;
  wk_int bytes = wk_int_mul(wk_int_add(own.offset, wk__spec_numel(&own)), wk_int_of((int64_t)wk__itemsize(t)));
  if (WK_UNLIKELY(wk_int_is_poisoned(bytes))) return too_large(&own);
  if (t->storage) WK_TRY(wk__storage_resize(t->storage, bytes.bits));
  return wk__tensor_set_geometry(t, &own);
}

static bool is_written_argument(const wk__call *c, const wk_tensor *destination) {
  return c->args[0].tag == WK_VALUE_TENSOR && c->args[0].tensor == destination;
}

static wk_status bad_size(const wk_tensor *destination, const wk__spec *spec) {
  wk__string text = {0};
  wk__print_sizes(&text, destination->sizes, destination->ndim);
  wk__string_append(&text, " and output tensor size ");
  wk__print_sizes(&text, spec->sizes, spec->ndim);
  wk_status status =
      wk_fail(WK_RUNTIME_ERROR, "Bad in-place call: input tensor size %s should match", text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

/* Loops convert what they write into their first argument, and look at its sizes first; kernels of their own do not. */
static wk_status check_in_place(const wk__call *c, const wk__spec *spec, const wk_tensor *destination) {
  wk_dtype from = (wk_dtype)spec->dtype, to = (wk_dtype)destination->dtype;
  bool loop = c->op->tags & WK__TAG_POINTWISE || c->op->compose, sized = has_sizes(destination, spec);
  if (!loop && from != to)
    return wk_fail(WK_RUNTIME_ERROR, "Bad in-place call: input tensor dtype %s and output tensor dtype %s should match",
                   wk__dtype_c_name(to), wk__dtype_c_name(from));
  if (!sized) return loop ? wk__shape_mismatch(destination, spec) : bad_size(destination, spec);
  return wk__check_inplace_dtype(c->op, from, to);
}

static wk_status check_destination(const wk__call *c, int r, wk_tensor *destination) {
  const wk__spec *spec = &c->specs[r];
  WK_TRY(wk__check_out_device(c->op, spec, destination));
  if (is_written_argument(c, destination)) {
    WK_TRY(check_in_place(c, spec, destination));
    return c->op->tags & WK__TAG_FILLS ? WK_OK : wk__check_overlap(destination);
  }
  WK_TRY(wk__check_out_dtype(c->op, (wk_dtype)spec->dtype, (wk_dtype)destination->dtype));
  if (!has_sizes(destination, spec)) {
    if (c->op->tags & (WK__TAG_POINTWISE | WK__TAG_OUT_APART)) WK_TRY(wk__check_overlap(destination)); /* as given */
    WK_TRY(resize_to(destination, spec));
  }
  return wk__check_overlap(destination);
}

static bool same_geometry(const wk_tensor *a, const wk_tensor *b) {
  if (a->ndim != b->ndim || a->offset.bits != b->offset.bits || a->dtype != b->dtype) return false;
  return memcmp(a->sizes, b->sizes, 2 * a->ndim * sizeof *a->sizes) == 0;
}

static bool overlaps(const wk_tensor *a, const wk_tensor *b) {
  if (!a->storage || a->storage != b->storage) return false;
  int64_t a_begin, a_end, b_begin, b_end;
  wk__memory_range(a, &a_begin, &a_end);
  wk__memory_range(b, &b_begin, &b_end);
  return a_begin < b_end && b_begin < a_end;
}

wk__meeting wk__meet(const wk_tensor *a, const wk_tensor *b) {
  if (a == b) return WK__MEET_ALL;
  if (!a->storage || a->storage != b->storage) return WK__MEET_NOT;
  if ((a->flags | b->flags) & WK__TENSOR_SYMBOLIC) return WK__MEET_UNKNOWN;
  if (wk__numel(a) == 0 || wk__numel(b) == 0) return WK__MEET_NOT;
  if (!wk__non_overlapping_and_dense(a) || !wk__non_overlapping_and_dense(b)) return WK__MEET_UNKNOWN;
  int64_t a_begin, a_end, b_begin, b_end;
  wk__memory_range(a, &a_begin, &a_end);
  wk__memory_range(b, &b_begin, &b_end);
  bool same = a_begin == b_begin && a_end == b_end && a->ndim == b->ndim;
  if (same && memcmp(a->strides, b->strides, a->ndim * sizeof *a->strides) == 0) return WK__MEET_ALL;
  return a_begin < b_end && b_begin < a_end ? WK__MEET_PARTLY : WK__MEET_NOT;
}

wk_status wk__refuse_shared_memory(void) {
  return wk_fail(WK_RUNTIME_ERROR,
                 "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
                 "memory location. Please clone() the tensor before performing the operation.");
}

static wk_status check_argument(const wk_op *op, const wk_tensor *destination, const wk_tensor *t) {
  if (WK_LIKELY(!t || t == destination || t->storage != destination->storage)) return WK_OK;
  wk__meeting m = wk__meet(destination, t);
  bool bad = m == WK__MEET_PARTLY || (m == WK__MEET_ALL && op->tags & WK__TAG_PLACES);
  return bad ? wk__refuse_shared_memory() : WK_OK;
}

wk_status wk__check_apart(const wk_op *op, const wk_value *args, const wk_tensor *destination) {
  bool written = args[0].tag == WK_VALUE_TENSOR && args[0].tensor == destination;
  if (!(op->tags & WK__TAG_POINTWISE) && !(written && op->tags & (WK__TAG_PLACES | WK__TAG_MUTATES))) return WK_OK;
  WK__EACH_TENSOR(tensor, args, op->schema.parameter_count) WK_TRY(check_argument(op, destination, tensor));
  return WK_OK;
}

static bool lies_as(const wk_tensor *t, const wk__spec *spec) {
  return t->dtype == spec->dtype && memcmp(t->strides, spec->strides, spec->ndim * sizeof *spec->strides) == 0;
}

/* Writing element on element is safe for pointwise bodies, and so is writing places of argument 0 itself; everything
 * else that overlaps goes through a temporary. So does what a kernel writes that knows only the strides of its shape
 * rule, or that has several results, which may overlap each other. */
static bool needs_temporary(const wk__call *c, int r, const wk_tensor *destination) {
  bool in_place = c->op->tags & WK__TAG_PLACES && is_written_argument(c, destination);
  for (int i = 0; i < c->op->schema.parameter_count; i++) {
    if (c->args[i].tag != WK_VALUE_TENSOR) continue;
    const wk_tensor *t = c->args[i].tensor;
    if (i == 0 && in_place) continue;
    if (overlaps(t, destination) && !((c->op->tags & WK__TAG_POINTWISE) && same_geometry(t, destination))) return true;
  }
  return (c->op->has_kernel || c->op->routine) && !in_place &&
         (c->op->schema.result_count > 1 || !lies_as(destination, &c->specs[r]));
}

/* ---- running ---- */

enum { NO_SPEC = 255 }; /* a rank that no shape rule gives */

static void release_outputs(wk_tensor **outputs, int count) {
  for (int r = 0; r < count; r++) wk__release(outputs[r]);
}

/* What becomes of a result that has a destination. */
typedef struct place {
  bool through_temporary;
  uint32_t version; /* of the destination, before */
} place;

static wk_status make_outputs(const wk__call *c, wk_tensor **outputs, place *places) {
  for (int r = 0; r < c->op->schema.result_count; r++) {
    wk_tensor *destination = c->destinations ? c->destinations[r] : NULL;
    if (destination) WK_TRY(check_destination(c, r, destination));
    if (destination) WK_TRY(wk__check_apart(c->op, c->args, destination));
    if (destination) places[r] = (place){needs_temporary(c, r, destination), wk__version(destination)};
    bool direct = destination && !places[r].through_temporary;
    outputs[r] = direct ? wk__retain(destination) : wk__tensor_from_spec(&c->specs[r]);
    if (!outputs[r]) return wk_error_category();
  }
  return WK_OK;
}

static bool nothing_to_do(const wk__call *c) {
  for (int r = 0; r < c->op->schema.result_count; r++)
    if (c->outputs[r]->storage && c->outputs[r]->numel.bits != 0) return false;
  return true;
}

/* Outputs that are empty, or on device meta. */
static bool is_skipped(const wk__call *c) { return nothing_to_do(c) && !(c->op->tags & WK__TAG_RANDOM); }

wk_device wk__call_device(const wk__call *c) {
  if (c->outputs) return c->outputs[0]->device;
  for (int i = 0; i < c->op->schema.parameter_count; i++)
    if (c->args[i].tag == WK_VALUE_TENSOR) return c->args[i].tensor->device;
  return WK__CPU_DEVICE;
}

static wk_status check_generators(const wk__call *c, wk_device device) {
  for (int i = 0; i < c->op->schema.parameter_count; i++) {
    const wk__generator *g = c->args[i].tag == WK_VALUE_GENERATOR ? c->args[i].generator : NULL;
    if (g && g->device.type != device.type && device.type != WK_META)
      return wk_fail(WK_RUNTIME_ERROR, "Expected a '%s' device type for generator but found '%s'",
                     wk__device_type_name(device.type), wk__device_type_name(g->device.type));
  }
  return WK_OK;
}

static wk_status check_words(const wk__call *c) {
  for (int i = 0; i < c->op->schema.parameter_count; i++)
    if (c->args[i].tag == WK_VALUE_TENSOR) WK_TRY(wk__check_words(c->op, c->args[i].tensor->dtype));
  return c->outputs && c->outputs[0] ? wk__check_words(c->op, c->outputs[0]->dtype) : WK_OK;
}

static wk_status run_code(wk__call *c) {
  if (c->op->routine) return c->op->routine(c);
  if (WK_UNLIKELY(!c->op->takes_complex && wk__call_is_complex(c))) return wk__run_complex(c);
  WK_TRY(check_words(c));
  wk_device device = wk__call_device(c);
  if (c->op->tags & WK__TAG_RANDOM) WK_TRY(check_generators(c, device));
  const wk__device_type *type = wk__device_types[device.type == WK_META ? WK_CPU : device.type]; /* it says that */
  wk__kernel_fn *kernel = type && type->kernels ? type->kernels[c->op->number] : NULL;
  if (WK_LIKELY(kernel != NULL)) return kernel(c);
  return wk_fail(WK_NOT_IMPLEMENTED, "Could not run 'aten::%s' with arguments from the '%s' backend.", c->op->name,
                 wk__device_type_name(device.type));
}

static wk_status run_here(wk__call *c) {
  if (WK_UNLIKELY((c->op->halves || c->op->of_complex) && c->op->lower) && wk__call_is_complex(c))
    return wk__run_complex(c);
  wk_status status = c->op->lower ? wk__run_lowered(c, c->outputs) : run_code(c);
  return WK_UNLIKELY(status == WK_INDEX_ERROR) ? wk__explain_bad_index(c->op) : status;
}

/* A tensor of the CPU without dims may stand beside those of any device. */
static bool is_visitor(const wk_value *v, wk_device device) {
  return v->tag == WK_VALUE_TENSOR && v->tensor->device.type == WK_CPU && device.type != WK_CPU && v->tensor->ndim == 0;
}

static wk_status run_with_visitors(wk__call *c, wk_device device) {
  wk_value args[WK__MAX_ARGS], to = {.tag = WK_VALUE_DEVICE, .device = device};
  const wk_value *given = c->args;
  int count = c->op->schema.parameter_count;
  wk_status status = WK_OK;
  memcpy(args, given, (size_t)count * sizeof *args);
  for (int i = 0; i < count && status == WK_OK; i++)
    if (is_visitor(&given[i], device))
      status = wk__compute(WK__OP(_to_copy), (wk_value[]){given[i], {0}, to}, NULL, &args[i]);
  c->args = args;
  if (status == WK_OK) status = run_here(c);
  c->args = given;
  for (int i = 0; i < count; i++)
    if (is_visitor(&given[i], device) && args[i].tensor != given[i].tensor) wk_value_release(&args[i]);
  return status;
}

static wk_status run_into(wk__call *c) {
  if (is_skipped(c)) return WK_OK;
  WK_TRY(wk__check_devices(c));
  wk_device device = c->outputs[0]->device;
  if (WK_LIKELY(device.type == WK_CPU)) return run_here(c);
  for (int i = 0; i < c->op->schema.parameter_count; i++)
    if (c->op->tags & WK__TAG_POINTWISE && is_visitor(&c->args[i], device)) return run_with_visitors(c, device);
  return run_here(c);
}

/* A kernel may fill a new tensor piece by piece: none of that is a write that anybody could have seen. */
static void forget_writes(const wk_tensor *fresh) {
  if (fresh->storage) atomic_store_explicit(&fresh->storage->version, 0, memory_order_relaxed);
}

/* Results that had a destination become that destination. */
static wk_status finish(const wk__call *c, wk_tensor **outputs, const place *places) {
  for (int r = 0; r < c->op->schema.result_count; r++) {
    wk_tensor *destination = c->destinations ? c->destinations[r] : NULL;
    if (destination && places[r].through_temporary) {
      WK_TRY(wk__copy_into(destination, outputs[r]));
      wk__release(outputs[r]);
      outputs[r] = wk__retain(destination);
    }
    bool counted = destination && wk__version(destination) != places[r].version; /* by what wrote it */
    if (destination && !counted) wk__version_bump(destination);
    if (!destination && !c->op->lower) forget_writes(outputs[r]);
  }
  for (int r = 0; r < c->op->schema.result_count; r++) c->results[r] = wk__v_tensor(outputs[r]);
  return WK_OK;
}

/* That there is no kernel for a dtype is found last: what is wrong with a written argument goes before. */
static wk_status no_kernel(const wk__call *c) {
  wk_tensor *destination = c->destinations ? c->destinations[0] : NULL;
  if (destination && c->specs[0].ndim != NO_SPEC && is_written_argument(c, destination))
    WK_TRY(check_in_place(c, &c->specs[0], destination));
  return WK_NOT_IMPLEMENTED;
}

static wk_status compute_new(wk__call *c) {
  wk_tensor *outputs[WK__MAX_RESULTS] = {NULL};
  place places[WK__MAX_RESULTS];
  c->outputs = outputs;
  c->specs[0].ndim = NO_SPEC;
  wk_status status = c->op->meta(c);
  if (WK_UNLIKELY(status == WK_NOT_IMPLEMENTED)) status = no_kernel(c);
  if (status == WK_OK) status = make_outputs(c, outputs, places);
  if (status == WK_OK) status = run_into(c);
  if (status == WK_OK) status = finish(c, outputs, places);
  if (status != WK_OK) release_outputs(outputs, c->op->schema.result_count);
  return status;
}

static wk_status compute_view(wk__call *c) {
  WK_TRY(c->op->view(c));
  wk_tensor *result = wk__tensor_alias(c->args[0].tensor, &c->specs[0]);
  if (!result) return wk_error_category();
  if (wk__thread.mode.grad_enabled && c->op != WK__OP(detach) && c->op != WK__OP(view_dtype)) {
    wk_tensor *self = c->args[0].tensor;
    result->base = wk__retain(self->base ? self->base : self);
  }
  c->results[0] = wk__v_tensor(result);
  return WK_OK;
}

/* A composite, a kernel without a shape rule or a view with a destination: made first, then copied. */
static wk_status compute_then_copy(wk__call *c) {
  wk_tensor *const *destinations = c->destinations;
  wk_value made[WK__MAX_RESULTS] = {{0}};
  WK_TRY(wk_call(c->op, c->args, NULL, made));
  wk_status status = WK_OK;
  for (int r = 0; r < c->op->schema.result_count && status == WK_OK; r++) {
    if (!destinations[r]) continue;
    wk__spec_of(&c->specs[r], made[r].tensor);
    status = check_destination(c, r, destinations[r]);
    if (status == WK_OK) status = wk__copy_into(destinations[r], made[r].tensor);
  }
  for (int r = 0; r < c->op->schema.result_count; r++) {
    if (status == WK_OK && destinations[r]) {
      wk_value_release(&made[r]);
      made[r] = wk__v_tensor(wk__retain(destinations[r]));
    }
    if (status != WK_OK)
      wk_value_release(&made[r]);
    else
      c->results[r] = made[r];
  }
  return status;
}

static void log_call(const wk_op *op, const wk_value *args) {
  wk__string text = {0};
  for (int i = 0; i < op->schema.parameter_count; i++) {
    if (args[i].tag != WK_VALUE_TENSOR) continue;
    wk__string_printf(&text, " %s=%s", op->schema.parameters[i].name, wk_dtype_name((wk_dtype)args[i].tensor->dtype));
    wk__print_sizes(&text, args[i].tensor->sizes, args[i].tensor->ndim);
  }
  wk__log_print(WK__LOG_OPS, "%s%s", op->name, text.text ? text.text : "");
  wk__string_release(&text);
}

wk_status wk__compute(const wk_op *op, const wk_value *args, wk_tensor *const *destinations, wk_value *results) {
  wk__spec specs[WK__MAX_RESULTS];
  wk__call call = {.op = op,
                   .args = args,
                   .destinations = destinations,
                   .results = results,
                   .specs = specs,
                   .compute_dtype = WK_DTYPE_NONE};
  if (wk__log_on(WK__LOG_OPS)) log_call(op, args);
  if (op->tags & WK__TAG_FUSED) return op->routine(&call);
  if (op->meta && !op->compose) return compute_new(&call);
  if (destinations) return compute_then_copy(&call);
  if (op->view) return compute_view(&call);
  if (op->routine || op->has_kernel) {
    WK_TRY(wk__check_one_device(op, args));
    return run_code(&call);
  }
  WK_TRY(wk__check_composite(op, args));
  /* A composite with a derivative of its own: its parts leave no trace on the tape. */
  wk__keys before = wk__thread.mode.keys_off;
  wk__thread.mode.keys_off |= WK__KEY_AUTOGRAD;
  wk_status status = op->compose(&call);
  wk__thread.mode.keys_off = before;
  return status;
}

static wk_status check_made(const wk_op *op, const wk_tensor *made, const wk__spec *spec) {
  bool same = has_sizes(made, spec) && made->dtype == spec->dtype;
  for (int d = 0; same && d < made->ndim; d++)
    same = wk_int_eq(made->strides[d], spec->strides[d]) || made->numel.bits == 0 || wk__size(made, d) == 1;
  if (same) return WK_OK;
  wk__string text = {0};
  wk__print_sizes(&text, made->sizes, made->ndim);
  wk__print_sizes(&text, made->strides, made->ndim);
  wk__string_append(&text, ", and not for ");
  wk__print_sizes(&text, spec->sizes, spec->ndim);
  wk__print_sizes(&text, spec->strides, spec->ndim);
  wk_status status = wk_fail(WK_VALUE_ERROR, "a result of %s was made for %s", op->name, text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

#ifdef WICK_DEBUG
/* On a copy of the call: it goes on knowing as little as in a release build. */
static wk_status check_all_made(wk__call call, wk_tensor **outputs) {
  wk__spec specs[WK__MAX_RESULTS];
  call.specs = specs;
  WK_TRY(call.op->meta(&call));
  for (int r = 0; r < call.op->schema.result_count; r++) WK_TRY(check_made(call.op, outputs[r], &specs[r]));
  return WK_OK;
}
#endif

wk_status wk__compute_into(const wk_op *op, const wk_value *args, wk_tensor **outputs, bool check) {
  wk__spec specs[WK__MAX_RESULTS];
  wk__call call = {.op = op, .args = args, .specs = specs, .outputs = outputs, .compute_dtype = WK_DTYPE_NONE};
  if (wk__log_on(WK__LOG_OPS)) log_call(op, args);
  if (op->tags & WK__TAG_FUSED) return op->routine(&call);
#ifdef WICK_DEBUG
  if (!check) WK_TRY(check_all_made(call, outputs));
#endif
  if (check || op->lower) WK_TRY(op->meta(&call)); /* it says what the body computes in */
  for (int r = 0; check && r < op->schema.result_count; r++) WK_TRY(check_made(op, outputs[r], &specs[r]));
  return run_into(&call);
}

wk_status wk__copy_into(wk_tensor *destination, const wk_tensor *source) {
  wk_value args[3] = {wk__v_tensor(destination), wk__v_tensor((wk_tensor *)source), wk__v_bool(false)}, result = {0};
  WK_TRY(wk__compute(WK__OP(copy_), args, NULL, &result));
  wk_value_release(&result);
  return WK_OK;
}
