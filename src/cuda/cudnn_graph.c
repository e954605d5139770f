/* cuDNN's backend API: descriptors are made, told their attributes and finished, all by the same four functions, so
 * what is here is mostly which attributes there are. Their numbers are cuDNN's. Tests:
 * tests/cuda/test_cudnn_attention.py. */
#include "cuda/cudnn_graph.h"

#include <dlfcn.h>
#include <pthread.h>

#include "cuda/cudnn.h"

#define FUNCTIONS(X)                                                               \
  X(cudnnCreate, int, (void **))                                                   \
  X(cudnnSetStream, int, (void *, CUstream))                                       \
  X(cudnnBackendCreateDescriptor, int, (int, void **))                             \
  X(cudnnBackendDestroyDescriptor, int, (void *))                                  \
  X(cudnnBackendSetAttribute, int, (void *, int, int, int64_t, const void *))      \
  X(cudnnBackendGetAttribute, int, (void *, int, int, int64_t, int64_t *, void *)) \
  X(cudnnBackendFinalize, int, (void *))                                           \
  X(cudnnBackendExecute, int, (void *, void *, void *))

/* Before 9.5.1 gradients of attention took the result's strides for those of its gradient (PyTorch's pull request
 * 141147). */
enum { MOST_DEVICES = 64, BACKEND_VERSION = 90501 };

static struct {
  pthread_once_t once;
  bool there;
#define X(name, type, args) type(*name) args;
  FUNCTIONS(X)
#undef X
  void *handles[MOST_DEVICES];
} dnn = {.once = PTHREAD_ONCE_INIT};

/* Kinds of descriptors. */
enum {
  POINT = 0,
  ENGINE_CONFIG = 3,
  HEURISTICS = 4,
  PLAN = 5,
  POINT_OPERATION = 13,
  GRAPH = 15,
  PACK = 16,
  TENSOR = 17,
  PRODUCT = 18,
  PRODUCT_OPERATION = 19,
  FOLD = 21,
  FOLD_OPERATION = 22,
  RESHAPE_OPERATION = 31
};

/* Types of attributes. */
enum {
  OF_HANDLE = 0,
  OF_TYPE = 1,
  OF_BOOL = 2,
  OF_INT64 = 3,
  OF_POINTER = 6,
  OF_HEURISTIC = 8,
  OF_MODE = 14,
  OF_DESCRIPTOR = 15,
  OF_FOLD = 18
};

/* Attributes. */
enum {
  POINT_MODE = 0,
  POINT_TYPE = 1,
  POINT_DIM = 9,
  HEURISTICS_MODE = 200,
  HEURISTICS_GRAPH = 201,
  HEURISTICS_RESULTS = 202,
  PLAN_CONFIG = 401,
  PLAN_WORKSPACE = 402,
  POINT_OPERATION_KIND = 750,
  POINT_OPERATION_X = 751,
  POINT_OPERATION_B = 752,
  POINT_OPERATION_Y = 753,
  POINT_OPERATION_MASK = 758,
  GRAPH_HANDLE = 800,
  GRAPH_OPERATIONS = 801,
  TENSOR_ALIGNMENT = 900,
  TENSOR_TYPE = 901,
  TENSOR_SIZES = 902,
  TENSOR_STRIDES = 903,
  TENSOR_ID = 906,
  TENSOR_VIRTUAL = 907,
  TENSOR_BY_VALUE = 908,
  PACK_IDS = 1000,
  PACK_POINTERS = 1001,
  PACK_WORKSPACE = 1003,
  PRODUCT_TYPE = 1500,
  PRODUCT_OPERATION_A = 1520,
  PRODUCT_OPERATION_B = 1521,
  PRODUCT_OPERATION_C = 1522,
  PRODUCT_OPERATION_KIND = 1523,
  FOLD_MODE = 1600,
  FOLD_TYPE = 1601,
  FOLD_OPERATION_X = 1610,
  FOLD_OPERATION_Y = 1611,
  FOLD_OPERATION_KIND = 1612,
  RESHAPE_OPERATION_X = 2200,
  RESHAPE_OPERATION_Y = 2201
};
enum { ALIGNMENT = 16, BY_RULES = 3 /* the heuristics that PyTorch asks first */ };

