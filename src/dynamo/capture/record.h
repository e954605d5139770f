/* What one segment knows and will do: a recording while it is captured, the same arrays when it is replayed.
 *
 * Registers hold Python objects. A *read* finds an object from outside again and puts it into a register (slot of a
 * frame, global, attribute, item of another register); a *check* says what has to hold of a register. Both stand in one
 * list, in the order in which the program asked. A *step* does to objects what the program did: makes them, stores,
 * calls. Constants and tensors that the graph makes are registers too.
 *
 * Which register an object is, is known by its identity; the recording keeps every object that it knows alive. Numbers,
 * strings and other values without identity have no register: reading one from outside adds a check of its value, after
 * which it is a constant. */
#ifndef WICK_DYNAMO_CAPTURE_RECORD_H
#define WICK_DYNAMO_CAPTURE_RECORD_H

#include "dynamo/cpython/frames.h"
#include "dynamo/dynamo.h"
#include "trace/trace.h"

typedef int wk__reg; /* index of a register; -1: none, with a Python exception or a reason set */

typedef enum wk__read_kind {
  /* reads: registers[dest] = ... */
  WK__READ_SLOT,      /* slot b of frame a (0: root); absent: the guard fails */
  WK__READ_STACK,     /* value b of frame a's stack */
  WK__READ_CELL,      /* contents of cell a */
  WK__READ_DICT,      /* item `object` of dict a */
  WK__READ_ITEM,      /* item b of list or tuple a */
  WK__READ_ATTRIBUTE, /* attribute `object` of a, by a C descriptor of its type that only looks */
  WK__READ_INSTANCE,  /* instance dictionary of a */
  WK__READ_CLOSURE,   /* cell b of function a */
  WK__READ_DEFAULTS,  /* __defaults__ (b = 0) or __kwdefaults__ (1) of function a */
  WK__READ_GRAD,      /* .grad of tensor a, a tensor */
  WK__READ_HOOKS,     /* the dictionary of hooks of leaf a (b = 0), or of those behind accumulation (1) */
  WK__READ_FUNCTION,  /* the function object of frame a */
  WK__READ_REFERENT,  /* what weak reference a points at; None when it is gone */
  WK__READ_SYMBOLIC,  /* the value of the expression b over the symbols that have been read, an int */
  WK__READ_COMPUTED,  /* what `object`, a function of C without effects, gives for a, and b; -1: it is not given */
  WK__READ_CLOCK,     /* what `object`, a function of C, gives now; b: its turn (clocks.c) */
  WK__READ_DRAWN,     /* what `object`, a method of C, draws from a; b: its turn, and bits (draws.c) */
  WK__READ_UPCOMING,  /* what iterator a gives as number b from now on, without taking it */
  /* checks */
  WK__CHECK_IS,        /* a is `object` */
  WK__CHECK_SAME,      /* a is register b */
  WK__CHECK_DIFFERENT, /* a is not register b */
  WK__CHECK_EQUAL,     /* a has the type and value of `object` */
  WK__CHECK_CODE,      /* function a has code `object`, globals at address b, no defaults and no attributes */
  WK__CHECK_TYPE,      /* type(a) is `object`, at version b */
  WK__CHECK_LENGTH,    /* list, tuple, dict or set a has b items */
  WK__CHECK_KEYS,      /* dict a has the keys of tuple `object`, in that order */
  WK__CHECK_ABSENT,    /* dict a has no key `object`, or, where that is NULL, no key that is register b */
  WK__CHECK_PRESENT,   /* dict a has it, whatever the value */
  WK__CHECK_NO_DICT,   /* a has no instance dictionary entry `object` (and perhaps no dictionary) */
  WK__CHECK_NO_SLOT,   /* a has a slot `object`, which is empty */
  WK__CHECK_UNBOUND,   /* slot b of frame a (its stack behind the slots), or cell a (b = -1), is empty */
  WK__CHECK_NO_GRAD,   /* tensor a has no .grad */
  WK__CHECK_NO_HOOKS,  /* leaf a has none, b as of READ_HOOKS */
  WK__CHECK_COMPUTED,  /* tensor a has a grad_fn, and is no view */
  WK__CHECK_LEAF,      /* tensor a is a leaf (b = 1), or is none (0) */
  WK__CHECK_TENSOR,    /* tensor a is as specs[b] says */
  WK__CHECK_FITS,      /* float a can be converted to dtype b */
  WK__CHECK_QUIET,     /* no filter turns warnings of class a into errors */
  WK__CHECK_ADDRESS,   /* a is at address b */
  WK__CHECK_ITEMS,     /* list a has exactly the objects of tuple `object` */
  WK__CHECK_ENDS,      /* iterator a gives exactly b more, or fewer */
  WK__CHECK_MUTE_SLOT, /* slot b of frame a is empty, or what it has can be replaced without running code */
  WK__CHECK_MUTE,      /* what dict a has for `object`, object a as that slot, or list a as item b, can be replaced
                        * without running code; */
} wk__read_kind;
/* or as b: all that container a holds; a itself, whoever has it; a does not end, since somebody has it beside frames
 * and what is let go of. */
