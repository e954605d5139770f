/* Units and kernels: a function for each nest and mode, its phases as loops around bodies.
 *
 *     body of a phase      static inline, S elements at j, `n` of them wanted; one that is a long chain of operations
 *                          leaves the storing to a second one, so that four can be computed side by side
 *     pointwise            for each task: get blocks, whole vectors, the rest
 *     rows                 for each row and phase: values per row; chunks of blocks of groups of 32; fold; the rest
 *     columns              the same with strips of columns in place of values, a few elements of each at a time
 *
 * In: nests. Out: text. Invariant: whatever the split into tasks, blocks and vectors, the order of a reduction is that
 * of loop/loop.h. Tests: tests/c/test_codegen.c. */
#include <stdio.h>

#include "codegen/internal.h"
#include "codegen/test_switches.h"

typedef struct writer {
  analysis a;
  wk__string *out;
  int number; /* of the kernel in its unit */
  wk__cpu_level level;
  wk__c_mode mode;
  uint64_t read, written; /* walkers of the phase at hand */
  bool interleaved;       /* bodies of the phase at hand are computed side by side, */
  bool puts;              /* and what they store is put by a function of its own */
  uint64_t streams;       /* rows: accesses whose next rows phases 0 and 1 ask for; 0: phase 0 asks some way ahead */
  uint64_t stored;        /* of them those that are written */
  int quarters[2];        /* of a row that these phases ask for */
} writer;

enum { INTERLEAVED = 4 };

static const char *const mode_names[] = {"pointwise", "rows", "columns"};

static bool by_columns(const writer *w) { return w->mode == WK__C_COLUMNS; }
static target target_of(writer *w, int phase, bool body) {
  return (target){&w->a, w->out, w->mode, phase, body, false};
}
static const wk__instr *instr_at(const writer *w, int64_t v) { return &w->a.nest->instrs[v]; }
static int groups_of(const writer *w) { return 32 / (4 << w->level); }

/* ---- walkers ---- */

static uint64_t bit_of_walker(const writer *w, wk__var v) {
  const wk__instr *i = instr_at(w, v);
  if (wk__loop_has_access(i->op)) return UINT64_C(1) << i->extra;
  if (i->op == WK__LOOP_index && w->a.place[v] != PLACE_UNIFORM) return UINT64_C(1) << walker_of(&w->a, v);
  return 0;
}

static bool plain_store(const writer *w, const wk__instr *i) {
  return i->op == WK__LOOP_store && !w->a.nest->accesses[i->extra].has_indirect;
}

static void add_walker(writer *w, wk__var v) {
  w->read |= bit_of_walker(w, v);
  if (plain_store(w, instr_at(w, v))) w->written |= bit_of_walker(w, v);
}

/* Of what a->needed marks; kept values need no memory. */
static void find_walkers(writer *w, int phase) {
  w->read = w->written = 0;
  for (int64_t v = 1; v < w->a.nest->instr_count; v++)
    if (w->a.needed[v] && (by_columns(w) || !is_loaded_from_kept(&w->a, (wk__var)v, phase))) add_walker(w, (wk__var)v);
}

/* Into which struct of values: "v", "row[k]". */
static void write_pointers(writer *w, const char *indent, const char *values, const char *e) {
  for (uint64_t left = w->read; left; left &= left - 1) {
    int k = __builtin_ctzll(left);
    wk__string_printf(w->out, "%s%s.p%d = along_%s(a, t, %d, %s%s);\n", indent, values, k,
                      by_columns(w) ? "column" : "row", k, e, by_columns(w) ? "" : ", q");
  }
}

static void write_get_blocks(writer *w, const char *indent, const char *e, const char *count) {
  if (w->read)
    wk__string_printf(w->out, "%sget_blocks(a, t, 0x%llx, 0x%llx, %s, %s);\n", indent, (unsigned long long)w->read,
                      (unsigned long long)w->written, e, count);
}

static void write_put_blocks(writer *w, const char *indent, const char *e, const char *count) {
  if (w->written)
    wk__string_printf(w->out, "%sput_blocks(a, t, 0x%llx, %s, %s);\n", indent, (unsigned long long)w->written, e,
                      count);
}

/* ---- which instructions ---- */

static bool reduces_in(const writer *w, int64_t v, int phase) {
  return wk__loop_is_reduction(instr_at(w, v)->op) && wk__instr_phase(instr_at(w, v)) == phase;
}
static bool scans_in(const writer *w, int64_t v, int phase) {
  return wk__loop_is_scan(instr_at(w, v)->op) && w->a.needed[v] &&
         (by_columns(w) || !is_loaded_from_kept(&w->a, (wk__var)v, phase));
}
static bool has_lanes(const writer *w, int64_t v, int phase) {
  return reduces_in(w, v, phase) && !wk__loop_is_arg(instr_at(w, v)->op);
}
static bool phase_has_state(const writer *w, int phase) {
  for (int64_t v = 1; v < w->a.nest->instr_count; v++)
    if (reduces_in(w, v, phase) || scans_in(w, v, phase)) return true;
  return false;
}
static int count_needed(const writer *w) {
  int count = 0;
  for (int64_t v = 1; v < w->a.nest->instr_count; v++) count += w->a.needed[v];
  return count;
}

/* Values per row of one stage, but for those that reductions make. */
static bool is_row_step(const writer *w, int64_t v, int stage) {
  const wk__instr *i = instr_at(w, v);
  bool placed = w->a.place[v] == PLACE_ROW || (wk__loop_is_store(i->op) && !wk__instr_per_element(w->a.nest, i));
  return placed && i->stage == stage && !wk__loop_is_reduction(i->op);
}

/* ---- bodies side by side ---- */

/* One instruction after the other, some ten of them, of which each waits for the one before. */
static bool is_chain(const wk__instr *i) {
  switch (i->op) {
    case WK__LOOP_exp:
    case WK__LOOP_expm1:
    case WK__LOOP_log:
    case WK__LOOP_log1p:
    case WK__LOOP_tanh:
    case WK__LOOP_sigmoid:
      return true;
    default:
      return i->op == WK__LOOP_erf && i->dtype == WK_FLOAT32;
  }
}

