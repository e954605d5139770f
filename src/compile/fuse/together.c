/* Equal kernels that are given to the device together.
 *
 * In: a graph of fused kernels. Out: the same, where small pointwise calls of one kernel that may run at one place are
 * one call: under autocast each weight has a conversion of its own, and each gradient one back, which take a device
 * longer to begin than to run. Such a call may stand anywhere behind what makes its arguments and in front of what uses
 * its result; calls whose ranges have a place in common can be one. Values then live for longer: no more than
 * MOST_MORE_BYTES beyond the most that is needed at once anyhow. Nothing of it changes a bit.
 * Tests: tests/cuda/test_fusing.py, tests/c/test_compile.c. */
#include <stdlib.h>

#include "compile/fuse/kernel.h"

enum {
  MOST_TOGETHER = WK__NEST_MAX_BUFFERS, /* results of a fused operator */
  MOST_LOOKED_AT = 128,                 /* later calls of the kernel, for each that is the first of a group, */
  MOST_NODES_BETWEEN = 4096,            /* and how far from it */
  MOST_ELEMENTS = 4 << 20,              /* of a call: more keep the device busy by themselves */
};
static const int64_t MOST_MORE_BYTES = INT64_C(64) << 20;

typedef struct call {
  wk__graph_node *node; /* NULL: it is in a group */
  const wk__kernel *kernel;
  int64_t first; /* the number of the first call of the kernel */
} call;

typedef struct group {
  wk__graph_node *calls[MOST_TOGETHER]; /* in the graph's order */
  int count;
  uint32_t ready, needed; /* it may stand in front of any node behind `ready`, up to `needed` */
} group;

/* Of the graph as it is now, by number. */
typedef struct state {
  wk__graph *graph;
  uint32_t *first_user; /* of each value; of an output's, where there is none, the number of nodes */
  uint32_t *last_use;   /* of each memory */
  int64_t *live;        /* bytes of results that are needed when the node runs */
  int64_t *more;        /* of a group that is tried */
  int64_t allowed;      /* the most that may be live */
} state;

/* ---- lifetimes ---- */

static bool is_made(wk__memory m) { return (m->kind == WK__GRAPH_CALL && m->value) || m->kind == WK__GRAPH_ITEM; }
static int64_t bytes_of(wk__memory m) { return wk__hint(m->value->numel) * wk__dtypes[m->value->dtype].size; }

static void note_uses(const state *s) {
  const wk__graph *g = s->graph;
  uint32_t end = (uint32_t)g->node_count;
  for (const wk__graph_node *n = g->first; n; n = n->next) {
    wk__arg_cursor cursor = {0};
    s->first_user[n->number] = end;
    s->last_use[n->number] = n->number;
    for (wk__graph_node **arg; n->kind == WK__GRAPH_CALL && (arg = wk__graph_next_arg(n, &cursor));) {
      s->first_user[(*arg)->number] = wk__min(s->first_user[(*arg)->number], n->number);
      s->last_use[wk__memory_of(*arg)->number] = n->number;
    }
  }
  for (int64_t i = 0; i < g->output_count; i++) s->last_use[wk__memory_of(g->outputs[i])->number] = end;
  for (int64_t i = 0; i < g->mutation_count; i++) s->last_use[wk__memory_of(g->mutations[i].node)->number] = end;
}

/* What begins with one node and ends with another is added up between. */
static void add_range(int64_t *changes, int64_t begin, int64_t end, int64_t bytes) {
  changes[begin] += bytes;
  changes[end] -= bytes;
}
static void sum_up(int64_t *changes, int64_t count) {
  for (int64_t i = 1; i < count; i++) changes[i] += changes[i - 1];
}

static void note_live(const state *s) {
  int64_t count = s->graph->node_count + 1;
  memset(s->live, 0, (size_t)(count + 1) * sizeof *s->live);
  for (const wk__graph_node *n = s->graph->first; n; n = n->next)
    if (is_made(n) && wk__memory_of(n) == n)
      add_range(s->live, n->number, (int64_t)s->last_use[n->number] + 1, bytes_of(n));
  sum_up(s->live, count);
}

static int64_t most_live(const state *s) {
  int64_t most = 0;
  for (int64_t i = 0; i < s->graph->node_count; i++) most = wk__max(most, s->live[i]);
  return most;
}

