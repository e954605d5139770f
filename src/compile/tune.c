/* mode="max-autotune": a graph is compiled in several ways, each is run, and the fastest stays.
 *
 * In: a graph without a tape. Out: a compiled graph whose native code is there. First its products are timed each by
 * itself (cpu/gemm/gemm_ways.h). Then one choice after the other is tried (choices.h), the others as they are best so
 * far; a way has to be faster by MARGIN to be taken, because times are noisy. The runs are on inputs made up from the
 * descriptions, on copies of the generators' states, so that the program notices nothing but the time. What was found
 * is kept beside the native code, by the graph, the sizes, the CPU level and the number of threads, so that the next
 * process compiles once.
 *
 * Invariant: all ways give the same bits, but for products and convolutions that sum in another order (a library's,
 * Winograd's), which are tried where they are asked for and some product is faster with them. Tests:
 * tests/ops/test_tune.py. */
#include "compile/tune.h"

#include <math.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "compile/fuse/fuse.h"
#include "cpu/gemm/gemm_ways.h"
#include "cpu/gemm/onednn.h"
#include "cpu/native/native.h"
#include "random/generator.h"

enum {
  MOST_NUMBERS = 64,   /* number inputs of a graph */
  MOST_PRODUCTS = 64,  /* of different sizes; the others are computed as usual */
  FEWEST_RUNS = 3,     /* of a way, after one that warms up */
  PATTERN = 4096,      /* elements that are written one by one */
  MOST_BYTES = 1 << 30 /* of made-up inputs; a graph with more is compiled as usual */
};
#define TURN_SECONDS 0.05
#define QUIET_SECONDS 1.0
#define MARGIN 0.98

static const int64_t product_bytes[] = {WK__USUAL_PRODUCT_BYTES, 0, 1 << 20, INT64_MAX};
static const int64_t operand_bytes[] = {WK__USUAL_OPERAND_BYTES, 0, 1 << 20, INT64_MAX};
static const int64_t drawn_values[] = {WK__USUAL_DRAWN_VALUES, 1 << 18, INT64_MAX};
static const int64_t fewest_products[] = {WK__USUAL_FEWEST_PRODUCTS, 1, INT64_MAX};
static const int64_t other_sums[] = {0, 1};
static const int64_t channels_last[] = {WK__USUAL_CHANNELS_LAST, WK__LAST_NEVER, WK__LAST_WITH_OTHER_SUMS};
static const int64_t most_walkers[] = {WK__USUAL_MOST_WALKERS, 24, 12};

typedef struct knob {
  size_t offset; /* in wk__choices */
  const int64_t *values;
  int count; /* the first one is the usual */
} knob;
#define KNOB(name) \
  { offsetof(wk__choices, name), name, (int)WK_COUNT(name) }
static const knob knobs[] = {KNOB(most_walkers),    KNOB(product_bytes), KNOB(operand_bytes), KNOB(drawn_values),
                             KNOB(fewest_products), KNOB(other_sums),    KNOB(channels_last)};

static int64_t *value_of(wk__choices *c, const knob *k) { return (int64_t *)((char *)c + k->offset); }

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ================================================= made-up inputs =============================================== */

typedef struct trial {
  wk__graph *graph;
  wk_tensor **inputs; /* (input_count) owned */
  double numbers[MOST_NUMBERS];
  double begin; /* of the tuning */
  int ways, way;
  bool told, other_sums;
  bool elsewhere; /* on another device, which times the ways of its products by itself */
} trial;

static wk_status hinted_spec(const wk_tensor *shape, wk__spec *out) {
  wk__spec_of(out, shape);
  for (int d = 0; d < shape->ndim; d++) {
    out->sizes[d] = wk_int_of(wk__hint(shape->sizes[d]));
    out->strides[d] = wk_int_of(wk__hint(shape->strides[d]));
  }
  out->offset = wk_int_of(0);
  return WK_OK;
}

/* Floats between zero and one, integers 0, which are indices into anything that has elements. */
static void fill(wk_tensor *t) {
  int64_t item = (int64_t)wk__itemsize(t), count = t->storage->bytes / item, written = wk__min(count, PATTERN);
  char *data = wk__host_data(t);
  bool floating = wk_dtype_is_floating((wk_dtype)t->dtype);
  for (int64_t k = 0; k < written; k++)
    wk__element_set(data + k * item, (wk_dtype)t->dtype,
                    floating ? (wk__scalar){WK__FLOAT_KIND, .d = (double)(k % 61 + 1) / 64}
                             : (wk__scalar){WK__INTEGER_KIND, .i = 0});
  for (; written < count; written *= 2)
    memcpy(data + written * item, data, (size_t)(wk__min(written, count - written) * item));
}

