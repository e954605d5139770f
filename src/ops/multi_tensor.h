/* The loop bodies of multi-tensor operators (optim.c): a compiled graph that calls one has native code made for them.
 * Bodies are shared by the process and stay until it ends; native code that they once have serves eager calls, too. */
#ifndef WICK_OPS_MULTI_TENSOR_H
#define WICK_OPS_MULTI_TENSOR_H

#include "ops/ops.h"
#include "runtime/native.h"

typedef struct wk__multi_tensor_body {
  wk__nest *nest;
  wk__program *program;
  const char *name;         /* for people */
  wk__native_group *native; /* NULL until somebody has asked; compile/kernel.c's, under its lock */
} wk__multi_tensor_body;

/* The bodies that a call runs, one for each combination of dtypes, at most `most`: how many. None of other operators.
 * Tensors may be descriptions. */
int wk__multi_tensor_bodies(const wk_op *op, const wk_value *args, wk__multi_tensor_body **out, int most);

#endif
