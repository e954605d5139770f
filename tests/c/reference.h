/* What a nest means, said as plainly as possible: each instruction is computed for every point of the iteration space
 * before the next one, reductions in exactly the order that loop/loop.h states, stores last. Slow, and shares nothing
 * with the tiers but the element functions that have no short definition (exp, pow, ...), which test_math checks.
 *
 * In: a verified nest and a launch. Out: what the launch's written buffers should hold, and the faults that a launch
 * should report. Used by test_program.c. */
#ifndef WICK_TESTS_REFERENCE_H
#define WICK_TESTS_REFERENCE_H

#include <math.h>
#include <stdlib.h>

#include "cpu/tier0/primitives.h"
#include "cpu/tier0/program.h"

typedef union cell {
  uint8_t b;
  int64_t i;
  float f;
  double d;
} cell;

typedef struct reference {
  const wk__nest *nest;
  const wk__launch *launch;
  int dims;
  int64_t sizes[WK__NEST_MAX_DIMS];
  int64_t rows, length; /* points of the pointwise dims, of the reduction dims */
  int64_t pitch;        /* cells a row: one also where rows are empty, for the values per row */
  cell **values;        /* (instructions)(rows, pitch); a value per row is repeated along its row */
  bool fault;
} reference;

/* ---- index expressions ---- */

typedef struct reference_point {
  const reference *r;
  int64_t at[WK__NEST_MAX_DIMS]; /* pointwise dims first */
} reference_point;

static wk_status reference_leaf(void *context, wk_int leaf, int64_t *out) {
  const reference_point *p = context;
  int index = wk__sym_index(leaf);
  if (wk__sym_kind_of(leaf) == WK__SYM_LOOP_VAR)
    *out = p->at[index < WK__FIRST_R ? index : p->r->nest->pointwise_dims + index - WK__FIRST_R];
  else
    *out = p->r->launch->buffers[index / WK__BUFFER_DIMS].sizes[index % WK__BUFFER_DIMS];
  return WK_OK;
}

static int64_t reference_index(const reference_point *p, wk_int x) {
  int64_t value;
  if (wk_int_is_known(x)) return wk_int_value(x);
  if (wk__sym_eval(x, reference_leaf, (void *)p, &value) != WK_OK) abort();
  return value;
}

static reference_point reference_at(const reference *r, int64_t point) {
  reference_point p = {.r = r};
  int64_t row = point / r->pitch, element = point % r->pitch;
  int pointwise = r->nest->geometry_free ? r->dims : r->nest->pointwise_dims;
  for (int d = r->dims - 1; d >= 0; d--) {
    int64_t *index = d < pointwise ? &row : &element;
    p.at[d] = r->sizes[d] ? *index % r->sizes[d] : 0;
    if (r->sizes[d]) *index /= r->sizes[d];
  }
  return p;
}

/* ---- elements ---- */

static cell reference_get(const void *element, wk_dtype dtype) {
  wk__scalar s = wk__element_get(element, dtype);
  switch (wk__lane_of((wk_dtype)wk__dtypes[dtype].compute)) {
    case WK__LANE_BOOL:
      return (cell){.b = s.i != 0};
    case WK__LANE_I64:
      return (cell){.i = s.i};
    case WK__LANE_F32:
      return (cell){.f = (float)s.d};
    default:
      return (cell){.d = s.d};
  }
}

static wk__scalar reference_scalar(cell c, wk_dtype dtype) {
  switch (wk__lane_of(dtype)) {
    case WK__LANE_BOOL:
      return (wk__scalar){WK__BOOL_KIND, .i = c.b};
    case WK__LANE_I64:
      return (wk__scalar){WK__INTEGER_KIND, .i = c.i};
    case WK__LANE_F32:
      return (wk__scalar){WK__FLOAT_KIND, .d = c.f};
    default:
      return (wk__scalar){WK__FLOAT_KIND, .d = c.d};
  }
}

