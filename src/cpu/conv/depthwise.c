/* Convolutions whose every channel is a group of its own, in two dims: vectors go over a plane, or over the channels of
 * a pixel. Planes with short lines are small_planes.c's, but for the input's
 * gradient.
 *
 * In: a job where wk__conv_is_depthwise. Out: its result. Planes are copied one by one to memory with padding around
 * them, in which elements a stride apart are side by side (plane_of): then each tap sees adjacent elements, without a
 * test. Pixels need no copy: a list says which taps of a place are inside of the image.
 *
 * Invariant: tasks are planes, channels, or lines of pixels, and no sum crosses them. The sums of a weight's gradient
 * have as many lanes at every CPU level.
 * Tests: tests/c/test_conv.c. */
#include <stdatomic.h>

#include "cpu/conv/conv_internal.h"
#include "cpu/conv/conv_kernels.h"

enum {
  SUM_BYTES = 64,     /* of a tap's lanes */
  SLACK = 16,         /* elements behind a line, for the last vector */
  CHANNEL_BLOCK = 16, /* of a task */
};

typedef struct depthwise {
  const wk__conv_job *job;
  const wk__conv *c;
  const wk__conv_kernels *kernels;
  int64_t element, taps, places, pixels;
  /* planes: (height, phases, width) */
  int64_t height, width, row_step;
  int64_t *at;  /* (taps) where a tap begins */
  char *weight; /* channels last: (taps, channels) */
  _Atomic bool failed;
} depthwise;

static wk_status prepare(depthwise *d, const wk__conv_job *job) {
  const wk__conv *c = job->c;
  *d = (depthwise){.job = job, .c = c, .kernels = wk__conv_kernels_get(c->type), .element = wk__conv_element(c)};
  d->taps = wk__conv_count(c->kernel), d->places = wk__conv_count(c->out), d->pixels = wk__conv_count(c->in);
  int64_t columns = (c->out[2] - 1) * c->stride[2] + (c->kernel[2] - 1) * c->dilation[2] + 1;
  d->height = (c->out[1] - 1) * c->stride[1] + (c->kernel[1] - 1) * c->dilation[1] + 1;
  d->width = wk__ceil_div(columns, c->stride[2]) + SLACK;
  d->row_step = c->stride[1] * c->stride[2] * d->width;
  d->at = wk__alloc((size_t)d->taps * sizeof *d->at);
  if (!d->at) return WK_OUT_OF_MEMORY;
  for (int64_t t = 0; t < d->taps; t++) {
    int64_t h = t / c->kernel[2] * c->dilation[1], w = t % c->kernel[2] * c->dilation[2];
    d->at[t] = c->channels_last ? (h * c->in[2] + w) * c->groups
                                : (h * c->stride[2] + w % c->stride[2]) * d->width + w / c->stride[2];
  }
  return WK_OK;
}

static wk_status run(depthwise *d, int64_t tasks, wk__range_fn *fn) {
  wk__parallel_for(tasks, 1, fn, d);
  wk__free(d->at);
  wk__free(d->weight);
  return atomic_load(&d->failed) ? wk_fail(WK_OUT_OF_MEMORY, "convolution: out of memory") : WK_OK;
}

/* ---- planes ---- */

static int64_t plane_bytes(const depthwise *d) { return d->height * d->c->stride[2] * d->width * d->element; }

/* A plane of zeros, and `more` bytes behind it. */
static char *plane_memory(depthwise *d, int64_t more) {
  char *plane = wk__workspace_get(WK__WORKSPACE_CONV, (size_t)(plane_bytes(d) + more));
  if (!plane) {
    atomic_store(&d->failed, true);
    return NULL;
  }
  memset(plane, 0, (size_t)plane_bytes(d));
  return plane;
}

/* Of each line of the image the pixels first, first + stride, ...: where they lie in a line of the plane. */
typedef struct phase {
  int64_t first, count, at;
} phase;

static phase phase_of(const depthwise *d, int64_t index) {
  const wk__conv *c = d->c;
  int64_t stride = c->stride[2], reach = (d->width - SLACK) * stride - c->padding[2];
  int64_t end = wk__min(c->in[2], reach), least = wk__max(0, -c->padding[2]);
  phase p = {.first = least + (index - (least + c->padding[2]) % stride + stride) % stride};
  p.count = p.first < end ? wk__ceil_div(end - p.first, stride) : 0;
  p.at = index * d->width + (p.first + c->padding[2]) / stride;
  return p;
}

