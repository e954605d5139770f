/* A tensor's side of the tape: its flag, gradient, history and hooks. Tests: tests/c/test_autograd.c,
 * tests/python/test_autograd.py. */
#include "autograd/autograd.h"
#include "ops/internal.h"

wk__autograd *wk__autograd_get(wk_tensor *t) {
  if (!t->autograd) t->autograd = wk__alloc_zeroed(sizeof *t->autograd);
  return t->autograd;
}

void wk__grad_hooks_release(wk__grad_hook *list) {
  while (list) {
    wk__grad_hook *next = list->next;
    if (list->release) list->release(list->context);
    wk__free(list);
    list = next;
  }
}

static void forget_retained(wk__autograd *a) {
  if (a->retains_grad && a->grad_fn && a->grad_fn->retained) a->grad_fn->retained[a->result] = NULL;
}

void wk__autograd_release(wk__autograd *a) {
  forget_retained(a);
  wk__release(a->grad);
  wk__node_release(a->grad_fn);
  wk__grad_hooks_release(a->hooks);
  wk__grad_hooks_release(a->accumulate_hooks);
  wk__free(a);
}

/* ---- flags ---- */

bool wk_requires_grad(const wk_tensor *t) {
  if (t->keys & WK__KEY_AUTOGRAD) return true;
  return t->base && t->base->keys & WK__KEY_AUTOGRAD; /* the base was written with something that does */
}
bool wk_is_leaf(const wk_tensor *t) {
  if (t->base && t->base->autograd && t->base->autograd->grad_fn) return false;
  return !t->autograd || !t->autograd->grad_fn;
}

wk_status wk_set_requires_grad(wk_tensor *t, bool requires_grad) {
  if (!wk_is_leaf(t)) {
    if (requires_grad) return WK_OK;
    return wk_fail(WK_RUNTIME_ERROR,
                   "you can only change requires_grad flags of leaf variables. If you want to use a computed variable "
                   "in a subgraph that doesn't require differentiation use var_no_grad = var.detach().");
  }
  if (requires_grad && !wk_dtype_is_floating((wk_dtype)t->dtype) && !wk_dtype_is_complex((wk_dtype)t->dtype))
    return wk_fail(WK_RUNTIME_ERROR, "only Tensors of floating point dtype can require gradients");
  if (requires_grad && t->keys & WK__KEY_INFERENCE && !wk__thread.mode.inference)
    return wk_fail(WK_RUNTIME_ERROR,
                   "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.");
  if (!requires_grad && !t->autograd) return WK_OK;
  wk__autograd *a = wk__autograd_get(t);
  if (!a) return WK_OUT_OF_MEMORY;
  if (a->requires_grad != requires_grad) wk__tensor_epoch_bump();
  a->requires_grad = requires_grad;
  t->keys = (wk__keys)(requires_grad ? t->keys | WK__KEY_AUTOGRAD : t->keys & ~WK__KEY_AUTOGRAD);
  return WK_OK;
}

wk_tensor *wk_get_grad(const wk_tensor *t) { return t->autograd ? t->autograd->grad : NULL; }

wk_dtype wk_get_grad_dtype(const wk_tensor *t) {
  return t->autograd && t->autograd->grad_dtype ? (wk_dtype)(t->autograd->grad_dtype - 1) : (wk_dtype)t->dtype;
}

wk_status wk_set_grad_dtype(wk_tensor *t, wk_dtype dtype) {
  if (!wk_is_leaf(t)) return wk_fail(WK_RUNTIME_ERROR, "grad_dtype can only be set on leaf tensors.");
  const wk_tensor *grad = wk_get_grad(t);
  if (grad && dtype != WK_DTYPE_NONE && (wk_dtype)grad->dtype != dtype)
    return wk_fail(WK_RUNTIME_ERROR, "Cannot set grad_dtype: there is already a gradient with another dtype");
  wk__autograd *a = wk__autograd_get(t);
  if (!a) return WK_OUT_OF_MEMORY;
  a->grad_dtype = (int16_t)(dtype + 1);
  return WK_OK;
}

static bool fits_grad_dtype(const wk_tensor *t, const wk_tensor *grad) {
  wk_dtype wanted = wk_get_grad_dtype(t);
  return wanted == WK_DTYPE_NONE || (wk_dtype)grad->dtype == wanted;
}

