/* The executor: runs a plan step by step on the eager engine.
 *
 * In: a plan (plan.c) and the inputs. Out: the outputs, and the inputs' new values in place. Invariant: while a
 * run lasts its memory belongs to it alone; a slot behind the inputs and constants owns its tensor from the step that
 * makes it to the last one that reads it. Every argument that is the same in all runs stays in the run's memory, so
 * that a step costs a few stores and the operator itself. Tests: tests/c/test_graph.c, execute_*. */
#include <assert.h>

#include "execute/internal.h"

/* =================================================== run memory ================================================= */

static void put_pointer(wk__run_memory *run, uint32_t place, wk_tensor *tensor) {
  *(wk_tensor **)wk__run_at(run, place) = tensor;
}

/* Lists of tensors and of numbers with symbols are the run's own. */
static void fill_values(const wk__graph_executor *e, wk__run_memory *run) {
  wk_value *values = wk__run_at(run, e->values_at);
  wk_tensor **tensors = wk__run_at(run, e->tensors_at);
  wk_int *integers = wk__run_at(run, e->integers_at);
  if (e->integer_count) memcpy(integers, e->integers, (size_t)e->integer_count * sizeof *integers);
  for (int64_t i = 0; i < e->value_count; i++) {
    values[i] = e->values[i];
    if (e->value_lists[i] < 0) continue;
    if (values[i].tag == WK_VALUE_TENSORS)
      values[i].tensors = tensors + e->value_lists[i];
    else
      values[i].integers = integers + e->value_lists[i];
  }
}

static wk__run_memory *create_run(const wk__graph_executor *e) {
  wk__run_memory *run = wk__alloc_zeroed(e->run_bytes);
  if (!run) return NULL;
  fill_values(e, run);
  for (int64_t i = 0; i < e->constant_count; i++) run->slots[e->input_count + i] = e->constants[i];
  for (int64_t i = 0; i < e->constant_patch_count; i++)
    put_pointer(run, e->constant_patches[i].place, run->slots[e->constant_patches[i].slot]);
  return run;
}

static void free_run(const wk__graph_executor *e, wk__run_memory *run) {
  if (run) {
    wk__recorded_release(run);
    wk__graph_unbind_memory(e, run);
  }
  wk__free(run);
}

static wk__run_memory *take_run(wk__graph_executor *e) {
  wk__run_memory *run = atomic_exchange_explicit(&e->idle, NULL, memory_order_acquire);
  return WK_LIKELY(run != NULL) ? run : create_run(e);
}

static void put_back(wk__graph_executor *e, wk__run_memory *run) {
  run = atomic_exchange_explicit(&e->idle, run, memory_order_acq_rel);
  if (WK_UNLIKELY(run != NULL)) free_run(e, run); /* another thread's run ended meanwhile */
}

/* ============================================== numbers with symbols ============================================ */

static wk_status value_of_symbol(void *symbols, wk_int leaf, int64_t *out) {
  *out = ((const int64_t *)symbols)[wk__sym_index(leaf)];
  return WK_OK;
}

/* Symbols take their values from the inputs. Equal to those of the run before: so are the numbers. */
static bool bind_symbols(const wk__graph_executor *e, wk__run_memory *run, wk_tensor *const *inputs) {
  int64_t *symbols = wk__run_at(run, e->symbols_at);
  bool changed = !symbols[e->symbol_count];
  for (int64_t i = 0; i < e->symbol_count; i++) {
    wk__graph_binding b = e->bindings[i];
    if (b.input < 0 && !e->by_hints) continue;
    int64_t size = b.input < 0 ? wk__shape_env_symbol_at(e->graph->env, i).hint : wk__size(inputs[b.input], b.dim);
    changed |= symbols[i] != size;
    symbols[i] = size;
  }
  symbols[e->symbol_count] = 1; /* they have values now */
  return changed;
}

wk_status wk__run_value(const wk__graph_executor *e, wk__run_memory *run, wk_int x, int64_t *out) {
  return wk__sym_eval(x, value_of_symbol, wk__run_at(run, e->symbols_at), out);
}

