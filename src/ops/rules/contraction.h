/* Sums of products of labelled tensors: what einsum and tensordot are made of. A label is a number below 128; a
 * tensor's dims are its labels in ascending order. A label of which one tensor has size 1 is broadcast. */
#ifndef WICK_OPS_RULES_CONTRACTION_H
#define WICK_OPS_RULES_CONTRACTION_H

#include "ops/internal.h"

typedef unsigned __int128 wk__labels; /* a set of them, as bits */
enum { WK__MOST_LABELS = 128 };

typedef struct wk__labelled {
  wk_tensor *t; /* borrowed, or of the caller's scope */
  wk__labels labels;
} wk__labelled;

static inline wk__labels wk__label(int k) { return (wk__labels)1 << k; }
static inline wk__labels wk__labels_below(int k) { return wk__label(k) - 1; }
static inline int wk__count_labels(wk__labels s) {
  return __builtin_popcountll((uint64_t)s) + __builtin_popcountll((uint64_t)(s >> 64));
}
/* The least label of a set that is not empty. */
static inline int wk__least_label(wk__labels s) {
  return (uint64_t)s ? __builtin_ctzll((uint64_t)s) : 64 + __builtin_ctzll((uint64_t)(s >> 64));
}
/* Which dim of a tensor with labels `of` has label k. */
static inline int wk__dim_of_label(wk__labels of, int k) { return wk__count_labels(of & wk__labels_below(k)); }

/* for each label k of set, ascending */
#define WK__EACH_LABEL(k, set)                                                                            \
  for (wk__labels each_left = (set), each_once = 1; each_left; each_left &= each_left - 1, each_once = 1) \
    for (int k = wk__least_label(each_left); each_once; each_once = 0)

/* x summed over some of its labels. */
WK_MUST_USE wk_status wk__sum_labels(wk__labelled *x, wk__labels gone);
/* The product of two, summed over all labels that are not in `keep`. */
WK_MUST_USE wk_status wk__contract(wk__labelled a, wk__labelled b, wk__labels keep, wk__labelled *out);

/* The order in which `count` tensors are multiplied in pairs: step s is the product of tensors steps[s][0] and [1],
 * which takes the place of the former. The one with the fewest multiplications for up to 8 tensors; for more, each time
 * the pair whose product grows the least. `steps` has room for count - 1. Sizes are looked at as they are now, which no
 * guard records: any order is right. */
WK_MUST_USE wk_status wk__contraction_order(const wk__labelled *x, int count, wk__labels keep, int (*steps)[2]);

#endif
