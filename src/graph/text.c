/* Graphs as text; the form stands in graph.h, reading it back in parse.c.
 *
 * In: a graph. Out: text with the same nodes in the same order, names, symbols and flags, and the definitions of
 * operators that are not in the table. Left out are generators and the guards of symbols; source lines are comments.
 * Tests: tests/c/test_graph.c, text_*; tests/ir/. */
#include "graph/internal.h"

const char *const wk__graph_dtype_names[WK_DTYPE_COUNT] = {
    [WK_BOOL] = "bool",
    [WK_UINT8] = "u8",
    [WK_INT8] = "i8",
    [WK_INT16] = "i16",
    [WK_INT32] = "i32",
    [WK_INT64] = "i64",
    [WK_UINT16] = "u16",
    [WK_UINT32] = "u32",
    [WK_UINT64] = "u64",
    [WK_FLOAT8_E4M3] = "f8e4m3",
    [WK_FLOAT8_E5M2] = "f8e5m2",
    [WK_FLOAT16] = "f16",
    [WK_BFLOAT16] = "bf16",
    [WK_FLOAT32] = "f32",
    [WK_FLOAT64] = "f64",
    [WK_FLOAT8_E4M3_FNUZ] = "f8e4m3fnuz",
    [WK_FLOAT8_E5M2_FNUZ] = "f8e5m2fnuz",
    [WK_FLOAT8_E8M0] = "f8e8m0fnu",
    [WK_COMPLEX64] = "c64",
    [WK_COMPLEX128] = "c128",
};

static void print_ints(wk__string *s, const wk_int *list, int64_t count) {
  wk__string_append(s, "[");
  for (int64_t i = 0; i < count; i++) {
    if (i) wk__string_append(s, ", ");
    wk_int_print(s, list[i]);
  }
  wk__string_append(s, "]");
}

/* The strides that a type without any means. */
static bool has_default_strides(wk__string *s, const wk_tensor *t) {
  wk_int strides[WK_MAX_DIMS];
  wk__contiguous_strides(strides, t->sizes, t->ndim);
  for (int d = 0; d < t->ndim; d++) {
    if (wk_int_is_poisoned(strides[d]) && wk_error_category() == WK_OUT_OF_MEMORY) s->failed = true; /* or overflow */
    if (!wk_int_same(strides[d], t->strides[d])) return false;
  }
  return true;
}

static void print_type(wk__string *s, const wk_tensor *t) {
  wk__string_append(s, wk__graph_dtype_names[t->dtype]);
  print_ints(s, t->sizes, t->ndim);
  if (!has_default_strides(s, t)) {
    wk__string_append(s, " strides ");
    print_ints(s, t->strides, t->ndim);
  }
  if (!wk_int_same(t->offset, wk_int_of(0))) {
    wk__string_append(s, " offset ");
    bool one_word = wk_int_is_known(t->offset) || wk__sym_is_leaf(t->offset);
    if (!one_word) wk__string_append(s, "(");
    wk_int_print(s, t->offset);
    if (!one_word) wk__string_append(s, ")");
  }
  if (wk__device_equal(t->device, WK__CPU_DEVICE)) return;
  wk__string_append(s, " on ");
  wk__device_print(s, t->device);
}

static void print_node_type(wk__string *s, const wk__graph_node *node) {
  wk__string_printf(s, "%%%s: ", node->name);
  if (node->value) {
    print_type(s, node->value);
    return;
  }
  wk__string_append(s, "(");
  for (int i = 0; i < node->item_count; i++) {
    if (i) wk__string_append(s, ", ");
    if (node->items[i])
      print_type(s, node->items[i]);
    else
      wk__string_append(s, "none");
  }
  wk__string_append(s, ")");
}

static void print_quoted(wk__string *s, const char *text) {
  wk__string_append(s, "'");
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '\'' || c == '\\')
      wk__string_printf(s, "\\%c", c);
    else if (c < 0x20 || c == 0x7f)
      wk__string_printf(s, "\\x%02x", c);
    else
      wk__string_append_n(s, text, 1);
  }
  wk__string_append(s, "'");
}

static void print_double(wk__string *s, double number) {
  if (wk__scalar_print(s, (wk__scalar){WK__FLOAT_KIND, .d = number})) s->failed = true;
}

static void print_arg(wk__string *s, const wk__graph_arg *arg);

