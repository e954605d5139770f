/* Shared by the files that write attention's kernels: tiles in shared memory, products of them, scores.
 *
 * A tile lies in panels of 64 columns, a row of a panel in 128 bytes, of which 16-byte piece c is at c ^ row % 8: what
 * ldmatrix reads at once lies in different banks. (Of f32: ptx_attention_floats.c.) A warp has `tiles` times 16 rows of
 * a block's rows. Sums of a product (rows, 8 columns) are four registers: rows g and g + 8, two neighbouring columns
 * each, g = lane / 4. */
#ifndef WICK_CODEGEN_PTX_ATTENTION_INTERNAL_H
#define WICK_CODEGEN_PTX_ATTENTION_INTERNAL_H

#include "codegen/ptx_attention.h"
#include "codegen/ptx_scores.h"

typedef struct attention_writer {
  wk__ptx_text text;
  const wk__ptx_attention *a;
  int tiles, warps;                            /* rows of a warp: 16 each; warps of a block */
  bool groups;                                 /* products by wgmma: four warps together, of 64 rows; tiles is 1 */
  int steps;                                   /* of 16 columns that a head has, of q and k */
  int value_steps;                             /* and of v and out */
  int pitch;                                   /* f32: bytes from a row of a tile to the next one */
  int scratch;                                 /* f32: word, shared memory of attention_scratch_bytes */
  int panels;                                  /* of a tile: for either */
  int lane, warp, head, batch, key_head, row0; /* words; row0: the block's first row */
  int shared;                                  /* word: where shared memory begins */
  int place_rows[4], place_columns[4];         /* words: of ldmatrix, by step in a panel */
  int copy_row, copy_to, copy_chunk;           /* words: a thread's part of a copy */
  int factor;                                  /* word: scale times log2 e */
  int draw_low, draw_high, draw_thread_count;  /* words; with dropout */
  int keys[10][2];                             /* words: Philox's keys, by round */
  int reciprocal;                              /* word */
  int least, kept;                             /* words */
  const wk__ptx_score_bodies *bodies;
  wk__ptx_scores_state score_state;
  bool out_of_memory;
} attention_writer;

#define ATTENTION_LOG2E 1.44269504088896341f

/* A head's columns of either kind. */
static inline int attention_widest(const wk__ptx_attention *a) {
  return a->size > a->value_size ? a->size : a->value_size;
}
/* An operand's, by the place of its row's stride among the arguments. */
static inline int attention_size_of(const wk__ptx_attention *a, int stride_arg) {
  int arg = stride_arg - 3;
  return arg == WK__ATTENTION_Q || arg == WK__ATTENTION_K || arg == WK__ATTENTION_DQ || arg == WK__ATTENTION_DK
             ? a->size
             : a->value_size;
}
static inline bool attention_is_small(const wk__ptx_attention *a) { return a->dtype != WK_FLOAT32; }

/* A block of so many warps: the registers above. `row_block`: rows of a block. */
void attention_begin(attention_writer *w, int tiles, int warps);
/* An operand's head: its address as a long. `head`: a word. */
int attention_head(attention_writer *w, int arg, int head);
/* Copies `rows` rows from row `first` (a word) on into shared memory at `to` (a word) by cp.async; rows from `limit` on
 * (a word) are zeros. */
void attention_copy(attention_writer *w, int to, int rows, int from, int stride_arg, int first, int limit);
static inline int attention_tile_bytes(const attention_writer *w, int rows) {
  return attention_is_small(w->a) ? w->panels * rows * 128 : w->pitch * rows;
}
void attention_zero(attention_writer *w, int first, int count);

/* With groups products are under way when the functions return: this waits until at most `left` of them are. */
void attention_wait(attention_writer *w, int left);
/* In front of products of groups, behind whatever has touched their registers. */
void attention_fence(attention_writer *w);
/* Shared memory that cp.async has written, before products of groups read it: each thread, then the barrier. */
void attention_arrived(attention_writer *w);

/* sums (tiles, count, 4) = A B': A the warp's rows of a tile of `a_rows` at `a`, B `count` times 8 rows of one of
 * `b_rows` at `b`; over `steps` times 16 columns. `a_fragments`: (tiles, steps, 4) that are there already; or -1. */
void attention_outer(attention_writer *w, int sums, int a, int a_rows, int a_fragments, int b, int b_rows, int count,
                     int steps);
