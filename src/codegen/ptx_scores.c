/* ptx_scores.h says what this is. */
#include "codegen/ptx_scores.h"

#include <stdio.h>

#include "codegen/ptx_internal.h"

enum { OF_QUERY = 1, OF_KEY = 2, OF_BOTH = 3 }; /* what a value depends on (bits) */

typedef struct range {
  int64_t low, high;
} range;

struct wk__ptx_scores {
  ptx_writer w;
  uint64_t *written; /* by instruction: for which queries or keys (bits) its value is there */
  range *ranges;     /* by instruction, of i64 values: what they may be */
  int *sums;         /* by instruction that adds at a place that elements share: words, one a place */
  ptx_scores_names names;
  wk__ptx_shape shape;
  wk__ptx_text *text;
  wk__ptx_score_args args;
  const wk__ptx_score_places *places;
  wk__ptx_scores_state *state;
  int score, gradient, out; /* words: of the element that is written */
  int counts;               /* predicate: of an element whose gradients are added */
};

/* Lines go where the kernel's do. */
static void enter(wk__ptx_scores *s) { s->w.body = s->text->code, s->w.unique = s->state->unique; }
static void leave(wk__ptx_scores *s) { s->text->code = s->w.body, s->state->unique = s->w.unique; }

/* ---- names, for the files that write operations ---- */

/* Elements are numbered along the keys of a query. */
reg_name ptx_score_value(const ptx_writer *w, int v, int k) {
  const ptx_scores_names *n = w->scores;
  static const char prefixes[] = "uqke"; /* of one for all, of a query, of a key, of an element */
  int number[] = {0, k / n->key_count, k % n->key_count, k};
  reg_name r;
  snprintf(r.text, NAME, "%%%c%d_%d_%d", prefixes[n->needs[v]], n->body, v, number[n->needs[v]]);
  return r;
}

static int captured_arg(const ptx_writer *w, int buffer) {
  int arg = w->scores->captured_args;
  for (int b = WK__BODY_BUFFER_CAPTURED; b < buffer; b++) arg += wk__ptx_captured_args(w->nest->buffers[b].ndim);
  return arg;
}

int ptx_score_arg(ptx_writer *w, int kind, int a, int b) {
  if (kind == WK__PTX_FAULTS) return w->scores->faults_arg;
  if (kind == WK__PTX_BASE) return captured_arg(w, w->nest->accesses[a].buffer);
  if (kind == WK__PTX_INDIRECT) return captured_arg(w, w->nest->accesses[a].buffer) + 2 + 2 * b;
  wk_int size = ptx_instr(w, w->expressions[a - w->nest->access_count])->expression;
  int buffer = wk__sym_index(size) / WK__BUFFER_DIMS, dim = wk__sym_index(size) % WK__BUFFER_DIMS;
  return captured_arg(w, buffer) + 1 + 2 * dim;
}

/* ---- what values depend on ---- */

static uint8_t places_need(const wk__ptx_scores *s, const wk__access *at) {
  uint8_t needs = at->buffer < WK__BODY_BUFFER_CAPTURED ? OF_BOTH : 0;
  for (int d = 0; d < at->ndim; d++)
    if (at->indirect[d]) needs |= s->names.needs[at->indirect[d]];
  return needs;
}

static uint8_t needs_of(const wk__ptx_scores *s, const wk__instr *i) {
  uint8_t needs = 0;
  if (i->op == WK__LOOP_param) return i->extra == WK__BODY_QUERY ? OF_QUERY : i->extra == WK__BODY_KEY ? OF_KEY : 0;
  if (wk__loop_has_access(i->op)) needs = places_need(s, &s->w.nest->accesses[i->extra]);
  for (int n = 0; n < wk__loop_ops[i->op].arity; n++) needs |= s->names.needs[i->operands[n]];
  return wk__loop_is_store(i->op) ? OF_BOTH : needs;
}

/* ---- what integers may be: those of 32 bits are faster ---- */

static const range any = {INT64_MIN, INT64_MAX};
enum { MOST_KNOWN = 40 }; /* bits: sums of known ones do not overflow */

static bool is_known(range r) { return -(INT64_C(1) << MOST_KNOWN) <= r.low && r.high <= INT64_C(1) << MOST_KNOWN; }

static bool is_narrow(range r) { return INT32_MIN <= r.low && r.high <= INT32_MAX; }

static range loaded_range(int dtype) {
  if (dtype == WK_UINT8) return (range){0, UINT8_MAX};
  return dtype == WK_INT8 || dtype == WK_INT16 || dtype == WK_INT32 ? (range){INT32_MIN, INT32_MAX} : any;
}

