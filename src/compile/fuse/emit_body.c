/* The nest of a group: buffers, instructions, sizes. Everything that differs between launches becomes a number.
 * In: needed cells over merged loops. Out: the nest, its inputs, outputs, params and numbers.
 * Tests: tests/c/test_compile.c. */
#include "compile/fuse/emit.h"

static wk_int loop_variable(const wk__emitter *e, int loop) {
  int before = 0;
  for (int l = 0; l < loop; l++) before += e->loops[l].reduced == e->loops[loop].reduced;
  return e->loops[loop].reduced ? wk__loop_r(before) : wk__loop_i(before);
}

/* ---- numbers ---- */

int32_t wk__emit_add_number(wk__emitter *e, wk_int x) {
  if (wk__grow(&e->numbers, &e->number_capacity, e->number_count + 1, sizeof *e->numbers) != WK_OK) {
    e->h->status = WK_OUT_OF_MEMORY;
    return 0;
  }
  e->numbers[e->number_count] = x;
  return (int32_t)e->number_count++;
}

static wk__var emit_param(wk__emitter *e, wk__fused_param param, wk_dtype dtype) {
  for (int i = 0; i < e->param_count; i++)
    if (param.argument >= 0 && e->params[i].argument == param.argument) return wk__k_param(e->h, i, dtype);
  if (e->param_count == (int)WK_COUNT(e->params)) {
    e->h->status = unsupported();
    return 0;
  }
  e->params[e->param_count] = param;
  return wk__k_param(e->h, e->param_count++, dtype);
}

static wk__var emit_integer(wk__emitter *e, wk_int x) {
  if (wk_int_is_known(x) && x.bits < INT64_C(1) << 53 && x.bits > -(INT64_C(1) << 53)) return wk__k_index(e->h, x);
  return emit_param(e, (wk__fused_param){-1, wk__emit_add_number(e, x)}, WK_INT64);
}

/* A number of the node: a number input, else an integer. */
static wk__var emit_number(wk__emitter *e, int region, const wk__instr *instr) {
  const wk__graph_arg *arg = &e->group->regions[region]->node->args[instr->extra];
  if (arg->tag == WK_VALUE_INT)
    return emit_param(e, (wk__fused_param){-1, wk__emit_add_number(e, arg->integer)}, (wk_dtype)instr->dtype);
  for (int i = 0; i < e->float_count; i++)
    if (wk__graph_same_arg(&e->floats[i], arg))
      return emit_param(e, (wk__fused_param){(int16_t)i, 0}, (wk_dtype)instr->dtype);
  if (e->float_count == WK__FUSED_NUMBERS) {
    e->h->status = unsupported();
    return 0;
  }
  e->floats[e->float_count] = *arg;
  return emit_param(e, (wk__fused_param){(int16_t)e->float_count++, 0}, (wk_dtype)instr->dtype);
}

/* ---- buffers ---- */

int wk__emit_input(wk__emitter *e, const wk__graph_node *node) {
  for (int i = 0; i < e->input_count; i++)
    if (e->inputs[i] == node) return i;
  if (e->input_count == MAX_PLACES) {
    if (!e->h->status) e->h->status = unsupported();
    return 0;
  }
  e->inputs[e->input_count] = (wk__graph_node *)node;
  return e->input_count++;
}

static void add_output(wk__emitter *e, wk__memory memory) {
  for (int r = 0; r < e->output_count; r++)
    if (e->outputs[r] == memory) return;
  e->outputs[e->output_count++] = memory;
}

static void add_draw(wk__emitter *e) {
  e->reads_draw = true;
  if (e->is_wanted(e->context, e->group->draw)) add_output(e, e->group->draw);
}

/* The product's own result, where it is wanted as well. */
static void add_whole(wk__emitter *e) {
  if (e->group->home == e->group->whole) add_output(e, e->group->whole);
}

