/* safetensors headers: a strict parser for untrusted bytes, and the writer.
 *
 * In: bytes, or entries. Out: entries, or bytes. Invariant of the parser: `at` never passes `end`, nothing outside the
 * header is read, and an error is set exactly when a function returns false or a status. Of JSON it takes what the
 * format can hold: objects, strings, arrays of non-negative integers. Tests: tests/c/test_safetensors.c. */
#include "tensor/safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH_BYTES = 8, MAX_HEADER = 100000000 /* the public library's limit */, MAX_NDIM = 64 };

/* ---- types ---- */

/* Ascending in the order in which the public library sorts them. */
static const struct {
  const char *code;
  int bits;
} dtypes[] = {{"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},   {"I8", 8},    {"F8_E5M2", 8},
              {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16}, {"BF16", 16}, {"I32", 32},
              {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},    {"I64", 64}, {"U64", 64}};

static int dtype_rank(const char *code) {
  for (size_t i = 0; i < WK_COUNT(dtypes); i++)
    if (!strcmp(dtypes[i].code, code)) return (int)i;
  return -1;
}

/* Bytes of a tensor; an overflow on the way, a negative size or half a byte is an error. */
static wk_status byte_count(const wk__safetensors_entry *e, int64_t *out) {
  int rank = dtype_rank(e->dtype);
  if (rank < 0) return wk_fail(WK_VALUE_ERROR, "safetensors: \"%.80s\" has an unknown dtype", e->name);
  int64_t bits = dtypes[rank].bits;
  for (int d = 0; d < e->ndim; d++)
    if (e->shape[d] < 0 || __builtin_mul_overflow(bits, e->shape[d], &bits))
      return wk_fail(WK_VALUE_ERROR, "safetensors: the shape of \"%.80s\" overflows", e->name);
  if (bits % 8) return wk_fail(WK_VALUE_ERROR, "safetensors: \"%.80s\" does not end on a byte", e->name);
  *out = bits / 8;
  return WK_OK;
}

/* ---- JSON: tokens ---- */

typedef struct parser {
  const char *start, *at, *end; /* the header */
  wk__arena *arena;             /* for strings and shapes */
} parser;

static bool reject(const parser *p, const char *what) {
  (void)wk_fail(WK_VALUE_ERROR, "safetensors: invalid header: %s at byte %lld", what, (long long)(p->at - p->start));
  return false;
}

static void skip_space(parser *p) {
  while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r')) p->at++;
}

/* Takes the character when it is next, after white space. */
static bool accept(parser *p, char c) {
  skip_space(p);
  if (p->at == p->end || *p->at != c) return false;
  p->at++;
  return true;
}

static bool expect(parser *p, char c) {
  if (accept(p, c)) return true;
  char what[] = "expected '?'";
  what[10] = c;
  return reject(p, what);
}

/* A non-negative int64 without leading zeros. */
static bool parse_size(parser *p, int64_t *out) {
  skip_space(p);
  const char *first = p->at;
  *out = 0;
  for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
    if (__builtin_mul_overflow(*out, 10, out) || __builtin_add_overflow(*out, *p->at - '0', out))
      return reject(p, "number too large");
  if (p->at == first || (*first == '0' && p->at - first > 1)) return reject(p, "expected a non-negative integer");
  return true;
}

static bool parse_hex4(parser *p, uint32_t *out) {
  *out = 0;
  for (int i = 0; i < 4; i++, p->at++) {
    char c = p->at < p->end ? *p->at : 0;
    int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
    if (digit < 0) return reject(p, "expected four hex digits");
    *out = *out << 4 | (uint32_t)digit;
  }
  return true;
}

static char *put_utf8(char *to, uint32_t c) {
  if (c < 0x80) {
    *to++ = (char)c;
    return to;
  }
  int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  static const uint32_t lead[] = {0, 0xc0, 0xe0, 0xf0};
  *to++ = (char)(lead[more] | c >> 6 * more);
  while (more-- > 0) *to++ = (char)(0x80 | (c >> 6 * more & 0x3f));
  return to;
}

/* What follows \u; surrogates must pair. NUL is refused: names are C strings here. */
static bool parse_unicode_escape(parser *p, char **to) {
  uint32_t c, low;
  if (!parse_hex4(p, &c)) return false;
  if (c == 0) return reject(p, "NUL in a string");
  if (c >= 0xdc00 && c < 0xe000) return reject(p, "unpaired surrogate");
  if (c >= 0xd800 && c < 0xdc00) {
    if (p->end - p->at < 2 || p->at[0] != '\\' || p->at[1] != 'u') return reject(p, "unpaired surrogate");
    p->at += 2;
    if (!parse_hex4(p, &low)) return false;
    if (low < 0xdc00 || low >= 0xe000) return reject(p, "unpaired surrogate");
    c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
  }
  *to = put_utf8(*to, c);
  return true;
}

static bool parse_escape(parser *p, char **to) {
  static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
  char c = p->at < p->end ? *p->at : 0;
  const char *found = c ? strchr(from, c) : NULL;
  if (!found && c != 'u') return reject(p, "unknown escape");
  p->at++;
  if (!found) return parse_unicode_escape(p, to);
  *(*to)++ = into[found - from];
  return true;
}

/* A string, decoded into the arena. Escapes never grow, so the raw length is room enough. */
static bool parse_string(parser *p, const char **out) {
  if (!expect(p, '"')) return false;
  const char *close = p->at;
  while (close < p->end && *close != '"') close += *close == '\\' ? 2 : 1;
  if (close >= p->end) return reject(p, "string without an end");
  char *to = wk__arena_alloc(p->arena, (size_t)(close - p->at) + 1);
  if (!to) return false;
  *out = to;
  while (p->at < close) {
    unsigned char c = (unsigned char)*p->at;
    if (c < 0x20) return reject(p, "control character in a string");
    p->at++;
    if (c != '\\')
      *to++ = (char)c;
    else if (!parse_escape(p, &to))
      return false;
  }
  *to = 0;
  p->at++;
  return true;
}

/* ---- the header's objects ---- */

/* A parse under way. */
typedef struct draft {
  parser p;
  wk__safetensors *file;
  int64_t entry_capacity, pair_capacity;
  wk__safetensors_entry *entries; /* these two grow on the heap; the counts are the file's */
  wk__safetensors_pair *pairs;
} draft;

static bool parse_shape(parser *p, wk__safetensors_entry *e) {
  int64_t sizes[MAX_NDIM];
  if (!expect(p, '[')) return false;
  if (!accept(p, ']')) {
    do {
      if (e->ndim == MAX_NDIM) return reject(p, "too many dimensions");
      if (!parse_size(p, &sizes[e->ndim++])) return false;
    } while (accept(p, ','));
    if (!expect(p, ']')) return false;
  }
  int64_t *shape = wk__arena_alloc(p->arena, sizeof *shape * (size_t)wk__max(e->ndim, 1));
  if (!shape) return false;
  memcpy(shape, sizes, sizeof *shape * (size_t)e->ndim);
  e->shape = shape;
  return true;
}

static bool parse_offsets(parser *p, wk__safetensors_entry *e) {
  return expect(p, '[') && parse_size(p, &e->begin) && expect(p, ',') && parse_size(p, &e->end) && expect(p, ']');
}

static bool parse_dtype(parser *p, wk__safetensors_entry *e) {
  const char *code;
  if (!parse_string(p, &code)) return false;
  int rank = dtype_rank(code);
  if (rank < 0) return reject(p, "unknown dtype");
  e->dtype = dtypes[rank].code;
  return true;
}

/* {"dtype": ..., "shape": ..., "data_offsets": ...} in any order, each once, nothing else. */
static bool parse_info(parser *p, wk__safetensors_entry *e) {
  static const char *const keys[] = {"dtype", "shape", "data_offsets"};
  static bool (*const values[])(parser *, wk__safetensors_entry *) = {parse_dtype, parse_shape, parse_offsets};
  unsigned seen = 0;
  if (!expect(p, '{')) return false;
  do {
    const char *key;
    if (!parse_string(p, &key) || !expect(p, ':')) return false;
    int k = 0;
    while (k < 3 && strcmp(key, keys[k])) k++;
    if (k == 3 || seen >> k & 1) return reject(p, "unknown or repeated key of a tensor");
    seen |= 1u << k;
    if (!values[k](p, e)) return false;
  } while (accept(p, ','));
  return expect(p, '}') && (seen == 7 || reject(p, "tensor without dtype, shape or data_offsets"));
}

static bool parse_metadata(draft *d) {
  parser *p = &d->p;
  if (!expect(p, '{')) return false;
  if (accept(p, '}')) return true;
  do {
    int64_t i = d->file->metadata_count;
    if (wk__grow(&d->pairs, &d->pair_capacity, i + 1, sizeof *d->pairs)) return false;
    if (!parse_string(p, &d->pairs[i].key) || !expect(p, ':') || !parse_string(p, &d->pairs[i].value)) return false;
    d->file->metadata_count++;
  } while (accept(p, ','));
  return expect(p, '}');
}

static bool parse_member(draft *d, bool *seen_metadata) {
  const char *name;
  if (!parse_string(&d->p, &name) || !expect(&d->p, ':')) return false;
  if (!strcmp(name, "__metadata__")) {
    if (*seen_metadata) return reject(&d->p, "repeated __metadata__");
    *seen_metadata = true;
    return parse_metadata(d);
  }
  int64_t i = d->file->count;
  if (wk__grow(&d->entries, &d->entry_capacity, i + 1, sizeof *d->entries)) return false;
  d->entries[i] = (wk__safetensors_entry){.name = name};
  d->file->count++;
  return parse_info(&d->p, &d->entries[i]);
}

static bool parse_header(draft *d) {
  parser *p = &d->p;
  bool seen_metadata = false;
  if (p->at == p->end || *p->at != '{') return reject(p, "expected '{' as the first byte");
  p->at++;
  if (!accept(p, '}')) {
    do {
      if (!parse_member(d, &seen_metadata)) return false;
    } while (accept(p, ','));
    if (!expect(p, '}')) return false;
  }
  skip_space(p);
  return p->at == p->end || reject(p, "text behind the header's object");
}

/* ---- what must hold between the entries ---- */

static int compare_begin(const void *a, const void *b) {
  const wk__safetensors_entry *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return x->end != y->end ? (x->end < y->end ? -1 : 1) : strcmp(x->name, y->name);
}

static int compare_name(const void *a, const void *b) {
  return strcmp((*(wk__safetensors_entry *const *)a)->name, (*(wk__safetensors_entry *const *)b)->name);
}

static int compare_key(const void *a, const void *b) {
  return strcmp(((const wk__safetensors_pair *)a)->key, ((const wk__safetensors_pair *)b)->key);
}

/* The entries, sorted by place, cover [0, data_size) one after the other, each with the bytes its shape asks for. */
static wk_status check_cover(const wk__safetensors *file, int64_t data_size) {
  int64_t place = 0, bytes;
  for (int64_t i = 0; i < file->count; i++) {
    const wk__safetensors_entry *e = &file->entries[i];
    if (e->begin != place || e->end < e->begin || e->end > data_size)
      return wk_fail(WK_VALUE_ERROR, "safetensors: invalid offsets of \"%.80s\"", e->name);
    WK_TRY(byte_count(e, &bytes));
    if (bytes != e->end - e->begin)
      return wk_fail(WK_VALUE_ERROR, "safetensors: \"%.80s\" holds %lld bytes, its shape and dtype ask for %lld",
                     e->name, (long long)(e->end - e->begin), (long long)bytes);
    place = e->end;
  }
  if (place != data_size)
    return wk_fail(WK_VALUE_ERROR, "safetensors: the tensors end at byte %lld of %lld", (long long)place,
                   (long long)data_size);
  return WK_OK;
}

static wk_status index_names(wk__safetensors *file) {
  file->by_name = wk__arena_alloc(&file->arena, sizeof *file->by_name * (size_t)(file->count + 1));
  if (!file->by_name) return WK_OUT_OF_MEMORY;
  for (int64_t i = 0; i < file->count; i++) file->by_name[i] = &file->entries[i];
  qsort(file->by_name, (size_t)file->count, sizeof *file->by_name, compare_name);
  for (int64_t i = 1; i < file->count; i++)
    if (!strcmp(file->by_name[i - 1]->name, file->by_name[i]->name))
      return wk_fail(WK_VALUE_ERROR, "safetensors: \"%.80s\" stands twice in the header", file->by_name[i]->name);
  return WK_OK;
}

/* On a sorted copy, since the file's order is kept. */
static wk_status check_keys(wk__safetensors *file) {
  size_t count = (size_t)file->metadata_count, bytes = sizeof *file->metadata * count;
  wk__safetensors_pair *sorted = wk__alloc(bytes);
  if (!sorted) return WK_OUT_OF_MEMORY;
  memcpy(sorted, file->metadata, bytes);
  qsort(sorted, count, sizeof *sorted, compare_key);
  bool unique = true;
  for (size_t i = 1; i < count; i++) unique &= strcmp(sorted[i - 1].key, sorted[i].key) != 0;
  wk__free(sorted);
  return unique ? WK_OK : wk_fail(WK_VALUE_ERROR, "safetensors: a key of __metadata__ stands twice");
}

/* ---- reading ---- */

/* The length of the well-formed sequence at s, 0 for none: no overlong forms, no surrogates, at most U+10FFFF. */
static int utf8_sequence(const unsigned char *s, const unsigned char *end) {
  if (s[0] < 0x80) return 1;
  int more = s[0] >= 0xc2 && s[0] < 0xe0 ? 1 : (s[0] & 0xf0) == 0xe0 ? 2 : s[0] >= 0xf0 && s[0] < 0xf5 ? 3 : 0;
  if (more == 0 || end - s <= more) return 0;
  for (int i = 1; i <= more; i++)
    if ((s[i] & 0xc0) != 0x80) return 0;
  if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0)) return 0;
  if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90)) return 0;
  return more + 1;
}

