/* Fourier transforms of rows by Stockham's stages, which need no order of their own (C. Van Loan, "Computational
 * Frameworks for the Fast Fourier Transform", 1992, 1.7).
 *
 * A block has some rows in shared memory, real and imaginary parts apart. In a stage of radix R a thread takes R
 * numbers n / R apart into registers, turns them by roots and puts their transform back, `set` apart. Roots are
 * computed in double. Included by the units of both precisions, with `number`, FMA (a fused multiply-add) and PAD (one
 * of 2^PAD numbers of shared memory is left out, against conflicts of banks). In: a wk__cuda_fourier. Tests:
 * tests/cuda/test_fourier.py. */
#ifndef WICK_ON_DEVICE_FOURIER_BODY_H
#define WICK_ON_DEVICE_FOURIER_BODY_H

#include "cuda/fourier.h"
#include "cuda/on_device/values.h"

enum { EACH = WK__FOURIER_EACH };

static SHARED double shared_numbers[WK__FOURIER_MOST + WK__FOURIER_MOST / 16];
static SHARED int64_t starts_in[WK__FOURIER_LANES], starts_out[WK__FOURIER_LANES];
static SHARED int32_t columns[WK__FOURIER_LANES];

/* What is computed of it is computed again behind this, where registers hold numbers. */
INLINE uint32_t this_thread(void) {
  int t = thread_index();
  __asm__ volatile("" : "+r"(t));
  return (uint32_t)t;
}

INLINE uint32_t divided(uint32_t e, uint32_t divider) { return divider ? (uint32_t)((uint64_t)e * divider >> 32) : e; }

/* exp(-2 pi i k / n), from an angle of an eighth turn at most */
INLINE void root_of(int64_t k, int64_t n, double *re, double *im) {
  int64_t quarter = (8 * (k % n) + n) / (2 * n), rest = 4 * (k % n) - quarter * n;
  double angle = -1.5707963267948966 * ((double)rest / (double)n), c = cos(angle), s = sin(angle);
  *re = quarter % 4 == 0 ? c : quarter % 4 == 1 ? s : quarter % 4 == 2 ? -c : -s;
  *im = quarter % 4 == 0 ? s : quarter % 4 == 1 ? -c : quarter % 4 == 2 ? -s : c;
}

INLINE int64_t start_of(const wk__cuda_fourier *f, const wk__cuda_rows *r, int64_t row) {
  int64_t at = 0;
  for (int d = f->dims - 1; d >= 0; d--) {
    at += row % f->sizes[d] * r->jump[d];
    row /= f->sizes[d];
  }
  return at;
}

/* cos and sin of k / 16, k / 3, ... of a turn */
#define C8 0.70710678118654752440
#define C16 0.92387953251128675613
#define S16 0.38268343236508977173
static const double cosines_16[] = {1, C16, C8, S16, 0, -S16, -C8, -C16, -1, -C16};
static const double sines_16[] = {0, S16, C8, C16, 1, C16, C8, S16, 0, -S16};
static const double cosines_3[] = {1, -0.5, -0.5};
static const double sines_3[] = {0, 0.86602540378443864676, -0.86602540378443864676};
static const double cosines_5[] = {1, 0.3090169943749474241, -0.8090169943749474241, -0.8090169943749474241,
                                   0.3090169943749474241};
static const double sines_5[] = {0, 0.95105651629515357212, 0.58778525229247312917, -0.58778525229247312917,
                                 -0.95105651629515357212};
static const double cosines_7[] = {1,
                                   0.62348980185873353053,
                                   -0.22252093395631440429,
                                   -0.90096886790241912624,
                                   -0.90096886790241912624,
                                   -0.22252093395631440429,
                                   0.62348980185873353053};
static const double sines_7[] = {0,
                                 0.78183148246802980871,
                                 0.97492791218182360702,
                                 0.43388373911755812048,
                                 -0.43388373911755812048,
                                 -0.97492791218182360702,
                                 -0.78183148246802980871};
