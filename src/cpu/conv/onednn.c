/* oneDNN's convolutions: see onednn.h.
 *
 * In: images and weights as conv.h has them. Out: the result in its layout. The library says in which layouts it wants
 * them, and reorders. What was prepared for a convolution's sizes stays. One call at a time: what is prepared has
 * memory of its own. */
#include "cpu/conv/onednn.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include "cpu/conv/conv_internal.h"
#include "cpu/gemm/onednn_library.h"

enum { MOST_DIMS = 6, MOST_PREPARED = 128 };

/* Numbers of the C interface, version 3. */
enum {
  CPU_ENGINE = 1,
  IN_ORDER = 1,
  FLOAT32 = 3,
  ANY_LAYOUT = 1,
  FORWARD_INFERENCE = 96,
  CONVOLUTION_DIRECT = 1,
  QUERY_SOURCE = 129,
  QUERY_WEIGHTS = 131,
  QUERY_RESULT = 133,
  ARG_SOURCE = 1,
  ARG_RESULT = 17,
  ARG_WEIGHTS = 33,
  ARG_BIAS = 41,
};
typedef struct argument {
  int which;
  void *memory;
} argument;

static struct {
  bool there;
  void *engine, *stream;
  int (*engine_create)(void **engine, int kind, size_t index);
  int (*stream_create)(void **stream, void *engine, unsigned flags);
  int (*stream_wait)(void *stream);
  int (*layout_by_strides)(void **md, int ndim, const int64_t *dims, int dtype, const int64_t *strides);
  int (*layout_by_tag)(void **md, int ndim, const int64_t *dims, int dtype, int tag);
  int (*layouts_equal)(const void *a, const void *b);
  size_t (*layout_size)(const void *md);
  int (*describe_convolution)(void **pd, void *engine, int kind, int algorithm, const void *source, const void *weights,
                              const void *bias, const void *result, const int64_t *strides, const int64_t *dilations,
                              const int64_t *padding_before, const int64_t *padding_after, const void *attributes);
  int (*describe_reorder)(void **pd, const void *from, void *from_engine, const void *to, void *to_engine,
                          const void *attributes);
  const void *(*query_layout)(const void *pd, int what, int index);
  int (*create)(void **primitive, const void *pd);
  int (*execute)(const void *primitive, void *stream, int count, const argument *arguments);
  int (*memory_create)(void **memory, const void *md, void *engine, void *data);
  int (*memory_destroy)(void *memory);
} api;

static bool find(void *handle, const char *name, void *function) {
  void *found = dlsym(handle, name);
  memcpy(function, &found, sizeof found);
  return found != NULL;
}

static void load(void) {
  const wk__onednn_library *l = wk__onednn_get();
  if (!l) return;
  void *h = l->handle;
  bool all = find(h, "dnnl_engine_create", &api.engine_create) && find(h, "dnnl_stream_create", &api.stream_create) &&
             find(h, "dnnl_stream_wait", &api.stream_wait) &&
             find(h, "dnnl_memory_desc_create_with_strides", &api.layout_by_strides) &&
             find(h, "dnnl_memory_desc_create_with_tag", &api.layout_by_tag) &&
             find(h, "dnnl_memory_desc_equal", &api.layouts_equal) &&
             find(h, "dnnl_memory_desc_get_size", &api.layout_size) &&
             find(h, "dnnl_convolution_forward_primitive_desc_create", &api.describe_convolution) &&
             find(h, "dnnl_reorder_primitive_desc_create", &api.describe_reorder) &&
             find(h, "dnnl_primitive_desc_query_md", &api.query_layout) &&
             find(h, "dnnl_primitive_create", &api.create) && find(h, "dnnl_primitive_execute", &api.execute) &&
             find(h, "dnnl_memory_create", &api.memory_create) && find(h, "dnnl_memory_destroy", &api.memory_destroy);
  api.there =
      all && !api.engine_create(&api.engine, CPU_ENGINE, 0) && !api.stream_create(&api.stream, api.engine, IN_ORDER);
}

static bool is_there(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  return api.there;
}

/* ---- what is prepared ---- */

