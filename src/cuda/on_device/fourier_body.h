/* Transforms in one precision. Included by fourier.c for each, with number, NAME, FMA (a fused multiply-add) and PAD
 * (one of 2^PAD numbers of shared memory is left out, against conflicts of banks); hence no include guard. */

#define UNROLL _Pragma("clang loop unroll(full)")

typedef struct NAME(pair) {
  number re, im;
} NAME(pair);
typedef number NAME(whole) __attribute__((vector_size(2 * sizeof(number))));
#define pair NAME(pair)
#define whole NAME(whole)

INLINE pair NAME(add)(pair a, pair b) { return (pair){a.re + b.re, a.im + b.im}; }
INLINE pair NAME(take)(pair a, pair b) { return (pair){a.re - b.re, a.im - b.im}; }
INLINE pair NAME(times)(pair a, pair w) {
  return (pair){FMA(a.re, w.re, -(a.im * w.im)), FMA(a.re, w.im, a.im * w.re)};
}
/* times -i */
INLINE pair NAME(quarter)(pair a) { return (pair){a.im, -a.re}; }
INLINE pair NAME(conjugate)(pair a) { return (pair){a.re, -a.im}; }
INLINE pair NAME(swapped)(pair a, bool swaps) { return swaps ? (pair){a.im, a.re} : a; }

INLINE pair NAME(whole_at)(const void *p) {
  whole w = *(const whole *)p;
  return (pair){w[0], w[1]};
}

/* ---- transforms of a few numbers, in registers ---- */

/* Of v[0], v[apart], ... in place. */
INLINE void NAME(two)(pair *v, const int apart) {
  pair a = v[0], b = v[apart];
  v[0] = NAME(add)(a, b), v[apart] = NAME(take)(a, b);
}
INLINE void NAME(four)(pair *v, const int apart) {
  pair a = NAME(add)(v[0], v[2 * apart]), b = NAME(take)(v[0], v[2 * apart]);
  pair c = NAME(add)(v[apart], v[3 * apart]), d = NAME(quarter)(NAME(take)(v[apart], v[3 * apart]));
  v[0] = NAME(add)(a, c), v[apart] = NAME(add)(b, d);
  v[2 * apart] = NAME(take)(a, c), v[3 * apart] = NAME(take)(b, d);
}

/* Fours, then the rest of the radix: result r is at rest (r % 4) + r / 4. */
INLINE void NAME(by_four)(pair *v, const int radix) {
  const int rest = radix / 4;
  UNROLL for (int i = 0; i < rest; i++) NAME(four)(v + i, rest);
  UNROLL for (int k = 1; k < 4; k++) UNROLL for (int i = 1; i < rest; i++) {
    int turn = i * k * (16 / radix);
    pair *at = &v[k * rest + i];
    if (turn == 4)
      *at = NAME(quarter)(*at);
    else
      *at = NAME(times)(*at, (pair){(number)cosines_16[turn], -(number)sines_16[turn]});
  }
  UNROLL for (int k = 0; k < 4; k++) if (rest == 4) NAME(four)(v + 4 * k, 1);
  else if (rest == 2) NAME(two)(v + 2 * k, 1);
}

/* An odd radix: sums and differences of what lies as far from the end as from the first. */
INLINE void NAME(odd)(pair *v, const int radix, const double *cosines, const double *sines) {
  const int half = radix / 2;
  pair first = v[0], sums[WK__FOURIER_LARGEST / 2], differences[WK__FOURIER_LARGEST / 2];
  UNROLL for (int i = 0; i < half; i++) {
    sums[i] = NAME(add)(v[i + 1], v[radix - 1 - i]), differences[i] = NAME(take)(v[i + 1], v[radix - 1 - i]);
    v[0] = NAME(add)(v[0], sums[i]);
  }
  UNROLL for (int k = 1; k <= half; k++) {
    pair even = first, odd = {0, 0};
    UNROLL for (int i = 0; i < half; i++) {
      number c = (number)cosines[(i + 1) * k % radix], s = (number)sines[(i + 1) * k % radix];
      even = (pair){FMA(sums[i].re, c, even.re), FMA(sums[i].im, c, even.im)};
      odd = (pair){FMA(differences[i].re, s, odd.re), FMA(differences[i].im, s, odd.im)};
    }
    odd = NAME(quarter)(odd);
    v[k] = NAME(add)(even, odd), v[radix - k] = NAME(take)(even, odd);
  }
}

