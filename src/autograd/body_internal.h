/* What the files of score bodies share: body.c (values and captured tensors), body_calls.c (calls), body_nests.c (the
 * nests that come of them). */
#ifndef WICK_AUTOGRAD_BODY_INTERNAL_H
#define WICK_AUTOGRAD_BODY_INTERNAL_H

#include "autograd/body.h"

wk_status wk__body_refuse(const char *what); /* WK_UNSUPPORTED */
bool wk__body_has(const wk__body *b, const wk_tensor *tensor);

/* A tensor of one element, whose value the body computes; NULL with the error set. */
wk_tensor *wk__body_new(const wk__body *b, const wk__spec *spec, wk__var value) WK_MUST_USE;
/* The same as a call's result. */
WK_MUST_USE wk_status wk__body_give(wk__body *b, const wk__spec *spec, wk__var value, wk_value *result);

/* What a tensor of one element is in the body: its value, or what is read of a captured one. */
WK_MUST_USE wk_status wk__body_value(wk__body *b, wk_tensor *t, wk__var *out);
/* The same of a float that a captured graph is given in each run: a tensor made of it. */
WK_MUST_USE wk_status wk__body_number(wk__body *b, const wk_value *number, wk__var *out);
/* self[i, j, ...] of a captured tensor, with a value for each dim: args of index.Tensor. */
WK_MUST_USE wk_status wk__body_pick(wk__body *b, const wk_value *args, wk_value *result);
/* The element of a block of scores, in one of their buffers. */
wk__var wk__body_score(wk__body *b, int buffer);

static inline bool wk__is_one_element(const wk_tensor *t) { return wk_int_same(t->numel, wk_int_of(1)); }

#endif
