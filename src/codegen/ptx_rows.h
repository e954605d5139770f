/* Shared by the files that write rows: states of reductions (ptx_folds.c), what one phase emits (ptx_writer.c), and the
 * kernels of each mode (ptx_rows.c). */
#ifndef WICK_CODEGEN_PTX_ROWS_H
#define WICK_CODEGEN_PTX_ROWS_H

#include "codegen/ptx_internal.h"

static inline bool ptx_has_rows(const ptx_writer *w) { return w->shape->mode != WK__PTX_POINTWISE && !ptx_is_tiles(w); }
static inline bool ptx_is_scans(const ptx_writer *w) {
  return w->shape->mode == WK__PTX_SCANS || w->shape->mode == WK__PTX_SCAN_PARTS;
}
static inline bool ptx_is_columns(const ptx_writer *w) {
  int mode = w->shape->mode;
  return mode == WK__PTX_COLUMNS || mode == WK__PTX_COLUMN_PARTS || mode == WK__PTX_COLUMN_WHOLE;
}

/* ---- ptx_folds.c: what reduction v has come to ---- */

typedef struct ptx_state {
  reg_name value, index; /* index: of arg reductions, -1 where there is none */
} ptx_state;
ptx_state ptx_new_state(ptx_writer *w, int v);
/* Nothing has been taken. */
void ptx_begin_state(ptx_writer *w, int v, const ptx_state *s);
/* s = s and another; where the guard ("@%p " or "") does not hold s stays. */
void ptx_take_other(ptx_writer *w, int v, const ptx_state *s, const ptx_state *other, const char *guard);
/* s = s and the thread's element k, or all of them in turn. */
void ptx_take_element(ptx_writer *w, int v, const ptx_state *s, int k);
void ptx_take_elements(ptx_writer *w, int v, const ptx_state *s);
/* The lanes in halves; then all have the chunk's. */
void ptx_fold_lanes(ptx_writer *w, int v, const ptx_state *s);
/* The lanes' states go from warp to warp, each of which takes its elements; then every warp has them all. */
void ptx_take_by_warps(ptx_writer *w, int v, const ptx_state *s);
/* The row's value of v is that of the state. */
void ptx_finish(ptx_writer *w, int v, const ptx_state *s);

/* %length, and %chunks and %count64: how many chunks a row is made of. */
void ptx_count_chunks(ptx_writer *w);

/* In memory, shared or the scratch of parts: the address of the state with a number (32 bits), `words` words each. */
reg_name ptx_state_address(ptx_writer *w, const char *number, int words);
int ptx_words_of(const ptx_writer *w, int v);
/* `word`: its first word behind the address. */
void ptx_move_state(ptx_writer *w, int v, bool load, const ptx_state *s, const char *at, int word);

/* ---- ptx_writer.c: phases ---- */

int ptx_phases(const ptx_writer *w);
bool ptx_is_fold_of(const ptx_writer *w, int v, int phase);
/* Elements' values, with all that they need of elements. */
void ptx_emit_with_needs(ptx_writer *w, int v);
/* Values of rows that are due, then their stores. */
void ptx_emit_rows(ptx_writer *w, int phase);
void ptx_emit_element_stores(ptx_writer *w, int phase);

/* ---- ptx_parts.c: phases in parts ---- */

/* %values: in memory, what the row's reductions have come to. */
void ptx_find_values(ptx_writer *w);
/* The row's values of the reductions before `phase` from memory, or of those of it to memory. */
void ptx_move_values(ptx_writer *w, bool load, int phase);

/* ---- ptx_rows.c: the reductions of a phase ---- */

enum { PTX_MOST_FOLDS = 16 };
typedef struct ptx_folds {
  int v[PTX_MOST_FOLDS], count;
  ptx_state s[PTX_MOST_FOLDS];
  int words[PTX_MOST_FOLDS]; /* the first of each in a chunk's states */
  int word_count;
} ptx_folds;
ptx_folds ptx_folds_of(ptx_writer *w, int phase);
bool ptx_stores_elements(const ptx_writer *w, int phase);
void ptx_move_states(ptx_writer *w, const ptx_folds *f, bool load, const ptx_state *s, const char *at);
/* Chunks pairwise, neighbours first, in memory by the whole block; then all threads have the row's values. */
void ptx_fold_chunks(ptx_writer *w, ptx_folds *f);
/* A chunk of a row, %chunk, in steps; the states begin again. `lane`: the register of the thread's lane. */
void ptx_write_chunk(ptx_writer *w, int phase, ptx_folds *f, const char *lane);
void ptx_keep_states(ptx_writer *w, ptx_folds *f, const char *number); /* what lane 0 has goes to the chunk's place */

/* ---- ptx_parts.c ---- */

void ptx_write_parts(ptx_writer *w);
void ptx_write_whole(ptx_writer *w);
void ptx_emit_row_values(ptx_writer *w, int last); /* values of the row of stages up to `last`, which elements need */

/* ---- ptx_kept.c: what phases of long rows keep in shared memory ---- */

void ptx_find_kept(ptx_writer *w); /* %kept<access>: where the row begins there */
/* Asks for all that the phase puts there of chunk %chunk, elements %e to %end, in vectors; and, at each step, waits for
 * what that needs. Nothing where threads put their own elements there. */
void ptx_copy_kept(ptx_writer *w);
void ptx_wait_for_kept(ptx_writer *w);

/* ---- ptx_scans.c ---- */

void ptx_scan_step(ptx_writer *w, int v); /* what a scan gives for all elements of a step */
void ptx_write_scans(ptx_writer *w);
void ptx_write_scan_parts(ptx_writer *w);
/* A step of the thread's elements, from %e on; then %e is where the next one begins. */
void ptx_write_scan_step(ptx_writer *w, int scan, bool stores);

/* ---- ptx_scan_tiles.c: scans through shared memory ---- */

/* All elements from %e to %end of the warp's rows. */
void ptx_write_scan_tiles(ptx_writer *w, int scan, bool stores);
/* Bytes of shared memory, at `tile`. */
int ptx_scan_tile_bytes(const ptx_writer *w);

/* ---- ptx_rows.c: a kernel of the shape's mode, which is none of pointwise and tiles ---- */

void ptx_write_rows(ptx_writer *w);
void ptx_guard_elements(ptx_writer *w); /* %in<k>: which of a step's elements are there */

#endif
