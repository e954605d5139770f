/* tensor/safetensors.c: files as the public library writes them, byte for byte; hostile files are refused with an error
 * and never read past their end (the buffers are heap blocks of exactly the file's size, for the address sanitizer). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "tensor/safetensors.h"

/* ---- A file of the public library (safetensors 0.8.0): three tensors, one empty, one metadata pair ---- */

#define HEADER                                                                                                   \
  "{\"__metadata__\":{\"k\\\"\\t\":\"v\\u001f\"},\"s\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}," \
  "\"a\\\"\\\\\\n\\u0001\x7f\xc3\xa9\":{\"dtype\":\"F32\",\"shape\":[2,0],\"data_offsets\":[8,8]},"              \
  "\"b\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[8,20]}}    "
#define FILE_BYTES "\xd8\0\0\0\0\0\0\0" HEADER "\x07\0\0\0\0\0\0\0\0\0\0\0\0\0\x80?\0\0\0@"

static const char library_file[] = FILE_BYTES;
enum { LIBRARY_SIZE = sizeof library_file - 1 };

static const char odd_name[] = "a\"\\\n\x01\x7f\xc3\xa9";

/* Parses a copy that ends where its heap block ends. */
static wk_status parse_copy(const void *bytes, size_t size, wk__safetensors *out, char **out_copy) {
  *out_copy = malloc(size ? size : 1);
  memcpy(*out_copy, bytes, size);
  return wk__safetensors_parse(*out_copy, (int64_t)size, out);
}

static wk_status parse_and_drop(const void *bytes, size_t size) {
  wk__safetensors file;
  char *copy;
  wk_status status = parse_copy(bytes, size, &file, &copy);
  for (int64_t i = 0; i < file.count; i++) { /* touches all the data it claims to have */
    volatile char sum = 0;
    for (int64_t b = 0; b < file.entries[i].end - file.entries[i].begin; b++)
      sum = (char)(sum + ((const char *)file.entries[i].data)[b]);
  }
  wk__safetensors_release(&file);
  free(copy);
  return status;
}

static void library_file_is_read(void **state) {
  (void)state;
  wk__safetensors file;
  char *copy;
  assert_int_equal(parse_copy(library_file, LIBRARY_SIZE, &file, &copy), WK_OK);
  assert_int_equal(file.count, 3);
  assert_int_equal(file.metadata_count, 1);
  assert_string_equal(file.metadata[0].key, "k\"\t");
  assert_string_equal(file.metadata[0].value, "v\x1f");
  const wk__safetensors_entry *b = wk__safetensors_find(&file, "b"), *empty = wk__safetensors_find(&file, odd_name);
  assert_non_null(b);
  assert_string_equal(b->dtype, "F32");
  assert_int_equal(b->ndim, 1);
  assert_int_equal(b->shape[0], 3);
  assert_memory_equal(b->data, ((float[]){0, 1, 2}), 12);
  assert_non_null(empty);
  assert_int_equal(empty->ndim, 2);
  assert_int_equal(empty->end - empty->begin, 0);
  assert_int_equal(wk__safetensors_find(&file, "s")->ndim, 0);
  assert_null(wk__safetensors_find(&file, "c"));
  wk__safetensors_release(&file);
  free(copy);
}

static void library_file_is_written(void **state) {
  (void)state;
  const float b[] = {0, 1, 2};
  const int64_t s = 7, b_shape[] = {3}, empty_shape[] = {2, 0};
  wk__safetensors_entry entries[] = {{.name = "b", .dtype = "F32", .ndim = 1, .shape = b_shape, .data = b},
                                     {.name = odd_name, .dtype = "F32", .ndim = 2, .shape = empty_shape},
                                     {.name = "s", .dtype = "I64", .ndim = 0, .data = &s}};
  const wk__safetensors_pair metadata = {"k\"\t", "v\x1f"};
  char path[] = "/tmp/test_safetensors_XXXXXX", bytes[LIBRARY_SIZE + 1];
  close(mkstemp(path));
  assert_int_equal(wk__safetensors_save(path, entries, 3, &metadata, 1), WK_OK);
  FILE *file = fopen(path, "rb");
  assert_int_equal(fread(bytes, 1, sizeof bytes, file), LIBRARY_SIZE);
  fclose(file);
  remove(path);
  assert_memory_equal(bytes, library_file, LIBRARY_SIZE);
}

static void types_are_written_widest_first(void **state) {
  (void)state;
  static const char *const order[] = {"U64", "I64", "F64",     "C64",     "F32",     "U32", "I32", "BF16", "F16",
                                      "U16", "I16", "F8_E8M0", "F8_E4M3", "F8_E5M2", "I8",  "U8",  "BOOL"};
  enum { COUNT = WK_COUNT(order) };
  wk__safetensors_entry entries[COUNT];
  for (int i = 0; i < COUNT; i++) entries[i] = (wk__safetensors_entry){.name = "x", .dtype = order[COUNT - 1 - i]};
  wk__string header = {0};
  assert_int_equal(wk__safetensors_plan(entries, COUNT, NULL, 0, &header), WK_OK);
  for (int i = 0; i < COUNT; i++) assert_string_equal(entries[i].dtype, order[i]);
  assert_int_equal(header.length % 8, 0);
  wk__string_release(&header);
}

