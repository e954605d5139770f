/* Depthwise convolutions of planes whose lines are much shorter than a vector: as many channels as a vector has lanes
 * are turned so that they lie side by side in each pixel, and back.
 *
 * In: a job where wk__small_planes_takes, forward or of the weight's gradient. Out: its result, with the bits of
 * depthwise.c: an element is the same chain over the same taps, padding included, and a tap's sums are one for each
 * column, folded in the same pairs. A task is a block of channels, forward of one image; a block's
 * images come one after the other, so that a thread keeps the weights that it has turned.
 * Tests: tests/c/test_conv.c. */
#include <stdatomic.h>

#include "cpu/conv/conv_internal.h"
#include "cpu/conv/conv_kernels.h"
#include "cpu/gemm/gemm_kernels.h"

enum { MOST_PLANE_BYTES = 128 << 10, MOST_TAPS = 128 };

typedef struct small_planes {
  const wk__conv_job *job;
  const wk__conv *c;
  const wk__conv_kernels *kernels;
  const wk__gemm_kernels *gemm; /* packing, which transposes */
  wk__conv_sizes s;
  int64_t lanes, blocks, height, width; /* of a plane with its padding */
  int64_t at[MOST_TAPS];                /* where a tap begins, in elements */
  _Atomic bool failed;
} small_planes;

/* A thread's memory; (pixels, lanes) but for the last. */
typedef struct turned {
  char *plane;  /* with zeros around */
  char *pixels; /* of the image */
  char *weight, *bias, *result;
  char *planes; /* (lanes, places) */
} turned;

static int64_t padded(const wk__conv *c, int dim) {
  return (c->out[dim] - 1) * c->stride[dim] + (c->kernel[dim] - 1) * c->dilation[dim] + 1;
}

bool wk__small_planes_takes(const wk__conv *c) {
  int64_t lanes = wk__gemm_kernels_get(c->type)->lanes;
  if (c->channels_last || 2 * c->out[2] > lanes || c->groups < lanes || wk__conv_count(c->kernel) > MOST_TAPS)
    return false;
  int64_t bytes = lanes * wk__conv_element(c);
  return padded(c, 1) * padded(c, 2) * bytes <= MOST_PLANE_BYTES && wk__conv_count(c->in) * bytes <= MOST_PLANE_BYTES;
}

/* ---- forward ---- */

static int64_t plane_bytes(const small_planes *p) { return p->height * p->width * p->lanes * p->s.element; }

static bool get_memory(small_planes *p, turned *t) {
  int64_t lane_bytes = p->lanes * p->s.element, places = p->s.places * lane_bytes + WK__GEMM_PACK_SLACK;
  int64_t pixels = p->s.pixels * lane_bytes + WK__GEMM_PACK_SLACK, taps = p->s.taps * lane_bytes + WK__GEMM_PACK_SLACK;
  t->plane = wk__workspace_get(WK__WORKSPACE_CONV, (size_t)(plane_bytes(p) + pixels + taps + lane_bytes + 2 * places));
  if (!t->plane) {
    atomic_store(&p->failed, true);
    return false;
  }
  memset(t->plane, 0, (size_t)plane_bytes(p));
  t->pixels = t->plane + plane_bytes(p);
  t->weight = t->pixels + pixels;
  t->bias = t->weight + taps;
  t->result = t->bias + lane_bytes;
  t->planes = t->result + places;
  return true;
}

static void turn_weight(const small_planes *p, int64_t channel, int64_t channels, const turned *t) {
  const char *weight = (const char *)p->job->weight + channel * p->s.taps * p->s.element;
  p->gemm->pack(channels, p->lanes, p->s.taps, weight, p->s.taps, 1, t->weight);
  memset(t->bias, 0, (size_t)(p->lanes * p->s.element));
  if (p->job->bias)
    memcpy(t->bias, (const char *)p->job->bias + channel * p->s.element, (size_t)(channels * p->s.element));
}

static void turn_image(const small_planes *p, const char *image, int64_t channels, const turned *t) {
  const wk__conv *c = p->c;
  int64_t pixel = p->lanes * p->s.element, first = wk__max(0, -c->padding[2]);
  int64_t count = wk__min(c->in[2], p->width - c->padding[2]) - first;
  p->gemm->pack(channels, p->lanes, p->s.pixels, image, p->s.pixels, 1, t->pixels);
  for (int64_t h = wk__max(0, -c->padding[1]); h < wk__min(c->in[1], p->height - c->padding[1]) && count > 0; h++)
    memcpy(t->plane + ((h + c->padding[1]) * p->width + first + c->padding[2]) * pixel,
           t->pixels + (h * c->in[2] + first) * pixel, (size_t)(count * pixel));
}

static void weigh(const small_planes *p, const turned *t) {
  const wk__conv *c = p->c;
  int64_t pixel = p->lanes * p->s.element;
  for (int64_t h = 0; h < c->out[1]; h++)
    p->kernels->weigh_run(c->out[2], t->plane + h * c->stride[1] * p->width * pixel, c->stride[2] * p->lanes,
                          (int)p->s.taps, p->at, t->weight, p->lanes, p->job->bias ? t->bias : NULL,
                          t->result + h * c->out[2] * pixel);
}