static void print_list(wk__string *s, const wk__graph_arg *list) {
  wk__string_append(s, "[");
  for (uint32_t k = 0; k < list->count; k++) {
    if (k) wk__string_append(s, ", ");
    wk__graph_arg item = {.value = wk__value_item(&list->value, k)};
    if (item.tag == WK_VALUE_TENSOR && !item.node) item.tag = WK_VALUE_NONE;
    print_arg(s, &item);
  }
  wk__string_append(s, "]");
}

static void print_arg(wk__string *s, const wk__graph_arg *arg) {
  switch (arg->tag) {
    case WK_VALUE_NONE:
      wk__string_append(s, "None");
      break;
    case WK_VALUE_TENSOR:
      wk__string_printf(s, "%%%s", arg->node->name);
      break;
    case WK_VALUE_INT:
      wk_int_print(s, arg->integer);
      break;
    case WK_VALUE_DOUBLE:
      print_double(s, arg->number);
      break;
    case WK_VALUE_COMPLEX:
      wk__string_append(s, "complex(");
      print_double(s, arg->numbers[0]);
      wk__string_append(s, ", ");
      print_double(s, arg->numbers[1]);
      wk__string_append(s, ")");
      break;
    case WK_VALUE_INPUT:
      print_double(s, arg->number);
      wk__string_printf(s, " @%u", arg->count);
      break;
    case WK_VALUE_BOOL:
      wk__string_append(s, arg->boolean ? "True" : "False");
      break;
    case WK_VALUE_DTYPE:
      wk__string_append(s, wk__graph_dtype_names[arg->dtype]);
      break;
    case WK_VALUE_DEVICE:
      wk__device_print(s, arg->device);
      break;
    case WK_VALUE_STRING:
      print_quoted(s, arg->string);
      break;
    case WK_VALUE_GENERATOR: /* belongs to one process: cannot be read back */
      wk__string_append(s, "<generator>");
      break;
    default:
      print_list(s, arg);
  }
}

/* Positional arguments up to the last that is no default, then named ones. */
static void print_args(wk__string *s, const wk__graph_node *node) {
  const wk__schema *schema = &node->op->schema;
  int positional = schema->positional_count;
  bool any = false;
  while (positional > 0 && wk__graph_is_default(&node->args[positional - 1], &schema->parameters[positional - 1]))
    positional--;
  for (int i = 0; i < schema->parameter_count; i++) {
    bool named = i >= schema->positional_count;
    if (named ? wk__graph_is_default(&node->args[i], &schema->parameters[i]) : i >= positional) continue;
    if (any) wk__string_append(s, ", ");
    if (named) wk__string_printf(s, "%s=", schema->parameters[i].name);
    print_arg(s, &node->args[i]);
    any = true;
  }
}

/* ---- constants ---- */

bool wk__graph_is_spelled_out(const wk_tensor *t) {
  return wk__numel(t) <= WK__GRAPH_PRINTED_ELEMENTS && wk__host_data(t) &&
         wk__dtype_category((wk_dtype)t->dtype) != WK__COMPLEX_KIND;
}

wk_status wk__graph_each_element(const wk_tensor *t, wk__graph_element_fn *visit, void *context) {
  int64_t index[WK_MAX_DIMS] = {0}, count = wk__numel(t);
  for (int64_t n = 0; n < count; n++) {
    int64_t offset = 0;
    for (int d = 0; d < t->ndim; d++) offset += index[d] * wk__stride(t, d);
    WK_TRY(visit(context, wk__host_data(t) + offset * (int64_t)wk__itemsize(t)));
    for (int d = t->ndim - 1; d >= 0 && ++index[d] == wk__size(t, d); d--) index[d] = 0;
  }
  return WK_OK;
}

typedef struct element_printer {
  wk__string *s;
  wk_dtype dtype;
  bool any;
} element_printer;

static wk_status print_element(void *context, void *element) {
  element_printer *p = context;
  if (p->any) wk__string_append(p->s, ", ");
  p->any = true;
  return wk__scalar_print(p->s, wk__element_get(element, p->dtype));
}

static void print_constant(wk__string *s, const wk_tensor *t) {
  element_printer printer = {s, (wk_dtype)t->dtype, false};
  if (!t->storage) {
    wk__string_append(s, "constant shape"); /* the text needs its sizes and dtype only */
    return;
  }
  if (!wk__graph_is_spelled_out(t)) {
    wk__string_printf(s, "constant 0x%016llx", (unsigned long long)wk__graph_hash_elements(t));
    return;
  }
  wk__string_append(s, "constant [");
  if (wk__graph_each_element(t, print_element, &printer)) s->failed = true;
  wk__string_append(s, "]");
}

