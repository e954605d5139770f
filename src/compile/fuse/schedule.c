/* Which operators become one kernel.
 *
 * In: a graph. Out: the graph with calls of fused kernels in place of what was fused. Operators are taken in program
 * order; each joins a group that it shares memory with (what the group makes or reads), the largest memory first, where
 *   - their loops go through that memory together (join.c), and every element that one makes and another reads is made
 *     by the same step of the loops;
 *   - nothing between them depends on one and is needed by the other;
 *   - the kernel stays within the limits of a nest.
 * Groups meet through a common member as well, so both sides of an addition end in one kernel.
 * Tests: tests/c/test_compile.c. */
#include "compile/fuse/kernel.h"

enum {
  MAX_INSTRS = 400, /* of a kernel's body */
  MAX_CANDIDATES = 12,
  MAX_READERS = 4,  /* groups that are remembered as readers of a memory */
  MAX_COLUMNS = 24, /* instructions of a kernel of columns, with what is done with its sums: longer ones go through
                       memory in smaller steps (cuda/shape.c) */
  /* Kernels are made of nodes of one window of the program. What has to run before what takes a bit for each two nodes
   * of a window, and time with the cube of its length; across windows it follows from the order of the program. */
  WINDOW = 2048,
};

/* A call that is fused or not: one for each node by number; those of a group share the first one's. */
typedef struct cluster {
  wk__group *group; /* NULL: not fused, or joined another cluster */
  int32_t joined;   /* cluster that it went into; itself */
} cluster;

typedef struct memory_info {
  bool escapes;                 /* an output, or the new value of an input */
  int32_t first_user, user_end; /* clusters that read it, into `users` */
  int32_t readers[MAX_READERS]; /* clusters of groups that read it; -1 */
} memory_info;

typedef struct scheduler {
  wk__graph *graph;
  wk__kernels *kernels;
  int64_t count; /* nodes */
  int64_t seen;  /* those of them that have been looked at: the rows behind are empty */
  cluster *clusters;
  memory_info *memories;
  int32_t *users;
  uint64_t *before; /* [cluster][words] clusters of the same window that have to run before, by their places in it */
  int64_t words;    /* for the clusters of a window */
  const wk__group *inside; /* for is_wanted: the group that asks */
  int32_t inside_cluster, inside_other;
} scheduler;

/* ---- clusters ---- */

static int32_t cluster_of(const scheduler *s, int32_t u) {
  while (s->clusters[u].joined != u) u = s->clusters[u].joined = s->clusters[s->clusters[u].joined].joined;
  return u;
}

static int32_t number_of_call(const wk__graph_node *n) {
  return (int32_t)(n->kind == WK__GRAPH_ITEM ? n->args[0].node : n)->number;
}

static uint64_t *row(const scheduler *s, int32_t u) { return s->before + (int64_t)u * s->words; }
static int32_t window_of(int32_t u) { return u / WINDOW * WINDOW; } /* its first cluster */
static uint64_t bit_of(int32_t u) { return UINT64_C(1) << (u % 64); }
static uint64_t *word_of(uint64_t *bits, int32_t u) { return &bits[u % WINDOW / 64]; }
static bool has_bit(uint64_t *bits, int32_t u) { return *word_of(bits, u) & bit_of(u); }
static void set_bit(uint64_t *bits, int32_t u) { *word_of(bits, u) |= bit_of(u); }
static void clear_bit(uint64_t *bits, int32_t u) { *word_of(bits, u) &= ~bit_of(u); }

static void add_before(scheduler *s, int32_t u, int32_t earlier) {
  if (earlier == u || window_of(earlier) != window_of(u)) return;
  uint64_t *mine = row(s, u), *theirs = row(s, earlier);
  for (int64_t w = 0; w < s->words; w++) mine[w] |= theirs[w];
  set_bit(mine, earlier);
}

/* Something else has to run between the two, or that is not known. */
static bool is_between(const scheduler *s, int32_t first, int32_t second) {
  uint64_t *bits = row(s, second);
  if (window_of(first) != window_of(second)) return true;
  if (!has_bit(bits, first)) return false; /* what is before something is before all that comes after that */
  for (int64_t w = 0; w < s->words; w++)
    for (uint64_t left = bits[w]; left; left &= left - 1) {
      int32_t x = window_of(second) + (int32_t)(w * 64) + __builtin_ctzll(left);
      if (x != first && s->clusters[x].joined == x && has_bit(row(s, x), first)) return true;
    }
  return false;
}

