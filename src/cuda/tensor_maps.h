/* Tensor maps: what the copy engine of sm_90 is told of a matrix, so that it copies boxes of it into shared memory
 * (cp.async.bulk.tensor).
 *
 * A map is made by the driver, is 16 words of a kernel's arguments, and says the matrix's address in its first one and
 * nowhere else. The driver does not promise that, so it is asked: where it is otherwise there are no maps. So a graph's
 * launch is told another address as any argument is. */
#ifndef WICK_CUDA_TENSOR_MAPS_H
#define WICK_CUDA_TENSOR_MAPS_H

#include <stdbool.h>
#include <stdint.h>

#include "codegen/ptx_product.h"

enum { WK__TENSOR_MAP_WORDS = 16 };

/* A batch of matrices: (batch, slow, fast), rows of contiguous elements. Copied as boxes of 128 bytes and `lines` rows,
 * a row's 16-byte piece c at c ^ row % 8. */
typedef struct wk__cuda_matrices {
  uint64_t address; /* a multiple of 16 */
  int64_t fast, slow, batch, slow_bytes, batch_bytes;
  int lines; /* at most 256 */
  wk__ptx_element element;
  bool rounds; /* f32 becomes TF32 on its way */
} wk__cuda_matrices;

/* false: the driver has none, or not of these. */
bool wk__cuda_tensor_map(const wk__cuda_matrices *matrices, int64_t out_words[WK__TENSOR_MAP_WORDS]);

#endif
