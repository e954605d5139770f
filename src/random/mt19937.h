/* mt19937: a stream of 32-bit words that can be drawn in order, and skipped over at a cost that hardly depends on how
 * far.
 *
 * M. Matsumoto, T. Nishimura, "Mersenne Twister", ACM TOMACS 8(1), 1998. A stream is a plain value: a copy goes on by
 * itself, which is how threads draw parts of one stream at once. Tests: tests/c/test_generator.c. */
#ifndef WICK_RANDOM_MT19937_H
#define WICK_RANDOM_MT19937_H

#include <stdint.h>

#define WK__MT_WORDS 624 /* words of the state: a block */

typedef struct wk__mt19937 {
  _Alignas(64) uint32_t state[WK__MT_WORDS]; /* untempered words */
  uint32_t next;                             /* index of the next word; 0 or 624 when the state must be twisted first */
  int32_t left;                              /* PyTorch's countdown to the next twist: 1 when fresh, else 625 - next */
} wk__mt19937;

/* The next n tempered words. */
void wk__mt_draw(wk__mt19937 *mt, uint32_t *out, int64_t n);
/* n draws of 53 bits, two words each, the first one above: 1 where the draw is below `threshold`, at most 2^53. */
void wk__mt_draw_below(wk__mt19937 *mt, uint8_t *out, int64_t n, uint64_t threshold);
/* As if n words had been drawn. */
void wk__mt_skip(wk__mt19937 *mt, int64_t n);

#endif