static const double cosines_11[] = {1,
                                    0.84125353283118116886,
                                    0.41541501300188642553,
                                    -0.14231483827328514044,
                                    -0.65486073394528506406,
                                    -0.95949297361449738989,
                                    -0.95949297361449738989,
                                    -0.65486073394528506406,
                                    -0.14231483827328514044,
                                    0.41541501300188642553,
                                    0.84125353283118116886};
static const double sines_11[] = {0,
                                  0.54064081745559758211,
                                  0.90963199535451837141,
                                  0.98982144188093273238,
                                  0.75574957435425828377,
                                  0.28173255684142969771,
                                  -0.28173255684142969771,
                                  -0.75574957435425828377,
                                  -0.98982144188093273238,
                                  -0.90963199535451837141,
                                  -0.54064081745559758211};
static const double cosines_13[] = {1,
                                    0.8854560256532098959,
                                    0.56806474673115580251,
                                    0.12053668025532305335,
                                    -0.35460488704253562597,
                                    -0.74851074817110109863,
                                    -0.97094181742605202716,
                                    -0.97094181742605202716,
                                    -0.74851074817110109863,
                                    -0.35460488704253562597,
                                    0.12053668025532305335,
                                    0.56806474673115580251,
                                    0.8854560256532098959};
static const double sines_13[] = {0,
                                  0.46472317204376854566,
                                  0.82298386589365639458,
                                  0.9927088740980539928,
                                  0.93501624268541482344,
                                  0.66312265824079520238,
                                  0.23931566428755776715,
                                  -0.23931566428755776715,
                                  -0.66312265824079520238,
                                  -0.93501624268541482344,
                                  -0.9927088740980539928,
                                  -0.82298386589365639458,
                                  -0.46472317204376854566};

#define UNROLL _Pragma("clang loop unroll(full)")

typedef struct pair {
  number re, im;
} pair;
typedef number whole __attribute__((vector_size(2 * sizeof(number))));

INLINE pair add(pair a, pair b) { return (pair){a.re + b.re, a.im + b.im}; }
INLINE pair take(pair a, pair b) { return (pair){a.re - b.re, a.im - b.im}; }
INLINE pair times(pair a, pair w) { return (pair){FMA(a.re, w.re, -(a.im * w.im)), FMA(a.re, w.im, a.im * w.re)}; }
/* times -i */
INLINE pair quarter(pair a) { return (pair){a.im, -a.re}; }
INLINE pair conjugate(pair a) { return (pair){a.re, -a.im}; }
INLINE pair swapped(pair a, bool swaps) { return swaps ? (pair){a.im, a.re} : a; }

INLINE pair whole_at(const void *p) {
  whole w = *(const whole *)p;
  return (pair){w[0], w[1]};
}

/* ---- transforms of a few numbers, in registers ---- */

/* Of v[0], v[apart], ... in place. */
INLINE void two(pair *v, const int apart) {
  pair a = v[0], b = v[apart];
  v[0] = add(a, b), v[apart] = take(a, b);
}
INLINE void four(pair *v, const int apart) {
  pair a = add(v[0], v[2 * apart]), b = take(v[0], v[2 * apart]);
  pair c = add(v[apart], v[3 * apart]), d = quarter(take(v[apart], v[3 * apart]));
  v[0] = add(a, c), v[apart] = add(b, d);
  v[2 * apart] = take(a, c), v[3 * apart] = take(b, d);
}

/* Fours, then the rest of the radix: result r is at rest (r % 4) + r / 4. */
INLINE void by_four(pair *v, const int radix) {
  const int rest = radix / 4;
  UNROLL for (int i = 0; i < rest; i++) four(v + i, rest);
  UNROLL for (int k = 1; k < 4; k++) UNROLL for (int i = 1; i < rest; i++) {
    int turn = i * k * (16 / radix);
    pair *at = &v[k * rest + i];
    if (turn == 4)
      *at = quarter(*at);
    else
      *at = times(*at, (pair){(number)cosines_16[turn], -(number)sines_16[turn]});
  }
  UNROLL for (int k = 0; k < 4; k++) if (rest == 4) four(v + 4 * k, 1);
  else if (rest == 2) two(v + 2 * k, 1);
}

