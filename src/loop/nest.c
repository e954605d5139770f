/* Nests: creation, and the default handler, which records a body. Equal pure instructions are recorded once, so a
 * lowering may ask for the same input as often as it likes. Errors are sticky in the handler. Tests:
 * tests/c/test_loop.c. */
#include "loop/loop.h"

const wk__loop_op_info wk__loop_ops[WK__LOOP_COUNT] = {
    [WK__LOOP_NONE] = {"none", 0, WK__RULE_SPECIAL, WK__CLASS_NONE},
#define LOOP(name, arity, rule, class) [WK__LOOP_##name] = {#name, arity, WK__RULE_##rule, WK__CLASS_##class},
#include "loop/loop_ops.def"
#undef LOOP
};

wk__nest *wk__nest_create(void) {
  wk__nest *nest = wk__alloc_zeroed(sizeof *nest);
  if (!nest) return NULL;
  if (wk__grow(&nest->instrs, &nest->instr_capacity, 16, sizeof *nest->instrs) != WK_OK) {
    wk__free(nest);
    return NULL;
  }
  memset(nest->instrs, 0, sizeof *nest->instrs);
  nest->instr_count = 1;
  return nest;
}

void wk__nest_release(wk__nest *nest) {
  if (!nest) return;
  wk__free(nest->instrs);
  wk__free(nest->accesses);
  wk__free(nest);
}

/* ---- the recorder ---- */

static bool same_access(const wk__access *a, const wk__access *b) {
  if (a->buffer != b->buffer || a->ndim != b->ndim || a->may_leave != b->may_leave) return false;
  for (int d = 0; d < a->ndim; d++)
    if (!wk_int_same(a->index[d], b->index[d]) || a->indirect[d] != b->indirect[d]) return false;
  return true;
}

static bool same_instr(const wk__nest *nest, const wk__instr *a, const wk__instr *b, const wk__access *b_access) {
  if (a->op != b->op || a->dtype != b->dtype || memcmp(a->operands, b->operands, sizeof a->operands) != 0) return false;
  switch (a->op) {
    case WK__LOOP_load:
    case WK__LOOP_masked_load:
      return same_access(&nest->accesses[a->extra], b_access);
    case WK__LOOP_param:
    case WK__LOOP_round_to:
      return a->extra == b->extra;
    case WK__LOOP_constant:
      return a->number.category == b->number.category && a->number.i == b->number.i;
    case WK__LOOP_index:
    case WK__LOOP_check_index:
      return wk_int_same(a->expression, b->expression) && a->extra == b->extra;
    default:
      return true;
  }
}

static wk__var find_equal(const wk__nest *nest, const wk__instr *instr, const wk__access *access) {
  if (wk__loop_is_store(instr->op)) return 0;
  for (int64_t v = nest->instr_count - 1; v > 0; v--)
    if (same_instr(nest, &nest->instrs[v], instr, access)) return (wk__var)v;
  return 0;
}

static wk_status append(wk__nest *nest, const wk__instr *instr, const wk__access *access) {
  if (nest->instr_count >= UINT16_MAX) return wk_fail(WK_RUNTIME_ERROR, "a kernel body has too many operations");
  WK_TRY(wk__grow(&nest->instrs, &nest->instr_capacity, nest->instr_count + 1, sizeof *nest->instrs));
  wk__instr *slot = &nest->instrs[nest->instr_count];
  *slot = *instr;
  if (access) {
    WK_TRY(wk__grow(&nest->accesses, &nest->access_capacity, nest->access_count + 1, sizeof *nest->accesses));
    slot->extra = (uint16_t)nest->access_count;
    nest->accesses[nest->access_count++] = *access;
    if (wk__loop_is_store(instr->op)) nest->buffers[access->buffer].written = true;
  }
  nest->instr_count++;
  return WK_OK;
}

static wk__var record(wk__loop_handler *handler, const wk__instr *instr, const wk__access *access) {
  wk__nest *nest = ((wk__recorder *)handler)->nest;
  wk__var known = find_equal(nest, instr, access);
  if (known) return known;
  if (instr->op == WK__LOOP_param && instr->extra >= nest->param_count)
    nest->param_count = (uint16_t)(instr->extra + 1);
  handler->status = append(nest, instr, access);
  return handler->status ? 0 : (wk__var)(nest->instr_count - 1);
}

static const wk__instr *recorded(const wk__loop_handler *handler, wk__var value) {
  return &((const wk__recorder *)handler)->nest->instrs[value];
}

static wk_dtype recorded_buffer_dtype(const wk__loop_handler *handler, int buffer) {
  return (wk_dtype)((const wk__recorder *)handler)->nest->buffers[buffer].dtype;
}

void wk__recorder_init(wk__recorder *recorder, wk__nest *nest) {
  recorder->handler = (wk__loop_handler){.emit = record, .get = recorded, .buffer_dtype = recorded_buffer_dtype};
  recorder->nest = nest;
}

/* ---- what lowerings call ---- */

