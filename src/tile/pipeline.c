/* Loads some rounds ahead: for devices where memory is far away.
 *
 * In: a kernel, and how many rounds ahead each load is wanted. Out: in innermost loops with a product, each load of a
 * block whose addresses and mask can be told before its round becomes a carry, or a chain of them, that has been loaded
 * so many rounds before. Of one and two rounds:
 *
 *     for i                     ready = load(p(from))  if from < to       first = load(p(from))  if from < to
 *       x = load(p(i))     =>   for i                                     second = load(p(from + step))  if ...
 *       ... x ...                 next = load(p(i + step))  if i + ...    for i
 *     end                         ... ready ...                             next = load(p(i + 2 step))  if ...
 *                                 set ready next                            ... first ...
 *                               end                                         set first second, second next
 *
 * Carries that addresses are made of have others beside them that are as many rounds ahead. Left alone are loops that
 * write memory, or have regions in them, and addresses that need something loaded or folded. The kernel computes the
 * same. Test: tests/c/test_tile.c, tests/cuda/test_tiles.py. */
#include "tile/internal.h"

/* Values as they are in a round: 0 to WK__TILE_MOST_AHEAD: the loop's first ones, made in front of it; more than that:
 * so many beyond it ahead of the round at hand. */
enum { ROUNDS = 2 * WK__TILE_MOST_AHEAD + 1, MOST_LOADS = 8, MOST_LOOKS = 4096, DEEPEST = 24 };

typedef struct ahead {
  wk__tile_builder b;
  wk__tile begin, end, before; /* the loop, its end; where what comes before the loop goes: its first carry */
  wk__tile top;                /* the first instruction of the loop: where what is ahead goes */
  wk__tile *copies[ROUNDS];    /* (instructions before the pass) of a value in a round; 0: none yet */
  uint8_t *inside;             /* (instructions) bool: of the loop's body */
  uint8_t *seen;               /* (instructions) bool: carries of the search at hand */
  int64_t count;               /* instructions before the pass */
  int looks;                   /* at values for the load at hand: what is shared is looked at again */
} ahead;

static const wk__tile_instr *at(const ahead *a, wk__tile v) { return &a->b.kernel->instrs[v]; }

static bool is_carry_of(const ahead *a, wk__tile v) {
  if (at(a, v)->op != WK__TILE_carry) return false;
  for (wk__tile c = at(a, a->begin)->previous; c && at(a, c)->op == WK__TILE_carry; c = at(a, c)->previous)
    if (c == v) return true;
  return false;
}

static wk__tile next_of(const ahead *a, wk__tile carry) {
  for (wk__tile v = at(a, a->end)->previous; at(a, v)->op == WK__TILE_set; v = at(a, v)->previous)
    if (at(a, v)->operands[0] == carry) return at(a, v)->operands[1];
  return carry;
}

/* Computed of indices, carries that are known themselves, and what is outside, by operations that cost little. */
static bool is_known_ahead(ahead *a, wk__tile v, int depth) {
  if (v == a->begin) return true;
  if (v >= a->count || depth > DEEPEST || ++a->looks > MOST_LOOKS) return false;
  if (is_carry_of(a, v)) {
    if (a->seen[v]) return true;
    a->seen[v] = 1;
    return is_known_ahead(a, next_of(a, v), depth + 1);
  }
  if (!a->inside[v]) return true;
  switch (at(a, v)->op) {
    case WK__TILE_constant:
    case WK__TILE_range:
    case WK__TILE_map:
    case WK__TILE_cast:
    case WK__TILE_view:
    case WK__TILE_broadcast:
    case WK__TILE_permute:
    case WK__TILE_offset:
      break;
    default:
      return false;
  }
  for (int o = 0; o < 4; o++)
    if (at(a, v)->operands[o] && !is_known_ahead(a, at(a, v)->operands[o], depth + 1)) return false;
  return true;
}

/* ---- values of another round ---- */

static bool is_in_front(int round) { return round <= WK__TILE_MOST_AHEAD; }

static wk__tile add(ahead *a, int round, const wk__tile_instr *i) {
  return wk__tile_insert(&a->b, is_in_front(round) ? a->before : a->top, i);
}

static wk__tile add_carry(ahead *a, const wk__tile_type *type, wk__tile first) {
  wk__tile_instr carry = {.op = WK__TILE_carry, .type = *type, .operands = {first}};
  wk__tile v = wk__tile_insert(&a->b, a->begin, &carry);
  if (a->before == a->begin) a->before = v;
  return v;
}

