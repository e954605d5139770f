/* From a nest to the interpreter's program: phases, the instructions of each, and slots for their values.
 *
 * Values of a row keep their slots for the whole row; values of an element get one that is free again behind their last
 * use in the phase. A phase computes again what it needs of earlier ones, from memory; its stores stand behind all that
 * it computes. Tests: tests/device/, tests/cuda/. */
#include "cuda/program.h"

#include "loop/binding.h"

enum { LAST_ALWAYS = INT32_MAX };

typedef struct encoder {
  const wk__nest *nest;
  wk__cuda_encoded *out;
  bool has_rows;
  wk__cuda_phase *phases;
  int phase_count, slot_count, fold_count, scan_count;
  wk__cuda_instr *instrs;
  wk__cuda_fold *folds;
  wk__cuda_place *places;
  int64_t instr_count, instr_capacity, fold_capacity, place_count, place_capacity;
  uint16_t *slot; /* by instruction */
  bool *needed;   /* of the phase at hand */
  int32_t *last;  /* by instruction: the one that uses it last, in the list at hand */
  uint16_t *free; /* slots */
  int free_count;
  wk__var *list; /* instructions of the list at hand */
  int list_count;
} encoder;

static const wk__instr *instr_of(const encoder *e, int v) { return &e->nest->instrs[v]; }
static bool by_element(const encoder *e, int v) { return e->has_rows && instr_of(e, v)->per_element; }

/* ---- facts of one instruction ---- */

int wk__cuda_memory_of(wk_dtype dtype) {
  static const uint8_t types[WK_DTYPE_COUNT] = {
      [WK_BOOL] = WK__MEMORY_BOOL,        [WK_UINT8] = WK__MEMORY_U8,         [WK_INT8] = WK__MEMORY_I8,
      [WK_INT16] = WK__MEMORY_I16,        [WK_INT32] = WK__MEMORY_I32,        [WK_INT64] = WK__MEMORY_I64,
      [WK_UINT16] = WK__MEMORY_U16,       [WK_UINT32] = WK__MEMORY_U32,       [WK_UINT64] = WK__MEMORY_I64,
      [WK_FLOAT8_E4M3] = WK__MEMORY_E4M3, [WK_FLOAT8_E5M2] = WK__MEMORY_E5M2, [WK_FLOAT16] = WK__MEMORY_F16,
      [WK_BFLOAT16] = WK__MEMORY_BF16,    [WK_FLOAT32] = WK__MEMORY_F32,      [WK_FLOAT64] = WK__MEMORY_F64,
  };
  return types[dtype];
}

static int64_t slot_bits(wk__scalar number, int lane) {
  double d = wk__scalar_double(number);
  float f = (float)d;
  int64_t bits = 0;
  switch (lane) {
    case WK__LANE_F32:
      memcpy(&bits, &f, sizeof f);
      return bits;
    case WK__LANE_F64:
      memcpy(&bits, &d, sizeof d);
      return bits;
    case WK__LANE_BOOL:
      return d != 0;
    default:
      return wk__scalar_int(number);
  }
}

static int walker_of_expression(const encoder *e, int v) {
  for (int k = 0; k < e->out->expression_count; k++)
    if (e->out->expressions[k] == v) return (int)e->nest->access_count + k;
  return 0;
}

static int first_bound_of(const encoder *e, int access) {
  int walker = (int)e->nest->access_count + e->out->expression_count;
  for (int a = 0; a < access; a++) walker += __builtin_popcount(e->nest->accesses[a].may_leave);
  return walker;
}

/* What an instruction reads: operands, then indirect coordinates. */
typedef struct uses {
  wk__var v[3 + WK__NEST_MAX_DIMS];
  int count;
} uses;
static uses uses_of(const encoder *e, int v) {
  const wk__instr *i = instr_of(e, v);
  uses u = {.count = wk__loop_ops[i->op].arity};
  for (int k = 0; k < u.count; k++) u.v[k] = i->operands[k];
  if (!wk__loop_has_access(i->op)) return u;
  const wk__access *a = &e->nest->accesses[i->extra];
  for (int d = 0; a->has_indirect && d < a->ndim; d++)
    if (a->indirect[d]) u.v[u.count++] = a->indirect[d];
  return u;
}

/* ---- the lists of a phase ---- */

