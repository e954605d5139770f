/* Products with a nest behind them (compile/fuse/product_fit.c). One kernel does both where that is faster
 * (codegen/ptx_product.h), else there are two, as there are until it has been compiled.
 *
 * In: a call of mm or linear of small floats or f32, and the nest's launch over rows and columns of its result.
 * Invariant: the bits do not depend on whether the kernel is there yet: the product alone sums in the same order.
 * Tests: tests/cuda/test_behind.py. */
#include <stdio.h>

#include "cuda/code.h"
#include "cuda/cublas.h"
#include "cuda/kernels.h"
#include "cuda/native_kernels.h"
#include "cuda/shape.h"
#include "cuda/tensor_cores.h"
#include "cuda/tier0.h"
#include "cuda/written.h"
#include "device/device.h"
#include "ops/internal.h"

typedef struct run {
  wk__cuda_stream *stream;
  wk__cuda_product product;
  wk__cuda_cores cores;
  const wk__fused_launch *fused;
  wk__binding binding;
} run;

/* The result's way to memory and back is saved, which is less than the work takes where it is an exponential or the
 * like: the warps that multiply are too few to compute as fast as a kernel of its own. Measured on an H100, 8192 x 3072
 * x 768, as one and as two kernels, microseconds: relu 68 and 93, an addition 88 and 110, gelu 109 and 100, its
 * gradient 153 and 117; 8192 x 4096 x 2048, relu 195 and 226, an addition 219 and 260. The library's products of f32 as
 * TF32 were not measured beside ours, and keep theirs. */
static bool is_worth_it(const run *r) {
  if (wk__cuda_products_are("apart")) return false;
  return !wk__cublas_is_there() || (r->product.type != WK__MEMORY_F32 && !wk__cuda_calls_functions(r->fused->code));
}

/* ---- whether the nest goes with pieces of the product's tiles ---- */

static uint64_t taken_by(const wk__nest *nest, const wk__fused_launch *f) {
  uint64_t taken = 0;
  for (int a = 0; a < nest->access_count; a++) taken |= (uint64_t)(f->result >> nest->accesses[a].buffer & 1) << a;
  return taken;
}

static bool lies_as_result(const wk__binding *b, int access) {
  return b->stride[access][0] == b->size[1] && b->stride[access][1] == 1 && b->start[access] == 0;
}

/* Neighbours along a row come and go as 16-byte pieces. */
static bool is_in_pieces(const wk__nest *nest, const wk__binding *b, int access) {
  int64_t item = wk__shape_item(nest, access), piece = wk__min(WK__PTX_PIECE * item, 16);
  if (b->stride[access][1] != 1 || item == 1) return true; /* by elements */
  return (int64_t)(uintptr_t)b->base[access] % piece == 0 && b->start[access] * item % piece == 0 &&
         b->stride[access][0] * item % piece == 0;
}

static bool goes_with_pieces(const run *r, const wk__nest *nest, uint64_t taken) {
  const wk__binding *b = &r->binding;
  if (b->p != 2 || b->r != 0 || b->size[0] != r->product.m || b->size[1] != r->product.n || !taken) return false;
  if (b->walker_count > WK__MAX_WALKERS) return false;
  for (int a = 0; a < b->access_count; a++) {
    if (taken >> a & 1 ? !lies_as_result(b, a) : !is_in_pieces(nest, b, a)) return false;
    if (nest->accesses[a].has_indirect || nest->accesses[a].may_leave) return false;
  }
  return true;
}

static bool product_fits(run *r) {
  return r->product.batch == 1 && wk__cuda_cores_prepare(&r->cores, r->stream, &r->product, WK__WINDOWS_OF_NONE) &&
         !r->cores.kind.split && r->cores.kind.vectors && r->product.n % WK__PTX_PIECE == 0;
}

/* ---- the one kernel ---- */

static bool is_bulk(const run *r) { return wk__ptx_product_is_bulk(&r->cores.kind); }

static void note_time(const run *r, const wk__nest *nest, CUevent begin) {
  char mode[96], name[WK__CUDA_NAME_BYTES];
  const wk__cuda_product *p = &r->product;
  (void)snprintf(mode, sizeof mode, "behind a product %lldx%lldx%lld", (long long)p->m, (long long)p->n,
                 (long long)p->k);
  wk__cuda_nest_name(nest, mode, name, sizeof name);
  wk__cuda_time_end(r->stream, begin, name);
}

