/* The executor's plan, and the memory that one run of it needs. */
#ifndef WICK_EXECUTE_INTERNAL_H
#define WICK_EXECUTE_INTERNAL_H

#include "execute/execute.h"
#include "graph/internal.h"

/* A tensor has to be put into an argument before a call. */
typedef struct wk__graph_patch {
  uint32_t place; /* byte of the run memory where the pointer goes */
  int32_t slot;
} wk__graph_patch;

/* A number depends on symbols. */
typedef struct wk__graph_number_patch {
  uint32_t place; /* byte of the run memory where the wk_int goes */
  wk_int expression;
} wk__graph_number_patch;

/* A number input goes there. */
typedef struct wk__graph_input_number {
  uint32_t place;
  uint32_t index;
  double traced; /* its value when the caller gives none */
} wk__graph_input_number;

typedef enum wk__graph_result {
  WK__RESULT_ONE,  /* one tensor, to a slot */
  WK__RESULT_MANY, /* a few, each to a slot or dropped */
  WK__RESULT_LIST, /* a list, each item to a slot or dropped */
  WK__RESULT_DROP, /* what the call returns is one of its arguments */
} wk__graph_result;

/* A result that is there before its step runs (wk__compute_into). */
typedef struct wk__prepared {
  const wk_tensor *shape; /* borrowed from the graph: its geometry, over symbols */
  int32_t slot;           /* NO_SLOT: it is not read */
  int32_t shares;         /* kept: the earlier result whose memory it takes over, -1: it has its own */
  int32_t born, dies;     /* kept: first and last step that its memory is needed for, those who share it included */
  bool kept;              /* lies in the run's block; else a new tensor in each run */
} wk__prepared;

typedef struct wk__graph_step {
  const wk_op *op;
  uint8_t result;      /* wk__graph_result */
  bool taped;          /* runs under autograd */
  bool composite;      /* replaced by its parts */
  bool into;           /* its results are there before, */
  bool all_kept;       /* each in the run's block */
  int32_t first_made;  /* `into`: the first of them */
  int32_t first_value; /* its arguments */
  int32_t first_patch, patch_count;
  int32_t destination;                  /* slot that it writes into, -1: none */
  int32_t slot;                         /* ONE: where the result goes; MANY, LIST: the first of result_slots */
  int32_t result_count;                 /* MANY, LIST */
  int32_t first_release, release_count; /* slots that later steps do not read */
  const wk__graph_node *node;           /* for messages; NULL: a copy of the executor's own */
} wk__graph_step;

static inline int32_t wk__graph_result_count(const wk__graph_step *s) {
  return s->result == WK__RESULT_ONE ? 1 : s->result_count;
}

/* Symbol number -> the input dim that tells it. */
typedef struct wk__graph_binding {
  int32_t input, dim; /* input -1: the symbol is not needed */
} wk__graph_binding;

/* Memory of one run. Kept between runs: arguments that never change are written once, and so are the results that live
 * within a run. Those lie in one block, which is taken when a run begins and given back when it ends. */
typedef struct wk__recorded_run wk__recorded_run; /* recorded.c */
typedef struct wk__run_memory {
  wk_storage *block; /* owned: of all kept results; without memory between runs; NULL: they have to be bound */
  int64_t block_bytes;
  void *bound_to;             /* the memory that the kept results look into now */
  wk__recorded_run *recorded; /* owned; NULL: nothing is recorded */
  wk_tensor *slots[1];        /* and so on: the executor knows the layout */
} wk__run_memory;

struct wk__graph_executor {
  wk__graph *graph; /* owned reference */
  wk__graph_step *steps;
  int64_t step_count, step_capacity;
  wk_value *values; /* as a run's values begin; lists of tensors and of symbolic numbers by index */
  int64_t value_count, value_capacity;
  int32_t *value_lists; /* beside values: first of tensors or integers, -1: the value is whole as it is */
  int64_t value_list_capacity;
  wk_int *integers; /* as a run's integers begin */
  int64_t integer_count, integer_capacity;
  int64_t tensor_count; /* entries of lists of tensors */
  wk__graph_patch *patches;
  int64_t patch_count, patch_capacity;
  wk__graph_patch *constant_patches; /* done once a run memory */
  int64_t constant_patch_count, constant_patch_capacity;
  wk__graph_input_number *input_numbers;
  int64_t input_number_count, input_number_capacity;
  wk__graph_number_patch *numbers;
  int64_t number_count, number_capacity;
  int32_t *result_slots;
  int64_t result_slot_count, result_slot_capacity;
  int32_t *releases;
  int64_t release_count, release_capacity;
  wk__prepared *made;
  int64_t made_count, made_capacity;
  int64_t kept_count; /* of made */
  wk_device device;   /* whose memory the block of kept results is in, */
  bool has_device;    /* when there are any */
  int32_t *outputs;   /* (output_count) slots */
  int64_t output_count;
  int64_t input_count, constant_count, slot_count; /* slots: inputs, constants, then what steps make */
  wk_tensor **constants;                           /* owned */
  wk__graph_binding *bindings;                     /* (symbol_count) */
  int64_t symbol_count;
  bool by_hints; /* symbols that no input tells have their hints */
  size_t values_at, tensors_at, made_at, places_at, integers_at, symbols_at,
      run_bytes;                    /* of a run memory, behind slots */
  _Atomic(wk__run_memory *) idle;   /* owned: one that waits for the next run */
  _Atomic(_Atomic int64_t *) times; /* owned, (step_count): nanoseconds while wk__profiling; NULL before */
  _Atomic int64_t timed_runs;
  const wk__recording_type *recordings;      /* of the device, NULL: it has none */
  int64_t number;                            /* of the process's executors */
  wk_status (*between_steps)(void *context); /* see wk__graph_executor_ask; NULL */
  void *between_context;
};

