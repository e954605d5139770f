/* Building what touches memory. Test: tests/c/test_tile.c. */
#include "tile/internal.h"

static wk__tile refuse_pointer(wk__tile_builder *b, const char *what, wk__tile x) {
  char name[TYPE_NAME];
  tile_type_name(type_of(b, x), name, sizeof name);
  return wk__tile_refuse(b, WK_TYPE_ERROR, "Unsupported ptr type %s in `%s`", name, what);
}

/* To the pointers' shape, which a wider operand gives them in turn where `both`. */
static bool fit(wk__tile_builder *b, wk__tile *pointer, wk__tile *x) {
  int64_t shape[WK__TILE_DIMS];
  if (!*x) return true;
  if (b->status != WK_OK) return false;
  wk__tile_type t = *type_of(b, *pointer);
  if (t.ndim == 0 && type_of(b, *x)->ndim > 0)
    return wk__tile_refuse(b, WK_VALUE_ERROR, "Mask argument cannot be block type if pointer argument is not a block"),
           false;
  for (int d = 0; d < t.ndim; d++) shape[d] = t.shape[d];
  while (b->status == WK_OK && type_of(b, *x)->ndim && type_of(b, *x)->ndim < t.ndim)
    *x = wk__tile_expand_dims(b, *x, 0);
  *x = wk__tile_broadcast(b, *x, t.ndim, shape);
  return b->status == WK_OK;
}

static bool fit_mask(wk__tile_builder *b, wk__tile *pointer, wk__tile *mask) {
  if (*mask) *mask = wk__tile_cast(b, *mask, WK_BOOL);
  if (b->status != WK_OK || !*mask) return b->status == WK_OK;
  if (type_of(b, *pointer)->ndim) return wk__tile_broadcast_pair(b, pointer, mask);
  return fit(b, pointer, mask);
}

/* A mask that is known to be true is none. */
static wk__tile useful(const wk__tile_builder *b, wk__tile mask) {
  return mask && tile_known(b, mask) && b->kernel->instrs[mask].number.i ? 0 : mask;
}

wk__tile wk__tile_load(wk__tile_builder *b, wk__tile pointer, wk__tile mask, wk__tile other) {
  if (b->status != WK_OK) return 0;
  if (!type_of(b, pointer)->pointer) return refuse_pointer(b, "tl.load", pointer);
  if (other && !mask) return wk__tile_refuse(b, WK_VALUE_ERROR, "`other` cannot be provided without `mask`");
  if (!fit_mask(b, &pointer, &mask)) return 0;
  wk__tile_type t = *type_of(b, pointer);
  t.pointer = false;
  if (other) other = wk__tile_cast(b, other, (wk_dtype)t.dtype);
  if (!fit(b, &pointer, &other)) return 0;
  mask = useful(b, mask);
  return tile_emit(b, WK__TILE_load, &t, pointer, mask, mask ? other : 0);
}

/* Bools give way to the pointers' dtype as any other. */
static bool fit_value(wk__tile_builder *b, wk__tile *pointer, wk__tile *value) {
  if (b->status != WK_OK) return false;
  if (type_of(b, *value)->pointer) {
    if (type_of(b, *pointer)->dtype != WK_INT64) return refuse_pointer(b, "tl.store", *value), false;
    *value = wk__tile_cast(b, *value, WK_INT64);
  }
  *value = wk__tile_cast(b, *value, (wk_dtype)type_of(b, *pointer)->dtype);
  if (b->status != WK_OK) return false;
  if (type_of(b, *pointer)->ndim) return wk__tile_broadcast_pair(b, pointer, value);
  if (type_of(b, *value)->ndim)
    return wk__tile_refuse(b, WK_VALUE_ERROR, "Value argument cannot be block type if pointer argument is not a block"),
           false;
  return true;
}

void wk__tile_store(wk__tile_builder *b, wk__tile pointer, wk__tile value, wk__tile mask) {
  if (b->status != WK_OK) return;
  if (!type_of(b, pointer)->pointer) {
    (void)refuse_pointer(b, "tl.store", pointer);
    return;
  }
  if (!fit_value(b, &pointer, &value) || !fit_mask(b, &pointer, &mask) || !fit(b, &pointer, &value)) return;
  (void)tile_emit(b, WK__TILE_store, NULL, pointer, value, useful(b, mask));
}

static bool takes_atomic(wk__tile_atomic how, int dtype) {
  bool is_float = wk__dtype_category((wk_dtype)dtype) == WK__FLOAT_KIND;
  int size = wk__dtypes[dtype].size;
  if (dtype == WK_FLOAT16 || dtype == WK_BFLOAT16) return how == WK__TILE_ADD;
  if (size != 4 && size != 8) return false;
  return !is_float || how == WK__TILE_ADD || how == WK__TILE_XCHG || how == WK__TILE_CAS || how == WK__TILE_MAX ||
         how == WK__TILE_MIN;
}

wk__tile wk__tile_atomic_op(wk__tile_builder *b, wk__tile_atomic how, wk__tile pointer, wk__tile value, wk__tile mask,
                            wk__tile compare) {
  char what[40];
  if (b->status != WK_OK) return 0;
  (void)snprintf(what, sizeof what, "tl.atomic_%s", wk__tile_atomics[how]);
  if (!type_of(b, pointer)->pointer) return refuse_pointer(b, what, pointer);
  if (!takes_atomic(how, type_of(b, pointer)->dtype))
    return wk__tile_refuse(b, WK_VALUE_ERROR, "atomic_%s does not support %s", wk__tile_atomics[how],
                           tile_dtype_name(type_of(b, pointer)->dtype));
  if (!fit_value(b, &pointer, &value)) return 0;
  if (compare && !fit_value(b, &pointer, &compare)) return 0;
  if (!fit_mask(b, &pointer, &mask) || !fit(b, &pointer, &value) || !fit(b, &pointer, &compare)) return 0;
  wk__tile_instr i = {.op = WK__TILE_atomic,
                      .type = *type_of(b, pointer),
                      .operands = {pointer, value, useful(b, mask), compare},
                      .number = {.category = WK__INTEGER_KIND, .i = how}};
  i.type.pointer = false;
  return wk__tile_append(b, &i);
}

void wk__tile_barrier(wk__tile_builder *b) { (void)tile_emit(b, WK__TILE_barrier, NULL, 0, 0, 0); }
