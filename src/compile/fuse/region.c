/* Nodes as regions: lowers an operator, then replaces its buffers by memories and strides.
 * In: a call of the graph. Out: a region, or none for what is no single plain nest. Invariant: loops of size one are
 * gone, so equal places have equal numbers. Tests: tests/c/test_compile.c. */
#include "compile/fuse/fuse.h"

/* ---- values ---- */

static bool gives_views(const wk_op *op) {
  return op == WK__OP(split_Tensor) || op == WK__OP(split_sizes) || op == WK__OP(unbind_int);
}

wk__memory wk__memory_of(const wk__graph_node *node) {
  for (;;) {
    bool item = node->kind == WK__GRAPH_ITEM;
    const wk__graph_node *call = item ? node->args[0].node : node;
    if (call->kind != WK__GRAPH_CALL || !(call->op->view || (item && gives_views(call->op)))) return node;
    node = call->args[0].node;
  }
}

int64_t wk__hint(wk_int x) {
  int64_t value;
  if (wk_int_is_known(x)) return x.bits;
  return wk__sym_hint(x, &value) ? value : 0;
}

bool wk__node_args(const wk__graph_node *node, wk_value *args) {
  for (int i = 0; i < node->op->schema.parameter_count; i++) {
    const wk__graph_arg *from = &node->args[i];
    args[i] = from->value;
    if (from->tag == WK_VALUE_TENSORS) return false;
    if (from->tag == WK_VALUE_TENSOR) args[i].tensor = from->node->value;
    if (from->tag == WK_VALUE_INPUT)
      args[i] = wk__v_double(2); /* a number input may have any value: none that a body could be made for */
  }
  return true;
}

/* ---- which nodes ---- */

/* The operator whose body computes the node; NULL: none. A copy in another layout or dtype is one. */
static const wk_op *body_of(const wk_op *op) {
  if (op == WK__OP(clone) || op == WK__OP(_to_copy) || op == WK__OP(_laid_out)) return WK__OP(_copy);
  return op->lower && op->meta && !op->compose ? op : NULL;
}

/* A node's first result that is wanted. */
static const wk_tensor *result_of(const wk__graph_node *node) {
  for (int k = 0; !node->value && k < node->item_count; k++)
    if (node->items[k]) return node->items[k];
  return node->value;
}

wk_device wk__region_device(const wk__region *region) { return result_of(region->node)->device; }

static bool compiles(wk_device device) {
  const wk__device_type *type = wk__device_types[device.type];
  return type && type->facts->compiles;
}

static bool is_plain(const wk_tensor *t, wk_device device) {
  if (!t) return true;
  if (!wk__device_equal(t->device, device) || t->ndim > 8 || wk_dtype_is_complex((wk_dtype)t->dtype)) return false;
  for (int d = 0; d < t->ndim; d++)
    if (t->sizes[d].bits == 0) return false;
  return true;
}

static bool is_candidate(const wk__graph_node *node) {
  enum { OTHER_WAYS = WK__TAG_PLACES | WK__TAG_MUTATES | WK__TAG_RANDOM };
  if (node->kind != WK__GRAPH_CALL || !body_of(node->op)) return false;
  if (node->op->tags & OTHER_WAYS || node->flags & WK__GRAPH_TAPED) return false;
  const wk_tensor *result = result_of(node);
  if (!result || !compiles(result->device) || !is_plain(node->value, result->device)) return false;
  for (int k = 0; k < node->item_count; k++)
    if (!is_plain(node->items[k], result->device)) return false;
  for (int i = 0; i < node->op->schema.parameter_count; i++)
    if (node->args[i].tag == WK_VALUE_TENSOR && !is_plain(node->args[i].node->value, result->device)) return false;
  return true;
}

/* Not the parts of complex elements, nor real ones as parts: places count elements of the memory that was made. */
static bool looks_at_own_elements(const wk__graph_node *node) {
  const wk_tensor *made = wk__memory_of(node)->value;
  return !made || !node->value || made->dtype == node->value->dtype;
}
static bool has_own_elements(const wk__graph_node *node) {
  for (int i = 0; i < node->op->schema.parameter_count; i++) {
    const wk__graph_arg *a = &node->args[i];
    if (a->tag == WK_VALUE_TENSOR && !looks_at_own_elements(a->node)) return false;
    for (uint32_t k = 0; a->tag == WK_VALUE_TENSORS && k < a->count; k++)
      if (a->nodes[k] && !looks_at_own_elements(a->nodes[k])) return false;
  }
  return true;
}

