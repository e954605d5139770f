/* The autograd layer: runs the call below it, then writes what the derivative rule will need into a node.
 * In: a call with at least one argument that requires grad. Out: the results, with history. Invariant: a node holds no
 * strong reference to a tensor whose history leads to it. Tests: tests/c/test_autograd.c, tests/ops/ (gradcheck). */
#include "autograd/autograd.h"
#include "ops/internal.h"
#include "trace/trace.h"

/* A saved tensor that a saver keeps. */
typedef struct packed_tensor {
  wk__packed *packed; /* owned; NULL: the tensor was kept as it is, or not at all */
  wk_tensor *shape;   /* its shape, which takes its place; kept here while the unpacked tensor does */
} packed_tensor;

/* An operator's node. Arguments are kept as the rule will see them: numbers and lists copied, tensors whole, as shapes,
 * or not at all. */
typedef struct op_node {
  wk_node node;
  uint8_t argument_count;
  int written_input;   /* in-place: the input that the result replaced, or -1 */
  wk_value *args;      /* (argument_count), in the room behind the struct, as the next three */
  wk_tensor **results; /* aliases without history; NULL where not kept */
  uint32_t *versions;  /* of tensors kept whole */
  uint32_t *result_versions;
  uint32_t reduce;       /* bit i: argument i was broadcast or converted, its gradient has to be brought back */
  uint32_t whole;        /* bit i: argument i is kept whole */
  uint32_t relatives;    /* bit i: argument i is kept by an alias, see is_relative */
  uint32_t bases;        /* bit i: and it is the base of what was written */
  uint32_t written_too;  /* bit i: what was written, in another place than the first */
  bool symbolic;         /* told to the tracer: there are symbolic numbers among the arguments */
  packed_tensor *packed; /* (inputs, then results) when a saver was active; NULL otherwise */
} op_node;

static const wk__node_class op_class;

/* ================================================== running ===================================================== */

/* made_by: the name of its history; NULL for a leaf. */
static wk_status modified(const wk_tensor *t, const char *made_by, uint32_t result, uint32_t expected) {
  wk__string text = {0};
  wk__string_printf(&text,
                    "one of the variables needed for gradient computation has been modified by an inplace "
                    "operation: [torch.%sTensor ",
                    wk__dtype_legacy((wk_dtype)t->dtype));
  wk__print_sizes(&text, t->sizes, t->ndim);
  wk__string_append(&text, "]");
  if (made_by) wk__string_printf(&text, ", which is output %u of %s,", result, made_by);
  wk__string_printf(&text,
                    " is at version %u; expected version %u instead. Hint: enable anomaly detection to find the "
                    "operation that failed to compute its gradient, with torch.autograd.set_detect_anomaly(True, "
                    "check_nan=False).",
                    wk__version(t), expected);
  if (!text.failed) (void)wk_fail(WK_RUNTIME_ERROR, "%s", text.text);
  wk__string_release(&text);
  return wk_error_category();
}

wk_status wk__saved_tensor_modified(const wk_tensor *t, const wk_node *grad_fn, uint32_t result, uint32_t expected) {
  wk__string name = {0};
  if (grad_fn) wk__node_print_short_name(&name, grad_fn);
  (void)!modified(t, grad_fn ? name.text : NULL, result, expected);
  wk__string_release(&name);
  return wk_error_category();
}

static bool argument_was_written(const op_node *n, int i) {
  bool kept = n->whole >> i & 1 && n->args[i].tag == WK_VALUE_TENSOR;
  return kept && wk__version(n->args[i].tensor) != n->versions[i];
}
static bool result_was_written(const op_node *n, int r) {
  return n->results[r] && wk__version(n->results[r]) != n->result_versions[r];
}

/* PyTorch names the present history, which a view gets when it is asked for. */
static wk_status argument_modified(const op_node *n, int i) {
  const wk_tensor *t = n->args[i].tensor;
  bool view = n->relatives >> i & 1 || (t->base && t->base->keys & WK__KEY_AUTOGRAD);
  const wk_node *grad_fn = t->autograd ? t->autograd->grad_fn : NULL;
  if (n->written_too >> i & 1) return wk__saved_tensor_modified(t, &n->node, 0, n->versions[i]);
  if (n->bases >> i & 1) return modified(t, "torch::autograd::CopySlices", 0, n->versions[i]);
  if (view) return modified(t, "AsStrided", 0, n->versions[i]);
  return wk__saved_tensor_modified(t, grad_fn, grad_fn ? t->autograd->result : 0, n->versions[i]);
}

static wk_status check_versions(const op_node *n) {
  for (int i = 0; i < n->argument_count; i++)
    if (argument_was_written(n, i)) return argument_modified(n, i);
  for (int r = 0; r < n->node.op->schema.result_count; r++)
    if (result_was_written(n, r))
      return wk__saved_tensor_modified(n->results[r], &n->node, (uint32_t)r, n->result_versions[r]);
  return WK_OK;
}

