/* The innermost layer: who watches a thread's calls is told of each one that was computed, and may be asked before.
 * In: a call. Out: its results, and an error where the watcher has one. A composite is not told: its parts are.
 * Tests: tests/python/test_flop_counter.py, test_selective_checkpoint.py. */
#include "ops/internal.h"

static wk_status tell(const wk__call_watcher *watcher, const wk_op *op, const wk_value *args, wk_value *results) {
  wk__keys before = wk__thread.mode.keys_off;
  wk__thread.mode.keys_off |= WK__KEY_WATCH; /* its own calls are not told */
  wk_status status = watcher->called(watcher->context, op, args, results);
  wk__thread.mode.keys_off = before;
  for (int i = 0; status != WK_OK && i < op->schema.result_count; i++) wk_value_release(&results[i]);
  return status;
}

static wk_status ask(const wk__call_watcher *watcher, const wk_op *op, const wk_value *args,
                     wk_tensor *const *destinations, wk_value *results, bool *out_done) {
  wk__keys before = wk__thread.mode.keys_off;
  wk__thread.mode.keys_off |= WK__KEY_WATCH;
  wk_status status = watcher->before(watcher->context, op, args, destinations, results, out_done);
  wk__thread.mode.keys_off = before;
  return status;
}

wk_status wk__watch_layer(const wk_op *op, const wk_value *args, wk_tensor *const *destinations, wk_value *results) {
  const wk__call_watcher *watcher = wk__thread.call_watcher;
  bool done = false;
  if (watcher && watcher->before && !op->compose) WK_TRY(ask(watcher, op, args, destinations, results, &done));
  if (done) return WK_OK;
  WK_TRY(wk__call_below(WK__KEY_WATCH, op, args, destinations, results));
  return watcher && !op->compose ? tell(watcher, op, args, results) : WK_OK;
}
