/* Bins of free blocks, and the range that blocks are cut from (blocks.h).
 *
 * A request takes the first block of the first bin all of whose blocks are large enough. Invariant: blocks cover the
 * mapped range, each is in the list by address; the first one that begins in a piece is among `begins`. Tests:
 * tests/cuda/test_cuda.py. */
#include "cuda/blocks.h"
#include "cuda/capture.h"

typedef wk__cuda_block block;

enum { LEAST_STEP = 16 << 20 };

/* ---- bins ---- */

/* The number of the bin whose blocks have at least `from` bytes: 4 log2 and the next two bits. */
static int bin_of(int64_t bytes) {
  uint64_t units = (uint64_t)bytes / WK__CUDA_UNIT;
  if (units < 4) return (int)units;
  int log = 63 - __builtin_clzll(units);
  return (int)wk__min(4 * (log - 1) + (int)(units >> (log - 2) & 3), WK__CUDA_BINS - 1);
}
/* The first bin all of whose blocks have `bytes`. */
static int bin_for(int64_t bytes) {
  int bin = bin_of(bytes);
  uint64_t units = (uint64_t)bytes / WK__CUDA_UNIT;
  if (units < 4) return bin;
  int log = 63 - __builtin_clzll(units);
  return bin + ((units & ((UINT64_C(1) << (log - 2)) - 1)) != 0);
}

/* By address, so that which block is found depends on what is free alone, not on what went before: a program that does
 * the same in each step gets the same memory in each, which recordings live on. Of a long list the beginning is in
 * order. */
static void insert(block *b) {
  enum { ORDERED = 64 };
  int bin = bin_of(b->bytes), at = 0;
  block *before = NULL, *after = b->bins->first[bin];
  while (after && after->address < b->address && at++ < ORDERED) before = after, after = after->free_after;
  b->is_free = true;
  b->free_before = before;
  b->free_after = after;
  if (after) after->free_before = b;
  if (before)
    before->free_after = b;
  else
    b->bins->first[bin] = b;
  b->bins->filled[bin >> 6] |= UINT64_C(1) << (bin & 63);
}

void wk__cuda_block_take_out(block *b) {
  int bin = bin_of(b->bytes);
  b->is_free = false;
  if (b->free_after) b->free_after->free_before = b->free_before;
  if (b->free_before) {
    b->free_before->free_after = b->free_after;
    return;
  }
  b->bins->first[bin] = b->free_after;
  if (!b->free_after) b->bins->filled[bin >> 6] &= ~(UINT64_C(1) << (bin & 63));
}

block *wk__cuda_block_find(const wk__cuda_bins *s, int64_t bytes) {
  int bin = bin_for(bytes);
  for (int word = bin >> 6; word < (int)WK_COUNT(s->filled); word++) {
    uint64_t filled = s->filled[word];
    if (word == bin >> 6) filled &= ~UINT64_C(0) << (bin & 63);
    if (filled) return s->first[64 * word + __builtin_ctzll(filled)];
  }
  return NULL;
}

/* ---- the first blocks of pieces ---- */

static int64_t piece_of(const wk__cuda_memory *m, CUdeviceptr address) {
  return (int64_t)(address - m->base) / WK__CUDA_PIECE;
}

static void note_begin(wk__cuda_memory *m, block *b) {
  block **first = &m->begins[piece_of(m, b->address)];
  if (!*first || (*first)->address > b->address) *first = b;
}

/* Before the block goes. */
static void forget_begin(wk__cuda_memory *m, const block *b) {
  int64_t piece = piece_of(m, b->address);
  if (m->begins[piece] != b) return;
  m->begins[piece] = b->after && piece_of(m, b->after->address) == piece ? b->after : NULL;
}

/* The block with the address, which is mapped. */
static block *block_with(const wk__cuda_memory *m, CUdeviceptr address) {
  int64_t piece = piece_of(m, address);
  while (!m->begins[piece] || m->begins[piece]->address > address) piece--;
  block *b = m->begins[piece];
  while (address - b->address >= (CUdeviceptr)b->bytes) b = b->after;
  return b;
}

/* ---- blocks ---- */

/* b ends where its neighbour does, which goes. */
static void join(wk__cuda_memory *m, block *b, block *after) {
  forget_begin(m, after);
  b->bytes += after->bytes;
  b->is_idle &= after->is_idle;
  b->after = after->after;
  if (b->after) b->after->before = b;
  if (m->last == after) m->last = b;
  wk__free(after);
}

static block *put_back(wk__cuda_memory *m, block *b) {
  block *before = b->before, *after = b->after;
  if (after && after->is_free && after->bins == b->bins) {
    wk__cuda_block_take_out(after);
    join(m, b, after);
  }
  if (before && before->is_free && before->bins == b->bins) {
    wk__cuda_block_take_out(before);
    join(m, before, b);
    b = before;
  }
  insert(b);
  return b;
}

block *wk__cuda_block_put_back(wk__cuda_memory *m, block *b) {
  b->is_idle = false;
  return put_back(m, b);
}

void wk__cuda_block_split(wk__cuda_memory *m, block *b, int64_t bytes) {
  if (b->bytes - bytes < WK__CUDA_UNIT) return;
  block *rest = wk__alloc(sizeof *rest);
  if (!rest) {
    wk_error_clear();
    return;
  }
  *rest = (block){
      .address = b->address + (CUdeviceptr)bytes, .bytes = b->bytes - bytes, .bins = b->bins, .is_idle = b->is_idle};
  rest->before = b;
  rest->after = b->after;
  if (rest->after) rest->after->before = rest;
  if (m->last == b) m->last = rest;
  b->after = rest;
  b->bytes = bytes;
  note_begin(m, rest);
  insert(rest);
}

