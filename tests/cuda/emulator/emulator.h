/* The emulated driver: its objects, and what its parts ask of each other.
 *
 * All of the API holds one lock. api.c has devices, contexts and errors, memory_api.c memory, stream.c streams, events
 * and the work that is queued on them, graph.c capture and graphs, module.c modules and launches. Environment:
 *   WICK_EMULATED_DEVICES   devices (2)               WICK_EMULATED_MEMORY   bytes of each (1 GiB)
 *   WICK_EMULATOR_LAZY=1    work runs only when something synchronises with it
 *   WICK_EMULATOR_RACES=1   races on shared memory fail (races.c)
 *   WICK_EMULATOR_THREADS   threads of the host that run blocks (1)
 *   WICK_EMULATOR_TIMEOUT   seconds after which a kernel fails (never) */
#ifndef EMULATOR_EMULATOR_H
#define EMULATOR_EMULATOR_H

#include "cuda/driver.h"
#include "memory.h"
#include "ptx.h"
#include "work.h"

#pragma GCC visibility push(hidden)

enum { EMULATOR_MOST_DEVICES = 16, EMULATOR_STATIC_SHARED = 48 << 10, EMULATOR_MOST_SHARED = 227 << 10 };

/* Results that driver.h has no use for. */
enum {
  EMULATOR_INVALID_IMAGE = 200,
  EMULATOR_PEER_ACCESS_ENABLED = 704,
  EMULATOR_CAPTURE_UNSUPPORTED = 900,
  EMULATOR_CAPTURE_INVALIDATED = 901,
  EMULATOR_CAPTURE_UNMATCHED = 903,
  EMULATOR_CAPTURE_UNJOINED = 904,
  EMULATOR_CAPTURE_ISOLATION = 905,
  EMULATOR_CAPTURE_IMPLICIT = 906,
  EMULATOR_CAPTURED_EVENT = 907,
  EMULATOR_CAPTURE_WRONG_THREAD = 908,
};

/* ---- objects ---- */

typedef enum object_kind {
  OBJECT_CONTEXT,
  OBJECT_STREAM,
  OBJECT_EVENT,
  OBJECT_MODULE,
  OBJECT_FUNCTION,
  OBJECT_GRAPH,
  OBJECT_NODE,
  OBJECT_EXEC
} object_kind;

/* The first member of all objects: a handle is good while its object is registered. */
typedef struct object {
  struct object *next;
  object_kind kind;
} object;
void *object_create(object_kind kind, size_t bytes); /* zeroed and registered */
void object_forget(object *gone);                    /* the handle is bad from now on */
bool object_is(const void *handle, object_kind kind);
void object_each(object_kind kind, void (*visit)(void *object, void *context), void *context);

struct CUctx_st {
  object object;
  int device;
  CUresult error;  /* sticky */
  uint32_t peers;  /* a bit for each device that cuCtxEnablePeerAccess named */
  CUstream legacy; /* the stream NULL */
};

typedef enum operation_kind {
  OPERATION_LAUNCH,
  OPERATION_COPY,
  OPERATION_FILL,
  OPERATION_RECORD,
  OPERATION_WAIT,
  OPERATION_LIBRARY
} operation_kind;

/* A piece of work: in a stream's queue, or in a graph. */
typedef struct operation {
  struct operation *next; /* in a queue */
  operation_kind kind;
  uint64_t sequence; /* of all work of the process */
  /* a launch */
  CUfunction function;
  uint32_t grid[3], threads[3], shared_bytes;
  uint8_t *parameters; /* owned */
  /* a copy, or a fill with a byte */
  uint64_t to, from, bytes;
  uint8_t *staged; /* owned: the source's bytes when they were taken at the call; arguments of a library's work */
  uint8_t value;
  emulator_work *work; /* a library's */
  /* an event's record, or the wait for one: for this work of that stream */
  CUevent event;
  CUstream awaited;
  uint64_t awaited_sequence;
} operation;

struct CUstream_st {
  object object;
  CUcontext context;
  int references;
  bool is_legacy, is_non_blocking;
  operation *head, **tail;
  uint64_t issued, done;           /* sequences */
  CUgraph capture;                 /* NULL: not capturing */
  bool is_origin;                  /* of the capture */
  uint32_t last_node, joined_node; /* of the capture: after its last operation; up to where another stream waited */
};

