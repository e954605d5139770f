/* Additions to memory whose sums do not depend on the order that threads come in, for
 * torch.use_deterministic_algorithms: a nest that adds floats (WK__LOOP_store_add) is gone through twice. The first
 * time each place gets the largest magnitude of what is added to it, the second time what is added, as whole numbers of
 * a unit that this magnitude gives; then a sum is added to each place and rounded once. Sums of whole numbers are the
 * same in any order. A unit is at most 2^-39 of the largest magnitude where a launch adds at most 2^22 numbers; of
 * doubles there is a second sum of what is below the unit.
 *
 * The host and the device (cuda/on_device/exact_sums.c, codegen/ptx_exact.c) agree on this. */
#ifndef WICK_CODEGEN_EXACT_SUMS_H
#define WICK_CODEGEN_EXACT_SUMS_H

#include <stdint.h>

enum { WK__EXACT_THREADS = 256, WK__EXACT_BITS = 62 }; /* of a sum, with all that is added to it */

/* Of infinities, sums count instead: positive ones, and negative ones in the upper half. */
enum { WK__EXACT_NEGATIVE_SHIFT = 32 };

/* The last step: `places` neighbouring elements of `out` get their sums. */
typedef struct wk__exact_end {
  uint64_t out, largest, sums; /* largest: u32, the magnitude's (upper) word; sums: i64, of doubles two a place */
  int64_t places;
  int64_t bits; /* of what is added: below 2^bits units */
} wk__exact_end;
enum { WK__EXACT_ADDRESSES = 3 };

#endif
