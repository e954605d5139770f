/* Kernels as text, and back.
 *
 *     kernel NAME warps 4 stages 2
 *     %1 = parameter float32* 0
 *     %2 = load float32 %1 - -
 *
 * A line is: the value's number, the operation, `map`'s or an atomic's own, the type, operands (`-` for one that is
 * missing), `axis A` of reductions and scans, the number. Test: tests/c/test_tile.c (what is printed parses to the same
 * text). */
#include <inttypes.h>
#include <stdlib.h>

#include "tile/internal.h"

/* ---- printing ---- */

void wk__tile_type_print(wk__string *s, const wk__tile_type *t) {
  wk__string_printf(s, "%s%s", wk__dtypes[t->dtype].name, t->pointer ? "*" : "");
  for (int d = 0; d < t->ndim; d++) wk__string_printf(s, "%s%d", d ? "," : "[", (int)t->shape[d]);
  if (t->ndim) wk__string_append(s, "]");
}

static bool has_map(int op) { return op == WK__TILE_map || op == WK__TILE_reduce || op == WK__TILE_scan; }
static bool has_axis(int op) { return op == WK__TILE_reduce || op == WK__TILE_scan; }
static bool has_number(int op) {
  return op == WK__TILE_parameter || op == WK__TILE_constant || op == WK__TILE_program_id ||
         op == WK__TILE_num_programs || op == WK__TILE_range || op == WK__TILE_permute || op == WK__TILE_scan ||
         op == WK__TILE_philox;
}

static void print_number(wk__string *s, wk__scalar n) {
  if (n.category == WK__FLOAT_KIND)
    wk__string_printf(s, " %.17g", n.d);
  else
    wk__string_printf(s, " %" PRId64, n.i);
}

static void print_line(wk__string *s, const wk__tile_kernel *k, wk__tile v) {
  const wk__tile_instr *i = &k->instrs[v];
  if (wk__tile_has_value(i)) wk__string_printf(s, "%%%u = ", v);
  wk__string_append(s, wk__tile_ops[i->op].name);
  if (has_map(i->op)) wk__string_printf(s, " %s", wk__loop_ops[i->map].name);
  if (i->op == WK__TILE_atomic) wk__string_printf(s, " %s", wk__tile_atomics[i->number.i]);
  if (wk__tile_has_value(i)) {
    wk__string_append(s, " ");
    wk__tile_type_print(s, &i->type);
  }
  for (int o = 0; o < wk__tile_ops[i->op].operands; o++)
    if (i->operands[o])
      wk__string_printf(s, " %%%u", i->operands[o]);
    else
      wk__string_append(s, " -");
  if (has_axis(i->op)) wk__string_printf(s, " axis %d", i->axis);
  if (has_number(i->op)) print_number(s, i->number);
  wk__string_append(s, "\n");
}

void wk__tile_print(wk__string *s, const wk__tile_kernel *k) {
  int depth = 0;
  wk__string_printf(s, "kernel %s warps %d", k->name ? k->name : "?", k->warps);
  if (k->stages != WK__TILE_STAGES) wk__string_printf(s, " stages %d", k->stages);
  wk__string_append(s, "\n");
  for (wk__tile v = k->instrs[0].next; v; v = k->instrs[v].next) {
    int op = k->instrs[v].op;
    int back = op == WK__TILE_end || op == WK__TILE_else || op == WK__TILE_test;
    for (int d = 0; d < depth - back; d++) wk__string_append(s, "  ");
    print_line(s, k, v);
    depth += (op == WK__TILE_for || op == WK__TILE_while || op == WK__TILE_if) - (op == WK__TILE_end);
  }
}

/* ---- parsing ---- */

typedef struct reader {
  const char *at;
  int line;
  wk__tile numbers; /* instructions so far: their numbers have to be these */
} reader;

static wk_status wrong(const reader *r, const char *what) {
  return wk_fail(WK_VALUE_ERROR, "line %d of a kernel: %s", r->line, what);
}

static void skip(reader *r) {
  while (*r->at == ' ') r->at++;
}
static bool take_text(reader *r, const char *text) {
  size_t n = strlen(text);
  skip(r);
  if (strncmp(r->at, text, n) != 0) return false;
  r->at += n;
  return true;
}
static bool take_word(reader *r, char *out, size_t bytes) {
  size_t n = 0;
  skip(r);
  while (r->at[n] && !strchr(" \n*[],", r->at[n])) n++;
  if (n == 0 || n >= bytes) return false;
  memcpy(out, r->at, n);
  out[n] = 0;
  r->at += n;
  return true;
}
static bool take_integer(reader *r, int64_t *out) {
  char *end;
  skip(r);
  *out = strtoll(r->at, &end, 10);
  bool found = end != r->at;
  r->at = end;
  return found;
}

