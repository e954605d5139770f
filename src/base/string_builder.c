/* Text that grows.
 *
 * In: pieces of text. Out: one terminated string. Invariant: an append after a failed one does nothing, so a printer
 * may append without checks and wk__string_take reports the failure once. Tests: tests/c/test_base.c, string_*. */
#include <stdio.h>

#include "base/base.h"

/* Room for n more bytes and the terminator; false, with `failed` set, when there is none. */
static bool reserve(wk__string *s, int64_t n) {
  if (!s->failed && wk__grow(&s->text, &s->capacity, s->length + n + 1, 1) != WK_OK) s->failed = true;
  return !s->failed;
}

void wk__string_append_n(wk__string *s, const char *text, int64_t n) {
  if (!reserve(s, n)) return;
  if (n) memcpy(s->text + s->length, text, (size_t)n);
  s->length += n;
  s->text[s->length] = 0;
}

void wk__string_append(wk__string *s, const char *text) { wk__string_append_n(s, text, (int64_t)strlen(text)); }

void wk__string_append_integer(wk__string *s, int64_t number) {
  char digits[20], *end = digits + sizeof digits, *first = end;
  uint64_t left = number < 0 ? -(uint64_t)number : (uint64_t)number;
  do *--first = (char)('0' + left % 10);
  while (left /= 10);
  if (number < 0) *--first = '-';
  wk__string_append_n(s, first, end - first);
}

void wk__string_vprintf(wk__string *s, const char *format, va_list args) {
  if (!reserve(s, 64)) return;
  for (int attempt = 0; attempt < 2; attempt++) { /* the first may learn that there is too little room */
    va_list copy;
    va_copy(copy, args);
    int64_t room = s->capacity - s->length;
    int length = vsnprintf(s->text + s->length, (size_t)room, format, copy);
    va_end(copy);
    if (length >= 0 && length < room) {
      s->length += length;
      return;
    }
    s->text[s->length] = 0;
    if (length < 0 || !reserve(s, length)) break;
  }
  s->failed = true;
}

void wk__string_printf(wk__string *s, const char *format, ...) {
  va_list args;
  va_start(args, format);
  wk__string_vprintf(s, format, args);
  va_end(args);
}

char *wk__string_take(wk__string *s) {
  char *text = NULL;
  if (reserve(s, 0)) {
    text = s->text;
    text[s->length] = 0;
    s->text = NULL;
  } else {
    (void)wk_fail(WK_OUT_OF_MEMORY, "out of memory while text was built");
  }
  wk__string_release(s);
  return text;
}

void wk__string_release(wk__string *s) {
  wk__free(s->text);
  *s = (wk__string){0};
}
