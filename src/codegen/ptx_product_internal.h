/* What the writers of products share: the kernel that is being written, and its results. ptx_product.c writes kernels
 * whose threads copy their operands, ptx_product_bulk.c those whose operands the copy engine brings, and
 * ptx_product_results.c what becomes of the sums of both. */
#ifndef WICK_CODEGEN_PTX_PRODUCT_INTERNAL_H
#define WICK_CODEGEN_PTX_PRODUCT_INTERNAL_H

#include "codegen/ptx_product.h"
#include "codegen/ptx_text.h"

/* For functions with a writer w. */
#define SAY(...) wk__ptx_say(&w->text, __VA_ARGS__)
#define TWO(op, a, b) wk__ptx_two(&w->text, op, a, b)
#define WITH(op, a, constant) wk__ptx_with(&w->text, op, a, constant)

enum { ROWS = WK__PRODUCT_ROWS, DEPTH = WK__PRODUCT_DEPTH, LINE = 128, MOST_COPIES = 8, MOST_PANELS = 4 };

/* An operand on its way into shared memory. A thread has 16-byte piece t % 8 of lines t / 8 + i threads / 8; a line is
 * a row along k or, across, a row of 64 of the other dim. Lines along k beyond the last are the last again: what they
 * give is not stored. */
typedef struct product_operand {
  bool across;
  int extent;               /* of the tile along m or n */
  int at;                   /* long: the thread's place in the step that is copied next */
  int step;                 /* long: bytes to the next step */
  int offsets[MOST_COPIES]; /* words: bytes to line i */
  int bytes[MOST_PANELS];   /* words: across: of a piece of panel p that are there */
  int line, piece;          /* words */
  bool windows;             /* instead of offsets and a step: */
  wk__ptx_window_side lines[MOST_COPIES], panels[MOST_PANELS]; /* a side a line, and of the piece (across: a panel) */
} product_operand;

typedef struct product_writer {
  wk__ptx_text text;
  const wk__ptx_product *p;
  const wk__ptx_behind *behind;
  wk__string tables; /* that its functions read */
  wk__ptx_windows windows;
  wk_status status;
  int threads, stages, ahead; /* steps that are on their way */
  int tid, lane, warp;
  int m, n, k, row0, column0, batch;   /* words */
  int split;                           /* word: which part of k */
  int place_rows[4], place_columns[4]; /* as of attention */
  int copy_to;                         /* word: a thread's place in a panel */
  product_operand a, b;
  int tiles, groups; /* of a warp's sums: 16 rows, 8 columns each */
  int sums;
  int warp_row, warp_column;       /* words: of the tile */
  int staging;                     /* word: of shared memory, for the results of all warps */
  int shared, step, steps, copy_k; /* words; copy_k: of the step that is copied next */
  int from, to, end;               /* words: the stage that is multiplied, that is filled; behind the last */
} product_writer;

static inline int product_word(product_writer *w) { return wk__ptx_words(&w->text, 1); }
static inline int product_stage_bytes(const product_writer *w) { return (ROWS + w->p->columns) * LINE; }
/* Whether results go through shared memory, to where a thread has whole pieces of rows. */
static inline bool product_is_staged(const wk__ptx_product *p) { return p->vectors && !p->split; }

/* ptx_product.c: row0 and column0 of a tile by its number. Tiles are in groups of 8 rows of them, so that blocks that
 * run at once share operands. */
void wk__product_find_tile(product_writer *w, int tile);
/* One step of the stage at `from` by wgmma, as a group. adds: a predicate; false: sums begin, and it becomes true. */
void wk__product_multiply(product_writer *w, int adds);

/* Results of a warp in shared memory, in lines of whole pieces of 64 columns each. */
typedef struct product_lines {
  int at, rows;    /* word: where; how many rows */
  int row, column; /* words: the first ones, of C */
  int c;           /* long: the batch's C */
} product_lines;

/* ptx_product_results.c: rounds the sums and stores them, or leaves them in shared memory where they are staged. */
product_lines wk__product_stage(product_writer *w);
/* Stores staged lines as they are. */
void wk__product_store(product_writer *w, const product_lines *lines);
/* What there is to do with staged lines a piece a lane at a time, `count` of them: stores C where that is wanted, and
 * does the nest's work. `index`, a word: the first of them, a multiple of `count`, below wk__product_pieces. */
void wk__product_do_pieces(product_writer *w, const product_lines *lines, int index, int count);
static inline int wk__product_pieces(const product_writer *w) { return 4 * w->tiles * (w->groups / 8); }

/* The second kernel: an element a thread. */
void wk__product_write_sum(product_writer *w);

/* ptx_product_bulk.c */
void wk__product_write_bulk(product_writer *w);
int wk__product_bulk_shared(const wk__ptx_product *p); /* bytes */
int wk__product_bulk_threads(const wk__ptx_product *p);

#endif
