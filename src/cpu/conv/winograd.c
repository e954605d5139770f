/* Winograd's convolutions: see winograd.h. The transforms are in winograd_level.c; here is what is made when, and where
 * it waits.
 *
 * A task is a block of tiles and a part of the output channels. It takes the block's images to points once; then, some
 * output channels at a time, their weights; then, group of tiles by group, it multiplies and takes the products to the
 * result. With C channels, a point's matrices are
 *
 *     planes          products (outputs, tiles) = weights' (C, outputs) images (C, tiles)
 *     channels last   products (tiles, outputs) = images (tiles, C) weights (C, outputs)
 *
 * where the right one is in panels as wide as the GEMM's tiles. Tiles are numbered along the lines of an image, and
 * from one image to the next. */
#include "cpu/conv/winograd.h"

#include "cpu/conv/conv_internal.h"
#include "cpu/conv/winograd_kernels.h"
#include "cpu/gemm/gemm_kernels.h"

enum {
  TAPS = 9,
  GROUP = 64, /* tiles */
  MOST_LINES = GROUP * WK__WINOGRAD_MOST_EDGE,
  MOST_OUTPUTS = 128,       /* at a time */
  IMAGE_BYTES = 9 << 18,    /* of a block, if it is more than one group */
  WEIGHT_BYTES = 9 << 18,   /* of the outputs at a time */
  PACKED_CHANNELS = 32,     /* of the weights, before they are transformed */
  CACHE_LINE_ELEMENTS = 16, /* between points, lest all of them fall into one set of the cache */
};

/* A convolution and how it is cut up. Steps count elements. */
typedef struct winograd {
  const wk__conv *c;
  wk__conv_sizes s;
  const float *in, *weight, *bias;
  float *out;
  int side, edge, points;
  const wk__gemm_kernels *gemm;
  const wk__winograd_kernels *own;
  int64_t lines, columns, tiles; /* of tiles: of an image, of an image, of all */
  int64_t block, blocks;         /* tiles of a task, and how many such tasks */
  int64_t part, parts;           /* outputs of a task, alike */
  int64_t outputs;               /* at a time */
  int64_t width;                 /* of a panel of the right matrix */
  int64_t packed;                /* outputs side by side in weights that are packed: all at a time, or a panel */
  int64_t image_step, weight_step, product_step; /* from point to point */
  int64_t image_line, result_line;               /* elements of a line of tiles, planes */
  wk__slots slots;
} winograd;

/* A thread's memory. */
typedef struct memory {
  float *images, *weights, *products, *packed;
  float *lines; /* planes: of a group's tiles, with zeros around; channels last: a pixel of zeros */
} memory;

static int64_t round_up(int64_t n, int64_t unit) { return wk__ceil_div(n, unit) * unit; }

static const wk__winograd_kernels *get_kernels(void) {
#if defined(__x86_64__)
  switch (wk__cpu_level_get()) {
    case WK__CPU_AVX512:
      return &wk__winograd_kernels_avx512;
    case WK__CPU_AVX2:
      return &wk__winograd_kernels_avx2;
    default:
      break;
  }
#endif
  return &wk__winograd_kernels_portable;
}

/* ---- sizes ---- */

static int64_t image_elements(const winograd *w) {
  return w->c->channels_last ? w->points * w->image_step
                             : round_up(w->block, w->width) / w->width * w->points * w->image_step;
}

static int64_t packed_elements(const winograd *w) {
  return round_up(TAPS * wk__min(PACKED_CHANNELS, w->c->in_channels) * w->packed + WK__GEMM_PACK_SLACK,
                  CACHE_LINE_ELEMENTS);
}

/* A group's tiles are in so many lines at most. */
static int64_t line_elements(const winograd *w) {
  int64_t most = wk__min(GROUP, (GROUP - 2) / w->columns + 2);
  if (w->c->channels_last) return round_up(w->c->in_channels, CACHE_LINE_ELEMENTS);
  return round_up((most * w->edge + 1) * w->image_line, CACHE_LINE_ELEMENTS);
}

