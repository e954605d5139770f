/* Convolutions of one channel a group of images with their channels last, in registers: a thread has a strip of
 * columns of one or two rows of the result in a piece of neighbouring channels. Each element of x that it loads is
 * converted once and meets all taps of its column in the strip; weights are in the block's memory as floats.
 *
 * An element of the result is one chain of fused multiply-adds over ascending taps, then the bias: the bits of planes
 * (on_device/depthwise.c). The gradient of an input by stride 2 leaves out the taps that meet the zeros which planes
 * multiply, so a weight that is not finite reaches only what it meets. A weight's gradient is a chain a thread over the
 * places of its rows, then the threads' sums in order, then the blocks'.
 *
 * In: a wk__cuda_depthwise_last. Whoever includes it has defined `element`, the bits of one, and widened() and
 * narrowed(), to and from float. In all functions K and S: kernel and stride; V: channels of a piece; C: columns of a
 * strip; spread: 2, where the elements of x have zeros between them, else 1. Tests: tests/cuda/test_convolution.py. */
#include "cuda/depthwise.h"

enum {
  THREADS = WK__DEPTHWISE_THREADS,
  PIECE = WK__DEPTHWISE_PIECE,
  MOST_STRIP = WK__DEPTHWISE_MOST_STRIP,
  MOST_ROWS = 2,
  MOST_KERNEL = 7,
  MOST_LOADED = (MOST_STRIP - 1) * 2 + MOST_KERNEL, /* columns of x that a strip looks at */
  PITCH = WK__DEPTHWISE_BLOCK_CHANNELS + 4, /* taps of a channel lie so far apart: in several banks of the memory */
};

#define STRIP(S, spread) wk__depthwise_strip(sizeof(element), S, spread)
#define ROWS(S, spread) wk__depthwise_strip_rows(sizeof(element), S, spread)
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable)")

typedef float four __attribute__((vector_size(16)));
typedef uint32_t two_words __attribute__((vector_size(8)));

static SHARED float weights[MOST_KERNEL * MOST_KERNEL * PITCH] __attribute__((aligned(16)));
static SHARED float folded[MOST_KERNEL * PIECE][THREADS];

/* ---- pieces ---- */

/* As it lies in memory; of one channel: in the first word. */
typedef struct piece {
  uint32_t words[4];
} piece;

#define LOAD(how, registers)            \
  "{ .reg .pred inside;\n\t"            \
  "setp.ne.u32 inside, %[inside], 0;\n" \
  "@inside ld.global." how " " registers ", [%[at]]; }"

/* Zero outside. Without a branch, so that several are on their way at once. */
INLINE piece load_piece(const int V, const element *at, uint32_t inside) {
  piece p;
  UNROLL for (int i = 0; i < 4; i++) p.words[i] = 0;
  uint32_t *w = p.words;
  if (V == 1 && sizeof *at == 2)
    __asm__(LOAD("u16", "%0") : "+r"(w[0]) : [inside] "r"(inside), [at] "l"(at));
  else if (V == 1)
    __asm__(LOAD("u32", "%0") : "+r"(w[0]) : [inside] "r"(inside), [at] "l"(at));
  else if (sizeof *at == 2)
    __asm__(LOAD("v2.u32", "{%0, %1}") : "+r"(w[0]), "+r"(w[1]) : [inside] "r"(inside), [at] "l"(at));
  else
    __asm__(LOAD("v4.u32", "{%0, %1, %2, %3}")
            : "+r"(w[0]), "+r"(w[1]), "+r"(w[2]), "+r"(w[3])
            : [inside] "r"(inside), [at] "l"(at));
  return p;
}

INLINE void widen(const int V, const piece *p, float *out) {
  UNROLL for (int q = 0; q < V; q++) {
    const int in_word = 4 / sizeof(element);
    out[q] = widened((element)(p->words[q / in_word] >> q % in_word * 16));
  }
}

INLINE uint32_t halves_of(const float *v) { return narrowed(v[0]) | (uint32_t)narrowed(v[1]) << 16; }

INLINE void store_piece(const int V, element *at, const float *v) {
  if (V == 1)
    *at = narrowed(v[0]);
  else if (sizeof *at == 2)
    *(two_words *)at = (two_words){halves_of(v), halves_of(v + 2)};
  else
    *(four *)at = (four){v[0], v[1], v[2], v[3]};
}

/* ---- channels and weights of a block ---- */

typedef struct share {
  int channel, pieces;  /* the first one; how many */
  int part, first, end; /* strips or rows */
} share;