static wk_status resolve_numbers(const wk__graph_executor *e, wk__run_memory *run, wk_tensor *const *inputs) {
  int64_t *symbols = wk__run_at(run, e->symbols_at);
  if (!bind_symbols(e, run, inputs)) return WK_OK;
  wk__recorded_forget(run);
  wk__graph_unbind_memory(e, run);
  for (int64_t i = 0; i < e->number_count; i++) {
    int64_t value;
    wk_status status = wk__run_value(e, run, e->numbers[i].expression, &value);
    if (status != WK_OK) {
      symbols[e->symbol_count] = 0;
      return status;
    }
    *(wk_int *)wk__run_at(run, e->numbers[i].place) = wk_int_of(value);
  }
  return WK_OK;
}

/* ====================================================== times =================================================== */

_Atomic bool wk__profiling;

static _Atomic int64_t *profile_of(wk__graph_executor *e) {
  _Atomic int64_t *times = atomic_load(&e->times), *made = NULL;
  if (times) return times;
  made = wk__alloc_zeroed((size_t)(e->step_count + 1) * sizeof *made);
  if (!made || atomic_compare_exchange_strong(&e->times, &times, made)) return made;
  wk__free(made); /* another thread's run was first */
  return times;
}

/* The longest step that is shorter than step `after`, or the next one of equal length; -1: none is left. */
static int64_t next_longest(const wk__graph_executor *e, const _Atomic int64_t *times, int64_t after) {
  int64_t best = -1;
  for (int64_t i = 0; i < e->step_count; i++) {
    bool given = after >= 0 && (times[i] > times[after] || (i <= after && times[i] == times[after]));
    if (given) continue;
    if (best < 0 || times[i] > times[best]) best = i;
  }
  return best;
}

wk_status wk__graph_print_profile(const wk__graph_executor *e, wk__string *out) {
  const _Atomic int64_t *times = atomic_load(&e->times);
  int64_t runs = atomic_load(&e->timed_runs);
  for (int64_t i = times && runs ? next_longest(e, times, -1) : -1; i >= 0; i = next_longest(e, times, i)) {
    const wk__graph_step *s = &e->steps[i];
    wk__string_printf(out, "%10.1f us  %s: %s\n", (double)times[i] / (double)runs * 1e-3,
                      s->node ? s->node->name : "copy", s->op->name);
  }
  return out->failed ? WK_OUT_OF_MEMORY : WK_OK;
}

/* ====================================================== steps =================================================== */

static void keep(wk__run_memory *run, int32_t slot, wk_tensor *steal_tensor) {
  if (slot >= 0)
    run->slots[slot] = steal_tensor;
  else
    wk__release(steal_tensor);
}

static wk_status keep_list(const wk__graph_executor *e, const wk__graph_step *s, wk__run_memory *run, wk_value *list) {
  if (list->tag != WK_VALUE_TENSORS || list->count != (uint32_t)s->result_count) {
    uint32_t count = list->count;
    wk_value_release(list);
    return wk_fail(WK_INTERNAL_ERROR, "graph node %%%s: %s gave %u tensors, not %d", s->node->name, s->op->name, count,
                   (int)s->result_count);
  }
  for (int32_t k = 0; k < s->result_count; k++) keep(run, e->result_slots[s->slot + k], list->tensors[k]);
  wk__free(list->tensors);
  return WK_OK;
}

static wk_status keep_results(const wk__graph_executor *e, const wk__graph_step *s, wk__run_memory *run,
                              wk_value *results) {
  if (WK_LIKELY(s->result == WK__RESULT_ONE)) {
    run->slots[s->slot] = results[0].tensor;
    return WK_OK;
  }
  if (s->result == WK__RESULT_LIST) return keep_list(e, s, run, &results[0]);
  if (s->result == WK__RESULT_DROP) {
    for (int r = 0; r < s->op->schema.result_count; r++) wk_value_release(&results[r]);
    return WK_OK;
  }
  for (int32_t r = 0; r < s->result_count; r++) keep(run, e->result_slots[s->slot + r], results[r].tensor);
  return WK_OK;
}

/* The tape goes on behind the graph: as the program's own call, whatever mode the graph is run in. */
static wk_status call_taped(const wk__graph_step *s, const wk_value *args, wk_tensor *const *destinations,
                            wk_value *results) {
  wk__thread_mode below = wk__thread.mode;
  wk__thread.mode.keys_off = (wk__keys)~WK__KEY_AUTOGRAD;
  wk__thread.mode.grad_enabled = true;
  wk_status status = wk_call(s->op, args, destinations, results);
  wk__thread.mode = below;
  return status;
}