/* Numbers of the graph's inputs come at launch, and so do integers that a double cannot hold. */
static void choose_given(const wk__graph_node *node, bool *is_given) {
  for (int i = 0; i < node->op->schema.parameter_count; i++) {
    const wk__graph_arg *a = &node->args[i];
    int64_t exact = INT64_C(1) << 53;
    is_given[i] = a->tag == WK_VALUE_INPUT ||
                  (a->tag == WK_VALUE_INT &&
                   (!wk_int_is_known(a->integer) || a->integer.bits > exact || a->integer.bits < -exact));
  }
}

/* ---- from nest to region ---- */

typedef struct maker {
  const wk__graph_node *node;
  const wk__nest *nest;
  const wk__lowered *lowered;
  const wk_tensor *tensors[WK__NEST_MAX_BUFFERS]; /* by buffer */
  wk__memory memories[WK__NEST_MAX_BUFFERS];      /* NULL: a result that is not made */
  int loop_of_dim[WK__NEST_MAX_DIMS];             /* -1: a loop of size one */
  wk__region *region;
} maker;

static wk_int size_of_buffer(void *context, wk_int leaf) {
  const maker *m = context;
  if (wk__sym_kind_of(leaf) != WK__SYM_BUFFER_SIZE) return leaf;
  int index = wk__sym_index(leaf);
  return m->tensors[index / WK__BUFFER_DIMS]->sizes[index % WK__BUFFER_DIMS];
}

static wk_int in_sizes(const maker *m, wk_int x) {
  return wk_int_is_known(x) ? x : wk__sym_substitute(x, size_of_buffer, (void *)m);
}

static int loop_of_variable(const maker *m, int variable) {
  return m->loop_of_dim[variable < WK__FIRST_R ? variable : m->nest->pointwise_dims + variable - WK__FIRST_R];
}

/* Adds scale * x to an offset and a stride for each loop. False: not affine. */
static bool add_affine(const maker *m, wk_int x, wk_int scale, wk_int *offset, wk_int *stride) {
  wk_int constant, coefficient[WK__LOOP_VARS];
  if (!wk__sym_affine(in_sizes(m, x), &constant, coefficient)) return false;
  *offset = wk_int_add(*offset, wk_int_mul(scale, constant));
  for (int v = 0; v < WK__LOOP_VARS; v++) {
    if (wk_int_same(coefficient[v], wk_int_of(0))) continue;
    int l = loop_of_variable(m, v);
    if (l >= 0) stride[l] = wk_int_add(stride[l], wk_int_mul(scale, coefficient[v]));
  }
  return true;
}

static bool place_of_pointwise(const maker *m, const wk_tensor *t, wk__place *place) {
  int ndim = m->nest->geometry_free ? m->tensors[m->lowered->buffer_of_result[0]]->ndim : 0, skip = ndim - t->ndim;
  for (int d = skip; d < ndim; d++)
    if (m->loop_of_dim[d] >= 0 && t->sizes[d - skip].bits != 1) place->stride[m->loop_of_dim[d]] = t->strides[d - skip];
  return true;
}

/* What a mutating operator makes has its argument's strides or, where the executor gives it memory of its own, dense
 * ones: the same only when those are dense. */
static bool has_known_layout(wk__memory memory) {
  const wk__graph_node *call = memory->kind == WK__GRAPH_ITEM ? memory->args[0].node : memory;
  bool written = call->kind == WK__GRAPH_CALL && call->op->tags & WK__TAG_MUTATES;
  return !written || wk__is_contiguous(memory->value);
}

static bool add_bound(const maker *m, wk__place *place, wk_int index, wk_int size, wk_int stride) {
  if (place->bound_count == WK__REGION_BOUNDS) return false;
  wk__bound *b = &place->bounds[place->bound_count++];
  b->size = size;
  b->stride = stride;
  return add_affine(m, index, wk_int_of(1), &b->start, b->step);
}

