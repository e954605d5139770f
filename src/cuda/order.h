/* Sorting rows, finding places and scans that keep one: what the host and the device (on_device/order.c) agree on.
 * Compiled for both. */
#ifndef WICK_CUDA_ORDER_H
#define WICK_CUDA_ORDER_H

#include "cpu/kernels/sort_key.h"

enum {
  WK__SORT_CHUNK = 1024,  /* items that a block sorts in shared memory, two a thread */
  WK__PLACES_CHUNK = 4096 /* elements whose places a block finds */
};

/* Rows of `count` elements, contiguous, padded to a power of two with items behind all others. An item is a key and the
 * place that it comes from; of equal keys the lower place is the first, so that the order is one, and stable. */
typedef struct wk__cuda_sort {
  uint64_t source, keys, places; /* elements; (rows, padded) u64 and u32 */
  uint64_t out;                  /* (rows, given) i64: the places of the first of each row */
  int64_t rows, count, padded, given;
  int64_t k, j;          /* of a step: runs of k items, partners j apart */
  uint64_t flip;         /* all bits of a key where the order is descending */
  wk__key_format format; /* of the elements */
} wk__cuda_sort;

/* Elements that are not zero: how many before each chunk, then their places in order. */
typedef struct wk__cuda_places {
  uint64_t source; /* (count) bool */
  uint64_t counts; /* (chunks + 1) i64: of each chunk, then before each, and of all */
  uint64_t out;    /* i64 */
  int64_t count, chunks;
} wk__cuda_places;

/* Scans of contiguous rows of f64 or i64: places of the best element so far (of equals the last; a NaN is the best),
 * or log(sum(exp)) so far. */
enum { WK__SCAN_MOST, WK__SCAN_LEAST, WK__SCAN_LOG };
typedef struct wk__cuda_scan {
  uint64_t source, out; /* (rows, length); out: i64, of logarithms f64 */
  int64_t rows, length;
  int32_t what, is_float;
} wk__cuda_scan;

/* The place of each value in a sorted row: how many of its elements are before it. */
typedef struct wk__cuda_search {
  uint64_t sorted, values;     /* f64 or i64 */
  uint64_t out, sorter;        /* i64 or, narrow, i32; i64, 0: none */
  int64_t length, each, count; /* of a row; values that look in it, 0: one row for all; values */
  int32_t is_float, right, narrow, reserved;
} wk__cuda_search;

#endif
