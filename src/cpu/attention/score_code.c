/* score_code.h says what this is. A text is not trusted: loop/score_nest.h checks it against each call. */
#include "cpu/attention/score_code.h"

#include <pthread.h>

#include "cpu/cpu.h"
#include "cpu/native/native.h"
#include "loop/score_nest.h"

enum { SCORE_CODES = 64 }; /* held; a new one takes the place of the one with the same number */

struct wk__score_code {
  wk__kept_code is;   /* first: callers have a pointer to it. Owns nest, code and what improved them */
  int64_t references; /* under the lock */
  uint64_t hash;
  char *text;
  wk__shape_env *env; /* owns compound expressions of the nest */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wk__score_code *held[SCORE_CODES];

const wk__program *wk__score_program(const wk__score_code *code) { return wk__program_of(code->is.code); }
wk__kept_code *wk__score_kept(wk__score_code *code) { return &code->is; }

static void destroy(wk__score_code *code) {
  if (!code) return;
  if (code->is.improved) wk__native_group_release(code->is.improved);
  wk__program_release(wk__program_of(code->is.code));
  wk__nest_release(code->is.nest);
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

static void release_kept(wk__kept_code *kept) { wk__score_code_release((wk__score_code *)kept); }

/* ---- making and finding ---- */

static wk_status build(wk__score_code *code) {
  wk__shape_env *outer = wk__shape_env_set_current(code->env);
  wk__kept_code *is = &code->is;
  is->nest = wk__nest_parse(code->text);
  wk_status status = is->nest ? wk__score_nest_check_loops(is->nest) : wk_error_category();
  if (status == WK_OK && !(is->code = wk__code_of(wk__program_create(is->nest)))) status = wk_error_category();
  if (status == WK_OK) status = wk__program_check(wk__program_of(is->code));
  wk__shape_env_set_current(outer);
  return status;
}

static wk__score_code *create(const char *text, uint64_t hash) {
  wk__score_code *code = wk__alloc_zeroed(sizeof *code);
  if (!code) return NULL;
  code->is = (wk__kept_code){.device = &wk__cpu_device_type, .name = "scores", .release = release_kept};
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
                             bool with_gradients, wk__score_code **out) {
  uint64_t hash = wk__hash_bytes(text, strlen(text), 0);
  *out = find(text, hash);
  if (!*out) {
    if (!(*out = create(text, hash))) return wk_error_category();
    hold(*out);
  }
  wk_status status = wk__score_nest_check((*out)->is.nest, scores, captured, count, with_gradients);
  if (status == WK_OK) return WK_OK;
  wk__score_code_release(*out);
  *out = NULL;
  return status;
}
