/* Capture of streams into graphs, and their replay.
 *
 * A capture keeps the work of its streams as nodes in the order of the calls, which is an order that all dependencies
 * allow; replay is that work again, on one stream. Events recorded in a capture are no nodes (as in the driver): they
 * bring another stream into it, and tell at the end whether that stream's work has been waited for. Tests:
 * tests/test_graphs.c. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "emulator.h"

enum { MODE_GLOBAL = 0, MODE_RELAXED = 2, ILLEGAL_STATE = 401, CAPTURE_MERGE = 902 };

static uint64_t this_thread(void) { return (uint64_t)pthread_self(); }

/* ---- what may not be done ---- */

typedef struct search {
  CUcontext context;
  CUgraph found;
} search;

static void find_capture_of_context(void *object, void *context) {
  CUstream stream = object;
  search *s = context;
  if (stream->context == s->context && stream->capture) s->found = stream->capture;
}

static void find_capture_of_thread(void *object, void *context) {
  CUgraph graph = object;
  search *s = context;
  bool mine =
      graph->origin && graph->mode != MODE_RELAXED && (graph->mode == MODE_GLOBAL || graph->thread == this_thread());
  if (mine) s->found = graph;
}

static CUresult forbid(CUgraph graph) {
  if (!graph) return CUDA_SUCCESS;
  graph->is_invalid = true;
  return EMULATOR_CAPTURE_UNSUPPORTED;
}

CUresult capture_forbid(CUcontext context) {
  search s = {.context = context};
  object_each(OBJECT_STREAM, find_capture_of_context, &s);
  return forbid(s.found);
}

CUresult capture_forbid_stream(CUstream stream) { return forbid(stream->capture); }

static __thread int thread_mode; /* what this thread minds of captures: all by default */

CUresult capture_forbid_thread(void) {
  search s = {0};
  if (thread_mode == MODE_RELAXED) return CUDA_SUCCESS;
  object_each(OBJECT_GRAPH, find_capture_of_thread, &s);
  return forbid(s.found);
}

/* ---- capture ---- */

static CUgraphNode create_node(CUgraph graph, const operation *work) {
  CUgraphNode node = object_create(OBJECT_NODE, sizeof *node);
  node->graph = graph;
  node->operation = *work;
  if (graph->count == graph->capacity) {
    graph->capacity = graph->capacity ? graph->capacity * 2 : 16;
    graph->nodes = realloc(graph->nodes, graph->capacity * sizeof(CUgraphNode));
    if (!graph->nodes) abort();
  }
  return graph->nodes[graph->count++] = node;
}

static void capture_record(CUstream stream, CUevent event) {
  event->capture = stream->capture;
  event->captured_stream = stream;
  event->captured_node = stream->last_node;
}

CUresult capture_add(CUstream stream, const operation *work) {
  operation taken = *work;
  CUgraph graph = stream->capture;
  if (graph->is_invalid) {
    operation_release(&taken);
    return EMULATOR_CAPTURE_INVALIDATED;
  }
  if (work->kind == OPERATION_RECORD) {
    capture_record(stream, work->event);
    operation_release(&taken);
    return CUDA_SUCCESS;
  }
  create_node(graph, &taken);
  stream->last_node = graph->count;
  return CUDA_SUCCESS;
}

