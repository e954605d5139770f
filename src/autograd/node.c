/* Nodes of the tape: memory, names, hooks. Freeing one may free a long chain behind it, so nodes that become free while
 * another is being destroyed wait in a list. Tests: tests/c/test_autograd.c (a chain of 100,000). */
#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>

#include "autograd/autograd.h"
#include "tensor/free_list.h"

static _Atomic uint64_t next_sequence = 1;

/* Memory of freed nodes, by size in steps of SIZE_STEP bytes. */
enum { SIZE_STEP = 64, SIZE_CLASSES = 16 };
static WK__THREAD_LOCAL wk__free_list
    *memory; /* SIZE_CLASSES; NULL before the first node goes, and at the thread's end */
static WK__THREAD_LOCAL bool memory_ended;
static pthread_key_t memory_key;
static pthread_once_t memory_once = PTHREAD_ONCE_INIT;

static void end_memory(void *lists) {
  memory = NULL;
  memory_ended = true;
  for (int c = 0; c < SIZE_CLASSES; c++) wk__free_list_drain((wk__free_list *)lists + c);
  free(lists);
}
static void make_memory_key(void) { (void)pthread_key_create(&memory_key, end_memory); }

/* NULL: nothing can wait in this thread. */
static wk__free_list *start_memory(void) {
  if (memory_ended) return NULL;
  pthread_once(&memory_once, make_memory_key);
  wk__free_list *lists = calloc(SIZE_CLASSES, sizeof *lists);
  if (lists && pthread_setspecific(memory_key, lists) == 0) return memory = lists;
  free(lists);
  return NULL;
}

static size_t class_of(size_t bytes) { return (bytes - 1) / SIZE_STEP; }

static void *memory_alloc(size_t bytes) {
  size_t class = class_of(bytes);
  void *block = class < SIZE_CLASSES && memory ? wk__free_list_take(&memory[class]) : NULL;
  return block ? block : wk__alloc(class < SIZE_CLASSES ? (class + 1) * SIZE_STEP : bytes);
}

static void memory_free(void *block, size_t bytes) {
  size_t class = class_of(bytes);
  wk__free_list *lists = WK_LIKELY(memory) ? memory : start_memory();
  if (class < SIZE_CLASSES && lists)
    wk__free_list_give(&lists[class], block);
  else
    wk__free(block);
}

wk_node *wk__node_create(const wk__node_class *class, size_t size, int inputs, int results) {
  size = (size + 15) & ~(size_t)15;
  wk_node *n = memory_alloc(size + (size_t)inputs * sizeof(wk__edge));
  if (!n) return NULL;
  memset(n, 0, size + (size_t)inputs * sizeof(wk__edge));
  atomic_init(&n->references, 1);
  n->class = class;
  n->input_count = (uint16_t)inputs;
  n->result_count = (uint16_t)results;
  n->sequence = atomic_fetch_add_explicit(&next_sequence, 1, memory_order_relaxed);
  n->edges = (wk__edge *)((char *)n + size);
  if (WK_UNLIKELY(atomic_load_explicit(&wk__anomaly_on, memory_order_relaxed))) wk__anomaly_made(n);
  return n;
}

uint64_t wk__node_next_sequence(void) { return atomic_load_explicit(&next_sequence, memory_order_relaxed); }

void wk__node_put_behind_edges(wk_node *n) {
  for (int i = 0; i < n->input_count; i++) {
    const wk_node *before = n->edges[i].node;
    if (!before || before->sequence == UINT64_MAX || before->sequence < n->sequence) continue;
    n->sequence = atomic_fetch_add_explicit(&next_sequence, 1, memory_order_relaxed);
    return;
  }
}

static void release_hooks(wk_node *n) {
  for (int r = 0; n->result_hooks && r < n->result_count; r++) wk__grad_hooks_release(n->result_hooks[r]);
  wk__free(n->result_hooks);
  wk__free(n->retained);
  for (wk__node_hook *h = n->hooks; h;) {
    wk__node_hook *next = h->next;
    if (h->release) h->release(h->context);
    wk__free(h);
    h = next;
  }
}

void (*wk__node_release_notes)(void *notes);

static void destroy(wk_node *n) {
  if (n->class->destroy) n->class->destroy(n);
  release_hooks(n);
  if (n->notes) wk__node_release_notes(n->notes);
  for (int i = 0; i < n->input_count; i++) wk__node_release(n->edges[i].node);
  wk__free(n->name);
  memory_free(n, (size_t)((char *)(n->edges + n->input_count) - (char *)n)); /* the edges stand at its end */
}

