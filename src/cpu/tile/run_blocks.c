/* Operations across elements: copies between shapes, reductions, scans, products, random numbers.
 * Test: tests/python/test_tiles.py. */
#include "cpu/gemm/gemm.h"
#include "cpu/tile/internal.h"

/* ---- other shapes ---- */

/* Elements as memory holds them: blocks are their own memory. */
static const uint8_t memory_of[WK__LANE_COUNT] = {
    [WK__LANE_BOOL] = WK_BOOL, [WK__LANE_I64] = WK_INT64, [WK__LANE_F32] = WK_FLOAT32, [WK__LANE_F64] = WK_FLOAT64};

/* Dims to the right, where the rows of primitives are. */
static void copy_strided(const tile_run *r, wk__tile v, const void *source, const int64_t *stride) {
  const wk__tile_type *t = type_of(r, v);
  int64_t size[3] = {1, 1, 1}, by[3] = {0}, item = item_of(t);
  for (int d = 0; d < t->ndim; d++) size[3 - t->ndim + d] = t->shape[d], by[3 - t->ndim + d] = stride[d];
  wk__load_fn *load = r->primitives->load[memory_of[wk__tile_lane(t)]];
  for (int64_t n = 0; n < size[0]; n++)
    load((char *)value_of(r, v) + n * size[1] * size[2] * item, (const char *)source + n * by[0] * item, size[1],
         size[2], by[1], by[2]);
}

static void row_major(const wk__tile_type *t, int64_t *stride) {
  int64_t n = 1;
  for (int d = t->ndim - 1; d >= 0; d--) stride[d] = n, n *= t->shape[d];
}

void tile_broadcast(const tile_run *r, wk__tile v) {
  wk__tile x = r->plan->kernel->instrs[v].operands[0];
  const wk__tile_type *from = type_of(r, x);
  int64_t stride[3] = {0};
  row_major(from, stride);
  for (int d = 0; d < from->ndim; d++)
    if (from->shape[d] == 1) stride[d] = 0;
  copy_strided(r, v, value_of(r, x), stride);
}

void tile_permute(const tile_run *r, wk__tile v) {
  const wk__tile_instr *i = &r->plan->kernel->instrs[v];
  int64_t own[3] = {0}, stride[3] = {0};
  row_major(type_of(r, i->operands[0]), own);
  for (int d = 0; d < i->type.ndim; d++) stride[d] = own[i->number.i >> 4 * d & 15];
  copy_strided(r, v, value_of(r, i->operands[0]), stride);
}

/* ---- reductions ---- */

typedef struct rows {
  int64_t outer, length, inner; /* what is folded lies `inner` elements apart */
} rows;

static rows rows_of(const wk__tile_type *t, int axis) {
  rows s = {1, t->shape[axis], 1};
  for (int d = 0; d < axis; d++) s.outer *= t->shape[d];
  for (int d = axis + 1; d < t->ndim; d++) s.inner *= t->shape[d];
  return s;
}

static int combiner_of(int op) {
  switch (op) {
    case WK__LOOP_reduce_sum:
    case WK__LOOP_scan_sum:
      return WK__LOOP_add;
    case WK__LOOP_reduce_prod:
    case WK__LOOP_scan_prod:
      return WK__LOOP_mul;
    case WK__LOOP_reduce_max:
      return WK__LOOP_max;
    case WK__LOOP_reduce_min:
      return WK__LOOP_min;
    default:
      return op;
  }
}

/* One step of the tree: neighbours, or halves. */
static void fold_once(const tile_run *r, const wk__tile_instr *i, rows *s, const void *from, void *to,
                      bool neighbours) {
  wk__lane_type lane = wk__tile_lane(&i->type);
  wk__load_fn *load = r->primitives->load[memory_of[lane]];
  int64_t item = wk__lane_size(lane), half = s->length / 2, n = s->outer * half * s->inner;
  void *first = scratch_of(r, 2), *second = (char *)first + n * item;
  const char *p = from;
  if (neighbours && s->inner == 1) {
    load(first, p, 1, n, 0, 2);
    load(second, p + item, 1, n, 0, 2);
  } else if (neighbours) {
    load(first, p, s->outer * half, s->inner, 2 * s->inner, 1);
    load(second, p + s->inner * item, s->outer * half, s->inner, 2 * s->inner, 1);
  } else {
    load(first, p, s->outer, half * s->inner, s->length * s->inner, 1);
    load(second, p + half * s->inner * item, s->outer, half * s->inner, s->length * s->inner, 1);
  }
  r->primitives->map[combiner_of(i->map)][lane](to, first, second, NULL, n);
  wk__tile_instr as_map = {.op = WK__TILE_map, .map = (uint8_t)combiner_of(i->map), .type = i->type};
  if (wk__tile_needs_rounding(&as_map)) r->primitives->round_to[i->type.dtype](to, to, NULL, NULL, n);
  s->length = half;
}

#define BEST(name, type)                                                           \
  static void best_##name(int64_t *out, const type *in, const rows *s, bool max) { \
    for (int64_t o = 0; o < s->outer; o++)                                         \
      for (int64_t n = 0; n < s->inner; n++) {                                     \
        const type *p = in + o * s->length * s->inner + n;                         \
        int64_t best = 0;                                                          \
        for (int64_t e = 1; e < s->length; e++) {                                  \
          type a = p[best * s->inner], b = p[e * s->inner];                        \
          if (a == a && (b != b || (max ? b > a : b < a))) best = e;               \
        }                                                                          \
        out[o * s->inner + n] = best;                                              \
      }                                                                            \
  }
BEST(bool, uint8_t)
BEST(i64, int64_t)
BEST(f32, float)
BEST(f64, double)