static bool utf8_valid(const char *text, int64_t size) {
  const unsigned char *s = (const unsigned char *)text, *end = s + size;
  for (int length; s < end; s += length)
    if ((length = utf8_sequence(s, end)) == 0) return false;
  return true;
}

static uint64_t read_length(const unsigned char *bytes) {
  uint64_t length = 0;
  for (int i = LENGTH_BYTES; i-- > 0;) length = length << 8 | bytes[i];
  return length;
}

/* Finds the header of a file and checks its size and encoding. */
static wk_status locate_header(const char *bytes, int64_t size, int64_t *out_length) {
  if (size < LENGTH_BYTES) return wk_fail(WK_VALUE_ERROR, "safetensors: header too small");
  uint64_t length = read_length((const unsigned char *)bytes);
  if (length > MAX_HEADER) return wk_fail(WK_VALUE_ERROR, "safetensors: header too large");
  if ((int64_t)length > size - LENGTH_BYTES) return wk_fail(WK_VALUE_ERROR, "safetensors: invalid header length");
  if (!utf8_valid(bytes + LENGTH_BYTES, (int64_t)length))
    return wk_fail(WK_VALUE_ERROR, "safetensors: the header is not UTF-8");
  *out_length = (int64_t)length;
  return WK_OK;
}

