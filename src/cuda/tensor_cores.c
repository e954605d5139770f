/* Products on tensor cores by kernels that are written for the kind of product. WICK_CUDA_PRODUCTS says otherwise: mma
 * leaves sm_90's own instructions alone, exact leaves all to kernels that have the CPU's bits. Tests:
 * tests/cuda/test_products.py, tests/cuda/test_byte_products.py, tests/cuda/test_grouped_products.py. */
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

enum { PIECE_BYTES = 16, MOST_BATCHES = 65535, MOST_SPLITS = 32, LEAST_STEPS = 4 };

/* ---- how operands lie ---- */

static int64_t item(const run *r) { return wk__ptx_element_bytes((wk__ptx_element)r->kind.a); }
static int64_t piece(const run *r) { return PIECE_BYTES / item(r); }
static int64_t item_of_result(const run *r) { return wk__ptx_element_bytes((wk__ptx_element)r->kind.c); }
static int64_t steps_of(const run *r, const wk__cuda_product *p) {
  return wk__ceil_div(p->k, wk__ptx_product_depth(&r->kind));
}

typedef struct lies {
  bool across;
  int64_t stride; /* of the slow dim */
} lies;

/* `along`: the stride of k, `across`: of the other dim. False: neither is in pieces, or bytes lie across. */
static bool find_lies(const run *r, int64_t along, int64_t across, int64_t k, int64_t other, lies *out) {
  int64_t most = (int64_t)INT32_MAX / (item(r) * 256), each = piece(r);
  if ((along == 1 || k == 1) && (across % each == 0 || other == 1) && across >= 0 && across < most) {
    *out = (lies){false, other == 1 ? 0 : across};
    return true;
  }
  *out = (lies){true, k == 1 ? 0 : along};
  return item(r) > 1 && (across == 1 || other == 1) && (along % each == 0 || k == 1) && along >= 0 && along < most;
}

static bool set_operand(run *r, int arg, uint64_t address, int64_t batch_stride, int64_t batch, const lies *l) {
  if (address % PIECE_BYTES || (batch > 1 && batch_stride % piece(r))) return false;
  r->args[arg] = (int64_t)address;
  r->args[arg + 1] = l->stride * item(r);
  r->args[arg + 2] = batch > 1 ? batch_stride * item(r) : 0;
  return true;
}

/* ---- how it is cut ---- */

/* Rounds of the device over tiles of so many columns, in units of one of 128: wide ones are a tenth faster than two. */
static double rounds(const run *r, const wk__cuda_product *p, int columns) {
  int64_t tiles = wk__ceil_div(p->m, WK__PRODUCT_ROWS) * wk__ceil_div(p->n, columns) * p->batch;
  return (double)wk__ceil_div(tiles, r->stream->device->multiprocessors) * (columns == 256 ? 1.8 : 1);
}

static void set_cut(run *r, const wk__cuda_product *p, int columns, int64_t wanted_splits) {
  int64_t steps = steps_of(r, p), each = wk__ceil_div(steps, wk__max(wanted_splits, 1));
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
  int64_t slots = multiprocessors * (columns > 64 ? wk__ptx_product_blocks(&r->kind) : 2);
  int64_t tiles = wk__max(rows * wk__ceil_div(p->n, columns) * p->batch, 1);
  set_cut(r, p, columns, wk__min(slots / tiles, wk__min(steps_of(r, p) / LEAST_STEPS, MOST_SPLITS)));
}

/* About how many cycles an H100 takes over tiles that its copy engine feeds: those of the products, what a tile and a
 * second kernel cost beside them, and sums of parts on their way to memory and back. */
static double cycles(const run *r, const wk__cuda_product *p, int columns, int64_t splits) {
  enum { STEP_OF_64 = 260 /* 64 columns, a line of k */, TILE = 2500, SECOND_KERNEL = 6000, BYTES_A_CYCLE = 2000 };
  int64_t steps = wk__ceil_div(steps_of(r, p), splits);
  int64_t items = wk__ceil_div(p->m, WK__PRODUCT_ROWS) * wk__ceil_div(p->n, columns) * p->batch * splits;
  double sums = splits > 1 ? SECOND_KERNEL + 8.0 * (double)(splits * p->batch * p->m * p->n) / BYTES_A_CYCLE : 0;
  double step = STEP_OF_64 * columns / 64.0 * (columns <= 128 ? 1.1 : 1);
  return (double)wk__ceil_div(items, r->stream->device->multiprocessors) * ((double)steps * step + TILE) + sums;
}

