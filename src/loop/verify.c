/* What a well-formed nest is.
 *
 * In: a nest, from a recorder, a pass or a text. Out: WK_OK, or WK_INTERNAL_ERROR that names the first instruction that
 * is wrong. Invariant: back ends rely on all that is checked here and check none of it again. The rules stand here once
 * more on purpose, apart from the code that makes nests. Test: tests/c/test_loop.c breaks each rule. */
#include "loop/loop.h"

_Static_assert((int)WK__NEST_MAX_DIMS <= (int)WK__FIRST_R && (int)WK__NEST_MAX_DIMS <= (int)WK__BUFFER_DIMS,
               "leaves for every loop and dim");

static bool is_float(int dtype) { return dtype == WK_FLOAT32 || dtype == WK_FLOAT64; }
static bool is_compute(int dtype) { return is_float(dtype) || dtype == WK_INT64 || dtype == WK_BOOL; }

static wk_status broken(const wk__nest *nest, int64_t v, const char *rule) {
  return wk_fail(WK_INTERNAL_ERROR, "loop instruction %lld, %s: %s", (long long)v,
                 wk__loop_ops[nest->instrs[v].op].name, rule);
}

static const wk__instr *operand(const wk__nest *nest, const wk__instr *instr, int i) {
  return &nest->instrs[instr->operands[i]];
}

static int operand_dtype(const wk__nest *nest, const wk__instr *instr, int i) { return operand(nest, instr, i)->dtype; }

/* ---- index expressions ---- */

/* All that it is made of belongs to the nest. Symbols are known to the environment alone. */
static bool leaves_exist(const wk__nest *nest, wk_int x) {
  int i;
  switch (wk__sym_kind_of(x)) {
    case WK__SYM_KNOWN:
    case WK__SYM_SYMBOL:
      return true;
    case WK__SYM_POISONED:
      return false;
    case WK__SYM_LOOP_VAR:
      i = wk__sym_index(x);
      return i < WK__FIRST_R ? i < nest->pointwise_dims : i - WK__FIRST_R < nest->reduction_dims;
    case WK__SYM_BUFFER_SIZE:
      i = wk__sym_index(x) / WK__BUFFER_DIMS;
      return i < nest->buffer_count && wk__sym_index(x) % WK__BUFFER_DIMS < nest->buffers[i].ndim;
    default:
      for (i = 0; i < wk__sym_count(x); i++)
        if (!leaves_exist(nest, wk__sym_operand(x, i))) return false;
      return true;
  }
}

static bool uses_loop_vars(wk_int x, int first) { return wk__sym_loop_vars(x) >> first != 0; }

static bool is_size(const wk__nest *nest, wk_int x) {
  return leaves_exist(nest, x) && !uses_loop_vars(x, 0) && !(wk_int_is_known(x) && wk_int_value(x) < 0);
}

/* ---- the nest itself ---- */

static wk_status verify_frame(const wk__nest *nest) {
  int dims = nest->pointwise_dims + nest->reduction_dims;
  if (dims > WK__NEST_MAX_DIMS) return wk_fail(WK_INTERNAL_ERROR, "a loop nest of %d dims", dims);
  for (int d = 0; d < dims; d++)
    if (!is_size(nest, nest->sizes[d])) return wk_fail(WK_INTERNAL_ERROR, "loop dim %d: not a size", d);
  if (nest->geometry_free && (nest->pointwise_dims != 1 || nest->reduction_dims != 0))
    return wk_fail(WK_INTERNAL_ERROR, "a loop nest free of geometry is written with one pointwise dim");
  return WK_OK;
}

static wk_status verify_buffers(const wk__nest *nest) {
  if (nest->buffer_count > WK__NEST_MAX_BUFFERS)
    return wk_fail(WK_INTERNAL_ERROR, "a loop nest of %d buffers", nest->buffer_count);
  for (int b = 0; b < nest->buffer_count; b++) {
    const wk__nest_buffer *buffer = &nest->buffers[b];
    if (buffer->ndim > WK__NEST_MAX_DIMS)
      return wk_fail(WK_INTERNAL_ERROR, "loop buffer %d has %d dims", b, buffer->ndim);
    if (buffer->dtype >= WK_DTYPE_COUNT || !is_compute(wk__dtypes[buffer->dtype].compute))
      return wk_fail(WK_INTERNAL_ERROR, "loop buffer %d: kernels do not compute with its dtype", b);
  }
  return WK_OK;
}

/* ---- operands and accesses ---- */

/* `value` is one that instruction v may use. */
static bool is_defined(const wk__nest *nest, int64_t v, wk__var value) {
  return value > 0 && value < v && !wk__loop_is_store(nest->instrs[value].op);
}

static wk_status verify_operands(const wk__nest *nest, int64_t v) {
  const wk__instr *instr = &nest->instrs[v];
  for (int i = 0; i < 3; i++) {
    bool wanted = i < wk__loop_ops[instr->op].arity;
    if (!wanted && instr->operands[i]) return broken(nest, v, "too many operands");
    if (wanted && !is_defined(nest, v, instr->operands[i]))
      return broken(nest, v, "an operand is not defined before it");
  }
  return WK_OK;
}

