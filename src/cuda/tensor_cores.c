/* Products of small floats by kernels that are written for the kind of product. WICK_CUDA_PRODUCTS says otherwise: mma
 * leaves sm_90's own instructions alone, exact leaves all to the kernel that has the CPU's bits. Tests:
 * tests/cuda/test_products.py. */
#include "cuda/tensor_cores.h"

#include "cuda/tensor_maps.h"
#include "cuda/tier0.h"
#include "cuda/written.h"

static wk_status write(const void *kind, char **out_text, wk__cuda_written *out) {
  wk__ptx_product_kernel written;
  WK_TRY(wk__ptx_write_product(kind, NULL, &written));
  *out_text = written.text;
  *out = (wk__cuda_written){.threads = written.threads, .shared = written.shared};
  return WK_OK;
}

typedef wk__cuda_cores run;

enum { ITEM = 2, PIECE = 8, MOST_BATCHES = 65535, MOST_SPLITS = 32, LEAST_STEPS = 4 };

/* ---- how operands lie ---- */

typedef struct lies {
  bool across;
  int64_t stride; /* of the slow dim */
} lies;

/* `along`: the stride of k, `across`: of the other dim. False: neither is in pieces. */
static bool find_lies(int64_t along, int64_t across, int64_t k, int64_t other, lies *out) {
  int64_t most = (int64_t)INT32_MAX / (ITEM * 256);
  if ((along == 1 || k == 1) && (across % PIECE == 0 || other == 1) && across >= 0 && across < most) {
    *out = (lies){false, other == 1 ? 0 : across};
    return true;
  }
  *out = (lies){true, k == 1 ? 0 : along};
  return (across == 1 || other == 1) && (along % PIECE == 0 || k == 1) && along >= 0 && along < most;
}

static bool set_operand(run *r, int arg, uint64_t address, int64_t batch_stride, int64_t batch, const lies *l) {
  if (address % 16 || (batch > 1 && batch_stride % PIECE)) return false;
  r->args[arg] = (int64_t)address;
  r->args[arg + 1] = l->stride * ITEM;
  r->args[arg + 2] = batch > 1 ? batch_stride * ITEM : 0;
  return true;
}

/* ---- how it is cut ---- */

/* Rounds of the device over tiles of so many columns, in units of one of 128: wide ones are a tenth faster than two. */
static double rounds(const run *r, const wk__cuda_product *p, int columns) {
  int64_t tiles = wk__ceil_div(p->m, WK__PRODUCT_ROWS) * wk__ceil_div(p->n, columns) * p->batch;
  return (double)wk__ceil_div(tiles, r->stream->device->multiprocessors) * (columns == 256 ? 1.8 : 1);
}

static void set_cut(run *r, const wk__cuda_product *p, int columns, int64_t wanted_splits) {
  int64_t steps = wk__ceil_div(p->k, WK__PRODUCT_DEPTH), each = wk__ceil_div(steps, wk__max(wanted_splits, 1));
  if (p->m * p->n > INT32_MAX) each = steps;
  r->kind.columns = (uint16_t)columns;
  r->args[WK__PRODUCT_TILES_M] = wk__ceil_div(p->m, WK__PRODUCT_ROWS);
  r->args[WK__PRODUCT_TILES_N] = wk__ceil_div(p->n, columns);
  r->args[WK__PRODUCT_STEPS] = each, r->args[WK__PRODUCT_SPLITS] = r->splits = wk__ceil_div(steps, each);
  r->tiles = r->args[WK__PRODUCT_TILES_M] * r->args[WK__PRODUCT_TILES_N];
  r->kind.split = r->splits > 1;
}

/* Narrow tiles where there are no more columns, wide ones where fewer rounds of them are enough; k in parts where tiles
 * are few. */
static void cut_for_blocks(run *r, const wk__cuda_product *p) {
  int64_t rows = wk__ceil_div(p->m, WK__PRODUCT_ROWS), multiprocessors = r->stream->device->multiprocessors;
  bool many = rows * wk__ceil_div(p->n, 256) * p->batch >= multiprocessors;
  bool wide = r->kind.warpgroups && many && rounds(r, p, 256) < rounds(r, p, 128);
  int columns = r->kind.warpgroups && p->n <= 64 ? 64 : wide ? 256 : 128;
  int64_t slots = multiprocessors * (r->kind.warpgroups && columns > 64 ? 1 : 2);
  int64_t tiles = wk__max(rows * wk__ceil_div(p->n, columns) * p->batch, 1);
  set_cut(r, p, columns,
          wk__min(slots / tiles, wk__min(wk__ceil_div(p->k, WK__PRODUCT_DEPTH) / LEAST_STEPS, MOST_SPLITS)));
}

/* About how many cycles an H100 takes over tiles that its copy engine feeds: those of the products, what a tile and a
 * second kernel cost beside them, and sums of parts on their way to memory and back. */
