/* Convolutions of bytes: quant.h says which.
 *
 * The images become planes first: of each four channels of a group one, whose places are words of four bytes, padding
 * around them; of a group of one channel in and out one of bytes. With strides a plane is cut into phases, places that
 * lie a stride apart. So what a tap meets for neighbouring places of the result is neighbouring words, `at[tap]` bytes
 * from those of the first tap, and a kernel takes a vector of places past words of the weight: there are no patches.
 * Places are counted through a phase's rows, which the taps' reach makes longer than the result's; sums behind a row's
 * end are left out as they are stored. Memory has some bytes more than the last plane, which whole vectors read.
 *
 * Sums are of integers: nothing here decides a bit of the result.
 * Tests: tests/c/test_quant.c, tests/python/test_quantize_convolution.py. */
#include "cpu/quant/quant.h"
#include "cpu/quant/quant_kernels.h"
#include "cpu/workspace.h"

enum {
  DIMS = WK__QUANT_CONV_DIMS,
  WORD = 4,                     /* bytes of a place, channels of a plane */
  TASK_PLACES = 8 * WK__PLACES, /* that a task takes past its rows */
  TASK_ROWS = 64,
  BEHIND = WK__PLACES * WORD, /* bytes that vectors may read behind the last plane */
  ALIGNMENT = 64,
};
#define PARALLEL_MIN_PRODUCTS 2e5 /* as in integers.c */

bool wk__quant_conv_is_depthwise(const wk__quant_conv *c) {
  return c->groups > 1 && c->in_channels == 1 && c->out_channels == 1;
}

typedef struct convolution {
  wk__quant_conv c;
  const wk__quant_kernels *kernels;
  wk__quant_places_fn *multiply;
  bool depthwise, packed;           /* packed: the weight is copied, channels in whole words */
  int64_t phases[DIMS], size[DIMS]; /* of a plane; of a phase */
  wk__quant_walk walk;
  int64_t place_bytes, planes; /* planes: of all images */
  int64_t places, row;         /* of a phase, counted through its rows; places from a row to the next */
  int64_t row_tasks, place_tasks;
  int64_t *at;
  int32_t *less; /* shift times the sum of each of the weight's rows */
  int8_t *w;
  int64_t w_row;
  uint8_t *x;
} convolution;

/* ---- planes ---- */

typedef struct plane {
  const uint8_t *from; /* its first channel in the image */
  int channels;
  uint32_t outside; /* the place that stands for zeros */
  uint8_t *to;
} plane;

static void fill(const convolution *r, const plane *p, uint8_t *to, int64_t places) {
  if (r->place_bytes == 1) {
    memset(to, (int)(p->outside & 255), (size_t)places);
    return;
  }
  for (int64_t i = 0; i < places; i++) memcpy(to + i * WORD, &p->outside, WORD);
}

/* Places of a phase's row that are inside of the image: [begin, end), from column `first` of the image on. */
typedef struct inside {
  int64_t begin, end, first;
} inside;

static inside columns_inside(const convolution *r, int64_t phase) {
  const wk__quant_conv *c = &r->c;
  int64_t stride = c->stride[2], first = phase - c->padding[2], size = r->size[2];
  inside s = {.begin = first < 0 ? wk__min(wk__ceil_div(-first, stride), size) : 0};
  int64_t end = c->in[2] > first ? wk__min(wk__ceil_div(c->in[2] - first, stride), size) : 0;
  s.end = wk__max(end, s.begin), s.first = first + s.begin * stride;
  return s;
}

/* Whether a plane has the image's places and no others. */
static bool is_the_image(const convolution *r) {
  bool same = true;
  for (int d = 0; d < DIMS; d++) same = same && r->c.stride[d] == 1 && r->c.padding[d] == 0 && r->size[d] == r->c.in[d];
  return same;
}

