/* What the other parts may use of sym/: shape environments, the leaves of expressions, and what can be asked of them.
 * The arithmetic itself is public: wick/sym.h. */
#ifndef WICK_SYM_SYM_H
#define WICK_SYM_SYM_H

#include "base/base.h"
#include "wick/sym.h"

enum {
  WK__LOOP_VARS = 32, /* i0..i15 pointwise, then r0..r15 of reductions */
  WK__FIRST_R = 16,   /* the index of r0 */
  WK__BUFFERS = 32,   /* s<b>_<d>: the size of dim d of buffer b */
  WK__BUFFER_DIMS = 16,
};

/* ---- Shape environments. An environment owns its symbols, its expressions and its guards, in one arena: a wk_int that
 * is not known must not outlive it. One thread at a time may use it. ---- */

typedef struct wk__shape_env wk__shape_env;

wk__shape_env *wk__shape_env_create(void) WK_MUST_USE;
void wk__shape_env_release(wk__shape_env *env);

/* The environment for expressions whose leaves belong to none (loop variables, buffer sizes). Set returns the one
 * before, for putting back. */
static inline wk__shape_env *wk__shape_env_current(void) { return wk__thread.shape_env; }
wk__shape_env *wk__shape_env_set_current(wk__shape_env *env);

/* The first comparison or value that could not be decided, or WK_OK. Sticky: ask at the end of a trace. */
WK_MUST_USE wk_status wk__shape_env_status(const wk__shape_env *env);

#define WK__NO_HINT INT64_MIN /* a symbol whose value is known only at run time: comparisons cannot decide by it */

/* A new symbol with lo <= its value <= hi (INT64_MIN, INT64_MAX: no bound), `hint` its present value. `name` is copied;
 * NULL takes the next of s0, s1, ... Poisoned when the name is taken or no name, or the hint is out of range. */
wk_int wk__shape_env_symbol(wk__shape_env *env, const char *name, int64_t hint, int64_t lo, int64_t hi);

/* The symbols of an environment, in the order in which they were made. */
typedef struct wk__symbol_info {
  const char *name;
  int64_t hint, lo, hi; /* as given */
  wk_int value;         /* the leaf; wk__sym_index(value) is the position */
} wk__symbol_info;
int64_t wk__shape_env_symbol_count(const wk__shape_env *env);
wk__symbol_info wk__shape_env_symbol_at(const wk__shape_env *env, int64_t i);

/* An environment with the same symbols, guards and status. NULL with the error set. */
wk__shape_env *wk__shape_env_copy(const wk__shape_env *env) WK_MUST_USE;
/* Forgets the guards that have a leaf which is not `known`. */
void wk__shape_env_keep_guards(wk__shape_env *env, bool (*known)(void *context, wk_int leaf), void *context);
/* x of one environment in another that has the same symbols first: its copy. */
wk_int wk__sym_translate(wk_int x, wk__shape_env *into);

/* From now on expressions built in this environment may assume 0 <= loop variable < size. */
void wk__shape_env_set_loop_size(wk__shape_env *env, int loop_var, int64_t size);

typedef enum wk__guard_kind { WK__GUARD_EQ, WK__GUARD_NE, WK__GUARD_LT, WK__GUARD_GE } wk__guard_kind;
typedef struct wk__sym_guard {
  wk__guard_kind kind;
  wk_int left, right; /* what was assumed: left kind right */
} wk__sym_guard;
bool wk__guard_compare(wk__guard_kind kind, int64_t left, int64_t right); /* does it hold of these values */
int64_t wk__shape_env_guard_count(const wk__shape_env *env);
wk__sym_guard wk__shape_env_guard(const wk__shape_env *env, int64_t i); /* in the order they were recorded */
void wk__sym_guard_print(wk__string *out, wk__sym_guard guard);         /* "s0 >= 4" */

/* ---- Leaves that need no environment of their own, and never an allocation ---- */