static bool place_of_access(const maker *m, const wk__access *access, wk__place *place) {
  const wk_tensor *t = m->tensors[access->buffer];
  *place = (wk__place){.memory = m->memories[access->buffer], .dtype = t->dtype, .per_element = access->per_element};
  if (!place->memory || !has_known_layout(place->memory)) return false;
  place->offset = wk_int_sub(t->offset, place->memory->value->offset);
  if (m->nest->geometry_free) return place_of_pointwise(m, t, place);
  for (int d = 0; d < access->ndim; d++) {
    if (access->may_leave >> d & 1) {
      if (!add_bound(m, place, access->index[d], t->sizes[d], t->strides[d])) return false;
      continue;
    }
    if (!add_affine(m, access->index[d], t->strides[d], &place->offset, place->stride)) return false;
    if (!access->indirect[d]) continue;
    if (place->indirect_count == WK__REGION_INDIRECTS) return false;
    int k = place->indirect_count++;
    place->indirect[k].value = access->indirect[d];
    place->indirect[k].stride = t->strides[d];
    place->indirect[k].size = t->sizes[d];
  }
  return true;
}

static bool is_store(const wk__instr *instr) { return instr->op == WK__LOOP_store; }

static bool make_instr(maker *m, wk__instr *instr) {
  wk__place *place = &m->region->places[m->region->place_count];
  switch (instr->op) {
    case WK__LOOP_store_add:
    case WK__LOOP_scan_sum:
    case WK__LOOP_scan_prod:
      return false;
    case WK__LOOP_load:
    case WK__LOOP_masked_load:
    case WK__LOOP_store:
      if (!place_of_access(m, &m->nest->accesses[instr->extra], place)) return is_store(instr) && !place->memory;
      if (is_store(instr) && place->indirect_count) return false;
      break;
    case WK__LOOP_index:
      *place = (wk__place){.dtype = WK_INT64, .per_element = instr->per_element};
      if (!add_affine(m, instr->expression, wk_int_of(1), &place->offset, place->stride)) return false;
      break;
    case WK__LOOP_check_index:
      instr->expression = in_sizes(m, instr->expression);
      return true;
    default:
      m->region->has_reduction |= wk__loop_is_reduction(instr->op);
      return true;
  }
  instr->extra = (uint16_t)m->region->place_count++;
  return true;
}

static int arg_of_param(const maker *m, int param) {
  for (int i = 0; i < m->node->op->schema.parameter_count; i++)
    if (m->lowered->param_of_arg[i] == param) return i;
  return -1;
}

/* Stores of results that are not used are removed; params are told by the argument that they come from. */
static bool make_body(maker *m) {
  wk__region *r = m->region;
  for (int v = 1; v < m->nest->instr_count; v++) {
    r->instrs[v] = m->nest->instrs[v];
    if (!make_instr(m, &r->instrs[v])) return false;
    if (is_store(&r->instrs[v]) && !m->memories[m->nest->accesses[m->nest->instrs[v].extra].buffer])
      r->instrs[v].op = WK__LOOP_NONE;
    if (r->instrs[v].op != WK__LOOP_param) continue;
    int arg = arg_of_param(m, r->instrs[v].extra);
    if (arg < 0) return false;
    r->instrs[v].extra = (uint16_t)arg;
  }
  r->instr_count = (int)m->nest->instr_count;
  return true;
}

static bool add_loop(maker *m, int dim, wk_int size, bool reduced) {
  wk__region *r = m->region;
  m->loop_of_dim[dim] = -1;
  if (size.bits == 1) return !reduced; /* rows of one element: left to the operator */
  if (r->loop_count == WK__REGION_LOOPS) return false;
  m->loop_of_dim[dim] = r->loop_count;
  r->loops[r->loop_count++] = (wk__region_loop){size, reduced};
  return true;
}

static bool make_loops(maker *m) {
  if (m->nest->geometry_free) {
    const wk_tensor *out = m->tensors[m->lowered->buffer_of_result[0]];
    for (int d = 0; d < out->ndim; d++)
      if (!add_loop(m, d, out->sizes[d], false)) return false;
    return true;
  }
  for (int d = 0; d < m->nest->pointwise_dims + m->nest->reduction_dims; d++)
    if (!add_loop(m, d, in_sizes(m, m->nest->sizes[d]), d >= m->nest->pointwise_dims)) return false;
  return true;
}

