/* Writing a group as one nest, and the call that launches it.
 *
 * In: regions over common loops, in the graph's order. Out: a fused operator, a node that calls it, and its results in
 * place of the nodes'. A load of what another region of the group stores becomes that value; stores that nothing
 * outside wants go, and with them whatever only they needed. Tests: tests/c/test_compile.c. */
#include "compile/fuse/emit.h"

#include <stdio.h>

/* -1: not among them. */
static int result_of(const wk__emitter *e, wk__memory memory) {
  for (int r = 0; r < e->output_count; r++)
    if (e->outputs[r] == memory) return r;
  return -1;
}

/* The product's result is read from where it lies, and so are drawn values that are kept. */
static int tensor_of_buffer(wk__emitter *e, int b) {
  wk__memory memory = e->places[b].memory;
  if (e->written[b]) return memory == e->group->made ? WK__FUSED_MADE : -1 - result_of(e, memory);
  if (memory == e->group->draw) return result_of(e, memory) < 0 ? WK__FUSED_DRAWN : -1 - result_of(e, memory);
  return memory == e->group->whole ? -1 - result_of(e, e->group->home) : wk__emit_input(e, memory);
}

/* The product's result is the one there is. */
static void describe_made(wk__emitter *e, wk__fused_made *out) {
  const wk__group *g = e->group;
  const wk_tensor *t = g->product->args[g->made_operand].node->value;
  *out = (wk__fused_made){t->ndim, (uint8_t)g->made_operand, g->made_transposed, (int32_t)e->number_count};
  for (int d = 0; d < t->ndim; d++) wk__emit_add_number(e, t->sizes[d]);
  e->outputs[0] = g->whole;
}

static void describe_product(wk__emitter *e, wk__fused *f) {
  const wk__group *g = e->group;
  const wk__graph_node *node = g->product;
  wk__fused_product *p = &f->product;
  *p = (wk__fused_product){.op = node->op, .result = (int16_t)(g->made ? 0 : result_of(e, g->home))};
  if (g->made) describe_made(e, &p->made);
  for (int i = 0; i < WK__PRODUCT_ARGS; i++) {
    const wk__graph_arg *a = i < node->op->schema.parameter_count ? &node->args[i] : NULL;
    bool given = a && a->tag == WK_VALUE_TENSOR && !(g->made && i == g->made_operand);
    p->args[i] = (int16_t)(given ? wk__emit_input(e, a->node) : -1);
    if (a && a->tag == WK_VALUE_BOOL) p->constants[i] = (wk_value){.tag = WK_VALUE_BOOL, .boolean = a->boolean};
    if (a && a->tag == WK_VALUE_DOUBLE) p->constants[i] = wk__v_double(a->number);
    if (a && wk__graph_arg_integers(a).count && !e->h->status)
      e->h->status = wk__value_copy(&p->constants[i], &a->value, wk__value_on_heap, NULL);
  }
}

static void describe_draw(wk__emitter *e, wk__fused *f) {
  const wk__graph_node *node = e->group->draw;
  if (e->float_count == WK__FUSED_NUMBERS) {
    e->h->status = unsupported();
    return;
  }
  f->op.tags |= WK__TAG_RANDOM;
  f->draw = (wk__fused_draw){node->op, (int16_t)e->float_count, (int16_t)result_of(e, node)};
  e->floats[e->float_count++] = node->args[2];
}

static void describe_buffer(wk__emitter *e, wk__fused *f, int b) {
  const wk__place *p = &e->places[b];
  wk__fused_buffer *out = &f->form.buffers[b];
  out->input = (int16_t)tensor_of_buffer(e, b);
  out->offset = wk__emit_add_number(e, p->offset);
  out->sizes = e->geometry_free ? -1 : (int32_t)e->number_count;
  for (int l = 0; l < e->loop_count && !e->geometry_free; l++)
    if (uses_loop(e, p, l)) wk__emit_add_number(e, e->loops[l].size);
  for (int k = 0; k < p->indirect_count; k++) wk__emit_add_number(e, p->indirect[k].size);
  for (int k = 0; k < p->bound_count; k++) wk__emit_add_number(e, p->bounds[k].size);
  out->strides = (int32_t)e->number_count;
  for (int l = 0; l < e->loop_count; l++)
    if (uses_loop(e, p, l)) wk__emit_add_number(e, p->stride[l]);
  for (int k = 0; k < p->indirect_count; k++) wk__emit_add_number(e, p->indirect[k].stride);
  for (int k = 0; k < p->bound_count; k++) wk__emit_add_number(e, p->bounds[k].stride);
  if (e->geometry_free && e->loop_count == 0) wk__emit_add_number(e, wk_int_of(0));
}

