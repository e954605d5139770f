/* Maximum flow and minimum cut, by Dinic's method: levels by breadth, then blocking flows along them.
 *
 * In: edges with capacities, at most WK__FLOW_INFINITE. Out: the flow's value; what the source still reaches, whose
 * border is a minimum cut, the one nearest to the source. Nothing is recursive: chains of any length work.
 * Reference: Y. Dinitz, "Algorithm for solution of a problem of maximum flow in a network with power estimation", 1970.
 * Tests: tests/c/test_aot.c, flow_*. */
#include "aot/internal.h"

/* An edge and its way back stand side by side: the partner of edge e is e ^ 1. */
typedef struct edge {
  int64_t to;
  int64_t capacity; /* what is left */
  int64_t next;     /* of the same node; -1 */
} edge;

struct wk__flow {
  int64_t node_count;
  int64_t *first; /* (node_count) first edge of each node; -1 */
  int64_t *level; /* (node_count) distance from the source; -1: not reached */
  int64_t *at;    /* (node_count) the edge to try next */
  int64_t *queue; /* (node_count) nodes by breadth; then the edges of the path that is being walked */
  edge *edges;
  int64_t edge_count, edge_capacity;
};

wk__flow *wk__flow_create(int64_t nodes) {
  wk__flow *f = wk__alloc_zeroed(sizeof *f);
  if (!f) return NULL;
  f->node_count = nodes;
  f->first = wk__alloc((size_t)(4 * nodes + 1) * sizeof *f->first);
  if (!f->first) {
    wk__free(f);
    return NULL;
  }
  f->level = f->first + nodes;
  f->at = f->level + nodes;
  f->queue = f->at + nodes;
  for (int64_t i = 0; i < nodes; i++) f->first[i] = f->level[i] = -1;
  return f;
}

void wk__flow_release(wk__flow *f) {
  if (!f) return;
  wk__free(f->first);
  wk__free(f->edges);
  wk__free(f);
}

static void add(wk__flow *f, int64_t from, int64_t to, int64_t capacity) {
  f->edges[f->edge_count] = (edge){to, capacity, f->first[from]};
  f->first[from] = f->edge_count++;
}

wk_status wk__flow_edge(wk__flow *f, int64_t from, int64_t to, int64_t capacity) {
  WK_TRY(wk__grow(&f->edges, &f->edge_capacity, f->edge_count + 2, sizeof *f->edges));
  add(f, from, to, wk__min(capacity, WK__FLOW_INFINITE));
  add(f, to, from, 0);
  return WK_OK;
}

static bool find_levels(wk__flow *f, int64_t source, int64_t sink) {
  int64_t begin = 0, end = 0;
  for (int64_t i = 0; i < f->node_count; i++) f->level[i] = -1;
  f->level[source] = 0;
  f->queue[end++] = source;
  while (begin < end) {
    int64_t node = f->queue[begin++];
    for (int64_t e = f->first[node]; e >= 0; e = f->edges[e].next) {
      int64_t to = f->edges[e].to;
      if (!f->edges[e].capacity || f->level[to] >= 0) continue;
      f->level[to] = f->level[node] + 1;
      f->queue[end++] = to;
    }
  }
  return f->level[sink] >= 0;
}

/* Sends what the path has room for; the node in front of the first full edge, from where the walk goes on. */
static int64_t send_along(wk__flow *f, int64_t length, int64_t *out_sent, int64_t *out_length) {
  int64_t room = WK__FLOW_INFINITE;
  for (int64_t i = 0; i < length; i++) room = wk__min(room, f->edges[f->queue[i]].capacity);
  int64_t full = 0; /* where none is full the walk begins again */
  for (int64_t i = length - 1; i >= 0; i--) {
    f->edges[f->queue[i]].capacity -= room;
    f->edges[f->queue[i] ^ 1].capacity += room;
    if (!f->edges[f->queue[i]].capacity) full = i;
  }
  *out_sent = room;
  *out_length = full;
  return f->edges[f->queue[full] ^ 1].to;
}

/* Advances along the levels, and goes back where there is no way. */
static int64_t blocking_flow(wk__flow *f, int64_t source, int64_t sink, int64_t wanted) {
  int64_t node = source, length = 0, total = 0;
  for (int64_t i = 0; i < f->node_count; i++) f->at[i] = f->first[i];
  while (total < wanted) {
    if (node == sink) {
      int64_t sent;
      node = send_along(f, length, &sent, &length);
      total += sent;
      continue;
    }
    int64_t e = f->at[node];
    while (e >= 0 && !(f->edges[e].capacity && f->level[f->edges[e].to] == f->level[node] + 1)) e = f->edges[e].next;
    f->at[node] = e;
    if (e >= 0) {
      f->queue[length++] = e;
      node = f->edges[e].to;
    } else if (length) {
      e = f->queue[--length];
      node = f->edges[e ^ 1].to;
      f->at[node] = f->edges[f->at[node]].next;
    } else {
      break;
    }
  }
  return total;
}

wk_status wk__flow_run(wk__flow *f, int64_t source, int64_t sink, int64_t *out_value) {
  *out_value = 0;
  if (source == sink) return wk_fail(WK_INTERNAL_ERROR, "a flow from a node to itself");
  while (*out_value < WK__FLOW_INFINITE && find_levels(f, source, sink))
    *out_value += blocking_flow(f, source, sink, WK__FLOW_INFINITE - *out_value);
  *out_value = wk__min(*out_value, WK__FLOW_INFINITE);
  return WK_OK;
}

bool wk__flow_reached(const wk__flow *f, int64_t node) { return f->level[node] >= 0; }