static double cycles(const run *r, const wk__cuda_product *p, int columns, int64_t splits) {
  enum { STEP_OF_64 = 260, TILE = 2500, SECOND_KERNEL = 6000, BYTES_A_CYCLE = 2000 };
  int64_t steps = wk__ceil_div(wk__ceil_div(p->k, WK__PRODUCT_DEPTH), splits);
  int64_t items = wk__ceil_div(p->m, WK__PRODUCT_ROWS) * wk__ceil_div(p->n, columns) * p->batch * splits;
  double sums = splits > 1 ? SECOND_KERNEL + 8.0 * (double)(splits * p->batch * p->m * p->n) / BYTES_A_CYCLE : 0;
  double step = STEP_OF_64 * columns / 64.0 * (columns <= 128 ? 1.1 : 1);
  return (double)wk__ceil_div(items, r->stream->device->multiprocessors) * ((double)steps * step + TILE) + sums;
}

static void cut_for_engine(run *r, const wk__cuda_product *p) {
  static const int widths[] = {256, 192, 128, 64};
  int64_t most = wk__min(wk__ceil_div(p->k, WK__PRODUCT_DEPTH) / LEAST_STEPS, MOST_SPLITS), best_splits = 1;
  int best = 128;
  double least = cycles(r, p, best, 1);
  for (size_t i = 0; i < WK_COUNT(widths); i++)
    for (int64_t splits = 1; splits <= wk__max(most, 1); splits++) {
      double now = cycles(r, p, widths[i], splits);
      if (now < least) least = now, best = widths[i], best_splits = splits;
    }
  set_cut(r, p, best, best_splits);
}

static void cut(run *r, const wk__cuda_product *p) {
  (wk__ptx_product_is_bulk(&r->kind) ? cut_for_engine : cut_for_blocks)(r, p);
}

void wk__cuda_cores_keep_whole(run *r, const wk__cuda_product *p) { set_cut(r, p, r->kind.columns, 1); }

static int64_t float_bits(double value) {
  union {
    float f;
    uint32_t bits;
  } u = {(float)value};
  return u.bits;
}

bool wk__cuda_cores_prepare(run *r, wk__cuda_stream *s, const wk__cuda_product *p, wk__ptx_windows_of windows) {
  lies a, b;
  *r = (run){.stream = s};
  if (s->device->capability < 80 || (p->type != WK__MEMORY_F16 && p->type != WK__MEMORY_BF16)) return false;
  if (wk__cuda_products_are("exact") || p->k <= 0 || p->batch > MOST_BATCHES ||
      wk__max(p->m, wk__max(p->n, p->k)) > INT32_MAX / 2)
    return false;
  if (!find_lies(p->a_column, p->a_row, p->k, p->m, &a) || !find_lies(p->b_row, p->b_column, p->k, p->n, &b))
    return false;
  if (!set_operand(r, WK__PRODUCT_A, p->a, p->a_batch, p->batch, &a)) return false;
  if (!set_operand(r, WK__PRODUCT_B, p->b, p->b_batch, p->batch, &b)) return false;
  r->kind = (wk__ptx_product){.half = p->type == WK__MEMORY_F16,
                              .a_across = a.across,
                              .b_across = b.across,
                              .row = p->row != 0,
                              .beta = p->beta != 0,
                              .warpgroups = wk__cuda_has_warpgroups(s->device),
                              .windows = (uint8_t)windows,
                              .capability = (uint8_t)s->device->capability};
  r->kind.vectors =
      p->c % 16 == 0 && p->c_row % PIECE == 0 && p->n % PIECE == 0 && (p->batch == 1 || p->c_batch % PIECE == 0);
  if (p->row && r->kind.vectors && p->row % (2 * ITEM) == 0) r->kind.row = 2;
  r->args[WK__PRODUCT_C] = (int64_t)p->c, r->args[WK__PRODUCT_C_STRIDE] = p->c_row * ITEM;
  r->args[WK__PRODUCT_C_BATCH] = p->batch > 1 ? p->c_batch * ITEM : 0;
  r->args[WK__PRODUCT_ROW] = (int64_t)p->row;
  r->args[WK__PRODUCT_M] = p->m, r->args[WK__PRODUCT_N] = p->n, r->args[WK__PRODUCT_K] = p->k;
  r->args[WK__PRODUCT_ALPHA] = float_bits(p->alpha), r->args[WK__PRODUCT_BETA] = float_bits(p->beta);
  r->args[WK__PRODUCT_BATCHES] = p->batch;
  cut(r, p);
  return r->tiles <= INT32_MAX;
}

/* ---- what the copy engine is told ---- */

static bool set_map(run *r, int arg, int map, bool across, int64_t extent, const wk__cuda_product *p, int lines) {
  int64_t batch_bytes = r->args[arg + 2];
  wk__cuda_matrices m = {.address = (uint64_t)r->args[arg],
                         .fast = across ? extent : p->k,
                         .slow = across ? p->k : extent,
                         .batch = batch_bytes ? p->batch : 1,
                         .slow_bytes = r->args[arg + 1],
                         .batch_bytes = batch_bytes,
                         .lines = across ? WK__PRODUCT_DEPTH : lines,
                         .half = r->kind.half};
  return wk__cuda_tensor_map(&m, r->args + map);
}