/* An odd radix: sums and differences of what lies as far from the end as from the first. */
INLINE void odd(pair *v, const int radix, const double *cosines, const double *sines) {
  const int half = radix / 2;
  pair first = v[0], sums[WK__FOURIER_LARGEST / 2], differences[WK__FOURIER_LARGEST / 2];
  UNROLL for (int i = 0; i < half; i++) {
    sums[i] = add(v[i + 1], v[radix - 1 - i]), differences[i] = take(v[i + 1], v[radix - 1 - i]);
    v[0] = add(v[0], sums[i]);
  }
  UNROLL for (int k = 1; k <= half; k++) {
    pair even = first, odd = {0, 0};
    UNROLL for (int i = 0; i < half; i++) {
      number c = (number)cosines[(i + 1) * k % radix], s = (number)sines[(i + 1) * k % radix];
      even = (pair){FMA(sums[i].re, c, even.re), FMA(sums[i].im, c, even.im)};
      odd = (pair){FMA(differences[i].re, s, odd.re), FMA(differences[i].im, s, odd.im)};
    }
    odd = quarter(odd);
    v[k] = add(even, odd), v[radix - k] = take(even, odd);
  }
}

INLINE void transform_few(pair *v, const int radix) {
  if (radix == 2) two(v, 1);
  if (radix == 4 || radix == 8 || radix == 16) by_four(v, radix);
  if (radix == 3) odd(v, 3, cosines_3, sines_3);
  if (radix == 5) odd(v, 5, cosines_5, sines_5);
  if (radix == 7) odd(v, 7, cosines_7, sines_7);
  if (radix == 11) odd(v, 11, cosines_11, sines_11);
  if (radix == 13) odd(v, 13, cosines_13, sines_13);
}

/* ---- shared memory ---- */

#define PARTS (WK__FOURIER_MOST * 4 / (int)sizeof(number)) /* of each kind */
#define SHARED_RE ((SHARED number *)shared_numbers)
#define SHARED_IM (SHARED_RE + PARTS + (PARTS >> PAD))

INLINE pair get(uint32_t at) {
  at += at >> PAD;
  return (pair){SHARED_RE[at], SHARED_IM[at]};
}
INLINE void put(uint32_t at, pair x) {
  at += at >> PAD;
  SHARED_RE[at] = x.re, SHARED_IM[at] = x.im;
}

/* ---- stages ---- */

INLINE void stage(const wk__cuda_fourier *f, const wk__cuda_fourier_stage *s, uint32_t lanes, const int radix) {
  const int sets = EACH / radix;
  const whole *roots = (const whole *)f->roots + s->table;
  uint32_t total = lanes * (uint32_t)s->apart, set = (uint32_t)s->set, apart = (uint32_t)s->apart,
           first = this_thread();
  pair v[EACH];
  UNROLL for (int u = 0; u < sets; u++) {
    uint32_t b = first + (uint32_t)(u * thread_count());
    b = b < total ? b : total - 1; /* all have numbers, so that registers do not have to keep earlier ones */
    uint32_t in = b + divided(b, s->by_apart) * ((uint32_t)f->n - apart), t = b - divided(b, s->by_set) * set;
    UNROLL for (int r = 0; r < radix; r++) v[u * radix + r] = get(in + (uint32_t)r * apart);
    if (set > 1) UNROLL for (int r = 1; r < radix; r++) {
        pair w = whole_at(roots + (uint32_t)(r - 1) * set + t);
        v[u * radix + r] = times(v[u * radix + r], w);
      }
    transform_few(v + u * radix, radix);
  }
  wait_for_block();
  first = this_thread();
  UNROLL for (int u = 0; u < sets; u++) {
    uint32_t b = first + (uint32_t)(u * thread_count());
    if (b < total) {
      uint32_t t = b - divided(b, s->by_set) * set, out = (b - t) * (uint32_t)radix + t;
      const int rest = radix / 4;
      UNROLL for (int r = 0; r < radix; r++) {
        int at = radix % 4 == 0 ? rest * (r % 4) + r / 4 : r;
        put(out + (uint32_t)r * set, v[u * radix + at]);
      }
    }
  }
  wait_for_block();
}