bool wk__saved_was_written(const wk_node *node) {
  const op_node *n = (const op_node *)node;
  if (node->class != &op_class) return false;
  for (int i = 0; i < n->argument_count; i++)
    if (argument_was_written(n, i)) return true;
  for (int r = 0; r < node->op->schema.result_count; r++)
    if (result_was_written(n, r)) return true;
  return false;
}

wk_status wk__saved_error(const wk_node *node) { return check_versions((const op_node *)node); }

static bool differentiable(const wk_tensor *t) {
  return wk_dtype_is_floating((wk_dtype)t->dtype) || wk_dtype_is_complex((wk_dtype)t->dtype);
}
/* Of several results some operators have a derivative for the first only. */
static bool has_history(const wk_op *op, int r, const wk_tensor *t) {
  return differentiable(t) && !(r > 0 && op->tags & WK__TAG_FIRST_ONLY);
}

/* Results get their history back while a derivative of the derivative is recorded. out: owned where it differs. */
static wk_status results_with_history(op_node *n, wk_tensor **out) {
  for (int r = 0; r < n->node.op->schema.result_count; r++) {
    if (!n->results[r] || !has_history(n->node.op, r, n->results[r])) continue;
    wk__spec spec;
    wk__spec_of(&spec, n->results[r]);
    out[r] = wk__tensor_alias(n->results[r], &spec);
    if (!out[r]) return wk_error_category();
    WK_TRY(wk__set_history(out[r], &n->node, (uint32_t)r));
  }
  return WK_OK;
}

/* ---- tensors that a saver keeps ---- */

/* Where input or result `slot` of the node is kept. */
/* The item of a list that an input stands for. */
static wk_tensor **item_of(const op_node *n, int input) {
  int item = input - n->argument_count, i = 0;
  for (; n->args[i].tag != WK_VALUE_TENSORS || item >= (int)n->args[i].count; i++)
    if (n->args[i].tag == WK_VALUE_TENSORS) item -= (int)n->args[i].count;
  return &n->args[i].tensors[item];
}

static wk_tensor **place_of(op_node *n, int slot) {
  if (slot >= n->node.input_count) return &n->results[slot - n->node.input_count];
  if (slot >= n->argument_count) return item_of(n, slot);
  return &n->args[slot].tensor;
}
static int slot_count(const op_node *n) { return n->packed ? n->node.input_count + n->node.result_count : 0; }

static wk_status pack_slot(op_node *n, int slot, wk_tensor *t) {
  size_t count = (size_t)n->node.input_count + n->node.result_count;
  if (!n->packed) n->packed = wk__alloc_zeroed(count * sizeof *n->packed);
  return n->packed ? wk__pack(t, &n->packed[slot].packed) : WK_OUT_OF_MEMORY;
}

static wk_status unpack_slot(op_node *n, int slot, bool create_graph) {
  packed_tensor *p = &n->packed[slot];
  wk__edge edge = {0};
  wk_tensor *t;
  if (create_graph && slot < n->node.input_count) edge = n->node.edges[slot]; /* results get theirs later */
  WK_TRY(wk__unpack(p->packed, edge.node, edge.input, &t));
  p->shape = *place_of(n, slot);
  *place_of(n, slot) = t;
  return WK_OK;
}
/* After a run, whether or not everything was unpacked. A result has no shape in its place. */
static void put_back(op_node *n, int unpacked) {
  for (int slot = 0; slot < unpacked; slot++) {
    packed_tensor *p = &n->packed[slot];
    if (!p->packed) continue;
    wk__release(*place_of(n, slot));
    *place_of(n, slot) = p->shape;
    p->shape = NULL;
  }
}
static wk_status unpack_all(op_node *n, bool create_graph) {
  for (int slot = 0; slot < slot_count(n); slot++) {
    wk_status status = n->packed[slot].packed ? unpack_slot(n, slot, create_graph) : WK_OK;
    if (status == WK_OK) continue;
    put_back(n, slot);
    return status;
  }
  return WK_OK;
}

/* Which inputs the edges stand for: one an argument, then one an item of the list. */
static wk_tensor *shape_of_input(const op_node *n, int input) {
  if (input < n->argument_count) return wk__tensor_or_null(&n->args[input]);
  return *item_of(n, input);
}

/* Sums what was broadcast, converts what was promoted. */
static wk_tensor *like_input(wk_tensor *grad, const wk_tensor *shape) {
  if (!grad || !shape) return grad;
  if (!wk__same_sizes(grad, shape)) {
    wk_value args[] = {wk__v_tensor(grad), wk__v_ints(shape->sizes, shape->ndim)};
    grad = wk__call_tensor(WK__OP(sum_to_size), args);
  }
  if (!grad || grad->dtype == shape->dtype) return grad;
  return wk__call_tensor(WK__OP(_to_copy), (wk_value[]){wk__v_tensor(grad), wk__v_dtype((wk_dtype)shape->dtype), {0}});
}

