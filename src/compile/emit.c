/* Writing a group as one nest, and the call that launches it.
 *
 * In: regions over common loops, in the graph's order. Out: a fused operator, a node that calls it, and its results in
 * place of the nodes'. A load of what another region of the group stores becomes that value; stores that nobody
 * outside wants go, and with them whatever only they needed. Tests: tests/c/test_compile.c. */
#include <stdio.h>

#include "compile/kernel.h"

enum { MAX_PLACES = WK__NEST_MAX_BUFFERS };

/* What becomes of one instruction of a region. */
typedef struct cell {
  bool needed;
  bool picked; /* load: made again for one element of a row, see emit_picked */
  wk__var var;
  int16_t source_region; /* load: of a value of the group, -1: of memory */
  int32_t source_instr;  /* the store's operand */
} cell;

typedef struct emitter {
  const wk__group *group;
  wk__graph *graph;
  wk__graph_node **now; /* by number: what stands for the node by now */
  wk__is_wanted_fn *is_wanted;
  void *context;
  cell **cells; /* [region][instr] */
  /* loops after merging: of loop l the last loop of the group that it is */
  int loop_count;
  wk__region_loop loops[WK__REGION_LOOPS];
  int loop_from[WK__REGION_LOOPS];
  bool geometry_free;
  /* the kernel */
  wk__nest *nest;
  wk__recorder recorder;
  wk__loop_handler *h;
  wk__place places[MAX_PLACES]; /* by buffer, over the loops after merging */
  bool written[MAX_PLACES];
  wk_int *numbers;
  int64_t number_count, number_capacity;
  wk__graph_node *inputs[MAX_PLACES]; /* memories that are read */
  int input_count;
  wk__memory outputs[MAX_PLACES];
  int output_count;
  wk__fused_param params[2 * WK__FUSED_NUMBERS];
  wk__graph_arg floats[WK__FUSED_NUMBERS];
  int param_count, float_count;
  const wk_op *index_op;
} emitter;

static wk_status unsupported(void) { return wk_fail(WK_UNSUPPORTED, "not for a fused kernel"); }

static const wk__instr *instr_of(const emitter *e, int region, int v) { return &e->group->regions[region]->instrs[v]; }

static bool is_access(const wk__instr *i) { return i->op == WK__LOOP_load || i->op == WK__LOOP_store; }
static bool has_place(const wk__instr *i) { return is_access(i) || i->op == WK__LOOP_index; }

static wk__place *place_of(const emitter *e, int region, const wk__instr *instr) {
  return &e->group->regions[region]->places[instr->extra];
}

static bool same_strides(const wk__place *a, const wk__place *b, int loops) {
  for (int l = 0; l < loops; l++)
    if (!wk_int_same(a->stride[l], b->stride[l])) return false;
  return true;
}

/* ---- who needs what ---- */

static bool find_source(const emitter *e, int region, const wk__place *place, cell *out) {
  for (int r = region - 1; r >= 0; r--) {
    const wk__region *from = e->group->regions[r];
    for (int v = 1; v < from->instr_count; v++) {
      const wk__instr *i = &from->instrs[v];
      if (i->op != WK__LOOP_store || place_of(e, r, i)->memory != place->memory) continue;
      out->source_region = (int16_t)r;
      out->source_instr = v;
      return true;
    }
  }
  return false;
}

static void need_value(emitter *e, int region, int v) {
  if (v) e->cells[region][v].needed = true;
}

static bool is_reduction(const wk__instr *i) { return i->op >= WK__LOOP_reduce_sum && i->op <= WK__LOOP_reduce_argmin; }

/* The loop that runs along a row. */
static int row_loop(const emitter *e) {
  for (int l = 0; l < e->group->loop_count; l++)
    if (e->group->loops[l].reduced) return l;
  return -1;
}

static bool moves_along_row(const emitter *e, int region, const wk__instr *i) {
  return !wk_int_same(place_of(e, region, i)->stride[row_loop(e)], wk_int_of(0));
}

