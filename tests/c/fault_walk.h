/* Each allocation of a piece of work fails once: it says so, and nothing is left. */
#ifndef WICK_TESTS_FAULT_WALK_H
#define WICK_TESTS_FAULT_WALK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/base.h"

/* work: works when nothing fails, and gives back what it took. least: that many allocations it has surely; some
 * failures are got over. Debug builds, the ones with faults, have to see at least `failures`. */
static void walk_faults(wk_status (*work)(void *context), void *context, int64_t least, int64_t failures) {
  for (int i = 0; i < 3; i++) assert_int_equal(work(context), WK_OK); /* plans are made, free lists filled */
  int64_t before = wk__live_allocations(), failed = 0;
  for (int64_t n = 1; n < 20000; n++) {
    wk__fault_arm(n);
    wk_status status = work(context);
    wk__fault_arm(0);
    if (status == WK_OK && n > least) break;
    failed += status != WK_OK;
    if (status != WK_OK && status != WK_OUT_OF_MEMORY) fail_msg("allocation %d: %s", (int)n, wk_error_message());
    if (wk__live_allocations() != before)
      fail_msg("failure of allocation %d: %d blocks left", (int)n, (int)(wk__live_allocations() - before));
  }
#ifdef WICK_DEBUG
  assert_true(failed > failures);
#else
  (void)failures;
#endif
  assert_int_equal(work(context), WK_OK);
  assert_int_equal(wk__live_allocations(), before);
}

#endif