/* What has to happen element after element. */
static bool has_order(const writer *w, const wk__instr *i) {
  return wk__loop_is_scan(i->op) || wk__loop_is_arg(i->op) || i->op == WK__LOOP_check_index ||
         (wk__loop_is_store(i->op) && !plain_store(w, i));
}

static bool is_kept_in(const writer *w, int64_t v, int phase) {
  return w->a.needed[v] && w->a.place[v] == PLACE_KEPT && !by_columns(w) &&
         !is_loaded_from_kept(&w->a, (wk__var)v, phase);
}

static bool is_put(const writer *w, int64_t v, int phase) {
  if (w->a.place[v] < PLACE_ELEMENT) return false;
  for (int64_t s = v + 1; s < w->a.nest->instr_count; s++)
    if (w->a.needed[s] && wk__loop_is_store(instr_at(w, s)->op) && instr_at(w, s)->operands[0] == v) return true;
  return is_kept_in(w, v, phase);
}

static void choose_abreast(writer *w, int phase) {
  enum { LONGEST = 40 };
  bool chain = false;
  w->interleaved = w->puts = false;
  if (by_columns(w) || count_needed(w) > LONGEST) return;
  for (int64_t v = 1; v < w->a.nest->instr_count; v++) {
    const wk__instr *i = instr_at(w, v);
    if (!w->a.needed[v]) continue;
    if (has_order(w, i)) return;
    chain |= is_chain(i) && w->a.place[v] >= PLACE_ELEMENT && !is_loaded_from_kept(&w->a, (wk__var)v, phase);
  }
  w->interleaved = chain;
  for (int64_t v = 1; v < w->a.nest->instr_count; v++) w->puts |= chain && is_put(w, v, phase);
}

static void write_out_struct(writer *w, int phase) {
  wk__string_printf(w->out, "struct k%d_%s_out_%d {\n", w->number, mode_names[w->mode], phase);
  for (int64_t v = 1; v < w->a.nest->instr_count; v++)
    if (is_put(w, v, phase)) wk__string_printf(w->out, "  %c v%lld;\n", type_of(instr_at(w, v)->dtype), (long long)v);
  wk__string_append(w->out, "  int none;\n};\n");
}

static void write_put(writer *w, int phase) {
  target t = target_of(w, phase, true);
  t.put = true;
  wk__string_printf(w->out,
                    "WK_INLINE void k%d_%s_put_%d(const struct k%d_%s_values *v, const struct k%d_%s_out_%d *o,\n"
                    "    int64_t e, int64_t j, int64_t n) {\n",
                    w->number, mode_names[w->mode], phase, w->number, mode_names[w->mode], w->number,
                    mode_names[w->mode], phase);
  for (int64_t v = 1; v < w->a.nest->instr_count; v++) {
    if (is_kept_in(w, v, phase)) write_keep(&t, (wk__var)v);
    if (w->a.needed[v] && wk__loop_is_store(instr_at(w, v)->op)) write_instr(&t, (wk__var)v);
  }
  wk__string_append(w->out, "}\n");
}

/* ---- the struct of values, the bodies ---- */

static void write_values_struct(writer *w) {
  const wk__nest *nest = w->a.nest;
  wk__string_printf(w->out, "struct k%d_%s_values {\n", w->number, mode_names[w->mode]);
  for (int64_t v = 1; v < nest->instr_count; v++) {
    const wk__instr *i = instr_at(w, v);
    if (w->a.place[v] == PLACE_UNIFORM || (w->a.place[v] == PLACE_ROW && !by_columns(w)))
      wk__string_printf(w->out, "  %c v%lld;\n", type_of(i->dtype), (long long)v);
    else if (w->a.place[v] == PLACE_ROW)
      wk__string_printf(w->out, "  char *r%lld;\n", (long long)v);
    if (w->a.place[v] == PLACE_KEPT && !by_columns(w)) wk__string_printf(w->out, "  char *kept%d;\n", w->a.number[v]);
    if (by_columns(w) && (wk__loop_is_reduction(i->op) || wk__loop_is_scan(i->op)))
      wk__string_printf(w->out, "  char *s%lld;\n", (long long)v);
    if (wk__loop_has_access(i->op)) wk__string_printf(w->out, "  void *p%d;\n", i->extra);
    if (i->op == WK__LOOP_index) wk__string_printf(w->out, "  void *p%d;\n", walker_of(&w->a, (wk__var)v));
  }
  wk__string_append(w->out, "  void *none;\n};\n");
}

/* Accumulators, one struct a phase; by columns those of one lane. */
static void write_state_struct(writer *w, int phase) {
  wk__string_printf(w->out, "struct k%d_%s_%d {\n", w->number, mode_names[w->mode], phase);
  for (int64_t v = 1; v < w->a.nest->instr_count; v++) {
    const wk__instr *i = instr_at(w, v);
    if (by_columns(w) ? !has_lanes(w, v, phase) : !reduces_in(w, v, phase) && !scans_in(w, v, phase)) continue;
    int dtype = operand_dtype(&w->a, i);
    if (by_columns(w))
      wk__string_printf(w->out, "  %c v%lld;\n", type_of(dtype), (long long)v);
    else if (wk__loop_is_arg(i->op))
      wk__string_printf(w->out, "  %c_%s_state v%lld;\n", letter_of(dtype),
                        i->op == WK__LOOP_reduce_argmax ? "argmax" : "argmin", (long long)v);
    else if (wk__loop_is_scan(i->op))
      wk__string_printf(w->out, "  %c_lane v%lld, before%lld;\n", letter_of(dtype), (long long)v, (long long)v);
    else
      wk__string_printf(w->out, "  %c v%lld[GROUP];\n", type_of(dtype), (long long)v);
  }
  wk__string_append(w->out, "  int none;\n};\n");
}

