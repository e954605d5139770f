/* Kernels, shared by text; fused operators; native code for them.
 * Invariant: the cache holds no reference: a kernel goes when its last fused operator does. Tests:
 * tests/c/test_compile.c
 */
#include "compile/kernel.h"

#include <pthread.h>
#include <stdio.h>

#include "codegen/codegen.h"

/* ==================================================== the cache ================================================== */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;        /* the cache, references, kernels' units */
static pthread_mutex_t submit_lock = PTHREAD_MUTEX_INITIALIZER; /* taken first; units' groups */
static wk__kernel *cache[1024];
static _Atomic uint64_t last_number;

static wk__kernel **bucket_of(uint64_t hash) { return &cache[hash % WK_COUNT(cache)]; }

/* With the same text as `like` */
static wk__kernel *next_equal(wk__kernel *k, const wk__kernel *like) {
  while (k && (k->hash != like->hash || strcmp(k->text, like->text) != 0)) k = k->next;
  return k;
}

static void destroy(wk__kernel *k) {
  if (!k) return;
  wk__program_release(k->program);
  wk__nest_release(k->nest);
  if (k->env) wk__shape_env_release(k->env);
  wk__free(k->text);
  wk__free(k);
}

static wk__kernel *create(wk__nest *steal_nest, wk__shape_env *steal_env) {
  wk__kernel *k = wk__alloc_zeroed(sizeof *k);
  wk__string text = {0};
  wk__nest_print(&text, steal_nest);
  if (!k || text.failed) {
    wk__free(k);
    wk__string_release(&text);
    wk__nest_release(steal_nest);
    wk__shape_env_release(steal_env);
    return NULL;
  }
  *k = (wk__kernel){.references = 1, .nest = steal_nest, .env = steal_env, .text = text.text};
  k->hash = wk__hash_bytes(k->text, strlen(k->text), 0);
  if ((k->program = wk__program_create(k->nest))) return k;
  destroy(k);
  return NULL;
}

/* What a launch of the fused operator looks like; its data are left alone. */
static void shape_launch(const wk__fused *f, const int64_t *numbers, wk__launch *out) {
  for (int b = 0; b < f->buffer_count; b++) {
    const wk__fused_buffer *from = &f->buffers[b];
    out->buffers[b].sizes = from->sizes < 0 ? NULL : numbers + from->sizes;
    out->buffers[b].strides = numbers + from->strides;
  }
  out->ndim = f->ndim;
  out->sizes = f->loop_sizes < 0 ? NULL : numbers + f->loop_sizes;
}

static unsigned modes_of(const wk__kernel *k, const wk__fused *f, const wk_int *numbers, int64_t count) {
  if (!numbers || k->nest->reduction_dims == 0) return 0;
  for (int64_t i = 0; i < count; i++)
    if (!wk_int_is_known(numbers[i])) return 0;
  wk__launch launch = {.params = NULL}; /* no data */
  shape_launch(f, &numbers->bits, &launch);
  return wk__native_mode_of(k->program, &launch);
}

static bool has_modes(const wk__kernel *k, unsigned modes) { return k->modes == 0 || (modes && !(modes & ~k->modes)); }

/* One whose native code has the modes, or will; else one that nobody has asked native code of yet. */
static wk__kernel *share(const wk__kernel *like, unsigned modes) {
  pthread_mutex_lock(&lock);
  wk__kernel *k = next_equal(*bucket_of(like->hash), like);
  while (k && !has_modes(k, modes)) k = next_equal(k->next, like);
  if (!k) {
    k = next_equal(*bucket_of(like->hash), like);
    while (k && k->unit) k = next_equal(k->next, like);
    if (k) k->modes = modes ? k->modes | modes : 0;
  }
  if (k) k->references++;
  pthread_mutex_unlock(&lock);
  return k;
}

/* Another thread may have made the same meanwhile: two are harmless. */
static wk__kernel *enter(wk__kernel *k) {
  pthread_mutex_lock(&lock);
  k->next = *bucket_of(k->hash);
  *bucket_of(k->hash) = k;
  pthread_mutex_unlock(&lock);
  return k;
}

