/* WICK_LOGS=name,name,...: which channels print to stderr. TORCH_LOGS is read by Python (python/wick/_logging/).
 *
 * In: the environment, read once when the library is loaded. Out: wk__log_mask, one bit a channel, and whole lines on
 * stderr, and at the end of the file TORCH_LOGS_OUT where that is set. Invariant: a line is written by one call, so
 * lines of two threads do not mix.
 * Tests: tests/c/test_base.c, log_*. */
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

uint32_t wk__log_mask;

static const char *const channel_names[WK__LOG_COUNT] = {
    [WK__LOG_OPS] = "ops",
    [WK__LOG_LOOP] = "loop",
    [WK__LOG_GRAPH] = "graph",
    [WK__LOG_BREAKS] = "graph_breaks",
    [WK__LOG_GUARDS] = "guards",
    [WK__LOG_RECOMPILES] = "recompiles",
    [WK__LOG_KERNEL] = "kernel",
    [WK__LOG_REGIONS] = "regions",
    [WK__LOG_PROFILE] = "profile",
    [WK__LOG_KERNEL_TIMES] = "kernel_times",
    [WK__LOG_CUDAGRAPHS] = "cudagraphs",
};

static uint32_t mask_of_name(const char *name, size_t length) {
  if (length == 3 && memcmp(name, "all", 3) == 0) return (1u << WK__LOG_COUNT) - 1;
  for (int i = 0; i < WK__LOG_COUNT; i++) {
    if (strlen(channel_names[i]) == length && memcmp(channel_names[i], name, length) == 0) return 1u << i;
  }
  return 0;
}

static void warn_unknown(const char *name, size_t length) {
  fprintf(stderr, "[wick] WICK_LOGS: no channel '%.*s'; there are: all", (int)length, name);
  for (int i = 0; i < WK__LOG_COUNT; i++) fprintf(stderr, ", %s", channel_names[i]);
  fputc('\n', stderr);
}

const char *wk__log_name(wk__log channel) { return channel_names[channel]; }

bool wk__log_set(const char *name, bool on) {
  uint32_t mask = mask_of_name(name, strlen(name));
  wk__log_mask = on ? wk__log_mask | mask : wk__log_mask & ~mask;
  return mask;
}

static FILE *copy; /* never closed; NULL: there is none */

__attribute__((constructor)) static void read_log_settings(void) {
  const char *name = getenv("WICK_LOGS"), *out = getenv("TORCH_LOGS_OUT");
  while (name && *name) {
    size_t length = strcspn(name, ",");
    uint32_t mask = mask_of_name(name, length);
    if (!mask && length) warn_unknown(name, length);
    wk__log_mask |= mask;
    name += length + (name[length] == ',');
  }
  if (out && *out) copy = fopen(out, "ae");
}

void wk__log_print(wk__log channel, const char *format, ...) {
  wk__string line = {0};
  va_list args;
  va_start(args, format);
  wk__string_printf(&line, "[wick:%s] ", channel_names[channel]);
  wk__string_vprintf(&line, format, args);
  wk__string_append(&line, "\n");
  va_end(args);
  if (!line.failed) fwrite(line.text, 1, (size_t)line.length, stderr);
  if (!line.failed && copy) fwrite(line.text, 1, (size_t)line.length, copy), fflush(copy);
  wk__string_release(&line);
}