/* What emit_picked takes from the row as it is. */
static void need_picked(emitter *e, int region, int v) {
  const wk__instr *i = instr_of(e, region, v);
  cell *c = &e->cells[region][v];
  if (!v) return;
  if (i->op == WK__LOOP_load) {
    if (find_source(e, region, place_of(e, region, i), c)) {
      need_picked(e, c->source_region, instr_of(e, c->source_region, c->source_instr)->operands[0]);
    } else if (moves_along_row(e, region, i)) {
      const wk__place *p = place_of(e, region, i);
      for (int k = 0; k < p->indirect_count; k++) need_value(e, region, p->indirect[k].value);
      c->picked = true;
    } else {
      c->needed = true;
    }
  } else if (is_reduction(i) || wk__loop_ops[i->op].arity == 0) {
    c->needed = true;
  } else {
    for (int k = 0; k < wk__loop_ops[i->op].arity; k++) need_picked(e, region, i->operands[k]);
  }
}

static void need_operands(emitter *e, int region, int v) {
  const wk__instr *i = instr_of(e, region, v);
  cell *c = &e->cells[region][v];
  if (i->op == WK__LOOP_load && c->source_region >= 0) {
    const wk__place *p = place_of(e, region, i);
    int stored = instr_of(e, c->source_region, c->source_instr)->operands[0];
    for (int k = 0; k < p->indirect_count; k++) need_value(e, region, p->indirect[k].value);
    if (p->indirect_count)
      need_picked(e, c->source_region, stored);
    else
      need_value(e, c->source_region, stored);
    return;
  }
  for (int k = 0; k < wk__loop_ops[i->op].arity; k++) need_value(e, region, i->operands[k]);
  if (!is_access(i)) return;
  const wk__place *p = place_of(e, region, i);
  for (int k = 0; k < p->indirect_count; k++) need_value(e, region, p->indirect[k].value);
}

static void find_needed(emitter *e) {
  for (int r = 0; r < e->group->region_count; r++)
    for (int v = 0; v < e->group->regions[r]->instr_count; v++) e->cells[r][v].source_region = -1;
  for (int r = e->group->region_count - 1; r >= 0; r--)
    for (int v = e->group->regions[r]->instr_count - 1; v > 0; v--) {
      const wk__instr *i = instr_of(e, r, v);
      cell *c = &e->cells[r][v];
      if (i->op == WK__LOOP_store) c->needed = e->is_wanted(e->context, place_of(e, r, i)->memory);
      if (!c->needed) continue;
      if (i->op == WK__LOOP_load) find_source(e, r, place_of(e, r, i), c);
      need_operands(e, r, v);
    }
}

/* ---- loops ---- */

typedef bool place_test(const emitter *e, const wk__place *place, int outer, int inner);

static bool every_place(const emitter *e, place_test *test, int outer, int inner) {
  for (int r = 0; r < e->group->region_count; r++)
    for (int v = 1; v < e->group->regions[r]->instr_count; v++) {
      const wk__instr *i = instr_of(e, r, v);
      const cell *c = &e->cells[r][v];
      if (!(c->needed || c->picked) || !has_place(i) || (i->op == WK__LOOP_load && c->source_region >= 0)) continue;
      if (!test(e, place_of(e, r, i), outer, inner)) return false;
    }
  return true;
}

static bool is_even(const emitter *e, const wk__place *p, int outer, int inner) {
  return wk_int_same(p->stride[outer], wk_int_mul(p->stride[inner], e->group->loops[inner].size));
}

static bool is_free_of_geometry(const emitter *e, const wk__place *p, int outer, int inner) {
  (void)e, (void)outer, (void)inner;
  return p->memory && p->indirect_count == 0;
}

/* Neighbours that every access crosses evenly become one: fewer loops to bind, and equal kernels for equal work. */
static void merge_loops(emitter *e) {
  const wk__group *g = e->group;
  for (int l = 0; l < g->loop_count; l++) {
    wk__region_loop *last = e->loop_count ? &e->loops[e->loop_count - 1] : NULL;
    if (last && last->reduced == g->loops[l].reduced && every_place(e, is_even, l - 1, l)) {
      last->size = wk_int_mul(last->size, g->loops[l].size);
      e->loop_from[e->loop_count - 1] = l;
    } else {
      e->loops[e->loop_count] = g->loops[l];
      e->loop_from[e->loop_count++] = l;
    }
  }
}

