/* Launches of the device's own code. Tests: those of who calls it. */
#include "cuda/units.h"

#include "cuda/recording.h"

enum { MOST_ADDRESSES = 16 };

wk_status wk__cuda_call_unit(const wk_tensor *on, const wk__cuda_unit_call *call) {
  return wk__cuda_give_unit(wk__cuda_stream_of(wk__stream_of(on->device)), call);
}

wk_status wk__cuda_give_unit(wk__cuda_stream *s, const wk__cuda_unit_call *call) {
  wk__cuda_address addresses[MOST_ADDRESSES];
  CUfunction function;
  CUevent begin;
  int count = 0;
  if (call->blocks == 0) return WK_OK;
  if (call->blocks > INT32_MAX)
    return wk_fail(WK_NOT_IMPLEMENTED, "%lld blocks of %s", (long long)call->blocks, call->kernel);
  for (uint32_t i = 0; i < (uint32_t)call->address_count; i++) {
    uint64_t of = ((const uint64_t *)call->words)[i];
    if (of && !(call->own >> i & 1)) addresses[count++] = (wk__cuda_address){i, of};
  }
  WK_TRY(wk__cuda_enter(s->device));
  WK_TRY(wk__cuda_function(s->device, call->module, call->kernel, &function));
  wk__cuda_time_begin(s, &begin);
  wk_status status = wk__cuda_give(s, &(wk__cuda_work){.function = function,
                                                       .grid = {(unsigned)call->blocks, 1, 1},
                                                       .threads = (unsigned)call->threads,
                                                       .shared = (unsigned)call->shared,
                                                       .words = call->words,
                                                       .word_count = call->word_count,
                                                       .addresses = addresses,
                                                       .address_count = count,
                                                       .drawn = call->drawn});
  wk__cuda_time_end(s, begin, call->kernel);
  return status;
}