struct CUevent_st {
  object object;
  CUcontext context;
  int references;
  unsigned flags;
  CUstream stream; /* of the last record; NULL: never recorded */
  uint64_t sequence;
  uint64_t time;   /* nanoseconds */
  CUgraph capture; /* recorded in a capture that goes on */
  CUstream captured_stream;
  uint32_t captured_node;
};

struct CUgraphNode_st {
  object object;
  CUgraph graph;
  operation operation;
  void **pointers; /* to the parameters, for cuGraphKernelNodeGetParams */
};

struct CUgraph_st {
  object object;
  CUcontext context;
  CUgraphNode *nodes;
  uint32_t count, capacity;
  bool is_invalid; /* the capture has failed */
  CUstream origin; /* NULL: the capture is over */
  int mode;
  unsigned long long id; /* of the capture */
  uint64_t thread;       /* that captures */
};

struct CUgraphExec_st {
  object object;
  CUcontext context;
  operation *operations;
  CUgraphNode *nodes; /* the node that each came from; never followed */
  uint32_t count;
};

struct CUmod_st {
  object object;
  CUcontext context;
  ptx_module *ptx;
  CUfunction *functions;
  uint64_t data; /* where its variables lie */
};

struct CUfunc_st {
  object object;
  CUmodule module;
  ptx_function *ptx;
};

/* ---- api.c ---- */

/* Takes the lock until the end of the caller's scope. */
void emulator_lock(void);
void emulator_unlock(const int *unused);
#define EMULATOR_LOCKED \
  emulator_lock();      \
  const int emulator_lock_held __attribute__((cleanup(emulator_unlock), unused)) = 0

/* The thread's context; when there is none, or it has failed, returns from the caller. */
#define EMULATOR_CONTEXT(name)                          \
  CUcontext name = NULL;                                \
  do {                                                  \
    CUresult context_result_ = emulator_context(&name); \
    if (context_result_) return context_result_;        \
  } while (0)
CUresult emulator_context(CUcontext *context);
bool emulator_is_device(CUdevice device);
int emulator_device_count(void);
bool emulator_is_lazy(void);

/* ---- stream.c ---- */

CUresult stream_of(CUstream handle, CUcontext context, CUstream *stream); /* NULL is the legacy stream */
CUresult stream_submit(CUstream stream, const operation *work);           /* takes what it owns, also on failure */
void stream_run(CUstream stream, uint64_t sequence);                      /* up to that work */
void stream_run_all(CUcontext context);
CUstream stream_create(CUcontext context, bool is_legacy, bool is_non_blocking);
void operation_release(operation *work); /* what it owns */
operation operation_copy(const operation *work);

/* ---- graph.c ---- */

CUresult capture_add(CUstream stream, const operation *work); /* the stream captures */
CUresult capture_wait(CUstream stream, CUevent event);        /* the event was recorded in a capture */
CUresult capture_forbid(CUcontext context);      /* an error while a stream of it captures, which then fails */
CUresult capture_forbid_stream(CUstream stream); /* the same for one stream */
CUresult capture_forbid_thread(void); /* the same for calls that may not be made while this thread captures */

/* ---- module.c ---- */

/* A launch of these arguments, which are checked and copied. */
CUresult launch_operation(operation *work, CUfunction function, const uint32_t grid[3], const uint32_t threads[3],
                          uint32_t shared_bytes, void **params, void **extra);

/* ---- memory.c: what memory_api.c calls ---- */

CUresult memory_reserve(CUdeviceptr *address, size_t bytes, size_t alignment);
CUresult memory_unreserve(CUdeviceptr address, size_t bytes);
CUresult memory_create(CUmemGenericAllocationHandle *handle, size_t bytes, int device);
CUresult memory_release(CUmemGenericAllocationHandle handle);
CUresult memory_map_piece(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle);
CUresult memory_unmap(CUdeviceptr address, size_t bytes);
CUresult memory_set_access(CUdeviceptr address, size_t bytes, int device, bool allowed);
CUresult memory_pin(void **out, size_t bytes, int device);
CUresult memory_unpin(void *bytes);

#pragma GCC visibility pop

/* What the library gives: every function of driver.h, with its prototype. */
#pragma GCC visibility push(default)
#define X(name, args) CUresult name args;
WK__CUDA_FUNCTIONS(X)
WK__CUDA_NEWER_FUNCTIONS(X)
#undef X
#pragma GCC visibility pop

#endif
