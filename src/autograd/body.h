/* Score bodies: a program's functions of a score and its place, traced to one loop body.
 *
 * Between wk__body_begin and wk__body_end calls go through a layer of their own, above the tracer and below the tape.
 * A *value* of the body is a tensor of one element whose storage names an instruction of a nest: a call with such a
 * tensor becomes the instructions of its own loop body, with the operands in the place of its loads; picking an element
 * of another tensor by values (`bias[h, q - kv]`) becomes a load at that place. Other tensors are *captured*: the nest
 * reads them from buffers. Calls without a value of the body are as always: what is computed of captured tensors alone
 * is computed once, or recorded by who traces. The tape is above, so the derivative by the score is that of the rules.
 *
 * In: functions that compute element by element. Out: the body as nests, as text (loop/score_nest.h), and the
 * captured tensors. What is no body (a value is looked at, a sum, a write, a random number) fails the call and marks
 * the body as failed: who traces it computes in another way then.
 *
 * Ownership: whoever begins a body releases it; one at a time a thread. It owns its values and retains what is
 * captured. Tests: tests/python/test_flex_attention.py. */
#ifndef WICK_AUTOGRAD_BODY_H
#define WICK_AUTOGRAD_BODY_H

#include "loop/score_nest.h"
#include "ops/ops.h"

enum { WK__BODY_MAX_READS = 32 };

/* An element of a captured tensor that requires grad, which the body reads. */
typedef struct wk__body_read {
  wk_tensor *value; /* retained: what has its gradient */
  wk__access place; /* in the captured tensor's buffer */
} wk__body_read;

typedef struct wk__body {
  uint64_t number; /* values of another body are none of this one's */
  wk_dtype dtype;  /* of the scores: float32 or float64 */
  wk_device device;
  bool failed;
  bool running;  /* the layer is on */
  bool deriving; /* the tape runs: sums over dims of one element, of what is broadcast there, are no sums */
  wk__nest *nest;
  wk__recorder recorder;
  wk__shape_env *env;
  wk_tensor *captured[WK__BODY_MAX_CAPTURED]; /* retained */
  int captured_count;
  wk__body_read reads[WK__BODY_MAX_READS];
  int read_count;
  wk_tensor *score, *places[WK__BODY_PARAMS]; /* owned: what the functions are given */
} wk__body;

/* On the device of the scores, where what is captured has to be, too. differentiable: the score requires grad. NULL
 * with the error set. */
wk__body *wk__body_begin(wk_dtype scores, wk_device device, bool differentiable) WK_MUST_USE;

/* What the traced functions have become; empty: they do nothing. Owned texts. */
typedef struct wk__body_texts {
  wk__string score, masked; /* of a block of which all is seen, and of any other */
  wk__string derivative;    /* the gradient of the scores; empty: that of what the body makes */
  wk__string captured;      /* adds to the gradients of captured tensors; empty: none requires grad */
} wk__body_texts;
void wk__body_texts_release(wk__body_texts *texts);

/* The nests. modified: what the function of the score gave, keep: what that of the mask gave; NULL: there is none.
 * WK_UNSUPPORTED: it is no body. */
WK_MUST_USE wk_status wk__body_finish(wk__body *body, wk_tensor *modified, wk_tensor *keep, wk__body_texts *out);
void wk__body_end(wk__body *body); /* the layer is off; NULL is fine, and twice */
void wk__body_release(wk__body *body);

wk__layer_fn wk__body_layer;
/* For wk__tensor_upcalls: a value of the body cannot be looked at, which fails it; the tracer has the others. */
WK_MUST_USE wk_status wk__body_realize(wk_tensor *tensor, const char *why);

#endif