wk__kernel *wk__kernel_get(wk__nest *steal_nest, wk__shape_env *steal_env, const wk__fused *fused,
                           const wk_int *numbers, int64_t count) {
  wk__kernel *made = create(steal_nest, steal_env);
  if (!made) return NULL;
  made->modes = modes_of(made, fused, numbers, count);
  wk__kernel *known = share(made, made->modes);
  if (!known) return enter(made);
  destroy(made);
  return known;
}

/* ================================================== native code ================================================= */

/* Kernels that were submitted together. The group knows their programs until it goes, so they go after it. */
typedef struct wk__native_unit {
  int64_t references; /* by kernels in use; under the lock */
  wk__native_group *group;
  wk__kernel *gone; /* owned: those that nobody uses any more */
} native_unit;

static void release_unit(native_unit *unit) {
  if (unit->group) wk__native_group_release(unit->group);
  for (wk__kernel *k = unit->gone, *next; k; k = next) {
    next = k->next;
    destroy(k);
  }
  wk__free(unit);
}

static void leave_cache(wk__kernel *k) {
  wk__kernel **place = bucket_of(k->hash);
  while (*place && *place != k) place = &(*place)->next;
  if (*place) *place = k->next;
}

void wk__kernel_release(wk__kernel *k) {
  if (!k) return;
  pthread_mutex_lock(&lock);
  bool last = --k->references == 0, unit_goes = false;
  native_unit *unit = k->unit;
  if (last) leave_cache(k);
  if (last && unit) {
    k->next = unit->gone;
    unit->gone = k;
    unit_goes = --unit->references == 0;
  }
  pthread_mutex_unlock(&lock);
  if (unit_goes) release_unit(unit);
  if (last && !unit) destroy(k);
}

static int collect(const wk__kernels *kernels, wk__c_kernel *sources, wk__program **programs, native_unit *unit) {
  int count = 0;
  for (int64_t i = 0; i < kernels->count; i++) {
    wk__fused *f = kernels->items[i];
    if (!f->kernel || f->kernel->unit) continue;
    f->kernel->unit = unit;
    sources[count] =
        (wk__c_kernel){.nest = f->kernel->nest, .name = f->name, .provenance = f->origin, .modes = f->kernel->modes};
    programs[count++] = f->kernel->program;
  }
  return count;
}

/* The kernels without native code, as one unit. */
static void submit(const wk__kernels *kernels, wk__c_kernel *sources, wk__program **programs) {
  native_unit *unit = wk__alloc_zeroed(sizeof *unit);
  if (!unit) return;
  pthread_mutex_lock(&lock);
  int count = collect(kernels, sources, programs, unit);
  unit->references = count;
  pthread_mutex_unlock(&lock);
  if (count == 0) {
    wk__free(unit);
    return;
  }
  unit->group = wk__c_compile(sources, programs, count);
  if (!unit->group) wk_error_clear();
}

/* A unit of its own, which other programs find in the cache. It stays as long as the body. */
static void submit_body(wk__multi_tensor_body *body) {
  const wk__c_kernel source = {.nest = body->nest, .name = body->name};
  if (body->native) return;
  body->native = wk__c_compile(&source, &body->program, 1);
  if (!body->native) wk_error_clear();
}

wk_status wk__kernels_find_bodies(wk__kernels *kernels, const wk__graph *graph) {
  for (const wk__graph_node *n = graph->first; n; n = n->next) {
    wk_value args[WK__MAX_ARGS];
    int room = (int)WK_COUNT(kernels->bodies) - kernels->body_count;
    if (n->kind != WK__GRAPH_CALL || !(n->op->tags & WK__TAG_MUTATES)) continue;
    wk_tensor **space = wk__alloc((size_t)(wk__graph_listed(n->op, n->args) + 1) * sizeof *space);
    if (!space) return WK_OUT_OF_MEMORY;
    wk__graph_describe_args(n->op, n->args, args, space);
    kernels->body_count += wk__multi_tensor_bodies(n->op, args, kernels->bodies + kernels->body_count, room);
    wk__free(space);
  }
  return WK_OK;
}

