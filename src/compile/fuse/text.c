/* Fused kernels as text, and graphs with them from text.
 *
 *     kernel_0 = kernel {
 *     # %add = add.Tensor  model.py:12 in forward       the nodes that it stands for, with places only
 *     on host2:0                                        where its tensors are, unless on the CPU
 *     loops 1 at 4                                      free of geometry: dims, and where among the numbers they begin
 *     bind 0: input 0 offset 0 sizes 1 strides 2        a buffer's tensor, and its places among the numbers of a call
 *     bind 1: result 0 offset 3 sizes 4 strides 5
 *     result 0: f32[1] sizes 6 strides 7
 *     param 0: float 2                                  argument p2 of a call; or `integer 8`, one of the numbers
 *     in place                                          the result may be an argument of the same layout
 *     checks index.Tensor                               an operator of it that checks indices
 *     product linear 1 2 - in 0                         the epilogue of a product of these inputs (-: none; true,
 *                                                       = 0.5: constants), whose result lies in that one, where
 *                                                       buffers may read it
 *     product convolution 0 1 - [1 1] [0 0] [1 1] false [0] (1) in 0     integers of arguments that are no tensors
 *     made 1: 2 at 12 transposed                        or the product's argument 1 is what the kernel makes, with two
 *                                                       dims, whose sizes begin there, and its rows as columns:
 *     bind 1: made offset 3 strides 5                   part by part
 *     draw _dropout_mask 1 in 0                         random values with probability p1 that result (-: none) keeps,
 *                                                       which buffers read as they are drawn: from there, or
 *     bind 0: drawn offset 0 strides 2                  from nowhere
 *     again                                             one more launch of the nest, given together with the first:
 *     loops 1 at 8                                      its loops
 *     bind 0: input 1 offset 9 strides 10               and all its buffers
 *     nest (i0 < s0_0)                                  the nest, as loop/text.c has it
 *     ...
 *     }
 *
 * In: a fused operator, or text. Out: text, or the operators and the graph that calls them. Text is not trusted: what a
 * call can get wrong by its form is refused here, and a launch of a kernel from text is checked when it is made.
 * Tests: tests/c/test_compile_text.c; tests/ops/test_stages.py; tests/python/test_load_graph.py. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "compile/control/control.h"
#include "compile/fuse/kernel.h"

/* ==================================================== printing =================================================== */

static void print_origin(wk__string *s, const char *origin) {
  for (const char *line = origin; line && *line; line += strcspn(line, "\n"), line += *line != 0)
    wk__string_printf(s, "# %.*s\n", (int)strcspn(line, "\n"), line);
}

static void print_buffer(wk__string *s, const wk__fused_form *form, int b) {
  const wk__fused_buffer *from = &form->buffers[b];
  bool result = from->input < 0;
  if (from->input == WK__FUSED_DRAWN || from->input == WK__FUSED_MADE)
    wk__string_printf(s, "bind %d: %s offset %d", b, from->input == WK__FUSED_MADE ? "made" : "drawn", from->offset);
  else
    wk__string_printf(s, "bind %d: %s %d offset %d", b, result ? "result" : "input",
                      result ? -1 - from->input : from->input, from->offset);
  if (from->sizes >= 0) wk__string_printf(s, " sizes %d", from->sizes);
  wk__string_printf(s, " strides %d\n", from->strides);
}

static void print_param(wk__string *s, const wk__fused *f, int i) {
  const wk__fused_param *p = &f->params[i];
  wk__string_printf(s, "param %d: %s %d\n", i, p->argument >= 0 ? "float" : "integer",
                    p->argument >= 0 ? p->argument : p->number);
}

/* One in parentheses, or a list. */
static void print_integers(wk__string *s, const wk_value *v) {
  wk__integer_span all = wk__value_integers(v);
  wk__string_append(s, v->tag == WK_VALUE_INT ? " (" : " [");
  for (uint32_t i = 0; i < all.count; i++) wk__string_printf(s, "%s%lld", i ? " " : "", (long long)all.items[i].bits);
  wk__string_append(s, v->tag == WK_VALUE_INT ? ")" : "]");
}

