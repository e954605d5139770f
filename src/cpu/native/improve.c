/* From nests to a group of units under way: about one unit a core, since a compiler's start costs as much as a kernel.
 * Tests: tests/c/test_codegen.c, test_native.c. */
#include <stdio.h>
#include <unistd.h>

#include "codegen/codegen.h"
#include "cpu/native/native.h"

enum { MOST_UNITS = 4, KERNELS_OF_A_UNIT = 4 /* fewer are not worth a compiler of their own */ };

/* What tier 0 has no primitive for, no tier has. */
static wk_status describe(const wk__code_source *source, int number, wk__native_kernel *out) {
  *out = (wk__native_kernel){.program = wk__program_of(source->code)};
  snprintf(out->symbol, sizeof out->symbol, "wk_kernel_%d", number);
  WK_TRY(wk__program_check(out->program));
  return wk__c_memory_of(source->nest, &out->code.memory);
}

static wk_status write_source(const wk__code_source *sources, int count, wk__cpu_level level, wk__native_source *out) {
  out->kernels = wk__alloc((size_t)count * sizeof *out->kernels);
  if (!out->kernels) return WK_OUT_OF_MEMORY;
  out->kernel_count = count;
  for (int k = 0; k < count; k++) WK_TRY(describe(&sources[k], k, &out->kernels[k]));
  out->text = wk__c_write(sources, count, level);
  return out->text ? WK_OK : wk_error_category();
}

wk__native_group *wk__native_improve(const wk__code_source *sources, int count) {
  wk__native_source units[MOST_UNITS] = {{0}};
  wk__cpu_level level = wk__cpu_level_get();
  int64_t cores = wk__max(1, sysconf(_SC_NPROCESSORS_ONLN));
  int unit_count = (int)wk__min(wk__min(MOST_UNITS, cores), wk__ceil_div(count, KERNELS_OF_A_UNIT)), done = 0;
  wk_status status = WK_OK;
  for (int u = 0; u < unit_count && status == WK_OK; u++) {
    int share = (count - done) / (unit_count - u);
    status = write_source(sources + done, share, level, &units[u]);
    for (int k = done; k < done + share; k++) units[u].nanoseconds += sources[k].nanoseconds;
    done += share;
  }
  if (status == WK_OK) return wk__native_submit(units, unit_count, level);
  for (int u = 0; u < unit_count; u++) {
    wk__free(units[u].text);
    wk__free(units[u].kernels);
  }
  return NULL;
}