/* Failure leaves tier 0 running: native.h says so once. */
void wk__kernels_submit(const wk__kernels *kernels) {
  size_t n = (size_t)kernels->count;
  wk__c_kernel *sources = wk__alloc_zeroed(n * sizeof *sources + 1);
  wk__program **programs = wk__alloc_zeroed(n * sizeof *programs + 1);
  pthread_mutex_lock(&submit_lock);
  if (sources && programs) submit(kernels, sources, programs);
  for (int i = 0; i < kernels->body_count; i++) submit_body(kernels->bodies[i]);
  pthread_mutex_unlock(&submit_lock);
  wk__free(sources);
  wk__free(programs);
}

bool wk__kernels_wait(const wk__kernels *kernels) {
  bool all = true;
  pthread_mutex_lock(&submit_lock);
  for (int64_t i = 0; i < kernels->count; i++) {
    if (!kernels->items[i]->kernel) continue;
    native_unit *unit = kernels->items[i]->kernel->unit;
    all &= unit && unit->group && wk__native_group_wait(unit->group) == WK__NATIVE_READY;
  }
  for (int i = 0; i < kernels->body_count; i++)
    all &= kernels->bodies[i]->native && wk__native_group_wait(kernels->bodies[i]->native) == WK__NATIVE_READY;
  pthread_mutex_unlock(&submit_lock);
  return all;
}

/* ================================================ fused operators =============================================== */

static wk__scalar param_of(const wk__fused *f, int i, const wk_value *args) {
  const wk__fused_param *p = &f->params[i];
  if (p->argument >= 0) return wk__value_scalar(&args[2 + p->argument]);
  return (wk__scalar){WK__INTEGER_KIND, .i = args[1].integers[p->number].bits};
}

static wk_tensor *make_output(const wk__fused_output *o, const wk_int *numbers) {
  wk__spec spec; /* large, and most of it is not looked at */
  spec.dtype = o->dtype;
  spec.ndim = o->ndim;
  spec.device = WK__CPU_DEVICE;
  spec.offset = wk_int_of(0);
  memcpy(spec.sizes, numbers + o->sizes, o->ndim * sizeof(wk_int));
  memcpy(spec.strides, numbers + o->strides, o->ndim * sizeof(wk_int));
  return wk__tensor_from_spec(&spec);
}

/* NULL for what is drawn or made later. */
static char *data_of(const wk__fused_buffer *from, const wk_value *args, wk_tensor *const *outputs) {
  if (WK_UNLIKELY(from->input == WK__FUSED_DRAWN || from->input == WK__FUSED_MADE)) return NULL;
  const wk_tensor *t = from->input >= 0 ? args[0].tensors[from->input] : outputs[-1 - from->input];
  return (char *)wk__data(t) + args[1].integers[from->offset].bits * wk__dtypes[t->dtype].size;
}

static wk_status launch(const wk__fused *f, const wk_value *args, wk_tensor *const *outputs) {
  wk__launch l;
  wk__scalar params[2 * WK__FUSED_NUMBERS];
  for (int i = 0; i < f->param_count; i++) params[i] = param_of(f, i, args);
  shape_launch(f, &args[1].integers->bits, &l);
  for (int b = 0; b < f->buffer_count; b++) l.buffers[b].data = data_of(&f->buffers[b], args, outputs);
  l.params = params;
  if (WK_UNLIKELY(f->checked)) WK_TRY(wk__fused_check_launch(f, args, outputs));
  if (f->product.op) return wk__fused_run_product(f, args, outputs, &l);
  if (f->draw.op) return wk__fused_run_draw(f, args, outputs, &l);
  wk_status status = wk__program_run(f->kernel->program, &l);
  return WK_UNLIKELY(status == WK_INDEX_ERROR) && f->index_op ? wk__explain_bad_index(f->index_op) : status;
}

