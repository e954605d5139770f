/* Hooks that a region registers, of tensors and of nodes.
 *
 * On something from outside a hook is registered again by each replay. On what the region computes one that does
 * nothing but compute is a part of the graph (functions.c). Any other is left to the tape: at the region's end, where
 * it is still there and its node can still be run, the graph is marked to be run node by node, the tensor becomes a
 * result of it, and each replay registers the hook on what it has got.
 *
 * In: a call of register_hook and its kind. Out: the handle, or refused. Tests:
 * tests/python/capture/test_tensor_hooks.py, test_node_hooks.py. */
#include "autograd/autograd.h"
#include "dynamo/capture/history.h"
#include "dynamo/capture/known.h"
#include "dynamo/capture/record_parts.h"
#include "dynamo/cpython/objects.h"

#define BINDING (f->session->binding)

static uint64_t sequence_of(const wk__binding *b, PyObject *tensor) {
  wk_tensor *t = b->tensor_of(tensor);
  const wk_node *n = t->autograd || t->base ? wk__grad_fn(t) : NULL;
  return n ? n->sequence : 0;
}

/* ============================================ what the region computes ============================================ */

static bool any_left(const wk__recording *r, uint64_t sequence) {
  for (int64_t i = 0; i < r->left_hook_count; i++)
    if (r->left_hooks[i].sequence == sequence && !r->left_hooks[i].made) return true;
  return false;
}

static void keep_hook(wk__recording *r, const wk__binding *b, const wk__left_hook *hook) {
  if (wk__grow(&r->left_hooks, &r->left_hook_capacity, r->left_hook_count + 1, sizeof *r->left_hooks) != WK_OK) {
    wk__record_no_memory(r);
    return;
  }
  wk__left_hook *kept = &r->left_hooks[r->left_hook_count++];
  *kept = *hook;
  kept->mixed = !hook->made && wk__map_get(&r->hooks, hook->sequence);
  Py_INCREF(kept->owner);
  Py_INCREF(kept->tensor);
  Py_INCREF(kept->hook);
  Py_INCREF(kept->handle);
  PyObject *dict = b->tensor_hooks(b->tensor_of(hook->tensor));
  if (dict && wk__map_set(&r->hook_dicts, (uintptr_t)dict, dict) != WK_OK) wk__record_no_memory(r);
}

void wk__forget_left_hooks(wk__recording *r) {
  for (int64_t i = 0; i < r->left_hook_count; i++) {
    WK__BURY(r->left_hooks[i].owner);
    WK__BURY(r->left_hooks[i].tensor);
    WK__BURY(r->left_hooks[i].hook);
    WK__BURY(r->left_hooks[i].handle);
  }
  r->left_hook_count = 0;
}

static const char to_tape; /* stands for: it is left to it */

/* What the hook is known by when it is registered again in the next capture. */
static uintptr_t key_of(PyObject *hook) {
  return (uintptr_t)(PyFunction_Check(hook) ? PyFunction_GET_CODE(hook) : (PyObject *)Py_TYPE(hook));
}

/* What wk__compiled.functions_in_vain says of one: the graph cannot make it, or could not where it was found out at the
 * region's end. */
static bool is_left(const wk__compiled *c, PyObject *hook) {
  const void *known = wk__map_get(&c->functions_in_vain, key_of(hook));
  return known == &to_tape || (known && c->functions_break);
}

static PyObject *hook_own(wk__frame *f, PyObject *self, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                          PyObject *hook) {
  wk__recording *r = f->session->recording;
  wk__compiled *c = f->session->compiled;
  uint64_t sequence = sequence_of(BINDING, self);
  if (r->tries) return wk__refuse(f, "a hook that is registered by what is only tried");
  PyObject *handle = wk__plain_call(f, callable, args, count, NULL);
  if (!handle || wk__recording_of(f) != r) return handle;
  bool made = !is_left(c, hook) && !any_left(r, sequence) && wk__dynamo_hooked(BINDING->tensor_of(self));
  if (wk__recording_of(f) != r) return handle;
  const wk__left_hook left = {.name = "register_hook",
                              .owner = self,
                              .tensor = self,
                              .hook = hook,
                              .handle = handle,
                              .sequence = sequence,
                              .made = made};
  keep_hook(r, BINDING, &left);
  if (wk__map_set(&c->functions_in_vain, key_of(hook), made ? (void *)c : (void *)&to_tape) != WK_OK) wk_error_clear();
  return handle;
}

void wk__note_node(wk__recording *r, PyObject *node, PyObject *tensor) {
  if (wk__map_get(&r->node_tensors, (uintptr_t)node)) return;
  wk__keep_alive(r, node);
  wk__keep_alive(r, tensor);
  if (wk__map_set(&r->node_tensors, (uintptr_t)node, tensor) != WK_OK) wk__record_no_memory(r);
}

PyObject *wk__tensor_of_node(const wk__recording *r, PyObject *node) {
  return r->node_tensors.count ? wk__map_get(&r->node_tensors, (uintptr_t)node) : NULL;
}