static void look(state *s) {
  wk__graph_number(s->graph);
  note_uses(s);
  note_live(s);
}

/* ---- which calls may be together ---- */

/* What an input will be is written into it at once, if its kernel does nothing else. */
static bool is_for_input(const wk__graph *g, const wk__graph_node *n) {
  for (int64_t i = 0; i < g->mutation_count; i++)
    if (g->mutations[i].node == n) return true;
  return false;
}

static bool is_candidate(const wk__graph *g, const wk__graph_node *n) {
  if (n->kind != WK__GRAPH_CALL || !(n->op->tags & WK__TAG_FUSED) || !n->value || n->flags & WK__GRAPH_TAPED)
    return false;
  const wk__fused *f = (const wk__fused *)n->op;
  bool alone = !f->product.op && !f->draw.op && !f->index_op && f->param_count == 0;
  if (!alone || !f->kernel->nest->geometry_free || !f->kernel->device->facts->together) return false;
  return wk__hint(n->value->numel) <= MOST_ELEMENTS && !is_for_input(g, n);
}

static void range_of(const state *s, const wk__graph_node *n, uint32_t *out_ready, uint32_t *out_needed) {
  wk__arg_cursor cursor = {0};
  *out_ready = s->graph->last_leaf ? s->graph->last_leaf->number : 0;
  for (wk__graph_node **arg; (arg = wk__graph_next_arg(n, &cursor));) *out_ready = wk__max(*out_ready, (*arg)->number);
  *out_needed = s->first_user[n->number];
}

/* Where the group would stand: in front of the last of its calls, or earlier where that is too late for another. */
static uint32_t place_of(const group *g) { return wk__min(g->needed, g->calls[g->count - 1]->number); }

static bool reads_member(const group *g, const wk__graph_node *n) {
  wk__arg_cursor cursor = {0};
  for (wk__graph_node **arg; (arg = wk__graph_next_arg(n, &cursor));)
    for (int i = 0; i < g->count; i++)
      if (*arg == g->calls[i]) return true;
  return false;
}

/* Results that are made earlier, and arguments that are needed for longer. */
static void add_more(const state *s, const wk__graph_node *n, uint32_t place) {
  wk__arg_cursor cursor = {0};
  if (place < n->number) add_range(s->more, place, n->number, bytes_of(n));
  for (wk__graph_node **arg; place > n->number && (arg = wk__graph_next_arg(n, &cursor));) {
    wk__memory m = wk__memory_of(*arg);
    if (is_made(m) && s->last_use[m->number] < place) add_range(s->more, s->last_use[m->number], place, bytes_of(m));
  }
}

static bool stays_small(const state *s, const group *g) {
  uint32_t place = place_of(g), begin = place, end = place;
  for (int i = 0; i < g->count; i++) {
    begin = wk__min(begin, g->calls[i]->number);
    end = wk__max(end, g->calls[i]->number);
  }
  memset(s->more + begin, 0, (size_t)(end + 2 - begin) * sizeof *s->more);
  for (int i = 0; i < g->count; i++) add_more(s, g->calls[i], place);
  sum_up(s->more + begin, end + 1 - begin);
  for (uint32_t i = begin; i <= end; i++)
    if (s->more[i] > 0 && s->live[i] + s->more[i] > s->allowed) return false;
  return true;
}

static bool add_to_group(const state *s, group *g, wk__graph_node *n) {
  group with = *g;
  uint32_t ready, needed;
  if (g->count == MOST_TOGETHER || reads_member(g, n)) return false;
  range_of(s, n, &ready, &needed);
  with.calls[with.count++] = n;
  with.ready = wk__max(g->ready, ready);
  with.needed = wk__min(g->needed, needed);
  if (place_of(&with) <= with.ready || !stays_small(s, &with)) return false;
  *g = with;
  return true;
}

/* ---- one call for all ---- */

/* The launch of a call whose arguments are behind others. */
static wk__fused_form moved(const wk__fused *f, int input, int number, int result) {
  wk__fused_form form = f->form;
  form.loop_sizes += number;
  for (int b = 0; b < f->buffer_count; b++) {
    wk__fused_buffer *buffer = &form.buffers[b];
    buffer->input = (int16_t)(buffer->input >= 0 ? buffer->input + input : buffer->input - result);
    buffer->offset += number;
    buffer->strides += number;
  }
  return form;
}

