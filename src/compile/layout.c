/* Images with their channels last, where a graph's convolutions are faster so.
 *
 * In and out: a graph. Operators that compute the same bits of images in either layout form *chains* by the values that
 * they hand on. A chain is given images with the channels last, all of it or nothing: where an image comes into it from
 * elsewhere it is copied into that order, and where one is wanted elsewhere it is copied back. That costs bytes that
 * are moved; what convolutions save is counted in bytes, too (is_worth_it). Strides inside a chain are what the
 * operators' shape rules say; what leaves the graph lies as it did.
 *
 * On the CPU convolutions of one tap or one channel a group are faster so. Those of several taps and channels sum in
 * another order with the channels last (cpu/conv/conv.h), so they belong to a chain only where other sums are allowed.
 * Backward passes are left as they are: their convolutions gain nothing.
 *
 * A device may have a library that copies planes inside of each convolution (convolves_last of its table). There all
 * convolutions but those of groups belong to chains, forward and backward, with those of one channel a group that the
 * device takes so (convolves_each_last), and so do batch norms, their gradients and maxima of windows. A graph whose
 * derivative outlives it is laid out before the derivative is made: the rules give gradients as the images lie, and
 * what backward keeps lies as forward has it. The copies are then _laid_out, which gives gradients back as they were.
 * Bits are the same but for the library's algorithm and the gradients of weights of one channel a group.
 *
 * An image that is permuted so that its channels are the last dim, for a norm of rows, gives rows without a copy then.
 *
 * Images of symbolic sizes are left as they are: what is faster is not known.
 *
 * Tests: tests/ir/layout.txt, tests/ops/test_compile.py, tests/cuda/test_layout.py. */
#include "compile/fuse/fuse.h"

enum {
  COPY_COST = 8,    /* bytes for each one that is copied into another order: read, written, and not in runs */
  STRIDED_GAIN = 5, /* halves of a byte for each one that a strided depthwise convolution reads or writes, */
  GAIN = 2,         /* and that another one does */
  /* On devices: planes are read and written by tiles; the library copies what a convolution reads and writes. One of
   * one channel a group is faster by no less. */
  DEVICE_COPY_COST = 3,
  DEVICE_GAIN = 4,
};

typedef struct layouts {
  wk__graph *graph;
  wk_device device;                                         /* of the images */
  bool (*convolves_last)(wk_device device, wk_dtype dtype); /* the device's; NULL: by the CPU */
  bool (*convolves_each_last)(wk_device device, int64_t kernel, int64_t stride);
  bool found;              /* there is a convolution */
  bool taped;              /* a derivative is yet to be made of the graph */
  bool other_sums, always; /* always: also where the copies cost more */
  bool *changed;
  uint32_t count;          /* of nodes that were there */
  uint32_t *chain;         /* by number: another node of its chain, or itself, the first */
  int64_t *worth;          /* by number of a chain's first node: bytes that it saves, doubled */
  bool *gains;             /* likewise: it holds a convolution */
  bool *rows;              /* by number: rows of channels of a chain's image */
  wk__graph_node **copies; /* by number of an image: its copy in the other layout; NULL: none yet */
} layouts;

/* ===================================================== facts ==================================================== */

static bool is_known(const wk_tensor *t) {
  for (int d = 0; d < t->ndim; d++)
    if (!wk_int_is_known(t->sizes[d]) || t->sizes[d].bits < 1) return false;
  return true;
}

/* Of channels and places: planes, one behind the other. The weight of a convolution of several taps is one as well: it
 * is copied like what is convolved. */
static bool is_image(const layouts *l, const wk_tensor *t) {
  if (!t || t->ndim != 4 || !wk__device_equal(t->device, l->device) || !is_known(t)) return false;
  return t->sizes[1].bits > 1 && t->sizes[2].bits * t->sizes[3].bits > 1 && wk__is_contiguous(t);
}

