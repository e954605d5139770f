/* What several phases of long rows load: it is kept in shared memory by the first of them.
 *
 * Where rows are made of vectors of 16 bytes (the shape's `vectors`), a warp asks for all vectors of its chunk at once
 * (cp.async), a group of them a step, and waits for a group when it comes to the step; elsewhere each thread puts its
 * own elements there (load_kept of ptx_memory.c). A chunk is the same warp's in all phases. Test:
 * tests/cuda/test_ptx.py. */
#include "codegen/ptx_rows.h"

enum { MOST_INSTRS = 512 };
typedef struct phase_loads {
  const wk__nest *nest;
  uint8_t seen[MOST_INSTRS / 8];
  uint16_t accesses;
} phase_loads;

/* Loads of elements that value v is made of, up to values of the row. */
static void find_loads(phase_loads *l, int v) {
  const wk__instr *i = &l->nest->instrs[v];
  if (!i->per_element || wk__loop_is_reduction(i->op) || l->seen[v / 8] >> v % 8 & 1) return;
  l->seen[v / 8] |= (uint8_t)(1 << v % 8);
  for (int n = 0; n < wk__loop_ops[i->op].arity; n++) find_loads(l, i->operands[n]);
  if (!wk__loop_has_access(i->op)) return;
  const wk__access *a = &l->nest->accesses[i->extra];
  for (int d = 0; a->has_indirect && d < a->ndim; d++)
    if (a->indirect[d]) find_loads(l, a->indirect[d]);
  if (i->op == WK__LOOP_load && !a->has_indirect && i->extra < WK__PTX_MOST_KEPT)
    l->accesses |= (uint16_t)(1 << i->extra);
}

/* What the phase's reductions and stores are made of. */
static uint16_t loads_of(const wk__nest *nest, int phase) {
  phase_loads l = {.nest = nest};
  for (int v = 1; v < (int)nest->instr_count; v++) {
    const wk__instr *i = &nest->instrs[v];
    bool is_due = wk__instr_phase(i) == phase;
    if (wk__loop_is_reduction(i->op) && is_due) find_loads(&l, i->operands[0]);
    if (wk__loop_is_store(i->op) && i->per_element && is_due) find_loads(&l, v);
  }
  return l.accesses;
}

uint16_t wk__ptx_read_again(const wk__nest *nest, uint8_t first[WK__PTX_MOST_KEPT]) {
  uint16_t once = 0, again = 0;
  int last = 0;
  for (int v = 1; v < (int)nest->instr_count; v++) last = (int)wk__max(last, nest->instrs[v].stage);
  for (int phase = 0; phase <= last && nest->instr_count <= MOST_INSTRS; phase++) {
    uint16_t loads = loads_of(nest, phase);
    for (int a = 0; a < WK__PTX_MOST_KEPT; a++)
      if ((loads & ~once) >> a & 1) first[a] = (uint8_t)phase;
    again |= once & loads;
    once |= loads;
  }
  return again;
}

/* %kept<access>: where the row begins in shared memory. */
void ptx_find_kept(ptx_writer *w) {
  for (int a = 0; a < WK__PTX_MOST_KEPT; a++) {
    if (!(w->shape->kept >> a & 1)) continue;
    reg_name at = ptx_load_arg(w, WK__PTX_KEPT, a, 0);
    ptx_line(w, ".reg .b32 %%kept%d, %%states%d;", a, a);
    ptx_line(w, "cvt.u32.u64 %%kept%d, %s;", a, at.text);
    ptx_line(w, "mov.u32 %%states%d, states;", a);
    ptx_line(w, "add.u32 %%kept%d, %%kept%d, %%states%d;", a, a, a);
  }
  (void)wk__ptx_read_again(w->nest, w->kept_by);
}

/* ---- copies of a chunk ---- */

enum { VECTOR = 16 };

static bool is_copied(const ptx_writer *w, int access) {
  const wk__ptx_shape *s = w->shape;
  bool kept = s->mode == WK__PTX_LONG_ROWS && s->vectors && s->kept >> access & 1;
  return kept && w->kept_by[access] == w->phase;
}
static bool copies_any(const ptx_writer *w) {
  for (int a = 0; a < WK__PTX_MOST_KEPT; a++)
    if (is_copied(w, a)) return true;
  return false;
}
static int steps_of(const ptx_writer *w) { return WK__REDUCE_CHUNK / (WK__REDUCE_LANES * w->shape->each); }

typedef struct chunk_copy {
  reg_name from, to, left; /* left: bytes of the chunk from the lane's first vector on */
  int bytes;               /* of a step */
} chunk_copy;

static chunk_copy begin_copy(ptx_writer *w, int access) {
  int item = (int)wk__dtypes[w->nest->buffers[w->nest->accesses[access].buffer].dtype].size;
  chunk_copy c = {ptx_new(w, "b64"), ptx_new(w, "b32"), ptx_new(w, "b32"), WK__REDUCE_LANES * w->shape->each * item};
  reg_name elements = ptx_new(w, "b64");
  ptx_line(w, "mad.lo.s64 %s, %%e, %d, %%w%d;", c.from.text, item, access);
  ptx_line(w, "mad.lo.s64 %s, %%lane, %d, %s;", c.from.text, VECTOR, c.from.text);
  ptx_line(w, "mad.lo.u32 %s, %%chunk, %d, %%kept%d;", c.to.text, WK__REDUCE_CHUNK * item, access);
  ptx_line(w, "mad.lo.u32 %s, %%lane32, %d, %s;", c.to.text, VECTOR, c.to.text);
  ptx_line(w, "sub.s64 %s, %%end, %%e;", elements.text);
  ptx_line(w, "cvt.u32.u64 %s, %s;", c.left.text, elements.text);
  ptx_line(w, "mul.lo.u32 %s, %s, %d;", c.left.text, c.left.text, item);
  ptx_line(w, "mad.lo.s32 %s, %%lane32, %d, %s;", c.left.text, -VECTOR, c.left.text);
  return c;
}

static void copy_step(ptx_writer *w, const chunk_copy *c, int step) {
  for (int at = step * c->bytes; at < (step + 1) * c->bytes; at += WK__REDUCE_LANES * VECTOR) {
    reg_name there = ptx_new(w, "pred");
    ptx_line(w, "setp.gt.s32 %s, %s, %d;", there.text, c->left.text, at);
    ptx_line(w, "@%s cp.async.cg.shared.global [%s+%d], [%s+%d], %d;", there.text, c->to.text, at, c->from.text, at,
             VECTOR);
  }
}

void ptx_copy_kept(ptx_writer *w) {
  chunk_copy copies[WK__PTX_MOST_KEPT];
  int count = 0;
  if (!copies_any(w)) return;
  for (int a = 0; a < WK__PTX_MOST_KEPT; a++)
    if (is_copied(w, a)) copies[count++] = begin_copy(w, a);
  for (int step = 0; step < steps_of(w); step++) {
    for (int n = 0; n < count; n++) copy_step(w, &copies[n], step);
    ptx_line(w, "cp.async.commit_group;");
  }
}

/* A group without copies takes the place of the step's, so that as many may be left at each step. */
void ptx_wait_for_kept(ptx_writer *w) {
  if (!copies_any(w)) return;
  ptx_line(w, "cp.async.wait_group %d;", steps_of(w) - 1);
  ptx_line(w, "bar.warp.sync 0xffffffff;");
  ptx_line(w, "cp.async.commit_group;");
}
