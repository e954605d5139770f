/* Which of many segments may hold at a position, found without trying each.
 * In: frames at a position of a compiled function that has more than a few segments. Out: the few whose guards are
 * worth checking. Invariant: a segment that is left out does not hold.
 *
 * A position has a tree. A leaf has segments. A branch looks at one thing that most segments below it have read and
 * checked, such as the sizes of an argument or the text in an attribute, and has a child for each outcome that they
 * expect; those that do not look at it stand in `rest`. What is looked at is the same for all because code that has
 * seen the same so far reads the same next. Leaves that have become large are split by what has most outcomes. A
 * segment that is forgotten takes the trees with it, which are grown again. Tests: tests/python/capture/test_lookup.py.
 */
#include "dynamo/reads.h"

/* What is looked at of the object that the hops lead to. */
typedef enum look {
  LOOK_VALUE,    /* type and value of a number, text, None */
  LOOK_IDENTITY, /* which object */
  LOOK_TYPE,
  LOOK_LENGTH,
  LOOK_TENSOR, /* dtype, device, sizes but for `dynamic` dims */
} look;

enum { MOST_HOPS = 8, FEW_SEGMENTS = 8, MOST_TESTS = 64 };

typedef struct test {
  wk__read hops[MOST_HOPS]; /* (hop_count) from a frame, or from `start` */
  int hop_count;
  PyObject *start; /* borrowed: a constant, as a module's dictionary; NULL: the first hop is a frame's */
  look look;
  uint64_t dynamic;
} test;

typedef struct node {
  wk__segment **segments; /* (count) borrowed, newest last: of a leaf */
  int64_t count, capacity;
  int64_t split_at; /* so many are split, or tried to */
  test *test;       /* of a branch; NULL: a leaf */
  wk__map children; /* outcome -> node */
  struct node *rest;
  struct node *made_before;
  int64_t here; /* of a root: segments below it */
} node;

struct wk__lookup {
  wk__arena arena;     /* of nodes and tests */
  node *nodes;         /* the newest */
  wk__map roots;       /* hash of a position -> node */
  wk__segment *newest; /* borrowed: of those that are in the trees */
  int walkers;         /* looking at something may run Python code, which may forget segments */
  bool dropped;
};

/* ==================================================== outcomes =================================================== */

/* 0: of a kind that is not told apart by its value. Equal values have equal hashes. */
static uint64_t hash_of_value(PyObject *o) {
  bool known = o == Py_None || PyBool_Check(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o) ||
               PyUnicode_CheckExact(o) || PyBytes_CheckExact(o);
  if (!known) return 0;
  if (PyFloat_CheckExact(o)) {
    double number = PyFloat_AS_DOUBLE(o);
    return wk__hash_bytes(&number, sizeof number, 5) | 1;
  }
  Py_hash_t hash = PyObject_Hash(o);
  if (hash == -1) PyErr_Clear();
  return wk__hash_mix((uint64_t)(uintptr_t)Py_TYPE(o), (uint64_t)hash) | 1;
}

static uint64_t hash_of_address(const void *o) { return wk__hash_mix(2, (uint64_t)(uintptr_t)o) | 1; }
static uint64_t hash_of_length(int64_t length) { return wk__hash_mix(3, (uint64_t)length) | 1; }

static uint64_t hash_of_kind(const PyTypeObject *type, uint8_t dtype, uint8_t ndim, wk__keys keys) {
  uint64_t h = wk__hash_mix((uint64_t)(uintptr_t)type, (uint64_t)dtype << 8 | ndim);
  return wk__hash_mix(h, (uint64_t)(keys & WK__KEY_AUTOGRAD));
}
static uint64_t with_size(uint64_t h, int64_t size) { return wk__hash_mix(h, (uint64_t)size); }

static uint64_t hash_of_spec(const wk__tensor_spec *spec) {
  uint64_t h = hash_of_kind(spec->type, spec->dtype, spec->ndim, spec->keys);
  for (int d = 0; d < spec->ndim; d++)
    if (!(spec->dynamic >> d & 1)) h = with_size(h, spec->dims[d].size);
  return h | 1;
}
static uint64_t hash_of_tensor(const wk__binding *b, PyObject *o, uint64_t dynamic) {
  if (!PyObject_TypeCheck(o, b->tensor_type)) return 0;
  const wk_tensor *t = b->tensor_of(o);
  uint64_t h = hash_of_kind(Py_TYPE(o), t->dtype, t->ndim, t->keys);
  for (int d = 0; d < t->ndim; d++)
    if (!(dynamic >> d & 1)) h = with_size(h, t->sizes[d].bits);
  return h | 1;
}

