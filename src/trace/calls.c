/* From a call to a node: arguments become nodes, the shape rule says what the results will be.
 * In: an operator and arguments, tensors or nodes. Out: a node with the description of its value. Where the table has
 * no shape rule the operator itself is run on tensors of the device "meta", which have no bytes: kernels and composites
 * then make shapes only. Tests: tests/c/test_trace.c; every operator's samples in tests/ops/test_trace.py. */
#include "graph/internal.h"
#include "trace/internal.h"

/* ---- arguments ---- */

static wk_status list_of_nodes(wk__tracer *t, const wk_value *value, wk__graph_arg *out) {
  wk__graph_node **nodes = wk__arena_alloc(&t->arena, (value->count + 1) * sizeof *nodes);
  if (!nodes) return WK_OUT_OF_MEMORY;
  for (uint32_t i = 0; i < value->count; i++) {
    if (!value->tensors[i]) continue;
    nodes[i] = wk__tracer_use(t, value->tensors[i]);
    if (!nodes[i]) return wk_error_category();
  }
  out->nodes = nodes;
  return WK_OK;
}

static wk_status arg_of_value(wk__tracer *t, const wk_value *value, wk__graph_arg *out) {
  *out = (wk__graph_arg){.value = *value};
  switch (value->tag) {
    case WK_VALUE_TENSOR:
      out->node = wk__tracer_use(t, value->tensor);
      return out->node ? WK_OK : wk_error_category();
    case WK_VALUE_TENSORS:
      return list_of_nodes(t, value, out);
    case WK_VALUE_INT:
      if (wk_int_is_poisoned(value->integer)) return wk_fail(WK_UNSUPPORTED, "an integer that a graph cannot hold");
      return WK_OK;
    case WK_VALUE_WIDE:
      return wk_fail(WK_UNSUPPORTED, "an integer that a graph cannot hold");
    case WK_VALUE_SCALARS:
      for (uint32_t k = 0; k < value->count; k++)
        if (value->scalars[k].tag == WK_VALUE_WIDE)
          return wk_fail(WK_UNSUPPORTED, "an integer that a graph cannot hold");
      return WK_OK;
    case WK_VALUE_INPUT:
      if (!t->owner.has_numbers) out->value = wk__v_double(value->number);
      return WK_OK;
    default:
      return WK_OK;
  }
}

static wk_status args_of_values(wk__tracer *t, const wk_op *op, const wk_value *values, wk__graph_arg *out) {
  for (int i = 0; i < op->schema.parameter_count; i++) WK_TRY(arg_of_value(t, &values[i], &out[i]));
  return WK_OK;
}

/* ---- what the results will be ---- */

typedef struct described {
  wk_tensor **values; /* owned, (count) */
  int count;
  wk_tensor *few[WK__MAX_RESULTS];
} described;

static void release_described(described *d) {
  for (int i = 0; i < d->count; i++) wk__release(d->values[i]);
  if (d->values != d->few) wk__free(d->values);
}

static wk_status by_rule(const wk_op *op, const wk_value *args, described *out) {
  wk__spec specs[WK__MAX_RESULTS];
  wk__call call = {.op = op, .args = args, .specs = specs, .compute_dtype = WK_DTYPE_NONE};
  WK_TRY(op->view ? op->view(&call) : op->meta(&call));
  out->values = out->few;
  for (int r = 0; r < op->schema.result_count; r++) {
    out->few[r] = wk__tensor_shape_only(&specs[r]);
    if (!out->few[r]) return wk_error_category();
    out->count++;
  }
  return WK_OK;
}

/* Where an argument is: of a list, its first tensor, as they all are. */
static wk_device home_of(const wk_value *v) {
  WK__EACH_TENSOR(tensor, v, 1) return tensor->device;
  return WK__CPU_DEVICE;
}

/* Where the results will be: the device that is asked for, else that of the first tensor which is not a number beside
 * others. */
static wk_device device_of(const wk_op *op, const wk_value *args) {
  wk_device found = WK__CPU_DEVICE;
  for (int i = 0; i < op->schema.parameter_count; i++)
    if (args[i].tag == WK_VALUE_DEVICE) return args[i].device;
  for (int i = op->schema.parameter_count - 1; i >= 0; i--) {
    wk_device home = home_of(&args[i]);
    if (home.type != WK_CPU) found = home;
  }
  return found;
}

static void move_to(const wk_value *described, wk_device device) {
  WK__EACH_TENSOR(tensor, described, 1) tensor->device = device;
}