static void write_body(writer *w, int phase) {
  target t = target_of(w, phase, true);
  write_state_struct(w, phase);
  choose_abreast(w, phase);
  if (w->puts) write_out_struct(w, phase);
  wk__string_printf(w->out,
                    "WK_INLINE void k%d_%s_body_%d(const struct wk__kernel_args *a, struct wk__kernel_thread *t,\n"
                    "    const struct k%d_%s_values *v, struct k%d_%s_%d *acc, int64_t e, int64_t j, int64_t n, int k",
                    w->number, mode_names[w->mode], phase, w->number, mode_names[w->mode], w->number,
                    mode_names[w->mode], phase);
  if (w->puts) wk__string_printf(w->out, ",\n    struct k%d_%s_out_%d *o", w->number, mode_names[w->mode], phase);
  wk__string_append(w->out, ") {\n");
  for (int stores = 0; stores < 2 - w->puts; stores++)
    for (int64_t v = 1; v < w->a.nest->instr_count; v++) {
      const wk__instr *i = instr_at(w, v);
      bool simple = w->a.place[v] == PLACE_UNIFORM || i->op == WK__LOOP_constant;
      if (!w->a.needed[v] || simple || wk__loop_is_store(i->op) != (stores == 1)) continue;
      if (!by_columns(w) && is_loaded_from_kept(&w->a, (wk__var)v, phase))
        write_kept_load(&t, (wk__var)v);
      else
        write_instr(&t, (wk__var)v);
      if (!w->puts && is_kept_in(w, v, phase)) write_keep(&t, (wk__var)v);
    }
  for (int64_t v = 1; v < w->a.nest->instr_count && w->puts; v++)
    if (is_put(w, v, phase)) wk__string_printf(w->out, "  o->v%lld = v%lld;\n", (long long)v, (long long)v);
  wk__string_append(w->out, "}\n");
  if (w->puts) write_put(w, phase);
}

/* `o`: "", or ", &o" with what the body leaves to be stored. */
static void write_body_call(writer *w, int phase, const char *acc, const char *at, const char *n, const char *k,
                            const char *o) {
  wk__string_printf(w->out, "k%d_%s_body_%d(a, t, &v, &%s, e, %s, %s, %s%s);", w->number, mode_names[w->mode], phase,
                    acc, at, n, k, o);
}

static void write_put_call(writer *w, int phase, const char *o, const char *at, const char *n) {
  wk__string_printf(w->out, "k%d_%s_put_%d(&v, &%s, e, %s, %s);", w->number, mode_names[w->mode], phase, o, at, n);
}

static void write_call(writer *w, int phase, const char *indent, const char *acc, const char *at, const char *n,
                       const char *k) {
  wk__string_append(w->out, indent);
  if (w->puts) {
    wk__string_printf(w->out, "{ struct k%d_%s_out_%d o; ", w->number, mode_names[w->mode], phase);
    write_body_call(w, phase, acc, at, n, k, ", &o");
    wk__string_append(w->out, " ");
    write_put_call(w, phase, "o", at, n);
    wk__string_append(w->out, " }\n");
  } else {
    write_body_call(w, phase, acc, at, n, k, "");
    wk__string_append(w->out, "\n");
  }
}

/* So many whole vectors from j on, accumulators by turns. */
static void write_calls(writer *w, int phase, const char *indent, int count, int accumulators) {
  if (w->puts)
    wk__string_printf(w->out, "%sstruct k%d_%s_out_%d o[%d];\n", indent, w->number, mode_names[w->mode], phase, count);
  for (int part = 0; part < 1 + w->puts; part++)
    for (int c = 0; c < count; c++) {
      char at[32], k[16], o[32];
      snprintf(at, sizeof at, "j + %d * S", c);
      snprintf(k, sizeof k, "%d", c % accumulators);
      snprintf(o, sizeof o, part ? "o[%d]" : ", &o[%d]", c);
      wk__string_append(w->out, indent);
      if (part)
        write_put_call(w, phase, o, at, "S");
      else
        write_body_call(w, phase, "lanes", at, "S", k, w->puts ? o : "");
      wk__string_append(w->out, "\n");
    }
}

/* ---- the kernel function ---- */

static void write_uniform(writer *w) {
  target t = target_of(w, 0, false);
  t.mode = WK__C_ROWS; /* computed once, not in strips */
  wk__string_printf(w->out, "  struct k%d_%s_values v;\n", w->number, mode_names[w->mode]);
  for (int64_t v = 1; v < w->a.nest->instr_count; v++)
    if (w->a.place[v] == PLACE_UNIFORM) write_instr(&t, (wk__var)v);
}

static void write_signature(writer *w) {
  wk__string_printf(
      w->out,
      "void wk_kernel_%d_%s(const struct wk__kernel_args *a, struct wk__kernel_thread *t, int64_t begin,\n"
      "    int64_t end) {\n",
      w->number, mode_names[w->mode]);
}

/* Whole vectors, then the rest; no accumulators but scans'. */
static void write_plain_loop(writer *w, int phase, const char *indent) {
  if (w->interleaved) {
    wk__string_printf(w->out, "%sfor (; j + %d * S <= count; j += %d * S) {\n", indent, INTERLEAVED, INTERLEAVED);
    write_calls(w, phase, indent, INTERLEAVED, 1);
    wk__string_printf(w->out, "%s}\n", indent);
  }
  wk__string_printf(w->out, "%sfor (; j + S <= count; j += S)\n%s  ", indent, indent);
  write_call(w, phase, "", "lanes", "j", "S", "0");
  wk__string_printf(w->out, "%sif (j < count) ", indent);
  write_call(w, phase, "", "lanes", "j", "count - j", "0");
}

static void write_pointwise(writer *w) {
  mark_needed(&w->a, 0, false);
  find_walkers(w, 0);
  write_values_struct(w);
  write_body(w, 0);
  write_signature(w);
  write_uniform(w);
  wk__string_printf(w->out, "  struct k%d_pointwise_0 lanes;\n", w->number);
  wk__string_append(w->out,
                    "  for (int64_t task = begin; task < end; task++) {\n    a->start(a, t, task);\n"
                    "    const int64_t e = 0, q = 0, count = t->m * t->n;\n    int64_t j = 0;\n");
  write_get_blocks(w, "    ", "0", "count");
  write_pointers(w, "    ", "v", "0");
  write_plain_loop(w, 0, "    ");
  write_put_blocks(w, "    ", "0", "count");
  wk__string_append(w->out, "  }\n}\n");
}

/* ---- rows ---- */

