/* What a well-formed kernel is.
 *
 * In: a kernel, from a builder or a text. Out: WK_OK, or WK_INTERNAL_ERROR that names the first instruction that is
 * wrong. Invariant: back ends rely on all that is checked here. The rules stand here once more on purpose, apart from
 * the code that makes kernels. Test: tests/c/test_tile.c breaks each rule. */
#include "tile/internal.h"

typedef struct checker {
  const wk__tile_kernel *k;
  uint8_t *seen; /* by instruction: it can be used here */
  int depth;
  struct {
    wk__tile begin;
    bool divided, ending; /* behind `else` or `test`; behind a set: only sets and the end follow */
  } regions[WK__TILE_MAX_DEPTH + 1];
} checker;

static wk_status broken(const checker *c, wk__tile v, const char *rule) {
  return wk_fail(WK_INTERNAL_ERROR, "tile instruction %u, %s: %s", v, wk__tile_ops[c->k->instrs[v].op].name, rule);
}

static const wk__tile_instr *operand(const checker *c, const wk__tile_instr *i, int o) {
  return &c->k->instrs[i->operands[o]];
}
static bool is(const wk__tile_type *t, int dtype) { return t->dtype == dtype && !t->pointer; }
static bool is_float(const wk__tile_type *t) {
  return !t->pointer && wk__dtype_category((wk_dtype)t->dtype) == WK__FLOAT_KIND;
}
static bool same_elements(const wk__tile_type *a, const wk__tile_type *b) {
  return a->dtype == b->dtype && a->pointer == b->pointer;
}

static bool is_type(const wk__tile_type *t) {
  int64_t n = 1;
  if (t->dtype >= WK_DTYPE_COUNT || t->ndim > WK__TILE_DIMS) return false;
  int compute = wk__dtypes[t->dtype].compute;
  if (compute != WK_FLOAT32 && compute != WK_FLOAT64 && compute != WK_INT64 && compute != WK_BOOL) return false;
  for (int d = 0; d < WK__TILE_DIMS; d++) {
    int32_t size = t->shape[d];
    if (size < 1 || (size & (size - 1)) || (d >= t->ndim && size != 1)) return false;
    n *= size;
  }
  return n <= WK__TILE_MAX_ELEMENTS;
}

/* ---- operands ---- */

static wk_status check_operands(const checker *c, wk__tile v) {
  const wk__tile_instr *i = &c->k->instrs[v];
  int needed = wk__tile_ops[i->op].operands;
  if (i->op == WK__TILE_map) needed = wk__loop_ops[i->map].arity;
  if (i->op == WK__TILE_load || i->op == WK__TILE_carry) needed = i->op == WK__TILE_load;
  if (i->op == WK__TILE_store || i->op == WK__TILE_atomic) needed = 2;
  for (int o = 0; o < 4; o++) {
    wk__tile x = i->operands[o];
    if (!x && o < needed) return broken(c, v, "an operand is missing");
    if (x && (x >= c->k->count || o >= wk__tile_ops[i->op].operands)) return broken(c, v, "an operand too many");
    if (x && !c->seen[x]) return broken(c, v, "an operand that is not computed before, in its region or around it");
    if (x && !wk__tile_has_value(&c->k->instrs[x])) return broken(c, v, "an operand without a value");
  }
  return WK_OK;
}

/* ---- types ---- */

static bool map_fits(const checker *c, const wk__tile_instr *i) {
  const wk__loop_op_info *op = &wk__loop_ops[i->map];
  const wk__tile_type *t = &i->type, *first = &operand(c, i, 0)->type;
  if (i->map == WK__LOOP_NONE || i->map >= WK__LOOP_COUNT || op->op_class != WK__CLASS_MAP || op->arity == 0)
    return false;
  if (op->rule == WK__RULE_SPECIAL) return false;
  for (int o = 0; o < op->arity; o++)
    if (!wk__tile_same_shape(t, &operand(c, i, o)->type)) return false;
  if (op->rule == WK__RULE_WHERE)
    return is(first, WK_BOOL) && same_elements(t, &operand(c, i, 1)->type) && same_elements(t, &operand(c, i, 2)->type);
  for (int o = 1; o < op->arity; o++)
    if (!same_elements(first, &operand(c, i, o)->type) && op->rule != WK__RULE_COMPARE) return false;
  if (op->rule == WK__RULE_COMPARE || op->rule == WK__RULE_TEST)
    return is(t, WK_BOOL) && (op->arity == 1 || operand(c, i, 1)->type.pointer == first->pointer);
  if (t->pointer || !same_elements(t, first)) return false;
  if (op->rule == WK__RULE_FLOAT) return is_float(t);
  return op->rule != WK__RULE_INTEGER || !is_float(t);
}

static bool broadcast_fits(const wk__tile_type *from, const wk__tile_type *to) {
  if (from->ndim && from->ndim != to->ndim) return false;
  for (int d = 0; d < from->ndim; d++)
    if (from->shape[d] != 1 && from->shape[d] != to->shape[d]) return false;
  return same_elements(from, to);
}

