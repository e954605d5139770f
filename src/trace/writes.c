/* Writes while tracing: the whole gets a new value, every view is derived again when it is next read.
 * In: a tensor and the node that it is to be. Out: the cell's node is the whole with that part replaced. The inverse of
 * each view operator stands here. Tests: tests/c/test_trace.c, tests/python/capture/test_corpus.py. */
#include "trace/internal.h"

static wk__graph_arg of_node(wk__graph_node *n) { return (wk__graph_arg){.tag = WK_VALUE_TENSOR, .node = n}; }
static wk__graph_arg of_ints(const wk_int *list, int count) {
  return (wk__graph_arg){.tag = WK_VALUE_INTS, .count = (uint32_t)count, .integers = list};
}
static wk__graph_arg of_text(const char *text) { return (wk__graph_arg){.tag = WK_VALUE_STRING, .string = text}; }
static const wk__graph_arg none, no = {.tag = WK_VALUE_BOOL};

#define CALL(op, ...) wk__trace_record_call(t, WK__OP(op), (wk__graph_arg[]){__VA_ARGS__})

/* ---- the inverse of a view: its parent with the view's place taken by `value`, which has the view's sizes ---- */

static wk__graph_node *reshaped(wk__tracer *t, wk__graph_node *value, const wk_tensor *like) {
  wk_int strides[WK_MAX_DIMS];
  if (!wk__view_strides(value->value, like->sizes, like->ndim, strides))
    value = CALL(clone, of_node(value), of_text("contiguous_format"));
  return value ? CALL(view, of_node(value), of_ints(like->sizes, like->ndim)) : NULL;
}

static wk__graph_node *permuted_back(wk__tracer *t, wk__graph_node *value, const wk__graph_arg *dims) {
  wk_int inverse[WK_MAX_DIMS];
  for (uint32_t d = 0; d < dims->count; d++) {
    int64_t from = dims->integers[d].bits;
    inverse[from < 0 ? from + (int64_t)dims->count : from] = wk_int_of(d);
  }
  return CALL(permute, of_node(value), of_ints(inverse, (int)dims->count));
}

static bool has_inverse(const wk_op *op) {
  switch (op->number) {
    case WK__OP_alias:
    case WK__OP_detach:
    case WK__OP_view:
    case WK__OP__unsafe_view:
    case WK__OP_unsqueeze:
    case WK__OP_squeeze:
    case WK__OP_squeeze_dim:
    case WK__OP_squeeze_dims:
    case WK__OP_permute:
    case WK__OP_transpose_int:
    case WK__OP_t:
    case WK__OP_select_int:
    case WK__OP_slice_Tensor:
    case WK__OP_diagonal:
    case WK__OP_as_strided:
    case WK__OP_view_as_real:
    case WK__OP_view_as_complex:
      return true;
    default:
      return false;
  }
}

static wk__graph_node *put_back(wk__trace_record *r, wk__graph_node *parent, wk__graph_node *value) {
  wk__tracer *t = r->tracer;
  const wk__graph_arg *a = r->args;
  switch (r->op->number) {
    case WK__OP_alias:
    case WK__OP_detach:
      return value;
    case WK__OP_view:
    case WK__OP__unsafe_view:
    case WK__OP_unsqueeze:
    case WK__OP_squeeze:
    case WK__OP_squeeze_dim:
    case WK__OP_squeeze_dims:
      return reshaped(t, value, parent->value);
    case WK__OP_permute:
      return permuted_back(t, value, &a[1]);
    case WK__OP_transpose_int:
      return CALL(transpose_int, of_node(value), a[1], a[2]);
    case WK__OP_t:
      return CALL(t, of_node(value));
    case WK__OP_select_int:
      return CALL(select_scatter, of_node(parent), of_node(value), a[1], a[2]);
    case WK__OP_slice_Tensor:
      return CALL(slice_scatter, of_node(parent), of_node(value), a[1], a[2], a[3], a[4]);
    case WK__OP_diagonal:
      return CALL(diagonal_scatter, of_node(parent), of_node(value), a[1], a[2], a[3]);
    case WK__OP_as_strided:
      return CALL(as_strided_scatter, of_node(parent), of_node(value), a[1], a[2], a[3]);
    case WK__OP_view_as_real:
      value = CALL(clone, of_node(value), of_text("contiguous_format"));
      return value ? CALL(view_as_complex, of_node(value)) : NULL;
    case WK__OP_view_as_complex:
      return CALL(view_as_real, of_node(value));
    default:
      (void)wk_fail(WK_INTERNAL_ERROR, "%s has no inverse", r->op->name);
      return NULL;
  }
}

/* ---- checks ---- */

/* as_strided counts from the start of the storage; an input's new value does not begin there. */
static bool counts_from_storage(const wk__trace_record *r) {
  for (; r->parent; r = r->parent)
    if (r->op == WK__OP(as_strided)) return r->cell->whole->offset.bits != 0;
  return false;
}

/* Some of its elements share memory: a functional write would set only one of them. */
static bool looks_at_overlap(const wk__trace_record *r, const wk_tensor *tensor) {
  if (wk__has_internal_overlap(r->cell->whole) || wk__has_internal_overlap(tensor)) return true;
  for (r = r->parent; r; r = r->parent)
    if (wk__has_internal_overlap(r->shape)) return true;
  return false;
}

/* Asked before anything is recorded: a random operator that is recorded and then computed would draw twice. */
static wk_status check_inverses(const wk__trace_record *r) {
  for (; r->parent; r = r->parent)
    if (!has_inverse(r->op)) return wk_fail(WK_UNSUPPORTED, "a write through %s", r->op->name);
  return WK_OK;
}

