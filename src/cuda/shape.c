/* How a launch goes through memory, as the shape of a kernel for it: which mode, how many elements a thread takes
 * (codegen/ptx.h). Tests: tests/cuda/test_ptx.py. */
#include "cuda/shape.h"

wk__shape_span wk__shape_span_of(const wk__nest *nest, const wk__binding *b, const wk__launch *launch, int a) {
  const wk__access *access = &nest->accesses[a];
  const wk__launch_buffer *buffer = &launch->buffers[access->buffer];
  bool all = access->has_indirect || access->may_leave;
  const int64_t *sizes = !all ? b->size : buffer->sizes ? buffer->sizes : launch->sizes;
  const int64_t *strides = all ? buffer->strides : b->stride[a];
  int count = !all ? b->p + b->r : buffer->sizes ? access->ndim : launch->ndim;
  int64_t item = wk__shape_item(nest, a);
  wk__shape_span span = {.from = (char *)b->base[a] + (all ? 0 : b->start[a]) * item, .places = 1};
  for (int d = 0; d < count; d++) {
    int64_t reach = wk__max(sizes[d] - 1, 0) * strides[d];
    if (reach < 0) span.from += reach * item;
    span.places += reach < 0 ? -reach : reach;
  }
  return span;
}

/* Another element in each place of the loops: not a row or a column that is used again. */
static bool is_as_large(const wk__binding *b, int access) {
  for (int d = 0; d < b->p; d++)
    if (b->stride[access][d] == 0 && b->size[d] > 1) return false;
  return true;
}

/* Where an access begins, and how it moves with the first `loops` loops, in whole pieces. */
static bool is_in_pieces(const wk__nest *nest, const wk__binding *b, int access, int loops, int64_t bytes) {
  int64_t item = wk__shape_item(nest, access);
  uintptr_t address = (uintptr_t)b->base[access] + (uintptr_t)(b->start[access] * item);
  bool whole = address % (uintptr_t)bytes == 0;
  for (int d = 0; d < loops; d++) whole &= b->stride[access][d] * item % bytes == 0;
  return whole;
}

/* A thread may take `each` neighbours: sizes and memory are made of such pieces, of at most 16 bytes. */
static bool goes_in_vectors(const wk__nest *nest, const wk__binding *b, int64_t each) {
  if (b->size[b->p - 1] % each) return false;
  for (int a = 0; a < b->access_count; a++) {
    int64_t bytes = wk__min(each * wk__shape_item(nest, a), 16);
    if (b->stride[a][b->p - 1] == 1 && !is_in_pieces(nest, b, a, b->p - 1, bytes)) return false;
  }
  return true;
}

/* Neighbours that a thread takes: 16 bytes of the largest items of what is as large as the loops. */
static int vector_of(const wk__nest *nest, const wk__binding *b) {
  int64_t largest = 1;
  if (b->p == 0) return 1;
  for (int a = 0; a < b->access_count; a++)
    if (is_as_large(b, a)) largest = wk__max(largest, wk__shape_item(nest, a));
  int64_t each = wk__min(16 / largest, 8);
  for (int a = 0; a < b->access_count; a++)
    if (nest->accesses[a].has_indirect || nest->accesses[a].may_leave) each = wk__min(each, 4);
  return goes_in_vectors(nest, b, each) ? (int)each : 1;
}

/* 32-element steps of a row that stay in registers: fewer for larger bodies. */
static int64_t most_rounds(const wk__nest *nest) {
  return nest->instr_count <= 16 ? 32 : nest->instr_count <= 40 ? 16 : 8;
}

enum { MOST_WARPS = 16, LARGE_STEP = 4 };

/* A block keeps the states of 32 columns' chunks, beside those of its warps, in shared memory. */
static bool keeps_columns(const wk__nest *nest, const wk__cuda_device *d, const wk__binding *b) {
  int64_t most = 0, chunks = wk__shape_chunks(b);
  if (chunks <= WK__PTX_COLUMN_CHUNKS) return true;
  for (int phase = 0; phase < WK__PTX_MOST_PHASES; phase++) {
    int64_t words = 0;
    for (int v = 1; v < (int)nest->instr_count; v++) {
      const wk__instr *i = &nest->instrs[v];
      if (wk__loop_is_reduction(i->op) && wk__instr_phase(i) == phase) words += 1 + wk__loop_is_arg(i->op);
    }
    most = wk__max(most, words);
  }
  return 8 * most * WK__REDUCE_LANES * (WK__REDUCE_LANES + chunks) <= (int64_t)d->shared_most;
}

