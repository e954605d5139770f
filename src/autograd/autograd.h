/* The tape: nodes that know how to turn gradients of results into gradients of inputs, and the engine that runs them.
 *
 * Ownership: a tensor owns its wk__autograd, which owns the gradient and the node that made the tensor (grad_fn). A
 * node owns the nodes behind its edges and the tensors that it saved; it never owns its own results, which it keeps as
 * plain aliases. So a graph is free of cycles and dies with the last tensor over it; long chains are freed without
 * recursion. */
#ifndef WICK_AUTOGRAD_AUTOGRAD_H
#define WICK_AUTOGRAD_AUTOGRAD_H

#include "ops/ops.h"
#include "wick/autograd.h"

typedef struct wk_node wk_node;

typedef struct wk__edge {
  wk_node *node;  /* owned; NULL: no gradient wanted */
  uint32_t input; /* which of that node's results the gradient belongs to */
} wk__edge;

/* A function of a gradient, called in the order of registration. Gives NULL with no error to keep it. It may remove
 * itself while it runs, and no other. */
typedef struct wk__grad_hook {
  struct wk__grad_hook *next;
  uint64_t id;
  wk_status (*call)(void *context, wk_tensor *grad, wk_tensor **out_grad); /* out: owned or NULL */
  void (*release)(void *context);
  void *context;
} wk__grad_hook;

struct wk__autograd {
  wk_tensor *grad;       /* owned */
  wk_node *grad_fn;      /* owned; NULL for a leaf */
  wk_node *accumulator;  /* borrowed: the leaf's end of the tape while anything holds it */
  uint32_t result;       /* which result of grad_fn this tensor is */
  uint32_t view_version; /* of a view: storage version for which grad_fn is right */
  bool requires_grad;    /* a leaf's own flag */
  bool retains_grad;
  int16_t grad_dtype; /* of a leaf's .grad: 0 the tensor's own, else 1 + a wk_dtype, of which WK_DTYPE_NONE is any */
  bool
      refuses_writes; /* result of a custom function that shares an input's memory: the tape could not follow a write */
  wk__grad_hook *hooks;            /* a leaf's; those of other tensors stand at their grad_fn */
  wk__grad_hook *accumulate_hooks; /* run after .grad was accumulated; the gradient passed is the tensor itself */
};

typedef struct wk__node_class {
  const char *suffix; /* "Backward0" */
  /* Gradients of the results (NULL: none) to gradients of the inputs, owned; only those with wanted[i] are needed. */
  wk_status (*run)(wk_node *node, wk_tensor *const *grads, const bool *wanted, bool create_graph,
                   wk_tensor **out_grads);
  void (*release_saved)(wk_node *node); /* after a run without retain_graph; sets `released` when it cannot run again */
  void (*destroy)(wk_node *node);       /* frees what is the class's own, before the memory goes */
  bool runs_without_grads;              /* also run when no gradient arrived: the embedding language may make zeros */
} wk__node_class;

/* Hooks around a whole node. pre: may replace gradients of results. post: may replace gradients of inputs. */
typedef struct wk__node_hook {
  struct wk__node_hook *next;
  uint64_t id;
  bool post;
  wk_status (*call)(void *context, wk_tensor **grad_inputs, int input_count, wk_tensor **grad_results,
                    int result_count);
  void (*release)(void *context);
  void *context;
} wk__node_hook;

struct wk_node {
  _Atomic int32_t references;
  uint16_t input_count, result_count;
  bool released;     /* what it saved is gone: it cannot run again */
  bool usual_name;   /* see wk_op.grad_fn_arg */
  uint64_t sequence; /* later nodes run first; leaves before all */
  const wk__node_class *class;
  const wk_op *op;              /* NULL when the class alone says what it is */
  char *name;                   /* owned; overrides op's and class's name; NULL */
  wk__edge *edges;              /* (input_count), inside the node's memory */
  wk__grad_hook **result_hooks; /* (result_count) hooks of non-leaf tensors; NULL until used */
  wk_tensor **retained;         /* (result_count) borrowed tensors whose .grad is to be kept; NULL until used */
  wk__node_hook *hooks;
  void *wrapper; /* the embedding language's object while it lives */
  void *notes;   /* what that keeps with the node itself; NULL */
};
extern void (*wk__node_release_notes)(void *notes); /* set by the embedding language */

