/* Running a graph in stages: what lies between the calls that count, and those calls.
 * In: stages (stages_cut.c makes them). Out: the graph's outputs. Invariant: inputs change in the last stage only,
 * behind all checks of sizes. Tests: tests/python/capture/test_counted_sizes.py. */
#include "compile/stages_parts.h"

/* One run. */
typedef struct run {
  const wk__stages *s;
  wk_tensor **slots; /* (slot_count) those of inputs borrowed, the others owned */
  int64_t *symbols;  /* (symbol_count) */
  const double *numbers;
} run;

/* ==================================================== symbols ==================================================== */

static wk_status value_of_symbol(void *symbols, wk_int leaf, int64_t *out) {
  *out = ((const int64_t *)symbols)[wk__sym_index(leaf)];
  return WK_OK;
}

static void bind_inputs(const run *r) {
  const wk__graph *graph = r->s->graph;
  for (int64_t i = 0; i < graph->input_count; i++) {
    const wk_tensor *shape = graph->inputs[i]->value;
    for (int d = 0; d < shape->ndim; d++)
      if (wk__sym_kind_of(shape->sizes[d]) == WK__SYM_SYMBOL)
        r->symbols[wk__sym_index(shape->sizes[d])] = wk__size(r->slots[i], d);
  }
}

static wk_status not_as_captured(int64_t rows) {
  return wk_fail(WK_RUNTIME_ERROR, "a size that values decide is %lld, which is not what was captured",
                 (long long)rows);
}

static wk_status check_guard(const run *r, wk__sym_guard guard, int64_t rows) {
  int64_t left, right;
  WK_TRY(wk__sym_eval(guard.left, value_of_symbol, r->symbols, &left));
  WK_TRY(wk__sym_eval(guard.right, value_of_symbol, r->symbols, &right));
  return wk__guard_compare(guard.kind, left, right) ? WK_OK : not_as_captured(rows);
}

/* The call's rows, and what was assumed of them and of those before. */
static wk_status take_rows(const run *r, int64_t stage, int64_t rows) {
  const wk__shape_env *env = r->s->graph->env;
  int32_t symbol = r->s->items[stage].symbol;
  wk__symbol_info info = wk__shape_env_symbol_at(env, symbol);
  r->symbols[symbol] = rows;
  if (rows < info.lo || rows > info.hi) return not_as_captured(rows);
  for (int64_t i = 0; i < r->s->guard_count; i++)
    if (r->s->guard_stages[i] == stage) WK_TRY(check_guard(r, wk__shape_env_guard(env, i), rows));
  return WK_OK;
}

/* ===================================================== calls ===================================================== */

static wk_status argument(const run *r, const wk__stage *stage, int i, wk_value *out) {
  const wk__graph_arg *arg = &stage->call->args[i];
  int64_t value;
  *out = arg->value;
  if (arg->tag == WK_VALUE_TENSOR) out->tensor = r->slots[stage->call_slots[i]];
  if (arg->tag == WK_VALUE_INPUT) *out = wk__v_double(r->numbers ? r->numbers[arg->count] : arg->number);
  if (arg->tag != WK_VALUE_INT) return WK_OK;
  WK_TRY(wk__sym_eval(arg->integer, value_of_symbol, r->symbols, &value));
  out->integer = wk_int_of(value);
  return WK_OK;
}

/* The call that counts, below the tape: it has no derivative. */
static wk_status count(const run *r, int64_t at) {
  const wk__stage *stage = &r->s->items[at];
  wk_value args[WK__MAX_ARGS], result = {0};
  for (int i = 0; i < stage->call->op->schema.parameter_count; i++) WK_TRY(argument(r, stage, i, &args[i]));
  wk__thread_mode before = wk__thread.mode;
  wk__thread.mode.keys_off = (wk__keys)~0;
  wk__thread.mode.grad_enabled = false;
  wk_status status = wk__call_below(WK__KEY_AUTOGRAD, stage->call->op, args, NULL, &result);
  wk__thread.mode = before;
  WK_TRY(status);
  r->slots[stage->call_slot] = result.tensor;
  return take_rows(r, at, wk__size(result.tensor, 0));
}