static bool permute_fits(const wk__tile_instr *i, const wk__tile_type *from) {
  int seen = 0;
  if (i->type.ndim != from->ndim || !same_elements(&i->type, from)) return false;
  for (int d = 0; d < from->ndim; d++) {
    int of = (int)(i->number.i >> 4 * d & 15);
    if (of >= from->ndim || i->type.shape[d] != from->shape[of]) return false;
    seen |= 1 << of;
  }
  return seen == (1 << from->ndim) - 1;
}

static bool reduce_fits(const wk__tile_instr *i, const wk__tile_type *from) {
  int d = 0;
  if (i->axis >= from->ndim || from->pointer || i->type.ndim + 1 != from->ndim) return false;
  for (int at = 0; at < from->ndim; at++)
    if (at != i->axis && i->type.shape[d++] != from->shape[at]) return false;
  if (wk__loop_is_arg(i->map)) return is(&i->type, WK_INT32);
  if (i->map == WK__LOOP_bit_xor) return same_elements(&i->type, from) && !is_float(from);
  return wk__loop_is_reduction(i->map) && same_elements(&i->type, from);
}

static bool dot_fits(const checker *c, const wk__tile_instr *i) {
  const wk__tile_type *a = &operand(c, i, 0)->type, *b = &operand(c, i, 1)->type;
  if (a->ndim != 2 || b->ndim != 2 || i->type.ndim != 2 || a->shape[1] != b->shape[0]) return false;
  if (i->type.shape[0] != a->shape[0] || i->type.shape[1] != b->shape[1] || !same_elements(a, b)) return false;
  bool integers = is(a, WK_INT8) || is(a, WK_UINT8);
  if (!integers && !is_float(a)) return false;
  int dtype = integers ? WK_INT32 : a->dtype == WK_FLOAT64 ? WK_FLOAT64 : WK_FLOAT32;
  return is(&i->type, dtype) && wk__tile_same_type(&i->type, &operand(c, i, 2)->type);
}

/* Pointers; operand `mask` is one, the others have the memory's dtype. */
static bool memory_fits(const checker *c, const wk__tile_instr *i, int mask) {
  const wk__tile_type *p = &operand(c, i, 0)->type;
  if (!p->pointer) return false;
  for (int o = 1; o < 4; o++) {
    if (!i->operands[o]) continue;
    const wk__tile_type *t = &operand(c, i, o)->type;
    if (t->pointer || !wk__tile_same_shape(t, p) || t->dtype != (o == mask ? WK_BOOL : p->dtype)) return false;
  }
  return !wk__tile_has_value(i) || (!i->type.pointer && i->type.dtype == p->dtype && wk__tile_same_shape(&i->type, p));
}

static bool is_scalar(const wk__tile_type *t, int dtype) { return is(t, dtype) && t->ndim == 0; }

static bool type_fits(const checker *c, const wk__tile_instr *i) {
  const wk__tile_type *t = &i->type, *first = &operand(c, i, 0)->type;
  switch (i->op) {
    case WK__TILE_parameter:
      return t->ndim == 0 && i->number.i >= 0 && i->number.i < c->k->parameters;
    case WK__TILE_constant:
      return (i->number.category == WK__FLOAT_KIND) == is_float(t);
    case WK__TILE_program_id:
    case WK__TILE_num_programs:
      return is_scalar(t, WK_INT32) && i->number.i >= 0 && i->number.i < 3;
    case WK__TILE_range:
      return is(t, WK_INT32) && t->ndim == 1;
    case WK__TILE_map:
      return map_fits(c, i);
    case WK__TILE_exp2:
    case WK__TILE_log2:
      return is_float(t) && wk__tile_same_type(t, first);
    case WK__TILE_cast:
      return wk__tile_same_shape(t, first);
    case WK__TILE_bits:
      return wk__tile_same_shape(t, first) && !t->pointer && !first->pointer &&
             wk__dtypes[t->dtype].size == wk__dtypes[first->dtype].size;
    case WK__TILE_view:
      return same_elements(t, first) && wk__tile_elements(t) == wk__tile_elements(first);
    case WK__TILE_broadcast:
      return broadcast_fits(first, t);
    case WK__TILE_permute:
      return permute_fits(i, first);
    case WK__TILE_offset:
      return first->pointer && wk__tile_same_type(t, first) && !operand(c, i, 1)->type.pointer &&
             !is_float(&operand(c, i, 1)->type) && wk__tile_same_shape(t, &operand(c, i, 1)->type);
    case WK__TILE_reduce:
      return reduce_fits(i, first);
    case WK__TILE_scan:
      return i->axis < t->ndim && wk__loop_is_scan(i->map) && wk__tile_same_type(t, first);
    case WK__TILE_dot:
      return dot_fits(c, i);
    case WK__TILE_philox:
      return is(t, WK_UINT32) && is(first, WK_INT64) && wk__tile_same_shape(t, first) &&
             wk__tile_same_type(t, &operand(c, i, 1)->type) && i->number.i >= 0 && i->number.i < 4;
    case WK__TILE_load:
      return memory_fits(c, i, 1);
    case WK__TILE_store:
      return memory_fits(c, i, 2);
    case WK__TILE_atomic:
      return memory_fits(c, i, 2) && (i->number.i != WK__TILE_CAS || i->operands[3]);
    case WK__TILE_carry:
      return !i->operands[0] || wk__tile_same_type(t, first);
    case WK__TILE_set:
      return operand(c, i, 0)->op == WK__TILE_carry && wk__tile_same_type(first, &operand(c, i, 1)->type);
    case WK__TILE_for:
      return (is_scalar(t, WK_INT32) || is_scalar(t, WK_INT64)) && wk__tile_same_type(t, first) &&
             wk__tile_same_type(t, &operand(c, i, 1)->type) && wk__tile_same_type(t, &operand(c, i, 2)->type) &&
             operand(c, i, 2)->op == WK__TILE_constant && operand(c, i, 2)->number.i != 0;
    case WK__TILE_test:
    case WK__TILE_if:
      return is_scalar(first, WK_BOOL);
    default:
      return true;
  }
}

