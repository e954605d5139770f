/* einsum: "bij,bjk->bik". In: an equation and its operands. Out: the operands as labelled tensors (contraction.h),
 * whose labels are numbered as the result has them, multiplied in pairs in the order of the least work, or that of
 * `path`. Tests: tests/ops/, tests/python/test_einsum.py, tests/parity/test_functional_parity.py. */
#include <ctype.h>

#include "ops/rules.h"
#include "ops/rules/composite.h"
#include "ops/rules/contraction.h"
#include "wick/operators.h"

/* What stands at a dim: a letter, A-Z then a-z, or a dim that the ellipsis stands for, counted from the right. */
enum { LETTERS = 52, HIDDEN_END = LETTERS + WK_MAX_DIMS, SUBSCRIPTS = HIDDEN_END };
_Static_assert((int)SUBSCRIPTS <= (int)WK__MOST_LABELS, "a label for each subscript");

static int subscript_of(char letter) { return isupper(letter) ? letter - 'A' : letter - 'a' + 26; }
static char letter_of(int subscript) { return (char)(subscript < 26 ? 'A' + subscript : 'a' + subscript - 26); }

/* One operand's part of the equation, or the result's. */
typedef struct term {
  uint8_t letters[WK_MAX_DIMS + 1];
  int count, ellipsis; /* ellipsis: how many letters are before it; -1: there is none */
} term;

/* Reads from text[*at] up to a comma, an arrow or the end. */
static wk_status read_term(const char *text, int *at, int operand, term *out) {
  *out = (term){.ellipsis = -1};
  for (;; ++*at) {
    const char *s = text + *at;
    if (*s == ' ') continue;
    if (!*s || (operand >= 0 && (*s == ',' || !strncmp(s, "->", 2)))) return WK_OK;
    if (*s == '.') {
      bool whole = !strncmp(s, "...", 3);
      if (operand >= 0 && out->ellipsis >= 0)
        return wk_fail(WK_RUNTIME_ERROR, "einsum(): found '.' for operand %d for which an ellipsis was already found",
                       operand);
      if (operand >= 0 && !whole)
        return wk_fail(WK_RUNTIME_ERROR, "einsum(): found '.' for operand %d that is not part of any ellipsis",
                       operand);
      if (out->ellipsis >= 0)
        return wk_fail(WK_RUNTIME_ERROR, "einsum(): found '.' for output but an ellipsis (...) was already found");
      if (!whole)
        return wk_fail(WK_RUNTIME_ERROR, "einsum(): found '.' for output that is not part of any ellipsis (...)");
      out->ellipsis = out->count;
      *at += 2;
      continue;
    }
    if (!isalpha((unsigned char)*s))
      return wk_fail(
          WK_RUNTIME_ERROR,
          "einsum(): invalid subscript given at index %d in the equation string, subscripts must be in [a-zA-Z]", *at);
    if (out->count < WK_MAX_DIMS + 1) out->letters[out->count++] = (uint8_t)subscript_of(*s);
  }
}

/* The dims of `t` as subscripts. */
static wk_status subscripts_of(const term *of, const wk_tensor *t, int operand, uint8_t *out) {
  int hidden = t->ndim - of->count, n = 0;
  if (of->ellipsis < 0 && hidden)
    return wk_fail(
        WK_RUNTIME_ERROR,
        "einsum(): the number of subscripts in the equation (%d) does not match the number of dimensions (%d) for "
        "operand %d and no ellipsis was given",
        of->count, t->ndim, operand);
  if (hidden < 0)
    return wk_fail(
        WK_RUNTIME_ERROR,
        "einsum(): the number of subscripts in the equation (%d) is more than the number of dimensions (%d) for "
        "operand %d",
        of->count, t->ndim, operand);
  for (int i = 0; i <= of->count; i++) {
    for (int h = hidden; i == of->ellipsis && h > 0; h--) out[n++] = (uint8_t)(HIDDEN_END - h);
    if (i < of->count) out[n++] = of->letters[i];
  }
  return WK_OK;
}

typedef struct equation {
  int times[SUBSCRIPTS]; /* how often each stands in operands */
  int hidden;            /* dims of the longest ellipsis */
  uint8_t label[SUBSCRIPTS];
  int result_count; /* labels below belong to the result */
  wk_int sizes[SUBSCRIPTS];
  bool sized[SUBSCRIPTS]; /* a size other than 1 was seen */
} equation;

/* ---- operands ---- */