static void need(encoder *e, int v) {
  if (e->needed[v]) return;
  e->needed[v] = true;
  uses u = uses_of(e, v);
  for (int k = 0; k < u.count; k++)
    if (by_element(e, u.v[k])) need(e, u.v[k]);
}

static void list_rows(encoder *e, int phase) {
  e->list_count = 0;
  for (int stores = 0; stores < 2; stores++)
    for (int v = 1; v < (int)e->nest->instr_count; v++) {
      const wk__instr *i = instr_of(e, v);
      bool here = !by_element(e, v) && !wk__loop_is_reduction(i->op) && (e->has_rows ? i->stage : 0) == phase;
      if (here && wk__loop_is_store(i->op) == (stores == 1)) e->list[e->list_count++] = (wk__var)v;
    }
}

static void list_elements(encoder *e, int phase) {
  memset(e->needed, 0, (size_t)e->nest->instr_count * sizeof *e->needed);
  e->list_count = 0;
  for (int v = 1; v < (int)e->nest->instr_count; v++) {
    const wk__instr *i = instr_of(e, v);
    bool root = wk__loop_is_reduction(i->op) || (wk__loop_is_store(i->op) && i->per_element);
    if (e->has_rows && root && wk__instr_phase(i) == phase) need(e, v);
  }
  for (int stores = 0; stores < 2; stores++)
    for (int v = 1; v < (int)e->nest->instr_count; v++)
      if (e->needed[v] && !wk__loop_is_reduction(instr_of(e, v)->op) &&
          wk__loop_is_store(instr_of(e, v)->op) == (stores == 1))
        e->list[e->list_count++] = (wk__var)v;
}

static bool is_folded_in(const encoder *e, int v, int phase) {
  const wk__instr *i = instr_of(e, v);
  return e->has_rows && wk__loop_is_reduction(i->op) && wk__instr_phase(i) == phase;
}

/* `reuses`: values are free behind their last use. */
static void find_last_uses(encoder *e, int phase, bool elements) {
  for (int n = 0; n < e->list_count; n++) {
    uses u = uses_of(e, e->list[n]);
    for (int k = 0; k < u.count; k++) e->last[u.v[k]] = n;
  }
  for (int v = 1; elements && v < (int)e->nest->instr_count; v++)
    if (is_folded_in(e, v, phase)) e->last[instr_of(e, v)->operands[0]] = LAST_ALWAYS;
}

static uint16_t take_slot(encoder *e) { return e->free_count ? e->free[--e->free_count] : (uint16_t)e->slot_count++; }

static void free_uses(encoder *e, int n) {
  uses u = uses_of(e, e->list[n]);
  for (int k = 0; k < u.count; k++) {
    int v = u.v[k];
    if (e->has_rows && !by_element(e, v)) continue;
    if (e->last[v] != n) continue;
    e->last[v] = -1; /* an operand that is given twice is freed once */
    e->free[e->free_count++] = e->slot[v];
  }
}

/* ---- writing ---- */

static wk_status add_places(encoder *e, const wk__access *a, uint16_t *out) {
  *out = WK__CUDA_NONE;
  if (!a->has_indirect) return WK_OK;
  int64_t first = e->place_count;
  for (int d = 0; d < a->ndim; d++) {
    if (!a->indirect[d]) continue;
    WK_TRY(wk__grow(&e->places, &e->place_capacity, e->place_count + 1, sizeof *e->places));
    e->places[e->place_count++] = (wk__cuda_place){e->slot[a->indirect[d]], (uint16_t)d, 0};
  }
  e->places[e->place_count - 1].last = 1;
  *out = (uint16_t)first;
  return WK_OK;
}

static wk_status describe_access(encoder *e, const wk__instr *i, wk__cuda_instr *out) {
  const wk__access *a = &e->nest->accesses[i->extra];
  out->memory = (uint8_t)wk__cuda_memory_of((wk_dtype)e->nest->buffers[a->buffer].dtype);
  out->extra = i->extra;
  if (i->op == WK__LOOP_masked_load) {
    out->bounds = (uint16_t)first_bound_of(e, i->extra);
    out->bound_count = (uint16_t)__builtin_popcount(a->may_leave);
  }
  return add_places(e, a, &out->places);
}

