/* Capture: Python frames become segments: guards, a graph, side effects, and how to go on.
 *
 * A compiled function is called through wk__compiled_call. The first time its frame is run by our evaluator, with real
 * objects and lazy tensors; what it read becomes guards, what it computed a graph, what it did to objects a list of
 * steps. Later calls check, run the graph, repeat the steps, and return or go on in the frame where the segment ended.
 *
 * Here: what the extension module tells dynamo about its types, and what it can ask. docs/capture.md explains the whole
 * with an example. */
#ifndef WICK_DYNAMO_DYNAMO_H
#define WICK_DYNAMO_DYNAMO_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "compile/compile.h"
#include "graph/graph.h"

/* A mode on the thread's stack is asked about every call; WK__OVERRIDE_NO_SUBCLASS: subclasses are not asked;
 * WK__OVERRIDE_NOTHING: nothing is. */
enum { WK__OVERRIDE_BY_MODE = 1, WK__OVERRIDE_NO_SUBCLASS = 2, WK__OVERRIDE_NOTHING = 4 };

/* torch.compiler.set_stance(). */
typedef enum wk__stance {
  WK__STANCE_DEFAULT,
  WK__STANCE_FORCE_EAGER,        /* compiled functions run as they are */
  WK__STANCE_EAGER_ON_RECOMPILE, /* nothing is captured: what no segment holds for runs plainly */
  WK__STANCE_FAIL_ON_RECOMPILE,  /* it is an error */
  WK__STANCE_EAGER_THEN_COMPILE, /* the first call of each runs as it is */
} wk__stance;

/* What dynamo has to know of the objects of the extension module, which stands above it. One an interpreter. */
struct wk_node; /* autograd/autograd.h */

typedef struct wk__binding {
  void *state; /* the module's, for the functions below */
  PyObject *module;
  PyTypeObject **parameter_type, **overload_type, **function_type; /* set later than the others */
  PyTypeObject *tensor_type, *module_type, *operator_type, *dtype_type, *device_type, *size_type, *memory_format_type,
      *layout_type;
  PyTypeObject *finfo_type, *iinfo_type; /* owned */
  PyTypeObject *compiled_type;           /* set by wk__add_dynamo */
  wk__stance stance;                     /* what calls of compiled functions do */
  PyObject *recompile_error; /* owned: the exception where something is captured again; NULL: there is no error */
  PyObject *break_errors;    /* owned: a list of what error_on_graph_break() has entered, the last one counts; NULL */
  PyObject *substitutes;     /* owned: a dict from functions to those that are captured in their place; NULL */
  PyObject *notes;           /* owned: a list that what capture does is noted in (dynamo/notes.c); NULL */
  PyObject *forced;          /* owned: gives, for a Compiled, what is called in its place; NULL: itself is */
  wk_tensor *(*tensor_of)(PyObject *tensor);                /* borrowed */
  PyObject *(*wrap)(void *state, wk_tensor *steal_tensor);  // -> new
  /* The same, as an object of a class that derives from Tensor. */
  PyObject *(*wrap_as)(void *state, PyTypeObject *type, wk_tensor *steal_tensor);  // -> new
  PyObject *(*raise)(void *state);         /* the thread's wick error as an exception; NULL */
  PyObject *(*grad_of)(PyObject *tensor);  // -> new; NULL for None, no exception
  PyObject *grad_name;                     /* "grad", interned */
  PyObject *new_name;                      /* "__new__" */
  /* Context managers that change nothing but this thread's modes: no_grad, ..., DisableTorchFunction. */
  bool (*is_own_mode)(PyTypeObject *type);
  bool (*is_saver)(PyTypeObject *type); /* saved_tensors_hooks, or of a class that derives from it */
  bool (*is_optimizer)(void *state, PyObject *object);
  /* The k-th dictionary of hooks of all modules that calls look at; NULL: there are no more. */
  PyObject *(*module_hooks)(void *state, int k);              // -> borrowed
  PyObject *(*tensor_hooks)(wk_tensor *tensor);               // -> borrowed: the dictionary; NULL: it has none
  PyObject *(*leaf_hooks)(wk_tensor *leaf, bool accumulate);  // -> borrowed; the same
  PyObject *(*call_hook)(PyObject *hook, PyObject *const *args, Py_ssize_t count);  // -> new
  Py_ssize_t (*hook_count)(const struct wk_node *node); /* of Python, at the node and at its results */
  int (*overrides)(void *state); /* what of __torch_function__ this thread asks now: WK__OVERRIDE_... */
  /* What a backend is given. integers: (inputs) those that stand for an integer. */
  PyObject *(*graph_module)(void *state, wk__graph *graph, const bool *integers);  // -> new
  PyObject *(*size_example)(int64_t value, const char *symbol);                    // -> new: an int that prints so
  PyObject *unsupported;          /* the exception of fullgraph=True; set by wk__add_dynamo, as is this one: */
  PyObject *constraint_violation; /* a size that mark_dynamic() marked is a constant */
} wk__binding;