/* ---- lines ---- */

static void print_node(wk__string *s, const wk__graph_node *node, bool with_sources) {
  wk__string_append(s, "  ");
  print_node_type(s, node);
  wk__string_append(s, node->flags & WK__GRAPH_TAPED ? " = taped " : " = ");
  if (node->kind == WK__GRAPH_CONSTANT) {
    print_constant(s, node->constant);
  } else if (node->kind == WK__GRAPH_ITEM) {
    wk__string_printf(s, "item(%%%s, %d)", node->args[0].node->name, (int)node->index);
  } else {
    wk__string_printf(s, "%s(", node->op->name);
    print_args(s, node);
    wk__string_append(s, ")");
  }
  if (with_sources && node->source) {
    wk__string_printf(s, "  # %s:%d", node->source->file, node->source->line);
    if (node->source->function[0]) wk__string_printf(s, " in %s", node->source->function);
  }
  wk__string_append(s, "\n");
}

void wk__source_line_print(wk__string *out, const wk__source_line *source) {
  for (const wk__source_line *p = source; p; p = p->caller)
    wk__string_printf(out, "%s%s:%d in %s", p == source ? "" : "\t", p->file, p->line, p->function);
}

static void print_symbol(wk__string *s, const wk__symbol_info *symbol) {
  wk__string_append(s, symbol->name);
  if (symbol->hint != WK__NO_HINT) wk__string_printf(s, " = %lld", (long long)symbol->hint);
  wk__string_append(s, symbol->lo == INT64_MIN ? " in (-inf" : " in [");
  if (symbol->lo != INT64_MIN) wk__string_printf(s, "%lld", (long long)symbol->lo);
  if (symbol->hi == INT64_MAX)
    wk__string_append(s, ", inf)");
  else
    wk__string_printf(s, ", %lld]", (long long)symbol->hi);
}

static void print_header(wk__string *s, const wk__graph *graph) {
  wk__string_append(s, "graph(");
  for (int64_t i = 0; i < graph->input_count; i++) {
    if (i) wk__string_append(s, ", ");
    print_node_type(s, graph->inputs[i]);
  }
  wk__string_append(s, ")");
  int64_t symbols = graph->env ? wk__shape_env_symbol_count(graph->env) : 0;
  for (int64_t i = 0; i < symbols; i++) {
    wk__symbol_info symbol = wk__shape_env_symbol_at(graph->env, i);
    wk__string_append(s, i ? ", " : " symbols {");
    print_symbol(s, &symbol);
  }
  wk__string_append(s, symbols ? "} {\n" : " {\n");
}

static void print_ends(wk__string *s, const wk__graph *graph) {
  wk__string_append(s, "  return (");
  for (int64_t i = 0; i < graph->output_count; i++)
    wk__string_printf(s, i ? ", %%%s" : "%%%s", graph->outputs[i]->name);
  wk__string_append(s, ")\n");
  for (int64_t i = 0; i < graph->mutation_count; i++) {
    const wk__graph_mutation *m = &graph->mutations[i];
    wk__string_printf(s, i ? ", %%%s <- %%%s" : "  mutate (%%%s <- %%%s", graph->inputs[m->input]->name, m->node->name);
  }
  wk__string_append(s, graph->mutation_count ? ")\n}\n" : "}\n");
}

/* Each once, in the order of the first calls. */
static void print_definitions(wk__string *s, const wk__graph *graph, bool with_sources) {
  wk__map seen = {0};
  for (const wk__graph_node *n = graph->first; n; n = n->next) {
    const wk_op *op = n->kind == WK__GRAPH_CALL && n->op->print ? n->op : NULL;
    if (!op || wk__map_get(&seen, (uintptr_t)op)) continue;
    if (wk__map_set(&seen, (uintptr_t)op, (void *)op) != WK_OK) s->failed = true;
    wk__string_printf(s, "%s = ", op->name);
    op->print(op, s, with_sources);
    wk__string_append(s, "\n");
  }
  wk__map_release(&seen);
}

wk_status wk__graph_print(wk__string *out, const wk__graph *graph, bool with_sources) {
  print_definitions(out, graph, with_sources);
  print_header(out, graph);
  for (const wk__graph_node *node = graph->first; node; node = node->next)
    if (node->kind != WK__GRAPH_INPUT) print_node(out, node, with_sources);
  print_ends(out, graph);
  return out->failed ? wk_fail(WK_OUT_OF_MEMORY, "out of memory while a graph was printed") : WK_OK;
}