enum { WK__MUTE_CONTENT = -1, WK__MUTE_ITSELF = -2, WK__MUTE_STAYS = -3 };

typedef struct wk__read {
  uint8_t kind;
  bool fixed;   /* depends on constants and dictionary versions alone: skipped while those are unchanged */
  bool skipped; /* the program does not want it to be checked (guard_filter.c) */
  wk__reg dest, a;
  int64_t b;
  bool borrowed;    /* the object is a model that is watched, not owned */
  PyObject *object; /* owned or NULL */
} wk__read;

typedef enum wk__step_kind {
  WK__DO_CALL,  /* dest = items[0](*items[1:]), `object` keyword names or NULL */
  WK__DO_TUPLE, /* dest = tuple of items */
  WK__DO_LIST,
  WK__DO_SET,
  WK__DO_MAP, /* items: key, value, ... */
  WK__DO_SLICE,
  WK__DO_METHOD,      /* dest = bound method items[0] of items[1] */
  WK__DO_CELL,        /* dest = cell of items[0] (-1: empty) */
  WK__DO_FUNCTION,    /* dest = function; items: code, globals, defaults, kwdefaults, annotations, closure; -1: none */
  WK__DO_INSTANCE,    /* dest = object.__new__ of type items[0] */
  WK__DO_SET_ATTR,    /* items: owner, value (-1: delete); `object` the name */
  WK__DO_SET_ITEM,    /* items: owner, key, value (-1: delete) */
  WK__DO_SET_CELL,    /* items: cell, value (-1: empty) */
  WK__DO_SET_GRAD,    /* items: tensor, value (-1: None) */
  WK__DO_APPEND,      /* items: list, value */
  WK__DO_ADD,         /* items: set, value */
  WK__DO_IMPURE_CALL, /* as CALL, for its effect on items[1], a container that the program knows */
  WK__DO_EFFECT,      /* as CALL, for what it does to the process */
  WK__DO_WARN,        /* a warning, as `object` says; see warn.c */
  WK__DO_GRAD_MODE,   /* the thread's grad mode becomes `count` (0, 1) */
} wk__step_kind;

typedef struct wk__do {
  uint8_t kind;
  bool needed; /* somebody can see it */
  bool undone; /* it raised before it had done anything: there is nothing to repeat */
  wk__reg dest;
  int count;
  wk__reg *items; /* (count) */
  PyObject *object;
} wk__do;

typedef enum wk__reg_kind {
  WK__REG_READ,
  WK__REG_CONSTANT,
  WK__REG_MADE,
  WK__REG_TENSOR,
  WK__REG_NUMBER, /* an integer computed of symbols (numbers.h) */
} wk__reg_kind;
typedef struct wk__register {
  uint8_t kind;
  bool fixed;      /* READ: see wk__read; CONSTANT: always */
  bool by_code;    /* READ: a function of which CHECK_CODE has been asked: another one of that code will do */
  bool touched;    /* what its length, type or keys are has been checked */
  bool of_class;   /* a container that stands in a class: the same object, which may hold something else */
  bool is_globals; /* a module's dictionary: it changes all the time, so what is read from it is checked each time */
  bool written;    /* changed by a step: what it holds is no longer what was there at the start */
  bool symbolic;   /* an integer that stands for `number`; its value is that of this call only */
  int input;       /* position among the graph's inputs, -1 */
  int output;      /* TENSOR: position among the graph's outputs, -1 */
  uint64_t path;   /* READ: hash of where it was found, the same in every capture */
  int spec;        /* READ of a tensor: its description, -1 */
  bool borrowed;   /* the object is not owned any more: a weak reference of the segment watches it */
  wk_int number;   /* symbolic: the expression, in the graph's environment */
  wk_int over;     /* is_quotient: the float is number / over, rounded once */
  bool is_quotient;
  int64_t taken;      /* from an iterator from outside, so many */
  int others;         /* so many other registers have the object: it was found elsewhere, too */
  PyTypeObject *type; /* TENSOR: of a class that derives from Tensor; a constant register owns it; NULL: Tensor */
  PyObject *object;   /* owned: the object at capture; after capture only of constants and fixed ones */
  PyObject *names;    /* owned: attributes and keys that steps have written, a set; or NULL */
  PyObject *before; /* owned: what a container held before the first step changed it (keys of a dict, items), a tuple */
} wk__register;