wk_status wk__trace_check_writable(wk__tracer *t, wk_tensor *tensor) {
  wk__trace_record *r = wk__trace_record_of(t, tensor);
  if (!r) return wk_error_category();
  if (WK_UNLIKELY(t->tries > r->cell->tried)) return wk__trace_try_failed(t, "a write");
  /* x.data: a write through it does not count as a write to x; a graph's would. */
  if (r->parent && tensor->own_version) return wk_fail(WK_UNSUPPORTED, "a write through x.data");
  if (r->took_data) return wk_fail(WK_UNSUPPORTED, "a write to a tensor whose data were set");
  if (r->cell->shared) return wk_fail(WK_UNSUPPORTED, "a write to memory that several inputs share");
  if (counts_from_storage(r)) return wk_fail(WK_UNSUPPORTED, "a write through as_strided of an input with an offset");
  WK_TRY(check_inverses(r));
  if (looks_at_overlap(r, tensor)) return wk_fail(WK_UNSUPPORTED, "a write into memory that overlaps itself");
  return WK_OK;
}

static bool equal_sizes(const wk_tensor *a, const wk_tensor *b) {
  if (a->ndim != b->ndim) return false;
  for (int d = 0; d < a->ndim; d++)
    if (!wk_int_eq(a->sizes[d], b->sizes[d])) return false;
  return true;
}
static bool equal_strides(const wk_tensor *a, const wk_tensor *b) {
  for (int d = 0; d < a->ndim; d++)
    if (!wk_int_same(a->strides[d], b->strides[d]) && !wk_int_same(a->sizes[d], wk_int_of(1))) return false;
  return true;
}

static wk_status check_result(const wk_tensor *tensor, const wk_tensor *value) {
  bool fits = equal_sizes(tensor, value), casts = wk__can_cast((wk_dtype)value->dtype, (wk_dtype)tensor->dtype);
  return fits && casts ? WK_OK : wk_fail(WK_UNSUPPORTED, "a result that does not fit the tensor that is written");
}

/* ---- the write ---- */

/* A value of the sizes of `old`, with its strides. */
static wk__graph_node *laid_out(wk__tracer *t, wk__graph_node *node, wk__graph_node *old, const wk_tensor *shape) {
  return CALL(as_strided_scatter, of_node(old), of_node(node), of_ints(shape->sizes, shape->ndim),
              of_ints(shape->strides, shape->ndim), none);
}

/* `node` with the sizes, dtype and strides of the tensor that it becomes; in this order, so that a gradient is
 * converted before it is summed, as copy_ has it. */
static wk__graph_node *fitted(wk__trace_record *r, wk__graph_node *node) {
  wk__tracer *t = r->tracer;
  const wk_tensor *shape = r->shape;
  if (!equal_sizes(node->value, shape)) node = CALL(expand, of_node(node), of_ints(shape->sizes, shape->ndim), no);
  if (node && node->value->dtype != shape->dtype) {
    wk__graph_arg dtype = {.tag = WK_VALUE_DTYPE, .dtype = shape->dtype};
    node = CALL(_to_copy, of_node(node), dtype, none, none);
  }
  if (!node || equal_strides(node->value, shape)) return node;
  wk__graph_node *old = wk__trace_fresh(r); /* for its layout alone */
  return old ? laid_out(t, node, old, shape) : NULL;
}

/* A value may be several tensors' at once (x.copy_(y)): later writes make new nodes, so nothing is shared. */
static wk_status replace(wk__trace_record *r, wk__graph_node *node) {
  wk__graph_node *value = node;
  for (wk__trace_record *v = r; v->parent; v = v->parent) {
    wk__graph_node *parent = wk__trace_fresh(v->parent);
    if (!parent || !(value = put_back(v, parent, value))) return wk_error_category();
  }
  const wk_tensor *whole = r->cell->whole;
  if (!equal_strides(value->value, whole) && !(value = laid_out(r->tracer, value, r->cell->node, whole)))
    return wk_error_category(); /* of memory without elements, views have strides of their own */
  r->cell->node = value;
  r->cell->version++;
  if (r->parent) return WK_OK; /* derived again when it is next read: it stays a view of the whole */
  r->node = node;
  r->version = r->cell->version;
  return WK_OK;
}

bool wk__trace_is_detached(const wk__trace_record *r) {
  for (; r->parent; r = r->parent)
    if (r->op == WK__OP(detach)) return true;
  return false;
}

/* A tensor that requires grad keeps its history when it is written like this. The value that it gets in the graph has
 * none. */
static bool writes_behind_tape(const wk__trace_record *r) {
  bool detached = !wk__thread.mode.grad_enabled || wk__trace_is_detached(r), requires_grad = false;
  for (const wk__trace_record *v = r->cell->records; v && detached; v = v->in_cell)
    requires_grad |= v->tensor && v->tensor->keys & WK__KEY_AUTOGRAD;
  return detached && requires_grad;
}

wk_status wk__trace_write(wk__tracer *t, wk_tensor *tensor, wk__graph_node *node, const wk_tensor *value,
                          bool in_place) {
  WK_TRY(wk__trace_check_writable(t, tensor));
  if (in_place) WK_TRY(check_result(tensor, value));
  wk__trace_record *r = wk__trace_record_of(t, tensor);
  if (!r || !(node = fitted(r, node))) return wk_error_category();
  WK_TRY(replace(r, node));
  r->cell->behind_tape |= writes_behind_tape(r);
  if (r->cell->input >= 0) WK_TRY(wk__graph_mutate(t->graph, r->cell->input, r->cell->node));
  r->cell->counted += !tensor->own_version;
  wk__version_bump(tensor);
  return WK_OK;
}
