/* Tensors may have more dims (WK_MAX_DIMS) than a loop nest (WK__NEST_MAX_DIMS). Here calls on such tensors become
 * launches of nests that know nothing of it.
 *
 * A pointwise nest is free of geometry: its loops are merged where all tensors cross them evenly, and the outermost of
 * those that are left over are run here, one launch for each of their positions.
 *
 * Of any other nest the row says which dims its body tells from the others (field `dims`). Neighbours that it does not
 * tell apart become one dim: as a view where memory allows it, else in a contiguous copy; so do reduced dims that are
 * neighbours, since a row's elements keep their order. Then the same call runs on these tensors.
 *
 * In: a call with outputs, in memory. Out: the outputs, filled, bit for bit what more loops would give.
 * Tests: tests/python/test_many_dims.py, tests/c/test_many_dims.c. */
#include "ops/many_dims.h"

#include <stdio.h>
#include <stdlib.h>

#include "ops/internal.h"

/* ==================================================== pointwise ================================================== */

static void swap_loops(wk__loops *l, int a, int b) {
  int64_t size = l->sizes[a];
  l->sizes[a] = l->sizes[b];
  l->sizes[b] = size;
  for (int k = 0; k < l->count; k++) {
    int64_t stride = l->strides[k][a];
    l->strides[k][a] = l->strides[k][b];
    l->strides[k][b] = stride;
  }
}

static void move_loop(wk__loops *l, int to, int from) {
  l->sizes[to] = l->sizes[from];
  for (int k = 0; k < l->count; k++) l->strides[k][to] = l->strides[k][from];
}

static bool is_even(const wk__loops *l, int outer, int inner) {
  for (int k = 0; k < l->count; k++)
    if (l->strides[k][outer] != l->strides[k][inner] * l->sizes[inner]) return false;
  return true;
}

/* In the order of one buffer's strides, largest first; those that all buffers cross evenly become one. */
static void merge(wk__loops *l, int by_buffer) {
  const int64_t *by = l->strides[by_buffer];
  int kept = 0;
  for (int d = 0; d < l->ndim; d++)
    if (l->sizes[d] != 1) move_loop(l, kept++, d);
  for (int k = 1; k < kept; k++)
    for (int d = k; d > 0 && llabs(by[d - 1]) < llabs(by[d]); d--) swap_loops(l, d - 1, d);
  l->ndim = 0;
  for (int d = 0; d < kept; d++) {
    bool merges = l->ndim && is_even(l, l->ndim - 1, d);
    int64_t size = merges ? l->sizes[l->ndim - 1] : 1;
    if (!merges) l->ndim++;
    move_loop(l, l->ndim - 1, d);
    l->sizes[l->ndim - 1] *= size;
  }
}

/* The next position of the outer loops; false: there is none. */
static bool step(const wk__loops *l, int outer, int64_t *at, const uint8_t *items, wk__launch *launch) {
  for (int d = outer; d-- > 0;) {
    bool wraps = ++at[d] == l->sizes[d];
    int64_t steps = wraps ? 1 - l->sizes[d] : 1;
    for (int k = 0; k < l->count; k++)
      launch->buffers[k].data = (char *)launch->buffers[k].data + steps * l->strides[k][d] * items[k];
    if (!wraps) return true;
    at[d] = 0;
  }
  return false;
}

wk_status wk__launch_many(const wk__many_code *code, wk__stream *stream, wk__launch *launch, wk__loops *l,
                          int by_buffer) {
  int64_t at[WK_MAX_DIMS] = {0};
  uint8_t items[WK__NEST_MAX_BUFFERS];
  merge(l, by_buffer);
  int outer = l->ndim > WK__NEST_MAX_DIMS ? l->ndim - WK__NEST_MAX_DIMS : 0;
  launch->ndim = l->ndim - outer;
  launch->sizes = l->sizes + outer;
  for (int k = 0; k < l->count; k++) {
    items[k] = wk__dtypes[code->nest->buffers[k].dtype].size;
    launch->buffers[k].sizes = NULL;
    launch->buffers[k].strides = l->strides[k] + outer;
  }
  do WK_TRY(code->device->launch(stream, code->code, launch, 1));
  while (step(l, outer, at, items, launch));
  return WK_OK;
}

