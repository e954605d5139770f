/* From a nest to a program: classes of values, phases, the order of steps, and temporary blocks by liveness.
 * In: a verified nest. Out: step lists that execute*.c run. Invariant: a temporary block is reused only after the last
 * step that reads it, and all stores of a phase stand behind all its computations, so that a buffer which is read and
 * written in the same place is read first. Tests: tests/c/test_program.c. */
#include "cpu/native/built.h"
#include "cpu/tier0/program_internal.h"

typedef struct builder {
  wk__program *program;
  const wk__nest *nest;
  bool has_rows; /* the nest has reduction dims, so values are per row or per element */
  bool *needed;  /* scratch for one phase */
} builder;

static const wk__instr *instr_of(const builder *b, int v) { return &b->nest->instrs[v]; }

/* ---- values ---- */

static bool is_uniform_op(const builder *b, const wk__instr *i) {
  if (wk__loop_is_number(i->op)) return true;
  if (wk__loop_class_of(i->op) != WK__CLASS_MAP) return false;
  for (int k = 0; k < wk__loop_ops[i->op].arity; k++)
    if (b->program->values[i->operands[k]].class != VALUE_UNIFORM) return false;
  return true;
}

/* An element value that an element step of a later phase reads, other than a plain load (which is loaded again). */
static bool crosses_phases(const builder *b, int v) {
  const wk__instr *i = instr_of(b, v);
  if (wk__loop_is_load(i->op) && !b->nest->accesses[i->extra].has_indirect) return false;
  for (int64_t u = v + 1; u < b->nest->instr_count; u++) {
    const wk__instr *user = instr_of(b, (int)u);
    int user_phase = wk__instr_phase(user);
    if (user_phase <= i->stage || !(user->per_element || wk__loop_is_reduction(user->op))) continue;
    for (int k = 0; k < wk__loop_ops[user->op].arity; k++)
      if (user->operands[k] == v) return true;
  }
  return false;
}

static void classify(builder *b) {
  wk__program *p = b->program;
  for (int v = 1; v < (int)b->nest->instr_count; v++) {
    const wk__instr *i = instr_of(b, v);
    value_info *info = &p->values[v];
    info->lane = (uint8_t)wk__lane_of((wk_dtype)i->dtype);
    if (wk__loop_is_store(i->op)) {
      info->class = VALUE_NONE;
    } else if (is_uniform_op(b, i)) {
      *info = (value_info){VALUE_UNIFORM, info->lane, (uint16_t)p->uniform_count++};
    } else if (!wk__instr_per_element(b->nest, i)) {
      *info = (value_info){VALUE_ROW, info->lane, (uint16_t)p->row_count++};
    } else if (b->has_rows && crosses_phases(b, v)) {
      p->kept[p->kept_count] = (wk__var)v;
      *info = (value_info){VALUE_KEPT, info->lane, (uint16_t)p->kept_count++};
    } else {
      info->class = VALUE_ELEMENT;
    }
  }
}

/* ---- steps ---- */

static wk_status append(step_list *list, step s) {
  WK_TRY(wk__grow(&list->steps, &list->capacity, list->count + 1, sizeof s));
  list->steps[list->count++] = s;
  return WK_OK;
}

static uint8_t kind_of(const wk__nest *nest, const wk__instr *i) {
  switch (i->op) {
    case WK__LOOP_load:
      return nest->accesses[i->extra].has_indirect ? STEP_GATHER : STEP_LOAD;
    case WK__LOOP_masked_load:
      return STEP_MASKED_LOAD;
    case WK__LOOP_store:
      return nest->accesses[i->extra].has_indirect ? STEP_SCATTER : STEP_STORE;
    case WK__LOOP_store_add:
      return STEP_SCATTER_ADD;
    case WK__LOOP_index:
      return STEP_INDEX;
    case WK__LOOP_check_index:
      return STEP_CHECK_INDEX;
    case WK__LOOP_cast:
      return STEP_CAST;
    case WK__LOOP_round_to:
      return STEP_ROUND;
    default:
      return wk__loop_is_arg(i->op)         ? STEP_ARG
             : wk__loop_is_reduction(i->op) ? STEP_REDUCE
             : wk__loop_is_scan(i->op)      ? STEP_SCAN
                                            : STEP_MAP;
  }
}

