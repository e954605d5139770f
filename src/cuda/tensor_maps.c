/* Asking the driver for maps. Tests: tests/cuda/test_products.py. */
#include "cuda/tensor_maps.h"

#include <string.h>

#include "cuda/driver.h"

/* Their numbers in the driver's enumerations. */
enum { TYPE_U8 = 0, TYPE_S32 = 3, TYPE_F16 = 6, TYPE_F32 = 7, TYPE_BF16 = 9, TYPE_TF32 = 11 };
enum { INTERLEAVE_NONE = 0, SWIZZLE_128 = 3, PROMOTE_256 = 3, FILL_ZEROS = 0 };
enum { BOX_BYTES = 128, PIECE = 16 };

static int type_of(const wk__cuda_matrices *m) {
  switch (m->element) {
    case WK__ELEMENT_F16:
      return TYPE_F16;
    case WK__ELEMENT_BF16:
      return TYPE_BF16;
    case WK__ELEMENT_F32:
      return m->rounds ? TYPE_TF32 : TYPE_F32;
    case WK__ELEMENT_S32:
      return TYPE_S32;
    default:
      return TYPE_U8;
  }
}

static bool encode(const wk__cuda_matrices *m, uint64_t address, CUtensorMap *out) {
  /* A dim of one element may have any stride, but not 0. */
  const uint64_t sizes[] = {(uint64_t)m->fast, (uint64_t)m->slow, (uint64_t)m->batch};
  const uint64_t strides[] = {(uint64_t)(m->slow > 1 ? m->slow_bytes : PIECE),
                              (uint64_t)(m->batch > 1 ? m->batch_bytes : PIECE)};
  const uint32_t steps[] = {1, 1, 1};
  const uint32_t box[] = {BOX_BYTES / (uint32_t)wk__ptx_element_bytes(m->element), (uint32_t)m->lines, 1};
  for (int d = 0; d < 2; d++)
    if (strides[d] == 0 || strides[d] % PIECE != 0) return false;
  return wk__cuda.cuTensorMapEncodeTiled(out, type_of(m), 3, address, sizes, strides, box, steps, INTERLEAVE_NONE,
                                         SWIZZLE_128, PROMOTE_256, FILL_ZEROS) == CUDA_SUCCESS;
}

/* Whether maps of two addresses differ in their first words alone, which are the addresses. */
static bool says_address(const wk__cuda_matrices *m, const CUtensorMap *map) {
  static _Atomic(int) known; /* 1: yes, 2: no */
  CUtensorMap elsewhere;
  if (known) return known == 1;
  if (!encode(m, m->address + ((uint64_t)1 << 32) + PIECE, &elsewhere)) return false;
  bool does = map->words[0] == m->address && elsewhere.words[0] == m->address + ((uint64_t)1 << 32) + PIECE &&
              memcmp(map->words + 1, elsewhere.words + 1, sizeof *map - sizeof *map->words) == 0;
  known = does ? 1 : 2;
  return does;
}

bool wk__cuda_tensor_map(const wk__cuda_matrices *m, int64_t out_words[WK__TENSOR_MAP_WORDS]) {
  CUtensorMap map;
  if (!wk__cuda.cuTensorMapEncodeTiled || !encode(m, m->address, &map) || !says_address(m, &map)) return false;
  memcpy(out_words, map.words, sizeof map);
  return true;
}
