/* From the bytes of a shared object to functions: a sealed file in memory, which the dynamic loader maps, so that code
 * is never writable where it is executable and cannot be changed on the way. Where the system forbids that, a
 * private file that is gone when it is loaded. Tests: tests/c/test_native.c. */
#define _GNU_SOURCE
#include "cpu/native/native_internal.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static float from_e4m3(uint8_t v) { return wk__f8_to_f32(v, WK_FLOAT8_E4M3); }
static float from_e5m2(uint8_t v) { return wk__f8_to_f32(v, WK_FLOAT8_E5M2); }
static uint8_t to_e4m3(float f) { return wk__f32_to_f8(f, WK_FLOAT8_E4M3); }
static uint8_t to_e5m2(float f) { return wk__f32_to_f8(f, WK_FLOAT8_E5M2); }
static float from_e4m3z(uint8_t v) { return wk__f8_to_f32(v, WK_FLOAT8_E4M3_FNUZ); }
static uint8_t to_e4m3z(float f) { return wk__f32_to_f8(f, WK_FLOAT8_E4M3_FNUZ); }
static float from_e5m2z(uint8_t v) { return wk__f8_to_f32(v, WK_FLOAT8_E5M2_FNUZ); }
static uint8_t to_e5m2z(float f) { return wk__f32_to_f8(f, WK_FLOAT8_E5M2_FNUZ); }
static float from_e8m0(uint8_t v) { return wk__f8_to_f32(v, WK_FLOAT8_E8M0); }
static uint8_t to_e8m0(float f) { return wk__f32_to_f8(f, WK_FLOAT8_E8M0); }

static const struct wk__kernel_imports imports = {
    .fma = fma,
    .fmod = fmod,
    .fmodf = fmodf,
    .pow = pow,
    .log2 = log2,
    .log10 = log10,
    .log1p = log1p,
    .erf = erf,
    .sin = sin,
    .cos = cos,
    .floor = floor,
    .f16_to_f32 = wk__f16_to_f32,
    .f32_to_f16 = wk__f32_to_f16,
    .e4m3_to_f32 = from_e4m3,
    .e5m2_to_f32 = from_e5m2,
    .f32_to_e4m3 = to_e4m3,
    .f32_to_e5m2 = to_e5m2,
    .e8m0_to_f32 = from_e8m0,
    .f32_to_e8m0 = to_e8m0,
    .e5m2z_to_f32 = from_e5m2z,
    .f32_to_e5m2z = to_e5m2z,
    .e4m3z_to_f32 = from_e4m3z,
    .f32_to_e4m3z = to_e4m3z,
};

const struct wk__kernel_imports *wk__native_imports(void) { return &imports; }

/* The loader knows libraries by their path, and descriptors' numbers come again: each load spells its own. */
static void spell_path(char *path, size_t size, int fd) {
  static _Atomic unsigned loads;
  size_t length = (size_t)snprintf(path, size, "/proc/self/fd");
  for (unsigned n = atomic_fetch_add(&loads, 1) + 1; n && length + 20 < size; n >>= 1)
    length += (size_t)snprintf(path + length, size - length, n & 1 ? "/./" : "/.");
  snprintf(path + length, size - length, "/%d", fd);
}

static void *load_from_memory(const object_bytes *bytes) {
  void *library = NULL;
  int fd = memfd_create("wick-kernels", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return NULL;
  if (write_all(fd, bytes->data, bytes->size) &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0) {
    char path[160];
    spell_path(path, sizeof path, fd);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  }
  close(fd);
  return library;
}

static void *load_from_file(const object_bytes *bytes, char *const *environment) {
  const char *folder = environment_value(environment, "TMPDIR");
  char path[300];
  snprintf(path, sizeof path, "%.250s/wick-XXXXXX", folder && *folder ? folder : "/tmp");
  int fd = mkostemp(path, O_CLOEXEC); /* mode 0600 */
  if (fd < 0) return NULL;
  void *library = write_all(fd, bytes->data, bytes->size) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  close(fd);
  unlink(path);
  return library;
}

void *load_object(const object_bytes *bytes, char *const *environment, char *why, size_t why_size) {
  void *library = load_from_memory(bytes);
  if (!library) library = load_from_file(bytes, environment);
  void (*start)(const struct wk__kernel_imports *) = NULL;
  if (library) *(void **)&start = dlsym(library, "wk__unit_start");
  if (start) {
    start(&imports);
    return library;
  }
  const char *error = dlerror();
  snprintf(why, why_size, "compiled kernels cannot be loaded: %.300s", error ? error : "no error given");
  if (library) dlclose(library);
  return NULL;
}

bool find_functions(void *library, wk__native_kernel *kernel) {
  static const char *const modes[WK__C_MODES] = {"pointwise", "rows", "columns"};
  bool any = false;
  for (int m = 0; m < WK__C_MODES; m++) {
    char name[64];
    snprintf(name, sizeof name, "%s_%s", kernel->symbol, modes[m]);
    *(void **)&kernel->code.functions[m] = dlsym(library, name);
    any |= kernel->code.functions[m] != NULL;
  }
  return any;
}