static wk_status collect_gradients(op_node *n, const bool *wanted, wk_tensor **grads) {
  for (int i = 0; i < n->node.input_count; i++) {
    if (!grads[i] || !wanted[i]) {
      grads[i] = NULL;
      continue;
    }
    bool fit = i < n->argument_count && n->reduce >> i & 1;
    if (fit && !(grads[i] = like_input(grads[i], shape_of_input(n, i)))) return wk_error_category();
  }
  for (int i = 0; i < n->node.input_count; i++) wk__retain(grads[i]);
  return WK_OK;
}

/* A rule may fill a gradient piece by piece; the program cannot see those writes, so they do not count. */
static void forget_writes(wk_tensor *const *grads, int count) {
  for (int i = 0; i < count; i++) {
    wk_tensor *t = grads[i];
    bool alone = t && t->storage && atomic_load_explicit(&t->references, memory_order_relaxed) == 1 &&
                 atomic_load_explicit(&t->storage->references, memory_order_relaxed) == 1;
    if (alone) atomic_store_explicit(&t->storage->version, 0, memory_order_relaxed);
  }
}

static wk_status run_op(wk_node *node, wk_tensor *const *grads, const bool *wanted, bool create_graph,
                        wk_tensor **out_grads) {
  op_node *n = (op_node *)node;
  wk_tensor *results[WK__MAX_RESULTS];
  WK_TRY(check_versions(n));
  WK_TRY(unpack_all(n, create_graph));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = WK_OK;
  memcpy(results, n->results, node->op->schema.result_count * sizeof *results);
  if (create_graph) status = results_with_history(n, results);
  wk__vjp v = {.op = node->op,
               .args = n->args,
               .results = results,
               .grads = grads,
               .result_count = node->result_count,
               .wanted = wanted,
               .out_grads = out_grads};
  if (status == WK_OK) status = node->op->vjp(&v);
  if (status == WK_OK) status = collect_gradients(n, wanted, out_grads);
  if (status != WK_OK) memset(out_grads, 0, node->input_count * sizeof *out_grads);
  wk_scope_end(&scope);
  for (int r = 0; create_graph && r < node->op->schema.result_count; r++)
    if (results[r] != n->results[r]) wk__release(results[r]);
  put_back(n, slot_count(n));
  if (!create_graph) forget_writes(out_grads, node->input_count);
  return status;
}

static void drop_saved(wk_node *node) {
  op_node *n = (op_node *)node;
  if (WK_UNLIKELY(n->symbolic)) wk__symbolic_drop(n);
  for (int slot = 0; slot < slot_count(n); slot++) wk__packed_release(n->packed[slot].packed);
  wk__free(n->packed);
  n->packed = NULL;
  for (int i = 0; i < n->argument_count; i++) wk_value_release(&n->args[i]);
  for (int r = 0; r < node->op->schema.result_count; r++) {
    wk__release(n->results[r]);
    n->results[r] = NULL;
  }
}

/* A node that kept no values, only shapes and numbers, can always run again. */
static void release_saved(wk_node *node) {
  const op_node *n = (const op_node *)node;
  bool kept = n->whole != 0 || n->packed;
  for (int r = 0; r < node->op->schema.result_count; r++) kept |= n->results[r] != NULL;
  if (!kept) return;
  drop_saved(node);
  node->released = true;
}

static void destroy_op(wk_node *node) {
  drop_saved(node);
  wk__op_hold(node->op, -1);
}

static const wk__node_class op_class = {
    .suffix = "Backward0", .run = run_op, .release_saved = release_saved, .destroy = destroy_op};

/* ================================================== recording =================================================== */

/* What belongs to another level is a constant to this one's tape. */
static bool wants(const wk_tensor *t) {
  if (!t || !wk_requires_grad(t)) return false;
  return wk__is_of_this_level(t) || wk__level_of(t) == wk__thread.mode.level_followed;
}

/* What to keep of argument i, when those inputs want gradients. */
static wk__saves saves_of(const wk_op *op, const wk_value *args) {
  wk__saves saves = {0};
  for (int i = 0; i < op->schema.parameter_count; i++) {
    bool wanted = false;
    WK__EACH_TENSOR(tensor, &args[i], 1) wanted |= wants(tensor);
    if (!wanted) continue;
    saves.args |= op->saves[i].args;
    saves.shapes |= op->saves[i].shapes;
    saves.results |= op->saves[i].results;
  }
  return saves;
}
/* In place the argument is overwritten. Where the rule can use the result instead, no copy is kept. */
static wk__saves saves_in_place(const wk_op *op, wk__saves saves) {
  if (op->tags & WK__TAG_BY_RESULT && saves.args & 1) {
    saves.args &= ~1u;
    saves.results |= 1;
  }
  return saves;
}