static void forward_tasks(void *context, int64_t begin, int64_t end) {
  small_planes *p = context;
  const wk__conv *c = p->c;
  int64_t ready = -1;
  turned t;
  if (!get_memory(p, &t)) return;
  for (int64_t task = begin; task < end; task++) {
    int64_t image = task % c->batch, channel = task / c->batch * p->lanes;
    int64_t channels = wk__min(p->lanes, c->groups - channel), first = image * c->groups + channel;
    if (ready != channel) turn_weight(p, channel, channels, &t);
    ready = channel;
    turn_image(p, (const char *)p->job->in + first * p->s.pixels * p->s.element, channels, &t);
    weigh(p, &t);
    p->gemm->pack(p->s.places, p->s.places, channels, t.result, p->lanes, 1, t.planes);
    memcpy((char *)p->job->out + first * p->s.places * p->s.element, t.planes,
           (size_t)(channels * p->s.places * p->s.element));
    wk__conv_finish(p->job, (wk__conv_piece){image, channel, 0, channels, p->s.places});
  }
}

/* ---- the weight's gradient: each column of places has sums of its own ---- */

enum { SUM_BYTES = 64 }; /* of a tap: the columns that depthwise.c has sums for */

typedef struct sums {
  turned t;
  char *grad; /* (places, lanes) */
  char *sums; /* (columns, taps, lanes) */
} sums;

static int64_t column_elements(const small_planes *p) { return p->s.taps * p->lanes; }

static bool get_sums(small_planes *p, sums *s) {
  int64_t lane_bytes = p->lanes * p->s.element, pixels = p->s.pixels * lane_bytes + WK__GEMM_PACK_SLACK;
  int64_t grad = p->s.places * lane_bytes + WK__GEMM_PACK_SLACK, columns = SUM_BYTES / p->s.element;
  int64_t bytes = columns * column_elements(p) * p->s.element;
  int64_t weight = column_elements(p) * p->s.element + WK__GEMM_PACK_SLACK;
  s->t.plane = wk__workspace_get(WK__WORKSPACE_CONV, (size_t)(plane_bytes(p) + pixels + grad + bytes + weight));
  if (!s->t.plane) {
    atomic_store(&p->failed, true);
    return false;
  }
  memset(s->t.plane, 0, (size_t)plane_bytes(p));
  s->t.pixels = s->t.plane + plane_bytes(p);
  s->grad = s->t.pixels + pixels;
  s->sums = s->grad + grad;
  s->t.weight = s->sums + bytes;
  return true;
}

static void correlate(const small_planes *p, const sums *s) {
  const wk__conv *c = p->c;
  int64_t pixel = p->lanes * p->s.element;
  for (int64_t w = 0; w < c->out[2]; w++)
    p->kernels->correlate_run(c->out[1], s->t.plane + w * c->stride[2] * pixel, c->stride[1] * p->width * p->lanes,
                              (int)p->s.taps, p->at, s->grad + w * pixel, c->out[2] * p->lanes, p->lanes,
                              s->sums + w * column_elements(p) * p->s.element, p->lanes);
}

#define DEFINE_FOLD_COLUMNS(T)                                                       \
  static void fold_columns_##T(T *sums, int64_t count) {                             \
    for (int64_t n = SUM_BYTES / (int64_t)sizeof(T) / 2 * count; n >= count; n /= 2) \
      for (int64_t i = 0; i < n; i++) sums[i] += sums[i + n];                        \
  }
DEFINE_FOLD_COLUMNS(float)
DEFINE_FOLD_COLUMNS(double)

static void weight_tasks(void *context, int64_t begin, int64_t end) {
  small_planes *p = context;
  const wk__conv *c = p->c;
  sums s;
  if (!get_sums(p, &s)) return;
  for (int64_t block = begin; block < end; block++) {
    int64_t channel = block * p->lanes, channels = wk__min(p->lanes, c->groups - channel);
    memset(s.sums, 0, (size_t)(SUM_BYTES * column_elements(p)));
    for (int64_t n = 0; n < c->batch; n++) {
      int64_t first = n * c->groups + channel;
      const char *grad = (const char *)p->job->in + first * p->s.places * p->s.element;
      turn_image(p, (const char *)p->job->weight + first * p->s.pixels * p->s.element, channels, &s.t);
      p->gemm->pack(channels, p->lanes, p->s.places, grad, p->s.places, 1, s.grad);
      correlate(p, &s);
    }
    if (c->type == WK__GEMM_F64) {
      fold_columns_double((double *)s.sums, column_elements(p));
    } else {
      fold_columns_float((float *)s.sums, column_elements(p));
    }
    p->gemm->pack(p->s.taps, p->s.taps, channels, s.sums, p->lanes, 1, s.t.weight);
    memcpy((char *)p->job->out + channel * p->s.taps * p->s.element, s.t.weight,
           (size_t)(channels * p->s.taps * p->s.element));
  }
}

/* ---- the calls ---- */

static wk_status run(const wk__conv_job *job, bool forward) {
  const wk__conv *c = job->c;
  small_planes p = {.job = job, .c = c, .kernels = wk__conv_kernels_get(c->type), .s = wk__conv_sizes_of(c)};
  p.gemm = wk__gemm_kernels_get(c->type);
  p.lanes = p.gemm->lanes, p.blocks = wk__ceil_div(c->groups, p.lanes);
  p.height = padded(c, 1), p.width = padded(c, 2);
  for (int64_t k = 0; k < p.s.taps; k++)
    p.at[k] = (k / c->kernel[2] * c->dilation[1] * p.width + k % c->kernel[2] * c->dilation[2]) * p.lanes;
  wk__parallel_for(forward ? p.blocks * c->batch : p.blocks, 1, forward ? forward_tasks : weight_tasks, &p);
  return atomic_load(&p.failed) ? wk_fail(WK_OUT_OF_MEMORY, "convolution: out of memory") : WK_OK;
}

wk_status wk__small_planes_forward(const wk__conv_job *job) { return run(job, true); }
wk_status wk__small_planes_weight_gradient(const wk__conv_job *job) { return run(job, false); }
