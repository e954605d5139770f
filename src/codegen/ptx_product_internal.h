/* What the writers of products share: the kernel that is being written, and its results. ptx_product.c writes kernels
 * whose threads copy their operands, ptx_product_bulk.c those whose operands the copy engine brings,
 * ptx_product_multiply.c the multiplication of both, ptx_product_groups.c what is of which group, and
 * ptx_product_results.c what becomes of their sums. */
#ifndef WICK_CODEGEN_PTX_PRODUCT_INTERNAL_H
#define WICK_CODEGEN_PTX_PRODUCT_INTERNAL_H

#include "codegen/ptx_product.h"
#include "codegen/ptx_text.h"

/* For functions with a writer w. */
#define SAY(...) wk__ptx_say(&w->text, __VA_ARGS__)
#define TWO(op, a, b) wk__ptx_two(&w->text, op, a, b)
#define WITH(op, a, constant) wk__ptx_with(&w->text, op, a, constant)

enum { ROWS = WK__PRODUCT_ROWS, LINE = WK__PRODUCT_LINE, MOST_COPIES = 8, MOST_PANELS = 4 };
enum { SLICE = 32, SLICES = LINE / SLICE }; /* bytes of k that one instruction multiplies */

/* An operand on its way into shared memory. A thread has 16-byte piece t % 8 of lines t / 8 + i threads / 8; a line is
 * a row along k or, across, a row of 128 bytes of the other dim. Lines along k beyond the last are the last again: what
 * they give is not stored. */
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
  int low;                             /* word: of a group its first row, column or k; its end is m, n or k */
  int place_rows[4], place_columns[4]; /* as of attention */
  int place_floats[4];                 /* words: of single floats of an operand that lies across k */
  int copy_to;                         /* word: a thread's place in a panel */
  product_operand a, b;
  int tiles, groups;               /* of a warp's sums: 16 rows, 8 columns each */
  int sums, parts;                 /* words; parts: what tensor cores add alone, or begin with, where that is not all */
  int warp_row, warp_column;       /* words: of the tile */
  int staging;                     /* word: of shared memory, for the results of all warps */
  int shared, step, steps, copy_k; /* words; copy_k: of the step that is copied next */
  int from, to, end;               /* words: the stage that is multiplied, that is filled; behind the last */
} product_writer;

static inline int product_word(product_writer *w) { return wk__ptx_words(&w->text, 1); }
static inline int product_stage_bytes(const product_writer *w) { return (ROWS + w->p->columns) * LINE; }
static inline int product_item(const product_writer *w) { return wk__ptx_element_bytes((wk__ptx_element)w->p->a); }
static inline int product_item_of_result(const wk__ptx_product *p) {
  return wk__ptx_element_bytes((wk__ptx_element)p->c);
}
static inline int product_depth(const product_writer *w) { return wk__ptx_product_depth(w->p); }
/* Steps of all of k: a word. */
static inline int product_all_steps(product_writer *w) {
  int depth = product_depth(w);
  return wk__ptx_with(&w->text, "shr.u32", wk__ptx_with(&w->text, "add.u32", w->k, depth - 1),
                      __builtin_ctz((unsigned)depth));
}
static inline bool product_is_whole(const wk__ptx_product *p) { return p->c == WK__ELEMENT_S32; }
/* The name of an operand's element in products. */
const char *wk__product_type(int element);
/* Whether results go through shared memory, to where a thread has whole pieces of rows. */
static inline bool product_is_staged(const wk__ptx_product *p) { return p->vectors && !p->split; }

/* ptx_product.c: row0 and column0 of a tile by its number, of so many (words). Tiles are in groups of 8 rows of them,
 * so that blocks that run at once share operands. */
void wk__product_find_tile(product_writer *w, int tile, int tiles_m, int tiles_n);
/* The steps of a split of k, and its first k. */
void wk__product_find_steps(product_writer *w);
/* ptx_product_groups.c: both of groups, with the tile's group as `batch`, its limits, steps and first k. All lanes
 * of a warp are there. A predicate: there are no more tiles. */
int wk__product_find_in_groups(product_writer *w, int item);
/* What of the stage at `from` is not from `low` to `high` of its k (words) becomes zeros, by so many threads. */
void wk__product_clear(product_writer *w, int low, int high, int threads);
/* Whether tiles may begin before their group. */
static inline bool product_begins_before(const wk__ptx_product *p, wk__product_groups groups) {
  return p->groups == groups && wk__ptx_product_unit(p) > 1;
}
/* ptx_product_multiply.c: one step of the stage at `from` by mma.sync. */
void wk__product_multiply_by_warps(product_writer *w);
/* One step of the stage at `from` by wgmma, as a group, to the words from `sums` on. adds: a predicate; false: sums
 * begin, and it becomes true. */
void wk__product_multiply(product_writer *w, int sums, int adds);

/* Results of a warp in shared memory, in panels of lines of 128 bytes, of which 64 of float8 fill one by half. */
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
static inline int wk__product_pieces_at_once(const product_writer *w) {
  return product_item_of_result(w->p) == 4 ? 2 : 4; /* as registers hold them */
}
static inline int wk__product_pieces(const product_writer *w) { return w->tiles * w->groups / 2; }
static inline int wk__product_panels(const product_writer *w) {
  return (w->groups * 8 * product_item_of_result(w->p) + LINE - 1) / LINE;
}

/* The second kernel: an element a thread. */
void wk__product_write_sum(product_writer *w);

/* ptx_product_bulk.c */
void wk__product_write_bulk(product_writer *w);
int wk__product_bulk_shared(const wk__ptx_product *p); /* bytes */
int wk__product_bulk_threads(const wk__ptx_product *p);

#endif
