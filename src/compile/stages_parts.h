/* What cutting a graph into stages (stages_cut.c) and running them (stages.c) share. */
#ifndef WICK_COMPILE_STAGES_PARTS_H
#define WICK_COMPILE_STAGES_PARTS_H

#include "compile/stages.h"
#include "graph/internal.h"

/* An input of a stage that is no slot: a tensor without values whose size is the symbol's value. */
#define WK__STAGE_SYMBOL(slot) (-1 - (slot))

typedef struct wk__stage {
  wk__runner runner; /* run NULL: there is nothing in front of the call */
  int32_t *inputs;   /* owned, (input_count) slots, and symbols */
  int32_t *outputs;  /* owned, (output_count) slots */
  int64_t input_count, input_capacity, output_count, output_capacity;
  const wk__graph_node *call; /* that counts; NULL: this is the last stage */
  int32_t call_slot, symbol;  /* of its result, and of its rows */
  int32_t call_slots[WK__MAX_ARGS];
} wk__stage;

struct wk__stages {
  wk__graph *graph; /* owned reference */
  wk__stage *items; /* owned, (count) */
  int64_t count;
  int64_t slot_count; /* the graph's inputs first */
  int64_t symbol_count, guard_count;
  int32_t *guard_stages; /* owned, (guard_count) the stage whose call a guard waits for; -1: none */
  int32_t *outputs;      /* owned, (outputs of the graph) slots */
};

#endif