static void make_phase(const convolution *r, const plane *p, const int64_t *phase, uint8_t *to) {
  const wk__quant_conv *c = &r->c;
  if (is_the_image(r)) {
    r->kernels->gather(c->in[0] * c->in[1] * c->in[2], p->channels, (int)r->place_bytes, p->from, c->x_place_step,
                       c->x_channel_step, c->flip, to);
    return;
  }
  inside s = columns_inside(r, phase[2]);
  for (int64_t i = 0; i < r->size[0]; i++)
    for (int64_t j = 0; j < r->size[1]; j++, to += r->size[2] * r->place_bytes) {
      int64_t z = i * c->stride[0] + phase[0] - c->padding[0], y = j * c->stride[1] + phase[1] - c->padding[1];
      bool there = z >= 0 && z < c->in[0] && y >= 0 && y < c->in[1] && s.end > s.begin;
      if (!there) {
        fill(r, p, to, r->size[2]);
        continue;
      }
      if (s.begin) fill(r, p, to, s.begin);
      const uint8_t *x = p->from + ((z * c->in[1] + y) * c->in[2] + s.first) * c->x_place_step;
      r->kernels->gather(s.end - s.begin, p->channels, (int)r->place_bytes, x, c->stride[2] * c->x_place_step,
                         c->x_channel_step, c->flip, to + s.begin * r->place_bytes);
      if (s.end < r->size[2]) fill(r, p, to + s.end * r->place_bytes, r->size[2] - s.end);
    }
}

static void make_planes(void *context, int64_t begin, int64_t end) {
  const convolution *r = context;
  const wk__quant_conv *c = &r->c;
  int64_t phase_bytes = r->size[0] * r->size[1] * r->size[2] * r->place_bytes;
  for (int64_t t = begin; t < end; t++) {
    int64_t first = t % r->walk.words * WORD, group = t / r->walk.words % c->groups;
    int64_t n = t / r->walk.words / c->groups, image = c->in[0] * c->in[1] * c->in[2] * c->groups * c->in_channels;
    plane p = {.channels = (int)wk__min(WORD, c->in_channels - first), .to = r->x + t * r->walk.plane};
    p.from = c->x + n * image + (group * c->in_channels + first) * c->x_channel_step;
    uint8_t outside[WORD] = {0};
    for (int i = 0; i < p.channels; i++) outside[i] = c->outside ^ c->flip;
    memcpy(&p.outside, outside, WORD);
    for (int64_t i = 0; i < r->phases[0]; i++)
      for (int64_t j = 0; j < r->phases[1]; j++)
        for (int64_t k = 0; k < r->phases[2]; k++, p.to += phase_bytes) make_phase(r, &p, (int64_t[]){i, j, k}, p.to);
  }
}

/* ---- the weight ---- */

static void make_rows(void *context, int64_t begin, int64_t end) {
  const convolution *r = context;
  const wk__quant_conv *c = &r->c;
  int64_t k = r->walk.taps * c->in_channels;
  for (int64_t j = begin; j < end; j++) {
    const int8_t *w = c->w + j * k;
    r->less[j] = (int32_t)((uint32_t)r->kernels->sum(k, w) * (uint32_t)c->shift);
    if (r->packed)
      r->kernels->pack(c->in_channels, r->walk.taps, w, c->w_tap_step, c->w_channel_step,
                       (c->groups * c->out_channels - j) * k, r->w + j * r->w_row);
  }
}

/* ---- sums ---- */

/* Sums of places [first, first + count) for some channels, one row of them each, to where those that are of the result
 * belong. */
