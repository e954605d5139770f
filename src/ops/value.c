/* The table of value kinds and what is done by it. See value.h. */
#include "ops/value.h"

#include "tensor/tensor.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the bits of a value are read as the lowest bytes of its integer"
#endif
#define MASK(member) (UINT64_MAX >> (64 - 8 * sizeof((wk_value){0}.member)))
const wk__value_kind wk__value_kinds[WK_VALUE_KIND_COUNT] = {
#define ONE(kind, member) [WK_VALUE_##kind] = {WK__VALUE_IS_ONE, WK_VALUE_##kind, 0, MASK(member)},
#define INTEGER(kind, member) [WK_VALUE_##kind] = {WK__VALUE_IS_INTEGER, WK_VALUE_##kind, 0, MASK(member)},
#define REFERENCE(kind, member) [WK_VALUE_##kind] = {WK__VALUE_IS_REFERENCE, WK_VALUE_##kind, 0, MASK(member)},
#define TEXT(kind, member) [WK_VALUE_##kind] = {WK__VALUE_IS_TEXT, WK_VALUE_##kind, 0, MASK(member)},
#define LIST(kind, member, type, item, field) \
  [WK_VALUE_##kind] = {WK__VALUE_IS_LIST, WK_VALUE_##item, sizeof(type), MASK(member)},
#define VALUES(kind, member) [WK_VALUE_##kind] = {WK__VALUE_IS_VALUES, WK_VALUE_NONE, sizeof(wk_value), MASK(member)},
#define PAIR(kind, member, type) [WK_VALUE_##kind] = {WK__VALUE_IS_PAIR, WK_VALUE_##kind, sizeof(type), MASK(member)},
#include "ops/value_kinds.def"
#undef ONE
#undef INTEGER
#undef REFERENCE
#undef TEXT
#undef LIST
#undef VALUES
#undef PAIR
};
/* What the two functions below do with lists. */
#define ONE(kind, member)
#define INTEGER(kind, member)
#define REFERENCE(kind, member)
#define TEXT(kind, member)
#define PAIR(kind, member, type)

/* ---- its parts ---- */

wk_value wk__value_item(const wk_value *list, uint32_t k) {
  switch (list->tag) {
#define LIST(kind, member, type, item, field) \
  case WK_VALUE_##kind:                       \
    return (wk_value){.tag = WK_VALUE_##item, .field = ((type *)list->member)[k]};
#define VALUES(kind, member) \
  case WK_VALUE_##kind:      \
    return list->member[k];
#include "ops/value_kinds.def"
#undef LIST
#undef VALUES
    default:
      return *list;
  }
}

void wk__value_put_item(uint8_t list_tag, void *list, uint32_t k, const wk_value *item) {
  switch (list_tag) {
#define LIST(kind, member, type, item_kind, field) \
  case WK_VALUE_##kind:                            \
    ((type *)list)[k] = item->field;               \
    break;
#define VALUES(kind, member)       \
  case WK_VALUE_##kind:            \
    ((wk_value *)list)[k] = *item; \
    break;
#include "ops/value_kinds.def"
#undef LIST
#undef VALUES
    default:
      break;
  }
}

size_t wk__value_extent(const wk_value *v) {
  const wk__value_kind *kind = &wk__value_kinds[v->tag];
  if (kind->form == WK__VALUE_IS_TEXT) return strlen(v->string) + 1;
  return (kind->form == WK__VALUE_IS_PAIR ? 2 : (size_t)v->count) * kind->item_size;
}

/* ---- the whole ---- */

void *wk__value_on_heap(void *unused, size_t bytes) {
  (void)unused;
  return wk__alloc(bytes);
}
void *wk__value_in_arena(void *arena, size_t bytes) { return wk__arena_alloc(arena, bytes); }

/* The items of a list of values point on. */
static wk_status copy_items(wk_value *list, wk__value_alloc *alloc, void *context) {
  wk_value *items = (wk_value *)list->scalars;
  wk_status status = WK_OK;
  for (uint32_t k = 0; k < list->count; k++) {
    wk_value from = items[k];
    items[k] = (wk_value){0};
    if (status == WK_OK) status = wk__value_copy(&items[k], &from, alloc, context);
  }
  return status;
}

wk_status wk__value_copy(wk_value *out, const wk_value *from, wk__value_alloc *alloc, void *context) {
  *out = *from;
  if (!wk__value_points(from)) return WK_OK;
  size_t bytes = wk__value_extent(from);
  void *copy = alloc(context, bytes + !bytes);
  if (!copy) {
    *out = (wk_value){0};
    return WK_OUT_OF_MEMORY;
  }
  if (bytes) memcpy(copy, from->string, bytes);
  out->string = copy;
  return wk__value_kinds[from->tag].form == WK__VALUE_IS_VALUES ? copy_items(out, alloc, context) : WK_OK;
}

void wk_value_release(wk_value *v) {
  WK__EACH_TENSOR(tensor, v, 1) wk__release(tensor);
  if (wk__value_kinds[v->tag].form == WK__VALUE_IS_VALUES)
    for (uint32_t k = 0; k < v->count; k++) wk_value_release((wk_value *)&v->scalars[k]);
  if (wk__value_points(v)) wk__free((void *)v->string);
  *v = (wk_value){0};
}

static bool same_items(const wk_value *a, const wk_value *b) {
  for (uint32_t k = 0; k < a->count; k++)
    if (!wk__value_same(&a->scalars[k], &b->scalars[k])) return false;
  return true;
}

bool wk__value_same(const wk_value *a, const wk_value *b) {
  if (a->tag != b->tag) return false;
  if (a->tag == WK_VALUE_NONE) return true;
  if (!wk__value_points(a)) return wk__value_bits(a) == wk__value_bits(b) && a->count == b->count;
  size_t bytes = wk__value_extent(a);
  if (bytes != wk__value_extent(b)) return false;
  if (wk__value_kinds[a->tag].form == WK__VALUE_IS_VALUES) return same_items(a, b);
  return bytes == 0 || memcmp(a->string, b->string, bytes) == 0;
}

uint64_t wk__value_hash(uint64_t h, const wk_value *v, const wk__value_hasher *hasher) {
  h = wk__hash_mix(h, v->tag);
  switch ((wk__value_form)wk__value_kinds[v->tag].form) {
    case WK__VALUE_IS_REFERENCE:
      return wk__hash_mix(h, v->tensor ? hasher->tensor(v->tensor) : 0);
    case WK__VALUE_IS_INTEGER:
      return hasher->integer(h, v->integer);
    case WK__VALUE_IS_TEXT:
    case WK__VALUE_IS_PAIR:
      return wk__hash_bytes(v->string, wk__value_extent(v), h);
    case WK__VALUE_IS_LIST:
    case WK__VALUE_IS_VALUES:
      for (uint32_t k = 0; k < v->count; k++) {
        wk_value item = wk__value_item(v, k);
        h = wk__value_hash(h, &item, hasher);
      }
      return wk__hash_mix(h, v->count);
    default: /* a generator's address says nothing in another process */
      return wk__hash_mix(wk__hash_mix(h, v->count), v->tag == WK_VALUE_GENERATOR ? 0 : wk__value_bits(v));
  }
}
