/* Building kernels: instructions, dtypes, shapes. Memory and regions are in build_memory.c and build_regions.c.
 *
 * In: what a program says, operation by operation. Out: instructions of well-formed types; numbers are folded where all
 * operands are known. Invariant: each function checks what it takes; a program's mistake is an error with the words of
 * the language (dtypes are "fp32", shapes ['64']). Tests: tests/c/test_tile.c. */
#include "tile/internal.h"

const wk__tile_op_info wk__tile_ops[WK__TILE_OP_COUNT] = {
#define TILE(name, operands, class) {#name, operands, WK__TILE_##class},
#include "tile/tile_ops.def"
#undef TILE
};

const char *const wk__tile_atomics[WK__TILE_ATOMICS] = {"add", "max", "min", "and", "or", "xor", "xchg", "cas"};

/* ---- kernels ---- */

wk__tile_kernel *wk__tile_create(void) {
  wk__tile_kernel *k = wk__alloc_zeroed(sizeof *k);
  if (!k) return NULL;
  if (wk__grow(&k->instrs, &k->capacity, 64, sizeof *k->instrs) != WK_OK) {
    wk__free(k);
    return NULL;
  }
  memset(&k->instrs[0], 0, sizeof k->instrs[0]);
  k->count = 1;
  k->warps = 4;
  return k;
}

void wk__tile_release(wk__tile_kernel *k) {
  if (!k) return;
  for (int d = 0; d < WK_DEVICE_TYPE_COUNT; d++) {
    wk__tile_code *code = atomic_load(&k->codes[d]);
    if (code) code->release(code);
  }
  wk__free(k->instrs);
  wk__free(k->name);
  wk__free(k);
}

bool wk__tile_same_shape(const wk__tile_type *a, const wk__tile_type *b) {
  return a->ndim == b->ndim && memcmp(a->shape, b->shape, sizeof a->shape) == 0;
}
bool wk__tile_same_type(const wk__tile_type *a, const wk__tile_type *b) {
  return a->dtype == b->dtype && a->pointer == b->pointer && wk__tile_same_shape(a, b);
}

bool wk__tile_needs_rounding(const wk__tile_instr *i) {
  static const bool exact[WK__LOOP_COUNT] = {
      [WK__LOOP_bit_and] = true, [WK__LOOP_bit_or] = true, [WK__LOOP_bit_xor] = true,
      [WK__LOOP_max] = true,     [WK__LOOP_min] = true,    [WK__LOOP_where] = true,
      [WK__LOOP_sign] = true,    [WK__LOOP_trunc] = true,  [WK__LOOP_fmod] = true,
  };
  const wk__tile_type *t = &i->type;
  int compute = wk__tile_compute(t);
  if (i->op == WK__TILE_map && exact[i->map]) return false;
  return !t->pointer && compute != WK_BOOL && compute != t->dtype && t->dtype != WK_UINT64;
}

/* ---- instructions ---- */

wk__tile wk__tile_refuse(wk__tile_builder *b, wk_status category, const char *format, ...) {
  char text[512];
  va_list args;
  if (b->status != WK_OK) return 0;
  va_start(args, format);
  (void)vsnprintf(text, sizeof text, format, args);
  va_end(args);
  b->status = wk_fail(category, "%s", text);
  return 0;
}

wk__tile wk__tile_insert(wk__tile_builder *b, wk__tile before, const wk__tile_instr *instr) {
  wk__tile_kernel *k = b->kernel;
  if (b->status != WK_OK) return 0;
  if ((b->status = wk__grow(&k->instrs, &k->capacity, k->count + 1, sizeof *k->instrs)) != WK_OK) return 0;
  wk__tile v = (wk__tile)k->count++, after = k->instrs[before].previous;
  k->instrs[v] = *instr;
  k->instrs[v].line = b->line;
  k->instrs[v].previous = after, k->instrs[v].next = before;
  k->instrs[after].next = v;
  k->instrs[before].previous = v;
  return v;
}

wk__tile wk__tile_append(wk__tile_builder *b, const wk__tile_instr *instr) { return wk__tile_insert(b, 0, instr); }

wk__tile tile_emit(wk__tile_builder *b, wk__tile_op op, const wk__tile_type *type, wk__tile x, wk__tile y, wk__tile z) {
  wk__tile_instr i = {.op = (uint8_t)op, .operands = {x, y, z}};
  if (type) i.type = *type;
  return wk__tile_append(b, &i);
}

void wk__tile_builder_init(wk__tile_builder *b, wk__tile_kernel *kernel) { *b = (wk__tile_builder){.kernel = kernel}; }

void wk__tile_builder_release(wk__tile_builder *b) {
  for (int d = 0; d < b->depth; d++) wk__free(b->regions[d].carries);
  b->depth = 0;
}

static wk__tile numbered(wk__tile_builder *b, wk__tile_op op, wk_dtype dtype, bool pointer, int64_t number) {
  wk__tile_instr i = {.op = (uint8_t)op,
                      .type = {.dtype = (uint8_t)dtype, .pointer = pointer, .shape = {1, 1, 1}},
                      .number = {.category = WK__INTEGER_KIND, .i = number}};
  return wk__tile_append(b, &i);
}

wk__tile wk__tile_parameter(wk__tile_builder *b, wk_dtype dtype, bool pointer) {
  if (b->kernel->parameters == WK__TILE_MAX_PARAMETERS)
    return wk__tile_refuse(b, WK_VALUE_ERROR, "a kernel takes at most %d arguments", WK__TILE_MAX_PARAMETERS);
  return numbered(b, WK__TILE_parameter, dtype, pointer, b->kernel->parameters++);
}