static wk_int loop_variable(const emitter *e, int loop) {
  int before = 0;
  for (int l = 0; l < loop; l++) before += e->loops[l].reduced == e->loops[loop].reduced;
  return e->loops[loop].reduced ? wk__loop_r(before) : wk__loop_i(before);
}

/* ---- numbers ---- */

static int32_t add_number(emitter *e, wk_int x) {
  if (wk__grow(&e->numbers, &e->number_capacity, e->number_count + 1, sizeof *e->numbers) != WK_OK) {
    e->h->status = WK_OUT_OF_MEMORY;
    return 0;
  }
  e->numbers[e->number_count] = x;
  return (int32_t)e->number_count++;
}

static wk__var emit_param(emitter *e, wk__fused_param param, wk_dtype dtype) {
  for (int i = 0; i < e->param_count; i++)
    if (param.argument >= 0 && e->params[i].argument == param.argument) return wk__k_param(e->h, i, dtype);
  if (e->param_count == (int)WK_COUNT(e->params)) {
    e->h->status = unsupported();
    return 0;
  }
  e->params[e->param_count] = param;
  return wk__k_param(e->h, e->param_count++, dtype);
}

static wk__var emit_integer(emitter *e, wk_int x) {
  if (wk_int_is_known(x) && x.bits < INT64_C(1) << 53 && x.bits > -(INT64_C(1) << 53)) return wk__k_index(e->h, x);
  return emit_param(e, (wk__fused_param){-1, add_number(e, x)}, WK_INT64);
}

/* A number of the node: a number input, else an integer. */
static wk__var emit_number(emitter *e, int region, const wk__instr *instr) {
  const wk__graph_arg *arg = &e->group->regions[region]->node->args[instr->extra];
  if (arg->tag == WK_VALUE_INT)
    return emit_param(e, (wk__fused_param){-1, add_number(e, arg->integer)}, (wk_dtype)instr->dtype);
  for (int i = 0; i < e->float_count; i++)
    if (e->floats[i].count == arg->count)
      return emit_param(e, (wk__fused_param){(int16_t)i, 0}, (wk_dtype)instr->dtype);
  if (e->float_count == WK__FUSED_NUMBERS) {
    e->h->status = unsupported();
    return 0;
  }
  e->floats[e->float_count] = *arg;
  return emit_param(e, (wk__fused_param){(int16_t)e->float_count++, 0}, (wk_dtype)instr->dtype);
}

/* ---- buffers ---- */

static int input_of(emitter *e, wk__memory memory) {
  for (int i = 0; i < e->input_count; i++)
    if (e->inputs[i] == memory) return i;
  e->inputs[e->input_count] = (wk__graph_node *)memory;
  return e->input_count++;
}

static bool same_buffer(const emitter *e, int b, const wk__place *p, bool written) {
  const wk__place *own = &e->places[b];
  if (own->memory != p->memory || e->written[b] != written || !wk_int_same(own->offset, p->offset)) return false;
  if (!same_strides(own, p, e->loop_count) || own->indirect_count != p->indirect_count) return false;
  for (int k = 0; k < p->indirect_count; k++)
    if (!wk_int_same(own->indirect[k].stride, p->indirect[k].stride) ||
        !wk_int_same(own->indirect[k].size, p->indirect[k].size))
      return false;
  return own->per_element == p->per_element;
}

static bool uses_loop(const emitter *e, const wk__place *p, int loop) {
  return e->geometry_free || !wk_int_same(p->stride[loop], wk_int_of(0));
}

static int dims_of_buffer(const emitter *e, const wk__place *p) {
  int dims = 0;
  if (e->geometry_free) return 1;
  for (int l = 0; l < e->loop_count; l++) dims += uses_loop(e, p, l);
  return dims + p->indirect_count;
}

/* Where the place's memory lies over the loops after merging. */
static wk__place merged_place(const emitter *e, const wk__place *p) {
  wk__place merged = *p;
  for (int l = 0; l < WK__REGION_LOOPS; l++)
    merged.stride[l] = l < e->loop_count ? p->stride[e->loop_from[l]] : wk_int_of(0);
  return merged;
}

