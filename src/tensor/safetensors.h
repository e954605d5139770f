/* safetensors files: reading the header of untrusted bytes, writing files as the public library does.
 *
 * In: a whole file in memory (mapped, usually), or tensors as name, type, shape and bytes. Out: entries that point into
 * the file, or a file. Invariant: every entry that parsing returns lies inside the file, its bytes match its shape and
 * type, names are unique, and the entries cover the data without holes or overlaps. Tests: tests/c/test_safetensors.c.
 *
 * The format: 8 bytes, little endian: the header's length; the header: JSON, padded with spaces; the data. */
#ifndef WICK_TENSOR_SAFETENSORS_H
#define WICK_TENSOR_SAFETENSORS_H

#include "base/base.h"

typedef struct wk__safetensors_entry {
  const char *name;     /* UTF-8 */
  const char *dtype;    /* the format's code: "F32", "BF16", ...; of static life after parsing */
  int ndim;             /* 0 for a scalar */
  const int64_t *shape; /* ndim sizes */
  int64_t begin, end;   /* bytes, from the start of the data */
  const void *data;     /* end - begin bytes; unaligned when the writer did not care */
} wk__safetensors_entry;

typedef struct wk__safetensors_pair {
  const char *key, *value; /* UTF-8 */
} wk__safetensors_pair;

/* A parsed header. Strings and shapes live in the arena, data in the caller's bytes. */
typedef struct wk__safetensors {
  wk__arena arena;
  wk__safetensors_entry *entries; /* in the order of the data */
  int64_t count;
  wk__safetensors_pair *metadata; /* "__metadata__", in the file's order; keys unique */
  int64_t metadata_count;
  wk__safetensors_entry **by_name; /* the entries, names ascending bytewise */
} wk__safetensors;

/* Parses `size` bytes of a file into *out, to be released. WK_VALUE_ERROR for whatever is wrong with the bytes; then
 * *out is empty. The bytes must outlive *out. */
WK_MUST_USE wk_status wk__safetensors_parse(const void *bytes, int64_t size, wk__safetensors *out);
void wk__safetensors_release(wk__safetensors *file);
/* The entry of that name, borrowed; NULL when there is none (no error is set). */
const wk__safetensors_entry *wk__safetensors_find(const wk__safetensors *file, const char *name);

/* Lays tensors out as the public library does: sorts `entries` by type (widest first), then name, sets begin and end,
 * and appends the 8 length bytes and the padded header to *header. Names must be unique. */
WK_MUST_USE wk_status wk__safetensors_plan(wk__safetensors_entry *entries, int64_t count,
                                           const wk__safetensors_pair *metadata, int64_t metadata_count,
                                           wk__string *header);
/* Plans, then writes header and every entry's data to a new file at `path`. A file that was not written completely is
 * removed. */
WK_MUST_USE wk_status wk__safetensors_save(const char *path, wk__safetensors_entry *entries, int64_t count,
                                           const wk__safetensors_pair *metadata, int64_t metadata_count);

#endif