/* Row steps of a stage: computations, then stores. */
static void write_row_steps(writer *w, int stage, const target *t) {
  for (int stores = 0; stores < 2; stores++)
    for (int64_t v = 1; v < w->a.nest->instr_count; v++)
      if (is_row_step(w, v, stage) && wk__loop_is_store(instr_at(w, v)->op) == (stores == 1))
        write_instr(t, (wk__var)v);
}

/* What a scan has of the chunk before goes to what is before this one. */
static void write_next_scan(writer *w, int64_t v) {
  const wk__instr *i = instr_at(w, v);
  const char *op = combiner_of(i->op);
  char letter = letter_of(i->dtype);
  long long n = v;
  if (by_columns(w))
    wk__string_printf(w->out, "        if (first) %c_next_scan_strip_%s(v.s%lld, v.s%lld + a->strip, ", letter, op, n,
                      n);
  else
    wk__string_printf(w->out, "        if (first) %c_next_scan_%s(&lanes.v%lld, &lanes.before%lld, ", letter, op, n, n);
  write_identity(w->out, i->op, i->dtype);
  wk__string_append(w->out, by_columns(w) ? ", t->n);\n" : ");\n");
}

static void write_start_of_chunk(writer *w, int phase) {
  for (int64_t v = 1; v < w->a.nest->instr_count; v++) {
    const wk__instr *i = instr_at(w, v);
    if (scans_in(w, v, phase)) write_next_scan(w, v);
    if (!has_lanes(w, v, phase)) continue;
    for (int k = 0; k < groups_of(w); k++) {
      wk__string_printf(w->out, "        lanes.v%lld[%d] = ", (long long)v, k);
      write_identity(w->out, i->op, operand_dtype(&w->a, i));
      wk__string_append(w->out, ";\n");
    }
  }
}

static void write_end_of_chunk(writer *w, int phase) {
  for (int64_t v = 1; v < w->a.nest->instr_count; v++) {
    const wk__instr *i = instr_at(w, v);
    if (!has_lanes(w, v, phase)) continue;
    char letter = letter_of(operand_dtype(&w->a, i));
    const char *op = combiner_of(i->op);
    wk__string_printf(w->out,
                      "        v.v%lld = %c_fold_%s(lanes.v%lld);\n"
                      "        if (a->length > 4096) %c_push_%s(counter_%lld, chunks, v.v%lld);\n",
                      (long long)v, letter, op, (long long)v, letter, op, (long long)v, (long long)v);
  }
}

/* A reduction of one chunk is that chunk's value; of none, the identity. */
static void write_start_of_phase(writer *w, int phase) {
  for (int64_t v = 1; v < w->a.nest->instr_count; v++) {
    const wk__instr *i = instr_at(w, v);
    if (scans_in(w, v, phase)) {
      char letter = letter_of(i->dtype);
      wk__string_printf(w->out, "      lanes.v%lld = lanes.before%lld = %c_first(", (long long)v, (long long)v, letter);
      write_identity(w->out, i->op, i->dtype);
      wk__string_append(w->out, ");\n");
    }
    if (!reduces_in(w, v, phase)) continue;
    if (wk__loop_is_arg(i->op)) {
      wk__string_printf(w->out, "      lanes.v%lld.at = -1, lanes.v%lld.best = 0;\n", (long long)v, (long long)v);
      continue;
    }
    wk__string_printf(w->out,
                      "      %c counter_%lld[WK__KERNEL_LEVELS];\n      v.v%lld = ", type_of(operand_dtype(&w->a, i)),
                      (long long)v, (long long)v);
    write_identity(w->out, i->op, operand_dtype(&w->a, i));
    wk__string_append(w->out, ";\n");
  }
}

static void write_end_of_phase(writer *w, int phase) {
  for (int64_t v = 1; v < w->a.nest->instr_count; v++) {
    const wk__instr *i = instr_at(w, v);
    if (!reduces_in(w, v, phase)) continue;
    if (wk__loop_is_arg(i->op)) {
      wk__string_printf(w->out, "      v.v%lld = l_splat(lanes.v%lld.at);\n", (long long)v, (long long)v);
      continue;
    }
    char letter = letter_of(operand_dtype(&w->a, i));
    wk__string_printf(w->out, "      if (a->length > 4096) v.v%lld = %c_finish_%s(counter_%lld, chunks, v.v%lld);\n",
                      (long long)v, letter, combiner_of(i->op), (long long)v, (long long)v);
  }
}

/* ---- memory ahead ---- */

static int item_of(const writer *w, int access) {
  return wk__dtypes[w->a.nest->buffers[w->a.nest->accesses[access].buffer].dtype].size;
}

/* Another memory in every row. */
static bool is_stream(const writer *w, int walker) {
  if (walker >= (int)w->a.nest->access_count) return false;
  const wk__access *access = &w->a.nest->accesses[walker];
  uint32_t vars = 0;
  for (int d = 0; d < access->ndim; d++) vars |= wk__sym_loop_vars(access->index[d]);
  return access->per_element && !access->has_indirect && !access->may_leave &&
         vars & ((UINT32_C(1) << WK__FIRST_R) - 1);
}

static uint64_t streams_of(const writer *w, uint64_t walkers) {
  uint64_t streams = 0;
  for (uint64_t left = walkers; left; left &= left - 1)
    if (is_stream(w, __builtin_ctzll(left))) streams |= left & -left;
  return streams;
}

/* What the first two phases read, and what is written in several places: a store waits for its line as well, and stores
 * behind it for that one; of one place the processor takes care by itself. A phase that takes longer asks for more. */
static void choose_shares(writer *w) {
  bool slow[2];
  w->streams = w->stored = 0;
  if (w->a.phases < 2) return;
  for (int p = 0; p < w->a.phases; p++) {
    mark_needed(&w->a, p, true);
    find_walkers(w, p);
    w->stored |= streams_of(w, w->written);
    if (p > 1) continue;
    w->streams |= streams_of(w, w->read & ~w->written);
    choose_abreast(w, p);
    slow[p] = w->interleaved;
  }
  if (__builtin_popcountll(w->stored) < 2) w->stored = 0;
  w->streams |= w->stored;
  w->quarters[0] = 2 + slow[0] - slow[1];
  w->quarters[1] = 4 - w->quarters[0];
  if (!phase_has_state(w, 1)) w->streams = 0; /* it goes through its row in no groups */
}

