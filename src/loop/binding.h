/* A nest bound to a launch: loops with known sizes, and *walkers*, each of which moves by a stride with every loop.
 *
 * Walkers are the nest's accesses, whose positions are elements from a buffer's first; then its index expressions in
 * the order of their instructions, whose positions are their values; then the bounds: of each access in turn a walker
 * for every coordinate that may leave the buffer, ascending. Devices arrange loops as suits them; what holds is that
 * the linear index over the reduction loops keeps its order.
 * Tests: tests/c/test_program.c. */
#ifndef WICK_LOOP_BINDING_H
#define WICK_LOOP_BINDING_H

#include "loop/launch.h"

enum { WK__MAX_WALKERS = 64 };

typedef struct wk__binding {
  int access_count, expression_count, walker_count;
  int p, r;                             /* loops of each kind, pointwise ones first */
  int64_t size[WK__NEST_MAX_DIMS];      /* of each loop */
  bool apart[WK__NEST_MAX_DIMS];        /* the loop's marks, which go with it; all false at first */
  char *base[WK__MAX_WALKERS];          /* accesses: the buffer's first element */
  int64_t start[WK__MAX_WALKERS];       /* where a walker is when all loops begin */
  int64_t limit[WK__MAX_WALKERS];       /* by walker: the size that a check_index or a bound is held against */
  const int64_t *indirect[WK__MAX_WALKERS]; /* accesses: the buffer's strides, for indirect coordinates */
  int64_t stride[WK__MAX_WALKERS][WK__NEST_MAX_DIMS];
} wk__binding;

/* Instructions with an expression, which are walkers (index) or have a limit (check_index), in `out`; returns their
 * number. `out` has room for WK__MAX_WALKERS. */
int wk__nest_expressions(const wk__nest *nest, wk__var *out);

/* `expressions` as above. WK_UNSUPPORTED: an index expression is not affine in the loops. */
WK_MUST_USE wk_status wk__bind_nest(const wk__nest *nest, const wk__var *expressions, int expression_count,
                                    const wk__launch *launch, wk__binding *out);

void wk__swap_loops(wk__binding *b, int first, int second);
void wk__move_loop(wk__binding *b, int to, int from);
/* Orders the pointwise loops so that the innermost one has the smallest strides: of stores, and on a tie of loads. */
void wk__sort_loops(const wk__nest *nest, wk__binding *b);
/* Makes one loop of neighbours that every walker crosses evenly, and drops loops of one step. */
void wk__merge_loops(wk__binding *b);

#endif