static void print_product(wk__string *s, const wk__fused_product *p) {
  wk__string_printf(s, "product %s", p->op->name);
  for (int i = 0; i < p->op->schema.parameter_count; i++) {
    const wk_value *constant = &p->constants[i];
    if (p->args[i] >= 0)
      wk__string_printf(s, " %d", p->args[i]);
    else if (constant->tag == WK_VALUE_BOOL)
      wk__string_append(s, constant->boolean ? " true" : " false");
    else if (constant->tag == WK_VALUE_DOUBLE)
      wk__string_printf(s, " = %a", constant->number);
    else if (wk__value_integers(constant).count)
      print_integers(s, constant);
    else
      wk__string_append(s, " -");
  }
  wk__string_printf(s, " in %d\n", p->result);
  if (p->made.ndim)
    wk__string_printf(s, "made %d: %d at %d%s\n", p->made.operand, p->made.ndim, p->made.sizes,
                      p->made.transposed ? " transposed" : "");
}

static void print_draw(wk__string *s, const wk__fused_draw *d) {
  wk__string_printf(s, "draw %s %d in ", d->op->name, d->argument);
  d->result < 0 ? wk__string_append(s, "-\n") : wk__string_printf(s, "%d\n", d->result);
}

static void print_form(wk__string *s, const wk__fused *f, const wk__fused_form *form) {
  if (form->loop_sizes >= 0) wk__string_printf(s, "loops %d at %d\n", form->ndim, form->loop_sizes);
  for (int b = 0; b < f->buffer_count; b++) print_buffer(s, form, b);
}

static void print_device(wk__string *s, wk_device device) {
  wk__string_append(s, "on ");
  wk__device_print(s, device);
  wk__string_append(s, "\n");
}

void wk__fused_print(const wk_op *op, wk__string *s, bool with_sources) {
  const wk__fused *f = (const wk__fused *)op;
  wk__string_append(s, "kernel {\n");
  if (with_sources) print_origin(s, f->origin);
  if (f->device.type != WK_CPU) print_device(s, f->device);
  print_form(s, f, &f->form);
  for (int r = 0; r < f->output_count; r++)
    wk__string_printf(s, "result %d: %s[%d] sizes %d strides %d\n", r, wk__graph_dtype_names[f->outputs[r].dtype],
                      f->outputs[r].ndim, f->outputs[r].sizes, f->outputs[r].strides);
  for (int i = 0; i < f->param_count; i++) print_param(s, f, i);
  if (op->tags & WK__TAG_POINTWISE) wk__string_append(s, "in place\n");
  if (f->index_op) wk__string_printf(s, "checks %s\n", f->index_op->name);
  if (f->product.op) print_product(s, &f->product);
  if (f->draw.op) print_draw(s, &f->draw);
  for (int i = 0; i < f->again_count; i++) {
    wk__string_append(s, "again\n");
    print_form(s, f, &f->again[i]);
  }
  wk__string_append(s, f->kernel ? f->kernel->text : "");
  wk__string_append(s, "}");
}

/* ==================================================== reading ==================================================== */

enum { LARGEST_PLACE = 1 << 20 }; /* among a call's numbers */

typedef struct reader {
  const char *at, *name; /* of the operator */
  int line;
  wk__fused *f;         /* what is read so far */
  wk__fused_form *form; /* of it, the launch that is read, */
  int bound;            /* and how many buffers it has so far */
} reader;

static wk_status expected(const reader *r, const char *what) {
  return wk_fail(WK_VALUE_ERROR, "%s, line %d, at '%.*s': expected %s", r->name, r->line, (int)strcspn(r->at, "\n"),
                 r->at, what);
}

static bool accept(reader *r, const char *word) {
  size_t n = strlen(word);
  r->at += strspn(r->at, " \t\r");
  bool whole = !isalnum((unsigned char)word[n - 1]) || !isalnum((unsigned char)r->at[n]);
  if (strncmp(r->at, word, n) != 0 || !whole) return false;
  r->at += n;
  return true;
}

static wk_status need(reader *r, const char *word) { return accept(r, word) ? WK_OK : expected(r, word); }

static wk_status read_number(reader *r, int limit, int32_t *out) {
  char *end;
  r->at += strspn(r->at, " \t");
  long value = isdigit((unsigned char)*r->at) ? strtol(r->at, &end, 10) : -1;
  if (value < 0 || value >= limit) return expected(r, "a smaller number that is not negative");
  r->at = end;
  *out = (int32_t)value;
  return WK_OK;
}

