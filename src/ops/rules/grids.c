/* Several tensors as one: grids of vectors and what is read off them, matrices along a diagonal, stacks.
 * In: lists of tensors. Out: views of them, and cat. Tests: tests/ops/, tests/parity/test_functional_parity.py. */
#include "ops/rules.h"
#include "ops/rules/composite.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

/* The results of a rule for each tensor of a list, in memory of the heap; NULL when there is none. */
typedef wk_tensor *reshaper(wk_tensor *t);
static wk_tensor **each(const wk_value *tensors, reshaper *shaped) {
  wk_tensor **list = wk__alloc((tensors->count + 1) * sizeof *list);
  for (uint32_t k = 0; list && k < tensors->count; k++) list[k] = shaped(tensors->tensors[k]);
  return list;
}

/* ---- grids ---- */

static wk_status check_grid(const wk_value *tensors) {
  if (!tensors->count) return wk_fail(WK_RUNTIME_ERROR, "meshgrid expects a non-empty TensorList");
  for (uint32_t k = 0; k < tensors->count; k++) {
    wk_tensor *t = tensors->tensors[k];
    if (t->dtype != tensors->tensors[0]->dtype)
      return wk_fail(WK_RUNTIME_ERROR, "meshgrid expects all tensors to have the same dtype");
    if (t->ndim <= 1) continue;
    char *text = wk__realize(t, "an error shows a tensor") ? NULL : wk_tensor_text(t);
    wk_status status = wk_fail(
        WK_RUNTIME_ERROR, "torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: %s", text ? text : "?");
    wk_text_free(text);
    return status;
  }
  return wk__check_ndim((int)wk__min(tensors->count, WK_MAX_DIMS + 1));
}

/* The vectors along dims 0, 1, ..., with `swapped` along 1, 0, 2, ...; each as large as all. */
static void make_grids(const wk_value *tensors, bool swapped, wk_tensor **out) {
  int n = (int)tensors->count;
  wk_int whole[WK_MAX_DIMS], alone[WK_MAX_DIMS];
  for (int k = 0; k < n; k++) whole[swapped && k < 2 ? 1 - k : k] = tensors->tensors[k]->numel;
  for (int k = 0; k < n; k++) {
    int along = swapped && k < 2 ? 1 - k : k;
    for (int d = 0; d < n; d++) alone[d] = wk_int_of(1);
    alone[along] = tensors->tensors[k]->numel;
    out[k] = wk_expand(wk_reshape(tensors->tensors[k], alone, n), whole, n, false);
  }
}
static wk_status grids(wk__call *c, bool swapped) {
  const wk_value *tensors = &c->args[0];
  WK_TRY(check_grid(tensors));
  wk_tensor *list[WK_MAX_DIMS];
  wk_scope scope;
  wk_scope_begin(&scope);
  make_grids(tensors, swapped && tensors->count > 1, list);
  return wk__give_list(c, &scope, list, tensors->count);
}
wk_status wk__compose_meshgrid(wk__call *c) {
  wk_status status = grids(c, false);
  if (!status)
    wk__thread.warning = "torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.";
  return status;
}
wk_status wk__compose_meshgrid_indexing(wk__call *c) {
  const char *indexing = c->args[WK__ARG(meshgrid_indexing, indexing)].string;
  bool swapped = !strcmp(indexing, "xy");
  if (!c->args[WK__ARG(meshgrid_indexing, tensors)].count)
    return check_grid(&c->args[WK__ARG(meshgrid_indexing, tensors)]);
  if (!swapped && strcmp(indexing, "ij"))
    return wk_fail(WK_RUNTIME_ERROR, "torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but received: %s",
                   indexing);
  return grids(c, swapped);
}

static wk_status not_a_vector(const wk_tensor *t) {
  wk__string text = {0};
  wk__print_sizes(&text, t->sizes, t->ndim);
  wk_status status = wk_fail(WK_RUNTIME_ERROR, "Expect a 1D vector, but got shape %s", text.text ? text.text : "[]");
  wk__string_release(&text);
  return status;
}

