/* Positions, loads and stores of a kernel in PTX. Test: tests/cuda/test_ptx.py.
 *
 * Every walker has a 64-bit register %w<number>: of an access the address of the thread's first element, of an index
 * expression or a bound its value there; long rows have %s<number> for the step at hand. What moves with the element is
 * an offset of the instruction where the stride is known. */
#include "codegen/ptx_rows.h"

#include <stdio.h>

typedef struct place {
  reg_name reg;
  int offset; /* bytes behind it, or 1s of a number */
} place;

static int item_of(const ptx_writer *w, int walker) {
  if (walker >= w->nest->access_count) return 1;
  return (int)wk__dtypes[w->nest->buffers[w->nest->accesses[walker].buffer].dtype].size;
}
static bool is_access(const ptx_writer *w, int walker) { return walker < w->nest->access_count; }
static bool by_lanes(const ptx_writer *w) { return w->shape->mode != WK__PTX_POINTWISE && !ptx_is_tiles(w); }

static bool is_short(const ptx_writer *w) { return w->shape->mode == WK__PTX_SHORT_ROWS; }

int ptx_distance(const ptx_writer *w) {
  return is_short(w) || ptx_is_scans(w) ? 1 : by_lanes(w) ? 32 : ptx_is_tiles(w) ? WK__PTX_TILE_WARPS : 1;
}
/* The loop that elements go along; of several reduction loops the last one. */
static int element_loop(const ptx_writer *w) { return by_lanes(w) ? w->shape->p + w->shape->r - 1 : ptx_inner_loop(w); }

static bool moves(const ptx_writer *w, int walker) {
  if (!by_lanes(w)) return w->shape->p && wk__ptx_move(w->shape, walker, element_loop(w)) != WK__PTX_STILL;
  for (int d = 0; d < w->shape->r; d++)
    if (wk__ptx_move(w->shape, walker, w->shape->p + d) != WK__PTX_STILL) return true;
  return false;
}

void ptx_add_moved(ptx_writer *w, const char *to, int walker, int loop, const char *coordinate) {
  int move = wk__ptx_move(w->shape, walker, loop);
  if (move == WK__PTX_STILL) return;
  if (move == WK__PTX_ONE) {
    ptx_line(w, "mad.lo.s64 %s, %s, %d, %s;", to, coordinate, item_of(w, walker), to);
    return;
  }
  reg_name stride = ptx_load_arg(w, WK__PTX_STRIDE, walker, loop);
  ptx_line(w, "mad.lo.s64 %s, %s, %s, %s;", to, coordinate, stride.text, to);
}

/* ---- coordinates ---- */

/* The register of a coordinate: of rows %c<loop>, of element k %q<loop>_<k>. */
enum { OF_ROW = -1 };
static reg_name coordinate(int loop, int k) {
  reg_name r;
  if (k == OF_ROW)
    snprintf(r.text, NAME, "%%c%d", loop);
  else
    snprintf(r.text, NAME, "%%q%d_%d", loop, k);
  return r;
}

/* Of a linear index over loops [begin, end), into registers; the outermost one needs no division. */
static void split_index(ptx_writer *w, int k, const char *index, int begin, int end) {
  reg_name rest = ptx_new(w, "b64");
  ptx_line(w, "mov.b64 %s, %s;", rest.text, index);
  for (int d = end - 1; d >= begin; d--) {
    reg_name at = coordinate(d, k);
    ptx_line(w, ".reg .b64 %s;", at.text);
    if (d == begin) {
      ptx_line(w, "mov.b64 %s, %s;", at.text, rest.text);
      break;
    }
    reg_name size = ptx_load_arg(w, WK__PTX_SIZE, d, 0), quotient = ptx_new(w, "b64");
    if (w->shape->wide) {
      ptx_line(w, "div.u64 %s, %s, %s;", quotient.text, rest.text, size.text);
    } else {
      reg_name a = ptx_new(w, "b32"), b = ptx_new(w, "b32");
      ptx_line(w, "cvt.u32.u64 %s, %s;", a.text, rest.text);
      ptx_line(w, "cvt.u32.u64 %s, %s;", b.text, size.text);
      ptx_line(w, "div.u32 %s, %s, %s;", a.text, a.text, b.text);
      ptx_line(w, "cvt.u64.u32 %s, %s;", quotient.text, a.text);
    }
    reg_name product = ptx_new(w, "b64");
    ptx_line(w, "mul.lo.s64 %s, %s, %s;", product.text, quotient.text, size.text);
    ptx_line(w, "sub.s64 %s, %s, %s;", at.text, rest.text, product.text);
    ptx_line(w, "mov.b64 %s, %s;", rest.text, quotient.text);
  }
}

/* ---- tiles ---- */

/* rest /= by, and out = what is left; of 32 bits where positions are. */
static void divide(ptx_writer *w, const char *rest, const char *by, const char *out) {
  reg_name quotient = ptx_new(w, "b64");
  if (w->shape->wide) {
    ptx_line(w, "div.u64 %s, %s, %s;", quotient.text, rest, by);
  } else {
    reg_name a = ptx_new(w, "b32"), b = ptx_new(w, "b32");
    ptx_line(w, "cvt.u32.u64 %s, %s;", a.text, rest);
    ptx_line(w, "cvt.u32.u64 %s, %s;", b.text, by);
    ptx_line(w, "div.u32 %s, %s, %s;", a.text, a.text, b.text);
    ptx_line(w, "cvt.u64.u32 %s, %s;", quotient.text, a.text);
  }
  ptx_line(w, "mul.lo.s64 %s, %s, %s;", out, quotient.text, by);
  ptx_line(w, "sub.s64 %s, %s, %s;", out, rest, out);
  ptx_line(w, "mov.b64 %s, %s;", rest, quotient.text);
}