static wk_status read_named(reader *r, const char *word, int limit, int32_t *out) {
  WK_TRY(need(r, word));
  return read_number(r, limit, out);
}

/* `number:`, the next of its kind. */
static wk_status read_next(reader *r, int limit, int *count) {
  int32_t number;
  WK_TRY(read_number(r, limit, &number));
  if (number != *count) return expected(r, "numbers in order before it");
  ++*count;
  return need(r, ":");
}

static wk_status read_tensor(reader *r, wk__fused_buffer *out) {
  int32_t which;
  out->input = WK__FUSED_DRAWN;
  if (accept(r, "drawn")) return WK_OK;
  out->input = WK__FUSED_MADE;
  if (accept(r, "made")) return WK_OK;
  bool result = accept(r, "result");
  if (!result) WK_TRY(need(r, "input"));
  WK_TRY(read_number(r, WK__NEST_MAX_BUFFERS, &which));
  out->input = (int16_t)(result ? -1 - which : which);
  return WK_OK;
}

static wk_status read_buffer(reader *r) {
  WK_TRY(read_next(r, WK__NEST_MAX_BUFFERS, &r->bound));
  wk__fused_buffer *out = &r->form->buffers[r->bound - 1];
  WK_TRY(read_tensor(r, out));
  out->sizes = -1;
  WK_TRY(read_named(r, "offset", LARGEST_PLACE, &out->offset));
  if (r->form->loop_sizes < 0) WK_TRY(read_named(r, "sizes", LARGEST_PLACE, &out->sizes));
  return read_named(r, "strides", LARGEST_PLACE, &out->strides);
}

static wk_status read_result(reader *r) {
  wk__fused *f = r->f;
  int32_t ndim, dtype = 0;
  WK_TRY(read_next(r, WK__NEST_MAX_BUFFERS, &f->output_count));
  while (dtype < WK_DTYPE_COUNT && !accept(r, wk__graph_dtype_names[dtype])) dtype++;
  if (dtype == WK_DTYPE_COUNT) return expected(r, "a dtype: f32, i64, bool, ...");
  WK_TRY(need(r, "["));
  WK_TRY(read_number(r, WK_MAX_DIMS + 1, &ndim));
  WK_TRY(need(r, "]"));
  wk__fused_output *out = &f->outputs[f->output_count - 1];
  *out = (wk__fused_output){.dtype = (uint8_t)dtype, .ndim = (uint8_t)ndim};
  WK_TRY(read_named(r, "sizes", LARGEST_PLACE, &out->sizes));
  return read_named(r, "strides", LARGEST_PLACE, &out->strides);
}

static wk_status read_param(reader *r) {
  wk__fused *f = r->f;
  int32_t which;
  WK_TRY(read_next(r, WK_COUNT(f->params), &f->param_count));
  bool number = accept(r, "float");
  if (!number) WK_TRY(need(r, "integer"));
  WK_TRY(read_number(r, number ? WK__FUSED_NUMBERS : LARGEST_PLACE, &which));
  f->params[f->param_count - 1] = (wk__fused_param){(int16_t)(number ? which : -1), number ? 0 : which};
  return WK_OK;
}

static wk_status read_loops(reader *r) {
  int32_t ndim;
  if (r->bound) return expected(r, "the loops before the buffers");
  WK_TRY(read_number(r, WK__NEST_MAX_DIMS + 1, &ndim));
  if (ndim == 0) return expected(r, "at least one loop before it");
  r->form->ndim = ndim;
  return read_named(r, "at", LARGEST_PLACE, &r->form->loop_sizes);
}

static wk_status end_form(const reader *r) {
  if (r->form == &r->f->form) r->f->buffer_count = r->bound;
  return r->bound == r->f->buffer_count ? WK_OK : expected(r, "as many buffers before it as the first launch has");
}

