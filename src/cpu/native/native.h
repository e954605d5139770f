/* Tier 1: generated C, compiled by the system's compiler and run in place of tier 0's programs.
 *
 * A *group* is some units of source, about one a core, and the programs that their functions belong to. They are
 * compiled in the background, out of the program's way, or found in the cache on disk; when a unit's functions are
 * there, each program is given its own by one atomic store, and from then on wk__program_run uses it. Whatever goes
 * wrong (no compiler, a full disk, a compiler that fails) leaves tier 0 running and says so once a process, on stderr.
 *
 * The compiler is WICK_CC, else the first of cc, gcc and clang on PATH; one that takes longer than WICK_CC_LIMIT
 * seconds (300) for a unit is ended. The cache is the folder WICK_CACHE_DIR, else XDG_CACHE_HOME/wick, else
 * ~/.cache/wick; WICK_CACHE_DIR= (empty) turns it off. It must be ours alone (mode 0700). Beyond WICK_CACHE_LIMIT MiB
 * (1024) the entries that were used longest ago go. An entry is a shared object
 * with a keyed hash behind it, over its content and its name, which is the hash of source, CPU level, options and
 * compiler; what does not match is no entry. Small entries beside them say in which object a nest's code is. Entries
 * are renamed into place, so that a process that dies leaves none or a whole one. Memory is never writable and
 * executable: the dynamic loader maps a sealed copy.
 *
 * After a fork the child compiles with a worker of its own; groups that were pending in the parent stay pending there.
 * Tests: tests/c/test_native.c. */
#ifndef WICK_CPU_NATIVE_NATIVE_H
#define WICK_CPU_NATIVE_NATIVE_H

#include "base/keyed_hash.h"
#include "codegen/codegen.h"
#include "cpu/tier0/program.h"

typedef void wk__native_fn(const struct wk__kernel_args *a, struct wk__kernel_thread *t, int64_t begin, int64_t end);

/* What stands for a program. A mode without a function, and launches that tier 0 does better (short ones, too), stay
 * with tier 0. */
typedef struct wk__native_code {
  wk__native_fn *functions[WK__C_MODES];
  wk__cpu_level level; /* that it was written for; used while that is the level */
  wk__c_memory memory;
} wk__native_code;

/* One kernel of a group: its program, and its functions' name without the mode ("wk_kernel_0"). */
typedef struct wk__native_kernel {
  wk__program *program; /* borrowed; may be NULL */
  wk__native_code code; /* without functions: they are looked up */
  char symbol[32];
  bool is_named; /* what it is found by in the cache, once its unit is there (known.c) */
  uint8_t name[WK__HASH_BYTES];
} wk__native_kernel;

typedef wk__code_group wk__native_group; /* the CPU has no other */

/* One unit of a group: source, or the object that the cache had. All are taken over; kernels are copied nowhere,
 * wk__alloc'ed. */
typedef struct wk__native_source {
  char *text;
  char *object; /* NULL: there is text */
  size_t object_size;
  wk__native_kernel *kernels;
  int kernel_count;
  int64_t nanoseconds; /* that its kernels took: units that took longer are compiled first */
} wk__native_source;

/* Queues the units for the background workers. NULL with the error set. */
wk__native_group *wk__native_submit(wk__native_source *steal_sources, int count, wk__cpu_level level) WK_MUST_USE;
/* Writes the sources' nests as units and submits them: their codes are programs. NULL with the error set. */
wk__native_group *wk__native_improve(const wk__code_source *sources, int count) WK_MUST_USE;
/* The same for those whose code is in the cache already, without any C being written: which, in out_found (count).
 * NULL: none, or without memory (no error set). */
wk__native_group *wk__native_recall_code(const wk__code_source *sources, int count, bool *out_found);
/* Takes the functions from the programs, which must not be running, and forgets them. Does not wait for a compiler that
 * runs for it; that is stopped. */
void wk__native_group_release(wk__native_group *group);
wk__code_state wk__native_group_state(const wk__native_group *group); /* one atomic load */
wk__code_state wk__native_group_wait(wk__native_group *group);
bool wk__native_group_from_cache(const wk__native_group *group); /* of a READY one */

/* The mode of a launch, as a bit; its buffers need no data. 0: it cannot be launched. */
unsigned wk__native_mode_of(const wk__program *program, const wk__launch *launch);

bool wk__program_is_native(const wk__program *program); /* at this moment */
/* The program's functions from now on; NULL gives it back to those that it was made with (built.h), or to tier 0.
 * `code` must stay. */
void wk__program_set_native(wk__program *program, const wk__native_code *code);

/* Small facts beside the native code in the cache folder, authenticated as that is: what was remembered under `key`,
 * if it has `size` bytes. Without a cache nothing is remembered. */
bool wk__native_recall(const void *key, size_t key_size, void *out, size_t size);
char *wk__native_recall_all(const void *key, size_t key_size, size_t *out_size); /* owned; NULL: nothing of any size */
bool wk__native_remembers(void);                                                 /* there is a cache */
void wk__native_remember(const void *key, size_t key_size, const void *data, size_t size);

/* All entries that this process has used, as bytes for another machine (owned, wk__free); NULL: there are none. */
char *wk__native_bundle(size_t *out_size);
/* Puts them into the cache, as entries of this user. How many; -1: the bytes are no bundle, or damaged. */
int64_t wk__native_unbundle(const char *data, size_t size);

#ifdef WICK_TESTS
/* Reads the settings again and forgets the compiler, the cache's key and that a warning was given. Waits for the worker
 * to be idle. */
void wk__native_reset(void);
int wk__native_warnings(void); /* how many were given since */
#endif

#endif
