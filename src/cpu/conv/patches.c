/* Parts of the operand that a convolution is a product with: patches.h.
 *
 * In: a part's rows and columns. Out: the part. Places of the result that are side by side see elements that are a
 * stride apart, so a row is copied in runs, one for each line of the result that the columns cross.
 * Tests: tests/c/test_conv.c. */
#include "cpu/conv/patches.h"

#include <assert.h>

#include "cpu/conv/conv_kernels.h"

enum { MOST_RUNS = WK__GEMM_K_BLOCK }; /* the GEMM asks for no more columns at a time */
enum { MOST_TAPS = 64 };               /* that are found once for all channels; those of larger kernels each time */

static int64_t image_elements(const wk__conv *c) { return c->groups * c->in_channels * wk__conv_count(c->in); }

/* ---- planes ---- */

/* The runs of places [place, place + count), at most MOST_RUNS of each. */
static int find_runs(const wk__conv *c, int64_t place, int64_t count, wk__conv_run *runs) {
  int64_t line = place / c->out[2], w = place % c->out[2];
  int n = 0;
  for (int64_t done = 0; done < count; n++, line++, w = 0) {
    int64_t h = line % c->out[1], d = line / c->out[1] % c->out[0], image = line / c->out[1] / c->out[0];
    wk__conv_run *r = &runs[n];
    *r = (wk__conv_run){.to = done, .count = wk__min(c->out[2] - w, count - done), .w = w};
    r->image = image * image_elements(c);
    r->d = d * c->stride[0] - c->padding[0];
    r->h = h * c->stride[1] - c->padding[1];
    done += r->count;
  }
  return n;
}

static int64_t ceil_div_signed(int64_t a, int64_t b) { return a > 0 ? (a + b - 1) / b : -(-a / b); }

static wk__conv_tap tap_at(const wk__conv *c, int64_t index) {
  int64_t w = index % c->kernel[2], h = index / c->kernel[2] % c->kernel[1], d = index / c->kernel[2] / c->kernel[1];
  wk__conv_tap t = {.d = d * c->dilation[0], .h = h * c->dilation[1], .w = w * c->dilation[2] - c->padding[2]};
  t.w_first = wk__max(0, ceil_div_signed(-t.w, c->stride[2]));
  t.w_end = wk__max(0, ceil_div_signed(c->in[2] - t.w, c->stride[2]));
  return t;
}

/* The first taps of the kernel. */
static void find_taps(const wk__conv *c, int64_t count, wk__conv_tap *taps) {
  for (int64_t k = 0; k < count; k++) taps[k] = tap_at(c, k);
}

typedef struct part {
  int64_t row, rows, out_row; /* row: (channel, tap) */
  int64_t place, places;
} part;

static bool sees_outside(const wk__conv *c) {
  for (int d = 0; d < WK__CONV_DIMS; d++) {
    int64_t last = (c->out[d] - 1) * c->stride[d] + (c->kernel[d] - 1) * c->dilation[d] - c->padding[d];
    if (c->padding[d] > 0 || last >= c->in[d]) return true;
  }
  return false;
}

static void make_taps(const wk__patches *p, const part *t, char *out) {
  const wk__conv *c = p->c;
  const wk__conv_kernels *kernels = wk__conv_kernels_get(c->type);
  int64_t count = wk__conv_count(c->kernel), size = wk__conv_element(c), plane = wk__conv_count(c->in) * size;
  int64_t index = t->row % count, known = wk__min(count, MOST_TAPS);
  const char *channel = p->image + t->row / count * plane;
  wk__conv_run runs[MOST_RUNS];
  wk__conv_tap taps[MOST_TAPS];
  int run_count = find_runs(c, t->place, t->places, runs);
  bool outside = sees_outside(c);
  find_taps(c, known, taps);
  for (int64_t r = 0; r < t->rows; r++, out += t->out_row * size) {
    const wk__conv_tap tap = index < known ? taps[index] : tap_at(c, index);
    kernels->gather(c, outside, runs, run_count, &tap, channel, out, t->places);
    if (++index == count) index = 0, channel += plane;
  }
}

void wk__patches_by_tap(void *context, int64_t row, int64_t column, int64_t rows, int64_t columns, void *out,
                        int64_t out_row) {
  const wk__patches *p = context;
  int64_t all = p->c->in_channels * wk__conv_count(p->c->kernel), places = wk__conv_count(p->c->out);
  part t = {row % all, rows, out_row, row / all * places + column, columns};
  assert(columns <= MOST_RUNS);
  make_taps(p, &t, out);
}

/* ---- channels last ---- */

/* A line of the kernel: taps side by side. Where the image's pixels below them are side by side too, and hold nothing
 * but this group, they are one run; else each tap is one. */
