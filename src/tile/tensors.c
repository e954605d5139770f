/* Tensors that loads of a kernel are boxes of, before it is launched.
 *
 * In: a `tensor` of a kernel, arguments of a launch. Out: its address, sizes and stride, where sums and products of
 * arguments and numbers say them: so a device can be told of it beforehand. Test: tests/c/test_tile.c. */
#include "tile/internal.h"

enum { DEEPEST = 8 };

/* As the kernel has it: of its dtype. */
static int64_t rounded(const wk__tile_type *t, int64_t value) {
  char element[16];
  if (t->pointer || wk__dtypes[t->dtype].size == 8) return value;
  wk__element_set(element, (wk_dtype)t->dtype, (wk__scalar){.category = WK__INTEGER_KIND, .i = value});
  return wk__scalar_int(wk__element_get(element, (wk_dtype)t->dtype));
}

static bool find(const wk__tile_kernel *k, wk__tile v, const int64_t *args, int depth, int64_t *out);

static bool find_map(const wk__tile_kernel *k, const wk__tile_instr *i, const int64_t *args, int depth, int64_t *out) {
  int64_t x, y;
  if (i->map != WK__LOOP_add && i->map != WK__LOOP_sub && i->map != WK__LOOP_mul) return false;
  if (!find(k, i->operands[0], args, depth, &x) || !find(k, i->operands[1], args, depth, &y)) return false;
  uint64_t a = (uint64_t)x, b = (uint64_t)y;
  *out = (int64_t)(i->map == WK__LOOP_add ? a + b : i->map == WK__LOOP_sub ? a - b : a * b);
  return true;
}

/* A scalar integer or pointer. */
static bool find(const wk__tile_kernel *k, wk__tile v, const int64_t *args, int depth, int64_t *out) {
  const wk__tile_instr *i = &k->instrs[v];
  bool whole = i->type.pointer || wk__dtype_category((wk_dtype)i->type.dtype) == WK__INTEGER_KIND;
  int64_t by;
  if (!whole || i->type.ndim || depth > DEEPEST) return false;
  switch (i->op) {
    case WK__TILE_parameter:
      *out = args[i->number.i];
      break;
    case WK__TILE_constant:
      *out = i->number.i;
      break;
    case WK__TILE_cast:
      if (!find(k, i->operands[0], args, depth + 1, out)) return false;
      break;
    case WK__TILE_offset:
      if (!find(k, i->operands[0], args, depth + 1, out) || !find(k, i->operands[1], args, depth + 1, &by))
        return false;
      *out = (int64_t)((uint64_t)*out + (uint64_t)by * wk__dtypes[i->type.dtype].size);
      break;
    case WK__TILE_map:
      if (!find_map(k, i, args, depth + 1, out)) return false;
      break;
    default:
      return false;
  }
  *out = rounded(&i->type, *out);
  return true;
}

bool wk__tile_find_tensor(const wk__tile_kernel *k, wk__tile tensor, const int64_t *args, wk__tile_tensor_given *out) {
  const wk__tile *from = k->instrs[tensor].operands;
  return find(k, from[0], args, 0, &out->address) && find(k, from[1], args, 0, &out->sizes[0]) &&
         find(k, from[2], args, 0, &out->sizes[1]) && find(k, from[3], args, 0, &out->line);
}