static void add_set(ahead *a, wk__tile carry, wk__tile next) {
  wk__tile_instr set = {.op = WK__TILE_set, .operands = {carry, next}};
  (void)wk__tile_insert(&a->b, a->end, &set);
}

static wk__tile index_of(ahead *a, int round) {
  wk__tile_instr loop = *at(a, a->begin);
  wk__tile base = is_in_front(round) ? loop.operands[0] : a->begin;
  int64_t rounds = is_in_front(round) ? round : round - WK__TILE_MOST_AHEAD;
  if (rounds == 0) return base;
  wk__tile_instr by = *at(a, loop.operands[2]);
  by.number.i *= rounds;
  wk__tile_instr sum = {
      .op = WK__TILE_map, .map = WK__LOOP_add, .type = loop.type, .operands = {base, add(a, round, &by)}};
  return add(a, round, &sum);
}

static wk__tile copy_of(ahead *a, wk__tile v, int round);

static wk__tile carry_of(ahead *a, wk__tile v, int round) {
  wk__tile next = next_of(a, v);
  if (next == v) return is_in_front(round) ? at(a, v)->operands[0] : v;
  if (is_in_front(round)) return round == 0 ? at(a, v)->operands[0] : copy_of(a, next, round - 1);
  wk__tile_type type = at(a, v)->type;
  wk__tile carry = add_carry(a, &type, copy_of(a, v, round - WK__TILE_MOST_AHEAD));
  a->copies[round][v] = carry; /* its next value may be made of it */
  add_set(a, carry, copy_of(a, next, round));
  return carry;
}

/* The value in a round, made where it is not there. */
static wk__tile copy_of(ahead *a, wk__tile v, int round) {
  if (v == 0 || a->b.status != WK_OK) return 0;
  bool is_index = v == a->begin, is_carry = is_carry_of(a, v);
  if (!is_index && !is_carry && (v >= a->count || !a->inside[v])) return v;
  if (a->copies[round][v]) return a->copies[round][v];
  if (is_index) return a->copies[round][v] = index_of(a, round);
  if (is_carry) return a->copies[round][v] = carry_of(a, v, round);
  wk__tile_instr copy = *at(a, v);
  for (int o = 0; o < 4; o++) copy.operands[o] = copy_of(a, copy.operands[o], round);
  return a->copies[round][v] = add(a, round, &copy);
}

/* The load in a round, where there is such a round. */
static wk__tile load_of(ahead *a, wk__tile load, int round) {
  wk__tile_instr i = *at(a, load), loop = *at(a, a->begin);
  bool up = at(a, loop.operands[2])->number.i > 0;
  wk__tile_instr more = {
      .op = WK__TILE_map, .map = up ? WK__LOOP_lt : WK__LOOP_gt, .type = {.dtype = WK_BOOL, .shape = {1, 1, 1}}};
  for (int o = 0; o < 3; o++) i.operands[o] = copy_of(a, i.operands[o], round);
  more.operands[0] = copy_of(a, a->begin, round), more.operands[1] = loop.operands[1];
  wk__tile_instr mask = {.op = WK__TILE_broadcast, .type = i.type, .operands = {add(a, round, &more)}};
  mask.type.dtype = WK_BOOL;
  wk__tile all = add(a, round, &mask);
  if (i.operands[1]) {
    wk__tile_instr both = {
        .op = WK__TILE_map, .map = WK__LOOP_bit_and, .type = mask.type, .operands = {i.operands[1], all}};
    all = add(a, round, &both);
  }
  i.operands[1] = all;
  return add(a, round, &i);
}

/* ---- loops ---- */

static void remove_instr(wk__tile_kernel *k, wk__tile v) {
  k->instrs[k->instrs[v].previous].next = k->instrs[v].next;
  k->instrs[k->instrs[v].next].previous = k->instrs[v].previous;
}

/* `first`: what its first rounds load. */
static void move_ahead(ahead *a, wk__tile load, int rounds, const wk__tile *first) {
  wk__tile next = load_of(a, load, WK__TILE_MOST_AHEAD + rounds), ready[WK__TILE_MOST_AHEAD + 1];
  wk__tile_type type = at(a, load)->type;
  for (int r = 0; r < rounds; r++) ready[r] = add_carry(a, &type, first[r]);
  ready[rounds] = next;
  for (int r = 0; r < rounds; r++) add_set(a, ready[r], ready[r + 1]);
  if (a->b.status != WK_OK) return;
  wk__tile_kernel *k = a->b.kernel;
  for (wk__tile v = k->instrs[a->begin].next; v != a->end; v = k->instrs[v].next)
    for (int o = 0; o < 4; o++)
      if (k->instrs[v].operands[o] == load && v != next) k->instrs[v].operands[o] = ready[0];
  remove_instr(k, load);
}

