/* Kernels, shared by text; fused operators; native code for them.
 * Invariant: the cache holds no reference: a kernel goes when its last fused operator does. Tests:
 * tests/c/test_compile.c
 */
#include "compile/fuse/kernel.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "codegen/test_switches.h"

/* ==================================================== the cache ================================================== */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;        /* the cache, references, kernels' batches */
static pthread_mutex_t submit_lock = PTHREAD_MUTEX_INITIALIZER; /* taken first; batches' groups */
static wk__kernel *cache[1024];
static _Atomic uint64_t last_number;

static wk__kernel **bucket_of(uint64_t hash) { return &cache[hash % WK_COUNT(cache)]; }

/* With the same text as `like`, on the same device */
static wk__kernel *next_equal(wk__kernel *k, const wk__kernel *like) {
  while (k && (k->hash != like->hash || k->device != like->device || strcmp(k->text, like->text) != 0)) k = k->next;
  return k;
}

static void destroy(wk__kernel *k) {
  if (!k) return;
  if (k->code) k->device->release_code(k->code);
  wk__nest_release(k->nest);
  if (k->env) wk__shape_env_release(k->env);
  wk__free(k->text);
  wk__free(k);
}

static wk__kernel *create(const wk__device_type *device, wk__nest *steal_nest, wk__shape_env *steal_env) {
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
  k->device = device;
  atomic_init(&k->measured, true);
  if ((k->code = device->build(k->nest))) return k;
  destroy(k);
  return NULL;
}

/* What a launch of the fused operator looks like; its data are left alone. */
static void shape_launch(const wk__fused *f, const wk__fused_form *form, const int64_t *numbers, wk__launch *out) {
  for (int b = 0; b < f->buffer_count; b++) {
    const wk__fused_buffer *from = &form->buffers[b];
    out->buffers[b].sizes = from->sizes < 0 ? NULL : numbers + from->sizes;
    out->buffers[b].strides = numbers + from->strides;
  }
  out->ndim = form->ndim;
  out->sizes = form->loop_sizes < 0 ? NULL : numbers + form->loop_sizes;
}

static unsigned modes_of(const wk__kernel *k, const wk__fused *f, const wk_int *numbers, int64_t count) {
  if (!numbers || k->nest->reduction_dims == 0) return 0;
  for (int64_t i = 0; i < count; i++)
    if (!wk_int_is_known(numbers[i])) return 0;
  wk__launch launch = {.params = NULL}; /* no data */
  shape_launch(f, &f->form, &numbers->bits, &launch);
  return k->device->modes_of ? k->device->modes_of(k->code, &launch) : 0;
}

static bool has_modes(const wk__kernel *k, unsigned modes) { return k->modes == 0 || (modes && !(modes & ~k->modes)); }