static void describe_output(wk__emitter *e, wk__fused *f, int r) {
  const wk_tensor *t = e->outputs[r]->value;
  wk__fused_output *out = &f->outputs[r];
  *out = (wk__fused_output){.dtype = t->dtype, .ndim = t->ndim, .sizes = (int32_t)e->number_count};
  for (int d = 0; d < t->ndim; d++) wk__emit_add_number(e, t->sizes[d]);
  out->strides = (int32_t)e->number_count;
  for (int d = 0; d < t->ndim; d++) wk__emit_add_number(e, t->strides[d]);
}

/* An input of the result's layout is read where the result is written, so it may be that one memory. */
static bool may_write_input(const wk__emitter *e) {
  const wk__place *out = NULL;
  if (!e->geometry_free || e->output_count != 1) return false;
  for (int b = 0; b < e->nest->buffer_count; b++)
    if (e->written[b]) out = &e->places[b];
  for (int b = 0; b < e->nest->buffer_count; b++) {
    const wk__place *p = &e->places[b];
    bool whole = wk_int_same(p->memory->value->numel, out->memory->value->numel);
    if (whole && (!same_strides(p, out, e->loop_count) || !wk_int_same(p->offset, out->offset))) return false;
  }
  return true;
}

static wk_status describe(wk__emitter *e, wk__fused *f) {
  e->memory_count = e->input_count;
  f->buffer_count = e->nest->buffer_count;
  f->param_count = e->param_count;
  f->index_op = e->index_op;
  memcpy(f->params, e->params, sizeof f->params);
  f->form.loop_sizes = -1;
  if (e->group->product)
    describe_product(e, f);
  else if (may_write_input(e))
    f->op.tags |= WK__TAG_POINTWISE;
  if (e->reads_draw) describe_draw(e, f);
  if (e->geometry_free) {
    f->form.ndim = wk__max(e->loop_count, 1);
    f->form.loop_sizes = (int32_t)e->number_count;
    for (int l = 0; l < e->loop_count; l++) wk__emit_add_number(e, e->loops[l].size);
    if (e->loop_count == 0) wk__emit_add_number(e, wk_int_of(1));
  }
  for (int b = 0; b < f->buffer_count; b++) describe_buffer(e, f, b);
  for (int r = 0; r < e->output_count; r++) describe_output(e, f, r);
  return e->h->status;
}

/* "native_layer_norm_gelu": what it computes, as far as a name may go. */
static void name_node(const wk__group *g, char *out, size_t size) {
  int at = snprintf(out, size, "fused");
  const char *last = "";
  if (g->product && !g->made) at += snprintf(out + at, size - (size_t)at, "_%.24s", g->product->op->base_name);
  if (g->draw) at += snprintf(out + at, size - (size_t)at, "%.24s", g->draw->op->base_name); /* begins with _ */
  for (int r = 0; r < g->region_count && at < (int)size - 28; r++) {
    const char *name = g->regions[r]->node->op->base_name;
    if (strcmp(name, last)) at += snprintf(out + at, size - (size_t)at, "%s%.24s", *name == '_' ? "" : "_", name);
    last = name;
  }
  if (g->made && at < (int)size - 28) snprintf(out + at, size - (size_t)at, "_%.24s", g->product->op->base_name);
}

static void append_origin(wk__string *text, const wk__graph_node *n) {
  wk__string_printf(text, "%%%s = %s", n->name, n->op->name);
  if (n->source) wk__string_printf(text, "  %s:%d in %s", n->source->file, n->source->line, n->source->function);
  wk__string_append(text, "\n");
}

static void append_stack(wk__string *text, const wk__graph_node *n) {
  wk__source_line_print(text, n->source);
  wk__string_append(text, "\n");
}

/* A line for each node that the group stands for. */
static char *text_of(const wk__group *g, void (*append)(wk__string *text, const wk__graph_node *n)) {
  wk__string text = {0};
  if (g->product && !g->made) append(&text, g->product);
  if (g->draw) append(&text, g->draw);
  for (int r = 0; r < g->region_count; r++) append(&text, g->regions[r]->node);
  if (g->made) append(&text, g->product);
  return wk__string_take(&text);
}