/* The loads of the loop are fetched only where the loop allows it: -> how many there are, in `loads`. */
static int find_loads(ahead *a, wk__tile *loads) {
  int count = 0;
  bool has_product = false;
  memset(a->inside, 0, (size_t)a->count);
  for (wk__tile v = at(a, a->begin)->next; v != a->end; v = at(a, v)->next) {
    const wk__tile_instr *i = at(a, v);
    int class = wk__tile_ops[i->op].op_class;
    if ((class == WK__TILE_REGION && i->op != WK__TILE_set) || (class == WK__TILE_MEMORY && i->op != WK__TILE_load))
      return 0;
    a->inside[v] = 1;
    has_product |= i->op == WK__TILE_dot;
  }
  if (!has_product) return 0;
  for (wk__tile v = at(a, a->begin)->next; v != a->end && count < MOST_LOADS; v = at(a, v)->next) {
    const wk__tile_instr *i = at(a, v);
    bool known = i->op == WK__TILE_load && i->type.ndim > 0;
    a->looks = 0;
    memset(a->seen, 0, (size_t)a->count);
    for (int o = 0; o < 3 && known; o++)
      if (i->operands[o]) known = is_known_ahead(a, i->operands[o], 0);
    if (known) loads[count++] = v;
  }
  return count;
}

/* First rounds of all loads go before those that follow: as a device has them under way. */
static void one_loop(ahead *a, wk__tile begin, const uint8_t *wanted) {
  wk__tile loads[MOST_LOADS], first[MOST_LOADS][WK__TILE_MOST_AHEAD];
  int rounds[MOST_LOADS];
  a->begin = begin, a->end = wk__tile_region_end(a->b.kernel, begin);
  int count = find_loads(a, loads);
  if (count == 0) return;
  a->top = at(a, begin)->next, a->before = begin;
  while (at(a, at(a, a->before)->previous)->op == WK__TILE_carry) a->before = at(a, a->before)->previous;
  for (int r = 0; r < ROUNDS; r++) memset(a->copies[r], 0, (size_t)a->count * sizeof *a->copies[r]);
  for (int n = 0; n < count; n++) {
    rounds[n] = wanted && wanted[loads[n]] ? (int)wk__min(wanted[loads[n]], WK__TILE_MOST_AHEAD) : 1;
    if (a->top == loads[n]) a->top = at(a, a->top)->next;
  }
  for (int r = 0; r < WK__TILE_MOST_AHEAD; r++)
    for (int n = 0; n < count; n++)
      if (r < rounds[n]) first[n][r] = load_of(a, loads[n], r);
  for (int n = 0; n < count && a->b.status == WK_OK; n++) move_ahead(a, loads[n], rounds[n], first[n]);
}

wk_status wk__tile_load_ahead(wk__tile_kernel *k, const uint8_t *rounds) {
  ahead a = {.count = k->count};
  wk__tile_builder_init(&a.b, k);
  size_t n = (size_t)k->count;
  bool ok = (a.inside = wk__alloc_zeroed(n)) != NULL;
  ok = (a.seen = wk__alloc_zeroed(n)) != NULL && ok;
  for (int r = 0; r < ROUNDS; r++) ok = (a.copies[r] = wk__alloc(n * sizeof *a.copies[r])) != NULL && ok;
  for (wk__tile v = 1; ok && v < a.count && a.b.status == WK_OK; v++)
    if (k->instrs[v].op == WK__TILE_for) one_loop(&a, v, rounds);
  wk__free(a.inside);
  wk__free(a.seen);
  for (int r = 0; r < ROUNDS; r++) wk__free(a.copies[r]);
  if (!ok) return WK_OUT_OF_MEMORY;
  return a.b.status == WK_OK ? wk__tile_tidy(k) : a.b.status;
}

wk__tile_kernel *wk__tile_copy(const wk__tile_kernel *k) {
  wk__tile_kernel *copy = wk__tile_create();
  if (!copy) return NULL;
  bool ok = wk__grow(&copy->instrs, &copy->capacity, k->count, sizeof *copy->instrs) == WK_OK;
  if (ok) memcpy(copy->instrs, k->instrs, (size_t)k->count * sizeof *copy->instrs);
  copy->count = ok ? k->count : 1;
  copy->parameters = k->parameters, copy->warps = k->warps, copy->stages = k->stages;
  if (ok && (copy->name = wk__strdup(k->name ? k->name : "?"))) return copy;
  wk__tile_release(copy);
  return NULL;
}