/* ---- nodes (node.c) ---- */
uint64_t wk__node_next_sequence(void); /* all nodes so far have a smaller one, accumulators excepted */
/* Memory of `size` bytes (at least sizeof(wk_node)) followed by the edges. One reference. */
wk_node *wk__node_create(const wk__node_class *class, size_t size, int inputs, int results) WK_MUST_USE;
/* The node comes after those that its edges lead to: asking for an edge may have made one, of a view whose base was
 * written. */
void wk__node_put_behind_edges(wk_node *node);
static inline wk_node *wk__node_retain(wk_node *n) {
  if (n) atomic_fetch_add_explicit(&n->references, 1, memory_order_relaxed);
  return n;
}
void wk__node_release(wk_node *node);
/* What remains of a tape that cannot run any more: it has a name and leads to the leaves and nodes of `inputs`; running
 * it is an error with that message. NULL: the usual message, that it has been run. */
wk_node *wk__node_spent(const char *name, const char *message, wk_tensor *const *inputs, int count) WK_MUST_USE;
void wk__node_print_name(wk__string *s, const wk_node *node);       /* "AddBackward0" */
void wk__node_print_full_name(wk__string *s, const wk_node *node);  /* the same, "torch::autograd::CopySlices" */
void wk__node_print_short_name(wk__string *s, const wk_node *node); /* "Add", as messages have it */
wk_status wk__node_add_hook(wk_node *node, wk__node_hook hook);     /* takes the context */

/* ---- tensors (variable.c) ---- */
wk__autograd *wk__autograd_get(wk_tensor *t); /* makes it when absent; NULL with the error set */
/* Where the tensor's gradient goes: its grad_fn (made again for a view whose base was written) or its accumulator. */
WK_MUST_USE wk_status wk__edge_of(wk_tensor *t, wk__edge *out_edge);
wk_tensor *wk__accumulator_leaf(const wk_node *node); /* borrowed: the leaf that an accumulator adds to */
wk_node *wk__grad_fn(wk_tensor *t);                   /* borrowed; NULL for leaves, or with the error set */
WK_MUST_USE wk_status wk__set_history(wk_tensor *t, wk_node *node, uint32_t result); /* retains the node */
WK_MUST_USE wk_status wk__add_grad_hook(wk_tensor *t, wk__grad_hook hook);
void wk__remove_grad_hook(wk_tensor *t, uint64_t id);
/* The first hook with that function where wk__add_grad_hook would put one now; borrowed, NULL when there is none. */
wk__grad_hook *wk__find_grad_hook(wk_tensor *t,
                                  wk_status (*call)(void *context, wk_tensor *grad, wk_tensor **out_grad));
WK_MUST_USE wk_status wk__add_accumulate_hook(wk_tensor *t, wk__grad_hook hook);
WK_MUST_USE wk_status wk__retain_grad(wk_tensor *t);
WK_MUST_USE wk_status wk__keep_grad(wk_tensor *t, wk_tensor *grad,
                                    bool create_graph); /* adds to .grad of a retained one */
uint64_t wk__next_hook_id(void);
void wk__grad_hooks_release(wk__grad_hook *list);
/* Runs a list of hooks over *grad (owned, replaced). */
WK_MUST_USE wk_status wk__run_grad_hooks(const wk__grad_hook *hooks, wk_tensor **grad);
/* Refuses an in-place write that the tape could not follow, in PyTorch's words. */
WK_MUST_USE wk_status wk__check_inplace(wk_tensor *t);