static wk_status begin_form(reader *r) {
  wk__fused *f = r->f;
  if (f->again_count + 1 == WK__NEST_MAX_BUFFERS) return expected(r, "fewer launches");
  WK_TRY(end_form(r));
  wk__fused_form *again = wk__realloc(f->again, (size_t)(f->again_count + 1) * sizeof *again);
  if (!again) return WK_OUT_OF_MEMORY;
  f->again = again;
  r->form = &again[f->again_count++];
  *r->form = (wk__fused_form){.loop_sizes = -1};
  r->bound = 0;
  return WK_OK;
}

static wk_status read_operator(reader *r, const wk_op **out) {
  char name[64];
  r->at += strspn(r->at, " \t");
  snprintf(name, sizeof name, "%.*s", (int)strcspn(r->at, " \t\r\n"), r->at);
  *out = wk_op_find(name);
  if (!*out) return expected(r, "the name of an operator");
  r->at += strlen(name);
  return WK_OK;
}

static wk_status read_float(reader *r, double *out) {
  char *end;
  *out = strtod(r->at, &end);
  if (end == r->at) return expected(r, "a number");
  r->at = end;
  return WK_OK;
}

/* Up to the bracket that ends them. */
static wk_status read_integers(reader *r, bool list, wk_value *out) {
  wk_int items[WK_MAX_DIMS];
  uint32_t count = 0;
  while (!accept(r, list ? "]" : ")")) {
    char *end;
    long long value = strtoll(r->at, &end, 10);
    if (end == r->at || count == (list ? WK_MAX_DIMS : 1)) return expected(r, "integers, and the end of them");
    r->at = end;
    items[count++] = wk_int_of(value);
  }
  if (count == 0) return expected(r, "an integer before it");
  wk_value all = {.tag = WK_VALUE_INTS, .count = count, .integers = items};
  if (!list) all = wk__v_int(items[0].bits);
  return wk__value_copy(out, &all, wk__value_on_heap, NULL);
}

static wk_status read_product_arg(reader *r, int i) {
  wk__fused_product *p = &r->f->product;
  int32_t which;
  p->args[i] = -1;
  if (accept(r, "-")) return WK_OK;
  if (accept(r, "(")) return read_integers(r, false, &p->constants[i]);
  if (accept(r, "[")) return read_integers(r, true, &p->constants[i]);
  bool yes = accept(r, "true");
  if (yes || accept(r, "false")) {
    p->constants[i] = (wk_value){.tag = WK_VALUE_BOOL, .boolean = yes};
    return WK_OK;
  }
  if (accept(r, "=")) {
    p->constants[i].tag = WK_VALUE_DOUBLE;
    return read_float(r, &p->constants[i].number);
  }
  WK_TRY(read_number(r, WK__NEST_MAX_BUFFERS, &which));
  p->args[i] = (int16_t)which;
  return WK_OK;
}

/* A constant where the schema has a bool or a float, a tensor where it has one. */
static bool suits_parameter(const wk__fused_product *p, int i) {
  switch (p->op->schema.parameters[i].type) {
    case WK__TYPE_BOOL:
      return p->args[i] < 0 && p->constants[i].tag == WK_VALUE_BOOL;
    case WK__TYPE_FLOAT:
      return p->args[i] < 0 && (p->constants[i].tag == WK_VALUE_NONE || p->constants[i].tag == WK_VALUE_DOUBLE);
    case WK__TYPE_INT:
      return p->args[i] < 0 && p->constants[i].tag == WK_VALUE_INT;
    case WK__TYPE_INTS:
      return p->args[i] < 0 && p->constants[i].tag == WK_VALUE_INTS;
    default:
      return p->constants[i].tag == WK_VALUE_NONE;
  }
}

static wk_status read_product(reader *r) {
  wk__fused_product *p = &r->f->product;
  int32_t which;
  if (p->op) return expected(r, "one product");
  WK_TRY(read_operator(r, &p->op));
  if (!wk__is_product(p->op)) return expected(r, "a matrix product before it");
  for (int i = 0; i < WK__PRODUCT_ARGS; i++) p->args[i] = -1;
  for (int i = 0; i < p->op->schema.parameter_count; i++) {
    WK_TRY(read_product_arg(r, i));
    if (!suits_parameter(p, i)) return expected(r, "what the product's parameter takes before it");
  }
  WK_TRY(read_named(r, "in", WK__NEST_MAX_BUFFERS, &which));
  p->result = (int16_t)which;
  return WK_OK;
}

