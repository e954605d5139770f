/* Shape environments: symbols, hash-consed nodes, the order of terms; and the leaves that belong to no environment.
 *
 * In: kinds and operands. Out: the one node with these contents. Invariant: contents are equal if and only if the bits
 * of the wk_int are, and a node never changes. Tests: tests/c/test_sym.c, env_* and random expressions. */
#include <ctype.h>
#include <stdio.h>

#include "sym/internal.h"

/* ---- Static leaves ---- */

static wk__sym_node loop_vars[WK__LOOP_VARS];
static wk__sym_node buffer_sizes[WK__BUFFERS * WK__BUFFER_DIMS];

__attribute__((constructor)) static void make_leaves(void) {
  for (int i = 0; i < WK__LOOP_VARS; i++) loop_vars[i] = (wk__sym_node){.kind = WK__SYM_LOOP_VAR, .index = i};
  for (int i = 0; i < WK__BUFFERS * WK__BUFFER_DIMS; i++) {
    buffer_sizes[i] = (wk__sym_node){.kind = WK__SYM_BUFFER_SIZE, .index = i};
  }
}

static wk_int no_such_leaf(const char *what, int index) {
  (void)wk_fail(WK_INTERNAL_ERROR, "there is no %s %d", what, index);
  return WK_INT_POISONED;
}

wk_int wk_int_loop_var(int index) {
  if ((unsigned)index >= WK__LOOP_VARS) return no_such_leaf("loop variable", index);
  return wk__sym_of_node(&loop_vars[index]);
}

wk_int wk_int_buffer_size(int buffer, int dim) {
  if ((unsigned)buffer >= WK__BUFFERS) return no_such_leaf("buffer", buffer);
  if ((unsigned)dim >= WK__BUFFER_DIMS) return no_such_leaf("buffer dim", dim);
  return wk__sym_of_node(&buffer_sizes[buffer * WK__BUFFER_DIMS + dim]);
}

/* ---- Life of an environment ---- */

wk__shape_env *wk__shape_env_set_current(wk__shape_env *env) {
  wk__shape_env *before = wk__thread.shape_env;
  wk__thread.shape_env = env;
  return before;
}

wk__shape_env *wk__shape_env_create(void) {
  wk__shape_env *env = wk__alloc_zeroed(sizeof *env);
  if (!env) return NULL;
  for (int i = 0; i < WK__LOOP_VARS; i++) env->loop_size[i] = INT64_MAX;
  return env;
}

void wk__shape_env_release(wk__shape_env *env) {
  if (!env) return;
  if (wk__thread.shape_env == env) wk__thread.shape_env = NULL;
  wk__arena_release(&env->arena);
  wk__map_release(&env->nodes);
  wk__map_release(&env->guard_index);
  wk__free(env->symbols);
  wk__free(env->guards);
  wk__free(env);
}

wk_status wk__shape_env_status(const wk__shape_env *env) { return env->status; }

void wk__shape_env_set_loop_size(wk__shape_env *env, int loop_var, int64_t size) { env->loop_size[loop_var] = size; }

static wk__shape_env *env_of(wk_int x) { return wk__sym_has_node(x) ? wk__sym_node_of(x)->env : NULL; }

static wk__shape_env *env_for(wk_int a, wk_int b) {
  wk__shape_env *of_a = env_of(a), *of_b = env_of(b);
  if (of_a && of_b && of_a != of_b) {
    (void)wk_fail(WK_INTERNAL_ERROR, "an expression over symbols of two shape environments");
    return NULL;
  }
  wk__shape_env *env = of_a ? of_a : of_b ? of_b : wk__thread.shape_env;
  if (!env) (void)wk_fail(WK_INTERNAL_ERROR, "a symbolic expression needs a current shape environment");
  return env;
}

wk_int wk__sym_apply(wk__sym_operation *operation, wk_int a, wk_int b) {
  if (wk_int_is_poisoned(a) || wk_int_is_poisoned(b)) return WK_INT_POISONED;
  wk__shape_env *env = env_for(a, b);
  if (!env) return WK_INT_POISONED;
  wk__shape_env *before = wk__shape_env_set_current(env);
  wk_int result = operation(env, a, b);
  wk__shape_env_set_current(before);
  return result;
}

/* ---- Nodes ---- */

static uint64_t hash_contents(wk__sym_kind kind, int64_t constant, int count, const wk__sym_item *items) {
  uint64_t h = wk__hash_mix((uint64_t)kind, (uint64_t)constant);
  h = wk__hash_bytes(items, (size_t)count * sizeof *items, h);
  return h ? h : 1; /* maps have no key 0 */
}

static bool has_contents(const wk__sym_node *node, wk__sym_kind kind, int64_t constant, int count,
                         const wk__sym_item *items) {
  return node->kind == kind && node->constant == constant && node->count == count &&
         memcmp(node->items, items, (size_t)count * sizeof *items) == 0;
}