static void write_next_rows(writer *w, int phase) {
  for (uint64_t left = phase < 2 ? w->streams : 0; left; left &= left - 1) {
    int k = __builtin_ctzll(left);
    wk__string_printf(w->out, "      const uint64_t next%d = next_rows(a, t, %d, q, %d);\n", k, k,
                      phase ? w->quarters[0] : 0);
  }
}

/* Long rows, which are taken alone, are written fast enough as they are. */
static void write_prefetches(writer *w, int phase, int group) {
  for (uint64_t left = phase < 2 ? w->streams : 0; left; left &= left - 1) {
    int k = __builtin_ctzll(left);
    wk__string_printf(w->out, "            %sPREFETCH_SHARE(next%d, e + j + %d, %d, %d);\n",
                      w->stored >> k & 1 ? "if (together > 1) " : "", k, 32 * group, item_of(w, k), w->quarters[phase]);
  }
  for (uint64_t left = phase || w->streams ? 0 : w->read & ~w->written; left; left &= left - 1) {
    int k = __builtin_ctzll(left);
    if (k < (int)w->a.nest->access_count)
      wk__string_printf(w->out, "            PREFETCH_GROUP(v.p%d, j + %d, %d);\n", k, 32 * group, item_of(w, k));
  }
}

/* ---- groups ---- */

/* `groups` at a time. */
static void write_whole_groups(writer *w, int phase, int groups, bool unrolled) {
  wk__string_printf(w->out, "          for (; j + %d <= count; j += %d) {\n", 32 * groups, 32 * groups);
  for (int g = 0; g < groups; g++) write_prefetches(w, phase, g);
  if (unrolled) {
    write_calls(w, phase, "            ", groups * groups_of(w), groups_of(w));
  } else {
    wk__string_append(w->out, "            for (int k = 0; k < GROUP; k++) ");
    write_call(w, phase, "", "lanes", "j + k * S", "S", "k");
  }
  wk__string_append(w->out, "          }\n");
}

/* Groups of 32 elements, each lane to its accumulator; the rest through a copy of the accumulators, so that the main
 * loop's stay in registers. */
static void write_group_loop(writer *w, int phase) {
  enum { LONG_BODY = 40 };
  int vectors = groups_of(w);
  bool several = w->interleaved && vectors < INTERLEAVED;
  bool unrolled = count_needed(w) * vectors <= 2 * LONG_BODY || (w->interleaved && vectors == INTERLEAVED);
  if (several) write_whole_groups(w, phase, INTERLEAVED / vectors, true);
  write_whole_groups(w, phase, 1, unrolled && !several);
  wk__string_printf(w->out,
                    "          if (j < count) {\n            struct k%d_rows_%d rest = lanes;\n"
                    "            for (int k = 0; j < count; j += S, k++) ",
                    w->number, phase);
  write_call(w, phase, "", "rest", "j", "count - j", "k");
  wk__string_append(w->out, "            lanes = rest;\n          }\n");
}

static void write_row_phase(writer *w, int phase) {
  mark_needed(&w->a, phase, true);
  if (count_needed(w) == 0) return;
  find_walkers(w, phase);
  choose_abreast(w, phase);
  wk__string_printf(w->out, "    { /* phase %d */\n      struct k%d_rows_%d lanes;\n      int64_t chunks = 0;\n", phase,
                    w->number, phase);
  write_next_rows(w, phase);
  write_start_of_phase(w, phase);
  wk__string_append(w->out,
                    "      for (int64_t first = 0; first < a->length; first += 4096, chunks++) {\n"
                    "        int64_t stop = first + 4096 < a->length ? first + 4096 : a->length;\n");
  write_start_of_chunk(w, phase);
  wk__string_append(w->out,
                    "        for (int64_t e = first, count; e < stop; e += count) {\n"
                    "          int64_t j = 0;\n"
                    "          count = stop - e < WK__KERNEL_BLOCK ? stop - e : WK__KERNEL_BLOCK;\n");
  write_get_blocks(w, "          ", "e", "count");
  write_pointers(w, "          ", "v", "e");
  if (phase_has_state(w, phase))
    write_group_loop(w, phase);
  else
    write_plain_loop(w, phase, "          ");
  write_put_blocks(w, "          ", "e", "count");
  wk__string_append(w->out, "        }\n");
  write_end_of_chunk(w, phase);
  wk__string_append(w->out, "      }\n");
  write_end_of_phase(w, phase);
  wk__string_append(w->out, "    }\n");
}

static void write_kept_pointers(writer *w) {
  for (int64_t v = 1; v < w->a.nest->instr_count; v++) {
    if (w->a.place[v] != PLACE_KEPT) continue;
    int number = w->a.number[v], home = w->a.home[v] - 1;
    wk__string_printf(w->out, "      v.kept%d = ", number);
    if (home >= 0) wk__string_printf(w->out, "a->adjacent >> %d & 1 ? row_memory(a, t, %d, q) : ", home, home);
    wk__string_printf(w->out, "t->kept + (%d * a->together + q) * a->kept_bytes;\n", number);
  }
}

/* Values of a row that a phase makes, its row steps included. */
static bool is_made_in(const writer *w, int64_t v, int phase) {
  if (w->a.place[v] != PLACE_ROW) return false;
  return wk__loop_is_reduction(instr_at(w, v)->op) ? wk__instr_phase(instr_at(w, v)) == phase
                                                   : is_row_step(w, v, phase);
}

/* What a phase made of the row at hand, copied from one struct to the other: kept, or brought back. */
static void write_row_values(writer *w, int phase, const char *to, const char *from) {
  for (int64_t v = 1; v < w->a.nest->instr_count; v++)
    if (is_made_in(w, v, phase))
      wk__string_printf(w->out, "      %s.v%lld = %s.v%lld;\n", to, (long long)v, from, (long long)v);
}

static void write_row_struct(writer *w) {
  wk__string_printf(w->out, "struct k%d_row {\n", w->number);
  for (int64_t v = 1; v < w->a.nest->instr_count; v++)
    if (w->a.place[v] == PLACE_ROW)
      wk__string_printf(w->out, "  %c v%lld;\n", type_of(instr_at(w, v)->dtype), (long long)v);
  wk__string_append(w->out, "  int none;\n};\n");
}

