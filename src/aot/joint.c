/* The joint graph: a captured graph is run again on shapes under a tracer, with the tape as its flags say, then the
 * engine from its results back to its inputs.
 *
 * In: the graph. Out: the tracer's graph with forward and backward part, and what stands for what. Invariants: a call
 * runs under the tape exactly where its flag says so, because nothing may flow through what the program detached; a
 * taped use of an input is a leaf of its own, in the engine's order; nothing is ever computed: the tensors have no
 * memory, and the graph begins with a call that fails, should the tracer try to run it.
 * Tests: tests/c/test_aot.c. */
#include "aot/internal.h"

#include <stdio.h>

/* ==================================================== the tracer ================================================= */

static wk_status make_input(void *context, wk_tensor *tensor, const char **out_name, wk_tensor **out_description) {
  wk__joint *j = context;
  (void)tensor;
  *out_name = j->name;
  if (!j->making_input) return wk_fail(WK_UNSUPPORTED, "a derivative rule uses a tensor that is not of the graph");
  *out_description = wk__retain(j->description);
  return WK_OK;
}
static const wk__source_line *source(void *context, wk__graph *graph) {
  const wk__joint *j = context;
  (void)graph; /* the original lives longer than this one */
  return j->at ? j->at->source : NULL;
}
static void ended(void *context, const char *reason) {
  wk__joint *j = context;
  snprintf(j->ended, sizeof j->ended, "%s", reason);
}

/* A tracer runs its graph when it has to end early, which must not happen here: the graph begins with a call that fails
 * (item() of two elements). */
static wk_status refuse_to_run(wk__joint *j) {
  int64_t one = 1;
  wk_int two = wk_int_of(2);
  wk_tensor *element = wk_tensor_create(WK_FLOAT32, 1, &one), *pair = NULL;
  wk__spec spec;
  if (!element) return wk_error_category();
  memset(wk__host_data(element), 0, sizeof(float));
  wk__spec_contiguous(&spec, WK_FLOAT32, WK__CPU_DEVICE, 1, &two);
  wk__graph_node *constant = wk__graph_constant(j->graph, element, NULL), *call = NULL;
  if (constant) pair = wk__tensor_shape_only(&spec);
  if (pair) {
    wk__graph_arg args[] = {{.tag = WK_VALUE_TENSOR, .node = constant},
                            {.tag = WK_VALUE_INTS, .count = 1, .integers = &two}};
    const wk_tensor *value = pair;
    call = wk__graph_call(j->graph, WK__OP(view), args, &value, 1, "nothing_is_run");
  }
  wk__release(element);
  wk__release(pair);
  return call ? WK_OK : wk_error_category();
}

static wk_status begin_trace(wk__joint *j) {
  wk__trace_owner owner = {.context = j, .input = make_input, .source = source, .ended = ended, .has_numbers = true};
  if (!(j->tracer = wk__tracer_create(&owner))) return WK_OUT_OF_MEMORY;
  j->graph = wk__tracer_graph(j->tracer);
  if (!j->from->env) return WK_OK;
  if (!(j->graph->env = wk__shape_env_copy(j->from->env))) return wk_error_category();
  j->env = wk__tracer_env(j->tracer);
  return j->env ? WK_OK : wk_error_category();
}

/* ================================================ tensors without memory ========================================= */

static wk_int translate(const wk__joint *j, wk_int x) { return j->env ? wk__sym_translate(x, j->env) : x; }

/* spec: in the joint graph's symbols. The storage claims to be very large, because views of an input may reach beyond
 * the input. */
static wk_tensor *tensor_without_memory(const wk__spec *symbolic) {
  wk__spec spec = *symbolic;
  wk__spec_make_known(&spec);
  wk_storage *storage = wk__storage_from_memory(NULL, INT64_MAX / 16, NULL, NULL);
  if (!storage) return NULL;
  storage->device = spec.device;
  return wk__tensor_over(storage, &spec);
}

