/* Graphs of operations that cuDNN computes as one, by its backend API (from its version 9.5.1 on). A graph is put
 * together from tensors, which are numbers, by one function for each kind of operation; then cuDNN plans it, which
 * takes it a tenth of a second, and from then on it is run on memory. Tensors have four dims. What fails, fails the
 * graph: only wk__cudnn_graph_plan says so. cudnn_attention.c is what there is. */
#ifndef WICK_CUDA_CUDNN_GRAPH_H
#define WICK_CUDA_CUDNN_GRAPH_H

#include "cuda/internal.h"

/* Values of cuDNN. */
typedef enum wk__cudnn_type {
  WK__CUDNN_F32 = 0,
  WK__CUDNN_F16 = 2,
  WK__CUDNN_I32 = 4,
  WK__CUDNN_BF16 = 9,
  WK__CUDNN_BOOL = 11
} wk__cudnn_type;
typedef enum wk__cudnn_point {
  WK__CUDNN_ADD = 0,
  WK__CUDNN_MUL = 1,
  WK__CUDNN_DIV = 6,
  WK__CUDNN_SUB = 9,
  WK__CUDNN_EXP = 13,
  WK__CUDNN_LOG = 15,
  WK__CUDNN_IDENTITY = 21,
  WK__CUDNN_GE = 303,
  WK__CUDNN_INDEX = 501, /* where an element lies along a dim */
  WK__CUDNN_SELECT = 601 /* x where a mask is true, else b */
} wk__cudnn_point;
typedef enum wk__cudnn_fold { WK__CUDNN_SUM = 0, WK__CUDNN_LARGEST = 3 } wk__cudnn_fold;

enum { WK__CUDNN_TENSORS = 48, WK__CUDNN_OPERATIONS = 24, WK__CUDNN_NONE = -1 };

typedef struct wk__cudnn_graph {
  void *handle; /* borrowed */
  void *tensors[WK__CUDNN_TENSORS];
  int64_t sizes[WK__CUDNN_TENSORS][4];
  void *operations[WK__CUDNN_OPERATIONS], *kinds[WK__CUDNN_OPERATIONS]; /* what an operation does */
  int tensor_count, operation_count;
  bool failed;
  void *plan;
  int64_t workspace; /* bytes, when it is planned */
} wk__cudnn_graph;

/* A device's handle, made now where it is new: NULL where cuDNN or its backend API is not there. Handles are not shared
 * with convolutions; the caller keeps threads from each other. */
void *wk__cudnn_graph_handle(int device);

/* Tensors: in memory, by their strides in elements; a float of the host; and results that are nowhere in memory. */
int wk__cudnn_in_memory(wk__cudnn_graph *g, wk__cudnn_type type, const int64_t sizes[4], const int64_t strides[4]);
int wk__cudnn_number(wk__cudnn_graph *g);
int wk__cudnn_virtual(wk__cudnn_graph *g, wk__cudnn_type type, const int64_t sizes[4]);

/* Operations, which give y. Sizes of 1 are those of the other operand. */
int wk__cudnn_point_of(wk__cudnn_graph *g, wk__cudnn_point mode, int x, int b, int y);
int wk__cudnn_index_of(wk__cudnn_graph *g, int x, int dim, int y);
int wk__cudnn_select_of(wk__cudnn_graph *g, int mask, int x, int b, int y);
/* Along the dims that y has not. */
int wk__cudnn_fold_of(wk__cudnn_graph *g, wk__cudnn_fold how, int x, int y);
int wk__cudnn_product_of(wk__cudnn_graph *g, int a, int b, int y); /* sums in f32 */
/* The last two dims of x exchanged, in y's type: no memory is moved. */
int wk__cudnn_transpose_of(wk__cudnn_graph *g, int x, wk__cudnn_type type);

/* Plans it; what it was put together of is let go. */
bool wk__cudnn_graph_plan(wk__cudnn_graph *g);
/* pointers[i]: of tensor tensors[i], to memory of the device, or to the float. */
bool wk__cudnn_graph_run(const wk__cudnn_graph *g, CUstream stream, const int64_t *tensors, void *const *pointers,
                         int count, void *workspace);
void wk__cudnn_graph_release(wk__cudnn_graph *g);

#endif
