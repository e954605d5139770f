/* What tests switch and count in the CPU's engine. Only builds with -Dtests=enabled (WICK_TESTS) have it; in others the
 * macros are what the product does. The variables: tests/ext/switches.c. */
#ifndef WICK_CPU_TEST_SWITCHES_H
#define WICK_CPU_TEST_SWITCHES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/thread.h"

#ifdef WICK_TESTS
extern bool wk__uses_short_way;
extern int64_t wk__native_grain;                 /* tasks that a thread takes at a time; 0: what is worth its while */
extern WK__THREAD_LOCAL int64_t wk__native_runs; /* launches of this thread that compiled code ran */
/* false: small launches along a line go the way of all others, through native code where there is some. Not while a
 * program runs. */
void wk__program_use_short_way(bool use);
#define WK__USES_SHORT_WAY wk__uses_short_way
#define WK__NATIVE_GRAIN wk__native_grain
#define WK__COUNT_NATIVE_RUN() (void)wk__native_runs++
#else
#define WK__USES_SHORT_WAY true
#define WK__NATIVE_GRAIN 0
#define WK__COUNT_NATIVE_RUN() (void)0
#endif

#endif