enum { WK__COUNTS_ROWS = 1, WK__COUNTS_ITEMS = 2 }; /* rows of results, and integers that are taken of tensors */

typedef struct wk__compile_options {
  PyObject *backend; /* owned; a callable (graph_module, example_inputs) -> callable; NULL: as `mode` says */
  PyObject
      *guard_filter; /* owned; [(name, value, type, derived types, module)] -> a bool each; NULL: all are checked */
  wk__compile_mode mode;
  bool fullgraph;  /* a break is an error */
  int counts;      /* WK__COUNTS_: what values decide that does not break the graph, as with fullgraph */
  bool keeps_tape; /* calls of a graph are nodes of the tape, each its own, as those of eager code */
  int8_t dynamic;  /* -1: sizes that changed become symbolic; 0 never; 1 at once */
  int limit;       /* entries a position; then it runs plain */
} wk__compile_options;

/* An autograd.Function has been applied, which has left a node on the tape; `apply` has not returned yet. */
typedef struct wk__applied {
  struct wk_node *node;
  PyObject *context;         /* borrowed: what forward and backward are given */
  wk_tensor *const *inputs;  /* (node->input_count) as they were given */
  wk_tensor *const *results; /* (node->result_count) NULL: no tensor */
  bool once;                 /* backward is marked with once_differentiable */
  bool materializes;         /* gradients that do not arrive are zeros */
  bool hands_on;             /* backward gives the gradients as they come, also where there are none */
  bool writes;               /* forward has marked inputs as written */
} wk__applied;
void wk__dynamo_applied(const wk__applied *applied); /* nothing is done where nothing is captured */
/* The result of a node of the region has got a hook: whether the graph makes it. */
bool wk__dynamo_hooked(wk_tensor *tensor);
bool wk__dynamo_captures(void);     /* this thread records Python now */
void wk__dynamo_noticed_mode(void); /* the thread's grad mode was asked for or set by the program */

/* The program has called an operator: for whoever binds operators to Python. */
void wk__dynamo_calls_reached(void);
static inline void wk__dynamo_count_call(void) {
  if (WK_UNLIKELY(++wk__thread.program_calls == wk__thread.program_calls_asked)) wk__dynamo_calls_reached();
}

/* Adds the type Compiled and the functions of `compiler` to the extension module, which keeps the binding. 0, or -1
 * with an exception. */
int wk__add_dynamo(PyObject *module, wk__binding *binding);

/* What Compiled.kernels() tells of a graph; sources: with the C of kernels. -> new */
PyObject *wk__compiled_graph_report(const wk__compiled_graph *compiled, bool sources);

/* Calls `run`, whose Python code is no part of what is captured: the session is suspended meanwhile. */
void wk__dynamo_run_plainly(void (*run)(void *context), void *context);

/* For whoever turns Python arguments into values: a float's value becomes a WK_VALUE_INPUT if the graph being captured
 * has the float as an input. */
void wk__dynamo_number(PyObject *number, wk_value *value);
/* Whether the int is a symbolic one of the region being captured, and which: operators take its expression. */
bool wk__dynamo_int(PyObject *number, wk_int *out);
/* Whether an input is none of these, which is guarded then. */
bool wk__dynamo_number_avoids(const wk_value *input, const double *values, int count);
/* It is used in a way that no graph input can be: a constant from here on, and no input any more. */
void wk__dynamo_specialize(wk_value *input);

#endif
