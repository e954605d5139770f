/* The error of arguments that fit no overload, in PyTorch's words: what is wrong with them for the one overload that
 * can have been meant, or what was given and what all overloads take. Tests: tests/python/test_errors.py,
 * tests/python/test_odd_arguments.py. */

#include "dynamo/cpython/objects.h"
#include "python/calls/operators.h"

static const char *word_for(const wk__parameter *p) { return wk__types[p->type].shown; }

static const char *shown_name(const wk__parameter *p) { return strcmp(p->name, "self") == 0 ? "input" : p->name; }

/* Parameters that PyTorch's signature has and the schema has not: out=, and what creation takes besides. */
static int extra_parameters(const wk__python_operator *o, const wk_op *op) {
  bool has_out = op->out && !o->is_method && !o->in_place;
  return has_out + (wk__creates(op) ? 4 : 0);
}

static bool has_tag(const wk__python_operator *o, uint32_t tag) { return o->overloads[0]->tags & tag; }

static int required_count(const wk__python_operator *o, const wk_op *op) {
  int count = 0;
  for (int i = o->is_method; i < op->schema.parameter_count; i++) count += !op->schema.parameters[i].has_default;
  return count;
}

static void raise_extra(const wk__python_operator *o, const wk_op *op, Py_ssize_t given) {
  int max = op->schema.positional_count - o->is_method, least = required_count(o, op);
  if (o->is_method && op->schema.parameter_count == 1)
    PyErr_Format(PyExc_TypeError, "TensorBase.%s() takes no arguments (%zd given)", o->name, given);
  else if (least < max)
    PyErr_Format(PyExc_TypeError, "%s() takes from %d to %d positional arguments but %zd were given", o->name, least,
                 max, given);
  else
    PyErr_Format(PyExc_TypeError, "%s() takes %d positional argument%s but %zd %s given", o->name, max,
                 max == 1 ? "" : "s", given, given == 1 ? "was" : "were");
}

static void raise_missing(const wk__python_operator *o, const wk_op *op, int first) {
  wk__string names = {0};
  int count = 0;
  for (int i = first; i < op->schema.parameter_count; i++) {
    const wk__parameter *p = &op->schema.parameters[i];
    if (p->has_default) continue;
    wk__string_printf(&names, "%s\"%s\"", count++ ? ", " : "", shown_name(p));
  }
  PyErr_Format(PyExc_TypeError, "%s() missing %d required positional argument%s: %s", o->name, count,
               count == 1 ? "s" : "", names.text ? names.text : "");
  wk__string_release(&names);
}

/* Of a sequence where ints are wanted, what keeps it from being ints: match_ints looks at the first item. */
static PyObject *bad_first_item(const wk__state *state, const wk__parameter *p,
                                PyObject *offender) {  // -> borrowed, NULL: none
  bool sequence = PyTuple_Check(offender) || PyList_Check(offender);
  if (p->type != WK__TYPE_INTS || !sequence || PySequence_Fast_GET_SIZE(offender) == 0) return NULL;
  PyObject *item = PySequence_Fast_GET_ITEM(offender, 0);
  return wk__is_size(state, item) ? NULL : item;
}

static void raise_misfit(const wk__python_operator *o, const wk__parameter *p, PyObject *offender, int position) {
  PyObject *item = bad_first_item(o->state, p, offender);
  char place[32] = "";
  if (position >= 0) snprintf(place, sizeof place, " (position %d)", position + !o->is_method);
  if (item)
    PyErr_Format(PyExc_TypeError, "%s(): argument '%s'%s must be %s, but found element of type %s at pos 0", o->name,
                 shown_name(p), place, word_for(p), Py_TYPE(item)->tp_name);
  else
    PyErr_Format(PyExc_TypeError, "%s(): argument '%s'%s must be %s, not %s", o->name, shown_name(p), place,
                 word_for(p), Py_TYPE(offender)->tp_name);
}

static PyObject *keyword_value(const wk__parameter *p, PyObject *const *values, PyObject *keywords) {  // -> borrowed
  for (Py_ssize_t k = 0; keywords && k < PyTuple_GET_SIZE(keywords); k++)
    if (wk__names_parameter(PyTuple_GET_ITEM(keywords, k), p->name)) return values[k];
  return NULL;
}

/* What is wrong with out=, if it is given and taken at all. */
static bool raise_out(const wk__python_operator *o, const wk_op *op, PyObject *value) {
  wk__match m = {.op = op};
  if (o->in_place || o->is_method || !op->out) return false;
  if (wk__match_out(o->state, &m, value) == 0)
    PyErr_Format(PyExc_TypeError, "%s(): argument 'out' must be %s, not %s", o->name,
                 op->schema.result_count == 1 ? "Tensor" : "tuple of Tensors", Py_TYPE(value)->tp_name);
  return true;
}