static cell reference_number(wk__scalar s, wk_dtype dtype) {
  switch (wk__lane_of(dtype)) {
    case WK__LANE_BOOL:
      return (cell){.b = wk__scalar_double(s) != 0};
    case WK__LANE_I64:
      return (cell){.i = wk__scalar_int(s)};
    case WK__LANE_F32:
      return (cell){.f = (float)wk__scalar_double(s)};
    default:
      return (cell){.d = wk__scalar_double(s)};
  }
}

static cell reference_cast(cell c, wk_dtype from, wk_dtype to) {
  if (from == WK_INT64 && to == WK_FLOAT32) return (cell){.f = (float)c.i}; /* rounded once */
  wk__scalar s = reference_scalar(c, from);
  if (to == WK_BOOL) return (cell){.b = s.category == WK__FLOAT_KIND ? s.d != 0 : s.i != 0};
  return reference_number(s, to);
}

#define REFERENCE_FLOAT(field)                                \
  switch (op) {                                               \
    case WK__LOOP_neg:                                        \
      return (cell){.field = -a.field};                       \
    case WK__LOOP_add:                                        \
      return (cell){.field = a.field + b.field};              \
    case WK__LOOP_sub:                                        \
      return (cell){.field = a.field - b.field};              \
    case WK__LOOP_mul:                                        \
      return (cell){.field = a.field * b.field};              \
    case WK__LOOP_div:                                        \
      return (cell){.field = a.field / b.field};              \
    case WK__LOOP_max:                                        \
      return a.field > b.field || a.field != a.field ? a : b; \
    case WK__LOOP_min:                                        \
      return a.field < b.field || a.field != a.field ? a : b; \
    case WK__LOOP_eq:                                         \
      return (cell){.b = a.field == b.field};                 \
    case WK__LOOP_ne:                                         \
      return (cell){.b = a.field != b.field};                 \
    case WK__LOOP_lt:                                         \
      return (cell){.b = a.field < b.field};                  \
    case WK__LOOP_le:                                         \
      return (cell){.b = a.field <= b.field};                 \
    case WK__LOOP_gt:                                         \
      return (cell){.b = a.field > b.field};                  \
    case WK__LOOP_ge:                                         \
      return (cell){.b = a.field >= b.field};                 \
    case WK__LOOP_logical_not:                                \
      return (cell){.b = a.field == 0};                       \
    case WK__LOOP_isnan:                                      \
      return (cell){.b = a.field != a.field};                 \
    default:                                                  \
      break;                                                  \
  }

/* One operation on the lane type of its first operand (of `where`: of its second). */
static cell reference_apply(int op, wk__lane_type lane, cell a, cell b, cell c) {
  if (op == WK__LOOP_where) return a.b ? b : c;
  if (lane == WK__LANE_F32) REFERENCE_FLOAT(f)
  if (lane == WK__LANE_F64) REFERENCE_FLOAT(d)
  if (lane == WK__LANE_I64) switch (op) {
      case WK__LOOP_add:
        return (cell){.i = (int64_t)((uint64_t)a.i + (uint64_t)b.i)};
      case WK__LOOP_sub:
        return (cell){.i = (int64_t)((uint64_t)a.i - (uint64_t)b.i)};
      case WK__LOOP_mul:
        return (cell){.i = (int64_t)((uint64_t)a.i * (uint64_t)b.i)};
      case WK__LOOP_max:
        return a.i > b.i ? a : b;
      case WK__LOOP_min:
        return a.i < b.i ? a : b;
      case WK__LOOP_eq:
        return (cell){.b = a.i == b.i};
      case WK__LOOP_lt:
        return (cell){.b = a.i < b.i};
      case WK__LOOP_bit_and:
        return (cell){.i = a.i & b.i};
      case WK__LOOP_shift_left: /* bit by bit */
        for (int64_t k = 0; b.i >= 0 && b.i < 64 && k < b.i; k++) a.i = (int64_t)((uint64_t)a.i * 2);
        return (cell){.i = b.i < 0 || b.i > 63 ? 0 : a.i};
      case WK__LOOP_shift_right:
        for (int64_t k = 0; k < 63 && (b.i < 0 || k < b.i); k++) a.i = (a.i - (a.i & 1)) / 2;
        return (cell){.i = a.i};
      default:
        break;
    }
  if (lane == WK__LANE_BOOL) switch (op) {
      case WK__LOOP_max:
      case WK__LOOP_bit_or:
        return (cell){.b = a.b || b.b};
      case WK__LOOP_min:
      case WK__LOOP_bit_and:
        return (cell){.b = a.b && b.b};
      case WK__LOOP_bit_xor:
        return (cell){.b = a.b != b.b};
      case WK__LOOP_logical_not:
        return (cell){.b = !a.b};
      default:
        break;
    }
  cell out = {.i = 0};
  wk__primitives_get()->map[op][lane](&out, &a, &b, &c, 1);
  return out;
}