/* Values per row that are loaded by blocks of one element. */
static uint64_t masked_rows(const writer *w) {
  uint64_t walkers = 0;
  for (int64_t v = 1; v < w->a.nest->instr_count; v++)
    if (instr_at(w, v)->op == WK__LOOP_masked_load && w->a.place[v] == PLACE_ROW)
      walkers |= bit_of_walker(w, (wk__var)v);
  return walkers;
}

/* Short rows go through the phases side by side: what one waits for, the fold of its lanes or a quotient, takes long.
 */
static void write_rows(writer *w) {
  target t = target_of(w, 0, false);
  uint64_t by_blocks = 0;
  write_values_struct(w);
  write_row_struct(w);
  for (int p = 0; p < w->a.phases; p++) {
    mark_needed(&w->a, p, true);
    find_walkers(w, p);
    by_blocks |= w->read | masked_rows(w);
    if (count_needed(w)) write_body(w, p);
  }
  choose_shares(w);
  write_signature(w);
  write_uniform(w);
  wk__string_printf(w->out,
                    "  struct k%d_row rows[WK__KERNEL_TOGETHER];\n"
                    "  for (int64_t task = begin, m = a->rows, together = 0; task < end; task += together) {\n"
                    "    if ((m += together) < a->rows) {\n",
                    w->number);
  for (int k = 0; k < walker_count(&w->a); k++)
    wk__string_printf(w->out, "      t->at[%d] += a->walkers[%d].stride_m * together;\n", k, k);
  wk__string_printf(w->out,
                    "    } else {\n      a->start(a, t, task);\n      m = t->m0;\n    }\n"
                    "    together = rows_together(a, 0x%llx, m, end - task);\n",
                    (unsigned long long)by_blocks);
  for (int p = 0; p < w->a.phases; p++) {
    wk__string_append(w->out, "    for (int64_t q = 0; q < together; q++) {\n");
    write_kept_pointers(w);
    for (int earlier = 0; earlier < p; earlier++) write_row_values(w, earlier, "v", "rows[q]");
    write_row_steps(w, p, &t);
    write_row_phase(w, p);
    write_row_values(w, p, "rows[q]", "v");
    wk__string_append(w->out, "    }\n");
  }
  wk__string_append(w->out, "  }\n}\n");
}

/* ---- columns ---- */

/* Elements of one lane lie 32 rows apart. So many of them are taken at once: their sum stays in a register, and memory
 * answers for several rows at a time, which matters most where they are written as well. What computes for long gains
 * nothing, and rows that lie in the same sets of the cache get into each other's way. */
enum { DEEP = 4 };

static bool goes_by_lanes(const writer *w) {
  for (int64_t v = 1; v < w->a.nest->instr_count; v++)
    if (w->a.needed[v] && (has_order(w, instr_at(w, v)) || is_chain(instr_at(w, v)))) return false;
  return true;
}

/* Accumulators of a lane, from their strips or back. */
static void write_lanes(writer *w, int phase, bool back) {
  for (int64_t i = 1; i < w->a.nest->instr_count; i++) {
    if (!has_lanes(w, i, phase)) continue;
    char letter = letter_of(operand_dtype(&w->a, instr_at(w, i)));
    long long v = i;
    if (back)
      wk__string_printf(w->out, "  %c_set_strip(v->s%lld + e %% 32 * a->strip, j, lanes.v%lld);\n", letter, v, v);
    else
      wk__string_printf(w->out, "  lanes.v%lld = %c_strip(v->s%lld + e %% 32 * a->strip, j);\n", v, letter, v);
  }
}

/* One vector, `rows` elements of a lane. */
static void write_lane_step(writer *w, int phase) {
  wk__string_printf(w->out,
                    "WK_INLINE void k%d_columns_lane_%d(const struct wk__kernel_args *a, struct wk__kernel_thread *t,\n"
                    "    const struct k%d_columns_values *v, int64_t rows, int64_t e, int64_t j, int64_t n) {\n"
                    "  struct k%d_columns_%d lanes;\n",
                    w->number, phase, w->number, w->number, phase);
  write_lanes(w, phase, false);
  wk__string_printf(w->out,
                    "  for (int64_t k = 0; k < rows; k++)\n"
                    "    k%d_columns_body_%d(a, t, v + k, &lanes, e + 32 * k, j, n, 0);\n",
                    w->number, phase);
  write_lanes(w, phase, true);
  wk__string_append(w->out, "}\n");
}

static void write_strip_pointers(writer *w) {
  for (int64_t v = 1; v < w->a.nest->instr_count; v++) {
    const wk__instr *i = instr_at(w, v);
    if (w->a.place[v] == PLACE_ROW)
      wk__string_printf(w->out, "  v.r%lld = t->strips + %d * a->strip;\n", (long long)v, w->a.number[v]);
    if (wk__loop_is_reduction(i->op) || wk__loop_is_scan(i->op))
      wk__string_printf(w->out, "  v.s%lld = t->strips + %d * a->strip;\n", (long long)v,
                        w->a.row_count + w->a.reduction[v] * STATE_STRIPS);
  }
  wk__string_printf(w->out, "  char *counters = t->strips + %d * a->strip;\n  (void)counters;\n",
                    w->a.row_count + w->a.reduction_count * STATE_STRIPS);
}

static void write_row_steps_by_columns(writer *w, int stage) {
  target t = target_of(w, stage, false);
  bool any = false;
  w->read = w->written = 0;
  for (int64_t v = 1; v < w->a.nest->instr_count; v++)
    if (is_row_step(w, v, stage)) any = true, add_walker(w, (wk__var)v);
  if (!any) return;
  wk__string_append(w->out, "    {\n");
  write_get_blocks(w, "      ", "0", "t->n");
  write_pointers(w, "      ", "v", "0");
  wk__string_append(w->out,
                    "      for (int64_t j = 0; j < t->n; j += S) {\n        const int64_t n = t->n - j;\n        "
                    "(void)n;\n");
  write_row_steps(w, stage, &t);
  wk__string_append(w->out, "      }\n");
  write_put_blocks(w, "      ", "0", "t->n");
  wk__string_append(w->out, "    }\n");
}

