/* Which pointwise groups are run with a matrix product or attention, on parts of its result or of an operand, and which
 * with a random draw. product_run.c runs them.
 *
 * Epilogue: a group that goes over a product's result element by element is run on each part of it that the product
 * finishes, while that part is in the cache; the result has no memory of its own then: it lies where the group puts one
 * of its own results. Measured on two cores with 32 MiB of last cache: worth 5 to 30 % where the result leaves that
 * cache; a little slower than two kernels where it stays there; always slower where the result is wanted too. A GPU's
 * part is a tile in the registers of its block: it is stored as well where it is wanted.
 *
 * A convolution's result is such a matrix for each image, (channels, places), or with channels last one of (places,
 * channels); it has epilogues only. Measured: of a ResNet-18's images by 32 0.97 of the time, by 4, whose results stay
 * in the last cache, nothing either way.
 *
 * Prologue: a group whose one result is an operand of a product and of nothing else is run on each part of it that the
 * product is about to multiply; the operand has no memory at all. Measured: an operand that leaves the last cache 0.93
 * to 1.0 of the time, a bf16 weight of 8 rows 0.66; slower where few columns use what was made.
 *
 * Draw: a group that goes over random values in the order in which they are drawn is run on each piece that a thread
 * draws. Drawing is arithmetic alone, and what the group does waits for memory: so one thread has the memory's
 * bandwidth while another draws. Measured on two cores: worth 30 % with both, nothing with one. The values are kept
 * only where they have other readers.
 *
 * In: a group and a product or draw beside it. Out: whether they go together. Invariant: the kernel's loops are the
 * matrix's rows and columns, or its columns alone where it has one row, so that a part of it is a launch with other
 * sizes. Tests: tests/c/test_compile.c, tests/ops/test_compile.py. */
#include "compile/fuse/kernel.h"

static bool same_place(const wk__place *a, const wk__place *b) {
  for (int l = 0; l < WK__REGION_LOOPS; l++)
    if (!wk_int_same(a->stride[l], b->stride[l])) return false;
  return wk__place_is_plain(a) && wk__place_is_plain(b) && wk_int_same(a->offset, b->offset);
}

/* The one way in which the group reads the memory; NULL: there are several. */
static const wk__place *only_place(const wk__group *g, wk__memory memory) {
  const wk__place *found = NULL;
  for (int r = 0; r < g->region_count; r++)
    for (int i = 0; i < g->regions[r]->place_count; i++) {
      const wk__place *p = &g->regions[r]->places[i];
      if (p->memory != memory) continue;
      if (!wk__place_is_plain(p) || (found && !same_place(found, p))) return NULL;
      found = p;
    }
  return found;
}

/* The group's loops go over the memory from its first element to its last. */
static bool goes_over(const wk__group *g, const wk__place *p, const wk_tensor *t) {
  wk_int step = wk_int_of(1);
  for (int l = g->loop_count - 1; l >= 0; l--) {
    if (!wk_int_same(p->stride[l], step)) return false;
    step = wk_int_mul(step, g->loops[l].size);
  }
  return wk_int_same(p->offset, wk_int_of(0)) && wk_int_same(step, t->numel);
}

/* The first of the inner loops that together are so many columns; -1: there are none. */
static int loop_of_columns(const wk__group *g, wk_int columns) {
  wk_int step = wk_int_of(1);
  for (int l = g->loop_count - 1; l >= 0; l--) {
    step = wk_int_mul(step, g->loops[l].size);
    if (wk_int_same(step, columns)) return l;
  }
  return -1;
}

/* Every access crosses the loops [first, end) evenly, so that they are one. */
static bool are_one_loop(const wk__group *g, int first, int end) {
  for (int r = 0; r < g->region_count; r++)
    for (int i = 0; i < g->regions[r]->place_count; i++) {
      const wk__place *p = &g->regions[r]->places[i];
      if (!p->memory || !wk__place_is_plain(p)) return false; /* an index, or a gather */
      for (int l = first; l + 1 < end; l++)
        if (!wk_int_same(p->stride[l], wk_int_mul(p->stride[l + 1], g->loops[l + 1].size))) return false;
    }
  return true;
}

/* The loops are three at most: images, rows and columns. */
static bool are_parts(const wk__group *g, int rows, int columns) {
  return are_one_loop(g, 0, rows) && are_one_loop(g, rows, columns) && are_one_loop(g, columns, g->loop_count);
}

/* The loops are two, or one. */
static bool are_rows_and_columns(const wk__group *g, int columns) {
  return are_one_loop(g, 0, columns) && are_one_loop(g, columns, g->loop_count);
}

/* A result of the group that the product's can lie in until it is overwritten, element by element. */
static wk__memory find_home(const wk__group *g, const wk__place *p, const wk_tensor *matrix,
                            wk__is_wanted_fn *is_wanted, void *context) {
  for (int r = 0; r < g->region_count; r++) {
    const wk__region *region = g->regions[r];
    for (int v = 1; v < region->instr_count; v++) {
      if (region->instrs[v].op != WK__LOOP_store) continue;
      const wk__place *to = &region->places[region->instrs[v].extra];
      const wk_tensor *t = to->memory->value;
      bool fits = t->dtype == matrix->dtype && wk_int_same(t->numel, matrix->numel) && same_place(to, p);
      if (fits && is_wanted(context, to->memory)) return to->memory;
    }
  }
  return NULL;
}

