/* Writing the addresses of windows. Tests: tests/cuda/test_convolution.py. */
#include "codegen/ptx_windows.h"

#define SAY(...) wk__ptx_say(w->text, __VA_ARGS__)

static int arg(const wk__ptx_windows *w, int index) { return wk__ptx_arg_word(w->text, w->first_arg + index); }

/* ---- digits ---- */

/* The dims' digits of a number, by the extents from argument `extents` on, and what is left over. */
static void split(const wk__ptx_windows *w, int number, int extents, int *digits) {
  int word = number;
  for (int d = 0; d < w->dims; d++) {
    int extent = arg(w, extents + d);
    digits[d] = wk__ptx_two(w->text, "rem.u32", word, extent);
    word = wk__ptx_two(w->text, "div.u32", word, extent);
  }
  digits[w->dims] = wk__ptx_with(w->text, "add.u32", word, 0); /* a register of its own, which steps change */
}

static void add_digits(const wk__ptx_windows *w, int extents, const int *digits) {
  int carry = -1;
  for (int d = 0; d <= w->dims; d++) {
    int digit = digits[d], over = wk__ptx_predicate(w->text);
    SAY("add.u32 %%r%d, %%r%d, %%r%d", digit, digit, arg(w, WK__WINDOW_MORE + d));
    if (carry >= 0) SAY("@%%p%d add.u32 %%r%d, %%r%d, 1", carry, digit, digit);
    if (d == w->dims) return;
    int extent = arg(w, extents + d);
    SAY("setp.ge.u32 %%p%d, %%r%d, %%r%d", over, digit, extent);
    SAY("@%%p%d sub.u32 %%r%d, %%r%d, %%r%d", over, digit, digit, extent);
    carry = over;
  }
}

/* ---- sides ---- */

static void declare(const wk__ptx_windows *w, wk__ptx_window_side *s) {
  for (int d = 0; d < w->dims; d++) s->at[d] = wk__ptx_words(w->text, 1);
  s->offset = wk__ptx_words(w->text, 1);
}

/* The offset, from its first term on. */
static void find_offset(const wk__ptx_windows *w, const wk__ptx_window_side *s) {
  for (int d = 0; d < w->dims; d++)
    SAY("mad.lo.s32 %%r%d, %%r%d, %%r%d, %%r%d", s->offset, s->at[d], arg(w, WK__WINDOW_PITCH + d), s->offset);
}

static void find_place(const wk__ptx_windows *w, const wk__ptx_window_side *s) {
  for (int d = 0; d < w->dims; d++)
    SAY("mad.lo.s32 %%r%d, %%r%d, %%r%d, %%r%d", s->at[d], s->digits[d], arg(w, WK__WINDOW_STRIDE + d),
        arg(w, WK__WINDOW_START + d));
  SAY("mul.lo.s32 %%r%d, %%r%d, %%r%d", s->offset, s->digits[w->dims], arg(w, WK__WINDOW_IMAGE));
  find_offset(w, s);
}

static void find_tap(const wk__ptx_windows *w, const wk__ptx_window_side *s) {
  for (int d = 0; d < w->dims; d++)
    SAY("mul.lo.s32 %%r%d, %%r%d, %%r%d", s->at[d], s->digits[d + 1], arg(w, WK__WINDOW_STEP + d));
  SAY("shr.u32 %%r%d, %%r%d, 3", s->offset, s->digits[0]);
  find_offset(w, s);
}

wk__ptx_window_side wk__ptx_window_place(const wk__ptx_windows *w, int place) {
  wk__ptx_window_side s;
  split(w, place, WK__WINDOW_PLACES, s.digits);
  declare(w, &s);
  find_place(w, &s);
  return s;
}

wk__ptx_window_side wk__ptx_window_tap(const wk__ptx_windows *w, int column) {
  wk__ptx_window_side s;
  split(w, column, WK__WINDOW_CHANNELS, s.digits);
  declare(w, &s);
  find_tap(w, &s);
  return s;
}

void wk__ptx_window_next_place(const wk__ptx_windows *w, wk__ptx_window_side *place) {
  add_digits(w, WK__WINDOW_PLACES, place->digits);
  find_place(w, place);
}

void wk__ptx_window_next_tap(const wk__ptx_windows *w, wk__ptx_window_side *tap) {
  add_digits(w, WK__WINDOW_CHANNELS, tap->digits);
  find_tap(w, tap);
}

/* ---- pieces ---- */

int wk__ptx_window_piece(const wk__ptx_windows *w, const wk__ptx_window_side *place, const wk__ptx_window_side *tap,
                         int base, int *bytes) {
  int address = wk__ptx_long(w->text), inside = wk__ptx_predicate(w->text), some = wk__ptx_words(w->text, 1);
  for (int d = 0; d < w->dims; d++) {
    int at = wk__ptx_two(w->text, "add.s32", place->at[d], tap->at[d]), size = arg(w, WK__WINDOW_SIZE + d);
    if (d == 0)
      SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", inside, at, size);
    else
      SAY("setp.lt.and.u32 %%p%d, %%r%d, %%r%d, %%p%d", inside, at, size, inside);
  }
  SAY("selp.b32 %%r%d, %%r%d, 0, %%p%d", some, *bytes, inside);
  SAY("mad.wide.s32 %%d%d, %%r%d, 16, %%d%d", address, wk__ptx_two(w->text, "add.s32", place->offset, tap->offset),
      base);
  *bytes = some;
  return address;
}

int wk__ptx_window_result(const wk__ptx_windows *w, int base, int place) {
  int digits[WK__WINDOW_DIMS + 1];
  split(w, place, WK__WINDOW_PLACES, digits);
  for (int d = 0; d < w->dims; d++)
    base = wk__ptx_advance(w->text, base, w->first_arg + WK__WINDOW_OUT_PITCH + d, digits[d]);
  return wk__ptx_advance(w->text, base, w->first_arg + WK__WINDOW_OUT_IMAGE, digits[w->dims]);
}