wk__tile wk__tile_program_id(wk__tile_builder *b, int axis) {
  if (axis < 0 || axis > 2)
    return wk__tile_refuse(b, WK_VALUE_ERROR, "program_id axis must be 0, 1, or 2 but got %d", axis);
  return numbered(b, WK__TILE_program_id, WK_INT32, false, axis);
}

wk__tile wk__tile_num_programs(wk__tile_builder *b, int axis) {
  if (axis < 0 || axis > 2)
    return wk__tile_refuse(b, WK_VALUE_ERROR, "num_programs axis must be 0, 1, or 2 but got %d", axis);
  return numbered(b, WK__TILE_num_programs, WK_INT32, false, axis);
}

/* ---- names of types, as the language has them ---- */

const char *tile_dtype_name(int dtype) {
  static const char *const names[WK_DTYPE_COUNT] = {
      [WK_BOOL] = "int1",    [WK_FLOAT16] = "fp16",        [WK_BFLOAT16] = "bf16",     [WK_FLOAT32] = "fp32",
      [WK_FLOAT64] = "fp64", [WK_FLOAT8_E4M3] = "fp8e4nv", [WK_FLOAT8_E5M2] = "fp8e5",
  };
  return names[dtype] ? names[dtype] : wk__dtypes[dtype].name;
}

void tile_type_name(const wk__tile_type *t, char *out, size_t bytes) {
  char element[48], shape[64] = "";
  (void)snprintf(element, sizeof element, t->pointer ? "pointer<%s>" : "%s", tile_dtype_name(t->dtype));
  for (int d = 0; d < t->ndim; d++)
    (void)snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s'%d'", d ? ", " : "", (int)t->shape[d]);
  (void)snprintf(out, bytes, t->ndim ? "<[%2$s], %1$s>" : "%s", element, shape);
}

static wk__tile refuse_type(wk__tile_builder *b, const char *text, wk__tile x) {
  char name[TYPE_NAME];
  tile_type_name(type_of(b, x), name, sizeof name);
  return wk__tile_refuse(b, WK_TYPE_ERROR, text, name);
}

static wk__tile refuse_pair(wk__tile_builder *b, wk__tile x, wk__tile y) {
  char first[TYPE_NAME], second[TYPE_NAME];
  tile_type_name(type_of(b, x), first, sizeof first);
  tile_type_name(type_of(b, y), second, sizeof second);
  return wk__tile_refuse(b, WK_TYPE_ERROR, "unexpected type %s and %s", first, second);
}

/* ---- numbers ---- */

wk__tile wk__tile_filled(wk__tile_builder *b, wk__scalar number, const wk__tile_type *type) {
  wk__tile_instr i = {.op = WK__TILE_constant, .type = *type, .number = number};
  bool is_float = wk__dtype_category((wk_dtype)type->dtype) == WK__FLOAT_KIND;
  if (!tile_check_shape(b, type->ndim, type->shape)) return 0;
  if (is_float) {
    i.number = (wk__scalar){.category = WK__FLOAT_KIND, .d = wk__scalar_double(number)};
  } else {
    int64_t value = wk__scalar_int(number);
    i.number = (wk__scalar){.category = WK__INTEGER_KIND, .i = type->dtype == WK_BOOL ? value != 0 : value};
  }
  if (type->dtype != WK_UINT64 && type->dtype != WK_INT64 && !type->pointer) {
    char element[16];
    wk__element_set(element, (wk_dtype)type->dtype, i.number);
    wk__scalar rounded = wk__element_get(element, (wk_dtype)type->dtype);
    if (is_float)
      i.number.d = wk__scalar_double(rounded);
    else
      i.number.i = wk__scalar_int(rounded);
  }
  return wk__tile_append(b, &i);
}

wk__tile wk__tile_constant(wk__tile_builder *b, wk__scalar number, wk_dtype dtype) {
  wk__tile_type t = {.dtype = (uint8_t)dtype, .shape = {1, 1, 1}};
  return wk__tile_filled(b, number, &t);
}

wk__tile wk__tile_number(wk__tile_builder *b, wk__scalar n) {
  if (n.category == WK__FLOAT_KIND) {
    double size = n.d < 0 ? -n.d : n.d;
    bool fits = size == 0 || size != size || size > 0x1.fffffep127 * 8 || (size >= 0x1p-126 && size <= 0x1.fffffep127);
    return wk__tile_constant(b, n, fits ? WK_FLOAT32 : WK_FLOAT64);
  }
  if (n.category == WK__BOOL_KIND) return wk__tile_constant(b, n, WK_BOOL);
  bool is_word = n.i == (int64_t)(uint32_t)n.i;
  return wk__tile_constant(b, n,
                           n.is_unsigned         ? WK_UINT64
                           : n.i == (int32_t)n.i ? WK_INT32
                           : is_word             ? WK_UINT32
                                                 : WK_INT64);
}

wk__tile wk__tile_range(wk__tile_builder *b, int64_t start, int64_t end) {
  if (start != (int32_t)start || end != (int32_t)end)
    return wk__tile_refuse(b, WK_VALUE_ERROR, "arange must fit in int32");
  if (end <= start)
    return wk__tile_refuse(b, WK_VALUE_ERROR, "arange's end argument must be greater than the start argument");
  int64_t n = end - start;
  if (n & (n - 1)) return wk__tile_refuse(b, WK_VALUE_ERROR, "arange's range must be a power of 2");
  wk__tile_instr i = {.op = WK__TILE_range,
                      .type = {.dtype = WK_INT32, .ndim = 1, .shape = {(int32_t)n, 1, 1}},
                      .number = {.category = WK__INTEGER_KIND, .i = start}};
  if (!tile_check_shape(b, 1, i.type.shape)) return 0;
  return wk__tile_append(b, &i);
}

