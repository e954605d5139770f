/* The derivative rule of a scan: calls of the scan that scan_derive.c makes.
 * In: gradients of what was carried in the end and of the stacks. Out: gradients of what was carried at first, of
 * stacks and of what is closed over. Tests: tests/python/capture/test_scans.py. */
#include "compile/control/internal.h"

typedef struct rule {
  wk__vjp *v;
  wk__control *c;
  int operands, results;
  bool *wanted;       /* owned, (operands) */
  uint8_t *defined;   /* in the same memory, (results) */
  wk_tensor **kept;   /* owned list, borrowed tensors: what was carried into each slice */
  wk_tensor **ends;   /* the same, (carried): gradients of what the last slice carries on; NULL: none */
  wk_tensor **joined; /* the same: of stacks of what is carried, moved by one slice; NULL: none */
  wk_tensor **list;   /* owned list, borrowed tensors: operands of the derivative */
  wk_tensor **grads;  /* owned list, borrowed tensors, (operands): what the derivative gives; NULL: nothing */
} rule;

/* ---- calls ---- */

static wk_status keep(wk_tensor *steal_tensor, wk_tensor **out) {
  *out = steal_tensor;
  return steal_tensor ? WK_OK : wk_error_category();
}

static wk_status zeros_like(const wk_tensor *t, wk_tensor **out) {
  wk_value args[] = {wk__v_tensor((wk_tensor *)t), {0}, {0}, {.tag = WK_VALUE_STRING, .string = "contiguous_format"}};
  return keep(wk__call_tensor(WK__OP(zeros_like), args), out);
}

/* -0, to which anything is added without a change. */
static wk_status no_sum(const wk_tensor *t, wk_tensor **out) {
  wk_tensor *zeros;
  WK_TRY(zeros_like(t, &zeros));
  wk_value args[] = {wk__v_tensor(zeros)};
  return keep(wk__call_tensor(WK__OP(neg), args), out);
}

static wk_status narrow(wk_tensor *t, wk_int start, wk_int length, wk_tensor **out) {
  wk_value args[] = {
      wk__v_tensor(t), wk__v_int(0), {.tag = WK_VALUE_INT, .integer = start}, {.tag = WK_VALUE_INT, .integer = length}};
  return keep(wk__call_tensor(WK__OP(narrow), args), out);
}

/* ---- what was carried into each slice ---- */

static wk_status make_keeping(wk__control *c) {
  wk__control_form form = {
      .kind = WK__SCAN, .carried = c->carried, .slices = c->slices, .reversed = c->reversed, .keeps = true};
  return wk__control_create(&form, NULL, wk__graph_retain(c->parts[0].graph), NULL, &c->keeping);
}

/* The scan has not kept it: once more. */
static wk_status scan_again(rule *r) {
  wk__control *c = r->c;
  pthread_mutex_lock(&c->lock);
  wk_status status = c->keeping ? WK_OK : make_keeping(c);
  pthread_mutex_unlock(&c->lock);
  if (status != WK_OK) return status;
  if (atomic_load(&c->compiles)) wk__control_compile(c->keeping);
  int count = wk__control_results(wk__control_of(c->keeping)), first = count - c->carried;
  wk_value args[] = {r->v->args[0]}, made[WK__MAX_RESULTS] = {0};
  WK_TRY(wk_call(c->keeping, args, NULL, made));
  bool list = c->keeping->schema.result_is_list;
  for (int k = 0; k < count; k++) {
    wk_tensor *t = list ? wk__retain(made[0].tensors[k]) : made[k].tensor;
    wk__scope_add(t);
    if (k >= first) r->kept[k - first] = t;
  }
  if (list) wk_value_release(&made[0]);
  return WK_OK;
}

static wk_status find_kept(rule *r) {
  if (!r->c->carried) return WK_OK;
  if (r->c->op.schema.result_is_list) return scan_again(r);
  memcpy(r->kept, r->v->results + r->results - r->c->carried, (size_t)r->c->carried * sizeof *r->kept);
  return WK_OK;
}

