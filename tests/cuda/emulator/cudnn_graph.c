/* Graphs of operations out of finished descriptors, and which of them the library has kernels for (cudnn.h): attention
 * and its gradients, whose operations come in one order, written here with a letter for each.
 *
 * A graph is made so that cudnn_run.c can compute its operations one after the other: what is read was written before,
 * or is memory or a number that the caller gives. */
#include <string.h>

#include "cudnn.h"

static const struct {
  int mode;
  char letter;
  int operands; /* beside a mask */
} modes[] = {{ADD, '+', 2}, {MUL, '*', 2},      {DIV, '/', 2}, {SUB, '-', 2},   {EXP, 'e', 1},
             {LOG, 'l', 1}, {IDENTITY, '=', 1}, {GE, '>', 2},  {INDEX, 'i', 1}, {SELECT, '?', 2}};
enum { MODES = sizeof modes / sizeof *modes };

static const char *const forward[] = {"@*m-esl+/@", "@*ii>?m-esl+/@"};
static const char *const gradients[] = {"*s*@*-et@@-**t@t@=", "*s*@*-ii>?et@@-**t@t@="};

static int mode_number(int mode) {
  for (int i = 0; i < MODES; i++)
    if (modes[i].mode == mode) return i;
  return -1;
}

/* ---- tensors ---- */

static tensor tensor_of(const descriptor *d) {
  tensor t = {.type = enum_of(d, 901),
              .id = int_of(d, 906, -1),
              .alignment = int_of(d, 900, 0),
              .is_virtual = bool_of(d, 907),
              .by_value = bool_of(d, 908)};
  memcpy(t.sizes, values_of(d, 902, NULL), sizeof t.sizes);
  memcpy(t.strides, values_of(d, 903, NULL), sizeof t.strides);
  return t;
}

static tensor operand(const descriptor *d, int attribute) { return tensor_of(descriptor_of(d, attribute)); }

static bool is_type(int type) { return type == F32 || type == F16 || type == I32 || type == BF16 || type == BOOL; }

int check_tensor(const descriptor *d) {
  tensor t = tensor_of(d);
  if (!is_type(t.type) || t.alignment < 1 || (t.alignment & (t.alignment - 1)) || (t.is_virtual && t.by_value))
    return refuse(BAD_PARAM, "no tensor");
  for (int i = 0; i < 4; i++)
    if (t.sizes[i] < 1 || t.strides[i] < 0) return BAD_PARAM; /* sizes may be the caller's: without a word */
  return 0;
}

/* ---- operations ---- */

static bool has_sizes(const tensor *t, int64_t a, int64_t b, int64_t c, int64_t d) {
  return t->sizes[0] == a && t->sizes[1] == b && t->sizes[2] == c && t->sizes[3] == d;
}

/* Of two operands: 1 or the other's. */
static bool meet(const tensor *x, const tensor *b, const tensor *y) {
  for (int i = 0; i < 4; i++) {
    int64_t most = x->sizes[i] > b->sizes[i] ? x->sizes[i] : b->sizes[i];
    if ((x->sizes[i] != 1 && x->sizes[i] != most) || (b->sizes[i] != 1 && b->sizes[i] != most)) return false;
    if (y->sizes[i] != most) return false;
  }
  return true;
}

static int check_point(const descriptor *d) {
  const descriptor *kind = descriptor_of(d, 750);
  int mode = enum_of(kind, 0), number = mode_number(mode), type = enum_of(kind, 1);
  bool two = descriptor_of(d, 752) != NULL, masked = descriptor_of(d, 758) != NULL;
  if (number < 0 || two != (modes[number].operands == 2) || masked != (mode == SELECT))
    return refuse(BAD_PARAM, "operands that its mode has not");
  tensor x = operand(d, 751), y = operand(d, 753), b = two ? operand(d, 752) : x;
  if (!meet(&x, &b, &y)) return refuse(BAD_PARAM, "sizes of a pointwise operation");
  if (masked) {
    tensor mask = operand(d, 758);
    if (mask.type != BOOL || !meet(&mask, &y, &y)) return refuse(BAD_PARAM, "no mask");
  }
  int64_t dim = int_of(kind, 9, -1);
  if ((mode == INDEX) != (dim >= 0) || dim > 3) return refuse(BAD_PARAM, "a dim, or none where there is an index");
  int wanted = mode == GE ? BOOL : F32;
  bool typed = mode == GE ? y.type == BOOL : mode == INDEX ? y.type == I32 : y.type != BOOL && y.type != I32;
  return type == wanted && typed ? 0 : refuse(BAD_PARAM, "types of a pointwise operation");
}

static int check_product(const descriptor *d) {
  tensor a = operand(d, 1520), b = operand(d, 1521), c = operand(d, 1522);
  if (enum_of(descriptor_of(d, 1523), 1500) != F32) return NOT_SUPPORTED;
  bool fit = b.sizes[0] == a.sizes[0] && a.sizes[1] % b.sizes[1] == 0 && a.sizes[3] == b.sizes[2] &&
             has_sizes(&c, a.sizes[0], a.sizes[1], a.sizes[2], b.sizes[3]);
  return fit ? 0 : refuse(BAD_PARAM, "sizes of a product");
}

static int check_fold(const descriptor *d) {
  tensor x = operand(d, 1610), y = operand(d, 1611);
  int how = enum_of(descriptor_of(d, 1612), 1600);
  if (enum_of(descriptor_of(d, 1612), 1601) != F32 || (how != SUM && how != LARGEST) || y.type != F32)
    return NOT_SUPPORTED;
  return has_sizes(&y, x.sizes[0], x.sizes[1], x.sizes[2], 1) ? 0 : refuse(BAD_PARAM, "sizes of a reduction");
}