static void join_clusters(scheduler *s, int32_t into, int32_t other) {
  uint64_t *mine = row(s, into), *theirs = row(s, other);
  for (int64_t w = 0; w < s->words; w++) mine[w] |= theirs[w];
  clear_bit(mine, into);
  clear_bit(mine, other);
  s->clusters[other].joined = into;
  int32_t end = (int32_t)wk__min(s->seen, window_of(into) + WINDOW);
  for (int32_t u = window_of(into); u < end; u++) {
    uint64_t *bits = row(s, u);
    if (s->clusters[u].joined != u) continue; /* its row is not asked for any more */
    if (u == into || (!has_bit(bits, into) && !has_bit(bits, other))) continue;
    for (int64_t w = 0; w < s->words; w++) bits[w] |= mine[w];
    set_bit(bits, into);
    clear_bit(bits, other);
  }
}

/* ---- who uses what ---- */

typedef void user_visitor(scheduler *s, memory_info *memory, int32_t user);

static void each_use(scheduler *s, user_visitor *visit) {
  for (wk__graph_node *n = s->graph->first; n; n = n->next) {
    if (n->kind != WK__GRAPH_CALL || n->op->view) continue;
    wk__arg_cursor cursor = {0};
    for (wk__graph_node **arg; (arg = wk__graph_next_arg(n, &cursor));)
      visit(s, &s->memories[wk__memory_of(*arg)->number], (int32_t)n->number);
  }
}

static void count_use(scheduler *s, memory_info *m, int32_t user) {
  (void)s, (void)user;
  m->user_end++;
}
static void note_use(scheduler *s, memory_info *m, int32_t user) { s->users[m->user_end++] = user; }

static wk_status find_users(scheduler *s) {
  each_use(s, count_use);
  int32_t total = 0;
  for (int64_t i = 0; i < s->count; i++) {
    int32_t mine = s->memories[i].user_end;
    s->memories[i].first_user = s->memories[i].user_end = total;
    total += mine;
    for (int k = 0; k < MAX_READERS; k++) s->memories[i].readers[k] = -1;
  }
  s->users = wk__alloc((size_t)(total + 1) * sizeof *s->users);
  if (!s->users) return WK_OUT_OF_MEMORY;
  each_use(s, note_use);
  const wk__graph *g = s->graph;
  for (int64_t i = 0; i < g->output_count; i++) s->memories[wk__memory_of(g->outputs[i])->number].escapes = true;
  for (int64_t i = 0; i < g->mutation_count; i++)
    s->memories[wk__memory_of(g->mutations[i].node)->number].escapes = true;
  return WK_OK;
}

/* By a cluster that is neither of the two that ask. A result that is not made any more has no readers. */
static bool is_wanted(void *context, wk__memory memory) {
  const scheduler *s = context;
  const memory_info *m = &s->memories[memory->number];
  if (m->escapes) return true;
  for (int32_t i = m->first_user; i < m->user_end; i++) {
    int32_t u = cluster_of(s, s->users[i]);
    if (u != s->inside_cluster && u != s->inside_other) return true;
  }
  return false;
}

/* ---- limits ---- */

typedef struct need {
  int instrs, walkers, buffers;
} need;

/* What the group adds to a kernel of the two clusters that ask. */
static void add_need(scheduler *s, const wk__group *g, need *n) {
  for (int r = 0; r < g->region_count; r++) {
    const wk__region *region = g->regions[r];
    n->instrs += region->instr_count;
    for (int v = 1; v < region->instr_count; v++) {
      const wk__instr *i = &region->instrs[v];
      n->walkers += i->op == WK__LOOP_index || i->op == WK__LOOP_check_index;
      if (!wk__loop_has_access(i->op)) continue;
      n->walkers += region->places[i->extra].bound_count;
      wk__memory m = region->places[i->extra].memory;
      int32_t maker = cluster_of(s, number_of_call(m));
      bool is_made = maker == s->inside_cluster || maker == s->inside_other;
      bool counts = i->op == WK__LOOP_store ? is_wanted(s, m) : !is_made;
      n->walkers += counts;
      n->buffers += counts;
    }
  }
}