/* A tensor that is an input of the joint graph. */
static wk_status add_input(wk__joint *j, const wk__spec *spec, const char *name, wk_tensor **out_tensor,
                           wk__graph_node **out_node) {
  WK__OWNED description = wk__tensor_shape_only(spec);
  *out_tensor = description ? tensor_without_memory(spec) : NULL;
  if (!*out_tensor) return wk_error_category();
  j->description = description;
  j->name = name;
  j->making_input = true;
  *out_node = wk__tracer_node(j->tracer, *out_tensor);
  j->making_input = false;
  j->description = NULL;
  return *out_node ? WK_OK : wk_error_category();
}

static void spec_of_node(const wk__joint *j, const wk__graph_node *node, wk__spec *spec) {
  wk__spec_of(spec, node->value);
  spec->offset = translate(j, spec->offset);
  for (int d = 0; d < spec->ndim; d++) {
    spec->sizes[d] = translate(j, spec->sizes[d]);
    spec->strides[d] = translate(j, spec->strides[d]);
  }
}

/* ===================================================== values ==================================================== */

static wk_tensor **place_of(const wk__joint *j, const wk__graph_node *node) {
  if (node->kind != WK__GRAPH_ITEM) return &j->values[node->number];
  return &j->values[j->first_item[node->args[0].node->number] + node->index];
}
wk_tensor *wk__joint_value(const wk__joint *j, const wk__graph_node *node) { return *place_of(j, node); }

wk__graph_node *wk__joint_node(wk__joint *j, const wk__graph_node *node) {
  wk_tensor *value = wk__joint_value(j, node);
  if (value) return wk__tracer_node(j->tracer, value);
  (void)wk_fail(WK_INTERNAL_ERROR, "graph node %%%s has no value in the joint graph", node->name);
  return NULL;
}

static wk_status make_places(wk__joint *j) {
  int64_t count = j->from->node_count;
  j->first_item = wk__arena_alloc(&j->arena, (size_t)(count + 1) * sizeof *j->first_item);
  if (!j->first_item) return WK_OUT_OF_MEMORY;
  for (const wk__graph_node *n = j->from->first; n; n = n->next) {
    j->first_item[n->number] = (int32_t)count;
    count += n->item_count;
  }
  j->values = wk__arena_alloc(&j->arena, (size_t)(count + 1) * sizeof *j->values);
  if (!j->values) return WK_OUT_OF_MEMORY;
  j->value_count = count;
  return WK_OK;
}

static wk_status make_leaves(wk__joint *j) {
  for (int64_t i = 0; i < j->from->input_count; i++) {
    wk__spec spec;
    wk__graph_node *node;
    spec_of_node(j, j->from->inputs[i], &spec);
    WK_TRY(add_input(j, &spec, j->from->inputs[i]->name, place_of(j, j->from->inputs[i]), &node));
  }
  for (const wk__graph_node *n = j->from->first; n; n = n->next) {
    if (n->kind != WK__GRAPH_CONSTANT) continue;
    if (n->constant->keys & WK__KEY_AUTOGRAD) return wk_fail(WK_UNSUPPORTED, "a constant requires grad");
    WK_TRY(wk__tracer_constant(j->tracer, n->constant));
    *place_of(j, n) = wk__retain(n->constant);
  }
  return refuse_to_run(j);
}

/* =================================================== arguments =================================================== */

static bool is_taped(const wk__graph_node *n) { return n->flags & WK__GRAPH_TAPED; }

/* A leaf that has the input's value, for one use of it. */
static wk_status add_use(wk__joint *j, const wk__graph_node *input, const wk__graph_node *consumer, wk_tensor **out) {
  WK_TRY(wk__grow(&j->uses, &j->use_capacity, j->use_count + 1, sizeof *j->uses));
  wk__joint_use *use = &j->uses[j->use_count++];
  *use = (wk__joint_use){.input = input->index, .consumer = consumer->number};
  wk__spec spec;
  spec_of_node(j, input, &spec);
  WK_TRY(add_input(j, &spec, "use", &use->leaf, &use->leaf_node));
  *out = use->leaf;
  return wk_set_requires_grad(use->leaf, true);
}

