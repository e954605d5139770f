/* score_code.h says what this is. A text is not trusted: what it reads and writes is checked against the call, once for
 * the nest's form and each time for what is captured. */
#include "cpu/attention/score_code.h"

#include <pthread.h>

#include "autograd/body.h"

enum { SCORE_CODES = 64 }; /* held; a new one takes the place of the one with the same number */

struct wk__score_code {
  int64_t references; /* under the lock */
  uint64_t hash;
  char *text;
  wk__nest *nest;
  wk__shape_env *env; /* owns compound expressions of the nest */
  wk__program *program;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wk__score_code *held[SCORE_CODES];

const wk__program *wk__score_program(const wk__score_code *code) { return code->program; }

static void destroy(wk__score_code *code) {
  if (!code) return;
  wk__program_release(code->program);
  wk__nest_release(code->nest);
  wk__shape_env_release(code->env);
  wk__free(code->text);
  wk__free(code);
}

/* Under the lock: gives back a share; what is to be destroyed, or NULL. */
static wk__score_code *drop(wk__score_code *code) { return code && --code->references == 0 ? code : NULL; }

void wk__score_code_release(wk__score_code *code) {
  pthread_mutex_lock(&lock);
  wk__score_code *last = drop(code);
  pthread_mutex_unlock(&lock);
  destroy(last);
}

/* ---- what a nest may do ---- */

static wk_status does_not_fit(const char *why) { return wk_fail(WK_VALUE_ERROR, "a body of scores: %s", why); }

static bool is_same_place(const wk__access *at) {
  return !at->has_indirect && !at->may_leave && wk_int_same(at->index[0], wk__loop_i(0)) &&
         wk_int_same(at->index[1], wk__loop_i(1));
}

/* A dim is crossed by a number that is checked against its size, or it is the first element of it. */
static bool stays_inside(const wk__nest *nest, const wk__access *at) {
  bool inside = !at->may_leave;
  for (int d = 0; inside && d < at->ndim; d++) {
    const wk__instr *by = &nest->instrs[at->indirect[d]];
    inside = wk_int_same(at->index[d], wk_int_of(0));
    if (at->indirect[d])
      inside =
          inside && by->op == WK__LOOP_check_index && wk_int_same(by->expression, wk_int_buffer_size(at->buffer, d));
  }
  return inside;
}

static wk_status check_accesses(const wk__nest *nest) {
  for (int64_t v = 1; v < nest->instr_count; v++) {
    const wk__instr *instr = &nest->instrs[v];
    if (!wk__loop_has_access(instr->op)) continue;
    const wk__access *at = &nest->accesses[instr->extra];
    bool store = wk__loop_is_store(instr->op);
    if (store && (instr->op != WK__LOOP_store || at->buffer != WK__BODY_BUFFER_OUT))
      return does_not_fit("it stores elsewhere");
    bool fits = at->buffer < WK__BODY_BUFFER_CAPTURED ? is_same_place(at) : stays_inside(nest, at);
    if (!fits) return does_not_fit("a place that may be outside of a tensor");
  }
  return WK_OK;
}

static wk_status check_nest(const wk__nest *nest) {
  bool loops = !nest->geometry_free && nest->pointwise_dims == 2 && nest->reduction_dims == 0;
  for (int d = 0; loops && d < 2; d++) loops = wk_int_same(nest->sizes[d], wk_int_buffer_size(0, d));
  if (!loops) return does_not_fit("its loops are not those over a block");
  if (nest->param_count > WK__BODY_PARAMS) return does_not_fit("too many parameters");
  for (int64_t v = 1; v < nest->instr_count; v++)
    if (nest->instrs[v].op == WK__LOOP_param && nest->instrs[v].dtype != WK_INT64)
      return does_not_fit("a parameter that is no integer");
  return check_accesses(nest);
}

/* Elements that the nest reads without a check have to be there. */
static wk_status check_captured(const wk__nest *nest, wk_dtype scores, wk_tensor *const *captured, int count) {
  if (nest->buffer_count != WK__BODY_BUFFER_CAPTURED + count) return does_not_fit("another number of tensors");
  for (int b = 0; b < WK__BODY_BUFFER_CAPTURED; b++)
    if (nest->buffers[b].dtype != scores || nest->buffers[b].ndim != 2) return does_not_fit("scores of another dtype");
  for (int k = 0; k < count; k++) {
    const wk__nest_buffer *buffer = &nest->buffers[WK__BODY_BUFFER_CAPTURED + k];
    if (buffer->dtype != captured[k]->dtype || buffer->ndim != captured[k]->ndim)
      return does_not_fit("a captured tensor of another dtype or rank");
  }
  for (int64_t a = 0; a < nest->access_count; a++) {
    const wk__access *at = &nest->accesses[a];
    for (int d = 0; at->buffer >= WK__BODY_BUFFER_CAPTURED && d < at->ndim; d++)
      if (!at->indirect[d] && wk__size(captured[at->buffer - WK__BODY_BUFFER_CAPTURED], d) == 0)
        return does_not_fit("a captured tensor without elements");
  }
  return WK_OK;
}

/* ---- making and finding ---- */

static wk_status build(wk__score_code *code) {
  wk__shape_env *outer = wk__shape_env_set_current(code->env);
  code->nest = wk__nest_parse(code->text);
  wk_status status = code->nest ? check_nest(code->nest) : wk_error_category();
  if (status == WK_OK && !(code->program = wk__program_create(code->nest))) status = wk_error_category();
  if (status == WK_OK) status = wk__program_check(code->program);
  wk__shape_env_set_current(outer);
  return status;
}

static wk__score_code *create(const char *text, uint64_t hash) {
  wk__score_code *code = wk__alloc_zeroed(sizeof *code);
  if (!code) return NULL;
  code->references = 1;
  code->hash = hash;
  code->text = wk__strdup(text);
  code->env = wk__shape_env_create();
  if (code->text && code->env && build(code) == WK_OK) return code;
  destroy(code);
  return NULL;
}

/* A share of it; NULL: it is not held. */
static wk__score_code *find(const char *text, uint64_t hash) {
  pthread_mutex_lock(&lock);
  wk__score_code *code = held[hash % SCORE_CODES];
  bool same = code && code->hash == hash && strcmp(code->text, text) == 0;
  if (same) code->references++;
  pthread_mutex_unlock(&lock);
  return same ? code : NULL;
}

static void hold(wk__score_code *code) {
  pthread_mutex_lock(&lock);
  wk__score_code **place = &held[code->hash % SCORE_CODES], *last = drop(*place);
  code->references++;
  *place = code;
  pthread_mutex_unlock(&lock);
  destroy(last);
}

wk_status wk__score_code_get(const char *text, wk_dtype scores, wk_tensor *const *captured, int count,
                             wk__score_code **out) {
  uint64_t hash = wk__hash_bytes(text, strlen(text), 0);
  *out = find(text, hash);
  if (!*out) {
    if (!(*out = create(text, hash))) return wk_error_category();
    hold(*out);
  }
  wk_status status = check_captured((*out)->nest, scores, captured, count);
  if (status == WK_OK) return WK_OK;
  wk__score_code_release(*out);
  *out = NULL;
  return status;
}
