/* Putting a graph's calls in an order again after a pass appended nodes at the end.
 * In: nodes whose `number` says where each would like to stand. Out: arguments before users, random calls in the order
 * of their numbers, else as the numbers want. Tests: tests/c/test_graph.c. */
#include "graph/internal.h"

typedef struct sorter {
  wk__graph *graph;
  wk__graph_node **nodes; /* (count) by present position */
  uint32_t *wish;         /* (count) by present position */
  uint32_t *waiting_for;  /* (count) arguments that have no place yet */
  uint32_t *first_user;   /* (count + 1) into users */
  uint32_t *users;
  uint32_t *heap; /* positions of nodes that may come next */
  int64_t count, heap_count;
} sorter;

static bool comes_first(const sorter *s, uint32_t a, uint32_t b) {
  return s->wish[a] != s->wish[b] ? s->wish[a] < s->wish[b] : a < b;
}

static void push(sorter *s, uint32_t node) {
  int64_t i = s->heap_count++;
  for (; i > 0 && comes_first(s, node, s->heap[(i - 1) / 2]); i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
  s->heap[i] = node;
}

static uint32_t pop(sorter *s) {
  uint32_t top = s->heap[0], last = s->heap[--s->heap_count];
  int64_t i = 0;
  for (int64_t child = 1; child < s->heap_count; child = 2 * i + 1) {
    if (child + 1 < s->heap_count && comes_first(s, s->heap[child + 1], s->heap[child])) child++;
    if (comes_first(s, last, s->heap[child])) break;
    s->heap[i] = s->heap[child];
    i = child;
  }
  s->heap[i] = last;
  return top;
}

static bool is_random(const wk__graph_node *n) { return n->kind == WK__GRAPH_CALL && n->op->tags & WK__TAG_RANDOM; }

/* Calls `visit` for every node that has to come before `node`: arguments, and the random call before it. */
static void each_before(sorter *s, uint32_t node, uint32_t *last_random,
                        void (*visit)(sorter *s, uint32_t before, uint32_t node)) {
  wk__arg_cursor cursor = {0};
  for (wk__graph_node **arg; (arg = wk__graph_next_arg(s->nodes[node], &cursor));) visit(s, (*arg)->number, node);
  if (!is_random(s->nodes[node])) return;
  if (*last_random != UINT32_MAX) visit(s, *last_random, node);
  *last_random = node;
}

static void count_user(sorter *s, uint32_t before, uint32_t node) {
  s->first_user[before + 1]++;
  s->waiting_for[node]++;
}

static void add_user(sorter *s, uint32_t before, uint32_t node) { s->users[--s->first_user[before + 1]] = node; }

static wk_status find_users(sorter *s) {
  uint32_t last_random = UINT32_MAX;
  for (uint32_t i = 0; i < s->count; i++) each_before(s, i, &last_random, count_user);
  for (int64_t i = 0; i < s->count; i++) s->first_user[i + 1] += s->first_user[i];
  s->users = wk__alloc((size_t)(s->first_user[s->count] + 1) * sizeof *s->users);
  if (!s->users) return WK_OUT_OF_MEMORY;
  uint32_t total = s->first_user[s->count];
  last_random = UINT32_MAX;
  for (uint32_t i = 0; i < s->count; i++) each_before(s, i, &last_random, add_user);
  memmove(s->first_user, s->first_user + 1, (size_t)s->count * sizeof *s->first_user); /* ends became beginnings */
  s->first_user[s->count] = total;
  return WK_OK;
}

static wk_status link_in_order(sorter *s) {
  wk__graph *g = s->graph;
  int64_t placed = 0;
  g->first = g->last = NULL;
  for (uint32_t i = 0; i < s->count; i++)
    if (s->waiting_for[i] == 0) push(s, i);
  while (s->heap_count) {
    uint32_t i = pop(s);
    wk__graph_node *n = s->nodes[i];
    n->previous = g->last;
    n->next = NULL;
    *(g->last ? &g->last->next : &g->first) = n;
    g->last = n;
    placed++;
    for (uint32_t u = s->first_user[i]; u < s->first_user[i + 1]; u++)
      if (--s->waiting_for[s->users[u]] == 0) push(s, s->users[u]);
  }
  return placed == s->count ? WK_OK : wk_fail(WK_INTERNAL_ERROR, "the graph has a cycle");
}

static wk_status sort(sorter *s) {
  int64_t i = 0;
  for (wk__graph_node *n = s->graph->first; n; n = n->next, i++) {
    s->nodes[i] = n;
    /* Inputs and constants stay in front. */
    s->wish[i] = n->kind == WK__GRAPH_CALL || n->kind == WK__GRAPH_ITEM ? n->number + 1 : 0;
    n->number = (uint32_t)i;
  }
  WK_TRY(find_users(s));
  WK_TRY(link_in_order(s));
  wk__graph_number(s->graph);
  return WK_OK;
}

wk_status wk__graph_sort(wk__graph *graph) {
  size_t n = (size_t)graph->node_count;
  sorter s = {.graph = graph, .count = graph->node_count};
  char *memory = wk__alloc_zeroed((n + 1) * (sizeof *s.nodes + 4 * sizeof(uint32_t)));
  if (!memory) return WK_OUT_OF_MEMORY;
  s.nodes = (wk__graph_node **)memory;
  s.wish = (uint32_t *)(s.nodes + n + 1);
  s.waiting_for = s.wish + n + 1;
  s.first_user = s.waiting_for + n + 1;
  s.heap = s.first_user + n + 1;
  wk_status status = sort(&s);
  wk__free(s.users);
  wk__free(memory);
  return status;
}