static void add_param(encoder *e, const wk__instr *i, wk__cuda_instr *out) {
  out->extra = (uint16_t)e->out->param_count;
  e->out->params[e->out->param_count++] = (wk__cuda_param){i->extra, out->made};
}

static wk_status describe(encoder *e, int v, wk__cuda_instr *out) {
  const wk__instr *i = instr_of(e, v);
  int told = i->op == WK__LOOP_where ? 1 : 0, arity = wk__loop_ops[i->op].arity;
  *out = (wk__cuda_instr){.op = i->op, .made = (uint8_t)wk__lane_of((wk_dtype)i->dtype), .places = WK__CUDA_NONE};
  out->lane = arity ? (uint8_t)wk__lane_of((wk_dtype)instr_of(e, i->operands[told])->dtype) : out->made;
  for (int k = 0; k < arity; k++) out->in[k] = e->slot[i->operands[k]];
  if (wk__loop_has_access(i->op)) return describe_access(e, i, out);
  if (i->op == WK__LOOP_param) add_param(e, i, out);
  if (i->op == WK__LOOP_constant) out->number = slot_bits(i->number, out->made);
  if (i->op == WK__LOOP_round_to) out->memory = (uint8_t)wk__cuda_memory_of((wk_dtype)i->extra);
  if (wk__loop_has_expression(i->op)) out->extra = (uint16_t)walker_of_expression(e, v);
  if (i->op == WK__LOOP_check_index) {
    out->bound_count = i->extra;
    out->number = wk__checked_dim(i);
  }
  if (wk__loop_is_scan(i->op)) out->extra = (uint16_t)e->scan_count++;
  return WK_OK;
}

static wk_status write_instr(encoder *e, int v) {
  wk__cuda_instr out;
  WK_TRY(describe(e, v, &out));
  e->out->adds |= out.op == WK__LOOP_store_add;
  out.slot = wk__loop_is_store(out.op) ? 0 : (e->slot[v] = take_slot(e));
  WK_TRY(wk__grow(&e->instrs, &e->instr_capacity, e->instr_count + 1, sizeof out));
  e->instrs[e->instr_count++] = out;
  return WK_OK;
}

static wk_status write_list(encoder *e, int phase, bool elements) {
  bool reuses = elements || !e->has_rows;
  if (reuses) find_last_uses(e, phase, elements);
  for (int n = 0; n < e->list_count; n++) {
    WK_TRY(write_instr(e, e->list[n])); /* its result's slot is none of its operands': an interpreter may read late */
    if (reuses) free_uses(e, n);
  }
  return WK_OK;
}

static wk_status write_folds(encoder *e, int phase) {
  for (int v = 1; v < (int)e->nest->instr_count; v++) {
    const wk__instr *i = instr_of(e, v);
    if (!is_folded_in(e, v, phase)) continue;
    int from = i->operands[0];
    e->slot[v] = (uint16_t)e->slot_count++;
    WK_TRY(wk__grow(&e->folds, &e->fold_capacity, e->fold_count + 1, sizeof *e->folds));
    e->folds[e->fold_count++] =
        (wk__cuda_fold){i->op, (uint8_t)wk__lane_of((wk_dtype)instr_of(e, from)->dtype), e->slot[from], e->slot[v]};
  }
  return WK_OK;
}

/* A reduced value of a row is the same for each element. */
static wk_status write_phase(encoder *e, int phase) {
  wk__cuda_phase *p = &e->phases[phase];
  p->rows = (int32_t)e->instr_count;
  list_rows(e, phase);
  e->free_count = 0;
  WK_TRY(write_list(e, phase, false));
  p->elements = (int32_t)e->instr_count;
  list_elements(e, phase);
  e->free_count = 0;
  int scans = e->scan_count;
  WK_TRY(write_list(e, phase, true));
  p->has_scan = e->scan_count > scans;
  p->end = (int32_t)e->instr_count;
  p->folds = e->fold_count;
  WK_TRY(write_folds(e, phase));
  p->fold_end = e->fold_count;
  return WK_OK;
}

/* ---- the whole ---- */