static wk_status give(run *r, const wk__nest *nest, const wk__cuda_kernel *k) {
  int64_t words[WK__PRODUCT_ARGS + WK__PTX_MAX_ARGS];
  wk__cuda_address addresses[WK__PRODUCT_ARGS + WK__PTX_MAX_ARGS];
  int count = wk__cuda_cores_addresses(&r->cores, addresses);
  int64_t blocks = is_bulk(r) ? wk__cuda_cores_blocks(&r->cores) : r->cores.tiles;
  memcpy(words, r->cores.args, sizeof r->cores.args);
  count += wk__cuda_collect_args(k, r->stream, &r->binding, r->fused->whole, NULL, words + WK__PRODUCT_ARGS,
                                 WK__PRODUCT_ARGS, addresses + count);
  CUevent begin;
  wk__cuda_time_begin(r->stream, &begin);
  wk_status status = wk__cuda_give(r->stream, &(wk__cuda_work){.function = k->function,
                                                               .held = k->held,
                                                               .grid = {(unsigned)blocks, 1, 1},
                                                               .threads = (unsigned)k->threads,
                                                               .shared = (unsigned)k->shared,
                                                               .words = words,
                                                               .word_count = WK__PRODUCT_ARGS + k->arg_count,
                                                               .addresses = addresses,
                                                               .address_count = count});
  if (WK_UNLIKELY(begin)) note_time(r, nest, begin);
  return status;
}

/* *out_done false: it cannot be, or is not there yet. */
static wk_status run_as_one(run *r, bool *out_done) {
  const wk__nest *nest = wk__cuda_nest_of(r->fused->code);
  uint64_t taken = taken_by(nest, r->fused);
  wk__ptx_shape shape;
  *out_done = false;
  WK_TRY(wk__cuda_bind(r->fused->code, r->fused->whole, &r->binding));
  if (!goes_with_pieces(r, nest, taken)) return WK_OK;
  if (wk__cuda_is_interpreted(nest, r->stream->device, &r->binding, r->fused->whole)) return WK_OK;
  wk__shape_of_pieces(r->stream->device, &r->binding, &shape);
  r->cores.kind.behind = true, r->cores.kind.keeps = r->fused->kept;
  if (is_bulk(r) && !wk__cuda_cores_set_maps(&r->cores, &r->product)) return WK_OK;
  wk__cuda_behind behind = {.product = r->cores.kind, .taken = taken};
  const wk__cuda_kernel *k =
      wk__cuda_kernel_for(wk__cuda_native_of(r->fused->code), nest, r->stream, &r->binding, &shape, &behind);
  if (!k) return WK_OK;
  *out_done = true;
  return give(r, nest, k);
}

/* ---- both ---- */

static wk_status run_both(run *r, wk_tensor *out, wk__stream *stream) {
  bool done = false;
  if (is_worth_it(r) && product_fits(r)) {
    WK_TRY(run_as_one(r, &done));
    r->cores.kind.behind = r->cores.kind.keeps = false;
    if (!done) WK_TRY(wk__cuda_cores_give(&r->cores, &r->product));
  } else {
    WK_TRY(wk__cuda_multiply(out, &r->product));
  }
  return done ? wk__cuda_check_work(r->stream) : wk__cuda_launch(stream, r->fused->code, r->fused->whole, 1);
}

wk_status wk__cuda_run_product(wk__stream *stream, const wk_op *op, const wk_value *args, wk_tensor *out,
                               const wk__fused_launch *fused) {
  run r = {.stream = wk__cuda_stream_of(stream), .fused = fused};
  wk_value rows = {0};
  WK_TRY(wk__cuda_enter(r.stream->device));
  wk_status status = WK_OK;
  if (op == WK__OP(linear))
    status = wk__cuda_describe_linear(args, out, &r.product, &rows);
  else
    r.product = wk__cuda_describe_mm(args, out);
  wk__cuda_set_type(&r.product, out);
  if (status == WK_OK) status = run_both(&r, out, stream);
  wk_value_release(&rows);
  return status;
}