static int64_t bytes_of(const wk_tensor *t) { return wk__numel(t) * (int64_t)wk__itemsize(t); }

static const wk_tensor *arg_value(const wk__graph_node *n, int arg) {
  return n->args[arg].tag == WK_VALUE_TENSOR ? n->args[arg].node->value : NULL;
}

static bool is_depthwise(const wk__graph_node *n) {
  const wk_tensor *weight = arg_value(n, WK__ARG(convolution, weight));
  wk_int groups = n->args[WK__ARG(convolution, groups)].integer;
  return weight->sizes[1].bits == 1 && wk_int_same(weight->sizes[0], groups);
}

static bool is_of_groups(const wk__graph_node *n) {
  return !wk_int_same(n->args[WK__ARG(convolution, groups)].integer, wk_int_of(1));
}

static bool are_all(const wk__graph_arg *list, int64_t value) {
  wk__integer_span span = wk__graph_arg_integers(list);
  for (uint32_t i = 0; i < span.count; i++)
    if (!wk_int_same(span.items[i], wk_int_of(value))) return false;
  return true;
}

static int64_t first_integer(const wk__graph_arg *list) {
  wk__integer_span span = wk__graph_arg_integers(list);
  return span.count && wk_int_is_known(span.items[0]) ? span.items[0].bits : 1;
}

/* By the device's own kernels. */
static bool takes_each(const layouts *l, const wk__graph_node *n) {
  const wk_tensor *weight = arg_value(n, WK__ARG(convolution, weight));
  const wk__graph_arg *strides = &n->args[WK__ARG(convolution, stride)];
  int64_t kernel = weight->sizes[2].bits, stride = first_integer(strides);
  if (!l->convolves_each_last || !is_depthwise(n) || weight->sizes[3].bits != kernel) return false;
  if (!are_all(strides, stride) || !are_all(&n->args[WK__ARG(convolution, dilation)], 1)) return false;
  return l->convolves_each_last(l->device, kernel, stride);
}

static bool takes_convolution(const layouts *l, const wk__graph_node *n) {
  const wk_tensor *weight = arg_value(n, WK__ARG(convolution, weight));
  if (l->convolves_last)
    return l->convolves_last(l->device, n->value->dtype) && is_known(weight) && (!is_of_groups(n) || takes_each(l, n));
  bool floating = n->value->dtype == WK_FLOAT32 || n->value->dtype == WK_FLOAT64; /* others go through other kernels */
  if (!floating || n->args[WK__ARG(convolution, transposed)].boolean || !is_known(weight)) return false;
  bool one_tap = weight->sizes[2].bits == 1 && weight->sizes[3].bits == 1;
  return one_tap || is_depthwise(n) || l->other_sums;
}

static bool is_pointwise(const wk_op *op) {
  enum { OTHER_WAYS = WK__TAG_MUTATES | WK__TAG_RANDOM | WK__TAG_FUSED };
  return op->tags & WK__TAG_POINTWISE && !(op->tags & OTHER_WAYS) && op->meta && !op->compose;
}

static bool joins_channels(const wk__graph_node *n) {
  const wk__graph_arg *dim = &n->args[WK__ARG(cat, dim)];
  return n->op == WK__OP(cat) && dim->tag == WK_VALUE_INT && (dim->integer.bits == 1 || dim->integer.bits == -3);
}

/* Sums of integers are the same in either layout. The weight of several taps would be copied in each call. */
static bool takes_bytes(const wk__graph_node *n) {
  if (n->op != WK__OP(_int8_convolution)) return false;
  const wk_tensor *weight = arg_value(n, WK__ARG(_int8_convolution, weight));
  return is_known(weight) && weight->sizes[2].bits == 1 && weight->sizes[3].bits == 1;
}

static bool is_weight_gradient(const wk__graph_node *n) { return n->op == WK__OP(_convolution_backward_weight); }

