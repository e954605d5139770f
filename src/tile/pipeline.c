/* Loads one round ahead: for devices where memory is far away.
 *
 * In: a kernel. Out: in innermost loops with a product, each load of a block whose addresses and mask can be told a
 * round before becomes a carry, which the round before has loaded:
 *
 *     for i                     ready = load(p(from))  if from < to
 *       x = load(p(i))     =>   for i
 *       ... x ...                 next = load(p(i + step))  if i + step < to
 *     end                         ... ready ...
 *                                 set ready next
 *                               end
 *
 * Left alone are loops that write memory, or have regions in them, and addresses that need something loaded or folded.
 * The kernel computes the same. Test: tests/c/test_tile.c, tests/cuda/test_tiles.py. */
#include "tile/internal.h"

enum { NOW, NEXT_ROUND, FIRST_ROUND, ROUNDS };

typedef struct ahead {
  wk__tile_builder b;
  wk__tile begin, end, before; /* the loop, its end; where what comes before the loop goes: its first carry */
  wk__tile top;                /* the first instruction of the loop: where the next round's go */
  wk__tile *copies[ROUNDS];    /* (instructions before the pass) of a value in a round; 0: none yet */
  uint8_t *inside;             /* (instructions) bool: of the loop's body */
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

/* Computed of indices, carries and what is outside alone, by operations that cost little. */
static bool is_known_ahead(ahead *a, wk__tile v, bool next, int depth) {
  if (v == a->begin) return true;
  if (is_carry_of(a, v)) return !next || (next_of(a, v) == v) || is_known_ahead(a, next_of(a, v), false, depth + 1);
  if (v >= a->count || !a->inside[v]) return v < a->count;
  if (depth > 24 || ++a->looks > 4096) return false;
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
    if (at(a, v)->operands[o] && !is_known_ahead(a, at(a, v)->operands[o], next, depth + 1)) return false;
  return true;
}

static wk__tile place_of_round(const ahead *a, int round) { return round == FIRST_ROUND ? a->before : a->top; }

static wk__tile add(ahead *a, int round, const wk__tile_instr *i) {
  return wk__tile_insert(&a->b, place_of_round(a, round), i);
}

/* The value in a round, made where it is not there. */
static wk__tile copy_of(ahead *a, wk__tile v, int round) {
  if (v == 0 || a->b.status != WK_OK) return 0;
  if (v == a->begin) {
    if (round == NOW) return v;
    if (round == FIRST_ROUND) return at(a, v)->operands[0];
    if (a->copies[round][v]) return a->copies[round][v];
    wk__tile_instr next = {
        .op = WK__TILE_map, .map = WK__LOOP_add, .type = at(a, v)->type, .operands = {v, at(a, v)->operands[2]}};
    return a->copies[round][v] = add(a, round, &next);
  }
  if (is_carry_of(a, v)) {
    if (round == NOW) return v;
    return round == FIRST_ROUND ? at(a, v)->operands[0] : copy_of(a, next_of(a, v), NOW);
  }
  if (v >= a->count || !a->inside[v]) return v;
  if (a->copies[round][v]) return a->copies[round][v];
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

static void remove_instr(wk__tile_kernel *k, wk__tile v) {
  k->instrs[k->instrs[v].previous].next = k->instrs[v].next;
  k->instrs[k->instrs[v].next].previous = k->instrs[v].previous;
}

static void move_ahead(ahead *a, wk__tile load) {
  wk__tile first = load_of(a, load, FIRST_ROUND), next = load_of(a, load, NEXT_ROUND);
  wk__tile_instr carry = {.op = WK__TILE_carry, .type = at(a, load)->type, .operands = {first}};
  wk__tile ready = wk__tile_insert(&a->b, a->begin, &carry);
  wk__tile_instr set = {.op = WK__TILE_set, .operands = {ready, next}};
  (void)wk__tile_insert(&a->b, a->end, &set);
  if (a->b.status != WK_OK) return;
  wk__tile_kernel *k = a->b.kernel;
  for (wk__tile v = k->instrs[a->begin].next; v != a->end; v = k->instrs[v].next)
    for (int o = 0; o < 4; o++)
      if (k->instrs[v].operands[o] == load && v != next) k->instrs[v].operands[o] = ready;
  remove_instr(k, load);
}

/* The loads of the loop are fetched only where the loop allows it: -> how many there are, in `loads`. */
static int find_loads(ahead *a, wk__tile *loads, int most) {
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
  for (wk__tile v = at(a, a->begin)->next; v != a->end && count < most; v = at(a, v)->next) {
    const wk__tile_instr *i = at(a, v);
    bool known = i->op == WK__TILE_load && i->type.ndim > 0;
    a->looks = 0;
    for (int o = 0; o < 3 && known; o++)
      if (i->operands[o]) known = is_known_ahead(a, i->operands[o], true, 0);
    if (known) loads[count++] = v;
  }
  return count;
}

static void one_loop(ahead *a, wk__tile begin) {
  enum { MOST = 8 };
  wk__tile loads[MOST];
  a->begin = begin, a->end = wk__tile_region_end(a->b.kernel, begin);
  int count = find_loads(a, loads, MOST);
  if (count == 0) return;
  a->top = at(a, begin)->next, a->before = begin;
  while (at(a, at(a, a->before)->previous)->op == WK__TILE_carry) a->before = at(a, a->before)->previous;
  for (int r = 0; r < ROUNDS; r++) memset(a->copies[r], 0, (size_t)a->count * sizeof *a->copies[r]);
  for (int n = 0; n < count && a->b.status == WK_OK; n++) {
    if (a->top == loads[n]) a->top = at(a, a->top)->next;
    move_ahead(a, loads[n]);
  }
}

wk_status wk__tile_load_ahead(wk__tile_kernel *k) {
  ahead a = {.count = k->count};
  wk__tile_builder_init(&a.b, k);
  bool ok = (a.inside = wk__alloc_zeroed((size_t)k->count)) != NULL;
  for (int r = 0; r < ROUNDS; r++) ok = (a.copies[r] = wk__alloc((size_t)k->count * sizeof *a.copies[r])) != NULL && ok;
  for (wk__tile v = 1; ok && v < a.count && a.b.status == WK_OK; v++)
    if (k->instrs[v].op == WK__TILE_for) one_loop(&a, v);
  wk__free(a.inside);
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
  copy->parameters = k->parameters, copy->warps = k->warps;
  if (ok && (copy->name = wk__strdup(k->name ? k->name : "?"))) return copy;
  wk__tile_release(copy);
  return NULL;
}