static void enter_plane(const depthwise *d, const char *image, char *plane) {
  const wk__conv *c = d->c;
  int64_t line = c->stride[2] * d->width; /* of the plane: all phases */
  int64_t first_row = wk__max(0, -c->padding[1]), end_row = wk__min(c->in[1], d->height - c->padding[1]);
  for (int64_t i = 0; i < c->stride[2]; i++) {
    phase p = phase_of(d, i);
    for (int64_t h = first_row; h < end_row; h++)
      d->kernels->copy(image + (h * c->in[2] + p.first) * d->element, c->stride[2], p.count,
                       plane + ((h + c->padding[1]) * line + p.at) * d->element, p.count);
  }
}

static const char *bias_of(const depthwise *d, int64_t channel) {
  return d->job->bias ? (const char *)d->job->bias + channel * d->element : NULL;
}

/* Small planes together, of one image: planes [first, end) of the result are done. Gives where the next ones begin. */
static int64_t finish_planes(const depthwise *d, int64_t first, int64_t end, bool last) {
  enum { TOGETHER = 4096 }; /* elements */
  if (!d->job->after || (!last && end % d->c->groups && (end - first) * d->places < TOGETHER)) return first;
  wk__conv_finish(d->job, (wk__conv_piece){first / d->c->groups, first % d->c->groups, 0, end - first, d->places});
  return end;
}

static void forward_planes(void *context, int64_t begin, int64_t end) {
  depthwise *d = context;
  const wk__conv *c = d->c;
  char *plane = plane_memory(d, 0);
  int64_t unfinished = begin;
  for (int64_t i = begin; i < end && plane; i++) {
    int64_t channel = i % c->groups;
    enter_plane(d, (const char *)d->job->in + i * d->pixels * d->element, plane);
    d->kernels->weigh(c->out[1], c->out[2], d->row_step, plane, (int)d->taps, d->at,
                      (const char *)d->job->weight + channel * d->taps * d->element, bias_of(d, channel),
                      (char *)d->job->out + i * d->places * d->element);
    unfinished = finish_planes(d, unfinished, i + 1, i + 1 == end);
  }
}

/* ---- the input's gradient: pixels a stride apart see the same taps. For each such phase the gradient's plane, with
 * room around it, is weighed by those. ---- */

/* Along one dim, for pixels first, first + stride, ...: the taps that see them from a place, and that place. */
typedef struct seeing {
  int64_t first, count;      /* pixels */
  int64_t tap, tap_step;     /* the first tap, and how far to the next */
  int64_t place, place_step; /* of the first pixel by the first tap; the next tap's is place_step before it */
  int64_t taps;
} seeing;

static int64_t floor_div_signed(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

static seeing seen_by(const wk__conv *c, int dim, int64_t first) {
  int64_t stride = c->stride[dim], dilation = c->dilation[dim], divisor = wk__greatest_divisor(stride, dilation);
  seeing s = {.first = first, .count = wk__ceil_div(c->in[dim] - first, stride), .tap_step = stride / divisor};
  s.place_step = dilation / divisor;
  int64_t tap = 0;
  while (tap < s.tap_step && (first + c->padding[dim] - tap * dilation) % stride) tap++;
  s.tap = tap;
  if (tap < s.tap_step && tap < c->kernel[dim]) s.taps = wk__ceil_div(c->kernel[dim] - tap, s.tap_step);
  s.place = floor_div_signed(first + c->padding[dim] - tap * dilation, stride);
  return s;
}

/* The gradient's plane with `before` lines and columns of zeros before it and as many behind as are looked at. */
typedef struct surrounded {
  int64_t before[2], height, width; /* in elements */
} surrounded;

static surrounded surround(const wk__conv *c) {
  surrounded s = {.before = {0}};
  int64_t size[2];
  for (int d = 0; d < 2; d++) {
    int64_t reach = (c->kernel[d + 1] - 1) * c->dilation[d + 1], last = c->in[d + 1] - 1 + c->padding[d + 1];
    s.before[d] = reach / c->stride[d + 1] + 1 + wk__max(0, -c->padding[d + 1]);
    size[d] = s.before[d] + wk__max(c->out[d + 1], last / c->stride[d + 1] + 1);
  }
  s.height = size[0], s.width = size[1] + SLACK;
  return s;
}

/* One channel's image, on its way. */
typedef struct gradient {
  depthwise *d;
  surrounded s;
  char *plane, *weight, *result; /* result: of one phase */
  int64_t *at;
} gradient;

/* Which taps, and where: their number. */
static int find_phase_taps(const gradient *g, const seeing *h, const seeing *w, const char *weight) {
  int64_t element = g->d->element;
  int n = 0;
  for (int64_t i = 0; i < h->taps; i++)
    for (int64_t j = 0; j < w->taps; j++, n++) {
      int64_t tap = (h->tap + i * h->tap_step) * g->d->c->kernel[2] + w->tap + j * w->tap_step;
      g->at[n] =
          (h->place - i * h->place_step + g->s.before[0]) * g->s.width + w->place - j * w->place_step + g->s.before[1];
      memcpy(g->weight + n * element, weight + tap * element, (size_t)element);
    }
  return n;
}

#define DEFINE_SET_APART(T)                                                      \
  static void set_apart_##T(const T *from, int64_t count, T *to, int64_t step) { \
    for (int64_t i = 0; i < count; i++) to[i * step] = from[i];                  \
  }