static int buffer_of(emitter *e, const wk__place *merged, bool written) {
  int count = e->nest->buffer_count;
  for (int b = 0; b < count; b++)
    if (same_buffer(e, b, merged, written)) return b;
  if (count == MAX_PLACES) {
    if (!e->h->status) e->h->status = unsupported();
    return 0;
  }
  e->places[count] = *merged;
  e->written[count] = written;
  e->nest->buffers[count] =
      (wk__nest_buffer){.dtype = merged->dtype, .ndim = (uint8_t)dims_of_buffer(e, merged), .written = written};
  e->nest->buffer_count++;
  if (written)
    e->outputs[e->output_count++] = merged->memory;
  else
    input_of(e, merged->memory);
  return count;
}

static wk__access access_of(emitter *e, int region, const wk__place *place, bool written) {
  wk__place merged = merged_place(e, place);
  wk__access a = {.buffer = (uint8_t)buffer_of(e, &merged, written), .per_element = place->per_element};
  if (e->geometry_free) {
    a.ndim = 1;
    a.index[0] = wk__loop_i(0);
    return a;
  }
  for (int l = 0; l < e->loop_count; l++)
    if (uses_loop(e, &merged, l)) a.index[a.ndim++] = loop_variable(e, l);
  for (int k = 0; k < place->indirect_count; k++) {
    a.indirect[a.ndim] = e->cells[region][place->indirect[k].value].var;
    a.index[a.ndim++] = wk_int_of(0);
  }
  return a;
}

/* ---- instructions ---- */

static wk__var emit_index(emitter *e, const wk__place *place) {
  wk__place merged = merged_place(e, place);
  wk_int known = wk_int_of(0);
  wk__var sum = 0;
  bool is_known = wk_int_is_known(merged.offset);
  for (int l = 0; l < e->loop_count; l++) is_known &= wk_int_is_known(merged.stride[l]);
  for (int l = 0; l < e->loop_count && is_known; l++)
    known = wk_int_add(known, wk_int_mul(merged.stride[l], loop_variable(e, l)));
  if (is_known) return wk__k_index(e->h, wk_int_add(known, merged.offset));
  for (int l = 0; l < e->loop_count; l++) {
    if (!uses_loop(e, &merged, l)) continue;
    wk__var term = wk__k_index(e->h, loop_variable(e, l));
    if (!wk_int_same(merged.stride[l], wk_int_of(1))) term = wk__k_mul(e->h, term, emit_integer(e, merged.stride[l]));
    sum = sum ? wk__k_add(e->h, sum, term) : term;
  }
  wk__var constant = emit_integer(e, merged.offset);
  return sum ? wk__k_add(e->h, sum, constant) : constant;
}

/* A store and a load of the same element: the value after a round trip through the memory's dtype. */
static wk__var as_stored(emitter *e, wk__var value, wk_dtype storage) {
  wk_dtype compute = (wk_dtype)wk__dtypes[storage].compute;
  value = wk__k_cast(e->h, value, compute);
  return compute == storage ? value : wk__k_round_to(e->h, value, storage);
}

/* ---- one element of a row that the kernel makes: its expression, computed again at that index ---- */

static wk__var emit_picked_load(emitter *e, int region, const wk__place *place, wk__var index) {
  wk__place own = *place;
  int loop = row_loop(e), k = own.indirect_count++;
  if (k == WK__REGION_INDIRECTS) {
    if (!e->h->status) e->h->status = unsupported();
    return 0;
  }
  own.indirect[k].value = 0;
  own.indirect[k].stride = own.stride[loop];
  own.indirect[k].size = e->group->loops[loop].size;
  own.stride[loop] = wk_int_of(0);
  own.per_element = false;
  wk__access a = access_of(e, region, &own, false);
  a.indirect[a.ndim - 1] = index;
  return wk__k_load(e->h, &a);
}

static wk__var emit_picked_index(emitter *e, const wk__place *place, wk__var index) {
  wk__place rest = *place;
  int loop = row_loop(e);
  wk_int stride = rest.stride[loop];
  rest.stride[loop] = wk_int_of(0);
  if (!wk_int_same(stride, wk_int_of(1))) index = wk__k_mul(e->h, index, emit_integer(e, stride));
  return wk__k_add(e->h, emit_index(e, &rest), index);
}