wk_int wk_int_loop_var(int index);              /* i0..i15, r0..r15: at least 0 */
wk_int wk_int_buffer_size(int buffer, int dim); /* s<buffer>_<dim>: at least 0 */

/* ---- Looking at an expression. It is in canonical form: a SUM of constant + coefficient * term, whose terms are
 * leaves, divisions, extrema, or PRODUCTs of those; like terms are merged, and terms and factors are in one order. ----
 */

typedef enum wk__sym_kind {
  WK__SYM_KNOWN,       /* an integer; no node */
  WK__SYM_POISONED,    /* no node */
  WK__SYM_SYMBOL,      /* leaf: index is its number in the environment */
  WK__SYM_LOOP_VAR,    /* leaf: index 0..31 */
  WK__SYM_BUFFER_SIZE, /* leaf: index is buffer * WK__BUFFER_DIMS + dim */
  WK__SYM_FLOORDIV,    /* operand 0 // operand 1 */
  WK__SYM_MOD,         /* operand 0 % operand 1 */
  WK__SYM_MIN,         /* of two operands */
  WK__SYM_MAX,
  WK__SYM_PRODUCT, /* of two or more operands */
  WK__SYM_SUM,     /* constant + sum of coefficient i * operand i */
} wk__sym_kind;

wk__sym_kind wk__sym_kind_of(wk_int x);
bool wk__sym_is_leaf(wk_int x);
int wk__sym_index(wk_int leaf);
int wk__sym_count(wk_int x); /* operands; 0 for leaves and known integers */
wk_int wk__sym_operand(wk_int x, int i);
int64_t wk__sym_coefficient(wk_int x, int i); /* of a SUM */
int64_t wk__sym_constant(wk_int x);           /* of a SUM; the value when known */

uint32_t wk__sym_loop_vars(wk_int x); /* bit i: loop variable i occurs */

/* Bounds that hold for all values in the symbols' ranges; INT64_MIN and INT64_MAX stand for none. */
typedef struct wk__sym_range {
  int64_t lo, hi;
} wk__sym_range;
wk__sym_range wk__sym_bounds(wk_int x);

/* True only when it holds for all values; never records a guard and never fails. */
bool wk__sym_proves_eq(wk_int a, wk_int b);
bool wk__sym_proves_lt(wk_int a, wk_int b);
bool wk__sym_proves_le(wk_int a, wk_int b);

/* x = constant + sum over i of coefficient[i] * loop variable i, where constant and coefficients hold no loop variable.
 * False when x is not of this form (or out of memory, with the error set). */
bool wk__sym_affine(wk_int x, wk_int *constant, wk_int coefficient[WK__LOOP_VARS]);

/* The value of x where `resolve` gives the leaves'. Errors: the resolver's, overflow, division by zero. */
typedef wk_status wk__sym_resolver(void *context, wk_int leaf, int64_t *out);
WK_MUST_USE wk_status wk__sym_eval(wk_int x, wk__sym_resolver *resolve, void *context, int64_t *out);

/* The value of x for the symbols' hints. False, with no error set, when a leaf has none. */
bool wk__sym_hint(wk_int x, int64_t *out);
wk_int wk__symbolic_value(wk_int x); /* the same as a number; poisoned when there is none */

/* x with every leaf replaced by what `replace` gives (the leaf itself to keep it), simplified again on the way. */
typedef wk_int wk__sym_replacer(void *context, wk_int leaf);
wk_int wk__sym_substitute(wk_int x, wk__sym_replacer *replace, void *context);

/* ---- Text: Python's syntax: "4*s0 + i1%8 - 3", "(s0 + 3)//4", "min(s0, s1)". parse(print(x)) is x. ---- */
void wk_int_print(wk__string *out, wk_int x);
WK_MUST_USE wk_status wk_int_parse(wk__shape_env *env, const char *text, wk_int *out);

#endif
