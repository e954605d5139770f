/* Products by our own kernels on tensor cores (codegen/ptx_product.h): tensor_cores.c gives them, also those of bytes,
 * behind.c those with a nest behind them, and windows.c those that are convolutions. */
#ifndef WICK_CUDA_TENSOR_CORES_H
#define WICK_CUDA_TENSOR_CORES_H

#include "codegen/ptx_product.h"
#include "cuda/internal.h"
#include "cuda/products.h"
#include "cuda/recording.h"

/* A product on its way to its kernel. */
typedef struct wk__cuda_cores {
  wk__cuda_stream *stream;
  wk__ptx_product kind;
  int64_t args[WK__PRODUCT_ARGS];
  int64_t windows[WK__WINDOW_ARGS]; /* of a kind that has some: convolutions (windows.c) */
  int64_t tiles, splits;
} wk__cuda_cores;

/* windows: which operand is windows of images, whose arguments the caller sets. false: the device has no tensor cores,
 * they may not be used for such floats, or an operand does not lie in rows of 16-byte pieces. */
bool wk__cuda_cores_prepare(wk__cuda_cores *out, wk__cuda_stream *stream, const wk__cuda_product *product,
                            wk__ptx_windows_of windows);
/* Of a kind whose operands the copy engine brings, when all else is set: maps of them. false: there are none of these.
 */
bool wk__cuda_cores_set_maps(wk__cuda_cores *cores, const wk__cuda_product *product);
/* How many blocks go over the tiles, then. */
int wk__cuda_cores_blocks(const wk__cuda_cores *cores);
/* Which arguments are addresses of the caller's: how many. */
int wk__cuda_cores_addresses(const wk__cuda_cores *cores, wk__cuda_address out[WK__PRODUCT_ARGS]);
/* The thread is in the device. */
WK_MUST_USE wk_status wk__cuda_cores_give(wk__cuda_cores *cores, const wk__cuda_product *product);
/* *out_done false: the device has none of these, or operands are not in pieces along k. */
WK_MUST_USE wk_status wk__cuda_cores_run_bytes(wk__cuda_stream *stream, const wk__cuda_byte_product *product,
                                               bool *out_done);
/* No parts of k, whatever was found to be best. */
void wk__cuda_cores_keep_whole(wk__cuda_cores *cores, const wk__cuda_product *product);

#endif