/* What belongs to a chain on a device alone. */
static bool is_of_device_chain(const wk__graph_node *n) {
  if (is_weight_gradient(n)) /* a weight of several taps is an image */
    return wk_int_same(n->args[WK__ARG(_convolution_backward_weight, groups)].integer, wk_int_of(1));
  return n->op == WK__OP(detach) || n->op == WK__OP(_to_copy) || n->op == WK__OP(_max_pool2d) ||
         n->op == WK__OP(max_pool2d_with_indices);
}

/* It makes an image of images, the same bits in either layout. */
static bool may_be_in_chain(const layouts *l, const wk__graph_node *n) {
  if (n->kind == WK__GRAPH_ITEM) return is_image(l, n->value) && may_be_in_chain(l, n->args[0].node);
  if (n->kind != WK__GRAPH_CALL || (n->flags & WK__GRAPH_TAPED && !l->taped)) return false;
  if (!is_image(l, wk__graph_is_list(n) ? n->items[0] : n->value)) return false;
  if (n->op == WK__OP(convolution)) return takes_convolution(l, n);
  if (l->convolves_last && is_of_device_chain(n)) return true;
  return takes_bytes(n) || is_pointwise(n->op) || n->op == WK__OP(_native_batch_norm) || joins_channels(n);
}

static bool is_spatial(const wk__graph_arg *dims) {
  uint32_t seen = 0;
  wk__integer_span span = wk__graph_arg_integers(dims);
  for (uint32_t k = 0; k < span.count; k++) seen |= 1u << (span.items[k].bits & 3); /* -1 is 3, of four dims */
  return seen == (1u << 2 | 1u << 3);
}

static bool means_places(const wk__graph_node *n) {
  return n->op == WK__OP(mean_dim) && arg_value(n, WK__ARG(mean_dim, self))->ndim == 4 &&
         is_spatial(&n->args[WK__ARG(mean_dim, dim)]);
}

/* It makes no image, and the same of an image in either layout; of rows: but for strides, on which nothing depends. */
static bool reads_either(const layouts *l, const wk__graph_node *n) {
  if (n->kind != WK__GRAPH_CALL || (n->flags & WK__GRAPH_TAPED && !l->taped)) return false;
  bool sums = n->op == WK__OP(_channel_moments) || n->op == WK__OP(_channel_sums) || is_weight_gradient(n);
  return means_places(n) || (l->convolves_last && (sums || l->rows[n->number]));
}

/* ===================================================== chains =================================================== */

enum { NO_CHAIN = UINT32_MAX };

static uint32_t first_of(const layouts *l, uint32_t i) {
  while (l->chain[i] != i) i = l->chain[i] = l->chain[l->chain[i]];
  return i;
}

/* Nodes that were made here are in no chain. */
static bool is_in_chain(const layouts *l, const wk__graph_node *n) {
  return n->number < l->count && l->chain[n->number] != NO_CHAIN;
}

static void find_chains(const layouts *l) {
  for (const wk__graph_node *n = l->graph->first; n; n = n->next) {
    bool alias = n->kind == WK__GRAPH_CALL && n->op == WK__OP(detach); /* lies as what it is of */
    bool may_be = may_be_in_chain(l, n) && (!alias || is_in_chain(l, n->args[0].node));
    l->chain[n->number] = may_be ? n->number : NO_CHAIN;
    if (!is_in_chain(l, n)) continue;
    wk__arg_cursor cursor = {0};
    for (wk__graph_node **arg; (arg = wk__graph_next_arg(n, &cursor));)
      if (is_in_chain(l, *arg)) l->chain[first_of(l, (*arg)->number)] = first_of(l, n->number);
  }
}

/* ====================================================== rows ==================================================== */

