/* Looking nests up among those that were made native when the library was built. In: a nest. Out: its functions.
 * Tests: tests/c/test_native.c. */
#include "cpu/native/built.h"

#include <pthread.h>

#include "cpu/native/native_internal.h"

typedef struct table {
  const wk__built_nest *nests;
  void (*start)(const struct wk__kernel_imports *imports);
} table;

static const table *table_of(wk__cpu_level level) {
  static const table tables[WK__CPU_LEVEL_COUNT] = {
      [WK__CPU_PORTABLE] = {wk__built_portable, wk__built_start_portable},
      [WK__CPU_AVX2] = {wk__built_avx2, wk__built_start_avx2},
      [WK__CPU_AVX512] = {wk__built_avx512, wk__built_start_avx512},
  };
  return &tables[level];
}

static void start_all(void) {
  for (wk__cpu_level level = 0; level < WK__CPU_LEVEL_COUNT; level++) table_of(level)->start(wk__native_imports());
}

uint64_t wk__built_key(const wk__nest *nest) {
  uint64_t key = wk__hash_mix((uint64_t)nest->instr_count, (uint64_t)nest->access_count);
  for (int64_t v = 1; v < nest->instr_count; v++) {
    const wk__instr *i = &nest->instrs[v];
    key = wk__hash_mix(key, i->op | (uint64_t)i->dtype << 8 | (uint64_t)i->operands[0] << 16 |
                                (uint64_t)i->operands[1] << 32 | (uint64_t)i->operands[2] << 48);
  }
  return key;
}

static bool is_text_of(const wk__nest *nest, const char *text) {
  wk__string now = {0};
  wk__nest_print(&now, nest);
  bool same = !now.failed && now.text && strcmp(now.text, text) == 0;
  wk__string_release(&now);
  return same;
}

bool wk__built_find(const wk__nest *nest, wk__native_code *out) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  wk__cpu_level level = wk__cpu_level_get();
  const wk__built_nest *found = table_of(level)->nests;
  uint64_t key = wk__built_key(nest);
  while (found->text && (found->key != key || !is_text_of(nest, found->text))) found++;
  if (!found->text) return false;
  *out = (wk__native_code){.level = level};
  for (int m = 0; m < WK__C_MODES; m++) out->functions[m] = found->functions[m];
  if (wk__c_memory_of(nest, &out->memory) != WK_OK) {
    wk_error_clear(); /* no memory: tier 0 may do with less */
    return false;
  }
  pthread_once(&once, start_all);
  return true;
}