/* ---- the library ---- */

static void find_functions(void) {
  void *library = wk__cudnn_version() >= BACKEND_VERSION ? wk__cudnn_library() : NULL;
  if (!library) return;
#define X(name, type, args) \
  if (!(*(void **)&dnn.name = dlsym(library, #name))) return;
  FUNCTIONS(X)
#undef X
  dnn.there = true;
}

void *wk__cudnn_graph_handle(int device) {
  (void)pthread_once(&dnn.once, find_functions);
  if (!dnn.there || device >= MOST_DEVICES) return NULL;
  if (!dnn.handles[device] && dnn.cudnnCreate(&dnn.handles[device])) dnn.handles[device] = NULL;
  return dnn.handles[device];
}

/* ---- descriptors ---- */

static void *create(wk__cudnn_graph *g, int kind) {
  void *d = NULL;
  if (!g->failed && dnn.cudnnBackendCreateDescriptor(kind, &d)) g->failed = true;
  return g->failed ? NULL : d;
}

static void set_all(wk__cudnn_graph *g, void *d, int attribute, int type, int64_t count, const void *values) {
  if (!g->failed && dnn.cudnnBackendSetAttribute(d, attribute, type, count, values)) g->failed = true;
}

static void set_int(wk__cudnn_graph *g, void *d, int attribute, int64_t value) {
  set_all(g, d, attribute, OF_INT64, 1, &value);
}

static void set_bool(wk__cudnn_graph *g, void *d, int attribute, bool value) {
  set_all(g, d, attribute, OF_BOOL, 1, &value);
}

static void set_enum(wk__cudnn_graph *g, void *d, int attribute, int type, int value) {
  set_all(g, d, attribute, type, 1, &value);
}

static void set_descriptor(wk__cudnn_graph *g, void *d, int attribute, void *value) {
  set_all(g, d, attribute, OF_DESCRIPTOR, 1, &value);
}

static void finish(wk__cudnn_graph *g, void *d) {
  if (!g->failed && dnn.cudnnBackendFinalize(d)) g->failed = true;
}

static void destroy(void **d) {
  if (*d) dnn.cudnnBackendDestroyDescriptor(*d);
  *d = NULL;
}

/* ---- tensors ---- */

static int add_tensor(wk__cudnn_graph *g, wk__cudnn_type type, const int64_t sizes[4], const int64_t strides[4],
                      int attribute) {
  int id = g->tensor_count;
  if (id == WK__CUDNN_TENSORS) g->failed = true;
  void *d = create(g, TENSOR);
  if (!d) return 0;
  g->tensors[g->tensor_count++] = d;
  memcpy(g->sizes[id], sizes, sizeof g->sizes[id]);
  set_enum(g, d, TENSOR_TYPE, OF_TYPE, type);
  set_all(g, d, TENSOR_SIZES, OF_INT64, 4, sizes);
  set_all(g, d, TENSOR_STRIDES, OF_INT64, 4, strides);
  set_int(g, d, TENSOR_ID, id);
  set_int(g, d, TENSOR_ALIGNMENT, ALIGNMENT);
  if (attribute) set_bool(g, d, attribute, true);
  finish(g, d);
  return id;
}

int wk__cudnn_in_memory(wk__cudnn_graph *g, wk__cudnn_type type, const int64_t sizes[4], const int64_t strides[4]) {
  return add_tensor(g, type, sizes, strides, 0);
}

int wk__cudnn_number(wk__cudnn_graph *g) {
  static const int64_t ones[4] = {1, 1, 1, 1};
  return add_tensor(g, WK__CUDNN_F32, ones, ones, TENSOR_BY_VALUE);
}

int wk__cudnn_virtual(wk__cudnn_graph *g, wk__cudnn_type type, const int64_t sizes[4]) {
  int64_t strides[4] = {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1};
  return add_tensor(g, type, sizes, strides, TENSOR_VIRTUAL);
}

/* ---- operations ---- */

static void set_tensor(wk__cudnn_graph *g, void *operation, int attribute, int tensor) {
  if (tensor != WK__CUDNN_NONE) set_descriptor(g, operation, attribute, g->tensors[tensor]);
}

/* An operation that does what `kind`, which is finished here, says; NULL: of a kind that says nothing. */
static void *add_operation(wk__cudnn_graph *g, int what, int attribute, void *kind) {
  if (g->operation_count == WK__CUDNN_OPERATIONS) g->failed = true;
  if (kind) finish(g, kind);
  void *d = create(g, what);
  if (!d) {
    destroy(&kind);
    return NULL;
  }
  g->kinds[g->operation_count] = kind;
  g->operations[g->operation_count++] = d;
  if (kind) set_descriptor(g, d, attribute, kind);
  return d;
}

static int add_point(wk__cudnn_graph *g, wk__cudnn_point mode, int dim, int mask, int x, int b, int y) {
  void *kind = create(g, POINT);
  set_enum(g, kind, POINT_MODE, OF_MODE, mode);
  set_enum(g, kind, POINT_TYPE, OF_TYPE, mode == WK__CUDNN_GE ? WK__CUDNN_BOOL : WK__CUDNN_F32);
  if (mode == WK__CUDNN_INDEX) set_int(g, kind, POINT_DIM, dim);
  void *d = add_operation(g, POINT_OPERATION, POINT_OPERATION_KIND, kind);
  set_tensor(g, d, POINT_OPERATION_X, x), set_tensor(g, d, POINT_OPERATION_B, b);
  set_tensor(g, d, POINT_OPERATION_MASK, mask), set_tensor(g, d, POINT_OPERATION_Y, y);
  finish(g, d);
  return y;
}

int wk__cudnn_point_of(wk__cudnn_graph *g, wk__cudnn_point mode, int x, int b, int y) {
  return add_point(g, mode, 0, WK__CUDNN_NONE, x, b, y);
}

int wk__cudnn_index_of(wk__cudnn_graph *g, int x, int dim, int y) {
  return add_point(g, WK__CUDNN_INDEX, dim, WK__CUDNN_NONE, x, WK__CUDNN_NONE, y);
}

int wk__cudnn_select_of(wk__cudnn_graph *g, int mask, int x, int b, int y) {
  return add_point(g, WK__CUDNN_SELECT, 0, mask, x, b, y);
}

int wk__cudnn_fold_of(wk__cudnn_graph *g, wk__cudnn_fold how, int x, int y) {
  void *kind = create(g, FOLD);
  set_enum(g, kind, FOLD_TYPE, OF_TYPE, WK__CUDNN_F32);
  set_enum(g, kind, FOLD_MODE, OF_FOLD, how);
  void *d = add_operation(g, FOLD_OPERATION, FOLD_OPERATION_KIND, kind);
  set_tensor(g, d, FOLD_OPERATION_X, x), set_tensor(g, d, FOLD_OPERATION_Y, y);
  finish(g, d);
  return y;
}

int wk__cudnn_product_of(wk__cudnn_graph *g, int a, int b, int y) {
  void *kind = create(g, PRODUCT);
  set_enum(g, kind, PRODUCT_TYPE, OF_TYPE, WK__CUDNN_F32);
  void *d = add_operation(g, PRODUCT_OPERATION, PRODUCT_OPERATION_KIND, kind);
  set_tensor(g, d, PRODUCT_OPERATION_A, a), set_tensor(g, d, PRODUCT_OPERATION_B, b);
  set_tensor(g, d, PRODUCT_OPERATION_C, y);
  finish(g, d);
  return y;
}

int wk__cudnn_transpose_of(wk__cudnn_graph *g, int x, wk__cudnn_type type) {
  const int64_t *of = g->sizes[x];
  int64_t sizes[4] = {of[0], of[1], of[3], of[2]}, strides[4] = {of[1] * of[2] * of[3], of[2] * of[3], 1, of[3]};
  int y = add_tensor(g, type, sizes, strides, TENSOR_VIRTUAL);
  void *d = add_operation(g, RESHAPE_OPERATION, 0, NULL);
  set_tensor(g, d, RESHAPE_OPERATION_X, x), set_tensor(g, d, RESHAPE_OPERATION_Y, y);
  finish(g, d);
  return y;
}

/* ---- the plan ---- */

/* Of the ways to compute the graph the one that the library thinks best, of those that it can plan. */
static void plan_by(wk__cudnn_graph *g, void *config) {
  g->plan = create(g, PLAN);
  set_descriptor(g, g->plan, PLAN_CONFIG, config);
  finish(g, g->plan);
  int64_t count = 0;
  if (!g->failed && dnn.cudnnBackendGetAttribute(g->plan, PLAN_WORKSPACE, OF_INT64, 1, &count, &g->workspace))
    g->failed = true;
  if (g->failed) destroy(&g->plan);
}

static void plan_best(wk__cudnn_graph *g, void *heuristics) {
  enum { MOST = 4 };
  void *configs[MOST] = {0};
  int64_t count = 0;
  for (int i = 0; i < MOST; i++) configs[i] = create(g, ENGINE_CONFIG);
  if (!g->failed && dnn.cudnnBackendGetAttribute(heuristics, HEURISTICS_RESULTS, OF_DESCRIPTOR, MOST, &count, configs))
    g->failed = true;
  bool asked = !g->failed;
  for (int64_t i = 0; asked && !g->plan && i < MOST && i < count; i++) { /* `count`: of those that there are */
    g->failed = false;
    plan_by(g, configs[i]);
  }
  if (!g->plan) g->failed = true;
  for (int i = 0; i < MOST; i++) destroy(&configs[i]);
}

static void let_parts_go(wk__cudnn_graph *g) {
  for (int i = 0; i < g->operation_count; i++) destroy(&g->operations[i]), destroy(&g->kinds[i]);
  for (int i = 0; i < g->tensor_count; i++) destroy(&g->tensors[i]);
  g->operation_count = 0;
}

bool wk__cudnn_graph_plan(wk__cudnn_graph *g) {
  void *graph = create(g, GRAPH), *heuristics = NULL;
  set_all(g, graph, GRAPH_OPERATIONS, OF_DESCRIPTOR, g->operation_count, g->operations);
  set_all(g, graph, GRAPH_HANDLE, OF_HANDLE, 1, &g->handle);
  finish(g, graph);
  heuristics = create(g, HEURISTICS);
  set_descriptor(g, heuristics, HEURISTICS_GRAPH, graph);
  set_enum(g, heuristics, HEURISTICS_MODE, OF_HEURISTIC, BY_RULES);
  finish(g, heuristics);
  if (!g->failed) plan_best(g, heuristics);
  destroy(&heuristics), destroy(&graph);
  let_parts_go(g);
  return !g->failed;
}

bool wk__cudnn_graph_run(const wk__cudnn_graph *planned, CUstream stream, const int64_t *tensors, void *const *pointers,
                         int count, void *workspace) {
  wk__cudnn_graph g = {.handle = planned->handle}; /* whether what is made here fails */
  void *pack = create(&g, PACK);
  set_all(&g, pack, PACK_POINTERS, OF_POINTER, count, pointers);
  set_all(&g, pack, PACK_IDS, OF_INT64, count, tensors);
  set_all(&g, pack, PACK_WORKSPACE, OF_POINTER, 1, &workspace);
  finish(&g, pack);
  bool done =
      !g.failed && !dnn.cudnnSetStream(g.handle, stream) && !dnn.cudnnBackendExecute(g.handle, planned->plan, pack);
  destroy(&pack);
  return done;
}

void wk__cudnn_graph_release(wk__cudnn_graph *g) {
  let_parts_go(g);
  destroy(&g->plan);
}
