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
#ifndef WICK_TRACE_TRACE_H
#define WICK_TRACE_TRACE_H

#include "graph/graph.h"

typedef struct wk__tracer wk__tracer;

enum {
  WK__GRAPH_DERIVED = 128,    /* node flag: a view that was derived again after its base was written; on the tape it is
                                 still the view that the program made. Until wk__tape_mark */
  WK__GRAPH_BEHIND_TAPE = 64, /* node flag: an argument requires grad and was written where the tape did not see it, so
                                 the graph does not compute what the tape differentiates. Until wk__tape_check */
};

/* Who traces. Called from inside operator calls. */
typedef struct wk__trace_owner {
  void *context;
  /* A real tensor is about to become an input. WK_UNSUPPORTED: its origin is not known; flush. `out_name` may
   * be set to a name for the input, `out_description` to a tensor without storage that has the tensor's dtype, sizes,
   * strides and offset as expressions over wk__tracer_env, whose hints are the tensor's own (given to the tracer). The
   * tensor itself has these until the flush, so that all that is computed of its sizes is symbolic: where the program
   * is given one meanwhile, it has to be its wk__symbolic_value. Left NULL: the input has the tensor's numbers. */
  wk_status (*input)(void *context, wk_tensor *tensor, const char **out_name, wk_tensor **out_description);
  /* Where the program stands, for the nodes recorded from now on; NULL: not known. */
  const wk__source_line *(*source)(void *context, wk__graph *graph);
  /* Something could not be recorded; the tracer has been flushed and is not current any more. */
  void (*ended)(void *context, const char *reason);
  /* A shape rule found that the number input can be converted to the dtype. NULL: not wanted. */
  void (*number_fits)(void *context, int number, wk_dtype dtype);
  /* The rows of a result depend on values, and are so many now: the symbol that stands for them in the graph.
   * WK_INT_POISONED: they are not wanted as one, which ends the trace. now -1: only asks that. NULL: never. */
  wk_int (*rows)(void *context, int64_t now);
  /* A flush stands between two steps of the graph. Code that runs here sees no value of the graph; what is given but
   * WK_OK ends the flush as a failure. NULL: the flush goes on without asking. */
  wk_status (*between_steps)(void *context);
  bool has_numbers; /* the graph has number inputs. A tape may still say of its numbers that they were one in another */
  bool follows_tape;  /* histories go on outside of the graph: a call is not recorded when an argument requires grad and
                         was written where its tape does not see it, since graph and tape would disagree */
  bool ends_on_reads; /* the bytes of a real tensor are looked at by code that does not tell the owner: what follows
                         from them holds for these bytes alone, so the trace ends */
  bool checks_values; /* real inputs have the values that the program has now: a call that fails with them is not
                         recorded */
} wk__trace_owner;

wk__tracer *wk__tracer_create(const wk__trace_owner *owner) WK_MUST_USE;
void wk__tracer_release(wk__tracer *tracer); /* flushed or abandoned before: live lazy storages become real first */

/* Makes the tracer the thread's current one, or takes that back. Nothing is recorded in between. */
void wk__tracer_resume(wk__tracer *tracer);
void wk__tracer_pause(wk__tracer *tracer);
static inline wk__tracer *wk__tracer_current(void) { return wk__thread.tracer; }
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
uint32_t wk__tracer_input_writes(const wk__tracer *tracer, int index); /* how many its storage has counted */
wk_tensor *wk__tracer_input(const wk__tracer *tracer, int index);      /* borrowed: the real tensor behind input i, */
/* and the one that the program gave, which may have become something else since: then they are two. */
wk_tensor *wk__tracer_given(const wk__tracer *tracer, int index);

/* The node of the tensor's present value: made by tracing, or a real tensor that is (or now becomes) an input.
 * NULL with the error set. */
wk__graph_node *wk__tracer_node(wk__tracer *tracer, wk_tensor *tensor);
/* A real tensor whose value becomes a constant of the graph; it must never be written. */
WK_MUST_USE wk_status wk__tracer_constant(wk__tracer *tracer, wk_tensor *tensor);
/* Whether the one element is not 0: computed beside the graph, with all that it is made of. WK_UNSUPPORTED: it is made
 * of random numbers, or of what cannot be called twice. */
WK_MUST_USE wk_status wk__tracer_truth(wk__tracer *tracer, wk_tensor *tensor, bool *out_truth);
WK_MUST_USE wk_status wk__tracer_number(wk__tracer *tracer, wk_tensor *tensor, double *out_number); /* the same */
bool wk__is_lazy(const wk_tensor *tensor); /* its storage has no bytes yet */
/* Whether its value is one that the present trace computes: it looks at no input. */
bool wk__is_computed_here(const wk_tensor *tensor);
/* The owner repeats what the next calls make of this real tensor: its own view, or one of other memory; NULL: of none.
 */
