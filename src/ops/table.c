/* The operator table: rows from ops.def, schemas parsed once, look-up by name. Tests: tests/c/test_ops.c. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "ops/internal.h"
#include "ops/plan.h"
#include "ops/rules.h"

#define S(argument, mask) [argument] = (mask)
#define A(argument) WK__SAVE_ARG(argument)
#define SHAPE(argument) WK__SAVE_SHAPE(argument)
#define R(result) WK__SAVE_RESULT(result)
#define VJP(rule, ...) .vjp = wk__vjp_##rule, .saves = {__VA_ARGS__}
#define NO_VJP .vjp = NULL
#define LOWER(body) .lower = wk__lower_##body
#define VIEW(geometry) .view = wk__view_##geometry
#define KERNEL(function) .kernel = wk__kernel_##function
#define COMPOSE(function) .compose = wk__compose_##function
#define META(rule) .meta = wk__meta_##rule
#define NO_META .meta = NULL

struct wk_op wk__op_table[WK__OP_COUNT] = {
#define OP(symbol_, schema_, tags_, meta_, vjp_, how_, samples_) \
  [WK__OP_##symbol_] = {.schema_text = schema_, .tags = (tags_), meta_, vjp_, how_, .samples = samples_},
#define POINTWISE WK__TAG_POINTWISE
#define CORE WK__TAG_CORE
#define OUT WK__TAG_OUT
#define INPLACE WK__TAG_INPLACE
#define RANDOM WK__TAG_RANDOM
#define COMPARISON (WK__TAG_COMPARISON | WK__TAG_POINTWISE)
#define METHOD WK__TAG_METHOD_ONLY
#define FUNCTION WK__TAG_FUNCTION_ONLY
#define HIDDEN (WK__TAG_FUNCTION_ONLY | WK__TAG_HIDDEN)
#define NOT_INPLACE WK__TAG_NOT_INPLACE
#define INTERNAL WK__TAG_INTERNAL
#define MUTATES WK__TAG_MUTATES
#define FIRST_ONLY WK__TAG_FIRST_ONLY
#define PLACES WK__TAG_PLACES
#define LIKE WK__TAG_LIKE
#define OWN_DTYPE WK__TAG_OWN_DTYPE
#define APART WK__TAG_APART
#define BY_RESULT WK__TAG_BY_RESULT
#define FILLS WK__TAG_FILLS
#define FLOAT8 WK__TAG_FLOAT8
#include "ops/ops.def"
#undef OP
};

enum { NAME_SLOTS = 1024 };
static uint16_t by_name[NAME_SLOTS]; /* 1 + number of the operator, open addressing */
static char names[WK__OP_COUNT][64];

static uint64_t hash_name(const char *name) { return wk__hash_bytes(name, strlen(name), 0); }

static wk_status start_row(int number) {
  wk_op *op = &wk__op_table[number];
  const char *open = strchr(op->schema_text, '(');
  size_t length = open ? (size_t)(open - op->schema_text) : 0;
  if (!length || length >= sizeof names[0]) return wk_fail(WK_INTERNAL_ERROR, "bad operator row %d", number);
  memcpy(names[number], op->schema_text, length);
  op->name = names[number];
  op->number = (uint16_t)number;
  size_t base = strcspn(op->name, ".");
  if (base >= sizeof op->base_name) return wk_fail(WK_INTERNAL_ERROR, "operator name too long: %s", op->name);
  memcpy(op->base_name, op->name, base);
  WK_TRY(wk__schema_parse(op->schema_text, &op->schema));
  if (!op->lower && !op->view && !op->kernel && !op->compose)
    return wk_fail(WK_INTERNAL_ERROR, "operator %s is not computed in any way", op->name);
  uint64_t slot = hash_name(op->name);
  while (by_name[slot % NAME_SLOTS]) slot++;
  by_name[slot % NAME_SLOTS] = (uint16_t)(number + 1);
  return WK_OK;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void start(void) {
  for (int i = 0; i < WK__OP_COUNT; i++)
    if (start_row(i) != WK_OK) {
      fprintf(stderr, "wick: %s\n", wk_error_message());
      abort(); /* our own table is wrong: nothing can work */
    }
}

const wk_op *wk_op_find(const char *name) {
  pthread_once(&once, start);
  for (uint64_t slot = hash_name(name); by_name[slot % NAME_SLOTS]; slot++) {
    const wk_op *op = &wk__op_table[by_name[slot % NAME_SLOTS] - 1];
    if (strcmp(op->name, name) == 0) return op;
  }
  return NULL;
}

__attribute__((constructor)) static void start_at_load(void) { pthread_once(&once, start); }

const char *wk_op_name(const wk_op *op) { return op->name; }
const char *wk_op_schema(const wk_op *op) { return op->schema_text; }
int wk_op_count(void) { return WK__OP_COUNT; }
const wk_op *wk_op_at(int index) {
  pthread_once(&once, start);
  return &wk__op_table[index];
}