/* ============================================== which dims are told apart ======================================== */

/* The dims of the call's tensors in runs that the body takes as one dim each. */
typedef struct folding {
  int rank;                     /* of the tensors that have all dims */
  uint64_t told;                /* dims that the body tells from the others */
  int order[WK_MAX_DIMS];       /* of the dims, run after run */
  int count, ends[WK_MAX_DIMS]; /* runs, and where each ends in `order` */
  wk_int shared[WK_MAX_DIMS];   /* (rank) how much of each other dim the call goes over: its least size */
} folding;

bool wk__has_many_dims(const wk__call *c, wk_tensor *const *outputs) {
  for (int r = 0; r < c->op->schema.result_count; r++)
    if (outputs[r]->ndim > WK__NEST_MAX_DIMS) return true;
  for (int i = 0; i < c->op->schema.parameter_count; i++)
    if (c->args[i].tag == WK_VALUE_TENSOR && c->args[i].tensor->ndim > WK__NEST_MAX_DIMS) return true;
  return false;
}

static wk_status refuse(const wk__call *c) {
  return wk_fail(WK_NOT_IMPLEMENTED, "%s() is not implemented for tensors of more than %d dims", c->op->base_name,
                 WK__NEST_MAX_DIMS);
}

/* All dims where the argument names none; an empty list may also mean none, which the result's sizes tell. */
static wk_status named_dims(const wk__call *c, wk_tensor *const *outputs, int rank, uint64_t *out) {
  const wk_value *dims = &c->args[c->op->dims_arg];
  bool none = dims->tag == WK_VALUE_INTS && dims->count == 0 && wk__same_sizes(c->args[0].tensor, outputs[0]);
  *out = 0;
  return none ? WK_OK : wk__dims_mask(dims, rank, true, out);
}

static wk_status find_told(const wk__call *c, wk_tensor *const *outputs, folding *f) {
  const wk_value *arg = &c->args[c->op->dims_arg];
  int last = 2;
  f->told = 0;
  switch ((wk__dims_rule)c->op->dims_rule) {
    case WK__DIMS_ALIKE:
      f->told = wk__all_dims(f->rank);
      return WK_OK;
    case WK__DIMS_ALONG:
      return named_dims(c, outputs, f->rank, &f->told);
    case WK__DIMS_LAST:
      last = arg->tag == WK_VALUE_INTS ? (int)arg->count : (int)arg->integer.bits;
      break;
    case WK__DIMS_PAIRS:
      for (uint32_t k = 0; k < arg->count; k++)
        if (arg->integers[k].bits) f->told |= wk__dim_bit(f->rank - 1 - (int)k / 2);
      return WK_OK;
    case WK__DIMS_ROWS:
      last = 1;
      break;
    case WK__DIMS_LAST_TWO:
      break;
    default:
      return refuse(c);
  }
  f->told = wk__all_dims(f->rank) & ~wk__all_dims(f->rank - last);
  return WK_OK;
}

static bool is_told(const folding *f, int d) { return f->told >> d & 1; }

static void make_runs(folding *f, bool apart) {
  f->count = 0;
  for (int k = 0; k < f->rank; k++) {
    bool told = is_told(f, f->order[k]);
    bool goes_on = k > 0 && told == is_told(f, f->order[k - 1]) && !(told && apart);
    if (!goes_on) f->count++;
    f->ends[f->count - 1] = k + 1;
  }
}

/* In the order of the dims; where that makes too many runs, with the dims that are told apart behind the others. */
static void order_dims(folding *f, bool apart) {
  for (int d = 0; d < f->rank; d++) f->order[d] = d;
  make_runs(f, apart);
  if (f->count <= WK__NEST_MAX_DIMS) return;
  int n = 0;
  for (int told = 0; told < 2; told++)
    for (int d = 0; d < f->rank; d++)
      if (is_told(f, d) == told) f->order[n++] = d;
  make_runs(f, apart);
}

static void take_least(folding *f, const wk_tensor *t) {
  for (int d = 0; t->ndim == f->rank && d < f->rank; d++)
    if (!is_told(f, d) && t->sizes[d].bits < f->shared[d].bits) f->shared[d] = t->sizes[d];
}