static wk_status make_region(maker *m, wk__region **out) {
  size_t instrs = (size_t)m->nest->instr_count;
  m->region = wk__alloc_zeroed(sizeof *m->region);
  if (!m->region) return WK_OUT_OF_MEMORY;
  m->region->node = m->node;
  m->region->instrs = wk__alloc_zeroed((instrs + 1) * sizeof *m->region->instrs);
  m->region->places = wk__alloc_zeroed((instrs + 1) * sizeof *m->region->places);
  bool made = m->region->instrs && m->region->places;
  wk_status status = made ? WK_OK : WK_OUT_OF_MEMORY;
  if (made && make_loops(m) && make_body(m)) {
    *out = m->region;
    return WK_OK;
  }
  wk__region_release(m->region);
  return status;
}

void wk__region_release(wk__region *region) {
  if (!region) return;
  wk__free(region->instrs);
  wk__free(region->places);
  wk__free(region);
}

/* ---- lowering a node ---- */

static void bind_memories(maker *m, const wk__call *call) {
  const wk__graph_node *node = m->node;
  for (int i = 0; i < call->op->schema.parameter_count; i++) {
    int b = m->lowered->buffer_of_arg[i];
    if (b < 0) continue;
    m->tensors[b] = node->args[i].node->value;
    m->memories[b] = wk__memory_of(node->args[i].node);
  }
  for (int r = 0; r < node->op->schema.result_count; r++) {
    int b = m->lowered->buffer_of_result[r];
    m->tensors[b] = call->outputs[r];
    m->memories[b] = node->value ? node : node->item_nodes[r];
  }
}

static wk_status lower_to_region(const wk__graph_node *node, wk__call *call, wk__region **out) {
  bool is_given[WK__MAX_ARGS] = {false};
  wk__lowered lowered = {0};
  choose_given(node, is_given);
  wk__shape_env *env = wk__shape_env_current();
  int64_t guards = wk__shape_env_guard_count(env);
  wk_status status = wk__lower_call(call, is_given, &lowered);
  bool for_all_sizes = wk__shape_env_guard_count(env) == guards; /* else the body assumes something of this one */
  if (status == WK_OK && lowered.nest_count == 1 && for_all_sizes && !lowered.pairs) {
    maker m = {.node = node, .nest = lowered.nests[0], .lowered = &lowered};
    bind_memories(&m, call);
    status = make_region(&m, out);
  }
  wk__lowered_release(&lowered);
  return status;
}

/* Outputs as the graph describes them; those that are not used as the shape rule does. */
static wk_status with_outputs(const wk__graph_node *node, wk__call *call, wk__region **out) {
  wk_tensor *outputs[WK__MAX_RESULTS] = {NULL}, *made[WK__MAX_RESULTS] = {NULL};
  wk_status status = WK_OK;
  for (int r = 0; r < node->op->schema.result_count && status == WK_OK; r++) {
    outputs[r] = node->value ? node->value : node->items[r];
    if (!outputs[r]) outputs[r] = made[r] = wk__tensor_shape_only(&call->specs[r]);
    if (!outputs[r]) status = wk_error_category();
  }
  call->outputs = outputs;
  if (status == WK_OK) status = lower_to_region(node, call, out);
  for (int r = 0; r < WK__MAX_RESULTS; r++) wk__release(made[r]);
  return status;
}

/* ---- cat: as the parts are made, each goes to its stretch of the whole ---- */

enum { MOST_PARTS = 8 };

static bool same_sizes(const wk_tensor *a, const wk_tensor *b) {
  if (a->ndim != b->ndim || a->dtype != b->dtype) return false;
  for (int d = 0; d < a->ndim; d++)
    if (!wk_int_same(a->sizes[d], b->sizes[d])) return false;
  return true;
}

static bool is_cat_of_equal_parts(const wk__graph_node *node) {
  if (node->op != WK__OP(cat) || node->flags & WK__GRAPH_TAPED || node->args[0].count > MOST_PARTS) return false;
  const wk_tensor *first = node->args[0].nodes[0]->value, *whole = node->value;
  if (!compiles(whole->device) || !is_plain(whole, whole->device) || first->ndim != whole->ndim ||
      first->dtype != whole->dtype)
    return false;
  for (uint32_t k = 0; k < node->args[0].count; k++) {
    const wk_tensor *part = node->args[0].nodes[k]->value;
    if (!is_plain(part, whole->device) || !same_sizes(part, first)) return false;
  }
  return true;
}