static wk__var emit_picked(emitter *e, int region, int v, wk__var index) {
  const wk__instr *i = instr_of(e, region, v);
  const cell *c = &e->cells[region][v];
  wk__var operands[3] = {0};
  if (c->needed && (i->op != WK__LOOP_load || c->source_region < 0) && !c->picked &&
      (is_reduction(i) || wk__loop_ops[i->op].arity == 0) && (!has_place(i) || !moves_along_row(e, region, i)))
    return c->var;
  if (i->op == WK__LOOP_load && c->source_region >= 0) {
    wk__var value =
        emit_picked(e, c->source_region, instr_of(e, c->source_region, c->source_instr)->operands[0], index);
    return as_stored(e, value, (wk_dtype)place_of(e, region, i)->dtype);
  }
  if (i->op == WK__LOOP_load) return emit_picked_load(e, region, place_of(e, region, i), index);
  if (i->op == WK__LOOP_index) return emit_picked_index(e, place_of(e, region, i), index);
  for (int k = 0; k < wk__loop_ops[i->op].arity; k++) operands[k] = emit_picked(e, region, i->operands[k], index);
  if (i->op == WK__LOOP_cast) return wk__k_cast(e->h, operands[0], (wk_dtype)i->dtype);
  if (i->op == WK__LOOP_round_to) return wk__k_round_to(e->h, operands[0], (wk_dtype)i->extra);
  if (i->op == WK__LOOP_check_index) { /* of an index that differs along the row */
    if (!e->h->status) e->h->status = unsupported();
    return 0;
  }
  return wk__k_op(e->h, (wk__loop_op)i->op, operands[0], operands[1], operands[2]);
}

static wk__var emit_load(emitter *e, int region, int v) {
  const wk__instr *i = instr_of(e, region, v);
  const cell *c = &e->cells[region][v];
  const wk__place *p = place_of(e, region, i);
  if (c->source_region >= 0) {
    int stored = instr_of(e, c->source_region, c->source_instr)->operands[0];
    wk__var value = p->indirect_count
                        ? emit_picked(e, c->source_region, stored, e->cells[region][p->indirect[0].value].var)
                        : e->cells[c->source_region][stored].var;
    return as_stored(e, value, (wk_dtype)p->dtype);
  }
  wk__access a = access_of(e, region, p, false);
  return wk__k_load(e->h, &a);
}

static void emit_store(emitter *e, int region, int v) {
  const wk__instr *i = instr_of(e, region, v);
  wk__access a = access_of(e, region, place_of(e, region, i), true);
  wk__k_store(e->h, &a, e->cells[region][i->operands[0]].var);
}

/* The size that an index is checked against is the size of the dim that it is used for. */
static bool size_by_use(emitter *e, int region, int check, wk_int *out) {
  const wk__region *r = e->group->regions[region];
  for (int v = 1; v < r->instr_count; v++) {
    const wk__instr *i = &r->instrs[v];
    if (i->op != WK__LOOP_load || !e->cells[region][v].needed || e->cells[region][v].source_region >= 0) continue;
    const wk__place *p = place_of(e, region, i);
    for (int k = 0; k < p->indirect_count; k++) {
      if (p->indirect[k].value != check || !wk_int_same(p->indirect[k].size, r->instrs[check].expression)) continue;
      wk__place merged = merged_place(e, p);
      int b = buffer_of(e, &merged, false);
      *out = wk_int_buffer_size(b, dims_of_buffer(e, &merged) - p->indirect_count + k);
      return true;
    }
  }
  return false;
}

/* The dim of a buffer that loop `l` goes through; false when none does yet. */
static bool size_by_loop(const emitter *e, int l, wk_int *out) {
  for (int b = 0; b < e->nest->buffer_count; b++) {
    int dim = 0;
    if (!uses_loop(e, &e->places[b], l)) continue;
    for (int k = 0; k < l; k++) dim += uses_loop(e, &e->places[b], k);
    *out = wk_int_buffer_size(b, dim);
    return true;
  }
  return false;
}