void attention_load_rows(attention_writer *w, int fragments, int a, int a_rows);
/* sums (tiles, columns / 8, 4) += P B: P (tiles, count, 4) as f32 in registers, rounded here; B `count` times 8 rows of
 * a tile at `b`; columns from panel `panel` on. */
void attention_inner(attention_writer *w, int sums, int p, int count, int b, int b_rows, int panel, int columns);
/* Groups: P (count, 4) as it is multiplied, (2 count) words; and the product of it. */
int attention_pack(attention_writer *w, int p, int count);
void attention_pack_into(attention_writer *w, int fragments, int p, int count);
void attention_inner_packed(attention_writer *w, int sums, int fragments, int count, int b, int b_rows, int panel,
                            int columns);
/* What does not count becomes minus infinity, masks are added: scores (tiles, count, 4), then in units of log2 where a
 * mask is added. `row`, `column`: words of element 0; `turned`: rows are keys. */
void attention_mask(attention_writer *w, int scores, int count, int row, int column, bool turned, int row_end,
                    int column_end);
static inline bool attention_adds(const wk__ptx_attention *a) { return a->mask >= WK__PTX_MASK_F32 || a->scores; }
/* Predicates (4): which of tile i, column group j's elements dropout keeps. */
void attention_draw(attention_writer *w, int row, int column, int i, int j, bool turned, int out[4]);
void attention_draw_begin(attention_writer *w, int seed, int offset); /* longs */
/* The warp's rows of sums, times `factors` (tiles, 2) or one factor, through shared memory at `at` into the head at
 * `to`. */
void attention_store(attention_writer *w, int sums, int factors, bool by_row, int at, int rows, int to, int stride_arg,
                     int limit, int panel, int columns);

/* ---- ptx_attention_floats.c: what the functions above do for f32 ---- */

/* Shared memory that products with P of `count` times 8 columns need; small floats: none. */
int attention_scratch_bytes(const attention_writer *w, int count);
void attention_copy_floats(attention_writer *w, int to, int rows, int from, int stride_arg, int first, int limit);
void attention_outer_floats(attention_writer *w, int sums, int a, int b, int count, int steps);
void attention_inner_floats(attention_writer *w, int sums, int p, int count, int b, int panel, int columns);
void attention_store_floats(attention_writer *w, int sums, int factors, bool by_row, int to, int stride_arg, int limit,
                            int panel, int columns);

/* ---- ptx_attention_scores.c: kinds with bodies ---- */

/* Going along blocks of the table: along the keys of a tile of queries, or the other way. */
typedef struct attention_walk {
  int table, step; /* longs: the first block's place in the table, how far the next one's is; without a table not set */
  int size, count; /* words: of a block; blocks */
  int state;       /* word: of the block at hand */
} attention_walk;
/* Along the keys of the tile at w->row0 and w->head; along the queries of the head `head`, a word that may change
 * before attention_walk_head, for the tile of keys at w->row0. */
void attention_walk_keys(attention_writer *w, attention_walk *out);
void attention_walk_queries(attention_writer *w, attention_walk *out);
void attention_walk_head(attention_writer *w, const attention_walk *walk, int head);
/* place, state: words that are set to the first place from `from` (a word) on of which something is seen, and its
 * block's state; `from` lies at the start of a block, or in one whose state `from_state` (a word) is. Beyond all places
 * where there is none. */
void attention_walk_find(attention_writer *w, const attention_walk *walk, int from, int from_state, int place,
                         int state);

/* The scores of a step: (tiles, count, 4), the words of element 0's row and column, and the ends of both. turned: rows
 * are keys. */
typedef struct attention_step {
  int scores, count, row, column, row_end, column_end;
  bool turned;
  int state; /* word: of its block */
} attention_step;
/* Scores become what the bodies make of them, in units of log2; no column from its end on counts. */
void attention_change(attention_writer *w, const attention_step *s);
/* Scores become P, and slopes, dP at first, dS. logarithms, deltas: by query, as load_row leaves them. */
void attention_slopes(attention_writer *w, const attention_step *s, int slopes, int logarithms, int deltas);

wk_status attention_write_forward(attention_writer *w, wk__ptx_attention_kernel *out);
wk_status attention_write_delta(attention_writer *w, wk__ptx_attention_kernel *out);
wk_status attention_write_keys(attention_writer *w, wk__ptx_attention_kernel *out);
wk_status attention_write_queries(attention_writer *w, wk__ptx_attention_kernel *out);

#endif