/* How wide tiles are, and in how many parts k is. */
static int find_least_cycles(const run *r, const wk__cuda_product *p, int64_t most_splits, int64_t *out_splits) {
  static const int widths[] = {256, 192, 128, 64};
  int best = 128;
  double least = cycles(r, p, best, 1);
  *out_splits = 1;
  for (size_t i = 0; i < WK_COUNT(widths); i++)
    for (int64_t splits = 1; splits <= most_splits && wk__ptx_product_may_be(&r->kind, widths[i]); splits++) {
      double now = cycles(r, p, widths[i], splits);
      if (now < least) least = now, best = widths[i], *out_splits = splits;
    }
  return best;
}

static void cut_for_engine(run *r, const wk__cuda_product *p) {
  int64_t most = wk__min(steps_of(r, p) / LEAST_STEPS, MOST_SPLITS), splits;
  int columns = find_least_cycles(r, p, wk__max(most, 1), &splits);
  set_cut(r, p, columns, splits);
}

/* Rows or columns of tiles: whatever the ends are, a group has `more` of them at most, beside its own. */
static wk__cuda_product stretched(const wk__cuda_product *p, int64_t more) {
  wk__cuda_product out = *p;
  *(p->groups == WK__GROUPS_OF_ROWS ? &out.m : &out.n) += p->batch * more;
  out.batch = 1;
  return out;
}

/* As wide as is best for groups of the mean size; as many tiles as there may be. */
static void cut_for_groups(run *r, const wk__cuda_product *p) {
  bool rows = p->groups == WK__GROUPS_OF_ROWS, of_k = p->groups == WK__GROUPS_OF_K;
  wk__cuda_product mean = of_k ? *p : stretched(p, WK__PRODUCT_ROWS / 2);
  int64_t splits, before = wk__ptx_product_unit(&r->kind) - 1;
  if (of_k) mean.k = wk__ceil_div(p->k, p->batch);
  int columns = r->kind.warpgroups ? find_least_cycles(r, &mean, 1, &splits) : 128;
  wk__cuda_product most = of_k ? *p : stretched(p, (rows ? WK__PRODUCT_ROWS : columns) - 1 + before);
  set_cut(r, &most, columns, 1);
  if (of_k) r->tiles *= p->batch;
}

static void cut(run *r, const wk__cuda_product *p) {
  bool by_engine = wk__ptx_product_is_bulk(&r->kind);
  (r->kind.groups ? cut_for_groups : by_engine ? cut_for_engine : cut_for_blocks)(r, p);
}

/* Tiles that are counted one by one are of all batches. */
static int64_t batches_of_tiles(const run *r, const wk__cuda_product *p) { return r->kind.groups ? 1 : p->batch; }

void wk__cuda_cores_keep_whole(run *r, const wk__cuda_product *p) { set_cut(r, p, r->kind.columns, 1); }

static int64_t float_bits(double value) {
  union {
    float f;
    uint32_t bits;
  } u = {(float)value};
  return u.bits;
}

/* ---- a product of a kind ---- */

static void set_results(run *r, const wk__cuda_product *p) {
  int64_t bytes = item_of_result(r), each = PIECE_BYTES / bytes;
  r->kind.vectors =
      p->c % PIECE_BYTES == 0 && p->c_row % each == 0 && p->n % each == 0 && (p->batch == 1 || p->c_batch % each == 0);
  r->kind.row = p->row != 0;
  if (p->row && r->kind.vectors &&
      p->row % (2 * (uint64_t)wk__ptx_element_bytes((wk__ptx_element)r->kind.row_type)) == 0)
    r->kind.row = 2;
  r->kind.beta = p->beta != 0;
  r->args[WK__PRODUCT_C] = (int64_t)p->c, r->args[WK__PRODUCT_C_STRIDE] = p->c_row * bytes;
  r->args[WK__PRODUCT_C_BATCH] = p->batch > 1 ? p->c_batch * bytes : 0;
  r->args[WK__PRODUCT_ROW] = (int64_t)p->row;
  r->args[WK__PRODUCT_ALPHA] = float_bits(p->alpha), r->args[WK__PRODUCT_BETA] = float_bits(p->beta);
}