static size_t slot_bytes(const winograd *w) {
  int64_t weights = w->points * w->weight_step, products = w->points * w->product_step;
  return (size_t)(image_elements(w) + weights + products + packed_elements(w) + line_elements(w)) * sizeof(float);
}

static memory memory_of(const winograd *w, char *slot) {
  memory m = {.images = (float *)slot};
  m.weights = m.images + image_elements(w);
  m.products = m.weights + w->points * w->weight_step;
  m.packed = m.products + w->points * w->product_step;
  m.lines = m.packed + packed_elements(w);
  return m;
}

static void choose_outputs(winograd *w) {
  int64_t unit = w->c->channels_last ? w->width : w->gemm->lanes, channels = w->c->out_channels;
  int64_t most = WEIGHT_BYTES / (w->points * w->c->in_channels * w->s.element);
  most = wk__max(1, wk__min(most, MOST_OUTPUTS) / unit) * unit;
  w->part = round_up(wk__ceil_div(channels, w->parts), unit);
  w->parts = wk__ceil_div(channels, w->part);
  w->outputs = round_up(wk__ceil_div(w->part, wk__ceil_div(w->part, most)), unit);
  w->packed = w->c->channels_last ? w->width : w->outputs;
}

/* First tiles are shared out to threads, then outputs. */
static void plan(winograd *w, int64_t threads) {
  const wk__conv *c = w->c;
  int64_t depth = c->in_channels;
  int64_t most = IMAGE_BYTES / (w->points * depth * w->s.element) / GROUP * GROUP;
  int64_t right = c->channels_last ? c->out_channels : w->tiles;
  w->block = wk__min(wk__max(GROUP, most), round_up(wk__ceil_div(w->tiles, threads), GROUP));
  w->block = wk__min(w->block, w->tiles);
  w->blocks = wk__ceil_div(w->tiles, w->block);
  w->parts = w->blocks >= threads ? 1 : wk__ceil_div(threads, w->blocks);
  w->width = wk__min(wk__gemm_shape_for(w->gemm, right).columns, round_up(right, w->gemm->lanes));
  choose_outputs(w);
  w->image_step = depth * (c->channels_last ? w->block : w->width) + CACHE_LINE_ELEMENTS;
  w->weight_step = depth * w->outputs + CACHE_LINE_ELEMENTS;
  w->product_step = w->outputs * GROUP + CACHE_LINE_ELEMENTS;
  w->image_line = w->columns * w->side + WK__WINOGRAD_MOST_SIDE;
  w->result_line = w->columns * w->side;
}

/* ---- the tiles of a group ---- */

typedef struct group {
  int64_t tile, tiles;                 /* the first, and how many */
  int64_t first_line, line_count;      /* of tiles */
  int64_t at[GROUP];                   /* where each begins in what the lines are copied to or from */
  wk__winograd_line lines[MOST_LINES]; /* copied for each channel */
  int64_t count;
} group;

typedef struct tile {
  int64_t image, h, w; /* of its first place */
} tile;

static tile tile_at(const winograd *w, int64_t index) {
  int64_t line = index / w->columns;
  return (tile){line / w->lines, line % w->lines * w->side, index % w->columns * w->side};
}

static group group_at(const winograd *w, int64_t first, int64_t end) {
  group g;
  g.tile = first, g.tiles = wk__min(GROUP, end - first);
  g.first_line = first / w->columns;
  g.line_count = (first + g.tiles - 1) / w->columns - g.first_line + 1;
  g.count = 0;
  return g;
}

/* Tiles that are not there are like the first one when they are read, and what is written of them is left alone. */
static void place_tiles(const winograd *w, group *g, int64_t lines, int64_t line, int64_t nowhere) {
  for (int64_t i = 0; i < GROUP; i++) {
    int64_t index = g->tile + i;
    g->at[i] = (index / w->columns - g->first_line) * lines * line + index % w->columns * w->side;
    if (i >= g->tiles) g->at[i] = nowhere;
  }
}