static void finish(const convolution *r, int64_t channel, int channels, int64_t first, int64_t count,
                   const int32_t *sums, int64_t sums_row, float *y) {
  const wk__quant_conv *c = &r->c;
  bool whole = r->row == r->places; /* rows of the result lie side by side */
  int64_t width = whole ? r->places : c->out[2], row = first / r->row, column = first % r->row;
  int64_t z = row / r->size[1], height = row % r->size[1];
  for (int64_t i = 0, n; i < count; i += n, column = 0, height++) {
    if (!whole && height == r->size[1]) z++, height = 0;
    n = wk__min(r->row - column, count - i);
    int64_t inside = wk__min(n, width - column);
    if (inside <= 0 || (!whole && height >= c->out[1])) continue;
    int64_t place = whole ? column : (z * c->out[1] + height) * width + column;
    r->kernels->finish(channels, inside, sums + i, sums_row, r->less + channel, c->scale, c->scales + channel,
                       c->bias ? c->bias + channel : NULL, y + channel * c->channel_step + place * c->place_step,
                       c->place_step, c->channel_step);
  }
}

static void run_plane(const convolution *r, const uint8_t *x, float *y, int64_t channel, int64_t first, int64_t last) {
  int32_t sums[WK__PLANE_PLACES] __attribute__((aligned(64)));
  const int8_t *w = r->c.w + channel * r->walk.taps;
  for (int64_t i = first; i < last; i += WK__PLANE_PLACES) {
    int64_t n = wk__min(WK__PLANE_PLACES, last - i);
    r->kernels->plane(r->walk.taps, r->at, n, x + i, w, sums);
    finish(r, channel, 1, i, n, sums, 0, y);
  }
}

static void run_rows(const convolution *r, int64_t group, const uint8_t *x, float *y, int64_t first, int64_t last,
                     int64_t row, int64_t last_row) {
  int32_t sums[WK__PLACES_ROWS][WK__PLACES] __attribute__((aligned(64)));
  const int8_t *w = r->packed ? r->w : r->c.w;
  for (int64_t j = row; j < last_row; j += WK__PLACES_ROWS) {
    int height = (int)wk__min(WK__PLACES_ROWS, last_row - j), most = r->kernels->places_rows;
    int64_t channel = group * r->c.out_channels + j;
    for (int64_t i = first; i < last; i += r->kernels->places) {
      int n = (int)wk__min(r->kernels->places, last - i);
      for (int v = 0; v < height; v += most)
        r->multiply(wk__min(most, height - v), n, &r->walk, x + i * WORD, w + (channel + v) * r->w_row, r->w_row,
                    sums + v);
      finish(r, channel, height, i, n, sums[0], WK__PLACES, y);
    }
  }
}

static void run_tasks(void *context, int64_t begin, int64_t end) {
  const convolution *r = context;
  const wk__quant_conv *c = &r->c;
  int64_t places = c->out[0] * c->out[1] * c->out[2];
  for (int64_t t = begin; t < end; t++) {
    int64_t row = t % r->row_tasks * TASK_ROWS, first = t / r->row_tasks % r->place_tasks * TASK_PLACES;
    int64_t image = t / r->row_tasks / r->place_tasks, group = image % c->groups, n = image / c->groups;
    int64_t last = wk__min(first + TASK_PLACES, r->places), last_row = wk__min(row + TASK_ROWS, c->out_channels);
    const uint8_t *x = r->x + image * r->walk.words * r->walk.plane;
    float *y = c->y + n * places * c->groups * c->out_channels;
    if (r->depthwise)
      run_plane(r, x, y, group, first, last);
    else
      run_rows(r, group, x, y, first, last, row, last_row);
  }
}

/* ---- tasks ---- */

static void set_taps(convolution *r) {
  const wk__quant_conv *c = &r->c;
  int64_t *at = r->at, phase_places = r->size[0] * r->size[1] * r->size[2];
  for (int64_t i = 0; i < c->kernel[0]; i++)
    for (int64_t j = 0; j < c->kernel[1]; j++)
      for (int64_t k = 0; k < c->kernel[2]; k++) {
        int64_t tap[DIMS] = {i, j, k}, phase = 0, place = 0;
        for (int d = 0; d < DIMS; d++) {
          int64_t reach = tap[d] * c->dilation[d];
          phase = phase * r->phases[d] + reach % c->stride[d];
          place = place * r->size[d] + reach / c->stride[d];
        }
        *at++ = (phase * phase_places + place) * r->place_bytes;
      }
}