static wk_status find_folding(const wk__call *c, wk_tensor *const *outputs, folding *f) {
  bool read = wk__arg_tensor(c, 0) && !(c->op->tags & WK__TAG_SHAPES_ONLY);
  const wk_tensor *model = read ? c->args[0].tensor : outputs[0];
  if (c->op->dims_rule == WK__DIMS_ROWS && outputs[0]->ndim > model->ndim) model = outputs[0];
  f->rank = model->ndim;
  WK_TRY(find_told(c, outputs, f));
  order_dims(f, c->op->dims_rule == WK__DIMS_LAST_TWO || c->op->dims_rule == WK__DIMS_PAIRS);
  if (f->count > WK__NEST_MAX_DIMS) return refuse(c);
  memcpy(f->shared, model->sizes, model->ndim * sizeof *model->sizes);
  for (int i = 0; i < c->op->schema.parameter_count; i++)
    if (c->args[i].tag == WK_VALUE_TENSOR) take_least(f, c->args[i].tensor);
  for (int r = 0; r < c->op->schema.result_count; r++) take_least(f, outputs[r]);
  return WK_OK;
}

/* ================================================ tensors of fewer dims ========================================== */

/* Which of the dims a tensor has: all, or those that are told apart (a weight), or the others (what is reduced). */
typedef enum part { PART_ALL, PART_TOLD, PART_OTHERS } part;

static bool find_part(const wk__call *c, const folding *f, const wk_tensor *t, part *out) {
  int told = __builtin_popcountll(f->told);
  bool weight = c->op->dims_rule == WK__DIMS_LAST;
  *out = t->ndim == f->rank ? PART_ALL : weight ? PART_TOLD : PART_OTHERS;
  return t->ndim == f->rank || t->ndim == (weight ? told : f->rank - told);
}

static bool has_dim(const folding *f, part p, int d) { return p == PART_ALL || is_told(f, d) == (p == PART_TOLD); }

/* The tensor's dims in the folding's order, cut to what the call goes over. */
static void arrange(const folding *f, part p, const wk_tensor *t, wk__spec *out) {
  int own[WK_MAX_DIMS], n = 0;
  for (int d = 0; d < f->rank; d++) own[d] = has_dim(f, p, d) ? n++ : -1;
  wk__spec_of(out, t);
  n = 0;
  for (int k = 0; k < f->rank; k++) {
    int d = f->order[k];
    if (own[d] < 0) continue;
    out->sizes[n] = p == PART_ALL && !is_told(f, d) ? f->shared[d] : t->sizes[own[d]];
    out->strides[n++] = t->strides[own[d]];
  }
}

/* Adds a dim that lies inside the dim behind which it comes. False: it does not. */
static bool join(wk_int *size, wk_int *stride, wk_int inner_size, wk_int inner_stride) {
  if (inner_size.bits == 1) return true;
  bool fits = size->bits == 1 || stride->bits == inner_stride.bits * inner_size.bits;
  *size = wk_int_of(size->bits * inner_size.bits);
  *stride = inner_stride;
  return fits;
}

/* Runs of an arranged tensor as one dim each; false: they do not lie so in memory. */
static bool fold(const folding *f, part p, const wk__spec *arranged, wk__spec *out) {
  bool fits = true;
  int n = 0;
  out->dtype = arranged->dtype;
  out->device = arranged->device;
  out->offset = arranged->offset;
  out->ndim = 0;
  for (int g = 0, k = 0; g < f->count; g++) {
    if (!has_dim(f, p, f->order[k])) {
      k = f->ends[g];
      continue;
    }
    wk_int size = wk_int_of(1), stride = wk_int_of(1);
    for (; k < f->ends[g]; k++, n++) fits &= join(&size, &stride, arranged->sizes[n], arranged->strides[n]);
    out->sizes[out->ndim] = size;
    out->strides[out->ndim++] = stride;
  }
  return fits || wk__spec_numel(out).bits == 0;
}