static bool is_permuted_to_rows(const wk__graph_node *n) {
  static const int64_t order[] = {0, 2, 3, 1};
  if (n->kind != WK__GRAPH_CALL || n->op != WK__OP(permute)) return false;
  wk__integer_span dims = wk__graph_arg_integers(&n->args[WK__ARG(permute, dims)]);
  for (uint32_t d = 0; d < dims.count; d++)
    if (dims.count != WK_COUNT(order) || (dims.items[d].bits & 3) != order[d]) return false;
  return dims.count > 0;
}

static bool is_rows(const layouts *l, const wk__graph_node *n) { return n->number < l->count && l->rows[n->number]; }

static bool may_be_rows(const layouts *l, const wk__graph_node *n) {
  if (n->kind != WK__GRAPH_CALL || (n->flags & WK__GRAPH_TAPED && !l->taped) || wk__graph_is_list(n)) return false;
  if (is_permuted_to_rows(n)) return is_in_chain(l, n->args[0].node);
  if (!is_pointwise(n->op) && n->op != WK__OP(_to_copy)) return false;
  wk__arg_cursor cursor = {0};
  for (wk__graph_node **arg; (arg = wk__graph_next_arg(n, &cursor));)
    if (is_rows(l, *arg)) return true;
  return false;
}

/* Each gives the same of rows of any strides. */
static bool is_norm_of_rows(const wk__graph_node *n) {
  return n->kind == WK__GRAPH_CALL &&
         (n->op == WK__OP(native_layer_norm) || n->op == WK__OP(_layer_norm_backward_input) ||
          n->op == WK__OP(_layer_norm_backward_weight));
}

/* A view of an image whose last dim is its channels, and what is computed of it element by element, lie as the image
 * does. Others than norms of rows may mind: then it is not one of `rows`. */
static void find_rows(const layouts *l) {
  const wk__graph *g = l->graph;
  if (!l->convolves_last) return;
  for (const wk__graph_node *n = g->first; n; n = n->next) l->rows[n->number] = may_be_rows(l, n);
  for (int64_t i = 0; i < g->output_count; i++) l->rows[g->outputs[i]->number] = false;
  for (int64_t i = 0; i < g->mutation_count; i++) l->rows[g->mutations[i].node->number] = false;
  for (const wk__graph_node *n = g->last; n; n = n->previous) {
    if (l->rows[n->number] || is_norm_of_rows(n)) continue;
    wk__arg_cursor cursor = {0};
    for (wk__graph_node **arg; (arg = wk__graph_next_arg(n, &cursor));) l->rows[(*arg)->number] = false;
  }
}

/* ===================================================== worth ==================================================== */

static void add(const layouts *l, const wk__graph_node *member, int64_t worth) {
  l->worth[first_of(l, member->number)] += worth;
}

/* The library copies what a weight's gradient is made of, as well. */
static void count_weight_gradient(const layouts *l, const wk__graph_node *n) {
  const wk_tensor *g = arg_value(n, WK__ARG(_convolution_backward_weight, grad_output)),
                  *x = arg_value(n, WK__ARG(_convolution_backward_weight, input));
  add(l, n, DEVICE_GAIN * (bytes_of(g) + bytes_of(x)));
}

static void count_gain(const layouts *l, const wk__graph_node *n) {
  if (is_weight_gradient(n)) count_weight_gradient(l, n);
  if (n->op != WK__OP(convolution)) return;
  const wk_tensor *in = arg_value(n, WK__ARG(convolution, input));
  bool strided = is_depthwise(n) && first_integer(&n->args[WK__ARG(convolution, stride)]) > 1;
  int64_t gain = l->convolves_last ? DEVICE_GAIN : strided ? STRIDED_GAIN : GAIN;
  add(l, n, gain * (bytes_of(in) + bytes_of(n->value)));
  l->gains[first_of(l, n->number)] = true;
}

/* Each image is copied once, whoever uses it. `copies` is the mark of those that are counted. A device copies one that
 * is then converted as it converts it. */