/* What a captured tensor has to be like. */
typedef struct wk__tensor_spec {
  PyTypeObject *type;
  uint8_t dtype, ndim, device_type;
  int8_t device_index;
  wk__keys keys;    /* WK__KEY_AUTOGRAD or 0 */
  uint64_t dynamic; /* a bit a dim: its size is a symbol, whose range and guards are all that is checked */
  struct {
    int64_t size, stride;
    int over; /* the stride is the size times the stride of that dim; -1: it is the number */
  } dims[];   /* (ndim) */
} wk__tensor_spec;

/* Where the value of a symbol of the graph is found. */
typedef struct wk__symbol {
  wk__reg reg;
  int dim;      /* of that tensor; -1: the register is an integer */
  bool counted; /* there is no register: the graph tells it while it is run */
  bool marked;  /* by mark_dynamic(): that it turns out to be a constant is an error */
  bool ranged;  /* with min or max: so is that not all of these values are allowed */
} wk__symbol;

typedef struct wk__identity wk__identity; /* identities.c */

/* What a class from outside had when it was first looked at (class_attributes.c). All owned. */
typedef struct wk__class_picture {
  PyObject *class, *mro;
  PyObject *held;   /* dictionary: name -> value, or the address of one that is not to be kept alive */
  uint64_t version; /* of the class's own dictionary, when it was last found to be so */
} wk__class_picture;

/* A hook of what the region computes, which the graph does not make. */
typedef struct wk__left_hook {
  const char *name;        /* of the method that has registered it */
  PyObject *owner;         /* owned, as all that follow: the tensor or node that it was called of, */
  PyObject *tensor;        /* the tensor, whose node it is, */
  PyObject *hook, *handle; /* what it was given and has given */
  uint64_t sequence;       /* of the node */
  bool made;               /* by the graph after all: only its handle is looked for here */
  bool noted;              /* by a step, since the handle has been seen outside */
  bool mixed;              /* the graph makes hooks of that node in an operator of its own: this one would run first */
} wk__left_hook;

