/* What was made of a graph, for people.
 *
 * In: graphs between passes, kernels, the executor's times. Out: files under WICK_DEBUG_DIR, and numbers a step: time,
 * bytes, floating-point operations. Invariant: looking changes nothing, and what cannot be written is no error.
 * Tests: tests/python/test_explain.py, tests/python/test_profiler.py. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "codegen/codegen.h"
#include "compile/fuse/kernel.h"
#include "compile/report.h"
#include "execute/internal.h"
#include "tensor/safetensors.h"

/* ===================================================== files ==================================================== */

static void warn_once(const char *path) {
  static _Atomic bool warned;
  if (!atomic_exchange(&warned, true)) fprintf(stderr, "[wick] WICK_DEBUG_DIR: %s: %s\n", path, strerror(errno));
}

/* With the folders above it. */
static bool make_folder(const char *folder) {
  struct stat there;
  char *path = wk__strdup(folder);
  for (char *p = path ? path + 1 : NULL; p && *p; p++) {
    if (*p != '/') continue;
    *p = 0;
    mkdir(path, 0777);
    *p = '/';
  }
  wk__free(path);
  return mkdir(folder, 0777) == 0 || (stat(folder, &there) == 0 && S_ISDIR(there.st_mode));
}

wk__dump wk__dump_begin(int number) {
  const char *folder = getenv("WICK_DEBUG_DIR");
  wk__dump dump = {.number = number};
  if (!folder || !*folder) return dump;
  bool fits = (size_t)snprintf(dump.folder, sizeof dump.folder, "%s", folder) < sizeof dump.folder;
  if (!fits) errno = ENAMETOOLONG;
  if (fits && make_folder(folder)) return dump;
  warn_once(folder);
  return (wk__dump){.number = number};
}

static void write_file(const wk__dump *dump, const char *suffix, const char *mode, const char *text) {
  wk__string path = {0};
  wk__string_printf(&path, "%s/graph_%04d.%s", dump->folder, dump->number, suffix);
  if (path.failed) return wk__string_release(&path);
  FILE *file = fopen(path.text, mode);
  bool written = file && fputs(text, file) >= 0;
  if (file) written &= fclose(file) == 0;
  if (!written) warn_once(path.text);
  wk__string_release(&path);
}

static bool is_told_by_hash(const wk__graph_node *n) {
  if (n->kind != WK__GRAPH_CONSTANT || !n->constant->storage || wk__graph_is_spelled_out(n->constant)) return false;
  return wk__host_data(n->constant) && wk__is_contiguous(n->constant);
}

static bool is_among(const wk__safetensors_entry *entries, int64_t count, const char *name) {
  for (int64_t i = 0; i < count; i++)
    if (strcmp(entries[i].name, name) == 0) return true;
  return false;
}

/* Names are hashes as in the text. */
static int64_t list_constants(const wk__graph *graph, wk__safetensors_entry *entries, char (*names)[24],
                              int64_t (*shapes)[WK_MAX_DIMS]) {
  int64_t count = 0;
  for (const wk__graph_node *n = graph->first; n; n = n->next) {
    if (!is_told_by_hash(n)) continue;
    const wk_tensor *t = n->constant;
    snprintf(names[count], sizeof *names, "0x%016llx", (unsigned long long)wk__graph_hash_elements(t));
    if (is_among(entries, count, names[count])) continue;
    for (int d = 0; d < t->ndim; d++) shapes[count][d] = wk__size(t, d);
    entries[count] = (wk__safetensors_entry){.name = names[count],
                                             .dtype = wk__dtypes[t->dtype].safetensors,
                                             .ndim = t->ndim,
                                             .shape = shapes[count],
                                             .data = wk__host_data(t)};
    count++;
  }
  return count;
}

/* The constants that the text names by hash, for loading it. */
static void write_constants(const wk__dump *dump, const wk__graph *graph) {
  size_t n = (size_t)graph->constant_count;
  wk__safetensors_entry *entries = wk__alloc_zeroed(n * sizeof *entries + 1);
  char(*names)[24] = wk__alloc(n * sizeof *names + 1);
  int64_t(*shapes)[WK_MAX_DIMS] = wk__alloc(n * sizeof *shapes + 1);
  wk__string path = {0};
  int64_t count = entries && names && shapes ? list_constants(graph, entries, names, shapes) : 0;
  wk__string_printf(&path, "%s/graph_%04d.constants.safetensors", dump->folder, dump->number);
  if (count && !path.failed && wk__safetensors_save(path.text, entries, count, NULL, 0) != WK_OK) warn_once(path.text);
  wk_error_clear();
  wk__string_release(&path);
  wk__free(entries);
  wk__free(names);
  wk__free(shapes);
}

