/* Modules and launches: PTX to functions, arguments to a piece of work.
 *
 * The variables of a module lie in device memory of their own; the text of a mistake goes to the error log that the
 * caller gave. Limits on grids, blocks and shared memory are those of compute capability 9.0. Tests:
 * tests/test_errors.c, tests/test_parse.c. */
#include <stdio.h>
#include <stdlib.h>

#include "emulator.h"

enum { MOST_THREADS = 1024, MOST_THREADS_Z = 64, MOST_GRID_YZ = 65535, REGISTERS = 32 /* said of every function */ };

/* ---- loading ---- */

typedef struct log_buffer {
  char *text;
  size_t bytes;
  void **out_length; /* where the driver says how much it wrote */
} log_buffer;

static void take_options(log_buffer logs[2], unsigned count, const int *options, void **values) {
  for (unsigned i = 0; i < count; i++) {
    switch (options[i]) {
      case CU_JIT_INFO_LOG_BUFFER:
        logs[0].text = values[i];
        break;
      case CU_JIT_ERROR_LOG_BUFFER:
        logs[1].text = values[i];
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        logs[0].bytes = (uint32_t)(uintptr_t)values[i], logs[0].out_length = &values[i];
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        logs[1].bytes = (uint32_t)(uintptr_t)values[i], logs[1].out_length = &values[i];
        break;
      default:
        break;
    }
  }
}

static void fill_log(const log_buffer *log, const char *text) {
  size_t length = 0;
  if (log->text && log->bytes) {
    snprintf(log->text, log->bytes, "%s", text);
    length = strlen(log->text);
  }
  if (log->out_length) *log->out_length = (void *)(uintptr_t)length;
}

static void release_module(CUmodule module) {
  if (module->data) memory_free(module->data, module->ptx->data_bytes);
  for (uint32_t i = 0; module->functions && i < module->ptx->function_count; i++) {
    object_forget(&module->functions[i]->object);
    free(module->functions[i]);
  }
  ptx_release(module->ptx);
  object_forget(&module->object);
  free(module->functions);
  free(module);
}

static bool place_data(CUmodule module) {
  ptx_module *ptx = module->ptx;
  if (!ptx->data_bytes) return true;
  module->data = memory_allocate(ptx->data_bytes, module->context->device);
  if (!module->data) return false;
  ptx_relocate(ptx, module->data);
  return memory_copy(module->data, (uint64_t)(uintptr_t)ptx->data, ptx->data_bytes, module->context->device);
}