/* An operand: the program's layout, the library's, and how one becomes the other; NULL: they are the same. */
typedef struct operand {
  void *ours, *reorder;
  const void *theirs;
} operand;

typedef struct prepared {
  wk__conv c;
  bool biased, refused;
  int threads;
  void *convolution, *bias;
  operand source, weights, result;
} prepared;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static prepared *list[MOST_PREPARED];
static int list_count;

static bool same_sizes(const int64_t *a, const int64_t *b) { return memcmp(a, b, WK__CONV_DIMS * sizeof *a) == 0; }

static bool is_for(const prepared *p, const wk__conv *c, bool biased) {
  const wk__conv *o = &p->c;
  return o->channels_last == c->channels_last && o->batch == c->batch && o->groups == c->groups &&
         o->in_channels == c->in_channels && o->out_channels == c->out_channels && same_sizes(o->in, c->in) &&
         same_sizes(o->out, c->out) && same_sizes(o->kernel, c->kernel) && same_sizes(o->stride, c->stride) &&
         same_sizes(o->dilation, c->dilation) && same_sizes(o->padding, c->padding) && p->biased == biased &&
         p->threads == wk_get_num_threads();
}

/* Dims of images (N, C, D, H, W) or of weights (G, O, C, D, H, W), the channels being inside or not. `lead` of them
 * come before the channels. */
static bool lay_out(int lead, const int64_t *sizes, int ndim, bool channels_inside, void **out_ours, void **out_any) {
  int64_t strides[MOST_DIMS], step = 1;
  if (channels_inside) strides[lead] = 1, step = sizes[lead];
  for (int d = ndim - 1; d >= 0; d--) {
    if (channels_inside && d == lead) continue;
    strides[d] = step;
    step *= sizes[d];
  }
  return !api.layout_by_strides(out_ours, ndim, sizes, FLOAT32, strides) &&
         !api.layout_by_tag(out_any, ndim, sizes, FLOAT32, ANY_LAYOUT);
}

static bool lay_out_images(const wk__conv *c, int64_t channels, const int64_t *places, void **out_ours,
                           void **out_any) {
  const int64_t sizes[] = {c->batch, channels, places[0], places[1], places[2]};
  return lay_out(1, sizes, 5, c->channels_last, out_ours, out_any);
}

static bool reorder(operand *o, bool into) {
  void *pd = NULL;
  if (api.layouts_equal(o->ours, o->theirs)) return true;
  const void *from = into ? o->ours : o->theirs, *to = into ? o->theirs : o->ours;
  return !api.describe_reorder(&pd, from, api.engine, to, api.engine, NULL) && !api.create(&o->reorder, pd);
}

static bool prepare(prepared *p) {
  const wk__conv *c = &p->c;
  void *source, *weights, *result, *pd = NULL;
  int64_t dilations[WK__CONV_DIMS], after[WK__CONV_DIMS], channels = c->groups * c->out_channels;
  const int64_t sizes[] = {c->groups, c->out_channels, c->in_channels, c->kernel[0], c->kernel[1], c->kernel[2]};
  for (int d = 0; d < WK__CONV_DIMS; d++) {
    int64_t reach = (c->out[d] - 1) * c->stride[d] + (c->kernel[d] - 1) * c->dilation[d] + 1;
    dilations[d] = c->dilation[d] - 1;
    after[d] = wk__max(0, reach - c->in[d] - c->padding[d]);
  }
  if (!lay_out_images(c, c->groups * c->in_channels, c->in, &p->source.ours, &source)) return false;
  if (!lay_out_images(c, channels, c->out, &p->result.ours, &result)) return false;
  if (!lay_out(2, sizes, 6, c->channels_last, &p->weights.ours, &weights)) return false;
  if (p->biased && api.layout_by_strides(&p->bias, 1, &channels, FLOAT32, (const int64_t[]){1})) return false;
  if (api.describe_convolution(&pd, api.engine, FORWARD_INFERENCE, CONVOLUTION_DIRECT, source, weights, p->bias, result,
                               c->stride, dilations, c->padding, after, NULL))
    return false;
  p->source.theirs = api.query_layout(pd, QUERY_SOURCE, 0);
  p->weights.theirs = api.query_layout(pd, QUERY_WEIGHTS, 0);
  p->result.theirs = api.query_layout(pd, QUERY_RESULT, 0);
  return reorder(&p->source, true) && reorder(&p->weights, true) && reorder(&p->result, false) &&
         !api.create(&p->convolution, pd);
}

