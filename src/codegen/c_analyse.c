/* What has to be known of a nest before it is written: where each value lives, which phase needs it, and what rows keep
 * from one phase for a later one.
 *
 * A value that is dear to compute and needed in two phases is kept; the others are computed again, which costs less
 * than memory. Where an early phase stores, an input may be overwritten, so everything is kept, as in tier 0. What is
 * kept may wait in the row of an output that is stored when it is needed last: memory that is asked for earlier, and
 * less of it. Tests: tests/c/test_codegen.c. */
#include "codegen/internal.h"

static bool is_uniform(const analysis *a, const wk__instr *i) {
  if (wk__loop_is_number(i->op)) return true;
  if (i->op == WK__LOOP_index) return wk__sym_loop_vars(i->expression) == 0;
  if (wk__loop_class_of(i->op) != WK__CLASS_MAP) return false;
  for (int k = 0; k < wk__loop_ops[i->op].arity; k++) {
    int from = a->place[i->operands[k]];
    bool constant = a->nest->instrs[i->operands[k]].op == WK__LOOP_constant;
    if (from != PLACE_UNIFORM && !constant) return false;
  }
  return true;
}

static void find_places(analysis *a) {
  for (int64_t v = 1; v < a->nest->instr_count; v++) {
    const wk__instr *i = &a->nest->instrs[v];
    a->place[v] = wk__loop_is_store(i->op) || i->op == WK__LOOP_constant ? PLACE_NONE
                  : is_uniform(a, i)                                     ? PLACE_UNIFORM
                  : wk__instr_per_element(a->nest, i)                    ? PLACE_ELEMENT
                                                                         : PLACE_ROW;
    if (a->place[v] == PLACE_ROW) a->number[v] = (uint16_t)a->row_count++;
    a->has_store_add |= i->op == WK__LOOP_store_add;
    a->phases = (int)wk__max(a->phases, i->stage + 1);
  }
}

/* By elements: reductions, whatever they make, and what is stored. */
static bool is_root(const analysis *a, const wk__instr *i) {
  return wk__loop_is_reduction(i->op) || (wk__loop_is_store(i->op) && wk__instr_per_element(a->nest, i));
}

static bool is_dear(const analysis *a, const wk__instr *i) {
  if (wk__loop_is_load(i->op)) return a->nest->accesses[i->extra].has_indirect;
  if (i->op >= WK__LOOP_sqrt && i->op <= WK__LOOP_erf) return true;
  if (i->op >= WK__LOOP_div && i->op <= WK__LOOP_pow) return true;
  return i->op == WK__LOOP_check_index || wk__loop_is_scan(i->op);
}

static bool stores_early(const analysis *a) {
  for (int64_t v = 1; v < a->nest->instr_count; v++) {
    const wk__instr *i = &a->nest->instrs[v];
    if (wk__loop_is_store(i->op) && i->stage < a->phases - 1) return true;
  }
  return false;
}

typedef void visit_fn(analysis *a, wk__var v, int phase);

/* Calls `visit` on the element values that v is computed from. */
static void visit_operands(analysis *a, wk__var v, int phase, visit_fn *visit) {
  const wk__instr *i = &a->nest->instrs[v];
  for (int k = 0; k < wk__loop_ops[i->op].arity; k++)
    if (a->place[i->operands[k]] >= PLACE_ELEMENT) visit(a, i->operands[k], phase);
  if (!wk__loop_has_access(i->op)) return;
  const wk__access *access = &a->nest->accesses[i->extra];
  for (int d = 0; d < access->ndim; d++)
    if (access->indirect[d] && a->place[access->indirect[d]] >= PLACE_ELEMENT) visit(a, access->indirect[d], phase);
}

static void want(analysis *a, wk__var v, int phase) {
  if (a->wanted_in[v] >> phase & 1) return;
  a->wanted_in[v] |= UINT64_C(1) << phase;
  visit_operands(a, v, phase, want);
}

static int first_phase(const analysis *a, wk__var v) { return __builtin_ctzll(a->wanted_in[v]); }

bool is_loaded_from_kept(const analysis *a, wk__var v, int phase) {
  return a->place[v] == PLACE_KEPT && first_phase(a, v) < phase;
}

static void need(analysis *a, wk__var v, int phase) {
  if (a->needed[v]) return;
  a->needed[v] = true;
  if (!is_loaded_from_kept(a, v, phase)) visit_operands(a, v, phase, need);
}

static void need_again(analysis *a, wk__var v, int phase) {
  if (a->needed[v]) return;
  a->needed[v] = true;
  visit_operands(a, v, phase, need_again);
}

void mark_needed(analysis *a, int phase, bool keeping) {
  memset(a->needed, 0, (size_t)a->nest->instr_count * sizeof *a->needed);
  for (int64_t v = 1; v < a->nest->instr_count; v++) {
    const wk__instr *i = &a->nest->instrs[v];
    bool kept = keeping && a->place[v] == PLACE_KEPT && first_phase(a, (wk__var)v) == phase;
    if (kept || (is_root(a, i) && wk__instr_phase(i) == phase)) (keeping ? need : need_again)(a, (wk__var)v, phase);
  }
}

