/* Shared by native.c (groups, workers), environment.c (settings), native_compile.c (the compiler),
 * cache.c (the folder) and native_load.c (from bytes to functions). The last three run on workers and say what
 * went wrong as text. An `environment` is borrowed from native.c, which has it from copy_environment. */
#ifndef WICK_CPU_NATIVE_NATIVE_INTERNAL_H
#define WICK_CPU_NATIVE_NATIVE_INTERNAL_H

#include <sys/types.h>

#include "base/keyed_hash.h"
#include "cpu/native/native.h"

typedef struct object_bytes {
  char *data; /* wk__free */
  size_t size;
} object_bytes;

/* Settings, read once and again after a reset. Its own strings are owned. */
typedef struct compiler {
  char *const *environment;
  char *words[16];   /* program and its first arguments; NULL at the end */
  char *path;        /* of the program */
  char identity[96]; /* changes when the program does */
} compiler;

/* A compiler that may be running, for who wants to end it. */
typedef struct compiler_process {
  _Atomic pid_t id;      /* of its group of processes; 0: none */
  _Atomic bool unwanted; /* its unit is not needed any more */
  bool yields;           /* runs where a core has nothing else to do; for a while, then as others do */
} compiler_process;

/* ---- environment.c ---- */
char **copy_environment(void); /* one block, for wk__free; NULL: no memory */
const char *environment_value(char *const *environment, const char *name); /* NULL: not set */

/* ---- compile.c ---- */
bool find_compiler(compiler *c, char *const *environment, char *why, size_t why_size);
void release_compiler(compiler *c);
void hash_request(const compiler *c, const char *source, wk__cpu_level level, uint8_t out[WK__HASH_BYTES]);
/* Runs it, for WICK_CC_LIMIT seconds at most. */
bool compile_source(const compiler *c, const char *source, wk__cpu_level level, compiler_process *process,
                    object_bytes *out, char *why, size_t why_size);
void end_compiler(compiler_process *process); /* any thread; does not wait */

/* ---- cache.c ---- */
typedef struct cache {
  int folder; /* -1: none */
  uint8_t key[32];
  int64_t most_bytes; /* of all entries */
} cache;
/* Without WICK_CACHE_DIR= a folder that cannot be used is a reason, else silently none. */
bool open_cache(cache *c, char *const *environment, char *why, size_t why_size);
void close_cache(cache *c);
bool read_entry(const cache *c, const uint8_t name[WK__HASH_BYTES], object_bytes *out); /* false: a miss */
bool write_entry(const cache *c, const uint8_t name[WK__HASH_BYTES], const object_bytes *bytes);
void note_entry(const uint8_t name[WK__HASH_BYTES]); /* this process uses it (bundle.c) */
bool write_all(int fd, const void *data, size_t size);
bool read_file(int fd, size_t most, object_bytes *out);

/* ---- native.c: settings, read when they are first needed ---- */
const cache *open_store(void);        /* NULL: there is no cache */
const compiler *known_compiler(void); /* NULL: there is none */

/* ---- improve.c ---- */
wk_status describe_kernel(const wk__code_source *source, int number, wk__native_kernel *out) WK_MUST_USE;

/* ---- known.c ---- */
typedef struct known_unit {
  uint8_t name[WK__HASH_BYTES];
  object_bytes object;
  wk__native_source source; /* its kernels, without text */
  int64_t capacity;         /* of those */
} known_unit;
typedef struct known_units {
  known_unit *items;
  int count;
  int64_t capacity;
} known_units;
bool name_kernel(const compiler *c, const wk__code_source *source, wk__cpu_level level,
                 uint8_t out[WK__HASH_BYTES]); /* false: no memory, or this build of wick has no mark */
void remember_kernel(const cache *store, const uint8_t name[WK__HASH_BYTES], const uint8_t unit[WK__HASH_BYTES],
                     int number);
void find_known(const compiler *c, const cache *store, const wk__code_source *sources, int count, wk__cpu_level level,
                known_units *out, bool *out_found);
void release_known(known_units *units);

/* ---- load.c ---- */
const struct wk__kernel_imports *wk__native_imports(void);
/* For dlclose; NULL: why. */
void *load_object(const object_bytes *bytes, char *const *environment, char *why, size_t why_size);
bool find_functions(void *library, wk__native_kernel *kernel);

#endif
