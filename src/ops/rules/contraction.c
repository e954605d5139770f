/* The product of two labelled tensors as one matrix product. In: tensors whose dims are labels. Out: calls of sum, mul,
 * mm and bmm, with the result's memory laid out as PyTorch lays it out. Tests: tests/ops/ (einsum, tensordot),
 * tests/python/test_einsum.py. */
#include "ops/rules/contraction.h"

#include <math.h>

#include "wick/operators.h"

static wk_int size_of(const wk__labelled *x, int k) { return x->t->sizes[wk__dim_of_label(x->labels, k)]; }

wk_status wk__sum_labels(wk__labelled *x, wk__labels gone) {
  wk_int dims[WK_MAX_DIMS];
  int n = 0;
  gone &= x->labels;
  if (!gone) return WK_OK;
  WK__EACH_LABEL(k, gone) dims[n++] = wk_int_of(wk__dim_of_label(x->labels, k));
  x->t = wk_sum_dim_IntList(x->t, dims, n, false, WK_DTYPE_NONE);
  x->labels &= ~gone;
  return x->t ? WK_OK : wk_error_category();
}

/* Those of which x has more, or less, than one place. */
static wk__labels wide(const wk__labelled *x) {
  wk__labels found = 0;
  WK__EACH_LABEL(k, x->labels) if (!wk_int_eq(size_of(x, k), wk_int_of(1))) found |= wk__label(k);
  return found;
}

/* A dim for each of `all`, of size 1 where x has none. */
static wk_tensor *spread(const wk__labelled *x, wk__labels all) {
  wk_tensor *t = x->t;
  WK__EACH_LABEL(k, all & ~x->labels) if (t) t = wk_unsqueeze(t, wk__dim_of_label(all, k));
  return t;
}

/* x as (batch, first, second), each of them the labels of a set in one dim; what is in none has size 1. */
static wk_tensor *matrices(const wk__labelled *x, wk__labels batch, wk__labels first, wk__labels second) {
  const wk__labels groups[] = {batch, first, second, ~(batch | first | second)};
  wk_int dims[WK_MAX_DIMS], sizes[3];
  int n = 0;
  for (int g = 0; g < 4; g++) {
    if (g < 3) sizes[g] = wk_int_of(1);
    WK__EACH_LABEL(k, groups[g] & x->labels) {
      dims[n++] = wk_int_of(wk__dim_of_label(x->labels, k));
      if (g < 3) sizes[g] = wk_int_mul(sizes[g], size_of(x, k));
    }
  }
  bool plain = !batch; /* no batch: a matrix */
  return wk_reshape(wk_permute(x->t, dims, n), sizes + plain, 3 - plain);
}

/* The product (batch, rows, columns) with a dim for each label, and these in order. `inner` is summed over. */
static wk_status product(wk__labelled a, wk__labelled b, wk__labels batch, wk__labels inner, wk__labels rows,
                         wk__labelled *out) {
  wk__labels all = (a.labels | b.labels) & ~inner, columns = all & ~batch & ~rows;
  wk_tensor *left = matrices(&a, batch, rows, inner), *right = matrices(&b, batch, inner, columns);
  wk_tensor *t = batch ? wk_bmm(left, right) : wk_mm(left, right);
  const wk__labels groups[] = {batch, rows, columns};
  wk_int sizes[WK_MAX_DIMS], order[WK_MAX_DIMS];
  int n = 0;
  if (!t) return wk_error_category();
  for (int g = 0; g < 3; g++) WK__EACH_LABEL(k, groups[g]) {
      const wk__labelled *has = a.labels >> k & 1 && !(b.labels >> k & 1 && g == 2) ? &a : &b;
      order[wk__dim_of_label(all, k)] = wk_int_of(n);
      sizes[n++] = size_of(has, k);
    }
  out->t = wk_permute(wk_reshape(t, sizes, n), order, n);
  out->labels = all;
  return out->t ? WK_OK : wk_error_category();
}

/* The labels' dims of x; how many there are. */
static int dims_of(const wk__labelled *x, wk__labels set, wk_int *out) {
  int n = 0;
  WK__EACH_LABEL(k, set & x->labels) out[n++] = wk_int_of(wk__dim_of_label(x->labels, k));
  return n;
}
/* The same where no matrices are left: `gone` has size 1 in one of the two, so that a product of sums remains. These
 * dims stay until the end, as in PyTorch, since they decide how the result lies in memory. */
static wk_status product_of_sums(wk__labelled a, wk__labelled b, wk__labels gone, wk__labels wide_a, wk__labels wide_b,
                                 wk__labelled *out) {
  wk_int dims[WK_MAX_DIMS];
  wk__labels all = a.labels | b.labels;
  int n = dims_of(&a, gone & wide_a, dims);
  if (n) a.t = wk_sum_dim_IntList(a.t, dims, n, true, WK_DTYPE_NONE);
  n = dims_of(&b, gone & wide_b, dims);
  if (n) b.t = wk_sum_dim_IntList(b.t, dims, n, true, WK_DTYPE_NONE);
  if (!a.t || !b.t) return wk_error_category();
  *out = (wk__labelled){wk_mul(spread(&a, all), spread(&b, all)), all};
  n = dims_of(out, gone, dims);
  if (n) out->t = wk_squeeze_dims(out->t, dims, n);
  out->labels &= ~gone;
  return out->t ? WK_OK : wk_error_category();
}