/* A stream that waits for an event of a capture joins it; the stream of the event has been waited for up to there. */
CUresult capture_wait(CUstream stream, CUevent event) {
  CUgraph graph = event->capture;
  if (graph->is_invalid) return EMULATOR_CAPTURE_INVALIDATED;
  if (stream->is_legacy || (stream->capture && stream->capture != graph)) {
    graph->is_invalid = true;
    return stream->is_legacy ? EMULATOR_CAPTURE_IMPLICIT : CAPTURE_MERGE;
  }
  if (!stream->capture) {
    stream->capture = graph;
    stream->is_origin = false;
    stream->last_node = stream->joined_node = 0;
  }
  CUstream from = event->captured_stream;
  if (event->captured_node > from->joined_node) from->joined_node = event->captured_node;
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream handle, int mode) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  CUstream stream;
  CUresult result = stream_of(handle, context, &stream);
  if (result) return result;
  if (mode < MODE_GLOBAL || mode > MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  if (stream->is_legacy) return EMULATOR_CAPTURE_UNSUPPORTED;
  if (stream->capture) return ILLEGAL_STATE;
  static unsigned long long last_id;
  CUgraph graph = object_create(OBJECT_GRAPH, sizeof *graph);
  graph->context = stream->context;
  graph->id = ++last_id;
  graph->origin = stream;
  graph->mode = mode;
  graph->thread = this_thread();
  stream->capture = graph;
  stream->is_origin = true;
  stream->last_node = stream->joined_node = 0;
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
  if (!mode || *mode < MODE_GLOBAL || *mode > MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  int before = thread_mode;
  thread_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}

/* The last operation of the stream stands for what its next one depends on. */
CUresult cuStreamGetCaptureInfo_v2(CUstream handle, int *status, unsigned long long *id, CUgraph *out_graph,
                                   const CUgraphNode **last, size_t *count) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  CUstream stream;
  CUresult result = stream_of(handle, context, &stream);
  if (result) return result;
  if (!status) return CUDA_ERROR_INVALID_VALUE;
  const CUgraph graph = stream->capture;
  *status = !graph ? 0 : graph->is_invalid ? 2 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (!graph) return CUDA_SUCCESS;
  if (id) *id = graph->id;
  if (out_graph) *out_graph = graph;
  if (last) *last = stream->last_node ? &graph->nodes[stream->last_node - 1] : NULL;
  if (count) *count = stream->last_node != 0;
  return CUDA_SUCCESS;
}

typedef struct ending {
  CUgraph graph;
  bool is_unjoined;
} ending;

static void end_stream(void *object, void *context) {
  CUstream stream = object;
  ending *end = context;
  if (stream->capture != end->graph) return;
  if (!stream->is_origin && stream->last_node > stream->joined_node) end->is_unjoined = true;
  stream->capture = NULL;
}

static void end_event(void *object, void *context) {
  CUevent event = object;
  if (event->capture == ((ending *)context)->graph) event->capture = NULL;
}

static void destroy_graph(CUgraph graph) {
  for (uint32_t i = 0; i < graph->count; i++) {
    object_forget(&graph->nodes[i]->object);
    operation_release(&graph->nodes[i]->operation);
    free(graph->nodes[i]->pointers);
    free(graph->nodes[i]);
  }
  object_forget(&graph->object);
  free(graph->nodes);
  free(graph);
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *out_graph) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  CUstream stream;
  CUresult result = stream_of(handle, context, &stream);
  if (result) return result;
  if (!out_graph) return CUDA_ERROR_INVALID_VALUE;
  *out_graph = NULL;
  CUgraph graph = stream->capture;
  if (!graph) return ILLEGAL_STATE;
  if (!stream->is_origin) return EMULATOR_CAPTURE_UNMATCHED;
  if (graph->mode != MODE_RELAXED && graph->thread != this_thread()) return EMULATOR_CAPTURE_WRONG_THREAD;
  ending end = {.graph = graph};
  object_each(OBJECT_STREAM, end_stream, &end);
  object_each(OBJECT_EVENT, end_event, &end);
  graph->origin = NULL;
  if (graph->is_invalid || end.is_unjoined) {
    result = graph->is_invalid ? EMULATOR_CAPTURE_INVALIDATED : EMULATOR_CAPTURE_UNJOINED;
    destroy_graph(graph);
    return result;
  }
  *out_graph = graph;
  return CUDA_SUCCESS;
}

static CUresult launch_of(operation *out, const CUDA_KERNEL_NODE_PARAMS *params) {
  uint32_t grid[3] = {params->gridDimX, params->gridDimY, params->gridDimZ};
  uint32_t threads[3] = {params->blockDimX, params->blockDimY, params->blockDimZ};
  return launch_operation(out, params->func, grid, threads, params->sharedMemBytes, params->kernelParams,
                          params->extra);
}

/* ---- graphs ---- */