/* ---- stacks of what is carried ---- */

static wk_status add(wk_tensor *a, wk_tensor *b, wk_tensor **out) {
  wk_value args[] = {wk__v_tensor(a), wk__v_tensor(b), wk__v_int(1)};
  return keep(wk__call_tensor(WK__OP(add_Tensor), args), out);
}

static wk_status join(wk_tensor *a, wk_tensor *b, wk_tensor **out) {
  wk_tensor *both[] = {a, b};
  wk_value args[] = {{.tag = WK_VALUE_TENSORS, .count = 2, .tensors = both}, wk__v_int(0)};
  return keep(wk__call_tensor(WK__OP(cat), args), out);
}

/* b behind what there is. */
static wk_status add_to(wk_tensor **sum, wk_tensor *b) {
  if (*sum) return add(*sum, b, sum);
  *sum = b;
  return WK_OK;
}

/* Of the slice that the scan does last. */
static wk_status last_of(const rule *r, wk_tensor *stack, wk_tensor **out) {
  wk_int place = r->c->reversed ? wk_int_of(0) : wk_int_sub(stack->sizes[0], wk_int_of(1));
  wk_value args[] = {wk__v_tensor(stack), wk__v_int(0), {.tag = WK_VALUE_INT, .integer = place}};
  wk_tensor *slice = wk__call_tensor(WK__OP(select_int), args);
  wk_value copy[] = {wk__v_tensor(slice), {.tag = WK_VALUE_STRING, .string = "contiguous_format"}};
  return slice ? keep(wk__call_tensor(WK__OP(clone), copy), out) : wk_error_category();
}

/* Later stacks give their gradients first. */
static wk_status add_joined(rule *r, int carried, wk_tensor **sum) {
  for (int k = r->results - 1; k >= r->c->carried; k--) {
    if (r->defined[k] != WK__GRAD_JOINED || wk__control_joined_with(r->c, k) != carried) continue;
    wk_tensor *grad, *last;
    WK_TRY(wk__control_gradient(r->v, k, &grad));
    WK_TRY(last_of(r, grad, &last));
    WK_TRY(add_to(&r->ends[carried], last));
    WK_TRY(add_to(sum, grad));
  }
  return WK_OK;
}

/* Each slice to where the scan's next one is; nothing to the first. */
static wk_status move_by_one(const rule *r, wk_tensor *stack, wk_tensor **out) {
  wk_int one = wk_int_of(1), rest = wk_int_sub(stack->sizes[0], one), start = wk_int_of(0);
  wk_tensor *others, *nothing;
  WK_TRY(narrow(stack, r->c->reversed ? one : start, rest, &others));
  WK_TRY(narrow(stack, start, one, &nothing));
  WK_TRY(no_sum(nothing, &nothing));
  return r->c->reversed ? join(others, nothing, out) : join(nothing, others, out);
}

static wk_status find_ends(rule *r) {
  for (int i = 0; i < r->c->carried; i++) {
    wk_tensor *sum = NULL;
    if (r->v->grads[i]) WK_TRY(wk__control_gradient(r->v, i, &r->ends[i]));
    WK_TRY(add_joined(r, i, &sum));
    if (sum) WK_TRY(move_by_one(r, sum, &r->joined[i]));
  }
  return WK_OK;
}

/* ---- the operands of the derivative ---- */

static wk_status add_ends(rule *r, wk_tensor ***at) {
  for (int i = 0; i < r->c->carried; i++) {
    if (r->ends[i])
      *(*at)++ = r->ends[i];
    else if (r->defined[i] != WK__GRAD_NONE)
      WK_TRY(zeros_like(r->v->args[0].tensors[i], (*at)++));
  }
  return WK_OK;
}