DEFINE_SET_APART(float)
DEFINE_SET_APART(double)

static void write_phase(const gradient *g, const seeing *h, const seeing *w, char *image) {
  const wk__conv *c = g->d->c;
  for (int64_t i = 0; i < h->count; i++) {
    const char *from = g->result + i * w->count * g->d->element;
    char *to = image + ((h->first + i * c->stride[1]) * c->in[2] + w->first) * g->d->element;
    if (c->type == WK__GEMM_F64) {
      set_apart_double((const double *)from, w->count, (double *)to, c->stride[2]);
    } else {
      set_apart_float((const float *)from, w->count, (float *)to, c->stride[2]);
    }
  }
}

static void gradient_of_plane(const gradient *g, const char *grad, const char *weight, const char *bias, char *image) {
  const wk__conv *c = g->d->c;
  for (int64_t i = 0; i < c->out[1]; i++)
    memcpy(g->plane + ((i + g->s.before[0]) * g->s.width + g->s.before[1]) * g->d->element,
           grad + i * c->out[2] * g->d->element, (size_t)(c->out[2] * g->d->element));
  for (int64_t y = 0; y < wk__min(c->stride[1], c->in[1]); y++)
    for (int64_t x = 0; x < wk__min(c->stride[2], c->in[2]); x++) {
      seeing h = seen_by(c, 1, y), w = seen_by(c, 2, x);
      int taps = find_phase_taps(g, &h, &w, weight);
      g->d->kernels->weigh(h.count, w.count, g->s.width, g->plane, taps, g->at, g->weight, bias, g->result);
      write_phase(g, &h, &w, image);
    }
}

static void gradient_planes(void *context, int64_t begin, int64_t end) {
  depthwise *d = context;
  const wk__conv *c = d->c;
  gradient g = {.d = d, .s = surround(c)};
  int64_t line = 64, taps = d->taps * (int64_t)sizeof *g.at;
  int64_t plane = wk__ceil_div(g.s.height * g.s.width * d->element, line) * line;
  g.plane = wk__workspace_get(WK__WORKSPACE_CONV, (size_t)(plane + 2 * taps + (d->pixels + SLACK) * d->element));
  if (!g.plane) {
    atomic_store(&d->failed, true);
    return;
  }
  memset(g.plane, 0, (size_t)plane);
  g.at = (int64_t *)(g.plane + plane), g.weight = (char *)g.at + taps, g.result = g.weight + taps;
  for (int64_t i = begin; i < end; i++) {
    int64_t channel = i % c->groups;
    gradient_of_plane(&g, (const char *)d->job->in + i * d->places * d->element,
                      (const char *)d->job->weight + channel * d->taps * d->element, bias_of(d, channel),
                      (char *)d->job->out + i * d->pixels * d->element);
  }
}

