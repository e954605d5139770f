/* A graph is given to a stream (work.h) and computed there, an operation after the other, on floats (cudnn.h): what
 * lies in memory is read before and written after all of them, element by element, so that what lies between stays.
 * Products whose results are floats in memory are added to what is there, and the workspace is filled with NaNs, as the
 * library may. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cudnn.h"
#include "work.h"

/* The driver's, which the process has loaded. */
int cuStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id, void **graph, const void **nodes,
                              size_t *count);

/* Arguments of the work. The pack need not be there any more when it is done, but the plan, whose kernels it is. */
typedef struct given {
  const descriptor *plan;
  graph graph;
  uint64_t addresses[MOST_TENSORS]; /* 0: it is virtual, or a number */
  float numbers[MOST_TENSORS];
  uint64_t workspace;
} given;

typedef struct running {
  const given *with;
  const graph *g;
  int device;
  float *values[MOST_TENSORS]; /* contiguous */
} running;

static int64_t count_of(const tensor *t) { return t->sizes[0] * t->sizes[1] * t->sizes[2] * t->sizes[3]; }
static size_t width_of(int type) { return type == F16 || type == BF16 ? 2 : 4; }

/* ---- numbers ---- */

static float from_bf16(uint16_t bits) {
  uint32_t word = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &word, 4);
  return value;
}

