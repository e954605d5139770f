/* Bags of rows of a table, and CTC, with the CPU's arithmetic (cpu/kernels/embedding_bag.c, cpu/kernels/ctc.c).
 *
 * A bag is a block's, a thread has a column. A sequence of CTC is a block's, a thread has a state, step after step.
 * In: a wk__cuda_bags, a wk__cuda_ctc. Tests: tests/cuda/test_sequences.py. */
#include "cuda/sequences.h"

#include "cuda/on_device/faults.h"
#include "cuda/on_device/values.h"

/* ---- bags ---- */

static SHARED int64_t counted; /* rows of the bag; -1: an index is out of range */

INLINE void check_bag(const wk__cuda_bags *j, int64_t begin, int64_t end) {
  const int64_t *indices = (const int64_t *)j->indices;
  if (thread_index() == 0) {
    counted = 0;
    for (int64_t i = begin; i < end && counted >= 0; i++) {
      counted += indices[i] != j->padding;
      if (indices[i] >= 0 && indices[i] < j->rows) continue;
      note_index((faults *)j->faults, indices[i], j->rows, 0);
      counted = -1;
    }
  }
  wait_for_block();
}

#define BAG(T)                                                                             \
  INLINE void sum_bag_##T(const wk__cuda_bags *j, int64_t b, int64_t begin, int64_t end) { \
    const int64_t *indices = (const int64_t *)j->indices;                                  \
    const T *scales = (const T *)j->scales;                                                \
    for (int64_t d = thread_index(); d < j->columns; d += thread_count()) {                \
      T sum = 0;                                                                           \
      for (int64_t i = begin; i < end; i++) {                                              \
        if (indices[i] == j->padding) continue;                                            \
        T row = ((const T *)j->weight)[indices[i] * j->columns + d];                       \
        sum += scales ? scales[i] * row : row;                                             \
      }                                                                                    \
      ((T *)j->out)[b * j->columns + d] = j->mean && counted > 1 ? sum / (T)counted : sum; \
    }                                                                                      \
  }
BAG(float)
BAG(double)

INLINE int64_t within(int64_t x, int64_t n) { return x < 0 ? 0 : x > n ? n : x; }

KERNEL(bags)(wk__cuda_bags given) {
  const wk__cuda_bags *j = &given;
  const int64_t *offsets = (const int64_t *)j->offsets;
  for (int64_t b = block_index(); b < j->count; b += block_count()) {
    int64_t begin = within(offsets[b], j->n), end = b + 1 < j->count ? within(offsets[b + 1], j->n) : j->n;
    check_bag(j, begin, end);
    if (counted >= 0 && j->is_double) sum_bag_double(j, b, begin, end);
    if (counted >= 0 && !j->is_double) sum_bag_float(j, b, begin, end);
    wait_for_block();
  }
}

/* ---- CTC ---- */

INLINE int64_t class_of(const wk__cuda_ctc *j, int64_t b, int64_t s) {
  return s % 2 ? ((const int64_t *)j->targets)[((const int64_t *)j->starts)[b] + s / 2] : j->blank;
}
INLINE bool may_skip(const wk__cuda_ctc *j, int64_t b, int64_t s) {
  return s % 2 && s >= 2 && class_of(j, b, s) != class_of(j, b, s - 2);
}
INLINE float exp_float(float x) { return vf_exp((vf){x})[0]; }
INLINE float log_float(float x) { return vf_log((vf){x})[0]; }
INLINE double exp_double(double x) { return vd_exp((vd){x})[0]; }
INLINE double log_double(double x) { return vd_log((vd){x})[0]; }

