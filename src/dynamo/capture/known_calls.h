/* What capture knows of functions, methods and classes that C code implements (and of a few Python functions that it
 * does not look into): the table known_calls.def. Tests: tests/python/capture/test_known_calls.py, a case a row. */
#ifndef WICK_DYNAMO_CAPTURE_KNOWN_CALLS_H
#define WICK_DYNAMO_CAPTURE_KNOWN_CALLS_H

#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

/* What a call does, and so what capture has to do about it. */
typedef enum wk__knowledge {
  WK__KNOWN_NOTHING, /* no row: the call is a break */
  /* Its result depends on its arguments alone: */
  WK__KNOWN_LOOKS, /* on all that can be reached from them, which is guarded; it may call Python functions among them */
  WK__KNOWN_VALUES, /* the same, and a size that was marked may not become a number for it */
  WK__KNOWN_PASSES, /* on what they are, not on what they hold: it hands references on, and sizes stay symbols */
  WK__KNOWN_ASKED,  /* and on what it is asked for again in front of each replay: a cache, a registry, the process */
  WK__KNOWN_DRAWS,  /* and on Python's random numbers, which each replay draws again */
  WK__KNOWN_CLOCK,  /* on the time, which each replay asks for again */
  WK__KNOWN_TAKES,  /* on a tensor's value, or random numbers drawn so far: the segment ends in front of it, also with
                       fullgraph=True */
  /* It changes something: */
  WK__KNOWN_CHANGES,  /* its object, or its first argument; noted, and done again by a replay */
  WK__KNOWN_EFFECT,   /* the process, whatever that is like; of values, noted as well */
  WK__KNOWN_RESHAPES, /* a tensor becomes its own view */
  WK__KNOWN_AUTOCAST, /* the thread's autocast state, which is guarded at a segment's start and set at its end */
  /* Python functions that are not evaluated but called, once; of arguments that are guarded: */
  WK__KNOWN_CONSTANT, /* the result is the same object for as long as the process lives */
  WK__KNOWN_FRESH,    /* the result is made for this call: values and containers of values */
  /* Of wick's own: what is called between the two becomes a part of the graph. */
  WK__KNOWN_BEGINS,
  WK__KNOWN_ENDS,
  WK__KNOWN_BY_CODE, /* calls.c has a function for it */
} wk__knowledge;

/* More of a method that changes its object, or of a function. */
enum {
  WK__CALL_BLIND = 1,        /* does the same whatever the container holds, and gives nothing back */
  WK__CALL_HALFWAY = 2,      /* may have changed something when it raises */
  WK__CALL_SEARCHES = 4,     /* compares its argument with the items */
  WK__CALL_STORES = 8,       /* puts its argument, or what that holds, into the container and looks at none of it */
  WK__CALL_KEYS = 16,        /* makes its argument a key of the container */
  WK__CALL_DROPS = 32,       /* lets go of what the container holds; */
  WK__CALL_DROPS_ITEM = 64,  /* of one item, which its first argument names */
  WK__CALL_DROPS_KEYS = 128, /* of what stands under the keys of its arguments */
  WK__CALL_GIVEN = 256,      /* of a function that is BY_CODE: where it is given to C code to call, it only looks */
};

/* What instances of a C class are. */
typedef enum wk__class_kind {
  WK__CLASS_UNKNOWN,
  WK__CLASS_OWN,   /* those that a region makes may be used in it like any value, until somebody else can see them */
  WK__CLASS_VALUE, /* immutable: what its methods give depends on the object and their arguments */
  WK__CLASS_STATE, /* what uses one is done plainly, also with fullgraph=True, as what takes a tensor's value is */
} wk__class_kind;

typedef struct wk__known_call {
  const char *owner, *name; /* a module and a function, or a class and a method; name "*": all the others */
  uint8_t what;             /* wk__knowledge */
  uint16_t how;             /* WK__CALL_... */
} wk__known_call;

/* The row of a function of a module, of a method of a class; never NULL: the row of WK__KNOWN_NOTHING. */
const wk__known_call *wk__known_function(const char *module, const char *name);
/* A Python function that is not evaluated, by its module and qualified name. */
const wk__known_call *wk__known_python_function(PyObject *function);
/* A method of a class of C code, or of the nearest such base of a class written in Python. */
const wk__known_call *wk__known_method(PyTypeObject *type, const char *name);
wk__class_kind wk__known_class(PyTypeObject *type);

#endif