WK_MUST_USE wk_status wk__graph_plan(wk__graph_executor *executor); /* plan.c: fills everything above */

bool wk__graph_same_sizes(const wk_tensor *a, const wk_tensor *b);  /* and dtype and device */
bool wk__graph_same_layout(const wk_tensor *a, const wk_tensor *b); /* the same, and strides */

/* ---- the timeline (timeline.c) ---- */
int64_t *wk__timeline_moments(int64_t count); /* for a run's moments; NULL: no timeline is being taken, or no memory */
void wk__timeline_add(int64_t executor, int64_t *steal_moments, int64_t count);

/* ---- memory (memory.c) ---- */

/* What the planner knows of slots and of the memory in them; classes are numbers below class_count. */
typedef struct wk__graph_slots {
  int32_t *class_of; /* by slot: those of one class may look at one memory; -1: an empty slot */
  bool *stays;       /* by class: an output, an input, or something that a tape may keep */
  int64_t class_count;
} wk__graph_slots;

/* Says what each step releases, and which results are kept and share memory. */
WK_MUST_USE wk_status wk__graph_plan_memory(wk__graph_executor *executor, const wk__graph_slots *slots);

/* The results of steps for the run's symbols, and places in the block for those that are kept. */
WK_MUST_USE wk_status wk__graph_bind_memory(const wk__graph_executor *executor, wk__run_memory *run);
void wk__graph_unbind_memory(const wk__graph_executor *executor, wk__run_memory *run);
WK_MUST_USE wk_status wk__graph_take_block(const wk__graph_executor *executor, wk__run_memory *run);
void wk__graph_give_block(const wk__graph_executor *executor, wk__run_memory *run);

/* ---- steps (execute.c) ---- */

WK_MUST_USE wk_status wk__graph_run_step(const wk__graph_executor *executor, int64_t step, wk__run_memory *run);
/* As if the step had run: its results are there, and what is not read any more goes. */
WK_MUST_USE wk_status wk__graph_pass_step(const wk__graph_executor *executor, int64_t step, wk__run_memory *run);

/* ---- recorded runs (recorded.c) ---- */

const wk__recording_type *wk__graph_recordings(const wk__graph_executor *executor);
/* All steps of a run: run, or run and recorded, or given again. */
WK_MUST_USE wk_status wk__recorded_steps(const wk__graph_executor *executor, wk__run_memory *run);
/* Where a result that leaves the run lay in the last two runs, NULL: not known. It should lie there again, since work
 * that is given again has to be told nothing then; the caller may still have the last one, so it is the one before. */
typedef struct wk__result_place {
  const void *last, *before;
} wk__result_place;
static inline void wk__result_lies_at(wk__result_place *place, const void *memory) {
  *place = (wk__result_place){memory, place->last ? place->last : memory};
}
wk__result_place *wk__recorded_places(const wk__graph_step *step, wk__run_memory *run); /* of its results */
/* Around what a step computes, when its arguments and results are there. enter: whether leave has to be called. */
bool wk__recorded_enter(const wk__graph_executor *executor, const wk__graph_step *step, wk__run_memory *run);
void wk__recorded_leave(const wk__graph_executor *executor, const wk__graph_step *step, wk__run_memory *run);
/* A step is passed, whose results are there. false: it has to be run again. */
bool wk__recorded_passed(const wk__graph_executor *executor, const wk__graph_step *step, wk__run_memory *run);
/* Sizes are others now. */
void wk__recorded_forget(wk__run_memory *run);
void wk__recorded_release(wk__run_memory *run);
bool wk__recorded_keeps_block(const wk__run_memory *run); /* between runs */

static inline void *wk__run_at(wk__run_memory *run, size_t place) { return (char *)run + place; }
/* Of an operator that a program has defined, or of control flow: its results are compared with what the graph says. */
static inline bool wk__has_no_rule(const wk_op *op) {
  return op->number == WK__OP_COUNT && !op->meta && !(op->tags & WK__TAG_FUSED);
}
/* The value of a size or stride in a run, by the run's symbols. */
WK_MUST_USE wk_status wk__run_value(const wk__graph_executor *executor, wk__run_memory *run, wk_int x, int64_t *out);

#endif