/* A kept tensor that the call writes into is copied before it, with the history that it has now. */
static wk_tensor *copy_before_write(wk_tensor *t) {
  wk_value copy = {0}, args[] = {wk__v_tensor(t), {0}};
  wk__edge edge;
  if (wk__edge_of(t, &edge) != WK_OK) return NULL;
  wk_status status = wk__call_below(WK__KEY_AUTOGRAD, WK__OP(clone), args, NULL, &copy);
  bool has_history = edge.node && t->autograd->grad_fn; /* a leaf's own node is not one */
  if (status == WK_OK && has_history) status = wk__set_history(copy.tensor, edge.node, edge.input);
  wk__node_release(edge.node);
  if (status == WK_OK) return copy.tensor;
  wk_value_release(&copy);
  return NULL;
}

static const wk_tensor *root_of(const wk_tensor *t) { return t->base ? t->base : t; }

/* Another tensor over the memory that is written: its base, or it itself, will have a history that leads to the node.
 * So it is kept by an alias that has the history of now. */
static bool is_relative(const wk_tensor *t, const wk_tensor *written) {
  return written && t != written && root_of(t) == root_of(written);
}
static wk_tensor *alias_of_relative(wk_tensor *t) {
  wk__spec spec;
  wk__edge edge;
  wk__spec_of(&spec, t);
  if (wk__edge_of(t, &edge) != WK_OK) return NULL;
  wk_tensor *alias = wk__tensor_alias(t, &spec);
  if (alias && edge.node && wk__set_history(alias, edge.node, edge.input) != WK_OK) {
    wk__release(alias);
    alias = NULL;
  }
  wk__node_release(edge.node);
  return alias;
}

static void note_relative(op_node *n, int i, const wk_tensor *t, const wk_tensor *written) {
  if (t == written) {
    n->written_too |= 1u << i;
    return;
  }
  n->relatives |= 1u << i;
  if (!t->base) n->bases |= 1u << i;
}

/* y.mul_(y): the first argument keeps the value from before, as in PyTorch; the second counts as written. */
static bool is_written_too(int i, const wk_tensor *t, const wk_tensor *written) { return i > 0 && t == written; }

static wk_tensor *whole(int i, wk_tensor *t, const wk_tensor *written) {
  if (t == written && i == 0) return copy_before_write(t);
  return t == written || is_relative(t, written) ? alias_of_relative(t) : wk__retain(t);
}

/* Only the shape stays; a saver has the rest. */
static wk_status save_packed(op_node *n, int slot, wk_tensor *t, wk_tensor **place) {
  *place = wk__tensor_kept_shape(t);
  return *place ? pack_slot(n, slot, t) : wk_error_category();
}

static wk_status save_list(op_node *n, int i, const wk_value *from, bool keep, bool shapes) {
  wk_tensor **copy = wk__alloc_zeroed((from->count + 1) * sizeof *copy);
  if (!copy) return WK_OUT_OF_MEMORY;
  n->args[i] = (wk_value){.tag = WK_VALUE_TENSORS, .count = from->count, .tensors = copy};
  int start = wk__list_start(n->node.op, n->args, i);
  for (uint32_t k = 0; k < from->count; k++) {
    if (!from->tensors[k] || (!keep && !shapes)) continue;
    if (keep) WK_TRY(wk__check_saved(from->tensors[k]));
    if (keep && wk__saver_active()) {
      WK_TRY(save_packed(n, start + (int)k, from->tensors[k], &copy[k]));
      continue;
    }
    copy[k] = keep ? wk__retain(from->tensors[k]) : wk__tensor_kept_shape(from->tensors[k]);
    if (!copy[k]) return wk_error_category();
  }
  return WK_OK;
}

static wk_status save_packed_argument(op_node *n, int i, wk_tensor *t, const wk_tensor *written) {
  wk_value *v = &n->args[i];
  wk_tensor *before = whole(i, t, written);
  if (!before) return wk_error_category();
  wk_status status = save_packed(n, i, before, &v->tensor);
  v->tag = v->tensor ? WK_VALUE_TENSOR : WK_VALUE_NONE;
  wk__release(before);
  return status;
}

/* ---- symbolic sizes: the tape may outlive the graph whose symbols it kept ---- */

static void known_value(wk_value *v) {
  wk__integer_span integers = wk__value_integers(v);
  for (uint32_t k = 0; k < integers.count; k++) integers.items[k] = wk__symbolic_value(integers.items[k]);
}
static void make_known(void *node) {
  op_node *n = node;
  for (int i = 0; i < n->argument_count; i++) known_value(&n->args[i]);
  n->symbolic = false;
}

