/* PTX to machine code by nvJitLink, or from the cache. A text that it does not take (of a version or for a device that
 * is newer than the library) is the driver's. Tests: tests/cuda/test_nvjitlink.py. */
#define _GNU_SOURCE
#include "cuda/nvjitlink.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "cpu/native/native.h"
#include "cuda/library.h"

enum { INPUT_PTX = 2 };

/* Names have the version of the header that a program was compiled with; a library has those of all before it. */
#define FUNCTIONS(X)                                                               \
  X(Create, (void **handle, uint32_t count, const char **options))                 \
  X(Destroy, (void **handle))                                                      \
  X(AddData, (void *handle, int type, const void *data, size_t, const char *name)) \
  X(Complete, (void *handle))                                                      \
  X(GetLinkedCubinSize, (void *handle, size_t *out))                               \
  X(GetLinkedCubin, (void *handle, void *out))                                     \
  X(GetInfoLogSize, (void *handle, size_t *out))                                   \
  X(GetInfoLog, (void *handle, char *out))

static struct {
  pthread_once_t once;
  bool usable;
  unsigned major, minor;
#define X(name, args) int(*name) args;
  FUNCTIONS(X)
#undef X
} lib = {.once = PTHREAD_ONCE_INIT};

/* ---- the library ---- */

/* Packages of pip lie beside each other: site-packages/wick and site-packages/nvidia. */
static void *open_beside(void) {
  static const char *const places[] = {"nvidia/cu13/lib/libnvJitLink.so.13", "nvidia/nvjitlink/lib/libnvJitLink.so.12"};
  Dl_info ours;
  char path[4096];
  void *library = NULL;
  if (!dladdr(&lib, &ours) || !ours.dli_fname) return NULL;
  const char *end = strrchr(ours.dli_fname, '/');
  end = end ? memrchr(ours.dli_fname, '/', (size_t)(end - ours.dli_fname)) : NULL;
  for (size_t i = 0; end && !library && i < WK_COUNT(places); i++) {
    int length = snprintf(path, sizeof path, "%.*s/%s", (int)(end - ours.dli_fname), ours.dli_fname, places[i]);
    if (length > 0 && (size_t)length < sizeof path) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  }
  return library;
}

/* Of the driver, whose machine code a library of a later major version does not make. */
static bool suits_driver(void) {
  int version = 0;
  return wk__cuda.cuDriverGetVersion(&version) == CUDA_SUCCESS && (unsigned)version / 1000 >= lib.major;
}