/* ---- reductions, by the text of loop.h ---- */

static bool reference_is_arg(int op) { return op == WK__LOOP_reduce_argmax || op == WK__LOOP_reduce_argmin; }

static int reference_combiner(int op) {
  return op == WK__LOOP_reduce_sum || op == WK__LOOP_scan_sum     ? WK__LOOP_add
         : op == WK__LOOP_reduce_prod || op == WK__LOOP_scan_prod ? WK__LOOP_mul
         : op == WK__LOOP_reduce_max                              ? WK__LOOP_max
                                                                  : WK__LOOP_min;
}

static cell reference_identity(int op, wk__lane_type lane) {
  bool sum = op == WK__LOOP_reduce_sum || op == WK__LOOP_scan_sum, max = op == WK__LOOP_reduce_max;
  bool prod = op == WK__LOOP_reduce_prod || op == WK__LOOP_scan_prod;
  double least = sum ? 0 : prod ? 1 : max ? -INFINITY : INFINITY;
  switch (lane) {
    case WK__LANE_BOOL:
      return (cell){.b = !max};
    case WK__LANE_I64:
      return (cell){.i = sum ? 0 : prod ? 1 : max ? INT64_MIN : INT64_MAX};
    case WK__LANE_F32:
      return (cell){.f = (float)least};
    default:
      return (cell){.d = least};
  }
}

static cell reference_chunk(int op, wk__lane_type lane, const cell *row, int64_t length) {
  cell lanes[WK__REDUCE_LANES];
  int combiner = reference_combiner(op);
  for (int l = 0; l < WK__REDUCE_LANES; l++) lanes[l] = reference_identity(op, lane);
  for (int64_t e = 0; e < length; e++)
    lanes[e % WK__REDUCE_LANES] = reference_apply(combiner, lane, lanes[e % WK__REDUCE_LANES], row[e], row[e]);
  for (int half = WK__REDUCE_LANES / 2; half > 0; half /= 2)
    for (int l = 0; l < half; l++) lanes[l] = reference_apply(combiner, lane, lanes[l], lanes[l + half], lanes[l]);
  return lanes[0];
}

/* Chunks are folded like the carries of a binary counter: two results of equal weight become one of twice the weight.
 */
static cell reference_reduce(int op, wk__lane_type lane, const cell *row, int64_t length) {
  cell stack[64];
  int64_t weight[64];
  int top = 0, combiner = reference_combiner(op);
  for (int64_t begin = 0; begin < length; begin += WK__REDUCE_CHUNK) {
    stack[top] = reference_chunk(op, lane, row + begin, wk__min(WK__REDUCE_CHUNK, length - begin));
    weight[top++] = 1;
    for (; top > 1 && weight[top - 1] == weight[top - 2]; top--) {
      stack[top - 2] = reference_apply(combiner, lane, stack[top - 2], stack[top - 1], stack[top - 1]);
      weight[top - 2] *= 2;
    }
  }
  if (top == 0) return reference_identity(op, lane);
  for (; top > 1; top--)
    stack[top - 2] = reference_apply(combiner, lane, stack[top - 2], stack[top - 1], stack[top - 1]);
  return stack[0];
}

static bool reference_is_nan(wk__lane_type lane, cell c) {
  return lane == WK__LANE_F32 ? isnan(c.f) : lane == WK__LANE_F64 && isnan(c.d);
}