static wk__fused_output moved_output(const wk__fused *f, int number) {
  wk__fused_output out = f->outputs[0];
  out.sizes += number;
  out.strides += number;
  return out;
}

static char *joined_text(const group *g, char *(*text_of)(const wk__fused *f)) {
  wk__string text = {0};
  for (int i = 0; i < g->count; i++) wk__string_append(&text, text_of((const wk__fused *)g->calls[i]->op));
  wk__string_append(&text, "");
  return wk__string_take(&text);
}
static char *origin_of(const wk__fused *f) { return f->origin; }
static char *stacks_of(const wk__fused *f) { return f->stacks; }

static wk_status describe(const group *g, wk__fused *out) {
  const wk__fused *like = (const wk__fused *)g->calls[0]->op;
  int input = 0, number = 0;
  out->again = wk__alloc((size_t)g->count * sizeof *out->again);
  out->origin = joined_text(g, origin_of);
  out->stacks = joined_text(g, stacks_of);
  if (!out->again || !out->origin || !out->stacks) return WK_OUT_OF_MEMORY;
  for (int i = 0; i < g->count; i++) {
    const wk__fused *f = (const wk__fused *)g->calls[i]->op;
    *(i ? &out->again[i - 1] : &out->form) = moved(f, input, number, i);
    out->outputs[i] = moved_output(f, number);
    input += (int)g->calls[i]->args[0].count;
    number += (int)g->calls[i]->args[1].count;
  }
  out->again_count = g->count - 1;
  out->buffer_count = like->buffer_count;
  out->device = like->device;
  out->kernel = wk__kernel_retain(like->kernel);
  return WK_OK;
}

static void join_arguments(const group *g, wk__graph_node **inputs, wk_int *numbers, wk__graph_arg *args) {
  uint32_t input = 0, number = 0;
  for (int i = 0; i < g->count; i++) {
    const wk__graph_arg *from = g->calls[i]->args;
    memcpy(inputs + input, from[0].nodes, from[0].count * sizeof *inputs);
    memcpy(numbers + number, from[1].integers, from[1].count * sizeof *numbers);
    input += from[0].count;
    number += from[1].count;
  }
  args[0] = (wk__graph_arg){.tag = WK_VALUE_TENSORS, .count = input, .nodes = inputs};
  args[1] = (wk__graph_arg){.tag = WK_VALUE_INTS, .count = number, .integers = numbers};
  for (int i = 0; i < WK__FUSED_NUMBERS; i++) args[2 + i] = (wk__graph_arg){.tag = WK_VALUE_DOUBLE, .number = 0};
}

static wk_status make_call(wk__graph *graph, const group *g, const wk_op *op, wk__graph_node **out) {
  wk__graph_arg args[2 + WK__FUSED_NUMBERS];
  const wk_tensor *values[MOST_TOGETHER];
  int64_t inputs = 0, numbers = 0;
  for (int i = 0; i < g->count; i++) {
    values[i] = g->calls[i]->value;
    inputs += g->calls[i]->args[0].count;
    numbers += g->calls[i]->args[1].count;
  }
  char *memory = wk__alloc((size_t)inputs * sizeof(wk__graph_node *) + (size_t)numbers * sizeof(wk_int));
  if (!memory) return WK_OUT_OF_MEMORY;
  memset(args, 0, sizeof args);
  join_arguments(g, (wk__graph_node **)memory, (wk_int *)(memory + inputs * (int64_t)sizeof(wk__graph_node *)), args);
  *out = wk__graph_call(graph, op, args, values, g->count, g->calls[0]->name);
  if (*out) (*out)->source = g->calls[0]->source;
  wk__free(memory);
  return *out ? WK_OK : wk_error_category();
}

static wk_status replace_calls(wk__graph *graph, const group *g, wk__graph_node *whole, wk__kernels *kernels) {
  for (int i = 0; i < g->count; i++) {
    wk__graph_node *item = wk__graph_item(graph, whole, i);
    if (!item) return wk_error_category();
    wk__graph_replace_uses(graph, g->calls[i], item);
  }
  for (int i = 0; i < g->count; i++) {
    const wk__fused *f = (const wk__fused *)g->calls[i]->op;
    wk__graph_erase(graph, g->calls[i]);
    wk__kernels_remove(kernels, f);
  }
  return WK_OK;
}