static bool is_symbolic(const wk_value *v) {
  wk__integer_span integers = wk__value_integers(v);
  bool found = false;
  for (uint32_t k = 0; k < integers.count; k++) found |= !wk_int_is_known(integers.items[k]);
  return found;
}
static wk_status note_symbolic(op_node *n) {
  bool found = false;
  for (int i = 0; i < n->argument_count; i++) found |= is_symbolic(&n->args[i]);
  if (WK_LIKELY(!found || n->symbolic)) return WK_OK;
  if (!wk__trace_has_symbols()) {
    make_known(n);
    return WK_OK;
  }
  n->symbolic = true;
  return wk__symbolic_hold(n, make_known);
}

static wk_status save_argument(op_node *n, int i, const wk_value *from, wk__saves saves, const wk_tensor *written) {
  wk_value *v = &n->args[i];
  bool keep = saves.args >> i & 1, shape = (saves.shapes | n->reduce) >> i & 1;
  switch (from->tag) {
    case WK_VALUE_TENSOR:
      if (keep) WK_TRY(wk__check_saved(from->tensor));
      if (keep && wk__saver_active()) return save_packed_argument(n, i, from->tensor, written);
      *v = (wk_value){.tag = keep || shape ? WK_VALUE_TENSOR : WK_VALUE_NONE};
      if (keep)
        v->tensor = whole(i, from->tensor, written);
      else if (shape)
        v->tensor = wk__tensor_kept_shape(from->tensor);
      if (v->tag == WK_VALUE_TENSOR && !v->tensor) {
        v->tag = WK_VALUE_NONE;
        return wk_error_category();
      }
      if (keep) {
        n->whole |= 1u << i;
        n->versions[i] = wk__version(v->tensor);
        if (WK_UNLIKELY(is_relative(from->tensor, written) || is_written_too(i, from->tensor, written)))
          note_relative(n, i, from->tensor, written);
      }
      return WK_OK;
    case WK_VALUE_TENSORS:
      n->whole |= keep && !wk__saver_active() ? 1u << i : 0;
      return save_list(n, i, from, keep, shape);
    case WK_VALUE_GENERATOR: /* no rule draws again */
      return WK_OK;
    default:
      return wk__value_copy(v, from, wk__value_on_heap, NULL);
  }
}

static wk_status save_results(op_node *n, const wk_value *results, wk__saves saves) {
  for (int r = 0; r < n->node.op->schema.result_count; r++) {
    if (!(saves.results >> r & 1)) continue;
    if (wk__saver_active()) {
      WK_TRY(pack_slot(n, n->node.input_count + r, results[r].tensor));
      continue;
    }
    wk__spec spec;
    wk__spec_of(&spec, results[r].tensor);
    n->results[r] = wk__tensor_alias(results[r].tensor, &spec);
    if (!n->results[r]) return wk_error_category();
    n->result_versions[r] = wk__version(n->results[r]);
  }
  return WK_OK;
}

/* By its schema; in-place forms write it by a destination. */
static bool writes_first(const wk_op *op) { return op->tags & WK__TAG_MUTATES && op->schema.parameters[0].written; }

/* Pointwise rules ignore broadcasting and promotion: the node remembers whose gradient needs fitting. */
static uint32_t to_reduce(const wk_op *op, const wk_value *args, const wk_tensor *result) {
  uint32_t reduce = 0;
  if (!(op->tags & WK__TAG_POINTWISE) && !writes_first(op)) return 0;
  for (int i = 0; i < op->schema.parameter_count; i++) {
    const wk_tensor *t = wk__tensor_or_null(&args[i]);
    if (!t || !wants(t)) continue;
    bool same = t->ndim == result->ndim && t->dtype == result->dtype &&
                memcmp(t->sizes, result->sizes, t->ndim * sizeof *t->sizes) == 0;
    if (!same) reduce |= 1u << i;
  }
  return reduce;
}

static wk_status connect(op_node *n, const wk_value *args) {
  wk__edge *item = n->node.edges + n->argument_count;
  for (int i = 0; i < n->argument_count; i++) {
    bool list = args[i].tag == WK_VALUE_TENSORS;
    wk__tensor_span tensors = wk__value_tensors(&args[i]);
    for (uint32_t k = 0; k < tensors.count; k++) {
      wk__edge *edge = list ? item++ : &n->node.edges[i];
      if (wants(tensors.items[k])) WK_TRY(wk__edge_of(tensors.items[k], edge));
    }
  }
  return WK_OK;
}