/* Completes per_element and stage from the operands and hands the instruction to the handler. */
static wk__var emit(wk__loop_handler *h, wk__instr instr, const wk__access *access) {
  if (h->status) return 0;
  int arity = wk__loop_ops[instr.op].arity;
  for (int i = 0; i < arity; i++) {
    if (!instr.operands[i]) {
      h->status = wk_fail(WK_INTERNAL_ERROR, "loop operation %s lacks operand %d", wk__loop_ops[instr.op].name, i);
      return 0;
    }
    const wk__instr *operand = h->get(h, instr.operands[i]);
    instr.per_element |= operand->per_element;
    if (operand->stage > instr.stage) instr.stage = operand->stage;
  }
  return h->emit(h, &instr, access);
}

wk_dtype wk__k_dtype(wk__loop_handler *h, wk__var value) {
  return value && !h->status ? (wk_dtype)h->get(h, value)->dtype : WK_FLOAT32;
}

static wk_dtype result_dtype(wk__loop_op op, wk_dtype operand, wk_dtype second) {
  switch (wk__loop_ops[op].rule) {
    case WK__RULE_COMPARE:
    case WK__RULE_TEST:
      return WK_BOOL;
    case WK__RULE_WHERE:
      return second;
    case WK__RULE_SPECIAL:
      return WK_INT64; /* argmax, argmin */
    default:
      return operand;
  }
}

static bool dtype_allowed(wk__loop_op op, wk_dtype dtype) {
  bool floating = dtype == WK_FLOAT32 || dtype == WK_FLOAT64;
  if (wk__loop_ops[op].rule == WK__RULE_FLOAT) return floating;
  if (wk__loop_ops[op].rule == WK__RULE_INTEGER) return !floating;
  return true;
}

wk__var wk__k_op(wk__loop_handler *h, wk__loop_op op, wk__var a, wk__var b, wk__var c) {
  if (h->status) return 0;
  wk_dtype first = wk__k_dtype(h, a), second = b ? wk__k_dtype(h, b) : first;
  bool matched = wk__loop_ops[op].rule == WK__RULE_WHERE ? first == WK_BOOL && second == wk__k_dtype(h, c)
                                                         : first == second && (!c || wk__k_dtype(h, c) == first);
  if (!matched || !dtype_allowed(op, first)) {
    h->status = wk_fail(WK_INTERNAL_ERROR, "loop operation %s does not take %s and %s", wk__loop_ops[op].name,
                        wk_dtype_name(first), wk_dtype_name(second));
    return 0;
  }
  wk__instr instr = {.op = (uint8_t)op, .dtype = (uint8_t)result_dtype(op, first, second), .operands = {a, b, c}};
  instr.per_element = wk__loop_is_scan(op);
  if (!wk__loop_is_reduction(op)) return emit(h, instr, NULL);
  const wk__instr *operand = h->get(h, a);
  instr.stage = (uint8_t)(operand->stage + 1);
  return h->emit(h, &instr, NULL); /* a row value, whatever its operand is */
}

static bool uses_reduction_dim(wk_int expression) { return wk__sym_loop_vars(expression) >> WK__FIRST_R; }

static wk__instr access_instr(wk__loop_handler *h, wk__loop_op op, wk__access *access, wk__var value) {
  wk__instr instr = {.op = (uint8_t)op, .operands = {value}};
  for (int d = 0; d < access->ndim; d++) {
    access->per_element |= uses_reduction_dim(access->index[d]);
    if (!access->indirect[d]) continue;
    const wk__instr *indirect = h->get(h, access->indirect[d]);
    access->has_indirect = true;
    access->per_element |= indirect->per_element;
    if (indirect->stage > instr.stage) instr.stage = indirect->stage;
  }
  instr.per_element = access->per_element;
  return instr;
}

wk__var wk__k_load(wk__loop_handler *h, const wk__access *access) {
  if (h->status) return 0;
  wk__access own = *access;
  wk__instr instr = access_instr(h, WK__LOOP_load, &own, 0);
  instr.dtype = wk__dtypes[h->buffer_dtype(h, own.buffer)].compute;
  return emit(h, instr, &own);
}

/* uint64 is computed with as the int64 of the same bits. Of those from 2^63 on half is converted, with a last bit that
 * is set where bits are lost, so that it rounds as the whole. */
static wk__var unsigned_to_float(wk__loop_handler *h, wk__var bits, wk_dtype target) {
  wk__var one = wk__k_integer(h, 1), upper = wk__k_lt(h, bits, wk__k_integer(h, 0));
  wk__var half = wk__k_bit_and(h, wk__k_shift_right(h, bits, one), wk__k_integer(h, INT64_MAX));
  wk__var rounded = wk__k_bit_or(h, half, wk__k_bit_and(h, bits, one));
  wk__var value = wk__k_cast(h, wk__k_where(h, upper, rounded, bits), target);
  return wk__k_where(h, upper, wk__k_add(h, value, value), value);
}
static wk__var float_to_unsigned(wk__loop_handler *h, wk__var value) {
  wk_dtype dtype = wk__k_dtype(h, value);
  wk__var edge = wk__k_constant(h, 0x1p63, dtype), upper = wk__k_ge(h, value, edge);
  wk__var low = wk__k_cast(h, wk__k_where(h, upper, wk__k_sub(h, value, edge), value), WK_INT64);
  return wk__k_where(h, upper, wk__k_bit_xor(h, low, wk__k_integer(h, INT64_MIN)), low);
}

