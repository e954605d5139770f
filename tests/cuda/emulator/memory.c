/* Memory of the emulated devices; memory.h says what holds.
 *
 * cuMemAddressReserve takes granules of the range, cuMemCreate makes a piece of bytes (full of poison), cuMemMap ties
 * granules to a piece, cuMemSetAccess says which devices may touch them. A piece lives while its handle or a mapping
 * does. Errors are the driver's. Tests: tests/test_memory.c. */
#define _GNU_SOURCE
#include "memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "emulator.h"

typedef struct memory_piece {
  uint8_t *bytes;
  uint64_t size;
  int device;
  int mappings;
  bool has_handle;
  struct memory_piece *next;
} memory_piece;

typedef struct pinned {
  uint8_t *bytes;
  uint64_t size;
  int device; /* that was the thread's when it was made */
} pinned;

memory_map memory;
static memory_piece *pieces;
static uint64_t used[EMULATOR_MOST_DEVICES];
static struct {
  pinned *items;
  uint32_t count, capacity;
} pinned_memory;

enum { FIRST_GRANULE = 64 }; /* the windows of the small spaces lie before */

bool memory_open(void) {
  if (memory.base) return true;
  for (uint64_t bytes = (uint64_t)1 << 42; bytes >= (uint64_t)1 << 34; bytes >>= 1) {
    void *range = mmap(NULL, bytes + MEMORY_GRANULE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) continue;
    memory.base = ((uint64_t)(uintptr_t)range + MEMORY_GRANULE - 1) & ~(uint64_t)(MEMORY_GRANULE - 1);
    memory.count = bytes >> MEMORY_GRANULE_BITS;
    memory.granules = calloc(memory.count, sizeof *memory.granules);
    return memory.granules;
  }
  return false;
}

uint64_t memory_total(void) {
  const char *text = getenv("WICK_EMULATED_MEMORY");
  uint64_t bytes = text && *text ? strtoull(text, NULL, 0) : (uint64_t)1 << 30;
  return bytes & ~(uint64_t)(MEMORY_GRANULE - 1);
}
uint64_t memory_used(int device) { return used[device]; }

static bool whole_granules(uint64_t value) { return !(value & (MEMORY_GRANULE - 1)); }

/* The granules of a range of addresses, all of them in the range; NULL: they are not. */
static memory_granule *granules_of(uint64_t address, uint64_t bytes) {
  uint64_t index = (address - memory.base) >> MEMORY_GRANULE_BITS, count = bytes >> MEMORY_GRANULE_BITS;
  if (!bytes || !whole_granules(address - memory.base) || !whole_granules(bytes)) return NULL;
  if (address < memory.base || index >= memory.count || count > memory.count - index) return NULL;
  return &memory.granules[index];
}

/* ---- addresses ---- */

typedef struct reservation {
  uint64_t first, count;
  struct reservation *next; /* by address */
} reservation;
static reservation *reservations;

static uint64_t align_index(uint64_t index, uint64_t granules) { return (index + granules - 1) / granules * granules; }

/* The first gap that is large enough. */
static reservation **find_gap(uint64_t count, uint64_t alignment, uint64_t *out_first) {
  uint64_t offset = memory.base >> MEMORY_GRANULE_BITS; /* addresses are aligned, not indices */
  reservation **link = &reservations;
  uint64_t first = align_index(offset + FIRST_GRANULE, alignment) - offset;
  for (; *link; link = &(*link)->next) {
    if (first + count <= (*link)->first) break;
    first = align_index(offset + (*link)->first + (*link)->count, alignment) - offset;
  }
  *out_first = first;
  return first + count <= memory.count ? link : NULL;
}

CUresult memory_reserve(CUdeviceptr *address, size_t bytes, size_t alignment) {
  if (!address || !bytes || !whole_granules(bytes) || alignment & (alignment - 1)) return CUDA_ERROR_INVALID_VALUE;
  uint64_t count = bytes >> MEMORY_GRANULE_BITS, first;
  uint64_t aligned = alignment > MEMORY_GRANULE ? alignment >> MEMORY_GRANULE_BITS : 1;
  reservation **link = find_gap(count, aligned, &first);
  reservation *made = link ? malloc(sizeof *made) : NULL;
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  *made = (reservation){first, count, *link};
  *link = made;
  for (uint64_t i = 0; i < count; i++) memory.granules[first + i].is_reserved = true;
  *address = memory.base + (first << MEMORY_GRANULE_BITS);
  return CUDA_SUCCESS;
}

CUresult memory_unreserve(CUdeviceptr address, size_t bytes) {
  memory_granule *granules = granules_of(address, bytes);
  if (!granules) return CUDA_ERROR_INVALID_VALUE;
  reservation **link = &reservations;
  uint64_t first = (uint64_t)(granules - memory.granules), count = bytes >> MEMORY_GRANULE_BITS;
  while (*link && (*link)->first != first) link = &(*link)->next;
  if (!*link || (*link)->count != count) return CUDA_ERROR_INVALID_VALUE;
  for (uint64_t i = 0; i < count; i++)
    if (granules[i].piece) return CUDA_ERROR_INVALID_VALUE;
  for (uint64_t i = 0; i < count; i++) granules[i].is_reserved = false;
  reservation *gone = *link;
  *link = gone->next;
  free(gone);
  return CUDA_SUCCESS;
}

