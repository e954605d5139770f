/* What the kernels of dq (and of captured tensors' gradients) and of dk and dv have in common.
 *
 * With P the probabilities, which the rows' logarithms give again: dV = P' dO; dS = P (dO V' - delta); dQ = scale dS K;
 * dK = scale dS' Q. Captured tensors' gradients are made where dS is, in a kernel that goes along the keys as that of
 * dQ. Each has two tiles of the block's rows and, twice, two of a step's: a step computes while the next one arrives.
 */
#ifndef WICK_CODEGEN_PTX_ATTENTION_BACKWARD_H
#define WICK_CODEGEN_PTX_ATTENTION_BACKWARD_H

#include "codegen/ptx_attention_internal.h"

typedef struct attention_backward {
  int count;         /* columns of a step, in groups of 8 */
  int scores, slope; /* (tiles, count, 4): P, then with dropout what is kept of it; dP, then dS */
  int t, s;          /* words */
  int row, column;   /* words: of a lane's first element */
  int stage, other;  /* words: shared memory of a step's two tiles; bytes from it to the other's */
  int step, steps;
  attention_walk walk; /* with bodies; its state is this step's, next_state the next one's */
  int next_state;
} attention_backward;

/* Of f32: the columns of a step, in groups of 8, for which two blocks have room in a multiprocessor's shared memory, up
 * to heads of 128. */
int attention_floats_count(const attention_writer *w);
/* Shared memory, with the scratch memory behind the tiles; and where the tiles lie: the block's are words that are set.
 */
int attention_backward_bytes(const attention_writer *w, int rows, int count);
void attention_find_shared(attention_writer *w, attention_backward *b, int rows, int *first, int *second);
void attention_other_stage(attention_writer *w, const attention_backward *b);
void attention_find_lane(attention_writer *w, attention_backward *b);
void attention_read_draws(attention_writer *w); /* forward's; without dropout nothing */

/* The place of (batch, head, row) in (B, H, T) f32: address + 4 ((batch heads + head) T + row), as a long. */
int attention_row_address(attention_writer *w, int arg, int head, int row, int t);
/* Minus a row's logarithm in units of log2, minus infinity where there is no such row or it sees nothing: P is 0. And
 * its delta. logarithms, deltas: longs; both are read `offset` bytes further. */
void attention_load_numbers(attention_writer *w, int logarithms, int deltas, int offset, int row, int t, int out_log,
                            int out_delta);
/* P and dS of element e of sums i, j; `kept` with dropout. */
void attention_slope(attention_writer *w, const attention_backward *b, int i, int j, int e, int log, int delta,
                     const int *kept);
/* With bodies: P and dS of the step. */
void attention_slopes_by_bodies(attention_writer *w, const attention_backward *b, bool turned, int logarithms,
                                int deltas);

#endif