/* %tile<loop>: where the block's tile begins along a loop, taken off a linear index. */
static void split_tile(ptx_writer *w, const char *rest, int loop) {
  reg_name size = ptx_load_arg(w, WK__PTX_SIZE, loop, 0), tiles = ptx_new(w, "b64"), first;
  snprintf(first.text, NAME, "%%tile%d", loop);
  ptx_line(w, ".reg .b64 %s;", first.text);
  ptx_line(w, "add.s64 %s, %s, %d;", tiles.text, size.text, WK__PTX_TILE - 1);
  ptx_line(w, "shr.u64 %s, %s, 5;", tiles.text, tiles.text);
  divide(w, rest, tiles.text, first.text);
  ptx_line(w, "shl.b64 %s, %s, 5;", first.text, first.text);
}

/* to = a coordinate that is there: the last one where it is behind it. */
static void within(ptx_writer *w, const char *to, const char *coordinate, int loop) {
  reg_name size = ptx_load_arg(w, WK__PTX_SIZE, loop, 0), last = ptx_new(w, "b64");
  ptx_line(w, "sub.s64 %s, %s, 1;", last.text, size.text);
  ptx_line(w, "min.u64 %s, %s, %s;", to, coordinate, last.text);
}

/* %c<loop> of the thread's first element, and which of its elements are there: %in<k>. */
static void begin_tile(ptx_writer *w) {
  int across = ptx_tile_loop(w), along = w->shape->p - 1;
  reg_name rest = ptx_new(w, "b64"), x = ptx_new(w, "b64"), y = ptx_new(w, "b64"), inside = ptx_new(w, "pred");
  ptx_line(w, "mov.b64 %s, %%row;", rest.text);
  split_tile(w, rest.text, along);
  split_tile(w, rest.text, across);
  for (int d = along - 1; d >= 0; d--) {
    if (d == across) continue;
    reg_name size = ptx_load_arg(w, WK__PTX_SIZE, d, 0), at = coordinate(d, OF_ROW);
    ptx_line(w, ".reg .b64 %s;", at.text);
    divide(w, rest.text, size.text, at.text);
  }
  ptx_line(w, ".reg .b64 %%c%d, %%c%d, %%warp64;", along, across);
  ptx_line(w, "cvt.u64.u32 %%warp64, %%warp;");
  ptx_line(w, "add.s64 %s, %%tile%d, %%lane;", x.text, along);
  ptx_line(w, "add.s64 %s, %%tile%d, %%warp64;", y.text, across);
  reg_name width = ptx_load_arg(w, WK__PTX_SIZE, along, 0), height = ptx_load_arg(w, WK__PTX_SIZE, across, 0);
  ptx_line(w, "setp.lt.u64 %s, %s, %s;", inside.text, x.text, width.text);
  for (int k = 0; k < w->shape->each; k++) {
    reg_name at = ptx_new(w, "b64");
    ptx_line(w, ".reg .pred %%in%d;", k);
    ptx_line(w, "add.s64 %s, %s, %d;", at.text, y.text, WK__PTX_TILE_WARPS * k);
    ptx_line(w, "setp.lt.and.u64 %%in%d, %s, %s, %s;", k, at.text, height.text, inside.text);
  }
  reg_name column, row;
  snprintf(column.text, NAME, "%%c%d", along);
  snprintf(row.text, NAME, "%%c%d", across);
  within(w, column.text, x.text, along);
  within(w, row.text, y.text, across);
}

/* Of the element before: further along the inner loop, or, at most once, at the next of the outer one. */
static void carry_element(ptx_writer *w, int k) {
  int outer = w->shape->p, inner = outer + 1;
  reg_name x = coordinate(inner, k), y = coordinate(outer, k), over = ptx_new(w, "pred"),
           size = ptx_load_arg(w, WK__PTX_SIZE, inner, 0);
  ptx_line(w, ".reg .b64 %s, %s;", x.text, y.text);
  ptx_line(w, "add.s64 %s, %s, %d;", x.text, coordinate(inner, k - 1).text, ptx_distance(w));
  ptx_line(w, "setp.ge.u64 %s, %s, %s;", over.text, x.text, size.text);
  ptx_line(w, "@%s sub.s64 %s, %s, %s;", over.text, x.text, x.text, size.text);
  ptx_line(w, "mov.b64 %s, %s;", y.text, coordinate(outer, k - 1).text);
  ptx_line(w, "@%s add.s64 %s, %s, 1;", over.text, y.text, y.text);
}

/* Coordinates of the step's elements where a row goes over several loops: %q<loop>_<k>. */
static void split_elements(ptx_writer *w) {
  for (int k = 0; k < w->shape->each; k++) {
    if (k && w->shape->carries) {
      carry_element(w, k);
      continue;
    }
    reg_name element = ptx_new(w, "b64");
    ptx_line(w, "add.s64 %s, %%e, %d;", element.text, ptx_distance(w) * k);
    split_index(w, k, element.text, w->shape->p, w->shape->p + w->shape->r);
  }
}