CUresult cuGraphCreate(CUgraph *out_graph, unsigned flags) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  if (!out_graph || flags) return CUDA_ERROR_INVALID_VALUE;
  CUgraph graph = object_create(OBJECT_GRAPH, sizeof *graph);
  graph->context = context;
  *out_graph = graph;
  return CUDA_SUCCESS;
}

/* Nodes run in the order in which they were added, which all dependencies allow, since a node is there before it is
 * depended on. So a dependency that is missing is not noticed. */
CUresult cuGraphAddKernelNode_v2(CUgraphNode *out_node, CUgraph graph, const CUgraphNode *behind, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS *params) {
  EMULATOR_LOCKED;
  if (!out_node || !object_is(graph, OBJECT_GRAPH) || graph->origin || !params || (count && !behind))
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++)
    if (!object_is(behind[i], OBJECT_NODE) || behind[i]->graph != graph) return CUDA_ERROR_INVALID_VALUE;
  operation made;
  CUresult result = launch_of(&made, params);
  if (result) return result;
  *out_node = create_node(graph, &made);
  return CUDA_SUCCESS;
}

/* Edges add nothing to the order. A kernel at both ends is all that the driver asks of an early one. */
CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edges, size_t count) {
  EMULATOR_LOCKED;
  if (!object_is(graph, OBJECT_GRAPH) || graph->origin || (count && (!from || !to))) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    if (!object_is(from[i], OBJECT_NODE) || !object_is(to[i], OBJECT_NODE)) return CUDA_ERROR_INVALID_VALUE;
    if (from[i]->graph != graph || to[i]->graph != graph) return CUDA_ERROR_INVALID_VALUE;
    bool early = edges && edges[i].type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    if (early && (!from[i]->operation.function || !to[i]->operation.function)) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

/* A child becomes its nodes; the last one stands for it. */
CUresult cuGraphAddChildGraphNode(CUgraphNode *out_node, CUgraph graph, const CUgraphNode *behind, size_t count,
                                  CUgraph child) {
  EMULATOR_LOCKED;
  if (!out_node || !object_is(graph, OBJECT_GRAPH) || !object_is(child, OBJECT_GRAPH) || !child->count ||
      (count && !behind))
    return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < child->count; i++) {
    operation work = operation_copy(&child->nodes[i]->operation);
    *out_node = create_node(graph, &work);
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  EMULATOR_LOCKED;
  if (!object_is(exec, OBJECT_EXEC) || !object_is(node, OBJECT_NODE) || !object_is(child, OBJECT_GRAPH))
    return CUDA_ERROR_INVALID_VALUE;
  uint32_t last = 0;
  while (last < exec->count && exec->nodes[last] != node) last++;
  if (last == exec->count || child->count == 0 || last + 1 < child->count) return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < child->count; i++) {
    operation *old = &exec->operations[last + 1 - child->count + i];
    operation_release(old);
    *old = operation_copy(&child->nodes[i]->operation);
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  EMULATOR_LOCKED;
  if (!object_is(graph, OBJECT_GRAPH) || !count) return CUDA_ERROR_INVALID_VALUE;
  size_t room = *count;
  if (!nodes) {
    *count = graph->count;
    return CUDA_SUCCESS;
  }
  for (size_t i = 0; i < room; i++) nodes[i] = i < graph->count ? graph->nodes[i] : NULL;
  if (room > graph->count) *count = graph->count;
  return CUDA_SUCCESS;
}

CUresult cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned flags) {
  (void)flags;
  EMULATOR_LOCKED;
  if (!object_is(graph, OBJECT_GRAPH) || !path) return CUDA_ERROR_INVALID_VALUE;
  FILE *file = fopen(path, "w");
  if (!file) return CUDA_ERROR_INVALID_VALUE;
  fprintf(file, "digraph dot {\n");
  for (uint32_t i = 0; i < graph->count; i++)
    fprintf(file, "  node%u [label=\"%d\"];\n", i, graph->nodes[i]->operation.kind);
  fprintf(file, "}\n");
  return fclose(file) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  EMULATOR_LOCKED;
  if (!object_is(graph, OBJECT_GRAPH) || graph->origin) return CUDA_ERROR_INVALID_VALUE;
  destroy_graph(graph);
  return CUDA_SUCCESS;
}