static wk_status tensor_argument(wk__joint *j, const wk__graph_node *call, const wk__graph_node *node,
                                 wk_tensor **out) {
  bool use = is_taped(call) && node->kind == WK__GRAPH_INPUT && j->requires_grad[node->index];
  if (use) return add_use(j, node, call, out);
  *out = wk__joint_value(j, node);
  return *out ? WK_OK : wk_fail(WK_INTERNAL_ERROR, "graph node %%%s has no value in the joint graph", node->name);
}

static wk_status list_argument(wk__joint *j, const wk__graph_node *call, const wk__graph_arg *arg, wk_value *out) {
  wk_tensor **tensors = wk__arena_alloc(&j->arena, (arg->count + 1) * sizeof *tensors);
  if (!tensors) return WK_OUT_OF_MEMORY;
  for (uint32_t k = 0; k < arg->count; k++)
    if (arg->nodes[k]) WK_TRY(tensor_argument(j, call, arg->nodes[k], &tensors[k]));
  out->tensors = tensors;
  return WK_OK;
}

static wk_status integers_argument(wk__joint *j, const wk__graph_arg *arg, wk_value *out) {
  wk_int *integers = wk__arena_alloc(&j->arena, (arg->count + 1) * sizeof *integers);
  if (!integers) return WK_OUT_OF_MEMORY;
  for (uint32_t k = 0; k < arg->count; k++) {
    integers[k] = translate(j, arg->integers[k]);
    WK_TRY(wk_int_check(integers[k]));
  }
  out->integers = integers;
  return WK_OK;
}

/* A number input stays one on the way through rules and into the graph; computed with, it does not. */
static wk_status plain_argument(const wk__joint *j, const wk__graph_arg *arg, wk_value *out) {
  if (arg->tag == WK_VALUE_INPUT && j->other_numbers) out->number = arg->number * 1.25 + 0.3125;
  if (arg->tag != WK_VALUE_INT) return WK_OK;
  out->integer = translate(j, arg->integer);
  return wk_int_check(out->integer);
}

/* Tensors before lists, as the edges of a tape node are. */
static wk_status make_arguments(wk__joint *j, const wk__graph_node *call, wk_value *args) {
  int count = call->op->schema.parameter_count;
  for (int i = 0; i < count; i++) {
    const wk__graph_arg *arg = &call->args[i];
    args[i] = arg->value;
    if (arg->tag == WK_VALUE_TENSOR)
      WK_TRY(tensor_argument(j, call, arg->node, &args[i].tensor));
    else if (arg->tag == WK_VALUE_INTS)
      WK_TRY(integers_argument(j, arg, &args[i]));
    else if (arg->tag != WK_VALUE_TENSORS)
      WK_TRY(plain_argument(j, arg, &args[i]));
  }
  for (int i = 0; i < count; i++)
    if (call->args[i].tag == WK_VALUE_TENSORS) WK_TRY(list_argument(j, call, &call->args[i], &args[i]));
  return WK_OK;
}

/* ===================================================== calls ===================================================== */

static wk_status no_value(const wk__graph_node *call) {
  return wk_fail(WK_INTERNAL_ERROR, "graph node %%%s has another number of values in the joint graph", call->name);
}

static wk_status keep_list(wk__joint *j, const wk__graph_node *call, wk_value *list) {
  if (list->tag != WK_VALUE_TENSORS || list->count != call->item_count) return no_value(call);
  for (int k = 0; k < call->item_count; k++) j->values[j->first_item[call->number] + k] = wk__retain(list->tensors[k]);
  return WK_OK;
}

static wk_status keep_results(wk__joint *j, const wk__graph_node *call, wk_value *results) {
  if (call->op->schema.result_is_list) return keep_list(j, call, &results[0]);
  if (call->value) {
    *place_of(j, call) = wk__retain(results[0].tensor);
    return results[0].tensor ? WK_OK : no_value(call);
  }
  if (call->item_count > call->op->schema.result_count) return no_value(call);
  for (int k = 0; k < call->item_count; k++) j->values[j->first_item[call->number] + k] = wk__retain(results[k].tensor);
  return WK_OK;
}