void ptx_prepare(ptx_writer *w) {
  int p = w->shape->p;
  if (w->behind)
    ptx_begin_piece(w);
  else if (ptx_is_tiles(w))
    begin_tile(w);
  else
    split_index(w, OF_ROW, "%row", 0, p);
  if (w->shape->mode == WK__PTX_POINTWISE && p && w->shape->each > 1 && !w->behind)
    ptx_line(w, "mul.lo.s64 %%c%d, %%c%d, %d;", p - 1, p - 1, w->shape->each);
  for (int walker = 0; walker < w->shape->walkers; walker++) {
    reg_name name, start = ptx_load_arg(w, is_access(w, walker) ? WK__PTX_BASE : WK__PTX_START, walker, 0);
    snprintf(name.text, NAME, "%%w%d", walker);
    ptx_line(w, ".reg .b64 %s;", name.text);
    ptx_line(w, "mov.b64 %s, %s;", name.text, start.text);
    for (int d = 0; d < p; d++) ptx_add_moved(w, name.text, walker, d, coordinate(d, OF_ROW).text);
    if (w->shape->mode == WK__PTX_ROWS && w->shape->r == 1) ptx_add_moved(w, name.text, walker, p, "%e");
  }
  if (is_short(w) && w->shape->r > 1) split_elements(w);
}

void ptx_prepare_step(ptx_writer *w) {
  if (w->shape->r > 1) {
    split_elements(w);
    return;
  }
  for (int walker = 0; walker < w->shape->walkers; walker++) {
    reg_name name;
    if (!moves(w, walker)) continue;
    snprintf(name.text, NAME, "%%s%d", walker);
    ptx_line(w, ".reg .b64 %s;", name.text);
    ptx_line(w, "mov.b64 %s, %%w%d;", name.text, walker);
    ptx_add_moved(w, name.text, walker, w->shape->p, "%e");
  }
}

/* ---- where element k is ---- */

/* Rows over several loops: in registers each access divides for itself, so that coordinates do not stay in registers.
 */
static place place_by_coordinates(ptx_writer *w, int walker, int k) {
  place at = {.reg = ptx_new(w, "b64")};
  bool divides = w->shape->mode == WK__PTX_ROWS;
  if (divides) {
    reg_name element = ptx_new(w, "b64");
    ptx_line(w, "{");
    ptx_line(w, "add.s64 %s, %%e, %d;", element.text, 32 * k);
    split_index(w, k, element.text, w->shape->p, w->shape->p + w->shape->r);
  }
  ptx_line(w, "mov.b64 %s, %%w%d;", at.reg.text, walker);
  for (int d = w->shape->p; d < w->shape->p + w->shape->r; d++)
    ptx_add_moved(w, at.reg.text, walker, d, coordinate(d, k).text);
  if (divides) ptx_line(w, "}");
  return at;
}

static place place_of(ptx_writer *w, int walker, int k) {
  place at = {.offset = 0};
  bool steps = by_lanes(w) && !is_short(w) && w->shape->mode != WK__PTX_ROWS && moves(w, walker);
  snprintf(at.reg.text, NAME, "%%%c%d", steps ? 's' : 'w', walker);
  if (!moves(w, walker)) return at;
  if (by_lanes(w) && w->shape->r > 1) return place_by_coordinates(w, walker, k);
  if (wk__ptx_move(w->shape, walker, element_loop(w)) == WK__PTX_ONE) {
    at.offset = k * ptx_distance(w) * item_of(w, walker);
  } else if (k) {
    reg_name stride = ptx_load_arg(w, WK__PTX_STRIDE, walker, element_loop(w)), moved = ptx_new(w, "b64");
    ptx_line(w, "mad.lo.s64 %s, %s, %d, %s;", moved.text, stride.text, k * ptx_distance(w), at.reg.text);
    at.reg = moved;
  }
  return at;
}

reg_name ptx_number_at(ptx_writer *w, int walker, int k) {
  place at = place_of(w, walker, k);
  if (!at.offset) return at.reg;
  reg_name moved = ptx_new(w, "b64");
  ptx_line(w, "add.s64 %s, %s, %d;", moved.text, at.reg.text, at.offset);
  return moved;
}

/* Of an access, with what values add to it. */
static place address_of(ptx_writer *w, const wk__instr *i, int k) {
  const wk__access *a = &w->nest->accesses[i->extra];
  place at = place_of(w, i->extra, k);
  for (int d = 0; a->has_indirect && d < a->ndim; d++) {
    if (!a->indirect[d]) continue;
    reg_name stride = ptx_load_arg(w, WK__PTX_INDIRECT, i->extra, d), moved = ptx_new(w, "b64");
    reg_name index = ptx_value(w, a->indirect[d], k);
    ptx_line(w, "mad.lo.s64 %s, %s, %s, %s;", moved.text, index.text, stride.text, at.reg.text);
    at.reg = moved;
  }
  return at;
}

/* ---- one element ---- */

static const char *load_type(int dtype) {
  static const char *const types[WK_DTYPE_COUNT] = {
      [WK_UINT8] = "u8",   [WK_INT8] = "s8",    [WK_INT16] = "s16",  [WK_INT32] = "s32",   [WK_INT64] = "b64",
      [WK_UINT16] = "u16", [WK_UINT32] = "u32", [WK_UINT64] = "b64", [WK_FLOAT32] = "f32", [WK_FLOAT64] = "f64"};
  return types[dtype];
}
static const char *zero_of(int dtype) {
  return dtype == WK_FLOAT32 ? "0f00000000" : dtype == WK_FLOAT64 ? "0d0000000000000000" : "0";
}

