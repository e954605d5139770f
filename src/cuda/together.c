/* Launches of tier 1 that an operator gives for all its tensors, as few. In: bound launches. Out: launches of kernels
 * whose arguments are a table in memory. Tests: tests/cuda/test_ptx.py. */
#include <stdio.h>

#include "cuda/native_kernels.h"
#include "cuda/shape.h"

/* One launch for many small ones of a kernel: their arguments in a table, and by block whose it is. */
typedef struct table {
  const wk__cuda_kernel *kernel;
  int64_t launches, blocks, words; /* words: of a line */
  int64_t address_count;
  int64_t lines[WK__CUDA_TABLE_BYTES / 8];
  uint16_t of_block[WK__CUDA_TABLE_BLOCKS];
  wk__cuda_address addresses[WK__CUDA_TABLE_BYTES / 8]; /* in lines */
} table;

enum { TABLES = 4 };
struct wk__cuda_together {
  table *tables[TABLES]; /* one a kernel; NULL: none yet */
};

wk__cuda_together *wk__cuda_together_begin(void) { return wk__alloc_zeroed(sizeof(wk__cuda_together)); }

static wk_status fill_table(table *t, wk__cuda_stream *s, char *memory, int64_t bytes, int64_t blocks) {
  WK_TRY(wk__cuda_give(s, &(wk__cuda_work){.to = memory,
                                           .words = t->lines,
                                           .word_count = (int)(bytes / 8),
                                           .addresses = t->addresses,
                                           .address_count = (int)t->address_count}));
  return wk__cuda_give(s,
                       &(wk__cuda_work){.to = memory + bytes, .words = t->of_block, .word_count = (int)(blocks / 8)});
}

static wk_status launch_table(const table *t, wk__cuda_stream *s, const char *memory, int64_t bytes) {
  uint64_t address = (uint64_t)(uintptr_t)memory;
  int64_t args[WK__PTX_TOGETHER_ARGS] = {
      [WK__PTX_TABLE] = (int64_t)address, [WK__PTX_LINE] = 8 * t->words, [WK__PTX_BLOCKS] = (int64_t)address + bytes};
  const wk__cuda_address addresses[] = {{WK__PTX_TABLE, address}, {WK__PTX_BLOCKS, address}};
  return wk__cuda_give(s, &(wk__cuda_work){.function = t->kernel->function,
                                           .held = t->kernel->held,
                                           .grid = {(unsigned)t->blocks, 1, 1},
                                           .threads = 256,
                                           .waits = wk__ptx_waits(t->kernel->shape.capability),
                                           .words = args,
                                           .word_count = WK__PTX_TOGETHER_ARGS,
                                           .addresses = addresses,
                                           .address_count = WK_COUNT(addresses)});
}

static wk_status give_table(table *t, wk__cuda_stream *s) {
  int64_t capacity, bytes = 8 * t->words * t->launches, blocks = wk__ceil_div(2 * t->blocks, 8) * 8;
  char *memory = wk__cuda_allocate_filled(s, bytes + blocks, &capacity);
  if (!memory) return wk_error_category();
  memset((char *)t->of_block + 2 * t->blocks, 0, (size_t)(blocks - 2 * t->blocks));
  CUevent begin;
  wk__cuda_time_begin(s, &begin);
  wk_status status = fill_table(t, s, memory, bytes, blocks);
  if (status == WK_OK) status = launch_table(t, s, memory, bytes);
  if (WK_UNLIKELY(begin)) {
    char mode[64], name[WK__CUDA_NAME_BYTES];
    (void)snprintf(mode, sizeof mode, "pointwise, %lld together/%d", (long long)t->launches, t->kernel->shape.each);
    wk__cuda_nest_name(t->kernel->nest, mode, name, sizeof name);
    wk__cuda_time_end(s, begin, name);
  }
  wk__cuda_release(&s->head, memory, capacity);
  return status;
}

static wk_status empty_table(table *t, wk__cuda_stream *s) {
  wk_status status = t->launches ? give_table(t, s) : WK_OK;
  t->launches = t->blocks = t->address_count = 0;
  return status;
}

wk_status wk__cuda_together_end(wk__cuda_together *together, wk__cuda_stream *s) {
  wk_status status = WK_OK;
  for (int n = 0; n < TABLES && together->tables[n]; n++) {
    if (status == WK_OK) status = empty_table(together->tables[n], s);
    wk__free(together->tables[n]);
  }
  wk__free(together);
  return status;
}

/* The kernel's table, or the last one, emptied; NULL with the error set. */
static table *table_of(wk__cuda_together *together, const wk__cuda_kernel *k, wk__cuda_stream *s) {
  int n = 0;
  while (n < TABLES - 1 && together->tables[n] && together->tables[n]->kernel != k) n++;
  table *t = together->tables[n];
  if (!t) {
    t = together->tables[n] = wk__alloc(sizeof *t);
    if (!t) return NULL;
    t->launches = t->blocks = t->address_count = 0;
  } else if (t->kernel != k && empty_table(t, s) != WK_OK) {
    return NULL;
  }
  t->kernel = k;
  t->words = k->arg_count + 1;
  return t;
}

wk_status wk__cuda_together_add(wk__cuda_together *together, wk__cuda_native *native, wk__cuda_stream *s,
                                const wk__nest *nest, const wk__binding *b, const wk__launch *launch, bool *out_done) {
  wk__ptx_shape shape;
  *out_done = false;
  if (wk__cuda_is_interpreted(nest, s->device, b, launch)) return WK_OK;
  if (!wk__shape_of(nest, s->device, b, &shape) || shape.mode != WK__PTX_POINTWISE) return WK_OK;
  shape.together = 1;
  const wk__cuda_kernel *k = wk__cuda_kernel_for(native, nest, s, b, &shape, NULL);
  int64_t blocks = k ? wk__cuda_blocks_of(k, b) : 0;
  if (!k || blocks > WK__CUDA_TABLE_BLOCKS) return WK_OK;
  table *t = table_of(together, k, s);
  if (!t) return wk_error_category();
  if (t->blocks + blocks > WK__CUDA_TABLE_BLOCKS || (t->launches + 1) * t->words > (int64_t)WK_COUNT(t->lines))
    WK_TRY(empty_table(t, s));
  int64_t *line = t->lines + t->launches * t->words;
  line[0] = t->blocks;
  t->address_count += wk__cuda_collect_args(k, s, b, launch, NULL, line + 1, (uint32_t)(line + 1 - t->lines),
                                            t->addresses + t->address_count);
  for (int64_t i = 0; i < blocks; i++) t->of_block[t->blocks + i] = (uint16_t)t->launches;
  t->blocks += blocks;
  t->launches++;
  *out_done = true;
  return WK_OK;
}
