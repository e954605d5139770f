/* What the files of control/ share. */
#ifndef WICK_COMPILE_CONTROL_INTERNAL_H
#define WICK_COMPILE_CONTROL_INTERNAL_H

#include <pthread.h>

#include "compile/compile.h"
#include "compile/control/control.h"
#include "ops/internal.h"

typedef enum wk__control_kind { WK__BRANCH, WK__LOOP, WK__LOOP_BACKWARD } wk__control_kind;

/* A graph and what runs it, made by the first run: node by node, or compiled. */
typedef struct wk__control_part {
  wk__graph *graph; /* owned; its calls are taped where the program's were */
  wk__compiled_graph *plain, *compiled;
} wk__control_part;

typedef struct wk__control wk__control;
enum { WK__CONTROL_PARTS = 3 };
struct wk__control {
  wk_op op; /* first */
  _Atomic int32_t references;
  uint8_t kind;                              /* wk__control_kind */
  int carried;                               /* of a loop */
  wk__control_part parts[WK__CONTROL_PARTS]; /* then and else; or condition, body, and the body's derivative */
  bool *wanted;                              /* owned, (operands) of LOOP_BACKWARD: those with gradients */
  bool *flows;                               /* in the same memory: those that the body's derivative gives one of */
  pthread_mutex_t lock;                      /* of runners, and of: */
  struct wk__control_derivative *derivatives;
  _Atomic bool compiles;
  wk__saves saves[2];
  wk__parameter parameters[2];
  char name[40], grad_fn_name[40], schema[96];
};

static inline wk__control *wk__control_of(const wk_op *op) { return (wk__control *)op; }
/* The graph whose inputs are the operands and, but for LOOP_BACKWARD, whose outputs are the results. */
static inline const wk__graph *wk__control_body(const wk__control *c) {
  return c->parts[c->kind == WK__BRANCH ? 0 : 1].graph;
}
static inline int wk__control_operands(const wk__control *c) { return (int)wk__control_body(c)->input_count; }

/* ---- control.c ---- */
/* Takes the graphs, also on failure. name: NULL for the next one. */
WK_MUST_USE wk_status wk__control_create(int kind, const char *name, wk__graph *steal_first, wk__graph *steal_second,
                                         const wk_op **out_op);
/* Do the graphs belong together? WK_VALUE_ERROR: no. */
WK_MUST_USE wk_status wk__control_check(int kind, const wk__graph *first, const wk__graph *second);
int wk__control_results(const wk__control *c);

/* ---- run.c ---- */
wk__kernel_fn wk__control_run;

/* ---- derivative.c ---- */
wk__vjp_fn wk__control_differentiate, wk__control_refuse_second;
void wk__control_release_derivatives(wk__control *c);

/* ---- text.c ---- */
void wk__control_print(const wk_op *op, wk__string *out, bool with_sources);

#endif