/* What the test finds here; 0: nothing. */
static uint64_t outcome_here(const test *t, wk__activation *const *frames, const wk__binding *b) {
  PyObject *o = t->start;
  for (int i = 0; i < t->hop_count; i++)
    if (!(o = wk__from_frame_or_object(frames, &t->hops[i], o))) return 0;
  switch (t->look) {
    case LOOK_VALUE:
      return hash_of_value(o);
    case LOOK_IDENTITY:
      return hash_of_address(o);
    case LOOK_TYPE:
      return hash_of_address(Py_TYPE(o));
    case LOOK_LENGTH:
      return hash_of_length(wk__length_of(o));
    case LOOK_TENSOR:
      return hash_of_tensor(b, o, t->dynamic);
  }
  return 0;
}

/* ============================================ what a segment looks at ============================================ */

typedef bool visit_read(void *context, const wk__read *read);

/* The reads and checks of a segment until one is the wanted one. */
static const wk__read *first_read(const wk__segment *g, visit_read *wanted, void *context) {
  for (int64_t i = 0; i < g->read_count; i++)
    if (wanted(context, &g->reads[i])) return &g->reads[i];
  for (int64_t i = 0; i < g->fixed_count; i++)
    if (wanted(context, &g->fixed[i])) return &g->fixed[i];
  return NULL;
}

static bool is_of_frame(const wk__read *read) {
  return read->kind == WK__READ_SLOT || read->kind == WK__READ_STACK || read->kind == WK__READ_FUNCTION;
}
static bool is_hop(const wk__read *read) {
  switch (read->kind) {
    case WK__READ_DICT:
      return read->object && PyUnicode_CheckExact(read->object);
    case WK__READ_SLOT:
    case WK__READ_STACK:
    case WK__READ_FUNCTION:
    case WK__READ_CELL:
    case WK__READ_ITEM:
    case WK__READ_INSTANCE:
    case WK__READ_CLOSURE:
    case WK__READ_DEFAULTS:
      return true;
    default:
      return false;
  }
}

static bool makes_register(void *context, const wk__read *read) { return read->dest == *(wk__reg *)context; }

/* How a register is found from a frame or a constant. False: in another way. */
static bool describe_way(const wk__segment *g, wk__reg reg, test *out) {
  wk__read backwards[MOST_HOPS];
  int count = 0;
  out->start = NULL;
  for (;;) {
    const wk__register *known = &g->recording->registers[reg];
    if (known->kind == WK__REG_CONSTANT && count) {
      out->start = known->object;
      break;
    }
    const wk__read *read = first_read(g, makes_register, &reg);
    if (!read || !is_hop(read) || count == MOST_HOPS) return false;
    backwards[count++] = *read;
    if (is_of_frame(read)) break;
    reg = read->a;
  }
  out->hop_count = count;
  for (int i = 0; i < count; i++) out->hops[i] = backwards[count - 1 - i];
  return true;
}

typedef struct next_hop {
  const wk__segment *segment;
  const wk__read *like;
  wk__reg from;
  PyObject *start; /* from < 0, and no hop of a frame */
} next_hop;

static bool is_same_key(PyObject *a, PyObject *b) {
  if (a == b) return true;
  return a && b && PyUnicode_CheckExact(a) && PyUnicode_CheckExact(b) && PyUnicode_Compare(a, b) == 0;
}

static bool is_same_hop(void *context, const wk__read *read) {
  const next_hop *n = context;
  if (read->dest < 0 || read->kind != n->like->kind || read->b != n->like->b) return false;
  if (!is_same_key(read->object, n->like->object)) return false;
  if (is_of_frame(read)) return read->a == n->like->a;
  if (n->from >= 0) return read->a == n->from;
  const wk__register *known = &n->segment->recording->registers[read->a];
  return known->kind == WK__REG_CONSTANT && known->object == n->start;
}

/* The register that the test's way leads to in this segment; -1: it does not go there. */
static wk__reg register_behind(const wk__segment *g, const test *t) {
  next_hop next = {.segment = g, .from = -1, .start = t->start};
  for (int i = 0; i < t->hop_count; i++) {
    next.like = &t->hops[i];
    const wk__read *read = first_read(g, is_same_hop, &next);
    if (!read) return -1;
    next.from = read->dest;
  }
  return next.from;
}

static bool is_known_by_identity(const wk__binding *b, PyObject *o) {
  return PyModule_Check(o) || PyType_Check(o) || PyFunction_Check(o) || PyObject_TypeCheck(o, b->module_type);
}