INLINE share share_of(const int V, const wk__cuda_depthwise_last *s, int all) {
  share b;
  b.channel = block_index() % s->blocks_across * s->block_pieces * V;
  int left = (s->channels - b.channel) / V;
  b.pieces = left < s->block_pieces ? left : s->block_pieces;
  b.part = block_index() / s->blocks_across;
  b.first = b.part * s->each;
  b.end = all - b.first < s->each ? all : b.first + s->each;
  return b;
}

INLINE void load_weights(const int K, const int V, const wk__cuda_depthwise_last *s, const share *b) {
  const element *w = (const element *)s->w + (int64_t)b->channel * K * K;
  for (int i = thread_index(); i < b->pieces * V * K * K; i += THREADS) {
    int tap = i % (K * K);
    weights[(s->sizes.turned ? K * K - 1 - tap : tap) * PITCH + i / (K * K)] = widened(w[i]);
  }
  wait_for_block();
}

/* ---- y, and the gradient of x: the convolution by the turned weight of the result's gradient, which has zeros between
 * its elements where the stride is 2 ---- */

/* Among the columns of x that are loaded, the one that meets tap c of column j of the strip; -1: a zero between them.
 * odd: the strip's first window begins at such a zero. */
INLINE int met(const int S, const int spread, const int odd, int j, int c) {
  if (spread == 1) return j * S + c;
  return (j + c - odd) % 2 == 0 ? (j + c - odd) / 2 : -1;
}
INLINE int loaded_columns(const int K, const int S, const int spread, const int odd) {
  const int C = STRIP(S, spread);
  return spread == 1 ? (C - 1) * S + K : (C + K - 2 - odd) / 2 + 1;
}

/* Tap c of the row of the weight that is at `w`. */
INLINE void add_tap(const int S, const int spread, const int odd, const int V, const int c, const piece *x,
                    const SHARED float *w, float (*sum)[PIECE]) {
  float tap[PIECE];
  if (V == PIECE) {
    four of = *(const SHARED four *)(w + c * PITCH);
    UNROLL for (int q = 0; q < PIECE; q++) tap[q] = of[q];
  } else {
    tap[0] = w[c * PITCH];
  }
  UNROLL for (int j = 0; j < STRIP(S, spread); j++) {
    int i = met(S, spread, odd, j, c);
    if (i < 0) continue;
    float v[PIECE]; /* the same of x[i] each time: made once */
    widen(V, &x[i], v);
    UNROLL for (int q = 0; q < V; q++) sum[j][q] = __nvvm_fma_rn_f(v[q], tap[q], sum[j][q]);
  }
}

/* A bit for each of `count` columns from `first` on: whether it is one of x. */
INLINE uint32_t columns_inside(const wk__cuda_depthwise_last *s, int first, int count) {
  int low = first < 0 ? -first : 0, high = s->sizes.x_columns - first < count ? s->sizes.x_columns - first : count;
  return high > low ? (1u << high) - (1u << low) : 0;
}

INLINE const element *x_at(const wk__cuda_depthwise_last *s, int image, int row, int column) {
  return (const element *)s->x + (((int64_t)image * s->sizes.x_rows + row) * s->sizes.x_columns + column) * s->channels;
}

typedef struct place {
  int image, row, column, channel; /* of the result */
} place;

/* What a strip looks at, and where it is: few numbers, since they stay in registers beside the sums. */
typedef struct window {
  const element *x;   /* its first column in row 0 of the image */
  int above;          /* its first row, before rows are spread */
  uint32_t inside;    /* a bit a column */
  int32_t y, columns; /* its first element of y, and how many columns of y there are from it on */
} window;

INLINE window window_of(const int K, const int S, const int spread, const int odd, const wk__cuda_depthwise_last *s,
                        const place *p) {
  int left = (p->column * S - s->sizes.column_padding + odd) / spread;
  window w;
  w.x = x_at(s, p->image, 0, left) + p->channel;
  w.above = p->row * S - s->sizes.row_padding;
  w.inside = columns_inside(s, left, loaded_columns(K, S, spread, odd));
  w.y = ((p->image * s->sizes.y_rows + p->row) * s->sizes.y_columns + p->column) * s->channels + p->channel;
  w.columns = s->sizes.y_columns - p->column;
  return w;
}

/* From element y on. */
INLINE void store_row(const int C, const int V, const wk__cuda_depthwise_last *s, int32_t y, int columns,
                      float (*sum)[PIECE]) {
  const element *bias = (const element *)s->bias;
  if (bias) {
    UNROLL for (int q = 0; q < V; q++) {
      float more = widened(bias[y % s->channels + q]);
      UNROLL for (int j = 0; j < C; j++) sum[j][q] += more;
    }
  }
  UNROLL for (int j = 0; j < C; j++) if (j < columns)
      store_piece(V, (element *)s->y + y + (int64_t)j * s->channels, sum[j]);
}

