/* Memory of the emulated devices: what the parts of the emulator ask of memory.c.
 *
 * Device addresses lie in one range of the process that has no access rights, so that a host that follows one crashes;
 * the bytes lie elsewhere, and a table of granules of 2 MiB says where. Tests: tests/test_memory.c. */
#ifndef EMULATOR_MEMORY_H
#define EMULATOR_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

enum { MEMORY_GRANULE = 2 << 20, MEMORY_GRANULE_BITS = 21, MEMORY_POISON = 0xfb };

typedef struct memory_granule {
  uint8_t *bytes;             /* NULL: not mapped */
  struct memory_piece *piece; /* what is mapped */
  uint32_t access;            /* a bit for each device that may touch it; none without a mapping */
  bool is_reserved;
  bool begins; /* a mapping begins here */
} memory_granule;

typedef struct memory_map {
  uint64_t base; /* of the range */
  uint64_t count;
  memory_granule *granules;
} memory_map;
extern memory_map memory;

/* Reserves the range; false when the system has none. */
bool memory_open(void);

/* The bytes at a device address that a kernel on `device` touches, or NULL: not mapped, not accessible or not a
 * multiple of `bytes`, which is a power of two. */
static inline uint8_t *memory_device(uint64_t address, unsigned bytes, unsigned device) {
  uint64_t offset = address - memory.base, index = offset >> MEMORY_GRANULE_BITS;
  if (index >= memory.count || address & (bytes - 1)) return NULL;
  const memory_granule *granule = &memory.granules[index];
  if (!(granule->access >> device & 1)) return NULL;
  return granule->bytes + (offset & (MEMORY_GRANULE - 1));
}

/* The device whose memory an address lies in, mapped; -1: none. The same for memory of cuMemHostAlloc. */
int memory_device_of(uint64_t address);
int memory_pinned_device_of(uint64_t address);

/* Whether all bytes lie in memory of cuMemHostAlloc. */
bool memory_is_pinned(uint64_t address, uint64_t bytes);

/* Copies that the driver does: each side is a device address or one of the host. False: a device address that is not
 * mapped, or that neither `device` nor its own device may touch; then nothing has been copied. */
bool memory_copy(uint64_t to, uint64_t from, uint64_t bytes, int device);
bool memory_fill(uint64_t to, uint8_t value, uint64_t bytes, int device);
bool memory_is_device(uint64_t address);                                 /* in the range */
bool memory_is_accessible(uint64_t address, uint64_t bytes, int device); /* for a copy */

/* Memory for the driver's own use (variables of modules): mapped and accessible. 0: none left. */
uint64_t memory_allocate(uint64_t bytes, int device);
void memory_free(uint64_t address, uint64_t bytes);

uint64_t memory_total(void); /* of each device */
uint64_t memory_used(int device);

#pragma GCC visibility pop
#endif
