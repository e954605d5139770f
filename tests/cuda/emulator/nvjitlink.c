/* nvJitLink without a compiler: the "machine code" is the text, which the emulated driver takes. Each text is a line on
 * stderr: its target, how many threads were compiling, and how many blocks were asked for. EMULATED_NVJITLINK:
 * "refuses", no text is taken; "lies", what it gives is no machine code; "newer", it is of a CUDA that the driver does
 * not know; "spills", registers are spilled where blocks are asked for. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
enum { COMPILE_US = 60000, PTX_COMPILE = 4, INVALID_INPUT = 3 };

typedef struct linking {
  char target[32], *text;
  size_t size;
} linking;
static _Atomic int at_work;

static bool is_said(const char *what) {
  const char *text = getenv("EMULATED_NVJITLINK");
  return text && strcmp(text, what) == 0;
}

API int nvJitLinkVersion(unsigned *major, unsigned *minor) {
  *major = is_said("newer") ? 99 : 12, *minor = is_said("newer") ? 0 : 9;
  return 0;
}

static int create(void **handle, uint32_t count, const char **options) {
  linking *l = calloc(1, sizeof *l);
  if (!(*handle = l) || count != 2 || strcmp(options[1], "-Xptxas=-v") != 0) return INVALID_INPUT;
  (void)snprintf(l->target, sizeof l->target, "%s", options[0]);
  return 0;
}
static int destroy(void **handle) {
  linking *l = *handle;
  free(l->text);
  free(l);
  return 0;
}
static int add(void *handle, int type, const void *data, size_t size) {
  linking *l = handle;
  if (type != 2 || size == 0 || ((const char *)data)[size - 1] || is_said("refuses")) return PTX_COMPILE;
  l->text = malloc(size);
  l->size = size;
  memcpy(l->text, data, size);
  return 0;
}
static int blocks_of(const linking *l) {
  const char *at = strstr(l->text, ".minnctapersm ");
  return at ? atoi(at + strlen(".minnctapersm ")) : 0;
}
static const char *log_of(const linking *l) {
  return is_said("spills") && blocks_of(l) ? "0 bytes stack frame, 40 bytes spill stores, 40 bytes spill loads\n"
                                           : "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n";
}
static int complete(void *handle) {
  linking *l = handle;
  int threads = atomic_fetch_add(&at_work, 1) + 1;
  usleep(COMPILE_US);
  atomic_fetch_sub(&at_work, 1);
  fprintf(stderr, "nvjitlink: %s %d %d\n", l->target, threads, blocks_of(l));
  if (is_said("lies")) memcpy(l->text, "\177ELF", 4);
  return 0;
}

#define NAMES(version)                                                                                             \
  API int __nvJitLinkCreate_##version(void **h, uint32_t n, const char **o) { return create(h, n, o); }            \
  API int __nvJitLinkDestroy_##version(void **h) { return destroy(h); }                                            \
  API int __nvJitLinkAddData_##version(void *h, int t, const void *d, size_t n, const char *name) {                \
    (void)name;                                                                                                    \
    return add(h, t, d, n);                                                                                        \
  }                                                                                                                \
  API int __nvJitLinkComplete_##version(void *h) { return complete(h); }                                           \
  API int __nvJitLinkGetLinkedCubinSize_##version(void *h, size_t *out) { return *out = ((linking *)h)->size, 0; } \
  API int __nvJitLinkGetLinkedCubin_##version(void *h, void *out) {                                                \
    memcpy(out, ((linking *)h)->text, ((linking *)h)->size);                                                       \
    return 0;                                                                                                      \
  }                                                                                                                \
  API int __nvJitLinkGetInfoLogSize_##version(void *h, size_t *out) { return *out = strlen(log_of(h)) + 1, 0; }    \
  API int __nvJitLinkGetInfoLog_##version(void *h, char *out) { return (void)strcpy(out, log_of(h)), 0; }
NAMES(12_9)
NAMES(99_0)
