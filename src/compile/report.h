/* What was made of a graph, for people: files of WICK_DEBUG_DIR, and what each step of a compiled graph takes.
 *
 * Graphs have process-wide numbers, which files and reports share: "graph_0003" here is number 3 there. */
#ifndef WICK_COMPILE_REPORT_H
#define WICK_COMPILE_REPORT_H

#include "compile/compile.h"

/* One executed step of a compiled graph. Text is borrowed from the graph. Bytes and operations are those of one run,
 * with the values that symbols had when the graph was captured. */
typedef struct wk__step_report {
  const char *name, *op;         /* of the node; "copy" for a copy of the executor's own */
  const char *kernel;            /* its name; NULL: an operator of the table */
  const wk__source_line *source; /* NULL: not known */
  int64_t nanoseconds, runs;     /* while wk__profiling, all runs together */
  double bytes;                  /* read and written, each element that is touched once; 0 for views */
  double flops;                  /* of products; 0 where they are not counted */
} wk__step_report;

int64_t wk__compiled_graph_step_count(const wk__compiled_graph *compiled); /* 0 for one with a derivative */
void wk__compiled_graph_step(const wk__compiled_graph *compiled, int64_t i, wk__step_report *out);

/* A kernel; its text is borrowed from the graph. False: it was given up while it was made. */
typedef struct wk__kernel_report {
  const char *name, *origin, *nest; /* origin: the nodes that it stands for, a line each */
  const char *stacks;               /* where those were called, a line each, as wk__source_line_print */
  bool native;                      /* it has native code at this moment */
} wk__kernel_report;
bool wk__compiled_graph_kernel(const wk__compiled_graph *compiled, int64_t i, wk__kernel_report *out);
/* The C that native code of it is made of, owned; NULL: it has none. */
char *wk__compiled_graph_kernel_source(const wk__compiled_graph *compiled, int64_t i) WK_MUST_USE;

/* ---- of the graph itself (pipeline.c) ---- */
int wk__compiled_graph_number(const wk__compiled_graph *compiled);
bool wk__compiled_graph_has_derivative(const wk__compiled_graph *compiled); /* ahead of time: it has halves */
const wk__graph_executor *wk__compiled_graph_executor(const wk__compiled_graph *compiled); /* borrowed; NULL */
const wk__kernels *wk__compiled_graph_kernels(const wk__compiled_graph *compiled);         /* borrowed; NULL */
/* The forward graph, then the backward graphs made so far, for as long as `visit` gives 0; gives the last it gave. */
typedef int wk__half_fn(void *context, const wk__compiled_graph *half, bool backward);
int wk__compiled_graph_each_half(const wk__compiled_graph *compiled, wk__half_fn *visit, void *context);

/* ---- WICK_DEBUG_DIR: the files of one graph. Nothing here fails: the first file that cannot be written gives one
 * warning, the others none. ---- */
typedef struct wk__dump {
  char folder[1024]; /* empty: nothing is written */
  int number, pass;
} wk__dump;

wk__dump wk__dump_begin(int number);
/* graph_0001.<n>.<pass>.txt; with the first also graph_0001.constants.safetensors, for wk__load_graph */
void wk__dump_graph(wk__dump *dump, const char *pass, const wk__graph *graph);
void wk__dump_kernels(const wk__dump *dump, const wk__kernels *kernels);        /* graph_0001.kernels.txt and .unit.c */
void wk__dump_note(const wk__dump *dump, const char *suffix, const char *line); /* appended to graph_0001.<suffix> */

#endif