static wk_status read_made(reader *r) {
  wk__fused_made *m = &r->f->product.made;
  int32_t operand, ndim;
  WK_TRY(read_number(r, 2, &operand));
  WK_TRY(need(r, ":"));
  WK_TRY(read_number(r, WK_MAX_DIMS + 1, &ndim));
  if (ndim < 2) return expected(r, "at least two dims before it");
  WK_TRY(read_named(r, "at", LARGEST_PLACE, &m->sizes));
  m->operand = (uint8_t)operand;
  m->ndim = (uint8_t)ndim;
  m->transposed = accept(r, "transposed");
  return WK_OK;
}

static wk_status read_draw(reader *r) {
  wk__fused_draw *d = &r->f->draw;
  int32_t argument, which = -1;
  WK_TRY(read_operator(r, &d->op));
  if (!wk__is_draw(d->op)) return expected(r, "a draw of random values before it");
  WK_TRY(read_number(r, WK__FUSED_NUMBERS, &argument));
  WK_TRY(need(r, "in"));
  if (!accept(r, "-")) WK_TRY(read_number(r, WK__NEST_MAX_BUFFERS, &which));
  d->argument = (int16_t)argument;
  d->result = (int16_t)which;
  r->f->op.tags |= WK__TAG_RANDOM;
  return WK_OK;
}

static wk_status read_device(reader *r) {
  char name[32];
  r->at += strspn(r->at, " \t");
  snprintf(name, sizeof name, "%.*s", (int)strcspn(r->at, " \t\r\n"), r->at);
  r->at += strlen(name);
  if (wk__device_parse(name, &r->f->device) != WK_OK || wk__device_resolve(&r->f->device) != WK_OK)
    return wk_error_category();
  return wk__device_type_of(r->f->device) ? WK_OK : wk_error_category();
}

static wk_status read_line(reader *r) {
  if (accept(r, "loops")) return read_loops(r);
  if (accept(r, "again")) return begin_form(r);
  if (accept(r, "on")) return read_device(r);
  if (accept(r, "bind")) return read_buffer(r);
  if (accept(r, "result")) return read_result(r);
  if (accept(r, "param")) return read_param(r);
  if (accept(r, "checks")) return read_operator(r, &r->f->index_op);
  if (accept(r, "product")) return read_product(r);
  if (accept(r, "made")) return read_made(r);
  if (accept(r, "draw")) return read_draw(r);
  if (!accept(r, "in place")) return expected(r, "bind, a result, a param or the nest");
  r->f->op.tags |= WK__TAG_POINTWISE;
  return WK_OK;
}

/* Up to the nest. */
static wk_status read_lines(reader *r) {
  for (;; r->line++) {
    r->at += strspn(r->at, " \t\r");
    if (*r->at == '#') r->at += strcspn(r->at, "\n");
    if (*r->at == 0) return expected(r, "a nest");
    if (strncmp(r->at, "nest", 4) == 0) return end_form(r);
    if (*r->at != '\n') WK_TRY(read_line(r));
    r->at += strspn(r->at, " \t\r");
    if (*r->at && *r->at != '\n') return expected(r, "the end of the line");
    r->at += *r->at == '\n';
  }
}

/* ---- does the launch fit the nest ---- */

static wk_status does_not_fit(const reader *r, const char *what) {
  return wk_fail(WK_VALUE_ERROR, "%s: %s", r->name, what);
}

static bool are_known(wk_int constant, const wk_int *coefficient) {
  bool known = wk_int_is_known(constant);
  for (int v = 0; v < WK__LOOP_VARS; v++) known &= wk_int_is_known(coefficient[v]);
  return known;
}

/* A place in memory is a sum of loop variables, and of indices that were checked. */
static wk_status check_accesses(const reader *r, const wk__nest *nest) {
  for (int64_t i = 0; i < nest->access_count; i++) {
    const wk__access *a = &nest->accesses[i];
    for (int d = 0; d < a->ndim; d++) {
      wk_int constant, coefficient[WK__LOOP_VARS];
      if (!wk__sym_affine(a->index[d], &constant, coefficient) || !are_known(constant, coefficient))
        return does_not_fit(r, "an index is no sum of loop variables");
      if (a->indirect[d] && nest->instrs[a->indirect[d]].op != WK__LOOP_check_index)
        return does_not_fit(r, "an index that is read is not checked");
    }
  }
  return WK_OK;
}