/* A small float's bits, in the low ones of a 32-bit register, as a number. */
static void widen(ptx_writer *w, int dtype, const char *out, const char *bits) {
  if (dtype == WK_BFLOAT16) {
    reg_name high = ptx_new(w, "b32");
    ptx_line(w, "shl.b32 %s, %s, 16;", high.text, bits);
    ptx_line(w, "mov.b32 %s, %s;", out, high.text);
  } else if (dtype == WK_FLOAT16) {
    reg_name half = ptx_new(w, "b16");
    ptx_line(w, "cvt.u16.u32 %s, %s;", half.text, bits);
    ptx_line(w, "cvt.f32.f16 %s, %s;", out, half.text);
  } else {
    ptx_call(w, dtype == WK_FLOAT8_E4M3 ? "e4m3_to_f32" : "e5m2_to_f32", out, bits, NULL);
  }
}

static void narrow(ptx_writer *w, int dtype, const char *out, const char *value) {
  if (dtype == WK_FLOAT16 || (dtype == WK_BFLOAT16 && w->shape->capability >= 80)) {
    reg_name half = ptx_new(w, "b16");
    ptx_line(w, "cvt.rn.%s.f32 %s, %s;", dtype == WK_FLOAT16 ? "f16" : "bf16", half.text, value);
    ptx_line(w, "cvt.u32.u16 %s, %s;", out, half.text);
  } else {
    const char *name = dtype == WK_BFLOAT16 ? "f32_to_bf16" : dtype == WK_FLOAT8_E4M3 ? "f32_to_e4m3" : "f32_to_e5m2";
    ptx_call(w, name, out, value, NULL);
  }
}

/* `guard`: "@%p " or "": where it does not hold the register keeps what it has. */
static void load_from(ptx_writer *w, const char *space, int dtype, const char *out, place at, const char *guard) {
  if (load_type(dtype)) {
    ptx_line(w, "%sld.%s.%s %s, [%s+%d];", guard, space, load_type(dtype), out, at.reg.text, at.offset);
    return;
  }
  reg_name bits = ptx_new(w, "b32");
  int size = (int)wk__dtypes[dtype].size;
  if (guard[0]) ptx_line(w, "mov.b32 %s, 0;", bits.text);
  ptx_line(w, "%sld.%s.u%d %s, [%s+%d];", guard, space, 8 * size, bits.text, at.reg.text, at.offset);
  if (dtype == WK_BOOL)
    ptx_line(w, "setp.ne.u32 %s, %s, 0;", out, bits.text);
  else
    widen(w, dtype, out, bits.text);
}
static void load_one(ptx_writer *w, int dtype, const char *out, place at, const char *guard) {
  load_from(w, "global", dtype, out, at, guard);
}

void ptx_load_constant(ptx_writer *w, int dtype, const char *out, reg_name address) {
  load_from(w, "global.nc", dtype, out, (place){.reg = address}, "");
}

static void store_to(ptx_writer *w, const char *space, int dtype, const char *value, place at, const char *guard) {
  int size = (int)wk__dtypes[dtype].size;
  if (dtype == WK_FLOAT32 || dtype == WK_FLOAT64) {
    ptx_line(w, "%sst.%s.%s [%s+%d], %s;", guard, space, load_type(dtype), at.reg.text, at.offset, value);
  } else if (load_type(dtype)) {
    ptx_line(w, "%sst.%s.b%d [%s+%d], %s;", guard, space, 8 * size, at.reg.text, at.offset, value);
  } else {
    reg_name bits = ptx_new(w, "b32");
    if (dtype == WK_BOOL)
      ptx_line(w, "selp.b32 %s, 1, 0, %s;", bits.text, value);
    else
      narrow(w, dtype, bits.text, value);
    ptx_line(w, "%sst.%s.b%d [%s+%d], %s;", guard, space, 8 * size, at.reg.text, at.offset, bits.text);
  }
}
static void store_one(ptx_writer *w, int dtype, const char *value, place at, const char *guard) {
  store_to(w, "global", dtype, value, at, guard);
}

/* Element k of the step in the tile of a scan. */
static place place_in_tile(const ptx_writer *w, int access, int k) {
  place at = {.offset = k * item_of(w, access)};
  snprintf(at.reg.text, NAME, "%%own%d", access);
  return at;
}

/* ---- vectors: 16 bytes at a time ---- */

bool ptx_is_vector(const ptx_writer *w, const wk__instr *i) {
  const wk__access *a = &w->nest->accesses[i->extra];
  bool neighbours = (w->shape->vectors && ptx_is_scans(w)) || w->shape->tile ||
                    (w->shape->mode == WK__PTX_POINTWISE && w->shape->each > 1 && w->shape->p);
  return neighbours && item_of(w, i->extra) > 1 && !a->has_indirect && !a->may_leave &&
         wk__ptx_move(w->shape, i->extra, element_loop(w)) == WK__PTX_ONE;
}

/* Words of a vector access: 32 bits each, or 64 for large elements. */
static void vector_words(ptx_writer *w, int first, int count, bool wide, reg_name *words) {
  (void)first;
  for (int n = 0; n < count; n++) words[n] = ptx_new(w, wide ? "b64" : "b32");
}

