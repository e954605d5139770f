/* Rows with a kernel: the device's own where it has one; what the row is decomposed into, where a rule says that; for
 * the rest the CPU's beside copies of the memory, which is right and slow: a row's first call warns, and WICK_LOGS=ops
 * says each.
 *
 * On the host a call sees the same tensors over copies of their whole storages, so that what shares memory still does;
 * what it has written goes back. Tests: tests/device/. */
#include <stdio.h>

#include "cpu/cpu.h"
#include "cpu/kernels.h"
#include "cuda/internal.h"
#include "cuda/kernels.h"
#include "decompose/decompose.h"
#include "ops/internal.h"
#include "ops/ops.h"
#include "random/generator.h"
#include "wick/operators.h"

typedef struct mirror {
  wk_storage *storage, *copy; /* borrowed; owned */
} mirror;

typedef struct mirrored {
  mirror *storages;
  int64_t count, capacity;
  wk_tensor **tensors; /* owned: of the host's call */
  int64_t tensor_count, tensor_capacity;
  wk__generator *generator; /* owned; or NULL */
} mirrored;

static void free_copy(void *copy) { wk__free(copy); }

static wk_storage *copy_of(mirrored *m, wk_storage *storage) {
  for (int64_t i = 0; i < m->count; i++)
    if (m->storages[i].storage == storage) return m->storages[i].copy;
  wk__host_view view;
  if (wk__grow(&m->storages, &m->capacity, m->count + 1, sizeof *m->storages) != WK_OK) return NULL;
  if (wk__storage_to_host(storage, &view) != WK_OK) return NULL;
  wk_storage *copy = wk__storage_from_memory(view.copy, storage->bytes, free_copy, view.copy);
  if (!copy) {
    wk__host_view_release(&view);
    return NULL;
  }
  m->storages[m->count++] = (mirror){storage, copy};
  return copy;
}

/* The tensor on the host, borrowed; NULL with the error set. One of the CPU is itself. */
static wk_tensor *on_host(mirrored *m, wk_tensor *t) {
  if (!t->storage || t->device.type != WK_CUDA) return t;
  wk__spec spec;
  wk_storage *copy = copy_of(m, t->storage);
  if (!copy || wk__grow(&m->tensors, &m->tensor_capacity, m->tensor_count + 1, sizeof *m->tensors) != WK_OK)
    return NULL;
  wk__spec_of(&spec, t);
  spec.device = WK__CPU_DEVICE;
  spec.offset = t->offset;
  wk_tensor *host = wk__tensor_over(wk__storage_retain(copy), &spec);
  if (host) m->tensors[m->tensor_count++] = host;
  return host;
}

static wk_status mirror_list(mirrored *m, wk_value *v, wk__arena *arena) {
  wk_tensor **list = wk__arena_alloc(arena, (v->count + 1) * sizeof *list);
  if (!list) return WK_OUT_OF_MEMORY;
  for (uint32_t i = 0; i < v->count; i++)
    if (v->tensors[i] && !(list[i] = on_host(m, v->tensors[i]))) return wk_error_category();
  v->tensors = list;
  return WK_OK;
}

/* The last argument of a row that draws may be a generator; without one it would draw from the host's. */
static wk_status mirror_generator(mirrored *m, const wk__call *c, wk_value *args) {
  int last = c->op->schema.parameter_count - 1;
  bool given = args[last].tag == WK_VALUE_GENERATOR;
  wk__generator *theirs = given ? args[last].generator : wk__generator_default_of(wk__call_device(c));
  m->generator = theirs ? wk__cuda_host_generator(theirs) : NULL;
  if (!m->generator) return wk_error_category();
  if (c->op->schema.parameters[last].type == WK__TYPE_GENERATOR)
    args[last] = (wk_value){.tag = WK_VALUE_GENERATOR, .generator = m->generator};
  return WK_OK;
}

static wk_status mirror_args(mirrored *m, const wk__call *c, wk_value *args, wk__arena *arena) {
  int count = c->op->schema.parameter_count;
  memcpy(args, c->args, (size_t)count * sizeof *args);
  for (int i = 0; i < count; i++) {
    if (args[i].tag == WK_VALUE_TENSOR && !(args[i].tensor = on_host(m, args[i].tensor))) return wk_error_category();
    if (args[i].tag == WK_VALUE_TENSORS) WK_TRY(mirror_list(m, &args[i], arena));
    if (args[i].tag == WK_VALUE_DEVICE) args[i].device = WK__CPU_DEVICE;
  }
  return c->op->tags & WK__TAG_RANDOM ? mirror_generator(m, c, args) : WK_OK;
}

/* What the kernel may have written: its outputs and, of a row that mutates, its arguments. */
static wk_status send_back(const mirrored *m, const wk__call *c) {
  for (int64_t i = 0; i < m->count; i++) {
    wk_storage *s = m->storages[i].storage;
    bool written = c->op->tags & WK__TAG_MUTATES;
    for (int r = 0; c->outputs && r < c->op->schema.result_count; r++)
      written |= c->outputs[r] && c->outputs[r]->storage == s;
    if (written) WK_TRY(wk__storage_write(s, 0, s->bytes, m->storages[i].copy->data));
  }
  return WK_OK;
}

