/* Convolutions of bytes: quant.h says which. A task gathers the patches of some places, rows of k = taps channels, and
 * takes them past the weight's rows, tile by tile, as integers.c does those of A. A patch lies in the images as it is
 * where there is one tap. Groups of one channel have their patches side by side, and sums for neighbours at a time.
 *
 * Sums are of integers: nothing here decides a bit of the result.
 * Tests: tests/c/test_quant.c, tests/python/test_quantize_convolution.py. */
#include "cpu/quant/quant.h"
#include "cpu/quant/quant_kernels.h"
#include "cpu/workspace.h"

enum {
  BLOCK_BYTES = 128 << 10, /* of patches, which a task keeps */
  BLOCK_PLACES = 256,      /* at most */
  TASK_ROWS = 64,          /* of the weight, where there are few places */
};
#define PARALLEL_MIN_PRODUCTS 2e5 /* as in integers.c */

bool wk__quant_conv_is_depthwise(const wk__quant_conv *c) {
  return c->groups > 1 && c->in_channels == 1 && c->out_channels == 1;
}

typedef struct convolution {
  wk__quant_conv c;
  const wk__quant_kernels *kernels;
  wk__quant_dot_fn *dot;
  bool depthwise, in_place;
  int64_t places, taps, channels; /* channels: of an image */
  int64_t patch_channels, k;      /* of a patch that is gathered: k = taps patch_channels */
  int64_t block, blocks;          /* places of a task, and tasks of an image */
  int64_t rows, row_tasks;        /* of a group's weight */
  wk__slots slots;
} convolution;

/* ---- patches ---- */

/* A row of the kernel's taps, from the row of an image that begins at x. */
static void gather_row(const convolution *r, const uint8_t *x, int64_t first, int64_t channel, uint8_t *out) {
  const wk__quant_conv *c = &r->c;
  int64_t n = r->patch_channels, taps = c->kernel[2], dilation = c->dilation[2];
  if (n == r->channels && dilation == 1 && first >= 0 && first + taps <= c->in[2]) {
    memcpy(out, x + first * n, (size_t)(taps * n));
    return;
  }
  for (int64_t t = 0; t < taps; t++, out += n) {
    int64_t at = first + t * dilation;
    if (at < 0 || at >= c->in[2])
      memset(out, c->outside, (size_t)n);
    else
      memcpy(out, x + at * r->channels + channel, (size_t)n);
  }
}

/* The patch of a place, of channels from `channel` on. */
static void gather(const convolution *r, const uint8_t *image, int64_t place, int64_t channel, uint8_t *out) {
  const wk__quant_conv *c = &r->c;
  int64_t row = c->kernel[2] * r->patch_channels;
  int64_t at[] = {place / (c->out[1] * c->out[2]), place / c->out[2] % c->out[1], place % c->out[2]};
  for (int d = 0; d < WK__QUANT_CONV_DIMS; d++) at[d] = at[d] * c->stride[d] - c->padding[d];
  for (int64_t i = 0; i < c->kernel[0]; i++)
    for (int64_t j = 0; j < c->kernel[1]; j++, out += row) {
      int64_t z = at[0] + i * c->dilation[0], y = at[1] + j * c->dilation[1];
      if (z < 0 || z >= c->in[0] || y < 0 || y >= c->in[1])
        memset(out, c->outside, (size_t)row);
      else
        gather_row(r, image + (z * c->in[1] + y) * c->in[2] * r->channels, at[2], channel, out);
    }
}

/* ---- sums ---- */

static void finish(const wk__quant_conv *c, float *y, int64_t channel, int32_t sum) {
  float of_floats = (float)sum * c->scale * c->scales[channel];
  y[channel * c->channel_step] = c->bias ? of_floats + c->bias[channel] : of_floats;
}

static void run_depthwise(const convolution *r, const uint8_t *image, float *y, int64_t first, int64_t last,
                          char *memory) {
  const wk__quant_conv *c = &r->c;
  int32_t *sums = (int32_t *)(void *)memory;
  uint8_t *patch = (uint8_t *)(sums + r->channels);
  for (int64_t place = first; place < last; place++) {
    gather(r, image, place, 0, patch);
    r->kernels->channels(r->taps, r->channels, patch, c->flip, c->shift, c->w, sums);
    for (int64_t j = 0; j < r->channels; j++) finish(c, y + place * c->place_step, j, sums[j]);
  }
}