static range range_of(const wk__ptx_scores *s, const wk__instr *i) {
  range a = s->ranges[i->operands[0]], b = s->ranges[i->operands[1]], c = s->ranges[i->operands[2]];
  bool known = is_known(a) && is_known(b);
  if (i->dtype != WK_INT64) return any;
  if (i->op == WK__LOOP_param) return (range){0, WK__PTX_SCORE_PLACES};
  if (i->op == WK__LOOP_index) return (range){0, 0};
  if (i->op == WK__LOOP_constant) return (range){wk__scalar_int(i->number), wk__scalar_int(i->number)};
  if (i->op == WK__LOOP_load) return loaded_range(s->w.nest->buffers[s->w.nest->accesses[i->extra].buffer].dtype);
  if (i->op == WK__LOOP_neg && is_known(a)) return (range){-a.high, -a.low};
  if (i->op == WK__LOOP_abs && is_known(a)) return (range){0, wk__max(-a.low, a.high)};
  if (i->op == WK__LOOP_add && known) return (range){a.low + b.low, a.high + b.high};
  if (i->op == WK__LOOP_sub && known) return (range){a.low - b.high, a.high - b.low};
  if (i->op == WK__LOOP_where && is_known(b) && is_known(c))
    return (range){wk__min(b.low, c.low), wk__max(b.high, c.high)};
  return any;
}

/* An index is 0 where it is a loop's: others were not met. */
static bool is_written(const wk__nest *nest, const wk__instr *i) {
  if (i->op == WK__LOOP_store_add)
    return nest->buffers[nest->accesses[i->extra].buffer].dtype == WK_FLOAT32 &&
           nest->instrs[i->operands[0]].dtype == WK_FLOAT32;
  wk__loop_class class = wk__loop_class_of(i->op);
  bool of_size = i->op == WK__LOOP_check_index && wk__sym_kind_of(i->expression) == WK__SYM_BUFFER_SIZE &&
                 wk__sym_index(i->expression) / WK__BUFFER_DIMS >= WK__BODY_BUFFER_CAPTURED &&
                 wk__sym_index(i->expression) / WK__BUFFER_DIMS < nest->buffer_count;
  bool of_loop = i->op == WK__LOOP_index &&
                 (wk_int_same(i->expression, wk__loop_i(0)) || wk_int_same(i->expression, wk__loop_i(1)));
  if (class == WK__CLASS_INDEX) return of_size || of_loop;
  return class == WK__CLASS_NUMBER || class == WK__CLASS_MAP || i->op == WK__LOOP_load || i->op == WK__LOOP_store;
}

static bool all_is_written(const wk__nest *nest) {
  int expressions = 0;
  for (int64_t v = 1; v < nest->instr_count; v++) {
    if (!is_written(nest, &nest->instrs[v])) return false;
    expressions += wk__loop_has_expression(nest->instrs[v].op);
  }
  return expressions <= WK__MAX_WALKERS;
}

/* ---- instructions ---- */

static void write_param(wk__ptx_scores *s, const wk__instr *i, const char *out, int k) {
  const wk__ptx_score_places *p = s->places;
  int word = i->extra == WK__BODY_BATCH   ? p->batch
             : i->extra == WK__BODY_HEAD  ? p->head
             : i->extra == WK__BODY_QUERY ? p->queries[k / p->key_count]
                                          : p->keys[k % p->key_count];
  ptx_line(&s->w, "cvt.u64.u32 %s, %%r%d;", out, word);
}

/* The element of a captured tensor, or of its gradient, that an instruction's access is at. */
static reg_name write_address(wk__ptx_scores *s, const wk__instr *i, int k) {
  ptx_writer *w = &s->w;
  const wk__access *at = &w->nest->accesses[i->extra];
  reg_name address = ptx_load_arg(w, WK__PTX_BASE, i->extra, 0);
  for (int d = 0; d < at->ndim; d++) {
    if (!at->indirect[d]) continue;
    reg_name stride = ptx_load_arg(w, WK__PTX_INDIRECT, i->extra, d), index = ptx_value(w, at->indirect[d], k);
    ptx_line(w, "mad.lo.s64 %s, %s, %s, %s;", address.text, index.text, stride.text, address.text);
  }
  return address;
}

static void write_load(wk__ptx_scores *s, const wk__instr *i, const char *out, int k) {
  ptx_writer *w = &s->w;
  const wk__access *at = &w->nest->accesses[i->extra];
  if (at->buffer < WK__BODY_BUFFER_CAPTURED) {
    ptx_line(w, "mov.b32 %s, %%r%d;", out, at->buffer == WK__BODY_BUFFER_SCORES ? s->score : s->gradient);
    return;
  }
  ptx_load_constant(w, w->nest->buffers[at->buffer].dtype, out, write_address(s, i, k));
}