static void write_fill(writer *w, const char *indent, int64_t v, int op, int dtype, const char *strips) {
  wk__string_printf(w->out, "%s%c_fill_strips(v.s%lld, %s, ", indent, letter_of(dtype), (long long)v, strips);
  write_identity(w->out, op, dtype);
  wk__string_append(w->out, ", t->n, a->strip);\n");
}

static void write_start_by_columns(writer *w, int phase) {
  for (int64_t v = 1; v < w->a.nest->instr_count; v++) {
    const wk__instr *i = instr_at(w, v);
    if (scans_in(w, v, phase)) write_fill(w, "      ", v, i->op, i->dtype, "2");
    if (reduces_in(w, v, phase) && wk__loop_is_arg(i->op))
      wk__string_printf(w->out, "      l_fill_strips(v.s%lld + a->strip, 1, l_splat(-1), t->n, a->strip);\n",
                        (long long)v);
  }
}

static void write_chunk_by_columns(writer *w, int phase, bool begins) {
  for (int64_t v = 1; v < w->a.nest->instr_count; v++) {
    const wk__instr *i = instr_at(w, v);
    if (begins && scans_in(w, v, phase)) write_next_scan(w, v);
    if (!has_lanes(w, v, phase)) continue;
    int dtype = operand_dtype(&w->a, i);
    char letter = letter_of(dtype);
    const char *op = combiner_of(i->op);
    if (begins) {
      write_fill(w, "        ", v, i->op, dtype, "active");
      continue;
    }
    wk__string_printf(
        w->out,
        "        %c_fold_strip_%s(v.s%lld, active, t->n, a->strip);\n"
        "        %c_push_strip_%s(counters + %d * a->counters * a->strip, chunks, v.s%lld, t->n, a->strip);\n",
        letter, op, (long long)v, letter, op, w->a.reduction[v], (long long)v);
  }
}

static void write_end_by_columns(writer *w, int phase) {
  for (int64_t v = 1; v < w->a.nest->instr_count; v++) {
    const wk__instr *i = instr_at(w, v);
    if (!reduces_in(w, v, phase)) continue;
    if (wk__loop_is_arg(i->op)) {
      wk__string_printf(w->out, "      __builtin_memcpy(v.r%lld, v.s%lld + a->strip, a->strip);\n", (long long)v,
                        (long long)v);
      continue;
    }
    int dtype = operand_dtype(&w->a, i);
    wk__string_printf(w->out, "      %c_finish_strip_%s(v.r%lld, counters + %d * a->counters * a->strip, chunks, ",
                      letter_of(dtype), combiner_of(i->op), (long long)v, w->a.reduction[v]);
    write_identity(w->out, i->op, dtype);
    wk__string_append(w->out, ", t->n, a->strip);\n");
  }
}

/* Blocks of 32 * `deep` elements, in them one lane after the other. What needs copies is taken element by element. */
static void write_column_loops(writer *w, int phase) {
  wk__string_printf(w->out,
                    "        const int64_t deep = 0x%llx & ~a->adjacent ? 1 : %d, count = t->n;\n"
                    "        for (int64_t block = first; block < stop; block += 32 * deep)\n"
                    "        for (int64_t e = block; e < stop && e < block + 32; e++) {\n"
                    "          const int64_t left = (stop - e + 31) / 32, rows = left < deep ? left : deep;\n"
                    "          int64_t j = 0;\n",
                    (unsigned long long)w->read, goes_by_lanes(w) ? DEEP : 1);
  write_get_blocks(w, "          ", "e", "count");
  wk__string_append(w->out, "          for (int64_t k = 0; k < rows; k++) {\n");
  write_pointers(w, "            ", "row[k]", "e + 32 * k");
  wk__string_printf(w->out,
                    "          }\n"
                    "          for (; j + S <= count; j += S) k%d_columns_lane_%d(a, t, row, rows, e, j, S);\n"
                    "          if (j < count) k%d_columns_lane_%d(a, t, row, rows, e, j, count - j);\n",
                    w->number, phase, w->number, phase);
  write_put_blocks(w, "          ", "e", "count");
  wk__string_append(w->out, "        }\n");
}

static void write_column_phase(writer *w, int phase) {
  mark_needed(&w->a, phase, false);
  if (count_needed(w) == 0) return;
  find_walkers(w, phase);
  wk__string_printf(w->out, "    { /* phase %d */\n      int64_t chunks = 0;\n", phase);
  write_start_by_columns(w, phase);
  wk__string_append(w->out,
                    "      for (int64_t first = 0; first < a->length; first += 4096, chunks++) {\n"
                    "        const int64_t stop = first + 4096 < a->length ? first + 4096 : a->length;\n"
                    "        const int64_t active = stop - first < 32 ? stop - first : 32;\n        (void)active;\n");
  write_chunk_by_columns(w, phase, true);
  write_column_loops(w, phase);
  write_chunk_by_columns(w, phase, false);
  wk__string_append(w->out, "      }\n");
  write_end_by_columns(w, phase);
  wk__string_append(w->out, "    }\n");
}

static void write_columns(writer *w) {
  write_values_struct(w);
  for (int p = 0; p < w->a.phases; p++) {
    mark_needed(&w->a, p, false);
    if (!count_needed(w)) continue;
    write_body(w, p);
    write_lane_step(w, p);
  }
  write_signature(w);
  write_uniform(w);
  write_strip_pointers(w);
  wk__string_printf(w->out, "  struct k%d_columns_values row[%d];\n  for (int k = 0; k < %d; k++) row[k] = v;\n",
                    w->number, DEEP, DEEP);
  wk__string_append(w->out, "  for (int64_t task = begin; task < end; task++) {\n    a->start(a, t, task);\n");
  for (int p = 0; p < w->a.phases; p++) {
    write_row_steps_by_columns(w, p);
    write_column_phase(w, p);
  }
  wk__string_append(w->out, "  }\n}\n");
}

/* ---- units ---- */

/* A comment cannot be ended from inside. */
static void write_text_of_comment(wk__string *out, const char *text) {
  for (char before = 0; *text; before = *text++) {
    if (*text == '/' && before == '*') wk__string_append(out, " ");
    wk__string_append_n(out, text, 1);
    if (*text == '\n' && text[1]) wk__string_append(out, " * ");
  }
}