static wk_status call(const wk__graph_step *s, const wk_value *args, wk_tensor *const *destinations,
                      wk_value *results) {
  if (WK_UNLIKELY(s->taped)) return call_taped(s, args, destinations, results);
  if (WK_UNLIKELY(s->composite)) return wk__call_below(WK__KEY_AUTOGRAD, s->op, args, destinations, results);
  return wk__compute(s->op, args, destinations, results);
}

/* A result of code that no shape rule knows has to be what the graph was made for: its sizes, and, copied, its strides.
 */
static wk_status fit_result(const wk__graph_executor *e, const wk__graph_step *s, wk__run_memory *run,
                            const wk_tensor *described, wk_tensor **place) {
  wk__spec spec;
  wk__spec_of(&spec, described);
  bool same = spec.dtype == (*place)->dtype && spec.ndim == (*place)->ndim, lies = true;
  for (int d = 0; same && d < spec.ndim; d++) {
    int64_t size, stride;
    WK_TRY(wk__run_value(e, run, spec.sizes[d], &size));
    WK_TRY(wk__run_value(e, run, spec.strides[d], &stride));
    spec.sizes[d] = wk_int_of(size);
    spec.strides[d] = wk_int_of(stride);
    same = size == wk__size(*place, d);
    lies &= size == 1 || stride == wk__stride(*place, d);
  }
  if (same && (lies || (*place)->numel.bits == 0)) return WK_OK;
  if (!same)
    return wk_fail(WK_RUNTIME_ERROR,
                   "%s gave a result of another shape or dtype than its function for tensors without memory said",
                   s->op->name);
  wk_tensor *copy = wk__tensor_from_spec(&spec);
  if (!copy) return wk_error_category();
  wk_status status = wk__copy_into(copy, *place);
  wk__release(status == WK_OK ? *place : copy);
  if (status == WK_OK) *place = copy;
  return status;
}

static wk_status fit_results(const wk__graph_executor *e, const wk__graph_step *s, wk__run_memory *run,
                             wk_value *results) {
  const wk__graph_node *n = s->node;
  bool list = s->op->schema.result_is_list, mutates = s->op->tags & WK__TAG_MUTATES;
  uint32_t count = list ? results[0].count : (uint32_t)s->op->schema.result_count;
  wk_status status = WK_OK;
  for (uint32_t r = 0; r < count && status == WK_OK; r++) {
    const wk_tensor *described = n->value ? n->value : r < n->item_count ? n->items[r] : NULL;
    if (!described || (mutates && n->value)) continue;
    status = fit_result(e, s, run, described, list ? &results[0].tensors[r] : &results[r].tensor);
  }
  for (int r = 0; r < s->op->schema.result_count && status != WK_OK; r++) wk_value_release(&results[r]);
  return status;
}

static wk_status run_call(const wk__graph_executor *e, const wk__graph_step *s, wk__run_memory *run,
                          const wk_value *args) {
  wk_value results[WK__MAX_RESULTS] = {{0}};
  wk_tensor *destinations[WK__MAX_RESULTS] = {NULL};
  bool in_place = s->destination >= 0;
  if (in_place) destinations[0] = run->slots[s->destination];
  bool noted = WK_UNLIKELY(run->recorded != NULL) && wk__recorded_enter(e, s, run);
  wk_status status = call(s, args, in_place ? destinations : NULL, results);
  if (WK_UNLIKELY(noted)) wk__recorded_leave(e, s, run);
  WK_TRY(status);
  if (WK_UNLIKELY(wk__has_no_rule(s->op))) WK_TRY(fit_results(e, s, run, results));
  return keep_results(e, s, run, results);
}

/* Results that leave the run get new tensors; the others have theirs already. */
static wk_status make_results(const wk__graph_executor *e, const wk__graph_step *s, wk__run_memory *run,
                              wk_tensor **outputs) {
  wk_tensor **made = (wk_tensor **)wk__run_at(run, e->made_at) + s->first_made;
  wk__result_place *places = WK_UNLIKELY(run->recorded != NULL) ? wk__recorded_places(s, run) : NULL;
  int32_t count = wk__graph_result_count(s);
  for (int32_t k = 0; k < count; k++) {
    const wk__prepared *m = &e->made[s->first_made + k];
    wk__spec spec;
    outputs[k] = made[k];
    if (m->kept) continue;
    wk__spec_of(&spec, made[k]);
    outputs[k] = wk__tensor_from_spec_at(&spec, places ? places[k].before : NULL);
    if (outputs[k] && outputs[k]->storage && places) wk__result_lies_at(&places[k], outputs[k]->storage->data);
    if (outputs[k] && m->slot >= 0) run->slots[m->slot] = outputs[k];
    if (outputs[k]) continue;
    while (k-- > 0)
      if (!e->made[s->first_made + k].kept && e->made[s->first_made + k].slot < 0) wk__release(outputs[k]);
    return wk_error_category();
  }
  return WK_OK;
}

