/* The CPU level: which of the kernels compiled from one source runs.
 *
 * In: what the CPU supports, WICK_CPU. Out: one level for the process. Invariant: the level in use is never above the
 * machine's. Tests: tests/c/test_base.c, cpu_*. */
#include <stdlib.h>

#include "base/base.h"
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

static const char *const level_names[WK__CPU_LEVEL_COUNT] = {"portable", "avx2", "avx512"};

#if defined(__x86_64__) || defined(__i386__)
/* Asked of the CPU directly: not every compiler's __builtin_cpu_supports knows the name. */
static bool has_f16c(void) {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

wk__cpu_level wk__cpu_level_max(void) {
  __builtin_cpu_init();
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  if (!avx2 || !has_f16c()) return WK__CPU_PORTABLE;
  bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  return avx512 ? WK__CPU_AVX512 : WK__CPU_AVX2;
}
bool wk__cpu_has_vnni(void) { return __builtin_cpu_supports("avx512vnni"); }
/* Asked directly, as above. */
static bool multiplies_bf16(void) {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax & 1u << 5);
}
#else
wk__cpu_level wk__cpu_level_max(void) { return WK__CPU_PORTABLE; }
bool wk__cpu_has_vnni(void) { return false; }
static bool multiplies_bf16(void) { return false; }
#endif

static _Atomic wk__cpu_level level_in_use;
static bool has_bf16;               /* asked once: the question costs microseconds on a virtual machine */
static const char *refused_setting; /* WICK_CPU's value, when the machine cannot do it */

__attribute__((constructor)) static void choose_level(void) {
  wk__cpu_level max = wk__cpu_level_max(), level = max;
  const char *setting = getenv("WICK_CPU");
  if (setting && *setting) {
    level = WK__CPU_PORTABLE;
    while (level < WK__CPU_LEVEL_COUNT && strcmp(setting, level_names[level]) != 0) level++;
    if (level > max) {
      refused_setting = setting;
      level = max;
    }
  }
  level_in_use = level;
  has_bf16 = max == WK__CPU_AVX512 && multiplies_bf16();
}

bool wk__cpu_has_bf16(void) { return has_bf16; }

wk__cpu_level wk__cpu_level_get(void) { return atomic_load_explicit(&level_in_use, memory_order_relaxed); }

wk_status wk__cpu_level_set(wk__cpu_level level) {
  if (level > wk__cpu_level_max()) {
    return wk_fail(WK_VALUE_ERROR, "CPU level %s asked for, but this machine has %s at most", wk__cpu_level_name(level),
                   wk__cpu_level_name(wk__cpu_level_max()));
  }
  level_in_use = level;
  return WK_OK;
}

wk_status wk__cpu_level_check(void) {
  if (WK_LIKELY(!refused_setting)) return WK_OK;
  return wk_fail(WK_VALUE_ERROR, "WICK_CPU=%s: expected portable, avx2 or avx512, and this machine has %s at most",
                 refused_setting, wk__cpu_level_name(wk__cpu_level_max()));
}

const char *wk__cpu_level_name(wk__cpu_level level) {
  return (unsigned)level < WK__CPU_LEVEL_COUNT ? level_names[level] : "unknown";
}
