/* What the files of compile/ share: regions (nests over memory, before fusion) and fused kernels.
 *
 * A lowered nest addresses buffers by logical dims. To fuse nests one has to know where they go in memory, because a
 * view changes the dims and not the memory. So each nest becomes a *region*: loops, and *places*, which say for an
 * access how far each loop moves in a memory. Views vanish there: they are other strides over the same memory.
 * All numbers are wk_int over the graph's symbols, so one fused kernel serves all sizes. */
#ifndef WICK_COMPILE_FUSE_FUSE_H
#define WICK_COMPILE_FUSE_FUSE_H

#include "compile/choices.h"
#include "compile/compile.h"
#include "device/device.h"
#include "graph/internal.h"
#include "ops/plan.h"

enum {
  WK__REGION_LOOPS = 12,
  WK__REGION_INDIRECTS = 4,
  WK__REGION_BOUNDS = 4,
  WK__FUSED_NUMBERS = 12, /* number inputs of one kernel */
};

/* A value that owns its memory: a node, or an item of a list, that is no view. Named by its node. */
typedef const wk__graph_node *wk__memory;
wk__memory wk__memory_of(const wk__graph_node *node);

typedef struct wk__region_loop {
  wk_int size;
  bool reduced;
} wk__region_loop;

typedef struct wk__bound { /* a coordinate that may leave the memory: start + sum of step * loop, in [0, size) inside */
  wk_int start, step[WK__REGION_LOOPS];
  wk_int size, stride; /* of the memory along it; `stride` of the place has none of it */
} wk__bound;

/* Where an access goes, in elements from the memory's first, or what an index expression is (memory NULL). */
typedef struct wk__place {
  wk__memory memory;
  uint8_t dtype; /* of the memory */
  bool per_element;
  uint8_t indirect_count, bound_count;
  wk_int offset;
  wk_int stride[WK__REGION_LOOPS]; /* by loop */
  struct {
    uint16_t value; /* instruction that is added, scaled: */
    wk_int stride, size;
  } indirect[WK__REGION_INDIRECTS];
  wk__bound bounds[WK__REGION_BOUNDS]; /* of a masked load */
} wk__place;

/* The loops alone say where it goes. */
static inline bool wk__place_is_plain(const wk__place *p) { return p->indirect_count == 0 && p->bound_count == 0; }

/* One node's body over its loops. Instructions are those of its nest; `extra` of a load, store or index is the number
 * of a place, of a param the argument that it comes from. */
typedef struct wk__region {
  const wk__graph_node *node;
  bool has_reduction;
  int loop_count;
  wk__region_loop loops[WK__REGION_LOOPS];
  wk__instr *instrs; /* [0] is unused */
  int instr_count;
  wk__place *places;
  int place_count;
} wk__region;

/* region.c. `out` stays NULL for what does not become part of a fused kernel. */
WK_MUST_USE wk_status wk__region_create(const wk__graph_node *node, wk__region **out);
void wk__region_release(wk__region *region);
wk_device wk__region_device(const wk__region *region);
/* The node's arguments and results as values of a call, tensors as shapes. `args` has room for WK__MAX_ARGS; lists of
 * tensors are not supported (false). */
bool wk__node_args(const wk__graph_node *node, wk_value *args);
int64_t wk__hint(wk_int x); /* its present value; 0 when it has none */

/* ---- joining loops (join.c) ---- */

/* A loop of both: how far one step of it goes in the loops of each side. */
typedef struct wk__joined_loop {
  wk__region_loop loop;
  int8_t a, b; /* loop of each side that it is part of; -1: none */
  wk_int a_step, b_step;
} wk__joined_loop;
typedef struct wk__join {
  int count;
  wk__joined_loop loops[WK__REGION_LOOPS];
} wk__join;

/* The loops of two sides that go together through one memory: the same elements at the same time. False: they do not.
 */
bool wk__join_loops(const wk__region_loop *a, int a_count, const wk__place *a_place, const wk__region_loop *b,
                    int b_count, const wk__place *b_place, wk__join *out);
void wk__join_apply(const wk__join *join, bool side_b, wk__region *region); /* rewrites the region's places */