/* ---- regions ---- */

static void forget(const checker *c, wk__tile begin, wk__tile until) {
  for (wk__tile v = c->k->instrs[begin].next; v != until; v = c->k->instrs[v].next) c->seen[v] = 0;
}

static wk_status check_region(checker *c, wk__tile v) {
  const wk__tile_instr *i = &c->k->instrs[v];
  int inside = c->depth ? c->k->instrs[c->regions[c->depth].begin].op : WK__TILE_none;
  if (c->regions[c->depth].ending && i->op != WK__TILE_set && i->op != WK__TILE_end && i->op != WK__TILE_else)
    return broken(c, v, "behind a set that is not at the end of its region");
  switch (i->op) {
    case WK__TILE_for:
    case WK__TILE_while:
    case WK__TILE_if:
      if (c->depth == WK__TILE_MAX_DEPTH) return broken(c, v, "too many regions in each other");
      c->depth++;
      memset(&c->regions[c->depth], 0, sizeof c->regions[0]);
      c->regions[c->depth].begin = v;
      return WK_OK;
    case WK__TILE_set:
      if (!c->depth) return broken(c, v, "outside of regions");
      c->regions[c->depth].ending = true;
      return WK_OK;
    case WK__TILE_test:
      if (inside != WK__TILE_while || c->regions[c->depth].divided)
        return broken(c, v, "not in a while, or its second");
      c->regions[c->depth].divided = true;
      return WK_OK;
    case WK__TILE_else:
      if (inside != WK__TILE_if || c->regions[c->depth].divided) return broken(c, v, "not in an if, or its second");
      forget(c, c->regions[c->depth].begin, v);
      c->regions[c->depth].divided = true, c->regions[c->depth].ending = false;
      return WK_OK;
    case WK__TILE_end:
      if (!c->depth) return broken(c, v, "outside of regions");
      if (inside != WK__TILE_for && !c->regions[c->depth].divided) return broken(c, v, "a test or else is missing");
      forget(c, c->regions[c->depth].begin, v);
      if (inside == WK__TILE_for) c->seen[c->regions[c->depth].begin] = 0;
      c->depth--;
      return WK_OK;
    default:
      return WK_OK;
  }
}

static wk_status check(checker *c) {
  for (wk__tile v = c->k->instrs[0].next; v; v = c->k->instrs[v].next) {
    const wk__tile_instr *i = &c->k->instrs[v];
    if (i->op == WK__TILE_none || i->op >= WK__TILE_OP_COUNT)
      return wk_fail(WK_INTERNAL_ERROR, "tile instruction %u: no operation", v);
    WK_TRY(check_operands(c, v));
    bool wants = wk__tile_ops[i->op].op_class == WK__TILE_VALUE || i->op == WK__TILE_load || i->op == WK__TILE_atomic ||
                 i->op == WK__TILE_carry || i->op == WK__TILE_for;
    if (wants != wk__tile_has_value(i) || (wants && !is_type(&i->type))) return broken(c, v, "its type");
    if (!type_fits(c, i)) return broken(c, v, "operands of such types");
    WK_TRY(check_region(c, v));
    c->seen[v] = 1;
  }
  return c->depth ? wk_fail(WK_INTERNAL_ERROR, "a region of a kernel has no end") : WK_OK;
}

wk_status wk__tile_verify(const wk__tile_kernel *k) {
  checker c = {.k = k, .seen = wk__alloc_zeroed((size_t)k->count * sizeof *c.seen)};
  if (!c.seen) return WK_OUT_OF_MEMORY;
  if (k->warps < 1 || k->warps > 16 || (k->warps & (k->warps - 1))) {
    wk__free(c.seen);
    return wk_fail(WK_INTERNAL_ERROR, "a kernel of %d warps", k->warps);
  }
  if (k->stages < 1) {
    wk__free(c.seen);
    return wk_fail(WK_INTERNAL_ERROR, "a kernel of %d stages", k->stages);
  }
  wk_status status = check(&c);
  wk__free(c.seen);
  return status;
}