static wk_status add_gradients(rule *r, wk_tensor ***at) {
  for (int k = r->c->carried; k < r->results; k++)
    if (r->defined[k] == WK__GRAD_GIVEN) WK_TRY(wk__control_gradient(r->v, k, (*at)++));
  for (int i = 0; i < r->c->carried; i++)
    if (r->joined[i]) *(*at)++ = r->joined[i];
  return WK_OK;
}

static wk_status add_operands(rule *r) {
  const wk__control *c = r->c;
  wk_tensor *const *given = r->v->args[0].tensors, **at = r->list;
  int closed = c->carried + c->slices;
  WK_TRY(add_ends(r, &at));
  for (int i = closed; i < r->operands; i++)
    if (r->wanted[i]) WK_TRY(no_sum(given[i], at++));
  memcpy(at, r->kept, (size_t)c->carried * sizeof *at);
  at += c->carried;
  memcpy(at, given + c->carried, (size_t)c->slices * sizeof *at);
  at += c->slices;
  WK_TRY(add_gradients(r, &at));
  memcpy(at, given + closed, (size_t)(r->operands - closed) * sizeof *at);
  return WK_OK;
}

/* ---- the calls of the derivative ---- */

static wk_status call(const rule *r, const wk__control_derivative *d, wk_tensor **list, wk_tensor **out) {
  const wk__control *made = wk__control_of(d->op);
  if (atomic_load(&r->c->compiles)) wk__control_compile(d->op);
  wk_value args[] = {{.tag = WK_VALUE_TENSORS, .count = (uint32_t)wk__control_operands(made), .tensors = list}};
  wk_value results = {0};
  WK_TRY(wk_call(d->op, args, NULL, &results));
  for (uint32_t k = 0; k < results.count; k++) {
    out[k] = wk__retain(results.tensors[k]);
    wk__scope_add(out[k]);
  }
  wk_value_release(&results);
  return WK_OK;
}

static wk_status only(const wk__control *made, wk_tensor **list, wk_int start, wk_int length, wk_tensor **out) {
  memcpy(out, list, (size_t)wk__control_operands(made) * sizeof *out);
  for (int i = made->carried; i < made->carried + made->slices; i++) WK_TRY(narrow(list[i], start, length, &out[i]));
  return WK_OK;
}

/* Of the slice that the scan did last other gradients are given than of those before it. */
static wk_status call_in_two(rule *r, const wk__control_derivative *last, const wk__control_derivative *others,
                             wk_tensor **out) {
  const wk__control *made = wk__control_of(others->op);
  int results = wk__control_results(made);
  size_t count = (size_t)wk__control_operands(made);
  wk_int slices = r->list[made->carried]->sizes[0], one = wk_int_of(1), rest = wk_int_sub(slices, one);
  bool front = r->c->reversed; /* where that slice is */
  wk_tensor **space = wk__alloc_zeroed((count + 2 * (size_t)results + 1) * sizeof *space);
  wk_tensor **list = space, **first = space + count, **then = first + results;
  wk_status status = space ? WK_OK : WK_OUT_OF_MEMORY;
  if (status == WK_OK) status = only(made, r->list, front ? wk_int_of(0) : rest, one, list);
  if (status == WK_OK) status = call(r, last, list, first);
  if (status == WK_OK) status = only(made, r->list, front ? one : wk_int_of(0), rest, list);
  if (status == WK_OK) {
    memcpy(list, first, (size_t)made->carried * sizeof *list);
    status = call(r, others, list, then);
  }
  for (int k = 0; status == WK_OK && k < results; k++) {
    if (k < made->carried)
      out[k] = then[k];
    else
      status = front ? join(first[k], then[k], &out[k]) : join(then[k], first[k], &out[k]);
  }
  wk__free(space);
  return status;
}

/* ---- gradients of the operands ---- */

/* Plain code adds the slices' gradients to zeros. */
static wk_status as_if_added(wk_tensor *t, wk_tensor **out) {
  wk_tensor *zeros;
  WK_TRY(zeros_like(t, &zeros));
  return add(t, zeros, out);
}