static void empty_file_is_written_and_read(void **state) {
  (void)state;
  wk__string header = {0};
  assert_int_equal(wk__safetensors_plan(NULL, 0, NULL, 0, &header), WK_OK);
  assert_int_equal(header.length, 16);
  assert_memory_equal(header.text, "\x08\0\0\0\0\0\0\0{}      ", 16);
  assert_int_equal(parse_and_drop(header.text, 16), WK_OK);
  wk__string_release(&header);
}

static void what_cannot_be_written_is_refused(void **state) {
  (void)state;
  const int64_t huge[] = {INT64_MAX, 2}, odd[] = {3};
  wk__safetensors_entry bad[] = {{.name = "x", .dtype = "F32", .ndim = 2, .shape = huge},
                                 {.name = "x", .dtype = "F4", .ndim = 1, .shape = odd},
                                 {.name = "x", .dtype = "float", .ndim = 0},
                                 {.name = "\xff", .dtype = "F32", .ndim = 0},
                                 {.name = "__metadata__", .dtype = "F32", .ndim = 0}};
  for (size_t i = 0; i < WK_COUNT(bad); i++) {
    wk__string header = {0};
    assert_int_equal(wk__safetensors_plan(&bad[i], 1, NULL, 0, &header), WK_VALUE_ERROR);
    wk__string_release(&header);
  }
  wk__safetensors_entry good = {.name = "x", .dtype = "F4", .ndim = 0};
  assert_int_equal(wk__safetensors_save("/nonexistent/x", &good, 0, NULL, 0), WK_IO_ERROR);
}

/* ---- Hostile files ---- */

/* A file with this header and `data` bytes of zeros. */
static wk_status parse_header_text(const char *header, size_t data) {
  size_t length = strlen(header), size = 8 + length + data;
  char *bytes = calloc(1, size);
  for (int i = 0; i < 8; i++) bytes[i] = (char)(length >> 8 * i);
  memcpy(bytes + 8, header, length);
  wk_status status = parse_and_drop(bytes, size);
  free(bytes);
  return status;
}

#define TENSOR(shape, offsets) "{\"dtype\":\"F32\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"

static void good_headers_are_taken(void **state) {
  (void)state;
  static const char *const headers[] = {
      "{\"a\":" TENSOR("2", "0,8") "}",
      "{ \"a\" : {\"shape\" : [ 1 , 2 ],\n\"data_offsets\":[0,\t8], \"dtype\":\"F32\"} }\r\n ",
      "{\"b\":" TENSOR("1", "4,8") ",\"a\":" TENSOR("", "0,4") "}",
      "{\"a\":" TENSOR("2", "0,8") ",\"z\":" TENSOR("0,5", "8,8") ",\"__metadata__\":{}}",
      "{\"\\ud83d\\ude00\\u00e9\\/\":" TENSOR("2", "0,8") "}",
      "{\"\":{\"dtype\":\"F4\",\"shape\":[16],\"data_offsets\":[0,8]}}",
  };
  for (size_t i = 0; i < WK_COUNT(headers); i++) assert_int_equal(parse_header_text(headers[i], 8), WK_OK);
}