bool tile_known(const wk__tile_builder *b, wk__tile x) { return b->kernel->instrs[x].op == WK__TILE_constant; }

/* ---- shapes ---- */

bool tile_check_shape(wk__tile_builder *b, int ndim, const int32_t *shape) {
  int64_t n = 1;
  if (b->status != WK_OK) return false;
  for (int d = 0; d < ndim; d++) {
    if (shape[d] < 1 || (shape[d] & (shape[d] - 1)))
      return wk__tile_refuse(b, WK_VALUE_ERROR, "Shape element %d must be a power of 2", d), false;
    n *= shape[d];
    if (n > WK__TILE_MAX_ELEMENTS)
      return wk__tile_refuse(b, WK_VALUE_ERROR, "numel (%lld) exceeds triton maximum tensor numel (%d)", (long long)n,
                             WK__TILE_MAX_ELEMENTS),
             false;
  }
  return true;
}

static bool set_shape(wk__tile_builder *b, wk__tile_type *t, int ndim, const int64_t *shape) {
  if (ndim > WK__TILE_DIMS)
    return wk__tile_refuse(b, WK_VALUE_ERROR, "blocks have at most %d dims, and this has %d", WK__TILE_DIMS, ndim),
           false;
  t->ndim = (uint8_t)ndim;
  for (int d = 0; d < WK__TILE_DIMS; d++) {
    int64_t size = d < ndim ? shape[d] : 1;
    if (size != (int32_t)size || size < 1)
      return wk__tile_refuse(b, WK_VALUE_ERROR, "Shape element %d must be a power of 2", d), false;
    t->shape[d] = (int32_t)size;
  }
  return tile_check_shape(b, ndim, t->shape);
}

wk__tile wk__tile_view(wk__tile_builder *b, wk__tile x, int ndim, const int64_t *shape) {
  if (b->status != WK_OK) return 0;
  wk__tile_type t = *type_of(b, x);
  if (!set_shape(b, &t, ndim, shape)) return 0;
  if (wk__tile_elements(&t) != wk__tile_elements(type_of(b, x)))
    return wk__tile_refuse(b, WK_VALUE_ERROR, "reshape() cannot change total number of elements in tensor");
  if (wk__tile_same_type(&t, type_of(b, x))) return x;
  if (tile_known(b, x)) return wk__tile_filled(b, b->kernel->instrs[x].number, &t);
  return tile_emit(b, WK__TILE_view, &t, x, 0, 0);
}

wk__tile wk__tile_expand_dims(wk__tile_builder *b, wk__tile x, int axis) {
  if (b->status != WK_OK) return 0;
  const wk__tile_type *t = type_of(b, x);
  int64_t shape[WK__TILE_DIMS + 1];
  int ndim = t->ndim, at = axis < 0 ? axis + ndim + 1 : axis;
  if (at < 0 || at > ndim)
    return wk__tile_refuse(b, WK_VALUE_ERROR, "invalid axis %d. Expected %d <= axis <= %d", axis, -ndim - 1, ndim);
  for (int d = 0; d <= ndim; d++) shape[d] = d == at ? 1 : t->shape[d < at ? d : d - 1];
  return wk__tile_view(b, x, ndim + 1, shape);
}

wk__tile wk__tile_broadcast(wk__tile_builder *b, wk__tile x, int ndim, const int64_t *shape) {
  if (b->status != WK_OK) return 0;
  const wk__tile_type *from = type_of(b, x);
  wk__tile_type t = *from;
  if (!set_shape(b, &t, ndim, shape)) return 0;
  if (wk__tile_same_type(&t, from)) return x;
  from = type_of(b, x);
  if (from->ndim != 0 && from->ndim != ndim)
    return wk__tile_refuse(b, WK_VALUE_ERROR, "Cannot broadcast, rank mismatch: %d dims to %d", from->ndim, ndim);
  for (int d = 0; d < from->ndim; d++)
    if (from->shape[d] != 1 && from->shape[d] != t.shape[d])
      return wk__tile_refuse(
          b, WK_VALUE_ERROR,
          "Cannot broadcast, the expanded size of the tensor (%d) must match the existing size (%d) at "
          "non-singleton dimension %d",
          (int)t.shape[d], (int)from->shape[d], d);
  if (tile_known(b, x)) return wk__tile_filled(b, b->kernel->instrs[x].number, &t);
  return tile_emit(b, WK__TILE_broadcast, &t, x, 0, 0);
}

/* Of fewer dims: they are the last ones. */
static wk__tile with_dims(wk__tile_builder *b, wk__tile x, int ndim) {
  while (b->status == WK_OK && type_of(b, x)->ndim && type_of(b, x)->ndim < ndim) x = wk__tile_expand_dims(b, x, 0);
  return x;
}

