/* cuDNN's backend API in software, as much as attention asks of it, over the emulated driver: cudnn.c has descriptors
 * and their attributes, cudnn_graph.c makes a graph of finished descriptors and says whether it is one that the real
 * library has kernels for, cudnn_run.c computes it. What is wrong is refused, as the real one does, and a line on
 * stderr says what. Numbers are those of cudnn_graph.h 9. Tests: tests/cuda/test_cudnn_attention.py.
 *   EMULATED_CUDNN_VERSION     what cudnnGetVersion says (91900)
 *   EMULATED_CUDNN_PLANS=0     no configuration can be planned, however many there are
 *   EMULATED_CUDNN_CAPTURED=0  a stream that is captured is refused */
#ifndef EMULATOR_CUDNN_H
#define EMULATOR_CUDNN_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

enum { BAD_PARAM = 2000, NOT_SUPPORTED = 3000, NO_MEMORY = 4003 };

/* Kinds of descriptors. */
enum {
  POINT = 0,
  CONFIG = 3,
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

enum { F32 = 0, F16 = 2, I32 = 4, BF16 = 9, BOOL = 11 };
enum { ADD = 0, MUL = 1, DIV = 6, SUB = 9, EXP = 13, LOG = 15, IDENTITY = 21, GE = 303, INDEX = 501, SELECT = 601 };
enum { SUM = 0, LARGEST = 3 };

/* ---- cudnn.c ---- */

enum { MOST_ATTRIBUTES = 8 };

typedef struct attribute {
  int number;
  int64_t count; /* 0: not set */
  void *values;  /* owned */
} attribute;

typedef struct descriptor {
  struct descriptor *next; /* that lives */
  int kind;
  bool finished;
  bool has_run; /* a plan */
  attribute attributes[MOST_ATTRIBUTES];
  struct graph *graph; /* owned, where it is finished: of the graph and of what is made from it */
  int number;          /* of a configuration */
} descriptor;

typedef struct handle {
  void *stream;
} handle;

/* The values, or NULL: not set. */
const void *values_of(const descriptor *d, int attribute, int64_t *count);
int64_t int_of(const descriptor *d, int attribute, int64_t otherwise);
int enum_of(const descriptor *d, int attribute);
bool bool_of(const descriptor *d, int attribute);
descriptor *descriptor_of(const descriptor *d, int attribute);
bool lives(const void *d);
int refuse(int status, const char *why); /* gives the status */

/* ---- cudnn_graph.c ---- */

enum { MOST_TENSORS = 64, MOST_OPERATIONS = 32, WORKSPACE = 1000 /* bytes, of any plan */ };

typedef struct tensor {
  int type;
  int64_t sizes[4], strides[4], id, alignment;
  bool is_virtual, by_value;
  bool is_written;
} tensor;

typedef struct operation {
  char letter;       /* what it does: see cudnn_graph.c */
  int dim;           /* of an index */
  int x, b, mask, y; /* tensors; -1: none */
} operation;

typedef struct graph {
  tensor tensors[MOST_TENSORS];
  operation operations[MOST_OPERATIONS];
  int tensor_count, operation_count;
  bool gradients, causal;
} graph;

/* Of what is told to them as descriptors that are to be finished: a status. */
int check_tensor(const descriptor *d);
int check_operation(const descriptor *d);
int graph_make(const descriptor *d, graph *out);
int graph_takes(graph *g); /* whether it is attention; says of which kind */

/* ---- cudnn_run.c ---- */

int graph_run(const descriptor *plan, void *stream, const descriptor *pack);

#pragma GCC visibility pop

#endif