static void count_copy(const layouts *l, wk__graph_node *image, const wk__graph_node *member) {
  if (l->copies[image->number]) return;
  l->copies[image->number] = image;
  const wk_tensor *copied = l->convolves_last && member->op == WK__OP(_to_copy) ? member->value : image->value;
  add(l, member, -2 * (l->convolves_last ? DEVICE_COPY_COST : COPY_COST) * bytes_of(copied));
}

static void count_ends(const layouts *l) {
  for (int64_t i = 0; i < l->graph->output_count; i++)
    if (is_in_chain(l, l->graph->outputs[i])) count_copy(l, l->graph->outputs[i], l->graph->outputs[i]);
  for (int64_t i = 0; i < l->graph->mutation_count; i++) {
    wk__graph_node *n = l->graph->mutations[i].node;
    if (is_in_chain(l, n)) count_copy(l, n, n);
  }
}

static void count_worth(const layouts *l) {
  for (const wk__graph_node *n = l->graph->first; n; n = n->next) {
    bool inside = is_in_chain(l, n);
    if (inside) count_gain(l, n);
    wk__arg_cursor cursor = {0};
    for (wk__graph_node **arg; (arg = wk__graph_next_arg(n, &cursor));) {
      bool from_inside = is_in_chain(l, *arg);
      if (inside && !from_inside && is_image(l, (*arg)->value)) count_copy(l, *arg, n);
      if (!inside && from_inside && !reads_either(l, n)) count_copy(l, *arg, *arg);
    }
  }
  count_ends(l);
  memset(l->copies, 0, l->count * sizeof *l->copies);
}

static bool is_worth_it(const layouts *l, const wk__graph_node *n) {
  if (!is_in_chain(l, n)) return false;
  uint32_t first = first_of(l, n->number);
  return l->gains[first] && (l->always || l->worth[first] > 0);
}

/* ==================================================== rewriting ================================================= */

static wk__graph_node *copy_of(const layouts *l, wk__graph_node *image, const char *format);

/* An alias's copy is an alias of the copy: what leaves the graph shares memory as it did. */
static wk__graph_node *called(const layouts *l, wk__graph_node *image, const char *format) {
  wk__graph_arg args[WK__MAX_ARGS] = {{.tag = WK_VALUE_TENSOR, .node = image},
                                      {.tag = WK_VALUE_STRING, .string = format}};
  bool alias = image->kind == WK__GRAPH_CALL && image->op == WK__OP(detach) && is_in_chain(l, image);
  const wk_op *op = alias ? image->op : l->taped ? WK__OP(_laid_out) : WK__OP(clone);
  if (alias) {
    args[0].node = copy_of(l, image->args[0].node, format);
    args[1] = (wk__graph_arg){0};
  }
  wk__graph_node *copy = args[0].node ? wk__graph_call_by_rule(l->graph, op, args) : NULL;
  if (copy && !alias && l->taped) copy->flags |= WK__GRAPH_TAPED;
  return copy;
}

/* A copy in another layout, made in front of the insertion point. NULL with the error set. */
static wk__graph_node *copied(const layouts *l, wk__graph_node *image, const char *format) {
  wk__graph_node *copy = called(l, image, format);
  if (copy) {
    copy->number = l->count;
    copy->source = image->source;
    *l->changed = true;
  }
  return l->copies[image->number] = copy;
}

static wk__graph_node *copy_of(const layouts *l, wk__graph_node *image, const char *format) {
  wk__graph_node *copy = l->copies[image->number];
  return copy ? copy : copied(l, image, format);
}