bool wk__tile_broadcast_pair(wk__tile_builder *b, wk__tile *x, wk__tile *y) {
  if (b->status != WK_OK) return false;
  int ndim = (int)wk__max(type_of(b, *x)->ndim, type_of(b, *y)->ndim);
  *x = with_dims(b, *x, ndim), *y = with_dims(b, *y, ndim);
  if (b->status != WK_OK) return false;
  int64_t shape[WK__TILE_DIMS];
  const wk__tile_type *s = type_of(b, *x), *t = type_of(b, *y);
  for (int d = 0; d < ndim; d++) {
    int64_t p = s->ndim ? s->shape[d] : 1, q = t->ndim ? t->shape[d] : 1;
    if (p != q && p != 1 && q != 1)
      return wk__tile_refuse(b, WK_VALUE_ERROR,
                             "Cannot make_shape_compatible: incompatible dimensions at index %d: %lld and %lld", d,
                             (long long)p, (long long)q),
             false;
    shape[d] = wk__max(p, q);
  }
  *x = wk__tile_broadcast(b, *x, ndim, shape);
  *y = wk__tile_broadcast(b, *y, ndim, shape);
  return b->status == WK_OK;
}

wk__tile wk__tile_permute(wk__tile_builder *b, wk__tile x, int ndim, const int *dims) {
  if (b->status != WK_OK) return 0;
  const wk__tile_type *from = type_of(b, x);
  wk__tile_instr i = {.op = WK__TILE_permute, .type = *from, .operands = {x}, .number = {.category = WK__INTEGER_KIND}};
  int seen = 0;
  if (ndim != from->ndim) return wk__tile_refuse(b, WK_VALUE_ERROR, "permute dims must have the same length as shape");
  for (int d = 0; d < ndim; d++) {
    if (dims[d] < 0 || dims[d] >= ndim || seen >> dims[d] & 1)
      return wk__tile_refuse(b, WK_VALUE_ERROR, "permute dims must be a permutation of 0, 1, ..., n-1");
    seen |= 1 << dims[d];
    i.type.shape[d] = from->shape[dims[d]];
    i.number.i |= (int64_t)dims[d] << 4 * d;
  }
  if (tile_known(b, x)) return wk__tile_filled(b, b->kernel->instrs[x].number, &i.type);
  return wk__tile_append(b, &i);
}

/* ---- casts ---- */

wk__tile wk__tile_cast(wk__tile_builder *b, wk__tile x, wk_dtype dtype) {
  if (b->status != WK_OK) return 0;
  wk__tile_type t = *type_of(b, x);
  if (t.pointer && dtype != WK_INT64 && dtype != WK_UINT64 && dtype != WK_BOOL)
    return refuse_type(b, "cannot cast %s to a number", x);
  if (!t.pointer && t.dtype == dtype) return x;
  t.dtype = (uint8_t)dtype, t.pointer = false;
  const wk__tile_instr *i = &b->kernel->instrs[x];
  bool to_integer = wk__dtype_category(dtype) == WK__INTEGER_KIND;
  if (tile_known(b, x) && !(to_integer && i->number.category == WK__FLOAT_KIND)) {
    wk__scalar n = i->number;
    if (dtype == WK_BOOL) n = (wk__scalar){.category = WK__BOOL_KIND, .i = wk__scalar_double(n) != 0};
    return wk__tile_filled(b, n, &t);
  }
  return tile_emit(b, WK__TILE_cast, &t, x, 0, 0);
}

wk__tile wk__tile_cast_pointer(wk__tile_builder *b, wk__tile x, wk_dtype dtype) {
  if (b->status != WK_OK) return 0;
  wk__tile_type t = *type_of(b, x);
  if (!t.pointer && t.dtype != WK_INT64 && t.dtype != WK_UINT64)
    return refuse_type(b, "cannot cast %s to a pointer", x);
  if (t.pointer && t.dtype == dtype) return x;
  t.dtype = (uint8_t)dtype, t.pointer = true;
  return tile_emit(b, WK__TILE_cast, &t, x, 0, 0);
}

wk__tile wk__tile_bits(wk__tile_builder *b, wk__tile x, wk_dtype dtype) {
  if (b->status != WK_OK) return 0;
  wk__tile_type t = *type_of(b, x);
  if (t.pointer) return refuse_type(b, "cannot bitcast %s", x);
  if (wk__dtypes[t.dtype].size != wk__dtypes[dtype].size)
    return wk__tile_refuse(b, WK_VALUE_ERROR, "Cannot bitcast data-type of size %d to data-type of size %d",
                           8 * wk__dtypes[t.dtype].size, 8 * wk__dtypes[dtype].size);
  if (t.dtype == dtype) return x;
  t.dtype = (uint8_t)dtype;
  return tile_emit(b, WK__TILE_bits, &t, x, 0, 0);
}

/* ---- maps ---- */

wk__loop_op tile_loop_op(const char *name) {
  for (int op = 1; op < WK__LOOP_COUNT; op++)
    if (strcmp(wk__loop_ops[op].name, name) == 0) return (wk__loop_op)op;
  return WK__LOOP_NONE;
}

static wk__tile map(wk__tile_builder *b, wk__loop_op op, int dtype, wk__tile x, wk__tile y, wk__tile z) {
  if (b->status != WK_OK) return 0;
  wk__tile_instr i = {.op = WK__TILE_map, .map = (uint8_t)op, .type = *type_of(b, x), .operands = {x, y, z}};
  i.type.dtype = (uint8_t)dtype, i.type.pointer = false;
  return wk__tile_append(b, &i);
}

static bool is_float(const wk__tile_type *t) {
  return !t->pointer && wk__dtype_category((wk_dtype)t->dtype) == WK__FLOAT_KIND;
}
static bool is_integer(const wk__tile_type *t) { return !t->pointer && !is_float(t); }