wk_status wk__compose_cartesian_prod(wk__call *c) {
  const wk_value *tensors = &c->args[WK__ARG(cartesian_prod, tensors)];
  for (uint32_t k = 0; k < tensors->count; k++)
    if (tensors->tensors[k]->ndim != 1) return not_a_vector(tensors->tensors[k]);
  WK_TRY(check_grid(tensors));
  wk_tensor *list[WK_MAX_DIMS];
  wk_scope scope;
  wk_scope_begin(&scope);
  if (tensors->count == 1) return wk__give(c, &scope, tensors->tensors[0]);
  make_grids(tensors, false, list);
  for (uint32_t k = 0; k < tensors->count; k++) list[k] = wk__flat(list[k]);
  return wk__give(c, &scope, wk_stack(list, (int)tensors->count, 1));
}

/* The next choice of r places below n in the order of the alphabet; false after the last. */
static bool next_choice(int64_t *choice, int64_t r, int64_t n, bool repeated) {
  int64_t at = r - 1;
  while (at >= 0 && choice[at] == (repeated ? n - 1 : n - r + at)) at--;
  if (at < 0) return false;
  choice[at]++;
  for (int64_t k = at + 1; k < r; k++) choice[k] = repeated ? choice[at] : choice[k - 1] + 1;
  return true;
}
/* All choices, a row each: a tensor of places in the caller's scope. */
static wk_tensor *all_choices(int64_t n, int64_t r, bool repeated) {
  int64_t rows = 0, capacity = 0, *places = NULL, *choice = wk__alloc((size_t)r * sizeof *choice);
  wk_status status = choice ? WK_OK : WK_OUT_OF_MEMORY;
  for (int64_t k = 0; choice && k < r; k++) choice[k] = repeated ? 0 : k;
  bool more = n > 0 && (repeated || r <= n);
  while (more && !status) {
    status = wk__grow(&places, &capacity, (rows + 1) * r, sizeof *places);
    if (!status) memcpy(places + rows++ * r, choice, (size_t)r * sizeof *places);
    more = next_choice(choice, r, n, repeated);
  }
  wk_tensor *t = status ? NULL : wk_tensor_from_data(places, WK_INT64, 2, (int64_t[]){rows, r});
  if (t) wk__scope_add(t);
  wk__free(places), wk__free(choice);
  return t;
}
wk_status wk__compose_combinations(wk__call *c) {
  WK__ARGS(combinations);
  wk_tensor *self = c->args[A_self].tensor;
  int64_t r = wk__arg_int(c, A_r);
  if (self->ndim != 1) return not_a_vector(self);
  if (r < 0) return wk_fail(WK_RUNTIME_ERROR, "Expect a non-negative number, but got %lld", (long long)r);
  wk_int none = wk_int_of(0);
  wk_scope scope;
  wk_scope_begin(&scope);
  if (r == 0) return wk__give(c, &scope, wk_new_empty(self, &none, 1, WK_DTYPE_NONE, NONE));
  wk_tensor *places = all_choices(wk_int_guard_value(self->numel), r, wk__arg_bool(c, A_with_replacement));
  if (places && !wk__device_equal(places->device, self->device))
    places = wk__to_copy(places, WK_DTYPE_NONE, (wk_value){.tag = WK_VALUE_DEVICE, .device = self->device});
  if (!places) return wk__give(c, &scope, NULL);
  wk_int sizes[] = {places->sizes[0], places->sizes[1]};
  return wk__give(c, &scope, wk_reshape(wk_index_select(self, 0, wk__flat(places)), sizes, 2));
}

/* ---- at least so many dims ---- */

