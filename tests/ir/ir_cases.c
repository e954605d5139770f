/* Passes over graphs, text in, text out: ir_cases FILE...
 *
 * A file holds cases: a line "== what it shows", a line "pass: name, name, ...", a graph, a line "--", and the graph
 * that the passes make of it. Shapes are checked before and after, the result is verified, and a pass that runs a
 * second time must change nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compile/fuse/fuse.h"
#include "graph/graph.h"

static wk_status fold_constants(wk__graph *graph, bool *out_changed) {
  return wk__graph_fold_constants(graph, 64, out_changed);
}

static wk_status channels_last(wk__graph *graph, bool *out_changed) {
  const wk__choices choices = {.channels_last = WK__LAST_ALWAYS};
  return wk__place_layouts(graph, &choices, out_changed);
}

static wk_status channels_last_where_faster(wk__graph *graph, bool *out_changed) {
  const wk__choices choices = {.channels_last = WK__LAST_WHERE_FASTER};
  return wk__place_layouts(graph, &choices, out_changed);
}

static wk_status channels_last_with_other_sums(wk__graph *graph, bool *out_changed) {
  const wk__choices choices = {.channels_last = WK__LAST_WITH_OTHER_SUMS};
  return wk__place_layouts(graph, &choices, out_changed);
}

/* As if the device's library were there. */
static wk_status device_layouts(wk__graph *graph, bool *out_changed) {
  const wk__choices choices = {.channels_last = WK__LAST_WHERE_FASTER};
  setenv("WICK_CUDA_LAYOUT", "last", 1);
  return wk__place_layouts(graph, &choices, out_changed);
}

static const struct {
  const char *name;
  wk__graph_pass_fn *run;
} passes[] = {
    {"remove_dead", wk__graph_remove_dead},
    {"merge_common", wk__graph_merge_common},
    {"fold_constants", fold_constants},
    {"join_parts", wk__graph_join_parts},
    {"order_cats", wk__graph_order_cats},
    {"multiply_bytes", wk__multiply_bytes},
    {"channels_last", channels_last},
    {"channels_last_where_faster", channels_last_where_faster},
    {"channels_last_with_other_sums", channels_last_with_other_sums},
    {"device_layouts", device_layouts},
};

static int failures, cases;

static void complain(const char *title, const char *what, const char *detail) {
  fprintf(stderr, "%s: %s\n%s\n", title, what, detail);
  failures++;
}

static char *text_of(const wk__graph *graph) {
  wk__string s = {0};
  return wk__graph_print(&s, graph, false) == WK_OK ? wk__string_take(&s) : NULL;
}

static wk__graph_pass_fn *find_pass(const char *name) {
  for (size_t i = 0; i < WK_COUNT(passes); i++)
    if (strcmp(passes[i].name, name) == 0) return passes[i].run;
  return NULL;
}

static wk_status run_pass(wk__graph *graph, const char *name) {
  bool again;
  wk__graph_pass_fn *pass = find_pass(name);
  if (!pass) return wk_fail(WK_VALUE_ERROR, "there is no pass '%s'", name);
  WK_TRY(wk__graph_run_pass(graph, name, pass));
  WK_TRY(wk__graph_verify(graph));
  WK_TRY(wk__graph_check_shapes(graph));
  WK_TRY(pass(graph, &again));
  return again ? wk_fail(WK_INTERNAL_ERROR, "%s changes its own result", name) : WK_OK;
}

static wk_status run_passes(wk__graph *graph, const char *names) {
  char copy[256], *rest = NULL;
  snprintf(copy, sizeof copy, "%s", names);
  for (char *name = strtok_r(copy, ", \n", &rest); name; name = strtok_r(NULL, ", \n", &rest))
    WK_TRY(run_pass(graph, name));
  return WK_OK;
}

static wk_status check_case(const char *title, const char *names, const char *before, const char *after) {
  wk__graph *graph, *copy;
  WK_TRY(wk__graph_parse(before, NULL, 0, &graph));
  WK_TRY(wk__graph_check_shapes(graph));
  copy = wk__graph_copy(graph);
  wk_status status = copy ? run_passes(copy, names) : wk_error_category();
  char *found = status == WK_OK ? text_of(copy) : NULL, *wanted = NULL;
  wk__graph *expected = NULL;
  if (status == WK_OK) status = wk__graph_parse(after, NULL, 0, &expected);
  if (status == WK_OK) wanted = text_of(expected);
  if (wanted && found && strcmp(wanted, found) != 0) complain(title, "the passes make something else:", found);
  wk__free(found);
  wk__free(wanted);
  wk__graph_release(expected);
  wk__graph_release(graph);
  wk__graph_release(copy);
  return status;
}

/* One case, without its "== ". */
static void run_case(char *text) {
  char *names = strstr(text, "\npass:"), *between = strstr(text, "\n--\n");
  text[strcspn(text, "\n")] = 0;
  cases++;
  if (!names || !between) {
    complain(text, "a case needs 'pass:' and '--'", "");
    return;
  }
  names += strlen("\npass:");
  *between = 0;
  char *before = names + strcspn(names, "\n");
  if (*before) *before++ = 0;
  if (check_case(text, names, before, between + 4) != WK_OK) complain(text, wk_error_message(), "");
}

static char *read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  char *text = calloc(1, 1 << 20);
  if (file && text) text[fread(text, 1, (1 << 20) - 1, file)] = 0;
  if (file) fclose(file);
  return text;
}

int main(int count, char **paths) {
  for (int i = 1; i < count; i++) {
    char *text = read_file(paths[i]), *at = text ? strstr(text, "== ") : NULL;
    while (at) {
      char *next = strstr(at + 3, "\n== ");
      if (next) *next++ = 0;
      run_case(at + 3);
      at = next;
    }
    free(text);
  }
  printf("%d cases, %d failures\n", cases, failures);
  return failures || !cases;
}