/* Without a trace in versions: what is written is new, or counted by who asked for the call. */
static wk_status copy(wk_tensor *to, wk_tensor *from) {
  wk_value source = wk__v_tensor(from);
  wk__call c = {.op = WK__OP(_copy), .args = &source, .outputs = &to, .compute_dtype = from->dtype};
  return wk__run_lowered(&c, c.outputs);
}

static wk_status copy_between(wk_tensor *to, const wk__spec *to_spec, wk_tensor *from, const wk__spec *from_spec) {
  WK__OWNED a = wk__tensor_alias(to, to_spec);
  WK__OWNED b = wk__tensor_alias(from, from_spec);
  return a && b ? copy(a, b) : wk_error_category();
}

/* A tensor of the call, and what stands for it. */
typedef struct folded {
  wk_tensor *whole; /* borrowed */
  wk_tensor *dense; /* owned: a copy whose dims can be folded; NULL: the tensor's own can */
  wk_tensor *view;  /* owned: what the call gets; NULL: there is none */
  wk__spec arranged, dense_spec;
} folded;

static void release_folded(folded *t) {
  wk__release(t->view);
  wk__release(t->dense);
}

static wk_status fold_tensor(const wk__call *c, const folding *f, wk_tensor *t, bool filled, folded *out) {
  wk__spec spec;
  part p;
  out->whole = t;
  if (t->ndim <= (c->op->dims_rule == WK__DIMS_ROWS ? 2 : 1)) {
    out->view = wk__retain(t);
    return WK_OK;
  }
  if (!find_part(c, f, t, &p)) return refuse(c);
  arrange(f, p, t, &out->arranged);
  if (!fold(f, p, &out->arranged, &spec)) {
    wk__spec_contiguous(&out->dense_spec, (wk_dtype)t->dtype, t->device, out->arranged.ndim, out->arranged.sizes);
    if (!(out->dense = wk__tensor_from_spec(&out->dense_spec))) return wk_error_category();
    if (filled) WK_TRY(copy_between(out->dense, &out->dense_spec, t, &out->arranged));
    (void)fold(f, p, &out->dense_spec, &spec);
  }
  out->view = wk__tensor_alias(out->dense ? out->dense : t, &spec);
  return out->view ? WK_OK : wk_error_category();
}

/* ==================================================== the call =================================================== */

/* The pairs of the runs, from the last on. */
static wk_value fold_pairs(const wk_value *pairs, const folding *f, wk_int *space) {
  int n = 0;
  for (int g = f->count - 1; g >= 0; g--) {
    int d = f->order[f->ends[g] - 1], k = 2 * (f->rank - 1 - d);
    for (int j = 0; j < 2; j++) space[n++] = is_told(f, d) ? pairs->integers[k + j] : wk_int_of(0);
  }
  return wk__v_ints(space, n);
}

/* The numbers of the runs that are told apart, for an argument that names dims; how many, for one that counts them. */
static wk_value fold_dims(const wk__call *c, const folding *f, wk_int *space) {
  wk_value arg = c->args[c->op->dims_arg];
  int n = 0;
  wk_int size = wk_int_of(1);
  if (c->op->dims_rule == WK__DIMS_PAIRS) return fold_pairs(&arg, f, space);
  for (int d = 0; d < f->rank; d++)
    if (is_told(f, d)) size = wk_int_of(size.bits * f->shared[d].bits);
  if (c->op->dims_rule == WK__DIMS_LAST) {
    space[0] = size;
    return arg.tag == WK_VALUE_INTS ? wk__v_ints(space, 1) : wk__v_int(1);
  }
  for (int g = 0; g < f->count; g++)
    if (is_told(f, f->order[f->ends[g] - 1])) space[n++] = wk_int_of(g);
  if (arg.tag == WK_VALUE_INT) return wk__v_size(space[0]);
  return arg.tag == WK_VALUE_INTS && arg.count ? wk__v_ints(space, n) : arg;
}

/* A row that writes places of its argument 0 does so in the result, which gets the rest from there first. */
static wk_status start_result(const wk__call *c, wk_tensor *const *outputs) {
  if (!(c->op->tags & WK__TAG_PLACES) || outputs[0] == c->args[0].tensor) return WK_OK;
  return copy(outputs[0], c->args[0].tensor);
}