/* Of the memory, along the coordinates that may leave it. */
static bool same_bounds(const wk__place *a, const wk__place *b) {
  if (a->bound_count != b->bound_count) return false;
  for (int k = 0; k < a->bound_count; k++)
    if (!wk_int_same(a->bounds[k].size, b->bounds[k].size) || !wk_int_same(a->bounds[k].stride, b->bounds[k].stride))
      return false;
  return true;
}

static bool same_buffer(const wk__emitter *e, int b, const wk__place *p, bool written) {
  const wk__place *own = &e->places[b];
  if (own->memory != p->memory || e->written[b] != written || !wk_int_same(own->offset, p->offset)) return false;
  if (!same_strides(own, p, e->loop_count) || own->indirect_count != p->indirect_count || !same_bounds(own, p))
    return false;
  for (int k = 0; k < p->indirect_count; k++)
    if (!wk_int_same(own->indirect[k].stride, p->indirect[k].stride) ||
        !wk_int_same(own->indirect[k].size, p->indirect[k].size))
      return false;
  return own->per_element == p->per_element;
}

static int dims_of_buffer(const wk__emitter *e, const wk__place *p) {
  int dims = 0;
  if (e->geometry_free) return 1;
  for (int l = 0; l < e->loop_count; l++) dims += uses_loop(e, p, l);
  return dims + p->indirect_count + p->bound_count;
}

/* Where the place's memory lies over the loops after merging. */
static wk__place merged_place(const wk__emitter *e, const wk__place *p) {
  wk__place merged = *p;
  for (int l = 0; l < WK__REGION_LOOPS; l++) {
    bool is_there = l < e->loop_count;
    merged.stride[l] = is_there ? p->stride[e->loop_from[l]] : wk_int_of(0);
    for (int b = 0; b < p->bound_count; b++)
      merged.bounds[b].step[l] = is_there ? p->bounds[b].step[e->loop_from[l]] : wk_int_of(0);
  }
  return merged;
}

static int buffer_of(wk__emitter *e, const wk__place *merged, bool written) {
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
    add_output(e, merged->memory);
  else if (merged->memory == e->group->draw)
    add_draw(e);
  else if (merged->memory == e->group->whole)
    add_whole(e);
  else
    (void)wk__emit_input(e, merged->memory);
  return count;
}

/* A coordinate is part of the body: a start or a step that is a symbol has no place there. */
static wk_int coordinate_of(wk__emitter *e, const wk__bound *bound) {
  wk_int index = bound->start;
  bool known = wk_int_is_known(bound->start);
  for (int l = 0; l < e->loop_count; l++) {
    known &= wk_int_is_known(bound->step[l]);
    if (known) index = wk_int_add(index, wk_int_mul(bound->step[l], loop_variable(e, l)));
  }
  if (!known && !e->h->status) e->h->status = unsupported();
  return known ? index : wk_int_of(0);
}

static wk__access access_of(wk__emitter *e, int region, const wk__place *place, bool written) {
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
  for (int k = 0; k < merged.bound_count; k++) {
    a.may_leave |= (uint16_t)(1u << a.ndim);
    a.index[a.ndim++] = coordinate_of(e, &merged.bounds[k]);
  }
  return a;
}

/* ---- instructions ---- */