#define CTC(T)                                                                                                      \
  static __attribute__((noinline)) T log_sum_##T(T x, T y, T z) {                                                   \
    T most = x > y ? x : y;                                                                                         \
    most = z > most ? z : most;                                                                                     \
    if (most == -(T)INFINITY) return most;                                                                          \
    return log_##T(exp_##T(x - most) + exp_##T(y - most) + exp_##T(z - most)) + most;                               \
  }                                                                                                                 \
  INLINE T at_##T(const wk__cuda_ctc *j, int64_t t, int64_t b, int64_t k) {                                         \
    return ((const T *)j->log_probs)[(t * j->count + b) * j->classes + k];                                          \
  }                                                                                                                 \
  /* alpha at step t from that before it, or from the beginning (before = NULL) */                                  \
  INLINE void forward_##T(const wk__cuda_ctc *j, int64_t b, int64_t t, const T *before, T *alpha, int64_t states) { \
    const T none = -(T)INFINITY;                                                                                    \
    for (int64_t s = thread_index(); s < states; s += thread_count()) {                                             \
      T ways = s < 2 ? 0 : none;                                                                                    \
      if (before)                                                                                                   \
        ways = log_sum_##T(before[s], s >= 1 ? before[s - 1] : none, may_skip(j, b, s) ? before[s - 2] : none);     \
      alpha[s] = ways + at_##T(j, t, b, class_of(j, b, s));                                                         \
    }                                                                                                               \
    wait_for_block();                                                                                               \
  }                                                                                                                 \
  INLINE void backward_##T(const wk__cuda_ctc *j, int64_t b, int64_t t, const T *after, T *beta, int64_t states) {  \
    const T none = -(T)INFINITY;                                                                                    \
    for (int64_t s = thread_index(); s < states; s += thread_count()) {                                             \
      T ways = s + 2 < states ? none : 0;                                                                           \
      bool skips = s + 2 < states && may_skip(j, b, s + 2);                                                         \
      if (after) ways = log_sum_##T(after[s], s + 1 < states ? after[s + 1] : none, skips ? after[s + 2] : none);   \
      beta[s] = ways + at_##T(j, t, b, class_of(j, b, s));                                                          \
    }                                                                                                               \
    wait_for_block();                                                                                               \
  }                                                                                                                 \
  INLINE void lose_##T(const wk__cuda_ctc *j, int64_t b) {                                                          \
    int64_t steps = ((const int64_t *)j->inputs)[b], last = 2 * ((const int64_t *)j->outputs)[b];                   \
    T *alpha = (T *)j->alpha + b * 2 * j->states, *out = (T *)j->out + b;                                           \
    for (int64_t t = 0; t < steps; t++)                                                                             \
      forward_##T(j, b, t, t ? alpha + (t - 1) % 2 * j->states : 0, alpha + t % 2 * j->states, last + 1);           \
    if (thread_index() != 0) return;                                                                                \
    const T *end = alpha + (steps - 1) % 2 * j->states;                                                             \
    if (!steps)                                                                                                     \
      *out = last ? (T)INFINITY : 0;                                                                                \
    else                                                                                                            \
      *out = -log_sum_##T(end[last], last ? end[last - 1] : -(T)INFINITY, -(T)INFINITY);                            \
  }                                                                                                                 \
  /* The ways that are at a class, by the thread of its first state; then G (exp(p) - ways / all). */               \
  INLINE void derive_step_##T(const wk__cuda_ctc *j, int64_t b, int64_t t, const T *alpha, const T *beta,           \
                              int64_t states) {                                                                     \
    T *out = (T *)j->out + (t * j->count + b) * j->classes, g = ((const T *)j->grads)[b];                           \
    T loss = ((const T *)j->losses)[b];                                                                             \
    for (int64_t k = thread_index(); k < j->classes; k += thread_count()) out[k] = -(T)INFINITY;                    \
    wait_for_block();                                                                                               \
    for (int64_t s = thread_index(); s < states; s += thread_count()) {                                             \
      int64_t k = class_of(j, b, s), first = 0;                                                                     \
      while (first < s && class_of(j, b, first) != k) first++;                                                      \
      if (first < s) continue;                                                                                      \
      T ways = -(T)INFINITY;                                                                                        \
      for (int64_t o = s; o < states; o++)                                                                          \
        if (class_of(j, b, o) == k) ways = log_sum_##T(ways, alpha[o] + beta[o], -(T)INFINITY);                     \
      out[k] = ways;                                                                                                \
    }                                                                                                               \
    wait_for_block();                                                                                               \
    for (int64_t k = thread_index(); k < j->classes; k += thread_count()) {                                         \
      T p = at_##T(j, t, b, k);                                                                                     \
      out[k] = (exp_##T(p) - exp_##T(out[k] + loss - p)) * g;                                                       \
    }                                                                                                               \
    wait_for_block();                                                                                               \
  }                                                                                                                 \
  INLINE void derive_##T(const wk__cuda_ctc *j, int64_t b) {                                                        \
    int64_t steps = ((const int64_t *)j->inputs)[b], states = 2 * ((const int64_t *)j->outputs)[b] + 1;             \
    T *alpha = (T *)j->alpha + b * j->steps * j->states, *beta = (T *)j->beta + b * 2 * j->states;                  \
    bool is_zero = j->drop_infinite && ((const T *)j->losses)[b] == (T)INFINITY;                                    \
    for (int64_t t = is_zero ? 0 : steps; t < j->steps; t++)                                                        \
      for (int64_t k = thread_index(); k < j->classes; k += thread_count())                                         \
        ((T *)j->out)[(t * j->count + b) * j->classes + k] = 0;                                                     \
    if (is_zero) return;                                                                                            \
    for (int64_t t = 0; t < steps; t++)                                                                             \
      forward_##T(j, b, t, t ? alpha + (t - 1) * j->states : 0, alpha + t * j->states, states);                     \
    for (int64_t t = steps - 1; t >= 0; t--) {                                                                      \
      T *now = beta + t % 2 * j->states;                                                                            \
      backward_##T(j, b, t, t + 1 < steps ? beta + (t + 1) % 2 * j->states : 0, now, states);                       \
      derive_step_##T(j, b, t, alpha + t * j->states, now, states);                                                 \
    }                                                                                                               \
  }
CTC(float)
CTC(double)

KERNEL(ctc_lose)(wk__cuda_ctc given) {
  const wk__cuda_ctc *j = &given;
  if (j->is_double)
    lose_double(j, block_index());
  else
    lose_float(j, block_index());
}

KERNEL(ctc_derive)(wk__cuda_ctc given) {
  const wk__cuda_ctc *j = &given;
  if (j->is_double)
    derive_double(j, block_index());
  else
    derive_float(j, block_index());
}