static void find_image_lines(const winograd *w, group *g) {
  const wk__conv *c = w->c;
  int64_t height = c->in[1], width = c->in[2], before = c->padding[2];
  for (int64_t l = 0; l < g->line_count; l++) {
    tile t = tile_at(w, (g->first_line + l) * w->columns);
    for (int i = 0; i < w->edge; i++) {
      int64_t h = t.h + i - c->padding[1], room = w->image_line - before;
      if (h < 0 || h >= height || room <= 0) continue;
      g->lines[g->count++] = (wk__winograd_line){t.image * w->s.in_image + h * width,
                                                 (l * w->edge + i) * w->image_line + before, wk__min(width, room)};
    }
  }
}

static void find_result_lines(const winograd *w, group *g) {
  const wk__conv *c = w->c;
  int64_t end = g->tile + g->tiles;
  for (int64_t l = 0; l < g->line_count; l++) {
    int64_t first = (g->first_line + l) * w->columns;
    int64_t from = (wk__max(first, g->tile) - first) * w->side;
    int64_t to = wk__min(c->out[2], (wk__min(end - first, w->columns)) * w->side);
    tile t = tile_at(w, first);
    for (int i = 0; i < w->side && t.h + i < c->out[1]; i++)
      g->lines[g->count++] = (wk__winograd_line){(l * w->side + i) * w->result_line + from,
                                                 t.image * w->s.out_image + (t.h + i) * c->out[2] + from, to - from};
  }
}

/* ---- images to points ---- */

static void take_planes(const winograd *w, const memory *m, int64_t first, int64_t end) {
  group g = group_at(w, first, end);
  find_image_lines(w, &g);
  place_tiles(w, &g, w->edge, w->image_line, 0);
  memset(m->lines, 0, (size_t)line_elements(w) * sizeof(float));
  for (int64_t c = 0; c < w->c->in_channels; c++) {
    w->own->copy_lines(g.lines, g.count, w->in + c * w->s.pixels, m->lines, 0);
    for (int64_t i = 0; i < g.tiles; i += w->width) {
      float *to = m->images + (first % w->block + i) / w->width * w->points * w->image_step + c * w->width;
      w->own->image_of_planes(w->side, wk__min(w->width, g.tiles - i), m->lines, g.at + i, w->image_line, to,
                              w->image_step);
    }
  }
}

static void take_pixels(const winograd *w, const memory *m, int64_t first, int64_t end) {
  const wk__conv *c = w->c;
  const float *pixels[WK__WINOGRAD_MOST_EDGE * WK__WINOGRAD_MOST_EDGE];
  for (int64_t index = first; index < end; index++) {
    tile t = tile_at(w, index);
    for (int k = 0; k < w->points; k++) {
      int64_t y = t.h + k / w->edge - c->padding[1], x = t.w + k % w->edge - c->padding[2];
      bool inside = y >= 0 && y < c->in[1] && x >= 0 && x < c->in[2];
      pixels[k] = inside ? w->in + t.image * w->s.in_image + (y * c->in[2] + x) * c->in_channels : m->lines;
    }
    float *to = m->images + index % w->block * c->in_channels;
    w->own->image_of_pixels(w->side, c->in_channels, pixels, to, w->image_step);
  }
}

static void take_images(const winograd *w, const memory *m, int64_t first, int64_t end) {
  if (w->c->channels_last) {
    memset(m->lines, 0, (size_t)line_elements(w) * sizeof(float));
    take_pixels(w, m, first, end);
    return;
  }
  for (int64_t g = first; g < end; g += GROUP) take_planes(w, m, g, end);
}

/* ---- weights to points ---- */

/* Channels [c, c + count) of a panel of outputs: taps of channels, of planes (channels, taps), else (taps, channels).
 */
