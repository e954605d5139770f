/* Rings of tile kernels: what products by wgmma read of a loop's loads is copied into shared memory some rounds ahead.
 *
 * In: a kernel whose loads are ahead (tile/pipeline.c). A load that products alone read, of 16-byte vectors with zeros
 * where the mask is false, is a chain of carries whose values have no registers: round r's lie in slot r modulo the
 * number of slots. Shared memory is: operands that are kept, the slots,
 * and, behind them in a loop that has some, else in their place, what ptx_tile_shared.c and others use for a moment.
 *
 * A round: its copies have arrived (a barrier); its first product begins; those of the round before are done (a
 * barrier), so that the next copies may go to their slot. Where sums are changed between products, the compiler of PTX
 * does not let them wait for a part of the products that are under way: with three slots the next copies go to that of
 * two rounds before, with two they begin when all products are done. Test: tests/cuda/test_tiles.py. */
#include "codegen/ptx_groups.h"
#include "codegen/ptx_tile_internal.h"

enum { LEAST_EXTENT = 16, PIECE = 16 };

/* ---- which loads ---- */

/* Whether products by wgmma alone read a value, as they read shared memory. */
static bool is_read_by_groups(const tile_writer *w, wk__tile v, int depth) {
  bool any = false;
  for (wk__tile u = 1; u < w->k->count; u++) {
    const wk__tile_instr *i = instr_at(w, u);
    for (int o = 0; o < 4; o++) {
      if (i->operands[o] != v || (i->op == WK__TILE_set && o == 0)) continue;
      bool turns = i->op == WK__TILE_permute && depth < 4 && is_read_by_groups(w, u, depth + 1);
      if (!turns && !(i->op == WK__TILE_dot && o < 2 && uses_groups(w, u))) return false;
      any = true;
    }
  }
  return any;
}

static bool leaves_zeros(const tile_writer *w, const wk__tile_instr *load) {
  return !load->operands[2] || is_zero(instr_at(w, load->operands[2]));
}

static bool is_matrix_of_halves(const wk__tile_type *t) { return class_of(t) == CLASS_H && t->ndim == 2; }

static bool may_be_copied(tile_writer *w, wk__tile v) {
  const wk__tile_instr *i = instr_at(w, v);
  if (i->op != WK__TILE_load || !is_matrix_of_halves(&i->type) || !leaves_zeros(w, i)) return false;
  int d = fast_dim(w, i->operands[0]), bits = log2_of(PIECE / 2);
  progress p = progress_of(w, i->operands[0], d, bits, 0);
  bool has_pieces = log2_of(wk__tile_elements(&i->type)) >= w->thread_bits + bits; /* one a thread */
  if (!has_pieces || i->type.shape[d] < LEAST_EXTENT || p.how != NEXT || p.zeros < bits) return false;
  if (i->operands[1] && progress_of(w, i->operands[1], d, bits, 0).how != SAME) return false;
  return is_read_by_groups(w, v, 0);
}

static bool is_late(const tile_writer *w, wk__tile loop, wk__tile end) {
  return w->stages > 2 && changes_sums(w, loop, end);
}

/* A loop has as many slots as there are stages. */
void wanted_rounds(tile_writer *w, uint8_t *rounds, int stages) {
  w->stages = stages;
  for (wk__tile loop = 1; loop < w->k->count && stages > 1; loop++) {
    if (instr_at(w, loop)->op != WK__TILE_for) continue;
    wk__tile end = wk__tile_region_end(w->k, loop);
    int ahead = stages - (is_late(w, loop, end) ? 2 : 1);
    for (wk__tile v = instr_at(w, loop)->next; v != end; v = instr_at(w, v)->next)
      if (may_be_copied(w, v)) rounds[v] = (uint8_t)ahead;
  }
}

/* ---- chains of carries ---- */

static wk__tile next_of(const tile_writer *w, wk__tile end, wk__tile carry) {
  for (wk__tile s = end - 1; instr_at(w, s)->op == WK__TILE_set; s--)
    if (instr_at(w, s)->operands[0] == carry) return instr_at(w, s)->operands[1];
  return carry;
}