/* They are not read. */
static void drop_results(const wk__graph_executor *e, const wk__graph_step *s, wk_tensor **outputs) {
  int32_t count = wk__graph_result_count(s);
  for (int32_t k = 0; k < count; k++)
    if (!e->made[s->first_made + k].kept && e->made[s->first_made + k].slot < 0) wk__release(outputs[k]);
}

static wk_status compute_into(const wk__graph_executor *e, const wk__graph_step *s, wk__run_memory *run,
                              const wk_value *args, wk_tensor **into) {
  bool noted = WK_UNLIKELY(run->recorded != NULL) && wk__recorded_enter(e, s, run);
  wk_status status = wk__compute_into(s->op, args, into, e->graph->from_text);
  if (WK_UNLIKELY(noted)) wk__recorded_leave(e, s, run);
  return status;
}

static wk_status run_into(const wk__graph_executor *e, const wk__graph_step *s, wk__run_memory *run,
                          const wk_value *args) {
  wk_tensor *outputs[WK__NEST_MAX_BUFFERS], **into = outputs;
  if (WK_LIKELY(s->all_kept))
    into = (wk_tensor **)wk__run_at(run, e->made_at) + s->first_made;
  else
    WK_TRY(make_results(e, s, run, outputs));
  wk_status status = compute_into(e, s, run, args, into);
  if (WK_UNLIKELY(!s->all_kept)) drop_results(e, s, outputs);
  return status;
}

static inline void release_behind(const wk__graph_executor *e, const wk__graph_step *s, wk__run_memory *run) {
  const int32_t *release = e->releases + s->first_release;
  for (int32_t i = 0; i < s->release_count; i++) {
    wk__release(run->slots[release[i]]);
    run->slots[release[i]] = NULL;
  }
}

static inline const wk_value *put_arguments(const wk__graph_executor *e, const wk__graph_step *s, wk__run_memory *run) {
  const wk__graph_patch *patch = e->patches + s->first_patch;
  for (int32_t i = 0; i < s->patch_count; i++) put_pointer(run, patch[i].place, run->slots[patch[i].slot]);
  return (const wk_value *)wk__run_at(run, e->values_at) + s->first_value;
}

static inline wk_status run_step(const wk__graph_executor *e, const wk__graph_step *s, wk__run_memory *run) {
  const wk_value *args = put_arguments(e, s, run);
  WK_TRY(WK_LIKELY(s->into) ? run_into(e, s, run, args) : run_call(e, s, run, args));
  release_behind(e, s, run);
  return WK_OK;
}

wk_status wk__graph_run_step(const wk__graph_executor *e, int64_t step, wk__run_memory *run) {
  return run_step(e, &e->steps[step], run);
}

wk_status wk__graph_pass_step(const wk__graph_executor *e, int64_t step, wk__run_memory *run) {
  const wk__graph_step *s = &e->steps[step];
  wk_tensor *outputs[WK__NEST_MAX_BUFFERS], **into = (wk_tensor **)wk__run_at(run, e->made_at) + s->first_made;
  bool makes = s->into && !s->all_kept;
  wk_status status = WK_OK;
  if (makes) WK_TRY(make_results(e, s, run, into = outputs));
  if (!wk__recorded_passed(e, s, run)) status = compute_into(e, s, run, put_arguments(e, s, run), into);
  if (makes) drop_results(e, s, outputs);
  WK_TRY(status);
  release_behind(e, s, run);
  return WK_OK;
}

static bool writes_input(const wk__graph_executor *e, const wk__graph_step *s) {
  bool writes = s->destination >= 0 && s->destination < e->input_count, mutates = s->op->tags & WK__TAG_MUTATES;
  for (int32_t i = 0; mutates && i < s->patch_count; i++)
    writes |= e->patches[s->first_patch + i].slot < e->input_count;
  return writes;
}

/* In front of a step the owner is asked whether to go on, in its own mode, until the first input is written. */
static wk_status ask_owner(const wk__graph_executor *e, const wk__graph_step *next, const wk__thread_mode *outside,
                           bool *may_stop) {
  *may_stop = *may_stop && e->between_steps && !writes_input(e, next);
  if (!*may_stop) return WK_OK;
  wk__thread_mode inside = wk__thread.mode;
  wk__thread.mode = *outside;
  wk_status status = e->between_steps(e->between_context);
  wk__thread.mode = inside;
  return status;
}

