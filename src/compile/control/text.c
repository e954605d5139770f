/* Operators of control flow as text, and from text.
 *
 *     branch_1 = control {
 *       then
 *       graph(%x: f32[3]) {
 *       ...
 *       }
 *       else
 *       graph(%x: f32[3]) {
 *       ...
 *       }
 *     }
 *
 * A loop has `while` and `do`; a scan has `each`, behind a line as `carries 1, slices 2, reversed, keeps`. Definitions
 * of what a graph calls stand in front of it, as in any text of a graph. Text is not trusted: graphs that do not belong
 * together are refused. Tests: tests/python/capture/test_branches.py, test_scans.py. */
#include <stdio.h>

#include "compile/control/internal.h"
#include "graph/internal.h"

static const char *const part_names[][WK__CONTROL_PARTS] = {[WK__BRANCH] = {"then", "else"},
                                                            [WK__LOOP] = {"while", "do"},
                                                            [WK__LOOP_BACKWARD] = {"while", "do", "backwards"},
                                                            [WK__SCAN] = {"each"}};

/* ---- printing ---- */

static void indent(wk__string *out, const char *text) {
  for (const char *line = text; *line;) {
    size_t n = strcspn(line, "\n");
    wk__string_append(out, n ? "  " : "");
    wk__string_append_n(out, line, (int64_t)n);
    wk__string_append(out, "\n");
    line += n + (line[n] == '\n');
  }
}

static void print_part(wk__string *out, const char *name, const wk__graph *graph, bool with_sources) {
  wk__string text = {0};
  wk__string_printf(&text, "%s\n", name);
  if (wk__graph_print(&text, graph, with_sources) != WK_OK) out->failed = true;
  indent(out, text.text ? text.text : "");
  out->failed |= text.failed;
  wk__string_release(&text);
}

void wk__control_print(const wk_op *op, wk__string *out, bool with_sources) {
  const wk__control *c = wk__control_of(op);
  wk__string_append(out, "control {\n");
  if (c->kind == WK__SCAN)
    wk__string_printf(out, "  carries %d, slices %d%s%s\n", c->carried, c->slices, c->reversed ? ", reversed" : "",
                      c->keeps ? ", keeps" : "");
  for (int i = 0; i < WK__CONTROL_PARTS && c->parts[i].graph; i++)
    print_part(out, part_names[c->kind][i], c->parts[i].graph, with_sources);
  wk__string_append(out, "}");
}

/* ---- reading ---- */

/* Without the two spaces that each line begins with. Owned. */
static char *outdented(const char *text) {
  char *copy = wk__strdup(text), *to = copy;
  for (const char *from = text; copy && *from;) {
    size_t n = strcspn(from, "\n"), skipped = strncmp(from, "  ", 2) == 0 ? 2 : 0;
    memcpy(to, from + skipped, n - skipped);
    to += n - skipped;
    from += n;
    if (*from == '\n') *to++ = *from++;
  }
  if (copy) *to = 0;
  return copy;
}

/* The line that is this word; NULL: there is none. */
static char *find_line(char *text, const char *word) {
  size_t n = strlen(word);
  for (char *at = text; (at = strstr(at, word)); at++)
    if ((at == text || at[-1] == '\n') && at[n] == '\n') return at;
  return NULL;
}

static wk_status parse_part(const char *text, const wk__control_reader *reader, wk__graph **out) {
  WK_TRY(wk__graph_parse_with(text, reader->constants, reader->constant_count, reader->definer, out));
  if ((*out)->mutation_count) return wk_fail(WK_VALUE_ERROR, "a graph of control flow writes its inputs");
  return wk__graph_freeze(*out);
}

/* The line in front of a scan's body. */
static wk_status parse_form(char *text, wk__control_form *out) {
  char *end = strchr(text, '\n');
  int length = 0;
  if (end) *end = 0;
  if (sscanf(text, "carries %d, slices %d%n", &out->carried, &out->slices, &length) != 2)
    return wk_fail(WK_VALUE_ERROR, "expected what a scan carries and how many slices it is given");
  text += length;
  if ((out->reversed = strncmp(text, ", reversed", 10) == 0)) text += 10;
  if ((out->keeps = strcmp(text, ", keeps") == 0)) text += 7;
  return *text ? wk_fail(WK_VALUE_ERROR, "what a scan does is followed by '%.20s'", text) : WK_OK;
}

static wk_status parse_scan(char *text, wk__control_form *form, const wk__control_reader *reader, wk__graph **out) {
  const char *name = part_names[WK__SCAN][0];
  char *body = find_line(text, name);
  WK_TRY(parse_form(text, form));
  WK_TRY(parse_part(body + strlen(name) + 1, reader, out));
  return wk__control_check_scan(form, *out);
}

static wk_status parse_parts(char *text, int kind, const wk__control_reader *reader, wk__graph **out) {
  const char *const *names = part_names[kind];
  char *first = find_line(text, names[0]), *second = first ? find_line(first, names[1]) : NULL;
  if (!second) return wk_fail(WK_VALUE_ERROR, "expected two graphs, behind '%s' and '%s'", names[0], names[1]);
  *second = 0;
  WK_TRY(parse_part(first + strlen(names[0]) + 1, reader, &out[0]));
  WK_TRY(parse_part(second + strlen(names[1]) + 1, reader, &out[1]));
  return wk__control_check(kind, out[0], out[1]);
}

static wk__control_kind kind_of(char *text) {
  if (find_line(text, part_names[WK__SCAN][0])) return WK__SCAN;
  return find_line(text, part_names[WK__BRANCH][0]) ? WK__BRANCH : WK__LOOP;
}

wk_status wk__control_define(const char *name, const char *text, const wk__control_reader *reader,
                             const wk_op **out_op) {
  char *lines = outdented(text), *body = lines ? lines + strspn(lines, "\n\r ") : NULL;
  if (!lines) return WK_OUT_OF_MEMORY;
  wk__control_form form = {.kind = kind_of(body)};
  wk__graph *graphs[2] = {NULL};
  wk_status status =
      form.kind == WK__SCAN ? parse_scan(body, &form, reader, graphs) : parse_parts(body, form.kind, reader, graphs);
  wk__free(lines);
  if (status != WK_OK) {
    wk__graph_release(graphs[0]);
    wk__graph_release(graphs[1]);
    return status;
  }
  return wk__control_create(&form, name, graphs[0], graphs[1], out_op);
}
