/* Barriers in shared memory (mbarrier), and the copy engine, which brings boxes of tensors there, and back.
 *
 * A tensor's map, as cuTensorMapEncodeTiled makes it here: the address first, as the driver's has it, then what it was
 * told. A copy is done at once: whoever reads before its barrier says so is not found out, and neither are races with
 * it. Known are elements of 1, 2 and 4 bytes in rows of 128 bytes, whose 16-byte piece c goes to c ^ row % 8, and zeros
 * outside of the tensor. Floats of a map that says TF32 are rounded to it, here to nearest, halves to even. Tests:
 * tests/test_bulk.c. */
#include "emulator.h"
#include "ptx_run.h"
#include "ptx_values.h"

/* ---- maps ---- */

enum { MAGIC = 0x7eb05, LINE = 128, PIECE = 16, MOST_BOX = 256, DIMS = 3 };

typedef struct tensor_map {
  uint64_t address;
  uint32_t magic, box[DIMS], type;
  uint64_t sizes[DIMS], strides[DIMS - 1];
} tensor_map;
_Static_assert(sizeof(tensor_map) <= sizeof(CUtensorMap), "a map is opaque, and of 128 bytes");

/* Numbers of the driver's. */
enum { TYPE_U8 = 0, TYPE_S32 = 3, TYPE_F16 = 6, TYPE_F32 = 7, TYPE_BF16 = 9, TYPE_TF32 = 11, TYPES };

/* 0: none that is known. */
static uint32_t bytes_of_type(uint32_t type) {
  static const uint8_t bytes[TYPES] = {
      [TYPE_U8] = 1, [TYPE_S32] = 4, [TYPE_F16] = 2, [TYPE_F32] = 4, [TYPE_BF16] = 2, [TYPE_TF32] = 4};
  return type < TYPES ? bytes[type] : 0;
}

static bool fits(const tensor_map *m) {
  uint32_t item = bytes_of_type(m->type);
  bool good = item && m->address % PIECE == 0 && m->box[0] * item <= LINE && m->box[0] * item % PIECE == 0;
  for (int d = 0; d < DIMS; d++)
    good = good && m->box[d] >= 1 && m->box[d] <= MOST_BOX && m->sizes[d] >= 1 && m->sizes[d] <= (uint64_t)1 << 32;
  for (int d = 0; d < DIMS - 1; d++)
    good = good && m->strides[d] && m->strides[d] % PIECE == 0 && m->strides[d] < (uint64_t)1 << 40;
  return good;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, int type, uint32_t dims, CUdeviceptr address, const uint64_t *sizes,
                                const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                                int swizzle, int promotion, int fill) {
  enum { SWIZZLE_128 = 3, MOST_PROMOTION = 3 };
  if (!map || !sizes || !strides || !box || !steps || dims != DIMS) return CUDA_ERROR_INVALID_VALUE;
  if (interleave || swizzle != SWIZZLE_128 || fill || promotion > MOST_PROMOTION) return CUDA_ERROR_INVALID_VALUE;
  tensor_map m = {.address = address, .magic = MAGIC, .type = (uint32_t)type};
  for (int d = 0; d < DIMS; d++) {
    m.sizes[d] = sizes[d], m.box[d] = box[d];
    if (d < DIMS - 1) m.strides[d] = strides[d];
    if (steps[d] != 1) return CUDA_ERROR_INVALID_VALUE;
  }
  if (!fits(&m)) return CUDA_ERROR_INVALID_VALUE;
  memset(map, 0, sizeof *map);
  memcpy(map, &m, sizeof m);
  return CUDA_SUCCESS;
}

/* ---- barriers ---- */

/* What the 8 bytes of one hold. A phase ends when all have arrived, and all bytes that it was told of. */
typedef struct barrier {
  uint16_t count, pending;
  int32_t bytes : 31;
  uint32_t phase : 1;
} barrier;

static uint8_t *shared_at(ptx_thread *t, const ptx_ins *ins, uint64_t address, uint32_t bytes, uint32_t alignment) {
  const ptx_block *block = t->block;
  if (address % alignment == 0 && address < block->shared_bytes && block->shared_bytes - address >= bytes)
    return block->shared + address;
  ptx_fault(t, ins, CUDA_ERROR_ILLEGAL_ADDRESS, "%u bytes at shared 0x%llx", bytes, (unsigned long long)address);
  return NULL;
}

static uint8_t *barrier_at(ptx_thread *t, const ptx_ins *ins, barrier *out) {
  uint8_t *at = shared_at(t, ins, ptx_address(t, ins), sizeof *out, sizeof *out);
  if (at) memcpy(out, at, sizeof *out);
  return at;
}

static void put(uint8_t *at, barrier *b) {
  if (b->pending == 0 && b->bytes == 0) b->pending = b->count, b->phase ^= 1;
  memcpy(at, b, sizeof *b);
}

bool ptx_barrier_init(ptx_thread *t, const ptx_ins *ins) {
  barrier b;
  uint8_t *at = barrier_at(t, ins, &b);
  uint16_t count = (uint16_t)t->r[ins->b];
  b = (barrier){.count = count, .pending = count};
  if (at) memcpy(at, &b, sizeof b);
  return at;
}

