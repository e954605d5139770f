/* Launches of nests whose sums are exact (exact_sums.h): the two runs and the last step, with the memory between them.
 *
 * The memory of a launch: for each access that adds floats magnitudes, then sums, of all places that its buffer spans.
 * Tests: tests/cuda/test_deterministic.py. */
#include "codegen/exact_sums.h"

#include "base/thread.h"
#include "cuda/native_kernels.h"
#include "cuda/shape.h"
#include "cuda/units.h"

/* ---- what is added to ---- */

static bool adds_floats(const wk__nest *nest, const wk__instr *i) {
  return i->op == WK__LOOP_store_add && wk__ptx_is_exact(nest->buffers[nest->accesses[i->extra].buffer].dtype);
}

bool wk__cuda_sums_exactly(const wk__nest *nest) {
  if (!wk__cuda_switches.deterministic) return false;
  for (int v = 0; v < nest->instr_count; v++)
    if (adds_floats(nest, &nest->instrs[v])) return true;
  return false;
}

static int64_t up(int64_t bytes) { return wk__ceil_div(bytes, 256) * 256; }
static int64_t largest_bytes(int64_t places) { return up(4 * places); }
static int64_t sums_bytes(int64_t places, int dtype) { return up((dtype == WK_FLOAT64 ? 16 : 8) * places); }
static int dtype_of(const wk__nest *nest, int access) { return nest->buffers[nest->accesses[access].buffer].dtype; }

/* Where the memory of an access lies; of one behind the last: how much there is. */
static int64_t offset_of(const wk__nest *nest, const wk__binding *b, const wk__launch *launch, int access) {
  int64_t at = 0;
  for (int v = 0; v < nest->instr_count; v++) {
    if (!adds_floats(nest, &nest->instrs[v])) continue;
    int added = nest->instrs[v].extra;
    if (added == access) return at;
    int64_t places = wk__shape_span_of(nest, b, launch, added).places;
    at += largest_bytes(places) + sums_bytes(places, dtype_of(nest, added));
  }
  return at;
}

/* No more numbers come to a place than there are elements. */
static int64_t bits_of(const wk__binding *b) {
  int64_t elements = wk__shape_count(b, 0, b->p + b->r), bits = WK__EXACT_BITS;
  for (; elements > 1; elements = (elements + 1) / 2) bits--;
  return bits;
}

int64_t wk__cuda_exact_arg(const wk__nest *nest, const wk__binding *b, const wk__launch *launch, const wk__ptx_arg *arg,
                           const void *memory) {
  if (arg->kind == WK__PTX_BITS) return bits_of(b);
  wk__shape_span span = wk__shape_span_of(nest, b, launch, arg->a);
  if (arg->kind == WK__PTX_PLACES) return (int64_t)(uintptr_t)span.from;
  int64_t at = (int64_t)(uintptr_t)memory + offset_of(nest, b, launch, arg->a);
  return arg->kind == WK__PTX_LARGEST ? at : at + largest_bytes(span.places);
}

/* ---- launches ---- */

static wk_status end(wk__cuda_stream *s, const wk__nest *nest, const wk__binding *b, const wk__launch *launch,
                     int access, const char *memory) {
  int dtype = dtype_of(nest, access);
  const char *kernel = dtype == WK_FLOAT64   ? "kernel_end_f64"
                       : dtype == WK_FLOAT32 ? "kernel_end_f32"
                       : dtype == WK_FLOAT16 ? "kernel_end_f16"
                                             : "kernel_end_bf16";
  wk__shape_span at = wk__shape_span_of(nest, b, launch, access);
  const char *largest = memory + offset_of(nest, b, launch, access);
  wk__exact_end words = {.out = (uint64_t)(uintptr_t)at.from,
                         .largest = (uint64_t)(uintptr_t)largest,
                         .sums = (uint64_t)(uintptr_t)(largest + largest_bytes(at.places)),
                         .places = at.places,
                         .bits = bits_of(b)};
  enum { MOST_BLOCKS = 1 << 16 };
  return wk__cuda_give_unit(
      s, &(wk__cuda_unit_call){.module = WK__CUDA_EXACT_SUMS,
                               .kernel = kernel,
                               .blocks = wk__min(wk__ceil_div(at.places, WK__EXACT_THREADS), MOST_BLOCKS),
                               .threads = WK__EXACT_THREADS,
                               .words = &words,
                               .word_count = sizeof words / 8,
                               .address_count = WK__EXACT_ADDRESSES});
}

static wk_status run(const wk__cuda_kernel *const kernels[2], wk__cuda_stream *s, const wk__nest *nest,
                     const wk__binding *b, const wk__launch *launch, void *memory, int64_t bytes) {
  WK_TRY(wk__cuda_fill(&s->head, memory, 0, bytes));
  for (int n = 0; n < 2; n++) WK_TRY(wk__cuda_give_kernel(kernels[n], s, b, launch, memory));
  for (int v = 0; v < nest->instr_count; v++)
    if (adds_floats(nest, &nest->instrs[v])) WK_TRY(end(s, nest, b, launch, nest->instrs[v].extra, memory));
  return WK_OK;
}

wk_status wk__cuda_exact_launch(wk__cuda_native *native, wk__cuda_stream *s, const wk__nest *nest, const wk__binding *b,
                                const wk__launch *launch, bool *out_done) {
  wk__ptx_shape shape;
  const wk__cuda_kernel *kernels[2] = {NULL, NULL};
  bool can = wk__shape_of(nest, s->device, b, &shape) && wk__shape_whole(shape.mode) == shape.mode;
  for (int n = 0; can && n < 2; n++) {
    shape.adds = n == 0 ? WK__PTX_LARGEST_ADDED : WK__PTX_ADDS_EXACTLY;
    kernels[n] = wk__cuda_kernel_now(native, nest, s, &shape);
    can = kernels[n] && wk__cuda_kernel_fits(kernels[n], b);
  }
  *out_done = can;
  if (!can) return WK__CUDA_ALERT("a sum by index");
  int64_t capacity, bytes = offset_of(nest, b, launch, -1);
  void *memory = wk__cuda_allocate(&s->head, bytes, &capacity);
  if (!memory) return wk_error_category();
  wk_status status = run(kernels, s, nest, b, launch, memory, bytes);
  wk__cuda_release(&s->head, memory, capacity);
  return status;
}

wk_status wk__cuda_alert(const char *error, const char *warning) {
  if (!wk__cuda_switches.deterministic) return WK_OK;
  if (!wk__cuda_switches.deterministic_warns) return wk_fail(WK_RUNTIME_ERROR, "%s", error);
  wk__thread.warning = warning;
  return WK_OK;
}