void wk__tracer_let_become(wk__tracer *tracer, const wk_tensor *input);
bool wk__trace_is_let(const wk_tensor *tensor);     /* that tensor */
bool wk__trace_may_become(const wk_tensor *tensor); /* that tensor, or one that is computed here */
/* Such a tensor gets the geometry of `view`, which was made of it, and is that view for whoever asks from now on. The
 * graph's input stays what it was: wk__tracer_input gives an alias with the old geometry then, and no history. */
WK_MUST_USE wk_status wk__trace_become(wk_tensor *tensor, const wk_tensor *view);
/* t.data = other, for such a real tensor: called before (what it was is kept for the graph) and behind that. */
WK_MUST_USE wk_status wk__trace_leave_data(wk_tensor *tensor, wk_tensor *other);
WK_MUST_USE wk_status wk__trace_take_data(wk_tensor *tensor, wk_tensor *other);
/* It looks at a tensor whose data were set, and so counts its writes with that one. */
bool wk__tracer_shares_count(const wk__tracer *tracer, const wk_tensor *tensor);
/* The tensor has become a leaf. The graph's values lead to none that is made in it: calls with it are as those of what
 * was written behind its tape. */
void wk__trace_made_leaf(wk_tensor *tensor);
/* The input whose storage the tensor looks at, or -1: a view of something real is given again by geometry, not by node.
 */
int wk__tracer_input_under(const wk__tracer *tracer, const wk_tensor *tensor);

bool wk__tracer_written_under(const wk__tracer *tracer, const wk_tensor *tensor); /* that input has a pending value */

/* Between begin and end calls may be recorded that the program does not make: nothing may come of them that it could
 * notice, so what would end the trace fails, and so do random operators and writes to tensors from before. They nest.
 */
WK_MUST_USE wk_status wk__tracer_try_begin(wk__tracer *tracer);
bool wk__tracer_try_end(wk__tracer *tracer);    /* false: something has failed, or the trace was ended otherwise */
int wk__tracer_tries(const wk__tracer *tracer); /* how many are open */
/* Whether random operators are recorded in the open ones all the same; those behind the node `before` (NULL: all) draw
 * nothing where they are not used. */
void wk__tracer_try_draws(wk__tracer *tracer, bool draws);
void wk__tracer_undo_draws(wk__tracer *tracer, const wk__graph_node *before);
/* The tensor whose node this is, among those that calls in the open ones have used; NULL: none has. Borrowed. */
wk_tensor *wk__tracer_used(const wk__tracer *tracer, const wk__graph_node *node);
/* As wk__tracer_node, and the tensor counts as used. */
wk__graph_node *wk__tracer_use(wk__tracer *tracer, wk_tensor *tensor);
/* Records a call whose results are equal to those of the tensors, which were computed here: from now on each of them
 * (with what else looks at its whole memory, and what is derived of it) is a result of the call. args: one a schema
 * parameter. tape_sequence: of the node that is the tensors' history. WK_UNSUPPORTED: one of them is a view. */
WK_MUST_USE wk_status wk__tracer_stand_for(wk__tracer *tracer, const wk_op *op, const wk__graph_arg *args,
                                           wk_tensor *const *tensors, uint64_t tape_sequence);

/* Runs what is recorded, puts the values into all live lazy storages and real tensors with pending values. The tracer
 * has an empty graph afterwards and can go on; the recorded graph is given to the caller, its mutations set and its
 * outputs empty (owned; NULL when nothing was recorded). On failure (out of memory, an index out of range, ...) the
 * storages that have no value yet are poisoned: using them raises that error. */
WK_MUST_USE wk_status wk__tracer_flush(wk__tracer *tracer, wk__graph **out_graph);

bool wk__trace_has_symbols(
    void); /* this thread's trace has some; false, too, when it was ended in the middle of a call */

/* ---- what wiring.c gives to the parts above ---- */
wk__layer_fn wk__trace_layer;
/* tensor/tensor.h, wk__tensor_upcalls */
void wk__trace_tensor_dropped(wk_tensor *tensor);
void wk__trace_storage_dropped(wk_storage *storage);
WK_MUST_USE wk_status wk__trace_realize(wk_tensor *tensor, const char *why);
WK_MUST_USE wk_status wk__trace_add_constant(wk_tensor *tensor);
WK_MUST_USE wk_status wk__trace_symbolic_hold(void *object, wk__make_known *make_known);
void wk__trace_symbolic_drop(void *object);

#endif
