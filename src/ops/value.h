/* Values by kind: what is done with every argument alike is written once, over the table value_kinds.def.
 *
 * In: values of calls, tape and graphs (a graph's argument is a value with nodes in the place of tensors). Out: their
 * parts to walk over, copies, comparisons, hashes. Invariant: no other file lists all kinds; a new one is a row of the
 * table, and what only it can say (how it is written, what of Python it is made of) a case in graph/text.c,
 * graph/parse.c, python/calls/. Tests: tests/c/test_value.c, tests/python/test_value_kinds.py. */
#ifndef WICK_OPS_VALUE_H
#define WICK_OPS_VALUE_H

#include "base/base.h"
#include "wick/ops.h"
#include "wick/sym.h"

typedef enum wk__value_form {
  WK__VALUE_IS_ONE,
  WK__VALUE_IS_INTEGER,
  WK__VALUE_IS_REFERENCE,
  WK__VALUE_IS_TEXT,
  WK__VALUE_IS_LIST,
  WK__VALUE_IS_VALUES,
  WK__VALUE_IS_PAIR,
} wk__value_form;

/* A row of the table. */
typedef struct wk__value_kind {
  uint8_t form;      /* wk__value_form */
  uint8_t item_tag;  /* of a list: what an item by itself is, NONE if it says so itself; else the kind itself */
  uint8_t item_size; /* of what is behind its pointer, in bytes; else 0 */
  uint64_t mask;     /* the bits of `integer` that the value has; the others mean nothing */
} wk__value_kind;
extern const wk__value_kind wk__value_kinds[WK_VALUE_KIND_COUNT];

/* What the value itself holds, as bits; of lists and strings that is an address. */
static inline uint64_t wk__value_bits(const wk_value *v) {
  return (uint64_t)v->integer.bits & wk__value_kinds[v->tag].mask;
}

/* It points to something that is neither tensor nor object: a list, characters. */
static inline bool wk__value_points(const wk_value *v) { return wk__value_kinds[v->tag].form >= WK__VALUE_IS_TEXT; }
static inline bool wk__value_has_items(const wk_value *v) {
  uint8_t form = wk__value_kinds[v->tag].form;
  return form == WK__VALUE_IS_LIST || form == WK__VALUE_IS_VALUES;
}

/* ---- its parts ---- */

/* The tensors of a value: none, itself, or those of its list, where NULL stands for none. In a graph they are nodes. */
typedef struct wk__tensor_span {
  wk_tensor **items;
  uint32_t count;
} wk__tensor_span;
static inline wk__tensor_span wk__value_tensors(const wk_value *v) {
  if (v->tag == WK_VALUE_TENSOR) return (wk__tensor_span){(wk_tensor **)&v->tensor, 1};
  return v->tag == WK_VALUE_TENSORS ? (wk__tensor_span){v->tensors, v->count} : (wk__tensor_span){NULL, 0};
}

/* Its integers, which may be symbolic. Those of a list that the caller made may be written. */
typedef struct wk__integer_span {
  wk_int *items;
  uint32_t count;
} wk__integer_span;
static inline wk__integer_span wk__value_integers(const wk_value *v) {
  if (v->tag == WK_VALUE_INT) return (wk__integer_span){(wk_int *)&v->integer, 1};
  return v->tag == WK_VALUE_INTS ? (wk__integer_span){(wk_int *)v->integers, v->count} : (wk__integer_span){NULL, 0};
}

/* Calls a function for each tensor of `count` values, in order; NULL entries of lists are left out. */
#define WK__EACH_TENSOR(tensor, values, value_count)                                            \
  for (int each_value = 0; each_value < (value_count); each_value++)                            \
    for (wk__tensor_span each_span = wk__value_tensors(&(values)[each_value]); each_span.count; \
         each_span.items++, each_span.count--)                                                  \
      for (wk_tensor *tensor = *each_span.items; tensor; tensor = NULL)

/* Item k of a list as a value by itself, and the other way round: `list` is memory for items of that list's type. */
wk_value wk__value_item(const wk_value *list, uint32_t k);
void wk__value_put_item(uint8_t list_tag, void *list, uint32_t k, const wk_value *item);
/* How many bytes it points to, tensors aside. */
size_t wk__value_extent(const wk_value *v);

/* ---- the whole ---- */

/* Where copies of what a value points to come from; NULL with the error set. */
typedef void *wk__value_alloc(void *context, size_t bytes);
/* *out is *from with a list or string of its own. Tensors are the same ones, and no reference is taken. After a failure
 * it may be released all the same. */
WK_MUST_USE wk_status wk__value_copy(wk_value *out, const wk_value *from, wk__value_alloc *alloc, void *context);
void *wk__value_on_heap(void *unused, size_t bytes); /* wk_value_release frees such a copy */
void *wk__value_in_arena(void *arena, size_t bytes);

/* Same kind, same bits: 0.0 is not -0.0, a NaN is itself. Tensors are equal if they are the same. */
bool wk__value_same(const wk_value *a, const wk_value *b);

/* How the parts count that mean something else in another process. */
typedef struct wk__value_hasher {
  uint64_t (*tensor)(const void *tensor);
  uint64_t (*integer)(uint64_t h, wk_int x);
} wk__value_hasher;
uint64_t wk__value_hash(uint64_t h, const wk_value *v, const wk__value_hasher *hasher);

#endif