static void vector_line(ptx_writer *w, bool load, const char *space, const char *reg, int offset, bool wide,
                        const reg_name *words, int count, const char *guard) {
  char list[4 * NAME] = "";
  for (int n = 0; n < count; n++) {
    strncat(list, n ? ", " : "", sizeof list - strlen(list) - 1);
    strncat(list, words[n].text, sizeof list - strlen(list) - 1);
  }
  const char *vector = count == 4 ? ".v4" : count == 2 ? ".v2" : "";
  const char *open = count > 1 ? "{" : "", *close = count > 1 ? "}" : "";
  if (load)
    ptx_line(w, "%sld.%s%s.b%d %s%s%s, [%s+%d];", guard, space, vector, wide ? 64 : 32, open, list, close, reg, offset);
  else
    ptx_line(w, "%sst.%s%s.b%d [%s+%d], %s%s%s;", guard, space, vector, wide ? 64 : 32, reg, offset, open, list, close);
}

static void value_of_word(ptx_writer *w, int dtype, const char *out, const char *word) {
  if (dtype == WK_INT32 || dtype == WK_UINT32)
    ptx_line(w, "cvt.%c64.%c32 %s, %s;", dtype == WK_INT32 ? 's' : 'u', dtype == WK_INT32 ? 's' : 'u', out, word);
  else
    ptx_line(w, "mov.b%d %s, %s;", wk__dtypes[dtype].size == 8 ? 64 : 32, out, word);
}

static void value_of_half(ptx_writer *w, int dtype, const char *out, const char *word, bool high) {
  reg_name bits = ptx_new(w, "b32");
  if (dtype == WK_INT16 || dtype == WK_UINT16) {
    ptx_line(w, "bfe.%c32 %s, %s, %d, 16;", dtype == WK_INT16 ? 's' : 'u', bits.text, word, high ? 16 : 0);
    ptx_line(w, "cvt.%c64.%c32 %s, %s;", dtype == WK_INT16 ? 's' : 'u', dtype == WK_INT16 ? 's' : 'u', out, bits.text);
  } else if (dtype == WK_BFLOAT16 && high) {
    ptx_line(w, "and.b32 %s, %s, 0xffff0000;", bits.text, word);
    ptx_line(w, "mov.b32 %s, %s;", out, bits.text);
  } else {
    ptx_line(w, "shr.u32 %s, %s, %d;", bits.text, word, high ? 16 : 0);
    if (!high) ptx_line(w, "and.b32 %s, %s, 0xffff;", bits.text, bits.text);
    widen(w, dtype, out, bits.text);
  }
}

static void load_vector(ptx_writer *w, int v, const wk__instr *i) {
  int dtype = w->nest->buffers[w->nest->accesses[i->extra].buffer].dtype, item = item_of(w, i->extra);
  bool wide = item == 8;
  int word = wide ? 8 : 4, words = w->shape->each * item / word, most = 16 / word;
  bool in_tile = ptx_is_tiled(w, i);
  place at = in_tile ? place_in_tile(w, i->extra, 0) : place_of(w, i->extra, 0);
  const char *space = in_tile ? "shared" : "global";
  for (int first = 0; first < words; first += most) {
    reg_name loaded[4];
    int count = (int)wk__min(most, words - first);
    if (w->behind) {
      for (int n = 0; n < count; n++) loaded[n] = ptx_piece_word(w, i->extra, first + n);
    } else {
      vector_words(w, first, count, wide, loaded);
      vector_line(w, true, space, at.reg.text, at.offset + first * word, wide, loaded, count, "");
    }
    for (int n = 0; n < count; n++) {
      int k = (first + n) * word / item;
      if (item >= 4) {
        value_of_word(w, dtype, ptx_value(w, v, k).text, loaded[n].text);
        continue;
      }
      value_of_half(w, dtype, ptx_value(w, v, k).text, loaded[n].text, false);
      value_of_half(w, dtype, ptx_value(w, v, k + 1).text, loaded[n].text, true);
    }
  }
}

static bool is_small_float(int dtype) { return wk__ptx_is_exact(dtype) && wk__dtypes[dtype].size < 4; }

static void half_of_value(ptx_writer *w, int dtype, const char *out, const char *value) {
  if (dtype == WK_INT16 || dtype == WK_UINT16) {
    ptx_line(w, "cvt.u32.u64 %s, %s;", out, value);
    ptx_line(w, "and.b32 %s, %s, 0xffff;", out, out);
  } else {
    narrow(w, dtype, out, value);
  }
}

/* Two small floats are one instruction: rounded one by one they keep the slow unit for conversions busy. */
static reg_name word_of(ptx_writer *w, int dtype, int v, int k) {
  reg_name word = ptx_new(w, wk__dtypes[dtype].size == 8 ? "b64" : "b32");
  if (is_small_float(dtype) && w->shape->capability >= 80) {
    ptx_line(w, "cvt.rn.%s.f32 %s, %s, %s;", dtype == WK_FLOAT16 ? "f16x2" : "bf16x2", word.text,
             ptx_value(w, v, k + 1).text, ptx_value(w, v, k).text);
  } else if (wk__dtypes[dtype].size == 2) {
    reg_name high = ptx_new(w, "b32");
    half_of_value(w, dtype, word.text, ptx_value(w, v, k).text);
    half_of_value(w, dtype, high.text, ptx_value(w, v, k + 1).text);
    ptx_line(w, "shl.b32 %s, %s, 16;", high.text, high.text);
    ptx_line(w, "or.b32 %s, %s, %s;", word.text, word.text, high.text);
  } else if (dtype == WK_INT32 || dtype == WK_UINT32) {
    ptx_line(w, "cvt.u32.u64 %s, %s;", word.text, ptx_value(w, v, k).text);
  } else {
    ptx_line(w, "mov.b%d %s, %s;", wk__dtypes[dtype].size == 8 ? 64 : 32, word.text, ptx_value(w, v, k).text);
  }
  return word;
}