/* Results stand for the nodes, see `now`. */
static wk_status call_kernel(wk__emitter *e, wk__fused *f, wk__graph_node **out_node) {
  const wk_tensor *values[MAX_PLACES];
  wk__graph_arg args[2 + WK__FUSED_NUMBERS];
  char name[96];
  name_node(e->group, name, sizeof name);
  memset(args, 0, sizeof args);
  for (int i = 0; i < e->memory_count; i++) e->inputs[i] = e->now[e->inputs[i]->number];
  args[0] = (wk__graph_arg){.tag = WK_VALUE_TENSORS, .count = (uint32_t)e->input_count, .nodes = e->inputs};
  args[1] = (wk__graph_arg){.tag = WK_VALUE_INTS, .count = (uint32_t)e->number_count, .integers = e->numbers};
  for (int i = 0; i < WK__FUSED_NUMBERS; i++)
    args[2 + i] = i < e->float_count ? e->floats[i] : (wk__graph_arg){.tag = WK_VALUE_DOUBLE, .number = 0};
  for (int r = 0; r < e->output_count; r++) values[r] = e->outputs[r]->value;
  if (e->reads_draw) wk__graph_set_insert_point(e->graph, (wk__graph_node *)e->group->draw); /* in the same order */
  wk__graph_node *node = wk__graph_call(e->graph, &f->op, args, values, e->output_count, name);
  wk__graph_set_insert_point(e->graph, NULL);
  if (!node) return wk_error_category();
  node->source = e->outputs[0]->kind == WK__GRAPH_ITEM ? e->outputs[0]->args[0].node->source : e->outputs[0]->source;
  for (int r = 0; r < e->output_count; r++) {
    wk__graph_node *by = e->output_count == 1 ? node : wk__graph_item(e->graph, node, r);
    if (!by) return wk_error_category();
    e->now[e->outputs[r]->number] = by;
  }
  *out_node = node;
  return WK_OK;
}

static wk_status make_kernel(wk__emitter *e, wk__kernels *kernels, wk__shape_env *env, wk__graph_node **out_node) {
  wk__fused *f = wk__kernels_add(kernels, NULL, e->output_count);
  if (f) f->device = wk__group_place(e->group);
  wk_status status = f ? describe(e, f) : WK_OUT_OF_MEMORY;
  if (status == WK_OK && !(f->origin = text_of(e->group, append_origin))) status = wk_error_category();
  if (status == WK_OK && !(f->stacks = text_of(e->group, append_stack))) status = wk_error_category();
#ifdef WICK_DEBUG
  if (status == WK_OK) status = wk__nest_verify(e->nest);
#endif
  if (status != WK_OK) {
    wk__nest_release(e->nest);
    wk__shape_env_release(env);
    return status;
  }
  f->kernel = wk__kernel_get(e->nest, env, f, e->numbers, e->number_count, kernels->limits.native != WK__UNLIMITED);
  return f->kernel ? call_kernel(e, f, out_node) : wk_error_category();
}

/* Expressions over loops and buffer sizes belong to an environment that the kernel keeps. */
static wk_status write_nest(wk__emitter *e, wk__shape_env *env) {
  wk__shape_env *outer = wk__shape_env_set_current(env);
  wk__recorder_init(&e->recorder, e->nest);
  e->h = &e->recorder.handler;
  wk_status status = wk__emit_body(e);
  wk__shape_env_set_current(outer);
  return status;
}

static wk_status emit_with(wk__emitter *e, wk__kernels *kernels, wk__graph_node **out_node) {
  wk__emit_needs(e);
  wk__emit_merge_loops(e);
  e->geometry_free = wk__emit_is_free_of_geometry(e);
  wk__shape_env *env = wk__shape_env_create();
  e->nest = wk__nest_create();
  wk_status status = env && e->nest ? write_nest(e, env) : WK_OUT_OF_MEMORY;
  if (status == WK_OK && e->output_count) return make_kernel(e, kernels, env, out_node);
  wk__nest_release(e->nest);
  wk__shape_env_release(env);
  return status;
}

wk_status wk__emit_group(wk__graph *graph, const wk__group *group, wk__is_wanted_fn *is_wanted, void *context,
                         wk__kernels *kernels, wk__graph_node **now, wk__graph_node **out_node) {
  *out_node = NULL;
  size_t cells = 0;
  for (int r = 0; r < group->region_count; r++) cells += (size_t)group->regions[r]->instr_count + 1;
  wk__emitter *e = wk__alloc_zeroed(sizeof *e);
  wk__emit_cell **rows = wk__alloc_zeroed((size_t)group->region_count * sizeof *rows + cells * sizeof(wk__emit_cell));
  wk_status status = e && rows ? WK_OK : WK_OUT_OF_MEMORY;
  if (status == WK_OK) {
    wk__emit_cell *next = (wk__emit_cell *)(rows + group->region_count);
    for (int r = 0; r < group->region_count; r++) {
      rows[r] = next;
      next += group->regions[r]->instr_count + 1;
    }
    *e = (wk__emitter){
        .group = group, .graph = graph, .now = now, .is_wanted = is_wanted, .context = context, .cells = rows};
    status = emit_with(e, kernels, out_node);
  }
  if (e) wk__free(e->numbers);
  wk__free(rows);
  wk__free(e);
  return status;
}