/* The lanes of each tap, in pairs. */
#define DEFINE_FOLD(T)                                      \
  static void fold_##T(T *sums, int64_t taps, T *out) {     \
    enum { LANES = SUM_BYTES / sizeof(T) };                 \
    for (int64_t t = 0; t < taps; t++, sums += LANES) {     \
      for (int n = LANES / 2; n > 0; n /= 2)                \
        for (int i = 0; i < n; i++) sums[i] += sums[i + n]; \
      out[t] = sums[0];                                     \
    }                                                       \
  }
DEFINE_FOLD(float)
DEFINE_FOLD(double)

static void weight_planes(void *context, int64_t begin, int64_t end) {
  depthwise *d = context;
  const wk__conv *c = d->c;
  char *plane = plane_memory(d, d->taps * SUM_BYTES), *sums = plane ? plane + plane_bytes(d) : NULL;
  for (int64_t channel = begin; channel < end && plane; channel++) {
    memset(sums, 0, (size_t)(d->taps * SUM_BYTES));
    for (int64_t n = 0; n < c->batch; n++) {
      int64_t i = n * c->groups + channel;
      enter_plane(d, (const char *)d->job->weight + i * d->pixels * d->element, plane);
      d->kernels->correlate(c->out[1], c->out[2], d->row_step, plane, (int)d->taps, d->at,
                            (const char *)d->job->in + i * d->places * d->element, sums);
    }
    char *out = (char *)d->job->out + channel * d->taps * d->element;
    if (c->type == WK__GEMM_F64) {
      fold_double((double *)sums, d->taps, (double *)out);
    } else {
      fold_float((float *)sums, d->taps, (float *)out);
    }
  }
}

/* ---- channels last ---- */

/* (channels, taps) to (taps, channels), or back */
static void transpose(const depthwise *d, const char *from, int64_t rows, int64_t columns, char *to) {
  for (int64_t i = 0; i < columns; i++)
    for (int64_t j = 0; j < rows; j++, to += d->element)
      memcpy(to, from + (j * columns + i) * d->element, (size_t)d->element);
}

static wk_status prepare_weight(depthwise *d) {
  d->weight = wk__alloc((size_t)(d->taps * d->c->groups * d->element));
  if (!d->weight) return WK_OUT_OF_MEMORY;
  transpose(d, d->job->weight, d->c->groups, d->taps, d->weight);
  return WK_OK;
}

/* Which pixels are weighed for one of the result, and by which taps. */
typedef struct terms {
  const void **x, **w; /* (taps) */
  int count;
} terms;

static bool terms_memory(depthwise *d, terms *t) {
  t->x = wk__workspace_get(WK__WORKSPACE_CONV, (size_t)d->taps * 2 * sizeof *t->x);
  if (!t->x) {
    atomic_store(&d->failed, true);
    return false;
  }
  t->w = t->x + d->taps;
  return true;
}

/* Along one dim: the pixel that a tap sees from a place. */
static int64_t seen(const wk__conv *c, int dim, int64_t place, int64_t tap) {
  return place * c->stride[dim] - c->padding[dim] + tap * c->dilation[dim];
}

static void find_terms(const depthwise *d, int64_t h, int64_t w, const char *image, terms *t) {
  const wk__conv *c = d->c;
  t->count = 0;
  for (int64_t kh = 0; kh < c->kernel[1]; kh++) {
    int64_t y = seen(c, 1, h, kh);
    if (y < 0 || y >= c->in[1]) continue;
    for (int64_t kw = 0; kw < c->kernel[2]; kw++) {
      int64_t x = seen(c, 2, w, kw);
      if (x < 0 || x >= c->in[2]) continue;
      t->x[t->count] = image + (y * c->in[2] + x) * c->groups * d->element;
      t->w[t->count++] = d->weight + (kh * c->kernel[2] + kw) * c->groups * d->element;
    }
  }
}

/* Places of a line that see every tap of the lines of the kernel that are inside of the image. */
typedef struct interior {
  int64_t first, end;           /* places */
  int64_t kernel_h, kernel_end; /* lines of the kernel */
} interior;