/* A large radix: a result is a sum of as many products. */
INLINE void stage_of_sums(const wk__cuda_fourier *f, const wk__cuda_fourier_stage *s, uint32_t lanes) {
  const whole *roots = (const whole *)f->roots + s->table;
  uint32_t n = (uint32_t)f->n, total = lanes * n, set = (uint32_t)s->set, all = set * (uint32_t)s->radix;
  uint32_t first = this_thread();
  pair v[EACH];
  UNROLL for (int u = 0; u < EACH; u++) {
    uint32_t e = first + (uint32_t)(u * thread_count()), turn = 0;
    pair sum = {0, 0};
    if (e < total) {
      uint32_t o = e - divided(e, f->by_n) * n, t = o % all, in = e - o + o / all * set + t % set;
      for (int r = 0; r < s->radix; r++, in += (uint32_t)s->apart) {
        sum = add(sum, times(get(in), whole_at(roots + turn)));
        turn += t;
        turn -= turn >= all ? all : 0;
      }
    }
    v[u] = sum;
  }
  wait_for_block();
  first = this_thread();
  UNROLL for (int u = 0; u < EACH; u++) {
    uint32_t e = first + (uint32_t)(u * thread_count());
    if (e < total) put(e, v[u]);
  }
  wait_for_block();
}

/* ---- numbers of memory ---- */

/* The root of order `order` at p below it. */
INLINE pair turned_by(const wk__cuda_fourier *f, uint64_t p) {
  const whole *turns = (const whole *)f->turns;
  whole low = turns[p % WK__FOURIER_NEAR], high = turns[WK__FOURIER_NEAR + p / WK__FOURIER_NEAR];
  return times((pair){low[0], low[1]}, (pair){high[0], high[1]});
}

INLINE pair read(const wk__cuda_rows *r, const char *row, int64_t k) {
  const char *p = row + k * r->step;
  if (r->is_whole) return whole_at(p);
  return (pair){*(const number *)p, r->second ? *(const number *)(p + r->second) : 0};
}

/* Of a half spectrum of `all` numbers; those that are real are taken as real. */
INLINE pair read_half(const wk__cuda_rows *r, const char *row, int64_t k, int64_t all) {
  int64_t there = k < r->count ? k : all - k;
  if (there >= r->count) return (pair){0, 0};
  pair x = read(r, row, there);
  if (k == 0 || 2 * k == all) x.im = 0;
  return there == k ? x : conjugate(x);
}

/* Number k of the row. */
INLINE pair read_so(const wk__cuda_fourier *f, const char *row, int64_t k) {
  const wk__cuda_rows *r = &f->in;
  if (f->from_how == WK__FOURIER_MIRRORED) return read_half(r, row, k, f->n);
  if (f->from_how == WK__FOURIER_PACKED) {
    pair a = read_half(r, row, k, 2 * f->n), b = conjugate(read_half(r, row, f->n - k, 2 * f->n));
    pair odd = times(take(a, b), conjugate(turned_by(f, (uint64_t)k)));
    return (pair){a.re + b.re - odd.im, a.im + b.im + odd.re};
  }
  return read(r, row, k);
}

INLINE void write(const wk__cuda_fourier *f, char *row, int64_t k, pair x) {
  const wk__cuda_rows *r = &f->out;
  number scale = (number)f->scale;
  char *p = row + k * r->step;
  x = swapped((pair){x.re * scale, x.im * scale}, f->swaps_to);
  if (r->is_whole)
    *(whole *)p = (whole){x.re, x.im};
  else {
    *(number *)p = x.re;
    if (r->second) *(number *)(p + r->second) = x.im;
  }
}

/* Number k of a spectrum of 2 n, of numbers k and n - k (mod n) of the pairs'. */
INLINE pair unpacked(const wk__cuda_fourier *f, int64_t k, pair a, pair b) {
  pair even = add(a, conjugate(b)), odd = quarter(take(a, conjugate(b)));
  odd = times(odd, turned_by(f, (uint64_t)k));
  return (pair){(number)0.5 * (even.re + odd.re), (number)0.5 * (even.im + odd.im)};
}