static void store_vector(ptx_writer *w, const wk__instr *i) {
  int dtype = w->nest->buffers[w->nest->accesses[i->extra].buffer].dtype, item = item_of(w, i->extra);
  bool wide = item == 8;
  int word = wide ? 8 : 4, words = w->shape->each * item / word, most = 16 / word;
  bool in_tile = ptx_is_tiled(w, i);
  place at = in_tile ? place_in_tile(w, i->extra, 0) : place_of(w, i->extra, 0);
  const char *space = in_tile ? "shared" : "global";
  for (int first = 0; first < words; first += most) {
    reg_name stored[4];
    int count = (int)wk__min(most, words - first);
    for (int n = 0; n < count; n++) stored[n] = word_of(w, dtype, i->operands[0], (first + n) * word / item);
    vector_line(w, false, space, at.reg.text, at.offset + first * word, wide, stored, count, ptx_guard(w, 0).text);
  }
}

/* ---- instructions ---- */

static void declare(ptx_writer *w, int v) {
  for (int k = 0; k < (w->varies[v] ? w->shape->each : 1); k++)
    ptx_line(w, ".reg .%s %s;", ptx_type(w->nest->instrs[v].dtype), ptx_value(w, v, k).text);
}

static int first_bound_of(const ptx_writer *w, int access) {
  int walker = (int)w->nest->access_count + w->expression_count;
  for (int a = 0; a < access; a++) walker += __builtin_popcount(w->nest->accesses[a].may_leave);
  return walker;
}

/* Where all bounds hold, and element k is there. */
static reg_name inside_of(ptx_writer *w, int v, const wk__instr *i, int k) {
  reg_name inside = ptx_new(w, "pred"), guard = ptx_value_guard(w, v, k);
  int first = first_bound_of(w, i->extra), count = __builtin_popcount(w->nest->accesses[i->extra].may_leave);
  ptx_line(w, "setp.eq.u32 %s, 0, 0;", inside.text);
  if (guard.text[0])
    ptx_line(w, "and.pred %s, %s, %.*s;", inside.text, inside.text, (int)strlen(guard.text) - 2, guard.text + 1);
  for (int b = 0; b < count; b++) {
    reg_name at = ptx_number_at(w, first + b, k), limit = ptx_load_arg(w, WK__PTX_LIMIT, first + b, 0);
    ptx_line(w, "setp.lt.and.u64 %s, %s, %s, %s;", inside.text, at.text, limit.text, inside.text);
  }
  return inside;
}

/* 0 and 1 are the same in every type, infinities in those that have them. */
static bool is_same_in(int dtype, const wk__instr *number) {
  double d = number->op == WK__LOOP_constant ? wk__scalar_double(number->number) : 0.5;
  return d == 0 || d == 1 || ((dtype == WK_FLOAT16 || dtype == WK_BFLOAT16) && d - d != 0);
}

/* A number as a buffer of small floats holds it. */
static reg_name rounded(ptx_writer *w, int dtype, reg_name number) {
  reg_name bits = ptx_new(w, "b32"), out = ptx_new(w, "f32");
  narrow(w, dtype, bits.text, number.text);
  widen(w, dtype, out.text, bits.text);
  return out;
}

/* Outside stands the operand, as the buffer holds it. */
static void load_masked(ptx_writer *w, int v, const wk__instr *i, int dtype, int k) {
  reg_name inside = inside_of(w, v, i, k), out = ptx_value(w, v, k), other = ptx_value(w, i->operands[0], k), loaded;
  bool keeps = wk__dtypes[dtype].compute == dtype || is_same_in(dtype, &w->nest->instrs[i->operands[0]]);
  if (!keeps && is_small_float(dtype)) other = rounded(w, dtype, other);
  w->unsupported |= !keeps && !is_small_float(dtype); /* other numbers were not met */
  const char *type = ptx_type(i->dtype);
  loaded = ptx_new(w, type);
  char guard[NAME + 4];
  snprintf(guard, sizeof guard, "@%s ", inside.text);
  if (i->dtype == WK_BOOL)
    ptx_line(w, "setp.ne.u32 %s, 0, 0;", loaded.text);
  else
    ptx_line(w, "mov.%s %s, %s;", type, loaded.text, zero_of(i->dtype));
  load_one(w, dtype, loaded.text, address_of(w, i, k), guard);
  if (i->dtype == WK_BOOL) {
    reg_name not_inside = ptx_new(w, "pred");
    ptx_line(w, "and.pred %s, %s, %s;", out.text, inside.text, loaded.text);
    ptx_line(w, "not.pred %s, %s;", not_inside.text, inside.text);
    ptx_line(w, "and.pred %s, %s, %s;", not_inside.text, not_inside.text, other.text);
    ptx_line(w, "or.pred %s, %s, %s;", out.text, out.text, not_inside.text);
  } else {
    ptx_line(w, "selp.%s %s, %s, %s, %s;", type, out.text, loaded.text, other.text, inside.text);
  }
}

