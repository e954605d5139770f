/* Branches on a tensor's value whose other way does nothing but raise: assert statements, and checks of arguments.
 *
 * The value is computed while it is recorded, beside the graph. Where it says that the program goes on, the graph gets
 * a call that fails where it does not: such a call is run plainly, and raises where it has to. An assertion that does
 * not hold at once ends the segment in front of it, and raises behind that. One of random numbers, which are drawn when
 * the graph is run, is taken to hold with fullgraph=True: a run that finds otherwise fails.
 *
 * In: a tensor, at a branch. Out: the truth that goes on. Tests: tests/python/capture/test_assertions.py. */
#include "dynamo/capture/known.h"
#include "levels/levels.h"
#include "trace/trace.h"

#define BINDING (f->session->binding)

/* Of a tensor of no level: a vmap around it would refuse the check as a random call. */
static wk_status call(const wk_op *op, const wk_value *args, wk_value *out) {
  bool before = wk__thread.mode.grad_enabled;
  wk__keys off = wk__thread.mode.keys_off;
  wk__thread.mode.grad_enabled = false;
  if (!(args[0].tensor->keys & WK__KEY_LEVEL)) wk__thread.mode.keys_off = (wk__keys)(off | WK__KEY_LEVEL);
  wk_status status = wk_call(op, args, NULL, out);
  wk__thread.mode.keys_off = off;
  wk__thread.mode.grad_enabled = before;
  return status;
}

/* t, or not t, has to be true. No transform has anything to say about it: the same value is in the tensor below. */
static wk_status record(wk_tensor *t, bool wanted, const char *message) {
  while (t->inner && t->inner->batch_dim < 0) t = t->inner->value;
  wk_value condition[] = {{.tag = WK_VALUE_TENSOR, .tensor = t}}, negated = {0}, made = {0};
  wk_status status = wanted ? WK_OK : call(WK__OP(logical_not), condition, &negated);
  wk_value args[] = {wanted ? condition[0] : negated, {.tag = WK_VALUE_STRING, .string = message}};
  if (status == WK_OK) status = call(WK__OP(_assert_async_msg), args, &made);
  wk_value_release(&negated);
  wk_value_release(&made);
  return status;
}

static int refuse(wk__frame *f, const char *why) {
  wk__refuse(f, "%s", why);
  return -1;
}

int wk__branch_on_tensor(wk__frame *f, wk__recording *r, PyObject *o) {
  static const char no_text[] = "Assertion failed";
  wk__raising_branch branch;
  wk_tensor *t = BINDING->tensor_of(o);
  bool simple = Py_TYPE(o) == BINDING->tensor_type && !wk_dtype_is_complex((wk_dtype)t->dtype) && !r->tries &&
                wk_int_is_known(t->numel) && t->numel.bits == 1 && !(t->flags & WK__TENSOR_SYMBOLIC);
  if (!simple || !wk__frame_branch_raises(f, &branch)) return refuse(f, "a branch on a tensor's value");
  if (wk__is_foreign(r, o) && wk__tracer_node(f->session->tracer, t) == NULL) wk_error_clear();
  bool truth;
  wk_status told = wk__tracer_truth(f->session->tracer, t, &truth);
  if (told != WK_OK) {
    wk_error_clear();
    bool whole = f->session->compiled->options.fullgraph && t->device.type == WK_CPU;
    if (told != WK_UNSUPPORTED || !whole) return refuse(f, "a check of a value that depends on random numbers");
    truth = branch.goes_on_if; /* one graph was asked for: as in PyTorch, it is found out when that is run */
  }
  if (truth != branch.goes_on_if) {
    wk__refuse_as(f, WK__REFUSED_VALUE, "a check that fails");
    return -1;
  }
  const char *message = branch.message ? PyUnicode_AsUTF8(branch.message) : no_text;
  wk_status status = message ? record(t, branch.goes_on_if, message) : WK_UNSUPPORTED;
  PyErr_Clear();
  if (status == WK_OK && wk__recording_of(f) == r) return truth;
  wk_error_clear();
  return wk__recording_of(f) == r ? refuse(f, "a check that cannot be recorded") : truth;
}
