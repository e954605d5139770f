/* Random operators under vmap, by its randomness: refused, drawn for each example, or drawn once for all.
 * Tests: tests/python/test_func.py. */
#include "levels/internal.h"
#include "random/generator.h"

static wk_status refuse(void) {
  return wk_fail(WK_RUNTIME_ERROR,
                 "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
                 "'different' randomness flags on vmap or perform the randomness operation out of vmap");
}

static bool any_batch(const wk__batch *b) {
  bool found = false;
  for (int i = 0; i < b->op->schema.parameter_count; i++) found |= wk__has_batch(b, i);
  return found;
}

static wk_status different(wk__batch *b) {
  if (b->op->tags & WK__TAG_MUTATES && !wk__has_batch(b, 0))
    return wk_fail(WK_RUNTIME_ERROR,
                   "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will appear like "
                   "same randomness. If this is necessary for your usage, please file an issue with functorch.");
  wk_status status = wk__level_row_of(b->op)->batch == WK__BATCH_LEAD ? wk__batch_lead(b) : WK__BATCH_NOT_SO;
  return status == WK__BATCH_NOT_SO ? wk__batch_loop(b) : status;
}

/* ---- the same numbers for each example: the generator begins each at one state ---- */

static wk__generator *generator_of(const wk__batch *b) {
  for (int i = 0; i < b->op->schema.parameter_count; i++)
    if (b->args[i].tag == WK_VALUE_GENERATOR) return b->args[i].generator;
  WK__EACH_TENSOR(tensor, b->args, b->op->schema.parameter_count) return wk__generator_default_of(tensor->device);
  return wk__generator_default();
}

/* Examples one by one, each as a batch of one: so what is written is written. */
static wk_status same(wk__batch *b) {
  wk__generator *generator = generator_of(b);
  if (!generator) return wk_error_category();
  int64_t bytes = wk__generator_state_bytes(generator);
  uint8_t *state = wk__alloc((size_t)bytes);
  if (!state) return WK_OUT_OF_MEMORY;
  wk__generator_get_state(generator, state);
  b->before_example = (wk__before_example){generator, state, bytes};
  wk_status status = wk__batch_loop(b);
  wk__free(state);
  return status;
}

static wk_status once(wk__batch *b) {
  WK_TRY(wk__batch_call(b->op, b->args, b->destinations, b->results));
  for (int r = 0; r < b->op->schema.result_count; r++) b->batch_dims[r] = -1;
  return WK_OK;
}

wk_status wk__batch_random(wk__batch *b) {
  if (b->destinations) return wk_fail(WK_NOT_IMPLEMENTED, "vmap: %s(out=) is not implemented", b->op->base_name);
  switch ((wk__randomness)b->level->randomness) {
    case WK__RANDOM_DIFFERENT:
      return different(b);
    case WK__RANDOM_SAME:
      return any_batch(b) ? same(b) : once(b);
    default:
      return refuse();
  }
}