void wk__dump_graph(wk__dump *dump, const char *pass, const wk__graph *graph) {
  if (!*dump->folder) return;
  if (dump->pass == 0 && graph->constant_count) write_constants(dump, graph);
  wk__string text = {0};
  char suffix[64];
  snprintf(suffix, sizeof suffix, "%d.%s.txt", dump->pass++, pass);
  if (wk__graph_print(&text, graph, true) == WK_OK) write_file(dump, suffix, "w", text.text);
  wk__string_release(&text);
}

void wk__dump_note(const wk__dump *dump, const char *suffix, const char *line) {
  if (!*dump->folder) return;
  wk__string text = {0};
  wk__string_printf(&text, "%s\n", line);
  if (!text.failed) write_file(dump, suffix, "a", text.text);
  wk__string_release(&text);
}

static bool is_first_of_its_kernel(const wk__kernels *kernels, int64_t index) {
  for (int64_t i = 0; i < index; i++)
    if (kernels->items[i]->kernel == kernels->items[index]->kernel) return false;
  return true;
}

static wk__code_source source_of(const wk__fused *f) {
  return (wk__code_source){
      .nest = f->kernel->nest, .name = f->name, .provenance = f->origin, .modes = f->kernel->modes};
}

/* Each kernel once, in one unit; tier 1 cuts it into a few, and leaves out what other graphs have had compiled. */
static void write_unit(const wk__dump *dump, const wk__kernels *kernels) {
  wk__code_source *sources = wk__alloc_zeroed((size_t)kernels->count * sizeof *sources);
  int count = 0;
  for (int64_t i = 0; sources && i < kernels->count; i++) {
    const wk__fused *f = kernels->items[i];
    if (!f->kernel || !is_first_of_its_kernel(kernels, i)) continue;
    sources[count++] = source_of(f);
  }
  char *text = count ? wk__c_write(sources, count, wk__cpu_level_get()) : NULL;
  if (text) write_file(dump, "unit.c", "w", text);
  if (count && !text) {
    wk__dump_note(dump, "unit.c", "/* Not compiled, tier 0 runs it:");
    wk__dump_note(dump, "unit.c", wk_error_message());
    wk__dump_note(dump, "unit.c", "*/");
    wk_error_clear();
  }
  wk__free(text);
  wk__free(sources);
}

void wk__dump_kernels(const wk__dump *dump, const wk__kernels *kernels) {
  if (!*dump->folder) return;
  wk__string text = {0};
  for (int64_t i = 0; i < kernels->count; i++) {
    const wk__fused *f = kernels->items[i];
    if (f->kernel) wk__string_printf(&text, "%s:\n%s%s\n", f->name, f->origin, f->kernel->text);
  }
  if (!text.failed) write_file(dump, "kernels.txt", "w", text.text ? text.text : "");
  wk__string_release(&text);
  if (kernels->count) write_unit(dump, kernels);
}

/* ================================================ bytes and operations ========================================== */

static double size_of(const wk_tensor *t, int dim) {
  if (dim < 0) dim += t->ndim;
  return dim >= 0 && dim < t->ndim ? (double)wk__hint(t->sizes[dim]) : 1;
}

static double elements_of(const wk_tensor *t) {
  double count = 1;
  for (int d = 0; d < t->ndim; d++) count *= size_of(t, d);
  return count;
}

/* Elements in memory: an expanded dim has them once. */
static double bytes_of(const wk_tensor *t) {
  double count = 1;
  for (int d = 0; d < t->ndim; d++) count *= wk__hint(t->strides[d]) ? size_of(t, d) : 1;
  return count * wk__dtypes[t->dtype].size;
}

/* Elements that a launch reaches through a buffer, or could reach where an index decides. */
static double elements_of_buffer(const wk__fused *f, const wk__fused_form *form, int b, const wk_int *numbers) {
  const wk__fused_buffer *from = &form->buffers[b];
  int ndim = from->sizes < 0 ? form->ndim : f->kernel->nest->buffers[b].ndim;
  int32_t sizes = from->sizes < 0 ? form->loop_sizes : from->sizes;
  double count = 1;
  for (int d = 0; d < ndim; d++)
    if (wk__hint(numbers[from->strides + d])) count *= (double)wk__hint(numbers[sizes + d]);
  return count;
}

static bool is_gathered(const wk__nest *nest, int b) {
  for (int64_t i = 0; i < nest->access_count; i++)
    if (nest->accesses[i].buffer == b && nest->accesses[i].has_indirect) return true;
  return false;
}