static bool goes_over_nothing(const wk__call *c) {
  bool empty = false;
  for (int i = 1; i < c->op->schema.parameter_count; i++)
    empty |= c->args[i].tag == WK_VALUE_TENSOR && wk__numel(c->args[i].tensor) == 0;
  return empty && c->op->tags & WK__TAG_PLACES;
}

static wk_status run_folded(const wk__call *c, const folding *f, folded *args, folded *results) {
  wk_value values[WK__MAX_ARGS];
  wk_tensor *outputs[WK__MAX_RESULTS];
  wk_int dims[WK_MAX_DIMS];
  wk__call inner = *c;
  memcpy(values, c->args, c->op->schema.parameter_count * sizeof *values);
  for (int i = 0; i < c->op->schema.parameter_count; i++)
    if (values[i].tag == WK_VALUE_TENSOR) values[i].tensor = args[i].view;
  for (int r = 0; r < c->op->schema.result_count; r++) outputs[r] = results[r].view;
  if (c->op->tags & WK__TAG_PLACES) values[0].tensor = outputs[0];
  if (c->op->dims_rule >= WK__DIMS_ALONG && c->op->dims_rule <= WK__DIMS_PAIRS)
    values[c->op->dims_arg] = fold_dims(c, f, dims);
  inner.args = values;
  inner.outputs = outputs;
  return wk__run_lowered(&inner, outputs);
}

static wk_status fold_all(const wk__call *c, const folding *f, wk_tensor *const *outputs, folded *args,
                          folded *results) {
  bool places = c->op->tags & WK__TAG_PLACES, shapes = c->op->tags & WK__TAG_SHAPES_ONLY;
  for (int r = 0; r < c->op->schema.result_count; r++) WK_TRY(fold_tensor(c, f, outputs[r], places, &results[r]));
  for (int i = places; i < c->op->schema.parameter_count; i++) {
    if (c->args[i].tag != WK_VALUE_TENSOR) continue;
    if (shapes)
      args[i].view = wk__retain(results[0].view); /* nothing of it is read */
    else
      WK_TRY(fold_tensor(c, f, c->args[i].tensor, true, &args[i]));
  }
  return WK_OK;
}

static wk_status put_back(const wk__call *c, folded *results) {
  for (int r = 0; r < c->op->schema.result_count; r++)
    if (results[r].dense)
      WK_TRY(copy_between(results[r].whole, &results[r].arranged, results[r].dense, &results[r].dense_spec));
  return WK_OK;
}

wk_status wk__rename_bad_dim(const int *dims) {
  long long index, size;
  int dim;
  int read =
      sscanf(wk_error_message(), "index %lld is out of bounds for dimension %d with size %lld", &index, &dim, &size);
  if (read != 3) return wk_error_category();
  return wk_fail(WK_INDEX_ERROR, "index %lld is out of bounds for dimension %d with size %lld", index, dims[dim], size);
}

static wk_status in_dims_of_call(const folding *f, wk_status status) {
  int last[WK_MAX_DIMS];
  if (status != WK_INDEX_ERROR) return status;
  for (int g = 0; g < f->count; g++) last[g] = f->order[f->ends[g] - 1];
  return wk__rename_bad_dim(last);
}

wk_status wk__run_many_dims(const wk__call *c, wk_tensor *const *outputs) {
  folding f;
  WK_TRY(start_result(c, outputs));
  if (goes_over_nothing(c)) return WK_OK;
  WK_TRY(find_folding(c, outputs, &f));
  int parameters = c->op->schema.parameter_count, tensors = parameters + c->op->schema.result_count;
  folded *args = wk__alloc_zeroed((size_t)tensors * sizeof *args);
  if (!args) return WK_OUT_OF_MEMORY;
  folded *results = args + parameters;
  wk_status status = fold_all(c, &f, outputs, args, results);
  if (status == WK_OK) status = in_dims_of_call(&f, run_folded(c, &f, args, results));
  if (status == WK_OK) status = put_back(c, results);
  for (int i = 0; i < tensors; i++) release_folded(&args[i]);
  wk__free(args);
  return status;
}
