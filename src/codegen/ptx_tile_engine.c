/* Loads of tile kernels that the copy engine brings (sm_90): boxes of tensors, whose maps are arguments.
 *
 * In: loads of rings (ptx_tile_rings.c) that are boxes of tensors which the kind says there are maps of, and begin at
 * whole pieces of 16 bytes of their lines, as all boxes of the engine have to: others are an illegal instruction. One
 * thread asks for a round's boxes, all threads wait at its slot's barrier, at which each ring of the loop arrives once
 * a round, and its bytes. A round that is not there is neither asked nor waited for, so a barrier's phases are those of
 * its slot's rounds, in all loops that the loop is in. Test: tests/cuda/test_tiles.py. */
#include "codegen/ptx_bulk.h"
#include "codegen/ptx_groups.h"
#include "codegen/ptx_tile_internal.h"

enum { PIECE = 16 };

static const wk__tile_instr *tensor_of(const tile_writer *w, wk__tile load) {
  return instr_at(w, instr_at(w, instr_at(w, load)->operands[3])->operands[0]);
}

static bool begins_at_piece(const tile_writer *w, wk__tile load) {
  wk__tile along_lines = instr_at(w, instr_at(w, load)->operands[3])->operands[1 + tensor_of(w, load)->axis];
  return progress_of(w, along_lines, -1, 0, 0).zeros >= log2_of(PIECE / wk__dtypes[type_at(w, load)->dtype].size);
}

static bool has_map(const tile_writer *w, wk__tile load) {
  if (!instr_at(w, load)->operands[3]) return false;
  int64_t number = tensor_of(w, load)->number.i;
  return number < WK__TILE_TENSORS && w->kind->maps >> number & 1 && begins_at_piece(w, load);
}

bool may_be_boxed(const tile_writer *w, wk__tile load) {
  return has_map(w, load) && fast_dim(w, instr_at(w, load)->operands[0]) == tensor_of(w, load)->axis;
}

bool is_boxed(const tile_writer *w, wk__tile load) {
  return has_map(w, load) && register_dim(type_at(w, load), &w->layouts[w->own[load]]) == tensor_of(w, load)->axis;
}

/* ---- maps ---- */

static wk__ptx_tile_map map_of(const tile_writer *w, wk__tile load) {
  const wk__tile_type *t = type_at(w, load);
  int axis = tensor_of(w, load)->axis;
  return (wk__ptx_tile_map){.tensor = (uint8_t)tensor_of(w, load)->number.i,
                            .dtype = t->dtype,
                            .axis = (uint8_t)axis,
                            .line = (int16_t)wk__ptx_group_line(t->shape[axis] * wk__dtypes[t->dtype].size),
                            .lines = (int16_t)wk__min(t->shape[1 - axis], WK__BULK_LINES)};
}

static bool is_same(const wk__ptx_tile_map *a, const wk__ptx_tile_map *b) {
  return a->tensor == b->tensor && a->dtype == b->dtype && a->axis == b->axis && a->line == b->line &&
         a->lines == b->lines;
}

/* A long: rings of the same boxes share a map. */
static int map_argument(tile_writer *w, wk__tile load) {
  wk__ptx_tile_map map = map_of(w, load);
  int n = 0;
  while (n < w->out->map_count && !is_same(&w->out->maps[n], &map)) n++;
  if (n == w->out->map_count) w->out->maps[w->out->map_count++] = map;
  return wk__ptx_bulk_map(&w->text, wk__ptx_tile_first_map(w->k->parameters) + n * WK__PTX_MAP_WORDS);
}

/* ---- barriers ---- */

void begin_engine(tile_writer *w) {
  if (!w->barrier_bytes) return;
  w->first_thread = new_registers(w, CLASS_P, 1), w->zero = new_word(w);
  SAY("setp.eq.u32 %%p%d, %%r%d, 0;\n\tmov.b32 %%r%d, 0", w->first_thread, w->tid, w->zero);
  for (int n = 0; n < w->staged_count; n++) {
    staged_loop *s = &w->staged[n];
    if (!s->by_engine) continue;
    s->phases = new_word(w);
    SAY("mov.b32 %%r%d, 0", s->phases);
    for (int b = 0; b < s->slots; b++)
      wk__ptx_bulk_begin(&w->text, w->first_thread, w->barrier_base, s->barriers + b * WK__BULK_BARRIER, s->by_engine);
    for (int r = 0; r < s->count; r++) {
      ring *x = &w->rings[s->rings[r]];
      if (x->by_engine) x->map = map_argument(w, x->load);
    }
  }
  SAY("fence.mbarrier_init.release.cluster;\n\tbar.sync 0");
}

static int barrier_of(tile_writer *w, const staged_loop *s, int slot) {
  return WITH("add.u32", TWO("add.u32", w->barrier_base, WITH("mul.lo.u32", slot, WK__BULK_BARRIER)), s->barriers);
}

void await_engine(tile_writer *w, const staged_loop *s) {
  int parity = WITH("and.b32", TWO("shr.u32", s->phases, s->read), 1), bit = new_word(w);
  wk__ptx_bulk_wait(&w->text, barrier_of(w, s, s->read), parity, false);
  SAY("mov.b32 %%r%d, 1;\n\tshl.b32 %%r%d, %%r%d, %%r%d", bit, bit, bit, s->read);
  SAY("xor.b32 %%r%d, %%r%d, %%r%d", s->phases, s->phases, bit);
}

/* ---- copies ---- */

/* The first thread, where the round is there: a predicate. */
static int who_asks(tile_writer *w, wk__tile there) {
  if (!there) return w->first_thread;
  int p = new_registers(w, CLASS_P, 1);
  SAY("and.pred %%p%d, %%p%d, %%p%d", p, w->first_thread, scalar_of(w, there));
  return p;
}

/* A panel of lines at a time (ptx_groups.h), which is more than a box where there are more lines than one has. */
void bring(tile_writer *w, const staged_loop *s, const ring *r, wk__tile load, int slot, int place) {
  const wk__tile_type *t = type_at(w, load);
  const wk__tile_instr *box = instr_at(w, instr_at(w, load)->operands[3]);
  wk__ptx_tile_map map = map_of(w, load);
  int axis = map.axis, item = wk__dtypes[t->dtype].size, at = 0;
  int fast = scalar_of(w, box->operands[1 + axis]), slow = scalar_of(w, box->operands[2 - axis]);
  int asks = who_asks(w, box->operands[3]), barrier = barrier_of(w, s, slot);
  wk__ptx_bulk_expect(&w->text, asks, barrier, r->bytes);
  for (int x = 0; x < t->shape[axis]; x += map.line / item)
    for (int y = 0; y < t->shape[1 - axis]; y += map.lines, at += map.lines * map.line) {
      wk__ptx_bulk_box part = {r->map, WITH("add.u32", fast, x), WITH("add.u32", slow, y), w->zero, -1};
      wk__ptx_bulk_copy(&w->text, asks, &part, WITH("add.u32", place, r->offset + at), barrier);
    }
}