static wk_tensor *at_least_1(wk_tensor *t) {
  wk_int one = wk_int_of(1);
  return t->ndim ? t : wk_reshape(t, &one, 1);
}
static wk_tensor *at_least_2(wk_tensor *t) { /* a vector becomes a row */
  wk_int sizes[] = {wk_int_of(1), t->numel};
  return t->ndim >= 2 ? t : t->ndim ? wk_unsqueeze(t, 0) : wk_reshape(t, sizes, 2);
}
static wk_tensor *at_least_3(wk_tensor *t) { /* (n) becomes (1, n, 1), (n, m) becomes (n, m, 1) */
  wk_int ones[] = {wk_int_of(1), wk_int_of(1), wk_int_of(1)};
  if (t->ndim >= 3) return t;
  if (t->ndim == 0) return wk_reshape(t, ones, 3);
  return wk_unsqueeze(t->ndim == 1 ? wk_unsqueeze(t, 0) : t, 2);
}
static wk_status reshaped(wk__call *c, reshaper *shaped) {
  wk_scope scope;
  wk_scope_begin(&scope);
  return wk__give(c, &scope, shaped(c->args[0].tensor));
}
static wk_status reshaped_all(wk__call *c, reshaper *shaped) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor **list = each(&c->args[0], shaped);
  if (!list) return wk__give_up(&scope, WK_OUT_OF_MEMORY);
  wk_status status = wk__give_list(c, &scope, list, c->args[0].count);
  wk__free(list);
  return status;
}
wk_status wk__compose_atleast_1d(wk__call *c) { return reshaped(c, at_least_1); }
wk_status wk__compose_atleast_2d(wk__call *c) { return reshaped(c, at_least_2); }
wk_status wk__compose_atleast_3d(wk__call *c) { return reshaped(c, at_least_3); }
wk_status wk__compose_atleast_1d_list(wk__call *c) { return reshaped_all(c, at_least_1); }
wk_status wk__compose_atleast_2d_list(wk__call *c) { return reshaped_all(c, at_least_2); }
wk_status wk__compose_atleast_3d_list(wk__call *c) { return reshaped_all(c, at_least_3); }

/* ---- stacks ---- */

/* cat along `dim`, a negative one being the second dim, of vectors the only one. */
static wk_status stacked(wk__call *c, reshaper *shaped, int dim) {
  const wk_value *tensors = &c->args[0];
  if (!tensors->count) return wk_fail(WK_RUNTIME_ERROR, "%s expects a non-empty TensorList", c->op->base_name);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor **list = each(tensors, shaped), *y = NULL;
  if (!list) return wk__give_up(&scope, WK_OUT_OF_MEMORY);
  bool whole = true;
  for (uint32_t k = 0; k < tensors->count; k++) whole &= list[k] != NULL;
  if (whole) y = wk_cat(list, (int)tensors->count, dim >= 0 ? dim : list[0]->ndim > 1);
  wk__free(list);
  return wk__give(c, &scope, y);
}
static wk_tensor *column(wk_tensor *t) {
  wk_int sizes[] = {t->numel, wk_int_of(1)};
  return t->ndim > 1 ? t : wk_reshape(t, sizes, 2);
}
wk_status wk__compose_hstack(wk__call *c) { return stacked(c, at_least_1, -1); }
wk_status wk__compose_vstack(wk__call *c) { return stacked(c, at_least_2, 0); }
wk_status wk__compose_dstack(wk__call *c) { return stacked(c, at_least_3, 2); }
wk_status wk__compose_column_stack(wk__call *c) { return stacked(c, column, 1); }

/* Each matrix with zeros to its left and right, below each other. */
wk_status wk__compose_block_diag(wk__call *c) {
  const wk_value *tensors = &c->args[WK__ARG(block_diag, tensors)];
  uint32_t count = tensors->count;
  for (uint32_t k = 0; k < count; k++)
    if (tensors->tensors[k]->ndim > 2)
      return wk_fail(WK_RUNTIME_ERROR,
                     "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input %u has %d dimensions", k,
                     tensors->tensors[k]->ndim);
  wk_int sizes[] = {wk_int_of(1), wk_int_of(0)}, width = wk_int_of(0), left = wk_int_of(0);
  wk_scope scope;
  wk_scope_begin(&scope);
  if (!count) return wk__give(c, &scope, wk_zeros(sizes, 2, WK_DTYPE_NONE, NONE));
  wk_tensor **rows = each(tensors, at_least_2), *y = NULL;
  if (!rows) return wk__give_up(&scope, WK_OUT_OF_MEMORY);
  bool whole = true;
  for (uint32_t k = 0; k < count; k++) whole &= rows[k] != NULL;
  for (uint32_t k = 0; k < count && whole; k++) width = wk_int_add(width, rows[k]->sizes[1]);
  for (uint32_t k = 0; k < count && whole; k++) {
    wk_int own = rows[k]->sizes[1], right = wk_int_sub(wk_int_sub(width, left), own), pad[] = {left, right};
    rows[k] = wk_constant_pad_nd(rows[k], pad, 2, wk__v_int(0));
    left = wk_int_add(left, own), whole = rows[k];
  }
  if (whole) y = wk_cat(rows, (int)count, 0);
  wk__free(rows);
  return wk__give(c, &scope, y);
}
