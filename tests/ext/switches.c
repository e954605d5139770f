/* The variables of cpu/test_switches.h and codegen/test_switches.h. */
#include "codegen/test_switches.h"
#include "cpu/test_switches.h"

bool wk__uses_short_way = true;
int64_t wk__native_grain;
WK__THREAD_LOCAL int64_t wk__native_runs;
wk__mistakes wk__mistakes_made;

void wk__program_use_short_way(bool use) { wk__uses_short_way = use; }