/* Memory runs along the rows' own loop: of what moves with both, more has its neighbours in other rows. */
static bool lies_in_columns(const wk__nest *nest, const wk__cuda_device *d, const wk__binding *b) {
  int balance = 0;
  if (b->r == 0 || b->p == 0 || !keeps_columns(nest, d, b)) return false;
  for (int a = 0; a < b->access_count; a++) {
    int64_t along = b->stride[a][b->p - 1], down = b->stride[a][b->p + b->r - 1];
    if (nest->accesses[a].per_element && along && down) balance += (along == 1) - (down == 1);
  }
  return balance > 0;
}

static bool has_parts(const wk__nest *nest, const wk__binding *b) {
  return wk__shape_chunks(b) > 1 &&
         (wk__ptx_is_reduced_once(nest) || wk__ptx_phases_of(nest).count <= WK__PTX_MOST_PHASES);
}

/* Rows that few warps would have to themselves. */
bool wk__shape_goes_in_parts(const wk__nest *nest, const wk__cuda_device *d, const wk__binding *b) {
  return wk__shape_chunks(b) > MOST_WARPS && wk__shape_count(b, 0, b->p) < d->multiprocessors && has_parts(nest, b);
}

/* Columns of several chunks whose blocks would be few. */
static bool goes_in_column_parts(const wk__nest *nest, const wk__cuda_device *d, const wk__binding *b) {
  return wk__ceil_div(wk__shape_count(b, 0, b->p), WK__REDUCE_LANES) <= d->multiprocessors && has_parts(nest, b);
}

/* A thread holds what is computed of each of its elements at once; what is computed of a row alone does not count. */
enum { MOST_LIGHT = 24 };
static bool has_light_elements(const wk__nest *nest) {
  int count = 0;
  for (int64_t i = 1; i < nest->instr_count; i++) count += nest->instrs[i].per_element;
  return count < MOST_LIGHT;
}

/* Where elements of two bytes are read one by one, all counts: 8192 x 50304 of bf16 took 850 microseconds of an H100 in
 * a cross entropy's step of 32, and 711 in one of 4; in one of 32 with vectors (keep_rows) 587. */
static bool is_light(const wk__nest *nest, const wk__binding *b) {
  bool small = false;
  for (int a = 0; a < b->access_count; a++) small |= wk__shape_item(nest, a) == 2;
  return small ? nest->instr_count <= MOST_LIGHT : has_light_elements(nest);
}

/* Elements of a step, so that a thread has many loads under way; chunks are made of whole steps. */
static uint8_t step_of(const wk__nest *nest) {
  enum { LOADS = 32 };
  int loads = 0, each = LOADS;
  for (int64_t i = 1; i < nest->instr_count; i++)
    loads += wk__loop_is_load(nest->instrs[i].op) && nest->instrs[i].per_element;
  while (each > LARGE_STEP && each * loads > LOADS) each /= 2;
  return (uint8_t)each;
}

int64_t wk__shape_kept_bytes(const wk__nest *nest, const wk__binding *b, const wk__ptx_shape *s, int of,
                             int64_t *out_at) {
  int64_t bytes = 0;
  for (int a = 0; a < WK__PTX_MOST_KEPT; a++) {
    if (!(s->kept >> a & 1)) continue;
    if (a == of) *out_at = bytes;
    bytes += wk__ceil_div(wk__shape_length(b) * wk__shape_item(nest, a), 16) * 16;
  }
  return bytes;
}

/* Blocks have a multiprocessor's shared memory to themselves; what is left of its warps has to keep memory busy. */
static bool stays_busy(const wk__cuda_device *d, const wk__ptx_shape *s, int64_t bytes, int64_t item) {
  enum { LEAST_UNDER_WAY = 16 << 10, OF_A_BLOCK = 1 << 10 };
  int64_t blocks = wk__min((int64_t)d->shared_most / (bytes + OF_A_BLOCK), 2048 / (32 * s->warps));
  return blocks * s->warps * WK__REDUCE_LANES * s->each * item >= LEAST_UNDER_WAY;
}