/* Rows [row, last_row) of a group's weight with the patches at a, `step` bytes from one to the next. */
static void run_tiles(const convolution *r, int64_t group, const uint8_t *a, int64_t step, float *y, int64_t count,
                      int64_t row, int64_t last_row) {
  const wk__quant_conv *c = &r->c;
  int32_t sums[WK__DOT_ROWS][WK__DOT_COLUMNS];
  for (int64_t j = row; j < last_row; j += WK__DOT_COLUMNS) {
    int columns = (int)wk__min(WK__DOT_COLUMNS, last_row - j);
    int64_t channel = group * c->out_channels + j;
    for (int64_t i = 0; i < count; i += r->kernels->dot_rows) {
      int height = (int)wk__min(r->kernels->dot_rows, count - i);
      r->dot(height, columns, r->k, a + i * step, step, c->flip, c->shift, c->w + channel * r->k, r->k, sums);
      for (int v = 0; v < columns; v++)
        for (int h = 0; h < height; h++) finish(c, y + (i + h) * c->place_step, channel + v, sums[h][v]);
    }
  }
}

static void run_groups(const convolution *r, const uint8_t *image, float *y, int64_t first, int64_t last, int64_t row,
                       uint8_t *memory) {
  const wk__quant_conv *c = &r->c;
  int64_t last_row = wk__min(row + r->rows, c->out_channels);
  for (int64_t g = 0; g < c->groups; g++) {
    const uint8_t *a = r->in_place ? image + first * r->channels + g * c->in_channels : memory;
    for (int64_t i = first; i < last && !r->in_place; i++)
      gather(r, image, i, g * c->in_channels, memory + (i - first) * r->k);
    run_tiles(r, g, a, r->in_place ? r->channels : r->k, y + first * c->place_step, last - first, row, last_row);
  }
}

static void run_tasks(void *context, int64_t begin, int64_t end) {
  convolution *r = context;
  const wk__quant_conv *c = &r->c;
  char *memory = wk__slots_take(&r->slots);
  for (int64_t t = begin; t < end; t++) {
    int64_t row = t % r->row_tasks * r->rows, first = t / r->row_tasks % r->blocks * r->block;
    int64_t n = t / r->row_tasks / r->blocks, last = wk__min(first + r->block, r->places);
    const uint8_t *image = c->x + n * c->in[0] * c->in[1] * c->in[2] * r->channels;
    float *y = c->y + n * r->places * c->groups * c->out_channels;
    if (r->depthwise)
      run_depthwise(r, image, y, first, last, memory);
    else
      run_groups(r, image, y, first, last, row, (uint8_t *)memory);
  }
  wk__slots_give(&r->slots, memory);
}

/* ---- tasks ---- */

static bool is_in_place(const wk__quant_conv *c) {
  bool plain = true;
  for (int d = 0; d < WK__QUANT_CONV_DIMS; d++)
    plain = plain && c->kernel[d] == 1 && c->stride[d] == 1 && c->padding[d] == 0;
  return plain;
}

static convolution plan(const wk__quant_conv *c) {
  convolution r = {.c = *c, .kernels = wk__quant_kernels_get(), .depthwise = wk__quant_conv_is_depthwise(c)};
  r.dot = wk__quant_dot_get(r.kernels);
  r.places = c->out[0] * c->out[1] * c->out[2], r.taps = c->kernel[0] * c->kernel[1] * c->kernel[2];
  r.channels = c->groups * c->in_channels, r.patch_channels = r.depthwise ? r.channels : c->in_channels;
  r.k = r.taps * r.patch_channels, r.in_place = !r.depthwise && is_in_place(c);
  r.block = wk__max(wk__min(BLOCK_BYTES / wk__max(r.k, 1), BLOCK_PLACES) / WK__DOT_ROWS * WK__DOT_ROWS, WK__DOT_ROWS);
  r.blocks = wk__ceil_div(r.places, r.block);
  bool few = c->batch * r.blocks < 2 * wk_get_num_threads() && !r.depthwise;
  r.rows = few ? TASK_ROWS : wk__max(c->out_channels, 1);
  r.row_tasks = wk__max(wk__ceil_div(c->out_channels, r.rows), 1);
  return r;
}

wk_status wk__quant_convolve(const wk__quant_conv *c) {
  convolution r = plan(c);
  int64_t tasks = c->batch * r.blocks * r.row_tasks, k = r.taps * c->in_channels;
  if (!tasks || !c->out_channels) return WK_OK;
  double products = (double)c->batch * (double)r.places * (double)(c->groups * c->out_channels) * (double)k;
  bool several = tasks > 1 && products >= PARALLEL_MIN_PRODUCTS;
  int64_t memory = r.depthwise ? r.k + r.channels * (int64_t)sizeof(int32_t) : r.in_place ? 0 : r.block * r.k;
  WK_TRY(wk__slots_init(&r.slots, WK__WORKSPACE_CONV, 0, (size_t)memory + 1, several));
  if (several)
    wk__parallel_for(tasks, 1, run_tasks, &r);
  else
    run_tasks(&r, 0, tasks);
  return WK_OK;
}