/* An index into a row that the kernel makes itself is checked against the row's length. */
static bool size_of_row(const emitter *e, wk_int size, wk_int *out) {
  for (int l = 0; l < e->loop_count; l++)
    if (e->loops[l].reduced && wk_int_same(e->loops[l].size, size) && size_by_loop(e, l, out)) return true;
  return false;
}

static wk__var emit_check(emitter *e, int region, int v) {
  const wk__instr *i = instr_of(e, region, v);
  wk_int size = i->expression;
  if (!size_by_use(e, region, v, &size) && !size_of_row(e, size, &size) && !wk_int_is_known(size)) {
    if (!e->h->status) e->h->status = unsupported();
    return 0;
  }
  e->index_op = e->group->regions[region]->node->op;
  wk__var index = e->cells[region][i->operands[0]].var;
  return i->extra ? wk__k_check_place(e->h, index, size) : wk__k_check_index(e->h, index, size);
}

static wk__var emit_instr(emitter *e, int region, int v) {
  const wk__instr *i = instr_of(e, region, v);
  const cell *cells = e->cells[region];
  wk__var a = cells[i->operands[0]].var, b = cells[i->operands[1]].var, c = cells[i->operands[2]].var;
  switch (i->op) {
    case WK__LOOP_load:
      return emit_load(e, region, v);
    case WK__LOOP_store:
      emit_store(e, region, v);
      return 0;
    case WK__LOOP_index:
      return emit_index(e, place_of(e, region, i));
    case WK__LOOP_check_index:
      return emit_check(e, region, v);
    case WK__LOOP_param:
      return emit_number(e, region, i);
    case WK__LOOP_constant: {
      wk__instr own = {.op = i->op, .dtype = i->dtype, .number = i->number};
      return e->h->emit(e->h, &own, NULL);
    }
    case WK__LOOP_cast:
      return wk__k_cast(e->h, a, (wk_dtype)i->dtype);
    case WK__LOOP_round_to:
      return wk__k_round_to(e->h, a, (wk_dtype)i->extra);
    default:
      return wk__k_op(e->h, (wk__loop_op)i->op, a, b, c);
  }
}

/* Loops have the size that a buffer has there; every loop is used by some. */
static wk_status emit_loops(emitter *e) {
  wk__nest *n = e->nest;
  if (e->geometry_free) {
    n->geometry_free = true;
    n->pointwise_dims = 1;
    n->sizes[0] = wk_int_buffer_size(n->buffer_count - 1, 0);
    return WK_OK;
  }
  for (int reduced = 0; reduced < 2; reduced++)
    for (int l = 0; l < e->loop_count; l++) {
      if (e->loops[l].reduced != reduced) continue;
      wk_int size = e->loops[l].size;
      if (!size_by_loop(e, l, &size) && !wk_int_is_known(size)) return unsupported();
      n->sizes[n->pointwise_dims + n->reduction_dims] = size;
      *(reduced ? &n->reduction_dims : &n->pointwise_dims) += 1;
    }
  return WK_OK;
}

static wk_status emit_body(emitter *e) {
  const wk__group *g = e->group;
  for (int r = 0; r < g->region_count; r++)
    for (int v = 1; v < g->regions[r]->instr_count && !e->h->status; v++)
      if (e->cells[r][v].needed) e->cells[r][v].var = emit_instr(e, r, v);
  WK_TRY(e->h->status);
  return emit_loops(e);
}

/* ---- the operator ---- */

static void describe_buffer(emitter *e, wk__fused *f, int b) {
  const wk__place *p = &e->places[b];
  wk__fused_buffer *out = &f->buffers[b];
  int position = 0;
  while ((e->written[b] ? e->outputs[position] : e->inputs[position]) != p->memory) position++;
  out->input = (int16_t)(e->written[b] ? -1 - position : position);
  out->offset = add_number(e, p->offset);
  out->sizes = e->geometry_free ? -1 : (int32_t)e->number_count;
  for (int l = 0; l < e->loop_count && !e->geometry_free; l++)
    if (uses_loop(e, p, l)) add_number(e, e->loops[l].size);
  for (int k = 0; k < p->indirect_count; k++) add_number(e, p->indirect[k].size);
  out->strides = (int32_t)e->number_count;
  for (int l = 0; l < e->loop_count; l++)
    if (uses_loop(e, p, l)) add_number(e, p->stride[l]);
  for (int k = 0; k < p->indirect_count; k++) add_number(e, p->indirect[k].stride);
  if (e->geometry_free && e->loop_count == 0) add_number(e, wk_int_of(0));
}

