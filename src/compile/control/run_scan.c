/* A run of a scan: its body for each slice, the results of the slices copied to where they stand in those of all.
 * In: operands: what is carried at first, stacks of slices, what the body closes over. Out: what is carried in the end,
 * stacks of the body's other results, and of what was carried into each slice where that is kept.
 * Tests: tests/python/capture/test_scans.py. */
#include "compile/control/internal.h"
#include "graph/internal.h"

void wk__control_stack(wk_int count, const wk__spec *slice, wk__spec *out_spec) {
  wk_int sizes[WK_MAX_DIMS];
  sizes[0] = count;
  memcpy(sizes + 1, slice->sizes, (size_t)slice->ndim * sizeof *sizes);
  wk__spec_contiguous(out_spec, (wk_dtype)slice->dtype, slice->device, slice->ndim + 1, sizes);
}

typedef struct scan {
  wk__control *c;
  wk_tensor *const *operands; /* borrowed */
  wk_tensor **stacks;         /* the caller's: results that are no carried ones; made by the first slice */
  wk_tensor **inputs;         /* (operands) of the body: carried ones and slices are owned */
  wk_tensor **made;           /* owned, (results of the body): what it gives */
  int64_t count;              /* slices */
} scan;

static wk_status slice_of(const wk_tensor *stack, int64_t place, wk_tensor **out) {
  wk__spec spec;
  wk__spec_of(&spec, stack);
  spec.offset = wk_int_add(spec.offset, wk_int_mul(wk_int_of(place), spec.strides[0]));
  spec.ndim--;
  memmove(spec.sizes, spec.sizes + 1, spec.ndim * sizeof *spec.sizes);
  memmove(spec.strides, spec.strides + 1, spec.ndim * sizeof *spec.strides);
  *out = wk__tensor_alias(stack, &spec);
  return *out ? WK_OK : wk_error_category();
}

/* A slice of a result. */
static wk_status put(const scan *s, int stack, int64_t place, wk_tensor *value) {
  wk_tensor *to = NULL;
  if (!s->stacks[stack]) {
    wk__spec slice, spec;
    wk__spec_of(&slice, value);
    wk__control_stack(wk_int_of(s->count), &slice, &spec);
    s->stacks[stack] = wk__tensor_from_spec(&spec);
    if (!s->stacks[stack]) return wk_error_category();
  }
  WK_TRY(slice_of(s->stacks[stack], place, &to));
  wk_value args[] = {wk__v_tensor(to), wk__v_tensor(value), {0}}, same = {0};
  wk_status status = wk_call(WK__OP(copy_), args, NULL, &same);
  wk_value_release(&same);
  wk__release(to);
  return status;
}

static wk_status put_all(const scan *s, int64_t place) {
  const wk__control *c = s->c;
  int given = (int)wk__control_body(c)->output_count - c->carried;
  for (int k = 0; k < given; k++) WK_TRY(put(s, k, place, s->made[c->carried + k]));
  for (int i = 0; i < c->carried && c->keeps; i++) WK_TRY(put(s, given + i, place, s->inputs[i]));
  return WK_OK;
}

static void carry_on(scan *s) {
  for (int i = 0; i < s->c->carried; i++) {
    wk__release(s->inputs[i]);
    s->inputs[i] = s->made[i];
    s->made[i] = NULL;
  }
}

static wk_status run_slice(scan *s, int64_t place) {
  wk__control *c = s->c;
  for (int i = c->carried; i < c->carried + c->slices; i++) {
    wk__release(s->inputs[i]);
    s->inputs[i] = NULL;
    WK_TRY(slice_of(s->operands[i], place, &s->inputs[i]));
  }
  WK_TRY(wk__control_run_part(c, &c->parts[0], s->inputs, s->made));
  WK_TRY(put_all(s, place));
  carry_on(s);
  wk__control_release_all(s->made, wk__control_body(c)->output_count);
  return WK_OK;
}

static wk_status run_slices(scan *s) {
  for (int64_t k = 0; k < s->count; k++) WK_TRY(run_slice(s, s->c->reversed ? s->count - 1 - k : k));
  return WK_OK;
}

wk_status wk__control_run_scan(wk__control *c, wk_tensor *const *operands, wk_tensor **out) {
  size_t count = (size_t)wk__control_operands(c), made = (size_t)wk__control_body(c)->output_count;
  wk_tensor **space = wk__alloc_zeroed((count + made + 1) * sizeof *space);
  if (!space) return WK_OUT_OF_MEMORY;
  scan s = {c, operands, out + c->carried, space, space + count, operands[c->carried]->sizes[0].bits};
  memcpy(s.inputs, operands, count * sizeof *s.inputs);
  for (int i = 0; i < c->carried; i++) wk__retain(s.inputs[i]);
  for (int i = c->carried; i < c->carried + c->slices; i++) s.inputs[i] = NULL;
  wk_status status = run_slices(&s);
  if (status == WK_OK) {
    memcpy(out, s.inputs, (size_t)c->carried * sizeof *out);
    memset(s.inputs, 0, (size_t)c->carried * sizeof *s.inputs);
  }
  wk__control_release_all(s.inputs, c->carried + c->slices);
  wk__control_release_all(s.made, (int64_t)made);
  wk__free(space);
  return status;
}
