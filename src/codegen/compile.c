/* From nests to a group of units under way: about one unit a core, since a compiler's start costs as much as a kernel.
 * Tests: tests/c/test_codegen.c, test_native.c. */
#include <stdio.h>
#include <unistd.h>

#include "codegen/internal.h"

enum { MOST_UNITS = 4, KERNELS_OF_A_UNIT = 4 /* fewer are not worth a compiler of their own */ };

static wk_status describe(const wk__c_kernel *kernel, wk__program *program, int number, wk__native_kernel *out) {
  analysis a;
  wk_status status = analyse(kernel->nest, &a);
  *out = (wk__native_kernel){.program = program,
                             .code = {.kept_count = a.kept_count,
                                      .strip_count = a.row_count + a.reduction_count * STATE_STRIPS,
                                      .counter_count = a.reduction_count}};
  snprintf(out->symbol, sizeof out->symbol, "wk_kernel_%d", number);
  release_analysis(&a);
  return status;
}

static wk_status write_source(const wk__c_kernel *kernels, wk__program *const *programs, int count, wk__cpu_level level,
                              wk__native_source *out) {
  out->kernels = wk__alloc((size_t)count * sizeof *out->kernels);
  if (!out->kernels) return WK_OUT_OF_MEMORY;
  out->kernel_count = count;
  for (int k = 0; k < count; k++) WK_TRY(describe(&kernels[k], programs[k], k, &out->kernels[k]));
  out->text = wk__c_write(kernels, count, level);
  return out->text ? WK_OK : wk_error_category();
}

wk__native_group *wk__c_compile(const wk__c_kernel *kernels, wk__program *const *programs, int count) {
  wk__native_source sources[MOST_UNITS] = {{0}};
  wk__cpu_level level = wk__cpu_level_get();
  int64_t cores = wk__max(1, sysconf(_SC_NPROCESSORS_ONLN));
  int units = (int)wk__min(wk__min(MOST_UNITS, cores), wk__ceil_div(count, KERNELS_OF_A_UNIT)), done = 0;
  wk_status status = WK_OK;
  for (int u = 0; u < units && status == WK_OK; u++) {
    int share = (count - done) / (units - u);
    status = write_source(kernels + done, programs + done, share, level, &sources[u]);
    done += share;
  }
  if (status == WK_OK) return wk__native_submit(sources, units, level);
  for (int u = 0; u < units; u++) {
    wk__free(sources[u].text);
    wk__free(sources[u].kernels);
  }
  return NULL;
}