typedef struct lines {
  const wk__patches *p;
  const wk__conv_kernels *kernels;
  int64_t size, pixel;       /* bytes of an element; elements of a pixel, all groups */
  int64_t at[WK__CONV_DIMS]; /* the input below the first tap; at[0] counts from the image */
  const char *image;
} lines;

static void zero(char *out, int64_t bytes) { memset(out, 0, (size_t)bytes); }

/* Elements [from, from + count) of one line, which is (kernel W, channels); the row that is made has `room`. */
static void make_line(const lines *l, int64_t d, int64_t h, int64_t from, int64_t count, char *out, int64_t room) {
  const wk__conv *c = l->p->c;
  bool inside = d >= 0 && d < c->in[0] && h >= 0 && h < c->in[1];
  bool together = c->dilation[2] == 1 && c->groups == 1;
  const char *line = l->image + (d * c->in[1] + h) * c->in[2] * l->pixel * l->size;
  while (count > 0) {
    int64_t tap = from / c->in_channels, channel = from % c->in_channels, w = l->at[2] + tap * c->dilation[2];
    int64_t n = wk__min(count, c->in_channels - channel);
    bool there = inside && w >= 0 && w < c->in[2];
    if (there && together) n = wk__min(count, (c->in[2] - w) * c->in_channels - channel);
    if (there) {
      l->kernels->copy(line + (w * l->pixel + channel) * l->size, 1, n, out, room);
    } else {
      zero(out, n * l->size);
    }
    out += n * l->size, from += n, count -= n, room -= n;
  }
}

/* Elements [column, column + columns) of one place: (kernel D, kernel H, line). */
static void make_place(const lines *l, int64_t column, int64_t columns, char *out) {
  const wk__conv *c = l->p->c;
  int64_t whole = c->kernel[2] * c->in_channels;
  while (columns > 0) {
    int64_t line = column / whole, from = column % whole, n = wk__min(columns, whole - from);
    int64_t d = l->at[0] + line / c->kernel[1] * c->dilation[0], h = l->at[1] + line % c->kernel[1] * c->dilation[1];
    make_line(l, d, h, from, n, out, columns);
    out += n * l->size, column += n, columns -= n;
  }
}

/* A whole line of taps: zeros, what is inside of the image, zeros. */
static void make_whole_line(const lines *l, int64_t d, int64_t h, char *out, int64_t room) {
  const wk__conv *c = l->p->c;
  int64_t first = wk__min(c->kernel[2], wk__max(0, -l->at[2])), end = wk__min(c->kernel[2], c->in[2] - l->at[2]);
  if (d < 0 || d >= c->in[0] || h < 0 || h >= c->in[1] || first >= end) first = end = c->kernel[2];
  int64_t before = first * c->in_channels, inside = (end - first) * c->in_channels;
  int64_t after = (c->kernel[2] - end) * c->in_channels;
  if (before) zero(out, before * l->size);
  if (inside) {
    int64_t pixel = (d * c->in[1] + h) * c->in[2] + l->at[2] + first;
    l->kernels->copy(l->image + pixel * l->pixel * l->size, 1, inside, out + before * l->size, room - before);
  }
  if (after) zero(out + (before + inside) * l->size, after * l->size);
}

/* All columns of one place, where taps side by side see pixels side by side that hold nothing but this group. */
static void make_whole_place(const lines *l, char *out) {
  const wk__conv *c = l->p->c;
  int64_t line = c->kernel[2] * c->in_channels, room = c->kernel[0] * c->kernel[1] * line;
  for (int64_t kd = 0; kd < c->kernel[0]; kd++)
    for (int64_t kh = 0; kh < c->kernel[1]; kh++, out += line * l->size, room -= line)
      make_whole_line(l, l->at[0] + kd * c->dilation[0], l->at[1] + kh * c->dilation[1], out, room);
}

void wk__patches_by_place(void *context, int64_t row, int64_t column, int64_t rows, int64_t columns, void *out,
                          int64_t out_row) {
  const wk__patches *p = context;
  const wk__conv *c = p->c;
  lines l = {.p = p, .kernels = wk__conv_kernels_get(c->type), .size = wk__conv_element(c)};
  l.pixel = c->groups * c->in_channels;
  bool whole = columns == c->in_channels * wk__conv_count(c->kernel) && c->dilation[2] == 1 && c->groups == 1;
  for (int64_t r = row; r < row + rows; r++) {
    int64_t w = r % c->out[2], h = r / c->out[2] % c->out[1], d = r / c->out[2] / c->out[1] % c->out[0];
    l.image = p->image + r / wk__conv_count(c->out) * image_elements(c) * l.size;
    l.at[0] = d * c->stride[0] - c->padding[0];
    l.at[1] = h * c->stride[1] - c->padding[1];
    l.at[2] = w * c->stride[2] - c->padding[2];
    char *to = (char *)out + (r - row) * out_row * l.size;
    if (whole) {
      make_whole_place(&l, to);
    } else {
      make_place(&l, column, columns, to);
    }
  }
}