/* r->kind has its types. sm_90's own instructions take of two bytes alone what lies across k, and integers of one type.
 */
static bool prepare(run *r, const wk__cuda_product *p) {
  lies a, b;
  if (wk__cuda_products_are("exact") || p->k <= 0 || p->batch > MOST_BATCHES ||
      wk__max(p->m, wk__max(p->n, p->k)) > INT32_MAX / wk__max(item(r), 2))
    return false;
  if (!find_lies(r, p->a_column, p->a_row, p->k, p->m, &a) || !find_lies(r, p->b_row, p->b_column, p->k, p->n, &b))
    return false;
  if (!set_operand(r, WK__PRODUCT_A, p->a, p->a_batch, p->batch, &a)) return false;
  if (!set_operand(r, WK__PRODUCT_B, p->b, p->b_batch, p->batch, &b)) return false;
  r->kind.a_across = a.across, r->kind.b_across = b.across;
  r->kind.warpgroups = wk__cuda_has_warpgroups(r->stream->device) && (item(r) == 2 || (!a.across && !b.across)) &&
                       (r->kind.c != WK__ELEMENT_S32 || r->kind.a == r->kind.b);
  r->kind.capability = (uint8_t)r->stream->device->capability;
  set_results(r, p);
  r->args[WK__PRODUCT_M] = p->m, r->args[WK__PRODUCT_N] = p->n, r->args[WK__PRODUCT_K] = p->k;
  r->args[WK__PRODUCT_BATCHES] = p->batch;
  r->args[WK__PRODUCT_ENDS] = (int64_t)p->ends, r->args[WK__PRODUCT_GROUPS] = p->batch;
  cut(r, p);
  return r->tiles <= INT32_MAX;
}

bool wk__cuda_cores_prepare(run *r, wk__cuda_stream *s, const wk__cuda_product *p, wk__ptx_windows_of windows) {
  uint8_t type = p->type == WK__MEMORY_F16    ? WK__ELEMENT_F16
                 : p->type == WK__MEMORY_BF16 ? WK__ELEMENT_BF16
                                              : WK__ELEMENT_F32;
  bool small = p->type == WK__MEMORY_F16 || p->type == WK__MEMORY_BF16;
  *r = (run){.stream = s, .kind = {.a = type, .b = type, .c = type, .row_type = type, .windows = (uint8_t)windows}};
  r->kind.groups = (uint8_t)p->groups;
  if (s->device->capability < 80 || !(small || (p->type == WK__MEMORY_F32 && p->tf32))) return false;
  return prepare(r, p);
}

/* ---- products of bytes ---- */

/* -1: none. */
static int element_of(int dtype) {
  switch (dtype) {
    case WK_BFLOAT16:
      return WK__ELEMENT_BF16;
    case WK_FLOAT16:
      return WK__ELEMENT_F16;
    case WK_FLOAT32:
      return WK__ELEMENT_F32;
    case WK_FLOAT8_E4M3:
      return WK__ELEMENT_E4M3;
    case WK_FLOAT8_E5M2:
      return WK__ELEMENT_E5M2;
    case WK_INT8:
      return WK__ELEMENT_S8;
    case WK_UINT8:
      return WK__ELEMENT_U8;
    case WK_INT32:
      return WK__ELEMENT_S32;
    default:
      return -1;
  }
}

/* From sm_89 on, and by a driver that knows how to say so to such a device: of CUDA 12.4. */
static bool has_float8(const wk__cuda_device *device) {
  int version = 0;
  return device->capability >= 89 && !wk__cuda.cuDriverGetVersion(&version) && version >= 12040;
}

