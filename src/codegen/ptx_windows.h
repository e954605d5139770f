/* Windows of images as an operand of a product (ptx_product.h), in PTX: where the pieces lie that a thread copies.
 *
 * A window belongs to a place: an image and a number q of each dim. It has taps, t of each dim, and of each tap all
 * channels, at q stride + start + t step of the image, or zeros where that is outside of it. So a product whose
 * operand is windows is a convolution (places x taps and channels), and none of them is ever made in memory. As A,
 * rows are places, and k is taps and channels; as B, k is places, and columns are taps and channels.
 *
 * Images have their channels last, in pieces of 8 that are 16 bytes. Numbers of places and taps are kept as digits, so
 * that a step of k is additions with carries. Tests: tests/cuda/test_convolution.py. */
#ifndef WICK_CODEGEN_PTX_WINDOWS_H
#define WICK_CODEGEN_PTX_WINDOWS_H

#include "codegen/ptx_text.h"

enum { WK__WINDOW_DIMS = 3, WK__WINDOW_PIECE = 8 };

/* Arguments, behind the product's. Those of dims are WK__WINDOW_DIMS each, the innermost dim first. */
typedef enum wk__ptx_window_arg {
  WK__WINDOW_CHANNELS, /* of a tap, a multiple of 8; in front of the taps: the digits of k or of a column */
  WK__WINDOW_TAPS,
  WK__WINDOW_PLACES = WK__WINDOW_TAPS + WK__WINDOW_DIMS,
  WK__WINDOW_STRIDE = WK__WINDOW_PLACES + WK__WINDOW_DIMS,
  WK__WINDOW_START = WK__WINDOW_STRIDE + WK__WINDOW_DIMS, /* this and the step may be negative */
  WK__WINDOW_STEP = WK__WINDOW_START + WK__WINDOW_DIMS,
  WK__WINDOW_SIZE = WK__WINDOW_STEP + WK__WINDOW_DIMS,   /* of an image */
  WK__WINDOW_PITCH = WK__WINDOW_SIZE + WK__WINDOW_DIMS,  /* from an element to the next, in pieces */
  WK__WINDOW_IMAGE = WK__WINDOW_PITCH + WK__WINDOW_DIMS, /* from an image to the next, in pieces */
  WK__WINDOW_MORE,                                       /* the digits of a step of k: one more than there are dims */
  WK__WINDOW_OUT_PITCH = WK__WINDOW_MORE + WK__WINDOW_DIMS + 1, /* of a result that is spread, in bytes */
  WK__WINDOW_OUT_IMAGE = WK__WINDOW_OUT_PITCH + WK__WINDOW_DIMS,
  WK__WINDOW_ARGS
} wk__ptx_window_arg;

/* One side of a piece's address, in registers: a place, or a tap and a channel. */
typedef struct wk__ptx_window_side {
  int digits[WK__WINDOW_DIMS + 1]; /* words; a tap's: channel, taps; a place's: numbers, image */
  int at[WK__WINDOW_DIMS];         /* words, signed: its share of the place in the image, */
  int offset;                      /* and of the offset, in pieces */
} wk__ptx_window_side;

/* What a kernel's windows are: the text that they are written to, and where their arguments begin. */
typedef struct wk__ptx_windows {
  wk__ptx_text *text;
  int dims, first_arg;
} wk__ptx_windows;

/* The side of a place, or of a column of taps and channels, which is a word; and a step of k further. */
wk__ptx_window_side wk__ptx_window_place(const wk__ptx_windows *w, int place);
wk__ptx_window_side wk__ptx_window_tap(const wk__ptx_windows *w, int column);
void wk__ptx_window_next_place(const wk__ptx_windows *w, wk__ptx_window_side *place);
void wk__ptx_window_next_tap(const wk__ptx_windows *w, wk__ptx_window_side *tap);

/* The long address of the piece of two sides, `base` being that of the first image; *bytes, a word, becomes a new one,
 * of 0 where the piece is outside of the image. */
int wk__ptx_window_piece(const wk__ptx_windows *w, const wk__ptx_window_side *place, const wk__ptx_window_side *tap,
                         int base, int *bytes);

/* A spread result's line of a place: `base` and what is returned are longs. */
int wk__ptx_window_result(const wk__ptx_windows *w, int base, int place);

#endif