block *wk__cuda_block_at(wk__cuda_memory *m, const wk__cuda_bins *bins, CUdeviceptr address, int64_t bytes) {
  if (address < m->base || address - m->base >= (CUdeviceptr)m->mapped) return NULL;
  block *b = block_with(m, address);
  int64_t before = (int64_t)(address - b->address);
  if (!b->is_free || b->bins != bins || b->bytes - before < bytes) return NULL;
  if (before == 0) return b;
  wk__cuda_block_take_out(b);
  wk__cuda_block_split(m, b, before);
  insert(b);
  return b->bytes == before ? b->after : NULL;
}

/* ---- the range ---- */

static CUmemAllocationProp property_of(const wk__cuda_device *d) {
  return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, d->handle}};
}

/* While something is captured, too: memory that is mapped stays mapped. */
static CUresult map_piece(wk__cuda_device *d, int64_t bytes, wk__cuda_piece *out) {
  wk__cuda_memory *m = d->memory;
  CUmemAllocationProp prop = property_of(d);
  CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr at = m->base + (CUdeviceptr)m->mapped;
  int mode = wk__cuda_allow_unsafe();
  CUresult result = wk__cuda.cuMemCreate(&out->handle, (size_t)bytes, &prop, 0);
  if (result) {
    wk__cuda_allow_before(mode);
    return result;
  }
  result = wk__cuda.cuMemMap(at, (size_t)bytes, 0, out->handle, 0);
  if (!result && (result = wk__cuda.cuMemSetAccess(at, (size_t)bytes, &access, 1)))
    (void)wk__cuda.cuMemUnmap(at, (size_t)bytes);
  if (result) (void)wk__cuda.cuMemRelease(out->handle);
  wk__cuda_allow_before(mode);
  out->bytes = bytes;
  return result;
}

/* A new free block of the stream at the end; NULL: the device has no such memory, and no error is set. */
static block *map_block(wk__cuda_device *d, wk__cuda_bins *bins, int64_t bytes) {
  wk__cuda_memory *m = d->memory;
  bool fits = m->mapped + bytes <= m->range && m->mapped + bytes <= (int64_t)(m->fraction * (double)d->total_bytes);
  wk__cuda_piece made;
  if (!fits || wk__grow(&m->pieces, &m->piece_capacity, m->piece_count + 1, sizeof *m->pieces) != WK_OK) return NULL;
  block *b = wk__alloc(sizeof *b);
  if (!b || map_piece(d, bytes, &made)) {
    wk__free(b);
    return NULL;
  }
  *b = (block){.address = m->base + (CUdeviceptr)m->mapped, .bytes = bytes, .bins = bins, .before = m->last};
  if (m->last) m->last->after = b;
  m->last = b;
  note_begin(m, b);
  m->pieces[m->piece_count++] = made;
  m->mapped += bytes;
  m->usage.reserved = m->mapped;
  m->usage.reserved_ever += bytes;
  m->usage.peak_reserved = wk__max(m->usage.peak_reserved, m->mapped);
  m->usage.segments = m->piece_count;
  m->usage.peak_segments = wk__max(m->usage.peak_segments, m->usage.segments);
  m->usage.mappings++;
  return b;
}

/* The block at the end, free in the same bins, counts. */
block *wk__cuda_block_map(wk__cuda_device *d, wk__cuda_bins *bins, int64_t bytes) {
  wk__cuda_memory *m = d->memory;
  int64_t there = m->last && m->last->is_free && m->last->bins == bins ? m->last->bytes : 0;
  int64_t needed = wk__ceil_div(bytes - there, WK__CUDA_PIECE) * WK__CUDA_PIECE;
  block *b = map_block(d, bins, wk__max(needed, LEAST_STEP));
  if (!b && needed < LEAST_STEP) b = map_block(d, bins, needed);
  if (!b) return NULL;
  return wk__cuda_block_put_back(m, b);
}

void wk__cuda_blocks_collect(wk__cuda_memory *m, wk__cuda_bins *bins) {
  for (block *b = m->last; b; b = b->before) /* all of them first: neighbours join, and are idle if both are */
    if (b->is_free && !b->bins->pool) b->is_idle = true;
  for (block *b = m->last; b; b = b->before) {
    if (!b->is_free || b->bins->pool) continue;
    wk__cuda_block_take_out(b);
    b->bins = bins;
    b = put_back(m, b);
  }
}

bool wk__cuda_unmap_last(wk__cuda_memory *m) {
  if (!m->piece_count || !m->last || !m->last->is_free) return false;
  wk__cuda_piece *p = &m->pieces[m->piece_count - 1];
  block *b = m->last;
  if (b->bytes < p->bytes) return false;
  CUdeviceptr at = m->base + (CUdeviceptr)(m->mapped - p->bytes);
  if (wk__cuda.cuMemUnmap(at, (size_t)p->bytes) || wk__cuda.cuMemRelease(p->handle)) return false;
  wk__cuda_block_take_out(b);
  b->bytes -= p->bytes;
  m->mapped -= p->bytes;
  m->usage.reserved = m->mapped;
  m->usage.unreserved_ever += p->bytes;
  m->usage.segments = --m->piece_count;
  m->usage.unmappings++;
  if (b->bytes) {
    insert(b);
    return true;
  }
  forget_begin(m, b);
  m->last = b->before;
  if (m->last) m->last->after = NULL;
  wk__free(b);
  return true;
}