/* The last two dims change places by their strides alone. */
static int check_reshape(const descriptor *d) {
  tensor x = operand(d, 2200), y = operand(d, 2201);
  bool swapped = has_sizes(&y, x.sizes[0], x.sizes[1], x.sizes[3], x.sizes[2]) && y.strides[2] == 1 &&
                 y.strides[3] == y.sizes[2] && y.is_virtual;
  return swapped ? 0 : refuse(BAD_PARAM, "a reshape that is no transpose");
}

int check_operation(const descriptor *d) {
  switch (d->kind) {
    case POINT_OPERATION:
      return check_point(d);
    case PRODUCT_OPERATION:
      return check_product(d);
    case FOLD_OPERATION:
      return check_fold(d);
    default:
      return check_reshape(d);
  }
}

/* ---- graphs ---- */

typedef struct making {
  graph *g;
  const descriptor *seen[MOST_TENSORS]; /* what each tensor was made of */
  bool read[MOST_TENSORS];
  const char *wrong;
} making;

static int number_of(making *m, const descriptor *d) {
  graph *g = m->g;
  int n = 0;
  if (!d) return -1;
  while (n < g->tensor_count && m->seen[n] != d) n++;
  if (n < g->tensor_count) return n;
  if (n == MOST_TENSORS) {
    m->wrong = "too many tensors";
    return 0;
  }
  m->seen[n] = d;
  g->tensors[n] = tensor_of(d);
  for (int i = 0; i < n; i++)
    if (g->tensors[i].id == g->tensors[n].id) m->wrong = "two tensors of one id";
  g->tensor_count++;
  return n;
}

static int read_by(making *m, const descriptor *d, int attribute) {
  int n = number_of(m, descriptor_of(d, attribute));
  if (n < 0) return n;
  if (m->g->tensors[n].is_virtual && !m->g->tensors[n].is_written) m->wrong = "a result is used before it is made";
  m->read[n] = true;
  return n;
}

static int written_by(making *m, const descriptor *d, int attribute) {
  int n = number_of(m, descriptor_of(d, attribute));
  tensor *t = &m->g->tensors[n];
  if (t->is_written || t->by_value || m->read[n]) m->wrong = "a result that is made twice, or too late";
  for (int i = 0; i < 4; i++)
    if (t->sizes[i] > 1 && t->strides[i] == 0) m->wrong = "a result whose elements lie upon each other";
  t->is_written = true;
  return n;
}

static operation operation_of(making *m, const descriptor *d) {
  switch (d->kind) {
    case POINT_OPERATION: {
      const descriptor *kind = descriptor_of(d, 750);
      char letter = modes[mode_number(enum_of(kind, 0))].letter;
      int x = read_by(m, d, 751), b = read_by(m, d, 752), mask = read_by(m, d, 758);
      return (operation){letter, (int)int_of(kind, 9, 0), x, b, mask, written_by(m, d, 753)};
    }
    case PRODUCT_OPERATION: {
      int a = read_by(m, d, 1520), b = read_by(m, d, 1521);
      return (operation){'@', 0, a, b, -1, written_by(m, d, 1522)};
    }
    case FOLD_OPERATION: {
      char letter = enum_of(descriptor_of(d, 1612), 1600) == SUM ? 's' : 'm';
      int x = read_by(m, d, 1610);
      return (operation){letter, 3, x, -1, -1, written_by(m, d, 1611)};
    }
    default: {
      int x = read_by(m, d, 2200);
      return (operation){'t', 0, x, -1, -1, written_by(m, d, 2201)};
    }
  }
}

int graph_make(const descriptor *d, graph *out) {
  int64_t count;
  descriptor *const *operations = values_of(d, 801, &count);
  making m = {.g = out};
  if (count > MOST_OPERATIONS) return NOT_SUPPORTED;
  for (int64_t i = 0; i < count && !m.wrong; i++)
    out->operations[out->operation_count++] = operation_of(&m, operations[i]);
  return m.wrong ? refuse(BAD_PARAM, m.wrong) : 0;
}

/* ---- attention ---- */

static bool is_one_of(const char *letters, const char *const *two, bool *second) {
  *second = strcmp(letters, two[1]) == 0;
  return *second || strcmp(letters, two[0]) == 0;
}

/* Heads of whole pieces up to 128; gradients where each head has its own keys. */
int graph_takes(graph *g) {
  enum { MOST_SIZE = 128 };
  char letters[MOST_OPERATIONS + 1] = {0};
  for (int i = 0; i < g->operation_count; i++) letters[i] = g->operations[i].letter;
  g->gradients = is_one_of(letters, gradients, &g->causal);
  if (!g->gradients && !is_one_of(letters, forward, &g->causal)) return refuse(NOT_SUPPORTED, "no attention");
  const operation *first = strchr(letters, '@') - letters + g->operations;
  const tensor *q = &g->tensors[first->x], *k = &g->tensors[first->b];
  if ((q->type != F16 && q->type != BF16) || k->type != q->type) return refuse(NOT_SUPPORTED, "types of attention");
  if (q->sizes[3] % 8 || q->sizes[3] > MOST_SIZE) return NOT_SUPPORTED;
  return g->gradients && q->sizes[1] != k->sizes[1] ? NOT_SUPPORTED : 0;
}