static wk_status run_functional(wk__joint *j, const wk__graph_node *call, const wk_value *args) {
  wk_value results[WK__MAX_RESULTS] = {{0}};
  WK_TRY(wk_call(call->op, args, NULL, results));
  wk_status status = keep_results(j, call, results);
  for (int r = 0; r < call->op->schema.result_count; r++) wk_value_release(&results[r]);
  return status;
}

/* Made by a call that made new memory, and used by this call only. */
static bool is_for_this_call(const wk__graph_node *node) {
  return node->kind == WK__GRAPH_CALL && node->use_count == 1 && node->value && !node->op->view && !is_taped(node) &&
         !node->op->compose;
}

/* What is written is copied before, so that everybody else sees the old value; the copy is the new value. */
static wk_status write_to(wk__joint *j, const wk__graph_node *call, const wk__graph_node *node, int index,
                          wk_tensor **use) {
  wk_value copy = {0}, args[] = {wk__v_tensor(*use), {0}};
  if (!is_taped(call) && is_for_this_call(node))
    copy = wk__v_tensor(wk__retain(*use));
  else
    WK_TRY(wk_call(WK__OP(clone), args, NULL, &copy));
  *use = copy.tensor;
  *(call->value ? place_of(j, call) : &j->values[j->first_item[call->number] + index]) = copy.tensor;
  return WK_OK;
}

static wk_status run_mutating(wk__joint *j, const wk__graph_node *call, wk_value *args) {
  int index = 0;
  for (int i = 0; i < call->op->schema.parameter_count; i++) {
    const wk__graph_arg *arg = &call->args[i];
    if (!wk__graph_is_written(call->op, i)) continue;
    if (arg->tag == WK_VALUE_TENSOR) WK_TRY(write_to(j, call, arg->node, index++, &args[i].tensor));
    for (uint32_t k = 0; arg->tag == WK_VALUE_TENSORS && k < arg->count; k++, index++)
      if (args[i].tensors[k]) WK_TRY(write_to(j, call, arg->nodes[k], index, &args[i].tensors[k]));
  }
  wk_value results[WK__MAX_RESULTS] = {{0}};
  WK_TRY(wk_call(call->op, args, NULL, results));
  for (int r = 0; r < call->op->schema.result_count; r++) wk_value_release(&results[r]);
  return WK_OK;
}

static wk_status run_call(wk__joint *j, const wk__graph_node *call) {
  wk_value args[WK__MAX_ARGS];
  j->at = call;
  wk_set_grad_enabled(is_taped(call));
  WK_TRY(make_arguments(j, call, args));
  return call->op->tags & WK__TAG_MUTATES ? run_mutating(j, call, args) : run_functional(j, call, args);
}

static wk_status run_forward(wk__joint *j) {
  for (const wk__graph_node *n = j->from->first; n; n = n->next)
    if (n->kind == WK__GRAPH_CALL) WK_TRY(run_call(j, n));
  j->at = NULL;
  return WK_OK;
}

/* =============================================== what the program gets ========================================== */

static bool is_written(const wk__joint *j, const wk__graph_node *node) {
  return node->kind == WK__GRAPH_INPUT && j->written[node->index];
}

static bool is_taped_view(const wk__graph_node *n) {
  if (n->kind == WK__GRAPH_ITEM) return is_taped(n->args[0].node) && n->args[0].node->op->tags & WK__TAG_VIEW;
  return wk__is_view_call(n) && is_taped(n) && n->op != WK__OP(detach); /* which drops the history of its base */
}
static const wk__graph_node *looked_at(const wk__graph_node *view) {
  const wk__graph_node *call = view->kind == WK__GRAPH_ITEM ? view->args[0].node : view;
  return call->args[0].node;
}

/* What an output is a view of, made under the tape; NULL: nothing. */
static const wk__graph_node *base_of(const wk__joint *j, const wk__graph_node *output) {
  const wk__graph_node *root = output;
  while (is_taped_view(root)) root = looked_at(root);
  return root == output || root->kind == WK__GRAPH_CONSTANT || is_written(j, root) ? NULL : root;
}