/* Results that the kernel has made itself move to the device. */
static wk_status move_results(wk__call *c, wk_value *results, wk_device device) {
  wk_value to = {.tag = WK_VALUE_DEVICE, .device = device};
  for (int r = 0; r < c->op->schema.result_count; r++) {
    wk_value moved = {0};
    if (results[r].tag != WK_VALUE_TENSOR) continue;
    WK_TRY(wk__compute(WK__OP(_to_copy), (wk_value[]){results[r], {0}, to}, NULL, &moved));
    wk_value_release(&results[r]);
    results[r] = moved;
  }
  return WK_OK;
}

static wk_status run_mirrored(wk__call *c, mirrored *m, wk__arena *arena) {
  wk_device device = wk__call_device(c);
  wk_value args[WK__MAX_ARGS], results[WK__MAX_RESULTS] = {{0}};
  wk_tensor *outputs[WK__MAX_RESULTS] = {NULL};
  wk__call host = *c;
  WK_TRY(mirror_args(m, c, args, arena));
  host.args = args;
  for (int r = 0; c->outputs && r < c->op->schema.result_count; r++)
    if (c->outputs[r] && !(outputs[r] = on_host(m, c->outputs[r]))) return wk_error_category();
  if (c->outputs) host.outputs = outputs;
  if (!c->outputs) host.results = results;
  wk_status status = wk__cpu_kernels[c->op->number](&host);
  if (status == WK_OK) status = send_back(m, c);
  if (status == WK_OK && !c->outputs) status = move_results(c, results, device);
  for (int r = 0; !c->outputs && r < c->op->schema.result_count; r++) {
    if (status == WK_OK) c->results[r] = results[r];
    if (status != WK_OK) wk_value_release(&results[r]);
  }
  return status;
}

/* Warns of the first call of a row: a program may wonder why it is slow. */
static void warn_once(const wk_op *op) {
  static const char format[] =
      "The operator 'aten::%s' is not computed on the CUDA device and will fall back to run on the CPU. This may have "
      "performance implications.";
  static struct {
    atomic_flag warned;
    char text[sizeof format + 64];
  } rows[WK__OP_COUNT];
  if (atomic_flag_test_and_set(&rows[op->number].warned)) return;
  (void)snprintf(rows[op->number].text, sizeof rows->text, format, op->name);
  wk__thread.warning = rows[op->number].text;
}

wk_status wk__cuda_run_kernel_on_host(wk__call *c) {
  mirrored m = {0};
  wk__arena arena = {0};
  warn_once(c->op);
  if (wk__log_on(WK__LOG_OPS)) wk__log_print(WK__LOG_OPS, "%s is computed on the host for cuda", c->op->name);
  wk_status status = run_mirrored(c, &m, &arena);
  for (int64_t i = 0; i < m.tensor_count; i++) wk__release(m.tensors[i]);
  for (int64_t i = 0; i < m.count; i++) wk__storage_release(m.storages[i].copy);
  wk__generator_release(m.generator);
  wk__free(m.tensors);
  wk__free(m.storages);
  wk__arena_release(&arena);
  return status;
}

/* ---- by operators ---- */

wk_tensor *wk__cuda_plain(wk_tensor *t, wk_dtype dtype) {
  t = wk__in_dtype(t, dtype);
  return t ? wk_contiguous(t, NULL) : NULL;
}

wk_status wk__cuda_in_scope(wk__call *c, wk__kernel_fn *kernel) {
  wk_scope scope;
  wk__keys before = wk__thread.mode.keys_off;
  wk_scope_begin(&scope);
  wk__thread.mode.keys_off |= WK__KEY_AUTOGRAD;
  wk_status status = kernel(c);
  wk__thread.mode.keys_off = before;
  wk_scope_end(&scope);
  return status;
}

static wk_status give_parts(wk__call *c, wk_tensor **parts) {
  for (int r = 0; r < c->op->schema.result_count; r++) {
    if (!c->outputs)
      c->results[r] = wk__v_tensor(wk__retain(parts[r]));
    else if (parts[r])
      WK_TRY(wk__copy_into(c->outputs[r], parts[r]));
  }
  return WK_OK;
}

/* Rules read what the call's results are; a replay, which makes them itself, has not asked. */
static wk_status describe(const wk__call *c, wk__call *described, wk__spec *specs) {
  *described = *c;
  described->specs = specs;
  return c->op->meta && !c->op->compose && !(c->op->tags & WK__TAG_MUTATES) ? c->op->meta(described) : WK_OK;
}

static wk_status give_by_parts(wk__call *c) {
  wk__call described;
  wk__spec specs[WK__MAX_RESULTS];
  wk_tensor *parts[WK__MAX_RESULTS] = {NULL};
  WK_TRY(describe(c, &described, specs));
  WK_TRY(wk__decompose_rules[c->op->number](&described, parts));
  return give_parts(c, parts);
}
static wk_status run_by_parts(wk__call *c) { return wk__cuda_in_scope(c, give_by_parts); }

wk__kernel_fn *wk__cuda_kernels[WK__OP_COUNT];

static const struct {
  const wk_op *op;
  wk__kernel_fn *kernel;
} own[] = {
#define KERNEL(symbol, function) {WK__OP(symbol), function},
#include "cuda/kernels.def"
#undef KERNEL
};

__attribute__((constructor)) static void find_kernels(void) {
  for (int i = 0; i < WK__OP_COUNT; i++)
    if (wk__cpu_kernels[i]) wk__cuda_kernels[i] = wk__decompose_rules[i] ? run_by_parts : wk__cuda_run_kernel_on_host;
  for (size_t i = 0; i < WK_COUNT(own); i++)
    wk__cuda_kernels[own[i].op->number] = own[i].kernel;  // cppcheck-suppress AssignmentAddressToInteger
}