static wk_status assemble(encoder *e) {
  int64_t phases = e->phase_count * (int64_t)sizeof *e->phases, instrs = e->instr_count * (int64_t)sizeof *e->instrs;
  int64_t folds = e->fold_count * (int64_t)sizeof *e->folds, places = e->place_count * (int64_t)sizeof *e->places;
  int64_t instrs_at = (int64_t)sizeof(wk__cuda_program) + phases, folds_at, places_at;
  instrs_at = wk__ceil_div(instrs_at, 8) * 8;
  folds_at = instrs_at + instrs;
  places_at = folds_at + wk__ceil_div(folds, 8) * 8;
  wk__cuda_program *p = e->out->program = wk__alloc_zeroed((size_t)(places_at + places));
  if (!p) return WK_OUT_OF_MEMORY;
  *p = (wk__cuda_program){.phase_count = e->phase_count,
                          .slot_count = e->slot_count,
                          .fold_count = e->fold_count,
                          .scan_count = e->scan_count,
                          .access_count = (int32_t)e->nest->access_count,
                          .walker_count = (int32_t)first_bound_of(e, (int)e->nest->access_count),
                          .instrs = (int32_t)instrs_at,
                          .folds = (int32_t)folds_at,
                          .places = (int32_t)places_at,
                          .has_rows = e->has_rows};
  memcpy(p->phases, e->phases, (size_t)phases);
  if (instrs) memcpy((char *)p + instrs_at, e->instrs, (size_t)instrs);
  if (folds) memcpy((char *)p + folds_at, e->folds, (size_t)folds);
  if (places) memcpy((char *)p + places_at, e->places, (size_t)places);
  e->out->bytes = places_at + places;
  return WK_OK;
}

static wk_status encode(encoder *e, wk__arena *arena) {
  size_t n = (size_t)e->nest->instr_count;
  int stages = 0, params = 0;
  for (int v = 1; v < (int)n; v++) {
    stages = (int)wk__max(stages, instr_of(e, v)->stage);
    params += instr_of(e, v)->op == WK__LOOP_param;
  }
  e->phase_count = e->has_rows ? stages + 1 : 1;
  e->phases = wk__arena_alloc(arena, (size_t)e->phase_count * sizeof *e->phases);
  e->slot = wk__arena_alloc(arena, n * sizeof *e->slot);
  e->needed = wk__arena_alloc(arena, n * sizeof *e->needed);
  e->last = wk__arena_alloc(arena, n * sizeof *e->last);
  e->free = wk__arena_alloc(arena, 2 * n * sizeof *e->free);
  e->list = wk__arena_alloc(arena, n * sizeof *e->list);
  e->out->expressions = wk__alloc(WK__CUDA_WALKERS * sizeof *e->out->expressions);
  /* a phase may compute a row's parameter for its elements again */
  e->out->params = wk__alloc((size_t)(params * e->phase_count + 1) * sizeof *e->out->params);
  if (!e->phases || !e->slot || !e->needed || !e->last || !e->free || !e->list) return WK_OUT_OF_MEMORY;
  if (!e->out->expressions || !e->out->params) return WK_OUT_OF_MEMORY;
  e->out->expression_count = wk__nest_expressions(e->nest, e->out->expressions);
  for (int p = 0; p < e->phase_count; p++) WK_TRY(write_phase(e, p));
  return assemble(e);
}

/* The device's code has the two kinds of float8 that have products of their own. */
static wk_status check_dtypes(const wk__nest *nest) {
  for (int k = 0; k < nest->buffer_count; k++) {
    int dtype = nest->buffers[k].dtype;
    if (wk__dtype_is_float8(dtype) && dtype > WK_FLOAT8_E5M2)
      return wk_fail(WK_NOT_IMPLEMENTED, "'%s' is not implemented on CUDA", wk__dtype_legacy((wk_dtype)dtype));
  }
  return WK_OK;
}

wk_status wk__cuda_encode(const wk__nest *nest, wk__cuda_encoded *out) {
  WK_TRY(check_dtypes(nest));
  wk__arena arena = {0};
  encoder e = {.nest = nest, .out = out, .has_rows = nest->reduction_dims > 0};
  *out = (wk__cuda_encoded){0};
  wk_status status = encode(&e, &arena);
  wk__free(e.instrs);
  wk__free(e.folds);
  wk__free(e.places);
  wk__arena_release(&arena);
  return status;
}

void wk__cuda_encoded_release(wk__cuda_encoded *e) {
  wk__free(e->program);
  wk__free(e->expressions);
  wk__free(e->params);
  *e = (wk__cuda_encoded){0};
}