/* With room for what this operator's arguments and results need. */
static op_node *new_op_node(const wk_op *op, int items) {
  size_t arguments = op->schema.parameter_count, results = op->schema.result_count;
  size_t room = arguments * sizeof(wk_value) + results * sizeof(wk_tensor *) + (arguments + results) * sizeof(uint32_t);
  op_node *n = (op_node *)wk__node_create(&op_class, sizeof *n + room, (int)arguments + items, (int)results);
  if (!n) return NULL;
  n->args = (wk_value *)(n + 1);
  n->results = (wk_tensor **)(n->args + arguments);
  n->versions = (uint32_t *)(n->results + results);
  n->result_versions = n->versions + arguments;
  return n;
}

/* Before the call, because an in-place call changes what its arguments are. */
static wk_status begin_node(const wk_op *op, const wk_value *args, const wk_tensor *written, wk__saves saves,
                            op_node **out) {
  int items = wk__list_start(op, args, op->schema.parameter_count) - op->schema.parameter_count;
  *out = NULL;
  op_node *n = new_op_node(op, items);
  if (!n) return WK_OUT_OF_MEMORY;
  n->node.op = op;
  wk__op_hold(op, 1);
  n->node.usual_name = op->grad_fn_arg && args[op->grad_fn_arg - 1].tag == WK_VALUE_NONE;
  n->argument_count = op->schema.parameter_count;
  n->reduce = written ? to_reduce(op, args, written) : 0;
  wk_status status = connect(n, args);
  wk__node_put_behind_edges(&n->node);
  for (int i = 0; status == WK_OK && i < n->argument_count; i++) status = save_argument(n, i, &args[i], saves, written);
  if (status == WK_OK) status = note_symbolic(n);
  if (status != WK_OK)
    wk__node_release(&n->node);
  else
    *out = n;
  return status;
}

/* Shapes of arguments that turned out to be broadcast, now that the result is known. */
static wk_status note_reductions(op_node *n, const wk_value *args, const wk_tensor *result) {
  uint32_t reduce = to_reduce(n->node.op, args, result);
  for (int i = 0; reduce && i < n->argument_count; i++) {
    if (!(reduce >> i & 1) || n->args[i].tag == WK_VALUE_TENSOR) continue;
    wk_tensor *shape = wk__tensor_kept_shape(args[i].tensor);
    if (!shape) return wk_error_category();
    n->args[i] = wk__v_tensor(shape);
  }
  n->reduce = reduce;
  return WK_OK;
}

/* A list: each of its tensors is a result of the node. */
static wk_status finish_list_node(op_node *n, const wk_value *list) {
  n->node.result_count = (uint16_t)list->count;
  for (uint32_t k = 0; k < list->count; k++) WK_TRY(wk__set_history(list->tensors[k], &n->node, k));
  return WK_OK;
}

static wk_status finish_node(op_node *n, const wk_value *results, wk__saves saves, bool in_place) {
  if (n->node.op->schema.result_is_list) return finish_list_node(n, results);
  WK_TRY(save_results(n, results, saves));
  for (int r = 0; r < n->node.result_count; r++) {
    wk_tensor *t = results[r].tensor;
    if (!t || !has_history(n->node.op, r, t)) continue;
    if (in_place && t->base)
      WK_TRY(wk__rebase_history(t, &n->node));
    else
      WK_TRY(wk__set_history(t, &n->node, (uint32_t)r));
  }
  return WK_OK;
}

static bool any_wanted(const wk_op *op, const wk_value *args) {
  WK__EACH_TENSOR(tensor, args, op->schema.parameter_count) {
    if (wants(tensor)) return true;
  }
  return false;
}

/* The tensor that the call writes: the first argument, by the in-place form or by a schema that says so. */
static wk_tensor *written_tensor(const wk_op *op, const wk_value *args, wk_tensor *const *destinations) {
  if (destinations && destinations[0]) return destinations[0];
  return writes_first(op) && args[0].tag == WK_VALUE_TENSOR ? args[0].tensor : NULL;
}

static wk_status refuse_out(const wk_op *op) {
  return wk_fail(WK_RUNTIME_ERROR,
                 "%s(): functions with out=... arguments don't support automatic differentiation, but one of the "
                 "arguments requires grad.",
                 op->base_name);
}

/* A composite in place: its parts are recorded on a copy, since they may keep what is written, and then that the first
 * argument became their result. */
static wk_status compose_then_copy(const wk_op *op, const wk_value *args, wk_value *results) {
  wk_value made = {0}, own[WK__MAX_ARGS], clone[] = {args[0], {0}};
  memcpy(own, args, op->schema.parameter_count * sizeof *own);
  WK_TRY(wk_call(WK__OP(clone), clone, NULL, &own[0]));
  wk_status composed = wk_call(op, own, NULL, &made);
  wk_value_release(&own[0]);
  WK_TRY(composed);
  wk__spec spec;
  wk__spec_of(&spec, made.tensor);
  wk_status status = wk__same_sizes(args[0].tensor, made.tensor) ? WK_OK : wk__shape_mismatch(args[0].tensor, &spec);
  wk_dtype to = (wk_dtype)args[0].tensor->dtype;
  if (status == WK_OK) status = wk__check_inplace_dtype(op, (wk_dtype)made.tensor->dtype, to);
  wk_value copy[] = {args[0], made, wk__v_bool(false)};
  if (status == WK_OK) status = wk_call(WK__OP(copy_), copy, NULL, results);
  wk_value_release(&made);
  return status;
}