/* Row r of the window meets row r of the weight, at `w`, in the strip's first row and row r - 1 in its second: in rows
 * `from` to `to` of the strip. */
INLINE void add_row(const int K, const int S, const int spread, const int odd, const int V, const int from,
                    const int to, const wk__cuda_depthwise_last *s, const window *at, int r, const SHARED float *w,
                    float (*sum)[MOST_STRIP][PIECE]) {
  const int count = loaded_columns(K, S, spread, odd);
  int row = (at->above + r) / spread;
  uint32_t inside = row >= 0 && row < s->sizes.x_rows ? at->inside : 0;
  const element *first = at->x + (int64_t)row * (s->sizes.x_columns * s->channels);
  piece x[MOST_LOADED];
  UNROLL for (int i = 0; i < count; i++) x[i] = load_piece(V, first + (int64_t)i * s->channels, inside & 1u << i);
  UNROLL for (int c = 0; c < K; c++) {
    UNROLL for (int q = from; q < to; q++) add_tap(S, spread, odd, V, c, x, w + (r - q) * K * PITCH, sum[q]);
  }
}

INLINE void convolve_strip(const int K, const int S, const int spread, const int odd, const int V,
                           const wk__cuda_depthwise_last *s, const place *p, const SHARED float *w) {
  const int C = STRIP(S, spread), rows = ROWS(S, spread);
  window at = window_of(K, S, spread, odd, s, p);
  float sum[MOST_ROWS][MOST_STRIP][PIECE];
  UNROLL for (int q = 0; q < rows; q++) {
    UNROLL for (int i = 0; i < MOST_STRIP * PIECE; i++) sum[q][i / PIECE][i % PIECE] = 0;
  }
  if (rows == 2) {
    add_row(K, S, spread, odd, V, 0, 1, s, &at, 0, w, sum);
    ROLLED for (int r = 1; r < K; r++) add_row(K, S, spread, odd, V, 0, 2, s, &at, r, w, sum);
    add_row(K, S, spread, odd, V, 1, 2, s, &at, K, w, sum);
  } else {
    ROLLED for (int r = spread == 1 ? 0 : at.above & 1; r < K; r += spread)
        add_row(K, S, spread, odd, V, 0, 1, s, &at, r, w, sum);
  }
  store_row(C, V, s, at.y, at.columns, sum[0]);
  bool below = rows == 2 && at.above + s->sizes.row_padding + 1 < s->sizes.y_rows;
  if (below) store_row(C, V, s, at.y + s->sizes.y_columns * s->channels, at.columns, sum[1]);
}

/* v, as if it were new: a divisor's reciprocal is then made where it is used, instead of staying in registers. */
INLINE int made_here(int v) {
  __asm__ volatile("" : "+r"(v));
  return v;
}

INLINE void convolve(const int K, const int S, const int spread, const int V, const wk__cuda_depthwise_last *s) {
  const int C = STRIP(S, spread), R = ROWS(S, spread);
  int across = (s->sizes.y_columns + C - 1) / C, down = (s->sizes.y_rows + R - 1) / R;
  share b = share_of(V, s, s->images * down * across);
  load_weights(K, V, s, &b);
  for (int item = thread_index(); item < (b.end - b.first) * b.pieces; item += THREADS) {
    int of_pieces = made_here(b.pieces), of_columns = made_here(across), of_rows = made_here(down);
    int strip = b.first + item / of_pieces, channel = item % of_pieces * V, line = strip / of_columns;
    place p = {line / of_rows, line % of_rows * R, strip % of_columns * C, b.channel + channel};
    if (spread == 2 && s->sizes.column_padding & 1)
      convolve_strip(K, S, spread, 1, V, s, &p, weights + channel);
    else
      convolve_strip(K, S, spread, 0, V, s, &p, weights + channel);
  }
}

/* ---- the gradient of w: y is the result's gradient; a thread has one row of taps ---- */