/* Rows that are kept are made of vectors of 16 bytes, steps of vectors of all lanes, and chunks of few steps. */
static bool are_kept_in_vectors(const wk__nest *nest, const wk__binding *b, const wk__ptx_shape *s) {
  enum { VECTOR = 16, LEAST_EACH = 16 };
  bool all = s->capability >= 80 && s->each >= LEAST_EACH && WK__REDUCE_CHUNK % (WK__REDUCE_LANES * s->each) == 0;
  for (int a = 0; a < WK__PTX_MOST_KEPT; a++) {
    if (!(s->kept >> a & 1)) continue;
    all &= b->stride[a][b->p] == 1 && wk__shape_length(b) * wk__shape_item(nest, a) % VECTOR == 0 &&
           is_in_pieces(nest, b, a, b->p, VECTOR);
  }
  return all;
}

/* Of long rows that several phases go through: as many as fit stay in shared memory after the first. */
static void keep_what_fits(const wk__nest *nest, const wk__cuda_device *d, const wk__binding *b, uint16_t again,
                           wk__ptx_shape *s) {
  for (int a = 0; a < b->access_count && a < WK__PTX_MOST_KEPT; a++) {
    if (!(again >> a & 1) || b->stride[a][b->p] == 0) continue;
    s->kept |= (uint16_t)(1 << a);
    int64_t bytes = wk__shape_kept_bytes(nest, b, s, -1, NULL) + 64 * wk__shape_chunks(b);
    if (bytes > d->shared_most || !stays_busy(d, s, bytes, wk__shape_item(nest, a))) s->kept &= (uint16_t) ~(1 << a);
  }
  s->vectors |= s->kept && are_kept_in_vectors(nest, b, s);
}

/* In large steps where that makes them vectors. */
static void keep_rows(const wk__nest *nest, const wk__cuda_device *d, const wk__binding *b, wk__ptx_shape *s) {
  uint8_t first[WK__PTX_MOST_KEPT];
  if (s->mode != WK__PTX_LONG_ROWS || s->warps == 1 || b->r != 1) return;
  uint16_t again = wk__ptx_read_again(nest, first);
  wk__ptx_shape wide = *s;
  wide.each = WK__PTX_MAX_EACH;
  keep_what_fits(nest, d, b, again, s);
  if (!s->vectors && has_light_elements(nest)) keep_what_fits(nest, d, b, again, &wide);
  if (wide.vectors) *s = wide;
}

/* Pieces of 16 bytes of what moves by one along the rows, from their beginning on. */
static bool rows_are_in_pieces(const wk__nest *nest, const wk__binding *b) {
  bool all = true;
  for (int a = 0; a < b->access_count; a++) {
    bool by_elements = b->stride[a][b->p] != 1 || nest->accesses[a].has_indirect || nest->accesses[a].may_leave;
    all &= by_elements || is_in_pieces(nest, b, a, b->p, 16);
  }
  return all;
}

/* A thread has a row to itself, so what it reads at once has to be lines of memory. */
static void set_scan(const wk__nest *nest, const wk__binding *b, wk__ptx_shape *s) {
  enum { STEP = 32 };
  s->warps = wk__shape_chunks(b) > 1 ? 2 : 1;
  s->mode = s->warps > 1 ? WK__PTX_SCAN_PARTS : WK__PTX_SCANS;
  s->each = nest->instr_count <= 24 && b->r == 1 ? 8 : LARGE_STEP;
  if (s->each == 8 && wk__shape_length(b) % STEP == 0 && rows_are_in_pieces(nest, b)) s->each = STEP, s->vectors = true;
}

/* The mode of rows of chunks that do not stay in registers, and the warps that have a row or its part. */
static void set_chunks(const wk__nest *nest, const wk__binding *b, int mode, wk__ptx_shape *s) {
  bool parts = mode == WK__PTX_PARTS || mode == WK__PTX_COLUMN_PARTS;
  s->mode = (uint8_t)mode;
  s->phased = parts && !wk__ptx_is_reduced_once(nest);
  s->warps = mode == WK__PTX_LONG_ROWS ? (uint8_t)wk__min(wk__shape_chunks(b), MOST_WARPS)
             : mode == WK__PTX_PARTS   ? 1
                                       : WK__REDUCE_LANES;
}

