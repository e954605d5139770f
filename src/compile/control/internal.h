/* What the files of control/ share. */
#ifndef WICK_COMPILE_CONTROL_INTERNAL_H
#define WICK_COMPILE_CONTROL_INTERNAL_H

#include <pthread.h>

#include "compile/compile.h"
#include "compile/control/control.h"
#include "ops/internal.h"

typedef enum wk__control_kind { WK__BRANCH, WK__LOOP, WK__LOOP_BACKWARD, WK__SCAN } wk__control_kind;

/* What an operator is beside its graphs. */
typedef struct wk__control_form {
  wk__control_kind kind;
  int carried, slices; /* of a scan: its first operands; a loop's carried ones are the results of its body */
  bool reversed;       /* a scan begins with the last slice */
  bool keeps;          /* a scan gives what is carried into each slice, too: behind its other results, stacked. Of at
                          most WK__MAX_RESULTS results the tape keeps them */
} wk__control_form;

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
  uint8_t kind;         /* wk__control_kind */
  int carried, slices;  /* of a loop and a scan; of a scan */
  bool reversed, keeps; /* of a scan */
  wk__control_part
      parts[WK__CONTROL_PARTS]; /* then and else; a scan's body; or condition, body, and the body's derivative */
  bool *wanted;                 /* owned, (operands) of LOOP_BACKWARD: those with gradients */
  bool *flows;                  /* in the same memory: those that the body's derivative gives one of */
  pthread_mutex_t lock;         /* of runners, and of: */
  struct wk__control_derivative *derivatives;
  const wk_op *keeping; /* a share: the same scan, which keeps; NULL: not asked for yet */
  _Atomic bool compiles;
  wk__saves saves[2];
  wk__parameter parameters[2];
  char name[40], grad_fn_name[40], schema[352];
};

/* The operator for gradients of some operands from those of some results. A list of these only grows. */
typedef struct wk__control_derivative {
  struct wk__control_derivative *next;
  const wk_op *op;  /* a share */
  bool *wanted;     /* owned, (operands) */
  uint8_t *defined; /* in the same memory, (results): wk__control_grad */
  int *uses;        /* owned, (operands): how often a scan's body gives a gradient of each; else NULL */
} wk__control_derivative;
/* What is known of the gradient of a result. NONE has to be 0, GIVEN 1. */
typedef enum wk__control_grad {
  WK__GRAD_NONE,
  WK__GRAD_GIVEN,
  WK__GRAD_LATER,  /* of what a scan carries: given from the next slice on */
  WK__GRAD_JOINED, /* of a stack: it is a part of that of the carried result that it has the slices of */
} wk__control_grad;

static inline wk__control *wk__control_of(const wk_op *op) { return (wk__control *)op; }
/* The graph whose inputs are the operands (of a scan slices of some) and, but for LOOP_BACKWARD and what a scan keeps,
 * whose outputs are the results. */
static inline const wk__graph *wk__control_body(const wk__control *c) {
  return c->parts[c->kind == WK__BRANCH || c->kind == WK__SCAN ? 0 : 1].graph;
}
static inline int wk__control_operands(const wk__control *c) { return (int)wk__control_body(c)->input_count; }

/* ---- control.c ---- */
/* Takes the graphs, also on failure; a scan has one. name: NULL for the next one. */
WK_MUST_USE wk_status wk__control_create(const wk__control_form *form, const char *name, wk__graph *steal_first,
                                         wk__graph *steal_second, const wk_op **out_op);
/* Do the graphs belong together? WK_VALUE_ERROR: no. */
WK_MUST_USE wk_status wk__control_check(int kind, const wk__graph *first, const wk__graph *second);
/* Is it the body of such a scan? WK_VALUE_ERROR: no. */
WK_MUST_USE wk_status wk__control_check_scan(const wk__control_form *form, const wk__graph *body);
int wk__control_results(const wk__control *c);

/* ---- run.c ---- */
wk__kernel_fn wk__control_run;
WK_MUST_USE wk_status wk__control_run_part(wk__control *c, wk__control_part *p, wk_tensor *const *inputs,
                                           wk_tensor **outputs);
void wk__control_release_all(wk_tensor **tensors, int64_t count);

/* ---- run_scan.c ---- */
WK_MUST_USE wk_status wk__control_run_scan(wk__control *c, wk_tensor *const *operands, wk_tensor **out);
/* Of slices behind each other along a first dim, contiguous. */
void wk__control_stack(wk_int count, const wk__spec *slice, wk__spec *out_spec);

/* ---- derivative.c ---- */
wk__vjp_fn wk__control_differentiate, wk__control_refuse_second;
/* Of the list, or made. Borrowed. */
WK_MUST_USE wk_status wk__control_derivative_of(wk__control *c, const bool *wanted, const uint8_t *defined,
                                                const wk__control_derivative **out);
bool wk__control_is_floating(const wk_tensor *t);
void wk__control_wants(const wk__vjp *v, const wk__control *c, bool *out);            /* (operands) */
WK_MUST_USE wk_status wk__control_gradient(const wk__vjp *v, int k, wk_tensor **out); /* of result k, contiguous */
void wk__control_release_derivatives(wk__control *c);

/* ---- scan_derivative.c ---- */
wk__vjp_fn wk__control_differentiate_scan;

/* ---- scan_derive.c ---- */
int wk__control_joined_with(const wk__control *c, int result); /* which carried result it has the slices of; -1: none */
WK_MUST_USE wk_status wk__control_derive_scan(const wk__control *c, wk__control_derivative *d);

/* ---- text.c ---- */
void wk__control_print(const wk_op *op, wk__string *out, bool with_sources);

#endif