/* Waiting nodes are chained through `wrapper`, which nothing needs any more. */
static WK__THREAD_LOCAL wk_node *waiting;
static WK__THREAD_LOCAL bool destroying;

void wk__node_release(wk_node *n) {
  if (!n || !wk__last_reference(&n->references)) return;
  n->wrapper = waiting;
  waiting = n;
  if (destroying) return;
  destroying = true;
  while (waiting) {
    wk_node *next = waiting;
    waiting = next->wrapper;
    next->wrapper = NULL;
    destroy(next);
  }
  destroying = false;
}

/* "add.Tensor" -> "AddBackward0", "_log_softmax" -> "LogSoftmaxBackward0", "log1p" -> "Log1PBackward0": words joined,
 * each with a capital; a word begins behind a digit too. */
void wk__node_print_name(wk__string *s, const wk_node *n) {
  const char *name = n->name ? n->name : n->op && !n->usual_name ? n->op->grad_fn_name : NULL;
  if (name) {
    wk__string_append(s, name);
    return;
  }
  bool start = true;
  for (const char *c = n->op ? n->op->base_name : ""; *c; c++) {
    char letter = start ? (char)toupper((unsigned char)*c) : *c;
    if (*c == '_')
      start = true;
    else
      wk__string_append_n(s, &letter, 1), start = isdigit((unsigned char)*c) != 0;
  }
  wk__string_append(s, n->class->suffix);
}

void wk__node_print_full_name(wk__string *s, const wk_node *n) {
  const char *of_row = n->op && !n->name ? n->op->grad_fn_name : NULL;
  bool by_hand = of_row && !isdigit((unsigned char)of_row[strlen(of_row) - 1]); /* PyTorch generates the others */
  if (by_hand || (!n->op && !n->name)) wk__string_append(s, "torch::autograd::");
  wk__node_print_name(s, n);
}

void wk__node_print_short_name(wk__string *s, const wk_node *n) {
  int64_t start = s->length;
  wk__node_print_full_name(s, n);
  char *end = NULL; /* the last one: BackwardHookFunctionBackward */
  for (char *at = s->text ? s->text + start : NULL; at && (at = strstr(at, "Backward")); at++) end = at;
  if (!end) return;
  *end = 0;
  s->length = end - s->text;
}

wk_status wk__node_add_hook(wk_node *n, wk__node_hook hook) {
  wk__node_hook *h = wk__alloc(sizeof *h), **end = &n->hooks;
  if (!h) return WK_OUT_OF_MEMORY;
  *h = hook;
  h->next = NULL;
  while (*end) end = &(*end)->next;
  *end = h;
  return WK_OK;
}

/* ---- spent nodes ---- */

typedef struct spent_node {
  wk_node node;
  char *message; /* owned; NULL: that it has been run */
} spent_node;

static wk_status run_spent(wk_node *node, wk_tensor *const *grads, const bool *wanted, bool create_graph,
                           wk_tensor **out_grads) {
  const char *message = ((const spent_node *)node)->message;
  (void)grads, (void)wanted, (void)create_graph, (void)out_grads;
  return message ? wk_fail(WK_RUNTIME_ERROR, "%s", message) : wk__saved_tensors_freed();
}
static void destroy_spent(wk_node *node) { wk__free(((spent_node *)node)->message); }
static const wk__node_class spent_class = {.suffix = "", .run = run_spent, .destroy = destroy_spent};

static wk_status fill_spent(spent_node *n, const char *name, const char *message, wk_tensor *const *inputs, int count) {
  n->node.released = !message;
  if (!(n->node.name = wk__strdup(name))) return WK_OUT_OF_MEMORY;
  if (message && !(n->message = wk__strdup(message))) return WK_OUT_OF_MEMORY;
  for (int i = 0; i < count; i++) WK_TRY(wk__edge_of(inputs[i], &n->node.edges[i]));
  wk__node_put_behind_edges(&n->node);
  return WK_OK;
}

wk_node *wk__node_spent(const char *name, const char *message, wk_tensor *const *inputs, int count) {
  spent_node *n = (spent_node *)wk__node_create(&spent_class, sizeof *n, count, 1);
  if (!n) return NULL;
  if (fill_spent(n, name, message, inputs, count) == WK_OK) return &n->node;
  wk__node_release(&n->node);
  return NULL;
}