static bool fits(scheduler *s, int32_t a, int32_t b) {
  need n = {0};
  s->inside_cluster = a;
  s->inside_other = b;
  add_need(s, s->clusters[a].group, &n);
  add_need(s, s->clusters[b].group, &n);
  return n.instrs <= MAX_INSTRS && n.walkers <= s->kernels->choices.most_walkers && n.buffers <= WK__NEST_MAX_BUFFERS;
}

/* ---- joining groups ---- */

/* Memory runs across its rows: neighbours are elements of different ones. */
static bool goes_down_columns(const wk__group *g) {
  for (int r = 0; r < g->region_count && g->has_reduction; r++)
    for (int i = 0; i < g->regions[r]->place_count; i++) {
      const wk__place *p = &g->regions[r]->places[i];
      bool reduced = false, across = false;
      for (int l = 0; l < g->loop_count && p->memory; l++) {
        bool one = wk_int_same(p->stride[l], wk_int_of(1)), none = wk_int_same(p->stride[l], wk_int_of(0));
        reduced |= g->loops[l].reduced && !one && !none;
        across |= !g->loops[l].reduced && one;
      }
      if (reduced && across) return true;
    }
  return false;
}

static bool stores_for_others(scheduler *s, const wk__group *g) {
  for (int r = 0; r < g->region_count; r++)
    for (int v = 1; v < g->regions[r]->instr_count; v++) {
      const wk__instr *i = &g->regions[r]->instrs[v];
      if (i->op == WK__LOOP_store && is_wanted(s, g->regions[r]->places[i->extra].memory)) return true;
    }
  return false;
}

static int64_t steps_of(const wk__group *g) {
  int64_t count = 1;
  for (int l = 0; l < g->loop_count; l++)
    if (!g->loops[l].reduced) count *= wk__hint(g->loops[l].size);
  return count;
}

static int instrs_of(const wk__group *g) {
  int count = 0;
  for (int r = 0; r < g->region_count; r++) count += g->regions[r]->instr_count;
  return count;
}

/* What is stored element by element goes through memory in the reduction's way then: measured on an H100, the gradient
 * of a gelu with the sum of its columns 126 us as one kernel, 60 and 28 as two. What is done with the sums alone joins
 * them while the kernel stays short. Of the clusters that ask. */
static bool is_better_apart(scheduler *s, const wk__group *a, const wk__group *b) {
  if (a->has_reduction == b->has_reduction || !wk__group_device(a)->facts->columns_apart) return false;
  const wk__group *sums = a->has_reduction ? a : b, *elements = a->has_reduction ? b : a;
  if (!goes_down_columns(sums) || !stores_for_others(s, elements)) return false;
  return steps_of(elements) > steps_of(sums) || instrs_of(a) + instrs_of(b) > MAX_COLUMNS;
}

static wk_status try_through(scheduler *s, int32_t a, int32_t b, wk__memory memory, bool *out_done) {
  wk__group *joined = NULL;
  WK_TRY(wk__group_join(s->clusters[a].group, s->clusters[b].group, memory, &joined));
  if (!joined) return WK_OK;
  s->clusters[a].group = joined;
  s->clusters[b].group = NULL;
  join_clusters(s, a, b);
  *out_done = true;
  return WK_OK;
}

typedef struct candidate {
  int32_t cluster;
  int64_t bytes;
  wk__memory memory;
} candidate;

static void add_candidate(const scheduler *s, candidate *list, int *count, int32_t cluster, wk__memory memory) {
  if (cluster < 0) return;
  cluster = cluster_of(s, cluster);
  if (!s->clusters[cluster].group) return;
  candidate c = {cluster, wk__hint(memory->value->numel) * wk__dtypes[memory->value->dtype].size, memory};
  for (int i = 0; i < *count; i++)
    if (list[i].cluster == cluster && list[i].memory == memory) return;
  if (*count == MAX_CANDIDATES) {
    if (list[*count - 1].bytes >= c.bytes) return;
    --*count;
  }
  int at = (*count)++;
  for (; at > 0 && list[at - 1].bytes < c.bytes; at--) list[at] = list[at - 1];
  list[at] = c;
}