/* One whose native code has the modes, or will; else one for which native code has not been asked yet. */
static wk__kernel *share(const wk__kernel *like, unsigned modes) {
  pthread_mutex_lock(&lock);
  wk__kernel *k = next_equal(*bucket_of(like->hash), like);
  while (k && !has_modes(k, modes)) k = next_equal(k->next, like);
  if (!k) {
    k = next_equal(*bucket_of(like->hash), like);
    while (k && k->batch) k = next_equal(k->next, like);
    if (k) k->modes = modes ? k->modes | modes : 0;
  }
  if (k) k->references++;
  if (k && !k->batch) atomic_store(&k->measured, true); /* another graph may run it for longer */
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

#ifdef WICK_TESTS
static void make_mistake(wk__nest *nest) {
  wk__string text = {0};
  if (!*wk__mistakes_made.kernel) return;
  wk__nest_print(&text, nest);
  bool wanted = text.text && strstr(text.text, wk__mistakes_made.kernel);
  wk__string_release(&text);
  for (int64_t v = 1; wanted && v < nest->instr_count; v++)
    if (nest->instrs[v].op == WK__LOOP_add) nest->instrs[v].op = WK__LOOP_sub;
}
#endif

wk__kernel *wk__kernel_get(wk__nest *steal_nest, wk__shape_env *steal_env, const wk__fused *fused,
                           const wk_int *numbers, int64_t count, bool alone) {
#ifdef WICK_TESTS
  make_mistake(steal_nest);
#endif
  wk__kernel *made = create(wk__device_types[fused->device.type], steal_nest, steal_env);
  if (!made) return NULL;
  made->modes = modes_of(made, fused, numbers, count);
  if (alone) return made;
  wk__kernel *known = share(made, made->modes);
  if (!known) return enter(made);
  destroy(made);
  return known;
}

/* ===================================================== tier 1 =================================================== */

/* Kernels that were submitted together. The group knows their codes until it goes, so they go after it. */
typedef struct wk__improved {
  int64_t references; /* by kernels in use; under the lock */
  const wk__device_type *device;
  wk__code_group *group;
  wk__kernel *gone; /* owned: those without users */
} improved;

static void release_batch(improved *batch) {
  if (batch->group) batch->device->release_group(batch->group);
  for (wk__kernel *k = batch->gone, *next; k; k = next) {
    next = k->next;
    destroy(k);
  }
  wk__free(batch);
}

static void leave_cache(wk__kernel *k) {
  wk__kernel **place = bucket_of(k->hash);
  while (*place && *place != k) place = &(*place)->next;
  if (*place) *place = k->next;
}

wk__kernel *wk__kernel_retain(wk__kernel *k) {
  pthread_mutex_lock(&lock);
  k->references++;
  pthread_mutex_unlock(&lock);
  return k;
}

void wk__kernel_release(wk__kernel *k) {
  if (!k) return;
  pthread_mutex_lock(&lock);
  bool last = --k->references == 0, batch_goes = false;
  improved *batch = k->batch;
  if (last) leave_cache(k);
  if (last && batch) {
    k->next = batch->gone;
    batch->gone = k;
    batch_goes = --batch->references == 0;
  }
  pthread_mutex_unlock(&lock);
  if (batch_goes) release_batch(batch);
  if (last && !batch) destroy(k);
}

static int by_time(const void *a, const void *b) {
  int64_t x = ((const wk__code_source *)a)->nanoseconds, y = ((const wk__code_source *)b)->nanoseconds;
  return (x < y) - (x > y);
}

/* Those of one device type, the longest first. Their batch marks them: equal nodes have one kernel. */
static int collect(const wk__kernels *kernels, const wk__device_type *device, wk__code_source *sources,
                   improved *batch) {
  int count = 0;
  for (int64_t i = 0; i < wk__min(kernels->count, kernels->limits.native); i++) {
    wk__fused *f = kernels->items[i];
    if (!f->kernel || f->kernel->batch || f->kernel->device != device) continue;
    f->kernel->batch = batch;
    atomic_store(&f->kernel->measured, false);
    sources[count++] = (wk__code_source){.nest = f->kernel->nest,
                                         .name = f->name,
                                         .provenance = f->origin,
                                         .modes = f->kernel->modes,
                                         .code = f->kernel->code,
                                         .nanoseconds = atomic_load(&f->kernel->nanoseconds)};
  }
  qsort(sources, (size_t)count, sizeof *sources, by_time);
  return count;
}

/* Without the shortest at the end, as many as together took less than a hundredth of the step: a compiler's time is not
 * worth theirs. They stay with tier 0, unless a program asks for all. */
enum { SHORT_OF_STEP = 100 };
static int leave_out(const wk__kernels *kernels, const wk__code_source *sources, int count, int64_t step_nanoseconds,
                     const improved *batch) {
  int64_t together = 0;
  int kept = count;
  while (kept > 0 && (together += sources[kept - 1].nanoseconds) < step_nanoseconds / SHORT_OF_STEP) kept--;
  for (int64_t i = 0; i < kernels->count; i++)
    for (int s = kept; s < count; s++)
      if (kernels->items[i]->kernel && kernels->items[i]->kernel->code == sources[s].code &&
          kernels->items[i]->kernel->batch == batch)
        kernels->items[i]->kernel->batch = NULL;
  return kept;
}

/* The device's kernels that are in no batch, as one. */
static void submit(const wk__kernels *kernels, const wk__device_type *device, wk__code_source *sources,
                   int64_t step_nanoseconds) {
  improved *batch = wk__alloc_zeroed(sizeof *batch);
  if (!batch) return;
  batch->device = device;
  pthread_mutex_lock(&lock);
  int count = collect(kernels, device, sources, batch);
  count = leave_out(kernels, sources, count, step_nanoseconds, batch);
  batch->references = count;
  pthread_mutex_unlock(&lock);
  if (count == 0) {
    wk__free(batch);
    return;
  }
  batch->group = device->improve(sources, count);
  if (!batch->group) wk_error_clear();
}

/* Kernels whose code was found stay in the batch, the others leave it as if nothing had been asked. */
static void keep_found(const wk__kernels *kernels, const wk__code_source *sources, const bool *found, int count,
                       improved *batch) {
  for (int64_t i = 0; i < kernels->count; i++) {
    wk__kernel *k = kernels->items[i]->kernel;
    for (int s = 0; k && k->batch == batch && s < count; s++) {
      if (found[s] || k->code != sources[s].code) continue;
      k->batch = NULL;
      atomic_store(&k->measured, true);
      batch->references--;
    }
  }
}

static void recall(const wk__kernels *kernels, const wk__device_type *device, wk__code_source *sources, bool *found) {
  improved *batch = wk__alloc_zeroed(sizeof *batch);
  if (!batch) return;
  batch->device = device;
  pthread_mutex_lock(&lock);
  int count = collect(kernels, device, sources, batch);
  batch->references = count;
  pthread_mutex_unlock(&lock);
  if (count) batch->group = device->recall_code(sources, count, found);
  if (!batch->group) memset(found, 0, (size_t)count);
  pthread_mutex_lock(&lock);
  keep_found(kernels, sources, found, count, batch);
  bool empty = batch->references == 0;
  pthread_mutex_unlock(&lock);
  if (empty) release_batch(batch);
}

static void recall_kept(wk__kept_code *kept) {
  const wk__code_source source = {.nest = kept->nest, .name = kept->name, .code = kept->code};
  bool found = false;
  if (!kept->improved && kept->device->recall_code) kept->improved = kept->device->recall_code(&source, 1, &found);
}

void wk__kernels_recall(const wk__kernels *kernels) {
  wk__code_source *sources = wk__alloc_zeroed((size_t)kernels->count * sizeof *sources + 1);
  bool *found = wk__alloc_zeroed((size_t)kernels->count + 1);
  pthread_mutex_lock(&submit_lock);
  for (int type = 0; type < WK_DEVICE_TYPE_COUNT && sources && found; type++)
    if (wk__device_types[type] && wk__device_types[type]->recall_code)
      recall(kernels, wk__device_types[type], sources, found);
  for (int i = 0; i < kernels->kept_count; i++) recall_kept(kernels->kept[i]);
  pthread_mutex_unlock(&submit_lock);
  wk__free(sources);
  wk__free(found);
}

/* A batch of its own, which other programs find in the cache. It stays as long as the code that is kept. That goes over
 * all parameters, or all scores, so it comes first. */
static void submit_kept(wk__kept_code *kept, int64_t step_nanoseconds) {
  const wk__code_source source = {
      .nest = kept->nest, .name = kept->name, .code = kept->code, .nanoseconds = step_nanoseconds};
  if (kept->improved || !kept->device->improve) return;
  kept->improved = kept->device->improve(&source, 1);
  if (!kept->improved) wk_error_clear();
}

static void release_kept(wk__kept_code *kept) {
  if (kept->release) kept->release(kept);
}

/* Equal layers have the same ones. */
static void add_kept(wk__kernels *kernels, wk__kept_code *kept) {
  int same = 0;
  while (same < kernels->kept_count && kernels->kept[same] != kept) same++;
  if (same == WK_COUNT(kernels->kept) || same < kernels->kept_count)
    release_kept(kept);
  else
    kernels->kept[kernels->kept_count++] = kept;
}

static int kept_codes_of(const wk_op *op, const wk_value *args, wk__kept_code **out, int most) {
  if (!op->has_kernel) return wk__multi_tensor_bodies(op, args, out, most);
  const wk__device_type *device = NULL;
  WK__EACH_TENSOR(tensor, args, op->schema.parameter_count) {
    if (!device) device = wk__device_types[tensor->device.type];
  }
  return device && device->kept_codes ? device->kept_codes(op, args, out, most) : 0;
}

wk_status wk__kernels_find_kept(wk__kernels *kernels, const wk__graph *graph) {
  for (const wk__graph_node *n = graph->first; n; n = n->next) {
    wk_value args[WK__MAX_ARGS];
    wk__kept_code *found[WK_COUNT(kernels->kept)];
    if (n->kind != WK__GRAPH_CALL || !(n->op->has_kernel || n->op->tags & WK__TAG_MUTATES)) continue;
    wk_tensor **space = wk__alloc((size_t)(wk__graph_listed(n->op, n->args) + 1) * sizeof *space);
    if (!space) return WK_OUT_OF_MEMORY;
    wk__graph_describe_args(n->op, n->args, args, space);
    int count = kept_codes_of(n->op, args, found, (int)WK_COUNT(found));
    wk__free(space);
    for (int i = 0; i < count; i++) add_kept(kernels, found[i]);
  }
  return WK_OK;
}

/* Failure leaves tier 0 running: the device says so once. */
void wk__kernels_submit(const wk__kernels *kernels, int64_t step_nanoseconds) {
  wk__code_source *sources = wk__alloc_zeroed((size_t)kernels->count * sizeof *sources + 1);
  pthread_mutex_lock(&submit_lock);
  for (int type = 0; type < WK_DEVICE_TYPE_COUNT && sources; type++)
    if (wk__device_types[type] && wk__device_types[type]->improve)
      submit(kernels, wk__device_types[type], sources, step_nanoseconds);
  for (int i = 0; i < kernels->kept_count && kernels->limits.native == WK__UNLIMITED; i++)
    submit_kept(kernels->kept[i], step_nanoseconds);
  pthread_mutex_unlock(&submit_lock);
  wk__free(sources);
}

static bool is_ready(const wk__device_type *device, wk__code_group *group) {
  return !device->improve || (group && device->await_group(group) == WK__CODE_READY);
}

bool wk__kernels_wait(const wk__kernels *kernels) {
  bool all = true;
  pthread_mutex_lock(&submit_lock);
  for (int64_t i = 0; i < kernels->count; i++) {
    const wk__kernel *k = kernels->items[i]->kernel;
    if (k) all &= is_ready(k->device, k->batch ? k->batch->group : NULL);
  }
  for (int i = 0; i < kernels->kept_count; i++) all &= is_ready(kernels->kept[i]->device, kernels->kept[i]->improved);
  pthread_mutex_unlock(&submit_lock);
  return all;
}

/* ================================================ fused operators =============================================== */

static wk__scalar param_of(const wk__fused *f, int i, const wk_value *args) {
  const wk__fused_param *p = &f->params[i];
  if (p->argument >= 0) return wk__value_scalar(&args[2 + p->argument]);
  return (wk__scalar){WK__INTEGER_KIND, .i = args[1].integers[p->number].bits};
}

static wk_tensor *make_output(const wk__fused_output *o, wk_device device, const wk_int *numbers) {
  wk__spec spec; /* large, and most of it is not looked at */
  spec.dtype = o->dtype;
  spec.ndim = o->ndim;
  spec.device = device;
  spec.offset = wk_int_of(0);
  memcpy(spec.sizes, numbers + o->sizes, o->ndim * sizeof(wk_int));
  memcpy(spec.strides, numbers + o->strides, o->ndim * sizeof(wk_int));
  return wk__tensor_from_spec(&spec);
}

/* NULL for what is drawn or made later. */
static char *data_of(const wk__fused_buffer *from, const wk_value *args, wk_tensor *const *outputs) {
  if (WK_UNLIKELY(from->input == WK__FUSED_DRAWN || from->input == WK__FUSED_MADE)) return NULL;
  const wk_tensor *t = from->input >= 0 ? args[0].tensors[from->input] : outputs[-1 - from->input];
  return (char *)wk__address(t) + args[1].integers[from->offset].bits * wk__dtypes[t->dtype].size;
}

/* ---- beside an operator ---- */

/* What the device needs of the kernel to run it part by part. `sizes` has room for the buffers. */
static wk__fused_launch beside(const wk__fused *f, const wk__launch *whole, uint8_t *sizes) {
  wk__fused_launch l = {.code = f->kernel->code,
                        .whole = whole,
                        .ndim = f->form.ndim,
                        .buffer_count = f->buffer_count,
                        .sizes = sizes,
                        .own = -1,
                        .kept = true,
                        .made = f->product.op && f->product.made.ndim ? f->product.made.operand : -1,
                        .transposed = f->product.made.transposed};
  for (int b = 0; b < f->buffer_count; b++) {
    const wk__nest_buffer *buffer = &f->kernel->nest->buffers[b];
    sizes[b] = wk__dtypes[buffer->dtype].size;
    bool in_result = f->product.op && f->form.buffers[b].input == -1 - f->product.result;
    l.written |= (uint32_t)buffer->written << b;
    l.result |= (uint32_t)(in_result && !buffer->written) << b;
    l.kept &= !(in_result && buffer->written);
    if (f->form.buffers[b].input == WK__FUSED_DRAWN || f->form.buffers[b].input == WK__FUSED_MADE) l.own = b;
  }
  return l;
}

void wk__fused_product_release(wk__fused_product *product) {
  for (int i = 0; i < WK__PRODUCT_ARGS; i++) wk_value_release(&product->constants[i]);
}

void wk__fused_product_args(const wk__fused *f, const wk_value *args, wk_value *out) {
  for (int i = 0; i < f->product.op->schema.parameter_count; i++) {
    int16_t input = f->product.args[i];
    out[i] = f->product.constants[i];
    if (input >= 0) out[i] = (wk_value){.tag = WK_VALUE_TENSOR, .tensor = args[0].tensors[input]};
  }
}

wk_tensor *wk__fused_made_shape(const wk__fused *f, const wk_int *numbers) {
  const wk__fused_made *m = &f->product.made;
  wk_int sizes[WK_MAX_DIMS];
  wk__spec spec;
  int a = m->ndim - (wk__is_attention(f->product.op) ? 3 : 2), b = a + 1; /* dims that may be the other way round */
  memcpy(sizes, numbers + m->sizes, m->ndim * sizeof *sizes);
  if (m->transposed) sizes[a] = numbers[m->sizes + b], sizes[b] = numbers[m->sizes + a];
  wk__spec_contiguous(&spec, (wk_dtype)f->outputs[f->product.result].dtype, f->device, m->ndim, sizes);
  if (m->transposed) {
    wk_int step = spec.strides[a];
    spec.strides[a] = spec.strides[b], spec.strides[b] = step;
    spec.sizes[a] = sizes[b], spec.sizes[b] = sizes[a];
  }
  return wk__tensor_shape_only(&spec);
}

static wk_status run_product(const wk__fused *f, const wk__device_type *device, wk__stream *stream,
                             const wk_value *args, wk_tensor *const *outputs, const wk__launch *whole) {
  wk_value product_args[WK__MAX_ARGS];
  uint8_t sizes[WK__NEST_MAX_BUFFERS];
  wk__fused_launch l = beside(f, whole, sizes);
  WK__OWNED shape = NULL;
  wk__fused_product_args(f, args, product_args);
  if (l.made >= 0) {
    shape = wk__fused_made_shape(f, args[1].integers);
    if (!shape) return wk_error_category();
    product_args[l.made] = wk__v_tensor(shape);
  }
  return device->run_product(stream, f->product.op, product_args, outputs[f->product.result], &l);
}

static wk_status run_draw(const wk__fused *f, const wk__device_type *device, wk__stream *stream, const wk_value *args,
                          wk_tensor *const *outputs, const wk__launch *whole) {
  const wk__fused_draw *d = &f->draw;
  uint8_t sizes[WK__NEST_MAX_BUFFERS];
  wk__fused_launch l = beside(f, whole, sizes);
  int64_t n = 1;
  for (int i = 0; i < f->form.ndim; i++) n *= whole->sizes[i];
  double p = wk__scalar_double(wk__value_scalar(&args[2 + d->argument]));
  return device->run_draw(stream, d->op, p, d->result < 0 ? NULL : outputs[d->result], n, &l);
}

static void fill_launch(const wk__fused *f, const wk__fused_form *form, const wk_value *args, wk_tensor *const *outputs,
                        const wk__scalar *params, wk__launch *out) {
  shape_launch(f, form, &args[1].integers->bits, out);
  for (int b = 0; b < f->buffer_count; b++) out->buffers[b].data = data_of(&form->buffers[b], args, outputs);
  out->params = params;
}

static wk_status launch_all(const wk__fused *f, const wk_value *args, wk_tensor *const *outputs,
                            const wk__scalar *params) {
  wk__launch launches[WK__NEST_MAX_BUFFERS];
  fill_launch(f, &f->form, args, outputs, params, &launches[0]);
  for (int i = 0; i < f->again_count; i++) fill_launch(f, &f->again[i], args, outputs, params, &launches[1 + i]);
  return f->kernel->device->launch(wk__stream_of(f->device), f->kernel->code, launches, 1 + f->again_count);
}

static wk_status launch(const wk__fused *f, const wk_value *args, wk_tensor *const *outputs) {
  wk__launch l;
  wk__scalar params[2 * WK__FUSED_NUMBERS];
  for (int i = 0; i < f->param_count; i++) params[i] = param_of(f, i, args);
  if (WK_UNLIKELY(f->checked)) WK_TRY(wk__fused_check_launch(f, args, outputs));
  if (f->again_count) return launch_all(f, args, outputs, params);
  fill_launch(f, &f->form, args, outputs, params, &l);
  const wk__device_type *device = f->kernel->device;
  wk__stream *stream = wk__stream_of(f->device);
  if (f->product.op) return run_product(f, device, stream, args, outputs, &l);
  if (f->draw.op) return run_draw(f, device, stream, args, outputs, &l);
  wk_status status = device->launch(stream, f->kernel->code, &l, 1);
  return WK_UNLIKELY(status == WK_INDEX_ERROR) && f->index_op ? wk__explain_bad_index(f->index_op) : status;
}

static wk_status launch_and_measure(const wk__fused *f, const wk_value *args, wk_tensor *const *outputs) {
  if (WK_LIKELY(!atomic_load_explicit(&f->kernel->measured, memory_order_relaxed))) return launch(f, args, outputs);
  int64_t begin = wk__nanoseconds();
  wk_status status = launch(f, args, outputs);
  atomic_fetch_add_explicit(&f->kernel->nanoseconds, wk__nanoseconds() - begin, memory_order_relaxed);
  return status;
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
    outputs[r] = destination ? wk__retain(destination) : make_output(&f->outputs[r], f->device, call->args[1].integers);
    if (!outputs[r]) return wk_error_category();
  }
  return WK_OK;
}