static void find_best(const tile_run *r, wk__tile v, const wk__tile_instr *i, const rows *s) {
  const void *in = value_of(r, i->operands[0]);
  bool max = i->map == WK__LOOP_reduce_argmax;
  switch (wk__tile_lane(type_of(r, i->operands[0]))) {
    case WK__LANE_BOOL:
      best_bool(value_of(r, v), in, s, max);
      break;
    case WK__LANE_I64:
      best_i64(value_of(r, v), in, s, max);
      break;
    case WK__LANE_F32:
      best_f32(value_of(r, v), in, s, max);
      break;
    default:
      best_f64(value_of(r, v), in, s, max);
  }
}

void tile_reduce(const tile_run *r, wk__tile v) {
  const wk__tile_instr *i = &r->plan->kernel->instrs[v];
  rows s = rows_of(type_of(r, i->operands[0]), i->axis);
  if (wk__loop_is_arg(i->map)) {
    find_best(r, v, i, &s);
    return;
  }
  const void *from = value_of(r, i->operands[0]);
  for (int step = 0; s.length > 1; step++) {
    void *to = s.length == 2 ? value_of(r, v) : scratch_of(r, step % 2);
    fold_once(r, i, &s, from, to, step < 2);
    from = to;
  }
  if (from == value_of(r, i->operands[0]))
    memcpy(value_of(r, v), from, (size_t)(wk__tile_elements(&i->type) * item_of(&i->type)));
}

/* ---- scans ---- */

void tile_scan(const tile_run *r, wk__tile v) {
  const wk__tile_instr *i = &r->plan->kernel->instrs[v];
  rows s = rows_of(&i->type, i->axis);
  wk__lane_type lane = wk__tile_lane(&i->type);
  wk__map_fn *combine = r->primitives->map[combiner_of(i->map)][lane];
  wk__tile_instr as_map = {.op = WK__TILE_map, .map = (uint8_t)combiner_of(i->map), .type = i->type};
  bool rounds = wk__tile_needs_rounding(&as_map), back = i->number.i != 0;
  int64_t row = s.inner * wk__lane_size(lane);
  for (int64_t o = 0; o < s.outer; o++) {
    const char *in = (const char *)value_of(r, i->operands[0]) + o * s.length * row;
    char *out = (char *)value_of(r, v) + o * s.length * row;
    for (int64_t e = 0; e < s.length; e++) {
      int64_t at = back ? s.length - 1 - e : e, before = back ? at + 1 : at - 1;
      if (e == 0) {
        memcpy(out + at * row, in + at * row, (size_t)row);
        continue;
      }
      combine(out + at * row, out + before * row, in + at * row, NULL, s.inner);
      if (rounds) r->primitives->round_to[i->type.dtype](out + at * row, out + at * row, NULL, NULL, s.inner);
    }
  }
}

/* ---- products ---- */

static void dot_integers(const int64_t *a, const int64_t *b, int64_t *c, int64_t m, int64_t n, int64_t k) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t l = 0; l < k; l++)
      for (int64_t j = 0; j < n; j++) c[i * n + j] += a[i * k + l] * b[l * n + j];
}

void tile_dot(tile_run *r, wk__tile v) {
  const wk__tile_instr *i = &r->plan->kernel->instrs[v];
  const wk__tile_type *a = type_of(r, i->operands[0]);
  int64_t m = i->type.shape[0], n = i->type.shape[1], k = a->shape[1];
  wk__lane_type lane = wk__tile_lane(&i->type);
  memcpy(value_of(r, v), value_of(r, i->operands[2]), (size_t)(m * n * wk__lane_size(lane)));
  if (lane == WK__LANE_I64) {
    dot_integers(value_of(r, i->operands[0]), value_of(r, i->operands[1]), value_of(r, v), m, n, k);
    return;
  }
  wk__gemm g = {.type = lane == WK__LANE_F32 ? WK__GEMM_F32 : WK__GEMM_F64,
                .m = m,
                .n = n,
                .k = k,
                .a = value_of(r, i->operands[0]),
                .a_row = k,
                .a_column = 1,
                .b = value_of(r, i->operands[1]),
                .b_row = n,
                .b_column = 1,
                .c = value_of(r, v),
                .c_row = n,
                .alpha = 1,
                .beta = 1,
                .batch = 1};
  wk_status status = wk__gemm_run(&g);
  if (status != WK_OK) r->status = status;
}

/* ---- random numbers ---- */

/* Philox 4x32-10 (Salmon et al., 2011) at counter (offset, 0, 0, 0), its key the seed. */
static uint32_t philox(uint64_t seed, uint32_t offset, int word) {
  uint32_t c[4] = {offset, 0, 0, 0}, key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  for (int round = 0; round < 10; round++) {
    uint64_t p = (uint64_t)c[0] * 0xD2511F53u, q = (uint64_t)c[2] * 0xCD9E8D57u;
    uint32_t next[4] = {(uint32_t)(q >> 32) ^ c[1] ^ key[0], (uint32_t)q, (uint32_t)(p >> 32) ^ c[3] ^ key[1],
                        (uint32_t)p};
    memcpy(c, next, sizeof c);
    key[0] += 0x9E3779B9u, key[1] += 0xBB67AE85u;
  }
  return c[word];
}

void tile_philox(const tile_run *r, wk__tile v) {
  const wk__tile_instr *i = &r->plan->kernel->instrs[v];
  const int64_t *seed = value_of(r, i->operands[0]), *offset = value_of(r, i->operands[1]);
  int64_t *out = value_of(r, v), n = wk__tile_elements(&i->type);
  for (int64_t e = 0; e < n; e++) out[e] = philox((uint64_t)seed[e], (uint32_t)offset[e], (int)i->number.i);
}
