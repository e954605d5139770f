/* common.h's functions. */
#include "common.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef EMULATOR_PTX_FOLDER
#define EMULATOR_PTX_FOLDER "tests/cuda/emulator/ptx"
#endif

static bool is_child;

void check(bool condition, const char *text, const char *file, int line) {
  if (condition) return;
  if (is_child) {
    fprintf(stderr, "%s:%d: %s\n", file, line, text);
    _exit(CHILD_FAILED);
  }
  _assert_true(0, text, file, line);
}

CUcontext context_of(int device) {
  CUcontext context;
  OK(cuDevicePrimaryCtxRetain(&context, device));
  return context;
}

void begin(void) {
  static const char *const variables[] = {"WICK_EMULATOR_LAZY", "WICK_EMULATOR_RACES", "WICK_EMULATOR_THREADS",
                                          "WICK_EMULATED_MEMORY", "WICK_EMULATED_DEVICES"};
  for (size_t i = 0; i < COUNT(variables); i++) unsetenv(variables[i]);
  OK(cuInit(0));
  OK(cuCtxSetCurrent(context_of(0)));
}

static size_t round_up(size_t bytes) { return (bytes + (2 << 20) - 1) & ~(size_t)((2 << 20) - 1); }

uint64_t device_memory(size_t bytes) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemAccessDesc access[2] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                               {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
  CUdeviceptr address;
  CUmemGenericAllocationHandle handle;
  bytes = round_up(bytes);
  OK(cuMemCreate(&handle, bytes, &prop, 0));
  OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  OK(cuMemMap(address, bytes, 0, handle, 0));
  OK(cuMemSetAccess(address, bytes, access, 2));
  OK(cuMemRelease(handle));
  return address;
}

void device_free(uint64_t address, size_t bytes) {
  OK(cuMemUnmap(address, round_up(bytes)));
  OK(cuMemAddressFree(address, round_up(bytes)));
}

void upload(uint64_t to, const void *from, size_t bytes) {
  OK(cuMemcpyHtoDAsync_v2(to, from, bytes, NULL));
  OK(cuStreamSynchronize(NULL));
}

void download(void *to, uint64_t from, size_t bytes) {
  OK(cuMemcpyDtoHAsync_v2(to, from, bytes, NULL));
  OK(cuStreamSynchronize(NULL));
}

CUmodule load_text(const char *text) {
  char error[1024] = "";
  int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {error, (void *)sizeof error};
  CUmodule module;
  CUresult result = cuModuleLoadDataEx(&module, text, 2, options, values);
  if (result) fprintf(stderr, "%s\n", error);
  OK(result);
  return module;
}

CUmodule load_file(const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", EMULATOR_PTX_FOLDER, name);
  FILE *file = fopen(path, "rb");
  CHECK(file);
  fseek(file, 0, SEEK_END);
  long size = ftell(file);
  rewind(file);
  char *text = malloc((size_t)size + 1);
  CHECK(fread(text, 1, (size_t)size, file) == (size_t)size);
  text[size] = 0;
  fclose(file);
  CUmodule module = load_text(text);
  free(text);
  return module;
}

CUfunction function_of(CUmodule module, const char *name) {
  CUfunction function;
  OK(cuModuleGetFunction(&function, module, name));
  return function;
}

CUresult launch(CUfunction function, unsigned grid, unsigned threads, unsigned shared, void **arguments) {
  return cuLaunchKernel(function, grid, 1, 1, threads, 1, 1, shared, NULL, arguments, NULL);
}

int in_child(void (*body)(void), char *text, size_t bytes) {
  int ends[2], status;
  size_t length = 0;
  CHECK(!pipe(ends));
  fflush(NULL);
  pid_t child = fork();
  CHECK(child >= 0);
  if (!child) {
    is_child = true;
    signal(SIGSEGV, SIG_DFL), signal(SIGBUS, SIG_DFL); /* the test runner catches them */
    dup2(ends[1], 2);
    close(ends[0]), close(ends[1]);
    body();
    _exit(0);
  }
  close(ends[1]);
  for (ssize_t n; (n = read(ends[0], text + length, bytes - 1 - length)) > 0;) {
    length += (size_t)n;
    if (length == bytes - 1) length = 0; /* the end matters */
  }
  text[length] = 0;
  close(ends[0]);
  CHECK(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

char *kernel_text(int parameters, const char *declarations, const char *statements) {
  size_t bytes = 4096 + strlen(declarations) + strlen(statements), at = 0;
  char *text = malloc(bytes);
  at += (size_t)snprintf(text + at, bytes - at, ".version 8.4\n.target sm_90\n.address_size 64\n%s\n.visible .entry k(",
                         declarations);
  for (int i = 0; i < parameters; i++)
    at += (size_t)snprintf(text + at, bytes - at, "%s.param .u64 p%d", i ? ", " : "", i);
  at += (size_t)snprintf(
      text + at, bytes - at,
      ")\n{\n.reg .b32 %%t, %%r<20>;\n.reg .b64 %%p<10>, %%rd<20>;\n.reg .f32 %%f<20>;\n.reg .f64 %%fd<20>;\n"
      ".reg .b16 %%h<20>;\n.reg .pred %%q<20>;\nmov.u32 %%t, %%tid.x;\n");
  for (int i = 0; i < parameters; i++)
    at += (size_t)snprintf(text + at, bytes - at, "ld.param.u64 %%p%d, [p%d];\n", i, i);
  snprintf(text + at, bytes - at, "%s\nret;\n}\n", statements);
  return text;
}

uint64_t random_bits(void) {
  static uint64_t state = 0x853c49e6748fea9bu;
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