/* Another buffer reaches the same elements, and more of them or as many. */
static bool is_repeated(const wk__fused *f, const wk__fused_form *form, int b, const wk_int *numbers) {
  const wk__fused_buffer *from = &form->buffers[b], *other = form->buffers;
  double count = elements_of_buffer(f, form, b, numbers);
  for (int k = 0; k < f->buffer_count; k++) {
    if (k == b || other[k].input != from->input || from->input < 0) continue;
    if (wk__hint(numbers[other[k].offset]) != wk__hint(numbers[from->offset])) continue;
    double others = elements_of_buffer(f, form, k, numbers);
    if (others > count || (others == count && k < b)) return true;
  }
  return false;
}

/* A product's result that is read, its operand that is made, or random values that are not kept. */
static bool is_in_cache(const wk__fused *f, int b) {
  int input = f->form.buffers[b].input;
  bool kept = f->draw.op && input == -1 - f->draw.result;
  return input == WK__FUSED_MADE || (input < 0 && !f->kernel->nest->buffers[b].written && !kept);
}

/* A gather reads no more than there are elements to go to. */
static double bytes_of_launch(const wk__fused *f, const wk__fused_form *form, const wk_int *numbers) {
  const wk__nest *nest = f->kernel->nest;
  double counts[WK__NEST_MAX_BUFFERS], most = 0, bytes = 0;
  for (int b = 0; b < f->buffer_count; b++) {
    counts[b] = elements_of_buffer(f, form, b, numbers);
    if (!is_gathered(nest, b) && counts[b] > most) most = counts[b];
  }
  for (int b = 0; b < f->buffer_count; b++) {
    double count = is_in_cache(f, b) || is_repeated(f, form, b, numbers) ? 0 : counts[b];
    if (most > 0 && count > most && is_gathered(nest, b)) count = most;
    bytes += count * wk__dtypes[nest->buffers[b].dtype].size;
  }
  return bytes;
}

/* With the arguments of a product, and its result unless the kernel writes that. */
static double bytes_of_fused(const wk__fused *f, const wk__graph_node *n) {
  const wk__fused_product *p = &f->product;
  double bytes = bytes_of_launch(f, &f->form, n->args[1].integers);
  for (int i = 0; i < f->again_count; i++) bytes += bytes_of_launch(f, &f->again[i], n->args[1].integers);
  for (size_t i = 0; p->op && i < WK_COUNT(p->args); i++)
    if (p->args[i] >= 0) bytes += bytes_of(n->args[0].nodes[p->args[i]]->value);
  if (p->made.ndim) bytes += bytes_of(n->value);
  return bytes;
}

typedef struct adder {
  double sum, most; /* bytes of one argument at most: what the results hold, for gathers */
  wk__graph_node *seen[WK__MAX_ARGS];
  int count;
} adder;

static void add_argument(void *context, wk__graph_node *node) {
  adder *a = context;
  for (int i = 0; i < a->count; i++)
    if (a->seen[i] == node) return;
  if (a->count < WK__MAX_ARGS) a->seen[a->count++] = node;
  const wk_tensor *t = node->value;
  double bytes = t ? bytes_of(t) : 0;
  a->sum += a->most > 0 && bytes > a->most ? a->most : bytes;
}

static double bytes_of_node(const wk__graph_node *n) {
  adder a = {0};
  if (n->op->tags & WK__TAG_VIEW) return 0;
  if (n->value) a.sum += bytes_of(n->value);
  for (int i = 0; i < n->item_count; i++)
    if (n->items[i]) a.sum += bytes_of(n->items[i]);
  if (n->op->cost == WK__COST_GATHER) a.most = a.sum;
  if (n->op->cost != WK__COST_SHAPE) wk__graph_each_arg(n, add_argument, &a);
  return a.sum;
}

static const wk_tensor *shape(const wk__graph_node *n, int i) {
  const wk__graph_arg *arg = &n->args[i];
  return arg->tag == WK_VALUE_TENSOR && arg->node ? arg->node->value : NULL;
}

static const wk_tensor *first_result(const wk__graph_node *n) {
  return n->value ? n->value : n->item_count ? n->items[0] : NULL;
}

/* (B, H, T, D) by (B, H, S, D): products of T with S over D, half of them under a causal mask. */
static double flops_of_attention(const wk__graph_node *n, int query, double products) {
  const wk_tensor *q = shape(n, query), *k = shape(n, query + 1);
  int causal = -1;
  for (int i = 0; i < n->op->schema.parameter_count; i++)
    if (!strcmp(n->op->schema.parameters[i].name, "is_causal")) causal = i;
  if (!q || !k) return 0;
  double all = 2 * products * elements_of(q) * size_of(k, -2);
  return causal >= 0 && n->args[causal].tag == WK_VALUE_BOOL && n->args[causal].boolean ? all / 2 : all;
}