/* ---- additions to gradients ---- */

static uint8_t place_of(const wk__ptx_scores *s, int v) {
  return places_need(s, &s->w.nest->accesses[ptx_instr(&s->w, v)->extra]);
}

/* How many places of that kind a thread has. */
static int place_count(const wk__ptx_scores *s, uint8_t place) {
  return place == OF_QUERY ? s->places->query_count : place == OF_KEY ? s->places->key_count : 1;
}

static void write_addition(wk__ptx_scores *s, int v, int k) {
  ptx_writer *w = &s->w;
  const wk__instr *i = ptx_instr(w, v);
  uint8_t place = place_of(s, v);
  reg_name value = ptx_value(w, i->operands[0], k);
  if (place == OF_BOTH) {
    ptx_line(w, "@%%p%d red.global.add.f32 [%s], %s;", s->counts, write_address(s, i, k).text, value.text);
    return;
  }
  int keys = s->places->key_count, sum = s->sums[v] + (place == OF_QUERY ? k / keys : place == OF_KEY ? k % keys : 0);
  ptx_line(w, "@%%p%d add.f32 %%r%d, %%r%d, %s;", s->counts, sum, sum, value.text);
}

/* The sum over the lanes whose numbers differ by `bits`, of which the one with none of these adds it. */
static void add_over_lanes(wk__ptx_scores *s, int sum, int bits, reg_name address) {
  ptx_writer *w = &s->w;
  reg_name other = ptx_new(w, "b32"), first = ptx_new(w, "pred");
  for (int bit = 1; bit < 32; bit *= 2) {
    if (!(bits & bit)) continue;
    ptx_line(w, "shfl.sync.bfly.b32 %s, %%r%d, %d, 31, 0xffffffff;", other.text, sum, bit);
    ptx_line(w, "add.f32 %%r%d, %%r%d, %s;", sum, sum, other.text);
  }
  ptx_line(w, "and.b32 %s, %%r%d, %d;", other.text, s->places->lane, bits);
  ptx_line(w, "setp.eq.u32 %s, %s, 0;", first.text, other.text);
  ptx_line(w, "@%s red.global.add.f32 [%s], %%r%d;", first.text, address.text, sum);
}

/* An instruction that adds at a place that a thread's elements share. */
static bool has_sums(const wk__ptx_scores *s, int v) {
  return ptx_instr(&s->w, v)->op == WK__LOOP_store_add && place_of(s, v) != OF_BOTH;
}

/* What several elements have added, once all are written. */
static void write_sums(wk__ptx_scores *s) {
  const wk__ptx_score_places *p = s->places;
  for (int v = 1; v < (int)s->w.nest->instr_count; v++) {
    if (!has_sums(s, v)) continue;
    uint8_t place = place_of(s, v);
    int bits = (place == OF_QUERY ? 0 : p->query_lanes) | (place == OF_KEY ? 0 : p->key_lanes);
    for (int n = 0; n < place_count(s, place); n++) {
      int element = place == OF_QUERY ? n * p->key_count : n;
      add_over_lanes(s, s->sums[v] + n, bits, write_address(s, ptx_instr(&s->w, v), element));
    }
  }
}

static void begin_sums(wk__ptx_scores *s) {
  for (int v = 1; v < (int)s->w.nest->instr_count; v++) {
    if (!has_sums(s, v)) continue;
    int count = place_count(s, place_of(s, v));
    s->sums[v] = wk__ptx_words(s->text, count);
    for (int n = 0; n < count; n++) wk__ptx_say(s->text, "mov.b32 %%r%d, 0", s->sums[v] + n);
  }
}

/* ---- what is not as elsewhere: approximate functions, narrow integers ---- */