static uint16_t number_in(const wk__var *list, int count, int v) {
  for (int k = 0; k < count; k++)
    if (list[k] == v) return (uint16_t)k;
  return 0;
}

static step step_for(const builder *b, int v) {
  const wk__program *p = b->program;
  const wk__instr *i = instr_of(b, v);
  int selector = i->op == WK__LOOP_where ? 1 : 0;
  bool has_operand = wk__loop_ops[i->op].arity > 0;
  step s = {.kind = kind_of(b->nest, i),
            .op = i->op,
            .value = (uint16_t)v,
            .in = {i->operands[0], i->operands[1], i->operands[2]},
            .extra = i->extra,
            .out_lane = (uint8_t)wk__lane_of((wk_dtype)i->dtype),
            .slot = NO_SLOT,
            .store = NO_STORE};
  s.lane = has_operand ? p->values[i->operands[selector]].lane : s.out_lane;
  if (wk__loop_has_expression(i->op)) s.extra = number_in(p->expressions, p->expression_count, v);
  if (s.kind == STEP_REDUCE || s.kind == STEP_ARG || s.kind == STEP_SCAN)
    s.extra = number_in(p->reductions, p->reduction_count, v);
  return s;
}

/* An element step reads row values through their expansions; so do the indirect coordinates of its access. */
static uint16_t block_operand(const builder *b, uint16_t v) {
  return b->program->expansion[v] ? b->program->expansion[v] : v;
}

static step element_step(const builder *b, int v) {
  step s = step_for(b, v);
  s.in_block = true;
  for (int k = 0; k < 3; k++) s.in[k] = block_operand(b, s.in[k]);
  return s;
}

/* ---- expansions ---- */

static wk_status add_expansion(builder *b, int v) {
  wk__program *p = b->program;
  if (b->program->expansion[v] || p->values[v].class != VALUE_ROW) return WK_OK;
  int place = p->value_count++;
  b->program->expansion[v] = (uint16_t)place;
  p->values[place] = (value_info){VALUE_UNIFORM, p->values[v].lane, (uint16_t)p->uniform_count++};
  step s = {.kind = STEP_EXPAND,
            .lane = p->values[v].lane,
            .out_lane = p->values[v].lane,
            .value = (uint16_t)place,
            .in = {(uint16_t)v},
            .slot = NO_SLOT,
            .store = NO_STORE};
  return append(&p->phases[instr_of(b, v)->stage].expand, s);
}

static wk_status expand_operands(builder *b) {
  for (int u = 1; b->has_rows && u < (int)b->nest->instr_count; u++) {
    const wk__instr *user = instr_of(b, u);
    if (!user->per_element && !wk__loop_is_reduction(user->op)) continue;
    for (int k = 0; k < wk__loop_ops[user->op].arity; k++) WK_TRY(add_expansion(b, user->operands[k]));
    if (!wk__loop_has_access(user->op)) continue;
    const wk__access *access = &b->nest->accesses[user->extra];
    for (int d = 0; d < access->ndim; d++)
      if (access->indirect[d]) WK_TRY(add_expansion(b, access->indirect[d]));
  }
  return WK_OK;
}

/* ---- phases ---- */

static bool in_blocks(const builder *b, const wk__instr *i) {
  return wk__instr_per_element(b->nest, i) || wk__loop_is_reduction(i->op);
}

static void need(builder *b, int v) {
  const wk__instr *i = instr_of(b, v);
  if (b->needed[v]) return;
  b->needed[v] = true;
  for (int k = 0; k < wk__loop_ops[i->op].arity; k++)
    if (wk__instr_per_element(b->nest, instr_of(b, i->operands[k])) &&
        b->program->values[i->operands[k]].class != VALUE_UNIFORM)
      need(b, i->operands[k]);
  if (!wk__loop_has_access(i->op)) return;
  const wk__access *access = &b->nest->accesses[i->extra];
  for (int d = 0; d < access->ndim; d++)
    if (access->indirect[d] && wk__instr_per_element(b->nest, instr_of(b, access->indirect[d])))
      need(b, access->indirect[d]);
}