/* ===================================================== stages ==================================================== */

/* A tensor without values, which tells a symbol. */
static wk_tensor *tensor_of_size(int64_t value) {
  wk__spec spec;
  wk_int size = wk_int_of(value);
  wk__spec_contiguous(&spec, WK_UINT8, WK__CPU_DEVICE, 1, &size);
  return wk__tensor_shape_only(&spec);
}

static wk_status run_with(const run *r, const wk__stage *stage, wk_tensor **inputs, wk_tensor **outputs) {
  for (int64_t i = 0; i < stage->input_count; i++) {
    int32_t slot = stage->inputs[i];
    inputs[i] = slot < 0 ? tensor_of_size(r->symbols[WK__STAGE_SYMBOL(slot)]) : r->slots[slot];
    if (!inputs[i]) return wk_error_category();
  }
  WK_TRY(stage->runner.run(stage->runner.context, inputs, r->numbers, outputs));
  for (int64_t i = 0; i < stage->output_count; i++) r->slots[stage->outputs[i]] = outputs[i];
  return WK_OK;
}

static wk_status run_stage(const run *r, const wk__stage *stage) {
  if (!stage->runner.run) return WK_OK;
  int64_t count = stage->input_count + stage->output_count;
  wk_tensor **tensors = wk__alloc_zeroed((size_t)(count + 1) * sizeof *tensors);
  if (!tensors) return WK_OUT_OF_MEMORY;
  wk_status status = run_with(r, stage, tensors, tensors + stage->input_count);
  for (int64_t i = 0; i < stage->input_count; i++)
    if (stage->inputs[i] < 0) wk__release(tensors[i]);
  wk__free(tensors);
  return status;
}

static wk_status run_all(const run *r) {
  bind_inputs(r);
  for (int64_t i = 0; i < r->s->count; i++) {
    WK_TRY(run_stage(r, &r->s->items[i]));
    if (r->s->items[i].call) WK_TRY(count(r, i));
  }
  return WK_OK;
}

wk_status wk__stages_run(const wk__stages *s, wk_tensor *const *inputs, const double *numbers, wk_tensor **out_outputs,
                         int64_t *out_symbols) {
  const wk__graph *graph = s->graph;
  run r = {.s = s, .numbers = numbers};
  r.slots = wk__alloc_zeroed((size_t)(s->slot_count + 1) * sizeof(wk_tensor *));
  r.symbols = wk__alloc_zeroed((size_t)(s->symbol_count + 1) * sizeof *r.symbols);
  wk_status status = r.slots && r.symbols ? WK_OK : WK_OUT_OF_MEMORY;
  if (status == WK_OK) {
    if (graph->input_count) memcpy(r.slots, inputs, (size_t)graph->input_count * sizeof(wk_tensor *));
    status = run_all(&r);
  }
  for (int64_t i = 0; status == WK_OK && i < graph->output_count; i++)
    out_outputs[i] = wk__retain(r.slots[s->outputs[i]]);
  if (status == WK_OK && out_symbols) memcpy(out_symbols, r.symbols, (size_t)s->symbol_count * sizeof *r.symbols);
  for (int64_t i = graph->input_count; r.slots && i < s->slot_count; i++) wk__release(r.slots[i]);
  wk__free(r.slots);
  wk__free(r.symbols);
  return status;
}

/* ==================================================== lifetime =================================================== */

void wk__stages_release(wk__stages *s) {
  if (!s) return;
  for (int64_t i = 0; s->items && i < s->count; i++) {
    wk__stage *stage = &s->items[i];
    if (stage->runner.release) stage->runner.release(stage->runner.context);
    wk__free(stage->inputs);
    wk__free(stage->outputs);
  }
  wk__free(s->items);
  wk__free(s->outputs);
  wk__free(s->guard_stages);
  wk__graph_release(s->graph);
  wk__free(s);
}