static void find_candidates(const scheduler *s, const wk__region *region, candidate *list, int *count) {
  for (int i = 0; i < region->place_count; i++) {
    wk__memory m = region->places[i].memory;
    if (!m) continue;
    add_candidate(s, list, count, number_of_call(m), m);
    for (int k = 0; k < MAX_READERS; k++) add_candidate(s, list, count, s->memories[m->number].readers[k], m);
  }
}

static void note_reader(scheduler *s, const wk__region *region, int32_t u) {
  for (int i = 0; i < region->place_count; i++) {
    wk__memory m = region->places[i].memory;
    if (!m) continue;
    int32_t *readers = s->memories[m->number].readers;
    if (readers[0] == u) continue;
    memmove(readers + 1, readers, (MAX_READERS - 1) * sizeof *readers);
    readers[0] = u;
  }
}

/* Joins the cluster with whatever it can, best first. */
static wk_status join_candidates(scheduler *s, int32_t u, const candidate *list, int count) {
  for (int i = 0; i < count; i++) {
    int32_t a = cluster_of(s, list[i].cluster), b = cluster_of(s, u);
    bool done = false;
    if (a == b || !s->clusters[a].group || is_between(s, a, b) || is_between(s, b, a) || !fits(s, a, b)) continue;
    if (is_better_apart(s, s->clusters[a].group, s->clusters[b].group)) continue;
    WK_TRY(try_through(s, a, b, list[i].memory, &done));
  }
  return WK_OK;
}

/* ---- passing over the graph ---- */

static wk_status make_group(scheduler *s, wk__graph_node *node) {
  wk__region *region = NULL;
  wk_status status = wk__region_create(node, &region);
  if (status == WK_OUT_OF_MEMORY) return status;
  if (status != WK_OK || !region) return WK_OK; /* whatever it is, the operator itself will say it */
  wk__group *g = wk__alloc_zeroed(sizeof *g);
  if (g) g->regions = wk__alloc(sizeof *g->regions);
  if (!g || !g->regions) {
    wk__free(g);
    wk__region_release(region);
    return WK_OUT_OF_MEMORY;
  }
  g->regions[0] = region;
  g->region_count = 1;
  g->loop_count = region->loop_count;
  g->has_reduction = region->has_reduction;
  memcpy(g->loops, region->loops, sizeof g->loops);
  s->clusters[node->number].group = g;
  return WK_OK;
}

/* What the node's region goes through; and who has made what is read by arguments that have waited for it. */
static void ask_candidates(scheduler *s, const wk__graph_node *node, candidate *list, int *count) {
  const wk__region *region = s->clusters[node->number].group->regions[0];
  wk__arg_cursor cursor = {0};
  find_candidates(s, region, list, count);
  note_reader(s, region, (int32_t)node->number);
  for (wk__graph_node **arg; (arg = wk__graph_next_arg(node, &cursor));) {
    const wk__group *waiting = s->clusters[(*arg)->number].group;
    if (!((*arg)->flags & WK__GRAPH_WAITS) || !waiting) continue;
    wk__memory m = wk__memory_of((*arg)->args[0].node);
    add_candidate(s, list, count, number_of_call(m), m);
  }
}

static wk_status visit_call(scheduler *s, wk__graph_node *node, int32_t *last_random) {
  int32_t u = (int32_t)node->number;
  wk__arg_cursor cursor = {0};
  s->seen = u + 1;
  for (wk__graph_node **arg; (arg = wk__graph_next_arg(node, &cursor));)
    add_before(s, u, cluster_of(s, number_of_call(wk__memory_of(*arg))));
  if (node->op->tags & WK__TAG_RANDOM) {
    if (*last_random >= 0) add_before(s, u, cluster_of(s, *last_random));
    *last_random = u;
  }
  WK_TRY(make_group(s, node));
  if (!s->clusters[u].group) return WK_OK;
  if (node->flags & WK__GRAPH_WAITS) return WK_OK;
  candidate list[MAX_CANDIDATES];
  int count = 0;
  ask_candidates(s, node, list, &count);
  return join_candidates(s, u, list, count);
}

static bool is_interrupted(const scheduler *s) {
  enum { NODES_BETWEEN = 64 };
  return s->seen % NODES_BETWEEN == 0 && wk__is_interrupted && wk__is_interrupted();
}