/* Marks what phase p computes by blocks: its reductions and stores, and all that they need. */
static void mark_needed(builder *b, int p) {
  memset(b->needed, 0, (size_t)b->nest->instr_count * sizeof *b->needed);
  for (int v = 1; v < (int)b->nest->instr_count; v++) {
    const wk__instr *i = instr_of(b, v);
    bool root = wk__loop_is_reduction(i->op) || (wk__loop_is_store(i->op) && wk__instr_per_element(b->nest, i)) ||
                (b->program->values[v].class == VALUE_KEPT);
    if (root && wk__instr_phase(i) == p) need(b, v);
  }
}

/* Kept values of earlier phases are there already; loads are loaded again. */
static bool computed_before(const builder *b, int v, int p) {
  return b->program->values[v].class == VALUE_KEPT && instr_of(b, v)->stage < p;
}

/* What an already computed value needed is not needed for its sake. */
static void mark_needed_keeping(builder *b, int p) {
  mark_needed(b, p);
  for (int v = 1; v < (int)b->nest->instr_count; v++)
    if (b->needed[v] && computed_before(b, v, p)) b->needed[v] = false;
  for (bool changed = true; changed;) {
    changed = false;
    for (int v = 1; v < (int)b->nest->instr_count; v++) {
      const wk__instr *i = instr_of(b, v);
      bool root = wk__loop_is_reduction(i->op) || wk__loop_is_store(i->op) || b->program->values[v].class == VALUE_KEPT;
      if (!b->needed[v] || (root && wk__instr_phase(i) == p)) continue;
      bool used = false;
      for (int u = v + 1; u < (int)b->nest->instr_count && !used; u++) {
        if (!b->needed[u]) continue;
        const wk__instr *user = instr_of(b, u);
        for (int k = 0; k < wk__loop_ops[user->op].arity; k++) used |= user->operands[k] == v;
        if (!wk__loop_has_access(user->op)) continue;
        const wk__access *access = &b->nest->accesses[user->extra];
        for (int d = 0; d < access->ndim; d++) used |= access->indirect[d] == v;
      }
      if (!used) b->needed[v] = false, changed = true;
    }
  }
}

/* Computations first, stores behind them. */
static wk_status list_needed(builder *b, step_list *list) {
  for (int stores = 0; stores < 2; stores++)
    for (int v = 1; v < (int)b->nest->instr_count; v++)
      if (b->needed[v] && b->program->values[v].class != VALUE_UNIFORM &&
          wk__loop_is_store(instr_of(b, v)->op) == (stores == 1))
        WK_TRY(append(list, element_step(b, v)));
  return WK_OK;
}

static wk_status list_rows(builder *b, int p) {
  for (int stores = 0; stores < 2; stores++)
    for (int v = 1; v < (int)b->nest->instr_count; v++) {
      const wk__instr *i = instr_of(b, v);
      if (i->stage != p || in_blocks(b, i) || b->program->values[v].class == VALUE_UNIFORM) continue;
      if (wk__loop_is_store(i->op) == (stores == 1)) WK_TRY(append(&b->program->phases[p].rows, step_for(b, v)));
    }
  return WK_OK;
}

/* ---- temporary blocks ---- */

static bool reads_operand(const step *s, uint16_t value) {
  return s->in[0] == value || s->in[1] == value || s->in[2] == value;
}

static bool reads(const wk__nest *nest, const step *s, uint16_t value) {
  if (reads_operand(s, value)) return true;
  if (s->kind != STEP_GATHER && s->kind != STEP_SCATTER && s->kind != STEP_SCATTER_ADD) return false;
  const wk__access *access = &nest->accesses[s->extra];
  for (int d = 0; d < access->ndim; d++)
    if (access->indirect[d] == value) return true;
  return false;
}

static int64_t last_read(const wk__nest *nest, const step_list *list, int64_t from) {
  for (int64_t k = list->count - 1; k > from; k--)
    if (reads(nest, &list->steps[k], list->steps[from].value)) return k;
  return from;
}

static bool has_result(const step *s) { return !is_store_step(s) && s->kind != STEP_REDUCE && s->kind != STEP_ARG; }

/* Linear scan. A step may write over an operand that dies with it when their lanes have the same size; gathers and
 * scans read operands while they write, so they may not. */