static bool set_rows(const wk__nest *nest, const wk__cuda_device *d, const wk__binding *b, wk__ptx_shape *s) {
  int64_t rounds = wk__ceil_div(wk__shape_length(b), WK__REDUCE_LANES), most = most_rounds(nest);
  if (rounds == 0) return false;
  if (wk__ptx_is_scanned(nest)) {
    set_scan(nest, b, s);
    return true;
  }
  s->mode = WK__PTX_ROWS;
  s->warps = (uint8_t)wk__min(wk__ceil_div(rounds, most), MOST_WARPS);
  s->each = (uint8_t)wk__min(wk__ceil_div(rounds, s->warps), WK__PTX_MAX_EACH);
  bool in_registers = wk__shape_chunks(b) == 1 && (int64_t)s->each * s->warps >= rounds && s->each <= most;
  bool columns = lies_in_columns(nest, d, b), parts = wk__shape_goes_in_parts(nest, d, b);
  bool is_short = in_registers && wk__shape_length(b) <= WK__PTX_SHORT_ROW; /* in columns, too: neighbours' threads */
  if (is_short) {
    s->mode = WK__PTX_SHORT_ROWS;
    s->each = (uint8_t)wk__shape_length(b);
  }
  if (is_short || (in_registers && !columns)) return true;
  if (columns)
    set_chunks(nest, b, goes_in_column_parts(nest, d, b) ? WK__PTX_COLUMN_PARTS : WK__PTX_COLUMNS, s);
  else
    set_chunks(nest, b, parts ? WK__PTX_PARTS : WK__PTX_LONG_ROWS, s);
  s->carries = b->r == 2 && b->size[b->p + 1] >= WK__REDUCE_LANES;
  s->each = LARGE_STEP; /* of several loops: coordinates */
  if (is_light(nest, b) && b->r == 1) s->each = step_of(nest);
  if (is_light(nest, b) && s->carries) s->each = (uint8_t)wk__min(step_of(nest), 2 * LARGE_STEP);
  return true;
}

/* The loop, not the innermost, along which some of what is loaded has its neighbours, while all that is stored has them
 * along the innermost; -1: none that is worth tiles. */
static int tile_loop_of(const wk__nest *nest, const wk__binding *b) {
  enum { LEAST_SIDE = 8 };
  int found = -1, along = b->p - 1;
  if (b->p < 2 || b->size[along] < LEAST_SIDE) return -1;
  for (int a = 0; a < b->access_count; a++) {
    const wk__access *access = &nest->accesses[a];
    bool stored = nest->buffers[access->buffer].written;
    if (access->has_indirect || access->may_leave || (stored && b->stride[a][along] != 1)) return -1;
    for (int d = 0; d < along && !stored && b->stride[a][along] != 0 && b->stride[a][along] != 1; d++)
      if (b->stride[a][d] == 1 && b->size[d] >= LEAST_SIDE) found = d;
  }
  return found;
}

/* Rows that are made of whole steps of all their warps, or whose chunks are made of steps. */
static bool is_whole(const wk__binding *b, const wk__ptx_shape *s) {
  int64_t step = WK__REDUCE_LANES * s->each, length = wk__shape_length(b);
  if (s->mode == WK__PTX_SHORT_ROWS) return true;
  if (s->mode == WK__PTX_SCANS || s->mode == WK__PTX_SCAN_PARTS) return length % s->each == 0;
  if (s->mode == WK__PTX_ROWS) return length == step * s->warps;
  bool chunks = s->mode == WK__PTX_LONG_ROWS || s->mode == WK__PTX_PARTS;
  return chunks && length % step == 0 && WK__REDUCE_CHUNK % step == 0;
}

static void set_moves(const wk__binding *b, wk__ptx_shape *s) {
  s->walkers = (uint8_t)b->walker_count;
  for (int w = 0; w < b->walker_count; w++)
    for (int d = 0; d < b->p + b->r; d++) {
      int64_t stride = b->stride[w][d];
      int move = stride == 0 ? WK__PTX_STILL : stride == 1 ? WK__PTX_ONE : WK__PTX_STRIDED;
      s->moves[w] |= (uint16_t)(move << 2 * d);
    }
}

/* What a scan's elements are: neighbours along the rows, in pieces of 16 bytes, or of the row alone. */
static bool scans_neighbours(const wk__nest *nest, const wk__binding *b) {
  for (int a = 0; a < b->access_count; a++) {
    int64_t stride = b->stride[a][b->p];
    bool by_index = nest->accesses[a].has_indirect || nest->accesses[a].may_leave;
    if (by_index || (stride != 0 && stride != 1)) return false;
    if (stride == 1 && !is_in_pieces(nest, b, a, b->p, 16)) return false;
  }
  return true;
}

