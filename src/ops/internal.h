/* What the files of ops/ share among themselves. */
#ifndef WICK_OPS_INTERNAL_H
#define WICK_OPS_INTERNAL_H

#include "ops/ops.h"

/* `parameters` has room for `capacity`, at most WK__MAX_ARGS, and has to live as long as the schema. */
WK_MUST_USE wk_status wk__schema_parse(const char *text, wk__parameter *parameters, int capacity, wk__schema *schema);

/* ---- reading arguments (call->args are complete: defaults are filled in) ---- */
/* A number that has to be known, a dim or a count. What may stay symbolic is read as args[i].integer. */
static inline int64_t wk__arg_int(const wk__call *c, int i) { return wk_int_guard_value(c->args[i].integer); }
/* For error messages: a number, or the present value of an expression. */
static inline long long wk__shown(wk_int x) { return (long long)wk__symbolic_value(x).bits; }
static inline bool wk__arg_bool(const wk__call *c, int i) {
  return c->args[i].tag == WK_VALUE_BOOL && c->args[i].boolean;
}
/* What is computed from several roundings of a small float is computed in f32 and rounded once, as PyTorch has it. */
static inline wk_dtype wk__computed_in(wk_dtype dtype) {
  return dtype == WK_FLOAT16 || dtype == WK_BFLOAT16 ? WK_FLOAT32 : dtype;
}
wk_tensor *wk__in_dtype(wk_tensor *t,
                        wk_dtype dtype); /* itself or a conversion, in the caller's scope; NULL for NULL */
wk_tensor *wk__conj(wk_tensor *t);       /* of what is not complex itself; NULL for NULL */
static inline bool wk__arg_is_none(const wk__call *c, int i) { return c->args[i].tag == WK_VALUE_NONE; }
static inline wk_dtype wk__arg_dtype(const wk__call *c, int i, wk_dtype otherwise) {
  return c->args[i].tag == WK_VALUE_DTYPE ? (wk_dtype)c->args[i].dtype : otherwise;
}
static inline wk_device wk__arg_device(const wk__call *c, int i, wk_device otherwise) {
  return c->args[i].tag == WK_VALUE_DEVICE ? c->args[i].device : otherwise;
}

/* ---- values to make calls with ---- */
static inline wk_value wk__v_tensor(wk_tensor *t) {
  return t ? (wk_value){.tag = WK_VALUE_TENSOR, .tensor = t} : (wk_value){0};
}
static inline wk_value wk__v_int(int64_t i) { return (wk_value){.tag = WK_VALUE_INT, .integer = wk_int_of(i)}; }
static inline wk_value wk__v_size(wk_int i) { return (wk_value){.tag = WK_VALUE_INT, .integer = i}; }
static inline wk_value wk__v_double(double d) { return (wk_value){.tag = WK_VALUE_DOUBLE, .number = d}; }
static inline wk_value wk__v_bool(bool b) { return (wk_value){.tag = WK_VALUE_BOOL, .boolean = b}; }
static inline wk_value wk__v_dtype(wk_dtype d) { return (wk_value){.tag = WK_VALUE_DTYPE, .dtype = (uint8_t)d}; }
static inline wk_value wk__v_ints(const wk_int *list, int count) {
  return (wk_value){.tag = WK_VALUE_INTS, .count = (uint32_t)count, .integers = list};
}

/* Refuses to fill integers from a continuous distribution, in its words; `said`: the dtype's name there. */
WK_MUST_USE wk_status wk__check_continuous(const char *distribution, wk_dtype dtype, const char *said);
/* What dropout's kept elements of x are multiplied with. */
double wk__dropout_scale(const wk_op *op, double p, const wk_tensor *x);

/* What a loss does with its elements: PyTorch's numbers. */
enum { WK__REDUCE_NONE, WK__REDUCE_MEAN, WK__REDUCE_SUM };

/* ---- shape rules ---- */
/* Dims of a reduction as a bit mask: all when the argument is absent or, for `empty_is_all`, empty. */
WK_MUST_USE wk_status wk__dims_mask(const wk_value *dims, int ndim, bool empty_is_all, uint64_t *out_mask);
/* The output of reducing `t` over `mask`. */
void wk__spec_reduced(wk__spec *spec, const wk_tensor *t, uint64_t mask, bool keep, wk_dtype dtype);
/* Broadcast of all tensor arguments, PyTorch's output strides, dtype promotion. */
WK_MUST_USE wk_status wk__pointwise_spec(wk__call *c, wk_dtype *out_common);
/* Strides without gaps for spec's sizes, which are t's, in the order of t's dims in memory. */
void wk__dense_strides(wk__spec *spec, const wk_tensor *t);
wk__meta_fn wk__meta_like_first; /* the result has the first argument's sizes and dtype, contiguous */
WK_MUST_USE wk_status wk__check_words(const wk_op *op, int dtype); /* that op has a kernel for such a dtype */
/* What the arguments of op->one_device have to be, as PyTorch checks it in front of its kernels (devices.c). */
WK_MUST_USE wk_status wk__check_one_device(const wk_op *op, const wk_value *args);
/* The same for a composite that is a kernel in PyTorch: its parts would name other kernels and arguments. */
static inline wk_status wk__check_composite(const wk_op *op, const wk_value *args) {
  WK_TRY(wk__check_one_device(op, args));
  return op->kernel_name && args[0].tag == WK_VALUE_TENSOR ? wk__check_words(op, args[0].tensor->dtype) : WK_OK;
}
WK_MUST_USE wk_status wk__check_promotes(const wk__call *c); /* refuses to promote float8 and words */
wk_dtype wk__result_type(const wk__call *c);                 /* promotion over tensors, 0-dim tensors and numbers */