wk_status wk_set_grad(wk_tensor *t, wk_tensor *grad) {
  if (grad && grad->device.type != t->device.type)
    return wk_fail(WK_RUNTIME_ERROR,
                   "attempting to assign a gradient with device type '%s' to a tensor with device type '%s'. Please "
                   "ensure that the gradient and the tensor are on the same device",
                   wk__device_type_name(grad->device.type), wk__device_type_name(t->device.type));
  if (grad && !wk__device_equal(grad->device, t->device))
    return wk_fail(WK_RUNTIME_ERROR, "assigned grad has data located on a different device");
  if (grad && !fits_grad_dtype(t, grad)) return wk_fail(WK_RUNTIME_ERROR, "assigned grad has data of a different type");
  if (grad && !wk__same_sizes(t, grad)) return wk_fail(WK_RUNTIME_ERROR, "assigned grad has data of a different size");
  if (!grad && !t->autograd) return WK_OK;
  wk__autograd *a = wk__autograd_get(t);
  if (!a) return WK_OUT_OF_MEMORY;
  wk_tensor *old = a->grad;
  a->grad = wk__retain(grad);
  wk__release(old);
  return WK_OK;
}

bool wk_set_grad_enabled(bool enabled) {
  bool before = wk__thread.mode.grad_enabled;
  wk__thread.mode.grad_enabled = enabled;
  return before;
}
bool wk_grad_enabled(void) { return wk__thread.mode.grad_enabled; }

/* ---- the end of the tape at a leaf ---- */

typedef struct accumulate_node {
  wk_node node;
  wk_tensor *leaf; /* owned */
} accumulate_node;

/* A leaf without gaps has gradients that lie as it does, any other one has contiguous ones. */
static bool lies_as_leaf(const wk_tensor *t, const wk_tensor *grad) {
  if (!wk__non_overlapping_and_dense(t)) return wk__is_contiguous(grad);
  for (int d = 0; d < t->ndim; d++)
    if (!wk_int_same(t->strides[d], grad->strides[d]) && !wk_int_same(t->sizes[d], wk_int_of(1))) return false;
  return true;
}

static wk_status copy_as_leaf(wk_tensor *t, wk_tensor *grad, wk_value *out) {
  bool dense = wk__non_overlapping_and_dense(t), alike = lies_as_leaf(t, grad) && wk__non_overlapping_and_dense(grad);
  if (!dense || alike) {
    wk_value format = {0};
    if (!dense) format = (wk_value){.tag = WK_VALUE_STRING, .string = "contiguous_format"};
    return wk_call(WK__OP(clone), (wk_value[]){wk__v_tensor(grad), format}, NULL, out);
  }
  wk_value made = {0}, as_grad[] = {wk__v_tensor(t), wk__v_dtype((wk_dtype)grad->dtype), {0}, {0}};
  WK_TRY(wk_call(WK__OP(empty_like), as_grad, NULL, &made));
  wk_status status = wk_call(WK__OP(copy_), (wk_value[]){made, wk__v_tensor(grad), {0}}, NULL, out);
  wk_value_release(&made);
  return status;
}

/* The first gradient is kept itself when it has no other holder, else copied; later ones are added in place, or out of
 * place when the sum is to be differentiated. */
static wk_status accumulate(wk_tensor *t, wk_tensor *grad, bool may_steal, bool create_graph) {
  wk__autograd *a = t->autograd;
  wk_value result = {0};
  if (WK_UNLIKELY(grad->sparse != NULL && !a->grad)) { /* its parts are shared and never written */
    WK_TRY(wk_call(WK__OP(detach), (wk_value[]){wk__v_tensor(grad)}, NULL, &result));
    a->grad = result.tensor;
    return WK_OK;
  }
  if (!a->grad) {
    bool alone = may_steal && !create_graph && atomic_load(&grad->references) == 1 && grad->storage &&
                 atomic_load(&grad->storage->references) == 1 && wk__non_overlapping_and_dense(grad) &&
                 lies_as_leaf(t, grad);
    if (alone) {
      wk__detach_in_place(grad);
      a->grad = wk__retain(grad);
      return WK_OK;
    }
    WK_TRY(copy_as_leaf(t, grad, &result));
    a->grad = result.tensor;
    return WK_OK;
  }
  bool turned = a->grad->sparse && !grad->sparse; /* a strided one comes first: the sum is strided */
  wk_value args[] = {wk__v_tensor(turned ? grad : a->grad), wk__v_tensor(turned ? a->grad : grad), wk__v_int(1)};
  wk_tensor *in_place = create_graph || a->grad->sparse ? NULL : a->grad;
  WK_TRY(wk_call(WK__OP(add_Tensor), args, in_place ? &in_place : NULL, &result));
  wk__release(a->grad);
  a->grad = result.tensor;
  return WK_OK;
}