static interior interior_of(const wk__conv *c, int64_t h) {
  interior in = {.kernel_h = c->kernel[1], .kernel_end = 0};
  for (int64_t kh = c->kernel[1] - 1; kh >= 0; kh--) {
    int64_t y = seen(c, 1, h, kh);
    if (y < 0 || y >= c->in[1]) continue;
    in.kernel_h = kh;
    if (!in.kernel_end) in.kernel_end = kh + 1;
  }
  int64_t last = c->in[2] - 1 - seen(c, 2, 0, c->kernel[2] - 1);
  in.first = c->padding[2] > 0 ? wk__min(c->out[2], wk__ceil_div(c->padding[2], c->stride[2])) : 0;
  in.end = last < 0 ? 0 : wk__min(c->out[2], last / c->stride[2] + 1);
  if (in.kernel_h >= in.kernel_end || in.end < in.first) in.end = in.first;
  return in;
}

/* Where the taps of those lines are, from the first tap of all on. */
static const int64_t *taps_of(const depthwise *d, const interior *in, int64_t *count) {
  *count = (in->kernel_end - in->kernel_h) * d->c->kernel[2];
  return d->at + in->kernel_h * d->c->kernel[2];
}

static void forward_line(const depthwise *d, const char *image, int64_t h, char *out, terms *t) {
  const wk__conv *c = d->c;
  interior in = interior_of(c, h);
  int64_t taps, pixel = c->groups * d->element;
  const int64_t *at = taps_of(d, &in, &taps);
  for (int64_t w = 0; w < c->out[2]; w++) {
    if (w == in.first && in.end > in.first) {
      const char *x = image + (seen(c, 1, h, 0) * c->in[2] + seen(c, 2, w, 0)) * pixel;
      d->kernels->weigh_run(in.end - in.first, x, c->stride[2] * c->groups, (int)taps, at,
                            d->weight + in.kernel_h * c->kernel[2] * pixel, c->groups, d->job->bias, out + w * pixel);
      w = in.end - 1;
      continue;
    }
    find_terms(d, h, w, image, t);
    d->kernels->weigh_pixels(t->count, t->x, t->w, c->groups, d->job->bias, out + w * pixel);
  }
}

/* A task is a line of the result. */
static void forward_pixels(void *context, int64_t begin, int64_t end) {
  depthwise *d = context;
  const wk__conv *c = d->c;
  terms t;
  if (!terms_memory(d, &t)) return;
  for (int64_t line = begin; line < end; line++) {
    forward_line(d, (const char *)d->job->in + line / c->out[1] * d->pixels * c->groups * d->element, line % c->out[1],
                 (char *)d->job->out + line * c->out[2] * c->groups * d->element, &t);
    wk__conv_finish(d->job, (wk__conv_piece){0, line * c->out[2], 0, c->out[2], c->groups});
  }
}

/* The place that sees a pixel by a tap; -1: none. */
static int64_t seen_from(const wk__conv *c, int dim, int64_t pixel, int64_t tap) {
  int64_t from = pixel + c->padding[dim] - tap * c->dilation[dim];
  return from < 0 || from % c->stride[dim] || from / c->stride[dim] >= c->out[dim] ? -1 : from / c->stride[dim];
}

static void find_gradient_terms(const depthwise *d, int64_t h, int64_t w, const char *grad, terms *t) {
  const wk__conv *c = d->c;
  t->count = 0;
  for (int64_t kh = 0; kh < c->kernel[1]; kh++) {
    int64_t y = seen_from(c, 1, h, kh);
    for (int64_t kw = 0; kw < c->kernel[2] && y >= 0; kw++) {
      int64_t x = seen_from(c, 2, w, kw);
      if (x < 0) continue;
      t->x[t->count] = grad + (y * c->out[2] + x) * c->groups * d->element;
      t->w[t->count++] = d->weight + (kh * c->kernel[2] + kw) * c->groups * d->element;
    }
  }
}

/* A task is a line of the input. */
static void gradient_pixels(void *context, int64_t begin, int64_t end) {
  depthwise *d = context;
  const wk__conv *c = d->c;
  terms t;
  if (!terms_memory(d, &t)) return;
  for (int64_t line = begin; line < end; line++) {
    const char *grad = (const char *)d->job->in + line / c->in[1] * d->places * c->groups * d->element;
    for (int64_t w = 0; w < c->in[2]; w++) {
      find_gradient_terms(d, line % c->in[1], w, grad, &t);
      d->kernels->weigh_pixels(t.count, t.x, t.w, c->groups, d->job->bias,
                               (char *)d->job->out + (line * c->in[2] + w) * c->groups * d->element);
    }
  }
}