/* A keyword that no parameter has, or one whose parameter was given by position. */
static void raise_keyword(const wk__python_operator *o, const wk_op *op, PyObject *const *values, Py_ssize_t n,
                          PyObject *keywords) {
  wk__match unused = {.op = op};
  for (Py_ssize_t k = 0; keywords && k < PyTuple_GET_SIZE(keywords); k++) {
    PyObject *keyword = PyTuple_GET_ITEM(keywords, k);
    int i = wk__parameter_named(&op->schema, keyword);
    if (wk__is_out_keyword(keyword) && raise_out(o, op, values[k])) {
      if (PyErr_Occurred()) return;
      continue;
    }
    if (i == op->schema.parameter_count && !wk__match_creation_keyword(o->state, &unused, keyword, Py_None)) {
      PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", o->name, keyword);
      return;
    }
    if (i < n && i < op->schema.parameter_count) {
      PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'", o->name, keyword);
      return;
    }
  }
}

/* Why these arguments do not fit this one overload, parameter after parameter as PyTorch looks at them. */
static void raise_parse(const wk__python_operator *o, const wk_op *op, wk__match *m, PyObject *const *args,
                        Py_ssize_t n, PyObject *keywords) {
  const wk__schema *s = &op->schema;
  bool spreads = s->positional_count == o->is_method + 1 && s->parameters[o->is_method].type == WK__TYPE_INTS &&
                 n > o->is_method && wk__is_size(o->state, args[o->is_method]);
  if (n > s->positional_count && !spreads) {
    raise_extra(o, op, n - o->is_method);
    return;
  }
  if (o->is_method && s->parameter_count == 1 && keywords) {
    PyErr_Format(PyExc_TypeError, "TensorBase.%s() takes no keyword arguments", o->name);
    return;
  }
  wk__match_release(m);
  m->op = op;
  for (int i = 0; i < s->parameter_count; i++) {
    const wk__parameter *p = &s->parameters[i];
    bool by_position = i < n && !p->keyword_only;
    PyObject *value = by_position ? args[i] : keyword_value(p, args + n, keywords);
    if (!value && !p->has_default) {
      raise_missing(o, op, i);
      return;
    }
    if (!value || (spreads && i == o->is_method && by_position && wk__is_size(o->state, value))) continue;
    if (p->type == WK__TYPE_TENSOR && op->tags & WK__TAG_TAKES_NUMBERS && wk__stands_for_number(value)) continue;
    int fits = wk__match_argument(o->state, m, p, value, &m->values[i]);
    if (fits == 0) raise_misfit(o, p, value, by_position ? i : -1);
    if (fits != 1) return;
  }
  raise_keyword(o, op, args + n, n, keywords);
}

static bool is_repeated(const wk_value *list) {
  for (uint32_t k = 1; k < list->count; k++) {
    wk_value item = wk__value_item(list, k), first = wk__value_item(list, 0);
    if (!wk__value_same(&item, &first)) return false;
  }
  return list->count > 0;
}

/* A list of as many alike items is shown as one of them, which is how it is written. */
static void print_default(wk__string *s, const wk_value *v) {
  wk_value item = wk__value_has_items(v) && is_repeated(v) ? wk__value_item(v, 0) : (wk_value){0};
  if (item.tag)
    print_default(s, &item);
  else if (v->tag == WK_VALUE_STRING)
    wk__string_printf(s, " = \"%s\"", v->string);
  else if (v->tag == WK_VALUE_INT)
    wk__string_printf(s, " = %lld", (long long)v->integer.bits);
  else if (v->tag == WK_VALUE_BOOL)
    wk__string_append(s, v->boolean ? " = True" : " = False");
  else if (v->tag == WK_VALUE_NONE)
    wk__string_append(s, " = None");
}

static void print_signature(wk__string *s, const wk__python_operator *o, const wk_op *op) {
  wk__string_append(s, "(");
  bool first = true, keyword = false;
  for (int i = o->is_method; i < op->schema.parameter_count; i++) {
    const wk__parameter *p = &op->schema.parameters[i];
    if (!first) wk__string_append(s, ", ");
    if (p->keyword_only && !keyword) wk__string_append(s, "*, "), keyword = true;
    first = false;
    wk__string_printf(s, "%s %s", word_for(p), shown_name(p));
    if (p->has_default) print_default(s, &p->default_value);
  }
  if (op->out && !o->is_method && !o->in_place)
    wk__string_append(s, keyword ? ", Tensor out = None" : ", *, Tensor out = None");
  wk__string_append(s, ")");
}

