/* Functions under a checkpoint. Plainly they run again in the backward pass; the graph gets their calls once, which is
 * the same where they do nothing but compute. So such a call is tried, as derivatives are (functions.c), but it is the
 * program's own and what it computes stays. Where it does more (an effect, a break, a change of what the region has
 * made) nothing of it has happened, and the program runs it as it does plainly.
 *
 * In: what the function can reach. Out: its result, or that it was undone. Tests:
 * tests/python/capture/test_checkpoints.py. */
#include "dynamo/capture/call_parts.h"
#include "dynamo/capture/own_state.h"
#include "dynamo/capture/record_parts.h"

typedef struct wk__kept_trial {
  wk__own_state *held; /* owned */
  int64_t steps_before;
  const wk__graph_node *before;
} wk__kept_trial;

PyObject *wk__trial_begin(wk__frame *f, PyObject *parts) {
  wk__session *s = f->session;
  wk__recording *r = s->recording;
  if (r->tries) Py_RETURN_FALSE;
  wk__own_state *held = wk__own_state_keep(s, parts, true);
  wk__kept_trial *t = held ? wk__arena_alloc(&r->arena, sizeof *t) : NULL;
  if (!t || wk__tracer_try_begin(s->tracer) != WK_OK) {
    wk_error_clear();
    wk__own_state_release(held);
    Py_RETURN_NONE;
  }
  *t = (wk__kept_trial){held, r->step_count, wk__tracer_graph(s->tracer)->last};
  wk__tracer_try_draws(s->tracer, true);
  r->kept_trial = t;
  r->tries = true;
  Py_RETURN_TRUE;
}

void wk__forget_kept_trial(wk__recording *r) {
  if (r->kept_trial) wk__own_state_release(r->kept_trial->held);
  r->kept_trial = NULL;
}

static void undo(wk__session *s, const wk__kept_trial *t) {
  wk__recording *r = s->recording;
  for (int64_t i = t->steps_before; i < r->step_count; i++) r->steps[i].undone |= r->steps[i].dest < 0;
  if (wk__own_state_put_back(t->held) < 0) wk__record_failed(r, "what was only tried cannot be undone");
  PyErr_Clear();
  wk__tracer_undo_draws(s->tracer, t->before);
}

PyObject *wk__trial_end(wk__frame *f, PyObject *result) {
  wk__session *s = f->session;
  wk__recording *r = s->recording;
  if (!r->kept_trial) return Py_NewRef(result);
  const wk__kept_trial t = *r->kept_trial;
  bool well = wk__tracer_try_end(s->tracer) && !r->tries_in_vain && result != Py_None && wk__own_state_is_same(t.held);
  wk__tracer_try_draws(s->tracer, false);
  if (!well) undo(s, &t);
  wk__forget_kept_trial(r);
  r->tries = r->tries_in_vain = r->tries_modes = false;
  return Py_NewRef(well ? result : Py_None);
}