INLINE void NAME(transform_few)(pair *v, const int radix) {
  if (radix == 2) NAME(two)(v, 1);
  if (radix == 4 || radix == 8 || radix == 16) NAME(by_four)(v, radix);
  if (radix == 3) NAME(odd)(v, 3, cosines_3, sines_3);
  if (radix == 5) NAME(odd)(v, 5, cosines_5, sines_5);
  if (radix == 7) NAME(odd)(v, 7, cosines_7, sines_7);
  if (radix == 11) NAME(odd)(v, 11, cosines_11, sines_11);
  if (radix == 13) NAME(odd)(v, 13, cosines_13, sines_13);
}

/* ---- shared memory ---- */

#define PARTS (WK__FOURIER_MOST * 4 / (int)sizeof(number)) /* of each kind */
#define SHARED_RE ((SHARED number *)shared_numbers)
#define SHARED_IM (SHARED_RE + PARTS + (PARTS >> PAD))

INLINE pair NAME(get)(uint32_t at) {
  at += at >> PAD;
  return (pair){SHARED_RE[at], SHARED_IM[at]};
}
INLINE void NAME(put)(uint32_t at, pair x) {
  at += at >> PAD;
  SHARED_RE[at] = x.re, SHARED_IM[at] = x.im;
}

/* ---- stages ---- */

INLINE void NAME(stage)(const wk__cuda_fourier *f, const wk__cuda_fourier_stage *s, uint32_t lanes, const int radix) {
  const int sets = EACH / radix;
  const whole *roots = (const whole *)f->roots + s->table;
  uint32_t total = lanes * (uint32_t)s->apart, set = (uint32_t)s->set, apart = (uint32_t)s->apart,
           first = this_thread();
  pair v[EACH];
  UNROLL for (int u = 0; u < sets; u++) {
    uint32_t b = first + (uint32_t)(u * thread_count());
    b = b < total ? b : total - 1; /* all have numbers, so that registers do not have to keep earlier ones */
    uint32_t in = b + divided(b, s->by_apart) * ((uint32_t)f->n - apart), t = b - divided(b, s->by_set) * set;
    UNROLL for (int r = 0; r < radix; r++) v[u * radix + r] = NAME(get)(in + (uint32_t)r * apart);
    if (set > 1) UNROLL for (int r = 1; r < radix; r++) {
        pair w = NAME(whole_at)(roots + (uint32_t)(r - 1) * set + t);
        v[u * radix + r] = NAME(times)(v[u * radix + r], w);
      }
    NAME(transform_few)(v + u * radix, radix);
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
        NAME(put)(out + (uint32_t)r * set, v[u * radix + at]);
      }
    }
  }
  wait_for_block();
}

/* A large radix: a result is a sum of as many products. */
INLINE void NAME(stage_of_sums)(const wk__cuda_fourier *f, const wk__cuda_fourier_stage *s, uint32_t lanes) {
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
        sum = NAME(add)(sum, NAME(times)(NAME(get)(in), NAME(whole_at)(roots + turn)));
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
    if (e < total) NAME(put)(e, v[u]);
  }
  wait_for_block();
}

/* ---- numbers of memory ---- */

/* The root of order `order` at p below it. */
INLINE pair NAME(turn)(const wk__cuda_fourier *f, uint64_t p) {
  const whole *turns = (const whole *)f->turns;
  whole low = turns[p % WK__FOURIER_NEAR], high = turns[WK__FOURIER_NEAR + p / WK__FOURIER_NEAR];
  return NAME(times)((pair){low[0], low[1]}, (pair){high[0], high[1]});
}

INLINE pair NAME(read)(const wk__cuda_rows *r, const char *row, int64_t k) {
  const char *p = row + k * r->step;
  if (r->is_whole) return NAME(whole_at)(p);
  return (pair){*(const number *)p, r->second ? *(const number *)(p + r->second) : 0};
}

/* Of a half spectrum of `all` numbers; those that are real are taken as real. */
INLINE pair NAME(read_half)(const wk__cuda_rows *r, const char *row, int64_t k, int64_t all) {
  int64_t there = k < r->count ? k : all - k;
  if (there >= r->count) return (pair){0, 0};
  pair x = NAME(read)(r, row, there);
  if (k == 0 || 2 * k == all) x.im = 0;
  return there == k ? x : NAME(conjugate)(x);
}