wk_status wk__autograd_layer(const wk_op *op, const wk_value *args, wk_tensor *const *destinations, wk_value *results) {
  wk_tensor *written = written_tensor(op, args, destinations);
  bool in_place = written && args[0].tag == WK_VALUE_TENSOR && args[0].tensor == written;
  if (!wk__thread.mode.grad_enabled || !any_wanted(op, args)) {
    bool records = wk__thread.mode.grad_enabled && (op->vjp || op->compose);
    if (written && !in_place && records && wants(written)) return refuse_out(op);
    if (written) WK_TRY(wk__check_inplace(written));
    return wk__call_below(WK__KEY_AUTOGRAD, op, args, destinations, results);
  }
  if (written && !in_place) return refuse_out(op);
  if (written) WK_TRY(wk__check_inplace(written));
  if (!op->vjp) {
    if (in_place && op->compose) return compose_then_copy(op, args, results);
    if (written && differentiable(written) && !(op->tags & (WK__TAG_RANDOM | WK__TAG_COMPARISON)))
      return wk_fail(WK_NOT_IMPLEMENTED, "the derivative for '%s' is not implemented", op->base_name);
    return wk__call_below(WK__KEY_AUTOGRAD, op, args, destinations, results);
  }
  wk__saves saves = in_place ? saves_in_place(op, saves_of(op, args)) : saves_of(op, args);
  op_node *n;
  WK_TRY(begin_node(op, args, written, saves, &n));
  uint64_t outer_sequence = wk__thread.mode.tape_sequence;
  wk__thread.mode.tape_sequence = n->node.sequence;
  wk_status status = wk__call_below(WK__KEY_AUTOGRAD, op, args, destinations, results);
  wk__thread.mode.tape_sequence = outer_sequence;
  if (status == WK_OK) {
    if (!written) status = note_reductions(n, args, results[0].tensor);
    if (status == WK_OK) status = finish_node(n, results, saves, in_place);
    for (int r = 0; status != WK_OK && r < op->schema.result_count; r++) wk_value_release(&results[r]);
  }
  wk__node_release(&n->node);
  return status;
}

/* =========================================== writing through a view ============================================= */

/* base' = base with the view's place taken by f(view, ...). Edge 0 is base's history, the others are f's. */
typedef struct slice_node {
  wk_node node;
  wk_node *function;      /* owned: f, whose own edge for the written argument is not used */
  wk_tensor *base, *view; /* owned, shapes only */
} slice_node;

static wk_tensor *strided(wk_tensor *t, const wk_tensor *like, wk_int offset) {
  wk_value args[] = {wk__v_tensor(t), wk__v_ints(like->sizes, like->ndim), wk__v_ints(like->strides, like->ndim),
                     wk__v_size(offset)};
  return wk__call_tensor(WK__OP(as_strided), args);
}

/* Elements from the first to behind the last, those between rows among them. */
static wk_int elements_under(const wk_tensor *t) {
  wk_int reach = wk_int_of(1);
  if (wk_int_eq(t->numel, wk_int_of(0))) return wk_int_of(0);
  for (int d = 0; d < t->ndim; d++)
    reach = wk_int_add(reach, wk_int_mul(wk_int_sub(t->sizes[d], wk_int_of(1)), t->strides[d]));
  return reach;
}

/* Zeros laid out like the base, with the gradient in them. */
static wk_tensor *copy_like_base(const slice_node *n, wk_tensor *grad) {
  wk_value none = {0}, fresh_args[] = {wk__v_tensor(grad), wk__v_ints(n->base->sizes, n->base->ndim), none, none};
  wk_tensor *whole = wk__call_tensor(WK__OP(new_zeros), fresh_args);
  if (whole && !wk__is_contiguous(n->base)) {
    wk_int reach = elements_under(n->base);
    wk_value flat_args[] = {wk__v_tensor(grad), wk__v_ints(&reach, 1), none, none};
    wk_tensor *flat = wk__call_tensor(WK__OP(new_zeros), flat_args);
    whole = flat ? strided(flat, n->base, wk_int_of(0)) : NULL;
  }
  wk_value args[] = {wk__v_tensor(whole), wk__v_tensor(grad), none};
  return whole && wk__call_tensor(WK__OP(copy_), args) ? whole : NULL;
}