/* The first of the largest (smallest) elements; the first NaN when there is one. */
static cell reference_arg(int op, wk__lane_type lane, const cell *row, int64_t length) {
  int64_t best = length ? 0 : -1;
  for (int64_t e = 1; e < length && !reference_is_nan(lane, row[best]); e++) {
    bool larger = op == WK__LOOP_reduce_argmax;
    bool beats = lane == WK__LANE_F32   ? (larger ? row[e].f > row[best].f : row[e].f < row[best].f)
                 : lane == WK__LANE_F64 ? (larger ? row[e].d > row[best].d : row[e].d < row[best].d)
                 : lane == WK__LANE_I64 ? (larger ? row[e].i > row[best].i : row[e].i < row[best].i)
                                        : (larger ? row[e].b > row[best].b : row[e].b < row[best].b);
    if (beats || reference_is_nan(lane, row[e])) best = e;
  }
  return (cell){.i = best};
}

static void reference_along_rows(const reference *r, const wk__instr *instr, cell *out) {
  const cell *in = r->values[instr->operands[0]];
  wk__lane_type lane = wk__lane_of((wk_dtype)r->nest->instrs[instr->operands[0]].dtype);
  for (int64_t row = 0; row < r->rows; row++, in += r->pitch, out += r->pitch) {
    if (instr->op == WK__LOOP_scan_sum || instr->op == WK__LOOP_scan_prod) {
      int combiner = reference_combiner(instr->op);
      cell before = reference_identity(instr->op, lane), here = before;
      for (int64_t e = 0; e < r->length; e++) {
        if (e % WK__REDUCE_CHUNK == 0 && e) before = out[e - 1], here = reference_identity(instr->op, lane);
        here = reference_apply(combiner, lane, here, in[e], in[e]);
        out[e] = reference_apply(combiner, lane, before, here, here);
      }
      continue;
    }
    cell result = reference_is_arg(instr->op) ? reference_arg(instr->op, lane, in, r->length)
                                              : reference_reduce(instr->op, lane, in, r->length);
    for (int64_t e = 0; e < r->pitch; e++) out[e] = result;
  }
}

/* ---- instructions ---- */

static char *reference_address(const reference *r, const wk__access *a, const reference_point *p, int64_t point) {
  const wk__launch_buffer *buffer = &r->launch->buffers[a->buffer];
  int64_t offset = 0;
  if (r->nest->geometry_free)
    for (int d = 0; d < r->dims; d++) offset += p->at[d] * buffer->strides[d];
  else
    for (int d = 0; d < a->ndim; d++) {
      int64_t index = reference_index(p, a->index[d]);
      if (a->indirect[d]) index += r->values[a->indirect[d]][point].i;
      offset += index * buffer->strides[d];
    }
  return (char *)buffer->data + offset * wk__dtypes[r->nest->buffers[a->buffer].dtype].size;
}

static cell reference_value(reference *r, const wk__instr *instr, int64_t point) {
  const wk__nest *nest = r->nest;
  reference_point p = reference_at(r, point);
  const wk__instr *first = &nest->instrs[instr->operands[0]];
  cell a = instr->operands[0] ? r->values[instr->operands[0]][point] : (cell){.i = 0};
  cell b = instr->operands[1] ? r->values[instr->operands[1]][point] : (cell){.i = 0};
  cell c = instr->operands[2] ? r->values[instr->operands[2]][point] : (cell){.i = 0};
  switch (instr->op) {
    case WK__LOOP_load: {
      const wk__access *access = &nest->accesses[instr->extra];
      return reference_get(reference_address(r, access, &p, point), (wk_dtype)nest->buffers[access->buffer].dtype);
    }
    case WK__LOOP_masked_load: {
      const wk__access *access = &nest->accesses[instr->extra];
      wk_dtype dtype = (wk_dtype)nest->buffers[access->buffer].dtype;
      char element[16];
      for (int d = 0; d < access->ndim; d++) {
        int64_t index = reference_index(&p, access->index[d]);
        bool outside = index < 0 || index >= r->launch->buffers[access->buffer].sizes[d];
        if (!outside || !(access->may_leave >> d & 1)) continue;
        wk__element_set(element, dtype, reference_scalar(a, (wk_dtype)first->dtype));
        return reference_get(element, dtype);
      }
      return reference_get(reference_address(r, access, &p, point), dtype);
    }
    case WK__LOOP_param:
      return reference_number(r->launch->params[instr->extra], (wk_dtype)instr->dtype);
    case WK__LOOP_constant:
      return reference_number(instr->number, (wk_dtype)instr->dtype);
    case WK__LOOP_index:
      return (cell){.i = reference_index(&p, instr->expression)};
    case WK__LOOP_cast:
      return reference_cast(a, (wk_dtype)first->dtype, (wk_dtype)instr->dtype);
    case WK__LOOP_round_to: {
      char element[16];
      wk__element_set(element, (wk_dtype)instr->extra, reference_scalar(a, (wk_dtype)first->dtype));
      return reference_get(element, (wk_dtype)instr->extra);
    }
    case WK__LOOP_check_index: {
      int64_t size = reference_index(&p, instr->expression), wrap = instr->extra ? 0 : size;
      int64_t index = a.i < 0 ? a.i + wrap : a.i;
      if (index >= 0 && index < size) return (cell){.i = index};
      r->fault = true;
      return (cell){.i = 0};
    }
    default:
      break;
  }
  const wk__instr *selector = instr->op == WK__LOOP_where ? &nest->instrs[instr->operands[1]] : first;
  return reference_apply(instr->op, wk__lane_of((wk_dtype)selector->dtype), a, b, c);
}