/* Number k of the row. */
INLINE pair NAME(read_so)(const wk__cuda_fourier *f, const char *row, int64_t k) {
  const wk__cuda_rows *r = &f->in;
  if (f->from_how == WK__FOURIER_MIRRORED) return NAME(read_half)(r, row, k, f->n);
  if (f->from_how == WK__FOURIER_PACKED) {
    pair a = NAME(read_half)(r, row, k, 2 * f->n), b = NAME(conjugate)(NAME(read_half)(r, row, f->n - k, 2 * f->n));
    pair odd = NAME(times)(NAME(take)(a, b), NAME(conjugate)(NAME(turn)(f, (uint64_t)k)));
    return (pair){a.re + b.re - odd.im, a.im + b.im + odd.re};
  }
  return NAME(read)(r, row, k);
}

INLINE void NAME(write)(const wk__cuda_fourier *f, char *row, int64_t k, pair x) {
  const wk__cuda_rows *r = &f->out;
  number scale = (number)f->scale;
  char *p = row + k * r->step;
  x = NAME(swapped)((pair){x.re * scale, x.im * scale}, f->swaps_to);
  if (r->is_whole)
    *(whole *)p = (whole){x.re, x.im};
  else {
    *(number *)p = x.re;
    if (r->second) *(number *)(p + r->second) = x.im;
  }
}

/* Number k of a spectrum of 2 n, of numbers k and n - k (mod n) of the pairs'. */
INLINE pair NAME(unpacked)(const wk__cuda_fourier *f, int64_t k, pair a, pair b) {
  pair even = NAME(add)(a, NAME(conjugate)(b)), odd = NAME(quarter)(NAME(take)(a, NAME(conjugate)(b)));
  odd = NAME(times)(odd, NAME(turn)(f, (uint64_t)k));
  return (pair){(number)0.5 * (even.re + odd.re), (number)0.5 * (even.im + odd.im)};
}

/* ---- rows that a block holds ---- */

INLINE void NAME(load)(const wk__cuda_fourier *f, uint32_t lanes) {
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
    v[u] = NAME(read)(r, (const char *)f->from + starts_in[lane], e < total ? k : 0);
  }
  UNROLL for (int u = 0; u < EACH; u++) if (to[u] < total) NAME(put)(to[u], NAME(swapped)(v[u], f->swaps_from));
}

INLINE void NAME(load_half)(const wk__cuda_fourier *f, uint32_t lanes) {
  uint32_t n = (uint32_t)f->n, total = (uint32_t)f->lanes * n;
  for (uint32_t e = (uint32_t)thread_index(); e < total; e += (uint32_t)thread_count()) {
    bool in_turn = f->in.in_turn;
    uint32_t lane = in_turn ? divided(e, f->by_n) : e - divided(e, f->by_lanes) * (uint32_t)f->lanes;
    uint32_t k = in_turn ? e - lane * n : divided(e, f->by_lanes);
    if (lane >= lanes) continue;
    pair x = NAME(read_so)(f, (const char *)f->from + starts_in[lane], k);
    NAME(put)(lane * n + k, NAME(swapped)(x, f->swaps_from));
  }
}

INLINE void NAME(store)(const wk__cuda_fourier *f, uint32_t lanes) {
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
      x = NAME(unpacked)(f, near, NAME(get)(lane * n + a), NAME(get)(lane * n + b));
      if (k > n) x.im = -x.im;
    } else {
      x = NAME(get)(lane * n + k);
      if (f->to_how == WK__FOURIER_TURNED) x = NAME(times)(x, NAME(turn)(f, (uint64_t)columns[lane] * k));
    }
    NAME(write)(f, (char *)f->to + starts_out[lane], k, x);
  }
}

ENTRY(NAME(rows))(wk__cuda_fourier given) {
  const wk__cuda_fourier *f = &given;
  int64_t first = (int64_t)block_index() * f->lanes, rest = f->rows - first;
  uint32_t lanes = (uint32_t)(rest < f->lanes ? rest : f->lanes);
  for (uint32_t lane = (uint32_t)thread_index(); lane < lanes; lane += (uint32_t)thread_count()) {
    starts_in[lane] = start_of(f, &f->in, first + lane), starts_out[lane] = start_of(f, &f->out, first + lane);
    if (f->to_how == WK__FOURIER_TURNED) columns[lane] = (int32_t)((first + lane) % f->sizes[f->dims - 1]);
  }
  wait_for_block();
  if (f->from_how == WK__FOURIER_PLAIN)
    NAME(load)(f, lanes);
  else
    NAME(load_half)(f, lanes);
  wait_for_block();
  for (int i = 0; i < f->stage_count; i++) {
    const wk__cuda_fourier_stage *s = &f->stages[i];
    switch (s->radix) {
      case 2:
        NAME(stage)(f, s, lanes, 2);
        break;
      case 3:
        NAME(stage)(f, s, lanes, 3);
        break;
      case 4:
        NAME(stage)(f, s, lanes, 4);
        break;
      case 5:
        NAME(stage)(f, s, lanes, 5);
        break;
      case 7:
        NAME(stage)(f, s, lanes, 7);
        break;
      case 8:
        NAME(stage)(f, s, lanes, 8);
        break;
      case 11:
        NAME(stage)(f, s, lanes, 11);
        break;
      case 13:
        NAME(stage)(f, s, lanes, 13);
        break;
      case 16:
        NAME(stage)(f, s, lanes, 16);
        break;
      default:
        NAME(stage_of_sums)(f, s, lanes);
    }
  }
  NAME(store)(f, lanes);
}