static wk_status give(const wk__fused *f, wk_tensor *const *steal_outputs, wk_value *results) {
  if (f->output_count == 1) {
    results[0] = wk__v_tensor(steal_outputs[0]);
    return WK_OK;
  }
  wk_tensor **list = wk__alloc((size_t)f->output_count * sizeof *list);
  if (!list) return WK_OUT_OF_MEMORY;
  memcpy(list, steal_outputs, (size_t)f->output_count * sizeof *list);
  results[0] = (wk_value){.tag = WK_VALUE_TENSORS, .count = (uint32_t)f->output_count, .tensors = list};
  return WK_OK;
}

static wk_status make_outputs(const wk__fused *f, const wk__call *call, wk_tensor **outputs) {
  for (int r = 0; r < f->output_count; r++) {
    wk_tensor *destination = call->destinations ? call->destinations[r] : NULL;
    outputs[r] = destination ? wk__retain(destination) : make_output(&f->outputs[r], call->args[1].integers);
    if (!outputs[r]) return wk_error_category();
  }
  return WK_OK;
}

static wk_status run_fused(wk__call *call) {
  const wk__fused *f = (const wk__fused *)call->op;
  if (call->outputs) return launch(f, call->args, call->outputs);
  wk_tensor *outputs[WK__NEST_MAX_BUFFERS];
  for (int r = 0; r < f->output_count; r++) outputs[r] = NULL;
  wk_status status = make_outputs(f, call, outputs);
  if (status == WK_OK) status = launch(f, call->args, outputs);
  for (int r = 0; r < f->output_count && status == WK_OK && call->destinations; r++)
    if (call->destinations[r]) wk__version_bump(call->destinations[r]);
  if (status == WK_OK) status = give(f, outputs, call->results);
  for (int r = 0; r < f->output_count && status != WK_OK; r++) wk__release(outputs[r]);
  return status;
}

static void name_fused(wk__fused *f, const char *name) {
  if (name)
    snprintf(f->name, sizeof f->name, "%s", name);
  else
    snprintf(f->name, sizeof f->name, "kernel_%llu",
             (unsigned long long)atomic_fetch_add_explicit(&last_number, 1, memory_order_relaxed));
}

wk__fused *wk__kernels_add(wk__kernels *kernels, const char *name, int output_count) {
  if (wk__grow(&kernels->items, &kernels->capacity, kernels->count + 1, sizeof *kernels->items) != WK_OK) return NULL;
  wk__fused *f = wk__alloc_zeroed(sizeof *f);
  if (!f) return NULL;
  name_fused(f, name);
  int at = snprintf(f->schema_text, sizeof f->schema_text, "%s(Tensor[] inputs, SymInt[] numbers", f->name);
  for (int i = 0; i < WK__FUSED_NUMBERS; i++)
    at += snprintf(f->schema_text + at, sizeof f->schema_text - (size_t)at, ", float p%d=0", i);
  snprintf(f->schema_text + at, sizeof f->schema_text - (size_t)at, ") -> Tensor%s", output_count == 1 ? "" : "[]");
  f->output_count = output_count;
  f->op = (wk_op){.name = f->name,
                  .base_name = f->name,
                  .schema_text = f->schema_text,
                  .tags = WK__TAG_FUSED,
                  .kernel = run_fused,
                  .print = wk__fused_print,
                  .number = WK__OP_COUNT};
  if (wk__schema_parse(f->schema_text, f->parameters, WK_COUNT(f->parameters), &f->op.schema) != WK_OK) {
    wk__free(f);
    return NULL;
  }
  kernels->items[kernels->count++] = f;
  return f;
}

void wk__kernels_release(wk__kernels *kernels) {
  if (!kernels) return;
  for (int64_t i = 0; i < kernels->count; i++) {
    wk__kernel_release(kernels->items[i]->kernel);
    wk__free(kernels->items[i]->origin);
    wk__free(kernels->items[i]->stacks);
    wk__free(kernels->items[i]);
  }
  wk__free(kernels->items);
  wk__free(kernels);
}
