/* Connectionist temporal classification on the CPU, a sequence to a thread: equations 6 to 16 of Graves et al., 2006,
 * in logarithms. A sequence's states are its classes with blanks around them: state s is class s / 2 where s is odd.
 * alpha is the log probability of all ways to a state, beta of all ways on from it; each counts the state's own. Tests:
 * tests/python/test_ctc.py. */
#include <math.h>
#include <stdatomic.h>

#include "cpu/kernels.h"
#include "ops/internal.h"
#include "ops/rules/ctc.h"
#include "wick/operators.h"

typedef struct batch {
  const void *log_probs, *grads, *losses; /* (T, B, C), (B), (B) */
  void *out;                              /* (B), or (T, B, C) */
  void *alpha, *beta;                     /* (B, T, states) each; a loss needs (B, 2, states) of alpha */
  const int64_t *targets, *starts;        /* where in targets a sequence begins */
  const int64_t *inputs, *outputs;        /* lengths */
  int64_t steps, count, classes, states, blank;
  bool drop_infinite;
} batch;

static int64_t class_of(const batch *j, int64_t b, int64_t s) {
  return s % 2 ? j->targets[j->starts[b] + s / 2] : j->blank;
}
/* Whether a way may leave out the blank before state s. */
static bool may_skip(const batch *j, int64_t b, int64_t s) {
  return s % 2 && s >= 2 && class_of(j, b, s) != class_of(j, b, s - 2);
}

#define FUNCTIONS(T, EXP, LOG)                                                                                       \
  static T log_sum_##T(T x, T y, T z) {                                                                              \
    T most = x > y ? x : y;                                                                                          \
    most = z > most ? z : most;                                                                                      \
    if (most == -(T)INFINITY) return most;                                                                           \
    return LOG(EXP(x - most) + EXP(y - most) + EXP(z - most)) + most;                                                \
  }                                                                                                                  \
  static T at_##T(const batch *j, int64_t t, int64_t b, int64_t k) {                                                 \
    return ((const T *)j->log_probs)[(t * j->count + b) * j->classes + k];                                           \
  }                                                                                                                  \
  /* alpha at step t from that before it, or from the beginning (before = NULL) */                                   \
  static void forward_##T(const batch *j, int64_t b, int64_t t, const T *before, T *alpha) {                         \
    const T none = -(T)INFINITY;                                                                                     \
    for (int64_t s = 0; s < 2 * j->outputs[b] + 1; s++) {                                                            \
      T ways = before                                                                                                \
                   ? log_sum_##T(before[s], s >= 1 ? before[s - 1] : none, may_skip(j, b, s) ? before[s - 2] : none) \
               : s < 2 ? 0                                                                                           \
                       : none;                                                                                       \
      alpha[s] = ways + at_##T(j, t, b, class_of(j, b, s));                                                          \
    }                                                                                                                \
  }                                                                                                                  \
  static void backward_##T(const batch *j, int64_t b, int64_t t, const T *after, T *beta) {                          \
    const T none = -(T)INFINITY;                                                                                     \
    int64_t states = 2 * j->outputs[b] + 1;                                                                          \
    for (int64_t s = 0; s < states; s++) {                                                                           \
      T ways = after             ? log_sum_##T(after[s], s + 1 < states ? after[s + 1] : none,                       \
                                   s + 2 < states && may_skip(j, b, s + 2) ? after[s + 2] : none)        \
               : s >= states - 2 ? 0                                                                                 \
                                 : none;                                                                             \
      beta[s] = ways + at_##T(j, t, b, class_of(j, b, s));                                                           \
    }                                                                                                                \
  }                                                                                                                  \
  static void lose_##T(void *context, int64_t begin, int64_t end) {                                                  \
    const batch *j = context;                                                                                        \
    for (int64_t b = begin; b < end; b++) {                                                                          \
      T *alpha = (T *)j->alpha + b * 2 * j->states, *next = alpha + j->states, *out = (T *)j->out + b;               \
      int64_t steps = j->inputs[b], last = 2 * j->outputs[b];                                                        \
      for (int64_t t = 0; t < steps; t++) {                                                                          \
        T *spare = alpha;                                                                                            \
        forward_##T(j, b, t, t ? alpha : NULL, next);                                                                \
        alpha = next, next = spare;                                                                                  \
      }                                                                                                              \
      if (!steps)                                                                                                    \
        *out = last ? (T)INFINITY : 0;                                                                               \
      else                                                                                                           \
        *out = -log_sum_##T(alpha[last], last ? alpha[last - 1] : -(T)INFINITY, -(T)INFINITY);                       \
    }                                                                                                                \
  }                                                                                                                  \
  /* G (softmax - share of the ways that are at the class): equation 16, of normalised log_probs */                  \
  static void derive_step_##T(const batch *j, int64_t b, int64_t t, const T *alpha, const T *beta) {                 \
    T *out = (T *)j->out + (t * j->count + b) * j->classes, g = ((const T *)j->grads)[b];                            \
    T loss = ((const T *)j->losses)[b];                                                                              \
    for (int64_t k = 0; k < j->classes; k++) out[k] = -(T)INFINITY;                                                  \
    for (int64_t s = 0; s < 2 * j->outputs[b] + 1; s++) {                                                            \
      T *ways = out + class_of(j, b, s);                                                                             \
      *ways = log_sum_##T(*ways, alpha[s] + beta[s], -(T)INFINITY);                                                  \
    }                                                                                                                \
    for (int64_t k = 0; k < j->classes; k++) {                                                                       \
      T p = at_##T(j, t, b, k);                                                                                      \
      out[k] = (EXP(p) - EXP(out[k] + loss - p)) * g;                                                                \
    }                                                                                                                \
  }                                                                                                                  \
  static void derive_##T(void *context, int64_t begin, int64_t end) {                                                \
    const batch *j = context;                                                                                        \
    for (int64_t b = begin; b < end; b++) {                                                                          \
      T *alpha = (T *)j->alpha + b * j->steps * j->states, *beta = (T *)j->beta + b * 2 * j->states;                 \
      T *next = beta + j->states;                                                                                    \
      int64_t steps = j->inputs[b], n = j->states;                                                                   \
      bool is_zero = j->drop_infinite && ((const T *)j->losses)[b] == (T)INFINITY;                                   \
      for (int64_t t = is_zero ? 0 : steps; t < j->steps; t++)                                                       \
        memset((T *)j->out + (t * j->count + b) * j->classes, 0, (size_t)j->classes * sizeof(T));                    \
      if (is_zero) continue;                                                                                         \
      for (int64_t t = 0; t < steps; t++) forward_##T(j, b, t, t ? alpha + (t - 1) * n : NULL, alpha + t * n);       \
      for (int64_t t = steps - 1; t >= 0; t--) {                                                                     \
        T *spare = beta;                                                                                             \
        backward_##T(j, b, t, t + 1 < steps ? beta : NULL, next);                                                    \
        beta = next, next = spare;                                                                                   \
        derive_step_##T(j, b, t, alpha + t * n, beta);                                                               \
      }                                                                                                              \
    }                                                                                                                \
  }

