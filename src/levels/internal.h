/* What the files of levels/ share: calls with other tensors, and what rows say of batches and derivatives. */
#ifndef WICK_LEVELS_INTERNAL_H
#define WICK_LEVELS_INTERNAL_H

#include "levels/levels.h"
#include "ops/internal.h"

/* ---- a call whose tensors are replaced ---- */

typedef struct wk__recast {
  const wk_op *op;
  wk_value args[WK__MAX_ARGS];              /* lists of tensors are its own */
  wk_tensor *destinations[WK__MAX_RESULTS]; /* borrowed */
  wk_tensor *const *given_destinations;     /* NULL: there are none */
  wk_tensor **lists[WK__MAX_ARGS];          /* owned */
} wk__recast;

/* A copy of the call whose tensors may be set. Release it on failure as well. */
WK_MUST_USE wk_status wk__recast_begin(wk__recast *r, const wk_op *op, const wk_value *args,
                                       wk_tensor *const *destinations);
void wk__recast_end(wk__recast *r);
static inline wk_tensor *const *wk__recast_destinations(const wk__recast *r) {
  return r->given_destinations ? r->destinations : NULL;
}
/* Results of the call below (owned) become those of the level: an argument's inner value is that argument again; all
 * others are wrapped by `wrap`, which takes the tensor. Nothing is left in `made`. */
typedef wk_tensor *wk__wrap_fn(void *context, wk_tensor *steal_value, int result, int item);
WK_MUST_USE wk_status wk__give_results(const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                                       wk_value *made, wk_value *results, wk__wrap_fn *wrap, void *context);
void wk__level_set_base(const wk_op *op, const wk_value *args, wk_tensor *result);
wk_status wk__refuse_captured_write(const wk_op *op); /* PyTorch's error for a write to what is of no level */
/* Calls one level below the innermost one: through the tape of that level and all below it. */
WK_MUST_USE wk_status wk__call_one_below(const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                                         wk_value *results);

/* ---- what rows say (src/ops/tables/) ---- */

typedef enum wk__batch_way {
  WK__BATCH_LOOP,  /* nothing: example by example */
  WK__BATCH_LEAD,  /* one more first dim */
  WK__BATCH_MERGE, /* merged into the first dim */
  WK__BATCH_OWN,   /* a function of its own */
} wk__batch_way;

enum { WK__MAX_LINEAR = 4 };
struct wk__batch;
typedef wk_status wk__batch_fn(struct wk__batch *b);
typedef struct wk__level_row {
  uint8_t batch;                   /* wk__batch_way */
  uint32_t batch_args;             /* tensors that may have a batch, as bits */
  uint32_t dims, sizes;            /* of LEAD: integers that are dims; lists that begin with the batch */
  wk__batch_fn *own;               /* of WK__BATCH_OWN */
  uint32_t linear[WK__MAX_LINEAR]; /* groups of arguments, as bits; 0 ends them */
} wk__level_row;
extern const wk__level_row wk__level_rows[WK__OP_COUNT];
/* Of operators that programs or graphs have made nothing is known. */
static inline const wk__level_row *wk__level_row_of(const wk_op *op) {
  static const wk__level_row nothing = {0};
  return op->number < WK__OP_COUNT ? &wk__level_rows[op->number] : &nothing;
}

/* ---- a call for many examples (batch.c) ---- */

/* Before each example of a loop the generator gets this state again; NULL: it goes on. */
struct wk__generator;
typedef struct wk__before_example {
  struct wk__generator *generator;
  const uint8_t *state;
  int64_t bytes;
} wk__before_example;

/* In action: inside of a scope, and one level below. */
typedef struct wk__batch {
  const wk_op *op;
  const wk_value *args;           /* as called, tensors of the level among them */
  wk_tensor *const *destinations; /* NULL: none */
  const wk__level *level;
  wk_value *results; /* owned out: inner values */
  wk__before_example before_example;
  int batch_dims[WK__MAX_RESULTS]; /* of the results, by result (of a list: of all its items); 0 at the start */
} wk__batch;
#include "levels/level_rules.h"

/* A rule may say that it is not for this call: then it is done by its parts or example by example. */
#define WK__BATCH_NOT_SO ((wk_status)-1)

bool wk__has_batch(const wk__batch *b, int arg);     /* argument `arg`, a tensor, is one of a batch */
wk_tensor *wk__example(const wk__batch *b, int arg); /* borrowed: as the function sees it; NULL for none */
/* The inner value with the batch as its first dim; where there is none, the value itself. In the scope. */
wk_tensor *wk__batch_first(const wk__batch *b, wk_tensor *t);
wk_tensor *wk__batch_expanded(const wk__batch *b, wk_tensor *t); /* the same, repeated where there is none */
/* The batch merged with the dim behind it, and the other way round. */
wk_tensor *wk__batch_merge(wk_tensor *t, int dim);
wk_tensor *wk__batch_split(const wk__batch *b, wk_tensor *t, int dim);
/* Keeps one tensor as result r, or gives the error. */
WK_MUST_USE wk_status wk__batch_give(wk__batch *b, int r, wk_tensor *t, int batch_dim);
WK_MUST_USE wk_status wk__batch_call(const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                                     wk_value *results);
WK_MUST_USE wk_status wk__batch_loop(wk__batch *b); /* example by example */
WK_MUST_USE wk_status wk__batch_merged(wk__batch *b);
WK_MUST_USE wk_status wk__batch_lead(wk__batch *b);   /* batch_lead.c */
WK_MUST_USE wk_status wk__batch_random(wk__batch *b); /* batch_random.c */

/* As one operator below, whose derivative is that of this one under vmap (batch_operator.c). */
WK_MUST_USE wk_status wk__batch_whole_operator(wk__batch *b);
/* A tape or tangents below may follow the call: its parts, which need have no derivative, are not enough. */
bool wk__batch_is_followed(const wk__batch *b);

/* ---- layers by kind ---- */
wk__layer_fn wk__batch_level, wk__forward_level;

#endif