wk__tile wk__tile_unary(wk__tile_builder *b, const char *name, wk__tile x) {
  if (b->status != WK_OK) return 0;
  const wk__tile_type *t = type_of(b, x);
  wk__loop_op op = tile_loop_op(name);
  if (t->pointer) return refuse_type(b, "wrong type argument to unary operation (%s)", x);
  if (strcmp(name, "exp2") == 0 || strcmp(name, "log2") == 0) {
    if (!is_float(t)) return refuse_type(b, "Expected dtype ['fp32', 'fp64'] but got %s", x);
    return tile_emit(b, name[0] == 'e' ? WK__TILE_exp2 : WK__TILE_log2, t, x, 0, 0);
  }
  if (op == WK__LOOP_NONE || wk__loop_ops[op].arity != 1 || wk__loop_class_of(op) != WK__CLASS_MAP)
    return wk__tile_refuse(b, WK_VALUE_ERROR, "there is no operation of one operand '%s'", name);
  if (wk__loop_ops[op].rule == WK__RULE_TEST) return map(b, op, WK_BOOL, x, 0, 0);
  if (wk__loop_ops[op].rule == WK__RULE_FLOAT && !is_float(t))
    return refuse_type(b, "Expected dtype ['fp32', 'fp64'] but got %s", x);
  if (wk__loop_ops[op].rule == WK__RULE_INTEGER && !is_integer(t))
    return refuse_type(b, "wrong type argument to unary ~ (%s)", x);
  if (t->dtype == WK_BOOL && op == WK__LOOP_neg) return refuse_type(b, "wrong type argument to unary minus (%s)", x);
  if (op == WK__LOOP_neg && tile_known(b, x) && t->dtype != WK_BOOL) {
    wk__scalar n = b->kernel->instrs[x].number;
    wk__tile_type type = *t;
    if (n.category == WK__FLOAT_KIND)
      n.d = -n.d;
    else
      n.i = (int64_t) - (uint64_t)n.i;
    return wk__tile_filled(b, n, &type);
  }
  if (op == WK__LOOP_abs && (t->dtype == WK_BOOL || wk__dtype_is_unsigned(t->dtype))) return x;
  return map(b, op, t->dtype, x, 0, 0);
}

typedef struct binary_op {
  const char *name;
  uint8_t op;                           /* wk__loop_op, of floats */
  uint8_t integer;                      /* of integers, where it is another */
  bool divides, bits, compares, floats; /* floats: of integers in f32 */
} binary_op;
static const binary_op binary_ops[] = {
    {"add", WK__LOOP_add, 0, 0, 0, 0, 0},
    {"sub", WK__LOOP_sub, 0, 0, 0, 0, 0},
    {"mul", WK__LOOP_mul, 0, 0, 0, 0, 0},
    {"truediv", WK__LOOP_div, 0, 1, 0, 0, 1},
    {"floordiv", 0, WK__LOOP_trunc_div, 1, 0, 0, 0},
    {"mod", WK__LOOP_fmod, WK__LOOP_fmod, 1, 0, 0, 0},
    {"and", 0, WK__LOOP_bit_and, 0, 1, 0, 0},
    {"or", 0, WK__LOOP_bit_or, 0, 1, 0, 0},
    {"xor", 0, WK__LOOP_bit_xor, 0, 1, 0, 0},
    {"lshift", 0, WK__LOOP_shift_left, 0, 1, 0, 0},
    {"rshift", 0, WK__LOOP_shift_right, 0, 1, 0, 0},
    {"eq", WK__LOOP_eq, 0, 0, 0, 1, 0},
    {"ne", WK__LOOP_ne, 0, 0, 0, 1, 0},
    {"lt", WK__LOOP_lt, 0, 0, 0, 1, 0},
    {"le", WK__LOOP_le, 0, 0, 0, 1, 0},
    {"gt", WK__LOOP_gt, 0, 0, 0, 1, 0},
    {"ge", WK__LOOP_ge, 0, 0, 0, 1, 0},
    {"maximum", WK__LOOP_max, 0, 0, 0, 0, 0},
    {"minimum", WK__LOOP_min, 0, 0, 0, 0, 0},
    {"pow", WK__LOOP_pow, 0, 0, 0, 0, 1},
};

/* 0: the two have no common dtype, and an error is set. The language's rules: numbers of the source give way to the
 * other's kind; else the wider float, fp32 for a mix of small ones, and of integers the wider, unsigned when as wide.
 */
static int common_dtype(wk__tile_builder *b, wk__tile x, wk__tile y, int weak, const binary_op *op, bool *out_ok) {
  const wk__tile_type *s = type_of(b, x), *t = type_of(b, y);
  int p = s->dtype, q = t->dtype;
  *out_ok = true;
  if (weak == 1 || weak == 2) {
    int number = weak == 1 ? p : q, other = weak == 1 ? q : p;
    if (wk__dtype_category((wk_dtype)number) <= wk__dtype_category((wk_dtype)other)) {
      bool small = other == WK_FLOAT16 || other == WK_BFLOAT16;
      return small && op && op->divides ? WK_FLOAT32 : other;
    }
  }
  if (p == WK_FLOAT64 || q == WK_FLOAT64) return WK_FLOAT64;
  if (p == WK_FLOAT32 || q == WK_FLOAT32) return WK_FLOAT32;
  bool halves = p == WK_FLOAT16 || q == WK_FLOAT16, brains = p == WK_BFLOAT16 || q == WK_BFLOAT16;
  if (halves) return op && op->divides ? WK_FLOAT32 : WK_FLOAT16;
  if (brains) return p == q && !(op && op->divides) ? WK_BFLOAT16 : WK_FLOAT32;
  if (is_float(s) || is_float(t)) return p == q ? p : WK_FLOAT16;
  bool p_unsigned = wk__dtype_is_unsigned(p), q_unsigned = wk__dtype_is_unsigned(q);
  if (op && op->divides && !op->floats && p_unsigned != q_unsigned && p != WK_BOOL && q != WK_BOOL) {
    wk__tile_refuse(b, WK_TYPE_ERROR,
                    "Cannot use /, #, or %% with %s and %s because they have different signedness;this is unlikely to "
                    "result in a useful answer. Cast them to the same signedness.",
                    tile_dtype_name(p), tile_dtype_name(q));
    *out_ok = false;
    return 0;
  }
  if (p == WK_BOOL || q == WK_BOOL) return p == WK_BOOL ? q : p;
  int p_size = wk__dtypes[p].size, q_size = wk__dtypes[q].size;
  if (p_size == q_size) return p_unsigned ? p : q;
  return p_size > q_size ? p : q;
}

