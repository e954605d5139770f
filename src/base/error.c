/* The calling thread's last error, and the library's version.
 *
 * In: a category, an origin and a printf format. Out: the same category, so that `return wk_fail(...)` reads well.
 * Invariant: setting an error never allocates, so running out of memory can always be reported; a message longer than
 * the buffer ends in "...". Tests: tests/c/test_base.c, error_*. */
#include <stdio.h>

#include "base/base.h"

enum { MESSAGE_SIZE = 2048 };

static _Thread_local struct {
  wk_status category;
  const char *origin; /* a string literal from wk_fail */
  char message[MESSAGE_SIZE];
} last_error;

wk_status wk_error_category(void) { return last_error.category; }

const char *wk_error_message(void) { return last_error.message; }

const char *wk_error_origin(void) { return last_error.origin ? last_error.origin : ""; }

void wk_error_clear(void) {
  last_error.category = WK_OK;
  last_error.origin = NULL;
  last_error.message[0] = 0;
}

wk_status wk_error_set(wk_status category, const char *origin, const char *format, ...) {
  char
      text[MESSAGE_SIZE]; /* the arguments may point into the old message: wk_fail(c, "in f: %s", wk_error_message()) */
  va_list args;
  va_start(args, format);
  int length = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (length >= MESSAGE_SIZE) memcpy(text + MESSAGE_SIZE - 4, "...", 4);
  if (length < 0) memcpy(text, "?", 2);
  memcpy(last_error.message, text, strlen(text) + 1);
  last_error.category = category;
  last_error.origin = origin;
  return category;
}

const char *wk_version(void) { return WK_VERSION; }