static wk__graph_node *node_at(const group *g, uint32_t number) {
  wk__graph_node *n = g->calls[0];
  while (n->number < number) n = n->next;
  while (n->number > number) n = n->previous;
  return n;
}

static wk_status emit(wk__graph *graph, const group *g, wk__kernels *kernels) {
  wk__graph_node *whole;
  wk__fused *f = wk__kernels_add(kernels, NULL, g->count);
  if (!f) return wk_error_category();
  WK_TRY(describe(g, f));
  wk__graph_set_insert_point(graph, node_at(g, place_of(g)));
  wk_status status = make_call(graph, g, &f->op, &whole);
  if (status == WK_OK) status = replace_calls(graph, g, whole, kernels);
  wk__graph_set_insert_point(graph, NULL);
  return status;
}

/* ---- the pass ---- */

static int by_kernel(const void *a, const void *b) {
  const call *x = a, *y = b;
  if (x->kernel != y->kernel) return (uintptr_t)x->kernel < (uintptr_t)y->kernel ? -1 : 1;
  return (x->node->number > y->node->number) - (x->node->number < y->node->number);
}
static int by_first(const void *a, const void *b) {
  const call *x = a, *y = b;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return (x->node->number > y->node->number) - (x->node->number < y->node->number);
}

/* Calls of one kernel lie together, in the graph's order. */
static void sort_calls(call *calls, int64_t count) {
  qsort(calls, (size_t)count, sizeof *calls, by_kernel);
  for (int64_t i = 0; i < count; i++)
    calls[i].first = i && calls[i].kernel == calls[i - 1].kernel ? calls[i - 1].first : calls[i].node->number;
  qsort(calls, (size_t)count, sizeof *calls, by_first);
}

static wk_status group_from(state *s, wk__kernels *kernels, call *calls, int64_t count, bool *out_changed) {
  int64_t members[MOST_TOGETHER];
  group g = {.needed = UINT32_MAX};
  uint32_t furthest = calls[0].node->number + MOST_NODES_BETWEEN;
  for (int64_t i = 0; i < wk__min(count, MOST_LOOKED_AT) && calls[i].kernel == calls[0].kernel; i++) {
    wk__graph_node *n = calls[i].node;
    if (n && n->number <= furthest && add_to_group(s, &g, n)) members[g.count - 1] = i;
  }
  if (g.count < 2) return WK_OK;
  WK_TRY(emit(s->graph, &g, kernels));
  for (int i = 0; i < g.count; i++) calls[members[i]].node = NULL;
  *out_changed = true;
  look(s);
  return WK_OK;
}

static wk_status make_groups(state *s, wk__kernels *kernels, call *calls, bool *out_changed) {
  int64_t count = 0;
  for (wk__graph_node *n = s->graph->first; n; n = n->next)
    if (is_candidate(s->graph, n)) calls[count++] = (call){.node = n, .kernel = ((const wk__fused *)n->op)->kernel};
  if (count < 2) return WK_OK;
  sort_calls(calls, count);
  look(s);
  s->allowed = most_live(s) + MOST_MORE_BYTES;
  for (int64_t i = 0; i < count; i++)
    if (calls[i].node) WK_TRY(group_from(s, kernels, calls + i, count - i, out_changed));
  return WK_OK;
}

wk_status wk__give_together(wk__graph *graph, wk__kernels *kernels, bool *out_changed) {
  if (kernels->limits.kernels != WK__UNLIMITED) return WK_OK; /* it is asked which kernel is wrong */
  wk__graph_number(graph);
  size_t n = 2 * (size_t)graph->node_count + 2; /* a group has a node more than its calls */
  char *memory = wk__alloc(n * (sizeof(call) + 2 * sizeof(int64_t) + 2 * sizeof(uint32_t)));
  if (!memory) return WK_OUT_OF_MEMORY;
  call *calls = (call *)memory;
  state s = {.graph = graph, .live = (int64_t *)(calls + n)};
  s.more = s.live + n;
  s.first_user = (uint32_t *)(s.more + n);
  s.last_use = s.first_user + n;
  wk_status status = make_groups(&s, kernels, calls, out_changed);
  wk__free(memory);
  return status;
}