/* ---- groups of regions that become one kernel (schedule.c makes them, emit.c writes them) ---- */
typedef struct wk__group {
  wk__region **regions; /* owned, in the graph's order */
  int region_count;
  int loop_count;
  wk__region_loop loops[WK__REGION_LOOPS]; /* of all its regions */
  bool has_reduction;
  /* a matrix product whose epilogue the group is, or one of whose operands it makes; else NULL */
  const wk__graph_node *product;
  wk__memory whole; /* the product's result */
  wk__memory home;  /* of an epilogue: the group's result that the product's lies in, or its own where that is wanted */
  wk__memory made;  /* of an operand that is not materialised: the memory that it would be; else NULL */
  int made_operand; /* which argument of the product */
  bool made_transposed; /* its last two dims are those of the memory the other way round; attention's: heads and
                           rows */
  int row_loop;         /* of a convolution: the first of the loops over rows (channels), behind those over images */
  int column_loop;      /* the first of the loops that run along the columns of the result, or of the operand */
  const wk__graph_node *draw; /* of random values that the group reads as they are drawn; else NULL */
} wk__group;

/* Where all of it is. */
static inline wk_device wk__group_place(const wk__group *g) { return wk__region_device(g->regions[0]); }
static inline const wk__device_type *wk__group_device(const wk__group *g) {
  return wk__device_types[wk__group_place(g).type];
}

void wk__group_release(wk__group *group);
/* join_groups.c: the two as one, through a memory that both use. `out` is NULL where that would be wrong, and else has
 * taken both. */
WK_MUST_USE wk_status wk__group_join(wk__group *a, wk__group *b, wk__memory memory, wk__group **out);

typedef bool wk__is_wanted_fn(void *context, wk__memory memory); /* outside the group */

/* product_fit.c: makes the group the epilogue of a product that it reads. False: it cannot be. */
bool wk__group_take_product(wk__group *group, const wk__graph_node *product, const wk__choices *choices,
                            wk__is_wanted_fn *is_wanted, void *context);
/* What the product gives, as a memory; NULL: it is not read. */
wk__memory wk__product_result(const wk__graph_node *product);
/* Makes the group what makes an operand of the product that reads its result. False: it cannot be. */
bool wk__group_make_operand(wk__group *group, const wk__graph_node *product, const wk__choices *choices,
                            wk__is_wanted_fn *is_wanted, void *context);
/* The first for a random draw, which may be wanted outside as well. */
bool wk__group_take_draw(wk__group *group, const wk__graph_node *draw, const wk__choices *choices,
                         wk__is_wanted_fn *is_wanted, void *context);

/* Puts a call of a fused kernel for the group at the end of the graph and lets its results stand for the nodes'; the
 * same in `now`, which says by number what stands for a node. `out_node` is NULL when nothing of it is wanted.
 * WK_UNSUPPORTED: it cannot be one kernel. */
WK_MUST_USE wk_status wk__emit_group(wk__graph *graph, const wk__group *group, wk__is_wanted_fn *is_wanted,
                                     void *context, wk__kernels *kernels, wk__graph_node **now,
                                     wk__graph_node **out_node);

/* decompose.c, a pass. */
WK_MUST_USE wk_status wk__decompose(wk__graph *graph, bool *out_changed);
/* bytes.c, a pass: products of dequantized numbers become products of bytes. */
WK_MUST_USE wk_status wk__multiply_bytes(wk__graph *graph, bool *out_changed);
/* layout.c: images with the channels last, as choices->channels_last says. */
WK_MUST_USE wk_status wk__place_layouts(wk__graph *graph, const wk__choices *choices, bool *out_changed);
/* casts.c, a pass: small floats become wide where they are used. */
WK_MUST_USE wk_status wk__part_casts(wk__graph *graph, bool *out_changed);

/* weights.c: for weights with at least so many small products. */
WK_MUST_USE wk_status wk__lay_out_weights(wk__graph *graph, int64_t fewest_products);

/* schedule.c: replaces nodes by calls of fused kernels, whose list grows in `kernels`. */
WK_MUST_USE wk_status wk__fuse(wk__graph *graph, wk__kernels *kernels);

#endif