static wk_status make_inputs(trial *t) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < t->graph->input_count; i++) {
    wk__spec spec;
    t->elsewhere = t->graph->inputs[i]->value->device.type != WK_CPU;
    if (t->elsewhere) return wk_fail(WK_UNSUPPORTED, "only CPU graphs are tuned");
    WK_TRY(hinted_spec(t->graph->inputs[i]->value, &spec));
    if (!(t->inputs[i] = wk__tensor_from_spec(&spec))) return wk_error_category();
    bytes += t->inputs[i]->storage->bytes;
    if (bytes > MOST_BYTES) return wk_fail(WK_UNSUPPORTED, "a graph with so large inputs is not tuned");
    fill(t->inputs[i]);
  }
  return WK_OK;
}

/* Number inputs are what they were when traced. Generators of the program's own are not drawn from. */
static wk_status find_numbers(trial *t) {
  for (const wk__graph_node *n = t->graph->first; n; n = n->next)
    for (int i = 0; n->kind == WK__GRAPH_CALL && i < n->op->schema.parameter_count; i++) {
      const wk__graph_arg *a = &n->args[i];
      if (a->tag == WK_VALUE_GENERATOR && a->generator) return wk_fail(WK_UNSUPPORTED, "it draws from a generator");
      if (a->tag != WK_VALUE_INPUT) continue;
      if (a->count >= MOST_NUMBERS) return wk_fail(WK_UNSUPPORTED, "it has too many numbers");
      t->numbers[a->count] = a->number;
    }
  return WK_OK;
}

/* ===================================================== timing =================================================== */

static wk_status run_once(const trial *t, const wk__compiled_graph *c, double *out_seconds) {
  int64_t count = t->graph->output_count;
  wk_tensor **outputs = wk__alloc_zeroed((size_t)(count + 1) * sizeof(wk_tensor *));
  if (!outputs) return WK_OUT_OF_MEMORY;
  double begin = now();
  wk_status status = wk__compiled_graph_run(c, t->inputs, t->numbers, outputs);
  *out_seconds = now() - begin;
  for (int64_t i = 0; i < count; i++) wk__release(outputs[i]);
  wk__free(outputs);
  return status;
}

/* The shortest of some runs. */
static wk_status time_way(const trial *t, const wk__compiled_graph *c, double *out_seconds) {
  double end = now() + TURN_SECONDS, seconds;
  WK_TRY(run_once(t, c, &seconds));
  *out_seconds = seconds;
  for (int runs = 0; runs < FEWEST_RUNS || now() < end; runs++) {
    WK_TRY(run_once(t, c, &seconds));
    *out_seconds = fmin(*out_seconds, seconds);
  }
  return WK_OK;
}

static void show_progress(trial *t) {
  t->way++;
  if (now() - t->begin < QUIET_SECONDS) return;
  if (t->told) fputc(isatty(STDERR_FILENO) ? '\r' : '\n', stderr);
  fprintf(stderr, "[wick] max-autotune: way %d of %d", t->way, t->ways);
  t->told = true;
}

/* ==================================================== choosing ================================================== */

/* Replaces *best by the graph compiled with `choices` where that is faster. */
static wk_status try_way(trial *t, const wk__choices *choices, wk__compiled_graph **best, double *best_seconds,
                         bool *out_better) {
  wk__compiled_graph *c = NULL;
  double seconds = 0, again = 0;
  show_progress(t);
  *out_better = false;
  WK_TRY(wk__compile_with(t->graph, choices, &c));
  wk_status status = time_way(t, c, &seconds);
  /* the machine may have been disturbed when the best one was timed */
  if (status == WK_OK && *best && seconds < MARGIN * *best_seconds) {
    status = time_way(t, *best, &again);
    *best_seconds = fmin(*best_seconds, again);
  }
  if (status == WK_OK && (!*best || seconds < MARGIN * *best_seconds)) {
    wk__compiled_graph *before = *best;
    *best = c;
    c = before;
    *best_seconds = seconds;
    *out_better = true;
  }
  wk__compiled_graph_release(c);
  return status;
}

/* What is found out by one, and kept for other processes. */
typedef struct tuned {
  wk__choices choices;
  int64_t product_count;
  wk__gemm_known products[MOST_PRODUCTS];
} tuned;

/* The products' own ways; the graph is timed with them. */
static wk_status time_products(const trial *t, const wk__compiled_graph *c, tuned *out) {
  double seconds;
  bool outer = wk__gemm_allow_other_sums(t->other_sums);
  wk__gemm_timing timing = {.list = out->products, .capacity = MOST_PRODUCTS};
  wk__gemm_timing_begin(&timing);
  wk_status status = run_once(t, c, &seconds);
  wk__gemm_timing_end();
  out->product_count = timing.count;
  wk__gemm_allow_other_sums(outer);
  return status;
}