/* Another bias would be copied to the result first, by the result's own dims. */
static bool has_plain_bias(const wk__graph_node *linear) {
  const wk__graph_arg *bias = &linear->args[2];
  return bias->tag != WK_VALUE_TENSOR || (bias->node->value->ndim == 1 && wk__is_contiguous(bias->node->value));
}

static int64_t bytes_of(const wk_tensor *t) { return wk__hint(t->numel) * (int64_t)wk__itemsize(t); }

static bool are_known(wk__integer_span integers) {
  for (uint32_t i = 0; i < integers.count; i++)
    if (!wk_int_is_known(integers.items[i])) return false;
  return integers.count > 0;
}

/* Tensors, and numbers that are the same in every run. */
static bool has_plain_args(const wk__graph_node *n) {
  for (int i = 0; i < n->op->schema.parameter_count; i++) {
    const wk__graph_arg *a = &n->args[i];
    bool constant = a->tag == WK_VALUE_BOOL || a->tag == WK_VALUE_NONE || a->tag == WK_VALUE_DOUBLE ||
                    are_known(wk__graph_arg_integers(a));
    if (!constant && a->tag != WK_VALUE_TENSOR) return false;
  }
  return n->op->schema.parameter_count <= WK__PRODUCT_ARGS && (n->op != WK__OP(linear) || has_plain_bias(n));
}

wk__memory wk__product_result(const wk__graph_node *n) { return wk__is_attention(n->op) ? n->item_nodes[0] : n; }

/* Contiguous; transposed: with its last two dims the other way round, or attention's heads and rows. */
static bool lies_as_matrix(const wk__graph_node *product, const wk_tensor *t, bool transposed) {
  wk_int step = wk_int_of(1);
  int first = wk__is_attention(product->op) ? 2 : 1; /* of the two, from the back */
  if (t->ndim < 2 || !wk_int_same(t->offset, wk_int_of(0))) return false;
  for (int back = 1; back <= t->ndim; back++) {
    bool swapped = transposed && (back == first || back == first + 1);
    int d = t->ndim - (swapped ? 2 * first + 1 - back : back);
    if (!wk_int_same(t->strides[d], step)) return false;
    step = wk_int_mul(step, t->sizes[d]);
  }
  return true;
}

/* Places of an image, or channels where they are inside. */
static wk_int columns_of_images(const wk_tensor *t) {
  wk_int columns = wk_int_of(1);
  for (int d = 2; d < t->ndim; d++) columns = wk_int_mul(columns, t->sizes[d]);
  return wk__has_channels_last(t) ? t->sizes[1] : columns;
}

/* Of a tensor that lies so. */
static wk_int columns_of(const wk__graph_node *product, const wk_tensor *t, bool transposed) {
  if (wk__is_convolution(product->op)) return columns_of_images(t);
  if (wk__is_attention(product->op)) return transposed ? wk_int_mul(t->sizes[1], t->sizes[3]) : t->sizes[3];
  return t->sizes[t->ndim - (transposed ? 2 : 1)];
}

static bool is_plain_product(const wk__graph_node *n, wk__is_wanted_fn *is_wanted, void *context) {
  if (n->kind != WK__GRAPH_CALL || !wk__is_product(n->op) || n->flags & WK__GRAPH_TAPED || !has_plain_args(n))
    return false;
  bool attends = wk__is_attention(n->op), images = wk__is_convolution(n->op);
  if (images && n->args[WK__ARG(convolution, transposed)].boolean) return false;
  if (attends && (!n->item_nodes[0] || (n->item_nodes[1] && is_wanted(context, n->item_nodes[1])))) return false;
  const wk_tensor *t = wk__product_result(n)->value;
  const wk__device_type *type = wk__device_types[t->device.type];
  if (!type || !(type->facts->beside & WK__BESIDE_PRODUCTS) || !(type->facts->beside_dtypes >> t->dtype & 1))
    return false;
  if (!(type->facts->beside & WK__BESIDE_MORE) && n->op != WK__OP(mm) && n->op != WK__OP(linear)) return false;
  if (images) return wk__has_channels_last(t) || wk__is_contiguous(t);
  return attends ? lies_as_matrix(n, t, false) || lies_as_matrix(n, t, true) : wk__is_contiguous(t);
}