PyObject *wk__node_hook_call(wk__frame *f, wk__recording *r, PyObject *node, const char *name, PyObject *callable,
                             PyObject *const *args, Py_ssize_t count, PyObject *hook) {
  PyObject *tensor = wk__tensor_of_node(r, node);
  if (!tensor || r->tries) return wk__refuse(f, "%s() of a node that no tensor here has", name);
  PyObject *handle = wk__plain_call(f, callable, args, count, NULL);
  const wk__left_hook left = {.name = strcmp(name, "register_hook") == 0 ? "register_hook" : "register_prehook",
                              .owner = node,
                              .tensor = tensor,
                              .hook = hook,
                              .handle = handle,
                              .sequence = sequence_of(BINDING, tensor)};
  if (handle) keep_hook(r, BINDING, &left);
  return handle;
}

/* node.metadata, which replays fill with what it holds at the region's end. */
PyObject *wk__node_metadata(wk__frame *f, wk__recording *r, PyObject *node, PyObject *name) {
  PyObject *tensor = wk__tensor_of_node(r, node), *dict = NULL;
  if (!tensor || r->tries) return wk__refuse(f, "metadata of a node that no tensor here has");
  if (!(dict = PyObject_GetAttr(node, name))) return NULL;
  for (int64_t i = 0; i < r->left_hook_count; i++)
    if (r->left_hooks[i].hook == dict) return dict;
  const wk__left_hook left = {.name = "metadata",
                              .owner = node,
                              .tensor = tensor,
                              .hook = dict,
                              .handle = dict,
                              .sequence = sequence_of(BINDING, tensor)};
  keep_hook(r, BINDING, &left);
  return dict;
}

/* ---- at the region's end ---- */

/* It has not been taken away since. */
static bool is_there(const wk__left_hook *h) {
  PyObject *id = PyObject_GetAttrString(h->handle, "id"), *ref = PyObject_GetAttrString(h->handle, "hooks_dict_ref");
  PyObject *dict = id && ref && PyWeakref_Check(ref) ? wk__weak_referent(ref) : NULL;
  bool there = dict && PyDict_Check(dict) && PyDict_GetItemWithError(dict, id) == h->hook;
  Py_XDECREF(id);
  Py_XDECREF(ref);
  wk__bury(dict);
  PyErr_Clear();
  return there;
}

static bool is_metadata(const wk__left_hook *h) { return h->handle == h->hook; }

static void note_metadata(wk__recording *r, const wk__binding *b, const wk__left_hook *h) {
  PyObject *getter = PyDict_GetItemString(PyEval_GetBuiltins(), "getattr"), *name = PyUnicode_FromString(h->name);
  PyObject *copy = PyDict_Copy(h->hook), *update = PyObject_GetAttrString(h->hook, "update");
  PyObject *get[] = {getter, h->owner, name}, *fill[] = {update, copy};
  bool noted = getter && name && copy && update && wk__reg_constant(r, getter) >= 0 &&
               wk__did(r, b, WK__DO_CALL, h->hook, get, WK_COUNT(get), NULL) == 0 &&
               wk__did(r, b, WK__DO_EFFECT, NULL, fill, WK_COUNT(fill), NULL) == 0;
  if (!noted) wk__record_failed(r, "metadata of a node");
  r->keeps_tape = true;
  Py_XDECREF(name);
  Py_XDECREF(copy);
  Py_XDECREF(update);
}

static void note_again(wk__recording *r, const wk__binding *b, const wk__left_hook *h) {
  PyObject *method = PyObject_GetAttrString(h->owner, h->name), *items[] = {method, h->hook};
  bool noted = method && wk__did(r, b, WK__DO_EFFECT, h->handle, items, WK_COUNT(items), NULL) == 0;
  uintptr_t before = (uintptr_t)wk__map_get(&r->hooks, h->sequence);
  noted = noted && wk__map_set(&r->hooks, h->sequence, (void *)(before + 1)) == WK_OK;
  if (!noted) wk__record_failed(r, "a hook that cannot be registered again");
  r->keeps_tape = true;
  Py_XDECREF(method);
}

/* The handle is seen outside before the region ends: it is what each replay gets. -1: it is that of no hook here. */
wk__reg wk__note_handle(wk__recording *r, const wk__binding *b, PyObject *handle) {
  wk__left_hook *h = NULL;
  for (int64_t i = 0; i < r->left_hook_count && !h; i++)
    if (r->left_hooks[i].handle == handle && !is_metadata(&r->left_hooks[i])) h = &r->left_hooks[i];
  if (!h || h->noted || !is_there(h)) return -1;
  h->noted = true;
  h->mixed |= h->made;
  h->made = false;
  note_again(r, b, h);
  return wk__reg_find(r, handle);
}