static wk_status check_size(equation *e, int subscript, wk_int size, int dim, int operand) {
  wk_int *seen = &e->sizes[subscript];
  if (wk_int_eq(size, wk_int_of(1))) return WK_OK;
  if (!e->sized[subscript]) *seen = size;
  e->sized[subscript] = true;
  if (wk_int_eq(size, *seen)) return WK_OK;
  if (subscript < LETTERS)
    return wk_fail(
        WK_RUNTIME_ERROR,
        "einsum(): subscript %c has size %lld for operand %d which does not broadcast with previously seen size %lld",
        letter_of(subscript), wk__shown(size), operand, wk__shown(*seen));
  return wk_fail(WK_RUNTIME_ERROR,
                 "einsum(): dimension %d covered by ellipsis in operand %dhas size %lld which does not broadcast with "
                 "previously seen ellipsis with size %lld for the respective dimension",
                 dim, operand, wk__shown(size), wk__shown(*seen));
}

/* Equal subscripts of one operand are its diagonal. */
static wk_status take_diagonals(wk_tensor **t, uint8_t *subscripts) {
  for (int j = 1; j < (*t)->ndim; j++)
    for (int i = 0; i < j; i++) {
      if (subscripts[i] != subscripts[j]) continue;
      if (!wk_int_eq((*t)->sizes[i], (*t)->sizes[j]))
        return wk_fail(WK_RUNTIME_ERROR,
                       "einsum(): subscript %c is repeated for operand 0 but the sizes don't match, %lld != %lld",
                       letter_of(subscripts[i]), wk__shown((*t)->sizes[j]), wk__shown((*t)->sizes[i]));
      uint8_t twice = subscripts[i];
      wk_tensor *diagonal = wk_diagonal(*t, 0, i, j); /* its dim is the last one */
      int n = 0, old_ndim = (*t)->ndim;
      if (!diagonal) return wk_error_category();
      for (int d = 0; d < old_ndim; d++)
        if (d != i && d != j) subscripts[n++] = subscripts[d];
      subscripts[n] = twice;
      *t = diagonal;
      j = 0;
      break;
    }
  return WK_OK;
}

/* The dims in the order of their labels. */
static wk_status labelled(const equation *e, wk_tensor *t, const uint8_t *subscripts, wk__labelled *out) {
  wk_int order[WK_MAX_DIMS];
  *out = (wk__labelled){t, 0};
  for (int d = 0; d < t->ndim; d++) out->labels |= wk__label(e->label[subscripts[d]]);
  for (int d = 0; d < t->ndim; d++) order[wk__dim_of_label(out->labels, e->label[subscripts[d]])] = wk_int_of(d);
  out->t = wk_permute(t, order, t->ndim);
  return out->t ? WK_OK : wk_error_category();
}

/* ---- the result ---- */

static void number(equation *e, int subscript, int *next) { e->label[subscript] = (uint8_t)(*next)++; }
static void number_hidden(equation *e, int *next) {
  for (int h = e->hidden; h > 0; h--) number(e, HIDDEN_END - h, next);
}

/* Labels in the order of the result's dims, then those that are summed over. */
static wk_status number_labels(equation *e, const term *result) {
  bool placed[SUBSCRIPTS] = {false}, hidden_placed = !result || result->ellipsis >= 0;
  int next = 0;
  if (!result) number_hidden(e, &next);
  for (int s = 0; s < LETTERS && !result; s++)
    if (e->times[s] == 1) number(e, s, &next), placed[s] = true;
  for (int i = 0; result && i <= result->count; i++) {
    if (i == result->ellipsis) number_hidden(e, &next);
    if (i == result->count) break;
    int s = result->letters[i];
    if (placed[s])
      return wk_fail(WK_RUNTIME_ERROR, "einsum(): output subscript %c appears more than once in the output",
                     letter_of(s));
    if (!e->times[s])
      return wk_fail(WK_RUNTIME_ERROR,
                     "einsum(): output subscript %c does not appear in the equation for any input operand",
                     letter_of(s));
    number(e, s, &next), placed[s] = true;
  }
  e->result_count = next;
  if (!hidden_placed) number_hidden(e, &next);
  for (int s = 0; s < LETTERS; s++)
    if (e->times[s] && !placed[s]) number(e, s, &next);
  return WK_OK;
}

/* ---- the whole ---- */

/* `path` counts the operands that are left, and puts each product behind them: as steps of wk__contraction_order. */
static wk_status read_path(const wk_value *path, int count, int *live, int (*steps)[2]) {
  int wanted = count > 1 ? 2 * (count - 1) : 0;
  if ((int)path->count != wanted)
    return wk_fail(WK_RUNTIME_ERROR,
                   "einsum(): expected contraction path given in path parameter to have size %d but got %u", wanted,
                   path->count);
  for (int i = 0; i < count; i++) live[i] = i;
  for (int s = 0, n = count; s < count - 1; s++, n--) {
    int64_t i = wk_int_guard_value(path->integers[2 * s]), j = wk_int_guard_value(path->integers[2 * s + 1]);
    if (i < 0 || j < 0 || i >= n || j >= n)
      return wk_fail(WK_RUNTIME_ERROR, "einsum(): invalid contraction (%lld, %lld) operand index is out of bounds",
                     (long long)i, (long long)j);
    if (i == j)
      return wk_fail(WK_RUNTIME_ERROR,
                     "einsum(): invalid contraction (%lld, %lld) cannot contract an operand with itself", (long long)i,
                     (long long)j);
    int64_t low = wk__min(i, j), high = wk__max(i, j);
    steps[s][0] = live[low], steps[s][1] = live[high];
    int k = 0;
    for (int from = 0; from < n; from++)
      if (from != low && from != high) live[k++] = live[from];
    live[k] = steps[s][0];
  }
  return WK_OK;
}