/* One line of places, a block of channels: every tap. */
static void correlate_line(const depthwise *d, int64_t image, int64_t h, int64_t channel, int64_t channels,
                           char *sums) {
  const wk__conv *c = d->c;
  interior in = interior_of(c, h);
  int64_t taps, pixel = c->groups * d->element, tap_sums = CHANNEL_BLOCK * d->element;
  const int64_t *at = taps_of(d, &in, &taps);
  const char *x = (const char *)d->job->weight + image * d->pixels * pixel + channel * d->element;
  const char *g = (const char *)d->job->in + (image * c->out[1] + h) * c->out[2] * pixel + channel * d->element;
  if (in.end > in.first)
    d->kernels->correlate_run(in.end - in.first, x + (seen(c, 1, h, 0) * c->in[2] + seen(c, 2, in.first, 0)) * pixel,
                              c->stride[2] * c->groups, (int)taps, at, g + in.first * pixel, c->groups, channels,
                              sums + in.kernel_h * c->kernel[2] * tap_sums, CHANNEL_BLOCK);
  for (int64_t w = 0; w < c->out[2]; w++) {
    if (w == in.first) w = in.end;
    if (w >= c->out[2]) break;
    for (int64_t tap = in.kernel_h * c->kernel[2]; tap < in.kernel_end * c->kernel[2]; tap++) {
      int64_t y = seen(c, 1, h, tap / c->kernel[2]), to = seen(c, 2, w, tap % c->kernel[2]);
      if (y < 0 || y >= c->in[1] || to < 0 || to >= c->in[2]) continue;
      d->kernels->correlate_pixels(1, x + (y * c->in[2] + to) * pixel, 0, g + w * pixel, 0, channels,
                                   sums + tap * tap_sums);
    }
  }
}

/* A task is a block of channels. */
static void weight_pixels(void *context, int64_t begin, int64_t end) {
  depthwise *d = context;
  const wk__conv *c = d->c;
  size_t bytes = (size_t)(d->taps * CHANNEL_BLOCK * d->element);
  char *sums = wk__workspace_get(WK__WORKSPACE_CONV, bytes);
  if (!sums) {
    atomic_store(&d->failed, true);
    return;
  }
  for (int64_t block = begin; block < end; block++) {
    int64_t channel = block * CHANNEL_BLOCK, channels = wk__min(CHANNEL_BLOCK, c->groups - channel);
    memset(sums, 0, bytes);
    for (int64_t line = 0; line < c->batch * c->out[1]; line++)
      correlate_line(d, line / c->out[1], line % c->out[1], channel, channels, sums);
    for (int64_t i = 0; i < channels; i++)
      for (int64_t t = 0; t < d->taps; t++)
        memcpy((char *)d->job->out + ((channel + i) * d->taps + t) * d->element,
               sums + (t * CHANNEL_BLOCK + i) * d->element, (size_t)d->element);
  }
}

/* ---- the calls ---- */

static wk_status run_weighing(const wk__conv_job *job, int64_t tasks, wk__range_fn *fn) {
  depthwise d;
  WK_TRY(prepare(&d, job));
  if (job->c->channels_last && prepare_weight(&d) != WK_OK) {
    wk__free(d.at);
    return WK_OUT_OF_MEMORY;
  }
  return run(&d, tasks, fn);
}

wk_status wk__depthwise_forward(const wk__conv_job *job) {
  const wk__conv *c = job->c;
  if (wk__small_planes_takes(c)) return wk__small_planes_forward(job);
  if (c->channels_last) return run_weighing(job, c->batch * c->out[1], forward_pixels);
  return run_weighing(job, c->batch * c->groups, forward_planes);
}

wk_status wk__depthwise_input_gradient(const wk__conv_job *job) {
  const wk__conv *c = job->c;
  if (c->channels_last) return run_weighing(job, c->batch * c->in[1], gradient_pixels);
  return run_weighing(job, c->batch * c->groups, gradient_planes);
}

wk_status wk__depthwise_weight_gradient(const wk__conv_job *job) {
  const wk__conv *c = job->c;
  depthwise d;
  if (wk__small_planes_takes(c)) return wk__small_planes_weight_gradient(job);
  WK_TRY(prepare(&d, job));
  if (c->channels_last) return run(&d, wk__ceil_div(c->groups, CHANNEL_BLOCK), weight_pixels);
  return run(&d, c->groups, weight_planes);
}
