/* Which elements of a masked load lie inside of its buffer.
 *
 * In: where each coordinate that may leave its buffer stands (a *bound*, a walker behind the expressions). Out: the
 * stretch of a row that is loaded. Invariant: coordinates are affine, so what lies inside of a row is one stretch.
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

void find_inside(const wk__program *program, const geometry *g, int access, const int64_t *at, int64_t n, int64_t *lo,
                 int64_t *hi) {
  *lo = 0;
  *hi = n;
  for (int b = 0; b < bounds_of(program, access); b++)
    clip(at[b], g->walkers[walker_of_bound(program, access, b)].stride_n, limit_of(program, g, access, b), lo, hi);
  if (*hi <= *lo) *lo = *hi = 0;
}

bool is_all_inside(const wk__program *program, const geometry *g, int access, const int64_t *at, int64_t m, int64_t n) {
  for (int b = 0; b < bounds_of(program, access); b++) {
    const walker *k = &g->walkers[walker_of_bound(program, access, b)];
    int64_t along_m = (m - 1) * k->stride_m, along_n = (n - 1) * k->stride_n;
    int64_t least = at[b] + wk__min(along_m, 0) + wk__min(along_n, 0);
    int64_t most = at[b] + wk__max(along_m, 0) + wk__max(along_n, 0);
    if (least < 0 || most >= limit_of(program, g, access, b)) return false;
  }
  return true;
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