FUNCTIONS(float, expf, logf)
FUNCTIONS(double, exp, log)

static const void *contiguous(wk_tensor *t) {
  wk_tensor *whole = wk_contiguous(t, NULL);
  return whole ? wk__data(whole) : NULL;
}

/* Memory for a number of states of the dtype of `like`. */
static void *memory(wk_tensor *like, int64_t count, int64_t states) {
  wk_int sizes[2] = {wk_int_of(count), wk_int_of(states)};
  wk_tensor *made = wk_new_empty(like, sizes, 2, WK_DTYPE_NONE, (wk_value){0});
  return made ? wk__data(made) : NULL;
}

/* What both kernels have: argument k of each is that of _ctc_losses, `first` later. */
static wk_status prepare(batch *j, wk__call *c, int first) {
  WK__ARGS(_ctc_losses);
  wk_tensor *p = c->args[first + A_log_probs].tensor, *targets = c->args[first + A_targets].tensor;
  wk_int count = p->sizes[1];
  wk_tensor *starts = wk_new_empty(targets, &count, 1, WK_DTYPE_NONE, (wk_value){0});
  *j = (batch){.log_probs = contiguous(p),
               .targets = contiguous(targets),
               .inputs = contiguous(c->args[first + A_input_lengths].tensor),
               .outputs = contiguous(c->args[first + A_target_lengths].tensor),
               .out = wk__data(c->outputs[0]),
               .steps = wk__size(p, 0),
               .count = wk__size(p, 1),
               .classes = wk__size(p, 2)};
  bool whole = j->targets || !wk__numel(targets);
  if (!j->log_probs || !starts || !j->inputs || !j->outputs || !whole) return wk_error_category();
  wk__ctc_sequences found = {.targets = j->targets,
                             .inputs = j->inputs,
                             .outputs = j->outputs,
                             .steps = j->steps,
                             .count = j->count,
                             .classes = j->classes};
  j->starts = (const int64_t *)wk__data(starts);
  WK_TRY(wk__ctc_find_sequences(&found, targets, (int64_t *)wk__data(starts)));
  j->states = found.states;
  return WK_OK;
}

static wk_status lose(wk__call *c) {
  wk_tensor *p = c->args[WK__ARG(_ctc_losses, log_probs)].tensor;
  batch j;
  WK_TRY(prepare(&j, c, 0));
  j.blank = wk__arg_int(c, WK__ARG(_ctc_losses, blank));
  if (!(j.alpha = memory(p, 2 * j.count, j.states))) return wk_error_category();
  wk__parallel_for(j.count, 1, p->dtype == WK_FLOAT64 ? lose_double : lose_float, &j);
  return WK_OK;
}

static wk_status derive(wk__call *c) {
  WK__ARGS(_ctc_losses_backward);
  wk_tensor *p = c->args[A_log_probs].tensor;
  batch j;
  WK_TRY(prepare(&j, c, A_log_probs));
  j.blank = wk__arg_int(c, A_blank);
  j.drop_infinite = wk__arg_bool(c, A_zero_infinity);
  j.grads = contiguous(c->args[A_grad].tensor);
  j.losses = contiguous(c->args[A_losses].tensor);
  j.alpha = memory(p, j.count * j.steps, j.states);
  j.beta = memory(p, 2 * j.count, j.states);
  if (!j.grads || !j.losses || !j.alpha || !j.beta) return wk_error_category();
  wk__parallel_for(j.count, 1, p->dtype == WK_FLOAT64 ? derive_double : derive_float, &j);
  return WK_OK;
}

wk_status wk__cpu_ctc_losses(wk__call *c) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = lose(c);
  wk_scope_end(&scope);
  return status;
}

wk_status wk__cpu_ctc_losses_backward(wk__call *c) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = derive(c);
  wk_scope_end(&scope);
  return status;
}