/* ---- rows that a block holds ---- */

INLINE void load(const wk__cuda_fourier *f, uint32_t lanes) {
  const wk__cuda_rows *r = &f->in;
  uint32_t n = (uint32_t)f->n, total = (uint32_t)f->lanes * n, first = this_thread();
  pair v[EACH];
  uint32_t to[EACH];
  UNROLL for (int u = 0; u < EACH; u++) {
    uint32_t e = first + (uint32_t)(u * thread_count());
    uint32_t lane = r->in_turn ? divided(e, f->by_n) : e - divided(e, f->by_lanes) * (uint32_t)f->lanes;
    uint32_t k = r->in_turn ? e - lane * n : divided(e, f->by_lanes);
    to[u] = e < total && lane < lanes ? lane * n + k : total;
    if (lane >= lanes) lane = 0;
    v[u] = read(r, (const char *)f->from + starts_in[lane], e < total ? k : 0);
  }
  UNROLL for (int u = 0; u < EACH; u++) if (to[u] < total) put(to[u], swapped(v[u], f->swaps_from));
}

INLINE void load_half(const wk__cuda_fourier *f, uint32_t lanes) {
  uint32_t n = (uint32_t)f->n, total = (uint32_t)f->lanes * n;
  for (uint32_t e = (uint32_t)thread_index(); e < total; e += (uint32_t)thread_count()) {
    bool in_turn = f->in.in_turn;
    uint32_t lane = in_turn ? divided(e, f->by_n) : e - divided(e, f->by_lanes) * (uint32_t)f->lanes;
    uint32_t k = in_turn ? e - lane * n : divided(e, f->by_lanes);
    if (lane >= lanes) continue;
    pair x = read_so(f, (const char *)f->from + starts_in[lane], k);
    put(lane * n + k, swapped(x, f->swaps_from));
  }
}

INLINE void store(const wk__cuda_fourier *f, uint32_t lanes) {
  uint32_t n = (uint32_t)f->n, count = (uint32_t)f->out.count, total = (uint32_t)f->lanes * count;
  for (uint32_t e = (uint32_t)thread_index(); e < total; e += (uint32_t)thread_count()) {
    bool in_turn = f->out.in_turn;
    uint32_t lane = in_turn ? divided(e, f->by_count) : e - divided(e, f->by_lanes) * (uint32_t)f->lanes;
    uint32_t k = in_turn ? e - lane * count : divided(e, f->by_lanes);
    if (lane >= lanes) continue;
    pair x;
    if (f->to_how == WK__FOURIER_UNPACKED) {
      uint32_t near = k > n ? 2 * n - k : k;
      uint32_t a = near == n ? 0 : near, b = a ? n - a : 0;
      x = unpacked(f, near, get(lane * n + a), get(lane * n + b));
      if (k > n) x.im = -x.im;
    } else {
      x = get(lane * n + k);
      if (f->to_how == WK__FOURIER_TURNED) x = times(x, turned_by(f, (uint64_t)columns[lane] * k));
    }
    write(f, (char *)f->to + starts_out[lane], k, x);
  }
}