static bool set_result_map(run *r, const wk__cuda_product *p) {
  enum { LINES = 16 };
  if (!r->kind.vectors || r->kind.split || r->kind.behind) return true;
  wk__cuda_matrices m = {.address = p->c,
                         .fast = p->n,
                         .slow = p->m,
                         .batch = p->batch,
                         .slow_bytes = r->args[WK__PRODUCT_C_STRIDE],
                         .batch_bytes = r->args[WK__PRODUCT_C_BATCH],
                         .lines = LINES,
                         .half = r->kind.half};
  return wk__cuda_tensor_map(&m, r->args + WK__PRODUCT_MAP_C);
}

bool wk__cuda_cores_set_maps(run *r, const wk__cuda_product *p) {
  r->args[WK__PRODUCT_ITEMS] = r->tiles * r->splits * p->batch;
  return set_map(r, WK__PRODUCT_A, WK__PRODUCT_MAP_A, r->kind.a_across, p->m, p, WK__PRODUCT_ROWS) &&
         set_map(r, WK__PRODUCT_B, WK__PRODUCT_MAP_B, r->kind.b_across, p->n, p, r->kind.columns) &&
         set_result_map(r, p) && r->args[WK__PRODUCT_ITEMS] <= INT32_MAX;
}

/* ---- launches ---- */

int wk__cuda_cores_addresses(const run *r, wk__cuda_address out[WK__PRODUCT_ARGS]) {
  static const int are_addresses[] = {WK__PRODUCT_A,    WK__PRODUCT_B,     WK__PRODUCT_C,     WK__PRODUCT_ROW,
                                      WK__PRODUCT_WORK, WK__PRODUCT_MAP_A, WK__PRODUCT_MAP_B, WK__PRODUCT_MAP_C};
  int count = 0;
  for (size_t i = 0; i < WK_COUNT(are_addresses); i++) {
    uint64_t address = (uint64_t)r->args[are_addresses[i]];
    if (address) out[count++] = (wk__cuda_address){(uint32_t)are_addresses[i], address};
  }
  return count;
}

int wk__cuda_cores_blocks(const run *r) {
  return (int)wk__min(r->args[WK__PRODUCT_ITEMS], r->stream->device->multiprocessors);
}

static wk_status give(run *r, int64_t blocks, int64_t splits, int64_t batch) {
  const wk__cuda_written *k;
  wk__cuda_address addresses[WK__PRODUCT_ARGS];
  int64_t words[WK__PRODUCT_ARGS + WK__WINDOW_ARGS];
  int count = wk__cuda_cores_addresses(r, addresses);
  memcpy(words, r->args, sizeof r->args);
  memcpy(words + WK__PRODUCT_ARGS, r->windows, sizeof r->windows);
  WK_TRY(wk__cuda_find_written(r->stream->device, &r->kind, sizeof r->kind, write, &k));
  return wk__cuda_give(r->stream,
                       &(wk__cuda_work){.function = k->function,
                                        .grid = {(unsigned)blocks, (unsigned)splits, (unsigned)batch},
                                        .threads = (unsigned)k->threads,
                                        .shared = (unsigned)k->shared,
                                        .words = words,
                                        .word_count = WK__PRODUCT_ARGS + (r->kind.windows ? WK__WINDOW_ARGS : 0),
                                        .addresses = addresses,
                                        .address_count = count});
}

static wk_status give_tiles(run *r, const wk__cuda_product *p) {
  if (wk__ptx_product_is_bulk(&r->kind)) return give(r, wk__cuda_cores_blocks(r), 1, 1);
  return give(r, r->tiles, r->splits, p->batch);
}

static wk_status give_split(run *r, const wk__cuda_product *p) {
  int64_t capacity, bytes = r->splits * p->batch * p->m * p->n * (int64_t)sizeof(float);
  void *work = wk__cuda_allocate(&r->stream->head, bytes, &capacity);
  if (!work) return wk_error_category();
  r->args[WK__PRODUCT_WORK] = (int64_t)(uintptr_t)work;
  wk_status status = give_tiles(r, p);
  r->kind = (wk__ptx_product){
      .half = r->kind.half, .row = r->kind.row, .beta = r->kind.beta, .adds = true, .capability = r->kind.capability};
  if (status == WK_OK) status = give(r, wk__ceil_div(p->m * p->n, 256), 1, p->batch);
  wk__cuda_release(&r->stream->head, work, capacity);
  return status;
}

wk_status wk__cuda_cores_give(run *r, const wk__cuda_product *p) {
  if (wk__ptx_product_is_bulk(&r->kind) && !wk__cuda_cores_set_maps(r, p)) {
    r->kind.warpgroups = false;
    cut(r, p);
  }
  return r->kind.split ? give_split(r, p) : give_tiles(r, p);
}
