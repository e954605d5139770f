/* Reductions of generated bodies, in the order that loop/loop.h states. Only ever read as text, behind unit_vector.h.
 * By rows: GROUP values hold the lanes of a chunk; fold makes them one, push adds it to the counter of chunks, finish
 * folds the counter. By columns: lanes, counter and results are strips of columns, `strip` bytes apart.
 * Tests: tests/c/test_codegen.c. */

#define PARTIALS(T, t, op)                                                                                      \
  /* The first n lanes of x go to their accumulators. */                                                        \
  WK_INLINE T t##_take_##op(T lanes, T x, int64_t n) {                                                          \
    T y = t##_##op(lanes, x);                                                                                   \
    return n >= S ? y : t##_where(b_lanes(n), y, lanes);                                                        \
  }                                                                                                             \
  WK_INLINE T t##_fold_##op(const T *lanes) {                                                                   \
    T x[GROUP];                                                                                                 \
    _Pragma("GCC unroll 8") for (int k = 0; k < GROUP; k++) x[k] = lanes[k];                                    \
    _Pragma("GCC unroll 4") for (int half = GROUP / 2; half > 0; half /= 2)                                     \
        _Pragma("GCC unroll 4") for (int k = 0; k < half; k++) x[k] = t##_##op(x[k], x[k + half]);              \
    _Pragma("GCC unroll 5") for (int half = S / 2; half > 0; half /= 2) x[0] =                                  \
        t##_##op(x[0], t##_lowered(x[0], half));                                                                \
    return t##_splat(t##_first(x[0]));                                                                          \
  }                                                                                                             \
  SLOW void t##_push_##op(T *counter, int64_t chunks, T partial) {                                              \
    int level = 0;                                                                                              \
    for (; chunks >> level & 1; level++) partial = t##_##op(counter[level], partial);                           \
    counter[level] = partial;                                                                                   \
  }                                                                                                             \
  SLOW T t##_finish_##op(const T *counter, int64_t chunks, T identity) {                                        \
    if (chunks == 0) return identity;                                                                           \
    int level = __builtin_ctzll((uint64_t)chunks);                                                              \
    T x = counter[level];                                                                                       \
    for (level++; chunks >> level; level++)                                                                     \
      if (chunks >> level & 1) x = t##_##op(counter[level], x);                                                 \
    return x;                                                                                                   \
  }                                                                                                             \
  SLOW void t##_fold_strip_##op(char *lanes, int64_t active, int64_t n, int64_t strip) {                        \
    for (int half = 16; half > 0; half /= 2)                                                                    \
      for (int64_t k = 0; k < half && k + half < active; k++)                                                   \
        t##_combine_strip_##op(lanes + k * strip, lanes + k * strip, lanes + (k + half) * strip, n);            \
  }                                                                                                             \
  SLOW void t##_push_strip_##op(char *counter, int64_t chunks, const char *partial, int64_t n, int64_t strip) { \
    int level = 0;                                                                                              \
    while (chunks >> level & 1) level++;                                                                        \
    __builtin_memcpy(counter + level * strip, partial, strip);                                                  \
    for (int l = 0; l < level; l++)                                                                             \
      t##_combine_strip_##op(counter + level * strip, counter + l * strip, counter + level * strip, n);         \
  }                                                                                                             \
  SLOW void t##_finish_strip_##op(char *out, const char *counter, int64_t chunks, T identity, int64_t n,        \
                                  int64_t strip) {                                                              \
    if (chunks == 0) {                                                                                          \
      for (int64_t j = 0; j < n; j += S) t##_set_strip(out, j, identity);                                       \
      return;                                                                                                   \
    }                                                                                                           \
    int level = __builtin_ctzll((uint64_t)chunks);                                                              \
    __builtin_memcpy(out, counter + level * strip, strip);                                                      \
    for (level++; chunks >> level; level++)                                                                     \
      if (chunks >> level & 1) t##_combine_strip_##op(out, counter + level * strip, out, n);                    \
  }
#define COMBINE_STRIPS(T, t, op)                                                                          \
  SLOW void t##_combine_strip_##op(char *out, const char *p, const char *q, int64_t n) {                  \
    for (int64_t j = 0; j < n; j += S) t##_set_strip(out, j, t##_##op(t##_strip(p, j), t##_strip(q, j))); \
  }