static wk_status run_fused(wk__call *call) {
  const wk__fused *f = (const wk__fused *)call->op;
  if (call->outputs) return launch_and_measure(f, call->args, call->outputs);
  wk_tensor *outputs[WK__NEST_MAX_BUFFERS];
  for (int r = 0; r < f->output_count; r++) outputs[r] = NULL;
  wk_status status = make_outputs(f, call, outputs);
  if (status == WK_OK) status = launch_and_measure(f, call->args, outputs);
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
                  .routine = run_fused,
                  .print = wk__fused_print,
                  .number = WK__OP_COUNT};
  if (wk__schema_parse(f->schema_text, f->parameters, WK_COUNT(f->parameters), &f->op.schema) != WK_OK) {
    wk__free(f);
    return NULL;
  }
  kernels->items[kernels->count++] = f;
  return f;
}

static void release_fused(wk__fused *f) {
  wk__kernel_release(f->kernel);
  wk__fused_product_release(&f->product);
  wk__free(f->again);
  wk__free(f->origin);
  wk__free(f->stacks);
  wk__free(f);
}

void wk__kernels_remove(wk__kernels *kernels, const wk__fused *fused) {
  int64_t i = 0;
  while (i < kernels->count && kernels->items[i] != fused) i++;
  if (i == kernels->count) return;
  release_fused(kernels->items[i]);
  memmove(kernels->items + i, kernels->items + i + 1, (size_t)(--kernels->count - i) * sizeof *kernels->items);
}

void wk__kernels_release(wk__kernels *kernels) {
  if (!kernels) return;
  for (int64_t i = 0; i < kernels->count; i++) release_fused(kernels->items[i]);
  for (int64_t i = 0; i < kernels->control_count; i++) wk__op_hold(kernels->controls[i], -1);
  for (int i = 0; i < kernels->kept_count; i++) release_kept(kernels->kept[i]);
  wk__free(kernels->controls);
  wk__free(kernels->items);
  wk__free(kernels);
}
