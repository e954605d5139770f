/* Tensors and numbers as PyTorch prints them.
 *
 * In: a tensor, the words around its values, the thread's print settings. Out: the text of PyTorch's repr, byte for
 * byte. The elements that will be visible are visited three times: once for the notation (whole numbers, fixed point or
 * scientific), once for the width that all of them get, once for writing. Invariant: the elements that a summary leaves
 * out are never read and never change the text. Test: tests/c/test_print.c, against texts recorded from PyTorch. */
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tensor/tensor.h"

static const wk__print_options default_settings = {4, 1000, 3, 80, -1};
const char *wk__print_module_name = "torch";

void wk__print_profile(const char *name) {
  wk__print_options options = default_settings;
  options.scientific = wk__thread.print.scientific;
  if (strcmp(name, "short") == 0) {
    options.precision = options.edge_items = 2;
  } else if (strcmp(name, "full") == 0) {
    options.threshold = INT64_MAX;
  } else if (strcmp(name, "default") != 0) {
    return;
  }
  wk__thread.print = options;
}

/* ---- the program around us may have chosen a locale in which numbers have a comma ---- */

static locale_t c_numbers;
static pthread_once_t c_numbers_once = PTHREAD_ONCE_INIT;
static void make_c_numbers(void) { c_numbers = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0); }

/* Numbers have points until uselocale(the result). */
static locale_t use_c_numbers(void) {
  pthread_once(&c_numbers_once, make_c_numbers);
  return uselocale(c_numbers); /* when it could not be made, this changes nothing */
}

/* ---- numbers as Python's repr writes them ---- */

/* The next decimal of as many digits, away from zero; false where that would need a digit more. */
static bool step_away(char *text) {
  for (char *digit = strchr(text, 'e') - 1; digit >= text; digit--) {
    if (*digit == '.') continue;
    if (*digit != '9') return ++*digit;
    *digit = '0';
  }
  return false;
}

/* The fewest digits that read back as `value`, in the form d.ddde+xx. A power of two has more room above than below, so
 * the nearest decimal may be too low where its neighbour above reads back. */
static void shortest(double value, char *text, size_t size) {
  for (int decimals = 0; decimals < 17; decimals++) {
    snprintf(text, size, "%.*e", decimals, value);
    if (strtod(text, NULL) == value || (step_away(text) && strtod(text, NULL) == value)) return;
  }
}

static void append_repeated(wk__string *s, const char *text, int64_t n) {
  while (n-- > 0) wk__string_append(s, text);
}

static void print_finite(wk__string *s, double value) {
  char digits[32];
  shortest(fabs(value), digits, sizeof digits);
  char *mark = strchr(digits, 'e');
  int exponent = atoi(mark + 1), count = (int)(mark - digits);
  if (count > 1) memmove(digits + 1, digits + 2, (size_t)--count); /* without the point */
  if (signbit(value)) wk__string_append(s, "-");
  if (exponent < -4 || exponent >= 16) {
    wk__string_printf(s, count > 1 ? "%c.%.*se%+03d" : "%c%.*se%+03d", *digits, count - 1, digits + 1, exponent);
  } else if (exponent < 0) {
    wk__string_append(s, "0.");
    append_repeated(s, "0", -exponent - 1);
    wk__string_append_n(s, digits, count);
  } else if (exponent >= count - 1) {
    wk__string_append_n(s, digits, count);
    append_repeated(s, "0", exponent - count + 1);
    wk__string_append(s, ".0");
  } else {
    wk__string_printf(s, "%.*s.%.*s", exponent + 1, digits, count - exponent - 1, digits + exponent + 1);
  }
}