/* Both of one dtype and shape. */
static int join(wk__tile_builder *b, wk__tile *x, wk__tile *y, int weak, const binary_op *op, bool *out_ok) {
  int dtype = common_dtype(b, *x, *y, weak, op, out_ok);
  if (!*out_ok) return 0;
  if (op && op->floats && wk__dtype_category((wk_dtype)dtype) != WK__FLOAT_KIND) dtype = WK_FLOAT32;
  *x = wk__tile_cast(b, *x, (wk_dtype)dtype), *y = wk__tile_cast(b, *y, (wk_dtype)dtype);
  *out_ok = wk__tile_broadcast_pair(b, x, y);
  return dtype;
}

static wk__tile move_pointer(wk__tile_builder *b, const binary_op *op, wk__tile x, wk__tile y) {
  if (type_of(b, y)->pointer && op->op == WK__LOOP_add && !type_of(b, x)->pointer) {
    wk__tile swap = x;
    x = y, y = swap;
  }
  if ((op->op != WK__LOOP_add && op->op != WK__LOOP_sub) || !is_integer(type_of(b, y))) return refuse_pair(b, x, y);
  if (op->op == WK__LOOP_sub) y = wk__tile_unary(b, "neg", y);
  if (!wk__tile_broadcast_pair(b, &x, &y)) return 0;
  if (tile_known(b, y) && b->kernel->instrs[y].number.i == 0) return x;
  return tile_emit(b, WK__TILE_offset, type_of(b, x), x, y, 0);
}

static wk__tile fold(wk__tile_builder *b, const binary_op *op, int dtype, wk__tile x, wk__tile y, bool *out_done);

/* sum + dot(a, b, 0) is dot(a, b, sum), which needs the product for nothing else. */
static wk__tile join_dot(wk__tile_builder *b, wk__tile x, wk__tile y) {
  for (int turn = 0; turn < 2; turn++) {
    wk__tile product = turn ? x : y, sum = turn ? y : x;
    const wk__tile_instr *i = &b->kernel->instrs[product];
    if (i->op != WK__TILE_dot || b->kernel->instrs[i->operands[2]].op != WK__TILE_constant) continue;
    if (b->kernel->instrs[i->operands[2]].number.d != 0 || !is_float(&i->type) || sum == product) continue;
    return tile_emit(b, WK__TILE_dot, type_of(b, product), i->operands[0], i->operands[1], sum);
  }
  return 0;
}

wk__tile wk__tile_binary(wk__tile_builder *b, const char *name, wk__tile x, wk__tile y, int weak) {
  const binary_op *op = NULL;
  bool ok;
  if (b->status != WK_OK) return 0;
  for (size_t i = 0; i < WK_COUNT(binary_ops); i++)
    if (strcmp(binary_ops[i].name, name) == 0) op = &binary_ops[i];
  if (!op) return wk__tile_refuse(b, WK_VALUE_ERROR, "there is no operation of two operands '%s'", name);
  bool pointers = type_of(b, x)->pointer, both = pointers && type_of(b, y)->pointer;
  if ((pointers || type_of(b, y)->pointer) && !(both && op->compares)) return move_pointer(b, op, x, y);
  if (both) {
    if (!wk__tile_broadcast_pair(b, &x, &y)) return 0;
    return map(b, (wk__loop_op)op->op, WK_BOOL, x, y, 0);
  }
  if (op->bits && (is_float(type_of(b, x)) || is_float(type_of(b, y)))) return refuse_pair(b, x, y);
  int dtype = join(b, &x, &y, weak, op, &ok);
  if (!ok) return 0;
  bool integers = wk__dtype_category((wk_dtype)dtype) != WK__FLOAT_KIND;
  if (!integers && !op->op) return refuse_pair(b, x, y);
  wk__tile folded = fold(b, op, dtype, x, y, &ok);
  if (ok) return folded;
  if (op->op == WK__LOOP_add && !integers && (folded = join_dot(b, x, y))) return folded;
  return map(b, (wk__loop_op)(integers && op->integer ? op->integer : op->op), op->compares ? WK_BOOL : dtype, x, y, 0);
}