static int32_t add_seen(wk__joint *j, const wk__graph_node *node, bool hidden) {
  int64_t i = 0;
  while (i < j->seen_count && j->seen[i] != node) i++;
  j->hidden[i] = hidden && (i == j->seen_count || j->hidden[i]);
  if (i < j->seen_count) return (int32_t)i;
  j->seen[i] = node;
  j->bases[i].origin = WK__AOT_FROM_NOTHING;
  return (int32_t)j->seen_count++;
}

static void place_outputs(wk__joint *j) {
  for (int64_t i = 0; i < j->from->output_count; i++) {
    const wk__graph_node *node = j->from->outputs[i], *base = base_of(j, node);
    if (node->kind == WK__GRAPH_INPUT && !is_written(j, node)) {
      j->outputs[i] = (wk__aot_output){WK__AOT_FROM_INPUT, node->index};
      continue;
    }
    int32_t seen = add_seen(j, node, false);
    j->outputs[i] = (wk__aot_output){WK__AOT_FROM_FORWARD, seen};
    if (base && base->kind == WK__GRAPH_INPUT)
      j->bases[seen] = (wk__aot_output){WK__AOT_FROM_INPUT, base->index};
    else if (base)
      j->bases[seen] = (wk__aot_output){WK__AOT_FROM_FORWARD, add_seen(j, base, true)};
  }
}

static wk_status find_results(wk__joint *j) {
  for (int64_t i = 0; i < j->seen_count; i++) {
    wk_tensor *value = wk__joint_value(j, j->seen[i]);
    if (!value) return wk_fail(WK_INTERNAL_ERROR, "an output has no value in the joint graph");
    if (!(j->seen_nodes[i] = wk__joint_node(j, j->seen[i]))) return wk_error_category();
    if (j->seen[i]->kind == WK__GRAPH_CALL || j->seen[i]->kind == WK__GRAPH_ITEM) {
      if (!wk_requires_grad(value)) continue;
      j->roots[j->result_count] = value;
      j->results[j->result_count++] = (wk__aot_result){(int32_t)i, -1, j->hidden[i]};
    }
  }
  for (int64_t i = 0; i < j->from->mutation_count; i++) {
    const wk__graph_mutation *m = &j->from->mutations[i];
    const wk__graph_node *maker = m->node->kind == WK__GRAPH_ITEM ? m->node->args[0].node : m->node;
    if (!j->written[m->input] || maker->kind != WK__GRAPH_CALL) continue;
    wk_tensor *value = wk__joint_value(j, m->node);
    if (!value || !wk_requires_grad(value)) {
      if (is_taped(maker) && j->requires_grad[m->input])
        return wk_fail(WK_UNSUPPORTED, "an input that requires grad is written with something that does not");
      continue;
    }
    j->roots[j->result_count] = value;
    j->results[j->result_count++] = (wk__aot_result){-1, m->input, false};
  }
  return WK_OK;
}

static wk_status note_written(wk__joint *j) {
  for (int64_t i = 0; i < j->from->mutation_count; i++) {
    const wk__graph_mutation *m = &j->from->mutations[i];
    if (m->node == j->from->inputs[m->input]) continue; /* it keeps its value */
    if (!(j->written[m->input] = wk__joint_node(j, m->node))) return wk_error_category();
  }
  return WK_OK;
}

static wk_status find_ends(wk__joint *j) {
  size_t outputs = (size_t)j->from->output_count, seen = 2 * outputs + 1;
  size_t ends = seen + (size_t)j->from->mutation_count;
  j->written = wk__arena_alloc(&j->arena, (size_t)(j->from->input_count + 1) * sizeof *j->written);
  j->outputs = wk__arena_alloc(&j->arena, (outputs + 1) * sizeof *j->outputs);
  j->seen = wk__arena_alloc(&j->arena, seen * sizeof *j->seen);
  j->seen_nodes = wk__arena_alloc(&j->arena, seen * sizeof *j->seen_nodes);
  j->bases = wk__arena_alloc(&j->arena, seen * sizeof *j->bases);
  j->hidden = wk__arena_alloc(&j->arena, seen);
  j->results = wk__arena_alloc(&j->arena, ends * sizeof *j->results);
  j->roots = wk__arena_alloc(&j->arena, ends * sizeof *j->roots);
  j->tangents = wk__arena_alloc(&j->arena, ends * sizeof *j->tangents);
  j->tangent_nodes = wk__arena_alloc(&j->arena, ends * sizeof *j->tangent_nodes);
  if (!j->written || !j->outputs || !j->seen || !j->seen_nodes || !j->bases || !j->hidden || !j->results || !j->roots ||
      !j->tangents || !j->tangent_nodes)
    return WK_OUT_OF_MEMORY;
  WK_TRY(note_written(j));
  place_outputs(j);
  WK_TRY(find_results(j));
  return j->result_count ? WK_OK : wk_fail(WK_UNSUPPORTED, "no output requires grad");
}