static wk_status run_asking(wk__graph_executor *e, wk__run_memory *run, const wk__thread_mode *outside) {
  wk_status status = WK_OK;
  bool may_stop = true;
  for (int64_t i = 0; i < e->step_count && status == WK_OK; i++) {
    status = ask_owner(e, &e->steps[i], outside, &may_stop);
    if (status == WK_OK) status = run_step(e, &e->steps[i], run);
  }
  return status;
}

/* The same with a clock beside it. Without memory for the times nothing is noted. */
static wk_status run_timed(wk__graph_executor *e, wk__run_memory *run, const wk__thread_mode *outside) {
  _Atomic int64_t *times = profile_of(e);
  int64_t *moments = wk__timeline_moments(e->step_count + 1), now = wk__nanoseconds();
  wk_status status = WK_OK;
  bool may_stop = true;
  for (int64_t i = 0; i < e->step_count && status == WK_OK; i++) {
    int64_t begin = now;
    if (moments) moments[i] = begin;
    status = ask_owner(e, &e->steps[i], outside, &may_stop);
    if (status == WK_OK) status = run_step(e, &e->steps[i], run);
    now = wk__nanoseconds();
    if (times) atomic_fetch_add_explicit(&times[i], now - begin, memory_order_relaxed);
  }
  atomic_fetch_add_explicit(&e->timed_runs, 1, memory_order_relaxed);
  if (moments) moments[e->step_count] = now;
  if (status == WK_OK)
    wk__timeline_add(e->number, moments, e->step_count + 1);
  else
    wk__free(moments);
  return status;
}

static wk_status run_steps(wk__graph_executor *e, wk__run_memory *run) {
  wk__thread_mode before = wk__thread.mode;
  wk_status status = WK_OK;
  wk__thread.mode.grad_enabled = false; /* views keep no base, nothing keeps a tape */
  wk__thread.mode.keys_off = (wk__keys)~0;
  if (WK_UNLIKELY(atomic_load_explicit(&wk__profiling, memory_order_relaxed)))
    status = run_timed(e, run, &before);
  else if (WK_UNLIKELY(e->between_steps != NULL))
    status = run_asking(e, run, &before);
  else if (WK_UNLIKELY(e->recordings != NULL))
    status = wk__recorded_steps(e, run);
  else
    for (int64_t i = 0; i < e->step_count && status == WK_OK; i++) status = run_step(e, &e->steps[i], run);
  wk__thread.mode = before;
  return status;
}

/* ====================================================== runs ==================================================== */

#ifdef WICK_DEBUG
static wk_status check_inputs(const wk__graph_executor *e, wk_tensor *const *inputs) {
  for (int64_t i = 0; i < e->input_count; i++) {
    const wk_tensor *shape = e->graph->inputs[i]->value;
    if (inputs[i]->dtype != shape->dtype || inputs[i]->ndim != shape->ndim)
      return wk_fail(WK_INTERNAL_ERROR, "graph input %%%s has another dtype or rank", e->graph->inputs[i]->name);
  }
  return WK_OK;
}
#else
static wk_status check_inputs(const wk__graph_executor *e, wk_tensor *const *inputs) {
  (void)e, (void)inputs;
  return WK_OK;
}
#endif

/* Outputs are taken. */
static void finish(const wk__graph_executor *e, wk__run_memory *run, wk_tensor **out_outputs) {
  for (int64_t i = 0; i < e->output_count; i++) out_outputs[i] = wk__retain(run->slots[e->outputs[i]]);
  for (int64_t i = 0; i < e->output_count; i++) {
    int32_t slot = e->outputs[i];
    if (slot < e->input_count + e->constant_count) continue;
    wk__release(run->slots[slot]);
    run->slots[slot] = NULL; /* the same value may be an output twice */
  }
  if (e->kept_count) wk__graph_give_block(e, run);
}

/* Whatever is in a slot is given back. */
static void give_up(const wk__graph_executor *e, wk__run_memory *run) {
  wk__graph_unbind_memory(e, run);
  for (int64_t i = e->input_count + e->constant_count; i < e->slot_count; i++) {
    wk__release(run->slots[i]);
    run->slots[i] = NULL;
  }
}

