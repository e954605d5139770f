/* The short way: a pointwise launch that is one block along a line, on this thread.
 *
 * Most eager calls of small programs are such launches, and laying a worker out costs more than their few steps. In: a
 * launch of a program that is_short (program.c). Out: memory written. Invariant: the same steps with the same
 * primitives as the long way, so the same bits. Tests: tests/c/test_program.c runs every launch that may go both ways
 * both ways. */
#include "cpu/tier0/execute_internal.h"

typedef struct line {
  const wk__program *program;
  const wk__launch *launch;
  const wk__primitives *primitives;
  char **at;   /* (values) where each value is */
  char *slots; /* temporary blocks, `pitch` bytes apart */
  int64_t pitch, n;
} line;

static inline const wk__launch_buffer *buffer_of(const line *l, int access) {
  return &l->launch->buffers[l->program->nest->accesses[access].buffer];
}

static inline wk_dtype dtype_of(const line *l, int access) {
  const wk__nest *nest = l->program->nest;
  return (wk_dtype)nest->buffers[nest->accesses[access].buffer].dtype;
}

/* Memory that holds the block as the primitives want it. */
static inline bool is_plain(const line *l, int access) {
  wk_dtype dtype = dtype_of(l, access);
  return (buffer_of(l, access)->strides[0] == 1 || l->n == 1) && wk__dtypes[dtype].compute == dtype;
}

static inline char *destination(const line *l, const step *s) {
  if (s->store != NO_STORE && is_plain(l, s->store)) return buffer_of(l, s->store)->data;
  return s->slot == NO_SLOT ? l->at[s->value] : l->slots + s->slot * l->pitch;
}

static void load(const line *l, const step *s) {
  const wk__launch_buffer *b = buffer_of(l, s->extra);
  char *place = b->data;
  if (s->copies || !is_plain(l, s->extra)) {
    place = destination(l, s);
    l->primitives->load[dtype_of(l, s->extra)](place, b->data, 1, l->n, 0, b->strides[0]);
  }
  l->at[s->value] = place;
}

static void store(const line *l, const step *s) {
  const wk__launch_buffer *b = buffer_of(l, s->extra);
  const char *value = l->at[s->in[0]];
  if (value == b->data && is_plain(l, s->extra)) return;
  l->primitives->store[dtype_of(l, s->extra)](b->data, value, 1, l->n, 0, b->strides[0]);
}

static void map(const line *l, const step *s, wk__map_fn *function) {
  char *out = destination(l, s);
  function(out, l->at[s->in[0]], l->at[s->in[1]], l->at[s->in[2]], l->n);
  l->at[s->value] = out;
}

static void run_steps(const line *l, const step_list *list) {
  const wk__primitives *p = l->primitives;
  for (const step *s = list->steps, *end = s + list->count; s < end; s++) switch (s->kind) {
      case STEP_LOAD:
        load(l, s);
        break;
      case STEP_STORE:
        store(l, s);
        break;
      case STEP_MAP:
        map(l, s, p->map[s->op][s->lane]);
        break;
      case STEP_CAST:
        map(l, s, p->cast[s->lane][s->out_lane]);
        break;
      default: /* STEP_ROUND */
        map(l, s, p->round_to[s->extra]);
    }
}

/* Numbers of the launch and of the body as blocks; they lie behind the slots. */
static void fill_uniform(const line *l) {
  const wk__program *p = l->program;
  char *place = l->slots + p->slot_count * l->pitch;
  for (int v = 1; v < (int)p->nest->instr_count; v++) {
    if (p->values[v].class != VALUE_UNIFORM) continue;
    const wk__instr *i = &p->nest->instrs[v];
    l->at[v] = place;
    place += l->pitch;
    if (i->op == WK__LOOP_param || i->op == WK__LOOP_constant)
      wk__number_fill(l->at[v], i->op == WK__LOOP_param ? l->launch->params[i->extra] : i->number,
                      (wk__lane_type)p->values[v].lane, l->n);
  }
  run_steps(l, &p->uniform);
}

wk_status run_line(const wk__program *program, const wk__launch *launch, const wk__primitives *primitives) {
  int64_t n = launch->sizes[0], pitch = aligned(n * 8), table = aligned(program->value_count * (int64_t)sizeof(char *));
  char *memory = take_scratch(table + (program->slot_count + program->uniform_count) * pitch);
  if (!memory) return wk_fail(WK_OUT_OF_MEMORY, "out of memory inside a kernel");
  line l = {program, launch, primitives, (char **)memory, memory + table, pitch, n};
  l.at[0] = NULL;
  if (program->uniform_count) fill_uniform(&l);
  run_steps(&l, &program->phases[0].keep);
  return WK_OK;
}