static bool is_copied(const tile_writer *w, wk__tile v, const layout *l) {
  const wk__tile_instr *i = instr_at(w, v);
  if (i->op != WK__TILE_load || !is_matrix_of_halves(&i->type) || !leaves_zeros(w, i) || !w->own[v]) return false;
  const layout *own = &w->layouts[w->own[v]];
  return vector_bits_of(w, i->operands[0], i->operands[1], own) == log2_of(PIECE / 2) &&
         i->type.shape[register_dim(&i->type, own)] >= LEAST_EXTENT &&
         (!l || register_dim(&i->type, own) == register_dim(&i->type, l));
}

static bool has_one_reader(const tile_writer *w, wk__tile v) {
  int uses = 0;
  for (wk__tile u = 1; u < w->k->count; u++)
    for (int o = 0; o < 4; o++)
      uses += instr_at(w, u)->operands[o] == v && !(instr_at(w, u)->op == WK__TILE_set && o == 0);
  return uses == 1;
}

static bool is_read_behind(const tile_writer *w, wk__tile v, wk__tile end) {
  for (wk__tile u = end; u < w->k->count; u++)
    for (int o = 0; o < 4; o++)
      if (instr_at(w, u)->operands[o] == v) return true;
  return false;
}

/* The carries of a ring that begins with `head`, in their order, and its load in the loop: -> how many; 0: none. */
static int follow_chain(const tile_writer *w, wk__tile loop, wk__tile end, wk__tile head,
                        wk__tile chain[WK__TILE_MOST_AHEAD], wk__tile *out_load) {
  wk__tile v = head;
  int count = 0;
  while (instr_at(w, v)->op == WK__TILE_carry && v < loop && count < WK__TILE_MOST_AHEAD) {
    if (count && !has_one_reader(w, v)) return 0;
    chain[count++] = v;
    wk__tile next = next_of(w, end, v);
    if (next == v) return 0;
    v = next;
  }
  *out_load = v;
  if (v < loop || !has_one_reader(w, v) || !is_copied(w, v, NULL)) return 0;
  if (!is_read_by_groups(w, head, 0) || is_read_behind(w, head, end)) return 0;
  for (int n = 0; n < count; n++) {
    wk__tile first = instr_at(w, chain[n])->operands[0];
    if (!first || !has_one_reader(w, first) || !is_copied(w, first, &w->layouts[w->own[v]])) return 0;
  }
  return count;
}

/* ---- loops ---- */

static bool reads_ring_of(const tile_writer *w, const staged_loop *s, wk__tile v) {
  for (int o = 0; o < 2; o++) {
    int n = w->ring_of[group_operand_of(w, v, o).root];
    for (int r = 0; r < s->count && n; r++)
      if (s->rings[r] == n - 1) return true;
  }
  return false;
}

static void add_ring(tile_writer *w, staged_loop *s, const wk__tile *chain, int count, wk__tile load) {
  ring *r = &w->rings[w->ring_count];
  *r = (ring){.head = chain[0], .load = load, .offset = s->bytes};
  s->rings[s->count++] = w->ring_count++;
  s->rounds = count;
  int64_t bytes = wk__tile_elements(type_at(w, load)) * 2;
  s->bytes += (int)((bytes + WK__GROUP_ATOM - 1) / WK__GROUP_ATOM * WK__GROUP_ATOM);
  w->ring_of[load] = (uint8_t)w->ring_count;
  for (int n = 0; n < count; n++) {
    wk__tile first = instr_at(w, chain[n])->operands[0];
    w->ring_of[chain[n]] = w->ring_of[first] = (uint8_t)w->ring_count;
    w->stage[first] = (uint8_t)(n + 1);
    if (!s->first_load || first < s->first_load) s->first_load = first;
  }
}

