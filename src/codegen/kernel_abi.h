/* What a generated kernel and the runtime agree on. This file is compiled into wick and, as text, stands at the head of
 * every generated unit, so that the two cannot differ.
 *
 * A kernel is `void NAME(const struct wk__kernel_args *a, struct wk__kernel_thread *t, int64_t begin, int64_t end)`. It
 * computes tasks [begin, end) of a launch, on one thread, which `t` belongs to. What a task is depends on the mode:
 *   pointwise: a block of at most WK__KERNEL_BLOCK elements, m rows of n;
 *   rows: one row, all its reduction dims, with all phases of the nest;
 *   columns: at most WK__KERNEL_BLOCK adjacent columns, with all phases.
 * Tasks are numbered through the outer pointwise dims, the last one fastest. Any split of them gives the same bits.
 *
 * A kernel never computes an address itself: it asks for blocks. `start` sets the positions of a task; `block` makes
 * t->pointer[w] point at `count` adjacent elements of walker w from element e on: at memory itself where they are
 * adjacent there, else at a copy; `flush` brings back what was written to copies. So one body serves all strides. */
#ifndef WICK_CPU_NATIVE_KERNEL_ABI_H
#define WICK_CPU_NATIVE_KERNEL_ABI_H

#include <stdint.h>

enum {
  WK__KERNEL_DIMS = 16,    /* loops of a nest */
  WK__KERNEL_WALKERS = 64, /* accesses and index expressions */
  WK__KERNEL_BLOCK = 1024, /* elements of a block */
  WK__KERNEL_LEVELS = 48,  /* of the counter that folds chunks */
  WK__KERNEL_TOGETHER = 4, /* rows */
};

/* Something that moves with the loops: an access (memory) or an index expression (a number). Walkers are numbered
 * accesses first, then expressions. */
typedef struct wk__walker {
  char *base;    /* access: memory of coordinate zero */
  int64_t start; /* expression: value at zero. access: elements from base */
  int64_t stride_m, stride_n;
  int64_t outer[WK__KERNEL_DIMS];    /* outer pointwise dims, then outer reduction dims */
  int64_t indirect[WK__KERNEL_DIMS]; /* access: the buffer's strides for indirect coordinates */
  int64_t item;                      /* access: bytes an element */
} wk__walker;

struct wk__kernel_args;

enum { WK__KERNEL_INDEX_FAULT = 1, WK__KERNEL_ZERO_DIVISION = 2 };

/* One thread's part of a launch. */
struct wk__kernel_thread {
  int fault;                         /* bits: what went wrong */
  int bad_check;                     /* number of the expression whose check failed last, */
  int64_t bad_index;                 /* and the index that it saw */
  int64_t at[WK__KERNEL_WALKERS];    /* of each walker at the task's origin */
  void *pointer[WK__KERNEL_WALKERS]; /* set by `block` */
  uint64_t copied;                   /* walkers that point at copies */
  int64_t m0, n0, m, n;              /* pointwise: the block. columns: n0, n are the strip */
  char *copies;                      /* (walkers) blocks of WK__KERNEL_BLOCK * 8 bytes */
  char *kept;                        /* rows: values of a whole row, a->kept_bytes each, a->together of each value */
  char *strips;                      /* columns: values of a task's columns, a->strip bytes each */
};

struct wk__kernel_number {
  double d;  /* the number; for a bool: is it zero? */
  int64_t i; /* as an integer */
};

struct wk__kernel_args {
  const wk__walker *walkers;
  const struct wk__kernel_number *params;
  const int64_t *limits; /* by expression: the size that an index is checked against */
  int64_t length;        /* elements of a row; 1 without reductions */
  int64_t rows;          /* by rows: so many tasks differ by the walkers' stride_m alone; t->m0 is the first's number */
  int64_t together;      /* by rows: so many, at most WK__KERNEL_TOGETHER, go through the phases side by side */
  int64_t kept_bytes;    /* of a value that a whole row keeps */
  int64_t counters;      /* columns: strips of a reduction's counter, */
  int64_t strip;         /* and bytes from strip to strip: whole vectors, so that no column needs special care, and a
                            cache line more, or they would all fall into the same sets of the cache */
  uint64_t adjacent;     /* walkers (bits) that may be addressed without asking: see `start`. By columns also those that
                            no pointwise dim moves: of them only the first element is read */
  const void *geometry;  /* the runtime's */
  /* Sets t->at. Of an adjacent walker element e is at + e elements from base, by rows; at + e * stride_m, by columns.
   */
  void (*start)(const struct wk__kernel_args *a, struct wk__kernel_thread *t, int64_t task);
  /* Walkers in `wanted` (bits). Indirect accesses and expressions: int64 numbers instead of memory; of an access the
   * elements from base. `written`: those whose old content is not needed. */
  void (*block)(const struct wk__kernel_args *a, struct wk__kernel_thread *t, uint64_t wanted, uint64_t written,
                int64_t e, int64_t count);
  void (*flush)(const struct wk__kernel_args *a, struct wk__kernel_thread *t, uint64_t written, int64_t e,
                int64_t count);
};

/* What units call that is not in them: libm's functions and rare conversions. Given once, after loading. */
struct wk__kernel_imports {
  double (*fma)(double, double, double);
  double (*fmod)(double, double);
  float (*fmodf)(float, float);
  double (*pow)(double, double);
  double (*log2)(double), (*log10)(double), (*log1p)(double), (*erf)(double), (*sin)(double), (*cos)(double),
      (*floor)(double);
  float (*f16_to_f32)(uint16_t);
  uint16_t (*f32_to_f16)(float);
  float (*e4m3_to_f32)(uint8_t), (*e5m2_to_f32)(uint8_t), (*e4m3z_to_f32)(uint8_t), (*e5m2z_to_f32)(uint8_t),
      (*e8m0_to_f32)(uint8_t);
  uint8_t (*f32_to_e4m3)(float), (*f32_to_e5m2)(float), (*f32_to_e4m3z)(float), (*f32_to_e5m2z)(float),
      (*f32_to_e8m0)(float);
};

#endif