static void note_left(const wk__session *s, wk__recording *r, const wk__left_hook *h) {
  if (h->made || (is_metadata(h) ? !PyDict_GET_SIZE(h->hook) : !is_there(h))) return;
  const wk_node *now = wk__grad_fn(s->binding->tensor_of(h->tensor));
  if (!now || now->sequence != h->sequence) {
    wk__record_failed(r, "a hook of what was written since");
  } else if (now->released) { /* it has been run */
    if (h->noted) wk__record_failed(r, "the handle of a hook that has been run");
  } else if (is_metadata(h)) {
    note_metadata(r, s->binding, h);
  } else if (h->mixed) {
    r->has_functions = true; /* the next capture leaves all of them */
    wk__record_failed(r, "hooks of one node, some of which the graph makes");
  } else if (!h->noted) {
    note_again(r, s->binding, h);
  }
}

void wk__note_left_hooks(const wk__session *s, wk__recording *r) {
  for (int64_t i = 0; i < r->left_hook_count && !r->failed[0]; i++) note_left(s, r, &r->left_hooks[i]);
}

/* ================================================ of both ======================================================== */

/* ---- leaves from outside ---- */

static uint64_t key_of_leaf(wk__reg reg, bool accumulate) { return (uint64_t)reg * 2 + accumulate + 1; }

/* The region hooks the leaf, or has hooked it: what its passes run is not all from outside. */
enum { HAD_NONE = 1, HAD_SOME };
static void note_hooked(const wk__binding *b, wk__recording *r, PyObject *tensor, bool accumulate) {
  uint64_t key = key_of_leaf(wk__reg_find(r, tensor), accumulate);
  PyObject *dict = b->leaf_hooks(b->tensor_of(tensor), accumulate);
  uintptr_t had = dict && PyDict_GET_SIZE(dict) ? HAD_SOME : HAD_NONE;
  if (!wk__map_get(&r->hooked_leaves, key) && wk__map_set(&r->hooked_leaves, key, (void *)had) != WK_OK)
    wk__record_no_memory(r);
}

static void observe_leaf(const wk__binding *b, wk__recording *r, wk_tensor *leaf, wk__reg reg, bool accumulate) {
  uintptr_t had = (uintptr_t)wk__map_get(&r->hooked_leaves, key_of_leaf(reg, accumulate));
  PyObject *dict = b->leaf_hooks(leaf, accumulate);
  wk__reg known = dict ? wk__reg_find(r, dict) : -1;
  if (had == HAD_SOME) {
    wk__record_failed(r, "a leaf has hooks, and is given others before a backward pass");
  } else if (had || !dict || (known < 0 && !PyDict_GET_SIZE(dict))) {
    wk__check_once(r, WK__CHECK_NO_HOOKS, reg, accumulate, NULL);
  } else if (wk__observe(r, b, dict, WK__READ_HOOKS, reg, accumulate, NULL) == 0) {
    known = wk__reg_find(r, dict);
    if (!r->registers[known].written && !r->registers[known].names) (void)!wk__touch(r, b, dict);
  }
}

void wk__observe_leaf_hooks(const wk__session *s, wk__recording *r, wk_tensor *leaf) {
  wk__reg reg = wk__reg_find(r, leaf->wrapper);
  if (reg < 0 || !wk__is_foreign(r, leaf->wrapper) || r->tries) return;
  observe_leaf(s->binding, r, leaf, reg, false);
  observe_leaf(s->binding, r, leaf, reg, true);
}

/* Backward passes in the region run its hooks, and no segment is kept that would have to make it again. */
static bool is_own_leaf(const wk__binding *b, PyObject *tensor) {
  wk_tensor *t = b->tensor_of(tensor);
  return t->keys & WK__KEY_AUTOGRAD && wk_is_leaf(t);
}

PyObject *wk__tensor_hook_call(wk__frame *f, wk__recording *r, PyObject *self, const char *name, PyObject *callable,
                               PyObject *const *args, Py_ssize_t count, PyObject *hook) {
  bool own = sequence_of(BINDING, self) >= f->session->watcher.first && strcmp(name, "register_hook") == 0;
  if (own) return hook_own(f, self, callable, args, count, hook);
  if (r->tries) return wk__refuse(f, "a hook that is registered by what is only tried");
  if (!wk__is_foreign(r, self) && is_own_leaf(BINDING, self)) return wk__plain_call(f, callable, args, count, NULL);
  if (!wk__is_foreign(r, self)) return wk__refuse(f, "Tensor.%s() of what the region computes", name);
  PyObject *method = PyObject_GetAttrString((PyObject *)BINDING->tensor_type, name);
  note_hooked(BINDING, r, self, strcmp(name, "register_hook") != 0);
  PyObject *handle = method ? wk__plain_call(f, callable, args, count, NULL) : NULL;
  PyObject *items[] = {method, self, hook};
  bool noted = handle && wk__reg_constant(r, method) >= 0 &&
               wk__did(r, BINDING, WK__DO_EFFECT, handle, items, WK_COUNT(items), NULL) == 0;
  Py_XDECREF(method);
  if (handle && !noted) wk__record_failed(r, "a hook that cannot be registered again");
  return handle;
}