/* Nothing from a loop's first load on, or in it, writes memory or is a region of its own: loads may be late. */
static bool is_straight(const tile_writer *w, wk__tile from, wk__tile until) {
  for (wk__tile v = from; v < until; v++) {
    int op = instr_at(w, v)->op, class = wk__tile_ops[op].op_class;
    if (class == WK__TILE_MEMORY && op != WK__TILE_load) return false;
    if (class == WK__TILE_REGION && op != WK__TILE_carry && op != WK__TILE_set) return false;
  }
  return true;
}

static void find_rings_of(tile_writer *w, wk__tile loop) {
  staged_loop s = {.loop = loop, .end = wk__tile_region_end(w->k, loop)};
  wk__tile chain[WK__TILE_MOST_AHEAD], load, v = loop;
  if (!is_straight(w, loop + 1, s.end)) return;
  while (instr_at(w, v - 1)->op == WK__TILE_carry) v--;
  for (; v < loop; v++) {
    int count = in_ring(w, v) ? 0 : follow_chain(w, loop, s.end, v, chain, &load);
    if (count == 0 || (s.count && count != s.rounds) || w->ring_count == MAX_RINGS) continue;
    if (!is_straight(w, instr_at(w, v)->operands[0], loop)) continue;
    add_ring(w, &s, chain, count, load);
  }
  if (!s.count) return;
  s.changes_sums = changes_sums(w, loop, s.end), s.late = is_late(w, loop, s.end);
  s.slots = s.rounds + 1 + s.late;
  for (v = loop; v < s.end && !s.first_product; v++)
    if (instr_at(w, v)->op == WK__TILE_dot && uses_groups(w, v) && reads_ring_of(w, &s, v)) s.first_product = v;
  w->staged[w->staged_count++] = s;
}

void find_rings(tile_writer *w) {
  for (wk__tile v = 1; v < w->k->count && w->staged_count < MAX_STAGED; v++)
    if (instr_at(w, v)->op == WK__TILE_for) find_rings_of(w, v);
}

staged_loop *staged_of(tile_writer *w, wk__tile loop) {
  for (int n = 0; n < w->staged_count; n++)
    if (w->staged[n].loop == loop) return &w->staged[n];
  return NULL;
}

/* ---- shared memory ---- */

static int slots_bytes(const staged_loop *s) { return s->slots * s->bytes; }

void begin_shared(tile_writer *w) {
  w->ring_base = new_word(w);
  SAY("mov.u32 %%r%d, memory", w->ring_base);
  if (w->has_groups) w->ring_base = WITH("and.b32", WITH("add.u32", w->ring_base, WK__GROUP_ATOM - 1), -WK__GROUP_ATOM);
  w->shared_base = w->kept_bytes ? WITH("add.u32", w->ring_base, w->kept_bytes) : w->ring_base;
  w->shared_offset = w->kept_bytes;
  need_shared(w, 0);
  for (int n = 0; n < w->staged_count; n++) {
    staged_loop *s = &w->staged[n];
    s->scratch = WITH("add.u32", w->shared_base, slots_bytes(s));
    s->read = new_word(w), s->write = new_word(w);
    need_shared(w, slots_bytes(s));
  }
}

/* What is used for a moment lies behind the loop's slots, or where all loops' are. */
static void use_scratch(tile_writer *w, const staged_loop *s) {
  int other = w->shared_base;
  if (s) {
    w->shared_offset = w->kept_bytes + slots_bytes(s);
    w->outside = other, w->shared_base = s->scratch;
  } else {
    w->shared_offset = w->kept_bytes;
    w->shared_base = w->outside;
  }
}

/* ---- copies ---- */

