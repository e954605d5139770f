/* Binding a nest to sizes and strides. In: nest and launch. Out: loops and walkers (binding.h).
 * Tests: tests/c/test_program.c. */
#include "loop/binding.h"

#include <stdlib.h>

typedef struct resolve_context {
  const wk__launch *launch;
  int varied; /* this loop variable has the value `amount`, all others are 0 */
  int64_t amount;
} resolve_context;

static wk_status resolve(void *context, wk_int leaf, int64_t *out) {
  const resolve_context *at = context;
  int index = wk__sym_index(leaf);
  switch (wk__sym_kind_of(leaf)) {
    case WK__SYM_LOOP_VAR:
      *out = index == at->varied ? at->amount : 0;
      return WK_OK;
    case WK__SYM_BUFFER_SIZE:
      *out = at->launch->buffers[index / WK__BUFFER_DIMS].sizes[index % WK__BUFFER_DIMS];
      return WK_OK;
    default:
      return wk_fail(WK_INTERNAL_ERROR, "a loop nest mentions a symbol that the launch does not know");
  }
}

static wk_status evaluate_at(wk_int x, const wk__launch *launch, int varied, int64_t amount, int64_t *out) {
  resolve_context context = {launch, varied, amount};
  if (wk_int_is_known(x)) {
    *out = x.bits;
    return WK_OK;
  }
  if (wk__sym_kind_of(x) == WK__SYM_BUFFER_SIZE) return resolve(&context, x, out);
  return wk__sym_eval(x, resolve, &context, out);
}
static wk_status evaluate(wk_int x, const wk__launch *launch, int64_t *out) {
  return evaluate_at(x, launch, -1, 0, out);
}

/* Where loop variable `v` of an index expression stands among the nest's dims. */
static int dim_of_loop_var(const wk__nest *nest, int v) {
  return v < WK__FIRST_R ? v : nest->pointwise_dims + v - WK__FIRST_R;
}

/* Adds `scale` times the expression: to `start` what is constant, to the dims' strides the rest. A launch builds no
 * expressions, so the coefficients are found by evaluating: f(0), f(1) - f(0), and f(2) to see that f is affine. */
static wk_status add_affine(const wk__nest *nest, const wk__launch *launch, wk_int x, int64_t scale, int64_t *start,
                            int64_t *stride) {
  if (wk_int_is_known(x)) {
    *start += scale * x.bits;
    return WK_OK;
  }
  if (wk__sym_kind_of(x) == WK__SYM_LOOP_VAR) {
    stride[dim_of_loop_var(nest, wk__sym_index(x))] += scale;
    return WK_OK;
  }
  int64_t zero, one, two;
  WK_TRY(evaluate(x, launch, &zero));
  *start += scale * zero;
  for (uint32_t left = wk__sym_loop_vars(x); left; left &= left - 1) {
    int v = __builtin_ctz(left);
    WK_TRY(evaluate_at(x, launch, v, 1, &one));
    WK_TRY(evaluate_at(x, launch, v, 2, &two));
    if (two - one != one - zero) return wk_fail(WK_UNSUPPORTED, "tier 0 runs affine index expressions only");
    stride[dim_of_loop_var(nest, v)] += scale * (one - zero);
  }
  return WK_OK;
}

static wk_status bind_access(const wk__nest *nest, const wk__launch *launch, int number, wk__binding *b) {
  const wk__access *access = &nest->accesses[number];
  const wk__launch_buffer *buffer = &launch->buffers[access->buffer];
  b->base[number] = buffer->data;
  b->start[number] = 0;
  b->indirect[number] = buffer->strides;
  memset(b->stride[number], 0, sizeof b->stride[number]);
  for (int d = 0; d < access->ndim; d++) {
    int64_t *stride = b->stride[number];
    WK_TRY(add_affine(nest, launch, access->index[d], buffer->strides[d], &b->start[number], stride));
  }
  return WK_OK;
}

static wk_status bind_expression(const wk__nest *nest, const wk__launch *launch, wk__var v, int walker,
                                 wk__binding *b) {
  const wk__instr *instr = &nest->instrs[v];
  b->start[walker] = 0;
  memset(b->stride[walker], 0, sizeof b->stride[walker]);
  if (instr->op == WK__LOOP_check_index) return evaluate(instr->expression, launch, &b->limit[walker]);
  return add_affine(nest, launch, instr->expression, 1, &b->start[walker], b->stride[walker]);
}

/* Coordinates that may leave their buffers. */
static wk_status bind_bounds(const wk__nest *nest, const wk__launch *launch, wk__binding *b) {
  for (int a = 0; a < b->access_count; a++) {
    const wk__access *access = &nest->accesses[a];
    for (unsigned left = access->may_leave; left; left &= left - 1) {
      int d = __builtin_ctz(left), walker = b->walker_count++;
      b->start[walker] = 0;
      memset(b->stride[walker], 0, sizeof b->stride[walker]);
      b->limit[walker] = launch->buffers[access->buffer].sizes[d];
      WK_TRY(add_affine(nest, launch, access->index[d], 1, &b->start[walker], b->stride[walker]));
    }
  }
  return WK_OK;
}