static void write_heading(wk__string *out, const wk__code_source *kernel, int number) {
  wk__string text = {0};
  wk__string_append(out, "\n/* ");
  wk__string_printf(&text, "Kernel %d%s%s.\n", number, kernel->name ? ": " : "", kernel->name ? kernel->name : "");
  if (kernel->provenance) wk__string_printf(&text, "From:\n%s\n", kernel->provenance);
  wk__nest_print(&text, kernel->nest);
  if (text.text) write_text_of_comment(out, text.text);
  out->failed |= text.failed;
  wk__string_append(out, " */\n");
  wk__string_release(&text);
}

#ifdef WICK_TESTS
/* In the last kernel of the text, whose comment is its nest. */
static void make_mistake(wk__string *out, int64_t begin) {
  const char *wanted = wk__mistakes_made.native;
  char *code = out->text ? strstr(out->text + begin, " */\n") : NULL, *nest = out->text ? out->text + begin : NULL;
  char *found = code && *wanted ? strstr(nest, wanted) : NULL,
       *add = found && found < code ? strstr(code, "_add(") : NULL;
  if (add) memcpy(add, "_sub(", 5);
}
#endif

static wk_status write_kernel(wk__string *out, const wk__code_source *kernel, int number, wk__cpu_level level) {
  writer w = {.out = out, .number = number, .level = level};
#ifdef WICK_TESTS
  int64_t begin = out->length;
#endif
  wk_status status = analyse(kernel->nest, &w.a);
  if (status == WK_OK) {
    unsigned modes = kernel->modes ? kernel->modes : WK__KERNEL_ROWS | WK__KERNEL_COLUMNS;
    write_heading(out, kernel, number);
    if (!w.a.has_rows) w.mode = WK__C_POINTWISE, write_pointwise(&w);
    if (w.a.has_rows && modes & WK__KERNEL_ROWS) w.mode = WK__C_ROWS, write_rows(&w);
    if (w.a.has_rows && modes & WK__KERNEL_COLUMNS && !w.a.has_store_add) w.mode = WK__C_COLUMNS, write_columns(&w);
  }
#ifdef WICK_TESTS
  make_mistake(out, begin);
#endif
  release_analysis(&w.a);
  return status;
}

/* Which parts of the head a unit needs. */
typedef struct uses {
  bool math, arg[WK__LANE_COUNT];
  bool combined[WK__LANE_COUNT][4], scanned[WK__LANE_COUNT][2]; /* add, mul, max, min */
} uses;

static int combiner_number(int op) {
  return op == WK__LOOP_reduce_max ? 2 : op == WK__LOOP_reduce_min ? 3 : *combiner_of(op) == 'm';
}

static void find_uses(uses *u, const wk__nest *nest) {
  for (int64_t v = 1; v < nest->instr_count; v++) {
    const wk__instr *i = &nest->instrs[v];
    wk__lane_type lane = wk__lane_of((wk_dtype)nest->instrs[i->operands[0]].dtype);
    u->math |= (i->op >= WK__LOOP_exp && i->op <= WK__LOOP_erf) || i->op == WK__LOOP_pow;
    if (wk__loop_is_arg(i->op))
      u->arg[lane] = true;
    else if (wk__loop_is_reduction(i->op))
      u->combined[lane][combiner_number(i->op)] = true;
    else if (wk__loop_is_scan(i->op))
      u->scanned[lane][combiner_number(i->op)] = true;
  }
}

static void write_reductions(wk__string *out, const uses *u) {
  static const char letters[] = "blfd", types[] = "BLFD";
  static const char *const combiners[] = {"add", "mul", "max", "min"};
  for (int lane = 0; lane < WK__LANE_COUNT; lane++) {
    if (u->arg[lane]) wk__string_printf(out, "ARGS(%c, %c)\n", types[lane], letters[lane]);
    for (int c = 0; c < 4; c++) {
      if (u->combined[lane][c])
        wk__string_printf(out, "REDUCTION(%c, %c, %s)\n", types[lane], letters[lane], combiners[c]);
      if (c < 2 && u->scanned[lane][c])
        wk__string_printf(out, "SCAN(%c, %c, %s)\n", types[lane], letters[lane], combiners[c]);
    }
  }
}

static void write_head(wk__string *out, const uses *u, wk__cpu_level level) {
  wk__string_printf(out,
                    "/* Written by wick for CPU level %s. */\n#define WK_VECTOR_BYTES %d\n#define WK_LEVEL generated\n",
                    wk__cpu_level_name(level), 16 << level);
  /* Where each fused multiply-add is some fifty instructions, a function inline in every copy of a body would take the
   * C compiler several times as long, and gain little: a core does not look so far ahead. */
  if (level == WK__CPU_PORTABLE) wk__string_append(out, "#define WK_MATH static __attribute__((noinline, unused))\n");
  if (u->math) wk__string_append(out, "#define WK_USES_MATH\n");
  const char *const parts[] = {wk__unit_intrinsics, wk__unit_head,    wk__unit_abi,
                               wk__unit_imports,    wk__unit_machine, wk__unit_scalar_math};
  for (size_t k = 0; k < WK_COUNT(parts); k++) wk__string_append(out, parts[k]);
  if (u->math) wk__string_append(out, wk__unit_math_f32), wk__string_append(out, wk__unit_math_f64);
  wk__string_append(out, wk__unit_vector);
  wk__string_append(out, wk__unit_reduce);
  write_reductions(out, u);
}

char *wk__c_write(const wk__code_source *kernels, int count, wk__cpu_level level) {
  wk__string out = {0};
  uses u = {0};
  for (int k = 0; k < count; k++) find_uses(&u, kernels[k].nest);
  write_head(&out, &u, level);
  wk_status status = WK_OK;
  for (int k = 0; k < count && status == WK_OK; k++) status = write_kernel(&out, &kernels[k], k, level);
  if (status == WK_OK) return wk__string_take(&out);
  wk__string_release(&out);
  return NULL;
}

char *wk__c_write_functions(const wk__code_source *kernel, wk__cpu_level level) {
  wk__string out = {0};
  if (write_kernel(&out, kernel, 0, level) == WK_OK) return wk__string_take(&out);
  wk__string_release(&out);
  return NULL;
}