KERNEL(rows)(wk__cuda_fourier given) {
  const wk__cuda_fourier *f = &given;
  int64_t first = (int64_t)block_index() * f->lanes, rest = f->rows - first;
  uint32_t lanes = (uint32_t)(rest < f->lanes ? rest : f->lanes);
  for (uint32_t lane = (uint32_t)thread_index(); lane < lanes; lane += (uint32_t)thread_count()) {
    starts_in[lane] = start_of(f, &f->in, first + lane), starts_out[lane] = start_of(f, &f->out, first + lane);
    if (f->to_how == WK__FOURIER_TURNED) columns[lane] = (int32_t)((first + lane) % f->sizes[f->dims - 1]);
  }
  wait_for_block();
  if (f->from_how == WK__FOURIER_PLAIN)
    load(f, lanes);
  else
    load_half(f, lanes);
  wait_for_block();
  for (int i = 0; i < f->stage_count; i++) {
    const wk__cuda_fourier_stage *s = &f->stages[i];
    switch (s->radix) {
      case 2:
        stage(f, s, lanes, 2);
        break;
      case 3:
        stage(f, s, lanes, 3);
        break;
      case 4:
        stage(f, s, lanes, 4);
        break;
      case 5:
        stage(f, s, lanes, 5);
        break;
      case 7:
        stage(f, s, lanes, 7);
        break;
      case 8:
        stage(f, s, lanes, 8);
        break;
      case 11:
        stage(f, s, lanes, 11);
        break;
      case 13:
        stage(f, s, lanes, 13);
        break;
      case 16:
        stage(f, s, lanes, 16);
        break;
      default:
        stage_of_sums(f, s, lanes);
    }
  }
  store(f, lanes);
}

/* ---- rows of any length, number by number ---- */

/* Squares of k, in half turns of n. */
INLINE pair chirp(const wk__cuda_fourier *f, int64_t k) { return turned_by(f, (uint64_t)(k * k % f->order)); }

INLINE pair number_at(const wk__cuda_fourier *f, int64_t start, int64_t k) {
  const char *row = (const char *)f->from + start;
  const wk__cuda_rows *r = &f->in;
  int64_t near = k > f->n ? 2 * f->n - k : k, back = f->out.count - k;
  switch (f->to_how) {
    case WK__FOURIER_UNPACKED: {
      pair a = read(r, row, near % f->n), b = read(r, row, (f->n - near) % f->n);
      pair x = unpacked(f, near, a, b);
      return k > f->n ? conjugate(x) : x;
    }
    case WK__FOURIER_CHIRPED:
      if (k >= r->count) return (pair){0, 0};
      return times(swapped(read(r, row, k), f->swaps_from), chirp(f, k));
    case WK__FOURIER_CHIRP:
      if (k >= f->n && back >= f->n) return (pair){0, 0};
      return conjugate(chirp(f, k < f->n ? k : back));
    case WK__FOURIER_TIMES:
      return times(read(r, row, k), whole_at((const whole *)f->turns + k));
    default:
      return swapped(read_so(f, row, k), f->swaps_from);
  }
}

KERNEL(numbers)(wk__cuda_fourier given) {
  const wk__cuda_fourier *f = &given;
  int64_t step = (int64_t)block_count() * thread_count(), total = f->rows * f->out.count;
  for (int64_t e = (int64_t)block_index() * thread_count() + thread_index(); e < total; e += step) {
    int64_t row = e / f->out.count, k = e % f->out.count;
    pair x = number_at(f, start_of(f, &f->in, row), k);
    write(f, (char *)f->to + start_of(f, &f->out, row), k, x);
  }
}

/* ---- tables ---- */

INLINE void put_root(whole *at, int64_t k, int64_t n) {
  double re, im;
  root_of(k, n, &re, &im);
  *at = (whole){(number)re, (number)im};
}

KERNEL(tables)(wk__cuda_fourier given) {
  const wk__cuda_fourier *f = &given;
  int64_t first = (int64_t)block_index() * thread_count() + thread_index(),
          step = (int64_t)block_count() * thread_count();
  for (int i = 0; i < f->stage_count; i++) {
    const wk__cuda_fourier_stage *s = &f->stages[i];
    int64_t set = s->set, order = set * s->radix;
    bool all = s->radix > WK__FOURIER_LARGEST && s->radix != 16;
    whole *roots = (whole *)f->roots + s->table;
    for (int64_t k = first; k < (all ? order : order - set); k += step)
      put_root(&roots[k], all ? k : (k / set + 1) * (k % set), order);
  }
  for (int64_t k = first; f->turns && k < WK__FOURIER_NEAR + f->order / WK__FOURIER_NEAR + 1; k += step) {
    bool near = k < WK__FOURIER_NEAR;
    put_root((whole *)f->turns + k, near ? k : (k - WK__FOURIER_NEAR) * WK__FOURIER_NEAR, f->order);
  }
}

#endif