/* What a check, or a read to a register with a certain object, expects; 0: nothing that a test can look at. */
static uint64_t expected_by(const wk__segment *g, const wk__binding *b, const wk__read *read, look *out_look,
                            uint64_t *out_dynamic) {
  *out_dynamic = 0;
  switch (read->kind) {
    case WK__CHECK_EQUAL:
      *out_look = LOOK_VALUE;
      return hash_of_value(read->object);
    case WK__CHECK_IS:
      *out_look = LOOK_IDENTITY;
      return hash_of_address(read->object);
    case WK__CHECK_TYPE:
      *out_look = LOOK_TYPE;
      return hash_of_address(read->object);
    case WK__CHECK_LENGTH:
      *out_look = LOOK_LENGTH;
      return hash_of_length(read->b);
    case WK__CHECK_TENSOR:
      *out_look = LOOK_TENSOR;
      *out_dynamic = g->recording->specs[read->b]->dynamic;
      return hash_of_spec(g->recording->specs[read->b]);
    default:
      break;
  }
  PyObject *object =
      read->dest >= 0 && g->recording->registers[read->dest].fixed ? g->recording->registers[read->dest].object : NULL;
  if (!object) return 0;
  bool identity = is_known_by_identity(b, object);
  *out_look = identity ? LOOK_IDENTITY : LOOK_VALUE;
  return identity ? hash_of_address(object) : hash_of_value(object);
}

typedef struct expectation {
  const wk__segment *segment;
  const wk__binding *binding;
  const test *test;
  wk__reg reg;
  uint64_t outcome;
} expectation;

static bool is_expectation(void *context, const wk__read *read) {
  expectation *e = context;
  look found;
  uint64_t dynamic;
  if ((read->dest >= 0 ? read->dest : read->a) != e->reg) return false;
  uint64_t outcome = expected_by(e->segment, e->binding, read, &found, &dynamic);
  if (!outcome || found != e->test->look || dynamic != e->test->dynamic) return false;
  e->outcome = outcome;
  return true;
}

/* What the segment expects of the test; 0: it does not look at that. */
static uint64_t outcome_of(const wk__segment *g, const wk__binding *b, const test *t) {
  expectation e = {.segment = g, .binding = b, .test = t, .reg = register_behind(g, t)};
  return e.reg >= 0 && first_read(g, is_expectation, &e) ? e.outcome : 0;
}

/* ==================================================== the trees ================================================== */

static node *new_node(wk__lookup *l) {
  node *n = wk__arena_alloc(&l->arena, sizeof *n);
  if (!n) return NULL;
  *n = (node){.split_at = FEW_SEGMENTS + 1, .made_before = l->nodes};
  return l->nodes = n;
}

static void free_lookup(wk__lookup *l) {
  for (node *n = l->nodes; n; n = n->made_before) {
    wk__map_release(&n->children);
    wk__free(n->segments);
  }
  wk__map_release(&l->roots);
  wk__arena_release(&l->arena);
  wk__free(l);
}

void wk__lookup_drop(wk__compiled *c) {
  wk__lookup *l = c->lookup;
  c->lookup = NULL;
  if (!l) return;
  if (l->walkers)
    l->dropped = true;
  else
    free_lookup(l);
}

/* How many outcomes the segments of a leaf expect of the test; 0: most do not look at that. */
static int outcomes_in(const node *leaf, const wk__binding *b, const test *t) {
  wk__map seen = {0};
  int64_t without = 0, distinct = 0;
  for (int64_t i = 0; i < leaf->count; i++) {
    uint64_t outcome = outcome_of(leaf->segments[i], b, t);
    without += !outcome;
    if (!outcome || wk__map_get(&seen, outcome)) continue;
    if (wk__map_set(&seen, outcome, leaf->segments[i]) != WK_OK) wk_error_clear();
    distinct++;
  }
  wk__map_release(&seen);
  return without * 2 > leaf->count ? 0 : (int)distinct;
}

typedef struct choice {
  const node *leaf;
  const wk__segment *segment;
  const wk__binding *binding;
  int tried, outcomes; /* of the best so far */
  test best;
} choice;

static bool consider(void *context, const wk__read *read) {
  choice *c = context;
  test t;
  bool looks = expected_by(c->segment, c->binding, read, &t.look, &t.dynamic);
  if (looks && describe_way(c->segment, read->dest >= 0 ? read->dest : read->a, &t)) {
    c->tried++;
    int outcomes = outcomes_in(c->leaf, c->binding, &t);
    if (outcomes > c->outcomes) {
      c->outcomes = outcomes;
      c->best = t;
    }
  }
  return c->outcomes == c->leaf->count || c->tried == MOST_TESTS;
}

static bool insert(wk__lookup *l, node *n, const wk__binding *b, wk__segment *g);

static bool insert_below(wk__lookup *l, node *n, const wk__binding *b, wk__segment *g) {
  uint64_t outcome = outcome_of(g, b, n->test);
  node *child = outcome ? wk__map_get(&n->children, outcome) : n->rest;
  if (child) return insert(l, child, b, g);
  if (!(child = new_node(l))) return false;
  if (!outcome)
    n->rest = child;
  else if (wk__map_set(&n->children, outcome, child) != WK_OK)
    return false;
  return insert(l, child, b, g);
}