static wk_status prepare_memory(const wk__graph_executor *e, wk__run_memory *run) {
  if (WK_UNLIKELY(e->made_count && !run->block)) WK_TRY(wk__graph_bind_memory(e, run));
  return e->kept_count ? wk__graph_take_block(e, run) : WK_OK;
}

wk_status wk__graph_execute(const wk__graph_executor *executor, wk_tensor *const *inputs, const double *numbers,
                            wk_tensor **out_outputs) {
  wk__graph_executor *e = (wk__graph_executor *)executor; /* the idle run memory is its only changing part */
  WK_TRY(check_inputs(e, inputs));
  wk__run_memory *run = take_run(e);
  if (!run) return wk_error_category();
  if (e->input_count) memcpy(run->slots, inputs, (size_t)e->input_count * sizeof *inputs);
  for (int64_t i = 0; i < e->input_number_count; i++) {
    wk__graph_input_number n = e->input_numbers[i];
    *(double *)wk__run_at(run, n.place) = numbers ? numbers[n.index] : n.traced;
  }
  wk_status status = e->symbol_count ? resolve_numbers(e, run, inputs) : WK_OK;
  if (status == WK_OK) status = prepare_memory(e, run);
  if (status == WK_OK) status = run_steps(e, run);
  if (status == WK_OK)
    finish(e, run, out_outputs);
  else
    give_up(e, run);
  put_back(e, run);
  return status;
}

void wk__graph_executor_ask(wk__graph_executor *e, wk_status (*between_steps)(void *context), void *context) {
  e->between_steps = between_steps;
  e->between_context = context;
}

/* ==================================================== reports =================================================== */

int64_t wk__graph_step_count(const wk__graph_executor *e) { return e->step_count; }
int64_t wk__graph_executor_number(const wk__graph_executor *e) { return e->number; }

/* Some step writes the input, and none of the executor's own copies. */
bool wk__graph_writes_in_place(const wk__graph_executor *e, int input) {
  bool written = false;
  for (int64_t i = 0; i < e->step_count; i++) {
    const wk__graph_step *s = &e->steps[i];
    bool by_argument = s->op->tags & WK__TAG_MUTATES;
    written |= s->destination == input;
    for (int32_t k = 0; by_argument && k < s->patch_count; k++) {
      if (e->patches[s->first_patch + k].slot != input) continue;
      if (!s->node && k == 0) return false; /* of copy_'s arguments the first is written */
      written |= s->node != NULL;
    }
  }
  return written;
}

/* ==================================================== lifetime ================================================== */

void wk__graph_executor_release(wk__graph_executor *e) {
  if (!e) return;
  for (int64_t i = 0; e->constants && i < e->constant_count; i++) wk__release(e->constants[i]);
  free_run(e, atomic_load(&e->idle));
  wk__free(atomic_load(&e->times));
  wk__free(e->steps);
  wk__free(e->values);
  wk__free(e->value_lists);
  wk__free(e->integers);
  wk__free(e->patches);
  wk__free(e->constant_patches);
  wk__free(e->numbers);
  wk__free(e->input_numbers);
  wk__free(e->result_slots);
  wk__free(e->releases);
  wk__free(e->made);
  wk__free(e->outputs);
  wk__free(e->constants);
  wk__free(e->bindings);
  wk__graph_release(e->graph);
  wk__free(e);
}

static wk_status create(wk__graph *graph, bool by_hints, wk__graph_executor **out_executor) {
  *out_executor = NULL;
#ifdef WICK_DEBUG
  WK_TRY(wk__graph_verify(graph));
#endif
  wk__graph_executor *e = wk__alloc_zeroed(sizeof *e);
  if (!e) return WK_OUT_OF_MEMORY;
  static _Atomic int64_t last_number;
  e->number = atomic_fetch_add(&last_number, 1) + 1;
  e->graph = wk__graph_retain(graph);
  e->by_hints = by_hints;
  wk_status status = wk__graph_plan(e);
  if (status == WK_OK) e->recordings = wk__graph_recordings(e);
  if (status != WK_OK) {
    wk__graph_executor_release(e);
    return status;
  }
  *out_executor = e;
  return WK_OK;
}

wk_status wk__graph_executor_create(wk__graph *graph, wk__graph_executor **out_executor) {
  return create(graph, false, out_executor);
}
wk_status wk__graph_executor_create_once(wk__graph *graph, wk__graph_executor **out_executor) {
  return create(graph, true, out_executor);
}