static bool makes_sense(const trial *t, const knob *k, int value, const tuned *found) {
  if (k->values == channels_last) return t->other_sums || k->values[value] != WK__LAST_WITH_OTHER_SUMS;
  if (k->values != other_sums) return true;
  for (int64_t i = 0; i < found->product_count; i++)
    if (wk__gemm_sums_otherwise(found->products[i].way)) return true;
  return false;
}

static wk_status try_all(trial *t, tuned *found, wk__compiled_graph **best) {
  wk__choices *choices = &found->choices;
  double seconds = 0;
  bool better;
  for (size_t k = 0; k < WK_COUNT(knobs); k++) t->ways += knobs[k].count - 1;
  t->ways++;
  WK_TRY(try_way(t, choices, best, &seconds, &better));
  WK_TRY(time_products(t, *best, found));
  WK_TRY(time_way(t, *best, &seconds));
  for (size_t k = 0; k < WK_COUNT(knobs); k++)
    for (int i = 1; i < knobs[k].count; i++) {
      if (!makes_sense(t, &knobs[k], i, found)) continue;
      wk__choices other = *choices;
      *value_of(&other, &knobs[k]) = knobs[k].values[i];
      WK_TRY(try_way(t, &other, best, &seconds, &better));
      if (better) *choices = other;
    }
  return WK_OK;
}

/* ================================================ what is remembered ============================================ */

typedef struct what {
  char title[16]; /* of the form of what is remembered */
  uint64_t graph, sizes;
  int64_t level, threads, other_sums; /* 0: not tried; 1; 2: and oneDNN's */
} what;

static what key_of(const wk__graph *graph, bool other_sums) {
  what key = {"wick tuned 6",      wk__graph_hash(graph), 0,
              wk__cpu_level_get(), wk_get_num_threads(),  other_sums + (other_sums && wk__onednn_is_there())};
  for (int64_t i = 0; i < graph->input_count; i++)
    for (int d = 0; d < graph->inputs[i]->value->ndim; d++)
      key.sizes = wk__hash_mix(key.sizes, (uint64_t)wk__hint(graph->inputs[i]->value->sizes[d]));
  return key;
}

static wk_status tune(trial *t, const what *key, tuned *found, wk__compiled_graph **out) {
  uint8_t state[WK__GENERATOR_STATE_BYTES];
  WK_TRY(make_inputs(t));
  WK_TRY(find_numbers(t));
  wk__generator_get_state(wk__generator_default(), state);
  wk_status status = try_all(t, found, out);
  wk_status restored = wk__generator_set_state(wk__generator_default(), state, sizeof state);
  if (t->told) fputc('\n', stderr);
  if (status == WK_OK) wk__native_remember(key, sizeof *key, found, sizeof *found);
  return status ? status : restored;
}

static wk_status compile_as_tuned(wk__graph *graph, const tuned *found, wk__compiled_graph **out_compiled) {
  for (int64_t i = 0; i < found->product_count && i < MOST_PRODUCTS; i++) wk__gemm_know(&found->products[i]);
  return wk__compile_with(graph, &found->choices, out_compiled);
}

static wk_status tune_or_recall(wk__graph *graph, bool other_sums, wk__compiled_graph **out_compiled) {
  tuned found = {.choices = wk__usual_choices};
  what key = key_of(graph, other_sums);
  if (wk__native_recall(&key, sizeof key, &found, sizeof found)) return compile_as_tuned(graph, &found, out_compiled);
  trial t = {.graph = graph, .begin = now(), .other_sums = other_sums};
  t.inputs = wk__alloc_zeroed((size_t)(graph->input_count + 1) * sizeof(wk_tensor *));
  wk_status status = t.inputs ? tune(&t, &key, &found, out_compiled) : WK_OUT_OF_MEMORY;
  for (int64_t i = 0; t.inputs && i < graph->input_count; i++) wk__release(t.inputs[i]);
  wk__free(t.inputs);
  if (status == WK_OK) return WK_OK;
  wk__compiled_graph_release(*out_compiled);
  *out_compiled = NULL;
  if (status == WK_OUT_OF_MEMORY) return status;
  wk_error_clear(); /* it cannot be run on what was made up: compiled as usual */
  found.choices = wk__usual_choices;
  found.choices.other_sums = t.elsewhere && other_sums;
  return wk__compile_with(graph, &found.choices, out_compiled);
}

wk_status wk__tune(wk__graph *graph, bool other_sums, wk__compiled_graph **out_compiled) {
  wk__shape_env *outer = wk__shape_env_set_current(graph->env); /* hints are read there */
  *out_compiled = NULL;
  wk_status status = tune_or_recall(graph, other_sums, out_compiled);
  wk__shape_env_set_current(outer);
  return status;
}