/* Elements along their own loop, the lanes', into shared memory as they are; from there each thread takes its own. */
static void load_across(ptx_writer *w, int v, const wk__instr *i, int dtype) {
  int item = item_of(w, i->extra), across = ptx_tile_loop(w), along = w->shape->p - 1;
  int line = item * (WK__PTX_TILE + (item == 1 ? 4 : item == 2 ? 2 : 1)); /* lanes of a column in different banks */
  reg_name from = ptx_new(w, "b64"), x = ptx_new(w, "b64"), y = ptx_new(w, "b64"), to = ptx_new(w, "b32"),
           inside = ptx_new(w, "pred"), base = ptx_load_arg(w, WK__PTX_BASE, i->extra, 0),
           width = ptx_load_arg(w, WK__PTX_SIZE, across, 0), height = ptx_load_arg(w, WK__PTX_SIZE, along, 0),
           stride = ptx_load_arg(w, WK__PTX_STRIDE, i->extra, along);
  ptx_line(w, "add.s64 %s, %%tile%d, %%lane;", x.text, across);
  ptx_line(w, "add.s64 %s, %%tile%d, %%warp64;", y.text, along);
  ptx_line(w, "setp.lt.u64 %s, %s, %s;", inside.text, x.text, width.text);
  ptx_line(w, "mad.lo.s64 %s, %s, %d, %s;", from.text, x.text, item, base.text);
  for (int d = 0; d < along; d++) {
    reg_name coordinate;
    snprintf(coordinate.text, NAME, "%%c%d", d);
    if (d != across) ptx_add_moved(w, from.text, i->extra, d, coordinate.text);
  }
  ptx_line(w, "mov.u32 %s, tile;", to.text);
  ptx_line(w, "mad.lo.u32 %s, %%warp, %d, %s;", to.text, line, to.text);
  ptx_line(w, "mad.lo.u32 %s, %%lane32, %d, %s;", to.text, item, to.text);
  ptx_line(w, "bar.sync 0;"); /* what was there before has been read */
  for (int k = 0; k < w->shape->each; k++) {
    reg_name at = ptx_new(w, "b64"), address = ptx_new(w, "b64"), there = ptx_new(w, "pred"),
             bits = ptx_new(w, item == 8   ? "b64"
                               : item == 4 ? "b32"
                                           : "b16");
    const char *type = item == 8 ? "b64" : item == 4 ? "b32" : item == 2 ? "b16" : "u8";
    ptx_line(w, "add.s64 %s, %s, %d;", at.text, y.text, WK__PTX_TILE_WARPS * k);
    ptx_line(w, "mad.lo.s64 %s, %s, %s, %s;", address.text, at.text, stride.text, from.text);
    ptx_line(w, "setp.lt.and.u64 %s, %s, %s, %s;", there.text, at.text, height.text, inside.text);
    ptx_line(w, "mov.%s %s, 0;", item == 8 ? "b64" : item == 4 ? "b32" : "b16", bits.text);
    ptx_line(w, "@%s ld.global.%s %s, [%s];", there.text, type, bits.text, address.text);
    ptx_line(w, "st.shared.%s [%s+%d], %s;", type, to.text, k * WK__PTX_TILE_WARPS * line, bits.text);
  }
  ptx_line(w, "bar.sync 0;");
  reg_name own = ptx_new(w, "b32");
  ptx_line(w, "mov.u32 %s, tile;", own.text);
  ptx_line(w, "mad.lo.u32 %s, %%lane32, %d, %s;", own.text, line, own.text);
  ptx_line(w, "mad.lo.u32 %s, %%warp, %d, %s;", own.text, item, own.text);
  for (int k = 0; k < w->shape->each; k++) {
    place at = {own, k * WK__PTX_TILE_WARPS * item};
    load_from(w, "shared", dtype, ptx_value(w, v, k).text, at, "");
  }
}

/* Elements that later phases load as well: from memory into shared memory by the first, unless vectors of them are
 * copied there (ptx_kept.c), from there by all. */
static void load_kept(ptx_writer *w, int v, const wk__instr *i, int dtype) {
  int item = item_of(w, i->extra), each = w->shape->each;
  const char *type = item == 8 ? "b64" : item == 4 ? "b32" : item == 2 ? "b16" : "u8";
  reg_name own = ptx_new(w, "b32"), raw[WK__PTX_MAX_EACH];
  bool first = w->kept_by[i->extra] == w->phase && !w->shape->vectors;
  ptx_line(w, "cvt.u32.u64 %s, %%e;", own.text);
  ptx_line(w, "mad.lo.u32 %s, %s, %d, %%kept%d;", own.text, own.text, item, i->extra);
  for (int k = 0; k < each && first; k++) {
    place at = address_of(w, i, k);
    raw[k] = ptx_new(w, item == 8 ? "b64" : item == 4 ? "b32" : "b16");
    ptx_line(w, "%sld.global.%s %s, [%s+%d];", ptx_guard(w, k).text, type, raw[k].text, at.reg.text, at.offset);
  }
  for (int k = 0; k < each && first; k++)
    ptx_line(w, "%sst.shared.%s [%s+%d], %s;", ptx_guard(w, k).text, type, own.text, 32 * k * item, raw[k].text);
  for (int k = 0; k < each; k++) {
    reg_name guard = ptx_guard(w, k), out = ptx_value(w, v, k);
    if (guard.text[0] && i->dtype != WK_BOOL)
      ptx_line(w, "mov.%s %s, %s;", ptx_type(i->dtype), out.text, zero_of(i->dtype));
    load_from(w, "shared", dtype, out.text, (place){own, 32 * k * item}, guard.text);
  }
}

static bool is_kept(const ptx_writer *w, int v, const wk__instr *i) {
  return w->varies[v] && i->extra < WK__PTX_MOST_KEPT && w->shape->kept >> i->extra & 1;
}