static void take_panel(const winograd *w, const memory *m, int64_t output, int64_t outputs, int64_t c, int64_t count,
                       float *to) {
  int64_t channels = w->c->in_channels, row = channels * TAPS, width = w->packed;
  const float *from = w->weight + output * row;
  bool last = w->c->channels_last;
  if (last) {
    for (int64_t t = 0; t < TAPS; t++)
      w->gemm->pack(outputs, width, count, from + t * channels + c, row, 1, m->packed + t * count * width);
  } else {
    w->gemm->pack(outputs, width, count * TAPS, from + c * TAPS, row, 1, m->packed);
  }
  for (int64_t i = 0; i < count; i++)
    w->own->weights(w->side, width, m->packed + i * (last ? 1 : TAPS) * width, (last ? count : 1) * width,
                    to + i * width, w->weight_step);
}

static void take_weights(const winograd *w, const memory *m, int64_t output, int64_t end) {
  int64_t channels = w->c->in_channels;
  for (int64_t o = output; o < end; o += w->packed)
    for (int64_t c = 0; c < channels; c += PACKED_CHANNELS)
      take_panel(w, m, o, wk__min(w->packed, end - o), c, wk__min(PACKED_CHANNELS, channels - c),
                 m->weights + (o - output) * channels + c * w->packed);
}

/* ---- products ---- */

typedef struct left {
  const float *a;
  int64_t row, column;
} left;

/* products (rows, columns) = a b, columns being at most a panel's. */
static void multiply(const winograd *w, int64_t rows, int64_t columns, left a, const float *b, float *products,
                     int64_t products_row) {
  int64_t depth = w->c->in_channels, most = wk__gemm_shape_for(w->gemm, columns).rows;
  int64_t height = wk__ceil_div(rows, wk__ceil_div(rows, most));
  for (int64_t k = 0; k < depth; k += WK__GEMM_K_BLOCK) {
    const wk__gemm_how how = {.alpha = 1, .beta = k == 0 ? 0 : 1};
    for (int64_t i = 0; i < rows; i += height)
      w->gemm->kernel[wk__min(height, rows - i)](wk__min(WK__GEMM_K_BLOCK, depth - k), a.a + i * a.row + k * a.column,
                                                 a.row, a.column, b + k * w->width, w->width,
                                                 products + i * products_row, products_row, columns, &how);
  }
}

/* Of a point, for a group whose first tile is `tile` of its block. */
static void multiply_point(const winograd *w, const memory *m, int point, int64_t tile, int64_t tiles,
                           int64_t outputs) {
  int64_t channels = w->c->in_channels;
  const float *weights = m->weights + point * w->weight_step;
  float *products = m->products + point * w->product_step;
  if (w->c->channels_last) {
    left a = {m->images + point * w->image_step + tile * channels, channels, 1};
    for (int64_t o = 0; o < outputs; o += w->width)
      multiply(w, tiles, wk__min(w->width, outputs - o), a, weights + o * channels, products + o, w->outputs);
    return;
  }
  left a = {weights, 1, w->packed};
  for (int64_t t = 0; t < tiles; t += w->width) {
    const float *images = m->images + ((tile + t) / w->width * w->points + point) * w->image_step;
    multiply(w, outputs, wk__min(w->width, tiles - t), a, images, products + t, GROUP);
  }
}

/* ---- products to results ---- */

static void give_planes(const winograd *w, const memory *m, int64_t first, int64_t end, int64_t output,
                        int64_t outputs) {
  group g = group_at(w, first, end);
  find_result_lines(w, &g);
  place_tiles(w, &g, w->side, w->result_line, g.line_count * w->side * w->result_line);
  for (int64_t o = 0; o < outputs; o++) {
    w->own->result_of_planes(w->side, g.tiles, m->products + o * GROUP, w->product_step, m->lines, g.at,
                             w->result_line);
    w->own->copy_lines(g.lines, g.count, m->lines, w->out + (output + o) * w->s.places,
                       w->bias ? w->bias[output + o] : 0);
  }
}