/* Moves the drafts' arrays into the arena. */
static wk_status settle(draft *d) {
  wk__safetensors *file = d->file;
  size_t entry_bytes = sizeof *d->entries * (size_t)file->count;
  size_t pair_bytes = sizeof *d->pairs * (size_t)file->metadata_count;
  file->entries = wk__arena_alloc(&file->arena, entry_bytes + 1);
  file->metadata = wk__arena_alloc(&file->arena, pair_bytes + 1);
  if (!file->entries || !file->metadata) return WK_OUT_OF_MEMORY;
  if (entry_bytes) memcpy(file->entries, d->entries, entry_bytes);
  if (pair_bytes) memcpy(file->metadata, d->pairs, pair_bytes);
  return WK_OK;
}

static wk_status finish(wk__safetensors *file, const char *data, int64_t data_size) {
  qsort(file->entries, (size_t)file->count, sizeof *file->entries, compare_begin);
  WK_TRY(check_cover(file, data_size));
  for (int64_t i = 0; i < file->count; i++) file->entries[i].data = data + file->entries[i].begin;
  WK_TRY(index_names(file));
  return check_keys(file);
}

wk_status wk__safetensors_parse(const void *bytes, int64_t size, wk__safetensors *out) {
  int64_t length = 0;
  *out = (wk__safetensors){0};
  WK_TRY(locate_header(bytes, size, &length));
  const char *header = (const char *)bytes + LENGTH_BYTES;
  draft d = {.p = {header, header, header + length, &out->arena}, .file = out};
  wk_status status = parse_header(&d) ? settle(&d) : wk_error_category();
  wk__free(d.entries);
  wk__free(d.pairs);
  if (status == WK_OK) status = finish(out, header + length, size - LENGTH_BYTES - length);
  if (status != WK_OK) wk__safetensors_release(out);
  return status;
}