wk_int wk__sym_intern(wk__shape_env *env, wk__sym_kind kind, int64_t constant, int count, const wk__sym_item *items) {
  uint64_t hash = hash_contents(kind, constant, count, items);
  wk__sym_node *first = wk__map_get(&env->nodes, hash);
  for (wk__sym_node *node = first; node; node = node->next) {
    if (has_contents(node, kind, constant, count, items)) return wk__sym_of_node(node);
  }
  wk__sym_node *node = wk__arena_alloc(&env->arena, sizeof *node + (size_t)count * sizeof *items);
  if (!node) return WK_INT_POISONED;
  *node = (wk__sym_node){.kind = kind, .constant = constant, .count = count, .env = env, .next = first};
  memcpy(node->items, items, (size_t)count * sizeof *items);
  return wk__map_set(&env->nodes, hash, node) == WK_OK ? wk__sym_of_node(node) : WK_INT_POISONED;
}

wk_int wk__sym_intern_pair(wk__shape_env *env, wk__sym_kind kind, wk_int a, wk_int b) {
  return wk__sym_intern(env, kind, 0, 2, (wk__sym_item[]){{a, 1}, {b, 1}});
}

/* ---- Symbols ---- */

const wk__symbol *wk__sym_find_symbol(const wk__shape_env *env, const char *name, size_t length) {
  for (int64_t i = 0; i < env->symbol_count; i++) {
    const char *other = env->symbols[i].name;
    if (strncmp(other, name, length) == 0 && other[length] == 0) return &env->symbols[i];
  }
  return NULL;
}

/* i4, r0 and s2_1 name static leaves, min and max are functions. */
static bool is_reserved(const char *name) {
  if (strcmp(name, "min") == 0 || strcmp(name, "max") == 0) return true;
  const char *rest = name + 1 + strspn(name + 1, "0123456789");
  if (rest == name + 1) return false;
  if (*name == 'i' || *name == 'r') return *rest == 0;
  return *name == 's' && *rest == '_' && rest[1] && rest[1 + strspn(rest + 1, "0123456789")] == 0;
}

static bool is_name(const char *name) {
  if (!isalpha((unsigned char)*name) && *name != '_') return false;
  for (const char *p = name; *p; p++) {
    if (!isalnum((unsigned char)*p) && *p != '_' && *p != '.') return false;
  }
  return !is_reserved(name);
}

/* An unused s<number>; numbering follows the count so that it is stable for equal programs. */
static void next_name(const wk__shape_env *env, char *name, size_t size) {
  int64_t number = env->symbol_count;
  do snprintf(name, size, "s%lld", (long long)number++);
  while (wk__sym_find_symbol(env, name, strlen(name)));
}

static wk_int refuse(const char *why, const char *name) {
  (void)wk_fail(WK_VALUE_ERROR, "symbol '%s': %s", name, why);
  return WK_INT_POISONED;
}

wk_int wk__shape_env_symbol(wk__shape_env *env, const char *name, int64_t hint, int64_t lo, int64_t hi) {
  char buffer[24];
  if (!name) {
    next_name(env, buffer, sizeof buffer);
    name = buffer;
  }
  if (!is_name(name)) return refuse("not a name for a symbol", name);
  if (wk__sym_find_symbol(env, name, strlen(name))) return refuse("the name is taken", name);
  if (lo > hi || (hint != WK__NO_HINT && (hint < lo || hint > hi))) return refuse("the value is out of range", name);

  wk__sym_node *node = wk__arena_alloc(&env->arena, sizeof *node);
  char *copy = wk__arena_strdup(&env->arena, name);
  if (!node || !copy) return WK_INT_POISONED;
  if (wk__grow(&env->symbols, &env->symbol_capacity, env->symbol_count + 1, sizeof *env->symbols) != WK_OK) {
    return WK_INT_POISONED;
  }
  *node = (wk__sym_node){.kind = WK__SYM_SYMBOL, .index = (int)env->symbol_count, .env = env};
  wk_int value = wk__sym_of_node(node);
  env->symbols[env->symbol_count++] = (wk__symbol){copy, hint, {lo, hi}, value};
  return value;
}

int64_t wk__shape_env_symbol_count(const wk__shape_env *env) { return env->symbol_count; }

wk__symbol_info wk__shape_env_symbol_at(const wk__shape_env *env, int64_t i) {
  const wk__symbol *symbol = &env->symbols[i];
  return (wk__symbol_info){symbol->name, symbol->hint, symbol->range.lo, symbol->range.hi, symbol->value};
}

/* ---- Copies ---- */