static void give_pixels(const winograd *w, const memory *m, int64_t first, int64_t end, int64_t output,
                        int64_t outputs) {
  const wk__conv *c = w->c;
  float *pixels[WK__WINOGRAD_MOST_SIDE * WK__WINOGRAD_MOST_SIDE];
  for (int64_t index = first; index < end; index++) {
    tile t = tile_at(w, index);
    for (int k = 0; k < w->side * w->side; k++) {
      int64_t y = t.h + k / w->side, x = t.w + k % w->side;
      float *pixel = w->out + t.image * w->s.out_image + (y * c->out[2] + x) * c->out_channels + output;
      pixels[k] = y < c->out[1] && x < c->out[2] ? pixel : NULL;
    }
    w->own->result_of_pixels(w->side, outputs, m->products + (index - first) * w->outputs, w->product_step,
                             w->bias ? w->bias + output : NULL, pixels);
  }
}

/* ---- tasks ---- */

/* Weights stay from one task to the next where they are the same. */
static void run_task(const winograd *w, const memory *m, int64_t task, int64_t *ready) {
  int64_t first = task / w->parts * w->block, end = wk__min(first + w->block, w->tiles);
  int64_t output = task % w->parts * w->part, last = wk__min(output + w->part, w->c->out_channels);
  take_images(w, m, first, end);
  for (int64_t o = output; o < last; o += w->outputs) {
    int64_t outputs = wk__min(w->outputs, last - o);
    if (*ready != o) take_weights(w, m, o, o + outputs);
    *ready = o;
    for (int64_t g = first; g < end; g += GROUP) {
      int64_t stop = wk__min(g + GROUP, end);
      for (int p = 0; p < w->points; p++) multiply_point(w, m, p, g - first, stop - g, outputs);
      (w->c->channels_last ? give_pixels : give_planes)(w, m, g, stop, o, outputs);
    }
  }
}

static void run_tasks(void *context, int64_t begin, int64_t end) {
  winograd *w = context;
  char *slot = wk__slots_take(&w->slots);
  memory m = memory_of(w, slot);
  int64_t ready = -1;
  for (int64_t t = begin; t < end; t++) run_task(w, &m, t, &ready);
  wk__slots_give(&w->slots, slot);
}

bool wk__conv_winograd_takes(const wk__conv *c) {
  if (c->type != WK__GEMM_F32 || c->groups != 1 || c->batch == 0 || c->in_channels == 0 || c->out_channels == 0)
    return false;
  if (c->in[0] != 1 || c->out[0] != 1 || c->kernel[0] != 1 || c->padding[0] != 0) return false;
  for (int d = 1; d < WK__CONV_DIMS; d++)
    if (c->kernel[d] != 3 || c->stride[d] != 1 || c->dilation[d] != 1 || c->padding[d] < 0 || c->in[d] < 1 ||
        c->out[d] < 1)
      return false;
  return true;
}

wk_status wk__conv_winograd_forward(const wk__conv *c, int side, const void *input, const void *weight,
                                    const void *bias_or_null, void *output) {
  winograd w = {.c = c, .s = wk__conv_sizes_of(c), .in = input, .weight = weight, .bias = bias_or_null, .out = output};
  int64_t threads = wk_get_num_threads();
  w.side = side, w.edge = side + 2, w.points = w.edge * w.edge;
  w.gemm = wk__gemm_kernels_get(WK__GEMM_F32), w.own = get_kernels();
  w.lines = wk__ceil_div(c->out[1], side), w.columns = wk__ceil_div(c->out[2], side);
  w.tiles = c->batch * w.lines * w.columns;
  plan(&w, threads);
  WK_TRY(wk__slots_init(&w.slots, WK__WORKSPACE_CONV, 0, slot_bytes(&w), threads > 1));
  wk__parallel_for(w.blocks * w.parts, 1, run_tasks, &w);
  return WK_OK;
}