static void describe_output(emitter *e, wk__fused *f, int r) {
  const wk_tensor *t = e->outputs[r]->value;
  wk__fused_output *out = &f->outputs[r];
  *out = (wk__fused_output){.dtype = t->dtype, .ndim = t->ndim, .sizes = (int32_t)e->number_count};
  for (int d = 0; d < t->ndim; d++) add_number(e, t->sizes[d]);
  out->strides = (int32_t)e->number_count;
  for (int d = 0; d < t->ndim; d++) add_number(e, t->strides[d]);
}

/* An input of the result's layout is read where the result is written, so it may be that one memory. */
static bool may_write_input(const emitter *e) {
  const wk__place *out = NULL;
  if (!e->geometry_free || e->output_count != 1) return false;
  for (int b = 0; b < e->nest->buffer_count; b++)
    if (e->written[b]) out = &e->places[b];
  for (int b = 0; b < e->nest->buffer_count; b++) {
    const wk__place *p = &e->places[b];
    bool whole = wk_int_same(p->memory->value->numel, out->memory->value->numel);
    if (whole && (!same_strides(p, out, e->loop_count) || !wk_int_same(p->offset, out->offset))) return false;
  }
  return true;
}

static wk_status describe(emitter *e, wk__fused *f) {
  f->buffer_count = e->nest->buffer_count;
  f->param_count = e->param_count;
  f->index_op = e->index_op;
  memcpy(f->params, e->params, sizeof f->params);
  f->loop_sizes = -1;
  if (may_write_input(e)) f->op.tags |= WK__TAG_POINTWISE;
  if (e->geometry_free) {
    f->ndim = wk__max(e->loop_count, 1);
    f->loop_sizes = (int32_t)e->number_count;
    for (int l = 0; l < e->loop_count; l++) add_number(e, e->loops[l].size);
    if (e->loop_count == 0) add_number(e, wk_int_of(1));
  }
  for (int b = 0; b < f->buffer_count; b++) describe_buffer(e, f, b);
  for (int r = 0; r < e->output_count; r++) describe_output(e, f, r);
  return e->h->status;
}

/* "native_layer_norm_gelu": what it computes, as far as a name may go. */
static void name_node(const wk__group *g, char *out, size_t size) {
  int at = snprintf(out, size, "fused");
  const char *last = "";
  for (int r = 0; r < g->region_count && at < (int)size - 28; r++) {
    const char *name = g->regions[r]->node->op->base_name;
    if (strcmp(name, last)) at += snprintf(out + at, size - (size_t)at, "%s%.24s", *name == '_' ? "" : "_", name);
    last = name;
  }
}

static char *origin_of(const wk__group *g) {
  wk__string text = {0};
  for (int r = 0; r < g->region_count; r++) {
    const wk__graph_node *n = g->regions[r]->node;
    wk__string_printf(&text, "%%%s = %s", n->name, n->op->name);
    if (n->place) wk__string_printf(&text, "  %s:%d in %s", n->place->file, n->place->line, n->place->function);
    wk__string_append(&text, "\n");
  }
  return wk__string_take(&text);
}