void wk__safetensors_release(wk__safetensors *file) {
  wk__arena_release(&file->arena);
  *file = (wk__safetensors){0};
}

const wk__safetensors_entry *wk__safetensors_find(const wk__safetensors *file, const char *name) {
  if (file->count == 0) return NULL;
  wk__safetensors_entry wanted = {.name = name}, *key = &wanted;
  wk__safetensors_entry **found = bsearch(&key, file->by_name, (size_t)file->count, sizeof key, compare_name);
  return found ? *found : NULL;
}

/* ---- writing ---- */

/* Escapes as the public library's JSON writer: short forms where JSON has them, \u00xx for other control characters. */
static void append_quoted(wk__string *s, const char *text) {
  static const char from[] = "\"\\\b\f\n\r\t", into[] = "\"\\bfnrt";
  wk__string_append(s, "\"");
  for (; *text; text++) {
    const char *found = strchr(from, *text);
    if (found)
      wk__string_printf(s, "\\%c", into[found - from]);
    else if ((unsigned char)*text < 0x20)
      wk__string_printf(s, "\\u%04x", (unsigned)(unsigned char)*text);
    else
      wk__string_append_n(s, text, 1);
  }
  wk__string_append(s, "\"");
}

static void append_metadata(wk__string *s, const wk__safetensors_pair *pairs, int64_t count) {
  wk__string_append(s, "\"__metadata__\":{");
  for (int64_t i = 0; i < count; i++) {
    if (i) wk__string_append(s, ",");
    append_quoted(s, pairs[i].key);
    wk__string_append(s, ":");
    append_quoted(s, pairs[i].value);
  }
  wk__string_append(s, "}");
}