/* %0 is the result, %1 and %2 are the operands. */
static const char *approximation_of(int op) {
  switch (op) {
    case WK__LOOP_exp:
      return "mul.f32 %0, %1, 0f3FB8AA3B;\n\tex2.approx.f32 %0, %0;";
    case WK__LOOP_log:
      return "lg2.approx.f32 %0, %1;\n\tmul.f32 %0, %0, 0f3F317218;";
    case WK__LOOP_sigmoid: /* 1 / (1 + exp(-x)) */
      return "mul.f32 %0, %1, 0fBFB8AA3B;\n\tex2.approx.f32 %0, %0;\n\tadd.f32 %0, %0, 0f3F800000;\n\t"
             "rcp.approx.f32 %0, %0;";
    case WK__LOOP_tanh: /* 1 - 2 / (1 + exp(2 x)) */
      return "mul.f32 %0, %1, 0f4038AA3B;\n\tex2.approx.f32 %0, %0;\n\tadd.f32 %0, %0, 0f3F800000;\n\t"
             "rcp.approx.f32 %0, %0;\n\tfma.rn.f32 %0, %0, 0fC0000000, 0f3F800000;";
    case WK__LOOP_div:
      return "div.full.f32 %0, %1, %2;";
    case WK__LOOP_reciprocal:
      return "rcp.approx.f32 %0, %1;";
    default:
      return NULL;
  }
}

static void write_pattern(ptx_writer *w, const char *pattern, const char *const names[3]) {
  wk__string_append(&w->body, "\t");
  for (const char *p = pattern; *p; p++) {
    if (*p == '%')
      wk__string_append(&w->body, names[*++p - '0']);
    else
      wk__string_append_n(&w->body, p, 1);
  }
  wk__string_append(&w->body, "\n");
}

/* Integers of which the lower halves are all: compared, or made floats, by these. */
static bool write_narrow(wk__ptx_scores *s, int v, int k) {
  ptx_writer *w = &s->w;
  const wk__instr *i = ptx_instr(w, v);
  bool compares = wk__loop_ops[i->op].rule == WK__RULE_COMPARE,
       casts = i->op == WK__LOOP_cast && i->dtype == WK_FLOAT32;
  int operands = compares ? 2 : 1;
  reg_name low[2], out = ptx_value(w, v, k);
  for (int n = 0; n < operands; n++) {
    int from = i->operands[n];
    if (!(compares || casts) || ptx_instr(w, from)->dtype != WK_INT64 || !is_narrow(s->ranges[from])) return false;
  }
  for (int n = 0; n < operands; n++) {
    low[n] = ptx_new(w, "b32");
    ptx_line(w, "cvt.u32.u64 %s, %s;", low[n].text, ptx_value(w, i->operands[n], k).text);
  }
  ptx_line(w, ".reg .%s %s;", ptx_type(i->dtype), out.text);
  if (compares)
    ptx_line(w, "setp.%s.s32 %s, %s, %s;", wk__loop_ops[i->op].name, out.text, low[0].text, low[1].text);
  else
    ptx_line(w, "cvt.rn.f32.s32 %s, %s;", out.text, low[0].text);
  return true;
}

/* Whether it was one of those. */
static bool write_shortcut(wk__ptx_scores *s, int v, int k) {
  ptx_writer *w = &s->w;
  const wk__instr *i = ptx_instr(w, v);
  const char *pattern = i->dtype == WK_FLOAT32 ? approximation_of(i->op) : NULL;
  if (!pattern) return write_narrow(s, v, k);
  reg_name out = ptx_value(w, v, k), a = ptx_value(w, i->operands[0], k), b = ptx_value(w, i->operands[1], k);
  ptx_line(w, ".reg .f32 %s;", out.text);
  write_pattern(w, pattern, (const char *const[]){out.text, a.text, b.text});
  return true;
}

static void write_instr(wk__ptx_scores *s, int v, int k) {
  ptx_writer *w = &s->w;
  const wk__instr *i = ptx_instr(w, v);
  if (i->op == WK__LOOP_store_add) {
    write_addition(s, v, k);
    return;
  }
  if (i->op == WK__LOOP_store) {
    ptx_line(w, "mov.b32 %%r%d, %s;", s->out, ptx_value(w, i->operands[0], k).text);
    return;
  }
  if (i->op != WK__LOOP_param && i->op != WK__LOOP_index && i->op != WK__LOOP_load) {
    if (!write_shortcut(s, v, k)) ptx_operation(w, v, k);
    return;
  }
  reg_name out = ptx_value(w, v, k);
  ptx_line(w, ".reg .%s %s;", ptx_type(i->dtype), out.text);
  if (i->op == WK__LOOP_param)
    write_param(s, i, out.text, k);
  else if (i->op == WK__LOOP_load)
    write_load(s, i, out.text, k);
  else
    ptx_line(w, "mov.b64 %s, 0;", out.text);
}

/* What other elements of the query or key use, too, at the first of them: it need not stay in registers for longer. */
static void write_shared(wk__ptx_scores *s, int query, int key) {
  for (int v = 1; v < (int)s->w.nest->instr_count; v++) {
    uint8_t needs = s->names.needs[v];
    uint64_t bit = UINT64_C(1) << (needs == OF_QUERY ? query : needs == OF_KEY ? key : 0);
    if (needs == OF_BOTH || s->written[v] & bit) continue;
    s->written[v] |= bit;
    write_instr(s, v, query * s->places->key_count + key);
  }
}