/* True when it was one of the values that have a name instead of digits. */
static bool print_non_finite(wk__string *s, double value) {
  if (isfinite(value)) return false;
  wk__string_append(s, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
  return true;
}

static void print_integer(wk__string *s, wk__scalar value) {
  if (value.category == WK__BOOL_KIND) {
    wk__string_append(s, value.i ? "True" : "False");
  } else if (value.is_unsigned) {
    wk__string_printf(s, "%llu", (unsigned long long)value.i);
  } else {
    wk__string_printf(s, "%lld", (long long)value.i);
  }
}

static wk_status string_status(const wk__string *s) {
  return s->failed ? wk_fail(WK_OUT_OF_MEMORY, "out of memory while text was built") : WK_OK;
}

wk_status wk__scalar_print(wk__string *s, wk__scalar value) {
  locale_t before = use_c_numbers();
  if (value.category != WK__FLOAT_KIND) {
    print_integer(s, value);
  } else if (!print_non_finite(s, value.d)) {
    print_finite(s, value.d);
  }
  uselocale(before);
  return string_status(s);
}

double wk__double_parse(const char *text, const char **out_end) {
  locale_t before = use_c_numbers();
  char *end;
  double value = strtod(text, &end);
  uselocale(before);
  *out_end = end;
  return value;
}

/* ---- the layout that all numbers of a tensor share ---- */

/* Of the real parts, or of the imaginary ones. Zeros, NaN and infinities have no say in it. */
typedef struct layout {
  double least, most; /* magnitudes */
  bool integral;      /* all are whole numbers: "1." */
  bool scientific;
  int64_t width; /* shorter texts are padded on the left */
} layout;

typedef struct printer {
  const wk_tensor *tensor;
  wk__string *out;
  wk__string number; /* the one being formatted */
  wk_dtype dtype;    /* of one part */
  int parts;         /* numbers an element has: 2 when complex */
  bool summarize;
  layout layouts[2];
} printer;

static wk__scalar part_of(const printer *p, const char *element, int part) {
  wk__scalar value = wk__element_get(element + (size_t)part * wk__dtypes[p->dtype].size, p->dtype);
  if (p->dtype == WK_FLOAT8_E8M0 && value.d == 0x1p-127) value.d = 0; /* what a zero becomes, and is printed as */
  return value;
}

static bool has_say(wk__scalar value) {
  return value.category != WK__FLOAT_KIND || (isfinite(value.d) && value.d != 0);
}

/* Writes the number into p->number. */
static void format_part(printer *p, const char *element, int part) {
  const layout *l = &p->layouts[part];
  wk__string *s = &p->number;
  wk__scalar value = part_of(p, element, part);
  s->length = 0;
  if (value.category != WK__FLOAT_KIND) {
    print_integer(s, value);
  } else if (print_non_finite(s, value.d)) {
    return;
  } else if (l->scientific) {
    wk__string_printf(s, "%.*e", wk__thread.print.precision, value.d);
  } else if (l->integral) {
    wk__string_printf(s, "%.0f.", value.d);
  } else {
    wk__string_printf(s, "%.*f", wk__thread.print.precision, value.d);
  }
}

/* Index i of `dim` is where a summary leaves elements out: all up to the last few. */
static bool is_gap(const printer *p, int dim, int64_t i) {
  int64_t edge = wk__thread.print.edge_items;
  return p->summarize && i == edge && wk__size(p->tensor, dim) > 2 * edge;
}

static int64_t before_tail(const printer *p, int dim) {
  return wk__size(p->tensor, dim) - wk__thread.print.edge_items - 1;
}

static const char *item_at(const printer *p, int dim, const char *at, int64_t i) {
  return at + i * wk__stride(p->tensor, dim) * (int64_t)wk__itemsize(p->tensor);
}

typedef void visitor(printer *p, const char *element);

static void visit_visible(printer *p, int dim, const char *at, visitor *visit) {
  if (dim == p->tensor->ndim) {
    visit(p, at);
    return;
  }
  for (int64_t i = 0; i < wk__size(p->tensor, dim); i++) {
    if (is_gap(p, dim, i)) {
      i = before_tail(p, dim);
    } else {
      visit_visible(p, dim + 1, item_at(p, dim, at, i), visit);
    }
  }
}

static void survey_magnitude(printer *p, const char *element) {
  for (int part = 0; part < p->parts; part++) {
    layout *l = &p->layouts[part];
    wk__scalar value = part_of(p, element, part);
    if (!has_say(value)) continue;
    l->least = fmin(l->least, fabs(value.d));
    l->most = fmax(l->most, fabs(value.d));
    l->integral &= value.d == ceil(value.d);
  }
}

static void survey_width(printer *p, const char *element) {
  for (int part = 0; part < p->parts; part++) {
    if (!has_say(part_of(p, element, part))) continue;
    format_part(p, element, part);
    p->layouts[part].width = wk__max(p->layouts[part].width, p->number.length);
  }
}

static bool choose_scientific(const layout *l) {
  if (l->most == 0) return false;
  if (wk__thread.print.scientific >= 0) return wk__thread.print.scientific;
  return l->most / l->least > 1000.0 || l->most > 1e8 || l->least < 1e-4;
}

static void choose_layouts(printer *p, const char *data) {
  for (int part = 0; part < p->parts; part++) {
    p->layouts[part] = (layout){.least = INFINITY, .most = 0, .integral = true, .width = 1};
  }
  if (wk_dtype_is_floating(p->dtype)) visit_visible(p, 0, data, survey_magnitude);
  for (int part = 0; part < p->parts; part++) p->layouts[part].scientific = choose_scientific(&p->layouts[part]);
  visit_visible(p, 0, data, survey_width);
}

/* ---- writing the values ---- */

static void print_element(printer *p, const char *element) {
  format_part(p, element, 0);
  append_repeated(p->out, " ", p->layouts[0].width - p->number.length);
  wk__string_append_n(p->out, p->number.text, p->number.length);
  if (p->parts == 1) return;
  format_part(p, element, 1);
  bool has_sign = p->number.length > 0 && p->number.text[0] == '-';
  wk__string_append(p->out, has_sign ? "" : "+");
  wk__string_append_n(p->out, p->number.text, p->number.length);
  wk__string_append(p->out, "j");
}

static int64_t elements_per_line(const printer *p, int64_t indent) {
  int64_t length = p->layouts[0].width + 2; /* and ", " */
  if (p->parts == 2) length += p->layouts[1].width + 1;
  return wk__max(1, (wk__thread.print.line_width - indent) / length);
}

static void break_line(wk__string *s, int64_t lines, int64_t indent) {
  wk__string_append(s, ",");
  append_repeated(s, "\n", lines);
  append_repeated(s, " ", indent);
}

/* The items of one dim in brackets: numbers in the last dim, else bracketed items with blank lines between them. */
static void print_items(printer *p, int dim, const char *at, int64_t indent) {
  int inner = p->tensor->ndim - dim - 1;
  int64_t columns = inner ? 1 : elements_per_line(p, indent), printed = 0;
  wk__string_append(p->out, "[");
  for (int64_t i = 0; i < wk__size(p->tensor, dim); i++, printed++) {
    if (printed && printed % columns == 0) {
      break_line(p->out, inner ? inner : 1, indent + 1);
    } else if (printed) {
      wk__string_append(p->out, ", ");
    }
    if (is_gap(p, dim, i)) {
      wk__string_append(p->out, inner || i == 0 ? "..." : " ...");
      i = before_tail(p, dim);
    } else if (inner) {
      print_items(p, dim + 1, item_at(p, dim, at, i), indent + 1);
    } else {
      print_element(p, item_at(p, dim, at, i));
    }
  }
  wk__string_append(p->out, "]");
}

static wk_dtype part_dtype(wk_dtype dtype) {
  return dtype == WK_COMPLEX64 ? WK_FLOAT32 : dtype == WK_COMPLEX128 ? WK_FLOAT64 : dtype;
}

static void print_values(wk__string *s, const wk_tensor *t, const char *data, int64_t indent) {
  printer p = {
      .tensor = t,
      .out = s,
      .dtype = part_dtype((wk_dtype)t->dtype),
      .parts = wk_dtype_is_complex((wk_dtype)t->dtype) ? 2 : 1,
      .summarize = wk__numel(t) > wk__thread.print.threshold,
  };
  choose_layouts(&p, data);
  if (t->ndim) {
    print_items(&p, 0, data, indent);
  } else {
    print_element(&p, data);
  }
  s->failed |= p.number.failed;
  wk__string_release(&p.number);
}

/* ---- the words behind the values ---- */

typedef struct suffixes {
  wk__string *out;
  int64_t indent, column; /* of a new line; used of the present one */
} suffixes;

/* Code points, of which Python counts its widths: subclasses and tape nodes may have any name. */
static int64_t text_width(const char *text) {
  int64_t n = 0;
  for (; *text; text++) n += (*text & 0xc0) != 0x80;
  return n;
}

static void add_suffix(suffixes *s, const char *text) {
  int64_t width = text_width(text);
  if (s->column + width + 2 > wk__thread.print.line_width) {
    break_line(s->out, 1, s->indent);
    s->column = s->indent + width;
  } else {
    wk__string_append(s->out, ", ");
    s->column += width + 2;
  }
  wk__string_append(s->out, text);
}

/* Adds the text and empties it. */
static void add_built_suffix(suffixes *s, wk__string *text) {
  s->out->failed |= text->failed;
  if (text->text) add_suffix(s, text->text);
  wk__string_release(text);
}

static void add_device(suffixes *s, wk_device device) {
  wk__string text = {0};
  wk__string_append(&text, "device='");
  wk__device_print(&text, device);
  wk__string_append(&text, "'");
  add_built_suffix(s, &text);
}

static void add_size(suffixes *s, const wk_tensor *t) {
  wk__string text = {0};
  wk__string_append(&text, "size=(");
  for (int d = 0; d < t->ndim; d++) {
    if (d) wk__string_append(&text, ", ");
    wk_int_print(&text, t->sizes[d]);
  }
  wk__string_append(&text, t->ndim == 1 ? ",)" : ")");
  add_built_suffix(s, &text);
}

static void add_dtype(suffixes *s, wk_dtype dtype) {
  wk__string text = {0};
  wk__string_printf(&text, "dtype=%s.%s", wk__print_module_name, wk_dtype_name(dtype));
  add_built_suffix(s, &text);
}

/* A reader of values such as "1" or "1.5" or "True" would guess this dtype. */
static bool values_show_dtype(wk_dtype dtype) {
  wk_dtype real = wk__default_dtype();
  return dtype == real || dtype == WK_INT64 || dtype == WK_BOOL ||
         dtype == (real == WK_FLOAT64 ? WK_COMPLEX128 : WK_COMPLEX64);
}

static bool is_empty(const wk_tensor *t) { return t->storage && wk__numel(t) == 0; }

static void add_suffixes(suffixes *s, const wk_tensor *t, const char *suffix) {
  wk_dtype dtype = (wk_dtype)t->dtype;
  bool has_values = t->storage && !is_empty(t);
  bool shows_size = has_values ? wk__thread.print.edge_items != 0 : is_empty(t) && t->ndim == 1;
  bool shows_dtype = has_values ? values_show_dtype(dtype) : dtype == wk__default_dtype();
  if (t->device.type != WK_CPU) add_device(s, t->device);
  if (!shows_size) add_size(s, t);
  if (!shows_dtype) add_dtype(s, dtype);
  if (suffix) add_suffix(s, suffix);
}

/* ---- whole tensors ---- */

static wk_status check_readable(const wk_tensor *t) {
  if (!t->storage || is_empty(t)) return WK_OK;
  int64_t begin, end;
  wk__memory_range(t, &begin, &end);
  if (begin >= 0 && end <= t->storage->bytes) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "The tensor has a non-zero number of elements, but its data is not allocated yet.");
}

