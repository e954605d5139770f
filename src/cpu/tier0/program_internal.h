/* Shared by program.c (making programs), geometry.c (binding them to sizes and strides) and execute*.c (running them).
 */
#ifndef WICK_CPU_TIER0_PROGRAM_INTERNAL_H
#define WICK_CPU_TIER0_PROGRAM_INTERNAL_H

#include "cpu/native/native.h"
#include "cpu/tier0/primitives.h"
#include "cpu/tier0/program.h"

typedef enum step_kind {
  STEP_MAP, /* an elementwise primitive */
  STEP_CAST,
  STEP_ROUND,
  STEP_LOAD,
  STEP_MASKED_LOAD,
  STEP_GATHER, /* a load with indirect coordinates */
  STEP_STORE,
  STEP_SCATTER,
  STEP_SCATTER_ADD,
  STEP_INDEX,
  STEP_CHECK_INDEX,
  STEP_SCAN,
  STEP_REDUCE, /* a block into the lanes */
  STEP_ARG,    /* a block into best value and index */
  STEP_EXPAND, /* a value per row to a block */
} step_kind;

enum { NO_SLOT = -1, NO_STORE = -1 };

typedef struct step {
  uint8_t kind;       /* step_kind */
  uint8_t op;         /* wk__loop_op */
  uint8_t lane;       /* of the operand that selects the primitive */
  uint8_t out_lane;   /* of the result */
  uint16_t value;     /* result: place in the value table */
  uint16_t in[3];     /* operands: places in the value table */
  uint16_t extra;     /* LOAD, STORE, ...: access; INDEX, CHECK_INDEX: expression; REDUCE, ARG, SCAN: its state */
  bool in_block;      /* over a block; otherwise once a row */
  bool index_only;    /* read as an index, by nothing else */
  bool copies;        /* LOAD: the value may not stay in the memory that it came from, see find_copied_loads */
  int16_t slot;       /* temporary block for the result; NO_SLOT where the value has a place of its own */
  int16_t store;      /* access that this result is stored to and may be computed into; NO_STORE */
  uint64_t conflicts; /* accesses whose values are read after this step: may not overlap `store` */
} step;

static inline bool is_store_step(const step *s) {
  return s->kind == STEP_STORE || s->kind == STEP_SCATTER || s->kind == STEP_SCATTER_ADD;
}

typedef struct step_list {
  step *steps;
  int64_t count, capacity;
} step_list;

/* What phase p does, in order: row steps, expansions, then for each block the element steps, then it folds. */
typedef struct phase {
  step_list rows;   /* values per row that become computable here, their stores */
  step_list expand; /* not used by purely pointwise programs */
  step_list keep;   /* element steps when earlier phases' values are kept */
  step_list again;  /* element steps when they are computed again */
} phase;

typedef enum value_class {
  VALUE_NONE,
  VALUE_UNIFORM, /* the same everywhere: filled once a thread */
  VALUE_ROW,     /* one a row */
  VALUE_ELEMENT, /* one an element, a temporary block */
  VALUE_KEPT,    /* one an element, needed by a later phase: a whole row is kept */
} value_class;

typedef struct value_info {
  uint8_t class; /* value_class */
  uint8_t lane;
  uint16_t place; /* among the values of its class */
} value_info;

struct wk__program {
  const wk__nest *nest;
  value_info *values; /* instructions first, then expansions */
  int value_count, uniform_count, row_count, kept_count, slot_count;
  uint16_t *expansion; /* (instructions) place of a row value's expansion to blocks, or 0 */
  wk__var *kept;       /* (kept_count) instructions whose values are kept */
  step_list uniform;   /* maps of uniform values, run once a thread */
  phase *phases;
  int phase_count;
  wk__var *reductions; /* instructions with state: reductions, scans */
  int reduction_count;
  wk__var *expressions; /* instructions with an index expression */
  int expression_count;
  uint16_t *first_bound; /* (accesses) the first of its bounds; they lie in a row, a coordinate that may leave each */
  int bound_count;
  uint32_t
      apart_dims; /* pointwise dims (bits): where stores have an order, each step of theirs has places of its own */
  bool has_scan, has_store_add, has_arg;
  bool indices_alone;                      /* an index is read as an index only, so one a row of a block may do */
  bool may_fault;                          /* checks indices or divides integers */
  bool reads_only;                         /* element steps are a load that is reduced, no more */
  bool has_conflicts;                      /* some step's direct store may meet a load that comes later */
  bool is_short;                           /* a pointwise body of plain steps: execute_line.c may run it */
  _Atomic(const wk__native_code *) native; /* tier 1, when there is any; else `built` or NULL */
  wk__native_code built;                   /* made when the library was, */
  bool is_built;                           /* if it was */
  _Atomic uint8_t checked_levels;          /* CPU levels (bits) whose primitives are known to be complete */
};