/* C columns of y, whose pieces are at `y`; x's first one is column `left`, at `x`. */
INLINE void add_places(const int K, const int S, const int V, const int C, const wk__cuda_depthwise_last *s,
                       const element *y, const element *x, uint32_t inside, float (*sum)[PIECE]) {
  const int count = (C - 1) * S + K;
  piece of_y[MOST_STRIP], of_x[MOST_LOADED];
  float grad[MOST_STRIP][PIECE];
  UNROLL for (int j = 0; j < C; j++) of_y[j] = load_piece(V, y + (int64_t)j * s->channels, 1);
  UNROLL for (int i = 0; i < count; i++) of_x[i] = load_piece(V, x + (int64_t)i * s->channels, inside & 1u << i);
  UNROLL for (int j = 0; j < C; j++) widen(V, &of_y[j], grad[j]);
  UNROLL for (int i = 0; i < count; i++) {
    float v[PIECE];
    widen(V, &of_x[i], v);
    UNROLL for (int c = 0; c < K; c++) {
      int j = (i - c) / S;
      if (i < c || (i - c) % S || j >= C) continue;
      UNROLL for (int q = 0; q < V; q++) sum[c][q] = __nvvm_fma_rn_f(grad[j][q], v[q], sum[c][q]);
    }
  }
}

INLINE void add_line(const int K, const int S, const int V, const wk__cuda_depthwise_last *s, int line, int r,
                     int channel, float (*sum)[PIECE]) {
  const int C = sizeof(element) == 2 ? 7 : S == 1 ? 4 : 2; /* what the registers hold */
  int image = line / s->sizes.y_rows, row = line % s->sizes.y_rows * S - s->sizes.row_padding + r, column = 0;
  bool there = row >= 0 && row < s->sizes.x_rows;
  const element *y = (const element *)s->y + (int64_t)line * s->sizes.y_columns * s->channels + channel;
  const element *x = x_at(s, image, row, -s->sizes.column_padding) + channel;
  ROLLED for (; column + C <= s->sizes.y_columns; column += C) {
    uint32_t inside = columns_inside(s, column * S - s->sizes.column_padding, (C - 1) * S + K);
    add_places(K, S, V, C, s, y + (int64_t)column * s->channels, x + (int64_t)column * S * s->channels,
               there ? inside : 0, sum);
  }
  ROLLED for (; column < s->sizes.y_columns; column++) {
    uint32_t inside = columns_inside(s, column * S - s->sizes.column_padding, K);
    add_places(K, S, V, 1, s, y + (int64_t)column * s->channels, x + (int64_t)column * S * s->channels,
               there ? inside : 0, sum);
  }
}

/* The first slice adds up those of its tap row and piece. */
INLINE void fold_slices(const int K, const int V, const wk__cuda_depthwise_last *s, const share *b, int r, int channel,
                        float (*sum)[PIECE]) {
  int me = thread_index(), step = b->pieces * K;
  UNROLL for (int i = 0; i < K * V; i++) folded[i][me] = sum[i / V][i % V];
  wait_for_block();
  if (me >= step) return;
  float *out = (float *)s->parts + ((int64_t)b->part * s->channels + channel) * K * K + r * K;
  UNROLL for (int i = 0; i < K * V; i++) {
    float total = folded[i][me];
    for (int l = 1; l < s->slices; l++) total += folded[i][me + l * step];
    out[i % V * K * K + i / V] = total;
  }
}

INLINE void weigh(const int K, const int S, const int V, const wk__cuda_depthwise_last *s) {
  share b = share_of(V, s, s->images * s->sizes.y_rows);
  int channel = b.channel + thread_index() % b.pieces * V, r = thread_index() / b.pieces % K;
  int slice = thread_index() / (b.pieces * K);
  float sum[MOST_KERNEL][PIECE];
  UNROLL for (int i = 0; i < MOST_KERNEL * PIECE; i++) sum[i / PIECE][i % PIECE] = 0;
  if (slice < s->slices)
    for (int line = b.first + slice; line < b.end; line += s->slices) add_line(K, S, V, s, line, r, channel, sum);
  fold_slices(K, V, s, &b, r, channel, sum);
}

/* ---- the kernels ---- */

#define OF_PIECES(K, V)                                                                                    \
  KERNEL(depthwise_last_##K##_1_##V)(wk__cuda_depthwise_last given) { convolve(K, 1, 1, V, &given); }      \
  KERNEL(depthwise_last_##K##_2_##V)(wk__cuda_depthwise_last given) { convolve(K, 2, 1, V, &given); }      \
  KERNEL(depthwise_last_back_##K##_2_##V)(wk__cuda_depthwise_last given) { convolve(K, 1, 2, V, &given); } \
  KERNEL(depthwise_last_weight_##K##_1_##V)(wk__cuda_depthwise_last given) { weigh(K, 1, V, &given); }     \
  KERNEL(depthwise_last_weight_##K##_2_##V)(wk__cuda_depthwise_last given) { weigh(K, 2, V, &given); }
OF_PIECES(3, 4)
OF_PIECES(5, 4)
OF_PIECES(7, 4)
OF_PIECES(3, 1)
OF_PIECES(5, 1)
OF_PIECES(7, 1)
