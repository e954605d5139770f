/* A call of an operator from Python, between its three files: match.c makes values of the arguments, mismatch.c says
 * why they are none, operators.c calls. */
#ifndef WICK_PYTHON_CALLS_OPERATORS_H
#define WICK_PYTHON_CALLS_OPERATORS_H

#include "python/python.h"

enum { WK__LIST_SPACE = 4 * WK_MAX_DIMS * (int)sizeof(wk_int) }; /* bytes */

typedef struct wk__python_operator {
  PyObject_HEAD vectorcallfunc vectorcall;
  wk__state *state;
  const wk_op **overloads; /* (overload_count), owned */
  char name[64];           /* as Python sees it: "add", "add_" */
  uint8_t overload_count;
  bool in_place;  /* writes its first argument */
  bool is_method; /* bound like a function of the type */
  bool hidden;    /* a function that PyTorch has not: the core's alone */
} wk__python_operator;

typedef struct wk__list_block {
  struct wk__list_block *next;
  wk_int items[];
} wk__list_block;

/* What one attempt at matching made; everything borrows from the Python arguments. */
typedef struct wk__match {
  const wk_op *op; /* the overload that is tried */
  wk_value values[WK__MAX_ARGS];
  _Alignas(wk_int) char space[WK__LIST_SPACE]; /* what lists hold, as long as there is room */
  size_t used;
  wk__list_block *blocks; /* those that found none; freed after the call */
  PyObject *out;          /* borrowed: the out= argument */
  PyObject *requires_grad;
  PyObject *pin_memory;
  const char *problem; /* why it does not fit: the parameter's name */
  PyObject *offender;  /* borrowed: the argument that does not fit */
  int position;
  bool in_place; /* the callable writes its first argument, so there is no out= */
} wk__match;

/* 1: the arguments fit this overload, 0: they do not, -1: an exception is set. */
int wk__match_overload(wk__python_operator *o, wk__match *m, const wk_op *op, PyObject *const *args, Py_ssize_t n,
                       PyObject *keywords);
/* The same for one argument, and for out=: one tensor, or a tuple of as many as there are results. */
int wk__match_argument(wk__state *state, wk__match *m, const wk__parameter *p, PyObject *o, wk_value *v);
int wk__match_out(const wk__state *state, wk__match *m, PyObject *value);
/* Keywords of creation that are not in schemas: requires_grad=, and those that say what is so anyway. 1: taken. */
int wk__match_creation_keyword(const wk__state *state, wk__match *m, PyObject *keyword, PyObject *value);
void wk__match_release(wk__match *m);

bool wk__names_parameter(PyObject *keyword, const char *name);
/* The parameter that a keyword names; the count of parameters: there is none. Most keywords are names of the schema. */
int wk__parameter_named(const wk__schema *s, PyObject *keyword);
/* What stands for an int in a list of them: no bool, and of tensors those with one integer. */
bool wk__is_size(const wk__state *state, PyObject *o);

/* The error of arguments that fit no overload; `m` is what the last attempt left. */
void wk__raise_mismatch(const wk__python_operator *o, wk__match *m, PyObject *const *args, Py_ssize_t n,
                        PyObject *keywords);

static inline bool wk__stands_for_number(PyObject *o) {
  return PyFloat_Check(o) || PyLong_Check(o) || (PyNumber_Check(o) && !PySequence_Check(o) && !PyUnicode_Check(o));
}
static inline bool wk__is_real(PyObject *o) { return PyFloat_Check(o) || PyLong_Check(o); }
/* Makes a tensor of a dtype on a device: takes what creation takes besides. */
static inline bool wk__creates(const wk_op *op) { return op->tags & WK__TAG_NAMES_DTYPE; }
static inline bool wk__is_out_keyword(PyObject *keyword) {
  return PyUnicode_CompareWithASCIIString(keyword, "out") == 0;
}

#endif
