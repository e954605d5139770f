/* In the place of the units that write_built.c writes: of that program itself, and of builds that cannot run it. */
#include "cpu/native/built.h"

const wk__built_nest wk__built_portable[] = {{0}}, wk__built_avx2[] = {{0}}, wk__built_avx512[] = {{0}};
void wk__built_start_portable(const struct wk__kernel_imports *imports) { (void)imports; }
void wk__built_start_avx2(const struct wk__kernel_imports *imports) { (void)imports; }
void wk__built_start_avx512(const struct wk__kernel_imports *imports) { (void)imports; }