/* The access varies with the element of a row, so it must be marked; others may be, for a row of one element. */
static bool varies_in_row(const wk__nest *nest, const wk__access *access) {
  for (int d = 0; d < access->ndim; d++) {
    if (uses_loop_vars(access->index[d], WK__FIRST_R)) return true;
    if (access->indirect[d] && nest->instrs[access->indirect[d]].per_element) return true;
  }
  return false;
}

static wk_status verify_coordinates(const wk__nest *nest, int64_t v, const wk__access *access) {
  bool has_indirect = false;
  for (int d = 0; d < access->ndim; d++) {
    wk__var indirect = access->indirect[d];
    if (!leaves_exist(nest, access->index[d])) return broken(nest, v, "a coordinate uses what the nest does not have");
    if (!indirect) continue;
    has_indirect = true;
    if (!is_defined(nest, v, indirect)) return broken(nest, v, "an indirect coordinate is not defined before it");
    if (nest->instrs[indirect].dtype != WK_INT64) return broken(nest, v, "an indirect coordinate is not an integer");
  }
  if (access->has_indirect != has_indirect) return broken(nest, v, "has_indirect is wrong");
  if (varies_in_row(nest, access) && !access->per_element) return broken(nest, v, "the access is per element");
  return WK_OK;
}

/* Launching such a nest ignores coordinates: every buffer is walked alike. */
static bool is_plain(const wk__access *access) {
  return access->ndim == 1 && wk_int_same(access->index[0], wk__loop_i(0)) && !access->has_indirect;
}

/* What lies outside of a buffer is known before the loop runs, so that a back end may fill memory with it. */
static wk_status verify_mask(const wk__nest *nest, int64_t v, const wk__access *access) {
  const wk__instr *instr = &nest->instrs[v];
  if (instr->op != WK__LOOP_masked_load)
    return access->may_leave ? broken(nest, v, "only a masked_load may leave its buffer") : WK_OK;
  if (access->may_leave == 0 || access->may_leave >> access->ndim) return broken(nest, v, "no coordinate is marked");
  if (access->has_indirect) return broken(nest, v, "an indirect coordinate is checked, not masked");
  if (!wk__loop_is_number(operand(nest, instr, 0)->op)) return broken(nest, v, "what lies outside is not a number");
  return WK_OK;
}

static wk_status verify_access(const wk__nest *nest, int64_t v) {
  const wk__instr *instr = &nest->instrs[v];
  if (!wk__loop_has_access(instr->op)) return WK_OK;
  if (instr->extra >= nest->access_count) return broken(nest, v, "there is no such access");
  const wk__access *access = &nest->accesses[instr->extra];
  if (access->buffer >= nest->buffer_count) return broken(nest, v, "there is no such buffer");
  const wk__nest_buffer *buffer = &nest->buffers[access->buffer];
  if (access->ndim != buffer->ndim) return broken(nest, v, "the rank is not the buffer's");
  if (wk__loop_is_store(instr->op) && !buffer->written) return broken(nest, v, "the buffer is not marked as written");
  WK_TRY(verify_coordinates(nest, v, access));
  WK_TRY(verify_mask(nest, v, access));
  if (nest->geometry_free && !is_plain(access))
    return broken(nest, v, "the nest is free of geometry, the access is not");
  return WK_OK;
}

/* ---- dtypes ---- */

static bool is_constant_of(wk__scalar number, int dtype) {
  if (is_float(dtype)) return number.category == WK__FLOAT_KIND;
  if (dtype == WK_BOOL) return number.category == WK__BOOL_KIND && (number.i == 0 || number.i == 1);
  return number.category == WK__INTEGER_KIND;
}

static bool is_storage(int dtype) { return dtype < WK_DTYPE_COUNT && is_compute(wk__dtypes[dtype].compute); }

static int buffer_compute(const wk__nest *nest, const wk__instr *instr) {
  return wk__dtypes[nest->buffers[nest->accesses[instr->extra].buffer].dtype].compute;
}

static bool special_dtypes_agree(const wk__nest *nest, const wk__instr *instr) {
  int first = wk__loop_ops[instr->op].arity ? operand_dtype(nest, instr, 0) : instr->dtype;
  switch (instr->op) {
    case WK__LOOP_load:
    case WK__LOOP_masked_load:
    case WK__LOOP_store:
    case WK__LOOP_store_add:
      return instr->dtype == buffer_compute(nest, instr) && first == instr->dtype;
    case WK__LOOP_constant:
      return is_constant_of(instr->number, instr->dtype);
    case WK__LOOP_cast:
      return first != instr->dtype;
    case WK__LOOP_round_to:
      return first == instr->dtype && is_storage(instr->extra);
    case WK__LOOP_index:
    case WK__LOOP_check_index:
      return instr->dtype == WK_INT64 && first == WK_INT64;
    case WK__LOOP_reduce_argmax:
    case WK__LOOP_reduce_argmin:
      return instr->dtype == WK_INT64;
    default:
      return true;
  }
}