static void open_library(void) {
  static const char *const names[] = {"libnvJitLink.so.13", "libnvJitLink.so.12", "libnvJitLink.so", NULL};
  void *library = wk__cuda_open_library("WICK_NVJITLINK", names);
  if (!library && !getenv("WICK_NVJITLINK")) library = open_beside();
  if (!library) return;
  int (*version)(unsigned *, unsigned *);
  *(void **)&version = dlsym(library, "nvJitLinkVersion");
  if (!version || version(&lib.major, &lib.minor) != 0) return;
  char name[64];
#define X(function, args)                                                                    \
  (void)snprintf(name, sizeof name, "__nvJitLink%s_%u_%u", #function, lib.major, lib.minor); \
  if (!(*(void **)&lib.function = dlsym(library, name))) return;
  FUNCTIONS(X)
#undef X
  lib.usable = suits_driver() && wk__native_remembers();
}

bool wk__cuda_links(void) {
  (void)pthread_once(&lib.once, open_library);
  return lib.usable;
}

/* ---- compiling ---- */

static char *take_code(void *handle, size_t *out_size) {
  if (lib.GetLinkedCubinSize(handle, out_size) || !*out_size) return NULL;
  char *code = wk__alloc(*out_size);
  if (!code || !lib.GetLinkedCubin(handle, code)) return code;
  wk__free(code);
  return NULL;
}

#define SAYS_SPILLS "-Xptxas=-v"

/* Whether registers were put into memory. */
static bool has_spilled(void *handle) {
  size_t size = 0;
  char *log = lib.GetInfoLogSize(handle, &size) || !size ? NULL : wk__alloc(size + 1);
  bool spilled = false;
  if (log && !lib.GetInfoLog(handle, log)) {
    log[size] = 0;
    for (const char *at = log; (at = strstr(at, " bytes spill")); at++)
      spilled |= at - log < 2 || at[-1] != '0' || at[-2] != ' ';
  }
  wk__free(log);
  return spilled;
}

/* NULL: it does not take the text. */
static char *compile_text(const char *ptx, const char *target, size_t *out_size, bool *out_spilled) {
  void *handle;
  const char *options[] = {target, SAYS_SPILLS};
  char *code = NULL;
  if (lib.Create(&handle, WK_COUNT(options), options)) return NULL;
  int failed = lib.AddData(handle, INPUT_PTX, ptx, strlen(ptx) + 1, "wick");
  if (!failed) failed = lib.Complete(handle);
  if (!failed) code = take_code(handle, out_size), *out_spilled = has_spilled(handle);
  if (failed && wk__log_on(WK__LOG_KERNEL)) wk__log_print(WK__LOG_KERNEL, "nvJitLink does not take it: %d", failed);
  (void)lib.Destroy(&handle);
  return code;
}

/* Behind the line that says how many threads a block has, where none says how many blocks; NULL: it is left alone. */
static const char *place_of_blocks(const char *ptx, int *out_threads) {
  static const char says[] = "\n.maxntid ";
  const char *at = strstr(ptx, says);
  bool for_tensor_cores = strstr(ptx, "mma.sync") || strstr(ptx, "wgmma"); /* their sums want all registers */
  if (!at || for_tensor_cores || strstr(ptx, ".minnctapersm")) return NULL;
  *out_threads = atoi(at + sizeof says - 1);
  const char *end = strchr(at + 1, '\n');
  return *out_threads > 0 && end ? end + 1 : NULL;
}

/* nvJitLink compiles a kernel as a part of a program, and then spends registers as if it had a multiprocessor to
 * itself: gelu(x + bias) of bf16 took 96 of them and 206 microseconds of an H100, by the driver 32 and 129. So it is
 * told to have room for as many blocks as fill one, or for half as many, if nothing spills then. */
static char *compile(const char *ptx, const char *target, size_t *out_size) {
  enum { THREADS = 2048, BLOCKS = 32, LEAST_PART = 2 }; /* of a multiprocessor, at most */
  int threads = 0;
  bool spilled = false;
  const char *place = place_of_blocks(ptx, &threads);
  for (int part = 1; place && part <= LEAST_PART && threads * part <= THREADS; part *= 2) {
    wk__string text = {0};
    wk__string_printf(&text, "%.*s.minnctapersm %d\n%s", (int)(place - ptx), ptx,
                      (int)wk__min(THREADS / threads, BLOCKS) / part, place);
    char *code = text.failed ? NULL : compile_text(text.text, target, out_size, &spilled);
    wk__string_release(&text);
    if (!code || !spilled) return code;
    wk__free(code);
  }
  return compile_text(ptx, target, out_size, &spilled);
}

/* All that the code depends on. */
static bool key_of(const char *ptx, const char *target, wk__string *out) {
  wk__string_printf(out, "nvJitLink %u.%u %s, many blocks\n", lib.major, lib.minor, target);
  wk__string_append(out, ptx);
  return !out->failed;
}

char *wk__cuda_link(const wk__cuda_device *d, const char *ptx, size_t *out_size) {
  char target[32];
  wk__string key = {0};
  char *code = NULL;
  if (!wk__cuda_links()) return NULL;
  bool special = d->capability == 90 && strstr(ptx, ".target sm_90a");
  (void)snprintf(target, sizeof target, "-arch=sm_%d%s", d->capability, special ? "a" : "");
  if (key_of(ptx, target, &key)) {
    code = wk__native_recall_all(key.text, (size_t)key.length, out_size);
    if (!code && (code = compile(ptx, target, out_size)))
      wk__native_remember(key.text, (size_t)key.length, code, *out_size);
  }
  wk__string_release(&key);
  wk_error_clear();
  return code;
}