static wk__var emit_index(wk__emitter *e, const wk__place *place) {
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
static wk__var as_stored(wk__emitter *e, wk__var value, wk_dtype storage) {
  wk_dtype compute = (wk_dtype)wk__dtypes[storage].compute;
  value = wk__k_cast(e->h, value, compute);
  return compute == storage ? value : wk__k_round_to(e->h, value, storage);
}

/* ---- one element of a row that the kernel makes: its expression, computed again at that index ---- */

static wk__var emit_picked_load(wk__emitter *e, int region, const wk__place *place, wk__var index) {
  wk__place own = *place;
  int loop = row_loop(e), k = own.indirect_count++;
  if (k == WK__REGION_INDIRECTS || own.bound_count) {
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

static wk__var emit_picked_index(wk__emitter *e, const wk__place *place, wk__var index) {
  wk__place rest = *place;
  int loop = row_loop(e);
  wk_int stride = rest.stride[loop];
  rest.stride[loop] = wk_int_of(0);
  if (!wk_int_same(stride, wk_int_of(1))) index = wk__k_mul(e->h, index, emit_integer(e, stride));
  return wk__k_add(e->h, emit_index(e, &rest), index);
}

static wk__var emit_picked(wk__emitter *e, int region, int v, wk__var index) {
  const wk__instr *i = instr_of(e, region, v);
  const wk__emit_cell *c = &e->cells[region][v];
  wk__var operands[3] = {0};
  if (c->needed && (!wk__loop_is_load(i->op) || c->source_region < 0) && !c->picked &&
      (wk__loop_is_reduction(i->op) || wk__loop_ops[i->op].arity == 0) &&
      (!has_place(i) || !moves_along_row(e, region, i)))
    return c->var;
  if (wk__loop_is_load(i->op) && c->source_region >= 0) {
    wk__var value =
        emit_picked(e, c->source_region, instr_of(e, c->source_region, c->source_instr)->operands[0], index);
    return as_stored(e, value, (wk_dtype)place_of(e, region, i)->dtype);
  }
  if (wk__loop_is_load(i->op)) return emit_picked_load(e, region, place_of(e, region, i), index);
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

static wk__var emit_load(wk__emitter *e, int region, int v) {
  const wk__instr *i = instr_of(e, region, v);
  const wk__emit_cell *c = &e->cells[region][v];
  const wk__place *p = place_of(e, region, i);
  if (c->source_region >= 0) {
    int stored = instr_of(e, c->source_region, c->source_instr)->operands[0];
    wk__var value = p->indirect_count
                        ? emit_picked(e, c->source_region, stored, e->cells[region][p->indirect[0].value].var)
                        : e->cells[c->source_region][stored].var;
    return as_stored(e, value, (wk_dtype)p->dtype);
  }
  wk__access a = access_of(e, region, p, false);
  if (i->op == WK__LOOP_masked_load) return wk__k_masked_load(e->h, &a, e->cells[region][i->operands[0]].var);
  return wk__k_load(e->h, &a);
}

static void emit_store(wk__emitter *e, int region, int v) {
  const wk__instr *i = instr_of(e, region, v);
  wk__access a = access_of(e, region, place_of(e, region, i), true);
  wk__k_store(e->h, &a, e->cells[region][i->operands[0]].var);
}

/* The size that an index is checked against is the size of the dim that it is used for. */
static bool size_by_use(wk__emitter *e, int region, int check, wk_int *out) {
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
static bool size_by_loop(const wk__emitter *e, int l, wk_int *out) {
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
static bool size_of_row(const wk__emitter *e, wk_int size, wk_int *out) {
  for (int l = 0; l < e->loop_count; l++)
    if (e->loops[l].reduced && wk_int_same(e->loops[l].size, size) && size_by_loop(e, l, out)) return true;
  return false;
}

static wk__var emit_check(wk__emitter *e, int region, int v) {
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

static wk__var emit_instr(wk__emitter *e, int region, int v) {
  const wk__instr *i = instr_of(e, region, v);
  const wk__emit_cell *cells = e->cells[region];
  wk__var a = cells[i->operands[0]].var, b = cells[i->operands[1]].var, c = cells[i->operands[2]].var;
  switch (i->op) {
    case WK__LOOP_load:
    case WK__LOOP_masked_load:
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
static wk_status emit_loops(wk__emitter *e) {
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

wk_status wk__emit_body(wk__emitter *e) {
  const wk__group *g = e->group;
  for (int r = 0; r < g->region_count; r++)
    for (int v = 1; v < g->regions[r]->instr_count && !e->h->status; v++)
      if (e->cells[r][v].needed) e->cells[r][v].var = emit_instr(e, r, v);
  WK_TRY(e->h->status);
  return emit_loops(e);
}