static void create_functions(CUmodule module) {
  module->functions = calloc(module->ptx->function_count + 1, sizeof(CUfunction));
  if (!module->functions) abort();
  for (uint32_t i = 0; i < module->ptx->function_count; i++) {
    CUfunction function = object_create(OBJECT_FUNCTION, sizeof *function);
    function->module = module;
    function->ptx = module->ptx->functions[i];
    module->functions[i] = function;
  }
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options, void **values) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  if (!module || !image || (count && (!options || !values))) return CUDA_ERROR_INVALID_VALUE;
  *module = NULL;
  log_buffer logs[2] = {{0}};
  char error[1024] = "";
  take_options(logs, count, options, values);
  fill_log(&logs[0], "");
  bool is_text = *(const char *)image && strncmp(image, "\177ELF", 4);
  ptx_module *ptx = is_text ? ptx_parse(image, error, sizeof error) : NULL;
  fill_log(&logs[1], error);
  if (!ptx) return is_text ? CUDA_ERROR_INVALID_PTX : EMULATOR_INVALID_IMAGE;
  CUmodule made = object_create(OBJECT_MODULE, sizeof *made);
  made->context = context;
  made->ptx = ptx;
  create_functions(made);
  if (!place_data(made)) {
    release_module(made);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *module = made;
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  if (!object_is(module, OBJECT_MODULE)) return CUDA_ERROR_INVALID_HANDLE;
  stream_run_all(module->context);
  release_module(module);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  if (!function || !name) return CUDA_ERROR_INVALID_VALUE;
  *function = NULL;
  if (!object_is(module, OBJECT_MODULE)) return CUDA_ERROR_INVALID_HANDLE;
  for (uint32_t i = 0; i < module->ptx->function_count; i++) {
    CUfunction candidate = module->functions[i];
    if (!candidate->ptx->is_entry || !candidate->ptx->is_defined || strcmp(candidate->ptx->name, name)) continue;
    *function = candidate;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  if (!object_is(module, OBJECT_MODULE)) return CUDA_ERROR_INVALID_HANDLE;
  for (uint32_t i = 0; i < module->ptx->variable_count; i++) {
    const ptx_variable *variable = &module->ptx->variables[i];
    if (strcmp(variable->name, name)) continue;
    if (address) *address = module->data + variable->offset;
    if (bytes) *bytes = variable->bytes;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

/* ---- functions ---- */

static uint32_t most_threads(const ptx_function *f) {
  const uint32_t *limit = f->required[0] ? f->required : f->most;
  return limit[0] ? limit[0] * limit[1] * limit[2] : MOST_THREADS;
}

static int dynamic_limit(const ptx_function *f) {
  int usual = EMULATOR_STATIC_SHARED - (int)f->shared_bytes;
  return f->dynamic_shared_limit > usual ? f->dynamic_shared_limit : usual;
}

CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
  enum { THREADS = 0, SHARED = 1, CONSTANT = 2, PTX_VERSION = 5, BINARY_VERSION = 6 };
  EMULATOR_LOCKED;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (!object_is(function, OBJECT_FUNCTION)) return CUDA_ERROR_INVALID_HANDLE;
  const ptx_function *f = function->ptx;
  switch (attribute) {
    case THREADS:
      *value = (int)most_threads(f);
      return CUDA_SUCCESS;
    case SHARED:
      *value = (int)f->shared_bytes;
      return CUDA_SUCCESS;
    case CONSTANT:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = (int)f->local_bytes;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = REGISTERS;
      return CUDA_SUCCESS;
    case PTX_VERSION:
    case BINARY_VERSION:
      *value = 90;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = dynamic_limit(f);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  enum { CARVEOUT = 9 };
  EMULATOR_LOCKED;
  if (!object_is(function, OBJECT_FUNCTION)) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute == CARVEOUT) return CUDA_SUCCESS;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_INVALID_VALUE;
  if (value < 0 || value > EMULATOR_MOST_SHARED - (int)function->ptx->shared_bytes) return CUDA_ERROR_INVALID_VALUE;
  function->ptx->dynamic_shared_limit = value;
  return CUDA_SUCCESS;
}

/* ---- launches ---- */

static CUresult check_sizes(const ptx_function *f, const uint32_t grid[3], const uint32_t threads[3],
                            uint32_t shared_bytes) {
  uint64_t count = (uint64_t)threads[0] * threads[1] * threads[2];
  for (int i = 0; i < 3; i++)
    if (!grid[i] || !threads[i] || (f->required[0] && threads[i] != f->required[i])) return CUDA_ERROR_INVALID_VALUE;
  if (threads[0] > MOST_THREADS || threads[1] > MOST_THREADS || threads[2] > MOST_THREADS_Z || count > most_threads(f))
    return CUDA_ERROR_INVALID_VALUE;
  if (grid[0] > INT32_MAX || grid[1] > MOST_GRID_YZ || grid[2] > MOST_GRID_YZ) return CUDA_ERROR_INVALID_VALUE;
  return (int64_t)shared_bytes > dynamic_limit(f) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Arguments come as pointers to each, or as one buffer (0: end, 1: its address follows, 2: the address of its size). */
static CUresult copy_parameters(uint8_t *to, const ptx_function *f, void **params, void **extra) {
  if (params && extra) return CUDA_ERROR_INVALID_VALUE;
  if (extra) {
    const void *buffer = NULL;
    size_t bytes = 0;
    for (; *extra; extra += 2) {
      if (*extra == (void *)1)
        buffer = extra[1];
      else if (*extra == (void *)2)
        bytes = *(const size_t *)extra[1];
      else
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!buffer || bytes < f->parameter_bytes) return CUDA_ERROR_INVALID_VALUE;
    memcpy(to, buffer, f->parameter_bytes);
    return CUDA_SUCCESS;
  }
  if (f->parameter_count && !params) return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < f->parameter_count; i++) {
    if (!params[i]) return CUDA_ERROR_INVALID_VALUE;
    memcpy(to + f->parameters[i].offset, params[i], f->parameters[i].bytes);
  }
  return CUDA_SUCCESS;
}

CUresult launch_operation(operation *work, CUfunction function, const uint32_t grid[3], const uint32_t threads[3],
                          uint32_t shared_bytes, void **params, void **extra) {
  if (!object_is(function, OBJECT_FUNCTION) || !function->ptx->is_entry) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = check_sizes(function->ptx, grid, threads, shared_bytes);
  if (result) return result;
  *work = (operation){.kind = OPERATION_LAUNCH, .function = function, .shared_bytes = shared_bytes};
  memcpy(work->grid, grid, sizeof work->grid);
  memcpy(work->threads, threads, sizeof work->threads);
  work->parameters = calloc(1, function->ptx->parameter_bytes + 8);
  if (!work->parameters) return CUDA_ERROR_OUT_OF_MEMORY;
  result = copy_parameters(work->parameters, function->ptx, params, extra);
  if (result) operation_release(work);
  return result;
}

static CUresult launch(CUfunction function, const uint32_t grid[3], const uint32_t threads[3], uint32_t shared_bytes,
                       CUstream handle, void **params, void **extra) {
  EMULATOR_CONTEXT(context);
  CUstream stream;
  operation work;
  CUresult result = stream_of(handle, context, &stream);
  if (!result) result = launch_operation(&work, function, grid, threads, shared_bytes, params, extra);
  if (result) return result;
  if (function->module->context != stream->context) {
    operation_release(&work);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return stream_submit(stream, &work);
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **params,
                        void **extra) {
  EMULATOR_LOCKED;
  uint32_t grid[3] = {grid_x, grid_y, grid_z}, threads[3] = {block_x, block_y, block_z};
  return launch(function, grid, threads, shared_bytes, stream, params, extra);
}

/* Clusters of one block, and the wish to start before the kernel before has ended, change nothing here. */
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
  EMULATOR_LOCKED;
  if (!config || (config->numAttrs && !config->attrs)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < config->numAttrs; i++) {
    const CUlaunchAttribute *attribute = &config->attrs[i];
    bool cluster = attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    if (cluster && attribute->value.clusterDim.x * attribute->value.clusterDim.y * attribute->value.clusterDim.z > 1)
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  uint32_t grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
  uint32_t threads[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};
  return launch(function, grid, threads, config->sharedMemBytes, config->hStream, params, extra);
}