typedef struct wk__recording {
  wk__arena arena;
  wk__register *registers;
  int64_t register_count, register_capacity;
  wk__map by_object; /* PyObject * -> register + 1 */
  wk__read *reads;
  int64_t read_count, read_capacity;
  wk__do *steps;
  int64_t step_count, step_capacity;
  wk__tensor_spec **specs;
  int64_t spec_count, spec_capacity;
  wk__reg *inputs; /* registers of the graph's inputs */
  int64_t input_count, input_capacity;
  /* Numbers that have changed since an earlier capture: inputs of the graph instead of constants. In the region each is
   * an object of its own, known by its identity like everything else. */
  const wk__map *changing; /* borrowed: paths of such numbers, and of tensors with their dims; NULL: none */
  wk__map fresh;           /* hash of a read -> the region's own object */
  PyObject *last_fresh;    /* borrowed: of the last read, see wk__as_read */
  PyObject *last_found;    /* borrowed: what last_fresh stands for */
  bool keep_numbers;       /* C code will see the numbers themselves: they are constants */
  wk__reg *numbers;        /* registers of the graph's number inputs */
  int64_t number_count, number_capacity;
  wk__symbol *symbols; /* in the order of the graph's environment */
  int64_t symbol_count, symbol_capacity;
  int64_t counted;            /* of them */
  bool takes_item;            /* one is being made for item() or its kind */
  wk__symbol misfit;          /* ranged: a marked size that cannot be a symbol in its range, */
  int64_t misfit_size;        /* and this is it */
  wk__map expressions;        /* an expression -> the region's own int object */
  wk__tracer *tracer;         /* borrowed: whose graph has the symbols; NULL: nothing is symbolic */
  PyCodeObject *const *codes; /* borrowed: of the frames that it began in */
  int8_t dynamic;             /* as wk__compile_options */
  PyObject **versioned; /* dictionaries, types and functions whose versions stand for the fixed reads; owned, but for
                         * the dictionaries of models that are watched */
  bool *versioned_borrowed; /* (versioned_count) those; NULL: none */
  int64_t versioned_count, versioned_capacity;
  uint64_t *versions; /* (versioned_count) when they were first looked at: the region may have changed them since */
  int64_t version_capacity;
  wk__map read_before;    /* hash of a read -> its object: the same read is made once */
  int depth;              /* of wk__reg_of in itself */
  bool has_functions;     /* an autograd.Function has left a node on the tape that the graph does not make */
  bool keeps_tape;        /* behind its end a tensor of the graph's middle gets a hook: its history has to be there */
  wk__map functions;      /* sequence of the node of one that it does make -> anything (functions.c) */
  wk__map hooks;          /* the same of a node whose result has hooks that the graph makes -> so many */
  wk__map hook_dicts;     /* address of the hooks of a result of the region's own, which no replay has -> anything */
  wk__map hooked_nodes;   /* the graph's node that makes them -> the node of the value */
  struct wk__tried_call { /* (tried_count) owned: what the graph makes was computed from what objects held then */
    uint64_t sequence;
    uintptr_t key; /* of wk__compiled.functions_in_vain; 0 */
    struct wk__own_state *held;
  } * tried;
  int64_t tried_count, tried_capacity;
  wk__left_hook *left_hooks;
  int64_t left_hook_count, left_hook_capacity;
  wk__map hooked_leaves;   /* register and kind of a leaf that the region has hooked -> it had none before, or had */
  wk__map node_tensors;    /* address of a node's object -> the tensor whose grad_fn it is; both are kept */
  PyObject *drawn_from;    /* borrowed, a register has it: Python's random numbers are drawn from it; NULL: none are, */
  int draws;               /* so many */
  bool seeded;             /* its generator has been seeded */
  int clocks;              /* how often clocks were asked */
  bool has_before;         /* some register has kept what a container held */
  wk__map *let_go;         /* borrowed: of the call that is being noted, see wk__holders; NULL */
  wk__map special_classes; /* class -> what wk__operators_are_noted has found */
  wk__map held_by_dead;    /* object -> so many references from what is dead but for the recorder */
  bool asks_referents;     /* a weak reference from outside was asked what it points at */
  bool ended_watched;      /* something that weak references point at has ended */
  int classes_open;        /* calls that are making one */
  PyObject *shown_class;   /* borrowed: the one that the innermost of them has shown to code already; NULL */
  wk__map made_classes;    /* classes that the region has made -> themselves */
  wk__class_picture *pictures;
  int64_t picture_count, picture_capacity;
  bool writes_classes;   /* the region sets attributes of classes from outside */
  wk__map names_asked;   /* path of a name in a class's dictionary -> anything: a look-up has come by it, */
  wk__map names_guarded; /* and what is there at the start is looked at in each call, or does not matter */
  wk__map whole_types;   /* type -> anything: C code may have looked at all of it */
  struct wk__left {      /* (left_count) of frames that it began in and has left, by depth: slots that were changed */
    const bool *changed;
    int count;
  } * left; /* NULL: none */
  int left_count;
  PyObject **kept; /* (kept_count) owned: what the region has made, and is known by its address */
  int64_t kept_count, kept_capacity;
  wk__identity *identities; /* (identity_count) of what the region has made */
  int64_t identity_count, identity_capacity;
  wk__map identity_numbers; /* number -> place in identities, + 1 */
  bool tries;               /* what is recorded now is only tried: changes of what the program can see are refused, */
  bool tries_in_vain;       /* and one was; */
  int device_blocks; /* `with device(...)`: those that began, less those that ended. What was before is the block's */
  bool packs;        /* saved_tensors_hooks was entered: the tape keeps what they made */
  bool tries_modes;  /* or the thread's grad mode was asked for or set */
  struct wk__kept_trial *kept_trial;    /* what is tried is the program's own call (recomputed.c); NULL */
  char failed[160];                     /* why this recording cannot be replayed; "" */
  struct wk__recording *retired_before; /* session.h, retired */
} wk__recording;

/* Drops a reference (or none: NULL) of the recorder's own. Python code that this runs would find the session in the
 * middle of something, so it waits until nothing is being recorded. (between.c) */
void wk__bury(PyObject *steal_object);
#define WK__BURY(place)        \
  do {                         \
    PyObject *buried_ = place; \
    (place) = NULL;            \
    wk__bury(buried_);         \
  } while (0)

/* Under which `changing` remembers that another object was found at a path, whose id() the program had asked for. */
uint64_t wk__path_of_argument(PyCodeObject *code, int slot); /* of the root, as it is called */
uint64_t wk__path_of_name(PyObject *dict, PyObject *name);   /* in the dictionary of a class */
/* What a loop of the root gets from its iterator, with `depth` values below it on the stack; item 0, 1, ...: of that.
 */
