/* A program whose regions are found without being asked for: python -m wick --compile.
 *
 * Its frames are *watched*: evaluated with nothing recorded, so that a loop's rounds can be counted and the frame taken
 * over in the middle. What turns out to have no tensors is left to CPython: a function from its second call on, a loop
 * from its sixteenth round on (cpython/lend.c). A loop whose rounds call operators is *visited*: a session has its
 * frame as the root, from the head of the loop until the frame leaves it, and each round's segments are found by
 * position.
 *
 * Here: what is known of a code object's loops, and what the session of a visit asks. docs/capture.md says how it is
 * decided. */
#ifndef WICK_DYNAMO_PROGRAM_H
#define WICK_DYNAMO_PROGRAM_H

#include "dynamo/session.h"

typedef enum wk__loop_state {
  WK__LOOP_COUNTED, /* its rounds are evaluated, and what they call is counted */
  WK__LOOP_QUIET,   /* it calls few operators or none: CPython runs it until it calls many */
  WK__LOOP_REGION,  /* it is visited */
  WK__LOOP_CALLS,   /* it is evaluated, and the hot functions that it calls are compiled functions */
  WK__LOOP_LEFT,    /* nothing is gained: CPython runs it */
} wk__loop_state;

struct wk__loop {
  int head; /* an instruction, in code units, that each round comes by, the first of its body or the one that asks */
  int begin,
      end; /* its instructions: [begin, end). A `while` has its condition twice, in front of the head for `continue`
            */
  uint8_t state; /* wk__loop_state */
  /* counted */
  int trip;                         /* rounds since it was entered, */
  int longest;                      /* and the most of them */
  uint64_t work_at;                 /* work of the thread when this round began, */
  uint64_t work;                    /* and of the rounds of this trip */
  double round_work;                /* of a round, when it was found hot */
  uint64_t backwards, backwards_at; /* rounds with a backward pass; passes of the thread when this one began */
  uint64_t asked;                   /* QUIET: at so many operators it is taken back */
  bool taped;                       /* a round has recorded a tape, and not run it */
  uint64_t sequence_at;             /* of the tape, when this round began */
  /* visited, or with compiled calls: of the rounds since it was last judged that captured nothing */
  int rounds;
  uint64_t calls, replays;       /* operators that were called one by one; segments that were replayed */
  uint64_t calls_at, replays_at; /* when this round began */
  int64_t captures_at, captures; /* of its function when this round began, and before its first visit */
  int64_t visits;
};

/* What is known of a code object; PyMem_Free's. */
struct wk__watched {
  uint64_t calls, work; /* of the function, by watched frames; what those did */
  /* called as a compiled function: calls that captured nothing, operators that those called one by one, replays */
  uint64_t compiled_calls, compiled_operators, replays;
  bool gains_nothing; /* as a whole: the functions that it calls are looked at */
  int loop_count;
  wk__loop loops[]; /* (loop_count) by their heads */
};

/* ---- program_loops.c ---- */
/* NULL: without memory, or for code whose frames are not evaluated. No exception. */
wk__watched *wk__known_of(PyCodeObject *code);  // -> borrowed
/* The loop whose next round begins behind a jump back to there; the innermost one around an instruction. NULL: none. */
wk__loop *wk__loop_of_jump(wk__watched *known, int target);
wk__loop *wk__loop_around(wk__watched *known, int offset);
bool wk__loop_is_inside(const wk__loop *inner, const wk__loop *outer);

/* A round of the visited loop begins. False: it is not to be visited any more. */
bool wk__program_round(wk__session *session);
/* Segments end in front of this instruction: a loop begins a round there that is long, or trains by itself. */
bool wk__is_boundary(const wk__watched *known, int offset);
/* A loop of the root's frame, at whose head it stands, has been run plainly for many rounds: CPython gets the rest of
 * it. False: an exception has left the frame. */
bool wk__program_lend(wk__session *session, wk__frame *frame);
/* Some segment may end in the middle of a frame of this code: it has such a loop. */
bool wk__has_boundary(const wk__watched *known);
/* The frame that a watched one is about to enter: whether it is that, and the evaluation of it. */
bool wk__program_expects(PyThreadState *thread, PyCodeObject *code);
PyObject *wk__program_enter(PyThreadState *thread, struct _PyInterpreterFrame *real, int throwing);  // -> new

int wk__add_program(PyObject *module); /* 0, or -1 with an exception */

#endif