/* Who interrupts it gets a graph that is fused in part. */
static wk_status make_groups(scheduler *s) {
  int32_t last_random = -1;
  for (wk__graph_node *n = s->graph->first; n && !is_interrupted(s); n = n->next)
    if (n->kind == WK__GRAPH_CALL && !n->op->view) WK_TRY(visit_call(s, n, &last_random));
  return WK_OK;
}

/* ---- products and random draws ---- */

typedef bool is_source_fn(const wk_op *op);
typedef bool take_fn(wk__group *group, const wk__graph_node *source, const wk__choices *choices,
                     wk__is_wanted_fn *is_wanted, void *context);

/* The group of cluster u is run on what `node` makes as it makes it, where nothing has to run between the two. */
static void try_source(scheduler *s, int32_t u, const wk__graph_node *node, take_fn *take) {
  int32_t p = (int32_t)node->number;
  if (s->clusters[p].joined != p || s->clusters[p].group || is_between(s, p, u)) return;
  s->inside_cluster = u;
  s->inside_other = p;
  if (take(s->clusters[u].group, node, &s->kernels->choices, is_wanted, s)) join_clusters(s, u, p);
}

/* Of several the last is taken: the others are done by then. */
static void take_source(scheduler *s, int32_t u, is_source_fn *is_source, take_fn *take) {
  const wk__group *g = s->clusters[u].group;
  int32_t best = -1;
  const wk__graph_node *node = NULL;
  for (int r = 0; r < g->region_count; r++)
    for (int i = 0; i < g->regions[r]->place_count; i++) {
      wk__memory m = g->regions[r]->places[i].memory;
      const wk__graph_node *call = m && m->kind == WK__GRAPH_ITEM ? m->args[0].node : m;
      if (!call || call->kind != WK__GRAPH_CALL || !is_source(call->op) || (int32_t)call->number <= best) continue;
      best = (int32_t)call->number;
      node = call;
    }
  if (node) try_source(s, u, node, take);
}

/* The group whose result the product reads makes it instead, where it has no other reader. */
static void try_operand(scheduler *s, const wk__graph_node *product, const wk__graph_node *operand) {
  int32_t p = (int32_t)product->number;
  const memory_info *m = &s->memories[wk__memory_of(operand)->number];
  int32_t u = cluster_of(s, number_of_call(wk__memory_of(operand)));
  wk__group *g = s->clusters[u].group;
  if (!g || g->product || g->draw || m->escapes || m->user_end - m->first_user != 1 || is_between(s, u, p)) return;
  s->inside_cluster = s->inside_other = u;
  if (wk__group_make_operand(g, product, &s->kernels->choices, is_wanted, s)) join_clusters(s, u, p);
}

static void make_operands(scheduler *s) {
  for (const wk__graph_node *n = s->graph->first; n; n = n->next) {
    if (n->kind != WK__GRAPH_CALL || !wk__is_product(n->op)) continue;
    for (int i = 0; i < 2; i++)
      if (s->clusters[n->number].joined == (int32_t)n->number && n->args[i].tag == WK_VALUE_TENSOR)
        try_operand(s, n, n->args[i].node);
  }
}

static void take_sources(scheduler *s) {
  for (int32_t u = 0; u < s->count; u++) {
    const wk__group *g = s->clusters[u].joined == u ? s->clusters[u].group : NULL;
    if (!g || g->has_reduction) continue;
    take_source(s, u, wk__is_product, wk__group_take_product);
    if (!g->product) take_source(s, u, wk__is_draw, wk__group_take_draw);
  }
}

/* ---- writing the kernels ---- */

/* Where the kernel would like to stand: when the last of its nodes could run. */
static uint32_t place_of_group(const wk__group *g) {
  return g->made ? g->product->number : g->regions[g->region_count - 1]->node->number;
}

static void set_numbers(wk__graph_node *node, uint32_t number) {
  node->number = number;
  for (int k = 0; k < node->item_count; k++)
    if (node->item_nodes[k]) node->item_nodes[k]->number = number;
}

typedef struct written {
  wk__graph_node *node;
  uint32_t number;
  const wk__graph_node *draw; /* that it does; NULL */
} written;