static wk_status read_equation(const char *text, const wk_value *tensors, equation *e,
                               uint8_t (*subscripts)[WK_MAX_DIMS], term *out_result, bool *out_given) {
  int at = 0, count = (int)tensors->count;
  for (int i = 0; i < count; i++) {
    term of;
    WK_TRY(read_term(text, &at, i, &of));
    bool more = text[at] == ',';
    if (i + 1 < count && !more)
      return wk_fail(WK_RUNTIME_ERROR, "einsum(): more operands were provided than specified in the equation");
    if (i + 1 == count && more)
      return wk_fail(WK_RUNTIME_ERROR, "einsum(): fewer operands were provided than specified in the equation");
    at += more;
    const wk_tensor *t = tensors->tensors[i];
    WK_TRY(subscripts_of(&of, t, i, subscripts[i]));
    if (of.ellipsis >= 0) e->hidden = wk__max(e->hidden, t->ndim - of.count);
    for (int d = 0; d < t->ndim; d++) e->times[subscripts[i][d]]++;
  }
  *out_given = text[at] == '-';
  at += *out_given ? 2 : 0;
  return *out_given ? read_term(text, &at, -1, out_result) : WK_OK;
}

/* What a call works on, a place for each operand. */
typedef struct work {
  uint8_t (*subscripts)[WK_MAX_DIMS];
  wk__labelled *operands;
  int (*steps)[2];
  int *live;
} work;

static wk_status contract_all(work *w, int count, const wk_value *path, wk__labels result, wk_tensor **out) {
  WK_TRY(path->tag == WK_VALUE_NONE ? wk__contraction_order(w->operands, count, result, w->steps)
                                    : read_path(path, count, w->live, w->steps));
  for (int s = 0; s < count - 1; s++) {
    wk__labelled *a = &w->operands[w->steps[s][0]], *b = &w->operands[w->steps[s][1]], made;
    wk__labels keep = result;
    for (int k = 0; k < count; k++)
      if (&w->operands[k] != a && &w->operands[k] != b) keep |= w->operands[k].labels;
    WK_TRY(wk__contract(*a, *b, keep, &made));
    *a = made, b->labels = 0;
  }
  wk__labelled *last = &w->operands[count > 1 ? w->steps[count - 2][0] : 0];
  WK_TRY(wk__sum_labels(last, ~result));
  *out = last->t;
  return WK_OK;
}

static wk_status compute(wk__call *c, work *w, wk_tensor **out) {
  WK__ARGS(einsum);
  const wk_value *tensors = &c->args[A_tensors];
  int count = (int)tensors->count;
  equation e = {0};
  term result;
  bool given = false;
  WK_TRY(read_equation(c->args[A_equation].string, tensors, &e, w->subscripts, &result, &given));
  WK_TRY(number_labels(&e, given ? &result : NULL));
  for (int i = 0; i < count; i++) {
    wk_tensor *t = tensors->tensors[i];
    WK_TRY(take_diagonals(&t, w->subscripts[i]));
    for (int d = 0; d < t->ndim; d++) WK_TRY(check_size(&e, w->subscripts[i][d], t->sizes[d], d, i));
    WK_TRY(labelled(&e, t, w->subscripts[i], &w->operands[i]));
  }
  return contract_all(w, count, &c->args[A_path], wk__labels_below(e.result_count), out);
}

wk_status wk__compose_einsum(wk__call *c) {
  uint32_t count = c->args[WK__ARG(einsum, tensors)].count;
  if (!count) return wk_fail(WK_RUNTIME_ERROR, "einsum(): must provide at least one operand");
  work w = {wk__alloc(count * sizeof *w.subscripts), wk__alloc(count * sizeof *w.operands),
            wk__alloc(count * sizeof *w.steps), wk__alloc(count * sizeof *w.live)};
  wk_tensor *y = NULL;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = w.subscripts && w.operands && w.steps && w.live ? compute(c, &w, &y) : WK_OUT_OF_MEMORY;
  wk__free(w.subscripts), wk__free(w.operands), wk__free(w.steps), wk__free(w.live);
  return status ? wk__give_up(&scope, status) : wk__give(c, &scope, y);
}