uint64_t wk__path_of_round(PyCodeObject *code, int depth, int item);
static inline uint64_t wk__identity_path(uint64_t path) { return wk__hash_mix(path, 0x1d); }

wk__recording *wk__recording_create(void);
void wk__recording_release(wk__recording *r);
void wk__recording_empty(wk__recording *r); /* lets go of all objects; what is noted then goes nowhere */

/* ---- registers ---- */
wk__reg wk__reg_find(const wk__recording *r, PyObject *object); /* -1 when it has none; sets nothing */
wk__reg wk__reg_constant(wk__recording *r, PyObject *object);   /* an object that is the same in every call */
wk__reg wk__reg_made(wk__recording *r, PyObject *object);
/* The register from which `object` can be had at replay, made from what it consists of when it has none (numbers,
 * tuples of known things, bound methods, traced tensors). -1 with r->failed set when its origin is not known.
 */
wk__reg wk__reg_of(wk__recording *r, const wk__binding *binding, PyObject *object);
wk__reg wk__reg_tensor(wk__recording *r, PyObject *tensor); /* one that the graph makes */
/* A value without identity: number, string, None, dtype, ... */
bool wk__is_plain_value(const wk__binding *binding, PyObject *object);

/* ---- reading from outside ---- */
/* An object that has just been read as `kind` says becomes known, with the check that its kind asks for. 0, or -1 with
 * r->failed set. */
int wk__observe(wk__recording *r, const wk__binding *binding, PyObject *object, wk__read_kind kind, wk__reg a,
                int64_t b, PyObject *key);
/* A list, tuple or dictionary from outside, of which nothing has been looked at, has numbers that have changed since an
 * earlier capture, be it in such a one of its own: each is read when it is asked for. */
bool wk__holds_changing(const wk__recording *r, PyObject *container);
PyObject *wk__as_read(wk__recording *r, PyObject *found);  // -> new: what the region gets for what was just observed
/* Position of a changing number among the graph's number inputs, which it becomes; -1: it is a constant. */
int wk__number_input(wk__recording *r, PyObject *number);
void wk__specialize(wk__recording *r, PyObject *number); /* from here on its value is checked, and so a constant */
void wk__check(wk__recording *r, wk__read_kind kind, wk__reg a, int64_t b, PyObject *object);
void wk__check_once(wk__recording *r, wk__read_kind kind, wk__reg a, int64_t b, PyObject *object); /* if not before */
/* A container from outside is about to be changed: what it holds now can still become known later. */
int wk__keep_before(wk__recording *r, wk__reg reg);
/* The function's code and defaults are the same in every call; what the defaults hold becomes known. 0 or -1. */
/* One that the region itself has made needs none of that. (Nor does a mapping proxy over a dictionary of its own.) */
void wk__note_made(wk__recording *r, PyObject *object);
bool wk__was_made(const wk__recording *r, PyObject *object); /* or a function that is known already */
int wk__depend_on_function(wk__recording *r, const wk__binding *binding, PyObject *function);
/* Its items become known (list, tuple: with length; dict: with keys and order). For C code that looks at all of it. */
int wk__touch(wk__recording *r, const wk__binding *binding, PyObject *container);

/* ---- doing ---- */
/* Appends a step. `dest`: the object that it makes, or NULL. Items are objects. 0, or -1 with r->failed set. */
int wk__did(wk__recording *r, const wk__binding *binding, wk__step_kind kind, PyObject *dest, PyObject *const *items,
            int count, PyObject *object);
/* Whether the step changes something that is there without the region. */
bool wk__is_effect(const wk__recording *r, wk__step_kind kind, const wk__reg *items);
/* Of a dictionary, type or function: another one when it has been changed. */
uint64_t wk__version_of(PyObject *o);
/* What is found in a type's dictionaries is the same as long as the type's version is. */
int wk__depend_on_type(wk__recording *r, PyTypeObject *type);
/* The same where special methods alone are used, or what is found by wk__look_up_in_classes(): other data may change.
 */
int wk__depend_on_look_ups(wk__recording *r, PyTypeObject *type);
void wk__record_failed(wk__recording *r, const char *format, ...) WK_PRINTF(2, 3);
void wk__mark_written(wk__recording *r, wk__reg reg, PyObject *name); /* name NULL: all of it */
bool wk__was_written(const wk__recording *r, wk__reg reg, PyObject *name);

#endif