wk_status wk__keep_grad(wk_tensor *t, wk_tensor *grad, bool create_graph) {
  wk__grad_watcher *watcher = wk__thread.mode.grad_watcher;
  WK_TRY(accumulate(t, grad, false, create_graph));
  if (WK_UNLIKELY(watcher != NULL)) watcher->grad_written(watcher->context, t);
  return WK_OK;
}

static wk_status run_accumulate(wk_node *n, wk_tensor *const *grads, const bool *wanted, bool create_graph,
                                wk_tensor **out_grads) {
  (void)wanted, (void)out_grads;
  wk_tensor *leaf = ((accumulate_node *)n)->leaf;
  if (!grads[0] || !leaf->autograd) return WK_OK;
  wk__grad_watcher *watcher = wk__thread.mode.grad_watcher;
  if (WK_UNLIKELY(watcher != NULL)) watcher->grad_read(watcher->context, leaf);
  WK_TRY(accumulate(leaf, grads[0], true, create_graph));
  if (WK_UNLIKELY(watcher != NULL)) watcher->grad_written(watcher->context, leaf);
  for (wk__grad_hook *h = leaf->autograd->accumulate_hooks, *next; h; h = next) {
    wk_tensor *unused = NULL;
    next = h->next;
    WK_TRY(h->call(h->context, leaf, &unused));
    wk__release(unused);
  }
  return WK_OK;
}

static void destroy_accumulate(wk_node *n) {
  wk_tensor *leaf = ((accumulate_node *)n)->leaf;
  if (leaf->autograd) leaf->autograd->accumulator = NULL;
  wk__release(leaf);
}

static const wk__node_class accumulate_class = {
    .suffix = "AccumulateGrad", .run = run_accumulate, .destroy = destroy_accumulate};

wk_tensor *wk__accumulator_leaf(const wk_node *n) { return ((const accumulate_node *)n)->leaf; }

static wk_node *accumulator_of(wk_tensor *leaf) {  // -> new
  wk__autograd *a = wk__autograd_get(leaf);
  if (!a) return NULL;
  if (a->accumulator) return wk__node_retain(a->accumulator);
  accumulate_node *n = (accumulate_node *)wk__node_create(&accumulate_class, sizeof *n, 0, 1);
  if (!n) return NULL;
  n->leaf = wk__retain(leaf);
  n->node.sequence = UINT64_MAX; /* as soon as it can */
  a->accumulator = &n->node;
  return &n->node;
}

/* ---- history ---- */

static wk_status make_retained(wk_node *n) {
  if (!n->retained) n->retained = wk__alloc_zeroed(n->result_count * sizeof *n->retained);
  return n->retained ? WK_OK : WK_OUT_OF_MEMORY;
}

/* A tensor whose gradient is kept keeps that of its latest value. */
wk_status wk__set_history(wk_tensor *t, wk_node *node, uint32_t result) {
  wk__autograd *a = wk__autograd_get(t);
  if (!a) return WK_OUT_OF_MEMORY;
  if (a->retains_grad) WK_TRY(make_retained(node));
  forget_retained(a);
  if (a->retains_grad) node->retained[result] = t;
  wk_node *old = a->grad_fn;
  a->grad_fn = wk__node_retain(node);
  a->result = result;
  a->view_version = wk__version(t);
  a->refuses_writes = false;
  t->keys |= WK__KEY_AUTOGRAD;
  wk__node_release(old);
  return WK_OK;
}