/* Runs the operator on descriptions that say device meta; `back` is where the results will be. */
static wk_status by_running(wk__tracer *t, const wk_op *op, wk_value *args, described *out) {
  wk_value results[WK__MAX_RESULTS] = {{0}};
  wk_device meta = {WK_META, -1}, back = device_of(op, args), homes[WK__MAX_ARGS];
  for (int i = 0; i < op->schema.parameter_count; i++) {
    const wk__parameter *p = &op->schema.parameters[i];
    homes[i] = home_of(&args[i]);
    if (p->type == WK__TYPE_DEVICE) args[i] = (wk_value){.tag = WK_VALUE_DEVICE, .device = meta};
    move_to(&args[i], meta);
  }
  wk__thread_mode before = wk__thread.mode;
  wk__thread.mode.keys_off |= WK__KEY_AUTOGRAD | WK__KEY_TRACE;
  wk_status status = wk__call_below(WK__KEY_AUTOGRAD, op, args, NULL, results);
  wk__thread.mode = before;
  for (int i = op->schema.parameter_count; i-- > 0;) move_to(&args[i], homes[i]); /* one may be there twice */
  t->by_values = status == WK_NOT_IMPLEMENTED;
  if (t->by_values) return wk_fail(WK_UNSUPPORTED, "%s: its result's shape depends on values", op->name);
  if (status) return status;
  bool list = op->schema.result_is_list;
  int count = list ? (int)results[0].count : op->schema.result_count;
  out->values = list ? wk__alloc_zeroed((size_t)(count + 1) * sizeof *out->values) : out->few;
  if (!out->values) status = WK_OUT_OF_MEMORY;
  for (int r = 0; r < count && status == WK_OK; r++) {
    wk_tensor *made = list ? results[0].tensors[r] : results[r].tensor;
    out->values[r] = made ? wk__tensor_shape_of(made) : NULL;
    out->count++;
    if (made && !out->values[r]) status = wk_error_category();
    if (out->values[r]) out->values[r]->device = back;
    if (out->values[r]) out->values[r]->offset = wk_int_of(0);
  }
  for (int r = 0; r < op->schema.result_count; r++) wk_value_release(&results[r]);
  return status;
}

/* The rows become a symbol, by what they are now. Of two dims the columns lie one after the other, as nonzero() has
 * them. */
static wk_status by_values(wk__tracer *t, const wk_op *op, const wk__graph_arg *args, described *out) {
  WK__OWNED now = NULL;
  if (t->tries || !wk__trace_counts(t))
    return wk_fail(WK_UNSUPPORTED, "%s: its result's shape depends on values", op->name);
  if (wk__trace_value_now(t, op, args, &now) != WK_OK)
    return wk_fail(WK_UNSUPPORTED, "%s: its result's shape depends on values that are not known", op->name);
  wk_int rows = t->owner.rows(t->owner.context, wk__size(now, 0));
  if (wk_int_is_poisoned(rows)) return wk_fail(WK_UNSUPPORTED, "%s: its result's shape depends on values", op->name);
  wk__spec spec;
  wk__spec_of(&spec, now);
  spec.sizes[0] = rows;
  if (spec.ndim > 1) spec.strides[1] = wk_int_max(rows, wk_int_of(1));
  if (spec.ndim > 1) WK_TRY(wk_int_check(spec.strides[1]));
  wk__thread.symbols_of = t;
  out->values = out->few;
  if (!(out->few[0] = wk__tensor_shape_only(&spec))) return wk_error_category();
  out->count = 1;
  return WK_OK;
}

static wk_status describe(wk__tracer *t, const wk_op *op, const wk__graph_arg *args, described *out) {
  if (WK_UNLIKELY(wk__graph_counts(op))) return by_values(t, op, args, out);
  wk_value values[WK__MAX_ARGS];
  wk_tensor *few[32], **space = few;
  int64_t needed = wk__graph_listed(op, args);
  if (needed > (int64_t)WK_COUNT(few) && !(space = wk__alloc((size_t)needed * sizeof *space))) return WK_OUT_OF_MEMORY;
  wk__graph_describe_args(op, args, values, space);
  bool has_rule = op->view || (op->meta && !op->compose);
  wk_status status = has_rule ? by_rule(op, values, out) : by_running(t, op, values, out);
  if (space != few) wk__free(space);
  return status;
}

/* ---- where a node was made ---- */

/* `inner` with its callers, called by `outer`. */
static const wk__source_line *behind(wk__graph *graph, const wk__source_line *inner, const wk__source_line *outer) {
  const wk__source_line *caller = inner->caller ? behind(graph, inner->caller, outer) : outer;
  return caller ? wk__source_line_add(graph, caller, inner->file, inner->function, inner->line) : NULL;
}