static wk_status assign_slots(builder *b, step_list *list, bool keeping) {
  enum { MAX_SLOTS = 128 };
  int64_t busy_until[MAX_SLOTS];
  int used = 0;
  for (int64_t k = 0; k < list->count; k++) {
    step *s = &list->steps[k];
    bool own_place = keeping && b->program->values[s->value].class == VALUE_KEPT;
    if (!has_result(s) || own_place) continue;
    bool may_share = s->kind == STEP_MAP &&
                     wk__lane_size((wk__lane_type)s->lane) == wk__lane_size((wk__lane_type)s->out_lane) &&
                     s->op != WK__LOOP_where;
    int slot = 0;
    while (slot < used && !(busy_until[slot] < k || (may_share && busy_until[slot] == k))) slot++;
    if (slot == MAX_SLOTS) return wk_fail(WK_RUNTIME_ERROR, "a kernel body keeps too many values alive at once");
    if (slot == used) used++;
    busy_until[slot] = last_read(b->nest, list, k);
    s->slot = (int16_t)slot;
  }
  if (used > b->program->slot_count) b->program->slot_count = used;
  return WK_OK;
}

static bool is_load_step(const step *s) { return s->kind == STEP_LOAD || s->kind == STEP_MASKED_LOAD; }

/* A result whose block goes straight to memory is computed there, unless that memory is still to be read. */
static void find_direct_stores(const builder *b, step_list *list) {
  for (int64_t k = 0; k < list->count; k++) {
    step *s = &list->steps[k];
    if (s->kind != STEP_STORE) continue;
    for (int64_t j = 0; j < k; j++) {
      step *producer = &list->steps[j];
      if (producer->value != s->in[0] || !has_result(producer) || producer->store != NO_STORE) continue;
      if (producer->kind == STEP_CHECK_INDEX || b->program->values[producer->value].class == VALUE_KEPT) continue;
      producer->store = (int16_t)s->extra;
      for (int64_t l = 0; l < list->count; l++)
        if (is_load_step(&list->steps[l]) && last_read(b->nest, list, l) > j) {
          producer->conflicts |= UINT64_C(1) << (list->steps[l].extra & 63);
          b->program->has_conflicts = true;
        }
    }
  }
}

/* Takes a bool as memory has it, where every byte but 0 is true; the others want the 0 or 1 of a block. */
static bool takes_any_byte(const step *s) {
  return s->kind == STEP_MAP || s->kind == STEP_CAST || s->kind == STEP_REDUCE || s->kind == STEP_STORE;
}

/* A step reads the value, or what stays where the value is: a checked index (step_check_index). */
static bool reads_memory_of(const wk__nest *nest, const step_list *list, const step *s, uint16_t value) {
  if (reads(nest, s, value)) return true;
  for (const step *check = list->steps; check < s; check++)
    if (check->kind == STEP_CHECK_INDEX && check->in[0] == value && reads(nest, s, check->value)) return true;
  return false;
}

/* A load of adjacent elements is not copied: its value is the memory itself. Two do not stay there: one that is stored
 * behind another store, which may have written the memory by then, and a bool whose reader wants it to be 0 or 1. */
static void find_copied_loads(const wk__nest *nest, step_list *list) {
  int64_t first_store = 0;
  while (first_store < list->count && !is_store_step(&list->steps[first_store])) first_store++;
  for (int64_t j = 0; j < first_store; j++) {
    step *load = &list->steps[j];
    for (int64_t k = j + 1; k < list->count && load->kind == STEP_LOAD; k++) {
      const step *reader = &list->steps[k];
      if (!reads_memory_of(nest, list, reader, load->value)) continue;
      load->copies |= k > first_store || (load->out_lane == WK__LANE_BOOL && !takes_any_byte(reader));
    }
  }
}

/* Reads `value` as an index: a load or store at that place, or a step on the way there. */
static bool reads_as_index(const wk__nest *nest, const step *s, uint16_t value) {
  return reads(nest, s, value) && (!reads_operand(s, value) || s->index_only);
}

/* From the back, so that a step's readers are known before it. */
static void find_indices(const builder *b, step_list *list) {
  for (int64_t k = list->count - 1; k >= 0 && !b->has_rows; k--) {
    step *s = &list->steps[k];
    bool may = s->kind == STEP_LOAD || s->kind == STEP_CAST || s->kind == STEP_CHECK_INDEX, read = false;
    for (int64_t j = k + 1; may && j < list->count; j++) {
      if (!reads(b->nest, &list->steps[j], s->value)) continue;
      may = reads_as_index(b->nest, &list->steps[j], s->value);
      read = true;
    }
    s->index_only = may && read;
  }
}

