/* Operator calls: one calling convention for Python, C, graphs, the tape and serialization.
 * The typed functions wk_add_Tensor(...) and so on are generated from the operator table into wick/operators.h. */
#ifndef WICK_OPS_H
#define WICK_OPS_H

#include "wick/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum wk_value_tag {
  WK_VALUE_NONE = 0,
  WK_VALUE_TENSOR,
  WK_VALUE_INT,
  WK_VALUE_DOUBLE,
  WK_VALUE_BOOL,
  WK_VALUE_DTYPE,
  WK_VALUE_DEVICE,
  WK_VALUE_STRING,
  WK_VALUE_GENERATOR,
  WK_VALUE_INTS,    /* wk_int[count] */
  WK_VALUE_DOUBLES, /* double[count] */
  WK_VALUE_TENSORS, /* wk_tensor *[count]; an entry may be NULL where the schema says Tensor?[] */
  WK_VALUE_WIDE,    /* an integer that is a number (Scalar) and lies outside of wk_int: below -2^62, or, with count 1,
                       2^63 and more, as uint64. No size or dim, and no graph holds one. */
  WK_VALUE_BOOLS,   /* bool[count] */
  WK_VALUE_INPUT, /* inside of wick: a number that a captured graph is given in each run, as its input `count`; `number`
                     is what it was when it was captured */
  WK_VALUE_SCALARS, /* wk_value[count], each a number (Scalar[]) */
  WK_VALUE_COMPLEX, /* a complex number (Scalar): numbers[0] + numbers[1] i; only rows that say so take one */
  WK_VALUE_KIND_COUNT,
} wk_value_tag;

/* A tagged argument or result. As an argument everything it points to is borrowed; as a result the tensor (or the array
 * and its tensors) is owned by the receiver: wk_value_release. */
typedef struct wk_value {
  uint8_t tag;    /* wk_value_tag */
  uint32_t count; /* of a list */
  union {
    wk_tensor *tensor;
    wk_int integer;
    int64_t wide; /* the bits of a WK_VALUE_WIDE */
    double number;
    bool boolean;
    uint8_t dtype;
    wk_device device;
    const char *string;
    void *generator;
    const wk_int *integers;
    const double *numbers;
    const bool *booleans;
    const struct wk_value *scalars;
    wk_tensor **tensors;
  };
} wk_value;

WK_API void wk_value_release(wk_value *value);

typedef struct wk_op wk_op; /* a row of the operator table; lives as long as the library */

/* By qualified name, "add.Tensor" or "relu"; NULL when there is none (no error set). */
WK_API const wk_op *wk_op_find(const char *name);
WK_API const char *wk_op_name(const wk_op *op);
WK_API const char *wk_op_schema(const wk_op *op);
WK_API int wk_op_count(void);
WK_API const wk_op *wk_op_at(int index);

/* Calls an operator. `args`: one value for each schema argument (WK_VALUE_NONE leaves a default). `destinations`: NULL,
 * or one tensor for each result that is to be written into it (the in-place and out= forms; an entry may be NULL).
 * `results`: one slot for each result, written only on success. */
WK_API WK_MUST_USE wk_status wk_call(const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                                     wk_value *results);

/* Tensors that C code makes through the typed functions inside a scope belong to it, and are released when it ends, so
 * that calls can be nested. wk_scope_keep gives the caller a reference that outlives the scope. Scopes nest, per
 * thread. */
typedef struct wk_scope {
  struct wk_scope *outer;
  wk_tensor **tensors;
  int64_t count, capacity;
} wk_scope;
WK_API void wk_scope_begin(wk_scope *scope);
WK_API void wk_scope_end(wk_scope *scope);
WK_API wk_tensor *wk_scope_keep(wk_tensor *tensor); /* tensor may be NULL (a failed call): gives NULL */

#ifdef __cplusplus
}
#endif
#endif