static wk_status set_gradients(rule *r, const int *uses, wk_tensor **made) {
  const wk__control *c = r->c;
  int closed = c->carried + c->slices;
  for (int i = 0; i < c->carried; i++) {
    if (r->defined[i] == WK__GRAD_NONE) continue;
    if (r->wanted[i] && uses[i]) WK_TRY(wk__vjp_set(r->v, wk__list_input(r->v, 0, i), *made));
    made++;
  }
  for (int k = 0; k < r->operands - c->carried; k++) { /* sums stand in front of stacks */
    int i = k < r->operands - closed ? closed + k : c->carried + k - (r->operands - closed);
    if (!r->wanted[i]) continue;
    wk_tensor *grad = *made++;
    if (!uses[i]) continue;
    if (i < closed) WK_TRY(as_if_added(grad, &grad));
    WK_TRY(wk__vjp_set(r->v, wk__list_input(r->v, 0, i), grad));
  }
  return WK_OK;
}

/* Which of the carried ones have gradients in some slice, when those that do in the last are these. */
static wk_status find_flows(rule *r, const wk__control_derivative **out) {
  for (bool more = true; more;) {
    more = false;
    WK_TRY(wk__control_derivative_of(r->c, r->wanted, r->defined, out));
    for (int i = 0; i < r->c->carried; i++) {
      if (!(*out)->uses[i] || r->defined[i] != WK__GRAD_NONE) continue;
      r->defined[i] = WK__GRAD_GIVEN;
      more = true;
    }
  }
  return WK_OK;
}

static wk_status last_slice(rule *r, const wk__control_derivative **out) {
  for (int i = 0; i < r->c->carried; i++)
    if (r->defined[i] == WK__GRAD_GIVEN && !r->ends[i]) r->defined[i] = WK__GRAD_LATER;
  return wk__control_derivative_of(r->c, r->wanted, r->defined, out);
}

static void begin(rule *r) {
  for (int k = 0; k < r->results; k++) {
    if (!r->v->grads[k]) continue;
    int carried = wk__control_joined_with(r->c, k);
    r->defined[k] = carried < 0 ? WK__GRAD_GIVEN : WK__GRAD_JOINED;
    if (carried >= 0) r->defined[carried] = WK__GRAD_GIVEN;
  }
}

static wk_status apply(rule *r) {
  const wk__control_derivative *others, *last;
  wk_tensor **made;
  begin(r);
  WK_TRY(find_ends(r));
  WK_TRY(find_flows(r, &others));
  WK_TRY(last_slice(r, &last));
  if (!wk__control_results(wk__control_of(others->op))) return WK_OK;
  WK_TRY(find_kept(r));
  WK_TRY(add_operands(r));
  made = r->grads;
  WK_TRY(last == others ? call(r, others, r->list, made) : call_in_two(r, last, others, made));
  return set_gradients(r, others->uses, made);
}

wk_status wk__control_differentiate_scan(wk__vjp *v) {
  wk__control *c = wk__control_of(v->op);
  rule r = {.v = v, .c = c, .operands = wk__control_operands(c), .results = v->result_count};
  size_t operands = (size_t)r.operands, results = (size_t)r.results, carried = (size_t)c->carried;
  wk_tensor **space = wk__alloc_zeroed((3 * operands + results + 6 * carried + 1) * sizeof *space);
  r.wanted = wk__alloc_zeroed(operands + results + 1);
  wk_status status = space && r.wanted ? WK_OK : WK_OUT_OF_MEMORY;
  if (status == WK_OK) {
    r.defined = (uint8_t *)r.wanted + operands;
    r.kept = space;
    r.ends = r.kept + carried;
    r.joined = r.ends + carried;
    r.grads = r.joined + carried;
    r.list = r.grads + operands;
    wk__control_wants(v, c, r.wanted);
    status = apply(&r);
  }
  wk__free(r.wanted);
  wk__free(space);
  return status;
}
