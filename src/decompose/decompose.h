/* Operators in terms of a small primitive set (rows that are `prim`), as calls of operators.
 *
 * The compiler decomposes by need (decompose.c), because a lowered body fuses better than its parts. The whole table is
 * for backends and exporters that know few operators: a layer of the thread takes each call that is traced apart, rules
 * call operators themselves, and so only primitives are recorded. What a decomposition gives is as exact as the
 * operator: small floats are computed in their compute dtype and rounded at the end. Sizes may be symbols.
 *
 * Tests: tests/ops/test_decompositions.py. */
#ifndef WICK_DECOMPOSE_DECOMPOSE_H
#define WICK_DECOMPOSE_DECOMPOSE_H

#include "ops/internal.h"

typedef enum wk__decomposition_kind {
  WK__DECOMPOSITION_PRIM,  /* of the primitive set */
  WK__DECOMPOSITION_PARTS, /* a composite; one without a derivative is replaced by its parts before it gets to a layer
                            */
  WK__DECOMPOSITION_RULE,  /* a function of its own, or what its loop body says */
} wk__decomposition_kind;

wk__decomposition_kind wk__decomposition_of(const wk_op *op);

/* What becomes of this thread's calls; gives what it was. */
typedef enum wk__decomposing {
  WK__DECOMPOSING_NOTHING,
  WK__DECOMPOSING_ONCE, /* by their rules, whose own calls stay whole */
  WK__DECOMPOSING_ALL,  /* down to primitives */
} wk__decomposing;
wk__decomposing wk__set_decomposing(wk__decomposing what);
wk__layer_fn wk__decompose_layer; /* in wiring.c */
/* One call by its parts, below the tape of its level. */
WK_MUST_USE wk_status wk__decompose_call(const wk_op *op, const wk_value *args, wk_value *results);

/* ---- rules: borrowed arguments in, `out` the results, owned by the scope around the call; a list is appended to with
 * wk_call, and an operator that mutates writes its arguments by copy_ ---- */
typedef wk_status wk__decompose_fn(wk__call *call, wk_tensor **out);
extern wk__decompose_fn *const wk__decompose_rules[]; /* by operator; NULL: a primitive, parts, or its body says it */
wk__decompose_fn wk__decompose_body;                  /* of a pointwise operator that is lowered (body.c) */
#include "decompose/decompose_rules.h"

/* A rule with one result, as an expression over `c`. */
#define WK__DECOMPOSE_ONE(name)                                  \
  static wk_tensor *name(wk__call *c);                           \
  wk_status wk__decompose_##name(wk__call *c, wk_tensor **out) { \
    return (out[0] = name(c)) ? WK_OK : wk_error_category();     \
  }                                                              \
  static wk_tensor *name(wk__call *c)

/* ---- what rules say often ---- */
#define WK__NO_VALUE ((wk_value){0})
static inline wk_tensor *wk__d_arg(const wk__call *c, int i) { return wk__arg_tensor(c, i); }
static inline wk_value wk__d_device(const wk_tensor *like) {
  return (wk_value){.tag = WK_VALUE_DEVICE, .device = like->device};
}
wk_tensor *wk__d_add(wk_tensor *a, wk_tensor *b);
wk_tensor *wk__d_sub(wk_tensor *a, wk_tensor *b);
wk_tensor *wk__d_plus(wk_tensor *a, double number);
wk_tensor *wk__d_times(wk_tensor *a, double number);
wk_tensor *wk__d_cast(wk_tensor *t, wk_dtype dtype);                             /* itself when it has it */
wk_tensor *wk__d_number(wk_value number, wk_dtype dtype, const wk_tensor *like); /* a tensor without dims */
wk_tensor *wk__d_truth(wk_tensor *t);                                            /* not zero; bool as it is */
wk_tensor *wk__d_sum(wk_tensor *t, const wk_int *dims, int count, bool keep);
wk_tensor *wk__d_sum_dim(wk_tensor *t, int64_t dim);  /* keeps the dim */
wk_tensor *wk__d_amax_dim(wk_tensor *t, int64_t dim); /* keeps the dim */
wk_tensor *wk__d_mean_last(wk_tensor *t, int dims);   /* over the last dims, kept */
wk_tensor *wk__d_reshape(wk_tensor *t, const wk_int *sizes, int count);
/* The tensor in memory as the description says; itself when it lies so. */
wk_tensor *wk__d_laid_out(wk_tensor *t, const wk__spec *spec);
/* The dims of a description by descending stride: the order of memory. */
void wk__d_order(const wk__spec *spec, int *out_dims);
wk_tensor *wk__d_in_order(wk_tensor *t, const int *dims, int count, bool back); /* permuted to it, or back */

#endif