/* NULL: it is refused, or there are too many. */
static prepared *get_prepared(const wk__conv *c, bool biased) {
  for (int i = 0; i < list_count; i++)
    if (is_for(list[i], c, biased)) return list[i]->refused ? NULL : list[i];
  prepared *p = list_count < MOST_PREPARED ? wk__alloc_zeroed(sizeof *p) : NULL;
  if (!p) return NULL;
  p->c = *c;
  p->biased = biased;
  p->threads = wk_get_num_threads();
  p->refused = !prepare(p);
  list[list_count++] = p;
  return p->refused ? NULL : p;
}

/* ---- running ---- */

/* An operand's memories while it runs. */
typedef struct memories {
  void *ours, *theirs, *data; /* data: owned, what is reordered */
} memories;

static bool bind(const operand *o, const void *data, memories *m) {
  if (api.memory_create(&m->ours, o->ours, api.engine, (void *)data)) return false;
  if (!o->reorder) return true;
  m->data = wk__alloc_aligned(api.layout_size(o->theirs), 64);
  return m->data && !api.memory_create(&m->theirs, o->theirs, api.engine, m->data);
}

static void *used(const memories *m) { return m->theirs ? m->theirs : m->ours; }

static void release(memories *m) {
  if (m->ours) api.memory_destroy(m->ours);
  if (m->theirs) api.memory_destroy(m->theirs);
  wk__free(m->data);
}

static bool move(const operand *o, void *from, void *to) {
  const argument arguments[] = {{ARG_SOURCE, from}, {ARG_RESULT, to}};
  return !o->reorder || !api.execute(o->reorder, api.stream, 2, arguments);
}

static bool execute(const prepared *p, memories *m, void *bias) {
  const argument arguments[] = {
      {ARG_SOURCE, used(&m[0])}, {ARG_WEIGHTS, used(&m[1])}, {ARG_RESULT, used(&m[2])}, {ARG_BIAS, bias}};
  return move(&p->source, m[0].ours, m[0].theirs) && move(&p->weights, m[1].ours, m[1].theirs) &&
         !api.execute(p->convolution, api.stream, bias ? 4 : 3, arguments) &&
         move(&p->result, m[2].theirs, m[2].ours) && !api.stream_wait(api.stream);
}

static bool run(const wk__conv *c, const void *input, const void *weight, const void *bias, void *output) {
  memories m[3] = {{0}};
  void *added = NULL;
  prepared *p = get_prepared(c, bias != NULL);
  bool fits = p && bind(&p->source, input, &m[0]) && bind(&p->weights, weight, &m[1]) &&
              bind(&p->result, output, &m[2]) &&
              (!bias || !api.memory_create(&added, p->bias, api.engine, (void *)bias)) && execute(p, m, added);
  for (int i = 0; i < 3; i++) release(&m[i]);
  if (added) api.memory_destroy(added);
  return fits;
}

bool wk__conv_onednn_takes(const wk__conv *c) {
  if (c->type != WK__GEMM_F32 || c->batch == 0 || !is_there()) return false;
  for (int d = 0; d < WK__CONV_DIMS; d++)
    if (c->padding[d] < 0 || c->in[d] == 0 || c->out[d] == 0) return false;
  const wk__onednn_library *l = wk__onednn_get();
  return (l->get_threads && l->set_threads) || wk_get_num_threads() >= sysconf(_SC_NPROCESSORS_ONLN);
}

bool wk__conv_onednn_forward(const wk__conv *c, const void *input, const void *weight, const void *bias_or_null,
                             void *output) {
  const wk__onednn_library *l = wk__onednn_get();
  pthread_mutex_lock(&lock);
  int threads = l->get_threads && l->set_threads ? l->get_threads() : 0;
  if (threads) l->set_threads(wk_get_num_threads());
  bool done = run(c, input, weight, bias_or_null, output);
  if (threads) l->set_threads(threads);
  pthread_mutex_unlock(&lock);
  return done;
}