bool wk__group_take_product(wk__group *g, const wk__graph_node *product, const wk__choices *choices,
                            wk__is_wanted_fn *is_wanted, void *context) {
  if (g->has_reduction || !is_plain_product(product, is_wanted, context)) return false;
  wk__memory result = wk__product_result(product);
  const wk_tensor *matrix = result->value;
  bool images = wk__is_convolution(product->op);
  if (bytes_of(matrix) < choices->product_bytes) return false;
  const wk__place *p = only_place(g, result);
  bool inside = wk__is_attention(product->op) && !lies_as_matrix(product, matrix, false);
  wk_int width = columns_of(product, matrix, inside);
  int columns = loop_of_columns(g, width), rows = 0;
  if (images && !wk__has_channels_last(matrix)) rows = loop_of_columns(g, wk_int_mul(width, matrix->sizes[1]));
  if (!p || columns < 0 || rows < 0 || rows > columns || !goes_over(g, p, matrix) || !are_parts(g, rows, columns))
    return false;
  bool wanted = is_wanted(context, result), may_be = wk__group_device(g)->facts->beside & WK__BESIDE_WANTED;
  g->home = wanted ? may_be ? result : NULL : find_home(g, p, matrix, is_wanted, context);
  if (!g->home) return false;
  g->product = product;
  g->whole = result;
  g->row_loop = rows;
  g->column_loop = columns;
  return true;
}

/* The one memory that the group writes for others; NULL: there are several. */
static const wk__place *only_result(const wk__group *g, wk__is_wanted_fn *is_wanted, void *context) {
  const wk__place *found = NULL;
  for (int r = 0; r < g->region_count; r++) {
    const wk__region *region = g->regions[r];
    for (int v = 1; v < region->instr_count; v++) {
      const wk__place *p = &region->places[region->instrs[v].extra];
      if (region->instrs[v].op != WK__LOOP_store || !is_wanted(context, p->memory)) continue;
      if (found || !wk__place_is_plain(p)) return NULL;
      found = p;
    }
  }
  return found;
}

/* The argument of the product, an operand, that looks at the memory; -1: none. Of attention's it is the query. */
static int operand_of(const wk__graph_node *product, wk__memory memory) {
  for (int i = 0; i < (wk__is_attention(product->op) ? 1 : 2); i++)
    if (product->args[i].tag == WK_VALUE_TENSOR && wk__memory_of(product->args[i].node) == memory &&
        !wk_dtype_is_complex((wk_dtype)product->args[i].node->value->dtype))
      return i;
  return -1;
}

/* Columns of the result, or keys. */
static int64_t uses_of_row(const wk__graph_node *product) {
  if (wk__is_attention(product->op)) return wk__hint(product->args[1].node->value->sizes[2]);
  return wk__hint(product->value->sizes[product->value->ndim - 1]);
}

bool wk__group_make_operand(wk__group *g, const wk__graph_node *product, const wk__choices *choices,
                            wk__is_wanted_fn *is_wanted, void *context) {
  bool fits = !g->has_reduction && !wk__is_convolution(product->op) && is_plain_product(product, is_wanted, context) &&
              wk__group_device(g)->facts->beside & WK__BESIDE_MORE;
  const wk__place *p = fits ? only_result(g, is_wanted, context) : NULL;
  int operand = p ? operand_of(product, p->memory) : -1;
  if (operand < 0 || bytes_of(p->memory->value) < choices->operand_bytes) return false;
  const wk_tensor *t = product->args[operand].node->value, *made = p->memory->value;
  if (operand == 0 && uses_of_row(product) < choices->operand_columns) return false;
  bool folds = product->op == WK__OP(linear) && operand == 0, transposed = !lies_as_matrix(product, t, false);
  if (t->dtype != made->dtype || !wk_int_same(t->numel, made->numel)) return false;
  if (transposed && (folds || !lies_as_matrix(product, t, true))) return false;
  int columns = loop_of_columns(g, columns_of(product, t, transposed));
  if (columns < 0 || !goes_over(g, p, made) || !are_rows_and_columns(g, columns)) return false;
  g->product = product;
  g->whole = wk__product_result(product);
  g->made = p->memory;
  g->made_operand = operand;
  g->made_transposed = transposed;
  g->row_loop = 0;
  g->column_loop = columns;
  return true;
}

static bool is_plain_draw(const wk__graph_node *n, const wk__choices *choices) {
  if (n->kind != WK__GRAPH_CALL || !wk__is_draw(n->op) || n->flags & WK__GRAPH_TAPED) return false;
  const wk__device_type *type = wk__device_types[n->value->device.type];
  if (!type || !(type->facts->beside & WK__BESIDE_DRAWS)) return false;
  return wk__value_is_real(&n->args[2].value) &&
         wk__hint(n->value->numel) / wk_get_num_threads() >= choices->drawn_values;
}

bool wk__group_take_draw(wk__group *g, const wk__graph_node *draw, const wk__choices *choices,
                         wk__is_wanted_fn *is_wanted, void *context) {
  (void)is_wanted, (void)context;
  if (g->has_reduction || g->loop_count == 0 || !is_plain_draw(draw, choices)) return false;
  const wk__place *p = only_place(g, draw);
  if (!p || !goes_over(g, p, draw->value)) return false;
  for (int columns = 0; columns < g->loop_count; columns++) {
    if (!are_rows_and_columns(g, columns)) continue;
    g->draw = draw;
    return true;
  }
  return false;
}
