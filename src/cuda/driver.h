/* The CUDA driver API as wick uses it, declared by hand: libcuda is found at run time, and neither a header nor a
 * library of CUDA is needed to build wick. Names, layouts and numbers are the driver's own (its ABI is stable).
 *
 * wk__cuda is filled by wk__cuda_open, once a process and not before a device is asked for; WICK_LIBCUDA names another
 * library than libcuda.so.1, such as the emulator of the tests. Tests: tests/cuda/. */
#ifndef WICK_CUDA_DRIVER_H
#define WICK_CUDA_DRIVER_H

#include "base/base.h"

typedef int CUresult, CUdevice;
typedef unsigned long long CUdeviceptr, CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;

enum { /* CUresult */
       CUDA_SUCCESS = 0,
       CUDA_ERROR_INVALID_VALUE = 1,
       CUDA_ERROR_OUT_OF_MEMORY = 2,
       CUDA_ERROR_NOT_INITIALIZED = 3,
       CUDA_ERROR_NO_DEVICE = 100,
       CUDA_ERROR_INVALID_DEVICE = 101,
       CUDA_ERROR_INVALID_CONTEXT = 201,
       CUDA_ERROR_INVALID_PTX = 218,
       CUDA_ERROR_INVALID_HANDLE = 400,
       CUDA_ERROR_NOT_FOUND = 500,
       CUDA_ERROR_NOT_READY = 600,
       CUDA_ERROR_ILLEGAL_ADDRESS = 700,
       CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
       CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
       CUDA_ERROR_MISALIGNED_ADDRESS = 716,
       CUDA_ERROR_LAUNCH_FAILED = 719,
       CUDA_ERROR_NOT_SUPPORTED = 801,
};
enum { /* CUdevice_attribute */
       CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
       CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
       CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
       CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
       CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
       CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
       CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
       CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
       CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
       CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
};
enum { /* CUfunction_attribute */
       CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
       CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
       CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
};
enum { /* CUjit_option */
       CU_JIT_INFO_LOG_BUFFER = 3,
       CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES = 4,
       CU_JIT_ERROR_LOG_BUFFER = 5,
       CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
};
enum { CU_STREAM_NON_BLOCKING = 1, CU_EVENT_DISABLE_TIMING = 2, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1 };
enum { CU_STREAM_CAPTURE_MODE_RELAXED = 2, CU_STREAM_CAPTURE_STATUS_ACTIVE = 1 };
enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1, CU_MEM_LOCATION_TYPE_DEVICE = 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 };
enum { CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9 };
enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2, CU_MEMHOSTALLOC_PORTABLE = 1 };
enum { CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6 };

typedef struct CUmemLocation {
  int type, id;
} CUmemLocation;
typedef struct CUmemAllocationProp {
  int type, requestedHandleTypes;
  CUmemLocation location;
  void *win32HandleMetaData;
  struct {
    unsigned char compressionType, gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
} CUmemAllocationProp;
typedef struct CUmemAccessDesc {
  CUmemLocation location;
  int flags;
} CUmemAccessDesc;

typedef struct CUlaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    int programmaticStreamSerializationAllowed;
    struct {
      unsigned x, y, z;
    } clusterDim;
  } value;
} CUlaunchAttribute;
typedef struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute *attrs;
  unsigned numAttrs;
} CUlaunchConfig;