enum { MAX_WALKERS = WK__KERNEL_WALKERS };
typedef wk__walker walker;

typedef enum loop_mode { LOOP_POINTWISE, LOOP_ROWS, LOOP_COLUMNS } loop_mode;

typedef struct geometry {
  loop_mode mode;
  bool in_place; /* what is reduced is read where it lies: blocks need not stay in the L1 cache, nor rows be adjacent */
  bool outermost_apart; /* where stores have an order: the steps of the outermost loop may go to several threads */
  int outer_p, outer_r; /* outer dims of each kind */
  int64_t outer_size[WK__NEST_MAX_DIMS];
  int64_t m_size, n_size;                /* the two inner axes */
  int64_t m_block, n_block;              /* of one block */
  int64_t reduce_length;                 /* elements of a row; 1 without reductions */
  int64_t expression_limit[MAX_WALKERS]; /* check_index: the size; behind the expressions: of a bound the buffer's */
  int walker_count;
  walker *walkers;
} geometry;

enum { SCAN_ROWS = 8, SCAN_PIECE = 128 }; /* a block of rows that are scanned side by side */

/* Binds the program to a launch; `walkers` has room for MAX_WALKERS. */
WK_MUST_USE wk_status bind_geometry(const wk__program *program, const wk__launch *launch, geometry *g, walker *walkers);

/* masked.c: what of a block of m rows of n lies inside of the buffer of a masked access: rows [top, bottom), and of
 * them columns [left, right). */
typedef struct box {
  int64_t top, bottom, left, right;
} box;
/* By the position of each of its bounds at the block's first element. False: it is no box; rows are, one by one. */
bool find_box(const wk__program *program, const geometry *g, int access, const int64_t *at, int64_t m, int64_t n,
              box *out);
void next_row(const wk__program *program, const geometry *g, int access, int64_t *at); /* positions of the bounds */
/* What stands for the others in the masked load that is instruction v, as the buffer's dtype holds it. */
int64_t find_outside(const wk__program *program, const wk__launch *launch, int v);
enum { MAX_BOUNDS = WK__NEST_MAX_DIMS }; /* of an access */
static inline int bounds_of(const wk__program *p, int access) {
  return __builtin_popcount(p->nest->accesses[access].may_leave);
}
static inline int walker_of_bound(const wk__program *p, int access, int bound) {
  return (int)p->nest->access_count + p->expression_count + p->first_bound[access] + bound;
}

/* Where stores have an order, groups of as many tasks as that leaves together: each is one thread's, and no two groups
 * store to the same place, so any number of threads gives the same bits. One group: no loop can be told apart. */
static inline int64_t ordered_groups(const geometry *g, int64_t m_blocks, int64_t n_blocks) {
  if (!g->outermost_apart) return 1;
  return g->outer_p ? g->outer_size[0] : m_blocks > 1 ? m_blocks : n_blocks;
}

/* What a launch ran into, as an error. */
WK_MUST_USE wk_status report_faults(const wk__program *program, const geometry *g, int faults, int64_t bad_index,
                                    int check);

/* native/run.c: false when the launch is tier 0's. `moves_rows`: gathers or scatters go row by row. */
WK_MUST_USE bool run_native(const wk__program *program, const wk__native_code *code, const wk__launch *launch,
                            const geometry *g, bool moves_rows, wk_status *out_status);
/* The same for many launches; false when any of them is tier 0's. */
WK_MUST_USE bool run_native_many(const wk__program *program, const wk__native_code *code, const wk__launch *launches,
                                 const geometry *const *geometries, int64_t count, wk_status *out_status);

/* Many launches, whose tasks are numbered through all of them. */
typedef struct many {
  void *runs; /* (count) of run_size bytes each */
  size_t run_size;
  int64_t count;
  int64_t *first_task;                                      /* (count + 1) */
  void (*run_tasks)(void *run, int64_t begin, int64_t end); /* by their numbers in the run */
} many;
void run_many_tasks(void *context, int64_t begin, int64_t end); /* execute.c: of a `many`, for wk__parallel_for */

#endif
