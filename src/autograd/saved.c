/* Tensors that a saver keeps in another form while the tape waits: packed when they are saved, unpacked for each run.
 * A saver sees tensors without history and is off while it packs; the unpacked tensor gets back the history that the
 * saved one had. Tests: tests/c/test_autograd.c, tests/python/test_saved_tensors_hooks.py. */
#include "autograd/autograd.h"
#include "ops/internal.h"

void wk__saver_push(wk__saver *saver) {
  saver->outer = wk__thread.saver;
  wk__thread.saver = saver;
}
void wk__saver_remove(wk__saver *saver) {
  for (wk__saver **at = &wk__thread.saver; *at; at = &(*at)->outer) {
    if (*at != saver) continue;
    *at = saver->outer;
    return;
  }
}
bool wk__saver_active(void) { return wk__thread.saver != NULL; }

/* While something is recorded the alias is one that the graph knows. */
static wk_tensor *traced_alias(wk_tensor *t) {
  wk_value args[] = {wk__v_tensor(t)}, alias = {0};
  bool before = wk__thread.mode.grad_enabled;
  wk__thread.mode.grad_enabled = false;
  wk_status status = wk_call(WK__OP(detach), args, NULL, &alias);
  wk__thread.mode.grad_enabled = before;
  return status == WK_OK ? alias.tensor : NULL;
}

static wk_tensor *without_history(wk_tensor *t) {
  if (WK_UNLIKELY(wk__thread.tracer != NULL)) return traced_alias(t);
  wk__spec spec;
  wk__spec_of(&spec, t);
  return wk__tensor_alias(t, &spec);
}

wk_status wk__pack(wk_tensor *t, wk__packed **out_packed) {
  *out_packed = NULL;
  wk__saver *saver = wk__thread.saver;
  wk_tensor *alias = without_history(t);
  if (!alias) return wk_error_category();
  uint32_t version = wk__version(alias);
  wk__thread.saver = NULL;
  wk_status status = saver->pack(saver, alias, out_packed);
  wk__thread.saver = saver;
  if (status == WK_OK && wk__version(alias) != version) {
    wk__packed_release(*out_packed);
    *out_packed = NULL;
    status = wk_fail(WK_RUNTIME_ERROR,
                     "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook "
                     "cannot be modified by in-place operations as this can lead to unexpected side-effects. Please "
                     "open an issue if you need to perform in-place operations on the input to a pack hook.");
  }
  wk__release(alias);
  return status;
}

wk_status wk__unpack(wk__packed *packed, wk_node *node, uint32_t result, wk_tensor **out_tensor) {
  wk_tensor *t = NULL;
  *out_tensor = NULL;
  WK_TRY(packed->unpack(packed, &t));
  wk_tensor *alias = without_history(t);
  wk__release(t);
  wk_status status = !alias ? wk_error_category() : node ? wk__set_history(alias, node, result) : WK_OK;
  if (status == WK_OK)
    *out_tensor = alias;
  else
    wk__release(alias);
  return status;
}

void wk__packed_release(wk__packed *packed) {
  if (packed) packed->release(packed);
}