/* Part k of the whole, as a view. */
static wk_tensor *stretch_of(const wk__graph_node *cat, uint32_t k) {
  const wk_tensor *part = cat->args[0].nodes[k]->value, *whole = cat->value;
  wk__spec spec;
  int dim = (int)cat->args[1].integer.bits;
  if (dim < 0) dim += whole->ndim;
  wk__spec_of(&spec, whole);
  memcpy(spec.sizes, part->sizes, part->ndim * sizeof *spec.sizes);
  wk_int before = wk_int_mul(wk_int_of(k), part->sizes[dim]);
  spec.offset = wk_int_add(whole->offset, wk_int_mul(before, whole->strides[dim]));
  return wk__tensor_shape_only(&spec);
}

static void record_copy(wk__recorder *recorder, int from, int to, int ndim) {
  wk__access load = {.buffer = (uint8_t)from, .ndim = (uint8_t)ndim}, store;
  for (int d = 0; d < ndim; d++) load.index[d] = wk__loop_i(d);
  store = load;
  store.buffer = (uint8_t)to;
  wk__k_store(&recorder->handler, &store, wk__k_load(&recorder->handler, &load));
}

/* Buffers: the parts, then their stretches of the whole. */
static wk_status record_cat(maker *m, wk__nest *nest, wk_tensor *const *stretches) {
  const wk__graph_arg *parts = &m->node->args[0];
  wk__recorder recorder;
  wk__recorder_init(&recorder, nest);
  for (uint32_t k = 0; k < parts->count; k++) {
    m->tensors[k] = parts->nodes[k]->value;
    m->memories[k] = wk__memory_of(parts->nodes[k]);
    m->tensors[parts->count + k] = stretches[k];
    m->memories[parts->count + k] = m->node;
  }
  nest->buffer_count = (uint8_t)(2 * parts->count);
  nest->pointwise_dims = m->tensors[0]->ndim;
  for (int b = 0; b < nest->buffer_count; b++)
    nest->buffers[b] = (wk__nest_buffer){.dtype = m->tensors[b]->dtype, .ndim = m->tensors[b]->ndim};
  for (int d = 0; d < nest->pointwise_dims; d++) nest->sizes[d] = wk_int_buffer_size(0, d);
  for (uint32_t k = 0; k < parts->count; k++)
    record_copy(&recorder, (int)k, (int)(parts->count + k), nest->pointwise_dims);
  return recorder.handler.status;
}

static wk_status create_cat(const wk__graph_node *node, wk__region **out) {
  wk_tensor *stretches[MOST_PARTS] = {NULL};
  wk__nest *nest = wk__nest_create();
  wk_status status = nest ? WK_OK : WK_OUT_OF_MEMORY;
  for (uint32_t k = 0; k < node->args[0].count && status == WK_OK; k++) {
    stretches[k] = stretch_of(node, k);
    if (!stretches[k]) status = wk_error_category();
  }
  maker m = {.node = node, .nest = nest};
  if (status == WK_OK) status = record_cat(&m, nest, stretches);
  if (status == WK_OK) status = make_region(&m, out);
  for (int k = 0; k < MOST_PARTS; k++) wk__release(stretches[k]);
  wk__nest_release(nest);
  return status;
}

wk_status wk__region_create(const wk__graph_node *node, wk__region **out) {
  wk_value args[WK__MAX_ARGS];
  wk__spec specs[WK__MAX_RESULTS];
  *out = NULL;
  if (node->kind == WK__GRAPH_CALL && !has_own_elements(node)) return WK_OK;
  if (is_cat_of_equal_parts(node)) return create_cat(node, out);
  if (!is_candidate(node) || !wk__node_args(node, args)) return WK_OK;
  wk__call call = {.op = body_of(node->op), .args = args, .specs = specs, .compute_dtype = WK_DTYPE_NONE};
  WK_TRY(call.op->meta(&call));
  return with_outputs(node, &call, out);
}