/* Results are written, inputs read; a product's result and random values are read where they are made. */
static bool goes_the_right_way(const wk__fused *f, const wk__fused_form *form, const wk__nest *nest, int b) {
  int input = form->buffers[b].input, result = -1 - input;
  bool written = nest->buffers[b].written;
  if (f->draw.op && input == (f->draw.result < 0 ? WK__FUSED_DRAWN : -1 - f->draw.result))
    return !written && nest->buffers[b].dtype == WK_BOOL;
  if (input == WK__FUSED_DRAWN) return false;
  if (f->product.made.ndim && written) return input == WK__FUSED_MADE;
  if (input == WK__FUSED_MADE) return false;
  return written == (result >= 0) || (f->product.op && !written && result == f->product.result);
}

static wk_status check_source(const reader *r, const wk__nest *nest) {
  const wk__fused *f = r->f;
  bool images = f->product.op && wk__is_convolution(f->product.op);
  bool in_parts = nest->geometry_free && f->form.ndim <= 2 + images;
  if (f->product.op && (f->product.result >= f->output_count || !in_parts))
    return does_not_fit(r, "a product needs a result, and a kernel over its rows and columns");
  if (images && f->product.constants[WK__ARG(convolution, transposed)].boolean)
    return does_not_fit(r, "a transposed convolution has no epilogue");
  if (f->product.made.ndim && (!f->product.op || images || f->output_count != 1))
    return does_not_fit(r, "an operand needs a product, whose result is the only one");
  if (f->product.made.ndim && f->product.args[f->product.made.operand] >= 0)
    return does_not_fit(r, "an operand that is made is no input");
  if (f->draw.op && (f->draw.result >= f->output_count || !in_parts || f->product.op))
    return does_not_fit(r, "random values need a kernel over rows and columns, and no product beside them");
  if (f->again_count && (!nest->geometry_free || f->product.op || f->draw.op))
    return does_not_fit(r, "several launches need a nest that is free of geometry, and nothing beside it");
  return WK_OK;
}

static wk_status check_form(const reader *r, const wk__fused_form *form, const wk__nest *nest, bool *written) {
  const wk__fused *f = r->f;
  if ((form->loop_sizes >= 0) != nest->geometry_free)
    return does_not_fit(r, "`loops` is for a nest that is free of geometry, and needed there");
  for (int b = 0; b < nest->buffer_count; b++) {
    int result = -1 - form->buffers[b].input;
    if (!goes_the_right_way(f, form, nest, b)) return does_not_fit(r, "results are written, inputs read");
    if (form->buffers[b].input == WK__FUSED_MADE) {
      if (nest->buffers[b].dtype != f->outputs[0].dtype) return does_not_fit(r, "the operand has another dtype");
      written[0] = true;
    }
    if (result < 0 || form->buffers[b].input == WK__FUSED_DRAWN || form->buffers[b].input == WK__FUSED_MADE) continue;
    if (result >= f->output_count) return does_not_fit(r, "a buffer of a result that there is not");
    if (f->outputs[result].dtype != nest->buffers[b].dtype) return does_not_fit(r, "a result has another dtype");
    written[result] = true;
  }
  return WK_OK;
}

static wk_status check_nest(const reader *r, const wk__nest *nest) {
  const wk__fused *f = r->f;
  bool written[WK__NEST_MAX_BUFFERS] = {false};
  if (f->buffer_count != nest->buffer_count) return does_not_fit(r, "as many buffers as the nest has are needed");
  if (f->param_count != nest->param_count) return does_not_fit(r, "as many params as the nest has are needed");
  WK_TRY(check_source(r, nest));
  WK_TRY(check_form(r, &f->form, nest, written));
  for (int i = 0; i < f->again_count; i++) WK_TRY(check_form(r, &f->again[i], nest, written));
  for (int i = 0; i < f->output_count; i++)
    if (!written[i]) return does_not_fit(r, "each result needs a buffer");
  return f->output_count ? check_accesses(r, nest) : does_not_fit(r, "it has no result");
}