WK_INLINE F f_lowered(F x, int half) { return vf_lowered(x, half); }
WK_INLINE L l_lowered(L x, int half) { return half == H ? (L){x.b, x.b} : (L){vl_lowered(x.a, half), x.b}; }
WK_INLINE D d_lowered(D x, int half) {
  L y = l_lowered((L){(vl)x.a, (vl)x.b}, half);
  return (D){(vd)y.a, (vd)y.b};
}
WK_INLINE B b_lowered(B x, int half) {
  uint8_t lanes[2 * S] = {0};
  whole_store_bool(lanes, x);
  return whole_load_bool(lanes + half);
}
#define STRIPS(T, t, name)                                                                                       \
  WK_INLINE T t##_load_##t##_lanes(const t##_lane *p) { return whole_load_##name(p); }                           \
  WK_INLINE T t##_strip(const char *strip, int64_t j) { return whole_load_##name((const t##_lane *)strip + j); } \
  WK_INLINE void t##_set_strip(char *strip, int64_t j, T x) { whole_store_##name((t##_lane *)strip + j, x); }    \
  SLOW void t##_fill_strips(char *strips, int64_t count, T x, int64_t n, int64_t strip) {                        \
    for (int64_t k = 0; k < count; k++)                                                                          \
      for (int64_t j = 0; j < n; j += S) t##_set_strip(strips + k * strip, j, x);                                \
  }
STRIPS(F, f, f32)
STRIPS(D, d, f64)
STRIPS(L, l, i64)
STRIPS(B, b, bool)

#define REDUCTION(T, t, op) COMBINE_STRIPS(T, t, op) PARTIALS(T, t, op)
/* Of a chunk's elements so far, behind the chunks before. A new chunk begins with what the last one ended with. */
#define SCAN(T, t, op)                                                                  \
  SLOW T t##_scan_##op(T x, t##_lane *here, t##_lane before, int64_t n) {               \
    t##_lane lanes[S];                                                                  \
    t##_spread(lanes, x);                                                               \
    for (int64_t i = 0; i < S && i < n; i++)                                            \
      lanes[i] = *here = t##_first(t##_##op(t##_splat(*here), t##_splat(lanes[i])));    \
    return t##_##op(t##_splat(before), t##_load_##t##_lanes(lanes));                    \
  }                                                                                     \
  WK_INLINE void t##_next_scan_##op(t##_lane *here, t##_lane *before, T identity) {     \
    *before = t##_first(t##_##op(t##_splat(*before), t##_splat(*here)));                \
    *here = t##_first(identity);                                                        \
  }                                                                                     \
  WK_INLINE T t##_scan_strip_##op(T x, char *here, const char *before, int64_t j) {     \
    T y = t##_##op(t##_strip(here, j), x);                                              \
    t##_set_strip(here, j, y);                                                          \
    return t##_##op(t##_strip(before, j), y);                                           \
  }                                                                                     \
  SLOW void t##_next_scan_strip_##op(char *here, char *before, T identity, int64_t n) { \
    for (int64_t j = 0; j < n; j += S) {                                                \
      t##_set_strip(before, j, t##_##op(t##_strip(before, j), t##_strip(here, j)));     \
      t##_set_strip(here, j, identity);                                                 \
    }                                                                                   \
  }