void ptx_load(ptx_writer *w, int v) {
  const wk__instr *i = &w->nest->instrs[v];
  int dtype = w->nest->buffers[w->nest->accesses[i->extra].buffer].dtype;
  declare(w, v);
  if (i->op == WK__LOOP_load && ptx_is_vector(w, i)) {
    load_vector(w, v, i);
    return;
  }
  if (i->op == WK__LOOP_load && ptx_lies_across(w, i->extra)) {
    load_across(w, v, i, dtype);
    return;
  }
  if (i->op == WK__LOOP_load && is_kept(w, v, i)) {
    load_kept(w, v, i, dtype);
    return;
  }
  for (int k = 0; k < (w->varies[v] ? w->shape->each : 1); k++) {
    reg_name guard = ptx_value_guard(w, v, k), out = ptx_value(w, v, k);
    if (i->op == WK__LOOP_masked_load) {
      load_masked(w, v, i, dtype, k);
      continue;
    }
    if (guard.text[0] && i->dtype != WK_BOOL)
      ptx_line(w, "mov.%s %s, %s;", ptx_type(i->dtype), out.text, zero_of(i->dtype));
    if (ptx_is_tiled(w, i))
      load_from(w, "shared", dtype, out.text, place_in_tile(w, i->extra, k), guard.text);
    else
      load_one(w, dtype, out.text, address_of(w, i, k), guard.text);
  }
}

/* What is there is exchanged for the sum, as long as another thread has changed it in between. */
static void exchange_small_float(ptx_writer *w, int dtype, const char *value, place at, const char *guard) {
  int label = w->unique++;
  reg_name seen = ptx_new(w, "b16"), next = ptx_new(w, "b16"), met = ptx_new(w, "b16"), bits = ptx_new(w, "b32"),
           rounded = ptx_new(w, "b32"), old = ptx_new(w, "f32"), sum = ptx_new(w, "f32"), again = ptx_new(w, "pred");
  if (guard[0]) {
    ptx_line(w, "%sbra ADD%d;", guard, label);
    ptx_line(w, "bra ADDED%d;", label);
    ptx_line(w, "ADD%d:", label);
  }
  ptx_line(w, "ld.global.u16 %s, [%s+%d];", seen.text, at.reg.text, at.offset);
  ptx_line(w, "AGAIN%d:", label);
  ptx_line(w, "cvt.u32.u16 %s, %s;", bits.text, seen.text);
  widen(w, dtype, old.text, bits.text);
  ptx_line(w, "add.rn.f32 %s, %s, %s;", sum.text, old.text, value);
  narrow(w, dtype, rounded.text, sum.text);
  ptx_line(w, "cvt.u16.u32 %s, %s;", next.text, rounded.text);
  ptx_line(w, "atom.global.cas.b16 %s, [%s+%d], %s, %s;", met.text, at.reg.text, at.offset, seen.text, next.text);
  ptx_line(w, "setp.ne.u16 %s, %s, %s;", again.text, met.text, seen.text);
  ptx_line(w, "mov.b16 %s, %s;", seen.text, met.text);
  ptx_line(w, "@%s bra AGAIN%d;", again.text, label);
  ptx_line(w, "ADDED%d:", label);
}

static void add_one(ptx_writer *w, int dtype, const char *value, place at, const char *guard) {
  if (dtype == WK_FLOAT32 || dtype == WK_FLOAT64) {
    ptx_line(w, "%sred.global.add.%s [%s+%d], %s;", guard, load_type(dtype), at.reg.text, at.offset, value);
  } else if (dtype == WK_INT64) {
    ptx_line(w, "%sred.global.add.u64 [%s+%d], %s;", guard, at.reg.text, at.offset, value);
  } else if (dtype == WK_INT32) {
    reg_name low = ptx_new(w, "b32");
    ptx_line(w, "cvt.u32.u64 %s, %s;", low.text, value);
    ptx_line(w, "%sred.global.add.u32 [%s+%d], %s;", guard, at.reg.text, at.offset, low.text);
  } else if (dtype == WK_FLOAT16 || dtype == WK_BFLOAT16) {
    exchange_small_float(w, dtype, value, at, guard);
  } else {
    w->unsupported = true;
  }
}

void ptx_store(ptx_writer *w, int v) {
  const wk__instr *i = &w->nest->instrs[v];
  int dtype = w->nest->buffers[w->nest->accesses[i->extra].buffer].dtype;
  bool each = w->varies[v], exactly = w->shape->adds && i->op == WK__LOOP_store_add && wk__ptx_is_exact(dtype);
  if (w->shape->adds == WK__PTX_LARGEST_ADDED && !exactly) return;
  if (i->op == WK__LOOP_store && each && ptx_is_vector(w, i)) {
    store_vector(w, i);
    return;
  }
  for (int k = 0; k < (each ? w->shape->each : 1); k++) {
    reg_name guard = w->behind ? ptx_guard(w, k) : ptx_value_guard(w, v, k);
    if (!each && by_lanes(w)) snprintf(guard.text, NAME, "@%%first ");
    reg_name value = ptx_value(w, i->operands[0], k);
    if (ptx_is_tiled(w, i)) {
      store_to(w, "shared", dtype, value.text, place_in_tile(w, i->extra, k), guard.text);
      continue;
    }
    place at = address_of(w, i, k);
    if (exactly)
      ptx_add_exactly(w, i->extra, dtype, value.text, at.reg.text, at.offset, guard.text);
    else if (i->op == WK__LOOP_store_add)
      add_one(w, dtype, value.text, at, guard.text);
    else
      store_one(w, dtype, value.text, at, guard.text);
  }
}
