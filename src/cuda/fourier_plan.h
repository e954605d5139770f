/* What a launch of a Fourier transform needs beside its rows: stages, and tables of roots of one. */
#ifndef WICK_CUDA_FOURIER_PLAN_H
#define WICK_CUDA_FOURIER_PLAN_H

#include "cuda/fourier.h"
#include "cuda/internal.h"
#include "tensor/tensor.h"

/* Numbers of the device's memory that transforms are given, by the device and precision of `on`. */
typedef struct wk__fourier_place {
  const wk_tensor *on;
  wk__cuda_device *device;
  bool wide; /* in double */
} wk__fourier_place;

/* (count) pairs; NULL with the error set. */
wk_tensor *wk__fourier_pairs(const wk__fourier_place *p, int64_t count);

/* A length has a prime factor that is a chirp's. */
bool wk__fourier_is_chirp(int64_t n);
/* Rows of n are one launch's. */
bool wk__fourier_is_short(const wk__fourier_place *p, int64_t n);
/* The length of the columns that rows of n, which are not short, become: it divides n. */
int64_t wk__fourier_columns(const wk__fourier_place *p, int64_t n);

/* Launches `rows` for rows of f->n, short, with stages and tables; f->order: 0, or that of the turns. */
WK_MUST_USE wk_status wk__fourier_run_rows(const wk__fourier_place *p, wk__cuda_fourier f);
/* Launches `numbers`, with turns unless it has some. */
WK_MUST_USE wk_status wk__fourier_run_numbers(const wk__fourier_place *p, wk__cuda_fourier f);

#endif
