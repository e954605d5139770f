/* Products of small floats by kernels that are written for the kind of product. WICK_CUDA_PRODUCTS says otherwise: mma
 * leaves sm_90's own instructions alone, exact leaves all to the kernel that has the CPU's bits. Tests:
 * tests/cuda/test_products.py. */
#include "cuda/tensor_cores.h"

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

/* Narrow tiles where there are no more columns, wide ones where fewer rounds of them are enough; k in parts where tiles
 * are few. */
static void cut(run *r, const wk__cuda_product *p) {
  const wk__cuda_device *d = r->stream->device;
  int64_t rows = wk__ceil_div(p->m, WK__PRODUCT_ROWS), steps = wk__ceil_div(p->k, WK__PRODUCT_DEPTH);
  r->kind.warpgroups = wk__cuda_has_warpgroups(d);
  bool many = rows * wk__ceil_div(p->n, 256) * p->batch >= d->multiprocessors;
  bool wide = r->kind.warpgroups && many && rounds(r, p, 256) < rounds(r, p, 128);
  r->kind.columns = r->kind.warpgroups && p->n <= 64 ? 64 : wide ? 256 : 128;
  int64_t columns = wk__ceil_div(p->n, r->kind.columns),
          slots = d->multiprocessors * (r->kind.warpgroups && r->kind.columns > 64 ? 1 : 2);
  r->tiles = rows * columns;
  int64_t wanted = wk__min(slots / wk__max(r->tiles * p->batch, 1), wk__min(steps / LEAST_STEPS, MOST_SPLITS));
  int64_t each = wk__ceil_div(steps, wk__max(wanted, 1));
  r->splits = wk__ceil_div(steps, each);
  if (p->m * p->n > INT32_MAX) r->splits = 1, each = steps;
  r->kind.split = r->splits > 1;
  r->args[WK__PRODUCT_TILES_M] = rows, r->args[WK__PRODUCT_TILES_N] = columns;
  r->args[WK__PRODUCT_STEPS] = each, r->args[WK__PRODUCT_SPLITS] = r->splits;
}

void wk__cuda_cores_set_columns(run *r, const wk__cuda_product *p, int columns) {
  r->kind.columns = (uint16_t)columns, r->kind.split = false;
  r->args[WK__PRODUCT_TILES_N] = wk__ceil_div(p->n, columns);
  r->tiles = r->args[WK__PRODUCT_TILES_M] * r->args[WK__PRODUCT_TILES_N];
  r->args[WK__PRODUCT_STEPS] = wk__ceil_div(p->k, WK__PRODUCT_DEPTH);
  r->args[WK__PRODUCT_SPLITS] = r->splits = 1;
}

static int64_t float_bits(double value) {
  union {
    float f;
    uint32_t bits;
  } u = {(float)value};
  return u.bits;
}

bool wk__cuda_cores_prepare(run *r, wk__cuda_stream *s, const wk__cuda_product *p) {
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
                              .capability = (uint8_t)s->device->capability};
  r->kind.vectors =
      p->c % 16 == 0 && p->c_row % PIECE == 0 && p->n % PIECE == 0 && (p->batch == 1 || p->c_batch % PIECE == 0);
  r->args[WK__PRODUCT_C] = (int64_t)p->c, r->args[WK__PRODUCT_C_STRIDE] = p->c_row * ITEM;
  r->args[WK__PRODUCT_C_BATCH] = p->batch > 1 ? p->c_batch * ITEM : 0;
  r->args[WK__PRODUCT_ROW] = (int64_t)p->row;
  r->args[WK__PRODUCT_M] = p->m, r->args[WK__PRODUCT_N] = p->n, r->args[WK__PRODUCT_K] = p->k;
  r->args[WK__PRODUCT_ALPHA] = float_bits(p->alpha), r->args[WK__PRODUCT_BETA] = float_bits(p->beta);
  r->args[WK__PRODUCT_BATCHES] = p->batch;
  cut(r, p);
  return r->tiles <= INT32_MAX;
}

/* ---- launches ---- */

int wk__cuda_cores_addresses(const run *r, wk__cuda_address out[WK__PRODUCT_ARGS]) {
  static const int are_addresses[] = {WK__PRODUCT_A, WK__PRODUCT_B, WK__PRODUCT_C, WK__PRODUCT_ROW, WK__PRODUCT_WORK};
  int count = 0;
  for (size_t i = 0; i < WK_COUNT(are_addresses); i++) {
    uint64_t address = (uint64_t)r->args[are_addresses[i]];
    if (address) out[count++] = (wk__cuda_address){(uint32_t)are_addresses[i], address};
  }
  return count;
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

static wk_status give_split(run *r, const wk__cuda_product *p) {
  int64_t capacity, bytes = r->splits * p->batch * p->m * p->n * (int64_t)sizeof(float);
  void *work = wk__cuda_allocate(&r->stream->head, bytes, &capacity);
  if (!work) return wk_error_category();
  r->args[WK__PRODUCT_WORK] = (int64_t)(uintptr_t)work;
  wk_status status = give(r, r->tiles, r->splits, p->batch);
  r->kind = (wk__ptx_product){
      .half = r->kind.half, .row = r->kind.row, .beta = r->kind.beta, .adds = true, .capability = r->kind.capability};
  if (status == WK_OK) status = give(r, wk__ceil_div(p->m * p->n, 256), 1, p->batch);
  wk__cuda_release(&r->stream->head, work, capacity);
  return status;
}

wk_status wk__cuda_cores_give(run *r, const wk__cuda_product *p) {
  return r->kind.split ? give_split(r, p) : give(r, r->tiles, 1, p->batch);
}