/* No index of a load or store, and nothing on the way to one, is read in another way as well. */
static bool indices_stand_alone(const builder *b, const step_list *list) {
  for (int64_t k = 0; k < list->count; k++) {
    const step *s = &list->steps[k];
    for (int64_t j = 0; j < k; j++) {
      const step *from = &list->steps[j];
      bool as_index = s->index_only || !reads_operand(s, from->value);
      if (!from->index_only && has_result(from) && reads(b->nest, s, from->value) && as_index) return false;
    }
  }
  return true;
}

static wk_status finish_list(builder *b, step_list *list, bool keeping) {
  find_indices(b, list);
  b->program->indices_alone &= indices_stand_alone(b, list);
  find_copied_loads(b->nest, list);
  find_direct_stores(b, list);
  return assign_slots(b, list, keeping);
}

static wk_status build_phases(builder *b) {
  b->program->indices_alone = true;
  WK_TRY(expand_operands(b));
  for (int p = 0; p < b->program->phase_count; p++) {
    phase *ph = &b->program->phases[p];
    if (b->has_rows) WK_TRY(list_rows(b, p));
    mark_needed_keeping(b, p);
    WK_TRY(list_needed(b, &ph->keep));
    mark_needed(b, p);
    WK_TRY(list_needed(b, &ph->again));
    WK_TRY(finish_list(b, &ph->keep, true));
    WK_TRY(finish_list(b, &ph->again, false));
  }
  for (int v = 1; v < (int)b->nest->instr_count; v++) {
    int op = instr_of(b, v)->op;
    if (b->program->values[v].class == VALUE_UNIFORM && op != WK__LOOP_param && op != WK__LOOP_constant)
      WK_TRY(append(&b->program->uniform, step_for(b, v)));
  }
  return WK_OK;
}

/* ---- creation ---- */

/* As in a sum. */
static bool only_reads(const wk__program *p) {
  bool yes = p->reduction_count > 0;
  for (int k = 0; k < p->phase_count; k++) {
    const step_list *list = &p->phases[k].again;
    yes &= list->count == 0 ||
           (list->count == 2 && list->steps[0].kind == STEP_LOAD && list->steps[1].kind == STEP_REDUCE);
  }
  return yes;
}

/* Nothing but numbers that are loaded, computed with and stored element on element, and that cannot fail. */
static bool is_short(const wk__program *p) {
  const step_list *list = &p->phases[0].keep;
  bool yes = p->nest->geometry_free && p->phase_count == 1 && !p->may_fault && !p->has_conflicts;
  for (int64_t k = 0; k < list->count; k++) {
    int kind = list->steps[k].kind;
    yes &= kind == STEP_MAP || kind == STEP_CAST || kind == STEP_ROUND || kind == STEP_LOAD || kind == STEP_STORE;
  }
  return yes;
}

/* A store at places that values name: of several elements for one place the last one of the loop stays, so its order is
 * kept, as for store_add. */
static bool is_store_at_values(const wk__nest *nest, const wk__instr *i) {
  return i->op == WK__LOOP_store && nest->accesses[i->extra].has_indirect;
}

static bool has_order(const wk__nest *nest, const wk__instr *i) {
  return i->op == WK__LOOP_store_add || is_store_at_values(nest, i);
}

/* The loop's number is a coordinate of the store: no other step of it comes to the same place. */
static bool goes_apart(const wk__access *access, int dim) {
  for (int d = 0; d < access->ndim; d++)
    if (!access->indirect[d] && wk_int_same(access->index[d], wk__loop_i(dim))) return true;
  return false;
}

/* Additions to one place have the order of the loops. Steps of a loop that never come to the same place have no order
 * among each other: they are what threads may share, and every place still sees its additions in the same order. */
static void find_apart_dims(wk__program *p) {
  const wk__nest *nest = p->nest;
  if (!p->has_store_add || nest->geometry_free) return;
  p->apart_dims = (1u << nest->pointwise_dims) - 1;
  for (int d = 0; d < nest->pointwise_dims; d++)
    for (int64_t v = 1; v < nest->instr_count; v++)
      if (has_order(nest, &nest->instrs[v]) && !goes_apart(&nest->accesses[nest->instrs[v].extra], d))
        p->apart_dims &= ~(1u << d);
}