wk__var wk__k_load_as(wk__loop_handler *h, const wk__access *access, wk_dtype compute) {
  wk__var value = wk__k_load(h, access);
  bool words = !h->status && h->buffer_dtype(h, access->buffer) == WK_UINT64;
  return words && wk_dtype_is_floating(compute) ? unsigned_to_float(h, value, compute) : wk__k_cast(h, value, compute);
}

wk__var wk__k_masked_load(wk__loop_handler *h, const wk__access *access, wk__var other) {
  if (h->status) return 0;
  wk__access own = *access;
  wk_dtype loaded = (wk_dtype)wk__dtypes[h->buffer_dtype(h, own.buffer)].compute;
  wk__instr instr = access_instr(h, WK__LOOP_masked_load, &own, other);
  instr.dtype = (uint8_t)loaded;
  return emit(h, instr, &own);
}

static void store(wk__loop_handler *h, wk__loop_op op, const wk__access *access, wk__var value) {
  if (h->status) return;
  wk__access own = *access;
  wk_dtype target = (wk_dtype)wk__dtypes[h->buffer_dtype(h, own.buffer)].compute;
  bool words = h->buffer_dtype(h, own.buffer) == WK_UINT64 && wk_dtype_is_floating(wk__k_dtype(h, value));
  value = words ? float_to_unsigned(h, value) : wk__k_cast(h, value, target);
  wk__instr instr = access_instr(h, op, &own, value);
  instr.dtype = (uint8_t)target;
  emit(h, instr, &own);
}
void wk__k_store(wk__loop_handler *h, const wk__access *access, wk__var value) {
  store(h, WK__LOOP_store, access, value);
}
void wk__k_store_add(wk__loop_handler *h, const wk__access *access, wk__var value) {
  store(h, WK__LOOP_store_add, access, value);
}

wk__var wk__k_param(wk__loop_handler *h, int number, wk_dtype dtype) {
  return emit(h, (wk__instr){.op = WK__LOOP_param, .dtype = (uint8_t)dtype, .extra = (uint16_t)number}, NULL);
}

wk__var wk__k_constant(wk__loop_handler *h, double value, wk_dtype dtype) {
  wk__scalar number = {WK__FLOAT_KIND, .d = value};
  if (dtype == WK_BOOL)
    number = (wk__scalar){WK__BOOL_KIND, .i = value != 0};
  else if (!wk_dtype_is_floating(dtype))
    number = (wk__scalar){WK__INTEGER_KIND, .i = (int64_t)value};
  return emit(h, (wk__instr){.op = WK__LOOP_constant, .dtype = (uint8_t)dtype, .number = number}, NULL);
}

wk__var wk__k_integer(wk__loop_handler *h, int64_t value) {
  wk__scalar number = {WK__INTEGER_KIND, .i = value};
  return emit(h, (wk__instr){.op = WK__LOOP_constant, .dtype = WK_INT64, .number = number}, NULL);
}

wk__var wk__k_index(wk__loop_handler *h, wk_int expression) {
  wk__instr instr = {.op = WK__LOOP_index, .dtype = WK_INT64, .expression = expression};
  instr.per_element = uses_reduction_dim(expression);
  return emit(h, instr, NULL);
}

wk__var wk__k_cast(wk__loop_handler *h, wk__var value, wk_dtype dtype) {
  if (h->status || wk__k_dtype(h, value) == dtype) return value;
  return emit(h, (wk__instr){.op = WK__LOOP_cast, .dtype = (uint8_t)dtype, .operands = {value}}, NULL);
}

wk__var wk__k_round_to(wk__loop_handler *h, wk__var value, wk_dtype dtype) {
  wk_dtype own = wk__k_dtype(h, value);
  return emit(
      h, (wk__instr){.op = WK__LOOP_round_to, .dtype = (uint8_t)own, .operands = {value}, .extra = (uint16_t)dtype},
      NULL);
}

static wk__var check_index(wk__loop_handler *h, wk__var index, wk_int size, uint16_t no_wrapping) {
  return emit(
      h,
      (wk__instr){
          .op = WK__LOOP_check_index, .dtype = WK_INT64, .operands = {index}, .extra = no_wrapping, .expression = size},
      NULL);
}
wk__var wk__k_check_index(wk__loop_handler *h, wk__var index, wk_int size) { return check_index(h, index, size, 0); }
wk__var wk__k_check_place(wk__loop_handler *h, wk__var index, wk_int size) { return check_index(h, index, size, 1); }
