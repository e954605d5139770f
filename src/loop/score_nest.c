/* Whether a nest is a body of scores. In: what a text said. Out: WK_OK or an error.
 * Test: tests/python/test_flex_attention.py. */
#include "loop/score_nest.h"

static wk_status does_not_fit(const char *why) { return wk_fail(WK_VALUE_ERROR, "a body of scores: %s", why); }

static bool is_same_place(const wk__access *at) {
  return !at->has_indirect && !at->may_leave && wk_int_same(at->index[0], wk__loop_i(0)) &&
         wk_int_same(at->index[1], wk__loop_i(1));
}

/* A dim is crossed by a number that is checked against its size, or it is the first element of it. `sizes` is the
 * buffer of the same sizes that a gradient belongs to, or its own. */
static bool stays_inside(const wk__nest *nest, const wk__access *at, int sizes) {
  bool inside = !at->may_leave;
  for (int d = 0; inside && d < at->ndim; d++) {
    const wk__instr *by = &nest->instrs[at->indirect[d]];
    inside = wk_int_same(at->index[d], wk_int_of(0));
    if (at->indirect[d])
      inside = inside && by->op == WK__LOOP_check_index && wk_int_same(by->expression, wk_int_buffer_size(sizes, d));
  }
  return inside;
}

/* Reads of scores and captured tensors; stores of a block, or additions to the gradients. */
static bool access_fits(const wk__nest *nest, const wk__instr *instr, int captured) {
  const wk__access *at = &nest->accesses[instr->extra];
  int gradients = WK__BODY_BUFFER_CAPTURED + captured;
  if (instr->op == WK__LOOP_store) return at->buffer == WK__BODY_BUFFER_OUT && is_same_place(at);
  if (instr->op == WK__LOOP_store_add) return at->buffer >= gradients && stays_inside(nest, at, at->buffer - captured);
  if (at->buffer < WK__BODY_BUFFER_CAPTURED) return is_same_place(at);
  return at->buffer < gradients && stays_inside(nest, at, at->buffer);
}

static wk_status check_instrs(const wk__nest *nest, int captured) {
  for (int64_t v = 1; v < nest->instr_count; v++) {
    const wk__instr *instr = &nest->instrs[v];
    if (instr->op == WK__LOOP_param && instr->dtype != WK_INT64) return does_not_fit("a parameter that is no integer");
    if (wk__loop_has_access(instr->op) && !access_fits(nest, instr, captured))
      return does_not_fit("a place that may be outside of a tensor");
  }
  return WK_OK;
}

wk_status wk__score_nest_check_loops(const wk__nest *nest) {
  bool loops = !nest->geometry_free && nest->pointwise_dims == 2 && nest->reduction_dims == 0;
  for (int d = 0; loops && d < 2; d++) loops = wk_int_same(nest->sizes[d], wk_int_buffer_size(0, d));
  if (!loops) return does_not_fit("its loops are not those over a block");
  return nest->param_count > WK__BODY_PARAMS ? does_not_fit("too many parameters") : WK_OK;
}

static wk_status check_buffers(const wk__nest *nest, wk_dtype scores, wk_tensor *const *captured, int count,
                               bool with_gradients) {
  if (nest->buffer_count != WK__BODY_BUFFER_CAPTURED + count * (with_gradients ? 2 : 1))
    return does_not_fit("another number of tensors");
  for (int b = 0; b < nest->buffer_count; b++) {
    const wk__nest_buffer *buffer = &nest->buffers[b];
    int k = b - WK__BODY_BUFFER_CAPTURED;
    bool read = k >= 0 && k < count;
    int ndim = k < 0 ? 2 : captured[k % wk__max(count, 1)]->ndim;
    if (buffer->ndim != ndim || buffer->dtype != (read ? captured[k]->dtype : scores))
      return does_not_fit("a tensor of another dtype or rank");
  }
  return WK_OK;
}

/* Elements that the nest reads without a check have to be there. */
static wk_status check_elements(const wk__nest *nest, wk_tensor *const *captured, int count) {
  for (int64_t a = 0; a < nest->access_count; a++) {
    const wk__access *at = &nest->accesses[a];
    for (int d = 0; at->buffer >= WK__BODY_BUFFER_CAPTURED && d < at->ndim; d++)
      if (!at->indirect[d] && wk__size(captured[(at->buffer - WK__BODY_BUFFER_CAPTURED) % count], d) == 0)
        return does_not_fit("a captured tensor without elements");
  }
  return WK_OK;
}

wk_status wk__score_nest_check(const wk__nest *nest, wk_dtype scores, wk_tensor *const *captured, int count,
                               bool with_gradients) {
  WK_TRY(wk__score_nest_check_loops(nest));
  WK_TRY(check_buffers(nest, scores, captured, count, with_gradients));
  WK_TRY(check_instrs(nest, count));
  return check_elements(nest, captured, count);
}
