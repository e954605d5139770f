/* Attributes of classes from outside, as data that changes (class_attributes.c). */
#ifndef WICK_DYNAMO_CAPTURE_CLASS_ATTRIBUTES_H
#define WICK_DYNAMO_CAPTURE_CLASS_ATTRIBUTES_H

#include "dynamo/capture/known.h"

typedef enum wk__in_classes {
  WK__NOT_IN_CLASSES,     /* or not in one from outside: the version of the type stands for it */
  WK__READ_IN_CLASSES,    /* it is looked at in each call, and *out_new is it */
  WK__WRITTEN_IN_CLASSES, /* the region has set it: it is what it is now */
  WK__CLASSES_FAILED,     /* r->failed is set */
} wk__in_classes;

/* A name is looked up in the classes of a type, behind `first` where that is given (super()). */
wk__in_classes wk__look_up_in_classes(wk__frame *f, wk__recording *r, PyTypeObject *type, PyObject *first,
                                      PyObject *name, PyObject **out_new);
/* class.name = value, or del where it is NULL, of a class from outside. 0, or -1 with an exception, or refused. */
int wk__set_attribute_of_class(wk__frame *f, wk__recording *r, PyObject *class, PyObject *name, PyObject *value);
/* type.__setattr__(class, name, value) */
int wk__set_usual_attribute_of_class(wk__frame *f, wk__recording *r, PyObject *class, PyObject *name, PyObject *value);

#endif