/* Integers that are known: sizes of blocks and the like. Floats are left to the engine's functions. */
static wk__tile fold(wk__tile_builder *b, const binary_op *op, int dtype, wk__tile x, wk__tile y, bool *out_done) {
  const wk__tile_instr *i = &b->kernel->instrs[x], *j = &b->kernel->instrs[y];
  bool integers = wk__dtype_category((wk_dtype)dtype) == WK__INTEGER_KIND;
  bool x_known = tile_known(b, x), y_known = tile_known(b, y);
  wk__tile_type type = i->type;
  int64_t p = i->number.i, q = j->number.i, r;
  *out_done = true;
  if (integers && y_known && q == 0 && (op->op == WK__LOOP_add || op->op == WK__LOOP_sub)) return x;
  if (integers && x_known && p == 0 && op->op == WK__LOOP_add) return y;
  if (integers && y_known && q == 1 && (op->op == WK__LOOP_mul || op->integer == WK__LOOP_trunc_div)) return x;
  if (integers && x_known && p == 1 && op->op == WK__LOOP_mul) return y;
  *out_done = integers && x_known && y_known && dtype != WK_UINT64;
  if (!*out_done) return 0;
  switch (op->integer ? op->integer : op->op) {
    case WK__LOOP_add:
      r = (int64_t)((uint64_t)p + (uint64_t)q);
      break;
    case WK__LOOP_sub:
      r = (int64_t)((uint64_t)p - (uint64_t)q);
      break;
    case WK__LOOP_mul:
      r = (int64_t)((uint64_t)p * (uint64_t)q);
      break;
    case WK__LOOP_max:
      r = p > q ? p : q;
      break;
    case WK__LOOP_min:
      r = p < q ? p : q;
      break;
    default:
      *out_done = false;
      return 0;
  }
  return wk__tile_filled(b, (wk__scalar){.category = WK__INTEGER_KIND, .i = r}, &type);
}

wk__tile wk__tile_where(wk__tile_builder *b, wk__tile condition, wk__tile x, wk__tile y, int weak) {
  bool ok;
  if (b->status != WK_OK) return 0;
  condition = wk__tile_cast(b, condition, WK_BOOL);
  if (b->status != WK_OK) return 0;
  if (type_of(b, x)->pointer || type_of(b, y)->pointer) {
    if (type_of(b, x)->pointer != type_of(b, y)->pointer || type_of(b, x)->dtype != type_of(b, y)->dtype)
      return refuse_pair(b, x, y);
    if (!wk__tile_broadcast_pair(b, &x, &y)) return 0;
  } else {
    join(b, &x, &y, weak, NULL, &ok);
    if (!ok) return 0;
  }
  if (!wk__tile_broadcast_pair(b, &condition, &x) || !wk__tile_broadcast_pair(b, &condition, &y)) return 0;
  wk__tile_instr i = {.op = WK__TILE_map, .map = WK__LOOP_where, .type = *type_of(b, x), .operands = {condition, x, y}};
  return wk__tile_append(b, &i);
}

wk__tile wk__tile_fma(wk__tile_builder *b, wk__tile x, wk__tile y, wk__tile z) {
  bool ok;
  if (b->status != WK_OK) return 0;
  join(b, &x, &y, 0, NULL, &ok);
  if (ok) join(b, &x, &z, 0, NULL, &ok);
  if (ok) join(b, &x, &y, 0, NULL, &ok);
  if (!ok) return 0;
  if (!is_float(type_of(b, x))) return refuse_type(b, "Expected dtype ['fp32', 'fp64'] but got %s", x);
  return map(b, WK__LOOP_fma, type_of(b, x)->dtype, x, y, z);
}

/* ---- reductions ---- */

static int axis_of(wk__tile_builder *b, wk__tile x, int axis) {
  int ndim = type_of(b, x)->ndim, at = axis < 0 ? axis + ndim : axis;
  if (at >= 0 && at < ndim) return at;
  wk__tile_refuse(b, WK_VALUE_ERROR, "reduction axis must be < inputs rank (%d), and is %d", ndim, axis);
  return -1;
}

/* Small integers are added as 32 bits, bf16 is folded as fp32. */
static wk__tile widened(wk__tile_builder *b, wk__tile x, bool is_sum) {
  const wk__tile_type *t = type_of(b, x);
  if (t->dtype == WK_BFLOAT16) return wk__tile_cast(b, x, WK_FLOAT32);
  if (wk__dtype_category((wk_dtype)t->dtype) == WK__FLOAT_KIND || wk__dtypes[t->dtype].size >= 4) return x;
  return wk__tile_cast(b, x, is_sum && wk__dtype_is_unsigned(t->dtype) ? WK_UINT32 : WK_INT32);
}

wk__tile wk__tile_reduce(wk__tile_builder *b, const char *name, wk__tile x, int axis, bool keep) {
  if (b->status != WK_OK) return 0;
  static const char *const names[] = {"sum", "max", "min", "argmax", "argmin", "xor_sum", "prod"};
  static const uint8_t ops[] = {WK__LOOP_reduce_sum,    WK__LOOP_reduce_max,    WK__LOOP_reduce_min,
                                WK__LOOP_reduce_argmax, WK__LOOP_reduce_argmin, WK__LOOP_bit_xor,
                                WK__LOOP_reduce_prod};
  int op = -1, at = axis_of(b, x, axis);
  for (size_t i = 0; i < WK_COUNT(names); i++)
    if (strcmp(name, names[i]) == 0) op = ops[i];
  if (at < 0) return 0;
  if (op < 0) return wk__tile_refuse(b, WK_VALUE_ERROR, "there is no reduction '%s'", name);
  if (type_of(b, x)->pointer) return refuse_type(b, "cannot reduce %s", x);
  if (op == WK__LOOP_bit_xor && !is_integer(type_of(b, x)))
    return refuse_type(b, "xor_sum only supported for integers, not %s", x);
  x = widened(b, x, op == WK__LOOP_reduce_sum);
  if (b->status != WK_OK) return 0;
  wk__tile_instr i = {
      .op = WK__TILE_reduce, .map = (uint8_t)op, .axis = (uint8_t)at, .type = *type_of(b, x), .operands = {x}};
  int64_t kept[WK__TILE_DIMS];
  int ndim = i.type.ndim--;
  for (int d = 0; d < ndim; d++) kept[d] = d == at ? 1 : i.type.shape[d];
  for (int d = at; d < WK__TILE_DIMS; d++) i.type.shape[d] = d + 1 < ndim ? i.type.shape[d + 1] : 1;
  if (wk__loop_is_arg(op)) i.type.dtype = WK_INT32;
  wk__tile v = wk__tile_append(b, &i);
  return keep ? wk__tile_view(b, v, ndim, kept) : v;
}