/* A multiplication and an addition for each element of the result and of the dim that is summed over. */
static double flops_of_product(const wk_tensor *result, double depth) {
  return result ? 2 * elements_of(result) * depth : 0;
}

/* Of the product whose epilogue or operand the kernel is. */
static double flops_of_fused(const wk__graph_node *n) {
  const wk__fused_product *p = &((const wk__fused *)n->op)->product;
  if (!p->op) return 0;
  bool left_is_made = p->made.ndim && p->made.operand == 0;
  double depth = left_is_made ? (double)wk__hint(n->args[1].integers[p->made.sizes + p->made.ndim - 1])
                              : size_of(n->args[0].nodes[p->args[0]]->value, -1);
  return flops_of_product(n->value ? n->value : n->items[p->result], depth);
}

static double flops_of_node(const wk__graph_node *n) {
  if (n->op->tags & WK__TAG_FUSED) return flops_of_fused(n);
  const wk_op *op = n->op;
  if (op->cost == WK__COST_ATTENTION) return flops_of_attention(n, op->cost_arg, op->cost_factor);
  const wk_tensor *left = op->cost == WK__COST_PRODUCT ? shape(n, op->cost_arg) : NULL;
  return left ? flops_of_product(first_result(n), size_of(left, -1)) : 0;
}

/* ===================================================== steps ==================================================== */

int64_t wk__compiled_graph_step_count(const wk__compiled_graph *c) {
  const wk__graph_executor *e = wk__compiled_graph_executor(c);
  return e ? wk__graph_step_count(e) : 0;
}

/* A new value goes to an input. */
static double bytes_of_copy(const wk__graph_executor *e, const wk__graph_step *s) {
  int32_t slot = s->patch_count ? e->patches[s->first_patch].slot : -1;
  return slot >= 0 && slot < e->input_count ? 2 * bytes_of(e->graph->inputs[slot]->value) : 0;
}

static const wk__fused *kernel_of(const wk__compiled_graph *c, const wk_op *op) {
  const wk__kernels *kernels = wk__compiled_graph_kernels(c);
  for (int64_t i = 0; kernels && i < kernels->count; i++)
    if (&kernels->items[i]->op == op && kernels->items[i]->kernel) return kernels->items[i];
  return NULL;
}

void wk__compiled_graph_step(const wk__compiled_graph *c, int64_t i, wk__step_report *out) {
  const wk__graph_executor *e = wk__compiled_graph_executor(c);
  const wk__graph_step *s = &e->steps[i];
  const _Atomic int64_t *times = atomic_load(&((wk__graph_executor *)e)->times);
  const wk__fused *kernel = kernel_of(c, s->op);
  *out = (wk__step_report){.name = s->node ? s->node->name : "copy",
                           .op = s->op->name,
                           .kernel = kernel ? kernel->name : NULL,
                           .source = s->node ? s->node->source : NULL,
                           .runs = atomic_load(&e->timed_runs)};
  if (times) out->nanoseconds = times[i];
  if (!s->node) {
    out->bytes = bytes_of_copy(e, s);
    return;
  }
  out->bytes = kernel ? bytes_of_fused(kernel, s->node) : bytes_of_node(s->node);
  out->flops = flops_of_node(s->node);
}

static bool is_written_as_c(const wk__fused *f) { return f->kernel->device->is_native != NULL; }

bool wk__compiled_graph_kernel(const wk__compiled_graph *c, int64_t i, wk__kernel_report *out) {
  const wk__fused *f = wk__compiled_graph_kernels(c)->items[i];
  if (!f->kernel) return false;
  *out = (wk__kernel_report){.name = f->name,
                             .origin = f->origin ? f->origin : "",
                             .nest = f->kernel->text,
                             .stacks = f->stacks ? f->stacks : "",
                             .native = is_written_as_c(f) && f->kernel->device->is_native(f->kernel->code)};
  return true;
}

char *wk__compiled_graph_kernel_source(const wk__compiled_graph *c, int64_t i) {
  const wk__fused *f = wk__compiled_graph_kernels(c)->items[i];
  if (!f->kernel || !is_written_as_c(f)) return NULL;
  wk__code_source source = source_of(f);
  char *text = wk__c_write_functions(&source, wk__cpu_level_get());
  if (!text) wk_error_clear();
  return text;
}