/* A leaf becomes a branch, where something tells its segments apart. */
static bool split(wk__lookup *l, node *n, const wk__binding *b) {
  choice c = {.leaf = n, .segment = n->segments[n->count - 1], .binding = b, .outcomes = 1};
  (void)first_read(c.segment, consider, &c);
  n->split_at = 2 * n->count;
  if (c.outcomes < 2) return true;
  if (!(n->test = wk__arena_alloc(&l->arena, sizeof *n->test))) return false;
  *n->test = c.best;
  bool inserted = true;
  for (int64_t i = 0; i < n->count; i++) inserted = inserted && insert_below(l, n, b, n->segments[i]);
  n->count = 0;
  return inserted;
}

static bool insert(wk__lookup *l, node *n, const wk__binding *b, wk__segment *g) {
  if (n->test) return insert_below(l, n, b, g);
  if (wk__grow(&n->segments, &n->capacity, n->count + 1, sizeof *n->segments) != WK_OK) return false;
  n->segments[n->count++] = g;
  return n->count < n->split_at || split(l, n, b);
}

static uint64_t hash_of_place(uint64_t h, const PyCodeObject *code, int offset) {
  return wk__hash_mix(wk__hash_mix(h, (uint64_t)(uintptr_t)code), (uint64_t)offset) | 1;
}

static node *root_of(wk__lookup *l, const wk__segment *g) {
  uint64_t h = 1;
  for (int i = 0; i < g->frame_count; i++) h = hash_of_place(h, g->codes[i], g->offsets[i]);
  node *root = wk__map_get(&l->roots, h);
  if (root) return root;
  root = new_node(l);
  return root && wk__map_set(&l->roots, h, root) == WK_OK ? root : NULL;
}

/* Those that are newer than `end`, older ones first. False: out of memory. */
static bool grow_trees(wk__lookup *l, const wk__binding *b, wk__segment *newest, const wk__segment *end) {
  wk__segment **fresh = NULL;
  int64_t count = 0, capacity = 0;
  bool grown = true;
  for (wk__segment *g = newest; grown && g != end; g = g->next) {
    grown = wk__grow(&fresh, &capacity, count + 1, sizeof *fresh) == WK_OK;
    if (grown) fresh[count++] = g;
  }
  while (grown && count--) {
    node *root = root_of(l, fresh[count]);
    grown = root && insert(l, root, b, fresh[count]);
    if (grown) root->here++;
  }
  wk__free(fresh);
  return grown;
}

/* All segments are in the trees; NULL: out of memory. */
static wk__lookup *grown_lookup(wk__compiled *c) {
  if (!c->lookup && !(c->lookup = wk__alloc_zeroed(sizeof *c->lookup))) return NULL;
  if (c->lookup->newest == c->segments) return c->lookup;
  if (!grow_trees(c->lookup, c->binding, c->segments, c->lookup->newest)) {
    wk_error_clear();
    wk__lookup_drop(c);
    return NULL;
  }
  c->lookup->newest = c->segments;
  return c->lookup;
}

/* ==================================================== finding ==================================================== */

/* False: there are more than `out` has room for. */
static bool collect(const node *n, wk__activation *const *frames, const wk__binding *b, wk__candidates *out) {
  for (; n && n->test; n = n->rest) {
    uint64_t outcome = outcome_here(n->test, frames, b);
    const node *child = outcome ? wk__map_get(&n->children, outcome) : NULL;
    if (child && !collect(child, frames, b, out)) return false;
  }
  for (int64_t i = n ? n->count : 0; i-- > 0;) {
    if (out->count == WK__MOST_CANDIDATES) return false;
    out->segments[out->count++] = n->segments[i];
  }
  return true;
}

bool wk__lookup_find(wk__compiled *c, const wk__session *s, wk__activation *const *frames, wk__candidates *out) {
  out->count = 0;
  wk__lookup *l = c->segment_count > FEW_SEGMENTS ? grown_lookup(c) : NULL;
  if (!l) return false;
  uint64_t h = 1;
  for (int i = 0; i <= s->innermost->depth; i++) {
    const wk__frame *f = &frames[i]->frame;
    h = hash_of_place(h, f->code, frames[i] == s->innermost ? f->next : f->offset);
  }
  const node *root = wk__map_get(&l->roots, h);
  out->here = root ? root->here : 0;
  l->walkers++;
  bool all = collect(root, frames, s->binding, out);
  l->walkers--;
  bool dropped = l->dropped;
  if (dropped && !l->walkers) free_lookup(l);
  if (!all || dropped) return false;
  for (int i = 0; i < out->count; i++) atomic_fetch_add(&out->segments[i]->references, 1);
  return true;
}