/* Symbols of the nest belong to an environment that the kernel keeps. */
static wk_status read_nest(reader *r, wk__kernel **out) {
  wk__shape_env *env = wk__shape_env_create(), *outer = env ? wk__shape_env_set_current(env) : NULL;
  if (!env) return WK_OUT_OF_MEMORY;
  wk__nest *nest = wk__nest_parse(r->at);
  wk_status status = nest ? check_nest(r, nest) : wk_error_category();
  wk__shape_env_set_current(outer);
  if (status != WK_OK) {
    wk__nest_release(nest);
    wk__shape_env_release(env);
    return status;
  }
  *out = wk__kernel_get(nest, env, r->f, NULL, 0, false);
  return *out ? WK_OK : wk_error_category();
}

static wk_status define_kernel(wk__kernels *kernels, const char *name, const char *text) {
  wk__fused read = {.form.loop_sizes = -1, .device = WK__CPU_DEVICE};
  reader r = {.at = text, .name = name, .line = 1, .f = &read, .form = &read.form};
  if (strlen(name) >= sizeof read.name) return wk_fail(WK_VALUE_ERROR, "%.40s...: the name is too long", name);
  wk_status status = read_lines(&r);
  if (status == WK_OK) status = read_nest(&r, &read.kernel);
  wk__fused *f = status == WK_OK ? wk__kernels_add(kernels, name, read.output_count) : NULL;
  if (!f) {
    wk__kernel_release(read.kernel);
    wk__fused_product_release(&read.product);
    wk__free(read.again);
    return wk_error_category();
  }
  f->op.tags |= read.op.tags;
  f->checked = true;
  f->kernel = read.kernel;
  f->device = read.device;
  f->buffer_count = read.buffer_count;
  f->param_count = read.param_count;
  f->form = read.form;
  f->again = read.again;
  f->again_count = read.again_count;
  f->index_op = read.index_op;
  f->product = read.product;
  f->draw = read.draw;
  memcpy(f->outputs, read.outputs, sizeof f->outputs);
  memcpy(f->params, read.params, sizeof f->params);
  f->origin = wk__strdup("");
  return f->origin ? WK_OK : WK_OUT_OF_MEMORY;
}

/* ---- does a call fit its kernel ---- */

static wk_status bad_call(const wk__graph_node *n, const char *what) {
  return wk_fail(WK_VALUE_ERROR, "graph node %%%s: %s of %s", n->name, what, n->op->name);
}

static bool is_described(const wk_tensor *value, const wk__fused_output *o, const wk_int *numbers, int64_t count) {
  if (!value || value->dtype != o->dtype || value->ndim != o->ndim) return false;
  if (o->sizes + o->ndim > count || o->strides + o->ndim > count) return false;
  for (int d = 0; d < o->ndim; d++)
    if (!wk_int_same(value->sizes[d], numbers[o->sizes + d]) ||
        !wk_int_same(value->strides[d], numbers[o->strides + d]))
      return false;
  return wk_int_same(value->offset, wk_int_of(0));
}

static wk_status check_buffer(const wk__graph_node *n, const wk__fused *f, const wk__fused_form *form, int b) {
  const wk__fused_buffer *from = &form->buffers[b];
  const wk__nest_buffer *buffer = &f->kernel->nest->buffers[b];
  int64_t inputs = n->args[0].count, numbers = n->args[1].count;
  int ndim = form->loop_sizes >= 0 ? form->ndim : buffer->ndim;
  if (from->offset >= numbers || from->strides + ndim > numbers) return bad_call(n, "there are not all numbers");
  if (from->sizes >= 0 && from->sizes + ndim > numbers) return bad_call(n, "there are not all numbers");
  if (from->input < 0) return WK_OK;
  if (from->input >= inputs) return bad_call(n, "there are not all inputs");
  const wk_tensor *t = n->args[0].nodes[from->input]->value;
  return t->dtype == buffer->dtype ? WK_OK : bad_call(n, "an input has another dtype than the buffer");
}