/* A type as PyTorch's list of what was given has it: types of ours without the module, but for the small ones. */
const char *wk__given_type(const wk__state *state, PyObject *value) {
  PyTypeObject *type = Py_TYPE(value), *small[] = {state->dtype_type, state->device_type, state->size_type,
                                                   state->memory_format_type, state->layout_type};
  for (size_t i = 0; i < WK_COUNT(small); i++)
    if (type == small[i]) return type->tp_name;
  return value == Py_None ? "NoneType" : wk__type_name(type);
}

/* Of an overload of as many arguments, which of those that were given have a wrong type. */
static void print_misfits(wk__string *s, const wk__python_operator *o, const wk_op *op, wk__match *m,
                          PyObject *const *args, Py_ssize_t n) {
  bool has_out = op->out && !o->is_method && !o->in_place; /* PyTorch counts it, too */
  if (n != op->schema.parameter_count || has_out) return;
  wk__match_release(m);
  m->op = op;
  wk__string_append(s, "      didn't match because some of the arguments have invalid types: (");
  for (Py_ssize_t i = o->is_method; i < n; i++) {
    const wk__parameter *p = &op->schema.parameters[i];
    bool fits = p->type != WK__TYPE_SCALAR && wk__match_argument(o->state, m, p, args[i], &m->values[i]) == 1;
    const char *mark = fits ? "" : "!";
    PyErr_Clear();
    wk__string_printf(s, "%s%s%s%s", i > o->is_method ? ", " : "", mark, wk__given_type(o->state, args[i]), mark);
  }
  wk__string_append(s, ")\n");
}

static void raise_no_overload(const wk__python_operator *o, wk__match *m, PyObject *const *args, Py_ssize_t n,
                              PyObject *keywords) {
  wk__string s = {0};
  wk__string_printf(&s, "%s() received an invalid combination of arguments - got (", o->name);
  Py_ssize_t all = n + (keywords ? PyTuple_GET_SIZE(keywords) : 0);
  for (Py_ssize_t i = o->is_method; i < all; i++) {
    if (i > o->is_method) wk__string_append(&s, ", ");
    if (i >= n) wk__string_printf(&s, "%s=", PyUnicode_AsUTF8(PyTuple_GET_ITEM(keywords, i - n)));
    wk__string_append(&s, wk__given_type(o->state, args[i]));
  }
  if (n == o->is_method && all > n) wk__string_append(&s, ", "); /* as PyTorch has it with keywords alone */
  int visible = 0;
  for (int k = 0; k < o->overload_count; k++) visible += !(o->overloads[k]->tags & WK__TAG_UNSHOWN);
  visible += has_tag(o, WK__TAG_MORE_OVERLOADS);
  wk__string_append(&s, visible == 1 ? "), but expected " : "), but expected one of:\n");
  for (int k = 0; k < o->overload_count; k++) {
    if (o->overloads[k]->tags & WK__TAG_UNSHOWN) continue;
    if (visible > 1) wk__string_append(&s, " * ");
    print_signature(&s, o, o->overloads[k]);
    if (visible > 1) wk__string_append(&s, "\n");
    if (visible > 1 && !keywords) print_misfits(&s, o, o->overloads[k], m, args, n);
  }
  PyErr_SetString(PyExc_TypeError, s.text ? s.text : o->name);
  wk__string_release(&s);
}

/* No overload fits. The error is that of the one overload whose number of arguments is right, or tells them all. */
void wk__raise_mismatch(const wk__python_operator *o, wk__match *m, PyObject *const *args, Py_ssize_t n,
                        PyObject *keywords) {
  Py_ssize_t given = n - o->is_method + (keywords ? PyTuple_GET_SIZE(keywords) : 0);
  const wk_op *plausible = NULL, *only = NULL;
  int plausible_count = 0, visible = 0;
  for (int k = 0; k < o->overload_count; k++) {
    const wk_op *op = o->overloads[k];
    if (op->tags & WK__TAG_UNSHOWN) continue;
    only = op;
    visible++;
    int most = op->schema.parameter_count - o->is_method + extra_parameters(o, op);
    if (given >= required_count(o, op) && given <= most) plausible = op, plausible_count++;
  }
  if (visible == 1 && !has_tag(o, WK__TAG_OLDER_FORM)) plausible = only, plausible_count = 1;
  if (plausible_count == 1 && !has_tag(o, WK__TAG_MORE_OVERLOADS)) raise_parse(o, plausible, m, args, n, keywords);
  if (!PyErr_Occurred()) raise_no_overload(o, m, args, n, keywords);
}
