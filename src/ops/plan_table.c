/* Plans by key. A table of bounded size, which all threads share, and in front of it the plans that a thread used last,
 * which it finds without a lock.
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

static _Thread_local struct {
  wk__plan *plans[AT_HAND]; /* by hash; each holds a reference */
  bool registered;
} thread;

/* ---- threads ---- */

static void drop_at_hand(void *unused) {
  (void)unused;
  for (int i = 0; i < AT_HAND; i++) {
    wk__plan_release(thread.plans[i]);
    thread.plans[i] = NULL;
  }
}

static pthread_key_t thread_key;
static void lock_table(void) { pthread_mutex_lock(&table.lock); }
static void unlock_table(void) { pthread_mutex_unlock(&table.lock); }
static void start(void) {
  (void)pthread_key_create(&thread_key, drop_at_hand);
  pthread_atfork(lock_table, unlock_table, unlock_table);
}

/* The plan takes the place of another one that is at hand. */
static void keep_at_hand(wk__plan *plan) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (!thread.registered) {
    pthread_once(&once, start);
    thread.registered = pthread_setspecific(thread_key, &thread) == 0;
  }
  wk__plan **place = &thread.plans[(plan->hash >> 32) % AT_HAND], *before = *place;
  atomic_fetch_add_explicit(&plan->references, 1, memory_order_relaxed);
  *place = plan;
  wk__plan_release(before);
}

/* ---- the table; with the lock ---- */

static bool has_key(const wk__plan *p, const wk_op *op, const uint64_t *key, int words, uint64_t hash) {
  return p->hash == hash && p->op == op && p->key_words == words &&
         memcmp(p->key, key, (size_t)words * sizeof *key) == 0;
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

const wk__plan *wk__plan_find(const wk_op *op, const uint64_t *key, int words, uint64_t hash) {
  wk__plan *at_hand = thread.plans[(hash >> 32) % AT_HAND];
  if (WK_LIKELY(at_hand && has_key(at_hand, op, key, words, hash))) return at_hand;
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
  drop_at_hand(NULL);
  for (int i = 0; i < SLOTS; i++) {
    wk__plan_release(table.slots[i]);
    table.slots[i] = NULL;
  }
  table.count = 0;
}