/* ---- rows of any length, number by number ---- */

/* Squares of k, in half turns of n. */
INLINE pair NAME(chirp)(const wk__cuda_fourier *f, int64_t k) { return NAME(turn)(f, (uint64_t)(k * k % f->order)); }

INLINE pair NAME(number)(const wk__cuda_fourier *f, int64_t start, int64_t k) {
  const char *row = (const char *)f->from + start;
  const wk__cuda_rows *r = &f->in;
  int64_t near = k > f->n ? 2 * f->n - k : k, back = f->out.count - k;
  switch (f->to_how) {
    case WK__FOURIER_UNPACKED: {
      pair a = NAME(read)(r, row, near % f->n), b = NAME(read)(r, row, (f->n - near) % f->n);
      pair x = NAME(unpacked)(f, near, a, b);
      return k > f->n ? NAME(conjugate)(x) : x;
    }
    case WK__FOURIER_CHIRPED:
      if (k >= r->count) return (pair){0, 0};
      return NAME(times)(NAME(swapped)(NAME(read)(r, row, k), f->swaps_from), NAME(chirp)(f, k));
    case WK__FOURIER_CHIRP:
      if (k >= f->n && back >= f->n) return (pair){0, 0};
      return NAME(conjugate)(NAME(chirp)(f, k < f->n ? k : back));
    case WK__FOURIER_TIMES:
      return NAME(times)(NAME(read)(r, row, k), NAME(whole_at)((const whole *)f->turns + k));
    default:
      return NAME(swapped)(NAME(read_so)(f, row, k), f->swaps_from);
  }
}

ENTRY(NAME(numbers))(wk__cuda_fourier given) {
  const wk__cuda_fourier *f = &given;
  int64_t step = (int64_t)block_count() * thread_count(), total = f->rows * f->out.count;
  for (int64_t e = (int64_t)block_index() * thread_count() + thread_index(); e < total; e += step) {
    int64_t row = e / f->out.count, k = e % f->out.count;
    pair x = NAME(number)(f, start_of(f, &f->in, row), k);
    NAME(write)(f, (char *)f->to + start_of(f, &f->out, row), k, x);
  }
}

/* ---- tables ---- */

INLINE void NAME(put_root)(whole *at, int64_t k, int64_t n) {
  double re, im;
  root_of(k, n, &re, &im);
  *at = (whole){(number)re, (number)im};
}

ENTRY(NAME(tables))(wk__cuda_fourier given) {
  const wk__cuda_fourier *f = &given;
  int64_t first = (int64_t)block_index() * thread_count() + thread_index(),
          step = (int64_t)block_count() * thread_count();
  for (int i = 0; i < f->stage_count; i++) {
    const wk__cuda_fourier_stage *s = &f->stages[i];
    int64_t set = s->set, order = set * s->radix;
    bool all = s->radix > WK__FOURIER_LARGEST && s->radix != 16;
    whole *roots = (whole *)f->roots + s->table;
    for (int64_t k = first; k < (all ? order : order - set); k += step)
      NAME(put_root)(&roots[k], all ? k : (k / set + 1) * (k % set), order);
  }
  for (int64_t k = first; f->turns && k < WK__FOURIER_NEAR + f->order / WK__FOURIER_NEAR + 1; k += step) {
    bool near = k < WK__FOURIER_NEAR;
    NAME(put_root)((whole *)f->turns + k, near ? k : (k - WK__FOURIER_NEAR) * WK__FOURIER_NEAR, f->order);
  }
}

#undef pair
#undef whole
#undef PARTS
#undef SHARED_RE
#undef SHARED_IM
#undef UNROLL