static void append_entry(wk__string *s, const wk__safetensors_entry *e) {
  append_quoted(s, e->name);
  wk__string_printf(s, ":{\"dtype\":\"%s\",\"shape\":[", e->dtype);
  for (int d = 0; d < e->ndim; d++) wk__string_printf(s, d ? ",%lld" : "%lld", (long long)e->shape[d]);
  wk__string_printf(s, "],\"data_offsets\":[%lld,%lld]}", (long long)e->begin, (long long)e->end);
}

/* Widest type first, so that each tensor is aligned to its type's size. */
static int compare_file_order(const void *a, const void *b) {
  const wk__safetensors_entry *x = a, *y = b;
  int order = dtype_rank(y->dtype) - dtype_rank(x->dtype);
  return order ? order : strcmp(x->name, y->name);
}

static wk_status place(wk__safetensors_entry *entries, int64_t count) {
  int64_t at = 0, bytes;
  if (count) qsort(entries, (size_t)count, sizeof *entries, compare_file_order);
  for (int64_t i = 0; i < count; i++) {
    WK_TRY(byte_count(&entries[i], &bytes));
    if (!utf8_valid(entries[i].name, (int64_t)strlen(entries[i].name)) || !strcmp(entries[i].name, "__metadata__"))
      return wk_fail(WK_VALUE_ERROR, "safetensors: a tensor cannot be named \"%.80s\"", entries[i].name);
    entries[i].begin = at;
    if (__builtin_add_overflow(at, bytes, &at))
      return wk_fail(WK_VALUE_ERROR, "safetensors: the tensors are too large");
    entries[i].end = at;
  }
  return WK_OK;
}