static void print_tensor(wk__string *s, const wk_tensor *t, const char *data, const char *prefix, const char *suffix) {
  int64_t start = s->length, indent = text_width(prefix);
  wk__string_append(s, prefix);
  if (!t->storage) {
    wk__string_append(s, "...");
  } else if (is_empty(t)) {
    wk__string_append(s, "[]");
  } else {
    print_values(s, t, data, indent);
  }
  if (s->failed) return;
  const char *line = strrchr(s->text + start, '\n');
  suffixes behind = {s, indent, text_width(line ? line + 1 : s->text + start) + 2}; /* 2: PyTorch counts them so */
  add_suffixes(&behind, t, suffix);
  wk__string_append(s, ")");
}

wk_status wk__tensor_print(wk__string *s, const wk_tensor *tensor, const char *prefix, const char *suffix) {
  WK_TRY(wk__realize((wk_tensor *)tensor, "a tensor's values are printed"));
  WK_TRY(check_readable(tensor));
  wk__host_view view;
  WK_TRY(wk__to_host(tensor, &view));
  locale_t before = use_c_numbers();
  print_tensor(s, tensor, view.data, prefix, suffix);
  uselocale(before);
  wk__host_view_release(&view);
  return string_status(s);
}

char *wk_tensor_text(const wk_tensor *tensor) {
  wk__string s = {0};
  if (wk__tensor_print(&s, tensor, "tensor(", NULL) == WK_OK) return wk__string_take(&s);
  wk__string_release(&s);
  return NULL;
}

void wk_text_free(char *text) { wk__free(text); }
