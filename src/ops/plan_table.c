/* Plans by key. A table of bounded size, which all threads share, and in front of it the plans that a thread used last,
 * which it finds without a lock: the last one of each operator, and some by hash. The first is found without the key's
 * hash, so that what follows need not wait for it.
 *
 * In: keys that plan.c makes, and new plans. Out: plans, alive at least until the thread asks for another one.
 * Invariant: each plan is in the table at most once; its references are those of the table and of threads. When the
 * table is full, a plan that was not asked for since the last round makes room. Tests: tests/c/test_ops.c. */
#include <pthread.h>

#include "ops/plan.h"

enum {
  MOST_PLANS = 4096, /* of some kilobytes each */
  SLOTS = 2 * MOST_PLANS,
  AT_HAND = 64,
};

static struct {
  pthread_mutex_t lock;
  wk__plan *slots[SLOTS]; /* open addressing */
  int count, hand;        /* the slot that is looked at next when there is no room */
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What a thread has at hand; each holds a reference. */
typedef struct plans_at_hand {
  wk__plan *last[WK__OP_COUNT]; /* by operator */
  wk__plan *plans[AT_HAND];     /* by hash */
} plans_at_hand;

static WK__THREAD_LOCAL plans_at_hand *at_hand; /* NULL until the thread's first call */

/* ---- threads ---- */

static void drop_all(wk__plan **plans, int count) {
  for (int i = 0; i < count; i++) {
    wk__plan_release(plans[i]);
    plans[i] = NULL;
  }
}
static void drop_at_hand(void *plans) {
  plans_at_hand *mine = plans;
  at_hand = NULL;
  if (!mine) return;
  drop_all(mine->last, WK__OP_COUNT);
  drop_all(mine->plans, AT_HAND);
  wk__free(mine);
}

static pthread_key_t thread_key;
static void lock_table(void) { pthread_mutex_lock(&table.lock); }
static void unlock_table(void) { pthread_mutex_unlock(&table.lock); }
static void start(void) {
  (void)pthread_key_create(&thread_key, drop_at_hand);
  pthread_atfork(lock_table, unlock_table, unlock_table);
}

/* The plan takes the place of another one. */
static void put(wk__plan **place, wk__plan *plan) {
  wk__plan *before = *place;
  atomic_fetch_add_explicit(&plan->references, 1, memory_order_relaxed);
  *place = plan;
  wk__plan_release(before);
}

static void keep_at_hand(wk__plan *plan) {
  put(&at_hand->plans[(plan->hash >> 32) % AT_HAND], plan);
  put(&at_hand->last[plan->op->number], plan);
}

static bool start_thread(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, start);
  plans_at_hand *mine = wk__alloc_zeroed(sizeof *mine);
  if (mine && pthread_setspecific(thread_key, mine) == 0) at_hand = mine;
  if (!at_hand) wk__free(mine);
  return at_hand;
}

/* ---- the table; with the lock ---- */

/* Word after word, as the key was written: wider loads would wait for that. */
static bool same_words(const wk__plan *p, const uint64_t *key, int words) {
  if (p->key_words != words) return false;
  for (int w = 0; w < words; w++)
    if (p->key[w] != key[w]) return false;
  return true;
}

static bool has_key(const wk__plan *p, const wk_op *op, const uint64_t *key, int words, uint64_t hash) {
  return p->hash == hash && p->op == op && same_words(p, key, words);
}

/* The slot that holds the plan, or the empty one where it would be put. */
static wk__plan **slot_of(const wk_op *op, const uint64_t *key, int words, uint64_t hash) {
  uint64_t at = hash % SLOTS;
  while (table.slots[at] && !has_key(table.slots[at], op, key, words, hash)) at = (at + 1) % SLOTS;
  return &table.slots[at];
}

/* Moves up the plans behind a slot that became empty, so that searches still reach them. */
static void close_gap(uint64_t gap) {
  for (uint64_t at = (gap + 1) % SLOTS; table.slots[at]; at = (at + 1) % SLOTS) {
    uint64_t wanted = table.slots[at]->hash % SLOTS;
    bool reachable = gap < at ? wanted > gap && wanted <= at : wanted > gap || wanted <= at;
    if (reachable) continue;
    table.slots[gap] = table.slots[at];
    table.slots[at] = NULL;
    gap = at;
  }
}

static void make_room(void) {
  while (table.count >= MOST_PLANS) {
    wk__plan *p = table.slots[table.hand];
    if (p && !p->used) {
      table.slots[table.hand] = NULL;
      table.count--;
      close_gap((uint64_t)table.hand);
      wk__plan_release(p);
      return; /* another plan may be in the slot now: it is looked at next time */
    }
    if (p) p->used = false;
    table.hand = (table.hand + 1) % SLOTS;
  }
}

/* ---- for plan.c ---- */

const wk__plan *wk__plan_last(const wk_op *op, const uint64_t *key, int words) {
  const wk__plan *last = at_hand ? at_hand->last[op->number] : NULL;
  return last && same_words(last, key, words) ? last : NULL;
}

const wk__plan *wk__plan_find(const wk_op *op, const uint64_t *key, int words, uint64_t hash) {
  wk__plan *hashed = at_hand ? at_hand->plans[(hash >> 32) % AT_HAND] : NULL;
  if (hashed && has_key(hashed, op, key, words, hash)) {
    put(&at_hand->last[op->number], hashed);
    return hashed;
  }
  if (!at_hand && !start_thread()) {
    wk_error_clear(); /* it is wk__plan_add's to say */
    return NULL;
  }
  lock_table();
  wk__plan *known = *slot_of(op, key, words, hash);
  if (known) {
    known->used = true;
    keep_at_hand(known);
  }
  unlock_table();
  return known;
}

const wk__plan *wk__plan_add(wk__plan *steal_plan) {
  wk__plan *plan = steal_plan;
  if (!at_hand && !start_thread()) {
    wk__plan_release(plan);
    return NULL;
  }
  lock_table();
  make_room();
  wk__plan **slot = slot_of(plan->op, plan->key, plan->key_words, plan->hash);
  bool made_twice = *slot != NULL; /* by another thread */
  if (!made_twice) {
    *slot = plan;
    table.count++;
  }
  keep_at_hand(*slot);
  const wk__plan *kept = *slot;
  unlock_table();
  if (made_twice) wk__plan_release(plan);
  return kept;
}

int64_t wk__plan_count(const wk_op *op) {
  int64_t count = 0;
  lock_table();
  for (int i = 0; i < SLOTS; i++) count += table.slots[i] && (!op || table.slots[i]->op == op);
  unlock_table();
  return count;
}

/* At exit, so that leak checkers see a clean house. */
__attribute__((destructor)) static void release_plans(void) {
  drop_at_hand(at_hand);
  for (int i = 0; i < SLOTS; i++) {
    wk__plan_release(table.slots[i]);
    table.slots[i] = NULL;
  }
  table.count = 0;
}