/* Operands from the i-th on have this dtype. */
static bool operands_are(const wk__nest *nest, const wk__instr *instr, int i, int dtype) {
  for (; i < wk__loop_ops[instr->op].arity; i++)
    if (operand_dtype(nest, instr, i) != dtype) return false;
  return true;
}

static bool dtypes_agree(const wk__nest *nest, const wk__instr *instr) {
  bool same = operands_are(nest, instr, 0, instr->dtype);
  switch (wk__loop_ops[instr->op].rule) {
    case WK__RULE_SAME:
      return same;
    case WK__RULE_FLOAT:
      return same && is_float(instr->dtype);
    case WK__RULE_INTEGER:
      return same && !is_float(instr->dtype);
    case WK__RULE_TEST:
      return instr->dtype == WK_BOOL;
    case WK__RULE_COMPARE:
      return instr->dtype == WK_BOOL && operands_are(nest, instr, 1, operand_dtype(nest, instr, 0));
    case WK__RULE_WHERE:
      return operand_dtype(nest, instr, 0) == WK_BOOL && operands_are(nest, instr, 1, instr->dtype);
    default:
      return special_dtypes_agree(nest, instr);
  }
}

static wk_status verify_dtypes(const wk__nest *nest, int64_t v) {
  const wk__instr *instr = &nest->instrs[v];
  if (!is_compute(instr->dtype)) return broken(nest, v, "kernels do not compute in this dtype");
  return dtypes_agree(nest, instr) ? WK_OK : broken(nest, v, "the dtypes do not agree");
}

/* ---- numbers and expressions that instructions carry ---- */

static wk_status verify_payload(const wk__nest *nest, int64_t v) {
  const wk__instr *instr = &nest->instrs[v];
  bool has_expression = instr->op == WK__LOOP_index || instr->op == WK__LOOP_check_index;
  if (has_expression && nest->geometry_free) return broken(nest, v, "the nest is free of geometry");
  if (instr->op == WK__LOOP_param && instr->extra >= nest->param_count)
    return broken(nest, v, "there is no such parameter");
  if (instr->op == WK__LOOP_index && !leaves_exist(nest, instr->expression))
    return broken(nest, v, "it uses what the nest does not have");
  if (instr->op == WK__LOOP_check_index && !is_size(nest, instr->expression)) return broken(nest, v, "not a size");
  return WK_OK;
}

/* ---- where in the nest a value is computed ---- */

typedef struct place {
  bool per_element;
  int stage;
} place;

static void add_operand(place *p, const wk__instr *operand) {
  p->per_element |= operand->per_element;
  if (operand->stage > p->stage) p->stage = operand->stage;
}

static void add_access(place *p, const wk__nest *nest, const wk__access *access) {
  p->per_element |= access->per_element;
  for (int d = 0; d < access->ndim; d++)
    if (access->indirect[d]) add_operand(p, &nest->instrs[access->indirect[d]]);
}

static place place_of(const wk__nest *nest, const wk__instr *instr) {
  place p = {false, 0};
  for (int i = 0; i < wk__loop_ops[instr->op].arity; i++) add_operand(&p, operand(nest, instr, i));
  if (wk__loop_has_access(instr->op)) add_access(&p, nest, &nest->accesses[instr->extra]);
  if (instr->op == WK__LOOP_index) p.per_element = uses_loop_vars(instr->expression, WK__FIRST_R);
  if (wk__loop_is_scan(instr->op)) p.per_element = true;
  if (wk__loop_is_reduction(instr->op)) p = (place){false, p.stage + 1};
  return p;
}

static wk_status verify_place(const wk__nest *nest, int64_t v) {
  const wk__instr *instr = &nest->instrs[v];
  place p = place_of(nest, instr);
  if (nest->reduction_dims == 0 && (wk__loop_is_reduction(instr->op) || wk__loop_is_scan(instr->op)))
    return broken(nest, v, "the nest has no reduction dims");
  if (nest->reduction_dims == 0 && p.per_element) return broken(nest, v, "per element, but the nest has no rows");
  if (instr->per_element != p.per_element) return broken(nest, v, "per_element does not follow from its operands");
  if (instr->stage != p.stage) return broken(nest, v, "stage does not follow from its operands");
  return WK_OK;
}

/* ---- all of it ---- */

static wk_status verify_instr(const wk__nest *nest, int64_t v) {
  if (nest->instrs[v].op == WK__LOOP_NONE || nest->instrs[v].op >= WK__LOOP_COUNT)
    return wk_fail(WK_INTERNAL_ERROR, "loop instruction %lld: there is no operation %d", (long long)v,
                   nest->instrs[v].op);
  WK_TRY(verify_operands(nest, v));
  WK_TRY(verify_access(nest, v));
  WK_TRY(verify_dtypes(nest, v));
  WK_TRY(verify_payload(nest, v));
  return verify_place(nest, v);
}

wk_status wk__nest_verify(const wk__nest *nest) {
  WK_TRY(verify_buffers(nest));
  WK_TRY(verify_frame(nest));
  for (int64_t v = 1; v < nest->instr_count; v++) WK_TRY(verify_instr(nest, v));
  return WK_OK;
}