/* A derivative has the source line of the call that it is the derivative of, whoever asked for the backward pass. */
static const wk__source_line *source_of_derivative(wk__tracer *t, const wk__source_line *asked_by) {
  const wk__source_line *call = wk__map_get(&t->taped, wk__thread.mode.running_sequence);
  if (!call || !asked_by) return call ? call : asked_by;
  if (t->derived && t->derived_from == call && t->derived_by == asked_by) return t->derived;
  t->derived_from = call;
  t->derived_by = asked_by;
  return t->derived = behind(t->graph, call, asked_by);
}

static const wk__source_line *source_of_call(wk__tracer *t) {
  const wk__source_line *source = t->owner.source ? t->owner.source(t->owner.context, t->graph) : NULL;
  if (wk__thread.mode.running_sequence) source = source_of_derivative(t, source);
  if (source && wk__thread.mode.tape_sequence &&
      wk__map_set(&t->taped, wk__thread.mode.tape_sequence, (void *)source) != WK_OK)
    wk_error_clear(); /* its derivative will not know */
  return source;
}

/* ---- nodes ---- */

static wk__graph_node *append(wk__tracer *t, const wk_op *op, const wk__graph_arg *args, wk_tensor *const *values,
                              int count) {
  wk__graph_node *node = wk__graph_call(t->graph, op, args, (const wk_tensor *const *)values, count, NULL);
  if (node) node->tape_sequence = wk__thread.mode.tape_sequence;
  if (node) node->source = source_of_call(t);
  return node;
}

wk__graph_node *wk__trace_record_call(wk__tracer *t, const wk_op *op, const wk__graph_arg *args) {
  described d = {0};
  wk__graph_node *node = NULL;
  const wk__number_watcher watcher = {t->owner.context, t->owner.number_fits}, *outer = wk__thread.number_watch;
  wk__thread.number_watch = watcher.fits ? &watcher : NULL;
  wk_status status = describe(t, op, args, &d);
  wk__thread.number_watch = outer;
  if (status == WK_OK) node = append(t, op, args, d.values, d.count);
  release_described(&d);
  return node;
}

/* The values of an operator that writes and makes: what it makes, then what it writes. */
static wk__graph_node *record_made_and_written(wk__tracer *t, const wk_op *op, const wk__graph_arg *args,
                                               wk_tensor *const *written, int count) {
  described d = {0};
  wk__graph_node *node = NULL;
  wk_tensor **values = NULL;
  if (describe(t, op, args, &d) == WK_OK) values = wk__alloc((size_t)(d.count + count) * sizeof *values);
  if (values) {
    memcpy(values, d.values, (size_t)d.count * sizeof *values);
    memcpy(values + d.count, written, (size_t)count * sizeof *values);
    node = append(t, op, args, values, d.count + count);
  }
  wk__free(values);
  release_described(&d);
  return node;
}

static bool behind_tape(wk__tracer *t, wk_tensor *tensor) {
  if (!tensor || !(tensor->keys & WK__KEY_AUTOGRAD)) return false;
  const wk__trace_record *r = wk__trace_record_of(t, tensor);
  return r && r->cell->behind_tape;
}
static bool any_behind_tape(wk__tracer *t, const wk_op *op, const wk_value *values) {
  bool behind = false;
  if (!wk__thread.mode.grad_enabled) return false;
  WK__EACH_TENSOR(tensor, values, op->schema.parameter_count) behind |= behind_tape(t, tensor);
  return behind;
}
static wk_status check_behind_tape(wk__tracer *t, const wk_op *op, const wk_value *values, bool *out_behind) {
  *out_behind = any_behind_tape(t, op, values);
  if (!*out_behind || !t->owner.follows_tape) return WK_OK;
  return wk_fail(WK_UNSUPPORTED, "%s of what requires grad and was written where its history does not see it",
                 op->name);
}
static wk__graph_node *mark(wk__graph_node *node, bool behind) {
  if (node && behind) node->flags |= WK__GRAPH_BEHIND_TAPE;
  return node;
}

wk__graph_node *wk__trace_call(wk__tracer *t, const wk_op *op, const wk_value *values) {
  wk__graph_arg args[WK__MAX_ARGS];
  bool behind;
  if (args_of_values(t, op, values, args) != WK_OK || wk__trace_check_values(t, op, args) != WK_OK) return NULL;
  if (check_behind_tape(t, op, values, &behind) != WK_OK) return NULL;
  return mark(wk__trace_record_call(t, op, args), behind);
}

wk__graph_node *wk__trace_mutating_call(wk__tracer *t, const wk_op *op, const wk_value *values,
                                        wk_tensor *const *written, int count) {
  wk__graph_arg args[WK__MAX_ARGS];
  bool behind;
  if (args_of_values(t, op, values, args) != WK_OK || check_behind_tape(t, op, values, &behind) != WK_OK) return NULL;
  if (!wk__made_beside_writes(op)) return mark(append(t, op, args, written, count), behind);
  return mark(record_made_and_written(t, op, args, written, count), behind);
}