wk_status wk__safetensors_plan(wk__safetensors_entry *entries, int64_t count, const wk__safetensors_pair *metadata,
                               int64_t metadata_count, wk__string *header) {
  WK_TRY(place(entries, count));
  wk__string json = {0};
  wk__string_append(&json, "{");
  if (metadata_count) append_metadata(&json, metadata, metadata_count);
  for (int64_t i = 0; i < count; i++) {
    if (i || metadata_count) wk__string_append(&json, ",");
    append_entry(&json, &entries[i]);
  }
  wk__string_append(&json, "}");
  while (!json.failed && json.length % 8) wk__string_append(&json, " ");
  unsigned char length[LENGTH_BYTES];
  for (int i = 0; i < LENGTH_BYTES; i++) length[i] = (unsigned char)((uint64_t)json.length >> 8 * i);
  wk__string_append_n(header, (const char *)length, LENGTH_BYTES);
  wk__string_append_n(header, json.text ? json.text : "", json.length);
  bool failed = json.failed || header->failed;
  wk__string_release(&json);
  return failed ? wk_fail(WK_OUT_OF_MEMORY, "safetensors: no memory for the header") : WK_OK;
}

static bool write_all(FILE *file, const wk__string *header, const wk__safetensors_entry *entries, int64_t count) {
  bool good = fwrite(header->text, 1, (size_t)header->length, file) == (size_t)header->length;
  for (int64_t i = 0; i < count && good; i++) {
    size_t bytes = (size_t)(entries[i].end - entries[i].begin);
    if (bytes) good = fwrite(entries[i].data, 1, bytes, file) == bytes;
  }
  return good;
}

wk_status wk__safetensors_save(const char *path, wk__safetensors_entry *entries, int64_t count,
                               const wk__safetensors_pair *metadata, int64_t metadata_count) {
  wk__string header = {0};
  wk_status status = wk__safetensors_plan(entries, count, metadata, metadata_count, &header);
  FILE *file = status == WK_OK ? fopen(path, "wb") : NULL;
  if (file) {
    bool good = write_all(file, &header, entries, count);
    good = fclose(file) == 0 && good;
    if (!good) {
      status = wk_fail(WK_IO_ERROR, "cannot write %s: %s", path, strerror(errno));
      remove(path);
    }
  } else if (status == WK_OK) {
    status = wk_fail(WK_IO_ERROR, "cannot open %s: %s", path, strerror(errno));
  }
  wk__string_release(&header);
  return status;
}