static wk_tensor *viewed(const wk_op *op, wk_tensor *t) {
  return t ? wk__call_tensor(op, (wk_value[]){wk__v_tensor(t)}) : NULL;
}
wk_tensor *wk__base_as_view(wk_tensor *base, const wk_tensor *view) {
  bool from = wk_dtype_is_complex((wk_dtype)base->dtype), to = wk_dtype_is_complex((wk_dtype)view->dtype);
  if (from == to) return base;
  if (from) return viewed(WK__OP(view_as_real), base);
  wk_int pairs[] = {wk_int_of(-1), wk_int_of(2)};
  return viewed(WK__OP(view_as_complex),
                wk__call_tensor(WK__OP(view), (wk_value[]){wk__v_tensor(base), wk__v_ints(pairs, 2)}));
}

/* A view whose storage was written after its history was recorded gets a new history: an as_strided of the base. */
static wk_status refresh_view(wk_tensor *t) {
  wk_tensor *base = t->base;
  wk__autograd *a = wk__autograd_get(t);
  if (!a) return WK_OUT_OF_MEMORY;
  if (a->grad_fn && a->view_version == wk__version(t)) return WK_OK;
  wk_value view = {0};
  wk_scope scope;
  bool before = wk_set_grad_enabled(true);
  wk_scope_begin(&scope);
  base = wk__base_as_view(base, t);
  wk_value args[] = {wk__v_tensor(base), wk__v_ints(t->sizes, t->ndim), wk__v_ints(t->strides, t->ndim),
                     wk__v_size(t->offset)};
  wk_status status = base ? wk_call(WK__OP(as_strided), args, NULL, &view) : wk_error_category();
  wk_scope_end(&scope);
  wk_set_grad_enabled(before);
  WK_TRY(status);
  wk_node *node = view.tensor->autograd ? view.tensor->autograd->grad_fn : NULL;
  if (node) status = wk__set_history(t, node, 0);
  wk_value_release(&view);
  return status;
}

static bool view_follows_base(const wk_tensor *t) { return t->base && t->base->keys & WK__KEY_AUTOGRAD; }

wk_node *wk__grad_fn(wk_tensor *t) {
  if (view_follows_base(t) && refresh_view(t) != WK_OK) return NULL;
  return t->autograd ? t->autograd->grad_fn : NULL;
}

wk_status wk__edge_of(wk_tensor *t, wk__edge *out_edge) {
  *out_edge = (wk__edge){0};
  if (view_follows_base(t)) WK_TRY(refresh_view(t));
  if (!(t->keys & WK__KEY_AUTOGRAD)) return WK_OK;
  if (t->autograd->grad_fn) {
    *out_edge = (wk__edge){wk__node_retain(t->autograd->grad_fn), t->autograd->result};
    return WK_OK;
  }
  out_edge->node = accumulator_of(t);
  return out_edge->node ? WK_OK : wk_error_category();
}

static wk_status refuse_write(const wk__autograd *a) {
  wk__string name = {0};
  wk__node_print_short_name(&name, a->grad_fn);
  const char *why =
      a->grad_fn->result_count > 1
          ? "This view is the output of a function that returns multiple views. Such functions do not allow the output "
            "views to be modified inplace. You should replace the inplace operation by an out-of-place one."
          : "This view was created inside a custom Function (or because an input was returned as-is) and the autograd "
            "logic to handle view+inplace would override the custom backward associated with the custom Function, "
            "leading "
            "to incorrect gradients. This behavior is forbidden. You can fix this by cloning the output of the custom "
            "Function.";
  if (!name.failed)
    (void)wk_fail(WK_RUNTIME_ERROR, "Output %u of %s is a view and is being modified inplace. %s", a->result, name.text,
                  why);
  wk__string_release(&name);
  return wk_error_category();
}

wk_status wk__check_inplace(wk_tensor *t) {
  if (!wk__thread.mode.grad_enabled) return WK_OK;
  const wk__autograd *whole = t->base ? t->base->autograd : t->autograd;
  if (whole && whole->refuses_writes && whole->grad_fn) return refuse_write(whole);
  if (t->base && t->base->autograd && t->base->autograd->requires_grad && !t->base->autograd->grad_fn)
    return wk_fail(WK_RUNTIME_ERROR,
                   "a view of a leaf Variable that requires grad is being used in an in-place operation.");
  if (t->autograd && t->autograd->requires_grad && !t->autograd->grad_fn)
    return wk_fail(WK_RUNTIME_ERROR, "a leaf Variable that requires grad is being used in an in-place operation.");
  return WK_OK;
}

