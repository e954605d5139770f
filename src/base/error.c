/* The calling thread's last error, and the library's version.
 *
 * In: a category, an origin and a printf format. Out: the same category, so that `return wk_fail(...)` reads well.
 * Invariant: running out of memory can always be reported. A thread's first error takes the message's buffer from the
 * heap and later ones nothing; without a buffer the message is a constant. One longer than the buffer ends in "...".
 * Tests: tests/c/test_base.c, error_*. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

enum { MESSAGE_SIZE = 2048 };

static WK__THREAD_LOCAL struct {
  wk_status category;
  const char *origin; /* a string literal from wk_fail */
  char *message;      /* MESSAGE_SIZE bytes; NULL before the first error */
} last_error;

static pthread_key_t message_key;
static pthread_once_t message_once = PTHREAD_ONCE_INIT;
static void free_message(void *message) {
  last_error.message = NULL;
  free(message);
}
static void make_message_key(void) { (void)pthread_key_create(&message_key, free_message); }

/* Not by wk__alloc, whose failure is an error. */
static char *find_message(void) {
  if (last_error.message) return last_error.message;
  pthread_once(&message_once, make_message_key);
  char *message = calloc(1, MESSAGE_SIZE);
  if (message && pthread_setspecific(message_key, message) == 0) return last_error.message = message;
  free(message);
  return NULL;
}

wk_status wk_error_category(void) { return last_error.category; }

const char *wk_error_message(void) {
  if (last_error.message) return last_error.message;
  return last_error.category == WK_OK ? "" : "out of memory: there is none for this error's text either";
}

const char *wk_error_origin(void) { return last_error.origin ? last_error.origin : ""; }

void wk_error_clear(void) {
  last_error.category = WK_OK;
  last_error.origin = NULL;
  if (last_error.message) last_error.message[0] = 0;
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
  char *message = find_message();
  if (message) memcpy(message, text, strlen(text) + 1);
  last_error.category = category;
  last_error.origin = origin;
  return category;
}

const char *wk_version(void) { return WK_VERSION; }
