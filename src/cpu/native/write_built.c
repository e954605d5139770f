/* Writes the nests of a text as C, a unit for each CPU level: `write_built NESTS PORTABLE AVX2 AVX512`. A program that
 * the build runs; it has the library's parts in it. At a unit's end stands the table that built.h speaks of, with names
 * of the level's own. In the text a line that starts with # separates nests. */
#include <stdio.h>
#include <stdlib.h>

#include "cpu/native/built.h"

enum { MOST_NESTS = 256 };
static const char *const modes[WK__C_MODES] = {"pointwise", "rows", "columns"};

static int fail(const char *what, const char *why) {
  fprintf(stderr, "write_built: %s: %s\n", what, why);
  return EXIT_FAILURE;
}

static bool read_text(const char *path, wk__string *out) {
  char piece[4096];
  FILE *file = fopen(path, "r");
  if (!file) return false;
  for (size_t n; (n = fread(piece, 1, sizeof piece, file)) > 0;) wk__string_append_n(out, piece, n);
  return fclose(file) == 0 && !out->failed;
}

/* The nests between lines of comment. -1: one is wrong. */
static int read_nests(char *text, wk__nest **nests) {
  int count = 0;
  for (char *at = strstr(text, "\nnest "); at; count++) {
    char *end = strstr(++at, "\n\n");
    if (end) end[1] = 0;
    if (count == MOST_NESTS || !(nests[count] = wk__nest_parse(at))) return -1;
    at = end ? strstr(end + 2, "\nnest ") : NULL;
  }
  return count;
}

/* Names that the units of all levels would share. */
static void write_names(FILE *file, int count, const char *level) {
  fprintf(file, "#define wk__unit_start wk__built_start_%s\n", level);
  for (int k = 0; k < count; k++)
    for (int m = 0; m < WK__C_MODES; m++)
      fprintf(file, "#define wk_kernel_%d_%s wk__built_%s_%d_%s\n", k, modes[m], level, k, modes[m]);
}

static void write_string(FILE *file, const char *text) {
  fputs("\"", file);
  for (; *text; text++) *text == '\n' ? fputs("\\n", file) : fputc(*text, file);
  fputs("\"", file);
}

static bool write_entry(FILE *file, const wk__nest *nest, int number, const char *unit) {
  wk__string text = {0};
  wk__nest_print(&text, nest);
  if (text.failed || !text.text) return false;
  fprintf(file, "    {%lluull, ", (unsigned long long)wk__built_key(nest));
  write_string(file, text.text);
  fputs(", {", file);
  for (int m = 0; m < WK__C_MODES; m++) {
    char name[64];
    snprintf(name, sizeof name, "void wk_kernel_%d_%s(", number, modes[m]);
    strstr(unit, name) ? fprintf(file, "wk_kernel_%d_%s, ", number, modes[m]) : fputs("0, ", file);
  }
  fputs("}},\n", file);
  wk__string_release(&text);
  return true;
}

static bool write_unit(const char *path, wk__nest *const *nests, int count, wk__cpu_level level) {
  wk__code_source sources[MOST_NESTS] = {{0}};
  for (int k = 0; k < count; k++) sources[k].nest = nests[k];
  char *unit = wk__c_write(sources, count, level);
  FILE *file = unit ? fopen(path, "w") : NULL;
  if (!file) return false;
  write_names(file, count, wk__cpu_level_name(level));
  fputs(unit, file);
  fprintf(file,
          "\nconst struct wk__built_nest {\n  uint64_t key;\n  const char *text;\n"
          "  void (*functions[%d])(const struct wk__kernel_args *, struct wk__kernel_thread *, int64_t, int64_t);\n"
          "} wk__built_%s[] = {\n",
          WK__C_MODES, wk__cpu_level_name(level));
  bool written = true;
  for (int k = 0; k < count; k++) written &= write_entry(file, nests[k], k, unit);
  fputs("    {0},\n};\n", file);
  wk__free(unit);
  return fclose(file) == 0 && written;
}

int main(int argc, char **argv) {
  wk__string text = {0};
  wk__nest *nests[MOST_NESTS];
  if (argc != 2 + WK__CPU_LEVEL_COUNT) return fail("arguments", "NESTS and a file for each CPU level");
  wk__shape_env *env = wk__shape_env_create();
  wk__shape_env_set_current(env);
  if (!read_text(argv[1], &text)) return fail(argv[1], "cannot be read");
  int count = read_nests(text.text, nests);
  if (count < 0) return fail(argv[1], wk_error_message());
  for (wk__cpu_level level = 0; level < WK__CPU_LEVEL_COUNT; level++)
    if (!write_unit(argv[2 + level], nests, count, level)) return fail(argv[2 + level], wk_error_message());
  for (int k = 0; k < count; k++) wk__nest_release(nests[k]);
  wk__shape_env_set_current(NULL);
  wk__shape_env_release(env);
  wk__string_release(&text);
  return EXIT_SUCCESS;
}