/* ---- saved tensors in another form (saved.c): kept elsewhere, or computed again ---- */
typedef struct wk__packed { /* what a saver made of one tensor; its own fields follow */
  wk_status (*unpack)(struct wk__packed *packed, wk_tensor **out_tensor); /* out: owned; its history is not looked at */
  void (*release)(struct wk__packed *packed);
} wk__packed;
typedef struct wk__saver {
  struct wk__saver *outer; /* set by wk__saver_push; savers live until they are removed */
  wk_status (*pack)(struct wk__saver *saver, wk_tensor *tensor, wk__packed **out_packed); /* tensor: without history */
} wk__saver;
void wk__saver_push(wk__saver *saver); /* for this thread; the innermost one packs */
void wk__saver_remove(wk__saver *saver);
bool wk__saver_active(void);
WK_MUST_USE wk_status wk__pack(wk_tensor *t, wk__packed **out_packed);
/* An alias of the unpacked tensor; with a node, it has that as history. */
WK_MUST_USE wk_status wk__unpack(wk__packed *packed, wk_node *node, uint32_t result, wk_tensor **out_tensor);
void wk__packed_release(wk__packed *packed);

/* ---- inference tensors (inference.c) ---- */
void wk__mark_if_inference(wk_tensor *fresh_tensor); /* for tensors made beside operator calls; NULL is fine */
WK_MUST_USE wk_status wk__check_saved(const wk_tensor *tensor); /* refuses to keep an inference tensor for backward */

/* ---- recording (record.c) ---- */
/* A written view: the base's history becomes "base with this slice replaced". */
/* The base as the view's dtype has it, of a view of the parts of complex elements or of real ones as parts: in the
 * caller's scope; the base itself where both are of one kind. */
wk_tensor *wk__base_as_view(wk_tensor *base, const wk_tensor *view);
WK_MUST_USE wk_status wk__rebase_history(wk_tensor *view, wk_node *node);
wk_node *wk__sliced_function(const wk_node *node); /* borrowed: what a CopySlices node wraps; NULL for others */
void wk__detach_in_place(wk_tensor *t);            /* detach_() */
/* The error for a saved tensor that was written since. grad_fn: what made it when it was saved; NULL for a leaf. */
wk_status wk__saved_tensor_modified(const wk_tensor *t, const wk_node *grad_fn, uint32_t result, uint32_t expected);
wk_status wk__saved_tensors_freed(void); /* the error for a second run */
/* Of an operator's node: whether its run would be an error for a saved tensor that was written, and that error. */
bool wk__saved_was_written(const wk_node *node);
wk_status wk__saved_error(const wk_node *node);

/* ---- the engine (engine.c) ---- */
typedef struct wk__backward {
  wk_tensor *const *tensors; /* where to begin */
  wk_tensor *const *grads;   /* one each; NULL: ones for a tensor with one element */
  int count;
  wk_tensor *const *inputs; /* NULL: accumulate into all leaves */
  int input_count;
  bool accumulate_inputs; /* inputs: into their .grad (backward(inputs=...)) instead of out_grads */
  bool retain_graph, create_graph, allow_unused;
  wk_tensor **out_grads; /* (input_count) NULL on entry; owned, on failure too; stay NULL where nothing flowed */
  /* In place of out_grads, or NULL: gets each gradient of an input by itself, in the order in which they would be
   * added. Takes the reference. */
  wk_status (*take)(void *context, int input, wk_tensor *steal_grad);
  void *take_context;
} wk__backward;
WK_MUST_USE wk_status wk__run_backward(const wk__backward *request);
/* "expected device cuda:0 but got cpu" */
void wk__print_devices_of_gradient(wk__string *text, wk_device wanted, wk_device got);
/* Called at the end of an outermost backward pass that has gone well; NULL: nothing waits. */
extern wk_status (*wk__backward_ended)(void);
/* Anomaly detection. `made`: a node has been created, `found`: it has failed with that error, which is given back or
 * replaced. The embedding language sets both before it is on. */
extern atomic_bool wk__anomaly_on;
extern void (*wk__anomaly_made)(wk_node *node);
extern wk_status (*wk__anomaly_found)(const wk_node *node, wk_status status);
extern atomic_bool wk__anomaly_finds_nan; /* a NaN in what a node gives is an error; for all threads */

/* ---- what wiring.c gives to the parts above ---- */
wk__layer_fn wk__inference_layer, wk__autograd_layer; /* inference.c, record.c */
void wk__autograd_release(wk__autograd *meta);        /* tensor/tensor.h, wk__tensor_upcalls */

#endif
