/* Which elements of a masked load lie inside of its buffer.
 *
 * In: where each coordinate that may leave its buffer stands (a *bound*, a walker behind the expressions). Out: the
 * part of a block that is loaded. Invariant: coordinates are affine, so what lies inside of a row is one stretch, and
 * where none moves along rows and columns at once, what lies inside of a block is a box.
 * Tests: tests/c/test_program.c, tests/c/test_codegen.c. */
#include "cpu/tier0/program_internal.h"

static int64_t limit_of(const wk__program *program, const geometry *g, int access, int bound) {
  return g->expression_limit[program->expression_count + program->first_bound[access] + bound];
}

/* Keeps of [*lo, *hi) the j with 0 <= at + j * step < limit. */
static void clip(int64_t at, int64_t step, int64_t limit, int64_t *lo, int64_t *hi) {
  if (step < 0) at = limit - 1 - at, step = -step;
  if (step == 0) {
    if (at < 0 || at >= limit) *hi = *lo;
    return;
  }
  int64_t first = at < 0 ? step == 1 ? -at : wk__ceil_div(-at, step) : 0;
  int64_t end = at >= limit ? 0 : step == 1 ? limit - at : wk__ceil_div(limit - at, step);
  *lo = wk__max(*lo, first);
  *hi = wk__min(*hi, end);
}

bool find_box(const wk__program *program, const geometry *g, int access, const int64_t *at, int64_t m, int64_t n,
              box *out) {
  *out = (box){0, m, 0, n};
  for (int b = 0; b < bounds_of(program, access); b++) {
    const walker *k = &g->walkers[walker_of_bound(program, access, b)];
    if (k->stride_m && k->stride_n && m > 1) return false;
    if (k->stride_n)
      clip(at[b], k->stride_n, limit_of(program, g, access, b), &out->left, &out->right);
    else
      clip(at[b], k->stride_m, limit_of(program, g, access, b), &out->top, &out->bottom);
  }
  if (out->bottom <= out->top || out->right <= out->left) *out = (box){0, 0, 0, n};
  return true;
}

void next_row(const wk__program *program, const geometry *g, int access, int64_t *at) {
  for (int b = 0; b < bounds_of(program, access); b++)
    at[b] += g->walkers[walker_of_bound(program, access, b)].stride_m;
}

int64_t find_outside(const wk__program *program, const wk__launch *launch, int v) {
  const wk__nest *nest = program->nest;
  const wk__instr *load = &nest->instrs[v], *other = &nest->instrs[load->operands[0]];
  int64_t computed[1], element[1] = {0};
  wk__scalar number = other->op == WK__LOOP_param ? launch->params[other->extra] : other->number;
  wk__number_fill(computed, number, wk__lane_of((wk_dtype)other->dtype), 1);
  wk__primitives_get()->store[nest->buffers[nest->accesses[load->extra].buffer].dtype](element, computed, 1, 1, 1, 1);
  return element[0];
}
