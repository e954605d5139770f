/* Unpacking the device's code, once a unit and device. In: a block of LZ4, which the build has made: sequences of a
 * token (lengths of both parts), literals, and what is copied from earlier text. Out: the text.
 * Tests: all of tests/cuda, which runs it. */
#include "cuda/device_code.h"

enum { LEAST_MATCH = 4, MOST_IN_TOKEN = 15 };

/* A length that a token begins. */
static int64_t read_length(const unsigned char **at, int in_token) {
  int64_t length = in_token;
  if (in_token < MOST_IN_TOKEN) return length;
  int more;
  do {
    more = *(*at)++;
    length += more;
  } while (more == 255);
  return length;
}

char *wk__cuda_unpack(const wk__cuda_packed *packed) {
  char *text = wk__alloc((size_t)packed->text_size + 1), *out = text;
  const unsigned char *at = packed->bytes, *end = at + packed->size;
  while (text && at < end) {
    int token = *at++;
    int64_t literals = read_length(&at, token >> 4);
    memcpy(out, at, (size_t)literals);
    out += literals, at += literals;
    if (at >= end) break; /* the last sequence copies nothing */
    int64_t distance = at[0] | at[1] << 8;
    at += 2;
    int64_t match = LEAST_MATCH + read_length(&at, token & MOST_IN_TOKEN);
    for (const char *from = out - distance; match > 0; match--) *out++ = *from++; /* which may be what it writes */
  }
  if (text) *out = 0;
  return text;
}