/* ================================================== the backward part ============================================ */

static wk_status make_tangents(wk__joint *j) {
  for (int64_t r = 0; r < j->result_count; r++) {
    const wk_tensor *root = j->roots[r];
    wk__spec spec;
    wk__spec_contiguous(&spec, (wk_dtype)root->dtype, root->device, root->ndim, root->sizes);
    if (j->layouts && j->layouts[r].given) wk__aot_layout_apply(&j->layouts[r], &spec);
    WK_TRY(add_input(j, &spec, "tangent", &j->tangents[r], &j->tangent_nodes[r]));
  }
  return WK_OK;
}

/* Later calls send their gradients first; those of one call go in the order of its edges. */
static void order_uses(wk__joint *j, wk__joint_use *space) {
  int64_t end = j->use_count, at = 0;
  while (end > 0) {
    int64_t begin = end;
    while (begin > 0 && j->uses[begin - 1].consumer == j->uses[end - 1].consumer) begin--;
    for (int64_t i = begin; i < end; i++) space[at++] = j->uses[i];
    end = begin;
  }
  memcpy(j->uses, space, (size_t)j->use_count * sizeof *space);
}

/* A rule may give an argument of the call as it is. */
static wk_status note_gradient(wk__joint *j, wk__joint_use *use) {
  if (!use->grad) return WK_OK;
  use->grad_node = wk__tracer_node(j->tracer, use->grad);
  if (!use->grad_node) return wk_error_category();
  for (int64_t i = 0; use->grad_node->kind == WK__GRAPH_INPUT && i < j->use_count; i++)
    if (j->uses[i].leaf_node == use->grad_node) use->grad_node = j->graph->inputs[j->uses[i].input];
  return WK_OK;
}

static wk_status run_backward(wk__joint *j, const bool *defined) {
  size_t uses = (size_t)j->use_count, results = (size_t)j->result_count;
  wk_tensor **lists = wk__arena_alloc(&j->arena, (2 * uses + 2 * results + 1) * sizeof *lists);
  wk__joint_use *space = wk__arena_alloc(&j->arena, (uses + 1) * sizeof *space);
  if (!lists || !space) return WK_OUT_OF_MEMORY;
  order_uses(j, space);
  wk_tensor **grads = lists, **leaves = lists + uses, **roots = leaves + uses, **tangents = roots + results;
  wk__backward request = {.tensors = roots,
                          .grads = tangents,
                          .inputs = leaves,
                          .input_count = (int)uses,
                          .allow_unused = true,
                          .out_grads = grads};
  for (size_t i = 0; i < uses; i++) leaves[i] = j->uses[i].leaf;
  for (size_t r = 0; r < results; r++) {
    if (defined && !defined[r]) continue;
    roots[request.count] = j->roots[r];
    tangents[request.count++] = j->tangents[r];
  }
  wk_status status = wk__run_backward(&request);
  for (size_t i = 0; i < uses; i++) j->uses[i].grad = grads[i];
  for (size_t i = 0; i < uses && status == WK_OK; i++) status = note_gradient(j, &j->uses[i]);
  return status;
}

