/* From nests to a group of units under way: those that the cache has code for as they are there, the others about one
 * unit a core, since a compiler's start costs as much as a kernel.
 * Tests: tests/c/test_codegen.c, test_native.c, tests/python/test_native_cache.py. */
#include <stdio.h>
#include <unistd.h>

#include "codegen/codegen.h"
#include "cpu/native/native_internal.h"

enum { MOST_UNITS = 4, KERNELS_OF_A_UNIT = 4 /* fewer are not worth a compiler of their own */ };

/* What tier 0 has no primitive for, no tier has. */
wk_status describe_kernel(const wk__code_source *source, int number, wk__native_kernel *out) {
  *out = (wk__native_kernel){.program = wk__program_of(source->code)};
  snprintf(out->symbol, sizeof out->symbol, "wk_kernel_%d", number);
  WK_TRY(wk__program_check(out->program));
  return wk__c_memory_of(source->nest, &out->code.memory);
}

static wk_status write_source(const wk__code_source *sources, int count, wk__cpu_level level, wk__native_source *out) {
  const compiler *c = known_compiler();
  out->kernels = wk__alloc((size_t)count * sizeof *out->kernels);
  if (!out->kernels) return WK_OUT_OF_MEMORY;
  out->kernel_count = count;
  for (int k = 0; k < count; k++) {
    WK_TRY(describe_kernel(&sources[k], k, &out->kernels[k]));
    out->kernels[k].is_named = c && name_kernel(c, &sources[k], level, out->kernels[k].name);
    out->nanoseconds += sources[k].nanoseconds;
  }
  out->text = wk__c_write(sources, count, level);
  return out->text ? WK_OK : wk_error_category();
}

/* Sources that are left, moved to the front. */
static int leave(const wk__code_source *sources, int count, const bool *found, wk__code_source *out) {
  int left = 0;
  for (int k = 0; k < count; k++)
    if (!found[k]) out[left++] = sources[k];
  return left;
}

static int unit_count_of(int kernels) {
  int64_t cores = wk__max(1, sysconf(_SC_NPROCESSORS_ONLN));
  return (int)wk__min(wk__min(MOST_UNITS, cores), wk__ceil_div(kernels, KERNELS_OF_A_UNIT));
}

/* Units of what is known, and of the sources to write. Whatever happens, all of it is taken over. */
static wk__native_group *submit(known_units *known, const wk__code_source *sources, int count, wk__cpu_level level) {
  int written = unit_count_of(count), done = 0;
  wk__native_source *units = wk__alloc_zeroed((size_t)(known->count + written) * sizeof *units);
  wk_status status = units ? WK_OK : WK_OUT_OF_MEMORY;
  for (int u = 0; u < written && status == WK_OK; u++) {
    int share = (count - done) / (written - u);
    status = write_source(sources + done, share, level, &units[known->count + u]);
    done += share;
  }
  wk__native_group *group = NULL;
  for (int u = 0; units && status == WK_OK && u < known->count; u++) {
    units[u] = known->items[u].source;
    units[u].object = known->items[u].object.data;
    units[u].object_size = known->items[u].object.size;
    known->items[u] = (known_unit){.capacity = 0};
  }
  if (status == WK_OK) group = wk__native_submit(units, known->count + written, level);
  for (int u = 0; units && status != WK_OK && u < known->count + written; u++) {
    wk__free(units[u].text);
    wk__free(units[u].kernels);
  }
  wk__free(units);
  release_known(known);
  return group;
}

static void look_up(const wk__code_source *sources, int count, wk__cpu_level level, known_units *out, bool *out_found) {
  const cache *store = open_store();
  const compiler *c = known_compiler();
  *out = (known_units){.count = 0};
  if (store && c) find_known(c, store, sources, count, level, out, out_found);
}

wk__native_group *wk__native_improve(const wk__code_source *sources, int count) {
  wk__cpu_level level = wk__cpu_level_get();
  bool *found = wk__alloc_zeroed((size_t)count + 1);
  wk__code_source *left = wk__alloc((size_t)(count + 1) * sizeof *left);
  wk__native_group *group = NULL;
  if (found && left) {
    known_units known;
    look_up(sources, count, level, &known, found);
    group = submit(&known, left, leave(sources, count, found, left), level);
  }
  wk__free(found);
  wk__free(left);
  return group;
}

wk__native_group *wk__native_recall_code(const wk__code_source *sources, int count, bool *out_found) {
  wk__cpu_level level = wk__cpu_level_get();
  known_units known;
  memset(out_found, 0, (size_t)count);
  look_up(sources, count, level, &known, out_found);
  return known.count ? submit(&known, sources, 0, level) : NULL;
}