static void bad_headers_are_refused(void **state) {
  (void)state;
  static const char *const headers[] = {
      "",
      "[]",
      " {}",
      "{}",
      "{",
      "{\"a\":" TENSOR("2", "0,8") "}x",
      "{\"a\":" TENSOR("2", "0,8") ",}",
      "{\"a\":" TENSOR("2", "0,8") "\"b\":" TENSOR("0", "8,8") "}",
      "{\"a\":" TENSOR("2", "0,8") ",\"a\":" TENSOR("0", "8,8") "}", /* a name twice */
      "{\"a\":" TENSOR("2", "0,8") ",\"b\":" TENSOR("1", "4,8") "}", /* overlap */
      "{\"a\":" TENSOR("1", "4,8") "}",                              /* a hole before */
      "{\"a\":" TENSOR("1", "0,4") "}",                              /* a hole behind */
      "{\"a\":" TENSOR("1", "0,4") ",\"b\":" TENSOR("0", "8,8") "}", /* a hole between */
      "{\"a\":" TENSOR("3", "0,12") "}",                             /* past the end */
      "{\"a\":" TENSOR("3", "0,8") "}",
      "{\"a\":" TENSOR("2", "8,0") "}",                                                  /* size; order */
      "{\"a\":" TENSOR("4611686018427387904,4", "0,0") ",\"b\":" TENSOR("2", "0,8") "}", /* 2^64 elements */
      "{\"a\":" TENSOR("9223372036854775808,0", "0,0") ",\"b\":" TENSOR("2", "0,8") "}",
      "{\"a\":" TENSOR("-2", "0,8") "}",
      "{\"a\":" TENSOR("02", "0,8") "}",
      "{\"a\":" TENSOR("2.0", "0,8") "}",
      "{\"a\":" TENSOR("2e0", "0,8") "}",
      "{\"a\":" TENSOR("2,", "0,8") "}",
      "{\"a\":" TENSOR("2", "0,8,8") "}",
      "{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}",
      "{\"a\":{\"dtype\":\"F4\",\"shape\":[15],\"data_offsets\":[0,8]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}",
      "{\"a\":{}}",
      "{\"a\":1}",
      "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"more\":\"x\"}}",
      "{\"\xc0\x80\":" TENSOR("2", "0,8") "}",
      "{\"\xed\xa0\x80\":" TENSOR("2", "0,8") "}", /* not UTF-8 */
      "{\"\xf4\x90\x80\x80\":" TENSOR("2", "0,8") "}",
      "{\"\xe2\x82\":" TENSOR("2", "0,8") "}",
      "{\"a\nb\":" TENSOR("2", "0,8") "}",
      "{\"\\x\":" TENSOR("2", "0,8") "}",
      "{\"\\u12\":" TENSOR("2", "0,8") "}",
      "{\"\\ud83d\":" TENSOR("2", "0,8") "}",
      "{\"\\ude00\":" TENSOR("2", "0,8") "}",
      "{\"\\u0000\":" TENSOR("2", "0,8") "}",
      "{\"a\\\":" TENSOR("2", "0,8") "}",
      "{\"a\":" TENSOR("2", "0,8") ",\"__metadata__\":{\"k\":1}}",
      "{\"a\":" TENSOR("2", "0,8") ",\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}",
      "{\"a\":" TENSOR("2", "0,8") ",\"__metadata__\":{},\"__metadata__\":{}}",
      "{\"a\":" TENSOR(
          "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
          "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2",
          "0,8") "}",
  };
  for (size_t i = 0; i < WK_COUNT(headers); i++)
    if (parse_header_text(headers[i], 8) != WK_VALUE_ERROR) fail_msg("taken: %s", headers[i]);
}

static void bad_lengths_are_refused(void **state) {
  (void)state;
  static const char *const lengths[] = {"\xff\xff\xff\xff\xff\xff\xff\xff", "\0\0\0\0\0\0\0\x80",
                                        "\x01\xe1\xf5\x05\0\0\0\0", "\x03\0\0\0\0\0\0\0", "\0\0\0\0\0\0\0\0"};
  for (size_t i = 0; i < WK_COUNT(lengths); i++) {
    char bytes[10] = "........{}";
    memcpy(bytes, lengths[i], 8);
    assert_int_equal(parse_and_drop(bytes, sizeof bytes), WK_VALUE_ERROR);
  }
}

static void every_truncation_is_refused(void **state) {
  (void)state;
  for (size_t size = 0; size < LIBRARY_SIZE; size++)
    assert_int_equal(parse_and_drop(library_file, size), WK_VALUE_ERROR);
  for (size_t size = 0; size < sizeof HEADER - 5; size++) { /* the header cut short, its length made to fit */
    char cut[sizeof HEADER];
    memcpy(cut, HEADER, size);
    cut[size] = 0;
    assert_int_equal(parse_header_text(cut, 20), WK_VALUE_ERROR);
  }
}

static void corruptions_are_survived(void **state) {
  (void)state;
  uint64_t random = 1;
  for (int i = 0; i < 50000; i++) {
    char bytes[LIBRARY_SIZE];
    memcpy(bytes, library_file, LIBRARY_SIZE);
    for (int hits = 1 + i % 3; hits > 0; hits--) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      static const char liked[] = "0123456789{}[],:\"\\u -";
      char *at = &bytes[random >> 33 & 1 ? (random >> 40) % LIBRARY_SIZE : 8 + (random >> 40) % (sizeof HEADER - 1)];
      *at = random >> 34 & 1 ? liked[(random >> 48) % (sizeof liked - 1)] : (char)(random >> 56);
    }
    wk_status status = parse_and_drop(bytes, LIBRARY_SIZE);
    assert_true(status == WK_OK || status == WK_VALUE_ERROR);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(library_file_is_read),
      cmocka_unit_test(library_file_is_written),
      cmocka_unit_test(types_are_written_widest_first),
      cmocka_unit_test(empty_file_is_written_and_read),
      cmocka_unit_test(what_cannot_be_written_is_refused),
      cmocka_unit_test(good_headers_are_taken),
      cmocka_unit_test(bad_headers_are_refused),
      cmocka_unit_test(bad_lengths_are_refused),
      cmocka_unit_test(every_truncation_is_refused),
      cmocka_unit_test(corruptions_are_survived),
  };
  int64_t live = wk__live_allocations();
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  if (wk__live_allocations() != live) printf("leaked %lld blocks\n", (long long)(wk__live_allocations() - live));
  return failed || wk__live_allocations() != live;
}