typedef struct CUDA_KERNEL_NODE_PARAMS { /* _v2 */
  CUfunction func;
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  void **kernelParams, **extra;
  void *kern;
  CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;

/* An edge between two kernels of which the second begins early and waits for the first by itself. */
typedef struct CUgraphEdgeData {
  unsigned char from_port, to_port, type, reserved[5];
} CUgraphEdgeData;
enum { CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC = 1, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC = 1 };

/* What the copy engine is told of a tensor: not to be looked into. */
typedef struct CUtensorMap {
  _Alignas(64) uint64_t words[16];
} CUtensorMap;

/* What is called of the driver. */
#define WK__CUDA_FUNCTIONS(X)                                                                                          \
  X(cuInit, (unsigned flags))                                                                                          \
  X(cuDriverGetVersion, (int *version))                                                                                \
  X(cuDeviceGetCount, (int *count))                                                                                    \
  X(cuDeviceGet, (CUdevice * device, int ordinal))                                                                     \
  X(cuDeviceGetName, (char *name, int length, CUdevice device))                                                        \
  X(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device))                                                \
  X(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device))                                                            \
  X(cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer))                                                 \
  X(cuDeviceGetUuid_v2, (unsigned char *uuid, CUdevice device))                                                        \
  X(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                                                  \
  X(cuCtxSetCurrent, (CUcontext context))                                                                              \
  X(cuCtxSynchronize, (void))                                                                                          \
  X(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags))                                                           \
  X(cuMemGetInfo_v2, (size_t * available, size_t * total))                                                             \
  X(cuMemAddressReserve,                                                                                               \
    (CUdeviceptr * address, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags))               \
  X(cuMemAddressFree, (CUdeviceptr address, size_t bytes))                                                             \
  X(cuMemCreate,                                                                                                       \
    (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags))  \
  X(cuMemRelease, (CUmemGenericAllocationHandle handle))                                                               \
  X(cuMemMap,                                                                                                          \
    (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)) \
  X(cuMemUnmap, (CUdeviceptr address, size_t bytes))                                                                   \
  X(cuMemSetAccess, (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *descriptions, size_t count))            \
  X(cuMemGetAllocationGranularity, (size_t * granularity, const CUmemAllocationProp *prop, int option))                \
  X(cuPointerGetAttribute, (void *value, int attribute, CUdeviceptr address))                                          \
  X(cuMemHostAlloc, (void **memory, size_t bytes, unsigned flags))                                                     \
  X(cuMemFreeHost, (void *memory))                                                                                     \
  X(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                           \
  X(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))                                 \
  X(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                           \
  X(cuMemcpyPeerAsync,                                                                                                 \
    (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream))   \
  X(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream))                             \
  X(cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority))                                     \
  X(cuStreamDestroy_v2, (CUstream stream))                                                                             \
  X(cuStreamSynchronize, (CUstream stream))                                                                            \
  X(cuStreamQuery, (CUstream stream))                                                                                  \
  X(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                                               \
  X(cuStreamBeginCapture_v2, (CUstream stream, int mode))                                                              \
  X(cuStreamEndCapture, (CUstream stream, CUgraph * graph))                                                            \
  X(cuStreamGetCaptureInfo_v2,                                                                                         \
    (CUstream stream, int *status, unsigned long long *id, CUgraph *graph, const CUgraphNode **last, size_t *count))   \
  X(cuThreadExchangeStreamCaptureMode, (int *mode))                                                                    \
  X(cuEventCreate, (CUevent * event, unsigned flags))                                                                  \
  X(cuEventDestroy_v2, (CUevent event))                                                                                \
  X(cuEventRecord, (CUevent event, CUstream stream))                                                                   \
  X(cuEventQuery, (CUevent event))                                                                                     \
  X(cuEventSynchronize, (CUevent event))                                                                               \
  X(cuEventElapsedTime, (float *milliseconds, CUevent begin, CUevent end))                                             \
  X(cuModuleLoadDataEx, (CUmodule * module, const void *image, unsigned count, int *options, void **values))           \
  X(cuModuleUnload, (CUmodule module))                                                                                 \
  X(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))                                   \
  X(cuModuleGetGlobal_v2, (CUdeviceptr * address, size_t * bytes, CUmodule module, const char *name))                  \
  X(cuFuncGetAttribute, (int *value, int attribute, CUfunction function))                                              \
  X(cuFuncSetAttribute, (CUfunction function, int attribute, int value))                                               \
  X(cuLaunchKernel,                                                                                                    \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,       \
     unsigned block_z, unsigned shared_bytes, CUstream stream, void **params, void **extra))                           \
  X(cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction function, void **params, void **extra))                \
  X(cuGraphCreate, (CUgraph * graph, unsigned flags))                                                                  \
  X(cuGraphAddKernelNode_v2, (CUgraphNode * node, CUgraph graph, const CUgraphNode *behind, size_t count,              \
                              const CUDA_KERNEL_NODE_PARAMS *params))                                                  \
  X(cuGraphAddChildGraphNode,                                                                                          \
    (CUgraphNode * node, CUgraph graph, const CUgraphNode *behind, size_t count, CUgraph child))                       \
  X(cuGraphExecChildGraphNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraph child))                           \
  X(cuGraphGetNodes, (CUgraph graph, CUgraphNode * nodes, size_t * count))                                             \
  X(cuGraphDebugDotPrint, (CUgraph graph, const char *path, unsigned flags))                                           \
  X(cuGraphDestroy, (CUgraph graph))                                                                                   \
  X(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags))                        \
  X(cuGraphKernelNodeGetParams_v2, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS * params))                               \
  X(cuGraphExecKernelNodeSetParams_v2, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params))    \
  X(cuGraphExecDestroy, (CUgraphExec exec))                                                                            \
  X(cuGraphLaunch, (CUgraphExec exec, CUstream stream))                                                                \
  X(cuGetErrorName, (CUresult result, const char **name))                                                              \
  X(cuGetErrorString, (CUresult result, const char **text))

/* Those of newer drivers, which may be NULL. */
#define WK__CUDA_NEWER_FUNCTIONS(X)                                                                                   \
  X(cuGraphAddDependencies_v2,                                                                                        \
    (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edges, size_t count))      \
  X(cuTensorMapEncodeTiled,                                                                                           \
    (CUtensorMap * map, int type, uint32_t dims, CUdeviceptr address, const uint64_t *sizes, const uint64_t *strides, \
     const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill))

typedef struct wk__cuda_functions {
#define X(name, args) CUresult(*name) args;
  WK__CUDA_FUNCTIONS(X)
  WK__CUDA_NEWER_FUNCTIONS(X)
#undef X
} wk__cuda_functions;

extern wk__cuda_functions wk__cuda; /* NULL members until wk__cuda_open has succeeded */

/* Finds the driver and initialises it: no context, no device memory. WK_RUNTIME_ERROR with PyTorch's text. */
WK_MUST_USE wk_status wk__cuda_open(void);
/* CUDA's error as wick's, WK_OK for CUDA_SUCCESS; `what`: the driver's function. */
WK_MUST_USE wk_status wk__cuda_check(CUresult result, const char *what);
#define WK__CUDA(name, ...) wk__cuda_check(wk__cuda.name(__VA_ARGS__), #name)

#endif