static void reference_store(const reference *r, const wk__instr *instr) {
  const wk__access *access = &r->nest->accesses[instr->extra];
  wk_dtype dtype = (wk_dtype)r->nest->buffers[access->buffer].dtype, compute = (wk_dtype)wk__dtypes[dtype].compute;
  int64_t step = instr->per_element ? 1 : r->pitch; /* a value per row is stored once */
  for (int64_t point = 0; point < r->rows * r->pitch; point += step) {
    if (instr->per_element && r->length == 0) return;
    reference_point p = reference_at(r, point);
    char *element = reference_address(r, access, &p, point);
    cell value = r->values[instr->operands[0]][point];
    if (instr->op == WK__LOOP_store_add)
      value = reference_apply(WK__LOOP_add, wk__lane_of(compute), reference_get(element, dtype), value, value);
    wk__element_set(element, dtype, reference_scalar(value, compute));
  }
}

static bool reference_is_store(int op) { return op == WK__LOOP_store || op == WK__LOOP_store_add; }

/* Runs the nest; false when a launch has to report an index out of range. */
static bool reference_run(const wk__nest *nest, const wk__launch *launch) {
  reference r = {.nest = nest, .launch = launch, .rows = 1, .length = 1, .pitch = 1};
  r.dims = nest->geometry_free ? launch->ndim : nest->pointwise_dims + nest->reduction_dims;
  reference_point origin = {.r = &r};
  for (int d = 0; d < r.dims; d++) {
    r.sizes[d] = nest->geometry_free ? launch->sizes[d] : reference_index(&origin, nest->sizes[d]);
    *(nest->geometry_free || d < nest->pointwise_dims ? &r.rows : &r.length) *= r.sizes[d];
  }
  r.pitch = wk__max(r.length, 1);
  size_t cells = (size_t)(r.rows * r.pitch);
  r.values = calloc((size_t)nest->instr_count, sizeof *r.values);
  for (int64_t v = 1; v < nest->instr_count; v++) {
    const wk__instr *instr = &nest->instrs[v];
    if (reference_is_store(instr->op)) continue;
    r.values[v] = calloc(cells ? cells : 1, sizeof(cell));
    if (instr->op >= WK__LOOP_reduce_sum)
      reference_along_rows(&r, instr, r.values[v]);
    else if (r.length || !instr->per_element)
      for (int64_t point = 0; point < r.rows * r.pitch; point++) r.values[v][point] = reference_value(&r, instr, point);
  }
  for (int64_t v = 1; v < nest->instr_count; v++)
    if (reference_is_store(nest->instrs[v].op)) reference_store(&r, &nest->instrs[v]);
  for (int64_t v = 1; v < nest->instr_count; v++) free(r.values[v]);
  free(r.values);
  return !r.fault;
}

#endif