/* Instead of an argument its copy where the layouts differ. */
static wk_status exchange_args(const layouts *l, wk__graph_node *n) {
  if (n->kind == WK__GRAPH_ITEM) return WK_OK; /* described with its list */
  bool inside = is_worth_it(l, n), either = reads_either(l, n);
  wk__arg_cursor cursor = {0};
  for (wk__graph_node **arg; (arg = wk__graph_next_arg(n, &cursor));) {
    bool from_inside = (*arg)->number < l->count && is_worth_it(l, *arg);
    bool into = inside && !from_inside && (*arg)->number < l->count && is_image(l, (*arg)->value);
    if (!into && (inside || either || !from_inside)) continue;
    wk__graph_node *copy = copy_of(l, *arg, into ? "channels_last" : "contiguous_format");
    if (!copy) return wk_error_category();
    WK_TRY(wk__graph_replace_arg(l->graph, n, *arg, copy));
  }
  return inside || is_rows(l, n) ? wk__graph_describe_again(n) : WK_OK;
}

static wk_status exchange_end(const layouts *l, wk__graph_node **end) {
  if ((*end)->number >= l->count || !is_worth_it(l, *end)) return WK_OK;
  wk__graph_node *copy = copy_of(l, *end, "contiguous_format");
  if (!copy) return wk_error_category();
  (*end)->use_count--;
  copy->use_count++;
  *end = copy;
  return WK_OK;
}

static wk_status rewrite(const layouts *l) {
  wk__graph *g = l->graph;
  for (wk__graph_node *n = g->first; n; n = n->next) {
    if (n->number >= l->count) continue;
    wk__graph_set_insert_point(g, n);
    WK_TRY(exchange_args(l, n));
  }
  wk__graph_set_insert_point(g, NULL);
  for (int64_t i = 0; i < g->output_count; i++) WK_TRY(exchange_end(l, &g->outputs[i]));
  for (int64_t i = 0; i < g->mutation_count; i++) WK_TRY(exchange_end(l, &g->mutations[i].node));
  return WK_OK;
}

/* Which images are looked at: those of the first convolution that may gain. */
static bool find_device(layouts *l) {
  for (const wk__graph_node *n = l->graph->first; n; n = n->next) {
    l->taped |= (n->flags & WK__GRAPH_TAPED) != 0;
    bool there = l->device.type == WK_CPU || l->convolves_last;
    if (n->kind != WK__GRAPH_CALL || n->op != WK__OP(convolution) || (l->found && there)) continue;
    const wk__device_type *type = wk__device_types[n->value->device.type];
    l->found = true;
    l->device = n->value->device;
    l->convolves_last =
        type && type->convolves_last && type->convolves_last(l->device, n->value->dtype) ? type->convolves_last : NULL;
    l->convolves_each_last = l->convolves_last ? type->convolves_each_last : NULL;
  }
  return l->found && (l->convolves_last || (l->device.type == WK_CPU && !l->taped));
}

static wk_status place(layouts *l) {
  find_chains(l);
  find_rows(l);
  count_worth(l);
  wk_status status = rewrite(l);
  wk__graph_set_insert_point(l->graph, NULL);
  return status;
}

wk_status wk__place_layouts(wk__graph *graph, const wk__choices *choices, bool *out_changed) {
  *out_changed = false;
  size_t count = (size_t)graph->node_count;
  layouts l = {.graph = graph, .changed = out_changed, .count = (uint32_t)count};
  if (choices->channels_last == WK__LAST_NEVER || !find_device(&l)) return WK_OK;
  wk__graph_number(graph);
  l.other_sums = choices->channels_last == WK__LAST_WITH_OTHER_SUMS;
  l.always = choices->channels_last == WK__LAST_ALWAYS;
  char *memory = wk__alloc_zeroed(
      count * (sizeof *l.copies + sizeof *l.worth + sizeof *l.chain + sizeof *l.gains + sizeof *l.rows));
  if (!memory) return WK_OUT_OF_MEMORY;
  l.copies = (wk__graph_node **)memory;
  l.worth = (int64_t *)(l.copies + count);
  l.chain = (uint32_t *)(l.worth + count);
  l.gains = (bool *)(l.chain + count);
  l.rows = l.gains + count;
  wk_status status = place(&l);
  wk__free(memory);
  return status;
}
