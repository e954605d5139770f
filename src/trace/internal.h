/* What the tracing files share: the notes about tensors and storages, and how calls become nodes. */
#ifndef WICK_TRACE_INTERNAL_H
#define WICK_TRACE_INTERNAL_H

#include "ops/internal.h"
#include "trace/trace.h"

typedef struct wk__trace_cell wk__trace_cell;
typedef struct wk__trace_record wk__trace_record;
typedef struct wk__trace_holder wk__trace_holder;

/* What a storage holds. `whole` is the geometry that `node` has: of the tensor that the storage was made for, or of the
 * real tensor that became an input. */
struct wk__trace_cell {
  wk__trace_cell *previous, *next; /* among the tracer's lazy ones */
  wk__tracer *tracer;
  wk_storage *storage; /* borrowed: a lazy one tells when it dies (NULL then), a real one is held by its input */
  wk_tensor *whole;    /* shape only; the tracer's */
  wk__graph_node *node;
  wk__trace_record *records; /* of every tensor that looked at it */
  uint32_t version;          /* writes so far */
  uint32_t counted;          /* those of them that the storage counts; others are counted by x.data itself */
  int input;                 /* of a real storage; -1 */
  bool shared;               /* other inputs look at the same storage: it cannot be written */
  uint8_t tried;             /* what was open (wk__tracer_try_begin) when tracing made it */
  bool behind_tape;          /* written where a tensor's tape does not see it: under no_grad(), or through detach() */
};

/* What is known of one tensor. */
struct wk__trace_record {
  wk__trace_record *previous, *next; /* among the tracer's live tensors that tracing made */
  wk__trace_record *in_cell;         /* the next one of the cell */
  wk__tracer *tracer;
  wk_tensor *tensor; /* borrowed; NULL when it died */
  wk_tensor *shape;  /* its geometry; the tracer's */
  wk__trace_cell *cell;
  wk__trace_record *parent; /* of a view: what it was made from; NULL for the whole */
  const wk_op *op;          /* of a view: by which operator */
  wk__graph_arg *args;      /* of a view: its arguments; the first one is replaced when it is derived again */
  wk__graph_node *node;
  uint32_t version; /* the cell's when `node` was right */
  bool of_function; /* of a view: an autograd.Function gave it, so it cannot be derived again */
  bool took_data;   /* of a real tensor whose .data was set: it looks at the cell, and counts its writes itself */
};

struct wk__tracer {
  wk__trace_owner owner;
  wk__graph *graph;
  wk__graph *ended; /* owned: keeps the symbols of the call during which the trace ended; NULL */
  wk__arena arena;  /* cells and records, until the flush */
  wk__map tensors;  /* real wk_tensor * -> record */
  wk__map storages; /* real wk_storage * -> first cell */
  wk__map tried;    /* node -> its value, one of `shapes`; see check.c */
  wk__map taped;    /* sequence of a tape node -> source line of the call that it is the derivative of; see calls.c */
  const wk__source_line *derived, *derived_from,
      *derived_by; /* the last source line of a derivative, what it was made of */
  wk__trace_cell *lazy;
  wk__trace_record *records;
  bool uses_symbols;         /* counted in wk__symbolic_traces */
  wk__trace_holder *holders; /* of symbolic integers, which have to become known before the graph goes */
  wk_tensor **shapes;        /* owned: the geometries of cells and records, values that were tried */
  int64_t shape_count, shape_capacity;
  wk_tensor **inputs; /* owned, as the graph's inputs */
  int64_t input_count, input_capacity;
  wk__map given; /* number of an input + 1 -> the tensor that it was, owned, which has become something else */
  const wk_tensor *becoming; /* see wk__tracer_let_become; NULL */
  uint8_t tries;             /* see wk__tracer_try_begin; */
  bool in_vain;              /* one has failed */
  bool tries_draws;          /* what is tried may draw random numbers, */
  bool undone;               /* and has drawn some that are not to be */
  wk__map used;              /* node -> tensor, */
  wk_tensor **used_tensors;  /* (used_count) owned */
  int64_t used_count, used_capacity;
  bool by_values; /* the last call that has no node has none because values decide its shape */
  bool running;   /* inside a flush */
  bool suspended; /* calls are computed, */
  bool may_end;   /* and may end the trace */
};

/* trace.c */
wk__trace_record *wk__trace_record_of(wk__tracer *t, wk_tensor *tensor); /* NULL with the error set */
wk__graph_node *wk__trace_fresh(wk__trace_record *record);               /* the value now; NULL with the error set */
void wk__trace_forget_used(wk__tracer *t);
WK_MUST_USE wk_status wk__trace_try_failed(wk__tracer *t, const char *why); /* always an error */
wk_tensor *wk__trace_new_tensor(wk__tracer *t, wk__graph_node *node, const wk_tensor *value);
void wk__trace_forget(wk__tracer *t);

/* symbolic.c */
/* The real tensor gets the geometry of its description until wk__trace_make_known. */
WK_MUST_USE wk_status wk__trace_describe(wk__tracer *t, wk_tensor *tensor, const wk_tensor *description);
void wk__trace_make_known(wk__tracer *t); /* all holders of symbols get the symbols' values */

static inline bool wk__trace_counts(const wk__tracer *t) {
  return t->owner.rows && !wk_int_is_poisoned(t->owner.rows(t->owner.context, -1));
}

/* calls.c: one node a call. NULL with the error set; WK_UNSUPPORTED when values decide the shape. */
wk__graph_node *wk__trace_call(wk__tracer *t, const wk_op *op, const wk_value *args);
wk__graph_node *wk__trace_record_call(wk__tracer *t, const wk_op *op, const wk__graph_arg *args);
/* Of an operator that mutates: the node's items are the new values of `written`. */
wk__graph_node *wk__trace_mutating_call(wk__tracer *t, const wk_op *op, const wk_value *args, wk_tensor *const *written,
                                        int count);

/* check.c: the value that a call has now, owned: computed beside the graph, with all that it is made of.
 * WK_UNSUPPORTED: it is made of random numbers, or of what cannot be called twice. */
WK_MUST_USE wk_status wk__trace_value_now(wk__tracer *t, const wk_op *op, const wk__graph_arg *args, wk_tensor **out);
/* check.c: WK_UNSUPPORTED when the call would fail with the values that its arguments have. */
WK_MUST_USE wk_status wk__trace_check_values(wk__tracer *t, const wk_op *op, const wk__graph_arg *args);

/* writes.c */
WK_MUST_USE wk_status wk__trace_check_writable(wk__tracer *t, wk_tensor *tensor);
bool wk__trace_is_detached(const wk__trace_record *record); /* a detach() lies between it and the whole */
/* The tensor gets the value of `node`, converted and broadcast as an in-place operator's result (checked: sizes have to
 * be equal) or as copy_'s source. `value` describes the node. */
WK_MUST_USE wk_status wk__trace_write(wk__tracer *t, wk_tensor *tensor, wk__graph_node *node, const wk_tensor *value,
                                      bool in_place);

#endif