static wk_int same_leaf(void *into, wk_int leaf) {
  return wk__sym_kind_of(leaf) == WK__SYM_SYMBOL ? ((wk__shape_env *)into)->symbols[wk__sym_index(leaf)].value : leaf;
}

wk_int wk__sym_translate(wk_int x, wk__shape_env *into) {
  if (!wk__sym_has_node(x)) return x;
  wk__shape_env *before = wk__shape_env_set_current(into);
  wk_int result = wk__sym_substitute(x, same_leaf, into);
  wk__shape_env_set_current(before);
  return result;
}

static wk_status copy_contents(wk__shape_env *copy, const wk__shape_env *env) {
  for (int64_t i = 0; i < env->symbol_count; i++) {
    const wk__symbol *s = &env->symbols[i];
    WK_TRY(wk_int_check(wk__shape_env_symbol(copy, s->name, s->hint, s->range.lo, s->range.hi)));
  }
  memcpy(copy->loop_size, env->loop_size, sizeof copy->loop_size);
  for (int64_t i = 0; i < env->guard_count; i++) {
    const wk__sym_guard *g = &env->guards[i];
    wk_int left = wk__sym_translate(g->left, copy), right = wk__sym_translate(g->right, copy);
    WK_TRY(wk_int_check(left));
    WK_TRY(wk_int_check(right));
    WK_TRY(wk__sym_record_guard(copy, (wk__sym_guard){g->kind, left, right}));
  }
  copy->status = env->status;
  return WK_OK;
}

wk__shape_env *wk__shape_env_copy(const wk__shape_env *env) {
  wk__shape_env *copy = wk__shape_env_create();
  if (copy && copy_contents(copy, env) == WK_OK) return copy;
  wk__shape_env_release(copy);
  return NULL;
}

/* ---- Order ---- */

const wk__sym_item *wk__sym_factors(wk_int term, wk__sym_item *single, int *count) {
  if (wk__sym_kind_of(term) == WK__SYM_PRODUCT) {
    *count = wk__sym_node_of(term)->count;
    return wk__sym_node_of(term)->items;
  }
  *single = (wk__sym_item){term, 1};
  *count = 1;
  return single;
}

static int sign(int64_t a, int64_t b) { return (a > b) - (a < b); }

/* Two different nodes, neither a PRODUCT. */
static int compare_nodes(const wk__sym_node *a, const wk__sym_node *b) {
  int order = sign(a->kind, b->kind);
  if (!order) order = sign(a->index, b->index);
  if (!order) order = sign(a->count, b->count);
  for (int i = 0; i < a->count && !order; i++) {
    order = wk__sym_compare(a->items[i].term, b->items[i].term);
    if (!order) order = sign(a->items[i].coefficient, b->items[i].coefficient);
  }
  return order ? order : sign(a->constant, b->constant);
}

int wk__sym_compare(wk_int a, wk_int b) {
  if (wk_int_same(a, b)) return 0;
  bool node_a = wk__sym_has_node(a), node_b = wk__sym_has_node(b);
  if (!node_a || !node_b) return node_a != node_b ? node_b - node_a : sign(a.bits, b.bits);
  wk__sym_item single_a, single_b;
  int count_a, count_b;
  const wk__sym_item *factors_a = wk__sym_factors(a, &single_a, &count_a);
  const wk__sym_item *factors_b = wk__sym_factors(b, &single_b, &count_b);
  if (count_a == 1 && count_b == 1) return compare_nodes(wk__sym_node_of(a), wk__sym_node_of(b));
  int order = sign(count_b, count_a);
  for (int i = 0; i < count_a && !order; i++) order = wk__sym_compare(factors_a[i].term, factors_b[i].term);
  return order;
}

/* ---- Looking at an expression ---- */

wk__sym_kind wk__sym_kind_of(wk_int x) {
  if (wk_int_is_known(x)) return WK__SYM_KNOWN;
  return wk_int_is_poisoned(x) ? WK__SYM_POISONED : wk__sym_node_of(x)->kind;
}

bool wk__sym_is_leaf(wk_int x) {
  wk__sym_kind kind = wk__sym_kind_of(x);
  return kind == WK__SYM_SYMBOL || kind == WK__SYM_LOOP_VAR || kind == WK__SYM_BUFFER_SIZE;
}

int wk__sym_index(wk_int leaf) { return wk__sym_node_of(leaf)->index; }

int wk__sym_count(wk_int x) { return wk__sym_has_node(x) ? wk__sym_node_of(x)->count : 0; }

wk_int wk__sym_operand(wk_int x, int i) { return wk__sym_node_of(x)->items[i].term; }

int64_t wk__sym_coefficient(wk_int x, int i) { return wk__sym_node_of(x)->items[i].coefficient; }

int64_t wk__sym_constant(wk_int x) { return wk__sym_has_node(x) ? wk__sym_node_of(x)->constant : x.bits; }