/* Lines of memory of the smallest elements, or as much of one as rows are made of. */
static void set_scan_tile(const wk__nest *nest, const wk__binding *b, wk__ptx_shape *s) {
  enum { LINE = 128, LEAST = 16, MOST_INSTRS = 24 };
  int64_t smallest = 8, length = wk__shape_length(b);
  if (s->capability < 80 || b->r != 1 || nest->instr_count > MOST_INSTRS || !scans_neighbours(nest, b)) return;
  for (int a = 0; a < b->access_count; a++)
    if (b->stride[a][b->p] == 1) smallest = wk__min(smallest, wk__shape_item(nest, a));
  for (int64_t tile = LINE / smallest; tile >= LEAST; tile /= 2) {
    s->tile = (uint16_t)tile;
    if (length % tile == 0 && wk__ptx_scan_tiles_fit(nest, s)) {
      s->each = (uint8_t)wk__min(tile, WK__PTX_MAX_EACH), s->vectors = false, s->whole = true;
      return;
    }
  }
  s->tile = 0;
}

void wk__shape_of_pieces(const wk__cuda_device *device, const wk__binding *b, wk__ptx_shape *s) {
  memset(s, 0, sizeof *s);
  s->mode = WK__PTX_POINTWISE;
  s->p = (uint8_t)b->p;
  s->each = WK__PTX_PIECE, s->warps = 1;
  s->capability = (uint8_t)device->capability;
  set_moves(b, s);
}

/* False: the interpreter's. */
bool wk__shape_of(const wk__nest *nest, const wk__cuda_device *device, const wk__binding *b, wk__ptx_shape *s) {
  memset(s, 0, sizeof *s);
  if (b->p + b->r > WK__PTX_MAX_LOOPS || b->walker_count > WK__MAX_WALKERS) return false;
  s->p = (uint8_t)b->p;
  s->r = (uint8_t)b->r;
  s->capability = (uint8_t)device->capability;
  s->wide = wk__shape_count(b, 0, b->p + b->r) > INT32_MAX;
  s->warps = 1;
  s->mode = WK__PTX_POINTWISE;
  s->each = 1;
  int across = nest->reduction_dims == 0 ? tile_loop_of(nest, b) : -1;
  if (across >= 0)
    s->mode = WK__PTX_TILES, s->warps = (uint8_t)across, s->each = WK__PTX_TILE / WK__PTX_TILE_WARPS;
  else if (nest->reduction_dims == 0)
    s->each = (uint8_t)vector_of(nest, b);
  else if (b->r == 0 || !set_rows(nest, device, b, s))
    return false;
  keep_rows(nest, device, b, s);
  s->whole = nest->reduction_dims > 0 && is_whole(b, s);
  set_moves(b, s);
  if (s->mode == WK__PTX_SCANS || s->mode == WK__PTX_SCAN_PARTS) set_scan_tile(nest, b, s);
  return true;
}

/* ---- other shapes for the same launch ---- */

typedef struct ways {
  const wk__nest *nest;
  const wk__cuda_device *device;
  const wk__binding *b;
  wk__ptx_shape *out;
  int count;
} ways;

/* What of a shape follows from the rest; keeps: long rows, in shared memory. */
static void add_way(ways *w, wk__ptx_shape s, bool keeps) {
  if (w->count == WK__SHAPE_WAYS) return;
  s.kept = 0, s.vectors = false, s.tile = 0;
  if (keeps) keep_rows(w->nest, w->device, w->b, &s);
  s.whole = w->nest->reduction_dims > 0 && is_whole(w->b, &s);
  for (int i = 0; i < w->count; i++)
    if (memcmp(&w->out[i], &s, sizeof s) == 0) return;
  w->out[w->count++] = s;
}

/* As the usual shape, with other warps and elements. */
static void try_shape(ways *w, int mode, int64_t warps, int64_t each, bool keeps) {
  wk__ptx_shape s = w->out[0];
  s.mode = (uint8_t)mode, s.warps = (uint8_t)warps, s.each = (uint8_t)each;
  add_way(w, s, keeps);
}