/* ---- the whole ---- */

static bool prepare(wk__ptx_scores *s, const wk__nest *nest) {
  size_t count = (size_t)nest->instr_count;
  s->names.needs = wk__alloc_zeroed(count);
  s->ranges = wk__alloc_zeroed(count * sizeof *s->ranges);
  s->written = wk__alloc_zeroed(count * sizeof *s->written);
  s->sums = wk__alloc_zeroed(count * sizeof *s->sums);
  s->w.varies = wk__alloc_zeroed(count * sizeof *s->w.varies);
  if (!s->names.needs || !s->ranges || !s->written || !s->sums || !s->w.varies) return false;
  s->w.nest = nest, s->w.shape = &s->shape, s->w.scores = &s->names, s->w.whole = true;
  s->w.expression_count = wk__nest_expressions(nest, s->w.expressions);
  for (int v = 1; v < (int)count; v++) {
    s->names.needs[v] = needs_of(s, ptx_instr(&s->w, v));
    s->ranges[v] = range_of(s, ptx_instr(&s->w, v));
  }
  return true;
}

static void destroy(wk__ptx_scores *s) {
  wk__free(s->names.needs);
  wk__free(s->ranges);
  wk__free(s->written);
  wk__free(s->sums);
  wk__free(s->w.varies);
  wk__free(s);
}

wk__ptx_scores *wk__ptx_scores_begin(wk__ptx_text *text, const wk__nest *nest, const wk__ptx_score_args *args,
                                     const wk__ptx_score_places *places, wk__ptx_scores_state *state) {
  wk__ptx_scores *s = wk__alloc_zeroed(sizeof *s);
  if (!s) return NULL;
  s->text = text, s->places = places, s->state = state;
  s->names = (ptx_scores_names){.body = state->unique++,
                                .key_count = places->key_count,
                                .faults_arg = args->faults,
                                .captured_args = args->captured};
  s->shape = (wk__ptx_shape){.mode = WK__PTX_POINTWISE, .p = 2, .each = 1, .capability = 80};
  if (!prepare(s, nest)) {
    destroy(s);
    return NULL;
  }
  if (!all_is_written(nest)) state->unsupported = true;
  begin_sums(s);
  enter(s);
  ptx_line(&s->w, "{");
  leave(s);
  return s;
}

static void write_element(wk__ptx_scores *s, int query, int key, int score, int gradient) {
  if (s->state->unsupported) return;
  s->score = score, s->gradient = gradient;
  enter(s);
  write_shared(s, query, key);
  ptx_line(&s->w, "{");
  for (int v = 1; v < (int)s->w.nest->instr_count; v++)
    if (s->names.needs[v] == OF_BOTH) write_instr(s, v, query * s->places->key_count + key);
  ptx_line(&s->w, "}");
  leave(s);
}

void wk__ptx_scores_element(wk__ptx_scores *s, int query, int key, int score, int gradient, int out) {
  s->out = out;
  write_element(s, query, key, score, gradient);
}

void wk__ptx_scores_add(wk__ptx_scores *s, int query, int key, int score, int gradient, int counts) {
  s->counts = counts;
  write_element(s, query, key, score, gradient);
}

void wk__ptx_scores_end(wk__ptx_scores *s) {
  enter(s);
  if (!s->state->unsupported) write_sums(s);
  ptx_line(&s->w, "}");
  leave(s);
  s->state->tables |= s->w.tables;
  s->state->unsupported |= s->w.unsupported;
  destroy(s);
}

bool wk__ptx_writes_scores(const wk__nest *nest) {
  static const int word;
  wk__ptx_text text = {0};
  wk__ptx_scores_state state = {0};
  const wk__ptx_score_places places = {.queries = &word, .keys = &word, .query_count = 1, .key_count = 1};
  wk__ptx_scores *s = wk__ptx_scores_begin(&text, nest, &(wk__ptx_score_args){0}, &places, &state);
  if (s) wk__ptx_scores_element(s, 0, 0, 0, 0, 0);
  if (s) wk__ptx_scores_end(s);
  bool fits = s && !state.unsupported && !text.code.failed;
  wk__string_release(&text.code);
  return fits;
}

void wk__ptx_scores_tables(const wk__ptx_scores_state *state, wk__string *out) {
  ptx_declare_tables(&(ptx_writer){.tables = state->tables}, out);
}
