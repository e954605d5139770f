/* item() and tolist() of integers, and int(): numbers that the graph tells while it is run.
 * In: a tensor of integers that are sizes now. Out: integers of the region, symbols of the graph; NULL, with nothing
 * set, where they are to be taken plainly. Tests: tests/python/capture/test_counted_sizes.py. */
#include "dynamo/capture/known.h"
#include "dynamo/capture/numbers.h"

#define BINDING (f->session->binding)

enum { MOST_ITEMS = 64, LARGEST = 1 << 20 };

/* The value can be known beside the graph, and is a size. */
static bool is_size(wk__frame *f, wk_tensor *t) {
  double now = -1;
  if (wk__tracer_number(f->session->tracer, t, &now) == WK_OK) return now >= 0 && now <= LARGEST;
  wk_error_clear();
  return false;
}

static bool tells(wk__frame *f, const wk_tensor *t, int ndim) {
  const wk__recording *r = f->session->recording;
  return r && !r->tries && wk__takes_counted(f->session, true) && t->ndim <= ndim && wk_int_is_known(t->numel) &&
         !(t->flags & WK__TENSOR_SYMBOLIC) && t->dtype != WK_BOOL && !wk_dtype_is_floating((wk_dtype)t->dtype) &&
         !wk_dtype_is_complex((wk_dtype)t->dtype);
}

static PyObject *number_of(wk__frame *f, wk_tensor *t) {  // -> new
  wk_value args[WK__MAX_ARGS] = {{.tag = WK_VALUE_TENSOR, .tensor = t}}, rows = {0};
  wk__recording *r = f->session->recording;
  if (!is_size(f, t)) return NULL;
  r->takes_item = true;
  wk_status status = wk_call(WK__OP(_told_rows), args, NULL, &rows);
  r->takes_item = false;
  if (status != WK_OK) {
    wk_error_clear();
    return NULL;
  }
  PyObject *number = wk__int_object(r, rows.tensor->sizes[0]);
  wk_value_release(&rows);
  return number;
}

PyObject *wk__counted_item(wk__frame *f, PyObject *tensor) {
  wk_tensor *t = BINDING->tensor_of(tensor);
  if (!tells(f, t, WK_MAX_DIMS) || t->numel.bits != 1) return NULL;
  if (wk__is_foreign(f->session->recording, tensor) && !wk__tracer_node(f->session->tracer, t)) wk_error_clear();
  return number_of(f, t);
}

static PyObject *item_at(wk__frame *f, wk_tensor *t, int64_t i) {  // -> new
  wk_value args[] = {{.tag = WK_VALUE_TENSOR, .tensor = t},
                     {.tag = WK_VALUE_INT, .integer = wk_int_of(0)},
                     {.tag = WK_VALUE_INT, .integer = wk_int_of(i)}};
  wk_value item = {0};
  if (wk_call(WK__OP(select_int), args, NULL, &item) != WK_OK) {
    wk_error_clear();
    return NULL;
  }
  PyObject *number = number_of(f, item.tensor);
  wk_value_release(&item);
  return number;
}

PyObject *wk__counted_list(wk__frame *f, PyObject *tensor) {
  wk_tensor *t = BINDING->tensor_of(tensor);
  if (!tells(f, t, 1) || t->ndim != 1 || t->numel.bits > MOST_ITEMS) return NULL;
  PyObject *list = PyList_New(t->numel.bits);
  for (int64_t i = 0; list && i < t->numel.bits; i++) {
    PyObject *number = item_at(f, t, i);
    if (number)
      PyList_SET_ITEM(list, i, number);
    else
      Py_CLEAR(list);
  }
  PyErr_Clear();
  return list;
}
