/* Levels: function transforms that run. vmap, grad and forward mode each begin a level, call the function and end it.
 *
 * A *tensor of a level* is described as the function sees it (one example of a batch, a leaf of a tape, a dual number)
 * and stands for its *inner value*, a tensor of the level below. It lies over the memory of that value, without the
 * batch dim, so that shapes, strides, versions and reads are as for any tensor. A call is recorded by the tape of the
 * level that the thread is in, if it is one of grad; then the layer here turns it into calls on inner values, one level
 * below, where the next transform sees them; below the last level they are computed or traced. So transforms nest in
 * any order, and what belongs to an outer level is a constant to an inner one and followed by the outer one.
 *
 * Which calls a batch becomes, and which a derivative, follows from the operator table (internal.h). A tensor that has
 * outlived its level is its inner value from then on.
 *
 * Ownership: wk__level_begin owns the level until wk__level_end; a tensor owns its inner value. Per thread.
 * Tests: tests/python/test_func.py, tests/ops/test_levels.py. */
#ifndef WICK_LEVELS_LEVELS_H
#define WICK_LEVELS_LEVELS_H

#include "ops/ops.h"

typedef enum wk__level_kind {
  WK__LEVEL_GRAD,    /* a tape of its own */
  WK__LEVEL_BATCH,   /* vmap: tensors are one example each of many */
  WK__LEVEL_FORWARD, /* tensors have tangents */
} wk__level_kind;

/* What random operators do for the examples of a batch. */
typedef enum wk__randomness { WK__RANDOM_ERROR, WK__RANDOM_DIFFERENT, WK__RANDOM_SAME } wk__randomness;

typedef struct wk__level {
  struct wk__level *outer;
  uint32_t number; /* no other level has it */
  uint8_t kind, randomness;
  bool follows_below;   /* its tape records tensors of the level below as well: torch.autograd.forward_ad */
  wk_int batch_size;    /* of WK__LEVEL_BATCH */
  wk__thread_mode mode; /* the thread's when the level began */
} wk__level;

/* NULL with the error set. */
wk__level *wk__level_begin(wk__level_kind kind, wk_int batch_size, wk__randomness randomness) WK_MUST_USE;
void wk__level_follow_below(wk__level *innermost);
void wk__level_end(void);                        /* of the innermost one */
int wk__level_depth(void);                       /* how many there are */
int wk__level_depth_of(const wk_tensor *tensor); /* which of them, from 1, the tensor belongs to; 0: none */

/* A tensor of the innermost level over `value`. batch_dim -1: it has no batch dim; tangent NULL: it has none. */
wk_tensor *wk__level_wrap(wk_tensor *value, int batch_dim, wk_tensor *tangent) WK_MUST_USE;
/* Borrowed: the tensor that is meant now. One whose level is over is its inner value. */
wk_tensor *wk__level_living(wk_tensor *tensor);
/* Its inner value, if it belongs to the innermost level; else itself. Borrowed. */
static inline wk_tensor *wk__level_value(wk_tensor *t) {
  return t->inner && wk__is_of_this_level(t) ? t->inner->value : t;
}
/* Between these calls are made one level below the innermost one. */
wk__thread_mode wk__level_go_down(void);
static inline void wk__level_come_back(const wk__thread_mode *before) { wk__thread.mode = *before; }

/* For wiring.c: the layer; looking at values, which those of a batch do not have; tensors made of numbers. */
wk__layer_fn wk__levels_layer;
WK_MUST_USE wk_status wk__levels_realize(wk_tensor *tensor, const char *why);
WK_MUST_USE wk_status wk__levels_constant(wk_tensor *tensor);
/* PyTorch's error for a value of a batch that decides what the program does. */
wk_status wk__refuse_batched_choice(void);
bool wk__is_batched(const wk_tensor *tensor); /* at its level, or any below */

#endif