wk__tile wk__tile_scan(wk__tile_builder *b, const char *name, wk__tile x, int axis, bool reverse) {
  if (b->status != WK_OK) return 0;
  int at = axis_of(b, x, axis);
  bool product = strcmp(name, "prod") == 0;
  if (at < 0) return 0;
  if (!product && strcmp(name, "sum") != 0) return wk__tile_refuse(b, WK_VALUE_ERROR, "there is no scan '%s'", name);
  if (type_of(b, x)->pointer) return refuse_type(b, "cannot scan %s", x);
  x = widened(b, x, true);
  if (b->status != WK_OK) return 0;
  wk__tile_instr i = {.op = WK__TILE_scan,
                      .map = product ? WK__LOOP_scan_prod : WK__LOOP_scan_sum,
                      .axis = (uint8_t)at,
                      .type = *type_of(b, x),
                      .operands = {x},
                      .number = {.category = WK__INTEGER_KIND, .i = reverse}};
  return wk__tile_append(b, &i);
}

/* ---- products ---- */

wk__tile wk__tile_dot(wk__tile_builder *b, wk__tile x, wk__tile y, wk__tile sum, wk_dtype dtype) {
  char first[TYPE_NAME], second[TYPE_NAME];
  if (b->status != WK_OK) return 0;
  const wk__tile_type *s = type_of(b, x), *t = type_of(b, y);
  tile_type_name(s, first, sizeof first), tile_type_name(t, second, sizeof second);
  if (s->ndim != 2 || t->ndim != 2)
    return wk__tile_refuse(b, WK_VALUE_ERROR, "Both inputs must be 2D; (lhs: %s vs rhs: %s)", first, second);
  if (s->pointer || t->pointer || s->dtype != t->dtype)
    return wk__tile_refuse(b, WK_TYPE_ERROR, "Both operands must be same dtype. Got %s and %s", first, second);
  if (s->shape[1] != t->shape[0])
    return wk__tile_refuse(
        b, WK_VALUE_ERROR,
        "First input shape (%s) and second input shape (%s) are not compatible for matmul (second index "
        "of first shape (%d) must be equal to first index of second shape (%d)",
        first, second, (int)s->shape[1], (int)t->shape[0]);
  if (s->shape[0] < 1 || s->shape[1] < 16 || t->shape[1] < 1)
    return wk__tile_refuse(b, WK_VALUE_ERROR, "Input shapes should have M >= 1, N >= 1 and K >= 16");
  if (!is_float(s) && s->dtype != WK_INT8 && s->dtype != WK_UINT8)
    return wk__tile_refuse(b, WK_TYPE_ERROR, "Unsupported dtype %s", tile_dtype_name(s->dtype));
  wk__tile_type type = {.ndim = 2, .shape = {s->shape[0], t->shape[1], 1}};
  type.dtype = (uint8_t)(!is_float(s) ? WK_INT32 : s->dtype == WK_FLOAT64 ? WK_FLOAT64 : WK_FLOAT32);
  wk__tile sums = sum && type_of(b, sum)->dtype == type.dtype ? sum : 0;
  if (sum && !wk__tile_same_shape(type_of(b, sum), &type))
    return wk__tile_refuse(b, WK_VALUE_ERROR, "the accumulator of dot() has another shape than the product");
  if (!sums) sums = wk__tile_filled(b, (wk__scalar){.category = WK__INTEGER_KIND}, &type);
  wk__tile v = tile_emit(b, WK__TILE_dot, &type, x, y, sums);
  if (sum && sum != sums) v = wk__tile_binary(b, "add", wk__tile_cast(b, v, (wk_dtype)type_of(b, sum)->dtype), sum, 0);
  return wk__tile_cast(b, v,
                       sum && b->status == WK_OK ? (wk_dtype)type_of(b, sum)->dtype
                       : dtype == WK_DTYPE_NONE  ? (wk_dtype)type.dtype
                                                 : dtype);
}

/* ---- random numbers ---- */

wk__tile wk__tile_philox(wk__tile_builder *b, wk__tile seed, wk__tile offset, int word) {
  if (b->status != WK_OK) return 0;
  if (!is_integer(type_of(b, seed)) || !is_integer(type_of(b, offset))) return refuse_pair(b, seed, offset);
  seed = wk__tile_cast(b, seed, WK_INT64);
  offset = wk__tile_cast(b, offset, WK_UINT32);
  if (!wk__tile_broadcast_pair(b, &seed, &offset)) return 0;
  wk__tile_instr i = {.op = WK__TILE_philox,
                      .type = *type_of(b, offset),
                      .operands = {seed, offset},
                      .number = {.category = WK__INTEGER_KIND, .i = word & 3}};
  return wk__tile_append(b, &i);
}