bool ptx_barrier_arrive(ptx_thread *t, const ptx_ins *ins) {
  barrier b;
  uint8_t *at = barrier_at(t, ins, &b);
  if (!at) return false;
  if (b.pending == 0) {
    ptx_fault(t, ins, CUDA_ERROR_LAUNCH_FAILED, "more arrive at a barrier than it is for");
    return false;
  }
  b.pending--, b.bytes += (int32_t)U32(t->r[ins->b]);
  put(at, &b);
  return true;
}

bool ptx_barrier_try(ptx_thread *t, const ptx_ins *ins) {
  barrier b;
  if (!barrier_at(t, ins, &b)) return false;
  t->r[ins->d] = b.phase != (t->r[ins->b] & 1);
  return true;
}

/* ---- copies ---- */

static bool find_map(ptx_thread *t, const ptx_ins *ins, tensor_map *out) {
  uint8_t *words = (uint8_t *)out;
  uint64_t at = t->r[ins->a];
  for (size_t i = 0; i < sizeof *out; i += sizeof(uint64_t)) {
    const uint8_t *word = ptx_at(t, ins, PTX_GENERIC, at + i, sizeof(uint64_t), PTX_READ);
    if (!word) return false;
    memcpy(words + i, word, sizeof(uint64_t));
  }
  if (out->magic == MAGIC && at % sizeof(CUtensorMap) % 64 == 0) return true;
  ptx_fault(t, ins, CUDA_ERROR_LAUNCH_FAILED, "no tensor map at 0x%llx", (unsigned long long)at);
  return false;
}

static void round_to_tf32(uint8_t *at) {
  float value;
  uint32_t bits;
  memcpy(&value, at, sizeof value);
  if (value != value)
    bits = 0x7fffffff;
  else
    bits = (uint32_t)ptx_from_double(value, ptx_format_of(PTX_TF32), PTX_RN, false) << 13;
  memcpy(at, &bits, sizeof bits);
}

/* One line of a box: row (y, z) of the tensor from x on, as far as it is there. */
static bool move_row(ptx_thread *t, const ptx_ins *ins, const tensor_map *m, const int64_t at[DIMS], uint8_t *line,
                     bool stores) {
  bool there = true;
  uint32_t item = bytes_of_type(m->type);
  uint64_t base = m->address;
  uint32_t number = (uint32_t)((uint64_t)(line - t->block->shared) / LINE % 8);
  for (int d = 1; d < DIMS; d++) there = there && at[d] >= 0 && at[d] < (int64_t)m->sizes[d];
  for (int d = 1; d < DIMS; d++) base += (uint64_t)at[d] * m->strides[d - 1];
  for (uint32_t i = 0; i < m->box[0]; i++) {
    int64_t x = at[0] + i;
    uint8_t *here = line + (i * item / PIECE ^ number) * PIECE + i * item % PIECE, *element = NULL;
    if (there && x >= 0 && x < (int64_t)m->sizes[0]) {
      element = ptx_at(t, ins, PTX_GLOBAL, base + (uint64_t)x * item, item, stores ? PTX_WRITE : PTX_READ);
      if (!element) return false;
    }
    if (!stores) memset(here, 0, item);
    if (element) memcpy(stores ? element : here, stores ? here : element, item);
    if (!stores && m->type == TYPE_TF32) round_to_tf32(here);
  }
  return true;
}

/* A box between the tensor and shared memory: how many bytes, 0: the thread has failed. */
static uint32_t move_box(ptx_thread *t, const ptx_ins *ins, bool stores) {
  tensor_map m;
  const uint32_t *slots = t->function->lists + ins->b;
  int64_t at[DIMS];
  if (!find_map(t, ins, &m)) return 0;
  int64_t byte = (int64_t)(int32_t)U32(t->r[slots[0]]) * bytes_of_type(m.type);
  if (byte % PIECE != 0) {
    ptx_fault(t, ins, CUDA_ERROR_ILLEGAL_INSTRUCTION, "a box begins at byte %lld of a line, inside of a piece",
              (long long)byte);
    return 0;
  }
  uint32_t lines = m.box[1] * m.box[2];
  uint8_t *shared = shared_at(t, ins, U32(t->r[ins->d]), lines * LINE, LINE);
  for (uint32_t line = 0; shared && line < lines; line++) {
    for (int d = 0; d < DIMS; d++) at[d] = (int32_t)U32(t->r[slots[d]]);
    at[1] += line % m.box[1], at[2] += line / m.box[1];
    if (!move_row(t, ins, &m, at, shared + line * LINE, stores)) return 0;
  }
  return shared ? lines * m.box[0] * bytes_of_type(m.type) : 0;
}

bool ptx_bulk_copy(ptx_thread *t, const ptx_ins *ins) {
  barrier b;
  uint8_t *end = shared_at(t, ins, U32(t->r[ins->c]), sizeof b, sizeof b);
  uint32_t bytes = end ? move_box(t, ins, false) : 0;
  if (!bytes) return false;
  memcpy(&b, end, sizeof b);
  b.bytes -= (int32_t)bytes;
  put(end, &b);
  return true;
}

bool ptx_bulk_store(ptx_thread *t, const ptx_ins *ins) { return move_box(t, ins, true); }