/* Chunks in another mode. */
static void try_chunks(ways *w, int mode) {
  wk__ptx_shape s = w->out[0];
  set_chunks(w->nest, w->b, mode, &s);
  add_way(w, s, true);
}

static void try_vectors(ways *w) {
  enum { MOST = 8 };
  bool by_index = false;
  for (int a = 0; a < w->b->access_count; a++)
    by_index |= w->nest->accesses[a].has_indirect || w->nest->accesses[a].may_leave;
  for (int64_t each = by_index ? MOST / 2 : MOST; each >= 1 && w->b->p > 0; each /= 2)
    if (goes_in_vectors(w->nest, w->b, each)) try_shape(w, WK__PTX_POINTWISE, 1, each, false);
}

/* A row's warps hand on what the elements of a lane come to, however many they are. */
static void try_rows(ways *w) {
  int64_t rounds = wk__ceil_div(wk__shape_length(w->b), WK__REDUCE_LANES);
  for (int64_t warps = 1; warps <= MOST_WARPS; warps *= 2) {
    int64_t each = wk__ceil_div(rounds, warps);
    if (each <= WK__PTX_MAX_EACH && (warps == 1 || rounds >= 2 * warps)) try_shape(w, WK__PTX_ROWS, warps, each, false);
  }
}

/* Steps of more elements or fewer. */
static void try_steps(ways *w) {
  const wk__ptx_shape usual = w->out[0];
  if (usual.each > LARGE_STEP) try_shape(w, usual.mode, usual.warps, usual.each / 2, true);
  if (usual.each < WK__PTX_MAX_EACH && w->b->r == 1) try_shape(w, usual.mode, usual.warps, 2 * usual.each, true);
}

static void try_long_rows(ways *w) {
  const wk__ptx_shape usual = w->out[0];
  int64_t most_warps = wk__min(wk__shape_chunks(w->b), MOST_WARPS);
  if (usual.kept) try_shape(w, usual.mode, usual.warps, usual.each, false);
  if (w->b->r == 1) try_shape(w, usual.mode, usual.warps, WK__PTX_MAX_EACH, true); /* vectors of what is kept */
  try_steps(w);
  if (usual.warps >= 4) try_shape(w, usual.mode, usual.warps / 2, usual.each, true);
  if (usual.warps > 1 && 2 * usual.warps <= most_warps) try_shape(w, usual.mode, 2 * usual.warps, usual.each, true);
  if (has_parts(w->nest, w->b)) try_chunks(w, WK__PTX_PARTS);
}

/* Rows, or rows that lie side by side, in parts or as blocks have them whole. */
static void try_parts(ways *w) {
  int mode = w->out[0].mode;
  bool columns = mode != WK__PTX_PARTS, parts = has_parts(w->nest, w->b);
  try_steps(w);
  if (mode == WK__PTX_COLUMN_PARTS) try_chunks(w, WK__PTX_COLUMNS);
  if (mode == WK__PTX_COLUMNS && parts) try_chunks(w, WK__PTX_COLUMN_PARTS);
  if (wk__shape_chunks(w->b) * 64 <= (int64_t)w->device->shared_most) try_chunks(w, WK__PTX_LONG_ROWS);
  if (columns && parts) try_chunks(w, WK__PTX_PARTS);
}

int wk__shape_ways(const wk__nest *nest, const wk__cuda_device *device, const wk__binding *b,
                   const wk__ptx_shape *usual, wk__ptx_shape out[static WK__SHAPE_WAYS]) {
  ways w = {nest, device, b, out, 1};
  out[0] = *usual;
  if (usual->mode == WK__PTX_POINTWISE || usual->mode == WK__PTX_TILES) try_vectors(&w);
  if (usual->mode == WK__PTX_ROWS || usual->mode == WK__PTX_SHORT_ROWS) try_rows(&w);
  if (usual->mode == WK__PTX_LONG_ROWS) try_long_rows(&w);
  if (usual->mode == WK__PTX_PARTS || usual->mode == WK__PTX_COLUMNS || usual->mode == WK__PTX_COLUMN_PARTS)
    try_parts(&w);
  if (usual->mode == WK__PTX_SCANS && usual->warps == 1)
    for (int64_t each = LARGE_STEP; each <= 4 * LARGE_STEP; each *= 2) try_shape(&w, usual->mode, 1, each, false);
  return w.count;
}