void wk__detach_in_place(wk_tensor *t) {
  t->keys &= (wk__keys)~WK__KEY_AUTOGRAD;
  if (!t->autograd) return;
  forget_retained(t->autograd);
  t->autograd->retains_grad = false;
  wk_node *old = t->autograd->grad_fn;
  t->autograd->grad_fn = NULL;
  t->autograd->requires_grad = false;
  wk__tensor_epoch_bump();
  wk__node_release(old);
}

/* ---- hooks ---- */

static _Atomic uint64_t hook_ids;
uint64_t wk__next_hook_id(void) { return atomic_fetch_add(&hook_ids, 1) + 1; }

static wk_status append_hook(wk__grad_hook **list, wk__grad_hook hook) {
  wk__grad_hook *h = wk__alloc(sizeof *h);
  if (!h) return WK_OUT_OF_MEMORY;
  *h = hook;
  h->next = NULL;
  while (*list) list = &(*list)->next;
  *list = h;
  return WK_OK;
}

static bool remove_hook(wk__grad_hook **list, uint64_t id) {
  for (; *list; list = &(*list)->next) {
    if ((*list)->id != id) continue;
    wk__grad_hook *h = *list;
    *list = h->next;
    h->next = NULL;
    wk__grad_hooks_release(h);
    return true;
  }
  return false;
}

static wk__grad_hook **hooks_of(wk_tensor *t) {
  wk__autograd *a = wk__autograd_get(t);
  if (!a) return NULL;
  wk_node *n = wk__grad_fn(t);
  if (!n) return &a->hooks;
  if (!n->result_hooks) n->result_hooks = wk__alloc_zeroed(n->result_count * sizeof *n->result_hooks);
  return n->result_hooks ? &n->result_hooks[a->result] : NULL;
}

wk_status wk__add_grad_hook(wk_tensor *t, wk__grad_hook hook) {
  if (!wk_requires_grad(t))
    return wk_fail(WK_RUNTIME_ERROR, "cannot register a hook on a tensor that doesn't require gradient");
  wk__grad_hook **list = hooks_of(t);
  return list ? append_hook(list, hook) : wk_error_category();
}
wk__grad_hook *wk__find_grad_hook(wk_tensor *t, wk_status (*call)(void *, wk_tensor *, wk_tensor **)) {
  wk__grad_hook **list = t->autograd ? hooks_of(t) : NULL;
  for (wk__grad_hook *h = list ? *list : NULL; h; h = h->next)
    if (h->call == call) return h;
  return NULL;
}
wk_status wk__add_accumulate_hook(wk_tensor *t, wk__grad_hook hook) {
  if (!wk_requires_grad(t))
    return wk_fail(WK_RUNTIME_ERROR, "cannot register a hook on a tensor that doesn't require gradient");
  if (!wk_is_leaf(t))
    return wk_fail(WK_RUNTIME_ERROR, "post accumulate grad hooks cannot be registered on non-leaf tensors");
  return append_hook(&t->autograd->accumulate_hooks, hook);
}
void wk__remove_grad_hook(wk_tensor *t, uint64_t id) {
  wk__grad_hook **list = t->autograd ? hooks_of(t) : NULL;
  if (list && remove_hook(list, id)) return;
  if (t->autograd) remove_hook(&t->autograd->accumulate_hooks, id);
}

wk_status wk__run_grad_hooks(const wk__grad_hook *hooks, wk_tensor **grad) {
  for (const wk__grad_hook *h = hooks, *next; h && *grad; h = next) {
    wk_tensor *replaced = NULL;
    next = h->next;
    WK_TRY(h->call(h->context, *grad, &replaced));
    if (!replaced) continue;
    wk__release(*grad);
    *grad = replaced;
  }
  return WK_OK;
}

wk_status wk__retain_grad(wk_tensor *t) {
  if (!wk_requires_grad(t))
    return wk_fail(WK_RUNTIME_ERROR, "can't retain_grad on Tensor that has requires_grad=False");
  wk_node *n = wk__grad_fn(t);
  if (!n) return wk_is_leaf(t) ? WK_OK : wk_error_category(); /* a leaf keeps its gradient anyway */
  if (t->autograd->retains_grad) return WK_OK;
  WK_TRY(make_retained(n));
  n->retained[t->autograd->result] = t;
  t->autograd->retains_grad = true;
  return WK_OK;
}