/* What used a leaf uses the input that it stands for. */
static wk_status use_inputs(wk__joint *j) {
  size_t count = (size_t)j->graph->input_count + 1;
  wk__graph_node **stands_for = wk__arena_alloc(&j->arena, count * sizeof *stands_for); /* by input */
  if (!stands_for) return WK_OUT_OF_MEMORY;
  for (int64_t i = 0; i < j->use_count; i++)
    stands_for[j->uses[i].leaf_node->index] = j->graph->inputs[j->uses[i].input];
  for (wk__graph_node *n = j->graph->first; n; n = n->next) {
    wk__arg_cursor cursor = {0};
    for (wk__graph_node **use; (use = wk__graph_next_arg(n, &cursor));) {
      wk__graph_node *input = (*use)->kind == WK__GRAPH_INPUT ? stands_for[(*use)->index] : NULL;
      if (input) WK_TRY(wk__graph_replace_arg(j->graph, n, *use, input));
    }
  }
  return WK_OK;
}

/* The forward part is numbered alike whatever gradients are given: inputs are, and constants that rules make come
 * behind those of the program; numbers are therefore counted from the first call. */
static wk_status number_nodes(wk__joint *j, const wk__graph_node *last) {
  WK_TRY(use_inputs(j));
  wk__graph_number(j->graph);
  j->leaf_count = (uint32_t)(j->graph->input_count + j->graph->constant_count);
  j->last_forward = last->number;
  j->nodes = wk__arena_alloc(&j->arena, (size_t)(j->graph->node_count + 1) * sizeof *j->nodes);
  if (!j->nodes) return WK_OUT_OF_MEMORY;
  for (wk__graph_node *n = j->graph->first; n; n = n->next) j->nodes[n->number] = n;
  return WK_OK;
}

static wk_status trace(wk__joint *j, const bool *defined) {
  WK_TRY(make_places(j));
  WK_TRY(begin_trace(j));
  wk__tracer_resume(j->tracer);
  WK_TRY(make_leaves(j));
  WK_TRY(run_forward(j));
  WK_TRY(find_ends(j));
  const wk__graph_node *last = j->graph->last; /* at least the call that fails */
  WK_TRY(make_tangents(j));
  WK_TRY(run_backward(j, defined));
  return number_nodes(j, last);
}

/* ===================================================== lifetime ================================================== */

wk_status wk__joint_trace(wk__joint *j, const bool *defined) {
  if (wk__saver_active()) return wk_fail(WK_UNSUPPORTED, "saved tensors are packed");
  wk__thread_mode before = wk__thread.mode;
  wk__tracer *outer = wk__tracer_current();
  wk__thread.mode.keys_on = wk__thread.mode.keys_off = 0;
  wk__thread.mode.inference = false;
  wk__thread.mode.tape_sequence = wk__thread.mode.running_sequence = 0;
  wk__thread.mode.grad_watcher = NULL;
  wk_status status = trace(j, defined);
  if (outer)
    wk__tracer_resume(outer);
  else if (j->tracer)
    wk__tracer_pause(j->tracer);
  wk__thread.mode = before;
  if (status != WK_OK && j->ended[0]) return wk_fail(WK_UNSUPPORTED, "%s", j->ended);
  return status;
}

static void release_tensors(wk__joint *j) {
  for (int64_t i = 0; i < j->use_count; i++) {
    wk__release(j->uses[i].leaf);
    wk__release(j->uses[i].grad);
  }
  for (int64_t i = 0; j->values && i < j->value_count; i++) wk__release(j->values[i]);
  for (int64_t r = 0; r < j->result_count && j->tangents; r++) wk__release(j->tangents[r]);
}

/* A tracer that is released runs recorded random operators; there are none left here. */
static void empty_graph(wk__graph *graph) {
  for (wk__graph_node *n = graph->last, *previous; n; n = previous) {
    previous = n->previous;
    if (n->kind != WK__GRAPH_INPUT) wk__graph_erase(graph, n);
  }
}

/* The error that there is stays as it is. */
void wk__joint_release(wk__joint *j) {
  char text[1024];
  wk_status category = wk_error_category();
  snprintf(text, sizeof text, "%s", category ? wk_error_message() : "");
  release_tensors(j);
  if (j->tracer) empty_graph(wk__tracer_graph(j->tracer));
  wk__tracer_release(j->tracer);
  wk__arena_release(&j->arena);
  wk__free(j->uses);
  if (category)
    (void)wk_fail(category, "%s", text);
  else
    wk_error_clear();
  *j = (wk__joint){0};
}