/* out= (out_forms.c). Where it decides what the result's dtype is, the argument that names a dtype gets it. */
WK_MUST_USE wk_status wk__take_dtype_of_out(const wk_op *op, wk_value *args, const wk_tensor *out);
/* And of what makes tensors the one that names a device. */
WK_MUST_USE wk_status wk__take_device_of_out(const wk_op *op, wk_value *args, const wk_tensor *out);
/* Whether a result may be written into an out of this dtype. */
/* The same where self is written: the words behind a bar. */
WK_MUST_USE wk_status wk__check_inplace_dtype(const wk_op *op, wk_dtype result, wk_dtype self);
WK_MUST_USE wk_status wk__check_out_dtype(const wk_op *op, wk_dtype result, wk_dtype out);

/* Devices (devices.c). The error of a loop over tensors of two. */
wk_status wk__loop_devices_differ(wk_device expected, wk_device found);
/* The same in the words of masked_fill and of attention. */
WK_MUST_USE wk_status wk__check_mask_device(const wk_tensor *self, const wk_tensor *mask);
WK_MUST_USE wk_status wk__check_attention_devices(const wk_tensor *q, const wk_tensor *k, const wk_tensor *value);
/* A destination has to be where the result is made; only copies go to another device. */
WK_MUST_USE wk_status wk__check_out_device(const wk_op *op, const wk__spec *spec, const wk_tensor *destination);
/* What computes has to find its arguments' memory: in rows that say one_device, that of these arguments. */
WK_MUST_USE wk_status wk__check_devices(const wk__call *c);

/* The error for a destination that the result would be larger than. */
wk_status wk__shape_mismatch(const wk_tensor *destination, const wk__spec *spec);
/* copy_ broadcasts src to self's sizes, and never self. */
WK_MUST_USE wk_status wk__check_copy_sizes(const wk_tensor *self, const wk_tensor *src);
/* Refuses to write to a tensor some of whose elements are one memory. */
WK_MUST_USE wk_status wk__check_overlap(const wk_tensor *destination);
/* PyTorch's error where another argument shares some of the elements that the operator writes, in another order. */
WK_MUST_USE wk_status wk__check_apart(const wk_op *op, const wk_value *args, const wk_tensor *destination);
/* Refuses what cannot be expanded to these sizes, in expand's words. */
WK_MUST_USE wk_status wk__check_expand(const wk_tensor *t, const wk_int *sizes, int ndim);
const char *wk__dtype_c_name(wk_dtype dtype); /* "float", "long int": what some of PyTorch's messages say */

/* Refuses a normalized_shape that is not that of t's last dims (nn.c); `first` stands before its first size. */
WK_MUST_USE wk_status wk__check_norm_shape(const wk_tensor *t, const wk_value *shape, const char *first);
/* The same for a weight or bias of that shape. */
WK_MUST_USE wk_status wk__check_norm_dtypes(const wk_tensor *x, const wk_tensor *weight, const wk_tensor *bias);
WK_MUST_USE wk_status wk__check_norm_parameter(const wk_tensor *p, const wk_value *shape, const char *name);

/* ---- computing ---- */
/* The thread's error is a kernel's IndexError: puts it into the operator's own words. */
wk_status wk__explain_bad_index(const wk_op *op);
/* The indices of x[...] with masks as their places, tensors of the caller's scope. out: (WK_MAX_DIMS) NULL: a whole
 * dim.
 */
WK_MUST_USE wk_status wk__index_places(const wk_tensor *self, const wk_value *indices, wk_tensor **out,
                                       uint32_t *out_count);
/* Finds or makes the plan of a call whose shape rule has run, and launches it into `outputs`. */
WK_MUST_USE wk_status wk__run_lowered(wk__call *call, wk_tensor *const *outputs);
/* Copies with conversion and broadcasting; both concrete. */
WK_MUST_USE wk_status wk__copy_into(wk_tensor *destination, const wk_tensor *source);

#endif