static bool take_type(reader *r, wk__tile_type *t) {
  char name[24];
  int64_t size;
  *t = (wk__tile_type){.shape = {1, 1, 1}};
  if (!take_word(r, name, sizeof name)) return false;
  for (t->dtype = 0; t->dtype < WK_DTYPE_COUNT && strcmp(wk__dtypes[t->dtype].name, name) != 0;) t->dtype++;
  if (t->dtype == WK_DTYPE_COUNT) return false;
  if (*r->at == '*') t->pointer = true, r->at++;
  if (*r->at != '[') return true;
  do {
    r->at++;
    if (t->ndim == WK__TILE_DIMS || !take_integer(r, &size) || size < 1 || size > WK__TILE_MAX_ELEMENTS) return false;
    t->shape[t->ndim++] = (int32_t)size;
  } while (*r->at == ',');
  return *r->at++ == ']';
}

static bool take_number(reader *r, wk__tile_instr *i) {
  bool is_float = i->op == WK__TILE_constant && wk__dtype_category((wk_dtype)i->type.dtype) == WK__FLOAT_KIND;
  i->number.category = is_float ? WK__FLOAT_KIND : WK__INTEGER_KIND;
  if (!is_float) return take_integer(r, &i->number.i);
  char *end;
  i->number.d = strtod(r->at, &end);
  bool found = end != r->at;
  r->at = end;
  return found;
}

static bool take_operands(reader *r, wk__tile_instr *i) {
  for (int o = 0; o < wk__tile_ops[i->op].operands; o++) {
    int64_t number;
    if (take_text(r, "- ") || take_text(r, "-\n")) {
      if (r->at[-1] == '\n') r->at--;
      continue;
    }
    if (!take_text(r, "%") || !take_integer(r, &number) || number < 1 || number > r->numbers) return false;
    i->operands[o] = (wk__tile)number;
  }
  return true;
}

static bool take_own(reader *r, wk__tile_instr *i) {
  char word[32];
  if (!has_map(i->op) && i->op != WK__TILE_atomic) return true;
  if (!take_word(r, word, sizeof word)) return false;
  if (has_map(i->op)) return (i->map = (uint8_t)tile_loop_op(word)) != WK__LOOP_NONE;
  i->number = (wk__scalar){.category = WK__INTEGER_KIND};
  while (i->number.i < WK__TILE_ATOMICS && strcmp(wk__tile_atomics[i->number.i], word) != 0) i->number.i++;
  return i->number.i < WK__TILE_ATOMICS;
}

static wk_status parse_line(reader *r, wk__tile_builder *b) {
  wk__tile_instr i = {0};
  char word[32];
  int64_t number = 0;
  bool has_value = take_text(r, "%");
  if (has_value && (!take_integer(r, &number) || number != r->numbers + 1 || !take_text(r, "=")))
    return wrong(r, "a value's number, one more than that of the line before, and '='");
  if (!take_word(r, word, sizeof word)) return wrong(r, "an operation");
  while (i.op < WK__TILE_OP_COUNT && strcmp(wk__tile_ops[i.op].name, word) != 0) i.op++;
  if (i.op == WK__TILE_OP_COUNT) return wrong(r, "there is no such operation");
  if (!take_own(r, &i)) return wrong(r, "there is no such operation on elements");
  if (has_value && !take_type(r, &i.type)) return wrong(r, "a type");
  if (!take_operands(r, &i)) return wrong(r, "an operand");
  if (has_axis(i.op)) {
    if (!take_text(r, "axis") || !take_integer(r, &number) || number < 0 || number > 2) return wrong(r, "an axis");
    i.axis = (uint8_t)number;
  }
  if (has_number(i.op) && !take_number(r, &i)) return wrong(r, "a number");
  skip(r);
  if (*r->at && *r->at != '\n') return wrong(r, "something behind the end");
  if (i.op == WK__TILE_parameter) b->kernel->parameters = (int)wk__max(b->kernel->parameters, i.number.i + 1);
  b->line = r->line;
  (void)wk__tile_append(b, &i);
  r->numbers++;
  return b->status;
}

static wk_status parse(reader *r, wk__tile_kernel *k) {
  char name[128];
  int64_t warps, stages = WK__TILE_STAGES;
  wk__tile_builder b;
  wk__tile_builder_init(&b, k);
  if (!take_text(r, "kernel") || !take_word(r, name, sizeof name) || !take_text(r, "warps") || !take_integer(r, &warps))
    return wrong(r, "kernel NAME warps N");
  if (take_text(r, "stages") && !take_integer(r, &stages)) return wrong(r, "stages N");
  for (r->line = 2;; r->line++) {
    while (*r->at && *r->at != '\n') r->at++;
    if (*r->at == '\n') r->at++;
    skip(r);
    if (!*r->at) break;
    if (*r->at != '\n') WK_TRY(parse_line(r, &b));
  }
  k->warps = (int)warps, k->stages = (int)wk__min(stages, INT32_MAX);
  if (!(k->name = wk__strdup(name))) return WK_OUT_OF_MEMORY;
  return wk__tile_verify(k);
}

wk__tile_kernel *wk__tile_parse(const char *text) {
  reader r = {.at = text, .line = 1};
  wk__tile_kernel *k = wk__tile_create();
  if (!k) return NULL;
  if (parse(&r, k) == WK_OK) return k;
  wk__tile_release(k);
  return NULL;
}