/* Results stand for the nodes; where the group's old nodes use them that does not matter, they are going. */
static wk_status call_kernel(emitter *e, wk__fused *f, wk__graph_node **out_node) {
  const wk_tensor *values[MAX_PLACES];
  wk__graph_arg args[2 + WK__FUSED_NUMBERS];
  char name[96];
  name_node(e->group, name, sizeof name);
  memset(args, 0, sizeof args);
  for (int i = 0; i < e->input_count; i++) e->inputs[i] = e->now[e->inputs[i]->number];
  args[0] = (wk__graph_arg){.tag = WK_VALUE_TENSORS, .count = (uint32_t)e->input_count, .nodes = e->inputs};
  args[1] = (wk__graph_arg){.tag = WK_VALUE_INTS, .count = (uint32_t)e->number_count, .integers = e->numbers};
  for (int i = 0; i < WK__FUSED_NUMBERS; i++)
    args[2 + i] = i < e->float_count ? e->floats[i] : (wk__graph_arg){.tag = WK_VALUE_DOUBLE, .number = 0};
  for (int r = 0; r < e->output_count; r++) values[r] = e->outputs[r]->value;
  wk__graph_node *node = wk__graph_call(e->graph, &f->op, args, values, e->output_count, name);
  if (!node) return wk_error_category();
  node->place = e->outputs[0]->kind == WK__GRAPH_ITEM ? e->outputs[0]->args[0].node->place : e->outputs[0]->place;
  for (int r = 0; r < e->output_count; r++) {
    wk__graph_node *by = e->output_count == 1 ? node : wk__graph_item(e->graph, node, r);
    if (!by) return wk_error_category();
    wk__graph_replace_uses(e->graph, (wk__graph_node *)e->outputs[r], by);
    e->now[e->outputs[r]->number] = by;
  }
  *out_node = node;
  return WK_OK;
}

static wk_status make_kernel(emitter *e, wk__kernels *kernels, wk__shape_env *env, wk__graph_node **out_node) {
  wk__fused *f = wk__kernels_add(kernels, e->output_count);
  wk_status status = f ? describe(e, f) : WK_OUT_OF_MEMORY;
  if (status == WK_OK && !(f->origin = origin_of(e->group))) status = wk_error_category();
  if (status != WK_OK) {
    wk__nest_release(e->nest);
    wk__shape_env_release(env);
    return status;
  }
#ifdef WICK_DEBUG
  WK_TRY(wk__nest_verify(e->nest));
#endif
  f->kernel = wk__kernel_get(e->nest, env);
  return f->kernel ? call_kernel(e, f, out_node) : wk_error_category();
}

/* Expressions over loops and buffer sizes belong to an environment that the kernel keeps. */
static wk_status write_nest(emitter *e, wk__shape_env *env) {
  wk__shape_env *outer = wk__shape_env_set_current(env);
  wk__recorder_init(&e->recorder, e->nest);
  e->h = &e->recorder.handler;
  wk_status status = emit_body(e);
  wk__shape_env_set_current(outer);
  return status;
}

static wk_status emit_with(emitter *e, wk__kernels *kernels, wk__graph_node **out_node) {
  find_needed(e);
  merge_loops(e);
  e->geometry_free = every_place(e, is_free_of_geometry, 0, 0);
  for (int l = 0; l < e->loop_count; l++) e->geometry_free &= !e->loops[l].reduced;
  wk__shape_env *env = wk__shape_env_create();
  e->nest = wk__nest_create();
  wk_status status = env && e->nest ? write_nest(e, env) : WK_OUT_OF_MEMORY;
  if (status == WK_OK && e->output_count) return make_kernel(e, kernels, env, out_node);
  wk__nest_release(e->nest);
  wk__shape_env_release(env);
  return status;
}

wk_status wk__emit_group(wk__graph *graph, const wk__group *group, wk__is_wanted_fn *is_wanted, void *context,
                         wk__kernels *kernels, wk__graph_node **now, wk__graph_node **out_node) {
  *out_node = NULL;
  size_t cells = 0;
  for (int r = 0; r < group->region_count; r++) cells += (size_t)group->regions[r]->instr_count + 1;
  emitter *e = wk__alloc_zeroed(sizeof *e);
  cell **rows = wk__alloc_zeroed((size_t)group->region_count * sizeof *rows + cells * sizeof(cell));
  wk_status status = e && rows ? WK_OK : WK_OUT_OF_MEMORY;
  if (status == WK_OK) {
    cell *next = (cell *)(rows + group->region_count);
    for (int r = 0; r < group->region_count; r++) {
      rows[r] = next;
      next += group->regions[r]->instr_count + 1;
    }
    *e = (emitter){
        .group = group, .graph = graph, .now = now, .is_wanted = is_wanted, .context = context, .cells = rows};
    status = emit_with(e, kernels, out_node);
  }
  if (e) wk__free(e->numbers);
  wk__free(rows);
  wk__free(e);
  return status;
}