/* What f passes on takes the view's place in the gradient; zeros when it passes nothing on. */
static bool put_back_slice(wk_tensor *slice, wk_tensor *passed) {
  wk_value zero_args[] = {wk__v_tensor(slice)};
  wk_tensor *value = passed ? passed : wk__call_tensor(WK__OP(zero), zero_args);
  wk_value args[] = {wk__v_tensor(slice), wk__v_tensor(value), {0}};
  return value && wk__call_tensor(WK__OP(copy_), args);
}

/* In the view's elements: of complex ones a part is half. */
static wk_int offset_of_base(const slice_node *n) {
  bool base = wk_dtype_is_complex((wk_dtype)n->base->dtype), view = wk_dtype_is_complex((wk_dtype)n->view->dtype);
  wk_int two = wk_int_of(2), own = n->base->offset;
  return base == view ? own : base ? wk_int_mul(own, two) : wk_int_floordiv(own, two);
}

/* A copy of the gradient laid out like the base; the view's place in it is replaced by what f passes on.
 * inner_wanted, inner: room for an entry for each input. */
static wk_status run_slice_scoped(slice_node *n, wk_tensor *grad, const bool *wanted, bool create_graph,
                                  bool *inner_wanted, wk_tensor **inner, wk_tensor **out_grads) {
  wk_tensor *whole_grad = copy_like_base(n, grad);
  if (!whole_grad) return wk_error_category();
  wk_tensor *elements = wk__base_as_view(whole_grad, n->view);
  if (!elements) return wk_error_category();
  wk_tensor *slice = strided(elements, n->view, wk_int_sub(n->view->offset, offset_of_base(n)));
  wk_tensor *slice_grad = wk__call_tensor(WK__OP(clone), (wk_value[]){wk__v_tensor(slice), {0}});
  if (!slice_grad) return wk_error_category();
  for (int i = 0; i < n->function->input_count; i++) inner_wanted[i] = i == 0 || wanted[i];
  WK_TRY(n->function->class->run(n->function, &slice_grad, inner_wanted, create_graph, inner));
  bool done = put_back_slice(slice, inner[0]);
  wk__release(inner[0]);
  out_grads[0] = done ? wk__retain(whole_grad) : NULL;
  for (int i = 1; i < n->function->input_count; i++) out_grads[i] = inner[i];
  return done ? WK_OK : wk_error_category();
}

static wk_status run_slice(wk_node *node, wk_tensor *const *grads, const bool *wanted, bool create_graph,
                           wk_tensor **out_grads) {
  slice_node *n = (slice_node *)node;
  size_t inputs = n->function->input_count;
  if (!grads[0]) return WK_OK;
  wk_tensor **inner = wk__alloc_zeroed(inputs * (sizeof *inner + sizeof(bool)));
  if (!inner) return WK_OUT_OF_MEMORY;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = run_slice_scoped(n, grads[0], wanted, create_graph, (bool *)(inner + inputs), inner, out_grads);
  wk_scope_end(&scope);
  wk__free(inner);
  return status;
}
static void release_slice(wk_node *node) {
  slice_node *n = (slice_node *)node;
  if (!n->function->class->release_saved) return;
  n->function->class->release_saved(n->function);
  node->released = n->function->released;
}
static void destroy_slice(wk_node *node) {
  slice_node *n = (slice_node *)node;
  wk__node_release(n->function);
  wk__release(n->base);
  wk__release(n->view);
}
static const wk__node_class slice_class = {
    .suffix = "CopySlices", .run = run_slice, .release_saved = release_slice, .destroy = destroy_slice};

wk_node *wk__sliced_function(const wk_node *node) {
  return node->class == &slice_class ? ((const slice_node *)node)->function : NULL;
}

wk_status wk__rebase_history(wk_tensor *view, wk_node *node) {
  slice_node *n = (slice_node *)wk__node_create(&slice_class, sizeof *n, node->input_count, 1);
  if (!n) return WK_OUT_OF_MEMORY;
  n->function = wk__node_retain(node);
  n->base = wk__tensor_kept_shape(view->base);
  n->view = wk__tensor_kept_shape(view);
  wk_status status = n->base && n->view ? wk__edge_of(view->base, &n->node.edges[0]) : wk_error_category();
  for (int i = 1; i < node->input_count; i++)
    n->node.edges[i] = (wk__edge){wk__node_retain(node->edges[i].node), node->edges[i].input};
  if (status == WK_OK) status = wk__set_history(view->base, &n->node, 0);
  wk__node_release(&n->node);
  if (status == WK_OK && view->autograd)
    view->autograd->view_version = wk__version(view) - 1; /* asked for again later */
  if (status == WK_OK) view->keys |= WK__KEY_AUTOGRAD;
  return status == WK_OK && !wk__autograd_get(view) ? WK_OUT_OF_MEMORY : status;
}