/* `slot`: a word, where it begins. */
static void copy(tile_writer *w, const ring *r, wk__tile load, int slot) {
  const wk__tile_instr *i = instr_at(w, load);
  int at = w->own[load], pointer = base_of(w, i->operands[0], at), mask = base_of(w, i->operands[1], at);
  const layout *l = &w->layouts[at];
  form f = group_form(&i->type, register_dim(&i->type, l));
  through x = begin_through(w, &i->type, l, &f);
  int one = primary(w, l);
  x.origin = WITH("add.u32", slot, r->offset);
  for (int reg = 0; reg < registers_of(l); reg += PIECE / 2) {
    int offset, address = address_of(w, &x, reg, &offset), bytes = new_word(w);
    if (i->operands[1])
      SAY("selp.b32 %%r%d, %d, 0, %%p%d", bytes, PIECE, mask + reg);
    else
      SAY("mov.b32 %%r%d, %d", bytes, PIECE);
    wk__string_append(&w->text.code, "\t");
    if (one >= 0) wk__string_printf(&w->text.code, "@%%p%d ", one);
    wk__string_printf(&w->text.code, "cp.async.cg.shared.global [%%r%d+%d], [%%d%d], %d, %%r%d;\n", address, offset,
                      pointer + reg, PIECE, bytes);
  }
}

static staged_loop *staged_with(tile_writer *w, int ring_number) {
  for (int n = 0; n < w->staged_count; n++)
    for (int r = 0; r < w->staged[n].count; r++)
      if (w->staged[n].rings[r] == ring_number) return &w->staged[n];
  return NULL;
}

static bool is_last_of_stage(const tile_writer *w, const staged_loop *s, wk__tile load) {
  for (wk__tile v = load + 1; v < s->loop; v++)
    if (w->stage[v] == w->stage[load]) return false;
  return true;
}

/* The first rounds, in front of the loop; those in it begin behind its first product. */
void emit_ring_load(tile_writer *w, wk__tile load) {
  int number = w->ring_of[load] - 1;
  staged_loop *s = staged_with(w, number);
  if (!w->stage[load]) return;
  if (load == s->first_load) {
    settle_all(w);
    SAY("bar.sync 0");
    SAY("mov.b32 %%r%d, 0;\n\tmov.b32 %%r%d, %d", s->read, s->write, s->rounds * s->bytes);
    use_scratch(w, s);
  }
  copy(w, &w->rings[number], load, WITH("add.u32", w->outside, (w->stage[load] - 1) * s->bytes));
  if (is_last_of_stage(w, s, load)) SAY("cp.async.commit_group");
}

void begin_staged(tile_writer *w, staged_loop *s) {
  w->pending_count = 0;
  for (wk__tile v = s->loop; v < s->end; v++)
    if (is_deferred(w, s, v) && w->pending_count < MAX_PENDING) w->pending[w->pending_count++] = v;
}

void await_round(tile_writer *w, const staged_loop *s) {
  SAY("cp.async.wait_group %d", s->rounds - 1);
  SAY("fence.proxy.async.shared::cta;\n\tbar.sync 0");
}

void begin_copies(tile_writer *w, staged_loop *s) {
  if (s->changes_sums && !s->late) settle_all(w);
  if (!s->late) {
    settle_all_but_last(w);
    SAY("bar.sync 0");
  }
  int slot = TWO("add.u32", w->outside, s->write);
  for (int r = 0; r < s->count; r++) copy(w, &w->rings[s->rings[r]], w->rings[s->rings[r]].load, slot);
  SAY("cp.async.commit_group");
}

void end_round(tile_writer *w, staged_loop *s) {
  for (int n = w->pending_count - 1; n >= 0; n--)
    if (!is_deferred(w, s, w->pending[n])) {
      settle(w, w->pending[n]);
      break;
    }
  if (s->late) settle_last_round(w);
  for (int n = 0; n < 2; n++) {
    int at = n ? s->write : s->read, wraps = new_registers(w, CLASS_P, 1);
    SAY("add.u32 %%r%d, %%r%d, %d;\n\tsetp.eq.u32 %%p%d, %%r%d, %d", at, at, s->bytes, wraps, at, slots_bytes(s));
    SAY("selp.b32 %%r%d, 0, %%r%d, %%p%d", at, at, wraps);
  }
}

void end_staged(tile_writer *w, staged_loop *s) {
  (void)s;
  SAY("wgmma.wait_group.sync.aligned 0;\n\tcp.async.wait_group 0;\n\tbar.sync 0");
  w->pending_count = 0;
  use_scratch(w, NULL);
}