static convolution plan(const wk__quant_conv *c) {
  convolution r = {.c = *c, .kernels = wk__quant_kernels_get(), .depthwise = wk__quant_conv_is_depthwise(c)};
  r.multiply = wk__quant_places_get(r.kernels);
  r.place_bytes = r.depthwise ? 1 : WORD;
  r.walk = (wk__quant_walk){.taps = 1, .words = wk__ceil_div(c->in_channels, WORD), .plane = r.place_bytes};
  for (int d = 0; d < DIMS; d++) {
    int64_t reach = (c->kernel[d] - 1) * c->dilation[d];
    r.phases[d] = wk__min(c->stride[d], reach + 1), r.size[d] = c->out[d] + reach / c->stride[d];
    r.walk.taps *= c->kernel[d], r.walk.plane *= r.phases[d] * r.size[d];
  }
  r.planes = c->batch * c->groups * r.walk.words;
  r.places = ((c->out[0] - 1) * r.size[1] + c->out[1] - 1) * r.size[2] + c->out[2];
  bool whole = r.size[2] == c->out[2] && (r.size[1] == c->out[1] || c->out[0] == 1);
  r.row = whole ? r.places : r.size[2];
  bool in_words = (c->w_channel_step == 1 || r.walk.taps == 1) && c->in_channels % WORD == 0;
  r.packed = !r.depthwise && !in_words; /* of one channel taps are neighbours in any case */
  r.w_row = r.walk.taps * r.walk.words * WORD;
  r.row_tasks = wk__ceil_div(c->out_channels, TASK_ROWS), r.place_tasks = wk__ceil_div(r.places, TASK_PLACES);
  return r;
}

static size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static wk_status take_memory(convolution *r) {
  size_t rows = (size_t)(r->c.groups * r->c.out_channels), at = aligned((size_t)r->walk.taps * sizeof *r->at);
  size_t less = aligned(rows * sizeof *r->less), w = r->packed ? aligned(rows * (size_t)r->w_row) : 0;
  size_t x = (size_t)(r->planes * r->walk.plane) + BEHIND;
  char *memory = wk__workspace_get(WK__WORKSPACE_CONV, at + less + w + x);
  if (!memory) return wk_error_category();
  r->at = (int64_t *)(void *)memory, r->less = (int32_t *)(void *)(memory + at);
  r->w = (int8_t *)memory + at + less, r->x = (uint8_t *)memory + at + less + w;
  r->walk.at = r->at;
  return WK_OK;
}

static void run(convolution *r, bool several, int64_t count, int64_t bytes_each, wk__range_fn *tasks) {
  enum { GRAIN = 1 << 14 };
  if (several)
    wk__parallel_for(count, 1 + GRAIN / wk__max(bytes_each, 1), tasks, r);
  else
    tasks(r, 0, count);
}

wk_status wk__quant_convolve(const wk__quant_conv *c) {
  int64_t places = c->out[0] * c->out[1] * c->out[2], channels = c->groups * c->out_channels;
  if (!c->batch || !places || !channels) return WK_OK;
  convolution r = plan(c);
  WK_TRY(take_memory(&r));
  set_taps(&r);
  double products = (double)c->batch * (double)places * (double)channels * (double)(r.walk.taps * c->in_channels);
  bool several = products >= PARALLEL_MIN_PRODUCTS;
  run(&r, several, channels, r.w_row, make_rows);
  run(&r, several, r.planes, r.walk.plane, make_planes);
  int64_t products_each = TASK_PLACES * r.walk.taps * wk__min(c->out_channels, TASK_ROWS) * c->in_channels;
  run(&r, several, c->batch * c->groups * r.place_tasks * r.row_tasks, products_each, run_tasks);
  return WK_OK;
}
