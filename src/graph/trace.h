/* Tracing: while a tracer is current in a thread, operator calls record graph nodes instead of computing.
 *
 * What tracing makes are ordinary tensors over a *lazy storage*: one that has no bytes yet, only a cell that says which
 * graph node its value is. Views share the storage as they always do; version counters, the tape, saved tensors and
 * wrappers need to know nothing. When the tracer is flushed the graph is run and the bytes are put into the storages,
 * so every tensor that is still alive becomes real in its place.
 *
 * Functional by construction: a write through a tensor makes a new node, which becomes the value of the cell; a view
 * that was made before derives its value from the cell's again, by the operators that made it. A real tensor that is
 * used becomes an input of the graph; written, it has a pending value until the flush copies it.
 *
 * What cannot be recorded (values decide, no shape rule without data, memory shared in ways that views do not explain)
 * flushes first and is then computed: tracing can end early, never be wrong.
 *
 * Ownership: a tracer owns its graph and what it notes about tensors; it holds the inputs, borrows the tensors that it
 * makes (they tell it when they die). One thread uses it. Tests: tests/c/test_trace.c. */
#ifndef WICK_GRAPH_TRACE_H
#define WICK_GRAPH_TRACE_H

#include "graph/graph.h"

typedef struct wk__tracer wk__tracer;

enum {
  WK__GRAPH_DERIVED = 128,    /* node flag: a view that was made again from a value that has been written since; on the
                               * tape it is still the one that the program made. Until wk__tape_mark */
  WK__GRAPH_BEHIND_TAPE = 64, /* node flag: an argument requires grad and has been written behind its tape, which the
                               * graph's values do not lead back to. Until wk__tape_check */
};

/* Who traces. Called from inside operator calls. */
typedef struct wk__trace_owner {
  void *context;
  /* A real tensor is about to become an input. WK_UNSUPPORTED: nobody knows where it comes from, flush. `out_name` may
   * be set to a name for the input, `out_description` to a tensor without storage that has the tensor's dtype, sizes,
   * strides and offset as expressions over wk__tracer_env, whose hints are the tensor's own (given to the tracer). The
   * tensor itself has these until the flush, so that all that is computed of its sizes is symbolic: whoever tells them
   * to the program meanwhile has to take wk__symbolic_value. Left NULL: the input has the tensor's numbers. */
  wk_status (*input)(void *context, wk_tensor *tensor, const char **out_name, wk_tensor **out_description);
  /* Where the program stands, for the nodes recorded from now on; NULL: not known. */
  const wk__graph_place *(*place)(void *context, wk__graph *graph);
  /* Something could not be recorded; the tracer has been flushed and is not current any more. */
  void (*ended)(void *context, const char *reason);
  /* A shape rule found that the number input can be converted to the dtype. NULL: nobody wants to know. */
  void (*number_fits)(void *context, int number, wk_dtype dtype);
  bool has_numbers; /* the graph has number inputs. A tape may still say of its numbers that they were one in another */
  bool follows_tape;  /* histories of what is recorded go on outside: a call with something that requires grad and was
                         written where its tape does not see it is not recorded, for the graph's values lead elsewhere */
  bool checks_values; /* real inputs have the values that the program has now: a call that fails with them is not
                         recorded */
} wk__trace_owner;

wk__tracer *wk__tracer_create(const wk__trace_owner *owner) WK_MUST_USE;
void wk__tracer_release(wk__tracer *tracer); /* flushed or abandoned before: live lazy storages become real first */

/* Makes the tracer the thread's current one, or takes that back. Nothing is recorded in between. */
void wk__tracer_resume(wk__tracer *tracer);
void wk__tracer_pause(wk__tracer *tracer);
wk__tracer *wk__tracer_current(void);
/* Between resume and pause: calls of code that is not to be traced are computed until wk__tracer_go_on. One that uses
 * what the graph stands for (a value that is not there yet, an input that it may change) ends the trace where may_end
 * allows that, else it fails. */
void wk__tracer_suspend(wk__tracer *tracer, bool may_end);
void wk__tracer_go_on(wk__tracer *tracer);

wk__graph *wk__tracer_graph(wk__tracer *tracer); /* borrowed; being built */
/* The symbols of the graph that is being built, and what was assumed of them; made when first asked for. Another one
 * after each flush, because the graph owns it. NULL with the error set. */
wk__shape_env *wk__tracer_env(wk__tracer *tracer);
/* An input without values whose one dim is the symbol, for one that is the size of no other input. */
WK_MUST_USE wk_status wk__tracer_size_input(wk__tracer *tracer, wk_int symbol);
int wk__tracer_input_count(const wk__tracer *tracer);
wk_tensor *wk__tracer_input(const wk__tracer *tracer, int index); /* borrowed: the real tensor behind input i */

/* The node of the tensor's present value: made by tracing, or a real tensor that is (or now becomes) an input.
 * NULL with the error set. */
wk__graph_node *wk__tracer_node(wk__tracer *tracer, wk_tensor *tensor);
/* A real tensor whose value is part of the graph: it must never be written by anybody. */
WK_MUST_USE wk_status wk__tracer_constant(wk__tracer *tracer, wk_tensor *tensor);
bool wk__is_lazy(const wk_tensor *tensor); /* its storage has no bytes yet */
/* Whether its value is one that the present trace computes: it looks at no input. */
bool wk__is_computed_here(const wk_tensor *tensor);
/* Such a tensor gets the geometry of `view`, which was made of it, and is that view for whoever asks from now on. */
WK_MUST_USE wk_status wk__trace_become(wk_tensor *tensor, const wk_tensor *view);
/* The input whose storage the tensor looks at, or -1: a view of something real is given again by geometry, not by node.
 */
int wk__tracer_input_under(const wk__tracer *tracer, const wk_tensor *tensor);

bool wk__tracer_written_under(const wk__tracer *tracer, const wk_tensor *tensor); /* that input has a pending value */

/* Runs what is recorded, puts the values into all live lazy storages and real tensors with pending values. The tracer
 * has an empty graph afterwards and can go on; the recorded graph is given to the caller, its mutations set and its
 * outputs empty (owned; NULL when nothing was recorded). On failure (out of memory, an index out of range, ...) the
 * storages that have no value yet are poisoned: using them raises that error. */
WK_MUST_USE wk_status wk__tracer_flush(wk__tracer *tracer, wk__graph **out_graph);

#endif