static void count_instrs(wk__program *p) {
  int stages = 0;
  for (int v = 1; v < (int)p->nest->instr_count; v++) {
    const wk__instr *i = &p->nest->instrs[v];
    if (i->stage > stages) stages = i->stage;
    if (wk__loop_is_reduction(i->op) || wk__loop_is_scan(i->op)) p->reductions[p->reduction_count++] = (wk__var)v;
    if (wk__loop_has_expression(i->op)) p->expressions[p->expression_count++] = (wk__var)v;
    p->has_scan |= wk__loop_is_scan(i->op);
    p->has_arg |= wk__loop_is_arg(i->op);
    p->has_store_add |= has_order(p->nest, i);
    p->may_fault |= i->op == WK__LOOP_check_index || i->op == WK__LOOP_floor_div || i->op == WK__LOOP_trunc_div ||
                    i->op == WK__LOOP_mod || i->op == WK__LOOP_fmod;
  }
  p->phase_count = stages + 1;
  find_apart_dims(p);
}

static void number_bounds(wk__program *p) {
  for (int64_t a = 0; a < p->nest->access_count; a++) {
    p->first_bound[a] = (uint16_t)p->bound_count;
    p->bound_count += __builtin_popcount(p->nest->accesses[a].may_leave);
  }
}

static wk_status build(wk__program *p) {
  const wk__nest *nest = p->nest;
  size_t n = (size_t)nest->instr_count;
  builder b = {.program = p, .nest = nest, .has_rows = nest->reduction_dims > 0};
  p->values = wk__alloc_zeroed(2 * n * sizeof *p->values); /* every value may need an expansion */
  p->reductions = wk__alloc_zeroed(n * sizeof *p->reductions);
  p->expressions = wk__alloc_zeroed(n * sizeof *p->expressions);
  p->expansion = wk__alloc_zeroed(n * sizeof *p->expansion);
  p->kept = wk__alloc_zeroed(n * sizeof *p->kept);
  p->first_bound = wk__alloc_zeroed(((size_t)nest->access_count + 1) * sizeof *p->first_bound);
  b.needed = wk__alloc_zeroed(n * sizeof *b.needed);
  wk_status status = WK_OUT_OF_MEMORY;
  if (p->values && p->reductions && p->expressions && p->expansion && p->kept && p->first_bound && b.needed) {
    number_bounds(p);
    count_instrs(p);
    p->value_count = (int)n;
    p->phases = wk__alloc_zeroed((size_t)p->phase_count * sizeof *p->phases);
    classify(&b);
    status = p->phases ? build_phases(&b) : WK_OUT_OF_MEMORY;
  }
  if (status == WK_OK) p->reads_only = only_reads(p), p->is_short = is_short(p);
  if (status == WK_OK && nest->access_count + p->expression_count + p->bound_count > MAX_WALKERS)
    status = wk_fail(WK_RUNTIME_ERROR, "a kernel body has too many accesses");
  wk__free(b.needed);
  return status;
}

wk__program *wk__program_create(const wk__nest *nest) {
  wk__program *p = wk__alloc_zeroed(sizeof *p);
  if (!p) return NULL;
  p->nest = nest;
  if (build(p) == WK_OK) {
    p->is_built = wk__built_find(nest, &p->built);
    wk__program_set_native(p, NULL);
    return p;
  }
  wk__program_release(p);
  return NULL;
}

void wk__program_release(wk__program *p) {
  if (!p) return;
  for (int k = 0; p->phases && k < p->phase_count; k++) {
    wk__free(p->phases[k].rows.steps);
    wk__free(p->phases[k].expand.steps);
    wk__free(p->phases[k].keep.steps);
    wk__free(p->phases[k].again.steps);
  }
  wk__free(p->phases);
  wk__free(p->uniform.steps);
  wk__free(p->values);
  wk__free(p->expansion);
  wk__free(p->kept);
  wk__free(p->first_bound);
  wk__free(p->reductions);
  wk__free(p->expressions);
  wk__free(p);
}
