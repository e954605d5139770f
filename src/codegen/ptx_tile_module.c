/* A tile kernel's module: its loads ahead, layouts, lines, and what stands around them.
 *
 * In: a kernel, a kind. Out: PTX, with as many stages of loops as shared memory has room for. Test:
 * tests/cuda/test_tiles.py. */
#include "codegen/ptx_groups.h"
#include "codegen/ptx_tile_internal.h"

static int widest_vector(const tile_writer *w) {
  int bits = 0;
  for (wk__tile v = 1; v < w->k->count; v++) {
    const wk__tile_instr *i = instr_at(w, v);
    if ((i->op != WK__TILE_load && i->op != WK__TILE_store) || type_at(w, i->operands[0])->ndim == 0) continue;
    int size = wk__dtypes[type_at(w, i->operands[0])->dtype].size;
    bits = (int)wk__max(bits, size == 1 ? 2 : log2_of(16 / size));
  }
  return bits;
}

static wk_status write(tile_writer *w) {
  w->vector_bits = widest_vector(w);
  WK_TRY(choose_layouts(w));
  w->tid = wk__ptx_special(&w->text, "%tid.x");
  begin_shared(w);
  for (int n = 1; n <= w->layout_count; n++) w->place[n] = place_of(w, &w->layouts[n]);
  int layouts = w->layout_count;
  find_steps(w);
  for (wk__tile v = 1; v < w->k->count; v++)
    w->approximates |= instr_at(w, v)->op == WK__TILE_dot && uses_tensor_cores(w, v);
  w->done = w->text.labels++;
  emit_all(w);
  wk__ptx_label(&w->text, w->done);
  SAY("ret");
  if (w->unsupported || w->layout_count != layouts)
    return wk_fail(WK_NOT_IMPLEMENTED, "tile kernels on CUDA: an operation of '%s' is not there for its dtype",
                   w->k->name);
  return WK_OK;
}

/* Each once: several functions may read one table. */
static void append_tables(const tile_writer *w, wk__string *s) {
  for (int n = 0; n < wk__ptx_function_count; n++) {
    bool first = w->tables >> n & 1;
    for (int m = 0; m < n && first; m++)
      first = !(w->tables >> m & 1) || strcmp(wk__ptx_functions[m].table, wk__ptx_functions[n].table) != 0;
    if (first) wk__string_append(s, wk__ptx_functions[n].table);
  }
}

static char *finish(tile_writer *w) {
  wk__string s = {0};
  char *code = wk__string_take(&w->text.code);
  if (!code) return NULL;
  const wk__ptx_text *t = &w->text;
  int capability = w->kind->capability;
  if (w->has_groups)
    wk__string_append(&s, ".version 8.0\n.target sm_90a\n.address_size 64\n");
  else
    wk__string_printf(&s, ".version 7.8\n.target sm_%d\n.address_size 64\n",
                      capability < 80   ? 70
                      : capability < 90 ? 80
                                        : 90);
  append_tables(w, &s);
  wk__string_append(&s, ".extern .shared .align 128 .b8 memory[];\n");
  wk__string_printf(&s, ".visible .entry wick(.param .align 8 .b8 args[%d])\n.maxntid %d\n{\n",
                    8 * (int)wk__max(w->k->parameters, 1), w->threads);
  wk__string_printf(&s, "\t.reg .b32 %%r<%d>;\n\t.reg .b64 %%d<%d>;\n\t.reg .pred %%p<%d>;\n\t.reg .b16 %%h<%d>;\n",
                    t->words + 1, t->longs + 1, t->predicates + 1, t->halves + 1);
  wk__string_append(&s, "\t.reg .b32 %xa, %xb, %xr;\n\t.reg .b64 %ya, %yb, %yr;\n");
  wk__string_append(&s, code);
  wk__string_append(&s, "}\n");
  wk__free(code);
  return wk__string_take(&s);
}

static bool allocate(tile_writer *w) {
  size_t n = (size_t)w->k->count;
  w->own = wk__alloc_zeroed(n), w->free = wk__alloc_zeroed(n), w->order = wk__alloc_zeroed(n),
  w->step = wk__alloc_zeroed(n), w->ring_of = wk__alloc_zeroed(n), w->stage = wk__alloc_zeroed(n);
  w->kept = wk__alloc_zeroed(n * sizeof *w->kept), w->sums_of = wk__alloc_zeroed(n * sizeof *w->sums_of);
  w->variant_count = wk__alloc_zeroed(n), w->variants = wk__alloc_zeroed(n * sizeof *w->variants);
  return w->own && w->free && w->order && w->step && w->ring_of && w->stage && w->kept && w->sums_of &&
         w->variant_count && w->variants;
}

static void release(tile_writer *w) {
  wk__string_release(&w->text.code);
  wk__free(w->own);
  wk__free(w->free);
  wk__free(w->order);
  wk__free(w->step);
  wk__free(w->ring_of);
  wk__free(w->stage);
  wk__free(w->kept);
  wk__free(w->sums_of);
  wk__free(w->variant_count);
  wk__free(w->variants);
}

/* The kernel with its loads ahead, as far as so many stages allow. */
static wk_status load_ahead(tile_writer *w, wk__tile_kernel *k, int stages) {
  uint8_t *rounds = wk__alloc_zeroed((size_t)k->count);
  if (!rounds) return WK_OUT_OF_MEMORY;
  w->k = k;
  wanted_rounds(w, rounds, stages);
  wk_status status = wk__tile_load_ahead(k, rounds);
  wk__free(rounds);
  return status;
}

static wk_status write_with(const wk__tile_kernel *kernel, const wk__ptx_tile_kind *kind, int stages,
                            wk__ptx_tile_kernel *out) {
  int looks = 0;
  *out = (wk__ptx_tile_kernel){.threads = 32 * kernel->warps};
  tile_writer *w = wk__alloc_zeroed(sizeof *w);
  wk__tile_kernel *k = w ? wk__tile_copy(kernel) : NULL;
  if (!k) {
    wk__free(w);
    return WK_OUT_OF_MEMORY;
  }
  w->kind = kind, w->threads = out->threads, w->thread_bits = log2_of(out->threads), w->looks = &looks;
  wk_status status = wk__tile_add_in_products(k);
  if (status == WK_OK) status = load_ahead(w, k, stages);
  if (status == WK_OK) status = allocate(w) ? write(w) : WK_OUT_OF_MEMORY;
  if (status == WK_OK && !(out->text = finish(w))) status = WK_OUT_OF_MEMORY;
  out->shared = w->shared + (w->has_groups ? WK__GROUP_ATOM : 0);
  release(w);
  wk__free(w);
  wk__tile_release(k);
  return status;
}

wk_status wk__ptx_write_tile(const wk__tile_kernel *kernel, const wk__ptx_tile_kind *kind, wk__ptx_tile_kernel *out) {
  for (int stages = (int)wk__min(kernel->stages, WK__TILE_MOST_AHEAD + 1);; stages--) {
    WK_TRY(write_with(kernel, kind, stages, out));
    if (out->shared <= kind->shared_most || stages == 1) return WK_OK;
    wk__free(out->text);
    out->text = NULL;
  }
}
