/* What the files that write a kernel share: emit.c (the call), emit_needs.c (what is left to write), emit_body.c (the
 * nest). */
#ifndef WICK_COMPILE_FUSE_EMIT_H
#define WICK_COMPILE_FUSE_EMIT_H

#include "compile/fuse/kernel.h"

enum { MAX_PLACES = WK__NEST_MAX_BUFFERS };

/* What becomes of one instruction of a region. */
typedef struct wk__emit_cell {
  bool needed;
  bool picked; /* load: made again for one element of a row, see emit_picked */
  wk__var var;
  int16_t source_region; /* load: of a value of the group, -1: of memory */
  int32_t source_instr;  /* the store's operand */
} wk__emit_cell;

typedef struct wk__emitter {
  const wk__group *group;
  wk__graph *graph;
  wk__graph_node **now; /* by number: what stands for the node by now */
  wk__is_wanted_fn *is_wanted;
  void *context;
  wk__emit_cell **cells; /* [region][instr] */
  /* loops after merging: of loop l the last loop of the group that it is */
  int loop_count;
  wk__region_loop loops[WK__REGION_LOOPS];
  int loop_from[WK__REGION_LOOPS];
  bool geometry_free;
  /* the kernel */
  wk__nest *nest;
  wk__recorder recorder;
  wk__loop_handler *h;
  wk__place places[MAX_PLACES]; /* by buffer, over the loops after merging */
  bool written[MAX_PLACES];
  wk_int *numbers;
  int64_t number_count, number_capacity;
  wk__graph_node *inputs[MAX_PLACES]; /* memories that are read, then arguments of the product as they are by now */
  int input_count, memory_count;
  wk__memory outputs[MAX_PLACES];
  int output_count;
  bool reads_draw; /* some needed load is of the group's random values */
  wk__fused_param params[2 * WK__FUSED_NUMBERS];
  wk__graph_arg floats[WK__FUSED_NUMBERS];
  int param_count, float_count;
  const wk_op *index_op;
} wk__emitter;

/* Who needs what: cells become needed, loads get the values that they stand for. */
void wk__emit_needs(wk__emitter *e);
/* Neighbours that every access crosses evenly become one: fewer loops to bind, and equal kernels for equal work. */
void wk__emit_merge_loops(wk__emitter *e);
bool wk__emit_is_free_of_geometry(const wk__emitter *e); /* plain accesses and no reduction */
/* The nest's instructions and sizes; buffers, params and numbers are noted on the way. */
WK_MUST_USE wk_status wk__emit_body(wk__emitter *e);
int32_t wk__emit_add_number(wk__emitter *e, wk_int x);          /* its place among the numbers */
int wk__emit_input(wk__emitter *e, const wk__graph_node *node); /* its place among the inputs */

static inline wk_status unsupported(void) { return wk_fail(WK_UNSUPPORTED, "not for a fused kernel"); }

static inline const wk__instr *instr_of(const wk__emitter *e, int region, int v) {
  return &e->group->regions[region]->instrs[v];
}

static inline bool has_place(const wk__instr *i) { return wk__loop_has_access(i->op) || i->op == WK__LOOP_index; }

static inline wk__place *place_of(const wk__emitter *e, int region, const wk__instr *instr) {
  return &e->group->regions[region]->places[instr->extra];
}

static inline bool same_strides(const wk__place *a, const wk__place *b, int loops) {
  for (int l = 0; l < loops; l++)
    if (!wk_int_same(a->stride[l], b->stride[l])) return false;
  return true;
}

/* The loop that runs along a row. */
static inline int row_loop(const wk__emitter *e) {
  for (int l = 0; l < e->group->loop_count; l++)
    if (e->group->loops[l].reduced) return l;
  return -1;
}

static inline bool moves_along_row(const wk__emitter *e, int region, const wk__instr *i) {
  return !wk_int_same(place_of(e, region, i)->stride[row_loop(e)], wk_int_of(0));
}

static inline bool uses_loop(const wk__emitter *e, const wk__place *p, int loop) {
  return e->geometry_free || !wk_int_same(p->stride[loop], wk_int_of(0));
}

#endif