wk_status wk__contract(wk__labelled a, wk__labelled b, wk__labels keep, wk__labelled *out) {
  WK_TRY(wk__sum_labels(&a, a.labels & ~b.labels & ~keep));
  WK_TRY(wk__sum_labels(&b, b.labels & ~a.labels & ~keep));
  wk__labels wide_a = wide(&a), wide_b = wide(&b), gone = a.labels & b.labels & ~keep, inner = gone & wide_a & wide_b;
  if (!inner) return product_of_sums(a, b, gone, wide_a, wide_b, out);
  WK_TRY(wk__sum_labels(&a, gone & ~inner)); /* broadcast: the sum of a product is the product of sums */
  WK_TRY(wk__sum_labels(&b, gone & ~inner));
  wk__labels all = a.labels | b.labels, batch = wide_a & wide_b & keep, rows = wide_a & keep & ~batch;
  wk__labels columns = all & ~inner & ~batch & ~rows;
  bool columns_first = rows && columns && columns < wk__label(wk__least_label(rows)); /* as PyTorch lays it out */
  if (!columns_first) return product(a, b, batch, inner, rows, out);
  return product(b, a, batch, inner, columns & b.labels, out);
}

/* ---- the order ---- */

enum { MOST_EXACT = 8 };

typedef struct orders {
  double size[WK__MOST_LABELS];
  wk__labels keep;
  int (*steps)[2];
  int step_count;
} orders;

static double volume(const orders *o, wk__labels s) {
  double n = 1;
  WK__EACH_LABEL(k, s) n *= o->size[k];
  return n;
}

/* best[S]: how S, a set of tensors as bits, is cut in two so that its product takes the fewest multiplications. */
typedef struct cut {
  double cost;
  uint32_t part;
  wk__labels inside; /* the labels of its tensors */
} cut;

static int emit(orders *o, const cut *best, uint32_t set) {
  if (!(set & (set - 1))) return __builtin_ctz(set);
  int a = emit(o, best, best[set].part), b = emit(o, best, set & ~best[set].part);
  o->steps[o->step_count][0] = a, o->steps[o->step_count++][1] = b;
  return a;
}

/* The labels of a product of `set` that something outside of it, or the result, still has. */
static wk__labels left_of(const orders *o, const cut *best, uint32_t set, uint32_t all) {
  return best[set].inside & (o->keep | best[all & ~set].inside);
}

static void order_exactly(orders *o, const wk__labelled *x, int count) {
  cut best[1 << MOST_EXACT] = {{0}};
  uint32_t all = (1u << count) - 1;
  for (uint32_t set = 1; set <= all; set++) {
    int first = __builtin_ctz(set);
    best[set].inside = x[first].labels | best[set & (set - 1)].inside;
  }
  for (uint32_t set = 1; set <= all; set++) {
    uint32_t least = set & -set;
    if (set == least) continue;
    best[set].cost = INFINITY;
    for (uint32_t part = (set - 1) & set; part; part = (part - 1) & set) {
      if (!(part & least)) continue; /* the other half of a cut */
      double work = volume(o, left_of(o, best, part, all) | left_of(o, best, set & ~part, all));
      double cost = best[part].cost + best[set & ~part].cost + work;
      if (cost <= best[set].cost) best[set].cost = cost, best[set].part = part;
    }
  }
  emit(o, best, all);
}

/* live: the labels of what is left in each place; those of an empty place are never looked at. */
static void order_greedily(orders *o, wk__labels *live, int *place, int count) {
  for (int n = count; n > 1; n--) {
    double least = INFINITY;
    int at[2] = {0, 1};
    wk__labels made = 0;
    for (int i = 0; i < n; i++)
      for (int j = i + 1; j < n; j++) {
        wk__labels others = o->keep;
        for (int k = 0; k < n; k++)
          if (k != i && k != j) others |= live[place[k]];
        wk__labels union_of = live[place[i]] | live[place[j]], result = union_of & others;
        double grown = volume(o, result) - volume(o, live[place[i]]) - volume(o, live[place[j]]);
        if (grown < least) least = grown, at[0] = i, at[1] = j, made = result;
      }
    o->steps[o->step_count][0] = place[at[0]], o->steps[o->step_count++][1] = place[at[1]];
    live[place[at[0]]] = made;
    for (int k = at[1]; k + 1 < n; k++) place[k] = place[k + 1];
  }
}

wk_status wk__contraction_order(const wk__labelled *x, int count, wk__labels keep, int (*steps)[2]) {
  orders o = {.keep = keep, .steps = steps};
  for (int k = 0; k < WK__MOST_LABELS; k++) o.size[k] = 1;
  for (int i = 0; i < count; i++) WK__EACH_LABEL(k, x[i].labels) {
      double n = (double)wk__shown(size_of(&x[i], k));
      if (n != 1) o.size[k] = n;
    }
  if (count <= MOST_EXACT) {
    order_exactly(&o, x, count);
    return WK_OK;
  }
  wk__labels *live = wk__alloc((size_t)count * sizeof *live);
  int *place = wk__alloc((size_t)count * sizeof *place);
  if (live && place) {
    for (int i = 0; i < count; i++) live[i] = x[i].labels, place[i] = i;
    order_greedily(&o, live, place, count);
  }
  bool done = live && place;
  wk__free(live), wk__free(place);
  return done ? WK_OK : WK_OUT_OF_MEMORY;
}