/* The draw that stands in the kernel is not done again; what still looks at it is dead. */
static void finish_written(scheduler *s, const written *w) {
  set_numbers(w->node, w->number);
  if (!w->draw) return;
  wk__graph_replace_uses(s->graph, (wk__graph_node *)w->draw, w->node);
  wk__graph_erase(s->graph, (wk__graph_node *)w->draw);
}

/* The operator's own kernel copies whole rows. */
static bool is_plain_cat(const wk__group *g) {
  return g->region_count == 1 && g->regions[0]->node->op == WK__OP(cat) && !g->product && !g->draw;
}

/* Groups in an order in which each comes after those that it reads. The order of their last nodes is no such order, so
 * each waits for the groups before it. */
static wk_status emit_after(scheduler *s, int32_t u, wk__graph_node **now, written *list, int64_t *count, bool *done) {
  wk__graph_node *node = NULL;
  if (done[u] || !s->clusters[u].group) return WK_OK;
  done[u] = true;
  const uint64_t *bits = row(s, u);
  for (int64_t w = 0; w < s->words; w++)
    for (uint64_t left = bits[w]; left; left &= left - 1)
      WK_TRY(emit_after(s, window_of(u) + (int32_t)(w * 64) + __builtin_ctzll(left), now, list, count, done));
  s->inside_cluster = s->inside_other = u;
  if (is_plain_cat(s->clusters[u].group) || s->kernels->count >= s->kernels->limits.kernels) return WK_OK;
  wk_status status = wk__emit_group(s->graph, s->clusters[u].group, is_wanted, s, s->kernels, now, &node);
  if (status == WK_UNSUPPORTED) return WK_OK; /* its nodes stay */
  if (status != WK_OK || !node) return status;
  const wk__graph_node *draw = node->op->tags & WK__TAG_RANDOM ? s->clusters[u].group->draw : NULL;
  list[(*count)++] = (written){node, place_of_group(s->clusters[u].group), draw};
  return WK_OK;
}

static wk_status emit_groups(scheduler *s) {
  size_t n = (size_t)s->count;
  int64_t count = 0;
  wk__graph_node **now = wk__alloc_zeroed((n + 1) * (2 * sizeof *now + sizeof(written) + sizeof(bool)));
  if (!now) return WK_OUT_OF_MEMORY;
  wk__graph_node **was = now + n + 1;
  written *list = (written *)(was + n + 1);
  bool *done = (bool *)(list + n + 1);
  wk_status status = WK_OK;
  for (wk__graph_node *node = s->graph->first; node; node = node->next) now[node->number] = was[node->number] = node;
  for (int32_t u = 0; u < s->count && status == WK_OK; u++)
    if (s->clusters[u].joined == u) status = emit_after(s, u, now, list, &count, done);
  if (status == WK_OK) wk__graph_replace_numbered(s->graph, was, now, s->count);
  for (int64_t i = 0; i < count && status == WK_OK; i++) finish_written(s, &list[i]);
  wk__free(now);
  return status;
}

static wk_status fuse(scheduler *s) {
  for (int32_t u = 0; u < s->count; u++) s->clusters[u].joined = u;
  WK_TRY(find_users(s));
  WK_TRY(make_groups(s));
  s->seen = s->count;
  take_sources(s);
  make_operands(s);
  WK_TRY(emit_groups(s));
  WK_TRY(wk__graph_sort(s->graph));
  return wk__graph_remove_dead(s->graph, NULL);
}

wk_status wk__fuse(wk__graph *graph, wk__kernels *kernels) {
  wk__graph_number(graph);
  size_t n = (size_t)graph->node_count;
  scheduler s = {
      .graph = graph, .kernels = kernels, .count = graph->node_count, .words = (int64_t)(wk__min(n, WINDOW) + 63) / 64};
  s.clusters = wk__alloc_zeroed((n + 1) * sizeof *s.clusters);
  s.memories = wk__alloc_zeroed((n + 1) * sizeof *s.memories);
  s.before = wk__alloc_zeroed((n + 1) * (size_t)s.words * sizeof *s.before);
  wk_status status = s.clusters && s.memories && s.before ? fuse(&s) : WK_OUT_OF_MEMORY;
  for (int64_t u = 0; s.clusters && u < s.count; u++) wk__group_release(s.clusters[u].group);
  wk__free(s.clusters);
  wk__free(s.memories);
  wk__free(s.users);
  wk__free(s.before);
  return status;
}