static bool prepare_bytes(run *r, wk__cuda_stream *s, const wk__cuda_byte_product *p, wk__cuda_product *out) {
  int a = element_of(p->a_type), b = element_of(p->b_type), c = element_of(p->c_type);
  *r = (run){.stream = s};
  if (a < WK__ELEMENT_E4M3 || b < WK__ELEMENT_E4M3 || a > WK__ELEMENT_U8 || b > WK__ELEMENT_U8 || c < 0) return false;
  bool floats = wk__ptx_is_float8((wk__ptx_element)a);
  if (floats != wk__ptx_is_float8((wk__ptx_element)b) || floats == (c == WK__ELEMENT_S32)) return false;
  if (floats ? !has_float8(s->device) : s->device->capability < 80) return false;
  *out = (wk__cuda_product){.a = p->a, .b = p->b, .c = p->c, .row = p->row, .m = p->m, .n = p->n, .k = p->k};
  out->batch = 1, out->alpha = 1;
  out->a_row = p->a_row, out->a_column = 1, out->b_row = 1, out->b_column = p->b_column, out->c_row = p->n;
  r->kind = (wk__ptx_product){.a = (uint8_t)a, .b = (uint8_t)b, .c = (uint8_t)c};
  r->kind.row_type = (uint8_t)(p->row ? element_of(p->row_type) : c);
  if (floats) r->kind.scales = p->scales_rows ? 2 : 1, r->kind.fast = p->fast != 0;
  r->args[WK__PRODUCT_SCALE_A] = (int64_t)p->scale_a, r->args[WK__PRODUCT_SCALE_B] = (int64_t)p->scale_b;
  return prepare(r, out);
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
                         .lines = across ? wk__ptx_product_depth(&r->kind) : lines,
                         .element = (wk__ptx_element)(arg == WK__PRODUCT_A ? r->kind.a : r->kind.b),
                         .rounds = true};
  return wk__cuda_tensor_map(&m, r->args + map);
}

static bool set_result_map(run *r, const wk__cuda_product *p) {
  enum { LINES = 16 };
  if (!r->kind.vectors || r->kind.split || r->kind.behind) return true;
  int64_t batch_bytes = r->args[WK__PRODUCT_C_BATCH];
  wk__cuda_matrices m = {.address = p->c,
                         .fast = p->n,
                         .slow = p->m,
                         .batch = batch_bytes ? p->batch : 1,
                         .slow_bytes = r->args[WK__PRODUCT_C_STRIDE],
                         .batch_bytes = batch_bytes,
                         .lines = LINES,
                         .element = (wk__ptx_element)r->kind.c};
  return wk__cuda_tensor_map(&m, r->args + WK__PRODUCT_MAP_C);
}

bool wk__cuda_cores_set_maps(run *r, const wk__cuda_product *p) {
  r->args[WK__PRODUCT_ITEMS] = r->tiles * r->splits * batches_of_tiles(r, p);
  return set_map(r, WK__PRODUCT_A, WK__PRODUCT_MAP_A, r->kind.a_across, p->m, p, WK__PRODUCT_ROWS) &&
         set_map(r, WK__PRODUCT_B, WK__PRODUCT_MAP_B, r->kind.b_across, p->n, p, r->kind.columns) &&
         set_result_map(r, p) && r->args[WK__PRODUCT_ITEMS] <= INT32_MAX;
}

/* ---- launches ---- */

int wk__cuda_cores_addresses(const run *r, wk__cuda_address out[WK__PRODUCT_ARGS]) {
  static const int are_addresses[] = {WK__PRODUCT_A,     WK__PRODUCT_B,       WK__PRODUCT_C,       WK__PRODUCT_ROW,
                                      WK__PRODUCT_WORK,  WK__PRODUCT_SCALE_A, WK__PRODUCT_SCALE_B, WK__PRODUCT_ENDS,
                                      WK__PRODUCT_MAP_A, WK__PRODUCT_MAP_B,   WK__PRODUCT_MAP_C};
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
  return give(r, r->tiles, r->splits, batches_of_tiles(r, p));
}

static wk_status give_split(run *r, const wk__cuda_product *p) {
  int64_t capacity, bytes = r->splits * p->batch * p->m * p->n * (int64_t)sizeof(float);
  void *work = wk__cuda_allocate(&r->stream->head, bytes, &capacity);
  if (!work) return wk_error_category();
  r->args[WK__PRODUCT_WORK] = (int64_t)(uintptr_t)work;
  wk_status status = give_tiles(r, p);
  r->kind = (wk__ptx_product){.c = r->kind.c,
                              .row_type = r->kind.row_type,
                              .row = r->kind.row,
                              .beta = r->kind.beta,
                              .scales = r->kind.scales,
                              .adds = true,
                              .capability = r->kind.capability};
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

wk_status wk__cuda_cores_run_bytes(wk__cuda_stream *s, const wk__cuda_byte_product *product, bool *out_done) {
  run r;
  wk__cuda_product p;
  *out_done = prepare_bytes(&r, s, product, &p);
  if (!*out_done) return WK_OK;
  WK_TRY(wk__cuda_enter(s->device));
  return wk__cuda_cores_give(&r, &p);
}