/* ---- pieces ---- */

static memory_piece *piece_of(CUmemGenericAllocationHandle handle) {
  for (memory_piece *piece = pieces; piece; piece = piece->next)
    if ((uint64_t)(uintptr_t)piece == handle) return piece;
  return NULL;
}

CUresult memory_create(CUmemGenericAllocationHandle *handle, size_t bytes, int device) {
  if (!handle || !bytes || !whole_granules(bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > memory_total() || used[device] > memory_total() - bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  void *storage = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  memory_piece *piece = storage == MAP_FAILED ? NULL : malloc(sizeof *piece);
  if (!piece) return CUDA_ERROR_OUT_OF_MEMORY;
  memset(storage, MEMORY_POISON, bytes);
  *piece = (memory_piece){.bytes = storage, .size = bytes, .device = device, .has_handle = true, .next = pieces};
  pieces = piece;
  used[device] += bytes;
  *handle = (CUmemGenericAllocationHandle)(uintptr_t)piece;
  return CUDA_SUCCESS;
}

static void free_when_unused(memory_piece *piece) {
  if (piece->has_handle || piece->mappings) return;
  memory_piece **link = &pieces;
  while (*link != piece) link = &(*link)->next;
  *link = piece->next;
  used[piece->device] -= piece->size;
  munmap(piece->bytes, piece->size);
  free(piece);
}

CUresult memory_release(CUmemGenericAllocationHandle handle) {
  memory_piece *piece = piece_of(handle);
  if (!piece || !piece->has_handle) return CUDA_ERROR_INVALID_VALUE;
  piece->has_handle = false;
  free_when_unused(piece);
  return CUDA_SUCCESS;
}

/* ---- mappings ---- */

CUresult memory_map_piece(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle) {
  memory_granule *granules = granules_of(address, bytes);
  memory_piece *piece = piece_of(handle);
  if (!granules || !piece || !piece->has_handle || offset || bytes > piece->size) return CUDA_ERROR_INVALID_VALUE;
  uint64_t count = bytes >> MEMORY_GRANULE_BITS;
  for (uint64_t i = 0; i < count; i++)
    if (!granules[i].is_reserved || granules[i].piece) return CUDA_ERROR_INVALID_VALUE;
  for (uint64_t i = 0; i < count; i++) {
    granules[i].piece = piece;
    granules[i].bytes = piece->bytes + (i << MEMORY_GRANULE_BITS);
    granules[i].begins = i == 0;
    granules[i].access = 0;
  }
  piece->mappings++;
  return CUDA_SUCCESS;
}

/* Whether [i] is the first granule behind a mapping, or of one. */
static bool is_border(const memory_granule *granule) { return !granule->piece || granule->begins; }

/* Whole mappings only, without gaps. */
static bool are_whole_mappings(const memory_granule *granules, uint64_t count) {
  for (uint64_t i = 0; i < count; i++)
    if (!granules[i].piece) return false;
  const memory_granule *end = granules + count;
  return granules->begins && (end == memory.granules + memory.count || is_border(end));
}

CUresult memory_unmap(CUdeviceptr address, size_t bytes) {
  memory_granule *granules = granules_of(address, bytes);
  uint64_t count = bytes >> MEMORY_GRANULE_BITS;
  if (!granules || !are_whole_mappings(granules, count)) return CUDA_ERROR_INVALID_VALUE;
  for (uint64_t i = 0; i < count; i++) {
    memory_piece *piece = granules[i].piece;
    bool begins = granules[i].begins;
    granules[i] = (memory_granule){.is_reserved = true};
    if (!begins) continue;
    piece->mappings--;
    /* Its other granules of this mapping still name it; they are cleared before anyone looks. */
    free_when_unused(piece);
  }
  return CUDA_SUCCESS;
}

CUresult memory_set_access(CUdeviceptr address, size_t bytes, int device, bool allowed) {
  memory_granule *granules = granules_of(address, bytes);
  uint64_t count = bytes >> MEMORY_GRANULE_BITS;
  if (!granules) return CUDA_ERROR_INVALID_VALUE;
  for (uint64_t i = 0; i < count; i++)
    if (!granules[i].piece) return CUDA_ERROR_INVALID_VALUE;
  uint32_t bit = (uint32_t)1 << device;
  for (uint64_t i = 0; i < count; i++)
    granules[i].access = allowed ? granules[i].access | bit : granules[i].access & ~bit;
  return CUDA_SUCCESS;
}

/* ---- for the driver itself ---- */

uint64_t memory_allocate(uint64_t bytes, int device) {
  bytes = (bytes + MEMORY_GRANULE - 1) & ~(uint64_t)(MEMORY_GRANULE - 1);
  CUdeviceptr address;
  CUmemGenericAllocationHandle handle;
  if (memory_create(&handle, bytes, device)) return 0;
  if (memory_reserve(&address, bytes, 0)) {
    memory_release(handle);
    return 0;
  }
  memory_map_piece(address, bytes, 0, handle);
  memory_set_access(address, bytes, device, true);
  memory_release(handle);
  return address;
}

void memory_free(uint64_t address, uint64_t bytes) {
  bytes = (bytes + MEMORY_GRANULE - 1) & ~(uint64_t)(MEMORY_GRANULE - 1);
  memory_unmap(address, bytes);
  memory_unreserve(address, bytes);
}

/* ---- memory of the host ---- */

CUresult memory_pin(void **out, size_t bytes, int device) {
  if (!out || !bytes) return CUDA_ERROR_INVALID_VALUE;
  *out = NULL;
  void *bytes_of_it = NULL;
  if (posix_memalign(&bytes_of_it, 4096, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (pinned_memory.count == pinned_memory.capacity) {
    uint32_t capacity = pinned_memory.capacity ? pinned_memory.capacity * 2 : 16;
    pinned *items = realloc(pinned_memory.items, capacity * sizeof *items);
    if (!items) abort();
    pinned_memory.items = items, pinned_memory.capacity = capacity;
  }
  memset(bytes_of_it, MEMORY_POISON, bytes);
  pinned_memory.items[pinned_memory.count++] = (pinned){bytes_of_it, bytes, device};
  *out = bytes_of_it;
  return CUDA_SUCCESS;
}

CUresult memory_unpin(void *bytes) {
  for (uint32_t i = 0; i < pinned_memory.count; i++) {
    if (pinned_memory.items[i].bytes != bytes) continue;
    free(bytes);
    pinned_memory.items[i] = pinned_memory.items[--pinned_memory.count];
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

int memory_pinned_device_of(uint64_t address) {
  for (uint32_t i = 0; i < pinned_memory.count; i++)
    if (address - (uint64_t)(uintptr_t)pinned_memory.items[i].bytes < pinned_memory.items[i].size)
      return pinned_memory.items[i].device;
  return -1;
}

int memory_device_of(uint64_t address) {
  if (!memory_is_device(address)) return -1;
  const memory_granule *granule = &memory.granules[(address - memory.base) >> MEMORY_GRANULE_BITS];
  return granule->bytes && granule->piece ? granule->piece->device : -1;
}

bool memory_is_pinned(uint64_t address, uint64_t bytes) {
  for (uint32_t i = 0; i < pinned_memory.count; i++) {
    uint64_t start = (uint64_t)(uintptr_t)pinned_memory.items[i].bytes, size = pinned_memory.items[i].size;
    if (address - start < size && size - (address - start) >= bytes) return true;
  }
  return false;
}

/* ---- copies ---- */

bool memory_is_device(uint64_t address) { return address - memory.base < memory.count << MEMORY_GRANULE_BITS; }

/* Where the bytes of an address lie for a copy, and how many follow each other there; NULL: nowhere. */
static uint8_t *bytes_at(uint64_t address, int device, uint64_t *out_run) {
  if (!memory_is_device(address)) {
    *out_run = UINT64_MAX;
    return (uint8_t *)(uintptr_t)address;
  }
  uint64_t offset = address - memory.base, inside = offset & (MEMORY_GRANULE - 1);
  const memory_granule *granule = &memory.granules[offset >> MEMORY_GRANULE_BITS];
  if (!granule->piece || !(granule->access & ((uint32_t)1 << device | (uint32_t)1 << granule->piece->device)))
    return NULL;
  *out_run = MEMORY_GRANULE - inside;
  return granule->bytes + inside;
}

bool memory_is_accessible(uint64_t address, uint64_t bytes, int device) {
  while (bytes) {
    uint64_t run;
    if (!bytes_at(address, device, &run)) return false;
    if (run >= bytes) return true;
    address += run, bytes -= run;
  }
  return true;
}

bool memory_copy(uint64_t to, uint64_t from, uint64_t bytes, int device) {
  if (!memory_is_accessible(to, bytes, device) || !memory_is_accessible(from, bytes, device)) return false;
  while (bytes) {
    uint64_t to_run, from_run;
    uint8_t *to_bytes = bytes_at(to, device, &to_run), *from_bytes = bytes_at(from, device, &from_run);
    uint64_t run = to_run < from_run ? to_run : from_run;
    if (run > bytes) run = bytes;
    memmove(to_bytes, from_bytes, run);
    to += run, from += run, bytes -= run;
  }
  return true;
}

bool memory_fill(uint64_t to, uint8_t value, uint64_t bytes, int device) {
  if (!memory_is_accessible(to, bytes, device)) return false;
  while (bytes) {
    uint64_t run;
    uint8_t *at = bytes_at(to, device, &run);
    if (run > bytes) run = bytes;
    memset(at, value, run);
    to += run, bytes -= run;
  }
  return true;
}