/* From the last phase to the first: what a phase needs of an earlier one is computed there. */
static void find_kept(analysis *a) {
  bool all = stores_early(a);
  for (int64_t v = 1; v < a->nest->instr_count; v++) {
    const wk__instr *i = &a->nest->instrs[v];
    if (is_root(a, i)) want(a, (wk__var)v, wk__instr_phase(i));
  }
  for (int p = a->phases - 1; p > 0; p--) {
    mark_needed(a, p, true);
    for (int64_t v = a->nest->instr_count - 1; v > 0; v--) {
      const wk__instr *i = &a->nest->instrs[v];
      bool plain_load = wk__loop_is_load(i->op) && !a->nest->accesses[i->extra].has_indirect;
      if (!a->needed[v] || a->place[v] != PLACE_ELEMENT || first_phase(a, (wk__var)v) >= p) continue;
      if (plain_load || !(all || is_dear(a, i))) continue;
      a->place[v] = PLACE_KEPT;
      a->number[v] = (uint16_t)a->kept_count++;
      mark_needed(a, p, true);
    }
  }
}

/* Whether anything is read, row by row or by elements, in a later phase. */
static bool reads_after(analysis *a, int phase) {
  for (int p = phase + 1; p < a->phases; p++) {
    mark_needed(a, p, true);
    for (int64_t v = 1; v < a->nest->instr_count; v++) {
      const wk__instr *i = &a->nest->instrs[v];
      if (!wk__loop_is_load(i->op)) continue;
      if (a->place[v] == PLACE_ROW ? i->stage == p : a->needed[v] && !is_loaded_from_kept(a, (wk__var)v, p))
        return true;
    }
  }
  return false;
}

/* The only access of its buffer, and no other value's home. */
static bool is_free(const analysis *a, uint16_t access) {
  for (int64_t k = 0; k < a->nest->access_count; k++)
    if (k != access && a->nest->accesses[k].buffer == a->nest->accesses[access].buffer) return false;
  for (int64_t v = 1; v < a->nest->instr_count; v++)
    if (a->home[v] == access + 1) return false;
  return true;
}

static bool can_wait_in(const analysis *a, int64_t v, const wk__instr *store) {
  int made = first_phase(a, (wk__var)v), last = 63 - __builtin_clzll(a->wanted_in[v]);
  if (store->op != WK__LOOP_store || !wk__instr_per_element(a->nest, store) || store->stage <= made ||
      store->stage < last)
    return false;
  int stored = a->nest->buffers[a->nest->accesses[store->extra].buffer].dtype;
  return wk__dtypes[stored].size == wk__dtypes[a->nest->instrs[v].dtype].size && is_free(a, store->extra);
}

/* Where an output lies in an input's memory, element on element (program.h), an early write must leave nothing to read.
 */
static void find_homes(analysis *a) {
  for (int64_t v = 1; v < a->nest->instr_count; v++) {
    if (a->place[v] != PLACE_KEPT || reads_after(a, first_phase(a, (wk__var)v))) continue;
    for (int64_t u = 1; u < a->nest->instr_count && !a->home[v]; u++)
      if (can_wait_in(a, v, &a->nest->instrs[u])) a->home[v] = (uint16_t)(a->nest->instrs[u].extra + 1);
  }
}

static void number_reductions(analysis *a) {
  for (int64_t v = 1; v < a->nest->instr_count; v++) {
    int op = a->nest->instrs[v].op;
    if (wk__loop_is_reduction(op) || wk__loop_is_scan(op)) a->reduction[v] = (uint16_t)a->reduction_count++;
  }
}

int walker_of(const analysis *a, wk__var v) {
  int number = (int)a->nest->access_count;
  for (wk__var u = 1; u < v; u++) number += wk__loop_has_expression(a->nest->instrs[u].op);
  return number;
}

int walker_count(const analysis *a) {
  return walker_of(a, (wk__var)a->nest->instr_count) + wk__nest_bound_count(a->nest);
}

wk_status analyse(const wk__nest *nest, analysis *out) {
  size_t n = (size_t)nest->instr_count;
  *out = (analysis){.nest = nest, .has_rows = nest->reduction_dims > 0, .phases = 1};
  out->wanted_in = wk__alloc_zeroed(n * sizeof *out->wanted_in);
  out->number = wk__alloc_zeroed(n * sizeof *out->number);
  out->home = wk__alloc_zeroed(n * sizeof *out->home);
  out->reduction = wk__alloc_zeroed(n * sizeof *out->reduction);
  out->place = wk__alloc_zeroed(n * sizeof *out->place);
  out->needed = wk__alloc_zeroed(n * sizeof *out->needed);
  if (!out->wanted_in || !out->number || !out->home || !out->reduction || !out->place || !out->needed)
    return WK_OUT_OF_MEMORY;
  find_places(out);
  if (out->phases > 64) return wk_fail(WK_UNSUPPORTED, "a nest of more than 64 phases");
  if (walker_count(out) > WK__KERNEL_WALKERS) return wk_fail(WK_UNSUPPORTED, "a kernel body has too many accesses");
  if (out->has_rows) find_kept(out);
  if (out->kept_count) find_homes(out);
  number_reductions(out);
  return WK_OK;
}

void release_analysis(analysis *a) {
  wk__free(a->wanted_in);
  wk__free(a->number);
  wk__free(a->home);
  wk__free(a->reduction);
  wk__free(a->place);
  wk__free(a->needed);
}

wk_status wk__c_memory_of(const wk__nest *nest, wk__c_memory *out) {
  analysis a;
  wk_status status = analyse(nest, &a);
  *out = (wk__c_memory){.kept_count = a.kept_count,
                        .strip_count = a.row_count + a.reduction_count * STATE_STRIPS,
                        .counter_count = a.reduction_count};
  release_analysis(&a);
  return status;
}