/* The first of the best; a NaN beats everything. Most values do not beat the best of those before. */
#define ARG(T, t, name, beats)                                                                                      \
  typedef struct t##_##name##_state {                                                                               \
    t##_lane best;                                                                                                  \
    int64_t at;                                                                                                     \
  } t##_##name##_state;                                                                                             \
  SLOW void t##_##name##_lanes(t##_##name##_state *s, T x, int64_t e, int64_t n) {                                  \
    t##_lane v[S];                                                                                                  \
    t##_spread(v, x);                                                                                               \
    for (int64_t i = 0; i < S && i < n; i++)                                                                        \
      if (s->at < 0 || (s->best == s->best && (v[i] beats s->best || v[i] != v[i]))) s->best = v[i], s->at = e + i; \
  }                                                                                                                 \
  WK_INLINE void t##_take_##name(t##_##name##_state *s, T x, int64_t e, int64_t n) {                                \
    if (s->at >= 0 && !b_any(b_bit_or(t##_isnan(x), t##_##name##_beats(x, t##_splat(s->best))))) return;            \
    t##_##name##_lanes(s, x, e, n);                                                                                 \
  }                                                                                                                 \
  SLOW void t##_take_strip_##name(char *best, char *at, int64_t j, T x, int64_t e, int64_t n) {                     \
    t##_lane v[S], *b = (t##_lane *)best + j;                                                                       \
    int64_t *place = (int64_t *)at + j;                                                                             \
    t##_spread(v, x);                                                                                               \
    for (int64_t i = 0; i < S && i < n; i++)                                                                        \
      if (place[i] < 0 || (b[i] == b[i] && (v[i] beats b[i] || v[i] != v[i]))) b[i] = v[i], place[i] = e;           \
  }
#define ARGS(T, t)                                                \
  WK_INLINE B t##_argmax_beats(T x, T y) { return t##_gt(x, y); } \
  WK_INLINE B t##_argmin_beats(T x, T y) { return t##_lt(x, y); } \
  ARG(T, t, argmax, >)                                            \
  ARG(T, t, argmin, <)

/* Memory is asked for ahead: the processor's own prefetching stops at the end of a page. What goes through its rows
 * once asks some way on. What goes several times has its row in the cache from the second time on; it asks for the rows
 * that come next, a share of them each time, so that memory is busy while it computes. */
#define READ_AHEAD 8192
#define PREFETCH_GROUP(p, j, item)                       \
  for (int64_t line = 0; line < 32 * (item); line += 64) \
  __builtin_prefetch((const void *)((uint64_t)(p) + (uint64_t)((j) * (item) + READ_AHEAD + line)))
/* A group's part of so many quarters of a row, in the second cache. */
#define PREFETCH_SHARE(next, j, item, quarters)                      \
  for (int64_t line = 0; line < 8 * (item) * (quarters); line += 64) \
  __builtin_prefetch((const void *)((next) + (uint64_t)(((j) * (item) * (quarters) >> 2) + line)), 0, 2)

/* Where a value of one row lies, and the elements of a walker from e on, by rows and by columns. */
WK_INLINE void *row_memory(const struct wk__kernel_args *a, const struct wk__kernel_thread *t, int w, int64_t q) {
  const wk__walker *k = &a->walkers[w];
  return k->base + (t->at[w] + q * k->stride_m) * k->item;
}
WK_INLINE void *along_row(const struct wk__kernel_args *a, const struct wk__kernel_thread *t, int w, int64_t e,
                          int64_t q) {
  const wk__walker *k = &a->walkers[w];
  return a->adjacent >> w & 1 ? k->base + (t->at[w] + q * k->stride_m + e) * k->item : (char *)t->pointer[w];
}
WK_INLINE void *along_column(const struct wk__kernel_args *a, const struct wk__kernel_thread *t, int w, int64_t e) {
  const wk__walker *k = &a->walkers[w];
  return a->adjacent >> w & 1 ? k->base + (t->at[w] + e * k->stride_m) * k->item : (char *)t->pointer[w];
}
/* Rows from number m on that are taken together; those that need blocks one by one. */
WK_INLINE int64_t rows_together(const struct wk__kernel_args *a, uint64_t walkers, int64_t m, int64_t left) {
  if (walkers & ~a->adjacent) return 1;
  left = left < a->rows - m ? left : a->rows - m;
  return left < a->together ? left : a->together;
}
/* Behind the rows that are taken together, from a quarter of the q-th on. */
WK_INLINE uint64_t next_rows(const struct wk__kernel_args *a, const struct wk__kernel_thread *t, int w, int64_t q,
                             int64_t quarter) {
  int64_t row = a->length * a->walkers[w].item, ahead = row * a->together;
  return (uint64_t)row_memory(a, t, w, q) +
         (uint64_t)((ahead > READ_AHEAD ? ahead : READ_AHEAD) + (row * quarter >> 2));
}
/* The q-th row's one element of a walker that may lie nowhere: rows with such walkers are taken one by one. */
WK_INLINE const void *block_memory(const struct wk__kernel_args *a, struct wk__kernel_thread *t, int w, int64_t q) {
  (void)q;
  a->block(a, t, (uint64_t)1 << w, 0, 0, 1);
  return t->pointer[w];
}
/* Asks for the blocks that are not adjacent memory; brings back those that were written to copies. */
WK_INLINE void get_blocks(const struct wk__kernel_args *a, struct wk__kernel_thread *t, uint64_t wanted,
                          uint64_t written, int64_t e, int64_t count) {
  wanted &= ~a->adjacent;
  if (wanted) a->block(a, t, wanted, written, e, count);
}
WK_INLINE void put_blocks(const struct wk__kernel_args *a, struct wk__kernel_thread *t, uint64_t written, int64_t e,
                          int64_t count) {
  written &= t->copied & ~a->adjacent;
  if (written) a->flush(a, t, written, e, count);
}