static wk_status check_form_of_call(const wk__graph_node *n, const wk__fused *f, const wk__fused_form *form) {
  int64_t numbers = n->args[1].count;
  for (int b = 0; b < f->buffer_count; b++) WK_TRY(check_buffer(n, f, form, b));
  bool all = form->loop_sizes < 0 || form->loop_sizes + form->ndim <= numbers;
  return all ? WK_OK : bad_call(n, "there are not all numbers");
}

static wk_status check_call(const wk__graph_node *n) {
  const wk__fused *f = (const wk__fused *)n->op;
  int64_t numbers = n->args[1].count;
  WK_TRY(check_form_of_call(n, f, &f->form));
  for (int i = 0; i < f->again_count; i++) WK_TRY(check_form_of_call(n, f, &f->again[i]));
  for (size_t i = 0; f->product.op && i < WK_COUNT(f->product.args); i++)
    if (f->product.args[i] >= (int64_t)n->args[0].count) return bad_call(n, "there are not all inputs");
  if (f->product.made.ndim && f->product.made.sizes + f->product.made.ndim > numbers)
    return bad_call(n, "there are not all numbers");
  for (int i = 0; i < f->param_count; i++)
    if (f->params[i].argument < 0 && f->params[i].number >= numbers) return bad_call(n, "there are not all numbers");
  if (!n->value && n->item_count != f->output_count) return bad_call(n, "there are not all results");
  for (int r = 0; r < f->output_count; r++)
    if (!is_described(n->value ? n->value : n->items[r], &f->outputs[r], n->args[1].integers, numbers))
      return bad_call(n, "a result is described otherwise");
  return WK_OK;
}

/* ============================================= graphs with kernels =============================================== */

/* A text while it is read. */
typedef struct loading {
  wk__kernels *kernels;
  wk__control_reader reader;
} loading;

static wk_status define_control(const loading *l, const char *name, const char *text) {
  wk__kernels *k = l->kernels;
  const wk_op *op = NULL;
  WK_TRY(wk__grow(&k->controls, &k->control_capacity, k->control_count + 1, sizeof *k->controls));
  WK_TRY(wk__control_define(name, text, &l->reader, &op));
  k->controls[k->control_count++] = op;
  return WK_OK;
}

static wk_status define(void *context, const char *name, const char *kind, const char *text) {
  const loading *l = context;
  if (strcmp(kind, "kernel") == 0) return define_kernel(l->kernels, name, text);
  if (strcmp(kind, "control") == 0) return define_control(l, name, text);
  return wk_fail(WK_VALUE_ERROR, "%s: expected a kernel or control flow, not '%.40s'", name, kind);
}

static const wk_op *find(void *context, const char *name) {
  const wk__kernels *k = ((const loading *)context)->kernels;
  for (int64_t i = 0; i < k->count; i++)
    if (strcmp(k->items[i]->name, name) == 0) return &k->items[i]->op;
  for (int64_t i = 0; i < k->control_count; i++)
    if (strcmp(k->controls[i]->name, name) == 0) return k->controls[i];
  return NULL;
}

static wk_status check_calls(const wk__graph *graph) {
  for (const wk__graph_node *n = graph->first; n; n = n->next)
    if (n->kind == WK__GRAPH_CALL && n->op->tags & WK__TAG_FUSED) WK_TRY(check_call(n));
  return WK_OK;
}

wk_status wk__load_graph(const char *text, wk_tensor *const *constants, int constant_count, wk__graph **out_graph,
                         wk__kernels **out_kernels) {
  wk__kernels *kernels = wk__alloc_zeroed(sizeof *kernels);
  loading l = {.kernels = kernels, .reader = {.constants = constants, .constant_count = constant_count}};
  const wk__graph_definer definer = {.context = &l, .define = define, .find = find};
  l.reader.definer = &definer;
  *out_graph = NULL;
  *out_kernels = NULL;
  if (!kernels) return WK_OUT_OF_MEMORY;
  kernels->limits = wk__no_limits;
  wk_status status = wk__graph_parse_with(text, constants, constant_count, &definer, out_graph);
  if (status == WK_OK) status = check_calls(*out_graph);
  if (status == WK_OK) status = wk__graph_freeze(*out_graph);
  if (status == WK_OK) {
    *out_kernels = kernels;
    return WK_OK;
  }
  wk__graph_release(*out_graph);
  *out_graph = NULL;
  wk__kernels_release(kernels);
  return status;
}