static void bind_free(const wk__nest *nest, const wk__launch *launch, wk__binding *b) {
  b->p = launch->ndim;
  b->r = 0;
  memcpy(b->size, launch->sizes, (size_t)b->p * sizeof *b->size);
  for (int a = 0; a < b->access_count; a++) {
    const wk__launch_buffer *buffer = &launch->buffers[nest->accesses[a].buffer];
    b->base[a] = buffer->data;
    b->start[a] = 0;
    memcpy(b->stride[a], buffer->strides, (size_t)b->p * sizeof(int64_t));
  }
}

int wk__nest_expressions(const wk__nest *nest, wk__var *out) {
  int count = 0;
  for (int64_t v = 1; v < nest->instr_count && count < WK__MAX_WALKERS; v++)
    if (wk__loop_has_expression(nest->instrs[v].op)) out[count++] = (wk__var)v;
  return count;
}

wk_status wk__bind_nest(const wk__nest *nest, const wk__var *expressions, int expression_count,
                        const wk__launch *launch, wk__binding *b) {
  b->access_count = (int)nest->access_count;
  b->expression_count = expression_count;
  b->walker_count = b->access_count + expression_count;
  memset(b->apart, 0, sizeof b->apart);
  if (nest->geometry_free) {
    bind_free(nest, launch, b);
    return WK_OK;
  }
  b->p = nest->pointwise_dims;
  b->r = nest->reduction_dims;
  for (int d = 0; d < b->p + b->r; d++) WK_TRY(evaluate(nest->sizes[d], launch, &b->size[d]));
  for (int a = 0; a < b->access_count; a++) WK_TRY(bind_access(nest, launch, a, b));
  for (int e = 0; e < expression_count; e++)
    WK_TRY(bind_expression(nest, launch, expressions[e], b->access_count + e, b));
  return bind_bounds(nest, launch, b);
}

/* ---- arranging ---- */

void wk__move_loop(wk__binding *b, int to, int from) {
  b->size[to] = b->size[from];
  b->apart[to] = b->apart[from];
  for (int w = 0; w < b->walker_count; w++) b->stride[w][to] = b->stride[w][from];
}

void wk__swap_loops(wk__binding *b, int first, int second) {
  int64_t size = b->size[first];
  bool apart = b->apart[first];
  b->size[first] = b->size[second];
  b->apart[first] = b->apart[second];
  b->size[second] = size;
  b->apart[second] = apart;
  for (int w = 0; w < b->walker_count; w++) {
    int64_t stride = b->stride[w][first];
    b->stride[w][first] = b->stride[w][second];
    b->stride[w][second] = stride;
  }
}

static bool belongs_inside(const wk__nest *nest, const wk__binding *b, int outer, int inner) {
  for (int stores = 1; stores >= 0; stores--)
    for (int a = 0; a < b->access_count; a++) {
      if (nest->buffers[nest->accesses[a].buffer].written != (stores == 1)) continue;
      int64_t so = llabs(b->stride[a][outer]), si = llabs(b->stride[a][inner]);
      if (so == 0 || si == 0 || so == si) continue;
      return so < si;
    }
  return false;
}

void wk__sort_loops(const wk__nest *nest, wk__binding *b) {
  for (int k = 1; k < b->p; k++)
    for (int d = k; d > 0 && belongs_inside(nest, b, d - 1, d); d--) wk__swap_loops(b, d - 1, d);
}

static bool is_even(const wk__binding *b, int outer, int inner) {
  for (int w = 0; w < b->walker_count; w++)
    if (b->stride[w][outer] != b->stride[w][inner] * b->size[inner]) return false;
  return true;
}

/* Among loops [begin, begin + count); returns how many are left. */
static int merge(wk__binding *b, int begin, int count) {
  int kept = 0;
  for (int d = begin; d < begin + count; d++) {
    if (b->size[d] == 1) continue;
    int last = begin + kept - 1;
    if (kept && is_even(b, last, d)) {
      int64_t size = b->size[last];
      bool apart = b->apart[last];
      wk__move_loop(b, last, d);
      b->size[last] *= size;
      b->apart[last] &= apart;
    } else {
      wk__move_loop(b, begin + kept++, d);
    }
  }
  return kept;
}

void wk__merge_loops(wk__binding *b) {
  int p = merge(b, 0, b->p), r = merge(b, b->p, b->r);
  for (int d = 0; d < r; d++) wk__move_loop(b, p + d, b->p + d);
  b->p = p;
  b->r = r;
}