/* ---- parameters of kernels ---- */

static void **pointers_of(CUgraphNode node) {
  const ptx_function *kernel = node->operation.function->ptx;
  if (!node->pointers) node->pointers = calloc(kernel->parameter_count + 1, sizeof(void *));
  if (!node->pointers) abort();
  for (uint32_t i = 0; i < kernel->parameter_count; i++)
    node->pointers[i] = node->operation.parameters + kernel->parameters[i].offset;
  return node->pointers;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params) {
  EMULATOR_LOCKED;
  if (!object_is(node, OBJECT_NODE) || !params || node->operation.kind != OPERATION_LAUNCH)
    return CUDA_ERROR_INVALID_VALUE;
  const operation *work = &node->operation;
  *params = (CUDA_KERNEL_NODE_PARAMS){.func = work->function,
                                      .gridDimX = work->grid[0],
                                      .gridDimY = work->grid[1],
                                      .gridDimZ = work->grid[2],
                                      .blockDimX = work->threads[0],
                                      .blockDimY = work->threads[1],
                                      .blockDimZ = work->threads[2],
                                      .sharedMemBytes = work->shared_bytes,
                                      .kernelParams = pointers_of(node),
                                      .ctx = node->graph->context};
  return CUDA_SUCCESS;
}

static operation *operation_of(CUgraphExec exec, CUgraphNode node) {
  for (uint32_t i = 0; i < exec->count; i++)
    if (exec->nodes[i] == node) return &exec->operations[i];
  return NULL;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params) {
  EMULATOR_LOCKED;
  if (!object_is(exec, OBJECT_EXEC) || !object_is(node, OBJECT_NODE) || !params) return CUDA_ERROR_INVALID_VALUE;
  operation *old = operation_of(exec, node), made;
  if (!old || old->kind != OPERATION_LAUNCH) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = launch_of(&made, params);
  if (result) return result;
  operation_release(old);
  *old = made;
  return CUDA_SUCCESS;
}

/* ---- replay ---- */

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  enum { KNOWN_FLAGS = 15 };
  EMULATOR_LOCKED;
  if (!exec || !object_is(graph, OBJECT_GRAPH) || graph->origin || flags & ~(unsigned long long)KNOWN_FLAGS)
    return CUDA_ERROR_INVALID_VALUE;
  CUgraphExec made = object_create(OBJECT_EXEC, sizeof *made);
  made->context = graph->context;
  made->count = graph->count;
  made->operations = calloc(graph->count + 1, sizeof *made->operations);
  made->nodes = calloc(graph->count + 1, sizeof(CUgraphNode));
  if (!made->operations || !made->nodes) abort();
  for (uint32_t i = 0; i < graph->count; i++) {
    made->nodes[i] = graph->nodes[i];
    made->operations[i] = operation_copy(&graph->nodes[i]->operation);
  }
  *exec = made;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  EMULATOR_LOCKED;
  if (!object_is(exec, OBJECT_EXEC)) return CUDA_ERROR_INVALID_VALUE;
  object_forget(&exec->object);
  for (uint32_t i = 0; i < exec->count; i++) operation_release(&exec->operations[i]);
  free(exec->operations);
  free(exec->nodes);
  free(exec);
  return CUDA_SUCCESS;
}

/* The parameters count that stand at the call. */
CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  CUstream stream;
  CUresult result = stream_of(handle, context, &stream);
  if (result) return result;
  if (!object_is(exec, OBJECT_EXEC)) return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < exec->count; i++)
    if (exec->operations[i].kind == OPERATION_LAUNCH && !object_is(exec->operations[i].function, OBJECT_FUNCTION))
      return CUDA_ERROR_INVALID_HANDLE;
  for (uint32_t i = 0; i < exec->count && !result; i++) {
    operation work = operation_copy(&exec->operations[i]);
    result = stream_submit(stream, &work);
  }
  return result;
}
