/* The operator table: look-up by name in records that the build writes. Tests: tests/c/test_ops.c. */
#include "ops/internal.h"

extern const uint32_t wk__op_name_slots;
extern const uint16_t wk__op_by_name[];

/* FNV-1a, as tools/ops/records.py computes it. */
static uint64_t hash_name(const char *name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (; *name; name++) hash = (hash ^ (uint8_t)*name) * 0x100000001b3;
  return hash;
}

/* Half of the slots are empty, so that each search ends. */
const wk_op *wk_op_find(const char *name) {
  for (uint64_t slot = hash_name(name); wk__op_by_name[slot % wk__op_name_slots]; slot++) {
    const wk_op *op = &wk__op_table[wk__op_by_name[slot % wk__op_name_slots] - 1];
    if (strcmp(op->name, name) == 0) return op;
  }
  return NULL;
}

const char *wk_op_name(const wk_op *op) { return op->name; }
const char *wk_op_schema(const wk_op *op) { return op->schema_text; }
int wk_op_count(void) { return WK__OP_COUNT; }
const wk_op *wk_op_at(int index) { return &wk__op_table[index]; }