static uint16_t to_bf16(float value) {
  uint32_t word;
  memcpy(&word, &value, 4);
  if (value != value) return 0x7fc0;
  return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

static float rounded(int type, float value) {
  if (type == F16) return (float)(_Float16)value;
  return type == BF16 ? from_bf16(to_bf16(value)) : value;
}

static float load(int type, const uint8_t *at) {
  uint16_t bits;
  _Float16 half;
  float value;
  if (type == F16) return memcpy(&half, at, 2), (float)half;
  if (type == BF16) return memcpy(&bits, at, 2), from_bf16(bits);
  return memcpy(&value, at, 4), value;
}

static void store(int type, uint8_t *at, float value) {
  uint16_t bits = to_bf16(value);
  _Float16 half = (_Float16)value;
  memcpy(at, type == F16 ? (void *)&half : type == BF16 ? (void *)&bits : &value, width_of(type));
}

/* ---- places ---- */

static void split(const tensor *t, int64_t i, int64_t at[4]) {
  for (int d = 3; d >= 0; d--) at[d] = i % t->sizes[d], i /= t->sizes[d];
}

static int64_t place_in_memory(const tensor *t, int64_t i) {
  int64_t at[4], place = 0;
  split(t, i, at);
  for (int d = 0; d < 4; d++) place += at[d] * t->strides[d];
  return place;
}

/* Of the element of x that belongs to one of y: sizes of 1 stay. */
static int64_t place_of(const tensor *x, const int64_t at[4]) {
  int64_t place = 0;
  for (int d = 0; d < 4; d++) place = place * x->sizes[d] + (x->sizes[d] == 1 ? 0 : at[d]);
  return place;
}

/* ---- memory ---- */

static size_t span_of(const tensor *t) { return (size_t)(place_in_memory(t, count_of(t) - 1) + 1) * width_of(t->type); }

static uint64_t host(const void *bytes) { return (uintptr_t)bytes; }

/* The bytes from the first element to the last; NULL: they cannot be had. */
static uint8_t *fetch(const running *r, int n) {
  size_t bytes = span_of(&r->g->tensors[n]);
  uint8_t *copy = malloc(bytes);
  if (copy && emulator_copy(host(copy), r->with->addresses[n], bytes, r->device)) return copy;
  free(copy);
  return NULL;
}

static bool read_memory(running *r, int n) {
  const tensor *t = &r->g->tensors[n];
  uint8_t *bytes = fetch(r, n);
  for (int64_t i = 0; bytes && i < count_of(t); i++)
    r->values[n][i] = load(t->type, bytes + (size_t)place_in_memory(t, i) * width_of(t->type));
  free(bytes);
  return bytes != NULL;
}

static bool write_memory(running *r, int n) {
  const tensor *t = &r->g->tensors[n];
  uint8_t *bytes = fetch(r, n);
  for (int64_t i = 0; bytes && i < count_of(t); i++)
    store(t->type, bytes + (size_t)place_in_memory(t, i) * width_of(t->type), r->values[n][i]);
  bool done = bytes && emulator_copy(r->with->addresses[n], host(bytes), span_of(t), r->device);
  free(bytes);
  return done;
}

/* ---- operations ---- */

static float point(char letter, float x, float b) {
  switch (letter) {
    case '+':
      return x + b;
    case '-':
      return x - b;
    case '*':
      return x * b;
    case '/':
      return x / b;
    case 'e':
      return expf(x);
    case 'l':
      return logf(x);
    case '>':
      return x >= b;
    default:
      return x;
  }
}

static void run_point(const running *r, const operation *o) {
  const tensor *all = r->g->tensors, *y = &all[o->y];
  int64_t at[4];
  for (int64_t i = 0; i < count_of(y); i++) {
    split(y, i, at);
    float x = r->values[o->x][place_of(&all[o->x], at)], b = o->b < 0 ? 0 : r->values[o->b][place_of(&all[o->b], at)];
    if (o->letter == 'i') x = (float)at[o->dim];
    if (o->letter == '?' && r->values[o->mask][place_of(&all[o->mask], at)] == 0) x = b;
    r->values[o->y][i] = rounded(y->type, point(o->letter, x, b));
  }
}

static void run_fold(const running *r, const operation *o) {
  const tensor *x = &r->g->tensors[o->x];
  const float *row = r->values[o->x];
  for (int64_t i = 0; i < count_of(&r->g->tensors[o->y]); i++, row += x->sizes[3]) {
    double folded = row[0];
    for (int64_t k = 1; k < x->sizes[3]; k++) folded = o->letter == 's' ? folded + row[k] : fmax(folded, row[k]);
    r->values[o->y][i] = (float)folded;
  }
}

static void run_transpose(const running *r, const operation *o) {
  const tensor *x = &r->g->tensors[o->x], *y = &r->g->tensors[o->y];
  int64_t rows = x->sizes[2], columns = x->sizes[3];
  for (int64_t i = 0; i < count_of(x); i++) {
    int64_t matrix = i / (rows * columns), row = i / columns % rows, column = i % columns;
    r->values[o->y][(matrix * columns + column) * rows + row] = rounded(y->type, r->values[o->x][i]);
  }
}

/* A row of the result at a time. */
static void multiply_row(const float *a, const float *b, int64_t inner, int64_t columns, double *sums) {
  for (int64_t j = 0; j < columns; j++) sums[j] = 0;
  for (int64_t k = 0; k < inner; k++)
    for (int64_t j = 0; j < columns; j++) sums[j] += (double)a[k] * b[k * columns + j];
}

static bool run_product(const running *r, const operation *o) {
  const tensor *a = &r->g->tensors[o->x], *b = &r->g->tensors[o->b], *y = &r->g->tensors[o->y];
  int64_t rows = a->sizes[2], inner = a->sizes[3], columns = b->sizes[3], group = a->sizes[1] / b->sizes[1];
  double *sums = malloc((size_t)columns * sizeof *sums);
  bool added = !y->is_virtual && y->type == F32;
  for (int64_t i = 0; sums && i < count_of(y) / columns; i++) {
    int64_t batch = i / rows / a->sizes[1], head = i / rows % a->sizes[1] / group;
    float *to = r->values[o->y] + i * columns;
    multiply_row(r->values[o->x] + i * inner, r->values[o->b] + (batch * b->sizes[1] + head) * inner * columns, inner,
                 columns, sums);
    for (int64_t j = 0; j < columns; j++) to[j] = rounded(y->type, (float)(sums[j] + (added ? to[j] : 0)));
  }
  free(sums);
  return sums != NULL;
}

static bool run_operation(const running *r, const operation *o) {
  if (o->letter == '@') return run_product(r, o);
  if (o->letter == 't')
    run_transpose(r, o);
  else if (o->letter == 's' || o->letter == 'm')
    run_fold(r, o);
  else
    run_point(r, o);
  return true;
}

/* ---- the work ---- */

static bool spoil(uint64_t workspace, int device) {
  uint8_t nans[WORKSPACE];
  memset(nans, 0xff, sizeof nans);
  return emulator_copy(workspace, host(nans), sizeof nans, device);
}

static bool compute(running *r) {
  const graph *g = r->g;
  bool done = spoil(r->with->workspace, r->device);
  for (int n = 0; done && n < g->tensor_count; n++) {
    const tensor *t = &g->tensors[n];
    done = (r->values[n] = malloc((size_t)count_of(t) * sizeof(float))) != NULL;
    if (done && t->by_value) r->values[n][0] = r->with->numbers[n];
    if (done && !t->by_value && !t->is_virtual) done = read_memory(r, n);
  }
  for (int i = 0; done && i < g->operation_count; i++) done = run_operation(r, &g->operations[i]);
  for (int n = 0; done && n < g->tensor_count; n++)
    if (!g->tensors[n].is_virtual && g->tensors[n].is_written) done = write_memory(r, n);
  for (int n = 0; n < g->tensor_count; n++) free(r->values[n]);
  return done;
}

static void say(const graph *g) {
  int first = 0;
  while (g->operations[first].letter != '@') first++;
  const tensor *q = &g->tensors[g->operations[first].x], *k = &g->tensors[g->operations[first].b];
  fprintf(stderr, "cudnn: %s %s %dx%d/%dx%dx%dx%d%s\n", g->gradients ? "gradients" : "attention",
          q->type == F16 ? "f16" : "bf16", (int)q->sizes[0], (int)q->sizes[1], (int)k->sizes[1], (int)q->sizes[2],
          (int)k->sizes[3], (int)q->sizes[3], g->causal ? " causal" : "");
}

static bool work(const void *arguments, int device) {
  const given *with = arguments;
  running r = {.with = with, .g = &with->graph, .device = device};
  if (!lives(with->plan)) {
    (void)refuse(BAD_PARAM, "a graph launches kernels of a plan that is no more");
    return false;
  }
  say(r.g);
  return compute(&r);
}

/* ---- what it is given ---- */

static bool find_pointers(given *to, const descriptor *pack) {
  int64_t count;
  const int64_t *ids = values_of(pack, 1000, &count);
  void *const *pointers = values_of(pack, 1001, NULL);
  for (int n = 0; n < to->graph.tensor_count; n++) {
    const tensor *t = &to->graph.tensors[n];
    const void *pointer = NULL;
    for (int64_t i = 0; i < count; i++)
      if (ids[i] == t->id) pointer = pointers[i];
    if (t->is_virtual != !pointer) return false;
    if (pointer && t->by_value)
      to->numbers[n] = *(const float *)pointer;
    else
      to->addresses[n] = host(pointer);
    if (to->addresses[n] % (uint64_t)t->alignment) return false;
  }
  return true;
}

static bool overlap(uint64_t a, size_t a_bytes, uint64_t b, size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

/* The workspace lies apart from all else. Results may lie between each other's rows, so of them only the beginning is
 * told from the others'. */
static bool lie_apart(const given *with) {
  const graph *g = &with->graph;
  for (int n = 0; n < g->tensor_count; n++) {
    if (!with->addresses[n]) continue;
    if (overlap(with->workspace, WORKSPACE, with->addresses[n], span_of(&g->tensors[n]))) return false;
    for (int m = 0; m < g->tensor_count; m++)
      if (m != n && g->tensors[n].is_written && with->addresses[m] == with->addresses[n]) return false;
  }
  return with->workspace != 0;
}

/* Whether it is captured where that is not wanted. */
static bool must_not_be(void *stream) {
  const char *captured = getenv("EMULATED_CUDNN_CAPTURED");
  int status = 0;
  if (!captured || *captured != '0') return false;
  return cuStreamGetCaptureInfo_v2(stream, &status, NULL, NULL, NULL, NULL) || status;
}

int graph_run(const descriptor *plan, void *stream, const descriptor *pack) {
  given with = {.plan = plan, .graph = *plan->graph, .workspace = host(*(void *const *)values_of(pack, 1003, NULL))};
  if (!find_pointers(&with, pack)) return refuse(BAD_PARAM, "a tensor has no memory, or not where it should begin");
  if (!lie_apart(&with)) return refuse(BAD_PARAM, "memories lie upon each other");
  if (must_not_be(stream)) return NOT_SUPPORTED;
  return emulator_give(stream, work, &with, sizeof with) ? refuse(NO_MEMORY, "the stream does not take it") : 0;
}
